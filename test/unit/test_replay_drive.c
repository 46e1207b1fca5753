/* The drive against an extender in this process: over HTTP, with a scheduler that throws a coin
 * among equal scores, every pod goes where the replay puts it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "extender/extender.h"
#include "replay/cluster_json.h"
#include "replay/command.h"
#include "replay/drive.h"
#include "replay/run.h"

#define NODES "test/golden/small/nodes.csv"
#define PODS "test/golden/small/pods.csv"

struct stand {
	char json_path[32];
	struct rp_trace trace;
	struct rp_order order;
	struct ex_service *service;
	struct ex_metrics metrics;
	struct ex_server *server;
};

/* The small cluster as JSON in a file, with GPUs of 1000 MiB. */
static void write_cluster(struct stand *s)
{
	struct err err = ERR_INIT;
	struct rp_trace t;
	FILE *f;
	int fd;

	rp_trace_init(&t);
	cr_assert_eq(rp_trace_load(&t, NODES, PODS, NULL, NULL, &err), 0, "%s", err.msg);
	snprintf(s->json_path, sizeof(s->json_path), "/tmp/tessera-XXXXXX");
	fd = mkstemp(s->json_path);
	cr_assert_geq(fd, 0);
	f = fdopen(fd, "w");
	cr_assert_not_null(f);
	cr_assert_eq(rp_cluster_json(f, &t, RP_GPU_UNITS, &err), 0, "%s", err.msg);
	fclose(f);
	rp_trace_fini(&t);
}

static void start(struct stand *s, const char *policy)
{
	struct rp_order_options how = {.seed = 11, .inflate_nano = 1300000000};
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT,
					.placer = {.policy = po_policy_find(policy),
						   .learn = true}};
	struct ex_server_config http = {.listen = "127.0.0.1:0",
					.threads = 2,
					.max_body = 1 << 24,
					.score_rest = 9,
					.metrics = &s->metrics};
	struct err err = ERR_INIT;

	memset(s, 0, sizeof(*s));
	write_cluster(s);
	rp_trace_init(&s->trace);
	cr_assert_eq(rp_trace_load(&s->trace, s->json_path, PODS, NULL, NULL, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(rp_order_make(&s->trace, &how, &s->order, &err), 0, "%s", err.msg);
	s->service = ex_service_new(&cfg, &err);
	cr_assert_not_null(s->service, "%s", err.msg);
	cr_assert_eq(ex_service_load_file(s->service, s->json_path, &err), 0, "%s", err.msg);
	cr_assert_eq(ex_service_start(s->service, &err), 0, "%s", err.msg);
	http.service = s->service;
	cr_assert_eq(ex_server_start(&http, &s->server, &err), 0, "%s", err.msg);
}

static void stop(struct stand *s)
{
	ex_server_stop(s->server);
	ex_service_free(s->service);
	rp_order_fini(&s->order);
	rp_trace_fini(&s->trace);
	unlink(s->json_path);
}

/* The replay's lines without their last field. */
static char *without_measure(const char *rows)
{
	char *text = strdup(rows), *out = text;

	cr_assert_not_null(text);
	for (const char *s = rows; *s != '\0';) {
		size_t len = strcspn(s, "\n"), head = len;

		while (head > 0 && s[head - 1] != ',')
			head--;
		memmove(out, s, head - 1);
		out += head - 1;
		*out++ = '\n';
		s += len + 1;
	}
	*out = '\0';
	return text;
}

static void same_as_replay(const char *policy)
{
	struct rp_drive_options opt = {.seed = 5, .run = 1, .concurrency = 1, .decisions = true};
	struct rp_run_options how = {.policy = po_policy_find(policy), .online = true};
	struct buf rows = BUF_INIT;
	struct rp_drive_result d;
	struct rp_result r;
	struct err err = ERR_INIT;
	struct stand s;
	char *want;

	start(&s, policy);
	opt.url = ex_server_url(s.server);
	cr_assert_eq(rp_drive(&s.trace, &s.order, &opt, &d, &err), 0, "%s", err.msg);
	how.decisions = &rows;
	cr_assert_eq(rp_run(&s.trace, &s.order, &how, &r, &err), 0, "%s", err.msg);
	want = without_measure(buf_str(&rows));
	cr_assert_str_eq(buf_str(&d.decisions), want, "%s", policy);
	cr_assert_eq(d.placements_crc32, r.placements_crc32);
	cr_assert_eq(d.placed, r.placed);
	cr_assert_eq(d.unschedulable, rp_result_failed(&r));
	cr_assert_eq(d.given_up, 0);
	cr_assert_eq(d.times[RP_FILTER].count, d.pods);
	cr_assert_eq(d.times[RP_BIND].count, d.placed);
	free(want);
	buf_fini(&rows);
	rp_drive_result_fini(&d);
	stop(&s);
}

Test(replay_drive, ca_fgd_places_as_the_replay)
{
	same_as_replay("ca-fgd");
}

Test(replay_drive, fgd_places_as_the_replay)
{
	same_as_replay("fgd");
}

Test(replay_drive, bestfit_places_as_the_replay)
{
	same_as_replay("bestfit");
}

Test(replay_drive, packing_places_as_the_replay)
{
	same_as_replay("packing");
}

Test(replay_drive, spread_places_as_the_replay)
{
	same_as_replay("spread");
}

/* Binds in flight beside the next pods' cycles: some are refused, none is lost or given twice. */
Test(replay_drive, many_binds_at_once_lose_nothing)
{
	struct rp_drive_options opt = {
		.seed = 5, .run = 1, .concurrency = 32, .retries = 5, .decisions = true};
	struct rp_drive_result d;
	struct err err = ERR_INIT;
	struct stand s;
	size_t lines = 0, placed = 0;

	start(&s, "ca-fgd");
	opt.url = ex_server_url(s.server);
	cr_assert_eq(rp_drive(&s.trace, &s.order, &opt, &d, &err), 0, "%s", err.msg);
	cr_assert_eq(d.placed + d.unschedulable + d.given_up, d.pods);
	cr_assert_eq((size_t)d.calls_refused[RP_BIND], d.retried + d.given_up);
	for (const char *l = buf_str(&d.decisions); *l != '\0'; l += strcspn(l, "\n") + 1) {
		lines++;
		placed += strncmp(strchr(strchr(l, ',') + 1, ','), ",,", 2) != 0;
	}
	cr_assert_eq(lines, d.pods);
	cr_assert_eq(placed, d.placed);
	rp_drive_result_fini(&d);
	stop(&s);
}

Test(replay_drive, a_limit_and_a_rate_are_kept)
{
	struct rp_drive_options opt = {
		.seed = 5, .run = 1, .concurrency = 4, .limit = 20, .rate = 200};
	struct rp_drive_result d;
	struct err err = ERR_INIT;
	struct stand s;

	start(&s, "bestfit");
	opt.url = ex_server_url(s.server);
	cr_assert_eq(rp_drive(&s.trace, &s.order, &opt, &d, &err), 0, "%s", err.msg);
	cr_assert_eq(d.pods, 20);
	cr_assert_eq(d.decisions.len, 0);
	cr_assert_geq(d.wall_s, 0.095); /* the 20th starts 95 ms after the first */
	rp_drive_result_fini(&d);
	stop(&s);
}

Test(replay_drive, nobody_listening_is_an_error)
{
	struct rp_drive_options opt = {.concurrency = 1};
	struct rp_drive_result d;
	struct err err = ERR_INIT;
	struct stand s;
	char url[64];

	start(&s, "bestfit");
	snprintf(url, sizeof(url), "%s", ex_server_url(s.server));
	ex_server_stop(s.server);
	s.server = NULL;
	opt.url = url;
	cr_assert_eq(rp_drive(&s.trace, &s.order, &opt, &d, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, url), "%s", err.msg);
	stop(&s);
}

Test(replay_drive, a_map_asked_for_with_the_verbs_prefix_says_so)
{
	const struct rp_command self = {"map", "", "", rp_cmd_map};
	char url[80], out[32] = "/tmp/tessera-XXXXXX", *argv[] = {(char[]){"--extender"}, url};
	char *text = NULL;
	struct err err = ERR_INIT;
	struct stand s;
	size_t len;

	start(&s, "bestfit");
	close(mkstemp(out));
	cr_assert_not_null(freopen(out, "w", stderr));
	snprintf(url, sizeof(url), "%s/v1", ex_server_url(s.server));
	cr_expect_eq(rp_cmd_map(&self, 2, argv), RP_EXIT_FAILED);
	fflush(stderr);
	cr_assert_eq(file_read(out, 1 << 16, &text, &len, &err), 0, "%s", err.msg);
	cr_expect_not_null(strstr(text, "404 (the address is wanted without the prefix of the "
					"verbs)"),
			   "%s", text);
	free(text);
	unlink(out);
	stop(&s);
}

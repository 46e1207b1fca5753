/* Command-line tables, latencies, tallies, and Pod objects made from requests. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/object.h"
#include "replay/command.h"
#include "replay/drive.h"
#include "replay/options.h"
#include "replay/pod_json.h"
#include "replay/report.h"
#include "replay/report_time.h"
#include "replay/stats.h"
#include "state/contract.h"

/* ---- options ---- */

struct values {
	bool flag;
	const char *text;
	int64_t number, decimal;
};

static int parse(struct values *v, int argc, char **argv, struct err *err)
{
	const struct rp_option options[] = {
		{"flag", NULL, RP_OPT_FLAG, &v->flag, 0, 0, "a flag"},
		{"text", "FILE", RP_OPT_TEXT, &v->text, 0, 0, "a text\nwith a second line"},
		{"number", "N", RP_OPT_INTEGER, &v->number, 1, 10, "a number"},
		{"decimal", "R", RP_OPT_DECIMAL, &v->decimal, 1, 2000000000, "a decimal"},
	};

	return rp_options_parse(options, 4, argc, argv, err);
}

Test(replay_options, takes_both_forms)
{
	char *argv[] = {(char[]){"--flag"},     (char[]){"--text"},    (char[]){"a"},
			(char[]){"--number=7"}, (char[]){"--decimal"}, (char[]){"1.25"}};
	struct err err = ERR_INIT;
	struct values v = {0};

	cr_assert_eq(parse(&v, 6, argv, &err), 0, "%s", err.msg);
	cr_assert(v.flag);
	cr_assert_str_eq(v.text, "a");
	cr_assert_eq(v.number, 7);
	cr_assert_eq(v.decimal, 1250000000);
}

Test(replay_options, says_what_is_wrong)
{
	static const struct {
		const char *arg, *message;
	} rows[] = {
		{"text", "\"text\" is not an option"},
		{"--nope", "no such option: --nope"},
		{"--flag=1", "--flag takes no value"},
		{"--text", "--text wants FILE"},
		{"--text=", "--text wants FILE"},
		{"--number=0", "--number: "},
		{"--number=x", "--number: \"x\""},
		{"--decimal=3", "--decimal: \"3\" is not between 0.000000001 and 2"},
		{"--decimal=-1", "--decimal: \"-1\""},
		{"--numbe=1", "no such option: --numbe=1"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char arg[64];
		char *argv[] = {arg};
		struct err err = ERR_INIT;
		struct values v = {0};

		memcpy(arg, rows[i].arg, strlen(rows[i].arg) + 1);
		cr_expect_lt(parse(&v, 1, argv, &err), 0, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, rows[i].message), "row %zu: %s", i, err.msg);
	}
}

Test(replay_options, help_is_no_error)
{
	char *argv[] = {(char[]){"--number"}, (char[]){"3"}, (char[]){"--help"}};
	struct err err = ERR_INIT;
	struct values v = {0};

	cr_assert_eq(parse(&v, 3, argv, &err), RP_HELP_WANTED);
	cr_assert_str_eq(err.msg, "");
}

Test(replay_options, lists_of_seeds)
{
	static const char *const bad[] = {"",       "x",
					  "1,",     ",1",
					  "1,,2",   "-1",
					  "1 ",     "99999999999999999999",
					  "1,2;3",  "5-4",
					  "1-",     "1-2-3",
					  "1-1001", "0-9223372036854775806"};
	uint64_t seeds[RP_SEEDS_MAX];
	struct err err = ERR_INIT;
	size_t n;

	cr_assert_eq(rp_seeds_parse("1,22,333", seeds, &n, &err), 0);
	cr_assert(n == 3 && seeds[0] == 1 && seeds[1] == 22 && seeds[2] == 333);
	cr_assert_eq(rp_seeds_parse("7,42-44", seeds, &n, &err), 0);
	cr_assert(n == 4 && seeds[0] == 7 && seeds[1] == 42 && seeds[3] == 44);
	cr_assert_eq(rp_seeds_parse("1-1000", seeds, &n, &err), 0);
	cr_assert_eq(n, 1000);
	cr_assert_eq(rp_seeds_parse(NULL, seeds, &n, &err), 0);
	cr_assert(n == 1 && seeds[0] == 42);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_lt(rp_seeds_parse(bad[i], seeds, &n, &err), 0, "\"%s\"", bad[i]);
}

/* ---- latencies and tallies ---- */

Test(replay_stats, percentiles_are_nearest_ranks)
{
	struct rp_times t = {0};

	cr_assert_eq(rp_times_at(&t, 500), 0);
	for (int i = 1000; i >= 1; i--)
		cr_assert_eq(rp_times_add(&t, i, NULL), 0);
	cr_assert_eq(rp_times_at(&t, 500), 500);
	cr_assert_eq(rp_times_at(&t, 990), 990);
	cr_assert_eq(rp_times_at(&t, 1000), 1000);
	cr_assert_eq(rp_times_at(&t, 0), 1);
	rp_times_fini(&t);
	cr_assert_eq(rp_times_add(&t, -5, NULL), 0);
	cr_assert_eq(rp_times_add(&t, INT64_MAX, NULL), 0);
	cr_assert_eq(rp_times_at(&t, 500), 0);
	cr_assert_eq(rp_times_at(&t, 900), UINT32_MAX);
	rp_times_fini(&t);
}

Test(replay_stats, texts_are_counted_by_pod_and_by_weight)
{
	struct rp_tally *t = rp_tally_new();
	const struct rp_tally_row *rows;
	char text[32];

	cr_assert_not_null(t);
	cr_assert_eq(rp_tally_add(t, "busy", 1, 1, NULL), 0);
	cr_assert_eq(rp_tally_add(t, "busy", 1, 1, NULL), 0);
	cr_assert_eq(rp_tally_add(t, "busy", 1, 2, NULL), 0);
	cr_assert_eq(rp_tally_add(t, "full", 5, 2, NULL), 0);
	cr_assert_eq(rp_tally_rows(t, &rows), 2);
	cr_assert_str_eq(rows[0].text, "full");
	cr_assert(rows[0].pods == 1 && rows[0].weight == 5);
	cr_assert(rows[1].pods == 2 && rows[1].weight == 3);
	for (int i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "text %d", i);
		cr_assert_eq(rp_tally_add(t, text, 1, 3, NULL), 0);
	}
	cr_assert_eq(rp_tally_rows(t, &rows), 1001);
	cr_assert_str_eq(rows[0].text, "(other texts)");
	rp_tally_free(t);
}

Test(replay_drive, uids_look_like_uids_and_differ)
{
	char a[RP_UID_CAP], b[RP_UID_CAP], c[RP_UID_CAP];

	rp_drive_uid(1, 1, a);
	rp_drive_uid(1, 2, b);
	rp_drive_uid(2, 1, c);
	cr_assert_eq(strlen(a), 36);
	cr_assert_eq(a[14], '4');
	cr_assert_str_neq(a, b);
	cr_assert_str_neq(a, c);
}

/* ---- Pod objects ---- */

static void round_trip(const char *what, const struct st_request *req)
{
	struct st_contract_options opt = {0};
	struct ku_arena *arena = ku_arena_new();
	struct err err = ERR_INIT;
	struct st_pod_spec spec;
	struct st_request back;
	cJSON *root = NULL;
	char *text = rp_pod_json(req, "ns", "pod", "uid-1");

	cr_assert_not_null(text);
	memset(&back, 0, sizeof(back));
	cr_assert_eq(ku_json_parse(text, strlen(text), &root, &err), 0, "%s: %s", what, err.msg);
	cr_assert_eq(ku_pod_decode(root, arena, &spec, &err), 0, "%s: %s", what, err.msg);
	cr_assert_str_eq(spec.uid, "uid-1");
	cr_assert_eq(st_contract_parse(&spec, &opt, &back, NULL, &err), 0, "%s: %s: %s", what,
		     err.msg, text);
	cr_assert_eq(back.cpu_milli, req->cpu_milli, "%s", what);
	cr_assert_eq(back.mem_mib, req->mem_mib, "%s", what);
	cr_assert_str_eq(back.product, req->product);
	cr_assert_eq(back.workload, req->workload);
	cr_assert_eq(back.item_count, req->item_count, "%s: %s", what, text);
	for (unsigned i = 0; i < req->item_count; i++) {
		const struct st_item *x = &req->items[i], *y = &back.items[i];

		cr_assert_str_eq(x->container, y->container);
		cr_assert_eq(x->kind, y->kind, "%s", what);
		cr_assert_eq(x->mode, y->mode, "%s", what);
		cr_assert_eq(x->mode_preferred, y->mode_preferred, "%s", what);
		cr_assert_eq(x->count, y->count, "%s", what);
		cr_assert_eq(x->request_mib, y->request_mib, "%s", what);
		cr_assert_eq(x->request_nano, y->request_nano, "%s", what);
		cr_assert_eq(st_item_limit_mib(x, 40000), st_item_limit_mib(y, 40000), "%s", what);
		cr_assert_eq(x->compute_nano, y->compute_nano, "%s", what);
		cr_assert_str_eq(x->profile, y->profile);
	}
	free(text);
	cJSON_Delete(root);
	ku_arena_free(arena);
}

static struct st_request request(unsigned items)
{
	struct st_request r;

	memset(&r, 0, sizeof(r));
	r.cpu_milli = 3152;
	r.mem_mib = 4098;
	r.item_count = (uint8_t)items;
	for (unsigned i = 0; i < items; i++) {
		memcpy(r.items[i].container, i == 0 ? "main" : "side", 5);
		r.items[i].count = 1;
		r.items[i].mode = ST_MODE_TIME_SLICING;
	}
	return r;
}

Test(replay_pod_json, the_contract_reads_back_every_kind_of_request)
{
	struct st_request r = request(0);

	round_trip("CPU only", &r);
	r = request(1);
	r.items[0].request_mib = 810;
	round_trip("share in MiB", &r);
	r.items[0].limit_mib = 900;
	memcpy(r.product, "A|B", 4);
	r.workload = ST_WORKLOAD_MEMORY_BOUND;
	round_trip("with limit, product, profile", &r);
	r = request(1);
	r.items[0].request_nano = 812500000;
	r.items[0].limit_nano = 900000000;
	round_trip("share by fraction", &r);
	r.items[0].count = 3;
	r.items[0].mode = ST_MODE_SM_SHARING;
	r.items[0].mode_preferred = true;
	r.items[0].compute_nano = 250000000;
	round_trip("on three devices, SM sharing", &r);
	r = request(1);
	r.items[0].kind = ST_KIND_WHOLE;
	r.items[0].mode = ST_MODE_EXCLUSIVE;
	r.items[0].count = 8;
	round_trip("whole devices", &r);
	r = request(1);
	r.items[0].kind = ST_KIND_MIG;
	r.items[0].mode = ST_MODE_MIG;
	memcpy(r.items[0].profile, "1g.10gb+me", 11);
	round_trip("MIG instance", &r);
	memcpy(r.items[0].profile, "3g.40gb", 8);
	r.items[0].count = 2;
	round_trip("two MIG instances", &r);
	r = request(2);
	r.items[0].request_mib = 4096;
	r.items[1].request_mib = 2048;
	r.items[1].limit_mib = 4096;
	round_trip("two containers", &r);
}

/* ---- tables ---- */

/* The longest line of a table for two seeds at that width; *ret_text is the caller's. */
static size_t longest_line(bool over_time, unsigned width, bool quiet, char **ret_text)
{
	static const struct rp_result runs[2] = {
		{.policy = "clustering", .seed = 42, .total_milli = 1000},
		{.policy = "clustering", .seed = 43, .total_milli = 1000}};
	static const struct rp_sim_result sims[2] = {{.policy = "clustering", .seed = 42},
						     {.policy = "clustering", .seed = 43}};
	size_t len, longest = 0;
	FILE *out = open_memstream(ret_text, &len);

	cr_assert_not_null(out);
	if (over_time)
		rp_report_time_table(out, sims, 2, quiet, width);
	else
		rp_report_table(out, runs, 2, quiet, width);
	fclose(out);
	for (const char *line = *ret_text; *line; line += strcspn(line, "\n") + 1)
		if (strcspn(line, "\n") > longest)
			longest = strcspn(line, "\n");
	return longest;
}

Test(replay_tables, fit_the_screen)
{
	for (int over_time = 0; over_time < 2; over_time++) {
		char *text;
		size_t wide = longest_line(over_time, 0, true, &text);

		cr_expect_not_null(strstr(text, "seconds"));
		free(text);
		cr_expect_gt(wide, 100);
		cr_expect_eq(longest_line(over_time, (unsigned)wide, true, &text), wide);
		free(text);
		cr_expect_lt(longest_line(over_time, (unsigned)wide - 1, true, &text), 80);
		free(text);
		cr_expect_lt(longest_line(over_time, 80, false, &text), 80, "%s", text);
		cr_expect_null(strstr(text, "seconds"));
		cr_expect_not_null(strstr(text, "show more columns"));
		free(text);
	}
}

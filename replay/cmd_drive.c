#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "replay/command.h"
#include "replay/drive.h"
#include "replay/progress.h"
#include "replay/stat.h"

#define REASONS_SHOWN 10

static const char *const verbs[RP_VERBS] = {"filter", "prioritize", "bind"};

struct args {
	struct rp_inputs in;
	const char *url, *ties, *decisions_path;
	int64_t rate, concurrency, limit, retries, run;
	bool json;
};

/* ---- reports ---- */

static void print_refusals(struct rp_drive_result *r, enum rp_verb verb)
{
	const struct rp_tally_row *rows;
	size_t count = rp_tally_rows(r->refusals[verb], &rows);

	if (count == 0)
		return;
	printf("\n%s refusals%s\n", verbs[verb],
	       verb == RP_FILTER ? ", of pods that got no node (pods, nodes, text)"
				 : " (pods, times, text)");
	for (size_t i = 0; i < count && i < REASONS_SHOWN; i++)
		printf("%8" PRId64 " %9" PRId64 "  %s\n", rows[i].pods, rows[i].weight,
		       rows[i].text);
	if (count > REASONS_SHOWN)
		printf("%19s %zu more\n", "", count - REASONS_SHOWN);
}

static void print_text(struct rp_drive_result *r)
{
	char pods[RP_TEXT_CAP];

	printf("%s in %.2f s, %.0f pods/s: %zu placed, %zu found no node, %zu given up after "
	       "refused binds, %zu tried again\n\n",
	       rp_text_many((int64_t)r->pods, "pod", pods), r->wall_s,
	       r->wall_s > 0 ? (double)r->pods / r->wall_s : 0, r->placed, r->unschedulable,
	       r->given_up, r->retried);
	printf("%-11s %8s %9s %9s %9s %9s   milliseconds\n", "", "calls", "p50", "p90", "p99",
	       "max");
	for (size_t v = 0; v < RP_VERBS; v++) {
		struct rp_times *t = &r->times[v];

		printf("%-11s %8zu %9.3f %9.3f %9.3f %9.3f\n", verbs[v], t->count,
		       (double)rp_times_at(t, 500) / 1000, (double)rp_times_at(t, 900) / 1000,
		       (double)rp_times_at(t, 990) / 1000, (double)rp_times_at(t, 1000) / 1000);
	}
	for (size_t v = 0; v < RP_VERBS; v++)
		print_refusals(r, (enum rp_verb)v);
}

static bool put(cJSON *o, const char *key, double v)
{
	return cJSON_AddNumberToObject(o, key, v) != NULL;
}

static bool put_times(cJSON *parent, enum rp_verb verb, struct rp_times *t)
{
	cJSON *o = cJSON_AddObjectToObject(parent, verbs[verb]);

	return o != NULL && put(o, "calls", (double)t->count) &&
	       put(o, "p50", (double)rp_times_at(t, 500) / 1000) &&
	       put(o, "p90", (double)rp_times_at(t, 900) / 1000) &&
	       put(o, "p99", (double)rp_times_at(t, 990) / 1000) &&
	       put(o, "max", (double)rp_times_at(t, 1000) / 1000);
}

static bool put_refusals(cJSON *parent, enum rp_verb verb, struct rp_tally *tally)
{
	cJSON *list = cJSON_AddArrayToObject(parent, verbs[verb]);
	const struct rp_tally_row *rows;
	size_t count = rp_tally_rows(tally, &rows);

	if (list == NULL)
		return false;
	for (size_t i = 0; i < count; i++) {
		cJSON *o = cJSON_CreateObject();

		if (o == NULL || !cJSON_AddItemToArray(list, o)) {
			cJSON_Delete(o);
			return false;
		}
		if (cJSON_AddStringToObject(o, "text", rows[i].text) == NULL ||
		    !put(o, "pods", (double)rows[i].pods) ||
		    !put(o, verb == RP_FILTER ? "nodes" : "times", (double)rows[i].weight))
			return false;
	}
	return true;
}

static bool fill_json(cJSON *o, const struct args *a, struct rp_drive_result *r)
{
	cJSON *latency = cJSON_AddObjectToObject(o, "latency_ms");
	cJSON *refusals = cJSON_AddObjectToObject(o, "refusals");
	char crc[16];
	bool ok = latency != NULL && refusals != NULL && put(o, "pods", (double)r->pods) &&
		  put(o, "placed", (double)r->placed) &&
		  put(o, "failed", (double)(r->unschedulable + r->given_up)) &&
		  put(o, "unschedulable", (double)r->unschedulable) &&
		  put(o, "given_up", (double)r->given_up) &&
		  put(o, "retried", (double)r->retried) &&
		  put(o, "bind_refused", (double)r->calls_refused[RP_BIND]) &&
		  put(o, "wall_s", (double)(int64_t)(r->wall_s * 1e6) / 1e6) &&
		  put(o, "pods_per_s",
		      r->wall_s > 0 ? (double)(int64_t)((double)r->pods / r->wall_s) : 0);

	for (size_t v = 0; ok && v < RP_VERBS; v++)
		ok = put_times(latency, (enum rp_verb)v, &r->times[v]) &&
		     put_refusals(refusals, (enum rp_verb)v, r->refusals[v]);
	if (ok && a->decisions_path != NULL) {
		snprintf(crc, sizeof(crc), "%08" PRIx32, r->placements_crc32);
		ok = cJSON_AddStringToObject(o, "placements_crc32", crc) != NULL;
	}
	return ok;
}

static int print_json(const struct args *a, struct rp_drive_result *r, struct err *err)
{
	cJSON *o = cJSON_CreateObject();
	char *text = fill_json(o, a, r) ? cJSON_Print(o) : NULL;

	cJSON_Delete(o);
	if (text == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	puts(text);
	cJSON_free(text);
	return 0;
}

static int report(const struct args *a, struct rp_drive_result *r, struct err *err)
{
	struct buf b = BUF_INIT;
	int rc = 0;

	if (a->json)
		rc = print_json(a, r, err);
	else
		print_text(r);
	if (rc == 0 && a->decisions_path != NULL) {
		buf_puts(&b, "step,pod,node,gpus\n");
		buf_put(&b, r->decisions.data, r->decisions.len);
		rc = buf_ok(&b) ? file_replace(a->decisions_path, b.data, b.len, err)
				: err_set(err, ERR_NOMEM, "out of memory");
	}
	buf_fini(&b);
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = err_set(err, ERR_IO, "cannot write to standard output");
	return rc;
}

/* ---- the command ---- */

static uint64_t fresh_run(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int drive(const struct args *a, const struct rp_trace *t, uint64_t seed)
{
	struct rp_progress progress;
	struct rp_drive_options opt = {
		.url = a->url,
		.seed = seed,
		.run = a->run >= 0 ? (uint64_t)a->run : fresh_run(),
		.rate = a->rate,
		.concurrency = (size_t)a->concurrency,
		.limit = (size_t)a->limit,
		.retries = a->retries,
		.first = a->ties != NULL && strcmp(a->ties, "first") == 0,
		.decisions = a->decisions_path != NULL,
		.progress = rp_progress_show,
		.progress_ctx = &progress,
	};
	struct rp_drive_result r;
	struct rp_order order = {0};
	struct err err = ERR_INIT;
	int rc = rp_inputs_order(&a->in, t, seed, &order, &err), status = RP_EXIT_OK;

	if (rc < 0)
		return rp_command_failed(rc, &err);
	rp_progress_init(&progress, a->in.quiet);
	rc = rp_drive(t, &order, &opt, &r, &err);
	rp_progress_clear(&progress);
	if (rc == 0) {
		rc = report(a, &r, &err);
		rp_drive_result_fini(&r);
	}
	if (rc < 0) {
		rp_command_failed(rc, &err);
		status = RP_EXIT_FAILED;
	}
	rp_order_fini(&order);
	return status;
}

static int check(const struct args *a, uint64_t *ret_seed, struct err *err)
{
	uint64_t seeds[RP_SEEDS_MAX];
	size_t count;
	int rc = rp_seeds_parse(a->in.seeds_text, seeds, &count, err);

	if (rc < 0)
		return rc;
	if (count > 1)
		return err_set(err, ERR_INVALID, "--seed: one seed is wanted");
	if (a->url == NULL)
		return err_set(err, ERR_INVALID, "--extender is missing");
	if (strncmp(a->url, "http://", 7) != 0 && strncmp(a->url, "https://", 8) != 0)
		return err_set(err, ERR_INVALID, "--extender: \"%s\" is not an http URL", a->url);
	if (a->ties != NULL && strcmp(a->ties, "random") != 0 && strcmp(a->ties, "first") != 0)
		return err_set(err, ERR_INVALID, "--scheduler-ties: \"%s\" is not random or first",
			       a->ties);
	if (a->in.order_path != NULL && a->in.inflate_nano != RP_INFLATE_DEFAULT)
		return err_set(err, ERR_INVALID, "--inflate has no meaning with --order");
	*ret_seed = seeds[0];
	return 0;
}

int rp_cmd_drive(const struct rp_command *self, int argc, char **argv)
{
	struct args a = {
		.in.inflate_nano = RP_INFLATE_DEFAULT, .concurrency = 1, .retries = 3, .run = -1};
	const struct rp_option options[] = {
		{"extender", "URL", RP_OPT_TEXT, &a.url, 0, 0,
		 "where it listens, with the prefix of its verbs: http://127.0.0.1:8080"},
		{"nodes", "FILE", RP_OPT_TEXT, &a.in.nodes_path, 0, 0,
		 "the nodes to ask about: openb CSV, or JSON as the extender got it"},
		{"pods", "FILE", RP_OPT_TEXT, &a.in.pods_path, 0, 0,
		 "the pods: openb CSV or JSON; in CSV, shares are MiB on nodes in CSV (GPUs of 1000\n"
		 "MiB are expected there) and fractions on nodes in JSON"},
		{"order", "FILE", RP_OPT_TEXT, &a.in.order_path, 0, 0, "arrivals from a file"},
		{"seed", "N", RP_OPT_TEXT, &a.in.seeds_text, 0, 0,
		 "of arrivals without --order, and of the scheduler's coin; 42"},
		{"inflate", "R", RP_OPT_DECIMAL, &a.in.inflate_nano, 1, INT64_C(1000000000000),
		 "as for run"},
		{"rate", "N", RP_OPT_INTEGER, &a.rate, 1, 1000000,
		 "pods started a second; as fast as it goes"},
		{"concurrency", "N", RP_OPT_INTEGER, &a.concurrency, 1, 10000,
		 "binds in flight beside the next pods' filter; 1 = none"},
		{"limit", "N", RP_OPT_INTEGER, &a.limit, 1, INT64_MAX / 2, "arrivals; all"},
		{"retries", "N", RP_OPT_INTEGER, &a.retries, 0, 255,
		 "times that a pod comes again when its bind was refused; 3"},
		{"scheduler-ties", "random|first", RP_OPT_TEXT, &a.ties, 0, 0,
		 "which of equal scores the scheduler takes; random, as kube-scheduler does"},
		{"run", "N", RP_OPT_INTEGER, &a.run, 0, INT64_MAX,
		 "makes the pods' UIDs; the time, so that each drive has new pods"},
		{"decisions", "FILE", RP_OPT_TEXT, &a.decisions_path, 0, 0,
		 "write where each pod went, with the GPUs the extender's map shows at the end"},
		{"json", NULL, RP_OPT_FLAG, &a.json, 0, 0, "print an object, no table"},
		{"quiet", NULL, RP_OPT_FLAG, &a.in.quiet, 0, 0, "no progress bar, no warnings"},
	};
	struct rp_trace t;
	struct err err = ERR_INIT;
	uint64_t seed = 0;
	int status, rc;

	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	rc = check(&a, &seed, &err);
	if (rc < 0)
		return rp_command_failed(rc, &err);
	rp_trace_init(&t);
	if (rp_inputs_load(&a.in, &t, &status))
		status = drive(&a, &t, seed);
	rp_trace_fini(&t);
	return status;
}

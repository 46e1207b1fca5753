#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "replay/change.h"
#include "replay/command.h"
#include "replay/jobs.h"
#include "replay/report.h"
#include "replay/run.h"
#include "replay/stat.h"
#include "replay/time_plan.h"

struct args {
	struct rp_inputs in;
	const char *policy_text, *after_text;
	struct rp_changes changes;
	struct rp_time_args when;
	struct rp_time_plan plan;
	bool over_time; /* by the plan */
	int64_t jobs;
	bool json;
	const struct po_policy *policies[2];
	uint64_t seeds[RP_SEEDS_MAX];
	size_t seed_count;
};

/* Side 0 is before, side 1 after; task i is side i % 2 of seed i / 2. */
struct work {
	const struct args *a;
	struct rp_trace t[2];
	struct rp_result *results;
	struct rp_sim_result *sims; /* over time, in the place of results */
};

/* The same pods in the same order on both sides; each side has ranks of its own. */
static int make_order(const struct work *w, size_t side, uint64_t seed, struct rp_order *ret,
		      struct err *err)
{
	struct rp_inputs in = w->a->in;
	struct rp_order ranks = {0};
	int rc;

	if (in.inflate_nano == RP_INFLATE_DEFAULT)
		in.inflate_nano = RP_NO_INFLATION;
	rc = rp_inputs_order(&in, &w->t[0], seed, ret, err);
	if (rc < 0 || side == 0)
		return rc;
	in.inflate_nano = RP_NO_INFLATION;
	rc = rp_inputs_order(&in, &w->t[1], seed, &ranks, err);
	if (rc < 0) {
		rp_order_fini(ret);
		return rc;
	}
	free(ret->ranks);
	ret->ranks = ranks.ranks;
	ranks.ranks = NULL;
	rp_order_fini(&ranks);
	return 0;
}

/* The same arrivals on both sides, at the load of the cluster before. */
static int run_over_time(struct work *w, size_t i, const struct rp_order *order,
			 const struct rp_run_options *run, struct err *err)
{
	const struct rp_time_plan *p = &w->a->plan;
	struct rp_sim_options opt = {.run = *run, .queue = p->queue, .max_wait_ms = p->max_wait_ms};
	struct rp_timeline timeline = {0};
	int rc = rp_time_arrivals(p, &w->t[0], run->seed, &timeline, err);

	if (rc == 0)
		rc = rp_sim(&w->t[i % 2], order->ranks, &timeline, &opt, &w->sims[i], err);
	rp_timeline_fini(&timeline);
	return rc;
}

static int run_one(void *ctx, size_t i, struct rp_job *job, struct err *err)
{
	struct work *w = ctx;
	size_t side = i % 2;
	uint64_t seed = w->a->seeds[i / 2];
	struct rp_run_options opt = {
		.policy = w->a->policies[side],
		.seed = seed,
		.progress = rp_job_progress,
		.progress_ctx = job,
	};
	struct rp_order order;
	int rc = make_order(w, side, seed, &order, err);

	if (rc < 0)
		return rc;
	rc = w->a->over_time ? run_over_time(w, i, &order, &opt, err)
			     : rp_run(&w->t[side], &order, &opt, &w->results[i], err);
	rp_order_fini(&order);
	return rc;
}

/* ---- what is compared ---- */

struct row {
	const char *name, *key;
};

static const struct row filled[] = {
	{"GPUs", "gpus"},
	{"pods", "pods"},
	{"placed", "placed"},
	{"failed", "failed"},
	{"failed, CPU only", "failed_cpu_only"},
	{"failed, share", "failed_shared"},
	{"failed, 1 GPU", "failed_one_gpu"},
	{"failed, several", "failed_multi_gpu"},
	{"GPU in use, %", "used_pct"},
	{"GPU idle", "idle_gpus"},
	{"fragmented, %", "frag_pct"},
};
#define ROWS (sizeof(filled) / sizeof(filled[0]))

/* Over time, of what arrived in the time measured. */
static const struct row timed[ROWS] = {
	{"GPUs", "gpus"},
	{"pods", "pods"},
	{"placed", "placed"},
	{"refused", "refused"},
	{"waiting at end", "waiting_at_end"},
	{"GPU in use, %", "used_pct"},
	{"fragmented, %", "frag_pct"},
	{"GPU time lost, %", "refused_gpu_pct"},
	{"wait, mean, s", "wait_mean_s"},
	{"wait, p95, s", "wait_p95_s"},
	{"wait, longest, s", "wait_max_s"},
};

static const struct row *rows(const struct work *w)
{
	return w->a->over_time ? timed : filled;
}

/* All in hundredths. */
static void values_filled(const struct rp_result *r, int64_t v[ROWS])
{
	const int64_t all[ROWS] = {
		r->total_milli / 10,
		(int64_t)r->arrivals * 100,
		(int64_t)r->placed * 100,
		(int64_t)rp_result_failed(r) * 100,
		(int64_t)r->failed[RP_CPU_ONLY] * 100,
		(int64_t)r->failed[RP_SHARED] * 100,
		(int64_t)r->failed[RP_ONE_GPU] * 100,
		(int64_t)r->failed[RP_MULTI_GPU] * 100,
		rp_round_div((__int128)r->used_milli * 10000, r->total_milli),
		(r->total_milli - r->used_milli) / 10,
		rp_curve_at(&r->curve, r->curve.last).frag,
	};

	memcpy(v, all, sizeof(all));
}

static int64_t seconds_centi(int64_t ms)
{
	return ms == RP_NO_VALUE ? ms : ms / 10;
}

static void values_timed(const struct rp_sim_result *r, int64_t v[ROWS])
{
	const int64_t all[ROWS] = {
		r->total_milli / 10,
		(int64_t)r->arrivals * 100,
		(int64_t)(r->at_once + r->waited) * 100,
		(int64_t)r->refused * 100,
		(int64_t)r->unfinished * 100,
		r->used_centi,
		r->frag_centi,
		r->asked_gpu_s > 0
			? rp_round_div((__int128)r->refused_gpu_s * 10000, r->asked_gpu_s)
			: RP_NO_VALUE,
		seconds_centi(r->wait_mean_ms),
		seconds_centi(r->wait_p95_ms),
		seconds_centi(r->wait_max_ms),
	};

	memcpy(v, all, sizeof(all));
}

static void means(const struct work *w, size_t side, int64_t mean[ROWS])
{
	struct rp_stat s[ROWS] = {{0}};

	for (size_t k = 0; k < w->a->seed_count; k++) {
		int64_t v[ROWS];

		if (w->a->over_time)
			values_timed(&w->sims[2 * k + side], v);
		else
			values_filled(&w->results[2 * k + side], v);
		for (size_t i = 0; i < ROWS; i++)
			rp_stat_add(&s[i], v[i]);
	}
	for (size_t i = 0; i < ROWS; i++)
		mean[i] = rp_stat_mean(&s[i]);
}

static void print_table(const struct work *w, size_t switched)
{
	int64_t before[ROWS], after[ROWS];
	char b1[RP_TEXT_CAP], b2[RP_TEXT_CAP], b3[RP_TEXT_CAP], change[RP_TEXT_CAP + 1];

	means(w, 0, before);
	means(w, 1, after);
	printf("%-18s %12s %12s %12s\n", "", "before", "after", "change");
	printf("%-18s %12s %12s\n", "policy", w->a->policies[0]->name, w->a->policies[1]->name);
	for (size_t i = 0; i < ROWS; i++) {
		bool known = before[i] != RP_NO_VALUE && after[i] != RP_NO_VALUE;
		int64_t d = known ? after[i] - before[i] : RP_NO_VALUE;

		snprintf(change, sizeof(change), "%s%s", known && d > 0 ? "+" : "",
			 rp_text_centi(d, b3));
		printf("%-18s %12s %12s %12s\n", rows(w)[i].name, rp_text_centi(before[i], b1),
		       rp_text_centi(after[i], b2), change);
	}
	if (!w->a->in.quiet)
		printf("\nPods that ask for another kind of GPU: %zu. Mean of %s; both sides get\n"
		       "the same pods in the same order. Pods bound to nodes that are removed do not\n"
		       "arrive anew. %s\n",
		       switched, rp_text_many((int64_t)w->a->seed_count, "seed", b1),
		       w->a->over_time ? "The load is that of the cluster before."
				       : "No pod leaves again: that is --time.");
}

static int print_json(const struct work *w, size_t switched, struct err *err)
{
	cJSON *o = cJSON_CreateObject();
	char *text = NULL;
	bool ok = o != NULL && cJSON_AddNumberToObject(o, "pods_switched", (double)switched) &&
		  cJSON_AddNumberToObject(o, "seeds", (double)w->a->seed_count);

	for (size_t side = 0; ok && side < 2; side++) {
		cJSON *x = cJSON_AddObjectToObject(o, side == 0 ? "before" : "after");
		int64_t v[ROWS];

		means(w, side, v);
		ok = x != NULL &&
		     cJSON_AddStringToObject(x, "policy", w->a->policies[side]->name) != NULL;
		for (size_t i = 0; ok && i < ROWS; i++)
			if (v[i] != RP_NO_VALUE)
				ok = cJSON_AddNumberToObject(x, rows(w)[i].key,
							     (double)v[i] / 100) != NULL;
	}
	if (ok)
		text = cJSON_Print(o);
	cJSON_Delete(o);
	if (text == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	puts(text);
	free(text);
	return 0;
}

/* ---- */

static int parse(struct args *a, struct err *err)
{
	const struct po_policy *list[RP_POLICIES_MAX];
	size_t count = 0;
	int rc = rp_policies_parse(a->policy_text, list, &count, err);

	if (rc == 0 && count != 1)
		rc = err_set(err, ERR_INVALID, "--policy: one policy, and one --policy-after");
	if (rc < 0)
		return rc;
	a->policies[0] = a->policies[1] = list[0];
	if (a->after_text != NULL) {
		rc = rp_policies_parse(a->after_text, list, &count, err);
		if (rc == 0 && count != 1)
			rc = err_set(err, ERR_INVALID, "--policy-after: one policy");
		a->policies[1] = list[0];
	}
	if (rc == 0)
		rc = rp_seeds_parse(a->in.seeds_text, a->seeds, &a->seed_count, err);
	if (rc == 0)
		rc = rp_time_parse(&a->when, &a->in, &a->plan, &a->over_time, err);
	a->changes.seed = a->seeds[0];
	if (rc == 0 &&
	    a->changes.add.count + a->changes.remove.count + a->changes.model.count +
			    a->changes.switches.count ==
		    0 &&
	    a->policies[0] == a->policies[1])
		rc = err_set(err, ERR_INVALID,
			     "nothing is to change: give one of --add-nodes, "
			     "--remove-nodes, --model, --switch, --policy-after");
	return rc;
}

static int whatif(struct args *a, struct work *w, size_t switched)
{
	struct rp_progress progress;
	struct err err = ERR_INIT;
	int rc, status;

	if (a->over_time)
		w->sims = calloc(2 * a->seed_count, sizeof(*w->sims));
	else
		w->results = calloc(2 * a->seed_count, sizeof(*w->results));
	if (w->results == NULL && w->sims == NULL) {
		err_set(&err, 0, "out of memory");
		return rp_command_failed(ERR_NOMEM, &err);
	}
	rp_progress_init(&progress, a->in.quiet);
	snprintf(progress.label, sizeof(progress.label), "before and after");
	rc = rp_jobs_run(2 * a->seed_count, a->jobs > 0 ? (size_t)a->jobs : rp_jobs_default(),
			 run_one, w, &progress, &err);
	rp_progress_clear(&progress);
	if (rc < 0) {
		status = rp_command_failed(rc, &err);
	} else {
		if (a->json)
			rc = print_json(w, switched, &err);
		else
			print_table(w, switched);
		status = rp_command_end(rc, &err);
	}
	free(w->results);
	free(w->sims);
	return status;
}

int rp_cmd_whatif(const struct rp_command *self, int argc, char **argv)
{
	static struct args a;
	const struct rp_option options[] = {
		{"nodes", "FILE", RP_OPT_TEXT, &a.in.nodes_path, 0, 0,
		 "nodes before: a table, or a cluster in JSON"},
		{"pods", "FILE", RP_OPT_TEXT, &a.in.pods_path, 0, 0,
		 "pods: a table, or a cluster in JSON, perhaps the same"},
		{"pods-format", "MAP", RP_OPT_TEXT, &a.in.pods_format, 0, 0,
		 "the pods are another trace's table: alibaba-2020, alibaba-2025, alibaba-2026,\n"
		 "helios, philly or a map file; replay/FORMATS.md"},
		{"nodes-format", "MAP", RP_OPT_TEXT, &a.in.nodes_format, 0, 0,
		 "likewise the nodes: alibaba-2026-nodes or a map file"},
		{"add-nodes", "N:FIELDS", RP_OPT_LIST, &a.changes.add, 0, 0,
		 "N more nodes, described as for plan --node-type"},
		{"remove-nodes", "N[:MODEL]", RP_OPT_LIST, &a.changes.remove, 0, 0,
		 "the last N nodes of the file go, of that GPU model"},
		{"model", "FROM=TO", RP_OPT_LIST, &a.changes.model, 0, 0,
		 "all GPUs of a model become another one"},
		{"switch", "FROM:TO:SHARE", RP_OPT_LIST, &a.changes.switches, 0, 0,
		 "a share of the pods with one GPU of a kind asks for another kind: whole, fraction,\n"
		 "sm-sharing, mig"},
		{"fraction", "R", RP_OPT_DECIMAL, &a.changes.fraction_nano, 1000000, 999000000,
		 "the fraction that pods without one are switched to; 0.5"},
		{"profile", "NAME", RP_OPT_TEXT, &a.changes.profile, 0, 0,
		 "the MIG profile that pods are switched to"},
		{"policy", "NAME", RP_OPT_TEXT, &a.policy_text, 0, 0,
		 "what places them; ca-fgd; the extender's own, bid-price, takes several times as long"},
		{"policy-after", "NAME", RP_OPT_TEXT, &a.after_text, 0, 0,
		 "another policy after the change"},
		{"seed", "N,A-B,...", RP_OPT_TEXT, &a.in.seeds_text, 0, 0,
		 "orders of arrival, of which the means are shown; 42"},
		{"inflate", "R", RP_OPT_DECIMAL, &a.in.inflate_nano, 1, INT64_C(1000000000000),
		 "clone pods until R times the GPUs of the cluster before are asked for; not at all"},
		RP_TIME_OPTIONS(a.when),
		{"jobs", "N", RP_OPT_INTEGER, &a.jobs, 1, RP_JOBS_MAX,
		 "runs at the same time; one for each CPU"},
		{"json", NULL, RP_OPT_FLAG, &a.json, 0, 0, "print an object, no table"},
		{"quiet", NULL, RP_OPT_FLAG, &a.in.quiet, 0, 0,
		 "no progress bar, no warnings, no explanations"},
	};
	struct work w = {.a = &a};
	struct err err = ERR_INIT;
	size_t switched = 0;
	int status, rc;

	a = (struct args){.in.inflate_nano = RP_INFLATE_DEFAULT,
			  .changes.fraction_nano = 500000000};
	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	rc = parse(&a, &err);
	if (rc < 0)
		return rp_command_failed(rc, &err);
	rp_trace_init(&w.t[0]);
	rp_trace_init(&w.t[1]);
	if (rp_inputs_load(&a.in, &w.t[0], &status)) {
		struct rp_inputs again = a.in;

		again.quiet = true;
		if (rp_inputs_load(&again, &w.t[1], &status)) {
			rc = rp_changes_apply(&a.changes, &w.t[1], &switched, &err);
			status = rc < 0 ? rp_command_failed(rc, &err) : whatif(&a, &w, switched);
		}
	}
	rp_trace_fini(&w.t[0]);
	rp_trace_fini(&w.t[1]);
	return status;
}

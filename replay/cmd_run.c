#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "policy/policy.h"
#include "replay/command.h"
#include "replay/jobs.h"
#include "replay/progress.h"
#include "replay/report.h"
#include "replay/run.h"

struct args {
	struct rp_inputs in;
	const char *policies_text, *ties_text, *workload, *csv_path, *decisions_path;
	bool json, check, online;
	int64_t jobs;
	const struct po_policy *policies[RP_POLICIES_MAX];
	size_t policy_count;
	enum po_ties ties[2];
	size_t ties_count;
	uint64_t seeds[RP_SEEDS_MAX];
	size_t seed_count;
};

static int parse_ties(struct args *a, struct err *err)
{
	static const struct {
		const char *text;
		enum po_ties ties[2];
		size_t count;
	} forms[] = {
		{"rank", {PO_TIES_RANK}, 1},
		{"random", {PO_TIES_RANDOM}, 1},
		{"rank,random", {PO_TIES_RANK, PO_TIES_RANDOM}, 2},
		{"random,rank", {PO_TIES_RANDOM, PO_TIES_RANK}, 2},
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (a->ties_text == NULL || strcmp(a->ties_text, forms[i].text) == 0) {
			memcpy(a->ties, forms[i].ties, sizeof(a->ties));
			a->ties_count = forms[i].count;
			return 0;
		}
	return err_set(err, ERR_INVALID, "--ties: \"%s\" is not rank, random or rank,random",
		       a->ties_text);
}

static int parse_lists(struct args *a, struct err *err)
{
	int rc = rp_policies_parse(a->policies_text, a->policies, &a->policy_count, err);

	if (rc == 0)
		rc = parse_ties(a, err);
	if (rc == 0)
		rc = rp_seeds_parse(a->in.seeds_text, a->seeds, &a->seed_count, err);
	a->online = a->workload != NULL && strcmp(a->workload, "online") == 0;
	if (rc == 0 && a->workload != NULL && !a->online && strcmp(a->workload, "trace") != 0)
		rc = err_set(err, ERR_INVALID, "--workload: \"%s\" is not trace or online",
			     a->workload);
	if (rc == 0 && a->decisions_path != NULL &&
	    a->policy_count * a->ties_count * a->seed_count > 1)
		rc = err_set(err, ERR_INVALID,
			     "--decisions wants one policy, one seed and one tie-break");
	return rc;
}

static const char *measure_column(const struct po_policy *p)
{
	if (!p->uses_measure || p->measure == FR_FGD)
		return "frag_num";
	return p->measure == FR_CA ? "phi_num" : "measure_num";
}

/* All runs: task i is seed i / groups with policy and tie-break i % groups. */
struct batch {
	const struct args *a;
	const struct rp_trace *t;
	struct rp_result *results; /* grouped by policy and tie-break */
	struct buf *decisions;
	size_t groups;
	pthread_mutex_t lock;    /* of the orders */
	struct rp_order *orders; /* by seed, made by the first run that needs it */
	size_t *runs_left;       /* by seed; the last one frees the order */
};

static int order_take(struct batch *b, size_t seed, const struct rp_order **ret, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&b->lock);
	if (b->orders[seed].pods == NULL)
		rc = rp_inputs_order(&b->a->in, b->t, b->a->seeds[seed], &b->orders[seed], err);
	pthread_mutex_unlock(&b->lock);
	*ret = &b->orders[seed];
	return rc;
}

static void order_give(struct batch *b, size_t seed)
{
	pthread_mutex_lock(&b->lock);
	if (--b->runs_left[seed] == 0)
		rp_order_fini(&b->orders[seed]);
	pthread_mutex_unlock(&b->lock);
}

static int run_one(void *ctx, size_t i, struct rp_job *job, struct err *err)
{
	struct batch *b = ctx;
	const struct args *a = b->a;
	size_t seed = i / b->groups, group = i % b->groups;
	struct rp_run_options opt = {
		.policy = a->policies[group / a->ties_count],
		.ties = a->ties[group % a->ties_count],
		.seed = a->seeds[seed],
		.decisions = a->decisions_path != NULL ? b->decisions : NULL,
		.progress = rp_job_progress,
		.progress_ctx = job,
		.online = a->online,
		.check = a->check,
	};
	const struct rp_order *order;
	int rc = order_take(b, seed, &order, err);

	if (opt.decisions != NULL)
		buf_printf(opt.decisions, "step,pod,node,gpus,%s\n", measure_column(opt.policy));
	if (rc == 0)
		rc = rp_run(b->t, order, &opt, &b->results[group * a->seed_count + seed], err);
	order_give(b, seed);
	return rc;
}

static int run_all(const struct args *a, const struct rp_trace *t, struct rp_result *results,
		   struct buf *decisions, struct err *err)
{
	struct batch b = {
		.a = a,
		.t = t,
		.results = results,
		.decisions = decisions,
		.groups = a->policy_count * a->ties_count,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.orders = calloc(a->seed_count, sizeof(*b.orders)),
		.runs_left = calloc(a->seed_count, sizeof(*b.runs_left)),
	};
	struct rp_progress progress;
	int rc = ERR_NOMEM;

	if (b.orders == NULL || b.runs_left == NULL) {
		err_set(err, rc, "out of memory");
	} else {
		for (size_t s = 0; s < a->seed_count; s++)
			b.runs_left[s] = b.groups;
		rp_progress_init(&progress, a->in.quiet);
		snprintf(progress.label, sizeof(progress.label), "%zu runs",
			 b.groups * a->seed_count);
		rc = rp_jobs_run(b.groups * a->seed_count,
				 a->jobs > 0 ? (size_t)a->jobs : rp_jobs_default(), run_one, &b,
				 &progress, err);
		rp_progress_clear(&progress);
		for (size_t s = 0; s < a->seed_count; s++)
			rp_order_fini(&b.orders[s]);
	}
	free(b.orders);
	free(b.runs_left);
	pthread_mutex_destroy(&b.lock);
	return rc;
}

static int write_file(const char *path, struct buf *b, struct err *err)
{
	if (!buf_ok(b))
		return err_set(err, ERR_NOMEM, "out of memory");
	if (strcmp(path, "-") != 0)
		return file_replace(path, b->data, b->len, err);
	if (fwrite(b->data, 1, b->len, stdout) != b->len)
		return err_set(err, ERR_IO, "cannot write to standard output");
	return 0;
}

static int report(const struct args *a, const struct rp_trace *t, const struct rp_result *results,
		  size_t count, struct buf *decisions, struct err *err)
{
	struct buf csv = BUF_INIT;
	int rc = 0;

	if (a->json) {
		char *text = rp_report_json(results, count);

		if (text == NULL)
			return err_set(err, ERR_NOMEM, "out of memory");
		puts(text);
		free(text);
	} else {
		if (!a->in.quiet)
			printf("%zu nodes with %" PRId64 " GPUs; %zu pods in the trace, %zu "
			       "arrivals\n\n",
			       t->node_count, results[0].total_milli / RP_GPU_UNITS, t->pod_count,
			       results[0].arrivals);
		rp_report_table(stdout, results, count, a->in.quiet);
	}
	if (a->csv_path != NULL) {
		rp_report_csv(&csv, results, count);
		rc = write_file(a->csv_path, &csv, err);
	}
	if (rc == 0 && a->decisions_path != NULL)
		rc = write_file(a->decisions_path, decisions, err);
	buf_fini(&csv);
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = err_set(err, ERR_IO, "cannot write to standard output");
	return rc;
}

static int run(const struct args *a, const struct rp_trace *t)
{
	size_t count = a->policy_count * a->ties_count * a->seed_count;
	struct rp_result *results = calloc(count, sizeof(*results));
	struct buf decisions = BUF_INIT;
	struct err err = ERR_INIT;
	int rc, status = RP_EXIT_OK;

	if (results == NULL) {
		err_set(&err, 0, "out of memory");
		return rp_command_failed(ERR_NOMEM, &err);
	}
	rc = run_all(a, t, results, &decisions, &err);
	if (rc < 0) {
		status = rp_command_failed(rc, &err);
	} else if ((rc = report(a, t, results, count, &decisions, &err)) < 0) {
		rp_command_failed(rc, &err);
		status = RP_EXIT_FAILED;
	}
	free(results);
	buf_fini(&decisions);
	return status;
}

int rp_cmd_run(const struct rp_command *self, int argc, char **argv)
{
	static struct args a;
	const struct rp_option options[] = {
		{"nodes", "FILE", RP_OPT_TEXT, &a.in.nodes_path, 0, 0,
		 "nodes: openb CSV, or a cluster as kubectl get nodes,pods -A -o json prints it"},
		{"pods", "FILE", RP_OPT_TEXT, &a.in.pods_path, 0, 0,
		 "pods: openb CSV, or such a JSON file, perhaps the same (its pending pods arrive)"},
		{"policy", "NAME,...", RP_OPT_TEXT, &a.policies_text, 0, 0,
		 "policies to compare, or \"all\"; ca-fgd"},
		{"order", "FILE", RP_OPT_TEXT, &a.in.order_path, 0, 0,
		 "arrivals and node ranks from a file"},
		{"seed", "N,A-B,...", RP_OPT_TEXT, &a.in.seeds_text, 0, 0,
		 "a run for each seed: of arrivals and ranks where no order is given, of random\n"
		 "policies and ties; 42. A cluster in JSON keeps its order unless a seed is given"},
		{"inflate", "R", RP_OPT_DECIMAL, &a.in.inflate_nano, 1, INT64_C(1000000000000),
		 "clone pods until R times the GPUs are asked for; 1.3, for JSON none"},
		{"ties", "rank|random", RP_OPT_TEXT, &a.ties_text, 0, 0,
		 "which node of equal score wins: smallest rank, or a coin; rank,random runs both"},
		{"workload", "trace|online", RP_OPT_TEXT, &a.workload, 0, 0,
		 "what the measure expects: the pods of the trace, or an estimate from those placed\n"
		 "so far, as in the extender; trace"},
		{"csv", "FILE", RP_OPT_TEXT, &a.csv_path, 0, 0,
		 "write the whole curves over the load that arrived"},
		{"json", NULL, RP_OPT_FLAG, &a.json, 0, 0, "print an array of objects, no table"},
		{"decisions", "FILE", RP_OPT_TEXT, &a.decisions_path, 0, 0,
		 "write where each pod went, with the measure after it"},
		{"check", NULL, RP_OPT_FLAG, &a.check, 0, 0,
		 "recount the whole model by brute force after each run"},
		{"jobs", "N", RP_OPT_INTEGER, &a.jobs, 1, RP_JOBS_MAX,
		 "runs at the same time; one for each CPU. The results do not depend on it"},
		{"quiet", NULL, RP_OPT_FLAG, &a.in.quiet, 0, 0,
		 "no progress bar, no warnings, no explanations"},
	};
	struct rp_trace t;
	struct err err = ERR_INIT;
	int status, rc;

	a = (struct args){.in.inflate_nano = RP_INFLATE_DEFAULT};
	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	rc = parse_lists(&a, &err);
	if (rc < 0)
		return rp_command_failed(rc, &err);
	if (a.in.order_path != NULL && a.in.inflate_nano != RP_INFLATE_DEFAULT) {
		err_set(&err, 0, "--inflate has no meaning with --order");
		return rp_command_failed(ERR_INVALID, &err);
	}
	rp_trace_init(&t);
	if (rp_inputs_load(&a.in, &t, &status))
		status = run(&a, &t);
	rp_trace_fini(&t);
	return status;
}

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "replay/batch.h"
#include "replay/command.h"
#include "replay/jobs.h"
#include "replay/mig.h"
#include "replay/report.h"
#include "replay/report_html.h"
#include "replay/report_time.h"
#include "replay/stat.h"

struct args {
	struct rp_inputs in;
	const char *policies_text, *ties_text, *workload, *csv_path, *decisions_path;
	const char *html_path, *svg_path;
	struct rp_time_args when;
	int argc;
	char **argv; /* the words of the command */
	bool json;
	struct rp_batch b;
	struct rp_time_plan time;
	struct rp_mig_args mig;
};

static int parse_ties(const char *text, struct rp_batch *b, struct err *err)
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
		if (text == NULL || strcmp(text, forms[i].text) == 0) {
			memcpy(b->ties, forms[i].ties, sizeof(b->ties));
			b->ties_count = forms[i].count;
			return 0;
		}
	return err_set(err, ERR_INVALID, "--ties: \"%s\" is not rank, random or rank,random", text);
}

static int parse_time(struct args *a, struct err *err)
{
	struct rp_time_args given = a->when;
	bool over_time;
	int rc;

	if (a->mig.workload != NULL)
		given.load_nano = 0; /* has a meaning of its own there */
	rc = rp_time_parse(&given, &a->in, &a->time, &over_time, err);
	a->b.time = rc == 0 && over_time ? &a->time : NULL;
	return rc;
}

static int parse_lists(struct args *a, struct err *err)
{
	struct rp_batch *b = &a->b;
	const char *policies = a->policies_text;
	int rc;

	if (policies == NULL && a->mig.workload != NULL)
		policies = "firstfit,bestfit,fgd,ca-fgd";
	rc = rp_policies_parse(policies, b->policies, &b->policy_count, err);

	if (rc == 0)
		rc = parse_ties(a->ties_text, b, err);
	if (rc == 0)
		rc = rp_seeds_parse(a->in.seeds_text, b->seeds, &b->seed_count, err);
	if (rc == 0)
		rc = parse_time(a, err);
	b->online = a->workload != NULL && strcmp(a->workload, "online") == 0;
	if (rc == 0 && a->workload != NULL && !b->online && strcmp(a->workload, "trace") != 0)
		rc = err_set(err, ERR_INVALID, "--workload: \"%s\" is not trace or online",
			     a->workload);
	if (rc == 0 && a->decisions_path != NULL && rp_batch_count(b) > 1)
		rc = err_set(err, ERR_INVALID,
			     "--decisions wants one policy, one seed and one tie-break");
	if (rc == 0 && a->in.order_path != NULL && a->in.inflate_nano != RP_INFLATE_DEFAULT)
		rc = err_set(err, ERR_INVALID, "--inflate has no meaning with --order");
	return rc;
}

/* The table or JSON on standard output. */
static int print(const struct args *a, const struct rp_result *results,
		 const struct rp_sim_result *sims, size_t count, struct err *err)
{
	const struct rp_trace *t = a->b.t;
	char nodes[RP_TEXT_CAP], gpus[RP_TEXT_CAP], pods[RP_TEXT_CAP], arrivals[RP_TEXT_CAP], *text;

	if (a->json) {
		text = a->b.time != NULL ? rp_report_time_json(sims, count)
					 : rp_report_json(results, count);
		if (text == NULL)
			return err_set(err, ERR_NOMEM, "out of memory");
		puts(text);
		free(text);
		return 0;
	}
	if (!a->in.quiet)
		printf("%s with %s; %s in the trace, %s\n\n",
		       rp_text_many((int64_t)t->node_count, "node", nodes),
		       rp_text_many(t->gpu_milli / RP_GPU_UNITS, "GPU", gpus),
		       rp_text_many((int64_t)t->pod_count, "pod", pods),
		       rp_text_many((int64_t)(a->b.time != NULL ? sims[0].arrivals
								: results[0].arrivals),
				    "arrival", arrivals));
	if (a->b.time != NULL)
		rp_report_time_table(stdout, sims, count, a->in.quiet, rp_terminal_width());
	else
		rp_report_table(stdout, results, count, a->in.quiet, rp_terminal_width());
	return 0;
}

static int write_pictures(const struct args *a, const struct rp_result *results,
			  const struct rp_sim_result *sims, size_t count, struct err *err)
{
	struct rp_report r = {
		.runs = {.results = a->b.time == NULL ? results : NULL,
			 .sims = a->b.time != NULL ? sims : NULL,
			 .count = count},
		.t = a->b.t,
		.nodes_path = a->in.nodes_path,
		.pods_path = a->in.pods_path,
		.command = "run",
		.argc = a->argc,
		.argv = a->argv,
	};
	struct buf b = BUF_INIT;
	int rc = 0;

	if (a->html_path != NULL) {
		rc = rp_report_html(&b, &r, err);
		if (rc == 0)
			rc = rp_write_file(a->html_path, &b, err);
	}
	buf_reset(&b);
	if (rc == 0 && a->svg_path != NULL) {
		rc = rp_charts_svg(&b, &r.runs, err);
		if (rc == 0)
			rc = rp_write_file(a->svg_path, &b, err);
	}
	buf_fini(&b);
	return rc;
}

static int report(const struct args *a, const struct rp_result *results,
		  const struct rp_sim_result *sims, size_t count, struct err *err)
{
	struct buf csv = BUF_INIT;
	int rc = print(a, results, sims, count, err);

	if (rc == 0 && a->csv_path != NULL) {
		if (a->b.time != NULL)
			rp_report_time_csv(&csv, sims, count);
		else
			rp_report_csv(&csv, results, count);
		rc = rp_write_file(a->csv_path, &csv, err);
	}
	if (rc == 0 && (a->html_path != NULL || a->svg_path != NULL))
		rc = write_pictures(a, results, sims, count, err);
	if (rc == 0 && a->decisions_path != NULL)
		rc = rp_write_file(a->decisions_path, a->b.decisions, err);
	buf_fini(&csv);
	return rc;
}

static int run(struct args *a, const struct rp_trace *t)
{
	size_t count = rp_batch_count(&a->b);
	bool timed = a->b.time != NULL;
	struct rp_result *results = calloc(timed ? 1 : count, sizeof(*results));
	struct rp_sim_result *sims = calloc(timed ? count : 1, sizeof(*sims));
	struct buf decisions = BUF_INIT;
	struct err err = ERR_INIT;
	int rc = ERR_NOMEM, status;

	a->b.t = t;
	a->b.why = a->html_path != NULL || a->svg_path != NULL || a->json;
	a->b.in = &a->in;
	a->b.decisions = a->decisions_path != NULL ? &decisions : NULL;
	if (results == NULL || sims == NULL)
		err_set(&err, rc, "out of memory");
	else
		rc = rp_batch_run(&a->b, results, sims, &err);
	if (rc < 0)
		status = rp_command_failed(rc, &err);
	else
		status = rp_command_end(report(a, results, sims, count, &err), &err);
	free(results);
	free(sims);
	buf_fini(&decisions);
	return status;
}

static int run_mig(struct args *a)
{
	const char *const given[][2] = {
		{"--nodes", a->in.nodes_path},
		{"--pods", a->in.pods_path},
		{"--order", a->in.order_path},
		{"--csv", a->csv_path},
		{"--decisions", a->decisions_path},
		{"--ties", a->ties_text},
		{"--time", a->when.time},
		{"--html", a->html_path},
		{"--svg", a->svg_path},
	};
	struct err err = ERR_INIT;

	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		if (given[i][1] != NULL) {
			err_set(&err, 0, "%s has no meaning with --mig-workload", given[i][0]);
			return rp_command_failed(ERR_INVALID, &err);
		}
	a->mig.load_nano = a->when.load_nano > 0 ? a->when.load_nano : INT64_C(1200000000);
	a->mig.policies = a->b.policies;
	a->mig.policy_count = a->b.policy_count;
	a->mig.seeds = a->b.seeds;
	a->mig.seed_count = a->b.seed_count;
	a->mig.online = a->b.online;
	a->mig.json = a->json;
	return rp_mig_command(&a->mig);
}

static struct args args; /* of the only command of this process */

static const struct rp_option options[] = {
	{"nodes", "FILE", RP_OPT_TEXT, &args.in.nodes_path, 0, 0,
	 "nodes: openb CSV, or a cluster as kubectl get nodes,pods -A -o json prints it"},
	{"pods", "FILE", RP_OPT_TEXT, &args.in.pods_path, 0, 0,
	 "pods: openb CSV, or such a JSON file, perhaps the same (its pending pods arrive)"},
	{"pods-format", "MAP", RP_OPT_TEXT, &args.in.pods_format, 0, 0,
	 "the pods are another trace's table: alibaba-2020, alibaba-2025, alibaba-2026,\n"
	 "helios, philly or a map file; replay/FORMATS.md"},
	{"nodes-format", "MAP", RP_OPT_TEXT, &args.in.nodes_format, 0, 0,
	 "likewise the nodes: alibaba-2026-nodes or a map file"},
	{"policy", "NAME,...", RP_OPT_TEXT, &args.policies_text, 0, 0,
	 "policies to compare, or \"all\"; ca-fgd; the extender's own, bid-price, takes several times\n"
	 "as long. There are: " RP_POLICY_NAMES},
	{"order", "FILE", RP_OPT_TEXT, &args.in.order_path, 0, 0,
	 "arrivals and node ranks from a file"},
	{"seed", "N,A-B,...", RP_OPT_TEXT, &args.in.seeds_text, 0, 0,
	 "a run for each seed: of arrivals and ranks where no order is given, of random\n"
	 "policies and ties; 42. A cluster in JSON keeps its order unless a seed is given"},
	{"inflate", "R", RP_OPT_DECIMAL, &args.in.inflate_nano, 1, INT64_C(1000000000000),
	 "clone pods until R times the GPUs are asked for; 1.3, for JSON none"},
	{"ties", "rank|random", RP_OPT_TEXT, &args.ties_text, 0, 0,
	 "which node of equal score wins: smallest rank, or a coin; rank,random runs both"},
	{"workload", "trace|online", RP_OPT_TEXT, &args.workload, 0, 0,
	 "what the measure expects: the pods of the trace, or an estimate from those placed\n"
	 "so far, as in the extender; trace"},
	RP_TIME_OPTIONS(args.when),
	{"mig-workload", "MIX", RP_OPT_TEXT, &args.mig.workload, 0, 0,
	 "no trace: MIG instances that come and go, of profiles drawn from a mix: uniform, small,\n"
	 "large, bimodal, middle, ends, thirds, or PROFILE=WEIGHT,... Compares placed workloads,\n"
	 "memory units and stranded units with those of the first policy on the same arrivals;\n"
	 "policies: firstfit,bestfit,fgd,ca-fgd; load: memory units, 1.2"},
	{"mig-product", "NAME", RP_OPT_TEXT, &args.mig.product, 0, 0,
	 "whose GPUs; NVIDIA A100-SXM4-40GB"},
	{"mig-gpus", "N", RP_OPT_INTEGER, &args.mig.gpus, 1, 1000000, "how many in all; 32"},
	{"mig-gpus-per-node", "N", RP_OPT_INTEGER, &args.mig.gpus_per_node, 1, ST_GPUS_MAX, "8"},
	{"mig-length", "N", RP_OPT_INTEGER, &args.mig.length, 1, 1000000,
	 "mean stays that are counted, after 5 that are not; 20"},
	{"mig-bounds", NULL, RP_OPT_FLAG, &args.mig.bounds, 0, 0,
	 "also what could be reached: the same arrivals, were instances moved at any time (of 1g, 2g,\n"
	 "3g, 4g, 7g); with --mig-gpus 2 the most placed and the least stranded by any\n"
	 "policy, exactly (seconds)"},
	{"csv", "FILE", RP_OPT_TEXT, &args.csv_path, 0, 0,
	 "write the whole curves over the load that arrived, or over time"},
	{"html", "FILE", RP_OPT_TEXT, &args.html_path, 0, 0,
	 "write a report with charts, to be opened in a browser; replay/READING.md"},
	{"svg", "FILE", RP_OPT_TEXT, &args.svg_path, 0, 0, "write the charts alone, for slides"},
	{"json", NULL, RP_OPT_FLAG, &args.json, 0, 0, "print an array of objects, no table"},
	{"decisions", "FILE", RP_OPT_TEXT, &args.decisions_path, 0, 0,
	 "write where each pod went, with the measure after it"},
	{"check", NULL, RP_OPT_FLAG, &args.b.check, 0, 0,
	 "recount the whole model by brute force after each run"},
	{"jobs", "N", RP_OPT_INTEGER, &args.b.jobs, 1, RP_JOBS_MAX,
	 "runs at the same time; one for each CPU. The results do not depend on it"},
	{"quiet", NULL, RP_OPT_FLAG, &args.in.quiet, 0, 0,
	 "no progress bar, no warnings, no explanations"},
};

int rp_cmd_run(const struct rp_command *self, int argc, char **argv)
{
	struct args *a = &args;
	struct rp_trace t;
	struct err err = ERR_INIT;
	int status, rc;

	*a = (struct args){.in.inflate_nano = RP_INFLATE_DEFAULT,
			   .mig = {.gpus = 32, .gpus_per_node = 8, .length = 20},
			   .argc = argc,
			   .argv = argv};
	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	rc = parse_lists(a, &err);
	if (rc < 0)
		return rp_command_failed(rc, &err);
	if (a->mig.workload != NULL)
		return run_mig(a);
	rp_trace_init(&t);
	if (rp_inputs_load(&a->in, &t, &status))
		status = run(a, &t);
	rp_trace_fini(&t);
	return status;
}

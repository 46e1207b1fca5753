#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/arith.h"
#include "base/file.h"
#include "replay/command.h"
#include "replay/jobs.h"
#include "replay/plan.h"
#include "replay/stat.h"

#define FILE_LIMIT ((size_t)1 << 20)

struct args {
	const char *pods_path, *format, *types_path, *policy_text, *seeds_text, *csv_path;
	struct rp_option_list types_text;
	int64_t success_nano, headroom_nano, jobs;
	bool json, quiet;
	struct rp_node_type types[RP_NODE_TYPES_MAX];
	size_t type_count;
	uint64_t seeds[RP_SEEDS_MAX];
	struct rp_plan_options opt;
	struct rp_map map;
};

static int parse_types(struct args *a, struct err *err)
{
	int rc = 0;

	if (a->types_path != NULL) {
		char *text = NULL;
		size_t len;

		rc = file_read(a->types_path, FILE_LIMIT, &text, &len, err);
		if (rc == 0)
			rc = rp_node_types_json(text, len, a->types, &a->type_count, err);
		free(text);
		if (rc < 0)
			return err_prefix(err, rc, "%s", a->types_path);
	}
	for (size_t i = 0; rc == 0 && i < a->types_text.count; i++) {
		struct rp_node_type t;

		rc = rp_node_type_parse(a->types_text.v[i], &t, err);
		if (rc == 0)
			rc = rp_node_types_add(a->types, &a->type_count, &t, err);
		if (rc < 0)
			return err_prefix(err, rc, "--node-type");
	}
	if (a->type_count == 0)
		return err_set(err, ERR_INVALID, "--node-type is missing");
	return rc;
}

/* Memory of the largest GPU, MiB, 0 = none is said: measured by it no pod seems larger than it is, so
 * that what is too small in sum is too small. */
static int64_t largest_gpu(const struct args *a)
{
	int64_t mib = 0;

	for (size_t i = 0; i < a->type_count; i++)
		mib = arith_max(mib, a->types[i].gpus > 0 ? a->types[i].gpu_mib : 0);
	return mib;
}

static int parse(struct args *a, struct err *err)
{
	const struct po_policy *policies[RP_POLICIES_MAX] = {NULL};
	size_t count = 0;
	int rc = parse_types(a, err);

	if (rc == 0)
		rc = rp_policies_parse(a->policy_text, policies, &count, err);
	if (rc == 0 && count != 1)
		rc = err_set(err, ERR_INVALID, "--policy: a plan is made with one policy");
	if (rc == 0)
		rc = rp_seeds_parse(a->seeds_text, a->seeds, &a->opt.seed_count, err);
	if (rc == 0 && a->opt.seed_count > RP_PLAN_SEEDS_MAX)
		rc = err_set(err, ERR_RANGE, "--seed: more than %d seeds", RP_PLAN_SEEDS_MAX);
	if (rc < 0)
		return rc;
	a->opt.policy = policies[0];
	a->opt.seeds = a->seeds;
	a->opt.success_nano = a->success_nano;
	a->opt.headroom_nano = a->headroom_nano;
	a->opt.jobs = a->jobs > 0 ? (size_t)a->jobs : rp_jobs_default();
	a->opt.prove_max = RP_PLAN_PROVE_DEFAULT;
	return 0;
}

static int64_t cost_centi(int64_t nano)
{
	return rp_round_div(nano, 10000000);
}

static void print_table(const struct args *a, const struct rp_plan *p)
{
	char b1[RP_TEXT_CAP], b2[RP_TEXT_CAP], b3[RP_TEXT_CAP];

	printf("%-20s %8s %8s %12s\n", "node type", "nodes", "GPUs", "cost");
	for (size_t i = 0; i < a->type_count; i++)
		printf("%-20s %8" PRId64 " %8" PRId64 " %12s\n", a->types[i].name, p->counts[i],
		       p->counts[i] * a->types[i].gpus,
		       rp_text_centi(cost_centi(p->counts[i] * a->types[i].cost_nano), b1));
	printf("%-20s %8" PRId64 " %8" PRId64 " %12s\n\n", "together", p->at.nodes, p->at.gpus,
	       rp_text_centi(cost_centi(p->at.cost_nano), b1));
	printf("places %s %% of %s with %s; GPU in use %s %%\n",
	       rp_text_centi(p->at.placed_centi, b1), rp_text_many((int64_t)p->pods, "pod", b3),
	       a->opt.policy->name, rp_text_centi(p->at.used_centi, b2));
	printf(p->proved
		       ? "No cheaper cluster does: all of them were tried, or are too small in sum "
			 "(%zu tried).\n"
		       : "Found by search (%zu tried); a cheaper one may exist, none below cost %s.\n",
	       p->tried, rp_text_centi(cost_centi(p->bound_nano), b1));
	printf("\n%7s %8s %8s %12s %9s %7s\n", "size %", "nodes", "GPUs", "cost", "placed %",
	       "used %");
	for (size_t k = 0; k < RP_PLAN_CURVE; k++) {
		const struct rp_plan_point *c = &p->curve[k];

		printf("%7d %8" PRId64 " %8" PRId64 " %12s %9s %7s\n", c->percent, c->nodes,
		       c->gpus, rp_text_centi(cost_centi(c->cost_nano), b1),
		       rp_text_centi(c->placed_centi, b2), rp_text_centi(c->used_centi, b3));
	}
}

static bool put_point(cJSON *o, const struct rp_plan_point *c)
{
	return cJSON_AddNumberToObject(o, "size_pct", c->percent) != NULL &&
	       cJSON_AddNumberToObject(o, "nodes", (double)c->nodes) != NULL &&
	       cJSON_AddNumberToObject(o, "gpus", (double)c->gpus) != NULL &&
	       cJSON_AddNumberToObject(o, "cost", (double)c->cost_nano / 1e9) != NULL &&
	       cJSON_AddNumberToObject(o, "placed_pct", (double)c->placed_centi / 100) != NULL &&
	       cJSON_AddNumberToObject(o, "used_pct", (double)c->used_centi / 100) != NULL;
}

static bool put_plan(cJSON *o, const struct args *a, const struct rp_plan *p)
{
	cJSON *types = cJSON_AddArrayToObject(o, "node_types"), *curve, *x;

	for (size_t i = 0; i < a->type_count; i++) {
		x = cJSON_CreateObject();
		if (x == NULL || !cJSON_AddItemToArray(types, x)) {
			cJSON_Delete(x);
			return false;
		}
		if (!cJSON_AddStringToObject(x, "name", a->types[i].name) ||
		    !cJSON_AddNumberToObject(x, "nodes", (double)p->counts[i]))
			return false;
	}
	curve = cJSON_AddArrayToObject(o, "curve");
	for (size_t k = 0; k < RP_PLAN_CURVE; k++) {
		x = cJSON_CreateObject();
		if (x == NULL || !cJSON_AddItemToArray(curve, x)) {
			cJSON_Delete(x);
			return false;
		}
		if (!put_point(x, &p->curve[k]))
			return false;
	}
	x = cJSON_AddObjectToObject(o, "plan");
	return x != NULL && put_point(x, &p->at) &&
	       cJSON_AddStringToObject(o, "policy", a->opt.policy->name) != NULL &&
	       cJSON_AddNumberToObject(o, "pods", (double)p->pods) != NULL &&
	       cJSON_AddNumberToObject(o, "success", (double)a->success_nano / 1e9) != NULL &&
	       cJSON_AddNumberToObject(o, "headroom", (double)a->headroom_nano / 1e9) != NULL &&
	       cJSON_AddNumberToObject(o, "cost_bound", (double)p->bound_nano / 1e9) != NULL &&
	       cJSON_AddBoolToObject(o, "proved", p->proved) != NULL &&
	       cJSON_AddNumberToObject(o, "tried", (double)p->tried) != NULL;
}

static int print_json(const struct args *a, const struct rp_plan *p, struct err *err)
{
	cJSON *o = cJSON_CreateObject();
	char *text = o != NULL && put_plan(o, a, p) ? cJSON_Print(o) : NULL;

	cJSON_Delete(o);
	if (text == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	puts(text);
	free(text);
	return 0;
}

static int write_csv(const struct args *a, const struct rp_plan *p, struct err *err)
{
	struct buf b = BUF_INIT;
	int rc;

	buf_puts(&b, "size_pct,nodes,gpus,cost,placed_pct,used_pct\n");
	for (size_t k = 0; k < RP_PLAN_CURVE; k++) {
		const struct rp_plan_point *c = &p->curve[k];
		char b1[RP_TEXT_CAP], b2[RP_TEXT_CAP], b3[RP_TEXT_CAP];

		buf_printf(&b, "%d,%" PRId64 ",%" PRId64 ",%s,%s,%s\n", c->percent, c->nodes,
			   c->gpus, rp_text_centi(cost_centi(c->cost_nano), b1),
			   rp_text_centi(c->placed_centi, b2), rp_text_centi(c->used_centi, b3));
	}
	rc = rp_write_file(a->csv_path, &b, err);
	buf_fini(&b);
	return rc;
}

static int plan(struct args *a, const struct rp_trace *t)
{
	struct rp_progress progress;
	struct err err = ERR_INIT;
	struct rp_plan p;
	int rc;

	rp_progress_init(&progress, a->quiet);
	snprintf(progress.label, sizeof(progress.label), "plan");
	a->opt.progress = &progress;
	rc = rp_plan_find(t, a->types, a->type_count, &a->opt, &p, &err);
	rp_progress_clear(&progress);
	a->opt.progress = NULL;
	if (rc < 0) {
		rp_command_failed(rc, &err);
		return rc == ERR_INVALID ? RP_EXIT_INPUT : RP_EXIT_FAILED;
	}
	if (a->json)
		rc = print_json(a, &p, &err);
	else
		print_table(a, &p);
	if (rc == 0 && a->csv_path != NULL)
		rc = write_csv(a, &p, &err);
	return rp_command_end(rc, &err);
}

int rp_cmd_plan(const struct rp_command *self, int argc, char **argv)
{
	static struct args a;
	const struct rp_option options[] = {
		{"pods", "FILE", RP_OPT_TEXT, &a.pods_path, 0, 0,
		 "pods: openb CSV, or JSON as kubectl get pods -A -o json prints it (with nodes or\n"
		 "without), whose pending pods are meant"},
		{"pods-format", "MAP", RP_OPT_TEXT, &a.format, 0, 0,
		 "the pods are another trace's table: a map's name or file; replay/FORMATS.md"},
		{"node-type", "FIELDS", RP_OPT_LIST, &a.types_text, 0, 0,
		 "a node type, given once for each: name=A,cpu=96,memory=768Gi,gpus=8 and, where\n"
		 "wanted, model=G2, gpu-memory=80Gi, cost=10 (1), max=40 (100000), mig=yes|auto (no)"},
		{"node-types", "FILE", RP_OPT_TEXT, &a.types_path, 0, 0,
		 "node types as a JSON list of objects with these fields"},
		{"success", "R", RP_OPT_DECIMAL, &a.success_nano, 1, 1000000000,
		 "share of the pods that must find a place; 1"},
		{"headroom", "R", RP_OPT_DECIMAL, &a.headroom_nano, 0, INT64_C(10000000000),
		 "pods beyond these that must find a place too, as a share of them; 0"},
		{"policy", "NAME", RP_OPT_TEXT, &a.policy_text, 0, 0,
		 "what places them; ca-fgd; the extender's own, bid-price, takes several times as long"},
		{"seed", "N,A-B,...", RP_OPT_TEXT, &a.seeds_text, 0, 0,
		 "orders of arrival; the plan holds in each of them; 42"},
		{"jobs", "N", RP_OPT_INTEGER, &a.jobs, 1, RP_JOBS_MAX,
		 "clusters tried at the same time; one for each CPU. The plan does not depend on it"},
		{"csv", "FILE", RP_OPT_TEXT, &a.csv_path, 0, 0, "write the curve"},
		{"json", NULL, RP_OPT_FLAG, &a.json, 0, 0, "print an object, no table"},
		{"quiet", NULL, RP_OPT_FLAG, &a.quiet, 0, 0, "no progress bar, no warnings"},
	};
	struct err err = ERR_INIT;
	struct rp_trace t;
	int status, rc;

	a = (struct args){.success_nano = 1000000000};
	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	rc = parse(&a, &err);
	if (rc == 0 && a.pods_path == NULL)
		rc = err_set(&err, ERR_INVALID, "--pods is missing");
	if (rc < 0)
		return rp_command_failed(rc, &err);
	rp_trace_init(&t);
	if (a.format != NULL) {
		rc = rp_map_find(a.format, &a.map, &err);
		if (rc < 0)
			return rp_command_failed(rc, &err);
		t.pod_map = &a.map;
	}
	rc = rp_trace_load_pods(&t, a.pods_path, largest_gpu(&a), rp_command_note, &a.quiet, &err);
	status = rc < 0 ? rp_command_failed(rc, &err) : plan(&a, &t);
	rp_trace_fini(&t);
	return status;
}

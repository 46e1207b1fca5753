#include "replay/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zlib.h>

#include "fragmentation/measure.h"
#include "state/cluster.h"

#define PROGRESS_STEPS 256
#define POPULARITY_PERCENT 95
#define SHAPES_MIN 64

struct run {
	const struct rp_trace *t;
	const struct rp_order *o;
	const struct rp_run_options *opt;
	struct st_cluster *cluster;
	struct po_placer *placer;
	struct fr_measure *fgd; /* FGD's measure; NULL where the placer keeps it anyway */
	int64_t arrived_milli;
	struct buf line;
	struct rp_result result;
};

static double seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

/* FGD's typical set of the trace as it is, before shuffling and clones. */
static int make_fgd(struct run *r, struct err *err)
{
	struct fr_counts *counts = fr_counts_new();
	struct fr_workload *w = NULL;
	int rc = counts != NULL ? 0 : out_of_memory(err);

	for (size_t i = 0; rc == 0 && i < r->t->shape_count; i++) {
		struct fr_class cls;

		if (r->t->shapes[i].count == 0)
			continue;
		fr_class_of(&r->t->shapes[i].req, &cls);
		rc = fr_counts_add(counts, &cls, r->t->shapes[i].count, err);
	}
	if (rc == 0) {
		w = fr_workload_build(counts, POPULARITY_PERCENT, false);
		r->fgd = w != NULL ? fr_measure_new(r->cluster, FR_FGD, w) : NULL;
		if (r->fgd == NULL)
			rc = out_of_memory(err);
	}
	fr_counts_free(counts);
	return rc;
}

/* All shapes of the trace, as far as their caches stay below about 1 GiB. */
static size_t shapes_max(const struct run *r)
{
	size_t fit = ((size_t)1 << 30) / (24 * (r->t->node_count + 1));

	if (r->opt->shapes_max > 0)
		return r->opt->shapes_max;
	if (fit < SHAPES_MIN)
		fit = SHAPES_MIN;
	return r->t->shape_count < fit ? r->t->shape_count + 1 : fit;
}

static int make_placer(struct run *r, struct err *err)
{
	struct po_options opt = {
		.policy = r->opt->policy,
		.ties = r->opt->ties,
		.seed = r->opt->seed,
		.popularity_percent = POPULARITY_PERCENT,
		.shapes_max = shapes_max(r),
		.learn = r->opt->online,
	};
	int rc = 0;

	r->placer = po_placer_new(r->cluster, &opt);
	if (r->placer == NULL)
		return out_of_memory(err);
	if (!r->opt->policy->uses_measure)
		return 0;
	for (size_t i = 0; rc == 0 && !r->opt->online && i < r->t->pod_count; i++)
		rc = po_placer_learn(r->placer, &r->t->shapes[r->t->pods[i]].req, err);
	return rc == 0 ? po_placer_rebuild(r->placer, err) : rc;
}

static bool placer_has_fgd(const struct run *r)
{
	return r->opt->policy->uses_measure && r->opt->policy->measure == FR_FGD && !r->opt->online;
}

/* FGD's cluster sums, whatever the policy. */
static int fgd_now(struct run *r, struct po_fragmentation *ret, struct err *err)
{
	if (r->fgd == NULL)
		return po_placer_fragmentation(r->placer, ret, err);
	ret->n = fr_measure_total(r->fgd);
	ret->divisor = fr_measure_scale(r->fgd);
	ret->idle_milli = fr_measure_idle_total(r->fgd);
	return 0;
}

/* Sums over all nodes before the first arrival. */
static int take_stock(struct run *r, struct err *err)
{
	struct rp_result *res = &r->result;

	for (uint32_t id = 0; id < st_cluster_node_count(r->cluster); id++) {
		const struct st_node *n = st_cluster_node(r->cluster, id);

		if (r->fgd != NULL && fr_measure_sync(r->fgd, id) < 0)
			return out_of_memory(err);
		res->total_milli += (int64_t)n->gpu_count * RP_GPU_UNITS;
		res->used_milli += rp_node_used_milli(n);
	}
	if (res->total_milli == 0)
		return err_set(err, ERR_INVALID, "the nodes have no GPU");
	r->arrived_milli = res->used_milli;
	rp_curve_init(&res->curve, res->total_milli);
	return 0;
}

static int prepare(struct run *r, struct err *err)
{
	int rc = rp_trace_cluster(r->t, r->o->ranks, &r->cluster, err);

	if (rc == 0 && !placer_has_fgd(r))
		rc = make_fgd(r, err);
	if (rc == 0)
		rc = take_stock(r, err);
	return rc == 0 ? make_placer(r, err) : rc;
}

/* N as the decisions file and the totals give it. */
static int measure_num(struct run *r, int64_t *ret, struct err *err)
{
	struct po_fragmentation f = {0};
	int rc = r->opt->policy->uses_measure ? po_placer_measure(r->placer, &f, err)
					      : fgd_now(r, &f, err);

	if (rc == 0)
		*ret = f.n;
	return rc;
}

/* The digest's line, and the decisions' one. d NULL: not placed. */
static int record(struct run *r, size_t step, const char *name, const struct st_decision *d,
		  struct err *err)
{
	struct buf *line = &r->line;
	const char *sep = "";
	int64_t n = 0;
	int rc;

	buf_reset(line);
	buf_put_i64(line, (int64_t)step);
	buf_putc(line, ',');
	buf_puts(line, name);
	buf_putc(line, ',');
	if (d != NULL)
		buf_puts(line, st_cluster_node(r->cluster, d->node)->name);
	buf_putc(line, ',');
	for (unsigned i = 0; d != NULL && i < d->grant_count; i++)
		for (unsigned g = 0; g < d->grants[i].count; g++, sep = "-") {
			buf_puts(line, sep);
			buf_put_i64(line, d->grants[i].gpu[g]);
		}
	buf_putc(line, '\n');
	if (!buf_ok(line))
		return out_of_memory(err);
	r->result.placements_crc32 = (uint32_t)crc32(
		r->result.placements_crc32, (const unsigned char *)line->data, (unsigned)line->len);
	if (r->opt->decisions == NULL)
		return 0;
	rc = measure_num(r, &n, err);
	if (rc < 0)
		return rc;
	buf_put(r->opt->decisions, line->data, line->len - 1);
	buf_putc(r->opt->decisions, ',');
	buf_put_i64(r->opt->decisions, n);
	buf_putc(r->opt->decisions, '\n');
	return buf_ok(r->opt->decisions) ? 0 : out_of_memory(err);
}

/* Books the decision as the extender does, and brings the sums up to date. */
static int commit(struct run *r, size_t step, const char *name, const struct st_request *req,
		  const struct st_decision *d, struct err *err)
{
	const struct st_node *n = st_cluster_node(r->cluster, d->node);
	char uid[32] = "arrival-";
	struct st_pod_ident pod = {
		.uid = uid,
		.ns = "",
		.name = name,
		.cpu_milli = req->cpu_milli,
		.mem_mib = req->mem_mib,
		.memory_bound = req->workload == ST_WORKLOAD_MEMORY_BOUND,
	};
	char *p = uid + sizeof(uid) - 1;
	int rc;

	for (*p = '\0';; step /= 10) {
		*--p = (char)('0' + step % 10);
		if (step < 10)
			break;
	}
	memmove(uid + 8, p, (size_t)(uid + sizeof(uid) - p));
	r->result.used_milli -= rp_node_used_milli(n);
	rc = st_cluster_reserve(r->cluster, &pod, d, err);
	if (rc == 0)
		rc = st_cluster_pod_move(r->cluster, uid, ST_EVENT_ACCEPTED, err);
	if (rc == 0 && r->fgd != NULL && fr_measure_sync(r->fgd, d->node) < 0)
		rc = out_of_memory(err);
	if (rc < 0)
		return rc == ERR_NOMEM ? rc : err_prefix(err, rc, "pod %s, step %s", name, uid + 8);
	r->result.used_milli += rp_node_used_milli(n);
	r->result.placed++;
	return 0;
}

/* Prices of bid-price follow the arrivals, placed or not. */
static int after_arrival(struct run *r, struct err *err)
{
	return po_placer_arrival(r->placer) ? po_placer_reprice(r->placer, err) : 0;
}

static int arrive(struct run *r, size_t step, struct err *err)
{
	uint32_t pod = r->o->pods[step];
	const struct rp_shape *s = &r->t->shapes[r->t->pods[pod]];
	const char *name = strpool_str(r->t->pod_names, pod);
	struct st_decision d;
	struct po_shape *shape;
	enum bp_verdict verdict;
	uint32_t node;
	int rc;

	r->arrived_milli += s->milli;
	shape = po_placer_ask(r->placer, &s->req, step);
	if (shape == NULL)
		return out_of_memory(err);
	node = po_shape_best(shape);
	if (node == ST_NONE) {
		r->result.failed[s->kind]++;
		return record(r, step, name, NULL, err);
	}
	verdict = po_placer_choose(r->placer, &s->req, node, step, &d);
	if (verdict != BP_OK)
		return err_set(err, ERR_INTERNAL, "pod %s, step %zu: the best node refuses: %s",
			       name, step, bp_verdict_text(verdict));
	rc = commit(r, step, name, &s->req, &d, err);
	if (rc == 0 && r->opt->online)
		rc = po_placer_learn(r->placer, &s->req, err);
	return rc == 0 ? record(r, step, name, &d, err) : rc;
}

static int play(struct run *r, struct err *err)
{
	const struct rp_run_options *opt = r->opt;
	size_t total = r->o->pod_count;

	for (size_t step = 0; step < total; step++) {
		struct po_fragmentation f = {0};
		int rc = arrive(r, step, err);

		if (rc == 0)
			rc = after_arrival(r, err);
		if (rc == 0)
			rc = fgd_now(r, &f, err);
		if (rc < 0)
			return rc;
		rp_curve_add(&r->result.curve, r->arrived_milli, r->result.used_milli, f.n,
			     f.divisor, f.idle_milli);
		if (opt->progress != NULL && step % PROGRESS_STEPS == 0)
			opt->progress(opt->progress_ctx, step, total);
	}
	r->result.arrivals = total;
	return 0;
}

int rp_run(const struct rp_trace *t, const struct rp_order *o, const struct rp_run_options *opt,
	   struct rp_result *ret, struct err *err)
{
	double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
	struct run *r = calloc(1, sizeof(*r));
	int rc;

	if (r == NULL)
		return out_of_memory(err);
	*r = (struct run){.t = t, .o = o, .opt = opt};
	rc = prepare(r, err);
	if (rc == 0)
		rc = play(r, err);
	if (rc == 0)
		rc = measure_num(r, &r->result.measure_num, err);
	if (rc == 0 && opt->check)
		rc = st_cluster_check(r->cluster, ST_NONE, err);
	if (rc == 0) {
		r->result.policy = opt->policy->name;
		r->result.ties = opt->ties;
		r->result.seed = opt->seed;
		r->result.wall_s = seconds(CLOCK_MONOTONIC) - wall;
		r->result.cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
		*ret = r->result;
	}
	buf_fini(&r->line);
	po_placer_free(r->placer);
	fr_measure_free(r->fgd);
	st_cluster_free(r->cluster);
	free(r);
	return rc;
}

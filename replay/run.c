#include "replay/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zlib.h>

#include "replay/stage.h"

#define PROGRESS_STEPS 256

struct run {
	const struct rp_trace *t;
	const struct rp_order *o;
	const struct rp_run_options *opt;
	struct rp_stage stage;
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

/* N as the decisions file and the totals give it. */
static int measure_num(struct run *r, int64_t *ret, struct err *err)
{
	struct po_fragmentation f = {0};
	int rc = r->opt->policy->uses_measure ? po_placer_measure(r->stage.placer, &f, err)
					      : rp_stage_fgd(&r->stage, &f, err);

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
		buf_puts(line, st_cluster_node(r->stage.cluster, d->node)->name);
	buf_putc(line, ',');
	for (unsigned i = 0; d != NULL && i < d->grant_count; i++)
		for (unsigned g = 0; g < d->grants[i].count; g++, sep = "-") {
			buf_puts(line, sep);
			buf_put_i64(line, d->grants[i].gpu[g]);
		}
	buf_putc(line, '\n');
	if (!buf_ok(line))
		return err_set(err, ERR_NOMEM, "out of memory");
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
	return buf_ok(r->opt->decisions) ? 0 : err_set(err, ERR_NOMEM, "out of memory");
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
	shape = po_placer_ask(r->stage.placer, &s->req, step);
	if (shape == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	node = po_shape_best(shape);
	if (node == ST_NONE) {
		r->result.failed[s->kind]++;
		return record(r, step, name, NULL, err);
	}
	verdict = po_placer_choose(r->stage.placer, &s->req, node, step, &d);
	if (verdict != BP_OK)
		return err_set(err, ERR_INTERNAL, "pod %s, step %zu: the best node refuses: %s",
			       name, step, bp_verdict_text(verdict));
	rc = rp_stage_book(&r->stage, step, name, &s->req, &d, err);
	r->result.placed += rc == 0;
	if (rc == 0 && r->opt->online)
		rc = po_placer_learn(r->stage.placer, &s->req, err);
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
			rc = rp_stage_arrived(&r->stage, err);
		if (rc == 0)
			rc = rp_stage_fgd(&r->stage, &f, err);
		if (rc < 0)
			return rc;
		rp_curve_add(&r->result.curve, r->arrived_milli, r->stage.used_milli, f.n,
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
		return err_set(err, ERR_NOMEM, "out of memory");
	*r = (struct run){.t = t, .o = o, .opt = opt};
	rc = rp_stage_open(&r->stage, t, o->ranks, opt, err);
	if (rc == 0) {
		r->arrived_milli = r->stage.used_milli;
		rp_curve_init(&r->result.curve, r->stage.total_milli);
		rc = play(r, err);
	}
	if (rc == 0)
		rc = measure_num(r, &r->result.measure_num, err);
	if (rc == 0 && opt->why)
		rc = rp_stranded_find(t, r->stage.cluster, r->stage.placer, &r->result.end, err);
	if (rc == 0 && opt->check)
		rc = st_cluster_check(r->stage.cluster, ST_NONE, err);
	if (rc == 0) {
		r->result.total_milli = r->stage.total_milli;
		r->result.used_milli = r->stage.used_milli;
		r->result.policy = opt->policy->name;
		r->result.ties = opt->ties;
		r->result.seed = opt->seed;
		r->result.wall_s = seconds(CLOCK_MONOTONIC) - wall;
		r->result.cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
		*ret = r->result;
	}
	buf_fini(&r->line);
	rp_stage_close(&r->stage);
	free(r);
	return rc;
}

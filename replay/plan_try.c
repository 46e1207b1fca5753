#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/rng.h"
#include "replay/jobs.h"
#include "replay/order.h"
#include "replay/plan_internal.h"
#include "replay/stage.h"

#define STREAM_HEADROOM UINT64_C(0x686561640000)

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

static int64_t resource(const struct rp_shape *s, int r)
{
	return r == 0 ? s->milli : r == 1 ? s->req.cpu_milli : s->req.mem_mib;
}

static int64_t capacity(const struct rp_node_type *t, int r)
{
	return r == 0 ? (int64_t)t->gpus * RP_GPU_UNITS : r == 1 ? t->cpu_milli : t->mem_mib;
}

/* The pods shuffled, then clones of pods drawn from all. */
static int make_order(struct rp_planner *p, size_t seed, size_t count, struct err *err)
{
	struct rp_order_options how = {.seed = p->opt->seeds[seed],
				       .inflate_nano = RP_NO_INFLATION};
	struct rp_order o = {0};
	struct rng rng;
	int rc = rp_order_make(p->t, &how, &o, err);

	if (rc < 0)
		return rc;
	p->pods[seed] = malloc((count + 1) * sizeof(*p->pods[seed]));
	if (p->pods[seed] != NULL) {
		memcpy(p->pods[seed], o.pods, o.pod_count * sizeof(*o.pods));
		rng_init(&rng, how.seed ^ STREAM_HEADROOM);
		for (size_t i = o.pod_count; i < count; i++)
			p->pods[seed][i] = o.pods[rng_below(&rng, o.pod_count)];
	}
	rp_order_fini(&o);
	return p->pods[seed] != NULL ? 0 : out_of_memory(err);
}

static int by_size(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* For each resource the least that as many pods as must be placed can ask for, in the seed that asks
 * for least. */
static int find_needs(struct rp_planner *p, struct err *err)
{
	int64_t *asked = malloc((p->pod_count + 1) * sizeof(*asked));

	if (asked == NULL)
		return out_of_memory(err);
	for (int r = 0; r < 3; r++) {
		p->need[r] = INT64_MAX;
		for (size_t s = 0; s < p->opt->seed_count; s++) {
			int64_t sum = 0;

			for (size_t i = 0; i < p->pod_count; i++)
				asked[i] = resource(&p->t->shapes[p->t->pods[p->pods[s][i]]], r);
			qsort(asked, p->pod_count, sizeof(*asked), by_size);
			for (size_t i = 0; i + p->may_fail < p->pod_count; i++)
				sum += asked[i];
			p->need[r] = arith_min(p->need[r], sum);
		}
	}
	free(asked);
	return 0;
}

int rp_planner_open(struct rp_planner *p, const struct rp_trace *t,
		    const struct rp_node_type *types, size_t type_count,
		    const struct rp_plan_options *opt, size_t sample, struct err *err)
{
	size_t must, full;
	int rc = 0;

	*p = (struct rp_planner){.t = t, .types = types, .type_count = type_count, .opt = opt};
	if (t->pod_count == 0 || type_count == 0 || opt->seed_count == 0)
		return err_set(err, ERR_INVALID, "a plan wants pods, node types and a seed");
	p->pod_count = t->pod_count + (size_t)arith_mul_div_ceil((int64_t)t->pod_count,
								 opt->headroom_nano, 1000000000);
	full = p->pod_count;
	if (sample > 0 && sample < full)
		p->pod_count = sample;
	must = (size_t)arith_mul_div_ceil((int64_t)p->pod_count, opt->success_nano, 1000000000);
	p->may_fail = p->pod_count - must;
	for (size_t s = 0; rc == 0 && s < opt->seed_count; s++)
		rc = make_order(p, s, full, err);
	return rc == 0 ? find_needs(p, err) : rc;
}

void rp_planner_close(struct rp_planner *p)
{
	for (size_t s = 0; s < RP_PLAN_SEEDS_MAX; s++)
		free(p->pods[s]);
	memset(p->pods, 0, sizeof(p->pods));
}

int64_t rp_planner_cost(const struct rp_planner *p, const struct rp_plan_counts *c)
{
	__int128 sum = 0;

	for (size_t i = 0; i < p->type_count; i++)
		sum += (__int128)c->n[i] * p->types[i].cost_nano;
	return sum > INT64_MAX ? INT64_MAX : (int64_t)sum;
}

int64_t rp_planner_bound(const struct rp_planner *p)
{
	int64_t bound = 0;

	for (int r = 0; r < 3; r++) {
		int64_t least = INT64_MAX;

		if (p->need[r] == 0)
			continue;
		for (size_t i = 0; i < p->type_count; i++)
			if (capacity(&p->types[i], r) > 0)
				least = arith_min(
					least, arith_mul_div_ceil(p->need[r], p->types[i].cost_nano,
								  capacity(&p->types[i], r)));
		bound = arith_max(bound, least);
	}
	return bound;
}

bool rp_planner_enough(const struct rp_planner *p, const struct rp_plan_counts *c)
{
	for (int r = 0; r < 3; r++) {
		__int128 sum = 0;

		for (size_t i = 0; i < p->type_count; i++)
			sum += (__int128)c->n[i] * capacity(&p->types[i], r);
		if (sum < p->need[r])
			return false;
	}
	return true;
}

/* Places one pod: 1, or 0 where there is no room. */
static int place(struct rp_stage *s, const struct st_request *req, size_t step, struct err *err)
{
	struct po_shape *shape = po_placer_ask(s->placer, req, step);
	struct st_decision d;
	uint32_t node;
	int rc;

	if (shape == NULL)
		return out_of_memory(err);
	node = po_shape_best(shape);
	if (node == ST_NONE)
		return 0;
	if (po_placer_choose(s->placer, req, node, step, &d) != BP_OK)
		return err_set(err, ERR_INTERNAL, "step %zu: the best node refuses", step);
	rc = rp_stage_book(s, step, "", req, &d, err);
	return rc < 0 ? rc : 1;
}

/* Plays one seed. Stops once too many failed, unless `whole`. */
static int play(const struct rp_planner *p, const struct rp_trace *view, size_t seed, bool whole,
		size_t *ret_failed, int64_t *ret_used_centi, struct err *err)
{
	struct rp_run_options opt = {
		.policy = p->opt->policy, .seed = p->opt->seeds[seed], .bare = true};
	struct rp_stage s;
	size_t failed = 0;
	int rc = rp_stage_open(&s, view, NULL, &opt, err);

	for (size_t i = 0; rc == 0 && i < p->pod_count && (whole || failed <= p->may_fail); i++) {
		const struct rp_shape *shape = &p->t->shapes[p->t->pods[p->pods[seed][i]]];
		int placed = place(&s, &shape->req, i, err);

		failed += placed == 0;
		rc = placed < 0 ? placed : rp_stage_arrived(&s, err);
	}
	if (rc == 0) {
		*ret_failed = failed;
		*ret_used_centi = rp_round_div((__int128)s.used_milli * 10000, s.total_milli);
	}
	rp_stage_close(&s);
	return rc;
}

static void fill_point(const struct rp_planner *p, const struct rp_plan_counts *c, size_t worst,
		       int64_t used_sum, struct rp_plan_point *point)
{
	point->cost_nano = rp_planner_cost(p, c);
	point->nodes = point->gpus = 0;
	for (size_t i = 0; i < p->type_count; i++) {
		point->nodes += c->n[i];
		point->gpus += c->n[i] * p->types[i].gpus;
	}
	point->placed_centi =
		(int64_t)((__int128)(p->pod_count - worst) * 10000 / (int64_t)p->pod_count);
	point->used_centi = rp_round_div(used_sum, (int64_t)p->opt->seed_count);
}

int rp_planner_try(const struct rp_planner *p, const struct rp_plan_counts *c,
		   struct rp_plan_point *point, struct err *err)
{
	size_t worst = 0;
	int64_t used_sum = 0;
	struct rp_trace view;
	int rc;

	if (point == NULL && !rp_planner_enough(p, c))
		return 0;
	rc = rp_trace_view(p->t, p->types, c->n, p->type_count, &view, err);
	if (rc < 0)
		return rc;
	if (view.gpu_milli == 0) {
		worst = p->pod_count; /* no cluster for GPU pods */
	} else {
		for (size_t s = 0; rc == 0 && s < p->opt->seed_count; s++) {
			size_t failed = 0;
			int64_t used = 0;

			rc = play(p, &view, s, point != NULL, &failed, &used, err);
			worst = failed > worst ? failed : worst;
			used_sum += used;
			if (point == NULL && worst > p->may_fail)
				break;
		}
	}
	rp_trace_view_fini(&view);
	if (rc < 0)
		return rc;
	if (point != NULL)
		fill_point(p, c, worst, used_sum, point);
	return worst <= p->may_fail;
}

struct round {
	struct rp_planner *p;
	const struct rp_plan_counts *list;
	int *ret;
	struct rp_plan_point *points;
};

static int try_one(void *ctx, size_t i, struct rp_job *job, struct err *err)
{
	struct round *r = ctx;

	(void)job;
	r->ret[i] =
		rp_planner_try(r->p, &r->list[i], r->points != NULL ? &r->points[i] : NULL, err);
	return r->ret[i] < 0 ? r->ret[i] : 0;
}

int rp_planner_try_all(struct rp_planner *p, const struct rp_plan_counts *list, size_t count,
		       /* NOLINTNEXTLINE(readability-non-const-parameter): the jobs write to it */
		       int *ret, struct rp_plan_point *points, struct err *err)
{
	struct round r = {.p = p, .list = list, .ret = ret, .points = points};

	p->tried += count;
	return rp_jobs_run(count, p->opt->jobs, try_one, &r, NULL, err);
}

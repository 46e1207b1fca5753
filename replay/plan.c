#include "replay/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "replay/plan_internal.h"

#define CANDIDATES_MAX (RP_NODE_TYPES_MAX * RP_NODE_TYPES_MAX)
#define COARSE 100 /* while searching, numbers of nodes are good to 1 % */
#define FINE RP_NODES_MAX
#define FINEST_PART                                                                                \
	64          /* exchanges smaller than that part of the nodes of a type are not looked at */
#define SAMPLE 1000 /* pods that larger workloads are first planned with */
#define DESCEND_WORK 300000  /* arrivals played before the search settles for what it has */
#define PROVE_WORK 3000000   /* arrivals */
#define PROVE_VISITS 1000000 /* of the enumeration */

static void show(const struct rp_planner *p, size_t done, size_t total)
{
	if (p->opt->progress != NULL)
		rp_progress_show(p->opt->progress, done, total);
}

static int try(struct rp_planner *p, const struct rp_plan_counts *c, struct err *err)
{
	p->tried++;
	return rp_planner_try(p, c, NULL, err);
}

/* The fewest nodes of type i with which c still does, to within 1/grain of them; c does with
 * c->n[i]. Not below `least`. Two numbers are tried at a time. */
static int shrink(struct rp_planner *p, struct rp_plan_counts *c, size_t i, int64_t least,
		  int64_t grain, struct err *err)
{
	int64_t lo = least - 1, hi = c->n[i];

	while (hi - lo > 1 && (hi - lo) * grain > hi) {
		struct rp_plan_counts x[2] = {*c, *c};
		int does[2], rc;

		x[0].n[i] = lo + (hi - lo + 1) / 3;
		x[1].n[i] = lo + (hi - lo) * 2 / 3;
		x[0].n[i] = x[0].n[i] == lo ? lo + 1 : x[0].n[i];
		x[1].n[i] = x[1].n[i] == lo ? lo + 1 : x[1].n[i];
		rc = rp_planner_try_all(p, x, x[0].n[i] == x[1].n[i] ? 1 : 2, does, NULL, err);
		if (rc < 0)
			return rc;
		if (does[0] == 1) {
			hi = x[0].n[i];
		} else if (x[1].n[i] != x[0].n[i] && does[1] == 1) {
			lo = x[0].n[i];
			hi = x[1].n[i];
		} else {
			lo = x[1].n[i];
		}
	}
	c->n[i] = hi;
	return 0;
}

/* keep > 0: once only, and not below that many percent of each. */
static int shrink_all(struct rp_planner *p, struct rp_plan_counts *c, int64_t keep, int64_t grain,
		      struct err *err)
{
	struct rp_plan_counts before;

	do {
		before = *c;
		for (size_t i = 0; i < p->type_count; i++) {
			int rc = shrink(p, c, i, c->n[i] * keep / 100, grain, err);

			if (rc < 0)
				return rc;
		}
	} while (keep == 0 && memcmp(&before, c, sizeof(before)) != 0);
	return 0;
}

/* k nodes of each type in `types` (bits), as far as they are to be had. */
static struct rp_plan_counts evenly(const struct rp_planner *p, unsigned types, int64_t k)
{
	struct rp_plan_counts c = {0};

	for (size_t i = 0; i < p->type_count; i++)
		if ((types & 1U << i) != 0)
			c.n[i] = arith_min(k, p->types[i].max);
	return c;
}

/* Grows an even cluster of these types until it does: 1; 0: it never does. */
static int grow(struct rp_planner *p, unsigned types, struct rp_plan_counts *ret, struct err *err)
{
	int64_t most = 0;

	for (size_t i = 0; i < p->type_count; i++)
		if ((types & 1U << i) != 0)
			most = arith_max(most, p->types[i].max);
	/* More nodes than pods are of no use. */
	most = arith_min(most, (int64_t)p->pod_count);
	for (int64_t k = 1;; k = arith_min(k + (k + 2) / 3, most)) {
		struct rp_plan_counts c = evenly(p, types, k);
		int rc = rp_planner_enough(p, &c) ? try(p, &c, err) : 0;

		if (rc < 0)
			return rc;
		if (rc == 1) {
			*ret = c;
			return 1;
		}
		if (k >= most)
			return 0;
	}
}

static bool better(const struct rp_planner *p, const struct rp_plan_counts *a,
		   const struct rp_plan_counts *b)
{
	return rp_planner_cost(p, a) < rp_planner_cost(p, b);
}

/* The best of: each type alone, and all of them evenly. */
static int start(struct rp_planner *p, struct rp_plan_counts *best, bool *found, struct err *err)
{
	unsigned all = (1U << p->type_count) - 1;

	*found = false;
	for (size_t i = 0; i <= p->type_count; i++) {
		struct rp_plan_counts c;
		int rc;

		if (i == p->type_count && p->type_count == 1)
			break;
		rc = grow(p, i < p->type_count ? 1U << i : all, &c, err);
		if (rc == 1)
			rc = shrink_all(p, &c, 0, COARSE, err) < 0 ? ERR_NOMEM : 1;
		if (rc < 0)
			return rc;
		if (rc == 1 && (!*found || better(p, &c, best))) {
			*best = c;
			*found = true;
		}
		show(p, i + 1, 2 * p->type_count + 2);
	}
	return 0;
}

/* Some nodes of one type go, and as many of another come as make it still cheaper. */
static size_t exchanges(const struct rp_planner *p, const struct rp_plan_counts *c, int64_t part,
			struct rp_plan_counts *list, size_t *kinds)
{
	size_t count = 0;

	for (size_t i = 0; i < p->type_count; i++) {
		int64_t go = (c->n[i] + part - 1) / part;

		for (size_t j = 0; j < p->type_count && go > 0; j++) {
			struct rp_plan_counts x = *c;
			__int128 saved = (__int128)go * p->types[i].cost_nano - 1;
			int64_t come = (int64_t)(saved / p->types[j].cost_nano);

			if (j == i)
				continue;
			x.n[i] -= go;
			x.n[j] = arith_min(x.n[j] + come, p->types[j].max);
			if (x.n[j] == c->n[j] || !rp_planner_enough(p, &x))
				continue;
			kinds[count] = j;
			list[count++] = x;
		}
	}
	return count;
}

/* Descends until no exchange of any size makes it cheaper. */
static int descend(struct rp_planner *p, struct rp_plan_counts *best, int64_t part, int64_t keep,
		   struct err *err)
{
	struct rp_plan_counts list[CANDIDATES_MAX];
	size_t kinds[CANDIDATES_MAX];
	int does[CANDIDATES_MAX];

	while (part <= FINEST_PART && p->tried * p->pod_count < DESCEND_WORK) {
		size_t count = exchanges(p, best, part, list, kinds), pick = count;
		int rc = rp_planner_try_all(p, list, count, does, NULL, err);

		if (rc < 0)
			return rc;
		for (size_t i = 0; i < count; i++) {
			if (does[i] != 1)
				continue;
			/* As few of the newcomers as will do. */
			rc = shrink(p, &list[i], kinds[i], best->n[kinds[i]], COARSE, err);
			if (rc < 0)
				return rc;
			if (pick == count || better(p, &list[i], &list[pick]))
				pick = i;
		}
		if (pick < count) {
			*best = list[pick];
			rc = shrink_all(p, best, keep, COARSE, err);
			if (rc < 0)
				return rc;
			continue;
		}
		part *= 2;
		/* Beyond one node at a time there is nothing smaller. */
		for (size_t i = 0; i <= p->type_count; i++) {
			if (i == p->type_count)
				return 0;
			if (best->n[i] * 2 > part)
				break;
		}
	}
	return 0;
}

/* ---- proof: every cheaper cluster ---- */

struct list {
	const struct rp_planner *p;
	struct rp_plan_counts *items;
	size_t count, cap, visits;
	int64_t below; /* cost */
	bool too_many;
};

static void enumerate(struct list *l, struct rp_plan_counts *c, size_t i)
{
	if (++l->visits > PROVE_VISITS)
		l->too_many = true;
	if (l->too_many)
		return;
	if (i == l->p->type_count) {
		if (!rp_planner_enough(l->p, c))
			return;
		if (l->count == l->cap)
			l->too_many = true;
		else
			l->items[l->count++] = *c;
		return;
	}
	for (c->n[i] = 0; c->n[i] <= l->p->types[i].max && rp_planner_cost(l->p, c) < l->below;
	     c->n[i]++)
		enumerate(l, c, i + 1);
	c->n[i] = 0;
}

struct priced {
	int64_t cost;
	size_t i;
};

static int by_cost(const void *a, const void *b)
{
	const struct priced *x = a, *y = b;

	if (x->cost != y->cost)
		return x->cost < y->cost ? -1 : 1;
	return x->i < y->i ? -1 : 1;
}

/* Tries the list from the cheapest on; the first that does becomes the best. */
static int try_list(struct rp_planner *p, const struct list *l, struct rp_plan_counts *best,
		    struct err *err)
{
	struct priced *order = malloc((l->count + 1) * sizeof(*order));
	int rc = 0;

	if (order == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (size_t i = 0; i < l->count; i++)
		order[i] = (struct priced){rp_planner_cost(p, &l->items[i]), i};
	qsort(order, l->count, sizeof(*order), by_cost);
	for (size_t i = 0; rc == 0 && i < l->count; i++) {
		rc = try(p, &l->items[order[i].i], err);
		if (rc == 1)
			*best = l->items[order[i].i];
		if (i % 16 == 0)
			show(p, i, l->count);
	}
	free(order);
	return rc < 0 ? rc : 0;
}

static int prove(struct rp_planner *p, struct rp_plan *plan, struct rp_plan_counts *best,
		 struct err *err)
{
	size_t work = PROVE_WORK / (p->pod_count * p->opt->seed_count);
	struct rp_plan_counts c = {0};
	struct list l = {.p = p, .below = rp_planner_cost(p, best)};
	int rc = 0;

	l.cap = p->opt->prove_max < work ? p->opt->prove_max : work;
	l.items = malloc((l.cap + 1) * sizeof(*l.items));
	if (l.items == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (l.below <= plan->bound_nano)
		plan->proved = true;
	else
		enumerate(&l, &c, 0);
	if (!l.too_many) {
		rc = try_list(p, &l, best, err);
		plan->proved = rc == 0;
	}
	free(l.items);
	return rc;
}

/* ---- */

static int fill_curve(struct rp_planner *p, const struct rp_plan_counts *best, struct rp_plan *plan,
		      struct err *err)
{
	struct rp_plan_counts list[RP_PLAN_CURVE + 1];
	struct rp_plan_point points[RP_PLAN_CURVE + 1];
	int does[RP_PLAN_CURVE + 1], rc;

	for (int k = 0; k < RP_PLAN_CURVE; k++)
		for (size_t i = 0; i < RP_NODE_TYPES_MAX; i++)
			list[k].n[i] = (best->n[i] * (60 + 5 * k) + 99) / 100;
	list[RP_PLAN_CURVE] = *best;
	rc = rp_planner_try_all(p, list, RP_PLAN_CURVE + 1, does, points, err);
	if (rc < 0)
		return rc;
	for (int k = 0; k < RP_PLAN_CURVE; k++) {
		plan->curve[k] = points[k];
		plan->curve[k].percent = 60 + 5 * k;
	}
	plan->at = points[RP_PLAN_CURVE];
	plan->at.percent = 100;
	return 0;
}

/* Says how far all nodes to be had would come. */
static int none_does(struct rp_planner *p, struct err *err)
{
	struct rp_plan_counts c = evenly(p, (1U << p->type_count) - 1, (int64_t)p->pod_count);
	struct rp_plan_point at;
	char misfits[360];
	int rc = rp_planner_try(p, &c, &at, err);

	if (rc >= 0)
		rc = rp_planner_misfits(p, misfits, sizeof(misfits), err);
	if (rc < 0)
		return rc;
	return err_set(err, ERR_NOT_FOUND,
		       "no cluster of these node types does: %" PRId64
		       " nodes of them place %d.%02d %% of %zu pods%s%s",
		       at.nodes, (int)(at.placed_centi / 100), (int)(at.placed_centi % 100),
		       p->pod_count, misfits[0] != '\0' ? "; on no type fit: " : "", misfits);
}

/* Search from nothing. */
static int search(struct rp_planner *p, struct rp_plan_counts *best, struct err *err)
{
	bool found = false;
	int rc = start(p, best, &found, err);

	if (rc == 0 && !found)
		return none_does(p, err);
	if (rc == 0)
		rc = descend(p, best, 1, 0, err);
	return rc == 0 ? shrink_all(p, best, 0, FINE, err) : rc;
}

/* The plan for a sample, made as large as the whole needs it. 1; 0: it cannot. */
static int enlarge(struct rp_planner *p, const struct rp_plan_counts *sample, size_t sample_pods,
		   struct rp_plan_counts *ret, struct err *err)
{
	for (int64_t percent = 94; percent <= 200; percent += 2) {
		struct rp_plan_counts c = {0};
		int rc;

		for (size_t i = 0; i < p->type_count; i++)
			c.n[i] = arith_min(p->types[i].max,
					   arith_mul_div_ceil(sample->n[i],
							      (int64_t)p->pod_count * percent,
							      (int64_t)sample_pods * 100));
		rc = rp_planner_enough(p, &c) ? try(p, &c, err) : 0;
		if (rc < 0)
			return rc;
		if (rc == 1) {
			*ret = c;
			return 1;
		}
	}
	return 0;
}

/* Search on a sample, then near its result with all pods. 1; 0: to be done from nothing. */
static int search_sample(struct rp_planner *p, struct rp_plan_counts *best, struct err *err)
{
	struct rp_plan_counts c = {0};
	struct rp_planner sample;
	struct err ignored = ERR_INIT;
	int rc = rp_planner_open(&sample, p->t, p->types, p->type_count, p->opt, SAMPLE, err);

	if (rc == 0) {
		rc = search(&sample, &c, &ignored);
		p->tried += sample.tried;
		rc = rc == 0               ? enlarge(p, &c, sample.pod_count, best, err)
		     : rc == ERR_NOT_FOUND ? 0
					   : err_set(err, rc, "%s", ignored.msg);
	}
	rp_planner_close(&sample);
	if (rc != 1)
		return rc;
	p->tried = 0;
	rc = shrink_all(p, best, 90, COARSE, err);
	if (rc == 0)
		rc = descend(p, best, 8, 90, err);
	if (rc == 0)
		rc = shrink_all(p, best, 98, FINE, err);
	return rc < 0 ? rc : 1;
}

int rp_plan_find(const struct rp_trace *t, const struct rp_node_type *types, size_t type_count,
		 const struct rp_plan_options *opt, struct rp_plan *ret, struct err *err)
{
	struct rp_plan plan = {0};
	struct rp_plan_counts best = {0};
	struct rp_planner p;
	int rc = rp_planner_open(&p, t, types, type_count, opt, 0, err);

	if (rc == 0) {
		plan.bound_nano = rp_planner_bound(&p);
		rc = p.pod_count > (size_t)2 * SAMPLE ? search_sample(&p, &best, err) : 0;
		if (rc == 0)
			rc = search(&p, &best, err);
		rc = rc < 0 ? rc : prove(&p, &plan, &best, err);
	}
	if (rc == 0)
		rc = fill_curve(&p, &best, &plan, err);
	if (rc == 0) {
		memcpy(plan.counts, best.n, sizeof(plan.counts));
		plan.pods = p.pod_count;
		plan.tried = p.tried;
		*ret = plan;
	}
	rp_planner_close(&p);
	return rc;
}

int rp_plan_try(const struct rp_trace *t, const struct rp_node_type *types, const int64_t *counts,
		size_t type_count, const struct rp_plan_options *opt, struct rp_plan_point *point,
		struct err *err)
{
	struct rp_plan_counts c = {0};
	struct rp_planner p;
	int rc = rp_planner_open(&p, t, types, type_count, opt, 0, err);

	memcpy(c.n, counts, type_count * sizeof(*counts));
	if (rc == 0)
		rc = rp_planner_try(&p, &c, point, err);
	rp_planner_close(&p);
	return rc;
}

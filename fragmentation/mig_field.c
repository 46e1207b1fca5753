#include "fragmentation/mig_field.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "fragmentation/mig_alike.h"

#define GPUS_LOG2                                                                                  \
	4 /* the GPU is one of 16; tables for 8 to 128 do about equally well on all of these */
#define GPUS (1 << GPUS_LOG2)
#define STAYS 8        /* followed for that long */
#define REST_ROUNDS 48 /* for layouts that no request leads to */
#define ONE_BITS 28    /* of a probability, and of a rate by the length of a step */
#define ONE (INT64_C(1) << ONE_BITS)
#define MASS_BITS 34
#define MEAN_BITS 16 /* of a mass that do not count in a mean */

/* Layouts that are equally good for a profile, and all that are worse. */
struct group {
	int64_t score; /* W_p */
	int64_t most;  /* probability that no other GPU is better */
	int64_t wins; /* that a request goes to a GPU in this group, which is as good as others of it */
	int64_t tail; /* expected W_p of the best other one where that is better; else 0 */
};

/* Layouts that are alike (mig_alike.h) are worth the same: a layout here is a class of them. */
struct solver {
	const struct fr_mig_field *in;
	struct fr_mig_alike alike;
	uint32_t count, live;  /* of all layouts; of those that requests lead to: the first */
	int64_t *cost;         /* of each layout */
	int64_t *h, *sum;      /* sum: of h over time */
	int64_t *mass, *mass2; /* 1 << MASS_BITS in all */
	int64_t *gain, *out;   /* a layout's change of h and rate of change, with ONE_BITS */
	int64_t *score;        /* for one profile: W_p */
	uint16_t *to;          /* and the layout after, or FR_MIG_NOWHERE */
	uint16_t *group;       /* and the group that it is in; of live layouts */
	uint16_t *order;       /* of each profile: live layouts that take it, by score */
	uint32_t fit[ST_MIG_PROFILES_MAX];
	int64_t asks[ST_MIG_PROFILES_MAX], leaves; /* with ONE_BITS */
	struct group *groups;
	uint32_t group_count;
	int64_t rate_all;
};

/* ---- where a request goes ---- */

/* The layouts that s leads to by an end (k = 0) or by one more of profile k - 1. */
static const uint16_t *leads(const struct solver *v, uint32_t s, int k, uint32_t *ret_n)
{
	const uint32_t *begin =
		&v->alike.begin[s * ((uint32_t)v->in->g->profile_count + 1) + (uint32_t)k];

	*ret_n = begin[1] - begin[0];
	return &v->alike.to[begin[0]];
}

static void rate_one(struct solver *v, int p, uint32_t s)
{
	uint32_t n;
	const uint16_t *next = leads(v, s, p + 1, &n);

	v->to[s] = n > 0 ? next[0] : FR_MIG_NOWHERE;
	for (uint32_t i = 1; i < n; i++)
		if (v->h[next[i]] > v->h[v->to[s]])
			v->to[s] = next[i];
	if (n > 0)
		v->score[s] = (v->in->reward[p] << FR_MIG_H_BITS) + v->h[v->to[s]] - v->h[s];
}

/* By score: Shell's, as they are nearly in order already. */
static void sort(const int64_t *score, uint16_t *v, uint32_t n)
{
	static const uint32_t gaps[] = {3548, 1577, 701, 301, 132, 57, 23, 10, 4, 1};

	for (size_t k = 0; k < sizeof(gaps) / sizeof(gaps[0]); k++)
		for (uint32_t gap = gaps[k], i = gap; i < n; i++) {
			uint16_t x = v[i];
			uint32_t j = i;

			for (; j >= gap && score[v[j - gap]] > score[x]; j -= gap)
				v[j] = v[j - gap];
			v[j] = x;
		}
}

/* x^1, x^2, x^4 ...: their product is x^(GPUS - 1). */
static int64_t powers(int64_t x, int64_t ret[GPUS_LOG2])
{
	int64_t product = ONE;

	for (int k = 0; k < GPUS_LOG2; k++) {
		ret[k] = x;
		product = product * x >> ONE_BITS;
		x = x * x >> ONE_BITS;
	}
	return product;
}

/* Adds the group above the last one; `mass` are the GPUs in it or worse. Of GPUS GPUs, each worse than the
 * group with probability a and not better with b, one that is in it wins with
 * (b^GPUS - a^GPUS) / (GPUS (b - a)), a product of means of powers. */
static void add_group(struct solver *v, int64_t score, int64_t mass, int64_t a[GPUS_LOG2])
{
	struct group *g = &v->groups[v->group_count++];
	int64_t b[GPUS_LOG2];

	g->score = score;
	g->most = powers(mass >> (MASS_BITS - ONE_BITS), b);
	g->wins = ONE;
	for (int k = 0; k < GPUS_LOG2; k++)
		g->wins = g->wins * (a[k] + b[k]) >> (ONE_BITS + 1);
	memcpy(a, b, sizeof(b));
}

/* Rates all live layouts for profile p and puts them into groups; the first is of those without room. */
static void offers_make(struct solver *v, int p)
{
	uint16_t *order = &v->order[(size_t)p * v->live];
	int64_t below[GPUS_LOG2] = {0}, mass = INT64_C(1) << MASS_BITS;

	memset(v->group, 0, v->live * sizeof(*v->group));
	for (uint32_t s = 0; s < v->live; s++)
		rate_one(v, p, s);
	sort(v->score, order, v->fit[p]);
	for (uint32_t i = 0; i < v->fit[p]; i++)
		mass -= v->mass[order[i]];
	v->group_count = 0;
	add_group(v, INT64_MIN, mass, below);
	for (uint32_t i = 0; i < v->fit[p]; i++) {
		mass += v->mass[order[i]];
		v->group[order[i]] = (uint16_t)v->group_count;
		if (i + 1 == v->fit[p] || v->score[order[i + 1]] > v->score[order[i]])
			add_group(v, v->score[order[i]], mass, below);
	}
	for (uint32_t k = v->group_count; k-- > 0;) {
		const struct group *up = &v->groups[k + 1];

		v->groups[k].tail =
			k + 1 == v->group_count
				? 0
				: up->tail +
					  ((up->most - v->groups[k].most) * up->score >> ONE_BITS);
	}
}

/* The best group that is not better than a score. */
static const struct group *group_of(const struct solver *v, int64_t score)
{
	const struct group *g = v->groups;

	for (uint32_t n = v->group_count; n > 1;) {
		uint32_t half = n / 2;

		g += g[half].score <= score ? half : 0;
		n -= half;
	}
	return g;
}

/* ---- one step ---- */

static void move(struct solver *v, uint32_t from, uint32_t to, int64_t rate)
{
	int64_t part = v->mass[from] * rate >> ONE_BITS;

	v->mass2[from] -= part;
	v->mass2[to] += part;
}

static void depart(struct solver *v, uint32_t s)
{
	uint32_t n;
	const uint16_t *next = leads(v, s, 0, &n);

	v->gain[s] = -(v->cost[s] << FR_MIG_H_BITS) * v->leaves;
	v->out[s] = n * v->leaves;
	for (uint32_t i = 0; i < n; i++) {
		v->gain[s] += (v->h[next[i]] - v->h[s]) * v->leaves;
		move(v, s, next[i], v->leaves);
	}
}

/* g: the best group that is not better than s. */
static void ask(struct solver *v, int p, uint32_t s, const struct group *g)
{
	int64_t rate;

	if (v->to[s] == FR_MIG_NOWHERE) {
		v->gain[s] += g->tail * v->asks[p];
		return;
	}
	v->gain[s] += ((g->most * v->score[s] >> ONE_BITS) + g->tail) * v->asks[p];
	rate = (g->score == v->score[s] ? g->wins : g->most) * v->asks[p] >> ONE_BITS;
	v->out[s] += rate;
	move(v, s, v->to[s], rate);
}

static void ask_live(struct solver *v, int p)
{
	offers_make(v, p);
	for (uint32_t s = 0; s < v->live; s++)
		ask(v, p, s, &v->groups[v->group[s]]);
}

static void step(struct solver *v)
{
	memcpy(v->mass2, v->mass, v->live * sizeof(*v->mass));
	for (uint32_t s = 0; s < v->live; s++)
		depart(v, s);
	for (int p = 0; p < v->in->g->profile_count; p++)
		if (v->asks[p] > 0)
			ask_live(v, p);
	for (uint32_t s = 0; s < v->live; s++) {
		v->h[s] += (v->gain[s] - v->gain[0]) >> ONE_BITS;
		v->mass[s] = v->mass2[s];
	}
}

/* The other layouts, which have no mass, on what was found: each h is set so that it would change like
 * that of the GPUs in the mean. */
static void step_rest(struct solver *v)
{
	int64_t mean = 0;

	for (uint32_t s = 0; s < v->count; s++)
		depart(v, s);
	for (int p = 0; p < v->in->g->profile_count; p++) {
		if (v->asks[p] == 0)
			continue;
		ask_live(v, p);
		for (uint32_t s = v->live; s < v->count; s++) {
			rate_one(v, p, s);
			ask(v, p, s,
			    v->to[s] != FR_MIG_NOWHERE ? group_of(v, v->score[s]) : v->groups);
		}
	}
	for (uint32_t s = 0; s < v->live; s++)
		mean += (v->mass[s] >> MEAN_BITS) *
			((v->gain[s] - v->gain[0]) >> (MASS_BITS - MEAN_BITS));
	for (uint32_t s = v->live; s < v->count; s++)
		v->h[s] += (v->gain[s] - v->gain[0] - mean) / (v->out[s] + v->leaves);
}

/* ---- all of it ---- */

static void lists_make(struct solver *v)
{
	for (int p = 0; p < v->in->g->profile_count; p++)
		for (uint32_t s = 0; s < v->live && v->in->rate[p] > 0; s++) {
			rate_one(v, p, s);
			if (v->to[s] != FR_MIG_NOWHERE)
				v->order[(size_t)p * v->live + v->fit[p]++] = (uint16_t)s;
		}
}

static void rates_make(struct solver *v)
{
	const struct st_mig_geometry *g = v->in->g;

	v->rate_all = arith_max(g->compute_total, g->units_total) * FR_MIG_RATE_ONE;
	for (int p = 0; p < g->profile_count; p++)
		v->rate_all += GPUS * v->in->rate[p];
	v->leaves = ONE * FR_MIG_RATE_ONE / v->rate_all;
	for (int p = 0; p < g->profile_count; p++)
		v->asks[p] = ONE * GPUS * v->in->rate[p] / v->rate_all;
}

static void solve(struct solver *v)
{
	int64_t rounds, half;

	lists_make(v);
	rates_make(v);
	rounds = STAYS * v->rate_all / FR_MIG_RATE_ONE;
	half = rounds / 2;
	v->mass[0] = INT64_C(1) << MASS_BITS;
	for (int64_t k = 0; k < rounds; k++) {
		step(v);
		for (uint32_t s = 0; s < v->live && k >= half; s++)
			v->sum[s] += v->h[s];
	}
	for (uint32_t s = 0; s < v->live; s++)
		v->h[s] = arith_floor_div(v->sum[s], arith_max(rounds - half, 1));
	for (int k = 0; k < REST_ROUNDS && v->live < v->count; k++)
		step_rest(v);
}

static int solve_alike(struct solver *v, int64_t *ret_h)
{
	size_t n = v->alike.count, live = v->alike.live;
	int64_t *words = calloc(n * 8, sizeof(*words));
	uint16_t *halves =
		calloc(n + live * (1 + (unsigned)v->in->g->profile_count), sizeof(*halves));
	int rc = ERR_NOMEM;

	v->groups = malloc((live + 1) * sizeof(*v->groups));
	if (words && halves && v->groups) {
		v->count = (uint32_t)n;
		v->live = (uint32_t)live;
		v->h = words;
		v->sum = words + n;
		v->mass = words + 2 * n;
		v->mass2 = words + 3 * n;
		v->gain = words + 4 * n;
		v->out = words + 5 * n;
		v->score = words + 6 * n;
		v->cost = words + 7 * n;
		v->to = halves;
		v->group = halves + n;
		v->order = halves + n + live;
		for (uint32_t s = 0; s < v->in->states->count; s++)
			v->cost[v->alike.of[s]] = v->in->cost[s];
		solve(v);
		for (uint32_t s = 0; s < v->in->states->count; s++)
			ret_h[s] = v->h[v->alike.of[s]];
		rc = 0;
	}
	free(words);
	free(halves);
	free(v->groups);
	return rc;
}

int fr_mig_field_solve(const struct fr_mig_field *in, int64_t *ret_h)
{
	struct solver v = {.in = in};
	int rc = fr_mig_alike_make(in->g, in->states, in->rate, in->cost, &v.alike);

	if (rc == 0)
		rc = solve_alike(&v, ret_h);
	fr_mig_alike_fini(&v.alike);
	return rc;
}

#include "fragmentation/mig_field.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"

#define GPUS_LOG2                                                                                  \
	4 /* the GPU is one of 16; tables for 8 to 128 do about equally well on all of these */
#define GPUS (1 << GPUS_LOG2)
#define STAYS 8        /* followed for that long */
#define REST_ROUNDS 48 /* for layouts that no request leads to */
#define ONE_BITS 28    /* of a probability, and of a rate by the length of a step */
#define ONE (INT64_C(1) << ONE_BITS)
#define MASS_BITS 32

/* Layouts that are equally good for a profile, and all that are worse. */
struct group {
	int64_t score; /* W_p */
	int64_t most;  /* probability that no other GPU is better */
	int64_t wins; /* that a request goes to a GPU in this group, which is as good as others of it */
	int64_t tail; /* expected W_p of the best other one where that is better; else 0 */
};

struct solver {
	const struct fr_mig_field *in;
	const uint64_t *placed;
	uint32_t count, live;  /* of all layouts; of those that requests lead to */
	uint16_t *list;        /* the live ones, the empty GPU first, and the others */
	int64_t *h, *sum;      /* sum: of h over time */
	int64_t *mass, *mass2; /* 1 << MASS_BITS in all */
	int64_t *gain, *out;   /* a state's change of h and rate of change, with ONE_BITS */
	int64_t *score;        /* for one profile: W_p */
	uint16_t *to;          /* and the layout after, or FR_MIG_NOWHERE */
	uint16_t *order;       /* of each profile: live layouts that take it, by score */
	uint32_t fit[ST_MIG_PROFILES_MAX];
	int64_t asks[ST_MIG_PROFILES_MAX], leaves; /* with ONE_BITS */
	struct group *groups;
	uint32_t group_count;
	int64_t rate_all;
};

/* ---- where a request goes ---- */

static void rate_one(struct solver *v, int p, uint32_t s)
{
	const struct st_mig_profile *q = &v->in->g->profiles[p];
	const uint16_t *next = &v->in->states->next[(size_t)s * 64];

	v->to[s] = FR_MIG_NOWHERE;
	for (int b = q->bit; b < q->bit + q->start_count; b++)
		if (next[b] != FR_MIG_NOWHERE && !(v->placed[s] >> b & 1) &&
		    (v->to[s] == FR_MIG_NOWHERE || v->h[next[b]] > v->h[v->to[s]]))
			v->to[s] = next[b];
	if (v->to[s] != FR_MIG_NOWHERE)
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
	uint16_t *order = &v->order[(size_t)p * v->count];
	int64_t below[GPUS_LOG2] = {0}, mass = INT64_C(1) << MASS_BITS;

	for (uint32_t i = 0; i < v->live; i++)
		rate_one(v, p, v->list[i]);
	sort(v->score, order, v->fit[p]);
	for (uint32_t i = 0; i < v->fit[p]; i++)
		mass -= v->mass[order[i]];
	v->group_count = 0;
	add_group(v, INT64_MIN, mass, below);
	for (uint32_t i = 0; i < v->fit[p]; i++) {
		mass += v->mass[order[i]];
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
	const uint16_t *next = &v->in->states->next[(size_t)s * 64];

	v->gain[s] = -(v->in->cost[s] << FR_MIG_H_BITS) * v->leaves;
	v->out[s] = 0;
	for (uint64_t left = v->placed[s]; left != 0; left &= left - 1) {
		uint32_t t = next[__builtin_ctzll(left)];

		v->gain[s] += (v->h[t] - v->h[s]) * v->leaves;
		v->out[s] += v->leaves;
		move(v, s, t, v->leaves);
	}
}

static void ask(struct solver *v, int p, uint32_t s)
{
	const struct group *g = v->groups;
	int64_t rate;

	if (v->to[s] == FR_MIG_NOWHERE) {
		v->gain[s] += g->tail * v->asks[p];
		return;
	}
	g = group_of(v, v->score[s]);
	v->gain[s] += ((g->most * v->score[s] >> ONE_BITS) + g->tail) * v->asks[p];
	rate = (g->score == v->score[s] ? g->wins : g->most) * v->asks[p] >> ONE_BITS;
	v->out[s] += rate;
	move(v, s, v->to[s], rate);
}

static void step(struct solver *v)
{
	memcpy(v->mass2, v->mass, v->count * sizeof(*v->mass));
	for (uint32_t i = 0; i < v->live; i++)
		depart(v, v->list[i]);
	for (int p = 0; p < v->in->g->profile_count; p++) {
		if (v->asks[p] == 0)
			continue;
		offers_make(v, p);
		for (uint32_t i = 0; i < v->live; i++)
			ask(v, p, v->list[i]);
	}
	for (uint32_t i = 0; i < v->live; i++) {
		uint32_t s = v->list[i];

		v->h[s] += (v->gain[s] - v->gain[0]) >> ONE_BITS;
		v->mass[s] = v->mass2[s];
	}
}

/* The other layouts, which have no mass, on what was found: each h is set so that it would change like
 * that of the GPUs in the mean. */
static void step_rest(struct solver *v)
{
	int64_t mean = 0;

	for (uint32_t i = 0; i < v->count; i++)
		depart(v, v->list[i]);
	for (int p = 0; p < v->in->g->profile_count; p++) {
		if (v->asks[p] == 0)
			continue;
		offers_make(v, p);
		for (uint32_t i = v->live; i < v->count; i++)
			rate_one(v, p, v->list[i]);
		for (uint32_t i = 0; i < v->count; i++)
			ask(v, p, v->list[i]);
	}
	for (uint32_t i = 0; i < v->live; i++)
		mean += (v->mass[v->list[i]] >> (MASS_BITS - ONE_BITS / 2)) *
			((v->gain[v->list[i]] - v->gain[0]) >> ONE_BITS / 2);
	for (uint32_t i = v->live; i < v->count; i++) {
		uint32_t s = v->list[i];

		v->h[s] += (v->gain[s] - v->gain[0] - mean) / (v->out[s] + v->leaves);
	}
}

/* ---- all of it ---- */

static bool is_live(const struct solver *v, uint64_t placed)
{
	const struct st_mig_geometry *g = v->in->g;

	for (int p = 0; p < g->profile_count; p++) {
		uint64_t mask = ((UINT64_C(1) << g->profiles[p].start_count) - 1)
				<< g->profiles[p].bit;

		if (v->in->rate[p] == 0 && (placed & mask) != 0)
			return false;
	}
	return true;
}

static void lists_make(struct solver *v)
{
	uint32_t rest;

	for (uint32_t s = 0; s < v->count; s++)
		if (is_live(v, v->placed[s]))
			v->list[v->live++] = (uint16_t)s;
	rest = v->live;
	for (uint32_t s = 0; s < v->count; s++)
		if (!is_live(v, v->placed[s]))
			v->list[rest++] = (uint16_t)s;
	for (int p = 0; p < v->in->g->profile_count; p++)
		for (uint32_t i = 0; i < v->live && v->in->rate[p] > 0; i++) {
			rate_one(v, p, v->list[i]);
			if (v->to[v->list[i]] != FR_MIG_NOWHERE)
				v->order[(size_t)p * v->count + v->fit[p]++] = v->list[i];
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
		for (uint32_t s = 0; s < v->count && k >= half; s++)
			v->sum[s] += v->h[s];
	}
	for (uint32_t s = 0; s < v->count; s++)
		v->h[s] = arith_floor_div(v->sum[s], arith_max(rounds - half, 1));
	for (int k = 0; k < REST_ROUNDS && v->live < v->count; k++)
		step_rest(v);
}

int fr_mig_field_solve(const struct fr_mig_field *in, int64_t *ret_h)
{
	uint32_t n = in->states->count;
	struct solver v = {.in = in, .placed = in->states->placed, .count = n, .h = ret_h};
	int64_t *words = calloc((size_t)n * 6, sizeof(*words));
	uint16_t *halves =
		calloc((size_t)n * (2 + (unsigned)in->g->profile_count), sizeof(*halves));
	int rc = ERR_NOMEM;

	v.groups = malloc(((size_t)n + 1) * sizeof(*v.groups));
	if (words && halves && v.groups) {
		v.sum = words;
		v.mass = words + n;
		v.mass2 = words + 2 * (size_t)n;
		v.gain = words + 3 * (size_t)n;
		v.out = words + 4 * (size_t)n;
		v.score = words + 5 * (size_t)n;
		v.list = halves;
		v.to = halves + n;
		v.order = halves + 2 * (size_t)n;
		memset(ret_h, 0, n * sizeof(*ret_h));
		solve(&v);
		rc = 0;
	}
	free(words);
	free(halves);
	free(v.groups);
	return rc;
}

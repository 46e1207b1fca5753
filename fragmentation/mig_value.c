#include "fragmentation/mig_value.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "fragmentation/mig_states.h"

#define RATE_ONE (1 << 20) /* an instance ends at this rate */
#define H_BITS 12          /* fraction bits of H */
#define ROUNDS 128         /* the slowest part of the error has shrunk to some 10^-3 by then */

struct fr_mig_value {
	uint32_t count;
	uint64_t *placed; /* ascending */
	int32_t *n;
};

/* While the table is made. */
struct maker {
	const struct st_mig_geometry *g;
	uint64_t open;
	struct fr_mig_states states;
	int64_t *h, *h2;
	int64_t rate[ST_MIG_PROFILES_MAX];   /* arrivals, RATE_ONE = one a mean time of stay */
	int64_t reward[ST_MIG_PROFILES_MAX]; /* in H's fixed point */
	int64_t rate_all;
};

/* ---- value iteration ---- */

/* The whole part of the square root, of v below 2^24. */
static int64_t root(int64_t v)
{
	int64_t r = 0;

	for (int64_t b = 1 << 11; b > 0; b >>= 1)
		r += (r + b) * (r + b) <= v ? b : 0;
	return r;
}

/* milli * sqrt(8 milli / 1000) */
static int64_t reward_of(int64_t milli)
{
	return milli * root(8 * milli * 1000) / 1000;
}

static int64_t profile_milli(const struct st_mig_geometry *g, int p)
{
	return g->profiles[p].units * INT64_C(1000) / g->units_total;
}

static bool rates(struct maker *m, const int64_t *weight)
{
	int64_t demand = 0, sum = 0;

	for (int p = 0; p < m->g->profile_count; p++)
		sum += weight[p];
	for (int p = 0; p < m->g->profile_count; p++) {
		int64_t milli = profile_milli(m->g, p), w;

		w = sum > 0 ? arith_mul_div_floor(weight[p], RATE_ONE, sum) : 0;
		m->rate[p] = w;
		demand += w * milli;
		m->reward[p] = reward_of(milli) << H_BITS;
	}
	if (demand == 0)
		return false;
	for (int p = 0; p < m->g->profile_count; p++) {
		m->rate[p] = arith_mul_div_floor(m->rate[p], INT64_C(1500) * RATE_ONE, demand);
		m->rate_all += m->rate[p];
	}
	m->rate_all += arith_max(m->g->compute_total, m->g->units_total) * RATE_ONE;
	return true;
}

/* One step from state s: what comes, what ends, else all stays. */
static int64_t step(const struct maker *m, uint32_t s)
{
	const uint16_t *next = &m->states.next[(size_t)s * 64];
	int64_t sum = 0, rest = m->rate_all;

	for (int p = 0; p < m->g->profile_count; p++) {
		const struct st_mig_profile *q = &m->g->profiles[p];
		int64_t best = INT64_MIN;

		for (int b = q->bit; b < q->bit + q->start_count; b++) {
			if (next[b] == FR_MIG_NOWHERE)
				continue;
			if (m->states.placed[s] >> b & 1) {
				sum += m->h[next[b]] * RATE_ONE;
				rest -= RATE_ONE;
			} else if (m->h[next[b]] > best) {
				best = m->h[next[b]];
			}
		}
		if (best == INT64_MIN || m->rate[p] == 0)
			continue;
		sum += m->rate[p] * (m->reward[p] + best);
		rest -= m->rate[p];
	}
	return arith_floor_div(sum + rest * m->h[s], m->rate_all);
}

static void iterate(struct maker *m)
{
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t s = 0; s < m->states.count; s++)
			m->h2[s] = step(m, s);
		/* State 0, the first in order, is the empty GPU. */
		for (uint32_t s = 0; s < m->states.count; s++)
			m->h[s] = m->h2[s] - m->h2[0];
	}
}

/* ---- the table ---- */

static void fill(const struct maker *m, struct fr_mig_value *v)
{
	int all = st_mig_units_free_in(m->g, m->open, 0), most = 0;
	int64_t full = INT64_MIN;

	for (uint32_t s = 0; s < m->states.count; s++) {
		int used = all - st_mig_units_free_in(m->g, m->open, m->states.placed[s]);

		if (used > most) {
			most = used;
			full = INT64_MIN;
		}
		if (used == most && m->h[s] > full)
			full = m->h[s];
	}
	for (uint32_t s = 0; s < m->states.count; s++) {
		int used = all - st_mig_units_free_in(m->g, m->open, m->states.placed[s]);
		int64_t slope = most > 0 ? arith_floor_div(-full * used, most) : 0;

		v->n[s] = (int32_t)((-m->h[s] - slope) >> H_BITS);
	}
}

static int make(struct maker *m, struct fr_mig_value *v)
{
	uint32_t count = m->states.count;

	if (count == 0)
		return 0;
	m->h = calloc(count, sizeof(*m->h));
	m->h2 = calloc(count, sizeof(*m->h2));
	v->n = calloc(count, sizeof(*v->n));
	if (!m->h || !m->h2 || !v->n)
		return ERR_NOMEM;
	iterate(m);
	fill(m, v);
	v->placed = m->states.placed;
	v->count = count;
	m->states.placed = NULL;
	return 0;
}

struct fr_mig_value *fr_mig_value_new(const struct st_mig_geometry *g, uint64_t open,
				      const int64_t *weight)
{
	struct fr_mig_value *v = calloc(1, sizeof(*v));
	struct maker m = {.g = g, .open = open};
	int rc = v ? 0 : ERR_NOMEM;

	if (v && rates(&m, weight)) {
		rc = fr_mig_states_make(g, open, &m.states);
		if (rc == 0)
			rc = make(&m, v);
	}
	fr_mig_states_fini(&m.states);
	free(m.h);
	free(m.h2);
	if (rc == 0)
		return v;
	fr_mig_value_free(v);
	return NULL;
}

void fr_mig_value_free(struct fr_mig_value *v)
{
	if (!v)
		return;
	free(v->placed);
	free(v->n);
	free(v);
}

uint32_t fr_mig_value_states(const struct fr_mig_value *v)
{
	return v->count;
}

int32_t fr_mig_value_at(const struct fr_mig_value *v, uint64_t placed)
{
	uint32_t i = fr_mig_state_find(v->placed, v->count, placed);

	return i != FR_MIG_NOWHERE ? v->n[i] : 0;
}

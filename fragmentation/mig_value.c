#include "fragmentation/mig_value.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"

#define RATE_ONE (1 << 20) /* an instance ends at this rate */
#define H_BITS 12          /* fraction bits of H */
#define ROUNDS 128         /* the slowest part of the error has shrunk to some 10^-3 by then */
#define NOWHERE UINT16_MAX

struct fr_mig_value {
	uint32_t count;
	uint64_t *placed; /* ascending */
	int32_t *n;
};

/* While the table is made. */
struct maker {
	const struct st_mig_geometry *g;
	uint64_t open;
	uint64_t *placed;
	uint32_t count, cap;
	int bits;
	uint16_t *
		next; /* [state * 64 + bit]: the state with that bit flipped, NOWHERE = not legal */
	int64_t *h, *h2;
	int64_t rate[ST_MIG_PROFILES_MAX];   /* arrivals, RATE_ONE = one a mean time of stay */
	int64_t reward[ST_MIG_PROFILES_MAX]; /* in H's fixed point */
	int64_t rate_all;
};

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint32_t find(const uint64_t *placed, uint32_t count, uint64_t want)
{
	uint32_t lo = 0;

	while (count > 1) {
		uint32_t half = count / 2;

		lo += placed[lo + half] <= want ? half : 0;
		count -= half;
	}
	return lo;
}

/* ---- states ---- */

/* All states reached by adding instances of ever higher bits: each once. False: too many or no
 * memory (*ret_nomem). */
static bool walk(struct maker *m, uint64_t placed, int from_bit, bool *ret_nomem)
{
	if (m->count == m->cap) {
		uint32_t cap = m->cap ? m->cap * 2 : 256;
		uint64_t *p;

		if (m->count == FR_MIG_STATES_MAX)
			return false;
		p = realloc(m->placed, cap * sizeof(*p));
		*ret_nomem = p == NULL;
		if (p == NULL)
			return false;
		m->placed = p;
		m->cap = cap;
	}
	m->placed[m->count++] = placed;
	for (int p = 0; p < m->g->profile_count; p++) {
		const struct st_mig_profile *q = &m->g->profiles[p];

		for (int i = 0; i < q->start_count; i++)
			if (q->bit + i >= from_bit &&
			    st_mig_can_place_in(m->g, m->open, placed, p, q->starts[i]) &&
			    !walk(m, placed | UINT64_C(1) << (q->bit + i), q->bit + i + 1,
				  ret_nomem))
				return false;
	}
	return true;
}

static void link_states(struct maker *m)
{
	for (uint32_t s = 0; s < m->count; s++)
		for (int b = 0; b < m->bits; b++) {
			uint64_t other = m->placed[s] ^ UINT64_C(1) << b;
			uint32_t i = find(m->placed, m->count, other);

			m->next[(size_t)s * 64 + (unsigned)b] =
				m->placed[i] == other ? (uint16_t)i : NOWHERE;
		}
}

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
	const uint16_t *next = &m->next[(size_t)s * 64];
	int64_t sum = 0, rest = m->rate_all;

	for (int p = 0; p < m->g->profile_count; p++) {
		const struct st_mig_profile *q = &m->g->profiles[p];
		int64_t best = INT64_MIN;

		for (int b = q->bit; b < q->bit + q->start_count; b++) {
			if (next[b] == NOWHERE)
				continue;
			if (m->placed[s] >> b & 1) {
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
		for (uint32_t s = 0; s < m->count; s++)
			m->h2[s] = step(m, s);
		/* State 0, the first in order, is the empty GPU. */
		for (uint32_t s = 0; s < m->count; s++)
			m->h[s] = m->h2[s] - m->h2[0];
	}
}

/* ---- the table ---- */

static void fill(const struct maker *m, struct fr_mig_value *v)
{
	int all = st_mig_units_free_in(m->g, m->open, 0), most = 0;
	int64_t full = INT64_MIN;

	for (uint32_t s = 0; s < m->count; s++) {
		int used = all - st_mig_units_free_in(m->g, m->open, m->placed[s]);

		if (used > most) {
			most = used;
			full = INT64_MIN;
		}
		if (used == most && m->h[s] > full)
			full = m->h[s];
	}
	for (uint32_t s = 0; s < m->count; s++) {
		int used = all - st_mig_units_free_in(m->g, m->open, m->placed[s]);
		int64_t slope = most > 0 ? arith_floor_div(-full * used, most) : 0;

		v->n[s] = (int32_t)((-m->h[s] - slope) >> H_BITS);
	}
}

static bool make(struct maker *m, struct fr_mig_value *v)
{
	m->next = malloc(((size_t)m->count * 64) * sizeof(*m->next));
	m->h = calloc(m->count, sizeof(*m->h));
	m->h2 = calloc(m->count, sizeof(*m->h2));
	v->n = calloc(m->count, sizeof(*v->n));
	if (!m->next || !m->h || !m->h2 || !v->n)
		return false;
	qsort(m->placed, m->count, sizeof(*m->placed), cmp_u64);
	link_states(m);
	iterate(m);
	fill(m, v);
	v->placed = m->placed;
	v->count = m->count;
	m->placed = NULL;
	return true;
}

struct fr_mig_value *fr_mig_value_new(const struct st_mig_geometry *g, uint64_t open,
				      const int64_t *weight)
{
	struct fr_mig_value *v = calloc(1, sizeof(*v));
	struct maker m = {.g = g, .open = open};
	bool nomem = v == NULL;

	for (int p = 0; p < g->profile_count; p++)
		m.bits += g->profiles[p].start_count;
	if (!nomem && rates(&m, weight) && walk(&m, 0, 0, &nomem))
		nomem = !make(&m, v);
	free(m.placed);
	free(m.next);
	free(m.h);
	free(m.h2);
	if (!nomem)
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
	uint32_t i;

	if (v->count == 0)
		return 0;
	i = find(v->placed, v->count, placed);
	return v->placed[i] == placed ? v->n[i] : 0;
}

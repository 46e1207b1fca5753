#include "fragmentation/mig_value.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "fragmentation/mig_field.h"
#include "fragmentation/mig_states.h"

#define LOAD 1000  /* milli of a GPU that are asked for */
#define STRANDED 8 /* what a stranded milli costs a mean stay, in milli of reward */
#define SCALE_BITS                                                                                 \
	2 /* N in a quarter of what H counts: about the milli of a device that are lost */

struct fr_mig_value {
	uint32_t count;
	uint64_t *placed; /* ascending */
	int32_t *n;
};

/* While the table is made. */
struct maker {
	const struct st_mig_geometry *g;
	uint64_t open;
	const int64_t *weight;
	struct fr_mig_states states;
	struct fr_mig_field field;
	int64_t *h, *cost;
};

/* ---- what is asked for, and what layouts strand ---- */

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

static bool rates(struct maker *m)
{
	struct fr_mig_field *f = &m->field;
	int64_t demand = 0, sum = 0;

	for (int p = 0; p < m->g->profile_count; p++)
		sum += m->weight[p];
	for (int p = 0; p < m->g->profile_count; p++) {
		int64_t milli = profile_milli(m->g, p);

		f->rate[p] = sum > 0 ? arith_mul_div_floor(m->weight[p], FR_MIG_RATE_ONE, sum) : 0;
		f->reward[p] = reward_of(milli);
		demand += f->rate[p] * milli;
	}
	for (int p = 0; p < m->g->profile_count && demand > 0; p++)
		f->rate[p] =
			arith_mul_div_floor(f->rate[p], (int64_t)LOAD * FR_MIG_RATE_ONE, demand);
	return demand > 0;
}

/* Milli that are free and out of reach, in the mean over what is asked for: FGD's F. */
static int64_t stranded(const struct maker *m, uint64_t placed)
{
	int64_t left = st_mig_units_free_in(m->g, m->open, placed), sum = 0, rates = 0;

	for (int p = 0; p < m->g->profile_count; p++) {
		int64_t rate = m->field.rate[p];

		if (rate == 0)
			continue;
		sum += rate * (left - st_mig_max_more_in(m->g, m->open, placed, p) *
					      (int64_t)m->g->profiles[p].units);
		rates += rate;
	}
	return sum * 1000 / (arith_max(rates, 1) * m->g->units_total);
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

		v->n[s] = (int32_t)((-m->h[s] - slope) >> (FR_MIG_H_BITS + SCALE_BITS));
	}
}

static int make(struct maker *m, struct fr_mig_value *v)
{
	uint32_t count = m->states.count;
	int rc;

	if (count == 0)
		return 0;
	m->h = calloc(count, sizeof(*m->h));
	m->cost = calloc(count, sizeof(*m->cost));
	v->n = calloc(count, sizeof(*v->n));
	if (!m->h || !m->cost || !v->n)
		return ERR_NOMEM;
	for (uint32_t s = 0; s < count; s++)
		m->cost[s] = STRANDED * stranded(m, m->states.placed[s]);
	m->field.g = m->g;
	m->field.states = &m->states;
	m->field.cost = m->cost;
	rc = fr_mig_field_solve(&m->field, m->h);
	if (rc < 0)
		return rc;
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
	struct maker m = {.g = g, .open = open, .weight = weight};
	int rc = v ? 0 : ERR_NOMEM;

	if (v && rates(&m)) {
		rc = fr_mig_states_make(g, open, &m.states);
		if (rc == 0)
			rc = make(&m, v);
	}
	fr_mig_states_fini(&m.states);
	free(m.h);
	free(m.cost);
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

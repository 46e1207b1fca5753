#include "replay/mig_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one who may move instances at any time ---- */

enum { G1, G2, G3, G4, G7, SIZES };

static const struct {
	uint8_t slices, units, count, starts[7];
} plain[SIZES] = {{1, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
		  {2, 2, 3, {0, 2, 4}},
		  {3, 4, 2, {0, 4}},
		  {4, 4, 1, {0}},
		  {7, 8, 1, {0}}};

/* Which of the five the profile is; -1: none. */
static int size_of(const struct st_mig_geometry *g, int p)
{
	const struct st_mig_profile *q = &g->profiles[p];

	for (int k = 0; k < SIZES; k++)
		if (q->attrs == 0 && q->compute_slices == plain[k].slices &&
		    q->units == plain[k].units && q->start_count == plain[k].count &&
		    q->max_instances >= plain[k].count &&
		    memcmp(q->starts, plain[k].starts, plain[k].count) == 0)
			return k;
	return -1;
}

bool rp_mig_packs_known(const struct st_mig_geometry *g, const struct rp_mig_mix *mix)
{
	for (int p = 0; p < g->profile_count; p++)
		if (mix->weight[p] > 0 && size_of(g, p) < 0)
			return false;
	return g->compute_total == 7 && g->units_total == 8;
}

/* A GPU has a left half, units 0 to 3, for a 4g, a 3g, or 1g and 2g of 4 units; and a right half for a 3g,
 * or 1g and 2g of 3 units, of which one may be a 2g. What is in one half does not matter to the other
 * (compute slices: at most 4 and 3), and a 3g is better off in a right half, which is worth less. */
bool rp_mig_packs(const struct st_mig_geometry *g, const int64_t *count, int64_t gpus)
{
	int64_t n[SIZES] = {0}, left, right, threes_right;

	for (int p = 0; p < g->profile_count; p++)
		if (count[p] > 0)
			n[size_of(g, p)] += count[p];
	if (n[G7] > gpus)
		return false;
	right = gpus - n[G7];
	left = right - n[G4];
	threes_right = n[G3] < right ? n[G3] : right;
	right -= threes_right;
	left -= n[G3] - threes_right;
	return left >= 0 && right >= 0 && n[G2] <= 2 * left + right &&
	       2 * n[G2] + n[G1] <= 4 * left + 3 * right;
}

/* ---- the best on two GPUs ---- */

#define LAYOUTS_MAX 800
#define ROUNDS 2000
#define WIDTH 0.0002 /* of the gain, when it is proven well enough */

struct layout {
	uint64_t placed;
	double stranded;  /* units */
	int16_t next[64]; /* with that bit flipped; -1: not legal */
};

struct aim {
	double reward[ST_MIG_PROFILES_MAX]; /* of a request that is placed */
	double price;                       /* of a stranded unit, after each arrival */
	bool refusing;                      /* what fits may be refused */
	bool first_fit; /* the first start of the first GPU is taken, not the best */
};

struct mdp {
	const struct st_mig_geometry *g;
	const struct rp_mig_mix *mix;
	int count;
	struct layout *layouts;
	double *v, *v2; /* [a * count + b]; a <= b, the GPUs are alike, but for first fit */
	double rate[ST_MIG_PROFILES_MAX], rate_all;
};

static int layout_find(const struct mdp *m, uint64_t placed)
{
	for (int i = 0; i < m->count; i++)
		if (m->layouts[i].placed == placed)
			return i;
	return -1;
}

/* All layouts of the mix's profiles, each reached by bits that ascend. False: too many. */
static bool walk(struct mdp *m, uint64_t placed, int from_bit)
{
	if (m->count == LAYOUTS_MAX)
		return false;
	m->layouts[m->count++].placed = placed;
	for (int p = 0; p < m->g->profile_count; p++) {
		const struct st_mig_profile *q = &m->g->profiles[p];

		for (int i = 0; m->mix->weight[p] > 0 && i < q->start_count; i++)
			if (q->bit + i >= from_bit &&
			    st_mig_can_place(m->g, placed, p, q->starts[i]) &&
			    !walk(m, placed | UINT64_C(1) << (q->bit + i), q->bit + i + 1))
				return false;
	}
	return true;
}

static void link_layouts(struct mdp *m)
{
	for (int i = 0; i < m->count; i++) {
		struct layout *l = &m->layouts[i];

		l->stranded = rp_mig_stranded(m->g, m->mix, l->placed);
		for (int b = 0; b < 64; b++)
			l->next[b] = (int16_t)layout_find(m, l->placed ^ UINT64_C(1) << b);
	}
}

static double value(const struct mdp *m, const struct aim *aim, int a, int b)
{
	return a < b || aim->first_fit ? m->v[a * m->count + b] : m->v[b * m->count + a];
}

/* The value of the pair after an arrival. */
static double arrived(const struct mdp *m, const struct aim *aim, int a, int b)
{
	return value(m, aim, a, b) - aim->price * (m->layouts[a].stranded + m->layouts[b].stranded);
}

/* The best value after placing the profile on one of the two; -INFINITY: no room. */
static double place(const struct mdp *m, const struct aim *aim, int a, int b,
		    const struct st_mig_profile *q)
{
	double best = -INFINITY;

	for (int turn = 0; turn < 2; turn++) {
		const struct layout *s = &m->layouts[turn ? b : a];

		for (int k = q->bit; k < q->bit + q->start_count; k++) {
			double v;

			if ((s->placed >> k & 1) != 0 || s->next[k] < 0)
				continue;
			v = arrived(m, aim, turn ? a : s->next[k], turn ? s->next[k] : b);
			if (aim->first_fit)
				return v;
			best = v > best ? v : best;
		}
	}
	return best;
}

/* One step of the uniformized process from a pair. */
static double step(const struct mdp *m, const struct aim *aim, int a, int b)
{
	double stays = value(m, aim, a, b), refused = arrived(m, aim, a, b);
	double rest = m->rate_all, sum = 0;

	for (int turn = 0; turn < 2; turn++) {
		const struct layout *s = &m->layouts[turn ? b : a];

		for (uint64_t left = s->placed; left != 0; left &= left - 1) {
			int next = s->next[__builtin_ctzll(left)];

			sum += value(m, aim, turn ? a : next, turn ? next : b);
			rest -= 1;
		}
	}
	for (int p = 0; p < m->g->profile_count; p++) {
		double v;

		if (m->rate[p] <= 0)
			continue;
		v = place(m, aim, a, b, &m->g->profiles[p]) + aim->reward[p];
		if (isinf(v) || (aim->refusing && v < refused))
			v = refused;
		sum += m->rate[p] * v;
		rest -= m->rate[p];
	}
	return (sum + rest * stays) / m->rate_all;
}

/* The most reward a unit of time. For any values the least and the greatest growth of one round enclose it
 * (Odoni 1969), so that *ret is an upper bound and *ret_width says how near. */
static void solve(struct mdp *m, const struct aim *aim, double *ret, double *ret_width)
{
	size_t size = (size_t)m->count * (size_t)m->count;

	memset(m->v, 0, size * sizeof(*m->v));
	for (int round = 0; round < ROUNDS; round++) {
		double low = INFINITY, high = -INFINITY, zero;
		double *t;

		for (int a = 0; a < m->count; a++)
			for (int b = aim->first_fit ? 0 : a; b < m->count; b++) {
				double v = step(m, aim, a, b), d = v - value(m, aim, a, b);

				m->v2[a * m->count + b] = v;
				low = d < low ? d : low;
				high = d > high ? d : high;
			}
		zero = m->v2[0];
		for (size_t i = 0; i < size; i++)
			m->v2[i] -= zero;
		t = m->v;
		m->v = m->v2;
		m->v2 = t;
		*ret = high * m->rate_all;
		*ret_width = (high - low) * m->rate_all;
		if (*ret_width <= WIDTH * fabs(*ret))
			return;
	}
}

static void solve_placed(struct mdp *m, struct rp_mig_best *ret)
{
	double *const out[4] = {&ret->workloads, &ret->units, &ret->refusing_workloads,
				&ret->refusing_units};

	ret->width = 0;
	for (int k = 0; k < 4; k++) {
		struct aim aim = {.refusing = k >= 2};
		double all = 0, width;

		for (int p = 0; p < m->g->profile_count; p++) {
			aim.reward[p] = k % 2 ? m->g->profiles[p].units : 1;
			all += m->rate[p] * aim.reward[p];
		}
		solve(m, &aim, out[k], &width);
		*out[k] *= 100 / all;
		ret->width = fmax(ret->width, width * 100 / all);
	}
}

static void solve_stranded(struct mdp *m, struct rp_mig_best *ret)
{
	double *const out[2] = {&ret->stranded, &ret->stranded_first_fit};
	double arrivals = 0;

	for (int p = 0; p < m->g->profile_count; p++)
		arrivals += m->rate[p];
	ret->stranded_width = 0;
	for (int k = 0; k < 2; k++) {
		struct aim aim = {.price = 1 / arrivals / 2, .first_fit = k == 1};
		double width;

		solve(m, &aim, out[k], &width);
		*out[k] = -*out[k];
		ret->stranded_width = fmax(ret->stranded_width, width);
	}
}

int rp_mig_best_of_two(const struct st_mig_geometry *g, const struct rp_mig_mix *mix,
		       int64_t load_permille, struct rp_mig_best *ret, struct err *err)
{
	struct mdp m = {.g = g, .mix = mix, .layouts = calloc(LAYOUTS_MAX, sizeof(*m.layouts))};
	double units = 0;
	int rc = 0;

	for (int p = 0; p < g->profile_count; p++)
		units += (double)mix->weight[p] * g->profiles[p].units;
	for (int p = 0; p < g->profile_count; p++) {
		m.rate[p] = (double)load_permille / 1000 * 2 * g->units_total / units *
			    (double)mix->weight[p];
		m.rate_all += m.rate[p];
	}
	m.rate_all += 2.0 * (g->units_total > g->compute_total ? g->units_total : g->compute_total);
	if (m.layouts == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (!walk(&m, 0, 0))
		rc = err_set(err, ERR_TOO_LARGE, "more than %d layouts of a GPU", LAYOUTS_MAX);
	if (rc == 0) {
		size_t size = (size_t)m.count * (size_t)m.count;

		m.v = calloc(size, sizeof(*m.v));
		m.v2 = calloc(size, sizeof(*m.v2));
		if (m.v == NULL || m.v2 == NULL)
			rc = err_set(err, ERR_NOMEM, "out of memory");
	}
	if (rc == 0) {
		link_layouts(&m);
		solve_placed(&m, ret);
		solve_stranded(&m, ret);
	}
	free(m.layouts);
	free(m.v);
	free(m.v2);
	return rc;
}

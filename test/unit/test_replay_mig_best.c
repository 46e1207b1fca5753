/* The best of two GPUs against policy iteration: on a GPU of three units, whose pairs of layouts are few
 * enough for exact linear equations. Written without the layouts, steps and bounds of mig_bound.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "replay/mig.h"
#include "replay/mig_bound.h"

#define PROFILES 2
#define PAIRS_MAX 150

enum { WORKLOADS, UNITS, STRANDED };

static struct st_mig_geometry geometry = {.model = "small",
					  .compute_total = 3,
					  .units_total = 3,
					  .profile_count = PROFILES,
					  .profiles = {{.name = "1g.1gb",
							.compute_slices = 1,
							.units = 1,
							.max_instances = 3,
							.start_count = 3,
							.starts = {0, 1, 2}},
						       {.name = "2g.2gb",
							.compute_slices = 2,
							.units = 2,
							.max_instances = 1,
							.start_count = 2,
							.starts = {0, 1}}}};

struct game {
	struct rp_mig_mix mix;
	double rate[PROFILES], rate_all;
	int aim;
	int count;
	uint64_t pair[PAIRS_MAX][2];
	int chosen[PAIRS_MAX][PROFILES]; /* the pair after a request; the same one: refused */
	double h[PAIRS_MAX], gain;       /* cost a unit of time */
};

static int find(struct game *g, uint64_t a, uint64_t b)
{
	int i = 0;

	while (i < g->count && (g->pair[i][0] != a || g->pair[i][1] != b))
		i++;
	if (i == g->count) {
		cr_assert_lt(i, PAIRS_MAX);
		g->pair[i][0] = a;
		g->pair[i][1] = b;
		g->count++;
	}
	return i;
}

/* The n-th pair, from 0, that a request may lead to, in the order of first fit; -1. */
static int option(struct game *g, int from, int p, int n)
{
	const struct st_mig_profile *q = &geometry.profiles[p];

	for (int i = 0; i < 2; i++)
		for (int s = 0; s < q->start_count; s++) {
			uint64_t to[2] = {g->pair[from][0], g->pair[from][1]};

			if (!st_mig_can_place(&geometry, to[i], p, q->starts[s]) || n-- > 0)
				continue;
			to[i] |= st_mig_bit(&geometry, p, q->starts[s]);
			return find(g, to[0], to[1]);
		}
	return -1;
}

/* All pairs, first fit chosen in each. */
static void make(struct game *g, int64_t ones, int64_t twos, double load)
{
	double units = (double)(ones + 2 * twos);

	memset(g, 0, sizeof(*g));
	g->mix.weight[0] = ones;
	g->mix.weight[1] = twos;
	g->mix.total = ones + twos;
	g->rate[0] = load * 6 / units * (double)ones;
	g->rate[1] = load * 6 / units * (double)twos;
	g->rate_all = g->rate[0] + g->rate[1];
	find(g, 0, 0);
	for (int i = 0; i < g->count; i++)
		for (int p = 0; p < PROFILES; p++) {
			int first = option(g, i, p, 0);

			g->chosen[i][p] = first >= 0 ? first : i;
			for (int n = 1; option(g, i, p, n) >= 0;)
				n++;
		}
}

/* Units of one of the two GPUs that are free, less those that the profile could still take. */
static double stranded(const struct game *g, int pair)
{
	double sum = 0;

	for (int i = 0; i < 2; i++)
		for (int p = 0; p < PROFILES; p++) {
			uint64_t placed = g->pair[pair][i];
			int left = st_mig_units_free(&geometry, placed);

			sum += (double)g->mix.weight[p] / (double)g->mix.total *
			       (left -
				geometry.profiles[p].units * st_mig_max_more(&geometry, placed, p));
		}
	return sum / 2;
}

/* What a request costs that leads there; refused: it stays. */
static double cost(const struct game *g, int p, int to, bool refused)
{
	if (g->aim == STRANDED)
		return stranded(g, to) / g->rate_all;
	return refused ? g->aim == UNITS ? geometry.profiles[p].units : 1 : 0;
}

/* Gain and relative values of what is chosen: cost + rates * (h of the next - h) = gain, h[0] = 0. The
 * unknown in place of h[0] is the gain. */
static void evaluate(struct game *g)
{
	static double m[PAIRS_MAX][PAIRS_MAX + 1];
	int n = g->count;

	memset(m, 0, sizeof(m));
	for (int s = 0; s < n; s++) {
		int next[16], count = 0;
		double rates[16];

		for (int p = 0; p < PROFILES; p++) {
			next[count] = g->chosen[s][p];
			rates[count++] = g->rate[p];
			m[s][n] -= g->rate[p] * cost(g, p, g->chosen[s][p], g->chosen[s][p] == s);
		}
		for (int i = 0; i < 2; i++)
			for (uint64_t left = g->pair[s][i]; left != 0; left &= left - 1) {
				uint64_t to[2] = {g->pair[s][0], g->pair[s][1]};

				to[i] &= ~(left & -left);
				next[count] = find(g, to[0], to[1]);
				rates[count++] = 1;
			}
		for (int k = 0; k < count; k++) {
			m[s][next[k]] += next[k] > 0 ? rates[k] : 0;
			m[s][s] -= s > 0 ? rates[k] : 0;
		}
		m[s][0] = -1;
	}
	for (int k = 0; k < n; k++) {
		int at = k;

		for (int s = k; s < n; s++)
			at = fabs(m[s][k]) > fabs(m[at][k]) ? s : at;
		for (int c = 0; c <= n; c++) {
			double t = m[k][c];

			m[k][c] = m[at][c];
			m[at][c] = t;
		}
		cr_assert_gt(fabs(m[k][k]), 1e-9);
		for (int s = 0; s < n; s++) {
			double by = s == k ? 0 : m[s][k] / m[k][k];

			for (int c = k; by != 0 && c <= n; c++)
				m[s][c] -= by * m[k][c];
		}
	}
	for (int s = 0; s < n; s++)
		g->h[s] = m[s][n] / m[s][s];
	g->gain = g->h[0];
	g->h[0] = 0;
}

/* Howard's policy iteration. */
static void improve_until_best(struct game *g)
{
	bool changed = true;

	for (int round = 0; changed && round < 50; round++) {
		changed = false;
		for (int s = 0; s < g->count; s++)
			for (int p = 0; p < PROFILES; p++) {
				int now = g->chosen[s][p], to;
				double v = cost(g, p, now, now == s) + g->h[now];

				for (int n = 0; (to = option(g, s, p, n)) >= 0; n++) {
					double w = cost(g, p, to, false) + g->h[to];

					if (w < v - 1e-9) {
						v = w;
						g->chosen[s][p] = to;
						changed = true;
					}
				}
			}
		evaluate(g);
	}
	cr_assert_not(changed);
}

static double percent_placed(const struct game *g)
{
	double all = 0;

	for (int p = 0; p < PROFILES; p++)
		all += g->rate[p] * (g->aim == UNITS ? geometry.profiles[p].units : 1);
	return 100 * (1 - g->gain / all);
}

Test(replay_mig_best, equals_policy_iteration)
{
	static const int64_t mixes[][2] = {{1, 1}, {3, 1}, {1, 4}};
	struct err err = ERR_INIT;

	cr_assert_eq(st_mig_geometry_finish(&geometry, &err), 0, "%s", err.msg);
	for (int k = 0; k < 6; k++) {
		const int64_t *w = mixes[k / 2];
		int64_t load = k % 2 ? 1200 : 700;
		struct rp_mig_best b;
		struct game g;

		make(&g, w[0], w[1], (double)load / 1000);
		cr_assert_eq(g.count, 144);
		cr_assert_eq(rp_mig_best_of_two(&geometry, &g.mix, load, &b, &err), 0, "%s",
			     err.msg);
		g.aim = STRANDED;
		evaluate(&g);
		cr_expect_float_eq(b.stranded_first_fit, g.gain, 0.0005, "%f %f",
				   b.stranded_first_fit, g.gain);
		improve_until_best(&g);
		cr_expect_float_eq(b.stranded, g.gain, 0.0005, "%f %f", b.stranded, g.gain);
		cr_expect_lt(b.stranded_width, 0.0005);
		cr_expect_lt(b.stranded, b.stranded_first_fit - 0.005);
		g.aim = WORKLOADS;
		evaluate(&g);
		improve_until_best(&g);
		cr_expect_float_eq(b.workloads, percent_placed(&g), 0.03);
		g.aim = UNITS;
		evaluate(&g);
		improve_until_best(&g);
		cr_expect_float_eq(b.units, percent_placed(&g), 0.03);
	}
}

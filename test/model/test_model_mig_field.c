/* The value of layouts among other GPUs against the same equations in floating point, with the chances
 * of a request summed up over the layouts of the others instead of by products of powers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragmentation/mig_field.h"

#define GPUS 16
#define STAYS 8
#define STATES 400
#define NOTHING (-1e15) /* no room */

static const struct st_mig_geometry *geometry;
static struct fr_mig_states states;
static struct fr_mig_field in;
static int64_t cost[STATES];
static uint32_t live[STATES], live_count; /* that requests lead to */
static double h[STATES], h2[STATES], sum[STATES], mass[STATES], mass2[STATES];

/* The best start of p in s: the layout after, and what that is worth; false: none. */
static bool best(int p, uint32_t s, uint32_t *ret_to, double *ret_w)
{
	const struct st_mig_profile *q = &geometry->profiles[p];
	bool found = false;

	for (int b = q->bit; b < q->bit + q->start_count; b++) {
		uint32_t t = states.next[s * 64 + (unsigned)b];
		double w;

		if (t == FR_MIG_NOWHERE || (states.placed[s] >> b & 1))
			continue;
		w = (double)in.reward[p] + h[t] - h[s];
		if (!found || w > *ret_w) {
			*ret_to = t;
			*ret_w = w;
		}
		found = true;
	}
	return found;
}

/* How many of the GPUs offer less than x, and how many as much. */
static void shares(const double *offer, double x, double *ret_below, double *ret_same)
{
	*ret_below = *ret_same = 0;
	for (uint32_t i = 0; i < live_count; i++)
		*(offer[i] < x - 1e-9    ? ret_below
		  : offer[i] <= x + 1e-9 ? ret_same
					 : &(double){0}) += mass[live[i]];
}

/* One request of profile p that comes while this GPU is in s, by the best that the other GPUs offer:
 * the mean of the better of both, and the chance that this GPU gets it. */
static double meet(int p, uint32_t s, double *ret_wins)
{
	double w = NOTHING, mean = 0, offer[STATES], below, same;
	uint32_t to;

	(void)best(p, s, &to, &w);
	for (uint32_t i = 0; i < live_count; i++) {
		offer[i] = NOTHING;
		(void)best(p, live[i], &to, &offer[i]);
	}
	for (uint32_t i = 0; i < live_count; i++) {
		double x = fmax(offer[i], w);

		shares(offer, offer[i], &below, &same);
		if (same > 0) /* the best of the others offers as much, and it is in this layout */
			mean += (pow(below + same, GPUS - 1) - pow(below, GPUS - 1)) *
				mass[live[i]] / same * (x > NOTHING ? x : 0);
	}
	shares(offer, w, &below, &same);
	*ret_wins = 0;
	for (int k = 0; k < GPUS; k++) { /* as one of k + 1 that offer most */
		double ways = 1;

		for (int i = 0; i < k; i++)
			ways = ways * (GPUS - 1 - i) / (i + 1);
		*ret_wins += ways * pow(same, k) * pow(below, GPUS - 1 - k) / (k + 1);
	}
	return mean;
}

static void step(double length)
{
	memcpy(mass2, mass, sizeof(mass));
	for (uint32_t i = 0; i < live_count; i++) {
		uint32_t s = live[i];
		double gain = -(double)cost[s];

		for (int b = 0; b < states.bits; b++)
			if (states.placed[s] >> b & 1) {
				uint32_t t = states.next[s * 64 + (unsigned)b];

				gain += h[t] - h[s];
				mass2[t] += length * mass[s];
				mass2[s] -= length * mass[s];
			}
		for (int p = 0; p < geometry->profile_count; p++) {
			double rate = GPUS * (double)in.rate[p] / FR_MIG_RATE_ONE, w, wins;
			uint32_t to;

			if (rate == 0)
				continue;
			gain += rate * meet(p, s, &wins);
			if (best(p, s, &to, &w)) {
				mass2[to] += length * rate * wins * mass[s];
				mass2[s] -= length * rate * wins * mass[s];
			}
		}
		h2[s] = h[s] + length * gain;
	}
	for (uint32_t i = 0; i < live_count; i++) {
		uint32_t s = live[i];
		h[s] = h2[s] - h2[0];
		mass[s] = mass2[s];
	}
}

static void solve(void)
{
	double all = fmax(geometry->compute_total, geometry->units_total);
	int rounds;

	for (int p = 0; p < geometry->profile_count; p++)
		all += GPUS * (double)in.rate[p] / FR_MIG_RATE_ONE;
	memset(h, 0, sizeof(h));
	memset(sum, 0, sizeof(sum));
	memset(mass, 0, sizeof(mass));
	mass[0] = 1;
	rounds = (int)(STAYS * all);
	for (int k = 0; k < rounds; k++) {
		step(1 / all);
		for (uint32_t s = 0; s < states.count && k >= rounds / 2; s++)
			sum[s] += h[s] / (rounds - rounds / 2);
	}
}

static void setup(const char *product, const char *const *names, const double *rates, int count)
{
	geometry = st_mig_table_find(product, 0);
	cr_assert_not_null(geometry);
	in = (struct fr_mig_field){.g = geometry, .states = &states, .cost = cost};
	cr_assert_eq(fr_mig_states_make(geometry, ST_MIG_ANYWHERE, &states), 0);
	cr_assert_leq(states.count, STATES);
	for (int i = 0; i < count; i++) {
		int p = st_mig_profile_find(geometry, names[i]);

		cr_assert_geq(p, 0, "%s", names[i]);
		in.rate[p] = (int64_t)(rates[i] * FR_MIG_RATE_ONE);
		in.reward[p] = geometry->profiles[p].units * 300;
	}
	live_count = 0;
	for (uint32_t s = 0; s < states.count; s++) {
		bool all = true;

		for (int b = 0; b < states.bits; b++)
			for (int p = 0; p < geometry->profile_count; p++)
				if ((states.placed[s] >> b & 1) && b >= geometry->profiles[p].bit &&
				    b < geometry->profiles[p].bit +
						    geometry->profiles[p].start_count)
					all = all && in.rate[p] > 0;
		if (all)
			live[live_count++] = s;
		cost[s] = st_mig_units_free(geometry, states.placed[s]) % 3 * 700 + (int64_t)s % 5;
	}
}

static const char *const a30[] = {"1g.6gb", "2g.12gb", "4g.24gb"};

static double milli(int64_t got)
{
	return (double)got / (1 << FR_MIG_H_BITS);
}

Test(model_mig_field, equals_the_equations_in_floating_point)
{
	static const double rates[][3] = {{1, 0.5, 0.2}, {0.2, 0.7, 0.5}, {2, 0.1, 0.3}};
	int64_t got[STATES];

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		setup("NVIDIA A30", a30, rates[i], 3);
		cr_assert_eq(fr_mig_field_solve(&in, got), 0);
		solve();
		for (uint32_t k = 0; k < live_count; k++)
			cr_expect_float_eq(milli(got[live[k]]), sum[live[k]], 1,
					   "rates %zu, layout %u: %.3f, not %.3f", i, live[k],
					   milli(got[live[k]]), sum[live[k]]);
		fr_mig_states_fini(&states);
	}
}

/* Layouts with instances that nobody asks for are worth what they are where almost nobody does. */
Test(model_mig_field, what_is_not_asked_for_as_what_hardly_is)
{
	static const char *const names[] = {"1g.6gb", "2g.12gb", "4g.24gb", "1g.6gb+me",
					    "2g.12gb+me"};
	static const double rates[] = {1, 0.5, 0.2, 1e-6, 1e-6};
	int64_t got[STATES], hardly[STATES];

	setup("NVIDIA A30", names, rates, 5);
	cr_assert_eq(live_count, states.count);
	cr_assert_eq(fr_mig_field_solve(&in, hardly), 0);
	fr_mig_states_fini(&states);
	setup("NVIDIA A30", names, rates, 3);
	cr_assert_lt(live_count, states.count);
	cr_assert_eq(fr_mig_field_solve(&in, got), 0);
	for (uint32_t s = 0; s < states.count; s++)
		cr_expect_float_eq(milli(got[s]), milli(hardly[s]), 15, "layout %u: %.3f, not %.3f",
				   s, milli(got[s]), milli(hardly[s]));
	fr_mig_states_fini(&states);
}

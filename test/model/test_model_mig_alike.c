/* Layouts that are alike, against telling them apart pair by pair. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fragmentation/mig_alike.h"

#define STATES 2400
#define KINDS (ST_MIG_PROFILES_MAX + 1)

static const struct st_mig_geometry *geometry;
static struct fr_mig_states states;
static int64_t rate[ST_MIG_PROFILES_MAX], cost[STATES];
static uint16_t of[STATES]; /* by the definition */
static uint32_t of_count;

static bool asked(const struct st_mig_geometry *g, int bit)
{
	for (int p = 0; p < g->profile_count; p++)
		if (bit >= g->profiles[p].bit &&
		    bit < g->profiles[p].bit + g->profiles[p].start_count)
			return rate[p] > 0;
	return false;
}

static bool live(uint32_t s)
{
	bool all = true;

	for (int b = 0; b < states.bits; b++)
		all = all && (!(states.placed[s] >> b & 1) || asked(geometry, b));
	return all;
}

/* How often each class is reached from s: by ends (profile -1), or whether it is by one more of a profile. */
static void reach(uint32_t s, int profile, uint8_t count[static STATES])
{
	memset(count, 0, STATES);
	for (int b = 0; b < states.bits; b++) {
		uint32_t t = states.next[s * 64 + (unsigned)b];
		bool placed = states.placed[s] >> b & 1;

		if (profile < 0 && placed)
			count[of[t]]++;
		if (profile >= 0 && !placed && t != FR_MIG_NOWHERE &&
		    b >= geometry->profiles[profile].bit &&
		    b < geometry->profiles[profile].bit + geometry->profiles[profile].start_count)
			count[of[t]] = 1;
	}
}

static bool same(uint32_t s, uint32_t t)
{
	static uint8_t a[STATES], b[STATES];

	for (int p = -1; p < geometry->profile_count; p++) {
		if (p >= 0 && rate[p] == 0)
			continue;
		reach(s, p, a);
		reach(t, p, b);
		if (memcmp(a, b, STATES) != 0)
			return false;
	}
	return of[s] == of[t];
}

/* One round: each class is split by where its layouts lead. */
static bool split(void)
{
	static uint16_t anew[STATES], first[STATES];
	uint32_t n = 0, before = of_count;

	for (uint32_t s = 0; s < states.count; s++) {
		uint32_t c = 0;

		while (c < n && (of[first[c]] != of[s] || !same(first[c], s)))
			c++;
		if (c == n)
			first[n++] = (uint16_t)s;
		anew[s] = (uint16_t)c;
	}
	memcpy(of, anew, sizeof(of));
	of_count = n;
	return n > before;
}

static void tell_apart(void)
{
	of_count = 0;
	for (uint32_t s = 0; s < states.count; s++) {
		uint32_t t = 0;

		while (t < s && (cost[t] != cost[s] || live(t) != live(s)))
			t++;
		of[s] = t < s ? of[t] : (uint16_t)of_count++;
	}
	while (split())
		;
}

/* Names of profiles that are asked for, NULL at the end. */
static void setup(const char *product, const char *const *names)
{
	geometry = st_mig_table_find(product, 0);
	cr_assert_not_null(geometry);
	cr_assert_eq(fr_mig_states_make(geometry, ST_MIG_ANYWHERE, &states), 0);
	cr_assert_leq(states.count, STATES);
	memset(rate, 0, sizeof(rate));
	for (; *names != NULL; names++)
		rate[st_mig_profile_find(geometry, *names)] = 1;
	for (uint32_t s = 0; s < states.count; s++)
		cost[s] = st_mig_units_free(geometry, states.placed[s]);
}

/* What a class leads to is what each of its layouts does. */
static void check_leads(const struct fr_mig_alike *a)
{
	static uint8_t count[STATES], got[STATES];
	uint32_t kinds = geometry->profile_count + 1U;

	memcpy(of, a->of, states.count * sizeof(*of));
	for (uint32_t s = 0; s < states.count; s++)
		for (uint32_t k = 0; k < kinds; k++) {
			const uint32_t *begin = &a->begin[a->of[s] * kinds + k];

			memset(got, 0, sizeof(got));
			for (uint32_t i = begin[0]; i < begin[1]; i++)
				got[a->to[i]]++;
			reach(s, (int)k - 1, count);
			if (k > 0 && rate[k - 1] == 0)
				memset(count, 0, sizeof(count));
			cr_assert_eq(memcmp(got, count, sizeof(got)), 0, "layout %u, %u", s, k);
		}
}

static void check(void)
{
	static uint16_t expect[STATES], other[STATES];
	struct fr_mig_alike a;
	uint32_t lives = 0;

	cr_assert_eq(fr_mig_alike_make(geometry, &states, rate, cost, &a), 0);
	tell_apart();
	cr_expect_eq(a.count, of_count, "%u, not %u", a.count, of_count);
	memcpy(expect, of, sizeof(expect));
	memset(other, 0xff, sizeof(other));
	for (uint32_t s = 0; s < states.count; s++) {
		uint16_t *o = &other[a.of[s]];

		lives += *o == UINT16_MAX && live(s);
		cr_expect_eq(a.of[s] < a.live, live(s), "layout %u", s);
		*o = *o == UINT16_MAX ? expect[s] : *o;
		cr_assert_eq(*o, expect[s], "layout %u", s);
	}
	cr_expect_eq(a.live, lives);
	cr_expect_eq(a.of[0], 0, "the empty GPU");
	check_leads(&a);
	fr_mig_alike_fini(&a);
	fr_mig_states_fini(&states);
}

static const char *const plain[] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", NULL};

Test(model_mig_alike, of_an_a100)
{
	setup("NVIDIA A100-SXM4-40GB", plain);
	check();
}

Test(model_mig_alike, of_an_a30)
{
	setup("NVIDIA A30", (const char *const[]){"1g.6gb", "2g.12gb", "1g.6gb+me", NULL});
	check();
}

Test(model_mig_alike, costs_tell_apart)
{
	setup("NVIDIA A30", (const char *const[]){"1g.6gb", "2g.12gb", "4g.24gb", NULL});
	for (uint32_t s = 0; s < states.count; s++)
		cost[s] = (int64_t)s * 37 % 11;
	check();
	setup("NVIDIA A30", (const char *const[]){"1g.6gb", NULL});
	for (uint32_t s = 0; s < states.count; s++)
		cost[s] = s;
	check();
}

/* What the time of making a table of values hangs on. */
Test(model_mig_alike, most_layouts_of_an_a100_are_like_others)
{
	struct fr_mig_alike a;

	setup("NVIDIA A100-SXM4-40GB", plain);
	for (uint32_t s = 0; s < states.count; s++)
		for (int p = 0; p < geometry->profile_count; p++)
			cost[s] += rate[p] > 0 ? st_mig_max_more(geometry, states.placed[s], p) *
							 geometry->profiles[p].units
					       : 0;
	cr_assert_eq(fr_mig_alike_make(geometry, &states, rate, cost, &a), 0);
	cr_expect_lt(a.count, states.count / 3, "%u", a.count);
	cr_expect_lt(a.live, 120, "%u", a.live);
	fr_mig_alike_fini(&a);
	fr_mig_states_fini(&states);
}

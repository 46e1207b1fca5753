/* The table of what MIG layouts are worth: its states, its zero points, and its value iteration against
 * the equation that it solves. */
#include <criterion/criterion.h>
#include <string.h>

#include "fragmentation/mig_value.h"

static const struct st_mig_geometry *a100(void)
{
	return st_mig_table_find("NVIDIA A100-SXM4-40GB", 40960);
}

static uint64_t at(const char *profile, int start)
{
	uint64_t bit = st_mig_bit(a100(), st_mig_profile_find(a100(), profile), start);

	cr_assert_neq(bit, 0, "%s at %d", profile, start);
	return bit;
}

static struct fr_mig_value *table(const struct st_mig_geometry *g, uint64_t open,
				  const char *const *names, const int64_t *weights, size_t count)
{
	int64_t weight[ST_MIG_PROFILES_MAX] = {0};
	struct fr_mig_value *v;

	for (size_t i = 0; i < count; i++)
		weight[st_mig_profile_find(g, names[i])] = weights[i];
	v = fr_mig_value_new(g, open, weight);
	cr_assert_not_null(v);
	return v;
}

static const char *const five[] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};
static const int64_t ones[] = {1, 1, 1, 1, 1};

Test(mig_value, states_of_every_known_geometry)
{
	struct fr_mig_value *v = table(a100(), ST_MIG_ANYWHERE, five, ones, 5);

	cr_expect_eq(fr_mig_value_states(v), 2319);
	fr_mig_value_free(v);
	for (size_t i = 0; st_mig_table_at(i); i++) {
		const struct st_mig_geometry *g = st_mig_table_at(i);
		int64_t weight[ST_MIG_PROFILES_MAX];
		bool any = false;

		for (int p = 0; p < ST_MIG_PROFILES_MAX; p++)
			weight[p] = 1;
		for (int p = 0; p < g->profile_count; p++)
			any |= g->profiles[p].start_count > 0;
		v = fr_mig_value_new(g, ST_MIG_ANYWHERE, weight);
		cr_assert_not_null(v);
		cr_expect_geq(fr_mig_value_states(v), any ? 26 : 1, "%s", g->model);
		fr_mig_value_free(v);
	}
}

Test(mig_value, zero_when_empty_and_when_best_full)
{
	struct fr_mig_value *v = table(a100(), ST_MIG_ANYWHERE, five, ones, 5);
	int32_t full[] = {fr_mig_value_at(v, at("7g.40gb", 0)),
			  fr_mig_value_at(v, at("3g.20gb", 0) | at("3g.20gb", 4)),
			  fr_mig_value_at(v, at("4g.20gb", 0) | at("3g.20gb", 4))};
	int32_t least = full[0];

	for (int i = 1; i < 3; i++)
		least = full[i] < least ? full[i] : least;
	cr_expect_eq(fr_mig_value_at(v, 0), 0);
	cr_expect(least >= -1 && least <= 1, "%d", least);
	cr_expect_eq(fr_mig_value_at(v, UINT64_C(1) << 63), 0, "no such state");
	fr_mig_value_free(v);
}

/* The starts that the measure of stranded slices prefers on an empty GPU are worth more here, too. */
Test(mig_value, first_fit_is_the_worst_start)
{
	struct fr_mig_value *v = table(a100(), ST_MIG_ANYWHERE, five, ones, 5);

	cr_expect_lt(fr_mig_value_at(v, at("1g.5gb", 6)), fr_mig_value_at(v, at("1g.5gb", 0)));
	cr_expect_lt(fr_mig_value_at(v, at("1g.10gb", 6)), fr_mig_value_at(v, at("1g.10gb", 0)));
	cr_expect_lt(fr_mig_value_at(v, at("2g.10gb", 4)), fr_mig_value_at(v, at("2g.10gb", 0)));
	cr_expect_lt(fr_mig_value_at(v, at("3g.20gb", 4)), fr_mig_value_at(v, at("3g.20gb", 0)));
	for (int start = 0; start < 6; start++)
		cr_expect_lt(fr_mig_value_at(v, at("1g.5gb", 6)),
			     fr_mig_value_at(v, at("1g.5gb", start)), "%d", start);
	fr_mig_value_free(v);
}

/* Only 7g is asked for: any instance costs a whole 7g, wherever it is. */
Test(mig_value, the_mix_decides)
{
	static const char *const big[] = {"7g.40gb"}, *const small[] = {"1g.5gb"};
	struct fr_mig_value *v = table(a100(), ST_MIG_ANYWHERE, big, ones, 1);
	struct fr_mig_value *w = table(a100(), ST_MIG_ANYWHERE, small, ones, 1);

	for (int start = 0; start < 7; start++) {
		cr_expect_eq(fr_mig_value_at(v, at("1g.5gb", start)),
			     fr_mig_value_at(v, at("1g.5gb", 0)));
		cr_expect_eq(fr_mig_value_at(w, at("1g.5gb", start)),
			     fr_mig_value_at(w, at("1g.5gb", 0)));
	}
	cr_expect_gt(fr_mig_value_at(v, at("1g.5gb", 0)), 100);
	fr_mig_value_free(v);
	fr_mig_value_free(w);
}

Test(mig_value, of_instances_cut_beforehand)
{
	uint64_t open = at("1g.5gb", 0) | at("1g.5gb", 1) | at("2g.10gb", 4);
	struct fr_mig_value *v = table(a100(), open, five, ones, 5);

	cr_expect_eq(fr_mig_value_states(v), 8);
	cr_expect_eq(fr_mig_value_at(v, 0), 0);
	cr_expect_eq(fr_mig_value_at(v, at("1g.5gb", 0)), fr_mig_value_at(v, at("1g.5gb", 1)));
	cr_expect_eq(fr_mig_value_at(v, open), 0);
	fr_mig_value_free(v);
}

Test(mig_value, nothing_asked_for)
{
	int64_t weight[ST_MIG_PROFILES_MAX] = {0};
	struct fr_mig_value *v = fr_mig_value_new(a100(), ST_MIG_ANYWHERE, weight);

	cr_assert_not_null(v);
	cr_expect_eq(fr_mig_value_states(v), 0);
	cr_expect_eq(fr_mig_value_at(v, at("1g.5gb", 0)), 0);
	fr_mig_value_free(v);
	fr_mig_value_free(NULL);
}

/* Exchanging which of two profiles with the same places is asked for exchanges their states. */
Test(mig_value, alike_profiles_are_worth_alike)
{
	static const char *const a[] = {"1g.5gb", "2g.10gb"}, *const b[] = {"1g.5gb", "1g.10gb"};
	static const int64_t weights[] = {3, 1};
	struct fr_mig_value *v = table(a100(), ST_MIG_ANYWHERE, a, weights, 2);
	struct fr_mig_value *w = table(a100(), ST_MIG_ANYWHERE, a, (int64_t[]){300, 100}, 2);
	struct fr_mig_value *x = table(a100(), ST_MIG_ANYWHERE, b, weights, 2);

	for (int start = 0; start < 7; start++)
		cr_expect_eq(fr_mig_value_at(v, at("1g.5gb", start)),
			     fr_mig_value_at(w, at("1g.5gb", start)),
			     "weights count by their proportion");
	cr_expect_neq(fr_mig_value_at(v, at("1g.5gb", 6)), fr_mig_value_at(x, at("1g.5gb", 6)),
		      "1g.10gb starts at 6, 2g.10gb does not");
	fr_mig_value_free(v);
	fr_mig_value_free(w);
	fr_mig_value_free(x);
}

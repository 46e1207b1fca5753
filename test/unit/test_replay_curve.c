/* Rounding and the discretisation of the published protocol. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "replay/curve.h"

Test(replay_curve, rounds_half_to_even)
{
	static const struct {
		int64_t a, b, want;
	} rows[] = {{5, 10, 0},    {15, 10, 2}, {25, 10, 2}, {35, 10, 4},   {26, 10, 3},
		    {24, 10, 2},   {0, 7, 0},   {-5, 10, 0}, {-15, 10, -2}, {-25, 10, -2},
		    {-26, 10, -3}, {7, 7, 1},   {1, 3, 0},   {2, 3, 1}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(rp_round_div(rows[i].a, rows[i].b), rows[i].want, "%zu", i);
}

static struct rp_curve *curve(int64_t total)
{
	struct rp_curve *c = malloc(sizeof(*c));

	cr_assert_not_null(c);
	rp_curve_init(c, total);
	return c;
}

Test(replay_curve, columns_are_means_of_the_rows_that_round_to_them)
{
	struct rp_curve *c = curve(1000);

	/* 1.4 %, 0.5 % (half to even: 0), 1.5 % (half to even: 2), 2.5 % (2) */
	rp_curve_add(c, 14, 10, INT64_C(300) * 7, 7, 990);
	rp_curve_add(c, 5, 5, INT64_C(100) * 7, 7, 995);
	rp_curve_add(c, 15, 11, INT64_C(301) * 7, 7, 989);
	rp_curve_add(c, 25, 20, INT64_C(302) * 7, 7, 980);
	cr_assert_eq(c->sums[0].rows, 1);
	cr_assert_eq(c->sums[1].rows, 1);
	cr_assert_eq(c->sums[2].rows, 2);
	cr_assert_eq(rp_curve_at(c, 0).alloc, 50);
	cr_assert_eq(rp_curve_at(c, 1).alloc, 100);
	cr_assert_eq(rp_curve_at(c, 2).alloc, 155); /* (1.1 + 2.0) / 2 % */
	cr_assert_eq(rp_curve_at(c, 1).frag, 3000);
	cr_assert_eq(rp_curve_at(c, 2).frag, 3015);
	cr_assert_eq(rp_curve_at(c, 1).ratio, 3030); /* 300 / 990 */
	cr_assert_eq(c->last, 2);
	free(c);
}

Test(replay_curve, a_column_without_rows_takes_those_beside_it)
{
	struct rp_curve *c = curve(1000);

	rp_curve_add(c, 100, 100, 0, 1, 900);
	rp_curve_add(c, 120, 110, 0, 1, 890);
	rp_curve_add(c, 120, 120, 0, 1, 880);
	cr_assert_eq(rp_curve_at(c, 11).alloc, 1100); /* all three rows count alike */
	cr_assert_eq(rp_curve_at(c, 9).alloc, 1000);
	cr_assert_eq(rp_curve_at(c, 13).alloc, 1150);
	cr_assert_eq(rp_curve_at(c, 14).alloc, RP_NO_VALUE);
	cr_assert_eq(rp_curve_at(c, 8).alloc, RP_NO_VALUE);
	cr_assert_eq(rp_curve_at(c, -5).alloc, RP_NO_VALUE);
	cr_assert_eq(rp_curve_at(c, 5000).alloc, RP_NO_VALUE);
	free(c);
}

Test(replay_curve, rows_beyond_the_last_column_do_no_harm)
{
	struct rp_curve *c = curve(10);

	rp_curve_add(c, 1000, 10, 5, 1, 0);
	rp_curve_add(c, INT64_MAX / 200, 10, 5, 1, 0);
	cr_assert_eq(c->last, -1);
	rp_curve_add(c, 10, 10, 0, 1, 0); /* nothing idle: ratio 0 */
	cr_assert_eq(rp_curve_at(c, 100).ratio, 0);
	cr_assert_eq(rp_curve_at(c, 100).alloc, 10000);
	free(c);
}

Test(replay_curve, a_large_cluster_does_not_overflow)
{
	struct rp_curve *c = curve(INT64_C(800000000));

	for (int i = 0; i < 1000000; i++)
		rp_curve_add(c, 800000000, 800000000, INT64_C(800000000) << 20, 1 << 20, 800000000);
	cr_assert_eq(rp_curve_at(c, 100).alloc, 10000);
	cr_assert_eq(rp_curve_at(c, 100).frag, 10000);
	cr_assert_eq(rp_curve_at(c, 100).ratio, 10000);
	free(c);
}

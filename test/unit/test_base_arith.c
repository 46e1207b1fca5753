#include <criterion/criterion.h>

#include "base/arith.h"

Test(base_arith, floor_div)
{
	static const struct {
		int64_t a, b, want;
	} t[] = {
		{7, 2, 3},      {-7, 2, -4},
		{7, -2, -4},    {-7, -2, 3},
		{6, 3, 2},      {-6, 3, -2},
		{0, 5, 0},      {INT64_MIN, 1, INT64_MIN},
		{-1, 1000, -1}, {INT64_MAX, -1, -INT64_MAX},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		cr_assert_eq(arith_floor_div(t[i].a, t[i].b), t[i].want, "row %zu", i);
}

Test(base_arith, mul_div)
{
	static const struct {
		int64_t a, b, c, floor, ceil;
	} t[] = {
		{0, 0, 1, 0, 0},
		{10, 10, 3, 33, 34},
		{10, 9, 3, 30, 30},
		{81559, 125000000, 1000000000, 10194, 10195},
		{INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
		{INT64_MAX, 3, 2, INT64_MAX, INT64_MAX},
		{INT64_MAX, INT64_MAX, 1, INT64_MAX, INT64_MAX},
		{1, 1, INT64_MAX, 0, 1},
		{INT64_C(1) << 53, 1000, 1001, INT64_C(8998201053687304),
		 INT64_C(8998201053687305)},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		cr_assert_eq(arith_mul_div_floor(t[i].a, t[i].b, t[i].c), t[i].floor, "row %zu", i);
		cr_assert_eq(arith_mul_div_ceil(t[i].a, t[i].b, t[i].c), t[i].ceil, "row %zu", i);
	}
}

Test(base_arith, add_and_mul_leave_ret_on_overflow)
{
	int64_t r = 42;

	cr_assert(!arith_add(INT64_MAX, 1, &r));
	cr_assert(!arith_add(INT64_MIN, -1, &r));
	cr_assert(!arith_mul(INT64_C(1) << 32, INT64_C(1) << 31, &r));
	cr_assert(!arith_mul(INT64_MIN, -1, &r));
	cr_assert_eq(r, 42);
	cr_assert(arith_add(INT64_MAX, -1, &r));
	cr_assert_eq(r, INT64_MAX - 1);
	cr_assert(arith_mul(INT64_C(1) << 31, INT64_C(1) << 31, &r));
	cr_assert_eq(r, INT64_C(1) << 62);
}

Test(base_arith, min_and_max)
{
	cr_assert_eq(arith_min(-1, 2), -1);
	cr_assert_eq(arith_min(2, -1), -1);
	cr_assert_eq(arith_max(INT64_MIN, INT64_MAX), INT64_MAX);
	cr_assert_eq(arith_max(3, 3), 3);
}

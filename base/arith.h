/* Exact integer arithmetic: nothing wraps, nothing is rounded by accident. */
#ifndef TESSERA_BASE_ARITH_H
#define TESSERA_BASE_ARITH_H

#include <stdbool.h>
#include <stdint.h>

/* floor(a / b) for any signs; b != 0. */
static inline int64_t arith_floor_div(int64_t a, int64_t b)
{
	int64_t q = a / b;

	return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

/* floor(a * b / c) without overflow in between; a, b >= 0, c > 0; saturates at INT64_MAX. */
static inline int64_t arith_mul_div_floor(int64_t a, int64_t b, int64_t c)
{
	int64_t p;
	__int128 q;

	if (!__builtin_mul_overflow(a, b, &p))
		return p / c; /* a division of 128 bits is a call */
	q = (__int128)a * b / c;
	return q > INT64_MAX ? INT64_MAX : (int64_t)q;
}

/* ceil(a * b / c), under the same rules. */
static inline int64_t arith_mul_div_ceil(int64_t a, int64_t b, int64_t c)
{
	int64_t p;
	__int128 q;

	if (!__builtin_mul_overflow(a, b, &p))
		return p / c + (p % c != 0);
	q = ((__int128)a * b + c - 1) / c;

	return q > INT64_MAX ? INT64_MAX : (int64_t)q;
}

/* a + b into *ret; false on overflow, *ret untouched then. */
static inline bool arith_add(int64_t a, int64_t b, int64_t *ret)
{
	int64_t s;

	if (__builtin_add_overflow(a, b, &s))
		return false;
	*ret = s;
	return true;
}

/* a * b into *ret; false on overflow, *ret untouched then. */
static inline bool arith_mul(int64_t a, int64_t b, int64_t *ret)
{
	int64_t p;

	if (__builtin_mul_overflow(a, b, &p))
		return false;
	*ret = p;
	return true;
}

static inline int64_t arith_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t arith_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

#endif

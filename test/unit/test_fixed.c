/* exp and ln in fixed point against the C library's. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "fragmentation/fixed.h"

static struct fr_fixed f;

static void init(void)
{
	fr_fixed_init(&f);
}

TestSuite(fixed, .init = init);

Test(fixed, tables_end_where_they_should)
{
	cr_expect_eq(f.exp2[0], 1u << 30);
	cr_expect_eq(f.exp2[256], 1u << 29);
	cr_expect_eq(f.log2[0], 0);
	cr_expect_eq(f.log2[256], 1u << 24);
	for (int i = 0; i < 256; i++) {
		cr_expect_gt(f.exp2[i], f.exp2[i + 1]);
		cr_expect_lt(f.log2[i], f.log2[i + 1]);
	}
}

/* 2^x for x <= 0: within a millionth, or the last bit. */
Test(fixed, exp2)
{
	struct rng rng;

	rng_init(&rng, 1);
	for (int i = 0; i < 200000; i++) {
		int64_t x = i < 70000 ? -i : -(int64_t)rng_below(&rng, UINT64_C(31) << 16);
		double want = exp2((double)x / 65536) * (1u << 30), got = fr_exp2(&f, x);

		cr_assert(fabs(got - want) <= want * 1e-6 + 1, "2^(%lld / 65536): %.0f, not %.3f",
			  (long long)x, got, want);
	}
	cr_expect_eq(fr_exp2(&f, 0), 1u << 30);
	cr_expect_eq(fr_exp2(&f, INT64_C(-65536) * 10), 1u << 20);
	cr_expect_eq(fr_exp2(&f, -65536 * INT64_C(31)), 0);
	cr_expect_eq(fr_exp2(&f, -(INT64_C(1) << 40)), 0);
}

Test(fixed, exp2_never_grows)
{
	uint32_t last = UINT32_MAX;

	for (int64_t x = 0; x > INT64_C(-32) * 65536; x--) {
		uint32_t v = fr_exp2(&f, x);

		cr_assert_leq(v, last);
		last = v;
	}
}

Test(fixed, log2)
{
	struct rng rng;

	rng_init(&rng, 2);
	for (int i = 1; i < 200000; i++) {
		uint64_t v = i < 70000 ? (uint64_t)i : rng_next(&rng) >> rng_below(&rng, 63);
		double want = log2((double)(v > 0 ? v : 1)) * 65536;
		double got = fr_log2(&f, v > 0 ? v : 1);

		cr_assert(fabs(got - want) <= 4e-6 * 65536 + 1, "log2(%llu): %.0f, not %.3f",
			  (unsigned long long)v, got, want);
	}
	for (int bit = 0; bit < 64; bit++)
		cr_expect_eq(fr_log2(&f, UINT64_C(1) << bit), bit << 16);
}

/* A soft maximum of two values: t ln((w1 e^(x1/t) + w2 e^(x2/t)) / (w1 + w2)). */
Test(fixed, soft_maximum)
{
	static const int32_t temperatures[] = {50, 250}; /* tenths of a milli */

	for (int k = 0; k < 2; k++) {
		double t = temperatures[k] / 10.0;
		struct fr_soft s;

		fr_soft_init(&s, temperatures[k]);
		for (int32_t diff = 0; diff <= 400; diff += 3)
			for (uint64_t w = 1; w <= 1000; w *= 10) {
				int64_t x = -(int64_t)diff * (1 << FR_PRICE_BITS);
				uint64_t sum = (UINT64_C(1) << 30) + w * fr_soft_exp(&f, &s, x);
				double got = fr_soft_ln(&f, &s, sum, (1 + w) << 30);
				double want =
					t * log((1 + (double)w * exp(-diff / t)) / (1 + (double)w));

				cr_assert(fabs(got / (1 << FR_PRICE_BITS) - want) < 0.01,
					  "t %.1f, %d below, weight %d: %.4f, not %.4f", t, diff,
					  (int)w, got / (1 << FR_PRICE_BITS), want);
			}
	}
}

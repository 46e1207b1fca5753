/* The thresholds by which FGD's score needs no floating point. */
#include <criterion/criterion.h>
#include <math.h>

#include "fragmentation/measure_internal.h"

static const int64_t j_7766[100] = {
	INT64_MAX, 35685700,  30223876,  26995382,  24680766,  22866513,  21368423,  20088229,
	18967267,  17967688,  17063646,  16236695,  15473212,  14762845,  14097541,  13470911,
	12877799,  12313981,  11775954,  11260779,  10765962,  10289370,  9829165,   9383744,
	8951709,   8531823,   8122991,   7724238,   7334688,   6953552,   6580115,   6213726,
	5853791,   5499765,   5151142,   4807458,   4468277,   4133195,   3801831,   3473826,
	3148842,   2826555,   2506658,   2188856,   1872864,   1558408,   1245221,   933040,
	621611,    310681,    0,         -310682,   -621612,   -933041,   -1245222,  -1558409,
	-1872865,  -2188857,  -2506659,  -2826556,  -3148843,  -3473827,  -3801832,  -4133196,
	-4468278,  -4807459,  -5151143,  -5499766,  -5853792,  -6213727,  -6580116,  -6953553,
	-7334689,  -7724239,  -8122992,  -8531824,  -8951710,  -9383745,  -9829166,  -10289371,
	-10765963, -11260780, -11775955, -12313982, -12877800, -13470912, -14097542, -14762846,
	-15473213, -16236696, -17063647, -17967689, -18967268, -20088230, -21368424, -22866514,
	-24680767, -26995383, -30223877, -35685701,
};

Test(threshold, thresholds_of_the_default_trace)
{
	for (int k = 1; k <= 99; k++)
		cr_expect_eq(fr_threshold(7766, k), j_7766[k], "k = %d: %lld", k,
			     (long long)fr_threshold(7766, k));
}

/* floor(K * 1000 * ln((100 - k) / k)), by the C library; K * T is never near an integer. */
Test(threshold, thresholds_against_logarithms)
{
	static const int64_t totals[] = {1, 7, 10, 1000, 6739, 7766, 8832, 1 << 20};

	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++)
		for (int k = 1; k <= 99; k++) {
			long double t = 1000.0L * logl((long double)(100 - k) / k);

			cr_expect_eq(fr_threshold(totals[i], k),
				     (int64_t)floorl((long double)totals[i] * t), "K %lld, k %d",
				     (long long)totals[i], k);
		}
}

/* Score = how many k there are with delta <= J_k; on every step and beside it. */
Test(threshold, score_counts_thresholds)
{
	int64_t j[100];

	fr_thresholds_fill(7766, j);
	for (int k = 1; k <= 99; k++)
		for (int64_t d = j_7766[k] - 1; d <= j_7766[k] + 1; d++) {
			int want = 0;

			for (int i = 1; i <= 99; i++)
				want += d <= j_7766[i];
			cr_expect_eq(fr_score_fgd(j, d), want, "delta %lld", (long long)d);
		}
	cr_expect_eq(fr_score_fgd(j, 0), 50);
	cr_expect_eq(fr_score_fgd(j, INT64_C(8000) * 7766), 0);
	cr_expect_eq(fr_score_fgd(j, INT64_C(-8000) * 7766), 99);
	cr_expect_eq(fr_score_fgd(j, INT64_C(-39) * 7766), 50); /* lost in the steps of 40 milli */
	cr_expect_eq(fr_score_fgd(j, INT64_C(-41) * 7766), 51);
}

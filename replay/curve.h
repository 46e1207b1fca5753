/* The curve of a run over the load that has arrived, as the published protocol makes it: rows after
 * each arrival, averaged per percent of the cluster's GPU milli asked for so far.
 *
 * Percentages are integers in units of 0.01 %, rounded half to even. */
#ifndef TESSERA_REPLAY_CURVE_H
#define TESSERA_REPLAY_CURVE_H

#include <stdint.h>

#define RP_COLUMNS_MAX 1000 /* rows at or beyond 1000 % arrived are counted into no column */
#define RP_NO_VALUE INT64_MIN

struct rp_sums {
	int64_t rows, alloc, frag_centi, ratio;
};

struct rp_curve {
	int64_t total_milli; /* GPU milli of the cluster, > 0 */
	int32_t last;        /* largest column with rows, -1 = none */
	struct rp_sums sums[RP_COLUMNS_MAX];
};

struct rp_point {
	int64_t alloc; /* GPU milli in use, % of the cluster */
	int64_t frag;  /* F, % of the cluster */
	int64_t ratio; /* F, % of the idle GPU milli */
};

void rp_curve_init(struct rp_curve *c, int64_t total_milli);
/* One row: GPU milli that have arrived and that are in use; F = n / k milli; idle GPU milli. */
void rp_curve_add(struct rp_curve *c, int64_t arrived_milli, int64_t used_milli, int64_t n,
		  int64_t k, int64_t idle_milli);
/* The mean over the rows that round to `column` percent, else over those of the columns beside it;
 * all three RP_NO_VALUE where there are none. */
struct rp_point rp_curve_at(const struct rp_curve *c, int32_t column);

/* a / b rounded half to even; b > 0. */
int64_t rp_round_div(__int128 a, int64_t b);

#endif

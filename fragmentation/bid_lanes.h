/* Values over the grid of CPU prices, several prices at a time: a compiler left to itself unrolls loops of ten
 * into single instructions. Inside of bid-price only; see base/wide.h. */
#ifndef TESSERA_FRAGMENTATION_BID_LANES_H
#define TESSERA_FRAGMENTATION_BID_LANES_H

#include <string.h>

#include "fragmentation/bid.h"

#define FR_BID_LANES 3 /* vectors of four prices: the last two of twelve are none */

typedef int32_t fr_i32x4 __attribute__((vector_size(16)));
typedef int64_t fr_i64x4 __attribute__((vector_size(32)));
typedef uint64_t fr_u64x4 __attribute__((vector_size(32)));

_Static_assert(FR_BID_J == 10 && FR_BID_STRIDE >= 4 * FR_BID_LANES, "as the vectors");

/* A value at each price. */
struct fr_bid_lanes {
	fr_i32x4 v[FR_BID_LANES];
};

static inline struct fr_bid_lanes fr_bid_lanes_load(const int32_t *values)
{
	struct fr_bid_lanes l;

	memcpy(&l, values, sizeof(l));
	return l;
}

/* to += times * values */
static inline void fr_bid_lanes_add(struct fr_bid_lanes *to, const int32_t *values, int32_t times)
{
	struct fr_bid_lanes l = fr_bid_lanes_load(values);

	for (int i = 0; i < FR_BID_LANES; i++)
		to->v[i] += l.v[i] * times;
}

/* What a node is sold for at each price: its CPU (>= 0), at mu, and its devices. */
static inline void fr_bid_lanes_sum(const struct fr_bid_prices *p, int64_t cpu_milli,
				    const struct fr_bid_lanes *devices, fr_i64x4 ret[FR_BID_LANES])
{
	uint64_t cpu = (uint64_t)(cpu_milli < FR_BID_CPU_MAX ? cpu_milli : FR_BID_CPU_MAX);

	for (size_t i = 0; i < FR_BID_LANES; i++) {
		fr_u64x4 mu;

		memcpy(&mu, &p->mu[4 * i], sizeof(mu)); /* no product reaches the sign */
		ret[i] = (fr_i64x4)(mu * cpu >> 14) +
			 __builtin_convertvector(devices->v[i], fr_i64x4);
	}
}

/* The least of the ten. */
static inline int64_t fr_bid_lanes_min(const fr_i64x4 v[FR_BID_LANES])
{
	fr_i64x4 less = v[0] < v[1], both = (v[0] & less) | (v[1] & ~less);
	int64_t best = v[2][0] < v[2][1] ? v[2][0] : v[2][1];

	for (int i = 0; i < 4; i++)
		best = both[i] < best ? both[i] : best;
	return best;
}

#endif

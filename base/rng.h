/* A small seeded generator (splitmix64): the same sequence for the same seed on every machine.
 * Handed in by the shells; the core owns none. */
#ifndef TESSERA_BASE_RNG_H
#define TESSERA_BASE_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline void rng_init(struct rng *r, uint64_t seed)
{
	r->state = seed;
}

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Uniform in [0, n), n >= 1, without modulo bias. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;

	do
		x = rng_next(r);
	while (x >= limit);
	return x % n;
}

#endif

/* exp and ln in fixed point: tables and integer arithmetic only, so that every compiler, flag and
 * machine gives the same bits. */
#ifndef TESSERA_FRAGMENTATION_FIXED_H
#define TESSERA_FRAGMENTATION_FIXED_H

#include <stdint.h>

struct fr_fixed {
	uint32_t exp2[257]; /* 2^(-i/256), 30 fraction bits */
	uint32_t log2[257]; /* log2(1 + i/256), 24 fraction bits */
};

void fr_fixed_init(struct fr_fixed *f);

/* 2^x for x <= 0 with 16 fraction bits; the result has 30. Relative error below 1e-6. */
static inline uint32_t fr_exp2(const struct fr_fixed *f, int64_t x)
{
	uint64_t neg = (uint64_t)-x;
	uint32_t frac = neg & 0xffff, i = frac >> 8, rest = frac & 0xff;
	uint32_t v = f->exp2[i] - (uint32_t)(((uint64_t)(f->exp2[i] - f->exp2[i + 1]) * rest) >> 8);

	return neg >> 16 < 31 ? v >> (neg >> 16) : 0;
}

/* log2(v) for v >= 1, with 16 fraction bits. Absolute error below 4e-6 plus the last bit. */
static inline int32_t fr_log2(const struct fr_fixed *f, uint64_t v)
{
	int e = 63 - __builtin_clzll(v);
	uint64_t m = e >= 24 ? v >> (e - 24) : v << (24 - e); /* [2^24, 2^25) */
	uint32_t i = (uint32_t)(m >> 16) & 0xff, rest = (uint32_t)m & 0xffff;
	uint32_t l =
		f->log2[i] + (uint32_t)(((uint64_t)(f->log2[i + 1] - f->log2[i]) * rest) >> 16);

	return (e << 16) + (int32_t)(l >> 8);
}

/* A soft maximum with temperature t (in milli of a device): t ln sum w exp(x/t) / sum w.
 * Values have FR_PRICE_BITS fraction bits. */
#define FR_PRICE_BITS 10

struct fr_soft {
	int64_t to_exp; /* value difference -> argument of exp2: * to_exp >> 20 */
	int64_t to_val; /* log2 with 16 fraction bits -> value: * to_val >> 24 */
};

/* temperature in 1/10 milli. */
void fr_soft_init(struct fr_soft *s, int32_t temperature_tenths);

static inline uint32_t fr_soft_exp(const struct fr_fixed *f, const struct fr_soft *s, int64_t diff)
{
	return fr_exp2(f, (diff * s->to_exp) >> 20);
}

/* t * ln(num / den). */
static inline int32_t fr_soft_ln(const struct fr_fixed *f, const struct fr_soft *s, uint64_t num,
				 uint64_t den)
{
	return (int32_t)(((int64_t)(fr_log2(f, num) - fr_log2(f, den)) * s->to_val) >> 24);
}

#endif

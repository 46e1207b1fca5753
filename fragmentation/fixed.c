#include "fragmentation/fixed.h"

/* floor(sqrt(v)), bit by bit. */
static uint64_t isqrt(unsigned __int128 v)
{
	unsigned __int128 r = 0;

	for (int bit = 63; bit >= 0; bit--) {
		unsigned __int128 t = r | ((unsigned __int128)1 << bit);

		if (t * t <= v)
			r = t;
	}
	return (uint64_t)r;
}

void fr_fixed_init(struct fr_fixed *f)
{
	uint64_t root = UINT64_C(1) << 61; /* 1/2 with 62 fraction bits */
	unsigned __int128 v = (unsigned __int128)1 << 62;

	for (int i = 0; i < 8; i++) /* its 256th root */
		root = isqrt((unsigned __int128)root << 62);
	for (int i = 0; i <= 256; i++) {
		f->exp2[i] = (uint32_t)((v + (1u << 31)) >> 32);
		v = (v * root) >> 62;
	}
	for (uint64_t i = 0; i <= 256; i++) {
		uint64_t m = (256 + i) << 23; /* [1, 2] with 31 fraction bits */
		uint32_t l = 0;

		for (int bit = 23; bit >= 0; bit--) { /* log2 by squaring */
			m = (m * m) >> 31;
			if (m < UINT64_C(1) << 32)
				continue;
			l |= 1u << bit;
			m >>= 1;
		}
		f->log2[i] = i == 256 ? 1u << 24 : l;
	}
}

void fr_soft_init(struct fr_soft *s, int32_t temperature_tenths)
{
	/* log2(e) and ln(2) with 40 fraction bits. */
	const int64_t log2e = INT64_C(1586259972792), ln2 = INT64_C(762123384785);

	/* diff has 10 fraction bits, exp2 takes 16: times 2^6 * log2(e) / t, kept with 20 more. */
	s->to_exp = (int64_t)((__int128)log2e * 640 / temperature_tenths >> 20);
	/* log2 has 16 fraction bits, values 10: times t ln(2) / 2^6, kept with 24 more. */
	s->to_val = (int64_t)((__int128)ln2 * temperature_tenths / 10 >> 22);
}

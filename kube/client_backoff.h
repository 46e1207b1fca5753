/* Waiting after failures: 0.8 s doubled up to 30 s, with jitter; starts over after two quiet minutes.
 * Source: client-go's reflector. */
#ifndef TESSERA_KUBE_CLIENT_BACKOFF_H
#define TESSERA_KUBE_CLIENT_BACKOFF_H

#include <stdint.h>

#include "base/rng.h"

#define KU_BACKOFF_MIN_US INT64_C(800000)
#define KU_BACKOFF_MAX_US INT64_C(30000000)
#define KU_BACKOFF_RESET_US INT64_C(120000000)

/* Zeroed = no failure yet. */
struct ku_backoff {
	int64_t base_us; /* of the last wait */
	int64_t last_us; /* when it was asked for */
};

/* How long to wait now: between base and twice base, never above KU_BACKOFF_MAX_US. */
static inline int64_t ku_backoff_next_us(struct ku_backoff *b, struct rng *rng, int64_t now_us)
{
	int64_t wait;

	if (b->base_us == 0 || now_us - b->last_us > KU_BACKOFF_RESET_US)
		b->base_us = KU_BACKOFF_MIN_US;
	else
		b->base_us =
			b->base_us * 2 < KU_BACKOFF_MAX_US ? b->base_us * 2 : KU_BACKOFF_MAX_US;
	b->last_us = now_us;
	wait = b->base_us + (int64_t)rng_below(rng, (uint64_t)b->base_us);
	return wait < KU_BACKOFF_MAX_US ? wait : KU_BACKOFF_MAX_US;
}

static inline void ku_backoff_reset(struct ku_backoff *b)
{
	*b = (struct ku_backoff){0};
}

#endif

/* A clock that only the test moves. Any thread reads it. */
#ifndef TESSERA_TEST_FAKE_CLOCK_H
#define TESSERA_TEST_FAKE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "kube/client.h"

struct fake_clock {
	_Atomic int64_t mono_us, wall_us;
};

static inline int64_t fake_clock_mono(void *ctx)
{
	return atomic_load(&((struct fake_clock *)ctx)->mono_us);
}

static inline int64_t fake_clock_wall(void *ctx)
{
	return atomic_load(&((struct fake_clock *)ctx)->wall_us);
}

/* Starts at a round time: 1,000 s monotonic, 2026-01-02T03:04:05Z. */
static inline struct ku_clock fake_clock_init(struct fake_clock *c)
{
	atomic_init(&c->mono_us, INT64_C(1000000000));
	atomic_init(&c->wall_us, INT64_C(1767323045000000));
	return (struct ku_clock){.mono_us = fake_clock_mono, .wall_us = fake_clock_wall, .ctx = c};
}

/* Forward by ms; then the client looks at it (NULL: none does). */
static inline void fake_clock_add(struct fake_clock *c, int64_t ms, struct ku_client *client)
{
	atomic_fetch_add(&c->mono_us, ms * 1000);
	atomic_fetch_add(&c->wall_us, ms * 1000);
	if (client != NULL)
		ku_client_wake(client);
}

#endif

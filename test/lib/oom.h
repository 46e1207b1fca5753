/* Out-of-memory sweep. The Criterion programs are linked with -Wl,--wrap for malloc, calloc,
 * realloc, reallocarray, strdup and strndup, so that calls from our own objects (not those from
 * inside shared libraries) pass here. Use:
 *
 *	OOM_SWEEP(n) {
 *		oom_fail_at(n);
 *		r = function_under_test(...);
 *		hit = oom_disarm();
 *		if (!hit)
 *			break; -- everything was allocated: r must be success
 *		-- r must be the out-of-memory error, the state must be as before
 *	}
 *
 * Assert only after oom_disarm(). Counters are one per thread. */
#ifndef TESSERA_TEST_OOM_H
#define TESSERA_TEST_OOM_H

#include <stdbool.h>

/* The n-th allocation from now (1 = the next) of this thread fails, once. */
void oom_fail_at(unsigned n);
/* As oom_fail_at(), and all later ones fail too until oom_disarm(). */
void oom_fail_from(unsigned n);
/* No more failures; true when one happened since arming. */
bool oom_disarm(void);
/* Allocations of this thread since the last arming, or since its start. */
unsigned oom_count(void);

/* 1, 2, 3, ...; ends by break, or by itself at a bound no function under test should reach. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): n is a name that is declared here */
#define OOM_SWEEP(n) for (unsigned n = 1; n < 100000; n++)

#endif

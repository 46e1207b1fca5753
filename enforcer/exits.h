/* Tells at once when a container's first process has ended: by pidfds, on a thread of its own. The runtime
 * tells it, too, but containerd does so beside removing the container, and the cgroup may be gone by then. */
#ifndef TESSERA_ENFORCER_EXITS_H
#define TESSERA_ENFORCER_EXITS_H

#include <stdint.h>

#include "base/err.h"
#include "enforcer/pulse.h"

struct en_exits;

/* fn is called on that thread, once for each process, without a lock; ctx outlives the thread. pulses may be
 * NULL. ERR_NOMEM, ERR_IO. */
int en_exits_new(void (*fn)(void *ctx, const char *id), void *ctx, struct en_pulses *pulses,
		 struct en_exits **ret, struct err *err);
/* Ends the thread; processes that run are not told of. NULL is fine. */
void en_exits_free(struct en_exits *x);

/* Watches a process under a name; one that is watched already is left as it is. Thread-safe. ERR_NOT_FOUND: no
 * such process (any more); ERR_IO: the kernel cannot (before 5.3), or too many files; ERR_NOMEM. */
int en_exits_watch(struct en_exits *x, const char *id, uint32_t pid, struct err *err);

#endif

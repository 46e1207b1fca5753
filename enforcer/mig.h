/* GPU instances made when a container wants them and removed when they are idle.
 *
 * An instance is ours when this made it (a file of /run remembers, so that the next agent knows) or when a
 * container of ours holds it. Others' instances are never touched. An idle one is kept for a while: an
 * equal request gets it without the driver's seconds; one that is in the way of a request is removed at
 * once. Thread-safe; the driver is called with a lock of this module, so one instance is made after the
 * other. Nothing survives a reboot, neither instances nor the file. */
#ifndef TESSERA_ENFORCER_MIG_H
#define TESSERA_ENFORCER_MIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "enforcer/apply_ledger.h"
#include "enforcer/probe.h"

enum en_mig_way {
	EN_MIG_STATIC,  /* what is cut is all there is: nothing is made or removed */
	EN_MIG_DYNAMIC, /* instances are made on GPUs in MIG mode */
	EN_MIG_SWITCH, /* ... and idle GPUs are switched into and out of it, where no reset is needed */
};
int en_mig_way_parse(const char *s); /* "static", "dynamic", "switch"; -1 for others */

#define EN_MIG_PENDING_MS 15000 /* an instance just made is not idle: its container comes to be */

struct en_mig_options {
	enum en_mig_way way;
	const char *library; /* NULL: libnvidia-ml.so.1; copied */
	const char *path;    /* of the file that remembers; NULL: none; copied */
	int64_t linger_ms;   /* idle instances and modes are kept for so long */
	struct log *log;     /* may be NULL */
	/* Does a container hold the instance of that GPU at that start (-1: anything of that GPU)? Called
	 * with the lock of this module. */
	bool (*held)(void *ctx, const char *gpu_uuid, int start);
	void *ctx;
};

struct en_mig;

int en_mig_new(const struct en_mig_options *o, struct en_mig **ret,
	       struct err *err); /* ERR_NOMEM */
void en_mig_free(struct en_mig *m);

/* Sees to it that all instances of a MIG grant are there; probe is the node as it was last seen. What was
 * made is removed again where one of them fails. ERR_NO_ROOM, ERR_CONFLICT (an instance of others is in
 * the way, or the GPU is in use), ERR_IO, ERR_NOMEM: in words for the container's owner. */
int en_mig_make(struct en_mig *m, const struct en_probe *probe, const struct en_holding *h,
		int64_t now_ms, struct err *err);
/* The container is gone, or will not be: its instances may go once they lingered. */
void en_mig_drop(struct en_mig *m, const struct en_holding *h, int64_t now_ms);
/* Removes what has been idle for long enough, and switches modes back that this switched on. Returns how
 * many instances and modes it changed. For every look at the node. */
unsigned en_mig_sweep(struct en_mig *m, const struct en_probe *probe, int64_t now_ms);
/* How many this has made so far: to be asked before a look at the node, for the probe's mig_made. Does not
 * wait for the driver. */
uint64_t en_mig_made(const struct en_mig *m);
/* Writes into a probe what this module knows: instances that are ours, those made since it was taken, and
 * what may be switched. One that was made before and is not in it is gone: others removed it. */
void en_mig_mark(struct en_mig *m, struct en_probe *probe);

enum en_mig_failure {
	EN_MIG_NO_ROOM,  /* the driver: insufficient resources */
	EN_MIG_OCCUPIED, /* an instance in use, or one of others, is in the way */
	EN_MIG_MODE,     /* the GPU is not in MIG mode, and cannot be switched now */
	EN_MIG_DRIVER,   /* anything else with making */
	EN_MIG_REMOVE,   /* an idle instance could not be removed; it is tried again */
	EN_MIG_FAILURES,
};
const char *en_mig_failure_name(enum en_mig_failure f);

/* Since this was made; failures count requests, and tries to remove. */
struct en_mig_stats {
	uint64_t made, reused, removed;
	uint64_t vanished; /* ours, and removed by others */
	uint64_t failed[EN_MIG_FAILURES];
	uint64_t switched_on, switched_off;
	size_t ours, lingering; /* now */
};
/* As of the last call that ended: waits for none that the driver is at. */
void en_mig_get_stats(struct en_mig *m, struct en_mig_stats *ret);

#endif

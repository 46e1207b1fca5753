/* A small kube-scheduler: filter, prioritize and bind calls to an extender, pod after pod, with
 * binds in the background. */
#ifndef TESSERA_REPLAY_DRIVE_H
#define TESSERA_REPLAY_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "replay/order.h"
#include "replay/stats.h"
#include "replay/trace.h"

enum rp_verb { RP_FILTER, RP_PRIORITIZE, RP_BIND, RP_VERBS };

struct rp_drive_options {
	const char *url;
	uint64_t seed;      /* of the coin among equal scores */
	uint64_t run;       /* makes pod UIDs of different runs differ */
	int64_t rate;       /* pods started a second; 0 = as fast as it goes */
	size_t concurrency; /* binds in flight; 1 = each pod waits for the bind of the last */
	size_t limit;       /* arrivals; 0 = all */
	int64_t retries;    /* of a pod whose bind was refused */
	bool first;         /* of equal scores the first wins, not a coin */
	bool decisions;     /* ask for the GPUs given at the end */
	void (*progress)(void *ctx, size_t done, size_t total);
	void *progress_ctx;
};

struct rp_drive_result {
	size_t pods, placed;
	size_t unschedulable; /* no node passed filter */
	size_t given_up;      /* bind refused once more than retries allow */
	size_t retried;
	int64_t calls_refused[RP_VERBS]; /* replies with Error set or an HTTP status beside 200 */
	double wall_s;
	struct rp_times times[RP_VERBS];
	struct rp_tally *refusals[RP_VERBS]; /* texts; of filter those of pods that got no node */
	struct buf decisions;                /* lines step,pod,node,gpus of all arrivals */
	uint32_t placements_crc32; /* over them, as rp_run() has it; 0 without decisions */
};

/* Drives the arrivals through the extender. The nodes of the trace are those asked about. ERR_IO: no
 * connection, no reply, or a reply that is not what an extender answers; ERR_NOMEM. *ret is to be
 * freed with rp_drive_result_fini() after success only. */
int rp_drive(const struct rp_trace *t, const struct rp_order *o, const struct rp_drive_options *opt,
	     struct rp_drive_result *ret, struct err *err);
void rp_drive_result_fini(struct rp_drive_result *r);

/* The UID of the pod that arrives in that step. */
#define RP_UID_CAP 40
const char *rp_drive_uid(uint64_t run, size_t step, char buf[RP_UID_CAP]);

#endif

/* One replay: each arrival is placed by the placement code that the extender uses, or fails. */
#ifndef TESSERA_REPLAY_RUN_H
#define TESSERA_REPLAY_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"
#include "replay/curve.h"
#include "replay/order.h"
#include "replay/stranded.h"
#include "replay/trace.h"

struct rp_run_options {
	const struct po_policy *policy;
	enum po_ties ties;
	uint64_t seed; /* of random policies and ties */
	/* Where not NULL, gets the line `step,pod,node,gpus,N` of each arrival; N = cluster sum of the
	 * policy's measure (FGD's where it has none) after it. */
	struct buf *decisions;
	/* Called now and then with the arrivals done; may be NULL. */
	void (*progress)(void *ctx, size_t done, size_t total);
	void *progress_ctx;
	/* The placer estimates the workload from the pods placed so far, as the extender does; else it
	 * is the trace's. What is reported is always FGD's measure for the trace's. */
	bool online;
	bool why;          /* find out what keeps idle GPU from being used at the end */
	size_t shapes_max; /* request shapes the placer caches; 0 = all */
	bool bare;  /* for a stage of one's own: FGD's measure is not kept beside the policy's */
	bool check; /* recount the whole model by brute force at the end */
};

struct rp_result {
	const char *policy;
	enum po_ties ties;
	uint64_t seed;
	size_t arrivals, placed;
	size_t failed[RP_KINDS];
	int64_t total_milli, used_milli; /* of the cluster's GPUs; in use at the end */
	int64_t measure_num;             /* N at the end, as in decisions */
	uint32_t placements_crc32;       /* zlib's CRC-32 over the lines `step,pod,node,gpus\n` */
	double wall_s, cpu_s;
	struct rp_curve curve;
	struct rp_stranded end; /* where options.why is set */
};

/* Replays the order on a fresh cluster. ERR_INVALID: the nodes have no GPU. ERR_NOMEM, ERR_INTERNAL.
 * *ret is written only on success. */
int rp_run(const struct rp_trace *t, const struct rp_order *o, const struct rp_run_options *opt,
	   struct rp_result *ret, struct err *err);

static inline size_t rp_result_failed(const struct rp_result *r)
{
	return r->arrivals - r->placed;
}

#endif

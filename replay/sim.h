/* A replay over time: pods arrive, wait where there is no room, run and leave. Driven by events, so
 * the time it takes depends on the number of pods and not on the span. */
#ifndef TESSERA_REPLAY_SIM_H
#define TESSERA_REPLAY_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/run.h"
#include "replay/timeline.h"
#include "replay/trace.h"

enum rp_queue {
	/* Whatever fits starts, oldest first: a waiting pod is passed by smaller ones, as under
	 * kube-scheduler among pods of one priority. Large pods may wait for long. */
	RP_QUEUE_BACKFILL,
	RP_QUEUE_FIFO, /* none starts before the one that came before it has */
	RP_QUEUE_NONE, /* what does not fit on arrival is refused */
};

struct rp_sim_options {
	struct rp_run_options run; /* decisions, if any: `ms,pod,node,gpus`, node empty = refused */
	enum rp_queue queue;
	int64_t max_wait_ms; /* a pod that waited this long is refused; 0 = it waits on */
};

/* Means over one part of the time measured. */
#define RP_SIM_POINTS 200
struct rp_sim_point {
	int64_t at_ms;         /* where the part begins */
	int64_t used_milli;    /* GPU in use */
	int64_t waiting_milli; /* GPU asked for by the pods that wait */
	int64_t waiting_pods_centi;
	int64_t frag_milli; /* FGD's F at the end of the part; RP_NO_VALUE: not known */
};

struct rp_sim_result {
	const char *policy;
	enum po_ties ties;
	uint64_t seed;
	int64_t total_milli;
	/* Of the arrivals in the time measured: */
	size_t arrivals, at_once, waited, refused, impossible; /* impossible: of the refused */
	size_t refused_by_kind[RP_KINDS];
	size_t unfinished; /* still waiting at the end of it; neither placed nor refused */
	/* GPU time, in milli of a GPU * seconds: of the arrivals; of the pods refused; waited by pods,
	 * counted as their GPU demand times the time until they started, or were given up. */
	int64_t asked_gpu_s, refused_gpu_s, waited_gpu_s;
	/* Waiting times of those that were placed, those that did not wait included, in ms. */
	int64_t wait_mean_ms, wait_p50_ms, wait_p95_ms, wait_p99_ms, wait_max_ms;
	int64_t used_centi; /* mean GPU in use, 0.01 % of the cluster */
	int64_t frag_centi; /* mean of F, likewise */
	int64_t begin_ms, end_ms;
	uint32_t placements_crc32; /* over the decisions' lines, warm-up included */
	struct rp_stranded end;    /* where options.run.why is set */
	struct rp_sim_point points[RP_SIM_POINTS];
	double wall_s, cpu_s;
};

/* Plays the timeline on a fresh cluster. ranks: by node, or NULL. Departures come before arrivals of
 * the same moment. ERR_INVALID, ERR_NOMEM, ERR_INTERNAL. *ret is written only on success. */
int rp_sim(const struct rp_trace *t, const uint32_t *ranks, const struct rp_timeline *l,
	   const struct rp_sim_options *opt, struct rp_sim_result *ret, struct err *err);

#endif

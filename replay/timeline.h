/* When the pods of a trace come and how long they stay, for replays over time. */
#ifndef TESSERA_REPLAY_TIMELINE_H
#define TESSERA_REPLAY_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/trace.h"

struct rp_visit {
	int64_t at_ms, stay_ms; /* arrival, from the start; time it runs once placed */
	uint32_t pod;           /* index in the trace's pods */
};

struct rp_timeline {
	struct rp_visit *visits; /* by arrival; owned */
	size_t count;
	size_t left_out;  /* pods of the trace without a known stay */
	int64_t begin_ms; /* what is measured begins here ... */
	int64_t end_ms;   /* ... and ends with the last arrival */
};

void rp_timeline_fini(struct rp_timeline *l);

/* Arrivals and stays as the trace has them; pods of which either is not known are left out. Equal
 * times keep the order of the trace. ERR_INVALID: no pod has times. ERR_NOMEM. */
int rp_timeline_trace(const struct rp_trace *t, struct rp_timeline *ret, struct err *err);

/* A made-up timeline: arrivals at random (a Poisson process), pods drawn from the trace, stays from
 * a log-normal distribution.
 *
 * The published figures behind the defaults: openb's GPU pods stay 48 / 653 / 16,921 s (5th, 50th,
 * 95th percentile), so median 650 s and sigma 1.78; no stay is longer than 31 days, the span of the
 * 2025 trace. The trace's own stays are used where own_stays is set and the pod has one. At time 0
 * come the pods that would be running by then at that load, with what is left of their stays, so that
 * long stays do not take weeks to show. */
struct rp_made {
	uint64_t seed;
	size_t count;       /* arrivals; 0 = each pod of the trace once, shuffled */
	int64_t load_nano;  /* GPU time asked for / GPU time of the cluster */
	int64_t median_ms;  /* of the stays */
	int64_t sigma_nano; /* of ln(stay) */
	bool own_stays;
};
#define RP_MADE_DEFAULT                                                                            \
	{                                                                                          \
		.seed = 42, .load_nano = 950000000, .median_ms = 650000, .sigma_nano = 1780000000  \
	}
/* What is measured begins after the first quarter. ERR_INVALID: no pod asks for a GPU; ERR_NOMEM. The
 * same options give the same timeline on every machine. */
int rp_timeline_made(const struct rp_trace *t, const struct rp_made *how, struct rp_timeline *ret,
		     struct err *err);

#endif

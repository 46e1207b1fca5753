/* How a replay over time is to be made: the options --time, --queue, --max-wait, --arrivals, --load and
 * --stay of several commands. */
#ifndef TESSERA_REPLAY_TIME_PLAN_H
#define TESSERA_REPLAY_TIME_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/command.h"
#include "replay/sim.h"
#include "replay/timeline.h"

/* As given; NULL and 0: not. */
struct rp_time_args {
	const char *time, *queue;
	int64_t arrivals, load_nano, median_s, max_wait_s;
};

#define RP_TIME_OPTIONS(a)                                                                         \
	{"time",                                                                                   \
	 "trace|stays|made",                                                                       \
	 RP_OPT_TEXT,                                                                              \
	 &(a).time,                                                                                \
	 0,                                                                                        \
	 0,                                                                                        \
	 "pods arrive, wait, run and leave: at the trace's own times; at made-up times, with\n"    \
	 "the trace's stays where known; or with stays made up too"},                              \
		{"queue",                                                                          \
		 "backfill|fifo|none",                                                             \
		 RP_OPT_TEXT,                                                                      \
		 &(a).queue,                                                                       \
		 0,                                                                                \
		 0,                                                                                \
		 "with --time, pods without room: wait, and are passed by those that fit; wait\n"  \
		 "strictly in line; are refused. backfill"},                                       \
		{"max-wait",                                                                       \
		 "SECONDS",                                                                        \
		 RP_OPT_INTEGER,                                                                   \
		 &(a).max_wait_s,                                                                  \
		 1,                                                                                \
		 4000000000,                                                                       \
		 "with --time: a pod that waited so long is refused; no bound"},                   \
		{"arrivals",                                                                       \
		 "N",                                                                              \
		 RP_OPT_INTEGER,                                                                   \
		 &(a).arrivals,                                                                    \
		 1,                                                                                \
		 100000000,                                                                        \
		 "with --time stays|made: so many pods drawn from the trace; each of it once"},    \
		{"load",                                                                           \
		 "R",                                                                              \
		 RP_OPT_DECIMAL,                                                                   \
		 &(a).load_nano,                                                                   \
		 1000000,                                                                          \
		 INT64_C(100000000000),                                                            \
		 "with --time stays|made: GPU time asked for, as a part of the cluster's; 0.95"},  \
	{                                                                                          \
		"stay", "SECONDS", RP_OPT_INTEGER, &(a).median_s, 1, 2678400,                      \
			"with --time stays|made: median of the stays that are made up; 650"        \
	}

struct rp_time_plan {
	bool made;          /* arrivals from `how`, else the trace's own */
	struct rp_made how; /* its seed is that of each run */
	enum rp_queue queue;
	int64_t max_wait_ms; /* 0 = no bound */
};

/* *ret_over_time: --time was given, and *ret is the plan. ERR_INVALID: options that do not go together. */
int rp_time_parse(const struct rp_time_args *a, const struct rp_inputs *in,
		  struct rp_time_plan *ret, bool *ret_over_time, struct err *err);
/* Who comes when. Errors of rp_timeline_made() and rp_timeline_trace(). */
int rp_time_arrivals(const struct rp_time_plan *p, const struct rp_trace *t, uint64_t seed,
		     struct rp_timeline *ret, struct err *err);

#endif

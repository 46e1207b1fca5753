/* Inside of the planner: trying clusters (plan_try.c) and searching among them (plan.c). */
#ifndef TESSERA_REPLAY_PLAN_INTERNAL_H
#define TESSERA_REPLAY_PLAN_INTERNAL_H

#include "replay/plan.h"

struct rp_plan_counts {
	int64_t n[RP_NODE_TYPES_MAX];
};

struct rp_planner {
	const struct rp_trace *t;
	const struct rp_node_type *types;
	size_t type_count;
	const struct rp_plan_options *opt;
	uint32_t *pods[RP_PLAN_SEEDS_MAX]; /* arrivals of each seed */
	size_t pod_count, may_fail;
	/* At least this much of each is used by any cluster that does: GPU milli, CPU, memory. */
	int64_t need[3];
	size_t tried;
};

/* sample > 0: only so many of the arrivals are looked at. ERR_NOMEM, ERR_INVALID (no pods, no types). To be closed also after an error. */
int rp_planner_open(struct rp_planner *p, const struct rp_trace *t,
		    const struct rp_node_type *types, size_t type_count,
		    const struct rp_plan_options *opt, size_t sample, struct err *err);
void rp_planner_close(struct rp_planner *p);

int64_t rp_planner_cost(const struct rp_planner *p, const struct rp_plan_counts *c);
/* No cluster of these types costs less. */
int64_t rp_planner_bound(const struct rp_planner *p);
/* Are there enough of all resources in sum? */
bool rp_planner_enough(const struct rp_planner *p, const struct rp_plan_counts *c);
/* 1 it does, 0 not, or an error. With a point everything is played to its end. Thread-safe. */
int rp_planner_try(const struct rp_planner *p, const struct rp_plan_counts *c,
		   struct rp_plan_point *point, struct err *err);
/* Tries all of them, on the threads of the options; ret[i] as above. points may be NULL. An error. */
int rp_planner_try_all(struct rp_planner *p, const struct rp_plan_counts *list, size_t count,
		       int *ret, struct rp_plan_point *points, struct err *err);

/* The kinds of pods that fit on no empty node of any type, the most pods first: how many, one by name, and
 * why. text is "" where there are none. Errors of memory only. */
int rp_planner_misfits(const struct rp_planner *p, char *text, size_t cap, struct err *err);

#endif

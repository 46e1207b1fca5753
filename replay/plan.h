/* The cheapest cluster of given node types that places a workload, found by search. */
#ifndef TESSERA_REPLAY_PLAN_H
#define TESSERA_REPLAY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/policy.h"
#include "replay/node_type.h"
#include "replay/progress.h"
#include "replay/trace.h"

#define RP_PLAN_SEEDS_MAX 32

struct rp_plan_options {
	const struct po_policy *policy;
	const uint64_t *seeds; /* an arrival order each; the plan holds in every one of them */
	size_t seed_count;
	int64_t success_nano;  /* share of the pods that must be placed */
	int64_t headroom_nano; /* pods beyond the workload that must be placed too, as a share */
	size_t jobs;           /* threads; the plan does not depend on it */
	size_t prove_max;      /* cheaper clusters tried one by one, to prove that there is none */
	struct rp_progress *progress; /* may be NULL */
};
#define RP_PLAN_PROVE_DEFAULT 2000

#define RP_PLAN_CURVE 13 /* 60 % .. 120 % of the plan, in steps of 5 % */

struct rp_plan_point {
	int percent; /* of the plan's nodes of each type, rounded up */
	int64_t cost_nano, nodes, gpus;
	int64_t placed_centi; /* pods placed, 0.01 %, in the worst seed */
	int64_t used_centi;   /* GPU in use, 0.01 % of the cluster, mean of the seeds */
};

struct rp_plan {
	int64_t counts[RP_NODE_TYPES_MAX];
	struct rp_plan_point at;
	size_t pods; /* with the headroom */
	/* No cluster can cost less, by sums of resources alone. */
	int64_t bound_nano;
	bool proved; /* every cheaper cluster was tried: this is the cheapest */
	size_t tried;
	struct rp_plan_point curve[RP_PLAN_CURVE];
};

/* Searches. ERR_NOT_FOUND: not even with all nodes to be had; the message says what was placed at
 * most. ERR_NOMEM, ERR_INTERNAL. *ret is written only on success. */
int rp_plan_find(const struct rp_trace *t, const struct rp_node_type *types, size_t type_count,
		 const struct rp_plan_options *opt, struct rp_plan *ret, struct err *err);

/* Does that cluster do? What the search asks; for tests. 1 yes, 0 no, or an error. point may be NULL. */
int rp_plan_try(const struct rp_trace *t, const struct rp_node_type *types, const int64_t *counts,
		size_t type_count, const struct rp_plan_options *opt, struct rp_plan_point *point,
		struct err *err);

#endif

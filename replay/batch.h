/* Runs for each policy, tie-break and seed, several at the same time. */
#ifndef TESSERA_REPLAY_BATCH_H
#define TESSERA_REPLAY_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "replay/command.h"
#include "replay/run.h"
#include "replay/sim.h"
#include "replay/time_plan.h"

struct rp_batch {
	const struct rp_trace *t;
	const struct rp_inputs *in;
	const struct po_policy *policies[RP_POLICIES_MAX];
	size_t policy_count;
	enum po_ties ties[2];
	size_t ties_count;
	uint64_t seeds[RP_SEEDS_MAX];
	size_t seed_count;
	int64_t jobs; /* 0 = one for each CPU */
	bool online, check, why;
	struct buf *decisions;           /* of the only run; may be NULL */
	const struct rp_time_plan *time; /* NULL: pods come and stay */
};

static inline size_t rp_batch_count(const struct rp_batch *b)
{
	return b->policy_count * b->ties_count * b->seed_count;
}

/* Fills rp_batch_count() results, grouped by policy and tie-break, seeds within; `sims` where there
 * is a time plan, else `results`. They do not depend on the number of jobs. */
int rp_batch_run(const struct rp_batch *b, struct rp_result *results, struct rp_sim_result *sims,
		 struct err *err);

#endif

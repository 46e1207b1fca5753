/* MIG workloads: instances that come and go, and how many of them each policy finds room for. */
#ifndef TESSERA_REPLAY_MIG_H
#define TESSERA_REPLAY_MIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "policy/policy.h"
#include "state/mig.h"

/* Weights of the profiles of a geometry. */
struct rp_mig_mix {
	char name[32];
	int64_t weight[ST_MIG_PROFILES_MAX];
	int64_t total;
};

/* "uniform", "small", "large", "bimodal", "middle", "ends", or PROFILE=WEIGHT,... The named ones are
 * weights of the plain profiles by size. ERR_INVALID with the word that is wrong. */
int rp_mig_mix_parse(const struct st_mig_geometry *g, const char *text, struct rp_mig_mix *ret,
		     struct err *err);

/* Memory units of a GPU with these instances that are free and out of reach of the mix: mean over its
 * profiles, by weight (FGD's F carried over to starts). */
double rp_mig_stranded(const struct st_mig_geometry *g, const struct rp_mig_mix *mix,
		       uint64_t placed);

struct rp_mig_options {
	const struct st_mig_geometry *geometry;
	const char *product; /* of which the geometry is */
	int32_t mem_mib;     /* of each GPU */
	const struct rp_mig_mix *mix;
	uint32_t nodes;
	uint32_t gpus_per_node;
	int64_t load_permille; /* memory units asked for, as a part of all, were all placed; 1000 = all */
	uint32_t warm, length; /* mean stays before counting, and counted */
	bool online;           /* the placer estimates the mix, as the extender does */
	const struct po_policy
		*policy; /* NULL: instances are moved at any time and without cost, so that
					 * one finds room where any arrangement of all has it
					 * (rp_mig_packs_known(), mig_bound.h) */
	uint64_t seed;
};

struct rp_mig_result {
	int64_t arrivals, placed;            /* counted workloads */
	int64_t units_arrived, units_placed; /* memory units */
	double stranded; /* rp_mig_stranded(): mean over arrivals and GPUs; 0 without a policy */
	double cpu_s;
};

/* One run: arrivals at random times (a Poisson process), stays drawn from an exponential distribution,
 * what finds no room is lost. The trace is a function of everything but the policy. ERR_NOMEM,
 * ERR_INTERNAL. */
int rp_mig_run(const struct rp_mig_options *opt, struct rp_mig_result *ret, struct err *err);

/* The options of `run` that make it a MIG run, and the run itself: exit status. */
struct rp_mig_args {
	const char *workload, *product;
	int64_t gpus, gpus_per_node, load_nano, length;
	const struct po_policy *const *policies;
	size_t policy_count;
	const uint64_t *seeds;
	size_t seed_count;
	bool online, json, bounds;
};
int rp_mig_command(const struct rp_mig_args *a);

#endif

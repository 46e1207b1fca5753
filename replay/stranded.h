/* Where a cluster's GPU is idle, and what keeps it from being used. */
#ifndef TESSERA_REPLAY_STRANDED_H
#define TESSERA_REPLAY_STRANDED_H

#include <stdint.h>

#include "base/err.h"
#include "policy/policy.h"
#include "replay/trace.h"
#include "state/cluster.h"

/* Why idle GPU of a node is of no use to a pod; what it is asked first comes first. */
enum rp_why {
	RP_WHY_USABLE,   /* it is of use: the pod fits there */
	RP_WHY_CPU,      /* the node's CPU is used up */
	RP_WHY_MEMORY,   /* or its host memory */
	RP_WHY_FRACTION, /* what is left of each GPU is too small, or too few GPUs are idle */
	RP_WHY_MODE,     /* the GPUs with room are in another mode, or full of clients */
	RP_WHY_MIG,      /* no start for that MIG profile, or no MIG at all */
	RP_WHY_PRODUCT,  /* another product */
	RP_WHY_OTHER,    /* node or GPU in trouble */
	RP_WHYS,
};

#define RP_MODELS_MAX 16
struct rp_model_use {
	char name[64]; /* "" = unknown; the last one is of all further models */
	int64_t total_milli, used_milli;
};

struct rp_stranded {
	int64_t idle_milli; /* of the whole cluster */
	int64_t why_milli
		[RP_WHYS]; /* its parts, as a pod drawn from the trace's GPU pods meets them */
	size_t model_count;
	struct rp_model_use models[RP_MODELS_MAX];
};

/* As the cluster is now. The pods are those of the trace by number; nothing changes but caches.
 * ERR_NOMEM. */
int rp_stranded_find(const struct rp_trace *t, const struct st_cluster *c, struct po_placer *p,
		     struct rp_stranded *ret, struct err *err);

const char *rp_why_key(enum rp_why w);  /* "fraction" */
const char *rp_why_text(enum rp_why w); /* "parts too small" */

#endif

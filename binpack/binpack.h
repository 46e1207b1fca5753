/* Chooses the GPUs (and MIG starts) on one node for a request, and says why there are none. */
#ifndef TESSERA_BINPACK_H
#define TESSERA_BINPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "fragmentation/measure.h"
#include "state/cluster.h"

/* Why a node cannot take a request. Order: what eviction cannot mend first. */
enum bp_verdict {
	BP_OK,
	/* eviction would not help */
	BP_NO_NODE,        /* not a node we know */
	BP_NO_GPU,         /* the node has no GPU */
	BP_PRODUCT,        /* no GPU of an accepted product */
	BP_TOO_LARGE,      /* a request or limit larger than any GPU of the node */
	BP_TOO_MANY,       /* more GPUs than the node has */
	BP_ONLY_MIG,       /* all its GPUs are partitioned by MIG, and the request is not for MIG */
	BP_NO_MIG,         /* no GPU of the node can have that MIG profile */
	BP_HOST_TOO_SMALL, /* CPU or host memory of the whole node too small */
	BP_UNREADY,        /* node not ready, or removed */
	BP_FENCED,         /* a pod there has an unreadable allocation */
	BP_TAKEN,          /* all GPUs unhealthy, foreign or gone */
	/* busy: eviction might help */
	BP_CPU,
	BP_HOST_MEMORY,
	BP_PODS,
	BP_MODE,   /* GPUs with room are in another mode */
	BP_MEMORY, /* no GPU has that much memory free */
	BP_CLIENTS,
	BP_COMPUTE,
	BP_LIMIT,       /* sum of limits would pass the overcommit bound */
	BP_NOT_IDLE,    /* too few idle GPUs for a whole-GPU request */
	BP_MIG_ROOM,    /* no legal start free */
	BP_TOO_FEW,     /* GPUs that fit exist, but fewer than asked for */
	BP_COMBINATION, /* each container alone would fit, all together do not */
	BP_VERDICT_COUNT,
};

/* May evicting pods change the verdict (FailedNodes), or not (FailedAndUnresolvableNodes)? */
bool bp_verdict_resolvable(enum bp_verdict v);
/* A fixed text for the verdict, short and without numbers: "no GPU has enough memory free". */
const char *bp_verdict_text(enum bp_verdict v);
/* The same with this node's numbers, e.g. "3 GPUs: 2 in sm-sharing, 1 has 8192 of 20480 MiB free".
 * Writes at most cap bytes, NUL-terminated; returns buf. */
char *bp_explain(const struct st_cluster *c, uint32_t node, const struct st_request *req,
		 enum bp_verdict v, char *buf, unsigned cap);

/* How to pick among the GPUs that fit one item. */
enum bp_pick {
	BP_PICK_MEASURE,   /* best score by the measure, then lowest index */
	BP_PICK_BEST_FIT,  /* least memory left, then lowest index; MIG: lowest start that fits */
	BP_PICK_FIRST,     /* lowest index; MIG: lowest start */
	BP_PICK_WORST_FIT, /* most memory left */
	BP_PICK_RANDOM,    /* by the hash of (salt, index) */
};

struct bp_chooser {
	enum bp_pick pick;
	struct fr_measure *measure; /* not NULL for BP_PICK_MEASURE; synced for the node */
	uint64_t salt;
};

/* Chooses on the node; allocates nothing, changes nothing. BP_OK: *ret is a complete decision that
 * st_cluster_reserve() will accept on this state. ret_score (may be NULL): the measure's score of
 * the whole decision for BP_PICK_MEASURE, else 0. Finds a choice whenever one exists (exhaustive
 * over distinguishable GPUs, within BP_STEPS_MAX steps; where it found none and they were not enough,
 * *ret_score is BP_SCORE_UNSURE: by other scores one might be found). */
#define BP_STEPS_MAX 2048
#define BP_SCORE_UNSURE 1
enum bp_verdict bp_choose(const struct st_cluster *c, const struct bp_chooser *how, uint32_t node,
			  const struct st_request *req, struct st_decision *ret,
			  int32_t *ret_score);

#endif

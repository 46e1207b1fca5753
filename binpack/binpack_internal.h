/* Inside of binpack/. */
#ifndef TESSERA_BINPACK_INTERNAL_H
#define TESSERA_BINPACK_INTERNAL_H

#include "binpack/binpack.h"

/* Lowers the score of a choice that puts two memory-bound pods on one GPU below all others. */
#define BP_NEIGHBOUR_PENALTY (1 << 20)

/* What choosing needs to know of a request beside the request itself. */
struct bp_task {
	const struct st_cluster *cluster;
	const struct st_config *cfg;
	const struct st_node *node;
	const struct bp_chooser *how;
	const struct st_request *req;
	int64_t cpu_after; /* CPU milli left on the node when the pod is there */
};

/* The mode that a share may be given where the wanted one is only preferred. */
static inline enum st_mode bp_other_mode(enum st_mode mode)
{
	return mode == ST_MODE_SM_SHARING ? ST_MODE_TIME_SLICING : ST_MODE_SM_SHARING;
}

/* What an item of kind SHARE books on a GPU with that much allocatable memory. */
struct bp_amount {
	int32_t alloc_mib, request_mib;
	int64_t limit_mib;
	int64_t limit_bound; /* of all limits of the GPU */
};

#define BP_AMOUNT_NONE                                                                             \
	{                                                                                          \
		.alloc_mib = INT32_MIN                                                             \
	}

/* Why this one GPU cannot take one more share; BP_OK when it can. *a becomes what it books there: worked out
 * where it is of GPUs of another size. */
enum bp_verdict bp_share_verdict(const struct st_config *cfg, const struct st_gpu *g,
				 enum st_mode mode, const struct st_item *it, struct bp_amount *a);
/* Are they alike to every request? Then the one that comes first stands for both. */
static inline bool bp_same_state(const struct st_gpu *a, const struct st_gpu *b)
{
	return a->free_mib == b->free_mib && a->mode == b->mode && a->taken == b->taken &&
	       a->alloc_mib == b->alloc_mib && a->clients == b->clients &&
	       a->compute_left_nano == b->compute_left_nano && a->limit_mib == b->limit_mib &&
	       a->memory_bound == b->memory_bound && a->mig == b->mig &&
	       a->mig_placed == b->mig_placed && a->mig_open == b->mig_open &&
	       a->mig_could == b->mig_could;
}

/* The more telling of two verdicts of GPUs of one node: the one closer to success. */
enum bp_verdict bp_nearer(enum bp_verdict a, enum bp_verdict b);

/* Checks of the node as a whole: known, ready, products, CPU, host memory, pods. */
enum bp_verdict bp_node_verdict(const struct st_cluster *c, const struct st_node *n,
				const struct st_request *req);

/* Fragmentation of a MIG layout when all plain profiles are equally likely: breaks ties among
 * starts that the workload does not tell apart. */
int bp_mig_spread(const struct st_mig_geometry *g, uint64_t placed);

/* search.c: requests of several items or devices. *ret's node and grant count are set by it. */
enum bp_verdict bp_search(const struct bp_task *t, struct st_decision *ret, int32_t *ret_score);

/* Starts a grant for an item: container, kind, mode, compute, profile. */
void bp_grant_init(struct st_grant *g, const struct st_item *it, enum st_mode mode);

#endif

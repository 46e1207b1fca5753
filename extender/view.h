/* The cluster as it can be looked at: a copy that is taken node by node under the lock, so that a
 * large cluster does not hold up the scheduler, and the JSON of /api/v1/cluster made from it. */
#ifndef TESSERA_EXTENDER_VIEW_H
#define TESSERA_EXTENDER_VIEW_H

#include "base/buf.h"
#include "extender/service.h"
#include "kube/object.h"

struct ex_view_pod {
	const char *uid, *ns, *name;
	int32_t priority;
	int64_t cpu_milli, mem_mib;
	uint8_t state, grant_count;
	bool deleting, foreign, fenced;
	const struct st_grant *grants;
};

/* Node, GPUs and pods of one moment; the moments of two nodes may differ. */
struct ex_view_node {
	struct st_node n;    /* its pointers lead to copies */
	const char *product; /* NULL: unknown */
	struct ex_view_pod *pods;
	uint32_t pod_count;
};

struct ex_view {
	const char *policy;
	struct po_fragmentation fragmentation;
	struct ex_view_node *nodes;
	uint32_t node_count;
	/* sums */
	uint32_t gpus, gpus_by_mode[ST_MODE_COUNT], gpus_taken, gpus_twin;
	uint32_t pods, nodes_unready, nodes_fenced;
	uint32_t pods_by_state[ST_POD_STATE_COUNT];
	int64_t mem_mib, alloc_mib, booked_mib, limit_mib;
};

/* Everything in *ret lives in the arena. ERR_NOMEM. */
int ex_view_capture(struct ex_service *s, struct ku_arena *a, struct ex_view *ret, struct err *err);
void ex_view_json(const struct ex_view *v, struct buf *out);

/* MiB of the GPU's allocatable memory that are given away. */
static inline int32_t ex_view_booked_mib(const struct st_gpu *g)
{
	return g->alloc_mib - g->free_mib;
}
const char *ex_view_taken_name(uint8_t taken); /* "" for ST_TAKEN_NO */
const char *ex_view_pod_state_name(uint8_t state);

#endif

/* The model: every node, every GPU, and who holds what. The only place where allocations are
 * booked, so "no GPU is given twice, no GPU holds two modes" is kept here and nowhere else.
 *
 * Not thread-safe: the caller holds one lock over all of it. No I/O, no clock. Functions that
 * change something allocate first and commit last: on failure the model is as it was. */
#ifndef TESSERA_STATE_CLUSTER_H
#define TESSERA_STATE_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strpool.h"
#include "state/request.h"
#include "state/spec.h"

#define ST_NONE UINT32_MAX

struct st_config {
	int32_t reserve_mib;         /* of each GPU, kept free of requests; 0 */
	int32_t clients_max;         /* MPS clients a GPU; 60 */
	int32_t overcommit_permille; /* sum of limits <= allocatable * this / 1000; 1000 */
	bool mig_fixed; /* no MIG instances on GPUs that are not in MIG mode, though the node would
			 * switch them */
};
#define ST_CONFIG_DEFAULT                                                                          \
	{                                                                                          \
		.reserve_mib = 0, .clients_max = 60, .overcommit_permille = 1000                   \
	}

/* Why a GPU gets nothing new although it may have room. */
enum st_taken { ST_TAKEN_NO, ST_TAKEN_UNHEALTHY, ST_TAKEN_FOREIGN, ST_TAKEN_GONE };

struct st_gpu {
	int32_t mem_mib;           /* as the driver reports */
	int32_t alloc_mib;         /* allocatable: mem_mib minus the reserve */
	int32_t free_mib;          /* allocatable minus the sum of requests; 0 while exclusive.
			       * MIG: alloc_mib * free units / units; units of what can be
			       * given, where instances were cut beforehand.
			       * Negative only where mem_mib shrank below what is booked. */
	int32_t compute_left_nano; /* ST_NANO minus the compute shares given, which count in
				    * sm-sharing only */
	int64_t limit_mib;         /* sum of limits */
	const struct st_mig_geometry *mig; /* not NULL exactly in mode MIG; owned by the cluster */
	uint64_t mig_placed;               /* all instances, foreign ones included */
	uint64_t mig_foreign;              /* those that belong to no allocation */
	uint64_t mig_open; /* (profile, start) pairs that can be given: all, ST_MIG_ANYWHERE, or the
			    * instances cut beforehand */
	const struct st_mig_geometry
		*mig_could;    /* not NULL where the node switches the GPU into MIG
						  * mode when it is idle and an instance is wanted */
	uint16_t clients;      /* containers holding a share of it */
	uint16_t memory_bound; /* of those, the memory-bound ones */
	uint8_t mode;          /* enum st_mode */
	uint8_t taken;         /* enum st_taken */
	bool twin; /* another node has it, too: reports it and is ready, or gave it away */
	char *uuid;
	const char *taken_by; /* for ST_TAKEN_FOREIGN: who or what, as a noun; else NULL */
};

struct st_node {
	char *name;
	uint32_t id;      /* index in the cluster; never reused for another name */
	uint32_t rank;    /* smallest wins a tie; unique; fixed when first seen */
	uint32_t version; /* grows with every change that a score could depend on */
	uint32_t product; /* id in st_cluster_products(), STRPOOL_NONE = unknown */
	bool present;     /* false after removal; pods may still hold it */
	bool unready;
	bool from_inventory;
	char *why_unready;
	uint32_t fences; /* pods whose allocation cannot be read; > 0: nothing new */
	int64_t cpu_milli, cpu_left_milli; /* left may be negative: others overbook too */
	int64_t mem_mib, mem_left_mib;
	int32_t pods_max, pods; /* pods_max 0 = not limited */
	uint8_t gpu_count;
	struct st_gpu *gpus;
};

/* Life of a pod's allocation. One table says which moves are legal; st_cluster_pod_move() makes
 * them. Nothing expires by time. */
enum st_pod_state {
	ST_POD_BINDING,  /* reserved at the entry of bind, before any I/O */
	ST_POD_BOUND,    /* the API accepted */
	ST_POD_OBSERVED, /* an API object confirmed it */
	ST_POD_STATE_COUNT,
};

enum st_pod_event {
	ST_EVENT_ACCEPTED, /* BINDING -> BOUND; BOUND and OBSERVED stay */
	ST_EVENT_OBSERVED, /* any -> OBSERVED */
	ST_EVENT_FAILED,   /* BINDING -> released; ERR_CONFLICT later */
	ST_EVENT_GONE,     /* any -> released */
};

struct st_pod {
	char *uid, *ns, *name;
	uint32_t node;
	int32_t priority;
	int64_t cpu_milli, mem_mib;
	uint8_t state; /* enum st_pod_state */
	uint8_t grant_count;
	bool deleting;
	bool foreign; /* placed by others: its GPUs are assumed, not known */
	bool fenced;  /* allocation unreadable: the node is fenced while the pod lives */
	bool memory_bound;
	struct st_grant *grants;
};

/* Who the pod is and what it takes beside GPUs. */
struct st_pod_ident {
	const char *uid, *ns, *name;
	int32_t priority;
	int64_t cpu_milli, mem_mib;
	bool deleting, memory_bound;
};

struct st_cluster;

struct st_cluster *st_cluster_new(const struct st_config *cfg); /* NULL cfg: defaults. NULL: OOM */
void st_cluster_free(struct st_cluster *c);
const struct st_config *st_cluster_config(const struct st_cluster *c);
struct strpool *st_cluster_products(const struct st_cluster *c);

/* ---- nodes ---- */

/* Adds the node or brings it up to date; allocations on it stay booked, matched by UUID. A GPU that
 * is no longer reported but is held stays, as ST_TAKEN_GONE. A GPU whose UUID (of an inventory) another
 * node has in its books, too, is given away by neither. A node that is described as before is
 * left alone: its version does not move. ret_id may be NULL.
 * ERR_INVALID: no name, too many GPUs, memory < 1, duplicate UUID, impossible MIG report.
 * ERR_EXISTS: the rank given for a new node is another's. ERR_NOMEM. */
int st_cluster_node_put(struct st_cluster *c, const struct st_node_spec *spec, uint32_t *ret_id,
			struct err *err);
/* The node gets nothing new; what pods hold on it stays until they are gone. ERR_NOT_FOUND, also
 * where it was removed before. */
int st_cluster_node_remove(struct st_cluster *c, const char *name, struct err *err);
uint32_t st_cluster_node_find(const struct st_cluster *c, const char *name,
			      size_t len); /* ST_NONE */
const struct st_node *st_cluster_node(const struct st_cluster *c, uint32_t id);
/* The node that is why st_gpu.twin is set; ST_NONE where it is not. */
uint32_t st_cluster_gpu_twin(const struct st_cluster *c, uint32_t node, uint8_t gpu);
uint32_t st_cluster_node_count(const struct st_cluster *c); /* ids run from 0 to this, excluded */

/* Every change of a node's version, in order: entry i is the node's id; the log holds entries
 * [st_cluster_log_begin, st_cluster_log_end). A reader whose position fell before the begin looks
 * at all versions instead. */
uint64_t st_cluster_log_begin(const struct st_cluster *c);
uint64_t st_cluster_log_end(const struct st_cluster *c);
uint32_t st_cluster_log_at(const struct st_cluster *c, uint64_t i);

/* ---- allocations ---- */

/* Can the decision be booked now? 0, or ERR_CONFLICT / ERR_NO_ROOM with the bound that would break
 * in words. Checks all grants together. CPU, host memory and pod count too, where check_host. */
int st_cluster_can_book(const struct st_cluster *c, const struct st_pod_ident *pod,
			const struct st_decision *d, bool check_host, struct err *err);
/* Books a decision made on this very state: the pod is BINDING. Errors of st_cluster_can_book()
 * without check_host; ERR_EXISTS when the UID is known; ERR_INVALID without a UID; ERR_NOMEM. */
int st_cluster_reserve(struct st_cluster *c, const struct st_pod_ident *pod,
		       const struct st_decision *d, struct err *err);
/* Takes in a pod that an API object says is bound, with the allocation read from it: OBSERVED.
 * - the UID is known with the same node and grants: only its state, priority and deleting change.
 * - known with other ones: the API object wins, the old booking goes.
 * - d NULL and whole_gpus = 0: a pod without GPU, host resources only.
 * - d NULL and whole_gpus > 0: a device plugin's pod; that many idle GPUs (lowest index first) are
 *   taken for it, and the node is fenced where there are fewer.
 * - a decision that cannot be booked (GPU unknown, more than all memory or compute, two modes,
 *   overlapping instances) fences the node: 0 is returned and *ret_fenced is true. why says it in
 *   words for an event. The fence ends by itself when room for it appears; until then the pod has
 *   no grants. Bounds that a pod may break without a GPU being given twice (limits, clients, a GPU
 *   or node in trouble) do not fence.
 * Known allocations go before assumed ones: a plugin's pod is dealt other GPUs where one comes to
 * light as another pod's, and those that the node reports as taken by "pod <ns>/<name>" first.
 * ERR_INVALID without a UID, ERR_NOT_FOUND without the node, ERR_NOMEM: nothing changed. */
int st_cluster_observe(struct st_cluster *c, const struct st_pod_ident *pod, uint32_t node,
		       const struct st_decision *d, uint32_t whole_gpus, bool *ret_fenced,
		       struct err *why);
/* A bound pod whose allocation cannot be read: nothing new on its node until the pod is gone or
 * observed with a readable one. What it held is no longer booked; host resources still are.
 * Errors of st_cluster_observe(). */
int st_cluster_fence(struct st_cluster *c, const struct st_pod_ident *pod, uint32_t node,
		     struct err *err);
/* The only mover of pod states. ERR_NOT_FOUND, ERR_CONFLICT (move not in the table). After FAILED
 * or GONE the pod is no longer known and all it held is free. */
int st_cluster_pod_move(struct st_cluster *c, const char *uid, enum st_pod_event ev,
			struct err *err);
const struct st_pod *st_cluster_pod_find(const struct st_cluster *c, const char *uid);
size_t st_cluster_pod_count(const struct st_cluster *c);
/* Walks all pods in the order they came: pass NULL first; NULL at the end. */
const struct st_pod *st_cluster_pod_next(const struct st_cluster *c, const struct st_pod *prev);
/* Pods of one node, unordered: start with NULL. */
const struct st_pod *st_cluster_node_pod_next(const struct st_cluster *c, uint32_t node,
					      const struct st_pod *prev);

/* ---- checks ---- */

/* Recounts everything of one node (ST_NONE: of all) from its pods by brute force and compares with
 * the books; also every invariant of design.md. ERR_INTERNAL names the first difference. */
int st_cluster_check(const struct st_cluster *c, uint32_t node, struct err *err);

/* ---- GPU helpers used by every policy ---- */

/* Is this GPU open for a share of that mode: free or already in it, not taken. */
static inline bool st_gpu_accepts_mode(const struct st_gpu *g, enum st_mode mode)
{
	return g->taken == ST_TAKEN_NO && (g->mode == ST_MODE_FREE || g->mode == mode);
}

static inline bool st_gpu_idle(const struct st_gpu *g)
{
	return g->taken == ST_TAKEN_NO && g->mode == ST_MODE_FREE;
}

/* The geometry that a new MIG instance on this GPU would have; NULL: it can get none. The placed mask
 * of a GPU that is not in MIG mode is 0. */
static inline const struct st_mig_geometry *st_gpu_mig_now(const struct st_gpu *g)
{
	return g->mode == ST_MODE_FREE ? g->mig_could : g->mig;
}

/* Room for one more share of request/limit/compute in that mode, all bounds of a GPU. */
bool st_gpu_fits_share(const struct st_config *cfg, const struct st_gpu *g, enum st_mode mode,
		       int32_t request_mib, int32_t limit_mib, int32_t compute_nano);

/* Does a product expression ("" = any, alternatives by '|', empty ones ignored) accept the name? An
 * unknown product (NULL) is accepted by "" only. Blank and dash are the same: drivers and labels
 * write one product either way. */
bool st_product_accepts(const char *expr, const char *product);

#endif

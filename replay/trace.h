/* A workload trace in memory: nodes, pods and the request shapes the pods share. Filled by the
 * readers (openb.h, kubectl.h), read-only afterwards. */
#ifndef TESSERA_REPLAY_TRACE_H
#define TESSERA_REPLAY_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strpool.h"
#include "state/cluster.h"
#include "state/request.h"

/* GPU memory of a node in CSV form: its devices have 1000 units, so that a unit is one milli. */
#define RP_GPU_UNITS 1000

/* The one container that a pod in CSV form has. */
#define RP_CONTAINER "main"

enum rp_kind { RP_CPU_ONLY, RP_SHARED, RP_ONE_GPU, RP_MULTI_GPU, RP_KINDS };

/* Pods that ask for the same share one of these. */
struct rp_shape {
	struct st_request req;
	int64_t milli;        /* GPU milli of a pod, all devices together */
	int64_t device_milli; /* on one device */
	enum rp_kind kind;
	int64_t count; /* pods of the trace that have it */
	uint32_t next; /* in its hash chain */
};

enum rp_mig {
	RP_MIG_NO,
	RP_MIG_YES, /* the GPUs are in MIG mode */
	RP_MIG_AUTO, /* an idle GPU is switched for a pod that asks for an instance, and back when empty */
};

struct rp_node {
	int64_t cpu_milli, mem_mib;
	uint32_t model;  /* id in models; STRPOOL_NONE = unknown */
	int32_t gpu_mib; /* memory of a GPU; 0 = RP_GPU_UNITS, whatever the real size */
	enum rp_mig mig;
	const struct st_mig_geometry
		*geometry; /* where mig is not RP_MIG_NO; of the built-in table */
	bool removed;      /* known by name and index, but gets nothing */
	uint8_t gpu_count;
};

/* When a pod comes and how long it runs, where the trace says so. */
#define RP_TIME_UNKNOWN INT64_MIN
struct rp_stay {
	int64_t at_ms, stay_ms;
};

struct rp_text {
	char *data; /* owned; NULL = absent */
	size_t len;
	char *path; /* owned; for messages */
};

struct rp_map;

struct rp_trace {
	struct strpool *pod_names;  /* id = index in pods */
	struct strpool *node_names; /* id = index in nodes; = id in the cluster for CSV nodes */
	struct strpool *models;
	uint32_t *pods; /* index of the pod's shape */
	size_t pod_count, pod_cap;
	struct rp_stay *stays; /* by pod; NULL: no times are known */
	size_t stay_cap;
	struct rp_shape *shapes;
	size_t shape_count, shape_cap;
	uint32_t *chains; /* hash table over shapes: index + 1 */
	size_t chain_count;
	struct rp_node *nodes;
	size_t node_count, node_cap;
	int64_t gpu_milli; /* of all nodes */
	size_t refused;    /* pods left out because their request is not valid */
	bool fractions;    /* CSV pods on JSON nodes: shares are fractions of a GPU */
	int64_t unit_mib;  /* mean memory of a GPU: what request sizes are measured by */
	/* How tables are to be read; borrowed, set between init and load; NULL = openb. */
	const struct rp_map *pod_map, *node_map;
	struct rp_text json[2]; /* a cluster in JSON form, read anew for each run */
};

void rp_trace_init(struct rp_trace *t);
void rp_trace_fini(struct rp_trace *t);

/* Reads both files, telling CSV from JSON by content; the same path for both is read once. note (may
 * be NULL) gets warnings about single pods. ERR_INVALID, ERR_RANGE: the message names file, line,
 * column and value; ERR_IO; ERR_NOMEM. *t is to be initialised, and freed by the caller also after
 * an error. */
typedef void (*rp_note_fn)(void *ctx, const char *text);
int rp_trace_load(struct rp_trace *t, const char *nodes_path, const char *pods_path,
		  rp_note_fn note, void *ctx, struct err *err);

/* The pods alone, without nodes: of a table, or the pending ones of a list in JSON, with nodes or
 * without. unit_mib: memory of a GPU that pods in JSON are measured by; 0 = of the list's mean GPU. Errors
 * as above. */
int rp_trace_load_pods(struct rp_trace *t, const char *path, int64_t unit_mib, rp_note_fn note,
		       void *ctx, struct err *err);

/* A cluster in JSON, which need not have pending pods. Errors as above. */
int rp_trace_load_cluster(struct rp_trace *t, const char *path, rp_note_fn note, void *ctx,
			  struct err *err);

/* Makes a cluster as it is before the first arrival. ranks: by node index, NULL = by name. */
int rp_trace_cluster(const struct rp_trace *t, const uint32_t *ranks, struct st_cluster **ret,
		     struct err *err);

static inline bool rp_trace_is_json(const struct rp_trace *t)
{
	return t->json[0].data != NULL;
}

/* The arrivals are the pending pods of a cluster in JSON, not a table. */
static inline bool rp_trace_pods_are_json(const struct rp_trace *t)
{
	return rp_trace_is_json(t) && !t->fractions;
}

/* For the readers. Makes an initialised trace ready to be added to. ERR_NOMEM. */
int rp_trace_open(struct rp_trace *t, struct err *err);
/* ERR_EXISTS: the name is known; ERR_NOMEM. */
int rp_trace_add_node(struct rp_trace *t, const char *name, size_t len, const struct rp_node *n,
		      struct err *err);
int rp_trace_add_pod(struct rp_trace *t, const char *name, size_t len, uint32_t shape,
		     struct err *err);
/* The times of the pod added last. ERR_NOMEM. */
int rp_trace_set_stay(struct rp_trace *t, struct rp_stay stay, struct err *err);
/* Unknown times where none were set. */
struct rp_stay rp_trace_stay(const struct rp_trace *t, uint32_t pod);
/* The shape of a request, made on first sight. The request's bytes are compared, so it is to be
 * built from zeroed memory. UINT32_MAX: no memory. */
uint32_t rp_trace_shape(struct rp_trace *t, const struct st_request *req);

/* GPU milli in use on a node: 1000 a device minus what is free, floored; devices that others hold
 * count as used. */
int64_t rp_node_used_milli(const struct st_node *n);

#endif

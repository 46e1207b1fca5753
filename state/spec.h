/* Nodes and pods as the outside describes them (API objects, files), decoded but not yet believed.
 * kube/ fills them; state/ reads them. All pointers belong to whoever made the struct. */
#ifndef TESSERA_STATE_SPEC_H
#define TESSERA_STATE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/mig.h"

struct st_kv {
	const char *key;
	const char *value;
};

struct st_gpu_spec {
	const char *uuid; /* NULL = unnamed: "<index>" stands in */
	int32_t mem_mib;  /* total, >= 1 */
	bool unhealthy;
	const char *foreign; /* NULL, or who holds it outside of Tessera ("pid 4711", "pod a/b") */
	bool mig_enabled;
	bool has_geometry; /* geometry below as read from the driver; else the built-in table */
	struct st_mig_geometry geometry;
	bool mig_static;     /* instances were cut beforehand: what is listed is all there is */
	bool mig_switchable; /* the node may put the idle GPU into MIG mode for an instance */
	/* Instances present on the GPU. One that belongs to no known allocation is counted as
	 * foreign: its units are taken. Except where it is not held by others and is ours (the node
	 * made it and will remove it when it is in the way), or was cut beforehand. */
	size_t instance_count;
	struct {
		char profile[ST_MIG_NAME_CAP];
		uint8_t start;
		bool ours; /* made by the node's agent */
		bool held; /* given to someone else, by a device plugin */
	} instances[64];
};

struct st_node_spec {
	const char *name;
	const char *product; /* NULL = unknown; of all its GPUs */
	int64_t cpu_milli;   /* allocatable */
	int64_t mem_mib;     /* allocatable */
	int32_t pods;        /* allocatable pods; 0 = not limited */
	bool unready;        /* gets nothing new */
	const char *why_unready;
	bool from_inventory; /* GPUs come from an inventory, not from labels */
	bool has_rank;       /* rank given from outside (replay); else from the name */
	uint32_t rank;
	size_t gpu_count;
	struct st_gpu_spec *gpus;
};

struct st_container_spec {
	const char *name;
	bool init;               /* init container */
	bool sidecar;            /* init container with restartPolicy Always */
	int64_t cpu_milli;       /* request */
	int64_t mem_bytes;       /* request */
	size_t resource_count;   /* extended resources in limits (or requests) */
	struct st_kv *resources; /* name, quantity text */
};

enum st_phase { ST_PHASE_PENDING, ST_PHASE_RUNNING, ST_PHASE_SUCCEEDED, ST_PHASE_FAILED };

struct st_pod_spec {
	const char *uid;
	const char *ns;
	const char *name;
	const char *node;           /* "" = not bound */
	const char *nominated_node; /* "" = none */
	const char *scheduler;      /* schedulerName; "" = none */
	int32_t priority;
	enum st_phase phase;
	bool deleting; /* has a deletionTimestamp: keeps its GPUs until gone */
	bool gated;    /* has scheduling gates */
	int64_t overhead_cpu_milli;
	int64_t overhead_mem_bytes;
	/* Requests of the pod as a whole (spec.resources, Kubernetes 1.34): where given, they count in the
	 * place of what its containers ask for. */
	bool pod_cpu_given, pod_mem_given;
	int64_t pod_cpu_milli, pod_mem_bytes;
	size_t annotation_count;
	struct st_kv *annotations;
	size_t container_count; /* init containers first, in order, then the regular ones */
	struct st_container_spec *containers;
};

/* The annotation's value, or NULL. */
const char *st_pod_annotation(const struct st_pod_spec *p, const char *key);

/* CPU and host memory of the whole pod as Kubernetes counts them: the larger of (sum of regular
 * containers + sidecars) and each init container with the sidecars started before it, or what
 * the pod as a whole asks for; plus overhead. Saturates at INT64_MAX. */
void st_pod_spec_totals(const struct st_pod_spec *p, int64_t *ret_cpu_milli, int64_t *ret_mem_mib);

#endif

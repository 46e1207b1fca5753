/* What GPUs this node has and how they are: the source of the inventory, of the doctor and of the node
 * that allocations are checked against. A probe is a plain value; the prober remembers between probes
 * what the driver tells only once (XID errors) and what must not flap. */
#ifndef TESSERA_ENFORCER_PROBE_H
#define TESSERA_ENFORCER_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "enforcer/apply.h"
#include "enforcer/nvml.h"
#include "state/mig.h"
#include "state/request.h"

enum en_feature {                               /* bits */
		  EN_FEATURE_MPS_V3 = 1,        /* MPS protocol 3: servers and namespaces */
		  EN_FEATURE_MEMORY_LIMITS = 2, /* memory limits of cgroups */
		  EN_FEATURE_MIG = 4,           /* a GPU is capable of MIG */
};

#define EN_DRIVER_V3_MAJOR 615 /* first driver with MPS v3 and memory limits */

/* "580.95.05" to 580. ERR_INVALID. */
int en_driver_major(const char *version, int *ret, struct err *err);
/* MPS_V3 and MEMORY_LIMITS as that driver has them. */
unsigned en_driver_features(int major);

#define EN_INSTANCES_MAX 64
#define EN_WHY_CAP 160

struct en_probe_gpu {
	char uuid[EN_UUID_CAP];
	char product[EN_NVML_TEXT_CAP];
	uint32_t index;
	int32_t mem_mib;
	int minor;    /* -1 = not told */
	char bus[32]; /* "" = not told */

	bool healthy;
	char why[EN_WHY_CAP];       /* not healthy because */
	char foreign[EN_WHY_CAP];   /* who holds it outside of Tessera, as a noun; "" = nobody */
	uint32_t processes;         /* with a context on it */
	struct en_nvml_state state; /* all unknown where the GPU does not answer */
	uint64_t xid;               /* last error reported; 0 = none */

	bool mig_capable, mig_enabled, mig_pending;
	bool mig_static, mig_switchable; /* set by en_mig_mark() (mig.h) */
	bool has_geometry; /* as the driver reports it; else the built-in table holds */
	struct st_mig_geometry geometry;
	size_t instance_count;
	struct en_mig_instance instances[EN_INSTANCES_MAX];
};

#define EN_NOTES_MAX 8

struct en_probe {
	bool driver_ok; /* else why, and no GPUs */
	struct err why;
	bool stale;        /* shown as it was: the driver did not answer this time */
	uint64_t mig_made; /* en_mig_made() before the look; 0 = not asked (set by the caller) */
	char driver[EN_NVML_TEXT_CAP];
	int driver_major;
	unsigned features; /* enum en_feature */
	size_t gpu_count;  /* in the order of their index */
	struct en_probe_gpu gpus[ST_GPUS_MAX];
	size_t note_count; /* what could not be read or was left out, for log and doctor */
	struct err notes[EN_NOTES_MAX];
};

struct en_probe_options {
	const char *library; /* NULL: libnvidia-ml.so.1; copied */
	const char *root;    /* put before /proc; NULL: ""; copied */
	/* Does the process belong to a container with an allocation, or to our MPS? NULL: none does. */
	bool (*is_ours)(void *ctx, uint32_t pid);
	void *ctx;
	/* The kubelet's pod-resources socket: GPUs that a device plugin gave to a pod are foreign, unless
	 * the pod is one of ours. NULL: not asked; a socket that is not there is fine. Copied. */
	const char *kubelet_socket;
	bool (*is_our_pod)(void *ctx, const char *ns, const char *pod); /* NULL: none is */
	bool ignore_graphics;         /* processes that only draw do not make a GPU foreign */
	unsigned throttled_after;     /* probes in a row slowed down by the hardware make a GPU
				   * unhealthy, as many without mend it; 0: 5 */
	const uint64_t *xids_ignored; /* more of them than the applications' own; copied */
	size_t xids_ignored_count;
};

struct en_prober;

/* ERR_NOMEM. Opens nothing yet. */
int en_prober_new(const struct en_probe_options *o, struct en_prober **ret, struct err *err);
void en_prober_free(struct en_prober *p);

/* Looks at everything. Opens the library when it is not open, and again when the driver was exchanged.
 * 0 also without a driver (ret->driver_ok says; a driver that was there is shown as it was, with a note,
 * for one run); ERR_NOMEM. A GPU that was there and is missing, or does not answer, stays in the list as
 * not healthy until the prober is freed. Takes as long as the driver takes; one thread. */
int en_prober_run(struct en_prober *p, struct en_probe *ret, struct err *err);

/* Lets go of the driver, so that it can be unloaded; until en_prober_run() opens it again. XID errors are
 * forgotten: a driver that was loaded anew has reset its GPUs. */
void en_prober_close(struct en_prober *p);

/* The library as the prober has it open, or NULL. For limits and metrics, by the same thread or with the
 * caller's lock; valid until the next run or close. */
struct en_nvml *en_prober_nvml(struct en_prober *p);

/* Forgets a GPU's XID errors after an operator's reset. */
void en_prober_mend(struct en_prober *p, const char *uuid);

/* Is it an error of an application that leaves the GPU usable? As NVIDIA's device plugin judges: 13, 31,
 * 43, 45, 68, 109. */
bool en_xid_is_application(uint64_t xid);

/* The GPUs as apply.h wants them: gpus has room for ST_GPUS_MAX, pointers go into the probe. GPUs that
 * are not healthy are there. Who holds what (mode and sums) is zero. */
void en_probe_to_node(const struct en_probe *p, struct en_node_gpu *gpus, size_t *ret_count);

#endif

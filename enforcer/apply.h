/* What a container may have of this node's GPUs, and what must be changed about it before it starts.
 *
 * Decisions only: no I/O, no clock, no memory of earlier calls. In go the pod's annotations, the
 * container and a description of the node; out comes a plan (give, hide, leave alone, refuse) and from
 * the plan an adjustment of the container. Nothing is believed: an allocation counts only when its
 * digest, node and values are right, the GPUs are here, modes agree and sums fit.
 * The annotations are described in state/CONTRACT.md. */
#ifndef TESSERA_ENFORCER_APPLY_H
#define TESSERA_ENFORCER_APPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "state/contract.h"
#include "state/mig.h"
#include "state/request.h"
#include "state/spec.h"

#define EN_UUID_CAP 97 /* of a GPU or a MIG instance */
#define EN_PATH_CAP 256

/* ---- the node, as the inventory has it; pointers belong to whoever made the struct ---- */

struct en_mig_instance {
	char profile[ST_MIG_NAME_CAP];
	uint8_t start;          /* first memory unit */
	char uuid[EN_UUID_CAP]; /* "MIG-..." */
	bool ours;              /* made by the agent, or held by a container of ours */
	bool held;              /* given to a pod by a device plugin */
};

struct en_node_gpu {
	char uuid[EN_UUID_CAP]; /* "GPU-..." */
	uint32_t index;         /* as the driver counts */
	const char *product;    /* NULL = unknown */
	int32_t mem_mib;
	bool mig_enabled;
	bool mig_switchable; /* put into MIG mode for the first instance */
	bool has_geometry;   /* geometry as read from the driver; else the built-in table */
	struct st_mig_geometry geometry;
	size_t instance_count;
	const struct en_mig_instance *instances;

	/* What containers of other pods hold of it now (en_ledger_use(), apply_ledger.h). */
	enum st_mode mode; /* ST_MODE_FREE: none do */
	int64_t request_mib, limit_mib;
	int64_t compute_nano;
	uint32_t clients;
	uint32_t mig_units; /* memory units in use, a bit each */
};

struct en_node {
	const char *name; /* as the Node object has it */
	size_t gpu_count; /* <= ST_GPUS_MAX */
	struct en_node_gpu *gpus;
	bool mps_ready;      /* the MPS control daemon answers */
	const char *mps_why; /* why not; NULL where it does */
	bool mps_v3;         /* protocol 3; else legacy */
	bool memory_limits;  /* the driver can limit memory by cgroup */
};

/* ---- what may be configured ---- */

struct en_apply_options {
	/* prefix of the keys; cdi: NVIDIA_VISIBLE_DEVICES holds CDI names */
	struct st_contract_options contract;
	/* GPUs as CDI devices of the adjustment; NVIDIA_VISIBLE_DEVICES is void then */
	bool cdi_devices;
	/* what would be refused starts unchanged, with a warning */
	bool fail_open;
	/* pods that ask for a share but carry no allocation are left alone; else they are refused */
	bool ignore_unplaced;

	int32_t reserve_mib;         /* of each GPU, not for requests */
	int32_t clients_max;         /* containers in one GPU; 0 = not checked */
	int32_t overcommit_permille; /* sum of limits <= memory * this / 1000; 0 = not checked */

	const char *pipe_root;   /* on the host; NULL: "/run/nvidia-mps" */
	const char *shm_dir;     /* on the host, for legacy MPS, becomes /dev/shm; NULL: none */
	const char *hook_path;   /* on the host; NULL: no hook is added */
	const char *hook_socket; /* where it reaches the agent; NULL: it sets the limits itself */
	int hook_timeout_s;      /* 0: 10 */
};

/* ---- the plan ---- */

enum en_verdict {
	EN_LEAVE,  /* no business of ours */
	EN_HIDE,   /* another container of a pod with an allocation: sees no GPU */
	EN_GIVE,   /* has the grant below */
	EN_REFUSE, /* must not start; why says it in one sentence */
};

struct en_plan {
	enum en_verdict verdict;
	char why[ERR_MSG_CAP]; /* REFUSE; also LEAVE, where fail_open let it through. Else "" */

	/* Of GIVE, and of REFUSE where the grant could be read (count > 0): */
	struct st_grant grant;   /* gpu[] are places in node->gpus */
	bool uses_mps;           /* gets the pipe directory */
	bool by_cgroup;          /* memory is limited on the container's cgroup */
	bool by_client;          /* memory is limited for each process (legacy MPS) */
	int percent;             /* compute share as MPS takes it, 1 to 100; 0 = none */
	bool own_namespace;      /* of MPS, with that share: its directory goes to pipe_source */
	const char *pipe_target; /* in the container; a constant */

	/* Of GIVE: */
	char pipe_source[EN_PATH_CAP]; /* on the host */
};

/* pod: uid, ns, name and annotations count. container: its name, regular or init. The pod's own holdings
 * must not be in the node's figures. 0 also for a refusal; ERR_NOMEM, ERR_INVALID (the node itself is
 * described wrongly): then the container must not start either. */
int en_plan_make(const struct en_node *node, const struct st_pod_spec *pod, const char *container,
		 const struct en_apply_options *opt, struct en_plan *ret, struct err *err);

/* ---- the adjustment ---- */

/* The container as the runtime shows it, before or after it was made. */
struct en_text_list {
	size_t count;
	const char *const *text;
};
struct en_mount_seen {
	const char *source, *target;
};
struct en_container_seen {
	const char *name;
	struct en_text_list env; /* "KEY=VALUE" */
	size_t mount_count;
	const struct en_mount_seen *mounts;
};

#define EN_ENV_MAX 8
#define EN_MOUNTS_MAX 2
#define EN_MOUNT_OPTIONS_MAX 4
#define EN_HOOK_ARGS_MAX (4 + ST_GPUS_MAX)

struct en_env {
	const char *key; /* a constant */
	char *value;     /* NULL: what the user set is taken away, nothing is put in its place */
};
struct en_mount {
	char *source;
	const char *target, *type,
		*options[EN_MOUNT_OPTIONS_MAX]; /* constants; NULL ends the options */
};

struct en_adjust {
	size_t env_count;
	struct en_env env[EN_ENV_MAX];
	size_t mount_count;
	struct en_mount mounts[EN_MOUNTS_MAX];
	size_t cdi_count;
	char *cdi[ST_GPUS_MAX];
	char *hook_path; /* NULL: no hook */
	size_t hook_arg_count;
	char *hook_args[EN_HOOK_ARGS_MAX];
	int hook_timeout_s;
};

/* seen may hold anything. ret is empty after an error and for LEAVE and REFUSE. ERR_NOMEM, ERR_CONFLICT: a MIG
 * instance of the grant is not there, or a mount that is seen would give more than the plan. */
int en_adjust_make(const struct en_node *node, const struct en_plan *plan,
		   const struct en_container_seen *seen, const struct en_apply_options *opt,
		   struct en_adjust *ret, struct err *err);
void en_adjust_fini(struct en_adjust *a);

/* Does a container that exists have what a gives? By value. ERR_CONFLICT names the first difference. */
int en_adjust_check_container(const struct en_adjust *a, const struct en_container_seen *seen,
			      struct err *err);

/* All plugins' adjustments together, as the runtime shows them before it applies them. */
struct en_merged {
	size_t env_count; /* keys may start with '-': removal */
	const struct st_kv *env;
	size_t mount_count;
	const struct en_mount_seen *mounts; /* targets may start with '-' */
	struct en_text_list cdi;
	struct en_text_list hook_paths; /* of createRuntime hooks */
};
/* Is all of a still in it? ERR_CONFLICT names what another plugin changed. */
int en_adjust_check_merged(const struct en_adjust *a, const struct en_merged *m, struct err *err);

#endif

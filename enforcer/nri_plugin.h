/* What the plugin does when the runtime calls: the node's state (GPUs, who holds what), decisions through
 * apply.h, and their effects on MPS namespaces and memory limits. Knows nothing of sockets.
 *
 * Thread-safe. Drivers and tools are called without the lock. */
#ifndef TESSERA_ENFORCER_NRI_PLUGIN_H
#define TESSERA_ENFORCER_NRI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "enforcer/apply.h"
#include "enforcer/apply_ledger.h"
#include "enforcer/hook.h"
#include "enforcer/hook_wire.h"
#include "enforcer/nri_msg.h"

enum en_report_kind {
	EN_REPORT_REFUSED,  /* a container does not start; text says why */
	EN_REPORT_LET_GO,   /* it should not, but fail_open is set */
	EN_REPORT_SLIPPED,  /* it is there without what it should have: we were away */
	EN_REPORT_REPAIRED, /* its memory limits were not in force, and are now */
	EN_REPORT_LIMITS,   /* its memory limits cannot be set */
	EN_REPORT_CHANGED,  /* its memory limits were changed because the allocation did */
	EN_REPORT_COUNT,
};
const char *en_report_name(enum en_report_kind k);

struct en_report {
	enum en_report_kind kind;
	const char *id; /* of the container; "" = none yet */
	const char *pod_uid, *ns, *pod, *container;
	const char *text;
	uint32_t pid; /* SLIPPED: its process, where it runs; else 0 */
};

/* The rest of the agent. Each may be NULL. Called from several threads, never under a lock. */
struct en_agent_ops {
	/* Makes the container's MPS namespace with that share of compute, or finds it; its pipe directory on
	 * the host goes to ret_dir. A share that differs from an existing one is an error. */
	int (*namespace_make)(void *ctx, const char *container_id, int percent, size_t gpu_count,
			      const char *const *gpus, char ret_dir[EN_PATH_CAP], struct err *err);
	void (*namespace_drop)(void *ctx, const char *container_id);
	/* The container is being stopped, or has ended: MPS clients may be drained. */
	void (*stopping)(void *ctx, const struct en_holding *h);
	/* For an event on the pod, a metric, or stopping the container. */
	void (*report)(void *ctx, const struct en_report *r);
	/* The pod's allocation, where it comes from elsewhere than its annotations: these take the place of
	 * its own allocation keys. *ret is empty at entry and freed by the plugin; left empty: the pod has
	 * none. ERR_NOMEM. */
	int (*allocation)(void *ctx, const struct st_pod_spec *pod, struct st_annotations *ret,
			  struct err *err);
	/* The GPU instances of a MIG grant are to be there when this returns, and the node is to know them
	 * (en_plugin_set_node()); called in CreateContainer, before the container is given their UUIDs. May
	 * take as long as a call may. NULL: they are there, or the container is refused. */
	int (*instances_make)(void *ctx, const struct en_holding *h, struct err *err);
	/* That container is gone: its instances may go, too. */
	void (*instances_drop)(void *ctx, const struct en_holding *h);
	/* Its first process is h->pid, and its limits are in force: en_plugin_exited() is wanted when it has
	 * ended. Called again for what was told before. */
	void (*running)(void *ctx, const struct en_holding *h);
	void *ctx;
};

struct en_plugin_options {
	struct en_apply_options apply; /* its strings outlive the plugin */
	/* Outlives the plugin. NULL: limits are set by hooks alone, and not looked after. */
	const struct en_limits_ops *limits;
	const struct en_agent_ops *agent; /* copied; NULL: none */
	const char *proc;                 /* NULL: "/proc" */
	const char *cgroup_mount;         /* NULL: as mounted */
	struct log *log;                  /* may be NULL */
};

struct en_plugin;

/* ERR_NOMEM, ERR_NOT_FOUND (cgroup v2 is not mounted, and limits are given). */
int en_plugin_new(const struct en_plugin_options *o, struct en_plugin **ret, struct err *err);
void en_plugin_free(struct en_plugin *p);

/* The node as it is now: at start (containers with an allocation are refused before) and after every
 * change. Copied; the figures of use are ignored. Without any GPU it counts as not known. ERR_NOMEM: the old
 * one stays, or containers wait on. */
int en_plugin_set_node(struct en_plugin *p, const struct en_node *node, struct err *err);
/* Are there containers that the runtime told of while no GPU was known, and that are not looked at yet? */
bool en_plugin_waits(struct en_plugin *p);

struct en_nri_reply {
	enum en_ttrpc_code code; /* 0: success */
	char text[ERR_MSG_CAP];  /* why not; VALIDATE: why rejected */
	bool reject;             /* VALIDATE */
	struct en_adjust adjust; /* CREATE; to be finished by the caller */
};

/* A new connection: parts of an unfinished Synchronize are forgotten. */
void en_plugin_connected(struct en_plugin *p);
/* SYNCHRONIZE (every part), CREATE, START, STOP, REMOVE, VALIDATE. *ret is always set. */
void en_plugin_handle(struct en_plugin *p, struct en_nri_request *take_r, struct en_nri_reply *ret);
/* The answer to CREATE came too late: the container is not made. */
void en_plugin_undo(struct en_plugin *p, const char *container_id);

/* Sets the limits that a hook asks for; where the allocation was changed since, those. ERR_INVALID: not this
 * container's, as far as is known; ERR_CONFLICT: limits cannot be set here; errors of the limits. */
int en_plugin_limit(struct en_plugin *p, const struct en_limit_request *r, struct err *err);

/* The container's first process has ended, and its cgroup goes soon. Unknown ids are fine. */
void en_plugin_exited(struct en_plugin *p, const char *container_id);

/* Looks after all running containers: limits that are not in force are set and reported. For every minute,
 * and after each Synchronize. */
void en_plugin_reconcile(struct en_plugin *p);

/* Takes away the guarantees of containers that ended while no agent ran and whose cgroups are still there:
 * empty, with the id of a container in the name. How many there were. For after each Synchronize. */
size_t en_plugin_sweep(struct en_plugin *p);

/* Makes the MPS namespaces of all containers that have one known to the agent, also of those from before it was
 * started. For after each Synchronize, and again while it returns false: some could not be. Not while the
 * runtime's Synchronize is answered. */
bool en_plugin_claim(struct en_plugin *p);

/* The pod as the API server has it now: where memory amounts of its allocation changed and all else is as
 * before, running containers get the new limits. Bound to this node; ERR_INVALID, ERR_CONFLICT: refused in
 * words; ERR_NOMEM. */
int en_plugin_pod_changed(struct en_plugin *p, const struct st_pod_spec *pod, struct err *err);

/* Could the container have what the pod's allocation gives it, if nobody else held anything of the node? why:
 * "" = yes, or the GPUs are not known yet. For allocations whose pods are not here yet. ERR_NOMEM,
 * ERR_INVALID (the node itself is described wrongly). */
int en_plugin_judge(struct en_plugin *p, const struct st_pod_spec *pod, const char *container,
		    char why[ERR_MSG_CAP], struct err *err);

/* Is it a process of a container that has a grant? By its cgroup. */
bool en_plugin_owns(struct en_plugin *p, uint32_t pid);

/* Pods that are on this node no more may have left rows behind, where the runtime lost the events. Rows
 * whose process runs stay. */
void en_plugin_keep_pods(struct en_plugin *p, size_t count, const char *const *uids);

struct en_plugin_stats {
	uint64_t given, hidden, left, refused, let_go, slipped, repaired, limit_errors, rejected;
	size_t holdings;
};
void en_plugin_get_stats(struct en_plugin *p, struct en_plugin_stats *ret);
/* Calls fn for a copy of each row; its strings are valid during the call. */
void en_plugin_each(struct en_plugin *p, void (*fn)(void *ctx, const struct en_holding *h),
		    void *ctx);

#endif

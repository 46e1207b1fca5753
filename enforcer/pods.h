/* The pods of this node, and the node's own label about a driver upgrade, as the API server has them: two
 * watches. Everything that is kept is small: who a pod is, whose workload it belongs to, and the
 * annotations that an allocation is read from. */
#ifndef TESSERA_ENFORCER_PODS_H
#define TESSERA_ENFORCER_PODS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "kube/client.h"
#include "state/spec.h"

/* The GPU operator's; present and other than "upgrade-done": the driver is about to be exchanged. */
#define EN_UPGRADE_LABEL "nvidia.com/gpu-driver-upgrade-state"

struct en_pod {
	/* uid, ns, name, node, phase, deleting, and the annotations that matter */
	struct st_pod_spec spec;
	const char *runtime_uid; /* of a static pod: what the runtime knows it by; else spec.uid */
	/* Who made it, seen from its user: "Deployment" "web"; a bare pod is its own: "Pod" "web-0". */
	const char *owner_kind, *owner;
	bool allocated; /* carries tessera.dev/allocation */
	/* When its grace ends, in monotonic milliseconds of the client's clock; 0: it is not deleted. It is the
	 * grace from when the watch told of the deletion, which is what the kubelet goes by: neither this
	 * node's wall clock nor that of the API server moves it. Of a pod that was being deleted already when
	 * it was listed, what is left of it by the wall clock, at most all. */
	int64_t delete_ms;
	int64_t delete_s; /* its deletionTimestamp, since the epoch; 0: none */
};

struct en_pods_options {
	struct ku_client *client;  /* outlives the watches */
	const char *node, *prefix; /* of annotation keys; copied */
	struct log *log;           /* may be NULL */
	/* Pods or the label changed. On the client's thread, without a lock; may be NULL. */
	void (*changed)(void *ctx);
	void *ctx;
};

struct en_pods;

/* ERR_NOMEM, ERR_INVALID (the node's name). */
int en_pods_start(const struct en_pods_options *o, struct en_pods **ret, struct err *err);
void en_pods_stop(struct en_pods *p); /* NULL is fine */

/* The first list is complete, and the watch goes on from there. */
bool en_pods_synced(struct en_pods *p);

/* Calls fn for each pod, under the lock: fn must not call back here, nor block. */
void en_pods_each(struct en_pods *p, void (*fn)(void *ctx, const struct en_pod *pod), void *ctx);
/* A copy of the pod with that uid (the API server's or the runtime's). *ret NULL: not known. To be freed
 * with en_pod_free(). ERR_NOMEM. */
int en_pods_get(struct en_pods *p, const char *uid, struct en_pod **ret, struct err *err);
void en_pod_free(struct en_pod *pod); /* NULL is fine */
/* When the first grace of a deleted pod with an allocation ends, as delete_ms; 0: none is deleted. */
int64_t en_pods_next_deletion(struct en_pods *p);
/* Is there such a pod, with an allocation of ours? */
bool en_pods_is_ours(struct en_pods *p, const char *ns, const char *name);

/* Changes with every change of a pod; for "has anything happened since". */
uint64_t en_pods_version(struct en_pods *p);

/* The label's value, "" where the node does not carry it. */
void en_pods_upgrade_state(struct en_pods *p, char ret[64]);

struct en_pods_stats {
	uint64_t events, lists, problems;
	size_t pods, unreadable;
	bool synced;
};
void en_pods_get_stats(struct en_pods *p, struct en_pods_stats *ret);

#endif

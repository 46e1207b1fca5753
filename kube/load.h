/* A cluster from what `kubectl get nodes,pods -A -o json` prints: its nodes, and the pods that are
 * bound, with the allocations their annotations carry. Extender and replay start from it. */
#ifndef TESSERA_KUBE_LOAD_H
#define TESSERA_KUBE_LOAD_H

#include <stddef.h>

#include "base/err.h"
#include "state/cluster.h"
#include "state/contract.h"
#include "state/spec.h"

#define KU_LOAD_MAX_BYTES ((size_t)4 << 30)

/* Called for each pod that is neither bound nor finished, in the order of the list. The pod is valid
 * during the call only; its uid is never empty. A negative return ends the loading. */
typedef int (*ku_pending_fn)(void *ctx, const struct st_pod_spec *pod, struct err *err);
/* Called for a bound pod that is worth a warning: its allocation cannot be read or booked (the node
 * is fenced), or its node is not in the list (the pod is left out). */
typedef void (*ku_note_fn)(void *ctx, const struct st_pod_spec *pod, const char *text);

struct ku_loader {
	const struct st_contract_options *opt; /* not NULL */
	ku_pending_fn on_pending;              /* may be NULL */
	ku_pending_fn on_bound;                /* the same for bound pods, before they are booked */
	ku_note_fn on_note;                    /* may be NULL */
	void *ctx;                             /* of both */
};

/* Loads a list from text into c. Nodes first, whatever the order of the list; pods that Succeeded or
 * Failed are skipped; a pod without uid is known as "namespace/name". ERR_INVALID names the item and
 * field, also for a node name or pod UID that occurs twice; ERR_NOMEM. After an error c is to be
 * thrown away: it may hold a part. */
int ku_load_text(struct st_cluster *c, const char *text, size_t len, const struct ku_loader *how,
		 struct err *err);

/* The same from a file ("-": standard input); messages start with its name. ERR_IO,
 * ERR_TOO_LARGE (over KU_LOAD_MAX_BYTES), and the errors above. */
int ku_load_file(struct st_cluster *c, const char *path, const struct ku_loader *how,
		 struct err *err);
int ku_load_cluster(struct st_cluster *c, const char *path, const struct st_contract_options *opt,
		    ku_pending_fn on_pending, void *ctx, struct err *err);

/* Who the pod is for the books: totals as Kubernetes counts them, memory-bound as annotated. The
 * strings are the pod's. */
void ku_pod_ident(const struct st_pod_spec *pod, struct st_pod_ident *ret);

/* Books a bound pod on a node that is known: by its allocation annotations, else as a device
 * plugin's. An allocation that cannot be read or booked fences the node: 0 is returned and *why says
 * it, else why is "". ERR_NOMEM, ERR_INVALID. */
int ku_pod_observe(struct st_cluster *c, const struct st_pod_spec *pod, uint32_t node,
		   const struct st_contract_options *opt, struct err *why, struct err *err);
/* The same where what the pod takes beside GPUs is known from elsewhere: of pod only containers'
 * names, annotations and node are used. */
int ku_pod_observe_as(struct st_cluster *c, const struct st_pod_spec *pod,
		      const struct st_pod_ident *ident, uint32_t node,
		      const struct st_contract_options *opt, struct err *why, struct err *err);

#endif

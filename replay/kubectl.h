/* A cluster as `kubectl get nodes,pods -A -o json` prints it: nodes, bound pods with what they hold,
 * pending pods as arrivals. */
#ifndef TESSERA_REPLAY_KUBECTL_H
#define TESSERA_REPLAY_KUBECTL_H

#include <stdbool.h>

#include "base/err.h"
#include "replay/trace.h"

/* Checks t->json and adds its nodes and, where with_pods, its pending pods to the trace. A pod with
 * an invalid request is left out, counted in t->refused and noted. ERR_INVALID, ERR_NOMEM. */
int rp_kubectl_load(struct rp_trace *t, bool with_pods, rp_note_fn note, void *ctx,
		    struct err *err);

/* The same with pods where nodes are of no matter: the list need not have any. unit_mib > 0: memory of a
 * GPU that sizes are measured by, in place of the nodes' mean; ERR_INVALID where there is
 * neither and a pod asks for MiB. */
int rp_kubectl_pods(struct rp_trace *t, int64_t unit_mib, rp_note_fn note, void *ctx,
		    struct err *err);

/* A fresh cluster from t->json. ERR_NOMEM. */
int rp_kubectl_cluster(const struct rp_trace *t, struct st_cluster **ret, struct err *err);

#endif

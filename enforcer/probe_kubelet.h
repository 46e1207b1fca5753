/* Which devices the kubelet gave to which pods through device plugins: its pod-resources socket
 * (gRPC v1.PodResourcesLister/List over a unix socket). */
#ifndef TESSERA_ENFORCER_PROBE_KUBELET_H
#define TESSERA_ENFORCER_PROBE_KUBELET_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct en_plugin_device {
	char ns[64], pod[254];
	char resource[128]; /* "nvidia.com/gpu" */
	char id[128]; /* as the plugin names it: "GPU-...", "GPU-...::3" (a replica), "MIG-..." */
};

/* Asks, and puts the answer, a ListPodResourcesResponse that en_kubelet_each() can read, in the place of what
 * is in *ret. ERR_NOT_FOUND: no such socket; ERR_IO: no kubelet behind it, an error from it, or an answer that is
 * too large (4 MiB) or not understood; ERR_NOMEM: then *ret is as it was. Waits, at most limit_ms. */
int en_kubelet_ask(const char *socket, int64_t limit_ms, struct buf *ret, struct err *err);

/* Calls fn (may be NULL) for each device in it whose resource begins with prefix ("nvidia.com/"), however many
 * there are. ERR_INVALID: not understood; what came before that was told of. */
int en_kubelet_each(const void *msg, size_t len, const char *prefix,
		    void (*fn)(void *ctx, const struct en_plugin_device *d), void *ctx,
		    struct err *err);

#endif

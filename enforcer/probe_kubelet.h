/* Which devices the kubelet gave to which pods through device plugins: its pod-resources socket
 * (gRPC v1.PodResourcesLister/List over a unix socket). */
#ifndef TESSERA_ENFORCER_PROBE_KUBELET_H
#define TESSERA_ENFORCER_PROBE_KUBELET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct en_plugin_device {
	char ns[64], pod[254];
	char resource[128]; /* "nvidia.com/gpu" */
	char id[128]; /* as the plugin names it: "GPU-...", "GPU-...::3" (a replica), "MIG-..." */
};

/* Devices whose resource begins with prefix ("nvidia.com/"), at most cap; *ret_count may be more.
 * ERR_NOT_FOUND: no such socket; ERR_IO: no kubelet behind it, an error from it, or an answer that is not
 * understood; ERR_NOMEM. Waits, at most limit_ms. */
int en_kubelet_devices(const char *socket, const char *prefix, int64_t limit_ms,
		       struct en_plugin_device *ret, size_t cap, size_t *ret_count,
		       struct err *err);

/* The same from a ListPodResourcesResponse. ERR_INVALID. */
int en_kubelet_parse(const uint8_t *msg, size_t len, const char *prefix,
		     struct en_plugin_device *ret, size_t cap, size_t *ret_count, struct err *err);

#endif

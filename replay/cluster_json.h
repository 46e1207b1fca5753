/* A node table as a cluster in JSON: what tessera-extender --cluster reads. */
#ifndef TESSERA_REPLAY_CLUSTER_JSON_H
#define TESSERA_REPLAY_CLUSTER_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "replay/trace.h"

/* A v1 List of Node objects with inventories; the GPUs have gpu_mib each and UUIDs made from the
 * node's name. ERR_NOMEM; ERR_INTERNAL when it cannot be written. */
int rp_cluster_json(FILE *out, const struct rp_trace *t, int64_t gpu_mib, struct err *err);

#endif

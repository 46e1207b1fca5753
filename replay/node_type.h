/* Kinds of nodes that could be bought, and clusters made of them. */
#ifndef TESSERA_REPLAY_NODE_TYPE_H
#define TESSERA_REPLAY_NODE_TYPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/trace.h"

#define RP_NODE_TYPES_MAX 16
#define RP_NODES_MAX 100000 /* of one type */

struct rp_node_type {
	char name[64];
	char model[ST_PRODUCT_CAP]; /* "" = unknown */
	int64_t cpu_milli, mem_mib;
	int32_t gpu_mib; /* 0 = fractions of a GPU only: pods cannot ask for MiB */
	uint8_t gpus;
	enum rp_mig mig;
	int64_t cost_nano; /* in any unit, > 0 */
	int64_t max;       /* nodes to be had */
};

/* Reads `name=A,cpu=96,memory=768Gi,gpus=8[,model=G2][,gpu-memory=80Gi][,cost=10][,max=40][,mig=yes|auto]`
 * (cpu and memory as Kubernetes writes quantities; cost 1). ERR_INVALID, ERR_RANGE: the message names
 * field and value. *ret is written only on success. */
int rp_node_type_parse(const char *text, struct rp_node_type *ret, struct err *err);
/* The same fields from a JSON list of objects (numbers or strings; "gpu_memory" beside "gpu-memory").
 * Adds to types[*count]. ERR_RANGE: too many types. ERR_EXISTS: a name twice. */
int rp_node_types_json(const char *text, size_t len, struct rp_node_type types[RP_NODE_TYPES_MAX],
		       size_t *count, struct err *err);
/* Adds one, with the same checks. */
int rp_node_types_add(struct rp_node_type types[RP_NODE_TYPES_MAX], size_t *count,
		      const struct rp_node_type *add, struct err *err);

/* The pods of a trace on other nodes: counts[i] nodes of types[i], named `<type>-<number>`. Pods and
 * shapes are those of t, which must outlive it. ERR_NOMEM. Free with rp_trace_view_fini(). */
int rp_trace_view(const struct rp_trace *t, const struct rp_node_type *types, const int64_t *counts,
		  size_t type_count, struct rp_trace *ret, struct err *err);
void rp_trace_view_fini(struct rp_trace *view);
/* Adds n nodes of the type to a trace whose nodes are its own. gpu_mib counts only where pods ask for
 * MiB, and for MIG. ERR_INVALID: it is missing there. ERR_EXISTS, ERR_NOMEM. */
int rp_trace_add_nodes(struct rp_trace *t, const struct rp_node_type *type, int64_t n,
		       struct err *err);

#endif

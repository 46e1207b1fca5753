/* Shared by the files of apply; not for others. */
#ifndef TESSERA_ENFORCER_APPLY_INTERNAL_H
#define TESSERA_ENFORCER_APPLY_INTERNAL_H

#include "enforcer/apply.h"

enum apply_found {
	APPLY_NONE,  /* the pod carries no allocation */
	APPLY_WRONG, /* it carries one that cannot be believed; why is set */
	APPLY_READ,
};

/* Reads the pod's allocation against the node. *ret_own: the grant of the container, -1 = it has none.
 * 0; ERR_NOMEM; ERR_INVALID where the node itself is described wrongly. */
int apply_read(const struct en_node *node, const struct st_pod_spec *pod, const char *container,
	       const struct en_apply_options *opt, enum apply_found *ret_found,
	       struct st_decision *ret, int *ret_own, struct err *why);

/* The annotation by which the pod asks for a share or an instance, or names GPUs, without an allocation;
 * NULL: none. */
const char *apply_asks(const struct st_pod_spec *pod, const struct en_apply_options *opt);

/* The GPU's MIG geometry: as reported, else the built-in one; NULL: not known. */
const struct st_mig_geometry *apply_geometry(const struct en_node_gpu *g);
/* The memory units an instance takes, a bit each; 0: no such profile. */
uint32_t apply_mig_units(const struct en_node_gpu *g, const char *profile, unsigned start);

const char *apply_pipe_root(const struct en_apply_options *opt);

#endif

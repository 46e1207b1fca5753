/* Allocations from a file, for nodes without Kubernetes: an administrator says what each container has,
 * and it is applied and distrusted like what an extender writes.
 *
 *	{"allocations": [
 *	  {"namespace": "default", "pod": "train", "container": "main", "gpus": ["GPU-..."],
 *	   "memory": "20Gi", "memory-limit": "24Gi", "mode": "sm-sharing", "compute": "0.25"},
 *	  {"pod": "batch", "container": "main", "gpus": ["GPU-...", "GPU-..."], "whole": true},
 *	  {"pod": "small", "container": "main", "gpus": ["GPU-..."], "mig-profile": "1g.10gb",
 *	   "mig-start": [2]}
 *	]}
 *
 * namespace is "default" where it is not given, memory-limit the memory, mode time-slicing. */
#ifndef TESSERA_ENFORCER_STATIC_H
#define TESSERA_ENFORCER_STATIC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "state/contract.h"
#include "state/spec.h"

struct en_static;

/* node: the name that allocations are written for. ERR_INVALID names entry and field; ERR_IO,
 * ERR_TOO_LARGE (the file), ERR_NOMEM. */
int en_static_load(const char *path, const char *node, const struct st_contract_options *opt,
		   struct en_static **ret, struct err *err);
int en_static_parse(const char *bytes, size_t len, const char *node,
		    const struct st_contract_options *opt, struct en_static **ret, struct err *err);
void en_static_free(struct en_static *s);

/* The annotations of that pod, as an extender would have written them; NULL: the file does not name it.
 * They live as long as s. */
const struct st_annotations *en_static_find(const struct en_static *s, const char *ns,
					    const char *pod);
size_t en_static_count(const struct en_static *s); /* pods */

/* A pod of the file, at < en_static_count(); all of it lives as long as s. */
struct en_static_pod {
	const char *ns, *name;
	const struct st_annotations *annotations;
	size_t container_count;
	const char *containers[ST_ITEMS_MAX];
};
void en_static_at(const struct en_static *s, size_t at, struct en_static_pod *ret);

#endif

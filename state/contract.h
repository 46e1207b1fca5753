/* The annotation contract: users' annotations and resources to a request, a decision to allocation
 * annotations and back. Keys as in CONTRACT.md of this folder; prefix "nvidia.com/container." unless
 * configured otherwise. */
#ifndef TESSERA_STATE_CONTRACT_H
#define TESSERA_STATE_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "state/cluster.h"
#include "state/request.h"
#include "state/spec.h"

struct st_contract_options {
	const char *prefix; /* NULL: "nvidia.com/container." */
	bool hami;          /* understand nvidia.com/gpumem, gpumem-percentage, gpucores */
	bool mig_isolation; /* tessera.dev/isolation: hardware makes shares MIG instances */
	bool cdi;           /* write devices as k8s.device-plugin.nvidia.com/gpu=GPU-... */
};

/* Can keys of containers start with that? ERR_INVALID: it is no "domain/name." of an annotation, is
 * Tessera's own, or leaves no room for a container's name (63 characters behind the '/'). */
int st_contract_prefix_check(const char *prefix, struct err *err);

/* Things worth telling the user that are no reason to refuse. */
#define ST_WARNINGS_MAX 8
struct st_warnings {
	size_t count;
	struct err text[ST_WARNINGS_MAX];
};
/* Adds one; what is too many is left out. w may be NULL. */
void st_warn(struct st_warnings *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Validates what the pod asks for. Allocation keys on the pod are ignored. ret_warn may be NULL.
 * ERR_INVALID / ERR_RANGE: the message names the key (or container and resource) and the value.
 * *ret is written only on success. */
int st_contract_parse(const struct st_pod_spec *pod, const struct st_contract_options *opt,
		      struct st_request *ret, struct st_warnings *ret_warn, struct err *err);

/* Of a pod that carries an allocation, its own or one that it was copied with: which of its annotations
 * st_contract_parse() does not read because that bind wrote them, besides allocation keys. Without
 * those keys they would be read as the user's. ret has an entry for each annotation. Errors as
 * st_contract_parse(); what was found until then is marked. */
int st_contract_leftovers(const struct st_pod_spec *pod, const struct st_contract_options *opt,
			  bool *ret, struct err *err);

/* A list of annotations that owns its strings. */
struct st_annotations {
	size_t count, cap;
	struct st_kv *kv; /* both strings malloc'ed */
};
void st_annotations_fini(struct st_annotations *a);

/* Writes the allocation keys of a decision made on node (names, UUIDs from the cluster).
 * Checks key and total sizes: ERR_TOO_LARGE. ERR_NOMEM. *ret is to be empty at entry and must be
 * freed by the caller on success; it is empty after an error. */
int st_contract_encode(const struct st_cluster *c, const struct st_decision *d,
		       const struct st_contract_options *opt, struct st_annotations *ret,
		       struct err *err);

/* Are the pod's annotations with a in their place legal in size together? ERR_TOO_LARGE. The API
 * server does not look at that when it binds, and refuses every later update of the pod. */
int st_contract_check_size(const struct st_pod_spec *pod, const struct st_annotations *a,
			   struct err *err);

enum st_allocation_kind {
	ST_ALLOCATION_NONE,     /* no tessera.dev/allocation key */
	ST_ALLOCATION_COMPLETE, /* digest and node match; *ret is filled */
};

/* Reads the allocation of a pod that is bound to its node. Only keys covered by the digest count.
 * UUIDs are looked up on the node. ERR_INVALID (with the reason) when the key is there but digest,
 * node, values or GPUs are wrong: the caller fences the node. */
int st_contract_decode(const struct st_cluster *c, const struct st_pod_spec *pod, uint32_t node,
		       const struct st_contract_options *opt, enum st_allocation_kind *ret_kind,
		       struct st_decision *ret, struct err *err);

/* Memory limits that users wish for containers that run: tessera.dev/container.<c>.memory-limit. */
bool st_contract_has_wish(const struct st_pod_spec *pod, const struct st_contract_options *opt);
/* Puts the wishes of a bound pod into *d, which st_contract_decode() read from it; *ret_changed where one
 * differs. A higher limit has to fit: each on its GPUs, and the sum of the limits there, those of the
 * pod's own booking left out. ERR_INVALID, ERR_RANGE, ERR_NO_ROOM: key and value with the reason, and
 * *d is as before. */
int st_contract_wishes(const struct st_cluster *c, const struct st_pod_spec *pod,
		       const struct st_contract_options *opt, struct st_decision *d,
		       bool *ret_changed, struct err *err);

/* True for keys that only the extender may write (section 2 of the contract). */
bool st_contract_is_allocation_key(const char *key, const struct st_contract_options *opt);

/* Whole GPUs (nvidia.com/gpu in limits) a pod without an allocation holds by the device plugin. */
uint32_t st_contract_plugin_gpus(const struct st_pod_spec *pod);

#endif

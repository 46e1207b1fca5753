/* Between the two steps of parsing: contract_collect.c fills slots with what a pod says about each
 * of its containers, contract_parse.c builds a request from them. */
#ifndef TESSERA_STATE_CONTRACT_PARSE_INTERNAL_H
#define TESSERA_STATE_CONTRACT_PARSE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/contract_internal.h"

#define RESOURCE_GPU "nvidia.com/gpu"
#define RESOURCE_MIG "nvidia.com/mig-"

enum pod_key {
	POD_FRACTION,
	POD_FRACTION_LIMIT,
	POD_MEMORY,
	POD_MEMORY_LIMIT,
	POD_DEVICES,
	POD_CONTAINER,
	POD_POLICY,
	POD_PRODUCT,
	POD_WORKLOAD,
	POD_ISOLATION,
	POD_KEY_COUNT,
};
extern const char *const contract_pod_keys[POD_KEY_COUNT];

enum hami { HAMI_MEM, HAMI_MEM_PERCENT, HAMI_CORES, HAMI_COUNT };

/* A number from a container's resources; name NULL = not there. */
struct amount {
	const char *name, *text;
	int64_t n;
};

/* All that is said about one container. */
struct slot {
	size_t container; /* index in the pod */
	const char *name;
	const struct st_kv *kv[CONTRACT_FIELD_COUNT];
	bool has_target_keys; /* the pod-level keys give it a share */
	struct amount whole, mig, hami[HAMI_COUNT];
};

struct parse {
	const struct st_pod_spec *pod;
	const struct st_contract_options *opt;
	struct st_warnings *warn;
	struct err *err;
	bool *left; /* of each annotation of the pod: not read, a leftover; may be NULL */
	const char *pod_value[POD_KEY_COUNT];
	bool leftover;     /* carries tessera.dev/allocation, its own or one it was copied with */
	bool preferred;    /* compute-mode-policy */
	bool hardware;     /* isolation */
	bool devices_used; /* gpu-fraction-num-devices found its container */
	size_t target;     /* container of the pod-level keys; container_count = none */
	size_t slot_count;
	struct slot slots[ST_ITEMS_MAX]; /* in the order of the pod's containers */
};

/* Fills pod_value, leftover, target and slots. Errors as st_contract_parse(). */
int contract_collect(struct parse *p);

/* A quantity of bytes, at least 1Mi, in MiB; the error names key and value. */
int contract_parse_bytes(struct parse *p, const char *key, const char *value, int32_t *ret_mib);
/* The wish for a limit (memory-limit) beside what the container gets; it NULL: nothing. */
int contract_check_wish(struct parse *p, const struct slot *s, const struct st_item *it);

/* Sets the error `KEY: "VALUE" <formatted>` and returns code. */
int contract_bad(struct parse *p, int code, const char *key, const char *value, const char *fmt,
		 ...) __attribute__((format(printf, 5, 6)));
/* The same for a container's resource. */
int contract_bad_amount(struct parse *p, int code, const struct slot *s, const struct amount *a,
			const char *text);
void contract_warn(struct parse *p, const char *key, const char *value, const char *text);

#endif

/* Nodes, pods and allocations for tests of the enforcer. */
#ifndef TESSERA_TEST_ENFORCER_FIXTURE_H
#define TESSERA_TEST_ENFORCER_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "enforcer/apply.h"

#define EF_ANNOTATIONS_MAX 48
#define EF_INSTANCES_MAX 8

struct ef_node {
	struct en_node node;
	struct en_node_gpu gpus[ST_GPUS_MAX];
	struct en_mig_instance instances[ST_GPUS_MAX][EF_INSTANCES_MAX];
};
/* count A100s "GPU-0000000<i>-0000-4000-8000-000000000000" of mem_mib each; MPS 3 ready, limits by cgroup.
 * Not to be copied: it points into itself. */
void ef_node_init(struct ef_node *n, const char *name, size_t count, int32_t mem_mib);
/* Puts a GPU into MIG mode, and an instance "MIG-<gpu>-<start>" onto it. */
void ef_node_instance(struct ef_node *n, size_t gpu, const char *profile, uint8_t start);

struct ef_pod {
	struct st_pod_spec spec; /* uid, ns "ns", name = uid; annotations below */
	struct st_kv kv[EF_ANNOTATIONS_MAX];
	struct st_annotations owned[4];
	size_t owned_count;
};
void ef_pod_init(struct ef_pod *p, const char *uid);
void ef_pod_fini(struct ef_pod *p);
/* Adds, or replaces the value of that key; strings outlive p. */
void ef_pod_annotate(struct ef_pod *p, const char *key, const char *value);
/* Takes the annotation away. */
void ef_pod_strip(struct ef_pod *p, const char *key);
/* Writes the allocation as the extender does. */
void ef_pod_allocate(struct ef_pod *p, const struct ef_node *n, const struct st_decision *d,
		     const struct st_contract_options *opt);

struct st_grant *ef_share(struct st_decision *d, const char *container, enum st_mode mode,
			  uint8_t gpu, int32_t request_mib, int32_t limit_mib);
struct st_grant *ef_whole(struct st_decision *d, const char *container, uint8_t first,
			  uint8_t count);
struct st_grant *ef_mig(struct st_decision *d, const char *container, uint8_t gpu,
			const char *profile, uint8_t start);
/* One more GPU for a grant. */
void ef_also(struct st_grant *g, uint8_t gpu);

/* A pod whose one container "main" has a share of one GPU. */
void ef_pod_shared(struct ef_pod *p, const char *uid, const struct ef_node *n, enum st_mode mode,
		   uint8_t gpu, int32_t mib);

/* The value that an adjustment gives a variable; NULL: none ("-" where it is only taken away). */
const char *ef_env(const struct en_adjust *a, const char *key);

#endif

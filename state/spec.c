#include "state/spec.h"

#include <string.h>

#include "base/arith.h"

#define MIB (INT64_C(1) << 20)

const char *st_pod_annotation(const struct st_pod_spec *p, const char *key)
{
	for (size_t i = 0; i < p->annotation_count; i++)
		if (strcmp(p->annotations[i].key, key) == 0)
			return p->annotations[i].value;
	return NULL;
}

/* a + b for numbers that are not negative. */
static int64_t add(int64_t a, int64_t b)
{
	int64_t sum;

	return arith_add(a, arith_max(b, 0), &sum) ? sum : INT64_MAX;
}

/* Source: Kubernetes, KEP-753 "sidecar containers", resource calculation of a pod. */
void st_pod_spec_totals(const struct st_pod_spec *p, int64_t *ret_cpu_milli, int64_t *ret_mem_mib)
{
	int64_t cpu = 0, mem = 0;           /* regular containers */
	int64_t side_cpu = 0, side_mem = 0; /* sidecars started so far */
	int64_t init_cpu = 0, init_mem = 0; /* largest moment of the initialisation */

	for (size_t i = 0; i < p->container_count; i++) {
		const struct st_container_spec *k = &p->containers[i];

		if (!k->init) {
			cpu = add(cpu, k->cpu_milli);
			mem = add(mem, k->mem_bytes);
			continue;
		}
		if (k->sidecar) {
			side_cpu = add(side_cpu, k->cpu_milli);
			side_mem = add(side_mem, k->mem_bytes);
			continue;
		}
		init_cpu = arith_max(init_cpu, add(side_cpu, k->cpu_milli));
		init_mem = arith_max(init_mem, add(side_mem, k->mem_bytes));
	}
	cpu = p->pod_cpu_given ? p->pod_cpu_milli : arith_max(add(cpu, side_cpu), init_cpu);
	mem = p->pod_mem_given ? p->pod_mem_bytes : arith_max(add(mem, side_mem), init_mem);
	cpu = add(cpu, p->overhead_cpu_milli);
	mem = add(mem, p->overhead_mem_bytes);
	*ret_cpu_milli = cpu;
	*ret_mem_mib = mem == INT64_MAX ? INT64_MAX : mem / MIB + (mem % MIB != 0);
}

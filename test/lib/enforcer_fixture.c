#include "test/lib/enforcer_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/cluster.h"
#include "state/contract.h"

void ef_node_init(struct ef_node *n, const char *name, size_t count, int32_t mem_mib)
{
	*n = (struct ef_node){
		.node = {.name = name,
			 .gpu_count = count,
			 .mps_ready = true,
			 .mps_v3 = true,
			 .memory_limits = true},
	};
	n->node.gpus = n->gpus;
	for (size_t i = 0; i < count; i++) {
		struct en_node_gpu *g = &n->gpus[i];

		snprintf(g->uuid, sizeof(g->uuid), "GPU-%08zu-0000-4000-8000-000000000000", i);
		g->index = (uint32_t)i;
		g->product = "NVIDIA A100-SXM4-80GB";
		g->mem_mib = mem_mib;
		g->instances = n->instances[i];
	}
}

void ef_node_instance(struct ef_node *n, size_t gpu, const char *profile, uint8_t start)
{
	struct en_node_gpu *g = &n->gpus[gpu];
	struct en_mig_instance *i = &n->instances[gpu][g->instance_count];

	if (g->instance_count == EF_INSTANCES_MAX)
		abort();
	g->mig_enabled = true;
	g->instance_count++;
	snprintf(i->profile, sizeof(i->profile), "%s", profile);
	i->start = start;
	snprintf(i->uuid, sizeof(i->uuid), "MIG-%zu-%u", gpu, start);
}

void ef_pod_init(struct ef_pod *p, const char *uid)
{
	*p = (struct ef_pod){.spec = {.uid = uid, .ns = "ns", .name = uid}};
	p->spec.annotations = p->kv;
}

void ef_pod_fini(struct ef_pod *p)
{
	for (size_t i = 0; i < p->owned_count; i++)
		st_annotations_fini(&p->owned[i]);
	p->owned_count = 0;
	p->spec.annotation_count = 0;
}

void ef_pod_annotate(struct ef_pod *p, const char *key, const char *value)
{
	ef_pod_strip(p, key);
	if (p->spec.annotation_count == EF_ANNOTATIONS_MAX)
		abort();
	p->kv[p->spec.annotation_count++] = (struct st_kv){key, value};
}

void ef_pod_strip(struct ef_pod *p, const char *key)
{
	size_t to = 0;

	for (size_t i = 0; i < p->spec.annotation_count; i++) {
		if (strcmp(p->kv[i].key, key) != 0)
			p->kv[to++] = p->kv[i];
	}
	p->spec.annotation_count = to;
}

void ef_pod_allocate(struct ef_pod *p, const struct ef_node *n, const struct st_decision *d,
		     const struct st_contract_options *opt)
{
	struct st_gpu_spec *gpus = calloc(ST_GPUS_MAX, sizeof(*gpus));
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_node_spec spec = {.name = n->node.name, .product = "NVIDIA A100-SXM4-80GB"};
	struct st_annotations *a = &p->owned[p->owned_count];
	struct st_decision there = *d;
	struct err err = ERR_INIT;

	if (gpus == NULL || c == NULL || p->owned_count == 4)
		abort();
	for (size_t i = 0; i < n->node.gpu_count; i++) {
		gpus[i].uuid = n->gpus[i].uuid;
		gpus[i].mem_mib = n->gpus[i].mem_mib;
		gpus[i].mig_enabled = n->gpus[i].mig_enabled;
	}
	spec.gpu_count = n->node.gpu_count;
	spec.gpus = gpus;
	if (st_cluster_node_put(c, &spec, &there.node, &err) != 0 ||
	    st_contract_encode(c, &there, opt, a, &err) != 0) {
		fprintf(stderr, "allocation: %s\n", err.msg);
		abort();
	}
	p->owned_count++;
	for (size_t i = 0; i < a->count; i++)
		ef_pod_annotate(p, a->kv[i].key, a->kv[i].value);
	st_cluster_free(c);
	free(gpus);
}

static struct st_grant *grant(struct st_decision *d, const char *container)
{
	struct st_grant *g;

	if (d->grant_count == ST_ITEMS_MAX)
		abort();
	g = &d->grants[d->grant_count++];
	*g = (struct st_grant){.count = 0};
	snprintf(g->container, sizeof(g->container), "%s", container);
	return g;
}

void ef_also(struct st_grant *g, uint8_t gpu)
{
	g->gpu[g->count++] = gpu;
}

struct st_grant *ef_share(struct st_decision *d, const char *container, enum st_mode mode,
			  uint8_t gpu, int32_t request_mib, int32_t limit_mib)
{
	struct st_grant *g = grant(d, container);

	g->kind = ST_KIND_SHARE;
	g->mode = mode;
	g->request_mib = request_mib;
	g->limit_mib = limit_mib;
	ef_also(g, gpu);
	return g;
}

struct st_grant *ef_whole(struct st_decision *d, const char *container, uint8_t first,
			  uint8_t count)
{
	struct st_grant *g = grant(d, container);

	g->kind = ST_KIND_WHOLE;
	g->mode = ST_MODE_EXCLUSIVE;
	for (uint8_t i = 0; i < count; i++)
		ef_also(g, (uint8_t)(first + i));
	return g;
}

struct st_grant *ef_mig(struct st_decision *d, const char *container, uint8_t gpu,
			const char *profile, uint8_t start)
{
	struct st_grant *g = grant(d, container);

	g->kind = ST_KIND_MIG;
	g->mode = ST_MODE_MIG;
	snprintf(g->profile, sizeof(g->profile), "%s", profile);
	g->start[0] = start;
	ef_also(g, gpu);
	return g;
}

void ef_pod_shared(struct ef_pod *p, const char *uid, const struct ef_node *n, enum st_mode mode,
		   uint8_t gpu, int32_t mib)
{
	struct st_decision d = {.grant_count = 0};

	ef_pod_init(p, uid);
	ef_share(&d, "main", mode, gpu, mib, mib);
	ef_pod_allocate(p, n, &d, NULL);
}

const char *ef_env(const struct en_adjust *a, const char *key)
{
	for (size_t i = 0; i < a->env_count; i++) {
		if (strcmp(a->env[i].key, key) == 0)
			return a->env[i].value != NULL ? a->env[i].value : "-";
	}
	return NULL;
}

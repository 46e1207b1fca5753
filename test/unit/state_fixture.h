/* Short ways to make nodes, pods and decisions for the tests of state/. */
#ifndef TESSERA_TEST_STATE_FIXTURE_H
#define TESSERA_TEST_STATE_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "state/cluster.h"

/* A node description that owns its strings. */
struct fx_node {
	struct st_node_spec spec;
	struct st_gpu_spec gpus[ST_GPUS_MAX + 1];
	char uuids[ST_GPUS_MAX + 1][32];
};

/* count GPUs "<name>-<index>" of mem_mib each, 64 cores, 512 GiB. */
static inline void fx_node_init(struct fx_node *n, const char *name, size_t count, int32_t mem_mib)
{
	memset(n, 0, sizeof(*n));
	n->spec.name = name;
	n->spec.cpu_milli = 64000;
	n->spec.mem_mib = 524288;
	n->spec.from_inventory = true;
	n->spec.gpu_count = count;
	n->spec.gpus = n->gpus;
	for (size_t i = 0; i < count; i++) {
		snprintf(n->uuids[i], sizeof(n->uuids[i]), "%s-%zu", name, i);
		n->gpus[i].uuid = n->uuids[i];
		n->gpus[i].mem_mib = mem_mib;
	}
}

static inline void fx_node_mig(struct fx_node *n, size_t gpu, const struct st_mig_geometry *g)
{
	n->gpus[gpu].mig_enabled = true;
	n->gpus[gpu].has_geometry = g != NULL;
	if (g != NULL)
		n->gpus[gpu].geometry = *g;
}

static inline void fx_node_instance(struct fx_node *n, size_t gpu, const char *profile,
				    uint8_t start)
{
	struct st_gpu_spec *g = &n->gpus[gpu];

	snprintf(g->instances[g->instance_count].profile, ST_MIG_NAME_CAP, "%s", profile);
	g->instances[g->instance_count++].start = start;
}

static inline uint32_t fx_put(struct st_cluster *c, const struct fx_node *n)
{
	struct fx_node copy = *n; /* the copy's pointers still lead to the original's strings */
	struct err e = ERR_INIT;
	uint32_t id = ST_NONE;

	copy.spec.gpus = copy.gpus;
	cr_assert_eq(st_cluster_node_put(c, &copy.spec, &id, &e), 0, "%s", e.msg);
	return id;
}

static inline struct st_pod_ident fx_pod(const char *uid)
{
	return (struct st_pod_ident){
		.uid = uid, .ns = "ns", .name = uid, .cpu_milli = 100, .mem_mib = 256};
}

static inline struct st_grant *fx_grant(struct st_decision *d)
{
	struct st_grant *g = &d->grants[d->grant_count++];

	memset(g, 0, sizeof(*g));
	snprintf(g->container, sizeof(g->container), "c%u", d->grant_count);
	g->count = 1;
	return g;
}

static inline struct st_grant *fx_share(struct st_decision *d, enum st_mode mode, uint8_t gpu,
					int32_t request_mib)
{
	struct st_grant *g = fx_grant(d);

	g->kind = ST_KIND_SHARE;
	g->mode = mode;
	g->gpu[0] = gpu;
	g->request_mib = g->limit_mib = request_mib;
	return g;
}

static inline struct st_grant *fx_whole(struct st_decision *d, uint8_t first, uint8_t count)
{
	struct st_grant *g = fx_grant(d);

	g->kind = ST_KIND_WHOLE;
	g->mode = ST_MODE_EXCLUSIVE;
	g->count = count;
	for (uint8_t i = 0; i < count; i++)
		g->gpu[i] = (uint8_t)(first + i);
	return g;
}

static inline struct st_grant *fx_mig(struct st_decision *d, uint8_t gpu, const char *profile,
				      uint8_t start)
{
	struct st_grant *g = fx_grant(d);

	g->kind = ST_KIND_MIG;
	g->mode = ST_MODE_MIG;
	g->gpu[0] = gpu;
	g->start[0] = start;
	snprintf(g->profile, sizeof(g->profile), "%s", profile);
	return g;
}

static inline struct st_decision fx_one_share(uint32_t node, uint8_t gpu, int32_t request_mib)
{
	struct st_decision d = {.node = node};

	fx_share(&d, ST_MODE_TIME_SLICING, gpu, request_mib);
	return d;
}

static inline void fx_check(const struct st_cluster *c)
{
	struct err e = ERR_INIT;

	cr_assert_eq(st_cluster_check(c, ST_NONE, &e), 0, "%s", e.msg);
}

static inline int fx_reserve(struct st_cluster *c, const char *uid, const struct st_decision *d)
{
	struct st_pod_ident pod = fx_pod(uid);
	struct err e = ERR_INIT;
	int can = st_cluster_can_book(c, &pod, d, true, &e);
	int r = st_cluster_reserve(c, &pod, d, &e);

	cr_expect(r == can || r == ERR_EXISTS, "%s: %d, but can_book %d: %s", uid, r, can, e.msg);
	cr_expect(r == 0 || e.msg[0] != '\0');
	fx_check(c);
	return r;
}

/* Observes; true where the pod is fenced. */
static inline bool fx_observe(struct st_cluster *c, const char *uid, uint32_t node,
			      const struct st_decision *d, uint32_t whole_gpus)
{
	struct st_pod_ident pod = fx_pod(uid);
	struct err e = ERR_INIT;
	bool fenced = false;

	cr_assert_eq(st_cluster_observe(c, &pod, node, d, whole_gpus, &fenced, &e), 0, "%s", e.msg);
	cr_expect(!fenced || e.msg[0] != '\0', "%s fenced without a word", uid);
	fx_check(c);
	return fenced;
}

static inline int fx_move(struct st_cluster *c, const char *uid, enum st_pod_event ev)
{
	struct err e = ERR_INIT;
	int r = st_cluster_pod_move(c, uid, ev, &e);

	fx_check(c);
	return r;
}

static inline const struct st_gpu *fx_gpu(const struct st_cluster *c, uint32_t node, uint8_t gpu)
{
	const struct st_node *n = st_cluster_node(c, node);

	cr_assert(n != NULL && gpu < n->gpu_count);
	return &n->gpus[gpu];
}

#endif

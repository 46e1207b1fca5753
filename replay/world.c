/* From a trace to a cluster that the placer can work on. */
#include <string.h>

#include "replay/kubectl.h"
#include "replay/trace.h"

static int put_node(struct st_cluster *c, const struct rp_trace *t, uint32_t i,
		    const uint32_t *ranks, struct err *err)
{
	const struct rp_node *n = &t->nodes[i];
	struct st_gpu_spec gpus[ST_GPUS_MAX];
	struct st_node_spec spec = {
		.name = strpool_str(t->node_names, i),
		.product = n->model != STRPOOL_NONE ? strpool_str(t->models, n->model) : NULL,
		.cpu_milli = n->cpu_milli,
		.mem_mib = n->mem_mib,
		.gpu_count = n->gpu_count,
		.gpus = gpus,
	};
	int rc;

	memset(gpus, 0, n->gpu_count * sizeof(gpus[0]));
	for (unsigned g = 0; g < n->gpu_count; g++) {
		gpus[g].mem_mib = n->gpu_mib > 0 ? n->gpu_mib : RP_GPU_UNITS;
		gpus[g].mig_enabled = n->mig == RP_MIG_YES;
		gpus[g].mig_switchable = n->mig == RP_MIG_AUTO;
		gpus[g].has_geometry = n->mig != RP_MIG_NO;
		if (n->mig != RP_MIG_NO)
			gpus[g].geometry = *n->geometry;
	}
	if (ranks != NULL) {
		spec.has_rank = true;
		spec.rank = ranks[i];
	}
	rc = st_cluster_node_put(c, &spec, NULL, err);
	return rc == 0 && n->removed ? st_cluster_node_remove(c, spec.name, err) : rc;
}

/* The cluster of the file, and what was changed about its nodes. */
static int live_cluster(const struct rp_trace *t, struct st_cluster **ret, struct err *err)
{
	struct st_cluster *c = NULL;
	int rc = rp_kubectl_cluster(t, &c, err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < t->node_count; i++) {
		if (i >= st_cluster_node_count(c))
			rc = put_node(c, t, i, NULL, err);
		else if (t->nodes[i].removed)
			rc = st_cluster_node_remove(c, strpool_str(t->node_names, i), err);
	}
	if (rc < 0) {
		st_cluster_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

int rp_trace_cluster(const struct rp_trace *t, const uint32_t *ranks, struct st_cluster **ret,
		     struct err *err)
{
	/* The trace knows no bound on the pods that share a device. */
	struct st_config cfg = ST_CONFIG_DEFAULT;
	struct st_cluster *c;
	int rc = 0;

	if (rp_trace_is_json(t))
		return live_cluster(t, ret, err);
	cfg.clients_max = RP_GPU_UNITS;
	c = st_cluster_new(&cfg);
	if (c == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (uint32_t i = 0; rc == 0 && i < t->node_count; i++)
		rc = put_node(c, t, i, ranks, err);
	if (rc < 0) {
		st_cluster_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

int64_t rp_node_used_milli(const struct st_node *n)
{
	int64_t used = 0;

	for (unsigned g = 0; g < n->gpu_count; g++) {
		const struct st_gpu *gpu = &n->gpus[g];
		int64_t free_milli = 0;

		if (gpu->taken == ST_TAKEN_NO && gpu->alloc_mib > 0)
			free_milli = (int64_t)gpu->free_mib * RP_GPU_UNITS / gpu->alloc_mib;
		used += RP_GPU_UNITS - free_milli;
	}
	return used;
}

/* Preemption. All is tried on a copy of the node: the cluster does not change. */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_internal.h"

static void gpu_spec(const struct st_gpu *g, struct st_gpu_spec *ret)
{
	int profile, start;

	ret->uuid = g->uuid;
	ret->mem_mib = g->mem_mib;
	ret->unhealthy = g->taken == ST_TAKEN_UNHEALTHY || g->taken == ST_TAKEN_GONE;
	ret->foreign = g->taken == ST_TAKEN_FOREIGN ? (g->taken_by ? g->taken_by : "others") : NULL;
	if (!g->mig)
		return;
	ret->mig_enabled = true;
	ret->has_geometry = true;
	ret->geometry = *g->mig;
	for (int i = 0; st_mig_at(g->mig, g->mig_foreign, i, &profile, &start); i++) {
		memcpy(ret->instances[i].profile, g->mig->profiles[profile].name,
		       sizeof(ret->instances[i].profile));
		ret->instances[i].start = (uint8_t)start;
		ret->instance_count++;
	}
}

static int copy_pods(const struct st_cluster *c, uint32_t node, struct st_cluster *to,
		     bool (*skip)(const struct st_pod *p, void *ctx), void *ctx)
{
	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL); p;
	     p = st_cluster_node_pod_next(c, node, p)) {
		struct st_pod_ident ident = {
			.uid = p->uid,
			.ns = p->ns,
			.name = p->name,
			.priority = p->priority,
			.cpu_milli = p->cpu_milli,
			.mem_mib = p->mem_mib,
			.deleting = p->deleting,
			.memory_bound = p->memory_bound,
		};
		struct st_decision d = {.node = 0, .grant_count = p->grant_count};
		uint32_t whole = 0;
		bool fenced;
		int rc;

		if (skip && skip(p, ctx))
			continue;
		if (p->grant_count > 0)
			memcpy(d.grants, p->grants, p->grant_count * sizeof(*p->grants));
		if (p->fenced) {
			rc = st_cluster_fence(to, &ident, 0, NULL);
		} else {
			for (unsigned i = 0; p->foreign && i < p->grant_count; i++)
				whole += p->grants[i].count;
			rc = st_cluster_observe(to, &ident, 0,
						p->grant_count > 0 && !p->foreign ? &d : NULL, whole,
						&fenced, NULL);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

struct st_cluster *po_copy_node(const struct st_cluster *c, uint32_t node,
				bool (*skip)(const struct st_pod *p, void *ctx), void *ctx)
{
	const struct st_node *n = st_cluster_node(c, node);
	struct st_gpu_spec *gpus = calloc((size_t)n->gpu_count + 1, sizeof(*gpus));
	struct st_cluster *to = st_cluster_new(st_cluster_config(c));
	struct st_node_spec spec = {
		.name = n->name,
		.product = n->product == STRPOOL_NONE
				   ? NULL
				   : strpool_str(st_cluster_products(c), n->product),
		.cpu_milli = n->cpu_milli,
		.mem_mib = n->mem_mib,
		.pods = n->pods_max,
		.unready = n->unready,
		.why_unready = n->why_unready,
		.from_inventory = n->from_inventory,
		.has_rank = true,
		.rank = n->rank,
		.gpu_count = n->gpu_count,
		.gpus = gpus,
	};

	if (gpus)
		for (unsigned i = 0; i < n->gpu_count; i++)
			gpu_spec(&n->gpus[i], &gpus[i]);
	if (!gpus || !to || st_cluster_node_put(to, &spec, NULL, NULL) < 0 ||
	    copy_pods(c, node, to, skip, ctx) < 0 ||
	    (!n->present && st_cluster_node_remove(to, n->name, NULL) < 0)) {
		st_cluster_free(to);
		to = NULL;
	}
	free(gpus);
	return to;
}

/* ---- victims ---- */

struct candidate {
	const struct st_pod *pod;
	bool proposed;
	bool keep_victim; /* proposed, and holds no GPU */
};

static bool fits(const struct st_cluster *copy, const struct st_request *req, enum bp_verdict *ret_v)
{
	struct bp_chooser how = {.pick = BP_PICK_BEST_FIT};
	struct st_decision d;

	*ret_v = bp_choose(copy, &how, 0, req, &d, NULL);
	return *ret_v == BP_OK;
}

static bool is_proposed(const char *uid, const char *const *proposed, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(proposed[i], uid) == 0)
			return true;
	return false;
}

/* Who is given back first: not proposed, more important, smaller; by UID at last. */
static int give_back_order(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;

	if (a->proposed != b->proposed)
		return a->proposed ? 1 : -1;
	if (a->pod->priority != b->pod->priority)
		return a->pod->priority > b->pod->priority ? -1 : 1;
	if (a->pod->grant_count != b->pod->grant_count)
		return a->pod->grant_count < b->pod->grant_count ? -1 : 1;
	return strcmp(a->pod->uid, b->pod->uid);
}

static struct candidate *candidates_of(const struct st_cluster *c, uint32_t node, int32_t priority,
				       const char *const *proposed, size_t proposed_count,
				       size_t *ret_count)
{
	struct candidate *list;
	size_t n = 0;

	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL); p;
	     p = st_cluster_node_pod_next(c, node, p))
		n++;
	list = calloc(n + 1, sizeof(*list));
	*ret_count = 0;
	if (!list)
		return NULL;
	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL); p;
	     p = st_cluster_node_pod_next(c, node, p)) {
		bool prop = is_proposed(p->uid, proposed, proposed_count);

		if (p->priority >= priority || p->deleting || p->state == ST_POD_BINDING)
			continue;
		list[(*ret_count)++] = (struct candidate){
			.pod = p, .proposed = prop, .keep_victim = prop && p->grant_count == 0};
	}
	qsort(list, *ret_count, sizeof(*list), give_back_order);
	return list;
}

struct removed {
	const struct candidate *list;
	size_t count;
	const bool *gone;
};

static bool is_gone(const struct st_pod *p, void *ctx)
{
	const struct removed *r = ctx;

	for (size_t i = 0; i < r->count; i++)
		if (r->gone[i] && r->list[i].pod == p)
			return true;
	return false;
}

/* Does the request fit with the pods marked gone away? < 0: no memory. */
static int fits_without(const struct st_cluster *c, uint32_t node, const struct st_request *req,
			const struct candidate *list, size_t count, const bool *gone,
			enum bp_verdict *ret_v)
{
	struct removed r = {list, count, gone};
	struct st_cluster *copy = po_copy_node(c, node, is_gone, &r);
	int fit;

	if (!copy)
		return ERR_NOMEM;
	fit = fits(copy, req, ret_v);
	st_cluster_free(copy);
	return fit;
}

/* A single GPU pod whose going is enough, beside what must go anyway: the least important one. */
static int try_single(const struct st_cluster *c, uint32_t node, const struct st_request *req,
		      const struct candidate *list, size_t count, bool *gone)
{
	enum bp_verdict v;

	for (size_t pass = 0; pass <= count; pass++) {
		int fit;

		for (size_t i = 0; i < count; i++)
			gone[i] = list[i].keep_victim || i + pass == count;
		if (pass > 0 && list[count - pass].pod->grant_count == 0)
			continue;
		fit = fits_without(c, node, req, list, count, gone, &v);
		if (fit != 0)
			return fit;
	}
	return 0;
}

/* All go, then each is given back that need not go. */
static int reprieve(const struct st_cluster *c, uint32_t node, const struct st_request *req,
		    const struct candidate *list, size_t count, bool *gone, enum bp_verdict *ret_v)
{
	enum bp_verdict v;
	int fit;

	for (size_t i = 0; i < count; i++)
		gone[i] = true;
	fit = fits_without(c, node, req, list, count, gone, ret_v);
	if (fit <= 0)
		return fit;
	for (size_t i = 0; i < count; i++) {
		if (list[i].keep_victim)
			continue;
		gone[i] = false;
		fit = fits_without(c, node, req, list, count, gone, &v);
		if (fit < 0)
			return fit;
		gone[i] = !fit;
	}
	return 1;
}

static enum bp_verdict collect(const struct candidate *list, size_t count, const bool *gone,
			       const char ***ret_uids, size_t *ret_count, int *ret_rc)
{
	const char **uids = calloc(count + 1, sizeof(*uids));

	if (!uids) {
		*ret_rc = ERR_NOMEM;
		return BP_MEMORY;
	}
	*ret_count = 0;
	for (size_t i = count; i > 0; i--)
		if (gone[i - 1])
			uids[(*ret_count)++] = list[i - 1].pod->uid;
	*ret_uids = uids;
	return BP_OK;
}

enum bp_verdict po_placer_victims(struct po_placer *p, const struct st_request *req, uint32_t node,
				  int32_t priority, const char *const *proposed,
				  size_t proposed_count, const char ***ret_uids, size_t *ret_count,
				  int *ret_rc)
{
	enum bp_verdict v = BP_NO_NODE;
	struct candidate *list;
	bool *gone;
	size_t count;
	int fit = 0;

	*ret_rc = 0;
	if (node >= st_cluster_node_count(p->cluster))
		return BP_NO_NODE;
	list = candidates_of(p->cluster, node, priority, proposed, proposed_count, &count);
	gone = calloc(count + 1, sizeof(*gone));
	if (!list || !gone) {
		fit = ERR_NOMEM;
	} else {
		fit = try_single(p->cluster, node, req, list, count, gone);
		if (fit == 0)
			fit = reprieve(p->cluster, node, req, list, count, gone, &v);
	}
	if (fit > 0)
		v = collect(list, count, gone, ret_uids, ret_count, ret_rc);
	else if (fit < 0)
		*ret_rc = ERR_NOMEM;
	free(list);
	free(gone);
	return v;
}

/* Preemption. All is tried on one copy of the node, from which pods are taken and to which they are
 * given back: the cluster does not change. */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_internal.h"

static void gpu_spec(const struct st_gpu *g, struct st_gpu_spec *ret)
{
	int profile, start;
	uint64_t present;

	ret->uuid = g->uuid;
	ret->mem_mib = g->mem_mib;
	ret->unhealthy = g->taken == ST_TAKEN_UNHEALTHY || g->taken == ST_TAKEN_GONE;
	ret->foreign = g->taken == ST_TAKEN_FOREIGN ? (g->taken_by ? g->taken_by : "others") : NULL;
	ret->mig_switchable = g->mig_could != NULL;
	if (!g->mig && g->mig_could) {
		ret->has_geometry = true;
		ret->geometry = *g->mig_could;
	}
	if (!g->mig)
		return;
	ret->mig_enabled = true;
	ret->has_geometry = true;
	ret->geometry = *g->mig;
	ret->mig_static = g->mig_open != ST_MIG_ANYWHERE;
	present = ret->mig_static ? g->mig_open | g->mig_foreign : g->mig_foreign;
	for (int i = 0; st_mig_at(g->mig, present, i, &profile, &start); i++) {
		memcpy(ret->instances[i].profile, g->mig->profiles[profile].name,
		       sizeof(ret->instances[i].profile));
		ret->instances[i].start = (uint8_t)start;
		ret->instances[i].held = (g->mig_foreign & st_mig_bit(g->mig, profile, start)) != 0;
		ret->instance_count++;
	}
}

/* Books the pod on the copy as it is booked in the cluster. *ret_booked: it could be. */
static int copy_pod(struct st_cluster *to, const struct st_pod *p, bool *ret_booked)
{
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
	bool fenced = false;
	int rc;

	*ret_booked = true;
	if (p->fenced)
		return st_cluster_fence(to, &ident, 0, NULL);
	if (p->grant_count > 0)
		memcpy(d.grants, p->grants, p->grant_count * sizeof(*p->grants));
	/* What others' pods are assumed to hold is copied as known: it is not to be dealt anew. */
	rc = st_cluster_observe(to, &ident, 0, p->grant_count > 0 ? &d : NULL, 0, &fenced, NULL);
	*ret_booked = !fenced;
	return rc;
}

static int copy_pods(const struct st_cluster *c, uint32_t node, struct st_cluster *to,
		     bool (*skip)(const struct st_pod *p, void *ctx), void *ctx)
{
	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL); p;
	     p = st_cluster_node_pod_next(c, node, p)) {
		bool booked;
		int rc = skip && skip(p, ctx) ? 0 : copy_pod(to, p, &booked);

		if (rc < 0)
			return rc;
	}
	return 0;
}

struct st_cluster *po_copy_node(const struct st_cluster *c, uint32_t node,
				bool (*skip)(const struct st_pod *p, void *ctx), void *ctx)
{
	const struct st_node *n = st_cluster_node(c, node);
	struct st_gpu_spec *gpus = n ? calloc((size_t)n->gpu_count + 1, sizeof(*gpus)) : NULL;
	struct st_cluster *to = gpus ? st_cluster_new(st_cluster_config(c)) : NULL;
	int32_t missing[ST_GPUS_MAX];
	struct st_node_spec spec;
	int rc;

	if (!to) {
		free(gpus);
		return NULL;
	}
	spec = (struct st_node_spec){
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

	for (unsigned i = 0; i < n->gpu_count; i++) {
		gpu_spec(&n->gpus[i], &gpus[i]);
		missing[i] = n->gpus[i].free_mib < 0 ? -n->gpus[i].free_mib : 0;
		gpus[i].mem_mib += missing[i]; /* it shrank when the pods were there already ... */
	}
	rc = st_cluster_node_put(to, &spec, NULL, NULL);
	if (rc == 0)
		rc = copy_pods(c, node, to, skip, ctx);
	for (unsigned i = 0; i < n->gpu_count; i++)
		gpus[i].mem_mib -= missing[i]; /* ... and does so here */
	if (rc < 0 || st_cluster_node_put(to, &spec, NULL, NULL) < 0 ||
	    (!n->present && st_cluster_node_remove(to, n->name, NULL) < 0)) {
		st_cluster_free(to);
		to = NULL;
	}
	free(gpus);
	return to;
}

/* ---- victims ---- */

struct candidate {
	const struct st_pod *pod; /* in the cluster, not in the copy */
	bool proposed;
	bool keep_victim; /* proposed, and holds no GPU */
	bool gone;        /* from the copy */
	unsigned crowd;   /* candidates on its most crowded GPU */
	int64_t size_mib; /* over all its GPUs */
};

struct trial {
	const struct st_cluster *c;
	uint32_t node;
	const struct st_request *req;
	struct st_cluster *copy;
	struct candidate *list;
	size_t count;
	enum bp_verdict verdict; /* of the last look */
};

static bool is_proposed(const char *uid, const char *const *proposed, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(proposed[i], uid) == 0)
			return true;
	return false;
}

/* Who is given back first: not proposed, more important; then the members of crowds, so that those
 * who are left share few GPUs; then the smaller; by UID at last. */
static int give_back_order(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;

	if (a->proposed != b->proposed)
		return a->proposed ? 1 : -1;
	if (a->pod->priority != b->pod->priority)
		return a->pod->priority > b->pod->priority ? -1 : 1;
	if (a->crowd != b->crowd)
		return a->crowd > b->crowd ? -1 : 1;
	if (a->size_mib != b->size_mib)
		return a->size_mib < b->size_mib ? -1 : 1;
	return strcmp(a->pod->uid, b->pod->uid);
}

static void measure_candidates(struct candidate *list, size_t count)
{
	unsigned crowds[ST_GPUS_MAX] = {0};

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < count; i++)
			for (unsigned k = 0; k < list[i].pod->grant_count; k++) {
				const struct st_grant *g = &list[i].pod->grants[k];

				if (pass == 0)
					list[i].size_mib +=
						g->kind == ST_KIND_WHOLE
							? (int64_t)INT32_MAX * g->count
							: (int64_t)g->request_mib * g->count;
				for (unsigned j = 0; j < g->count; j++)
					if (pass == 0)
						crowds[g->gpu[j]]++;
					else if (crowds[g->gpu[j]] > list[i].crowd)
						list[i].crowd = crowds[g->gpu[j]];
			}
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
	measure_candidates(list, *ret_count);
	qsort(list, *ret_count, sizeof(*list), give_back_order);
	return list;
}

static bool fits(struct trial *t)
{
	struct bp_chooser how = {.pick = BP_PICK_BEST_FIT};
	struct st_decision d;

	t->verdict = bp_choose(t->copy, &how, 0, t->req, &d, NULL);
	return t->verdict == BP_OK;
}

static void take_off(struct trial *t, struct candidate *c)
{
	if (!c->gone)
		st_cluster_pod_move(t->copy, c->pod->uid, ST_EVENT_GONE, NULL); /* it is there */
	c->gone = true;
}

static bool is_gone(const struct st_pod *p, void *ctx)
{
	const struct trial *t = ctx;

	for (size_t i = 0; i < t->count; i++)
		if (t->list[i].pod == p)
			return t->list[i].gone;
	return false;
}

static int put_back(struct trial *t, struct candidate *c)
{
	bool booked;
	int rc = copy_pod(t->copy, c->pod, &booked);

	c->gone = rc < 0;
	if (rc < 0 || booked)
		return rc;
	/* It was booked before the GPU shrank, and is too large for it now. */
	st_cluster_free(t->copy);
	t->copy = po_copy_node(t->c, t->node, is_gone, t);
	return t->copy ? 0 : ERR_NOMEM;
}

/* Nobody, or a single pod, beside what must go anyway: the least important one whose going is
 * enough. 1: found, 0: there is none, < 0: no memory. */
static int try_single(struct trial *t)
{
	for (size_t i = 0; i < t->count; i++)
		if (t->list[i].keep_victim)
			take_off(t, &t->list[i]);
	if (fits(t))
		return 1;
	for (size_t i = t->count; i > 0; i--) {
		struct candidate *c = &t->list[i - 1];

		if (c->gone)
			continue;
		take_off(t, c);
		if (fits(t))
			return 1;
		if (put_back(t, c) < 0)
			return ERR_NOMEM;
	}
	return 0;
}

/* All go, then each is given back that need not go. */
static int reprieve(struct trial *t)
{
	for (size_t i = 0; i < t->count; i++)
		take_off(t, &t->list[i]);
	if (!fits(t))
		return 0;
	for (size_t i = 0; i < t->count; i++) {
		struct candidate *c = &t->list[i];

		if (c->keep_victim)
			continue;
		if (put_back(t, c) < 0)
			return ERR_NOMEM;
		if (!fits(t))
			take_off(t, c);
	}
	return 1;
}

/* The least important first. */
static int collect(const struct trial *t, const char ***ret_uids, size_t *ret_count)
{
	const char **uids = calloc(t->count + 1, sizeof(*uids));
	size_t n = 0;

	if (!uids)
		return ERR_NOMEM;
	for (size_t i = t->count; i > 0; i--)
		if (t->list[i - 1].gone)
			uids[n++] = t->list[i - 1].pod->uid;
	*ret_uids = uids;
	*ret_count = n;
	return 0;
}

enum bp_verdict po_placer_victims(struct po_placer *p, const struct st_request *req, uint32_t node,
				  int32_t priority, const char *const *proposed,
				  size_t proposed_count, const char ***ret_uids, size_t *ret_count,
				  int *ret_rc)
{
	struct trial t = {.c = p->cluster, .node = node, .req = req, .verdict = BP_NO_NODE};
	int found = ERR_NOMEM, rc = 0;

	*ret_rc = 0;
	if (node >= st_cluster_node_count(p->cluster))
		return BP_NO_NODE;
	t.list = candidates_of(p->cluster, node, priority, proposed, proposed_count, &t.count);
	if (t.list)
		t.copy = po_copy_node(p->cluster, node, NULL, NULL);
	if (t.list && t.copy)
		found = try_single(&t);
	if (found == 0)
		found = reprieve(&t);
	if (found > 0)
		rc = collect(&t, ret_uids, ret_count);
	if (found < 0 || rc < 0) {
		*ret_rc = ERR_NOMEM;
		t.verdict = BP_MEMORY;
	} else if (found > 0) {
		t.verdict = BP_OK;
	}
	st_cluster_free(t.copy);
	free(t.list);
	return t.verdict;
}

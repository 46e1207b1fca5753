/* The books against a recount from the pods, by brute force. Shares no code with what keeps them:
 * instances are laid out on single memory units here, sums are made anew for every GPU. */
#include <string.h>

#include "state/cluster_internal.h"

#define FAIL(err, ...) err_set(err, ERR_INTERNAL, __VA_ARGS__)

/* What the pods of a node hold of one GPU. */
struct count {
	int64_t request_mib, limit_mib, compute_nano;
	int holders, clients, memory_bound;
	enum st_mode mode;
	int instances;
	struct {
		int profile, start;
	} instance[64];
};

static int count_grant(const struct node_slot *n, const struct st_pod *p, const struct st_grant *gr,
		       uint8_t i, struct count *k, struct err *err)
{
	enum st_mode mode = gr->kind == ST_KIND_SHARE ? gr->mode
			    : gr->kind == ST_KIND_MIG ? ST_MODE_MIG
						      : ST_MODE_EXCLUSIVE;
	uint8_t gpu = gr->gpu[i];

	if (k->holders > 0 && k->mode != mode)
		return FAIL(err, "GPU %u is in two modes: %s, and %s by pod %s", gpu,
			    st_mode_name(k->mode), st_mode_name(mode), p->uid);
	if (k->holders > 0 && mode == ST_MODE_EXCLUSIVE)
		return FAIL(err, "GPU %u is given twice as a whole, to pod %s", gpu, p->uid);
	k->mode = mode;
	k->holders++;
	if (gr->kind == ST_KIND_SHARE) {
		if (gr->request_mib < 1 || gr->limit_mib < 0)
			return FAIL(err, "pod %s holds %d MiB, limit %d", p->uid, gr->request_mib,
				    gr->limit_mib);
		k->request_mib += gr->request_mib;
		k->limit_mib += gr->limit_mib;
		k->compute_nano += mode == ST_MODE_SM_SHARING ? gr->compute_nano : 0;
		k->clients++;
		k->memory_bound += p->memory_bound;
	} else if (gr->kind == ST_KIND_MIG) {
		const struct st_mig_geometry *g = n->pub.gpus[gpu].mig;

		if (g == NULL || k->instances == 64)
			return FAIL(err, "GPU %u holds instances without a geometry", gpu);
		k->instance[k->instances].profile = st_mig_profile_find(g, gr->profile);
		k->instance[k->instances++].start = gr->start[i];
	}
	return 0;
}

/* All that sits on one GPU of the node. */
static int count_gpu(const struct node_slot *n, uint8_t gpu, struct count *k, struct err *err)
{
	memset(k, 0, sizeof(*k));
	for (const struct pod_slot *p = n->first; p != NULL; p = p->next)
		for (uint8_t j = 0; j < p->pub.grant_count; j++) {
			const struct st_grant *gr = &p->pub.grants[j];

			for (uint8_t i = 0; i < gr->count; i++) {
				int r = gr->gpu[i] == gpu ? count_grant(n, &p->pub, gr, i, k, err)
							  : 0;

				if (r < 0)
					return r;
			}
		}
	return 0;
}

/* ---- MIG ---- */

static int check_mig(const struct st_gpu *g, uint8_t gpu, const struct count *k, struct err *err)
{
	int unit_used[ST_MIG_UNITS_MAX] = {0}, compute = 0, free_units = 0;
	uint64_t booked = 0;
	int profile, start;

	for (int i = 0; i < k->instances; i++) {
		uint64_t bit = st_mig_bit(g->mig, k->instance[i].profile, k->instance[i].start);

		if (bit == 0 || (booked & bit) != 0)
			return FAIL(err, "GPU %u: instance of profile %d at %d twice or nowhere",
				    gpu, k->instance[i].profile, k->instance[i].start);
		booked |= bit;
	}
	if ((booked & g->mig_foreign) != 0 || (booked | g->mig_foreign) != g->mig_placed)
		return FAIL(err, "GPU %u: placed %#llx, booked %#llx, foreign %#llx", gpu,
			    (unsigned long long)g->mig_placed, (unsigned long long)booked,
			    (unsigned long long)g->mig_foreign);
	for (int i = 0; st_mig_at(g->mig, g->mig_placed, i, &profile, &start); i++) {
		compute += g->mig->profiles[profile].compute_slices;
		for (int u = start; u < start + g->mig->profiles[profile].units; u++)
			if (unit_used[u]++ > 0)
				return FAIL(err, "GPU %u: two instances on memory unit %d", gpu, u);
	}
	/* Cut beforehand: what is not one of the instances left cannot be given. */
	for (int u = 0; g->mig_open != ST_MIG_ANYWHERE && u < g->mig->units_total; u++)
		unit_used[u] = 1;
	for (int i = 0; g->mig_open != ST_MIG_ANYWHERE &&
			st_mig_at(g->mig, g->mig_open & ~g->mig_placed, i, &profile, &start);
	     i++)
		for (int u = start; u < start + g->mig->profiles[profile].units; u++)
			unit_used[u] = 0;
	if (compute > g->mig->compute_total || !st_mig_legal(g->mig, g->mig_placed))
		return FAIL(err, "GPU %u: instances %#llx are not legal together", gpu,
			    (unsigned long long)g->mig_placed);
	for (int u = 0; u < g->mig->units_total; u++)
		free_units += unit_used[u] == 0;
	if (g->mig->units_total == 0 ||
	    g->free_mib != (int64_t)g->alloc_mib * free_units / g->mig->units_total)
		return FAIL(err, "GPU %u: free %d MiB with %d of %u units free", gpu, g->free_mib,
			    free_units, g->mig->units_total);
	return 0;
}

/* ---- one GPU ---- */

static int check_mode(const struct st_gpu *g, const struct gpu_slot *s, uint8_t gpu,
		      const struct count *k, struct err *err)
{
	enum st_mode want = k->mode;

	if (k->holders == 0)
		want = s->report.mig_enabled && s->report.geometry != NULL ? ST_MODE_MIG
									   : ST_MODE_FREE;
	if (g->mode != want)
		return FAIL(err, "GPU %u shows mode %s, recounted %s", gpu, st_mode_name(g->mode),
			    st_mode_name(want));
	if ((g->mig != NULL) != (g->mode == ST_MODE_MIG))
		return FAIL(err, "GPU %u: geometry %s in mode %s", gpu,
			    g->mig != NULL ? "present" : "missing", st_mode_name(g->mode));
	if (g->twin != (st_gpu_twin(s) != NULL) || (g->twin && g->taken == ST_TAKEN_NO))
		return FAIL(err, "GPU %u: %s twin, taken %u", gpu, g->twin ? "a" : "no", g->taken);
	if ((g->taken_by != NULL) != (g->taken == ST_TAKEN_FOREIGN))
		return FAIL(err, "GPU %u: taken %u, by %s", gpu, g->taken,
			    g->taken_by != NULL ? g->taken_by : "nobody");
	if (s->report.mig_enabled != (g->mode == ST_MODE_MIG) && g->taken == ST_TAKEN_NO &&
	    !(g->mode == ST_MODE_MIG && g->mig_could != NULL))
		return FAIL(err, "GPU %u is open in mode %s with MIG mode %s", gpu,
			    st_mode_name(g->mode), s->report.mig_enabled ? "on" : "off");
	return 0;
}

static int check_gpu(const struct st_cluster *c, const struct node_slot *n, uint8_t gpu,
		     struct err *err)
{
	const struct st_gpu *g = &n->pub.gpus[gpu];
	const struct gpu_slot *s = &n->gpus[gpu];
	struct count k;
	int64_t want_free;
	int r = count_gpu(n, gpu, &k, err);

	if (r == 0)
		r = check_mode(g, s, gpu, &k, err);
	if (r < 0)
		return r;
	if (g->uuid == NULL || g->uuid[0] == '\0' || g->mem_mib < 1 ||
	    g->alloc_mib != (g->mem_mib > c->cfg.reserve_mib ? g->mem_mib - c->cfg.reserve_mib : 0))
		return FAIL(err, "GPU %u: %d MiB, allocatable %d", gpu, g->mem_mib, g->alloc_mib);
	if (g->limit_mib != k.limit_mib || g->clients != k.clients ||
	    g->memory_bound != k.memory_bound || s->book.holders != k.holders)
		return FAIL(err,
			    "GPU %u shows limits %lld, clients %u, memory-bound %u, holders %u; "
			    "recounted %lld, %d, %d, %d",
			    gpu, (long long)g->limit_mib, g->clients, g->memory_bound,
			    s->book.holders, (long long)k.limit_mib, k.clients, k.memory_bound,
			    k.holders);
	if (k.compute_nano > ST_NANO || g->compute_left_nano != ST_NANO - k.compute_nano)
		return FAIL(err, "GPU %u shows compute left %d, recounted %lld", gpu,
			    g->compute_left_nano, (long long)(ST_NANO - k.compute_nano));
	if (g->mode == ST_MODE_MIG)
		return check_mig(g, gpu, &k, err);
	if (g->mig_placed != 0 || g->mig_foreign != 0)
		return FAIL(err, "GPU %u has instances in mode %s", gpu, st_mode_name(g->mode));
	want_free = g->mode == ST_MODE_EXCLUSIVE ? 0 : g->alloc_mib - k.request_mib;
	if (g->free_mib != want_free)
		return FAIL(err, "GPU %u shows %d MiB free, recounted %lld", gpu, g->free_mib,
			    (long long)want_free);
	if (want_free < 0 && !s->report.shrunk)
		return FAIL(err, "GPU %u: requests of %lld MiB on %d", gpu,
			    (long long)k.request_mib, g->alloc_mib);
	return 0;
}

/* ---- one pod, one node ---- */

static int check_pod(const struct st_cluster *c, const struct node_slot *n,
		     const struct pod_slot *p, struct err *err)
{
	if (p->pub.node != n->pub.id || p->pub.state >= ST_POD_STATE_COUNT ||
	    st_cluster_pod_find(c, p->pub.uid) != &p->pub)
		return FAIL(err, "pod %s is on node %u, in state %u", p->pub.uid, p->pub.node,
			    p->pub.state);
	if (p->next != NULL ? p->next->prev != p : n->last != p)
		return FAIL(err, "pod %s: broken list", p->pub.uid);
	if (p->pub.grant_count != (p->pub.fenced ? 0 : p->stored) ||
	    (p->pub.fenced && p->pub.state != ST_POD_OBSERVED) ||
	    p->pub.foreign != (p->whole_gpus > 0))
		return FAIL(err, "pod %s: %u of %u grants, state %u%s%s", p->pub.uid,
			    p->pub.grant_count, p->stored, p->pub.state,
			    p->pub.fenced ? ", fenced" : "", p->pub.foreign ? ", foreign" : "");
	for (uint8_t j = 0; j < p->pub.grant_count; j++) {
		const struct st_grant *gr = &p->pub.grants[j];
		uint32_t seen = 0;

		if (gr->count < 1 || gr->count > ST_GPUS_MAX)
			return FAIL(err, "pod %s: grant of %u GPUs", p->pub.uid, gr->count);
		for (uint8_t i = 0; i < gr->count; i++) {
			if (gr->gpu[i] >= n->pub.gpu_count ||
			    (gr->kind != ST_KIND_MIG && (seen & (1U << gr->gpu[i])) != 0))
				return FAIL(err, "pod %s: GPU %u unknown or twice", p->pub.uid,
					    gr->gpu[i]);
			seen |= 1U << gr->gpu[i];
		}
	}
	return 0;
}

static int check_pods(const struct st_cluster *c, const struct node_slot *n, struct err *err)
{
	int64_t cpu = 0, mem = 0;
	uint32_t pods = 0, fences = 0, assumed = 0;

	for (const struct pod_slot *p = n->first; p != NULL; p = p->next) {
		int r = check_pod(c, n, p, err);

		if (r < 0)
			return r;
		pods++;
		cpu += p->pub.cpu_milli;
		mem += p->pub.mem_mib;
		fences += p->pub.fenced;
		assumed += p->pub.foreign && !p->pub.fenced;
	}
	if (n->pod_count != pods || n->pub.pods != (int32_t)pods || n->pub.fences != fences ||
	    n->assumed != assumed)
		return FAIL(err, "%d pods, %u fences, %u assumed; recounted %u, %u, %u",
			    n->pub.pods, n->pub.fences, n->assumed, pods, fences, assumed);
	if (n->pub.cpu_left_milli != n->pub.cpu_milli - cpu ||
	    n->pub.mem_left_mib != n->pub.mem_mib - mem)
		return FAIL(err, "%lld milli-CPU and %lld MiB left, recounted %lld and %lld",
			    (long long)n->pub.cpu_left_milli, (long long)n->pub.mem_left_mib,
			    (long long)(n->pub.cpu_milli - cpu), (long long)(n->pub.mem_mib - mem));
	return 0;
}

static int check_node(const struct st_cluster *c, const struct node_slot *n, struct err *err)
{
	const struct node_slot *ranked;
	int r = 0;

	HASH_FIND(hh_rank, c->by_rank, &n->pub.rank, sizeof(n->pub.rank), ranked);
	if (ranked != n || st_cluster_node_find(c, n->pub.name, strlen(n->pub.name)) != n->pub.id)
		r = FAIL(err, "not found by its name or its rank %u", n->pub.rank);
	if (r == 0 && (n->pub.version == 0 || n->pub.gpu_count > ST_GPUS_MAX))
		r = FAIL(err, "version %u, %u GPUs", n->pub.version, n->pub.gpu_count);
	if (r == 0)
		r = check_pods(c, n, err);
	for (uint8_t i = 0; r == 0 && i < n->pub.gpu_count; i++) {
		r = check_gpu(c, n, i, err);
		for (uint8_t k = 0; r == 0 && k < i; k++)
			if (strcmp(n->pub.gpus[i].uuid, n->pub.gpus[k].uuid) == 0)
				r = FAIL(err, "GPU %u and %u are both %s", k, i,
					 n->pub.gpus[i].uuid);
	}
	return r < 0 ? err_prefix(err, r, "node %s", n->pub.name) : 0;
}

/* Each GPU with a UUID is among those of it, and nothing else is. */
static int check_uuids(const struct st_cluster *c, struct err *err)
{
	size_t on_nodes = 0, listed = 0;

	for (uint32_t i = 0; i < c->node_count; i++)
		for (uint8_t k = 0; k < c->nodes[i]->pub.gpu_count; k++)
			on_nodes += c->nodes[i]->gpus[k].uuid != NULL;
	for (const struct uuid_slot *u = c->uuids; u != NULL; u = u->hh.next) {
		if (u->first == NULL)
			return FAIL(err, "UUID %s is of no GPU", u->text);
		for (const struct gpu_slot *s = u->first; s != NULL; s = s->twin, listed++) {
			const struct node_slot *n = s->node;

			if (s->uuid != u || s < n->gpus || s >= n->gpus + n->pub.gpu_count ||
			    strcmp(n->pub.gpus[s - n->gpus].uuid, u->text) != 0)
				return FAIL(err, "UUID %s: a GPU of node %s is not of it", u->text,
					    n->pub.name);
		}
	}
	if (listed != on_nodes)
		return FAIL(err, "%zu GPUs with a UUID, %zu listed", on_nodes, listed);
	return 0;
}

static int check_tables(const struct st_cluster *c, struct err *err)
{
	size_t on_nodes = 0;

	for (uint32_t i = 0; i < c->node_count; i++) {
		if (c->nodes[i]->pub.id != i)
			return FAIL(err, "node %u has id %u", i, c->nodes[i]->pub.id);
		on_nodes += c->nodes[i]->pod_count;
	}
	if (on_nodes != HASH_COUNT(c->pods))
		return FAIL(err, "%zu pods on nodes, %u known", on_nodes, HASH_COUNT(c->pods));
	if (HASH_CNT(hh, c->by_name) != c->node_count ||
	    HASH_CNT(hh_rank, c->by_rank) != c->node_count)
		return FAIL(err, "%u nodes, %u names, %u ranks", c->node_count,
			    HASH_CNT(hh, c->by_name), HASH_CNT(hh_rank, c->by_rank));
	if (c->log_end - c->log_begin > c->log_cap || (c->log_cap & (c->log_cap - 1)) != 0 ||
	    c->log_cap < 4 * (uint64_t)c->node_count)
		return FAIL(err, "change log of %llu entries in %llu places",
			    (unsigned long long)(c->log_end - c->log_begin),
			    (unsigned long long)c->log_cap);
	return 0;
}

int st_cluster_check(const struct st_cluster *c, uint32_t node, struct err *err)
{
	int r;

	if (node != ST_NONE) {
		const struct node_slot *n = st_node_slot(c, node);

		return n != NULL ? check_node(c, n, err) : FAIL(err, "no node %u", node);
	}
	r = check_tables(c, err);
	if (r == 0)
		r = check_uuids(c, err);
	for (uint32_t i = 0; r == 0 && i < c->node_count; i++)
		r = check_node(c, c->nodes[i], err);
	return r;
}

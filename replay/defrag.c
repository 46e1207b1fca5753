#include "replay/defrag.h"

#include <stdlib.h>
#include <string.h>

#define PODS_MAX 64 /* of one node, that subsets are made of */
#define PLACEHOLDER "tessera-defrag-request"

/* A pod as it was, to be put back. */
struct kept {
	char *uid, *ns, *name;
	struct st_pod_ident ident;
	struct st_decision d;
	uint8_t state;
};

struct defrag {
	struct st_cluster *c;
	struct po_placer *p;
	const bool *closed; /* by node: nothing moves there; may be NULL */
	struct rp_moves m;
};

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

static void kept_fini(struct kept *k)
{
	free(k->uid);
	free(k->ns);
	free(k->name);
}

static bool movable(const struct st_pod *p)
{
	return !p->foreign && !p->fenced && !p->deleting && p->state != ST_POD_BINDING;
}

/* What it holds, as a request for the same again. */
static void request_of(const struct st_cluster *c, const struct kept *k, struct st_request *req)
{
	memset(req, 0, sizeof(*req));
	req->cpu_milli = k->ident.cpu_milli;
	req->mem_mib = k->ident.mem_mib;
	req->workload = k->ident.memory_bound ? ST_WORKLOAD_MEMORY_BOUND : ST_WORKLOAD_NONE;
	req->item_count = k->d.grant_count;
	for (unsigned i = 0; i < k->d.grant_count; i++) {
		const struct st_grant *g = &k->d.grants[i];
		struct st_item *it = &req->items[i];

		memcpy(it->container, g->container, sizeof(it->container));
		memcpy(it->profile, g->profile, sizeof(it->profile));
		it->kind = g->kind;
		it->mode = g->mode;
		it->count = g->count;
		if (g->kind == ST_KIND_SHARE) {
			it->request_mib = g->request_mib;
			it->limit_mib = g->limit_mib;
			it->compute_nano = g->compute_nano;
		}
	}
	/* The pod's own wish is not known any more: only the product it has is safe. */
	if (k->d.grant_count > 0) {
		const struct st_node *n = st_cluster_node(c, k->d.node);
		const char *product = n->product != STRPOOL_NONE
					      ? strpool_str(st_cluster_products(c), n->product)
					      : NULL;

		if (product != NULL && strlen(product) < sizeof(req->product))
			memcpy(req->product, product, strlen(product) + 1);
	}
}

/* A copy of all that it takes to put the pod back. ERR_NOMEM: *k is to be freed all the same. */
static int keep(const struct st_pod *p, struct kept *k, struct err *err)
{
	*k = (struct kept){
		.uid = strdup(p->uid),
		.ns = strdup(p->ns),
		.name = strdup(p->name),
		.d = {.node = p->node, .grant_count = p->grant_count},
		.state = p->state,
	};
	if (p->grant_count > 0)
		memcpy(k->d.grants, p->grants, p->grant_count * sizeof(*p->grants));
	k->ident = (struct st_pod_ident){
		.uid = k->uid,
		.ns = k->ns,
		.name = k->name,
		.priority = p->priority,
		.cpu_milli = p->cpu_milli,
		.mem_mib = p->mem_mib,
		.memory_bound = p->memory_bound,
	};
	return k->uid != NULL && k->ns != NULL && k->name != NULL ? 0 : out_of_memory(err);
}

/* Takes the pod out of the model. */
static int take(struct defrag *x, const struct st_pod *p, struct kept *k, struct err *err)
{
	int rc = keep(p, k, err);

	if (rc == 0)
		return st_cluster_pod_move(x->c, k->uid, ST_EVENT_GONE, err);
	kept_fini(k);
	*k = (struct kept){0};
	return rc;
}

/* Books the pod by that decision, in the state it was in. */
static int put(struct defrag *x, const struct kept *k, const struct st_decision *d, struct err *err)
{
	int rc = st_cluster_reserve(x->c, &k->ident, d, err);

	if (rc == 0)
		rc = st_cluster_pod_move(
			x->c, k->uid,
			k->state == ST_POD_OBSERVED ? ST_EVENT_OBSERVED : ST_EVENT_ACCEPTED, err);
	return rc;
}

/* The best open node for the pod, ST_NONE where none takes it. */
static int find_place(struct defrag *x, const struct kept *k, uint32_t not_here,
		      struct st_decision *ret, struct err *err)
{
	struct st_request req;
	struct po_shape *shape;
	uint64_t best = 0;
	uint32_t node = ST_NONE;

	request_of(x->c, k, &req);
	shape = po_placer_ask(x->p, &req, 0);
	if (shape == NULL)
		return out_of_memory(err);
	for (uint32_t id = 0; id < st_cluster_node_count(x->c); id++) {
		struct po_answer a;

		if (id == not_here || (x->closed != NULL && x->closed[id]))
			continue;
		a = po_shape_node(shape, id);
		if (a.verdict == BP_OK && (node == ST_NONE || a.key > best)) {
			best = a.key;
			node = id;
		}
	}
	if (node == ST_NONE)
		return 0;
	return po_placer_choose(x->p, &req, node, 0, ret) == BP_OK;
}

static int add_move(struct rp_moves *m, const struct kept *k, const struct st_decision *d,
		    struct err *err)
{
	struct rp_move *v;

	if (m->count == m->cap) {
		size_t cap = m->cap > 0 ? 2 * m->cap : 8;
		struct rp_move *more = reallocarray(m->list, cap, sizeof(*more));

		if (more == NULL)
			return out_of_memory(err);
		m->list = more;
		m->cap = cap;
	}
	v = &m->list[m->count];
	*v = (struct rp_move){.uid = strdup(k->uid),
			      .ns = strdup(k->ns),
			      .name = strdup(k->name),
			      .from = k->d.node,
			      .to = d->node,
			      .d = *d};
	m->count++; /* freed as a whole */
	return v->uid != NULL && v->ns != NULL && v->name != NULL ? 0 : out_of_memory(err);
}

static int add_node(struct rp_moves *m, uint32_t node, struct err *err)
{
	uint32_t *more = reallocarray(m->nodes, m->node_count + 1, sizeof(*more));

	if (more == NULL)
		return out_of_memory(err);
	m->nodes = more;
	m->nodes[m->node_count++] = node;
	return 0;
}

static int64_t size_of(const struct kept *k)
{
	int64_t size = 0;

	for (unsigned i = 0; i < k->d.grant_count; i++)
		size += (int64_t)k->d.grants[i].request_mib * k->d.grants[i].count;
	return size;
}

static int larger_first(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;
	int64_t d = size_of(y) - size_of(x);

	return d != 0 ? (d > 0) - (d < 0) : strcmp(x->uid, y->uid);
}

/* Moves pods that were taken from the node to other ones. 1: all have a place, and the moves are in
 * x->m; 0: not, and they are still taken. */
static int relocate(struct defrag *x, struct kept *kept, size_t count, uint32_t node,
		    struct err *err)
{
	size_t done = 0, first = x->m.count;
	int rc = 1;

	qsort(kept, count, sizeof(*kept), larger_first);
	for (size_t i = 0; rc == 1 && i < count; i++) {
		struct st_decision d;

		rc = find_place(x, &kept[i], node, &d, err);
		if (rc != 1)
			break;
		rc = put(x, &kept[i], &d, err);
		done += rc == 0;
		if (rc == 0)
			rc = add_move(&x->m, &kept[i], &d, err);
		rc = rc == 0 ? 1 : rc;
	}
	if (rc == 1)
		return 1;
	for (size_t i = 0; i < done; i++)
		if (st_cluster_pod_move(x->c, kept[i].uid, ST_EVENT_GONE, err) < 0)
			return ERR_INTERNAL;
	while (x->m.count > first) {
		struct rp_move *v = &x->m.list[--x->m.count];

		free(v->uid);
		free(v->ns);
		free(v->name);
	}
	return rc;
}

static int put_back(struct defrag *x, struct kept *kept, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		int rc = put(x, &kept[i], &kept[i].d, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Makes room on the node by moving these pods. 1: the moves are in x->m and on the model, with a
 * placeholder for the request; 0: it does not work, and all is as it was. */
static int try_subset(struct defrag *x, const struct st_request *req, uint32_t node,
		      const char *const *uids, size_t count, struct err *err)
{
	struct kept kept[PODS_MAX] = {{0}};
	struct st_pod_ident holder = {.uid = PLACEHOLDER,
				      .ns = "",
				      .name = PLACEHOLDER,
				      .cpu_milli = req->cpu_milli,
				      .mem_mib = req->mem_mib};
	struct st_decision d;
	size_t taken = 0;
	int rc = 0;

	while (rc == 0 && taken < count) {
		rc = take(x, st_cluster_pod_find(x->c, uids[taken]), &kept[taken], err);
		taken += rc == 0;
	}
	if (rc == 0 && po_placer_choose(x->p, req, node, 0, &d) == BP_OK) {
		rc = st_cluster_reserve(x->c, &holder, &d, err);
		if (rc == 0)
			rc = relocate(x, kept, taken, node, err);
		if (rc != 1 && st_cluster_pod_find(x->c, PLACEHOLDER) != NULL &&
		    st_cluster_pod_move(x->c, PLACEHOLDER, ST_EVENT_GONE, err) < 0)
			rc = ERR_INTERNAL;
	}
	if (rc != 1 && put_back(x, kept, taken, err) < 0)
		rc = ERR_INTERNAL;
	for (size_t i = 0; i < taken; i++)
		kept_fini(&kept[i]);
	return rc;
}

/* Pods of the node that may move, by UID, at most PODS_MAX. */
static size_t list_pods(const struct st_cluster *c, uint32_t node, const char *uids[PODS_MAX])
{
	size_t n = 0;

	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL);
	     p != NULL && n < PODS_MAX; p = st_cluster_node_pod_next(c, node, p))
		if (movable(p)) {
			size_t i = n++;

			/* In an order that does not depend on how they are kept. */
			for (; i > 0 && strcmp(uids[i - 1], p->uid) > 0; i--)
				uids[i] = uids[i - 1];
			uids[i] = p->uid;
		}
	return n;
}

/* All subsets of `size` of the node's pods. */
static int try_subsets(struct defrag *x, const struct st_request *req, uint32_t node, size_t size,
		       struct err *err)
{
	const char *listed[PODS_MAX];
	char *uids[PODS_MAX] = {0};
	size_t n = list_pods(x->c, node, listed), at[RP_DEFRAG_EXACT];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++) /* the model's own go when pods are taken */
		if ((uids[i] = strdup(listed[i])) == NULL)
			rc = out_of_memory(err);
	for (size_t i = 0; i < size; i++)
		at[i] = i;
	while (rc == 0 && size <= n) {
		const char *chosen[RP_DEFRAG_EXACT];
		size_t i = size;

		for (size_t k = 0; k < size; k++)
			chosen[k] = uids[at[k]];
		rc = try_subset(x, req, node, chosen, size, err);
		while (i > 0 && at[i - 1] == n - size + i - 1)
			i--;
		if (i == 0)
			break;
		at[i - 1]++;
		for (; i < size; i++)
			at[i] = at[i - 1] + 1;
	}
	for (size_t i = 0; i < n; i++)
		free(uids[i]);
	return rc;
}

/* One node by the victims that preemption would choose, where they can go elsewhere. */
static int try_victims(struct defrag *x, const struct st_request *req, uint32_t node,
		       struct err *err)
{
	const char **victims = NULL;
	char *uids[PODS_MAX] = {0};
	size_t count = 0;
	int rc = 0, work = 1;

	if (po_placer_victims(x->p, req, node, INT32_MAX, NULL, 0, &victims, &count, &rc) !=
	    BP_OK) {
		free(victims);
		return rc < 0 ? out_of_memory(err) : 0;
	}
	if (count > PODS_MAX)
		work = 0;
	for (size_t i = 0; work == 1 && i < count; i++) {
		if (!movable(st_cluster_pod_find(x->c, victims[i])))
			work = 0;
		else if ((uids[i] = strdup(victims[i])) == NULL)
			work = out_of_memory(err);
	}
	if (work == 1)
		work = try_subset(x, req, node, (const char *const *)uids, count, err);
	for (size_t i = 0; i < count && i < PODS_MAX; i++)
		free(uids[i]);
	free(victims);
	return work;
}

/* Puts the model back as it was: the moves are undone, last first. */
static int undo(struct defrag *x, struct kept *was, size_t count, struct err *err)
{
	int rc = 0;

	if (st_cluster_pod_find(x->c, PLACEHOLDER) != NULL)
		rc = st_cluster_pod_move(x->c, PLACEHOLDER, ST_EVENT_GONE, err);
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = st_cluster_pod_move(x->c, was[i].uid, ST_EVENT_GONE, err);
	return rc == 0 ? put_back(x, was, count, err) : rc;
}

/* Copies of all pods that may move, to undo by. */
static int remember(struct st_cluster *c, struct kept **ret, size_t *ret_count, struct err *err)
{
	struct kept *all = calloc(st_cluster_pod_count(c) + 1, sizeof(*all));
	size_t n = 0;
	int rc = 0;

	if (all == NULL)
		return out_of_memory(err);
	for (const struct st_pod *p = st_cluster_pod_next(c, NULL); rc == 0 && p != NULL;
	     p = st_cluster_pod_next(c, p))
		if (movable(p))
			rc = keep(p, &all[n++], err);
	*ret = all;
	*ret_count = n;
	return rc;
}

static void forget(struct kept *all, size_t count)
{
	for (size_t i = 0; all != NULL && i < count; i++)
		kept_fini(&all[i]);
	free(all);
}

/* Only those that were moved are undone. */
static size_t moved_only(const struct st_cluster *c, struct kept *all, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		const struct st_pod *p = st_cluster_pod_find(c, all[i].uid);
		struct kept swap = all[i];

		if (p != NULL && p->node == all[i].d.node)
			continue;
		all[i] = all[n];
		all[n++] = swap;
	}
	return n;
}

static int search_room(struct defrag *x, const struct st_request *req, uint32_t *ret_node,
		       struct err *err)
{
	struct po_shape *shape = po_placer_ask(x->p, req, 0);
	uint32_t count = st_cluster_node_count(x->c);
	int rc = 0;

	if (shape == NULL)
		return out_of_memory(err);
	*ret_node = po_shape_best(shape);
	if (*ret_node != ST_NONE)
		return 1;
	for (size_t size = 1; rc == 0 && size <= RP_DEFRAG_EXACT + 1; size++)
		for (uint32_t id = 0; rc == 0 && id < count; id++) {
			struct po_answer a;

			shape = po_placer_ask(x->p, req, 0);
			if (shape == NULL)
				return out_of_memory(err);
			a = po_shape_node(shape, id);
			if (!bp_verdict_resolvable(a.verdict))
				continue;
			rc = size <= RP_DEFRAG_EXACT ? try_subsets(x, req, id, size, err)
						     : try_victims(x, req, id, err);
			*ret_node = id;
		}
	return rc;
}

int rp_defrag_room(struct st_cluster *c, struct po_placer *p, const struct st_request *req,
		   struct rp_moves *ret, struct err *err)
{
	struct defrag x = {.c = c, .p = p};
	struct kept *all = NULL;
	size_t count = 0;
	uint32_t node = ST_NONE;
	int rc = remember(c, &all, &count, err), back;

	if (rc == 0)
		rc = search_room(&x, req, &node, err);
	if (rc == 1)
		rc = add_node(&x.m, node, err);
	else if (rc == 0)
		rc = err_set(err, ERR_NO_ROOM,
			     "no node can make room for it by moving pods that "
			     "fit elsewhere");
	back = undo(&x, all, moved_only(c, all, count), err);
	forget(all, count);
	rc = back < 0 ? back : rc;
	if (rc < 0) {
		rp_moves_fini(&x.m);
		return rc;
	}
	*ret = x.m;
	return 0;
}

/* ---- whole nodes ---- */

struct candidate {
	uint32_t node;
	size_t pods;
};

static int fewest_first(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->pods != y->pods)
		return x->pods < y->pods ? -1 : 1;
	return x->node < y->node ? -1 : 1;
}

/* Pods with GPUs on the node; SIZE_MAX where one of them cannot be moved. */
static size_t gpu_pods(const struct st_cluster *c, uint32_t node)
{
	size_t n = 0;

	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL); p != NULL;
	     p = st_cluster_node_pod_next(c, node, p)) {
		if (p->grant_count == 0 && !p->fenced)
			continue;
		if (!movable(p))
			return SIZE_MAX;
		n++;
	}
	return n;
}

/* 1: the node is empty of GPU pods on the model; 0: it is as it was. */
static int empty_node(struct defrag *x, uint32_t node, struct err *err)
{
	struct kept kept[PODS_MAX] = {{0}};
	const char *listed[PODS_MAX];
	size_t n = list_pods(x->c, node, listed), taken = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const struct st_pod *p = st_cluster_pod_find(x->c, listed[i]);

		if (p == NULL || p->grant_count == 0)
			continue;
		rc = take(x, p, &kept[taken], err);
		taken += rc == 0;
	}
	if (rc == 0)
		rc = relocate(x, kept, taken, node, err);
	if (rc != 1 && put_back(x, kept, taken, err) < 0)
		rc = ERR_INTERNAL;
	for (size_t i = 0; i < taken; i++)
		kept_fini(&kept[i]);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what take() made is in kept[0..taken) */
	return rc;
}

static int empty_nodes(struct defrag *x, bool *closed, size_t want, struct err *err)
{
	uint32_t count = st_cluster_node_count(x->c);
	struct candidate *list = malloc((count + 1) * sizeof(*list));
	size_t n = 0;
	int rc = 0;

	if (list == NULL)
		return out_of_memory(err);
	for (uint32_t id = 0; id < count; id++) {
		const struct st_node *node = st_cluster_node(x->c, id);
		size_t pods = node->present && node->gpu_count > 0 ? gpu_pods(x->c, id) : 0;

		closed[id] = pods == 0;
		if (pods > 0 && pods <= PODS_MAX)
			list[n++] = (struct candidate){id, pods};
	}
	qsort(list, n, sizeof(*list), fewest_first);
	for (size_t i = 0; rc >= 0 && i < n && x->m.node_count < want; i++) {
		/* A pod may have come here from another node; then it has more to move. */
		if (gpu_pods(x->c, list[i].node) != list[i].pods)
			continue;
		rc = empty_node(x, list[i].node, err);
		if (rc == 1) {
			closed[list[i].node] = true;
			rc = add_node(&x->m, list[i].node, err);
		}
	}
	free(list);
	return rc < 0 ? rc : 0;
}

int rp_defrag_nodes(struct st_cluster *c, struct po_placer *p, size_t nodes, struct rp_moves *ret,
		    struct err *err)
{
	bool *closed = calloc(st_cluster_node_count(c) + 1, sizeof(*closed));
	struct defrag x = {.c = c, .p = p, .closed = closed};
	struct kept *all = NULL;
	size_t count = 0;
	int rc, back;

	if (closed == NULL)
		return out_of_memory(err);
	rc = remember(c, &all, &count, err);
	if (rc == 0)
		rc = empty_nodes(&x, closed, nodes, err);
	back = all != NULL ? undo(&x, all, moved_only(c, all, count), err) : 0;
	forget(all, count);
	free(closed);
	rc = back < 0 ? back : rc;
	if (rc < 0) {
		rp_moves_fini(&x.m);
		return rc;
	}
	*ret = x.m;
	if (x.m.node_count < nodes)
		return err_set(err, ERR_NO_ROOM, "only %zu of %zu more nodes can be emptied",
			       x.m.node_count, nodes);
	return 0;
}

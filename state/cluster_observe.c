/* Pods that exist already: what API objects say of them is booked, whatever it breaks short of a GPU
 * given twice. Pods of a device plugin are dealt GPUs that they are assumed to hold. */
#include <stdlib.h>
#include <string.h>

#include "state/cluster_internal.h"

/* ---- device plugins' pods ---- */

/* Does the node say that this very pod uses the GPU ("pod <namespace>/<name>")? */
static bool named_by(const struct gpu_slot *s, const struct st_pod *pod)
{
	const char *by = s->report.foreign;
	size_t len = strlen(pod->ns);

	return by != NULL && strncmp(by, "pod ", 4) == 0 && strncmp(by + 4, pod->ns, len) == 0 &&
	       by[4 + len] == '/' && strcmp(by + 5 + len, pod->name) == 0;
}

/* Idle but for another node that has it, too: which of them is right, the pod is on this one. */
static bool idle_but_twin(const struct st_gpu *g, const struct gpu_slot *s)
{
	return g->twin && g->taken == ST_TAKEN_FOREIGN && g->mode == ST_MODE_FREE &&
	       s->report.foreign == NULL && !s->report.mig_enabled;
}

/* Writes the GPUs that the pod is assumed to hold: those that the node names, then idle ones. */
static int assume(const struct node_slot *n, struct pod_slot *p, struct err *err)
{
	struct st_grant *gr = st_pod_grants(p);
	uint32_t count = 0;

	if (p->whole_gpus > ST_GPUS_MAX)
		return err_set(err, ERR_NO_ROOM, "pod %s/%s holds %u GPUs by a device plugin",
			       p->pub.ns, p->pub.name, p->whole_gpus);
	memset(gr, 0, sizeof(*gr));
	for (int pass = 0; pass < 3; pass++)
		for (uint8_t i = 0; i < n->pub.gpu_count && count < p->whole_gpus; i++) {
			const struct st_gpu *g = &n->pub.gpus[i];

			if (pass == 0 ? g->taken == ST_TAKEN_FOREIGN && g->mode == ST_MODE_FREE &&
						named_by(&n->gpus[i], &p->pub)
			    : pass == 1 ? st_gpu_idle(g)
					: idle_but_twin(g, &n->gpus[i]))
				gr->gpu[count++] = i;
		}
	if (count < p->whole_gpus)
		return err_set(err, ERR_NO_ROOM,
			       "pod %s/%s holds %u GPUs by a device plugin, node %s has %u idle",
			       p->pub.ns, p->pub.name, p->whole_gpus, n->pub.name, count);
	gr->kind = ST_KIND_WHOLE;
	gr->mode = ST_MODE_EXCLUSIVE;
	gr->count = (uint8_t)count;
	gr->request_mib = gr->limit_mib = n->pub.gpus[gr->gpu[0]].alloc_mib;
	return 0;
}

/* ---- observed pods ---- */

/* Books what the pod wants, for a pod that exists already. */
static int book_wanted(struct st_cluster *c, struct node_slot *n, struct pod_slot *p,
		       struct err *err)
{
	struct gpu_book books[ST_GPUS_MAX];
	int r = p->pub.foreign ? assume(n, p, err) : 0;

	if (r == 0)
		r = st_grants_try(c, n, st_pod_grants(p), p->stored, p->pub.memory_bound,
				  BOOK_OBSERVED, books, err);
	if (r < 0)
		return r;
	st_books_commit(n, books);
	st_pod_hold(n, p);
	return 0;
}

void st_node_undeal(struct node_slot *n)
{
	for (struct pod_slot *p = n->first; p != NULL && n->assumed > 0; p = p->next)
		if (p->pub.foreign && !p->pub.fenced) {
			st_pod_drop(n, p);
			st_pod_set_fenced(n, p, true);
		}
}

static void settle_some(struct st_cluster *c, struct node_slot *n, bool foreign)
{
	for (struct pod_slot *p = n->first; p != NULL && n->pub.fences > 0; p = p->next)
		if (p->pub.fenced && p->pub.foreign == foreign && p->stored > 0 &&
		    book_wanted(c, n, p, NULL) == 0)
			st_pod_set_fenced(n, p, false);
}

/* What is known goes before what is assumed. */
void st_node_settle(struct st_cluster *c, struct node_slot *n)
{
	bool wanted = false;

	if (n->pub.fences == 0)
		return;
	for (const struct pod_slot *p = n->first; p != NULL; p = p->next)
		wanted |= p->pub.fenced && !p->pub.foreign && p->stored > 0;
	if (wanted) {
		st_node_undeal(n);
		settle_some(c, n, false);
	}
	settle_some(c, n, true);
}

uint32_t st_node_pinned(const struct node_slot *n)
{
	uint32_t pinned = 0;

	for (uint8_t i = 0; i < n->pub.gpu_count; i++)
		if (n->gpus[i].book.holders > 0)
			pinned |= 1U << i;
	if (n->pub.fences == 0)
		return pinned;
	for (const struct pod_slot *p = n->first; p != NULL; p = p->next) {
		const struct st_grant *gr = p->more != NULL ? p->more : p->tail;

		if (!p->pub.fenced || p->pub.foreign)
			continue;
		for (uint8_t k = 0; k < p->stored; k++)
			for (uint8_t i = 0; i < gr[k].count; i++)
				pinned |= 1U << gr[k].gpu[i];
	}
	return pinned;
}

/* Do all grants speak of GPUs that the node has? */
static bool on_node(const struct node_slot *n, const struct st_grant *grants, uint8_t count)
{
	for (uint8_t k = 0; k < count; k++) {
		if (grants[k].count > ST_GPUS_MAX)
			return false;
		for (uint8_t i = 0; i < grants[k].count; i++)
			if (grants[k].gpu[i] >= n->pub.gpu_count)
				return false;
	}
	return true;
}

/* Puts an observed pod on the node, with what is stored of it; readable false: fenced anyway.
 * Assumed GPUs make way for known ones. Never fails. */
static void attach(struct st_cluster *c, struct node_slot *n, struct pod_slot *p, bool readable,
		   struct err *why)
{
	struct err words = ERR_INIT;
	bool booked;

	p->pub.state = ST_POD_OBSERVED;
	p->pub.grants = st_pod_grants(p);
	p->pub.grant_count = 0;
	st_pod_link(n, p);
	booked = readable && book_wanted(c, n, p, &words) == 0;
	if (!booked && readable && n->assumed > 0 && !p->pub.foreign) {
		st_node_undeal(n);
		booked = book_wanted(c, n, p, &words) == 0;
	}
	if (!booked) {
		if (!p->pub.foreign && !on_node(n, st_pod_grants(p), p->stored))
			p->stored = 0;
		st_pod_set_fenced(n, p, true);
	}
	st_node_settle(c, n);
	st_node_trim(n);
	if (!readable || !p->pub.fenced || why == NULL)
		return;
	/* Dealt GPUs at first and lost them to a known claim: the reason is the present one. */
	if (words.msg[0] == '\0' && book_wanted(c, n, p, &words) == 0)
		st_pod_set_fenced(n, p, false);
	else
		*why = words;
}

static bool grant_equal(const struct st_grant *a, const struct st_grant *b)
{
	if (strcmp(a->container, b->container) != 0 || a->kind != b->kind || a->count != b->count ||
	    a->count > ST_GPUS_MAX || memcmp(a->gpu, b->gpu, a->count) != 0)
		return false;
	if (a->kind == ST_KIND_MIG)
		return strcmp(a->profile, b->profile) == 0 &&
		       memcmp(a->start, b->start, a->count) == 0;
	return a->kind == ST_KIND_WHOLE ||
	       (a->mode == b->mode && a->request_mib == b->request_mib &&
		a->limit_mib == b->limit_mib && a->compute_nano == b->compute_nano);
}

/* Each of a is in b. */
static bool grants_within(const struct st_grant *a, const struct st_grant *b, uint8_t count)
{
	for (uint8_t i = 0; i < count; i++) {
		uint8_t k = 0;

		while (k < count && !grant_equal(&a[i], &b[k]))
			k++;
		if (k == count)
			return false;
	}
	return true;
}

/* What an API object says of a pod. */
struct sight {
	const struct st_pod_ident *id;
	const struct st_grant *grants;
	uint8_t count;
	uint32_t whole_gpus;
	bool readable;
};

static bool as_known(struct pod_slot *p, uint32_t node, const struct sight *s)
{
	if (p->pub.node != node || p->whole_gpus != s->whole_gpus)
		return false;
	if (!s->readable)
		return p->pub.fenced && p->stored == 0;
	if (p->pub.fenced && p->stored == 0)
		return false;
	return p->pub.foreign ||
	       (p->stored == s->count && p->pub.memory_bound == s->id->memory_bound &&
		grants_within(st_pod_grants(p), s->grants, s->count) &&
		grants_within(s->grants, st_pod_grants(p), s->count));
}

/* The pod is as it was known: only its state and what is not booked on GPUs may change. */
static void refresh(struct st_cluster *c, struct node_slot *n, struct pod_slot *p,
		    const struct sight *s, struct err *why)
{
	int64_t cpu = p->pub.cpu_milli, mem = p->pub.mem_mib;

	p->pub.state = ST_POD_OBSERVED; /* legal in every state */
	st_host_add(n, p, -1);
	st_pod_ident_put(p, s->id);
	st_host_add(n, p, 1);
	if (cpu != p->pub.cpu_milli || mem != p->pub.mem_mib)
		st_node_touch(c, n);
	/* Settled after every change of the node, so it fails again; only the words are wanted. */
	if (p->pub.fenced && s->readable && book_wanted(c, n, p, why) == 0) {
		st_pod_set_fenced(n, p, false);
		st_node_touch(c, n);
	}
}

/* Room for that many grants instead of the present ones, kept apart until the commit. */
static int grants_alloc(const struct pod_slot *p, uint8_t count, struct st_grant **ret)
{
	*ret = NULL;
	if (count <= p->tail_cap)
		return 0;
	*ret = calloc(count, sizeof(**ret));
	return *ret != NULL ? 0 : ERR_NOMEM;
}

/* Takes in what an API object says. ERR_NOMEM. */
static int see(struct st_cluster *c, struct node_slot *n, const struct sight *s, struct err *why)
{
	struct pod_slot *p = st_pod_slot_find(c, s->id->uid);
	uint8_t count = s->whole_gpus > 0 ? 1 : s->count;
	struct node_slot *old = NULL;
	struct st_grant *more = NULL;
	bool repeated = false;

	if (p != NULL && as_known(p, n->pub.id, s)) {
		refresh(c, n, p, s, why);
		return 0;
	}
	if (p == NULL)
		p = st_pod_slot_new(c, s->id, count);
	else
		old = c->nodes[p->pub.node];
	if (p == NULL || grants_alloc(p, count, &more) < 0)
		return err_set(why, ERR_NOMEM, "no memory for pod %s", s->id->uid);
	if (old != NULL) {
		/* An unreadable allocation told once more: nothing that a score depends on. */
		repeated = old == n && p->pub.fenced && p->stored == 0 &&
			   p->pub.cpu_milli == st_host_clamp(s->id->cpu_milli) &&
			   p->pub.mem_mib == st_host_clamp(s->id->mem_mib);
		st_pod_detach(old, p);
	}
	free(p->more);
	p->more = more;
	st_pod_ident_put(p, s->id);
	p->whole_gpus = s->whole_gpus;
	p->pub.foreign = s->whole_gpus > 0;
	p->stored = count;
	if (s->count > 0)
		memcpy(st_pod_grants(p), s->grants, s->count * sizeof(*s->grants));
	attach(c, n, p, s->readable, why);
	if (!repeated || !p->pub.fenced || p->stored > 0)
		st_node_touch(c, n);
	if (old != NULL && old != n)
		st_node_after_release(c, old);
	return 0;
}

int st_cluster_observe(struct st_cluster *c, const struct st_pod_ident *pod, uint32_t node,
		       const struct st_decision *d, uint32_t whole_gpus, bool *ret_fenced,
		       struct err *why)
{
	struct node_slot *n = st_node_slot(c, node);
	struct sight s = {.id = pod, .readable = true};
	int r = st_pod_ident_check(pod, why);

	if (r < 0)
		return r;
	if (n == NULL)
		return err_set(why, ERR_NOT_FOUND, "pod %s: no node %u", pod->uid, node);
	if (d == NULL) {
		s.whole_gpus = whole_gpus;
	} else if (d->node != node || d->grant_count > ST_ITEMS_MAX) {
		s.readable = false;
		err_set(why, ERR_CONFLICT, "%u containers on node %u while the pod is on %u",
			d->grant_count, d->node, node);
	} else {
		s.grants = d->grants;
		s.count = d->grant_count;
	}
	r = see(c, n, &s, why);
	if (r < 0)
		return r;
	*ret_fenced = st_pod_slot_find(c, pod->uid)->pub.fenced;
	return 0;
}

int st_cluster_fence(struct st_cluster *c, const struct st_pod_ident *pod, uint32_t node,
		     struct err *err)
{
	struct node_slot *n = st_node_slot(c, node);
	struct sight s = {.id = pod, .readable = false};
	int r = st_pod_ident_check(pod, err);

	if (r < 0)
		return r;
	if (n == NULL)
		return err_set(err, ERR_NOT_FOUND, "pod %s: no node %u", pod->uid, node);
	return see(c, n, &s, err);
}

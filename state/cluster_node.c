/* Nodes as they are described: taking a description in, keeping what is booked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "state/cluster_internal.h"

/* What becomes of one place in the node's array of GPUs. */
struct plan_gpu {
	const struct st_gpu_spec *spec; /* NULL: no longer reported */
	const char *uuid;
	int old;                  /* index in the present array, -1 = new */
	struct uuid_slot *known;  /* its UUID; NULL: of this node only */
	struct gpu_report report; /* foreign: still the description's string */
};

struct plan {
	char index_names[ST_GPUS_MAX][4]; /* of unnamed GPUs */
	const char *uuids[ST_GPUS_MAX];   /* of the described GPUs */
	uint32_t product;
	uint8_t count;
	struct plan_gpu gpus[ST_GPUS_MAX];
};

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* ---- the description by itself ---- */

static int spec_check(const struct st_node_spec *spec, struct plan *p, struct err *err)
{
	if (spec->name == NULL || spec->name[0] == '\0')
		return err_set(err, ERR_INVALID, "node without a name");
	if (spec->gpu_count > ST_GPUS_MAX)
		return err_set(err, ERR_INVALID, "node %s: %zu GPUs, at most %d", spec->name,
			       spec->gpu_count, ST_GPUS_MAX);
	for (size_t i = 0; i < spec->gpu_count; i++) {
		const struct st_gpu_spec *g = &spec->gpus[i];

		snprintf(p->index_names[i], sizeof(p->index_names[i]), "%u", (unsigned)(i & 0xff));
		p->uuids[i] = g->uuid != NULL && g->uuid[0] != '\0' ? g->uuid : p->index_names[i];
		if (g->mem_mib < 1)
			return err_set(err, ERR_INVALID, "node %s: GPU %s: memory %d MiB",
				       spec->name, p->uuids[i], g->mem_mib);
		for (size_t k = 0; k < i; k++)
			if (strcmp(p->uuids[k], p->uuids[i]) == 0)
				return err_set(err, ERR_INVALID, "node %s: two GPUs %s", spec->name,
					       p->uuids[i]);
	}
	return 0;
}

static int report_fill(struct st_cluster *c, const struct st_node_spec *spec, size_t i,
		       const struct node_slot *n, struct plan_gpu *pg, uint32_t product,
		       struct err *err)
{
	const struct st_gpu_spec *g = &spec->gpus[i];
	const struct st_mig_geometry *present =
		pg->old >= 0 ? n->gpus[pg->old].report.geometry : NULL;
	int r;

	pg->spec = g;
	pg->report = (struct gpu_report){.unhealthy = g->unhealthy,
					 .mig_enabled = g->mig_enabled,
					 .mig_switchable = g->mig_switchable && !c->cfg.mig_fixed};
	r = st_report_mig(c, g, product, present, &pg->report, err);
	return r < 0 ? err_prefix(err, r, "node %s: GPU %s", spec->name, pg->uuid) : 0;
}

/* ---- the plan ---- */

static int spec_find(const struct plan *p, size_t count, const char *uuid)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(p->uuids[i], uuid) == 0)
			return (int)i;
	return -1;
}

static int plan_put(struct st_cluster *c, const struct st_node_spec *spec,
		    const struct node_slot *n, int old, int from, struct plan *p, struct err *err)
{
	struct plan_gpu *pg;

	if (p->count == ST_GPUS_MAX)
		return err_set(err, ERR_INVALID, "node %s: more than %d GPUs with those still held",
			       spec->name, ST_GPUS_MAX);
	pg = &p->gpus[p->count++];
	pg->old = old;
	if (from >= 0) {
		pg->uuid = p->uuids[from];
		return report_fill(c, spec, (size_t)from, n, pg, p->product, err);
	}
	pg->spec = NULL;
	pg->uuid = n->pub.gpus[old].uuid;
	pg->report = n->gpus[old].report;
	pg->report.gone = true;
	return 0;
}

/* Grants hold indices: what something refers to keeps its place; what is no longer reported leaves
 * its place to a new one, or vanishes where nothing behind it has to stay. n NULL: a new node. */
static int plan_make(struct st_cluster *c, const struct st_node_spec *spec,
		     const struct node_slot *n, struct plan *p, struct err *err)
{
	uint8_t have = n != NULL ? n->pub.gpu_count : 0;
	uint32_t pinned = n != NULL ? st_node_pinned(n) : 0, used = 0;
	int at[ST_GPUS_MAX], next = 0, r = 0;

	for (uint8_t i = 0; i < have; i++) {
		at[i] = spec_find(p, spec->gpu_count, n->pub.gpus[i].uuid);
		if (at[i] >= 0)
			used |= 1U << at[i];
	}
	for (uint8_t i = 0; i < have && r == 0; i++) {
		bool held = (pinned & (1U << i)) != 0;

		if (at[i] >= 0) {
			r = plan_put(c, spec, n, i, at[i], p, err);
			continue;
		}
		while (next < (int)spec->gpu_count && (used & (1U << next)) != 0)
			next++;
		if (!held && next < (int)spec->gpu_count) {
			used |= 1U << next;
			r = plan_put(c, spec, n, -1, next, p, err);
		} else if (pinned >> i != 0) {
			r = plan_put(c, spec, n, i, -1, p, err);
		}
	}
	for (next = 0; next < (int)spec->gpu_count && r == 0; next++)
		if ((used & (1U << next)) == 0)
			r = plan_put(c, spec, n, -1, next, p, err);
	return r;
}

static bool gpu_unchanged(const struct st_gpu *g, const struct gpu_report *was,
			  const struct plan_gpu *pg)
{
	const struct gpu_report *r = &pg->report;

	if (pg->spec == NULL)
		return was->gone;
	return !was->gone && g->mem_mib == pg->spec->mem_mib && was->geometry == r->geometry &&
	       was->instances == r->instances && was->unhealthy == r->unhealthy &&
	       was->mig_enabled == r->mig_enabled && was->mig_unknown == r->mig_unknown &&
	       was->mig_switchable == r->mig_switchable && was->open == r->open &&
	       same_text(was->foreign, pg->spec->foreign);
}

static bool unchanged(const struct node_slot *n, const struct st_node_spec *spec,
		      const struct plan *p)
{
	uint8_t matched = 0;

	if (!n->pub.present || n->pub.product != p->product || n->pub.unready != spec->unready ||
	    n->pub.from_inventory != spec->from_inventory ||
	    n->pub.cpu_milli != st_host_clamp(spec->cpu_milli) ||
	    n->pub.mem_mib != st_host_clamp(spec->mem_mib) || n->pub.pods_max != spec->pods ||
	    !same_text(n->pub.why_unready, spec->why_unready))
		return false;
	for (uint8_t i = 0; i < p->count; i++) {
		int old = p->gpus[i].old;

		if (old < 0 || !gpu_unchanged(&n->pub.gpus[old], &n->gpus[old].report, &p->gpus[i]))
			return false;
		matched++;
	}
	/* What the plan would let vanish is gone already. */
	for (uint8_t i = 0; i < n->pub.gpu_count; i++)
		matched = (uint8_t)(matched +
				    (n->gpus[i].report.gone &&
				     spec_find(p, spec->gpu_count, n->pub.gpus[i].uuid) < 0 &&
				     st_node_pinned(n) >> i == 0));
	return matched == n->pub.gpu_count;
}

/* ---- taking it in ---- */

struct gpu_block {
	void *block;
	struct st_gpu *pub;
	struct gpu_slot *slots;
	char *strings;
};

static int block_alloc(const struct plan *p, struct gpu_block *ret)
{
	size_t size = p->count * (sizeof(struct st_gpu) + sizeof(struct gpu_slot));
	char *block;

	for (uint8_t i = 0; i < p->count; i++) {
		const struct st_gpu_spec *g = p->gpus[i].spec;

		size += strlen(p->gpus[i].uuid) + 1;
		size += g != NULL && g->foreign != NULL ? strlen(g->foreign) + 1 : 0;
	}
	block = calloc(1, size + 1);
	if (block == NULL)
		return ERR_NOMEM;
	ret->block = block;
	ret->pub = (struct st_gpu *)(void *)block;
	ret->slots = (struct gpu_slot *)(void *)(block + p->count * sizeof(struct st_gpu));
	ret->strings = block + p->count * (sizeof(struct st_gpu) + sizeof(struct gpu_slot));
	return 0;
}

static char *block_string(struct gpu_block *b, const char *s)
{
	size_t size = strlen(s) + 1;
	char *to = b->strings;

	memcpy(to, s, size);
	b->strings += size;
	return to;
}

/* The booked instances of a GPU under another geometry; false where they do not fit it. */
static bool remap(const struct node_slot *n, uint8_t gpu, const struct st_mig_geometry *g,
		  uint64_t *ret)
{
	uint64_t placed = 0;

	for (const struct pod_slot *p = n->first; p != NULL; p = p->next)
		for (uint8_t k = 0; k < p->pub.grant_count; k++) {
			const struct st_grant *gr = &p->pub.grants[k];
			int profile = st_mig_profile_find(g, gr->profile);

			for (uint8_t i = 0; i < gr->count; i++) {
				if (gr->kind != ST_KIND_MIG || gr->gpu[i] != gpu)
					continue;
				if (!st_mig_can_place(g, placed, profile, gr->start[i]))
					return false;
				placed |= st_mig_bit(g, profile, gr->start[i]);
			}
		}
	*ret = placed;
	return true;
}

static void gpu_commit(const struct st_cluster *c, struct node_slot *n, const struct plan_gpu *pg,
		       uint8_t i, struct gpu_block *b)
{
	struct st_gpu *g = &b->pub[i];
	struct gpu_slot *s = &b->slots[i];
	uint64_t placed;

	if (pg->old >= 0) {
		*g = n->pub.gpus[pg->old];
		s->book = n->gpus[pg->old].book;
	}
	g->uuid = block_string(b, pg->uuid);
	s->node = n;
	s->uuid = pg->known;
	s->report = pg->report;
	s->report.foreign = NULL;
	if (pg->spec != NULL) {
		g->mem_mib = pg->spec->mem_mib;
		g->alloc_mib = (int32_t)arith_max((int64_t)g->mem_mib - c->cfg.reserve_mib, 0);
		if (pg->spec->foreign != NULL)
			s->report.foreign = block_string(b, pg->spec->foreign);
	}
	if (s->book.mig_geometry != NULL && s->report.geometry != NULL &&
	    s->book.mig_geometry != s->report.geometry &&
	    remap(n, (uint8_t)pg->old, s->report.geometry, &placed)) {
		s->book.mig_geometry = s->report.geometry;
		s->book.mig = placed;
	}
	s->report.shrunk = true;
}

/* Interns the UUIDs before anything is changed. */
static int uuids_find(struct st_cluster *c, const struct st_node_spec *spec,
		      const struct node_slot *n, struct plan *p, struct err *err)
{
	int r = 0;

	for (uint8_t i = 0; i < p->count && r == 0; i++) {
		struct plan_gpu *pg = &p->gpus[i];
		bool own = pg->spec != NULL && (pg->spec->uuid == NULL || !spec->from_inventory);

		if (pg->spec == NULL && n != NULL)
			own = n->gpus[pg->old].uuid == NULL;
		if (!own)
			r = st_uuid_intern(c, pg->uuid, &pg->known, err);
	}
	return r;
}

static void uuids_drop(const struct plan *p)
{
	for (uint8_t i = 0; i < p->count; i++)
		st_uuid_drop(p->gpus[i].known);
}

/* The GPUs in their new places, and other nodes' GPUs of the same UUIDs, see what the node is now. */
static void gpus_settle(struct node_slot *n)
{
	for (uint8_t i = 0; i < n->pub.gpu_count; i++) {
		st_gpu_derive(&n->pub.gpus[i], &n->gpus[i]);
		if (n->gpus[i].uuid != NULL)
			st_uuid_tell(n->gpus[i].uuid, n);
	}
}

/* Nothing can fail here. take_why: the copied reason. */
static void commit(struct st_cluster *c, struct node_slot *n, const struct st_node_spec *spec,
		   const struct plan *p, struct gpu_block *b, char *take_why)
{
	st_node_undeal(n);
	for (uint8_t i = 0; i < p->count; i++) {
		gpu_commit(c, n, &p->gpus[i], i, b);
		st_gpu_link(&b->slots[i]);
	}
	for (uint8_t i = 0; i < n->pub.gpu_count; i++)
		st_gpu_unlink(&n->gpus[i]);
	free(n->block);
	n->block = b->block;
	n->gpus = b->slots;
	n->pub.gpus = b->pub;
	n->pub.gpu_count = p->count;
	free(n->pub.why_unready);
	n->pub.why_unready = take_why;
	n->pub.unready = spec->unready;
	n->pub.from_inventory = spec->from_inventory;
	n->pub.product = p->product;
	n->pub.present = true;
	n->pub.cpu_milli = st_host_clamp(spec->cpu_milli);
	n->pub.mem_mib = st_host_clamp(spec->mem_mib);
	n->pub.cpu_left_milli = n->pub.cpu_milli - n->cpu_used;
	n->pub.mem_left_mib = n->pub.mem_mib - n->mem_used;
	n->pub.pods_max = spec->pods;
	gpus_settle(n);
	st_node_settle(c, n);
	st_node_trim(n);
	st_node_touch(c, n);
}

/* ---- new nodes ---- */

static int rank_choose(const struct st_cluster *c, const struct st_node_spec *spec, uint32_t *ret,
		       struct err *err)
{
	uint64_t h = hash_str(spec->name, 0);
	uint32_t rank = spec->has_rank ? spec->rank : (uint32_t)(h ^ (h >> 32));
	struct node_slot *other;

	for (;; rank++) {
		HASH_FIND(hh_rank, c->by_rank, &rank, sizeof(rank), other);
		if (other == NULL)
			break;
		if (spec->has_rank)
			return err_set(err, ERR_EXISTS, "node %s: rank %u is that of node %s",
				       spec->name, rank, other->pub.name);
	}
	*ret = rank;
	return 0;
}

static int nodes_grow(struct st_cluster *c)
{
	uint32_t cap = c->node_cap != 0 ? c->node_cap * 2 : 64;
	struct node_slot **nodes;

	if (c->node_count < c->node_cap)
		return 0;
	nodes = reallocarray(c->nodes, cap, sizeof(struct node_slot *));
	if (nodes == NULL)
		return ERR_NOMEM;
	c->nodes = nodes;
	c->node_cap = cap;
	return 0;
}

/* A node without GPUs that the tables know, not yet counted. */
static int node_new(struct st_cluster *c, const struct st_node_spec *spec, struct node_slot **ret,
		    struct err *err)
{
	struct node_slot *n = NULL;
	uint32_t rank = 0;
	int r = rank_choose(c, spec, &rank, err);

	if (r < 0)
		return r;
	if (c->node_count == ST_NONE - 1 || nodes_grow(c) < 0 ||
	    st_log_grow(c, c->node_count + 1) < 0)
		goto nomem;
	n = calloc(1, sizeof(*n));
	if (n == NULL || (n->pub.name = strdup(spec->name)) == NULL)
		goto nomem;
	n->pub.id = c->node_count;
	n->pub.rank = rank;
	n->pub.product = STRPOOL_NONE;
	HASH_ADD_KEYPTR(hh, c->by_name, n->pub.name, strlen(n->pub.name), n);
	if (!HASH_ADDED(n, hh))
		goto nomem;
	HASH_ADD_KEYPTR(hh_rank, c->by_rank, &n->pub.rank, sizeof(n->pub.rank), n);
	if (!HASH_ADDED(n, hh_rank)) {
		HASH_DELETE(hh, c->by_name, n);
		goto nomem;
	}
	*ret = n;
	return 0;
nomem:
	if (n != NULL)
		free(n->pub.name);
	free(n);
	return err_set(err, ERR_NOMEM, "no memory for node %s", spec->name);
}

int st_cluster_node_put(struct st_cluster *c, const struct st_node_spec *spec, uint32_t *ret_id,
			struct err *err)
{
	struct plan p = {.product = STRPOOL_NONE};
	struct gpu_block b = {0};
	struct node_slot *n = NULL;
	char *why = NULL;
	uint32_t id;
	int r = spec_check(spec, &p, err);

	if (r < 0)
		return r;
	id = st_cluster_node_find(c, spec->name, strlen(spec->name));
	if (id != ST_NONE)
		n = c->nodes[id];
	if (spec->product != NULL && spec->product[0] != '\0') {
		p.product = strpool_intern(c->products, spec->product, strlen(spec->product));
		if (p.product == STRPOOL_NONE)
			return err_set(err, ERR_NOMEM, "no memory for node %s", spec->name);
	}
	r = plan_make(c, spec, n, &p, err);
	if (r < 0)
		return r;
	if (n != NULL && unchanged(n, spec, &p))
		goto done;
	r = uuids_find(c, spec, n, &p, err);
	if (r == 0 && (block_alloc(&p, &b) < 0 ||
		       (spec->why_unready != NULL && (why = strdup(spec->why_unready)) == NULL)))
		r = err_set(err, ERR_NOMEM, "no memory for node %s", spec->name);
	if (r == 0 && n == NULL) {
		r = node_new(c, spec, &n, err);
		if (r == 0)
			c->nodes[c->node_count++] = n;
	}
	if (r < 0 || n == NULL) {
		uuids_drop(&p);
		free(b.block);
		free(why);
		return r;
	}
	commit(c, n, spec, &p, &b, why);
done:
	if (ret_id != NULL)
		*ret_id = n->pub.id;
	return 0;
}

int st_cluster_node_remove(struct st_cluster *c, const char *name, struct err *err)
{
	uint32_t id = st_cluster_node_find(c, name, strlen(name));
	struct node_slot *n = st_node_slot(c, id);

	if (n == NULL || !n->pub.present)
		return err_set(err, ERR_NOT_FOUND, "no node %s", name);
	n->pub.present = false;
	gpus_settle(n);
	st_node_trim(n);
	st_node_touch(c, n);
	return 0;
}

void st_node_trim(struct node_slot *n)
{
	uint8_t last = n->pub.gpu_count;

	if (!n->pub.present && n->pod_count == 0) {
		for (uint8_t i = 0; i < last; i++)
			st_gpu_unlink(&n->gpus[i]);
		free(n->block);
		n->block = NULL;
		n->gpus = NULL;
		n->pub.gpus = NULL;
		n->pub.gpu_count = 0;
		return;
	}
	if (last == 0 || !n->gpus[last - 1].report.gone)
		return;
	for (uint32_t pinned = st_node_pinned(n); last > 0; last--)
		if (!n->gpus[last - 1].report.gone || pinned >> (last - 1) != 0)
			break;
	for (uint8_t i = last; i < n->pub.gpu_count; i++)
		st_gpu_unlink(&n->gpus[i]);
	n->pub.gpu_count = last;
}

#include "extender/lookup.h"

#include <stdlib.h>
#include <string.h>

struct ex_lookup_node {
	const char *name; /* the cluster's; a node's name never moves */
	uint32_t len;
	uint32_t next; /* the id that followed this one last time */
};

void ex_lookup_fini(struct ex_lookup *l)
{
	free(l->v);
	free(l->seen);
	free(l->slots);
	*l = (struct ex_lookup){0};
}

/* Eight bytes a step, for this process alone: hash_bytes() takes one, for thousands of names a request. */
static inline uint64_t hash_of(const char *p, size_t len)
{
	uint64_t h = len * UINT64_C(0x9e3779b97f4a7c15), w = 0;

	for (; len >= sizeof(w); p += sizeof(w), len -= sizeof(w)) {
		memcpy(&w, p, sizeof(w));
		h = (h ^ w) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	w = 0;
	memcpy(&w, p, len);
	h = (h ^ w) * UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ (h >> 29);
}

/* A slot: the upper half of the hash, and the id plus one; 0 is empty. */
static void put(struct ex_lookup *l, uint32_t id)
{
	uint64_t h = hash_of(l->v[id].name, l->v[id].len);
	size_t at = h & l->mask;

	while (l->slots[at] != 0)
		at = (at + 1) & l->mask;
	l->slots[at] = (h >> 32 << 32) | (id + UINT64_C(1));
}

/* At most half of the slots are taken. */
static int slots_grow(struct ex_lookup *l, uint32_t count)
{
	size_t cap = 64;
	uint64_t *slots;

	while (cap < 2 * (size_t)count)
		cap *= 2;
	if (l->slots != NULL && cap == l->mask + 1)
		return 0;
	slots = calloc(cap, sizeof(*slots));
	if (slots == NULL)
		return ERR_NOMEM;
	free(l->slots);
	l->slots = slots;
	l->mask = cap - 1;
	for (uint32_t id = 0; id < l->count; id++)
		put(l, id);
	return 0;
}

/* Takes in nodes that came since the last time. */
static int grow(struct ex_lookup *l, const struct st_cluster *c, struct err *err)
{
	uint32_t count = st_cluster_node_count(c);
	struct ex_lookup_node *v;
	uint8_t *seen;

	if (count == l->count)
		return 0;
	v = reallocarray(l->v, count, sizeof(*v));
	if (v != NULL)
		l->v = v;
	seen = reallocarray(l->seen, count, sizeof(*seen));
	if (seen != NULL)
		l->seen = seen;
	if (v == NULL || seen == NULL || slots_grow(l, count) < 0)
		return err_set(err, ERR_NOMEM, "out of memory for %u nodes", count);
	for (; l->count < count; l->count++) {
		const char *name = st_cluster_node(c, l->count)->name;
		size_t len = strlen(name);

		l->v[l->count] = (struct ex_lookup_node){name, (uint32_t)len, ST_NONE};
		put(l, l->count);
	}
	return 0;
}

static inline bool is(const struct ex_lookup *l, uint32_t id, const struct ex_name *n)
{
	return id < l->count && l->v[id].len == n->len && memcmp(l->v[id].name, n->at, n->len) == 0;
}

static uint32_t find(const struct ex_lookup *l, const struct ex_name *n)
{
	uint64_t hash = hash_of(n->at, n->len);

	if (l->count == 0)
		return ST_NONE;
	for (size_t at = hash & l->mask; l->slots[at] != 0; at = (at + 1) & l->mask) {
		uint32_t id = (uint32_t)l->slots[at] - 1;

		if (l->slots[at] >> 32 == hash >> 32 && is(l, id, n))
			return id;
	}
	return ST_NONE;
}

int ex_lookup_names(struct ex_lookup *l, const struct st_cluster *c, const struct ex_names *names,
		    uint32_t *ret_ids, void (*on_repeated)(void *ctx, size_t i), void *ctx,
		    struct err *err)
{
	uint32_t *guess = &l->first, id;
	bool trust = true; /* the last guess was right: where one is wrong the next often is, too */
	int rc = grow(l, c, err);

	if (rc < 0)
		return rc;
	if (l->count > 0)
		memset(l->seen, 0, l->count);
	for (size_t i = 0; i < names->count; i++) {
		const struct ex_name *n = &names->v[i];

		id = *guess;
		if (!trust || !is(l, id, n)) {
			id = find(l, n);
			trust = id == *guess;
			if (id != ST_NONE)
				*guess = id;
		}
		ret_ids[i] = id;
		if (id == ST_NONE)
			continue;
		if (l->seen[id])
			on_repeated(ctx, i);
		l->seen[id] = 1;
		guess = &l->v[id].next;
	}
	return 0;
}

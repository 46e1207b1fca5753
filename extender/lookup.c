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
	*l = (struct ex_lookup){0};
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
	if (v == NULL || seen == NULL)
		return err_set(err, ERR_NOMEM, "out of memory for %u nodes", count);
	for (uint32_t id = l->count; id < count; id++) {
		const char *name = st_cluster_node(c, id)->name;

		l->v[id] = (struct ex_lookup_node){name, (uint32_t)strlen(name), ST_NONE};
	}
	l->count = count;
	return 0;
}

static inline bool is(const struct ex_lookup *l, uint32_t id, const struct ex_name *n)
{
	return id < l->count && l->v[id].len == n->len && memcmp(l->v[id].name, n->at, n->len) == 0;
}

int ex_lookup_names(struct ex_lookup *l, const struct st_cluster *c, const struct ex_names *names,
		    uint32_t *ret_ids, void (*on_repeated)(void *ctx, size_t i), void *ctx,
		    struct err *err)
{
	uint32_t *guess = &l->first, id;
	int rc = grow(l, c, err);

	if (rc < 0)
		return rc;
	if (l->count > 0)
		memset(l->seen, 0, l->count);
	for (size_t i = 0; i < names->count; i++) {
		const struct ex_name *n = &names->v[i];

		id = *guess;
		if (!is(l, id, n)) {
			id = st_cluster_node_find(c, n->at, n->len);
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

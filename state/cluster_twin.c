/* GPUs that two nodes have in their books under one UUID. A GPU is in one machine: an inventory was copied,
 * or the Node object of a machine that was renamed still stands. Nobody can tell which node is right, so none
 * of them gives the GPU away while another one might. Only nodes with an inventory have UUIDs of the
 * driver's. */
#include <stdlib.h>
#include <string.h>

#include "state/cluster_internal.h"

int st_uuid_intern(struct st_cluster *c, const char *uuid, struct uuid_slot **ret, struct err *err)
{
	size_t len = strlen(uuid);
	struct uuid_slot *u;

	HASH_FIND(hh, c->uuids, uuid, len, u);
	if (u == NULL) {
		u = calloc(1, sizeof(*u) + len + 1);
		if (u == NULL)
			return err_set(err, ERR_NOMEM, "no memory for GPU %s", uuid);
		u->c = c;
		memcpy(u->text, uuid, len + 1);
		HASH_ADD_KEYPTR(hh, c->uuids, u->text, len, u);
		if (!HASH_ADDED(u, hh)) {
			free(u);
			return err_set(err, ERR_NOMEM, "no memory for GPU %s", uuid);
		}
	}
	*ret = u;
	return 0;
}

void st_uuid_drop(struct uuid_slot *u)
{
	if (u == NULL || u->first != NULL)
		return;
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
	HASH_DEL(u->c->uuids, u);
	free(u);
}

/* Could its node give it away, or did it? */
static bool claims(const struct gpu_slot *s)
{
	return s->book.holders > 0 ||
	       (s->node->pub.present && !s->node->pub.unready && !s->report.gone);
}

const struct gpu_slot *st_gpu_twin(const struct gpu_slot *s)
{
	const struct gpu_slot *t = s->uuid != NULL ? s->uuid->first : NULL;

	while (t != NULL && (t->node == s->node || !claims(t)))
		t = t->twin;
	return t;
}

void st_uuid_tell(const struct uuid_slot *u, const struct node_slot *from)
{
	for (struct gpu_slot *t = u->first; t != NULL; t = t->twin) {
		struct st_gpu *g;
		bool was;

		if (t->node == from)
			continue;
		g = &t->node->pub.gpus[t - t->node->gpus];
		was = g->twin;
		st_gpu_derive(g, t);
		if (g->twin != was)
			st_node_touch(u->c, t->node);
	}
}

void st_gpu_link(struct gpu_slot *s)
{
	if (s->uuid == NULL)
		return;
	s->twin = s->uuid->first;
	s->uuid->first = s;
}

void st_gpu_unlink(struct gpu_slot *s)
{
	struct uuid_slot *u = s->uuid;
	struct gpu_slot **at;

	if (u == NULL)
		return;
	for (at = &u->first; *at != s;)
		at = &(*at)->twin;
	*at = s->twin;
	s->uuid = NULL;
	s->twin = NULL;
	if (u->first != NULL)
		st_uuid_tell(u, s->node);
	else
		st_uuid_drop(u);
}

uint32_t st_cluster_gpu_twin(const struct st_cluster *c, uint32_t node, uint8_t gpu)
{
	const struct node_slot *n = st_node_slot(c, node);
	const struct gpu_slot *t =
		n != NULL && gpu < n->pub.gpu_count ? st_gpu_twin(&n->gpus[gpu]) : NULL;

	return t != NULL ? t->node->pub.id : ST_NONE;
}

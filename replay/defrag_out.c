/* Plans of moves as JSON and as kubectl commands. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "replay/defrag.h"

void rp_moves_fini(struct rp_moves *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->list[i].uid);
		free(m->list[i].ns);
		free(m->list[i].name);
	}
	free(m->list);
	free(m->nodes);
	*m = (struct rp_moves){0};
}

static bool put_gpus(cJSON *o, const struct st_cluster *c, const struct rp_move *v)
{
	const struct st_node *n = st_cluster_node(c, v->to);
	cJSON *list = cJSON_AddArrayToObject(o, "gpus");

	for (unsigned i = 0; list != NULL && i < v->d.grant_count; i++)
		for (unsigned g = 0; g < v->d.grants[i].count; g++) {
			cJSON *x = cJSON_CreateString(n->gpus[v->d.grants[i].gpu[g]].uuid);

			if (x == NULL || !cJSON_AddItemToArray(list, x)) {
				cJSON_Delete(x);
				return false;
			}
		}
	return list != NULL;
}

static bool put_moves(cJSON *o, const struct st_cluster *c, const struct rp_moves *m)
{
	cJSON *nodes = cJSON_AddArrayToObject(o, "nodes");
	cJSON *moves = cJSON_AddArrayToObject(o, "moves");

	for (size_t i = 0; i < m->node_count; i++) {
		cJSON *x = cJSON_CreateString(st_cluster_node(c, m->nodes[i])->name);

		if (x == NULL || !cJSON_AddItemToArray(nodes, x)) {
			cJSON_Delete(x);
			return false;
		}
	}
	for (size_t i = 0; i < m->count; i++) {
		const struct rp_move *v = &m->list[i];
		cJSON *x = cJSON_CreateObject();

		if (x == NULL || !cJSON_AddItemToArray(moves, x)) {
			cJSON_Delete(x);
			return false;
		}
		if (!cJSON_AddStringToObject(x, "namespace", v->ns) ||
		    !cJSON_AddStringToObject(x, "pod", v->name) ||
		    !cJSON_AddStringToObject(x, "uid", v->uid) ||
		    !cJSON_AddStringToObject(x, "from", st_cluster_node(c, v->from)->name) ||
		    !cJSON_AddStringToObject(x, "to", st_cluster_node(c, v->to)->name) ||
		    !put_gpus(x, c, v))
			return false;
	}
	return nodes != NULL && moves != NULL;
}

char *rp_moves_json(const struct st_cluster *c, const struct rp_moves *m)
{
	cJSON *o = cJSON_CreateObject();
	char *text = o != NULL && put_moves(o, c, m) ? cJSON_Print(o) : NULL;

	cJSON_Delete(o);
	return text;
}

/* As one word of a shell, whatever is in it. */
static void quote(struct buf *b, const char *s)
{
	buf_putc(b, '\'');
	for (; *s != '\0'; s++)
		if (*s == '\'')
			buf_puts(b, "'\\''");
		else if ((unsigned char)*s >= ' ')
			buf_putc(b, *s);
	buf_putc(b, '\'');
}

static bool seen_before(const struct rp_moves *m, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (m->list[k].from == m->list[i].from)
			return true;
	return false;
}

static void each_source(struct buf *b, const struct st_cluster *c, const struct rp_moves *m,
			const char *verb)
{
	for (size_t i = 0; i < m->count; i++) {
		if (seen_before(m, i))
			continue;
		buf_printf(b, "kubectl %s ", verb);
		quote(b, st_cluster_node(c, m->list[i].from)->name);
		buf_putc(b, '\n');
	}
}

void rp_moves_kubectl(struct buf *b, const struct st_cluster *c, const struct rp_moves *m)
{
	buf_puts(b, "#!/bin/sh -e\n"
		    "# Read before running. Each pod is stopped and must be made anew by its owner "
		    "(Deployment, Job, ...);\n"
		    "# a pod without one is lost. Wait for each to run before the next is "
		    "deleted.\n");
	each_source(b, c, m, "cordon");
	for (size_t i = 0; i < m->count; i++) {
		const struct rp_move *v = &m->list[i];

		buf_puts(b, "kubectl delete pod --wait -n ");
		quote(b, v->ns);
		buf_putc(b, ' ');
		quote(b, v->name);
		buf_puts(b, " # room on ");
		quote(b, st_cluster_node(c, v->to)->name);
		buf_putc(b, '\n');
	}
	each_source(b, c, m, "uncordon");
}

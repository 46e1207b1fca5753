/* Plans of moves in words, as JSON and as kubectl commands. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "replay/defrag.h"
#include "replay/stat.h"

#define NAMES_SHOWN 10 /* of empty nodes, in words */

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

static bool has_gpu_pod(const struct st_cluster *c, uint32_t node)
{
	for (const struct st_pod *p = st_cluster_node_pod_next(c, node, NULL); p != NULL;
	     p = st_cluster_node_pod_next(c, node, p))
		if (p->grant_count > 0 || p->fenced)
			return true;
	return false;
}

int rp_defrag_notes_init(struct rp_defrag_notes *n, const struct st_cluster *c, bool room,
			 struct err *err)
{
	uint32_t count = st_cluster_node_count(c);

	*n = (struct rp_defrag_notes){.room = room};
	for (const struct st_pod *p = st_cluster_pod_next(c, NULL); p != NULL;
	     p = st_cluster_pod_next(c, p))
		n->fixed += p->foreign;
	if (room)
		return 0;
	n->empty = malloc((count + (size_t)1) * sizeof(*n->empty));
	if (n->empty == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (uint32_t id = 0; id < count; id++) {
		const struct st_node *node = st_cluster_node(c, id);

		if (node->present && node->gpu_count > 0 && !has_gpu_pod(c, id))
			n->empty[n->empty_count++] = id;
	}
	return 0;
}

void rp_defrag_notes_fini(struct rp_defrag_notes *n)
{
	free(n->empty);
	*n = (struct rp_defrag_notes){0};
}

/* ---- words ---- */

/* A name within a line, whatever is in it. */
static void put_name(struct buf *b, const char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char)*s >= ' ')
			buf_putc(b, *s);
}

static void put_node(struct buf *b, const struct st_cluster *c, uint32_t node)
{
	put_name(b, st_cluster_node(c, node)->name);
}

static void headline(struct buf *b, const struct st_cluster *c, const struct rp_moves *m,
		     const struct rp_defrag_notes *n)
{
	char nodes[RP_TEXT_CAP], moves[RP_TEXT_CAP];

	rp_text_many((int64_t)m->node_count, "node", nodes);
	rp_text_many((int64_t)m->count, "move", moves);
	if (n->room && m->count == 0) {
		buf_puts(b, "It fits on ");
		put_node(b, c, m->nodes[0]);
		buf_puts(b, " as it is.\n");
	} else if (n->room) {
		buf_puts(b, "Room on ");
		put_node(b, c, m->nodes[0]);
		buf_printf(b, " after %s:\n", moves);
	} else if (m->node_count == 0) {
		buf_puts(b, "No node can be emptied by moving its pods.\n");
	} else {
		buf_printf(b, "%s without GPU pods after %s:\n", nodes, moves);
	}
}

/* Each line begins with `start`. */
static void put_notes(struct buf *b, const struct st_cluster *c, const struct rp_defrag_notes *n,
		      const char *start)
{
	char pods[RP_TEXT_CAP];

	if (n->empty_count > 0)
		buf_printf(b, "%salready empty, beside these: ", start);
	for (size_t i = 0; i < n->empty_count && i < NAMES_SHOWN; i++) {
		buf_puts(b, i > 0 ? ", " : "");
		put_node(b, c, n->empty[i]);
	}
	if (n->empty_count > NAMES_SHOWN)
		buf_printf(b, " and %zu more", n->empty_count - NAMES_SHOWN);
	if (n->empty_count > 0)
		buf_putc(b, '\n');
	if (n->fixed > 0)
		buf_printf(b, "%s%s without a tessera allocation %s taken as fixed\n", start,
			   rp_text_many((int64_t)n->fixed, "pod", pods),
			   n->fixed == 1 ? "is" : "are");
}

void rp_moves_text(struct buf *b, const struct st_cluster *c, const struct rp_moves *m,
		   const struct rp_defrag_notes *n)
{
	headline(b, c, m, n);
	for (size_t i = 0; i < m->count; i++) {
		const struct rp_move *v = &m->list[i];

		buf_puts(b, "  ");
		put_name(b, v->ns);
		buf_putc(b, '/');
		put_name(b, v->name);
		buf_puts(b, ": ");
		put_node(b, c, v->from);
		buf_puts(b, " -> ");
		put_node(b, c, v->to);
		buf_putc(b, '\n');
	}
	for (size_t i = 0; !n->room && i < m->node_count; i++) {
		buf_puts(b, "  free: ");
		put_node(b, c, m->nodes[i]);
		buf_putc(b, '\n');
	}
	put_notes(b, c, n, "  ");
}

/* ---- JSON ---- */

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

static bool put_nodes(cJSON *o, const char *key, const struct st_cluster *c, const uint32_t *nodes,
		      size_t count)
{
	cJSON *list = cJSON_AddArrayToObject(o, key);

	for (size_t i = 0; list != NULL && i < count; i++) {
		cJSON *x = cJSON_CreateString(st_cluster_node(c, nodes[i])->name);

		if (x == NULL || !cJSON_AddItemToArray(list, x)) {
			cJSON_Delete(x);
			return false;
		}
	}
	return list != NULL;
}

static bool put_moves(cJSON *o, const struct st_cluster *c, const struct rp_moves *m,
		      const struct rp_defrag_notes *n)
{
	bool ok = put_nodes(o, "nodes", c, m->nodes, m->node_count);
	cJSON *moves = cJSON_AddArrayToObject(o, "moves");

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
	if (ok && !n->room)
		ok = put_nodes(o, "already_empty", c, n->empty, n->empty_count);
	return ok && moves != NULL &&
	       cJSON_AddNumberToObject(o, "fixed_pods", (double)n->fixed) != NULL;
}

char *rp_moves_json(const struct st_cluster *c, const struct rp_moves *m,
		    const struct rp_defrag_notes *n)
{
	cJSON *o = cJSON_CreateObject();
	char *text = o != NULL && put_moves(o, c, m, n) ? cJSON_Print(o) : NULL;

	cJSON_Delete(o);
	return text;
}

/* ---- kubectl ---- */

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

void rp_moves_kubectl(struct buf *b, const struct st_cluster *c, const struct rp_moves *m,
		      const struct rp_defrag_notes *n)
{
	if (m->count == 0) {
		buf_puts(b, "#!/bin/sh -e\n# ");
		headline(b, c, m, n);
		put_notes(b, c, n, "# ");
		return;
	}
	buf_puts(b, "#!/bin/sh -e\n"
		    "# Read before running. Each pod is stopped and must be made anew by its owner "
		    "(Deployment, Job, ...);\n"
		    "# a pod without one is lost. Wait for each to run before the next is "
		    "deleted.\n");
	put_notes(b, c, n, "# ");
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

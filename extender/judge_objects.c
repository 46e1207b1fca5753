/* Nodes that do not exist (yet): an autoscaler asks whether a pod would fit on its templates. They are
 * judged in a cluster of their own, which is thrown away. */
#include "extender/service_internal.h"

/* Keys of real nodes go above those of imagined ones. */
#define REAL_BIT (UINT64_C(1) << 63)

struct imagined {
	const struct ex_question *q;
	struct st_cluster *c;
	struct po_placer *placer;
};

static int add_node(struct st_cluster *c, struct ex_slice item, struct ku_arena *a,
		    uint32_t *ret_id, struct err *err)
{
	struct st_node_spec spec;
	cJSON *tree = NULL;
	int rc;

	rc = ku_json_parse(item.at, item.len, &tree, err);
	if (rc == 0)
		rc = ku_node_decode(tree, a, &spec, err);
	cJSON_Delete(tree);
	return rc == 0 ? st_cluster_node_put(c, &spec, ret_id, err) : rc;
}

static bool is_imagined(const struct ex_verdicts *v, size_t i)
{
	return v->code[i] == EX_NO_NODE && v->node[i] == ST_NONE;
}

/* Puts all imagined nodes into m->c; their ids go to v->node for the time being. */
static int add_nodes(struct imagined *m, const struct ex_items *items, struct ku_arena *a,
		     struct ex_verdicts *v, struct err *err)
{
	struct err why = ERR_INIT;
	int rc;

	for (size_t i = 0; i < v->count; i++) {
		if (!is_imagined(v, i)) {
			v->node[i] = ST_NONE;
			continue;
		}
		rc = add_node(m->c, items->v[i], a, &v->node[i], &why);
		if (rc == ERR_NOMEM)
			return err_set(err, rc, "out of memory for node objects");
		if (rc < 0) {
			v->code[i] = EX_NODE_OBJECT;
			if (v->count <= EX_EXPLAIN_MAX)
				ex_verdicts_set_text(v, i, why.msg);
		}
	}
	return 0;
}

static int judge(struct imagined *m, struct ex_verdicts *v, struct err *err)
{
	struct po_shape *shape;
	struct po_answer a;
	char text[256];

	shape = po_placer_ask(m->placer, &m->q->req, ex_decision_number(m->q->ident.uid));
	if (shape == NULL)
		return err_set(err, ERR_NOMEM, "out of memory while judging nodes");
	for (size_t i = 0; i < v->count; i++) {
		if (v->node[i] == ST_NONE || v->code[i] != EX_NO_NODE) {
			v->key[i] = v->key[i] >> 1 | REAL_BIT;
			continue;
		}
		a = po_shape_node(shape, v->node[i]);
		v->code[i] = (uint8_t)a.verdict;
		v->key[i] = a.key >> 1;
		if (a.verdict != BP_OK && v->count <= EX_EXPLAIN_MAX) {
			bp_explain(m->c, v->node[i], &m->q->req, a.verdict, text, sizeof(text));
			ex_verdicts_set_text(v, i, text);
		}
		v->node[i] = ST_NONE;
	}
	return 0;
}

int ex_judge_objects(const struct ex_service *s, const struct ex_question *q,
		     const struct ex_names *names, const struct ex_items *items, struct ku_arena *a,
		     struct ex_verdicts *v, struct err *err)
{
	struct po_options opt = s->cfg.placer;
	struct imagined m = {.q = q};
	size_t count = 0;
	int rc;

	(void)names;
	for (size_t i = 0; i < v->count; i++)
		count += is_imagined(v, i);
	if (count == 0)
		return 0;
	opt.learn = false;
	m.c = st_cluster_new(&s->cfg.state);
	m.placer = m.c != NULL ? po_placer_new(m.c, &opt) : NULL;
	rc = m.placer != NULL ? add_nodes(&m, items, a, v, err)
			      : err_set(err, ERR_NOMEM, "out of memory for node objects");
	if (rc == 0)
		rc = judge(&m, v, err);
	po_placer_free(m.placer);
	st_cluster_free(m.c);
	return rc;
}

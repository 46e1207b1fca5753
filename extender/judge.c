/* Filter and prioritize: which nodes, and how good. */
#include <string.h>

#include "extender/service_internal.h"
#include "kube/load.h"

size_t ex_annotation_bytes(const struct st_pod_spec *pod)
{
	size_t sum = 0;

	for (size_t i = 0; i < pod->annotation_count; i++)
		sum += strlen(pod->annotations[i].key) + strlen(pod->annotations[i].value);
	return sum;
}

int ex_question_read(const struct ex_service *s, struct ex_slice pod, struct ku_arena *a,
		     struct ex_question *ret, struct err *err)
{
	struct st_pod_spec spec = {0};
	cJSON *tree = NULL;
	int rc;

	if (pod.at == NULL)
		return err_set(err, ERR_INVALID, "Pod: is missing");
	rc = ku_json_parse(pod.at, pod.len, &tree, err);
	if (rc == 0)
		rc = ku_pod_decode(tree, a, &spec, err);
	cJSON_Delete(tree);
	if (rc < 0)
		return err_prefix(err, rc, "Pod");
	ret->nominated = spec.nominated_node;
	ret->annotation_bytes = ex_annotation_bytes(&spec);
	ret->why = (struct err)ERR_INIT;
	ku_pod_ident(&spec, &ret->ident);
	rc = st_contract_parse(&spec, &s->cfg.contract, &ret->req, NULL, &ret->why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "out of memory");
	ret->refused = rc < 0;
	return 0;
}

static void on_repeated(void *ctx, size_t i)
{
	struct ex_verdicts *v = ctx;

	v->code[i] = EX_REPEATED;
}

/* The pod is bound: its node is the answer, and no other. */
static void judge_bound(const struct st_pod *pod, struct ex_verdicts *v)
{
	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] == EX_REPEATED || v->node[i] == ST_NONE)
			continue;
		v->code[i] = v->node[i] == pod->node ? EX_OK : EX_BOUND;
		v->key[i] = 1;
	}
}

/* Its node must be among the names: until the outcome of the bind is known, no other will do. */
static int judge_binding(const struct ex_service *s, const struct st_pod *pod,
			 const struct ex_verdicts *v, struct err *err)
{
	for (size_t i = 0; i < v->count; i++) {
		if (v->node[i] == pod->node)
			return 0;
	}
	return err_set(err, ERR_CONFLICT, "the outcome of its bind to node \"%s\" is not known yet",
		       st_cluster_node(s->c, pod->node)->name);
}

/* Nodes where room is kept for other pods: a look at what would be left. */
static void judge_nominated(struct ex_service *s, const struct ex_question *q,
			    struct ex_verdicts *v)
{
	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] == EX_OK && v->node[i] != ST_NONE &&
		    ex_nominated(s, q->ident.uid, q->ident.priority, v->node[i], true))
			v->code[i] = (uint8_t)ex_choose(s, &q->req, q->ident.uid, q->ident.priority,
							v->node[i], NULL);
	}
}

static void explain(const struct ex_service *s, const struct ex_question *q, struct ex_verdicts *v)
{
	char text[256];

	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] == EX_OK || v->code[i] >= BP_VERDICT_COUNT || v->node[i] == ST_NONE)
			continue;
		bp_explain(s->c, v->node[i], &q->req, (enum bp_verdict)v->code[i], text,
			   sizeof(text));
		ex_verdicts_set_text(v, i, text);
	}
}

static int judge_fresh(struct ex_service *s, const struct ex_question *q, struct ex_verdicts *v,
		       struct err *err)
{
	struct po_shape *shape;
	struct po_answer a;

	shape = po_placer_ask(s->placer, &q->req, ex_decision_number(q->ident.uid));
	if (shape == NULL)
		return err_set(err, ERR_NOMEM, "out of memory while judging nodes");
	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] == EX_REPEATED || v->node[i] == ST_NONE)
			continue;
		a = po_shape_node(shape, v->node[i]);
		v->code[i] = (uint8_t)a.verdict;
		v->key[i] = a.key;
	}
	if (q->req.item_count > 0 && s->nominations != NULL)
		judge_nominated(s, q, v);
	if (v->count <= EX_EXPLAIN_MAX)
		explain(s, q, v);
	return 0;
}

/* A pod counts as an arrival when the next new one comes: what became of it is in the books then. */
static void arrive(struct ex_service *s, struct ex_recent_pod *pod)
{
	if (pod == NULL || pod->arrived)
		return;
	pod->arrived = true;
	if (s->arrival_due && po_placer_arrival(s->placer))
		ex_prices_wake(s);
	s->arrival_due = true;
}

/* Until its bind comes, other questions are answered as if the pod were on the node that prioritize
 * puts first: the scheduler asks about the next pod before it binds the last. */
static void expect(struct ex_service *s, const struct ex_question *q, const struct ex_verdicts *v)
{
	uint32_t best = ST_NONE;
	uint64_t key = 0;

	for (size_t i = 0; i < v->count; i++) {
		if (v->code[i] == EX_OK && v->node[i] != ST_NONE &&
		    (best == ST_NONE || v->key[i] > key)) {
			best = v->node[i];
			key = v->key[i];
		}
	}
	if (best != ST_NONE && q->req.item_count > 0 && q->nominated[0] == '\0' &&
	    q->ident.uid[0] != '\0')
		ex_expect(s, q->ident.uid, best, &q->req);
}

/* What is remembered of the pod, for its bind and for others' filters. */
static void remember(struct ex_service *s, const struct ex_question *q)
{
	const char *uid = q->ident.uid, *name = q->nominated;
	uint32_t node;

	if (uid[0] == '\0')
		return;
	/* Failure shows at the bind, as a pod that is not known. */
	if (ex_recent_put(s->recent, &q->req, &q->ident, NULL) == 0) {
		struct ex_recent_pod *pod = ex_recent_get(s->recent, uid);

		pod->asked = true;
		pod->annotation_bytes = q->annotation_bytes;
		arrive(s, pod);
	}
	node = name[0] != '\0' ? st_cluster_node_find(s->c, name, strlen(name)) : ST_NONE;
	if (node != ST_NONE && q->req.item_count > 0)
		ex_nominate(s, uid, q->ident.priority, node, &q->req);
	else
		ex_nomination_drop(s, uid);
}

static int judge_known(struct ex_service *s, const struct ex_question *q,
		       const struct ex_names *names, bool cached, struct ex_verdicts *v,
		       struct err *err)
{
	const struct st_pod *bound;
	int rc;

	rc = ex_lookup_names(&s->lookup, s->c, names, v->node, on_repeated, v, err);
	if (rc < 0)
		return rc;
	ex_nominations_expire(s);
	bound = st_cluster_pod_find(s->c, q->ident.uid);
	if (bound != NULL && s->cfg.mirrors && bound->state == ST_POD_BINDING)
		rc = judge_binding(s, bound, v, err);
	if (bound != NULL) {
		judge_bound(bound, v);
		return rc;
	}
	remember(s, q);
	rc = judge_fresh(s, q, v, err);
	if (rc == 0 && s->cfg.mirrors && cached)
		expect(s, q, v);
	return rc;
}

int ex_service_judge(struct ex_service *s, const struct ex_question *q,
		     const struct ex_names *names, const struct ex_items *items, struct ku_arena *a,
		     struct ex_verdicts *ret, struct err *err)
{
	int rc;

	rc = ex_verdicts_reset(ret, names->count, err);
	if (rc < 0)
		return rc;
	if (q->refused) {
		memset(ret->code, EX_REQUEST, ret->count);
		if (ret->count > 0)
			ex_verdicts_set_text(ret, 0, q->why.msg);
		for (size_t i = 1; i < ret->count; i++)
			ret->text[i] = ret->text[0];
		return 0;
	}
	pthread_mutex_lock(&s->lock);
	rc = judge_known(s, q, names, items == NULL, ret, err);
	pthread_mutex_unlock(&s->lock);
	if (rc == 0 && items != NULL)
		rc = ex_judge_objects(s, q, names, items, a, ret, err);
	return rc;
}

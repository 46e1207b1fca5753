#include "extender/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/service_internal.h"
#include "kube/load.h"

/* ---- nodes ---- */

static int64_t total_mib(const struct st_node *n)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < n->gpu_count; i++)
		sum += n->gpus[i].taken != ST_TAKEN_GONE ? n->gpus[i].alloc_mib : 0;
	return sum;
}

/* The first GPU of a node that another node has, too; 255: none. */
static uint8_t twin_of(const struct st_cluster *c, uint32_t id)
{
	const struct st_node *n = id != ST_NONE ? st_cluster_node(c, id) : NULL;

	for (uint8_t i = 0; n != NULL && i < n->gpu_count; i++)
		if (n->gpus[i].twin)
			return i;
	return UINT8_MAX;
}

static void note_twin(const struct ex_service *s, uint32_t id, struct ex_mirror_node *ret)
{
	uint8_t gpu = twin_of(s->c, id);
	uint32_t other = gpu != UINT8_MAX ? st_cluster_gpu_twin(s->c, id, gpu) : ST_NONE;

	ret->twins = other != ST_NONE;
	if (!ret->twins)
		return;
	snprintf(ret->twin_node, sizeof(ret->twin_node), "%s", st_cluster_node(s->c, other)->name);
	snprintf(ret->twin_gpu, sizeof(ret->twin_gpu), "%s",
		 st_cluster_node(s->c, id)->gpus[gpu].uuid);
}

static int refuse_node(struct ex_service *s, const char *name, const char *bad,
		       struct ex_mirror_node *ret, uint32_t *id, struct err *err)
{
	struct st_node_spec spec = {.name = name, .unready = true, .why_unready = bad};
	uint32_t old = st_cluster_node_find(s->c, name, strlen(name));
	const char *said = old != ST_NONE ? st_cluster_node(s->c, old)->why_unready : NULL;

	ret->refused = true;
	ret->news = said == NULL || strcmp(said, bad) != 0;
	err_set(&ret->why, 0, "%s", bad);
	s->counts.nodes_invalid++;
	return st_cluster_node_put(s->c, &spec, id, err);
}

static int node_locked(struct ex_service *s, const struct st_node_spec *spec, const char *bad,
		       struct ex_mirror_node *ret, struct err *err)
{
	uint32_t id = st_cluster_node_find(s->c, spec->name, strlen(spec->name));
	uint64_t before = st_cluster_log_end(s->c);
	bool had_twin = twin_of(s->c, id) != UINT8_MAX;
	struct err why = ERR_INIT;
	int rc = 0;

	if (bad == NULL)
		rc = st_cluster_node_put(s->c, spec, &id, &why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "out of memory for node \"%s\"", spec->name);
	if (rc < 0)
		bad = why.msg;
	if (bad != NULL)
		rc = refuse_node(s, spec->name, bad, ret, &id, err);
	if (rc < 0)
		return rc;
	ret->changed = st_cluster_log_end(s->c) != before;
	ret->total_mib = total_mib(st_cluster_node(s->c, id));
	if (!had_twin)
		note_twin(s, id, ret);
	return 0;
}

int ex_mirror_node(struct ex_service *s, const struct st_node_spec *spec, const char *bad,
		   struct ex_mirror_node *ret, struct err *err)
{
	int rc;

	*ret = (struct ex_mirror_node){.why = ERR_INIT};
	pthread_mutex_lock(&s->lock);
	rc = node_locked(s, spec, bad, ret, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void ex_mirror_node_gone(struct ex_service *s, const char *name)
{
	pthread_mutex_lock(&s->lock);
	st_cluster_node_remove(s->c, name, NULL);
	pthread_mutex_unlock(&s->lock);
}

/* ---- pods ---- */

static void forget(struct ex_service *s, const char *uid)
{
	if (st_cluster_pod_find(s->c, uid) != NULL)
		st_cluster_pod_move(s->c, uid, ST_EVENT_GONE, NULL);
	ex_recent_drop(s->recent, uid);
	ex_nomination_drop(s, uid);
}

/* A pod that waits: its request and nomination. What filter said of it stays where this is not
 * readable: filter refuses it then. */
static int pending_locked(struct ex_service *s, const struct st_pod_spec *pod,
			  const struct st_request *req, bool fresh, struct err *err)
{
	const struct st_pod *held = st_cluster_pod_find(s->c, pod->uid);
	struct st_pod_ident ident;
	struct ex_recent_pod *known;
	uint32_t node;
	int rc;

	/* Once it is being deleted it is never bound: a bind under way will be refused. */
	if (pod->deleting) {
		if (held != NULL && held->state == ST_POD_BINDING)
			st_cluster_pod_move(s->c, pod->uid, ST_EVENT_FAILED, NULL);
		ex_recent_drop(s->recent, pod->uid);
		ex_nomination_drop(s, pod->uid);
		return 0;
	}
	if (req == NULL || held != NULL)
		return 0;
	if (!fresh && ex_recent_full(s->recent) && !ex_recent_has(s->recent, pod->uid))
		return 0;
	ku_pod_ident(pod, &ident);
	rc = ex_recent_put(s->recent, req, &ident, err);
	if (rc < 0)
		return rc;
	known = ex_recent_get(s->recent, pod->uid);
	known->asked = known->asked || fresh;
	known->annotation_bytes = ex_annotation_bytes(pod);
	if (pod->nominated_node[0] == '\0' || req->item_count == 0)
		return 0;
	node = st_cluster_node_find(s->c, pod->nominated_node, strlen(pod->nominated_node));
	if (node != ST_NONE)
		ex_nominate(s, pod->uid, pod->priority, node, req);
	return 0;
}

static int64_t limits_of(const struct st_pod *pod)
{
	int64_t sum = 0;

	for (int i = 0; pod != NULL && i < pod->grant_count; i++)
		sum += (int64_t)pod->grants[i].limit_mib * pod->grants[i].count;
	return sum;
}

static int bound_locked(struct ex_service *s, const struct st_pod_spec *pod,
			const struct st_request *req, struct ex_mirror_pod *ret, struct err *err)
{
	uint32_t node = st_cluster_node_find(s->c, pod->node, strlen(pod->node));
	const struct st_pod *held = st_cluster_pod_find(s->c, pod->uid);
	bool was_fenced = held != NULL && held->fenced, known = held != NULL;
	int64_t limits = limits_of(held);
	int rc;

	ex_nomination_drop(s, pod->uid);
	ret->kind = EX_MIRROR_HELD;
	if (node == ST_NONE) {
		/* It was to go elsewhere, and did not. */
		if (held != NULL)
			st_cluster_pod_move(s->c, pod->uid, ST_EVENT_GONE, NULL);
		err_set(&ret->why, 0, "its node \"%s\" is not known", pod->node);
		return 0;
	}
	rc = ku_pod_observe(s->c, pod, node, &s->cfg.contract, &ret->why, err);
	if (rc < 0)
		return rc;
	held = st_cluster_pod_find(s->c, pod->uid);
	ret->fenced = held != NULL && held->fenced;
	if (ret->fenced || ret->why.msg[0] != '\0') {
		ret->news = !was_fenced;
		s->counts.pods_fenced += !was_fenced;
		return 0;
	}
	ret->kind = EX_MIRROR_BOUND;
	ret->shrunk = limits_of(held) < limits;
	/* Without memory to learn, the estimate stays as it was. */
	if (!known && req != NULL && po_placer_learn(s->placer, req, NULL) == 0)
		s->counts.learned++;
	return 0;
}

int ex_mirror_pod(struct ex_service *s, const struct st_pod_spec *pod, bool fresh,
		  struct ex_mirror_pod *ret, struct err *err)
{
	bool done = pod->phase == ST_PHASE_SUCCEEDED || pod->phase == ST_PHASE_FAILED;
	struct err why = ERR_INIT;
	struct st_request req;
	int rc = 0, parsed;

	*ret = (struct ex_mirror_pod){.why = ERR_INIT};
	parsed = done ? -1 : st_contract_parse(pod, &s->cfg.contract, &req, NULL, &why);
	pthread_mutex_lock(&s->lock);
	if (done) {
		ret->kind = EX_MIRROR_DONE;
		forget(s, pod->uid);
	} else if (pod->node[0] == '\0') {
		rc = pending_locked(s, pod, parsed == 0 ? &req : NULL, fresh, err);
	} else {
		rc = bound_locked(s, pod, parsed == 0 ? &req : NULL, ret, err);
	}
	s->counts.pods_invalid += !done && parsed < 0;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void ex_mirror_pod_gone(struct ex_service *s, const char *uid)
{
	pthread_mutex_lock(&s->lock);
	forget(s, uid);
	pthread_mutex_unlock(&s->lock);
}

/* ---- binds ---- */

/* The decision that stands in the books. */
static int take_up(struct ex_service *s, const struct st_pod *held, struct ex_op *op,
		   struct err *err)
{
	op->decision = (struct st_decision){.node = held->node, .grant_count = held->grant_count};
	for (unsigned i = 0; i < held->grant_count; i++)
		op->decision.grants[i] = held->grants[i];
	return st_contract_encode(s->c, &op->decision, &s->cfg.contract, &op->annotations, err);
}

static int hold_held(struct ex_service *s, const struct st_pod *held, const struct ex_bind_args *a,
		     struct ex_op *op, enum ex_hold *ret, struct err *err)
{
	const char *node = st_cluster_node(s->c, held->node)->name;
	bool there = strcmp(node, a->node) == 0;

	if (held->state == ST_POD_BINDING && there) {
		*ret = EX_HOLD_POST;
		return take_up(s, held, op, err);
	}
	if (held->state == ST_POD_BINDING)
		return err_set(err, ERR_CONFLICT,
			       "the outcome of the bind of pod %s/%s to node \"%s\" is not known "
			       "yet",
			       a->ns, a->name, node);
	if (!there)
		return err_set(err, ERR_CONFLICT, "pod %s/%s is already bound to node \"%s\"",
			       a->ns, a->name, node);
	/* Without GPUs it may be another scheduler's work: its annotations tell. */
	if (held->state == ST_POD_OBSERVED &&
	    (held->grant_count == 0 || held->foreign || held->fenced)) {
		*ret = EX_HOLD_READ;
		return 0;
	}
	s->counts.binds_repeated++;
	*ret = EX_HOLD_BOUND;
	return 0;
}

static int hold_locked(struct ex_service *s, const struct ex_bind_args *a, struct ex_op *op,
		       enum ex_hold *ret, size_t *ret_bytes, struct err *err)
{
	const struct st_pod *held = st_cluster_pod_find(s->c, a->uid);
	const struct ex_recent_pod *pod = ex_recent_get(s->recent, a->uid);

	*ret_bytes = pod != NULL ? pod->annotation_bytes : 0;
	if (held != NULL)
		return hold_held(s, held, a, op, ret, err);
	if (pod == NULL || !pod->asked) {
		s->counts.binds_unknown++;
		*ret = EX_HOLD_READ;
		return 0;
	}
	*ret = EX_HOLD_POST;
	return ex_reserve(s, a, pod, op, err);
}

int ex_mirror_hold(struct ex_service *s, const struct ex_bind_args *a, struct ex_op *op,
		   enum ex_hold *ret, size_t *ret_bytes, struct err *err)
{
	int rc;

	rc = ex_op_prepare(op, a->uid, false, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = hold_locked(s, a, op, ret, ret_bytes, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static bool carries(const struct st_pod_spec *pod, const struct st_annotations *a)
{
	for (size_t i = 0; i < a->count; i++) {
		const char *v = st_pod_annotation(pod, a->kv[i].key);

		if (v == NULL || strcmp(v, a->kv[i].value) != 0)
			return false;
	}
	return true;
}

/* A complete allocation there, or none and no wish for one. */
static bool allocated(struct ex_service *s, const struct st_pod_spec *pod, const char *node)
{
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	struct st_decision d;
	struct st_request req;
	uint32_t id;
	int rc = -1;

	pthread_mutex_lock(&s->lock);
	id = st_cluster_node_find(s->c, node, strlen(node));
	if (id != ST_NONE)
		rc = st_contract_decode(s->c, pod, id, &s->cfg.contract, &kind, &d, NULL);
	pthread_mutex_unlock(&s->lock);
	if (rc < 0 || kind == ST_ALLOCATION_COMPLETE)
		return rc == 0;
	return st_contract_parse(pod, &s->cfg.contract, &req, NULL, NULL) == 0 &&
	       req.item_count == 0;
}

enum ex_bind_seen ex_mirror_seen(struct ex_service *s, const struct st_pod_spec *pod,
				 const char *node, const struct ex_op *op)
{
	bool done = pod->phase == ST_PHASE_SUCCEEDED || pod->phase == ST_PHASE_FAILED;

	if (pod->node[0] == '\0')
		return done || pod->deleting ? EX_SEEN_NEVER : EX_SEEN_UNBOUND;
	if (strcmp(pod->node, node) != 0)
		return EX_SEEN_OTHER;
	if (op != NULL ? carries(pod, &op->annotations) : allocated(s, pod, node))
		return EX_SEEN_OURS;
	return EX_SEEN_OTHER;
}

/* ---- looking ---- */

int ex_mirror_unseen(struct ex_service *s, char **ret, size_t *ret_len, struct err *err)
{
	struct buf b = BUF_INIT;

	pthread_mutex_lock(&s->lock);
	for (const struct st_pod *p = NULL; (p = st_cluster_pod_next(s->c, p)) != NULL;) {
		if (p->state != ST_POD_BOUND)
			continue;
		buf_put(&b, p->uid, strlen(p->uid) + 1);
		buf_put(&b, p->ns, strlen(p->ns) + 1);
		buf_put(&b, p->name, strlen(p->name) + 1);
	}
	pthread_mutex_unlock(&s->lock);
	if (!buf_ok(&b)) {
		buf_fini(&b);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	*ret_len = b.len;
	*ret = b.data;
	return 0;
}

bool ex_mirror_mig_known(struct ex_service *s, const char *profile)
{
	bool known;

	pthread_mutex_lock(&s->lock);
	known = st_cluster_mig_known(s->c, profile);
	pthread_mutex_unlock(&s->lock);
	return known;
}

int32_t ex_mirror_smallest_gpu(struct ex_service *s)
{
	int32_t least = 0;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < st_cluster_node_count(s->c); i++) {
		const struct st_node *n = st_cluster_node(s->c, i);

		for (unsigned k = 0; n->present && k < n->gpu_count; k++) {
			int32_t mib = n->gpus[k].alloc_mib;

			if (n->gpus[k].taken != ST_TAKEN_GONE && mib > 0 &&
			    (least == 0 || mib < least))
				least = mib;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return least;
}

/* Bind and release: reserve under the lock, record outside of it, then commit or roll back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/service_internal.h"

void ex_op_fini(struct ex_op *op)
{
	buf_fini(&op->line);
	st_annotations_fini(&op->annotations);
	free(op->uid);
	*op = (struct ex_op){0};
}

/* ---- operations under way: one for each UID ---- */

static bool under_way(const struct ex_service *s, const char *uid)
{
	for (const struct ex_op *op = s->ops; op != NULL; op = op->next) {
		if (strcmp(op->uid, uid) == 0)
			return true;
	}
	return false;
}

static void ops_remove(struct ex_service *s, struct ex_op *op)
{
	struct ex_op **at = &s->ops;

	while (*at != NULL && *at != op)
		at = &(*at)->next;
	if (*at != NULL)
		*at = op->next;
	pthread_cond_broadcast(&s->settled);
}

/* Prepares the operation before the lock is taken. */
int ex_op_prepare(struct ex_op *op, const char *uid, bool release, struct err *err)
{
	free(op->uid);
	st_annotations_fini(&op->annotations);
	op->annotations = (struct st_annotations){0};
	op->uid = strdup(uid);
	op->release = release;
	op->learn = false;
	buf_reset(&op->line);
	return op->uid != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int op_recorded(struct ex_op *op, struct err *err)
{
	if (!buf_ok(&op->line))
		return err_set(err, ERR_NOMEM, "out of memory");
	op->entry.line = op->line.data;
	op->entry.len = op->line.len;
	return 0;
}

void ex_service_submit(struct ex_service *s, struct ex_op *op)
{
	ex_journal_submit(s->journal, &op->entry);
}

/* ---- bind ---- */

/* Answers for a pod that holds something already. */
static int bind_again(struct ex_service *s, const struct st_pod *pod, const struct ex_bind_args *a,
		      struct err *err)
{
	const char *node = st_cluster_node(s->c, pod->node)->name;

	if (strcmp(pod->ns, a->ns) != 0 || strcmp(pod->name, a->name) != 0)
		return err_set(err, ERR_CONFLICT, "uid %s is pod %s/%s, not %s/%s", a->uid, pod->ns,
			       pod->name, a->ns, a->name);
	if (strcmp(node, a->node) != 0)
		return err_set(err, ERR_CONFLICT, "pod %s/%s is already bound to node \"%s\"",
			       a->ns, a->name, node);
	s->counts.binds_repeated++;
	return 0;
}

static int refuse(struct ex_service *s, const struct ex_bind_args *a, uint32_t node,
		  const struct st_request *req, enum ex_code code, struct err *err)
{
	char text[256];

	s->counts.binds_refused++;
	if (code < (enum ex_code)BP_VERDICT_COUNT)
		bp_explain(s->c, node, req, (enum bp_verdict)code, text, sizeof(text));
	return err_set(err, ERR_NO_ROOM, "node \"%s\" has no room for pod %s/%s any more: %s",
		       a->node, a->ns, a->name,
		       code < (enum ex_code)BP_VERDICT_COUNT ? text : ex_code_text(code));
}

int ex_reserve(struct ex_service *s, const struct ex_bind_args *a, const struct ex_recent_pod *pod,
	       struct ex_op *op, struct err *err)
{
	uint32_t node = st_cluster_node_find(s->c, a->node, strlen(a->node));
	enum ex_code code;
	int rc;

	if (strcmp(pod->ident.ns, a->ns) != 0 || strcmp(pod->ident.name, a->name) != 0)
		return err_set(err, ERR_CONFLICT, "uid %s is pod %s/%s, not %s/%s", a->uid,
			       pod->ident.ns, pod->ident.name, a->ns, a->name);
	if (node == ST_NONE)
		return err_set(err, ERR_NOT_FOUND, "node \"%s\" is not known", a->node);
	ex_nominations_expire(s);
	ex_expected_drop(s, a->uid);
	code = ex_choose(s, &pod->req, a->uid, pod->ident.priority, node, &op->decision);
	if (code != EX_OK)
		return refuse(s, a, node, &pod->req, code, err);
	rc = st_contract_encode(s->c, &op->decision, &s->cfg.contract, &op->annotations, err);
	if (rc < 0)
		return rc;
	op->learn = !pod->learned;
	op->req = pod->req;
	return st_cluster_reserve(s->c, &pod->ident, &op->decision, err);
}

static int bind_locked(struct ex_service *s, const struct ex_bind_args *a, struct ex_op *op,
		       struct st_pod_ident *ret_ident, struct err *err)
{
	const struct st_pod *held;
	const struct ex_recent_pod *pod;
	int rc;

	while (under_way(s, a->uid))
		pthread_cond_wait(&s->settled, &s->lock);
	held = st_cluster_pod_find(s->c, a->uid);
	if (held != NULL)
		return bind_again(s, held, a, err);
	pod = ex_recent_get(s->recent, a->uid);
	if (pod == NULL) {
		s->counts.binds_unknown++;
		return err_set(
			err, ERR_NOT_FOUND,
			"pod %s/%s (uid %s) was not seen by filter lately; it is tried again",
			a->ns, a->name, a->uid);
	}
	rc = ex_reserve(s, a, pod, op, err);
	if (rc < 0)
		return rc;
	*ret_ident = pod->ident;
	op->next = s->ops;
	s->ops = op;
	return 1;
}

static int settle_locked(struct ex_service *s, struct ex_op *op, int rc, struct err *err);

/* ---- what the log hears of it ---- */

struct told {
	char pod[600], node[300], gpus[200]; /* "": nothing to tell */
};

/* The GPUs by their indexes on the node, in the order of the containers. */
static void write_gpus(const struct st_decision *d, char *out, size_t cap)
{
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < d->grant_count; i++) {
		for (unsigned k = 0; k < d->grants[i].count && len < cap; k++)
			len += (size_t)snprintf(out + len, cap - len, "%s%u", len > 0 ? "," : "",
						d->grants[i].gpu[k]);
	}
}

/* Under the lock: no more than copying. */
static void note_bind(const struct ex_service *s, const struct ex_op *op, int rc, struct told *t)
{
	const struct st_pod *pod;

	t->pod[0] = '\0';
	if (rc < 0 || op->release || (pod = st_cluster_pod_find(s->c, op->uid)) == NULL)
		return;
	snprintf(t->pod, sizeof(t->pod), "%s/%s", pod->ns, pod->name);
	snprintf(t->node, sizeof(t->node), "%s", st_cluster_node(s->c, pod->node)->name);
	write_gpus(&op->decision, t->gpus, sizeof(t->gpus));
}

static void tell_bind(const struct ex_service *s, const struct told *t, const char *uid)
{
	if (t->pod[0] != '\0')
		log_event(s->cfg.log, LOG_LEVEL_DEBUG, "bound", "pod=%s uid=%s node=%s gpus=%s",
			  t->pod, uid, t->node, t->gpus[0] != '\0' ? t->gpus : "none");
}

int ex_service_bind(struct ex_service *s, const struct ex_bind_args *a, struct ex_op *op,
		    struct err *err)
{
	struct st_pod_ident ident;
	struct told told = {.pod = ""};
	int rc;

	rc = ex_op_prepare(op, a->uid, false, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = bind_locked(s, a, op, &ident, err);
	if (rc == 1 && s->journal == NULL) {
		rc = settle_locked(s, op, 0, err);
		note_bind(s, op, rc, &told);
	}
	pthread_mutex_unlock(&s->lock);
	tell_bind(s, &told, a->uid);
	if (rc != 1)
		return rc;
	/* The strings behind ident may be gone; those of the call are equal. */
	ident.uid = a->uid;
	ident.ns = a->ns;
	ident.name = a->name;
	ex_journal_put_bind(&op->line, &ident, a->node, &op->decision, &op->annotations,
			    op->learn ? &op->req : NULL);
	rc = op_recorded(op, err);
	return rc < 0 ? ex_service_settle(s, op, rc, err) : 1;
}

/* ---- release ---- */

static int release_locked(struct ex_service *s, const char *uid, struct ex_op *op, struct err *err)
{
	bool forgotten;

	while (under_way(s, uid))
		pthread_cond_wait(&s->settled, &s->lock);
	forgotten = ex_nomination_drop(s, uid);
	if (st_cluster_pod_find(s->c, uid) == NULL) {
		forgotten |= ex_recent_drop(s->recent, uid);
		return forgotten ? 0
				 : err_set(err, ERR_NOT_FOUND, "no pod with uid \"%s\" is known",
					   uid);
	}
	op->next = s->ops;
	s->ops = op;
	return 1;
}

int ex_service_release(struct ex_service *s, const char *uid, struct ex_op *op, struct err *err)
{
	int rc;

	rc = ex_op_prepare(op, uid, true, err);
	if (rc < 0)
		return rc;
	ex_journal_put_release(&op->line, uid);
	rc = op_recorded(op, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = release_locked(s, uid, op, err);
	if (rc == 1 && s->journal == NULL)
		rc = settle_locked(s, op, 0, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* ---- the end of both ---- */

static int settle_bind(struct ex_service *s, struct ex_op *op, int rc, struct err *err)
{
	struct ex_recent_pod *pod;

	if (rc < 0) {
		s->counts.binds_failed++;
		st_cluster_pod_move(s->c, op->uid, ST_EVENT_FAILED, NULL);
		return rc;
	}
	rc = st_cluster_pod_move(s->c, op->uid, ST_EVENT_ACCEPTED, err);
	if (rc < 0)
		return rc;
	s->counts.binds++;
	ex_nomination_drop(s, op->uid);
	/* Without memory to learn, the estimate stays as it was. */
	if (op->learn && po_placer_learn(s->placer, &op->req, NULL) == 0)
		s->counts.learned++;
	pod = ex_recent_get(s->recent, op->uid);
	if (pod != NULL)
		pod->learned = true;
	return 0;
}

static int settle_release(struct ex_service *s, struct ex_op *op, int rc, struct err *err)
{
	if (rc < 0)
		return rc;
	rc = st_cluster_pod_move(s->c, op->uid, ST_EVENT_GONE, err);
	ex_recent_drop(s->recent, op->uid);
	s->counts.releases += rc == 0;
	return rc;
}

static int settle_locked(struct ex_service *s, struct ex_op *op, int rc, struct err *err)
{
	rc = op->release ? settle_release(s, op, rc, err) : settle_bind(s, op, rc, err);
	ops_remove(s, op);
	return rc;
}

int ex_service_settle(struct ex_service *s, struct ex_op *op, int rc, struct err *err)
{
	struct told told;

	pthread_mutex_lock(&s->lock);
	rc = settle_locked(s, op, rc, err);
	note_bind(s, op, rc, &told);
	pthread_mutex_unlock(&s->lock);
	tell_bind(s, &told, op->uid);
	return rc;
}

/* ---- waiting for it ---- */

static int finish_now(struct ex_service *s, struct ex_op *op, int rc, struct err *err)
{
	if (rc == 1) {
		rc = ex_journal_append(s->journal, op->entry.line, op->entry.len, err);
		rc = ex_service_settle(s, op, rc, err);
	}
	ex_op_fini(op);
	return rc;
}

int ex_service_bind_now(struct ex_service *s, const struct ex_bind_args *a, struct err *err)
{
	struct ex_op op = {0};

	return finish_now(s, &op, ex_service_bind(s, a, &op, err), err);
}

int ex_service_release_now(struct ex_service *s, const char *uid, struct err *err)
{
	struct ex_op op = {0};

	return finish_now(s, &op, ex_service_release(s, uid, &op, err), err);
}

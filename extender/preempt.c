/* Preempt: the scheduler proposes victims that make room in node totals; which of them make room on
 * a GPU is for us to say. */
#include <stdlib.h>
#include <string.h>

#include "extender/service_internal.h"

static void drop_chosen(struct ex_victims *v)
{
	for (size_t i = 0; i < v->chosen_count; i++)
		free(v->chosen[i]);
	free(v->chosen);
	v->chosen = NULL;
	v->chosen_count = 0;
}

static int choose_uid(struct ex_victims *v, const char *uid, struct err *err)
{
	char *copy = strdup(uid);

	if (copy == NULL)
		return err_set(err, ERR_NOMEM, "out of memory for victims");
	v->chosen[v->chosen_count++] = copy;
	return 0;
}

/* Victims that the model does not know stay: the scheduler saw them in the way of something. */
static int keep_unknown(const struct ex_service *s, struct ex_victims *v, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; i < v->count && rc == 0; i++) {
		if (st_cluster_pod_find(s->c, v->uids[i]) == NULL)
			rc = choose_uid(v, v->uids[i], err);
	}
	return rc;
}

static int victims_locked(struct ex_service *s, const struct ex_question *q, struct ex_victims *v,
			  struct err *err)
{
	uint32_t node = st_cluster_node_find(s->c, v->node, strlen(v->node));
	const char **uids = NULL;
	size_t count = 0;
	int rc = 0;

	drop_chosen(v);
	if (node == ST_NONE || v->count == 0)
		return 0;
	if (po_placer_victims(s->placer, &q->req, node, q->ident.priority,
			      (const char *const *)v->uids, v->count, &uids, &count, &rc) != BP_OK)
		return rc < 0 ? err_set(err, rc, "out of memory for victims") : 0;
	v->chosen = calloc(count + v->count, sizeof(v->chosen[0]));
	if (v->chosen == NULL) {
		free(uids);
		return err_set(err, ERR_NOMEM, "out of memory for victims");
	}
	for (size_t i = 0; i < count && rc == 0; i++)
		rc = choose_uid(v, uids[i], err);
	free(uids);
	return rc == 0 ? keep_unknown(s, v, err) : rc;
}

int ex_service_preempt(struct ex_service *s, const struct ex_question *q, struct ex_preemption *p,
		       struct err *err)
{
	struct ex_victims *last = NULL;
	size_t left = 0;
	int rc = 0;

	if (q->refused)
		return 0;
	/* Trying victims costs many copies of a node: others get their turn in between. */
	for (size_t i = 0; i < p->count && rc == 0; i++) {
		pthread_mutex_lock(&s->lock);
		rc = victims_locked(s, q, &p->v[i], err);
		pthread_mutex_unlock(&s->lock);
		if (p->v[i].chosen_count > 0) {
			last = &p->v[i];
			left++;
		}
	}
	/* With one node in the answer it is known where the room is being made; with several, the
	 * pod's next filter call says it. */
	if (rc < 0 || left != 1 || q->req.item_count == 0 || q->ident.uid[0] == '\0')
		return rc;
	pthread_mutex_lock(&s->lock);
	ex_nominate(s, q->ident.uid, q->ident.priority,
		    st_cluster_node_find(s->c, last->node, strlen(last->node)), &q->req);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

#include "extender/elastic.h"

#include <stdio.h>
#include <string.h>

#include "extender/service_internal.h"
#include "kube/load.h"

void ex_elastic_plan_fini(struct ex_elastic_plan *p)
{
	st_annotations_fini(&p->annotations);
}

/* Are these the limits that the books have for the pod? */
static bool booked_so(const struct st_pod *pod, const struct st_decision *d)
{
	if (pod == NULL || pod->fenced || pod->foreign || pod->node != d->node ||
	    pod->grant_count != d->grant_count)
		return false;
	for (int i = 0; i < d->grant_count; i++) {
		if (strcmp(pod->grants[i].container, d->grants[i].container) != 0 ||
		    pod->grants[i].limit_mib != d->grants[i].limit_mib)
			return false;
	}
	return true;
}

static int book(struct ex_service *s, const struct st_pod_spec *pod, const struct st_decision *d,
		struct err *err)
{
	struct st_pod_ident ident;
	bool fenced;

	ku_pod_ident(pod, &ident);
	return st_cluster_observe(s->c, &ident, d->node, d, 0, &fenced, err);
}

/* The higher limit of each container, and in words what changes. */
static void compare(struct ex_elastic_plan *p, const struct st_decision *want)
{
	size_t at = 0;

	p->booked = *want;
	for (int i = 0; i < want->grant_count; i++) {
		int32_t was = p->was.grants[i].limit_mib, now = want->grants[i].limit_mib;
		int n;

		if (was > now)
			p->booked.grants[i].limit_mib = was;
		if (was == now || at >= sizeof(p->text))
			continue;
		n = snprintf(p->text + at, sizeof(p->text) - at, "%s%s: %d to %d MiB",
			     at > 0 ? ", " : "", want->grants[i].container, was, now);
		at += n > 0 ? (size_t)n : 0;
	}
}

static int plan_locked(struct ex_service *s, const struct st_pod_spec *pod,
		       struct ex_elastic_plan *p, enum ex_elastic *ret, struct err *err)
{
	const struct st_contract_options *opt = &s->cfg.contract;
	uint32_t node = st_cluster_node_find(s->c, pod->node, strlen(pod->node));
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	const struct st_pod *held;
	struct st_decision want;
	bool changed = false;
	int rc;

	/* An allocation that cannot be read is told where it is booked (mirror.h). */
	*ret = EX_ELASTIC_LATER;
	if (node == ST_NONE || st_contract_decode(s->c, pod, node, opt, &kind, &p->was, NULL) < 0)
		return 0;
	held = st_cluster_pod_find(s->c, pod->uid);
	if (held == NULL || held->fenced || held->state != ST_POD_OBSERVED)
		return 0;
	*ret = EX_ELASTIC_NONE;
	if (kind != ST_ALLOCATION_COMPLETE)
		return 0;
	want = p->was;
	rc = st_contract_wishes(s->c, pod, opt, &want, &changed, &p->why);
	if (rc < 0) {
		p->no_room = rc == ERR_NO_ROOM;
		*ret = EX_ELASTIC_REFUSED;
		return 0;
	}
	if (!changed)
		return 0;
	rc = st_contract_encode(s->c, &want, opt, &p->annotations, &p->why);
	if (rc == 0)
		rc = st_contract_check_size(pod, &p->annotations, &p->why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "%s", p->why.msg);
	if (rc < 0) {
		*ret = EX_ELASTIC_REFUSED;
		return 0;
	}
	compare(p, &want);
	*ret = EX_ELASTIC_WRITE;
	return booked_so(held, &p->booked) ? 0 : book(s, pod, &p->booked, err);
}

int ex_elastic_plan(struct ex_service *s, const struct st_pod_spec *pod,
		    struct ex_elastic_plan *ret_plan, enum ex_elastic *ret, struct err *err)
{
	int rc;

	*ret_plan = (struct ex_elastic_plan){.why = ERR_INIT};
	*ret = EX_ELASTIC_NONE;
	pthread_mutex_lock(&s->lock);
	rc = plan_locked(s, pod, ret_plan, ret, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void ex_elastic_undo(struct ex_service *s, const struct st_pod_spec *pod,
		     const struct ex_elastic_plan *p)
{
	pthread_mutex_lock(&s->lock);
	/* Without memory the higher limit stays in the books until the watch tells of the pod again. */
	if (booked_so(st_cluster_pod_find(s->c, pod->uid), &p->booked))
		(void)book(s, pod, &p->was, NULL);
	pthread_mutex_unlock(&s->lock);
}

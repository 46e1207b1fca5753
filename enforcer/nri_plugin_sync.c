/* Synchronize: what exists when the plugin connects. The list may come in parts, and a container's pod in
 * another part than the container, so parts are kept until the last one is there; and longer where the GPUs
 * of the node are not known at that moment, for nothing can be said of who holds them then. */
#include <string.h>

#include "enforcer/nri_plugin_internal.h"

static void parts_free(struct plugin_parts *x)
{
	while (x->count > 0)
		en_nri_request_free(x->at[--x->count]);
}

void en_plugin_connected(struct en_plugin *p)
{
	parts_free(&p->parts);
}

void plugin_waiting_free(struct en_plugin *p)
{
	parts_free(&p->waiting);
}

static const struct st_pod_spec *pod_find(const struct plugin_parts *x, const char *id)
{
	for (size_t k = 0; k < x->count; k++) {
		const struct en_nri_request *r = x->at[k];

		for (size_t i = 0; i < r->pod_count; i++) {
			if (strcmp(r->pods[i].id, id) == 0)
				return &r->pods[i].spec;
		}
	}
	return NULL;
}

static bool exists(const struct en_nri_container *c)
{
	return c->state == EN_NRI_CREATED || c->state == EN_NRI_RUNNING ||
	       c->state == EN_NRI_PAUSED;
}

/* Keeps what is known of a container from before the connection was lost. The runtime tells annotations as
 * they were when the pod began; amounts may have been changed since. */
static void keep_known(struct en_plugin *p, struct en_holding *h)
{
	const struct en_holding *old = en_ledger_find(p->ledger, h->id);

	if (old == NULL)
		return;
	memcpy(h->cgroup, old->cgroup, sizeof(h->cgroup));
	if (h->pid == 0)
		h->pid = old->pid;
	if (h->grant.kind == ST_KIND_SHARE && old->grant.kind == ST_KIND_SHARE) {
		h->grant.request_mib = old->grant.request_mib;
		h->grant.limit_mib = old->grant.limit_mib;
	}
}

/* The row of before, where there is one. */
static int keep_row(struct en_plugin *p, struct en_ledger *l, const char *id, bool *ret_kept,
		    struct err *err)
{
	const struct en_holding *old;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	old = en_ledger_find(p->ledger, id);
	*ret_kept = old != NULL;
	if (old != NULL && l != p->ledger)
		rc = en_ledger_put(l, old, err);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* One container: into the new ledger when it holds something; reported when it is not as it should be. */
static int take_in(struct en_plugin *p, struct plugin_node *n, struct en_ledger *l,
		   const struct st_pod_spec *pod, const struct en_nri_container *c, struct err *err)
{
	struct err why = ERR_INIT;
	struct en_plan plan;
	struct en_holding h;
	bool right;
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = plugin_plan(p, n, l, pod, c->seen.name, true, &plan, err);
	pthread_mutex_unlock(&p->lock);
	if (rc != 0)
		return rc;
	if (plan.verdict == EN_LEAVE)
		return 0;
	right = plan.verdict != EN_REFUSE && plugin_check_container(p, n, &plan, c, &why) == 0;
	if (!right)
		plugin_report_slipped(p, pod, c, plan.verdict == EN_REFUSE ? plan.why : why.msg);
	/* One that has not begun is judged again when it is to, as any that we have no row of. */
	if (plan.grant.count == 0 || (!right && c->state == EN_NRI_CREATED))
		return 0;
	plugin_holding(n, &plan, pod, c, &h);
	pthread_mutex_lock(&p->lock);
	keep_known(p, &h);
	rc = en_ledger_put(l, &h, err);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

/* A container that was told of, while the GPUs are not known: as before, or to be looked at later. */
static int put_off(struct en_plugin *p, struct en_ledger *l, const struct st_pod_spec *pod,
		   const struct en_nri_container *c, bool *ret_wait, struct err *err)
{
	struct en_plan plan;
	bool kept = false;
	int rc = keep_row(p, l, c->id, &kept, err);

	if (rc != 0 || kept)
		return rc;
	pthread_mutex_lock(&p->lock);
	rc = plugin_plan(p, NULL, l, pod, c->seen.name, true, &plan, err);
	pthread_mutex_unlock(&p->lock);
	*ret_wait |= rc == 0 && (plan.verdict != EN_LEAVE || plan.why[0] != '\0');
	return rc;
}

/* All of them into l; *ret_wait: there are some of which nothing can be said yet. */
static int take_in_all(struct en_plugin *p, const struct plugin_parts *x, struct en_ledger *l,
		       bool *ret_wait, struct err *err)
{
	struct plugin_node *n = plugin_node_get(p);
	bool known = plugin_node_known(n);
	int rc = 0;

	*ret_wait = false;
	for (size_t k = 0; rc == 0 && k < x->count; k++) {
		const struct en_nri_request *r = x->at[k];

		for (size_t i = 0; rc == 0 && i < r->container_count; i++) {
			const struct en_nri_container *c = &r->containers[i];
			const struct st_pod_spec *pod = exists(c) ? pod_find(x, c->pod_id) : NULL;

			if (pod != NULL)
				rc = known ? take_in(p, n, l, pod, c, err)
					   : put_off(p, l, pod, c, ret_wait, err);
		}
	}
	plugin_node_put(p, n);
	return rc;
}

/* ---- what waits for the GPUs to be known ---- */

bool en_plugin_waits(struct en_plugin *p)
{
	bool ret;

	pthread_mutex_lock(&p->sync_lock);
	ret = p->waiting.count > 0;
	pthread_mutex_unlock(&p->sync_lock);
	return ret;
}

void plugin_waiting_gone(struct en_plugin *p, const char *id)
{
	pthread_mutex_lock(&p->sync_lock);
	for (size_t k = 0; k < p->waiting.count; k++) {
		struct en_nri_request *r = p->waiting.at[k];

		for (size_t i = 0; i < r->container_count; i++) {
			if (strcmp(r->containers[i].id, id) == 0)
				r->containers[i].state = EN_NRI_STOPPED;
		}
	}
	pthread_mutex_unlock(&p->sync_lock);
}

/* Rows that there are have been made since by a newer word. Without memory: at the next look. */
int plugin_waiting_take(struct en_plugin *p, struct err *err)
{
	struct plugin_node *n = plugin_node_get(p);
	bool wait = true;
	int rc = 0;

	pthread_mutex_lock(&p->sync_lock);
	if (p->waiting.count > 0 && plugin_node_known(n))
		rc = take_in_all(p, &p->waiting, p->ledger, &wait, err);
	if (rc == 0 && !wait)
		parts_free(&p->waiting);
	pthread_mutex_unlock(&p->sync_lock);
	plugin_node_put(p, n);
	return rc;
}

/* All parts are there. */
static int take_over(struct en_plugin *p, struct err *err)
{
	struct en_ledger *l = en_ledger_new(), *old;
	bool wait = false;
	int rc;

	if (l == NULL)
		return err_set(err, ERR_NOMEM, "plugin: no memory");
	pthread_mutex_lock(&p->sync_lock);
	rc = take_in_all(p, &p->parts, l, &wait, err);
	if (rc == 0) {
		parts_free(&p->waiting);
		if (wait) {
			p->waiting = p->parts;
			p->parts.count = 0;
		}
		pthread_mutex_lock(&p->lock);
		old = p->ledger;
		p->ledger = l;
		pthread_mutex_unlock(&p->lock);
		l = old;
	}
	pthread_mutex_unlock(&p->sync_lock);
	en_ledger_free(l);
	return rc;
}

void plugin_synchronize(struct en_plugin *p, struct en_nri_request *take_r,
			struct en_nri_reply *ret)
{
	bool more = take_r->more;
	struct err err = ERR_INIT;

	if (p->parts.count == SYNC_PARTS_MAX) {
		en_nri_request_free(take_r);
		en_plugin_connected(p);
		plugin_fail(ret, EN_TTRPC_RESOURCE_EXHAUSTED, "Synchronize in too many parts");
		return;
	}
	p->parts.at[p->parts.count++] = take_r;
	if (more)
		return;
	if (take_over(p, &err) != 0)
		plugin_fail(ret, EN_TTRPC_RESOURCE_EXHAUSTED, err.msg);
	en_plugin_connected(p);
}

/* Synchronize: what exists when the plugin connects. The list may come in parts, and a container's pod in
 * another part than the container, so parts are kept until the last one is there. */
#include <string.h>

#include "enforcer/nri_plugin_internal.h"

void en_plugin_connected(struct en_plugin *p)
{
	while (p->part_count > 0)
		en_nri_request_free(p->parts[--p->part_count]);
}

static const struct st_pod_spec *pod_find(const struct en_plugin *p, const char *id)
{
	for (size_t k = 0; k < p->part_count; k++) {
		const struct en_nri_request *r = p->parts[k];

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
		plugin_report_slipped(p, pod, c,
				      plan.verdict == EN_REFUSE ? plan.why : why.msg);
	/* One that has not begun is judged again when it is to, as any that we have no row of. */
	if (n == NULL || plan.grant.count == 0 || (!right && c->state == EN_NRI_CREATED))
		return 0;
	plugin_holding(n, &plan, pod, c, &h);
	pthread_mutex_lock(&p->lock);
	keep_known(p, &h);
	rc = en_ledger_put(l, &h, err);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static int take_in_all(struct en_plugin *p, struct en_ledger *l, struct err *err)
{
	struct plugin_node *n = plugin_node_get(p);
	int rc = 0;

	for (size_t k = 0; rc == 0 && k < p->part_count; k++) {
		const struct en_nri_request *r = p->parts[k];

		for (size_t i = 0; rc == 0 && i < r->container_count; i++) {
			const struct en_nri_container *c = &r->containers[i];
			const struct st_pod_spec *pod = exists(c) ? pod_find(p, c->pod_id) : NULL;

			if (pod != NULL)
				rc = take_in(p, n, l, pod, c, err);
		}
	}
	plugin_node_put(p, n);
	return rc;
}

void plugin_synchronize(struct en_plugin *p, struct en_nri_request *take_r,
			struct en_nri_reply *ret)
{
	bool more = take_r->more;
	struct err err = ERR_INIT;
	struct en_ledger *l, *old;
	int rc;

	if (p->part_count == SYNC_PARTS_MAX) {
		en_nri_request_free(take_r);
		en_plugin_connected(p);
		plugin_fail(ret, EN_TTRPC_RESOURCE_EXHAUSTED, "Synchronize in too many parts");
		return;
	}
	p->parts[p->part_count++] = take_r;
	if (more)
		return;
	l = en_ledger_new();
	rc = l != NULL ? take_in_all(p, l, &err) : err_set(&err, ERR_NOMEM, "plugin: no memory");
	if (rc == 0) {
		pthread_mutex_lock(&p->lock);
		old = p->ledger;
		p->ledger = l;
		pthread_mutex_unlock(&p->lock);
		l = old;
	} else {
		plugin_fail(ret, EN_TTRPC_RESOURCE_EXHAUSTED, err.msg);
	}
	en_ledger_free(l);
	en_plugin_connected(p);
}

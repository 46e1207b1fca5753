/* What the rest of the agent knows about pods: allocations that are not in their annotations, and which
 * pods are on this node no more. */
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri_plugin_internal.h"
#include "enforcer/ttrpc_mem.h"

/* ---- allocations from elsewhere ---- */

/* The pod's annotations without allocation keys, and the given ones, in the request's memory. */
static int replace(struct en_plugin *p, struct en_mem *mem, struct st_pod_spec *pod,
		   const struct st_annotations *with)
{
	struct st_kv *kv =
		en_mem_alloc(mem, (pod->annotation_count + with->count + 1) * sizeof(struct st_kv));
	size_t to = 0;

	if (kv == NULL)
		return ERR_NOMEM;
	for (size_t i = 0; i < pod->annotation_count; i++) {
		if (!st_contract_is_allocation_key(pod->annotations[i].key, &p->o.apply.contract))
			kv[to++] = pod->annotations[i];
	}
	for (size_t i = 0; i < with->count; i++) {
		kv[to].key = en_mem_text(mem, with->kv[i].key, strlen(with->kv[i].key));
		kv[to].value = en_mem_text(mem, with->kv[i].value, strlen(with->kv[i].value));
		if (kv[to].key == NULL || kv[to].value == NULL)
			return ERR_NOMEM;
		to++;
	}
	pod->annotations = kv;
	pod->annotation_count = to;
	return 0;
}

int plugin_allocate(struct en_plugin *p, struct en_nri_request *r, struct err *err)
{
	int rc = 0;

	if (p->agent.allocation == NULL)
		return 0;
	for (size_t i = 0; rc == 0 && i < r->pod_count; i++) {
		struct st_annotations with = {0};

		rc = p->agent.allocation(p->agent.ctx, &r->pods[i].spec, &with, err);
		if (rc == 0 && replace(p, r->mem, &r->pods[i].spec, &with) != 0)
			rc = err_set(err, ERR_NOMEM, "plugin: no memory");
		st_annotations_fini(&with);
	}
	return rc;
}

int en_plugin_judge(struct en_plugin *p, const struct st_pod_spec *pod, const char *container,
		    char why[ERR_MSG_CAP], struct err *err)
{
	struct plugin_node *n = plugin_node_get(p);
	struct en_ledger *nobody = en_ledger_new();
	struct en_plan plan;
	int rc = 0;

	why[0] = '\0';
	if (nobody == NULL)
		rc = err_set(err, ERR_NOMEM, "plugin: no memory");
	if (rc == 0 && plugin_node_known(n)) {
		pthread_mutex_lock(&p->lock);
		/* As if it were there: whether MPS answers at the moment does not matter. */
		rc = plugin_plan(p, n, nobody, pod, container, true, &plan, err);
		pthread_mutex_unlock(&p->lock);
		if (rc == 0)
			memcpy(why, plan.why, ERR_MSG_CAP);
	}
	en_ledger_free(nobody);
	if (n != NULL)
		plugin_node_put(p, n);
	return rc;
}

/* ---- pods that are gone ---- */

static bool listed(const char *uid, size_t uid_count, const char *const *uids)
{
	for (size_t i = 0; i < uid_count; i++) {
		if (strcmp(uids[i], uid) == 0)
			return true;
	}
	return false;
}

struct keep {
	struct en_plugin *p;
	size_t count;
	const char *const *uids;
};

static void drop_unlisted(void *ctx, const struct en_holding *h)
{
	const struct keep *k = ctx;
	char cgroup[EN_CGROUP_CAP];

	if (listed(h->pod_uid, k->count, k->uids) ||
	    (h->pid != 0 && en_cgroup_of(k->p->o.proc, h->pid, h->id, cgroup, NULL) == 0))
		return;
	en_plugin_undo(k->p, h->id);
}

void en_plugin_keep_pods(struct en_plugin *p, size_t uid_count, const char *const *uids)
{
	struct keep k = {p, uid_count, uids};

	en_plugin_each(p, drop_unlisted, &k);
}

/* Memory limits on the cgroups of containers: set by the hook, checked at start, looked after while the
 * container runs, taken back when it stops, changed when the allocation changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/limits.h"
#include "enforcer/nri_plugin_internal.h"

#define CGROUP_FILE_MAX ((size_t)64 << 10)

static void limits_of(const struct en_holding *h, struct en_limit_request *ret)
{
	*ret = (struct en_limit_request){.pid = h->pid, .gpu_count = h->grant.count};
	snprintf(ret->id, sizeof(ret->id), "%s", h->id);
	snprintf(ret->cgroup, sizeof(ret->cgroup), "%s", h->cgroup);
	for (int i = 0; i < h->grant.count; i++) {
		memcpy(ret->gpus[i].uuid, h->gpus[i], EN_UUID_CAP);
		ret->gpus[i].soft_mib = h->grant.request_mib;
		ret->gpus[i].hard_mib = h->grant.limit_mib;
	}
}

/* Are they in force? What cannot be read counts as no. */
static bool in_force(const struct en_limits_ops *ops, const char *cgroup,
		     const struct en_limit_request *r)
{
	for (size_t i = 0; i < r->gpu_count; i++) {
		int64_t soft = -1, hard = -1;

		if (ops->get == NULL ||
		    ops->get(ops->ctx, cgroup, r->gpus[i].uuid, &soft, &hard, NULL, NULL) != 0 ||
		    soft != r->gpus[i].soft_mib || hard != r->gpus[i].hard_mib)
			return false;
	}
	return true;
}

/* The guarantee goes before the cgroup does: the cgroups above would keep it counted. The hard limit stays
 * while the process lives. */
static void soften(struct en_plugin *p, const struct en_holding *h)
{
	const struct en_limits_ops *ops = p->o.limits;
	char cgroup[EN_CGROUP_CAP];

	if (ops == NULL || !h->by_cgroup || h->cgroup[0] == '\0' ||
	    en_cgroup_join(p->mount, h->cgroup, cgroup, NULL) != 0)
		return;
	for (int i = 0; i < h->grant.count; i++) /* a cgroup that is gone is none to care for */
		(void)ops->set(ops->ctx, cgroup, h->gpus[i], 0, h->grant.limit_mib, NULL);
}

int plugin_limits_ensure(struct en_plugin *p, struct en_holding *h, bool *ret_repaired,
			 struct err *err)
{
	char cgroup[EN_CGROUP_CAP], again[EN_CGROUP_CAP];
	struct en_limit_request r;
	int rc;

	*ret_repaired = false;
	rc = en_cgroup_of(p->o.proc, h->pid, h->id, h->cgroup, err);
	if (rc == 0)
		rc = en_cgroup_join(p->mount, h->cgroup, cgroup, err);
	if (rc != 0)
		return rc;
	limits_of(h, &r);
	if (in_force(p->o.limits, cgroup, &r))
		return 0;
	rc = en_limits_set_all(p->o.limits, cgroup, &r, false, err);
	if (rc == 0 && en_cgroup_of(p->o.proc, h->pid, h->id, again, NULL) != 0) {
		soften(p, h); /* whoever was told of its end may have been here before */
		return err_set(err, ERR_NOT_FOUND, "container %s has ended", h->id);
	}
	*ret_repaired = rc == 0;
	return rc;
}

/* Writes what was found out about a container into its row, where that is still there. */
static void row_update(struct en_plugin *p, const struct en_holding *found)
{
	struct en_holding *h;

	pthread_mutex_lock(&p->lock);
	h = en_ledger_find(p->ledger, found->id);
	if (h != NULL) {
		h->pid = found->pid;
		memcpy(h->cgroup, found->cgroup, sizeof(h->cgroup));
	}
	pthread_mutex_unlock(&p->lock);
}

static struct en_holding *row_copy(struct en_plugin *p, const char *id, bool *ret_found)
{
	const struct en_holding *h;
	struct en_holding *copy = NULL;

	pthread_mutex_lock(&p->lock);
	h = en_ledger_find(p->ledger, id);
	*ret_found = h != NULL;
	if (h != NULL)
		copy = en_holding_dup(h);
	pthread_mutex_unlock(&p->lock);
	return copy;
}

static void running(const struct en_plugin *p, const struct en_holding *h)
{
	if (p->agent.running != NULL)
		p->agent.running(p->agent.ctx, h);
}

/* ---- StartContainer ---- */

/* A container that we have no row of: made while we were away, or not ours. */
static int start_unknown(struct en_plugin *p, const struct en_nri_request *r, struct err *err)
{
	const struct st_pod_spec *pod = &r->pods[0].spec;
	const struct en_nri_container *c = &r->containers[0];
	struct plugin_node *n = plugin_node_get(p);
	struct en_holding h;
	struct en_plan plan;
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = plugin_plan(p, n, p->ledger, pod, c->seen.name, false, &plan, err);
	pthread_mutex_unlock(&p->lock);
	if (rc == 0 && plan.verdict == EN_REFUSE)
		rc = err_set(err, ERR_CONFLICT, "%s", plan.why);
	if (rc == 0 && plan.verdict != EN_LEAVE) {
		rc = plugin_check_container(p, n, &plan, c, err);
		if (rc != 0)
			err_prefix(err, rc,
				   "container \"%.63s\" of pod %.63s/%.253s was made while the "
				   "agent was away",
				   c->seen.name, pod->ns, pod->name);
	}
	if (rc == 0 && plan.verdict == EN_GIVE) {
		plugin_holding(n, &plan, pod, c, &h);
		rc = plugin_row_put(p, &h, err);
	}
	plugin_node_put(p, n);
	return rc;
}

static void refuse_start(struct en_plugin *p, const struct en_nri_request *r,
			 enum en_report_kind kind, const char *why, struct en_nri_reply *ret)
{
	plugin_report(p, kind, &r->pods[0].spec, r->containers[0].id, r->containers[0].seen.name,
		      why);
	if (!p->o.apply.fail_open)
		plugin_fail(ret, EN_TTRPC_FAILED_PRECONDITION, why);
}

/* The process waits in its cgroup; the hook has set the limits, or should have. */
static int start_limited(struct en_plugin *p, struct en_holding *h, struct err *err)
{
	bool repaired;
	int rc;

	if (h->pid == 0)
		return err_set(err, ERR_CONFLICT, "the runtime gives no process");
	rc = plugin_limits_ensure(p, h, &repaired, err);
	if (rc != 0)
		return rc;
	row_update(p, h);
	running(p, h);
	if (repaired && p->o.apply.hook_path != NULL)
		plugin_report_holding(p, EN_REPORT_REPAIRED, h,
				      "the hook had not set the memory limits");
	return 0;
}

void plugin_start(struct en_plugin *p, const struct en_nri_request *r, struct en_nri_reply *ret)
{
	const struct en_nri_container *c = &r->containers[0];
	struct err err = ERR_INIT;
	struct en_holding *h;
	bool found;
	int rc = 0;

	h = row_copy(p, c->id, &found);
	if (!found) {
		rc = start_unknown(p, r, &err);
		if (rc != 0) {
			refuse_start(p, r, EN_REPORT_SLIPPED, err.msg, ret);
			return;
		}
		h = row_copy(p, c->id, &found);
	}
	if (!found)
		return;
	if (h == NULL) {
		rc = err_set(&err, ERR_NOMEM, "plugin: no memory");
	} else {
		h->pid = c->pid;
		if (h->by_cgroup && p->o.limits != NULL)
			rc = start_limited(p, h, &err);
		else
			row_update(p, h);
	}
	if (rc != 0) {
		err_prefix(&err, rc, "container \"%.63s\" of pod %.63s/%.253s", c->seen.name,
			   r->pods[0].spec.ns, r->pods[0].spec.name);
		refuse_start(p, r, EN_REPORT_LIMITS, err.msg, ret);
	}
	en_holding_free(h);
}

/* ---- StopContainer ---- */

void en_plugin_exited(struct en_plugin *p, const char *container_id)
{
	bool found;
	struct en_holding *h = row_copy(p, container_id, &found);

	if (h != NULL)
		soften(p, h);
	en_holding_free(h);
}

void plugin_stop(struct en_plugin *p, const struct en_nri_request *r)
{
	const char *id = r->containers[0].id;
	struct en_holding *h, *row;
	bool found, first = false;

	pthread_mutex_lock(&p->lock);
	row = en_ledger_find(p->ledger, id);
	if (row != NULL) {
		first = !row->stopped;
		row->stopped = true;
	}
	pthread_mutex_unlock(&p->lock);
	h = first ? row_copy(p, id, &found) : NULL;
	if (h == NULL)
		return;
	soften(p, h);
	if (p->agent.stopping != NULL)
		p->agent.stopping(p->agent.ctx, h);
	en_holding_free(h);
}

void plugin_limits_clear(struct en_plugin *p, const struct en_holding *h)
{
	char cgroup[EN_CGROUP_CAP];

	if (p->o.limits == NULL || !h->by_cgroup || h->cgroup[0] == '\0' ||
	    en_cgroup_join(p->mount, h->cgroup, cgroup, NULL) != 0 || access(cgroup, F_OK) != 0)
		return;
	for (int i = 0; i < h->grant.count; i++) /* it may go at any moment */
		(void)en_limits_clear(p->o.limits, cgroup, h->gpus[i], NULL);
}

/* ---- the hook ---- */

/* What the hook was told when the container was made gives way to what the row says now. */
static int update_request(const struct en_holding *h, struct en_limit_request *r, struct err *err)
{
	if (r->gpu_count != h->grant.count)
		return err_set(err, ERR_INVALID, "container %s has %d GPUs, not %zu", r->id,
			       h->grant.count, r->gpu_count);
	for (size_t i = 0; i < r->gpu_count; i++) {
		if (strcmp(r->gpus[i].uuid, h->gpus[i]) != 0)
			return err_set(err, ERR_INVALID, "container %s has no share of %s", r->id,
				       r->gpus[i].uuid);
		r->gpus[i].soft_mib = h->grant.request_mib;
		r->gpus[i].hard_mib = h->grant.limit_mib;
	}
	return 0;
}

static int gpus_known(const struct plugin_node *n, const struct en_limit_request *r,
		      struct err *err)
{
	for (size_t i = 0; n != NULL && i < r->gpu_count; i++) {
		size_t k = 0;

		while (k < n->node.gpu_count && strcmp(n->node.gpus[k].uuid, r->gpus[i].uuid) != 0)
			k++;
		if (k == n->node.gpu_count)
			return err_set(err, ERR_INVALID, "%s is not a GPU of this node",
				       r->gpus[i].uuid);
	}
	return 0;
}

int en_plugin_limit(struct en_plugin *p, const struct en_limit_request *request, struct err *err)
{
	struct en_limit_request r = *request;
	char cgroup[EN_CGROUP_CAP];
	struct en_holding *h;
	bool found;
	int rc;

	if (p->o.limits == NULL)
		return err_set(err, ERR_CONFLICT, "memory limits cannot be set on this node");
	pthread_mutex_lock(&p->lock);
	h = en_ledger_find(p->ledger, r.id);
	rc = h != NULL ? update_request(h, &r, err) : gpus_known(p->node, &r, err);
	if (rc == 0 && h != NULL) {
		h->pid = r.pid;
		memcpy(h->cgroup, r.cgroup, sizeof(h->cgroup));
	}
	pthread_mutex_unlock(&p->lock);
	if (rc == 0)
		rc = en_cgroup_join(p->mount, r.cgroup, cgroup, err);
	if (rc == 0)
		rc = en_limits_set_all(p->o.limits, cgroup, &r, true, err);
	if (rc == 0 && (h = row_copy(p, r.id, &found)) != NULL) {
		running(p, h);
		en_holding_free(h);
	}
	return rc;
}

/* ---- whose process is it? ---- */

bool en_plugin_owns(struct en_plugin *p, uint32_t pid)
{
	char name[EN_CGROUP_CAP], *text;
	struct en_holding *h = NULL;
	bool ret = false;
	size_t len;
	int n = snprintf(name, sizeof(name), "%s/%u/cgroup", p->o.proc, pid);

	if (n < 0 || (size_t)n >= sizeof(name) ||
	    file_read(name, CGROUP_FILE_MAX, &text, &len, NULL) != 0)
		return false;
	pthread_mutex_lock(&p->lock);
	while (!ret && (h = en_ledger_next(p->ledger, h)) != NULL)
		ret = h->id[0] != '\0' && strstr(text, h->id) != NULL;
	pthread_mutex_unlock(&p->lock);
	free(text);
	return ret;
}

/* ---- every minute ---- */

static void reconcile_one(struct en_plugin *p, struct en_holding *h)
{
	struct err err = ERR_INIT;
	bool repaired;
	int rc;

	if (h->stopped || h->pid == 0 || !h->by_cgroup)
		return;
	rc = plugin_limits_ensure(p, h, &repaired, &err);
	if (rc == 0) {
		row_update(p, h);
		running(p, h);
	}
	if (rc == 0 && repaired)
		plugin_report_holding(p, EN_REPORT_REPAIRED, h,
				      "its memory limits were not in force");
	else if (rc != 0 && rc != ERR_NOT_FOUND) /* the process has ended: its event will come */
		plugin_report_holding(p, EN_REPORT_LIMITS, h, err.msg);
}

void en_plugin_reconcile(struct en_plugin *p)
{
	struct en_holding **rows;
	size_t count;

	if (p->o.limits == NULL)
		return;
	rows = plugin_rows(p, &count);
	for (size_t i = 0; i < count; i++) {
		reconcile_one(p, rows[i]);
		en_holding_free(rows[i]);
	}
	free(rows);
}

/* ---- limits that change ---- */

static bool same_but_memory(const struct plugin_node *n, const struct st_grant *a,
			    const struct en_holding *h)
{
	if (a->kind != h->grant.kind || a->mode != h->grant.mode || a->count != h->grant.count ||
	    a->compute_nano != h->grant.compute_nano)
		return false;
	for (int i = 0; i < a->count; i++) {
		if (strcmp(n->node.gpus[a->gpu[i]].uuid, h->gpus[i]) != 0)
			return false;
	}
	return true;
}

/* Takes the new amounts into the row; *ret_changed where they are new. */
static int row_change(struct en_plugin *p, const struct st_pod_spec *pod,
		      const struct en_holding *was, bool *ret_changed, struct err *err)
{
	struct plugin_node *n = plugin_node_get(p);
	struct en_holding *h;
	struct en_plan plan;
	int rc;

	*ret_changed = false;
	pthread_mutex_lock(&p->lock);
	rc = plugin_plan(p, n, p->ledger, pod, was->container, true, &plan, err);
	h = en_ledger_find(p->ledger, was->id);
	if (rc == 0 && plan.verdict == EN_REFUSE)
		rc = err_set(err, ERR_CONFLICT, "%s", plan.why);
	if (rc == 0 && h != NULL && plan.verdict == EN_GIVE &&
	    (plan.grant.request_mib != h->grant.request_mib ||
	     plan.grant.limit_mib != h->grant.limit_mib)) {
		if (!same_but_memory(n, &plan.grant, h)) {
			rc = err_set(
				err, ERR_CONFLICT,
				"container \"%.63s\" of pod %.63s/%.253s: more than its memory "
				"changed, which only a new container can have",
				was->container, pod->ns, pod->name);
		} else {
			h->grant.request_mib = plan.grant.request_mib;
			h->grant.limit_mib = plan.grant.limit_mib;
			*ret_changed = true;
		}
	}
	pthread_mutex_unlock(&p->lock);
	plugin_node_put(p, n);
	return rc;
}

static int change_one(struct en_plugin *p, const struct st_pod_spec *pod,
		      const struct en_holding *was, struct err *err)
{
	struct en_holding *h;
	bool changed, found, repaired;
	char text[160];
	int rc;

	rc = row_change(p, pod, was, &changed, err);
	if (rc != 0 || !changed)
		return rc;
	h = row_copy(p, was->id, &found);
	if (h == NULL)
		return found ? err_set(err, ERR_NOMEM, "plugin: no memory") : 0;
	if (h->by_cgroup && h->pid != 0 && p->o.limits != NULL)
		rc = plugin_limits_ensure(p, h, &repaired, err);
	if (rc == 0) {
		snprintf(text, sizeof(text), "from %d/%d to %d/%d MiB", was->grant.request_mib,
			 was->grant.limit_mib, h->grant.request_mib, h->grant.limit_mib);
		plugin_report_holding(p, EN_REPORT_CHANGED, h, text);
	} else {
		plugin_report_holding(p, EN_REPORT_LIMITS, h, err != NULL ? err->msg : "");
	}
	en_holding_free(h);
	return rc;
}

int en_plugin_pod_changed(struct en_plugin *p, const struct st_pod_spec *pod, struct err *err)
{
	struct en_holding **rows;
	size_t count;
	int rc = 0;

	rows = plugin_rows(p, &count);
	if (rows == NULL)
		return err_set(err, ERR_NOMEM, "plugin: no memory");
	for (size_t i = 0; i < count; i++) {
		if (rc == 0 && !rows[i]->stopped && strcmp(rows[i]->pod_uid, pod->uid) == 0)
			rc = change_one(p, pod, rows[i], err);
		en_holding_free(rows[i]);
	}
	free(rows);
	return rc;
}

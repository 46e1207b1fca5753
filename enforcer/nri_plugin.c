#include "enforcer/nri_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri_plugin_internal.h"

const char *en_report_name(enum en_report_kind k)
{
	static const char *const names[EN_REPORT_COUNT] = {
		[EN_REPORT_REFUSED] = "refused",      [EN_REPORT_LET_GO] = "let-go",
		[EN_REPORT_SLIPPED] = "slipped",      [EN_REPORT_REPAIRED] = "limits-repaired",
		[EN_REPORT_LIMITS] = "limits-failed", [EN_REPORT_CHANGED] = "limits-changed",
	};

	return names[k];
}

/* ---- life ---- */

int en_plugin_new(const struct en_plugin_options *o, struct en_plugin **ret, struct err *err)
{
	struct en_plugin *p = calloc(1, sizeof(*p));
	int r = 0;

	if (p == NULL)
		return err_set(err, ERR_NOMEM, "plugin: no memory");
	p->o = *o;
	if (o->agent != NULL)
		p->agent = *o->agent;
	if (o->proc == NULL)
		p->o.proc = "/proc";
	p->ledger = en_ledger_new();
	if (p->ledger == NULL)
		r = err_set(err, ERR_NOMEM, "plugin: no memory");
	else if (o->cgroup_mount != NULL)
		r = en_cgroup_join(o->cgroup_mount, "", p->mount, err);
	else if (o->limits != NULL)
		r = en_cgroup_mount(p->o.proc, p->mount, err);
	if (r != 0) {
		en_ledger_free(p->ledger);
		free(p);
		return r;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->sync_lock, NULL);
	*ret = p;
	return 0;
}

void en_plugin_free(struct en_plugin *p)
{
	if (p == NULL)
		return;
	en_plugin_connected(p);
	plugin_waiting_free(p);
	plugin_node_release(p->node);
	en_ledger_free(p->ledger);
	pthread_mutex_destroy(&p->sync_lock);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* ---- words ---- */

void plugin_fail(struct en_nri_reply *ret, enum en_ttrpc_code code, const char *text)
{
	ret->code = code;
	snprintf(ret->text, sizeof(ret->text), "%s", text);
}

static void report(struct en_plugin *p, const struct en_report *r)
{
	enum log_level level = r->kind == EN_REPORT_CHANGED ? LOG_LEVEL_INFO : LOG_LEVEL_WARN;
	char text[ERR_MSG_CAP], pod[320], container[80];
	char name[320];

	snprintf(name, sizeof(name), "%.63s/%.253s", r->ns, r->pod);
	log_event(p->o.log, level, en_report_name(r->kind),
		  "pod=%s uid=%.64s container=%s id=%.128s reason=%s",
		  log_quote(name, pod, sizeof(pod)), r->pod_uid,
		  log_quote(r->container, container, sizeof(container)), r->id,
		  log_quote(r->text, text, sizeof(text)));
	pthread_mutex_lock(&p->lock);
	p->stats.refused += r->kind == EN_REPORT_REFUSED;
	p->stats.let_go += r->kind == EN_REPORT_LET_GO;
	p->stats.slipped += r->kind == EN_REPORT_SLIPPED;
	p->stats.repaired += r->kind == EN_REPORT_REPAIRED;
	p->stats.limit_errors += r->kind == EN_REPORT_LIMITS;
	pthread_mutex_unlock(&p->lock);
	if (p->agent.report != NULL)
		p->agent.report(p->agent.ctx, r);
}

void plugin_report(struct en_plugin *p, enum en_report_kind kind, const struct st_pod_spec *pod,
		   const char *id, const char *container, const char *text)
{
	report(p, &(struct en_report){.kind = kind,
				      .id = id,
				      .pod_uid = pod->uid,
				      .ns = pod->ns,
				      .pod = pod->name,
				      .container = container,
				      .text = text});
}

void plugin_report_slipped(struct en_plugin *p, const struct st_pod_spec *pod,
			   const struct en_nri_container *c, const char *text)
{
	bool runs = c->state == EN_NRI_RUNNING || c->state == EN_NRI_PAUSED;

	report(p, &(struct en_report){.kind = EN_REPORT_SLIPPED,
				      .id = c->id,
				      .pod_uid = pod->uid,
				      .ns = pod->ns,
				      .pod = pod->name,
				      .container = c->seen.name,
				      .text = text,
				      .pid = runs ? c->pid : 0});
}

void plugin_report_holding(struct en_plugin *p, enum en_report_kind kind,
			   const struct en_holding *h, const char *text)
{
	report(p, &(struct en_report){.kind = kind,
				      .id = h->id,
				      .pod_uid = h->pod_uid,
				      .ns = h->ns,
				      .pod = h->pod,
				      .container = h->container,
				      .text = text});
}

/* ---- plans ---- */

int plugin_plan(struct en_plugin *p, struct plugin_node *n, struct en_ledger *l,
		const struct st_pod_spec *pod, const char *container, bool exists,
		struct en_plan *ret, struct err *err)
{
	static const struct en_node nothing = {.name = "-"};
	struct en_node node;
	int r;

	if (plugin_node_known(n)) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a known node is one */
		en_ledger_use(l, pod->uid, &n->node);
		node = n->node;
		node.mps_ready |= exists;
		return en_plan_make(&node, pod, container, &p->o.apply, ret, err);
	}
	r = en_plan_make(&nothing, pod, container, &p->o.apply, ret, err);
	if (r == 0 && ret->why[0] != '\0')
		snprintf(
			ret->why, sizeof(ret->why),
			"container \"%.63s\" of pod %.63s/%.253s: the GPUs of this node are not known "
			"yet",
			container, pod->ns, pod->name);
	return r;
}

void plugin_holding(const struct plugin_node *n, const struct en_plan *plan,
		    const struct st_pod_spec *pod, const struct en_nri_container *c,
		    struct en_holding *ret)
{
	*ret = (struct en_holding){
		.id = c->id,
		.pod_id = c->pod_id,
		.pod_uid = pod->uid,
		.ns = pod->ns,
		.pod = pod->name,
		.container = c->seen.name,
		.grant = plan->grant,
		.by_cgroup = plan->by_cgroup,
		.own_namespace = plan->own_namespace,
		.percent = plan->percent,
		.pid = c->state == EN_NRI_RUNNING || c->state == EN_NRI_PAUSED ? c->pid : 0,
	};
	memcpy(ret->pipe_source, plan->pipe_source, sizeof(ret->pipe_source));
	for (int i = 0; i < plan->grant.count; i++)
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a share is of a known node */
		memcpy(ret->gpus[i], n->node.gpus[plan->grant.gpu[i]].uuid, EN_UUID_CAP);
}

int plugin_check_container(struct en_plugin *p, const struct plugin_node *n, struct en_plan *plan,
			   const struct en_nri_container *c, struct err *err)
{
	const char *root = p->o.apply.pipe_root != NULL ? p->o.apply.pipe_root : "/run/nvidia-mps";
	struct en_adjust a;
	int r;

	for (size_t i = 0; plan->own_namespace && i < c->seen.mount_count; i++) {
		const struct en_mount_seen *m = &c->seen.mounts[i];

		if (strcmp(m->target, plan->pipe_target) == 0 &&
		    strncmp(m->source, root, strlen(root)) == 0 &&
		    strlen(m->source) < sizeof(plan->pipe_source))
			memcpy(plan->pipe_source, m->source, strlen(m->source) + 1);
	}
	r = en_adjust_make(&n->node, plan, &c->seen, &p->o.apply, &a, err);
	if (r != 0)
		return r;
	r = en_adjust_check_container(&a, &c->seen, err);
	en_adjust_fini(&a);
	return r;
}

/* ---- CreateContainer ---- */

static void refuse(struct en_plugin *p, const struct en_nri_request *r, const char *why,
		   struct en_nri_reply *ret)
{
	plugin_report(p, EN_REPORT_REFUSED, &r->pods[0].spec, r->containers[0].id,
		      r->containers[0].seen.name, why);
	plugin_fail(ret, EN_TTRPC_FAILED_PRECONDITION, why);
}

static int make_namespace(struct en_plugin *p, struct en_plan *plan, struct en_holding *h,
			  struct err *err)
{
	const char *gpus[ST_GPUS_MAX];
	int r;

	if (p->agent.namespace_make == NULL)
		return err_set(err, ERR_CONFLICT,
			       "a compute share needs an MPS namespace, which nobody makes here");
	for (int i = 0; i < h->grant.count; i++)
		gpus[i] = h->gpus[i];
	r = p->agent.namespace_make(p->agent.ctx, h->id, plan->percent, h->grant.count, gpus,
				    plan->pipe_source, err);
	if (r == 0)
		memcpy(h->pipe_source, plan->pipe_source, sizeof(h->pipe_source));
	return r;
}

static void count(struct en_plugin *p, enum en_verdict v)
{
	pthread_mutex_lock(&p->lock);
	p->stats.given += v == EN_GIVE;
	p->stats.hidden += v == EN_HIDE;
	p->stats.left += v == EN_LEAVE;
	pthread_mutex_unlock(&p->lock);
}

/* The instances of a MIG grant are made where somebody does that; the node is another one then. */
static int make_instances(struct en_plugin *p, struct plugin_node **n, const struct en_plan *plan,
			  const struct en_holding *h, struct err *err)
{
	int rc;

	if (plan->grant.kind != ST_KIND_MIG || p->agent.instances_make == NULL)
		return 0;
	rc = p->agent.instances_make(p->agent.ctx, h, err);
	plugin_node_put(p, *n);
	*n = plugin_node_get(p);
	for (int i = 0; rc == 0 && i < plan->grant.count; i++) {
		size_t at = plan->grant.gpu[i];

		if (at >= (*n)->node.gpu_count || strcmp((*n)->node.gpus[at].uuid, h->gpus[i]) != 0)
			rc = err_set(err, ERR_CONFLICT, "the GPUs of the node have just changed");
	}
	return rc;
}

/* What was made for a container that there will not be, or is no more. */
static void unmake(struct en_plugin *p, const struct en_holding *h)
{
	if (h->own_namespace && p->agent.namespace_drop != NULL)
		p->agent.namespace_drop(p->agent.ctx, h->id);
	if (h->grant.kind == ST_KIND_MIG && p->agent.instances_drop != NULL)
		p->agent.instances_drop(p->agent.ctx, h);
}

/* Carries out a plan: namespace or instances, row, adjustment. 0, or the reason why not. */
static int carry_out(struct en_plugin *p, struct plugin_node **n, struct en_plan *plan,
		     const struct en_nri_request *r, struct en_adjust *ret, struct err *err)
{
	struct en_adjust a = {0};
	struct en_holding h;
	int rc = 0;

	if (plan->verdict == EN_GIVE) {
		plugin_holding(*n, plan, &r->pods[0].spec, &r->containers[0], &h);
		if (plan->own_namespace)
			rc = make_namespace(p, plan, &h, err);
		if (rc == 0)
			rc = make_instances(p, n, plan, &h, err);
	}
	if (rc == 0)
		rc = en_adjust_make(&(*n)->node, plan, &r->containers[0].seen, &p->o.apply, &a,
				    err);
	if (rc == 0 && plan->verdict == EN_GIVE) {
		pthread_mutex_lock(&p->lock);
		rc = en_ledger_put(p->ledger, &h, err);
		pthread_mutex_unlock(&p->lock);
	}
	if (rc == 0) {
		*ret = a;
		return 0;
	}
	en_adjust_fini(&a);
	if (plan->verdict == EN_GIVE)
		unmake(p, &h);
	return rc;
}

static void create(struct en_plugin *p, const struct en_nri_request *r, struct en_nri_reply *ret)
{
	const struct st_pod_spec *pod = &r->pods[0].spec;
	const struct en_nri_container *c = &r->containers[0];
	struct plugin_node *n = plugin_node_get(p);
	struct err err = ERR_INIT;
	struct en_plan plan;
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = plugin_plan(p, n, p->ledger, pod, c->seen.name, false, &plan, &err);
	pthread_mutex_unlock(&p->lock);
	if (rc != 0) {
		refuse(p, r, err.msg, ret);
	} else if (plan.verdict == EN_REFUSE) {
		refuse(p, r, plan.why, ret);
	} else {
		if (plan.why[0] != '\0')
			plugin_report(p, EN_REPORT_LET_GO, pod, c->id, c->seen.name, plan.why);
		if (plan.verdict != EN_LEAVE)
			rc = carry_out(p, &n, &plan, r, &ret->adjust, &err);
		if (rc == 0) {
			count(p, plan.verdict);
		} else {
			err_prefix(&err, rc, "container \"%.63s\" of pod %.63s/%.253s",
				   c->seen.name, pod->ns, pod->name);
			refuse(p, r, err.msg, ret);
		}
	}
	plugin_node_put(p, n);
}

void en_plugin_undo(struct en_plugin *p, const char *container_id)
{
	struct en_holding *h = NULL;
	const struct en_holding *row;

	pthread_mutex_lock(&p->lock);
	row = en_ledger_find(p->ledger, container_id);
	if (row != NULL) {
		h = en_holding_dup(row); /* without memory: a sweep finds what is left */
		en_ledger_drop(p->ledger, container_id);
	}
	pthread_mutex_unlock(&p->lock);
	if (h != NULL) {
		plugin_limits_clear(p, h);
		unmake(p, h);
	}
	en_holding_free(h);
}

/* ---- ValidateContainerAdjustment ---- */

/* A plan as it was when the container was prepared. */
static int plan_again(struct en_plugin *p, struct plugin_node *n, const struct en_nri_request *r,
		      struct en_plan *ret, struct err *err)
{
	const struct en_holding *h;
	int rc;

	pthread_mutex_lock(&p->lock);
	rc = plugin_plan(p, n, p->ledger, &r->pods[0].spec, r->containers[0].seen.name, false, ret,
			 err);
	if (rc == 0 && ret->verdict == EN_GIVE) {
		h = en_ledger_find(p->ledger, r->containers[0].id);
		if (h == NULL)
			rc = err_set(err, ERR_CONFLICT,
				     "the container was not prepared: the plugin did not answer in "
				     "time");
		else
			memcpy(ret->pipe_source, h->pipe_source, sizeof(ret->pipe_source));
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static void validate(struct en_plugin *p, const struct en_nri_request *r, struct en_nri_reply *ret)
{
	const struct en_nri_container *c = &r->containers[0];
	struct plugin_node *n = plugin_node_get(p);
	struct err err = ERR_INIT;
	struct en_adjust a = {0};
	struct en_plan plan;
	int rc;

	rc = plan_again(p, n, r, &plan, &err);
	if (rc == 0 && plan.verdict == EN_REFUSE)
		rc = err_set(&err, ERR_CONFLICT, "%s", plan.why);
	if (rc == 0 && plan.verdict != EN_LEAVE)
		rc = en_adjust_make(&n->node, &plan, &c->seen, &p->o.apply, &a, &err);
	if (rc == 0)
		rc = en_adjust_check_merged(&a, &r->merged, &err);
	en_adjust_fini(&a);
	plugin_node_put(p, n);
	if (rc == 0)
		return;
	ret->reject = !p->o.apply.fail_open;
	snprintf(ret->text, sizeof(ret->text), "%s", err.msg);
	plugin_report(p, ret->reject ? EN_REPORT_REFUSED : EN_REPORT_LET_GO, &r->pods[0].spec,
		      c->id, c->seen.name, err.msg);
	pthread_mutex_lock(&p->lock);
	p->stats.rejected += ret->reject;
	pthread_mutex_unlock(&p->lock);
}

/* ---- calls ---- */

static void remove_container(struct en_plugin *p, const struct en_nri_request *r)
{
	en_plugin_undo(p, r->containers[0].id); /* the same: row and namespace go */
}

void en_plugin_handle(struct en_plugin *p, struct en_nri_request *take_r, struct en_nri_reply *ret)
{
	struct err err = ERR_INIT;

	*ret = (struct en_nri_reply){.code = EN_TTRPC_OK};
	if (plugin_allocate(p, take_r, &err) != 0) {
		if (take_r->method == EN_NRI_SYNCHRONIZE)
			en_plugin_connected(p); /* parts of it are worth nothing any more */
		en_nri_request_free(take_r);
		plugin_fail(ret, EN_TTRPC_RESOURCE_EXHAUSTED, err.msg);
		return;
	}
	switch (take_r->method) {
	case EN_NRI_SYNCHRONIZE:
		plugin_synchronize(p, take_r, ret);
		return;
	case EN_NRI_CREATE:
		create(p, take_r, ret);
		break;
	case EN_NRI_START:
		plugin_start(p, take_r, ret);
		break;
	case EN_NRI_STOP:
		plugin_waiting_gone(p, take_r->containers[0].id);
		plugin_stop(p, take_r);
		break;
	case EN_NRI_REMOVE:
		plugin_waiting_gone(p, take_r->containers[0].id);
		remove_container(p, take_r);
		break;
	case EN_NRI_VALIDATE:
		validate(p, take_r, ret);
		break;
	default:
		break;
	}
	en_nri_request_free(take_r);
}

/* ---- figures ---- */

void en_plugin_get_stats(struct en_plugin *p, struct en_plugin_stats *ret)
{
	pthread_mutex_lock(&p->lock);
	*ret = p->stats;
	ret->holdings = en_ledger_count(p->ledger);
	pthread_mutex_unlock(&p->lock);
}

struct en_holding **plugin_rows(struct en_plugin *p, size_t *ret_count)
{
	struct en_holding **rows, *h = NULL;
	size_t n = 0;

	pthread_mutex_lock(&p->lock);
	rows = calloc(en_ledger_count(p->ledger) + 1, sizeof(struct en_holding *));
	while (rows != NULL && (h = en_ledger_next(p->ledger, h)) != NULL) {
		rows[n] = en_holding_dup(h);
		n += rows[n] != NULL;
	}
	pthread_mutex_unlock(&p->lock);
	*ret_count = n;
	return rows;
}

void en_plugin_each(struct en_plugin *p, void (*fn)(void *ctx, const struct en_holding *h),
		    void *ctx)
{
	size_t count_of_rows;
	struct en_holding **rows = plugin_rows(p, &count_of_rows);

	for (size_t i = 0; i < count_of_rows; i++) {
		fn(ctx, rows[i]);
		en_holding_free(rows[i]);
	}
	free(rows);
}

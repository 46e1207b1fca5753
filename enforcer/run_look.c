/* What the loop does again and again: look at the hardware and the parts, tell the plugin, publish,
 * measure, check. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "enforcer/run_internal.h"

#define HOLDINGS_MAX 4096

/* ---- MPS ---- */

/* Whole GPUs that MPS may use, joined by ','; NULL: all, or no memory (as before then). */
static char *mps_devices(const struct en_probe *p)
{
	struct buf b = BUF_INIT;
	bool mig = false;

	for (size_t i = 0; i < p->gpu_count; i++) {
		mig |= p->gpus[i].mig_enabled;
		if (!p->gpus[i].mig_enabled)
			buf_printf(&b, "%s%s", b.len > 0 ? "," : "", p->gpus[i].uuid);
	}
	if (mig && b.len > 0)
		return buf_take(&b);
	buf_fini(&b);
	return NULL;
}

bool run_wants_mps(const struct en_probe *p)
{
	for (size_t i = 0; i < p->gpu_count; i++) {
		if (!p->gpus[i].mig_enabled)
			return true;
	}
	return false;
}

static void tell_mps(struct agent *a)
{
	const struct en_probe *p = a->probe;
	char *devices;

	if (a->mps == NULL || a->let_go)
		return;
	if (p->driver_ok && run_wants_mps(p)) {
		devices = mps_devices(p);
		(void)en_mps_configure(a->mps, (p->features & EN_FEATURE_MPS_V3) == 0, devices,
				       NULL); /* without memory: next time */
		free(devices);
	}
	en_mps_want(a->mps, p->driver_ok && run_wants_mps(p));
}

static void mps_status(struct agent *a, const struct en_probe *p, struct en_mps_status *ret)
{
	if (a->mps != NULL)
		en_mps_get_status(a->mps, ret);
	else
		*ret = (struct en_mps_status){.usable = true,
					      .legacy = (p->features & EN_FEATURE_MPS_V3) == 0};
	if (a->let_go && ret->usable) {
		ret->usable = false;
		ret->reason = "MpsNotReady";
		snprintf(ret->why, sizeof(ret->why), "the driver is being exchanged");
	}
}

/* Its processes met the old daemon: what they have open is gone. */
static void tell_restarted(void *ctx, const struct en_holding *h)
{
	struct agent *a = ctx;

	if (a->events == NULL || h->stopped || h->pid == 0 || h->pipe_source[0] == '\0')
		return;
	ku_event_post(a->events,
		      &(struct ku_event){.type = KU_EVENT_WARNING,
					 .kind = "Pod",
					 .ns = h->ns,
					 .name = h->pod,
					 .uid = h->pod_uid,
					 .reason = "MpsRestarted",
					 .message = "The MPS daemon of this node was started anew: "
						    "processes that used the GPU before get CUDA "
						    "errors until they are restarted"});
}

static void mps_news(struct agent *a, const struct en_mps_status *s)
{
	char quoted[ERR_MSG_CAP];

	if (a->mps == NULL)
		return;
	if (a->mps_generation != 0 && s->generation > a->mps_generation) {
		log_event(a->log, LOG_LEVEL_WARN, "mps-restarted", "generation=%llu",
			  (unsigned long long)s->generation);
		en_plugin_each(a->plugin, tell_restarted, a);
	}
	if (s->generation != 0)
		a->mps_generation = s->generation;
	if (a->mps_was_usable && !s->usable) {
		log_event(a->log, LOG_LEVEL_WARN, "mps-not-usable", "reason=%s",
			  log_quote(s->why, quoted, sizeof(quoted)));
		run_node_event(a, KU_EVENT_WARNING, s->reason != NULL ? s->reason : "MpsNotReady",
			       s->why);
		a->mps_told = true;
	} else if (s->usable && a->mps_told) {
		run_node_event(a, KU_EVENT_NORMAL, "MpsReady", "The MPS daemon answers again");
		a->mps_told = false;
	}
	a->check_again |= a->mps_was_usable != s->usable;
	a->mps_was_usable = s->usable;
}

/* ---- the plugin and the node object ---- */

int run_tell_plugin(struct agent *a, const struct en_probe *p, struct err *err)
{
	struct en_mps_status mps;
	struct en_node_gpu gpus[ST_GPUS_MAX];
	struct en_node node = {
		.name = a->o.node,
		.gpus = gpus,
		.mps_ready = false,
		.memory_limits =
			(p->features & EN_FEATURE_MEMORY_LIMITS) != 0 && a->cgroup_mount[0] != '\0',
	};

	mps_status(a, p, &mps);
	node.mps_ready = mps.usable;
	node.mps_why = mps.why;
	node.mps_v3 = !mps.legacy;
	en_probe_to_node(p, gpus, &node.gpu_count);
	return en_plugin_set_node(a->plugin, &node, err);
}

static void swap_probe(struct agent *a)
{
	struct en_probe *old;

	pthread_mutex_lock(&a->lock);
	old = a->probe;
	a->probe = a->spare;
	pthread_mutex_unlock(&a->lock);
	a->spare = old;
}

/* Instances that were made since the probe was taken. Marking waits for whoever makes one now: not with the lock
 * that HTTP needs. */
static void mark_made(struct agent *a)
{
	if (a->mig == NULL)
		return;
	memcpy(a->spare, a->probe, sizeof(*a->spare));
	run_mig_mark(a, a->spare);
	swap_probe(a);
}

static void tell_plugin(struct agent *a)
{
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;

	mark_made(a);
	if (run_tell_plugin(a, a->probe, &err) != 0)
		log_event(a->log, LOG_LEVEL_ERROR, "node", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

static bool named(const char *list, const char *name)
{
	size_t n = strlen(name);

	while (*list != '\0') {
		size_t len = strcspn(list, ",");

		if (len == n && memcmp(list, name, n) == 0)
			return true;
		list += len + (list[len] == ',');
	}
	return false;
}

/* The first check that failed and counts; NULL: none. Only this thread replaces the report. */
static const struct en_finding *gate(const struct agent *a)
{
	for (size_t i = 0; i < a->report->count; i++) {
		const struct en_finding *f = &a->report->findings[i];

		if (f->gates && f->result == EN_CHECK_FAIL && !named(a->o.no_gate, f->name))
			return f;
	}
	return NULL;
}

void run_publish(struct agent *a, bool ending)
{
	const struct en_finding *failed = gate(a);
	struct en_nri_figures nri = {.why = "the agent starts"};
	struct en_condition condition;
	struct en_mps_status mps;
	struct en_readiness r;
	char why[EN_FINDING_CAP + 40], *inventory = NULL;

	mps_status(a, a->probe, &mps);
	if (a->nri != NULL)
		en_nri_get_figures(a->nri, &nri);
	r = (struct en_readiness){
		.stopping = ending,
		.driver_upgrade = a->upgrading,
		.nri_ready = nri.synchronized,
		.nri_why = nri.why[0] != '\0'
				   ? nri.why
				   : "the container runtime has not told yet what runs here",
		.mps_wanted = run_wants_mps(a->probe),
		.mps_ready = mps.usable,
		.mps_v3 = !mps.legacy,
		.mps_reason = mps.reason,
		.mps_why = mps.why,
		.limits_ready = a->cgroup_mount[0] != '\0',
		.limits_why = "cgroup v2 is not mounted",
		.doctor_failed = failed != NULL,
		.doctor_why = why,
	};
	if (failed != NULL)
		snprintf(why, sizeof(why), "%s: %s", failed->name, failed->text);
	en_condition_make(a->probe, &r, &condition);
	pthread_mutex_lock(&a->lock);
	a->condition = condition;
	pthread_mutex_unlock(&a->lock);
	if (a->publisher == NULL)
		return;
	(void)en_inventory_encode(a->probe, &inventory, NULL); /* without a driver: as it was */
	(void)en_publisher_put(a->publisher, inventory, &condition, NULL);
	free(inventory);
	(void)en_publisher_tick(a->publisher);
}

/* ---- looking ---- */

/* A driver that was loaded anew knows no limits, and ours are of the old one. */
static void driver_news(struct agent *a)
{
	const struct en_probe *p = a->probe;
	bool first = a->driver_seen[0] == '\0';

	if (p->driver_ok && !first &&
	    (!a->driver_was_ok || strcmp(a->driver_seen, p->driver) != 0)) {
		log_event(a->log, LOG_LEVEL_WARN, "driver-loaded", "version=%s before=%s",
			  p->driver, a->driver_seen);
		en_limits_close(a->limits);
		a->limits_lost = true;
	}
	if (p->driver_ok)
		memcpy(a->driver_seen, p->driver, sizeof(a->driver_seen));
	a->driver_was_ok = p->driver_ok;
}

static void take_probe(struct agent *a)
{
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;
	uint64_t made = 0;

	if (a->mig != NULL)
		made = en_mig_made(a->mig);
	if (en_prober_run(a->prober, a->spare, &err) != 0) {
		log_event(a->log, LOG_LEVEL_ERROR, "probe", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
		return;
	}
	a->spare->mig_made = made;
	run_mig_mark(a, a->spare);
	swap_probe(a);
	driver_news(a);
}

void run_look(struct agent *a, bool probe)
{
	struct en_mps_status mps;

	if (probe && !a->let_go) {
		take_probe(a);
		tell_mps(a);
	}
	mps_status(a, a->probe, &mps);
	mps_news(a, &mps);
	tell_plugin(a);
	run_publish(a, false);
}

/* ---- copies of the plugin's rows ---- */

struct rows {
	size_t count;
	struct en_holding *at[HOLDINGS_MAX];
};

static void copy_row(void *ctx, const struct en_holding *h)
{
	struct rows *r = ctx;

	if (r->count < HOLDINGS_MAX && (r->at[r->count] = en_holding_dup(h)) != NULL)
		r->count++;
}

static struct rows *rows_get(struct agent *a)
{
	struct rows *r = calloc(1, sizeof(*r));

	if (r != NULL)
		en_plugin_each(a->plugin, copy_row, r);
	return r;
}

static void rows_free(struct rows *r)
{
	for (size_t i = 0; r != NULL && i < r->count; i++)
		en_holding_free(r->at[i]);
	free(r);
}

/* ---- measuring ---- */

/* The most of a container over its GPUs; only at its first row. */
static bool container_peak(const struct en_measured *rows, size_t count, size_t at,
			   int64_t *ret_mib, int *ret_sm)
{
	*ret_mib = -1;
	*ret_sm = -1;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(rows[i].id, rows[at].id) != 0)
			continue;
		if (i < at)
			return false;
		*ret_mib = rows[i].used_mib > *ret_mib ? rows[i].used_mib : *ret_mib;
		*ret_sm = rows[i].sm_percent > *ret_sm ? rows[i].sm_percent : *ret_sm;
	}
	return *ret_mib >= 0 || *ret_sm >= 0;
}

static void keep_peaks(struct agent *a, int64_t wall_s)
{
	struct en_measured *rows = NULL;
	size_t count = 0;

	if (en_measurer_rows(a->measurer, &rows, &count, NULL) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct en_usage_sample s = {.ns = rows[i].ns,
					    .kind = "Pod",
					    .owner = rows[i].pod,
					    .container = rows[i].container,
					    .request_mib = rows[i].request_mib,
					    .limit_mib = rows[i].limit_mib,
					    .wall_s = wall_s};
		struct en_pod *pod = NULL;

		if (!container_peak(rows, count, i, &s.used_mib, &s.sm_percent))
			continue;
		if (a->pods != NULL && en_pods_get(a->pods, rows[i].pod_uid, &pod, NULL) == 0 &&
		    pod != NULL) {
			s.kind = pod->owner_kind;
			s.owner = pod->owner;
		}
		(void)en_usage_put(a->usage, &s, NULL); /* without memory: the next sample */
		en_pod_free(pod);
	}
	free(rows);
}

void run_measure(struct agent *a)
{
	struct rows *r = rows_get(a);
	int64_t wall_s = run_wall_s();
	/* The other way to limits starts a program for each question. */
	bool by_cgroup = strcmp(en_limits_way_name(a->limits), "nvml") == 0;

	if (r == NULL)
		return;
	if (en_measurer_run(a->measurer, a->let_go ? NULL : en_prober_nvml(a->prober), a->probe,
			    (const struct en_holding *const *)r->at, r->count, by_cgroup, wall_s,
			    NULL) == 0)
		keep_peaks(a, wall_s);
	rows_free(r);
}

/* ---- the doctor ---- */

static size_t containers_of(const struct agent *a, const struct rows *r,
			    struct en_doctor_container *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < r->count; i++) {
		const struct en_holding *h = r->at[i];
		struct en_doctor_container *c = &ret[count];
		char cgroup[EN_CGROUP_CAP];

		if (h->stopped || h->pid == 0 || h->grant.kind != ST_KIND_SHARE ||
		    h->cgroup[0] == '\0' ||
		    en_cgroup_join(a->cgroup_mount, h->cgroup, cgroup, NULL) != 0 ||
		    strlen(cgroup) >= sizeof(c->cgroup))
			continue;
		memset(c, 0, sizeof(*c));
		snprintf(c->name, sizeof(c->name), "%.40s/%.50s/%.34s", h->ns, h->pod,
			 h->container);
		memcpy(c->cgroup, cgroup, strlen(cgroup) + 1);
		c->pid = h->pid;
		c->gpu_count = h->grant.count;
		memcpy(c->gpus, h->gpus, sizeof(c->gpus));
		c->soft_mib = h->grant.request_mib;
		c->hard_mib = h->grant.limit_mib;
		c->by_cgroup = h->by_cgroup;
		c->has_pipe = h->pipe_source[0] != '\0';
		count++;
	}
	return count;
}

void run_doctor(struct agent *a)
{
	struct rows *r = rows_get(a);
	struct en_doctor_report *report = calloc(1, sizeof(*report));
	struct en_doctor_container *containers =
		r != NULL ? calloc(r->count + 1, sizeof(*containers)) : NULL;
	struct en_doctor_env env = {
		.root = "",
		.probe = a->probe,
		.mps = a->mps,
		.in_agent = true,
		.limits = a->cgroup_mount[0] != '\0' ? en_limits_ops(a->limits) : NULL,
		.control = a->o.mps_control,
		.smi = a->o.smi,
		.pipe_dir = a->o.pipe_dir,
		.log_dir = a->o.mps_log_dir,
		.run_dir = a->mps_run_dir[0] != '\0' ? a->mps_run_dir : a->o.run_dir,
		.nri_socket = a->o.nri_socket,
		.kubelet_socket = a->o.kubelet_socket,
		.cgroup_mount = a->cgroup_mount,
		.containers = containers,
	};

	a->check_again = false;
	if (containers != NULL && report != NULL && !a->let_go) {
		env.container_count = containers_of(a, r, containers);
		en_doctor_run(&env, report);
		pthread_mutex_lock(&a->lock);
		memcpy(a->report, report, sizeof(*report));
		pthread_mutex_unlock(&a->lock);
	}
	free(containers);
	free(report);
	rows_free(r);
}

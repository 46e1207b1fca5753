/* What the plugin and the prober want from the rest of the agent, and what becomes of their reports. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/run_internal.h"

#define DRAIN_MS 1000 /* StopContainer is waited for that long */
#define PROCS_MAX ((size_t)4 << 20)

/* ---- MPS ---- */

static int mps_missing(const struct agent *a, struct err *err)
{
	return a->mps != NULL
		       ? 0
		       : err_set(err, ERR_CONFLICT, "MPS is not run by Tessera on this node");
}

static int namespace_make(void *ctx, const char *id, int percent, size_t gpu_count,
			  const char *const *gpus, char ret_dir[EN_PATH_CAP], struct err *err)
{
	struct agent *a = ctx;
	int rc = mps_missing(a, err);

	(void)gpu_count;
	(void)gpus;
	return rc < 0 ? rc : en_mps_namespace_make(a->mps, id, percent, ret_dir, err);
}

static int namespace_keep(void *ctx, const char *id, int percent, size_t gpu_count,
			  const char *const *gpus, char ret_dir[EN_PATH_CAP], struct err *err)
{
	struct agent *a = ctx;
	int rc = mps_missing(a, err);

	(void)gpu_count;
	(void)gpus;
	return rc < 0 ? rc : en_mps_namespace_keep(a->mps, id, percent, ret_dir, err);
}

static void namespace_drop(void *ctx, const char *id)
{
	struct agent *a = ctx;

	if (a->mps != NULL)
		en_mps_namespace_drop(a->mps, id);
}

/* The processes in a cgroup; *ret is the caller's. */
static int pids_of(const char *cgroup, uint32_t **ret, size_t *ret_count, struct err *err)
{
	char path[EN_CGROUP_CAP + 16], *text, *at, *line;
	size_t len, count = 0;
	uint32_t *pids;
	int r;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	r = file_read(path, PROCS_MAX, &text, &len, err);
	if (r != 0)
		return r;
	pids = calloc(len / 2 + 1, sizeof(*pids)); /* a digit and a new line */
	at = text;
	while (pids != NULL && (line = strsep(&at, "\n")) != NULL) {
		unsigned long pid = strtoul(line, NULL, 10);

		if (pid > 0 && pid <= INT32_MAX)
			pids[count++] = (uint32_t)pid;
	}
	free(text);
	if (pids == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	*ret = pids;
	*ret_count = count;
	return 0;
}

/* A client that is killed in the middle of a kernel takes its neighbours along. */
static void drain(struct agent *a, const char *id, const char *cgroup)
{
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;
	uint32_t *pids = NULL;
	size_t count = 0;
	int r;

	if (a->mps == NULL)
		return;
	r = pids_of(cgroup, &pids, &count, &err);
	if (r == 0 && count > 0)
		r = en_mps_drain(a->mps, pids, count, DRAIN_MS, &err);
	free(pids);
	if (r != 0 && access(cgroup, F_OK) == 0)
		log_event(a->log, LOG_LEVEL_WARN, "mps-drain", "id=%s reason=%s", id,
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

void run_drain(struct agent *a, const struct en_holding *h)
{
	char cgroup[EN_CGROUP_CAP];

	if (a->mps != NULL && h->grant.kind == ST_KIND_SHARE && h->cgroup[0] != '\0' &&
	    en_cgroup_join(a->cgroup_mount, h->cgroup, cgroup, NULL) == 0)
		drain(a, h->id, cgroup);
}

/* Of use where a runtime tells before it kills. */
static void stopping(void *ctx, const struct en_holding *h)
{
	run_drain(ctx, h);
}

/* ---- ends ---- */

/* Told by the runtime, too, but maybe when the cgroup is gone. */
void run_on_exit(void *ctx, const char *id)
{
	en_plugin_exited(((struct agent *)ctx)->plugin, id);
}

static void running(void *ctx, const struct en_holding *h)
{
	const struct agent *a = ctx;
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;
	int rc = en_exits_watch(a->exits, h->id, h->pid, &err);

	if (rc == ERR_NOT_FOUND)
		en_plugin_exited(a->plugin, h->id);
	else if (rc != 0)
		log_event(a->log, LOG_LEVEL_WARN, "exit-watch", "id=%s reason=%s", h->id,
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

/* ---- whose is it? ---- */

/* Until the runtime has told what runs here, a pod's process is taken for one of ours: the inventory would
 * show the GPU as held by somebody else for a moment otherwise. */
static bool in_a_pod(uint32_t pid)
{
	char path[64], *text;
	size_t len;
	bool ret;

	snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
	if (file_read(path, PROCS_MAX, &text, &len, NULL) != 0)
		return false;
	ret = strstr(text, "kubepods") != NULL;
	free(text);
	return ret;
}

bool run_is_ours(void *ctx, uint32_t pid)
{
	const struct agent *a = ctx;

	return (a->mps != NULL && en_mps_owns(a->mps, pid)) ||
	       (a->plugin != NULL && en_plugin_owns(a->plugin, pid)) ||
	       (!a->ever_synchronized && in_a_pod(pid));
}

bool run_is_our_pod(void *ctx, const char *ns, const char *pod)
{
	const struct agent *a = ctx;

	return a->pods != NULL && en_pods_is_ours(a->pods, ns, pod);
}

static int allocation(void *ctx, const struct st_pod_spec *pod, struct st_annotations *ret,
		      struct err *err)
{
	struct agent *a = ctx;
	const struct st_annotations *from;
	int r = 0;

	pthread_mutex_lock(&a->lock);
	from = a->statics != NULL ? en_static_find(a->statics, pod->ns, pod->name) : NULL;
	if (from != NULL && from->count > 0) {
		ret->kv = calloc(from->count, sizeof(*ret->kv));
		ret->cap = ret->kv != NULL ? from->count : 0;
		for (size_t i = 0; r == 0 && ret->kv != NULL && i < from->count; i++) {
			ret->kv[i].key = strdup(from->kv[i].key);
			ret->kv[i].value = strdup(from->kv[i].value);
			ret->count++;
			if (ret->kv[i].key == NULL || ret->kv[i].value == NULL)
				r = ERR_NOMEM;
		}
		if (ret->kv == NULL)
			r = ERR_NOMEM;
	}
	pthread_mutex_unlock(&a->lock);
	return r != 0 ? err_set(err, r, "out of memory") : 0;
}

/* ---- reports ---- */

static const struct {
	const char *reason, *before;
	enum ku_event_type type;
} words[EN_REPORT_COUNT] = {
	[EN_REPORT_REFUSED] = {"GpuRefused", "Not started: ", KU_EVENT_WARNING},
	[EN_REPORT_LET_GO] = {"GpuUnguarded",
			      "Started as it is, for fail-open is set: ", KU_EVENT_WARNING},
	[EN_REPORT_SLIPPED] = {"GpuUnlimited",
			       "Runs without what it should have: ", KU_EVENT_WARNING},
	[EN_REPORT_REPAIRED] = {"GpuLimitsRepaired",
				"GPU memory limits were set again: ", KU_EVENT_WARNING},
	[EN_REPORT_LIMITS] = {"GpuLimitsFailed",
			      "GPU memory limits cannot be set: ", KU_EVENT_WARNING},
	[EN_REPORT_CHANGED] = {"GpuLimitsChanged",
			       "GPU memory request/limit changed: ", KU_EVENT_NORMAL},
};

static void stop_later(struct agent *a, const struct en_report *r)
{
	struct run_stop *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		log_event(a->log, LOG_LEVEL_ERROR, "stop-failed", "id=%s reason=%s", r->id,
			  "\"out of memory\"");
		return;
	}
	snprintf(s->id, sizeof(s->id), "%s", r->id);
	snprintf(s->name, sizeof(s->name), "%.63s/%.253s/%.63s", r->ns, r->pod, r->container);
	s->pid = r->pid;
	pthread_mutex_lock(&a->lock);
	s->next = a->stops;
	a->stops = s;
	pthread_mutex_unlock(&a->lock);
	run_wake(a);
}

static void report(void *ctx, const struct en_report *r)
{
	struct agent *a = ctx;
	char text[ERR_MSG_CAP + 64];

	atomic_fetch_add(&a->reports[r->kind], 1);
	if (r->kind == EN_REPORT_SLIPPED && a->o.stop_slipped && r->pid != 0)
		stop_later(a, r);
	if (a->events == NULL)
		return;
	snprintf(text, sizeof(text), "%s%s", words[r->kind].before, r->text);
	ku_event_post(a->events, &(struct ku_event){.type = words[r->kind].type,
						    .kind = "Pod",
						    .ns = r->ns,
						    .name = r->pod,
						    .uid = r->pod_uid,
						    .reason = words[r->kind].reason,
						    .message = text});
}

/* The kubelet's own events carry the node's name as its uid. */
void run_node_event(struct agent *a, enum ku_event_type type, const char *reason, const char *text)
{
	if (a->events != NULL)
		ku_event_post(a->events, &(struct ku_event){.type = type,
							    .kind = "Node",
							    .name = a->o.node,
							    .uid = a->o.node,
							    .reason = reason,
							    .message = text});
}

struct en_agent_ops run_agent_ops(struct agent *a)
{
	struct en_agent_ops ops = {
		.namespace_make = namespace_make,
		.namespace_keep = namespace_keep,
		.namespace_drop = namespace_drop,
		.stopping = stopping,
		.report = report,
		.running = running,
		.allocation = a->o.static_file[0] != '\0' ? allocation : NULL,
		.ctx = a,
	};

	run_mig_ops(&ops);
	return ops;
}

/* ---- containers that are stopped ---- */

/* The whole container at once, where the kernel can (5.14). */
static bool kill_cgroup(const char *cgroup)
{
	char path[EN_CGROUP_CAP + 16];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/cgroup.kill", cgroup);
	f = fopen(path, "we");
	ok = f != NULL && fputs("1", f) >= 0;
	if (f != NULL)
		ok = fclose(f) == 0 && ok;
	return ok;
}

/* Else each process. *ret_killed: those that were there, and were killed. ERR_IO: some may not be. */
static int kill_each(const char *cgroup, size_t *ret_killed, struct err *err)
{
	size_t count = 0, refused = 0;
	uint32_t *pids = NULL;
	int r = pids_of(cgroup, &pids, &count, err), why = 0;

	for (size_t i = 0; i < count; i++) {
		if (kill((pid_t)pids[i], SIGKILL) == 0) {
			++*ret_killed;
		} else if (errno != ESRCH) { /* which has ended by itself */
			why = errno;
			refused++;
		}
	}
	free(pids);
	return refused == 0 ? r
			    : err_set(err, ERR_IO, "%zu of %zu processes cannot be killed: %s",
				      refused, count, strerror(why));
}

/* *ret_killed: is there a process of it that was? None is where all ended by themselves. */
static int kill_all(const char *cgroup, bool *ret_killed, struct err *err)
{
	size_t killed = 0;
	int r = 0;

	*ret_killed = kill_cgroup(cgroup);
	if (*ret_killed)
		return 0;
	r = kill_each(cgroup, &killed, err);
	*ret_killed = killed > 0;
	return r != 0 && access(cgroup, F_OK) != 0 ? 0 : r;
}

static void stop_one(struct agent *a, const struct run_stop *s)
{
	char leaf[EN_CGROUP_CAP], dir[EN_CGROUP_CAP], quoted[ERR_MSG_CAP], name[ERR_MSG_CAP];
	struct err err = ERR_INIT;
	bool killed = false;
	int r;

	/* The process must still be that container's: numbers are given again. */
	r = en_cgroup_of(a->proc, s->pid, s->id, leaf, &err);
	if (r == 0)
		r = en_cgroup_join(a->cgroup_mount, leaf, dir, &err);
	if (r == ERR_NOT_FOUND)
		return;
	if (r == 0) {
		drain(a, s->id, dir);
		r = kill_all(dir, &killed, &err);
	}
	if (r != 0) {
		log_event(a->log, LOG_LEVEL_ERROR, "stop-failed", "container=%s reason=%s",
			  log_quote(s->name, name, sizeof(name)),
			  log_quote(err.msg, quoted, sizeof(quoted)));
		return;
	}
	if (!killed) /* it ended meanwhile */
		return;
	atomic_fetch_add(&a->stopped, 1);
	log_event(a->log, LOG_LEVEL_WARN, "stopped", "container=%s id=%s",
		  log_quote(s->name, name, sizeof(name)), s->id);
}

static struct run_stop *take_stops(struct agent *a)
{
	struct run_stop *list;

	pthread_mutex_lock(&a->lock);
	list = a->stops;
	a->stops = NULL;
	pthread_mutex_unlock(&a->lock);
	return list;
}

void run_stop_due(struct agent *a)
{
	struct run_stop *list = take_stops(a), *s;

	while ((s = list) != NULL) {
		list = s->next;
		stop_one(a, s);
		free(s);
	}
}

void run_stops_free(struct agent *a)
{
	struct run_stop *list = take_stops(a), *s;

	while ((s = list) != NULL) {
		list = s->next;
		free(s);
	}
}

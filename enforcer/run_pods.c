/* Pods as the API server (or the file) has them now, against what the plugin holds. By level, not by
 * event: whatever was missed is made good the next time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "enforcer/run_internal.h"

#define UIDS_MAX 4096

struct uids {
	size_t count, cap;
	char (*at)[3][256]; /* uid, namespace, name */
};

static void collect(void *ctx, const struct en_holding *h)
{
	struct uids *u = ctx;

	for (size_t i = 0; i < u->count; i++) {
		if (strcmp(u->at[i][0], h->pod_uid) == 0)
			return;
	}
	if (u->count == u->cap) {
		size_t cap = u->cap == 0 ? 64 : u->cap * 2;
		void *grown = cap <= UIDS_MAX ? reallocarray(u->at, cap, sizeof(u->at[0])) : NULL;

		if (grown == NULL)
			return; /* the next time */
		u->at = grown;
		u->cap = cap;
	}
	snprintf(u->at[u->count][0], sizeof(u->at[0][0]), "%s", h->pod_uid);
	snprintf(u->at[u->count][1], sizeof(u->at[0][1]), "%s", h->ns);
	snprintf(u->at[u->count++][2], sizeof(u->at[0][2]), "%s", h->pod);
}

/* ---- amounts that changed ---- */

/* Once for each reason: it is found again every minute. */
static bool said(struct agent *a, const struct st_pod_spec *pod, const char *why)
{
	uint64_t h = hash_str(why, hash_str(pod->uid, 0));

	for (size_t i = 0; i < RUN_SAID_MAX; i++) {
		if (a->said[i] == h)
			return true;
	}
	a->said[a->said_next++ % RUN_SAID_MAX] = h;
	return false;
}

static void refused(struct agent *a, const struct st_pod_spec *pod, const char *why)
{
	char quoted[ERR_MSG_CAP], text[ERR_MSG_CAP + 64];

	if (said(a, pod, why))
		return;
	atomic_fetch_add(&a->changes_refused, 1);
	log_event(a->log, LOG_LEVEL_WARN, "change-refused", "pod=%.63s/%.253s uid=%.64s reason=%s",
		  pod->ns, pod->name, pod->uid, log_quote(why, quoted, sizeof(quoted)));
	if (a->events == NULL)
		return;
	snprintf(text, sizeof(text), "The changed GPU allocation is not applied: %s", why);
	ku_event_post(a->events, &(struct ku_event){.type = KU_EVENT_WARNING,
						    .kind = "Pod",
						    .ns = pod->ns,
						    .name = pod->name,
						    .uid = pod->uid,
						    .reason = "GpuLimitChangeRefused",
						    .message = text});
}

static void apply_spec(struct agent *a, const struct st_pod_spec *pod)
{
	struct err err = ERR_INIT;

	if (pod->phase != ST_PHASE_SUCCEEDED && pod->phase != ST_PHASE_FAILED &&
	    en_plugin_pod_changed(a->plugin, pod, &err) != 0)
		refused(a, pod, err.msg);
}

static void apply_static(struct agent *a, const char *uid, const char *ns, const char *name)
{
	const struct en_agent_ops ops = run_agent_ops(a);
	struct st_annotations found = {0};
	struct st_pod_spec pod = {.uid = uid, .ns = ns, .name = name, .node = a->o.node};

	if (ops.allocation(a, &pod, &found, NULL) == 0 && found.count > 0) {
		pod.annotations = found.kv;
		pod.annotation_count = found.count;
		apply_spec(a, &pod);
	}
	st_annotations_fini(&found);
}

void run_pods_apply(struct agent *a)
{
	struct uids u = {0};
	struct en_plugin_stats stats;

	en_plugin_get_stats(a->plugin, &stats);
	a->given_seen = stats.given;
	if (a->pods == NULL && a->o.static_file[0] == '\0')
		return;
	en_plugin_each(a->plugin, collect, &u);
	for (size_t i = 0; i < u.count; i++) {
		struct en_pod *pod = NULL;

		if (a->pods == NULL) {
			apply_static(a, u.at[i][0], u.at[i][1], u.at[i][2]);
			continue;
		}
		if (en_pods_get(a->pods, u.at[i][0], &pod, NULL) != 0 || pod == NULL)
			continue;
		pod->spec.uid = u.at[i][0]; /* as the runtime knows it */
		if (pod->allocated)
			apply_spec(a, &pod->spec);
		en_pod_free(pod);
	}
	free(u.at);
}

/* ---- allocations of the file ---- */

static void static_refused(struct agent *a, const char *why)
{
	char quoted[ERR_MSG_CAP];

	log_event(a->log, LOG_LEVEL_WARN, "static-refused", "file=%s reason=%s", a->o.static_file,
		  log_quote(why, quoted, sizeof(quoted)));
}

/* Goes over the file; tells of what is impossible, where tell. Returns a hash of that. The file is read
 * again by this thread alone. */
static uint64_t static_round(struct agent *a, bool tell)
{
	uint64_t said = 0;
	size_t all = 0, bad = 0;

	for (size_t i = 0; i < en_static_count(a->statics); i++) {
		struct en_static_pod p;
		struct st_pod_spec pod = {.uid = "", .node = a->o.node};

		en_static_at(a->statics, i, &p);
		pod.ns = p.ns;
		pod.name = p.name;
		pod.annotations = p.annotations->kv;
		pod.annotation_count = p.annotations->count;
		for (size_t k = 0; k < p.container_count; k++) {
			char why[ERR_MSG_CAP];

			all++;
			if (en_plugin_judge(a->plugin, &pod, p.containers[k], why, NULL) != 0 ||
			    why[0] == '\0')
				continue;
			bad++;
			said = hash_str(why, said);
			if (tell)
				static_refused(a, why);
		}
	}
	atomic_store(&a->static_containers, all);
	atomic_store(&a->static_refused, bad);
	return said;
}

void run_static_check(struct agent *a)
{
	uint64_t said;

	if (a->statics == NULL)
		return;
	said = static_round(a, false);
	if (said != a->static_said && said != 0)
		(void)static_round(a, true);
	a->static_said = said;
}

/* ---- rows of pods that are gone ---- */

struct keep {
	size_t count, cap;
	char (*at)[64];
	bool failed;
};

static void keep(struct keep *k, const char *uid)
{
	if (k->count == k->cap) {
		size_t cap = k->cap == 0 ? 256 : k->cap * 2;
		void *grown = reallocarray(k->at, cap, sizeof(k->at[0]));

		if (grown == NULL) {
			k->failed = true;
			return;
		}
		k->at = grown;
		k->cap = cap;
	}
	snprintf(k->at[k->count++], sizeof(k->at[0]), "%.63s", uid);
}

static void keep_pod(void *ctx, const struct en_pod *pod)
{
	keep(ctx, pod->spec.uid);
	if (strcmp(pod->spec.uid, pod->runtime_uid) != 0)
		keep(ctx, pod->runtime_uid);
}

static bool has(const char (*list)[64], size_t count, const char *uid)
{
	for (size_t i = 0; i < count; i++) {
		if (strncmp(list[i], uid, sizeof(list[0]) - 1) == 0)
			return true;
	}
	return false;
}

/* The watch may be a little behind the kubelet: a pod that it does not know yet has until the next round. */
static void add_fresh(struct agent *a, const struct uids *u, struct keep *k)
{
	char suspects[RUN_SUSPECTS_MAX][64];
	size_t count = 0, known = k->count;

	for (size_t i = 0; i < u->count; i++) {
		const char *uid = u->at[i][0];

		if (has((const char(*)[64])k->at, known, uid))
			continue;
		if (has((const char(*)[64])a->suspects, a->suspect_count, uid))
			continue; /* for the second time: its rows go */
		keep(k, uid);
		if (count < RUN_SUSPECTS_MAX)
			snprintf(suspects[count++], sizeof(suspects[0]), "%.63s", uid);
	}
	memcpy(a->suspects, suspects, count * sizeof(suspects[0]));
	a->suspect_count = count;
}

void run_pods_sweep(struct agent *a)
{
	struct uids u = {0};
	struct keep k = {0};
	const char **list;

	if (a->pods == NULL || !en_pods_synced(a->pods))
		return;
	en_pods_each(a->pods, keep_pod, &k);
	en_plugin_each(a->plugin, collect, &u);
	add_fresh(a, &u, &k);
	list = calloc(k.count + 1, sizeof(*list));
	for (size_t i = 0; list != NULL && i < k.count; i++)
		list[i] = k.at[i];
	if (list != NULL && !k.failed)
		en_plugin_keep_pods(a->plugin, k.count, list);
	free(list);
	free(k.at);
	free(u.at);
}

/* ---- before the kill ---- */

struct drain {
	struct agent *a;
	int64_t until_ms;
};

static void drain_one(void *ctx, const struct en_holding *h)
{
	const struct drain *d = ctx;
	struct agent *a = d->a;
	struct en_pod *pod = NULL;
	size_t i = 0;

	if (h->stopped || h->pid == 0 || h->pipe_source[0] == '\0')
		return;
	while (i < RUN_DRAINED_MAX && strcmp(a->drained[i], h->id) != 0)
		i++;
	if (i < RUN_DRAINED_MAX || en_pods_get(a->pods, h->pod_uid, &pod, NULL) != 0)
		return;
	if (pod != NULL && pod->delete_ms != 0 && pod->delete_ms <= d->until_ms) {
		snprintf(a->drained[a->drained_next++ % RUN_DRAINED_MAX], sizeof(a->drained[0]),
			 "%s", h->id);
		run_drain(a, h);
	}
	en_pod_free(pod);
}

/* The runtime tells of a stop when the process has been killed already, too late for MPS. The API server
 * tells when a pod's grace ends: what still runs shortly before is drained. */
void run_drain_due(struct agent *a)
{
	struct drain d = {a, run_now_ms() + RUN_DRAIN_AHEAD_MS};
	int64_t first;

	if (a->pods == NULL || a->mps == NULL)
		return;
	first = en_pods_next_deletion(a->pods);
	if (first != 0 && first <= d.until_ms)
		en_plugin_each(a->plugin, drain_one, &d);
}

/* ---- the driver is about to be exchanged ---- */

/* Placement stops as soon as the operator has chosen the node. The driver is let go of when the module is
 * to be unloaded, or earlier where no container holds a GPU any more; and is used again afterwards. */
void run_upgrade_look(struct agent *a)
{
	struct en_plugin_stats stats;
	char state[64] = "";
	bool upgrading, let_go;

	if (a->pods == NULL)
		return;
	en_pods_upgrade_state(a->pods, state);
	en_plugin_get_stats(a->plugin, &stats);
	upgrading = state[0] != '\0' && strcmp(state, "upgrade-done") != 0;
	let_go = strcmp(state, "pod-restart-required") == 0 ||
		 (stats.holdings == 0 && (strcmp(state, "pod-deletion-required") == 0 ||
					  strcmp(state, "drain-required") == 0));
	if (upgrading != a->upgrading || let_go != a->let_go)
		log_event(a->log, LOG_LEVEL_INFO, "driver-upgrade", "state=%s driver=%s",
			  state[0] != '\0' ? state : "none", let_go ? "let-go" : "in-use");
	if (let_go && !a->let_go) {
		if (a->mps != NULL)
			en_mps_want(a->mps, false);
		en_prober_close(a->prober);
		en_limits_close(a->limits);
	}
	a->upgrading = upgrading;
	a->let_go = let_go;
}

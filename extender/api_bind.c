/* Binds on the API server, and the settling of those whose outcome is not known. A flight is worked on
 * by one at a time: the thread that began it, the callback of the call under way, or the worker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/api_internal.h"
#include "extender/metrics.h"

#define READ_MS 4000     /* for a pod that nobody waits for */
#define AGAIN_US 2000000 /* between two readings */
#define PAUSE_MIN_MS 50  /* before a POST is sent again */
#define PAUSE_MAX_MS 800
#define SPARE_US 200000 /* less than this left: not worth a POST */

/* The books follow the outcome. */
static void settle(struct ex_flight *f, int rc)
{
	struct err err = f->text;

	ex_service_settle(f->api->cfg.service, &f->op, rc, &err);
}

static void land_bound(struct ex_flight *f)
{
	struct err none = ERR_INIT;

	settle(f, 0);
	ex_flight_land(f, 0, &none);
}

static void land_failed(struct ex_flight *f, const char *what)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_CONFLICT, "pod %s/%s: %s", f->args.ns, f->args.name, what);
	settle(f, ERR_CONFLICT);
	ex_api_room_grew(f->api);
	ex_flight_land(f, ERR_CONFLICT, &err);
}

/* ---- reading ---- */

static void on_read(void *ctx, enum ku_pod_seen seen, const cJSON *obj, const char *text);

void ex_flight_read(struct ex_flight *f)
{
	struct ex_api *a = f->api;
	struct err err = ERR_INIT;
	bool awaited;
	int64_t left_ms = ex_flight_left_us(f, &awaited) / 1000;

	if (!awaited || left_ms > READ_MS)
		left_ms = READ_MS;
	if (left_ms < 100)
		left_ms = 100;
	if (ku_pod_get(a->client, f->args.ns, f->args.name, f->args.uid, left_ms, on_read, f,
		       &err) < 0)
		on_read(f, KU_POD_UNKNOWN, NULL, err.msg);
}

/* ---- posting ---- */

static void refused_event(struct ex_flight *f)
{
	char quoted[600], text[700];

	log_event(f->api->cfg.log, LOG_LEVEL_WARN, "bind-refused",
		  "pod=%s/%s uid=%s node=%s status=%d reason=%s", f->args.ns, f->args.name,
		  f->args.uid, f->args.node, f->api_status,
		  log_quote(f->text.msg, quoted, sizeof(quoted)));
	if (atomic_load(&f->api->stopping))
		return;
	snprintf(text, sizeof(text), "The API server refused to bind the pod to node %s: %s",
		 f->args.node, f->text.msg);
	ku_event_post(f->api->events, &(struct ku_event){.type = KU_EVENT_WARNING,
							 .kind = "Pod",
							 .ns = f->args.ns,
							 .name = f->args.name,
							 .uid = f->args.uid,
							 .reason = "BindRefused",
							 .message = text});
}

static void note_post(struct ex_flight *f, const struct ku_bind_result *res)
{
	struct ex_api *a = f->api;
	int64_t wait_us;

	pthread_mutex_lock(&a->lock);
	a->stats.posts_ok += res->outcome == KU_BIND_OK;
	a->stats.posts_refused += res->outcome == KU_BIND_REFUSED;
	a->stats.posts_unknown += res->outcome == KU_BIND_UNKNOWN;
	if (f->posts == 1 && res->queued_us >= 0) {
		wait_us = res->queued_us + f->spent_us;
		a->stats.post_wait_us_sum += (uint64_t)wait_us;
		a->stats.post_wait[ex_latency_bucket(wait_us * 1000)]++;
		if (wait_us > a->stats.post_wait_us_max)
			a->stats.post_wait_us_max = wait_us;
	}
	pthread_mutex_unlock(&a->lock);
}

static void on_posted(void *ctx, const struct ku_bind_result *res)
{
	struct ex_flight *f = ctx;

	note_post(f, res);
	if (res->outcome == KU_BIND_OK) {
		land_bound(f);
		return;
	}
	err_set(&f->text, 0, "%s", res->text);
	f->api_status = res->status;
	f->forgiving = res->outcome == KU_BIND_UNKNOWN || res->status == 0;
	if (res->outcome == KU_BIND_UNKNOWN && res->final_us > f->final_us)
		f->final_us = res->final_us;
	if (res->retry_after_ms > (int64_t)f->pause_ms)
		f->pause_ms = res->retry_after_ms < 60000 ? (unsigned)res->retry_after_ms : 60000;
	ex_flight_read(f);
}

void ex_flight_post(struct ex_flight *f)
{
	struct ex_api *a = f->api;
	bool awaited;
	int64_t now = ex_api_now_us(a), left_ms = ex_flight_left_us(f, &awaited) / 1000, most;
	struct ku_bind b = {
		.ns = f->args.ns,
		.name = f->args.name,
		.uid = f->args.uid,
		.node = f->args.node,
		.annotations = f->op.annotations.kv,
		.annotation_count = f->op.annotations.count,
		.present_bytes = f->present_bytes,
	};
	struct err err = ERR_INIT;

	if (f->posts == 0)
		f->spent_us = now - f->start_us;
	/* Time is kept back for reading what became of it. */
	b.deadline_ms = left_ms - left_ms / 4;
	most = ex_api_post_ms(a, f->term);
	if (b.deadline_ms > most)
		b.deadline_ms = most;
	f->posts++;
	if (b.deadline_ms <= 0) {
		f->posts--;
		err_set(&err, ERR_CONFLICT, "this replica does not lead any more");
	} else if (ku_bind_send(a->client, &b, on_posted, f, &err) == 0) {
		return;
	}
	/* Nothing was sent by this call; an earlier one may be under way yet. */
	f->text = err;
	if (f->final_us > now)
		ex_flight_leave_open(f, f->final_us);
	else
		land_failed(f, err.msg);
}

/* ---- what the pod says ---- */

/* Not bound, but it may become so: by a POST of ours that is under way yet, or by the next. */
static void still_unbound(struct ex_flight *f)
{
	int64_t now = ex_api_now_us(f->api), pause_us = (int64_t)f->pause_ms * 1000;
	bool awaited;
	int64_t left = ex_flight_left_us(f, &awaited);

	if (awaited && f->forgiving && pause_us + SPARE_US < left &&
	    ex_api_post_ms(f->api, f->term) > 0) {
		f->pause_ms = f->pause_ms * 3 < PAUSE_MAX_MS ? f->pause_ms * 3 : PAUSE_MAX_MS;
		ex_flight_rest(f, now + pause_us);
	} else if (f->final_us > now) {
		ex_flight_leave_open(f, f->final_us);
	} else {
		if (f->api_status >= 400 && f->api_status < 500 && f->api_status != 409 &&
		    f->api_status != 429)
			refused_event(f);
		land_failed(f, f->text.msg);
	}
}

static void read_found(struct ex_flight *f, const struct st_pod_spec *pod)
{
	char text[400];

	switch (ex_mirror_seen(f->api->cfg.service, pod, f->args.node, &f->op)) {
	case EX_SEEN_OURS:
		pthread_mutex_lock(&f->api->lock);
		f->api->stats.settled_bound++;
		pthread_mutex_unlock(&f->api->lock);
		land_bound(f);
		break;
	case EX_SEEN_OTHER:
		snprintf(text, sizeof(text), "it is bound to node \"%.253s\" by another",
			 pod->node);
		land_failed(f, text);
		break;
	case EX_SEEN_NEVER:
		land_failed(f, pod->deleting ? "it is being deleted" : "it has ended");
		break;
	case EX_SEEN_UNBOUND:
		still_unbound(f);
		break;
	}
}

static void begin(struct ex_flight *f, bool read);

/* Before anything was reserved. */
static void first_found(struct ex_flight *f, const struct st_pod_spec *pod)
{
	struct ex_service *s = f->api->cfg.service;
	struct err err = ERR_INIT, none = ERR_INIT;
	struct ex_mirror_pod told;
	struct st_request req;

	switch (ex_mirror_seen(s, pod, f->args.node, NULL)) {
	case EX_SEEN_OURS:
		ex_flight_land(f, 0, &none);
		break;
	case EX_SEEN_OTHER:
		err_set(&err, ERR_CONFLICT, "pod %s/%s is bound to node \"%s\" by another", pod->ns,
			pod->name, pod->node);
		ex_flight_land(f, ERR_CONFLICT, &err);
		break;
	case EX_SEEN_NEVER:
		err_set(&err, ERR_CONFLICT, "pod %s/%s %s", pod->ns, pod->name,
			pod->deleting ? "is being deleted" : "has ended");
		ex_flight_land(f, ERR_CONFLICT, &err);
		break;
	case EX_SEEN_UNBOUND:
		if (st_contract_parse(pod, ex_service_contract(s), &req, NULL, &err) < 0 ||
		    ex_mirror_pod(s, pod, true, &told, &err) < 0)
			ex_flight_land(f, ERR_INVALID, &err);
		else
			begin(f, true);
		break;
	}
}

/* A pod that is bound in the model: only its end is news here, the rest is the watch's to tell. */
static void verified(struct ex_flight *f, const struct st_pod_spec *pod)
{
	struct err none = ERR_INIT;

	if (pod->phase == ST_PHASE_SUCCEEDED || pod->phase == ST_PHASE_FAILED)
		ex_mirror_pod_gone(f->api->cfg.service, f->args.uid);
	ex_flight_land(f, 0, &none);
}

static void read_gone(struct ex_flight *f)
{
	struct err err = ERR_INIT;

	/* A UID never comes back. */
	ex_mirror_pod_gone(f->api->cfg.service, f->args.uid);
	pthread_mutex_lock(&f->api->lock);
	f->api->stats.settled_free++;
	pthread_mutex_unlock(&f->api->lock);
	err_set(&err, ERR_NOT_FOUND, "pod %s/%s (uid %s) is gone", f->args.ns, f->args.name,
		f->args.uid);
	ex_flight_land(f, ERR_NOT_FOUND, &err);
}

static void read_failed(struct ex_flight *f, const char *text)
{
	struct err err = ERR_INIT;

	if (f->posts == 0 && !f->verify) {
		err_set(&err, ERR_IO, "pod %s/%s cannot be read: %s", f->args.ns, f->args.name,
			text);
		ex_flight_land(f, ERR_IO, &err);
		return;
	}
	ex_flight_leave_open(f, ex_api_now_us(f->api) + AGAIN_US);
}

static void on_read(void *ctx, enum ku_pod_seen seen, const cJSON *obj, const char *text)
{
	struct ex_flight *f = ctx;
	struct ku_arena *arena = NULL;
	struct st_pod_spec pod;
	struct err err = ERR_INIT;

	if (seen == KU_POD_FOUND) {
		arena = ku_arena_new();
		if (arena == NULL || ku_pod_decode(obj, arena, &pod, &err) < 0) {
			seen = KU_POD_UNKNOWN;
			text = arena != NULL ? err.msg : "out of memory";
		}
	}
	if (seen == KU_POD_GONE)
		read_gone(f);
	else if (seen == KU_POD_UNKNOWN)
		read_failed(f, text);
	else if (f->verify)
		verified(f, &pod);
	else if (f->posts == 0)
		first_found(f, &pod);
	else
		read_found(f, &pod);
	ku_arena_free(arena);
}

/* ---- the beginning ---- */

/* read: the pod was read just now, so its request is known. */
static void begin(struct ex_flight *f, bool read)
{
	struct err err = ERR_INIT, none = ERR_INIT;
	enum ex_hold hold;
	int rc;

	rc = ex_mirror_hold(f->api->cfg.service, &f->args, &f->op, &hold, &f->present_bytes, &err);
	if (rc == 0 && hold == EX_HOLD_READ && read)
		rc = err_set(&err, ERR_CONFLICT, "pod %s/%s is changing; it is tried again",
			     f->args.ns, f->args.name);
	if (rc < 0)
		ex_flight_land(f, rc, &err);
	else if (hold == EX_HOLD_BOUND)
		ex_flight_land(f, 0, &none);
	else if (hold == EX_HOLD_READ)
		ex_flight_read(f);
	else
		ex_flight_post(f);
}

/* Under the lock: the flight of that uid gets one more waiter. 1: and is to be gone on with by the
 * caller, whose it is now. */
static int join(struct ex_flight *f, const char *node, struct ex_api_waiter *w, struct err *err)
{
	struct ex_api *a = f->api;

	if (strcmp(f->args.node, node) != 0)
		return err_set(err, ERR_CONFLICT,
			       "the outcome of the bind of pod %s/%s to node \"%s\" is not known "
			       "yet",
			       f->args.ns, f->args.name, f->args.node);
	a->stats.binds_joined++;
	w->next = f->waiters;
	f->waiters = w;
	f->until_us = w->until_us;
	if (f->calling || f->due_us <= ex_api_now_us(a))
		return 0;
	f->calling = f->forgiving = true;
	f->pause_ms = PAUSE_MIN_MS;
	return 1;
}

void ex_api_bind(struct ex_api *a, const struct ex_bind_args *args, struct ex_api_waiter *w)
{
	struct ex_flight *f, *old = NULL;
	struct err err = ERR_INIT;
	int rc = 0;

	w->next = NULL;
	w->until_us = ex_api_now_us(a) + a->cfg.bind_ms * 1000;
	f = ex_flight_new(a, args->uid, args->ns, args->name, args->node);
	pthread_mutex_lock(&a->lock);
	HASH_FIND_STR(a->flights, args->uid, old);
	if (old != NULL) {
		rc = join(old, args->node, w, &err);
	} else if (f != NULL) {
		HASH_ADD_KEYPTR(hh, a->flights, f->args.uid, strlen(f->args.uid), f);
		f->waiters = w;
		f->until_us = w->until_us;
	}
	if (old == NULL && (f == NULL || !HASH_ADDED(f, hh)))
		rc = err_set(&err, ERR_NOMEM, "out of memory for a bind");
	pthread_mutex_unlock(&a->lock);
	if (f != NULL && (old != NULL || rc < 0))
		ex_flight_free(f);
	if (rc < 0)
		ex_flight_answer(w, rc, &err);
	else if (old != NULL && rc == 1)
		ex_flight_post(old);
	else if (old == NULL && f != NULL)
		begin(f, false);
}

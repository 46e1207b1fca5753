/* Wishes for memory limits of containers that run (elastic.h), on the API server: the watch tells of them,
 * the worker writes what they make of the allocation, in one PATCH that counts only for the pod as it was
 * read (uid and resourceVersion). So whoever else writes the pod, or leads by now, is never overwritten:
 * then the watch tells of the pod again, and it is looked at anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/api_internal.h"
#include "extender/elastic.h"
#include "kube/client_path.h"

#define DEADLINE_MS 4000

/* One look at a wish, and its PATCH. */
struct look {
	struct ex_api *api;
	uint64_t number; /* of the look */
	bool again;      /* nothing new but room */
	cJSON *obj;
	struct ku_arena *arena;
	struct st_pod_spec pod;
	struct ex_elastic_plan plan;
};

static void look_free(struct look *l)
{
	ex_elastic_plan_fini(&l->plan);
	cJSON_Delete(l->obj);
	ku_arena_free(l->arena);
	free(l);
}

/* ---- what the watch tells ---- */

void ex_api_wish_drop(struct ex_api *a, const char *uid)
{
	struct ex_wish *w;

	pthread_mutex_lock(&a->lock);
	w = ex_wishes_drop(&a->wishes, uid);
	pthread_mutex_unlock(&a->lock);
	ex_wish_free(w);
}

int ex_api_wish_note(struct ex_api *a, const struct st_pod_spec *pod, const cJSON *obj,
		     struct err *err)
{
	char *text;
	int rc = ERR_NOMEM;

	if (pod->deleting || !st_contract_has_wish(pod, ex_service_contract(a->cfg.service))) {
		ex_api_wish_drop(a, pod->uid);
		return 0;
	}
	text = cJSON_PrintUnformatted(obj);
	pthread_mutex_lock(&a->lock);
	if (text != NULL)
		rc = ex_wishes_tell(&a->wishes, pod->uid, &text);
	if (rc == 0)
		pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
	cJSON_free(text);
	if (rc < 0)
		err_set(err, rc, "out of memory for pod %s/%s", pod->ns, pod->name);
	return rc;
}

/* ---- what comes of it ---- */

static void refused_event(struct look *l)
{
	char text[700];

	snprintf(text, sizeof(text), "The memory limit stays as it is: %s", l->plan.why.msg);
	ku_event_post(l->api->events, &(struct ku_event){.type = KU_EVENT_WARNING,
							 .kind = "Pod",
							 .ns = l->pod.ns,
							 .name = l->pod.name,
							 .uid = l->pod.uid,
							 .reason = "MemoryLimitRefused",
							 .message = text});
}

static void say(struct look *l, enum log_level level, const char *what, int status,
		const char *text)
{
	char quoted[600];

	log_event(l->api->cfg.log, level, what, "pod=%s/%s uid=%s status=%d reason=%s", l->pod.ns,
		  l->pod.name, l->pod.uid, status, log_quote(text, quoted, sizeof(quoted)));
}

/* Is the pod as it was looked at what the watch told last? With sight held. */
static bool newest(const struct look *l)
{
	const struct ex_wish *w;
	bool ret;

	pthread_mutex_lock(&l->api->lock);
	w = ex_wishes_find(&l->api->wishes, l->pod.uid, l->number);
	ret = w != NULL && !ex_wish_told_since(w);
	pthread_mutex_unlock(&l->api->lock);
	return ret;
}

/* What was told since has been booked as it is. */
static void undo(struct look *l)
{
	bool undone;

	pthread_mutex_lock(&l->api->sight);
	undone = newest(l);
	if (undone)
		ex_elastic_undo(l->api->cfg.service, &l->pod, &l->plan);
	pthread_mutex_unlock(&l->api->sight);
	if (undone)
		ex_api_room_grew(l->api);
}

/* The look is over, and no more. What is refused is told, unless it was looked at for new room alone: that
 * room has changed is no news, events would come with every pod that ends. */
static void rest(struct look *l, enum ex_wish_at at, bool refused, uint64_t room)
{
	struct ex_api *a = l->api;
	struct ex_wish *w;
	bool news = false;

	pthread_mutex_lock(&a->lock);
	w = ex_wishes_find(&a->wishes, l->pod.uid, l->number);
	if (w != NULL) {
		news = refused && !l->again && strcmp(w->said, l->plan.why.msg) != 0;
		snprintf(w->said, sizeof(w->said), "%s", refused ? l->plan.why.msg : "");
		ex_wishes_rest(&a->wishes, w, at, ex_api_now_us(a), room);
	}
	a->stats.limits_refused += news;
	pthread_mutex_unlock(&a->lock);
	if (news) {
		say(l, LOG_LEVEL_WARN, "memory-limit-refused", 0, l->plan.why.msg);
		refused_event(l);
	}
	look_free(l);
}

static void on_written(void *ctx, const struct ku_reply *reply)
{
	struct look *l = ctx;
	struct ex_api *a = l->api;
	int s = reply->status;
	bool ok = reply->kind == KU_REPLY_HTTP && s == 200;
	/* 409: somebody has written the pod since; 404: it is gone. The watch tells. That somebody may
	 * have been we, when no answer came: so the books stay until then. */
	bool stale = reply->kind == KU_REPLY_HTTP && (s == 409 || s == 404);
	bool never =
		!ok && !stale &&
		((reply->kind == KU_REPLY_HTTP && s >= 400 && s < 500 && s != 429) || !reply->sent);

	if (never)
		undo(l);
	pthread_mutex_lock(&a->lock);
	a->stats.limits_written += ok;
	a->stats.limits_stale += stale;
	a->stats.limits_failed += !ok && !stale;
	pthread_mutex_unlock(&a->lock);
	if (ok)
		say(l, LOG_LEVEL_INFO, "memory-limit-written", s, l->plan.text);
	else if (!stale && reply->kind != KU_REPLY_CANCELLED)
		say(l, LOG_LEVEL_WARN, "memory-limit-failed", s, reply->text);
	/* Where the outcome is known, the watch tells, or should. */
	rest(l, ok || stale || never ? EX_WISH_LATER : EX_WISH_SOON, false, 0);
}

/* {"metadata":{"uid":...,"resourceVersion":...,"annotations":{...}}}; NULL: no memory. */
static char *patch_of(const struct look *l)
{
	cJSON *root = cJSON_CreateObject(), *notes = NULL;
	cJSON *meta = root != NULL ? cJSON_AddObjectToObject(root, "metadata") : NULL;
	const cJSON *version = ku_json_get(ku_json_get(l->obj, "metadata"), "resourceVersion");
	char *text = NULL;
	bool ok;

	ok = meta != NULL && cJSON_AddStringToObject(meta, "uid", l->pod.uid) != NULL &&
	     cJSON_IsString(version) &&
	     cJSON_AddStringToObject(meta, "resourceVersion", version->valuestring) != NULL &&
	     (notes = cJSON_AddObjectToObject(meta, "annotations")) != NULL;
	for (size_t i = 0; ok && i < l->plan.annotations.count; i++)
		ok = cJSON_AddStringToObject(notes, l->plan.annotations.kv[i].key,
					     l->plan.annotations.kv[i].value) != NULL;
	if (ok)
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	return text;
}

/* By way of the status: of a pod's annotations that is enough, and its spec stays out of reach. */
static int write_plan(struct look *l, struct err *err)
{
	struct ex_api *a = l->api;
	int64_t ms = ex_api_post_ms(a, atomic_load(&a->term));
	struct buf path = BUF_INIT;
	char *patch = patch_of(l);
	int rc = ERR_NOMEM;

	ku_path_pod(&path, l->pod.ns, l->pod.name, "status");
	if (patch != NULL && buf_str(&path) != NULL && ms > 0)
		rc = ku_client_patch(a->client, buf_str(&path), patch,
				     ms < DEADLINE_MS ? ms : DEADLINE_MS, on_written, l, err);
	cJSON_free(patch);
	buf_fini(&path);
	return rc;
}

/* Under the lock. NULL: no memory. */
static struct look *look_new(struct ex_api *a, const struct ex_wish *w)
{
	struct look *l = calloc(1, sizeof(*l));
	struct err err = ERR_INIT;

	if (l == NULL)
		return NULL;
	l->api = a;
	l->number = w->looked;
	l->again = w->again;
	l->arena = ku_arena_new();
	if (l->arena != NULL && ku_json_parse(w->text, strlen(w->text), &l->obj, &err) == 0 &&
	    ku_pod_decode(l->obj, l->arena, &l->pod, &err) == 0)
		return l;
	look_free(l);
	return NULL;
}

static void look_at(struct look *l)
{
	struct ex_api *a = l->api;
	uint64_t room = ex_api_room(a);
	enum ex_elastic what = EX_ELASTIC_NONE;
	struct err err = ERR_INIT;
	int rc = 0;

	pthread_mutex_lock(&a->sight);
	if (newest(l))
		rc = ex_elastic_plan(a->cfg.service, &l->pod, &l->plan, &what, &err);
	pthread_mutex_unlock(&a->sight);
	if (rc < 0 || what == EX_ELASTIC_LATER) {
		rest(l, EX_WISH_LATER, false, 0);
	} else if (what != EX_ELASTIC_WRITE) {
		rest(l, l->plan.no_room ? EX_WISH_ROOM : EX_WISH_IDLE, what == EX_ELASTIC_REFUSED,
		     room);
	} else if (write_plan(l, &err) < 0) {
		undo(l);
		rest(l, EX_WISH_LATER, false, 0);
	}
}

/* NULL and *ret_any: there was no memory for it. */
static struct look *next_look(struct ex_api *a, bool *ret_any)
{
	struct look *l = NULL;
	struct ex_wish *w;
	int64_t now;

	pthread_mutex_lock(&a->lock);
	now = ex_api_now_us(a);
	w = ex_wishes_next(&a->wishes, now, a->room);
	*ret_any = w != NULL;
	if (w != NULL && (l = look_new(a, w)) == NULL)
		ex_wishes_rest(&a->wishes, w, EX_WISH_LATER, now, 0);
	pthread_mutex_unlock(&a->lock);
	return l;
}

int64_t ex_api_wishes_run(struct ex_api *a)
{
	struct look *l;
	char why[64];
	bool any = true;

	if (!ex_api_ready(a, why, sizeof(why)))
		return INT64_MAX;
	for (int i = 0; any && i < EX_API_LOOKS_MAX; i++) {
		l = next_look(a, &any);
		if (l != NULL)
			look_at(l);
	}
	return any ? ex_api_now_us(a) : INT64_MAX;
}

void ex_api_wishes_fini(struct ex_api *a)
{
	ex_wishes_fini(&a->wishes);
}

#include "test/lib/fake_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/lib/fake_api_internal.h"
#include "test/lib/fake_cluster_internal.h"

/* ---- watches ---- */

struct watch {
	struct fake_cluster *c;
	uint64_t rv;
	bool pods;
	unsigned cuts;
	char *text; /* not sent completely yet */
	size_t at, len;
};

static const struct change *after(const struct fake_cluster *c, const struct watch *w)
{
	for (const struct change *ch = c->first; ch != NULL; ch = ch->next) {
		if (ch->rv > w->rv && ch->pod == w->pods)
			return ch;
	}
	return NULL;
}

static ssize_t watch_next(void *ctx, char *buf, size_t max)
{
	struct watch *w = ctx;
	struct fake_cluster *c = w->c;
	const struct change *ch = NULL;
	size_t n;

	if (w->at == w->len) {
		pthread_mutex_lock(&c->lock);
		while (!c->closing && w->cuts == c->cuts && (c->held || (ch = after(c, w)) == NULL))
			pthread_cond_wait(&c->changed, &c->lock);
		if (c->closing || w->cuts != c->cuts || ch == NULL) {
			pthread_mutex_unlock(&c->lock);
			return 0;
		}
		free(w->text);
		w->text = fake_dup(ch->text);
		w->rv = ch->rv;
		w->at = 0;
		w->len = strlen(w->text);
		pthread_mutex_unlock(&c->lock);
	}
	n = w->len - w->at < max ? w->len - w->at : max;
	memcpy(buf, w->text + w->at, n);
	w->at += n;
	return (ssize_t)n;
}

static void watch_free(void *ctx)
{
	struct watch *w = ctx;

	free(w->text);
	free(w);
}

static uint64_t query_rv(const struct fake_request *rq)
{
	const char *at = strstr(rq->query, "resourceVersion=");

	return at != NULL ? strtoull(at + strlen("resourceVersion="), NULL, 10) : 0;
}

#define EXPIRED                                                                                    \
	"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"," \
	"\"message\":\"too old resource version\"}}\n"

static void serve_watch(struct fake_cluster *c, const struct fake_request *rq, bool pods,
			struct fake_reply *ret)
{
	struct watch *w;

	ret->status = 200;
	if (query_rv(rq) < c->oldest) {
		ret->body = EXPIRED;
		return;
	}
	w = fake_must(calloc(1, sizeof(*w)));
	w->c = c;
	w->rv = query_rv(rq);
	w->pods = pods;
	w->cuts = c->cuts;
	ret->next = watch_next;
	ret->next_free = watch_free;
	ret->next_ctx = w;
}

/* ---- answers; under the lock ---- */

/* Strings of an answer live until the thread's next one. */
static char *keep(struct fake_cluster *c, char *take_text)
{
	free(pthread_getspecific(c->text));
	pthread_setspecific(c->text, take_text);
	return take_text;
}

static void say(struct fake_cluster *c, struct fake_reply *ret, int status, cJSON *take_obj)
{
	ret->status = status;
	ret->body = keep(c, cJSON_PrintUnformatted(take_obj));
	cJSON_Delete(take_obj);
}

static void say_status(struct fake_cluster *c, struct fake_reply *ret, int status,
		       const char *reason, const char *message)
{
	cJSON *s = cJSON_CreateObject();

	cJSON_AddStringToObject(s, "kind", "Status");
	cJSON_AddStringToObject(s, "status", status < 300 ? "Success" : "Failure");
	cJSON_AddNumberToObject(s, "code", status);
	cJSON_AddStringToObject(s, "reason", reason);
	cJSON_AddStringToObject(s, "message", message);
	say(c, ret, status, s);
}

static void serve_list(struct fake_cluster *c, bool pods, struct fake_reply *ret)
{
	cJSON *list = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(list, "metadata");
	cJSON *items = cJSON_AddArrayToObject(list, "items");
	const cJSON *obj, *all = pods ? c->pods : c->nodes;
	char rv[32];

	snprintf(rv, sizeof(rv), "%llu", (unsigned long long)c->rv);
	cJSON_AddStringToObject(meta, "resourceVersion", rv);
	cJSON_ArrayForEach(obj, all)
	{
		if (!pods || !fc_ended(obj))
			cJSON_AddItemToArray(items, cJSON_Duplicate(obj, true));
	}
	say(c, ret, 200, list);
}

/* What pkg/registry/core/pod/storage does. */
static void serve_binding(struct fake_cluster *c, const char *name, const char *body,
			  struct fake_reply *ret)
{
	cJSON *b = cJSON_Parse(body), *obj = fc_find(c->pods, name), *spec, *notes;
	const cJSON *a;

	if (obj == NULL) {
		say_status(c, ret, 404, "NotFound", "pods not found");
	} else if (strcmp(fc_text_of(fc_meta_of(b), "uid"), fc_text_of(fc_meta_of(obj), "uid")) !=
		   0) {
		say_status(c, ret, 409, "Conflict", "Precondition failed: UID in precondition");
	} else if (fc_text_of(fc_meta_of(obj), "deletionTimestamp")[0] != '\0') {
		say_status(c, ret, 409, "Conflict",
			   "is being deleted, cannot be assigned to a host");
	} else if (fc_text_of(fc_child(obj, "spec"), "nodeName")[0] != '\0') {
		say_status(c, ret, 409, "Conflict", "pod is already assigned to node");
	} else {
		spec = fc_child(obj, "spec");
		fc_set_text(spec, "nodeName",
			    fc_text_of(cJSON_GetObjectItemCaseSensitive(b, "target"), "name"));
		notes = fc_child(fc_meta_of(obj), "annotations");
		cJSON_ArrayForEach(a,
				   cJSON_GetObjectItemCaseSensitive(fc_meta_of(b), "annotations"))
			fc_set_text(notes, a->string, a->valuestring);
		fc_record(c, obj, true, "MODIFIED");
		say_status(c, ret, 201, "", "");
	}
	cJSON_Delete(b);
}

static void serve_lease(struct fake_cluster *c, const struct fake_request *rq,
			struct fake_reply *ret)
{
	cJSON *obj = cJSON_GetArrayItem(c->leases, 0), *sent;
	bool get = strcmp(rq->method, "GET") == 0, post = strcmp(rq->method, "POST") == 0;
	char rv[32];

	if (get && obj == NULL) {
		say_status(c, ret, 404, "NotFound", "leases not found");
	} else if (get) {
		say(c, ret, 200, cJSON_Duplicate(obj, true));
	} else if (post && obj != NULL) {
		say_status(c, ret, 409, "AlreadyExists", "it exists");
	} else {
		sent = fake_must(cJSON_Parse(rq->body));
		if (!post && strcmp(fc_text_of(fc_meta_of(sent), "resourceVersion"),
				    fc_text_of(fc_meta_of(obj), "resourceVersion")) != 0) {
			cJSON_Delete(sent);
			say_status(c, ret, 409, "Conflict", "the object has been modified");
			return;
		}
		snprintf(rv, sizeof(rv), "%llu", (unsigned long long)++c->rv);
		fc_set_text(fc_meta_of(sent), "resourceVersion", rv);
		cJSON_Delete(cJSON_DetachItemFromArray(c->leases, 0));
		cJSON_AddItemToArray(c->leases, sent);
		say(c, ret, post ? 201 : 200, cJSON_Duplicate(sent, true));
	}
}

static void serve_status_patch(struct fake_cluster *c, const char *name, const char *body,
			       struct fake_reply *ret)
{
	cJSON *obj = fc_find(c->nodes, name), *patch = cJSON_Parse(body);
	const cJSON *part, *v;

	if (obj == NULL) {
		say_status(c, ret, 404, "NotFound", "nodes not found");
	} else {
		cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(patch, "status"))
		{
			cJSON *to = fc_child(fc_child(obj, "status"), part->string);

			cJSON_ArrayForEach(v, part) fc_set_text(to, v->string, v->valuestring);
		}
		fc_record(c, obj, false, "MODIFIED");
		say(c, ret, 200, cJSON_Duplicate(obj, true));
	}
	cJSON_Delete(patch);
}

/* Annotations of a pod by way of its status, with the preconditions of uid and resourceVersion. */
static void serve_pod_patch(struct fake_cluster *c, const char *name, const char *body,
			    struct fake_reply *ret)
{
	cJSON *obj = fc_find(c->pods, name), *patch = cJSON_Parse(body), *notes;
	const cJSON *a, *meta = fc_meta_of(patch);

	if (obj == NULL) {
		say_status(c, ret, 404, "NotFound", "pods not found");
	} else if (strcmp(fc_text_of(meta, "uid"), fc_text_of(fc_meta_of(obj), "uid")) != 0 ||
		   strcmp(fc_text_of(meta, "resourceVersion"),
			  fc_text_of(fc_meta_of(obj), "resourceVersion")) != 0) {
		say_status(c, ret, 409, "Conflict", "the object has been modified");
	} else {
		notes = fc_child(fc_meta_of(obj), "annotations");
		cJSON_ArrayForEach(a, cJSON_GetObjectItemCaseSensitive(meta, "annotations"))
			fc_set_text(notes, a->string, a->valuestring);
		fc_record(c, obj, true, "MODIFIED");
		say(c, ret, 200, cJSON_Duplicate(obj, true));
	}
	cJSON_Delete(patch);
}

/* A new one, or the message of one that is there. */
static void serve_event(struct fake_cluster *c, const struct fake_request *rq,
			struct fake_reply *ret)
{
	cJSON *sent = cJSON_Parse(rq->body);
	cJSON *old = fc_find(c->events, strrchr(rq->path, '/') + 1);

	if (sent != NULL && strcmp(rq->method, "POST") == 0)
		cJSON_AddItemToArray(c->events, cJSON_Duplicate(sent, true));
	else if (sent != NULL && old != NULL)
		fc_set_text(old, "message", fc_text_of(sent, "message"));
	pthread_cond_broadcast(&c->changed);
	say(c, ret, 201, sent != NULL ? sent : cJSON_CreateObject());
}

static bool part_after(const char *path, const char *head, const char *tail, char *ret, size_t cap)
{
	size_t h = strlen(head), t = strlen(tail), n = strlen(path);

	if (n <= h + t || strncmp(path, head, h) != 0 || strcmp(path + n - t, tail) != 0)
		return false;
	snprintf(ret, cap, "%.*s", (int)(n - h - t), path + h);
	return strchr(ret, '/') == NULL;
}

static void serve(struct fake_cluster *c, const struct fake_request *rq, struct fake_reply *ret)
{
	bool pods = strcmp(rq->path, "/api/v1/pods") == 0;
	bool nodes = strcmp(rq->path, "/api/v1/nodes") == 0;
	char name[256];
	cJSON *obj;

	if ((pods || nodes) &&
	    (fake_query_has(rq, "watch=1") || fake_query_has(rq, "watch=true"))) {
		serve_watch(c, rq, pods, ret);
	} else if (pods || nodes) {
		serve_list(c, pods, ret);
	} else if (part_after(rq->path, "/api/v1/namespaces/ns/pods/", "/binding", name,
			      sizeof(name))) {
		serve_binding(c, name, rq->body, ret);
	} else if (part_after(rq->path, "/api/v1/namespaces/ns/pods/", "/status", name,
			      sizeof(name))) {
		serve_pod_patch(c, name, rq->body, ret);
	} else if (part_after(rq->path, "/api/v1/namespaces/ns/pods/", "", name, sizeof(name))) {
		obj = fc_find(c->pods, name);
		if (obj != NULL)
			say(c, ret, 200, cJSON_Duplicate(obj, true));
		else
			say_status(c, ret, 404, "NotFound", "pods not found");
	} else if (strstr(rq->path, "/leases") != NULL) {
		serve_lease(c, rq, ret);
	} else if (part_after(rq->path, "/api/v1/nodes/", "/status", name, sizeof(name))) {
		serve_status_patch(c, name, rq->body, ret);
	} else if (strstr(rq->path, "/events") != NULL) {
		serve_event(c, rq, ret);
	} else {
		say_status(c, ret, 404, "NotFound", "no such path");
	}
}

/* ---- faults ---- */

static struct fake_fault *hit(struct fake_cluster *c, const struct fake_request *rq)
{
	bool watch = (fake_query_has(rq, "watch=1") || fake_query_has(rq, "watch=true"));

	for (size_t i = 0; i < c->fault_count; i++) {
		struct fake_fault *f = &c->faults[i].f;

		if (f->watches != watch || f->times == 0 ||
		    (f->method != NULL && strcmp(f->method, rq->method) != 0) ||
		    (f->part != NULL && strstr(rq->path, f->part) == NULL) ||
		    (f->percent > 0 && rng_next(&c->rng) % 100 >= f->percent))
			continue;
		f->times -= f->times > 0;
		c->hits++;
		return f;
	}
	return NULL;
}

void fc_handle(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	struct fake_cluster *c = ctx;
	struct fake_fault *f, fault = {0};

	pthread_mutex_lock(&c->lock);
	f = hit(c, rq);
	if (f != NULL)
		fault = *f;
	pthread_mutex_unlock(&c->lock);
	if (fault.delay_ms > 0) {
		const struct timespec pause = {.tv_sec = fault.delay_ms / 1000,
					       .tv_nsec = fault.delay_ms % 1000 * 1000000L};

		nanosleep(&pause, NULL);
	}
	pthread_mutex_lock(&c->lock);
	if (f == NULL || fault.after || (fault.status == 0 && !fault.reset && !fault.silent))
		serve(c, rq, ret);
	if (f != NULL && fault.status != 0) {
		if (fault.body != NULL)
			*ret = (struct fake_reply){.status = fault.status, .body = fault.body};
		else
			say_status(c, ret, fault.status, "Injected", "injected");
		ret->headers = fault.headers;
	} else if (f != NULL && (fault.reset || fault.silent)) {
		*ret = (struct fake_reply){.end = fault.reset ? FAKE_END_RESET : FAKE_END_SILENT};
	}
	pthread_mutex_unlock(&c->lock);
}

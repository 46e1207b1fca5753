#include "test/lib/fake_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "test/lib/fake_api_internal.h"
#include "test/lib/fake_cluster_internal.h"

#define WAIT_S 30

/* ---- objects; under the lock ---- */

cJSON *fc_meta_of(const cJSON *obj)
{
	return cJSON_GetObjectItemCaseSensitive(obj, "metadata");
}

const char *fc_text_of(const cJSON *obj, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(obj, name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

void fc_set_text(cJSON *obj, const char *name, const char *value)
{
	cJSON_DeleteItemFromObjectCaseSensitive(obj, name);
	if (value != NULL)
		cJSON_AddStringToObject(obj, name, value);
}

cJSON *fc_child(cJSON *obj, const char *name)
{
	cJSON *v = cJSON_GetObjectItemCaseSensitive(obj, name);

	return v != NULL ? v : cJSON_AddObjectToObject(obj, name);
}

cJSON *fc_find(const cJSON *list, const char *name)
{
	cJSON *obj;

	cJSON_ArrayForEach(obj, list)
	{
		if (strcmp(fc_text_of(fc_meta_of(obj), "name"), name) == 0)
			return obj;
	}
	return NULL;
}

static cJSON *list_of(struct fake_cluster *c, const char *kind)
{
	return strcmp(kind, "nodes") == 0 ? c->nodes : c->pods;
}

bool fc_ended(const cJSON *obj)
{
	const char *phase = fc_text_of(cJSON_GetObjectItemCaseSensitive(obj, "status"), "phase");

	return strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0;
}

void fc_record(struct fake_cluster *c, cJSON *obj, bool pod, const char *type)
{
	char rv[32];
	char *text;
	struct change *ch;
	size_t len;

	snprintf(rv, sizeof(rv), "%llu", (unsigned long long)++c->rv);
	fc_set_text(fc_meta_of(obj), "resourceVersion", rv);
	text = cJSON_PrintUnformatted(obj);
	len = strlen(text) + strlen(type) + 64;
	ch = fake_must(calloc(1, sizeof(*ch) + len));
	ch->rv = c->rv;
	ch->pod = pod;
	/* A pod that ends leaves the selection that the extender watches. */
	snprintf(ch->text, len, "{\"type\":\"%s\",\"object\":%s}\n",
		 pod && fc_ended(obj) ? "DELETED" : type, text);
	free(text);
	*c->last = ch;
	c->last = &ch->next;
	pthread_cond_broadcast(&c->changed);
}

/* ---- what tests do ---- */

void fake_cluster_put(struct fake_cluster *c, const char *kind, const char *json)
{
	cJSON *obj = fake_must(cJSON_Parse(json)), *list, *old;

	pthread_mutex_lock(&c->lock);
	list = list_of(c, kind);
	old = fc_find(list, fc_text_of(fc_meta_of(obj), "name"));
	if (old != NULL)
		cJSON_ReplaceItemViaPointer(list, old, obj);
	else
		cJSON_AddItemToArray(list, obj);
	fc_record(c, obj, list == c->pods, old != NULL ? "MODIFIED" : "ADDED");
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_node(struct fake_cluster *c, const char *name, unsigned gpus, int mem_mib)
{
	struct buf b = BUF_INIT;

	buf_printf(&b,
		   "{\"metadata\":{\"name\":\"%s\",\"uid\":\"node-%s\",\"annotations\":{"
		   "\"tessera.dev/inventory\":\"{\\\"version\\\":1,\\\"gpus\\\":[",
		   name, name);
	for (unsigned i = 0; i < gpus; i++)
		buf_printf(&b,
			   "%s{\\\"uuid\\\":\\\"GPU-%s-%u\\\",\\\"index\\\":%u,\\\"mem_mib\\\":%d,"
			   "\\\"healthy\\\":true}",
			   i > 0 ? "," : "", name, i, i, mem_mib);
	buf_printf(&b,
		   "]}\"}},\"status\":{\"capacity\":{\"tessera.dev/gpu-memory\":\"%lld\"},"
		   "\"allocatable\":{\"cpu\":\"64\",\"memory\":\"512Gi\",\"pods\":\"500\"},"
		   "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
		   (long long)gpus * mem_mib);
	fake_cluster_put(c, "nodes", buf_str(&b));
	buf_fini(&b);
}

void fake_cluster_pod(struct fake_cluster *c, const char *name, const char *uid,
		      const char *annotations)
{
	struct buf b = BUF_INIT;

	buf_printf(&b,
		   "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\","
		   "\"annotations\":{%s}},\"spec\":{\"containers\":[{\"name\":\"main\"}]},"
		   "\"status\":{\"phase\":\"Pending\"}}",
		   name, uid, annotations);
	fake_cluster_put(c, "pods", buf_str(&b));
	buf_fini(&b);
}

void fake_cluster_delete(struct fake_cluster *c, const char *kind, const char *name)
{
	cJSON *list, *obj;

	pthread_mutex_lock(&c->lock);
	list = list_of(c, kind);
	obj = fc_find(list, name);
	if (obj != NULL) {
		fc_record(c, obj, list == c->pods, "DELETED");
		cJSON_Delete(cJSON_DetachItemViaPointer(list, obj));
	}
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_annotate(struct fake_cluster *c, const char *pod, const char *key,
			   const char *value)
{
	cJSON *obj;

	pthread_mutex_lock(&c->lock);
	obj = fake_must(fc_find(c->pods, pod));
	fc_set_text(fc_child(fc_meta_of(obj), "annotations"), key, value);
	fc_record(c, obj, true, "MODIFIED");
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_phase(struct fake_cluster *c, const char *pod, const char *phase)
{
	cJSON *obj;

	pthread_mutex_lock(&c->lock);
	obj = fake_must(fc_find(c->pods, pod));
	fc_set_text(fc_child(obj, "status"), "phase", phase);
	fc_record(c, obj, true, "MODIFIED");
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_terminate(struct fake_cluster *c, const char *pod)
{
	cJSON *obj;

	pthread_mutex_lock(&c->lock);
	obj = fake_must(fc_find(c->pods, pod));
	fc_set_text(fc_meta_of(obj), "deletionTimestamp", "2026-01-02T03:04:05Z");
	fc_record(c, obj, true, "MODIFIED");
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_bind(struct fake_cluster *c, const char *pod, const char *node)
{
	cJSON *obj;

	pthread_mutex_lock(&c->lock);
	obj = fake_must(fc_find(c->pods, pod));
	fc_set_text(fc_child(obj, "spec"), "nodeName", node);
	fc_record(c, obj, true, "MODIFIED");
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_fault(struct fake_cluster *c, struct fake_fault f)
{
	pthread_mutex_lock(&c->lock);
	if (c->fault_count < FAULTS_MAX)
		c->faults[c->fault_count++] = (struct fault){.f = f};
	pthread_mutex_unlock(&c->lock);
}

unsigned fake_cluster_calm(struct fake_cluster *c)
{
	unsigned hits;

	pthread_mutex_lock(&c->lock);
	c->fault_count = 0;
	hits = c->hits;
	pthread_mutex_unlock(&c->lock);
	return hits;
}

unsigned fake_cluster_hits(struct fake_cluster *c)
{
	unsigned hits;

	pthread_mutex_lock(&c->lock);
	hits = c->hits;
	pthread_mutex_unlock(&c->lock);
	return hits;
}

void fake_cluster_cut(struct fake_cluster *c, bool gone)
{
	pthread_mutex_lock(&c->lock);
	c->cuts++;
	if (gone)
		c->oldest = c->rv;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

void fake_cluster_hold(struct fake_cluster *c, bool hold)
{
	pthread_mutex_lock(&c->lock);
	c->held = hold;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* ---- what tests see ---- */

const char *fake_cluster_node_of(struct fake_cluster *c, const char *pod)
{
	static _Thread_local char name[256];
	cJSON *obj;

	pthread_mutex_lock(&c->lock);
	obj = fc_find(c->pods, pod);
	snprintf(name, sizeof(name), "%s",
		 fc_text_of(cJSON_GetObjectItemCaseSensitive(obj, "spec"), "nodeName"));
	pthread_mutex_unlock(&c->lock);
	return name;
}

cJSON *fake_cluster_objects(struct fake_cluster *c, const char *kind)
{
	cJSON *copy;

	pthread_mutex_lock(&c->lock);
	copy = fake_must(cJSON_Duplicate(list_of(c, kind), true));
	pthread_mutex_unlock(&c->lock);
	return copy;
}

static bool has_event(const struct fake_cluster *c, const char *pod, const char *reason,
		      const char *message)
{
	const cJSON *e;

	cJSON_ArrayForEach(e, c->events)
	{
		const cJSON *about = cJSON_GetObjectItemCaseSensitive(e, "involvedObject");

		if (strcmp(fc_text_of(about, "name"), pod) == 0 &&
		    strcmp(fc_text_of(e, "reason"), reason) == 0 &&
		    strstr(fc_text_of(e, "message"), message) != NULL)
			return true;
	}
	return false;
}

bool fake_cluster_event(struct fake_cluster *c, const char *pod, const char *reason)
{
	return fake_cluster_event_says(c, pod, reason, "");
}

bool fake_cluster_event_says(struct fake_cluster *c, const char *pod, const char *reason,
			     const char *text)
{
	struct timespec until;
	bool found;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&c->lock);
	while (!(found = has_event(c, pod, reason, text)) &&
	       pthread_cond_timedwait(&c->changed, &c->lock, &until) == 0)
		;
	pthread_mutex_unlock(&c->lock);
	return found;
}

/* ---- life ---- */

struct fake_cluster *fake_cluster_start(uint64_t seed)
{
	struct fake_cluster *c = fake_must(calloc(1, sizeof(*c)));

	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	pthread_key_create(&c->text, free);
	c->last = &c->first;
	c->rv = 1; /* an empty list has a version, too, and the first change another one */
	c->nodes = cJSON_CreateArray();
	c->pods = cJSON_CreateArray();
	c->leases = cJSON_CreateArray();
	c->events = cJSON_CreateArray();
	rng_init(&c->rng, seed);
	c->api = fake_api_start(NULL);
	fake_api_handle(c->api, fc_handle, c);
	return c;
}

struct fake_api *fake_cluster_api(struct fake_cluster *c)
{
	return c->api;
}

void fake_cluster_stop(struct fake_cluster *c)
{
	struct change *ch;

	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	fake_api_stop(c->api);
	free(pthread_getspecific(c->text));
	pthread_key_delete(c->text);
	while ((ch = c->first) != NULL) {
		c->first = ch->next;
		free(ch);
	}
	cJSON_Delete(c->nodes);
	cJSON_Delete(c->pods);
	cJSON_Delete(c->leases);
	cJSON_Delete(c->events);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

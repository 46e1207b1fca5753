#include "enforcer/pods.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/hash.h"
#include "kube/client_path.h"
#include "kube/object.h"
#include "kube/reflector.h"
#include "state/contract.h"

#define MIRROR_KEY "kubernetes.io/config.mirror"
#define ALLOCATION_KEY "tessera.dev/allocation"
#define GRACE_MAX_S 31536000 /* a year: where none is told */
#define TEMPLATE_HASH_LABEL "pod-template-hash"

struct row {
	struct en_pod pod; /* first: what is given out as a copy is freed as a row */
	UT_hash_handle hh; /* by spec.uid */
	char *block;       /* holds the texts, and the annotations */
};

struct en_pods {
	struct log *log;
	char *prefix;
	void (*changed)(void *ctx);
	void *ctx;
	struct ku_reflector *pods, *nodes;
	const struct ku_clock *clock; /* of the client */
	/* Of the client's thread: */
	struct ku_arena *arena;
	bool listing; /* what comes is from a list: it may have been so for long */

	pthread_mutex_t lock; /* of the rest */
	struct row *rows;
	uint64_t version;
	size_t unreadable;
	char upgrade[64];
};

static const char *text_of(const cJSON *obj, const char *name)
{
	const cJSON *v = ku_json_get(obj, name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- rows ---- */

static void row_free(struct row *r)
{
	if (r == NULL)
		return;
	free(r->block);
	free(r);
}

/* Does an allocation depend on it? */
static bool wanted(const struct en_pods *p, const char *key)
{
	return strncmp(key, "tessera.dev/", 12) == 0 || strncmp(key, "gpu-", 4) == 0 ||
	       strncmp(key, p->prefix, strlen(p->prefix)) == 0;
}

/* "2026-11-29T22:00:00Z", as the API server writes it; 0: not of that form. */
static int64_t time_read(const char *text)
{
	struct tm tm = {0};
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);

	return end != NULL && *end == '\0' ? (int64_t)timegm(&tm) : 0;
}

static int64_t grace_ms(const cJSON *meta)
{
	const cJSON *v = ku_json_get(meta, "deletionGracePeriodSeconds");

	return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble <= GRACE_MAX_S
		       ? (int64_t)v->valuedouble * 1000
		       : GRACE_MAX_S * INT64_C(1000);
}

/* See delete_ms of struct en_pod. */
static int64_t deadline(struct en_pods *p, const cJSON *meta, const struct en_pod *pod)
{
	int64_t grace = grace_ms(meta), left, ret = 0;
	struct row *old;

	if (pod->delete_s == 0)
		return 0;
	pthread_mutex_lock(&p->lock);
	HASH_FIND_STR(p->rows, pod->spec.uid, old);
	if (old != NULL && old->pod.delete_s == pod->delete_s)
		ret = old->pod.delete_ms; /* it was known */
	pthread_mutex_unlock(&p->lock);
	if (ret != 0)
		return ret;
	left = pod->delete_s * 1000 - p->clock->wall_us(p->clock->ctx) / 1000;
	left = left < 0 ? 0 : left;
	if (left > grace || (!p->listing && grace < GRACE_MAX_S * INT64_C(1000)))
		left = grace;
	return p->clock->mono_us(p->clock->ctx) / 1000 + left;
}

/* The workload: the controller of the pod, and of a ReplicaSet the Deployment that its name tells. */
static void find_owner(const cJSON *obj, struct ku_arena *arena, struct en_pod *ret)
{
	const cJSON *meta = ku_json_get(obj, "metadata"), *o;
	const char *hash = text_of(ku_json_get(meta, "labels"), TEMPLATE_HASH_LABEL);

	ret->owner_kind = "Pod";
	ret->owner = ret->spec.name;
	cJSON_ArrayForEach(o, ku_json_get(meta, "ownerReferences"))
	{
		const char *kind = text_of(o, "kind"), *name = text_of(o, "name");
		size_t len = strlen(name), tail = strlen(hash);

		if (!cJSON_IsTrue(ku_json_get(o, "controller")) || kind[0] == '\0' ||
		    name[0] == '\0')
			continue;
		ret->owner_kind = kind;
		ret->owner = name;
		if (strcmp(kind, "ReplicaSet") == 0 && tail > 0 && len > tail + 1 &&
		    name[len - tail - 1] == '-' && strcmp(name + len - tail, hash) == 0) {
			char *cut = ku_arena_str(arena, name);

			if (cut == NULL)
				continue;
			cut[len - tail - 1] = '\0';
			ret->owner_kind = "Deployment";
			ret->owner = cut;
		}
	}
}

static const char *put(char **at, const char *text)
{
	size_t len = strlen(text) + 1;
	char *to = *at;

	memcpy(to, text, len);
	*at += len;
	return to;
}

/* A copy of what is kept of a pod. NULL: no memory. */
static struct row *row_new(const struct en_pods *p, const struct en_pod *from)
{
	const struct st_pod_spec *s = &from->spec;
	size_t size = 0, count = 0;
	struct row *r = calloc(1, sizeof(*r));
	struct st_kv *kv;
	char *at;

	for (size_t i = 0; i < s->annotation_count; i++) {
		if (!wanted(p, s->annotations[i].key))
			continue;
		count++;
		size += strlen(s->annotations[i].key) + strlen(s->annotations[i].value) + 2;
	}
	size += count * sizeof(struct st_kv) + strlen(s->uid) + strlen(s->ns) + strlen(s->name) +
		strlen(s->node) + strlen(from->runtime_uid) + strlen(from->owner_kind) +
		strlen(from->owner) + 7;
	if (r == NULL || (r->block = calloc(1, size)) == NULL) {
		free(r);
		return NULL;
	}
	kv = (struct st_kv *)(void *)r->block;
	at = r->block + count * sizeof(struct st_kv);
	r->pod.allocated = from->allocated;
	r->pod.delete_s = from->delete_s;
	r->pod.delete_ms = from->delete_ms;
	r->pod.spec = (struct st_pod_spec){.uid = put(&at, s->uid),
					   .ns = put(&at, s->ns),
					   .name = put(&at, s->name),
					   .node = put(&at, s->node),
					   .nominated_node = "",
					   .scheduler = "",
					   .phase = s->phase,
					   .deleting = s->deleting,
					   .annotation_count = count,
					   .annotations = kv};
	r->pod.runtime_uid = put(&at, from->runtime_uid);
	r->pod.owner_kind = put(&at, from->owner_kind);
	r->pod.owner = put(&at, from->owner);
	for (size_t i = 0; i < s->annotation_count; i++) {
		if (!wanted(p, s->annotations[i].key))
			continue;
		kv->key = put(&at, s->annotations[i].key);
		kv->value = put(&at, s->annotations[i].value);
		kv++;
	}
	return r;
}

static void row_drop(struct en_pods *p, const char *uid)
{
	struct row *r;

	pthread_mutex_lock(&p->lock);
	HASH_FIND_STR(p->rows, uid, r);
	if (r != NULL) {
		HASH_DEL(p->rows, r);
		p->version++;
	}
	pthread_mutex_unlock(&p->lock);
	row_free(r);
}

static bool row_put(struct en_pods *p, struct row *take_r)
{
	struct row *old;
	bool ok;

	pthread_mutex_lock(&p->lock);
	HASH_FIND_STR(p->rows, take_r->pod.spec.uid, old);
	if (old != NULL)
		HASH_DEL(p->rows, old);
	HASH_ADD_KEYPTR(hh, p->rows, take_r->pod.spec.uid, strlen(take_r->pod.spec.uid), take_r);
	ok = HASH_ADDED(take_r, hh);
	p->version++;
	pthread_mutex_unlock(&p->lock);
	row_free(old);
	if (!ok)
		row_free(take_r);
	return ok;
}

static void tell(const struct en_pods *p)
{
	if (p->changed != NULL)
		p->changed(p->ctx);
}

/* ---- what the watches say ---- */

static int take_pod(struct en_pods *p, const cJSON *obj, struct err *err)
{
	struct en_pod pod = {.owner = NULL};
	struct err why = ERR_INIT;
	const char *mirror, *uid = text_of(ku_json_get(obj, "metadata"), "uid");
	char quoted[ERR_MSG_CAP];
	struct row *r;
	int rc;

	ku_arena_reset(p->arena);
	rc = ku_pod_decode(obj, p->arena, &pod.spec, &why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "%s", why.msg);
	if (rc < 0) { /* as if it were not there; the runtime tells of it in its own words */
		log_event(p->log, LOG_LEVEL_WARN, "pod-unreadable", "uid=%.64s reason=%s", uid,
			  log_quote(why.msg, quoted, sizeof(quoted)));
		pthread_mutex_lock(&p->lock);
		p->unreadable++;
		pthread_mutex_unlock(&p->lock);
		row_drop(p, uid);
		return 0;
	}
	mirror = st_pod_annotation(&pod.spec, MIRROR_KEY);
	pod.runtime_uid = mirror != NULL ? mirror : pod.spec.uid;
	pod.allocated = st_pod_annotation(&pod.spec, ALLOCATION_KEY) != NULL;
	pod.delete_s = time_read(text_of(ku_json_get(obj, "metadata"), "deletionTimestamp"));
	pod.delete_ms = deadline(p, ku_json_get(obj, "metadata"), &pod);
	find_owner(obj, p->arena, &pod);
	r = row_new(p, &pod);
	return r != NULL && row_put(p, r)
		       ? 0
		       : err_set(err, ERR_NOMEM, "out of memory for pod %.64s", uid);
}

static int on_pod(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	struct en_pods *p = ctx;
	int rc = 0;

	if (change == KU_DELETED)
		row_drop(p, text_of(ku_json_get(obj, "metadata"), "uid"));
	else
		rc = take_pod(p, obj, err);
	tell(p);
	return rc;
}

static void on_pod_gone(void *ctx, const char *uid)
{
	row_drop(ctx, uid);
	tell(ctx);
}

static void on_sync_begin(void *ctx)
{
	((struct en_pods *)ctx)->listing = true;
}

static void on_synced(void *ctx, const char *rv)
{
	(void)rv;
	((struct en_pods *)ctx)->listing = false;
	tell(ctx);
}

static void on_problem(void *ctx, const struct err *what)
{
	struct en_pods *p = ctx;
	char quoted[ERR_MSG_CAP];

	log_event(p->log, LOG_LEVEL_WARN, "watch-failed", "reason=%s",
		  log_quote(what->msg, quoted, sizeof(quoted)));
}

static int on_node(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	struct en_pods *p = ctx;
	const char *state =
		text_of(ku_json_get(ku_json_get(obj, "metadata"), "labels"), EN_UPGRADE_LABEL);
	size_t len = strlen(state);
	bool news;

	(void)err;
	if (change == KU_DELETED)
		len = 0;
	if (len >= sizeof(p->upgrade))
		len = sizeof(p->upgrade) - 1;
	pthread_mutex_lock(&p->lock);
	news = strncmp(p->upgrade, state, len) != 0 || p->upgrade[len] != '\0';
	memcpy(p->upgrade, state, len);
	p->upgrade[len] = '\0';
	pthread_mutex_unlock(&p->lock);
	if (news)
		tell(p);
	return 0;
}

/* ---- life ---- */

static int watch(struct en_pods *p, const struct en_pods_options *o, struct err *err)
{
	struct buf pods = BUF_INIT, nodes = BUF_INIT;
	struct ku_reflector_options po = {.path = "/api/v1/pods",
					  .prune = ku_prune_pods,
					  .handler = {.on_sync_begin = on_sync_begin,
						      .on_object = on_pod,
						      .on_gone = on_pod_gone,
						      .on_synced = on_synced,
						      .on_problem = on_problem,
						      .ctx = p}};
	struct ku_reflector_options no = {
		.path = "/api/v1/nodes",
		.prune = ku_prune_nodes,
		.handler = {.on_object = on_node, .on_problem = on_problem, .ctx = p}};
	int r = 0;

	buf_printf(&pods, "spec.nodeName=%s", o->node);
	buf_printf(&nodes, "metadata.name=%s", o->node);
	po.field_selector = buf_str(&pods);
	no.field_selector = buf_str(&nodes);
	if (po.field_selector == NULL || no.field_selector == NULL)
		r = err_set(err, ERR_NOMEM, "out of memory");
	if (r == 0)
		r = ku_reflector_new(o->client, &po, &p->pods, err);
	if (r == 0)
		r = ku_reflector_new(o->client, &no, &p->nodes, err);
	buf_fini(&pods);
	buf_fini(&nodes);
	return r;
}

int en_pods_start(const struct en_pods_options *o, struct en_pods **ret, struct err *err)
{
	struct en_pods *p;
	int r;

	if (!ku_path_legal(o->node))
		return err_set(err, ERR_INVALID, "node name \"%.100s\" is not a name", o->node);
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	pthread_mutex_init(&p->lock, NULL);
	p->log = o->log;
	p->changed = o->changed;
	p->ctx = o->ctx;
	p->clock = ku_client_clock(o->client);
	p->prefix = strdup(o->prefix);
	p->arena = ku_arena_new();
	r = p->prefix != NULL && p->arena != NULL ? watch(p, o, err)
						  : err_set(err, ERR_NOMEM, "out of memory");
	if (r == 0)
		*ret = p;
	else
		en_pods_stop(p);
	return r;
}

void en_pods_stop(struct en_pods *p)
{
	struct row *r, *next;

	if (p == NULL)
		return;
	ku_reflector_free(p->pods);
	ku_reflector_free(p->nodes);
	HASH_ITER(hh, p->rows, r, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(p->rows, r);
		row_free(r);
	}
	ku_arena_free(p->arena);
	pthread_mutex_destroy(&p->lock);
	free(p->prefix);
	free(p);
}

/* ---- asking ---- */

bool en_pods_synced(struct en_pods *p)
{
	return ku_reflector_synced(p->pods);
}

void en_pods_each(struct en_pods *p, void (*fn)(void *ctx, const struct en_pod *pod), void *ctx)
{
	pthread_mutex_lock(&p->lock);
	for (const struct row *r = p->rows; r != NULL; r = r->hh.next)
		fn(ctx, &r->pod);
	pthread_mutex_unlock(&p->lock);
}

int en_pods_get(struct en_pods *p, const char *uid, struct en_pod **ret, struct err *err)
{
	struct row *r, *copy = NULL;
	bool found;

	pthread_mutex_lock(&p->lock);
	HASH_FIND_STR(p->rows, uid, r);
	for (struct row *at = p->rows; r == NULL && at != NULL; at = at->hh.next) {
		if (strcmp(at->pod.runtime_uid, uid) == 0)
			r = at;
	}
	found = r != NULL;
	if (found)
		copy = row_new(p, &r->pod);
	pthread_mutex_unlock(&p->lock);
	if (found && copy == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	*ret = copy != NULL ? &copy->pod : NULL;
	return 0;
}

void en_pod_free(struct en_pod *pod)
{
	row_free((struct row *)(void *)pod);
}

int64_t en_pods_next_deletion(struct en_pods *p)
{
	int64_t ret = 0;

	pthread_mutex_lock(&p->lock);
	for (const struct row *r = p->rows; r != NULL; r = r->hh.next) {
		if (r->pod.allocated && r->pod.delete_ms != 0 &&
		    (ret == 0 || r->pod.delete_ms < ret))
			ret = r->pod.delete_ms;
	}
	pthread_mutex_unlock(&p->lock);
	return ret;
}

bool en_pods_is_ours(struct en_pods *p, const char *ns, const char *name)
{
	bool ret = false;

	pthread_mutex_lock(&p->lock);
	for (const struct row *r = p->rows; r != NULL && !ret; r = r->hh.next)
		ret = r->pod.allocated && strcmp(r->pod.spec.name, name) == 0 &&
		      strcmp(r->pod.spec.ns, ns) == 0;
	pthread_mutex_unlock(&p->lock);
	return ret;
}

uint64_t en_pods_version(struct en_pods *p)
{
	uint64_t v;

	pthread_mutex_lock(&p->lock);
	v = p->version;
	pthread_mutex_unlock(&p->lock);
	return v;
}

void en_pods_upgrade_state(struct en_pods *p, char ret[64])
{
	pthread_mutex_lock(&p->lock);
	memcpy(ret, p->upgrade, sizeof(p->upgrade));
	pthread_mutex_unlock(&p->lock);
}

void en_pods_get_stats(struct en_pods *p, struct en_pods_stats *ret)
{
	struct ku_reflector_stats s;

	ku_reflector_get_stats(p->pods, &s);
	*ret = (struct en_pods_stats){.events = s.events,
				      .lists = s.lists,
				      .problems = s.problems,
				      .synced = ku_reflector_synced(p->pods)};
	pthread_mutex_lock(&p->lock);
	ret->pods = HASH_COUNT(p->rows);
	ret->unreadable = p->unreadable;
	pthread_mutex_unlock(&p->lock);
}

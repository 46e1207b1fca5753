/* What the watches tell, into the model. All of it runs on the watcher's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "extender/api_internal.h"

/* Objects that are not understood are noted and passed over: a bad one must not stop the rest. */

struct ex_watched_node {
	UT_hash_handle hh; /* by uid */
	char *uid, *name;
};

/* A bound pod that could not be booked, as the watch told of it last. */
struct ex_held {
	UT_hash_handle hh; /* by uid */
	char *uid, *node, *text;
	struct ex_held *next; /* while it is tried again */
};

static const char *meta(const cJSON *obj, const char *name)
{
	const cJSON *v = ku_json_get(ku_json_get(obj, "metadata"), name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- pods that are held back ---- */

static void held_free(struct ex_held *h)
{
	if (h == NULL)
		return;
	free(h->uid);
	free(h->node);
	free(h->text);
	free(h);
}

static void held_drop(struct ex_api *a, const char *uid)
{
	struct ex_held *h;

	HASH_FIND_STR(a->held, uid, h);
	if (h != NULL)
		HASH_DEL(a->held, h);
	held_free(h);
}

static bool held_known(const struct ex_api *a, const char *uid)
{
	struct ex_held *h;

	HASH_FIND_STR(a->held, uid, h);
	return h != NULL;
}

static int held_put(struct ex_api *a, const struct st_pod_spec *pod, const cJSON *obj,
		    struct err *err)
{
	struct ex_held *h = calloc(1, sizeof(*h));

	if (h != NULL) {
		h->uid = strdup(pod->uid);
		h->node = strdup(pod->node);
		h->text = cJSON_PrintUnformatted(obj);
	}
	if (h != NULL && h->uid != NULL && h->node != NULL && h->text != NULL) {
		held_drop(a, pod->uid);
		HASH_ADD_KEYPTR(hh, a->held, h->uid, strlen(h->uid), h);
		if (HASH_ADDED(h, hh))
			return 0;
	}
	held_free(h);
	return err_set(err, ERR_NOMEM, "out of memory for pod %s/%s", pod->ns, pod->name);
}

static void count_held(struct ex_api *a)
{
	pthread_mutex_lock(&a->lock);
	a->stats.pods_held = HASH_COUNT(a->held);
	pthread_mutex_unlock(&a->lock);
}

/* ---- pods ---- */

static void tell_held(struct ex_api *a, const struct st_pod_spec *pod, const char *why)
{
	char quoted[600], text[700];

	log_event(a->cfg.log, LOG_LEVEL_WARN, "pod-allocation",
		  "pod=%s/%s uid=%s node=%s reason=%s", pod->ns, pod->name, pod->uid, pod->node,
		  log_quote(why, quoted, sizeof(quoted)));
	snprintf(text, sizeof(text),
		 "The GPU allocation of this pod cannot be used, node %s gets no new GPU pods: %s",
		 pod->node, why);
	ku_event_post(a->events, &(struct ku_event){.type = KU_EVENT_WARNING,
						    .kind = "Pod",
						    .ns = pod->ns,
						    .name = pod->name,
						    .uid = pod->uid,
						    .reason = "AllocationUnreadable",
						    .message = text});
}

/* Into the books, and what it wishes: one step, for whoever looks at the wish. */
static int mirror_pod(struct ex_api *a, const struct st_pod_spec *pod, const cJSON *obj,
		      struct ex_mirror_pod *told, struct err *err)
{
	int rc;

	pthread_mutex_lock(&a->sight);
	rc = ex_mirror_pod(a->cfg.service, pod, false, told, err);
	if (rc == 0 && told->kind == EX_MIRROR_BOUND)
		rc = ex_api_wish_note(a, pod, obj, err);
	if (rc < 0 || told->kind != EX_MIRROR_BOUND)
		ex_api_wish_drop(a, pod->uid);
	pthread_mutex_unlock(&a->sight);
	return rc;
}

static int take_pod(struct ex_api *a, const cJSON *obj, struct err *err)
{
	struct st_pod_spec pod;
	struct ex_mirror_pod told;
	struct err why = ERR_INIT;
	char quoted[600];
	int rc;

	ku_arena_reset(a->arena);
	rc = ku_pod_decode(obj, a->arena, &pod, &why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "%s", why.msg);
	if (rc < 0) {
		log_event(a->cfg.log, LOG_LEVEL_WARN, "pod-unreadable",
			  "pod=%s/%s uid=%s reason=%s", meta(obj, "namespace"), meta(obj, "name"),
			  meta(obj, "uid"), log_quote(why.msg, quoted, sizeof(quoted)));
		return 0;
	}
	rc = mirror_pod(a, &pod, obj, &told, err);
	if (rc < 0)
		return rc;
	if (told.kind == EX_MIRROR_HELD) {
		rc = held_put(a, &pod, obj, err);
	} else if (held_known(a, pod.uid) || told.kind == EX_MIRROR_DONE || told.shrunk) {
		held_drop(a, pod.uid);
		ex_api_room_grew(a);
	}
	if (told.kind == EX_MIRROR_HELD && told.fenced && told.news)
		tell_held(a, &pod, told.why.msg);
	count_held(a);
	return rc;
}

static void on_pod_gone(void *ctx, const char *uid)
{
	struct ex_api *a = ctx;

	held_drop(a, uid);
	ex_api_wish_drop(a, uid);
	ex_mirror_pod_gone(a->cfg.service, uid);
	count_held(a);
	ex_api_room_grew(a);
}

static int on_pod(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	struct ex_api *a = ctx;

	if (change != KU_DELETED)
		return take_pod(a, obj, err);
	on_pod_gone(a, meta(obj, "uid"));
	return 0;
}

static void on_pods_synced(void *ctx, const char *rv)
{
	struct ex_api *a = ctx;
	struct ex_survey f;

	ex_service_survey(a->cfg.service, &f);
	log_event(a->cfg.log, LOG_LEVEL_INFO, "pods-listed", "version=%s pods=%zu", rv, f.pods);
	pthread_mutex_lock(&a->lock);
	a->pods_synced = a->verify_due = true;
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
}

/* ---- nodes ---- */

/* Pods that were held back on this node, in the light of what it is now. */
static void retry_held(struct ex_api *a, const char *node)
{
	struct ex_held *h, *next, *list = NULL;
	struct err err = ERR_INIT;

	HASH_ITER(hh, a->held, h, next) {
		if (strcmp(h->node, node) != 0)
			continue;
		HASH_DEL(a->held, h);
		h->next = list;
		list = h;
	}
	while ((h = list) != NULL) {
		cJSON *obj = NULL;

		list = h->next;
		if (ku_json_parse(h->text, strlen(h->text), &obj, &err) == 0)
			take_pod(a, obj, &err);
		cJSON_Delete(obj);
		held_free(h);
	}
}

static int64_t advertised_mib(const cJSON *obj)
{
	const cJSON *capacity = ku_json_get(ku_json_get(obj, "status"), "capacity");
	const cJSON *v = ku_json_get(capacity, EX_MEMORY_RESOURCE);
	int64_t mib = 0;

	if (v != NULL &&
	    (!cJSON_IsString(v) || quantity_parse(v->valuestring, QUANTITY_ONE, &mib, NULL) < 0))
		return -1;
	return mib;
}

static int node_known(struct ex_api *a, const char *uid, const char *name, struct err *err)
{
	struct ex_watched_node *n;

	HASH_FIND_STR(a->nodes, uid, n);
	if (n != NULL)
		return 0;
	n = calloc(1, sizeof(*n));
	if (n != NULL) {
		n->uid = strdup(uid);
		n->name = strdup(name);
	}
	if (n != NULL && n->uid != NULL && n->name != NULL) {
		HASH_ADD_KEYPTR(hh, a->nodes, n->uid, strlen(n->uid), n);
		if (HASH_ADDED(n, hh))
			return 0;
	}
	if (n != NULL) {
		free(n->uid);
		free(n->name);
	}
	free(n);
	return err_set(err, ERR_NOMEM, "out of memory for node %s", name);
}

/* A node of that name may be another one by now. */
static void node_gone(struct ex_api *a, const char *uid)
{
	struct ex_watched_node *n, *other;
	bool again = false;

	HASH_FIND_STR(a->nodes, uid, n);
	if (n == NULL)
		return;
	HASH_DEL(a->nodes, n);
	for (other = a->nodes; other != NULL && !again; other = other->hh.next)
		again = strcmp(other->name, n->name) == 0;
	if (!again) {
		ex_mirror_node_gone(a->cfg.service, n->name);
		ex_api_total_gone(a, n->name);
		ex_api_room_grew(a); /* another node may have had the same GPU */
	}
	free(n->uid);
	free(n->name);
	free(n);
}

static void post_twin(struct ex_api *a, const char *node, const char *uid, const char *gpu,
		      const char *other)
{
	char text[600];

	snprintf(text, sizeof(text),
		 "GPU %s is reported by node %s, too: neither gives it to new pods while both have "
		 "it. One inventory was copied, or the Node object of a renamed machine is still "
		 "there: delete the wrong one",
		 gpu, other);
	ku_event_post(a->events, &(struct ku_event){.type = KU_EVENT_WARNING,
						    .kind = "Node",
						    .name = node,
						    .uid = uid,
						    .reason = "GpuOnTwoNodes",
						    .message = text});
}

/* Both nodes hear of it; the kubelet, too, gives a node's name for its uid. */
static void tell_twin(struct ex_api *a, const char *node, const struct ex_mirror_node *told)
{
	log_event(a->cfg.log, LOG_LEVEL_WARN, "gpu-on-two-nodes", "gpu=%s node=%s other=%s",
		  told->twin_gpu, node, told->twin_node);
	post_twin(a, node, node, told->twin_gpu, told->twin_node);
	post_twin(a, told->twin_node, told->twin_node, told->twin_gpu, node);
}

static int take_node(struct ex_api *a, const cJSON *obj, struct err *err)
{
	struct st_node_spec spec = {0};
	struct ex_mirror_node told;
	struct err why = ERR_INIT;
	const char *name = meta(obj, "name");
	char quoted[600];
	int rc;

	if (name[0] == '\0')
		return 0;
	rc = node_known(a, meta(obj, "uid"), name, err);
	if (rc < 0)
		return rc;
	ku_arena_reset(a->arena);
	rc = ku_node_decode(obj, a->arena, &spec, &why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "%s", why.msg);
	spec.name = name;
	rc = ex_mirror_node(a->cfg.service, &spec, rc < 0 ? why.msg : NULL, &told, err);
	if (rc < 0)
		return rc;
	if (told.refused && told.news)
		log_event(a->cfg.log, LOG_LEVEL_WARN, "node-unreadable", "node=%s reason=%s", name,
			  log_quote(told.why.msg, quoted, sizeof(quoted)));
	if (told.twins)
		tell_twin(a, name, &told);
	if (!told.refused)
		ex_api_total_note(a, name, advertised_mib(obj), told.total_mib);
	if (told.changed) {
		retry_held(a, name);
		ex_api_room_grew(a);
	}
	return 0;
}

static int on_node(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	struct ex_api *a = ctx;

	if (change != KU_DELETED)
		return take_node(a, obj, err);
	node_gone(a, meta(obj, "uid"));
	return 0;
}

static void on_node_gone(void *ctx, const char *uid)
{
	node_gone(ctx, uid);
}

static void on_nodes_synced(void *ctx, const char *rv)
{
	struct ex_api *a = ctx;
	struct ex_survey f;

	ex_service_survey(a->cfg.service, &f);
	log_event(a->cfg.log, LOG_LEVEL_INFO, "nodes-listed", "version=%s nodes=%zu gpus=%zu", rv,
		  f.nodes, f.gpus);
	pthread_mutex_lock(&a->lock);
	a->nodes_synced = true;
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
}

/* ---- both ---- */

static void on_problem(void *ctx, const struct err *what)
{
	struct ex_api *a = ctx;
	char quoted[600];

	log_event(a->cfg.log, LOG_LEVEL_WARN, "watch-problem", "reason=%s",
		  log_quote(what->msg, quoted, sizeof(quoted)));
}

int ex_api_watch_start(struct ex_api *a, enum ex_api_kind kind, struct err *err)
{
	bool nodes = kind == EX_API_NODES;
	struct ku_reflector_options o = {
		.path = nodes ? "/api/v1/nodes" : "/api/v1/pods",
		/* A pod that ends leaves the selection, which is told as its deletion. */
		.field_selector = nodes ? NULL : "status.phase!=Succeeded,status.phase!=Failed",
		.prune = nodes ? ku_prune_nodes : ku_prune_pods,
		.consistent = true,
		.silence_ms = a->cfg.silence_ms,
		.handler =
			{
				.on_object = nodes ? on_node : on_pod,
				.on_gone = nodes ? on_node_gone : on_pod_gone,
				.on_synced = nodes ? on_nodes_synced : on_pods_synced,
				.on_problem = on_problem,
				.ctx = a,
			},
	};

	struct ku_reflector *r = NULL;
	uint64_t term = atomic_load(&a->term);
	int rc = ku_reflector_new(a->watcher, &o, &r, err);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&a->lock);
	a->reflector[kind] = r;
	pthread_mutex_unlock(&a->lock);
	/* A term that began in between did not find it. */
	if (atomic_load(&a->term) != term)
		ku_reflector_relist(r);
	return 0;
}

void ex_api_watch_fini(struct ex_api *a)
{
	struct ex_watched_node *n, *next;

	while (a->held != NULL)
		held_drop(a, a->held->uid);
	HASH_ITER(hh, a->nodes, n, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(a->nodes, n);
		free(n->uid);
		free(n->name);
		free(n);
	}
}

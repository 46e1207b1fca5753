/* Pods, and lists of objects. */
#include "kube/object.h"

#include <stdio.h>
#include <string.h>

#include "kube/object_internal.h"

/* ---- pods ---- */

/* A resource that is none of the kubelet's own: those have no domain. */
static bool is_extended(const char *name)
{
	return strchr(name, '/') != NULL;
}

/* The extended resources of both maps, limits before requests of the same name; sorted. */
static int merge_resources(const cJSON *limits, const cJSON *requests, struct ku_arena *a,
			   struct st_container_spec *ret, struct err *err)
{
	size_t limit_count = 0, request_count = 0, i = 0, j = 0;
	struct st_kv *limit, *request;
	int r = ku_copy_map(limits, "resources.limits", true, a, &limit, &limit_count, err);

	if (r == 0)
		r = ku_copy_map(requests, "resources.requests", true, a, &request, &request_count,
				err);
	if (r != 0)
		return r;
	ret->resources =
		ku_arena_alloc(a, (limit_count + request_count) * sizeof(ret->resources[0]));
	if (ret->resources == NULL)
		return ku_nomem(err);
	while (i < limit_count || j < request_count) {
		int order = i == limit_count     ? 1
			    : j == request_count ? -1
						 : strcmp(limit[i].key, request[j].key);
		const struct st_kv *kv = order <= 0 ? &limit[i] : &request[j];

		i += order <= 0;
		j += order >= 0;
		if (is_extended(kv->key))
			ret->resources[ret->resource_count++] = *kv;
	}
	return 0;
}

/* A container's request of CPU or memory; the API defaults it from the limit. */
static int host_request(const cJSON *requests, const cJSON *limits, const char *name,
			enum quantity_unit unit, int64_t *ret, struct err *err)
{
	char path[48];
	bool given;
	int r;

	snprintf(path, sizeof(path), "resources.requests.%s", name);
	r = ku_get_quantity(requests, name, path, unit, ret, &given, err);
	if (r != 0 || given)
		return r;
	snprintf(path, sizeof(path), "resources.limits.%s", name);
	return ku_get_quantity(limits, name, path, unit, ret, NULL, err);
}

static int decode_container(const cJSON *obj, bool init, struct ku_arena *a,
			    struct st_container_spec *ret, struct err *err)
{
	const cJSON *resources, *requests = NULL, *limits = NULL;
	const char *restart = "";
	int r;

	if (!cJSON_IsObject(obj))
		return ku_wrong_type(obj, "container", "an object", err);
	*ret = (struct st_container_spec){.init = init};
	r = ku_copy_string(obj, "name", "name", a, &ret->name, err);
	if (r == 0 && ret->name[0] == '\0')
		r = err_set(err, ERR_INVALID, "name: is missing");
	if (r == 0)
		r = ku_get_string(obj, "restartPolicy", "restartPolicy", &restart, err);
	if (r == 0)
		r = ku_get_object(obj, "resources", "resources", &resources, err);
	if (r == 0)
		r = ku_get_object(resources, "requests", "resources.requests", &requests, err);
	if (r == 0)
		r = ku_get_object(resources, "limits", "resources.limits", &limits, err);
	if (r == 0)
		r = host_request(requests, limits, "cpu", QUANTITY_MILLI, &ret->cpu_milli, err);
	if (r == 0)
		r = host_request(requests, limits, "memory", QUANTITY_ONE, &ret->mem_bytes, err);
	if (r != 0)
		return r;
	ret->sidecar = init && strcmp(restart, "Always") == 0;
	return merge_resources(limits, requests, a, ret, err);
}

static int decode_containers(const cJSON *spec, struct ku_arena *a, struct st_pod_spec *ret,
			     struct err *err)
{
	static const char *const names[] = {"initContainers", "containers"};
	static const char *const paths[] = {"spec.initContainers", "spec.containers"};
	const cJSON *lists[2], *v;
	size_t count;

	for (int i = 0; i < 2; i++) {
		int r = ku_get_array(spec, names[i], paths[i], &lists[i], err);

		if (r != 0)
			return r;
	}
	count = (size_t)cJSON_GetArraySize(lists[0]) + (size_t)cJSON_GetArraySize(lists[1]);
	ret->containers = ku_arena_alloc(a, count * sizeof(ret->containers[0]));
	if (ret->containers == NULL)
		return ku_nomem(err);
	for (int i = 0; i < 2; i++) {
		size_t n = 0;

		cJSON_ArrayForEach(v, lists[i])
		{
			struct st_container_spec *c = &ret->containers[ret->container_count];
			int r = decode_container(v, i == 0, a, c, err);

			if (r != 0)
				return ku_err_path(err, r, "%s[%zu].", paths[i], n);
			ret->container_count++;
			n++;
		}
	}
	return 0;
}

static int decode_metadata(const cJSON *meta, struct ku_arena *a, struct st_pod_spec *ret,
			   struct err *err)
{
	const cJSON *annotations = NULL;
	const char *deleted = "";
	int r = ku_copy_string(meta, "uid", "metadata.uid", a, &ret->uid, err);

	if (r == 0)
		r = ku_copy_string(meta, "name", "metadata.name", a, &ret->name, err);
	if (r == 0)
		r = ku_copy_string(meta, "namespace", "metadata.namespace", a, &ret->ns, err);
	if (r == 0)
		r = ku_get_string(meta, "deletionTimestamp", "metadata.deletionTimestamp", &deleted,
				  err);
	if (r == 0)
		r = ku_get_object(meta, "annotations", "metadata.annotations", &annotations, err);
	if (r == 0)
		r = ku_copy_map(annotations, "metadata.annotations", false, a, &ret->annotations,
				&ret->annotation_count, err);
	if (r != 0)
		return r;
	if (ret->name[0] == '\0')
		return err_set(err, ERR_INVALID, "metadata.name: is missing");
	if (ret->ns[0] == '\0')
		ret->ns = "default";
	ret->deleting = deleted[0] != '\0';
	return 0;
}

/* Requests of the pod as a whole; the API server fills them in where only limits are given. */
static int decode_pod_resources(const cJSON *spec, struct st_pod_spec *ret, struct err *err)
{
	const cJSON *resources = NULL, *requests = NULL;
	int r = ku_get_object(spec, "resources", "spec.resources", &resources, err);

	if (r == 0)
		r = ku_get_object(resources, "requests", "spec.resources.requests", &requests, err);
	if (r == 0)
		r = ku_get_quantity(requests, "cpu", "spec.resources.requests.cpu", QUANTITY_MILLI,
				    &ret->pod_cpu_milli, &ret->pod_cpu_given, err);
	if (r == 0)
		r = ku_get_quantity(requests, "memory", "spec.resources.requests.memory",
				    QUANTITY_ONE, &ret->pod_mem_bytes, &ret->pod_mem_given, err);
	return r;
}

static int decode_spec(const cJSON *spec, struct ku_arena *a, struct st_pod_spec *ret,
		       struct err *err)
{
	const cJSON *gates = NULL, *overhead = NULL;
	int64_t priority = 0;
	int r = ku_copy_string(spec, "nodeName", "spec.nodeName", a, &ret->node, err);

	if (r == 0)
		r = ku_copy_string(spec, "schedulerName", "spec.schedulerName", a, &ret->scheduler,
				   err);
	if (r == 0)
		r = ku_get_int(spec, "priority", "spec.priority", INT32_MIN, INT32_MAX, 0,
			       &priority, err);
	if (r == 0)
		r = ku_get_array(spec, "schedulingGates", "spec.schedulingGates", &gates, err);
	if (r == 0)
		r = ku_get_object(spec, "overhead", "spec.overhead", &overhead, err);
	if (r == 0)
		r = ku_get_quantity(overhead, "cpu", "spec.overhead.cpu", QUANTITY_MILLI,
				    &ret->overhead_cpu_milli, NULL, err);
	if (r == 0)
		r = ku_get_quantity(overhead, "memory", "spec.overhead.memory", QUANTITY_ONE,
				    &ret->overhead_mem_bytes, NULL, err);
	if (r == 0)
		r = decode_pod_resources(spec, ret, err);
	if (r == 0)
		r = decode_containers(spec, a, ret, err);
	if (r != 0)
		return r;
	ret->priority = (int32_t)priority;
	ret->gated = cJSON_GetArraySize(gates) > 0;
	return 0;
}

/* A phase that is not known holds what the pod was given, like Running. */
static enum st_phase phase_of(const char *phase)
{
	if (phase[0] == '\0' || strcmp(phase, "Pending") == 0)
		return ST_PHASE_PENDING;
	if (strcmp(phase, "Succeeded") == 0)
		return ST_PHASE_SUCCEEDED;
	return strcmp(phase, "Failed") == 0 ? ST_PHASE_FAILED : ST_PHASE_RUNNING;
}

int ku_pod_decode(const cJSON *obj, struct ku_arena *a, struct st_pod_spec *ret, struct err *err)
{
	const cJSON *meta = NULL, *spec = NULL, *status = NULL;
	struct st_pod_spec pod = {0};
	const char *phase = "";
	int r;

	if (!cJSON_IsObject(obj))
		return ku_wrong_type(obj, "pod", "an object", err);
	r = ku_get_object(obj, "metadata", "metadata", &meta, err);
	if (r == 0)
		r = ku_get_object(obj, "spec", "spec", &spec, err);
	if (r == 0)
		r = ku_get_object(obj, "status", "status", &status, err);
	if (r == 0)
		r = decode_metadata(meta, a, &pod, err);
	if (r == 0)
		r = decode_spec(spec, a, &pod, err);
	if (r == 0)
		r = ku_get_string(status, "phase", "status.phase", &phase, err);
	if (r == 0)
		r = ku_copy_string(status, "nominatedNodeName", "status.nominatedNodeName", a,
				   &pod.nominated_node, err);
	if (r != 0)
		return r;
	pod.phase = phase_of(phase);
	*ret = pod;
	return 0;
}

/* ---- lists ---- */

static int visit(const cJSON *obj, const char *kind, const struct ku_list_visitor *v,
		 struct ku_arena *a, struct err *err)
{
	int r = 0;

	if (strcmp(kind, "Node") == 0 && v->node != NULL) {
		struct st_node_spec node;

		r = ku_node_decode(obj, a, &node, err);
		if (r == 0)
			r = v->node(v->ctx, &node, err);
	} else if (strcmp(kind, "Pod") == 0 && v->pod != NULL) {
		struct st_pod_spec pod;

		r = ku_pod_decode(obj, a, &pod, err);
		if (r == 0)
			r = v->pod(v->ctx, &pod, err);
	}
	ku_arena_reset(a);
	return r < 0 ? r : 0;
}

static int visit_items(const cJSON *root, const char *item_kind, const struct ku_list_visitor *v,
		       struct ku_arena *a, struct err *err)
{
	const cJSON *items, *item;
	size_t i = 0;
	int r = ku_get_array(root, "items", "items", &items, err);

	if (r != 0)
		return r;
	cJSON_ArrayForEach(item, items)
	{
		const char *kind = item_kind != NULL ? item_kind : "";

		if (!cJSON_IsObject(item))
			r = ku_wrong_type(item, "item", "an object", err);
		else if (item_kind == NULL)
			r = ku_get_string(item, "kind", "kind", &kind, err);
		if (r == 0)
			r = visit(item, kind, v, a, err);
		if (r != 0)
			return ku_err_path(err, r, "items[%zu].", i);
		i++;
	}
	return 0;
}

int ku_list_decode(const cJSON *root, const struct ku_list_visitor *v, struct err *err)
{
	const char *kind = "";
	struct ku_arena *a;
	int r;

	if (!cJSON_IsObject(root))
		return ku_wrong_type(root, "list", "an object", err);
	r = ku_get_string(root, "kind", "kind", &kind, err);
	if (r != 0)
		return r;
	a = ku_arena_new();
	if (a == NULL)
		return ku_nomem(err);
	if (strcmp(kind, "List") == 0)
		r = visit_items(root, NULL, v, a, err);
	else if (strcmp(kind, "NodeList") == 0)
		r = visit_items(root, "Node", v, a, err);
	else if (strcmp(kind, "PodList") == 0)
		r = visit_items(root, "Pod", v, a, err);
	else if (strcmp(kind, "Node") == 0 || strcmp(kind, "Pod") == 0)
		r = visit(root, kind, v, a, err);
	else
		r = err_set(err, ERR_INVALID,
			    "kind: \"%.40s\" is not List, NodeList, PodList, Node or Pod", kind);
	ku_arena_free(a);
	return r;
}

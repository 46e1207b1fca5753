#include "replay/pod_json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/quantity.h"
#include "replay/trace.h"

#define PREFIX "nvidia.com/container."
#define CREATED "2026-01-01T00:00:00Z"
#define KEY_CAP 160

static bool put(cJSON *o, const char *key, const char *value)
{
	return cJSON_AddStringToObject(o, key, value) != NULL;
}

static bool put_number(cJSON *o, const char *key, int64_t v, const char *unit)
{
	char text[48];

	snprintf(text, sizeof(text), "%" PRId64 "%s", v, unit);
	return put(o, key, text);
}

static bool put_nano(cJSON *o, const char *key, int64_t nano)
{
	char text[24];

	return put(o, key, decimal_format_nano(nano, text));
}

static const char *key_of(char buf[KEY_CAP], const char *prefix, const struct st_item *it,
			  const char *suffix)
{
	snprintf(buf, KEY_CAP, "%s%s%s", prefix, it->container, suffix);
	return buf;
}

/* The only share of the pod: the pod-level keys, which know fractions and several devices. */
static bool put_pod_share(cJSON *a, const struct st_item *it)
{
	bool ok;

	if (it->request_nano > 0) {
		ok = put_nano(a, "gpu-fraction", it->request_nano);
		if (ok && it->limit_nano > it->request_nano)
			ok = put_nano(a, "gpu-fraction.limit", it->limit_nano);
	} else {
		ok = put_number(a, "gpu-memory", it->request_mib, "Mi");
		if (ok && it->limit_mib > it->request_mib)
			ok = put_number(a, "gpu-memory.limit", it->limit_mib, "Mi");
	}
	if (ok && it->count > 1)
		ok = put_number(a, "gpu-fraction-num-devices", it->count, "");
	return ok && put(a, "gpu-fraction-container-name", it->container);
}

static bool put_container_share(cJSON *a, const struct st_item *it)
{
	char key[KEY_CAP];
	bool ok = put_number(a, key_of(key, PREFIX, it, ".gpu-memory.request"), it->request_mib,
			     "Mi");

	if (ok && it->limit_mib > it->request_mib)
		ok = put_number(a, key_of(key, PREFIX, it, ".gpu-memory.limit"), it->limit_mib,
				"Mi");
	return ok;
}

static bool put_item(cJSON *a, const struct st_request *req, const struct st_item *it)
{
	char key[KEY_CAP];
	bool ok = true;

	if (it->kind == ST_KIND_MIG)
		return it->count > 1 ||
		       put(a, key_of(key, "tessera.dev/container.", it, ".mig-profile"),
			   it->profile);
	if (it->kind != ST_KIND_SHARE)
		return true;
	ok = req->item_count == 1 ? put_pod_share(a, it) : put_container_share(a, it);
	if (ok && it->mode == ST_MODE_SM_SHARING)
		ok = put(a, key_of(key, PREFIX, it, ".gpu-compute.mode"), st_mode_name(it->mode));
	if (ok && it->compute_nano > 0)
		ok = put_nano(a, key_of(key, PREFIX, it, ".gpu-compute.request"), it->compute_nano);
	if (ok && it->mode_preferred)
		ok = put(a, "tessera.dev/compute-mode-policy", "preferred");
	return ok;
}

static bool put_annotations(cJSON *meta, const struct st_request *req)
{
	cJSON *a = cJSON_AddObjectToObject(meta, "annotations");
	bool ok = a != NULL;

	if (ok && req->product[0] != '\0')
		ok = put(a, "tessera.dev/gpu-product", req->product);
	if (ok && req->workload != ST_WORKLOAD_NONE)
		ok = put(a, "tessera.dev/workload-profile",
			 req->workload == ST_WORKLOAD_MEMORY_BOUND ? "memory-bound"
								   : "compute-bound");
	for (unsigned i = 0; ok && i < req->item_count; i++)
		ok = put_item(a, req, &req->items[i]);
	return ok;
}

/* it NULL: a container without GPU. The first container carries CPU and memory of the pod. */
static bool put_container(cJSON *list, const struct st_request *req, const struct st_item *it,
			  bool first)
{
	cJSON *c = cJSON_CreateObject(), *resources, *limits, *requests;
	char key[KEY_CAP] = "";

	if (c == NULL || !cJSON_AddItemToArray(list, c)) {
		cJSON_Delete(c);
		return false;
	}
	if (!put(c, "name", it != NULL ? it->container : RP_CONTAINER) ||
	    !put(c, "image", "example/workload:1"))
		return false;
	resources = cJSON_AddObjectToObject(c, "resources");
	limits = cJSON_AddObjectToObject(resources, "limits");
	requests = cJSON_AddObjectToObject(resources, "requests");
	if (limits == NULL || requests == NULL)
		return false;
	if (first && (!put_number(requests, "cpu", req->cpu_milli, "m") ||
		      !put_number(requests, "memory", req->mem_mib, "Mi")))
		return false;
	if (it != NULL && it->kind == ST_KIND_WHOLE)
		snprintf(key, sizeof(key), "nvidia.com/gpu");
	if (it != NULL && it->kind == ST_KIND_MIG && it->count > 1)
		snprintf(key, sizeof(key), "nvidia.com/mig-%s", it->profile);
	return key[0] == '\0' ||
	       (put_number(limits, key, it->count, "") && put_number(requests, key, it->count, ""));
}

static bool put_spec(cJSON *pod, const struct st_request *req)
{
	cJSON *spec = cJSON_AddObjectToObject(pod, "spec");
	cJSON *list = cJSON_AddArrayToObject(spec, "containers");
	bool ok = list != NULL;

	if (ok && req->item_count == 0)
		ok = put_container(list, req, NULL, true);
	for (unsigned i = 0; ok && i < req->item_count; i++)
		ok = put_container(list, req, &req->items[i], i == 0);
	return ok && put(spec, "schedulerName", "tessera");
}

char *rp_pod_json(const struct st_request *req, const char *ns, const char *name, const char *uid)
{
	cJSON *pod = cJSON_CreateObject();
	cJSON *meta = cJSON_AddObjectToObject(pod, "metadata");
	char *text = NULL;

	if (put(meta, "name", name) && put(meta, "namespace", ns) && put(meta, "uid", uid) &&
	    put(meta, "creationTimestamp", CREATED) && put_annotations(meta, req) &&
	    put_spec(pod, req)) {
		cJSON *status = cJSON_AddObjectToObject(pod, "status");

		if (put(status, "phase", "Pending"))
			text = cJSON_PrintUnformatted(pod);
	}
	cJSON_Delete(pod);
	return text;
}

#include "replay/cluster_json.h"

#include <inttypes.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/hash.h"

#define PODS_A_NODE "1001" /* as in the published simulation: never binding */

/* Nodes are made one at a time, so that large tables need little memory. */
static void uuid_of(const char *node, unsigned gpu, char buf[48])
{
	uint64_t a = hash_str(node, UINT64_C(2) * gpu), b = hash_str(node, UINT64_C(2) * gpu + 1);

	snprintf(buf, 48, "GPU-%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(a >> 32),
		 (unsigned)(a >> 16 & 0xFFFF), (unsigned)(a & 0xFFFF), (unsigned)(b >> 48),
		 b & UINT64_C(0xFFFFFFFFFFFF));
}

/* {"version":1,"gpus":[{"uuid":...,"index":0,"product":...,"mem_mib":1000,"healthy":true},...]} as
 * text; NULL: no memory. */
static char *inventory_text(const char *name, const char *model, unsigned gpus, int64_t gpu_mib)
{
	cJSON *o = cJSON_CreateObject();
	cJSON *list = NULL;
	char *text = NULL;
	bool ok = cJSON_AddNumberToObject(o, "version", 1) != NULL &&
		  (list = cJSON_AddArrayToObject(o, "gpus")) != NULL;

	for (unsigned i = 0; ok && i < gpus; i++) {
		cJSON *gpu = cJSON_CreateObject();
		char uuid[48];

		uuid_of(name, i, uuid);
		ok = cJSON_AddStringToObject(gpu, "uuid", uuid) != NULL &&
		     cJSON_AddNumberToObject(gpu, "index", i) != NULL &&
		     cJSON_AddStringToObject(gpu, "product", model) != NULL &&
		     cJSON_AddNumberToObject(gpu, "mem_mib", (double)gpu_mib) != NULL &&
		     cJSON_AddTrueToObject(gpu, "healthy") != NULL &&
		     cJSON_AddItemToArray(list, gpu);
		if (!ok)
			cJSON_Delete(gpu);
	}
	if (ok)
		text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	return text;
}

static bool put_text(cJSON *o, const char *key, const char *v)
{
	return cJSON_AddStringToObject(o, key, v) != NULL;
}

static bool put_number_text(cJSON *o, const char *key, int64_t v, const char *unit)
{
	char text[48];

	snprintf(text, sizeof(text), "%" PRId64 "%s", v, unit);
	return put_text(o, key, text);
}

static bool put_metadata(cJSON *node, const char *name, const char *model, unsigned gpus,
			 int64_t gpu_mib)
{
	cJSON *meta = cJSON_AddObjectToObject(node, "metadata"), *labels, *annotations;
	char *inventory;
	bool ok;

	if (!put_text(meta, "name", name) || !put_text(meta, "uid", name))
		return false;
	if (gpus == 0)
		return true;
	labels = cJSON_AddObjectToObject(meta, "labels");
	if (!put_number_text(labels, "nvidia.com/gpu.count", gpus, "") ||
	    !put_number_text(labels, "nvidia.com/gpu.memory", gpu_mib, ""))
		return false;
	if (model[0] != '\0' && !put_text(labels, "nvidia.com/gpu.product", model))
		return false;
	inventory = inventory_text(name, model, gpus, gpu_mib);
	if (inventory == NULL)
		return false;
	annotations = cJSON_AddObjectToObject(meta, "annotations");
	ok = put_text(annotations, "tessera.dev/inventory", inventory);
	cJSON_free(inventory);
	return ok;
}

static bool put_status(cJSON *node, const struct rp_node *n)
{
	cJSON *status = cJSON_AddObjectToObject(node, "status");
	cJSON *allocatable = cJSON_AddObjectToObject(status, "allocatable");
	cJSON *conditions = cJSON_AddArrayToObject(status, "conditions");
	cJSON *ready = cJSON_CreateObject();

	if (!put_text(ready, "type", "Ready") || !put_text(ready, "status", "True") ||
	    !cJSON_AddItemToArray(conditions, ready)) {
		cJSON_Delete(ready);
		return false;
	}
	if (!put_number_text(allocatable, "cpu", n->cpu_milli, "m") ||
	    !put_number_text(allocatable, "memory", n->mem_mib, "Mi") ||
	    !put_text(allocatable, "pods", PODS_A_NODE))
		return false;
	return n->gpu_count == 0 ||
	       put_number_text(allocatable, "nvidia.com/gpu", n->gpu_count, "");
}

static char *node_text(const struct rp_trace *t, uint32_t i, int64_t gpu_mib)
{
	const struct rp_node *n = &t->nodes[i];
	const char *model = n->model != STRPOOL_NONE ? strpool_str(t->models, n->model) : "";
	cJSON *node = cJSON_CreateObject();
	char *text = NULL;

	if (put_text(node, "apiVersion", "v1") && put_text(node, "kind", "Node") &&
	    put_metadata(node, strpool_str(t->node_names, i), model, n->gpu_count, gpu_mib) &&
	    put_status(node, n))
		text = cJSON_PrintUnformatted(node);
	cJSON_Delete(node);
	return text;
}

int rp_cluster_json(FILE *out, const struct rp_trace *t, int64_t gpu_mib, struct err *err)
{
	fputs("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n", out);
	for (uint32_t i = 0; i < t->node_count; i++) {
		char *text = node_text(t, i, gpu_mib);

		if (text == NULL)
			return err_set(err, ERR_NOMEM, "out of memory");
		fputs(text, out);
		fputs(i + 1 < t->node_count ? ",\n" : "\n", out);
		cJSON_free(text);
	}
	fputs("]}\n", out);
	if (fflush(out) != 0 || ferror(out))
		return err_set(err, ERR_INTERNAL, "cannot write the cluster");
	return 0;
}

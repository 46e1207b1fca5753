/* Nodes: host resources, readiness, and GPUs from the inventory or from labels. */
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "kube/object_internal.h"
#include "state/request.h"

#define LABEL "nvidia.com/gpu."
#define MIG_RESOURCE "nvidia.com/mig-"
#define MIB (INT64_C(1) << 20)

struct node {
	struct ku_arena *a;
	struct err *err;
	const cJSON *meta, *spec, *status, *labels, *annotations, *allocatable, *capacity;
};

/* The node is unready because of "<what><detail>"; the first reason stays. */
static int set_unready(struct node *n, struct st_node_spec *ret, const char *what,
		       const char *detail)
{
	size_t size = strlen(what) + strlen(detail) + 1;
	char *why;

	if (ret->unready)
		return 0;
	why = ku_arena_alloc(n->a, size);
	if (why == NULL)
		return ku_nomem(n->err);
	snprintf(why, size, "%s%s", what, detail);
	ret->unready = true;
	ret->why_unready = why;
	return 0;
}

static int get_sections(struct node *n, const cJSON *obj)
{
	const struct {
		const cJSON **in, **out;
		const char *name, *path;
	} sections[] = {
		{&obj, &n->meta, "metadata", "metadata"},
		{&obj, &n->spec, "spec", "spec"},
		{&obj, &n->status, "status", "status"},
		{&n->meta, &n->labels, "labels", "metadata.labels"},
		{&n->meta, &n->annotations, "annotations", "metadata.annotations"},
		{&n->status, &n->allocatable, "allocatable", "status.allocatable"},
		{&n->status, &n->capacity, "capacity", "status.capacity"},
	};

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		int r = ku_get_object(*sections[i].in, sections[i].name, sections[i].path,
				      sections[i].out, n->err);

		if (r != 0)
			return r;
	}
	return 0;
}

/* What pods may use of a resource: allocatable, or capacity where that is not said. */
static int get_resource(struct node *n, const char *name, enum quantity_unit unit, int64_t *ret)
{
	char path[64];
	bool given;
	int r;

	snprintf(path, sizeof(path), "status.allocatable.%s", name);
	r = ku_get_quantity(n->allocatable, name, path, unit, ret, &given, n->err);
	if (r != 0 || given)
		return r;
	snprintf(path, sizeof(path), "status.capacity.%s", name);
	return ku_get_quantity(n->capacity, name, path, unit, ret, NULL, n->err);
}

static int decode_resources(struct node *n, struct st_node_spec *ret)
{
	int64_t bytes = 0, pods = 0;
	int r = get_resource(n, "cpu", QUANTITY_MILLI, &ret->cpu_milli);

	if (r == 0)
		r = get_resource(n, "memory", QUANTITY_ONE, &bytes);
	if (r == 0)
		r = get_resource(n, "pods", QUANTITY_ONE, &pods);
	if (r != 0)
		return r;
	ret->mem_mib = bytes / MIB; /* down: what there is, not what is asked for */
	ret->pods = (int32_t)arith_min(pods, INT32_MAX);
	return 0;
}

/* A condition that must be True where it is there. */
static int check_condition(struct node *n, const cJSON *condition, size_t i,
			   struct st_node_spec *ret)
{
	const char *type = "", *status = "", *reason = "";
	char what[64];
	int r;

	if (!cJSON_IsObject(condition))
		r = ku_wrong_type(condition, "condition", "an object", n->err);
	else
		r = ku_get_string(condition, "type", "type", &type, n->err);
	if (r == 0)
		r = ku_get_string(condition, "status", "status", &status, n->err);
	if (r == 0)
		r = ku_get_string(condition, "reason", "reason", &reason, n->err);
	if (r != 0)
		return ku_err_path(n->err, r, "status.conditions[%zu].", i);
	if ((strcmp(type, "Ready") != 0 && strcmp(type, "TesseraReady") != 0) ||
	    strcmp(status, "True") == 0)
		return 0;
	snprintf(what, sizeof(what), "%s is %s%s", type,
		 strcmp(status, "False") == 0 ? "False" : "Unknown", reason[0] != '\0' ? ": " : "");
	return set_unready(n, ret, what, reason);
}

static int decode_readiness(struct node *n, struct st_node_spec *ret)
{
	const cJSON *conditions = NULL, *condition;
	const char *deleted = "";
	bool unschedulable = false;
	size_t i = 0;
	int r = ku_get_string(n->meta, "deletionTimestamp", "metadata.deletionTimestamp", &deleted,
			      n->err);

	if (r == 0 && deleted[0] != '\0')
		r = set_unready(n, ret, "is being deleted", "");
	if (r == 0)
		r = ku_get_bool(n->spec, "unschedulable", "spec.unschedulable", false,
				&unschedulable, n->err);
	if (r == 0 && unschedulable)
		r = set_unready(n, ret, "is cordoned", "");
	if (r == 0)
		r = ku_get_array(n->status, "conditions", "status.conditions", &conditions, n->err);
	if (r != 0)
		return r;
	cJSON_ArrayForEach(condition, conditions)
	{
		r = check_condition(n, condition, i++, ret);
		if (r != 0)
			return r;
	}
	return 0;
}

/* ---- GPUs from labels ---- */

/* A label that must be an integer in [0, max]; absent: *ret = -1. */
static int get_label_int(struct node *n, const char *name, int64_t max, int64_t *ret)
{
	const char *text;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "metadata.labels.%s", name);
	r = ku_get_string(n->labels, name, path, &text, n->err);
	if (r != 0)
		return r;
	*ret = -1;
	if (text[0] == '\0')
		return 0;
	r = integer_parse(text, 0, max, ret, n->err);
	return r != 0 ? err_prefix(n->err, r, "%s", path) : 0;
}

/* The product without what the device plugin adds for sharing. */
static int decode_product(struct node *n, struct st_node_spec *ret)
{
	static const char shared[] = "-SHARED";
	const char *text;
	char *product;
	size_t len;
	int r = ku_get_string(n->labels, LABEL "product", "metadata.labels." LABEL "product", &text,
			      n->err);

	if (r != 0 || text[0] == '\0')
		return r;
	product = ku_arena_str(n->a, text);
	if (product == NULL)
		return ku_nomem(n->err);
	len = strlen(product);
	if (len > strlen(shared) && strcmp(product + len - strlen(shared), shared) == 0)
		product[len - strlen(shared)] = '\0';
	ret->product = product;
	return 0;
}

static bool is_zero(const cJSON *v)
{
	return cJSON_IsNull(v) || (cJSON_IsString(v) && strcmp(v->valuestring, "0") == 0) ||
	       (cJSON_IsNumber(v) && !(v->valuedouble > 0));
}

static bool has_mig(const cJSON *map, const char *suffix)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, map)
	{
		size_t len = strlen(v->string), tail = strlen(suffix);

		if (strncmp(v->string, MIG_RESOURCE, strlen(MIG_RESOURCE)) == 0 && len > tail &&
		    strcmp(v->string + len - tail, suffix) == 0 && !is_zero(v))
			return true;
	}
	return false;
}

/* Labels do not say which GPU has which instances, so they tell nothing of use here about a node
 * with MIG: with strategy "single", count and memory are even those of the instances. */
static bool is_partitioned(const struct node *n, const struct st_node_spec *ret)
{
	return (ret->product != NULL && strstr(ret->product, "-MIG-") != NULL) ||
	       has_mig(n->labels, ".count") || has_mig(n->allocatable, "");
}

static int decode_labels(struct node *n, struct st_node_spec *ret)
{
	int64_t count = 0, mem = 0;
	int r = get_label_int(n, LABEL "count", ST_GPUS_MAX, &count);

	if (r != 0)
		return r;
	if (is_partitioned(n, ret))
		return set_unready(n, ret, "GPUs are partitioned by MIG and the node has no ",
				   KU_INVENTORY_KEY);
	if (count <= 0)
		return 0;
	r = get_label_int(n, LABEL "memory", INT32_MAX, &mem);
	if (r != 0)
		return r;
	if (mem <= 0)
		return err_set(n->err, ERR_INVALID,
			       "metadata.labels." LABEL "memory: is missing or 0 beside " LABEL
			       "count: \"%lld\"",
			       (long long)count);
	ret->gpus = ku_arena_alloc(n->a, (size_t)count * sizeof(ret->gpus[0]));
	if (ret->gpus == NULL)
		return ku_nomem(n->err);
	for (int64_t i = 0; i < count; i++)
		ret->gpus[i].mem_mib = (int32_t)mem;
	ret->gpu_count = (size_t)count;
	return 0;
}

static int decode_gpus(struct node *n, struct st_node_spec *ret)
{
	const char *inventory, *why;
	struct err cause = ERR_INIT;
	int r = ku_get_string(n->annotations, KU_INVENTORY_KEY,
			      "metadata.annotations." KU_INVENTORY_KEY, &inventory, n->err);

	if (r == 0)
		r = decode_product(n, ret);
	if (r != 0)
		return r;
	if (ku_json_get(n->annotations, KU_INVENTORY_KEY) == NULL)
		return decode_labels(n, ret);
	r = ku_inventory_decode(inventory, n->a, ret, &cause);
	if (r == ERR_NOMEM)
		return ku_nomem(n->err);
	why = KU_INVENTORY_KEY " cannot be read: ";
	return r != 0 ? set_unready(n, ret, why, cause.msg) : 0;
}

int ku_node_decode(const cJSON *obj, struct ku_arena *a, struct st_node_spec *ret, struct err *err)
{
	struct node n = {.a = a, .err = err};
	struct st_node_spec node = {0};
	int r;

	if (!cJSON_IsObject(obj))
		return ku_wrong_type(obj, "node", "an object", err);
	r = get_sections(&n, obj);
	if (r == 0)
		r = ku_copy_string(n.meta, "name", "metadata.name", a, &node.name, err);
	if (r == 0 && node.name[0] == '\0')
		r = err_set(err, ERR_INVALID, "metadata.name: is missing");
	if (r == 0)
		r = decode_resources(&n, &node);
	if (r == 0)
		r = decode_readiness(&n, &node);
	if (r == 0)
		r = decode_gpus(&n, &node);
	if (r == 0)
		*ret = node;
	return r;
}

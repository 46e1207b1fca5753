#include "replay/node_type.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/quantity.h"
#include "kube/object.h"
#include "replay/openb.h"

#define COST_MAX_NANO INT64_C(9000000000)

enum field { NAME, CPU, MEMORY, GPUS, MODEL, GPU_MEMORY, COST, MAX, MIG, FIELDS };
static const char *const names[FIELDS] = {"name",       "cpu",  "memory", "gpus", "model",
					  "gpu-memory", "cost", "max",    "mig"};

static int text_field(enum field f, const char *v, char *dst, size_t cap, struct err *err)
{
	size_t len = strlen(v);

	if (len == 0 || len >= cap)
		return err_set(err, ERR_INVALID, "%s: \"%.80s\" is empty or too long", names[f], v);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)v[i];

		/* A name becomes part of node names. */
		if (c < ' ' || c == 0x7f || c == '|' || (f == NAME && (c == ' ' || c == ',')))
			return err_set(err, ERR_INVALID,
				       "%s: \"%.80s\" has a character that it may not", names[f],
				       v);
	}
	memcpy(dst, v, len + 1);
	return 0;
}

static int number_field(enum field f, const char *v, int64_t min, int64_t max,
			enum quantity_unit unit, int64_t *ret, struct err *err)
{
	int64_t n;
	int rc = quantity_parse(v, unit, &n, err);

	if (rc == 0 && (n < min || n > max))
		rc = err_set(err, ERR_RANGE, "\"%s\" is not within %" PRId64 " and %" PRId64, v,
			     min, max);
	if (rc < 0)
		return err_prefix(err, rc, "%s", names[f]);
	*ret = n;
	return 0;
}

static int set_field(struct rp_node_type *t, enum field f, const char *v, struct err *err)
{
	int64_t n = 0;
	int rc = 0;

	switch (f) {
	case NAME:
		return text_field(f, v, t->name, sizeof(t->name), err);
	case MODEL:
		return text_field(f, v, t->model, sizeof(t->model), err);
	case CPU:
		return number_field(f, v, 1, 1000000000, QUANTITY_MILLI, &t->cpu_milli, err);
	case MEMORY:
		return number_field(f, v, 1, INT64_C(1000000000000), QUANTITY_MI, &t->mem_mib, err);
	case GPUS:
		rc = number_field(f, v, 0, ST_GPUS_MAX, QUANTITY_ONE, &n, err);
		t->gpus = (uint8_t)n;
		return rc;
	case GPU_MEMORY:
		rc = number_field(f, v, 1, 1 << 24, QUANTITY_MI, &n, err);
		t->gpu_mib = (int32_t)n;
		return rc;
	case MAX:
		return number_field(f, v, 0, RP_NODES_MAX, QUANTITY_ONE, &t->max, err);
	case COST:
		rc = quantity_parse(v, QUANTITY_MILLI, &n, err);
		if (rc == 0 && (n < 1 || n > INT64_C(1000000000000)))
			rc = err_set(err, ERR_RANGE, "\"%s\" is not within 0.001 and 1000000000",
				     v);
		if (rc < 0)
			return err_prefix(err, rc, "cost");
		t->cost_nano = n * 1000000;
		return 0;
	case MIG:
	default:
		t->mig = strcmp(v, "yes") == 0    ? RP_MIG_YES
			 : strcmp(v, "auto") == 0 ? RP_MIG_AUTO
						  : RP_MIG_NO;
		if (t->mig == RP_MIG_NO && strcmp(v, "no") != 0)
			return err_set(err, ERR_INVALID, "mig: \"%.40s\" is not yes, auto or no",
				       v);
		return 0;
	}
}

static int check(const struct rp_node_type *t, unsigned seen, struct err *err)
{
	for (int f = NAME; f <= GPUS; f++)
		if ((seen & 1U << f) == 0)
			return err_set(err, ERR_INVALID, "%s is missing", names[f]);
	if (t->mig != RP_MIG_NO && st_mig_table_find(t->model, t->gpu_mib) == NULL)
		return err_set(err, ERR_INVALID,
			       "mig: no MIG geometry is known for model \"%s\" with %d MiB",
			       t->model, (int)t->gpu_mib);
	return 0;
}

static int find_field(const char *s, size_t len, unsigned *seen, struct err *err)
{
	for (int f = 0; f < FIELDS; f++)
		if ((strlen(names[f]) == len && memcmp(names[f], s, len) == 0) ||
		    (f == GPU_MEMORY && len == 10 && memcmp(s, "gpu_memory", 10) == 0)) {
			if ((*seen & 1U << f) != 0)
				return err_set(err, ERR_INVALID, "%s is given twice", names[f]);
			*seen |= 1U << f;
			return f;
		}
	return err_set(err, ERR_INVALID, "no such field: \"%.*s\"", len < 40 ? (int)len : 40, s);
}

int rp_node_type_parse(const char *text, struct rp_node_type *ret, struct err *err)
{
	struct rp_node_type t = {.cost_nano = 1000000000, .max = RP_NODES_MAX};
	unsigned seen = 0;

	for (const char *s = text;;) {
		size_t len = strcspn(s, ",");
		const char *eq = memchr(s, '=', len);
		char value[ST_PRODUCT_CAP];
		int f, rc;

		if (eq == NULL || len - (size_t)(eq + 1 - s) >= sizeof(value))
			return err_set(err, ERR_INVALID, "\"%.*s\" is not of the form field=value",
				       len < 80 ? (int)len : 80, s);
		memcpy(value, eq + 1, len - (size_t)(eq + 1 - s));
		value[len - (size_t)(eq + 1 - s)] = '\0';
		f = find_field(s, (size_t)(eq - s), &seen, err);
		rc = f < 0 ? f : set_field(&t, (enum field)f, value, err);
		if (rc < 0)
			return rc;
		if (s[len] == '\0')
			break;
		s += len + 1;
	}
	if (check(&t, seen, err) < 0)
		return ERR_INVALID;
	*ret = t;
	return 0;
}

static int from_object(const cJSON *o, struct rp_node_type *t, struct err *err)
{
	unsigned seen = 0;
	const cJSON *x;

	*t = (struct rp_node_type){.cost_nano = 1000000000, .max = RP_NODES_MAX};
	cJSON_ArrayForEach(x, o)
	{
		char number[40];
		const char *v = x->valuestring;
		int f = find_field(x->string, strlen(x->string), &seen, err), rc;

		if (f < 0)
			return f;
		if (cJSON_IsNumber(x)) {
			snprintf(number, sizeof(number), "%.15g", x->valuedouble);
			v = number;
		} else if (cJSON_IsBool(x) && f == MIG) {
			v = cJSON_IsTrue(x) ? "yes" : "no";
		} else if (!cJSON_IsString(x)) {
			return err_set(err, ERR_INVALID, "%s: neither a number nor a text",
				       names[f]);
		}
		rc = set_field(t, (enum field)f, v, err);
		if (rc < 0)
			return rc;
	}
	return check(t, seen, err);
}

int rp_node_types_add(struct rp_node_type types[RP_NODE_TYPES_MAX], size_t *count,
		      const struct rp_node_type *add, struct err *err)
{
	for (size_t i = 0; i < *count; i++)
		if (strcmp(types[i].name, add->name) == 0)
			return err_set(err, ERR_EXISTS, "name: \"%s\" twice", add->name);
	if (*count == RP_NODE_TYPES_MAX)
		return err_set(err, ERR_RANGE, "more than %d node types", RP_NODE_TYPES_MAX);
	types[(*count)++] = *add;
	return 0;
}

int rp_node_types_json(const char *text, size_t len, struct rp_node_type types[RP_NODE_TYPES_MAX],
		       size_t *count, struct err *err)
{
	cJSON *root = NULL;
	const cJSON *o;
	size_t i = 0;
	int rc = ku_json_parse(text, len, &root, err);

	if (rc == 0 && !cJSON_IsArray(root))
		rc = err_set(err, ERR_INVALID, "not a list of node types");
	if (rc == 0)
		cJSON_ArrayForEach(o, root)
		{
			struct rp_node_type t;

			rc = cJSON_IsObject(o) ? from_object(o, &t, err)
					       : err_set(err, ERR_INVALID, "not an object");
			if (rc == 0)
				rc = rp_node_types_add(types, count, &t, err);
			if (rc < 0) {
				err_prefix(err, rc, "node type %zu", i);
				break;
			}
			i++;
		}
	cJSON_Delete(root);
	return rc;
}

int rp_trace_add_nodes(struct rp_trace *t, const struct rp_node_type *type, int64_t n,
		       struct err *err)
{
	struct rp_node node = {
		.cpu_milli = type->cpu_milli,
		.mem_mib = type->mem_mib,
		.model = STRPOOL_NONE,
		.gpu_mib = type->gpu_mib,
		.gpu_count = type->gpus,
		.mig = type->mig,
		.geometry = type->mig != RP_MIG_NO ? st_mig_table_find(type->model, type->gpu_mib)
						   : NULL,
	};

	/* Shares in a pod table are 1/1000 of a GPU, whatever its size. */
	if (t->unit_mib == RP_GPU_UNITS && type->mig != RP_MIG_YES)
		node.gpu_mib = 0;
	else if (type->gpu_mib == 0 && type->gpus > 0)
		return err_set(err, ERR_INVALID,
			       "gpu-memory is missing: the pods of a cluster ask for MiB");
	if (type->model[0] != '\0') {
		node.model = strpool_intern(t->models, type->model, strlen(type->model));
		if (node.model == STRPOOL_NONE)
			return err_set(err, ERR_NOMEM, "out of memory");
	}
	for (int64_t i = 0; i < n; i++) {
		char name[96];
		int len = snprintf(name, sizeof(name), "%s-%05" PRId64, type->name, i);
		int rc = rp_trace_add_node(t, name, (size_t)len, &node, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int rp_trace_view(const struct rp_trace *t, const struct rp_node_type *types, const int64_t *counts,
		  size_t type_count, struct rp_trace *ret, struct err *err)
{
	struct rp_trace v = *t;
	int rc = 0;

	v.node_names = strpool_new();
	v.models = strpool_new();
	v.nodes = NULL;
	v.node_count = v.node_cap = 0;
	v.gpu_milli = 0;
	memset(v.json, 0, sizeof(v.json));
	if (v.node_names == NULL || v.models == NULL)
		rc = err_set(err, ERR_NOMEM, "out of memory");
	for (size_t i = 0; rc == 0 && i < type_count; i++)
		rc = rp_trace_add_nodes(&v, &types[i], counts[i], err);
	if (rc < 0) {
		rp_trace_view_fini(&v);
		return rc;
	}
	*ret = v;
	return 0;
}

void rp_trace_view_fini(struct rp_trace *v)
{
	strpool_free(v->node_names);
	strpool_free(v->models);
	free(v->nodes);
	v->node_names = v->models = NULL;
	v->nodes = NULL;
}

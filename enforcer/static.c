#include "enforcer/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/quantity.h"
#include "enforcer/apply.h"
#include "kube/object.h"
#include "state/cluster.h"
#include "state/mig.h"

#define FILE_MAX ((size_t)4 << 20)
#define PODS_MAX 1024
/* Amounts are checked against the GPU itself when they are applied. */
#define ANY_GPU_MIB INT32_MAX

struct pod {
	char ns[64], name[254];
	struct st_decision d;
	size_t gpu_count; /* GPUs that the decision speaks of */
	char gpus[ST_GPUS_MAX][EN_UUID_CAP];
	struct st_annotations annotations;
};

struct en_static {
	size_t count;
	struct pod *pods;
};

/* ---- fields ---- */

static int text(const cJSON *o, size_t at, const char *name, const char *fallback, const char **ret,
		struct err *err)
{
	const cJSON *v = ku_json_get(o, name);

	if (v == NULL && fallback != NULL) {
		*ret = fallback;
		return 0;
	}
	if (v == NULL || !cJSON_IsString(v) || v->valuestring[0] == '\0')
		return err_set(err, ERR_INVALID, "allocations[%zu].%s is %s", at, name,
			       v == NULL ? "missing" : "not a text");
	*ret = v->valuestring;
	return 0;
}

static int mib(const cJSON *o, size_t at, const char *name, int32_t fallback, int32_t *ret,
	       struct err *err)
{
	const char *s = NULL;
	int64_t v = 0;
	int r;

	if (fallback > 0 && ku_json_get(o, name) == NULL) {
		*ret = fallback;
		return 0;
	}
	r = text(o, at, name, NULL, &s, err);
	if (r != 0)
		return r;
	r = quantity_parse(s, QUANTITY_MI, &v, err);
	if (r == 0 && (v < 1 || v > INT32_MAX))
		r = err_set(err, ERR_RANGE, "\"%.60s\" is not 1 MiB or more of a GPU", s);
	if (r != 0)
		return err_prefix(err, r, "allocations[%zu].%s", at, name);
	*ret = (int32_t)v;
	return 0;
}

static int known_fields(const cJSON *o, size_t at, struct err *err)
{
	static const char *const names[] = {"namespace", "pod",          "container", "gpus",
					    "memory",    "memory-limit", "mode",      "compute",
					    "whole",     "mig-profile",  "mig-start"};
	const cJSON *v;

	if (!cJSON_IsObject(o))
		return err_set(err, ERR_INVALID, "allocations[%zu] is not an object", at);
	cJSON_ArrayForEach(v, o)
	{
		size_t i = 0;

		while (i < sizeof(names) / sizeof(names[0]) && strcmp(names[i], v->string) != 0)
			i++;
		if (i == sizeof(names) / sizeof(names[0]))
			return err_set(err, ERR_INVALID, "allocations[%zu].%.60s: no such field",
				       at, v->string);
	}
	return 0;
}

/* Its place among the pod's GPUs; taken in when it is new. -1: too many. */
static int gpu_place(struct pod *p, const char *uuid)
{
	size_t i = 0;

	while (i < p->gpu_count && strcmp(p->gpus[i], uuid) != 0)
		i++;
	if (i == ST_GPUS_MAX)
		return -1;
	if (i == p->gpu_count) {
		snprintf(p->gpus[i], sizeof(p->gpus[i]), "%s", uuid);
		p->gpu_count++;
	}
	return (int)i;
}

static int take_gpus(struct pod *p, const cJSON *o, size_t at, struct st_grant *g, struct err *err)
{
	const cJSON *list = ku_json_get(o, "gpus"), *v;

	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 ||
	    cJSON_GetArraySize(list) > ST_GPUS_MAX)
		return err_set(err, ERR_INVALID, "allocations[%zu].gpus is no list of 1 to %d GPUs",
			       at, ST_GPUS_MAX);
	cJSON_ArrayForEach(v, list)
	{
		int place;

		if (!cJSON_IsString(v) || strncmp(v->valuestring, "GPU-", 4) != 0 ||
		    strlen(v->valuestring) >= EN_UUID_CAP)
			return err_set(err, ERR_INVALID,
				       "allocations[%zu].gpus[%d] is not the UUID of a GPU", at,
				       g->count);
		place = gpu_place(p, v->valuestring);
		for (int i = 0; place >= 0 && g->kind != ST_KIND_MIG && i < g->count; i++) {
			if (g->gpu[i] == place)
				return err_set(err, ERR_INVALID,
					       "allocations[%zu].gpus has %.60s twice", at,
					       v->valuestring);
		}
		if (place < 0)
			return err_set(err, ERR_INVALID, "allocations[%zu]: too many GPUs", at);
		g->gpu[g->count++] = (uint8_t)place;
	}
	return 0;
}

static int take_mig(const cJSON *o, size_t at, const char *profile, struct st_grant *g,
		    struct err *err)
{
	const cJSON *list = ku_json_get(o, "mig-start"), *v;
	int i = 0;

	if (strlen(profile) >= sizeof(g->profile))
		return err_set(err, ERR_INVALID, "allocations[%zu].mig-profile is too long", at);
	snprintf(g->profile, sizeof(g->profile), "%s", profile);
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != g->count)
		return err_set(err, ERR_INVALID,
			       "allocations[%zu].mig-start has not a number for each of %d GPUs",
			       at, g->count);
	cJSON_ArrayForEach(v, list)
	{
		if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) ||
		    v->valuedouble >= ST_MIG_UNITS_MAX ||
		    (double)(int)v->valuedouble != v->valuedouble)
			return err_set(err, ERR_INVALID,
				       "allocations[%zu].mig-start[%d] is no memory unit", at, i);
		g->start[i] = (uint8_t)v->valuedouble;
		for (int k = 0; k < i; k++) {
			if (g->gpu[k] == g->gpu[i] && g->start[k] == g->start[i])
				return err_set(err, ERR_INVALID,
					       "allocations[%zu] has the same MIG instance twice",
					       at);
		}
		i++;
	}
	return 0;
}

static int take_share(const cJSON *o, size_t at, struct st_grant *g, struct err *err)
{
	const char *mode = NULL, *compute = NULL;
	int64_t nano = 0;
	int m, r;

	r = mib(o, at, "memory", 0, &g->request_mib, err);
	if (r == 0)
		r = mib(o, at, "memory-limit", g->request_mib, &g->limit_mib, err);
	if (r == 0 && g->limit_mib < g->request_mib)
		r = err_set(err, ERR_INVALID,
			    "allocations[%zu].memory-limit is %d MiB, below the memory of %d", at,
			    g->limit_mib, g->request_mib);
	if (r == 0)
		r = text(o, at, "mode", "time-slicing", &mode, err);
	if (r != 0)
		return r;
	m = st_mode_parse(mode);
	if (m != ST_MODE_TIME_SLICING && m != ST_MODE_SM_SHARING)
		return err_set(err, ERR_INVALID,
			       "allocations[%zu].mode is \"%.40s\", not time-slicing or sm-sharing",
			       at, mode);
	g->mode = (enum st_mode)m;
	if (ku_json_get(o, "compute") == NULL)
		return 0;
	r = text(o, at, "compute", NULL, &compute, err);
	if (r == 0) {
		r = decimal_parse_nano(compute, &nano, err);
		if (r == 0 && (nano < 1 || nano > 1000000000))
			r = err_set(err, ERR_RANGE, "\"%.40s\" is not in (0, 1]", compute);
		if (r != 0)
			return err_prefix(err, r, "allocations[%zu].compute", at);
	}
	g->compute_nano = (int32_t)nano;
	return r;
}

/* What kind it is, by what is said. */
static int take_grant(struct pod *p, const cJSON *o, size_t at, const char *container,
		      struct err *err)
{
	const cJSON *whole = ku_json_get(o, "whole"), *profile = ku_json_get(o, "mig-profile");
	const cJSON *memory = ku_json_get(o, "memory");
	struct st_grant g = {.kind = ST_KIND_SHARE};
	int r;

	if (cJSON_IsTrue(whole) + (profile != NULL) + (memory != NULL) != 1)
		return err_set(err, ERR_INVALID,
			       "allocations[%zu] needs one of memory, whole, mig-profile", at);
	if (strlen(container) >= sizeof(g.container) || strpbrk(container, ",;=._/") != NULL)
		return err_set(err, ERR_INVALID,
			       "allocations[%zu].container: \"%.80s\" is no container name", at,
			       container);
	if (p->d.grant_count == ST_ITEMS_MAX)
		return err_set(err, ERR_INVALID, "allocations[%zu]: over %d containers in a pod",
			       at, ST_ITEMS_MAX);
	snprintf(g.container, sizeof(g.container), "%s", container);
	for (int i = 0; i < p->d.grant_count; i++) {
		if (strcmp(p->d.grants[i].container, container) == 0)
			return err_set(
				err, ERR_INVALID,
				"allocations[%zu].container: %.60s has an allocation already", at,
				container);
	}
	if (profile != NULL) {
		g.kind = ST_KIND_MIG;
		g.mode = ST_MODE_MIG;
	} else if (memory == NULL) {
		g.kind = ST_KIND_WHOLE;
		g.mode = ST_MODE_EXCLUSIVE;
	}
	r = take_gpus(p, o, at, &g, err);
	if (r == 0 && g.kind == ST_KIND_SHARE)
		r = take_share(o, at, &g, err);
	if (r == 0 && g.kind == ST_KIND_MIG)
		r = profile != NULL && cJSON_IsString(profile)
			    ? take_mig(o, at, profile->valuestring, &g, err)
			    : err_set(err, ERR_INVALID,
				      "allocations[%zu].mig-profile is not a text", at);
	if (r == 0)
		p->d.grants[p->d.grant_count++] = g;
	return r;
}

/* ---- pods ---- */

static struct pod *pod_get(struct en_static *s, const char *ns, const char *name)
{
	struct pod *p, *grown;

	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->pods[i].name, name) == 0 && strcmp(s->pods[i].ns, ns) == 0)
			return &s->pods[i];
	}
	grown = reallocarray(s->pods, s->count + 1, sizeof(*grown));
	if (grown == NULL)
		return NULL;
	s->pods = grown;
	p = &s->pods[s->count++];
	memset(p, 0, sizeof(*p));
	snprintf(p->ns, sizeof(p->ns), "%s", ns);
	snprintf(p->name, sizeof(p->name), "%s", name);
	return p;
}

static int take_entry(struct en_static *s, const cJSON *o, size_t at, struct err *err)
{
	const char *ns = "", *name = "", *container = "";
	struct pod *p;
	int r = known_fields(o, at, err);

	if (r == 0)
		r = text(o, at, "namespace", "default", &ns, err);
	if (r == 0)
		r = text(o, at, "pod", NULL, &name, err);
	if (r == 0)
		r = text(o, at, "container", NULL, &container, err);
	if (r != 0)
		return r;
	if (strlen(ns) >= sizeof(p->ns) || strlen(name) >= sizeof(p->name) || s->count == PODS_MAX)
		return err_set(err, ERR_INVALID,
			       "allocations[%zu]: name of the pod too long, or over %d pods", at,
			       PODS_MAX);
	p = pod_get(s, ns, name);
	return p != NULL ? take_grant(p, o, at, container, err)
			 : err_set(err, ERR_NOMEM, "out of memory");
}

/* Writes the annotations, through the same code as an extender. */
static int encode(struct pod *p, const char *node, const struct st_contract_options *opt,
		  struct err *err)
{
	struct st_gpu_spec *gpus = calloc(ST_GPUS_MAX, sizeof(*gpus));
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_node_spec spec = {.name = node, .from_inventory = true, .gpus = gpus};
	int r;

	if (gpus == NULL || c == NULL) {
		st_cluster_free(c);
		free(gpus);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	for (size_t i = 0; i < p->gpu_count; i++) {
		gpus[i].uuid = p->gpus[i];
		gpus[i].mem_mib = ANY_GPU_MIB;
	}
	spec.gpu_count = p->gpu_count;
	r = st_cluster_node_put(c, &spec, &p->d.node, err);
	for (int i = 0; r == 0 && i < p->d.grant_count; i++) {
		if (p->d.grants[i].kind == ST_KIND_WHOLE) /* not written, and not looked at */
			p->d.grants[i].request_mib = p->d.grants[i].limit_mib = ANY_GPU_MIB;
	}
	if (r == 0)
		r = st_contract_encode(c, &p->d, opt, &p->annotations, err);
	st_cluster_free(c);
	free(gpus);
	return r != 0 ? err_prefix(err, r, "pod %s/%s", p->ns, p->name) : 0;
}

int en_static_parse(const char *bytes, size_t len, const char *node,
		    const struct st_contract_options *opt, struct en_static **ret, struct err *err)
{
	struct en_static *s = calloc(1, sizeof(*s));
	cJSON *root = NULL;
	const cJSON *list, *o;
	size_t at = 0;
	int r;

	if (s == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	r = ku_json_parse(bytes, len, &root, err);
	list = ku_json_get(root, "allocations");
	if (r == 0 && !cJSON_IsArray(list))
		r = err_set(err, ERR_INVALID, "allocations: missing, or not a list");
	cJSON_ArrayForEach(o, list)
	{
		if (r == 0)
			r = take_entry(s, o, at++, err);
	}
	for (size_t i = 0; r == 0 && i < s->count; i++)
		r = encode(&s->pods[i], node, opt, err);
	cJSON_Delete(root);
	if (r == 0)
		*ret = s;
	else
		en_static_free(s);
	return r;
}

int en_static_load(const char *path, const char *node, const struct st_contract_options *opt,
		   struct en_static **ret, struct err *err)
{
	char *bytes = NULL;
	size_t len = 0;
	int r = file_read(path, FILE_MAX, &bytes, &len, err);

	if (r != 0)
		return r;
	r = en_static_parse(bytes, len, node, opt, ret, err);
	free(bytes);
	return r != 0 ? err_prefix(err, r, "%s", path) : 0;
}

void en_static_free(struct en_static *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->count; i++)
		st_annotations_fini(&s->pods[i].annotations);
	free(s->pods);
	free(s);
}

const struct st_annotations *en_static_find(const struct en_static *s, const char *ns,
					    const char *pod)
{
	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->pods[i].name, pod) == 0 && strcmp(s->pods[i].ns, ns) == 0)
			return &s->pods[i].annotations;
	}
	return NULL;
}

void en_static_at(const struct en_static *s, size_t at, struct en_static_pod *ret)
{
	const struct pod *p = &s->pods[at];

	*ret = (struct en_static_pod){.ns = p->ns,
				      .name = p->name,
				      .annotations = &p->annotations,
				      .container_count = p->d.grant_count};
	for (size_t i = 0; i < ret->container_count; i++)
		ret->containers[i] = p->d.grants[i].container;
}

size_t en_static_count(const struct en_static *s)
{
	return s->count;
}

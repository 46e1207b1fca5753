/* The small bodies: bind and preempt. They go through cJSON. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>

#include "extender/json.h"
#include "extender/wire.h"
#include "kube/object.h"

static int no_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

/* A member by name without regard to case; of equal ones the last, as in Go. */
static const cJSON *member(const cJSON *obj, const char *name)
{
	const cJSON *found = NULL, *child;

	cJSON_ArrayForEach(child, obj)
	{
		if (child->string != NULL && strcasecmp(child->string, name) == 0)
			found = child;
	}
	return cJSON_IsNull(found) ? NULL : found;
}

/* ---- bind ---- */

void ex_bind_args_fini(struct ex_bind_args *a)
{
	free(a->name);
	free(a->ns);
	free(a->uid);
	free(a->node);
	*a = (struct ex_bind_args){0};
}

static int take_string(const cJSON *obj, const char *name, char **ret, struct err *err)
{
	const cJSON *v = member(obj, name);

	if (!cJSON_IsString(v) || v->valuestring[0] == '\0')
		return err_set(err, ERR_INVALID, "%s: a string is needed", name);
	*ret = strdup(v->valuestring);
	return *ret != NULL ? 0 : no_memory(err);
}

int ex_wire_bind_parse(const char *text, size_t len, struct ex_bind_args *ret, struct err *err)
{
	struct ex_bind_args a = {0};
	cJSON *root = NULL;
	int rc;

	rc = ku_json_parse(text, len, &root, err);
	if (rc < 0)
		return rc;
	if (!cJSON_IsObject(root))
		rc = err_set(err, ERR_INVALID, "the body is not a JSON object");
	if (rc == 0)
		rc = take_string(root, "PodName", &a.name, err);
	if (rc == 0)
		rc = take_string(root, "PodNamespace", &a.ns, err);
	if (rc == 0)
		rc = take_string(root, "PodUID", &a.uid, err);
	if (rc == 0)
		rc = take_string(root, "Node", &a.node, err);
	cJSON_Delete(root);
	if (rc < 0)
		ex_bind_args_fini(&a);
	else
		*ret = a;
	return rc;
}

/* ---- preempt ---- */

static void victims_fini(struct ex_victims *v)
{
	for (size_t i = 0; i < v->count; i++)
		free(v->uids[i]);
	for (size_t i = 0; i < v->chosen_count; i++)
		free(v->chosen[i]);
	free(v->node);
	free(v->uids);
	free(v->chosen);
}

void ex_preemption_fini(struct ex_preemption *p)
{
	for (size_t i = 0; i < p->count; i++)
		victims_fini(&p->v[i]);
	free(p->v);
	*p = (struct ex_preemption){0};
}

/* A victim's UID: {"UID": u} or a whole pod with metadata.uid. */
static const cJSON *victim_uid(const cJSON *pod, bool meta)
{
	const cJSON *metadata;

	if (meta)
		return member(pod, "UID");
	metadata = cJSON_GetObjectItemCaseSensitive(pod, "metadata");
	return cJSON_GetObjectItemCaseSensitive(metadata, "uid");
}

static int parse_victims(const cJSON *entry, bool meta, struct ex_victims *ret, struct err *err)
{
	const cJSON *pods, *pod, *uid, *violations;
	size_t room;

	ret->node = strdup(entry->string);
	if (ret->node == NULL)
		return no_memory(err);
	if (cJSON_IsNull(entry))
		return 0;
	pods = member(entry, "Pods");
	violations = member(entry, "NumPDBViolations");
	if (!cJSON_IsObject(entry) || (pods != NULL && !cJSON_IsArray(pods)) ||
	    (violations != NULL && !cJSON_IsNumber(violations)))
		return err_set(err, ERR_INVALID, "victims of node \"%s\": wrong types",
			       entry->string);
	/* A double holds this exactly; anything absurd becomes 0. */
	if (violations != NULL && violations->valuedouble >= 0 && violations->valuedouble < 1e15)
		ret->pdb_violations = (int64_t)violations->valuedouble;
	room = (size_t)cJSON_GetArraySize(pods);
	ret->uids = calloc(room > 0 ? room : 1, sizeof(ret->uids[0]));
	if (ret->uids == NULL)
		return no_memory(err);
	cJSON_ArrayForEach(pod, pods)
	{
		uid = victim_uid(pod, meta);
		if (!cJSON_IsString(uid))
			return err_set(err, ERR_INVALID,
				       "victims of node \"%s\": pod %zu has no UID", entry->string,
				       ret->count);
		ret->uids[ret->count] = strdup(uid->valuestring);
		if (ret->uids[ret->count] == NULL)
			return no_memory(err);
		ret->count++;
	}
	return 0;
}

int ex_wire_preempt_parse(const struct ex_body *body, struct ex_preemption *ret, struct err *err)
{
	bool meta = body->meta_victims.at != NULL;
	struct ex_slice slice = meta ? body->meta_victims : body->victims;
	struct ex_preemption p = {0};
	cJSON *root = NULL;
	const cJSON *entry;
	size_t room;
	int rc;

	if (slice.at == NULL)
		return err_set(err, ERR_INVALID,
			       "neither NodeNameToMetaVictims nor NodeNameToVictims is given");
	rc = ku_json_parse(slice.at, slice.len, &root, err);
	if (rc < 0)
		return rc;
	room = (size_t)cJSON_GetArraySize(root);
	p.v = calloc(room > 0 ? room : 1, sizeof(p.v[0]));
	if (p.v == NULL)
		rc = no_memory(err);
	cJSON_ArrayForEach(entry, root)
	{
		if (rc < 0 || p.v == NULL)
			break;
		p.count++;
		rc = parse_victims(entry, meta, &p.v[p.count - 1], err);
	}
	cJSON_Delete(root);
	if (rc < 0)
		ex_preemption_fini(&p);
	else
		*ret = p;
	return rc;
}

void ex_wire_preempt(struct buf *out, const struct ex_preemption *p, const char *error)
{
	struct ex_json j = {.b = out};

	ex_json_begin(&j, '{');
	ex_json_key(&j, "NodeNameToMetaVictims");
	ex_json_begin(&j, '{');
	for (size_t i = 0; i < p->count; i++) {
		const struct ex_victims *v = &p->v[i];

		if (v->chosen_count == 0)
			continue;
		ex_json_key(&j, v->node);
		ex_json_begin(&j, '{');
		ex_json_key(&j, "Pods");
		ex_json_begin(&j, '[');
		for (size_t k = 0; k < v->chosen_count; k++) {
			ex_json_begin(&j, '{');
			ex_json_key_string(&j, "UID", v->chosen[k]);
			ex_json_end(&j, '}');
		}
		ex_json_end(&j, ']');
		ex_json_key_i64(&j, "NumPDBViolations", v->pdb_violations);
		ex_json_end(&j, '}');
	}
	ex_json_end(&j, '}');
	if (error[0] != '\0')
		ex_json_key_string(&j, "Error", error);
	ex_json_end(&j, '}');
}

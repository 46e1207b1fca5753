#include "kube/client_status.h"

#include <stdio.h>
#include <string.h>

#include "kube/object.h"

#define PARSE_MAX ((size_t)64 << 10)

static void copy_text(const cJSON *obj, const char *name, char *ret, size_t cap)
{
	const cJSON *v = ku_json_get(obj, name);

	if (cJSON_IsString(v))
		snprintf(ret, cap, "%s", v->valuestring);
}

bool ku_status_read(const cJSON *obj, struct ku_status *ret)
{
	const cJSON *kind = ku_json_get(obj, "kind"), *code = ku_json_get(obj, "code"), *causes;

	*ret = (struct ku_status){0};
	if (!cJSON_IsString(kind) || strcmp(kind->valuestring, "Status") != 0)
		return false;
	if (cJSON_IsNumber(code) && code->valuedouble >= 0 && code->valuedouble <= 999)
		ret->code = (int)code->valuedouble;
	copy_text(obj, "status", ret->status, sizeof(ret->status));
	copy_text(obj, "reason", ret->reason, sizeof(ret->reason));
	copy_text(obj, "message", ret->message, sizeof(ret->message));
	causes = ku_json_get(ku_json_get(obj, "details"), "causes");
	if (cJSON_IsArray(causes) && causes->child != NULL)
		copy_text(causes->child, "reason", ret->cause, sizeof(ret->cause));
	return true;
}

bool ku_status_parse(const char *body, size_t len, struct ku_status *ret)
{
	cJSON *tree;
	bool is;

	*ret = (struct ku_status){0};
	if (len == 0 || len > PARSE_MAX || ku_json_parse_stored(body, len, &tree, NULL) < 0)
		return false;
	is = ku_status_read(tree, ret);
	cJSON_Delete(tree);
	return is;
}

bool ku_status_version_too_large(const struct ku_status *s)
{
	return strcmp(s->cause, "ResourceVersionTooLarge") == 0 ||
	       strstr(s->message, "Too large resource version") != NULL;
}

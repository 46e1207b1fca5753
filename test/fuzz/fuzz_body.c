/* Bytes as a request body. The scanner accepts exactly what the parser accepts and finds the same
 * names; every verb answers with valid JSON; strings come back from the writer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "extender/extender.h"
#include "extender/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static const char cluster[] =
	"{\"kind\":\"NodeList\",\"items\":[{\"metadata\":{\"name\":\"n1\",\"labels\":{"
	"\"nvidia.com/gpu.count\":\"2\",\"nvidia.com/gpu.memory\":\"40960\",\"nvidia.com/gpu.product\":"
	"\"A\"}},\"status\":{\"allocatable\":{\"cpu\":\"8\",\"memory\":\"64Gi\"},\"conditions\":[{"
	"\"type\":\"Ready\",\"status\":\"True\"}]}},{\"metadata\":{\"name\":\"n2\"}}]}";

/* ---- the scanner against the parser ---- */

static const cJSON *member(const cJSON *obj, const char *name)
{
	const cJSON *found = NULL, *child;

	cJSON_ArrayForEach(child, obj)
	{
		if (strcasecmp(child->string, name) == 0)
			found = child;
	}
	return found;
}

/* Would the scanner take this tree? Every one of equal keys must have the right type. */
static bool types_right(const cJSON *tree)
{
	static const char *const objects[] = {"Pod", "Nodes", "NodeNameToVictims",
					      "NodeNameToMetaVictims"};
	const cJSON *child, *name;

	if (!cJSON_IsObject(tree))
		return false;
	cJSON_ArrayForEach(child, tree)
	{
		for (size_t i = 0; i < 4; i++) {
			if (strcasecmp(child->string, objects[i]) == 0 && !cJSON_IsNull(child) &&
			    !cJSON_IsObject(child))
				return false;
		}
		if (strcasecmp(child->string, "NodeNames") != 0 || cJSON_IsNull(child))
			continue;
		if (!cJSON_IsArray(child))
			return false;
		cJSON_ArrayForEach(name, child)
		{
			if (!cJSON_IsString(name))
				return false;
		}
	}
	return true;
}

static void same_names(const cJSON *tree, const struct ex_body *body, const struct ex_names *names)
{
	const cJSON *list = member(tree, "NodeNames"), *v;
	size_t i = 0;

	require(cJSON_IsArray(list) == (body->node_names.at != NULL), "NodeNames given or not");
	require(cJSON_IsObject(member(tree, "Pod")) == (body->pod.at != NULL), "Pod given or not");
	cJSON_ArrayForEach(v, list)
	{
		struct ex_name *n = &names->v[i];
		struct buf b = BUF_INIT;
		cJSON *again = NULL;

		require(i++ < names->count, "number of names");
		require(strlen(v->valuestring) == n->len &&
				memcmp(v->valuestring, n->at, n->len) == 0,
			"a name");
		ex_json_put_string(&b, n->at, n->len);
		require(ku_json_parse(b.data, b.len, &again, NULL) == 0, "the writer's string");
		require(strcmp(again->valuestring, v->valuestring) == 0, "a string that came back");
		cJSON_Delete(again);
		buf_fini(&b);
	}
	require(i == names->count, "number of names");
}

static void compare(const char *text, size_t len)
{
	struct ex_names names = {0};
	struct ex_body body;
	cJSON *tree = NULL;
	bool ours, theirs;

	theirs = ku_json_parse(text, len, &tree, NULL) == 0;
	require((ex_scan_check(text, len, NULL) == 0) == theirs, "what is JSON");
	ours = ex_scan_body(text, len, &body, &names, NULL) == 0;
	require(ours == (theirs && types_right(tree)), "what is a body");
	if (ours)
		same_names(tree, &body, &names);
	cJSON_Delete(tree);
	ex_names_fini(&names);
}

/* ---- the verbs ---- */

static void is_json(struct buf *out)
{
	require(buf_ok(out) && ex_scan_check(out->data, out->len, NULL) == 0, "a reply in JSON");
	buf_reset(out);
}

static void check(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	(void)p;
	require(st_cluster_check(c, ST_NONE, ctx) == 0, "the books");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ex_service *s;
	static struct ex_scratch x;
	const char *text = (const char *)data;
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT, .contract = {.hami = true}};
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	char *uid = NULL;

	if (s == NULL) {
		s = ex_service_new(&cfg, &err);
		require(s != NULL && ex_scratch_init(&x, &err) == 0, "memory");
		require(ex_service_load_text(s, cluster, sizeof(cluster) - 1, &err) == 0, err.msg);
		require(ex_service_start(s, &err) == 0, err.msg);
	}
	compare(text, size);
	ex_verb_filter(s, &x, text, size, &out, &err);
	is_json(&out);
	ex_verb_prioritize(s, &x, text, size, 9, &out, &err);
	is_json(&out);
	ex_verb_preempt(s, &x, text, size, &out, &err);
	is_json(&out);
	ex_verb_bind(s, text, size, &out, &err);
	is_json(&out);
	if (ex_release_parse(text, size, &uid, &err) == 0)
		ex_service_release_now(s, uid, &err);
	free(uid);
	ex_service_with(s, check, &err);
	buf_fini(&out);
	return 0;
}

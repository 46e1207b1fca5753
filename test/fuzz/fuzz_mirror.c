/* Lines as watch events of nodes and pods, taken into the model as from an API server: whatever comes,
 * in whatever order, the books hold. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/extender.h"
#include "extender/mirror.h"
#include "kube/object.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static void check(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	(void)p;
	require(st_cluster_check(c, ST_NONE, ctx) == 0, "the books");
}

static void node(struct ex_service *s, const cJSON *obj, bool gone, struct ku_arena *a)
{
	struct ex_mirror_node ret;
	struct st_node_spec spec;
	struct err why = ERR_INIT, err = ERR_INIT;
	const cJSON *name = ku_json_get(ku_json_get(obj, "metadata"), "name");

	if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
		return;
	if (gone) {
		ex_mirror_node_gone(s, name->valuestring);
		return;
	}
	if (ku_node_decode(obj, a, &spec, &why) < 0) {
		spec = (struct st_node_spec){.name = name->valuestring};
		ex_mirror_node(s, &spec, why.msg, &ret, &err);
	} else {
		ex_mirror_node(s, &spec, NULL, &ret, &err);
	}
}

static void pod(struct ex_service *s, const cJSON *obj, bool gone, struct ku_arena *a)
{
	struct ex_mirror_pod ret;
	struct st_pod_spec spec;
	struct err err = ERR_INIT;

	if (ku_pod_decode(obj, a, &spec, &err) < 0 || spec.uid[0] == '\0')
		return;
	if (gone)
		ex_mirror_pod_gone(s, spec.uid);
	else if (ex_mirror_pod(s, &spec, false, &ret, &err) == 0)
		require(ret.kind != EX_MIRROR_BOUND || spec.node[0] != '\0',
			"bound without a node");
}

static void event(struct ex_service *s, const char *text, size_t len)
{
	struct ku_arena *a = ku_arena_new();
	const cJSON *obj, *type;
	cJSON *root = NULL;
	struct err err = ERR_INIT;
	bool gone;

	require(a != NULL, "memory");
	if (ku_json_parse(text, len, &root, NULL) == 0) {
		obj = ku_json_get(root, "object");
		type = ku_json_get(root, "type");
		gone = cJSON_IsString(type) && strcmp(type->valuestring, "DELETED") == 0;
		if (ku_json_get(ku_json_get(obj, "spec"), "containers") != NULL)
			pod(s, obj, gone, a);
		else
			node(s, obj, gone, a);
		ex_service_with(s, check, &err);
	}
	cJSON_Delete(root);
	ku_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT, .contract = {.hami = true}};
	const char *at = (const char *)data, *end = at + size;
	struct err err = ERR_INIT;
	struct ex_service *s = ex_service_new(&cfg, &err);

	require(s != NULL && ex_service_start(s, &err) == 0, "memory");
	while (at < end) {
		const char *eol = memchr(at, '\n', (size_t)(end - at));
		size_t len = eol != NULL ? (size_t)(eol - at) : (size_t)(end - at);

		event(s, at, len);
		at += len + 1;
	}
	ex_service_free(s);
	return 0;
}

/* Bytes as a watch stream and as a list. The first byte says how the rest is cut into pieces. However it
 * is cut, the same objects come out; each is one JSON object or refused by the parser for reasons that
 * are not the outline's; nothing that was to be left out is in it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kube/object.h"
#include "kube/reflector_split.h"

#define OBJECT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static const char *const prune[] = {"metadata.managedFields", "spec.containers.env", "x", NULL};

static void check_pruned(const cJSON *obj)
{
	const cJSON *child;

	require(ku_json_get(obj, "x") == NULL, "x was not left out");
	require(ku_json_get(ku_json_get(obj, "metadata"), "managedFields") == NULL,
		"managedFields were not left out");
	cJSON_ArrayForEach(child, ku_json_get(ku_json_get(obj, "spec"), "containers"))
	{
		require(ku_json_get(child, "env") == NULL, "env was not left out");
	}
}

struct out {
	struct buf text;
	enum ku_split_mode mode;
};

static int note(void *ctx, enum ku_piece what, const char *text, size_t len, struct err *err)
{
	struct out *o = ctx;
	cJSON *tree;

	require(len >= 2 && text[0] == '{' && text[len - 1] == '}', "a piece that is no object");
	require(len <= OBJECT_MAX, "a piece over the limit");
	if (ku_json_parse(text, len, &tree, err) == 0) {
		/* a key written with escapes is not recognised, and kept */
		if (what == KU_PIECE_OBJECT && memmem(text, len, "\\u", 2) == NULL)
			check_pruned(o->mode == KU_SPLIT_LIST ? tree : ku_json_get(tree, "object"));
		cJSON_Delete(tree);
	}
	buf_putc(&o->text, what == KU_PIECE_OBJECT ? 'O' : 'M');
	buf_put(&o->text, text, len);
	return 0;
}

/* cut 0: in one piece. Returns the code; what came out is in *o. */
static int feed(enum ku_split_mode mode, const char *data, size_t len, uint64_t cut, struct out *o,
		bool *ret_complete)
{
	struct ku_split s;
	struct rng rng;
	int r = 0;

	rng_init(&rng, cut);
	o->mode = mode;
	require(ku_split_init(&s, mode, prune, OBJECT_MAX, note, o, NULL) == 0, "init");
	for (size_t at = 0; at < len && r == 0;) {
		size_t n = cut == 0 ? len : 1 + (size_t)rng_below(&rng, 1 + cut % 13);

		n = n < len - at ? n : len - at;
		r = ku_split_feed(&s, data + at, n, NULL);
		at += n;
	}
	*ret_complete = r == 0 && ku_split_complete(&s);
	ku_split_fini(&s);
	return r;
}

static void compare(enum ku_split_mode mode, const char *data, size_t len, uint64_t cut)
{
	struct out whole = {.text = BUF_INIT}, parts = {.text = BUF_INIT};
	bool whole_complete, parts_complete;
	int a = feed(mode, data, len, 0, &whole, &whole_complete);
	int b = feed(mode, data, len, cut, &parts, &parts_complete);

	require(a == b, "another code when cut");
	require(whole_complete == parts_complete, "complete only one way");
	require(whole.text.len == parts.text.len &&
			(whole.text.len == 0 ||
			 memcmp(whole.text.data, parts.text.data, whole.text.len) == 0),
		"other pieces when cut");
	buf_fini(&whole.text);
	buf_fini(&parts.text);
}

/* A list that the parser takes is one that the splitter takes, if its outline is a list's. */
static void compare_with_parser(const char *data, size_t len)
{
	struct out o = {.text = BUF_INIT};
	bool complete, list;
	const cJSON *items, *child;
	cJSON *tree;
	size_t objects = 0, found = 0;

	if (ku_json_parse(data, len, &tree, NULL) < 0)
		return;
	items = ku_json_get(tree, "items");
	list = cJSON_IsObject(tree) && cJSON_IsArray(items);
	cJSON_ArrayForEach(child, tree)
	{
		/* of several "items" the splitter shows all */
		list = list && (child == items || child->string == NULL ||
				strcmp(child->string, "items") != 0);
	}
	cJSON_ArrayForEach(child, items)
	{
		list = list && cJSON_IsObject(child);
		objects++;
	}
	if (list && feed(KU_SPLIT_LIST, data, len, 0, &o, &complete) == 0) {
		require(complete, "a whole list is not complete");
		for (size_t i = 0; i < o.text.len; i++)
			found += o.text.data[i] == 'O' && (i == 0 || o.text.data[i - 1] == '}') &&
				 o.text.data[i + 1] == '{';
		require(found >= objects, "items are missing");
	}
	buf_fini(&o.text);
	cJSON_Delete(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 1)
		return 0;
	compare(KU_SPLIT_EVENTS, text, size - 1, 1 + (uint64_t)data[0]);
	compare(KU_SPLIT_LIST, text, size - 1, 1 + (uint64_t)data[0]);
	compare_with_parser(text, size - 1);
	return 0;
}

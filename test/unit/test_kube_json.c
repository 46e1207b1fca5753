#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/object.h"
#include "test/lib/oom.h"

/* The text in a block of exactly its size, so that a read behind it is seen. */
static int parse(const char *text, size_t len, cJSON **ret, struct err *err)
{
	char *copy = malloc(len > 0 ? len : 1);
	int r;

	memcpy(copy, text, len);
	r = ku_json_parse(copy, len, ret, err);
	free(copy);
	return r;
}

Test(kube_json, accepts)
{
	static const char *const texts[] = {
		"null",
		"true",
		" false ",
		"0",
		"-0",
		"1.5e+3",
		"123456789012",
		"\"\"",
		"[]",
		"{}",
		"[1,2,[3]]",
		"{\"a\":{\"b\":[{}]}}",
		"\t\r\n {\"a\" : [ 1 , 2 ] } \n",
		"\"\\u00fc \\ud83d\\ude00 \\\" \\\\ \\/ \\b\\f\\n\\r\\t\"",
		"\"\xc3\xbc \xe6\xbc\xa2 \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\"",
		"1e308",
		"1e-999",
		"{\"\":1}",
		"{\"a\":1,\"a\":2}",
		"\"\x7f\"",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct err err = ERR_INIT;
		cJSON *tree = NULL;

		cr_expect_eq(parse(texts[i], strlen(texts[i]), &tree, &err), 0, "%s: %s", texts[i],
			     err.msg);
		cr_expect_not_null(tree);
		cJSON_Delete(tree);
	}
}

Test(kube_json, refuses)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"", "byte 0: the text ends too early"},
		{"  ", "byte 2: the text ends too early"},
		{"{} {}", "byte 3: text behind the value"},
		{"1 x", "byte 2: text behind the value"},
		{"nul", "byte 0: not a JSON value"},
		{"nulll", "byte 4: text behind the value"},
		{"{", "byte 1: not a key"},
		{"{\"a\"}", "byte 4: no ':' behind a key"},
		{"{\"a\":1,}", "byte 7: not a key"},
		{"{a:1}", "byte 1: not a key"},
		{"{\"a\":1 \"b\":2}", "byte 7: neither ',' nor '}'"},
		{"[1,]", "byte 3: not a JSON value"},
		{"[1", "byte 2: the text ends too early"},
		{"[1}", "byte 2: neither ',' nor ']'"},
		{"]", "byte 0: not a JSON value"},
		{"\"abc", "byte 4: a string without end"},
		{"\"\\", "byte 2: unknown escape"},
		{"\"\\x\"", "byte 2: unknown escape"},
		{"\"\\u12g4\"", "byte 5: \\u without four hex digits"},
		{"\"\\u0000\"", "byte 7: a NUL character"},
		{"\"\\ud800\"", "byte 7: half of a surrogate pair"},
		{"\"\\ud800\\n\"", "byte 8: half of a surrogate pair"},
		{"\"\\ud800\\u0041\"", "byte 13: half of a surrogate pair"},
		{"\"\\udc00\"", "byte 7: half of a surrogate pair"},
		{"\"a\nb\"", "byte 2: a control character in a string"},
		{"\"\xff\"", "byte 1: invalid UTF-8"},
		{"\"\xc0\x80\"", "byte 1: invalid UTF-8"},
		{"\"\xe0\x80\x80\"", "byte 1: invalid UTF-8"},
		{"\"\xed\xa0\x80\"", "byte 1: invalid UTF-8"},
		{"\"\xf4\x90\x80\x80\"", "byte 1: invalid UTF-8"},
		{"\"\xc3\"", "byte 1: invalid UTF-8"},
		{"\"\xe6\xbc", "byte 1: invalid UTF-8"},
		{"\xef\xbb\xbf{}", "byte 0: not a JSON value"},
		{"\v1", "byte 0: not a JSON value"},
		{"01", "byte 1: text behind the value"},
		{"1.", "byte 2: not a number"},
		{".5", "byte 0: not a JSON value"},
		{"+1", "byte 0: not a JSON value"},
		{"-", "byte 1: not a number"},
		{"1e", "byte 2: not a number"},
		{"1e400", "byte 5: a number out of range"},
		{"[-1e999]", "byte 7: a number out of range"},
		{"NaN", "byte 0: not a JSON value"},
		{"Infinity", "byte 0: not a JSON value"},
		{"0.1234567890123456789012345678901234567890123456789012345678901234",
		 "byte 66: a number of more than 63 characters"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;
		cJSON *tree = (cJSON *)&err;
		char want[128];

		snprintf(want, sizeof(want), "JSON, %s", rows[i].want);
		cr_expect_eq(parse(rows[i].text, strlen(rows[i].text), &tree, &err), ERR_INVALID,
			     "%s", rows[i].text);
		cr_expect_str_eq(err.msg, want, "%s", rows[i].text);
		cr_expect_eq((void *)tree, (void *)&err);
	}
}

Test(kube_json, nul_bytes)
{
	cJSON *tree;

	cr_assert_eq(parse("{}\0", 3, &tree, NULL), ERR_INVALID);
	cr_assert_eq(parse("\0", 1, &tree, NULL), ERR_INVALID);
	cr_assert_eq(parse("\"a\0b\"", 5, &tree, NULL), ERR_INVALID);
	cr_assert_eq(parse("[\0]", 3, &tree, NULL), ERR_INVALID);
}

Test(kube_json, stored_by_the_api_server)
{
	static const struct {
		const char *text, *want; /* as printed again */
	} rows[] = {
		{"{\"a\":\"x\\u0000y\"}", "{\"a\":\"x\xef\xbf\xbdy\"}"},
		{"[\"\\u0000\\u0000\",\"\\\\u0000\"]",
		 "[\"\xef\xbf\xbd\xef\xbf\xbd\",\"\\\\u0000\"]"},
		{"[\"\\\\\\u0000\"]", "[\"\\\\\xef\xbf\xbd\"]"},
		{"{\"\\u0000\":1}", "{\"\xef\xbf\xbd\":1}"},
		{"[1]", "[1]"},
	};
	cJSON *tree = NULL;
	struct err err = ERR_INIT;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *printed;

		cr_assert_eq(ku_json_parse_stored(rows[i].text, strlen(rows[i].text), &tree, &err),
			     0, "%s: %s", rows[i].text, err.msg);
		printed = cJSON_PrintUnformatted(tree);
		cr_expect_str_eq(printed, rows[i].want);
		cJSON_free(printed);
		cJSON_Delete(tree);
	}
	/* All else is as strict as ever. */
	cr_expect_eq(ku_json_parse_stored("[\"\\u0000\"", 9, &tree, &err), ERR_INVALID);
	cr_expect_eq(ku_json_parse_stored("\\u0000", 6, &tree, &err), ERR_INVALID);
	cr_expect_eq(ku_json_parse_stored("[\"\\u000", 7, &tree, &err), ERR_INVALID);
	cr_expect_eq(ku_json_parse_stored("", 0, &tree, &err), ERR_INVALID);
	cr_expect_eq(ku_json_parse_stored("[\"\0\"]", 5, &tree, &err), ERR_INVALID);
}

Test(kube_json, depth)
{
	char text[1024];
	struct err err = ERR_INIT;
	cJSON *tree;

	for (int open = '['; open != 0; open = open == '[' ? '{' : 0) {
		for (int depth = 255; depth <= 257; depth++) {
			size_t n = 0;

			if (open == '[') {
				memset(text, '[', (size_t)depth);
				memset(text + depth, ']', (size_t)depth);
				n = 2 * (size_t)depth;
			} else { /* alternating, without an end: the depth is found first */
				for (int i = 0; i < depth; i++)
					n += (size_t)snprintf(text + n, 8, "%s",
							      i % 2 == 0 ? "{\"\":" : "[");
				if (depth <= 256)
					continue;
			}
			if (depth <= 256) {
				cr_assert_eq(parse(text, n, &tree, &err), 0, "%s", err.msg);
				cJSON_Delete(tree);
			} else {
				cr_assert_eq(parse(text, n, &tree, &err), ERR_INVALID);
				cr_assert_not_null(strstr(err.msg, "more than 256 levels"));
			}
		}
	}
}

/* Go reads the last of equal keys, cJSON's own look-up the first. */
Test(kube_json, last_of_equal_keys)
{
	const char text[] = "{\"a\":1,\"b\":9,\"a\":2,\"A\":3}";
	cJSON *tree;

	cr_assert_eq(ku_json_parse(text, strlen(text), &tree, NULL), 0);
	cr_assert_eq((int)ku_json_get(tree, "a")->valuedouble, 2);
	cr_assert_eq((int)ku_json_get(tree, "A")->valuedouble, 3);
	cr_assert_null(ku_json_get(tree, "c"));
	cr_assert_null(ku_json_get(ku_json_get(tree, "a"), "a"));
	cr_assert_null(ku_json_get(NULL, "a"));
	cJSON_Delete(tree);
}

static unsigned budget;

static void *limited_malloc(size_t size)
{
	return budget-- > 0 ? malloc(size) : NULL;
}

Test(kube_json, no_memory)
{
	const char text[] = "{\"a\":[1,\"x\",{}]}";
	cJSON_Hooks hooks = {limited_malloc, free};
	cJSON *tree = NULL;
	int r = ERR_NOMEM;

	cJSON_InitHooks(&hooks);
	for (unsigned n = 0; r == ERR_NOMEM && n < 100; n++) {
		budget = n;
		r = ku_json_parse(text, strlen(text), &tree, NULL);
	}
	cJSON_InitHooks(NULL);
	cr_assert_eq(r, 0);
	cJSON_Delete(tree);
}

Test(kube_arena, allocates_and_resets)
{
	struct ku_arena *a = ku_arena_new();
	char *first = ku_arena_alloc(a, 1), *big;

	cr_assert_not_null(first);
	for (size_t size = 1; size < 100000; size = size * 3 + 1) {
		unsigned char *p = ku_arena_alloc(a, size);

		cr_assert_eq((uintptr_t)p % 16, 0);
		for (size_t i = 0; i < size; i++)
			cr_assert_eq(p[i], 0);
		memset(p, 0xff, size);
	}
	ku_arena_reset(a);
	cr_assert_eq(ku_arena_alloc(a, 1), (void *)first);
	big = ku_arena_alloc(a, 90000);
	cr_assert_eq(big[0], 0);
	cr_assert_eq(big[89999], 0);
	cr_assert_str_eq(ku_arena_str(a, "text"), "text");
	cr_assert_null(ku_arena_alloc(a, SIZE_MAX));
	cr_assert_not_null(ku_arena_alloc(a, 0));
	ku_arena_free(a);
	ku_arena_free(NULL);
}

Test(kube_arena, no_memory)
{
	struct ku_arena *a;

	oom_fail_at(1);
	a = ku_arena_new();
	cr_assert(oom_disarm());
	cr_assert_null(a);
	a = ku_arena_new();
	oom_fail_at(1);
	cr_assert_null(ku_arena_alloc(a, 10));
	cr_assert(oom_disarm());
	cr_assert_not_null(ku_arena_alloc(a, 10));
	ku_arena_free(a);
}

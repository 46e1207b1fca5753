#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/scan.h"
#include "kube/object.h"
#include "test/lib/oom.h"

static int scan(const char *text, struct ex_body *body, struct ex_names *names, struct err *err)
{
	return ex_scan_body(text, strlen(text), body, names, err);
}

static void expect_name(const struct ex_names *n, size_t i, const char *want)
{
	cr_assert_lt(i, n->count);
	cr_expect(n->v[i].len == strlen(want) && memcmp(n->v[i].at, want, n->v[i].len) == 0,
		  "name %zu is %.*s, not %s", i, (int)n->v[i].len, n->v[i].at, want);
}

Test(extender_scan, finds_the_parts_whatever_their_case)
{
	static const char text[] =
		" { \"pod\" : {\"a\":[1,{\"NodeNames\":[\"decoy\"]}]}, \"NODES\":null,"
		"\"nodeNAMES\" : [ \"n1\" , \"n2\" ],\"NodeNameToMetaVictims\":{},\"Other\":1.5e3} ";
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;

	cr_assert_eq(scan(text, &body, &names, &err), 0, "%s", err.msg);
	cr_expect_eq(strncmp(body.pod.at, "{\"a\":", 5), 0);
	cr_expect_eq(body.pod.at[body.pod.len - 1], '}');
	cr_expect_null(body.nodes.at);
	cr_expect_null(body.victims.at);
	cr_expect_eq(body.meta_victims.len, 2);
	cr_assert_eq(names.count, 2);
	expect_name(&names, 0, "n1");
	expect_name(&names, 1, "n2");
	ex_names_fini(&names);
}

Test(extender_scan, of_equal_keys_the_last_counts)
{
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;

	cr_assert_eq(scan("{\"NodeNames\":[\"a\\u0062\",\"c\"],\"nodenames\":[\"\\u0064\"],"
			  "\"Pod\":{\"x\":1},\"POD\":null}",
			  &body, &names, &err),
		     0, "%s", err.msg);
	cr_assert_eq(names.count, 1);
	expect_name(&names, 0, "d");
	cr_expect_null(body.pod.at);
	cr_assert_eq(scan("{\"NodeNames\":[\"a\"],\"NodeNames\":null}", &body, &names, &err), 0);
	cr_expect_null(body.node_names.at);
	cr_expect_eq(names.count, 0);
	ex_names_fini(&names);
}

Test(extender_scan, decodes_escapes_and_keeps_the_raw_name)
{
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;

	cr_assert_eq(
		scan("{\"NodeNames\":[\"plain\",\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\",\"\\u003c\\u00fc"
		     "\\ud83d\\ude00\",\"\xc3\xbc\",\"\"]}",
		     &body, &names, &err),
		0, "%s", err.msg);
	cr_assert_eq(names.count, 5);
	expect_name(&names, 0, "plain");
	expect_name(&names, 1, "a\"\\/\b\f\n\r\tz");
	expect_name(&names, 2, "<\xc3\xbc\xf0\x9f\x98\x80");
	expect_name(&names, 3, "\xc3\xbc");
	expect_name(&names, 4, "");
	cr_expect_eq(strncmp(names.v[2].raw, "\"\\u003c", 7), 0);
	cr_expect_eq(names.v[2].raw_len, 26);
	ex_names_fini(&names);
}

Test(extender_scan, refuses_with_the_place)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"", "byte 0: the body is not a JSON object"},
		{"[]", "byte 0: the body is not a JSON object"},
		{"{\"NodeNames\":[\"a\",1]}", "byte 18: NodeNames[1] is not a string"},
		{"{\"NodeNames\":[\"a\",null]}", "byte 18: NodeNames[1] is not a string"},
		{"{\"NodeNames\":{}}", "byte 13: NodeNames is not a list"},
		{"{\"Pod\":[]}", "byte 7: Pod is not an object"},
		{"{\"Pod\":{},}", "byte 10: no key"},
		{"{\"NodeNames\":[\"a\",]}", "byte 18: NodeNames[1]"},
		{"{\"NodeNames\":[\"a\"", "byte 17: no comma or end"},
		{"{\"NodeNames\":[\"a", "byte 16: the text ends inside a string"},
		{"{\"NodeNames\":[\"\x01\"]}", "byte 15: control character in a string"},
		{"{\"NodeNames\":[\"\\x\"]}", "unknown escape"},
		{"{\"NodeNames\":[\"\\ud800\"]}", "a high surrogate without a low one"},
		{"{\"NodeNames\":[\"\\udc00\"]}", "a low surrogate without a high one"},
		{"{\"NodeNames\":[\"\\u0000\"]}", "\\u0000 in a string"},
		{"{\"NodeNames\":[\"\xff\"]}", "invalid UTF-8"},
		{"{\"NodeNames\":[\"\xed\xa0\x80\"]}", "invalid UTF-8"},
		{"{\"a\":1e400}", "a number out of range"},
		{"{\"a\":01}", "no comma or end"},
		{"{\"a\":.5}", "no JSON value"},
		{"{\"a\":nul}", "no JSON value"},
		{"{\"a\":1} x", "byte 8: text after the end"},
		{"{\"a\" 1}", "no colon"},
		{"{1:2}", "no key"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ex_names names = {0};
		struct ex_body body = {.pod = {"kept", 4}};
		struct err err = ERR_INIT;

		cr_expect_eq(scan(rows[i].text, &body, &names, &err), ERR_INVALID, "%s",
			     rows[i].text);
		cr_expect(strstr(err.msg, rows[i].want) != NULL, "%s: %s", rows[i].text, err.msg);
		cr_expect_str_eq(body.pod.at, "kept");
		ex_names_fini(&names);
	}
}

Test(extender_scan, refuses_a_nul_byte)
{
	static const char text[] = "{\"NodeNames\":[\"a\0b\"]}";
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;

	cr_expect_eq(ex_scan_body(text, sizeof(text) - 1, &body, &names, &err), ERR_INVALID);
	ex_names_fini(&names);
}

Test(extender_scan, bounds_the_depth_as_the_parser_does)
{
	for (int depth = 250; depth < 262; depth++) {
		struct buf b = BUF_INIT;
		cJSON *tree = NULL;
		int mine, theirs;

		buf_puts(&b, "{\"a\":");
		for (int i = 1; i < depth; i++)
			buf_putc(&b, '[');
		for (int i = 1; i < depth; i++)
			buf_putc(&b, ']');
		buf_putc(&b, '}');
		mine = ex_scan_check(b.data, b.len, NULL);
		theirs = ku_json_parse(b.data, b.len, &tree, NULL);
		buf_fini(&b);
		cr_expect_eq(mine == 0, theirs == 0, "depth %d", depth);
		cr_expect_eq(mine == 0, depth <= 256, "depth %d", depth);
		cJSON_Delete(tree);
	}
}

Test(extender_scan, a_nesting_bomb_is_an_error)
{
	size_t len = 1 << 20;
	char *bomb = malloc(len + 8);
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;

	memcpy(bomb, "{\"Pod\":", 7);
	for (size_t i = 7; i < len; i += 5)
		memcpy(bomb + i, "{\"a\":", 5);
	cr_expect_eq(ex_scan_body(bomb, len, &body, &names, &err), ERR_INVALID);
	cr_expect(strstr(err.msg, "nested too deeply") != NULL, "%s", err.msg);
	free(bomb);
	ex_names_fini(&names);
}

Test(extender_scan, every_truncation_is_an_error)
{
	static const char text[] = "{\"Pod\":{\"a\":[true,null,-1.5e3,\"\\u00e9\"]},\"Nodes\":null,"
				   "\"NodeNames\":[\"n1\",\"\\ud83d\\ude00\"]}";
	struct ex_names names = {0};
	struct ex_body body;

	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		char *exact = malloc(len > 0 ? len : 1);

		memcpy(exact, text, len);
		cr_expect_eq(ex_scan_body(exact, len, &body, &names, NULL), ERR_INVALID, "%zu",
			     len);
		free(exact);
	}
	cr_expect_eq(ex_scan_body(text, sizeof(text) - 1, &body, &names, NULL), 0);
	ex_names_fini(&names);
}

Test(extender_scan, a_hundred_thousand_names_of_253_characters)
{
	struct buf b = BUF_INIT;
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;
	char name[254];

	memset(name, 'n', 253);
	name[253] = '\0';
	buf_puts(&b, "{\"NodeNames\":[");
	for (int i = 0; i < 100000; i++) {
		char head[24];

		snprintf(head, sizeof(head), "node-%05d-", i);
		memcpy(name, head, 11);
		buf_printf(&b, "%s\"%s\"", i > 0 ? "," : "", name);
	}
	buf_puts(&b, "]}");
	cr_assert_eq(ex_scan_body(b.data, b.len, &body, &names, &err), 0, "%s", err.msg);
	cr_expect_eq(names.count, 100000);
	expect_name(&names, 99999, name);
	buf_fini(&b);
	ex_names_fini(&names);
}

Test(extender_scan, nodes_and_their_names)
{
	static const char text[] =
		"{\"Nodes\":{\"metadata\":{\"name\":\"no\"},\"items\":[{\"metadata\":{\"labels\":"
		"{\"name\":\"x\"},\"name\":\"a\",\"name\":\"b\"},\"spec\":{\"name\":\"y\"}}, "
		"{\"spec\":{},\"metadata\":{\"name\":\"old\"},\"metadata\":{\"name\":\"\\u0063\"}}]}}";
	struct ex_names names = {0};
	struct ex_items items = {0};
	struct ex_body body;
	struct err err = ERR_INIT;

	cr_assert_eq(scan(text, &body, &names, &err), 0, "%s", err.msg);
	cr_assert_eq(ex_scan_nodes(body.nodes, &names, &items, &err), 0, "%s", err.msg);
	cr_assert_eq(names.count, 2);
	expect_name(&names, 0, "b");
	expect_name(&names, 1, "c");
	cr_expect_eq(items.v[0].at[0], '{');
	cr_expect_eq(items.v[1].at[items.v[1].len - 1], '}');
	cr_assert_eq(scan("{\"Nodes\":{\"items\":[{\"metadata\":{}}]}}", &body, &names, &err), 0);
	cr_expect_eq(ex_scan_nodes(body.nodes, &names, &items, &err), ERR_INVALID);
	cr_expect(strstr(err.msg, "Nodes.items[0]: ") == err.msg, "%s", err.msg);
	ex_names_fini(&names);
	ex_items_fini(&items);
}

Test(extender_scan, survives_lack_of_memory)
{
	static const char text[] = "{\"NodeNames\":[\"a\\n\"],\"Nodes\":{\"items\":[{\"metadata\":"
				   "{\"name\":\"\\u0061\"}}]}}";

	OOM_SWEEP(n) {
		struct ex_names names = {0};
		struct ex_items items = {0};
		struct ex_body body;
		bool hit;
		int rc;

		oom_fail_at(n);
		rc = ex_scan_body(text, sizeof(text) - 1, &body, &names, NULL);
		if (rc == 0)
			rc = ex_scan_nodes(body.nodes, &names, &items, NULL);
		hit = oom_disarm();
		cr_expect_eq(rc, hit ? ERR_NOMEM : 0);
		ex_names_fini(&names);
		ex_items_fini(&items);
		if (!hit)
			break;
	}
}

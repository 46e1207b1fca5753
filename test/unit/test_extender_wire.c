#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/json.h"
#include "extender/wire.h"
#include "kube/object.h"

static void expect_string(const char *s, size_t len, const char *want)
{
	struct buf b = BUF_INIT;

	ex_json_put_string(&b, s, len);
	cr_expect_str_eq(buf_str(&b), want);
	buf_fini(&b);
}

Test(extender_json, strings)
{
	expect_string("", 0, "\"\"");
	expect_string("plain", 5, "\"plain\"");
	expect_string("a\"b\\c\n\r\t\b\f\x01\x7f", 12,
		      "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u007f\"");
	expect_string("\xc3\xbc\xe6\xbc\xa2\xf0\x9f\x98\x80", 9,
		      "\"\xc3\xbc\xe6\xbc\xa2\xf0\x9f\x98\x80\"");
	expect_string("a\xff\xc3", 3, "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
	expect_string("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
	expect_string("a\0b", 3, "\"a\\u0000b\"");
}

Test(extender_json, strings_come_back)
{
	char text[256];
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	cJSON *tree = NULL;

	for (int i = 1; i < 128; i++)
		text[i - 1] = (char)i;
	memcpy(text + 127, "\xc3\xbc\xf4\x8f\xbf\xbf", 7);
	ex_json_put_string(&b, text, strlen(text));
	cr_assert_eq(ku_json_parse(b.data, b.len, &tree, &err), 0, "%s", err.msg);
	cr_expect_str_eq(tree->valuestring, text);
	cJSON_Delete(tree);
	buf_fini(&b);
}

Test(extender_json, commas)
{
	struct buf b = BUF_INIT;
	struct ex_json j = {.b = &b};

	ex_json_begin(&j, '{');
	ex_json_key_i64(&j, "a", -9223372036854775807 - 1);
	ex_json_key(&j, "b");
	ex_json_begin(&j, '[');
	ex_json_begin(&j, '{');
	ex_json_end(&j, '}');
	ex_json_bool(&j, true);
	ex_json_string(&j, NULL);
	ex_json_nano(&j, 125000000);
	ex_json_end(&j, ']');
	ex_json_key_bool(&j, "c", false);
	ex_json_end(&j, '}');
	cr_expect_str_eq(buf_str(&b),
			 "{\"a\":-9223372036854775808,\"b\":[{},true,null,0.125],\"c\":false}");
	buf_fini(&b);
}

/* Names n0, n1, ... with the codes given. */
static void make(const uint8_t *codes, const uint64_t *keys, size_t count, struct ex_names *names,
		 struct ex_verdicts *v, char *text)
{
	struct ex_body body;
	char *p = text;

	p += snprintf(p, 32, "{\"NodeNames\":[");
	for (size_t i = 0; i < count; i++)
		p += snprintf(p, 16, "%s\"n%zu\"", i > 0 ? "," : "", i);
	snprintf(p, 3, "]}");
	cr_assert_eq(ex_scan_body(text, strlen(text), &body, names, NULL), 0);
	cr_assert_eq(ex_verdicts_reset(v, count, NULL), 0);
	memcpy(v->code, codes, count);
	if (keys != NULL)
		memcpy(v->key, keys, count * sizeof(*keys));
}

Test(extender_wire, filter_sorts_nodes_into_three)
{
	static const uint8_t codes[] = {EX_OK,        BP_MEMORY, BP_NO_GPU, EX_REPEATED,
					EX_NOMINATED, EX_BOUND,  EX_OK};
	struct ex_names names = {0};
	struct ex_verdicts v = {0};
	struct buf out = BUF_INIT;
	char text[256];

	make(codes, NULL, 7, &names, &v, text);
	ex_verdicts_set_text(&v, 1, "its \"own\" text");
	ex_wire_filter(&out, &names, NULL, &v);
	cr_expect_str_eq(
		buf_str(&out),
		"{\"Nodes\":null,\"NodeNames\":[\"n0\",\"n6\"],\"FailedNodes\":{\"n1\":\"its "
		"\\\"own\\\" text\",\"n4\":\"room is kept for a preempting pod of higher "
		"priority\"},\"FailedAndUnresolvableNodes\":{\"n2\":\"node has no GPU\",\"n5\":"
		"\"the pod is bound to another node\"},\"Error\":\"\"}");
	buf_fini(&out);
	ex_names_fini(&names);
	ex_verdicts_fini(&v);
}

Test(extender_wire, every_code_has_a_name_and_a_text)
{
	for (int i = 0; i < EX_CODE_COUNT; i++) {
		cr_expect_neq(strcmp(ex_code_name((enum ex_code)i), "other"), 0, "code %d", i);
		cr_expect(i == EX_OK || i == EX_REPEATED ||
			  ex_code_text((enum ex_code)i)[0] != '\0');
	}
	cr_expect_not(ex_code_resolvable(EX_REQUEST));
	cr_expect_not(ex_code_resolvable((enum ex_code)BP_NO_GPU));
	cr_expect(ex_code_resolvable((enum ex_code)BP_MEMORY));
	cr_expect(ex_code_resolvable(EX_NOMINATED));
}

static void expect_scores(const uint64_t *keys, size_t count, unsigned rest, const char *want)
{
	uint8_t codes[8] = {0};
	struct ex_names names = {0};
	struct ex_verdicts v = {0};
	struct buf out = BUF_INIT;
	char text[256];

	codes[count - 1] = keys[count - 1] == 0 ? BP_MEMORY : EX_OK;
	make(codes, keys, count, &names, &v, text);
	ex_wire_prioritize(&out, &names, &v, rest);
	cr_expect_str_eq(buf_str(&out), want);
	buf_fini(&out);
	ex_names_fini(&names);
	ex_verdicts_fini(&v);
}

Test(extender_wire, the_best_is_alone_at_ten)
{
	expect_scores((uint64_t[]){5}, 1, 9, "[{\"Host\":\"n0\",\"Score\":10}]");
	expect_scores((uint64_t[]){5, 7, 0}, 3, 9,
		      "[{\"Host\":\"n0\",\"Score\":9},{\"Host\":\"n1\",\"Score\":10}]");
	expect_scores((uint64_t[]){100, 190, UINT64_MAX, 145}, 4, 9,
		      "[{\"Host\":\"n1\",\"Score\":9},{\"Host\":\"n2\",\"Score\":10},"
		      "{\"Host\":\"n3\",\"Score\":4}]");
	expect_scores((uint64_t[]){100, 190, UINT64_MAX, 145}, 4, 0,
		      "[{\"Host\":\"n2\",\"Score\":10}]");
	/* Equal keys should not be; still only one is the best. */
	expect_scores((uint64_t[]){7, 7, 7}, 3, 9,
		      "[{\"Host\":\"n0\",\"Score\":10},{\"Host\":\"n1\",\"Score\":9},"
		      "{\"Host\":\"n2\",\"Score\":9}]");
	expect_scores((uint64_t[]){0}, 1, 9, "[]");
}

Test(extender_wire, bind_arguments)
{
	static const struct {
		const char *text, *want;
	} wrong[] = {
		{"{}", "PodName: a string is needed"},
		{"[]", "the body is not a JSON object"},
		{"{\"PodName\":\"p\",\"PodNamespace\":7,\"PodUID\":\"u\",\"Node\":\"n\"}",
		 "PodNamespace: a string is needed"},
		{"{\"PodName\":\"p\",\"PodNamespace\":\"s\",\"PodUID\":\"\",\"Node\":\"n\"}",
		 "PodUID: a string is needed"},
		{"{\"PodName\":\"p\",\"PodNamespace\":\"s\",\"PodUID\":\"u\",\"Node\":null}",
		 "Node: a string is needed"},
		{"{\"PodName\":\"p\"", "JSON, byte 14"},
	};
	static const char right[] =
		"{\"podname\":\"p\",\"PODNAMESPACE\":\"x\",\"PodNamespace\":\"s\","
		"\"PodUID\":\"u\",\"Node\":\"n\",\"More\":[]}";
	struct ex_bind_args a = {0};
	struct err err = ERR_INIT;

	cr_assert_eq(ex_wire_bind_parse(right, strlen(right), &a, &err), 0, "%s", err.msg);
	cr_expect_str_eq(a.name, "p");
	cr_expect_str_eq(a.ns, "s");
	cr_expect_str_eq(a.uid, "u");
	cr_expect_str_eq(a.node, "n");
	ex_bind_args_fini(&a);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_expect_eq(ex_wire_bind_parse(wrong[i].text, strlen(wrong[i].text), &a, &err),
			     ERR_INVALID);
		cr_expect(strstr(err.msg, wrong[i].want) != NULL, "%s", err.msg);
		cr_expect_null(a.uid);
	}
}

Test(extender_wire, preempt_arguments_in_both_forms)
{
	static const char *const texts[] = {
		"{\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":{\"n\":{\"Pods\":[{\"UID\":\"a\"},"
		"{\"UID\":\"b\"}],\"NumPDBViolations\":3},\"m\":{\"Pods\":null}}}",
		"{\"NodeNameToVictims\":{\"n\":{\"Pods\":[{\"metadata\":{\"uid\":\"a\"}},{\"metadata\":"
		"{\"uid\":\"b\"}}],\"NumPDBViolations\":3},\"m\":{}}}",
	};
	struct ex_preemption p = {0};
	struct ex_names names = {0};
	struct ex_body body;
	struct err err = ERR_INIT;
	struct buf out = BUF_INIT;

	for (size_t i = 0; i < 2; i++) {
		cr_assert_eq(ex_scan_body(texts[i], strlen(texts[i]), &body, &names, &err), 0);
		cr_assert_eq(ex_wire_preempt_parse(&body, &p, &err), 0, "%s", err.msg);
		cr_assert_eq(p.count, 2);
		cr_expect_eq(p.v[0].count, 2);
		cr_expect_str_eq(p.v[0].uids[1], "b");
		cr_expect_eq(p.v[0].pdb_violations, 3);
		cr_expect_eq(p.v[1].count, 0);
		p.v[0].chosen = calloc(1, sizeof(char *));
		p.v[0].chosen[p.v[0].chosen_count++] = strdup("b");
		buf_reset(&out);
		ex_wire_preempt(&out, &p, "");
		cr_expect_str_eq(buf_str(&out),
				 "{\"NodeNameToMetaVictims\":{\"n\":{\"Pods\":[{\"UID\":"
				 "\"b\"}],\"NumPDBViolations\":3}}}");
		ex_preemption_fini(&p);
	}
	cr_assert_eq(ex_scan_body("{}", 2, &body, &names, &err), 0);
	cr_expect_eq(ex_wire_preempt_parse(&body, &p, &err), ERR_INVALID);
	ex_names_fini(&names);
	buf_fini(&out);
}

/* What must not work, and what must not break it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/extender_fixture.h"
#include "test/lib/oom.h"

#define A100 "NVIDIA A100-SXM4-40GB"
#define HALF "\"gpu-fraction\":\"0.5\""

static struct xf f;

static void open_all(void)
{
	struct buf b = BUF_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n1", 2, 40960, A100, false);
	xf_node(&b, "n2", 2, 40960, A100, false);
	xf_node(&b, "n3", 0, 0, "", false);
	xf_list_end(&b);
	xf_open(&f, buf_str(&b), NULL, NULL);
	buf_fini(&b);
}

static void close_all(void)
{
	xf_close(&f);
}

TestSuite(extender_input, .init = open_all, .fini = close_all);

Test(extender_input, bad_input_is_an_error_and_changes_nothing)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{"", "the body is not a JSON object"},
		{"{}", "neither NodeNames nor Nodes is given"},
		{"{\"NodeNames\":[\"n1\"]}", "Pod: is missing"},
		{"{\"Pod\":{},\"NodeNames\":[\"n1\"]}", "metadata.name"},
		{"{\"Pod\":{\"metadata\":{\"name\":7}},\"NodeNames\":[]}",
		 "metadata.name: is a number"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":{}}},\"NodeNames\":[]}",
		 "spec.containers"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"p\"},\"spec\":{\"priority\":1e400}},\"NodeNames\":[]}",
		 "a number out of range"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"NodeNames\":[\"n1\",{}]}",
		 "NodeNames[1]"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"\xff\"}},\"NodeNames\":[]}", "invalid UTF-8"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"\\u0000\"}},\"NodeNames\":[]}", "\\u0000"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"Nodes\":{\"items\":[{}]}}",
		 "Nodes.items[0]"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"Nodes\":{\"items\":{}}}",
		 "items is not a list"},
		{"{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"NodeNames\":[\"n1\"]",
		 "no comma or end"},
	};
	char *before = xf_books(&f), *after, *reply;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		reply = xf_filter(&f, rows[i].body);
		cr_expect(strncmp(reply, "{\"Nodes\":null,\"NodeNames\":null", 30) == 0, "%s",
			  reply);
		cr_expect(strstr(reply, rows[i].want) != NULL ||
				  strstr(rows[i].want, "\\u") != NULL,
			  "%s: %s", rows[i].body, reply);
		cr_expect_null(strstr(reply, "\"Error\":\"\""), "%s", reply);
		free(reply);
		reply = xf_prioritize(&f, rows[i].body);
		cr_expect_str_eq(reply, "[]");
		free(reply);
		reply = xf_preempt(&f, rows[i].body);
		cr_expect(strncmp(reply, "{\"NodeNameToMetaVictims\":{},\"Error\":\"", 36) == 0,
			  "%s", reply);
		free(reply);
	}
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	free(before);
	free(after);
}

Test(extender_input, a_hundred_thousand_names_of_253_characters)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	struct buf names = BUF_INIT;
	char tail[244], *body, *reply, *passing;

	memset(tail, 'x', 243);
	tail[243] = '\0';
	buf_puts(&names, "n2");
	for (int i = 0; i < 100000; i++)
		buf_printf(&names, " node%06d%s", i, tail);
	body = xf_args(p, buf_str(&names));
	reply = xf_filter(&f, body);
	cr_expect(strncmp(reply, "{\"Nodes\":null,\"NodeNames\":[\"n2\"],", 33) == 0);
	cr_expect(strstr(reply, "\"node099999") != NULL);
	free(reply);
	free(body);
	passing = xf_passing(&f, p, "n1 n2");
	cr_expect_str_eq(passing, "n1 n2");
	free(passing);
	buf_fini(&names);
}

Test(extender_input, lack_of_memory_is_an_error_and_changes_nothing)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	char *body = xf_args(p, "n1 n2 n3"), *before = xf_books(&f), *after;
	struct ex_bind_args args = {.uid = strdup("a"),
				    .ns = strdup("ns"),
				    .name = strdup("p-a"),
				    .node = strdup("n1")};
	int rc;

	OOM_SWEEP(n) {
		struct buf out = BUF_INIT;
		struct err err = ERR_INIT;
		bool hit;

		oom_fail_at(n);
		rc = ex_verb_filter(f.s, &f.scratch, body, strlen(body), &out, &err);
		hit = oom_disarm();
		cr_expect(rc == 0 || hit);
		buf_fini(&out);
		if (!hit)
			break;
		after = xf_books(&f);
		cr_assert_str_eq(after, before);
		free(after);
	}
	OOM_SWEEP(n) {
		struct err err = ERR_INIT;
		bool hit;

		oom_fail_at(n);
		rc = ex_service_bind_now(f.s, &args, &err);
		hit = oom_disarm();
		cr_expect(rc == 0 || hit, "%s", err.msg);
		if (rc == 0)
			break;
		after = xf_books(&f);
		cr_assert_str_eq(after, before);
		free(after);
		xf_check(&f);
	}
	ex_bind_args_fini(&args);
	free(before);
	free(body);
}

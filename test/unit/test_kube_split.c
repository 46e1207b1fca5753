/* The splitter of watch streams and lists: wherever the input is cut, the same pieces come out. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "kube/object.h"
#include "kube/reflector_split.h"
#include "test/lib/oom.h"

static int note(void *ctx, enum ku_piece what, const char *text, size_t len, struct err *err)
{
	struct buf *out = ctx;
	cJSON *tree;

	cr_assert_eq(ku_json_parse(text, len, &tree, err), 0, "%s in %.*s", err->msg, (int)len,
		     text);
	cJSON_Delete(tree);
	buf_puts(out, what == KU_PIECE_OBJECT ? "O:" : "M:");
	buf_put(out, text, len);
	buf_putc(out, '\n');
	return 0;
}

/* Feeds text in pieces of at most chunk bytes; 0: of random sizes. */
static int feed(struct ku_split *s, const char *text, size_t chunk, struct rng *rng,
		struct err *err)
{
	size_t len = strlen(text);
	int r = 0;

	for (size_t at = 0; at < len && r == 0;) {
		size_t n = chunk > 0 ? chunk : 1 + (size_t)rng_below(rng, 9);

		n = n < len - at ? n : len - at;
		r = ku_split_feed(s, text + at, n, err);
		at += n;
	}
	return r;
}

struct row {
	enum ku_split_mode mode;
	const char *in, *out;
	const char *prune[4];
};

static const struct row rows[] = {
	{KU_SPLIT_EVENTS,
	 "{\"type\":\"ADDED\",\"object\":{\"a\":[1,2,{\"b\":\"x\"}]}}\n{}\n",
	 "O:{\"type\":\"ADDED\",\"object\":{\"a\":[1,2,{\"b\":\"x\"}]}}\nO:{}\n",
	 {NULL}},
	{KU_SPLIT_EVENTS,
	 " \n{ \"a\" : null ,\r\n\"b\" : -1.5e3 } {\"c\":[ ]}",
	 "O:{\"a\":null,\"b\":-1.5e3}\nO:{\"c\":[]}\n",
	 {NULL}},
	{KU_SPLIT_EVENTS,
	 "{\"a\":\"}\\\"{\\\\\",\"b\":\"\\u00e9\"}{\"x\":{}}",
	 "O:{\"a\":\"}\\\"{\\\\\",\"b\":\"\\u00e9\"}\nO:{\"x\":{}}\n",
	 {NULL}},
	{KU_SPLIT_EVENTS,
	 "{\"type\":\"M\",\"object\":{\"metadata\":{\"managedFields\":[{\"a\":\"]}\\\"\"}],"
	 "\"name\":\"n\"},\"spec\":{\"x\":1}}}",
	 "O:{\"type\":\"M\",\"object\":{\"metadata\":{\"name\":\"n\"},\"spec\":{\"x\":1}}}\n",
	 {"metadata.managedFields", NULL}},
	/* the same path outside of "object" stays */
	{KU_SPLIT_EVENTS,
	 "{\"metadata\":{\"managedFields\":1},\"object\":{\"metadata\":{\"a\":2}}}",
	 "O:{\"metadata\":{\"managedFields\":1},\"object\":{\"metadata\":{\"a\":2}}}\n",
	 {"metadata.managedFields", NULL}},
	{KU_SPLIT_LIST,
	 "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\","
	 "\"continue\":\"abc\"},\"items\":[{\"a\":1},{\"b\":{\"items\":[{}]}} , {}]}\n",
	 "M:{\"resourceVersion\":\"7\",\"continue\":\"abc\"}\nO:{\"a\":1}\n"
	 "O:{\"b\":{\"items\":[{}]}}\nO:{}\n",
	 {NULL}},
	{KU_SPLIT_LIST, "{\"items\":null,\"metadata\":{}}", "M:{}\n", {NULL}},
	{KU_SPLIT_LIST,
	 "{\"items\":[],\"x\":[{\"items\":[1]}],\"metadata\":{\"a\":\"b\"}}",
	 "M:{\"a\":\"b\"}\n",
	 {NULL}},
	{KU_SPLIT_LIST,
	 "{\"items\":[{\"s\":{\"c\":[{\"env\":[{}],\"n\":1},{\"n\":2,\"env\":\"a\"}],\"v\":[1]},\"k\":3},"
	 "{\"s\":{\"v\":true,\"w\":1.5,\"c\":null}}]}",
	 "O:{\"s\":{\"c\":[{\"n\":1},{\"n\":2}]},\"k\":3}\nO:{\"s\":{\"w\":1.5,\"c\":null}}\n",
	 {"s.c.env", "s.v", NULL}},
	/* all members left out; a name that only starts alike stays */
	{KU_SPLIT_LIST,
	 "{\"items\":[{\"a\":1,\"b\":{\"x\":{}},\"c\":\"\"},{\"aa\":1}]}",
	 "O:{}\nO:{\"aa\":1}\n",
	 {"a", "b", "c", NULL}},
};

Test(kube_split, pieces)
{
	struct rng rng = {.state = 7};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (size_t chunk = 0; chunk < 60; chunk++) {
			struct buf out = BUF_INIT;
			struct err err = ERR_INIT;
			struct ku_split s;

			cr_assert_eq(ku_split_init(&s, rows[i].mode, rows[i].prune, 4096, note,
						   &out, &err),
				     0);
			cr_assert_eq(feed(&s, rows[i].in, chunk, &rng, &err), 0, "row %zu: %s", i,
				     err.msg);
			cr_expect(ku_split_complete(&s), "row %zu", i);
			cr_expect_str_eq(buf_str(&out), rows[i].out, "row %zu, chunk %zu", i,
					 chunk);
			ku_split_fini(&s);
			buf_fini(&out);
		}
	}
}

static const struct {
	enum ku_split_mode mode;
	const char *in;
} wrong[] = {
	{KU_SPLIT_EVENTS, "x"},
	{KU_SPLIT_EVENTS, "[]"},
	{KU_SPLIT_EVENTS, "{,}"},
	{KU_SPLIT_EVENTS, "{\"a\" 1}"},
	{KU_SPLIT_EVENTS, "{\"a\":}"},
	{KU_SPLIT_EVENTS, "{\"a\":[1}"},
	{KU_SPLIT_EVENTS, "{\"a\":1]"},
	{KU_SPLIT_EVENTS, "{\"a\":1,}"},
	{KU_SPLIT_EVENTS, "{}}"},
	{KU_SPLIT_EVENTS, "{\"a\":{]}"},
	{KU_SPLIT_EVENTS, "{\"a\":x}"},
	{KU_SPLIT_EVENTS, "{1:2}"},
	{KU_SPLIT_LIST, "[]"},
	{KU_SPLIT_LIST, "{\"items\":[1]}"},
	{KU_SPLIT_LIST, "{\"items\":{}}"},
	{KU_SPLIT_LIST, "{\"items\":[]} {}"},
	{KU_SPLIT_LIST, "{\"items\":[{},]]}"},
};

Test(kube_split, wrong)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct buf out = BUF_INIT;
		struct err err = ERR_INIT;
		struct ku_split s;

		cr_assert_eq(ku_split_init(&s, wrong[i].mode, NULL, 4096, note, &out, &err), 0);
		cr_expect_eq(ku_split_feed(&s, wrong[i].in, strlen(wrong[i].in), &err), ERR_INVALID,
			     "%s", wrong[i].in);
		cr_expect_neq(err.msg[0], '\0');
		/* and it can be used again */
		ku_split_reset(&s);
		buf_reset(&out);
		cr_expect_eq(ku_split_feed(&s, "{\"items\":[{\"a\":1}]}", 19, &err), 0);
		cr_expect_not_null(strstr(buf_str(&out), "{\"a\":1}"));
		ku_split_fini(&s);
		buf_fini(&out);
	}
}

Test(kube_split, incomplete)
{
	static const char *const events[] = {"{", "{\"a\":1", "{\"a\":\"", "{}{"};
	static const char *const lists[] = {"", "{", "{\"items\":[{}]", "{\"metadata\":{}}"};

	for (size_t i = 0; i < 4; i++) {
		struct buf out = BUF_INIT;
		struct ku_split s;

		cr_assert_eq(ku_split_init(&s, KU_SPLIT_EVENTS, NULL, 4096, note, &out, NULL), 0);
		cr_assert_eq(ku_split_feed(&s, events[i], strlen(events[i]), NULL), 0);
		cr_expect_not(ku_split_complete(&s), "%s", events[i]);
		ku_split_fini(&s);
		cr_assert_eq(ku_split_init(&s, KU_SPLIT_LIST, NULL, 4096, note, &out, NULL), 0);
		cr_assert_eq(ku_split_feed(&s, lists[i], strlen(lists[i]), NULL), 0);
		cr_expect_not(ku_split_complete(&s), "%s", lists[i]);
		ku_split_fini(&s);
		buf_fini(&out);
	}
}

Test(kube_split, object_size_is_bounded)
{
	static const char *const prune[] = {"big", NULL};
	struct buf in = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;
	struct ku_split s;

	buf_puts(&in, "{\"items\":[{\"big\":\"");
	for (int i = 0; i < 100000; i++)
		buf_puts(&in, "0123456789");
	buf_puts(&in, "\",\"a\":1}]}");
	/* what is left out does not count, and takes no memory */
	cr_assert_eq(ku_split_init(&s, KU_SPLIT_LIST, prune, 64, note, &out, &err), 0);
	cr_assert_eq(ku_split_feed(&s, in.data, in.len, &err), 0, "%s", err.msg);
	cr_expect_str_eq(buf_str(&out), "O:{\"a\":1}\n");
	cr_expect_lt(s.out.cap, 4096);
	ku_split_fini(&s);
	cr_assert_eq(ku_split_init(&s, KU_SPLIT_LIST, NULL, 64, note, &out, &err), 0);
	cr_assert_eq(ku_split_feed(&s, in.data, in.len, &err), ERR_TOO_LARGE);
	cr_expect_not_null(strstr(err.msg, "more than 64 bytes"));
	ku_split_fini(&s);
	buf_fini(&in);
	buf_fini(&out);
}

Test(kube_split, depth_is_bounded)
{
	struct buf in = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;
	struct ku_split s;

	buf_puts(&in, "{\"a\":");
	for (int i = 0; i < 300; i++)
		buf_putc(&in, '[');
	cr_assert_eq(ku_split_init(&s, KU_SPLIT_EVENTS, NULL, 4096, note, &out, &err), 0);
	cr_expect_eq(ku_split_feed(&s, in.data, in.len, &err), ERR_INVALID);
	cr_expect_not_null(strstr(err.msg, "levels"));
	ku_split_fini(&s);
	buf_fini(&in);
	buf_fini(&out);
}

Test(kube_split, prune_paths_are_checked)
{
	static const char *const empty[] = {"a..b", NULL};
	const char *many[KU_SPLIT_NAMES + 1] = {NULL};
	static char text[KU_SPLIT_NAMES][16];
	struct err err = ERR_INIT;
	struct ku_split s;

	cr_expect_eq(ku_split_init(&s, KU_SPLIT_LIST, empty, 64, note, NULL, &err), ERR_INVALID);
	for (int i = 0; i < KU_SPLIT_NAMES; i++) {
		snprintf(text[i], sizeof(text[i]), "n%d", i);
		many[i] = text[i];
	}
	cr_expect_eq(ku_split_init(&s, KU_SPLIT_LIST, many, 64, note, NULL, &err), ERR_INVALID);
}

Test(kube_split, oom_sweep)
{
	OOM_SWEEP(n) {
		struct buf out = BUF_INIT;
		struct err err = ERR_INIT;
		struct ku_split s;
		bool hit;
		int r;

		cr_assert_eq(ku_split_init(&s, KU_SPLIT_LIST, NULL, 4096, note, &out, &err), 0);
		buf_reserve(&out, 4096);
		oom_fail_at(n);
		r = ku_split_feed(&s, rows[5].in, strlen(rows[5].in), &err);
		hit = oom_disarm();
		ku_split_fini(&s);
		buf_fini(&out);
		if (!hit) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM);
	}
}

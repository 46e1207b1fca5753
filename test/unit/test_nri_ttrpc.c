/* The multiplexer and ttrpc beyond the vectors: sizes, lengths that lie, ids out of order, memory. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mux.h"
#include "enforcer/ttrpc.h"
#include "enforcer/ttrpc_mem.h"
#include "test/lib/go_peer.h"
#include "test/lib/nri_text.h"
#include "test/lib/oom.h"

static void put_be32(struct buf *b, uint32_t v)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		buf_putc(b, (char)(v >> shift));
}

/* ---- the multiplexer ---- */

static int collect(void *ctx, uint32_t id, const unsigned char *data, size_t len, struct err *err)
{
	struct buf *streams = ctx;

	(void)err;
	cr_assert(len > 0 || id > 2);
	buf_put(&streams[id < 3 ? id : 3], data, len);
	return 0;
}

Test(nri_mux, frames_of_two_connections_interleave)
{
	struct buf in = BUF_INIT, streams[4] = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT};
	static const struct {
		uint32_t id;
		const char *text;
	} frames[] = {{1, "ab"}, {2, "x"},    {1, ""}, {9, "lost"},
		      {1, "c"},  {0, "zero"}, {2, ""}, {2, "yz"}};

	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		put_be32(&in, frames[i].id);
		put_be32(&in, (uint32_t)strlen(frames[i].text));
		buf_puts(&in, frames[i].text);
	}
	for (size_t step = 1; step <= in.len; step++) {
		struct en_mux m = {.have = 0};

		for (int i = 0; i < 4; i++)
			buf_reset(&streams[i]);
		for (size_t at = 0; at < in.len; at += step)
			cr_assert_eq(en_mux_feed(&m, in.data + at,
						 at + step < in.len ? step : in.len - at, collect,
						 streams, NULL),
				     0);
		cr_expect_str_eq(buf_str(&streams[1]), "abc");
		cr_expect_str_eq(buf_str(&streams[2]), "xyz");
		cr_expect_str_eq(buf_str(&streams[0]), "zero");
		cr_expect_str_eq(buf_str(&streams[3]), "lost");
	}
	for (int i = 0; i < 4; i++)
		buf_fini(&streams[i]);
	buf_fini(&in);
}

Test(nri_mux, length_bound)
{
	static const uint32_t good[] = {0, 1, 4096, 4194314, 1U << 24};
	static const uint32_t bad[] = {(1U << 24) + 1, 1U << 31, UINT32_MAX};
	struct buf streams[4] = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct en_mux m = {.have = 0};
		struct buf in = BUF_INIT;

		put_be32(&in, 1);
		put_be32(&in, good[i]);
		cr_expect_eq(en_mux_feed(&m, in.data, in.len, collect, streams, NULL), 0);
		buf_fini(&in);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct en_mux m = {.have = 0};
		struct err err = ERR_INIT;
		struct buf in = BUF_INIT;

		put_be32(&in, 1);
		put_be32(&in, bad[i]);
		buf_puts(&in, "rest");
		cr_expect_eq(en_mux_feed(&m, in.data, in.len, collect, streams, &err),
			     ERR_TOO_LARGE);
		cr_expect(strstr(err.msg, "at most 16777216") != NULL, "%s", err.msg);
		buf_fini(&in);
	}
	cr_expect_eq(streams[1].len, 0);
}

static int stop_at_once(void *ctx, uint32_t id, const unsigned char *data, size_t len,
			struct err *err)
{
	(void)ctx;
	(void)id;
	(void)data;
	(void)len;
	return err_set(err, ERR_CONFLICT, "enough");
}

Test(nri_mux, what_the_callee_says_ends_the_feeding)
{
	struct en_mux m = {.have = 0};
	struct buf in = BUF_INIT;
	struct err err = ERR_INIT;

	en_mux_put(&in, 1, "abc", 3);
	cr_expect_eq(en_mux_feed(&m, in.data, in.len, stop_at_once, NULL, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "enough");
	buf_fini(&in);
}

/* ---- what Go makes of our messages ---- */

static void expect_go_reads(size_t len)
{
	struct buf out = BUF_INIT, got = BUF_INIT;
	char *payload = malloc(len + 1);
	struct go_peer peer = {.fault = NULL};
	struct go_message m = {.len = 0};

	cr_assert_not_null(payload);
	for (size_t i = 0; i < len; i++)
		payload[i] = (char)(i * 7 + i / 4096);
	/* Two in a row: the second must not be taken for a part of the first. */
	cr_assert_eq(en_ttrpc_reply(&out, 1, 5, payload, len, NULL), 0);
	cr_assert_eq(en_ttrpc_reply(&out, 1, 7, "x", 1, NULL), 0);
	go_peer_feed(&peer, out.data, out.len);
	cr_assert(go_peer_next(&peer, 1, &m), "%zu: %s", len, peer.fault);
	cr_expect_eq(m.stream, 5);
	cr_expect_eq(m.type, 2);
	cr_expect_eq(m.flags, 0);
	cr_expect_eq(nt_answer(m.data, m.len, &got, NULL, 0), 0);
	cr_expect(got.len == len && (len == 0 || memcmp(got.data, payload, len) == 0));
	free(m.data);
	cr_assert(go_peer_next(&peer, 1, &m), "%zu: %s", len, peer.fault);
	cr_expect_eq(m.stream, 7);
	free(m.data);
	cr_expect_not(go_peer_next(&peer, 1, &m));
	cr_expect_null(peer.fault);
	go_peer_fini(&peer);
	free(payload);
	buf_fini(&out);
	buf_fini(&got);
}

Test(nri_ttrpc, go_reads_answers_of_every_size)
{
	expect_go_reads(0);
	expect_go_reads(1);
	for (size_t len = 4060; len <= 4110; len++)
		expect_go_reads(len);
	for (size_t len = 8160; len <= 8200; len++)
		expect_go_reads(len);
	expect_go_reads(65536);
	expect_go_reads(3000000);
	expect_go_reads(4194000);
}

Test(nri_ttrpc, the_reading_go_program_is_as_strict_as_the_real_one)
{
	struct go_peer peer = {.fault = NULL};
	struct go_message m;
	struct buf b = BUF_INIT;

	put_be32(&b, 1);
	put_be32(&b, 4097);
	put_be32(&b, 4087);
	put_be32(&b, 1);
	buf_putc(&b, 2);
	buf_putc(&b, 0);
	for (int i = 0; i < 4087; i++)
		buf_putc(&b, 0);
	go_peer_feed(&peer, b.data, b.len);
	cr_expect_not(go_peer_next(&peer, 1, &m));
	cr_expect_not_null(peer.fault);
	go_peer_fini(&peer);
	buf_fini(&b);
}

Test(nri_ttrpc, answers_over_four_mib_are_not_written)
{
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;
	char *payload = calloc(1, EN_TTRPC_DATA_MAX);

	cr_assert_not_null(payload);
	cr_expect_eq(en_ttrpc_reply(&out, 1, 1, payload, EN_TTRPC_DATA_MAX, &err), ERR_TOO_LARGE);
	cr_expect_eq(out.len, 0);
	cr_expect_eq(en_ttrpc_reply(&out, 1, 1, payload, EN_TTRPC_DATA_MAX - 5, &err), 0);
	free(payload);
	buf_fini(&out);
}

Test(nri_ttrpc, texts_of_errors_are_plain)
{
	struct buf out = BUF_INIT, none = BUF_INIT;
	char text[4096], long_text[4096];
	struct go_peer peer = {.fault = NULL};
	struct go_message m = {.len = 0};

	memset(long_text, 'a', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	cr_assert_eq(en_ttrpc_reply_error(&out, 1, 1, EN_TTRPC_UNKNOWN, "a\xff\n\xc3\xa4z", NULL),
		     0);
	cr_assert_eq(en_ttrpc_reply_error(&out, 1, 3, EN_TTRPC_UNKNOWN, long_text, NULL), 0);
	go_peer_feed(&peer, out.data, out.len);
	cr_assert(go_peer_next(&peer, 1, &m));
	cr_expect_eq(nt_answer(m.data, m.len, &none, text, sizeof(text)), EN_TTRPC_UNKNOWN);
	cr_expect_str_eq(text, "a????z");
	free(m.data);
	cr_assert(go_peer_next(&peer, 1, &m));
	nt_answer(m.data, m.len, &none, text, sizeof(text));
	cr_expect_eq(strlen(text), 2048);
	free(m.data);
	go_peer_fini(&peer);
	buf_fini(&out);
	buf_fini(&none);
}

/* ---- the side that is called ---- */

struct heard {
	struct buf text;
	int result;
};

static int hear_call(void *ctx, const struct en_ttrpc_call *call, struct err *err)
{
	struct heard *h = ctx;

	buf_printf(&h->text, "%u:%s ", call->stream, call->method);
	return h->result != 0 ? err_set(err, h->result, "stop") : 0;
}

/* A ttrpc message with these data. */
static void put_message(struct buf *b, uint32_t len, uint32_t stream, int type, int flags,
			const void *data, size_t data_len)
{
	put_be32(b, len);
	put_be32(b, stream);
	buf_putc(b, (char)type);
	buf_putc(b, (char)flags);
	buf_put(b, data, data_len);
}

/* service "s", method "m" */
static const char request[] = {0x0a, 1, 's', 0x12, 1, 'm'};

static void put_request(struct buf *b, uint32_t stream, int type, int flags)
{
	put_message(b, sizeof(request), stream, type, flags, request, sizeof(request));
}

/* Codes of all answers in out, by stream: "2=3 5=12 ". */
static void answers_text(const struct buf *out, struct buf *text)
{
	struct go_peer peer = {.fault = NULL};
	struct buf none = BUF_INIT;
	struct go_message m;

	go_peer_feed(&peer, out->data, out->len);
	while (go_peer_next(&peer, 1, &m)) {
		buf_printf(text, "%u=%d ", m.stream, nt_answer(m.data, m.len, &none, NULL, 0));
		free(m.data);
	}
	cr_expect_null(peer.fault);
	go_peer_fini(&peer);
	buf_fini(&none);
}

struct server_case {
	struct en_ttrpc_server server;
	struct heard heard;
	struct buf in, out, answers;
};

static void expect_served(struct server_case *x, const char *calls, const char *answers)
{
	struct err err = ERR_INIT;

	for (size_t step = x->in.len; step > 0; step = step > 7 ? 7 : step - 1) {
		x->server = (struct en_ttrpc_server){.mux_id = 1};
		buf_reset(&x->heard.text);
		buf_reset(&x->out);
		buf_reset(&x->answers);
		for (size_t at = 0; at < x->in.len; at += step)
			cr_assert_eq(en_ttrpc_server_feed(&x->server, x->in.data + at,
							  at + step < x->in.len ? step
										: x->in.len - at,
							  &x->out, hear_call, &x->heard, &err),
				     0, "%s", err.msg);
		answers_text(&x->out, &x->answers);
		cr_expect_str_eq(buf_str(&x->heard.text), calls);
		cr_expect_str_eq(buf_str(&x->answers), answers);
		en_ttrpc_server_fini(&x->server);
	}
	buf_fini(&x->heard.text);
	buf_fini(&x->in);
	buf_fini(&x->out);
	buf_fini(&x->answers);
}

Test(nri_ttrpc, ids_are_odd_and_rise)
{
	struct server_case x = {.server = {.mux_id = 1}};

	put_request(&x.in, 1, 1, 0);
	put_request(&x.in, 3, 1, 0);
	put_request(&x.in, 3, 1, 0); /* twice */
	put_request(&x.in, 1, 1, 0); /* back */
	put_request(&x.in, 4, 1, 0); /* even */
	put_request(&x.in, 0, 1, 0);
	put_request(&x.in, 9, 1, 0); /* a gap is fine */
	put_request(&x.in, 7, 1, 0);
	put_request(&x.in, UINT32_MAX, 1, 0);
	expect_served(&x, "1:m 3:m 9:m 4294967295:m ", "3=3 1=3 4=3 0=3 7=3 ");
}

Test(nri_ttrpc, types_and_flags)
{
	struct server_case x = {.server = {.mux_id = 1}};

	put_request(&x.in, 1, 3, 0); /* data */
	put_request(&x.in, 1, 2, 0); /* an answer to a question nobody asked */
	put_request(&x.in, 1, 77, 0);
	put_request(&x.in, 1, 1, 1); /* remote closed: nothing more will come */
	put_request(&x.in, 3, 1, 2); /* remote open: a stream */
	put_request(&x.in, 5, 1, 0);
	expect_served(&x, "1:m 5:m ", "3=12 ");
}

Test(nri_ttrpc, requests_that_cannot_be_read)
{
	static const char cut[] = {0x0a, 5, 's'}, tag[] = {(char)0xff};
	static const char huge[] = {0x0a,       (char)0xff, (char)0xff, (char)0xff,
				    (char)0xff, 0x0f,       's'};
	struct server_case x = {.server = {.mux_id = 1}};

	put_message(&x.in, sizeof(cut), 1, 1, 0, cut, sizeof(cut));
	put_message(&x.in, sizeof(tag), 3, 1, 0, tag, sizeof(tag));
	put_message(&x.in, sizeof(huge), 5, 1, 0, huge, sizeof(huge));
	put_message(&x.in, 0, 7, 1, 0, "", 0); /* empty: no service, no method */
	expect_served(&x, "7: ", "1=3 3=3 5=3 ");
}

/* A length over 4 MiB is skipped as the Go server does it, and answered. */
Test(nri_ttrpc, oversized_requests_are_skipped)
{
	const size_t size = EN_TTRPC_DATA_MAX + 1;
	struct server_case x = {.server = {.mux_id = 1}};
	char *zeros = calloc(1, size);
	struct err err = ERR_INIT;

	cr_assert_not_null(zeros);
	put_message(&x.in, (uint32_t)size, 1, 1, 0, zeros, size);
	put_request(&x.in, 3, 1, 0);
	for (size_t at = 0; at < x.in.len; at += 65536)
		cr_assert_eq(en_ttrpc_server_feed(&x.server, x.in.data + at,
						  at + 65536 < x.in.len ? 65536 : x.in.len - at,
						  &x.out, hear_call, &x.heard, &err),
			     0);
	cr_expect_eq(x.server.reader.data.cap < 1024, true, "skipped data was kept");
	answers_text(&x.out, &x.answers);
	cr_expect_str_eq(buf_str(&x.heard.text), "3:m ");
	cr_expect_str_eq(buf_str(&x.answers), "1=8 ");
	free(zeros);
	en_ttrpc_server_fini(&x.server);
	buf_fini(&x.heard.text);
	buf_fini(&x.in);
	buf_fini(&x.out);
	buf_fini(&x.answers);
}

/* What a header claims costs nothing until it comes. */
Test(nri_ttrpc, claimed_lengths_take_no_memory)
{
	struct en_ttrpc_server s = {.mux_id = 1};
	struct heard h = {.result = 0};
	struct buf in = BUF_INIT, out = BUF_INIT;

	put_message(&in, EN_TTRPC_DATA_MAX, 1, 1, 0, "abc", 3);
	cr_assert_eq(en_ttrpc_server_feed(&s, in.data, in.len, &out, hear_call, &h, NULL), 0);
	cr_expect(s.reader.data.cap < 1024);
	en_ttrpc_server_fini(&s);
	buf_fini(&in);
	buf_fini(&out);
}

Test(nri_ttrpc, what_the_callee_says_ends_the_feeding)
{
	struct en_ttrpc_server s = {.mux_id = 1};
	struct heard h = {.result = ERR_CONFLICT};
	struct buf in = BUF_INIT, out = BUF_INIT;
	struct err err = ERR_INIT;

	put_request(&in, 1, 1, 0);
	put_request(&in, 3, 1, 0);
	cr_expect_eq(en_ttrpc_server_feed(&s, in.data, in.len, &out, hear_call, &h, &err),
		     ERR_CONFLICT);
	cr_expect_str_eq(buf_str(&h.text), "1:m ");
	en_ttrpc_server_fini(&s);
	buf_fini(&h.text);
	buf_fini(&in);
	buf_fini(&out);
}

/* ---- the side that calls ---- */

static int hear_answer(void *ctx, const struct en_ttrpc_answer *a, struct err *err)
{
	struct heard *h = ctx;

	(void)err;
	buf_printf(&h->text, "%u=%d,%s,%zu ", a->stream, (int)a->code, a->text, a->len);
	return 0;
}

Test(nri_ttrpc, answers_find_their_calls)
{
	static const char bad[] = {0x0a, 9};
	struct en_ttrpc_client c = {.mux_id = 2};
	const struct en_ttrpc_call call = {.service = "s", .method = "m"};
	struct heard h = {.result = 0};
	struct buf in = BUF_INIT, out = BUF_INIT;
	uint32_t stream = 0;

	for (uint32_t i = 0; i < EN_TTRPC_PENDING_MAX; i++) {
		cr_assert_eq(en_ttrpc_client_call(&c, &out, &call, &stream, NULL), 0);
		cr_expect_eq(stream, 2 * i + 1);
	}
	cr_expect_eq(en_ttrpc_client_call(&c, &out, &call, &stream, NULL), ERR_CONFLICT);
	put_message(&in, 0, 5, 2, 0, "", 0);
	put_message(&in, 0, 5, 2, 0, "", 0);  /* twice */
	put_message(&in, 0, 99, 2, 0, "", 0); /* never asked */
	put_message(&in, 0, 0, 2, 0, "", 0);
	put_message(&in, 0, 1, 1, 0, "", 0); /* a call, on the wrong side */
	put_message(&in, sizeof(bad), 1, 2, 0, bad, sizeof(bad));
	put_message(&in, 4, 3, 2, 0, "\x0a\x02\x08\x07", 4);
	put_message(&in, 3, 7, 2, 0, "\x12\x01z", 3);
	cr_assert_eq(en_ttrpc_client_feed(&c, in.data, in.len, hear_answer, &h, NULL), 0);
	cr_expect_str_eq(buf_str(&h.text),
			 "5=0,,0 1=13,the answer cannot be read,0 3=7,,0 7=0,,1 ");
	cr_assert_eq(en_ttrpc_client_call(&c, &out, &call, &stream, NULL), 0);
	cr_expect_eq(stream, 9);
	c.last_stream = UINT32_MAX;
	cr_expect_eq(en_ttrpc_client_call(&c, &out, &call, &stream, NULL), ERR_CONFLICT);
	en_ttrpc_client_fini(&c);
	buf_fini(&h.text);
	buf_fini(&in);
	buf_fini(&out);
}

Test(nri_ttrpc, an_oversized_answer_fails_its_call)
{
	struct en_ttrpc_client c = {.mux_id = 2, .pending = {1}, .last_stream = 1};
	const size_t size = EN_TTRPC_DATA_MAX + 1;
	struct heard h = {.result = 0};
	char *zeros = calloc(1, size);
	struct buf in = BUF_INIT;

	cr_assert_not_null(zeros);
	put_message(&in, (uint32_t)size, 1, 2, 0, zeros, size);
	cr_assert_eq(en_ttrpc_client_feed(&c, in.data, in.len, hear_answer, &h, NULL), 0);
	cr_expect_str_eq(buf_str(&h.text), "1=8,the answer is over 4 MiB,0 ");
	free(zeros);
	en_ttrpc_client_fini(&c);
	buf_fini(&h.text);
	buf_fini(&in);
}

/* ---- memory ---- */

Test(nri_ttrpc, out_of_memory)
{
	struct buf in = BUF_INIT;

	put_request(&in, 1, 1, 0);
	OOM_SWEEP(n) {
		struct en_ttrpc_server s = {.mux_id = 1};
		struct en_ttrpc_client c = {.mux_id = 2};
		const struct en_ttrpc_call call = {.service = "s", .method = "m"};
		struct heard h = {.result = 0};
		struct buf out = BUF_INIT;
		uint32_t stream = 0;
		int r, fail, ask;
		bool hit;

		oom_fail_at(n);
		r = en_ttrpc_server_feed(&s, in.data, in.len, &out, hear_call, &h, NULL);
		fail = en_ttrpc_reply_error(&out, 1, 1, EN_TTRPC_UNKNOWN, "no", NULL);
		ask = en_ttrpc_client_call(&c, &out, &call, &stream, NULL);
		hit = oom_disarm();
		cr_expect(r == 0 || r == ERR_NOMEM || r == ERR_INVALID);
		cr_expect(fail == 0 || fail == ERR_NOMEM);
		cr_expect(ask == 0 || (ask == ERR_NOMEM && c.last_stream == 0));
		cr_expect(hit || (r == 0 && fail == 0 && ask == 0));
		en_ttrpc_server_fini(&s);
		en_ttrpc_client_fini(&c);
		buf_fini(&h.text);
		buf_fini(&out);
		if (!hit)
			break;
	}
	buf_fini(&in);
}

Test(nri_ttrpc, memory_of_a_message_is_bounded)
{
	struct en_mem *m = en_mem_new(1000);
	ProtobufCAllocator a = en_mem_allocator(m);
	char *text;

	cr_assert_not_null(m);
	cr_expect_null(en_mem_alloc(m, 1001));
	text = en_mem_text(m, "abc", 3);
	cr_assert_not_null(text);
	cr_expect_str_eq(text, "abc");
	cr_expect_eq((uintptr_t)en_mem_alloc(m, 1) % 16, 0);
	cr_expect_not_null(a.alloc(a.allocator_data, 900));
	cr_expect_null(a.alloc(a.allocator_data, 900));
	a.free(a.allocator_data, text);
	cr_expect_str_eq(text, "abc");
	cr_expect_null(en_mem_alloc(m, SIZE_MAX));
	en_mem_free(m);
	en_mem_free(NULL);
}

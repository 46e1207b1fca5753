/* A ttrpc stream, heard by the side that is called and by the side that calls: the same calls, answers and
 * replies however it is cut. The first byte of the input is the size of the pieces. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "enforcer/mux.h"
#include "enforcer/ttrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct heard {
	struct en_ttrpc_server server;
	struct en_ttrpc_client client;
	struct buf text, out;
	uint32_t last;
};

static uint64_t digest(const void *data, size_t len)
{
	return len > 0 ? hash_bytes(data, len, 0) : 0;
}

static int hear_call(void *ctx, const struct en_ttrpc_call *c, struct err *err)
{
	struct heard *h = ctx;

	REQUIRE(c->stream % 2 == 1 && c->stream > h->last);
	REQUIRE(c->len <= EN_TTRPC_DATA_MAX);
	h->last = c->stream;
	buf_printf(&h->text, "call %u %s %s %zu %llx %lld\n", c->stream, c->service, c->method,
		   c->len, (unsigned long long)digest(c->payload, c->len),
		   (long long)c->timeout_ns);
	return en_ttrpc_reply(&h->out, 1, c->stream, c->payload, c->len, err);
}

static int hear_answer(void *ctx, const struct en_ttrpc_answer *a, struct err *err)
{
	struct heard *h = ctx;

	(void)err;
	buf_printf(&h->text, "answer %u %d %s %zu %llx\n", a->stream, (int)a->code, a->text, a->len,
		   (unsigned long long)digest(a->payload, a->len));
	return 0;
}

static void feed(const uint8_t *data, size_t size, size_t step, struct heard *ret)
{
	*ret = (struct heard){.server = {.mux_id = 1},
			      .client = {.mux_id = 1, .pending = {1, 3, 5, 7}}};
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;
		uint8_t *piece = malloc(n); /* exact: a read past the end is seen */

		REQUIRE(piece != NULL);
		memcpy(piece, data + at, n);
		REQUIRE(en_ttrpc_server_feed(&ret->server, piece, n, &ret->out, hear_call, ret,
					     NULL) == 0);
		REQUIRE(en_ttrpc_client_feed(&ret->client, piece, n, hear_answer, ret, NULL) == 0);
		free(piece);
	}
	REQUIRE(ret->server.reader.data.len <= size);
}

static void heard_fini(struct heard *h)
{
	en_ttrpc_server_fini(&h->server);
	en_ttrpc_client_fini(&h->client);
	buf_fini(&h->text);
	buf_fini(&h->out);
}

/* What we wrote is read by our own ears. */
static int read_reply(void *ctx, uint32_t id, const unsigned char *data, size_t len,
		      struct err *err)
{
	REQUIRE(id == 1);
	return en_ttrpc_client_feed(ctx, data, len, hear_answer, &(struct heard){.last = 0}, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct en_ttrpc_client reader = {.mux_id = 1};
	struct en_mux mux = {.have = 0};
	struct heard whole, cut;

	if (size < 1)
		return 0;
	feed(data + 1, size - 1, size, &whole);
	feed(data + 1, size - 1, (size_t)data[0] + 1, &cut);
	/* Calls and answers may interleave otherwise; the replies are to calls alone. */
	REQUIRE(whole.text.len == cut.text.len);
	REQUIRE(whole.out.len == cut.out.len &&
		(whole.out.len == 0 || memcmp(whole.out.data, cut.out.data, cut.out.len) == 0));
	REQUIRE(en_mux_feed(&mux, whole.out.data, whole.out.len, read_reply, &reader, NULL) == 0);
	REQUIRE(reader.reader.have == 0 && reader.reader.data.len == 0);
	en_ttrpc_client_fini(&reader);
	heard_fini(&whole);
	heard_fini(&cut);
	return 0;
}

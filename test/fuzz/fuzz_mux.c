/* The multiplexer: streams come out the same however the bytes are cut, nothing is invented, and what is
 * written is read again. The first byte of the input is the size of the pieces. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct streams {
	struct buf one, two, others;
	size_t total;
};

static int collect(void *ctx, uint32_t id, const unsigned char *data, size_t len, struct err *err)
{
	struct streams *s = ctx;

	(void)err;
	buf_put(id == 1 ? &s->one : id == 2 ? &s->two : &s->others, data, len);
	s->total += len;
	return 0;
}

static void streams_fini(struct streams *s)
{
	buf_fini(&s->one);
	buf_fini(&s->two);
	buf_fini(&s->others);
}

static int feed(const uint8_t *data, size_t size, size_t step, struct streams *ret)
{
	struct en_mux m = {.have = 0};
	int rc = 0;

	*ret = (struct streams){.total = 0};
	for (size_t at = 0; rc == 0 && at < size; at += step) {
		size_t n = size - at < step ? size - at : step;
		uint8_t *piece = malloc(n); /* exact: a read past the end is seen */

		REQUIRE(piece != NULL);
		memcpy(piece, data + at, n);
		rc = en_mux_feed(&m, piece, n, collect, ret, NULL);
		free(piece);
	}
	return rc;
}

static bool equal(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void expect_again(uint32_t id, const struct buf *message)
{
	struct streams s;
	struct buf out = BUF_INIT;

	en_mux_put(&out, id, message->data, message->len);
	REQUIRE(buf_ok(&out));
	REQUIRE(feed((const uint8_t *)out.data, out.len, 4096, &s) == 0);
	REQUIRE(equal(id == 1 ? &s.one : &s.two, message) && s.total == message->len);
	streams_fini(&s);
	buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct streams whole, cut;
	int a, b;

	if (size < 1)
		return 0;
	a = feed(data + 1, size - 1, size, &whole);
	b = feed(data + 1, size - 1, (size_t)data[0] + 1, &cut);
	REQUIRE(a == b && (a == 0 || a == ERR_TOO_LARGE));
	REQUIRE(equal(&whole.one, &cut.one) && equal(&whole.two, &cut.two) &&
		equal(&whole.others, &cut.others));
	REQUIRE(whole.total <= size);
	expect_again(1, &whole.one);
	expect_again(2, &whole.two);
	streams_fini(&whole);
	streams_fini(&cut);
	return 0;
}

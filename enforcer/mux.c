#include "enforcer/mux.h"

#include <string.h>

static uint32_t get_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(struct buf *out, uint32_t v)
{
	unsigned char p[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
			      (unsigned char)(v >> 8), (unsigned char)v};

	buf_put(out, p, sizeof(p));
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Takes what is there of a header; reads it when it is whole. */
static int feed_header(struct en_mux *m, const unsigned char **p, size_t *left, struct err *err)
{
	size_t n = smaller(sizeof(m->header) - m->have, *left);

	memcpy(m->header + m->have, *p, n);
	m->have += n;
	*p += n;
	*left -= n;
	if (m->have < sizeof(m->header))
		return 0;
	m->id = get_u32(m->header);
	m->left = get_u32(m->header + 4);
	if (m->left > EN_MUX_PAYLOAD_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "mux: a frame of %lu bytes on connection %lu, at most %lu are legal",
			       (unsigned long)m->left, (unsigned long)m->id,
			       (unsigned long)EN_MUX_PAYLOAD_MAX);
	return 0;
}

int en_mux_feed(struct en_mux *m, const void *data, size_t len, en_mux_fn fn, void *ctx,
		struct err *err)
{
	const unsigned char *p = data;
	int r = 0;

	while (r == 0 && len > 0) {
		size_t n;

		if (m->have < sizeof(m->header)) {
			r = feed_header(m, &p, &len, err);
		} else {
			n = smaller(m->left, len);
			r = fn(ctx, m->id, p, n, err);
			p += n;
			len -= n;
			m->left -= (uint32_t)n;
		}
		if (m->have == sizeof(m->header) && m->left == 0)
			m->have = 0;
	}
	return r;
}

static void put_frame(struct buf *out, uint32_t id, const unsigned char *payload, size_t len)
{
	put_u32(out, id);
	put_u32(out, (uint32_t)len);
	buf_put(out, payload, len);
}

void en_mux_put(struct buf *out, uint32_t id, const void *message, size_t len)
{
	const unsigned char *p = message;
	size_t first = smaller(len, EN_MUX_FIRST_MAX);

	if (!buf_reserve(out, len + EN_MUX_HEADER + EN_MUX_HEADER))
		return;
	put_frame(out, id, p, first);
	if (len > first)
		put_frame(out, id, p + first, len - first);
}

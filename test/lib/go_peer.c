#include "test/lib/go_peer.h"

#include <stdlib.h>
#include <string.h>

static uint32_t be32(const unsigned char *p)
{
	return ((uint32_t)p[0] << 24) + ((uint32_t)p[1] << 16) + ((uint32_t)p[2] << 8) + p[3];
}

static void put_be32(struct buf *b, size_t v)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		buf_putc(b, (char)(v >> shift));
}

void go_peer_fini(struct go_peer *p)
{
	for (int i = 0; i < GO_CONNECTIONS; i++) {
		for (size_t k = 0; k < p->connections[i].frame_count; k++)
			free(p->connections[i].frames[k].data);
		free(p->connections[i].frames);
	}
	buf_fini(&p->bytes);
	*p = (struct go_peer){.fault = NULL};
}

static void *need(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

static void frame_add(struct go_connection *c, const unsigned char *data, size_t len)
{
	struct go_frame f = {need(malloc(len + 1)), len};

	memcpy(f.data, data, len);
	c->frames = need(realloc(c->frames, (c->frame_count + 1) * sizeof(f)));
	c->frames[c->frame_count++] = f;
}

void go_peer_feed(struct go_peer *p, const void *data, size_t len)
{
	const unsigned char *at;
	size_t left;

	buf_put(&p->bytes, data, len);
	at = (const unsigned char *)p->bytes.data;
	left = p->bytes.len;
	while (left >= 8 && left - 8 >= be32(at + 4)) {
		uint32_t id = be32(at), size = be32(at + 4);

		if (id >= 1 && id < GO_CONNECTIONS)
			frame_add(&p->connections[id], at + 8, size);
		else
			p->fault = "a frame on a connection that nobody uses";
		at += 8 + size;
		left -= 8 + size;
	}
	if (left > 0)
		memmove(p->bytes.data, at, left);
	p->bytes.len = left;
}

/* One read of the multiplexed connection. */
static bool read_frame(struct go_peer *p, struct go_connection *c, unsigned char *to, size_t cap,
		       size_t *ret)
{
	const struct go_frame *f = &c->frames[c->frame_next];

	if (c->frame_next == c->frame_count)
		return false;
	if (f->len > cap) {
		p->fault = "a frame larger than the reader's room";
		return false;
	}
	memcpy(to, f->data, f->len);
	*ret = f->len;
	c->frame_next++;
	return true;
}

/* io.ReadFull over a bufio.Reader. */
static bool read_full(struct go_peer *p, struct go_connection *c, unsigned char *to, size_t n)
{
	while (n > 0) {
		size_t have = c->room_end - c->room_at, got = 0;

		if (have > 0) {
			got = have < n ? have : n;
			memcpy(to, c->room + c->room_at, got);
			c->room_at += got;
		} else if (n >= sizeof(c->room)) {
			if (!read_frame(p, c, to, n, &got))
				return false;
		} else {
			c->room_at = 0;
			c->room_end = 0;
			if (!read_frame(p, c, c->room, sizeof(c->room), &c->room_end))
				return false;
		}
		to += got;
		n -= got;
	}
	return true;
}

bool go_peer_next(struct go_peer *p, uint32_t mux_id, struct go_message *ret)
{
	struct go_connection *c = &p->connections[mux_id], was = *c;
	unsigned char header[10], *data = NULL;
	size_t len = 0;
	bool ok;

	if (p->fault != NULL)
		return false;
	ok = read_full(p, c, header, sizeof(header));
	if (ok) {
		len = be32(header);
		data = need(malloc(len + 1));
		ok = read_full(p, c, data, len);
	}
	if (!ok) {
		free(data);
		*c = was;
		return false;
	}
	*ret = (struct go_message){mux_id, be32(header + 4), header[8], header[9], len, data};
	return true;
}

static void put_frame(struct buf *out, uint32_t mux_id, const char *data, size_t len)
{
	put_be32(out, mux_id);
	put_be32(out, len);
	buf_put(out, data, len);
}

void go_put_message(struct buf *out, uint32_t mux_id, uint32_t stream, uint8_t type,
		    const void *data, size_t len)
{
	struct buf m = BUF_INIT;
	size_t first;

	put_be32(&m, len);
	put_be32(&m, stream);
	buf_putc(&m, (char)type);
	buf_putc(&m, 0);
	buf_put(&m, data, len);
	first = m.len < 4096 ? m.len : 4096;
	put_frame(out, mux_id, m.data, first);
	if (m.len > first)
		put_frame(out, mux_id, m.data + first, m.len - first);
	buf_fini(&m);
}

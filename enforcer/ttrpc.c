#include "enforcer/ttrpc.h"

#include <stdlib.h>
#include <string.h>

#include "enforcer/mux.h"
#include "enforcer/ttrpc.pb-c.h"
#include "enforcer/ttrpc_mem.h"

enum { TYPE_REQUEST = 1, TYPE_RESPONSE = 2 };

#define FLAG_REMOTE_OPEN 2         /* more requests will follow on this stream */
#define ENVELOPE_BUDGET (8u << 20) /* of a decoded Request or Response: its data, and little more */
#define KEEP_CAP 65536             /* a reader's buffer that is larger is given back */
#define TEXT_MAX 2048

struct message {
	uint32_t stream;
	uint8_t type, flags;
	bool oversized;
	const unsigned char *data; /* NULL when oversized */
	size_t len;
};

typedef int (*message_fn)(void *ctx, const struct message *m, struct err *err);

/* ---- messages of a stream ---- */

static uint32_t get_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(unsigned char *p, uint32_t v)
{
	p[0] = (unsigned char)(v >> 24);
	p[1] = (unsigned char)(v >> 16);
	p[2] = (unsigned char)(v >> 8);
	p[3] = (unsigned char)v;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Hands the finished message on and makes the reader ready for the next one. */
static int reader_finish(struct en_ttrpc_reader *r, message_fn fn, void *ctx, struct err *err)
{
	struct message m = {
		.stream = get_u32(r->header + 4),
		.type = r->header[8],
		.flags = r->header[9],
		.oversized = r->oversized,
		.data = (const unsigned char *)r->data.data,
		.len = r->data.len,
	};
	int rc = fn(ctx, &m, err);

	r->have = 0;
	r->oversized = false;
	if (r->data.cap > KEEP_CAP)
		buf_fini(&r->data);
	else
		buf_reset(&r->data);
	return rc;
}

static int reader_feed(struct en_ttrpc_reader *r, const void *data, size_t len, message_fn fn,
		       void *ctx, struct err *err)
{
	const unsigned char *p = data;
	int rc = 0;

	while (rc == 0 && len > 0) {
		bool in_header = r->have < EN_TTRPC_HEADER;
		size_t n = smaller(in_header ? EN_TTRPC_HEADER - r->have : r->left, len);

		if (in_header) {
			memcpy(r->header + r->have, p, n);
			r->have += n;
			if (r->have == EN_TTRPC_HEADER) {
				r->left = get_u32(r->header);
				r->oversized = r->left > EN_TTRPC_DATA_MAX;
			}
		} else {
			if (!r->oversized)
				buf_put(&r->data, p, n);
			if (!buf_ok(&r->data))
				return err_set(err, ERR_NOMEM, "ttrpc: no memory");
			r->left -= (uint32_t)n;
		}
		p += n;
		len -= n;
		if (r->have == EN_TTRPC_HEADER && r->left == 0)
			rc = reader_finish(r, fn, ctx, err);
	}
	return rc;
}

/* Packs m into a message of its own and appends that. */
static int put_message(struct buf *out, uint32_t mux_id, uint32_t stream, uint8_t type,
		       const ProtobufCMessage *m, struct err *err)
{
	size_t len = protobuf_c_message_get_packed_size(m);
	unsigned char *data;

	if (len > EN_TTRPC_DATA_MAX)
		return err_set(err, ERR_TOO_LARGE, "ttrpc: a message of %zu bytes, at most %lu",
			       len, (unsigned long)EN_TTRPC_DATA_MAX);
	data = malloc(EN_TTRPC_HEADER + len);
	if (data == NULL ||
	    !buf_reserve(out, EN_TTRPC_HEADER + len + EN_MUX_HEADER + EN_MUX_HEADER)) {
		free(data);
		return err_set(err, ERR_NOMEM, "ttrpc: no memory");
	}
	put_u32(data, (uint32_t)len);
	put_u32(data + 4, stream);
	data[8] = type;
	data[9] = 0;
	protobuf_c_message_pack(m, data + EN_TTRPC_HEADER);
	en_mux_put(out, mux_id, data, EN_TTRPC_HEADER + len);
	free(data);
	return 0;
}

/* protobuf-c has no const in its structs; what is packed is not written to. */
static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
	ProtobufCBinaryData b = {.len = len};

	memcpy(&b.data, &data, sizeof(b.data));
	return b;
}

static char *text_of(const char *s)
{
	char *t;

	memcpy(&t, &s, sizeof(t));
	return t;
}

/* ---- the side that is called ---- */

int en_ttrpc_reply(struct buf *out, uint32_t mux_id, uint32_t stream, const void *payload,
		   size_t len, struct err *err)
{
	En__Ttrpc__Response r;

	en__ttrpc__response__init(&r);
	r.payload = bytes_of(payload, len);
	return put_message(out, mux_id, stream, TYPE_RESPONSE, &r.base, err);
}

int en_ttrpc_reply_error(struct buf *out, uint32_t mux_id, uint32_t stream, enum en_ttrpc_code code,
			 const char *text, struct err *err)
{
	char plain[TEXT_MAX + 1];
	En__Ttrpc__Response r;
	En__Ttrpc__Status s;
	size_t i;

	en__ttrpc__response__init(&r);
	en__ttrpc__status__init(&s);
	for (i = 0; i < TEXT_MAX && text[i] != '\0'; i++)
		plain[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	plain[i] = '\0';
	s.code = (int32_t)code;
	s.message = plain;
	r.status = &s;
	return put_message(out, mux_id, stream, TYPE_RESPONSE, &r.base, err);
}

struct serving {
	struct en_ttrpc_server *server;
	struct buf *out;
	en_ttrpc_call_fn fn;
	void *ctx;
};

static int refuse(const struct serving *x, const struct message *m, enum en_ttrpc_code code,
		  const char *text, struct err *err)
{
	return en_ttrpc_reply_error(x->out, x->server->mux_id, m->stream, code, text, err);
}

static int serve_request(const struct serving *x, const struct message *m, struct err *err)
{
	struct en_mem *mem = en_mem_new(ENVELOPE_BUDGET);
	ProtobufCAllocator allocator;
	En__Ttrpc__Request *request;
	struct en_ttrpc_call call;
	int rc;

	if (mem == NULL)
		return err_set(err, ERR_NOMEM, "ttrpc: no memory");
	allocator = en_mem_allocator(mem);
	request = en__ttrpc__request__unpack(&allocator, m->len, m->data);
	if (request == NULL && en_mem_failed(mem)) {
		rc = refuse(x, m, EN_TTRPC_RESOURCE_EXHAUSTED, "no memory for the request", err);
	} else if (request == NULL) {
		rc = refuse(x, m, EN_TTRPC_INVALID_ARGUMENT, "the request cannot be read", err);
	} else {
		call = (struct en_ttrpc_call){
			.stream = m->stream,
			.service = request->service,
			.method = request->method,
			.payload = request->payload.data,
			.len = request->payload.len,
			.timeout_ns = request->timeout_nano,
		};
		rc = x->fn(x->ctx, &call, err);
	}
	en_mem_free(mem);
	return rc;
}

static int on_server_message(void *ctx, const struct message *m, struct err *err)
{
	const struct serving *x = ctx;

	if (m->type != TYPE_REQUEST)
		return 0;
	if (m->stream % 2 == 0 || m->stream <= x->server->last_stream)
		return refuse(x, m, EN_TTRPC_INVALID_ARGUMENT,
			      "the stream id is even or was used before", err);
	x->server->last_stream = m->stream;
	if (m->oversized)
		return refuse(x, m, EN_TTRPC_RESOURCE_EXHAUSTED, "the message is over 4 MiB", err);
	if ((m->flags & FLAG_REMOTE_OPEN) != 0)
		return refuse(x, m, EN_TTRPC_UNIMPLEMENTED, "streaming", err);
	return serve_request(x, m, err);
}

int en_ttrpc_server_feed(struct en_ttrpc_server *s, const void *data, size_t len, struct buf *out,
			 en_ttrpc_call_fn fn, void *ctx, struct err *err)
{
	struct serving x = {s, out, fn, ctx};

	return reader_feed(&s->reader, data, len, on_server_message, &x, err);
}

void en_ttrpc_server_fini(struct en_ttrpc_server *s)
{
	buf_fini(&s->reader.data);
}

/* ---- the side that calls ---- */

static uint32_t *pending_slot(struct en_ttrpc_client *c, uint32_t stream)
{
	for (int i = 0; i < EN_TTRPC_PENDING_MAX; i++) {
		if (c->pending[i] == stream)
			return &c->pending[i];
	}
	return NULL;
}

int en_ttrpc_client_call(struct en_ttrpc_client *c, struct buf *out,
			 const struct en_ttrpc_call *call, uint32_t *ret_stream, struct err *err)
{
	uint32_t *slot = pending_slot(c, 0), stream;
	En__Ttrpc__Request r;
	int rc;

	en__ttrpc__request__init(&r);
	if (slot == NULL || c->last_stream > UINT32_MAX - 2)
		return err_set(err, ERR_CONFLICT, "ttrpc: too many calls on one connection");
	stream = c->last_stream == 0 ? 1 : c->last_stream + 2;
	r.service = text_of(call->service);
	r.method = text_of(call->method);
	r.payload = bytes_of(call->payload, call->len);
	r.timeout_nano = call->timeout_ns;
	rc = put_message(out, c->mux_id, stream, TYPE_REQUEST, &r.base, err);
	if (rc != 0)
		return rc;
	c->last_stream = stream;
	*slot = stream;
	*ret_stream = stream;
	return 0;
}

struct calling {
	struct en_ttrpc_client *client;
	en_ttrpc_answer_fn fn;
	void *ctx;
};

static int read_response(const struct calling *x, const struct message *m, struct err *err)
{
	struct en_mem *mem = en_mem_new(ENVELOPE_BUDGET);
	struct en_ttrpc_answer a = {.stream = m->stream,
				    .code = EN_TTRPC_INTERNAL,
				    .text = "the answer cannot be read"};
	ProtobufCAllocator allocator;
	En__Ttrpc__Response *r;
	int rc;

	if (mem == NULL)
		return err_set(err, ERR_NOMEM, "ttrpc: no memory");
	allocator = en_mem_allocator(mem);
	r = en__ttrpc__response__unpack(&allocator, m->len, m->data);
	if (r != NULL) {
		a.code = r->status != NULL ? r->status->code : 0;
		a.text = a.code != 0 ? r->status->message : "";
		a.payload = r->payload.data;
		a.len = r->payload.len;
	}
	rc = x->fn(x->ctx, &a, err);
	en_mem_free(mem);
	return rc;
}

static int on_client_message(void *ctx, const struct message *m, struct err *err)
{
	const struct calling *x = ctx;
	uint32_t *slot = m->stream != 0 ? pending_slot(x->client, m->stream) : NULL;
	const struct en_ttrpc_answer too_large = {
		.stream = m->stream,
		.code = EN_TTRPC_RESOURCE_EXHAUSTED,
		.text = "the answer is over 4 MiB",
	};

	if (m->type != TYPE_RESPONSE || slot == NULL)
		return 0;
	*slot = 0;
	return m->oversized ? x->fn(x->ctx, &too_large, err) : read_response(x, m, err);
}

int en_ttrpc_client_feed(struct en_ttrpc_client *c, const void *data, size_t len,
			 en_ttrpc_answer_fn fn, void *ctx, struct err *err)
{
	struct calling x = {c, fn, ctx};

	return reader_feed(&c->reader, data, len, on_client_message, &x, err);
}

void en_ttrpc_client_fini(struct en_ttrpc_client *c)
{
	buf_fini(&c->reader.data);
}

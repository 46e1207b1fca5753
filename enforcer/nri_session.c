#include "enforcer/nri_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mux.h"

#define REQUEST_TIMEOUT_MS 2000

struct en_nri_session {
	struct en_nri_session_options o;
	struct en_mux mux;
	struct en_ttrpc_server server; /* the plugin's service */
	struct en_ttrpc_client client; /* of the runtime's service */
	uint32_t register_stream;
	struct en_nri_status status;
	struct buf out;
};

/* ---- versions ---- */

/* Reads "v2.3.4", "1.7.24~ds1", "2.1.9+unknown": the first two numbers. */
static bool version_read(const char *s, unsigned *ret_major, unsigned *ret_minor)
{
	unsigned n[2] = {0, 0};

	if (*s == 'v')
		s++;
	for (int i = 0; i < 2; i++) {
		size_t digits = strspn(s, "0123456789");

		if (digits == 0 || digits > 6)
			return false;
		for (; digits > 0; digits--)
			n[i] = n[i] * 10 + (unsigned)(*s++ - '0');
		if (i == 0 && *s++ != '.')
			return false;
	}
	*ret_major = n[0];
	*ret_minor = n[1];
	return true;
}

static bool version_reaches(const char *s, unsigned major, unsigned minor)
{
	unsigned have_major, have_minor;

	return version_read(s, &have_major, &have_minor) &&
	       (have_major > major || (have_major == major && have_minor >= minor));
}

/* containerd 2.0.0 to 2.0.3 call themselves "v2"; they are too old anyway. */
bool en_nri_knows_validate(const char *runtime, const char *runtime_version,
			   const char *nri_version)
{
	if (version_reaches(nri_version, 0, 10))
		return true;
	if (strcmp(runtime, "containerd") == 0)
		return version_reaches(runtime_version, 2, 2);
	return strcmp(runtime, "cri-o") == 0 && version_reaches(runtime_version, 1, 34);
}

/* ---- calls of the runtime ---- */

int en_nri_session_reply(struct en_nri_session *s, uint32_t stream, const struct buf *payload,
			 struct err *err)
{
	return en_ttrpc_reply(&s->out, EN_MUX_PLUGIN, stream, payload->data, payload->len, err);
}

int en_nri_session_fail(struct en_nri_session *s, uint32_t stream, enum en_ttrpc_code code,
			const char *text, struct err *err)
{
	return en_ttrpc_reply_error(&s->out, EN_MUX_PLUGIN, stream, code, text, err);
}

static int reply_empty(struct en_nri_session *s, uint32_t stream, struct err *err)
{
	static const struct buf nothing;

	return en_nri_session_reply(s, stream, &nothing, err);
}

static int configure(struct en_nri_session *s, const struct en_nri_request *r, struct err *err)
{
	struct en_nri_status *st = &s->status;
	struct buf payload = BUF_INIT;
	int32_t events = EN_NRI_EVENTS;
	int rc;

	snprintf(st->runtime, sizeof(st->runtime), "%s", r->runtime);
	snprintf(st->runtime_version, sizeof(st->runtime_version), "%s", r->runtime_version);
	snprintf(st->nri_version, sizeof(st->nri_version), "%s", r->nri_version);
	if (r->request_timeout_ms > 0)
		st->request_timeout_ms = r->request_timeout_ms;
	st->validates = !s->o.no_validate &&
			en_nri_knows_validate(r->runtime, r->runtime_version, r->nri_version);
	if (st->validates)
		events |= EN_NRI_BIT(EN_NRI_EVENT_VALIDATE);
	rc = en_nri_put_configure(&payload, events, err);
	if (rc == 0)
		rc = en_nri_session_reply(s, r->stream, &payload, err);
	buf_fini(&payload);
	st->configured = rc == 0;
	return rc;
}

/* r is this function's. */
static int dispatch(struct en_nri_session *s, struct en_nri_request *take_r, struct err *err)
{
	struct en_nri_request *r = take_r;
	int rc;

	switch (r->method) {
	case EN_NRI_SYNCHRONIZE:
		s->status.begun = true;
		s->status.synchronized = !r->more;
		return s->o.on_request(s->o.ctx, r, err);
	case EN_NRI_CREATE:
	case EN_NRI_START:
	case EN_NRI_STOP:
	case EN_NRI_REMOVE:
	case EN_NRI_VALIDATE:
		return s->o.on_request(s->o.ctx, r, err);
	case EN_NRI_CONFIGURE:
		rc = configure(s, r, err);
		break;
	default: /* Shutdown too: the runtime closes the connection itself */
		rc = reply_empty(s, r->stream, err);
		break;
	}
	en_nri_request_free(r);
	return rc;
}

static int on_call(void *ctx, const struct en_ttrpc_call *call, struct err *err)
{
	struct en_nri_session *s = ctx;
	struct en_nri_request *r = NULL;
	struct err why = ERR_INIT;
	enum en_ttrpc_code code;

	switch (en_nri_request_read(call, &r, &why)) {
	case 0:
		return dispatch(s, r, err);
	case ERR_NOT_FOUND:
		code = EN_TTRPC_UNIMPLEMENTED;
		break;
	case ERR_NOMEM:
		code = EN_TTRPC_RESOURCE_EXHAUSTED;
		break;
	default:
		code = EN_TTRPC_INVALID_ARGUMENT;
		break;
	}
	return en_nri_session_fail(s, call->stream, code, why.msg, err);
}

/* ---- answers of the runtime ---- */

static int on_answer(void *ctx, const struct en_ttrpc_answer *a, struct err *err)
{
	struct en_nri_session *s = ctx;

	if (a->stream != s->register_stream)
		return 0;
	if (a->code != 0)
		return err_set(err, ERR_CONFLICT, "the runtime refused the plugin: %.300s (%d)",
			       a->text, (int)a->code);
	s->status.registered = true;
	return 0;
}

static int put_register(struct en_nri_session *s, struct err *err)
{
	struct buf payload = BUF_INIT;
	int rc = en_nri_put_register(&payload, s->o.name, s->o.idx, err);
	struct en_ttrpc_call call = {
		.service = EN_NRI_RUNTIME_SERVICE,
		.method = "RegisterPlugin",
		.payload = (const unsigned char *)payload.data,
		.len = payload.len,
	};

	if (rc == 0)
		rc = en_ttrpc_client_call(&s->client, &s->out, &call, &s->register_stream, err);
	buf_fini(&payload);
	return rc;
}

/* ---- the connection ---- */

static int on_payload(void *ctx, uint32_t id, const unsigned char *data, size_t len,
		      struct err *err)
{
	struct en_nri_session *s = ctx;

	switch (id) {
	case EN_MUX_PLUGIN:
		return en_ttrpc_server_feed(&s->server, data, len, &s->out, on_call, s, err);
	case EN_MUX_RUNTIME:
		return en_ttrpc_client_feed(&s->client, data, len, on_answer, s, err);
	default:
		return 0; /* nobody's, as in Go */
	}
}

int en_nri_session_feed(struct en_nri_session *s, const void *data, size_t len, struct err *err)
{
	int rc = en_mux_feed(&s->mux, data, len, on_payload, s, err);

	return rc == 0 && !buf_ok(&s->out) ? err_set(err, ERR_NOMEM, "NRI: no memory") : rc;
}

static bool name_valid(const char *name, const char *idx)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789_.+-";

	return name[0] != '\0' && strspn(name, allowed) == strlen(name) && strlen(idx) == 2 &&
	       strspn(idx, "0123456789") == 2;
}

int en_nri_session_new(const struct en_nri_session_options *o, struct en_nri_session **ret,
		       struct err *err)
{
	struct en_nri_session *s;
	int rc;

	if (!name_valid(o->name, o->idx))
		return err_set(err, ERR_INVALID,
			       "NRI plugin \"%.64s\", index \"%.64s\": the name is of letters, "
			       "digits and _.+-, the index two digits",
			       o->name, o->idx);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return err_set(err, ERR_NOMEM, "NRI: no memory");
	s->o = *o;
	s->server.mux_id = EN_MUX_PLUGIN;
	s->client.mux_id = EN_MUX_RUNTIME;
	s->status.request_timeout_ms = REQUEST_TIMEOUT_MS;
	rc = put_register(s, err);
	if (rc == 0)
		*ret = s;
	else
		en_nri_session_free(s);
	return rc;
}

void en_nri_session_free(struct en_nri_session *s)
{
	if (s == NULL)
		return;
	en_ttrpc_server_fini(&s->server);
	en_ttrpc_client_fini(&s->client);
	buf_fini(&s->out);
	free(s);
}

const struct buf *en_nri_session_output(const struct en_nri_session *s)
{
	return &s->out;
}

void en_nri_session_sent(struct en_nri_session *s, size_t len)
{
	struct buf *b = &s->out;

	if (len < b->len) {
		memmove(b->data, b->data + len, b->len - len);
		b->len -= len;
	} else if (b->cap > 65536) {
		buf_fini(b);
	} else {
		b->len = 0;
	}
}

const struct en_nri_status *en_nri_session_status(const struct en_nri_session *s)
{
	return &s->status;
}

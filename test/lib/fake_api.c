#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "test/lib/fake_api_internal.h"

/* One request while it comes in. */
struct incoming {
	struct buf body;
	unsigned conn;
};

/* ---- answers ---- */

struct body {
	struct fake_api *api;
	struct fake_reply r;
	char *text; /* what is sent; owned */
	size_t at, len;
	int fd;
};

static void reset_on_close(int fd)
{
	struct linger l = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}

static ssize_t finish(struct body *b, enum fake_end how)
{
	struct fake_api *f = b->api;

	if (how == FAKE_END)
		return MHD_CONTENT_READER_END_OF_STREAM;
	pthread_mutex_lock(&f->lock);
	while (how == FAKE_END_SILENT && !f->stopping)
		pthread_cond_wait(&f->changed, &f->lock);
	pthread_mutex_unlock(&f->lock);
	reset_on_close(b->fd);
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

static ssize_t read_stream(struct body *b, char *buf, size_t max)
{
	struct fake_stream *s = b->r.stream;
	struct fake_api *f = b->api;
	struct part *p;
	size_t n;
	enum fake_end how;

	pthread_mutex_lock(&f->lock);
	while (s->first == NULL && !s->ended && !f->stopping)
		pthread_cond_wait(&f->changed, &f->lock);
	p = s->first;
	how = s->ended ? s->how : FAKE_END_RESET;
	if (p == NULL) {
		pthread_mutex_unlock(&f->lock);
		return finish(b, how);
	}
	n = p->len - p->at < max ? p->len - p->at : max;
	memcpy(buf, p->data + p->at, n);
	p->at += n;
	if (p->at == p->len) {
		s->first = p->next;
		if (s->first == NULL)
			s->last = &s->first;
		free(p);
	}
	pthread_mutex_unlock(&f->lock);
	return (ssize_t)n;
}

static ssize_t read_body(void *ctx, uint64_t pos, char *buf, size_t max)
{
	struct body *b = ctx;
	size_t n = b->len - b->at;
	ssize_t made;

	(void)pos;
	if (b->r.stream != NULL)
		return read_stream(b, buf, max);
	if (b->r.next != NULL) {
		made = b->r.next(b->r.next_ctx, buf, max);
		return made > 0 ? made : finish(b, b->r.end);
	}
	if (n == 0)
		return finish(b, b->r.end);
	n = n < max ? n : max;
	if (b->r.chunk > 0 && n > b->r.chunk)
		n = b->r.chunk;
	memcpy(buf, b->text + b->at, n);
	b->at += n;
	return (ssize_t)n;
}

static void free_body(void *ctx)
{
	struct body *b = ctx;

	if (b->r.next_free != NULL)
		b->r.next_free(b->r.next_ctx);
	free(b->text);
	free(b);
}

static void add_headers(struct MHD_Response *r, const char *headers)
{
	char *copy = fake_must(strdup(headers)), *rest = copy, *line;

	while ((line = strsep(&rest, "\n")) != NULL) {
		char *colon = strstr(line, ": ");

		if (colon == NULL)
			continue;
		*colon = '\0';
		MHD_add_response_header(r, line, colon + 2);
	}
	free(copy);
}

static enum MHD_Result respond(struct fake_api *f, struct MHD_Connection *conn,
			       const struct fake_reply *r)
{
	int fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	const char *text = r->take_body != NULL ? r->take_body : r->body;
	size_t len = text != NULL ? strlen(text) : 0;
	bool plain = r->chunk == 0 && r->end == FAKE_END && r->stream == NULL && r->next == NULL;
	struct body *b = fake_must(calloc(1, sizeof(*b)));
	struct MHD_Response *resp;
	enum MHD_Result res;

	*b = (struct body){.api = f, .r = *r, .len = len, .fd = fd};
	b->text = r->take_body != NULL ? r->take_body : fake_dup(r->body);
	if (r->status == 0) {
		finish(b, r->end);
		free_body(b);
		return MHD_NO;
	}
	resp = fake_must(MHD_create_response_from_callback(plain ? len : MHD_SIZE_UNKNOWN, 65536,
							   read_body, b, free_body));
	if (r->headers != NULL)
		add_headers(resp, r->headers);
	MHD_add_response_header(resp, "Content-Type", "application/json");
	res = MHD_queue_response(conn, (unsigned)r->status, resp);
	MHD_destroy_response(resp);
	return res;
}

/* ---- requests ---- */

static enum MHD_Result add_query(void *ctx, enum MHD_ValueKind kind, const char *key,
				 const char *value)
{
	struct buf *b = ctx;

	(void)kind;
	buf_printf(b, "%s%s=%s", b->len > 0 ? "&" : "", key, value != NULL ? value : "");
	return MHD_YES;
}

static const char *header(struct MHD_Connection *conn, const char *name)
{
	const char *v = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);

	return v != NULL ? v : "";
}

static struct seen *remember(struct fake_api *f, struct MHD_Connection *conn, const char *url,
			     const char *method, struct incoming *in)
{
	struct seen *s = fake_must(calloc(1, sizeof(*s)));
	const char *auth = header(conn, "Authorization");
	struct buf query = BUF_INIT;
	size_t len = in->body.len;

	MHD_get_connection_values(conn, MHD_GET_ARGUMENT_KIND, add_query, &query);
	s->body = fake_must(buf_take(&in->body));
	s->query = fake_must(buf_take(&query));
	s->method = fake_dup(method);
	s->path = fake_dup(url);
	s->token = fake_dup(strncmp(auth, "Bearer ", 7) == 0 ? auth + 7 : "");
	s->type = fake_dup(header(conn, "Content-Type"));
	s->rq = (struct fake_request){.method = s->method,
				      .path = s->path,
				      .query = s->query,
				      .token = s->token,
				      .type = s->type,
				      .body = s->body,
				      .len = len,
				      .conn = in->conn};
	pthread_mutex_lock(&f->lock);
	*f->seen_last = s;
	f->seen_last = &s->next;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	return s;
}

static bool matches(const struct rule *u, const struct fake_request *rq)
{
	return u->times != 0 && strcmp(u->method, rq->method) == 0 &&
	       strcmp(u->path, rq->path) == 0 &&
	       (u->query != NULL ? strstr(rq->query, u->query) != NULL
				 : !fake_query_has(rq, "watch=1"));
}

static void choose(struct fake_api *f, const struct fake_request *rq, struct fake_reply *ret)
{
	fake_handler_fn fn;
	void *ctx;

	pthread_mutex_lock(&f->lock);
	for (struct rule *u = f->rules; u != NULL; u = u->next) {
		if (!matches(u, rq))
			continue;
		u->times -= u->times > 0;
		*ret = u->r;
		pthread_mutex_unlock(&f->lock);
		return;
	}
	fn = f->handler;
	ctx = f->handler_ctx;
	pthread_mutex_unlock(&f->lock);
	*ret = (struct fake_reply){.status = 404, .body = "{\"kind\":\"Status\",\"code\":404}"};
	if (fn != NULL)
		fn(ctx, rq, ret);
}

/* False: the server stops. */
static bool wait_ms(struct fake_api *f, int ms)
{
	struct timespec until;
	bool on;
	int r = 0;

	fake_deadline(&until, ms);
	pthread_mutex_lock(&f->lock);
	while (!f->stopping && ms > 0 && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&f->changed, &f->lock, &until);
	on = !f->stopping;
	pthread_mutex_unlock(&f->lock);
	return on;
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *len, void **state)
{
	struct fake_api *f = ctx;
	struct incoming *in = *state;
	struct fake_reply r;
	struct seen *s;

	(void)version;
	if (in == NULL) {
		const union MHD_ConnectionInfo *info =
			MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

		in = fake_must(calloc(1, sizeof(*in)));
		in->conn = (unsigned)(uintptr_t)info->socket_context;
		*state = in;
		return MHD_YES;
	}
	if (*len > 0) {
		buf_put(&in->body, data, *len);
		*len = 0;
		return MHD_YES;
	}
	s = remember(f, conn, url, method, in);
	choose(f, &s->rq, &r);
	if (!wait_ms(f, r.delay_ms)) {
		free(r.take_body);
		if (r.next_free != NULL)
			r.next_free(r.next_ctx);
		return MHD_NO;
	}
	return respond(f, conn, &r);
}

static void on_completed(void *ctx, struct MHD_Connection *conn, void **state,
			 enum MHD_RequestTerminationCode code)
{
	struct incoming *in = *state;

	(void)ctx;
	(void)conn;
	(void)code;
	if (in != NULL)
		buf_fini(&in->body);
	free(in);
	*state = NULL;
}

static void on_connection(void *ctx, struct MHD_Connection *conn, void **socket_ctx,
			  enum MHD_ConnectionNotificationCode code)
{
	struct fake_api *f = ctx;

	(void)conn;
	if (code != MHD_CONNECTION_NOTIFY_STARTED)
		return;
	pthread_mutex_lock(&f->lock);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): a number is all that is kept */
	*socket_ctx = (void *)(uintptr_t)++f->connections;
	pthread_mutex_unlock(&f->lock);
}

/* ---- for tests ---- */

static char *read_pem(const char *dir, const char *name)
{
	char path[256], *text = NULL;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (file_read(path, 1 << 20, &text, &len, NULL) < 0)
		abort();
	return text;
}

struct fake_api *fake_api_start(const char *tls)
{
	struct fake_api *f = fake_must(calloc(1, sizeof(*f)));
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	unsigned flags =
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL;
	struct MHD_OptionItem pem[3] = {{MHD_OPTION_END, 0, NULL}};

	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	f->seen_last = &f->seen;
	if (tls != NULL) {
		flags |= MHD_USE_TLS;
		f->cert = read_pem(tls, "server.crt");
		f->key = read_pem(tls, "server.key");
		pem[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, f->cert};
		pem[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, f->key};
		pem[2] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
	}
	f->daemon = fake_must(
		MHD_start_daemon(flags, 0, NULL, NULL, on_request, f, MHD_OPTION_SOCK_ADDR, &addr,
				 MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024U, MHD_OPTION_NOTIFY_COMPLETED,
				 on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, f,
				 MHD_OPTION_ARRAY, pem, MHD_OPTION_END));
	snprintf(f->url, sizeof(f->url), "%s://127.0.0.1:%u", tls != NULL ? "https" : "http",
		 MHD_get_daemon_info(f->daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
	return f;
}

const char *fake_api_url(const struct fake_api *f)
{
	return f->url;
}

static void free_rules(struct fake_api *f)
{
	struct rule *next;

	for (struct rule *u = f->rules; u != NULL; u = next) {
		next = u->next;
		free(u->method);
		free(u->path);
		free(u->query);
		free(u->body);
		free(u->headers);
		free(u);
	}
}

static void free_seen(struct fake_api *f)
{
	struct seen *next;

	for (struct seen *s = f->seen; s != NULL; s = next) {
		next = s->next;
		free(s->method);
		free(s->path);
		free(s->query);
		free(s->token);
		free(s->type);
		free(s->body);
		free(s);
	}
}

static void free_streams(struct fake_api *f)
{
	struct fake_stream *next;

	for (struct fake_stream *s = f->streams; s != NULL; s = next) {
		struct part *after;

		next = s->next;
		for (struct part *p = s->first; p != NULL; p = after) {
			after = p->next;
			free(p);
		}
		free(s);
	}
}

void fake_api_stop(struct fake_api *f)
{
	if (f == NULL)
		return;
	pthread_mutex_lock(&f->lock);
	f->stopping = true;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	MHD_stop_daemon(f->daemon);
	free_rules(f);
	free_seen(f);
	free_streams(f);
	free(f->cert);
	free(f->key);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

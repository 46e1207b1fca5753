#include "extender/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/listen.h"
#include "extender/json.h"
#include "extender/server_internal.h"

#define CONNECTION_TIMEOUT_S 180 /* a Go client keeps idle connections for 90 s */
#define CONNECTIONS_MAX 8192
#define CONNECTION_MEMORY (256 << 10) /* 5,000 names arrive in few reads */
#define FIRST_RESERVE (256 << 10)     /* what a Content-Length alone is believed for */
#define KEEP_BYTES (4 << 20)          /* larger buffers are not kept */
#define DRAIN_MAX ((size_t)4 << 30)   /* of a refused body; then the connection is closed */
#define STOP_WAIT_S 10

struct ex_server {
	struct ex_server_config cfg;
	struct MHD_Daemon *daemon;
	int listen_fd;
	char url[300];
	atomic_bool stopping;
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* under the lock: */
	struct ex_exchange *free_list;
	unsigned free_count, active;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

const struct ex_server_config *ex_exchange_config(const struct ex_exchange *x)
{
	return &x->server->cfg;
}

/* ---- exchanges ---- */

static void exchange_free(struct ex_exchange *x)
{
	buf_fini(&x->in);
	buf_fini(&x->out);
	ex_scratch_fini(&x->scratch);
	ex_op_fini(&x->op);
	free(x);
}

static struct ex_exchange *exchange_get(struct ex_server *s)
{
	struct ex_exchange *x;

	pthread_mutex_lock(&s->lock);
	x = s->free_list;
	if (x != NULL) {
		s->free_list = x->next;
		s->free_count--;
	}
	s->active++;
	pthread_mutex_unlock(&s->lock);
	if (x != NULL)
		return x;
	x = calloc(1, sizeof(*x));
	if (x != NULL && ex_scratch_init(&x->scratch, NULL) == 0)
		return x;
	free(x);
	pthread_mutex_lock(&s->lock);
	s->active--;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void exchange_put(struct ex_server *s, struct ex_exchange *x)
{
	bool keep;

	if (x->in.cap > KEEP_BYTES)
		buf_fini(&x->in);
	if (x->out.cap > KEEP_BYTES)
		buf_fini(&x->out);
	ex_scratch_trim(&x->scratch);
	pthread_mutex_lock(&s->lock);
	keep = s->free_count < 2 * s->cfg.threads + 8;
	if (keep) {
		x->next = s->free_list;
		s->free_list = x;
		s->free_count++;
	}
	if (--s->active == 0)
		pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	if (!keep)
		exchange_free(x);
}

void ex_exchange_park(struct ex_exchange *x)
{
	x->parked = true;
	MHD_suspend_connection(x->connection);
}

void ex_exchange_resume(struct ex_exchange *x)
{
	MHD_resume_connection(x->connection);
}

void ex_exchange_again(struct ex_exchange *x)
{
	atomic_store(&x->again, true);
	MHD_resume_connection(x->connection);
}

void ex_exchange_failed(struct ex_exchange *x, const char *text)
{
	char quoted[600];

	x->error = true;
	log_event(x->server->cfg.log, LOG_LEVEL_WARN, "request-failed", "verb=%s error=%s",
		  ex_verb_name(x->route != NULL ? x->route->verb : EX_VERB_OTHER),
		  log_quote(text, quoted, sizeof(quoted)));
}

void ex_exchange_error(struct ex_exchange *x, unsigned status, const char *text)
{
	struct ex_json j = {.b = &x->out};

	x->status = status;
	x->error = true;
	buf_reset(&x->out);
	ex_json_begin(&j, '{');
	ex_json_key_string(&j, "error", text);
	ex_json_end(&j, '}');
}

/* ---- before the body ---- */

/* The request is answered now; its body is skipped. A scheduler's verb says it with 200. */
static void refuse(struct ex_exchange *x, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void refuse(struct ex_exchange *x, unsigned status, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_reset(&x->out);
	x->refused = true;
	x->error = true;
	if (x->route != NULL && x->route->refuse != NULL && status != MHD_HTTP_METHOD_NOT_ALLOWED &&
	    status != MHD_HTTP_UNSUPPORTED_MEDIA_TYPE && status != MHD_HTTP_FORBIDDEN &&
	    status != MHD_HTTP_BAD_REQUEST) {
		x->route->refuse(x, text);
		ex_exchange_failed(x, text);
	} else {
		ex_exchange_error(x, status, text);
	}
}

static const struct ex_route *route_find(const char *path)
{
	const char *slash = strrchr(path, '/');
	const struct ex_route *r;

	for (r = ex_routes; r->path != NULL; r++) {
		if (r->suffix ? slash != NULL && strcmp(slash + 1, r->path) == 0
			      : strcmp(path, r->path) == 0)
			return r;
	}
	return NULL;
}

static bool method_fits(const struct ex_route *r, const char *method)
{
	return strcmp(method, r->method) == 0 ||
	       (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static const char *header(const struct ex_exchange *x, const char *name)
{
	return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool is_json(const char *type)
{
	size_t len = strcspn(type, "; \t");

	return len == strlen("application/json") && strncasecmp(type, "application/json", len) == 0;
}

static size_t body_max(const struct ex_exchange *x)
{
	size_t all = x->server->cfg.max_body;
	size_t own = x->route != NULL ? x->route->max_body : 0;

	return own > 0 && own < all ? own : all;
}

static void too_large(struct ex_exchange *x, unsigned long long size)
{
	size_t max = body_max(x);

	if (max < x->server->cfg.max_body)
		refuse(x, 413, "the request has %llu bytes or more, and %s takes %zu", size,
		       x->route->path, max);
	else
		refuse(x, 413, "the request has %llu bytes or more, and --max-body allows %zu",
		       size, max);
}

struct lengths {
	unsigned lengths, encodings;
};

static enum MHD_Result count_length(void *ctx, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	struct lengths *n = ctx;

	(void)kind;
	(void)value;
	n->lengths += strcasecmp(name, "Content-Length") == 0;
	n->encodings += strcasecmp(name, "Transfer-Encoding") == 0;
	return MHD_YES;
}

/* Who forwards a request may read another end of its body than we do (RFC 9112, 6.3): then what follows is
 * somebody's smuggled request. It is refused, and the connection ends. */
static bool ambiguous(struct MHD_Connection *connection)
{
	struct lengths n = {0};

	MHD_get_connection_values(connection, MHD_HEADER_KIND, count_length, &n);
	return n.lengths + n.encodings > 1;
}

static void check_body(struct ex_exchange *x)
{
	const char *type = header(x, "Content-Type"), *encoding = header(x, "Content-Encoding");
	const char *length = header(x, "Content-Length");
	unsigned long long size = length != NULL ? strtoull(length, NULL, 10) : 0;

	if (encoding != NULL && strcasecmp(encoding, "identity") != 0)
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
		       "Content-Encoding \"%.100s\" is not understood", encoding);
	else if (type != NULL && !is_json(type))
		refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
		       "Content-Type is \"%.100s\", not application/json", type);
	else if (size > body_max(x))
		too_large(x, size);
	else
		buf_reserve(&x->in, size < FIRST_RESERVE ? (size_t)size : FIRST_RESERVE);
}

static void begin(struct ex_exchange *x, struct ex_server *s, struct MHD_Connection *connection,
		  const char *path, const char *method)
{
	x->server = s;
	x->connection = connection;
	x->start_ns = now_ns();
	x->route = route_find(path);
	x->received = 0;
	x->status = MHD_HTTP_OK;
	x->refused = x->error = x->ran = x->parked = false;
	atomic_store(&x->again, false);
	x->hold.until_us = 0;
	buf_reset(&x->in);
	buf_reset(&x->out);
	x->close = ambiguous(connection);
	if (x->close)
		refuse(x, MHD_HTTP_BAD_REQUEST,
		       "more than one of Content-Length and Transfer-Encoding: where does it end?");
	else if (x->route == NULL)
		refuse(x, MHD_HTTP_NOT_FOUND, "no such path: %.200s", path);
	else if (!method_fits(x->route, method))
		refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, "%s takes %s, not %.20s", x->route->path,
		       x->route->method, method);
	else if (x->route->guarded && s->cfg.tls != NULL && ex_tls_asks(s->cfg.tls) &&
		 !ex_tls_client_ok(connection))
		refuse(x, MHD_HTTP_FORBIDDEN,
		       "%s needs a client certificate of the authority in --tls-client-ca",
		       x->route->path);
	else if (atomic_load(&s->stopping))
		refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "the extender is shutting down");
	else if (strcmp(x->route->method, "POST") == 0)
		check_body(x);
}

static enum MHD_Result take_body(struct ex_exchange *x, const char *data, size_t len)
{
	x->received += len;
	if (x->received > DRAIN_MAX)
		return MHD_NO;
	if (x->refused)
		return MHD_YES;
	if (x->received > body_max(x)) {
		too_large(x, x->received);
		return MHD_YES;
	}
	buf_put(&x->in, data, len);
	if (!buf_ok(&x->in))
		refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory for the request");
	return MHD_YES;
}

/* ---- the reply ---- */

static enum MHD_Result reply(struct ex_exchange *x)
{
	const char *type = x->route != NULL && x->status == MHD_HTTP_OK ? x->route->type : NULL;
	struct MHD_Response *r;
	enum MHD_Result rc;

	if (!buf_ok(&x->out)) {
		buf_fini(&x->out);
		refuse(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory for the reply");
		if (!buf_ok(&x->out))
			return MHD_NO;
	}
	/* The buffer lives as long as the exchange, which is put back when the reply is sent. */
	r = MHD_create_response_from_buffer(x->out.len, x->out.data, MHD_RESPMEM_PERSISTENT);
	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", type != NULL ? type : "application/json");
	if (x->status == MHD_HTTP_METHOD_NOT_ALLOWED && x->route != NULL)
		MHD_add_response_header(r, "Allow", x->route->method);
	/* The map's script asks this server only. */
	if (type != NULL && strncmp(type, "text/html", 9) == 0)
		MHD_add_response_header(r, "Content-Security-Policy",
					"default-src 'none'; style-src 'unsafe-inline'; "
					"script-src 'unsafe-inline'; connect-src 'self'; "
					"frame-ancestors 'none'");
	MHD_add_response_header(r, "Cache-Control", "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	if (x->close || atomic_load(&x->server->stopping))
		MHD_add_response_header(r, "Connection", "close");
	ex_metrics_request(x->server->cfg.metrics,
			   x->route != NULL ? x->route->verb : EX_VERB_OTHER, x->status, x->error,
			   now_ns() - x->start_ns);
	rc = MHD_queue_response(x->connection, x->status, r);
	MHD_destroy_response(r);
	return rc;
}

/* Called first with the head, then with each part of the body, then with nothing: once, or again
 * after the connection was parked. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_len, void **con_cls)
{
	struct ex_server *s = cls;
	struct ex_exchange *x = *con_cls;
	enum MHD_Result rc;

	(void)version;
	if (x == NULL) {
		x = exchange_get(s);
		if (x == NULL)
			return MHD_NO;
		*con_cls = x;
		begin(x, s, connection, url, method);
		return x->close ? reply(x) : MHD_YES; /* its body has no end to wait for */
	}
	if (*upload_len > 0) {
		rc = take_body(x, upload, *upload_len);
		*upload_len = 0;
		return rc;
	}
	if (!x->refused && (!x->ran || atomic_exchange(&x->again, false))) {
		x->ran = true;
		x->parked = false;
		x->route->run(x);
		/* Whether the reply is ready by now or not: it is sent by the call after the park. */
		if (x->parked)
			return MHD_YES;
	}
	return reply(x);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
			 enum MHD_RequestTerminationCode why)
{
	struct ex_exchange *x = *con_cls;

	(void)connection;
	(void)why;
	*con_cls = NULL;
	if (x != NULL)
		exchange_put(cls, x);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct ex_server *s = cls;

	(void)connection;
	(void)socket_context;
	atomic_fetch_add(&s->cfg.metrics->connections,
			 what == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1);
}

static void on_log(void *cls, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void on_log(void *cls, const char *fmt, va_list ap)
{
	struct ex_server *s = cls;
	char text[256], quoted[512];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_event(s->cfg.log, LOG_LEVEL_DEBUG, "http", "message=%s",
		  log_quote(text, quoted, sizeof(quoted)));
}

/* ---- start and stop ---- */

static struct MHD_Daemon *daemon_start(struct ex_server *s)
{
	/* Not epoll: libmicrohttpd 0.9.75 asks for more events, and waits for them, whenever it got exactly
	 * the 128 it has room for; those are then answered when the next event or time limit comes. */
	unsigned flags =
		MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem more[1 + EX_TLS_OPTIONS], *at = more;

	if (s->cfg.threads > 1) /* one is no pool */
		*at++ = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE,
						(intptr_t)s->cfg.threads, NULL};
	if (s->cfg.tls != NULL) {
		flags |= MHD_USE_TLS;
		ex_tls_options(s->cfg.tls, at);
	} else {
		*at = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
	}
	return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER,
				on_log, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
				MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
				MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
				MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CONNECTION_TIMEOUT_S,
				MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
				MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

static void server_free(struct ex_server *s)
{
	struct ex_exchange *x;

	if (s->listen_fd >= 0)
		close(s->listen_fd);
	while ((x = s->free_list) != NULL) {
		s->free_list = x->next;
		exchange_free(x);
	}
	pthread_cond_destroy(&s->idle);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int ex_server_start(const struct ex_server_config *cfg, struct ex_server **ret, struct err *err)
{
	struct ex_server *s = calloc(1, sizeof(*s));
	int rc;

	*ret = NULL;
	if (s == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	s->cfg = *cfg;
	s->listen_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->idle, NULL);
	rc = listen_open(cfg->listen, cfg->tls != NULL, &s->listen_fd, s->url, sizeof(s->url), err);
	if (rc < 0)
		err_prefix(err, rc, "--listen");
	if (rc == 0) {
		s->daemon = daemon_start(s);
		if (s->daemon == NULL)
			rc = err_set(err, ERR_IO, "cannot start the HTTP server: %s",
				     strerror(errno));
	}
	if (rc == 0)
		*ret = s;
	else
		server_free(s);
	return rc;
}

const char *ex_server_url(const struct ex_server *s)
{
	return s->url;
}

void ex_server_stop(struct ex_server *s)
{
	struct timespec until;

	if (s == NULL)
		return;
	atomic_store(&s->stopping, true);
	MHD_quiesce_daemon(s->daemon);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += STOP_WAIT_S;
	pthread_mutex_lock(&s->lock);
	while (s->active > 0 &&
	       pthread_cond_clockwait(&s->idle, &s->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	pthread_mutex_unlock(&s->lock);
	MHD_stop_daemon(s->daemon);
	server_free(s);
}

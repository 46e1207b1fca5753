/* One request from its first try to its callback. All but ku_call_make() runs on the client's thread. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "kube/client_internal.h"
#include "kube/client_status.h"

#define DEADLINE_DEFAULT_MS INT64_C(30000)
#define ERROR_BODY_MAX ((size_t)64 << 10) /* of a stream that was refused */
#define STREAM_BUFFER (128L << 10)
#define FDS_SEARCHED 4096

static char *put(char **to, const char *s)
{
	size_t len;
	char *at = *to;

	if (s == NULL)
		return NULL;
	len = strlen(s) + 1;
	memcpy(at, s, len);
	*to += len;
	return at;
}

static size_t room(const char *s)
{
	return s != NULL ? strlen(s) + 1 : 0;
}

int ku_call_make(struct ku_client *c, const struct ku_request *r, struct ku_call **ret,
		 struct err *err)
{
	size_t text = room(r->method) + room(r->path) + room(r->content_type);
	struct ku_call *call;
	char *at;

	if (r->path == NULL || r->path[0] != '/' || strpbrk(r->path, " \t\r\n") != NULL)
		return err_set(err, ERR_INVALID,
			       "request: the path does not start with / or is not "
			       "escaped");
	call = calloc(1, sizeof(*call) + text + (r->body != NULL ? r->body_len + 1 : 0));
	if (call == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a request");
	at = (char *)(call + 1);
	call->client = c;
	call->r = *r;
	call->r.method = put(&at, r->method);
	call->r.path = put(&at, r->path);
	call->r.content_type = put(&at, r->content_type);
	if (r->body != NULL) {
		memcpy(at, r->body, r->body_len);
		call->r.body = at;
	}
	if (call->r.deadline_ms == 0)
		call->r.deadline_ms = DEADLINE_DEFAULT_MS;
	if (call->r.body_max == 0)
		call->r.body_max = KU_BODY_MAX_DEFAULT;
	call->made_us = ku_now_us(c);
	call->sent_us = -1;
	*ret = call;
	return 0;
}

/* ---- libcurl's callbacks ---- */

/* NOLINTNEXTLINE(readability-non-const-parameter): curl gives the type */
static int about_to_send(void *ctx, char *peer, char *own, int peer_port, int own_port)
{
	struct ku_call *call = ctx;

	(void)peer;
	(void)own;
	call->peer_port = peer_port;
	call->own_port = own_port;
	call->sent = true;
	call->sent_us = ku_now_us(call->client);
	return CURL_PREREQFUNC_OK;
}

static size_t take_body(char *data, size_t size, size_t count, void *ctx)
{
	struct ku_call *call = ctx;
	size_t len = size * count;
	bool stream = call->r.on_data != NULL;
	long status = 0;

	if (stream && curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK &&
	    status == 200) {
		call->status = 200;
		if (len > 0 && call->r.on_data(call->r.ctx, data, len) < 0) {
			call->stopped = true;
			return CURL_WRITEFUNC_ERROR;
		}
		return len;
	}
	if (len > (stream ? ERROR_BODY_MAX : call->r.body_max) - call->body.len) {
		call->too_large = true;
		return CURL_WRITEFUNC_ERROR;
	}
	buf_put(&call->body, data, len);
	if (!buf_ok(&call->body)) {
		call->no_memory = true;
		return CURL_WRITEFUNC_ERROR;
	}
	return len;
}

/* ---- a try ---- */

static bool add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *more = curl_slist_append(*list, line);

	if (more != NULL)
		*list = more;
	return more != NULL;
}

static bool add_named(struct curl_slist **list, const char *name, const char *value)
{
	char *line;
	bool ok;

	if (asprintf(&line, "%s%s", name, value) < 0)
		return false;
	ok = add_header(list, line);
	explicit_bzero(line, strlen(line));
	free(line);
	return ok;
}

static bool make_headers(struct ku_call *call)
{
	struct ku_client *c = call->client;
	struct curl_slist **h = &call->headers;
	const char *type = call->r.content_type;

	return add_header(h, "Accept: application/json") && add_header(h, "Expect:") &&
	       (c->transport.host_header == NULL || add_header(h, c->transport.host_header)) &&
	       (c->token.text == NULL || add_named(h, "Authorization: Bearer ", c->token.text)) &&
	       (call->r.body == NULL ||
		add_named(h, "Content-Type: ", type != NULL ? type : "application/json"));
}

/* Header lines hold the token. */
static void free_headers(struct ku_call *call)
{
	for (struct curl_slist *l = call->headers; l != NULL; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(call->headers);
	call->headers = NULL;
}

/* Streams have handles of their own: libcurl lets the size of the buffer be set on a new one only. */
static CURL *take_handle(struct ku_client *c, bool stream)
{
	CURL *h;

	if (!stream && c->idle_count > 0)
		return c->idle[--c->idle_count];
	h = ku_transport_easy(&c->transport);
	if (h != NULL && stream)
		curl_easy_setopt(h, CURLOPT_BUFFERSIZE, STREAM_BUFFER);
	return h;
}

static void give_handle(struct ku_client *c, CURL *h, bool once)
{
	if (!once && c->idle_count < sizeof(c->idle) / sizeof(c->idle[0]))
		c->idle[c->idle_count++] = h;
	else
		curl_easy_cleanup(h);
}

static bool set_method(CURL *h, const struct ku_request *r)
{
	const char *method = r->method != NULL ? r->method : "GET";

	if (r->body == NULL)
		return curl_easy_setopt(h, CURLOPT_HTTPGET, 1L) == CURLE_OK &&
		       curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK;
	return curl_easy_setopt(h, CURLOPT_POST, 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_POSTFIELDS, r->body) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len) ==
		       CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK;
}

static bool set_up(struct ku_call *call)
{
	CURL *h = call->easy;
	char *url;
	bool ok;

	if (asprintf(&url, "%s%s", call->client->transport.base, call->r.path) < 0)
		return false;
	ok = curl_easy_setopt(h, CURLOPT_URL, url) == CURLE_OK;
	free(url);
	return ok && make_headers(call) && set_method(h, &call->r) &&
	       ku_transport_identify(&call->client->transport, h) &&
	       curl_easy_setopt(h, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_PRIVATE, call) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_PREREQFUNCTION, about_to_send) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_PREREQDATA, call) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_WRITEDATA, call) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_ERRORBUFFER, call->fault) == CURLE_OK;
}

/* Takes the handle out of libcurl's hands; nothing of the call is referred to afterwards. */
static void release_handle(struct ku_call *call)
{
	CURL *h = call->easy;
	bool kept;

	if (h == NULL)
		return;
	call->easy = NULL;
	kept = curl_multi_remove_handle(call->client->multi, h) == CURLM_OK;
	curl_easy_setopt(h, CURLOPT_ERRORBUFFER, NULL);
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, NULL);
	curl_easy_setopt(h, CURLOPT_POSTFIELDS, NULL);
	free_headers(call);
	/* One that libcurl did not let go of is of no use to another request. */
	give_handle(call->client, h, call->r.on_data != NULL || !kept);
}

static bool has_files(const struct ku_client *c)
{
	return c->token.file != NULL || c->transport.config.cert.path != NULL ||
	       c->transport.config.key.path != NULL;
}

/* Reads the files that say who we are; what cannot be read stays as it was. Returns whether anything
 * is new. */
static bool read_files(struct ku_client *c)
{
	bool token_changed = false, cert_changed = false;
	struct err err = ERR_INIT;
	char quoted[ERR_MSG_CAP * 2];

	c->files_read_us = ku_now_us(c);
	if (ku_token_read(&c->token, &token_changed, &err) < 0)
		log_event(c->log, LOG_LEVEL_WARN, "api_token", "error=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	err = (struct err)ERR_INIT;
	if (ku_transport_reread(&c->transport, &cert_changed, &err) < 0)
		log_event(c->log, LOG_LEVEL_WARN, "api_certificate", "error=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	pthread_mutex_lock(&c->lock);
	c->stats.token_reads += c->token.file != NULL;
	pthread_mutex_unlock(&c->lock);
	return token_changed || cert_changed;
}

static void read_old_files(struct ku_client *c)
{
	if (has_files(c) && ku_now_us(c) - c->files_read_us >= c->token_us)
		read_files(c);
}

static void on_again(void *ctx)
{
	ku_call_start(ctx);
}

static void put_off(struct ku_call *call)
{
	free_headers(call);
	curl_easy_cleanup(call->easy);
	call->easy = NULL;
	ku_timer_set(call->client, &call->again, ku_now_us(call->client), on_again, call);
}

void ku_call_start(struct ku_call *call)
{
	struct ku_client *c = call->client;

	read_old_files(c);
	buf_reset(&call->body);
	call->status = 0;
	call->sent_us = -1;
	call->too_large = call->no_memory = call->stopped = false;
	call->fault[0] = '\0';
	call->easy = take_handle(c, call->r.on_data != NULL);
	if (call->tries++ > 0) {
		pthread_mutex_lock(&c->lock);
		c->stats.retries++;
		pthread_mutex_unlock(&c->lock);
	}
	if (call->easy != NULL && set_up(call)) {
		CURLMcode code = curl_multi_add_handle(c->multi, call->easy);

		if (code == CURLM_OK)
			return;
		if (code ==
		    CURLM_RECURSIVE_API_CALL) { /* libcurl is not done yet: at once after that */
			put_off(call);
			return;
		}
		snprintf(call->fault, sizeof(call->fault), "libcurl: %s",
			 curl_multi_strerror(code));
	} else {
		snprintf(call->fault, sizeof(call->fault), "no memory for a request");
	}
	free_headers(call);
	if (call->easy != NULL)
		curl_easy_cleanup(call->easy);
	call->easy = NULL;
	ku_call_end(call, KU_REPLY_FAILED);
}

/* ---- its end ---- */

static void describe(struct ku_call *call, enum ku_reply_kind kind)
{
	struct ku_status s;
	size_t cap = sizeof(call->text);

	call->text[0] = '\0';
	if (kind == KU_REPLY_TIMEOUT)
		snprintf(call->text, cap, "no answer within %lld ms",
			 (long long)call->r.deadline_ms);
	else if (kind == KU_REPLY_TOO_LARGE)
		snprintf(call->text, cap, "the answer is over %zu bytes", call->r.body_max);
	else if (kind == KU_REPLY_STOPPED)
		snprintf(call->text, cap, "the answer was not accepted");
	else if (kind == KU_REPLY_CANCELLED)
		snprintf(call->text, cap, "the client ends");
	else if (kind == KU_REPLY_FAILED)
		snprintf(call->text, cap, "%s",
			 call->fault[0] != '\0' ? call->fault : "the connection broke");
	else if (call->status >= 400 && ku_status_parse(call->body.data, call->body.len, &s))
		snprintf(call->text, cap, "%d %s: %s", call->status, s.reason, s.message);
	else if (call->status >= 300)
		snprintf(call->text, cap, "%d from the API server", call->status);
}

static int64_t retry_after_ms(struct ku_call *call)
{
	curl_off_t s = 0;

	if (call->easy == NULL || call->status == 0 ||
	    curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &s) != CURLE_OK || s <= 0)
		return -1;
	return s < 3600 ? (int64_t)s * 1000 : 3600000;
}

static void count(struct ku_call *call, enum ku_reply_kind kind)
{
	struct ku_client *c = call->client;
	bool first;

	pthread_mutex_lock(&c->lock);
	c->stats.throttled += call->status == 429;
	c->stats.unauthorized += call->status == 401;
	c->stats.failures += kind != KU_REPLY_CANCELLED && call->status == 0;
	if (call->status != 0)
		c->stats.auth_failed = call->status == 401;
	first = c->stats.auth_failed && !c->stats_auth_logged;
	c->stats_auth_logged = c->stats.auth_failed;
	pthread_mutex_unlock(&c->lock);
	if (first)
		log_event(c->log, LOG_LEVEL_ERROR, "api_unauthorized", "status=401 token=%s",
			  c->token.file != NULL   ? "file"
			  : c->token.text != NULL ? "fixed"
						  : "none");
}

static void unlink_call(struct ku_call *call)
{
	struct ku_client *c = call->client;

	ku_timer_clear(c, &call->deadline);
	ku_timer_clear(c, &call->again);
	if (call->prev != NULL)
		call->prev->next = call->next;
	else
		c->calls = call->next;
	if (call->next != NULL)
		call->next->prev = call->prev;
	pthread_mutex_lock(&c->lock);
	c->stats.in_flight--;
	pthread_mutex_unlock(&c->lock);
}

static void free_call(struct ku_call *call)
{
	buf_fini(&call->body);
	free(call);
}

void ku_call_end(struct ku_call *call, enum ku_reply_kind kind)
{
	struct ku_reply reply = {.kind = kind, .status = call->status, .sent = call->sent};
	const char *body;

	reply.retry_after_ms = retry_after_ms(call);
	release_handle(call);
	count(call, kind);
	describe(call, kind);
	body = buf_str(&call->body);
	reply.body = body != NULL ? body : "";
	reply.len = body != NULL ? call->body.len : 0;
	reply.queued_us = call->sent_us < 0 ? -1 : call->sent_us - call->made_us;
	reply.text = call->text;
	unlink_call(call);
	if (call->r.on_done != NULL)
		call->r.on_done(call->r.ctx, &reply);
	free_call(call);
}

static int port_of(const struct sockaddr_storage *a)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	memcpy(&v4, a, sizeof(v4));
	memcpy(&v6, a, sizeof(v6));
	return a->ss_family == AF_INET    ? ntohs(v4.sin_port)
	       : a->ss_family == AF_INET6 ? ntohs(v6.sin6_port)
					  : -1;
}

/* Shuts the connection with these two ports: libcurl does not tell the socket of a transfer that is
 * not over, and other streams may be on it. Rare, so a search is good enough. */
static void shut_connection(int own_port, int peer_port)
{
	for (int fd = 0; fd < FDS_SEARCHED; fd++) {
		struct sockaddr_storage own = {0}, peer = {0};
		socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

		if (getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
		    getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
		    port_of(&own) == own_port && port_of(&peer) == peer_port)
			(void)shutdown(fd, SHUT_RDWR);
	}
}

void ku_call_drop(struct ku_call *call, bool broken)
{
	if (broken && call->easy != NULL && call->sent_us >= 0 && call->own_port > 0)
		shut_connection(call->own_port, call->peer_port);
	release_handle(call);
	unlink_call(call);
	free_call(call);
}

static void on_deadline(void *ctx)
{
	struct ku_call *call = ctx;
	long status = 0;

	if (call->easy != NULL &&
	    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK)
		call->status = (int)status;
	ku_call_end(call, KU_REPLY_TIMEOUT);
}

/* After a failed try that may be repeated: waits, if the deadline leaves time. */
static bool try_again(struct ku_call *call, int64_t after_ms)
{
	struct ku_client *c = call->client;
	int64_t now = ku_now_us(c);
	int64_t wait = ku_backoff_next_us(&call->backoff, &c->rng, now);

	if (after_ms * 1000 > wait)
		wait = after_ms * 1000;
	if (call->deadline.armed && now + wait >= call->deadline.at_us)
		return false;
	count(call, KU_REPLY_HTTP);
	release_handle(call);
	ku_timer_set(c, &call->again, now + wait, on_again, call);
	return true;
}

/* A 401 where files say who we are: they are read at once, and the request is repeated once. */
static bool reauthorize(struct ku_call *call)
{
	struct ku_client *c = call->client;
	bool changed;

	if (call->reauthorized || !has_files(c))
		return false;
	call->reauthorized = true;
	changed = read_files(c);
	pthread_mutex_lock(&c->lock);
	c->stats.unauthorized++;
	pthread_mutex_unlock(&c->lock);
	log_event(c->log, LOG_LEVEL_INFO, "api_credentials_reread", "cause=401 changed=%d",
		  changed);
	call->sent = false; /* refused before anything was done */
	release_handle(call);
	ku_call_start(call);
	return true;
}

static bool worth_repeating(const struct ku_call *call, enum ku_reply_kind kind)
{
	if (!call->r.retry || call->no_memory)
		return false;
	return kind == KU_REPLY_FAILED ||
	       (kind == KU_REPLY_HTTP && (call->status == 429 || call->status >= 500));
}

/* One answer by HTTP/1.1 says that there is no multiplexing to rely on. */
static void look_at_version(struct ku_call *call)
{
	struct ku_client *c = call->client;
	long version = 0;

	if (c->widened ||
	    curl_easy_getinfo(call->easy, CURLINFO_HTTP_VERSION, &version) != CURLE_OK ||
	    version != CURL_HTTP_VERSION_1_1)
		return;
	c->widened = true;
	ku_transport_widen(&c->transport, c->multi);
}

void ku_call_finished(struct ku_call *call, CURLcode code)
{
	enum ku_reply_kind kind = KU_REPLY_FAILED;
	long status = 0;

	look_at_version(call);
	if (curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK)
		call->status = (int)status;
	if (code == CURLE_OK)
		kind = KU_REPLY_HTTP;
	else if (call->stopped)
		kind = KU_REPLY_STOPPED;
	else if (call->too_large)
		kind = KU_REPLY_TOO_LARGE;
	else if (call->no_memory)
		snprintf(call->fault, sizeof(call->fault), "no memory for the answer");
	else if (call->fault[0] == '\0')
		snprintf(call->fault, sizeof(call->fault), "%s", curl_easy_strerror(code));
	if (kind == KU_REPLY_HTTP && call->status == 401 && reauthorize(call))
		return;
	if (worth_repeating(call, kind) && try_again(call, retry_after_ms(call)))
		return;
	ku_call_end(call, kind);
}

void ku_call_link(struct ku_client *c, struct ku_call *call)
{
	call->prev = NULL;
	call->next = c->calls;
	if (c->calls != NULL)
		c->calls->prev = call;
	c->calls = call;
	if (call->r.deadline_ms != KU_NO_DEADLINE)
		ku_timer_set(c, &call->deadline, call->made_us + call->r.deadline_ms * 1000,
			     on_deadline, call);
}

int ku_call_new(struct ku_client *c, const struct ku_request *r, struct ku_call **ret,
		struct err *err)
{
	struct ku_call *call = NULL;
	int res = ku_call_make(c, r, &call, err);

	if (call == NULL)
		return res;
	pthread_mutex_lock(&c->lock);
	c->stats.requests++;
	c->stats.in_flight++;
	pthread_mutex_unlock(&c->lock);
	ku_call_link(c, call);
	ku_timer_set(c, &call->again, call->made_us, on_again, call); /* not before we returned */
	*ret = call;
	return 0;
}

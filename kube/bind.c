#include "kube/bind.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/client_path.h"
#include "kube/object.h"

#define DEADLINE_DEFAULT_MS 4000
#define PREFIX_MAX 253
#define NAME_MAX_LEN 63

static int nomem(struct err *err)
{
	return err_set(err, ERR_NOMEM, "no memory for a bind");
}

/* ---- what the API server does not check, and refuses every later update of the pod for ---- */

static bool is_alnum(char ch)
{
	return (unsigned char)ch < 0x80 && isalnum((unsigned char)ch) != 0;
}

/* Letters and digits at both ends, extra in between too. */
static bool is_word(const char *s, size_t len, size_t max, const char *extra)
{
	if (len == 0 || len > max || !is_alnum(s[0]) || !is_alnum(s[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!is_alnum(s[i]) && strchr(extra, s[i]) == NULL)
			return false;
	}
	return true;
}

static bool is_dns_name(const char *s, size_t len)
{
	if (len > PREFIX_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (isupper((unsigned char)s[i]))
			return false;
	}
	while (true) {
		const char *dot = memchr(s, '.', len);
		size_t part = dot != NULL ? (size_t)(dot - s) : len;

		if (!is_word(s, part, NAME_MAX_LEN, "-"))
			return false;
		if (dot == NULL)
			return true;
		s += part + 1;
		len -= part + 1;
	}
}

static bool is_key(const char *key)
{
	const char *slash = strchr(key, '/');
	const char *name = slash != NULL ? slash + 1 : key;

	if (slash != NULL && !is_dns_name(key, (size_t)(slash - key)))
		return false;
	return is_word(name, strlen(name), NAME_MAX_LEN, "-_.");
}

static int check(const struct ku_bind *b, struct err *err)
{
	size_t bytes = b->present_bytes;

	if (!ku_path_legal(b->ns) || !ku_path_legal(b->name) || !ku_path_legal(b->node))
		return err_set(err, ERR_INVALID, "bind: namespace, pod or node has no legal name");
	if (b->uid == NULL || *b->uid == '\0')
		return err_set(err, ERR_INVALID, "bind: the pod has no uid");
	for (size_t i = 0; i < b->annotation_count; i++) {
		const struct st_kv *kv = &b->annotations[i];

		if (!is_key(kv->key))
			return err_set(err, ERR_INVALID, "bind: \"%.300s\" is no annotation key",
				       kv->key);
		bytes += strlen(kv->key) + strlen(kv->value);
	}
	if (bytes > KU_ANNOTATIONS_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "bind: the pod's annotations would be %zu bytes, over %d", bytes,
			       KU_ANNOTATIONS_MAX);
	return 0;
}

/* ---- the Binding ---- */

static bool add_str(cJSON *obj, const char *name, const char *value)
{
	return cJSON_AddStringToObject(obj, name, value) != NULL;
}

static bool fill(cJSON *root, const struct ku_bind *b)
{
	cJSON *meta, *notes, *target;

	if (!add_str(root, "apiVersion", "v1") || !add_str(root, "kind", "Binding") ||
	    (meta = cJSON_AddObjectToObject(root, "metadata")) == NULL ||
	    !add_str(meta, "name", b->name) || !add_str(meta, "namespace", b->ns) ||
	    !add_str(meta, "uid", b->uid) ||
	    (notes = cJSON_AddObjectToObject(meta, "annotations")) == NULL ||
	    (target = cJSON_AddObjectToObject(root, "target")) == NULL)
		return false;
	for (size_t i = 0; i < b->annotation_count; i++) {
		if (!add_str(notes, b->annotations[i].key, b->annotations[i].value))
			return false;
	}
	return add_str(target, "apiVersion", "v1") && add_str(target, "kind", "Node") &&
	       add_str(target, "name", b->node);
}

int ku_bind_body(const struct ku_bind *b, struct buf *ret, struct err *err)
{
	cJSON *root;
	char *text = NULL;
	int r = check(b, err);

	if (r < 0)
		return r;
	root = cJSON_CreateObject();
	if (root != NULL && fill(root, b))
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	if (text == NULL)
		return nomem(err);
	buf_puts(ret, text);
	cJSON_free(text);
	return buf_ok(ret) ? 0 : nomem(err);
}

enum ku_bind_outcome ku_bind_classify(const struct ku_reply *reply)
{
	int s = reply->status;

	if (s == 201)
		return KU_BIND_OK;
	if (s == 0)
		return reply->sent ? KU_BIND_UNKNOWN : KU_BIND_REFUSED;
	return s >= 400 && s < 500 && s != 429 ? KU_BIND_REFUSED : KU_BIND_UNKNOWN;
}

struct bind_call {
	ku_bind_fn fn;
	void *ctx;
	int64_t final_us;
};

static void on_bind_done(void *ctx, const struct ku_reply *reply)
{
	struct bind_call *call = ctx;
	struct ku_bind_result res = {
		.outcome = ku_bind_classify(reply),
		.status = reply->status,
		.retry_after_ms = reply->retry_after_ms,
		.queued_us = reply->queued_us,
		.final_us = call->final_us,
	};

	res.text = res.outcome == KU_BIND_OK ? "" : reply->text;
	if (call->fn != NULL)
		call->fn(call->ctx, &res);
	free(call);
}

static void put_path(const struct ku_bind *b, int64_t timeout_s, struct buf *path)
{
	char text[24];

	ku_path_pod(path, b->ns, b->name, "binding");
	snprintf(text, sizeof(text), "%llds", (long long)timeout_s);
	ku_path_query(path, "timeout", text); /* the server gives up when nobody waits any more */
}

int ku_bind_send(struct ku_client *c, const struct ku_bind *b, ku_bind_fn fn, void *ctx,
		 struct err *err)
{
	const struct ku_clock *clock = ku_client_clock(c);
	int64_t deadline_ms = b->deadline_ms != 0 ? b->deadline_ms : DEADLINE_DEFAULT_MS;
	int64_t timeout_s = (deadline_ms + 999) / 1000;
	struct ku_request rq = {
		.method = "POST", .deadline_ms = deadline_ms, .on_done = on_bind_done};
	struct buf body = BUF_INIT, path = BUF_INIT;
	struct bind_call *call = calloc(1, sizeof(*call));
	int r;

	if (call == NULL)
		return nomem(err);
	r = ku_bind_body(b, &body, err);
	if (r == 0) {
		*call = (struct bind_call){.fn = fn, .ctx = ctx};
		/* Sent at the deadline at the latest, then the server's time, and a second for clocks. */
		call->final_us =
			clock->mono_us(clock->ctx) + (deadline_ms + timeout_s * 1000 + 1000) * 1000;
		put_path(b, timeout_s, &path);
		rq.path = buf_str(&path);
		rq.body = body.data;
		rq.body_len = body.len;
		rq.ctx = call;
		r = rq.path != NULL ? ku_client_send(c, &rq, err) : nomem(err);
	}
	buf_fini(&body);
	buf_fini(&path);
	if (r != 0)
		free(call);
	return r; /* NOLINT(clang-analyzer-unix.Malloc): the request has it now */
}

/* ---- reading ---- */

struct pod_call {
	ku_pod_fn fn;
	void *ctx;
	char uid[]; /* "" = any */
};

static void tell_pod(const struct pod_call *call, const struct ku_reply *reply)
{
	struct err err = ERR_INIT;
	const cJSON *uid;
	cJSON *pod;

	if (ku_json_parse_stored(reply->body, reply->len, &pod, &err) < 0) {
		call->fn(call->ctx, KU_POD_UNKNOWN, NULL, err.msg);
		return;
	}
	uid = ku_json_get(ku_json_get(pod, "metadata"), "uid");
	if (!cJSON_IsString(uid))
		call->fn(call->ctx, KU_POD_UNKNOWN, NULL, "the answer is no pod");
	else if (call->uid[0] != '\0' && strcmp(call->uid, uid->valuestring) != 0)
		call->fn(call->ctx, KU_POD_GONE, NULL, "another pod has the name now");
	else
		call->fn(call->ctx, KU_POD_FOUND, pod, "");
	cJSON_Delete(pod);
}

static void on_pod_done(void *ctx, const struct ku_reply *reply)
{
	struct pod_call *call = ctx;

	if (reply->kind == KU_REPLY_HTTP && reply->status == 200)
		tell_pod(call, reply);
	else if (reply->kind == KU_REPLY_HTTP && reply->status == 404)
		call->fn(call->ctx, KU_POD_GONE, NULL, reply->text);
	else
		call->fn(call->ctx, KU_POD_UNKNOWN, NULL, reply->text);
	free(call);
}

int ku_pod_get(struct ku_client *c, const char *ns, const char *name, const char *uid,
	       int64_t deadline_ms, ku_pod_fn fn, void *ctx, struct err *err)
{
	struct ku_request rq = {
		.deadline_ms = deadline_ms != 0 ? deadline_ms : DEADLINE_DEFAULT_MS,
		.retry = true,
		.on_done = on_pod_done,
	};
	size_t len = uid != NULL ? strlen(uid) : 0;
	struct buf path = BUF_INIT;
	struct pod_call *call;
	int r;

	if (!ku_path_legal(ns) || !ku_path_legal(name))
		return err_set(err, ERR_INVALID, "pod: namespace or name is not legal");
	call = calloc(1, sizeof(*call) + len + 1);
	if (call == NULL)
		return nomem(err);
	call->fn = fn;
	call->ctx = ctx;
	if (len > 0)
		memcpy(call->uid, uid, len);
	ku_path_pod(&path, ns, name, NULL);
	rq.path = buf_str(&path);
	rq.ctx = call;
	r = rq.path != NULL ? ku_client_send(c, &rq, err) : nomem(err);
	buf_fini(&path);
	if (r != 0)
		free(call);
	return r; /* NOLINT(clang-analyzer-unix.Malloc): the request has it now */
}

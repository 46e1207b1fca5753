#include "enforcer/probe_kubelet.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/buf.h"

#define METHOD "http://localhost/v1.PodResourcesLister/List"
#define ANSWER_MAX ((size_t)4 << 20)
#define FRAME_HEAD 5 /* compressed or not, and the length */

/* ---- the message ----
 * ListPodResourcesResponse { repeated PodResources pod_resources = 1; }
 * PodResources { string name = 1; string namespace = 2; repeated ContainerResources containers = 3; }
 * ContainerResources { string name = 1; repeated ContainerDevices devices = 2; ... }
 * ContainerDevices { string resource_name = 1; repeated string device_ids = 2; ... } */

struct reader {
	const uint8_t *at, *end;
	bool bad;
};

struct field {
	uint32_t number;
	bool is_bytes;
	struct reader bytes;
};

static uint64_t varint(struct reader *r)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (r->at == r->end)
			break;
		v |= (uint64_t)(*r->at & 0x7f) << shift;
		if ((*r->at++ & 0x80) == 0)
			return v;
	}
	r->bad = true;
	return 0;
}

static void skip_bytes(struct reader *r, uint64_t n)
{
	if (n > (uint64_t)(r->end - r->at))
		r->bad = true;
	else
		r->at += n;
}

/* The next field; false at the end and where the message is broken. */
static bool next_field(struct reader *r, struct field *ret)
{
	uint64_t key, len;

	if (r->bad || r->at == r->end)
		return false;
	key = varint(r);
	ret->number = (uint32_t)(key >> 3);
	ret->is_bytes = (key & 7) == 2;
	switch (key & 7) {
	case 0:
		(void)varint(r);
		break;
	case 1:
		skip_bytes(r, 8);
		break;
	case 2:
		len = varint(r);
		ret->bytes.at = r->at;
		skip_bytes(r, r->bad ? 0 : len);
		ret->bytes.end = r->at;
		ret->bytes.bad = false;
		break;
	case 5:
		skip_bytes(r, 4);
		break;
	default:
		r->bad = true;
		break;
	}
	return !r->bad;
}

/* Cut where it is too long: names of Kubernetes fit. */
static void copy_text(const struct reader *from, char *ret, size_t cap)
{
	size_t len = (size_t)(from->end - from->at);

	len = len < cap ? len : cap - 1;
	memcpy(ret, from->at, len);
	ret[len] = '\0';
}

struct found {
	const char *prefix;
	struct en_plugin_device one; /* pod and resource of where we are */
	void (*fn)(void *ctx, const struct en_plugin_device *d);
	void *ctx;
	bool bad;
};

static void read_devices(struct reader r, struct found *f)
{
	struct reader again = r;
	struct field field;

	f->one.resource[0] = '\0';
	while (next_field(&again, &field)) {
		if (field.number == 1 && field.is_bytes)
			copy_text(&field.bytes, f->one.resource, sizeof(f->one.resource));
	}
	if (strncmp(f->one.resource, f->prefix, strlen(f->prefix)) == 0) {
		while (next_field(&r, &field)) {
			if (field.number != 2 || !field.is_bytes)
				continue;
			copy_text(&field.bytes, f->one.id, sizeof(f->one.id));
			if (f->fn != NULL)
				f->fn(f->ctx, &f->one);
		}
	}
	f->bad = f->bad || r.bad || again.bad;
}

static void read_container(struct reader r, struct found *f)
{
	struct field field;

	while (next_field(&r, &field)) {
		if (field.number == 2 && field.is_bytes)
			read_devices(field.bytes, f);
	}
	f->bad = f->bad || r.bad;
}

/* Names may stand behind the containers: two passes. */
static void read_pod(struct reader r, struct found *f)
{
	struct reader again = r;
	struct field field;

	f->one.ns[0] = f->one.pod[0] = '\0';
	while (next_field(&again, &field)) {
		if (field.number == 1 && field.is_bytes)
			copy_text(&field.bytes, f->one.pod, sizeof(f->one.pod));
		else if (field.number == 2 && field.is_bytes)
			copy_text(&field.bytes, f->one.ns, sizeof(f->one.ns));
	}
	while (next_field(&r, &field)) {
		if (field.number == 3 && field.is_bytes)
			read_container(field.bytes, f);
	}
	f->bad = f->bad || r.bad || again.bad;
}

int en_kubelet_each(const void *msg, size_t len, const char *prefix,
		    void (*fn)(void *ctx, const struct en_plugin_device *d), void *ctx,
		    struct err *err)
{
	struct found f = {.prefix = prefix, .fn = fn, .ctx = ctx};
	struct reader r = {.at = msg};
	struct field field;

	r.end = r.at + len;
	while (next_field(&r, &field)) {
		if (field.number == 1 && field.is_bytes)
			read_pod(field.bytes, &f);
	}
	return r.bad || f.bad ? err_set(err, ERR_INVALID, "the kubelet's answer is not understood")
			      : 0;
}

/* ---- the call ---- */

struct call {
	struct buf body;
	int grpc_status; /* -1: none came */
	bool too_large;
};

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	struct call *c = ctx;

	if (c->body.len + size * count > ANSWER_MAX) {
		c->too_large = true;
		return 0;
	}
	buf_put(&c->body, data, size * count);
	return buf_ok(&c->body) ? size * count : 0;
}

/* Headers and trailers alike. */
static size_t on_header(char *data, size_t size, size_t count, void *ctx)
{
	static const char name[] = "grpc-status:";
	struct call *c = ctx;
	size_t len = size * count, n = sizeof(name) - 1;
	char text[16] = "";

	if (len > n && strncasecmp(data, name, n) == 0) {
		memcpy(text, data + n, len - n < sizeof(text) - 1 ? len - n : sizeof(text) - 1);
		c->grpc_status = (int)strtol(text, NULL, 10);
	}
	return len;
}

static int finish(const struct call *c, CURLcode code, struct buf *ret, struct err *err)
{
	const uint8_t *b = (const uint8_t *)c->body.data;
	struct buf fresh = BUF_INIT;
	size_t len;

	if (!buf_ok(&c->body))
		return err_set(err, ERR_NOMEM, "out of memory");
	if (c->too_large)
		return err_set(err, ERR_IO, "the kubelet's answer is over %zu bytes", ANSWER_MAX);
	if (code != CURLE_OK)
		return err_set(err, ERR_IO, "kubelet: %s", curl_easy_strerror(code));
	if (c->grpc_status != 0)
		return err_set(err, ERR_IO, "kubelet: gRPC status %d", c->grpc_status);
	if (c->body.len < FRAME_HEAD || b[0] != 0)
		return err_set(err, ERR_IO, "the kubelet's answer is not understood");
	len = (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
	if (len != c->body.len - FRAME_HEAD)
		return err_set(err, ERR_IO, "the kubelet's answer is cut");
	if (en_kubelet_each(b + FRAME_HEAD, len, "", NULL, NULL, err) != 0)
		return ERR_IO;
	buf_put(&fresh, b + FRAME_HEAD, len);
	if (!buf_ok(&fresh)) {
		buf_fini(&fresh);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	buf_fini(ret);
	*ret = fresh;
	return 0;
}

int en_kubelet_ask(const char *socket, int64_t limit_ms, struct buf *ret, struct err *err)
{
	static const char request[FRAME_HEAD]; /* an empty message, not compressed */
	struct call call = {.body = BUF_INIT, .grpc_status = -1};
	struct curl_slist *headers = NULL, *more;
	CURL *curl;
	int r;

	if (access(socket, F_OK) != 0)
		return err_set(err, ERR_NOT_FOUND, "%s is not there", socket);
	curl = curl_easy_init();
	headers = curl_slist_append(NULL, "Content-Type: application/grpc");
	more = headers != NULL ? curl_slist_append(headers, "TE: trailers") : NULL;
	if (curl == NULL || more == NULL) {
		curl_slist_free_all(headers);
		curl_easy_cleanup(curl);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	curl_easy_setopt(curl, CURLOPT_URL, METHOD);
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, more);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)sizeof(request));
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &call);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, &call);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)limit_ms);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	r = finish(&call, curl_easy_perform(curl), ret, err);
	curl_slist_free_all(more);
	curl_easy_cleanup(curl);
	buf_fini(&call.body);
	return r;
}

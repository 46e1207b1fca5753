#include "replay/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#define CALL_TIMEOUT_MS 30000L
#define REPLY_MAX ((size_t)1 << 30)

struct rp_http {
	char *url; /* without trailing slashes */
	CURLM *multi;
	struct curl_slist *headers;
	struct rp_call *idle;
};

static size_t on_data(char *data, size_t size, size_t n, void *ctx)
{
	struct rp_call *call = ctx;

	if (call->reply.len + size * n > REPLY_MAX)
		return 0;
	buf_put(&call->reply, data, size * n);
	return buf_ok(&call->reply) ? size * n : 0;
}

struct rp_http *rp_http_new(const char *url, long connections)
{
	struct rp_http *h = calloc(1, sizeof(*h));
	size_t len = strlen(url);

	if (h == NULL)
		return NULL;
	while (len > 0 && url[len - 1] == '/')
		len--;
	curl_global_init(CURL_GLOBAL_DEFAULT);
	h->url = strndup(url, len);
	h->multi = curl_multi_init();
	h->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (h->headers != NULL) { /* an empty Expect: bodies are sent at once */
		struct curl_slist *more = curl_slist_append(h->headers, "Expect:");

		if (more == NULL)
			curl_slist_free_all(h->headers);
		h->headers = more;
	}
	if (h->url == NULL || h->multi == NULL || h->headers == NULL) {
		rp_http_free(h);
		return NULL;
	}
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, connections);
	return h;
}

static void call_free(struct rp_call *call)
{
	curl_easy_cleanup(call->easy);
	buf_fini(&call->body);
	buf_fini(&call->reply);
	free(call);
}

void rp_http_free(struct rp_http *h)
{
	if (h == NULL)
		return;
	while (h->idle != NULL) {
		struct rp_call *next = h->idle->next;

		call_free(h->idle);
		h->idle = next;
	}
	if (h->multi != NULL)
		curl_multi_cleanup(h->multi);
	curl_slist_free_all(h->headers);
	free(h->url);
	free(h);
	curl_global_cleanup();
}

struct rp_call *rp_http_call(struct rp_http *h)
{
	struct rp_call *call = h->idle;

	if (call != NULL) {
		h->idle = call->next;
		call->next = NULL;
		return call;
	}
	call = calloc(1, sizeof(*call));
	if (call == NULL)
		return NULL;
	call->easy = curl_easy_init();
	if (call->easy == NULL) {
		free(call);
		return NULL;
	}
	return call;
}

void rp_http_give_back(struct rp_http *h, struct rp_call *call)
{
	if (call == NULL)
		return;
	/* A call that is still under way is cut off. */
	curl_multi_remove_handle(h->multi, call->easy);
	buf_reset(&call->body);
	buf_reset(&call->reply);
	call->next = h->idle;
	h->idle = call;
}

int rp_http_start(struct rp_http *h, struct rp_call *call, const char *path, struct err *err)
{
	CURL *e = call->easy;
	char *url = NULL;

	if (!buf_ok(&call->body) || asprintf(&url, "%s%s", h->url, path) < 0)
		return err_set(err, ERR_NOMEM, "out of memory");
	call->done = false;
	call->status = 0;
	call->error[0] = '\0';
	buf_reset(&call->reply);
	curl_easy_reset(e);
	curl_easy_setopt(e, CURLOPT_URL, url);
	free(url);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, CALL_TIMEOUT_MS);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "tessera-replay");
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
	curl_easy_setopt(e, CURLOPT_PRIVATE, call);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
	if (call->body.len > 0) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.len);
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->body.data);
	} else {
		curl_easy_setopt(e, CURLOPT_HTTPGET, 1L);
	}
	if (curl_multi_add_handle(h->multi, e) != CURLM_OK)
		return err_set(err, ERR_IO, "cannot start a request");
	return 0;
}

static void finish(struct rp_http *h, const CURLMsg *msg)
{
	struct rp_call *call = NULL;
	curl_off_t us = 0;

	curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &call);
	curl_easy_getinfo(call->easy, CURLINFO_TOTAL_TIME_T, &us);
	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &call->status);
	if (msg->data.result != CURLE_OK) {
		call->status = 0;
		snprintf(call->error, sizeof(call->error), "%s",
			 curl_easy_strerror(msg->data.result));
	}
	call->time_us = us;
	call->done = true;
	curl_multi_remove_handle(h->multi, call->easy);
}

int rp_http_step(struct rp_http *h, int timeout_ms, struct err *err)
{
	const CURLMsg *msg;
	int running, left;
	CURLMcode rc = curl_multi_perform(h->multi, &running);
	bool finished = false;

	while (rc == CURLM_OK) {
		while ((msg = curl_multi_info_read(h->multi, &left)) != NULL) {
			if (msg->msg != CURLMSG_DONE)
				continue;
			finish(h, msg);
			finished = true;
		}
		if (finished || timeout_ms == 0)
			return 0;
		rc = curl_multi_poll(h->multi, NULL, 0, timeout_ms, NULL);
		timeout_ms = 0;
		if (rc == CURLM_OK)
			rc = curl_multi_perform(h->multi, &running);
	}
	return err_set(err, ERR_IO, "%s", curl_multi_strerror(rc));
}

int rp_http_wait(struct rp_http *h, struct rp_call *call, struct err *err)
{
	while (!call->done) {
		int rc = rp_http_step(h, 1000, err);

		if (rc < 0)
			return rc;
	}
	if (call->status == 0)
		return err_set(err, ERR_IO, "%s: %s", h->url, call->error);
	return 0;
}

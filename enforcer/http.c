#include "enforcer/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/listen.h"

#define CONNECTIONS_MAX 64
#define CONNECTION_TIMEOUT_S 60
#define CONNECTION_MEMORY ((size_t)16 << 10)

struct en_http {
	struct MHD_Daemon *daemon;
	const struct en_http_page *pages;
	void *ctx;
	struct log *log;
	int fd;
	char url[300];
};

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
			     struct buf *take_b)
{
	struct MHD_Response *r = NULL;
	enum MHD_Result rc;

	if (buf_ok(take_b)) {
		/* The library frees it. */
		r = MHD_create_response_from_buffer(take_b->len, take_b->data,
						    MHD_RESPMEM_MUST_FREE);
	}
	if (r == NULL) {
		buf_fini(take_b);
		return MHD_NO;
	}
	*take_b = (struct buf)BUF_INIT;
	MHD_add_response_header(r, "Content-Type", type);
	MHD_add_response_header(r, "Cache-Control", "no-store");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, "Allow", "GET, HEAD");
	rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_len, void **con_cls)
{
	static const char begun;
	const struct en_http *h = cls;
	const struct en_http_page *p = h->pages;
	struct buf b = BUF_INIT;
	unsigned status;

	(void)version;
	(void)upload;
	if (*con_cls == NULL) {
		memcpy(con_cls, &(const void *){&begun}, sizeof(*con_cls));
		return MHD_YES;
	}
	if (*upload_len > 0) { /* a body: nobody reads it */
		*upload_len = 0;
		return MHD_YES;
	}
	while (p->path != NULL && strcmp(p->path, url) != 0)
		p++;
	if (p->path == NULL) {
		buf_puts(&b, "no such path\n");
		return reply(c, MHD_HTTP_NOT_FOUND, "text/plain", &b);
	}
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		buf_puts(&b, "GET and HEAD only\n");
		return reply(c, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", &b);
	}
	status = p->write(h->ctx, &b);
	return reply(c, status, p->type, &b);
}

int en_http_start(const char *listen, const struct en_http_page *pages, void *ctx, struct log *log,
		  struct en_http **ret, struct err *err)
{
	struct en_http *h = calloc(1, sizeof(*h));
	int r;

	if (h == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	h->pages = pages;
	h->ctx = ctx;
	h->log = log;
	h->fd = -1;
	r = listen_open(listen, false, &h->fd, h->url, sizeof(h->url), err);
	if (r == 0) {
		h->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL,
					     on_request, h, MHD_OPTION_LISTEN_SOCKET, h->fd,
					     MHD_OPTION_CONNECTION_TIMEOUT,
					     (unsigned)CONNECTION_TIMEOUT_S,
					     MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
					     MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
					     MHD_OPTION_END);
		if (h->daemon == NULL)
			r = err_set(err, ERR_IO, "cannot start the HTTP server: %s",
				    strerror(errno));
	}
	if (r == 0) {
		log_event(log, LOG_LEVEL_INFO, "listening", "url=%s", h->url);
		*ret = h;
		return 0;
	}
	if (h->fd >= 0)
		close(h->fd);
	free(h);
	return r;
}

void en_http_stop(struct en_http *h)
{
	if (h == NULL)
		return;
	MHD_stop_daemon(h->daemon); /* closes the socket */
	free(h);
}

const char *en_http_url(const struct en_http *h)
{
	return h->url;
}

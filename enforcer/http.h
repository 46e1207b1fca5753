/* A small HTTP server for what monitoring reads: GET and HEAD of a fixed list of paths, one thread, no
 * bodies. */
#ifndef TESSERA_ENFORCER_HTTP_H
#define TESSERA_ENFORCER_HTTP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

struct en_http_page {
	const char *path, *type; /* "/metrics", "text/plain"; NULL path ends the list */
	/* Writes the page; returns the status (200, 503, ...). On the server's thread. */
	unsigned (*write)(void *ctx, struct buf *out);
};

struct en_http;

/* listen: "ADDR:PORT", as base/listen.h has it; pages and log (may be NULL) outlive the server.
 * ERR_INVALID, ERR_IO, ERR_NOMEM. */
int en_http_start(const char *listen, const struct en_http_page *pages, void *ctx, struct log *log,
		  struct en_http **ret, struct err *err);
void en_http_stop(struct en_http *h); /* NULL is fine */
/* "http://ADDR:PORT" with the port in use. */
const char *en_http_url(const struct en_http *h);

#endif

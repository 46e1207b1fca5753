/* HTTP requests to one server, several at once, on one thread (libcurl). */
#ifndef TESSERA_REPLAY_HTTP_H
#define TESSERA_REPLAY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct rp_http;

/* One request and its reply. */
struct rp_call {
	struct rp_call *next; /* in the client's lists */
	void *easy;
	struct buf body, reply;
	bool done;
	long status;     /* HTTP status; 0 when there was no reply */
	int64_t time_us; /* from sending to the reply's last byte */
	char error[256]; /* why there was no reply; "" otherwise */
};

/* url: scheme, host, port and perhaps a path prefix. connections: kept open at most. NULL: no
 * memory. */
struct rp_http *rp_http_new(const char *url, long connections);
void rp_http_free(struct rp_http *h);

/* An empty call, to be given back; its body is to be filled before the start. NULL: no memory. */
struct rp_call *rp_http_call(struct rp_http *h);
void rp_http_give_back(struct rp_http *h, struct rp_call *call);

/* Sends url + path: POST with the body, or GET where the body is empty. ERR_NOMEM, ERR_IO. */
int rp_http_start(struct rp_http *h, struct rp_call *call, const char *path, struct err *err);
/* Moves all calls on, waiting at most timeout_ms for something to happen. ERR_IO. */
int rp_http_step(struct rp_http *h, int timeout_ms, struct err *err);
/* Until this call is done. ERR_IO: also when it got no reply. */
int rp_http_wait(struct rp_http *h, struct rp_call *call, struct err *err);

#endif

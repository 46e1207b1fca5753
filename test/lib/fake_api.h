/* An API server that does what a test tells it: scripted answers, streams that the test feeds, and all
 * the ways in which a connection goes bad. On 127.0.0.1, a port of its own, one thread a connection;
 * waits end at fake_api_stop(). Without memory it ends the process. */
#ifndef TESSERA_TEST_FAKE_API_H
#define TESSERA_TEST_FAKE_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fake_api;
struct fake_stream;

struct fake_request {
	const char *method, *path, *query; /* query as sent, "" = none */
	const char *token;                 /* of "Authorization: Bearer", "" = none */
	const char *type;                  /* Content-Type, "" = none */
	const char *body;                  /* NUL behind len bytes */
	size_t len;
	unsigned conn; /* connections count from 1 */
};

enum fake_end {
	FAKE_END,       /* as HTTP has it */
	FAKE_END_RESET, /* TCP reset behind the body; with status 0 instead of an answer */
	FAKE_END_SILENT, /* open, and nothing more until the server stops; status 0: no answer at all */
};

struct fake_reply {
	int status;
	const char *body;    /* NULL: none */
	char *take_body;     /* of a handler: instead of body, freed by the server */
	const char *headers; /* "Name: value\n..." or NULL */
	int delay_ms;        /* before the status line */
	size_t chunk;        /* bytes a chunk; 0: with Content-Length */
	enum fake_end end;
	struct fake_stream *stream; /* instead of body; each is used for one answer */
	/* Or made while it is sent: bytes put into buf, 0 = the end. next_free gets ctx at the end. */
	ssize_t (*next)(void *ctx, char *buf, size_t max);
	void (*next_free)(void *ctx);
	void *next_ctx;
};

/* tls: folder with server.crt and server.key, or NULL for plain HTTP. */
struct fake_api *fake_api_start(const char *tls);
void fake_api_stop(struct fake_api *f);
const char *fake_api_url(const struct fake_api *f);

/* The next request of that method and path whose query contains query (NULL: any but a watch, for one
 * that was given up may still be on its way) gets this answer, times times (-1: always); rules are
 * looked at in their order. Strings of *r are copied. Requests without a rule go to the handler, else
 * get 404. */
void fake_api_on(struct fake_api *f, const char *method, const char *path, const char *query,
		 int times, const struct fake_reply *r);
/* Shorthands: an answer with a body; a stream for the next watch of path. */
void fake_api_answer(struct fake_api *f, const char *method, const char *path, int status,
		     const char *body);
struct fake_stream *fake_api_watch(struct fake_api *f, const char *path);

/* Called on the connection's thread, for one connection or several at once. */
typedef void (*fake_handler_fn)(void *ctx, const struct fake_request *rq, struct fake_reply *ret);
void fake_api_handle(struct fake_api *f, fake_handler_fn fn, void *ctx);

/* Sends text, chunk bytes at a time (0: at once). */
void fake_stream_put(struct fake_stream *s, const char *text, size_t chunk);
void fake_stream_end(struct fake_stream *s, enum fake_end how);

/* Waits (30 s at most, then NULL) for the n-th request, from 1, of that method and path; NULL: any.
 * Valid until fake_api_stop(). */
const struct fake_request *fake_api_wait(struct fake_api *f, const char *method, const char *path,
					 unsigned n);
unsigned fake_api_count(struct fake_api *f, const char *method, const char *path);
unsigned fake_api_connections(struct fake_api *f);
/* Does the query hold this member, unescaped ("limit=500")? */
bool fake_query_has(const struct fake_request *rq, const char *member);

#endif

/* Requests to the API server: one thread over libcurl's multi interface carries them all, HTTP/2 on
 * one or few connections where the server speaks it, a keep-alive pool otherwise.
 *
 * Requests are handed in from any thread; their callbacks run on the client's thread, one at a time,
 * and must not block for long. A client that lists and watches spends its thread on decoding: where
 * the delay of a bind matters, give binds a client of their own. Tokens and bodies are never logged. */
#ifndef TESSERA_KUBE_CLIENT_H
#define TESSERA_KUBE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "kube/config.h"

/* Time as a handle. mono_us never goes back; wall_us is microseconds since the epoch. Called from any
 * thread. All waiting of this folder (deadlines, back-off, leases) goes by it; who turns the clock in
 * a test calls ku_client_wake() afterwards. */
struct ku_clock {
	int64_t (*mono_us)(void *ctx);
	int64_t (*wall_us)(void *ctx);
	void *ctx;
};
extern const struct ku_clock ku_clock_real;

struct ku_client;

struct ku_client_options {
	const struct ku_config *config; /* copied */
	const struct ku_clock *clock;   /* NULL: the real one; copied */
	struct log *log;                /* may be NULL; outlives the client */
	const char *user_agent;         /* NULL: "tessera" */
	uint64_t seed;                  /* of all jitter */
	unsigned connections;           /* at most; 0: 128. Below 4 becomes 4 */
	bool http1;                     /* never HTTP/2 */
	int64_t token_ms; /* age at which the files of token, certificate and key are read again; 0: 60,000 */
};

/* Starts the thread. ERR_INVALID (unusable TLS settings), ERR_IO, ERR_NOMEM. */
int ku_client_new(const struct ku_client_options *o, struct ku_client **ret, struct err *err);
/* Ends what is in flight (callbacks see KU_REPLY_CANCELLED) and joins the thread. Everything that uses
 * the client (reflector, lease, events) is freed before. Not from a callback. */
void ku_client_free(struct ku_client *c);

enum ku_reply_kind {
	KU_REPLY_HTTP,      /* status and body are the server's */
	KU_REPLY_FAILED,    /* no connection, or it broke; also out of memory */
	KU_REPLY_TIMEOUT,   /* the deadline passed */
	KU_REPLY_TOO_LARGE, /* the body is over body_max */
	KU_REPLY_STOPPED,   /* on_data returned a negative code */
	KU_REPLY_CANCELLED, /* the client ends */
};

struct ku_reply {
	enum ku_reply_kind kind;
	int status;       /* of the last try; 0: no status line came */
	bool sent;        /* the server may have received the request and acted on it */
	const char *body; /* len bytes and a NUL; "" for a stream that was given to on_data */
	size_t len;
	int64_t retry_after_ms; /* of a Retry-After header; -1: none */
	int64_t queued_us; /* from ku_client_send() until the last try went out; -1: never did */
	const char *text;  /* what went wrong, for people; "" for a status below 400 */
};

typedef void (*ku_done_fn)(void *ctx, const struct ku_reply *reply);
/* A part of a 200 answer, in order; a negative return ends the transfer. */
typedef int (*ku_data_fn)(void *ctx, const char *data, size_t len);

#define KU_NO_DEADLINE (-1)
#define KU_BODY_MAX_DEFAULT ((size_t)8 << 20)

struct ku_request {
	const char *method;       /* NULL: GET */
	const char *path;         /* path and query, escaped (kube/client_path.h) */
	const char *content_type; /* NULL: application/json; only with a body */
	const char *body;         /* NULL: none */
	size_t body_len;
	int64_t deadline_ms; /* over all tries; 0: 30,000; KU_NO_DEADLINE */
	size_t body_max;     /* of the answer; 0: KU_BODY_MAX_DEFAULT. Not for on_data */
	bool retry;          /* try again after 429, 5xx and broken connections, with back-off and
				   * Retry-After, until the deadline: for requests that may be repeated */
	ku_data_fn on_data;  /* may be NULL */
	ku_done_fn on_done;  /* called exactly once; may be NULL */
	void *ctx;           /* of both */
};

/* Queues a request; everything in *r is copied. From any thread. A 401 is answered by reading the
 * token file again and one more try, for every request. ERR_NOMEM, ERR_INVALID, ERR_CONFLICT (the client ends); no callback
 * then. */
int ku_client_send(struct ku_client *c, const struct ku_request *r, struct err *err);

/* Sends and waits: on_done and on_data of r are not used. *ret is to be given to ku_answer_fini(); its
 * strings live until then. Not from a callback. Errors as above. */
struct ku_answer {
	struct ku_reply reply;
	char *body, *text; /* owned */
};
int ku_client_call(struct ku_client *c, const struct ku_request *r, struct ku_answer *ret,
		   struct err *err);
void ku_answer_fini(struct ku_answer *a);

struct ku_client_stats {
	uint64_t requests; /* handed in */
	uint64_t in_flight;
	uint64_t retries;      /* tries beyond the first */
	uint64_t failures;     /* ended without a status */
	uint64_t throttled;    /* 429 answers */
	uint64_t unauthorized; /* 401 answers */
	uint64_t token_reads;
	bool auth_failed; /* the last status was 401: say so, and be not ready */
};
void ku_client_get_stats(struct ku_client *c, struct ku_client_stats *ret);

/* Looks at the clock again. From any thread. */
void ku_client_wake(struct ku_client *c);
/* The namespace of the configuration; as long as the client. */
const char *ku_client_namespace(const struct ku_client *c);
/* The clock it goes by; as long as the client. */
const struct ku_clock *ku_client_clock(const struct ku_client *c);

/* PATCH with application/merge-patch+json. path as built by kube/client_path.h, such as
 * /api/v1/nodes/NAME/status; the patch is a JSON text and copied. Errors of ku_client_send(). */
int ku_client_patch(struct ku_client *c, const char *path, const char *patch, int64_t deadline_ms,
		    ku_done_fn on_done, void *ctx, struct err *err);

#endif

/* Inside of the client, for its own files and for what runs on its thread: reflector, lease, events. */
#ifndef TESSERA_KUBE_CLIENT_INTERNAL_H
#define TESSERA_KUBE_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/rng.h"
#include "kube/client.h"
#include "kube/client_backoff.h"
#include "kube/client_token.h"
#include "kube/transport.h"

/* A one-shot timer in its owner's storage, zeroed before first use. Client's thread only. */
struct ku_timer {
	struct ku_timer *prev, *next;
	bool armed;
	int64_t at_us;
	void (*fn)(void *ctx);
	void *ctx;
};
/* Arms, or moves; fn is called once, not before at_us. */
void ku_timer_set(struct ku_client *c, struct ku_timer *t, int64_t at_us, void (*fn)(void *ctx),
		  void *ctx);
void ku_timer_clear(struct ku_client *c, struct ku_timer *t);

/* Runs fn on the client's thread and waits for it; at once when that is the calling thread. */
void ku_client_run(struct ku_client *c, void (*fn)(void *ctx), void *ctx);
/* Has fn called on the client's thread soon, without waiting. The job is in the caller's storage,
 * zeroed before first use; posting one that is still queued does nothing. */
struct ku_job {
	struct ku_job *next;
	bool queued; /* under the client's lock */
	void (*fn)(void *ctx);
	void *ctx;
};
void ku_client_post(struct ku_client *c, struct ku_job *j, void (*fn)(void *ctx), void *ctx);
/* Takes a job out of the queue where it still is in it. Client's thread only. */
void ku_client_unpost(struct ku_client *c, struct ku_job *j);

/* A request on its way. */
struct ku_call {
	struct ku_call *prev, *next;
	struct ku_client *client;
	struct ku_request r; /* its strings lie behind this struct */
	CURL *easy;          /* NULL between tries */
	struct curl_slist *headers;
	struct buf body;
	struct ku_timer deadline, again;
	struct ku_backoff backoff;
	int64_t made_us, sent_us; /* sent_us -1: not yet */
	unsigned tries;
	int status;
	int own_port, peer_port; /* of the connection in use */
	bool sent, reauthorized, too_large, no_memory, stopped;
	char fault[CURL_ERROR_SIZE];
	char text[640];
};

/* As ku_client_send(), with a handle for ku_call_drop(). Client's thread only; the handle is dead once
 * on_done is called. */
int ku_call_new(struct ku_client *c, const struct ku_request *r, struct ku_call **ret,
		struct err *err);
/* Ends a call without a callback. broken: its connection is not to be trusted any more, and is shut
 * for all that use it. Not from inside on_data. */
void ku_call_drop(struct ku_call *call, bool broken);

struct ku_client {
	struct ku_transport transport;
	CURLM *multi;
	pthread_t thread;
	struct ku_clock clock;
	struct log *log;
	int64_t token_us;

	pthread_mutex_t lock; /* of the next five */
	struct ku_call *incoming, **incoming_end;
	struct ku_job *jobs, **jobs_end;
	bool stopping;
	struct ku_client_stats stats;
	bool stats_auth_logged;

	/* of the thread */
	struct rng rng;
	struct ku_call *calls; /* all that were taken from incoming */
	struct ku_timer *timers;
	bool widened; /* all connections may be opened: no HTTP/2 */
	struct ku_token token;
	int64_t files_read_us; /* of token, certificate and key */
	CURL *idle[512];       /* for requests that are no streams */
	unsigned idle_count;
};

static inline int64_t ku_now_us(const struct ku_client *c)
{
	return c->clock.mono_us(c->clock.ctx);
}

/* client_call.c: */
void ku_call_start(struct ku_call *call);                     /* the first try, or the next one */
void ku_call_finished(struct ku_call *call, CURLcode code);   /* curl is through with a try */
void ku_call_end(struct ku_call *call, enum ku_reply_kind k); /* callback, and free */
void ku_call_link(struct ku_client *c, struct ku_call *call);
/* Copies the request. Any thread. */
int ku_call_make(struct ku_client *c, const struct ku_request *r, struct ku_call **ret,
		 struct err *err);

#endif

/* Between server.c (HTTP) and handlers.c (what each path does). */
#ifndef TESSERA_EXTENDER_SERVER_INTERNAL_H
#define TESSERA_EXTENDER_SERVER_INTERNAL_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "extender/server.h"
#include "extender/verbs.h"

struct ex_exchange;

struct ex_route {
	const char *path;
	bool suffix; /* the path's last part counts, whatever is before it */
	const char *method;
	enum ex_verb verb;
	/* Writes x->out and sets x->status where it is not 200. */
	void (*run)(struct ex_exchange *x);
	/* Answers a request that cannot be run, in the form its sender reads; NULL: JSON with the
	 * HTTP status. */
	void (*refuse)(struct ex_exchange *x, const char *text);
	const char *type; /* of the reply; NULL: application/json */
	bool guarded;     /* where clients have certificates, this needs one */
	/* Bytes of a body, where --max-body allows more; 0: that alone. A tree of JSON takes some forty times
	 * the memory of its text, and the scheduler's long bodies are not made into one. */
	size_t max_body;
};
extern const struct ex_route ex_routes[];

/* One request and its reply. Its memory serves later ones. */
struct ex_exchange {
	struct ex_exchange *next; /* in the list of free ones */
	struct ex_server *server;
	struct MHD_Connection *connection;
	const struct ex_route *route; /* NULL: no such path */
	int64_t start_ns;
	struct buf in, out;
	struct ex_scratch scratch;
	struct ex_op op;
	struct ex_api_waiter waiter;
	struct ex_api_hold hold;
	size_t received;
	unsigned status;
	bool refused;      /* out is the answer already; the body is skipped */
	bool ran;          /* the route was run */
	bool parked;       /* its reply comes from another thread */
	atomic_bool again; /* or it is to be run once more after that */
	bool close;        /* the connection ends with the reply */
	bool error;        /* the reply says that the request failed */
};

const struct ex_server_config *ex_exchange_config(const struct ex_exchange *x);
/* Parks the connection: to be called by run, before another thread can see x. That thread writes
 * x->out and calls ex_exchange_resume(), which may well be before run returns. */
void ex_exchange_park(struct ex_exchange *x);
void ex_exchange_resume(struct ex_exchange *x);
/* The same, and its run() is called again. */
void ex_exchange_again(struct ex_exchange *x);
/* Marks the reply as an error and logs it once. */
void ex_exchange_failed(struct ex_exchange *x, const char *text);
/* {"error": text} with an HTTP status. */
void ex_exchange_error(struct ex_exchange *x, unsigned status, const char *text);

#endif

/* The plugin's connection to the container runtime: finds it, registers, serves, and comes back for ever.
 *
 * Two threads: one reads and writes the socket and watches the clock, one carries out the calls in the
 * order they came. A call that is not done in time is answered by the first: with an error, which refuses
 * the container, where the runtime would let it go unchanged. Memory of late work is undone. */
#ifndef TESSERA_ENFORCER_NRI_H
#define TESSERA_ENFORCER_NRI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "enforcer/nri_plugin.h"
#include "enforcer/nri_session.h"
#include "enforcer/pulse.h"

#define EN_NRI_SOCKET "/var/run/nri/nri.sock"

/* What carries out calls; the plugin, or a test's own. All on the second thread. */
struct en_nri_handler {
	void (*connected)(void *ctx); /* a new connection; may be NULL */
	void (*handle)(void *ctx, struct en_nri_request *take_r, struct en_nri_reply *ret);
	/* A CREATE was answered too late, or not at all. */
	void (*undo)(void *ctx, const char *container_id);
	/* Would nothing be done for the container of a CREATE, START or VALIDATE, however things are? Then it
	 * is let go where the answer is late. On the first thread; may be NULL: no. */
	bool (*leaves)(void *ctx, const struct en_nri_request *r);
	/* What exists was taken in: events follow. On the first thread; may be NULL. */
	void (*synchronized)(void *synchronized_ctx);
	void *ctx, *synchronized_ctx;
};
struct en_nri_handler en_nri_plugin_handler(struct en_plugin *p);

struct en_nri_options {
	const char *socket;     /* NULL: EN_NRI_SOCKET */
	const char *name, *idx; /* NULL: "tessera", "10" */
	/* A connection that the runtime gave us at birth, or -1. Used once; no other is made then. */
	int fd;
	bool fail_open; /* late calls are answered with success instead */
	/* For a call; 0: three quarters of what the runtime allows, at most 1,500. */
	int64_t budget_ms;
	/* For registration and Configure, while others register; 0: 30,000. */
	int64_t patience_ms;
	/* Between connections, doubled each time; 0: 100 and 1,000. */
	int64_t wait_min_ms, wait_max_ms;
	uint64_t seed;            /* of the jitter */
	struct log *log;          /* may be NULL */
	struct en_pulses *pulses; /* likewise */
};

struct en_nri;

/* Starts the threads; strings of o outlive it. ERR_INVALID: name or idx; ERR_IO, ERR_NOMEM. */
int en_nri_start(const struct en_nri_options *o, const struct en_nri_handler *h,
		 struct en_nri **ret, struct err *err);
/* Closes the connection, waits for the call at hand, ends the threads. NULL is fine. */
void en_nri_stop(struct en_nri *n);

struct en_nri_figures {
	bool connected, synchronized; /* now */
	bool ended; /* a connection given at birth is gone: nothing will come any more */
	bool validates;
	uint64_t connections; /* that were synchronized */
	uint64_t failures;    /* connections lost or not made */
	uint64_t calls, late;
	int64_t worst_us; /* of calls carried out, since start */
	char runtime[64], runtime_version[64];
	char why[ERR_MSG_CAP]; /* the last failure; "" = none */
};
void en_nri_get_figures(struct en_nri *n, struct en_nri_figures *ret);

#endif

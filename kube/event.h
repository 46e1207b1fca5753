/* Events on pods and nodes (core/v1): sent and forgotten, never in anybody's way. The same thing about
 * the same object within ten minutes becomes a higher count of one Event. Where more come than may be sent, each
 * reason has its turn, and what is dropped is of the reason of which most wait: a storm of one keeps no other
 * waiting. */
#ifndef TESSERA_KUBE_EVENT_H
#define TESSERA_KUBE_EVENT_H

#include <stdint.h>

#include "base/err.h"
#include "kube/client.h"

struct ku_events;

struct ku_events_options {
	const char *component; /* "tessera-extender"; copied */
	const char *instance;  /* host or pod; NULL: none; copied */
	unsigned per_second;   /* requests; 0: 10. Bursts of five times as many */
	/* Events remembered; 0: 1,024. Beyond them those that were sent are forgotten, the oldest first (and are
	 * not counted on), then those that wait are dropped. */
	unsigned objects_max;
};

enum ku_event_type { KU_EVENT_NORMAL, KU_EVENT_WARNING };

struct ku_event {
	enum ku_event_type type;
	const char *kind; /* "Pod", "Node" */
	const char *ns;   /* NULL or "" for a node */
	const char *name, *uid;
	const char *reason;  /* CamelCase, of a fixed set */
	const char *message; /* for people; cut at 1,024 bytes */
};

/* ERR_NOMEM. */
int ku_events_new(struct ku_client *c, const struct ku_events_options *o, struct ku_events **ret,
		  struct err *err);
/* What was not sent yet is dropped. Not from a callback. */
void ku_events_free(struct ku_events *e);

/* Hands an event in; everything is copied. Any thread; waits for nothing. What does not fit, or
 * cannot be delivered, is counted and forgotten. */
void ku_event_post(struct ku_events *e, const struct ku_event *ev);

struct ku_events_stats {
	uint64_t posted;  /* handed in */
	uint64_t sent;    /* requests that the API server took */
	uint64_t failed;  /* requests that it did not */
	uint64_t dropped; /* not taken: too many, or no memory */
	uint64_t waiting; /* events that are still to be sent */
};
void ku_events_get_stats(struct ku_events *e, struct ku_events_stats *ret);

#endif

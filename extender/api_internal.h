/* Between the files of api.h. */
#ifndef TESSERA_EXTENDER_API_INTERNAL_H
#define TESSERA_EXTENDER_API_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "extender/api.h"
#include "extender/mirror.h"
#include "extender/wish_queue.h"
#include "kube/bind.h"
#include "kube/event.h"
#include "kube/lease.h"
#include "kube/object.h"
#include "kube/reflector.h"

/* A pod's bind, from its arrival until its outcome is known; longer than anybody waits for it. While
 * calling, its owner is the call that is under way, else the api's lock. */
struct ex_flight {
	UT_hash_handle hh;      /* by uid */
	struct ex_flight *next; /* in a list of the worker */
	struct ex_api *api;
	struct ex_bind_args args; /* owned */
	struct ex_op op;
	struct ex_api_waiter *waiters; /* under the lock */
	int64_t until_us;              /* under the lock: of the waiter with most time left */
	int64_t due_us;             /* under the lock: when the worker goes on, where not calling */
	int64_t start_us, spent_us; /* arrival, and from there to the first POST */
	int64_t final_us;           /* of all POSTs whose outcome is unknown; 0: none */
	uint64_t term;              /* that the choice was made in */
	size_t present_bytes;
	unsigned posts, pause_ms;
	bool calling;
	bool verify;    /* no bind: a pod that is bound in the model is looked after */
	bool forgiving; /* the last POST's outcome is unknown, or it never left: may be sent again */
	struct err text; /* what the API said last */
	int api_status;  /* and its code, of a refusal */
};

struct ex_held;
struct ex_watched_node;
struct ex_total;

struct ex_api {
	struct ex_api_config cfg;
	char *lease_ns, *lease_name, *identity;
	struct ku_clock clock;
	struct ku_client *watcher, *client; /* lists and watches; all else */
	struct ku_reflector *reflector[EX_API_KINDS];
	struct ku_lease *lease;
	struct ku_events *events;
	pthread_t worker;
	bool worker_runs;
	_Atomic uint64_t term; /* that lists were begun in; 0: none */
	_Atomic bool started;  /* the workload was made from the first lists */
	_Atomic bool stopping;
	/* of the watcher's thread: */
	struct ku_arena *arena;
	struct ex_watched_node *nodes;
	struct ex_held *held; /* bound pods that could not be booked, by uid */

	/* What the watch told of a pod last, its wish and the books go together. Taken before the service's
	 * lock and before the one below. */
	pthread_mutex_t sight;
	pthread_mutex_t lock; /* never held over a call that takes the service's lock */
	pthread_cond_t work;
	/* under it: */
	struct ex_flight *flights, *verifies;
	struct ex_api_hold *holds;
	uint64_t room;
	int64_t hold_saved_us, hold_counted_us; /* time that holds may take, and counted when */
	struct ex_total *totals, *totals_due;
	struct ex_wishes wishes;
	bool nodes_synced, pods_synced, verify_due;
	struct ex_api_stats stats;
	/* of the worker: */
	bool auth_told, lead_told;
	int64_t probed_us;
};

int64_t ex_api_now_us(const struct ex_api *a);
/* Wakes the worker. */
void ex_api_wake(struct ex_api *a);
/* One turn of the worker: does what is due; when the next thing is, INT64_MAX: nothing is known. */
int64_t ex_api_turn(struct ex_api *a);
/* Milliseconds for which a POST of that term may be under way from now on; 0: none may be sent. */
int64_t ex_api_post_ms(struct ex_api *a, uint64_t term);

/* ---- api_hold.c ---- */
/* Room may have appeared. */
void ex_api_room_grew(struct ex_api *a);
/* By the worker: wakes those whose time is over; when the next one is. */
int64_t ex_api_holds_run(struct ex_api *a);
void ex_api_holds_end(struct ex_api *a);

/* ---- api_watch.c ---- */
int ex_api_watch_start(struct ex_api *a, enum ex_api_kind kind, struct err *err);
void ex_api_watch_fini(struct ex_api *a);

/* ---- api_flight.c ---- */
/* The caller's, and not in a table yet; NULL: no memory. node "" where it only verifies. */
struct ex_flight *ex_flight_new(struct ex_api *a, const char *uid, const char *ns, const char *name,
				const char *node);
void ex_flight_free(struct ex_flight *f);
/* Microseconds that somebody will still wait; *ret_awaited: anybody at all. */
int64_t ex_flight_left_us(struct ex_flight *f, bool *ret_awaited);
void ex_flight_answer(struct ex_api_waiter *list, int rc, const struct err *err);
/* It is over: the waiters hear it, and the flight is no more. */
void ex_flight_land(struct ex_flight *f, int rc, const struct err *err);
/* The worker goes on with it at due_us. */
void ex_flight_rest(struct ex_flight *f, int64_t due_us);
/* The same, and nobody waits any more: GPUs stay reserved until reading tells. */
void ex_flight_leave_open(struct ex_flight *f, int64_t due_us);

/* ---- api_bind.c: for the owner of a flight ---- */
void ex_flight_post(struct ex_flight *f);
void ex_flight_read(struct ex_flight *f);

/* ---- api_flight.c: by the worker ---- */
/* Does what is due; when the next thing is, INT64_MAX: nothing. */
int64_t ex_api_flights_run(struct ex_api *a);
/* Looks after pods that are bound in the model and that no watch has told of. */
void ex_api_flights_verify(struct ex_api *a);
/* Answers everybody. */
void ex_api_flights_end(struct ex_api *a, const char *why);
void ex_api_flights_fini(struct ex_api *a);

/* ---- api_totals.c ---- */
/* A node as it is, and as it should be. Watcher's thread. */
void ex_api_total_note(struct ex_api *a, const char *node, int64_t has_mib, int64_t want_mib);
void ex_api_total_gone(struct ex_api *a, const char *node);
/* By the worker. */
void ex_api_totals_run(struct ex_api *a);
void ex_api_totals_fini(struct ex_api *a);

/* ---- api_elastic.c ---- */
/* A bound pod as it is: its wishes for memory limits. Watcher's thread, with sight held. ERR_NOMEM. */
int ex_api_wish_note(struct ex_api *a, const struct st_pod_spec *pod, const cJSON *obj,
		     struct err *err);
void ex_api_wish_drop(struct ex_api *a, const char *uid);
/* In one turn of the worker, which has others to serve. */
#define EX_API_LOOKS_MAX 256
/* By the worker: looks at those that are due; when to go on, INT64_MAX: not before something happens. */
int64_t ex_api_wishes_run(struct ex_api *a);
void ex_api_wishes_fini(struct ex_api *a);

#endif

/* The extender on an API server: nodes and pods by list and watch into the model, binds by POST,
 * leadership, events, node totals. Readiness belongs to a term: a replica answers only while it leads
 * and after it has listed all nodes and pods anew since it leads. */
#ifndef TESSERA_EXTENDER_API_H
#define TESSERA_EXTENDER_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "extender/service.h"
#include "kube/client.h"
#include "kube/config.h"

/* Node totals are advertised under this name, in MiB. */
#define EX_MEMORY_RESOURCE "tessera.dev/gpu-memory"

struct ex_api;

struct ex_api_config {
	const struct ku_config *kube; /* copied */
	struct ex_service *service;   /* borrowed, with mirrors set; as the log */
	struct log *log;              /* may be NULL */
	const struct ku_clock *clock; /* NULL: the real one */
	uint64_t seed;                /* of jitter */
	bool leader_elect;
	const char *lease_ns, *lease_name, *identity; /* copied; with leader_elect */
	int64_t lease_ms, renew_ms, retry_ms;         /* 0: as in kube/lease.h */
	int64_t bind_ms;      /* until a bind is answered; 0: 4,000. Below httpTimeout */
	int64_t silence_ms;   /* after which a watch is dead; 0: as in kube/reflector.h */
	bool totals;          /* write node totals */
	const char *instance; /* in events; may be NULL */
};

/* Starts listing and competing; does not wait. ERR_INVALID, ERR_IO, ERR_NOMEM. */
int ex_api_start(const struct ex_api_config *cfg, struct ex_api **ret, struct err *err);
/* Binds nothing more; waits for the binds under way (5 s at most), answers the rest with an error,
 * gives the lease back, frees. After the server that uses it was stopped. NULL is allowed. */
void ex_api_stop(struct ex_api *a);

/* May it be asked? False with the reason in words. */
bool ex_api_ready(struct ex_api *a, char *why, size_t cap);

/* ---- binds ---- */

/* Waits for the outcome of a bind. Zeroed by the caller; its memory is the caller's until done() was
 * called, from any thread, exactly once. rc 0: the pod is bound; else *err is for the scheduler. */
struct ex_api_waiter {
	void (*done)(struct ex_api_waiter *w, int rc, const struct err *err);
	struct ex_api_waiter *next;
	int64_t until_us;
};

/* Binds a pod: reserve, one POST that carries the allocation, and where its outcome is not known,
 * reading, and the same POST again, until it is known or bind_ms are over. Waits for nothing; a bind of
 * the same pod to the same node that is under way is joined. */
void ex_api_bind(struct ex_api *a, const struct ex_bind_args *args, struct ex_api_waiter *w);

/* ---- refusals that may be out of date ---- */

/* The scheduler hears of room when we do, and asks at once: a refusal that is out of date by a
 * millisecond would leave its pod waiting for minutes. So a refusal is held for a moment, in case room
 * appears. Zeroed by the caller before the question; parked under a lock, woken by any thread. */
struct ex_api_hold {
	void (*park)(struct ex_api_hold *h);
	void (*wake)(struct ex_api_hold *h); /* ask again */
	struct ex_api_hold *next;
	int64_t until_us;
};
/* Grows when room may have appeared. */
uint64_t ex_api_room(struct ex_api *a);
enum ex_api_held {
	EX_API_ANSWER, /* it was held long enough */
	EX_API_AGAIN,  /* room may have appeared since seen: ask again */
	EX_API_HELD,   /* parked */
};
enum ex_api_held ex_api_hold(struct ex_api *a, struct ex_api_hold *h, uint64_t seen);

/* ---- looking in ---- */

enum ex_api_kind { EX_API_NODES, EX_API_PODS, EX_API_KINDS };

/* Of the histograms of times (metrics.h); one more entry for what is above all bounds. */
#define EX_LATENCY_BUCKETS 14

struct ex_api_stats {
	bool leader, auth_failed;
	uint64_t term;
	uint64_t posts_ok, posts_refused, posts_unknown; /* Binding POSTs by outcome */
	uint64_t binds_joined, binds_timeout;
	uint64_t settled_bound, settled_free; /* outcomes that only reading told */
	size_t binds_waiting, binds_unsettled;
	int64_t post_wait_us_max; /* from a bind's arrival to its POST, largest of all */
	uint64_t post_wait_us_sum, post_wait[EX_LATENCY_BUCKETS + 1]; /* as ex_latency_bucket() */
	uint64_t totals_written, totals_failed;
	uint64_t limits_written, limits_refused, limits_failed, limits_stale; /* of running ones */
	uint64_t refusals_held;
	uint64_t pods_held; /* bound pods that cannot be booked now */
	uint64_t requests, retries, failures, throttled, unauthorized, token_reads;
	uint64_t events_sent, events_dropped;
	struct {
		uint64_t lists, watches, events, expired, problems, dead, gone, objects;
		int64_t busy_us, heard_ago_us;
		bool synced;
	} watch[EX_API_KINDS];
};
void ex_api_get_stats(struct ex_api *a, struct ex_api_stats *ret);

#endif

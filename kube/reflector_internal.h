/* Shared by reflector.c (what to do next), reflector_list.c and reflector_watch.c. */
#ifndef TESSERA_KUBE_REFLECTOR_INTERNAL_H
#define TESSERA_KUBE_REFLECTOR_INTERNAL_H

#include <pthread.h>

#include "base/buf.h"
#include "base/hash.h"
#include "kube/client_internal.h"
#include "kube/reflector.h"
#include "kube/reflector_split.h"

#define KU_RV_CAP 128

struct ku_known {
	UT_hash_handle hh;
	uint32_t round; /* list that saw it last */
	char uid[];
};

struct ku_reflector {
	struct ku_client *client;
	char *path, *field_selector, *label_selector; /* owned; o has them too */
	struct ku_reflector_options o;                /* strings owned, zeros replaced */

	/* of the client's thread */
	struct ku_split list_split, watch_split;
	struct ku_call *call;         /* what is in flight; NULL: the timer is armed */
	struct ku_timer delay;        /* until the next list or watch */
	struct ku_timer silence, end; /* of the watch */
	struct ku_backoff backoff;
	struct ku_known *known;
	uint32_t round;
	bool listing;                 /* a list is on: pages follow */
	bool have_list;               /* one was complete: rv is where the watch goes on */
	bool quorum;                  /* the next list asks for the newest state */
	bool whole;                   /* ... and in one piece: its continue token expired before */
	char list_rv[KU_RV_CAP];      /* of the list that is on */
	struct buf token, next_token; /* continue, of this page and the next; empty: none */
	unsigned page_failures;       /* of this page, in a row */
	struct err fault;             /* why a chunk was refused; "" = it was not */
	int fault_code;
	bool expired;      /* the watch said 410 */
	uint64_t frames;   /* of this watch */
	int64_t watch_us;  /* when it began */
	unsigned failures; /* watches in a row that brought nothing */

	struct ku_job relist_job;
	pthread_mutex_t lock; /* of the rest */
	bool relist_wanted, synced;
	char rv[KU_RV_CAP]; /* last seen; written by the thread only */
	struct ku_reflector_stats stats;
	int64_t busy_since_us; /* 0: idle */
};

/* reflector.c */
void ku_reflector_next(struct ku_reflector *r);                   /* list or watch, now */
void ku_reflector_later(struct ku_reflector *r, int64_t wait_us); /* the same, later */
/* Something failed: tells it, waits at least after_ms, goes on. */
void ku_reflector_failed(struct ku_reflector *r, const struct err *what, int64_t after_ms);
/* 410: the next thing is a list, as quorum read. */
void ku_reflector_expire(struct ku_reflector *r);
void ku_reflector_set_rv(struct ku_reflector *r, const char *rv);
/* Takes an object in: uid table and handler. */
int ku_reflector_take(struct ku_reflector *r, enum ku_change change, const cJSON *obj,
		      struct err *err);
/* The path with selectors; more is put behind it with ku_path_query(). */
void ku_reflector_path(const struct ku_reflector *r, struct buf *ret);
/* Around the work on a chunk, for the statistics. */
void ku_reflector_busy(struct ku_reflector *r, bool busy);
void ku_reflector_count(struct ku_reflector *r, uint64_t *what); /* ++ under the lock */
/* A member of obj.metadata as a string; "" where there is none. */
const char *ku_metadata(const cJSON *obj, const char *name);

/* reflector_list.c, reflector_watch.c */
void ku_reflector_list(struct ku_reflector *r);
void ku_reflector_watch(struct ku_reflector *r);
int ku_reflector_on_item(void *ctx, enum ku_piece what, const char *text, size_t len,
			 struct err *err);
int ku_reflector_on_event(void *ctx, enum ku_piece what, const char *text, size_t len,
			  struct err *err);

#endif

/* Flights: their life, who waits for them, and what the worker does for them. */
#include <stdlib.h>
#include <string.h>

#include "extender/api_internal.h"

#define PAUSE_MIN_MS 50 /* before a POST is sent again */

/* ---- waiters ---- */

/* Microseconds that somebody will still wait; *ret_awaited: anybody at all. */
int64_t ex_flight_left_us(struct ex_flight *f, bool *ret_awaited)
{
	int64_t until;

	pthread_mutex_lock(&f->api->lock);
	until = f->until_us;
	*ret_awaited = f->waiters != NULL;
	pthread_mutex_unlock(&f->api->lock);
	return until - ex_api_now_us(f->api);
}

static struct ex_api_waiter *take_waiters(struct ex_flight *f)
{
	struct ex_api_waiter *list;

	pthread_mutex_lock(&f->api->lock);
	list = f->waiters;
	f->waiters = NULL;
	pthread_mutex_unlock(&f->api->lock);
	return list;
}

void ex_flight_answer(struct ex_api_waiter *list, int rc, const struct err *err)
{
	while (list != NULL) {
		struct ex_api_waiter *next = list->next;

		list->done(list, rc, err);
		list = next;
	}
}

/* ---- life of a flight ---- */

void ex_flight_free(struct ex_flight *f)
{
	ex_bind_args_fini(&f->args);
	ex_op_fini(&f->op);
	free(f);
}

/* It is over: the waiters hear it, and those that came in the last moment. */
void ex_flight_land(struct ex_flight *f, int rc, const struct err *err)
{
	struct ex_api *a = f->api;
	struct ex_api_waiter *list;

	pthread_mutex_lock(&a->lock);
	if (f->verify)
		HASH_DEL(a->verifies, f);
	else
		HASH_DEL(a->flights, f);
	list = f->waiters;
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
	ex_flight_answer(list, rc, err);
	ex_flight_free(f);
}

/* The worker goes on with it at due_us. */
void ex_flight_rest(struct ex_flight *f, int64_t due_us)
{
	struct ex_api *a = f->api;

	pthread_mutex_lock(&a->lock);
	f->calling = false;
	f->due_us = due_us;
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
}

/* Nobody waits any more, but the outcome is open: GPUs stay reserved until reading tells. */
void ex_flight_leave_open(struct ex_flight *f, int64_t due_us)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_IO,
		"whether pod %s/%s was bound to node \"%s\" is not known yet; it is being read: %s",
		f->args.ns, f->args.name, f->args.node, f->text.msg);
	ex_flight_answer(take_waiters(f), ERR_IO, &err);
	ex_flight_rest(f, due_us);
}

struct ex_flight *ex_flight_new(struct ex_api *a, const char *uid, const char *ns, const char *name,
				const char *node)
{
	struct ex_flight *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->api = a;
	f->calling = true;
	f->pause_ms = PAUSE_MIN_MS;
	f->start_us = ex_api_now_us(a);
	f->term = atomic_load(&a->term);
	f->args.uid = strdup(uid);
	f->args.ns = strdup(ns);
	f->args.name = strdup(name);
	f->args.node = strdup(node);
	if (f->args.uid == NULL || f->args.ns == NULL || f->args.name == NULL ||
	    f->args.node == NULL) {
		ex_flight_free(f);
		return NULL;
	}
	return f;
}

/* ---- by the worker ---- */

/* Moves the waiters whose time is over to *list; the others' times count for *next_us. */
static void overdue(struct ex_flight *f, int64_t now, struct ex_api_waiter **list, int64_t *next_us)
{
	struct ex_api_waiter **at = &f->waiters, *w;

	while ((w = *at) != NULL) {
		if (w->until_us > now) {
			*next_us = w->until_us < *next_us ? w->until_us : *next_us;
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = *list;
		*list = w;
		f->api->stats.binds_timeout++;
	}
}

/* Is it this one's turn? Then it is the worker's. */
static bool due(struct ex_flight *f, int64_t now, int64_t *next_us)
{
	if (f->calling)
		return false;
	if (f->due_us > now) {
		*next_us = f->due_us < *next_us ? f->due_us : *next_us;
		return false;
	}
	f->calling = true;
	return true;
}

int64_t ex_api_flights_run(struct ex_api *a)
{
	struct ex_flight *f, *next, *list = NULL;
	int64_t now = ex_api_now_us(a), next_us = INT64_MAX;
	struct ex_api_waiter *late = NULL;
	struct err err = ERR_INIT;
	bool awaited;

	pthread_mutex_lock(&a->lock);
	for (int table = 0; table < 2; table++) {
		struct ex_flight *head = table == 0 ? a->flights : a->verifies;

		HASH_ITER(hh, head, f, next) {
			overdue(f, now, &late, &next_us);
			if (due(f, now, &next_us)) {
				f->next = list;
				list = f;
			}
		}
	}
	pthread_mutex_unlock(&a->lock);
	err_set(&err, ERR_IO, "the API server has not answered in time; the pod is being read");
	ex_flight_answer(late, ERR_IO, &err);
	while ((f = list) != NULL) {
		list = f->next;
		ex_flight_left_us(f, &awaited);
		if (awaited && f->posts > 0 && f->forgiving)
			ex_flight_post(f);
		else
			ex_flight_read(f);
	}
	return next_us;
}

static void verify_one(struct ex_api *a, const char *uid, const char *ns, const char *name)
{
	struct ex_flight *f = ex_flight_new(a, uid, ns, name, ""), *old;

	if (f == NULL)
		return; /* at the next list */
	f->verify = true;
	pthread_mutex_lock(&a->lock);
	HASH_FIND_STR(a->verifies, uid, old);
	if (old == NULL)
		HASH_ADD_KEYPTR(hh, a->verifies, f->args.uid, strlen(f->args.uid), f);
	pthread_mutex_unlock(&a->lock);
	if (old != NULL || !HASH_ADDED(f, hh))
		ex_flight_free(f);
	else
		ex_flight_read(f);
}

void ex_api_flights_verify(struct ex_api *a)
{
	struct err err = ERR_INIT;
	char *list = NULL;
	size_t len = 0;

	if (ex_mirror_unseen(a->cfg.service, &list, &len, &err) < 0)
		return;
	for (const char *p = list; p != NULL && p < list + len;) {
		const char *uid = p, *ns = uid + strlen(uid) + 1, *name = ns + strlen(ns) + 1;

		p = name + strlen(name) + 1;
		verify_one(a, uid, ns, name);
	}
	free(list);
}

void ex_api_flights_end(struct ex_api *a, const char *why)
{
	struct ex_flight *f, *next;
	struct ex_api_waiter *list = NULL;
	struct err err = ERR_INIT;
	int64_t none = 0;

	err_set(&err, ERR_IO, "%s", why);
	pthread_mutex_lock(&a->lock);
	HASH_ITER(hh, a->flights, f, next)
		overdue(f, INT64_MAX, &list, &none);
	pthread_mutex_unlock(&a->lock);
	ex_flight_answer(list, ERR_IO, &err);
}

void ex_api_flights_fini(struct ex_api *a)
{
	struct ex_flight *f, *next;

	HASH_ITER(hh, a->flights, f, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(a->flights, f);
		ex_flight_free(f);
	}
	HASH_ITER(hh, a->verifies, f, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(a->verifies, f);
		ex_flight_free(f);
	}
}

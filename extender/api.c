#include "extender/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "extender/api_internal.h"

#define BIND_MS 4000
#define TURN_US 250000 /* the worker looks at clocks and readiness so often */
#define STOP_MS 5000
#define PROBE_US 2000000
#define MARGIN_MS 1500 /* of a POST's end before another replica could lead */

int64_t ex_api_now_us(const struct ex_api *a)
{
	return a->clock.mono_us(a->clock.ctx);
}

void ex_api_wake(struct ex_api *a)
{
	pthread_mutex_lock(&a->lock);
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
}

/* ---- leadership and readiness ---- */

static struct ku_reflector *reflector(struct ex_api *a, enum ex_api_kind kind)
{
	struct ku_reflector *r;

	pthread_mutex_lock(&a->lock);
	r = a->reflector[kind];
	pthread_mutex_unlock(&a->lock);
	return r;
}

static void on_lead(void *ctx, uint64_t term)
{
	struct ex_api *a = ctx;

	/* From here on neither counts as listed, until it was listed in this term. */
	for (int i = 0; i < EX_API_KINDS; i++) {
		struct ku_reflector *r = reflector(a, (enum ex_api_kind)i);

		if (r != NULL)
			ku_reflector_relist(r);
	}
	atomic_store(&a->term, term);
	ex_api_wake(a);
}

static void on_follow(void *ctx, uint64_t term)
{
	(void)term;
	ex_api_wake(ctx);
}

static bool auth_failed(struct ex_api *a)
{
	struct ku_client_stats s;

	ku_client_get_stats(a->client, &s);
	if (s.auth_failed)
		return true;
	ku_client_get_stats(a->watcher, &s);
	return s.auth_failed;
}

static bool leads(struct ex_api *a, uint64_t term)
{
	if (!a->cfg.leader_elect)
		return true;
	return term != 0 && ku_lease_left_ms(a->lease) > 0 && ku_lease_term(a->lease) == term;
}

static bool listed(struct ex_api *a)
{
	for (int i = 0; i < EX_API_KINDS; i++) {
		struct ku_reflector *r = reflector(a, (enum ex_api_kind)i);

		if (r == NULL || !ku_reflector_synced(r))
			return false;
	}
	return atomic_load(&a->started);
}

bool ex_api_ready(struct ex_api *a, char *why, size_t cap)
{
	uint64_t term = atomic_load(&a->term);
	char holder[256] = "";

	why[0] = '\0';
	if (atomic_load(&a->stopping))
		snprintf(why, cap, "the extender is shutting down");
	else if (!leads(a, term)) {
		ku_lease_holder(a->lease, holder, sizeof(holder));
		if (strcmp(holder, a->identity) == 0 || holder[0] == '\0')
			snprintf(why, cap, "this replica does not lead; nobody does at present");
		else
			snprintf(why, cap, "this replica does not lead; \"%s\" does", holder);
	} else if (auth_failed(a)) {
		snprintf(why, cap, "the API server refuses the credentials (401)");
	} else if (!listed(a)) {
		snprintf(why, cap, "nodes and pods have not been listed completely");
	}
	return why[0] == '\0';
}

int64_t ex_api_post_ms(struct ex_api *a, uint64_t term)
{
	int64_t most = a->cfg.bind_ms, left;

	if (atomic_load(&a->stopping))
		return 0;
	if (!a->cfg.leader_elect)
		return most;
	if (!leads(a, term))
		return 0;
	/* The POST lives for its deadline here and once more at the server; all of it must be over
	 * before another replica can lead. */
	left = (ku_lease_left_ms(a->lease) + a->cfg.lease_ms - a->cfg.renew_ms - MARGIN_MS) / 2;
	return left < most ? left : most;
}

/* ---- the worker ---- */

/* What the log should say once. */
static void tell(struct ex_api *a)
{
	bool refused = auth_failed(a);
	char why[300], quoted[400];
	bool ready = ex_api_ready(a, why, sizeof(why));

	if (refused != a->auth_told)
		log_event(a->cfg.log, refused ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO,
			  refused ? "credentials-refused" : "credentials-accepted", "status=%s",
			  refused ? "401" : "ok");
	if (ready != a->lead_told)
		log_event(a->cfg.log, LOG_LEVEL_INFO, ready ? "ready" : "not-ready",
			  "term=%llu reason=%s", (unsigned long long)atomic_load(&a->term),
			  log_quote(why, quoted, sizeof(quoted)));
	a->auth_told = refused;
	a->lead_told = ready;
}

/* While the credentials are refused it is asked now and then whether they are good again: a client with
 * nothing to do would never learn it. */
static void probe(struct ex_api *a)
{
	struct ku_request rq = {.path = "/version", .deadline_ms = 2000};
	struct ku_client *clients[] = {a->client, a->watcher};
	int64_t now = ex_api_now_us(a);
	struct ku_client_stats s;

	if (!a->auth_told || now - a->probed_us < PROBE_US)
		return;
	a->probed_us = now;
	for (int i = 0; i < 2; i++) {
		ku_client_get_stats(clients[i], &s);
		if (s.auth_failed)
			ku_client_send(clients[i], &rq, NULL);
	}
}

/* The second list, and the workload made from both. */
static void go_on(struct ex_api *a)
{
	struct err err = ERR_INIT;
	bool pods_wanted, make, verify;
	char quoted[600];

	pthread_mutex_lock(&a->lock);
	/* Pods come when their nodes are known: none has to wait for its node then. */
	pods_wanted = a->nodes_synced && a->reflector[EX_API_PODS] == NULL;
	make = a->pods_synced && !atomic_load(&a->started);
	verify = a->verify_due;
	a->verify_due = false;
	pthread_mutex_unlock(&a->lock);
	if (pods_wanted && ex_api_watch_start(a, EX_API_PODS, &err) < 0)
		log_event(a->cfg.log, LOG_LEVEL_ERROR, "watch-failed", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	if (make && ex_service_start(a->cfg.service, &err) == 0)
		atomic_store(&a->started, true);
	if (verify)
		ex_api_flights_verify(a);
}

int64_t ex_api_turn(struct ex_api *a)
{
	int64_t wishes, flights, holds, next;

	go_on(a);
	tell(a);
	probe(a);
	ex_api_totals_run(a);
	wishes = ex_api_wishes_run(a);
	flights = ex_api_flights_run(a);
	holds = ex_api_holds_run(a);
	next = wishes < flights ? wishes : flights;
	return holds < next ? holds : next;
}

static void *work(void *arg)
{
	struct ex_api *a = arg;
	struct timespec until;

	while (!atomic_load(&a->stopping)) {
		int64_t left = ex_api_turn(a) - ex_api_now_us(a);
		int64_t wait = left < TURN_US ? left : TURN_US;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += (wait > 1000 ? wait : 1000) * 1000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_mutex_lock(&a->lock);
		pthread_cond_timedwait(&a->work, &a->lock, &until);
		pthread_mutex_unlock(&a->lock);
	}
	return NULL;
}

/* ---- life ---- */

static int connect_clients(struct ex_api *a, struct err *err)
{
	struct ku_client_options o = {
		.config = a->cfg.kube,
		.clock = &a->clock,
		.log = a->cfg.log,
		.user_agent = "tessera-extender",
		.seed = a->cfg.seed,
	};
	struct ku_events_options e = {.component = "tessera-extender", .instance = a->cfg.instance};
	int rc;

	/* Decoding long lists must not delay binds and the lease. */
	rc = ku_client_new(&o, &a->client, err);
	o.seed++;
	o.connections = 8;
	if (rc == 0)
		rc = ku_client_new(&o, &a->watcher, err);
	if (rc == 0)
		rc = ku_events_new(a->client, &e, &a->events, err);
	return rc;
}

static int compete(struct ex_api *a, struct err *err)
{
	struct ku_lease_options o = {
		.ns = a->lease_ns,
		.name = a->lease_name,
		.identity = a->identity,
		.duration_ms = a->cfg.lease_ms,
		.renew_ms = a->cfg.renew_ms,
		.retry_ms = a->cfg.retry_ms,
		.log = a->cfg.log,
		.on_started = on_lead,
		.on_stopped = on_follow,
		.ctx = a,
	};

	return a->cfg.leader_elect ? ku_lease_new(a->client, &o, &a->lease, err) : 0;
}

static int init(struct ex_api *a, struct err *err)
{
	pthread_condattr_t attr;

	a->cfg.bind_ms = a->cfg.bind_ms != 0 ? a->cfg.bind_ms : BIND_MS;
	a->cfg.lease_ms = a->cfg.lease_ms != 0 ? a->cfg.lease_ms : 15000;
	a->cfg.renew_ms = a->cfg.renew_ms != 0 ? a->cfg.renew_ms : 10000;
	a->cfg.retry_ms = a->cfg.retry_ms != 0 ? a->cfg.retry_ms : 2000;
	a->clock = a->cfg.clock != NULL ? *a->cfg.clock : ku_clock_real;
	pthread_mutex_init(&a->sight, NULL);
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->work, &attr);
	pthread_condattr_destroy(&attr);
	a->arena = ku_arena_new();
	a->lease_ns = strdup(a->cfg.lease_ns != NULL ? a->cfg.lease_ns : "");
	a->lease_name = strdup(a->cfg.lease_name != NULL ? a->cfg.lease_name : "");
	a->identity = strdup(a->cfg.identity != NULL ? a->cfg.identity : "");
	if (a->arena == NULL || a->lease_ns == NULL || a->lease_name == NULL || a->identity == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	return 0;
}

int ex_api_start(const struct ex_api_config *cfg, struct ex_api **ret, struct err *err)
{
	struct ex_api *a = calloc(1, sizeof(*a));
	int rc;

	if (a == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	a->cfg = *cfg;
	rc = init(a, err);
	if (rc == 0)
		rc = connect_clients(a, err);
	if (rc == 0)
		rc = ex_api_watch_start(a, EX_API_NODES, err);
	if (rc == 0)
		rc = compete(a, err);
	if (rc == 0) {
		rc = pthread_create(&a->worker, NULL, work, a);
		a->worker_runs = rc == 0;
		if (rc != 0)
			rc = err_set(err, ERR_IO, "cannot start a thread: %s", strerror(rc));
	}
	a->cfg.kube = NULL; /* the clients have their copies */
	if (rc < 0)
		ex_api_stop(a);
	else
		*ret = a;
	return rc;
}

/* Binds that have been sent should have their answers. */
static void let_land(struct ex_api *a)
{
	int64_t until = ex_api_now_us(a) + (int64_t)STOP_MS * 1000;
	const struct timespec pause = {.tv_nsec = 10000000};
	bool waiting = true;

	while (waiting && ex_api_now_us(a) < until) {
		struct ex_flight *f, *next;

		waiting = false;
		pthread_mutex_lock(&a->lock);
		HASH_ITER(hh, a->flights, f, next)
			waiting |= f->calling;
		pthread_mutex_unlock(&a->lock);
		if (waiting)
			nanosleep(&pause, NULL);
	}
}

void ex_api_stop(struct ex_api *a)
{
	struct err err = ERR_INIT;

	if (a == NULL)
		return;
	atomic_store(&a->stopping, true);
	if (a->worker_runs) {
		ex_api_wake(a);
		pthread_join(a->worker, NULL);
		ex_api_holds_end(a);
		let_land(a);
		ex_api_flights_end(a, "the extender is shutting down");
	}
	if (a->lease != NULL) {
		ku_lease_stop(a->lease);
		if (a->worker_runs && HASH_COUNT(a->flights) == 0)
			ku_lease_release(a->lease, 2000, &err);
		ku_lease_free(a->lease);
	}
	for (int i = 0; i < EX_API_KINDS; i++)
		ku_reflector_free(a->reflector[i]);
	ku_events_free(a->events);
	if (a->watcher != NULL)
		ku_client_free(a->watcher);
	if (a->client != NULL)
		ku_client_free(a->client);
	ex_api_flights_fini(a);
	ex_api_totals_fini(a);
	ex_api_wishes_fini(a);
	ex_api_watch_fini(a);
	ku_arena_free(a->arena);
	free(a->lease_ns);
	free(a->lease_name);
	free(a->identity);
	pthread_cond_destroy(&a->work);
	pthread_mutex_destroy(&a->lock);
	pthread_mutex_destroy(&a->sight);
	free(a);
}

/* ---- looking in ---- */

static void count_flights(const struct ex_flight *flights, struct ex_api_stats *ret)
{
	for (const struct ex_flight *f = flights; f != NULL; f = f->hh.next) {
		if (f->waiters != NULL)
			ret->binds_waiting++;
		else
			ret->binds_unsettled++;
	}
}

void ex_api_get_stats(struct ex_api *a, struct ex_api_stats *ret)
{
	struct ku_client *clients[] = {a->client, a->watcher};
	struct ku_events_stats ev;
	struct ku_client_stats s;

	pthread_mutex_lock(&a->lock);
	*ret = a->stats;
	count_flights(a->flights, ret);
	pthread_mutex_unlock(&a->lock);
	ret->term = atomic_load(&a->term);
	ret->leader = leads(a, ret->term);
	ku_events_get_stats(a->events, &ev);
	ret->events_sent = ev.sent;
	ret->events_dropped = ev.dropped + ev.failed;
	for (int i = 0; i < 2; i++) {
		ku_client_get_stats(clients[i], &s);
		ret->requests += s.requests;
		ret->retries += s.retries;
		ret->failures += s.failures;
		ret->throttled += s.throttled;
		ret->unauthorized += s.unauthorized;
		ret->token_reads += s.token_reads;
		ret->auth_failed |= s.auth_failed;
	}
	for (int i = 0; i < EX_API_KINDS; i++) {
		struct ku_reflector *ref = reflector(a, (enum ex_api_kind)i);
		struct ku_reflector_stats r;

		if (ref == NULL)
			continue;
		ku_reflector_get_stats(ref, &r);
		ret->watch[i].lists = r.lists;
		ret->watch[i].watches = r.watches;
		ret->watch[i].events = r.events;
		ret->watch[i].expired = r.expired;
		ret->watch[i].problems = r.problems;
		ret->watch[i].dead = r.dead_watches;
		ret->watch[i].gone = r.gone;
		ret->watch[i].objects = r.objects;
		ret->watch[i].busy_us = r.busy_us;
		ret->watch[i].heard_ago_us = ex_api_now_us(a) - r.heard_us;
		ret->watch[i].synced = ku_reflector_synced(ref);
	}
}

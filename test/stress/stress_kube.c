/* 300 binds in flight at a time from four threads, while a watch streams, is cut and begins again, a
 * lease is held and events are posted: everything is answered once, and no data race. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kube/kube.h"
#include "test/lib/fake_api.h"

#define WATCH_CAP ((size_t)4096)

enum { THREADS = 4, ROUNDS = 4, BINDS = 75 }; /* 4 x 75 = 300 at a time */

static struct {
	atomic_uint bound, refused, unknown, objects, started;
	atomic_uint version;
} seen;

static struct ku_client *client;
static struct ku_events *events;
static struct ku_reflector *reflector;
static struct ku_lease *lease;

/* ---- the server ---- */

static void serve_watch(struct fake_reply *ret)
{
	unsigned rv = atomic_fetch_add(&seen.version, 20);
	char *text = malloc(WATCH_CAP), *p = text;

	if (text == NULL)
		abort();
	for (unsigned i = 1; i <= 20; i++)
		p += snprintf(p, 200,
			      "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"uid\":\"u%u\","
			      "\"resourceVersion\":\"%u\"}}}\n",
			      (rv + i) % 50, rv + i);
	*ret = (struct fake_reply){.status = 200,
				   .take_body = text,
				   .chunk = 17,
				   .end = rv % 40 == 0 ? FAKE_END_RESET : FAKE_END};
}

static void serve(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	static const char lease_text[] =
		"{\"metadata\":{\"name\":\"l\",\"resourceVersion\":\"1\"},\"spec\":{\"holderIdentity\":\"me\"}}";

	(void)ctx;
	if (strstr(rq->path, "/binding") != NULL) {
		static const int codes[] = {201, 201, 201, 201, 409, 429, 500, 0};
		static atomic_uint n;
		unsigned i = atomic_fetch_add(&n, 1);

		*ret = (struct fake_reply){.status = codes[i % 8],
					   .body = "{}",
					   .delay_ms = (int)(i % 7),
					   .end = codes[i % 8] == 0 ? FAKE_END_RESET : FAKE_END};
	} else if (strstr(rq->path, "/leases") != NULL) {
		*ret = (struct fake_reply){.status = 200, .body = lease_text};
	} else if (strstr(rq->path, "/events") != NULL) {
		*ret = (struct fake_reply){.status = 201, .body = "{}"};
	} else if (fake_query_has(rq, "watch=1")) {
		serve_watch(ret);
	} else {
		*ret = (struct fake_reply){
			.status = 200,
			.body = "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[{\"metadata\":"
				"{\"uid\":\"u1\",\"resourceVersion\":\"1\"}}]}"};
	}
}

/* ---- the client's callbacks ---- */

static int on_object(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	(void)ctx;
	(void)change;
	(void)obj;
	(void)err;
	atomic_fetch_add(&seen.objects, 1);
	return 0;
}

static void on_started(void *ctx, uint64_t term)
{
	(void)ctx;
	(void)term;
	atomic_fetch_add(&seen.started, 1);
}

static void on_bound(void *ctx, const struct ku_bind_result *r)
{
	(void)ctx;
	atomic_fetch_add(r->outcome == KU_BIND_OK        ? &seen.bound
			 : r->outcome == KU_BIND_REFUSED ? &seen.refused
							 : &seen.unknown,
			 1);
}

static void *bind_many(void *arg)
{
	struct st_kv note = {"tessera.dev/allocation", "x"};

	for (int round = 0; round < ROUNDS; round++) {
		struct ku_reflector_stats rs;
		struct ku_client_stats cs;

		for (int i = 0; i < BINDS; i++) {
			char name[32];
			struct ku_bind b = {.ns = "team",
					    .name = name,
					    .uid = "u",
					    .node = "n",
					    .annotations = &note,
					    .annotation_count = 1,
					    .deadline_ms = 60000};
			struct ku_event ev = {.kind = "Pod",
					      .ns = "team",
					      .name = name,
					      .uid = "u",
					      .reason = "R",
					      .message = "m"};

			snprintf(name, sizeof(name), "p-%d-%d-%d", *(int *)arg, round, i);
			if (ku_bind_send(client, &b, on_bound, NULL, NULL) < 0)
				abort();
			ku_event_post(events, &ev);
			(void)ku_lease_left_ms(lease);
			(void)ku_lease_term(lease);
			(void)ku_reflector_reached(reflector, "5");
		}
		ku_reflector_get_stats(reflector, &rs);
		ku_client_get_stats(client, &cs);
		ku_reflector_relist(reflector);
	}
	return NULL;
}

static unsigned answered(void)
{
	return atomic_load(&seen.bound) + atomic_load(&seen.refused) + atomic_load(&seen.unknown);
}

static void wait_until(bool (*done)(void))
{
	for (int i = 0; i < 60000 && !done(); i++) {
		struct timespec pause = {.tv_nsec = 1000000};

		nanosleep(&pause, NULL);
	}
}

static bool all_answered(void)
{
	return answered() == THREADS * ROUNDS * BINDS;
}

static bool watch_seen(void)
{
	struct ku_reflector_stats s;

	ku_reflector_get_stats(reflector, &s);
	return s.watches >= 4 && atomic_load(&seen.objects) > 60;
}

static void start(struct fake_api *api)
{
	struct ku_config config = {.server = strdup(fake_api_url(api)), .ns = strdup("team")};
	struct ku_client_options co = {.config = &config, .seed = 1};
	struct ku_reflector_options ro = {.path = "/api/v1/pods",
					  .handler = {.on_object = on_object}};
	struct ku_lease_options lo = {.name = "l", .identity = "me", .on_started = on_started};
	struct ku_events_options eo = {.component = "stress", .per_second = 100};
	struct err err = ERR_INIT;

	if (ku_client_new(&co, &client, &err) < 0 ||
	    ku_reflector_new(client, &ro, &reflector, &err) < 0 ||
	    ku_lease_new(client, &lo, &lease, &err) < 0 ||
	    ku_events_new(client, &eo, &events, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	ku_config_fini(&config);
}

int main(void)
{
	struct fake_api *api = fake_api_start(NULL);
	pthread_t threads[THREADS];
	int ids[THREADS];
	bool ok;

	fake_api_handle(api, serve, NULL);
	start(api);
	for (int i = 0; i < THREADS; i++) {
		ids[i] = i;
		if (pthread_create(&threads[i], NULL, bind_many, &ids[i]) != 0)
			return 1;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	wait_until(all_answered);
	wait_until(watch_seen);
	printf("%u bound, %u refused, %u unknown, %u objects, %u starts, %u connections\n",
	       atomic_load(&seen.bound), atomic_load(&seen.refused), atomic_load(&seen.unknown),
	       atomic_load(&seen.objects), atomic_load(&seen.started), fake_api_connections(api));
	ok = all_answered() && watch_seen() && atomic_load(&seen.started) == 1 &&
	     atomic_load(&seen.bound) > 0 && atomic_load(&seen.refused) > 0 &&
	     atomic_load(&seen.unknown) > 0;
	ku_lease_free(lease);
	ku_events_free(events);
	ku_reflector_free(reflector);
	ku_client_free(client);
	fake_api_stop(api);
	return ok ? 0 : 1;
}

/* Events: one object for the same thing, counts for repetitions, a bounded rate. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kube/event.h"
#include "test/lib/kube_fixture.h"

#define EVENTS "/api/v1/namespaces/team/events"

static struct kube_fixture f;
static struct ku_events *e;
static struct ku_events_options o;

static void accept_all(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)ctx;
	*ret = (struct fake_reply){.status = strcmp(rq->method, "POST") == 0 ? 201 : 200,
				   .body = "{}"};
}

static void init(void)
{
	kube_fixture_init(&f);
	fake_api_handle(f.api, accept_all, NULL);
	f.virtual_time = true;
	kube_fixture_start(&f);
	o = (struct ku_events_options){.component = "tessera-extender", .instance = "host-1"};
}

static void fini(void)
{
	ku_events_free(e);
	kube_fixture_fini(&f);
}

TestSuite(kube_event, .init = init, .fini = fini);

static void start(void)
{
	struct err err = ERR_INIT;

	cr_assert_eq(ku_events_new(f.client, &o, &e, &err), 0, "%s", err.msg);
}

static void post(const char *pod, const char *reason, const char *message)
{
	struct ku_event ev = {.type = KU_EVENT_WARNING,
			      .kind = "Pod",
			      .ns = "team",
			      .name = pod,
			      .uid = "u-1",
			      .reason = reason,
			      .message = message};

	ku_event_post(e, &ev);
}

static struct ku_events_stats stats(void)
{
	struct ku_events_stats s;

	ku_events_get_stats(e, &s);
	return s;
}

static bool wait_sent(uint64_t n)
{
	for (int i = 0; i < 10000 && stats().sent + stats().failed < n; i++)
		usleep(1000);
	return stats().sent + stats().failed == n;
}

/* Posts, and waits until that many were sent. */
static void sent(const char *pod, const char *reason, const char *message, uint64_t n)
{
	post(pod, reason, message);
	cr_assert(wait_sent(n), "event %llu", (unsigned long long)n);
}

static void post_many(unsigned from, unsigned count, const char *reason)
{
	for (unsigned i = from; i < from + count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%u", i);
		post(name, reason, "m");
	}
}

static void expect_part(const struct fake_request *rq, const char *part)
{
	cr_expect_not_null(strstr(rq->body, part), "%s\nnot in %s", part, rq->body);
}

Test(kube_event, made_then_counted)
{
	const struct fake_request *made, *patch;

	start();
	sent("p1", "Fenced", "first", 1);
	made = fake_api_wait(f.api, "POST", EVENTS, 1);
	expect_part(made,
		    "\"involvedObject\":{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p1\","
		    "\"uid\":\"u-1\",\"namespace\":\"team\"}");
	expect_part(made, "\"reason\":\"Fenced\",\"type\":\"Warning\"");
	expect_part(made, "\"firstTimestamp\":\"2026-01-02T03:04:05Z\"");
	expect_part(made, "\"source\":{\"component\":\"tessera-extender\"}");
	expect_part(made, "\"count\":1,\"message\":\"first\"");
	fake_clock_add(&f.clock, 60000, f.client);
	sent("p1", "Fenced", "second", 2);
	cr_expect_eq(fake_api_count(f.api, "POST", EVENTS), 1);
	patch = fake_api_wait(f.api, "PATCH", NULL, 1);
	cr_expect_eq(strncmp(patch->path, EVENTS "/p1.", strlen(EVENTS "/p1.")), 0, "%s",
		     patch->path);
	cr_expect_str_eq(patch->type, "application/merge-patch+json");
	cr_expect_str_eq(patch->body, "{\"lastTimestamp\":\"2026-01-02T03:05:05Z\",\"count\":2,"
				      "\"message\":\"second\"}");
	/* another reason, another object: their own Events */
	post("p1", "Other", "x");
	sent("p2", "Fenced", "x", 4);
	cr_expect_eq(fake_api_count(f.api, "POST", EVENTS), 3);
}

Test(kube_event, new_after_ten_minutes)
{
	start();
	sent("p1", "Fenced", "first", 1);
	fake_clock_add(&f.clock, 600001, f.client);
	sent("p1", "Fenced", "later", 2);
	cr_expect_eq(fake_api_count(f.api, "POST", EVENTS), 2);
	expect_part(fake_api_wait(f.api, "POST", EVENTS, 2), "\"count\":1");
}

Test(kube_event, repetitions_are_gathered)
{
	struct fake_reply slow = {.status = 201, .delay_ms = 200};

	start();
	fake_api_on(f.api, "POST", EVENTS, NULL, 1, &slow);
	post("p1", "Fenced", "m");
	cr_assert_not_null(fake_api_wait(f.api, "POST", EVENTS, 1));
	for (int i = 0; i < 99; i++)
		post("p1", "Fenced", "m");
	cr_assert(wait_sent(2));
	expect_part(fake_api_wait(f.api, "PATCH", NULL, 1), "\"count\":100");
	cr_expect_eq(fake_api_count(f.api, NULL, NULL), 2);
}

Test(kube_event, deleted_meanwhile)
{
	start();
	sent("p1", "Fenced", "m", 1);
	fake_api_handle(f.api, NULL, NULL); /* all is 404 */
	sent("p1", "Fenced", "m", 2);
	fake_api_handle(f.api, accept_all, NULL);
	sent("p1", "Fenced", "m", 3);
	cr_expect_eq(fake_api_count(f.api, "POST", EVENTS), 2);
	cr_expect_eq(stats().failed, 1);
}

Test(kube_event, node_events_are_in_default)
{
	struct ku_event ev = {
		.kind = "Node", .name = "n1", .uid = "nu", .reason = "R", .message = "m"};

	start();
	ku_event_post(e, &ev);
	cr_assert_not_null(fake_api_wait(f.api, "POST", "/api/v1/namespaces/default/events", 1));
	expect_part(fake_api_wait(f.api, "POST", NULL, 1), "\"type\":\"Normal\"");
}

static bool sixty_sent(void *ctx)
{
	(void)ctx;
	return stats().sent == 60;
}

/* 50 at once, then 10 a second. */
Test(kube_event, rate_is_bounded)
{
	int64_t began;

	start();
	post_many(0, 60, "Fenced");
	cr_assert(wait_sent(50));
	cr_expect_eq(stats().waiting, 10);
	began = atomic_load(&f.clock.mono_us);
	cr_assert(kube_fixture_run(&f, 5, sixty_sent, NULL));
	cr_expect_geq(atomic_load(&f.clock.mono_us) - began, 1000000);
}

/* What is sent makes room for what comes, what waits does not. */
Test(kube_event, memory_is_bounded)
{
	o.objects_max = 5;
	o.per_second = 1;
	start();
	post_many(0, 5, "Fenced");
	cr_assert(wait_sent(5));
	post_many(5, 100, "Fenced");
	cr_expect_eq(stats().waiting, 5);
	cr_expect_eq(stats().dropped, 95);
	cr_expect_eq(stats().posted, 105);
	fake_clock_add(&f.clock, 5000, f.client);
	cr_assert(wait_sent(10));
	cr_expect_eq(stats().dropped, 95);
}

/* Ten minutes of different events, none of which comes too fast. */
Test(kube_event, what_was_sent_is_in_nobodys_way)
{
	o.objects_max = 5;
	start();
	for (unsigned i = 0; i < 20; i++) {
		post_many(i, 1, "Fenced");
		cr_assert(wait_sent(i + 1));
	}
	cr_expect_eq(stats().dropped, 0);
	/* The last ones are remembered. */
	post_many(19, 1, "Fenced");
	cr_assert(wait_sent(21));
	cr_expect_eq(fake_api_count(f.api, "PATCH", NULL), 1);
}

static bool rare_sent(unsigned first, unsigned last)
{
	bool found = false;

	for (unsigned i = first; i <= last; i++) {
		const struct fake_request *rq = fake_api_wait(f.api, "POST", EVENTS, i);

		found |= rq != NULL && strstr(rq->body, "\"reason\":\"Rare\"") != NULL;
	}
	return found;
}

/* Each reason has its turn, however many of another wait. */
Test(kube_event, a_storm_keeps_no_other_waiting)
{
	o.per_second = 1;
	start();
	post_many(0, 100, "Storm");
	cr_assert(wait_sent(5));
	post_many(0, 1, "Rare");
	cr_expect_eq(stats().waiting, 96);
	fake_clock_add(&f.clock, 2000, f.client);
	cr_assert(wait_sent(7));
	cr_expect(rare_sent(6, 7));
}

/* Nor does it take its place: one of the storm goes, and none of those of which few wait. */
Test(kube_event, a_storm_makes_room_for_others)
{
	o.objects_max = 5;
	o.per_second = 1;
	start();
	post_many(0, 5, "Storm");
	cr_assert(wait_sent(5));
	post_many(5, 100, "Storm");
	cr_expect_eq(stats().dropped, 95);
	post_many(0, 2, "Rare");
	cr_expect_eq(stats().dropped, 97);
	post_many(2, 1, "Rare");
	cr_expect_eq(stats().dropped, 98, "of the one about as many wait as of the other");
	cr_expect_eq(stats().waiting, 5);
	post_many(200, 1, "Storm");
	cr_expect_eq(stats().dropped, 99);
	fake_clock_add(&f.clock, 2000, f.client);
	cr_assert(wait_sent(7));
	cr_expect(rare_sent(6, 7));
}

Test(kube_event, freed_with_events_waiting)
{
	struct fake_reply silent = {.status = 0, .end = FAKE_END_SILENT};

	o.per_second = 1;
	start();
	fake_api_on(f.api, "POST", EVENTS, NULL, -1, &silent);
	post_many(0, 20, "Fenced");
	ku_events_free(e);
	e = NULL;
	cr_expect_leq(fake_api_count(f.api, "POST", EVENTS), 5);
}

/* Memory limits of containers that run, changed by their users: on a fake API server. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/api_internal.h"
#include "extender/elastic.h"
#include "kube/load.h"
#include "kube/object.h"
#include "test/lib/api_fixture.h"
#include "test/lib/fake_clock.h"

#define WISH "tessera.dev/container.main.memory-limit"
#define LIMIT "nvidia.com/container.main.gpu-memory.limit"
#define ALLOCATION "tessera.dev/allocation"
#define PATCHED "/api/v1/namespaces/ns/pods/a/status"
#define G8 "\"gpu-memory\":\"8192\""
#define G4 "\"gpu-memory\":\"4096\""

/* Is it so? Waits, 30 s at most. */
#define WAIT_FOR(what)                                                                             \
	({                                                                                         \
		for (int turns_ = 0; turns_ < 30000 && !(what); turns_++)                          \
			xa_breathe();                                                              \
		(what);                                                                            \
	})

static struct xa x;

static void init(void)
{
	xa_init(&x);
	fake_cluster_node(x.c, "n1", 1, 40960);
}

static void fini(void)
{
	xa_fini(&x);
}

TestSuite(extender_elastic, .init = init, .fini = fini);

static void run_pod(const char *name, const char *uid, const char *annotations)
{
	fake_cluster_pod(x.c, name, uid, annotations);
	/* Filter is asked about it as the scheduler does; bind reads it otherwise. */
	cr_assert_str_eq(xa_bind(&x, name, uid, "n1"), "");
}

static void open_with_a(void)
{
	xa_open(&x, true);
	run_pod("a", "u-a", G8);
}

/* An annotation as the API server has it; valid until the next call. */
static const char *note(const char *pod, const char *key)
{
	static char text[512];
	cJSON *pods = fake_cluster_objects(x.c, "pods"), *obj;

	text[0] = '\0';
	cJSON_ArrayForEach(obj, pods)
	{
		cJSON *meta = cJSON_GetObjectItemCaseSensitive(obj, "metadata");
		cJSON *notes = cJSON_GetObjectItemCaseSensitive(meta, "annotations");
		cJSON *v = cJSON_GetObjectItemCaseSensitive(notes, key);

		if (v != NULL &&
		    strcmp(cJSON_GetObjectItemCaseSensitive(meta, "name")->valuestring, pod) == 0)
			snprintf(text, sizeof(text), "%s", v->valuestring);
	}
	cJSON_Delete(pods);
	return text;
}

static bool wait_note(const char *pod, const char *key, const char *value)
{
	return WAIT_FOR(strcmp(note(pod, key), value) == 0);
}

struct limits {
	int64_t mib;
};

static void sum_limits(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	(void)p;
	((struct limits *)ctx)->mib = st_cluster_node(c, 0)->gpus[0].limit_mib;
}

/* What the books have as the sum of the limits on the GPU. */
static int64_t limits_now(void)
{
	struct limits l;

	ex_service_with(x.s, sum_limits, &l);
	return l.mib;
}

static bool wait_limits(int64_t mib)
{
	return WAIT_FOR(limits_now() == mib);
}

static struct ex_api_stats stats(void)
{
	struct ex_api_stats s;

	ex_api_get_stats(x.api, &s);
	return s;
}

Test(extender_elastic, a_limit_is_raised_and_lowered)
{
	const struct fake_request *rq;

	open_with_a();
	cr_expect_str_eq(note("a", LIMIT), "8192Mi");
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	cr_expect(wait_note("a", LIMIT, "24576Mi"));
	cr_expect(wait_limits(24576));
	cr_expect_not(xa_fenced(&x, "n1"), "the digest is that of the new limit");
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 8192, "the request is as it was");
	/* Preconditions, nothing but annotations, and no spec within reach. */
	rq = fake_api_wait(fake_cluster_api(x.c), "PATCH", PATCHED, 1);
	cr_assert_not_null(rq);
	cr_expect_str_eq(rq->type, "application/merge-patch+json");
	cr_expect(strncmp(rq->body, "{\"metadata\":{\"uid\":\"u-a\",\"resourceVersion\":\"",
			  strlen("{\"metadata\":{\"uid\":\"u-a\",\"resourceVersion\":\"")) == 0);
	fake_cluster_annotate(x.c, "a", WISH, "8Gi");
	cr_expect(wait_note("a", LIMIT, "8192Mi"));
	cr_expect(wait_limits(8192));
	/* Without the wish the limit stays. */
	fake_cluster_annotate(x.c, "a", WISH, "16Gi");
	cr_expect(wait_note("a", LIMIT, "16384Mi"));
	fake_cluster_annotate(x.c, "a", WISH, NULL);
	run_pod("b", "u-b", G8);
	cr_expect_str_eq(note("a", LIMIT), "16384Mi");
	cr_expect_eq(stats().limits_written, 3);
	cr_expect_eq(stats().limits_refused, 0);
	/* And after a restart the books say the same. */
	xa_shut(&x);
	xa_open(&x, true);
	cr_expect(wait_limits(16384 + 8192));
	cr_expect_not(xa_fenced(&x, "n1"));
}

Test(extender_elastic, what_cannot_be_is_refused_and_nothing_changes)
{
	static const struct {
		const char *value, *text;
	} bad[] = {
		{"4Gi", "\"4Gi\" is below the request of 8192 MiB"},
		{"64Gi", "\"64Gi\" is more than the 40960 MiB that GPU GPU-n1-0 has"},
		{"39Gi", "\"39Gi\" does not fit: the limits on GPU GPU-n1-0 would be 48128 MiB of "
			 "40960"},
		{"much", "quantity \"much\""},
		{"24", "\"24\" is 24 bytes, less than 1Mi"},
		{"-1Gi", "quantity \"-1Gi\""},
		{"", "quantity is empty"},
		{"9999999999Gi", "\"9999999999Gi\""},
	};
	char before[512], allocation[512];

	open_with_a();
	run_pod("b", "u-b", G8);
	snprintf(before, sizeof(before), "%s", note("a", LIMIT));
	snprintf(allocation, sizeof(allocation), "%s", note("a", ALLOCATION));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fake_cluster_annotate(x.c, "a", WISH, bad[i].value);
		cr_assert(WAIT_FOR(stats().limits_refused > i));
		cr_expect_eq(stats().limits_refused, i + 1, "%s", bad[i].value);
		cr_expect_str_eq(note("a", LIMIT), before, "%s", bad[i].value);
		cr_expect_str_eq(note("a", ALLOCATION), allocation, "%s", bad[i].value);
		cr_expect(wait_limits(16384), "%s", bad[i].value);
		cr_expect(fake_cluster_event_says(x.c, "a", "MemoryLimitRefused", WISH ": "), "%s",
			  bad[i].value);
		cr_expect(fake_cluster_event_says(x.c, "a", "MemoryLimitRefused", bad[i].text),
			  "%s", bad[i].value);
	}
	cr_expect_eq(fake_api_count(fake_cluster_api(x.c), "PATCH", PATCHED), 0);
	/* A container without a share, and one that is not there. */
	fake_cluster_annotate(x.c, "a", WISH, NULL);
	fake_cluster_annotate(x.c, "a", "tessera.dev/container.other.memory-limit", "9Gi");
	cr_expect(fake_cluster_event_says(x.c, "a", "MemoryLimitRefused",
					  "tessera.dev/container.other.memory-limit: \"9Gi\" is "
					  "for container \"other\", which has no share of a GPU"));
}

/* Two wishes that fit alone and not together: one of them gets the room. When it is free again, the other
 * one does. */
Test(extender_elastic, room_is_given_once_and_waited_for)
{
	bool a_has;

	open_with_a();
	run_pod("b", "u-b", G8);
	fake_cluster_hold(x.c, true);
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	fake_cluster_annotate(x.c, "b", WISH, "24Gi");
	fake_cluster_hold(x.c, false);
	cr_assert(WAIT_FOR(stats().limits_refused > 0));
	cr_expect(wait_limits(24576 + 8192));
	a_has = strcmp(note("a", LIMIT), "24576Mi") == 0;
	cr_expect_str_eq(note(a_has ? "b" : "a", LIMIT), "8192Mi");
	fake_cluster_delete(x.c, "pods", a_has ? "a" : "b");
	cr_expect(wait_note(a_has ? "b" : "a", LIMIT, "24576Mi"));
	cr_expect(wait_limits(24576));
}

/* Room that a wish has taken is not given to a bind while the PATCH is under way. */
Test(extender_elastic, a_bind_does_not_get_what_a_wish_has_taken)
{
	open_with_a();
	fake_cluster_fault(x.c,
			   (struct fake_fault){
				   .method = "PATCH", .part = PATCHED, .times = 1, .silent = true});
	fake_cluster_annotate(x.c, "a", WISH, "40Gi");
	cr_expect_not_null(fake_api_wait(fake_cluster_api(x.c), "PATCH", PATCHED, 1));
	cr_expect(wait_limits(40960));
	fake_cluster_pod(x.c, "b", "u-b", G8);
	cr_expect(strstr(xa_bind(&x, "b", "u-b", "n1"), "no room") != NULL);
	/* No answer came: it is sent again, and lands. */
	cr_expect(wait_note("a", LIMIT, "40960Mi"));
}

Test(extender_elastic, a_refusing_api_server_leaves_the_books_as_they_were)
{
	open_with_a();
	fake_cluster_fault(
		x.c,
		(struct fake_fault){.method = "PATCH", .part = PATCHED, .times = 1, .status = 403});
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	cr_assert(WAIT_FOR(stats().limits_failed > 0));
	cr_expect_eq(stats().limits_failed, 1);
	cr_expect(wait_limits(8192));
	cr_expect_str_eq(note("a", LIMIT), "8192Mi");
}

/* Somebody writes the pod between our reading and our writing: nothing of theirs is lost. */
Test(extender_elastic, a_pod_that_changed_meanwhile_is_looked_at_anew)
{
	open_with_a();
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "PATCH", .part = PATCHED, .times = 1, .delay_ms = 300});
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	cr_expect_not_null(fake_api_wait(fake_cluster_api(x.c), "PATCH", PATCHED, 1));
	fake_cluster_annotate(x.c, "a", WISH, "20Gi");
	cr_expect(wait_note("a", LIMIT, "20480Mi"));
	cr_expect(wait_limits(20480));
	cr_expect_not(xa_fenced(&x, "n1"));
}

/* Deleted while the PATCH is under way, and another pod of that name is there: it is not touched. */
Test(extender_elastic, a_pod_that_is_gone_meanwhile_changes_nothing)
{
	open_with_a();
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "PATCH", .part = PATCHED, .times = 1, .delay_ms = 300});
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	cr_expect_not_null(fake_api_wait(fake_cluster_api(x.c), "PATCH", PATCHED, 1));
	fake_cluster_delete(x.c, "pods", "a");
	run_pod("a", "u-2", G8);
	cr_expect(wait_limits(8192));
	cr_expect_str_eq(note("a", LIMIT), "8192Mi");
	cr_expect_not(xa_fenced(&x, "n1"));
}

/* A wish made while nobody led is found by whoever leads next. */
Test(extender_elastic, a_wish_waits_for_a_leader)
{
	open_with_a();
	xa_shut(&x);
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	x.cfg.leader_elect = true;
	xa_open(&x, true);
	cr_expect(wait_note("a", LIMIT, "24576Mi"));
	cr_expect(wait_limits(24576));
}

/* In a template it counts from when the pod is bound. */
Test(extender_elastic, a_wish_that_the_pod_is_made_with)
{
	xa_open(&x, true);
	run_pod("a", "u-a", G8 ",\"" WISH "\":\"12Gi\"");
	cr_expect(wait_note("a", LIMIT, "12288Mi"));
	cr_expect(strstr(xa_filter(&x, "c", "u-c", G8 ",\"" WISH "\":\"4Gi\"", "n1"),
			 "is below the request of 8192 MiB") != NULL);
	cr_expect(strstr(xa_filter(&x, "d", "u-d", "\"" WISH "\":\"4Gi\"", "n1"),
			 "has no share of a GPU") != NULL);
}

/* The PATCH lands, its answer and the watch do not come: it is sent again, and the 409 that comes of it says
 * nothing of the books. */
Test(extender_elastic, a_conflict_with_ourselves_frees_nothing)
{
	open_with_a();
	xa_shut(&x);
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	fake_cluster_hold(x.c, true);
	fake_cluster_fault(x.c, (struct fake_fault){.method = "PATCH",
						    .part = PATCHED,
						    .times = 1,
						    .reset = true,
						    .after = true});
	xa_open(&x, true);
	cr_assert(WAIT_FOR(stats().limits_stale > 0));
	cr_assert_eq(stats().limits_stale, 1);
	cr_expect_eq(limits_now(), 24576);
	fake_cluster_hold(x.c, false);
	cr_expect_str_eq(note("a", LIMIT), "24576Mi");
}

/* What one gives back another one waits for. */
Test(extender_elastic, room_of_a_lowered_limit_is_waited_for)
{
	open_with_a();
	run_pod("b", "u-b", G8);
	fake_cluster_annotate(x.c, "a", WISH, "24Gi");
	cr_assert(wait_note("a", LIMIT, "24576Mi"));
	fake_cluster_annotate(x.c, "b", WISH, "24Gi");
	cr_assert(fake_cluster_event_says(x.c, "b", "MemoryLimitRefused", "does not fit"));
	fake_cluster_annotate(x.c, "a", WISH, "8Gi");
	cr_expect(wait_note("b", LIMIT, "24576Mi"));
	cr_expect(wait_limits(8192 + 24576));
}

/* Each pod that ends changes the sum in the words of the refusal: no event comes of that. */
Test(extender_elastic, a_refusal_is_told_once)
{
	open_with_a();
	run_pod("b", "u-b", G8);
	run_pod("c", "u-c", G4);
	run_pod("d", "u-d", G4);
	fake_cluster_annotate(x.c, "a", WISH, "36Gi");
	cr_assert(fake_cluster_event_says(x.c, "a", "MemoryLimitRefused", "does not fit"));
	fake_cluster_annotate(x.c, "d", WISH, "22Gi");
	cr_assert(fake_cluster_event_says(x.c, "d", "MemoryLimitRefused", "does not fit"));
	fake_cluster_delete(x.c, "pods", "c");
	cr_expect(wait_note("d", LIMIT, "22528Mi")); /* and "a" was looked at before it */
	cr_expect_eq(stats().limits_refused, 2);
}

/* What is planned for the pod "a" as the API server has it, but on that node. */
static enum ex_elastic planned_on(const char *node)
{
	cJSON *pods = fake_cluster_objects(x.c, "pods"), *obj = cJSON_GetArrayItem(pods, 0);
	struct ku_arena *arena = ku_arena_new();
	struct err err = ERR_INIT;
	struct ex_elastic_plan plan;
	struct st_pod_spec pod;
	enum ex_elastic ret;

	cr_assert_not_null(obj);
	cr_assert_eq(ku_pod_decode(obj, arena, &pod, &err), 0, "%s", err.msg);
	pod.node = node;
	cr_assert_eq(ex_elastic_plan(x.s, &pod, &plan, &ret, &err), 0, "%s", err.msg);
	ex_elastic_plan_fini(&plan);
	ku_arena_free(arena);
	cJSON_Delete(pods);
	return ret;
}

/* A node that is away may come back without a word about the pod: then it is not the watch that wakes it. */
Test(extender_elastic, without_its_node_a_wish_is_looked_at_later)
{
	open_with_a();
	cr_assert(xa_wait_observed(&x, "u-a")); /* until then, every look is too early */
	cr_expect_eq(planned_on("n1"), EX_ELASTIC_NONE);
	cr_expect_eq(planned_on("n9"), EX_ELASTIC_LATER);
}

/* ---- turns of the worker ---- */

/* From here on the test is the worker. */
static void take_worker(void)
{
	atomic_store(&x.api->stopping, true);
	ex_api_wake(x.api);
	pthread_join(x.api->worker, NULL);
	x.api->worker_runs = false;
	atomic_store(&x.api->stopping, false);
}

static unsigned wishes(void)
{
	unsigned n;

	pthread_mutex_lock(&x.api->lock);
	n = HASH_COUNT(x.api->wishes.all);
	pthread_mutex_unlock(&x.api->lock);
	return n;
}

/* The bind under way waits for its time, to be sent again. */
static bool bind_rests(void)
{
	const struct ex_flight *f;
	bool rests;

	pthread_mutex_lock(&x.api->lock);
	f = x.api->flights;
	rests = f != NULL && f->posts == 1 && !f->calling;
	pthread_mutex_unlock(&x.api->lock);
	return rests;
}

/* More of them are due than a turn takes: a bind that is due is sent in the same turn, before the rest of
 * them; and the next turn comes at once. */
Test(extender_elastic, many_wishes_keep_no_bind_waiting)
{
	enum { MANY = EX_API_LOOKS_MAX + 44 };
	static struct fake_clock clock; /* read until the fixture's end */
	struct ku_clock fake = fake_clock_init(&clock);
	struct xa_bind b;
	char name[16];

	fake_cluster_node(x.c, "n2", 8, 40960);
	x.cfg.clock = &fake;
	xa_open(&x, true);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		fake_cluster_pod(x.c, name, name, "\"gpu-memory\":\"512\"");
		cr_assert_str_eq(xa_bind(&x, name, name, "n2"), "");
	}
	take_worker();
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		fake_cluster_annotate(x.c, name, WISH, "much");
	}
	cr_assert(WAIT_FOR(wishes() == MANY));
	fake_cluster_pod(x.c, "b", "u-b", G8);
	fake_cluster_fault(x.c, (struct fake_fault){.method = "POST",
						    .part = "/pods/b/binding",
						    .times = 1,
						    .status = 503});
	xa_bind_begin(&x, &b, "b", "u-b", "n1");
	cr_assert(WAIT_FOR(bind_rests()));
	fake_clock_add(&clock, 1000, NULL);
	cr_expect_leq(ex_api_turn(x.api), ex_api_now_us(x.api), "more are due");
	cr_expect_eq(stats().limits_refused, EX_API_LOOKS_MAX);
	cr_expect_str_eq(xa_bind_end(&b), "");
	cr_expect_gt(ex_api_turn(x.api), ex_api_now_us(x.api));
	cr_expect_eq(stats().limits_refused, MANY);
	ex_api_turn(x.api);
	cr_expect_eq(stats().limits_refused, MANY);
}

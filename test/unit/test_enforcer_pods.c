/* The pods of the node as the watch tells of them: what is kept, found again, and forgotten. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "enforcer/pods.h"
#include "kube/config.h"
#include "test/lib/fake_cluster.h"

#define WAIT_S 20
#define OURS "\"tessera.dev/allocation\":\"v1;n;0;\""

static struct {
	struct fake_cluster *c;
	struct ku_client *client;
	struct en_pods *pods;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic int64_t wall_s;   /* what the client takes for the time of day; 0: what it is */
	_Atomic int64_t later_us; /* its other clock is ahead by so much */
} x = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_changed(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&x.lock);
	pthread_cond_broadcast(&x.changed);
	pthread_mutex_unlock(&x.lock);
}

/* Until it holds: looked at after each change that is told. */
static bool wait_for(bool (*holds)(const char *arg), const char *arg)
{
	struct timespec until;
	bool ret;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&x.lock);
	while (!(ret = holds(arg)) && pthread_cond_timedwait(&x.changed, &x.lock, &until) == 0)
		;
	pthread_mutex_unlock(&x.lock);
	return ret;
}

static bool synced(const char *arg)
{
	(void)arg;
	return en_pods_synced(x.pods);
}

/* A list is counted behind what it tells. */
static bool listed_twice(const char *arg)
{
	struct en_pods_stats stats;

	(void)arg;
	en_pods_get_stats(x.pods, &stats);
	return stats.lists >= 2;
}

static struct en_pod *get(const char *uid)
{
	struct en_pod *pod = NULL;

	cr_assert_eq(en_pods_get(x.pods, uid, &pod, NULL), 0);
	return pod;
}

static bool known(const char *uid)
{
	struct en_pod *pod = get(uid);

	en_pod_free(pod);
	return pod != NULL;
}

static bool unknown(const char *uid)
{
	return !known(uid);
}

/* The time of day is a test's, waiting goes by the real clock, put forward. */
static int64_t mono_us(void *ctx)
{
	(void)ctx;
	return ku_clock_real.mono_us(NULL) + atomic_load(&x.later_us);
}

static int64_t wall_us(void *ctx)
{
	int64_t s = atomic_load(&x.wall_s);

	(void)ctx;
	return s != 0 ? s * 1000000 : ku_clock_real.wall_us(NULL);
}

static void init(void)
{
	static const struct ku_clock clock = {.mono_us = mono_us, .wall_us = wall_us};
	struct ku_config config = {.ns = NULL};
	struct ku_client_options co = {.config = &config, .connections = 4, .clock = &clock};
	struct err err = ERR_INIT;

	x.c = fake_cluster_start(1);
	config.server = strdup(fake_api_url(fake_cluster_api(x.c)));
	config.ns = strdup("default");
	cr_assert_eq(ku_client_new(&co, &x.client, &err), 0, "%s", err.msg);
	ku_config_fini(&config);
}

static void open_pods(void)
{
	const struct en_pods_options o = {.client = x.client,
					  .node = "n",
					  .prefix = "nvidia.com/container.",
					  .changed = on_changed};
	struct err err = ERR_INIT;

	cr_assert_eq(en_pods_start(&o, &x.pods, &err), 0, "%s", err.msg);
	cr_assert(wait_for(synced, NULL));
}

static void fini(void)
{
	en_pods_stop(x.pods);
	x.pods = NULL;
	ku_client_free(x.client);
	fake_cluster_stop(x.c);
}

TestSuite(enforcer_pods, .init = init, .fini = fini);

/* meta: members of metadata, behind name, namespace and uid. */
static void put(const char *name, const char *meta, const char *annotations)
{
	char text[1500];

	snprintf(text, sizeof(text),
		 "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"u-%s\"%s,"
		 "\"annotations\":{%s}},\"spec\":{\"nodeName\":\"n\",\"containers\":[{\"name\":"
		 "\"main\"}]},\"status\":{\"phase\":\"Running\"}}",
		 name, name, meta, annotations);
	fake_cluster_put(x.c, "pods", text);
}

#define OWNER(kind, name, controller)                                                              \
	"{\"kind\":\"" kind "\",\"name\":\"" name "\",\"controller\":" controller "}"

Test(enforcer_pods, the_workload_of_a_pod)
{
	static const struct {
		const char *name, *meta, *kind, *owner;
	} rows[] = {
		{"bare", "", "Pod", "bare"},
		{"set", ",\"ownerReferences\":[" OWNER("StatefulSet", "db", "true") "]",
		 "StatefulSet", "db"},
		{"web",
		 ",\"labels\":{\"pod-template-hash\":\"5d8\"},\"ownerReferences\":[" OWNER(
			 "ReplicaSet", "web-5d8", "true") "]",
		 "Deployment", "web"},
		/* A ReplicaSet of nobody, and one whose name ends otherwise. */
		{"rs", ",\"ownerReferences\":[" OWNER("ReplicaSet", "web-5d8", "true") "]",
		 "ReplicaSet", "web-5d8"},
		{"odd",
		 ",\"labels\":{\"pod-template-hash\":\"5d8\"},\"ownerReferences\":[" OWNER(
			 "ReplicaSet", "5d8", "true") "]",
		 "ReplicaSet", "5d8"},
		/* Owners that do not control it. */
		{"other",
		 ",\"ownerReferences\":[" OWNER("Node", "n", "false") "," OWNER("Job", "train",
										"true") "]",
		 "Job", "train"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		put(rows[i].name, rows[i].meta, OURS);
	open_pods();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char uid[32];
		struct en_pod *pod;

		snprintf(uid, sizeof(uid), "u-%s", rows[i].name);
		pod = get(uid);
		cr_assert_not_null(pod, "%s", uid);
		cr_expect_str_eq(pod->owner_kind, rows[i].kind, "%s", uid);
		cr_expect_str_eq(pod->owner, rows[i].owner, "%s", uid);
		en_pod_free(pod);
	}
}

/* Only this node's pods are asked for, and only what an allocation depends on is kept. */
Test(enforcer_pods, what_is_asked_for_and_kept)
{
	const struct fake_request *rq;
	struct en_pod *pod;

	put("a", "",
	    OURS ",\"example.com/x\":\"1\",\"gpu-memory\":\"5\","
		 "\"nvidia.com/container.main.gpu-memory.limit\":\"7Mi\"");
	put("plain", "", "\"example.com/x\":\"1\"");
	open_pods();
	rq = fake_api_wait(fake_cluster_api(x.c), "GET", "/api/v1/pods", 1);
	cr_assert_not_null(rq);
	cr_expect(fake_query_has(rq, "fieldSelector=spec.nodeName=n"), "%s", rq->query);
	rq = fake_api_wait(fake_cluster_api(x.c), "GET", "/api/v1/nodes", 1);
	cr_assert_not_null(rq);
	cr_expect(fake_query_has(rq, "fieldSelector=metadata.name=n"), "%s", rq->query);
	pod = get("u-a");
	cr_assert_not_null(pod);
	cr_expect(pod->allocated);
	cr_expect_str_eq(pod->spec.ns, "ns");
	cr_expect_str_eq(pod->spec.node, "n");
	cr_expect_eq(pod->spec.annotation_count, 3);
	cr_expect_str_eq(st_pod_annotation(&pod->spec, "gpu-memory"), "5");
	cr_expect_str_eq(
		st_pod_annotation(&pod->spec, "nvidia.com/container.main.gpu-memory.limit"), "7Mi");
	cr_expect_null(st_pod_annotation(&pod->spec, "example.com/x"));
	en_pod_free(pod);
	cr_expect(en_pods_is_ours(x.pods, "ns", "a"));
	cr_expect_not(en_pods_is_ours(x.pods, "ns", "plain"), "it has no allocation");
	cr_expect_not(en_pods_is_ours(x.pods, "other", "a"));
}

/* The runtime knows a static pod by another uid than the API server. */
Test(enforcer_pods, a_static_pod_goes_by_two_names)
{
	struct en_pod *pod;

	put("s", "", OURS ",\"kubernetes.io/config.mirror\":\"runtime-1\"");
	open_pods();
	pod = get("runtime-1");
	cr_assert_not_null(pod);
	cr_expect_str_eq(pod->spec.uid, "u-s");
	cr_expect_str_eq(pod->runtime_uid, "runtime-1");
	en_pod_free(pod);
	cr_expect(known("u-s"));
	fake_cluster_delete(x.c, "pods", "s");
	cr_expect(wait_for(unknown, "runtime-1"));
	cr_expect(unknown("u-s"));
}

/* Changes, ends, and ends that no watch told of. */
Test(enforcer_pods, what_changes_is_followed)
{
	struct en_pods_stats stats;
	uint64_t version;

	open_pods();
	version = en_pods_version(x.pods);
	put("a", "", OURS);
	cr_expect(wait_for(known, "u-a"));
	cr_expect_gt(en_pods_version(x.pods), version);
	put("b", "", "");
	cr_expect(wait_for(known, "u-b"));
	fake_cluster_delete(x.c, "pods", "a");
	cr_expect(wait_for(unknown, "u-a"));
	fake_cluster_hold(x.c, true);
	fake_cluster_delete(x.c, "pods", "b");
	put("c", "", "");
	fake_cluster_cut(x.c, true); /* only a new list can tell now */
	fake_cluster_hold(x.c, false);
	cr_expect(wait_for(unknown, "u-b"));
	cr_expect(wait_for(known, "u-c"));
	cr_expect(wait_for(listed_twice, NULL));
	en_pods_get_stats(x.pods, &stats);
	cr_expect_eq(stats.pods, 1);
}

/* A pod that cannot be read is none, and counted; when it is mended it is there. */
Test(enforcer_pods, a_pod_that_cannot_be_read)
{
	struct en_pods_stats stats;

	put("a", "", OURS);
	open_pods();
	cr_expect(known("u-a"));
	fake_cluster_put(x.c, "pods",
			 "{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"u-a\"},"
			 "\"spec\":{\"nodeName\":\"n\",\"containers\":7}}");
	cr_expect(wait_for(unknown, "u-a"));
	en_pods_get_stats(x.pods, &stats);
	cr_expect_eq(stats.unreadable, 1);
	put("a", "", OURS);
	cr_expect(wait_for(known, "u-a"));
}

/* ---- the end of a grace ---- */

#define DELETED(at, grace_s)                                                                       \
	",\"deletionTimestamp\":\"2026-01-01T" at "Z\",\"deletionGracePeriodSeconds\":" grace_s
#define NEW_YEAR_S INT64_C(1767225600)

static int64_t now_ms(void)
{
	return mono_us(NULL) / 1000;
}

static bool dies(const char *uid)
{
	struct en_pod *pod = get(uid);
	bool ret = pod != NULL && pod->delete_s != 0;

	en_pod_free(pod);
	return ret;
}

static int64_t deadline(const char *uid)
{
	struct en_pod *pod = get(uid);
	int64_t ret;

	cr_assert_not_null(pod);
	ret = pod->delete_ms;
	en_pod_free(pod);
	return ret;
}

/* So many seconds from a time between then and now. */
static void expect_left(int64_t deadline_ms, int64_t then_ms, int64_t left_s)
{
	cr_expect(deadline_ms >= then_ms + left_s * 1000 && deadline_ms <= now_ms() + left_s * 1000,
		  "%lld from %lld, not %lld s", (long long)deadline_ms, (long long)then_ms,
		  (long long)left_s);
}

/* The earliest end of a grace, of those that hold something; of what is listed, what the wall clock leaves of
 * it. */
Test(enforcer_pods, when_graces_end)
{
	int64_t then = now_ms();

	atomic_store(&x.wall_s, NEW_YEAR_S);
	put("late", DELETED("00:01:00", "90"), OURS);
	put("soon", DELETED("00:00:30", "60"), OURS);
	put("first", DELETED("00:00:01", "30"), "");
	put("odd", ",\"deletionTimestamp\":\"tomorrow\"", OURS);
	put("stays", "", OURS);
	open_pods();
	expect_left(en_pods_next_deletion(x.pods), then, 30);
	expect_left(deadline("u-late"), then, 60);
	cr_expect_eq(deadline("u-stays"), 0);
	cr_expect_eq(deadline("u-odd"), 0);
	fake_cluster_delete(x.c, "pods", "soon");
	cr_expect(wait_for(unknown, "u-soon"));
	expect_left(en_pods_next_deletion(x.pods), then, 60);
	fake_cluster_delete(x.c, "pods", "late");
	cr_expect(wait_for(unknown, "u-late"));
	cr_expect_eq(en_pods_next_deletion(x.pods), 0);
}

/* This node's clock is an hour ahead, or behind: a grace that begins while it is watched is as long as it is. */
Test(enforcer_pods, a_grace_does_not_depend_on_the_wall_clock)
{
	int64_t then, first;

	put("ahead", "", OURS);
	put("behind", "", OURS);
	open_pods();
	then = now_ms();
	atomic_store(&x.wall_s, NEW_YEAR_S + 3600);
	put("ahead", DELETED("00:00:30", "30"), OURS);
	cr_assert(wait_for(dies, "u-ahead"));
	first = deadline("u-ahead");
	expect_left(first, then, 30);
	then = now_ms();
	atomic_store(&x.wall_s, NEW_YEAR_S - 3600);
	put("behind", DELETED("00:00:40", "40"), OURS);
	cr_assert(wait_for(dies, "u-behind"));
	expect_left(deadline("u-behind"), then, 40);
	/* It changes, and dies as it was to; a step of the clock is nothing. */
	atomic_store(&x.later_us, 1000000);
	put("ahead", DELETED("00:00:30", "30") ",\"labels\":{\"a\":\"b\"}", OURS);
	put("marker", DELETED("00:00:30", "30"), "");
	cr_assert(wait_for(dies, "u-marker"));
	cr_expect_eq(deadline("u-ahead"), first);
	/* Its end is brought forward. */
	then = now_ms();
	put("ahead", DELETED("00:00:12", "2"), OURS);
	put("marker-2", DELETED("00:00:30", "30"), "");
	cr_assert(wait_for(dies, "u-marker-2"));
	expect_left(deadline("u-ahead"), then, 2);
}

/* What is listed may be dying for long. Where the clocks cannot both be right, it has at most its grace, and is
 * not waited for in the past. */
Test(enforcer_pods, a_grace_that_was_on_when_it_is_listed)
{
	int64_t then = now_ms();

	atomic_store(&x.wall_s, NEW_YEAR_S);
	put("some", DELETED("00:00:07", "30"), OURS);
	put("over", DELETED("00:00:00", "30"), OURS);
	put("all", DELETED("01:00:00", "30"), OURS);
	put("untold", ",\"deletionTimestamp\":\"2026-01-01T00:00:20Z\"", OURS);
	open_pods();
	expect_left(deadline("u-some"), then, 7);
	expect_left(deadline("u-over"), then, 0);
	expect_left(deadline("u-all"), then, 30);
	expect_left(deadline("u-untold"), then, 20);
}

static bool upgrade_is(const char *want)
{
	char state[64];

	en_pods_upgrade_state(x.pods, state);
	return strcmp(state, want) == 0;
}

static void put_node(const char *labels)
{
	char text[300];

	snprintf(text, sizeof(text),
		 "{\"metadata\":{\"name\":\"n\",\"uid\":\"un\",\"labels\":{%s}}}", labels);
	fake_cluster_put(x.c, "nodes", text);
}

Test(enforcer_pods, the_operators_word_about_the_driver)
{
	put_node("");
	open_pods();
	cr_expect(upgrade_is(""));
	put_node("\"" EN_UPGRADE_LABEL "\":\"drain-required\"");
	cr_expect(wait_for(upgrade_is, "drain-required"));
	put_node("\"" EN_UPGRADE_LABEL "\":\"drain\""); /* the beginning of the last one */
	cr_expect(wait_for(upgrade_is, "drain"));
	fake_cluster_delete(x.c, "nodes", "n");
	cr_expect(wait_for(upgrade_is, ""));
}

Test(enforcer_pods, a_name_that_is_none)
{
	const struct en_pods_options o = {.client = x.client, .node = "..", .prefix = "p/"};
	struct err err = ERR_INIT;

	cr_expect_eq(en_pods_start(&o, &x.pods, &err), ERR_INVALID);
	cr_expect_str_eq(err.msg, "node name \"..\" is not a name");
}

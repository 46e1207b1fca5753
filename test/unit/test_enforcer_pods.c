/* The pods of the node as the watch tells of them: what is kept, found again, and forgotten. */
#include <criterion/criterion.h>
#include <pthread.h>
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

static void init(void)
{
	struct ku_config config = {.ns = NULL};
	struct ku_client_options co = {.config = &config, .connections = 4};
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

/* The earliest end of a grace, of those that hold something. */
Test(enforcer_pods, when_graces_end)
{
	struct en_pod *pod;

	put("late", ",\"deletionTimestamp\":\"2026-01-01T00:01:00Z\"", OURS);
	put("soon", ",\"deletionTimestamp\":\"2026-01-01T00:00:30Z\"", OURS);
	put("first", ",\"deletionTimestamp\":\"2026-01-01T00:00:01Z\"", "");
	put("odd", ",\"deletionTimestamp\":\"tomorrow\"", OURS);
	put("stays", "", OURS);
	open_pods();
	cr_expect_eq(en_pods_next_deletion(x.pods), 1767225630);
	pod = get("u-late");
	cr_assert_not_null(pod);
	cr_expect_eq(pod->delete_s, 1767225660);
	en_pod_free(pod);
	fake_cluster_delete(x.c, "pods", "soon");
	cr_expect(wait_for(unknown, "u-soon"));
	cr_expect_eq(en_pods_next_deletion(x.pods), 1767225660);
	fake_cluster_delete(x.c, "pods", "late");
	cr_expect(wait_for(unknown, "u-late"));
	cr_expect_eq(en_pods_next_deletion(x.pods), 0);
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

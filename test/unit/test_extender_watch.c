/* The extender on an API server, on a fake one: what the watches tell, leadership, refusals. Cases by
 * their number. */
#include "extender/view.h"
#include "test/unit/two_nodes_fixture.h"

TestSuite(extender_watch, .init = init, .fini = fini);

/* ---- what watches tell ---- */

Test(extender_watch, case_05_counted_once_around_the_reply)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", "\"gpu-memory\":\"8192\"");
	fake_cluster_fault(x.c, (struct fake_fault){.method = "POST",
						    .part = "/binding",
						    .times = 1,
						    .status = 500,
						    .after = true,
						    .delay_ms = 50});
	expect_bound("a", "u-a", "n1");
	for (int i = 0; i < 5; i++) {
		fake_cluster_annotate(x.c, "a", "example.com/round", i % 2 ? "1" : "2");
		cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 8192);
	}
	fake_cluster_cut(x.c, true); /* the list tells of it again */
	fake_cluster_pod(x.c, "b", "u-b", G10);
	expect_bound("b", "u-b", "n1");
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 8192 + 10240));
}

Test(extender_watch, case_06_and_08_what_a_user_wrote_counts_for_nothing)
{
	char forged[600];

	open_ready();
	snprintf(forged, sizeof(forged),
		 "%s,\"nvidia.com/container.main.gpus.devices\":\"GPU-n2-0\","
		 "\"nvidia.com/container.main.gpu-compute.mode\":\"time-slicing\","
		 "\"tessera.dev/allocation\":\"v1;n2;0123456789abcdef;main=dm\"",
		 G10);
	fake_cluster_pod(x.c, "a", "u-a", forged);
	expect_bound("a", "u-a", "n1");
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
	cr_expect_eq(xa_booked(&x, "GPU-n2-0"), 0);
	cr_expect_not(xa_fenced(&x, "n2"));
	xa_shut(&x);
	xa_open(&x, true);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
	cr_expect_eq(xa_booked(&x, "GPU-n2-0"), 0);
}

Test(extender_watch, case_07_an_unreadable_allocation_fences)
{
	static const struct {
		const char *key, *value;
	} rows[] = {
		{"nvidia.com/container.main.gpus.devices", "GPU-n"},
		{"nvidia.com/container.main.gpu-memory.request", "abc"},
		{"tessera.dev/allocation", "v1;n1;0123456789abcdef;main=drlm"},
		{"tessera.dev/allocation", "v1;n2;0123456789abcdef;main=drlm"},
	};
	struct ex_service_counts n;

	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	expect_bound("a", "u-a", "n1");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cJSON *pods = fake_cluster_objects(x.c, "pods");
		char *good =
			strdup(cJSON_GetObjectItemCaseSensitive(
				       cJSON_GetObjectItemCaseSensitive(
					       cJSON_GetObjectItemCaseSensitive(
						       cJSON_GetArrayItem(pods, 0), "metadata"),
					       "annotations"),
				       rows[i].key)
				       ->valuestring);

		cJSON_Delete(pods);
		fake_cluster_annotate(x.c, "a", rows[i].key, rows[i].value);
		cr_expect(xa_wait_fenced(&x, "n1", true), "%s", rows[i].value);
		cr_expect(strstr(xa_filter(&x, "q", "u-q", G10, "n1"), "\"NodeNames\":[]") != NULL);
		fake_cluster_annotate(x.c, "a", rows[i].key, good);
		cr_expect(xa_wait_fenced(&x, "n1", false), "%s", rows[i].value);
		cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
		free(good);
	}
	cr_expect(fake_cluster_event(x.c, "a", "AllocationUnreadable"));
	ex_service_counts(x.s, &n);
	cr_expect_eq(n.pods_fenced, 4);
	fake_cluster_annotate(x.c, "a", rows[0].key, rows[0].value);
	cr_expect(xa_wait_fenced(&x, "n1", true));
	fake_cluster_delete(x.c, "pods", "a");
	cr_expect(xa_wait_fenced(&x, "n1", false));
}

Test(extender_watch, case_09_a_terminating_pod_keeps_its_gpus)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	expect_bound("a", "u-a", "n1");
	fake_cluster_terminate(x.c, "a");
	fake_cluster_pod(x.c, "b", "u-b", ALL);
	cr_expect(strstr(xa_bind(&x, "b", "u-b", "n1"), "no room") != NULL);
	fake_cluster_delete(x.c, "pods", "a");
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0));
	expect_bound("b", "u-b", "n1");
	/* One that has ended holds nothing. */
	fake_cluster_phase(x.c, "b", "Succeeded");
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0));
}

Test(extender_watch, case_13_and_14_deletions_lost_in_each_way)
{
	open_ready();
	for (int way = 0; way < 3; way++) {
		char uid[16];

		snprintf(uid, sizeof(uid), "u-%d", way);
		fake_cluster_pod(x.c, "a", uid, ALL);
		expect_bound("a", uid, "n1");
		fake_cluster_hold(x.c, true);
		if (way == 2)
			xa_shut(&x);
		fake_cluster_delete(x.c, "pods", "a");
		fake_cluster_hold(x.c, false);
		if (way < 2)
			fake_cluster_cut(x.c, way == 1);
		else
			xa_open(&x, true);
		cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0), "way %d", way);
	}
}

/* Bound and deleted between two lists: the reflector never heard of the pod. */
Test(extender_watch, case_13_a_pod_that_no_watch_ever_told_of)
{
	open_ready();
	fake_cluster_hold(x.c, true);
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	expect_bound("a", "u-a", "n1");
	fake_cluster_delete(x.c, "pods", "a");
	fake_cluster_cut(x.c, true);
	fake_cluster_hold(x.c, false);
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0));
}

Test(extender_watch, case_15_and_16_failed_binds_leave_nothing)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	fake_cluster_fault(x.c, (struct fake_fault){.method = "POST",
						    .part = "/pods/a/binding",
						    .times = -1,
						    .status = 403});
	for (int i = 0; i < 10; i++) {
		cr_expect(strstr(xa_filter(&x, "a", "u-a", ALL, "n1"), "[\"n1\"]") != NULL);
		cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "injected") != NULL);
		cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 0);
		xa_check(&x);
	}
	cr_expect_eq(posts("a"), 10);
}

#define DENIED                                                                                     \
	"{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":403,\"reason\":\"Forbidden\","       \
	"\"message\":\"admission webhook \\\"guard\\\" denied the request: not on a Friday\"}"

Test(extender_watch, case_18_an_impossible_pod_holds_nothing_and_is_told_why)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	fake_cluster_pod(x.c, "b", "u-b", ALL);
	fake_cluster_fault(x.c, (struct fake_fault){.method = "POST",
						    .part = "/pods/a/binding",
						    .times = -1,
						    .status = 403,
						    .body = DENIED});
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "not on a Friday") != NULL);
	expect_bound("b", "u-b", "n1");
	cr_expect(fake_cluster_event(x.c, "a", "BindRefused"));
}

Test(extender_watch, case_17_two_binds_of_one_gpu_and_one_fails)
{
	struct xa_bind one, two;

	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	fake_cluster_pod(x.c, "b", "u-b", G10);
	fake_cluster_fault(x.c, (struct fake_fault){.method = "POST",
						    .part = "/pods/a/binding",
						    .times = 1,
						    .status = 422,
						    .delay_ms = 50});
	xa_bind_begin(&x, &one, "a", "u-a", "n1");
	xa_bind_begin(&x, &two, "b", "u-b", "n1");
	cr_expect_neq(xa_bind_end(&one)[0], '\0');
	cr_expect_str_eq(xa_bind_end(&two), "");
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
	xa_shut(&x);
	xa_open(&x, true);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
}

#define BARE_NODE                                                                                  \
	"{\"metadata\":{\"name\":\"n1\",\"uid\":\"node-n1\"},\"status\":{\"allocatable\":{"        \
	"\"cpu\":\"64\",\"memory\":\"512Gi\",\"pods\":\"500\"},\"conditions\":["                   \
	"{\"type\":\"Ready\",\"status\":\"True\"}]}}"

Test(extender_watch, case_19_the_inventory_goes_and_comes_back)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	expect_bound("a", "u-a", "n1");
	for (int restart = 0; restart < 2; restart++) {
		fake_cluster_put(x.c, "nodes", BARE_NODE);
		if (restart) {
			xa_shut(&x);
			xa_open(&x, true);
		}
		cr_expect(xa_wait_filter(&x, "b", "u-b", G10, "n1", "\"NodeNames\":[]"));
		fake_cluster_pod(x.c, "b", "u-b", G10);
		cr_expect_neq(xa_bind(&x, "b", "u-b", "n1")[0], '\0', "nothing new meanwhile");
		fake_cluster_node(x.c, "n1", 1, 40960);
		cr_expect(xa_wait_booked(&x, "GPU-n1-0", 10240), "restart %d", restart);
		cr_expect(xa_wait_fenced(&x, "n1", false), "restart %d", restart);
	}
	expect_bound("b", "u-b", "n1");
}

#define COPIED_NODE                                                                                \
	"{\"metadata\":{\"name\":\"n3\",\"uid\":\"node-n3\",\"annotations\":{"                     \
	"\"tessera.dev/inventory\":\"{\\\"version\\\":1,\\\"gpus\\\":[{\\\"uuid\\\":"              \
	"\\\"GPU-n1-0\\\",\\\"index\\\":0,\\\"mem_mib\\\":40960,\\\"healthy\\\":true}]}\"}},"      \
	"\"status\":{\"allocatable\":{\"cpu\":\"64\",\"memory\":\"512Gi\",\"pods\":\"500\"},"      \
	"\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}"

Test(extender_watch, a_gpu_that_two_nodes_report_is_given_by_neither)
{
	struct ex_view v;
	struct err err = ERR_INIT;

	open_ready();
	fake_cluster_put(x.c, "nodes", COPIED_NODE);
	cr_expect(fake_cluster_event(x.c, "n3", "GpuOnTwoNodes"));
	cr_expect(fake_cluster_event(x.c, "n1", "GpuOnTwoNodes"));
	cr_expect(xa_wait_filter(&x, "a", "u-a", G10, "n1 n3", "\"NodeNames\":[]"));
	fake_cluster_pod(x.c, "a", "u-a", G10);
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "no room") != NULL);
	cr_assert_eq(ex_view_capture(x.s, x.scratch.arena, &v, &err), 0, "%s", err.msg);
	cr_expect_eq(v.gpus_twin, 2);
	fake_cluster_delete(x.c, "nodes", "n3");
	cr_expect(xa_wait_filter(&x, "a", "u-a", G10, "n1", "[\"n1\"]"));
	expect_bound("a", "u-a", "n1");
}

Test(extender_watch, pods_of_a_node_that_comes_later)
{
	open_ready();
	fake_cluster_node(x.c, "n3", 1, 40960);
	fake_cluster_pod(x.c, "a", "u-a", G10);
	cr_expect(xa_wait_filter(&x, "a", "u-a", G10, "n3", "[\"n3\"]"));
	expect_bound("a", "u-a", "n3");
	fake_cluster_delete(x.c, "nodes", "n3");
	xa_shut(&x);
	xa_open(&x, true);
	cr_expect_eq(xa_booked(&x, "GPU-n3-0"), -1);
	fake_cluster_node(x.c, "n3", 1, 40960);
	cr_expect(xa_wait_booked(&x, "GPU-n3-0", 10240));
}

Test(extender_watch, a_bad_node_is_unready_and_harms_nobody)
{
	struct ex_service_counts n;

	open_ready();
	fake_cluster_put(x.c, "nodes",
			 "{\"metadata\":{\"name\":\"bad\",\"uid\":\"node-bad\",\"labels\":{"
			 "\"nvidia.com/gpu.count\":\"many\"}},\"status\":{}}");
	fake_cluster_put(x.c, "nodes", "{\"metadata\":{\"name\":7,\"uid\":\"odd\"}}");
	fake_cluster_node(x.c, "n9", 1, 40960);
	cr_expect(xa_wait_filter(&x, "b", "u-b", G10, "bad n9", "[\"n9\"]"));
	ex_service_counts(x.s, &n);
	cr_expect_geq(n.nodes_invalid, 1);
}

Test(extender_watch, case_20_an_allocation_names_the_node_it_is_on)
{
	cJSON *pods;
	const cJSON *notes;

	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "POST", .part = "/binding", .times = 1, .status = 403});
	cr_expect_neq(xa_bind(&x, "a", "u-a", "n1")[0], '\0');
	expect_bound("a", "u-a", "n2");
	pods = fake_cluster_objects(x.c, "pods");
	notes = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(pods, 0), "metadata"),
		"annotations");
	cr_expect(strstr(cJSON_GetObjectItemCaseSensitive(notes, "tessera.dev/allocation")
				 ->valuestring,
			 "v1;n2;") != NULL);
	cr_expect(strstr(cJSON_GetObjectItemCaseSensitive(notes,
							  "nvidia.com/container.main.gpus.devices")
				 ->valuestring,
			 "GPU-n2-") != NULL);
	cJSON_Delete(pods);
}

Test(extender_watch, case_21_and_22_nothing_is_written_but_the_binding)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "POST", .part = "/binding", .times = 1, .status = 422});
	xa_bind(&x, "a", "u-a", "n1");
	expect_bound("a", "u-a", "n1");
	cr_expect_eq(fake_api_count(fake_cluster_api(x.c), "PATCH", NULL), 0);
	cr_expect_eq(fake_api_count(fake_cluster_api(x.c), "PUT", NULL), 0);
}

#define BURST 100

Test(extender_watch, case_24_a_burst_on_one_node)
{
	static struct xa_bind b[BURST];
	char pod[16], uid[16];

	fake_cluster_node(x.c, "n8", 8, 81920);
	open_ready();
	for (int i = 0; i < BURST; i++) {
		snprintf(pod, sizeof(pod), "p%d", i);
		snprintf(uid, sizeof(uid), "u%d", i);
		fake_cluster_pod(x.c, pod, uid, "\"gpu-memory\":\"4096\"");
		xa_filter(&x, pod, uid, "\"gpu-memory\":\"4096\"", "n8");
		xa_bind_begin(&x, &b[i], pod, uid, "n8");
	}
	for (int i = 0; i < BURST; i++)
		cr_expect_str_eq(xa_bind_end(&b[i]), "");
	xa_check(&x);
}

Test(extender_watch, case_39_fields_that_nobody_knows)
{
	open_ready();
	fake_cluster_put(x.c, "pods",
			 "{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"u-a\","
			 "\"annotations\":{" G10 "},\"novel\":[1,{\"x\":null}]},\"spec\":{"
			 "\"enableServiceLinks\":false,\"invented\":{\"deep\":[[[{}]]]},"
			 "\"containers\":[{\"name\":\"main\",\"odd\":1e300}]},\"status\":{"
			 "\"phase\":\"Pending\"}}");
	expect_bound("a", "u-a", "n1");
	cr_expect_eq(fake_api_count(fake_cluster_api(x.c), "PUT", NULL), 0);
}

/* ---- others' pods ---- */

Test(extender_watch, whole_gpus_of_other_schedulers_are_taken)
{
	fake_cluster_put(
		x.c, "pods",
		"{\"metadata\":{\"name\":\"o\",\"namespace\":\"ns\",\"uid\":\"u-o\"},"
		"\"spec\":{\"nodeName\":\"n2\",\"containers\":[{\"name\":\"c\",\"resources\":{"
		"\"limits\":{\"nvidia.com/gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Running\"}}");
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	fake_cluster_pod(x.c, "b", "u-b", ALL);
	expect_bound("a", "u-a", "n2");
	cr_expect_neq(xa_bind(&x, "b", "u-b", "n2")[0], '\0');
	fake_cluster_delete(x.c, "pods", "o");
	cr_expect(xa_wait_booked(&x, "GPU-n2-0", 0) || xa_wait_booked(&x, "GPU-n2-1", 0));
	expect_bound("b", "u-b", "n2");
}

/* ---- node totals ---- */

Test(extender_watch, totals_are_written_where_they_differ_and_only_there)
{
	x.cfg.totals = true;
	open_ready();
	fake_cluster_put(x.c, "nodes",
			 "{\"metadata\":{\"name\":\"n3\",\"uid\":\"node-n3\",\"labels\":{"
			 "\"nvidia.com/gpu.count\":\"2\",\"nvidia.com/gpu.memory\":\"1000\"}},"
			 "\"status\":{\"capacity\":{\"tessera.dev/gpu-memory\":\"1k\"},"
			 "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}");
	cr_assert_not_null(
		fake_api_wait(fake_cluster_api(x.c), "PATCH", "/api/v1/nodes/n3/status", 1));
	fake_cluster_pod(x.c, "a", "u-a", G10);
	expect_bound("a", "u-a", "n1");
	cr_expect_eq(fake_api_count(fake_cluster_api(x.c), "PATCH", NULL), 1);
}

/* ---- leadership and readiness ---- */

static void lead(const char *identity)
{
	x.cfg.leader_elect = true;
	x.cfg.identity = identity;
	x.cfg.lease_ms = 3000;
	x.cfg.renew_ms = 1500;
	x.cfg.retry_ms = 300;
}

Test(extender_watch, case_37_a_leader_lists_anew_before_it_answers)
{
	lead("one");
	xa_open(&x, false);
	cr_expect(xa_wait_ready(&x, true), "%s", xa_why(&x));
	/* What was listed is no cache's. */
	cr_expect_not(fake_query_has(fake_api_wait(fake_cluster_api(x.c), "GET", "/api/v1/pods", 1),
				     "resourceVersion=0"));
	fake_cluster_pod(x.c, "a", "u-a", G10);
	expect_bound("a", "u-a", "n1");
}

#define OTHER                                                                                      \
	"{\"metadata\":{\"name\":\"tessera-extender\",\"namespace\":\"kube-system\","              \
	"\"resourceVersion\":\"7\"},\"spec\":{\"holderIdentity\":\"other\","                       \
	"\"leaseDurationSeconds\":3,\"leaseTransitions\":1,\"acquireTime\":"                       \
	"\"2026-01-02T03:04:05.000000Z\",\"renewTime\":\"2026-01-02T03:04:05.000000Z\"}}"

Test(extender_watch, case_37_a_standby_binds_nothing_and_names_the_leader)
{
	lead("one");
	fake_api_on(fake_cluster_api(x.c), "GET",
		    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tessera-extender",
		    NULL, -1, &(struct fake_reply){.status = 200, .body = OTHER});
	fake_api_on(fake_cluster_api(x.c), "PUT",
		    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tessera-extender",
		    NULL, -1, &(struct fake_reply){.status = 409, .body = "{}"});
	xa_open(&x, false);
	fake_cluster_pod(x.c, "a", "u-a", G10);
	cr_expect(xa_wait_why(&x, "\"other\" does"), "%s", xa_why(&x));
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0)); /* else it is the node that is not known */
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "not lead") != NULL);
	cr_expect_eq(posts("a"), 0);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 0);
}

Test(extender_watch, case_37_a_lost_lease_stops_binding_at_once)
{
	lead("one");
	xa_open(&x, true);
	fake_cluster_pod(x.c, "a", "u-a", G10);
	fake_cluster_fault(x.c, (struct fake_fault){.part = "/leases", .times = -1, .status = 500});
	cr_expect(xa_wait_ready(&x, false));
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "not lead") != NULL);
	cr_expect_eq(posts("a"), 0);
	fake_cluster_calm(x.c);
	cr_expect(xa_wait_ready(&x, true), "%s", xa_why(&x));
	expect_bound("a", "u-a", "n1");
}

Test(extender_watch, case_38_a_401_that_stays_is_not_ready)
{
	open_ready();
	fake_cluster_fault(x.c, (struct fake_fault){.times = -1, .status = 401});
	fake_cluster_fault(x.c, (struct fake_fault){.watches = true, .times = -1, .status = 401});
	fake_cluster_cut(x.c, false);
	cr_expect(xa_wait_why(&x, "401"), "%s", xa_why(&x));
	fake_cluster_calm(x.c);
	cr_expect(xa_wait_ready(&x, true));
}

/* ---- refusals that wait ---- */

struct held {
	struct ex_api_hold h;
	int parked;
	atomic_int woken;
};

static void on_park(struct ex_api_hold *h)
{
	((struct held *)h)->parked++;
}

static void on_wake(struct ex_api_hold *h)
{
	((struct held *)h)->woken++;
}

Test(extender_watch, case_48_a_refusal_waits_a_moment_for_room)
{
	struct held one = {.h = {.park = on_park, .wake = on_wake}}, two = one;
	enum ex_api_held held = EX_API_HELD;
	uint64_t seen;

	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	expect_bound("a", "u-a", "n1");
	cr_expect(xa_wait_filter(&x, "b", "u-b", ALL, "n1", "\"NodeNames\":[]"));
	seen = ex_api_room(x.api);
	cr_expect_eq(ex_api_hold(x.api, &one.h, seen), EX_API_HELD);
	fake_cluster_delete(x.c, "pods", "a");
	for (int i = 0; i < 10000 && (one.woken == 0 || ex_api_room(x.api) == seen); i++)
		xa_breathe();
	cr_expect_eq(one.woken, 1);
	cr_expect(xa_wait_filter(&x, "b", "u-b", ALL, "n1", "[\"n1\"]"));
	/* What changed since the question was asked is looked at without waiting. */
	cr_expect_eq(ex_api_hold(x.api, &two.h, seen), EX_API_AGAIN);
	/* In vain: it ends by itself. Not all refusals can be: the scheduler waits for each. */
	for (int round = 0; round < 100 && held == EX_API_HELD; round++) {
		two.woken = 0;
		two.h.until_us = 0;
		seen = ex_api_room(x.api);
		held = ex_api_hold(x.api, &two.h, seen);
		for (int i = 0; i < 10000 && held == EX_API_HELD && two.woken == 0; i++)
			xa_breathe();
		if (held == EX_API_HELD)
			cr_expect_eq(ex_api_hold(x.api, &two.h, seen), EX_API_ANSWER);
	}
	cr_expect_eq(held, EX_API_ANSWER);
}

/* The next question comes before the bind: what was promised to the last pod is not there. */
Test(extender_watch, case_01_expected_pods_are_counted_until_their_bind)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	cr_expect(strstr(xa_filter(&x, "a", "u-a", ALL, "n1"), "[\"n1\"]") != NULL);
	cr_expect(strstr(xa_filter(&x, "b", "u-b", ALL, "n1 n2"), "\"NodeNames\":[\"n2\"]") !=
		  NULL);
	cr_expect(strstr(xa_filter(&x, "a", "u-a", ALL, "n1 n2"), "\"n1\"") != NULL);
	expect_bound("a", "u-a", "n1");
}

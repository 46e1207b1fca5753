/* The extender on an API server, on a fake one: every way in which a bind ends. */
#include "test/unit/two_nodes_fixture.h"

TestSuite(extender_api, .init = init, .fini = fini);

/* ---- one pod's life ---- */

Test(extender_api, from_pending_to_gone)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	expect_bound("a", "u-a", "n1");
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
	cr_expect_eq(posts("a"), 1);
	/* The repeat of a bind that is done succeeds, elsewhere it does not. */
	cr_expect_str_eq(xa_bind(&x, "a", "u-a", "n1"), "");
	cr_expect_neq(xa_bind(&x, "a", "u-a", "n2")[0], '\0');
	cr_expect_eq(posts("a"), 1);
	fake_cluster_delete(x.c, "pods", "a");
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0));
	cr_expect_not(xa_pod_known(&x, "u-a"));
}

Test(extender_api, what_is_bound_at_the_start_counts)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	expect_bound("a", "u-a", "n2");
	xa_shut(&x);
	xa_open(&x, true);
	cr_expect_eq(xa_booked(&x, "GPU-n2-0") + xa_booked(&x, "GPU-n2-1"), 10240);
}

Test(extender_api, filter_then_bind_sends_one_request)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	cr_expect(strstr(xa_filter(&x, "a", "u-a", G10, "n1 n2"),
			 "\"NodeNames\":[\"n1\",\"n2\"]") != NULL);
	expect_bound("a", "u-a", "n1");
	cr_expect_eq(fake_api_count(fake_cluster_api(x.c), "GET", "/api/v1/namespaces/ns/pods/a"),
		     0);
}

Test(extender_api, refused_without_a_post)
{
	open_ready();
	fake_cluster_pod(x.c, "big", "u-big", "\"gpu-memory\":\"90000\"");
	fake_cluster_pod(x.c, "bad", "u-bad", "\"gpu-fraction\":\"2\"");
	fake_cluster_pod(x.c, "done", "u-done", G10);
	fake_cluster_phase(x.c, "done", "Failed");
	fake_cluster_pod(x.c, "going", "u-going", G10);
	fake_cluster_terminate(x.c, "going");
	cr_expect(strstr(xa_bind(&x, "big", "u-big", "n1"), "no room") != NULL);
	cr_expect(strstr(xa_bind(&x, "bad", "u-bad", "n1"), "gpu-fraction") != NULL);
	cr_expect(strstr(xa_bind(&x, "done", "u-done", "n1"), "has ended") != NULL);
	cr_expect(strstr(xa_bind(&x, "going", "u-going", "n1"), "being deleted") != NULL);
	cr_expect(strstr(xa_bind(&x, "none", "u-none", "n1"), "is gone") != NULL);
	fake_cluster_pod(x.c, "a", "u-a", G10);
	cr_expect(strstr(xa_bind(&x, "a", "u-other", "n1"), "is gone") != NULL);
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n9"), "\"n9\" is not known") != NULL);
	cr_expect_eq(posts("big") + posts("bad") + posts("done") + posts("going") + posts("a"), 0);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 0);
}

Test(extender_api, annotations_that_leave_no_room_are_refused_before_the_post)
{
	char *big = malloc(262200);

	open_ready();
	memset(big, 'x', 262199);
	memcpy(big, "\"a\":\"", 5);
	memcpy(big + 262140, "\"," G10, strlen("\"," G10) + 1);
	fake_cluster_pod(x.c, "a", "u-a", big);
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "annotations") != NULL);
	cr_expect_eq(posts("a"), 0);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 0);
	free(big);
}

Test(extender_api, bound_by_another)
{
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	fake_cluster_bind(x.c, "a", "n1");
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "by another") != NULL);
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n2"), "bound to node \"n1\"") != NULL);
}

/* ---- every end of a POST ---- */

Test(extender_api, outcomes_of_the_post)
{
	static const struct {
		const char *name;
		struct fake_fault f;
		bool bound;
		unsigned posts;
	} rows[] = {
		{"500", {.status = 500}, true, 2},
		{"500 after", {.status = 500, .after = true}, true, 1},
		{"503 twice", {.status = 503, .times = 2}, true, 3},
		{"504 after", {.status = 504, .after = true}, true, 1},
		{"429", {.status = 429, .headers = "Retry-After: 1"}, true, 2},
		{"429 for long", {.status = 429, .headers = "Retry-After: 30"}, false, 1},
		{"reset", {.reset = true}, true, 0},
		{"reset after",
		 {.reset = true, .after = true},
		 true,
		 0 /* libcurl may send it again */},
		{"no answer after", {.silent = true, .after = true}, true, 1},
		{"409", {.status = 409}, false, 1},
		{"409 after", {.status = 409, .after = true}, true, 1},
		{"403", {.status = 403}, false, 1},
		{"422", {.status = 422}, false, 1},
	};

	open_ready();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fake_fault f = rows[i].f;
		char pod[16], uid[16];
		const char *error;

		snprintf(pod, sizeof(pod), "p%zu", i);
		snprintf(uid, sizeof(uid), "u%zu", i);
		f.method = "POST";
		f.part = "/binding";
		f.times = f.times != 0 ? f.times : 1;
		fake_cluster_pod(x.c, pod, uid, G10);
		fake_cluster_fault(x.c, f);
		error = xa_bind(&x, pod, uid, "n1");
		fake_cluster_calm(x.c);
		cr_expect_eq(error[0] == '\0', rows[i].bound, "%s: %s", rows[i].name, error);
		cr_expect_eq(fake_cluster_node_of(x.c, pod)[0] != '\0', rows[i].bound, "%s",
			     rows[i].name);
		cr_expect(rows[i].posts == 0 || posts(pod) == rows[i].posts, "%s: %u posts",
			  rows[i].name, posts(pod));
		fake_cluster_delete(x.c, "pods", pod);
		cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0), "%s: %d MiB are left", rows[i].name,
			  xa_booked(&x, "GPU-n1-0"));
		xa_check(&x);
	}
}

/* The API server is away for longer than anybody waits: the GPUs stay reserved until reading tells. */
Test(extender_api, an_open_outcome_keeps_the_gpus)
{
	x.cfg.bind_ms = 400;
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	fake_cluster_pod(x.c, "b", "u-b", ALL);
	cr_expect(strstr(xa_filter(&x, "a", "u-a", ALL, "n1"), "[\"n1\"]") != NULL);
	fake_cluster_fault(x.c, (struct fake_fault){.method = "POST",
						    .part = "/binding",
						    .times = 1,
						    .reset = true,
						    .after = true});
	fake_cluster_fault(x.c,
			   (struct fake_fault){
				   .method = "GET", .part = "/pods/a", .times = -1, .status = 500});
	fake_cluster_hold(x.c, true);
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n1"), "not known yet") != NULL);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 40960);
	cr_expect(strstr(xa_bind(&x, "b", "u-b", "n1"), "no room") != NULL);
	cr_expect(strstr(xa_bind(&x, "a", "u-a", "n2"), "to node \"n1\" is not known") != NULL);
	/* Filter offers the node of the open bind, and waits for it where that is not asked about. */
	cr_expect(strstr(xa_filter(&x, "a", "u-a", ALL, "n1 n2"), "\"NodeNames\":[\"n1\"]") !=
		  NULL);
	cr_expect(strstr(xa_filter(&x, "a", "u-a", ALL, "n2"), "is not known yet") != NULL);
	fake_cluster_calm(x.c);
	cr_expect(xa_wait_unsettled(&x, 0));
	cr_expect_str_eq(xa_bind(&x, "a", "u-a", "n1"), "");
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 40960);
	fake_cluster_hold(x.c, false);
}

Test(extender_api, an_open_outcome_that_was_nothing_frees_the_gpus)
{
	x.cfg.bind_ms = 400;
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "POST", .part = "/binding", .times = -1, .reset = true});
	cr_expect_neq(xa_bind(&x, "a", "u-a", "n1")[0], '\0');
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 40960);
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0));
	fake_cluster_calm(x.c);
	expect_bound("a", "u-a", "n2");
}

Test(extender_api, a_deleted_pod_ends_an_open_outcome)
{
	x.cfg.bind_ms = 400;
	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", ALL);
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "POST", .part = "/binding", .times = -1, .status = 500});
	cr_expect_neq(xa_bind(&x, "a", "u-a", "n1")[0], '\0');
	fake_cluster_delete(x.c, "pods", "a");
	cr_expect(xa_wait_booked(&x, "GPU-n1-0", 0));
	/* The same name is another pod. */
	fake_cluster_calm(x.c);
	fake_cluster_pod(x.c, "a", "u-a2", G10);
	expect_bound("a", "u-a2", "n1");
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
}

Test(extender_api, a_second_bind_joins_the_first)
{
	struct xa_bind one, two, three;

	open_ready();
	fake_cluster_pod(x.c, "a", "u-a", G10);
	fake_cluster_fault(
		x.c, (struct fake_fault){
			     .method = "POST", .part = "/binding", .times = 1, .delay_ms = 300});
	xa_bind_begin(&x, &one, "a", "u-a", "n1");
	xa_bind_begin(&x, &two, "a", "u-a", "n1");
	cr_expect_not(xa_bind_is_done(&two), "it waits, and holds no thread");
	xa_bind_begin(&x, &three, "a", "u-a", "n2");
	cr_expect(xa_bind_is_done(&three));
	cr_expect(strstr(xa_bind_end(&three), "not known yet") != NULL);
	cr_expect_str_eq(xa_bind_end(&one), "");
	cr_expect_str_eq(xa_bind_end(&two), "");
	cr_expect_eq(posts("a"), 1);
	cr_expect_eq(xa_booked(&x, "GPU-n1-0"), 10240);
}

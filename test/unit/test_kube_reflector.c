/* List and watch against a server that plays every line of the facts: pages, bookmarks, 410 both ways,
 * 504, 429, cuts, silence. */
#include "test/unit/reflector_fixture.h"

TestSuite(kube_reflector, .init = init, .fini = fini);

Test(kube_reflector, pages_then_watch)
{
	struct ku_reflector_stats s;
	struct fake_stream *w;

	o.field_selector = "status.phase!=Failed";
	o.label_selector = "a=b";
	answer_list("70", "t1", "a b");
	answer_list("70", "t2", "c");
	answer_list("70", NULL, "");
	w = fake_api_watch(f.api, PODS);
	start();
	cr_assert(journal_wait(&j, "synced 70"));
	expect_journal("begin\nADDED a 70\nADDED b 70\nADDED c 70\nsynced 70\n");
	cr_expect(fake_query_has(request(1), "limit=500"));
	cr_expect(fake_query_has(request(1), "resourceVersion=0"));
	cr_expect(fake_query_has(request(1), "fieldSelector=status.phase!=Failed"));
	cr_expect(fake_query_has(request(1), "labelSelector=a=b"));
	cr_expect(fake_query_has(request(2), "continue=t1"));
	cr_expect_null(strstr(request(2)->query, "resourceVersion"));
	cr_expect(fake_query_has(request(3), "continue=t2"));
	cr_expect(fake_query_has(request(4), "resourceVersion=70"));
	cr_expect(fake_query_has(request(4), "allowWatchBookmarks=true"));
	cr_expect(fake_query_has(request(4), "fieldSelector=status.phase!=Failed"));
	cr_expect(ku_reflector_synced(r));
	/* frames cut between any two bytes */
	fake_stream_put(w, kube_event_text("MODIFIED", "a", "71"), 1);
	fake_stream_put(w, kube_event_text("ADDED", "d", "72"), 7);
	fake_stream_put(w, kube_event_text("DELETED", "b", "73"), 0);
	fake_stream_put(w, kube_event_text("BOOKMARK", "", "99"), 3);
	fake_stream_put(w, kube_event_text("MODIFIED", "d", "100"), 0);
	cr_assert(journal_wait(&j, "MODIFIED a 71\nADDED d 72\nDELETED b 73\nMODIFIED d 100\n"));
	for (int i = 0; i < 5000 && !ku_reflector_reached(r, "100"); i++)
		usleep(1000); /* it is told before it counts */
	ku_reflector_get_stats(r, &s);
	cr_expect_eq(s.events, 4);
	cr_expect_eq(s.bookmarks, 1);
	cr_expect_eq(s.objects, 3);
	cr_expect(ku_reflector_reached(r, "100") && ku_reflector_reached(r, "99"));
	cr_expect_not(ku_reflector_reached(r, "101"));
}

static bool six_requests(void *ctx)
{
	(void)ctx;
	return fake_api_count(f.api, "GET", PODS) >= 6;
}

Test(kube_reflector, watch_length_is_random)
{
	struct fake_reply end = {.status = 200, .body = "", .chunk = 1};
	long length[5];
	bool different = false;

	answer_list("5", NULL, "");
	fake_api_on(f.api, "GET", PODS, "watch=1", -1, &end);
	f.patient = true;
	start();
	cr_assert(kube_fixture_run(&f, 100, six_requests, NULL));
	for (unsigned i = 0; i < 5; i++) {
		const char *p = strstr(request(i + 2)->query, "timeoutSeconds=");

		cr_assert_not_null(p);
		length[i] = strtol(p + strlen("timeoutSeconds="), NULL, 10);
		cr_expect(length[i] >= 300 && length[i] <= 600, "%ld", length[i]);
		different |= length[i] != length[0];
	}
	cr_expect(different);
}

Test(kube_reflector, goes_on_after_the_normal_end)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS), *w2 = fake_api_watch(f.api, PODS);

	fake_api_answer(f.api, "GET", PODS, 200, kube_list_text("5", NULL, "a"));
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	fake_stream_put(w, kube_event_text("BOOKMARK", "", "8"), 0);
	fake_stream_end(w, FAKE_END);
	cr_assert_not_null(request(2));
	fake_stream_put(w2, kube_event_text("ADDED", "b", "9"), 0);
	cr_assert(pass_until("ADDED b 9"));
	cr_expect(fake_query_has(request(3), "resourceVersion=8"));
	cr_expect_eq(journal_count(&j, "begin"), 1);
	cr_expect_eq(journal_count(&j, "problem"), 0);
}

/* 410 in the stream, with status 200: relist as quorum read; what is missing there is gone. */
Test(kube_reflector, expired_in_the_stream)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS);
	struct ku_reflector_stats s;

	answer_list("5", NULL, "a b c");
	answer_list("44930", NULL, "b x");
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	fake_stream_put(w, "{\"type\":\"ERROR\",\"object\":" GONE_STATUS "}\n", 5);
	fake_stream_end(w, FAKE_END);
	cr_assert(pass_until("synced 44930"));
	cr_expect(journal_has(&j,
			      "problem watch /api/v1/pods: 410 Expired: too old resource version"));
	cr_expect(journal_has(&j, "begin\nMODIFIED b 44930\nADDED x 44930\ngone a\ngone c\n"));
	cr_expect_null(strstr(request(3)->query, "resourceVersion"));
	ku_reflector_get_stats(r, &s);
	cr_expect_eq(s.expired, 1);
	cr_expect_eq(s.gone, 2);
	cr_expect_eq(s.objects, 2);
}

Test(kube_reflector, expired_as_status_of_the_watch)
{
	struct fake_reply gone = {.status = 410, .body = GONE_STATUS};

	answer_list("5", NULL, "a");
	fake_api_on(f.api, "GET", PODS, "watch=1", 1, &gone);
	answer_list("50", NULL, "");
	start();
	cr_assert(pass_until("synced 50"));
	cr_expect(journal_has(&j, "gone a"));
	cr_expect_null(strstr(request(3)->query, "resourceVersion"));
}

/* The continue token is too old: once more, in one piece. */
Test(kube_reflector, expired_page)
{
	struct fake_reply gone = {.status = 410, .body = GONE_STATUS};

	answer_list("5", "t1", "a");
	fake_api_on(f.api, "GET", PODS, "continue=t1", 1, &gone);
	answer_list("60", NULL, "a b");
	start();
	cr_assert(pass_until("synced 60"));
	cr_expect_null(strstr(request(3)->query, "limit"));
	cr_expect_null(strstr(request(3)->query, "continue"));
	expect_journal("begin\nADDED a 5\nproblem list /api/v1/pods: 410 Expired: too old resource "
		       "version: 1 (44930)\nbegin\nMODIFIED a 60\nADDED b 60\nsynced 60\n");
}

/* One page fails: that page again, not the list. */
Test(kube_reflector, page_is_tried_again)
{
	struct fake_reply busy = {.status = 429, .headers = "Retry-After: 2"};
	struct fake_reply cut = {
		.status = 200,
		.body = "{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"t2\"},\"items\":[{",
		.chunk = 10,
		.end = FAKE_END_RESET};

	answer_list("5", "t1", "a");
	fake_api_on(f.api, "GET", PODS, "continue=t1", 1, &busy);
	fake_api_on(f.api, "GET", PODS, "continue=t1", 1, &cut);
	answer_list("5", NULL, "b");
	start();
	cr_assert(pass_until("synced 5"));
	cr_expect(fake_query_has(request(4), "continue=t1"));
	cr_expect_eq(journal_count(&j, "begin"), 1);
	cr_expect_eq(journal_count(&j, "problem"), 2);
	cr_expect(journal_has(&j, "ADDED b 5"));
}

/* A server behind ours: 504 ResourceVersionTooLarge; then without a version. */
Test(kube_reflector, version_too_large)
{
	static const char too_large[] =
		"{\"kind\":\"Status\",\"code\":504,\"reason\":\"Timeout\",\"message\":\"Too large resource "
		"version: 9, current: 5\",\"details\":{\"causes\":[{\"reason\":\"ResourceVersionTooLarge\"}]}}";
	struct fake_reply behind = {.status = 504, .body = too_large, .headers = "Retry-After: 1"};

	answer_list("9", NULL, "a");
	fake_api_on(f.api, "GET", PODS, "watch=1", 1, &behind);
	answer_list("10", NULL, "a");
	start();
	cr_assert(pass_until("synced 10"));
	cr_expect_null(strstr(request(3)->query, "resourceVersion"));
	cr_expect(journal_has(&j, "problem watch /api/v1/pods: 504 Timeout: Too large"));
}

Test(kube_reflector, throttled_watch_waits)
{
	struct fake_reply busy = {.status = 429, .headers = "Retry-After: 9"};
	struct fake_stream *w;
	int64_t began;

	answer_list("9", NULL, "a");
	fake_api_on(f.api, "GET", PODS, "watch=1", 1, &busy);
	w = fake_api_watch(f.api, PODS);
	fake_stream_put(w, kube_event_text("DELETED", "a", "12"), 0);
	start();
	cr_assert(journal_wait(&j, "problem"));
	began = atomic_load(&f.clock.mono_us);
	cr_assert(pass_until("DELETED a 12"));
	cr_expect_geq(atomic_load(&f.clock.mono_us) - began, 9000000);
	cr_expect(fake_query_has(request(3), "resourceVersion=9"));
	cr_expect_eq(journal_count(&j, "begin"), 1);
}

/* A connection that is open and says nothing more. */
Test(kube_reflector, silent_watch_is_dead)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS), *w2 = fake_api_watch(f.api, PODS);
	struct ku_reflector_stats s;

	answer_list("5", NULL, "a");
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	fake_stream_put(w, kube_event_text("ADDED", "b", "6"), 0);
	cr_assert(journal_wait(&j, "ADDED b 6"));
	fake_stream_put(w2, kube_event_text("ADDED", "c", "7"), 0);
	fake_clock_add(&f.clock, 149000, f.client);
	cr_expect_not(journal_has(&j, "problem"));
	fake_clock_add(&f.clock, 2000, f.client);
	cr_assert(pass_until("ADDED c 7"));
	cr_expect(journal_has(&j, "problem watch /api/v1/pods: nothing was heard for too long"));
	cr_expect(fake_query_has(request(3), "resourceVersion=6"));
	ku_reflector_get_stats(r, &s);
	cr_expect_eq(s.dead_watches, 1);
}

/* Bookmarks come, but the server never ends the watch: over its length and slack it is dead too. */
Test(kube_reflector, endless_watch_is_dead)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS);
	struct ku_reflector_stats s;

	o.watch_min_s = o.watch_max_s = 300;
	answer_list("5", NULL, "a");
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	cr_assert_not_null(request(2));
	for (int i = 0; i < 4 && !journal_has(&j, "problem"); i++) {
		char rv[24];

		fake_clock_add(&f.clock, 100000, f.client);
		snprintf(rv, sizeof(rv), "%d", 10 + i);
		fake_stream_put(w, kube_event_text("BOOKMARK", "", rv), 0);
		for (int k = 0; k < 5000; k++) {
			ku_reflector_get_stats(r, &s);
			if (s.bookmarks > (uint64_t)i || s.dead_watches > 0)
				break;
			usleep(1000);
		}
	}
	cr_assert(pass_until("nothing was heard for too long"));
}

/* A cut in the middle of a frame: the frame comes again, nothing is lost or doubled. */
Test(kube_reflector, cut_inside_a_frame)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS), *w2 = fake_api_watch(f.api, PODS);

	answer_list("5", NULL, "a");
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	fake_stream_put(w, kube_event_text("ADDED", "b", "6"), 0);
	fake_stream_put(w, "{\"type\":\"ADDED\",\"object\":{\"metada", 0);
	cr_assert(journal_wait(&j, "ADDED b 6"));
	fake_stream_end(w, FAKE_END_RESET);
	fake_stream_put(w2, kube_event_text("ADDED", "c", "7"), 0);
	cr_assert(pass_until("ADDED c 7"));
	cr_expect(fake_query_has(request(3), "resourceVersion=6"));
	cr_expect_eq(journal_count(&j, "ADDED b 6"), 1);
	cr_expect_eq(journal_count(&j, "begin"), 1);
}

/* Rubbish in the stream: what was missed is not known, so a list. */
Test(kube_reflector, rubbish_means_relist)
{
	static const char *const rubbish[] = {
		"<html>502</html>",
		"{\"type\":\"PATCHED\",\"object\":{\"metadata\":{\"uid\":\"z\",\"resourceVersion\":\"8\"}}}\n",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"uid\":\"z\"}}}\n",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n",
		"{\"type\":\"ADDED\",\"object\":{\"a\":01}}\n",
	};
	char rv[24];

	o.silence_ms = 3600000;
	for (size_t i = 0; i < 5; i++) {
		struct fake_stream *w = fake_api_watch(f.api, PODS);

		snprintf(rv, sizeof(rv), "%zu", 5 + i);
		answer_list(rv, NULL, "a");
		fake_stream_put(w, rubbish[i], 0);
	}
	answer_list("77", NULL, "a");
	start();
	cr_assert(pass_until("synced 77"));
	cr_expect_eq(journal_count(&j, "problem watch"), 5);
	cr_expect_eq(journal_count(&j, "ADDED z"), 0);
}

Test(kube_reflector, object_over_the_limit)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS);

	o.object_max = 200;
	answer_list("5", NULL, "a");
	answer_list("6", NULL, "a");
	for (int i = 0; i < 40; i++)
		fake_stream_put(w, i == 0 ? "{\"type\":\"ADDED" : "0123456789", 0);
	start();
	cr_assert(pass_until("synced 6"));
	cr_expect(journal_has(&j, "an object of more than 200 bytes"));
}

/* What the handler cannot take in comes again. */
Test(kube_reflector, refused_object_comes_again)
{
	struct fake_stream *w;

	atomic_store(&j.refuse, 1);
	answer_list("5", NULL, "a");
	answer_list("5", NULL, "a");
	w = fake_api_watch(f.api, PODS);
	answer_list("7", NULL, "a b");
	start();
	cr_assert(pass_until("synced 5"));
	expect_journal("begin\nproblem list /api/v1/pods: refused\nbegin\nADDED a 5\nsynced 5\n");
	atomic_store(&j.refuse, 1);
	fake_stream_put(w, kube_event_text("ADDED", "b", "6"), 0);
	cr_assert(pass_until("synced 7"));
	cr_expect(journal_has(&j, "MODIFIED a 7\nADDED b 7\n"));
}

/* The server is away, forbids, or sends something else: tried again, and told each time. */
Test(kube_reflector, bad_lists_are_tried_again)
{
	struct fake_reply cut = {
		.status = 200, .body = "{\"items\":[", .chunk = 4, .end = FAKE_END_RESET};

	fake_api_answer(f.api, "GET", PODS, 403,
			"{\"kind\":\"Status\",\"reason\":\"Forbidden\",\"message\":\"no\"}");
	fake_api_answer(f.api, "GET", PODS, 500, "");
	fake_api_on(f.api, "GET", PODS, NULL, 1, &cut);
	fake_api_answer(f.api, "GET", PODS, 200, "{\"items\":[]}");
	fake_api_answer(f.api, "GET", PODS, 200, "{\"metadata\":{\"resourceVersion\":\"1\"}}");
	fake_api_answer(f.api, "GET", PODS, 200, "<html/>");
	answer_list("7", NULL, "a");
	start();
	cr_assert(pass_until("synced 7"));
	cr_expect(journal_has(&j, "problem list /api/v1/pods: 403 Forbidden: no"));
	cr_expect(journal_has(&j, "problem list /api/v1/pods: 500 from the API server"));
	cr_expect(journal_has(&j, "the list has no metadata.resourceVersion"));
	cr_expect(journal_has(&j, "the answer is no complete list"));
	cr_expect_eq(journal_count(&j, "problem"), 6);
	cr_expect_eq(journal_count(&j, "synced"), 1);
}

/* A server that ends each watch at once is not asked without a pause. */
Test(kube_reflector, short_watches_are_errors)
{
	struct fake_reply end = {.status = 200, .body = "", .chunk = 1};
	int64_t began;

	answer_list("5", NULL, "a");
	fake_api_on(f.api, "GET", PODS, "watch=1", -1, &end);
	answer_list("6", NULL, "a");
	f.patient = true;
	start();
	began = atomic_load(&f.clock.mono_us);
	cr_assert(pass_until("synced 6"));
	/* 0.8 + 1.6 + 3.2 + 6.4 + 12.8 s at least, then a list */
	cr_expect_geq(atomic_load(&f.clock.mono_us) - began, 24800000);
	cr_expect_geq(journal_count(&j, "it ended at once"), 5);
}

static bool ten_problems(void *ctx)
{
	(void)ctx;
	return journal_count(&j, "problem watch") >= 10;
}

/* The server is away for long: no list when it comes back, the place is still good. */
Test(kube_reflector, long_outage_needs_no_list)
{
	struct fake_reply away = {.status = 0, .end = FAKE_END_RESET};
	struct fake_stream *w;

	answer_list("5", NULL, "a");
	fake_api_on(f.api, "GET", PODS, "watch=1", 20, &away);
	w = fake_api_watch(f.api, PODS);
	fake_stream_put(w, kube_event_text("DELETED", "a", "6"), 0);
	start();
	cr_assert(kube_fixture_run(&f, 100, ten_problems, NULL));
	awaited = "DELETED a 6";
	cr_assert(kube_fixture_run(&f, 100, has_awaited, NULL));
	cr_expect_eq(journal_count(&j, "begin"), 1);
}

Test(kube_reflector, consistent_first_list_and_relist)
{
	struct fake_stream *w;

	o.consistent = true;
	answer_list("5", NULL, "a");
	w = fake_api_watch(f.api, PODS);
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	cr_expect_null(strstr(request(1)->query, "resourceVersion"));
	cr_assert_not_null(request(2));
	fake_stream_put(w, kube_event_text("ADDED", "b", "6"), 0);
	cr_assert(journal_wait(&j, "ADDED b 6"));
	answer_list("9", NULL, "b c");
	ku_reflector_relist(r);
	cr_expect_not(ku_reflector_reached(r, "1"));
	cr_assert(journal_wait(&j, "synced 9"));
	cr_expect(ku_reflector_synced(r));
	cr_expect_null(strstr(request(3)->query, "resourceVersion"));
	cr_expect(journal_has(&j, "MODIFIED b 9\nADDED c 9\ngone a\nsynced 9\n"));
}

/* The API server takes a NUL in the value of an annotation from anybody, and tells it as an escape: one such
 * pod is an object like others, in a list and in a watch. */
Test(kube_reflector, a_nul_in_one_object)
{
	struct fake_stream *w;

	fake_api_answer(f.api, "GET", PODS, 200,
			"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":["
			"{\"metadata\":{\"uid\":\"a\",\"resourceVersion\":\"5\",\"annotations\":"
			"{\"k\":\"\\u0000\\\\u0000\"}}},"
			"{\"metadata\":{\"uid\":\"b\",\"resourceVersion\":\"5\"}}]}");
	w = fake_api_watch(f.api, PODS);
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	fake_stream_put(w,
			"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"uid\":"
			"\"b\",\"resourceVersion\":\"6\",\"annotations\":{\"\\u0000\":\"\"}}}}\n",
			0);
	fake_stream_put(w, kube_event_text("MODIFIED", "a", "7"), 0);
	cr_assert(journal_wait(&j, "MODIFIED a 7"));
	expect_journal("begin\nADDED a 5\nADDED b 5\nsynced 5\nMODIFIED b 6\nMODIFIED a 7\n");
}

Test(kube_reflector_parts, rv_compare)
{
	static const struct {
		const char *a, *b;
		int sign; /* 9: not comparable */
	} rows[] = {
		{"1", "1", 0},
		{"9", "10", -1},
		{"10", "9", 1},
		{"123", "124", -1},
		{"0", "1", 9},
		{"01", "1", 9},
		{"", "1", 9},
		{"x", "1", 9},
		{"1", "-1", 9},
		{"1", "1 ", 9},
		{"99999999999999999999999", "1", 1},
		{"99999999999999999999998", "99999999999999999999999", -1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int cmp = 0;
		bool ok = ku_rv_compare(rows[i].a, rows[i].b, &cmp);

		cr_expect_eq(ok, rows[i].sign != 9, "%s %s", rows[i].a, rows[i].b);
		if (ok)
			cr_expect_eq((cmp > 0) - (cmp < 0), rows[i].sign, "%s %s", rows[i].a,
				     rows[i].b);
	}
}

/* Cases of list and watch that other schedulers were seen to get wrong, by their number. */
#include "base/quantity.h"
#include "test/unit/reflector_fixture.h"

TestSuite(kube_cases, .init = init, .fini = fini);

/* Case 13: deleted while the watch is down, and another pod of the same name made meanwhile. */
Test(kube_cases, case_13_deleted_while_the_watch_was_down)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS);
	struct fake_reply down = {.status = 0, .end = FAKE_END_RESET};
	struct fake_reply gone = {.status = 410, .body = GONE_STATUS};

	answer_list("5", NULL, "eight-gpus other");
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	cr_assert_not_null(request(2));
	fake_api_on(f.api, "GET", PODS, "watch=1", 2, &down);
	fake_api_on(f.api, "GET", PODS, "watch=1", 1, &gone);
	fake_stream_end(w, FAKE_END_RESET);
	answer_list("900", NULL, "other replacement");
	cr_assert(pass_until("synced 900"));
	cr_expect(journal_has(&j, "ADDED replacement 900\ngone eight-gpus\nsynced 900\n"));
	cr_expect_eq(journal_count(&j, "gone"), 1);
}

/* Case 14: a deletion lost in each way is made good: cut connection (told by the next watch), a gap
 * past 410 (told by the list), a handler that starts anew (a list from nothing). */
Test(kube_cases, case_14_lost_deletions)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS), *w2 = fake_api_watch(f.api, PODS);
	struct err err = ERR_INIT;

	answer_list("5", NULL, "a b c d");
	start();
	cr_assert(journal_wait(&j, "synced 5"));
	cr_assert_not_null(request(2));
	fake_stream_end(w, FAKE_END_RESET);
	fake_stream_put(w2, kube_event_text("DELETED", "a", "6"), 0);
	cr_assert(pass_until("DELETED a 6"));
	answer_list("700", NULL, "c d"); /* before what makes it asked for */
	fake_stream_put(w2, "{\"type\":\"ERROR\",\"object\":" GONE_STATUS "}\n", 0);
	cr_assert(pass_until("gone b\nsynced 700"));
	ku_reflector_free(r);
	answer_list("800", NULL, "d");
	cr_assert_eq(ku_reflector_new(f.client, &o, &r, &err), 0);
	cr_assert(pass_until("begin\nADDED d 800\nsynced 800\n"));
}

static struct {
	unsigned events;
	unsigned last[50]; /* version of each node */
} slow_reader;

static int on_slow_object(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	const char *uid = kube_meta(obj, "uid");
	int64_t node, rv;

	(void)ctx;
	(void)change;
	if (integer_parse(uid + 1, 0, 49, &node, err) < 0 ||
	    integer_parse(kube_meta(obj, "resourceVersion"), 0, 1 << 30, &rv, err) < 0)
		return ERR_INVALID;
	slow_reader.last[node] = (unsigned)rv;
	if (++slow_reader.events % 20 == 0)
		usleep(1000); /* scoring is busy */
	if (slow_reader.events == 10000)
		journal_add(&j, "all");
	return 0;
}

/* Case 25: 10,000 events while the reader is busy: the watch goes on, the last state wins, and at the
 * end nothing waits. */
Test(kube_cases, case_25_slow_reader)
{
	struct fake_stream *w = fake_api_watch(f.api, PODS);
	struct ku_reflector_stats s;

	o.handler.on_object = on_slow_object;
	answer_list("5", NULL, "");
	start();
	for (unsigned i = 0; i < 10000; i++) {
		char uid[16], rv[16];

		snprintf(uid, sizeof(uid), "n%u", i % 50);
		snprintf(rv, sizeof(rv), "%u", 100 + i);
		fake_stream_put(w, kube_event_text("MODIFIED", uid, rv), 0);
	}
	cr_assert(journal_wait(&j, "all"));
	for (unsigned n = 0; n < 50; n++)
		cr_expect_eq(slow_reader.last[n], 100 + 9950 + n);
	for (int i = 0; i < 5000 && !ku_reflector_reached(r, "10099"); i++)
		usleep(1000);
	ku_reflector_get_stats(r, &s);
	cr_expect_eq(s.events, 10000);
	cr_expect_eq(s.watches, 1);
	cr_expect_eq(s.problems, 0);
	cr_expect_eq(s.busy_us, 0);
}

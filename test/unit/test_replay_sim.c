/* Replays over time: queues against a simulation by counting, made-up timelines, the numbers. */
#include <stdlib.h>

#include "base/rng.h"
#include "replay/report_time.h"
#include "replay/sim.h"
#include "test/unit/replay_fixture.h"

#define TIMES_HEAD                                                                                 \
	"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,"        \
	"scheduled_time\n"

static void sim(const struct rp_trace *t, const struct rp_timeline *l, enum rp_queue queue,
		int64_t max_wait_ms, struct buf *lines, struct rp_sim_result *r)
{
	struct rp_sim_options opt = {
		.run = {.policy = po_policy_at(0), .seed = 1, .check = true, .decisions = lines},
		.queue = queue,
		.max_wait_ms = max_wait_ms,
	};
	struct err err = ERR_INIT;

	cr_assert_eq(rp_sim(t, NULL, l, &opt, r, &err), 0, "%s", err.msg);
}

/* One node of two GPUs. a takes both from 0 to 10 s; b wants both at 1 s; c wants one at 2 s. */
static const char line_pods[] = TIMES_HEAD "a,1,1,2,1000,,0,10,0\n"
					   "b,1,1,2,1000,,1,9,4\n"
					   "c,1,1,1,1000,,2,7,2\n"
					   "d,1,1,4,1000,,2,7,2\n"
					   "e,1,1,0,0,,30,31,30\n"
					   "f,1,1,0,0,,5,,\n";

Test(replay_sim, a_line_of_pods_by_hand)
{
	static const struct {
		enum rp_queue queue;
		int64_t max_wait_ms;
		const char *lines;
		size_t refused;
	} rows[] = {
		{RP_QUEUE_FIFO, 0, "0,a,n,0-1\n2000,d,,\n10000,b,n,0-1\n15000,c,n,0\n30000,e,n,\n",
		 1},
		{RP_QUEUE_BACKFILL, 0,
		 "0,a,n,0-1\n2000,d,,\n10000,b,n,0-1\n15000,c,n,0\n30000,e,n,\n", 1},
		{RP_QUEUE_NONE, 0, "0,a,n,0-1\n1000,b,,\n2000,c,,\n2000,d,,\n30000,e,n,\n", 3},
		{RP_QUEUE_BACKFILL, 8500,
		 "0,a,n,0-1\n2000,d,,\n9500,b,,\n10000,c,n,0\n30000,e,n,\n", 2},
	};
	struct rp_timeline l;
	struct err err = ERR_INIT;
	struct rp_trace t;

	trace_of(&t, NODES_HEAD "n,96000,400000,2,G2\n", line_pods);
	cr_assert_eq(rp_timeline_trace(&t, &l, &err), 0);
	cr_assert_eq(l.count, 5);
	cr_assert_eq(l.left_out, 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf lines = BUF_INIT;
		struct rp_sim_result r;

		sim(&t, &l, rows[i].queue, rows[i].max_wait_ms, &lines, &r);
		cr_expect_str_eq(buf_str(&lines), rows[i].lines, "row %zu", i);
		cr_expect_eq(r.refused, rows[i].refused, "row %zu", i);
		cr_expect_eq(r.impossible, 1);
		cr_expect_eq(r.arrivals, 5);
		buf_fini(&lines);
	}
	rp_timeline_fini(&l);
	rp_trace_fini(&t);
}

Test(replay_sim, means_over_time_by_hand)
{
	struct rp_sim_result r;
	struct rp_timeline l;
	struct err err = ERR_INIT;
	struct rp_trace t;
	int64_t used = 0, waiting = 0;

	trace_of(&t, NODES_HEAD "n,96000,400000,2,G2\n", line_pods);
	cr_assert_eq(rp_timeline_trace(&t, &l, &err), 0);
	sim(&t, &l, RP_QUEUE_FIFO, 0, NULL, &r);
	/* Two GPUs for 10 s and 5 s, one for 5 s, of two for 30 s; b waits 9 s for two, c 13 s. */
	cr_expect_eq(r.used_centi, 5833);
	cr_expect_eq(r.waited_gpu_s, 2000 * 9 + 1000 * 13);
	cr_expect_eq(r.asked_gpu_s, 2000 * 10 + 2000 * 5 + 1000 * 5 + 4000 * 5);
	cr_expect_eq(r.refused_gpu_s, 4000 * 5);
	cr_expect_eq(r.wait_max_ms, 13000);
	cr_expect_eq(r.wait_mean_ms, 5500);
	cr_expect_eq(r.wait_p50_ms, 0);
	cr_expect_eq(r.at_once, 2);
	cr_expect_eq(r.waited, 2);
	for (size_t i = 0; i < RP_SIM_POINTS; i++) {
		used += r.points[i].used_milli;
		waiting += r.points[i].waiting_milli;
	}
	cr_expect_leq(llabs(used * 30 / RP_SIM_POINTS - 35000), 100);
	cr_expect_leq(llabs(waiting * 30 / RP_SIM_POINTS - 31000), 100);
	rp_timeline_fini(&l);
	rp_trace_fini(&t);
}

/* On one node whole GPUs are a number, so a queue can be played by counting. */
static size_t by_counting(const struct rp_trace *t, const struct rp_timeline *l, bool fifo,
			  int64_t *starts)
{
	int64_t left = 8;
	bool gone[64] = {false};
	size_t started = 0;

	for (size_t i = 0; i < l->count; i++)
		starts[i] = -1;
	for (int64_t now = 0; now < 6000; now++) {
		for (size_t i = 0; i < l->count; i++)
			if (starts[i] >= 0 && !gone[i] && starts[i] + l->visits[i].stay_ms <= now) {
				gone[i] = true;
				left += t->shapes[t->pods[l->visits[i].pod]].milli / 1000;
			}
		for (size_t i = 0; i < l->count && l->visits[i].at_ms <= now; i++) {
			int64_t want = t->shapes[t->pods[l->visits[i].pod]].milli / 1000;

			if (starts[i] >= 0)
				continue;
			if (want > left) {
				if (fifo)
					break;
				continue;
			}
			starts[i] = now;
			left -= want;
			started++;
		}
	}
	return started;
}

Test(replay_sim, queues_are_as_counted_by_hand_on_random_lines)
{
	struct rp_trace t;
	struct rng rng;

	trace_of(&t, NODES_HEAD "n,96000,400000,8,G2\n",
		 PODS_HEAD "a,1,1,1,1000,\nb,1,1,2,1000,\nc,1,1,4,1000,\nd,1,1,8,1000,\n");
	rng_init(&rng, 7);
	for (int round = 0; round < 60; round++) {
		struct rp_visit visits[40];
		struct rp_timeline l = {.visits = visits, .count = 40, .end_ms = 6000};
		bool fifo = round % 2 == 0;
		int64_t starts[40], wait = 0;
		struct rp_sim_result r;

		for (size_t i = 0; i < 40; i++)
			visits[i] = (struct rp_visit){
				.at_ms = (i > 0 ? visits[i - 1].at_ms : 0) +
					 (int64_t)rng_below(&rng, 30),
				.stay_ms = 1 + (int64_t)rng_below(&rng, 60),
				.pod = (uint32_t)rng_below(&rng, 4),
			};
		cr_assert_eq(by_counting(&t, &l, fifo, starts), 40);
		sim(&t, &l, fifo ? RP_QUEUE_FIFO : RP_QUEUE_BACKFILL, 0, NULL, &r);
		for (size_t i = 0; i < 40; i++)
			if (starts[i] - visits[i].at_ms > wait)
				wait = starts[i] - visits[i].at_ms;
		cr_expect_eq(r.at_once + r.waited, 40);
		cr_expect_eq(r.wait_max_ms, wait, "round %d", round);
	}
	rp_trace_fini(&t);
}

Test(replay_sim, a_made_up_timeline_has_the_load_and_is_the_same_again)
{
	struct rp_made how = RP_MADE_DEFAULT;
	struct rp_timeline a, b;
	struct err err = ERR_INIT;
	struct rp_trace t;
	__int128 work = 0;
	size_t met = 0;

	trace_of(&t, small_nodes, small_pods);
	how.count = 200000;
	how.load_nano = 800000000;
	cr_assert_eq(rp_timeline_made(&t, &how, &a, &err), 0);
	cr_assert_eq(rp_timeline_made(&t, &how, &b, &err), 0);
	cr_assert_eq(a.count, b.count);
	for (size_t i = 0; i < a.count; i++) {
		cr_assert(a.visits[i].at_ms == b.visits[i].at_ms &&
			  a.visits[i].stay_ms == b.visits[i].stay_ms &&
			  a.visits[i].pod == b.visits[i].pod);
		cr_assert(i == 0 || a.visits[i].at_ms >= a.visits[i - 1].at_ms);
		cr_assert(a.visits[i].stay_ms > 0 && a.visits[i].stay_ms <= INT64_C(2678400000));
		met += a.visits[i].at_ms == 0;
		if (a.visits[i].at_ms > 0)
			work += (__int128)a.visits[i].stay_ms *
				t.shapes[t.pods[a.visits[i].pod]].milli;
	}
	cr_expect_gt(met, 3);
	cr_expect_lt(met, 200);
	/* 0.8 of 20 GPUs, within the scatter of 200,000 heavy-tailed stays. */
	cr_expect_leq(llabs((int64_t)(work / a.end_ms) - 16000), 800);
	rp_timeline_fini(&a);
	rp_timeline_fini(&b);
	rp_trace_fini(&t);
}

Test(replay_sim, times_of_a_trace_are_read_strictly)
{
	static const struct {
		const char *row, *message;
	} bad[] = {
		{"a,1,1,1,500,,x,2,1\n", "p.csv:2:14: field creation_time: \"x\""},
		{"a,1,1,1,500,,0,1,2\n", "p.csv:2:16: field deletion_time: \"1\" is before"},
		{"a,1,1,1,500,,0,1,-2\n", "p.csv:2:18: field scheduled_time: \"-2\""},
		{"a,1,1,1,500,,0,99999999999,2\n", "field deletion_time"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char text[512];
		struct err err = ERR_INIT;
		struct rp_trace t;

		snprintf(text, sizeof(text), TIMES_HEAD "%s", bad[i].row);
		rp_trace_init(&t);
		cr_assert_eq(rp_trace_open(&t, &err), 0);
		cr_expect_lt(rp_openb_pods(&t, "p.csv", text, strlen(text), &err), 0);
		cr_expect_not_null(strstr(err.msg, bad[i].message), "%s", err.msg);
		rp_trace_fini(&t);
	}
}

Test(replay_sim, a_trace_without_times_is_refused)
{
	struct rp_timeline l;
	struct err err = ERR_INIT;
	struct rp_trace t;

	trace_of(&t, small_nodes, small_pods);
	cr_expect_eq(rp_timeline_trace(&t, &l, &err), ERR_INVALID);
	cr_expect_not_null(strstr(err.msg, "no pod of the trace has a time"));
	rp_trace_fini(&t);
}

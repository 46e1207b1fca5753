/* Which GPUs of a node a request is given. Why it is refused: test_verdict.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "binpack/binpack_internal.h"
#include "test/lib/place.h"

static const struct place_class mix1[] = {
	{5,
	 4000,
	 {.kind = ST_KIND_SHARE, .mode = ST_MODE_TIME_SLICING, .count = 1, .request_mib = 500},
	 NULL},
	{3, 8000, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL},
	{2, 2000, {.count = 0}, NULL}};

static const enum bp_pick deterministic[] = {BP_PICK_MEASURE, BP_PICK_BEST_FIT, BP_PICK_FIRST,
					     BP_PICK_WORST_FIT};

struct setup {
	struct st_cluster *c;
	struct fr_measure *m;
	uint32_t node;
	struct st_decision d;
	int32_t score;
};

/* A node of GPUs of 1000 MiB with that much left; below 0: that much, in sm-sharing. */
static struct setup node_of(int64_t cpu_milli, const int32_t *left, size_t count)
{
	struct setup s = {.c = st_cluster_new(NULL)};

	s.node = place_node(s.c, "n", cpu_milli, count, 1000);
	for (size_t i = 0; i < count; i++) {
		int32_t mib = left[i] < 0 ? -left[i] : left[i];
		struct st_item it = left[i] < 0 ? place_sm(1000 - mib, 0) : place_share(1000 - mib);
		char uid[24];

		snprintf(uid, sizeof(uid), "g%zu", i);
		if (mib < 1000)
			place_hold(s.c, s.node, uid, &it, (unsigned)i, 0);
	}
	return s;
}

static void measure_by(struct setup *s, enum fr_kind kind, const struct place_class *mix,
		       size_t count)
{
	fr_measure_free(s->m);
	s->m = place_measure(s->c, kind, mix, count);
}

static enum bp_verdict choose(struct setup *s, enum bp_pick pick, const struct st_request *req)
{
	struct bp_chooser how = {.pick = pick, .measure = s->m, .salt = 7};
	uint64_t log = st_cluster_log_end(s->c);
	enum bp_verdict v;

	memset(&s->d, 0xaa, sizeof(s->d));
	s->score = -12345;
	v = bp_choose(s->c, &how, s->node, req, &s->d, &s->score);
	cr_assert_eq(st_cluster_log_end(s->c), log, "choosing changed the cluster");
	if (v == BP_OK) {
		struct st_pod_ident id = place_ident("new", 0, req->cpu_milli);
		struct err err = ERR_INIT;

		cr_assert_eq(st_cluster_can_book(s->c, &id, &s->d, true, &err), 0, "%s", err.msg);
	}
	return v;
}

static void expect_gpu(struct setup *s, enum bp_pick pick, const struct st_request *req, int gpu)
{
	cr_expect_eq(choose(s, pick, req), BP_OK);
	cr_expect_eq(s->d.grants[0].count, 1);
	cr_expect_eq(s->d.grants[0].gpu[0], gpu, "GPU %d, not %d", s->d.grants[0].gpu[0], gpu);
}

static void done(struct setup *s)
{
	fr_measure_free(s->m);
	st_cluster_free(s->c);
}

/* ---- one share ---- */

Test(choose, the_better_score_wins)
{
	static const int32_t a[] = {700, 1000}, b[] = {1000, 700};
	struct st_request req = place_request(2000, place_share(300));
	struct setup s = node_of(16000, a, 2), t = node_of(16000, b, 2);

	measure_by(&s, FR_FGD, mix1, 3);
	measure_by(&t, FR_FGD, mix1, 3);
	expect_gpu(&s, BP_PICK_MEASURE, &req, 0);
	cr_expect_eq(s.score, 48);
	expect_gpu(&t, BP_PICK_MEASURE, &req, 1);
	cr_expect_eq(t.score, 48);
	cr_expect_eq(s.d.node, s.node);
	cr_expect_eq(s.d.grant_count, 1);
	cr_expect_eq(s.d.grants[0].kind, ST_KIND_SHARE);
	cr_expect_eq(s.d.grants[0].mode, ST_MODE_TIME_SLICING);
	cr_expect_eq(s.d.grants[0].request_mib, 300);
	cr_expect_eq(s.d.grants[0].limit_mib, 300);
	cr_expect_str_eq(s.d.grants[0].container, "c0");
	done(&s);
	done(&t);
}

/* What is lost between two steps of the score is lost: the first index stands. */
Test(choose, the_first_of_equal_scores_wins)
{
	static const struct place_class mix[] = {{1,
						  0,
						  {.kind = ST_KIND_SHARE,
						   .mode = ST_MODE_TIME_SLICING,
						   .count = 1,
						   .request_mib = 300},
						  NULL},
						 {99, 0, {.count = 0}, NULL}};
	static const int32_t equal[] = {700, 1000}, near[] = {310, 400}, twins[] = {500, 500, 400};
	struct st_request req = place_request(2000, place_share(300)),
			  small = place_request(0, place_share(20));
	struct setup s = node_of(5000, equal, 2), t = node_of(5000, near, 2),
		     u = node_of(5000, twins, 3);

	measure_by(&s, FR_FGD, mix1, 3);
	expect_gpu(&s, BP_PICK_MEASURE, &req, 0); /* 36 on both */
	cr_expect_eq(s.score, 36);
	measure_by(&t, FR_FGD, mix, 2);
	expect_gpu(&t, BP_PICK_MEASURE, &small,
		   0); /* loses 2.9 milli that GPU 1 would not: 50 on both */
	cr_expect_eq(t.score, 50);
	for (size_t i = 1; i < 4; i++)
		expect_gpu(&u, deterministic[i], &small, i == 1 ? 2 : 0);
	done(&s);
	done(&t);
	done(&u);
}

Test(choose, fits_by_memory)
{
	static const int32_t left[] = {900, 300, 1000, 300, 950};
	struct st_request req = place_request(0, place_share(250)),
			  large = place_request(0, place_share(920));
	struct setup s = node_of(5000, left, 5);

	expect_gpu(&s, BP_PICK_BEST_FIT, &req, 1);
	expect_gpu(&s, BP_PICK_WORST_FIT, &req, 2);
	expect_gpu(&s, BP_PICK_FIRST, &req, 0);
	expect_gpu(&s, BP_PICK_BEST_FIT, &large, 4);
	expect_gpu(&s, BP_PICK_FIRST, &large, 2);
	cr_expect_eq(s.score, 0); /* no measure, no score */
	done(&s);
}

Test(choose, random_pick)
{
	static const int32_t left[] = {900, 300, 1000, 100, 950};
	struct st_request req = place_request(0, place_share(250));
	struct setup s = node_of(5000, left, 5);
	unsigned seen[5] = {0};

	for (uint64_t salt = 0; salt < 4000; salt++) {
		struct bp_chooser how = {.pick = BP_PICK_RANDOM, .salt = salt};

		cr_assert_eq(bp_choose(s.c, &how, s.node, &req, &s.d, NULL), BP_OK);
		seen[s.d.grants[0].gpu[0]]++;
	}
	cr_expect_eq(seen[3], 0);
	for (int i = 0; i < 5; i++) /* expected 1000 each, sd 27 */
		cr_expect(i == 3 || (seen[i] > 860 && seen[i] < 1140), "GPU %d: %u", i, seen[i]);
	done(&s);
}

/* ---- modes ---- */

/* Where the workload knows several modes, equal scores go to a GPU that is in the mode already. */
Test(choose, ties_go_to_the_gpu_in_the_mode)
{
	static const struct place_class mix[] = {
		{98, 0, {.count = 0}, NULL},
		{1,
		 0,
		 {.kind = ST_KIND_SHARE,
		  .mode = ST_MODE_TIME_SLICING,
		  .count = 1,
		  .request_mib = 1},
		 NULL},
		{1,
		 0,
		 {.kind = ST_KIND_SHARE, .mode = ST_MODE_SM_SHARING, .count = 1, .request_mib = 1},
		 NULL}};
	static const int32_t left[] = {1000, 500}, other[] = {1000, -500};
	struct st_request req = place_request(0, place_share(20));
	struct setup s = node_of(5000, left, 2), t = node_of(5000, other, 2);

	measure_by(&s, FR_FGD, mix, 3);
	expect_gpu(&s, BP_PICK_MEASURE, &req, 1); /* 50 on both */
	cr_expect_eq(s.score, 50);
	measure_by(&s, FR_FGD, mix, 2); /* one mode only: the index decides */
	expect_gpu(&s, BP_PICK_MEASURE, &req, 0);
	measure_by(&t, FR_FGD, mix, 3);
	expect_gpu(&t, BP_PICK_MEASURE, &req, 0); /* GPU 1 is in the other mode */
	done(&s);
	done(&t);
}

Test(choose, a_preferred_mode_falls_back)
{
	static const int32_t left[] = {-600, 200}, no_ts[] = {-600, 0}, full[] = {-100, 200};
	struct st_item it = place_share(100);
	struct st_request req, strict = place_request(0, it), large;
	struct setup s = node_of(5000, left, 2), t = node_of(5000, no_ts, 2),
		     u = node_of(5000, full, 2);

	it.mode_preferred = true;
	req = place_request(0, it);
	it.request_mib = 300;
	large = place_request(0, it);
	measure_by(&s, FR_CA, NULL, 0);
	measure_by(&t, FR_CA, NULL, 0);
	measure_by(&u, FR_CA, NULL, 0);
	for (size_t i = 0; i < 4; i++) {
		expect_gpu(&s, deterministic[i], &req, 1); /* the wanted mode has room */
		cr_expect_eq(s.d.grants[0].mode, ST_MODE_TIME_SLICING);
		expect_gpu(&t, deterministic[i], &req, 0);
		cr_expect_eq(t.d.grants[0].mode, ST_MODE_SM_SHARING);
		cr_expect_eq(choose(&t, deterministic[i], &strict), BP_MODE);
		expect_gpu(&s, deterministic[i], &large, 0);
		cr_expect_eq(s.d.grants[0].mode, ST_MODE_SM_SHARING);
		cr_expect_eq(choose(&u, deterministic[i], &large), BP_MEMORY);
	}
	done(&s);
	done(&t);
	done(&u);
}

/* A share of compute is counted in sm-sharing only. */
Test(choose, compute_shares)
{
	static const int32_t idle[] = {1000, 1000};
	struct st_item sm = place_sm(100, 600000000), ts = sm;
	struct st_request req = place_request(0, sm), flexible;
	struct setup s = node_of(5000, idle, 2);

	sm.mode_preferred = true;
	flexible = place_request(0, sm);
	ts.mode = ST_MODE_TIME_SLICING;
	place_hold(s.c, s.node, "a", &sm, 0, 0);
	place_hold(s.c, s.node, "b", &ts, 1, 0);
	cr_expect_eq(choose(&s, BP_PICK_BEST_FIT, &req), BP_COMPUTE);
	expect_gpu(&s, BP_PICK_BEST_FIT, &flexible, 1);
	cr_expect_eq(s.d.grants[0].mode, ST_MODE_TIME_SLICING);
	cr_expect_eq(s.d.grants[0].compute_nano, 600000000);
	done(&s);
}

/* ---- memory-bound neighbours ---- */

Test(choose, memory_bound_pods_avoid_each_other)
{
	static const int32_t idle[] = {1000, 1000, 1000};
	struct st_request req = place_request(0, place_share(100)), calm = req, two;
	struct setup s = node_of(5000, idle, 3);
	struct st_item it = place_share(500);
	struct st_pod_ident bound = place_ident("bound", 0, 0);

	req.workload = ST_WORKLOAD_MEMORY_BOUND;
	calm.workload = ST_WORKLOAD_COMPUTE_BOUND;
	bound.memory_bound = true;
	place_hold_as(s.c, s.node, &bound, &it, 0, 0);
	measure_by(&s, FR_CA, NULL, 0);
	expect_gpu(&s, BP_PICK_BEST_FIT, &calm, 0);
	for (size_t i = 0; i < 4; i++)
		expect_gpu(&s, deterministic[i], &req, 1);
	cr_expect_gt(s.score, -BP_NEIGHBOUR_PENALTY / 2);
	two = req;
	two.items[0].count = 2;
	for (size_t i = 0; i < 4; i++) {
		cr_expect_eq(choose(&s, deterministic[i], &two), BP_OK);
		cr_expect_eq(s.d.grants[0].gpu[0] + s.d.grants[0].gpu[1], 3);
	}
	/* Nowhere else to go: there after all, but worse than any other node. */
	it = place_whole(2);
	place_hold(s.c, s.node, "whole", &it, 1, 0);
	place_sync(s.m, s.c);
	for (size_t i = 0; i < 4; i++) {
		expect_gpu(&s, deterministic[i], &req, 0);
		cr_expect_lt(s.score, -BP_NEIGHBOUR_PENALTY / 2);
	}
	done(&s);
}

/* ---- whole GPUs, and shares of several ---- */

Test(choose, the_first_idle_gpus)
{
	static const int32_t left[] = {700, 1000, 1000, -400, 1000};
	struct st_request req = place_request(8000, place_whole(2));
	struct setup s = node_of(16000, left, 5);

	measure_by(&s, FR_FGD, mix1, 3);
	for (size_t i = 0; i < 4; i++) {
		cr_expect_eq(choose(&s, deterministic[i], &req), BP_OK);
		cr_expect_eq(s.d.grants[0].count, 2);
		cr_expect_eq(s.d.grants[0].gpu[0], 1);
		cr_expect_eq(s.d.grants[0].gpu[1], 2);
		cr_expect_eq(s.d.grants[0].mode, ST_MODE_EXCLUSIVE);
		cr_expect_eq(s.d.grants[0].request_mib, 1000);
	}
	done(&s);
}

Test(choose, score_of_whole_gpus)
{
	static const int32_t left[] = {1000, 400};
	struct st_request req = place_request(8000, place_whole(1)), cpu = place_cpu(12000);
	struct setup s = node_of(16000, left, 2);

	measure_by(&s, FR_FGD, mix1, 3);
	expect_gpu(&s, BP_PICK_MEASURE, &req, 0);
	cr_expect_eq(s.score, 54);
	cr_expect_eq(choose(&s, BP_PICK_MEASURE, &cpu), BP_OK);
	cr_expect_eq(s.d.grant_count, 0);
	/* N 6000 -> CPU 4000: 5 * 400 + 3 * 1400 + 2 * 1400 = 9000, so dF = 300 */
	cr_expect_eq(s.score, 42);
	done(&s);
}

static struct setup node_of_sizes(const int32_t *mib, size_t count)
{
	struct st_gpu_spec gpus[ST_GPUS_MAX] = {0};
	struct st_node_spec spec = {
		.name = "n", .cpu_milli = 64000, .gpu_count = count, .gpus = gpus};
	struct setup s = {.c = st_cluster_new(NULL)};

	for (size_t i = 0; i < count; i++)
		gpus[i].mem_mib = mib[i];
	cr_assert_eq(st_cluster_node_put(s.c, &spec, &s.node, NULL), 0);
	return s;
}

/* One amount is booked on each GPU, so a fraction of GPUs of different sizes cannot be given. */
Test(choose, a_fraction_of_several_gpus_needs_one_size)
{
	static const int32_t mib[] = {1000, 4000, 2000, 4000};
	struct st_item it = place_fraction(500000000);
	struct setup s = node_of_sizes(mib, 4);
	struct st_request req;

	it.count = 2;
	req = place_request(0, it);
	measure_by(&s, FR_CA, NULL, 0);
	for (size_t i = 0; i < 4; i++) {
		cr_expect_eq(choose(&s, deterministic[i], &req), BP_OK);
		cr_expect_eq(s.d.grants[0].count, 2);
		cr_expect_eq(s.d.grants[0].gpu[0] + s.d.grants[0].gpu[1], 4);
		cr_expect_eq(s.d.grants[0].request_mib, 2000);
	}
	req.items[0].count = 3;
	cr_expect_eq(choose(&s, BP_PICK_BEST_FIT, &req), BP_TOO_FEW);
	req.items[0].request_nano = 0; /* an amount is the same on all */
	req.items[0].request_mib = 800;
	req.items[0].count = 4;
	cr_expect_eq(choose(&s, BP_PICK_BEST_FIT, &req), BP_OK);
	done(&s);
}

/* Equal requests (both are 1 MiB) with limits that differ cannot be given either. */
Test(choose, limits_of_several_gpus_are_one_amount)
{
	static const int32_t mib[] = {20000, 10000};
	struct st_item it = place_fraction(10000);
	struct setup s = node_of_sizes(mib, 2);
	struct st_request req;

	it.limit_nano = 800000000;
	it.count = 2;
	req = place_request(0, it);
	cr_expect_eq(choose(&s, BP_PICK_FIRST, &req), BP_TOO_FEW);
	req.items[0].limit_nano = 0;
	cr_expect_eq(choose(&s, BP_PICK_FIRST, &req), BP_OK);
	done(&s);
}

/* ---- several containers ---- */

Test(choose, containers_of_one_pod)
{
	static const int32_t idle[] = {1000, 1000, 1000};
	struct st_request req = place_request(0, place_share(300));
	struct setup s = node_of(5000, idle, 3);

	place_add(&req, place_sm(300, 0));
	place_add(&req, place_whole(1));
	measure_by(&s, FR_CA, NULL, 0);
	for (size_t i = 0; i < 4; i++) {
		cr_expect_eq(choose(&s, deterministic[i], &req), BP_OK);
		cr_expect_eq(s.d.grant_count, 3);
		cr_expect_str_eq(s.d.grants[2].container, "c2");
		cr_expect_eq(s.d.grants[0].gpu[0] + s.d.grants[1].gpu[0] + s.d.grants[2].gpu[0], 3);
		cr_expect_eq(s.d.grants[1].mode, ST_MODE_SM_SHARING);
	}
	place_add(&req, place_sm(800, 0));
	cr_expect_eq(choose(&s, BP_PICK_MEASURE, &req), BP_COMBINATION);
	req.items[3].request_mib = 700; /* beside the other sm-sharing container */
	cr_expect_eq(choose(&s, BP_PICK_MEASURE, &req), BP_OK);
	cr_expect_eq(s.d.grants[3].gpu[0], s.d.grants[1].gpu[0]);
	done(&s);
}

/* The first try, the emptiest GPUs first, ends in a corner; there is a way. */
Test(choose, a_dead_end_is_left)
{
	static const int32_t left[] = {500, 999, 500};
	struct st_item two = place_share(400);
	struct st_request req;
	struct setup s = node_of(5000, left, 3);

	two.count = 2;
	req = place_request(0, two);
	place_add(&req, place_share(700));
	measure_by(&s, FR_CA, NULL, 0);
	cr_expect_eq(choose(&s, BP_PICK_WORST_FIT, &req), BP_OK);
	cr_expect_eq(s.d.grants[1].gpu[0], 1);
	cr_expect_eq(s.d.grants[0].gpu[0] + s.d.grants[0].gpu[1], 2);
	cr_expect_eq(choose(&s, BP_PICK_MEASURE, &req), BP_OK);
	cr_expect_eq(choose(&s, BP_PICK_RANDOM, &req), BP_OK);
	done(&s);
}

/* Of GPUs that are alike one is tried, not all: 15 of them would be 6435 ways to choose 7. */
Test(choose, a_dead_end_among_many_alike)
{
	int32_t left[16];
	struct st_item eight = place_share(400);
	struct st_request req;
	struct setup s;

	for (int i = 0; i < 16; i++)
		left[i] = i == 9 ? 999 : 500;
	s = node_of(5000, left, 16);
	eight.count = 8;
	req = place_request(0, eight);
	place_add(&req, place_share(700));
	cr_expect_eq(choose(&s, BP_PICK_WORST_FIT, &req), BP_OK);
	cr_expect_eq(s.d.grants[1].gpu[0], 9);
	req.items[1].request_mib = 1000; /* and there is no way, which is found out soon */
	cr_expect_eq(choose(&s, BP_PICK_WORST_FIT, &req), BP_MEMORY);
	req.items[0].count = 15;
	req.items[0].request_mib = 450;
	req.items[1].request_mib = 600;
	place_add(&req, place_share(60));
	cr_expect_eq(choose(&s, BP_PICK_WORST_FIT, &req), BP_OK);
	place_add(&req, place_share(400));
	cr_expect_eq(choose(&s, BP_PICK_WORST_FIT, &req), BP_COMBINATION);
	done(&s);
}

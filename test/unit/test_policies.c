/* The policy table, the node scores of the baselines by hand, and what is learned and reported. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fragmentation/measure_internal.h"
#include "policy/policy_internal.h"
#include "test/lib/place.h"

Test(policies, table)
{
	size_t n = 0;

	cr_expect_str_eq(po_policy_at(0)->name, "ca-fgd");
	for (; po_policy_at(n); n++) {
		const struct po_policy *p = po_policy_at(n);

		cr_expect_gt(strlen(p->name), 2);
		cr_expect_gt(strlen(p->help), 10, "%s", p->name);
		cr_expect_null(strchr(p->help, '\n'));
		cr_expect_eq(po_policy_find(p->name), p);
		cr_expect_eq(p->uses_measure, p->pick == BP_PICK_MEASURE, "%s", p->name);
		for (size_t i = 0; i < n; i++)
			cr_expect_str_neq(po_policy_at(i)->name, p->name);
	}
	cr_expect_geq(n, 8);
	cr_expect_null(po_policy_at(n + 1));
	cr_expect_null(po_policy_find("no such"));
	cr_expect_null(po_policy_find(""));
	cr_expect_null(po_policy_find("ca-fgd "));
}

/* ---- scores by hand ---- */

struct world {
	struct st_cluster *c;
	uint32_t node;
};

/* Devices of 1000 MiB with that much left; 0 = given whole. */
static struct world world_of(int64_t cpu_milli, const int32_t *left, size_t count)
{
	struct world w = {.c = st_cluster_new(NULL)};

	w.node = place_node(w.c, "n", cpu_milli, count, 1000);
	for (size_t i = 0; i < count; i++) {
		struct st_item it = left[i] == 0 ? place_whole(1) : place_share(1000 - left[i]);
		char uid[24];

		snprintf(uid, sizeof(uid), "g%zu", i);
		if (left[i] < 1000)
			place_hold(w.c, w.node, uid, &it, (unsigned)i, 0);
	}
	return w;
}

static int32_t score(const struct world *w, const char *policy, const struct st_request *req)
{
	struct po_options opt = {.policy = po_policy_find(policy)};
	struct po_placer *p = po_placer_new(w->c, &opt);
	struct po_answer a;

	cr_assert_not_null(opt.policy, "%s", policy);
	a = po_shape_node(po_placer_ask(p, req, 0), w->node);
	cr_assert_eq(a.verdict, BP_OK, "%s: %s", policy, bp_verdict_text(a.verdict));
	po_placer_free(p);
	return a.score;
}

struct row {
	const char *policy;
	int64_t cpu;
	int32_t left[8];
	size_t gpus;
	int64_t pod_cpu;
	int32_t share; /* 0: whole devices, or none */
	int whole;
	int32_t score;
};

static const struct row rows[] = {
	/* (256000 - 14000 - 16 * 1400) / 2560 = 85.8 */
	{"bestfit", 16000, {700, 1000}, 2, 2000, 300, 0, 85},
	/* (256000 - 8000 - 16 * 0) / 2560 = 96.9: nothing left */
	{"bestfit", 16000, {1000, 1000}, 2, 8000, 0, 2, 96},
	/* (256000 - 127000 - 16 * 8000) / 2560 = 0.4 */
	{"bestfit", 128000, {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, 8, 1000, 0, 0, 0},
	/* 100 - (50 * 16000 * 2000 + 12800 * 1700 * 300) / 128000^2 = 99.5 */
	{"dotprod", 16000, {700, 1000}, 2, 2000, 300, 0, 99},
	/* 100 - (50 * 128000 * 64000 + 12800 * 8000 * 8000) / 128000^2 = 25 */
	{"dotprod", 128000, {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, 8, 64000, 0, 8, 25},
	{"dotprod", 128000, {1000}, 1, 0, 0, 0, 100},
	/* q = 25 * (8000 - 1700) / 8000 = 19; only pods of the kind: 75 */
	{"clustering", 16000, {700, 1000}, 2, 0, 300, 0, 94},
	/* only others: 0 */
	{"clustering", 16000, {700, 1000}, 2, 0, 0, 1, 19},
	/* both kinds: 50; q = 25 * (8000 - 1700) / 8000 */
	{"clustering", 16000, {700, 0, 1000}, 3, 0, 300, 0, 69},
	{"clustering", 16000, {700, 0, 1000}, 3, 0, 0, 1, 69},
	/* no GPU pod at all: 25; q = 25 * 6000 / 8000 = 18 */
	{"clustering", 16000, {1000, 1000}, 2, 0, 300, 0, 43},
	/* pods of 1 GPU are another kind than those of 2 */
	{"clustering", 16000, {0, 1000, 1000}, 3, 0, 0, 2, 18},
	{"clustering", 16000, {700, 1000}, 2, 100, 0, 0, 0},
	/* all idle: max(33 - free, free) */
	{"packing", 16000, {1000, 1000}, 2, 0, 300, 0, 31},
	{"packing", 16000, {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, 8, 0, 0, 1, 25},
	/* on a used device: 100 - its milli / 100, at least 50; the smallest one that fits */
	{"packing", 16000, {700, 1000}, 2, 0, 300, 0, 93},
	{"packing", 16000, {700, 350, 299}, 3, 0, 300, 0, 97},
	/* an idle one is opened: max(50 - 1, 33) */
	{"packing", 16000, {299, 1000}, 2, 0, 300, 0, 49},
	{"packing", 16000, {299, 1000, 1000}, 3, 0, 0, 1, 49},
	{"packing", 16000, {299, 1000, 1000}, 3, 0, 0, 2, 48},
	{"packing", 16000, {299, 1000, 1000}, 3, 100, 0, 0, 0},
	{"firstfit", 16000, {700, 1000}, 2, 2000, 300, 0, 0},
	/* milli left of all, in thousandths */
	{"spread", 16000, {700, 1000}, 2, 2000, 300, 0, 700},
	{"spread", 16000, {700, 1000, 1000, 0}, 4, 2000, 0, 1, 425},
	{"fgd", 16000, {1000, 1000}, 2, 0, 0, 0, 50},
};

Test(policies, scores_by_hand)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		struct world w = world_of(r->cpu, r->left, r->gpus);
		struct st_request req = place_cpu(r->pod_cpu);
		int32_t got;

		if (r->share > 0)
			place_add(&req, place_share(r->share));
		else if (r->whole > 0)
			place_add(&req, place_whole(r->whole));
		got = score(&w, r->policy, &req);
		cr_expect_eq(got, r->score, "row %zu, %s: %d", i, r->policy, got);
		st_cluster_free(w.c);
	}
}

/* A device that is all but full is the best of all to be used. */
Test(policies, packing_on_a_device_that_is_all_but_full)
{
	struct world w = {.c = st_cluster_new(NULL)};
	struct st_request req = place_request(0, place_share(1));
	struct st_item it = place_share(81918);

	w.node = place_node(w.c, "n", 16000, 2, 81920);
	place_hold(w.c, w.node, "a", &it, 0, 0);
	cr_expect_eq(score(&w, "packing", &req), 100);
	st_cluster_free(w.c);
}

/* GPUs smaller than the reserve: nothing to divide by. */
Test(policies, gpus_smaller_than_the_reserve)
{
	struct st_config cfg = {
		.reserve_mib = 1000, .clients_max = 60, .overcommit_permille = 1000};
	struct st_gpu_spec gpus[2] = {{.mem_mib = 800}, {.mem_mib = 2000}};
	struct st_node_spec spec = {.name = "n", .cpu_milli = 16000, .gpu_count = 2, .gpus = gpus};
	struct st_request req = place_request(0, place_share(300));
	struct world w = {.c = st_cluster_new(&cfg)};

	cr_assert_eq(st_cluster_node_put(w.c, &spec, &w.node, NULL), 0);
	for (size_t i = 0; po_policy_at(i); i++)
		score(&w, po_policy_at(i)->name, &req);
	st_cluster_free(w.c);
}

/* Each policy's GPU on the same node. */
Test(policies, devices)
{
	static const struct {
		const char *policy;
		int gpu;
	} want[] = {{"bestfit", 1}, {"packing", 1},  {"clustering", 1},
		    {"dotprod", 1}, {"firstfit", 0}, {"spread", 2}};
	static const int32_t left[] = {700, 400, 1000};
	struct st_request req = place_request(0, place_share(300));
	struct world w = world_of(16000, left, 3);

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct po_options opt = {.policy = po_policy_find(want[i].policy)};
		struct po_placer *p = po_placer_new(w.c, &opt);
		struct st_decision d;

		cr_assert_eq(po_placer_choose(p, &req, w.node, 0, &d), BP_OK);
		cr_expect_eq(d.grants[0].gpu[0], want[i].gpu, "%s", want[i].policy);
		po_placer_free(p);
	}
	st_cluster_free(w.c);
}

/* ---- learning ---- */

/* With learn set: after 16 requests at least, and after an eighth of all that were counted. */
Test(policies, learning_rebuilds_now_and_then)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {.policy = po_policy_find("ca-fgd"), .learn = true};
	struct po_placer *p = po_placer_new(c, &opt);
	int64_t since = 0;

	for (int64_t total = 1; total <= 600; total++) {
		struct st_request req = place_request(1000, place_share(total % 3 ? 300 : 500));
		const struct fr_workload *w;

		cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
		w = po_placer_workload(p);
		if (++since >= 16 && since >= total / 8) {
			cr_assert_eq(w->total, total, "%lld learned", (long long)total);
			cr_assert_eq(w->count, 2);
			since = 0;
		} else {
			cr_assert(total < 16 ? w == NULL : w->total == total - since);
		}
	}
	po_placer_free(p);
	st_cluster_free(c);
}

Test(policies, without_learn_only_a_rebuild_counts)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {.policy = po_policy_find("fgd")};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request req = place_request(1000, place_share(300));

	place_node(c, "n", 16000, 1, 1000);
	cr_assert_not_null(po_placer_ask(p, &req, 0)); /* by the built-in mix */
	cr_expect_gt(po_placer_workload(p)->count, 1);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
	cr_expect_gt(po_placer_workload(p)->count, 1);
	cr_assert_eq(po_placer_rebuild(p, NULL), 0);
	cr_expect_eq(po_placer_workload(p)->count, 1);
	cr_expect_eq(po_placer_workload(p)->total, 100);
	po_placer_free(p);
	st_cluster_free(c);
}

/* The estimate follows a changing mix: what is no longer seen fades. */
Test(policies, old_requests_fade)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {
		.policy = po_policy_find("ca-fgd"), .learn = true, .popularity_percent = 100};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request old = place_request(1000, place_share(300)),
			  new = place_request(1000, place_share(500));
	const struct fr_workload *w;

	for (int i = 0; i < PO_LEARN_WINDOW; i++)
		cr_assert_eq(po_placer_learn(p, &old, NULL), 0);
	for (int i = 0; i < 3 * PO_LEARN_WINDOW; i++)
		cr_assert_eq(po_placer_learn(p, &new, NULL), 0);
	w = po_placer_workload(p);
	cr_assert_eq(w->classes[0].size_mib, 500);
	cr_expect_leq(w->total, PO_LEARN_WINDOW);
	cr_expect(w->count == 1 || w->weights[1] * 10 < w->weights[0]);
	po_placer_free(p);
	st_cluster_free(c);
}

Test(policies, prices_fall_due)
{
	struct st_cluster *c = st_cluster_new(NULL);

	for (size_t i = 0; po_policy_at(i); i++) {
		struct po_options opt = {.policy = po_policy_at(i)};
		struct po_placer *p = po_placer_new(c, &opt);
		bool bid = strcmp(opt.policy->name, "bid-price") == 0;

		for (int n = 1; n <= 100; n++)
			cr_assert_eq(po_placer_arrival(p), bid && n % PO_PRICE_ARRIVALS == 0);
		po_placer_free(p);
	}
	st_cluster_free(c);
}

/* The search at the start is run once, goes on for a while with each new workload, and steps one by one
 * after it. */
Test(policies, prices_are_searched)
{
	struct po_options opt = {.policy = po_policy_find("bid-price")};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_request req = place_request(1000, place_share(300));
	struct po_placer *p = po_placer_new(c, &opt);

	place_node(c, "n", 16000, 2, 1000);
	for (int round = 0; round < 2; round++) {
		uint32_t steps = PO_PRICE_STEPS_START + (round ? PO_PRICE_STEPS_AGAIN : 0);

		cr_assert_not_null(po_placer_ask(p, &req, 0));
		cr_assert_not_null(po_placer_ask(p, &req, 0));
		cr_expect_eq(p->measure->bid->steps, steps);
		cr_assert_eq(po_placer_reprice(p, NULL), 0);
		cr_expect_eq(p->measure->bid->steps, steps + 1);
		cr_assert_eq(po_placer_rebuild(p, NULL), 0);
	}
	po_placer_free(p);
	st_cluster_free(c);
}

/* ---- reports ---- */

/* N of FGD, whatever the policy: it is what the published curves show. */
Test(policies, fragmentation)
{
	static const int32_t left[] = {700, 1000};
	struct world w = world_of(16000, left, 2);

	for (size_t i = 0; po_policy_at(i); i++) {
		struct po_options opt = {.policy = po_policy_at(i), .popularity_percent = 100};
		struct st_request half = place_request(4000, place_share(500)),
				  one = place_request(8000, place_whole(1));
		struct st_request cpu = place_cpu(2000);
		struct po_placer *p = po_placer_new(w.c, &opt);
		struct st_item it = place_share(300);
		struct po_fragmentation f;

		for (int n = 0; n < 5; n++)
			cr_assert_eq(po_placer_learn(p, &half, NULL), 0);
		for (int n = 0; n < 3; n++)
			cr_assert_eq(po_placer_learn(p, &one, NULL), 0);
		for (int n = 0; n < 2; n++)
			cr_assert_eq(po_placer_learn(p, &cpu, NULL), 0);
		cr_assert_eq(po_placer_rebuild(p, NULL), 0);
		cr_assert_eq(po_placer_fragmentation(p, &f, NULL), 0);
		cr_expect_eq(f.n, 5500, "%s: %lld", opt.policy->name, (long long)f.n);
		cr_expect_eq(f.divisor, 10);
		cr_expect_eq(f.idle_milli, 1700);
		cr_assert_eq(po_placer_measure(p, &f, NULL), 0);
		cr_expect_eq(f.idle_milli, 1700);
		if (i == 0) { /* CA: the example of test_measure.c */
			cr_expect_eq(f.n, 9400);
			cr_expect_eq(f.divisor, 32);
		} else if (opt.policy->measure == FR_BID) {
			cr_expect_lt(f.n, 0);
		} else {
			cr_expect_eq(f.n, 5500);
		}
		place_hold(w.c, w.node, "more", &it, 0, 0);
		cr_assert_eq(po_placer_fragmentation(p, &f, NULL), 0);
		cr_expect_eq(f.n, 5 * 400 + 3 * 400 + 2 * 1400, "%s: %lld", opt.policy->name,
			     (long long)f.n);
		cr_expect_eq(f.idle_milli, 1400);
		place_gone(w.c, "more");
		po_placer_free(p);
	}
	st_cluster_free(w.c);
}

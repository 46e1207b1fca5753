/* Placement over all nodes: what the cache answers, who wins, and how ties are broken. The policies
 * themselves: test_policies.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fragmentation/measure_internal.h"
#include "policy/policy_internal.h"
#include "test/lib/place.h"

static const struct st_config cfg = {
	.reserve_mib = 100, .clients_max = 4, .overcommit_permille = 1500};

#define SHAPES 5

/* ---- the cache against answers worked out anew ---- */

struct twins {
	struct place_world w;
	struct st_request shapes[SHAPES];
	struct st_request seen[20]; /* what the workload is made of */
	struct po_options opt;
	struct po_placer *cached, *forgetful; /* asked the same; one keeps nothing */
	uint64_t decision_no;
};

static struct po_placer *placer_of(const struct twins *t, size_t shapes_max)
{
	struct po_options opt = t->opt;
	struct po_placer *p;

	opt.shapes_max = shapes_max;
	p = po_placer_new(t->w.c, &opt);
	cr_assert_not_null(p);
	for (size_t i = 0; i < 20; i++)
		cr_assert_eq(po_placer_learn(p, &t->seen[i], NULL), 0);
	return p;
}

static void check_answers(const struct twins *t, const struct po_shape *a, const struct po_shape *b)
{
	uint32_t count = st_cluster_node_count(t->w.c), best = ST_NONE;
	uint64_t top = 0;

	for (uint32_t id = 0; id < count + 2; id++) {
		struct po_answer x = po_shape_node(a, id), y = po_shape_node(b, id);

		cr_assert_eq(x.verdict, y.verdict, "%s, node %u: %d, not %d", t->opt.policy->name,
			     id, x.verdict, y.verdict);
		cr_assert_eq(x.score, y.score, "%s, node %u: %d, not %d", t->opt.policy->name, id,
			     x.score, y.score);
		cr_assert_eq(x.key, y.key);
		cr_assert_eq(x.key == 0, x.verdict != BP_OK);
		if (id >= count || !st_cluster_node(t->w.c, id)->present)
			cr_assert_eq(x.verdict, BP_NO_NODE);
		cr_assert(x.key == 0 || x.key != top, "two nodes are equal");
		if (x.key > top) {
			top = x.key;
			best = id;
		}
	}
	cr_assert_eq(po_shape_best(a), best);
	cr_assert_eq(po_shape_best(b), best);
}

static void check_shape(struct twins *t, unsigned which, bool afresh)
{
	const struct st_request *req = &t->shapes[which];
	struct po_shape *a, *b;

	/* The forgetful one has no place for a second shape. */
	cr_assert_not_null(po_placer_ask(t->forgetful, &t->shapes[(which + 1) % SHAPES], 0));
	b = po_placer_ask(t->forgetful, req, t->decision_no);
	a = po_placer_ask(t->cached, req, t->decision_no);
	cr_assert(a && b);
	check_answers(t, a, b);
	if (afresh) {
		struct po_placer *p = placer_of(t, 0);

		b = po_placer_ask(p, req, t->decision_no);
		cr_assert_not_null(b);
		a = po_placer_ask(t->cached, req, t->decision_no);
		check_answers(t, a, b);
		po_placer_free(p);
	}
	t->decision_no++;
}

static void choose_on_best(struct twins *t, unsigned which)
{
	const struct st_request *req = &t->shapes[which];
	struct po_shape *s = po_placer_ask(t->cached, req, t->decision_no);
	struct st_pod_ident id = place_ident("chosen", 0, req->cpu_milli);
	uint32_t best = po_shape_best(s);
	struct st_decision d, e;

	id.mem_mib = req->mem_mib;
	for (uint32_t node = 0; node < st_cluster_node_count(t->w.c); node++)
		cr_assert_eq(po_placer_choose(t->cached, req, node, t->decision_no, &d),
			     po_shape_node(s, node).verdict);
	cr_assert_eq(po_placer_choose(t->cached, req, ST_NONE, 0, &d), BP_NO_NODE);
	if (best == ST_NONE)
		return;
	cr_assert_eq(po_placer_choose(t->cached, req, best, t->decision_no, &d), BP_OK);
	cr_assert_eq(po_placer_choose(t->cached, req, best, t->decision_no, &e), BP_OK);
	for (unsigned i = 0; i < d.grant_count; i++)
		cr_assert_arr_eq(d.grants[i].gpu, e.grants[i].gpu, d.grants[i].count);
	cr_assert_eq(st_cluster_can_book(t->w.c, &id, &d, true, NULL), 0);
	cr_assert_eq(st_cluster_reserve(t->w.c, &id, &d, NULL), 0);
	place_gone(t->w.c, "chosen");
}

static void run_twins(const struct po_policy *policy, enum po_ties ties, uint64_t seed)
{
	struct twins t = {
		.opt = {.policy = policy, .ties = ties, .seed = seed, .popularity_percent = 100}};
	bool prices = policy->uses_measure && policy->measure == FR_BID;

	place_world_init(&t.w, &cfg, seed, 0);
	for (int i = 0; i < 6; i++)
		place_random_node(&t.w);
	for (int i = 0; i < SHAPES; i++)
		t.shapes[i] = place_random_request(&t.w, 2);
	for (int i = 0; i < 20; i++)
		t.seen[i] = place_random_request(&t.w, 1);
	t.cached = placer_of(&t, 0);
	t.forgetful = placer_of(&t, 1);
	for (unsigned step = 0; step < 80; step++) {
		for (unsigned n = place_draw(&t.w, 3); n > 0; n--)
			place_random_step(&t.w);
		check_shape(&t, place_draw(&t.w, SHAPES), !prices && step % 8 == 0);
		if (step % 10 == 0)
			choose_on_best(&t, place_draw(&t.w, SHAPES));
		/* Prices move by steps, which both take at the same time. */
		if (po_placer_arrival(t.cached) != po_placer_arrival(t.forgetful))
			cr_assert_fail("arrivals are counted apart");
		if (prices && step % 4 == 3) {
			cr_assert_eq(po_placer_reprice(t.cached, NULL), 0);
			cr_assert_eq(po_placer_reprice(t.forgetful, NULL), 0);
		}
		if (step != 40)
			continue;
		for (int i = 0; i < 20; i++) { /* another workload */
			t.seen[i] = place_random_request(&t.w, 1);
			cr_assert_eq(po_placer_learn(t.cached, &t.seen[i], NULL), 0);
			cr_assert_eq(po_placer_learn(t.forgetful, &t.seen[i], NULL), 0);
		}
		cr_assert_eq(po_placer_rebuild(t.cached, NULL), 0);
		cr_assert_eq(po_placer_rebuild(t.forgetful, NULL), 0);
		po_placer_free(t.cached);
		t.cached = placer_of(&t, 3);
		po_placer_free(t.forgetful);
		t.forgetful = placer_of(&t, 1);
	}
	po_placer_free(t.cached);
	po_placer_free(t.forgetful);
	place_world_fini(&t.w);
}

Test(placer, cache_equals_no_cache)
{
	for (size_t i = 0; po_policy_at(i); i++) {
		/* Each price search at a start takes as long as all else. */
		uint64_t last = po_policy_at(i)->measure == FR_BID ? 1 : 4;

		for (uint64_t seed = 1; seed <= last; seed++)
			run_twins(po_policy_at(i), seed % 2 ? PO_TIES_RANK : PO_TIES_RANDOM, seed);
	}
}

/* A rebuild drops what was cached under the old workload. */
Test(placer, rebuild)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {.policy = po_policy_find("fgd"), .popularity_percent = 100};
	struct st_request req = place_request(2000, place_share(300)),
			  one = place_request(4000, place_share(500));
	struct st_item it = place_share(300);
	struct po_placer *p = po_placer_new(c, &opt);
	uint32_t node = place_node(c, "n", 16000, 2, 1000);

	place_hold(c, node, "a", &it, 0, 0);
	place_hold(c, node, "b", &it, 1, 0);
	cr_expect_null(po_placer_workload(p));
	cr_assert_eq(po_placer_learn(p, &one, NULL), 0);
	cr_assert_eq(po_shape_node(po_placer_ask(p, &req, 0), node).score, 40); /* 400 milli lost */
	cr_expect_eq(po_placer_workload(p)->count, 1);
	for (int i = 0; i < 9; i++) {
		struct st_request big = place_request(8000, place_whole(1));

		cr_assert_eq(po_placer_learn(p, &big, NULL), 0);
	}
	cr_assert_eq(po_shape_node(po_placer_ask(p, &req, 0), node).score, 40);
	cr_assert_eq(po_placer_rebuild(p, NULL), 0);
	cr_expect_eq(po_placer_workload(p)->count, 2);
	/* 0.1 x 400 lost for halves; 0.9 x 300 less that whole devices cannot use: dF = -230. */
	cr_assert_eq(po_shape_node(po_placer_ask(p, &req, 0), node).score, 55);
	po_placer_free(p);
	po_placer_free(NULL);
	st_cluster_free(c);
}

/* Whether a search that is cut short finds a choice depends on prices: what it did not find at the old ones is
 * looked for again. Eight GPUs in time-slicing are worth too much at first, and the eight small idle ones, which
 * the second container needs, are taken in their stead. */
Test(placer, a_search_that_was_cut_short_is_tried_again_at_other_prices)
{
	const struct po_options opt = {.policy = po_policy_find("bid-price")};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_gpu_spec gpus[16] = {{0}};
	struct st_node_spec spec = {.name = "n",
				    .product = "T4",
				    .cpu_milli = 128000,
				    .mem_mib = 1 << 20,
				    .from_inventory = true,
				    .gpu_count = 16,
				    .gpus = gpus};
	struct st_request large = place_request(1000, place_share(70000)), req;
	struct st_item first = place_share(2000), second = place_sm(1000, 1);
	struct po_placer *p;
	uint32_t node;

	for (int i = 0; i < 16; i++)
		gpus[i].mem_mib = i < 8 ? 10000 + i : 80000;
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	for (unsigned i = 8; i < 16; i++) {
		struct st_item held = place_share(9500 - (int32_t)i);
		char uid[16];

		snprintf(uid, sizeof(uid), "u%u", i);
		place_hold(c, node, uid, &held, i, 0);
	}
	first.count = second.count = 8;
	req = place_request(0, first);
	place_add(&req, second);
	p = po_placer_new(c, &opt);
	cr_assert_eq(po_placer_learn(p, &large, NULL), 0);
	cr_assert_eq(po_shape_node(po_placer_ask(p, &req, 0), node).verdict, BP_COMBINATION);
	memset(p->measure->bid->y_mean, 0, p->measure->w->count * sizeof(int64_t));
	fr_measure_price_publish(p->measure);
	p->generation++;
	cr_expect_eq(po_shape_node(po_placer_ask(p, &req, 1), node).verdict, BP_OK);
	po_placer_free(p);
	st_cluster_free(c);
}

/* More changes between two questions than the log remembers. */
Test(placer, change_log_overflows)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_request req = place_request(0, place_share(300));
	static const char *const names[] = {"ca-fgd", "bestfit"};

	for (int i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		place_node(c, name, 64000, 2, 1000);
	}
	for (int k = 0; k < 2; k++) {
		struct po_options opt = {.policy = po_policy_find(names[k])};
		struct po_placer *p = po_placer_new(c, &opt), *fresh;
		struct po_shape *s, *f;
		struct st_item it = place_whole(2);

		cr_assert_not_null(po_placer_ask(p, &req, 0));
		place_hold(c, 3, "first", &it, 0, 0); /* forgotten by the log */
		it = place_share(1);
		for (int i = 0; i < 3000; i++) {
			place_hold(c, 7, "busy", &it, 0, 0);
			place_gone(c, "busy");
		}
		cr_assert_gt(st_cluster_log_begin(c), 100);
		s = po_placer_ask(p, &req, 0);
		fresh = po_placer_new(c, &opt);
		f = po_placer_ask(fresh, &req, 0);
		for (uint32_t id = 0; id < 20; id++) {
			cr_assert_eq(po_shape_node(s, id).key, po_shape_node(f, id).key);
			cr_assert_eq(po_shape_node(s, id).verdict, id == 3 ? BP_MEMORY : BP_OK);
		}
		place_gone(c, "first");
		po_placer_free(p);
		po_placer_free(fresh);
	}
	st_cluster_free(c);
}

/* The tree grows with the cluster and keeps what it knew. */
Test(placer, more_nodes_than_before)
{
	static const char *const names[] = {"ca-fgd", "bid-price", "packing"};

	for (int k = 0; k < 3; k++) {
		struct po_options opt = {.policy = po_policy_find(names[k])};
		struct st_cluster *c = st_cluster_new(NULL);
		struct po_placer *p = po_placer_new(c, &opt);
		struct st_request share = place_request(0, place_share(300)), cpu = place_cpu(1000);

		for (int n = 0; n < 300; n++) {
			struct po_shape *s, *f;
			struct po_placer *fresh;
			char name[16];

			snprintf(name, sizeof(name), "n%d", n);
			place_node(c, name, 64000, (size_t)n % 3, 1000 + n);
			s = po_placer_ask(p, n % 2 ? &share : &cpu, 0);
			cr_assert_not_null(s);
			cr_assert_eq(po_shape_node(s, (uint32_t)n).verdict,
				     n % 2 && n % 3 == 0 ? BP_NO_GPU : BP_OK);
			if (n % 50 != 49 || k == 1)
				continue;
			fresh = po_placer_new(c, &opt);
			f = po_placer_ask(fresh, &share, 0);
			for (uint32_t id = 0; id <= (uint32_t)n; id++)
				cr_assert_eq(po_shape_node(s, id).key, po_shape_node(f, id).key);
			cr_assert_eq(po_shape_best(s), po_shape_best(f));
			po_placer_free(fresh);
		}
		po_placer_free(p);
		st_cluster_free(c);
	}
}

/* Requests are one shape when nothing but the names of their containers differs. */
Test(placer, shapes)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {.policy = po_policy_find("bestfit")};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request base = place_request(1000, place_share(300)), reqs[18];
	unsigned n = 0;

	place_add(&base, place_share(200));
	for (size_t i = 0; i < sizeof(reqs) / sizeof(reqs[0]); i++)
		reqs[i] = base;
	reqs[n++].cpu_milli++;
	reqs[n++].mem_mib++;
	snprintf(reqs[n++].product, ST_PRODUCT_CAP, "T4");
	snprintf(reqs[n++].product, ST_PRODUCT_CAP, "T4|");
	reqs[n++].workload = ST_WORKLOAD_MEMORY_BOUND;
	reqs[n++].item_count = 1;
	reqs[n++].item_count = 0;
	reqs[n++].items[0].request_mib++;
	reqs[n++].items[1].request_mib++;
	reqs[n++].items[1].kind = ST_KIND_WHOLE;
	reqs[n++].items[1].mode = ST_MODE_SM_SHARING;
	reqs[n++].items[1].mode_preferred = true;
	reqs[n++].items[1].count = 2;
	reqs[n++].items[0].limit_mib = 400;
	reqs[n++].items[0].limit_nano = 1;
	reqs[n++].items[0].request_nano = 1;
	reqs[n++].items[0].compute_nano = 1;
	snprintf(reqs[n++].items[0].profile, ST_MIG_NAME_CAP, "1g.5gb");
	cr_assert_eq(n, sizeof(reqs) / sizeof(reqs[0]));
	cr_assert_not_null(po_placer_ask(p, &base, 0));
	for (unsigned i = 0; i < n; i++) {
		cr_assert_not_null(po_placer_ask(p, &reqs[i], 0));
		cr_expect_eq(HASH_COUNT(p->shapes), i + 2, "request %u", i);
	}
	for (unsigned i = 0; i < n; i++) {
		memset(reqs[i].items[0].container, 'x', 5);
		cr_assert_not_null(po_placer_ask(p, &reqs[i], 1));
	}
	cr_expect_eq(HASH_COUNT(p->shapes), n + 1);
	po_placer_free(p);
	st_cluster_free(c);
}

/* Asking about ever new requests on a cluster that stands still does not fill the memory. */
Test(placer, many_different_requests)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {.policy = po_policy_find("ca-fgd"), .shapes_max = 2};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request req = place_request(0, place_share(1));
	struct po_answer a;

	for (int i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		place_node(c, name, 64000, 1, 81559 - i);
	}
	a = po_shape_node(po_placer_ask(p, &req, 0), 5);
	p->measure->row_limit = 500;
	for (int32_t mib = 2; mib < 8000; mib++) {
		req.items[0].request_mib = mib;
		cr_assert_not_null(po_placer_ask(p, &req, 0));
		cr_assert_leq(HASH_COUNT(p->shapes), 2);
		cr_assert_leq(p->measure->row_count, 500 + 20);
	}
	req.items[0].request_mib = 1;
	cr_expect_eq(po_shape_node(po_placer_ask(p, &req, 0), 5).key, a.key);
	po_placer_free(p);
	st_cluster_free(c);
}

/* ---- ties ---- */

static uint32_t ranked_node(struct st_cluster *c, unsigned number, uint32_t rank)
{
	struct st_gpu_spec gpu = {.mem_mib = 1000};
	char name[16];
	struct st_node_spec spec = {.name = name,
				    .cpu_milli = 64000,
				    .has_rank = true,
				    .rank = rank,
				    .gpu_count = 1,
				    .gpus = &gpu};
	uint32_t id;

	snprintf(name, sizeof(name), "n%u", number);
	cr_assert_eq(st_cluster_node_put(c, &spec, &id, NULL), 0);
	return id;
}

Test(placer, ties_go_to_the_smallest_rank)
{
	static const uint32_t ranks[] = {7, UINT32_MAX, 3, 0, 5, 1};
	struct st_request req = place_request(0, place_share(300));

	for (size_t i = 0; po_policy_at(i); i++) {
		struct st_cluster *c = st_cluster_new(NULL);
		struct po_options opt = {.policy = po_policy_at(i)};
		struct po_placer *p = po_placer_new(c, &opt);
		struct st_item it = place_whole(1);

		for (unsigned n = 0; n < 6; n++)
			ranked_node(c, n, ranks[n]);
		if (!opt.policy->random) {
			struct po_shape *s = po_placer_ask(p, &req, 0);

			cr_expect_eq(po_shape_best(s), 3, "%s", opt.policy->name);
			cr_expect_gt(po_shape_node(s, 5).key, po_shape_node(s, 2).key);
			cr_expect_gt(po_shape_node(s, 0).key, po_shape_node(s, 1).key);
			cr_expect_eq(po_shape_node(s, 0).score, po_shape_node(s, 1).score);
			place_hold(c, 3, "a", &it, 0, 0);
			s = po_placer_ask(p, &req, 0);
			cr_expect_eq(po_shape_best(s), 5, "%s", opt.policy->name);
		}
		po_placer_free(p);
		st_cluster_free(c);
	}
}

/* Random ties: a permutation of the ranks by seed and decision; scores do not change, the winner is
 * one of the best, each of them about equally often. */
Test(placer, random_ties)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {
		.policy = po_policy_find("bestfit"), .ties = PO_TIES_RANDOM, .seed = 42};
	struct po_placer *p = po_placer_new(c, &opt), *same = po_placer_new(c, &opt), *other;
	struct st_request req = place_request(0, place_share(300));
	struct st_item it = place_share(100);
	unsigned won[8] = {0}, differ = 0;

	for (unsigned n = 0; n < 8; n++)
		ranked_node(c, n, 100 * n);
	opt.seed = 43;
	other = po_placer_new(c, &opt);
	for (uint32_t n = 0; n < 3; n++) /* the fuller ones are better */
		place_hold(c, n, n == 0 ? "a" : n == 1 ? "b" : "c", &it, 0, 0);
	for (uint64_t no = 0; no < 3000; no++) {
		struct po_shape *s = po_placer_ask(p, &req, no);
		uint32_t best = po_shape_best(s);

		cr_assert_lt(best, 3);
		won[best]++;
		cr_assert_eq(po_shape_best(po_placer_ask(same, &req, no)), best);
		differ += po_shape_best(po_placer_ask(other, &req, no)) != best;
	}
	for (int i = 0; i < 3; i++) /* expected 1000 each, sd 26 */
		cr_expect(won[i] > 870 && won[i] < 1130, "%u", won[i]);
	cr_expect(differ > 1800 && differ < 2200, "%u", differ);
	po_placer_free(p);
	po_placer_free(same);
	po_placer_free(other);
	st_cluster_free(c);
}

static int key_order(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* All keys of all decisions are distinct, on ranks of all kinds. */
Test(placer, keys_of_nodes_differ)
{
	enum { N = 2000 };
	static uint64_t keys[N];
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {
		.policy = po_policy_find("random"), .ties = PO_TIES_RANDOM, .seed = 1};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request req = place_cpu(100);

	for (unsigned n = 0; n < N; n++)
		ranked_node(c, n, n < N / 2 ? n : n * UINT32_C(2146121));
	for (uint64_t no = 0; no < 50; no++) {
		struct po_shape *s = po_placer_ask(p, &req, no);

		for (uint32_t n = 0; n < N; n++)
			keys[n] = po_shape_node(s, n).key;
		cr_assert_eq(keys[po_shape_best(s)], po_shape_node(s, po_shape_best(s)).key);
		qsort(keys, N, sizeof(keys[0]), key_order);
		cr_assert_neq(keys[0], 0);
		for (int i = 1; i < N; i++)
			cr_assert_neq(keys[i], keys[i - 1]);
		cr_assert_eq(keys[N - 1], po_shape_node(s, po_shape_best(s)).key);
	}
	po_placer_free(p);
	st_cluster_free(c);
}

/* ---- the random policy ---- */

Test(placer, random_policy)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_options opt = {.policy = po_policy_find("random"), .seed = 9};
	struct po_placer *p = po_placer_new(c, &opt);
	struct st_request req = place_request(0, place_share(300));
	struct st_item whole = place_whole(1);
	unsigned nodes[10] = {0}, gpus[4] = {0};

	for (int n = 0; n < 10; n++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", n);
		place_node(c, name, 64000, 4, 1000);
	}
	for (unsigned g = 0; g < 4; g++) { /* node 4 is full */
		char uid[16];

		snprintf(uid, sizeof(uid), "full%u", g);
		place_hold(c, 4, uid, &whole, g, 0);
	}
	place_hold(c, 6, "one", &whole, 2, 0);
	for (uint64_t no = 0; no < 9000; no++) {
		uint32_t best = po_shape_best(po_placer_ask(p, &req, no));
		struct st_decision d;

		cr_assert_lt(best, 10);
		nodes[best]++;
		cr_assert_eq(po_placer_choose(p, &req, 6, no, &d), BP_OK);
		gpus[d.grants[0].gpu[0]]++;
	}
	for (int n = 0; n < 10; n++) /* 1000 each, sd 30 */
		cr_expect(n == 4 ? nodes[n] == 0 : nodes[n] > 850 && nodes[n] < 1150, "node %d: %u",
			  n, nodes[n]);
	for (int g = 0; g < 4; g++) /* 3000 each, sd 45 */
		cr_expect(g == 2 ? gpus[g] == 0 : gpus[g] > 2800 && gpus[g] < 3200, "GPU %d: %u", g,
			  gpus[g]);
	po_placer_free(p);
	st_cluster_free(c);
}

Test(placer, nothing_fits_anywhere)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct po_placer *p = po_placer_new(c, NULL);
	struct st_request req = place_request(0, place_whole(1));

	cr_assert_eq(po_placer_policy(p), po_policy_at(0));
	cr_expect_eq(po_shape_best(po_placer_ask(p, &req, 0)), ST_NONE);
	cr_expect_eq(po_shape_node(po_placer_ask(p, &req, 0), 0).verdict, BP_NO_NODE);
	place_node(c, "n", 64000, 0, 0);
	cr_expect_eq(po_shape_best(po_placer_ask(p, &req, 0)), ST_NONE);
	cr_expect_eq(po_shape_node(po_placer_ask(p, &req, 0), 0).verdict, BP_NO_GPU);
	place_node(c, "m", 64000, 1, 1000);
	cr_expect_eq(po_shape_best(po_placer_ask(p, &req, 0)), 1);
	po_placer_free(p);
	st_cluster_free(c);
}

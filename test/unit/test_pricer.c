/* Prices searched beside the decisions: run to the end between the questions they are those of a
 * replay, whatever is in the way; run at any time they never stop a question. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fragmentation/measure_internal.h"
#include "policy/policy_internal.h"
#include "test/lib/oom.h"
#include "test/lib/place.h"

static const struct st_config cfg = {
	.reserve_mib = 100, .clients_max = 4, .overcommit_permille = 1500};

static struct po_placer *placer_of(struct st_cluster *c, bool apart, bool learn)
{
	struct po_options opt = {
		.policy = po_policy_find("bid-price"), .prices_apart = apart, .learn = learn};
	struct po_placer *p = po_placer_new(c, &opt);

	cr_assert_not_null(p);
	return p;
}

/* Looks and searches until there is nothing to do; returns how often it looked. */
static unsigned finish(struct po_pricer *s)
{
	enum po_pricer_todo todo;
	unsigned looks = 0;

	while ((todo = po_pricer_look(s)) != PO_PRICER_IDLE) {
		if (todo == PO_PRICER_SEARCH)
			po_pricer_search(s);
		cr_assert_lt(++looks, 10000);
	}
	return looks;
}

static void check_alike(struct place_world *w, struct po_placer *a, struct po_placer *b)
{
	struct st_request req = place_random_request(w, 2);
	struct po_shape *x = po_placer_ask(a, &req, 0), *y = po_placer_ask(b, &req, 0);

	cr_assert(x && y);
	for (uint32_t id = 0; id < st_cluster_node_count(w->c); id++) {
		struct po_answer p = po_shape_node(x, id), q = po_shape_node(y, id);

		cr_assert_eq(p.verdict, q.verdict);
		cr_assert_eq(p.score, q.score, "node %u: %d, not %d", id, p.score, q.score);
	}
}

static void learn_some(struct place_world *w, struct po_placer *a, struct po_placer *b)
{
	for (int i = 0; i < 30; i++) {
		struct st_request req = place_random_request(w, 1);

		cr_assert_eq(po_placer_learn(a, &req, NULL), 0);
		cr_assert_eq(po_placer_learn(b, &req, NULL), 0);
	}
	cr_assert_eq(po_placer_rebuild(a, NULL), 0);
	cr_assert_eq(po_placer_rebuild(b, NULL), 0);
}

Test(pricer, finds_the_prices_of_a_replay)
{
	struct place_world w;
	struct po_placer *replay, *apart;
	struct po_pricer *s;
	unsigned published = 0;

	place_world_init(&w, &cfg, 5, 0);
	for (int i = 0; i < 90; i++) /* more than a look takes in */
		place_random_node(&w);
	replay = placer_of(w.c, false, false);
	apart = placer_of(w.c, true, false);
	s = po_pricer_new(apart);
	cr_assert_not_null(s);
	learn_some(&w, replay, apart);
	finish(s);
	check_alike(&w, replay, apart);
	for (int round = 0; round < 120; round++) {
		uint64_t generation = apart->generation;

		for (int i = 0; i < (round == 60 ? 300 : 2); i++)
			place_random_step(&w);
		if (po_placer_arrival(replay))
			cr_assert_eq(po_placer_reprice(replay, NULL), 0);
		if (po_placer_arrival(apart))
			finish(s);
		published += apart->generation != generation;
		if (round == 80) {
			learn_some(&w, replay, apart);
			/* In the replay the search runs at the next question. */
			cr_assert_eq(po_placer_sync(replay), 0);
			finish(s);
			replay->price_steps = 0;
		}
		check_alike(&w, replay, apart);
	}
	cr_expect_geq(published, 4);
	po_pricer_free(s);
	po_placer_free(replay);
	po_placer_free(apart);
	place_world_fini(&w);
}

/* What a class is worth at the present prices, of all arrivals together. */
static int64_t price_of(const struct po_placer *p, const struct st_request *req)
{
	const struct fr_bid *b = p->measure->bid;
	struct fr_class cls;

	fr_class_of(req, &cls);
	for (size_t d = 0; d < b->w->count; d++)
		if (memcmp(&b->w->classes[d], &cls, sizeof(cls)) == 0)
			return b->y_mean[d] / b->w->weights[d] * b->arrivals;
	cr_assert_fail("no such class");
	return 0;
}

/* Another workload: what a class is worth beside another is found out once. */
Test(pricer, prices_are_carried_over)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_request a = place_request(1000, place_share(300));
	struct st_request b = place_request(9000, place_share(700));
	struct st_request new = place_request(100, place_whole(1));
	struct po_placer *p = placer_of(c, false, false);
	int64_t of_a, of_b;

	place_node(c, "n", 16000, 2, 1000);
	for (int i = 0; i < 40; i++)
		cr_assert_eq(po_placer_learn(p, i % 4 ? &a : &b, NULL), 0);
	cr_assert_eq(po_placer_sync(p), 0);
	of_a = price_of(p, &a);
	of_b = price_of(p, &b);
	cr_assert(of_a > 0 && of_b > 0 && of_a != of_b);
	for (int i = 0; i < 40; i++) /* the same mix once more: nothing changes */
		cr_assert_eq(po_placer_learn(p, i % 4 ? &a : &b, NULL), 0);
	cr_assert_eq(po_placer_rebuild(p, NULL), 0);
	cr_expect_leq(llabs(price_of(p, &a) - of_a), of_a >> 20);
	cr_expect_leq(llabs(price_of(p, &b) - of_b), of_b >> 20);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(po_placer_learn(p, &new, NULL), 0);
	cr_assert_eq(po_placer_rebuild(p, NULL), 0);
	cr_expect_float_eq((double)price_of(p, &a) / (double)price_of(p, &b),
			   (double)of_a / (double)of_b, 1e-5);
	cr_expect_gt(price_of(p, &new), 0);
	po_placer_free(p);
	st_cluster_free(c);
}

/* Questions and lessons between the slices and the steps: answered at the prices of the time. */
Test(pricer, asking_never_searches)
{
	struct place_world w;
	struct po_placer *p;
	struct po_pricer *s;
	unsigned workloads = 0, searches = 0;
	const struct fr_workload *before;

	place_world_init(&w, &cfg, 6, PLACE_NO_MIG);
	for (int i = 0; i < 90; i++)
		place_random_node(&w);
	p = placer_of(w.c, true, true);
	s = po_pricer_new(p);
	before = NULL;
	for (int round = 0; round < 2500; round++) {
		struct st_request req = place_random_request(&w, 1);
		uint32_t steps = p->measure ? p->measure->bid->steps : 0;

		place_random_step(&w);
		cr_assert_not_null(po_placer_ask(p, &req, 0));
		cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
		cr_assert_eq(p->measure->bid->steps, steps);
		po_placer_arrival(p);
		workloads += po_placer_workload(p) != before;
		before = po_placer_workload(p);
		if (po_pricer_look(s) == PO_PRICER_SEARCH) {
			cr_assert_not_null(po_placer_ask(p, &req, 0));
			cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
			po_pricer_search(s);
			searches++;
		}
	}
	cr_expect_gt(workloads, 5);
	cr_expect_gt(searches, 300);
	cr_expect_gt(p->measure->bid->steps, PO_PRICE_STEPS_START);
	po_pricer_free(s);
	po_placer_free(p);
	place_world_fini(&w);
}

/* Nor does the first question, where the prices were there before it. */
Test(pricer, the_first_question_comes_after_the_prices)
{
	struct place_world w;
	struct po_placer *p;
	struct po_pricer *s;
	struct st_request req;

	place_world_init(&w, &cfg, 6, PLACE_NO_MIG);
	for (int i = 0; i < 20; i++)
		place_random_node(&w);
	p = placer_of(w.c, true, true);
	s = po_pricer_new(p);
	req = place_random_request(&w, 1);
	finish(s);
	cr_assert_not_null(p->measure);
	cr_expect_eq(p->measure->bid->steps, PO_PRICE_STEPS_START);
	cr_assert_not_null(po_placer_ask(p, &req, 0));
	cr_expect_eq(p->measure->bid->steps, PO_PRICE_STEPS_START);
	po_pricer_free(s);
	po_placer_free(p);
	place_world_fini(&w);
}

/* Steps that nobody had time for are not caught up with. */
Test(pricer, the_overdue_is_given_up)
{
	struct place_world w;
	struct po_placer *p;
	struct po_pricer *s;

	place_world_init(&w, &cfg, 7, PLACE_NO_MIG);
	place_node(w.c, "n", 64000, 4, 16000);
	p = placer_of(w.c, true, false);
	s = po_pricer_new(p);
	cr_assert_eq(po_placer_sync(p), 0);
	finish(s);
	cr_assert_eq(p->measure->bid->steps, PO_PRICE_STEPS_START);
	for (int i = 0; i < 1000 * PO_PRICE_ARRIVALS; i++)
		po_placer_arrival(p);
	finish(s);
	cr_expect_eq(p->measure->bid->steps, PO_PRICE_STEPS_START + PO_PRICE_PUBLISH);
	po_pricer_free(s);
	po_placer_free(p);
	place_world_fini(&w);
}

/* Measures are large: a look, which has the lock, puts them aside, and the search frees them before the
 * next look. */
Test(pricer, a_look_frees_no_measure)
{
	struct place_world w;
	struct fr_measure *before;
	struct po_placer *p;
	struct po_pricer *s;
	unsigned trades = 0;

	place_world_init(&w, &cfg, 8, PLACE_NO_MIG);
	place_node(w.c, "n", 64000, 4, 16000);
	p = placer_of(w.c, true, true);
	s = po_pricer_new(p);
	for (int i = 0; i < 10; i++) {
		struct st_request req = place_random_request(&w, 1);

		cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
	}
	cr_assert_eq(po_placer_sync(p), 0);
	finish(s); /* and has a twin of the placer's measure by now */
	for (int i = 0; i < 200 && !p->outdated; i++) {
		struct st_request req = place_random_request(&w, 1);

		cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
	}
	cr_assert(p->outdated);
	before = p->measure;
	cr_assert_eq(po_pricer_look(s), PO_PRICER_SEARCH, "the twin is put aside");
	cr_assert(!p->outdated && p->measure == before);
	po_pricer_search(s);
	for (int i = 0; i < 10000 && trades == 0; i++) {
		enum po_pricer_todo todo = po_pricer_look(s);

		if (p->measure != before) {
			trades++;
			cr_assert_eq(todo, PO_PRICER_SEARCH, "so is the placer's");
		}
		if (todo == PO_PRICER_SEARCH)
			po_pricer_search(s);
	}
	cr_expect_eq(trades, 1);
	cr_expect_eq(p->measure->bid->steps, PO_PRICE_STEPS_START + PO_PRICE_STEPS_AGAIN,
		     "freeing is no step");
	po_pricer_free(s);
	po_placer_free(p);
	place_world_fini(&w);
}

Test(pricer, idle_without_prices_or_gpus)
{
	struct st_cluster *c = st_cluster_new(NULL);

	for (size_t i = 0; po_policy_at(i); i++) {
		struct po_options opt = {.policy = po_policy_at(i), .prices_apart = true};
		struct po_placer *p = po_placer_new(c, &opt);
		struct po_pricer *s = po_pricer_new(p);

		cr_expect_leq(finish(s), 2, "%s", opt.policy->name);
		po_pricer_free(s);
		po_placer_free(p);
	}
	st_cluster_free(c);
}

/* Each allocation fails once: the next time the search goes on. */
Test(pricer, out_of_memory)
{
	struct st_request seen[5];
	struct place_world w;
	unsigned fail;
	bool hit = true;

	place_world_init(&w, &cfg, 8, 0);
	for (int i = 0; i < 10; i++)
		place_random_node(&w);
	for (int i = 0; i < 5; i++)
		seen[i] = place_random_request(&w, 1);
	for (fail = 1; hit; fail++) {
		struct po_placer *p = placer_of(w.c, true, false);
		struct po_pricer *s = po_pricer_new(p);
		enum po_pricer_todo todo;

		for (int i = 0; i < 5; i++)
			cr_assert_eq(po_placer_learn(p, &seen[i], NULL), 0);
		oom_fail_at(fail);
		/* To the end of the start only: the steps themselves allocate nothing. */
		while (po_pricer_look(s) == PO_PRICER_MORE)
			;
		hit = oom_disarm();
		while ((todo = po_pricer_look(s)) == PO_PRICER_MORE)
			;
		cr_assert_eq(todo, PO_PRICER_SEARCH, "allocation %u", fail);
		po_pricer_search(s);
		cr_assert_eq(po_pricer_look(s), PO_PRICER_SEARCH);
		po_pricer_free(s);
		po_placer_free(p);
	}
	cr_expect_gt(fail, 20);
	place_world_fini(&w);
}

/* GPUs of another size come between the first prices and the search's second measure: amounts in MiB are the
 * same part of a device in both, or the prices would change with each trade. */
Test(pricer, the_twin_counts_in_the_same_unit)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_request req = place_request(1000, place_share(4000));
	struct po_placer *p = placer_of(c, true, false);
	struct po_pricer *s = po_pricer_new(p);
	int64_t unit = 0;

	place_node(c, "small", 64000, 4, 16000);
	cr_assert_eq(po_placer_learn(p, &req, NULL), 0);
	cr_assert_eq(po_placer_sync(p), 0);
	for (int looks = 0; looks < 10000 && p->measure->bid->steps == 0; looks++)
		if (po_pricer_look(s) == PO_PRICER_SEARCH)
			po_pricer_search(s);
	cr_assert_gt(p->measure->bid->steps, 0);
	unit = p->measure->bid->unit_mib;
	place_node(c, "large", 64000, 12, 80000);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < PO_PRICE_PUBLISH * PO_PRICE_ARRIVALS; i++)
			if (po_placer_arrival(p))
				finish(s);
		cr_expect_eq(p->measure->bid->unit_mib, unit, "round %d: %lld", round,
			     (long long)p->measure->bid->unit_mib);
	}
	po_pricer_free(s);
	po_placer_free(p);
	st_cluster_free(c);
}

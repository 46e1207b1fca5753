/* Choosing on small random nodes against exhaustive search: a choice is found exactly where one
 * exists, it can be booked, and single containers get what the measure likes best. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "binpack/binpack_internal.h"
#include "policy/policy.h"
#include "test/lib/place.h"

/* ---- the oracle ---- */

struct oracle {
	const struct st_cluster *c;
	const struct st_node *n;
	const struct st_request *req;
	struct st_pod_ident id;
	struct st_decision d; /* grants complete but for the last, which may be in the making */
	unsigned asked;
};

static bool any_item(struct oracle *o);

static bool bookable(struct oracle *o)
{
	o->asked++;
	return st_cluster_can_book(o->c, &o->id, &o->d, true, NULL) == 0;
}

/* Gives the grant's next parts in ascending order of place = gpu * 64 + start. */
static bool any_parts(struct oracle *o, unsigned from)
{
	struct st_grant *g = &o->d.grants[o->d.grant_count - 1];
	const struct st_item *it = &o->req->items[o->d.grant_count - 1];

	if (g->count == it->count)
		return any_item(o);
	for (unsigned place = from; place < o->n->gpu_count * 64u; place++) {
		const struct st_gpu *gpu = &o->n->gpus[place / 64];
		uint8_t start = place % 64;

		if (it->kind == ST_KIND_MIG) {
			int p = gpu->mig ? st_mig_profile_find(gpu->mig, it->profile) : -1;

			if (p < 0 || st_mig_bit(gpu->mig, p, start) == 0)
				continue;
			memcpy(g->profile, gpu->mig->profiles[p].name, sizeof(g->profile));
		} else if (start != 0) {
			continue;
		} else if (it->kind == ST_KIND_SHARE) {
			int32_t request = st_item_request_mib(it, gpu->alloc_mib);
			int32_t limit = st_item_limit_mib(it, gpu->alloc_mib);

			if (g->count > 0 && (g->request_mib != request || g->limit_mib != limit))
				continue;
			g->request_mib = request;
			g->limit_mib = limit;
		}
		g->gpu[g->count] = (uint8_t)(place / 64);
		g->start[g->count++] = start;
		if (bookable(o) && any_parts(o, place + 1))
			return true;
		g->count--;
	}
	return false;
}

static bool any_in_mode(struct oracle *o, enum st_mode mode)
{
	const struct st_item *it = &o->req->items[o->d.grant_count];
	struct st_grant *g = &o->d.grants[o->d.grant_count++];

	*g = (struct st_grant){.kind = it->kind, .mode = mode};
	if (it->kind == ST_KIND_SHARE)
		g->compute_nano = it->compute_nano;
	if (any_parts(o, 0))
		return true;
	o->d.grant_count--;
	return false;
}

static bool any_item(struct oracle *o)
{
	unsigned item = o->d.grant_count;
	const struct st_item *it = &o->req->items[item];

	if (item == o->req->item_count)
		return bookable(o);
	if (any_in_mode(o, it->mode))
		return true;
	return it->kind == ST_KIND_SHARE && it->mode_preferred &&
	       any_in_mode(o, bp_other_mode(it->mode));
}

static bool accepted(const struct st_cluster *c, const struct st_node *n,
		     const struct st_request *req)
{
	return req->item_count == 0 ||
	       st_product_accepts(req->product,
				  n->product == STRPOOL_NONE
					  ? NULL
					  : strpool_str(st_cluster_products(c), n->product));
}

static struct st_pod_ident ident_of(const struct st_request *req)
{
	struct st_pod_ident id = place_ident("new", 0, req->cpu_milli);

	id.mem_mib = req->mem_mib;
	id.memory_bound = req->workload == ST_WORKLOAD_MEMORY_BOUND;
	return id;
}

static bool exists(const struct st_cluster *c, uint32_t node, const struct st_request *req)
{
	struct oracle o = {.c = c,
			   .n = st_cluster_node(c, node),
			   .req = req,
			   .id = ident_of(req),
			   .d = {.node = node}};

	return accepted(c, o.n, req) && any_item(&o);
}

/* ---- random nodes ---- */

static const struct st_config cfg = {
	.reserve_mib = 100, .clients_max = 3, .overcommit_permille = 1300};

static const enum bp_pick picks[] = {BP_PICK_MEASURE, BP_PICK_BEST_FIT, BP_PICK_FIRST,
				     BP_PICK_WORST_FIT, BP_PICK_RANDOM};

static struct fr_counts *random_counts(struct place_world *w)
{
	struct fr_counts *c = fr_counts_new();

	for (unsigned i = 0; i < 8; i++) {
		struct st_request req = place_random_request(w, 1);
		struct fr_class cls;

		fr_class_of(&req, &cls);
		cr_assert_eq(fr_counts_add(c, &cls, 1 + place_draw(w, 30), NULL), 0);
	}
	return c;
}

static struct fr_measure *measure_of(const struct st_cluster *c, enum fr_kind kind,
				     const struct fr_counts *counts)
{
	struct fr_measure *m =
		fr_measure_new(c, kind, fr_workload_build(counts, 100, kind == FR_CA));

	cr_assert_not_null(m);
	place_sync(m, c);
	return m;
}

static int32_t score_of(enum fr_kind kind, const struct st_request *req, int64_t total,
			int64_t before, int64_t after)
{
	int32_t s = 0;

	for (unsigned i = 0; i < req->item_count; i++)
		if (req->items[i].kind == ST_KIND_MIG)
			return (int32_t)arith_floor_div(before - after, total);

	if (kind == FR_CA)
		return (int32_t)arith_floor_div(before - after, 480 * total);
	for (int k = 1; k <= 99; k++)
		s += after - before <= fr_threshold(total, k);
	return s;
}

/* kind FR_BID: the score is not looked at. */
static void book_and_undo(struct place_world *w, struct fr_measure *m, enum fr_kind kind,
			  const struct st_request *req, const struct st_decision *d, int32_t score)
{
	int64_t before = fr_measure_node(m, d->node), total = fr_measure_workload(m)->total;
	struct st_pod_ident id = ident_of(req);
	struct err err = ERR_INIT;

	cr_assert_eq(st_cluster_can_book(w->c, &id, d, true, &err), 0, "%s", err.msg);
	cr_assert_eq(st_cluster_reserve(w->c, &id, d, &err), 0, "%s", err.msg);
	cr_assert_eq(st_cluster_check(w->c, d->node, &err), 0, "%s", err.msg);
	cr_assert_eq(fr_measure_sync(m, d->node), 0);
	if (kind != FR_BID) /* memory-bound pods side by side lower it */
		cr_assert(score ==
				  score_of(kind, req, total, before, fr_measure_node(m, d->node)) ||
			  (id.memory_bound && score < -BP_NEIGHBOUR_PENALTY / 2));
	for (unsigned i = 0; i < req->item_count; i++) {
		cr_assert_str_eq(d->grants[i].container, req->items[i].container);
		cr_assert_eq(d->grants[i].kind, req->items[i].kind);
		cr_assert_eq(d->grants[i].count, req->items[i].count);
	}
	place_gone(w->c, "new");
}

static void check_choice(struct place_world *w, struct fr_measure *m, enum fr_kind kind,
			 uint32_t node, const struct st_request *req, unsigned *ret_found)
{
	bool want = exists(w->c, node, req);

	for (size_t i = 0; i < sizeof(picks) / sizeof(picks[0]); i++) {
		struct bp_chooser how = {.pick = picks[i], .measure = m, .salt = rng_next(&w->rng)};
		uint64_t log = st_cluster_log_end(w->c);
		struct st_decision d;
		enum bp_verdict v;
		int32_t score;

		cr_assert_eq(fr_measure_sync(m, node), 0);
		v = bp_choose(w->c, &how, node, req, &d, &score);
		cr_assert_eq(st_cluster_log_end(w->c), log);
		cr_assert_eq(v == BP_OK, want, "pick %zu on node %u: %s, but %s", i, node,
			     bp_verdict_text(v), want ? "there is a way" : "there is none");
		if (v == BP_OK)
			book_and_undo(w, m, picks[i] == BP_PICK_MEASURE ? kind : FR_BID, req, &d,
				      score);
	}
	*ret_found += want;
}

Test(model_choose, finds_a_choice_exactly_where_one_exists)
{
	static const enum fr_kind kinds[] = {FR_FGD, FR_CA, FR_BID};
	unsigned found = 0, asked = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct place_world w;
		struct fr_counts *counts;
		struct fr_measure *m;

		place_world_init(&w, &cfg, seed, PLACE_SMALL);
		counts = random_counts(&w);
		for (int i = 0; i < 4; i++)
			place_random_node(&w);
		m = measure_of(w.c, kinds[seed % 3], counts);
		for (int round = 0; round < 60; round++) {
			uint32_t node = place_draw(&w, st_cluster_node_count(w.c));
			struct st_request req = place_random_request(&w, 3);

			place_random_step(&w);
			if (place_chance(&w, 2))
				req.product[0] = '\0';
			if (place_chance(&w, 2))
				req.cpu_milli = 0;
			check_choice(&w, m, kinds[seed % 3], node, &req, &found);
			asked++;
		}
		fr_measure_free(m);
		fr_counts_free(counts);
		place_world_fini(&w);
	}
	cr_assert(found > asked / 5 && found < asked * 4 / 5, "%u of %u", found, asked);
}

/* ---- what the measure likes best ---- */

/* N of the node, by a measure of its own on a copy on which the grant is booked (count 0: none). */
static int64_t n_on_copy(const struct st_cluster *c, uint32_t node, enum fr_kind kind,
			 const struct fr_counts *counts, const struct st_request *req,
			 const struct st_grant *g)
{
	struct st_cluster *copy = po_copy_node(c, node, NULL, NULL);
	struct st_decision d = {.node = 0, .grant_count = 1, .grants = {*g}};
	struct st_pod_ident id = ident_of(req);
	struct fr_measure *m;
	int64_t n;

	cr_assert_not_null(copy);
	if (g->count > 0)
		cr_assert_eq(st_cluster_reserve(copy, &id, &d, NULL), 0);
	m = measure_of(copy, kind, counts);
	n = fr_measure_node(m, 0);
	fr_measure_free(m);
	st_cluster_free(copy);
	return n;
}

struct liking {
	int64_t keys[4]; /* larger is better, the first first */
	struct st_grant g;
};

static bool liked_more(const struct liking *a, const struct liking *b)
{
	for (int i = 0; i < 4; i++)
		if (a->keys[i] != b->keys[i])
			return a->keys[i] > b->keys[i];
	return false;
}

struct contest {
	const struct st_cluster *c;
	uint32_t node;
	const struct st_request *req;
	enum fr_kind kind;
	const struct fr_counts *counts;
	const struct fr_workload *w;
	int64_t before;
	struct liking best;
	unsigned entries;
};

static void enter(struct contest *ct, enum st_mode mode, uint8_t gpu, uint8_t start)
{
	const struct st_item *it = &ct->req->items[0];
	const struct st_gpu *g = &st_cluster_node(ct->c, ct->node)->gpus[gpu];
	struct st_decision d = {.node = ct->node, .grant_count = 1};
	struct st_pod_ident id = ident_of(ct->req);
	struct liking l = {.g = place_grant(ct->c, ct->node, it, mode, &gpu, &start)};
	int64_t n;

	d.grants[0] = l.g;
	if (st_cluster_can_book(ct->c, &id, &d, true, NULL) < 0)
		return;
	n = n_on_copy(ct->c, ct->node, ct->kind, ct->counts, ct->req, &l.g);
	if (it->kind == ST_KIND_MIG) {
		int profile = st_mig_profile_find(g->mig, it->profile);
		uint64_t placed = g->mig_placed | st_mig_bit(g->mig, profile, start);

		l.keys[0] = -n;
		l.keys[1] = bp_mig_spread(g->mig, g->mig_placed) - bp_mig_spread(g->mig, placed);
		l.keys[2] = start;
		l.keys[3] = -st_mig_units_free(g->mig, g->mig_placed);
	} else {
		l.keys[0] = score_of(ct->kind, ct->req, ct->w->total, ct->before, n);
		if (ct->req->workload == ST_WORKLOAD_MEMORY_BOUND && g->memory_bound > 0)
			l.keys[0] -= BP_NEIGHBOUR_PENALTY;
		l.keys[1] = ct->w->mixed && g->mode == mode;
	}
	if (ct->entries++ == 0 || liked_more(&l, &ct->best))
		ct->best = l;
}

static void contest(struct contest *ct)
{
	const struct st_node *n = st_cluster_node(ct->c, ct->node);
	const struct st_item *it = &ct->req->items[0];

	bool other;

	for (uint8_t gpu = 0; gpu < n->gpu_count; gpu++)
		for (unsigned start = 0; start < (it->kind == ST_KIND_MIG ? 12U : 1U); start++)
			enter(ct, it->mode, gpu, (uint8_t)start);
	other = ct->entries == 0 && it->mode_preferred;
	for (uint8_t gpu = 0; other && gpu < n->gpu_count; gpu++)
		enter(ct, bp_other_mode(it->mode), gpu, 0);
}

Test(model_choose, single_containers_get_the_best_gpu)
{
	unsigned contests[3] = {0};

	for (uint64_t seed = 1; seed <= 60; seed++) {
		enum fr_kind kind = seed % 2 ? FR_FGD : FR_CA;
		struct place_world w;
		struct fr_counts *counts;
		struct fr_measure *m;

		place_world_init(&w, &cfg, seed, PLACE_SMALL);
		counts = random_counts(&w);
		for (int i = 0; i < 4; i++)
			place_random_node(&w);
		m = measure_of(w.c, kind, counts);
		for (int round = 0; round < 50; round++) {
			uint32_t node = place_draw(&w, st_cluster_node_count(w.c));
			struct bp_chooser how = {.pick = BP_PICK_MEASURE, .measure = m};
			struct st_request req = place_random_request(&w, 1);
			struct contest ct = {.c = w.c,
					     .node = node,
					     .req = &req,
					     .kind = kind,
					     .counts = counts,
					     .w = fr_measure_workload(m)};
			struct st_grant none = {.count = 0};
			struct st_decision d;
			int32_t score;

			place_random_step(&w);
			cr_assert_eq(fr_measure_sync(m, node), 0);
			req.product[0] = '\0';
			if (req.item_count == 0 || req.items[0].kind == ST_KIND_WHOLE)
				continue;
			req.items[0].count = 1;
			if (bp_choose(w.c, &how, node, &req, &d, &score) != BP_OK)
				continue;
			ct.before = n_on_copy(w.c, node, kind, counts, &req, &none);
			cr_assert_eq(ct.before, fr_measure_node(m, node));
			contest(&ct);
			cr_assert_gt(ct.entries, 0);
			cr_assert_eq(d.grants[0].gpu[0], ct.best.g.gpu[0], "GPU %u, not %u",
				     d.grants[0].gpu[0], ct.best.g.gpu[0]);
			cr_assert_eq(d.grants[0].mode, ct.best.g.mode);
			if (req.items[0].kind == ST_KIND_MIG)
				cr_assert_eq(d.grants[0].start[0], ct.best.g.start[0]);
			else
				cr_assert_eq(score, ct.best.keys[0]);
			contests[req.items[0].kind] += ct.entries > 1;
		}
		fr_measure_free(m);
		fr_counts_free(counts);
		place_world_fini(&w);
	}
	cr_assert_gt(contests[ST_KIND_SHARE], 100, "%u", contests[ST_KIND_SHARE]);
	cr_assert_gt(contests[ST_KIND_MIG], 20, "%u", contests[ST_KIND_MIG]);
}

/* The measures on random clusters: against sums made anew from the definitions, task by task; kept
 * up to date against made afresh; and what they predict against what booking then gives. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/arith.h"
#include "fragmentation/measure_internal.h"
#include "test/lib/place.h"

/* ---- the definitions, naively ---- */

static int64_t milli_left(const struct st_gpu *g)
{
	int64_t units = 0;
	int profile, start;

	if (g->taken != ST_TAKEN_NO)
		return 0;
	if (g->mode != ST_MODE_MIG)
		return g->free_mib > 0 ? (int64_t)g->free_mib * 1000 / g->alloc_mib : 0;
	units = g->mig->units_total;
	for (int i = 0; st_mig_at(g->mig, g->mig_placed, i, &profile, &start); i++)
		units -= g->mig->profiles[profile].units;
	return units * 1000 / g->mig->units_total;
}

/* Most instances that fit, by trying all ways. */
static int most_instances(const struct st_mig_geometry *g, uint64_t placed, int profile)
{
	int best = 0;

	for (int i = 0; i < g->profiles[profile].start_count; i++) {
		int start = g->profiles[profile].starts[i], n;

		if (!st_mig_can_place(g, placed, profile, start))
			continue;
		n = 1 + most_instances(g, placed | st_mig_bit(g, profile, start), profile);
		best = n > best ? n : best;
	}
	return best;
}

static int most_shares(const struct st_config *cfg, struct st_gpu g, const struct fr_class *c,
		       int64_t mib)
{
	uint8_t other = c->mode == ST_MODE_SM_SHARING ? ST_MODE_TIME_SLICING : ST_MODE_SM_SHARING;
	int n = 0;

	if (g.mode == ST_MODE_FREE)
		g.mode = c->mode;
	if (g.mode != c->mode && !(c->mode_preferred && g.mode == other))
		return 0;
	while (g.free_mib >= mib && g.clients < cfg->clients_max &&
	       (g.mode != ST_MODE_SM_SHARING || g.compute_left_nano >= c->compute_nano)) {
		g.free_mib -= (int32_t)mib;
		g.clients++;
		g.compute_left_nano -= g.mode == ST_MODE_SM_SHARING ? c->compute_nano : 0;
		n++;
	}
	return n;
}

static int64_t share_mib(const struct fr_class *c, int32_t alloc_mib)
{
	int64_t mib = c->size_mib;

	if (mib == 0)
		mib = (int64_t)alloc_mib * c->size_nano / ST_NANO;
	return mib > 0 ? mib : 1;
}

/* Milli of the GPU that a task takes; 0: none is possible, by the kind of GPU alone. */
static int64_t task_milli(const struct st_gpu *g, const struct fr_class *c)
{
	int p;

	switch (c->kind) {
	case ST_KIND_WHOLE:
		return 1000;
	case ST_KIND_MIG:
		p = g->mig ? st_mig_profile_find(g->mig, c->profile) : -1;
		return p < 0 ? 0 : g->mig->profiles[p].units * 1000 / g->mig->units_total;
	default:
		return share_mib(c, g->alloc_mib) * 1000 / g->alloc_mib;
	}
}

static int most_tasks(const struct st_config *cfg, const struct st_gpu *g, const struct fr_class *c)
{
	int p;

	if (g->taken != ST_TAKEN_NO)
		return 0;
	switch (c->kind) {
	case ST_KIND_WHOLE:
		return g->mode == ST_MODE_FREE;
	case ST_KIND_MIG:
		p = g->mig ? st_mig_profile_find(g->mig, c->profile) : -1;
		return p < 0 ? 0 : most_instances(g->mig, g->mig_placed, p);
	default:
		return g->mode == ST_MODE_MIG ? 0
					      : most_shares(cfg, *g, c, share_mib(c, g->alloc_mib));
	}
}

/* What one class finds on a node. */
struct find {
	int64_t fill, lost; /* milli it could fill; milli it could not touch */
};

static struct find find(const struct st_cluster *c, const struct st_node *n,
			const struct fr_class *cls, int64_t r)
{
	const char *product =
		n->product == STRPOOL_NONE ? NULL : strpool_str(st_cluster_products(c), n->product);
	int64_t cpu = arith_max(n->cpu_left_milli, 0), d0 = task_milli(&n->gpus[0], cls), cap;
	struct find f = {0, 0};
	int places = 0;

	for (unsigned i = 0; i < n->gpu_count && st_product_accepts(cls->product, product); i++) {
		const struct st_gpu *g = &n->gpus[i];
		int tasks = most_tasks(st_cluster_config(c), g, cls);

		f.fill += tasks * task_milli(g, cls);
		places += cls->kind == ST_KIND_MIG ? tasks : tasks > 0;
		f.lost += tasks == 0                 ? milli_left(g)
			  : cls->kind == ST_KIND_MIG ? milli_left(g) - tasks * task_milli(g, cls)
						     : 0;
	}
	if (places < cls->count || cpu < cls->cpu_milli)
		f.lost = r;
	/* Tasks of several devices, and what CPU allows, are counted by the first GPU's type. */
	if (cls->count > 1)
		f.fill = (int64_t)places / cls->count * cls->count * d0;
	cap = cls->cpu_milli == 0 ? INT64_MAX : cpu * d0 * cls->count / cls->cpu_milli;
	if (d0 > 0)
		f.fill = arith_min(f.fill, cap);
	else if (cpu < cls->cpu_milli)
		f.fill = 0;
	return f;
}

/* Tables that were made during one check, which takes the same ones again and again. */
static struct {
	const struct st_mig_geometry *g;
	int64_t weight[ST_MIG_PROFILES_MAX];
	struct fr_mig_value *v;
} made[16];

static struct fr_mig_value *value_of(const struct st_mig_geometry *g, const int64_t *weight)
{
	const size_t bytes = sizeof(made[0].weight);
	size_t i = 0;

	while (made[i].v != NULL && (made[i].g != g || memcmp(made[i].weight, weight, bytes) != 0))
		cr_assert_lt(++i, sizeof(made) / sizeof(made[0]));
	if (made[i].v == NULL) {
		made[i].g = g;
		memcpy(made[i].weight, weight, bytes);
		made[i].v = fr_mig_value_new(g, ST_MIG_ANYWHERE, weight);
		cr_assert_not_null(made[i].v);
	}
	return made[i].v;
}

static void forget_values(void)
{
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		fr_mig_value_free(made[i].v);
		made[i].v = NULL;
	}
}

/* CA: what the layouts of instances lose by the table made for all classes of the node's product. */
static struct find find_mig(const struct st_cluster *c, const struct st_node *n,
			    const struct fr_workload *w, const struct fr_class *cls, int64_t r)
{
	const char *product =
		n->product == STRPOOL_NONE ? NULL : strpool_str(st_cluster_products(c), n->product);
	struct find f = {0, arith_max(n->cpu_left_milli, 0) < cls->cpu_milli ? r : 0};

	for (unsigned i = 0; i < n->gpu_count && st_product_accepts(cls->product, product); i++) {
		const struct st_gpu *g = &n->gpus[i];
		int64_t weight[ST_MIG_PROFILES_MAX] = {0};

		if (g->taken != ST_TAKEN_NO || !g->mig ||
		    st_mig_profile_find(g->mig, cls->profile) < 0)
			continue;
		for (size_t k = 0; k < w->count; k++) {
			const struct fr_class *o = &w->classes[k];
			int p = o->kind == ST_KIND_MIG && o->count > 0 &&
						st_product_accepts(o->product, product)
					? st_mig_profile_find(g->mig, o->profile)
					: -1;

			if (p >= 0)
				weight[p] += w->weights[k] * o->count;
		}
		f.fill += milli_left(g) - fr_mig_value_at(value_of(g->mig, weight), g->mig_placed);
	}
	return f;
}

static bool asks_for_mig(const struct fr_workload *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (w->classes[i].count > 0 && w->classes[i].kind == ST_KIND_MIG)
			return true;
	return false;
}

static int64_t naive(const struct st_cluster *c, uint32_t id, enum fr_kind kind,
		     const struct fr_workload *w, int64_t *ret_r)
{
	const struct st_node *n = st_cluster_node(c, id);
	int64_t r = 0, sum = 0, gpu_sum, balance;

	for (unsigned i = 0; n->present && i < n->gpu_count; i++)
		r += milli_left(&n->gpus[i]);
	*ret_r = r;
	if (n->gpu_count == 0 || !n->present || (r == 0 && (kind == FR_FGD || !asks_for_mig(w))))
		return 0;
	for (size_t i = 0; i < w->count; i++) {
		struct find f = {0, r};

		if (w->classes[i].count > 0)
			f = kind == FR_CA && w->classes[i].kind == ST_KIND_MIG
				    ? find_mig(c, n, w, &w->classes[i], r)
				    : find(c, n, &w->classes[i], r);
		sum += w->weights[i] * (kind == FR_FGD ? f.lost : r - f.fill + 3 * f.lost);
	}
	if (kind == FR_FGD)
		return sum;
	gpu_sum = w->gpu_sum + w->gpu_mib_sum * 1000 / n->gpus[0].alloc_mib;
	balance = 8 * r -
		  (int64_t)((__int128)12 * gpu_sum * arith_max(n->cpu_left_milli, 0) / w->cpu_sum);
	return sum + w->total * arith_max(balance, 0);
}

/* ---- random clusters ---- */

static const struct st_config cfg = {
	.reserve_mib = 100, .clients_max = 4, .overcommit_permille = 1500};

struct pair {
	struct place_world w;
	struct fr_measure *m;
};

/* A workload of random classes. */
static struct fr_measure *measure_of(struct place_world *w, enum fr_kind kind,
				     struct fr_counts *counts)
{
	struct fr_workload *wl = fr_workload_build(counts, 100, kind == FR_CA);
	struct fr_measure *m;

	cr_assert_not_null(wl);
	m = fr_measure_new(w->c, kind, wl);
	cr_assert_not_null(m);
	place_sync(m, w->c);
	return m;
}

static struct fr_counts *random_counts(struct place_world *w, enum fr_kind kind, unsigned classes)
{
	struct fr_counts *c = fr_counts_new();

	for (unsigned i = 0; i < classes; i++) {
		struct st_request req = place_random_request(w, 1);
		struct fr_class cls;

		fr_class_of(&req, &cls);
		/* BID takes amounts for a part of the GPUs there are when it is made; here they vary. */
		if (kind == FR_BID && cls.size_mib > 0) {
			cls.size_mib = 0;
			cls.size_nano = 100000000 * (1 + (int32_t)place_draw(w, 10));
		}
		cr_assert_eq(fr_counts_add(c, &cls, 1 + place_draw(w, 30), NULL), 0);
	}
	return c;
}

static void check_naive(const struct place_world *w, const struct fr_measure *m, unsigned step)
{
	int64_t n = 0, idle = 0, r;

	for (uint32_t id = 0; id < st_cluster_node_count(w->c); id++) {
		int64_t want = naive(w->c, id, m->kind, m->w, &r);

		cr_assert_eq(fr_measure_node(m, id), want,
			     "step %u, kind %d, node %u: %lld, not %lld", step, m->kind, id,
			     (long long)fr_measure_node(m, id), (long long)want);
		n += want;
		idle += r;
	}
	forget_values();
	cr_assert_eq(fr_measure_total(m), n);
	cr_assert_eq(fr_measure_idle_total(m), idle);
}

Test(model_measure, equals_the_definition)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct place_world w;
		struct fr_counts *counts;
		struct fr_measure *fgd, *ca;

		place_world_init(&w, &cfg, seed, PLACE_ONE_SIZE);
		counts = random_counts(&w, FR_CA, 1 + place_draw(&w, 20));
		fgd = measure_of(&w, FR_FGD, counts);
		ca = measure_of(&w, FR_CA, counts);
		for (unsigned step = 0; step < 150; step++) {
			place_random_step(&w);
			place_sync(fgd, w.c);
			place_sync(ca, w.c);
			check_naive(&w, fgd, step);
			check_naive(&w, ca, step);
		}
		cr_assert_eq(st_cluster_check(w.c, ST_NONE, NULL), 0);
		fr_measure_free(fgd);
		fr_measure_free(ca);
		fr_counts_free(counts);
		place_world_fini(&w);
	}
}

/* Only nodes that changed are synced, and rows are forgotten again and again. */
Test(model_measure, incremental_equals_afresh)
{
	static const enum fr_kind kinds[] = {FR_FGD, FR_CA, FR_BID};

	for (uint64_t seed = 1; seed <= 12; seed++) {
		enum fr_kind kind = kinds[seed % 3];
		struct place_world w;
		struct fr_counts *counts;
		struct fr_measure *m;
		uint64_t pos;

		place_world_init(&w, &cfg, seed, 0);
		counts = random_counts(&w, kind, 12);
		m = measure_of(&w, kind, counts);
		m->row_limit = 8 + (uint32_t)seed;
		pos = st_cluster_log_end(w.c);
		for (unsigned step = 0; step < 400; step++) {
			struct fr_measure *fresh;

			place_random_step(&w);
			for (; pos < st_cluster_log_end(w.c); pos++)
				cr_assert_eq(fr_measure_sync(m, st_cluster_log_at(w.c, pos)), 0);
			if (step % 20 != 0)
				continue;
			fresh = measure_of(&w, kind, counts);
			for (uint32_t id = 0; id < st_cluster_node_count(w.c); id++)
				cr_assert_eq(fr_measure_node(m, id), fr_measure_node(fresh, id));
			cr_assert_eq(fr_measure_total(m), fr_measure_total(fresh));
			cr_assert_eq(fr_measure_idle_total(m), fr_measure_idle_total(fresh));
			fr_measure_free(fresh);
		}
		if (kind != FR_BID) /* whose rows are the states themselves */
			cr_assert_gt(m->row_epoch, 1, "rows were never forgotten");
		fr_measure_free(m);
		fr_counts_free(counts);
		place_world_fini(&w);
	}
}

/* ---- predictions ---- */

struct guess {
	int64_t n;
	int32_t score;
};

static struct guess guess(struct fr_measure *m, uint32_t node, int64_t cpu,
			  const struct fr_change *ch, unsigned n)
{
	return (struct guess){fr_measure_after(m, node, cpu, ch, n),
			      fr_measure_score(m, node, cpu, ch, n)};
}

/* Books the decision and compares; then all is undone. False: it cannot be booked. */
static bool holds(struct place_world *w, struct fr_measure *m, const struct st_decision *d,
		  int64_t cpu, struct guess g, struct st_gpu *ret_after)
{
	struct st_pod_ident id = place_ident("guess", 0, cpu);
	int64_t before = fr_measure_node(m, d->node), total = fr_measure_total(m);
	const struct st_node *n = st_cluster_node(w->c, d->node);

	if (st_cluster_reserve(w->c, &id, d, NULL) < 0)
		return false;
	cr_assert_eq(fr_measure_sync(m, d->node), 0);
	if (ret_after)
		memcpy(ret_after, n->gpus, n->gpu_count * sizeof(*ret_after));
	else
		cr_assert_eq(fr_measure_node(m, d->node), g.n, "kind %d: predicted %lld, got %lld",
			     m->kind, (long long)g.n, (long long)fr_measure_node(m, d->node));
	if (!ret_after && m->kind != FR_BID) {
		int64_t diff = before - fr_measure_node(m, d->node);

		cr_assert_eq(g.score, m->kind == FR_CA ? arith_floor_div(diff, 480 * m->w->total)
						       : fr_score_fgd(m->thresholds, -diff));
	}
	place_gone(w->c, "guess");
	cr_assert_eq(fr_measure_sync(m, d->node), 0);
	cr_assert_eq(fr_measure_node(m, d->node), before);
	cr_assert_eq(fr_measure_total(m), total);
	return true;
}

static unsigned try_share(struct place_world *w, struct fr_measure *m, uint32_t node, uint8_t gpu)
{
	static const int32_t mibs[] = {1, 300, 900, 4000, 20000};
	const struct st_node *n = st_cluster_node(w->c, node);
	struct fr_gpu g = fr_gpu_load(m, node, gpu), after;
	int64_t cpu = 500 * (int64_t)place_draw(w, 10);
	struct st_item it = place_share(mibs[place_draw(w, 5)]);
	struct st_decision d = {.node = node, .grant_count = 1};
	struct fr_change ch = {g.row, 0, 1};

	if (place_chance(w, 2))
		it.mode = ST_MODE_SM_SHARING;
	it.compute_nano = place_chance(w, 2) ? 0 : 100000000 * (int32_t)place_draw(w, 8);
	d.grants[0] = place_grant(w->c, node, &it, it.mode, &gpu, NULL);
	after = fr_gpu_after_share(m, &g, it.mode, it.request_mib, it.compute_nano);
	ch.after = after.row;
	return holds(w, m, &d, cpu, guess(m, node, n->cpu_left_milli - cpu, &ch, 1), NULL);
}

/* As many whole GPUs as are alike from this one on. */
static unsigned try_whole(struct place_world *w, struct fr_measure *m, uint32_t node, uint8_t gpu)
{
	const struct st_node *n = st_cluster_node(w->c, node);
	struct fr_gpu g = fr_gpu_load(m, node, gpu);
	struct fr_change ch = {g.row, fr_gpu_after_whole(m, &g).row, 0};
	struct st_decision d = {.node = node, .grant_count = 1};
	struct st_item it;
	uint8_t gpus[ST_GPUS_MAX];

	for (uint8_t i = gpu; i < n->gpu_count; i++)
		if (fr_gpu_load(m, node, i).row == g.row)
			gpus[ch.times++] = i;
	it = place_whole(ch.times);
	d.grants[0] = place_grant(w->c, node, &it, ST_MODE_EXCLUSIVE, gpus, NULL);
	return holds(w, m, &d, 1000, guess(m, node, n->cpu_left_milli - 1000, &ch, 1), NULL);
}

static unsigned try_mig(struct place_world *w, struct fr_measure *m, uint32_t node, uint8_t gpu)
{
	const struct st_node *n = st_cluster_node(w->c, node);
	const struct st_mig_geometry *geo = n->gpus[gpu].mig;
	struct fr_gpu g = fr_gpu_load(m, node, gpu);
	unsigned tried = 0;

	for (int p = 0; geo && p < geo->profile_count; p++)
		for (int i = 0; i < geo->profiles[p].start_count; i++) {
			struct st_item it = place_mig(geo->profiles[p].name, 1);
			struct st_decision d = {.node = node, .grant_count = 1};
			struct fr_change ch = {g.row, 0, 1};
			uint8_t start = geo->profiles[p].starts[i];

			if (!st_mig_can_place(geo, g.mig_placed, p, start))
				continue;
			ch.after = fr_gpu_after_mig(m, &g, p, start).row;
			d.grants[0] = place_grant(w->c, node, &it, ST_MODE_MIG, &gpu, &start);
			tried +=
				holds(w, m, &d, 0, guess(m, node, n->cpu_left_milli, &ch, 1), NULL);
		}
	return tried;
}

/* A random decision over several GPUs and containers, by the rows of the GPUs as they would be. */
static unsigned try_several(struct place_world *w, struct fr_measure *m, uint32_t node)
{
	const struct st_node *n = st_cluster_node(w->c, node);
	struct st_request req = place_random_request(w, 3);
	struct st_decision d = {.node = node, .grant_count = req.item_count};
	struct st_gpu after[ST_GPUS_MAX];
	struct fr_change ch[ST_GPUS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < req.item_count; i++) {
		uint8_t gpus[ST_GPUS_MAX], starts[ST_GPUS_MAX];
		unsigned first = place_draw(w, n->gpu_count);

		for (unsigned k = 0; k < req.items[i].count; k++) {
			gpus[k] = (uint8_t)((first + k) % n->gpu_count);
			starts[k] = (uint8_t)place_draw(w, 7);
		}
		d.grants[i] =
			place_grant(w->c, node, &req.items[i], req.items[i].mode, gpus, starts);
	}
	if (!holds(w, m, &d, req.cpu_milli, (struct guess){0, 0}, after))
		return 0;
	for (unsigned i = 0; i < n->gpu_count; i++) {
		struct fr_gpu g = fr_gpu_load(m, node, i);
		uint64_t row = fr_gpu_row(m, &g, &after[i], after[i].clients - n->gpus[i].clients);

		if (row != g.row)
			ch[count++] = (struct fr_change){g.row, row, 1};
	}
	return holds(w, m, &d, req.cpu_milli,
		     guess(m, node, n->cpu_left_milli - req.cpu_milli, ch, count), NULL);
}

Test(model_measure, predictions_hold)
{
	static const enum fr_kind kinds[] = {FR_FGD, FR_CA, FR_BID};
	unsigned tried[4] = {0};

	for (uint64_t seed = 1; seed <= 15; seed++) {
		struct place_world w;
		struct fr_counts *counts;
		struct fr_measure *m;

		place_world_init(&w, &cfg, seed, 0);
		counts = random_counts(&w, FR_CA, 12);
		m = measure_of(&w, kinds[seed % 3], counts);
		for (unsigned step = 0; step < 120; step++) {
			uint32_t node;
			const struct st_node *n;

			place_random_step(&w);
			place_sync(m, w.c);
			if (step % 25 == 24)
				fr_measure_price_steps(m, 3);
			if (step % 50 == 49)
				fr_measure_price_publish(m);
			node = place_draw(&w, st_cluster_node_count(w.c));
			n = st_cluster_node(w.c, node);
			for (uint8_t g = 0; n->present && g < n->gpu_count; g++) {
				tried[0] += try_share(&w, m, node, g);
				tried[1] += try_whole(&w, m, node, g);
				tried[2] += try_mig(&w, m, node, g);
				tried[3] += try_several(&w, m, node);
			}
		}
		fr_measure_free(m);
		fr_counts_free(counts);
		place_world_fini(&w);
	}
	for (int i = 0; i < 4; i++)
		cr_assert_gt(tried[i], 200, "kind %d of try: only %u", i, tried[i]);
}

/* Workloads that no cluster has: prices stay in range, and so does the arithmetic. */
Test(model_measure, prices_of_odd_workloads)
{
	static const int64_t cpus[] = {0, 1, 2000, 1000000, INT64_MAX};
	static const int64_t counts_of[] = {1, 7, 1000000};
	static const int32_t mibs[] = {1, 300, 100000, INT32_MAX};
	static const char *const profiles[] = {"1g.5gb", "3g.20gb", "7g.40gb"};

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct fr_counts *counts = fr_counts_new();
		struct place_world w;
		struct fr_measure *m;

		place_world_init(&w, &cfg, seed, 0);
		for (unsigned i = 1 + place_draw(&w, 6); i > 0; i--) {
			struct st_request req = place_cpu(cpus[place_draw(&w, 5)]);
			struct fr_class cls;

			if (place_chance(&w, 3))
				place_add(&req, place_whole(1 + (int)place_draw(&w, 16)));
			else if (place_chance(&w, 2))
				place_add(&req, place_share(mibs[place_draw(&w, 4)]));
			else if (place_chance(&w, 2))
				place_add(&req, place_mig(profiles[place_draw(&w, 3)],
							  1 + (int)place_draw(&w, 7)));
			fr_class_of(&req, &cls);
			cr_assert_eq(
				fr_counts_add(counts, &cls, counts_of[place_draw(&w, 3)], NULL), 0);
		}
		for (int i = 0; i < 6; i++)
			place_random_node(&w);
		place_node(w.c, "huge", INT64_MAX, 16, 81559);
		place_node_mig(w.c, "mig", PLACE_A100, 8, PLACE_A100_MIB, 0xff);
		m = measure_of(&w, FR_BID, counts);
		for (int round = 0; round < 10; round++) {
			fr_measure_price_steps(m, 40);
			fr_measure_price_publish(m);
			for (uint32_t id = 0; id < st_cluster_node_count(w.c); id++) {
				int64_t n = fr_measure_node(m, id);

				cr_assert(n > -(INT64_C(1) << 50) && n < INT64_C(1) << 50);
				cr_assert_eq(
					fr_measure_after(m, id,
							 st_cluster_node(w.c, id)->cpu_left_milli,
							 NULL, 0),
					n);
			}
		}
		fr_measure_free(m);
		fr_counts_free(counts);
		place_world_fini(&w);
	}
}

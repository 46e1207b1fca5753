/* Parts of the bid prices: what is paid beside the value lost (CPU beside busy GPUs, types in much use); MIG:
 * layouts against the rules of placement state by state, their values against what they lead to, and what
 * nodes are worth and would host. */
#include <criterion/criterion.h>

#include "binpack/binpack.h"
#include "fragmentation/measure_internal.h"
#include "test/lib/place.h"

#define ONE16 65536

static const struct place_class five[] = {{3, 0, PLACE_MIG("1g.5gb"), NULL},
					  {2, 0, PLACE_MIG("2g.10gb"), NULL},
					  {2, 0, PLACE_MIG("3g.20gb"), NULL},
					  {1, 0, PLACE_MIG("4g.20gb"), NULL},
					  {1, 0, PLACE_MIG("7g.40gb"), NULL}};

struct setup {
	struct st_cluster *c;
	struct fr_measure *m;
};

static struct setup setup_with(const struct place_class *mix, size_t count, size_t nodes)
{
	static const char *const names[] = {"a", "b", "c"};
	struct setup s = {.c = st_cluster_new(NULL)};

	for (size_t i = 0; i < nodes; i++)
		place_node_mig(s.c, names[i], PLACE_A100, 1, PLACE_A100_MIB, 1);
	s.m = place_measure(s.c, FR_BID, mix, count);
	return s;
}

static void teardown(struct setup *s)
{
	fr_measure_free(s->m);
	st_cluster_free(s->c);
}

static bool leads_to(const struct fr_bid_layouts *l, int layout, uint32_t run, int to)
{
	for (uint32_t e = l->begin[layout]; e < l->begin[layout + 1]; e++)
		if (l->edges[e].run == run && l->edges[e].to == to)
			return true;
	return false;
}

/* All that can be made in a state, and nothing else, is an edge of its layout. */
static void check_state(const struct fr_bid_group *g, uint64_t placed)
{
	const struct fr_bid_layouts *l = &g->layouts;
	int layout = fr_bid_layout(g, placed);
	bool seen[64] = {false};

	cr_assert(layout >= 0);
	for (uint32_t run = g->mig_runs; run < g->mig_runs_end; run++) {
		int p = g->run_size[run] - 1;
		const struct st_mig_profile *q = &g->mig->profiles[p];

		for (int i = 0; i < q->start_count; i++) {
			uint64_t after = placed | st_mig_bit(g->mig, p, q->starts[i]);

			if (!st_mig_can_place(g->mig, placed, p, q->starts[i]))
				continue;
			cr_assert(leads_to(l, layout, run, fr_bid_layout(g, after)));
			cr_assert_lt(fr_bid_layout(g, after), layout);
			for (uint32_t e = l->begin[layout]; e < l->begin[layout + 1]; e++)
				seen[e - l->begin[layout]] |=
					l->edges[e].run == run &&
					l->edges[e].to == fr_bid_layout(g, after);
		}
	}
	for (uint32_t e = l->begin[layout]; e < l->begin[layout + 1]; e++)
		cr_assert(seen[e - l->begin[layout]], "an edge that no start leads along");
}

Test(bid_mig, layouts_are_states_with_the_same_future)
{
	struct setup s = setup_with(five, 5, 1);
	const struct fr_bid_group *g = &s.m->bid->groups[s.m->types[0].bid_group];

	cr_assert_eq(s.m->bid->group_count, 1);
	cr_expect_eq(g->layouts.states, 2319);
	cr_expect_eq(g->layouts.count, 21);
	for (uint32_t i = 0; i < g->layouts.states; i++)
		check_state(g, g->layouts.placed[i]);
	cr_expect_eq(fr_bid_layout(g, UINT64_C(1) << 63), -1, "no such state");
	teardown(&s);
}

/* Nothing can be made: worth nothing. Else not more than the best that can be made and what it leaves,
 * and not less than the worst; and the shares add up to one. */
Test(bid_mig, value_of_a_layout)
{
	struct setup s = setup_with(five, 5, 3);
	struct fr_bid *b = s.m->bid;
	const struct fr_bid_layouts *l = &b->groups[0].layouts;
	const struct fr_bid_tables *t = &b->step[0];

	fr_measure_price_steps(s.m, 200);
	for (uint32_t i = 0; i < l->count; i++) {
		int64_t best = INT64_MIN, worst = INT64_MAX, share = 0;

		for (uint32_t e = l->begin[i]; e < l->begin[i + 1]; e++) {
			int64_t v =
				t->bid[l->edges[e].run * FR_BID_STRIDE] + t->mig[l->edges[e].to][0];

			cr_assert_gt(t->bid[l->edges[e].run * FR_BID_STRIDE], 0);
			best = v > best ? v : best;
			worst = v < worst ? v : worst;
			share += t->mig_share[e][0];
		}
		if (l->begin[i] == l->begin[i + 1]) {
			cr_expect_eq(t->mig[i][0], 0);
			continue;
		}
		cr_expect(t->mig[i][0] <= best + 1 && t->mig[i][0] >= worst - 1, "layout %u: %d", i,
			  t->mig[i][0]);
		cr_expect(share > ONE16 - 64 && share <= ONE16, "layout %u: %lld", i,
			  (long long)share);
	}
	teardown(&s);
}

/* Tasks of the only class that the cluster would host, in 1/65536. */
static int64_t hosted(const struct place_class *only, size_t nodes)
{
	struct setup s = setup_with(only, 1, nodes);
	int64_t n;

	fr_measure_price_steps(s.m, 1);
	n = s.m->bid->coverage[0];
	teardown(&s);
	return n;
}

Test(bid_mig, what_empty_gpus_would_host)
{
	cr_expect_float_eq((double)hosted(&five[0], 2) / ONE16, 14, 0.01);
	cr_expect_float_eq((double)hosted(&five[1], 2) / ONE16, 6, 0.01);
	cr_expect_float_eq((double)hosted(&five[2], 3) / ONE16, 6, 0.01);
	cr_expect_float_eq((double)hosted(&five[3], 3) / ONE16, 3, 0.01);
	cr_expect_float_eq((double)hosted(&five[4], 1) / ONE16, 1, 0.01);
}

/* What was held is not sold again, and a small instance beside another loses less than on the empty GPU. */
Test(bid_mig, instances_lower_the_value_where_they_are)
{
	struct setup s = setup_with(five, 5, 2);
	struct st_item it = place_mig("1g.5gb", 1);
	struct fr_gpu g[2];
	int32_t score[2];
	int64_t before;

	fr_measure_price_steps(s.m, 1500);
	fr_measure_price_publish(s.m);
	before = fr_measure_node(s.m, 0);
	cr_expect_eq(before, fr_measure_node(s.m, 1));
	cr_expect_lt(before, -900 * (1 << FR_PRICE_BITS), "an empty GPU: %lld", (long long)before);
	place_hold(s.c, 0, "one", &it, 0, 6);
	place_sync(s.m, s.c);
	cr_expect_gt(fr_measure_node(s.m, 0), before);
	for (uint32_t node = 0; node < 2; node++) {
		struct fr_change ch = {.times = 1};
		struct fr_gpu after;

		g[node] = fr_gpu_load(s.m, node, 0);
		after = fr_gpu_after_mig(s.m, &g[node],
					 st_mig_profile_find(s.m->types[0].mig, "1g.5gb"),
					 node == 0 ? 5 : 6);
		ch.before = g[node].row;
		ch.after = after.row;
		score[node] = fr_measure_score_exact(s.m, node, 64000, &ch, 1);
	}
	cr_expect_gt(score[0], score[1]);
	teardown(&s);
}

/* An idle GPU that may be switched can be sold as instances, too; one that may not, cannot. */
Test(bid_mig, idle_gpus_that_can_be_switched)
{
	struct st_gpu_spec gpu = {.mem_mib = PLACE_A100_MIB, .mig_switchable = true};
	struct st_node_spec spec = {.name = "switched",
				    .product = PLACE_A100,
				    .cpu_milli = 64000,
				    .gpu_count = 1,
				    .gpus = &gpu};
	struct st_cluster *c = st_cluster_new(NULL);
	struct fr_measure *m;
	uint32_t on, off;

	cr_assert_eq(st_cluster_node_put(c, &spec, &on, NULL), 0);
	spec.name = "plain";
	gpu.mig_switchable = false;
	cr_assert_eq(st_cluster_node_put(c, &spec, &off, NULL), 0);
	m = place_measure(c, FR_BID, five, 5);
	fr_measure_price_steps(m, 100);
	fr_measure_price_publish(m);
	cr_expect_lt(fr_measure_node(m, on), -500 * (1 << FR_PRICE_BITS));
	cr_expect_eq(fr_measure_node(m, off), 0);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* A pod without GPU: CPU beside busy GPUs is sold for nothing now, but they come back. */
Test(bid, cpu_goes_where_it_is_not_beside_gpus)
{
	static const struct place_class mix[] = {
		{1, 4000, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL}};
	struct st_cluster *c = st_cluster_new(NULL);
	uint32_t few = place_node(c, "few", 64000, 1, 1000);
	uint32_t many = place_node(c, "many", 128000, 1, 1000);
	uint32_t none = place_node(c, "none", 64000, 0, 1000);
	struct st_item it = place_whole(1);
	struct fr_measure *m;

	place_hold(c, few, "a", &it, 0, 0);
	place_hold(c, many, "b", &it, 0, 0);
	m = place_measure(c, FR_BID, mix, 1);
	cr_expect_eq(fr_measure_node(m, few), fr_measure_after(m, few, 32000, NULL, 0));
	/* 3 % of half a GPU, of a quarter; by 6 milli. */
	cr_expect_eq(fr_measure_score(m, few, 32000, NULL, 0), -3);
	cr_expect_eq(fr_measure_score(m, many, 96000, NULL, 0), -2);
	cr_expect_eq(fr_measure_score(m, none, 32000, NULL, 0), 0);
	cr_expect_eq(fr_measure_score(m, few, 64000, NULL, 0), 0);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* Nobody names a model yet; who will finds some of each: what is scarce costs more than what is not. */
Test(bid, a_type_that_is_in_use_more_than_others_costs_more)
{
	static const struct place_class mix[] = {
		{1, 4000, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL}};
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_item it = place_whole(1);
	struct fr_measure *m;
	int32_t score[2];

	for (uint32_t i = 0; i < 8; i++) {
		cr_assert_eq(place_node(c, names[i], 64000, 1, i < 4 ? 16000 : 32000), i);
		if (i < 3)
			place_hold(c, i, names[i], &it, 0, 0);
	}
	m = place_measure(c, FR_BID, mix, 1);
	for (int published = 0; published < 2; published++) {
		for (int side = 0; side < 2; side++) {
			uint32_t node = side == 0 ? 3 : 4;
			struct fr_gpu g = fr_gpu_load(m, node, 0), after;
			struct fr_change ch = {.before = g.row, .times = 1};

			after = fr_gpu_after_whole(m, &g);
			ch.after = after.row;
			score[side] = fr_measure_score_exact(m, node, 60000, &ch, 1);
		}
		if (published == 0)
			cr_expect_eq(score[0], score[1], "not told yet");
		fr_measure_price_publish(m);
	}
	/* 75 and 0 % of them, 37.5 % of all: 30 milli by the difference. */
	cr_expect_eq(m->types[0].scarcity, 30 * (1 << FR_PRICE_BITS) * 375 / 1000);
	cr_expect_eq(m->types[1].scarcity, -30 * (1 << FR_PRICE_BITS) * 375 / 1000);
	cr_expect_lt(score[0], score[1]);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* An amount that is more than the whole GPU cannot be sold on it. */
Test(bid, amounts_larger_than_the_gpu)
{
	struct place_class mix[] = {{1, 1000, place_share(40000), NULL}};
	struct st_cluster *c = st_cluster_new(NULL);
	uint32_t small = place_node(c, "small", 64000, 2, 16000);
	uint32_t large = place_node(c, "large", 64000, 1, 40000);
	struct fr_measure *m = place_measure(c, FR_BID, mix, 1);

	cr_expect_eq(fr_measure_node(m, small), 0);
	cr_expect_lt(fr_measure_node(m, large), 0);
	fr_measure_price_steps(m, 1);
	cr_expect_float_eq((double)m->bid->coverage[0] / ONE16, 1, 0.01);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* GPUs for which no pod asks CPU, and pods without GPU that ask for much: all stays within its type. */
Test(bid, gpus_without_cpu_beside_much_cpu)
{
	static const struct place_class mix[] = {
		{1, 0, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL},
		{1000, INT64_C(1) << 32, {.count = 0}, NULL}};
	struct st_cluster *c = st_cluster_new(NULL);
	struct fr_measure *m;

	place_node(c, "n", INT64_C(1) << 32, 16, 16000);
	m = place_measure(c, FR_BID, mix, 2);
	for (int i = 0; i < 20; i++) {
		cr_assert_gt(m->bid->y_cpu, 0, "step %d", i);
		for (int j = 0; j < FR_BID_J; j++)
			cr_assert(m->bid->score_prices.mu[j] >= 0 &&
					  m->bid->score_prices.mu[j] <= FR_BID_MU_MAX,
				  "price %d: %lld", j, (long long)m->bid->score_prices.mu[j]);
		fr_measure_price_steps(m, 1);
		fr_measure_price_publish(m);
	}
	fr_measure_free(m);
	st_cluster_free(c);
}

/* Whole GPUs with far more CPU than the mean, on a node of many of them: no sum of bids leaves its type. */
Test(bid, dear_in_cpu_on_many_gpus)
{
	static const struct place_class mix[] = {
		{1000, 1, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, "A"},
		{1, 1000000, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, "B"}};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_gpu_spec gpus[16];
	struct st_node_spec spec = {
		.name = "b", .product = "B", .cpu_milli = 1000000, .gpu_count = 16, .gpus = gpus};
	struct fr_measure *m;
	uint32_t id;

	for (int i = 0; i < 16; i++)
		gpus[i] = (struct st_gpu_spec){.mem_mib = 16000};
	cr_assert_eq(st_cluster_node_put(c, &spec, &id, NULL), 0);
	m = place_measure(c, FR_BID, mix, 2);
	for (int f = 1; f <= 16; f++)
		for (int j = 0; j < FR_BID_J; j++) {
			int32_t v = m->bid->score[0].m[f][j];

			cr_assert(v >= -(1 << 29) && v <= f * FR_BID_VALUE_MAX,
				  "%d GPUs at price %d: %d", f, j, v);
		}
	cr_assert_eq(m->bid->score[0].m[16][FR_BID_J - 1], -(1 << 29), "not dear enough: %d",
		     m->bid->score[0].m[16][FR_BID_J - 1]);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* What takes nothing new is not for sale: prices are those of the rest. */
Test(bid, nodes_that_take_nothing_new_are_not_for_sale)
{
	static const struct place_class mix[] = {
		{1, 4000, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL}};
	struct st_gpu_spec gpus[4];
	struct st_node_spec spec = {.name = "cordoned",
				    .product = "T4",
				    .cpu_milli = 64000,
				    .gpu_count = 4,
				    .gpus = gpus,
				    .unready = true,
				    .why_unready = "cordoned"};
	struct st_cluster *c = st_cluster_new(NULL);
	struct fr_measure *m;
	uint32_t id;

	for (int i = 0; i < 4; i++)
		gpus[i] = (struct st_gpu_spec){.mem_mib = 32000};
	cr_assert_eq(st_cluster_node_put(c, &spec, &id, NULL), 0);
	place_node(c, "open", 64000, 1, 16000);
	m = place_measure(c, FR_BID, mix, 1);
	fr_measure_price_steps(m, 1);
	cr_expect_float_eq((double)m->bid->coverage[0] / ONE16, 1, 0.01);
	spec.unready = false;
	spec.why_unready = NULL;
	cr_assert_eq(st_cluster_node_put(c, &spec, &id, NULL), 0);
	place_sync(m, c);
	fr_measure_price_steps(m, 1);
	cr_expect_float_eq((double)m->bid->coverage[0] / ONE16, 5, 0.01);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* However little a container takes, it goes to the GPU with the least left: as where it is alone in its pod. */
Test(bid, shares_that_hardly_change_a_gpu)
{
	const struct place_class mix[] = {{1, 1000, place_share(20000), NULL}};
	struct st_item small = place_share(1), most = place_share(59960),
		       least = place_share(19960);
	struct st_cluster *c = st_cluster_new(NULL);
	uint32_t node = place_node(c, "a", 64000, 2, 80000);
	struct fr_measure *m = place_measure(c, FR_BID, mix, 1);
	struct bp_chooser how = {.pick = BP_PICK_MEASURE, .measure = m};
	struct st_request req = place_request(0, small);
	int32_t one = 0, two = 0;
	struct st_decision d;

	place_hold(c, node, "least", &least, 0, 0);
	place_hold(c, node, "most", &most, 1, 0);
	place_sync(m, c);
	cr_assert_eq(bp_choose(c, &how, node, &req, &d, &one), BP_OK);
	cr_expect_eq(d.grants[0].gpu[0], 1);
	place_add(&req, small);
	cr_assert_eq(bp_choose(c, &how, node, &req, &d, &two), BP_OK);
	cr_expect_eq(d.grants[0].gpu[0], 1);
	cr_expect_eq(d.grants[1].gpu[0], 1);
	cr_expect_eq(one, two, "%d, not %d: the same GPU, left as it was", two, one);
	fr_measure_free(m);
	st_cluster_free(c);
}

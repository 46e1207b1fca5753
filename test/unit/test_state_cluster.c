/* The model: nodes, the bounds of one GPU, moves, change log. */
#include <criterion/criterion.h>
#include <string.h>

#include "test/unit/state_fixture.h"

static struct st_cluster *c;
static struct fx_node node;

static void setup(void)
{
	c = st_cluster_new(NULL);
	cr_assert_not_null(c);
	fx_node_init(&node, "n1", 4, 40960);
}

static void teardown(void)
{
	fx_check(c);
	st_cluster_free(c);
}

static uint32_t version(uint32_t id)
{
	return st_cluster_node(c, id)->version;
}

static struct st_cluster *with_config(struct st_config cfg)
{
	st_cluster_free(c);
	c = st_cluster_new(&cfg);
	cr_assert_not_null(c);
	return c;
}

TestSuite(state_cluster, .init = setup, .fini = teardown);

/* ---- nodes ---- */

Test(state_cluster, a_new_node_shows_what_was_described)
{
	const struct st_node *n;
	uint32_t id;

	node.spec.product = "NVIDIA A100-SXM4-40GB";
	node.spec.pods = 110;
	id = fx_put(c, &node);
	n = st_cluster_node(c, id);
	cr_expect_str_eq(n->name, "n1");
	cr_expect_eq(n->id, id);
	cr_expect(n->present && !n->unready && n->from_inventory);
	cr_expect_eq(n->cpu_left_milli, 64000);
	cr_expect_eq(n->mem_left_mib, 524288);
	cr_expect_eq(n->pods_max, 110);
	cr_expect_eq(n->gpu_count, 4);
	cr_expect_str_eq(strpool_str(st_cluster_products(c), n->product), "NVIDIA A100-SXM4-40GB");
	cr_expect_str_eq(n->gpus[2].uuid, "n1-2");
	cr_expect_eq(n->gpus[2].free_mib, 40960);
	cr_expect_eq(n->gpus[2].compute_left_nano, ST_NANO);
	cr_expect_eq(n->gpus[2].mode, ST_MODE_FREE);
	cr_expect_eq(st_cluster_node_find(c, "n1", 2), id);
	cr_expect_eq(st_cluster_node_find(c, "n1", 1), ST_NONE);
	cr_expect_null(st_cluster_node(c, 1));
}

Test(state_cluster, the_same_description_does_not_move_the_version)
{
	uint32_t id, v;

	node.spec.product = "NVIDIA A100-SXM4-40GB";
	node.spec.unready = true;
	node.spec.why_unready = "driver";
	node.gpus[1].foreign = "pid 4711";
	node.gpus[2].unhealthy = true;
	fx_node_mig(&node, 3, st_mig_table_at(1));
	fx_node_instance(&node, 3, "3g.20gb", 4);
	id = fx_put(c, &node);
	v = version(id);
	fx_put(c, &node);
	cr_expect_eq(version(id), v);
	cr_expect_eq(st_cluster_log_end(c), 1);
	node.spec.why_unready = "fabric manager";
	fx_put(c, &node);
	cr_expect_eq(version(id), v + 1);
	node.gpus[1].foreign = "pid 4712";
	fx_put(c, &node);
	cr_expect_eq(version(id), v + 2);
	node.spec.cpu_milli++;
	fx_put(c, &node);
	cr_expect_eq(version(id), v + 3);
	/* Another order of the same GPUs is no change. */
	struct st_gpu_spec swap = node.gpus[0];
	node.gpus[0] = node.gpus[2];
	node.gpus[2] = swap;
	fx_put(c, &node);
	cr_expect_eq(version(id), v + 3);
	cr_expect_str_eq(fx_gpu(c, id, 0)->uuid, "n1-0");
}

static void refused(const struct fx_node *n, int code)
{
	struct err e = ERR_INIT;
	uint32_t id = 77, end = (uint32_t)st_cluster_log_end(c);

	cr_expect_eq(st_cluster_node_put(c, &n->spec, &id, &e), code);
	cr_expect_neq(e.msg[0], '\0');
	cr_expect_eq(id, 77);
	cr_expect_eq(st_cluster_log_end(c), end, "%s", e.msg);
	fx_check(c);
}

Test(state_cluster, descriptions_that_cannot_be)
{
	struct fx_node bad = node;

	bad.spec.gpus = bad.gpus;
	bad.spec.name = "";
	refused(&bad, ERR_INVALID);
	bad.spec.name = NULL;
	refused(&bad, ERR_INVALID);
	bad.spec.name = "n2";
	bad.gpus[1].uuid = bad.gpus[0].uuid;
	refused(&bad, ERR_INVALID);
	bad.gpus[1].uuid = NULL;
	bad.gpus[0].uuid = "1";
	refused(&bad, ERR_INVALID);
	bad.gpus[0].uuid = "x";
	bad.gpus[0].mem_mib = 0;
	refused(&bad, ERR_INVALID);
	bad.gpus[0].mem_mib = 1;
	bad.spec.gpu_count = ST_GPUS_MAX + 1;
	refused(&bad, ERR_INVALID);
	bad.spec.gpu_count = 4;
	fx_node_instance(&bad, 3, "3g.20gb", 4);
	refused(&bad, ERR_INVALID);
	fx_node_mig(&bad, 3, st_mig_table_at(1));
	fx_node_instance(&bad, 3, "7g.40gb", 0);
	refused(&bad, ERR_INVALID);
	bad.gpus[3].instance_count = 1;
	fx_node_instance(&bad, 3, "3g.20gb", 4);
	refused(&bad, ERR_INVALID);
	bad.gpus[3].instance_count = 1;
	fx_node_instance(&bad, 3, "3g.20gb", 3);
	refused(&bad, ERR_INVALID);
	bad.gpus[3].instance_count = 65;
	refused(&bad, ERR_INVALID);
	bad.gpus[3].instance_count = 1;
	bad.gpus[3].geometry.profiles[0].units = 9;
	refused(&bad, ERR_INVALID);
	cr_expect_eq(st_cluster_node_count(c), 0);
}

Test(state_cluster, ranks_are_unique_and_do_not_follow_names)
{
	uint32_t in_order = 0;
	char name[16];

	node.spec.gpu_count = 0;
	for (uint32_t i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "node-%04u", i);
		node.spec.name = name;
		fx_put(c, &node);
		if (i > 0)
			in_order += st_cluster_node(c, i)->rank > st_cluster_node(c, i - 1)->rank;
	}
	cr_expect(in_order > 400 && in_order < 600, "%u of 999 in order", in_order);
	node.spec.name = "given";
	node.spec.has_rank = true;
	node.spec.rank = st_cluster_node(c, 5)->rank;
	refused(&node, ERR_EXISTS);
	while (true) {
		uint32_t free_rank = node.spec.rank + 1, i = 0;

		while (i < 1000 && st_cluster_node(c, i)->rank != free_rank)
			i++;
		node.spec.rank = free_rank;
		if (i == 1000)
			break;
	}
	cr_expect_eq(st_cluster_node(c, fx_put(c, &node))->rank, node.spec.rank);
	node.spec.rank = 4;
	node.spec.cpu_milli = 5;
	cr_expect_neq(st_cluster_node(c, fx_put(c, &node))->rank, 4, "fixed when first seen");
}

Test(state_cluster, a_derived_rank_makes_way_on_collision)
{
	uint32_t rank = st_cluster_node(c, fx_put(c, &node))->rank;

	with_config((struct st_config)ST_CONFIG_DEFAULT);
	node.spec.name = "other";
	node.spec.has_rank = true;
	node.spec.rank = rank;
	fx_put(c, &node);
	node.spec.name = "n1";
	node.spec.has_rank = false;
	cr_expect_eq(st_cluster_node(c, fx_put(c, &node))->rank, rank + 1);
}

Test(state_cluster, a_removed_node_keeps_what_is_held)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 1, 1000);
	struct err e = ERR_INIT;

	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(st_cluster_node_remove(c, "n1", &e), 0);
	cr_expect_eq(st_cluster_node_remove(c, "n1", &e), ERR_NOT_FOUND);
	cr_expect_eq(st_cluster_node_remove(c, "n9", &e), ERR_NOT_FOUND);
	cr_expect_not(st_cluster_node(c, id)->present);
	cr_expect_eq(fx_gpu(c, id, 1)->free_mib, 39960);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT);
	cr_expect_eq(fx_put(c, &node), id);
	cr_expect_eq(fx_gpu(c, id, 1)->free_mib, 39960);
	cr_expect_eq(st_cluster_node_remove(c, "n1", &e), 0);
	cr_expect_eq(fx_move(c, "a", ST_EVENT_GONE), 0);
	cr_expect_eq(st_cluster_node(c, id)->gpu_count, 0, "an empty removed node keeps no GPUs");
	cr_expect_eq(fx_put(c, &node), id);
	cr_expect_eq(fx_gpu(c, id, 1)->free_mib, 40960);
}

/* ---- the bounds of one GPU ---- */

Test(state_cluster, the_first_sets_the_mode_and_the_last_frees_it)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision ts = {.node = id}, sm = {.node = id}, whole = {.node = id};

	fx_share(&ts, ST_MODE_TIME_SLICING, 0, 100);
	fx_share(&sm, ST_MODE_SM_SHARING, 0, 100);
	fx_whole(&whole, 0, 1);
	cr_expect_eq(fx_reserve(c, "a", &ts), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_TIME_SLICING);
	cr_expect_eq(fx_reserve(c, "b", &sm), ERR_CONFLICT);
	cr_expect_eq(fx_reserve(c, "b", &whole), ERR_CONFLICT);
	cr_expect_eq(fx_reserve(c, "b", &ts), 0);
	fx_move(c, "a", ST_EVENT_FAILED);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_TIME_SLICING);
	fx_move(c, "b", ST_EVENT_FAILED);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_FREE);
	cr_expect_eq(fx_reserve(c, "b", &whole), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_EXCLUSIVE);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 0);
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 0);
	cr_expect_eq(fx_reserve(c, "a", &whole), ERR_CONFLICT);
	cr_expect_eq(fx_reserve(c, "a", &sm), ERR_CONFLICT);
}

Test(state_cluster, bounds_of_a_share)
{
	uint32_t id;
	struct st_decision d;

	with_config((struct st_config){
		.reserve_mib = 960, .clients_max = 3, .overcommit_permille = 1500});
	id = fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->alloc_mib, 40000);
	d = fx_one_share(id, 0, 40001);
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_NO_ROOM);
	d = fx_one_share(id, 0, 20000);
	d.grants[0].limit_mib = 40000;
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	d.grants[0].limit_mib = 20001;
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_NO_ROOM, "limits 60,001 of 60,000");
	d.grants[0].limit_mib = 19999;
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT, "limit below request");
	d.grants[0].limit_mib = 20000;
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 0);
	cr_expect_eq(fx_gpu(c, id, 0)->limit_mib, 60000);
	d = fx_one_share(id, 0, 1);
	cr_expect_eq(fx_reserve(c, "c", &d), ERR_NO_ROOM);
	d = fx_one_share(id, 1, 1);
	cr_expect_eq(fx_reserve(c, "d", &d), 0);
	cr_expect_eq(fx_reserve(c, "e", &d), 0);
	cr_expect_eq(fx_reserve(c, "f", &d), 0);
	cr_expect_eq(fx_reserve(c, "g", &d), ERR_NO_ROOM, "a fourth client");
}

Test(state_cluster, compute_shares_are_bounded_in_sm_sharing)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = {.node = id}, ts = {.node = id};

	fx_share(&d, ST_MODE_SM_SHARING, 0, 100)->compute_nano = 600000000;
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->compute_left_nano, 400000000);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_NO_ROOM);
	cr_expect(fx_observe(c, "b", id, &d, 0), "more than all compute is a double booking");
	fx_move(c, "b", ST_EVENT_GONE);
	d.grants[0].compute_nano = 400000000;
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
	d.grants[0].compute_nano = 0;
	cr_expect_eq(fx_reserve(c, "c", &d), 0, "without a share of its own there is room");
	fx_share(&ts, ST_MODE_TIME_SLICING, 1, 100)->compute_nano = 600000000;
	cr_expect_eq(fx_reserve(c, "d", &ts), 0);
	cr_expect_eq(fx_reserve(c, "e", &ts), 0);
	cr_expect_eq(fx_gpu(c, id, 1)->compute_left_nano, ST_NANO);
}

Test(state_cluster, grants_of_one_decision_count_together)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = {.node = id}, two = {.node = id};
	struct st_grant *g;

	fx_share(&d, ST_MODE_TIME_SLICING, 0, 20480);
	fx_share(&d, ST_MODE_TIME_SLICING, 0, 20481);
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_NO_ROOM);
	d.grants[1].request_mib = d.grants[1].limit_mib = 20480;
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 2);
	g = fx_share(&two, ST_MODE_TIME_SLICING, 1, 100);
	g->count = 2;
	g->gpu[1] = 1;
	cr_expect_eq(fx_reserve(c, "b", &two), ERR_CONFLICT, "one GPU twice in one grant");
	g->gpu[1] = 4;
	cr_expect_eq(fx_reserve(c, "b", &two), ERR_CONFLICT, "no such GPU");
	g->gpu[1] = 2;
	fx_whole(&two, 2, 1);
	cr_expect_eq(fx_reserve(c, "b", &two), ERR_CONFLICT, "shared and whole");
	two.grants[1].gpu[0] = 3;
	cr_expect_eq(fx_reserve(c, "b", &two), 0);
	cr_expect_eq(fx_gpu(c, id, 3)->mode, ST_MODE_EXCLUSIVE);
}

Test(state_cluster, decisions_out_of_shape)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 100), bad;
	struct st_pod_ident nobody = fx_pod("");

	bad = d;
	bad.node = 9;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	bad = d;
	bad.grants[0].count = 0;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	bad.grants[0].count = ST_GPUS_MAX + 1;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	bad = d;
	bad.grants[0].mode = ST_MODE_FREE;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	bad = d;
	bad.grants[0].request_mib = 0;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	bad = d;
	bad.grants[0].compute_nano = -1;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	bad = d;
	bad.grant_count = ST_ITEMS_MAX + 1;
	cr_expect_eq(fx_reserve(c, "a", &bad), ERR_CONFLICT);
	cr_expect_eq(st_cluster_reserve(c, &nobody, &d, NULL), ERR_INVALID);
	cr_expect_eq(st_cluster_pod_count(c), 0);
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_EXISTS);
	bad = d;
	bad.grant_count = 0;
	cr_expect_eq(fx_reserve(c, "b", &bad), 0, "a pod without GPU");
}

Test(state_cluster, host_resources_are_looked_at_on_demand)
{
	struct st_pod_ident pod = fx_pod("a"), small = fx_pod("b");
	struct st_decision d = {0};
	struct err e = ERR_INIT;

	node.spec.pods = 2;
	d.node = fx_put(c, &node);
	pod.cpu_milli = 64001;
	cr_expect_eq(st_cluster_can_book(c, &pod, &d, true, &e), ERR_NO_ROOM);
	cr_expect_eq(st_cluster_can_book(c, &pod, &d, false, &e), 0);
	cr_expect_eq(st_cluster_reserve(c, &pod, &d, &e), 0);
	cr_expect_eq(st_cluster_node(c, d.node)->cpu_left_milli, -1);
	cr_expect_eq(st_cluster_can_book(c, &small, &d, true, &e), ERR_NO_ROOM);
	small.cpu_milli = 0;
	cr_expect_eq(st_cluster_can_book(c, &small, &d, true, &e), 0, "asks for no CPU");
	small.mem_mib = 524288;
	cr_expect_eq(st_cluster_can_book(c, &small, &d, true, &e), ERR_NO_ROOM);
	small.mem_mib = 524288 - 256;
	cr_expect_eq(st_cluster_reserve(c, &small, &d, &e), 0);
	small.uid = "x";
	small.mem_mib = 0;
	cr_expect_eq(st_cluster_can_book(c, &small, &d, true, &e), ERR_NO_ROOM, "a third pod");
	small.cpu_milli = small.mem_mib = INT64_MAX;
	cr_expect_eq(st_cluster_reserve(c, &small, &d, &e), 0);
	small.uid = "y";
	cr_expect_eq(st_cluster_reserve(c, &small, &d, &e), 0);
	fx_check(c);
	fx_move(c, "x", ST_EVENT_GONE);
	fx_move(c, "y", ST_EVENT_GONE);
	fx_move(c, "b", ST_EVENT_GONE);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, d.node)->cpu_left_milli, 64000);
	cr_expect_eq(st_cluster_node(c, d.node)->mem_left_mib, 524288);
}

Test(state_cluster, fits_share_agrees_with_booking)
{
	const struct st_config cfg = {.clients_max = 2, .overcommit_permille = 1200};
	const int32_t sizes[] = {0, 1, 9999, 10000, 10001, 20480, 30960, 40960, 40961};
	struct st_decision held = {0};

	with_config(cfg);
	held.node = fx_put(c, &node);
	fx_share(&held, ST_MODE_SM_SHARING, 0, 10000)->compute_nano = 500000000;
	fx_share(&held, ST_MODE_TIME_SLICING, 1, 10000)->limit_mib = 15000;
	fx_whole(&held, 2, 1);
	fx_reserve(c, "a", &held);
	for (uint8_t gpu = 0; gpu < 4; gpu++)
		for (size_t i = 0; i < 81; i++)
			for (int k = 0; k < 8; k++) {
				struct st_decision d = {.node = held.node};
				enum st_mode mode =
					k & 1 ? ST_MODE_SM_SHARING : ST_MODE_TIME_SLICING;
				int32_t compute = (k >> 1) * 250000001;
				struct st_pod_ident pod = fx_pod("b");
				struct st_grant *g = fx_share(&d, mode, gpu, sizes[i / 9]);

				g->limit_mib = sizes[i % 9];
				g->compute_nano = compute;
				cr_expect_eq(st_gpu_fits_share(&cfg, fx_gpu(c, held.node, gpu),
							       mode, g->request_mib, g->limit_mib,
							       compute),
					     st_cluster_can_book(c, &pod, &d, true, NULL) == 0,
					     "gpu %u request %d limit %d mode %d", gpu,
					     g->request_mib, g->limit_mib, (int)mode);
			}
}

Test(state_cluster, memory_bound_neighbours_are_counted)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 100);
	struct st_pod_ident pod = fx_pod("a");
	bool fenced;

	pod.memory_bound = true;
	cr_expect_eq(st_cluster_reserve(c, &pod, &d, NULL), 0);
	fx_reserve(c, "b", &d);
	cr_expect_eq(fx_gpu(c, id, 0)->memory_bound, 1);
	pod.memory_bound = false;
	cr_expect_eq(st_cluster_observe(c, &pod, id, &d, 0, &fenced, NULL), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->memory_bound, 0);
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 2);
}

/* ---- moves ---- */

Test(state_cluster, the_table_of_moves)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 1000);
	static const int want[ST_POD_STATE_COUNT][4] = {
		/* accepted, observed, failed, gone: state afterwards, -1 released, -2 refused */
		{ST_POD_BOUND, ST_POD_OBSERVED, -1, -1},
		{ST_POD_BOUND, ST_POD_OBSERVED, -2, -1},
		{ST_POD_OBSERVED, ST_POD_OBSERVED, -2, -1},
	};

	cr_expect_eq(fx_move(c, "none", ST_EVENT_GONE), ERR_NOT_FOUND);
	for (int s = 0; s < ST_POD_STATE_COUNT; s++)
		for (int ev = 0; ev < 4; ev++) {
			const struct st_pod *p;
			int r;

			fx_reserve(c, "p", &d);
			if (s == ST_POD_BOUND)
				fx_move(c, "p", ST_EVENT_ACCEPTED);
			else if (s == ST_POD_OBSERVED)
				fx_move(c, "p", ST_EVENT_OBSERVED);
			cr_assert_eq(st_cluster_pod_find(c, "p")->state, s);
			r = fx_move(c, "p", (enum st_pod_event)ev);
			p = st_cluster_pod_find(c, "p");
			cr_expect_eq(r, want[s][ev] == -2 ? ERR_CONFLICT : 0, "%d %d", s, ev);
			cr_expect_eq(p == NULL, want[s][ev] == -1, "%d %d", s, ev);
			if (p != NULL && want[s][ev] >= 0)
				cr_expect_eq(p->state, want[s][ev], "%d %d", s, ev);
			if (p != NULL)
				fx_move(c, "p", ST_EVENT_GONE);
			cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960);
		}
}

Test(state_cluster, pods_are_walked_in_the_order_they_came)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 10);
	const struct st_pod *p = NULL;
	const char *const order[] = {"e", "b", "d", "f"};
	size_t n = 0;

	for (const char *const *u = (const char *const[]){"e", "b", "a", "d", "f", NULL}; *u; u++)
		fx_reserve(c, *u, &d);
	fx_move(c, "a", ST_EVENT_FAILED);
	while ((p = st_cluster_pod_next(c, p)) != NULL)
		cr_expect_str_eq(p->uid, order[n++]);
	cr_expect_eq(n, 4);
	n = 0;
	while ((p = st_cluster_node_pod_next(c, id, p)) != NULL)
		n++;
	cr_expect_eq(n, 4);
	cr_expect_null(st_cluster_node_pod_next(c, 99, NULL));
}

/* ---- change log ---- */

Test(state_cluster, the_log_holds_every_change_until_it_is_overwritten)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 10);
	uint64_t end = st_cluster_log_end(c);

	cr_expect_eq(st_cluster_log_at(c, end), ST_NONE);
	fx_reserve(c, "a", &d);
	cr_expect_eq(st_cluster_log_end(c), end + 1);
	cr_expect_eq(st_cluster_log_at(c, end), id);
	fx_move(c, "a", ST_EVENT_ACCEPTED);
	cr_expect_eq(st_cluster_log_end(c), end + 1, "no score depends on it");
	for (int i = 0; i < 2000; i++)
		fx_move(c, "a", ST_EVENT_GONE), fx_reserve(c, "a", &d);
	cr_expect_eq(st_cluster_log_end(c), end + 4001);
	cr_expect_eq(st_cluster_log_end(c) - st_cluster_log_begin(c), 1024);
	cr_expect_eq(version(id), 4002);
}

Test(state_cluster, the_log_grows_with_the_nodes)
{
	char name[16];

	node.spec.gpu_count = 0;
	for (uint32_t i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "%u", i);
		node.spec.name = name;
		fx_put(c, &node);
	}
	cr_expect_eq(st_cluster_log_begin(c), 0);
	for (uint32_t i = 0; i < 3000; i++)
		cr_assert_eq(st_cluster_log_at(c, i), i);
}

/* ---- products ---- */

Test(state_cluster, product_expressions)
{
	cr_expect(st_product_accepts("", NULL));
	cr_expect(st_product_accepts("", "X"));
	cr_expect(st_product_accepts("X", "X"));
	cr_expect_not(st_product_accepts("X", NULL));
	cr_expect_not(st_product_accepts("X", "XY"));
	cr_expect_not(st_product_accepts("XY", "X"));
	cr_expect(st_product_accepts("A|B|C", "B"));
	cr_expect(st_product_accepts("A||C|", "C"));
	cr_expect_not(st_product_accepts("A||C|", ""));
	cr_expect(st_product_accepts(" A | B ", "B"));
	cr_expect(st_product_accepts("NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"));
	cr_expect_not(st_product_accepts("|", "X"));
}

/* The model: GPUs and MIG modes that change under bookings, pods that exist already. */
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

TestSuite(state_observe, .init = setup, .fini = teardown);

/* ---- GPUs that come, go and change ---- */

Test(state_observe, a_held_gpu_that_is_no_longer_reported_stays_as_gone)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 2, 1000);

	fx_reserve(c, "a", &d);
	node.spec.gpu_count = 2;
	fx_put(c, &node);
	cr_expect_eq(st_cluster_node(c, id)->gpu_count, 3, "n1-3 was free and last");
	cr_expect_eq(fx_gpu(c, id, 2)->taken, ST_TAKEN_GONE);
	cr_expect_eq(fx_gpu(c, id, 2)->free_mib, 39960);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT);
	node.spec.gpu_count = 4;
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 2)->taken, ST_TAKEN_NO);
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
	node.spec.gpu_count = 0;
	fx_put(c, &node);
	cr_expect_eq(st_cluster_node(c, id)->gpu_count, 3);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_GONE, "before a held one, so it stays");
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, id)->gpu_count, 3);
	fx_move(c, "b", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, id)->gpu_count, 0);
}

Test(state_observe, held_gpus_keep_their_index_when_others_are_exchanged)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 3, 1000);

	fx_reserve(c, "a", &d);
	node.gpus[0].uuid = "new-a";
	node.gpus[1].uuid = "new-b";
	fx_put(c, &node);
	cr_expect_eq(st_cluster_node(c, id)->gpu_count, 4);
	cr_expect_str_eq(fx_gpu(c, id, 0)->uuid, "new-a");
	cr_expect_str_eq(fx_gpu(c, id, 3)->uuid, "n1-3");
	cr_expect_eq(fx_gpu(c, id, 3)->clients, 1);
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 0);
}

Test(state_observe, unnamed_gpus_are_matched_by_index)
{
	uint32_t id, v;

	for (size_t i = 0; i < 4; i++)
		node.gpus[i].uuid = NULL;
	id = fx_put(c, &node);
	cr_expect_str_eq(fx_gpu(c, id, 3)->uuid, "3");
	v = version(id);
	fx_put(c, &node);
	cr_expect_eq(version(id), v);
}

Test(state_observe, more_gpus_than_fit_beside_held_ones)
{
	struct fx_node many;
	uint32_t id;
	struct st_decision d = {0};

	fx_node_init(&many, "n2", ST_GPUS_MAX, 1000);
	id = d.node = fx_put(c, &many);
	fx_whole(&d, 15, 1);
	fx_reserve(c, "a", &d);
	many.gpus[15].uuid = "another";
	cr_expect_eq(st_cluster_node_put(c, &many.spec, NULL, NULL), ERR_INVALID);
	cr_expect_eq(fx_gpu(c, id, 15)->taken, ST_TAKEN_NO, "as it was");
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_put(c, &many), id);
	cr_expect_str_eq(fx_gpu(c, id, 15)->uuid, "another");
}

Test(state_observe, memory_that_shrinks_below_the_bookings)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 30000), small = fx_one_share(id, 0, 1);

	fx_reserve(c, "a", &d);
	node.gpus[0].mem_mib = 20000;
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, -10000);
	cr_expect_eq(fx_reserve(c, "b", &small), ERR_NO_ROOM);
	cr_expect(fx_observe(c, "b", id, &small, 0));
	fx_move(c, "b", ST_EVENT_GONE);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 20000);
	fx_check(c);
}

Test(state_observe, a_gpu_in_trouble_keeps_what_it_has_and_gets_nothing_new)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 1000);

	fx_reserve(c, "a", &d);
	node.gpus[0].unhealthy = true;
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_UNHEALTHY);
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 1);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT);
	cr_expect_not(fx_observe(c, "b", id, &d, 0), "a pod that exists is counted");
	node.gpus[0].unhealthy = false;
	node.gpus[0].foreign = "pid 1";
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN);
	cr_expect_str_eq(fx_gpu(c, id, 0)->taken_by, "pid 1");
	cr_expect_eq(fx_reserve(c, "d", &d), ERR_CONFLICT);
	node.gpus[0].foreign = NULL;
	fx_put(c, &node);
	cr_expect_eq(fx_reserve(c, "d", &d), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960 - 3000);
}

Test(state_observe, an_unready_node_gets_nothing_new)
{
	uint32_t id;
	struct st_decision d;

	node.spec.unready = true;
	node.spec.why_unready = "MPS daemon down";
	id = fx_put(c, &node);
	d = fx_one_share(id, 0, 1000);
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_CONFLICT);
	cr_expect_str_eq(st_cluster_node(c, id)->why_unready, "MPS daemon down");
	node.spec.unready = false;
	node.spec.why_unready = NULL;
	fx_put(c, &node);
	cr_expect_null(st_cluster_node(c, id)->why_unready);
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
}

/* ---- MIG ---- */

static uint32_t mig_node(void)
{
	node.spec.product = "NVIDIA A100-SXM4-40GB";
	fx_node_mig(&node, 0, NULL);
	fx_node_mig(&node, 1, st_mig_table_at(1));
	return fx_put(c, &node);
}

Test(state_observe, mig_mode_is_the_hardware_state)
{
	uint32_t id = mig_node();
	struct st_decision d = {.node = id}, share = fx_one_share(id, 0, 100), whole = {.node = id};

	fx_whole(&whole, 0, 1);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_MIG);
	cr_expect_eq(fx_gpu(c, id, 0)->mig, st_mig_table_at(1));
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960);
	cr_expect_eq(fx_gpu(c, id, 2)->mode, ST_MODE_FREE);
	cr_expect_null(fx_gpu(c, id, 2)->mig);
	cr_expect_eq(fx_reserve(c, "a", &share), ERR_CONFLICT);
	cr_expect_eq(fx_reserve(c, "a", &whole), ERR_CONFLICT);
	fx_mig(&d, 0, "3g.20gb", 4);
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 20480);
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 0);
	d.grants[0].gpu[0] = 2;
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT, "MIG mode is off there");
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_MIG);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960);
}

Test(state_observe, mig_legality_within_and_across_decisions)
{
	uint32_t id = mig_node();
	struct st_decision d = {.node = id};
	struct st_grant *g = fx_mig(&d, 0, "3g.20gb", 0);

	g->count = 2;
	g->gpu[1] = 0;
	g->start[1] = 0;
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_NO_ROOM, "one place twice");
	g->start[1] = 2;
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_CONFLICT, "no such start");
	g->start[1] = 4;
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 0);
	d = (struct st_decision){.node = id};
	fx_mig(&d, 0, "1g.5gb", 6);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_NO_ROOM);
	d.grants[0].gpu[0] = 1;
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
	snprintf(d.grants[0].profile, ST_MIG_NAME_CAP, "1g.6gb");
	cr_expect_eq(fx_reserve(c, "x", &d), ERR_CONFLICT, "no such profile");
}

Test(state_observe, instances_that_nobody_booked_are_foreign)
{
	uint32_t id;
	struct st_decision d = {0};

	fx_node_instance(&node, 0, "3g.20gb", 4);
	fx_node_instance(&node, 0, "1g.5gb", 0);
	d.node = id = mig_node();
	cr_expect_eq(__builtin_popcountll(fx_gpu(c, id, 0)->mig_foreign), 2);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960 * 3 / 8);
	fx_mig(&d, 0, "3g.20gb", 4);
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_NO_ROOM);
	cr_expect_not(fx_observe(c, "a", id, &d, 0), "it is this pod's");
	cr_expect_eq(__builtin_popcountll(fx_gpu(c, id, 0)->mig_foreign), 1);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960 * 3 / 8);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_NO);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960 * 3 / 8, "still there");
	node.gpus[0].instance_count = 0;
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 40960);
}

Test(state_observe, a_foreign_instance_on_a_booked_place)
{
	uint32_t id = mig_node();
	struct st_decision d = {.node = id};

	fx_mig(&d, 0, "3g.20gb", 4);
	fx_reserve(c, "a", &d);
	fx_node_instance(&node, 0, "1g.5gb", 5);
	fx_node_instance(&node, 0, "1g.5gb", 0);
	fx_put(c, &node);
	fx_check(c);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN);
	cr_expect_not_null(fx_gpu(c, id, 0)->taken_by);
	cr_expect_eq(__builtin_popcountll(fx_gpu(c, id, 0)->mig_foreign), 1);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_NO);
	cr_expect_eq(__builtin_popcountll(fx_gpu(c, id, 0)->mig_foreign), 2);
}

Test(state_observe, switching_mig_mode_while_shares_are_held)
{
	uint32_t id;
	struct st_decision d;

	node.spec.product = "NVIDIA A100-SXM4-40GB";
	id = fx_put(c, &node);
	d = fx_one_share(id, 0, 1000);
	fx_reserve(c, "a", &d);
	fx_node_mig(&node, 0, NULL);
	fx_put(c, &node);
	fx_check(c);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_TIME_SLICING);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_MIG);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_NO);
}

Test(state_observe, mig_mode_that_is_lost_while_instances_are_booked)
{
	uint32_t id = mig_node();
	struct st_decision d = {.node = id};

	fx_mig(&d, 0, "3g.20gb", 4);
	fx_reserve(c, "a", &d);
	node.gpus[0].mig_enabled = false;
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_MIG);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN);
	/* The same after a restart, when the pod is seen after the node. */
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_FREE);
	cr_expect_not(fx_observe(c, "a", id, &d, 0));
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_MIG);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN);
	node.gpus[0].mig_enabled = true;
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_NO);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 20480);
}

Test(state_observe, geometry_that_changes_under_instances)
{
	uint32_t id = mig_node();
	struct st_decision d = {.node = id};
	struct st_mig_geometry other = *st_mig_table_at(1);

	fx_mig(&d, 0, "3g.20gb", 4);
	fx_reserve(c, "a", &d);
	/* The driver lists the same profiles in another order: the bits differ, the places do not. */
	other.profiles[0] = st_mig_table_at(1)->profiles[6];
	other.profiles[6] = st_mig_table_at(1)->profiles[0];
	fx_node_mig(&node, 0, &other);
	fx_put(c, &node);
	fx_check(c);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_NO);
	cr_expect_eq(fx_gpu(c, id, 0)->mig->profiles[0].compute_slices, 7);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 20480);
	/* Without the profile nothing new goes there until the instance is gone. */
	other.profile_count = 4;
	fx_node_mig(&node, 0, &other);
	fx_put(c, &node);
	fx_check(c);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_NO);
	cr_expect_eq(fx_gpu(c, id, 0)->mig->profile_count, 4);
}

Test(state_observe, mig_of_unknown_geometry_is_left_alone)
{
	uint32_t id;

	node.spec.product = "NVIDIA GH200 144G HBM3e";
	for (size_t i = 0; i < 4; i++)
		node.gpus[i].mem_mib = 147000;
	fx_node_mig(&node, 0, NULL);
	fx_node_instance(&node, 0, "1g.18gb", 3);
	fx_node_mig(&node, 1, NULL);
	id = fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 0)->taken, ST_TAKEN_FOREIGN, "starts unknown, instance present");
	cr_expect_eq(fx_gpu(c, id, 1)->mode, ST_MODE_MIG);
	cr_expect_eq(fx_gpu(c, id, 1)->taken, ST_TAKEN_NO);
	cr_expect_eq(st_mig_max_more(fx_gpu(c, id, 1)->mig, 0, 0), 0);
	node.spec.product = "NVIDIA Mystery";
	fx_put(c, &node);
	fx_check(c);
	cr_expect_eq(fx_gpu(c, id, 1)->mode, ST_MODE_FREE);
	cr_expect_eq(fx_gpu(c, id, 1)->taken, ST_TAKEN_FOREIGN);
	cr_expect_not(st_gpu_idle(fx_gpu(c, id, 1)));
}

/* ---- observed pods ---- */

Test(state_observe, the_api_object_wins_over_the_reservation)
{
	struct fx_node second;
	uint32_t a = fx_put(c, &node), b;
	struct st_decision da = fx_one_share(a, 0, 1000), db;

	fx_node_init(&second, "n2", 2, 10000);
	b = fx_put(c, &second);
	db = fx_one_share(b, 1, 500);
	fx_share(&db, ST_MODE_TIME_SLICING, 0, 700);
	fx_share(&db, ST_MODE_TIME_SLICING, 1, 700);
	fx_reserve(c, "p", &da);
	cr_expect_not(fx_observe(c, "p", b, &db, 0));
	cr_expect_eq(fx_gpu(c, a, 0)->mode, ST_MODE_FREE);
	cr_expect_eq(fx_gpu(c, b, 1)->free_mib, 8800);
	cr_expect_eq(st_cluster_node(c, a)->pods, 0);
	cr_expect_eq(st_cluster_pod_find(c, "p")->node, b);
	cr_expect_eq(fx_move(c, "p", ST_EVENT_FAILED), ERR_CONFLICT);
	cr_expect_not(fx_observe(c, "p", b, NULL, 0), "no GPU after all");
	cr_expect_eq(fx_gpu(c, b, 1)->mode, ST_MODE_FREE);
	cr_expect_eq(st_cluster_node(c, b)->cpu_left_milli, 63900);
	cr_expect_not(fx_observe(c, "p", b, &db, 0));
	cr_expect_eq(st_cluster_pod_find(c, "p")->grant_count, 3);
	cr_expect_eq(st_cluster_pod_count(c), 1);
}

Test(state_observe, the_same_again_changes_only_what_is_not_booked)
{
	uint32_t id = fx_put(c, &node), v;
	struct st_decision d = {.node = id}, other = {.node = id};
	struct st_pod_ident pod = fx_pod("p");
	bool fenced = true;

	fx_share(&d, ST_MODE_TIME_SLICING, 0, 100);
	fx_share(&d, ST_MODE_TIME_SLICING, 1, 200);
	fx_reserve(c, "p", &d);
	v = version(id);
	pod.deleting = true;
	pod.priority = 7;
	/* The order of containers says nothing. */
	other.grant_count = 2;
	other.grants[0] = d.grants[1];
	other.grants[1] = d.grants[0];
	cr_expect_eq(st_cluster_observe(c, &pod, id, &other, 0, &fenced, NULL), 0);
	cr_expect_not(fenced);
	cr_expect_eq(version(id), v);
	cr_expect(st_cluster_pod_find(c, "p")->deleting);
	cr_expect_eq(st_cluster_pod_find(c, "p")->priority, 7);
	cr_expect_eq(st_cluster_pod_find(c, "p")->state, ST_POD_OBSERVED);
	pod.cpu_milli = 300;
	cr_expect_eq(st_cluster_observe(c, &pod, id, &d, 0, &fenced, NULL), 0);
	cr_expect_eq(st_cluster_node(c, id)->cpu_left_milli, 63700);
	cr_expect_eq(version(id), v + 1);
	fx_check(c);
}

Test(state_observe, soft_bounds_do_not_fence_what_exists)
{
	struct st_decision d;
	uint32_t id;

	with_config((struct st_config){.clients_max = 1, .overcommit_permille = 1000});
	id = fx_put(c, &node);
	d = fx_one_share(id, 0, 100);
	d.grants[0].limit_mib = 40960;
	cr_expect_not(fx_observe(c, "a", id, &d, 0));
	cr_expect_not(fx_observe(c, "b", id, &d, 0));
	cr_expect_eq(fx_gpu(c, id, 0)->clients, 2);
	cr_expect_eq(fx_gpu(c, id, 0)->limit_mib, 81920);
}

Test(state_observe, what_would_be_given_twice_fences)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision ts = fx_one_share(id, 0, 30000), sm = {.node = id}, gone = {.node = id};
	struct st_decision elsewhere = fx_one_share(7, 0, 1);

	fx_share(&sm, ST_MODE_SM_SHARING, 0, 10);
	fx_whole(&gone, 3, 2);
	fx_reserve(c, "a", &ts);
	cr_expect(fx_observe(c, "b", id, &ts, 0), "60,000 of 40,960 MiB");
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 10960);
	cr_expect_eq(st_cluster_node(c, id)->cpu_left_milli, 63800, "host resources count");
	cr_expect(fx_observe(c, "c", id, &sm, 0), "two modes");
	cr_expect(fx_observe(c, "d", id, &gone, 0), "no GPU 4");
	cr_expect(fx_observe(c, "e", id, &elsewhere, 0), "decision for another node");
	cr_expect_eq(st_cluster_node(c, id)->fences, 4);
	ts.grants[0].gpu[0] = 1;
	cr_expect_eq(fx_reserve(c, "x", &ts), ERR_CONFLICT, "fenced");
	cr_expect_not(fx_observe(c, "x", id, &ts, 0));
	/* Room that appears is theirs. */
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, id)->fences, 3);
	cr_expect_not(st_cluster_pod_find(c, "b")->fenced);
	cr_expect_eq(fx_gpu(c, id, 0)->free_mib, 10960);
	fx_move(c, "b", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_SM_SHARING);
	fx_move(c, "d", ST_EVENT_GONE);
	fx_move(c, "e", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, id)->fences, 0);
}

Test(state_observe, a_fence_told_again_does_not_move_the_version)
{
	uint32_t id = fx_put(c, &node), v;
	struct st_decision gone = {.node = id};
	struct st_pod_ident pod = fx_pod("a");

	fx_whole(&gone, 3, 2);
	fx_observe(c, "b", id, &gone, 0);
	cr_expect_eq(st_cluster_fence(c, &pod, id, NULL), 0);
	v = version(id);
	cr_expect_eq(st_cluster_fence(c, &pod, id, NULL), 0);
	cr_expect(fx_observe(c, "b", id, &gone, 0));
	cr_expect_eq(version(id), v);
	fx_check(c);
	cr_expect_eq(st_cluster_fence(c, &pod, 9, NULL), ERR_NOT_FOUND);
}

Test(state_observe, pods_of_a_device_plugin_are_dealt_idle_gpus)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 1, 1000), two = fx_one_share(id, 0, 500);

	fx_reserve(c, "a", &d);
	cr_expect_not(fx_observe(c, "plugin", id, NULL, 2));
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_EXCLUSIVE);
	cr_expect_eq(fx_gpu(c, id, 2)->mode, ST_MODE_EXCLUSIVE);
	cr_expect_eq(fx_gpu(c, id, 3)->mode, ST_MODE_FREE);
	cr_expect(st_cluster_pod_find(c, "plugin")->foreign);
	cr_expect_eq(fx_reserve(c, "b", &two), ERR_CONFLICT);
	/* What is known goes before what is assumed. */
	cr_expect_not(fx_observe(c, "b", id, &two, 0));
	cr_expect_eq(fx_gpu(c, id, 0)->mode, ST_MODE_TIME_SLICING);
	cr_expect_eq(fx_gpu(c, id, 3)->mode, ST_MODE_EXCLUSIVE);
	cr_expect(fx_observe(c, "plugin2", id, NULL, 1), "no GPU is left");
	cr_expect_eq(st_cluster_node(c, id)->fences, 1);
	cr_expect(fx_observe(c, "plugin3", id, NULL, 99));
	fx_move(c, "plugin3", ST_EVENT_GONE);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, id)->fences, 0);
	cr_expect_eq(fx_gpu(c, id, 1)->mode, ST_MODE_EXCLUSIVE);
	fx_move(c, "plugin", ST_EVENT_GONE);
	fx_move(c, "plugin2", ST_EVENT_GONE);
	cr_expect_eq(fx_gpu(c, id, 1)->mode, ST_MODE_FREE);
}

Test(state_observe, a_known_claim_displaces_assumed_ones_when_room_appears)
{
	uint32_t id;
	struct st_decision d = {0}, both = {0};

	node.spec.gpu_count = 3;
	both.node = d.node = id = fx_put(c, &node);
	fx_whole(&d, 0, 1);
	fx_whole(&both, 0, 2);
	fx_reserve(c, "a", &d);
	cr_expect(fx_observe(c, "b", id, &both, 0));
	cr_expect_not(fx_observe(c, "plugin", id, NULL, 1));
	cr_expect_eq(fx_gpu(c, id, 1)->mode, ST_MODE_EXCLUSIVE);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(st_cluster_node(c, id)->fences, 0);
	cr_expect_not(st_cluster_pod_find(c, "b")->fenced);
	cr_expect_eq(st_cluster_pod_find(c, "plugin")->grants[0].gpu[0], 2);
}

Test(state_observe, the_node_names_the_gpu_of_a_device_plugins_pod)
{
	uint32_t id;

	node.gpus[2].foreign = "pod ns/plugin";
	node.gpus[0].foreign = "pod ns/plugin-2";
	id = fx_put(c, &node);
	cr_expect_not(fx_observe(c, "plugin", id, NULL, 1));
	cr_expect_eq(fx_gpu(c, id, 2)->mode, ST_MODE_EXCLUSIVE);
	cr_expect_eq(fx_gpu(c, id, 1)->mode, ST_MODE_FREE);
	node.gpus[2].foreign = NULL;
	node.gpus[3].foreign = "pod ns/plugin";
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, id, 2)->mode, ST_MODE_FREE);
	cr_expect_eq(fx_gpu(c, id, 3)->mode, ST_MODE_EXCLUSIVE);
	fx_check(c);
}

Test(state_observe, bookings_wait_for_gpus_that_come_back)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 3, 1000), big = fx_one_share(id, 3, 40000);

	fx_observe(c, "a", id, &d, 0);
	cr_expect(fx_observe(c, "b", id, &big, 0));
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_not(st_cluster_pod_find(c, "b")->fenced);
	fx_observe(c, "a", id, &d, 0);
	node.gpus[3].mem_mib = 41000;
	fx_put(c, &node);
	cr_expect_not(st_cluster_pod_find(c, "a")->fenced);
	fx_check(c);
}

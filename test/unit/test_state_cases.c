/* Cases seen in other GPU-sharing schedulers, by number, as far as the model alone decides them. */
#include <criterion/criterion.h>

#include "test/unit/state_fixture.h"

static struct st_cluster *c;
static struct fx_node node;

static void start(const struct st_config *cfg, size_t gpus, int32_t mem_mib)
{
	st_cluster_free(c);
	c = st_cluster_new(cfg);
	cr_assert_not_null(c);
	fx_node_init(&node, "n1", gpus, mem_mib);
	fx_put(c, &node);
}

static void stop(void)
{
	fx_check(c);
	st_cluster_free(c);
	c = NULL;
}

TestSuite(cases, .fini = stop);

static int64_t booked_mib(uint32_t id)
{
	const struct st_node *n = st_cluster_node(c, id);
	int64_t sum = 0;

	for (uint8_t i = 0; i < n->gpu_count; i++)
		sum += n->gpus[i].alloc_mib - n->gpus[i].free_mib;
	return sum;
}

Test(cases, case_01_never_more_than_two_halves_on_a_gpu)
{
	char uid[16];

	start(NULL, 8, 40960);
	for (int i = 0; i < 16; i++) {
		struct st_decision d = fx_one_share(0, (uint8_t)(i % 8), 20480);

		snprintf(uid, sizeof(uid), "%d", i);
		cr_expect_eq(fx_reserve(c, uid, &d), 0);
	}
	for (uint8_t g = 0; g < 8; g++) {
		struct st_decision d = fx_one_share(0, g, 20480);

		cr_expect_eq(fx_gpu(c, 0, g)->clients, 2);
		cr_expect_eq(fx_reserve(c, "seventeenth", &d), ERR_NO_ROOM);
	}
}

Test(cases, case_02_memory_is_not_converted)
{
	struct st_decision d = fx_one_share(0, 0, 2000);
	struct st_pod_ident pod = fx_pod("24th");
	struct err e = ERR_INIT;
	char uid[16];

	start(NULL, 1, 46068);
	for (int i = 0; i < 23; i++) {
		snprintf(uid, sizeof(uid), "%d", i);
		cr_expect_eq(fx_reserve(c, uid, &d), 0);
	}
	cr_expect_eq(booked_mib(0), 46000);
	cr_expect_eq(st_cluster_can_book(c, &pod, &d, true, &e), ERR_NO_ROOM);
	cr_expect(strstr(e.msg, "68 of") != NULL && strstr(e.msg, "2000 asked") != NULL, "%s",
		  e.msg);
}

static struct st_decision three_containers(void)
{
	struct st_decision d = {0};

	for (int i = 0; i < 3; i++)
		fx_share(&d, ST_MODE_TIME_SLICING, 0, 100);
	return d;
}

Test(cases, case_03_containers_count_not_pods)
{
	const struct st_config cfg = {.clients_max = 10, .overcommit_permille = 1000};
	struct st_decision d = three_containers();

	start(&cfg, 1, 40960);
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
	cr_expect_eq(fx_reserve(c, "c", &d), 0);
	cr_expect_eq(fx_gpu(c, 0, 0)->clients, 9);
	cr_expect_eq(fx_reserve(c, "d", &d), ERR_NO_ROOM);
	/* The same after a restart. */
	start(&cfg, 1, 40960);
	fx_observe(c, "c", 0, &d, 0);
	fx_observe(c, "a", 0, &d, 0);
	fx_observe(c, "b", 0, &d, 0);
	cr_expect_eq(fx_gpu(c, 0, 0)->clients, 9);
	cr_expect_eq(fx_reserve(c, "d", &d), ERR_NO_ROOM);
}

Test(cases, case_04_an_exclusive_gpu_stays_exclusive)
{
	struct st_decision whole = {0}, d = fx_one_share(0, 0, 20000);
	struct st_pod_ident pod = fx_pod("a");
	bool fenced;

	start(NULL, 1, 40960);
	fx_whole(&whole, 0, 1);
	fx_reserve(c, "a", &whole);
	fx_move(c, "a", ST_EVENT_ACCEPTED);
	/* Whatever the pod goes through, as long as it is there. */
	for (int i = 0; i < 3; i++) {
		pod.deleting = i == 2;
		cr_expect_eq(st_cluster_observe(c, &pod, 0, &whole, 0, &fenced, NULL), 0);
		cr_expect_eq(fx_gpu(c, 0, 0)->mode, ST_MODE_EXCLUSIVE);
		cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT);
	}
}

/* before/after: how often the watch tells of the pod before and after the bind's reply. */
static void bind_with_events(int before, int after)
{
	struct st_decision d = fx_one_share(0, 1, 8192);

	start(NULL, 2, 40960);
	fx_reserve(c, "a", &d);
	cr_expect_eq(booked_mib(0), 8192);
	for (int i = 0; i < before; i++) {
		cr_expect_not(fx_observe(c, "a", 0, &d, 0));
		cr_expect_eq(booked_mib(0), 8192);
	}
	cr_expect_eq(fx_move(c, "a", ST_EVENT_ACCEPTED), 0);
	cr_expect_eq(booked_mib(0), 8192);
	for (int i = 0; i < after; i++) {
		cr_expect_not(fx_observe(c, "a", 0, &d, 0));
		cr_expect_eq(booked_mib(0), 8192);
	}
	cr_expect_eq(fx_gpu(c, 0, 1)->clients, 1);
	cr_expect_eq(st_cluster_node(c, 0)->pods, 1);
	cr_expect_eq(st_cluster_node(c, 0)->cpu_left_milli, 63900);
	cr_expect_eq(fx_move(c, "a", ST_EVENT_GONE), 0);
	cr_expect_eq(fx_move(c, "a", ST_EVENT_GONE), ERR_NOT_FOUND);
	cr_expect_eq(booked_mib(0), 0);
}

Test(cases, case_05_booked_once_whatever_the_order_of_events)
{
	for (int before = 0; before < 4; before++)
		for (int after = 0; after < 4; after++)
			bind_with_events(before, after);
}

Test(cases, case_06_only_the_node_it_is_bound_to_counts)
{
	struct fx_node other;
	struct st_decision db = fx_one_share(1, 0, 4096);

	start(NULL, 1, 40960);
	fx_node_init(&other, "b", 1, 40960);
	cr_expect_eq(fx_put(c, &other), 1);
	/* What the pod claims for n1 while unbound is not even handed in; it is bound to b. */
	fx_reserve(c, "p", &db);
	fx_move(c, "p", ST_EVENT_ACCEPTED);
	fx_observe(c, "p", 1, &db, 0);
	cr_expect_eq(booked_mib(0), 0);
	cr_expect_eq(booked_mib(1), 4096);
	cr_expect_eq(st_cluster_node(c, 0)->version, 1, "n1 did not change at all");
}

Test(cases, case_07_an_unreadable_allocation_fences_until_mended_or_gone)
{
	struct st_decision d = fx_one_share(0, 0, 4096), e = fx_one_share(0, 1, 4096);
	struct st_pod_ident pod = fx_pod("bad");

	start(NULL, 2, 40960);
	fx_reserve(c, "in flight", &e);
	cr_expect_eq(st_cluster_fence(c, &pod, 0, NULL), 0);
	fx_check(c);
	cr_expect_eq(st_cluster_node(c, 0)->fences, 1);
	cr_expect_eq(st_cluster_node(c, 0)->pods, 2);
	cr_expect_eq(fx_reserve(c, "new", &e), ERR_CONFLICT);
	cr_expect_not(fx_observe(c, "in flight", 0, &e, 0), "what exists is still taken in");
	/* mended */
	cr_expect_not(fx_observe(c, "bad", 0, &d, 0));
	cr_expect_eq(st_cluster_node(c, 0)->fences, 0);
	cr_expect_eq(fx_reserve(c, "new", &e), 0);
	/* broken again while it runs, then gone */
	cr_expect_eq(st_cluster_fence(c, &pod, 0, NULL), 0);
	fx_check(c);
	cr_expect_eq(fx_reserve(c, "newer", &e), ERR_CONFLICT);
	cr_expect_eq(fx_move(c, "bad", ST_EVENT_GONE), 0);
	cr_expect_eq(fx_reserve(c, "newer", &e), 0);
}

Test(cases, case_09_memory_of_a_terminating_pod_is_not_free)
{
	struct st_decision d = fx_one_share(0, 0, 40960);
	struct st_pod_ident pod = fx_pod("a");
	bool fenced;

	start(NULL, 1, 40960);
	fx_reserve(c, "a", &d);
	pod.deleting = true;
	cr_expect_eq(st_cluster_observe(c, &pod, 0, &d, 0, &fenced, NULL), 0);
	cr_expect(st_cluster_pod_find(c, "a")->deleting);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_NO_ROOM);
	fx_move(c, "a", ST_EVENT_GONE);
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
}

Test(cases, case_10_the_client_limit_is_a_reason_of_its_own)
{
	const struct st_config cfg = {.clients_max = 3, .overcommit_permille = 1000};
	struct st_decision d = fx_one_share(0, 0, 10);
	struct st_pod_ident pod = fx_pod("fourth");
	struct err e = ERR_INIT;

	start(&cfg, 1, 40960);
	fx_reserve(c, "a", &d);
	fx_reserve(c, "b", &d);
	fx_reserve(c, "c", &d);
	cr_expect_eq(st_cluster_can_book(c, &pod, &d, true, &e), ERR_NO_ROOM);
	cr_expect_not_null(strstr(e.msg, "3 clients"), "%s", e.msg);
	fx_move(c, "b", ST_EVENT_GONE);
	cr_expect_eq(fx_reserve(c, "fourth", &d), 0);
}

Test(cases, case_11_an_amount_is_booked_on_each_of_several_gpus)
{
	struct st_decision d = {0};
	struct st_grant *g = fx_share(&d, ST_MODE_TIME_SLICING, 0, 40960);

	start(NULL, 8, 81920);
	g->count = 4;
	for (uint8_t i = 0; i < 4; i++)
		g->gpu[i] = (uint8_t)(2 * i);
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	for (uint8_t i = 0; i < 8; i++)
		cr_expect_eq(fx_gpu(c, 0, i)->free_mib, i % 2 == 0 ? 40960 : 81920);
}

Test(cases, case_12_per_gpu_not_in_total)
{
	struct st_decision d = {0};
	struct st_grant *g = fx_share(&d, ST_MODE_TIME_SLICING, 0, 12288);

	start(NULL, 2, 40960);
	g->count = 2;
	g->gpu[1] = 1;
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(booked_mib(0), 24576);
	cr_expect_eq(fx_gpu(c, 0, 1)->free_mib, 40960 - 12288);
}

Test(cases, case_13_a_deleted_pod_gives_back_all_its_gpus)
{
	struct st_decision d = {0};
	const struct st_pod *p;

	start(NULL, 8, 81920);
	fx_whole(&d, 0, 8);
	fx_reserve(c, "old", &d);
	fx_move(c, "old", ST_EVENT_ACCEPTED);
	cr_expect_eq(fx_reserve(c, "new", &d), ERR_CONFLICT);
	/* A relist does not have it: the difference is told as gone. */
	p = st_cluster_pod_next(c, NULL);
	cr_assert_not_null(p);
	cr_expect_eq(fx_move(c, p->uid, ST_EVENT_GONE), 0);
	cr_expect_eq(booked_mib(0), 0);
	cr_expect_eq(fx_reserve(c, "new", &d), 0);
}

Test(cases, case_16_ten_failed_binds_leave_nothing)
{
	struct st_decision d = {0};
	struct st_gpu before, after;

	start(NULL, 4, 81920);
	before = *fx_gpu(c, 0, 2);
	fx_share(&d, ST_MODE_SM_SHARING, 2, 1000)->compute_nano = 300000000;
	fx_whole(&d, 0, 2);
	for (int i = 0; i < 10; i++) {
		cr_expect_eq(fx_reserve(c, "a", &d), 0);
		cr_expect_eq(booked_mib(0), 2 * 81920 + 1000);
		cr_expect_eq(fx_move(c, "a", ST_EVENT_FAILED), 0);
		cr_expect_eq(booked_mib(0), 0);
		after = *fx_gpu(c, 0, 2);
		cr_expect(after.free_mib == before.free_mib && after.mode == before.mode &&
			  after.limit_mib == before.limit_mib && after.clients == before.clients &&
			  after.compute_left_nano == before.compute_left_nano);
		cr_expect_eq(st_cluster_pod_count(c), 0);
	}
	cr_expect_eq(st_cluster_node(c, 0)->cpu_left_milli, 64000);
}

Test(cases, case_17_two_binds_on_one_gpu_of_which_one_fails)
{
	struct st_decision d = fx_one_share(0, 0, 10000);

	start(NULL, 1, 40960);
	fx_reserve(c, "a", &d);
	fx_reserve(c, "b", &d);
	fx_move(c, "a", ST_EVENT_FAILED);
	fx_move(c, "b", ST_EVENT_ACCEPTED);
	cr_expect_eq(booked_mib(0), 10000);
	cr_expect_eq(fx_gpu(c, 0, 0)->mode, ST_MODE_TIME_SLICING);
}

Test(cases, case_19_device_information_goes_and_comes_back)
{
	struct st_decision d = fx_one_share(0, 2, 10000);
	struct fx_node without;

	start(NULL, 4, 40960);
	fx_reserve(c, "a", &d);
	fx_observe(c, "a", 0, &d, 0);
	fx_node_init(&without, "n1", 0, 1);
	without.spec.unready = true;
	without.spec.why_unready = "no inventory";
	fx_put(c, &without);
	cr_expect_eq(fx_reserve(c, "b", &d), ERR_CONFLICT);
	cr_expect_eq(fx_gpu(c, 0, 2)->clients, 1, "bound pods still count");
	cr_expect_not(fx_observe(c, "a", 0, &d, 0));
	fx_put(c, &node);
	cr_expect_eq(fx_gpu(c, 0, 2)->taken, ST_TAKEN_NO);
	cr_expect_eq(fx_gpu(c, 0, 2)->free_mib, 30960);
	cr_expect_eq(fx_reserve(c, "b", &d), 0);
}

Test(cases, case_20_a_failed_bind_then_another_node)
{
	struct fx_node other;
	struct st_decision a = fx_one_share(0, 0, 1000), b = fx_one_share(1, 1, 1000);

	start(NULL, 2, 40960);
	fx_node_init(&other, "b", 2, 40960);
	fx_put(c, &other);
	fx_reserve(c, "p", &a);
	fx_move(c, "p", ST_EVENT_FAILED);
	cr_expect_eq(fx_reserve(c, "p", &b), 0);
	cr_expect_eq(booked_mib(0), 0);
	cr_expect_eq(st_cluster_pod_find(c, "p")->node, 1);
}

Test(cases, case_31_a_share_and_an_instance_in_one_decision)
{
	struct st_decision d = {0};

	start(NULL, 2, 40960);
	node.spec.product = "NVIDIA A100-SXM4-40GB";
	fx_node_mig(&node, 1, NULL);
	fx_put(c, &node);
	fx_share(&d, ST_MODE_TIME_SLICING, 0, 1000);
	fx_mig(&d, 1, "3g.20gb", 3);
	cr_expect_eq(fx_reserve(c, "a", &d), ERR_CONFLICT, "refused as a whole");
	cr_expect_eq(fx_gpu(c, 0, 0)->mode, ST_MODE_FREE);
	d.grants[1].start[0] = 4;
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(booked_mib(0), 1000 + 20480);
}

Test(cases, case_32_a_pod_of_another_scheduler_holds_gpus)
{
	struct st_decision d = {0};

	start(NULL, 2, 40960);
	cr_expect_not(fx_observe(c, "theirs", 0, NULL, 1));
	fx_whole(&d, 0, 2);
	cr_expect_eq(fx_reserve(c, "ours", &d), ERR_CONFLICT);
}

Test(cases, case_36_use_returns_exactly_to_where_it_was)
{
	struct st_decision d[6] = {0};
	const struct st_gpu *g;
	char uid[4] = "p0";

	start(NULL, 1, 40960);
	for (int i = 0; i < 6; i++) {
		struct st_grant *gr = fx_share(&d[i], ST_MODE_SM_SHARING, 0, 1000 + i);

		gr->limit_mib += i;
		gr->compute_nano = 1000 + i;
	}
	/* Any order of leaving, events repeated. */
	for (int turn = 0; turn < 720; turn++) {
		int left[6] = {0, 1, 2, 3, 4, 5}, k = turn;

		for (int i = 0; i < 6; i++) {
			uid[1] = (char)('0' + i);
			fx_observe(c, uid, 0, &d[i], 0);
			fx_observe(c, uid, 0, &d[i], 0);
		}
		for (int n = 6; n > 0; k /= n, n--) {
			int at = k % n;

			uid[1] = (char)('0' + left[at]);
			left[at] = left[n - 1];
			cr_expect_eq(fx_move(c, uid, ST_EVENT_GONE), 0);
			cr_expect_eq(fx_move(c, uid, ST_EVENT_GONE), ERR_NOT_FOUND);
		}
		g = fx_gpu(c, 0, 0);
		cr_assert(g->free_mib == 40960 && g->limit_mib == 0 && g->clients == 0 &&
			  g->compute_left_nano == ST_NANO && g->mode == ST_MODE_FREE);
	}
}

Test(cases, case_44_no_gpu_counts_as_whole_and_as_slices)
{
	struct st_decision whole = {0}, other = {0};

	start(NULL, 8, 40960);
	node.spec.product = "NVIDIA A100-SXM4-40GB";
	for (size_t i = 0; i < 8; i++) {
		fx_node_mig(&node, i, NULL);
		for (uint8_t k = 0; k < 7; k++)
			fx_node_instance(&node, i, "1g.5gb", k);
	}
	fx_put(c, &node);
	fx_whole(&whole, 0, 1);
	fx_mig(&other, 0, "7g.40gb", 0);
	cr_expect_eq(fx_reserve(c, "a", &whole), ERR_CONFLICT);
	cr_expect_eq(fx_reserve(c, "a", &other), ERR_NO_ROOM);
	for (uint8_t i = 0; i < 8; i++) {
		cr_expect_not(st_gpu_idle(fx_gpu(c, 0, i)));
		cr_expect_eq(fx_gpu(c, 0, i)->free_mib, 40960 / 8, "the eighth unit");
	}
}

static void start_a100(void)
{
	start(NULL, 1, 40960);
	node.spec.product = "NVIDIA A100-SXM4-40GB";
	fx_node_mig(&node, 0, NULL);
	fx_put(c, &node);
}

Test(cases, case_46a_the_first_instance_is_counted_exactly)
{
	struct st_decision d = {0};

	start_a100();
	fx_mig(&d, 0, "1g.5gb", 6);
	cr_expect_eq(fx_reserve(c, "a", &d), 0);
	cr_expect_eq(fx_gpu(c, 0, 0)->free_mib, 40960 * 7 / 8);
	cr_expect_eq(__builtin_popcountll(fx_gpu(c, 0, 0)->mig_placed), 1);
}

Test(cases, case_46b_a_second_small_instance_fits)
{
	struct st_decision a = {0}, b = {0};

	start_a100();
	fx_mig(&a, 0, "1g.5gb", 6);
	fx_mig(&b, 0, "1g.5gb", 5);
	cr_expect_eq(fx_reserve(c, "a", &a), 0);
	cr_expect_eq(fx_reserve(c, "b", &b), 0);
	cr_expect_eq(fx_gpu(c, 0, 0)->free_mib, 40960 * 6 / 8);
}

Test(cases, case_46c_a_place_outside_of_the_table_fences)
{
	struct st_decision d = {0}, ok = {0};

	start_a100();
	fx_mig(&d, 0, "3g.20gb", 9);
	fx_mig(&ok, 0, "3g.20gb", 4);
	cr_expect(fx_observe(c, "a", 0, &d, 0));
	cr_expect_eq(fx_reserve(c, "b", &ok), ERR_CONFLICT);
	cr_expect_not(fx_observe(c, "a", 0, &ok, 0));
	cr_expect_eq(st_cluster_node(c, 0)->fences, 0);
}

Test(cases, case_46d_legal_places_decide_not_free_slices)
{
	struct st_decision a = {0}, b = {0};

	start_a100();
	/* Four units are free, in a place where no 4g can start. */
	fx_mig(&a, 0, "3g.20gb", 0);
	fx_mig(&b, 0, "4g.20gb", 0);
	cr_expect_eq(fx_reserve(c, "a", &a), 0);
	cr_expect_eq(fx_gpu(c, 0, 0)->free_mib, 20480);
	cr_expect_eq(fx_reserve(c, "b", &b), ERR_NO_ROOM);
	b.grant_count = 0;
	fx_mig(&b, 0, "3g.20gb", 4);
	cr_expect_eq(fx_reserve(c, "b", &b), 0, "beside the running one");
}

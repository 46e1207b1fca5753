/* One GPU that two nodes report. */
#include "test/unit/state_fixture.h"

static void twin_nodes(struct st_cluster *c, struct fx_node *a, struct fx_node *b)
{
	fx_node_init(a, "a", 2, 40960);
	fx_node_init(b, "b", 2, 40960);
	memcpy(b->uuids[1], a->uuids[0], sizeof(b->uuids[1]));
	fx_put(c, a);
	fx_put(c, b);
}

static void expect_twins(const struct st_cluster *c, bool yes)
{
	struct err err = ERR_INIT;

	cr_expect_eq(fx_gpu(c, 0, 0)->twin, yes);
	cr_expect_eq(fx_gpu(c, 1, 1)->twin, yes);
	cr_expect_eq(st_gpu_idle(fx_gpu(c, 1, 1)), !yes);
	cr_expect_eq(st_cluster_gpu_twin(c, 0, 0), yes ? 1 : ST_NONE);
	cr_expect(st_gpu_idle(fx_gpu(c, 0, 1)) && st_gpu_idle(fx_gpu(c, 1, 0)), "the others");
	cr_expect_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
}

Test(state_twin, a_gpu_on_two_nodes_is_given_by_neither)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_pod_ident pod = fx_pod("p");
	struct st_decision d = {.node = 1};
	struct fx_node a, b;
	struct err err = ERR_INIT;
	uint32_t version;

	twin_nodes(c, &a, &b);
	expect_twins(c, true);
	fx_share(&d, ST_MODE_TIME_SLICING, 1, 1000);
	cr_expect_eq(st_cluster_reserve(c, &pod, &d, &err), ERR_CONFLICT);
	cr_expect(strstr(err.msg, "second node") != NULL, "%s", err.msg);
	/* Labels know no UUIDs. */
	a.spec.from_inventory = false;
	fx_put(c, &a);
	expect_twins(c, false);
	a.spec.from_inventory = true;
	fx_put(c, &a);
	expect_twins(c, true);
	/* A node that gives nothing away does not stand in the way; nor does one that is gone. */
	version = st_cluster_node(c, 1)->version;
	a.spec.unready = true;
	fx_put(c, &a);
	cr_expect(st_gpu_idle(fx_gpu(c, 1, 1)));
	cr_expect_gt(st_cluster_node(c, 1)->version, version, "who keeps scores must hear of it");
	a.spec.unready = false;
	fx_put(c, &a);
	expect_twins(c, true);
	cr_expect_eq(st_cluster_node_remove(c, "a", NULL), 0);
	cr_expect(st_gpu_idle(fx_gpu(c, 1, 1)));
	cr_expect_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
	st_cluster_free(c);
}

/* What is booked on it counts, whatever became of the node. */
Test(state_twin, a_gpu_held_on_another_node_is_not_given)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_pod_ident pod = fx_pod("p");
	struct st_decision d = {.node = 0};
	struct fx_node a, b;
	struct err err = ERR_INIT;
	bool fenced = true;

	twin_nodes(c, &a, &b);
	fx_share(&d, ST_MODE_TIME_SLICING, 0, 1000);
	cr_expect_eq(st_cluster_observe(c, &pod, 0, &d, 0, &fenced, &err), 0, "%s", err.msg);
	cr_expect_not(fenced, "it exists, so it is booked");
	cr_expect_eq(st_cluster_node_remove(c, "a", NULL), 0);
	cr_expect_not(st_gpu_idle(fx_gpu(c, 1, 1)), "its process may still run");
	cr_expect_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
	cr_expect_eq(st_cluster_pod_move(c, "p", ST_EVENT_GONE, &err), 0);
	cr_expect(st_gpu_idle(fx_gpu(c, 1, 1)));
	cr_expect_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
	/* A device plugin's pod is where it is. */
	fx_put(c, &a);
	pod = fx_pod("q");
	cr_expect_eq(st_cluster_observe(c, &pod, 1, NULL, 2, &fenced, &err), 0, "%s", err.msg);
	cr_expect_not(fenced);
	cr_expect_not(st_gpu_idle(fx_gpu(c, 0, 0)));
	cr_expect_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
	st_cluster_free(c);
}

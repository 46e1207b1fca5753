/* MIG instances that are made for a container: before it is given their names, and away again. */
#include "test/unit/plugin_fixture.h"

static struct {
	bool fails, gpus_change;
	unsigned made, dropped;
	char gpu[EN_UUID_CAP], profile[ST_MIG_NAME_CAP];
	int start;
} mig;

/* As the agent does it: when it returns, the plugin knows the node with the instance. */
static int instances_make(void *ctx, const struct en_holding *h, struct err *err)
{
	struct world *w = ctx;

	mig.made++;
	snprintf(mig.gpu, sizeof(mig.gpu), "%s", h->gpus[0]);
	snprintf(mig.profile, sizeof(mig.profile), "%s", h->grant.profile);
	mig.start = h->grant.start[0];
	if (mig.fails)
		return err_set(err, ERR_IO, "the driver has no room for it");
	if (mig.gpus_change)
		snprintf(w->node.gpus[0].uuid, sizeof(w->node.gpus[0].uuid), "GPU-exchanged");
	ef_node_instance(&w->node, 0, "1g.10gb", 2);
	return en_plugin_set_node(w->plugin, &w->node.node, err);
}

static void instances_drop(void *ctx, const struct en_holding *h)
{
	(void)ctx;
	(void)h;
	mig.dropped++;
}

static const struct nt_container c1 = {.id = "c1", .pod_id = "u", .name = "main"};

static struct world w;
static struct ef_pod p;

/* A GPU in MIG mode without an instance, and a pod with one of it. */
static void init(void)
{
	struct st_decision d = {.grant_count = 0};
	struct err err = ERR_INIT;

	memset(&mig, 0, sizeof(mig));
	world_init(&w, 2, 81920);
	en_plugin_free(w.plugin);
	w.agent.instances_make = instances_make;
	w.agent.instances_drop = instances_drop;
	cr_assert_eq(en_plugin_new(&w.options, &w.plugin, &err), 0, "%s", err.msg);
	w.node.gpus[0].product = "NVIDIA-A100-SXM4-80GB";
	w.node.gpus[0].mig_enabled = true;
	cr_assert_eq(en_plugin_set_node(w.plugin, &w.node.node, &err), 0, "%s", err.msg);
	ef_pod_init(&p, "u");
	ef_mig(&d, "main", 0, "1g.10gb", 2);
	ef_pod_allocate(&p, &w.node, &d, NULL);
}

static void fini(void)
{
	ef_pod_fini(&p);
	world_fini(&w);
}

TestSuite(nri_plugin_mig, .init = init, .fini = fini);

Test(nri_plugin_mig, an_instance_is_there_before_its_name_is_given)
{
	expect_created(&w, &p, &c1, "MIG-0-2", "");
	cr_expect_eq(mig.made, 1);
	cr_expect_str_eq(mig.gpu, GPU(0));
	cr_expect_str_eq(mig.profile, "1g.10gb");
	cr_expect_eq(mig.start, 2);
	cr_expect_eq(mig.dropped, 0);
	cr_expect_eq(holdings(&w), 1);
	/* It may go when the container is gone, and not before. */
	expect_ok(&w, "StopContainer", &p, &c1);
	cr_expect_eq(mig.dropped, 0);
	expect_ok(&w, "RemoveContainer", &p, &c1);
	cr_expect_eq(mig.dropped, 1);
	cr_expect_eq(holdings(&w), 0);
}

Test(nri_plugin_mig, what_cannot_be_made_refuses_the_container)
{
	mig.fails = true;
	expect_refused(&w, "CreateContainer", &p, &c1,
		       "container \"main\" of pod ns/u: the driver has no room for it");
	cr_expect_eq(mig.made, 1);
	cr_expect_eq(mig.dropped, 1, "what is half made goes again");
	cr_expect_eq(holdings(&w), 0);
	/* Tried again, it is asked for again. */
	mig.fails = false;
	expect_created(&w, &p, &c1, "MIG-0-2", "");
	cr_expect_eq(mig.made, 2);
	cr_expect_eq(holdings(&w), 1);
}

/* While it was made the GPUs became others: the plan was for the old ones. */
Test(nri_plugin_mig, gpus_that_change_meanwhile)
{
	mig.gpus_change = true;
	expect_refused(&w, "CreateContainer", &p, &c1, "the GPUs of the node have just changed");
	cr_expect_eq(mig.dropped, 1);
	cr_expect_eq(holdings(&w), 0);
}

/* The answer came too late, and the container is not made: its instance goes. */
Test(nri_plugin_mig, a_late_answer_takes_it_back)
{
	expect_created(&w, &p, &c1, "MIG-0-2", "");
	en_plugin_undo(w.plugin, "c1");
	cr_expect_eq(mig.dropped, 1);
	cr_expect_eq(holdings(&w), 0);
}

Test(nri_plugin_mig, shares_ask_for_none)
{
	const struct nt_container c = {.id = "s1", .pod_id = "s", .name = "main"};
	struct ef_pod shared;

	ef_pod_shared(&shared, "s", &w.node, TIME, 1, 1024);
	expect_created(&w, &shared, &c, GPU(1), "1024");
	expect_ok(&w, "RemoveContainer", &shared, &c);
	cr_expect_eq(mig.made + mig.dropped, 0);
	ef_pod_fini(&shared);
}

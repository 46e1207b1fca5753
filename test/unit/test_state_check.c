/* The recount must see each kind of damage. */
#include <criterion/criterion.h>
#include <string.h>

#include "state/cluster_internal.h"
#include "test/unit/state_fixture.h"

static struct st_cluster *c;
static struct node_slot *n;

/* GPU 0 shared, 1 whole, 2 MIG with one instance booked and one foreign, 3 free. */
static void setup(void)
{
	struct st_decision a = {0}, b = {0};
	struct st_pod_ident bad = fx_pod("bad");
	struct fx_node node;

	c = st_cluster_new(NULL);
	cr_assert_not_null(c);
	fx_node_init(&node, "n1", 4, 40960);
	fx_node_mig(&node, 2, st_mig_table_at(1));
	fx_node_instance(&node, 2, "1g.5gb", 0);
	fx_put(c, &node);
	fx_share(&a, ST_MODE_SM_SHARING, 0, 1000)->compute_nano = 5;
	fx_whole(&b, 1, 1);
	fx_mig(&b, 2, "3g.20gb", 4);
	fx_reserve(c, "a", &a);
	fx_reserve(c, "b", &b);
	cr_assert_eq(st_cluster_fence(c, &bad, 0, NULL), 0);
	fx_check(c);
	n = c->nodes[0];
}

static void teardown(void)
{
	fx_check(c);
	st_cluster_free(c);
}

TestSuite(state_check, .init = setup, .fini = teardown);

static void seen(const char *what)
{
	struct err e = ERR_INIT;

	cr_expect_eq(st_cluster_check(c, ST_NONE, &e), ERR_INTERNAL, "%s", what);
	cr_expect_neq(e.msg[0], '\0', "%s", what);
}

/* Changes a field, looks, puts it back. */
#define DAMAGE(field, value)                                                                       \
	do {                                                                                       \
		__typeof__(field) kept = (field);                                                  \
                                                                                                   \
		(field) = (value);                                                                 \
		seen(#field);                                                                      \
		(field) = kept;                                                                    \
		fx_check(c);                                                                       \
	} while (0)

Test(state_check, damage_to_a_gpu)
{
	struct st_gpu *g = n->pub.gpus;
	char text[] = "x";

	DAMAGE(g[0].free_mib, 39961);
	DAMAGE(g[0].limit_mib, 999);
	DAMAGE(g[0].compute_left_nano, ST_NANO);
	DAMAGE(g[0].clients, 2);
	DAMAGE(g[0].memory_bound, 1);
	DAMAGE(g[0].mode, ST_MODE_TIME_SLICING);
	DAMAGE(g[0].alloc_mib, 40961);
	DAMAGE(g[0].taken, ST_TAKEN_FOREIGN);
	DAMAGE(g[0].taken_by, text);
	DAMAGE(g[0].mig, st_mig_table_at(1));
	DAMAGE(g[1].free_mib, 1);
	DAMAGE(g[1].mode, ST_MODE_FREE);
	DAMAGE(g[2].mig_placed, 0);
	DAMAGE(g[2].mig_foreign, 0);
	DAMAGE(g[2].free_mib, 0);
	DAMAGE(g[2].mode, ST_MODE_FREE);
	DAMAGE(g[3].mode, ST_MODE_MIG);
	DAMAGE(g[3].mig_placed, 1);
	DAMAGE(g[3].free_mib, 40959);
	DAMAGE(g[3].uuid, g[2].uuid);
	DAMAGE(n->gpus[3].book.holders, 1);
	DAMAGE(n->gpus[3].report.mig_enabled, true);
}

Test(state_check, damage_to_a_node)
{
	DAMAGE(n->pub.cpu_left_milli, 1);
	DAMAGE(n->pub.mem_left_mib, 1);
	DAMAGE(n->pub.pods, 2);
	DAMAGE(n->pub.fences, 0);
	DAMAGE(n->pub.id, 1);
	DAMAGE(n->pub.version, 0);
	DAMAGE(n->pub.rank, n->pub.rank + 1);
	DAMAGE(n->assumed, 1);
	DAMAGE(n->pod_count, 2);
	DAMAGE(c->log_end, c->log_end + 5000);
}

Test(state_check, damage_to_a_pod)
{
	struct pod_slot *a = st_pod_slot_find(c, "a"), *b = st_pod_slot_find(c, "b");
	struct pod_slot *bad = st_pod_slot_find(c, "bad");

	DAMAGE(a->pub.node, 1);
	DAMAGE(a->pub.state, ST_POD_STATE_COUNT);
	DAMAGE(a->pub.grant_count, 0);
	DAMAGE(a->pub.fenced, true);
	DAMAGE(a->pub.foreign, true);
	DAMAGE(a->pub.cpu_milli, 1);
	DAMAGE(bad->pub.state, ST_POD_BINDING);
	DAMAGE(bad->prev, a);
	DAMAGE(a->pub.grants[0].gpu[0], 4);
	DAMAGE(a->pub.grants[0].gpu[0], 1); /* beside a whole one */
	DAMAGE(a->pub.grants[0].gpu[0], 3);
	DAMAGE(a->pub.grants[0].request_mib, 1001);
	DAMAGE(a->pub.grants[0].request_mib, 0);
	DAMAGE(a->pub.grants[0].compute_nano, 6);
	DAMAGE(a->pub.grants[0].kind, ST_KIND_WHOLE);
	DAMAGE(a->pub.grants[0].count, 0);
	DAMAGE(b->pub.grants[1].start[0], 0);
	DAMAGE(b->pub.grants[1].gpu[0], 3);
	DAMAGE(b->pub.grants[0].gpu[0], 0);
}

Test(state_check, two_pods_on_one_instance)
{
	struct pod_slot *b = st_pod_slot_find(c, "b");
	struct st_grant *g = &b->pub.grants[1];
	struct st_grant kept = *g;

	g->count = 2;
	g->gpu[1] = 2;
	g->start[1] = 4;
	seen("one instance twice");
	*g = kept;
}

Test(state_check, nodes_are_looked_at_one_by_one)
{
	cr_expect_eq(st_cluster_check(c, 0, NULL), 0);
	cr_expect_eq(st_cluster_check(c, 1, NULL), ERR_INTERNAL);
}

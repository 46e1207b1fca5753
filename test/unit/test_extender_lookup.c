/* Names to ids: in order, shuffled, unknown, repeated, and after nodes were added. */
#include <stdlib.h>

#include "base/rng.h"
#include "extender/lookup.h"
#include "test/unit/state_fixture.h"

#define NODES 700

static struct st_cluster *c;
static struct ex_lookup l;
static char texts[NODES + 3][32];
static struct ex_name list[NODES + 3];
static unsigned repeated;

static void init(void)
{
	c = st_cluster_new(NULL);
	cr_assert_not_null(c);
}

static void fini(void)
{
	ex_lookup_fini(&l);
	st_cluster_free(c);
}

TestSuite(extender_lookup, .init = init, .fini = fini);

/* Lengths of 5 to 19, around the hash's steps of 8. */
static void name_of(unsigned i, char *ret, size_t cap)
{
	snprintf(ret, cap, "n%0*u.x", (int)(3 + i % 15), i);
}

static void add_nodes(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		struct err err = ERR_INIT;
		struct fx_node n;
		char name[32];

		name_of(i, name, sizeof(name));
		fx_node_init(&n, "", 0, 0);
		n.spec.name = name;
		cr_assert_eq(st_cluster_node_put(c, &n.spec, NULL, &err), 0, "%s", err.msg);
	}
}

static void on_repeated(void *ctx, size_t i)
{
	(void)ctx;
	(void)i;
	repeated++;
}

/* Each as the cluster itself finds it. */
static void expect_found(size_t count)
{
	const struct ex_names names = {.v = list, .count = count};
	uint32_t ids[NODES + 3];
	struct err err = ERR_INIT;

	repeated = 0;
	cr_assert_eq(ex_lookup_names(&l, c, &names, ids, on_repeated, NULL, &err), 0);
	for (size_t i = 0; i < count; i++)
		cr_expect_eq(ids[i], st_cluster_node_find(c, list[i].at, list[i].len), "%.*s",
			     (int)list[i].len, list[i].at);
}

static void name_all(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		name_of(i, texts[i], sizeof(texts[i]));
		list[i] = (struct ex_name){.at = texts[i], .len = (uint32_t)strlen(texts[i])};
	}
}

Test(extender_lookup, in_order_shuffled_and_grown)
{
	static const unsigned sizes[] = {1, 32, 33, 600, NODES};
	struct rng g;

	rng_init(&g, 7);
	name_all();
	expect_found(NODES); /* of an empty cluster: none */
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		add_nodes(0, sizes[k]);
		expect_found(NODES);
		expect_found(NODES);
		for (unsigned i = NODES - 1; i > 0; i--) {
			unsigned other = (unsigned)rng_below(&g, i + 1);
			struct ex_name t = list[i];

			list[i] = list[other];
			list[other] = t;
		}
		expect_found(NODES);
		cr_expect_eq(repeated, 0);
	}
}

Test(extender_lookup, nearly_the_same_and_repeated)
{
	add_nodes(0, NODES);
	name_all();
	for (unsigned i = 0; i < NODES; i += 7) {
		texts[i][i % 4 == 0 ? 0 : list[i].len - 1] ^= 1; /* no node's name */
		list[i].len -= i % 3 == 0;
	}
	list[NODES] = list[1];
	list[NODES + 1] = (struct ex_name){.at = ""};
	list[NODES + 2] = list[NODES];
	expect_found(NODES + 3);
	cr_expect_eq(repeated, 2);
}

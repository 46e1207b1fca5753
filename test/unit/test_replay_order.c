/* Arrivals and node ranks: order files, and what a seed makes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/oom.h"
#include "test/unit/replay_fixture.h"

#define GOOD_PODS "pods 4 req 2810\np1\np4\np0\np0\n"
#define GOOD_NODES "nodes 5\n0003-a\n0001-b\n0000-c\n0004-d\n2-e\n"

static int read_order(const struct rp_trace *t, const char *text, struct rp_order *o,
		      struct err *err)
{
	return rp_order_read(t, "o.txt", text, strlen(text), o, err);
}

Test(replay_order, reads_arrivals_and_ranks)
{
	struct err err = ERR_INIT;
	struct rp_order o;
	struct rp_trace t;

	trace_of(&t, small_nodes, small_pods);
	cr_assert_eq(read_order(&t, GOOD_PODS GOOD_NODES, &o, &err), 0, "%s", err.msg);
	cr_assert_eq(o.pod_count, 4);
	cr_assert_eq(o.pods[0], 1);
	cr_assert_eq(o.pods[3], 0);
	cr_assert_eq(o.milli, 2810);
	cr_assert_eq(o.ranks[0], 3);
	cr_assert_eq(o.ranks[4], 2);
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(replay_order, refuses_malformed_files)
{
	static const struct {
		const char *text, *message;
	} rows[] = {
		{"", "o.txt:1:1: the file ends, pods N req R expected"},
		{"pods 4\n", "o.txt:1:1: not of the form \"pods N req R\""},
		{"pods x req 1\n", "o.txt:1:1: not of the form \"pods N req R\""},
		{"pods 1 req 1 \n", "o.txt:1:1: not of the form \"pods N req R\""},
		{"pods 1 req -1\n", "o.txt:1:1: not of the form \"pods N req R\""},
		{"pods 2 req 500\np0\n", "o.txt:3:1: the file ends, a pod name expected"},
		{"pods 1 req 500\nq\n", "o.txt:2:1: no such pod in the trace: \"q\""},
		{"pods 1 req 500\np0,\n", "o.txt:2:3: a comma in an order file: \"p0\""},
		{"pods 1 req 501\np0\n", "o.txt:1:1: \"req 501\", but the pods listed ask for 500"},
		{GOOD_PODS, "o.txt:6:1: the file ends, nodes M expected"},
		{GOOD_PODS "nodes 4\n", "o.txt:6:1: \"nodes 4\", but the trace has 5"},
		{GOOD_PODS "nodes 5\n0-a\n",
		 "o.txt:8:1: the file ends, RANK-name of a node expected"},
		{GOOD_PODS "nodes 5\na\n", "o.txt:7:1: not of the form RANK-name: \"a\""},
		{GOOD_PODS "nodes 5\nx-a\n", "o.txt:7:1: not of the form RANK-name: \"x-a\""},
		{GOOD_PODS "nodes 5\n5-a\n",
		 "o.txt:7:1: a rank that is not below the number of nodes: \"5\""},
		{GOOD_PODS "nodes 5\n04-x\n", "o.txt:7:4: no such node in the trace: \"x\""},
		{GOOD_PODS "nodes 5\n4-a\n3-a\n", "o.txt:8:3: a node that occurs twice: \"a\""},
		{GOOD_PODS "nodes 5\n4-a\n04-b\n", "o.txt:8:1: a rank that occurs twice: \"04\""},
		{GOOD_PODS GOOD_NODES "more\n", "o.txt:12:1: text after the last node: \"more\""},
	};
	struct rp_trace t;

	trace_of(&t, small_nodes, small_pods);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rp_order o = {0};
		struct err err = ERR_INIT;

		cr_expect_lt(read_order(&t, rows[i].text, &o, &err), 0, "row %zu", i);
		cr_expect_str_eq(err.msg, rows[i].message, "row %zu: %s", i, err.msg);
		cr_expect_null(o.pods, "row %zu", i);
	}
	rp_trace_fini(&t);
}

/* ---- orders from a seed ---- */

static void make(const struct rp_trace *t, uint64_t seed, int64_t inflate_nano, struct rp_order *o)
{
	struct rp_order_options opt = {.seed = seed, .inflate_nano = inflate_nano};
	struct err err = ERR_INIT;

	cr_assert_eq(rp_order_make(t, &opt, o, &err), 0, "%s", err.msg);
}

static int64_t milli_of(const struct rp_trace *t, const struct rp_order *o, size_t count)
{
	int64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += t->shapes[t->pods[o->pods[i]]].milli;
	return sum;
}

Test(replay_order, originals_come_first_each_once_then_clones_up_to_the_target)
{
	struct rp_trace t;

	trace_of(&t, small_nodes, small_pods);
	for (uint64_t seed = 0; seed < 200; seed++) {
		unsigned seen = 0, ranks = 0;
		struct rp_order o;

		make(&t, seed, 1300000000, &o);
		cr_assert_geq(o.pod_count, t.pod_count);
		for (size_t i = 0; i < t.pod_count; i++)
			seen |= 1U << o.pods[i];
		cr_assert_eq(seen, 0x3F);
		for (size_t i = 0; i < t.node_count; i++)
			ranks |= 1U << o.ranks[i];
		cr_assert_eq(ranks, 0x1F);
		cr_assert_eq(o.milli, milli_of(&t, &o, o.pod_count));
		/* A pod of four devices is tested with what it asks of one. */
		cr_assert_leq(o.milli, 26000 + 3000);
		/* The next draw would have passed the target: at most one device below it. */
		cr_assert_gt(o.milli, 26000 - 1000);
		rp_order_fini(&o);
	}
	rp_trace_fini(&t);
}

Test(replay_order, equal_seeds_give_equal_orders_and_ranks_do_not_depend_on_inflation)
{
	struct rp_order a, b, c, other;
	struct rp_trace t;

	trace_of(&t, small_nodes, small_pods);
	make(&t, 42, 1300000000, &a);
	make(&t, 42, 1300000000, &b);
	make(&t, 42, RP_NO_INFLATION, &c);
	make(&t, 43, 1300000000, &other);
	cr_assert_eq(a.pod_count, b.pod_count);
	cr_assert_arr_eq(a.pods, b.pods, a.pod_count * sizeof(*a.pods));
	cr_assert_arr_eq(a.ranks, c.ranks, t.node_count * sizeof(*a.ranks));
	cr_assert_arr_eq(a.pods, c.pods, t.pod_count * sizeof(*a.pods));
	cr_assert_eq(c.pod_count, t.pod_count);
	cr_assert(a.pod_count != other.pod_count ||
		  memcmp(a.pods, other.pods, a.pod_count * sizeof(*a.pods)) != 0);
	rp_order_fini(&a);
	rp_order_fini(&b);
	rp_order_fini(&c);
	rp_order_fini(&other);
	rp_trace_fini(&t);
}

Test(replay_order, the_order_does_not_depend_on_the_order_of_the_files)
{
	static const char pods[] = PODS_HEAD "c,1,1,1,300,\na,1,1,1,100,\nb,1,1,1,200,\n";
	static const char sorted[] = PODS_HEAD "a,1,1,1,100,\nb,1,1,1,200,\nc,1,1,1,300,\n";
	struct rp_order x, y;
	struct rp_trace t, u;

	trace_of(&t, NODES_HEAD "m,1,1,1,\nn,1,1,1,\n", pods);
	trace_of(&u, NODES_HEAD "n,1,1,1,\nm,1,1,1,\n", sorted);
	make(&t, 5, 1300000000, &x);
	make(&u, 5, 1300000000, &y);
	cr_assert_eq(x.pod_count, y.pod_count);
	for (size_t i = 0; i < x.pod_count; i++)
		cr_assert_str_eq(strpool_str(t.pod_names, x.pods[i]),
				 strpool_str(u.pod_names, y.pods[i]));
	cr_assert_eq(x.ranks[0], y.ranks[1]);
	cr_assert_eq(x.ranks[1], y.ranks[0]);
	rp_order_fini(&x);
	rp_order_fini(&y);
	rp_trace_fini(&t);
	rp_trace_fini(&u);
}

Test(replay_order, a_trace_above_the_target_loses_random_pods)
{
	struct rp_trace t;
	size_t lost[6] = {0};

	trace_of(&t, NODES_HEAD "a,96000,400000,4,G2\n", small_pods);
	for (uint64_t seed = 0; seed < 500; seed++) {
		struct rp_order o;
		unsigned seen = 0;

		make(&t, seed, 1000000000, &o);
		cr_assert_leq(o.milli, 4000);
		cr_assert_eq(o.milli, milli_of(&t, &o, o.pod_count));
		for (size_t i = 0; i < o.pod_count; i++)
			seen |= 1U << o.pods[i];
		for (size_t i = 0; i < 6; i++)
			lost[i] += !(seen & 1U << i);
		rp_order_fini(&o);
	}
	for (size_t i = 0; i < 6; i++)
		cr_assert(lost[i] > 50 && lost[i] < 500, "pod %zu lost %zu times", i, lost[i]);
	rp_trace_fini(&t);
}

Test(replay_order, a_trace_without_gpu_pods_cannot_be_inflated)
{
	struct rp_order_options opt = {.seed = 1, .inflate_nano = 1300000000};
	struct err err = ERR_INIT;
	struct rp_order o;
	struct rp_trace t;

	trace_of(&t, small_nodes, PODS_HEAD "p,1,1,0,0,\n");
	cr_assert_eq(rp_order_make(&t, &opt, &o, &err), ERR_INVALID);
	cr_assert_not_null(strstr(err.msg, "cannot be inflated"));
	rp_trace_fini(&t);
}

Test(replay_order, out_of_memory_is_an_error_everywhere)
{
	struct rp_order_options opt = {.seed = 1, .inflate_nano = 1300000000};
	struct rp_trace t;
	int rc = 0;

	trace_of(&t, small_nodes, small_pods);
	OOM_SWEEP(n) {
		struct rp_order made = {0}, read = {0};
		struct err err = ERR_INIT;
		bool hit;

		oom_fail_at(n);
		rc = rp_order_make(&t, &opt, &made, &err);
		if (rc == 0)
			rc = read_order(&t, GOOD_PODS GOOD_NODES, &read, &err);
		hit = oom_disarm();
		rp_order_fini(&made);
		rp_order_fini(&read);
		if (!hit)
			break;
		cr_assert_eq(rc, ERR_NOMEM, "allocation %u: %d", n, rc);
	}
	cr_assert_eq(rc, 0);
	rp_trace_fini(&t);
}

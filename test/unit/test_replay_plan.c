/* The planner: node types as they are written, and plans against every cluster there is. */
#include <stdio.h>

#include "base/rng.h"
#include "replay/plan.h"
#include "test/unit/replay_fixture.h"

Test(replay_plan, node_types_are_read_strictly)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"name=a,cpu=96,memory=1Gi", "gpus is missing"},
		{"name=a,cpu=96,memory=1Gi,gpus=17", "gpus: \"17\" is not within 0 and 16"},
		{"name=a,cpu=x,memory=1Gi,gpus=1", "cpu: "},
		{"name=a,cpu=1,memory=1Gi,gpus=1,cost=0", "cost: \"0\""},
		{"name=a b,cpu=1,memory=1Gi,gpus=1", "name: \"a b\""},
		{"name=a,name=b,cpu=1,memory=1Gi,gpus=1", "name is given twice"},
		{"name=a,colour=red", "no such field: \"colour\""},
		{"name", "\"name\" is not of the form"},
		{"", "\"\" is not of the form"},
		{"name=a,cpu=1,memory=1Gi,gpus=1,mig=maybe", "mig: \"maybe\""},
		{"name=a,cpu=1,memory=1Gi,gpus=1,mig=yes", "no MIG geometry"},
	};
	struct rp_node_type t;
	struct err err = ERR_INIT;

	cr_assert_eq(rp_node_type_parse("name=a,cpu=96,memory=768Gi,gpus=8,model=G2,cost=1.25,"
					"gpu-memory=80Gi,max=7",
					&t, &err),
		     0, "%s", err.msg);
	cr_assert(t.cpu_milli == 96000 && t.mem_mib == 786432 && t.gpus == 8 &&
		  t.cost_nano == 1250000000 && t.gpu_mib == 81920 && t.max == 7);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_expect_lt(rp_node_type_parse(bad[i].text, &t, &err), 0, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, bad[i].message), "row %zu: %s", i, err.msg);
	}
}

Test(replay_plan, node_types_in_json)
{
	static const char good[] =
		"[{\"name\":\"a\",\"cpu\":96,\"memory\":\"768Gi\",\"gpus\":8,\"cost\":\"2.5\"},"
		"{\"name\":\"b\",\"cpu\":\"500m\",\"memory\":\"1Gi\",\"gpus\":1,\"mig\":false}]";
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"{}", "not a list"},
		{"[1]", "node type 0: not an object"},
		{"[{\"name\":\"a\"}]", "node type 0: cpu is missing"},
		{"[{\"name\":[]}]", "node type 0: name: neither"},
		{"[{\"name\":\"a\",\"name\":\"b\"}]", "name"},
		{"[", ""},
		{"[{\"name\":\"a\",\"cpu\":1,\"memory\":1048576,\"gpus\":1.5}]", "gpus"},
	};
	struct rp_node_type types[RP_NODE_TYPES_MAX];
	struct err err = ERR_INIT;
	size_t n = 0;

	cr_assert_eq(rp_node_types_json(good, sizeof(good) - 1, types, &n, &err), 0, "%s", err.msg);
	cr_assert_eq(n, 2);
	cr_expect_eq(types[0].cost_nano, 2500000000);
	cr_expect_eq(types[1].cpu_milli, 500);
	cr_expect_eq(rp_node_types_json(good, sizeof(good) - 1, types, &n, &err), ERR_EXISTS);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]) - 1; i++) {
		n = 0;
		cr_expect_lt(rp_node_types_json(bad[i].text, strlen(bad[i].text), types, &n, &err),
			     0, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, bad[i].message), "row %zu: %s", i, err.msg);
	}
}

static int64_t cost_of(const struct rp_node_type *types, const int64_t *counts, size_t n)
{
	int64_t cost = 0;

	for (size_t i = 0; i < n; i++)
		cost += types[i].cost_nano * counts[i];
	return cost;
}

/* The least cost of all clusters of at most `most` nodes of each type that do; -1: none. */
static int64_t cheapest(const struct rp_trace *t, const struct rp_node_type *types, size_t n,
			const struct rp_plan_options *opt, int64_t most)
{
	int64_t counts[3] = {0}, best = -1;
	struct err err = ERR_INIT;

	for (;;) {
		int64_t cost = cost_of(types, counts, n);
		size_t i = 0;

		if ((best < 0 || cost < best) &&
		    rp_plan_try(t, types, counts, n, opt, NULL, &err) == 1)
			best = cost;
		while (i < n && counts[i] == most)
			counts[i++] = 0;
		if (i == n)
			return best;
		counts[i]++;
	}
}

Test(replay_plan, no_cluster_is_cheaper_on_small_cases)
{
	struct rng rng;
	size_t found = 0;

	rng_init(&rng, 11);
	for (int round = 0; round < 25; round++) {
		static const int milli[] = {250, 500, 810, 1000, 1000};
		struct rp_node_type types[3];
		uint64_t seeds[2] = {(uint64_t)round, 99};
		struct rp_plan_options opt = {
			.policy = po_policy_find(round % 2 == 0 ? "bestfit" : "ca-fgd"),
			.seeds = seeds,
			.seed_count = 1 + (size_t)round % 2,
			.success_nano = round % 3 == 0 ? 900000000 : 1000000000,
			.headroom_nano = round % 4 == 0 ? 200000000 : 0,
			.jobs = 1 + (size_t)round % 3,
			.prove_max = 5000,
		};
		char pods[2048] = PODS_HEAD;
		struct err err = ERR_INIT;
		struct rp_trace t;
		struct rp_plan p;
		int64_t want;
		int rc;

		for (int i = 0; i < 12; i++) {
			size_t len = strlen(pods);
			int m = milli[rng_below(&rng, 5)];

			snprintf(pods + len, sizeof(pods) - len, "p%d,%d,1000,%d,%d,%s\n", i,
				 1000 * (1 + (int)rng_below(&rng, 8)),
				 m == 1000 ? 1 + (int)rng_below(&rng, 2) : 1, m,
				 rng_below(&rng, 4) == 0 ? "B" : "");
		}
		for (int i = 0; i < 3; i++) {
			char text[128];

			snprintf(text, sizeof(text),
				 "name=%c,cpu=%d,memory=64Gi,gpus=%d,model=%c,cost=%d", 'a' + i,
				 8 + 8 * (int)rng_below(&rng, 3), 1 << rng_below(&rng, 3), 'A' + i,
				 1 + (int)rng_below(&rng, 9));
			cr_assert_eq(rp_node_type_parse(text, &types[i], &err), 0, "%s", err.msg);
			types[i].max = 7;
		}
		rp_trace_init(&t);
		cr_assert_eq(rp_trace_open(&t, &err), 0);
		cr_assert_eq(rp_openb_pods(&t, "p", pods, strlen(pods), &err), 0, "%s", err.msg);
		rc = rp_plan_find(&t, types, 3, &opt, &p, &err);
		want = cheapest(&t, types, 3, &opt, 7);
		if (rc == ERR_NOT_FOUND) {
			cr_expect_eq(want, -1, "round %d", round);
		} else {
			cr_assert_eq(rc, 0, "%s", err.msg);
			found++;
			cr_expect(p.proved);
			cr_expect_eq(p.at.cost_nano, want, "round %d", round);
			cr_expect_geq(want, p.bound_nano);
			cr_expect_eq(cost_of(types, p.counts, 3), p.at.cost_nano);
			cr_expect_eq(rp_plan_try(&t, types, p.counts, 3, &opt, NULL, &err), 1);
		}
		rp_trace_fini(&t);
	}
	cr_expect_gt(found, 10);
}

Test(replay_plan, a_larger_plan_is_the_same_with_any_number_of_jobs)
{
	struct rp_node_type types[2];
	uint64_t seeds[1] = {5};
	struct rp_plan_options opt = {.policy = po_policy_find("bestfit"),
				      .seeds = seeds,
				      .seed_count = 1,
				      .success_nano = 850000000};
	struct rp_plan p[2];
	struct err err = ERR_INIT;
	struct rp_trace t;

	cr_assert_eq(
		rp_node_type_parse("name=a,cpu=96,memory=512Gi,gpus=8,cost=9", &types[0], &err), 0);
	cr_assert_eq(rp_node_type_parse("name=b,cpu=32,memory=64Gi,gpus=2,cost=2", &types[1], &err),
		     0);
	rp_trace_init(&t);
	cr_assert_eq(rp_trace_load_pods(&t, "test/golden/small/pods.csv", 0, NULL, NULL, &err), 0);
	for (size_t i = 0; i < 2; i++) {
		opt.jobs = 1 + 3 * i;
		/* 18 times the pods: more than a sample. */
		opt.headroom_nano = INT64_C(17000000000);
		cr_assert_eq(rp_plan_find(&t, types, 2, &opt, &p[i], &err), 0, "%s", err.msg);
		cr_expect_geq(p[i].at.placed_centi, 8500);
	}
	cr_expect_gt(p[0].pods, 2000);
	cr_expect_arr_eq(p[0].counts, p[1].counts, sizeof(p[0].counts));
	cr_expect_eq(p[0].tried, p[1].tried);
	cr_expect_arr_eq(p[0].curve, p[1].curve, sizeof(p[0].curve));
	rp_trace_fini(&t);
}

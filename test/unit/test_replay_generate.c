/* Made-up tables: readable, reproducible, near the published figures. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/generate.h"
#include "test/unit/replay_fixture.h"

typedef int (*maker_fn)(FILE *, const struct rp_generate_options *, struct err *);

static char *made(maker_fn make, struct rp_generate_options opt)
{
	struct err err = ERR_INIT;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	cr_assert_not_null(f);
	cr_assert_eq(make(f, &opt, &err), 0, "%s", err.msg);
	fclose(f);
	return text;
}

static const struct rp_generate_options published = {.count = 8152, .seed = 1};

Test(replay_generate, nodes_follow_the_published_counts_exactly)
{
	char *nodes =
		made(rp_generate_nodes, (struct rp_generate_options){.count = 1213, .seed = 1});
	struct rp_trace t;
	int64_t cpu = 0, t4 = 0;

	trace_of(&t, nodes, small_pods);
	cr_assert_eq(t.node_count, 1213);
	cr_assert_eq(t.gpu_milli, 6212000);
	for (size_t i = 0; i < t.node_count; i++) {
		cpu += t.nodes[i].cpu_milli;
		t4 += strcmp(strpool_str(t.models, t.nodes[i].model), "T4") == 0;
	}
	cr_assert_eq(cpu, 107018000);
	cr_assert_eq(t4, 387 + 17);
	rp_trace_fini(&t);
	free(nodes);
}

Test(replay_generate, pods_are_near_the_published_shares)
{
	char *pods = made(rp_generate_pods, published);
	double kinds[RP_KINDS] = {0}, popular = 0, small = 0, milli = 0;
	struct rp_trace t;

	trace_of(&t, small_nodes, pods);
	for (size_t i = 0; i < t.pod_count; i++) {
		const struct rp_shape *s = &t.shapes[t.pods[i]];

		kinds[s->kind]++;
		popular += s->kind == RP_SHARED && s->milli == 810;
		small += s->kind == RP_SHARED && s->milli <= 190;
		milli += (double)s->milli;
	}
	cr_assert_float_eq(kinds[RP_CPU_ONLY], 1088, 120);
	cr_assert_float_eq(kinds[RP_SHARED], 3078, 170);
	cr_assert_float_eq(kinds[RP_ONE_GPU], 3911, 180);
	cr_assert_float_eq(kinds[RP_MULTI_GPU], 75, 35);
	cr_assert_float_eq(popular, 1078, 120);
	cr_assert_float_eq(small, 106, 40);
	cr_assert_float_eq(milli, 6086800, 300000);
	rp_trace_fini(&t);
	free(pods);
}

Test(replay_generate, the_seed_decides_everything)
{
	struct rp_generate_options a = published, b = published;
	char *x, *y, *z;

	b.seed = 2;
	x = made(rp_generate_pods, a);
	y = made(rp_generate_pods, a);
	z = made(rp_generate_pods, b);
	cr_assert_str_eq(x, y);
	cr_assert_str_neq(x, z);
	free(x);
	free(y);
	free(z);
}

Test(replay_generate, totals_of_gpus_and_mixes)
{
	char *nodes = made(rp_generate_nodes,
			   (struct rp_generate_options){.gpus_total = 800,
							.seed = 3,
							.mix = "A100:8x96:3,T4:4x48:1,:0x8:1"});
	char *pods = made(rp_generate_pods, (struct rp_generate_options){.gpus_total = 100,
									 .seed = 3,
									 .mix = "2=1,cpu=1",
									 .spec_percent = 100});
	struct rp_trace t;
	int64_t milli = 0;

	trace_of(&t, nodes, pods);
	cr_assert_float_eq((double)t.gpu_milli, 800000, 4000); /* the nearest number of nodes */
	for (size_t i = 0; i < t.pod_count; i++) {
		const struct rp_shape *s = &t.shapes[t.pods[i]];

		milli += s->milli;
		cr_assert(s->kind == RP_CPU_ONLY || s->milli == 2000);
		cr_assert_eq(s->kind == RP_CPU_ONLY, s->req.product[0] == '\0');
	}
	cr_assert_eq(milli, 100000);
	rp_trace_fini(&t);
	free(nodes);
	free(pods);
}

Test(replay_generate, refuses_bad_mixes)
{
	static const struct {
		maker_fn make;
		const char *mix, *message;
	} rows[] = {
		{rp_generate_nodes, "", "no nodes to make"},
		{rp_generate_nodes, "T4:2", "--mix: \"\": \"\" is"},
		{rp_generate_nodes, "T4:99x8:1", "\"T4:99x8:1\": \"99\""},
		{rp_generate_nodes, "T4:8x8:0", "\"T4:8x8:0\": \"0\""},
		{rp_generate_nodes, "T|4:8x8:1", "is not MODEL:GPUSxCORES:WEIGHT"},
		{rp_generate_pods, "3=1", "--mix: \"3\" is none of cpu, shared, 1, 2, 4, 8"},
		{rp_generate_pods, "cpu=x", "--mix: cpu: \"x\""},
		{rp_generate_pods, "cpu=0", "--mix: all weights are 0"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rp_generate_options opt = {.count = 5, .mix = rows[i].mix};
		struct err err = ERR_INIT;
		FILE *f = fopen("/dev/null", "w");

		cr_assert_not_null(f);
		cr_expect_lt(rows[i].make(f, &opt, &err), 0, "row %zu", i);
		cr_expect(strstr(err.msg, rows[i].message) != NULL ||
				  strstr(rows[i].message, "\"\""),
			  "row %zu: %s", i, err.msg);
		fclose(f);
	}
}

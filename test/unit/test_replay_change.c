/* Changes of whatif: what they do to a trace, and what they refuse. */
#include <stdio.h>

#include "replay/change.h"
#include "replay/run.h"
#include "test/unit/replay_fixture.h"

static int apply(struct rp_trace *t, const struct rp_changes *c, size_t *switched, struct err *err)
{
	trace_of(t, small_nodes, small_pods);
	return rp_changes_apply(c, t, switched, err);
}

Test(replay_change, nodes_come_go_and_change_their_model)
{
	struct rp_changes c = {
		.add = {{"3:name=new,cpu=96,memory=512Gi,gpus=4,model=A10,gpu-memory=24Gi"}, 1},
		.remove = {{"1:G2", "1"}, 2},
		.model = {{"T4=L4"}, 1},
	};
	struct st_cluster *cl = NULL;
	struct err err = ERR_INIT;
	struct rp_trace t;
	size_t n;

	cr_assert_eq(apply(&t, &c, &n, &err), 0, "%s", err.msg);
	/* 20 GPUs and 12 new ones; of those in the file c (8 of G2) goes, and the last (without GPU). */
	cr_expect_eq(t.gpu_milli, 24000);
	cr_expect(t.nodes[2].removed && t.nodes[4].removed && !t.nodes[0].removed);
	cr_expect(!t.nodes[5].removed && !t.nodes[7].removed);
	cr_expect_str_eq(strpool_str(t.models, t.nodes[1].model), "L4");
	cr_expect_eq(t.nodes[5].gpu_mib, 0);
	cr_assert_eq(rp_trace_cluster(&t, NULL, &cl, &err), 0, "%s", err.msg);
	cr_expect(!st_cluster_node(cl, 2)->present && st_cluster_node(cl, 5)->present);
	cr_expect_str_eq(st_cluster_node(cl, 5)->name, "new-00000");
	st_cluster_free(cl);
	rp_trace_fini(&t);
}

/* MIG always, or switched for a pod that asks: fractions find no room on the first kind. */
Test(replay_change, new_nodes_with_mig)
{
	static const struct {
		const char *add;
		bool enabled, could;
	} rows[] = {
		{"1:name=new,cpu=96,memory=512Gi,gpus=1,model=NVIDIA-A100-SXM4-40GB,gpu-memory=40Gi,mig=yes",
		 true, false},
		{"1:name=new,cpu=96,memory=512Gi,gpus=1,model=NVIDIA-A100-SXM4-40GB,gpu-memory=40Gi,mig=auto",
		 false, true},
		{"1:name=new,cpu=96,memory=512Gi,gpus=1,model=NVIDIA-A100-SXM4-40GB,gpu-memory=40Gi,mig=no",
		 false, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rp_changes c = {.add = {{rows[i].add}, 1}};
		struct st_cluster *cl = NULL;
		struct err err = ERR_INIT;
		struct rp_trace t;
		size_t n;

		cr_assert_eq(apply(&t, &c, &n, &err), 0, "%s", err.msg);
		cr_assert_eq(rp_trace_cluster(&t, NULL, &cl, &err), 0, "%s", err.msg);
		cr_expect_eq(st_cluster_node(cl, 5)->gpus[0].mig != NULL, rows[i].enabled);
		cr_expect_eq(st_cluster_node(cl, 5)->gpus[0].mig_could != NULL, rows[i].could);
		cr_expect_eq(st_cluster_node(cl, 5)->gpus[0].mode,
			     rows[i].enabled ? ST_MODE_MIG : ST_MODE_FREE);
		st_cluster_free(cl);
		rp_trace_fini(&t);
	}
}

Test(replay_change, a_replay_counts_the_nodes_that_are_left)
{
	struct rp_changes c = {.remove = {{"1:G2"}, 1}};
	struct rp_run_options opt = {.policy = po_policy_at(0), .check = true};
	struct rp_order_options how = {.seed = 1, .inflate_nano = RP_NO_INFLATION};
	struct err err = ERR_INIT;
	struct rp_result r;
	struct rp_order o;
	struct rp_trace t;
	size_t n;

	cr_assert_eq(apply(&t, &c, &n, &err), 0, "%s", err.msg);
	cr_assert_eq(rp_order_make(&t, &how, &o, &err), 0);
	cr_assert_eq(rp_run(&t, &o, &opt, &r, &err), 0, "%s", err.msg);
	cr_expect_eq(r.total_milli, 12000);
	cr_expect_eq(r.placed, 6);
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(replay_change, pods_ask_for_another_kind)
{
	static const struct {
		const char *change, *profile;
		size_t switched;
		enum st_kind kind;
		enum st_mode mode;
	} rows[] = {
		{"fraction:whole:1", NULL, 3, ST_KIND_WHOLE, ST_MODE_EXCLUSIVE},
		{"fraction:sm-sharing:1", NULL, 3, ST_KIND_SHARE, ST_MODE_SM_SHARING},
		{"fraction:mig:1", "1g.5gb", 3, ST_KIND_MIG, ST_MODE_MIG},
		{"whole:fraction:1", NULL, 1, ST_KIND_SHARE, ST_MODE_TIME_SLICING},
		{"fraction:whole:0", NULL, 0, ST_KIND_SHARE, ST_MODE_TIME_SLICING},
		{"mig:whole:1", NULL, 0, ST_KIND_SHARE, ST_MODE_TIME_SLICING},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rp_changes c = {.switches = {{rows[i].change}, 1},
				       .profile = rows[i].profile,
				       .fraction_nano = 250000000};
		const struct st_item *it;
		struct err err = ERR_INIT;
		struct rp_trace t;
		int64_t count = 0;
		size_t n;

		cr_assert_eq(apply(&t, &c, &n, &err), 0, "%s", err.msg);
		cr_expect_eq(n, rows[i].switched, "row %zu", i);
		/* p1 is the pod of one whole GPU, p0 one of the shares. */
		it = &t.shapes[t.pods[rows[i].change[0] == 'w' ? 1 : 0]].req.items[0];
		cr_expect(it->kind == rows[i].kind && it->mode == rows[i].mode, "row %zu", i);
		if (rows[i].change[0] == 'w')
			cr_expect_eq(it->request_mib, 250);
		for (size_t k = 0; k < t.shape_count; k++)
			count += t.shapes[k].count;
		cr_expect_eq(count, 6);
		rp_trace_fini(&t);
	}
}

Test(replay_change, what_cannot_be_is_refused)
{
	static const struct {
		struct rp_changes c;
		const char *message;
	} rows[] = {
		{{.add = {{"x:name=a"}, 1}}, "--add-nodes: "},
		{{.add = {{"3"}, 1}}, "--add-nodes: \"3\" is not of the form N:FIELDS"},
		{{.add = {{"1:name=a,cpu=1,memory=1Gi"}, 1}}, "--add-nodes: gpus is missing"},
		{{.remove = {{"9"}, 1}}, "--remove-nodes: \"9\": there are only 5 such nodes"},
		{{.remove = {{"1:H100"}, 1}}, "there are only 0"},
		{{.remove = {{"0"}, 1}}, "--remove-nodes: "},
		{{.model = {{"H100=A10"}, 1}}, "--model: \"H100=A10\": no node has that model"},
		{{.model = {{"T4"}, 1}}, "--model: \"T4\" is not of the form FROM=TO"},
		{{.switches = {{"whole:whole:1"}, 1}}, "--switch: "},
		{{.switches = {{"whole:fraction"}, 1}}, "--switch: "},
		{{.switches = {{"whole:fraction:1.5"}, 1}}, "a share of more than 1"},
		{{.switches = {{"whole:fraction:x"}, 1}}, "--switch: "},
		{{.switches = {{"whole:mig:1"}, 1}}, "wants --profile"},
		{{.profile = "1g.5gb-and-much-more-than-fits"}, "--profile: "},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;
		struct rp_trace t;
		size_t n;

		cr_expect_lt(apply(&t, &rows[i].c, &n, &err), 0, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, rows[i].message), "row %zu: %s", i, err.msg);
		rp_trace_fini(&t);
	}
}

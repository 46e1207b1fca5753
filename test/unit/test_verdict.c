/* Why a node cannot take a request, and what users are told about it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "binpack/binpack_internal.h"
#include "test/lib/place.h"

static struct st_cluster *c;
static uint32_t node;

/* The verdict, its words, and whether eviction may help; all policies agree on it. */
static void expect(const struct st_request *req, enum bp_verdict want, const char *words)
{
	static const enum bp_pick picks[] = {BP_PICK_MEASURE, BP_PICK_BEST_FIT, BP_PICK_FIRST,
					     BP_PICK_WORST_FIT, BP_PICK_RANDOM};
	struct fr_measure *m = place_measure(c, FR_CA, NULL, 0);
	char text[256];

	for (size_t i = 0; i < sizeof(picks) / sizeof(picks[0]); i++) {
		struct bp_chooser how = {.pick = picks[i], .measure = m};
		struct st_decision d;

		cr_expect_eq(bp_choose(c, &how, node, req, &d, NULL), want, "pick %zu: %s", i,
			     bp_verdict_text(bp_choose(c, &how, node, req, &d, NULL)));
	}
	fr_measure_free(m);
	bp_explain(c, node, req, want, text, sizeof(text));
	cr_expect_str_eq(text, words);
	cr_expect_eq(strncmp(text, bp_verdict_text(want), strlen(bp_verdict_text(want))), 0);
	cr_expect_eq(bp_verdict_resolvable(want), want == BP_OK || want >= BP_CPU);
}

static void start(size_t gpus, int32_t mib)
{
	st_cluster_free(c);
	c = st_cluster_new(NULL);
	node = place_node(c, "n", 16000, gpus, mib);
}

static void start_with(const struct st_config *cfg, size_t gpus, int32_t mib)
{
	st_cluster_free(c);
	c = st_cluster_new(cfg);
	node = place_node(c, "n", 16000, gpus, mib);
}

static void hold(const char *uid, struct st_item it, unsigned gpu)
{
	place_hold(c, node, uid, &it, gpu, 0);
}

static void done(void)
{
	st_cluster_free(c);
	c = NULL;
}

Test(verdict, texts, .fini = done)
{
	for (enum bp_verdict v = BP_OK; v < BP_VERDICT_COUNT; v++) {
		cr_expect_gt(strlen(bp_verdict_text(v)), 3, "%d", v);
		for (enum bp_verdict k = BP_OK; k < v; k++)
			cr_expect_str_neq(bp_verdict_text(v), bp_verdict_text(k));
	}
}

/* ---- the node ---- */

Test(verdict, unknown_and_removed_nodes, .fini = done)
{
	struct st_request req = place_request(0, place_whole(1));
	struct bp_chooser how = {.pick = BP_PICK_FIRST};
	struct st_decision d;

	start(1, 1000);
	cr_expect_eq(bp_choose(c, &how, ST_NONE, &req, &d, NULL), BP_NO_NODE);
	cr_expect_eq(bp_choose(c, &how, 7, &req, &d, NULL), BP_NO_NODE);
	cr_assert_eq(st_cluster_node_remove(c, "n", NULL), 0);
	expect(&req, BP_NO_NODE, "node is not known to tessera");
	node = ST_NONE;
	expect(&req, BP_NO_NODE, "node is not known to tessera");
}

Test(verdict, unready_and_fenced_nodes, .fini = done)
{
	struct st_node_spec spec = {.name = "n",
				    .cpu_milli = 16000,
				    .unready = true,
				    .why_unready = "MPS daemon is down",
				    .gpu_count = 1,
				    .gpus = &(struct st_gpu_spec){.mem_mib = 1000}};
	struct st_request req = place_request(0, place_whole(1)), cpu = place_cpu(1000);
	struct st_pod_ident pod = place_ident("odd", 0, 0);

	start(1, 1000);
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	expect(&req, BP_UNREADY, "node is not ready for GPU pods (MPS daemon is down)");
	expect(&cpu, BP_UNREADY, "node is not ready for GPU pods (MPS daemon is down)");
	spec.unready = false;
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	expect(&req, BP_OK, "fits");
	cr_assert_eq(st_cluster_fence(c, &pod, node, NULL), 0);
	expect(&req, BP_FENCED, "node is fenced: a pod there has an unreadable allocation");
	place_gone(c, "odd");
	expect(&req, BP_OK, "fits");
}

Test(verdict, host_resources, .fini = done)
{
	struct st_request req = place_request(16001, place_whole(1)),
			  none = place_request(0, place_share(1));
	struct st_pod_ident pod = place_ident("a", 0, 12000);
	struct st_node_spec spec = {.name = "n",
				    .product = "T4",
				    .cpu_milli = 16000,
				    .mem_mib = 131072,
				    .from_inventory = true,
				    .pods = 1,
				    .gpu_count = 1,
				    .gpus = &(struct st_gpu_spec){.mem_mib = 1000}};
	struct st_item it = place_share(100);

	start(1, 1000);
	expect(&req, BP_HOST_TOO_SMALL, "node has too little CPU or memory in all");
	req.cpu_milli = 16000;
	expect(&req, BP_OK, "fits");
	req.mem_mib = 131073;
	expect(&req, BP_HOST_TOO_SMALL, "node has too little CPU or memory in all");
	req.mem_mib = 100000;
	pod.mem_mib = 40000;
	place_hold_as(c, node, &pod, &it, 0, 0);
	expect(&req, BP_CPU, "not enough CPU free");
	req.cpu_milli = 4000;
	expect(&req, BP_HOST_MEMORY, "not enough host memory free");
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	expect(&none, BP_PODS, "too many pods on the node");
	spec.pods = 2;
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	expect(&none, BP_OK, "fits");
	/* Overbooked by somebody: who asks for no CPU may come all the same. */
	spec.cpu_milli = 8000;
	spec.mem_mib = 20000;
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	expect(&none, BP_OK, "fits");
	none.cpu_milli = 1;
	expect(&none, BP_CPU, "not enough CPU free");
}

Test(verdict, pods_without_gpu, .fini = done)
{
	struct st_request cpu = place_cpu(1000);

	start(0, 0);
	expect(&cpu, BP_OK, "fits");
	cpu.cpu_milli = 99000;
	expect(&cpu, BP_HOST_TOO_SMALL, "node has too little CPU or memory in all");
}

/* ---- what eviction cannot mend ---- */

Test(verdict, no_gpu_for_it, .fini = done)
{
	struct st_request whole = place_request(0, place_whole(3)),
			  share = place_request(0, place_share(1001));
	struct st_request mig = place_request(0, place_mig("1g.5gb", 1));

	start(0, 0);
	expect(&whole, BP_NO_GPU, "node has no GPU");
	start(2, 1000);
	expect(&whole, BP_TOO_MANY, "node has fewer GPUs than asked for (2)");
	expect(&share, BP_TOO_LARGE,
	       "request is larger than any GPU of the node (1001 MiB, at most 1000); 2 GPUs: 2 idle");
	share.items[0].request_mib = 100;
	share.items[0].limit_mib = 1001;
	expect(&share, BP_TOO_LARGE,
	       "request is larger than any GPU of the node (limit of 1001 MiB, at most 1000); 2 GPUs: "
	       "2 idle");
	share.items[0].limit_mib = 0;
	share.items[0].request_mib = 500;
	share.items[0].count = 3;
	expect(&share, BP_TOO_MANY, "node has fewer GPUs than asked for (2)");
	expect(&mig, BP_NO_MIG, "no GPU offers this MIG profile");
	snprintf(share.product, sizeof(share.product), "A10|L4");
	expect(&share, BP_PRODUCT, "no GPU of an accepted product");
	snprintf(share.product, sizeof(share.product), "A10|T4");
	share.items[0].count = 2;
	expect(&share, BP_OK, "fits");
}

Test(verdict, mig_mode, .fini = done)
{
	struct st_request whole = place_request(0, place_whole(1)),
			  share = place_request(0, place_share(100));
	struct st_request other = place_request(0, place_mig("1g.6gb", 1));
	struct st_request mig = place_request(0, place_mig("7g.40gb", 1));

	start(0, 0);
	node = place_node_mig(c, "m", PLACE_A100, 2, PLACE_A100_MIB, 3);
	expect(&whole, BP_ONLY_MIG, "GPUs are partitioned by MIG");
	expect(&share, BP_ONLY_MIG, "GPUs are partitioned by MIG");
	expect(&other, BP_NO_MIG, "no GPU offers this MIG profile");
	hold("a", place_mig("1g.5gb", 1), 0);
	expect(&mig, BP_OK, "fits");
	hold("b", place_mig("1g.5gb", 1), 1);
	expect(&mig, BP_MIG_ROOM, "no free placement for this MIG profile");
	mig.items[0].count = 2;
	expect(&mig, BP_MIG_ROOM, "no free placement for this MIG profile");
}

Test(verdict, taken_gpus, .fini = done)
{
	struct st_gpu_spec gpus[2] = {{.mem_mib = PLACE_A100_MIB, .unhealthy = true},
				      {.mem_mib = PLACE_A100_MIB, .foreign = "pid 1"}};
	struct st_node_spec spec = {.name = "n",
				    .product = PLACE_A100,
				    .cpu_milli = 16000,
				    .gpu_count = 2,
				    .gpus = gpus};
	struct st_request whole = place_request(0, place_whole(1)),
			  share = place_request(0, place_share(100));
	struct st_request mig = place_request(0, place_mig("1g.5gb", 1));

	start(1, 1000);
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	expect(&whole, BP_TAKEN,
	       "GPUs are unhealthy or held by others; 2 GPUs: 2 unhealthy or held by others");
	expect(&share, BP_TAKEN,
	       "GPUs are unhealthy or held by others; 2 GPUs: 2 unhealthy or held by others");
	gpus[0].mig_enabled = gpus[1].mig_enabled = true;
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	expect(&mig, BP_TAKEN,
	       "GPUs are unhealthy or held by others; 2 GPUs: 2 unhealthy or held by others");
	gpus[1].foreign = NULL;
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	expect(&mig, BP_OK, "fits");
}

/* ---- busy ---- */

/* cases.md 2: 23 pods of 2,000 MiB on 46,068; the 24th is told what is left. */
Test(verdict, case_2_memory, .fini = done)
{
	struct st_request req = place_request(0, place_share(2000));

	start(1, 46068);
	for (int i = 0; i < 23; i++) {
		struct bp_chooser how = {.pick = BP_PICK_BEST_FIT};
		struct st_pod_ident id;
		struct st_decision d;
		char uid[16];

		snprintf(uid, sizeof(uid), "p%d", i);
		id = place_ident(uid, 0, 0);
		cr_assert_eq(bp_choose(c, &how, node, &req, &d, NULL), BP_OK);
		cr_assert_eq(st_cluster_reserve(c, &id, &d, NULL), 0);
	}
	expect(&req, BP_MEMORY,
	       "no GPU has enough memory free (68 of 2000 MiB); 1 GPU: 1 in time-slicing");
}

/* cases.md 12: an amount is for each GPU, and the refusal says so. */
Test(verdict, case_12_on_each, .fini = done)
{
	struct st_item two = place_share(700);
	struct st_request req;

	two.count = 2;
	req = place_request(0, two);
	start(3, 1000);
	hold("a", place_share(400), 0);
	hold("b", place_sm(400, 0), 1);
	hold("c", place_share(500), 2);
	expect(&req, BP_MEMORY,
	       "no GPU has enough memory free (600 of 700 MiB on each); 3 GPUs: 2 in "
	       "time-slicing, 1 in sm-sharing");
	place_gone(c, "a");
	expect(&req, BP_TOO_FEW,
	       "fewer GPUs fit than asked for (memory); 3 GPUs: 1 idle, 1 in time-slicing, 1 in "
	       "sm-sharing");
}

/* cases.md 3 and 10: containers count, and the limit is named. */
Test(verdict, case_10_clients, .fini = done)
{
	struct st_config cfg = ST_CONFIG_DEFAULT;
	struct st_request three = place_request(0, place_share(10)), one = three;

	cfg.clients_max = 10;
	place_add(&three, place_share(10));
	place_add(&three, place_share(10));
	start_with(&cfg, 1, 1000);
	for (int i = 0; i < 3; i++) {
		struct bp_chooser how = {.pick = BP_PICK_BEST_FIT};
		struct st_pod_ident id = place_ident(i == 0 ? "a" : i == 1 ? "b" : "c", 0, 0);
		struct st_decision d;

		cr_assert_eq(bp_choose(c, &how, node, &three, &d, NULL), BP_OK);
		cr_assert_eq(st_cluster_reserve(c, &id, &d, NULL), 0);
	}
	cr_expect_eq(st_cluster_node(c, node)->gpus[0].clients, 9);
	expect(&three, BP_COMBINATION,
	       "the pod's containers do not fit together (client limit of a GPU: 10); 1 GPU: 1 in "
	       "time-slicing");
	expect(&one, BP_OK, "fits");
	hold("d", place_share(10), 0);
	expect(&one, BP_CLIENTS, "client limit of the GPUs is reached (10)");
	expect(&three, BP_CLIENTS, "client limit of the GPUs is reached (10)");
}

/* The one bound that stands in the way of several containers, or of a share on several GPUs, is named. */
Test(verdict, the_bound_is_named, .fini = done)
{
	struct st_request two = place_request(0, place_sm(100, 600000000)), memory, apart;
	struct st_config cfg = ST_CONFIG_DEFAULT;
	struct st_item it;

	place_add(&two, place_sm(100, 600000000));
	start(1, 1000);
	expect(&two, BP_COMBINATION,
	       "the pod's containers do not fit together (compute shares of a GPU); 1 GPU: 1 idle");
	memory = place_request(0, place_share(600));
	place_add(&memory, place_share(600));
	expect(&memory, BP_COMBINATION,
	       "the pod's containers do not fit together (memory); 1 GPU: 1 idle");
	memory.items[0].request_mib = memory.items[1].request_mib = 300;
	memory.items[0].limit_mib = memory.items[1].limit_mib = 600;
	expect(&memory, BP_COMBINATION,
	       "the pod's containers do not fit together (overcommit bound of memory limits); 1 "
	       "GPU: 1 idle");
	/* Two bounds at once: none of them alone is the reason. */
	memory.items[0].request_mib = memory.items[1].request_mib = 600;
	expect(&memory, BP_COMBINATION, "the pod's containers do not fit together; 1 GPU: 1 idle");
	cfg.clients_max = 1;
	start_with(&cfg, 2, 1000);
	hold("a", place_share(100), 0);
	it = place_share(100);
	it.count = 2;
	apart = place_request(0, it);
	expect(&apart, BP_TOO_FEW,
	       "fewer GPUs fit than asked for (client limit of a GPU: 1); 2 GPUs: 1 idle, 1 in "
	       "time-slicing");
}

Test(verdict, modes, .fini = done)
{
	struct st_request req = place_request(0, place_share(500));

	start(3, 1000);
	hold("a", place_sm(100, 0), 0);
	hold("b", place_sm(700, 0), 1);
	hold("c", place_whole(1), 2);
	expect(&req, BP_MODE,
	       "GPUs with room are in another compute mode; 3 GPUs: 2 in sm-sharing, 1 in exclusive use");
	req.items[0].mode_preferred = true;
	expect(&req, BP_OK, "fits");
	req.items[0].count = 2;
	expect(&req, BP_TOO_FEW,
	       "fewer GPUs fit than asked for (memory); 3 GPUs: 2 in sm-sharing, 1 in exclusive use");
	hold("d", place_sm(500, 0), 0);
	expect(&req, BP_MEMORY,
	       "no GPU has enough memory free (400 of 500 MiB on each); 3 GPUs: 2 in sm-sharing, 1 in "
	       "exclusive use");
}

Test(verdict, compute_and_limits, .fini = done)
{
	struct st_config cfg = {.reserve_mib = 0, .clients_max = 60, .overcommit_permille = 1500};
	struct st_item it = place_sm(100, 500000000), held = it;
	struct st_request req;

	held.limit_mib = 1000;
	start_with(&cfg, 1, 1000);
	hold("a", held, 0);
	req = place_request(0, it);
	req.items[0].compute_nano = 500000001;
	expect(&req, BP_COMPUTE, "no GPU has enough compute share free");
	req.items[0].compute_nano = 0;
	req.items[0].limit_mib = 501;
	expect(&req, BP_LIMIT, "memory limits would pass the overcommit bound");
	req.items[0].limit_mib = 500;
	expect(&req, BP_OK, "fits");
}

Test(verdict, whole_gpus, .fini = done)
{
	struct st_request req = place_request(0, place_whole(2));

	start(3, 1000);
	hold("a", place_share(1), 0);
	expect(&req, BP_OK, "fits");
	hold("b", place_whole(1), 2);
	expect(&req, BP_NOT_IDLE,
	       "not enough idle GPUs; 3 GPUs: 1 idle, 1 in time-slicing, 1 in exclusive use");
	place_add(&req, place_share(1)); /* the same in a pod of several containers */
	expect(&req, BP_NOT_IDLE,
	       "not enough idle GPUs; 3 GPUs: 1 idle, 1 in time-slicing, 1 in exclusive use");
}

/* Two GPUs, one of them in MIG mode: two whole ones will never be had. */
Test(verdict, whole_gpus_beside_mig, .fini = done)
{
	struct st_request req = place_request(0, place_whole(2));

	start(0, 0);
	node = place_node_mig(c, "m", PLACE_A100, 2, PLACE_A100_MIB, 2);
	hold("a", place_share(1), 0);
	expect(&req, BP_ONLY_MIG, "GPUs are partitioned by MIG");
}

/* What all GPUs say is summed up as what comes nearest to a fit. */
Test(verdict, the_nearest_reason, .fini = done)
{
	struct st_request req = place_request(0, place_sm(500, 500000000));

	start(4, 1000);
	hold("a", place_whole(1), 0);           /* no memory */
	hold("b", place_share(100), 1);         /* mode */
	hold("c", place_sm(600, 600000000), 2); /* no memory, then compute */
	hold("d", place_sm(100, 600000000), 3); /* compute */
	expect(&req, BP_COMPUTE, "no GPU has enough compute share free");
	place_gone(c, "d");
	hold("d", place_whole(1), 3);
	expect(&req, BP_MODE,
	       "GPUs with room are in another compute mode; 4 GPUs: 1 in time-slicing, 1 in "
	       "sm-sharing, 2 in exclusive use");
}

/* ---- short buffers ---- */

Test(verdict, explanations_are_cut, .fini = done)
{
	struct st_request req = place_request(0, place_share(600));
	char whole[256], text[256];

	start(3, 1000);
	hold("a", place_share(500), 0);
	hold("b", place_whole(1), 1);
	hold("c", place_sm(500, 0), 2);
	for (enum bp_verdict v = BP_OK; v < BP_VERDICT_COUNT; v++) {
		bp_explain(c, node, &req, v, whole, sizeof(whole));
		for (unsigned cap = 1; cap < sizeof(text); cap++) {
			memset(text, '#', sizeof(text));
			cr_assert_eq(bp_explain(c, node, &req, v, text, cap), text);
			cr_assert_eq(memchr(text + cap, '\0', sizeof(text) - cap), NULL);
			cr_assert_lt(strlen(text), cap);
			cr_assert_eq(strncmp(text, whole, strlen(text)), 0);
		}
	}
}

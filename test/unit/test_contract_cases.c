/* Bugs of other GPU-sharing schedulers, as far as requests and allocations are concerned. The
 * number is that of the case; what is placed where is tested with the policies. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "state/cluster.h"
#include "test/lib/contract_rows.h"

#define C "nvidia.com/container."
#define T "tessera.dev/container."

/* One node "n" with GPUs "GPU-0", "GPU-1", ... */
static struct st_cluster *cluster_make(size_t gpu_count, int32_t mem_mib, bool mig)
{
	static const char *const uuids[] = {"GPU-0", "GPU-1", "GPU-2", "GPU-3",
					    "GPU-4", "GPU-5", "GPU-6", "GPU-7"};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_gpu_spec gpus[8] = {{0}};
	const struct st_node_spec node = {
		.name = "n",
		.product = "NVIDIA A100-SXM4-80GB",
		.cpu_milli = 64000,
		.mem_mib = 1 << 20,
		.gpu_count = gpu_count,
		.gpus = gpus,
	};
	struct err err = ERR_INIT;

	for (size_t i = 0; i < gpu_count; i++) {
		gpus[i].uuid = uuids[i];
		gpus[i].mem_mib = mem_mib;
		gpus[i].mig_enabled = mig && i > 0;
	}
	cr_assert_eq(st_cluster_node_put(c, &node, NULL, &err), 0, "%s", err.msg);
	return c;
}

/* What the container is written, read back by key. */
static const char *written(const struct st_annotations *a, const char *key)
{
	for (size_t i = 0; i < a->count; i++) {
		if (strcmp(a->kv[i].key, key) == 0)
			return a->kv[i].value;
	}
	return "";
}

/* Item i of the request on these GPUs. */
static void grant(const struct st_request *req, int i, const struct st_cluster *c,
		  const uint8_t *gpus, struct st_decision *d)
{
	const struct st_item *it = &req->items[i];
	struct st_grant *g = &d->grants[d->grant_count++];
	int32_t alloc = st_cluster_node(c, 0)->gpus[gpus[0]].alloc_mib;

	memcpy(g->container, it->container, sizeof(g->container));
	memcpy(g->profile, it->profile, sizeof(g->profile));
	memcpy(g->gpu, gpus, it->count);
	g->kind = it->kind;
	g->mode = it->mode;
	g->count = it->count;
	if (it->kind == ST_KIND_SHARE) {
		g->request_mib = st_item_request_mib(it, alloc);
		g->limit_mib = st_item_limit_mib(it, alloc);
	}
}

static void parse(struct pod_text *p, const char *annotations, const char *containers,
		  struct st_request *req)
{
	static const struct st_contract_options hami = {.hami = true};
	struct err err = ERR_INIT;

	pod_text_init(p, annotations, containers);
	cr_assert_eq(st_contract_parse(&p->spec, &hami, req, NULL, &err), 0, "%s", err.msg);
}

static int reserve(struct st_cluster *c, const char *uid, const struct st_decision *d)
{
	const struct st_pod_ident pod = {.uid = uid, .ns = "ns", .name = uid};
	struct err err = ERR_INIT;

	return st_cluster_reserve(c, &pod, d, &err);
}

/* The amount is booked on each of four different GPUs. */
Test(cases_contract, case_11_one_amount_over_several_gpus)
{
	struct st_cluster *c = cluster_make(8, 81920, false);
	struct st_decision d = {0};
	struct st_annotations a = {0};
	struct st_request req;
	struct pod_text p;

	parse(&p, "gpu-memory=40Gi\ngpu-fraction-num-devices=4", "main", &req);
	cr_assert_eq(req.item_count, 1);
	cr_assert_eq(req.items[0].count, 4);
	cr_assert_eq(req.items[0].request_mib, 40960);
	grant(&req, 0, c, (const uint8_t[]){1, 3, 5, 7}, &d);
	cr_assert_eq(reserve(c, "a", &d), 0);
	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	cr_assert_str_eq(written(&a, C "main.gpus.devices"), "GPU-1,GPU-3,GPU-5,GPU-7");
	cr_assert_str_eq(written(&a, C "main.gpu-memory.request"), "40960Mi");
	for (int i = 0; i < 8; i++)
		cr_assert_eq(st_cluster_node(c, 0)->gpus[i].free_mib, i % 2 == 1 ? 40960 : 81920);
	st_annotations_fini(&a);
	st_cluster_free(c);
}

/* 12,288 on each, 24,576 in all. */
Test(cases_contract, case_12_per_gpu_not_in_total)
{
	struct st_cluster *c = cluster_make(2, 16384, false);
	struct st_decision d = {0};
	struct st_request req;
	struct pod_text p;
	int32_t booked = 0;

	parse(&p, "gpu-memory=12288\ngpu-fraction-num-devices=2", "main", &req);
	grant(&req, 0, c, (const uint8_t[]){0, 1}, &d);
	cr_assert_eq(reserve(c, "a", &d), 0);
	for (int i = 0; i < 2; i++)
		booked += 16384 - st_cluster_node(c, 0)->gpus[i].free_mib;
	cr_assert_eq(st_cluster_node(c, 0)->gpus[0].free_mib, 4096);
	cr_assert_eq(booked, 24576);
	st_cluster_free(c);
}

/* 150 is refused, 0 is as if it were not given: never a booking of 0 without a limit. */
Test(cases_contract, case_27_percentage_150_and_0)
{
	static const struct st_contract_options hami = {.hami = true};
	static const struct contract_row rows[] = {
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem-percentage=150]",
		 "!container \"main\": nvidia.com/gpumem-percentage: \"150\" is above 100", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem-percentage=0]", "main=whole:1", NULL},
		{"", "main[nvidia.com/gpumem-percentage=0]", "", NULL},
		{"", "main[nvidia.com/gpu=1,nvidia.com/gpumem-percentage=1]",
		 "main=share:time-slicing:1x0.01", NULL},
		{"gpu-memory=0", "main", "!gpu-memory: \"0\" is not in 1..2147483647 MiB", NULL},
		{"gpu-fraction=0", "main", "!gpu-fraction: \"0\" is not in (0, 1)", NULL},
		{C "main.gpu-memory.request=0", "main",
		 "!" C "main.gpu-memory.request: \"0\" is 0 bytes, less than 1Mi", NULL},
	};
	struct st_item smallest = {.kind = ST_KIND_SHARE, .count = 1, .request_nano = 1};

	CHECK_ROWS(rows, &hami);
	cr_assert_eq(st_item_request_mib(&smallest, 16384), 1);
	cr_assert_eq(st_item_limit_mib(&smallest, 16384), 1);
}

/* Only a missing key means no limit: a limit of zero is refused, never read as none. */
Test(cases_contract, case_35_limit_zero)
{
	static const struct st_contract_options hami = {.hami = true};
	static const struct contract_row rows[] = {
		{"gpu-memory=2000\ngpu-memory.limit=0", "main",
		 "!gpu-memory.limit: \"0\" is 0 bytes, less than 1Mi", NULL},
		{"gpu-fraction=0.5\ngpu-fraction.limit=0", "main",
		 "!gpu-fraction.limit: \"0\" is not in (0, 1]", NULL},
		{C "main.gpu-memory.request=2000Mi\n" C "main.gpu-memory.limit=0", "main",
		 "!" C "main.gpu-memory.limit: \"0\" is 0 bytes, less than 1Mi", NULL},
	};

	CHECK_ROWS(rows, &hami);
}

/* Nothing wraps and nothing is cut at 31, 53 or 63 bits, whatever the way it is asked for. */
Test(cases_contract, case_28_beyond_31_bits)
{
	static const struct st_contract_options hami = {.hami = true};
	static const char *const numbers[] = {"3000000000",           "2147483648",
					      "4294967296",           "4294967297",
					      "9007199254740992",     "9007199254740993",
					      "9223372036854775807",  "9223372036854775808",
					      "18446744073709551616", "18446744073709551617"};
	static const char *const forms[] = {"gpu-memory=%s", C "main.gpu-memory.limit=%sMi",
					    "gpu-memory=1\ngpu-memory.limit=%sMi",
					    "gpu-fraction=0.5\ngpu-fraction-num-devices=%s"};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		static const char *const resources[] = {"gpumem", "gpumem-percentage", "gpucores",
							"gpu", "mig-1g.10gb"};
		char text[256], shown[64];
		struct st_request req;
		struct err err = ERR_INIT;
		struct pod_text p;

		for (size_t k = 0; k < sizeof(forms) / sizeof(forms[0]); k++) {
			const char *at = strstr(forms[k], "%s");

			snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - forms[k]), forms[k],
				 numbers[i], at + 2);
			pod_text_init(&p, text, "main");
			cr_expect_eq(st_contract_parse(&p.spec, &hami, &req, NULL, &err), ERR_RANGE,
				     "%s", text);
			cr_expect_not_null(strstr(err.msg, numbers[i]), "%s: %s", text, err.msg);
		}
		for (size_t k = 0; k < sizeof(resources) / sizeof(resources[0]); k++) {
			snprintf(text, sizeof(text), "main[nvidia.com/%s=%s]", resources[k],
				 numbers[i]);
			snprintf(shown, sizeof(shown), "nvidia.com/%s: \"%s\" is above ",
				 resources[k], numbers[i]);
			pod_text_init(&p, "", text);
			cr_expect_eq(st_contract_parse(&p.spec, &hami, &req, NULL, &err), ERR_RANGE,
				     "%s", text);
			cr_expect_not_null(strstr(err.msg, shown), "%s: %s", text, err.msg);
		}
	}
}

/* A GPU container between two without; two GPU containers, each with a share of its own. */
Test(cases_contract, case_29_gpu_containers_among_others)
{
	static const struct contract_row rows[] = {
		{"gpu-memory=2000\ngpu-fraction-container-name=b", "a b c",
		 "b=share:time-slicing:1x2000Mi", NULL},
		{C "b.gpu-memory.request=1Gi", "a b c", "b=share:time-slicing:1x1024Mi", NULL},
		{"", "a b[nvidia.com/gpu=1] c", "b=whole:1", NULL},
	};
	struct st_cluster *c = cluster_make(1, 16384, false);
	enum st_allocation_kind kind;
	struct st_annotations a = {0};
	struct st_decision d = {0}, got;
	struct st_request req;
	struct pod_text p;
	char text[256];

	CHECK_ROWS(rows, NULL);
	parse(&p, C "b.gpu-memory.request=1Gi\n" C "d.gpu-memory.request=2Gi", "a b c d e", &req);
	cr_assert_eq(req.item_count, 2);
	grant(&req, 0, c, (const uint8_t[]){0}, &d);
	grant(&req, 1, c, (const uint8_t[]){0}, &d);
	cr_assert_eq(reserve(c, "x", &d), 0);
	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	pod_text_init(&p, "", "a b c d e");
	pod_text_annotate(&p, &a);
	cr_assert_eq(st_contract_decode(c, &p.spec, 0, NULL, &kind, &got, NULL), 0);
	cr_assert_str_eq(decision_text(&got, text, sizeof(text)),
			 "b=share:time-slicing:0:1024/1024Mi d=share:time-slicing:0:2048/2048Mi");
	st_annotations_fini(&a);
	st_cluster_free(c);
}

/* One unit, whatever the notation; large GPUs. */
Test(cases_contract, case_30_unit_switches)
{
	static const struct contract_row rows[] = {
		{"gpu-memory=71885", "main", "main=share:time-slicing:1x71885Mi", NULL},
		{"gpu-memory=71885Mi", "main", "main=share:time-slicing:1x71885Mi", NULL},
		{"gpu-memory=70Gi", "main", "main=share:time-slicing:1x71680Mi", NULL},
		{"gpu-memory=75376885760", "main",
		 "!gpu-memory: \"75376885760\" is not in "
		 "1..2147483647 MiB",
		 NULL},
		{C "main.gpu-memory.request=75376885760", "main",
		 "main=share:time-slicing:1x71885Mi", NULL},
	};
	struct st_cluster *c = cluster_make(8, 143771, false);
	struct st_annotations a = {0};
	struct st_decision d = {0};
	struct st_request req;
	struct pod_text p;

	CHECK_ROWS(rows, NULL);
	parse(&p, "gpu-memory=140Gi\ngpu-fraction-num-devices=8", "main", &req);
	grant(&req, 0, c, (const uint8_t[]){0, 1, 2, 3, 4, 5, 6, 7}, &d);
	cr_assert_eq(reserve(c, "x", &d), 0);
	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	cr_assert_str_eq(written(&a, C "main.gpu-memory.limit"), "143360Mi");
	st_annotations_fini(&a);
	st_cluster_free(c);
}

/* A share and a MIG profile in one pod: booked and written as one; refused as one. */
Test(cases_contract, case_31_two_kinds_in_one_pod)
{
	struct st_cluster *c = cluster_make(2, 81920, true);
	enum st_allocation_kind kind;
	struct st_annotations a = {0};
	struct st_decision d = {0}, got;
	struct st_request req;
	struct pod_text p;
	char text[256];

	parse(&p, "gpu-memory=50000\n" T "b.mig-profile=3g.40gb", "a b[example.com/npu=1]", &req);
	cr_assert_eq(req.item_count, 2);
	grant(&req, 0, c, (const uint8_t[]){0}, &d);
	grant(&req, 1, c, (const uint8_t[]){1}, &d);
	cr_assert_eq(reserve(c, "x", &d), 0);
	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	pod_text_init(&p, "", "a b");
	pod_text_annotate(&p, &a);
	cr_assert_eq(st_contract_decode(c, &p.spec, 0, NULL, &kind, &got, NULL), 0);
	cr_assert_str_eq(decision_text(&got, text, sizeof(text)),
			 "a=share:time-slicing:0:50000/50000Mi b=mig:1@0:3g.40gb");

	/* The instance would fit at 4, the share would not: nothing is booked. */
	d.grants[1].start[0] = 4;
	cr_assert_eq(reserve(c, "y", &d), ERR_NO_ROOM);
	cr_assert_eq(st_mig_units_free(st_cluster_node(c, 0)->gpus[1].mig,
				       st_cluster_node(c, 0)->gpus[1].mig_placed),
		     4);
	st_annotations_fini(&a);
	st_cluster_free(c);
}

/* Given all or refused with the reason, and told what a process will see. */
Test(cases_contract, case_45_more_mig_instances_than_a_process_sees)
{
	static const struct contract_row rows[] = {
		{"", "main[nvidia.com/mig-1g.10gb=10]", "main=mig:10x1g.10gb",
		 "nvidia.com/mig-1g.10gb: \"10\" MIG instances: a CUDA process uses one of them at a "
		 "time"},
		{"", "main[nvidia.com/mig-1g.10gb=1]", "main=mig:1x1g.10gb", NULL},
		{"", "main[nvidia.com/mig-1g.10gb=20]",
		 "!container \"main\": nvidia.com/mig-1g.10gb: \"20\" is above 16", NULL},
	};

	CHECK_ROWS(rows, NULL);
}

/* A complete allocation on a pod that is not bound says nothing about it. */
Test(cases_contract, case_06_leftover_allocation_on_an_unbound_pod)
{
	struct st_cluster *c = cluster_make(1, 16384, false);
	struct st_annotations a = {0};
	struct st_decision d = {0};
	struct st_request req;
	struct pod_text p;
	char text[256];

	parse(&p, "gpu-fraction=0.5", "main", &req);
	grant(&req, 0, c, (const uint8_t[]){0}, &d);
	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	pod_text_annotate(&p, &a);
	cr_assert_eq(st_contract_parse(&p.spec, NULL, &req, NULL, NULL), 0);
	cr_assert_str_eq(request_text(&req, text, sizeof(text)), "main=share:time-slicing:1x0.5");
	st_annotations_fini(&a);
	st_cluster_free(c);
}

/* Keys that a user forged are no allocation, and do not spoil one that we write. */
Test(cases_contract, case_08_forged_allocation)
{
	struct st_cluster *c = cluster_make(2, 16384, false);
	enum st_allocation_kind kind;
	struct st_annotations a = {0};
	struct st_decision d = {0}, got;
	struct st_request req;
	struct err err = ERR_INIT;
	struct pod_text p;
	char text[256];

	pod_text_init(&p,
		      C "main.gpus.devices=GPU-1\n" C "main.gpu-memory.request=16Gi\n"
			"tessera.dev/allocation=v1;n;0000000000000000;main=dr",
		      "main side");
	cr_assert_eq(st_contract_decode(c, &p.spec, 0, NULL, &kind, &got, &err), ERR_INVALID);
	cr_assert_not_null(strstr(err.msg, "is not the digest"), "%s", err.msg);

	/* A key for another container, and one that our bind does not write. */
	parse(&p, C "side.gpus.devices=GPU-1\n" C "main.gpu-compute.portion=1\ngpu-memory=1000",
	      "main side", &req);
	grant(&req, 0, c, (const uint8_t[]){0}, &d);
	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	pod_text_annotate(&p, &a);
	cr_assert_eq(st_contract_decode(c, &p.spec, 0, NULL, &kind, &got, &err), 0, "%s", err.msg);
	cr_assert_str_eq(decision_text(&got, text, sizeof(text)),
			 "main=share:time-slicing:0:1000/1000Mi");
	st_annotations_fini(&a);
	st_cluster_free(c);
}

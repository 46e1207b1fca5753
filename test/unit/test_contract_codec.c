#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "state/contract.h"
#include "state/contract_internal.h"
#include "test/lib/oom.h"
#include "test/lib/pod_text.h"

#define C "nvidia.com/container."
#define T "tessera.dev/container."
#define LONG_NAME "the-name-of-this-container-is-longer-than-its-keys-allow"
#define CONTAINERS "main side i:warm " LONG_NAME

enum { NODE_PLAIN, NODE_MIG, NODE_UNNAMED };

static struct st_cluster *cluster_make(void)
{
	static const char *const names[] = {"node-a.example", "node-b", "node-c"};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_gpu_spec gpus[ST_GPUS_MAX];
	char uuids[ST_GPUS_MAX][64];

	cr_assert_not_null(c);
	for (int n = 0; n < 3; n++) {
		struct st_node_spec spec = {
			.name = names[n],
			.product = "NVIDIA A100-SXM4-80GB",
			.cpu_milli = 128000,
			.mem_mib = 1 << 20,
			.gpu_count = ST_GPUS_MAX,
			.gpus = gpus,
		};
		struct err err = ERR_INIT;
		uint32_t id;

		memset(gpus, 0, sizeof(gpus));
		for (int g = 0; g < ST_GPUS_MAX; g++) {
			snprintf(uuids[g], sizeof(uuids[g]), "GPU-%08x-0000-4000-8000-%012x",
				 n * 16 + g + 1, g);
			gpus[g].uuid = n == NODE_UNNAMED ? NULL : uuids[g];
			gpus[g].mem_mib = 81920;
			gpus[g].mig_enabled = n == NODE_MIG;
		}
		cr_assert_eq(st_cluster_node_put(c, &spec, &id, &err), 0, "%s", err.msg);
		cr_assert_eq(id, (uint32_t)n);
	}
	return c;
}

static int32_t random_mib(struct rng *rng)
{
	return rng_below(rng, 8) == 0 ? INT32_MAX : (int32_t)rng_below(rng, 81920) + 1;
}

static void random_gpus(struct rng *rng, struct st_grant *g)
{
	uint8_t deck[ST_GPUS_MAX];

	for (uint8_t i = 0; i < ST_GPUS_MAX; i++)
		deck[i] = i;
	g->count = (uint8_t)(1 + rng_below(rng, ST_GPUS_MAX));
	for (int i = 0; i < g->count; i++) {
		size_t k = (size_t)i + rng_below(rng, (uint64_t)(ST_GPUS_MAX - i));

		g->gpu[i] = deck[k];
		deck[k] = deck[i];
	}
}

static void random_mig(struct rng *rng, const struct st_mig_geometry *geometry, struct st_grant *g)
{
	const struct st_mig_profile *p =
		&geometry->profiles[rng_below(rng, geometry->profile_count)];

	random_gpus(rng, g);
	memcpy(g->profile, p->name, sizeof(g->profile));
	for (int i = 0; i < g->count; i++)
		g->start[i] = p->starts[rng_below(rng, p->start_count)];
	if (g->count > 1 && p->start_count > 1) { /* the same GPU again, elsewhere */
		g->gpu[1] = g->gpu[0];
		g->start[0] = p->starts[0];
		g->start[1] = p->starts[1];
	}
	if (rng_below(rng, 2) == 0)
		g->request_mib = g->limit_mib = p->mem_mib;
}

/* Any decision that is well-formed: whether it fits is not the codec's business. */
static void random_decision(struct rng *rng, const struct st_cluster *c, struct st_decision *d)
{
	static const char *const containers[] = {"main", "side", "warm", LONG_NAME};

	memset(d, 0, sizeof(*d));
	d->node = (uint32_t)rng_below(rng, 3);
	d->grant_count = (uint8_t)rng_below(rng, 5);
	for (int i = 0; i < d->grant_count; i++) {
		struct st_grant *g = &d->grants[i];

		memcpy(g->container, containers[i], strlen(containers[i]) + 1);
		if (d->node == NODE_MIG) {
			g->kind = ST_KIND_MIG;
			g->mode = ST_MODE_MIG;
			random_mig(rng, st_cluster_node(c, d->node)->gpus[0].mig, g);
			continue;
		}
		random_gpus(rng, g);
		g->request_mib = random_mib(rng);
		g->limit_mib = g->request_mib > 81920 ? g->request_mib
						      : g->request_mib + random_mib(rng) % 81920;
		g->kind = rng_below(rng, 3) == 0 ? ST_KIND_WHOLE : ST_KIND_SHARE;
		g->mode = ST_MODE_EXCLUSIVE;
		if (g->kind == ST_KIND_WHOLE)
			continue;
		g->mode = rng_below(rng, 2) == 0 ? ST_MODE_TIME_SLICING : ST_MODE_SM_SHARING;
		if (rng_below(rng, 2) == 0)
			g->compute_nano = (int32_t)rng_below(rng, ST_NANO) + 1;
	}
}

static void reverse(struct pod_text *p)
{
	size_t n = p->spec.annotation_count;

	for (size_t i = 0; i < n / 2; i++) {
		struct st_kv kv = p->annotations[i];

		p->annotations[i] = p->annotations[n - 1 - i];
		p->annotations[n - 1 - i] = kv;
	}
}

/* What was written is read again, in any order, beside what the pod had, with CDI or without. */
Test(contract_codec, round_trip)
{
	struct st_cluster *c = cluster_make();
	struct rng rng;

	rng_init(&rng, 20261129);
	for (int i = 0; i < 3000; i++) {
		const struct st_contract_options opt = {.cdi = i % 2 == 1}, plain = {0};
		enum st_allocation_kind kind = ST_ALLOCATION_NONE;
		struct st_annotations a = {0};
		struct st_decision d, got;
		struct err err = ERR_INIT;
		struct pod_text p;
		char want[4096], text[4096];

		random_decision(&rng, c, &d);
		cr_assert_eq(st_contract_encode(c, &d, &opt, &a, &err), 0, "%s", err.msg);
		for (size_t k = 0; k < a.count; k++)
			cr_assert_leq(contract_name_len(a.kv[k].key), 63, "%s", a.kv[k].key);
		pod_text_init(&p, "gpu-fraction=0.5\n" C "main.gpu-compute.request=1", CONTAINERS);
		p.spec.node = st_cluster_node(c, d.node)->name;
		if (a.count + p.spec.annotation_count <= POD_TEXT_MAX) {
			pod_text_annotate(&p, &a);
			if (i % 3 == 0)
				reverse(&p);
			memset(&got, 0, sizeof(got));
			cr_assert_eq(st_contract_decode(c, &p.spec, d.node, &plain, &kind, &got,
							&err),
				     0, "run %d: %s", i, err.msg);
			cr_assert_eq(kind, ST_ALLOCATION_COMPLETE);
			cr_assert_str_eq(decision_text(&got, text, sizeof(text)),
					 decision_text(&d, want, sizeof(want)));
			cr_assert_eq(got.node, d.node);
		}
		st_annotations_fini(&a);
	}
	st_cluster_free(c);
}

/* The text itself, as others read it. */
Test(contract_codec, format)
{
	static const char *const want[] = {
		C "main.gpus.devices=GPU-00000003-0000-4000-8000-000000000002,"
		  "GPU-00000001-0000-4000-8000-000000000000",
		C "main.gpu-memory.request=20480Mi",
		C "main.gpu-memory.limit=30720Mi",
		C "main.gpu-compute.mode=sm-sharing",
		C "main.gpu-compute.portion=0.25",
		C "side.gpus.devices=GPU-00000002-0000-4000-8000-000000000001",
		C "side.gpu-memory.request=81920Mi",
		C "side.gpu-memory.limit=81920Mi",
		C "side.gpu-compute.mode=exclusive",
		"tessera.dev/allocation=v1;node-a.example;2579975c7808b650;main=drlmp,side=drlm",
	};
	struct st_cluster *c = cluster_make();
	struct st_annotations a = {0};
	struct st_decision d = {
		.grant_count = 2,
		.grants = {{.container = "main",
			    .kind = ST_KIND_SHARE,
			    .mode = ST_MODE_SM_SHARING,
			    .count = 2,
			    .gpu = {2, 0},
			    .request_mib = 20480,
			    .limit_mib = 30720,
			    .compute_nano = 250000000},
			   {.container = "side",
			    .kind = ST_KIND_WHOLE,
			    .mode = ST_MODE_EXCLUSIVE,
			    .count = 1,
			    .gpu = {1},
			    .request_mib = 81920,
			    .limit_mib = 81920}},
	};

	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	cr_assert_eq(a.count, sizeof(want) / sizeof(want[0]));
	for (size_t i = 0; i < a.count; i++) {
		char got[256];

		snprintf(got, sizeof(got), "%s=%s", a.kv[i].key, a.kv[i].value);
		cr_expect_str_eq(got, want[i]);
	}
	st_annotations_fini(&a);
	st_cluster_free(c);
}

Test(contract_codec, format_mig_cdi_long)
{
	const struct st_contract_options cdi = {.cdi = true};
	struct st_cluster *c = cluster_make();
	struct st_annotations a = {0};
	struct st_decision d = {
		.node = NODE_MIG,
		.grant_count = 1,
		.grants = {{.container = "main",
			    .kind = ST_KIND_MIG,
			    .mode = ST_MODE_MIG,
			    .count = 2,
			    .gpu = {1, 1},
			    .start = {4, 0},
			    .profile = "3g.40gb"}},
	};

	cr_assert_eq(st_contract_encode(c, &d, &cdi, &a, NULL), 0);
	cr_assert_eq(a.count, 3);
	cr_expect_str_eq(a.kv[0].key, C "main.gpu-compute.mode");
	cr_expect_str_eq(a.kv[0].value, "mig");
	cr_expect_str_eq(a.kv[1].key, T "main.mig-placement");
	cr_expect_str_eq(a.kv[1].value, "GPU-00000012-0000-4000-8000-000000000001/3g.40gb:4,"
					"GPU-00000012-0000-4000-8000-000000000001/3g.40gb:0");
	st_annotations_fini(&a);

	d.node = NODE_UNNAMED;
	d.grants[0] = (struct st_grant){.container = LONG_NAME,
					.mode = ST_MODE_TIME_SLICING,
					.count = 1,
					.gpu = {11},
					.request_mib = 1,
					.limit_mib = 1};
	cr_assert_eq(st_contract_encode(c, &d, &cdi, &a, NULL), 0);
	cr_expect_str_eq(a.kv[0].value, CONTRACT_CDI "11");
	cr_expect_eq(strncmp(a.kv[0].key, C "the-name-of-this_", strlen(C "the-name-of-this_")), 0,
		     "%s", a.kv[0].key);
	st_annotations_fini(&a);
	st_cluster_free(c);
}

static void expect_refused(const struct st_cluster *c, const struct pod_text *p, uint32_t node,
			   const char *what)
{
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	struct st_decision got;
	struct err err = ERR_INIT;

	memset(&got, 0x5a, sizeof(got));
	cr_assert_eq(st_contract_decode(c, &p->spec, node, NULL, &kind, &got, &err), ERR_INVALID,
		     "%s: taken", what);
	cr_assert_neq(err.msg[0], '\0');
	cr_assert_eq(((unsigned char *)&got)[sizeof(got) - 1], 0x5a);
}

/* Each bit of each value, each cut, each missing key: nothing passes for a complete allocation. */
Test(contract_codec, tampering)
{
	struct st_cluster *c = cluster_make();
	struct rng rng;

	rng_init(&rng, 7);
	for (int run = 0; run < 40; run++) {
		struct st_annotations a = {0};
		struct st_decision d;
		struct pod_text p;

		random_decision(&rng, c, &d);
		cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
		for (size_t k = 0; k < a.count && a.count <= POD_TEXT_MAX; k++) {
			char *v = strdup(a.kv[k].value), what[512];
			struct st_kv *kv;

			pod_text_init(&p, "", CONTAINERS);
			p.spec.node = st_cluster_node(c, d.node)->name;
			pod_text_annotate(&p, &a);
			kv = &p.annotations[k];
			for (size_t i = 0; v[i] != '\0'; i++) {
				for (int bit = 0; bit < 8; bit++) {
					v[i] = (char)(v[i] ^ 1 << bit);
					kv->value = v;
					snprintf(what, sizeof(what), "%s: byte %zu", kv->key, i);
					expect_refused(c, &p, d.node, what);
					v[i] = (char)(v[i] ^ 1 << bit);
				}
			}
			for (size_t n = strlen(v); n > 0; n--) {
				v[n - 1] = '\0';
				expect_refused(c, &p, d.node, "cut");
			}
			if (strcmp(kv->key, CONTRACT_ALLOCATION) != 0) {
				kv->key = "x";
				expect_refused(c, &p, d.node, "missing");
			}
			free(v);
		}
		st_annotations_fini(&a);
	}
	st_cluster_free(c);
}

/* Values with a right digest that no encoder of ours wrote. */
struct forged {
	const char *annotations; /* without tessera.dev/allocation */
	const char *list, *want; /* part of the message */
};

static void expect_forged(const struct st_cluster *c, const struct forged *f, uint32_t node)
{
	enum st_allocation_kind kind;
	struct st_decision got;
	struct st_kv covered[POD_TEXT_MAX];
	struct err err = ERR_INIT;
	struct pod_text p;
	char digest[CONTRACT_DIGEST_LEN + 1], value[512];
	size_t n;

	pod_text_init(&p, f->annotations, CONTAINERS);
	p.spec.node = st_cluster_node(c, node)->name;
	n = p.spec.annotation_count;
	memcpy(covered, p.annotations, sizeof(covered));
	contract_digest(p.spec.node, f->list, strlen(f->list), covered, n, digest);
	snprintf(value, sizeof(value), "v1;%s;%s;%s", p.spec.node, digest, f->list);
	p.annotations[n] = (struct st_kv){CONTRACT_ALLOCATION, value};
	p.spec.annotation_count++;
	cr_expect_eq(st_contract_decode(c, &p.spec, node, NULL, &kind, &got, &err), ERR_INVALID,
		     "%s: taken", f->annotations);
	cr_expect_not_null(strstr(err.msg, f->want), "%s: \"%s\", not \"%s\"", f->annotations,
			   err.msg, f->want);
}

#define U0 "GPU-00000001-0000-4000-8000-000000000000"
#define U1 "GPU-00000002-0000-4000-8000-000000000001"
#define M0 "GPU-00000011-0000-4000-8000-000000000000"
#define DEV(v) C "main.gpus.devices=" v "\n"
#define MEM(r, l) C "main.gpu-memory.request=" r "\n" C "main.gpu-memory.limit=" l "\n"
#define MODE(m) C "main.gpu-compute.mode=" m "\n"

Test(contract_codec, distrust)
{
	static const struct forged rows[] = {
		{DEV("GPU-x,NVIDIA,abc,0:") MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "\"GPU-x\" is not a GPU of this node"},
		{DEV(M0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "is not a GPU of this node"},
		{DEV(U0 "," U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "has a GPU twice"},
		{DEV(U0 ",") MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "\"\" is not a GPU"},
		{DEV("") MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm", "\"\" is not a GPU"},
		{DEV(CONTRACT_CDI U0 "," U1) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "mixes CDI names"},
		{DEV(U0 "," CONTRACT_CDI U1) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "is not a GPU"},
		{DEV(U0) MEM("abc", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "\"abc\" is not an amount"},
		{DEV(U0) MEM("1Gi", "2Gi") MODE("sm-sharing"), "main=drlm",
		 "\"1Gi\" is not an amount"},
		{DEV(U0) MEM("0Mi", "1Mi") MODE("sm-sharing"), "main=drlm", "is not an amount"},
		{DEV(U0) MEM("01Mi", "1Mi") MODE("sm-sharing"), "main=drlm", "is not an amount"},
		{DEV(U0) MEM("+1Mi", "1Mi") MODE("sm-sharing"), "main=drlm", "is not an amount"},
		{DEV(U0) MEM("Mi", "1Mi") MODE("sm-sharing"), "main=drlm", "is not an amount"},
		{DEV(U0) MEM("2147483648Mi", "1Mi") MODE("sm-sharing"), "main=drlm",
		 "is not an amount"},
		{DEV(U0) MEM("1Mi", "99999999999999999999Mi") MODE("sm-sharing"), "main=drlm",
		 "is not an amount"},
		{DEV(U0) MEM("2Mi", "1Mi") MODE("sm-sharing"), "main=drlm", "is below the request"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("fast"), "main=drlm", "\"fast\" is not a mode"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("free"), "main=drlm", "\"free\" is not a mode"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("mig"), "main=drlm", "do not go together"},
		{DEV(U0) MODE("sm-sharing"), "main=dm", "do not go together"},
		{MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=rlm", "do not go together"},
		{DEV(U0) MEM("1Mi", "1Mi"), "main=drl", "do not go together"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("exclusive") C "main.gpu-compute.portion=1",
		 "main=drlmp", "do not go together"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing") C "main.gpu-compute.portion=1.0",
		 "main=drlmp", "is not a plain decimal"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing") C "main.gpu-compute.portion=1.5",
		 "main=drlmp", "is not a plain decimal"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drml", "which keys belong"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=ddrlm", "which keys belong"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlmx", "which keys belong"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main", "which keys belong"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "=drlm", "which keys belong"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm,", "which keys belong"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlm,main=drlm",
		 "has a container twice"},
		{DEV(U0) MEM("1Mi", "1Mi") MODE("sm-sharing"), "main=drlmp",
		 "gpu-compute.portion is missing"},
		{C "none.gpus.devices=" U0, "none=d", "is not a container of the pod"},
	};
	static const struct forged mig[] = {
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:1", "main=mg",
		 "is not a placement that the GPU has"},
		{MODE("mig") T "main.mig-placement=" M0 "/9g.40gb:0", "main=mg",
		 "is not a placement that the GPU has"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:0," M0 "/3g.40gb:0", "main=mg",
		 "has an instance twice"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:0," M0 "/1g.10gb:4", "main=mg",
		 "has more than one profile"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:00", "main=mg", "has no start"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:99", "main=mg", "has no start"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:-1", "main=mg", "has no start"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:", "main=mg", "has no start"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb:100", "main=mg",
		 "is not GPU-<uuid>/<profile>:<start>"},
		{MODE("mig") T "main.mig-placement=" M0 "/3g.40gb", "main=mg",
		 "is not GPU-<uuid>/<profile>:<start>"},
		{MODE("mig") T "main.mig-placement=" M0, "main=mg",
		 "is not GPU-<uuid>/<profile>:<start>"},
		{MODE("mig") T "main.mig-placement=" U0 "/3g.40gb:0", "main=mg", "is not a GPU"},
		{MODE("mig") T "main.mig-placement=", "main=mg", "is not GPU-<uuid>"},
		{MODE("sm-sharing") T "main.mig-placement=" M0 "/3g.40gb:0", "main=mg",
		 "do not go together"},
	};
	struct st_cluster *c = cluster_make();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		expect_forged(c, &rows[i], NODE_PLAIN);
	for (size_t i = 0; i < sizeof(mig) / sizeof(mig[0]); i++)
		expect_forged(c, &mig[i], NODE_MIG);
	st_cluster_free(c);
}

Test(contract_codec, other_node_and_none)
{
	struct st_cluster *c = cluster_make();
	struct st_annotations a = {0};
	struct st_decision d = {.grant_count = 0}, got;
	enum st_allocation_kind kind = ST_ALLOCATION_COMPLETE;
	struct err err = ERR_INIT;
	struct pod_text p;

	pod_text_init(&p, C "main.gpus.devices=" U0, "main");
	cr_assert_eq(st_contract_decode(c, &p.spec, 0, NULL, &kind, &got, &err), 0);
	cr_assert_eq(kind, ST_ALLOCATION_NONE);

	cr_assert_eq(st_contract_encode(c, &d, NULL, &a, NULL), 0);
	pod_text_annotate(&p, &a);
	cr_assert_eq(st_contract_decode(c, &p.spec, 0, NULL, &kind, &got, &err), 0);
	cr_assert_eq(kind, ST_ALLOCATION_COMPLETE);
	cr_assert_eq(got.grant_count, 0);
	expect_refused(c, &p, NODE_MIG, "another node");
	p.spec.node = "node-b";
	expect_refused(c, &p, NODE_PLAIN, "bound elsewhere");
	expect_refused(c, &p, ST_NONE, "unknown node");
	st_annotations_fini(&a);
	st_cluster_free(c);
}

/* A wrong decision is a bug of ours and is not written down. */
Test(contract_codec, encode_refuses)
{
	struct st_cluster *c = cluster_make();
	const struct st_decision good = {
		.grant_count = 1,
		.grants = {{.container = "main",
			    .kind = ST_KIND_SHARE,
			    .mode = ST_MODE_TIME_SLICING,
			    .count = 1,
			    .request_mib = 1,
			    .limit_mib = 1}},
	};
	const struct st_contract_options prefix = {
		.prefix = "nvidia.com/a-prefix-that-leaves-no-room-for-the-name-of-a-container."};
	struct st_decision bad[16];
	struct st_annotations a = {0};
	size_t n = 0;

	for (size_t i = 0; i < 16; i++)
		bad[i] = good;
	bad[n++].node = 77;
	bad[n++].grant_count = ST_ITEMS_MAX + 1;
	bad[n++].grants[0].count = 0;
	bad[n++].grants[0].count = ST_GPUS_MAX + 1;
	bad[n++].grants[0].gpu[0] = ST_GPUS_MAX;
	bad[n++].grants[0].request_mib = 0;
	bad[n++].grants[0].limit_mib = 0;
	bad[n++].grants[0].request_mib = 2;
	bad[n++].grants[0].compute_nano = ST_NANO + 1;
	bad[n++].grants[0].mode = ST_MODE_FREE;
	bad[n++].grants[0].kind = ST_KIND_WHOLE;
	bad[n++].grants[0].kind = ST_KIND_MIG;
	bad[n++].grants[0].container[0] = '\0';
	bad[n++].grants[0].container[1] = ';';
	bad[n++].grants[0].count = 2;
	memset(bad[n++].grants[0].container, 'x', ST_CONTAINER_CAP);
	cr_assert_eq(n, 16);
	for (size_t i = 0; i < n; i++) {
		cr_expect_eq(st_contract_encode(c, &bad[i], NULL, &a, NULL), ERR_INTERNAL, "%zu",
			     i);
		cr_expect_null(a.kv);
	}
	cr_expect_eq(st_contract_encode(c, &good, &prefix, &a, NULL), ERR_TOO_LARGE);
	cr_expect_null(a.kv);
	cr_expect_eq(st_contract_encode(c, &good, NULL, &a, NULL), 0);
	st_annotations_fini(&a);
	st_cluster_free(c);
}

Test(contract_codec, check_size)
{
	static char value[CONTRACT_TOTAL_MAX];
	struct st_kv written = {"key", "value"};
	const struct st_annotations a = {1, 1, &written};
	struct pod_text p;

	pod_text_init(&p, "a=\nkey=this value is replaced", "main");
	memset(value, 'x', sizeof(value) - 1);
	p.annotations[0].value = value + 8; /* "a" + it + "key" + "value" = the limit */
	cr_assert_eq(st_contract_check_size(&p.spec, &a, NULL), 0);
	p.annotations[0].value = value + 7;
	cr_assert_eq(st_contract_check_size(&p.spec, &a, NULL), ERR_TOO_LARGE);
}

Test(contract_codec, oom_sweep)
{
	struct st_cluster *c = cluster_make();
	struct st_decision d;
	struct rng rng;
	unsigned failed = 0;

	rng_init(&rng, 3);
	do
		random_decision(&rng, c, &d);
	while (d.grant_count != 3);
	OOM_SWEEP(n) {
		struct st_annotations a = {0};
		bool hit;
		int r;

		oom_fail_at(n);
		r = st_contract_encode(c, &d, NULL, &a, NULL);
		hit = oom_disarm();
		if (!hit) {
			cr_assert_eq(r, 0);
			st_annotations_fini(&a);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM);
		cr_assert_null(a.kv);
		failed++;
	}
	cr_assert_gt(failed, 10);
	st_cluster_free(c);
}

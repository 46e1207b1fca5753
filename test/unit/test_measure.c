/* The measures on examples that were worked out by hand, and what takes a GPU away from a class. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fragmentation/measure_internal.h"
#include "test/lib/oom.h"
#include "test/lib/place.h"

#define SHARE(mib)                                                                                 \
	{                                                                                          \
		.kind = ST_KIND_SHARE, .mode = ST_MODE_TIME_SLICING, .count = 1,                   \
		.request_mib = (mib)                                                               \
	}
#define WHOLE(n)                                                                                   \
	{                                                                                          \
		.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = (n)                     \
	}

/* Weights in tenths: half of the pods want half a device, ... */
static const struct place_class mix1[] = {
	{5, 4000, SHARE(500), NULL}, {3, 8000, WHOLE(1), NULL}, {2, 2000, {.count = 0}, NULL}};
/* Weights in twentieths. */
static const struct place_class mix3[] = {
	{8, 6000, WHOLE(2), NULL}, {7, 3000, SHARE(250), "T4"}, {5, 3000, SHARE(600), NULL}};
static const struct place_class mix_ca[] = {{5, 4000, SHARE(500), NULL}, {3, 8000, WHOLE(1), NULL}};

/* A node of devices of 1000 MiB with that much left on each, in time-slicing where it is not all. */
static uint32_t node_with(struct st_cluster *c, const char *product, int64_t cpu_milli,
			  const int32_t *left, size_t count)
{
	struct st_gpu_spec gpus[ST_GPUS_MAX] = {0};
	struct st_node_spec spec = {.name = "n",
				    .product = product,
				    .cpu_milli = cpu_milli,
				    .gpu_count = count,
				    .gpus = gpus};
	uint32_t id;
	char uid[24];

	for (size_t i = 0; i < count; i++)
		gpus[i].mem_mib = 1000;
	cr_assert_eq(st_cluster_node_put(c, &spec, &id, NULL), 0);
	for (size_t i = 0; i < count; i++) {
		struct st_item it = place_share(1000 - left[i]);

		snprintf(uid, sizeof(uid), "g%zu", i);
		if (left[i] < 1000)
			place_hold(c, id, uid, &it, (unsigned)i, 0);
	}
	return id;
}

/* N and score when the pod takes MiB of one device, or whole devices first, first + 1, ... */
static int64_t after_share(struct fr_measure *m, uint32_t node, int64_t cpu_left, unsigned gpu,
			   int32_t mib, int32_t *ret_score)
{
	struct fr_gpu g = fr_gpu_load(m, node, gpu);
	struct fr_change ch = {g.row, fr_gpu_after_share(m, &g, ST_MODE_TIME_SLICING, mib, 0).row,
			       1};

	*ret_score = fr_measure_score(m, node, cpu_left, &ch, 1);
	return fr_measure_after(m, node, cpu_left, &ch, 1);
}

static int64_t after_whole(struct fr_measure *m, uint32_t node, int64_t cpu_left, unsigned count,
			   int32_t *ret_score)
{
	struct fr_gpu g = fr_gpu_load(m, node, 0);
	struct fr_change ch = {g.row, fr_gpu_after_whole(m, &g).row, (int32_t)count};

	*ret_score = fr_measure_score(m, node, cpu_left, &ch, count > 0);
	return fr_measure_after(m, node, cpu_left, &ch, count > 0);
}

/* ---- the paper's measure ---- */

struct example {
	const char *name;
	const struct place_class *mix;
	size_t mix_count;
	const char *product;
	int64_t cpu;
	int32_t left[4];
	size_t gpus;
	int64_t pod_cpu;
	int32_t share; /* 0: whole devices, or none */
	unsigned whole;
	int64_t before;
	struct {
		int64_t n;
		int32_t score;
	} after[2]; /* by device for shares, else the first */
};

#define MIX(m) m, sizeof(m) / sizeof((m)[0])

static const struct example fgd_examples[] = {
	{"1",
	 MIX(mix1),
	 "P100",
	 16000,
	 {700, 1000},
	 2,
	 2000,
	 300,
	 0,
	 5500,
	 {{6000, 48}, {7000, 46}}},
	{"1b",
	 MIX(mix1),
	 "P100",
	 5000,
	 {700, 1000},
	 2,
	 2000,
	 300,
	 0,
	 8500,
	 {{14000, 36}, {14000, 36}}},
	{"2", MIX(mix1), "P100", 16000, {1000, 400}, 2, 8000, 0, 1, 6000, {{4000, 54}}},
	{"2b", MIX(mix1), "P100", 16000, {1000, 1000}, 2, 12000, 0, 0, 4000, {{10000, 35}}},
	{"2c", MIX(mix1), "P100", 16000, {0, 0}, 2, 12000, 0, 0, 0, {{0, 50}}},
	{"3",
	 MIX(mix3),
	 "P100",
	 20000,
	 {1000, 1000, 600, 200},
	 4,
	 6000,
	 0,
	 2,
	 27000,
	 {{13000, 66}}},
	{"3b", MIX(mix3), "T4", 20000, {1000, 1000, 600, 200}, 4, 6000, 0, 2, 8800, {{8800, 50}}},
};

static void run_example(const struct example *e, enum fr_kind kind)
{
	struct st_cluster *c = st_cluster_new(NULL);
	uint32_t node = node_with(c, e->product, e->cpu, e->left, e->gpus);
	struct fr_measure *m = place_measure(c, kind, e->mix, e->mix_count);
	unsigned tries = e->share > 0 ? 2 : 1;
	int32_t score;
	int64_t n;

	cr_expect_eq(fr_measure_node(m, node), e->before, "%s: N = %lld", e->name,
		     (long long)fr_measure_node(m, node));
	for (unsigned gpu = 0; gpu < tries; gpu++) {
		n = e->share > 0 ? after_share(m, node, e->cpu - e->pod_cpu, gpu, e->share, &score)
				 : after_whole(m, node, e->cpu - e->pod_cpu, e->whole, &score);
		cr_expect_eq(n, e->after[gpu].n, "%s: N = %lld on %u", e->name, (long long)n, gpu);
		cr_expect_eq(score, e->after[gpu].score, "%s: score %d on %u", e->name, score, gpu);
	}
	fr_measure_free(m);
	st_cluster_free(c);
}

Test(measure, examples_of_fgd)
{
	for (size_t i = 0; i < sizeof(fgd_examples) / sizeof(fgd_examples[0]); i++)
		run_example(&fgd_examples[i], FR_FGD);
}

Test(measure, scale_and_idle)
{
	static const int32_t left[] = {700, 1000};
	struct st_cluster *c = st_cluster_new(NULL);
	struct fr_measure *fgd, *ca;

	node_with(c, "P100", 16000, left, 2);
	fgd = place_measure(c, FR_FGD, MIX(mix1));
	ca = place_measure(c, FR_CA, MIX(mix1));
	cr_expect_eq(fr_measure_scale(fgd), 10);
	cr_expect_eq(fr_measure_scale(ca), 32); /* K counts classes with GPU only */
	cr_expect_eq(fr_measure_idle_total(fgd), 1700);
	cr_expect_eq(fr_measure_total(fgd), 5500);
	cr_expect_eq(fr_measure_workload(fgd)->count, 3);
	fr_measure_free(fgd);
	fr_measure_free(ca);
	st_cluster_free(c);
}

Test(measure, exact_fit_fits)
{
	static const struct place_class one[] = {{1, 1000, WHOLE(1), NULL}};
	static const struct place_class by_amount[] = {{1, 1000, SHARE(1000), NULL}};
	static const int32_t idle[] = {1000}, used[] = {999};
	struct st_cluster *c = st_cluster_new(NULL), *c2 = st_cluster_new(NULL);
	uint32_t node = node_with(c, "T4", 1000, idle, 1);
	struct fr_measure *m = place_measure(c, FR_FGD, MIX(one)), *m2, *m3;

	node_with(c2, "T4", 1000, used, 1);
	m2 = place_measure(c2, FR_FGD, MIX(one));
	m3 = place_measure(c, FR_FGD, MIX(by_amount));
	cr_expect_eq(fr_measure_node(m, node), 0);
	cr_expect_eq(fr_measure_node(m2, node), 999);
	cr_expect_eq(fr_measure_node(m3, node), 0);
	cr_expect_eq(fr_measure_after(m, node, 999, NULL, 0), 1000); /* CPU short by one milli */
	fr_measure_free(m);
	fr_measure_free(m2);
	fr_measure_free(m3);
	st_cluster_free(c);
	st_cluster_free(c2);
}

/* ---- the capacity-aware measure ---- */

static const struct example ca_examples[] = {
	{"a",
	 MIX(mix_ca),
	 "T4",
	 16000,
	 {700, 1000},
	 2,
	 2000,
	 300,
	 0,
	 9400,
	 {{12800, -1}, {18800, -3}}},
	/* As before: the balance of CPU and GPU counts here. */
	{"balance", MIX(mix_ca), "T4", 2000, {1000, 1000}, 2, 0, 0, 0, 166000, {{166000, 0}}},
	/* 6 (CPU for 1.5 halves), 2.3 tasks of 2 devices: floor(cpu d / c) = 750, 1250 of 2000 */
	{"cpu bound",
	 MIX(mix_ca),
	 "T4",
	 6000,
	 {1000, 1000},
	 2,
	 0,
	 0,
	 0,
	 5 * (2000 - 750) + 3 * (2000 - 750) + 3 * 3 * 2000 + 8 * (16000 - 9000),
	 {{84000, 0}}},
};

Test(measure, examples_of_ca)
{
	for (size_t i = 0; i < sizeof(ca_examples) / sizeof(ca_examples[0]); i++)
		run_example(&ca_examples[i], FR_CA);
}

/* floor(#idle / k) tasks of k devices, at most floor(cpu / c) in milli. */
Test(measure, ca_counts_tasks_of_several_devices)
{
	static const struct place_class two[] = {{1, 6000, WHOLE(2), NULL}};
	static const int32_t left[] = {1000, 1000, 1000, 300};
	struct st_cluster *c = st_cluster_new(NULL);
	uint32_t node = node_with(c, "T4", 96000, left, 4);
	struct fr_measure *m = place_measure(c, FR_CA, MIX(two));

	/* R = 3300, fill = 2000, F = 300; rho = 2000 / 6000, so 12 G c / C is above 8 R. */
	cr_expect_eq(fr_measure_node(m, node), 1300 + 3 * 300);
	/* 4500 of CPU: no task of 6000 fits, but 1500 milli could be filled; balance 26400 - 18000. */
	cr_expect_eq(fr_measure_after(m, node, 4500, NULL, 0), 1800 + 3 * 3300 + 8400);
	cr_expect_eq(fr_measure_after(m, node, -500, NULL, 0), 3300 + 3 * 3300 + 26400);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* Beyond what a multiplication in place of the division is exact for. */
Test(measure, ca_with_very_much_cpu)
{
	static const struct {
		int64_t cpu, class_cpu;
		int32_t fill;
	} rows[] = {
		{9000000, 8000000, 1125},  {8388607, 8388607, 1000},  {8388608, 8388607, 1000},
		{12582912, 8388608, 1500}, {10000000, 9000000, 1111}, {17999999, 9000000, 1999},
		{8999999, 9000000, 999},
	};
	static const int32_t left[] = {1000, 1000};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct place_class one = {1, rows[i].class_cpu, WHOLE(1), NULL};
		struct st_cluster *c = st_cluster_new(NULL);
		uint32_t node = node_with(c, "T4", rows[i].cpu, left, 2);
		struct fr_measure *m = place_measure(c, FR_CA, &one, 1);
		int64_t balance = 16000 - 12000 * rows[i].cpu / rows[i].class_cpu;
		int64_t lost = rows[i].cpu < rows[i].class_cpu ? 2000 : 0;

		balance = balance > 0 ? balance : 0;
		cr_expect_eq(fr_measure_node(m, node), 2000 - rows[i].fill + 3 * lost + balance,
			     "row %zu: %lld", i, (long long)fr_measure_node(m, node));
		fr_measure_free(m);
		st_cluster_free(c);
	}
}

/* A class sized in MiB is the same as one by fraction on a device of that size, whatever the size:
 * the balance with CPU, too. */
Test(measure, amounts_and_fractions_agree)
{
	static const int32_t sizes[] = {1000, 24576, 81920};

	for (int i = 0; i < 3; i++) {
		const struct place_class by_mib[] = {{5, 4000, SHARE(sizes[i] / 2), NULL},
						     {3, 8000, WHOLE(1), NULL}};
		const struct place_class by_part[] = {{5,
						       4000,
						       {.kind = ST_KIND_SHARE,
							.mode = ST_MODE_TIME_SLICING,
							.count = 1,
							.request_nano = 500000000},
						       NULL},
						      {3, 8000, WHOLE(1), NULL}};
		struct st_cluster *c = st_cluster_new(NULL);
		uint32_t node = place_node(c, "n", 2000, 2, sizes[i]);
		struct fr_measure *a = place_measure(c, FR_CA, MIX(by_mib));
		struct fr_measure *b = place_measure(c, FR_CA, MIX(by_part));

		cr_expect_eq(fr_measure_node(a, node), 166000, "%d MiB: %lld", sizes[i],
			     (long long)fr_measure_node(a, node));
		cr_expect_eq(fr_measure_node(b, node), 166000);
		fr_measure_free(a);
		fr_measure_free(b);
		a = place_measure(c, FR_BID, MIX(by_mib));
		b = place_measure(c, FR_BID, MIX(by_part));
		fr_measure_price_steps(a, 50);
		fr_measure_price_steps(b, 50);
		fr_measure_price_publish(a);
		fr_measure_price_publish(b);
		cr_expect_eq(fr_measure_node(a, node), fr_measure_node(b, node));
		cr_expect_lt(fr_measure_node(a, node), 0);
		fr_measure_free(a);
		fr_measure_free(b);
		st_cluster_free(c);
	}
}

/* ---- what takes a GPU away from a class ---- */

struct lost {
	const char *name;
	struct place_class want;
	struct st_item held[2]; /* on the only GPU, of 1000 MiB; kind and count 0: nothing */
	int64_t n;              /* FGD, weight 1: milli that the class cannot take */
	int64_t filled;         /* milli that it could fill, as CA counts */
};

#define SM(mib, nano)                                                                              \
	{                                                                                          \
		.kind = ST_KIND_SHARE, .mode = ST_MODE_SM_SHARING, .count = 1,                     \
		.request_mib = (mib), .compute_nano = (nano)                                       \
	}
#define EITHER(m, mib, nano)                                                                       \
	{                                                                                          \
		.kind = ST_KIND_SHARE, .mode = (m), .mode_preferred = true, .count = 1,            \
		.request_mib = (mib), .compute_nano = (nano)                                       \
	}

static const struct lost losses[] = {
	{"time-slicing on an idle GPU", {1, 0, SHARE(300), NULL}, {{.count = 0}}, 0, 900},
	{"time-slicing beside its like", {1, 0, SHARE(300), NULL}, {SHARE(300)}, 0, 600},
	{"time-slicing on an sm-sharing GPU", {1, 0, SHARE(300), NULL}, {SM(300, 0)}, 700, 0},
	{"sm-sharing on a time-slicing GPU", {1, 0, SM(300, 0), NULL}, {SHARE(300)}, 700, 0},
	{"sm-sharing beside its like", {1, 0, SM(300, 0), NULL}, {SM(300, 0)}, 0, 600},
	{"either mode, time-slicing GPU",
	 {1, 0, EITHER(ST_MODE_SM_SHARING, 300, 0), NULL},
	 {SHARE(300)},
	 0,
	 600},
	{"either mode, sm-sharing GPU",
	 {1, 0, EITHER(ST_MODE_TIME_SLICING, 300, 0), NULL},
	 {SM(300, 0)},
	 0,
	 600},
	{"whole on a shared GPU", {1, 0, WHOLE(1), NULL}, {SHARE(1)}, 999, 0},
	{"share on an exclusive GPU", {1, 0, SHARE(1), NULL}, {WHOLE(1)}, 0, 0},
	{"compute left", {1, 0, SM(100, 400000000), NULL}, {SM(100, 600000000)}, 0, 100},
	{"compute used up", {1, 0, SM(100, 400000000), NULL}, {SM(100, 600000001)}, 900, 0},
	{"compute used up, none wanted", {1, 0, SM(100, 0), NULL}, {SM(100, 1000000000)}, 0, 900},
	{"compute limits the number", {1, 0, SM(100, 300000000), NULL}, {{.count = 0}}, 0, 300},
	/* Nobody keeps shares of compute on a time-slicing GPU. */
	{"compute does not count in time-slicing",
	 {1, 0, EITHER(ST_MODE_SM_SHARING, 100, 900000000), NULL},
	 {SHARE(100)},
	 0,
	 900},
	{"clients left", {1, 0, SHARE(100), NULL}, {SHARE(100)}, 0, 100},
	{"clients used up", {1, 0, SHARE(100), NULL}, {SHARE(100), SHARE(100)}, 800, 0},
};

Test(measure, modes_and_bounds)
{
	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		const struct lost *l = &losses[i];
		struct st_config cfg = ST_CONFIG_DEFAULT;
		static const int32_t idle[] = {1000};
		struct fr_measure *fgd, *ca;
		struct st_cluster *c;
		uint32_t node;
		int64_t r;

		cfg.clients_max = strncmp(l->name, "clients", 7) == 0 ? 2 : 60;
		c = st_cluster_new(&cfg);
		node = node_with(c, "T4", 64000, idle, 1);
		for (int k = 0; k < 2 && l->held[k].count > 0; k++)
			place_hold(c, node, k == 0 ? "a" : "b", &l->held[k], 0, 0);
		fgd = place_measure(c, FR_FGD, &l->want, 1);
		ca = place_measure(c, FR_CA, &l->want, 1);
		r = fr_measure_idle_total(fgd);
		cr_expect_eq(fr_measure_node(fgd, node), l->n, "%s: %lld", l->name,
			     (long long)fr_measure_node(fgd, node));
		cr_expect_eq(fr_measure_node(ca, node), r - l->filled + 3 * l->n, "%s: %lld",
			     l->name, (long long)fr_measure_node(ca, node));
		fr_measure_free(fgd);
		fr_measure_free(ca);
		st_cluster_free(c);
	}
}

Test(measure, taken_gpus_do_not_count)
{
	static const struct place_class mix[] = {{1, 0, WHOLE(1), NULL}, {1, 0, SHARE(500), NULL}};
	struct st_gpu_spec gpus[3] = {{.mem_mib = 1000, .unhealthy = true},
				      {.mem_mib = 1000, .foreign = "pid 1"},
				      {.mem_mib = 1000}};
	struct st_node_spec spec = {
		.name = "n", .product = "T4", .cpu_milli = 64000, .gpu_count = 3, .gpus = gpus};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_item it = place_share(700);
	struct fr_measure *m;
	uint32_t node;

	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	place_hold(c, node, "a", &it, 2, 0);
	m = place_measure(c, FR_FGD, MIX(mix));
	cr_expect_eq(fr_measure_idle_total(m), 300);
	cr_expect_eq(fr_measure_node(m, node), 600); /* 300 for each class, although two are idle */
	gpus[0].unhealthy = false;
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	cr_assert_eq(fr_measure_sync(m, node), 0);
	cr_expect_eq(fr_measure_idle_total(m), 1300);
	cr_expect_eq(fr_measure_node(m, node), 600);
	cr_assert_eq(st_cluster_node_remove(c, "n", NULL), 0);
	cr_assert_eq(fr_measure_sync(m, node), 0);
	cr_expect_eq(fr_measure_idle_total(m), 0);
	cr_expect_eq(fr_measure_total(m), 0);
	fr_measure_free(m);
	st_cluster_free(c);
}

/* Milli of each device are its own; an amount fits where it fits. */
Test(measure, gpus_of_different_sizes)
{
	static const struct place_class amount[] = {{1, 0, SHARE(1500), NULL}};
	static const struct place_class part[] = {{1,
						   0,
						   {.kind = ST_KIND_SHARE,
						    .mode = ST_MODE_TIME_SLICING,
						    .count = 1,
						    .request_nano = 600000000},
						   NULL}};
	struct st_gpu_spec gpus[2] = {{.mem_mib = 1000}, {.mem_mib = 4000}};
	struct st_node_spec spec = {.name = "n", .cpu_milli = 64000, .gpu_count = 2, .gpus = gpus};
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_item it = place_share(2000);
	struct fr_measure *m, *p;
	uint32_t node;

	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	m = place_measure(c, FR_FGD, MIX(amount));
	p = place_measure(c, FR_FGD, MIX(part));
	cr_expect_eq(fr_measure_idle_total(m), 2000);
	cr_expect_eq(fr_measure_node(m, node), 1000);
	cr_expect_eq(fr_measure_node(p, node), 0);
	place_hold(c, node, "a", &it, 1, 0); /* half of the larger one */
	place_sync(m, c);
	place_sync(p, c);
	cr_expect_eq(fr_measure_idle_total(m), 1500);
	cr_expect_eq(fr_measure_node(m, node), 1000);
	cr_expect_eq(fr_measure_node(p, node), 500);
	fr_measure_free(m);
	fr_measure_free(p);
	st_cluster_free(c);
}

Test(measure, product_of_a_node)
{
	static const struct {
		const char *product, *accepted;
		int64_t n;
	} rows[] = {{"T4", "", 0},        {NULL, "", 0},       {"T4", "T4", 0},
		    {"T4", "A10||T4", 0}, {"T4", "A10", 1000}, {NULL, "T4", 1000},
		    {"T4", "T", 1000},    {"T4", "|", 1000}};
	static const int32_t idle[] = {1000};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct place_class cls = {1, 0, SHARE(1), rows[i].accepted};
		struct st_cluster *c = st_cluster_new(NULL);
		uint32_t node = node_with(c, rows[i].product, 64000, idle, 1);
		struct fr_measure *m = place_measure(c, FR_FGD, &cls, 1);

		cr_expect_eq(fr_measure_node(m, node), rows[i].n, "row %zu", i);
		fr_measure_free(m);
		st_cluster_free(c);
	}
}

/* A reserve larger than a GPU leaves nothing of it to allocate, and nothing to divide by. */
Test(measure, gpu_smaller_than_the_reserve)
{
	struct st_config cfg = {
		.reserve_mib = 2000, .clients_max = 60, .overcommit_permille = 1000};
	static const int32_t idle[] = {1000, 1000};
	static const enum fr_kind kinds[] = {FR_FGD, FR_CA, FR_BID};

	for (int i = 0; i < 3; i++) {
		struct st_cluster *c = st_cluster_new(&cfg);
		uint32_t node = node_with(c, "T4", 64000, idle, 2);
		struct fr_measure *m = place_measure(c, kinds[i], MIX(mix1));

		cr_expect_eq(fr_measure_idle_total(m), 0);
		if (kinds[i] != FR_BID)
			cr_expect_eq(fr_measure_node(m, node), 0);
		fr_measure_price_steps(m, 3);
		fr_measure_free(m);
		st_cluster_free(c);
	}
}

/* ---- short of memory ---- */

/* Every failure is told, leaves the measure usable, and the numbers after the next sync are right. */
Test(measure, oom)
{
	static const int32_t left[] = {700, 1000};
	static const enum fr_kind kinds[] = {FR_FGD, FR_CA, FR_BID};

	for (int k = 0; k < 3; k++) {
		struct st_cluster *c = st_cluster_new(NULL);
		uint32_t node = node_with(c, "P100", 16000, left, 2);
		struct fr_measure *right = place_measure(c, kinds[k], MIX(mix1)), *m = NULL;

		OOM_SWEEP(n) {
			struct fr_counts *counts = fr_counts_new();
			struct fr_class cls = {.cpu_milli = 4000,
					       .size_mib = 500,
					       .count = 1,
					       .mode = ST_MODE_TIME_SLICING};
			struct fr_workload *w;
			int rc = ERR_NOMEM;
			bool hit;

			cr_assert_eq(fr_counts_add(counts, &cls, 5, NULL), 0);
			cls = (struct fr_class){
				.cpu_milli = 8000, .kind = ST_KIND_WHOLE, .count = 1};
			cr_assert_eq(fr_counts_add(counts, &cls, 3, NULL), 0);
			if (kinds[k] != FR_CA) {
				cls = (struct fr_class){.cpu_milli = 2000};
				cr_assert_eq(fr_counts_add(counts, &cls, 2, NULL), 0);
			}
			w = fr_workload_build(counts, 100, false);
			fr_counts_free(counts);
			oom_fail_at(n);
			m = fr_measure_new(c, kinds[k], w);
			if (m)
				rc = fr_measure_sync(m, node);
			hit = oom_disarm();
			cr_assert_eq(hit, !m || rc == ERR_NOMEM, "kind %d, allocation %u", k, n);
			if (m && hit) {
				fr_measure_failed(m);
				cr_assert_eq(fr_measure_total(m), 0);
				cr_assert_eq(fr_measure_sync(m, node), 0);
			}
			if (m) {
				cr_assert_eq(fr_measure_total(m), fr_measure_total(right));
				cr_assert_eq(fr_measure_idle_total(m), 1700);
				cr_assert_not(fr_measure_failed(m));
			}
			fr_measure_free(m);
			if (!hit)
				break;
		}
		fr_measure_free(right);
		st_cluster_free(c);
	}
	fr_measure_free(NULL);
}

/* A GPU as large as can be told, and tasks as small: all of it can be used. */
Test(measure, the_largest_gpu_and_the_smallest_task)
{
	const struct place_class mix[] = {{1, 1000, place_share(1), NULL}};
	struct st_cluster *c = st_cluster_new(NULL);
	struct fr_measure *m;

	place_node(c, "a", 64000, 1, INT32_MAX);
	m = place_measure(c, FR_FGD, mix, 1);
	cr_expect_eq(fr_measure_total(m), 0, "%lld", (long long)fr_measure_total(m));
	fr_measure_free(m);
	st_cluster_free(c);
}

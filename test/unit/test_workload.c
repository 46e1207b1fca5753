/* Request classes, their counts, and the workload that is made from them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fragmentation/workload.h"
#include "test/lib/oom.h"
#include "test/lib/place.h"

static struct fr_class class_of(struct st_request req)
{
	struct fr_class c;

	fr_class_of(&req, &c);
	return c;
}

static struct fr_class whole(int64_t cpu_milli, int count)
{
	return class_of(place_request(cpu_milli, place_whole(count)));
}

static struct fr_class share(int64_t cpu_milli, int32_t mib)
{
	return class_of(place_request(cpu_milli, place_share(mib)));
}

static struct fr_class of_product(struct fr_class c, const char *product)
{
	snprintf(c.product, sizeof(c.product), "%s", product);
	return c;
}

struct row {
	struct fr_class cls;
	int64_t count;
};

static struct fr_counts *counted(const struct row *rows, size_t n)
{
	struct fr_counts *c = fr_counts_new();

	cr_assert_not_null(c);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(fr_counts_add(c, &rows[i].cls, rows[i].count, NULL), 0);
	return c;
}

static struct fr_workload *built(const struct row *rows, size_t n, int percent, bool gpu_only)
{
	struct fr_counts *c = counted(rows, n);
	struct fr_workload *w = fr_workload_build(c, percent, gpu_only);

	cr_assert_not_null(w);
	fr_counts_free(c);
	return w;
}

static void expect_class(const struct fr_workload *w, size_t at, const struct fr_class *c,
			 int64_t weight)
{
	cr_assert_lt(at, w->count);
	cr_expect_arr_eq(&w->classes[at], c, sizeof(*c), "class %zu", at);
	cr_expect_eq(w->weights[at], weight, "weight %zu is %lld", at, (long long)w->weights[at]);
}

/* ---- the class of a request ---- */

Test(workload, class_of_a_pod_without_gpu)
{
	struct st_request req = place_cpu(2000);
	struct fr_class c, want = {.cpu_milli = 2000};

	req.mem_mib = 4096; /* host memory is no part of it, and a product means nothing here */
	snprintf(req.product, sizeof(req.product), "T4");
	c = class_of(req);
	cr_expect_arr_eq(&c, &want, sizeof(c));
}

Test(workload, class_of_a_share_by_amount)
{
	struct st_item it = place_sm(4096, 250000000);
	struct fr_class want = {.cpu_milli = 500,
				.size_mib = 4096,
				.compute_nano = 250000000,
				.kind = ST_KIND_SHARE,
				.mode = ST_MODE_SM_SHARING,
				.mode_preferred = 1,
				.count = 2,
				.product = "A|B"};
	struct st_request req;
	struct fr_class c;

	it.mode_preferred = true;
	it.count = 2;
	it.limit_mib = 8192; /* limits are no part of it */
	req = place_request(500, it);
	snprintf(req.product, sizeof(req.product), "A|B");
	c = class_of(req);
	cr_expect_arr_eq(&c, &want, sizeof(c));
}

Test(workload, class_of_a_share_by_fraction)
{
	struct fr_class c = class_of(place_request(500, place_fraction(125000000)));

	cr_expect_eq(c.size_nano, 125000000);
	cr_expect_eq(c.size_mib, 0);
	cr_expect_eq(c.mode, ST_MODE_TIME_SLICING);
	cr_expect_eq(c.count, 1);
}

Test(workload, class_of_whole_gpus_and_of_mig_instances)
{
	struct fr_class w = whole(8000, 4),
			want_w = {.cpu_milli = 8000, .kind = ST_KIND_WHOLE, .count = 4};
	struct fr_class m = class_of(place_request(500, place_mig("1g.10gb+me", 2)));
	struct fr_class want_m = {
		.cpu_milli = 500, .kind = ST_KIND_MIG, .count = 2, .profile = "1g.10gb+me"};

	cr_expect_arr_eq(&w, &want_w, sizeof(w));
	cr_expect_arr_eq(&m, &want_m, sizeof(m));
}

/* What stands behind the end of a string in a request must not split a class. */
Test(workload, class_ignores_what_is_behind_strings)
{
	struct st_request a = place_request(500, place_mig("1g.5gb", 1)), b = a;
	struct fr_class ca, cb;

	memset(b.items[0].profile + 7, 'x', sizeof(b.items[0].profile) - 8);
	memset(b.product + 1, 'y', sizeof(b.product) - 2);
	ca = class_of(a);
	cb = class_of(b);
	cr_expect_arr_eq(&ca, &cb, sizeof(ca));
}

Test(workload, class_of_a_pod_with_several_containers_is_that_of_the_largest)
{
	static const struct {
		const char *what;
		struct st_item a, b; /* b is the larger */
	} rows[] = {
		{"more MiB",
		 {.kind = ST_KIND_SHARE, .count = 1, .request_mib = 1000},
		 {.kind = ST_KIND_SHARE, .count = 1, .request_mib = 2000}},
		{"more GPUs",
		 {.kind = ST_KIND_SHARE, .count = 1, .request_mib = 3000},
		 {.kind = ST_KIND_SHARE, .count = 2, .request_mib = 2000}},
		{"whole",
		 {.kind = ST_KIND_SHARE, .count = 1, .request_nano = 900000000},
		 {.kind = ST_KIND_WHOLE, .count = 1}},
		{"fraction and amount",
		 {.kind = ST_KIND_SHARE, .count = 1, .request_nano = 50000000},
		 {.kind = ST_KIND_SHARE, .count = 1, .request_mib = 40960}},
		{"share and instance",
		 {.kind = ST_KIND_SHARE, .count = 1, .request_mib = 100},
		 {.kind = ST_KIND_MIG, .count = 1, .profile = "7g.40gb"}},
		{"instances",
		 {.kind = ST_KIND_MIG, .count = 1, .profile = "1g.5gb"},
		 {.kind = ST_KIND_MIG, .count = 1, .profile = "3g.20gb"}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct st_request ab = place_request(500, rows[i].a),
				  b = place_request(500, rows[i].b);
		struct st_request ba = b;
		struct fr_class want = class_of(b), got;

		place_add(&ab, rows[i].b);
		place_add(&ba, rows[i].a);
		got = class_of(ab);
		cr_expect_arr_eq(&got, &want, sizeof(got), "%s", rows[i].what);
		got = class_of(ba);
		cr_expect_arr_eq(&got, &want, sizeof(got), "%s, the other way round", rows[i].what);
	}
}

/* A request that no node will ever meet is counted like others; its sums must not overflow. */
Test(workload, absurd_amounts_of_cpu)
{
	const struct row rows[] = {
		{class_of(place_request(INT64_MAX, place_whole(16))), 20000},
		{class_of(place_request(INT64_MAX - 7, place_share(INT32_MAX))), 20000},
	};
	struct fr_workload *w = built(rows, 2, 100, true);

	cr_expect_eq(w->count, 2);
	cr_expect_gt(w->cpu_sum, 0);
	cr_expect_gt(w->gpu_mib_sum, 0);
	fr_workload_free(w);
}

/* ---- counts ---- */

Test(workload, counts)
{
	const struct row rows[] = {{share(1, 10), 3}, {share(1, 20), 1}, {share(1, 10), 2}};
	struct fr_counts *c = counted(rows, 3);

	cr_expect_eq(fr_counts_classes(c), 2);
	cr_expect_eq(fr_counts_total(c), 6);
	fr_counts_halve(c); /* 5 -> 2, 1 -> gone */
	cr_expect_eq(fr_counts_classes(c), 1);
	cr_expect_eq(fr_counts_total(c), 2);
	fr_counts_halve(c);
	fr_counts_halve(c);
	cr_expect_eq(fr_counts_classes(c), 0);
	cr_expect_eq(fr_counts_total(c), 0);
	cr_assert_eq(fr_counts_add(c, &rows[0].cls, 7, NULL), 0);
	cr_expect_eq(fr_counts_total(c), 7);
	fr_counts_free(c);
	fr_counts_free(NULL);
}

/* ---- the workload ---- */

/* Count, CPU, size, devices, product: all descending. */
Test(workload, order)
{
	const struct row want[] = {
		{share(100, 1), 9},
		{share(900, 10), 5},
		{whole(800, 1), 5}, /* 1000 milli */
		{class_of(place_request(800, place_fraction(700000000))), 5},
		{share(800, 699), 5},
		{share(700, 10), 5},
		{whole(600, 2), 4},
		{whole(600, 1), 4},
		{of_product(whole(500, 1), "V100"), 3},
		{of_product(whole(500, 1), "T4"), 3},
		{whole(500, 1), 3},
		{class_of(place_cpu(400)), 3},
	};
	enum { N = sizeof(want) / sizeof(want[0]) };
	struct rng rng;
	struct row rows[N];

	rng_init(&rng, 1);
	for (int round = 0; round < 20; round++) {
		struct fr_workload *w;

		memcpy(rows, want, sizeof(rows));
		for (size_t i = N - 1; i > 0; i--) {
			size_t k = (size_t)rng_below(&rng, i + 1);
			struct row tmp = rows[i];

			rows[i] = rows[k];
			rows[k] = tmp;
		}
		w = built(rows, N, 100, false);
		cr_assert_eq(w->count, N);
		for (size_t i = 0; i < N; i++)
			expect_class(w, i, &want[i].cls, want[i].count);
		fr_workload_free(w);
	}
}

/* The shortest prefix with 100 * cum >= percent * total. */
Test(workload, popular_prefix)
{
	static const struct {
		int64_t counts[4];
		int percent;
		size_t kept;
	} rows[] = {
		{{90, 5, 3, 2}, 95, 2},    {{90, 4, 3, 3}, 95, 3},    {{94, 3, 2, 1}, 95, 2},
		{{95, 3, 1, 1}, 95, 1},    {{25, 25, 25, 25}, 95, 4}, {{25, 25, 25, 25}, 50, 2},
		{{25, 25, 25, 25}, 51, 3}, {{97, 1, 1, 1}, 100, 4},   {{97, 1, 1, 1}, 0, 1},
		{{97, 1, 1, 1}, -5, 1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct row r[4];
		struct fr_workload *w;
		int64_t sum = 0;

		for (int k = 0; k < 4; k++)
			r[k] = (struct row){share(1000 - k, 100), rows[i].counts[k]};
		w = built(r, 4, rows[i].percent, false);
		cr_assert_eq(w->count, rows[i].kept, "row %zu keeps %zu", i, w->count);
		for (size_t k = 0; k < w->count; k++) {
			expect_class(w, k, &r[k].cls, rows[i].counts[k]);
			sum += rows[i].counts[k];
		}
		cr_expect_eq(w->total, sum);
		fr_workload_free(w);
	}
}

/* The balance of GPU and CPU speaks of all classes, kept or not; those without GPU are left out. */
Test(workload, sums_are_over_all_classes)
{
	const struct row rows[] = {
		{whole(4000, 2), 90},
		{class_of(place_request(2000, place_fraction(250500000))), 6},
		{share(1000, 300), 3},
		{class_of(place_cpu(64000)), 50},
	};
	struct fr_workload *w = built(rows, 4, 50, true), *all = built(rows, 4, 95, false);

	cr_expect_eq(w->count, 1);
	cr_expect_eq(w->gpu_sum, 181500); /* 90 x 2000, 6 x 250 */
	cr_expect_eq(w->gpu_mib_sum, 900);
	cr_expect_eq(w->cpu_sum, 375000); /* 90 x 4000, 6 x 2000, 3 x 1000 */
	cr_expect_eq(all->gpu_sum, w->gpu_sum);
	cr_expect_eq(all->cpu_sum, w->cpu_sum);
	cr_expect_eq(all->total, 90 + 50 + 6);
	fr_workload_free(w);
	fr_workload_free(all);
}

/* The sizes that sums and order go by. */
Test(workload, milli_of_a_class)
{
	static const struct {
		struct st_item item;
		int64_t milli;
	} sizes[] = {
		{{.count = 0}, 0},
		{{.kind = ST_KIND_WHOLE, .count = 2}, 1000},
		{{.kind = ST_KIND_SHARE, .count = 1, .request_nano = 470500000}, 470},
		{{.kind = ST_KIND_SHARE, .count = 1, .request_mib = 300}, 300},
		{{.kind = ST_KIND_MIG, .count = 1, .profile = "1g.5gb"}, 142},
		{{.kind = ST_KIND_MIG, .count = 3, .profile = "3g.20gb"}, 428},
		{{.kind = ST_KIND_MIG, .count = 1, .profile = "7g.40gb"}, 1000},
		{{.kind = ST_KIND_MIG, .count = 1, .profile = "odd"}, 142},
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct st_request req = place_cpu(0);
		struct fr_class c;

		if (sizes[i].item.count > 0)
			place_add(&req, sizes[i].item);
		c = class_of(req);
		cr_expect_eq(fr_class_milli(&c), sizes[i].milli, "row %zu: %lld", i,
			     (long long)fr_class_milli(&c));
	}
}

Test(workload, gpu_only)
{
	const struct row rows[] = {{class_of(place_cpu(1000)), 70}, {whole(1000, 1), 30}};
	struct fr_workload *w = built(rows, 2, 95, true);

	cr_assert_eq(w->count, 1);
	expect_class(w, 0, &rows[1].cls, 30);
	cr_expect_eq(w->total, 30);
	fr_workload_free(w);
}

Test(workload, cpu_sum_is_never_zero)
{
	const struct row rows[] = {{whole(0, 1), 5}};
	struct fr_workload *w = built(rows, 1, 95, false);

	cr_expect_eq(w->cpu_sum, 1);
	fr_workload_free(w);
}

Test(workload, nothing_seen_gives_the_builtin_mix)
{
	const struct row only_cpu[] = {{class_of(place_cpu(1000)), 70}};
	const struct row zero[] = {{whole(1000, 1), 0}};
	struct fr_workload *w[3] = {built(NULL, 0, 95, false), built(only_cpu, 1, 95, true),
				    built(zero, 1, 95, false)};

	for (int i = 0; i < 3; i++) {
		int64_t sum = 0;

		cr_expect_geq(w[i]->count, 2);
		for (size_t k = 0; k < w[i]->count; k++) {
			cr_expect_gt(w[i]->classes[k].count, 0);
			cr_expect(k == 0 || w[i]->weights[k] <= w[i]->weights[k - 1]);
			sum += w[i]->weights[k];
		}
		cr_expect_eq(w[i]->total, sum);
		cr_expect_gt(w[i]->gpu_sum, 0);
		cr_expect_gt(w[i]->cpu_sum, 0);
		cr_expect_not(w[i]->mixed);
		cr_expect_arr_eq(w[i]->classes, w[0]->classes,
				 w[0]->count * sizeof(*w[0]->classes));
	}
	for (int i = 0; i < 3; i++)
		fr_workload_free(w[i]);
}

/* K stays near 2^20 however many pods were counted; nobody's weight falls to 0. */
Test(workload, weights_are_scaled_down)
{
	const struct row rows[] = {{share(3, 100), INT64_C(3) << 40},
				   {share(2, 100), INT64_C(1) << 40},
				   {share(1, 100), 1}};
	struct fr_workload *w = built(rows, 3, 100, false);

	cr_assert_eq(w->count, 3);
	/* The sum is 2^42 + 1, so each weight is the part of 2^20 rounded down. */
	cr_expect_eq(w->weights[0], (3 << 18) - 1);
	cr_expect_eq(w->weights[1], (1 << 18) - 1);
	cr_expect_eq(w->weights[2], 1);
	cr_expect_eq(w->total, (1 << 20) - 1);
	fr_workload_free(w);
}

Test(workload, weights_below_the_limit_are_the_counts)
{
	const struct row rows[] = {{share(2, 100), FR_WEIGHT_TOTAL_MAX - 7}, {share(1, 100), 7}};
	struct fr_workload *w = built(rows, 2, 100, false);

	expect_class(w, 0, &rows[0].cls, FR_WEIGHT_TOTAL_MAX - 7);
	expect_class(w, 1, &rows[1].cls, 7);
	cr_expect_eq(w->total, FR_WEIGHT_TOTAL_MAX);
	fr_workload_free(w);
}

Test(workload, at_most_so_many_classes)
{
	struct fr_counts *c = fr_counts_new();
	struct fr_workload *w;

	for (int i = 0; i < FR_CLASSES_MAX + 88; i++) {
		struct fr_class cls = share(1 + i, 100);

		cr_assert_eq(fr_counts_add(c, &cls, 10, NULL), 0);
	}
	w = fr_workload_build(c, 100, false);
	cr_assert_eq(w->count, FR_CLASSES_MAX);
	cr_expect_eq(w->total, INT64_C(10) * FR_CLASSES_MAX);
	cr_expect_eq(w->classes[0].cpu_milli, FR_CLASSES_MAX + 88);
	cr_expect_eq(w->classes[FR_CLASSES_MAX - 1].cpu_milli, 89);
	cr_expect_eq(w->gpu_mib_sum, INT64_C(1000) * (FR_CLASSES_MAX + 88));
	fr_workload_free(w);
	fr_counts_free(c);
}

/* Modes matter for ties only where GPUs of more than one mode are wanted. */
/* Pods without GPU of more kinds than there is room for do not push out what asks for GPUs. */
Test(workload, classes_without_gpu_make_room)
{
	struct fr_counts *c = fr_counts_new();
	struct fr_class gpu = whole(1000, 1);
	struct fr_workload *w;
	size_t with_gpu = 0;

	for (int i = 0; i < FR_CLASSES_MAX + 100; i++) {
		struct fr_class cls = class_of(place_cpu(100 + i));

		cr_assert_eq(fr_counts_add(c, &cls, i < 10 ? 20 : 10, NULL), 0);
	}
	for (int i = 0; i < 3; i++) {
		gpu.cpu_milli = 1000 * i;
		cr_assert_eq(fr_counts_add(c, &gpu, 5, NULL), 0);
	}
	w = fr_workload_build(c, 100, false);
	cr_expect_eq(w->count, FR_CLASSES_MAX);
	for (size_t i = 0; i < w->count; i++) {
		with_gpu += w->classes[i].count > 0;
		cr_expect(i == 0 || w->weights[i] <= w->weights[i - 1]);
	}
	cr_expect_eq(with_gpu, 3);
	cr_expect_eq(w->weights[0], 20);
	fr_workload_free(w);
	fr_counts_free(c);
}

Test(workload, mixed)
{
	const struct fr_class ts = share(3, 100), one = whole(2, 1), none = class_of(place_cpu(1));
	const struct fr_class sm = class_of(place_request(3, place_sm(100, 0)));
	const struct fr_class mig = class_of(place_request(3, place_mig("1g.5gb", 1)));
	const struct {
		struct row rows[3];
		bool mixed;
	} rows[] = {
		{{{ts, 5}, {one, 4}, {none, 3}}, false},  {{{sm, 5}, {one, 4}, {none, 3}}, false},
		{{{mig, 5}, {one, 4}, {none, 3}}, false}, {{{ts, 5}, {sm, 4}, {none, 3}}, true},
		{{{ts, 5}, {mig, 4}, {none, 3}}, true},   {{{sm, 5}, {mig, 4}, {one, 3}}, true},
		{{{ts, 98}, {one, 1}, {sm, 1}}, false}, /* not kept */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fr_workload *w = built(rows[i].rows, 3, i == 6 ? 95 : 100, false);

		cr_expect_eq(w->mixed, rows[i].mixed, "row %zu", i);
		fr_workload_free(w);
	}
}

/* ---- short of memory ---- */

Test(workload, oom)
{
	const struct fr_class a = share(1, 10), b = share(2, 10);
	struct fr_workload *w = NULL;
	struct fr_counts *c = NULL;
	bool hit = true;

	OOM_SWEEP(n) {
		int rc = 0;

		oom_fail_at(n);
		c = fr_counts_new();
		if (c)
			rc = fr_counts_add(c, &a, 3, NULL);
		hit = oom_disarm();
		if (!hit)
			break;
		cr_assert(!c || rc == ERR_NOMEM);
		if (c) {
			cr_assert_eq(fr_counts_total(c), 0);
			cr_assert_eq(fr_counts_classes(c), 0);
		}
		fr_counts_free(c);
	}
	OOM_SWEEP(n) {
		int rc;

		oom_fail_at(n);
		rc = fr_counts_add(c, &b, 1, NULL);
		hit = oom_disarm();
		if (!hit)
			break;
		cr_assert_eq(rc, ERR_NOMEM);
		cr_assert_eq(fr_counts_total(c), 3);
	}
	OOM_SWEEP(n) {
		oom_fail_at(n);
		w = fr_workload_build(c, 95, false);
		hit = oom_disarm();
		if (!hit)
			break;
		cr_assert_null(w);
	}
	cr_expect_eq(w->total, 4);
	fr_workload_free(w);
	fr_workload_free(NULL);
	fr_counts_free(c);
}

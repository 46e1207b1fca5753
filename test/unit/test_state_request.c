/* Items, modes, pod totals. */
#include <criterion/criterion.h>

#include "state/request.h"
#include "state/spec.h"

#define MIB (INT64_C(1) << 20)

Test(state_request, a_fraction_is_the_floor_of_the_allocatable_memory)
{
	struct st_item it = {.request_nano = 125000000};

	cr_expect_eq(st_item_request_mib(&it, 40960), 5120);
	cr_expect_eq(st_item_request_mib(&it, 46068), 5758);
	cr_expect_eq(st_item_limit_mib(&it, 46068), 5758, "no limit: the request");
	it.limit_nano = ST_NANO;
	cr_expect_eq(st_item_limit_mib(&it, 46068), 46068);
	it.request_nano = 1;
	cr_expect_eq(st_item_request_mib(&it, 46068), 1, "never nothing");
	cr_expect_eq(st_item_request_mib(&it, -5), 1);
	it.request_nano = 999999999;
	cr_expect_eq(st_item_request_mib(&it, INT32_MAX), INT32_MAX - 3);
}

Test(state_request, an_amount_is_taken_as_it_is)
{
	struct st_item it = {.request_mib = 3000};

	cr_expect_eq(st_item_request_mib(&it, 100), 3000);
	cr_expect_eq(st_item_limit_mib(&it, 100), 3000);
	it.limit_mib = 4000;
	cr_expect_eq(st_item_limit_mib(&it, 100), 4000);
}

Test(state_request, mode_names_go_both_ways)
{
	for (int m = 0; m < ST_MODE_COUNT; m++)
		cr_expect_eq(st_mode_parse(st_mode_name((enum st_mode)m)), m);
	cr_expect_eq(st_mode_parse("mps"), -1);
	cr_expect_eq(st_mode_parse(""), -1);
	cr_expect_str_eq(st_mode_name(ST_MODE_COUNT), "unknown");
	cr_expect_str_eq(st_mode_name(ST_MODE_SM_SHARING), "sm-sharing");
}

Test(state_spec, annotations_are_found_by_their_whole_key)
{
	struct st_kv kv[] = {{"a", "1"}, {"ab", "2"}, {"a", "3"}};
	struct st_pod_spec p = {.annotation_count = 3, .annotations = kv};

	cr_expect_str_eq(st_pod_annotation(&p, "ab"), "2");
	cr_expect_str_eq(st_pod_annotation(&p, "a"), "1");
	cr_expect_null(st_pod_annotation(&p, "b"));
}

static void totals(struct st_container_spec *k, size_t n, int64_t cpu, int64_t mem_mib)
{
	struct st_pod_spec p = {.container_count = n, .containers = k};
	int64_t c, m;

	st_pod_spec_totals(&p, &c, &m);
	cr_expect_eq(c, cpu, "%lld milli-CPU, not %lld", (long long)c, (long long)cpu);
	cr_expect_eq(m, mem_mib, "%lld MiB, not %lld", (long long)m, (long long)mem_mib);
}

Test(state_spec, pod_totals)
{
	struct st_container_spec plain[] = {{.cpu_milli = 100, .mem_bytes = 1},
					    {.cpu_milli = 200, .mem_bytes = MIB}};
	struct st_container_spec with_init[] = {
		{.init = true, .cpu_milli = 250, .mem_bytes = 10 * MIB},
		{.init = true, .cpu_milli = 400, .mem_bytes = MIB},
		{.cpu_milli = 300, .mem_bytes = 3 * MIB}};
	/* The second init container runs beside the sidecar that was started before it. */
	struct st_container_spec with_sidecar[] = {
		{.init = true, .cpu_milli = 900, .mem_bytes = MIB},
		{.init = true, .sidecar = true, .cpu_milli = 200, .mem_bytes = MIB},
		{.init = true, .cpu_milli = 750, .mem_bytes = 5 * MIB},
		{.cpu_milli = 700, .mem_bytes = 2 * MIB}};

	totals(NULL, 0, 0, 0);
	totals(plain, 2, 300, 2);
	totals(with_init, 3, 400, 10);
	totals(with_sidecar, 4, 950, 6);
	with_sidecar[3].cpu_milli = 800;
	totals(with_sidecar, 4, 1000, 6);
	plain[0].cpu_milli = plain[1].cpu_milli = INT64_MAX - 5;
	plain[0].mem_bytes = plain[1].mem_bytes = INT64_MAX;
	totals(plain, 2, INT64_MAX, INT64_MAX);
}

/* Kubernetes 1.34: what the pod as a whole asks for counts in the place of its containers' sum. */
Test(state_spec, pod_level_requests_replace_the_sum)
{
	struct st_container_spec k = {.cpu_milli = 100, .mem_bytes = MIB};
	struct st_pod_spec p = {.container_count = 1,
				.containers = &k,
				.overhead_cpu_milli = 50,
				.pod_cpu_given = true,
				.pod_cpu_milli = 2000};
	int64_t c, m;

	st_pod_spec_totals(&p, &c, &m);
	cr_expect(c == 2050 && m == 1); /* memory: not given */
	p.pod_mem_given = true;
	p.pod_mem_bytes = 5 * (int64_t)MIB;
	st_pod_spec_totals(&p, &c, &m);
	cr_expect(c == 2050 && m == 5);
}

Test(state_spec, overhead_is_added)
{
	struct st_container_spec k = {.cpu_milli = 100, .mem_bytes = MIB};
	struct st_pod_spec p = {.container_count = 1,
				.containers = &k,
				.overhead_cpu_milli = 50,
				.overhead_mem_bytes = 1};
	int64_t c, m;

	st_pod_spec_totals(&p, &c, &m);
	cr_expect(c == 150 && m == 2);
}

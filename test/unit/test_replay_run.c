/* Whole replays of small traces. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "replay/report.h"
#include "replay/run.h"
#include "test/lib/oom.h"
#include "test/unit/replay_fixture.h"

static struct rp_order order_of(const struct rp_trace *t, uint64_t seed)
{
	struct rp_order_options opt = {.seed = seed, .inflate_nano = 1300000000};
	struct err err = ERR_INIT;
	struct rp_order o;

	cr_assert_eq(rp_order_make(t, &opt, &o, &err), 0, "%s", err.msg);
	return o;
}

static void run(const struct rp_trace *t, const struct rp_order *o, struct rp_run_options opt,
		const char *policy, struct rp_result *ret)
{
	struct err err = ERR_INIT;

	opt.policy = po_policy_find(policy);
	cr_assert_eq(rp_run(t, o, &opt, ret, &err), 0, "%s: %s", policy, err.msg);
}

static uint32_t digest_of(const char *rows)
{
	uint32_t crc = 0;

	for (const char *s = rows; *s != '\0';) {
		size_t len = strcspn(s, "\n"), head = len;

		while (head > 0 && s[head - 1] != ',')
			head--;
		crc = (uint32_t)crc32(crc, (const unsigned char *)s, (unsigned)head - 1);
		crc = (uint32_t)crc32(crc, (const unsigned char *)"\n", 1);
		s += len + 1;
	}
	return crc;
}

Test(replay_run, every_policy_accounts_for_all_arrivals)
{
	struct rp_trace t;
	struct rp_order o;

	trace_of(&t, small_nodes, small_pods);
	o = order_of(&t, 3);
	for (size_t i = 0; po_policy_at(i) != NULL; i++) {
		struct buf rows = BUF_INIT;
		struct rp_result r;
		size_t failed = 0;

		run(&t, &o, (struct rp_run_options){.decisions = &rows, .check = true},
		    po_policy_at(i)->name, &r);
		for (size_t k = 0; k < RP_KINDS; k++)
			failed += r.failed[k];
		cr_expect_eq(r.arrivals, o.pod_count);
		cr_expect_eq(r.placed + failed, r.arrivals, "%s", r.policy);
		cr_expect_eq(r.total_milli, 20000);
		cr_expect_leq(r.used_milli, r.total_milli);
		cr_expect_eq(digest_of(buf_str(&rows)), r.placements_crc32, "%s", r.policy);
		buf_fini(&rows);
	}
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(replay_run, two_runs_are_equal_to_the_last_digit)
{
	static const char *const policies[] = {"ca-fgd", "random", "bestfit"};
	struct rp_trace t;
	struct rp_order o;

	trace_of(&t, small_nodes, small_pods);
	o = order_of(&t, 9);
	for (size_t i = 0; i < 3; i++)
		for (int ties = 0; ties < 2; ties++) {
			struct rp_run_options opt = {.ties = ties ? PO_TIES_RANDOM : PO_TIES_RANK,
						     .seed = 7};
			struct rp_result a, b;

			run(&t, &o, opt, policies[i], &a);
			run(&t, &o, opt, policies[i], &b);
			cr_assert_eq(a.placements_crc32, b.placements_crc32);
			cr_assert_eq(a.measure_num, b.measure_num);
		}
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(replay_run, failures_are_counted_by_kind)
{
	static const char pods[] = PODS_HEAD "a,1000,1,8,1000,\nb,1000,1,1,500,\nc,1000,1,1,1000,\n"
					     "d,90000,1,0,0,\ne,1000,1,2,1000,\nf,1000,1,1,500,\n";
	struct rp_order_options opt = {.seed = 1, .keep_file_order = true};
	struct err err = ERR_INIT;
	struct rp_result r;
	struct rp_trace t;
	struct rp_order o;

	trace_of(&t, NODES_HEAD "n,80000,1000,8,G2\n", pods);
	cr_assert_eq(rp_order_make(&t, &opt, &o, &err), 0);
	run(&t, &o, (struct rp_run_options){.check = true}, "fgd", &r);
	cr_assert_eq(r.placed, 1);
	cr_assert_eq(r.failed[RP_SHARED], 2);
	cr_assert_eq(r.failed[RP_ONE_GPU], 1);
	cr_assert_eq(r.failed[RP_MULTI_GPU], 1);
	cr_assert_eq(r.failed[RP_CPU_ONLY], 1);
	cr_assert_eq(r.used_milli, 8000);
	/* All arrivals count into the load, failed ones too: 12 of 8 GPUs. */
	cr_assert_eq(rp_curve_at(&r.curve, 150).alloc, 10000);
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(replay_run, nodes_without_gpu_are_refused)
{
	struct rp_run_options opt = {.policy = po_policy_at(0)};
	struct rp_order_options how = {.seed = 1};
	struct err err = ERR_INIT;
	struct rp_result r;
	struct rp_trace t;
	struct rp_order o;

	trace_of(&t, NODES_HEAD "n,80000,1000,0,\n", small_pods);
	cr_assert_eq(rp_order_make(&t, &how, &o, &err), 0);
	cr_assert_eq(rp_run(&t, &o, &opt, &r, &err), ERR_INVALID);
	cr_assert_str_eq(err.msg, "the nodes have no GPU");
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

/* One shot of the seeded draws: the workload may be learned while running, with a small cache. */
Test(replay_run, an_estimated_workload_and_a_small_cache_work_for_all_policies)
{
	struct rp_trace t;
	struct rp_order o;

	trace_of(&t, small_nodes, small_pods);
	o = order_of(&t, 4);
	for (size_t i = 0; po_policy_at(i) != NULL; i++) {
		struct rp_run_options opt = {.check = true, .online = true};
		struct rp_result a, b;

		run(&t, &o, opt, po_policy_at(i)->name, &a);
		opt.shapes_max = 1;
		run(&t, &o, opt, po_policy_at(i)->name, &b);
		cr_assert_eq(a.placements_crc32, b.placements_crc32, "%s", a.policy);
	}
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(replay_run, out_of_memory_is_an_error_everywhere)
{
	static const char *const policies[] = {"fgd", "ca-fgd", "packing"};
	struct rp_trace t;
	struct rp_order o;
	int rc = 0;

	trace_of(&t, small_nodes, small_pods);
	o = order_of(&t, 3);
	for (size_t i = 0; i < 3; i++) {
		struct rp_run_options opt = {.policy = po_policy_find(policies[i])};

		OOM_SWEEP(n) {
			struct buf rows = BUF_INIT;
			struct err err = ERR_INIT;
			struct rp_result r;
			bool hit;

			opt.decisions = &rows;
			oom_fail_at(n);
			rc = rp_run(&t, &o, &opt, &r, &err);
			hit = oom_disarm();
			buf_fini(&rows);
			if (!hit)
				break;
			cr_assert(rc == ERR_NOMEM || rc == 0, "%s, allocation %u: %d %s",
				  policies[i], n, rc, err.msg);
		}
		cr_assert_eq(rc, 0);
	}
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

/* ---- reports ---- */

Test(replay_report, csv_and_json_hold_what_the_curve_says)
{
	struct buf csv = BUF_INIT;
	struct rp_result *r = calloc(2, sizeof(*r));
	struct rp_trace t;
	struct rp_order o;
	char *json;

	trace_of(&t, small_nodes, small_pods);
	o = order_of(&t, 3);
	run(&t, &o, (struct rp_run_options){.seed = 3}, "fgd", &r[0]);
	run(&t, &o, (struct rp_run_options){.seed = 3, .ties = PO_TIES_RANDOM}, "bestfit", &r[1]);
	rp_report_csv(&csv, r, 2);
	cr_assert_not_null(strstr(buf_str(&csv), "policy,ties,seed,arrived_pct,alloc_pct,frag_pct,"
						 "frag_ratio_pct\nfgd,rank,3,"));
	cr_assert_not_null(strstr(buf_str(&csv), "\nbestfit,random,3,"));
	json = rp_report_json(r, 2);
	cr_assert_not_null(json);
	cr_assert_not_null(strstr(json, "\"policy\":\t\"fgd\""));
	cr_assert_not_null(strstr(json, "\"alloc_pct\""));
	cr_assert_not_null(strstr(json, "\"placements_crc32\""));
	free(json);
	buf_fini(&csv);
	free(r);
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

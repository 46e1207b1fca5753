/* Requests against measured peaks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "replay/sizing.h"

#define ROW(name, rest)                                                                            \
	"{\"namespace\":\"ns\",\"kind\":\"Deployment\",\"workload\":\"" name                       \
	"\",\"container\":\"main\"," rest "}"
#define DOC(rows) "{\"version\":1,\"workloads\":[" rows "]}"

Test(replay_sizing, sightings_of_several_nodes_are_one_row)
{
	static const char one[] = DOC(ROW("w", "\"peak_memory_mib\":100,\"peak_sm_percent\":null,"
					       "\"request_mib\":1000,\"samples\":60"));
	static const char two[] = DOC(ROW("w", "\"peak_memory_mib\":300,\"peak_sm_percent\":7,"
					       "\"request_mib\":1000,\"samples\":60"));
	struct rp_sizing s = {0};
	struct err err = ERR_INIT;
	struct rp_size z;

	cr_assert_eq(rp_sizing_read(&s, one, sizeof(one) - 1, &err), 0, "%s", err.msg);
	cr_assert_eq(rp_sizing_read(&s, two, sizeof(two) - 1, &err), 0, "%s", err.msg);
	cr_assert_eq(s.count, 1);
	cr_expect(s.rows[0].peak_mib == 300 && s.rows[0].sm_percent == 7 &&
		  s.rows[0].samples == 120 && s.rows[0].limit_mib == RP_USAGE_UNKNOWN);
	z = rp_sizing_of(&s.rows[0], 100000000, 100);
	cr_expect(z.advice == RP_LESS && z.advised_mib == 330 && z.freed_mib == 670);
	rp_sizing_fini(&s);
}

Test(replay_sizing, advice)
{
	static const struct {
		int64_t peak, request, samples;
		enum rp_advice advice;
		int64_t advised, freed;
	} rows[] = {
		{100, 1000, 100, RP_LESS, 110, 890},
		{101, 1000, 100, RP_LESS, 112, 888},
		{0, 1000, 100, RP_LESS, 2, 998},
		{100, 1000, 99, RP_TOO_FEW, 1000, 0},
		{909, 1000, 100, RP_KEEP, 1000, 0},
		{1000, 1000, 100, RP_KEEP, 1000, 0},
		{1001, 1000, 1, RP_MORE, 1102, -102},
		{RP_USAGE_UNKNOWN, 1000, 100, RP_NOT_MEASURED, 1000, 0},
		{100, RP_USAGE_UNKNOWN, 100, RP_NOT_MEASURED, 0, 0},
		{100, 0, 100, RP_NOT_MEASURED, 0, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rp_usage u = {.peak_mib = rows[i].peak,
				     .request_mib = rows[i].request,
				     .samples = rows[i].samples};
		struct rp_size z = rp_sizing_of(&u, 100000000, 100);

		cr_expect(z.advice == rows[i].advice && z.advised_mib == rows[i].advised &&
				  z.freed_mib == rows[i].freed,
			  "row %zu: %s %ld %ld", i, rp_advice_name(z.advice), (long)z.advised_mib,
			  (long)z.freed_mib);
	}
}

Test(replay_sizing, advice_is_never_below_the_peak)
{
	struct rng rng;

	rng_init(&rng, 3);
	for (int i = 0; i < 100000; i++) {
		struct rp_usage u = {.peak_mib = (int64_t)rng_below(&rng, 100000),
				     .request_mib = 1 + (int64_t)rng_below(&rng, 100000),
				     .samples = (int64_t)rng_below(&rng, 200)};
		struct rp_size z = rp_sizing_of(&u, (int64_t)rng_below(&rng, 1000000000), 100);

		if (z.advice != RP_TOO_FEW)
			cr_assert_geq(z.advised_mib, u.peak_mib);
		cr_assert_geq(z.advised_mib, u.peak_mib < u.request_mib ? u.peak_mib : 1);
		cr_assert_eq(z.advice == RP_LESS, z.freed_mib > 0);
	}
}

Test(replay_sizing, what_is_no_export_is_refused)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"", ""},
		{"[]", "not a list of workloads in version 1"},
		{"{\"version\":2,\"workloads\":[]}", "version 1"},
		{"{\"version\":1}", "version 1"},
		{DOC("1"), "workloads[0] is not an object"},
		{DOC("{}"), "workloads[0].namespace is not a name"},
		{DOC(ROW("", "\"samples\":1")), "workloads[0].workload is not a name"},
		{DOC(ROW("w", "\"samples\":1.5")), "workloads[0].samples is not a whole number"},
		{DOC(ROW("w", "\"samples\":1") "," ROW("v", "\"request_mib\":-1")),
		 "workloads[1].request_mib is not a whole number"},
		{DOC(ROW("w", "\"peak_sm_percent\":101")), "workloads[0].peak_sm_percent"},
		{DOC(ROW("w", "\"peak_memory_mib\":\"9\"")), "workloads[0].peak_memory_mib"},
		{DOC(ROW("w", "\"peak_memory_mib\":1e30")), "workloads[0].peak_memory_mib"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rp_sizing s = {0};
		struct err err = ERR_INIT;

		cr_expect_eq(rp_sizing_read(&s, bad[i].text, strlen(bad[i].text), &err),
			     ERR_INVALID, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, bad[i].message), "row %zu: %s", i, err.msg);
		rp_sizing_fini(&s);
	}
}

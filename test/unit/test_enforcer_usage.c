/* Peaks of workloads, and their file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/usage.h"
#include "test/lib/oom.h"

static void put(struct en_usage *u, const char *owner, int64_t mib, int sm, int64_t wall_s)
{
	const struct en_usage_sample s = {.ns = "ns",
					  .kind = "Deployment",
					  .owner = owner,
					  .container = "main",
					  .used_mib = mib,
					  .sm_percent = sm,
					  .request_mib = 1000,
					  .limit_mib = 2000,
					  .wall_s = wall_s};
	struct err err = ERR_INIT;

	cr_assert_eq(en_usage_put(u, &s, &err), 0, "%s", err.msg);
}

static void expect_json(struct en_usage *u, const char *want)
{
	struct buf b = BUF_INIT;

	cr_assert_eq(en_usage_json(u, &b, NULL), 0);
	cr_expect_str_eq(buf_str(&b), want);
	buf_fini(&b);
}

#define ROW(owner, mib, at, sm, samples, first, last)                                              \
	"{\"namespace\":\"ns\",\"kind\":\"Deployment\",\"workload\":\"" owner                      \
	"\",\"container\":\"main\",\"peak_memory_mib\":" mib ",\"peak_memory_time\":" at           \
	",\"peak_sm_percent\":" sm ",\"request_mib\":1000,\"limit_mib\":2000,\"samples\":" samples \
	",\"first\":" first ",\"last\":" last "}"
#define DOC(rows) "{\"version\":1,\"workloads\":[" rows "]}\n"

Test(enforcer_usage, the_highest_sample_of_any_pod_stays)
{
	struct en_usage *u = en_usage_new();

	cr_assert_not_null(u);
	expect_json(u, DOC(""));
	put(u, "web", 700, -1, 10);
	put(u, "web", 900, 40, 20);
	put(u, "web", 800, 30, 30);
	put(u, "api", -1, 5, 15);
	expect_json(u, DOC(ROW("api", "null", "null", "5", "1", "15",
			       "15") "," ROW("web", "900", "20", "40", "3", "10", "30")));
	cr_expect_eq(en_usage_count(u), 2);
	en_usage_free(u);
}

Test(enforcer_usage, a_file_outlives_the_agent)
{
	char dir[] = "/tmp/tessera-usage-XXXXXX", path[64];
	struct en_usage *u = en_usage_new();
	struct err err = ERR_INIT;

	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/usage.json", dir);
	cr_assert_eq(en_usage_load(u, path, &err), 0, "no file is an empty one: %s", err.msg);
	cr_assert_eq(en_usage_save(u, path, &err), 0);
	cr_expect_eq(access(path, F_OK), -1, "nothing changed: nothing is written");
	put(u, "web", 900, 40, 20);
	cr_assert_eq(en_usage_save(u, path, &err), 0, "%s", err.msg);
	en_usage_free(u);

	u = en_usage_new();
	put(u, "web", 950, 10, 50); /* measured before the file was read */
	cr_assert_eq(en_usage_load(u, path, &err), 0, "%s", err.msg);
	expect_json(u, DOC(ROW("web", "950", "50", "40", "2", "20", "50")));
	en_usage_free(u);
	unlink(path);
	rmdir(dir);
}

Test(enforcer_usage, a_wrong_file_changes_nothing)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{"{}", "not a list of workloads in version 1"},
		{"{\"version\":2,\"workloads\":[]}", "not a list of workloads in version 1"},
		{"{\"version\":1,\"workloads\":[{}]}", "workloads[0].namespace is not a name"},
		{DOC(ROW("a", "1", "1", "1", "1", "1", "1") "," ROW("b", "-1", "1", "1", "1", "1",
								    "1")),
		 "workloads[1].peak_memory_mib is not a whole number"},
		{DOC(ROW("a", "1e300", "1", "1", "1", "1", "1")),
		 "workloads[0].peak_memory_mib is not a whole number"},
		{DOC(ROW("a", "1.5", "1", "1", "1", "1", "1")),
		 "workloads[0].peak_memory_mib is not a whole number"},
		{DOC(ROW("a\\nb", "1", "1", "1", "1", "1", "1")),
		 "workloads[0].workload is not a name"},
	};
	struct en_usage *u = en_usage_new();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;

		cr_expect_eq(en_usage_take(u, rows[i].text, strlen(rows[i].text), &err),
			     ERR_INVALID, "%zu", i);
		cr_expect_str_eq(err.msg, rows[i].why);
	}
	expect_json(u, DOC(""));
	en_usage_free(u);
}

Test(enforcer_usage, the_oldest_makes_room)
{
	struct en_usage *u = en_usage_new();
	struct buf b = BUF_INIT;
	char name[32];

	for (int i = 0; i <= EN_USAGE_ROWS_MAX; i++) {
		snprintf(name, sizeof(name), "w%d", i);
		put(u, name, i, 1, i == 7 ? 1 : 100 + i);
	}
	cr_expect_eq(en_usage_count(u), EN_USAGE_ROWS_MAX);
	cr_assert_eq(en_usage_json(u, &b, NULL), 0);
	cr_expect(strstr(buf_str(&b), "\"w7\"") == NULL, "seen longest ago");
	cr_expect(strstr(buf_str(&b), "\"w0\"") != NULL);
	buf_fini(&b);
	en_usage_free(u);
}

Test(enforcer_usage, out_of_memory)
{
	const struct en_usage_sample s = {
		.ns = "ns", .kind = "Pod", .owner = "p", .container = "c", .used_mib = 5};

	OOM_SWEEP(n) {
		struct en_usage *u = en_usage_new();
		int r;

		oom_fail_at(n);
		r = en_usage_put(u, &s, NULL);
		if (!oom_disarm()) {
			cr_expect_eq(r, 0);
			cr_expect_gt(n, 1);
			en_usage_free(u);
			break;
		}
		cr_expect_eq(r, ERR_NOMEM);
		cr_expect_eq(en_usage_count(u), 0);
		en_usage_free(u);
	}
}

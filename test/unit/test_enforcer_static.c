/* Allocations from a file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "enforcer/apply.h"
#include "enforcer/static.h"
#include "test/lib/enforcer_fixture.h"

#define GPU0 "GPU-00000000-0000-4000-8000-000000000000"
#define GPU1 "GPU-00000001-0000-4000-8000-000000000000"

static int parse(const char *text, struct en_static **ret, struct err *err)
{
	const struct st_contract_options opt = {.prefix = NULL};

	return en_static_parse(text, strlen(text), "n", &opt, ret, err);
}

static void plan_of(const struct en_static *s, struct ef_node *n, const char *pod,
		    const char *container, struct en_plan *ret)
{
	const struct st_annotations *a = en_static_find(s, "default", pod);
	struct st_pod_spec spec = {.uid = "u", .ns = "default", .name = pod, .node = "n"};
	const struct en_apply_options opt = {.hook_path = NULL};
	struct err err = ERR_INIT;

	cr_assert_not_null(a, "%s", pod);
	spec.annotations = a->kv;
	spec.annotation_count = a->count;
	cr_assert_eq(en_plan_make(&n->node, &spec, container, &opt, ret, &err), 0, "%s", err.msg);
}

/* What the file says is applied as what an extender writes, distrust included. */
Test(enforcer_static, shares_whole_and_mig)
{
	static struct ef_node n;
	struct en_static *s = NULL;
	struct err err = ERR_INIT;
	struct en_plan p;

	ef_node_init(&n, "n", 3, 81920);
	ef_node_instance(&n, 2, "1g.10gb", 2);
	cr_assert_eq(
		parse("{\"allocations\":["
		      "{\"pod\":\"a\",\"container\":\"main\",\"gpus\":[\"" GPU0
		      "\"],\"memory\":\"20Gi\",\"memory-limit\":\"24Gi\",\"mode\":\"sm-sharing\","
		      "\"compute\":\"0.25\"},"
		      "{\"pod\":\"a\",\"container\":\"side\",\"gpus\":[\"" GPU0
		      "\"],\"memory\":\"1Gi\",\"mode\":\"sm-sharing\"},"
		      "{\"namespace\":\"default\",\"pod\":\"b\",\"container\":\"main\",\"gpus\":[\"" GPU1
		      "\"],\"whole\":true},"
		      "{\"pod\":\"c\",\"container\":\"main\",\"gpus\":"
		      "[\"GPU-00000002-0000-4000-8000-000000000000\"],\"mig-profile\":\"1g.10gb\","
		      "\"mig-start\":[2]},"
		      "{\"pod\":\"d\",\"container\":\"main\",\"gpus\":[\"GPU-elsewhere\"],"
		      "\"memory\":\"1Gi\"}]}",
		      &s, &err),
		0, "%s", err.msg);
	cr_expect_eq(en_static_count(s), 4);
	cr_expect_null(en_static_find(s, "other", "a"));

	plan_of(s, &n, "a", "main", &p);
	cr_assert_eq(p.verdict, EN_GIVE, "%s", p.why);
	cr_expect_eq(p.grant.request_mib, 20480);
	cr_expect_eq(p.grant.limit_mib, 24576);
	cr_expect_eq(p.grant.mode, ST_MODE_SM_SHARING);
	cr_expect_eq(p.percent, 25);
	plan_of(s, &n, "a", "other", &p);
	cr_expect_eq(p.verdict, EN_HIDE);
	plan_of(s, &n, "b", "main", &p);
	cr_assert_eq(p.verdict, EN_GIVE, "%s", p.why);
	cr_expect_eq(p.grant.kind, ST_KIND_WHOLE);
	cr_expect_eq(p.grant.gpu[0], 1);
	plan_of(s, &n, "c", "main", &p);
	cr_assert_eq(p.verdict, EN_GIVE, "%s", p.why);
	cr_expect_eq(p.grant.kind, ST_KIND_MIG);
	cr_expect_eq(p.grant.start[0], 2);
	plan_of(s, &n, "d", "main", &p);
	cr_expect_eq(p.verdict, EN_REFUSE, "a GPU that is not here");
	en_static_free(s);
}

Test(enforcer_static, the_example_is_right)
{
	const struct st_contract_options opt = {.prefix = NULL};
	struct en_static *s = NULL;
	struct err err = ERR_INIT;

	cr_assert_eq(en_static_load("deploy/enforcer/static.json", "n", &opt, &s, &err), 0, "%s",
		     err.msg);
	cr_expect_eq(en_static_count(s), 4);
	en_static_free(s);
}

#define ONE(fields) "{\"allocations\":[{\"pod\":\"a\",\"container\":\"main\"" fields "}]}"
#define ON_GPU0 ",\"gpus\":[\"" GPU0 "\"]"

Test(enforcer_static, wrong_files_name_entry_and_field)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{"{}", "allocations: missing, or not a list"},
		{"{\"allocations\":[1]}", "allocations[0] is not an object"},
		{ONE(",\"memroy\":\"1Gi\""), "allocations[0].memroy: no such field"},
		{"{\"allocations\":[{\"container\":\"m\"}]}", "allocations[0].pod is missing"},
		{ONE(""), "allocations[0] needs one of memory, whole, mig-profile"},
		{ONE(ON_GPU0 ",\"memory\":\"1Gi\",\"whole\":true"),
		 "allocations[0] needs one of memory, whole, mig-profile"},
		{ONE(",\"memory\":\"1Gi\""), "allocations[0].gpus is no list of 1 to 16 GPUs"},
		{ONE(",\"memory\":\"1Gi\",\"gpus\":[\"0\"]"),
		 "allocations[0].gpus[0] is not the UUID of a GPU"},
		{ONE(",\"memory\":\"1Gi\",\"gpus\":[\"" GPU0 "\",\"" GPU0 "\"]"),
		 "allocations[0].gpus has " GPU0 " twice"},
		{ONE(ON_GPU0 ",\"memory\":\"0\""),
		 "allocations[0].memory: \"0\" is not 1 MiB or more of a GPU"},
		{ONE(ON_GPU0 ",\"memory\":4096"), "allocations[0].memory is not a text"},
		{ONE(ON_GPU0 ",\"memory\":\"2Gi\",\"memory-limit\":\"1Gi\""),
		 "allocations[0].memory-limit is 1024 MiB, below the memory of 2048"},
		{ONE(ON_GPU0 ",\"memory\":\"2Gi\",\"mode\":\"fast\""),
		 "allocations[0].mode is \"fast\", not time-slicing or sm-sharing"},
		{ONE(ON_GPU0 ",\"memory\":\"2Gi\",\"compute\":\"1.5\""),
		 "allocations[0].compute: \"1.5\" is not in (0, 1]"},
		{ONE(ON_GPU0 ",\"mig-profile\":\"1g.10gb\""),
		 "allocations[0].mig-start has not a number for each of 1 GPUs"},
		{ONE(ON_GPU0 ",\"mig-profile\":\"1g.10gb\",\"mig-start\":[-1]"),
		 "allocations[0].mig-start[0] is no memory unit"},
		{"{\"allocations\":[{\"pod\":\"a\",\"container\":\"m\",\"whole\":true" ON_GPU0
		 "},{\"pod\":\"a\",\"container\":\"m\",\"whole\":true" ON_GPU0 "}]}",
		 "allocations[1].container: m has an allocation already"},
		{"{\"allocations\":[{\"pod\":\"a\",\"container\":\"m.n\",\"whole\":true" ON_GPU0
		 "}]}",
		 "allocations[0].container: \"m.n\" is no container name"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct en_static *s = NULL;
		struct err err = ERR_INIT;

		cr_expect_lt(parse(rows[i].text, &s, &err), 0, "%s", rows[i].text);
		cr_expect_str_eq(err.msg, rows[i].why);
		cr_expect_null(s);
	}
}

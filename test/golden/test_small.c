/* A small trace of our own with the placements that test/golden/reference.py, which shares no code
 * with the programs, says each policy makes. See small/README.md for how the files were made. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "replay/run.h"

static char *slurp(const char *name)
{
	struct err err = ERR_INIT;
	char path[256], *text = NULL;
	size_t len;

	snprintf(path, sizeof(path), "test/golden/small/%s", name);
	cr_assert_eq(file_read(path, 1 << 24, &text, &len, &err), 0, "%s", err.msg);
	return text;
}

static void same_placements(const char *policy, size_t shapes_max)
{
	struct rp_run_options opt = {
		.policy = po_policy_find(policy), .shapes_max = shapes_max, .check = true};
	struct buf rows = BUF_INIT;
	struct err err = ERR_INIT;
	struct rp_result r;
	struct rp_trace t;
	struct rp_order o;
	char name[64], *order, *want, *w;
	const char *mine;

	rp_trace_init(&t);
	cr_assert_eq(rp_trace_load(&t, "test/golden/small/nodes.csv", "test/golden/small/pods.csv",
				   NULL, NULL, &err),
		     0, "%s", err.msg);
	order = slurp("order.txt");
	cr_assert_eq(rp_order_read(&t, "order.txt", order, strlen(order), &o, &err), 0, "%s",
		     err.msg);
	opt.decisions = &rows;
	cr_assert_eq(rp_run(&t, &o, &opt, &r, &err), 0, "%s", err.msg);
	snprintf(name, sizeof(name), "expected_%s.csv", policy);
	want = slurp(name);
	mine = buf_str(&rows);
	for (w = strchr(want, '\n') + 1; *w != '\0';) {
		size_t n = strcspn(w, "\n"), m = strcspn(mine, "\n");

		cr_assert(n == m && memcmp(w, mine, n) == 0, "%s: expected %.*s, got %.*s", policy,
			  (int)n, w, (int)m, mine);
		w += n + 1;
		mine += m + 1;
	}
	cr_assert_eq(*mine, '\0');
	free(want);
	free(order);
	buf_fini(&rows);
	rp_order_fini(&o);
	rp_trace_fini(&t);
}

Test(small, fgd)
{
	same_placements("fgd", 0);
}

Test(small, ca_fgd)
{
	same_placements("ca-fgd", 0);
}

Test(small, bestfit)
{
	same_placements("bestfit", 0);
}

Test(small, dotprod)
{
	same_placements("dotprod", 0);
}

Test(small, clustering)
{
	same_placements("clustering", 0);
}

Test(small, packing)
{
	same_placements("packing", 0);
}

Test(small, spread)
{
	same_placements("spread", 0);
}

Test(small, without_a_cache_the_same)
{
	same_placements("fgd", 1);
	same_placements("ca-fgd", 1);
}

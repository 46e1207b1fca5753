/* The report: one file that needs nothing else, the same whatever the number of jobs, and nothing from
 * outside in it unescaped. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "replay/command.h"
#include "replay/stranded.h"
#include "replay/svg.h"
#include "test/unit/replay_fixture.h"

static char *report(const char *extra, const char *jobs, const char *option)
{
	const struct rp_command self = {"run", "", "", rp_cmd_run};
	char path[] = "/tmp/tessera-XXXXXX", words[512], *argv[32], *rest = words, *text = NULL;
	struct err err = ERR_INIT;
	int argc = 0, fd = mkstemp(path);
	size_t len;

	cr_assert_geq(fd, 0);
	close(fd);
	snprintf(words, sizeof(words),
		 "--nodes test/golden/small/nodes.csv --pods test/golden/small/pods.csv --policy "
		 "ca-fgd,bestfit,random --seed 1-3 --quiet %s --jobs %s %s %s",
		 extra, jobs, option, path);
	while (rest != NULL && argc < 32) {
		argv[argc] = strsep(&rest, " ");
		argc += argv[argc][0] != '\0';
	}
	cr_assert_not_null(freopen("/dev/null", "w", stdout));
	cr_assert_eq(rp_cmd_run(&self, argc, argv), 0);
	cr_assert_eq(file_read(path, 1 << 24, &text, &len, &err), 0, "%s", err.msg);
	unlink(path);
	return text;
}

/* What differs is the command itself: the name of the file and the number of jobs. */
static void without_command(char *text)
{
	char *begin = strstr(text, "<pre>"), *end = strstr(text, "</pre>");

	cr_assert(begin != NULL && end != NULL);
	memmove(begin, end, strlen(end) + 1);
}

static void check_page(const char *text)
{
	static const char *const never[] = {"http:", "https:", "<script", "src=", "@import",
					    "url(",  "nan",    "inf\"",   "-nan"};

	cr_assert_lt(strlen(text), 2000000);
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		cr_expect_null(strstr(text, never[i]), "%s", never[i]);
	cr_expect_not_null(strstr(text, "</html>"));
	cr_expect_not_null(strstr(text, "tessera-replay run --nodes test/golden/small/nodes.csv"));
	cr_expect_not_null(strstr(text, "Seeds 1, 2, 3"));
	cr_expect_not_null(strstr(text, "prefers-color-scheme: dark"));
	cr_expect_not_null(strstr(text, "@media print"));
}

Test(replay_html, a_report_needs_nothing_else_and_does_not_depend_on_jobs)
{
	static const char *const extra[] = {"", "--time made --arrivals 300"};

	for (size_t i = 0; i < 2; i++) {
		char *one = report(extra[i], "1", "--html"),
		     *four = report(extra[i], "4", "--html");

		check_page(one);
		cr_expect_not_null(strstr(one, "Idle GPU at the end"));
		cr_expect_not_null(
			strstr(one, i == 0 ? "GPU in use, near full load" : "Waiting times"));
		without_command(one);
		without_command(four);
		cr_expect_str_eq(one, four);
		free(one);
		free(four);
	}
}

Test(replay_html, the_numbers_are_those_of_the_csv)
{
	char *html = report("", "2", "--html"), *csv = report("", "2", "--csv");
	size_t rows = 0;

	for (char *rest = csv, *line; (line = strsep(&rest, "\n")) != NULL; rows++)
		cr_expect_not_null(strstr(html, line), "%s", line);
	cr_expect_gt(rows, 100);
	free(html);
	free(csv);
}

Test(replay_html, the_charts_alone_are_a_picture)
{
	char *svg = report("", "2", "--svg");

	cr_expect_eq(strncmp(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39), 0);
	cr_expect_not_null(strstr(svg, "</svg>"));
	free(svg);
}

Test(replay_html, text_is_escaped)
{
	struct buf b = BUF_INIT;

	rp_svg_text(&b, "<a href=\"x\" b='y'>&\n\x01");
	cr_expect_str_eq(buf_str(&b), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
	buf_fini(&b);
}

/* ---- what keeps idle GPU from being used ---- */

Test(replay_stranded, reasons_by_hand)
{
	/* a: no CPU for q; b: a GPU of 400 left and an idle one; c: another product. */
	static const char nodes[] = NODES_HEAD "a,1000,400000,2,G2\nb,90000,400000,2,G2\n"
					       "c,90000,100,1,T4\n";
	static const char pods[] = PODS_HEAD "p,500,1000,1,600,G2\nq,8000,1000,1,600,G2\n";
	struct po_options opt = {.policy = po_policy_find("bestfit")};
	struct st_cluster *c = NULL;
	struct po_placer *p;
	struct rp_stranded s;
	struct st_decision d;
	struct err err = ERR_INIT;
	struct rp_trace t;
	struct st_pod_ident id = {.uid = "x", .ns = "", .name = "x", .cpu_milli = 500};

	trace_of(&t, nodes, pods);
	cr_assert_eq(rp_trace_cluster(&t, NULL, &c, &err), 0);
	p = po_placer_new(c, &opt);
	cr_assert_eq(po_placer_choose(p, &t.shapes[t.pods[0]].req, 1, 0, &d), BP_OK);
	cr_assert_eq(st_cluster_reserve(c, &id, &d, &err), 0);
	cr_assert_eq(rp_stranded_find(&t, c, p, &s, &err), 0);
	/* Idle: 2000 + 1400 + 1000. p fits on a and b, q on b only. */
	cr_expect_eq(s.idle_milli, 4400);
	cr_expect_eq(s.why_milli[RP_WHY_CPU], 1000);
	cr_expect_eq(s.why_milli[RP_WHY_PRODUCT], 1000);
	cr_expect_eq(s.why_milli[RP_WHY_USABLE], 2400);
	cr_expect_eq(s.model_count, 2);
	cr_expect_eq(s.models[0].total_milli, 4000);
	cr_expect_eq(s.models[0].used_milli, 600);
	po_placer_free(p);
	st_cluster_free(c);
	rp_trace_fini(&t);
}

Test(replay_html, one_seed_has_neither_mean_nor_deviation)
{
	char *one = report("--seed 4", "1", "--html"), *three = report("", "1", "--html");

	cr_expect_not_null(strstr(one, "Seed 4."));
	cr_expect_null(strstr(one, "sd:"));
	cr_expect_null(strstr(one, "Mean over"));
	cr_expect_not_null(strstr(three, "sd:"));
	cr_expect_not_null(strstr(three, "Mean over the seeds. The line bends"));
	free(one);
	free(three);
}

#include "replay/report_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "replay/report.h"
#include "replay/report_time.h"
#include "replay/stat.h"
#include "replay/stranded.h"
#include "replay/svg.h"

static const char style[] =
	"body{margin:0 auto;max-width:60rem;padding:1rem 1.5rem;background:var(--ground);"
	"color:var(--ink);font:16px/1.5 sans-serif}"
	"h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .3rem}"
	"pre{overflow-x:auto;border:1px solid var(--grid);padding:.6rem;white-space:pre-wrap;"
	"overflow-wrap:anywhere}"
	"figure{margin:1.2rem 0;break-inside:avoid}svg{width:100%;height:auto;display:block}"
	".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}"
	"th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--grid);"
	"white-space:nowrap}th:first-child,td:first-child{text-align:left}tr.sum{font-weight:bold}"
	"summary{cursor:pointer}.note{font-size:.9rem}"
	"@media print{body{max-width:none;padding:0;font-size:11pt}.scroll{overflow:visible}table{font-size:7.5pt}th,td{padding:.1rem .25rem}"
	"pre{border-color:#999}}\n";

/* As one word of a shell, quoted only where it has to be. */
static void put_word(struct buf *b, const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_-./=,:%+@";

	if (s[0] != '\0' && strspn(s, plain) == strlen(s)) {
		rp_svg_text(b, s);
		return;
	}
	buf_puts(b, "&#39;");
	for (; *s != '\0'; s++) {
		char one[2] = {*s, '\0'};

		if (*s == '\'')
			buf_puts(b, "&#39;\\&#39;&#39;");
		else
			rp_svg_text(b, one);
	}
	buf_puts(b, "&#39;");
}

static void put_command(struct buf *b, const struct rp_report *r)
{
	buf_puts(b, "<pre>tessera-replay ");
	rp_svg_text(b, r->command);
	for (int i = 0; i < r->argc; i++) {
		buf_putc(b, ' ');
		put_word(b, r->argv[i]);
	}
	buf_puts(b, "</pre>\n");
}

static bool many_seeds(const struct rp_charts *c)
{
	struct rp_group groups[RP_GROUPS_MAX];

	return rp_charts_groups(c, groups) > 0 && groups[0].count > 1;
}

static void put_seeds(struct buf *b, const struct rp_charts *c)
{
	struct rp_group groups[RP_GROUPS_MAX];
	size_t n = rp_charts_groups(c, groups);

	buf_puts(b, many_seeds(c) ? "Seeds" : "Seed");
	for (size_t i = 0; n > 0 && i < groups[0].count; i++)
		buf_printf(b, "%s %" PRIu64, i > 0 ? "," : "",
			   c->results != NULL ? c->results[i].seed : c->sims[i].seed);
}

/* ---- the table of all runs, from what is written as CSV: they cannot differ ---- */

static void cell(struct buf *b, const char *tag, const char *s)
{
	buf_printf(b, "<%s>", tag);
	rp_svg_text(b, s);
	buf_printf(b, "</%s>", tag);
}

static void centi(struct buf *b, int64_t v)
{
	char text[RP_TEXT_CAP];

	cell(b, "td", rp_text_centi(v, text));
}

static void count(struct buf *b, int64_t v)
{
	char text[RP_TEXT_CAP];

	cell(b, "td", rp_text_count(v, text));
}

/* What is compared, with whether it is in hundredths. */
struct column {
	const char *name;
	bool hundredths;
};

static const struct column load_columns[] = {
	{"placed", false}, {"failed", false},  {"CPU only", false},    {"share", false},
	{"1 GPU", false},  {"several", false}, {"in use %, 80", true}, {"90", true},
	{"95", true},      {"100", true},      {"130", true},          {"fragm. % at end", true},
};
static const struct column time_columns[] = {
	{"placed", false},      {"refused", false},     {"waiting at end", false},
	{"in use %", true},     {"fragm. %", true},     {"GPU time lost %", true},
	{"GPU h waited", true}, {"mean wait s", false}, {"median s", false},
	{"95 % s", false},      {"99 % s", false},      {"longest s", false},
};
#define COLUMNS (sizeof(load_columns) / sizeof(load_columns[0]))
_Static_assert(COLUMNS == sizeof(time_columns) / sizeof(time_columns[0]), "one width");

static void values_of(const struct rp_charts *c, size_t i, int64_t v[COLUMNS])
{
	const struct rp_result *r = c->results != NULL ? &c->results[i] : NULL;
	const struct rp_sim_result *s = c->sims != NULL ? &c->sims[i] : NULL;

	if (r != NULL) {
		const int columns[] = {80, 90, 95, 100, 130};

		v[0] = (int64_t)r->placed;
		v[1] = (int64_t)rp_result_failed(r);
		for (size_t k = 0; k < RP_KINDS; k++)
			v[2 + k] = (int64_t)r->failed[k];
		for (size_t k = 0; k < 5; k++)
			v[6 + k] = rp_curve_at(&r->curve, columns[k]).alloc;
		v[11] = rp_curve_at(&r->curve, r->curve.last).frag;
		return;
	}
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): results or sims, one of them */
	v[0] = (int64_t)(s->at_once + s->waited);
	v[1] = (int64_t)s->refused;
	v[2] = (int64_t)s->unfinished;
	v[3] = s->used_centi;
	v[4] = s->frag_centi;
	v[5] = s->asked_gpu_s > 0 ? rp_round_div((__int128)s->refused_gpu_s * 10000, s->asked_gpu_s)
				  : RP_NO_VALUE;
	v[6] = rp_round_div((__int128)s->waited_gpu_s * 100, INT64_C(3600) * RP_GPU_UNITS);
	v[7] = rp_round_div(s->wait_mean_ms, 1000);
	v[8] = rp_round_div(s->wait_p50_ms, 1000);
	v[9] = rp_round_div(s->wait_p95_ms, 1000);
	v[10] = rp_round_div(s->wait_p99_ms, 1000);
	v[11] = rp_round_div(s->wait_max_ms, 1000);
}

static void put_row(struct buf *b, const struct column *columns, const char *name, const char *seed,
		    const int64_t v[COLUMNS], bool sum)
{
	buf_printf(b, "<tr%s>", sum ? " class=\"sum\"" : "");
	cell(b, "td", name);
	cell(b, "td", seed);
	for (size_t i = 0; i < COLUMNS; i++)
		columns[i].hundredths ? centi(b, v[i]) : count(b, v[i]);
	buf_puts(b, "</tr>\n");
}

static void put_table(struct buf *b, const struct rp_charts *c, bool each)
{
	const struct column *columns = c->results != NULL ? load_columns : time_columns;
	struct rp_group groups[RP_GROUPS_MAX];
	size_t n = rp_charts_groups(c, groups);

	buf_puts(b, "<div class=\"scroll\"><table><thead><tr><th>policy</th><th>seed</th>");
	for (size_t i = 0; i < COLUMNS; i++)
		cell(b, "th", columns[i].name);
	buf_puts(b, "</tr></thead><tbody>\n");
	for (size_t g = 0; g < n; g++) {
		struct rp_stat s[COLUMNS] = {{0}};
		int64_t v[COLUMNS];
		char seed[24];

		for (size_t i = groups[g].first; i < groups[g].first + groups[g].count; i++) {
			values_of(c, i, v);
			for (size_t k = 0; k < COLUMNS; k++)
				rp_stat_add(&s[k], v[k]);
			snprintf(seed, sizeof(seed), "%" PRIu64,
				 c->results != NULL ? c->results[i].seed : c->sims[i].seed);
			if (each || groups[g].count == 1)
				put_row(b, columns, groups[g].name, seed, v, false);
		}
		if (each || groups[g].count == 1)
			continue;
		for (size_t k = 0; k < COLUMNS; k++)
			v[k] = rp_stat_mean(&s[k]);
		put_row(b, columns, groups[g].name, "mean", v, true);
		for (size_t k = 0; k < COLUMNS; k++)
			v[k] = rp_stat_spread(&s[k]);
		put_row(b, columns, groups[g].name, "sd", v, false);
	}
	buf_puts(b, "</tbody></table></div>\n");
}

/* ---- */

static const char *const notes[RP_CHART_KINDS] = {
	[RP_CHART_USED] = "The line bends where pods no longer fit.",
	[RP_CHART_FULL] = "The same, from 80 % on: the higher, the less GPU is left over.",
	[RP_CHART_FRAG] = "Idle GPU that a typical pod of the trace could not use.",
	[RP_CHART_WAIT] = "GPU demand of the pods that wait, over time.",
	[RP_CHART_WAITS] = "How long pods waited until they started.",
	[RP_CHART_WHY] =
		("For each pod of the trace and each node with idle GPU, what was in the way first; "
		 "mean over the pods. The numbers in the bars are those of the legend."),
	[RP_CHART_MODELS] = "Models as the nodes name them.",
};

static int put_charts(struct buf *b, const struct rp_charts *c, struct err *err)
{
	for (int k = 0; k < RP_CHART_KINDS; k++) {
		int h = rp_charts_height(c, (enum rp_chart_kind)k), rc;

		if (h == 0)
			continue;
		buf_printf(b, "<figure><svg viewBox=\"0 0 %d %d\">", RP_SVG_WIDTH, h);
		rc = rp_charts_draw(b, c, (enum rp_chart_kind)k, 0, err);
		if (rc < 0)
			return rc;
		buf_puts(b, "</svg><figcaption class=\"note\">");
		if (k == RP_CHART_USED && many_seeds(c))
			buf_puts(b, "Mean over the seeds. ");
		if (k != RP_CHART_USED || c->sims == NULL)
			rp_svg_text(b, notes[k]);
		buf_puts(b, "</figcaption></figure>\n");
	}
	return 0;
}

static void put_csv(struct buf *b, const struct rp_charts *c)
{
	struct buf csv = BUF_INIT;

	if (c->results != NULL)
		rp_report_csv(&csv, c->results, c->count);
	else
		rp_report_time_csv(&csv, c->sims, c->count);
	/* A report stays below 2 MB; the whole is what --csv writes. */
	if (csv.len > 1000000)
		csv.len = 0;
	buf_puts(b, "<details><summary>The curves as CSV</summary><pre>");
	if (csv.len == 0) {
		buf_puts(b, "More than 1 MB: see --csv.");
	} else {
		for (size_t i = 0; i < csv.len; i++) {
			char one[2] = {csv.data[i], '\0'};

			if (csv.data[i] == '\n')
				buf_putc(b, '\n');
			else
				rp_svg_text(b, one);
		}
	}
	buf_puts(b, "</pre></details>\n");
	if (!buf_ok(&csv))
		b->failed = true;
	buf_fini(&csv);
}

int rp_report_html(struct buf *b, const struct rp_report *r, struct err *err)
{
	const struct rp_charts *c = &r->runs;
	char nodes[RP_TEXT_CAP], gpus[RP_TEXT_CAP], pods[RP_TEXT_CAP];
	int rc;

	buf_puts(b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
		    "<meta name=\"color-scheme\" content=\"light dark\">"
		    "<link rel=\"icon\" href=\"data:,\"><title>Tessera replay</title><style>\n");
	rp_svg_style(b);
	buf_puts(b, style);
	buf_puts(b, "</style></head><body>\n<h1>Tessera replay</h1>\n<p>");
	buf_printf(b, "%s with %s (", rp_text_many((int64_t)r->t->node_count, "node", nodes),
		   rp_text_many(r->t->gpu_milli / RP_GPU_UNITS, "GPU", gpus));
	rp_svg_text(b, r->nodes_path);
	buf_printf(b, "), %s (", rp_text_many((int64_t)r->t->pod_count, "pod", pods));
	rp_svg_text(b, r->pods_path);
	buf_puts(b, "). ");
	put_seeds(b, c);
	buf_puts(b, c->results != NULL
			    ? ". Pods arrive one after the other and stay.</p>\n"
			    : ". Pods arrive, wait, run and leave; what is shown is the time "
			      "measured.</p>\n");
	put_command(b, r);
	buf_puts(b, "<h2>Policies</h2>\n");
	put_table(b, c, false);
	buf_puts(b,
		 "<p class=\"note\">Ties: rank, the smallest node rank among equal scores, as in "
		 "the extender; random, a coin.");
	buf_puts(b, many_seeds(c) ? " sd: standard deviation over the seeds." : "");
	buf_puts(b, "</p>\n<h2>Charts</h2>\n");
	rc = put_charts(b, c, err);
	if (rc < 0)
		return rc;
	buf_puts(b, "<h2>Numbers</h2>\n<details><summary>Every run</summary>\n");
	put_table(b, c, true);
	buf_puts(b, "</details>\n");
	put_csv(b, c);
	buf_puts(b, "<p class=\"note\">tessera-replay " TESSERA_VERSION
		    ". What these numbers can and cannot promise: replay/READING.md.</p>\n"
		    "</body></html>\n");
	return buf_ok(b) ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

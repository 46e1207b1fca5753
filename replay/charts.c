#include "replay/charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/report.h"
#include "replay/stranded.h"
#include "replay/svg.h"

#define CURVE_LAST 130

static const char *policy_of(const struct rp_charts *c, size_t i)
{
	return c->results != NULL ? c->results[i].policy : c->sims[i].policy;
}

static enum po_ties ties_of(const struct rp_charts *c, size_t i)
{
	return c->results != NULL ? c->results[i].ties : c->sims[i].ties;
}

static const struct rp_stranded *end_of(const struct rp_charts *c, size_t i)
{
	return c->results != NULL ? &c->results[i].end : &c->sims[i].end;
}

size_t rp_charts_groups(const struct rp_charts *c, struct rp_group groups[RP_GROUPS_MAX])
{
	bool several = false;
	size_t n = 0;

	for (size_t i = 1; i < c->count; i++)
		several = several || ties_of(c, i) != ties_of(c, 0);
	for (size_t i = 0; i < c->count; i++) {
		struct rp_group *g = n > 0 ? &groups[n - 1] : NULL;

		if (g != NULL && ties_of(c, g->first) == ties_of(c, i) &&
		    strcmp(policy_of(c, g->first), policy_of(c, i)) == 0) {
			g->count++;
			continue;
		}
		if (n == RP_GROUPS_MAX)
			break;
		g = &groups[n++];
		*g = (struct rp_group){.first = i, .count = 1};
		snprintf(g->name, sizeof(g->name), "%s%s%s", policy_of(c, i), several ? ", " : "",
			 several ? rp_ties_name(ties_of(c, i)) : "");
	}
	return n;
}

/* ---- lines ---- */

#define POINTS_MAX (CURVE_LAST + 1 > RP_SIM_POINTS ? CURVE_LAST + 1 : RP_SIM_POINTS)

struct lines {
	struct rp_series s[RP_GROUPS_MAX];
	double x[POINTS_MAX], y[RP_GROUPS_MAX][POINTS_MAX];
};

static double percent_of(const struct rp_result *r, int column, bool frag)
{
	struct rp_point p = rp_curve_at(&r->curve, column);
	int64_t v = frag ? p.frag : p.alloc;

	return v == RP_NO_VALUE ? NAN : (double)v / 100;
}

static double over_time(const struct rp_sim_result *r, size_t k, enum rp_chart_kind kind)
{
	const struct rp_sim_point *p = &r->points[k];
	double total = (double)r->total_milli / 100;

	switch (kind) {
	case RP_CHART_FRAG:
		return (double)p->frag_milli / total;
	case RP_CHART_WAIT:
		return (double)p->waiting_milli / RP_GPU_UNITS;
	default:
		return (double)p->used_milli / total;
	}
}

/* The mean of a group at one point; of the runs that have a value there. */
static double mean_at(const struct rp_charts *c, const struct rp_group *g, size_t k,
		      enum rp_chart_kind kind)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = g->first; i < g->first + g->count; i++) {
		double v = c->results != NULL
				   ? percent_of(&c->results[i], (int)k, kind == RP_CHART_FRAG)
				   : over_time(&c->sims[i], k, kind);

		if (isnan(v))
			continue;
		sum += v;
		n++;
	}
	return n > 0 ? sum / (double)n : NAN;
}

static size_t fill_lines(const struct rp_charts *c, const struct rp_group *groups, size_t count,
			 enum rp_chart_kind kind, struct lines *l)
{
	size_t points = c->results != NULL ? CURVE_LAST + 1 : RP_SIM_POINTS;

	for (size_t k = 0; k < points; k++)
		l->x[k] = c->results != NULL ? (double)k
					     : (double)c->sims[0].points[k].at_ms / 3600000;
	for (size_t g = 0; g < count; g++) {
		for (size_t k = 0; k < points; k++)
			l->y[g][k] = mean_at(c, &groups[g], k, kind);
		l->s[g] = (struct rp_series){groups[g].name, l->x, l->y[g], points};
	}
	return points;
}

static int draw_lines(struct buf *b, const struct rp_charts *c, const struct rp_group *groups,
		      size_t count, enum rp_chart_kind kind, int y, struct err *err)
{
	struct lines *l = malloc(sizeof(*l));
	struct rp_chart chart = {.x_label = "GPU asked for so far, % of the cluster",
				 .y_label = "% of the cluster's GPU",
				 .x1 = CURVE_LAST};
	size_t points;

	if (l == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	points = fill_lines(c, groups, count, kind, l);
	chart.title = kind == RP_CHART_FRAG   ? "Fragmented GPU (FGD's measure)"
		      : kind == RP_CHART_WAIT ? "GPUs that waiting pods ask for"
		      : kind == RP_CHART_FULL ? "GPU in use, near full load"
					      : "GPU in use";
	if (kind == RP_CHART_FULL)
		chart.x0 = 80;
	if (kind == RP_CHART_USED && c->results != NULL)
		chart.y1 = 100;
	if (c->sims != NULL) {
		chart.x_label = "time, hours";
		chart.x0 = l->x[0];
		chart.x1 = l->x[points - 1];
	}
	if (kind == RP_CHART_WAIT)
		chart.y_label = "GPUs";
	rp_svg_lines(b, &chart, l->s, count, y);
	free(l);
	return 0;
}

/* ---- bars ---- */

static void names_of(const struct rp_group *groups, size_t count, const char **names)
{
	for (size_t g = 0; g < count; g++)
		names[g] = groups[g].name;
}

static void draw_why(struct buf *b, const struct rp_charts *c, const struct rp_group *groups,
		     size_t count, int y)
{
	const char *names[RP_GROUPS_MAX], *parts[RP_WHYS];
	double v[RP_GROUPS_MAX * RP_WHYS] = {0};

	names_of(groups, count, names);
	for (int w = 0; w < RP_WHYS; w++)
		parts[w] = rp_why_text((enum rp_why)w);
	for (size_t g = 0; g < count; g++)
		for (size_t i = groups[g].first; i < groups[g].first + groups[g].count; i++)
			for (int w = 0; w < RP_WHYS; w++)
				v[g * RP_WHYS + (size_t)w] += (double)end_of(c, i)->why_milli[w] /
							      RP_GPU_UNITS /
							      (double)groups[g].count;
	rp_svg_bars(b, "Idle GPU at the end, and what keeps the next pod from using it",
		    "GPUs, mean over the trace's GPU pods", names, count, parts, RP_WHYS, v, y);
}

static void draw_models(struct buf *b, const struct rp_charts *c, const struct rp_group *g, int y)
{
	static const char *const parts[] = {"in use", "idle"};
	const struct rp_stranded *first = end_of(c, g->first);
	const char *names[RP_MODELS_MAX];
	double v[2 * RP_MODELS_MAX] = {0};
	char title[128];

	for (size_t m = 0; m < first->model_count; m++) {
		names[m] = first->models[m].name[0] != '\0' ? first->models[m].name : "unknown";
		for (size_t i = g->first; i < g->first + g->count; i++) {
			const struct rp_model_use *u = &end_of(c, i)->models[m];
			double n = (double)g->count * RP_GPU_UNITS;

			v[2 * m] += (double)u->used_milli / n;
			v[2 * m + 1] += (double)(u->total_milli - u->used_milli) / n;
		}
	}
	snprintf(title, sizeof(title), "GPUs by model at the end, %s", g->name);
	rp_svg_bars(b, title, "GPUs", names, first->model_count, parts, 2, v, y);
}

static void draw_waits(struct buf *b, const struct rp_charts *c, const struct rp_group *groups,
		       size_t count, int y)
{
	/* Parts of a bar add up: up to the median, from there to p95, and so on. */
	static const char *const parts[] = {"up to the median", "to 95 %", "to 99 %"};
	const char *names[RP_GROUPS_MAX];
	double v[RP_GROUPS_MAX * 3] = {0};

	names_of(groups, count, names);
	for (size_t g = 0; g < count; g++)
		for (size_t i = groups[g].first; i < groups[g].first + groups[g].count; i++) {
			const struct rp_sim_result *r = &c->sims[i];
			double n = (double)groups[g].count * 60000;

			v[3 * g] += (double)r->wait_p50_ms / n;
			v[3 * g + 1] += (double)(r->wait_p95_ms - r->wait_p50_ms) / n;
			v[3 * g + 2] += (double)(r->wait_p99_ms - r->wait_p95_ms) / n;
		}
	rp_svg_bars(b, "Waiting times of the pods placed", "minutes", names, count, parts, 3, v, y);
}

/* ---- */

int rp_charts_height(const struct rp_charts *c, enum rp_chart_kind kind)
{
	struct rp_group groups[RP_GROUPS_MAX];
	size_t count = rp_charts_groups(c, groups);
	bool timed = c->sims != NULL;

	switch (kind) {
	case RP_CHART_FULL:
		return !timed ? RP_SVG_HEIGHT : 0;
	case RP_CHART_WAIT:
		return timed ? RP_SVG_HEIGHT : 0;
	case RP_CHART_WAITS:
		return timed ? rp_svg_bars_height(count, 3) : 0;
	case RP_CHART_WHY:
		return rp_svg_bars_height(count, RP_WHYS);
	case RP_CHART_MODELS:
		return rp_svg_bars_height(end_of(c, 0)->model_count, 2);
	case RP_CHART_USED:
	case RP_CHART_FRAG:
		return RP_SVG_HEIGHT;
	case RP_CHART_KINDS:
	default:
		return 0;
	}
}

int rp_charts_draw(struct buf *b, const struct rp_charts *c, enum rp_chart_kind kind, int y,
		   struct err *err)
{
	struct rp_group groups[RP_GROUPS_MAX];
	size_t count = rp_charts_groups(c, groups);

	switch (kind) {
	case RP_CHART_WHY:
		draw_why(b, c, groups, count, y);
		return 0;
	case RP_CHART_MODELS:
		draw_models(b, c, &groups[0], y);
		return 0;
	case RP_CHART_WAITS:
		draw_waits(b, c, groups, count, y);
		return 0;
	case RP_CHART_USED:
	case RP_CHART_FULL:
	case RP_CHART_FRAG:
	case RP_CHART_WAIT:
	case RP_CHART_KINDS:
	default:
		return draw_lines(b, c, groups, count, kind, y, err);
	}
}

int rp_charts_svg(struct buf *b, const struct rp_charts *c, struct err *err)
{
	int height = 0, y = 0, rc = 0;

	for (int k = 0; k < RP_CHART_KINDS; k++)
		height += rp_charts_height(c, (enum rp_chart_kind)k);
	buf_printf(b,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		   "height=\"%d\">\n<style>",
		   RP_SVG_WIDTH, height, RP_SVG_WIDTH, height);
	rp_svg_style(b);
	buf_printf(b, "</style>\n<rect width=\"%d\" height=\"%d\" style=\"fill:var(--ground)\"/>\n",
		   RP_SVG_WIDTH, height);
	for (int k = 0; rc == 0 && k < RP_CHART_KINDS; k++) {
		int h = rp_charts_height(c, (enum rp_chart_kind)k);

		if (h > 0)
			rc = rp_charts_draw(b, c, (enum rp_chart_kind)k, y, err);
		y += h;
	}
	buf_puts(b, "</svg>\n");
	if (rc == 0 && !buf_ok(b))
		rc = err_set(err, ERR_NOMEM, "out of memory");
	return rc;
}

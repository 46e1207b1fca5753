#include "replay/svg.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LEFT 64
#define RIGHT 190 /* the legend */
#define TOP 34
#define BOTTOM 46
#define COLOURS 8
#define BAR 20

/* Okabe and Ito; on dark ground the dark ones are lighter. */
static const char *const light[COLOURS] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
					   "#B07900", "#56B4E9", "#6A6A00", "#333333"};
static const char *const dark[COLOURS] = {"#56B4E9", "#F08A4B", "#2BC79A", "#E3A6C6",
					  "#E69F00", "#A6D8F5", "#F0E442", "#DDDDDD"};
static const char *const dashes[COLOURS] = {"",     "7 3", "2 3",     "9 3 2 3",
					    "12 4", "4 2", "1 2 6 2", "3 6"};

void rp_svg_text(struct buf *b, const char *s)
{
	for (; *s != '\0'; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '&')
			buf_puts(b, "&amp;");
		else if (c == '<')
			buf_puts(b, "&lt;");
		else if (c == '>')
			buf_puts(b, "&gt;");
		else if (c == '"')
			buf_puts(b, "&quot;");
		else if (c == '\'')
			buf_puts(b, "&#39;");
		else if (c >= ' ' && c != 0x7f)
			buf_putc(b, *s);
	}
}

static void palette(struct buf *b, const char *const *colours, const char *ink, const char *ground,
		    const char *grid)
{
	buf_printf(b, "{--ink:%s;--ground:%s;--grid:%s;", ink, ground, grid);
	for (int i = 0; i < COLOURS; i++)
		buf_printf(b, "--c%d:%s;", i, colours[i]);
	buf_puts(b, "}");
}

void rp_svg_style(struct buf *b)
{
	buf_puts(b, ":root");
	palette(b, light, "#1a1a1a", "#ffffff", "#d9d9d9");
	buf_puts(b, "\n@media (prefers-color-scheme: dark){:root");
	palette(b, dark, "#e8e8e8", "#16181c", "#3a3d44");
	buf_puts(b, "}\n@media print{:root");
	palette(b, light, "#000000", "#ffffff", "#cccccc");
	buf_puts(b, "}\n.chart text{font:12px sans-serif;fill:var(--ink)}"
		    ".chart .title{font-weight:bold;font-size:14px}"
		    ".chart .grid{stroke:var(--grid);stroke-width:1}"
		    ".chart .axis{fill:none;stroke:var(--ink);stroke-width:1}"
		    ".chart .line{fill:none;stroke-width:2}"
		    ".chart .tag{fill:var(--ground);font-weight:bold}"
		    ".chart .end{text-anchor:end}.chart .mid{text-anchor:middle}\n");
	for (int i = 0; i < COLOURS; i++)
		buf_printf(b,
			   ".chart .s%d{stroke:var(--c%d)}.chart .d%d{stroke-dasharray:%s}"
			   ".chart .f%d{fill:var(--c%d);stroke:var(--ground)}\n",
			   i, i, i, dashes[i][0] != '\0' ? dashes[i] : "none", i, i);
}

/* A round step that gives about that many lines. */
static double step_of(double span, int lines)
{
	double raw = span / lines, power = pow(10, floor(log10(raw)));

	if (raw / power > 5)
		return 10 * power;
	if (raw / power > 2)
		return 5 * power;
	return raw / power > 1 ? 2 * power : power;
}

static void marker(struct buf *b, size_t i, double x, double y)
{
	buf_printf(b, "<path class=\"f%zu\" d=\"", i % COLOURS);
	switch (i % 5) {
	case 0:
		buf_printf(b, "M%.1f %.1fa4 4 0 1 0 8 0a4 4 0 1 0 -8 0", x - 4, y);
		break;
	case 1:
		buf_printf(b, "M%.1f %.1fh8v8h-8z", x - 4, y - 4);
		break;
	case 2:
		buf_printf(b, "M%.1f %.1fl5 9h-10z", x, y - 5);
		break;
	case 3:
		buf_printf(b, "M%.1f %.1fl5 5l-5 5l-5 -5z", x, y - 5);
		break;
	default:
		buf_printf(b, "M%.1f %.1fl5 -9h-10z", x, y + 5);
		break;
	}
	buf_puts(b, "\"/>");
}

struct plot {
	double x0, x1, y0, y1;
	int top;
};

static double px(const struct plot *p, double x)
{
	return LEFT + (x - p->x0) / (p->x1 - p->x0) * (RP_SVG_WIDTH - LEFT - RIGHT);
}

static double py(const struct plot *p, double y)
{
	return p->top + RP_SVG_HEIGHT - BOTTOM -
	       (y - p->y0) / (p->y1 - p->y0) * (RP_SVG_HEIGHT - TOP - BOTTOM);
}

static void y_range(struct plot *p, const struct rp_series *s, size_t count)
{
	double lo = INFINITY, hi = -INFINITY, step;

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < s[i].count; k++) {
			if (isnan(s[i].y[k]) || s[i].x[k] < p->x0 || s[i].x[k] > p->x1)
				continue;
			lo = fmin(lo, s[i].y[k]);
			hi = fmax(hi, s[i].y[k]);
		}
	if (!(lo <= hi))
		lo = hi = 0;
	if (hi - lo < 1e-9)
		hi = lo + 1;
	step = step_of(hi - lo, 5);
	p->y0 = floor(lo / step) * step;
	p->y1 = ceil(hi / step) * step;
}

static void axes(struct buf *b, const struct rp_chart *c, const struct plot *p)
{
	double sx = step_of(p->x1 - p->x0, 8), sy = step_of(p->y1 - p->y0, 5);
	double right = RP_SVG_WIDTH - RIGHT, bottom = py(p, p->y0);
	double x0 = ceil(p->x0 / sx - 1e-9) * sx, y0 = ceil(p->y0 / sy - 1e-9) * sy;

	for (int i = 0; i <= (int)((p->y1 - y0) / sy + 1e-6); i++) {
		double y = y0 + i * sy;

		buf_printf(b, "<path class=\"grid\" d=\"M%d %.1fH%.1f\"/>", LEFT, py(p, y), right);
		buf_printf(b, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%.4g</text>", LEFT - 6,
			   py(p, y) + 4, fabs(y) < 1e-9 ? 0 : y);
	}
	for (int i = 0; i <= (int)((p->x1 - x0) / sx + 1e-6); i++) {
		double x = x0 + i * sx;

		buf_printf(b,
			   "<path class=\"axis\" d=\"M%.1f %.1fv5\"/>"
			   "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%.6g</text>",
			   px(p, x), bottom, px(p, x), bottom + 18, fabs(x) < 1e-9 ? 0 : x);
	}
	buf_printf(b, "<path class=\"axis\" d=\"M%d %dV%.1fH%.1f\"/>", LEFT, p->top + TOP, bottom,
		   right);
	buf_printf(b, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">", (LEFT + right) / 2,
		   bottom + 38);
	rp_svg_text(b, c->x_label);
	buf_printf(b, "</text><text class=\"title\" x=\"%d\" y=\"%d\">", LEFT, p->top + 18);
	rp_svg_text(b, c->title);
	buf_printf(b, "</text><text class=\"mid\" transform=\"translate(16 %.1f) rotate(-90)\">",
		   (p->top + TOP + bottom) / 2);
	rp_svg_text(b, c->y_label);
	buf_puts(b, "</text>");
}

static void series(struct buf *b, const struct plot *p, const struct rp_series *s, size_t i)
{
	bool pen = false;
	size_t every = s->count / 8 + 1;

	buf_printf(b, "<path class=\"line s%zu d%zu\" d=\"", i % COLOURS, i % COLOURS);
	for (size_t k = 0; k < s->count; k++) {
		bool shown = !isnan(s->y[k]) && s->x[k] >= p->x0 && s->x[k] <= p->x1 &&
			     s->y[k] >= p->y0 - 1e-9 && s->y[k] <= p->y1 + 1e-9;

		if (shown)
			buf_printf(b, "%c%.1f %.1f", pen ? 'L' : 'M', px(p, s->x[k]),
				   py(p, s->y[k]));
		pen = shown;
	}
	buf_puts(b, "\"/>");
	/* Markers stand at different points of each line. */
	for (size_t k = (i * every / 3) % every; k < s->count; k += every)
		if (!isnan(s->y[k]) && s->x[k] >= p->x0 && s->x[k] <= p->x1 &&
		    s->y[k] >= p->y0 - 1e-9 && s->y[k] <= p->y1 + 1e-9)
			marker(b, i, px(p, s->x[k]), py(p, s->y[k]));
}

static void legend(struct buf *b, size_t i, const char *name, int y, bool line)
{
	int x = RP_SVG_WIDTH - RIGHT + 14;

	if (line) {
		buf_printf(b, "<path class=\"line s%zu d%zu\" d=\"M%d %dh30\"/>", i % COLOURS,
			   i % COLOURS, x, y);
		marker(b, i, x + 15, y);
	} else {
		buf_printf(b, "<rect class=\"f%zu\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/>",
			   i % COLOURS, x + 8, y - 7);
	}
	buf_printf(b, "<text x=\"%d\" y=\"%d\">", x + 36, y + 4);
	rp_svg_text(b, name);
	buf_puts(b, "</text>");
}

void rp_svg_lines(struct buf *b, const struct rp_chart *c, const struct rp_series *s, size_t count,
		  int y)
{
	struct plot p = {c->x0, c->x1 > c->x0 ? c->x1 : c->x0 + 1, c->y0, c->y1, y};

	if (c->y0 >= c->y1)
		y_range(&p, s, count);
	buf_puts(b, "<g class=\"chart\" role=\"img\"><title>");
	rp_svg_text(b, c->title);
	buf_puts(b, "</title>");
	axes(b, c, &p);
	for (size_t i = 0; i < count; i++) {
		series(b, &p, &s[i], i);
		legend(b, i, s[i].name, y + TOP + 10 + 20 * (int)i, true);
	}
	buf_puts(b, "</g>\n");
}

int rp_svg_bars_height(size_t rows, size_t parts)
{
	int body = (int)rows * (BAR + 8) + BOTTOM, key = (int)parts * 20 + 10;

	return TOP + (body > key ? body : key);
}

/* A chart of bars while it is drawn. */
struct bars {
	const char *const *rows, *const *parts;
	size_t row_count, part_count;
	const double *values; /* [row][part] */
	double most;          /* what the width stands for */
	int left, width, y;
};

static double bars_value(const struct bars *c, size_t row, size_t part)
{
	return c->values[row * c->part_count + part];
}

static double bars_x(const struct bars *c, double v)
{
	return v / c->most * c->width;
}

static void bars_grid(struct buf *b, const struct bars *c, double step, const char *unit)
{
	int bottom = c->y + TOP + (int)c->row_count * (BAR + 8);

	for (int i = 0; i <= (int)(c->most / step + 1e-6); i++) {
		double x = c->left + bars_x(c, i * step);

		buf_printf(b,
			   "<path class=\"grid\" d=\"M%.1f %dV%d\"/>"
			   "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%.4g</text>",
			   x, c->y + TOP - 6, bottom, x, bottom + 16, i * step);
	}
	buf_printf(b, "<text class=\"mid\" x=\"%d\" y=\"%d\">", c->left + c->width / 2,
		   bottom + 34);
	rp_svg_text(b, unit);
	buf_puts(b, "</text>");
}

static void bars_row(struct buf *b, const struct bars *c, size_t r)
{
	int top = c->y + TOP + (int)r * (BAR + 8);
	double at = 0;

	buf_printf(b, "<text class=\"end\" x=\"%d\" y=\"%d\">", c->left - 8, top + 14);
	rp_svg_text(b, c->rows[r]);
	buf_puts(b, "</text>");
	for (size_t k = 0; k < c->part_count; k++) {
		double v = bars_value(c, r, k);

		if (v <= 0)
			continue;
		buf_printf(
			b,
			"<rect class=\"f%zu\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>",
			k % COLOURS, c->left + bars_x(c, at), top, bars_x(c, v), BAR);
		rp_svg_text(b, c->rows[r]);
		buf_puts(b, ", ");
		rp_svg_text(b, c->parts[k]);
		buf_printf(b, ": %.2f</title></rect>", v);
		/* Where there is room, the part's number says which it is. */
		if (bars_x(c, v) > 18)
			buf_printf(b, "<text class=\"mid tag\" x=\"%.1f\" y=\"%d\">%zu</text>",
				   c->left + bars_x(c, at + v / 2), top + 15, k + 1);
		at += v;
	}
}

/* Parts that occur, each with the number that its bars bear. */
static void bars_legend(struct buf *b, const struct bars *c)
{
	for (size_t k = 0, shown = 0; k < c->part_count; k++) {
		char name[128];
		double sum = 0;

		for (size_t r = 0; r < c->row_count; r++)
			sum += bars_value(c, r, k);
		if (sum <= 0)
			continue;
		snprintf(name, sizeof(name), "%zu %.80s", k + 1, c->parts[k]);
		legend(b, k, name, c->y + TOP + 10 + 20 * (int)shown++, false);
	}
}

int rp_svg_bars(struct buf *b, const char *title, const char *unit, const char *const *rows,
		size_t row_count, const char *const *parts, size_t part_count, const double *values,
		int y)
{
	struct bars c = {rows, parts, row_count, part_count, values, 0, 120, 0, y};
	double step;

	c.width = RP_SVG_WIDTH - RIGHT - c.left;
	for (size_t r = 0; r < row_count; r++) {
		double sum = 0;

		for (size_t k = 0; k < part_count; k++)
			sum += bars_value(&c, r, k);
		c.most = fmax(c.most, sum);
	}
	c.most = c.most > 0 ? c.most : 1;
	step = step_of(c.most, 6);
	c.most = ceil(c.most / step - 1e-9) * step;
	buf_puts(b, "<g class=\"chart\" role=\"img\"><title>");
	rp_svg_text(b, title);
	buf_printf(b, "</title><text class=\"title\" x=\"%d\" y=\"%d\">", c.left, y + 18);
	rp_svg_text(b, title);
	buf_puts(b, "</text>");
	bars_grid(b, &c, step, unit);
	for (size_t r = 0; r < row_count; r++)
		bars_row(b, &c, r);
	bars_legend(b, &c);
	buf_puts(b, "</g>\n");
	return rp_svg_bars_height(row_count, part_count);
}

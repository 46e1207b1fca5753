/* Charts as SVG: readable in light and dark, in print, and without telling colours apart (each series
 * has a colour of the Okabe-Ito palette, a dash and a marker of its own). Colours are CSS variables,
 * set by rp_svg_style(). */
#ifndef TESSERA_REPLAY_SVG_H
#define TESSERA_REPLAY_SVG_H

#include <stddef.h>

#include "base/buf.h"

#define RP_SVG_WIDTH 760
#define RP_SVG_HEIGHT 340

struct rp_series {
	const char *name;
	const double *x, *y; /* NAN in y: a gap */
	size_t count;
};

struct rp_chart {
	const char *title, *x_label, *y_label;
	double x0, x1, y0, y1; /* y0 >= y1: from the data */
};

/* The rules for charts, light and dark; also what a file that is nothing but a chart begins with. */
void rp_svg_style(struct buf *b);
/* One chart, at that place of the picture around it; y = 0 for a picture of its own. */
void rp_svg_lines(struct buf *b, const struct rp_chart *c, const struct rp_series *s, size_t count,
		  int y);
/* Horizontal bars made of parts: values[row * parts + part]. Returns the height it takes. */
int rp_svg_bars(struct buf *b, const char *title, const char *unit, const char *const *rows,
		size_t row_count, const char *const *parts, size_t part_count, const double *values,
		int y);
int rp_svg_bars_height(size_t rows, size_t parts);
/* Text with what HTML and XML must not see escaped. */
void rp_svg_text(struct buf *b, const char *s);

#endif

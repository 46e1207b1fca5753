/* The charts of a set of runs, for the HTML report and for files of their own. */
#ifndef TESSERA_REPLAY_CHARTS_H
#define TESSERA_REPLAY_CHARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "replay/run.h"
#include "replay/sim.h"

/* Results as rp_batch_run() makes them: one of the two is NULL. */
struct rp_charts {
	const struct rp_result *results;
	const struct rp_sim_result *sims;
	size_t count;
};

#define RP_GROUPS_MAX 64
struct rp_group {
	char name[48]; /* the policy, with the tie-break where there are several */
	size_t first, count;
};
/* Runs of one policy and tie-break. Returns how many. */
size_t rp_charts_groups(const struct rp_charts *c, struct rp_group groups[RP_GROUPS_MAX]);

enum rp_chart_kind {
	RP_CHART_USED, /* GPU in use, over the load or over time */
	RP_CHART_FULL, /* the same near 100 % of the load; not over time */
	RP_CHART_FRAG,
	RP_CHART_WAIT,   /* GPU that pods wait for; over time only */
	RP_CHART_WAITS,  /* waiting times; over time only */
	RP_CHART_WHY,    /* idle GPU at the end by what keeps it idle */
	RP_CHART_MODELS, /* use by GPU model, of the first policy */
	RP_CHART_KINDS,
};
/* Height of that chart in these runs; 0 = it is not among them. */
int rp_charts_height(const struct rp_charts *c, enum rp_chart_kind kind);
/* Draws it at y. ERR_NOMEM. */
int rp_charts_draw(struct buf *b, const struct rp_charts *c, enum rp_chart_kind kind, int y,
		   struct err *err);
/* All of them in one SVG file. ERR_NOMEM. */
int rp_charts_svg(struct buf *b, const struct rp_charts *c, struct err *err);

#endif

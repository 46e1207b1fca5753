/* The report of a set of runs as one HTML file that needs nothing else: no network, no script. */
#ifndef TESSERA_REPLAY_REPORT_HTML_H
#define TESSERA_REPLAY_REPORT_HTML_H

#include "replay/charts.h"
#include "replay/trace.h"

struct rp_report {
	struct rp_charts runs;
	const struct rp_trace *t;
	const char *nodes_path, *pods_path;
	/* The command as it was called: the words after the program's name. */
	const char *command;
	int argc;
	char *const *argv;
};

/* ERR_NOMEM. The same runs give the same bytes, but for times measured. */
int rp_report_html(struct buf *b, const struct rp_report *r, struct err *err);

#endif

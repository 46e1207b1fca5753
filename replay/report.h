/* What the results of runs are printed as. */
#ifndef TESSERA_REPLAY_REPORT_H
#define TESSERA_REPLAY_REPORT_H

#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "replay/run.h"

/* A table for a person; with several seeds lines of means and standard deviations for each policy
 * and tie-break. Where it does not fit into so many columns the less important ones are left out; width
 * 0 = no bound. */
void rp_report_table(FILE *out, const struct rp_result *results, size_t count, bool quiet,
		     unsigned width);
/* An array of objects as malloc'ed text; NULL: no memory. */
char *rp_report_json(const struct rp_result *results, size_t count);
/* The curves: a line for each run and percent arrived. Sticky failure in b. */
void rp_report_csv(struct buf *b, const struct rp_result *results, size_t count);

/* Adds what is idle at the end, by reason and model, to a JSON object. false: no memory. */
struct cJSON;
bool rp_report_end(struct cJSON *o, const struct rp_stranded *end);

const char *rp_ties_name(enum po_ties ties);

#endif

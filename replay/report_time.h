/* What the results of replays over time are printed as. */
#ifndef TESSERA_REPLAY_REPORT_TIME_H
#define TESSERA_REPLAY_REPORT_TIME_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "replay/sim.h"

/* As rp_report_table(), rp_report_json() and rp_report_csv(). */
void rp_report_time_table(FILE *out, const struct rp_sim_result *r, size_t count, bool quiet,
			  unsigned width);
char *rp_report_time_json(const struct rp_sim_result *r, size_t count);
void rp_report_time_csv(struct buf *b, const struct rp_sim_result *r, size_t count);

#endif

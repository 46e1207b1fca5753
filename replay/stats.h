/* Latencies and counted texts of a drive. */
#ifndef TESSERA_REPLAY_STATS_H
#define TESSERA_REPLAY_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Times of one kind of call, in microseconds. */
struct rp_times {
	uint32_t *us;
	size_t count, cap;
};
void rp_times_fini(struct rp_times *t);
int rp_times_add(struct rp_times *t, int64_t us, struct err *err); /* ERR_NOMEM */
/* Sorts; the smallest time that at least permille/1000 of all do not exceed; 0 without times. */
int64_t rp_times_at(struct rp_times *t, unsigned permille);

/* Texts with how often they were seen. */
struct rp_tally;
struct rp_tally *rp_tally_new(void); /* NULL: no memory */
void rp_tally_free(struct rp_tally *t);
/* weight is added; pods by 1 when mark differs from that of the text's last sighting. ERR_NOMEM.
 * Beyond 1,000 different texts the others are counted as one. */
int rp_tally_add(struct rp_tally *t, const char *text, int64_t weight, uint64_t mark,
		 struct err *err);
struct rp_tally_row {
	const char *text;
	int64_t pods, weight;
};
/* Sorted by weight, largest first; rows is owned by the tally. */
size_t rp_tally_rows(struct rp_tally *t, const struct rp_tally_row **ret);

#endif

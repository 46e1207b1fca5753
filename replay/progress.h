/* A progress bar with the time that is left, on a terminal's standard error; nothing elsewhere. */
#ifndef TESSERA_REPLAY_PROGRESS_H
#define TESSERA_REPLAY_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_progress {
	bool on;
	int64_t begun_ms; /* when it was set up */
	int64_t shown_ms; /* when it was last drawn */
	char label[80];
};

void rp_progress_init(struct rp_progress *p, bool quiet);
/* ctx is a struct rp_progress. Draws at most ten times a second. */
void rp_progress_show(void *ctx, size_t done, size_t total);
void rp_progress_clear(struct rp_progress *p);
/* "12 s left", "3 min left"; "" while there is nothing to go by. Returns buf. */
#define RP_LEFT_CAP 32
const char *rp_progress_left(int64_t spent_ms, size_t done, size_t total, char buf[RP_LEFT_CAP]);

#endif

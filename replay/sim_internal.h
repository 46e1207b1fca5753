/* Inside of the simulator: what sim.c and sim_books.c share. */
#ifndef TESSERA_REPLAY_SIM_INTERNAL_H
#define TESSERA_REPLAY_SIM_INTERNAL_H

#include "replay/sim.h"
#include "replay/stage.h"

/* The numbers over time: everything is constant between two events. */
struct rp_sim_books {
	struct rp_sim_result *r;
	int64_t now_ms;
	size_t point;                 /* being filled; RP_SIM_POINTS = the time measured is over */
	__int128 used, waiting, pods; /* integrals over the present part */
	__int128 used_all, frag_all;  /* used: over all parts; frag: sum over the parts */
	size_t frag_count;
	int64_t waiting_milli, waiting_pods; /* now */
	int64_t *waits;                      /* of those placed */
	size_t wait_count;
};

/* l: for its bounds. cap: of waits. ERR_NOMEM. */
int rp_sim_books_open(struct rp_sim_books *b, const struct rp_timeline *l, size_t cap,
		      struct rp_sim_result *r, struct err *err);
void rp_sim_books_close(struct rp_sim_books *b);
/* Time moves on, with the stage as it was until now. */
int rp_sim_books_advance(struct rp_sim_books *b, struct rp_stage *s, int64_t to_ms,
			 struct err *err);
void rp_sim_books_finish(struct rp_sim_books *b);
/* Was it an arrival in the time measured? */
bool rp_sim_books_counts(const struct rp_sim_books *b, int64_t at_ms);

#endif

/* Small instances of MIG placement, solved exhaustively: a few GPUs of one geometry, requests of one
 * instance each that come one after the other, none leaves, and nothing that fits is refused. What is
 * chosen is the GPU and the start. Made of st_mig_can_place() alone. What is out of memory aborts. */
#ifndef TESSERA_TEST_SMALL_MIG_H
#define TESSERA_TEST_SMALL_MIG_H

#include <stdbool.h>
#include <stdint.h>

#include "state/mig.h"

#define SM_PROFILES 5
#define SM_REQUESTS 12
#define SM_GPUS 3

/* All states of the GPUs, alike ones once. Profiles by number, here and in requests. */
struct sm_graph;
struct sm_graph *sm_graph_new(const struct st_mig_geometry *g, const int profiles[SM_PROFILES],
			      int gpus);
void sm_graph_free(struct sm_graph *s);

/* The most that is placed of these requests, in their order, by one who knows them all. worth: of a
 * request that is placed, for each profile. */
int sm_foreseen(const struct sm_graph *s, const int *requests, int count, const int *worth);

/* What comes, as far as it is known: requests drawn from the mix. */
struct sm_mix {
	int64_t weight[SM_PROFILES];
	int most;      /* requests, <= SM_REQUESTS */
	bool capacity; /* the first one ends it that does not fit what the GPUs' units leave over of all
			* requests before it, placed or not; else there are `most` */
};

/* The best of those who know the mix, the past and the present, but not the future: dynamic programming
 * over what may come. Lives no longer than the graph. */
struct sm_online;
struct sm_online *sm_online_new(const struct sm_graph *s, const struct sm_mix *mix,
				const int *worth);
void sm_online_free(struct sm_online *o);
/* The mean of what it places. */
double sm_online_expected(struct sm_online *o);
/* How many it places of these requests, of each profile. */
void sm_online_play(struct sm_online *o, const int *requests, int count,
		    int ret_placed[SM_PROFILES]);

#endif

/* How much any placement of MIG instances could reach on a mix: what the policies are measured by. */
#ifndef TESSERA_REPLAY_MIG_BOUND_H
#define TESSERA_REPLAY_MIG_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/mig.h"

/* May so many instances of each profile be on so many GPUs at once, wherever they lie? Exact. Only for
 * geometries and profiles of which rp_mig_packs_known(). */
bool rp_mig_packs(const struct st_mig_geometry *g, const int64_t *count, int64_t gpus);
/* The plain profiles of seven-slice GPUs (1g, 2g, 3g, 4g, 7g) are; mixes with others are not. */
bool rp_mig_packs_known(const struct st_mig_geometry *g, const struct rp_mig_mix *mix);

/* Of two GPUs: the most that can be placed in the long run, percent of what arrives, and the least that
 * can be stranded (rp_mig_result), by anyone who knows the mix and the present but not the future, and
 * moves nothing. Each is an aim of its own: no one need reach two of them. */
struct rp_mig_best {
	/* Upper ends of what value iteration proves; the lower ends are nearer than `width`. */
	double workloads, units;                   /* who places whatever fits */
	double refusing_workloads, refusing_units; /* who may also refuse what would fit */
	double width;
	/* Memory units of a GPU, lower ends of what is proven; who places whatever fits. */
	double stranded, stranded_first_fit; /* the least; what first fit comes to */
	double stranded_width;
};

/* Solves a Markov decision process over the pairs of layouts: seconds. ERR_TOO_LARGE: too many layouts;
 * ERR_NOMEM. */
int rp_mig_best_of_two(const struct st_mig_geometry *g, const struct rp_mig_mix *mix,
		       int64_t load_permille, struct rp_mig_best *ret, struct err *err);

#endif

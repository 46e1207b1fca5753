/* What a layout of MIG instances is still worth to a workload: a table over all states of one GPU,
 * made once for a geometry and a mix of profiles.
 *
 * The GPU is taken as one of many in a loss system: requests of each profile come at random in proportion to
 * their weight, in all as much as the GPUs could serve, instances stay for one mean time, a request goes to
 * the GPU and start that are best for all, and one that finds no start is lost (mig_field.h; for choosing
 * among many GPUs by values of each see Krishnan and Ott, "State-dependent routing for telephone traffic",
 * CDC 1986). A request of m milli that is served counts m * sqrt(8 m / 1000), so that room for large profiles,
 * which is hard to win back, counts more than their size; a milli that is free and out of reach costs 8 a mean
 * stay, counted for each profile by its weight. H(state) is the relative value of the state: how much more will
 * be earned from here than from an empty GPU. The constants are those that did well over all mixes of
 * `tessera-replay run --mig-workload`; others near them do, too (MIG.md).
 *
 * With it, the cost of a state is  N = (H(empty) - H(state)) / 4 - (used milli) * slope,  the slope such
 * that N of the best full GPU is 0: like FGD's F it is 0 where nothing is lost, about in milli of a
 * device, and it may fall when a placement uses slices up. */
#ifndef TESSERA_FRAGMENTATION_MIG_VALUE_H
#define TESSERA_FRAGMENTATION_MIG_VALUE_H

#include <stdint.h>

#include "state/mig.h"

struct fr_mig_value;

/* weight[p] of each profile of the geometry, >= 0. open: as in st_mig_can_place_in(). NULL: no
 * memory. A table without states (too many, or no profile with weight) answers 0 for all. */
struct fr_mig_value *fr_mig_value_new(const struct st_mig_geometry *g, uint64_t open,
				      const int64_t *weight);
void fr_mig_value_free(struct fr_mig_value *v);
uint32_t fr_mig_value_states(const struct fr_mig_value *v);
/* N of the state in milli; 0 for one that is not legal. A search among the states: some 30 ns. */
int32_t fr_mig_value_at(const struct fr_mig_value *v, uint64_t placed);

#endif

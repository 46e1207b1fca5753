/* What each layout of a GPU is worth where the GPU is one of many, and a request goes to the one that
 * is best for all: a mean-field game. Inside of fragmentation/ only.
 *
 * Let W_p(s) be what it is worth to place profile p on a GPU in layout s: its reward, and what h changes by.
 * A request goes where W_p is most. Taken alone, a GPU would have to take whatever comes, and its layouts
 * would be valued for that; among others it gets what is worse everywhere else. So the layouts that the
 * others are in are part of the problem: `mass`, the share of GPUs in each layout, says how likely the best
 * of the others is worse; that says what comes, hence h, hence where requests go, hence mass. Both are
 * followed in time, from empty GPUs and h = 0, by steps of the same length, for some mean stays:
 *
 *   h(s)    += -cost(s) + sum of h(s - instance) - h(s) + sum over p of GPUS rate_p E max(W_p(s), best of others)
 *   mass(s) += what comes in less what leaves
 *
 * and h, which may go round where layouts are about equal, is taken as its mean over the last half. */
#ifndef TESSERA_FRAGMENTATION_MIG_FIELD_H
#define TESSERA_FRAGMENTATION_MIG_FIELD_H

#include <stdint.h>

#include "fragmentation/mig_states.h"

#define FR_MIG_RATE_ONE (1 << 20) /* an instance ends at this rate */
#define FR_MIG_H_BITS 14          /* fraction bits of h */

struct fr_mig_field {
	const struct st_mig_geometry *g;
	const struct fr_mig_states *states;
	int64_t rate[ST_MIG_PROFILES_MAX];   /* requests a GPU, FR_MIG_RATE_ONE = one a mean stay */
	int64_t reward[ST_MIG_PROFILES_MAX]; /* milli, for one that is served */
	const int64_t *cost;                 /* of each state, milli a mean stay */
};

/* h of each state in milli with FR_MIG_H_BITS of fraction; 0 for the empty GPU. Some rate > 0. ERR_NOMEM. */
int fr_mig_field_solve(const struct fr_mig_field *in, int64_t *ret_h);

#endif

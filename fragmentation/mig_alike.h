/* Layouts of MIG instances that are alike, whatever comes: so many fewer to work on. Two are alike that have
 * the same cost and from which the end of an instance, or one more of a profile that is asked for, leads to
 * layouts that are alike; as often, for the ends. (1g at 0 and 1g at 1 are; of the 2,319 layouts of an A100
 * 360 to 600 are left, by what is asked for.) Inside of fragmentation/ only. */
#ifndef TESSERA_FRAGMENTATION_MIG_ALIKE_H
#define TESSERA_FRAGMENTATION_MIG_ALIKE_H

#include <stdint.h>

#include "fragmentation/mig_states.h"

struct fr_mig_alike {
	uint32_t count;  /* classes of layouts that are alike */
	uint32_t live;   /* of them, the first: those that requests lead to */
	uint16_t *of;    /* [state]: its class; 0 is that of the empty GPU */
	uint32_t *begin; /* [class * (profiles + 1) + k], and one more: where in `to` begin */
	uint16_t *
		to; /* k = 0: the classes after each instance's end; k = p + 1: those after one more of
			  * profile p, each once, by start */
};

/* rate[p]: of each profile, > 0 where it is asked for. cost: of each state. ERR_NOMEM; then nothing is to be
 * freed. */
int fr_mig_alike_make(const struct st_mig_geometry *g, const struct fr_mig_states *states,
		      const int64_t *rate, const int64_t *cost, struct fr_mig_alike *ret);
void fr_mig_alike_fini(struct fr_mig_alike *a);

#endif

/* All legal layouts of MIG instances on one GPU, and how one instance more or less leads from each to
 * the next: what tables over layouts are made on. Inside of fragmentation/ only. */
#ifndef TESSERA_FRAGMENTATION_MIG_STATES_H
#define TESSERA_FRAGMENTATION_MIG_STATES_H

#include <stdint.h>

#include "state/mig.h"

#define FR_MIG_STATES_MAX 8192 /* a geometry with more has no table */
#define FR_MIG_NOWHERE UINT16_MAX

struct fr_mig_states {
	uint32_t count;   /* 0: too many */
	int bits;         /* of a mask of placed instances */
	uint64_t *placed; /* ascending; the first is the empty GPU */
	uint16_t *
		next; /* [state * 64 + bit]: the state with that bit flipped, FR_MIG_NOWHERE = not legal */
};

/* open: as in st_mig_can_place_in(). ERR_NOMEM; then, and of one with `count` 0, nothing is to be freed. */
int fr_mig_states_make(const struct st_mig_geometry *g, uint64_t open, struct fr_mig_states *ret);
void fr_mig_states_fini(struct fr_mig_states *s);
/* Index of a mask among `count` ascending ones; FR_MIG_NOWHERE. */
uint32_t fr_mig_state_find(const uint64_t *placed, uint32_t count, uint64_t want);

#endif

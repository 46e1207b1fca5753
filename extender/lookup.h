/* Node names to ids for long lists. A scheduler that names nodes in one order again and again is guessed: the
 * name that followed a name last time is tried first. One that looks at nodes on several threads shuffles
 * them, and lets caches go cold meanwhile: so a look-up touches one small slot, one entry and the name. The
 * caller holds a lock. */
#ifndef TESSERA_EXTENDER_LOOKUP_H
#define TESSERA_EXTENDER_LOOKUP_H

#include "extender/scan.h"
#include "state/cluster.h"

struct ex_lookup {
	struct ex_lookup_node *v; /* by id */
	uint8_t *seen;            /* by id: in the list at hand */
	uint64_t *slots;          /* by hash, open addressing; mask + 1 of them */
	size_t mask;
	uint32_t count, first;
};
void ex_lookup_fini(struct ex_lookup *l);

/* Writes each name's id, ST_NONE for unknown names; *ret_repeated of a name that stood before in the
 * list is set. ERR_NOMEM. */
int ex_lookup_names(struct ex_lookup *l, const struct st_cluster *c, const struct ex_names *names,
		    uint32_t *ret_ids, void (*on_repeated)(void *ctx, size_t i), void *ctx,
		    struct err *err);

#endif

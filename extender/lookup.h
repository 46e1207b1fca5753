/* Node names to ids for long lists. A scheduler names the same nodes in the same order again and
 * again: the name that followed a name last time is tried first, by one comparison; only a miss costs
 * a hash. The caller holds a lock. */
#ifndef TESSERA_EXTENDER_LOOKUP_H
#define TESSERA_EXTENDER_LOOKUP_H

#include "extender/scan.h"
#include "state/cluster.h"

struct ex_lookup {
	struct ex_lookup_node *v; /* by id */
	uint8_t *seen;            /* by id: in the list at hand */
	uint32_t count, first;
};
void ex_lookup_fini(struct ex_lookup *l);

/* Writes each name's id, ST_NONE for unknown names; *ret_repeated of a name that stood before in the
 * list is set. ERR_NOMEM. */
int ex_lookup_names(struct ex_lookup *l, const struct st_cluster *c, const struct ex_names *names,
		    uint32_t *ret_ids, void (*on_repeated)(void *ctx, size_t i), void *ctx,
		    struct err *err);

#endif

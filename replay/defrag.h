/* Which pods to move, and where, so that a request fits or whole nodes become free. Plans only: what
 * is given is left as it was. */
#ifndef TESSERA_REPLAY_DEFRAG_H
#define TESSERA_REPLAY_DEFRAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"
#include "state/cluster.h"

struct rp_move {
	char *uid, *ns, *name; /* owned */
	uint32_t from, to;     /* nodes */
	struct st_decision d;  /* what it gets there */
};

struct rp_moves {
	struct rp_move *list; /* in the order in which they are to be made */
	size_t count, cap;
	/* The node that makes room for the request, or those that become free. */
	uint32_t *nodes;
	size_t node_count;
};
void rp_moves_fini(struct rp_moves *m);

#define RP_DEFRAG_EXACT 3 /* up to so many moves no plan has fewer */

/* Room for one pod with that request. No move where it fits as it is. Among plans of up to
 * RP_DEFRAG_EXACT moves the first with the fewest is found, each pod going where the policy puts it
 * in the room there is at that moment; beyond, nodes are emptied of as few pods as preemption finds.
 * ERR_NO_ROOM: no such plan, the message says why. ERR_NOMEM. */
int rp_defrag_room(struct st_cluster *c, struct po_placer *p, const struct st_request *req,
		   struct rp_moves *ret, struct err *err);

/* Empties that many nodes of all pods with GPUs, those with the fewest pods first; nothing moves to
 * a node without GPU pods. Nodes that are free already do not count. ERR_NO_ROOM: fewer can be, the
 * message says how many; *ret is made for those all the same, and is to be freed. ERR_NOMEM. */
int rp_defrag_nodes(struct st_cluster *c, struct po_placer *p, size_t nodes, struct rp_moves *ret,
		    struct err *err);

/* What is to be said beside the moves. */
struct rp_defrag_notes {
	bool room;       /* the plan is for a request, not for free nodes */
	size_t fixed;    /* pods with GPUs but without an allocation, which are never moved */
	uint32_t *empty; /* nodes with GPUs and without pods on them, by id; NULL where room */
	size_t empty_count;
};
/* ERR_NOMEM. */
int rp_defrag_notes_init(struct rp_defrag_notes *n, const struct st_cluster *c, bool room,
			 struct err *err);
void rp_defrag_notes_fini(struct rp_defrag_notes *n);

/* The plan in words, as a JSON object, and as a shell script of kubectl commands. Sticky failure in b;
 * JSON: malloc'ed, NULL: no memory. */
void rp_moves_text(struct buf *b, const struct st_cluster *c, const struct rp_moves *m,
		   const struct rp_defrag_notes *n);
char *rp_moves_json(const struct st_cluster *c, const struct rp_moves *m,
		    const struct rp_defrag_notes *n);
void rp_moves_kubectl(struct buf *b, const struct st_cluster *c, const struct rp_moves *m,
		      const struct rp_defrag_notes *n);

#endif

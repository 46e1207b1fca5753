/* The objects of an API server, taken into the service's model, and binds that the API server records
 * in the place of the journal. All functions may be called from any thread; what is told of one object
 * must come in order. No I/O: what is to be logged or posted is handed back. */
#ifndef TESSERA_EXTENDER_MIRROR_H
#define TESSERA_EXTENDER_MIRROR_H

#include "extender/service.h"

/* ---- nodes ---- */

struct ex_mirror_node {
	bool changed;      /* the model is not as before */
	bool refused;      /* the object cannot be used: the node is unready, why says it */
	bool news;         /* and that was not known before */
	int64_t total_mib; /* allocatable memory of all its GPUs */
	struct err why;
	bool twins;          /* since this description: it has a GPU that another node has, too */
	char twin_node[256]; /* that node, */
	char twin_gpu[128];  /* and the UUID */
};
/* Takes a node in. bad is NULL, or why spec (of which the name counts) cannot be read. ERR_NOMEM. */
int ex_mirror_node(struct ex_service *s, const struct st_node_spec *spec, const char *bad,
		   struct ex_mirror_node *ret, struct err *err);
void ex_mirror_node_gone(struct ex_service *s, const char *name);

/* ---- pods ---- */

enum ex_mirror_kind {
	EX_MIRROR_PENDING,
	EX_MIRROR_BOUND,
	EX_MIRROR_HELD, /* bound, but cannot be booked: to be told again when its node changes */
	EX_MIRROR_DONE, /* ended: holds nothing */
};
struct ex_mirror_pod {
	enum ex_mirror_kind kind;
	bool shrunk; /* BOUND: its memory limits are lower than they were in the books */
	bool fenced; /* HELD: its node gets nothing new */
	bool news;   /* HELD: and that was not known before, or for another reason */
	struct err why;
};
/* Takes a pod in as the API server has it. fresh: read by us at the moment, on behalf of a bind, so
 * that the bind finds it. ERR_NOMEM: nothing changed. */
int ex_mirror_pod(struct ex_service *s, const struct st_pod_spec *pod, bool fresh,
		  struct ex_mirror_pod *ret, struct err *err);
/* The pod is no more, or has left: all that it held is free. */
void ex_mirror_pod_gone(struct ex_service *s, const char *uid);

/* ---- binds ---- */

enum ex_hold {
	EX_HOLD_POST,  /* op->annotations are to be sent with the Binding */
	EX_HOLD_BOUND, /* the pod is bound to that node, with its GPUs */
	EX_HOLD_READ,  /* what is known does not suffice: read the pod, ex_mirror_pod(), again */
};
/* Reserves GPUs on a->node, or takes up the reservation that the pod has there; *ret_bytes: of the
 * annotations that the pod has already. Of op only uid, decision, annotations, learn and req are used.
 * Errors carry the sentence for the scheduler. May wait for the lock only. */
int ex_mirror_hold(struct ex_service *s, const struct ex_bind_args *a, struct ex_op *op,
		   enum ex_hold *ret, size_t *ret_bytes, struct err *err);

/* What a pod, as it was just read, says about a bind to node with op's annotations (op NULL: whatever
 * complete allocation it has there). */
enum ex_bind_seen {
	EX_SEEN_OURS,    /* bound there, with these */
	EX_SEEN_OTHER,   /* bound elsewhere, or with something else */
	EX_SEEN_UNBOUND, /* can be bound yet */
	EX_SEEN_NEVER,   /* not bound and never will be: ended, or being deleted */
};
enum ex_bind_seen ex_mirror_seen(struct ex_service *s, const struct st_pod_spec *pod,
				 const char *node, const struct ex_op *op);

/* Pods that hold something without the word of a watch: bound by us, not seen bound yet. *ret is
 * malloc'ed, with one "uid\0namespace\0name\0" after the other, *ret_len bytes. ERR_NOMEM. */
int ex_mirror_unseen(struct ex_service *s, char **ret, size_t *ret_len, struct err *err);

/* st_cluster_mig_known() */
bool ex_mirror_mig_known(struct ex_service *s, const char *profile);

/* Smallest allocatable memory of a GPU that is there, 0: none is known. */
int32_t ex_mirror_smallest_gpu(struct ex_service *s);

#endif

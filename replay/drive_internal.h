/* Inside of the drive: what drive.c, drive_wire.c and drive_map.c share. */
#ifndef TESSERA_REPLAY_DRIVE_INTERNAL_H
#define TESSERA_REPLAY_DRIVE_INTERNAL_H

#include "base/rng.h"
#include "replay/drive.h"
#include "replay/http.h"

struct drive {
	const struct rp_trace *t;
	const struct rp_order *o;
	const struct rp_drive_options *opt;
	struct rp_http *http;
	struct rng rng;
	char **quoted;        /* node names as JSON strings, by id */
	struct buf all_names; /* `,"Nodes":null,"NodeNames":[...]}` */
	size_t steps;
	uint32_t *nodes; /* where each arrival is bound or being bound; ST_NONE = nowhere */
	uint8_t *tries;  /* bind refusals of each arrival */
	bool *clone;     /* the pod has arrived before: it needs a name of its own */
	struct rp_drive_result result;
};

/* What a reply to filter or prioritize says. Nodes are ids; both lists hold node_count entries. */
struct drive_reply {
	size_t count;
	uint32_t *nodes;
	int64_t *scores;
};

/* ---- drive_wire.c: bodies and replies ---- */

int drive_names_init(struct drive *d, struct err *err);
/* {"Pod":...,"Nodes":null,"NodeNames":[...]} into body; nodes NULL: all of them. */
int drive_args(struct drive *d, size_t step, const uint32_t *nodes, size_t count, struct buf *body,
	       struct err *err);
int drive_bind_args(struct drive *d, size_t step, struct buf *body, struct err *err);
/* Fills ret->nodes and counts the refusals when there are none. ERR_IO: not an answer. */
int drive_filter_reply(struct drive *d, size_t step, const struct rp_call *call,
		       struct drive_reply *ret, struct err *err);
/* Scores of ret->nodes, 0 where the reply names none. */
int drive_prioritize_reply(struct drive *d, const struct rp_call *call, struct drive_reply *ret,
			   struct err *err);
/* *ret_ok: bound. */
int drive_bind_reply(struct drive *d, size_t step, const struct rp_call *call, bool *ret_ok,
		     struct err *err);

/* ---- drive_map.c ---- */

/* Asks for the cluster's state and writes the decisions. */
int drive_decisions(struct drive *d, struct err *err);

#endif

/* What every kind of replay plays on: a cluster before the first arrival, the placer, FGD's measure
 * beside it, and the books of GPU milli in use. */
#ifndef TESSERA_REPLAY_STAGE_H
#define TESSERA_REPLAY_STAGE_H

#include <stdint.h>

#include "base/err.h"
#include "fragmentation/measure.h"
#include "policy/policy.h"
#include "replay/run.h"
#include "replay/trace.h"
#include "state/cluster.h"

struct rp_stage {
	const struct rp_trace *t;
	const struct rp_run_options *opt;
	struct st_cluster *cluster;
	struct po_placer *placer;
	struct fr_measure *fgd; /* FGD's measure; NULL where the placer keeps it anyway */
	int64_t total_milli, used_milli;
};

/* ranks: by node index, or NULL. ERR_INVALID: the nodes have no GPU. ERR_NOMEM. The stage is to be
 * closed also after an error. */
int rp_stage_open(struct rp_stage *s, const struct rp_trace *t, const uint32_t *ranks,
		  const struct rp_run_options *opt, struct err *err);
void rp_stage_close(struct rp_stage *s);

/* FGD's cluster sums, whatever the policy. ERR_NOMEM. */
int rp_stage_fgd(struct rp_stage *s, struct po_fragmentation *ret, struct err *err);
/* Books the decision as the extender does, as the pod of that number. ERR_NOMEM, or what the model
 * says against it. */
int rp_stage_book(struct rp_stage *s, uint64_t number, const char *name,
		  const struct st_request *req, const struct st_decision *d, struct err *err);
/* The pod of that number, on that node, is gone. */
int rp_stage_leave(struct rp_stage *s, uint64_t number, uint32_t node, struct err *err);
/* To be called once for each arrival, placed or not: prices of bid-price follow them. ERR_NOMEM. */
int rp_stage_arrived(struct rp_stage *s, struct err *err);

#endif

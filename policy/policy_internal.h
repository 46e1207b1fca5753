/* Inside of policy/. */
#ifndef TESSERA_POLICY_INTERNAL_H
#define TESSERA_POLICY_INTERNAL_H

#include "base/hash.h"
#include "policy/policy.h"

#define PO_SHAPES_DEFAULT 256
#define PO_POPULARITY_DEFAULT 95
/* Counts are halved beyond this, so that the estimate follows a changing mix. */
#define PO_LEARN_WINDOW 20000

/* Price steps: at the start, and where a new workload goes on with the prices of the old one; then one
 * every few arrivals, and scores change after so many steps. */
#define PO_PRICE_STEPS_START 1500
#define PO_PRICE_STEPS_AGAIN 100
#define PO_PRICE_ARRIVALS 2
#define PO_PRICE_PUBLISH 10
/* With prices apart: nodes brought up to date in one go, and steps in one go. */
#define PO_PRICER_NODES 64
#define PO_PRICER_STEPS 50

/* A request, packed without padding or container names: the key of its shape. */
#define PO_KEY_MAX 1024

/* The state of all nodes for one request. A leaf of the tree is 0 before the first look, a verdict
 * (below BP_VERDICT_COUNT, or so much more where it is not sure) where the node cannot take the request, else
 * (score, rank) packed with the top bit of the score flipped, so that the largest key wins. */
struct po_shape {
	UT_hash_handle hh; /* key: key, key_len */
	struct po_placer *placer;
	struct st_request req;
	unsigned char *key;
	size_t key_len;
	uint64_t generation; /* of the placer's workload */
	uint64_t log_pos;    /* changes of the cluster taken in so far */
	uint64_t tick;       /* of the last ask */
	uint64_t decision_no;
	bool unfinished;    /* memory was short in the last refresh */
	uint32_t leaves;    /* capacity, a power of two */
	uint64_t *tree;     /* tree[1] is the root, tree[leaves + id] the node's leaf */
	uint32_t *versions; /* of each node, as of its leaf */
};

struct po_placer {
	struct st_cluster *cluster;
	struct po_options opt;
	const struct po_policy *policy;
	struct fr_counts *counts;
	struct fr_measure *measure; /* NULL where the policy has none, or before the first ask */
	struct fr_measure *report;  /* FGD's, for policies without a measure */
	uint64_t measure_pos, report_pos;
	uint64_t generation;
	int64_t learned; /* since the last rebuild */
	uint64_t arrivals;
	uint32_t price_steps; /* since the last publication */
	bool priced;          /* the search at the start was run for this workload ... */
	bool carried;         /* ... or it goes on with the prices of the one before */
	bool outdated;        /* prices apart: the pricer is to make the workload anew */
	struct po_shape *shapes;
	uint64_t tick;
	struct st_decision scratch;
};

/* placer.c: the measure exists and knows every change. ERR_NOMEM. */
int po_placer_sync(struct po_placer *p);
/* A measure for what was learned, which knows no node yet. NULL: no memory. */
struct fr_measure *po_placer_measure_build(struct po_placer *p, enum fr_kind kind);

static inline bool po_placer_has_prices(const struct po_placer *p)
{
	return p->policy->uses_measure && p->policy->measure == FR_BID;
}

/* shape.c */
struct po_shape *po_shape_get(struct po_placer *p, const struct st_request *req);
int po_shape_refresh(struct po_shape *s);
void po_shape_free(struct po_shape *s);

#endif

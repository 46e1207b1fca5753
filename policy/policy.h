/* Placement: filter -> score -> tie-break over all nodes, with a cache per request shape.
 *
 * Everything here is a pure function of the cluster, the workload and the request: asking changes
 * caches only. Not thread-safe; the caller holds the lock of the cluster. */
#ifndef TESSERA_POLICY_H
#define TESSERA_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "binpack/binpack.h"
#include "fragmentation/workload.h"
#include "state/cluster.h"

/* One row of the policy table. */
struct po_policy {
	const char *name; /* "ca-fgd" */
	const char *help; /* one line */
	bool uses_measure;
	enum fr_kind measure;
	enum bp_pick pick;
	bool random; /* score is drawn per (seed, decision number, node) */
	/* Node score, higher is better, for a request that fits; NULL: the measure's score. */
	int32_t (*score)(const struct st_cluster *c, const struct st_node *n,
			 const struct st_request *req);
};

/* The i-th policy, NULL past the end; "ca-fgd" is the first, and what is taken where
 * none is named (the extender names one always). */
const struct po_policy *po_policy_at(size_t i);
const struct po_policy *po_policy_find(const char *name); /* NULL: no such policy */

enum po_ties { PO_TIES_RANK, PO_TIES_RANDOM };

struct po_options {
	const struct po_policy *policy; /* NULL: the default */
	enum po_ties ties;
	uint64_t seed;          /* of random policies and random ties */
	int popularity_percent; /* of the typical set; 0 = 95 */
	size_t shapes_max;      /* cached request shapes; 0 = 256 */
	bool learn;             /* estimate the workload from po_placer_learn() */
	bool prices_apart;      /* prices are the business of a po_pricer, never of a question */
};

struct po_placer;

/* Borrows the cluster. NULL: no memory. */
struct po_placer *po_placer_new(struct st_cluster *c, const struct po_options *opt);
void po_placer_free(struct po_placer *p);
const struct po_policy *po_placer_policy(const struct po_placer *p);

/* Counts a request into the workload estimate. With learn set the estimate is rebuilt now and then
 * (each rebuild drops all caches); otherwise only po_placer_rebuild() does. ERR_NOMEM. */
int po_placer_learn(struct po_placer *p, const struct st_request *req, struct err *err);
/* The same for n (>= 1) equal requests at once. */
int po_placer_learn_many(struct po_placer *p, const struct st_request *req, int64_t n,
			 struct err *err);
/* A pod arrived, placed or not: says when the prices of bid-price are due. True = the caller runs
 * po_placer_reprice() before the next ask; with prices_apart it wakes whoever runs the pricer. Always
 * false for other policies. */
bool po_placer_arrival(struct po_placer *p);
/* A step of the price search on the present state; now and then the prices found are put in use,
 * which drops all cached scores. ERR_NOMEM. */
int po_placer_reprice(struct po_placer *p, struct err *err);

/* Prices searched beside the decisions, for a placer with prices_apart. The search has a measure of its
 * own, which follows the cluster a slice at a time and trades places with the placer's when its prices
 * are to be used; a workload that has changed is taken up in the same way. How far it is when a
 * question comes depends on time: replays search between the questions instead.
 *
 *	lock; while ((todo = po_pricer_look(s)) != PO_PRICER_IDLE) {
 *		unlock; if (todo == PO_PRICER_SEARCH) po_pricer_search(s); lock; }  wait for an arrival
 */
struct po_pricer;
enum po_pricer_todo { PO_PRICER_IDLE, PO_PRICER_MORE, PO_PRICER_SEARCH };
/* Borrows the placer, which outlives it. NULL: no memory. */
struct po_pricer *po_pricer_new(struct po_placer *p);
void po_pricer_free(struct po_pricer *s);
/* Under the lock of the cluster, for a bounded time: takes in what changed, and puts new prices in
 * use. MORE: call again, the lock may be let go in between. IDLE: nothing to do until
 * po_placer_arrival() says so, or memory is short. Always IDLE for policies without prices. */
enum po_pricer_todo po_pricer_look(struct po_pricer *s);
/* Without the lock, after SEARCH and before the next look: some steps, or frees what the look put aside. */
void po_pricer_search(struct po_pricer *s);
/* Under the lock: how many times new prices were put in use. */
uint64_t po_pricer_published(const struct po_pricer *s);

/* Makes the workload from what was learned. ERR_NOMEM: the old one stays. */
int po_placer_rebuild(struct po_placer *p, struct err *err);
const struct fr_workload *po_placer_workload(const struct po_placer *p); /* NULL: no measure */

/* The answer for one node and request: a verdict and, where it is BP_OK, a key that orders nodes:
 * the larger key wins; keys of different nodes differ. */
struct po_answer {
	enum bp_verdict verdict;
	uint64_t key; /* (score, rank) packed; 0 unless BP_OK */
	int32_t score;
};

/* A request brought up to date against the present cluster; valid until the cluster or workload
 * changes or another request is asked about. NULL: no memory. decision_no feeds random policies
 * and ties only: equal numbers give equal draws. */
struct po_shape;
struct po_shape *po_placer_ask(struct po_placer *p, const struct st_request *req,
			       uint64_t decision_no);
/* O(1). An unknown or removed id is BP_NO_NODE. */
struct po_answer po_shape_node(const struct po_shape *s, uint32_t node);
/* The winner over all nodes, ST_NONE when nothing fits; O(1) after the ask (random: O(nodes)). */
uint32_t po_shape_best(const struct po_shape *s);

/* Chooses GPUs on the node as the scores assumed. */
enum bp_verdict po_placer_choose(struct po_placer *p, const struct st_request *req, uint32_t node,
				 uint64_t decision_no, struct st_decision *ret);

/* Fragmentation of the cluster as FGD defines it, for the workload learned, whatever the policy: F in
 * milli of a device = n / divisor. Brings all nodes up to date first. ERR_NOMEM. */
struct po_fragmentation {
	int64_t n; /* sum over nodes */
	int64_t divisor;
	int64_t idle_milli;
};
int po_placer_fragmentation(struct po_placer *p, struct po_fragmentation *ret, struct err *err);
/* The same by the policy's own measure (FGD's where it has none). */
int po_placer_measure(struct po_placer *p, struct po_fragmentation *ret, struct err *err);

/* Preemption: which pods must go from the node so that the request fits.
 *
 * Candidates are the pods of a priority below the given one that are not terminating already.
 * Those in proposed[] (UIDs) go first: what the scheduler proposed and holds no GPU stays a victim,
 * since it may be in the way of something we do not see; what holds GPUs is kept only where it
 * makes room; further pods are added, least important first, where the proposal is not enough. None
 * of the others can be spared, and where one pod is enough it is one.
 * BP_OK: *ret_uids is malloc'ed with *ret_count UIDs that point into the cluster; none = it fits as
 * it is. Otherwise the verdict says what stands in the way even with all candidates gone.
 * Changes nothing. *ret_rc = ERR_NOMEM when memory was short. */
enum bp_verdict po_placer_victims(struct po_placer *p, const struct st_request *req, uint32_t node,
				  int32_t priority, const char *const *proposed,
				  size_t proposed_count, const char ***ret_uids, size_t *ret_count,
				  int *ret_rc);

/* A cluster of its own that holds a copy of one node and its pods, for asking "what if". The node's
 * id is 0 there. Pods for which skip() is true are left out; skip may be NULL. NULL: no memory, or
 * no such node. */
struct st_cluster *po_copy_node(const struct st_cluster *c, uint32_t node,
				bool (*skip)(const struct st_pod *p, void *ctx), void *ctx);

#endif

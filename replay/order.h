/* The arrivals of one run: which pods come in which order, and the rank of each node, by which equal
 * scores are decided. */
#ifndef TESSERA_REPLAY_ORDER_H
#define TESSERA_REPLAY_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/trace.h"

struct rp_order {
	uint32_t *pods; /* indexes in the trace's pods, in order of arrival; repeats are clones */
	size_t pod_count, pod_cap;
	uint32_t *ranks; /* by node index; NULL: the cluster ranks nodes by a hash of their name */
	int64_t milli;   /* GPU milli asked for in all */
};

void rp_order_fini(struct rp_order *o);

/* Reads an order file:
 *
 *	pods N req R        N arrivals, R = their GPU milli in all
 *	N lines             pod names
 *	nodes M             all nodes of the trace
 *	M lines             RANK-name, each rank of 0..M-1 once
 *
 * ERR_INVALID, ERR_RANGE: the message starts with file:line:column. ERR_NOMEM. *ret is written only
 * on success. */
int rp_order_read(const struct rp_trace *t, const char *path, const char *text, size_t len,
		  struct rp_order *ret, struct err *err);

#define RP_NO_INFLATION 0

struct rp_order_options {
	uint64_t seed;
	int64_t inflate_nano; /* arrivals ask for this many 10^-9 of the cluster; RP_NO_INFLATION: once each */
	bool keep_file_order; /* no shuffle, no ranks: pods of a live cluster */
};

/* Makes an order: the pods sorted by name and shuffled; then clones, drawn uniformly from the sorted
 * pods until the next draw would pass the target (tested with what a pod asks of one device, as the
 * published protocol does). A trace that asks for more than the target loses random pods. Node ranks
 * are a random permutation. The same seed gives the same ranks at any inflation. ERR_NOMEM;
 * ERR_INVALID: clones are wanted, but no pod asks for a GPU. */
int rp_order_make(const struct rp_trace *t, const struct rp_order_options *opt,
		  struct rp_order *ret, struct err *err);

#endif

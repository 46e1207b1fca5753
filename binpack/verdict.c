#include <stdio.h>
#include <string.h>

#include "binpack/binpack_internal.h"

/* Text without numbers, whether eviction may help, and how close to success the verdict is. */
static const struct {
	const char *text;
	bool resolvable;
	uint8_t nearness;
} verdicts[BP_VERDICT_COUNT] = {
	[BP_OK] = {"fits", true, 99},
	[BP_NO_NODE] = {"node is not known to tessera", false, 0},
	[BP_NO_GPU] = {"node has no GPU", false, 1},
	[BP_PRODUCT] = {"no GPU of an accepted product", false, 2},
	[BP_TOO_LARGE] = {"request is larger than any GPU of the node", false, 4},
	[BP_TOO_MANY] = {"node has fewer GPUs than asked for", false, 5},
	[BP_ONLY_MIG] = {"GPUs are partitioned by MIG", false, 3},
	[BP_NO_MIG] = {"no GPU offers this MIG profile", false, 3},
	[BP_HOST_TOO_SMALL] = {"node has too little CPU or memory in all", false, 6},
	[BP_UNREADY] = {"node is not ready for GPU pods", false, 7},
	[BP_FENCED] = {"node is fenced: a pod there has an unreadable allocation", false, 8},
	[BP_TAKEN] = {"GPUs are unhealthy or held by others", false, 2},
	[BP_CPU] = {"not enough CPU free", true, 10},
	[BP_HOST_MEMORY] = {"not enough host memory free", true, 10},
	[BP_PODS] = {"too many pods on the node", true, 10},
	[BP_MODE] = {"GPUs with room are in another compute mode", true, 13},
	[BP_MEMORY] = {"no GPU has enough memory free", true, 12},
	[BP_CLIENTS] = {"client limit of the GPUs is reached", true, 14},
	[BP_COMPUTE] = {"no GPU has enough compute share free", true, 15},
	[BP_LIMIT] = {"memory limits would pass the overcommit bound", true, 16},
	[BP_NOT_IDLE] = {"not enough idle GPUs", true, 17},
	[BP_MIG_ROOM] = {"no free placement for this MIG profile", true, 18},
	[BP_TOO_FEW] = {"fewer GPUs fit than asked for", true, 19},
	[BP_COMBINATION] = {"the pod's containers do not fit together", true, 20},
};

bool bp_verdict_resolvable(enum bp_verdict v)
{
	return verdicts[v].resolvable;
}

const char *bp_verdict_text(enum bp_verdict v)
{
	return verdicts[v].text;
}

enum bp_verdict bp_nearer(enum bp_verdict a, enum bp_verdict b)
{
	return verdicts[b].nearness > verdicts[a].nearness ? b : a;
}

/* What the limits of one GPU may add up to. */
static int64_t limit_bound(const struct st_config *cfg, int32_t alloc_mib)
{
	return (int64_t)alloc_mib * cfg->overcommit_permille / 1000;
}

static void amount_set(struct bp_amount *a, const struct st_config *cfg, const struct st_item *it,
		       int32_t alloc_mib)
{
	a->alloc_mib = alloc_mib;
	a->request_mib = st_item_request_mib(it, alloc_mib);
	a->limit_mib = st_item_limit_mib(it, alloc_mib);
	a->limit_bound = limit_bound(cfg, alloc_mib);
}

enum bp_verdict bp_share_verdict(const struct st_config *cfg, const struct st_gpu *g,
				 enum st_mode mode, const struct st_item *it, struct bp_amount *a)
{
	if (a->alloc_mib != g->alloc_mib)
		amount_set(a, cfg, it, g->alloc_mib);
	if (g->taken != ST_TAKEN_NO)
		return BP_TAKEN;
	if (g->mode == ST_MODE_MIG)
		return BP_ONLY_MIG;
	if (a->request_mib > g->alloc_mib || a->limit_mib > a->limit_bound)
		return BP_TOO_LARGE;
	if (g->free_mib < a->request_mib)
		return BP_MEMORY;
	if (g->mode != ST_MODE_FREE && g->mode != mode)
		return BP_MODE;
	if (g->clients >= cfg->clients_max)
		return BP_CLIENTS;
	if (mode == ST_MODE_SM_SHARING && g->compute_left_nano < it->compute_nano)
		return BP_COMPUTE;
	if (g->limit_mib + a->limit_mib > a->limit_bound)
		return BP_LIMIT;
	return BP_OK;
}

enum bp_verdict bp_node_verdict(const struct st_cluster *c, const struct st_node *n,
				const struct st_request *req)
{
	if (!n || !n->present)
		return BP_NO_NODE;
	if (n->unready) /* first: its reason may be why it shows no GPU */
		return BP_UNREADY;
	if (req->item_count > 0) {
		if (n->gpu_count == 0)
			return BP_NO_GPU;
		if (req->product[0] &&
		    !st_product_accepts(req->product,
					n->product == STRPOOL_NONE
						? NULL
						: strpool_str(st_cluster_products(c), n->product)))
			return BP_PRODUCT;
	}
	if (n->fences > 0)
		return BP_FENCED;
	/* Who asks for none may come although others overbooked, as in the scheduler. */
	if (req->cpu_milli > 0 && req->cpu_milli > n->cpu_left_milli)
		return req->cpu_milli > n->cpu_milli ? BP_HOST_TOO_SMALL : BP_CPU;
	if (req->mem_mib > 0 && req->mem_mib > n->mem_left_mib)
		return req->mem_mib > n->mem_mib ? BP_HOST_TOO_SMALL : BP_HOST_MEMORY;
	if (n->pods_max > 0 && n->pods >= n->pods_max)
		return BP_PODS;
	return BP_OK;
}

/* ---- explanations ---- */

struct tally {
	unsigned by_mode[ST_MODE_COUNT], taken, open;
	int32_t most_free, most_alloc;
	unsigned most_clients;
};

static struct tally tally_gpus(const struct st_node *n)
{
	struct tally t = {.most_free = -1};

	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];

		if (g->taken != ST_TAKEN_NO) {
			t.taken++;
			continue;
		}
		t.by_mode[g->mode]++;
		if (g->clients > t.most_clients)
			t.most_clients = g->clients;
		if (g->mode == ST_MODE_MIG || g->mode == ST_MODE_EXCLUSIVE)
			continue;
		t.open++;
		if (g->free_mib > t.most_free)
			t.most_free = g->free_mib;
		if (g->alloc_mib > t.most_alloc)
			t.most_alloc = g->alloc_mib;
	}
	return t;
}

static const struct st_item *largest_share(const struct st_request *req, int32_t alloc_mib)
{
	const struct st_item *best = NULL;

	for (unsigned i = 0; i < req->item_count; i++) {
		const struct st_item *it = &req->items[i];

		if (it->kind == ST_KIND_SHARE &&
		    (!best ||
		     st_item_request_mib(it, alloc_mib) > st_item_request_mib(best, alloc_mib)))
			best = it;
	}
	return best;
}

/* Appends ", <count> <what>" for each state GPUs are in. */
static int put_states(const struct tally *t, char *buf, unsigned cap, int at)
{
	static const struct {
		enum st_mode mode;
		const char *text;
	} states[] = {
		{ST_MODE_FREE, "idle"},
		{ST_MODE_TIME_SLICING, "in time-slicing"},
		{ST_MODE_SM_SHARING, "in sm-sharing"},
		{ST_MODE_EXCLUSIVE, "in exclusive use"},
		{ST_MODE_MIG, "in MIG mode"},
	};
	const char *sep = ": ";

	for (unsigned i = 0; i < sizeof(states) / sizeof(states[0]) && at < (int)cap; i++) {
		unsigned count = t->by_mode[states[i].mode];

		if (count == 0)
			continue;
		at += snprintf(buf + at, cap - (unsigned)at, "%s%u %s", sep, count, states[i].text);
		sep = ", ";
	}
	if (t->taken > 0 && at < (int)cap)
		at += snprintf(buf + at, cap - (unsigned)at, "%s%u unhealthy or held by others",
			       sep, t->taken);
	return at;
}

/* Appends how much is asked for and how much there is, for a verdict on memory. */
static int put_memory(const struct st_config *cfg, const struct tally *t, const struct st_item *it,
		      enum bp_verdict v, char *buf, unsigned cap, int at)
{
	int32_t request = st_item_request_mib(it, t->most_alloc);
	const char *each = it->count > 1 ? " on each" : "";

	if (v == BP_MEMORY)
		return at + snprintf(buf + at, cap - (unsigned)at, " (%d of %d MiB%s)",
				     t->most_free, request, each);
	if (request > t->most_alloc)
		return at + snprintf(buf + at, cap - (unsigned)at, " (%d MiB%s, at most %d)",
				     request, each, t->most_alloc);
	return at + snprintf(buf + at, cap - (unsigned)at, " (limit of %d MiB%s, at most %lld)",
			     st_item_limit_mib(it, t->most_alloc), each,
			     (long long)limit_bound(cfg, t->most_alloc));
}

/* Which one bound is in the way of several shares: without it they would fit. Appended where it is one. */
static int put_bound(const struct st_cluster *c, const struct st_node *n,
		     const struct st_request *req, char *buf, unsigned cap, int at)
{
	enum { CLIENTS, COMPUTE, LIMITS, MEMORY, BOUNDS };
	const struct bp_chooser how = {.pick = BP_PICK_FIRST};

	for (int bound = CLIENTS; bound < BOUNDS; bound++) {
		struct st_config cfg = *st_cluster_config(c);
		struct st_request less = *req;
		struct bp_task t = {
			.cluster = c, .cfg = &cfg, .node = n, .how = &how, .req = &less};
		struct st_decision d;
		int32_t score;

		if (bound == CLIENTS)
			cfg.clients_max = INT32_MAX;
		if (bound == LIMITS)
			cfg.overcommit_permille = INT32_MAX;
		for (unsigned i = 0; i < less.item_count; i++) {
			struct st_item *it = &less.items[i];

			if (bound == COMPUTE)
				it->compute_nano = 0;
			if (bound != MEMORY || it->kind != ST_KIND_SHARE)
				continue;
			it->request_mib = 1;
			it->request_nano = 0;
		}
		if (bp_search(&t, &d, &score) != BP_OK)
			continue;
		if (bound == CLIENTS)
			return at + snprintf(buf + at, cap - (unsigned)at,
					     " (client limit of a GPU: %d)",
					     st_cluster_config(c)->clients_max);
		return at + snprintf(buf + at, cap - (unsigned)at, " (%s)",
				     bound == COMPUTE  ? "compute shares of a GPU"
				     : bound == LIMITS ? "overcommit bound of memory limits"
						       : "memory");
	}
	return at;
}

char *bp_explain(const struct st_cluster *c, uint32_t node, const struct st_request *req,
		 enum bp_verdict v, char *buf, unsigned cap)
{
	const struct st_node *n = node == ST_NONE ? NULL : st_cluster_node(c, node);
	const struct st_item *it;
	struct tally t;
	int at = snprintf(buf, cap, "%s", bp_verdict_text(v));

	if (!n || at >= (int)cap)
		return buf;
	t = tally_gpus(n);
	it = largest_share(req, t.most_alloc);
	switch (v) {
	case BP_UNREADY:
		if (n->why_unready)
			snprintf(buf + at, cap - (unsigned)at, " (%s)", n->why_unready);
		break;
	case BP_CLIENTS:
		snprintf(buf + at, cap - (unsigned)at, " (%d)", st_cluster_config(c)->clients_max);
		break;
	case BP_MEMORY:
	case BP_TOO_LARGE:
		if (it && t.open > 0)
			at = put_memory(st_cluster_config(c), &t, it, v, buf, cap, at);
		if (at >= (int)cap)
			break;
		__attribute__((fallthrough));
	case BP_MODE:
	case BP_NOT_IDLE:
	case BP_TOO_FEW:
	case BP_TAKEN:
	case BP_COMBINATION:
		if (v == BP_TOO_FEW || v == BP_COMBINATION)
			at = put_bound(c, n, req, buf, cap, at);
		if (at >= (int)cap)
			break;
		at += snprintf(buf + at, cap - (unsigned)at, "; %u GPU%s", n->gpu_count,
			       n->gpu_count == 1 ? "" : "s");
		if (at < (int)cap)
			put_states(&t, buf, cap, at);
		break;
	case BP_TOO_MANY:
		snprintf(buf + at, cap - (unsigned)at, " (%u)", n->gpu_count);
		break;
	default:
		break;
	}
	return buf;
}

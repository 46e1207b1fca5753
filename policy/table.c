/* The policy table, and the node scores of the baselines in exact integers.
 * Sources: the published simulator of Weng et al. (ATC 2023) for dotprod, clustering, packing and
 * bestfit; sizes are normalised as there, by 128 cores and 8 GPUs. */
#include "policy/policy.h"

#include <string.h>

#include "base/arith.h"

#define NORM_CPU INT64_C(128000)
#define NORM_GPU INT64_C(8000)

/* Milli of all GPUs of the node that are free, whatever for. */
static int64_t left_milli(const struct st_node *n)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];

		if (g->taken == ST_TAKEN_NO && g->free_mib > 0)
			sum += (int64_t)g->free_mib * 1000 / g->alloc_mib;
	}
	return sum;
}

/* Milli that an item takes of each device, as measured on the node's first GPU. */
static int64_t item_milli(const struct st_node *n, const struct st_item *it)
{
	const struct st_gpu *g = n->gpu_count ? &n->gpus[0] : NULL;
	int p;

	if (!g || it->kind == ST_KIND_WHOLE)
		return 1000;
	if (it->kind == ST_KIND_SHARE && g->alloc_mib > 0)
		return (int64_t)st_item_request_mib(it, g->alloc_mib) * 1000 / g->alloc_mib;
	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_mig_geometry *geo =
			n->gpus[i].mig ? n->gpus[i].mig : n->gpus[i].mig_could;

		p = geo ? st_item_mig_profile(it, geo) : -1;
		if (p >= 0)
			return geo->profiles[p].units * 1000 / geo->units_total;
	}
	return 0;
}

static int64_t request_milli(const struct st_node *n, const struct st_request *req)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < req->item_count; i++)
		sum += item_milli(n, &req->items[i]) * req->items[i].count;
	return sum;
}

static int32_t clamp_score(int64_t v)
{
	return (int32_t)arith_min(arith_max(v, INT32_MIN / 2), INT32_MAX / 2);
}

static int32_t score_bestfit(const struct st_cluster *c, const struct st_node *n,
			     const struct st_request *req)
{
	int64_t cpu = n->cpu_left_milli - req->cpu_milli;
	int64_t gpu = left_milli(n) - request_milli(n, req);

	(void)c;
	return clamp_score((2 * NORM_CPU - cpu - NORM_CPU / NORM_GPU * gpu) / 2560);
}

static int32_t score_dotprod(const struct st_cluster *c, const struct st_node *n,
			     const struct st_request *req)
{
	__int128 dot = (__int128)50 * n->cpu_left_milli * req->cpu_milli +
		       (__int128)12800 * left_milli(n) * request_milli(n, req);

	(void)c;
	return clamp_score(
		(int64_t)(((__int128)100 * NORM_CPU * NORM_CPU - dot) / (NORM_CPU * NORM_CPU)));
}

/* What kind of GPU pod a set of grants or items makes: 0 = none, 1 = share, 1 + k = k devices. */
static unsigned request_tag(const struct st_request *req)
{
	unsigned count = 0;

	if (req->item_count == 0)
		return 0;
	if (req->items[0].kind == ST_KIND_SHARE)
		return 1;
	for (unsigned i = 0; i < req->item_count; i++)
		count += req->items[i].count;
	return 1 + count;
}

static unsigned pod_tag(const struct st_pod *p)
{
	unsigned count = 0;

	if (p->grant_count == 0)
		return 0;
	if (p->grants[0].kind == ST_KIND_SHARE)
		return 1;
	for (unsigned i = 0; i < p->grant_count; i++)
		count += p->grants[i].count;
	return 1 + count;
}

static int32_t score_clustering(const struct st_cluster *c, const struct st_node *n,
				const struct st_request *req)
{
	int64_t q = 25 * (NORM_GPU - left_milli(n)) / NORM_GPU;
	unsigned tag = request_tag(req);
	bool same = false, other = false;

	if (tag == 0)
		return 0;
	for (const struct st_pod *p = st_cluster_node_pod_next(c, n->id, NULL); p;
	     p = st_cluster_node_pod_next(c, n->id, p)) {
		unsigned t = pod_tag(p);

		same |= t == tag;
		other |= t != 0 && t != tag;
	}
	return clamp_score((same ? (other ? 50 : 75) : (other ? 0 : 25)) + q);
}

/* Milli free of the smallest non-idle GPU that takes the request; -1 = only idle ones do. */
static int64_t smallest_used(const struct st_cluster *c, const struct st_node *n,
			     const struct st_item *it)
{
	int64_t best = -1, r;

	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];

		if (g->mode == ST_MODE_FREE || g->mode == ST_MODE_MIG ||
		    !st_gpu_fits_share(st_cluster_config(c), g, it->mode,
				       st_item_request_mib(it, g->alloc_mib),
				       st_item_limit_mib(it, g->alloc_mib), it->compute_nano))
			continue;
		r = (int64_t)g->free_mib * 1000 / g->alloc_mib;
		if (best < 0 || r < best)
			best = r;
	}
	return best;
}

static int32_t score_packing(const struct st_cluster *c, const struct st_node *n,
			     const struct st_request *req)
{
	int64_t idle = 0, used;

	if (req->item_count == 0)
		return 0;
	for (unsigned i = 0; i < n->gpu_count; i++)
		idle += st_gpu_idle(&n->gpus[i]);
	if (idle == n->gpu_count)
		return clamp_score(arith_max(33 - idle, idle));
	if (req->items[0].kind != ST_KIND_SHARE || req->items[0].count > 1)
		return clamp_score(arith_max(50 - req->items[0].count, 33));
	used = smallest_used(c, n, &req->items[0]);
	if (used < 0)
		return 49; /* one idle device is opened */
	return clamp_score(arith_max(100 - used * 100 / 1000 / 10, 50));
}

/* The emptier the node, the better: for clusters that are never full. */
static int32_t score_spread(const struct st_cluster *c, const struct st_node *n,
			    const struct st_request *req)
{
	int64_t all = (int64_t)n->gpu_count * 1000;

	(void)c;
	if (req->item_count == 0 || all == 0)
		return clamp_score(n->cpu_milli > 0 ? n->cpu_left_milli * 1000 / n->cpu_milli : 0);
	return clamp_score((left_milli(n) - request_milli(n, req)) * 1000 / all);
}

static int32_t score_none(const struct st_cluster *c, const struct st_node *n,
			  const struct st_request *req)
{
	(void)c, (void)n, (void)req;
	return 0;
}

static const struct po_policy policies[] = {
	{.name = "ca-fgd",
	 .help = "capacity-aware fragmentation gradient descent",
	 .uses_measure = true,
	 .measure = FR_CA,
	 .pick = BP_PICK_MEASURE},
	{.name = "fgd",
	 .help = "fragmentation gradient descent as published (ATC 2023), in exact integers",
	 .uses_measure = true,
	 .measure = FR_FGD,
	 .pick = BP_PICK_MEASURE},
	{.name = "bid-price",
	 .help = "sells each node's remainder at prices that follow what the cluster could still host",
	 .uses_measure = true,
	 .measure = FR_BID,
	 .pick = BP_PICK_MEASURE},
	{.name = "bestfit",
	 .help = "least CPU and GPU left on the node, fullest GPU first",
	 .pick = BP_PICK_BEST_FIT,
	 .score = score_bestfit},
	{.name = "firstfit",
	 .help = "the first node, GPU and MIG start that fit, as device plugins do",
	 .pick = BP_PICK_FIRST,
	 .score = score_none},
	{.name = "packing",
	 .help = "used GPUs before idle ones, used nodes before idle ones",
	 .pick = BP_PICK_BEST_FIT,
	 .score = score_packing},
	{.name = "clustering",
	 .help = "pods of a kind (shares, whole GPUs) on the same nodes",
	 .pick = BP_PICK_BEST_FIT,
	 .score = score_clustering},
	{.name = "dotprod",
	 .help = "smallest dot product of what is left and what is asked for",
	 .pick = BP_PICK_BEST_FIT,
	 .score = score_dotprod},
	{.name = "random",
	 .help = "a node and GPU drawn by the seed",
	 .pick = BP_PICK_RANDOM,
	 .random = true},
	{.name = "spread",
	 .help = "the emptiest node and GPU",
	 .pick = BP_PICK_WORST_FIT,
	 .score = score_spread},
};

const struct po_policy *po_policy_at(size_t i)
{
	return i < sizeof(policies) / sizeof(policies[0]) ? &policies[i] : NULL;
}

const struct po_policy *po_policy_find(const char *name)
{
	for (size_t i = 0; po_policy_at(i); i++)
		if (strcmp(policies[i].name, name) == 0)
			return &policies[i];
	return NULL;
}

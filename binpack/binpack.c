/* Requests of one item on at most one GPU state at a time: the common cases, without search. */
#include "binpack/binpack.h"

#include <string.h>

#include "base/arith.h"
#include "base/hash.h"
#include "binpack/binpack_internal.h"

void bp_grant_init(struct st_grant *g, const struct st_item *it, enum st_mode mode)
{
	memcpy(g->container, it->container, sizeof(g->container));
	memcpy(g->profile, it->profile, sizeof(g->profile));
	g->kind = it->kind;
	g->mode = mode;
	g->count = 0;
	g->request_mib = 0;
	g->limit_mib = 0;
	g->compute_nano = it->compute_nano;
}

int bp_mig_spread(const struct st_mig_geometry *g, uint64_t placed)
{
	int left = st_mig_units_free(g, placed), sum = 0;

	for (int p = 0; p < g->profile_count; p++)
		if (g->profiles[p].attrs == 0)
			sum += left - st_mig_max_more(g, placed, p) * g->profiles[p].units;
	return sum;
}

static uint64_t draw(const struct bp_task *t, unsigned gpu, int start)
{
	uint64_t key[3] = {t->node->rank, gpu, (uint64_t)start};

	return hash_bytes(key, sizeof(key), t->how->salt);
}

static bool neighbours_clash(const struct bp_task *t, const struct st_gpu *g)
{
	return t->req->workload == ST_WORKLOAD_MEMORY_BOUND && g->memory_bound > 0;
}

/* How good a GPU is for one share, larger first; by the chooser's rule. */
struct rating {
	int32_t score;
	int64_t tie;
};

static bool better(struct rating a, struct rating b)
{
	return a.score != b.score ? a.score > b.score : a.tie > b.tie;
}

static struct rating rate_share(const struct bp_task *t, unsigned gpu, enum st_mode mode,
				const struct st_item *it, int32_t request_mib)
{
	const struct st_gpu *g = &t->node->gpus[gpu];
	struct fr_measure *m = t->how->measure;
	struct rating r = {0, 0};

	switch (t->how->pick) {
	case BP_PICK_MEASURE:
		r.score = fr_measure_score_share(m, t->node->id, gpu, mode, request_mib,
						 it->compute_nano, t->cpu_after);
		if (fr_measure_workload(m)->mixed)
			r.tie = g->mode == mode;
		break;
	case BP_PICK_BEST_FIT:
		r.tie = -(int64_t)g->free_mib;
		break;
	case BP_PICK_FIRST:
		break;
	case BP_PICK_WORST_FIT:
		r.tie = g->free_mib;
		break;
	case BP_PICK_RANDOM:
		r.tie = (int64_t)(draw(t, gpu, 0) >> 1);
		break;
	}
	if (neighbours_clash(t, g))
		r.score -= BP_NEIGHBOUR_PENALTY;
	return r;
}

/* Would this GPU be rated like an earlier one? Then the earlier, lower index stands. */
static bool seen_before(const struct st_node *n, unsigned gpu)
{
	for (unsigned i = 0; i < gpu; i++)
		if (bp_same_state(&n->gpus[i], &n->gpus[gpu]))
			return true;
	return false;
}

static enum bp_verdict share_in_mode(const struct bp_task *t, enum st_mode mode,
				     struct st_grant *ret, int32_t *ret_score)
{
	const struct st_item *it = &t->req->items[0];
	const struct st_node *n = t->node;
	bool random = t->how->pick == BP_PICK_RANDOM;
	struct bp_amount amount = BP_AMOUNT_NONE;
	enum bp_verdict v = BP_NO_GPU;
	struct rating best = {0, 0};
	int chosen = -1;

	for (unsigned i = 0; i < n->gpu_count; i++) {
		enum bp_verdict gv;
		struct rating r;

		/* Most often the one next to it, if any; what does not fit need not be seen again, either. */
		if (!random && i > 0 && bp_same_state(&n->gpus[i - 1], &n->gpus[i]))
			continue;
		gv = bp_share_verdict(t->cfg, &n->gpus[i], mode, it, &amount);
		if (gv != BP_OK) {
			v = bp_nearer(v, gv);
			continue;
		}
		if (!random && seen_before(n, i))
			continue;
		r = rate_share(t, i, mode, it, amount.request_mib);
		if (chosen >= 0 && !better(r, best))
			continue;
		best = r;
		chosen = (int)i;
	}
	if (chosen < 0)
		return v;
	bp_grant_init(ret, it, mode);
	ret->count = 1;
	ret->gpu[0] = (uint8_t)chosen;
	ret->request_mib = st_item_request_mib(it, n->gpus[chosen].alloc_mib);
	ret->limit_mib = st_item_limit_mib(it, n->gpus[chosen].alloc_mib);
	*ret_score = best.score;
	return BP_OK;
}

static enum bp_verdict choose_share(const struct bp_task *t, struct st_grant *ret,
				    int32_t *ret_score)
{
	const struct st_item *it = &t->req->items[0];
	enum bp_verdict v = share_in_mode(t, it->mode, ret, ret_score), other;

	if (v == BP_OK || !it->mode_preferred)
		return v;
	other = share_in_mode(t, bp_other_mode(it->mode), ret, ret_score);
	return other == BP_OK ? BP_OK : bp_nearer(v, other);
}

/* Whole GPUs: the first idle ones, whatever the rule: idle GPUs of a node are alike. */
static enum bp_verdict choose_whole(const struct bp_task *t, struct st_grant *ret,
				    int32_t *ret_score)
{
	const struct st_item *it = &t->req->items[0];
	const struct st_node *n = t->node;
	struct fr_change ch[ST_GPUS_MAX];
	unsigned idle = 0, open = 0, mig = 0, changes = 0;

	bp_grant_init(ret, it, ST_MODE_EXCLUSIVE);
	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];

		mig += g->mode == ST_MODE_MIG;
		open += g->taken == ST_TAKEN_NO && g->mode != ST_MODE_MIG;
		if (!st_gpu_idle(g) || idle == it->count)
			continue;
		if (idle == 0)
			ret->request_mib = ret->limit_mib = g->alloc_mib;
		ret->gpu[idle++] = (uint8_t)i;
	}
	if (idle < it->count) {
		if (open >= it->count)
			return BP_NOT_IDLE;
		return n->gpu_count < it->count ? BP_TOO_MANY : mig > 0 ? BP_ONLY_MIG : BP_TAKEN;
	}
	ret->count = it->count;
	*ret_score = 0;
	if (t->how->pick != BP_PICK_MEASURE)
		return BP_OK;
	for (unsigned i = 0; i < it->count; i++) {
		struct fr_gpu before = fr_gpu_load(t->how->measure, n->id, ret->gpu[i]);

		if (changes > 0 && ch[changes - 1].before == before.row) {
			ch[changes - 1].times++;
			continue;
		}
		ch[changes++] = (struct fr_change){
			before.row, fr_gpu_after_whole(t->how->measure, &before).row, 1};
	}
	*ret_score = fr_measure_score(t->how->measure, n->id, t->cpu_after, ch, changes);
	return BP_OK;
}

static bool simple(const struct st_request *req)
{
	const struct st_item *it = &req->items[0];

	if (req->item_count != 1)
		return req->item_count == 0;
	return it->kind == ST_KIND_WHOLE || (it->kind == ST_KIND_SHARE && it->count == 1);
}

enum bp_verdict bp_choose(const struct st_cluster *c, const struct bp_chooser *how, uint32_t node,
			  const struct st_request *req, struct st_decision *ret, int32_t *ret_score)
{
	struct bp_task t = {
		.cluster = c,
		.cfg = st_cluster_config(c),
		.node = node == ST_NONE ? NULL : st_cluster_node(c, node),
		.how = how,
		.req = req,
	};
	enum bp_verdict v = bp_node_verdict(c, t.node, req);
	int32_t score = 0;

	if (v != BP_OK || !t.node)
		return v;
	t.cpu_after = t.node->cpu_left_milli - req->cpu_milli;
	ret->node = node;
	ret->grant_count = req->item_count;
	if (!simple(req)) {
		v = bp_search(&t, ret, &score);
	} else if (req->item_count == 0) {
		if (how->pick == BP_PICK_MEASURE)
			score = fr_measure_score(how->measure, node, t.cpu_after, NULL, 0);
	} else if (req->items[0].kind == ST_KIND_WHOLE) {
		v = choose_whole(&t, &ret->grants[0], &score);
	} else {
		v = choose_share(&t, &ret->grants[0], &score);
	}
	if (ret_score)
		*ret_score = score;
	return v;
}

/* Requests of several containers, several devices, or MIG instances: one pass that takes the best
 * GPU for each part in turn; where that runs into a dead end, a bounded exhaustive search for any
 * legal choice. */
#include <string.h>

#include "base/arith.h"
#include "base/hash.h"
#include "binpack/binpack_internal.h"

#define CANDIDATES_MAX (ST_GPUS_MAX * ST_MIG_STARTS_MAX)

struct search {
	const struct bp_task *t;
	struct st_gpu gpus[ST_GPUS_MAX]; /* as they would be */
	uint64_t row_before[ST_GPUS_MAX], row_now[ST_GPUS_MAX];
	uint32_t taken;              /* GPUs that something was put on, one bit each */
	uint8_t order[ST_ITEMS_MAX]; /* items, the hardest to place first */
	bool clash;
	bool measured;  /* rate by the measure */
	unsigned steps; /* left */
	struct st_decision *d;
};

struct candidate {
	int32_t score;
	int64_t tie, tie2;
	uint8_t gpu, start, profile;
	enum st_mode mode;
};

static bool candidate_better(const struct candidate *a, const struct candidate *b)
{
	if (a->score != b->score)
		return a->score > b->score;
	if (a->tie != b->tie)
		return a->tie > b->tie;
	return a->tie2 > b->tie2;
}

/* ---- trying a GPU ---- */

static void gpu_take(struct st_gpu *g, const struct st_item *it, const struct candidate *c)
{
	switch (it->kind) {
	case ST_KIND_WHOLE:
		g->mode = ST_MODE_EXCLUSIVE;
		g->free_mib = 0;
		break;
	case ST_KIND_MIG:
		g->mig = st_gpu_mig_now(g);
		g->mode = ST_MODE_MIG;
		g->mig_placed |= st_mig_bit(g->mig, c->profile, c->start);
		g->free_mib = (int32_t)arith_mul_div_floor(
			g->alloc_mib, st_mig_units_free_in(g->mig, g->mig_open, g->mig_placed),
			g->mig->units_total);
		break;
	case ST_KIND_SHARE:
		g->mode = (uint8_t)c->mode;
		g->free_mib -= st_item_request_mib(it, g->alloc_mib);
		g->limit_mib += st_item_limit_mib(it, g->alloc_mib);
		if (c->mode == ST_MODE_SM_SHARING)
			g->compute_left_nano -= it->compute_nano;
		g->clients++;
		break;
	}
}

/* The row of GPU gpu_idx as `after` describes it. */
static uint64_t row_of(const struct search *s, unsigned gpu_idx, const struct st_gpu *after)
{
	struct fr_gpu g = fr_gpu_load(s->t->how->measure, s->t->node->id, gpu_idx);
	const struct st_gpu *was = &s->t->node->gpus[gpu_idx];

	return fr_gpu_row(s->t->how->measure, &g, after, after->clients - was->clients);
}

/* The changes so far, with GPU gpu_idx in another row; ST_GPUS_MAX = none. One that takes so little that its row is
 * the same one changes, too. */
static unsigned changes_with(const struct search *s, unsigned gpu_idx, uint64_t row,
			     struct fr_change ch[ST_GPUS_MAX])
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->t->node->gpu_count; i++) {
		uint64_t now = i == gpu_idx ? row : s->row_now[i];

		if (i == gpu_idx || (s->taken >> i & 1) != 0)
			ch[n++] = (struct fr_change){s->row_before[i], now, 1};
	}
	return n;
}

static int64_t loss_with(const struct search *s, unsigned gpu_idx, uint64_t row)
{
	struct fr_change ch[ST_GPUS_MAX];
	unsigned n = changes_with(s, gpu_idx, row, ch);

	return fr_measure_loss(s->t->how->measure, s->t->node->id, s->t->cpu_after, ch, n);
}

static int32_t score_with(const struct search *s, unsigned gpu_idx, uint64_t row)
{
	struct fr_change ch[ST_GPUS_MAX];
	unsigned n = changes_with(s, gpu_idx, row, ch);

	return fr_measure_score(s->t->how->measure, s->t->node->id, s->t->cpu_after, ch, n);
}

static void rate(const struct search *s, const struct st_item *it, struct candidate *c)
{
	const struct st_gpu *g = &s->gpus[c->gpu];
	struct st_gpu after = *g;
	uint64_t key[3] = {s->t->node->rank, c->gpu, c->start};

	gpu_take(&after, it, c);
	c->score = 0;
	c->tie = c->tie2 = 0;
	if (it->kind == ST_KIND_MIG && s->t->how->pick != BP_PICK_RANDOM) {
		if (s->measured)
			c->tie = -loss_with(s, c->gpu, row_of(s, c->gpu, &after));
		if (s->t->how->pick == BP_PICK_MEASURE)
			c->tie2 = (bp_mig_spread(after.mig, g->mig_placed) -
				   bp_mig_spread(after.mig, after.mig_placed)) *
					  (INT64_C(1) << 40) +
				  c->start * (INT64_C(1) << 32) - after.free_mib;
		else if (s->t->how->pick != BP_PICK_FIRST)
			c->tie2 = (s->t->how->pick == BP_PICK_BEST_FIT ? -1 : 1) *
				  (int64_t)g->free_mib;
		return;
	}
	if (s->t->how->pick == BP_PICK_RANDOM) {
		c->tie = (int64_t)(hash_bytes(key, sizeof(key), s->t->how->salt) >> 1);
	} else if (s->measured) {
		c->score = score_with(s, c->gpu, row_of(s, c->gpu, &after));
		c->tie = fr_measure_workload(s->t->how->measure)->mixed && g->mode == c->mode;
	} else if (s->t->how->pick != BP_PICK_FIRST) {
		c->tie = s->t->how->pick == BP_PICK_WORST_FIT ? g->free_mib : -(int64_t)g->free_mib;
	}
	if (it->kind == ST_KIND_SHARE && s->t->req->workload == ST_WORKLOAD_MEMORY_BOUND &&
	    g->memory_bound > 0)
		c->score -= BP_NEIGHBOUR_PENALTY;
}

/* ---- candidates of one part of an item ---- */

/* GPUs that must not be taken: used by this item already, or tried before in its stead. A GPU like
 * one that is open and comes earlier is left out as well. */
static bool skip_gpu(const struct search *s, unsigned gpu, uint32_t barred)
{
	if (barred & (1u << gpu))
		return true;
	if (s->t->how->pick == BP_PICK_RANDOM)
		return false;
	for (unsigned i = 0; i < gpu; i++)
		if (!(barred & (1u << i)) && bp_same_state(&s->gpus[i], &s->gpus[gpu]))
			return true;
	return false;
}

/* The profiles that serve an item on a GPU, the smallest first: *profile is the last one, -1 before
 * the first. What is booked for an item is of one profile, once the first instance is chosen. */
static bool next_profile(const struct search *s, unsigned gpu, const struct st_item *it,
			 int *profile)
{
	const struct st_mig_geometry *geo = st_gpu_mig_now(&s->gpus[gpu]);
	const struct st_grant *gr = &s->d->grants[it - s->t->req->items];
	int best = -1;

	if (gr->count > 0) {
		best = *profile < 0 ? st_mig_profile_find(geo, gr->profile) : -1;
	} else if (it->profile[0] != '\0') {
		best = *profile < 0 ? st_item_mig_profile(it, geo) : -1;
	} else {
		for (int p = 0; p < geo->profile_count; p++)
			if (st_item_mig_takes(it, geo, p) &&
			    (*profile < 0 || st_mig_smaller(geo, *profile, p)) &&
			    (best < 0 || st_mig_smaller(geo, p, best)))
				best = p;
	}
	*profile = best;
	return best >= 0;
}

static unsigned add_mig(const struct search *s, unsigned gpu, const struct st_item *it,
			struct candidate *out)
{
	const struct st_gpu *g = &s->gpus[gpu];
	const struct st_mig_geometry *geo = st_gpu_mig_now(g);
	unsigned n = 0;
	int profile = -1;

	if (g->taken != ST_TAKEN_NO || !geo)
		return 0;
	while (n == 0 && next_profile(s, gpu, it, &profile)) {
		const struct st_mig_profile *p = &geo->profiles[profile];

		for (unsigned i = 0; i < p->start_count; i++)
			if (st_mig_can_place_in(geo, g->mig_open, g->mig_placed, profile,
						p->starts[i]))
				out[n++] = (struct candidate){.gpu = (uint8_t)gpu,
							      .start = p->starts[i],
							      .profile = (uint8_t)profile,
							      .mode = ST_MODE_MIG};
	}
	return n;
}

/* The same amounts are booked on each GPU of an item, so a fraction needs GPUs of one size. */
static bool amount_matches(const struct st_grant *gr, const struct bp_amount *a)
{
	return gr->count == 0 ||
	       (a->request_mib == gr->request_mib && a->limit_mib == gr->limit_mib);
}

static unsigned candidates(const struct search *s, unsigned item, enum st_mode mode,
			   uint32_t barred, struct candidate *out)
{
	const struct st_item *it = &s->t->req->items[item];
	struct bp_amount amount = BP_AMOUNT_NONE;
	unsigned n = 0;

	for (unsigned i = 0; i < s->t->node->gpu_count; i++) {
		const struct st_gpu *g = &s->gpus[i];
		bool fits;

		if (skip_gpu(s, i, barred))
			continue;
		if (it->kind == ST_KIND_MIG) {
			n += add_mig(s, i, it, out + n);
			continue;
		}
		fits = it->kind == ST_KIND_WHOLE
			       ? st_gpu_idle(g)
			       : bp_share_verdict(s->t->cfg, g, mode, it, &amount) == BP_OK &&
					 amount_matches(&s->d->grants[item], &amount);
		if (fits)
			out[n++] = (struct candidate){.gpu = (uint8_t)i, .mode = mode};
	}
	for (unsigned i = 0; i < n; i++)
		rate(s, it, &out[i]);
	return n;
}

static unsigned pop_best(struct candidate *c, unsigned n, struct candidate *ret)
{
	unsigned best = 0;

	for (unsigned i = 1; i < n; i++)
		if (candidate_better(&c[i], &c[best]))
			best = i;
	*ret = c[best];
	memmove(&c[best], &c[best + 1], (n - best - 1) * sizeof(*c)); /* keeps index order */
	return n - 1;
}

static void grant_add(struct search *s, unsigned item, const struct candidate *c)
{
	const struct st_item *it = &s->t->req->items[item];
	struct st_grant *g = &s->d->grants[item];
	struct st_gpu *gpu = &s->gpus[c->gpu];

	if (g->count == 0) {
		bp_grant_init(g, it, c->mode);
		if (it->kind == ST_KIND_SHARE) {
			g->request_mib = st_item_request_mib(it, gpu->alloc_mib);
			g->limit_mib = st_item_limit_mib(it, gpu->alloc_mib);
		} else if (it->kind == ST_KIND_WHOLE) {
			g->request_mib = g->limit_mib = gpu->alloc_mib;
		} else {
			const struct st_mig_profile *p = &st_gpu_mig_now(gpu)->profiles[c->profile];

			g->request_mib = g->limit_mib = p->mem_mib;
			memcpy(g->profile, p->name, sizeof(g->profile));
		}
	}
	s->clash |= it->kind == ST_KIND_SHARE && gpu->memory_bound > 0 &&
		    s->t->req->workload == ST_WORKLOAD_MEMORY_BOUND;
	g->gpu[g->count] = c->gpu;
	g->start[g->count++] = c->start;
	gpu_take(gpu, it, c);
	s->taken |= 1u << c->gpu;
	if (s->t->how->pick == BP_PICK_MEASURE)
		s->row_now[c->gpu] = row_of(s, c->gpu, gpu);
}

/* ---- the two passes ---- */

static bool place(struct search *s, unsigned pos, uint32_t barred, bool exhaustive);

/* Tries the item at order[pos] in one mode, from its next part on. */
static bool place_mode(struct search *s, unsigned pos, enum st_mode mode, uint32_t barred,
		       bool exhaustive)
{
	unsigned item = s->order[pos];
	const struct st_item *it = &s->t->req->items[item];
	struct candidate list[CANDIDATES_MAX], c;
	unsigned n = candidates(s, item, mode, barred, list);

	while (n > 0 && s->steps > 0) {
		struct st_gpu gpu_was;
		uint8_t count_was = s->d->grants[item].count;
		bool clash_was = s->clash;
		uint64_t row_was;
		uint32_t taken_was = s->taken, bar = barred;

		s->steps--;
		n = pop_best(list, n, &c);
		gpu_was = s->gpus[c.gpu];
		row_was = s->row_now[c.gpu];
		grant_add(s, item, &c);
		if (it->kind != ST_KIND_MIG || it->apart)
			bar |= 1u << c.gpu;
		if (s->d->grants[item].count == it->count
			    ? place(s, pos + 1, 0, exhaustive)
			    : place_mode(s, pos, mode, bar, exhaustive))
			return true;
		s->gpus[c.gpu] = gpu_was;
		s->row_now[c.gpu] = row_was;
		s->taken = taken_was;
		s->clash = clash_was;
		s->d->grants[item].count = count_was;
		if (!exhaustive)
			return false;
		if (it->kind != ST_KIND_MIG || it->apart)
			barred |= 1u << c.gpu; /* all choices with this GPU have been tried */
	}
	return false;
}

static bool place(struct search *s, unsigned pos, uint32_t barred, bool exhaustive)
{
	const struct st_item *it;

	if (pos == s->t->req->item_count)
		return true;
	it = &s->t->req->items[s->order[pos]];
	s->d->grants[s->order[pos]].count = 0;
	if (it->kind != ST_KIND_SHARE)
		return place_mode(s, pos, it->kind == ST_KIND_MIG ? ST_MODE_MIG : ST_MODE_EXCLUSIVE,
				  barred, exhaustive);
	if (place_mode(s, pos, it->mode, barred, exhaustive))
		return true;
	return it->mode_preferred &&
	       place_mode(s, pos, bp_other_mode(it->mode), barred, exhaustive);
}

/* Whole GPUs, then MIG instances, then shares; the larger first. */
static int64_t hardness(const struct st_item *it)
{
	if (it->kind == ST_KIND_WHOLE)
		return (INT64_C(3) << 40) + it->count;
	if (it->kind == ST_KIND_MIG)
		return (INT64_C(2) << 40) + it->count +
		       (it->profile[0] != '\0' ? INT64_C(100) * (it->profile[0] - '0') : 0);
	return (it->request_mib > 0 ? it->request_mib : it->request_nano / 1000) *
	       (int64_t)it->count;
}

static void search_init(struct search *s, const struct bp_task *t, struct st_decision *d)
{
	s->t = t;
	s->d = d;
	s->clash = false;
	s->taken = 0;
	s->measured = t->how->pick == BP_PICK_MEASURE;
	s->steps = BP_STEPS_MAX;
	for (unsigned i = 0; i < t->node->gpu_count; i++) {
		s->gpus[i] = t->node->gpus[i];
		s->row_before[i] = s->row_now[i] = 0;
		if (s->measured)
			s->row_before[i] = s->row_now[i] =
				fr_gpu_load(t->how->measure, t->node->id, i).row;
	}
	for (unsigned i = 0; i < t->req->item_count; i++) {
		unsigned at = i;

		for (; at > 0 &&
		       hardness(&t->req->items[i]) > hardness(&t->req->items[s->order[at - 1]]);
		     at--)
			s->order[at] = s->order[at - 1];
		s->order[at] = (uint8_t)i;
	}
}

/* ---- why not ---- */

static enum bp_verdict mig_verdict(const struct st_node *n, const struct st_item *it)
{
	enum bp_verdict v = BP_NO_MIG;

	for (unsigned i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];
		const struct st_mig_geometry *geo = g->mig ? g->mig : g->mig_could;
		int p = geo ? st_item_mig_profile(it, geo) : -1;

		if (p < 0 || geo->profiles[p].start_count == 0)
			continue;
		if (g->taken == ST_TAKEN_NO)
			return BP_MIG_ROOM;
		v = BP_TAKEN;
	}
	return v;
}

static enum bp_verdict share_verdict(const struct bp_task *t, const struct st_item *it)
{
	struct bp_amount amount = BP_AMOUNT_NONE;
	enum bp_verdict v = BP_NO_GPU;
	unsigned fit = 0;

	if (it->count > t->node->gpu_count)
		return BP_TOO_MANY;
	for (unsigned i = 0; i < t->node->gpu_count; i++) {
		const struct st_gpu *g = &t->node->gpus[i];
		enum bp_verdict gv = bp_share_verdict(t->cfg, g, it->mode, it, &amount);

		if (gv != BP_OK && it->mode_preferred)
			gv = bp_nearer(gv, bp_share_verdict(t->cfg, g, bp_other_mode(it->mode), it,
							    &amount));
		fit += gv == BP_OK;
		if (gv != BP_OK)
			v = bp_nearer(v, gv);
	}
	return fit >= it->count ? BP_OK : fit > 0 ? BP_TOO_FEW : v;
}

static enum bp_verdict why_not(const struct bp_task *t)
{
	for (unsigned i = 0; i < t->req->item_count; i++) {
		const struct st_item *it = &t->req->items[i];
		enum bp_verdict v = BP_OK;
		unsigned idle = 0;

		if (it->kind == ST_KIND_MIG) {
			v = mig_verdict(t->node, it);
			if (v == BP_MIG_ROOM && (t->req->item_count > 1 || it->count > 1))
				v = BP_OK;
		} else if (it->kind == ST_KIND_SHARE) {
			v = share_verdict(t, it);
		} else {
			for (unsigned g = 0; g < t->node->gpu_count; g++)
				idle += st_gpu_idle(&t->node->gpus[g]);
			v = t->node->gpu_count < it->count ? BP_TOO_MANY
			    : idle < it->count             ? BP_NOT_IDLE
							   : BP_OK;
		}
		if (v != BP_OK)
			return v;
	}
	if (t->req->item_count == 1)
		return t->req->items[0].kind == ST_KIND_MIG ? BP_MIG_ROOM : BP_TOO_FEW;
	return BP_COMBINATION;
}

static bool has_mig(const struct st_request *req)
{
	for (unsigned i = 0; i < req->item_count; i++)
		if (req->items[i].kind == ST_KIND_MIG)
			return true;
	return false;
}

static int32_t exact_score(const struct search *s)
{
	struct fr_change ch[ST_GPUS_MAX];
	unsigned n = changes_with(s, ST_GPUS_MAX, 0, ch);

	return fr_measure_score_exact(s->t->how->measure, s->t->node->id, s->t->cpu_after, ch, n);
}

enum bp_verdict bp_search(const struct bp_task *t, struct st_decision *ret, int32_t *ret_score)
{
	struct search s;

	for (unsigned i = 0; i < t->req->item_count; i++)
		if (t->req->items[i].count > ST_GPUS_MAX) /* MIG instances; a grant has no more */
			return BP_TOO_MANY;
	search_init(&s, t, ret);
	if (!place(&s, 0, 0, false)) {
		s.measured = false; /* any legal choice will do now */
		s.steps = BP_STEPS_MAX;
		if (!place(&s, 0, 0, true)) {
			*ret_score = s.steps == 0 ? BP_SCORE_UNSURE : 0;
			return why_not(t);
		}
	}
	if (t->how->pick == BP_PICK_MEASURE)
		*ret_score = has_mig(t->req) ? exact_score(&s) : score_with(&s, ST_GPUS_MAX, 0);
	if (s.clash)
		*ret_score -= BP_NEIGHBOUR_PENALTY;
	return BP_OK;
}

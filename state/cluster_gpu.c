/* The books of one GPU: what grants may sit on it together, and what it shows for them. */
#include <string.h>

#include "base/arith.h"
#include "state/cluster_internal.h"

/* ---- derived fields ---- */

/* Instances present that nobody booked, as far as they are legal beside the booked ones. */
static uint64_t foreign_instances(const struct gpu_slot *s, const struct st_mig_geometry *geometry,
				  bool *ret_conflict)
{
	uint64_t extra = s->report.instances & ~s->book.mig, placed = s->book.mig;

	*ret_conflict = false;
	if (geometry != s->report.geometry)
		return 0;
	if (st_mig_legal(geometry, placed | extra))
		return extra;
	*ret_conflict = true;
	for (uint64_t rest = extra; rest != 0; rest &= rest - 1) {
		uint64_t bit = rest & -rest;

		if (st_mig_legal(geometry, placed | bit))
			placed |= bit;
	}
	return placed & ~s->book.mig;
}

/* Who or what keeps the GPU from getting more although the node reports it in order. */
static const char *mig_trouble(const struct st_gpu *g, const struct gpu_slot *s, bool conflict)
{
	const struct gpu_report *r = &s->report;

	if (g->mode == ST_MODE_MIG && !r->mig_enabled && !r->mig_switchable)
		return "MIG instances booked while MIG mode is off";
	if (g->mode != ST_MODE_MIG && r->mig_enabled)
		return r->geometry != NULL ? "shares booked while MIG mode is on"
					   : "MIG mode of unknown geometry";
	if (r->mig_unknown)
		return "MIG instances at unknown places";
	if (g->mode == ST_MODE_MIG && g->mig == r->geometry && (s->book.mig & ~r->open) != 0)
		return "MIG instances booked that were not cut";
	if (g->mode == ST_MODE_MIG && g->mig != r->geometry)
		return "MIG instances of another geometry";
	return conflict ? "MIG instances that overlap booked ones" : NULL;
}

static void derive_taken(struct st_gpu *g, const struct gpu_slot *s, bool conflict)
{
	g->taken_by = NULL;
	if (s->report.gone) {
		g->taken = ST_TAKEN_GONE;
		return;
	}
	if (s->report.unhealthy) {
		g->taken = ST_TAKEN_UNHEALTHY;
		return;
	}
	g->taken_by = s->report.foreign != NULL ? s->report.foreign : mig_trouble(g, s, conflict);
	if (g->taken_by == NULL && g->twin)
		g->taken_by = "a second node with the same GPU UUID";
	g->taken = g->taken_by != NULL ? ST_TAKEN_FOREIGN : ST_TAKEN_NO;
}

void st_gpu_derive(struct st_gpu *g, struct gpu_slot *s)
{
	const struct gpu_book *b = &s->book;
	bool conflict = false;

	if (b->holders > 0)
		g->mode = b->mode;
	else
		g->mode = s->report.mig_enabled && s->report.geometry != NULL ? ST_MODE_MIG
									      : ST_MODE_FREE;
	g->mig = NULL;
	g->mig_placed = g->mig_foreign = 0;
	g->mig_open = ST_MIG_ANYWHERE;
	g->mig_could = s->report.mig_switchable ? s->report.geometry : NULL;
	if (g->mode == ST_MODE_MIG) {
		g->mig = b->mig_geometry != NULL ? b->mig_geometry : s->report.geometry;
		g->mig_foreign = foreign_instances(s, g->mig, &conflict);
		g->mig_placed = b->mig | g->mig_foreign;
		if (g->mig == s->report.geometry)
			g->mig_open = s->report.open;
	}
	g->limit_mib = b->limit_mib;
	g->compute_left_nano = ST_NANO - b->compute_nano;
	g->clients = b->clients;
	g->memory_bound = b->memory_bound;
	if (g->mode == ST_MODE_EXCLUSIVE)
		g->free_mib = 0;
	else if (g->mode == ST_MODE_MIG)
		g->free_mib = (int32_t)arith_mul_div_floor(
			g->alloc_mib, st_mig_units_free_in(g->mig, g->mig_open, g->mig_placed),
			g->mig->units_total);
	else
		g->free_mib = g->alloc_mib - b->request_mib;
	if (g->free_mib >= 0)
		s->report.shrunk = false;
	g->twin = st_gpu_twin(s) != NULL;
	derive_taken(g, s, conflict);
}

/* After a change of its book. */
static void derive_and_tell(struct node_slot *n, uint8_t gpu)
{
	st_gpu_derive(&n->pub.gpus[gpu], &n->gpus[gpu]);
	if (n->gpus[gpu].uuid != NULL)
		st_uuid_tell(n->gpus[gpu].uuid, n);
}

/* ---- grants onto books ---- */

struct trial {
	const struct st_config *cfg;
	const struct node_slot *n;
	enum book_rules rules;
	bool memory_bound;
	struct gpu_book *books;
	struct err *err;
};

/* The mode that the GPU is in during the trial; a GPU in MIG mode is never free. */
static enum st_mode mode_now(const struct trial *t, uint8_t gpu)
{
	const struct gpu_report *r = &t->n->gpus[gpu].report;

	if (t->books[gpu].holders > 0)
		return t->books[gpu].mode;
	return t->rules == BOOK_NEW && r->mig_enabled && r->geometry != NULL ? ST_MODE_MIG
									     : ST_MODE_FREE;
}

static int mode_conflict(const struct trial *t, uint8_t gpu, enum st_mode want)
{
	return err_set(t->err, ERR_CONFLICT, "GPU %u (%s) is %s, %s is asked for", gpu,
		       t->n->pub.gpus[gpu].uuid, st_mode_name(mode_now(t, gpu)),
		       st_mode_name(want));
}

static int share_bounds(const struct trial *t, uint8_t gpu, const struct st_grant *gr)
{
	const struct st_gpu *g = &t->n->pub.gpus[gpu];
	const struct gpu_book *b = &t->books[gpu];
	int64_t bound = (int64_t)g->alloc_mib * t->cfg->overcommit_permille / 1000;
	int64_t limits = b->limit_mib + gr->limit_mib;

	if ((int64_t)b->request_mib + gr->request_mib > g->alloc_mib)
		return err_set(t->err, ERR_NO_ROOM,
			       "GPU %u (%s) has %d of %d MiB free, %d asked for", gpu, g->uuid,
			       g->alloc_mib - b->request_mib, g->alloc_mib, gr->request_mib);
	if (gr->mode == ST_MODE_SM_SHARING && (int64_t)b->compute_nano + gr->compute_nano > ST_NANO)
		return err_set(
			t->err, ERR_NO_ROOM,
			"GPU %u (%s) has %d of 1000 thousandths of compute left, %d asked for", gpu,
			g->uuid, (ST_NANO - b->compute_nano) / 1000000, gr->compute_nano / 1000000);
	if (b->clients == UINT16_MAX || b->holders == UINT16_MAX)
		return err_set(t->err, ERR_NO_ROOM, "GPU %u (%s) has %u clients", gpu, g->uuid,
			       b->clients);
	if (t->rules == BOOK_OBSERVED)
		return 0;
	if (gr->limit_mib < gr->request_mib)
		return err_set(t->err, ERR_CONFLICT, "limit of %d MiB below the request of %d",
			       gr->limit_mib, gr->request_mib);
	if (limits > bound)
		return err_set(t->err, ERR_NO_ROOM,
			       "GPU %u (%s): limits of %lld MiB in all, at most %lld", gpu, g->uuid,
			       (long long)limits, (long long)bound);
	if (b->clients >= t->cfg->clients_max)
		return err_set(t->err, ERR_NO_ROOM, "GPU %u (%s) has %u clients, at most %d", gpu,
			       g->uuid, b->clients, t->cfg->clients_max);
	return 0;
}

static int share_try(const struct trial *t, uint8_t gpu, const struct st_grant *gr)
{
	struct gpu_book *b = &t->books[gpu];
	enum st_mode now = mode_now(t, gpu);
	int r;

	if (now != ST_MODE_FREE && now != gr->mode)
		return mode_conflict(t, gpu, gr->mode);
	r = share_bounds(t, gpu, gr);
	if (r < 0)
		return r;
	b->request_mib += gr->request_mib;
	b->limit_mib += gr->limit_mib;
	if (gr->mode == ST_MODE_SM_SHARING)
		b->compute_nano += gr->compute_nano;
	b->holders++;
	b->clients++;
	b->memory_bound = (uint16_t)(b->memory_bound + t->memory_bound);
	b->mode = (uint8_t)gr->mode;
	return 0;
}

static int whole_try(const struct trial *t, uint8_t gpu)
{
	struct gpu_book *b = &t->books[gpu];

	if (mode_now(t, gpu) != ST_MODE_FREE)
		return mode_conflict(t, gpu, ST_MODE_EXCLUSIVE);
	b->holders = 1;
	b->mode = ST_MODE_EXCLUSIVE;
	return 0;
}

static int mig_try(const struct trial *t, uint8_t gpu, const struct st_grant *gr, uint8_t start)
{
	const struct st_gpu *g = &t->n->pub.gpus[gpu];
	struct gpu_book *b = &t->books[gpu];
	const struct st_mig_geometry *geometry =
		b->mig_geometry != NULL ? b->mig_geometry : t->n->gpus[gpu].report.geometry;
	enum st_mode now = mode_now(t, gpu);
	uint64_t placed = b->mig | (t->rules == BOOK_NEW ? g->mig_foreign : 0), bit;
	int profile;

	if (now != ST_MODE_MIG &&
	    !(now == ST_MODE_FREE && (t->rules == BOOK_OBSERVED || g->mig_could != NULL)))
		return mode_conflict(t, gpu, ST_MODE_MIG);
	if (geometry == NULL)
		return err_set(t->err, ERR_CONFLICT, "GPU %u (%s) has no known MIG geometry", gpu,
			       g->uuid);
	profile = st_mig_profile_find(geometry, gr->profile);
	bit = st_mig_bit(geometry, profile, start);
	if (bit == 0)
		return err_set(t->err, ERR_CONFLICT, "GPU %u (%s) has no MIG profile %s at %u", gpu,
			       g->uuid, gr->profile, start);
	if (!st_mig_can_place_in(geometry, t->rules == BOOK_NEW ? g->mig_open : ST_MIG_ANYWHERE,
				 placed, profile, start))
		return err_set(t->err, ERR_NO_ROOM,
			       "GPU %u (%s) has no room for a MIG instance %s at %u", gpu, g->uuid,
			       gr->profile, start);
	b->mig |= bit;
	b->mig_geometry = geometry;
	b->holders++;
	b->mode = ST_MODE_MIG;
	return 0;
}

/* What makes a grant unreadable rather than unfitting. */
static int grant_shape(const struct st_grant *gr, struct err *err)
{
	if (gr->count < 1 || gr->count > ST_GPUS_MAX)
		return err_set(err, ERR_CONFLICT, "container %s: %u GPUs", gr->container,
			       gr->count);
	if (gr->kind == ST_KIND_WHOLE || gr->kind == ST_KIND_MIG)
		return 0;
	if (gr->kind != ST_KIND_SHARE ||
	    (gr->mode != ST_MODE_TIME_SLICING && gr->mode != ST_MODE_SM_SHARING))
		return err_set(err, ERR_CONFLICT, "container %s: a share in mode %s", gr->container,
			       st_mode_name(gr->mode));
	if (gr->request_mib < 1 || gr->limit_mib < 0)
		return err_set(err, ERR_CONFLICT, "container %s: request %d, limit %d MiB",
			       gr->container, gr->request_mib, gr->limit_mib);
	if (gr->compute_nano < 0 || gr->compute_nano > ST_NANO)
		return err_set(err, ERR_CONFLICT, "container %s: compute share of %d / 10^9",
			       gr->container, gr->compute_nano);
	return 0;
}

static int gpu_open(const struct trial *t, uint8_t gpu)
{
	const struct st_gpu *g = &t->n->pub.gpus[gpu];

	switch ((enum st_taken)g->taken) {
	case ST_TAKEN_NO:
		return 0;
	case ST_TAKEN_UNHEALTHY:
		return err_set(t->err, ERR_CONFLICT, "GPU %u (%s) is unhealthy", gpu, g->uuid);
	case ST_TAKEN_FOREIGN:
		return err_set(t->err, ERR_CONFLICT, "GPU %u (%s) is taken by %s", gpu, g->uuid,
			       g->taken_by);
	case ST_TAKEN_GONE:
		break;
	}
	return err_set(t->err, ERR_CONFLICT, "GPU %u (%s) is gone", gpu, g->uuid);
}

static int grant_try(const struct trial *t, const struct st_grant *gr)
{
	uint32_t seen = 0;
	int r = grant_shape(gr, t->err);

	for (uint8_t i = 0; r == 0 && i < gr->count; i++) {
		uint8_t gpu = gr->gpu[i];

		if (gpu >= t->n->pub.gpu_count)
			return err_set(t->err, ERR_CONFLICT, "no GPU %u on node %s, which has %u",
				       gpu, t->n->pub.name, t->n->pub.gpu_count);
		if (gr->kind != ST_KIND_MIG && (seen & (1U << gpu)) != 0)
			return err_set(t->err, ERR_CONFLICT, "container %s: GPU %u given twice",
				       gr->container, gpu);
		seen |= 1U << gpu;
		if (t->rules == BOOK_NEW)
			r = gpu_open(t, gpu);
		if (r < 0)
			return r;
		if (gr->kind == ST_KIND_MIG)
			r = mig_try(t, gpu, gr, gr->start[i]);
		else
			r = gr->kind == ST_KIND_WHOLE ? whole_try(t, gpu) : share_try(t, gpu, gr);
	}
	return r;
}

int st_grants_try(const struct st_cluster *c, const struct node_slot *n,
		  const struct st_grant *grants, uint8_t count, bool memory_bound,
		  enum book_rules rules, struct gpu_book books[ST_GPUS_MAX], struct err *err)
{
	const struct trial t = {.cfg = &c->cfg,
				.n = n,
				.rules = rules,
				.memory_bound = memory_bound,
				.books = books,
				.err = err};

	if (count > ST_ITEMS_MAX)
		return err_set(err, ERR_CONFLICT, "%u containers with GPUs, at most %d", count,
			       ST_ITEMS_MAX);
	for (uint8_t i = 0; i < n->pub.gpu_count; i++)
		books[i] = n->gpus[i].book;
	for (uint8_t i = 0; i < count; i++) {
		int r = grant_try(&t, &grants[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

void st_books_commit(struct node_slot *n, const struct gpu_book books[ST_GPUS_MAX])
{
	for (uint8_t i = 0; i < n->pub.gpu_count; i++) {
		n->gpus[i].book = books[i];
		derive_and_tell(n, i);
	}
}

static void unbook_one(struct gpu_book *b, const struct st_grant *gr, uint8_t start,
		       bool memory_bound)
{
	b->holders--;
	if (gr->kind == ST_KIND_SHARE) {
		b->request_mib -= gr->request_mib;
		b->limit_mib -= gr->limit_mib;
		if (gr->mode == ST_MODE_SM_SHARING)
			b->compute_nano -= gr->compute_nano;
		b->clients--;
		b->memory_bound = (uint16_t)(b->memory_bound - memory_bound);
	} else if (gr->kind == ST_KIND_MIG) {
		b->mig &= ~st_mig_bit(b->mig_geometry,
				      st_mig_profile_find(b->mig_geometry, gr->profile), start);
	}
	if (b->holders == 0) {
		b->mode = ST_MODE_FREE;
		b->mig_geometry = NULL;
	}
}

void st_grants_unbook(struct node_slot *n, const struct st_grant *grants, uint8_t count,
		      bool memory_bound)
{
	for (uint8_t k = 0; k < count; k++)
		for (uint8_t i = 0; i < grants[k].count; i++) {
			uint8_t gpu = grants[k].gpu[i];

			unbook_one(&n->gpus[gpu].book, &grants[k], grants[k].start[i],
				   memory_bound);
			derive_and_tell(n, gpu);
		}
}

bool st_gpu_fits_share(const struct st_config *cfg, const struct st_gpu *g, enum st_mode mode,
		       int32_t request_mib, int32_t limit_mib, int32_t compute_nano)
{
	return st_gpu_accepts_mode(g, mode) && request_mib >= 1 && limit_mib >= request_mib &&
	       request_mib <= g->free_mib && g->clients < cfg->clients_max &&
	       (mode != ST_MODE_SM_SHARING || compute_nano <= g->compute_left_nano) &&
	       g->limit_mib + limit_mib <= (int64_t)g->alloc_mib * cfg->overcommit_permille / 1000;
}

#include <stdlib.h>
#include <string.h>

#include "replay/sim_internal.h"

/* Where part i begins. */
static int64_t part_at(const struct rp_sim_result *r, size_t i)
{
	return r->begin_ms +
	       (int64_t)((__int128)(r->end_ms - r->begin_ms) * (int64_t)i / RP_SIM_POINTS);
}

int rp_sim_books_open(struct rp_sim_books *b, const struct rp_timeline *l, size_t cap,
		      struct rp_sim_result *r, struct err *err)
{
	*b = (struct rp_sim_books){.r = r, .now_ms = l->visits[0].at_ms};
	r->begin_ms = l->begin_ms;
	r->end_ms = l->end_ms > l->begin_ms ? l->end_ms : l->begin_ms + 1;
	for (size_t i = 0; i < RP_SIM_POINTS; i++)
		r->points[i].at_ms = part_at(r, i);
	b->waits = malloc((cap + 1) * sizeof(*b->waits));
	return b->waits != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

void rp_sim_books_close(struct rp_sim_books *b)
{
	free(b->waits);
	b->waits = NULL;
}

bool rp_sim_books_counts(const struct rp_sim_books *b, int64_t at_ms)
{
	return at_ms >= b->r->begin_ms && at_ms <= b->r->end_ms;
}

static int end_part(struct rp_sim_books *b, struct rp_stage *s, struct err *err)
{
	struct rp_sim_point *p = &b->r->points[b->point];
	int64_t len = part_at(b->r, b->point + 1) - p->at_ms;
	struct po_fragmentation f = {0};
	int rc = rp_stage_fgd(s, &f, err);

	if (rc < 0)
		return rc;
	p->frag_milli = rp_round_div(f.n, f.divisor);
	b->frag_all += p->frag_milli;
	b->frag_count++;
	b->used_all += b->used;
	if (len > 0) {
		p->used_milli = rp_round_div(b->used, len);
		p->waiting_milli = rp_round_div(b->waiting, len);
		p->waiting_pods_centi = rp_round_div(b->pods * 100, len);
	} else {
		p->used_milli = s->used_milli;
	}
	b->used = b->waiting = b->pods = 0;
	b->point++;
	return 0;
}

int rp_sim_books_advance(struct rp_sim_books *b, struct rp_stage *s, int64_t to_ms, struct err *err)
{
	if (b->now_ms < b->r->begin_ms)
		b->now_ms = to_ms < b->r->begin_ms ? to_ms : b->r->begin_ms;
	while (b->point < RP_SIM_POINTS && b->now_ms >= b->r->begin_ms) {
		int64_t end = part_at(b->r, b->point + 1);
		int64_t upto = to_ms < end ? to_ms : end, len = upto - b->now_ms;
		int rc;

		if (len > 0) {
			b->used += (__int128)len * s->used_milli;
			b->waiting += (__int128)len * b->waiting_milli;
			b->pods += (__int128)len * b->waiting_pods;
			b->now_ms = upto;
		}
		if (to_ms < end)
			break;
		rc = end_part(b, s, err);
		if (rc < 0)
			return rc;
	}
	b->now_ms = to_ms;
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int64_t rank_of(const struct rp_sim_books *b, size_t percent)
{
	size_t i = (b->wait_count * percent + 99) / 100;

	return b->waits[i > 0 ? i - 1 : 0];
}

void rp_sim_books_finish(struct rp_sim_books *b)
{
	struct rp_sim_result *r = b->r;
	__int128 sum = 0;

	r->used_centi = rp_round_div(b->used_all * 10000 / r->total_milli, r->end_ms - r->begin_ms);
	if (b->frag_count > 0)
		r->frag_centi =
			rp_round_div(b->frag_all * 10000 / (int64_t)b->frag_count, r->total_milli);
	if (b->wait_count == 0)
		return;
	qsort(b->waits, b->wait_count, sizeof(*b->waits), by_size);
	for (size_t i = 0; i < b->wait_count; i++)
		sum += b->waits[i];
	r->wait_mean_ms = rp_round_div(sum, (int64_t)b->wait_count);
	r->wait_p50_ms = rank_of(b, 50);
	r->wait_p95_ms = rank_of(b, 95);
	r->wait_p99_ms = rank_of(b, 99);
	r->wait_max_ms = rank_of(b, 100);
}

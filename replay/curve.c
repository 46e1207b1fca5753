#include "replay/curve.h"

#include <string.h>

int64_t rp_round_div(__int128 a, int64_t b)
{
	__int128 q = a / b, r = a % b;

	if (r < 0) {
		q--;
		r += b;
	}
	if (2 * r > b || (2 * r == b && q % 2 != 0))
		q++;
	return (int64_t)q;
}

void rp_curve_init(struct rp_curve *c, int64_t total_milli)
{
	memset(c, 0, sizeof(*c));
	c->total_milli = total_milli;
	c->last = -1;
}

void rp_curve_add(struct rp_curve *c, int64_t arrived_milli, int64_t used_milli, int64_t n,
		  int64_t k, int64_t idle_milli)
{
	int64_t column = rp_round_div((__int128)arrived_milli * 100, c->total_milli);
	int64_t frag_centi = rp_round_div((__int128)n * 100, k); /* F with two decimals */
	struct rp_sums *s;

	if (column < 0 || column >= RP_COLUMNS_MAX)
		return;
	s = &c->sums[column];
	s->rows++;
	s->alloc += rp_round_div((__int128)used_milli * 10000, c->total_milli);
	s->frag_centi += frag_centi;
	if (idle_milli > 0)
		s->ratio += rp_round_div((__int128)frag_centi * 100, idle_milli);
	if (column > c->last)
		c->last = (int32_t)column;
}

static void add(struct rp_sums *to, const struct rp_sums *s)
{
	to->rows += s->rows;
	to->alloc += s->alloc;
	to->frag_centi += s->frag_centi;
	to->ratio += s->ratio;
}

struct rp_point rp_curve_at(const struct rp_curve *c, int32_t column)
{
	struct rp_sums s = {0}, beside = {0};

	if (column >= 0 && column < RP_COLUMNS_MAX)
		s = c->sums[column];
	for (int32_t i = column - 1; s.rows == 0 && i <= column + 1; i += 2)
		if (i >= 0 && i < RP_COLUMNS_MAX)
			add(&beside, &c->sums[i]);
	if (s.rows == 0)
		s = beside;
	if (s.rows == 0)
		return (struct rp_point){RP_NO_VALUE, RP_NO_VALUE, RP_NO_VALUE};
	return (struct rp_point){
		.alloc = rp_round_div(s.alloc, s.rows),
		/* 100 * mean(F) / total, in 0.01 %: centi-milli * 100 / total */
		.frag = rp_round_div((__int128)s.frag_centi * 100, s.rows * c->total_milli),
		.ratio = rp_round_div(s.ratio, s.rows),
	};
}

/* One step of multiplicative dual descent: see what the cluster would host at the present prices;
 * a class it could host many times over gets cheaper, a scarce one dearer. */
#include <string.h>

#include "base/arith.h"
#include "base/wide.h"
#include "fragmentation/bid.h"
#include "fragmentation/bid_lanes.h"

#define START_STEPS 1500
#define ETA_MILLI 30  /* step size, 1/1000 */
#define MEAN_MILLI 20 /* weight of a step in the average */
#define MEAN_START_MILLI 10
#define CAP_PERCENT 125 /* upper bound of a price, of the class's GPU milli */
#define FLOOR_E7 1      /* lower bound, 1e-7 of the same */
#define ONE16 65536

void fr_bid_step_begin(struct fr_bid *b)
{
	fr_bid_prices_set(b, b->y, b->y_cpu, &b->step_prices);
	for (uint32_t i = 0; i < b->group_count; i++) {
		fr_bid_tables_fill(b, &b->groups[i], &b->step_prices, &b->step[i], true);
		memset(b->step[i].mig_wanted, 0,
		       b->groups[i].layouts.count * sizeof(*b->step[i].mig_wanted));
	}
	if (b->group_count > 0) /* else there is no GPU yet */
		memset(b->demand, 0, b->group_count * sizeof(*b->demand));
	memset(b->coverage, 0, b->w->count * sizeof(*b->coverage));
	b->cpu_spare = 0;
}

/* CPU of what the node sells at price j. */
static inline int64_t pattern_cpu(const struct fr_bid *b, const struct fr_bid_node *n, int j)
{
	int64_t cpu = b->step[n->group].m_cpu[n->idle][j];

	for (uint32_t i = 0; i < n->part_count; i++) {
		const struct fr_bid_tables *t = &b->step[n->part[i].group];

		cpu += n->part[i].mode == FR_BID_MODES ? t->mig_cpu[n->part[i].r][j]
						       : t->k_cpu[n->part[i].mode][n->part[i].r][j];
	}
	return cpu;
}

static inline void pattern_count(struct fr_bid *b, const struct fr_bid_node *n, int j,
				 int64_t weight)
{
	b->demand[n->group].idle[n->idle][j] += weight;
	for (uint32_t i = 0; i < n->part_count; i++) {
		uint32_t group = n->part[i].group;

		if (n->part[i].mode == FR_BID_MODES)
			b->step[group].mig_wanted[n->part[i].r][j] += weight;
		else
			b->demand[group].part[n->part[i].mode][n->part[i].r][j] += weight;
	}
}

/* The first price at which the node is worth least. */
static inline int best_price(const struct fr_bid *b, const struct fr_bid_node *n)
{
	struct fr_bid_lanes sums = fr_bid_lanes_load(b->step[n->group].m[n->idle]);
	fr_i64x4 value[FR_BID_LANES];
	int64_t best;
	int j = 0;

	for (uint32_t i = 0; i < n->part_count; i++)
		fr_bid_lanes_add(&sums,
				 fr_bid_part_value(&b->step[n->part[i].group], n->part[i].mode,
						   n->part[i].r),
				 1);
	fr_bid_lanes_sum(&b->step_prices, n->cpu_left, &sums, value);
	best = fr_bid_lanes_min(value);
	while (value[j / 4][j % 4] != best)
		j++;
	return j;
}

/* The node sells at its best CPU price, mixed with a neighbouring one so that the CPU of what it
 * sells is the CPU that it has. */
static inline void step_node(struct fr_bid *b, const struct fr_bid_node *n)
{
	int64_t weight = ONE16, use, left = n->cpu_left, use_other = 0;
	int j, other = -1;

	if (n->idle == 0 && n->part_count == 0) { /* nothing that CPU could be sold with */
		b->cpu_spare += left;
		return;
	}
	j = best_price(b, n);
	use = pattern_cpu(b, n, j);
	if (use > left) {
		if (j + 1 < FR_BID_J) {
			use_other = pattern_cpu(b, n, j + 1);
			other = use_other <= left ? j + 1 : -1;
		}
		if (other < 0)
			weight = left * ONE16 / use;
	} else if (use < left && j > 0) {
		use_other = pattern_cpu(b, n, j - 1);
		other = use_other >= left ? j - 1 : -1;
	} else if (use < left) {
		b->cpu_spare += left - use;
	}
	if (other >= 0 && use != use_other)
		weight = (left - use_other) * ONE16 / (use - use_other);
	pattern_count(b, n, j, weight);
	if (other >= 0)
		pattern_count(b, n, other, ONE16 - weight);
}

WIDE void fr_bid_step_nodes(struct fr_bid *b, const struct fr_bid_node *nodes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (nodes[i].group != FR_BID_NOT_FOR_SALE)
			step_node(b, &nodes[i]);
}

/* Tasks of one run wanted `count` times (16 bits), dealt out to its classes. */
static void run_cover(struct fr_bid *b, uint32_t group, uint32_t run, int j, int64_t count)
{
	const struct fr_bid_group *g = &b->groups[group];
	const struct fr_bid_tables *t = &b->step[group];
	bool per_device = run < g->run_count - g->device_runs;

	for (uint32_t i = g->begin[run]; i < g->begin[run + 1]; i++) {
		uint32_t d = g->order[i];
		int64_t c = (int64_t)(((__int128)count *
				       t->weight[(size_t)d * FR_BID_STRIDE + (size_t)j]) >>
				      30);

		b->coverage[d] += per_device ? c / b->w->classes[d].count : c;
	}
}

/* Walks the tables backwards: what do the patterns that were counted consist of? */
static void cover_idle(struct fr_bid *b, uint32_t group, int j)
{
	const struct fr_bid_group *g = &b->groups[group];
	const struct fr_bid_tables *t = &b->step[group];
	struct fr_bid_demand *dm = &b->demand[group];
	int64_t single = 0;

	for (uint32_t f = FR_BID_F; f >= 1; f--) {
		int64_t w = dm->idle[f][j];

		if (w == 0)
			continue;
		single += (w * t->split[f][1][j]) >> 16;
		dm->idle[f - 1][j] += (w * t->split[f][1][j]) >> 16;
		for (uint32_t run = g->run_count - g->device_runs; run < g->run_count; run++) {
			uint32_t k = g->run_size[run];
			int64_t c = k <= f ? (w * t->split[f][k][j]) >> 16 : 0;

			if (c == 0)
				continue;
			run_cover(b, group, run, j, c);
			dm->idle[f - k][j] += c;
		}
	}
	for (uint32_t run = 0; run < g->run_count - g->device_runs; run++)
		if (g->run_size[run] == FR_BID_R)
			run_cover(b, group, run, j, (single * t->one[0][j]) >> 16);
	dm->part[0][FR_BID_R][j] += (single * t->one[1][j]) >> 16;
	dm->part[1][FR_BID_R][j] += (single * t->one[2][j]) >> 16;
	if (g->layouts.count > 0)
		t->mig_wanted[fr_bid_layout_empty(g)][j] += (single * t->one[3][j]) >> 16;
}

static void cover_mig(struct fr_bid *b, uint32_t group, int j)
{
	const struct fr_bid_layouts *l = &b->groups[group].layouts;
	const struct fr_bid_tables *t = &b->step[group];

	for (uint32_t i = l->count; i > 0; i--)
		for (uint32_t e = l->begin[i - 1]; e < l->begin[i]; e++) {
			int64_t c = (t->mig_wanted[i - 1][j] * t->mig_share[e][j]) >> 16;

			if (c == 0)
				continue;
			run_cover(b, group, l->edges[e].run, j, c);
			t->mig_wanted[l->edges[e].to][j] += c;
		}
}

static void cover_part(struct fr_bid *b, uint32_t group, int mode)
{
	const struct fr_bid_group *g = &b->groups[group];
	const struct fr_bid_tables *t = &b->step[group];
	struct fr_bid_demand *dm = &b->demand[group];

	for (uint32_t r = FR_BID_R; r >= 1; r--)
		for (int j = 0; j < FR_BID_J; j++) {
			int64_t w = dm->part[mode][r][j];
			int32_t run = t->pick[mode][r][j] - 1;

			if (w == 0)
				continue;
			if (run < 0) {
				dm->part[mode][r - 1][j] += w;
				continue;
			}
			run_cover(b, group, (uint32_t)run, j, w);
			dm->part[mode][r - g->run_size[run]][j] += w;
		}
}

/* a / b; a division of 128 bits is a call, and is seldom needed. */
static __int128 quotient(__int128 a, __int128 b)
{
	return a == (int64_t)a && b == (int64_t)b ? (int64_t)a / (int64_t)b : a / b;
}

/* y * exp(-eta x) for x in [-1, 1] with 16 bits, by the series: eta is small (40 bits, below 2^37). */
static int64_t descend(int64_t y, int64_t x, int64_t eta_milli)
{
	int64_t t = x * eta_milli * (INT64_C(1) << 24) / 1000;
	int64_t t2 = (int64_t)((__int128)t * t >> 40);
	int64_t f = (INT64_C(1) << 40) - t + t2 / 2 - (int64_t)((__int128)t2 * t >> 40) / 6 +
		    (int64_t)((__int128)t2 * t2 >> 40) / 24;

	return (int64_t)((__int128)y * f >> 40);
}

/* (coverage / lambda) / H - 1, at most 1; 16 bits. */
static int64_t excess(__int128 hosted, __int128 h)
{
	__int128 x = quotient(hosted * ONE16, h) - ONE16;

	return x > ONE16 ? ONE16 : (int64_t)x;
}

static bool sellable(const struct fr_bid *b, uint32_t d)
{
	if (b->w->classes[d].count == 0)
		return false;
	for (uint32_t i = 0; i < b->group_count; i++)
		if (b->groups[i].size[d] > 0)
			return true;
	return false;
}

static int64_t clip(int64_t y, __int128 ref)
{
	__int128 lo = quotient(ref * FLOOR_E7, 10000000), hi = quotient(ref * CAP_PERCENT, 100);

	return y < lo ? (int64_t)lo : y > hi ? (int64_t)hi : y;
}

/* Arrivals of the class of which so much could be hosted: coverage / rate. */
static __int128 hosted(const struct fr_bid *b, uint32_t d)
{
	return quotient((__int128)b->coverage[d] * b->arrivals, b->w->weights[d]);
}

/* To the sum that y always has. */
static void rescale(const struct fr_bid *b, int64_t *y, int64_t *y_cpu)
{
	__int128 sum = *y_cpu, factor;

	for (uint32_t d = 0; d < b->w->count; d++)
		sum += y[d];
	if (sum <= 0)
		return;
	factor = ((__int128)b->gpu_mean << 40) / sum;
	for (uint32_t d = 0; d < b->w->count; d++)
		y[d] = (int64_t)(y[d] * factor >> 40);
	*y_cpu = (int64_t)(*y_cpu * factor >> 40);
}

static void average(struct fr_bid *b, int64_t milli)
{
	for (uint32_t d = 0; d < b->w->count; d++)
		b->y_mean[d] += (int64_t)quotient((__int128)(b->y[d] - b->y_mean[d]) * milli, 1000);
	b->y_cpu_mean += (int64_t)quotient((__int128)(b->y_cpu - b->y_cpu_mean) * milli, 1000);
}

static void update(struct fr_bid *b, __int128 h)
{
	int64_t eta = b->steps < START_STEPS / 2 ? 2 * ETA_MILLI : ETA_MILLI;

	for (uint32_t d = 0; d < b->w->count; d++) {
		if (!sellable(b, d))
			continue;
		b->y[d] = clip(descend(b->y[d], excess(hosted(b, d), h), eta), b->y_start[d]);
	}
	if (b->cpu_only_sum > 0) {
		__int128 cpu = (__int128)b->cpu_spare * ONE16 * b->arrivals / b->cpu_only_sum;
		/* lamcpu * rho: rho has 24 bits. */
		__int128 ref = ((__int128)b->cpu_only_sum * b->rho / b->arrivals) << 16;

		b->y_cpu = clip(descend(b->y_cpu, excess(cpu, h), eta), ref);
	}
	rescale(b, b->y, &b->y_cpu);
	average(b, b->steps < START_STEPS ? MEAN_START_MILLI : MEAN_MILLI);
}

void fr_bid_step_end(struct fr_bid *b)
{
	__int128 num = 0, den = 0;

	for (uint32_t i = 0; i < b->group_count; i++) {
		for (int j = 0; j < FR_BID_J; j++)
			cover_idle(b, i, j);
		for (int mode = 0; mode < FR_BID_MODES; mode++)
			cover_part(b, i, mode);
		for (int j = 0; j < FR_BID_J; j++)
			cover_mig(b, i, j);
	}
	/* H: arrivals that could be hosted, in the mean over classes weighted by y. 16 bits. */
	for (uint32_t d = 0; d < b->w->count; d++) {
		if (!sellable(b, d))
			continue;
		num += b->y[d] * hosted(b, d);
		den += b->y[d];
	}
	if (b->cpu_only_sum > 0) {
		num += (__int128)b->y_cpu *
		       ((__int128)b->cpu_spare * ONE16 * b->arrivals / b->cpu_only_sum);
		den += b->y_cpu;
	}
	if (den > 0 && num / den > 0)
		update(b, num / den);
	b->steps++;
}

void fr_bid_publish(struct fr_bid *b)
{
	fr_bid_prices_set(b, b->y_mean, b->y_cpu_mean, &b->score_prices);
	for (uint32_t i = 0; i < b->group_count; i++)
		fr_bid_tables_fill(b, &b->groups[i], &b->score_prices, &b->score[i], false);
}

void fr_bid_copy(struct fr_bid *to, const struct fr_bid *from)
{
	size_t size = from->w->count * sizeof(*from->y);

	memcpy(to->y, from->y, size);
	memcpy(to->y_mean, from->y_mean, size);
	to->y_cpu = from->y_cpu;
	to->y_cpu_mean = from->y_cpu_mean;
	to->steps = from->steps;
}

static const struct fr_class *class_find(const struct fr_workload *w, const struct fr_class *c)
{
	for (size_t d = 0; d < w->count; d++)
		if (w->classes[d].cpu_milli == c->cpu_milli &&
		    memcmp(&w->classes[d], c, sizeof(*c)) == 0)
			return &w->classes[d];
	return NULL;
}

/* y times (share now / share before) of counts n of all; no more than all of y may be. */
static int64_t carry(const struct fr_bid *to, const struct fr_bid *from, int64_t y, int64_t n,
		     int64_t old_n)
{
	/* y has 54 bits, counts 21, CPU milli of counts 41: products have 116 at most. */
	__int128 r = (__int128)y * n * from->arrivals / ((__int128)old_n * to->arrivals);

	return r < to->gpu_mean ? (int64_t)r : to->gpu_mean;
}

bool fr_bid_carry(struct fr_bid *to, const struct fr_bid *from)
{
	int64_t n, old;

	if (from->steps < START_STEPS)
		return false;
	for (size_t d = 0; d < to->w->count; d++) {
		const struct fr_class *c = class_find(from->w, &to->w->classes[d]);

		if (!c)
			continue;
		n = to->w->weights[d];
		old = from->w->weights[c - from->w->classes];
		to->y[d] = carry(to, from, from->y[c - from->w->classes], n, old);
		to->y_mean[d] = carry(to, from, from->y_mean[c - from->w->classes], n, old);
	}
	n = to->cpu_only_sum;
	old = from->cpu_only_sum;
	if (n > 0 && old > 0) {
		to->y_cpu = carry(to, from, from->y_cpu, n, old);
		to->y_cpu_mean = carry(to, from, from->y_cpu_mean, n, old);
	}
	rescale(to, to->y, &to->y_cpu);
	rescale(to, to->y_mean, &to->y_cpu_mean);
	to->steps = START_STEPS;
	fr_bid_prices_set(to, to->y_mean, to->y_cpu_mean, &to->score_prices);
	return true;
}

#include "fragmentation/bid.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"

#define SOFT_TENTHS 250     /* be: 25 milli */
#define SOFT_IDLE_TENTHS 50 /* be2: 5 milli */
#define RUN_WHOLE 2         /* "mode" of runs of one whole device ... */
#define RUN_MIG 3           /* ... and of MIG instances */

int64_t fr_bid_class_gpu(const struct fr_bid *b, const struct fr_class *c)
{
	int64_t milli = fr_class_milli(c);

	if (c->size_mib > 0)
		milli = milli * 1000 / b->unit_mib;
	milli = arith_min(arith_max(milli, 1), INT64_C(1000) * ST_GPUS_MAX);
	return c->count > 0 ? milli * c->count : 0;
}

static void start(struct fr_bid *b)
{
	int64_t gpu = 0, cpu = 0;

	for (size_t d = 0; d < b->w->count; d++) {
		const struct fr_class *c = &b->w->classes[d];
		int64_t n = b->w->weights[d];

		b->arrivals += n;
		if (c->count == 0) {
			b->cpu_only_sum += n * fr_bid_class_cpu(c);
			continue;
		}
		gpu += n * fr_bid_class_gpu(b, c);
		cpu += n * fr_bid_class_cpu(c);
	}
	b->arrivals = arith_max(b->arrivals, 1);
	b->rho = arith_mul_div_floor(gpu, 1 << 24, arith_max(cpu, 1));
	b->rho = arith_min(b->rho, INT64_C(1) << 32);
	if (b->cpu_only_sum > 0) /* y_cpu, which is up to 1.25 times as much with 16 bits more */
		b->rho = arith_min(b->rho, arith_mul_div_floor(INT64_C(1) << 45, b->arrivals,
							       b->cpu_only_sum));
	b->gpu_mean = (int64_t)(((__int128)gpu << 40) / b->arrivals);
	for (size_t d = 0; d < b->w->count; d++) {
		const struct fr_class *c = &b->w->classes[d];

		if (c->count > 0)
			b->y[d] = (int64_t)(((__int128)(b->w->weights[d] * fr_bid_class_gpu(b, c))
					     << 40) /
					    b->arrivals);
		b->y_start[d] = b->y_mean[d] = b->y[d];
	}
	b->y_cpu = (int64_t)((((__int128)b->cpu_only_sum * b->rho / b->arrivals) << 16) / 10);
	b->y_cpu_mean = b->y_cpu;
}

struct fr_bid *fr_bid_new(const struct fr_workload *w, int64_t unit_mib)
{
	struct fr_bid *b = calloc(1, sizeof(*b));
	size_t n = w->count + 1;

	if (!b)
		return NULL;
	b->w = w;
	b->unit_mib = unit_mib;
	fr_fixed_init(&b->fixed);
	fr_soft_init(&b->soft, SOFT_TENTHS);
	fr_soft_init(&b->soft_idle, SOFT_IDLE_TENTHS);
	b->y = calloc(n, sizeof(*b->y));
	b->y_mean = calloc(n, sizeof(*b->y_mean));
	b->y_start = calloc(n, sizeof(*b->y_start));
	b->coverage = calloc(n, sizeof(*b->coverage));
	b->score_prices.net = calloc(n, FR_BID_STRIDE * sizeof(*b->score_prices.net));
	b->step_prices.net = calloc(n, FR_BID_STRIDE * sizeof(*b->step_prices.net));
	if (!b->y || !b->y_mean || !b->y_start || !b->coverage || !b->score_prices.net ||
	    !b->step_prices.net) {
		fr_bid_free(b);
		return NULL;
	}
	start(b);
	fr_bid_prices_set(b, b->y_mean, b->y_cpu_mean, &b->score_prices);
	return b;
}

static void tables_fini(struct fr_bid_tables *t)
{
	free(t->bid);
	free(t->bid_cpu);
	free(t->weight);
	free(t->mig);
	free(t->mig_cpu);
	free(t->mig_share);
	free(t->mig_wanted);
}

static void group_fini(struct fr_bid_group *g)
{
	free(g->size);
	free(g->order);
	free(g->begin);
	free(g->run_mode);
	free(g->run_size);
	free(g->run_weight);
	free(g->run_demand);
	fr_bid_layouts_fini(&g->layouts);
}

void fr_bid_free(struct fr_bid *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->group_count; i++) {
		group_fini(&b->groups[i]);
		tables_fini(&b->score[i]);
		tables_fini(&b->step[i]);
	}
	free(b->groups);
	free(b->score);
	free(b->step);
	free(b->demand);
	free(b->y);
	free(b->y_mean);
	free(b->y_start);
	free(b->coverage);
	free(b->score_prices.net);
	free(b->step_prices.net);
	free(b);
}

/* ---- groups ---- */

/* Where a class stands among the runs: by mode and size, whole devices, MIG by profile, whole devices of
 * k >= 2 by k. */
static unsigned run_key(const struct fr_bid *b, const uint8_t *size, uint32_t d)
{
	const struct fr_class *c = &b->w->classes[d];

	if (c->kind == ST_KIND_MIG)
		return RUN_MIG * 256u + size[d];
	if (size[d] == FR_BID_R && c->count > 1)
		return 4096 + c->count;
	if (size[d] == FR_BID_R)
		return RUN_WHOLE * 256 + FR_BID_R;
	return (c->mode == ST_MODE_SM_SHARING ? 256u : 0u) + size[d];
}

static void run_close(const struct fr_bid *b, struct fr_bid_group *g, unsigned key, uint32_t end)
{
	uint32_t run = g->run_count++;
	bool devices = key > 4096;

	g->run_mode[run] = devices ? RUN_WHOLE : (uint8_t)(key / 256);
	g->run_size[run] = (uint8_t)(devices ? key - 4096 : key % 256);
	g->device_runs += devices;
	for (uint32_t i = g->begin[run]; i < end; i++) {
		const struct fr_class *c = &b->w->classes[g->order[i]];
		int64_t demand = b->w->weights[g->order[i]] * fr_bid_class_gpu(b, c);

		g->run_weight[run] += b->w->weights[g->order[i]];
		g->run_demand[run] += demand;
		if (devices)
			g->demand_devices[c->count] += demand;
		else if (g->run_mode[run] == RUN_WHOLE)
			g->demand_one += demand;
		else if (g->run_mode[run] == RUN_MIG)
			g->demand_mig += demand;
		else
			g->demand_share[g->run_mode[run]] += demand;
	}
	if (g->run_mode[run] == RUN_MIG) {
		g->mig_runs = g->mig_runs_end ? g->mig_runs : run;
		g->mig_runs_end = run + 1;
	}
	g->begin[run + 1] = end;
}

/* Sorts the accepted classes into runs (insertion by key; done once a group). */
static void group_sort(const struct fr_bid *b, struct fr_bid_group *g)
{
	uint32_t n = 0;

	for (uint32_t d = 0; d < b->w->count; d++) {
		unsigned key;
		uint32_t at;

		if (g->size[d] == 0)
			continue;
		key = run_key(b, g->size, d);
		for (at = n; at > 0 && run_key(b, g->size, g->order[at - 1]) > key; at--)
			g->order[at] = g->order[at - 1];
		g->order[at] = d;
		n++;
	}
	for (uint32_t i = 0; i < n; i++) {
		unsigned key = run_key(b, g->size, g->order[i]);

		if (i + 1 == n || run_key(b, g->size, g->order[i + 1]) != key)
			run_close(b, g, key, i + 1);
	}
}

static int tables_init(struct fr_bid_tables *t, const struct fr_bid_group *g, size_t classes)
{
	memset(t, 0, sizeof(*t));
	t->bid = calloc(g->run_count + 1, FR_BID_STRIDE * sizeof(*t->bid));
	t->bid_cpu = calloc(g->run_count + 1, FR_BID_STRIDE * sizeof(*t->bid_cpu));
	t->weight = calloc(classes + 1, FR_BID_STRIDE * sizeof(*t->weight));
	if (t->bid && t->bid_cpu && t->weight && fr_bid_layout_tables_init(&g->layouts, t) == 0)
		return 0;
	tables_fini(t);
	return ERR_NOMEM;
}

static int group_init(const struct fr_bid *b, struct fr_bid_group *g, const uint8_t *size,
		      const struct st_mig_geometry *mig, uint64_t mig_open)
{
	size_t n = b->w->count + 1;

	memset(g, 0, sizeof(*g));
	g->size = malloc(n);
	g->order = calloc(n, sizeof(*g->order));
	g->begin = calloc(n + 1, sizeof(*g->begin));
	g->run_mode = calloc(n, 1);
	g->run_size = calloc(n, 1);
	g->run_weight = calloc(n, sizeof(*g->run_weight));
	g->run_demand = calloc(n, sizeof(*g->run_demand));
	if (!g->size || !g->order || !g->begin || !g->run_mode || !g->run_size || !g->run_weight ||
	    !g->run_demand) {
		group_fini(g);
		return ERR_NOMEM;
	}
	memcpy(g->size, size, b->w->count);
	group_sort(b, g);
	g->mig = mig;
	g->mig_open = mig_open;
	if (mig && fr_bid_layouts_init(g) < 0) {
		group_fini(g);
		return ERR_NOMEM;
	}
	return 0;
}

static int groups_grow(struct fr_bid *b)
{
	uint32_t cap = b->group_cap ? b->group_cap * 2 : 8;
	void *p;

	p = realloc(b->groups, cap * sizeof(*b->groups));
	if (!p)
		return ERR_NOMEM;
	b->groups = p;
	p = realloc(b->score, cap * sizeof(*b->score));
	if (!p)
		return ERR_NOMEM;
	b->score = p;
	p = realloc(b->step, cap * sizeof(*b->step));
	if (!p)
		return ERR_NOMEM;
	b->step = p;
	p = realloc(b->demand, cap * sizeof(*b->demand));
	if (!p)
		return ERR_NOMEM;
	b->demand = p;
	b->group_cap = cap;
	return 0;
}

int fr_bid_group_find(struct fr_bid *b, const uint8_t *size, const struct st_mig_geometry *mig,
		      uint64_t mig_open)
{
	struct fr_bid_group *g;

	for (uint32_t i = 0; i < b->group_count; i++)
		if (b->groups[i].mig == mig && b->groups[i].mig_open == mig_open &&
		    memcmp(b->groups[i].size, size, b->w->count) == 0)
			return (int)i;
	if (b->group_count == b->group_cap && groups_grow(b) < 0)
		return -1;
	g = &b->groups[b->group_count];
	if (group_init(b, g, size, mig, mig_open) < 0)
		return -1;
	if (tables_init(&b->score[b->group_count], g, b->w->count) < 0) {
		group_fini(g);
		return -1;
	}
	if (tables_init(&b->step[b->group_count], g, b->w->count) < 0) {
		group_fini(g);
		tables_fini(&b->score[b->group_count]);
		return -1;
	}
	/* At the published prices: those of the nodes that are there do not change. */
	fr_bid_tables_fill(b, g, &b->score_prices, &b->score[b->group_count], false);
	return (int)b->group_count++;
}

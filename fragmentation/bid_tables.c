/* Value tables at given prices: the unbounded knapsack over shares of one device, and the soft
 * choice of what idle devices are sold as. */
#include <string.h>

#include "base/arith.h"
#include "base/wide.h"
#include "fragmentation/bid.h"
#include "fragmentation/bid_lanes.h"

#define NEVER (-(1 << 29))

/* CPU price grid, in hundredths of rho. */
static const int64_t grid[FR_BID_J] = {0, 10, 25, 40, 60, 80, 100, 140, 250, 600};

void fr_bid_prices_set(const struct fr_bid *b, const int64_t *y, int64_t y_cpu,
		       struct fr_bid_prices *ret)
{
	int64_t nu = 0;

	if (b->cpu_only_sum > 0) /* nu = y_cpu / (cpu_only_sum / arrivals), 40 -> 24 bits */
		nu = arith_min((int64_t)(((__int128)y_cpu * b->arrivals / b->cpu_only_sum) >> 16),
			       FR_BID_MU_MAX / 4);
	for (int j = 0; j < FR_BID_J; j++)
		ret->mu[j] = nu + b->rho * grid[j] / 100;
	for (uint32_t d = 0; d < b->w->count; d++) {
		int32_t *net = ret->net + (size_t)d * FR_BID_STRIDE;
		int64_t pi = (int64_t)(((__int128)y[d] * b->arrivals / b->w->weights[d]) >>
				       (40 - FR_PRICE_BITS));

		pi = arith_min(pi, FR_BID_VALUE_MAX);
		for (int j = 0; j < FR_BID_J; j++)
			net[j] = (int32_t)arith_max(
				pi - fr_bid_cpu_value(ret, j, fr_bid_class_cpu(&b->w->classes[d])),
				NEVER);
	}
}

/* Bid of one run at one price: the soft maximum over its classes. vals are their values. */
static int32_t run_bid(const struct fr_bid *b, const struct fr_bid_group *g, uint32_t run,
		       const int32_t *vals, uint64_t *exps, uint64_t *ret_sum)
{
	const uint32_t *cls = g->order + g->begin[run];
	uint32_t n = g->begin[run + 1] - g->begin[run];
	int32_t top = NEVER;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		top = vals[i] > top ? vals[i] : top;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t e = n == 1 ? 1u << 30 : fr_soft_exp(&b->fixed, &b->soft, vals[i] - top);

		exps[i] = e * (uint64_t)b->w->weights[cls[i]];
		sum += exps[i];
	}
	*ret_sum = sum;
	if (n == 1)
		return top;
	return top + fr_soft_ln(&b->fixed, &b->soft, sum, (uint64_t)g->run_weight[run] << 30);
}

/* bid, and for a step also the CPU and the share of each class. */
static void run_fill(const struct fr_bid *b, const struct fr_bid_group *g,
		     const struct fr_bid_prices *p, uint32_t run, struct fr_bid_tables *t,
		     bool for_step)
{
	const uint32_t *cls = g->order + g->begin[run];
	uint32_t n = g->begin[run + 1] - g->begin[run];
	bool per_device = run < g->run_count - g->device_runs;
	int32_t vals[FR_CLASSES_MAX];
	uint64_t exps[FR_CLASSES_MAX], sum;

	for (size_t j = 0; j < FR_BID_J; j++) {
		int64_t cpu = 0;

		for (uint32_t i = 0; i < n; i++) {
			int32_t v = p->net[(size_t)cls[i] * FR_BID_STRIDE + j];
			uint8_t count = b->w->classes[cls[i]].count;

			vals[i] = per_device && count > 1 ? v / count : v;
		}
		t->bid[(size_t)run * FR_BID_STRIDE + j] = run_bid(b, g, run, vals, exps, &sum);
		if (!for_step)
			continue;
		for (uint32_t i = 0; i < n; i++) {
			const struct fr_class *c = &b->w->classes[cls[i]];
			uint64_t w =
				n == 1 ? 1u << 30 : ((exps[i] >> 20) << 30) / ((sum >> 20) + 1);

			t->weight[(size_t)cls[i] * FR_BID_STRIDE + j] = (uint32_t)w;
			cpu += (int64_t)w * (per_device && c->count > 1
						     ? fr_bid_class_cpu(c) / c->count
						     : fr_bid_class_cpu(c));
		}
		t->bid_cpu[(size_t)run * FR_BID_STRIDE + j] = (int32_t)(cpu >> 30);
	}
}

/* A bid for a task of the run, where it is positive; nobody sells at a loss. */
static inline struct fr_bid_lanes gain_of(const struct fr_bid_tables *t, uint32_t run)
{
	struct fr_bid_lanes l = fr_bid_lanes_load(t->bid + (size_t)run * FR_BID_STRIDE);

	for (int i = 0; i < FR_BID_LANES; i++)
		l.v[i] = (l.v[i] & (l.v[i] > 0)) | (NEVER & ~(l.v[i] > 0));
	return l;
}

/* Better of keeping what is there and adding a task of the run; true when better somewhere. */
static inline bool improve(const struct fr_bid_lanes *gain, const int32_t *rest, int32_t run,
			   struct fr_bid_lanes *best, struct fr_bid_lanes *pick)
{
	struct fr_bid_lanes with = fr_bid_lanes_load(rest);
	fr_i32x4 any = {0};

	for (int i = 0; i < FR_BID_LANES; i++) {
		fr_i32x4 sum = with.v[i] + gain->v[i], large = sum > FR_BID_VALUE_MAX, more;

		sum = (FR_BID_VALUE_MAX & large) | (sum & ~large);
		more = sum > best->v[i];
		best->v[i] = (sum & more) | (best->v[i] & ~more);
		pick->v[i] = ((run + 1) & more) | (pick->v[i] & ~more);
		any |= more;
	}
	return (any[0] | any[1] | any[2] | any[3]) != 0;
}

static bool mode_has_runs(const struct fr_bid_group *g, int mode)
{
	return g->demand_share[mode] > 0;
}

/* K[r] = max(K[r-1], max over sizes s < 100 with a positive bid of bid + K[r-s]). A size that smaller
 * ones beat at r = s, at every price, is never of use and is left out from there on. */
static void knapsack(const struct fr_bid_group *g, int mode, struct fr_bid_tables *t)
{
	struct {
		struct fr_bid_lanes gain;
		uint32_t run, size;
	} active[FR_BID_R];
	struct fr_bid_lanes best = {0};
	uint32_t active_count = 0, next = 0;

	while (next < g->run_count - g->device_runs && g->run_mode[next] < mode)
		next++;
	for (uint32_t r = 1; r <= FR_BID_R; r++) {
		struct fr_bid_lanes pick = {0};

		for (uint32_t i = 0; i < active_count; i++)
			improve(&active[i].gain, t->k[mode][r - active[i].size],
				(int32_t)active[i].run, &best, &pick);
		if (r < FR_BID_R && next < g->run_count - g->device_runs &&
		    g->run_mode[next] == mode && g->run_size[next] == r) {
			struct fr_bid_lanes gain = gain_of(t, next);

			if (improve(&gain, t->k[mode][0], (int32_t)next, &best, &pick)) {
				active[active_count].gain = gain;
				active[active_count].run = next;
				active[active_count++].size = r;
			}
			next++;
		}
		memcpy(t->k[mode][r], &best, sizeof(best));
		memcpy(t->pick[mode][r], &pick, sizeof(pick));
	}
}

static void knapsack_cpu(const struct fr_bid_group *g, int mode, struct fr_bid_tables *t)
{
	for (uint32_t r = 1; r <= FR_BID_R; r++)
		for (int j = 0; j < FR_BID_J; j++) {
			int32_t run = t->pick[mode][r][j] - 1;

			t->k_cpu[mode][r][j] =
				run < 0 ? t->k_cpu[mode][r - 1][j]
					: t->bid_cpu[run * FR_BID_STRIDE + j] +
						  t->k_cpu[mode][r - g->run_size[run]][j];
		}
}

/* The run of whole single devices, or -1. */
static int one_run(const struct fr_bid_group *g)
{
	for (uint32_t i = 0; i < g->run_count - g->device_runs; i++)
		if (g->run_size[i] == FR_BID_R)
			return (int)i;
	return -1;
}

int32_t fr_bid_soft_options(const struct fr_bid *b, const struct fr_soft *s,
			    const struct fr_bid_option *o, unsigned n, int32_t *ret_cpu)
{
	int64_t total = 0, cpu = 0;
	uint64_t sum = 0, e[FR_BID_OPTIONS_MAX];
	int32_t top = NEVER;

	for (unsigned i = 0; i < n; i++) {
		total += o[i].weight;
		top = o[i].weight > 0 && o[i].value > top ? o[i].value : top;
	}
	*ret_cpu = 0;
	if (total == 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		/* Weights in 1/2^20 of the total keep the products in range. */
		uint64_t w = (uint64_t)arith_mul_div_floor(o[i].weight, 1 << 20, total);

		e[i] = w ? w * fr_soft_exp(&b->fixed, s, o[i].value - top) : 0;
		sum += e[i];
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t share = (e[i] >> 16) * 65536 / ((sum >> 16) + 1);

		if (o[i].ret_share)
			*o[i].ret_share = (uint32_t)share;
		cpu += (int64_t)share * o[i].cpu;
	}
	*ret_cpu = (int32_t)(cpu >> 16);
	return top + fr_soft_ln(&b->fixed, s, sum > 0 ? sum : 1, UINT64_C(1) << 50);
}

static void idle_fill(const struct fr_bid *b, const struct fr_bid_group *g, struct fr_bid_tables *t,
		      int j)
{
	int one = one_run(g);
	int32_t device, device_cpu;
	int64_t single = g->demand_one + g->demand_share[0] + g->demand_share[1] + g->demand_mig;
	int empty = fr_bid_layout_empty(g);
	struct fr_bid_option o[FR_BID_OPTIONS_MAX] = {
		{g->demand_one, one < 0 ? NEVER : t->bid[one * FR_BID_STRIDE + j],
		 one < 0 ? 0 : t->bid_cpu[one * FR_BID_STRIDE + j], &t->one[0][j]},
		{g->demand_share[0], t->k[0][FR_BID_R][j], t->k_cpu[0][FR_BID_R][j], &t->one[1][j]},
		{g->demand_share[1], t->k[1][FR_BID_R][j], t->k_cpu[1][FR_BID_R][j], &t->one[2][j]},
		{g->demand_mig, empty < 0 ? 0 : t->mig[empty][j],
		 empty < 0 ? 0 : t->mig_cpu[empty][j], &t->one[3][j]},
	};

	device = fr_bid_soft_options(b, &b->soft, o, 4, &device_cpu);
	t->m[0][j] = t->m_cpu[0][j] = 0;
	for (uint32_t f = 1; f <= FR_BID_F; f++) {
		unsigned n = 0;

		o[n++] =
			(struct fr_bid_option){single, t->m[f - 1][j] + device,
					       t->m_cpu[f - 1][j] + device_cpu, &t->split[f][1][j]};
		for (uint32_t run = g->run_count - g->device_runs; run < g->run_count; run++) {
			uint32_t k = g->run_size[run];

			if (k > f)
				continue;
			o[n++] = (struct fr_bid_option){
				g->demand_devices[k],
				t->m[f - k][j] + t->bid[run * FR_BID_STRIDE + (uint32_t)j],
				t->m_cpu[f - k][j] + t->bid_cpu[run * FR_BID_STRIDE + (uint32_t)j],
				&t->split[f][k][j]};
		}
		t->m[f][j] = fr_bid_soft_options(b, &b->soft_idle, o, n, &t->m_cpu[f][j]);
		t->m[f][j] = t->m[f][j] > NEVER ? t->m[f][j] : NEVER;
	}
}

WIDE void fr_bid_tables_fill(const struct fr_bid *b, const struct fr_bid_group *g,
			     const struct fr_bid_prices *p, struct fr_bid_tables *ret,
			     bool for_step)
{
	for (uint32_t run = 0; run < g->run_count; run++)
		run_fill(b, g, p, run, ret, for_step);
	for (int mode = 0; mode < FR_BID_MODES; mode++) {
		if (!mode_has_runs(g, mode))
			continue; /* nothing is of use, as at the start */
		knapsack(g, mode, ret);
		if (for_step)
			knapsack_cpu(g, mode, ret);
	}
	fr_bid_layouts_fill(b, g, ret);
	for (int j = 0; j < FR_BID_J; j++)
		idle_fill(b, g, ret, j);
}

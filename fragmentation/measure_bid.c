/* The bid-price measure on nodes: what a node's remainder could be sold for. N is minus the value,
 * so that here, too, lower is better. */
#include <string.h>

#include "base/arith.h"
#include "base/wide.h"
#include "fragmentation/bid_lanes.h"
#include "fragmentation/measure_internal.h"

/* Milli of a device, charged on top of the lost value: they break ties towards consolidation. */
#define E_LEFT 15   /* times the share of the GPU that is left after a share is placed */
#define E_OPEN 10   /* for opening an idle GPU */
#define E_MIG 2     /* times the milli lost by fr_mig_value */
#define E_DEVICES 4 /* for each group of 8 idle GPUs broken; half for 4, a quarter for 2 */
/* CPU of a pod without GPU: percent of the part of the node that it takes. It would else go to a node
 * whose GPUs are in use, at no loss, and be in the way of the GPUs that come back. */
#define E_CPU_PERCENT 3
/* For a pod of one GPU, on a type that is in use more than the cluster, times the difference; less in use: a
 * credit. Prices keep room for what has been asked for; this does for pods that begin to name a model. Pods of
 * several GPUs have too few places to choose among. */
#define E_TYPE 30
#define ONE (1 << FR_PRICE_BITS)

/* What of a GPU's state its value depends on; 0 stands for a GPU that is taken. */
struct fr_bid_state {
	uint64_t usable : 1;
	uint64_t kind : 2; /* enum fr_bid_gpu */
	uint64_t mode : 2; /* index of K, or FR_BID_MODES */
	uint64_t type : 16;
	uint64_t left : 16;  /* in hundredths; MIG: the layout */
	uint64_t milli : 12; /* free */
	uint64_t lost : 12;  /* MIG: by fr_mig_value */
};

_Static_assert(sizeof(struct fr_bid_state) == sizeof(uint64_t), "a row");

static inline struct fr_bid_state state_of(uint64_t row)
{
	struct fr_bid_state s;

	memcpy(&s, &row, sizeof(s));
	return s;
}

/* Times so many parts of the device, at most 4095. */
static unsigned parts(int64_t amount, int64_t of, int64_t times)
{
	return amount > 0 ? (unsigned)arith_min(amount * times / of, 4095) : 0;
}

uint64_t fr_bid_row(const struct fr_measure *m, const struct fr_gpu *g)
{
	const struct fr_type *t = &m->types[g->type];
	struct fr_bid_state s = {.usable = 1, .kind = FR_BID_NONE, .type = g->type};
	uint64_t row;

	s.milli = parts(g->free_mib, t->alloc_mib, 1000) & 4095;
	if (g->mode == ST_MODE_FREE) {
		s.kind = FR_BID_IDLE;
	} else if (g->mode == ST_MODE_MIG) {
		int layout = fr_bid_layout(&m->bid->groups[t->bid_group], g->mig_placed);

		if (layout >= 0) {
			s.kind = FR_BID_MIG;
			s.mode = FR_BID_MODES;
			s.left = (unsigned)layout & UINT16_MAX;
			s.lost = parts(fr_mig_value_at(t->value, g->mig_placed), 1, 1) & 4095;
		}
	} else if (g->mode == ST_MODE_TIME_SLICING || g->mode == ST_MODE_SM_SHARING) {
		unsigned r = (unsigned)s.milli / (1000 / FR_BID_R);

		if (g->clients_left <= 0)
			r = 0;
		if (g->mode == ST_MODE_SM_SHARING && m->uses_compute)
			r = (unsigned)arith_min(r, parts(g->compute_left_nano, ST_NANO, FR_BID_R));
		s.kind = FR_BID_PART;
		s.mode = g->mode == ST_MODE_SM_SHARING;
		s.left = r & UINT16_MAX;
	}
	memcpy(&row, &s, sizeof(row));
	return row;
}

/* Hundredths of a device that a task takes of each; 0 = not accepted. */
static uint8_t size_on(const struct fr_type *t, const struct fr_type_class *tc,
		       const struct fr_class *c)
{
	int64_t size;

	if (!tc->accepted)
		return 0;
	if (c->kind == ST_KIND_MIG)
		return (uint8_t)(tc->profile + 1);
	if (c->kind == ST_KIND_WHOLE)
		return FR_BID_R;
	if (tc->d_mib > t->alloc_mib)
		return 0;
	size = arith_mul_div_ceil(tc->d_mib, FR_BID_R, t->alloc_mib);
	return (uint8_t)arith_min(arith_max(size, 1), FR_BID_R);
}

int fr_bid_type_init(struct fr_measure *m, struct fr_type *t)
{
	uint8_t size[FR_CLASSES_MAX + 1] = {0};
	bool mig = false;
	int group;

	for (uint32_t i = 0; i < m->class_count; i++) {
		const struct fr_type_class *tc = &t->classes[i];
		const struct fr_class *c = &m->w->classes[m->index[i]];

		size[m->index[i]] = size_on(t, tc, c);
		mig |= c->kind == ST_KIND_MIG && size[m->index[i]] > 0;
	}
	group = fr_bid_group_find(m->bid, size, mig ? t->mig : NULL, mig ? t->mig_open : 0);
	if (group < 0)
		return ERR_NOMEM;
	t->bid_group = group;
	return 0;
}

/* Of which something may be for sale. */
static inline bool in_use(struct fr_bid_state s)
{
	return s.kind == FR_BID_PART || s.kind == FR_BID_MIG;
}

static inline const int32_t *state_value(const struct fr_measure *m, struct fr_bid_state s)
{
	return fr_bid_part_value(&m->bid->score[m->types[s.type].bid_group], s.mode, s.left);
}

/* With `sums` of the devices in use, and so many idle ones. */
static inline int64_t value(const struct fr_measure *m, const struct fr_node *nd,
			    struct fr_bid_lanes sums, uint32_t idle, int64_t cpu)
{
	fr_i64x4 at[FR_BID_LANES];

	fr_bid_lanes_add(&sums, m->bid->score[nd->bid_group].m[idle], 1);
	fr_bid_lanes_sum(&m->bid->score_prices, arith_max(cpu, 0), &sums, at);
	return fr_bid_lanes_min(at);
}

WIDE void fr_bid_node_value(const struct fr_measure *m, struct fr_node *nd)
{
	struct fr_bid_lanes sums = {0};

	nd->idle_gpus = 0;
	nd->bid_group = (uint32_t)m->types[nd->types[0]].bid_group;
	for (unsigned i = nd->gpu_count; i > 0; i--)
		if (!m->types[nd->types[i - 1]].mig || m->types[nd->types[i - 1]].switchable)
			nd->bid_group = (uint32_t)m->types[nd->types[i - 1]].bid_group;
	for (unsigned i = 0; i < nd->gpu_count; i++) {
		struct fr_bid_state s = state_of(nd->rows[i]);

		nd->idle_gpus += s.kind == FR_BID_IDLE;
		if (in_use(s))
			fr_bid_lanes_add(&sums, state_value(m, s), 1);
	}
	memcpy(nd->sums, &sums, sizeof(sums));
	nd->n = -value(m, nd, sums, nd->idle_gpus, nd->cpu_left);
}

/* What a change costs beside the value lost, and how many GPUs stop being idle. */
static int64_t extras(const struct fr_measure *m, const struct fr_change *ch, unsigned n,
		      int32_t *ret_opened)
{
	int64_t sum = 0;

	*ret_opened = 0;
	for (unsigned i = 0; i < n; i++) {
		struct fr_bid_state before = state_of(ch[i].before), after = state_of(ch[i].after);
		bool opened = before.kind == FR_BID_IDLE && after.kind != FR_BID_IDLE;
		int64_t cost = 0;

		if (n == 1 && ch[i].times == 1)
			cost = (int64_t)m->types[after.type].scarcity *
			       ((int)before.milli - (int)after.milli) / 1000;
		*ret_opened += opened * ch[i].times;
		if (in_use(after) && opened)
			cost += (int64_t)E_OPEN * ONE;
		if (after.kind == FR_BID_MIG)
			cost += (int64_t)E_MIG * ONE * ((int)after.lost - (int)before.lost);
		else if (in_use(after))
			cost += (int64_t)E_LEFT * ONE * (int)after.milli / 1000;
		sum += ch[i].times * cost;
	}
	return sum;
}

static int64_t device_groups(uint32_t idle)
{
	return (4 * (int64_t)(idle / 8) + 2 * (int64_t)(idle / 4) + (int64_t)(idle / 2)) *
	       E_DEVICES * ONE / 4;
}

/* What cpu_milli of a pod without GPU cost beside the value lost. */
static int64_t cpu_extra(const struct fr_measure *m, const struct fr_node *nd, int64_t cpu_milli)
{
	int64_t all = st_cluster_node(m->cluster, (uint32_t)(nd - m->nodes))->cpu_milli;
	int64_t part;

	if (all <= 0 || cpu_milli <= 0)
		return 0;
	part = arith_mul_div_floor(arith_min(cpu_milli, all), (int64_t)1000 * ONE, all);
	return part * nd->gpu_count * E_CPU_PERCENT / 100;
}

WIDE int64_t fr_bid_after(const struct fr_measure *m, const struct fr_node *nd, int64_t cpu,
			  const struct fr_change *ch, unsigned n, int64_t *ret_extras)
{
	struct fr_bid_lanes sums = fr_bid_lanes_load(nd->sums);
	int32_t opened;
	int64_t extra = extras(m, ch, n, &opened);
	uint32_t idle = nd->idle_gpus - (uint32_t)opened;

	for (unsigned i = 0; i < n; i++) {
		struct fr_bid_state before = state_of(ch[i].before), after = state_of(ch[i].after);

		if (in_use(before))
			fr_bid_lanes_add(&sums, state_value(m, before), -ch[i].times);
		if (in_use(after))
			fr_bid_lanes_add(&sums, state_value(m, after), ch[i].times);
	}
	if (ret_extras && n == 0)
		extra += cpu_extra(m, nd, nd->cpu_left - cpu);
	if (ret_extras)
		*ret_extras = extra + device_groups(nd->idle_gpus) - device_groups(idle);
	return -value(m, nd, sums, idle, cpu);
}

/* ---- price steps ---- */

void fr_bid_sale_set(struct fr_measure *m, uint32_t node)
{
	const struct fr_node *nd = &m->nodes[node];
	struct fr_bid_node *sale = &m->sales[node];

	sale->group = nd->epoch == 0 || nd->gpu_count == 0 || nd->closed ? FR_BID_NOT_FOR_SALE
									 : nd->bid_group;
	if (sale->group == FR_BID_NOT_FOR_SALE)
		return;
	sale->idle = nd->idle_gpus;
	sale->cpu_left = arith_max(nd->cpu_left, 0);
	sale->part_count = 0;
	for (unsigned i = 0; i < nd->gpu_count; i++) {
		struct fr_bid_state s = state_of(nd->rows[i]);

		if (!in_use(s) || s.left == 0)
			continue;
		sale->part[sale->part_count].group = (uint16_t)m->types[s.type].bid_group;
		sale->part[sale->part_count].mode = s.mode;
		sale->part[sale->part_count++].r = s.left;
	}
}

void fr_measure_price_steps(struct fr_measure *m, unsigned steps)
{
	if (m->kind != FR_BID || m->bid->arrivals == 0)
		return;
	for (unsigned i = 0; i < steps; i++) {
		fr_bid_step_begin(m->bid);
		fr_bid_step_nodes(m->bid, m->sales, m->node_cap);
		fr_bid_step_end(m->bid);
	}
}

/* How much more of each type is in use than of the cluster. GPUs that cannot be used do not count. */
static void scarcity_set(struct fr_measure *m)
{
	int64_t all = 0, used = 0;

	for (uint32_t t = 0; t < m->type_count; t++)
		m->types[t].all_milli = m->types[t].used_milli = 0;
	for (uint32_t id = 0; id < m->node_cap; id++) {
		const struct fr_node *nd = &m->nodes[id];

		for (unsigned i = 0; nd->epoch != 0 && i < nd->gpu_count; i++) {
			struct fr_type *t = &m->types[nd->types[i]];

			if (nd->rows[i] == 0 || nd->closed)
				continue;
			t->all_milli += 1000;
			t->used_milli += 1000 - state_of(nd->rows[i]).milli;
		}
	}
	for (uint32_t t = 0; t < m->type_count; t++) {
		all += m->types[t].all_milli;
		used += m->types[t].used_milli;
	}
	for (uint32_t i = 0; i < m->type_count; i++) {
		struct fr_type *t = &m->types[i];
		int64_t part = t->all_milli > 0
				       ? t->used_milli * 1000 / t->all_milli - used * 1000 / all
				       : 0;

		t->scarcity = (int32_t)((int64_t)E_TYPE * ONE * part / 1000);
	}
}

void fr_measure_price_publish(struct fr_measure *m)
{
	if (m->kind != FR_BID)
		return;
	fr_bid_publish(m->bid);
	scarcity_set(m);
	m->total = 0;
	for (uint32_t id = 0; id < m->node_cap; id++) {
		struct fr_node *nd = &m->nodes[id];

		if (nd->epoch != 0 && nd->gpu_count > 0)
			fr_bid_node_value(m, nd);
		m->total += nd->n;
	}
}

void fr_measure_price_copy(struct fr_measure *to, const struct fr_measure *from)
{
	if (to->kind != FR_BID || from->kind != FR_BID || to->w->count != from->w->count)
		return;
	fr_bid_copy(to->bid, from->bid);
}

bool fr_measure_price_carry(struct fr_measure *to, const struct fr_measure *from)
{
	return to->kind == FR_BID && from->kind == FR_BID && fr_bid_carry(to->bid, from->bid);
}

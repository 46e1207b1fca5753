/* The bid-price measure on nodes: what a node's remainder could be sold for. N is minus the value,
 * so that here, too, lower is better. */
#include <string.h>

#include "base/arith.h"
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
#define QUANTUM 6
#define ONE (1 << FR_PRICE_BITS)

/* Row layout: kind, mode, remainder in 1/100 or MIG layout, group, free milli, fr_mig_value, type. */
enum { ROW_KIND, ROW_MODE, ROW_R, ROW_GROUP, ROW_MILLI, ROW_MIG_LOST, ROW_TYPE };

void fr_bid_row_fill(const struct fr_measure *m, const struct fr_row_key *key, int32_t *row)
{
	const struct fr_type *t = &m->types[key->type];
	int64_t r = key->free_mib > 0 ? (int64_t)key->free_mib * FR_BID_R / t->alloc_mib : 0;

	row[ROW_GROUP] = t->bid_group;
	row[ROW_TYPE] = key->type;
	row[ROW_KIND] = FR_BID_NONE;
	row[ROW_MILLI] =
		key->free_mib > 0 ? (int32_t)((int64_t)key->free_mib * 1000 / t->alloc_mib) : 0;
	if (key->mode == ST_MODE_FREE) {
		row[ROW_KIND] = FR_BID_IDLE;
	} else if (key->mode == ST_MODE_MIG) {
		int layout = fr_bid_layout(&m->bid->groups[t->bid_group], key->mig_placed);

		if (layout < 0)
			return;
		row[ROW_KIND] = FR_BID_MIG;
		row[ROW_MODE] = FR_BID_MODES;
		row[ROW_R] = layout;
		row[ROW_MIG_LOST] = fr_mig_value_at(t->value, key->mig_placed);
	} else if (key->mode == ST_MODE_TIME_SLICING || key->mode == ST_MODE_SM_SHARING) {
		if (key->clients_left <= 0)
			r = 0;
		if (key->mode == ST_MODE_SM_SHARING && m->uses_compute)
			r = arith_min(r, (int64_t)key->compute_left_nano * FR_BID_R / ST_NANO);
		row[ROW_KIND] = FR_BID_PART;
		row[ROW_MODE] = key->mode == ST_MODE_SM_SHARING;
		row[ROW_R] = (int32_t)r;
	}
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
static bool in_use(const int32_t *row)
{
	return row[ROW_KIND] == FR_BID_PART || row[ROW_KIND] == FR_BID_MIG;
}

static const int32_t *row_value(const struct fr_measure *m, const int32_t *row)
{
	static const int32_t none[FR_BID_STRIDE];

	return in_use(row) ? fr_bid_part_value(&m->bid->score[row[ROW_GROUP]], row[ROW_MODE],
					       row[ROW_R])
			   : none;
}

static const int32_t *row_at(const struct fr_measure *m, uint32_t row)
{
	return m->rows + (size_t)row * 3 * m->stride;
}

static int64_t value(const struct fr_measure *m, const struct fr_node *nd, const int32_t *sums,
		     uint32_t idle, int64_t cpu)
{
	const int32_t *devices = m->bid->score[nd->bid_group].m[idle];
	int64_t best = INT64_MAX;

	cpu = arith_max(cpu, 0);
	for (int j = 0; j < FR_BID_J; j++)
		best = arith_min(best, fr_bid_cpu_value(&m->bid->score_prices, j, cpu) + sums[j] +
					       devices[j]);
	return best;
}

void fr_bid_node_value(const struct fr_measure *m, struct fr_node *nd)
{
	int32_t *sums = nd->sums;

	memset(sums, 0, FR_BID_STRIDE * sizeof(*sums));
	nd->idle_gpus = 0;
	nd->bid_group = (uint32_t)m->types[nd->types[0]].bid_group;
	for (unsigned i = nd->gpu_count; i > 0; i--)
		if (!m->types[nd->types[i - 1]].mig || m->types[nd->types[i - 1]].switchable)
			nd->bid_group = (uint32_t)m->types[nd->types[i - 1]].bid_group;
	for (unsigned i = 0; i < nd->gpu_count; i++) {
		const int32_t *row = row_at(m, nd->rows[i]), *k = row_value(m, row);

		nd->idle_gpus += row[ROW_KIND] == FR_BID_IDLE;
		for (int j = 0; j < FR_BID_STRIDE; j++)
			sums[j] += k[j];
	}
	nd->n = -value(m, nd, sums, nd->idle_gpus, nd->cpu_left);
}

/* What a change costs beside the value lost, and how many GPUs stop being idle. */
static int64_t extras(const struct fr_measure *m, const struct fr_change *ch, unsigned n,
		      int32_t *ret_opened)
{
	int64_t sum = 0;

	*ret_opened = 0;
	for (unsigned i = 0; i < n; i++) {
		const int32_t *before = row_at(m, ch[i].before), *after = row_at(m, ch[i].after);
		bool opened = before[ROW_KIND] == FR_BID_IDLE && after[ROW_KIND] != FR_BID_IDLE;
		int64_t cost = 0;

		if (n == 1 && ch[i].times == 1)
			cost = (int64_t)m->types[after[ROW_TYPE]].scarcity *
			       (before[ROW_MILLI] - after[ROW_MILLI]) / 1000;
		*ret_opened += opened * ch[i].times;
		if (in_use(after) && opened)
			cost += (int64_t)E_OPEN * ONE;
		if (after[ROW_KIND] == FR_BID_MIG)
			cost += (int64_t)E_MIG * ONE * (after[ROW_MIG_LOST] - before[ROW_MIG_LOST]);
		else if (in_use(after))
			cost += (int64_t)E_LEFT * ONE * after[ROW_MILLI] / 1000;
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

int64_t fr_bid_after(const struct fr_measure *m, const struct fr_node *nd, int64_t cpu,
		     const struct fr_change *ch, unsigned n, int64_t *ret_extras)
{
	int32_t sums[FR_BID_STRIDE], opened;
	int64_t extra = extras(m, ch, n, &opened);
	uint32_t idle = nd->idle_gpus - (uint32_t)opened;

	memcpy(sums, nd->sums, sizeof(sums));
	for (unsigned i = 0; i < n; i++) {
		const int32_t *before = row_value(m, row_at(m, ch[i].before));
		const int32_t *after = row_value(m, row_at(m, ch[i].after));

		for (int j = 0; j < FR_BID_STRIDE; j++)
			sums[j] += ch[i].times * (after[j] - before[j]);
	}
	if (ret_extras && n == 0)
		extra += cpu_extra(m, nd, nd->cpu_left - cpu);
	if (ret_extras)
		*ret_extras = extra + device_groups(nd->idle_gpus) - device_groups(idle);
	return -value(m, nd, sums, idle, cpu);
}

int32_t fr_bid_score(int64_t loss)
{
	int64_t s = arith_floor_div(-loss, (int64_t)QUANTUM * ONE);

	return (int32_t)arith_min(arith_max(s, -(1 << 28)), 1 << 28);
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
		const int32_t *row = row_at(m, nd->rows[i]);

		if (!in_use(row) || row[ROW_R] == 0)
			continue;
		sale->part[sale->part_count].group = (uint16_t)row[ROW_GROUP];
		sale->part[sale->part_count].mode = (uint8_t)row[ROW_MODE];
		sale->part[sale->part_count++].r = (uint16_t)row[ROW_R];
	}
}

void fr_measure_price_steps(struct fr_measure *m, unsigned steps)
{
	if (m->kind != FR_BID || m->bid->arrivals == 0)
		return;
	for (unsigned i = 0; i < steps; i++) {
		fr_bid_step_begin(m->bid);
		for (uint32_t id = 0; id < m->node_cap; id++)
			if (m->sales[id].group != FR_BID_NOT_FOR_SALE)
				fr_bid_step_node(m->bid, &m->sales[id]);
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
			t->used_milli += 1000 - row_at(m, nd->rows[i])[ROW_MILLI];
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

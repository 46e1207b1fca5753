#include "fragmentation/measure.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/wide.h"
#include "fragmentation/measure_internal.h"

#define ONE_MILLI (1 << FR_PRICE_BITS)
#define EXACT_MAX (1 << 19) /* below what choosers take off for bad neighbours */

static int classes_compile(struct fr_measure *m)
{
	const struct fr_workload *w = m->w;
	uint32_t n = 0;

	m->index = calloc(w->count + 1, sizeof(*m->index));
	m->valued = calloc(w->count + 1, sizeof(*m->valued));
	m->weight = calloc(w->count + 1, sizeof(*m->weight));
	m->count = calloc(w->count + 1, sizeof(*m->count));
	m->cpu = calloc(w->count + 1, sizeof(*m->cpu));
	m->cpu_bound = calloc(w->count + 1, sizeof(*m->cpu_bound));
	if (!m->index || !m->valued || !m->weight || !m->count || !m->cpu || !m->cpu_bound)
		return ERR_NOMEM;
	for (int multi = 0; multi < 2; multi++) {
		for (uint32_t i = 0; i < w->count; i++) {
			if (w->classes[i].count == 0 || (w->classes[i].count > 1) != multi)
				continue;
			m->index[n] = i;
			m->valued[n] = m->kind != FR_FGD && w->classes[i].kind == ST_KIND_MIG;
			m->has_mig |= w->classes[i].kind == ST_KIND_MIG;
			m->weight[n] = (int32_t)w->weights[i];
			m->count[n] = w->classes[i].count;
			m->cpu_bound[n] =
				(uint32_t)arith_min(w->classes[i].cpu_milli, FR_CPU_EXACT);
			m->cpu[n++] = w->classes[i].cpu_milli;
		}
		if (!multi)
			m->single_count = n;
	}
	for (uint32_t i = 0; i < w->count; i++)
		if (w->classes[i].count == 0)
			m->cpu_only += w->weights[i];
		else if (w->classes[i].compute_nano > 0)
			m->uses_compute = true;
	m->class_count = n;
	m->stride = (n + 7) & ~7u;
	if (m->stride == 0 || m->kind == FR_BID)
		m->stride = 8;
	return 0;
}

/* Mean of the cluster's GPUs; where there is none, 1000. */
static int64_t typical_mib(const struct st_cluster *c)
{
	int64_t sum = 0, count = 0;

	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);

		for (unsigned i = 0; i < n->gpu_count; i++)
			sum += n->gpus[i].alloc_mib;
		count += n->gpu_count;
	}
	return sum > 0 ? arith_max(sum / count, 1) : 1000;
}

/* unit_mib: of a typical device, for FR_BID. */
static struct fr_measure *measure_make(const struct st_cluster *c, enum fr_kind kind,
				       struct fr_workload *take_w, int64_t unit_mib)
{
	struct fr_measure *m = calloc(1, sizeof(*m));

	if (!m) {
		fr_workload_free(take_w);
		return NULL;
	}
	m->cluster = c;
	m->kind = kind;
	m->w = take_w;
	m->scale = kind == FR_CA ? 4 * take_w->total : kind == FR_BID ? ONE_MILLI : take_w->total;
	fr_thresholds_fill(take_w->total, m->thresholds);
	if (kind == FR_BID)
		m->bid = fr_bid_new(take_w, unit_mib);
	if ((kind == FR_BID && !m->bid) || classes_compile(m) < 0 || fr_rows_init(m) < 0) {
		fr_measure_free(m);
		return NULL;
	}
	return m;
}

struct fr_measure *fr_measure_new(const struct st_cluster *c, enum fr_kind kind,
				  struct fr_workload *take_w)
{
	return measure_make(c, kind, take_w, kind == FR_BID ? typical_mib(c) : 0);
}

struct fr_measure *fr_measure_twin(const struct fr_measure *m)
{
	struct fr_workload *w = fr_workload_copy(m->w);
	struct fr_measure *twin =
		w ? measure_make(m->cluster, m->kind, w, m->bid ? m->bid->unit_mib : 0) : NULL;

	if (twin)
		fr_measure_price_copy(twin, m);
	return twin;
}

void fr_measure_free(struct fr_measure *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->type_count; i++)
		fr_type_fini(&m->types[i]);
	for (uint32_t i = 0; i < m->node_cap; i++)
		free(m->nodes[i].sums);
	free(m->types);
	free(m->nodes);
	free(m->sales);
	free(m->rows);
	free(m->row_keys);
	free(m->row_slots);
	free(m->index);
	free(m->valued);
	free(m->weight);
	free(m->count);
	free(m->cpu);
	free(m->cpu_bound);
	fr_bid_free(m->bid);
	fr_workload_free(m->w);
	free(m);
}

const struct fr_workload *fr_measure_workload(const struct fr_measure *m)
{
	return m->w;
}

int64_t fr_measure_scale(const struct fr_measure *m)
{
	return m->scale;
}

/* ---- evaluation ---- */

/* What the sums over a node's GPUs, or over a change of some, look like. */
struct sums {
	const int32_t *fill, *unfit, *fit;
};

/* Tasks that the CPU left allows, in milli: floor(cpu * need / class cpu). */
static inline int32_t cpu_cap(const struct fr_type_class *tc, int64_t class_cpu, int32_t count,
			      int64_t cpu)
{
	uint64_t cap;

	if (class_cpu == 0 || tc->d_milli == 0)
		return class_cpu > cpu ? 0 : FR_UNCAPPED;
	if (tc->cpu_inv != 0 && cpu < FR_CPU_EXACT)
		cap = (uint64_t)(((unsigned __int128)tc->cpu_inv * (uint64_t)cpu) >> 46);
	else
		cap = (uint64_t)arith_mul_div_floor(cpu, (int64_t)tc->d_milli * count, class_cpu);
	return cap < FR_UNCAPPED ? (int32_t)cap : FR_UNCAPPED;
}

/* sum w F: what no task of the class could take of the idle R. */
static int64_t eval_fgd(const struct fr_measure *m, struct sums s, int32_t r, int64_t cpu)
{
	int64_t n = m->cpu_only * r;

	for (uint32_t i = 0; i < m->class_count; i++) {
		bool fits = s.fit[i] >= m->count[i] && cpu >= m->cpu[i];

		n += (int64_t)m->weight[i] * (fits ? s.unfit[i] : r);
	}
	return n;
}

/* Classes of one device: the same as below, without a branch. */
WIDE static int64_t eval_ca_plain(const struct fr_measure *m, const struct fr_caps *caps,
				  struct sums s, int32_t r, uint32_t cpu)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < m->single_count; i++) {
		/* Shifted by 46 in all; the halves' products are below 2^55. */
		uint64_t cap =
			(((uint64_t)caps->high[i] * cpu) + ((uint64_t)caps->low[i] * cpu >> 32)) >>
			14;
		int32_t most = (int32_t)(cap < FR_UNCAPPED ? cap : FR_UNCAPPED) | caps->floor[i];
		int32_t fill = s.fill[i] < most ? s.fill[i] : most;
		bool fits = ((s.fit[i] >= 1) | (caps->valued[i] != 0)) & (cpu >= m->cpu_bound[i]);
		int32_t lost = fits ? s.unfit[i] & ~caps->valued[i] : r;

		n += (int64_t)m->weight[i] * (r - fill + 3 * lost);
	}
	return n;
}

static int64_t eval_ca_singles(const struct fr_measure *m, const struct fr_type *t, struct sums s,
			       int32_t r, int64_t cpu)
{
	int64_t n = 0;

	if (t->caps.plain && cpu < FR_CPU_EXACT)
		return eval_ca_plain(m, &t->caps, s, r, (uint32_t)cpu);
	for (uint32_t i = 0; i < m->single_count; i++) {
		const struct fr_type_class *tc = &t->classes[i];
		/* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): stride >= class_count */
		int32_t fill = s.fill[i], cap;
		int32_t lost = s.fit[i] >= 1 && cpu >= m->cpu[i] ? s.unfit[i] : r;

		if (m->valued[i]) {
			lost = cpu >= m->cpu[i] ? 0 : r;
		} else {
			cap = cpu_cap(tc, m->cpu[i], 1, cpu);
			fill = fill < cap ? fill : cap;
		}
		n += (int64_t)m->weight[i] * (r - fill + 3 * lost);
	}
	return n;
}

static int64_t eval_ca(const struct fr_measure *m, const struct fr_type *t, struct sums s,
		       int32_t r, int64_t cpu)
{
	const struct fr_workload *w = m->w;
	int64_t n = eval_ca_singles(m, t, s, r, cpu), balance;

	for (uint32_t i = m->single_count; i < m->class_count; i++) {
		const struct fr_type_class *tc = &t->classes[i];
		int32_t count = m->count[i];
		int32_t fill = s.fit[i] / count * count * tc->d_milli;
		int32_t cap = cpu_cap(tc, m->cpu[i], count, cpu);
		int32_t lost = s.fit[i] >= count && cpu >= m->cpu[i] ? s.unfit[i] : r;

		fill = fill < cap ? fill : cap;
		if (m->valued[i]) {
			/* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): as above */
			fill = s.fill[i];
			lost = cpu >= m->cpu[i] ? 0 : r;
		}
		n += (int64_t)m->weight[i] * (r - fill + 3 * lost);
	}
	balance = 8 * (int64_t)r - arith_mul_div_floor(12 * t->gpu_sum, cpu, w->cpu_sum);
	return n + w->total * arith_max(balance, 0);
}

static int64_t eval(const struct fr_measure *m, const struct fr_node *nd, struct sums s, int32_t r,
		    int64_t cpu)
{
	if (nd->gpu_count == 0 || (r == 0 && !(m->has_mig && m->kind == FR_CA)))
		return 0; /* nothing left to strand */
	cpu = arith_max(cpu, 0);
	return m->kind == FR_FGD ? eval_fgd(m, s, r, cpu)
				 : eval_ca(m, &m->types[nd->types[0]], s, r, cpu);
}

/* ---- nodes ---- */

static int nodes_grow(struct fr_measure *m, uint32_t node)
{
	uint32_t cap = m->node_cap ? m->node_cap : 64;
	struct fr_node *p;

	while (cap <= node)
		cap *= 2;
	p = realloc(m->nodes, cap * sizeof(*p));
	if (!p)
		return ERR_NOMEM;
	memset(p + m->node_cap, 0, (cap - m->node_cap) * sizeof(*p));
	m->nodes = p;
	if (m->bid) {
		struct fr_bid_node *sales = realloc(m->sales, cap * sizeof(*sales));

		if (!sales)
			return ERR_NOMEM;
		for (uint32_t i = m->node_cap; i < cap; i++)
			sales[i].group = FR_BID_NOT_FOR_SALE;
		m->sales = sales;
	}
	m->node_cap = cap;
	return 0;
}

static int32_t gpu_milli(const struct fr_measure *m, const struct fr_gpu *g)
{
	return g->usable ? fr_milli(&m->types[g->type], g->mode, g->free_mib, g->mig_placed) : 0;
}

static struct fr_gpu gpu_state(const struct fr_measure *m, const struct st_gpu *g, uint16_t type)
{
	return (struct fr_gpu){
		.free_mib = g->free_mib,
		.compute_left_nano = g->compute_left_nano,
		.clients_left = st_cluster_config(m->cluster)->clients_max - g->clients,
		.type = type,
		.mode = g->mode,
		.usable = g->taken == ST_TAKEN_NO,
		.mig_placed = g->mig_placed,
	};
}

static int node_load(struct fr_measure *m, struct fr_node *nd, const struct st_node *n)
{
	size_t size = 3 * m->stride; /* >= FR_BID_STRIDE */

	if (!nd->sums && n->gpu_count > 0)
		nd->sums = malloc(size * sizeof(*nd->sums));
	if (!nd->sums && n->gpu_count > 0)
		return ERR_NOMEM;
	nd->gpu_count = n->gpu_count;
	nd->closed = n->unready || n->fences > 0;
	nd->idle_milli = 0;
	if (n->gpu_count > 0)
		memset(nd->sums, 0, size * sizeof(*nd->sums));
	for (unsigned i = 0; i < n->gpu_count; i++) {
		int type = fr_types_find(m, n->product, &n->gpus[i]);
		struct fr_gpu g;
		const int32_t *row;

		if (type < 0)
			return ERR_NOMEM;
		g = gpu_state(m, &n->gpus[i], (uint16_t)type);
		nd->types[i] = (uint16_t)type;
		nd->rows[i] = fr_row_find(m, &g);
		if (nd->rows[i] == 0 && g.usable)
			return ERR_NOMEM;
		nd->idle_milli += gpu_milli(m, &g);
		if (m->bid)
			continue;
		row = fr_row_at(m, nd->rows[i]).fill;
		for (size_t k = 0; k < size; k++)
			nd->sums[k] += row[k];
	}
	return 0;
}

static int node_sync(struct fr_measure *m, uint32_t node)
{
	const struct st_node *n = st_cluster_node(m->cluster, node);
	struct fr_node *nd = &m->nodes[node];
	int rc;

	if (nd->epoch == m->row_epoch && nd->version == n->version)
		return 0;
	m->total -= nd->n;
	m->idle_total -= nd->idle_milli;
	nd->n = 0;
	rc = n->present ? node_load(m, nd, n) : 0;
	if (rc < 0 || !n->present) {
		nd->gpu_count = 0;
		nd->idle_milli = 0;
	}
	if (nd->gpu_count > 0 && m->bid) {
		nd->cpu_left = n->cpu_left_milli;
		fr_bid_node_value(m, nd);
	} else if (nd->gpu_count > 0) {
		struct sums s = {nd->sums, nd->sums + m->stride, nd->sums + 2 * m->stride};

		nd->n = eval(m, nd, s, nd->idle_milli, n->cpu_left_milli);
	}
	m->total += nd->n;
	m->idle_total += nd->idle_milli;
	nd->epoch = rc < 0 ? 0 : m->row_epoch;
	nd->version = n->version;
	if (m->bid)
		fr_bid_sale_set(m, node);
	return rc;
}

/* Forgets the rows of states that no GPU is in any more. */
static int rows_renew(struct fr_measure *m)
{
	int rc = 0;

	fr_rows_clear(m);
	for (uint32_t i = 0; i < m->node_cap; i++)
		if (m->nodes[i].epoch != 0 && node_sync(m, i) < 0)
			rc = ERR_NOMEM;
	if (m->row_count > m->row_limit / 2)
		m->row_limit *= 2; /* so many are in use: clearing again would not help */
	return rc;
}

int fr_measure_tidy(struct fr_measure *m)
{
	return m->row_count >= m->row_limit ? rows_renew(m) : 0;
}

int fr_measure_sync(struct fr_measure *m, uint32_t node)
{
	if (node >= m->node_cap && nodes_grow(m, node) < 0)
		return ERR_NOMEM;
	if (fr_measure_tidy(m) < 0)
		return ERR_NOMEM;
	return node_sync(m, node);
}

bool fr_measure_failed(struct fr_measure *m)
{
	bool failed = m->short_of_memory;

	m->short_of_memory = false;
	return failed;
}

int64_t fr_measure_node(const struct fr_measure *m, uint32_t node)
{
	return m->nodes[node].n;
}

int64_t fr_measure_total(const struct fr_measure *m)
{
	return m->total;
}

int64_t fr_measure_idle_total(const struct fr_measure *m)
{
	return m->idle_total;
}

/* ---- changes ---- */

struct fr_gpu fr_gpu_load(const struct fr_measure *m, uint32_t node, unsigned gpu_idx)
{
	const struct fr_node *nd = &m->nodes[node];
	struct fr_gpu g =
		gpu_state(m, &st_cluster_node(m->cluster, node)->gpus[gpu_idx], nd->types[gpu_idx]);

	g.row = nd->rows[gpu_idx];
	return g;
}

struct fr_gpu fr_gpu_after_share(struct fr_measure *m, const struct fr_gpu *g, enum st_mode mode,
				 int32_t request_mib, int32_t compute_nano)
{
	struct fr_gpu a = *g;

	a.mode = (uint8_t)mode;
	a.free_mib -= request_mib;
	if (mode == ST_MODE_SM_SHARING) /* no shares of compute are kept in time-slicing */
		a.compute_left_nano -= compute_nano;
	a.clients_left--;
	a.row = fr_row_find(m, &a);
	return a;
}

struct fr_gpu fr_gpu_after_whole(struct fr_measure *m, const struct fr_gpu *g)
{
	struct fr_gpu a = *g;

	a.mode = ST_MODE_EXCLUSIVE;
	a.free_mib = 0;
	a.row = fr_row_find(m, &a);
	return a;
}

struct fr_gpu fr_gpu_after_mig(struct fr_measure *m, const struct fr_gpu *g, int profile, int start)
{
	const struct fr_type *t = &m->types[g->type];
	struct fr_gpu a = *g;

	a.mode = ST_MODE_MIG;
	a.mig_placed |= st_mig_bit(t->mig, profile, start);
	a.free_mib = (int32_t)arith_mul_div_floor(
		t->alloc_mib, st_mig_units_free_in(t->mig, t->mig_open, a.mig_placed),
		t->mig->units_total);
	a.row = fr_row_find(m, &a);
	return a;
}

uint64_t fr_gpu_row(struct fr_measure *m, const struct fr_gpu *g, const struct st_gpu *after,
		    int32_t more_clients)
{
	struct fr_gpu a = *g;

	a.free_mib = after->free_mib;
	a.compute_left_nano = after->compute_left_nano;
	a.clients_left -= more_clients;
	a.mode = after->mode;
	a.mig_placed = after->mig_placed;
	return fr_row_find(m, &a);
}

/* Idle milli of a GPU in the state that a row stands for. */
static int32_t row_milli(const struct fr_measure *m, uint64_t row)
{
	const struct fr_row_key *k = &m->row_keys[row];

	return row != 0 ? fr_milli(&m->types[k->type], k->mode, k->free_mib, k->mig_placed) : 0;
}

WIDE int64_t fr_measure_after(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			      const struct fr_change *changes, unsigned change_count)
{
	const struct fr_node *nd = &m->nodes[node];
	const size_t size = 3 * m->stride;
	int32_t tmp[3 * ((FR_CLASSES_MAX + 7) & ~7)] __attribute__((aligned(32)));
	struct sums s = {tmp, tmp + m->stride, tmp + 2 * m->stride};
	int32_t r = nd->idle_milli;

	if (nd->gpu_count == 0)
		return 0;
	if (m->bid)
		return fr_bid_after(m, nd, cpu_left_milli, changes, change_count, NULL);
	if (change_count == 0) {
		s = (struct sums){nd->sums, nd->sums + m->stride, nd->sums + 2 * m->stride};
		return eval(m, nd, s, r, cpu_left_milli);
	}
	for (unsigned c = 0; c < change_count; c++) {
		const int32_t *base = c == 0 ? nd->sums : tmp;
		const int32_t *before = fr_row_at(m, changes[c].before).fill;
		const int32_t *after = fr_row_at(m, changes[c].after).fill;
		int32_t times = changes[c].times;

		r += times * (row_milli(m, changes[c].after) - row_milli(m, changes[c].before));
		if (times == 1)
			for (size_t k = 0; k < size; k++)
				tmp[k] = base[k] + after[k] - before[k];
		else
			for (size_t k = 0; k < size; k++)
				tmp[k] = base[k] + times * (after[k] - before[k]);
	}
	return eval(m, nd, s, r, cpu_left_milli);
}

int64_t fr_measure_loss(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			const struct fr_change *changes, unsigned change_count)
{
	const struct fr_node *nd = &m->nodes[node];
	int64_t extras = 0, after;

	if (nd->gpu_count == 0)
		return 0;
	after = m->bid ? fr_bid_after(m, nd, cpu_left_milli, changes, change_count, &extras)
		       : fr_measure_after(m, node, cpu_left_milli, changes, change_count);
	return after - nd->n + extras;
}

int32_t fr_measure_score(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			 const struct fr_change *changes, unsigned change_count)
{
	int64_t loss = fr_measure_loss(m, node, cpu_left_milli, changes, change_count), s;

	if (m->bid)
		return fr_bid_score(loss);
	if (m->kind == FR_FGD)
		return fr_score_fgd(m->thresholds, loss);
	s = arith_floor_div(-loss, 480 * m->w->total);
	return (int32_t)arith_min(arith_max(s, INT32_MIN + 1), INT32_MAX);
}

int32_t fr_measure_score_share(struct fr_measure *m, uint32_t node, unsigned gpu_idx,
			       enum st_mode mode, int32_t request_mib, int32_t compute_nano,
			       int64_t cpu_left_milli)
{
	struct fr_gpu before = fr_gpu_load(m, node, gpu_idx);
	struct fr_gpu after = fr_gpu_after_share(m, &before, mode, request_mib, compute_nano);
	struct fr_change ch = {before.row, after.row, 1};

	return fr_measure_score(m, node, cpu_left_milli, &ch, 1);
}

int32_t fr_measure_score_exact(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			       const struct fr_change *changes, unsigned change_count)
{
	int64_t loss = fr_measure_loss(m, node, cpu_left_milli, changes, change_count);
	int64_t unit = m->bid ? ONE_MILLI : m->w->total;

	return (int32_t)arith_min(arith_max(arith_floor_div(-loss, unit), -EXACT_MAX), EXACT_MAX);
}

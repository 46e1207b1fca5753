/* GPU types and rows: what a GPU in a given state is worth to each class, worked out once a state. */
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "fragmentation/measure_internal.h"

#define ROWS_START 256u

static int64_t milli_of(const struct fr_type *t, int64_t mib)
{
	return t->alloc_mib > 0 ? arith_mul_div_floor(mib, 1000, t->alloc_mib) : 0;
}

int32_t fr_milli(const struct fr_type *t, enum st_mode mode, int32_t free_mib, uint64_t mig_placed)
{
	if (mode == ST_MODE_MIG)
		return st_mig_units_free_in(t->mig, t->mig_open, mig_placed) * 1000 /
		       t->mig->units_total;
	return free_mib > 0 ? (int32_t)milli_of(t, free_mib) : 0;
}

static int32_t class_size_mib(const struct fr_class *c, int32_t alloc_mib)
{
	int64_t mib = c->size_mib > 0 ? c->size_mib
				      : arith_mul_div_floor(alloc_mib, c->size_nano, ST_NANO);

	return (int32_t)arith_max(mib, 1);
}

static int16_t class_profile(const struct fr_class *c, const struct st_mig_geometry *g)
{
	return (int16_t)(c->profile[0] != '\0' ? st_mig_profile_find(g, c->profile)
					       : st_mig_smallest(g, c->size_mib, c->size_nano));
}

static void type_class_fill(const struct fr_class *c, const struct fr_type *t, const char *product,
			    struct fr_type_class *ret)
{
	int64_t need;

	ret->profile = -1;
	ret->accepted = st_product_accepts(c->product, product);
	switch (c->kind) {
	case ST_KIND_SHARE:
		ret->d_mib = class_size_mib(c, t->alloc_mib);
		ret->d_milli = (int32_t)arith_min(milli_of(t, ret->d_mib), INT32_MAX);
		ret->accepted = ret->accepted && (!t->mig || t->switchable);
		break;
	case ST_KIND_WHOLE:
		ret->d_milli = 1000;
		ret->accepted = ret->accepted && (!t->mig || t->switchable);
		break;
	case ST_KIND_MIG:
		ret->profile = t->mig ? class_profile(c, t->mig) : -1;
		if (ret->profile < 0)
			ret->accepted = false;
		else
			ret->d_milli =
				t->mig->profiles[ret->profile].units * 1000 / t->mig->units_total;
		break;
	}
	need = (int64_t)ret->d_milli * c->count;
	if (c->cpu_milli > 0 && c->cpu_milli < FR_CPU_EXACT && need > 0)
		ret->cpu_inv = ((UINT64_C(1) << 46) * (uint64_t)need + (uint64_t)c->cpu_milli - 1) /
			       (uint64_t)c->cpu_milli;
}

/* The table of what layouts are worth, for the classes that this type of GPU can serve. */
static int value_make(const struct fr_measure *m, struct fr_type *t)
{
	int64_t weight[ST_MIG_PROFILES_MAX] = {0};

	for (uint32_t i = 0; i < m->class_count; i++)
		if (m->valued[i] && t->classes[i].accepted)
			weight[t->classes[i].profile] += (int64_t)m->weight[i] * m->count[i];
	t->value = fr_mig_value_new(t->mig, t->mig_open, weight);
	return t->value ? 0 : ERR_NOMEM;
}

/* CPU is a limit where a class asks for it and takes something of the device (else what it fills is 0), but for one
 * that is rated by the value of layouts. */
static int caps_make(const struct fr_measure *m, struct fr_type *t)
{
	struct fr_caps *c = &t->caps;

	c->low = calloc(m->single_count + 1, sizeof(*c->low));
	c->high = calloc(m->single_count + 1, sizeof(*c->high));
	c->floor = calloc(m->single_count + 1, sizeof(*c->floor));
	c->valued = calloc(m->single_count + 1, sizeof(*c->valued));
	if (!c->low || !c->high || !c->floor || !c->valued)
		return ERR_NOMEM;
	c->plain = true;
	for (uint32_t i = 0; i < m->single_count; i++) {
		const struct fr_type_class *tc = &t->classes[i];
		bool limited = m->cpu[i] > 0 && tc->d_milli > 0 && !m->valued[i];

		c->plain &= tc->cpu_inv != 0 || !limited;
		c->valued[i] = m->valued[i] ? -1 : 0;
		c->floor[i] = limited ? 0 : FR_UNCAPPED;
		c->low[i] = (uint32_t)tc->cpu_inv;
		c->high[i] = (uint32_t)(tc->cpu_inv >> 32);
	}
	return 0;
}

void fr_type_fini(struct fr_type *t)
{
	free(t->classes);
	free(t->caps.low);
	free(t->caps.high);
	free(t->caps.floor);
	free(t->caps.valued);
	fr_mig_value_free(t->value);
}

static int type_add(struct fr_measure *m, uint32_t product, const struct st_gpu *g)
{
	struct strpool *products = st_cluster_products(m->cluster);
	struct fr_type *t;
	int32_t d_min = INT32_MAX;

	if (m->type_count == m->type_cap) {
		uint32_t cap = m->type_cap ? m->type_cap * 2 : 16;

		t = realloc(m->types, cap * sizeof(*t));
		if (!t)
			return -1;
		m->types = t;
		m->type_cap = cap;
	}
	t = &m->types[m->type_count];
	*t = (struct fr_type){
		.product = product,
		.alloc_mib = g->alloc_mib,
		.mig = g->mig ? g->mig : g->mig_could,
		.mig_open = g->mig_open,
		.switchable = g->mig_could != NULL,
	};
	t->classes = calloc(m->class_count + 1, sizeof(*t->classes));
	if (!t->classes)
		return -1;
	for (uint32_t i = 0; i < m->class_count; i++) {
		const struct fr_class *c = &m->w->classes[m->index[i]];
		struct fr_type_class *tc = &t->classes[i];

		type_class_fill(
			c, t, product == STRPOOL_NONE ? NULL : strpool_str(products, product), tc);
		if (c->kind == ST_KIND_SHARE && tc->d_mib < d_min)
			d_min = tc->d_mib;
	}
	t->clients_cap = (int32_t)arith_min((int64_t)t->alloc_mib / d_min + 1, INT32_MAX);
	if ((m->kind != FR_FGD && m->has_mig && t->mig && value_make(m, t) < 0) ||
	    (m->kind == FR_CA && caps_make(m, t) < 0) || (m->bid && fr_bid_type_init(m, t) < 0)) {
		fr_type_fini(t);
		return -1;
	}
	t->gpu_sum = arith_min(milli_of(t, m->w->gpu_mib_sum), INT64_MAX / 32 - m->w->gpu_sum) +
		     m->w->gpu_sum;
	return (int)m->type_count++;
}

int fr_types_find(struct fr_measure *m, uint32_t product, const struct st_gpu *g)
{
	for (uint32_t i = 0; i < m->type_count; i++) {
		const struct fr_type *t = &m->types[i];

		if (t->product == product && t->alloc_mib == g->alloc_mib &&
		    t->mig == (g->mig ? g->mig : g->mig_could) && t->mig_open == g->mig_open &&
		    t->switchable == (g->mig_could != NULL))
			return (int)i;
	}
	return m->type_count < UINT16_MAX ? type_add(m, product, g) : -1;
}

static bool class_takes_mode(const struct fr_class *c, uint8_t mode)
{
	if (mode == ST_MODE_FREE || mode == c->mode)
		return true;
	return c->mode_preferred && (mode == ST_MODE_TIME_SLICING || mode == ST_MODE_SM_SHARING);
}

/* Is the GPU one whose layout of instances counts: in MIG mode, or idle and to be switched? */
static bool layout_counts(const struct fr_type *t, const struct fr_row_key *g)
{
	return g->mode == ST_MODE_MIG || (g->mode == ST_MODE_FREE && t->switchable);
}

/* Tasks of the class that this one GPU could hold, and the milli they fill. */
static int32_t class_tasks(const struct fr_class *c, const struct fr_type *t,
			   const struct fr_type_class *tc, const struct fr_row_key *g)
{
	int32_t tasks;
	uint8_t mode;

	switch (c->kind) {
	case ST_KIND_WHOLE:
		return g->mode == ST_MODE_FREE;
	case ST_KIND_MIG:
		if (!layout_counts(t, g))
			return 0;
		return st_mig_max_more_in(t->mig, t->mig_open, g->mig_placed, tc->profile);
	case ST_KIND_SHARE:
		break;
	}
	if (g->mode == ST_MODE_MIG || !class_takes_mode(c, g->mode))
		return 0;
	tasks = g->free_mib / tc->d_mib;
	if (tasks > g->clients_left)
		tasks = g->clients_left;
	mode = g->mode == ST_MODE_FREE ? c->mode : g->mode;
	if (mode == ST_MODE_SM_SHARING && c->compute_nano > 0 &&
	    tasks > g->compute_left_nano / c->compute_nano)
		tasks = g->compute_left_nano / c->compute_nano;
	return tasks > 0 ? tasks : 0;
}

static void row_fill(const struct fr_measure *m, const struct fr_row_key *key, int32_t *row)
{
	const struct fr_type *t = &m->types[key->type];
	int32_t *fill = row, *unfit = row + m->stride, *fit = row + 2 * m->stride;
	int32_t r = fr_milli(t, key->mode, key->free_mib, key->mig_placed);

	for (uint32_t i = 0; i < m->class_count; i++) {
		const struct fr_type_class *tc = &t->classes[i];
		const struct fr_class *c = &m->w->classes[m->index[i]];
		int32_t tasks = tc->accepted ? class_tasks(c, t, tc, key) : 0;

		fill[i] = tasks * tc->d_milli;
		fit[i] = c->kind == ST_KIND_MIG ? tasks : tasks > 0;
		/* A MIG layout can strand part of a GPU that still fits one instance. */
		unfit[i] = tasks == 0               ? r
			   : c->kind == ST_KIND_MIG ? (int32_t)arith_max(r - fill[i], 0)
						    : 0;
		if (t->value && m->valued[i] && tc->accepted && layout_counts(t, key))
			fill[i] = r - fr_mig_value_at(t->value, key->mig_placed);
	}
}

static void row_key_make(const struct fr_measure *m, const struct fr_gpu *g, struct fr_row_key *ret)
{
	const struct fr_type *t = &m->types[g->type];

	*ret = (struct fr_row_key){
		.mig_placed = g->mig_placed,
		.free_mib = g->free_mib,
		.compute_left_nano = g->compute_left_nano,
		.clients_left = g->clients_left < t->clients_cap ? g->clients_left : t->clients_cap,
		.type = g->type,
		.mode = g->mode,
		.usable = 1,
	};
}

struct fr_row fr_row_at(const struct fr_measure *m, uint64_t row)
{
	const int32_t *p = m->rows + (size_t)row * 3 * m->stride;

	return (struct fr_row){.fill = p, .unfit = p + m->stride, .fit = p + 2 * m->stride};
}

/* Whole words instead of bytes: this is on the path of every score. */
static uint32_t key_hash(const struct fr_row_key *key)
{
	uint64_t w[3], h = UINT64_C(0x9e3779b97f4a7c15);

	_Static_assert(sizeof(*key) == sizeof(w), "a row key has no padding");
	memcpy(w, key, sizeof(w));
	for (int i = 0; i < 3; i++) {
		h = (h ^ w[i]) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	return (uint32_t)h;
}

static void slots_insert(uint32_t *slots, uint32_t mask, const struct fr_row_key *key, uint32_t row)
{
	uint32_t i = key_hash(key) & mask;

	while (slots[i])
		i = (i + 1) & mask;
	slots[i] = row;
}

static bool rows_grow(struct fr_measure *m)
{
	uint32_t cap = m->row_cap ? m->row_cap * 2 : ROWS_START, mask = cap * 2 - 1;
	int32_t *rows = realloc(m->rows, (size_t)cap * 3 * m->stride * sizeof(*rows));
	struct fr_row_key *keys;
	uint32_t *slots;

	if (!rows)
		return false;
	m->rows = rows;
	keys = realloc(m->row_keys, cap * sizeof(*keys));
	if (!keys)
		return false;
	m->row_keys = keys;
	slots = calloc(mask + 1, sizeof(*slots));
	if (!slots)
		return false;
	for (uint32_t i = 1; i < m->row_count; i++)
		slots_insert(slots, mask, &keys[i], i);
	free(m->row_slots);
	m->row_slots = slots;
	m->slot_mask = mask;
	m->row_cap = cap;
	return true;
}

int fr_rows_init(struct fr_measure *m)
{
	m->row_count = 0;
	if (!rows_grow(m))
		return ERR_NOMEM;
	memset(m->rows, 0, 3 * m->stride * sizeof(*m->rows));
	memset(&m->row_keys[0], 0, sizeof(m->row_keys[0]));
	m->row_count = 1;
	m->row_epoch = 1;
	m->row_limit = (uint32_t)(FR_ROWS_BYTES / (3 * m->stride * sizeof(*m->rows)));
	if (m->row_limit > FR_ROWS_LIMIT)
		m->row_limit = FR_ROWS_LIMIT;
	return 0;
}

void fr_rows_clear(struct fr_measure *m)
{
	memset(m->row_slots, 0, (m->slot_mask + 1) * sizeof(*m->row_slots));
	m->row_count = 1;
	m->row_epoch++;
}

uint64_t fr_row_find(struct fr_measure *m, const struct fr_gpu *g)
{
	struct fr_row_key key;
	int32_t *row;
	uint32_t i;

	if (!g->usable)
		return 0;
	if (m->bid)
		return fr_bid_row(m, g);
	row_key_make(m, g, &key);
	for (i = key_hash(&key) & m->slot_mask; m->row_slots[i]; i = (i + 1) & m->slot_mask)
		if (memcmp(&m->row_keys[m->row_slots[i]], &key, sizeof(key)) == 0)
			return m->row_slots[i];
	if (m->row_count == m->row_cap && !rows_grow(m)) {
		m->short_of_memory = true;
		return 0;
	}
	m->row_keys[m->row_count] = key;
	row = m->rows + (size_t)m->row_count * 3 * m->stride;
	memset(row, 0,
	       3 * m->stride * sizeof(*row)); /* what is behind the last class is summed up, too */
	row_fill(m, &key, row);
	slots_insert(m->row_slots, m->slot_mask, &key, m->row_count);
	return m->row_count++;
}

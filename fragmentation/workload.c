#include "fragmentation/workload.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/hash.h"

#define CPU_MILLI_MAX (INT64_C(1) << 32)
#define TYPICAL_GPU_MIB 81920 /* only to compare items of one pod */

struct entry {
	struct fr_class cls;
	int64_t count;
	UT_hash_handle hh;
};

struct fr_counts {
	struct entry *table;
	int64_t total;
};

/* Compute slices of a GPU instance profile, from its name. */
static int64_t profile_slices(const char *profile)
{
	return profile[0] >= '1' && profile[0] <= '7' ? profile[0] - '0' : 1;
}

int64_t fr_class_milli(const struct fr_class *c)
{
	if (c->count == 0)
		return 0;
	switch (c->kind) {
	case ST_KIND_WHOLE:
		return 1000;
	case ST_KIND_MIG:
		if (c->profile[0] != '\0')
			return profile_slices(c->profile) * 1000 / 7;
		break;
	case ST_KIND_SHARE:
		break;
	}
	return c->size_mib > 0 ? c->size_mib : c->size_nano / 1000000;
}

/* How much of a GPU an item takes, in 10^-9, as far as it can be told without the node. */
static int64_t item_size(const struct st_item *it)
{
	int64_t nano = it->request_nano;

	if (it->kind == ST_KIND_WHOLE)
		nano = ST_NANO;
	else if (it->kind == ST_KIND_MIG && it->profile[0] != '\0')
		nano = profile_slices(it->profile) * ST_NANO / 7;
	else if (it->request_mib > 0)
		nano = it->request_mib * (int64_t)ST_NANO / TYPICAL_GPU_MIB;
	return nano * it->count;
}

void fr_class_of(const struct st_request *req, struct fr_class *ret)
{
	const struct st_item *it = NULL;

	memset(ret, 0, sizeof(*ret));
	ret->cpu_milli = arith_min(arith_max(req->cpu_milli, 0), CPU_MILLI_MAX);
	for (unsigned i = 0; i < req->item_count; i++)
		if (!it || item_size(&req->items[i]) > item_size(it))
			it = &req->items[i];
	if (!it)
		return;
	ret->kind = (uint8_t)it->kind;
	ret->count = it->count;
	if (it->kind == ST_KIND_SHARE) {
		ret->mode = (uint8_t)it->mode;
		ret->mode_preferred = it->mode_preferred;
		ret->compute_nano = it->compute_nano;
	}
	if (it->kind == ST_KIND_SHARE || (it->kind == ST_KIND_MIG && it->profile[0] == '\0')) {
		ret->size_mib = it->request_mib;
		ret->size_nano = it->request_mib > 0 ? 0 : it->request_nano;
	}
	if (it->kind == ST_KIND_MIG)
		memcpy(ret->profile, it->profile, strnlen(it->profile, sizeof(ret->profile) - 1));
	memcpy(ret->product, req->product, strnlen(req->product, sizeof(ret->product) - 1));
}

struct fr_counts *fr_counts_new(void)
{
	return calloc(1, sizeof(struct fr_counts));
}

void fr_counts_free(struct fr_counts *c)
{
	struct entry *e;

	if (!c)
		return;
	e = c->table;
	HASH_CLEAR(hh, c->table); /* drops the table only: the elements stay linked */
	for (struct entry *next; e; e = next) {
		next = e->hh.next;
		free(e);
	}
	free(c);
}

int fr_counts_add(struct fr_counts *c, const struct fr_class *cls, int64_t n, struct err *err)
{
	struct entry *e;

	HASH_FIND(hh, c->table, cls, sizeof(*cls), e);
	if (!e) {
		e = calloc(1, sizeof(*e));
		if (!e)
			return err_set(err, ERR_NOMEM, "workload: out of memory");
		e->cls = *cls;
		HASH_ADD(hh, c->table, cls, sizeof(e->cls), e);
		if (!HASH_ADDED(e, hh)) {
			free(e);
			return err_set(err, ERR_NOMEM, "workload: out of memory");
		}
	}
	e->count += n;
	c->total += n;
	return 0;
}

void fr_counts_halve(struct fr_counts *c)
{
	struct entry *e, *tmp;

	c->total = 0;
	HASH_ITER(hh, c->table, e, tmp) {
		e->count /= 2;
		c->total += e->count;
		if (e->count > 0)
			continue;
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it takes e for one deleted before */
		HASH_DEL(c->table, e);
		free(e);
	}
}

int64_t fr_counts_total(const struct fr_counts *c)
{
	return c->total;
}

size_t fr_counts_classes(const struct fr_counts *c)
{
	return HASH_COUNT(c->table);
}

/* Count, cpu, size, devices, product: all descending; then the rest, so that the order is total. */
static int entry_cmp(const void *pa, const void *pb)
{
	const struct entry *a = *(const struct entry *const *)pa;
	const struct entry *b = *(const struct entry *const *)pb;
	int64_t ma = fr_class_milli(&a->cls), mb = fr_class_milli(&b->cls);
	int d;

	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	if (a->cls.cpu_milli != b->cls.cpu_milli)
		return a->cls.cpu_milli > b->cls.cpu_milli ? -1 : 1;
	if (ma != mb)
		return ma > mb ? -1 : 1;
	if (a->cls.count != b->cls.count)
		return a->cls.count > b->cls.count ? -1 : 1;
	d = strcmp(b->cls.product, a->cls.product);
	return d ? d : memcmp(&b->cls, &a->cls, sizeof(a->cls));
}

static struct fr_workload *workload_alloc(size_t count)
{
	struct fr_workload *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->classes = calloc(count, sizeof(*w->classes));
	w->weights = calloc(count, sizeof(*w->weights));
	if (!w->classes || !w->weights) {
		fr_workload_free(w);
		return NULL;
	}
	return w;
}

/* What a cluster is likely to see before anything was seen: shares, single GPUs, a few big pods. */
static struct fr_workload *workload_builtin(void)
{
	static const struct fr_class mix[] = {
		{.cpu_milli = 8000, .kind = ST_KIND_WHOLE, .count = 1},
		{.cpu_milli = 4000,
		 .mode = ST_MODE_TIME_SLICING,
		 .count = 1,
		 .size_nano = 500000000},
		{.cpu_milli = 2000,
		 .mode = ST_MODE_TIME_SLICING,
		 .count = 1,
		 .size_nano = 250000000},
		{.cpu_milli = 64000, .kind = ST_KIND_WHOLE, .count = 8},
	};
	static const int64_t weights[] = {8, 4, 3, 1};
	struct fr_workload *w = workload_alloc(4);

	if (!w)
		return NULL;
	for (size_t i = 0; i < 4; i++) {
		w->classes[i] = mix[i];
		w->weights[i] = weights[i];
		w->total += weights[i];
		w->gpu_sum += weights[i] * fr_class_milli(&mix[i]) * mix[i].count;
		w->cpu_sum += weights[i] * mix[i].cpu_milli;
	}
	w->count = 4;
	return w;
}

static int class_group(const struct fr_class *c)
{
	if (c->count == 0 || c->kind == ST_KIND_WHOLE)
		return 0;
	return c->kind == ST_KIND_MIG ? 4 : c->mode == ST_MODE_SM_SHARING ? 2 : 1;
}

/* Takes the popular prefix of sorted entries. */
static void workload_fill(struct fr_workload *w, struct entry *const *sorted, size_t n,
			  int64_t total, int popularity_percent)
{
	int64_t sum = 0;
	int groups = 0;

	for (size_t i = 0; i < n; i++) {
		const struct fr_class *c = &sorted[i]->cls;
		int64_t size = sorted[i]->count * fr_class_milli(c) * c->count;
		bool rare = i > 0 && sum * 100 >= total * popularity_percent;

		if (c->size_mib > 0)
			w->gpu_mib_sum += size;
		else
			w->gpu_sum += size;
		if (c->count > 0)
			w->cpu_sum += sorted[i]->count * c->cpu_milli;
		if ((rare && c->kind != ST_KIND_MIG) || w->count == FR_CLASSES_MAX)
			continue;
		sum += sorted[i]->count;
		groups |= class_group(c);
		w->classes[w->count] = *c;
		w->weights[w->count++] = sorted[i]->count;
	}
	w->cpu_sum = arith_max(w->cpu_sum, 1);
	w->mixed = (groups & (groups - 1)) != 0;
	for (size_t i = 0; i < w->count; i++) {
		if (sum > FR_WEIGHT_TOTAL_MAX)
			w->weights[i] = arith_max(1, arith_mul_div_floor(w->weights[i],
									 FR_WEIGHT_TOTAL_MAX, sum));
		w->total += w->weights[i];
	}
}

/* Where there are more than are kept, the rarest of those without GPU go: they must not push out what asks
 * for GPUs. Returns how many are left. */
static size_t make_room(struct entry **sorted, size_t n)
{
	size_t over = n > FR_CLASSES_MAX ? n - FR_CLASSES_MAX : 0, at = n;

	if (over == 0)
		return n;
	for (size_t i = n; i > 0; i--) {
		if (over > 0 && sorted[i - 1]->cls.count == 0)
			over--;
		else
			sorted[--at] = sorted[i - 1];
	}
	memmove(sorted, sorted + at, (n - at) * sizeof(struct entry *));
	return n - at;
}

struct fr_workload *fr_workload_build(const struct fr_counts *c, int popularity_percent,
				      bool gpu_only)
{
	struct fr_workload *w = NULL;
	struct entry **sorted, *e, *tmp;
	int64_t total = 0;
	size_t n = 0;

	sorted = calloc(HASH_COUNT(c->table) + 1, sizeof(struct entry *));
	if (!sorted)
		return NULL;
	HASH_ITER(hh, c->table, e, tmp) {
		if (e->count <= 0 || (gpu_only && e->cls.count == 0))
			continue;
		sorted[n++] = e;
		total += e->count;
	}
	if (n == 0) {
		free(sorted);
		return workload_builtin();
	}
	qsort(sorted, n, sizeof(struct entry *), entry_cmp);
	n = make_room(sorted, n);
	w = workload_alloc(n < FR_CLASSES_MAX ? n : FR_CLASSES_MAX);
	if (w)
		workload_fill(w, sorted, n, total, popularity_percent);
	free(sorted);
	return w;
}

struct fr_workload *fr_workload_copy(const struct fr_workload *w)
{
	struct fr_workload *copy = workload_alloc(w->count + 1), to;

	if (!copy)
		return NULL;
	to = *w;
	to.classes = copy->classes;
	to.weights = copy->weights;
	memcpy(to.classes, w->classes, w->count * sizeof(*w->classes));
	memcpy(to.weights, w->weights, w->count * sizeof(*w->weights));
	*copy = to;
	return copy;
}

void fr_workload_free(struct fr_workload *w)
{
	if (!w)
		return;
	free(w->classes);
	free(w->weights);
	free(w);
}

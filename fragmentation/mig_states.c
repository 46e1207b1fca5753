#include "fragmentation/mig_states.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct walker {
	const struct st_mig_geometry *g;
	uint64_t open;
	uint64_t *placed;
	uint32_t count, cap;
	bool too_many;
};

/* All states reached by adding instances of ever higher bits: each once. */
static int walk(struct walker *w, uint64_t placed, int from_bit)
{
	if (w->count == w->cap) {
		uint32_t cap = w->cap ? w->cap * 2 : 256;
		uint64_t *p;

		w->too_many = w->count == FR_MIG_STATES_MAX;
		if (w->too_many)
			return 0;
		p = realloc(w->placed, cap * sizeof(*p));
		if (!p)
			return ERR_NOMEM;
		w->placed = p;
		w->cap = cap;
	}
	w->placed[w->count++] = placed;
	for (int p = 0; p < w->g->profile_count; p++) {
		const struct st_mig_profile *q = &w->g->profiles[p];

		for (int i = 0; i < q->start_count && !w->too_many; i++)
			if (q->bit + i >= from_bit &&
			    st_mig_can_place_in(w->g, w->open, placed, p, q->starts[i]) &&
			    walk(w, placed | UINT64_C(1) << (q->bit + i), q->bit + i + 1) < 0)
				return ERR_NOMEM;
	}
	return 0;
}

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint32_t fr_mig_state_find(const uint64_t *placed, uint32_t count, uint64_t want)
{
	uint32_t lo = 0;

	if (count == 0)
		return FR_MIG_NOWHERE;
	while (count > 1) {
		uint32_t half = count / 2;

		lo += placed[lo + half] <= want ? half : 0;
		count -= half;
	}
	return placed[lo] == want ? lo : FR_MIG_NOWHERE;
}

int fr_mig_states_make(const struct st_mig_geometry *g, uint64_t open, struct fr_mig_states *ret)
{
	struct walker w = {.g = g, .open = open};

	memset(ret, 0, sizeof(*ret));
	for (int p = 0; p < g->profile_count; p++)
		ret->bits += g->profiles[p].start_count;
	if (walk(&w, 0, 0) < 0 || w.too_many) {
		free(w.placed);
		return w.too_many ? 0 : ERR_NOMEM;
	}
	ret->next = malloc((size_t)w.count * 64 * sizeof(*ret->next));
	if (!ret->next) {
		free(w.placed);
		return ERR_NOMEM;
	}
	qsort(w.placed, w.count, sizeof(*w.placed), cmp_u64);
	ret->placed = w.placed;
	ret->count = w.count;
	for (uint32_t s = 0; s < w.count; s++)
		for (int b = 0; b < ret->bits; b++)
			ret->next[(size_t)s * 64 + (unsigned)b] = (uint16_t)fr_mig_state_find(
				w.placed, w.count, w.placed[s] ^ UINT64_C(1) << b);
	return 0;
}

void fr_mig_states_fini(struct fr_mig_states *s)
{
	free(s->placed);
	free(s->next);
	memset(s, 0, sizeof(*s));
}

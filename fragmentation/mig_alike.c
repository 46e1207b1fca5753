#include "fragmentation/mig_alike.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct maker {
	const struct st_mig_geometry *g;
	const struct fr_mig_states *states;
	uint64_t asked; /* bits of the profiles that are asked for */
	/* Of what ends, and of one more of each profile. */
	uint64_t factor[ST_MIG_PROFILES_MAX + 1];
	uint64_t *colour, *next, *sorted; /* of states; all colours there are */
	uint32_t colours;
	uint16_t *class_of; /* [colour's place in `sorted`] */
	uint16_t *first;    /* [class]: its first state */
};

/* Bits of a profile's instances. */
static uint64_t bits_of(const struct st_mig_profile *q)
{
	return ((UINT64_C(1) << q->start_count) - 1) << q->bit;
}

static uint64_t stir(uint64_t v)
{
	return hash_bytes(&v, sizeof(v), 0);
}

/* What one more instance of a profile leads to, each colour once. */
static uint64_t sum_more(const struct maker *m, uint32_t s, const struct st_mig_profile *q)
{
	const uint16_t *next = &m->states->next[(size_t)s * 64];
	uint64_t seen[ST_MIG_STARTS_MAX], sum = 0;
	int count = 0;

	for (uint64_t left = bits_of(q) & ~m->states->placed[s]; left != 0; left &= left - 1) {
		uint16_t t = next[__builtin_ctzll(left)];
		int i = 0;

		if (t == FR_MIG_NOWHERE)
			continue;
		while (i < count && seen[i] != m->colour[t])
			i++;
		if (i < count)
			continue;
		seen[count++] = m->colour[t];
		sum += m->colour[t];
	}
	return sum;
}

/* Each layout's colour anew, of its own and of those it leads to. Colours are well mixed, and each kind of
 * neighbour has an odd factor of its own: layouts that differ get the same once in 2^64 pairs. */
static void recolour(struct maker *m)
{
	for (uint32_t s = 0; s < m->states->count; s++) {
		const uint16_t *next = &m->states->next[(size_t)s * 64];
		uint64_t ends = 0, sum = m->colour[s];

		for (uint64_t left = m->states->placed[s]; left != 0; left &= left - 1)
			ends += m->colour[next[__builtin_ctzll(left)]];
		sum += ends * m->factor[0];
		for (int p = 0; p < m->g->profile_count; p++)
			if ((bits_of(&m->g->profiles[p]) & m->asked) != 0)
				sum += sum_more(m, s, &m->g->profiles[p]) * m->factor[p + 1];
		m->next[s] = stir(sum);
	}
	memcpy(m->colour, m->next, m->states->count * sizeof(*m->colour));
}

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* All colours there are, ascending, into `sorted`; how many. */
static uint32_t colours(struct maker *m)
{
	uint32_t n = 0;

	memcpy(m->sorted, m->colour, m->states->count * sizeof(*m->sorted));
	qsort(m->sorted, m->states->count, sizeof(*m->sorted), cmp_u64);
	for (uint32_t i = 0; i < m->states->count; i++)
		if (i == 0 || m->sorted[i] != m->sorted[n - 1])
			m->sorted[n++] = m->sorted[i];
	return n;
}

static bool is_live(const struct maker *m, uint32_t s)
{
	return (m->states->placed[s] & ~m->asked) == 0;
}

/* Tells apart what cost and being asked for do, then what leads to layouts told apart. How many are. */
static uint32_t tell_apart(struct maker *m, const int64_t *cost)
{
	uint32_t count, before;

	for (int k = 0; k <= m->g->profile_count; k++)
		m->factor[k] = stir((uint64_t)k) | 1;
	for (uint32_t s = 0; s < m->states->count; s++)
		m->colour[s] = stir((uint64_t)cost[s] * 2 + is_live(m, s));
	count = colours(m);
	do {
		before = count;
		recolour(m);
		count = colours(m);
	} while (count > before);
	return count;
}

/* ---- the classes ---- */

static void number(struct maker *m, bool live, struct fr_mig_alike *a)
{
	for (uint32_t s = 0; s < m->states->count; s++) {
		uint32_t rank = fr_mig_state_find(m->sorted, m->colours, m->colour[s]);

		if (is_live(m, s) != live)
			continue;
		if (m->class_of[rank] == FR_MIG_NOWHERE) {
			m->first[a->count] = (uint16_t)s;
			m->class_of[rank] = (uint16_t)a->count++;
		}
		a->of[s] = m->class_of[rank];
	}
}

static void lead(const struct maker *m, struct fr_mig_alike *a)
{
	uint32_t n = 0, at = 0;

	for (uint32_t c = 0; c < a->count; c++) {
		const uint16_t *next = &m->states->next[(size_t)m->first[c] * 64];
		uint64_t placed = m->states->placed[m->first[c]];

		a->begin[at++] = n;
		for (uint64_t left = placed; left != 0; left &= left - 1)
			a->to[n++] = a->of[next[__builtin_ctzll(left)]];
		for (int p = 0; p < m->g->profile_count; p++) {
			uint64_t left = bits_of(&m->g->profiles[p]) & m->asked & ~placed;

			a->begin[at++] = n;
			for (; left != 0; left &= left - 1) {
				uint16_t t = next[__builtin_ctzll(left)];
				uint32_t i = a->begin[at - 1];

				if (t == FR_MIG_NOWHERE)
					continue;
				while (i < n && a->to[i] != a->of[t])
					i++;
				a->to[i] = a->of[t];
				n += i == n;
			}
		}
	}
	a->begin[at] = n;
}

static int classes(struct maker *m, struct fr_mig_alike *a)
{
	size_t kinds = (size_t)m->g->profile_count + 1;

	memset(m->class_of, 0xff, m->colours * sizeof(*m->class_of));
	number(m, true, a);
	a->live = a->count;
	number(m, false, a);
	a->begin = malloc((a->count * kinds + 1) * sizeof(*a->begin));
	a->to = malloc(((size_t)a->count * (unsigned)m->states->bits + 1) * sizeof(*a->to));
	if (a->begin == NULL || a->to == NULL)
		return ERR_NOMEM;
	lead(m, a);
	return 0;
}

int fr_mig_alike_make(const struct st_mig_geometry *g, const struct fr_mig_states *states,
		      const int64_t *rate, const int64_t *cost, struct fr_mig_alike *ret)
{
	size_t n = states->count;
	struct maker m = {.g = g, .states = states};
	struct fr_mig_alike a = {.of = malloc(n * sizeof(*a.of))};
	uint64_t *words = malloc(n * 3 * sizeof(*words));
	uint16_t *halves = malloc(n * 2 * sizeof(*halves));
	int rc = ERR_NOMEM;

	for (int p = 0; p < g->profile_count; p++)
		m.asked |= rate[p] > 0 ? bits_of(&g->profiles[p]) : 0;
	if (a.of != NULL && words != NULL && halves != NULL) {
		m.colour = words;
		m.next = words + n;
		m.sorted = words + 2 * n;
		m.first = halves;
		m.class_of = halves + n;
		m.colours = tell_apart(&m, cost);
		rc = classes(&m, &a);
	}
	free(words);
	free(halves);
	if (rc == 0)
		*ret = a;
	else
		fr_mig_alike_fini(&a);
	return rc;
}

void fr_mig_alike_fini(struct fr_mig_alike *a)
{
	free(a->of);
	free(a->begin);
	free(a->to);
	memset(a, 0, sizeof(*a));
}

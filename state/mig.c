#include "state/mig.h"

#include <regex.h>
#include <string.h>

#include "state/mig_internal.h"

#define ATTRS_ONE_A_GPU (ST_MIG_ME | ST_MIG_ME_ALL)
#define ATTRS_ALL (ST_MIG_ME | ST_MIG_ME_ALL | ST_MIG_NO_ME | ST_MIG_GFX)

/* ---- masks ---- */

static uint32_t units_mask(int start, int units)
{
	return (uint32_t)(((UINT64_C(1) << units) - 1) << start);
}

/* The bits of one profile in a placed mask. */
static uint64_t profile_mask(const struct st_mig_profile *p)
{
	if (p->start_count == 0)
		return 0;
	return ((UINT64_C(1) << p->start_count) - 1) << p->bit;
}

/* What the placed instances use. */
struct usage {
	uint32_t units; /* one bit a memory unit */
	int compute;    /* slices */
	int media;      /* instances with +me or +me.all */
	bool overlap;   /* two instances on one unit */
};

static void usage_add(struct usage *u, const struct st_mig_profile *p, uint64_t placed)
{
	uint64_t mine = placed & profile_mask(p);

	for (; mine != 0; mine &= mine - 1) {
		int i = __builtin_ctzll(mine) - p->bit;
		uint32_t m = units_mask(p->starts[i], p->units);

		if ((u->units & m) != 0)
			u->overlap = true;
		u->units |= m;
		u->compute += p->compute_slices;
		u->media += (p->attrs & ATTRS_ONE_A_GPU) != 0;
	}
}

static struct usage usage_of(const struct st_mig_geometry *g, uint64_t placed)
{
	struct usage u = {0};

	for (int i = 0; i < g->profile_count && placed != 0; i++)
		usage_add(&u, &g->profiles[i], placed);
	return u;
}

static const struct st_mig_profile *profile_at(const struct st_mig_geometry *g, int profile)
{
	return profile >= 0 && profile < g->profile_count ? &g->profiles[profile] : NULL;
}

uint64_t st_mig_bit(const struct st_mig_geometry *g, int profile, int start)
{
	const struct st_mig_profile *p = profile_at(g, profile);

	if (p == NULL)
		return 0;
	for (int i = 0; i < p->start_count; i++)
		if (p->starts[i] == start)
			return UINT64_C(1) << (p->bit + i);
	return 0;
}

bool st_mig_can_place(const struct st_mig_geometry *g, uint64_t placed, int profile, int start)
{
	const struct st_mig_profile *p = profile_at(g, profile);
	struct usage u;

	if (p == NULL || st_mig_bit(g, profile, start) == 0)
		return false;
	if (__builtin_popcountll(placed & profile_mask(p)) >= p->max_instances)
		return false;
	u = usage_of(g, placed);
	return (u.units & units_mask(start, p->units)) == 0 &&
	       u.compute + p->compute_slices <= g->compute_total &&
	       (u.media == 0 || (p->attrs & ATTRS_ONE_A_GPU) == 0);
}

int st_mig_units_free(const struct st_mig_geometry *g, uint64_t placed)
{
	return g->units_total - __builtin_popcount(usage_of(g, placed).units);
}

/* All starts of a profile span the same number of units, so taking the lowest free start again and
 * again leaves the most room for the rest. */
int st_mig_max_more(const struct st_mig_geometry *g, uint64_t placed, int profile)
{
	const struct st_mig_profile *p = profile_at(g, profile);
	struct usage u;
	int room, n = 0;

	if (p == NULL)
		return 0;
	u = usage_of(g, placed);
	room = p->max_instances - __builtin_popcountll(placed & profile_mask(p));
	if (p->compute_slices > 0 && room > (g->compute_total - u.compute) / p->compute_slices)
		room = (g->compute_total - u.compute) / p->compute_slices;
	if ((p->attrs & ATTRS_ONE_A_GPU) != 0 && room > 1 - u.media)
		room = 1 - u.media;
	for (int i = 0; i < p->start_count && n < room; i++) {
		uint32_t m = units_mask(p->starts[i], p->units);

		if ((u.units & m) != 0)
			continue;
		u.units |= m;
		n++;
	}
	return n;
}

bool st_mig_can_place_in(const struct st_mig_geometry *g, uint64_t open, uint64_t placed,
			 int profile, int start)
{
	return (st_mig_bit(g, profile, start) & open) != 0 &&
	       st_mig_can_place(g, placed, profile, start);
}

int st_mig_units_free_in(const struct st_mig_geometry *g, uint64_t open, uint64_t placed)
{
	return open == ST_MIG_ANYWHERE ? st_mig_units_free(g, placed)
				       : __builtin_popcount(usage_of(g, open & ~placed).units);
}

int st_mig_max_more_in(const struct st_mig_geometry *g, uint64_t open, uint64_t placed, int profile)
{
	const struct st_mig_profile *p = profile_at(g, profile);

	if (open == ST_MIG_ANYWHERE || p == NULL)
		return st_mig_max_more(g, placed, profile);
	return __builtin_popcountll(open & ~placed & profile_mask(p));
}

bool st_mig_at(const struct st_mig_geometry *g, uint64_t placed, int i, int *ret_profile,
	       int *ret_start)
{
	for (int k = 0; k < g->profile_count && i >= 0; k++) {
		const struct st_mig_profile *p = &g->profiles[k];
		uint64_t mine = placed & profile_mask(p);

		for (; mine != 0; mine &= mine - 1)
			if (i-- == 0) {
				*ret_profile = k;
				*ret_start = p->starts[__builtin_ctzll(mine) - p->bit];
				return true;
			}
	}
	return false;
}

bool st_mig_legal(const struct st_mig_geometry *g, uint64_t placed)
{
	struct usage u = usage_of(g, placed);
	uint64_t known = 0;

	for (int i = 0; i < g->profile_count; i++) {
		uint64_t m = profile_mask(&g->profiles[i]);

		known |= m;
		if (__builtin_popcountll(placed & m) > g->profiles[i].max_instances)
			return false;
	}
	return (placed & ~known) == 0 && !u.overlap && u.compute <= g->compute_total &&
	       u.media <= 1;
}

/* ---- geometries ---- */

static int profile_check(const struct st_mig_geometry *g, const struct st_mig_profile *p,
			 struct err *err)
{
	if (p->name[0] == '\0' || memchr(p->name, '\0', sizeof(p->name)) == NULL)
		return err_set(err, ERR_INVALID, "MIG profile without a name");
	if (p->compute_slices > g->compute_total || p->units > g->units_total || p->units == 0)
		return err_set(err, ERR_INVALID,
			       "MIG profile %s: %u compute slices, %u units of %u and %u", p->name,
			       p->compute_slices, p->units, g->compute_total, g->units_total);
	if (p->max_instances == 0 || p->mem_mib < 0 || (p->attrs & ~ATTRS_ALL) != 0)
		return err_set(err, ERR_INVALID,
			       "MIG profile %s: at most %u instances, %d MiB, attributes %#x",
			       p->name, p->max_instances, p->mem_mib, p->attrs);
	if (p->start_count > ST_MIG_STARTS_MAX)
		return err_set(err, ERR_INVALID, "MIG profile %s: %u starts", p->name,
			       p->start_count);
	for (int i = 0; i < p->start_count; i++) {
		if (p->starts[i] + p->units > g->units_total)
			return err_set(err, ERR_INVALID,
				       "MIG profile %s: start %u and size %u leave the %u units",
				       p->name, p->starts[i], p->units, g->units_total);
		if (i > 0 && p->starts[i] <= p->starts[i - 1])
			return err_set(err, ERR_INVALID, "MIG profile %s: starts not ascending",
				       p->name);
	}
	return 0;
}

int st_mig_geometry_finish(struct st_mig_geometry *g, struct err *err)
{
	int bits = 0, r;

	if (memchr(g->model, '\0', sizeof(g->model)) == NULL)
		return err_set(err, ERR_INVALID, "MIG model name too long");
	if (g->profile_count > ST_MIG_PROFILES_MAX || g->units_total == 0 ||
	    g->units_total > ST_MIG_UNITS_MAX || g->compute_total == 0)
		return err_set(err, ERR_INVALID,
			       "MIG geometry of %u profiles, %u units, %u compute slices",
			       g->profile_count, g->units_total, g->compute_total);
	for (int i = 0; i < g->profile_count; i++) {
		const struct st_mig_profile *p = &g->profiles[i];

		r = profile_check(g, p, err);
		if (r < 0)
			return r;
		for (int k = 0; k < i; k++)
			if (strcmp(g->profiles[k].name, p->name) == 0)
				return err_set(err, ERR_INVALID, "MIG profile %s named twice",
					       p->name);
		bits += p->start_count;
	}
	if (bits > 64)
		return err_set(err, ERR_INVALID, "MIG geometry with %d starts, at most 64", bits);
	bits = 0;
	for (int i = 0; i < g->profile_count; i++) {
		g->profiles[i].bit = (uint8_t)bits;
		bits += g->profiles[i].start_count;
	}
	return 0;
}

static bool profile_equal(const struct st_mig_profile *a, const struct st_mig_profile *b)
{
	return strcmp(a->name, b->name) == 0 && a->id == b->id && a->mem_mib == b->mem_mib &&
	       a->compute_slices == b->compute_slices && a->units == b->units &&
	       a->max_instances == b->max_instances && a->attrs == b->attrs &&
	       a->start_count == b->start_count &&
	       memcmp(a->starts, b->starts, a->start_count) == 0;
}

bool st_mig_geometry_equal(const struct st_mig_geometry *a, const struct st_mig_geometry *b)
{
	if (a == b)
		return true;
	if (strcmp(a->model, b->model) != 0 || a->compute_total != b->compute_total ||
	    a->units_total != b->units_total || a->profile_count != b->profile_count)
		return false;
	for (int i = 0; i < a->profile_count; i++)
		if (!profile_equal(&a->profiles[i], &b->profiles[i]))
			return false;
	return true;
}

/* ---- names ---- */

struct label {
	int compute, gb;
	uint8_t attrs;
};

/* Up to four digits; -1 where there are none or more. */
static int digits(const char **s)
{
	int v = 0, n = 0;

	for (; **s >= '0' && **s <= '9'; (*s)++, n++)
		if (n < 4)
			v = v * 10 + (**s - '0');
	return n >= 1 && n <= 4 ? v : -1;
}

/* The text behind prefix, where s begins with it. */
static const char *behind(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

/* "1g.10gb+me"; resource names write ".me" for "+me". */
static bool label_parse(const char *s, struct label *ret)
{
	static const struct {
		const char *text;
		uint8_t attr;
	} suffixes[] = {
		{"+me.all", ST_MIG_ME_ALL}, {".me.all", ST_MIG_ME_ALL}, {"+me", ST_MIG_ME},
		{".me", ST_MIG_ME},         {"-me", ST_MIG_NO_ME},      {"+gfx", ST_MIG_GFX},
		{".gfx", ST_MIG_GFX},
	};
	struct label l = {0};

	l.compute = digits(&s);
	if (l.compute < 0 || (s = behind(s, "g.")) == NULL)
		return false;
	l.gb = digits(&s);
	if (l.gb < 0 || (s = behind(s, "gb")) == NULL)
		return false;
	while (*s != '\0') {
		const char *rest = NULL;

		for (size_t i = 0; rest == NULL && i < sizeof(suffixes) / sizeof(suffixes[0]);
		     i++) {
			rest = behind(s, suffixes[i].text);
			if (rest != NULL)
				l.attrs |= suffixes[i].attr;
		}
		if (rest == NULL)
			return false;
		s = rest;
	}
	*ret = l;
	return true;
}

/* Within a tenth of the larger one. */
static bool near(int64_t a, int64_t b)
{
	int64_t larger = a > b ? a : b, diff = a > b ? a - b : b - a;

	return diff * 10 <= larger;
}

int st_mig_profile_find(const struct st_mig_geometry *g, const char *name)
{
	struct label want, have;
	int found = -1;

	for (int i = 0; i < g->profile_count; i++)
		if (strcmp(g->profiles[i].name, name) == 0)
			return i;
	if (!label_parse(name, &want))
		return -1;
	for (int i = 0; i < g->profile_count; i++) {
		const struct st_mig_profile *p = &g->profiles[i];

		if (!label_parse(p->name, &have) || have.compute != want.compute ||
		    have.attrs != want.attrs || !near(have.gb, want.gb))
			continue;
		if (have.gb == want.gb)
			return i;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/* ---- by size ---- */

bool st_mig_serves(const struct st_mig_geometry *g, int profile, int32_t mem_mib, int32_t nano)
{
	const struct st_mig_profile *p = profile_at(g, profile);

	return p != NULL && p->attrs == 0 && p->start_count > 0 &&
	       (mem_mib == 0 || p->mem_mib >= mem_mib) &&
	       p->units * INT64_C(1000000000) >= (int64_t)nano * g->units_total;
}

bool st_mig_smaller(const struct st_mig_geometry *g, int a, int b)
{
	const struct st_mig_profile *p = &g->profiles[a], *q = &g->profiles[b];

	if (p->units != q->units)
		return p->units < q->units;
	if (p->compute_slices != q->compute_slices)
		return p->compute_slices < q->compute_slices;
	return p->mem_mib < q->mem_mib;
}

int st_mig_smallest(const struct st_mig_geometry *g, int32_t mem_mib, int32_t nano)
{
	int best = -1;

	for (int p = 0; p < g->profile_count; p++)
		if (st_mig_serves(g, p, mem_mib, nano) && (best < 0 || st_mig_smaller(g, p, best)))
			best = p;
	return best;
}

/* ---- the built-in table ---- */

int st_mig_table_lookup(const char *product, int32_t mem_mib, const struct st_mig_geometry **ret)
{
	*ret = NULL;
	if (product == NULL)
		return 0;
	for (size_t i = 0; i < st_mig_entry_count; i++) {
		const struct st_mig_entry *e = &st_mig_entries[i];
		regex_t re;
		int r;

		if (mem_mib != 0 && !near(mem_mib, e->mem_mib))
			continue;
		r = regcomp(&re, e->product_regex, REG_EXTENDED | REG_NOSUB);
		if (r != 0)
			return r == REG_ESPACE ? ERR_NOMEM : ERR_INTERNAL;
		r = regexec(&re, product, 0, NULL, 0);
		regfree(&re);
		if (r == REG_ESPACE)
			return ERR_NOMEM;
		if (r == 0) {
			*ret = &e->geometry;
			return 0;
		}
	}
	return 0;
}

const struct st_mig_geometry *st_mig_table_find(const char *product, int32_t mem_mib)
{
	const struct st_mig_geometry *g;

	return st_mig_table_lookup(product, mem_mib, &g) == 0 ? g : NULL;
}

const struct st_mig_geometry *st_mig_table_at(size_t i)
{
	return i < st_mig_entry_count ? &st_mig_entries[i].geometry : NULL;
}

/* MIG rules against enumerations of all placed states and against a naive layout. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/rng.h"
#include "state/mig.h"

static const struct st_mig_geometry *a100(void)
{
	return st_mig_table_find("NVIDIA A100-SXM4-40GB", 40960);
}

static const struct st_mig_geometry *a30(void)
{
	return st_mig_table_find("NVIDIA A30", 24576);
}

static const struct st_mig_geometry *rtx6000(void)
{
	return st_mig_table_find("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887);
}

/* ---- enumeration ---- */

#define STATES_MAX 4096

struct states {
	const struct st_mig_geometry *g;
	uint32_t profiles; /* those considered, one bit each */
	size_t count, maximal;
	uint64_t placed[STATES_MAX];
	bool is_maximal[STATES_MAX];
};

static uint64_t multiset(const struct states *s, uint64_t placed)
{
	uint64_t key = 0;
	int profile, start;

	for (int i = 0; st_mig_at(s->g, placed, i, &profile, &start); i++)
		key += UINT64_C(1) << (3 * profile);
	return key;
}

/* Each set once: instances are added in ascending order of (profile, start). */
static void walk(struct states *s, uint64_t placed, int from_profile, int from_start)
{
	bool maximal = true;

	for (int p = 0; p < s->g->profile_count; p++)
		for (int i = 0; (s->profiles & (1U << p)) != 0 && i < s->g->profiles[p].start_count;
		     i++) {
			int start = s->g->profiles[p].starts[i];

			if (!st_mig_can_place(s->g, placed, p, start))
				continue;
			maximal = false;
			if (p > from_profile || (p == from_profile && start > from_start))
				walk(s, placed | st_mig_bit(s->g, p, start), p, start);
		}
	cr_assert_lt(s->count, STATES_MAX);
	s->is_maximal[s->count] = maximal;
	s->maximal += maximal;
	s->placed[s->count++] = placed;
}

static size_t multisets(const struct states *s, bool maximal_only)
{
	static uint64_t seen[STATES_MAX];
	size_t n = 0;

	for (size_t i = 0; i < s->count; i++) {
		uint64_t key = multiset(s, s->placed[i]);
		size_t k = 0;

		if (maximal_only && !s->is_maximal[i])
			continue;
		while (k < n && seen[k] != key)
			k++;
		if (k == n)
			seen[n++] = key;
	}
	return n;
}

static uint32_t named(const struct st_mig_geometry *g, const char *const *names, size_t count)
{
	uint32_t set = 0;

	for (size_t i = 0; i < count; i++) {
		int p = st_mig_profile_find(g, names[i]);

		cr_assert_geq(p, 0, "%s", names[i]);
		set |= 1U << p;
	}
	return set;
}

static struct states all;

static void enumerate(const struct st_mig_geometry *g, uint32_t profiles)
{
	cr_assert_not_null(g);
	memset(&all, 0, sizeof(all));
	all.g = g;
	all.profiles = profiles;
	walk(&all, 0, -1, -1);
}

static void expect(size_t placed, size_t sets, size_t maximal, size_t maximal_sets)
{
	cr_expect_eq(all.count, placed, "%zu placed states, not %zu", all.count, placed);
	cr_expect_eq(multisets(&all, false), sets);
	cr_expect_eq(all.maximal, maximal);
	cr_expect_eq(multisets(&all, true), maximal_sets);
}

static const char *const five[] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};
static const char *const plus_double[] = {"1g.10gb"};
static const char *const plus_me[] = {"1g.5gb+me"};
static const char *const three[] = {"1g.6gb", "2g.12gb", "4g.24gb"};
static const char *const three_me[] = {"1g.6gb+me", "2g.12gb+me"};
static const char *const rtx[] = {"1g.24gb", "2g.48gb", "4g.96gb"};

Test(state_mig, counts_of_a_7_slice_gpu)
{
	uint32_t set = named(a100(), five, 5);

	enumerate(a100(), set);
	expect(298, 38, 19, 14);
	set |= named(a100(), plus_double, 1);
	enumerate(a100(), set);
	expect(723, 78, 78, 38);
	set |= named(a100(), plus_me, 1);
	enumerate(a100(), set);
	expect(2319, 128, 239, 64);
}

Test(state_mig, counts_of_4_slice_gpus)
{
	struct st_mig_geometry places_only = *a30();
	uint32_t set = named(a30(), three, 3);

	enumerate(a30(), set);
	expect(26, 10, 5, 4);
	set |= named(a30(), three_me, 2);
	/* The published count keeps the rules of places only. */
	for (int p = 0; p < places_only.profile_count; p++)
		places_only.profiles[p].attrs = 0;
	enumerate(&places_only, set);
	expect(84, 22, 21, 9);
	/* There is one set of media engines: 1g+me and 2g+me exclude each other. */
	enumerate(a30(), set);
	cr_expect_eq(all.count, 76);
	enumerate(rtx6000(), named(rtx6000(), rtx, 3));
	expect(26, 10, 5, 4);
}

/* Fragmentation of a state, weights 1: needs st_mig_max_more() and st_mig_units_free() exact. */
static int fragmentation(const struct st_mig_geometry *g, uint32_t profiles, uint64_t placed)
{
	int f = 0;

	for (int p = 0; p < g->profile_count; p++)
		if ((profiles & (1U << p)) != 0)
			f += st_mig_units_free(g, placed) -
			     st_mig_max_more(g, placed, p) * g->profiles[p].units;
	return f;
}

Test(state_mig, fragmentation_check_sums)
{
	uint32_t set = named(a100(), five, 5);
	uint32_t with_double = set | named(a100(), plus_double, 1);
	int sum = 0, largest = 0;

	enumerate(a100(), set);
	for (size_t i = 0; i < all.count; i++) {
		int f = fragmentation(a100(), set, all.placed[i]);

		sum += f;
		largest = f > largest ? f : largest;
	}
	cr_expect_eq(sum, 3982);
	cr_expect_eq(largest, 23);
	sum = 0;
	enumerate(a100(), with_double);
	for (size_t i = 0; i < all.count; i++)
		sum += fragmentation(a100(), set, all.placed[i]);
	cr_expect_eq(sum, 7668);
	cr_expect_eq(fragmentation(a100(), set, 0), 7);
	cr_expect_eq(fragmentation(a100(), set, st_mig_bit(a100(), 0, 6)), 15);
}

/* ---- against a naive layout ---- */

static bool naive_legal(const struct st_mig_geometry *g, uint64_t placed)
{
	int unit[ST_MIG_UNITS_MAX] = {0}, compute = 0, media = 0, bit = 0;

	for (int p = 0; p < g->profile_count; p++) {
		const struct st_mig_profile *q = &g->profiles[p];
		int instances = 0;

		for (int i = 0; i < q->start_count; i++, bit++) {
			if ((placed >> bit & 1) == 0)
				continue;
			instances++;
			compute += q->compute_slices;
			media += strstr(q->name, "+me") != NULL;
			for (int u = 0; u < q->units; u++)
				if (unit[q->starts[i] + u]++ > 0)
					return false;
		}
		if (instances > q->max_instances)
			return false;
	}
	return compute <= g->compute_total && media <= 1 && (bit == 64 || placed >> bit == 0);
}

/* The most instances of p that can be added, by trying everything. */
static int naive_more(const struct st_mig_geometry *g, uint64_t placed, int p)
{
	int best = 0;

	for (int i = 0; i < g->profiles[p].start_count; i++) {
		uint64_t bit = st_mig_bit(g, p, g->profiles[p].starts[i]);

		if ((placed & bit) == 0 && naive_legal(g, placed | bit)) {
			int n = 1 + naive_more(g, placed | bit, p);

			best = n > best ? n : best;
		}
	}
	return best;
}

static void compare_with_naive(const struct st_mig_geometry *g, uint64_t placed)
{
	cr_assert_eq(st_mig_legal(g, placed), naive_legal(g, placed), "%s %#llx", g->model,
		     (unsigned long long)placed);
	if (!naive_legal(g, placed))
		return;
	for (int p = 0; p < g->profile_count; p++) {
		cr_assert_eq(st_mig_max_more(g, placed, p), naive_more(g, placed, p),
			     "%s %#llx profile %d", g->model, (unsigned long long)placed, p);
		for (int start = 0; start < 40; start++) {
			uint64_t bit = st_mig_bit(g, p, start);

			cr_assert_eq(st_mig_can_place(g, placed, p, start),
				     bit != 0 && (placed & bit) == 0 &&
					     naive_legal(g, placed | bit),
				     "%s %#llx profile %d at %d", g->model,
				     (unsigned long long)placed, p, start);
		}
	}
}

Test(state_mig, rules_agree_with_a_naive_layout)
{
	struct rng r;

	rng_init(&r, 7);
	for (size_t i = 0; st_mig_table_at(i) != NULL; i++) {
		const struct st_mig_geometry *g = st_mig_table_at(i);
		int bits = 0;

		for (int p = 0; p < g->profile_count; p++)
			bits += g->profiles[p].start_count;
		cr_assert_lt(bits, 64);
		for (int k = 0; k < 300; k++) {
			uint64_t placed = 0;

			for (int n = 0; bits > 0 && n < k % 5; n++)
				placed |= UINT64_C(1) << rng_below(&r, (uint64_t)bits);
			compare_with_naive(g, placed);
		}
		cr_expect_not(st_mig_legal(g, UINT64_C(1) << 63), "a bit of no profile");
	}
}

Test(state_mig, every_legal_state_is_listed_by_at)
{
	enumerate(a100(), 0x7f);
	for (size_t i = 0; i < all.count; i++) {
		uint64_t back = 0;
		int p, start, n = 0;

		for (; st_mig_at(a100(), all.placed[i], n, &p, &start); n++)
			back |= st_mig_bit(a100(), p, start);
		cr_assert_eq(back, all.placed[i]);
		cr_assert_eq(n, __builtin_popcountll(back));
	}
	cr_expect_eq(st_mig_bit(a100(), 4, 1), 0, "3g does not start at 1");
	cr_expect_eq(st_mig_bit(a100(), -1, 0), 0);
	cr_expect_eq(st_mig_bit(a100(), 7, 0), 0);
	cr_expect_not(st_mig_can_place(a100(), 0, -1, 0));
	cr_expect_eq(st_mig_max_more(a100(), 0, 99), 0);
}

/* ---- the table ---- */

Test(state_mig, table_is_consistent)
{
	size_t i = 0, with_starts = 0;

	for (const struct st_mig_geometry *g; (g = st_mig_table_at(i)) != NULL; i++) {
		struct st_mig_geometry copy = *g;
		struct err e = ERR_INIT;

		cr_expect_eq(st_mig_geometry_finish(&copy, &e), 0, "%s: %s", g->model, e.msg);
		cr_expect(st_mig_geometry_equal(&copy, g));
		for (int p = 0; p < g->profile_count; p++) {
			cr_expect_eq(copy.profiles[p].bit, g->profiles[p].bit, "%s: bits",
				     g->model);
			cr_expect_eq(st_mig_profile_find(g, g->profiles[p].name), p);
			with_starts += g->profiles[p].start_count > 0;
		}
	}
	cr_expect_eq(i, 15);
	cr_expect_eq(with_starts, 5 + 5 * 7 + 11);
}

/* As its driver told (580.159.04): the places of an A100, memory of its own. */
Test(state_mig, h200_as_measured)
{
	static const int32_t mib[] = {16384, 16384, 33280, 33280, 71424, 71424, 143360};
	const struct st_mig_geometry *g = st_mig_table_find("NVIDIA H200", 143771);

	cr_assert_not_null(g);
	cr_assert_eq(g->profile_count, 7);
	for (int p = 0; p < 7; p++) {
		const struct st_mig_profile *h = &g->profiles[p], *a = &a100()->profiles[p];

		cr_expect_eq(h->mem_mib, mib[p], "%s", h->name);
		cr_expect_eq(h->units, a->units);
		cr_expect_eq(h->max_instances, a->max_instances);
		cr_expect_eq(h->start_count, a->start_count);
		cr_expect_arr_eq(h->starts, a->starts, sizeof(h->starts));
	}
}

static void product(const char *name, int32_t mem_mib, const char *model)
{
	const struct st_mig_geometry *g = st_mig_table_find(name, mem_mib);

	if (model == NULL)
		cr_expect_null(g, "%s %d is %s", name, mem_mib, g != NULL ? g->model : "");
	else
		cr_expect(g != NULL && strcmp(g->model, model) == 0, "%s %d is %s", name, mem_mib,
			  g != NULL ? g->model : "unknown");
}

Test(state_mig, products_of_both_forms)
{
	product("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB");
	product("NVIDIA-A100-SXM4-40GB", 0, "A100-40GB");
	product("NVIDIA A100-PCIE-40GB", 40960, "A100-40GB");
	product("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB");
	product("NVIDIA A100 80GB PCIe", 81920, "A100-80GB");
	product("NVIDIA-A100-80GB-PCIe", 81920, "A100-80GB");
	product("NVIDIA A30", 24576, "A30-24GB");
	product("NVIDIA A30X", 24576, NULL);
	product("NVIDIA H100 80GB HBM3", 81559, "H100-80GB");
	product("NVIDIA-H100-80GB-HBM3", 81559, "H100-80GB");
	product("NVIDIA H100 PCIe", 81559, "H100-80GB");
	product("NVIDIA H100 NVL", 95830, "H100-94GB");
	product("NVIDIA GH200 480GB", 97871, "H100-96GB");
	product("NVIDIA GH200 144G HBM3e", 147000, "GH200-144GB");
	product("NVIDIA H200", 143771, "H200-141GB");
	product("NVIDIA B200", 183359, "B200-180GB");
	product("NVIDIA GB200", 189471, "GB200-186GB");
	product("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTXPRO6000-96GB");
	product("Tesla V100-SXM2-16GB", 16384, NULL);
	product(NULL, 40960, NULL);
	product("", 0, NULL);
}

Test(state_mig, one_name_with_two_memories)
{
	product("NVIDIA H20", 97871, "H100-96GB");
	product("NVIDIA H20", 143771, NULL);
	product("NVIDIA A100-SXM4-40GB", 81920, NULL);
	/* The product of MIG devices as GFD names it in its strategy "single". */
	product("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864, NULL);
}

Test(state_mig, labels_that_vary_by_driver)
{
	const struct st_mig_geometry *a80 = st_mig_table_find("NVIDIA A100-SXM4-80GB", 81920);
	const struct st_mig_geometry *gb200 = st_mig_table_find("NVIDIA GB200", 189471);

	cr_assert(a80 != NULL && gb200 != NULL);
	cr_expect_eq(st_mig_profile_find(a80, "7g.79gb"), st_mig_profile_find(a80, "7g.80gb"));
	cr_expect_eq(st_mig_profile_find(gb200, "1g.24gb"), 0);
	cr_expect_eq(st_mig_profile_find(gb200, "3g.95gb"), st_mig_profile_find(gb200, "3g.93gb"));
	cr_expect_eq(st_mig_profile_find(gb200, "7g.189gb"),
		     st_mig_profile_find(gb200, "7g.186gb"));
	/* Resource names write ".me". */
	cr_expect_eq(st_mig_profile_find(a100(), "1g.5gb.me"), 1);
	cr_expect_eq(st_mig_profile_find(rtx6000(), "2g.48gb.me.all"),
		     st_mig_profile_find(rtx6000(), "2g.48gb+me.all"));
	cr_expect_neq(st_mig_profile_find(rtx6000(), "2g.48gb-me"),
		      st_mig_profile_find(rtx6000(), "2g.48gb"));
	/* Half and double memory are other profiles. */
	cr_expect_eq(st_mig_profile_find(a80, "1g.5gb"), -1);
	cr_expect_neq(st_mig_profile_find(a80, "1g.20gb"), st_mig_profile_find(a80, "1g.10gb"));
	cr_expect_eq(st_mig_profile_find(a80, "2g.40gb"), -1);
	for (const char *const *bad =
		     (const char *const[]){"", "g", "1g", "1g.", "1g.5", "1c.1g.5gb", "1g.5gb+",
					   "1g.5gb+m", "1g.5gb ", "-1g.5gb", "99999g.5gb",
					   "5g.30gb", NULL};
	     *bad != NULL; bad++)
		cr_expect_eq(st_mig_profile_find(a100(), *bad), -1, "'%s'", *bad);
}

/* ---- geometries from outside ---- */

static void bad_geometry(const struct st_mig_geometry *g, const char *what)
{
	struct st_mig_geometry copy = *g;
	struct err e = ERR_INIT;

	cr_expect_eq(st_mig_geometry_finish(&copy, &e), ERR_INVALID, "%s", what);
	cr_expect_neq(e.msg[0], '\0', "%s", what);
}

Test(state_mig, geometries_that_cannot_be)
{
	struct st_mig_geometry g;

	g = *a100();
	g.profiles[4].starts[1] = 5;
	bad_geometry(&g, "a start that leaves the grid");
	g = *a100();
	memcpy(g.profiles[1].name, "1g.5gb", sizeof("1g.5gb"));
	bad_geometry(&g, "one name twice");
	g = *a100();
	memset(g.profiles[1].name, 'x', sizeof(g.profiles[1].name));
	bad_geometry(&g, "a name without an end");
	g = *a100();
	g.profiles[0].starts[3] = 2;
	bad_geometry(&g, "starts not ascending");
	g = *a100();
	g.profiles[0].start_count = ST_MIG_STARTS_MAX + 1;
	bad_geometry(&g, "too many starts");
	g = *a100();
	g.profiles[0].max_instances = 0;
	bad_geometry(&g, "no instance allowed");
	g = *a100();
	g.profiles[6].compute_slices = 8;
	bad_geometry(&g, "more compute than there is");
	g = *a100();
	g.units_total = 33;
	bad_geometry(&g, "a grid too large");
	g = *a100();
	g.profile_count = ST_MIG_PROFILES_MAX + 1;
	bad_geometry(&g, "too many profiles");
	memset(&g, 0, sizeof(g));
	g.compute_total = g.units_total = 12;
	g.profile_count = 6;
	for (int p = 0; p < 6; p++) {
		g.profiles[p] = (struct st_mig_profile){
			.compute_slices = 1, .units = 1, .max_instances = 12, .start_count = 12};
		g.profiles[p].name[0] = (char)('a' + p);
		for (uint8_t i = 0; i < 12; i++)
			g.profiles[p].starts[i] = i;
	}
	bad_geometry(&g, "72 pairs");
	g.profile_count = 5;
	cr_expect_eq(st_mig_geometry_finish(&g, NULL), 0);
	cr_expect_eq(g.profiles[4].bit, 48);
}

Test(state_mig, geometry_equality_ignores_what_is_behind_the_ends)
{
	struct st_mig_geometry a = *a100(), b = *a100();

	b.profiles[0].name[20] = 'x';
	b.profiles[6].starts[5] = 9;
	b.profiles[2].bit = 60;
	cr_expect(st_mig_geometry_equal(&a, &b));
	b.profiles[0].mem_mib++;
	cr_expect_not(st_mig_geometry_equal(&a, &b));
}

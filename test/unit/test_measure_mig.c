/* The measures on GPUs in MIG mode, against the published sums of stranded slices: N of FGD with five
 * profiles of weight 1 is 125 milli (one memory unit of eight) times the sum of the profiles'
 * stranded slices. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fragmentation/measure.h"
#include "test/lib/place.h"

#define ODD_MIB 40539 /* no multiple of 8: slices are counted, not MiB */
#define UNIT 125

static const struct place_class five[] = {{1, 0, PLACE_MIG("1g.5gb"), NULL},
					  {1, 0, PLACE_MIG("2g.10gb"), NULL},
					  {1, 0, PLACE_MIG("3g.20gb"), NULL},
					  {1, 0, PLACE_MIG("4g.20gb"), NULL},
					  {1, 0, PLACE_MIG("7g.40gb"), NULL}};

/* The node with one GPU on which these instances are. */
static uint32_t put(struct st_cluster *c, const char *product, int32_t mib,
		    const struct st_mig_geometry *g, uint64_t placed)
{
	struct st_gpu_spec gpu = {.mem_mib = mib, .mig_enabled = true};
	struct st_node_spec spec = {
		.name = "n", .product = product, .cpu_milli = 64000, .gpu_count = 1, .gpus = &gpu};
	struct err err = ERR_INIT;
	int profile, start;
	uint32_t id;

	for (int i = 0; st_mig_at(g, placed, i, &profile, &start); i++) {
		memcpy(gpu.instances[i].profile, g->profiles[profile].name, ST_MIG_NAME_CAP);
		gpu.instances[i].start = (uint8_t)start;
		gpu.instance_count++;
	}
	cr_assert_eq(st_cluster_node_put(c, &spec, &id, &err), 0, "%s", err.msg);
	return id;
}

static const struct st_mig_geometry *a100(void)
{
	return st_mig_table_find(PLACE_A100, ODD_MIB);
}

/* "1g.5gb@6 2g.10gb@4" as a mask. */
static uint64_t mask_of(const struct st_mig_geometry *g, const char *text)
{
	uint64_t placed = 0;

	while (*text) {
		char profile[ST_MIG_NAME_CAP] = "";
		size_t len = strcspn(text, "@");
		int start = (int)strtol(text + len + 1, NULL, 10);
		uint64_t bit;

		memcpy(profile, text, len);
		bit = st_mig_bit(g, st_mig_profile_find(g, profile), start);
		cr_assert_neq(bit, 0, "%s", text);
		placed |= bit;
		text += strcspn(text, " ");
		text += *text == ' ';
	}
	return placed;
}

struct setup {
	struct st_cluster *c;
	struct fr_measure *m;
	uint32_t node;
};

static struct setup setup_with(const struct place_class *mix, size_t count, enum fr_kind kind)
{
	struct setup s = {.c = st_cluster_new(NULL)};

	s.node = put(s.c, PLACE_A100, ODD_MIB, a100(), 0);
	s.m = place_measure(s.c, kind, mix, count);
	return s;
}

static void teardown(struct setup *s)
{
	fr_measure_free(s->m);
	st_cluster_free(s->c);
}

static int64_t stranded(const struct setup *s, uint64_t placed)
{
	put(s->c, PLACE_A100, ODD_MIB, a100(), placed);
	cr_assert_eq(fr_measure_sync(s->m, s->node), 0);
	cr_assert_eq(fr_measure_node(s->m, s->node) % UNIT, 0);
	return fr_measure_node(s->m, s->node) / UNIT;
}

Test(measure_mig, worked_numbers)
{
	static const struct {
		const char *placed;
		int64_t sum;
	} rows[] = {
		{"", 7},
		{"1g.5gb@0", 21},
		{"1g.5gb@1", 21},
		{"1g.5gb@2", 21},
		{"1g.5gb@3", 21},
		{"1g.5gb@4", 17},
		{"1g.5gb@5", 17},
		{"1g.5gb@6", 15},
		{"1g.10gb@0", 17},
		{"1g.10gb@2", 17},
		{"1g.10gb@4", 13},
		{"1g.10gb@6", 10},
		{"2g.10gb@0", 17},
		{"2g.10gb@2", 17},
		{"2g.10gb@4", 13},
		{"3g.20gb@0", 11},
		{"3g.20gb@4", 4},
		{"4g.20gb@0", 11},
		{"7g.40gb@0", 0},
		{"1g.5gb@6 2g.10gb@4", 9},
		{"2g.10gb@0 2g.10gb@2 2g.10gb@4", 9},
		{"3g.20gb@0 3g.20gb@4", 0},
	};
	struct setup s = setup_with(five, 5, FR_FGD);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(stranded(&s, mask_of(a100(), rows[i].placed)), rows[i].sum, "%s",
			     rows[i].placed);
	teardown(&s);
}

/* Slices stranded for each profile alone, in the order of five[]. */
Test(measure_mig, by_profile)
{
	static const struct {
		const char *placed;
		int64_t stranded[5];
	} rows[] = {
		{"", {1, 2, 0, 4, 0}},          {"1g.5gb@0", {1, 3, 3, 7, 7}},
		{"1g.5gb@6", {1, 1, 3, 3, 7}},  {"1g.10gb@6", {0, 0, 2, 2, 6}},
		{"2g.10gb@4", {1, 2, 2, 2, 6}}, {"3g.20gb@0", {1, 2, 0, 4, 4}},
		{"3g.20gb@4", {0, 0, 0, 0, 4}}, {"7g.40gb@0", {0, 0, 0, 0, 0}},
	};

	for (int p = 0; p < 5; p++) {
		struct setup s = setup_with(&five[p], 1, FR_FGD);

		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
			cr_expect_eq(stranded(&s, mask_of(a100(), rows[i].placed)),
				     rows[i].stranded[p], "%s, profile %d", rows[i].placed, p);
		teardown(&s);
	}
}

#define NO INT64_MIN

/* Change of the sum by where one more instance goes; starts 0 to 6. */
static const struct {
	const char *placed, *profile;
	int64_t change[7];
} second[] = {
	{"3g.20gb@4", "1g.5gb", {6, 6, 6, 6, NO, NO, NO}},
	{"3g.20gb@4", "1g.10gb", {2, NO, 2, NO, NO, NO, NO}},
	{"3g.20gb@4", "2g.10gb", {2, NO, 2, NO, NO, NO, NO}},
	{"3g.20gb@4", "3g.20gb", {-4, NO, NO, NO, NO, NO, NO}},
	{"3g.20gb@4", "4g.20gb", {-4, NO, NO, NO, NO, NO, NO}},
	{"1g.5gb@6", "1g.5gb", {6, 6, 6, 6, -2, -2, NO}},
	{"1g.5gb@6", "1g.10gb", {2, NO, 2, NO, -6, NO, NO}},
	{"1g.5gb@6", "2g.10gb", {2, NO, 2, NO, -6, NO, NO}},
	{"1g.5gb@6", "3g.20gb", {-4, NO, NO, NO, NO, NO, NO}},
	{"2g.10gb@4", "1g.5gb", {6, 6, 6, 6, NO, NO, -4}},
	{"2g.10gb@4", "1g.10gb", {2, NO, 2, NO, NO, NO, -9}},
	{"2g.10gb@4", "2g.10gb", {2, NO, 2, NO, NO, NO, NO}},
	{"1g.5gb@0", "1g.5gb", {NO, -4, -2, -2, 2, 2, 0}},
	{"1g.5gb@0", "1g.10gb", {NO, NO, -6, NO, -2, NO, -5}},
	{"1g.5gb@0", "2g.10gb", {NO, NO, -6, NO, -2, NO, NO}},
	{"1g.5gb@0", "3g.20gb", {NO, NO, NO, NO, -11, NO, NO}},
	{"1g.5gb@0", "4g.20gb", {NO, NO, NO, NO, NO, NO, NO}},
	{"4g.20gb@0", "1g.5gb", {NO, NO, NO, NO, 2, 2, 0}},
	{"3g.20gb@0", "1g.10gb", {NO, NO, NO, NO, -2, NO, -5}},
	{"3g.20gb@0", "2g.10gb", {NO, NO, NO, NO, -2, NO, NO}},
	{"4g.20gb@0", "3g.20gb", {NO, NO, NO, NO, -11, NO, NO}},
};

Test(measure_mig, second_placements)
{
	const struct st_mig_geometry *g = a100();
	struct setup s = setup_with(five, 5, FR_FGD);

	for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
		uint64_t placed = mask_of(g, second[i].placed);
		int64_t before = stranded(&s, placed);
		int profile = st_mig_profile_find(g, second[i].profile);

		for (int start = 0; start < 7; start++) {
			struct fr_gpu was = fr_gpu_load(s.m, s.node, 0), will;
			struct fr_change ch = {was.row, 0, 1};
			int64_t n;

			if (!st_mig_can_place(g, placed, profile, start)) {
				cr_expect_eq(second[i].change[start], NO, "%s, %s at %d",
					     second[i].placed, second[i].profile, start);
				continue;
			}
			will = fr_gpu_after_mig(s.m, &was, profile, start);
			ch.after = will.row;
			n = fr_measure_after(s.m, s.node, 64000, &ch, 1);
			cr_expect_eq(n - before * UNIT, second[i].change[start] * UNIT,
				     "%s, %s at %d: %lld", second[i].placed, second[i].profile,
				     start, (long long)(n / UNIT - before));
		}
	}
	teardown(&s);
}

/* ---- over all states ---- */

struct walk {
	const struct setup *s;
	uint32_t profiles; /* one bit each */
	int states;
	int64_t sum, max;
};

static void walk(struct walk *w, uint64_t placed, int from_profile, int from_start)
{
	const struct st_mig_geometry *g = a100();
	int64_t n = stranded(w->s, placed);

	w->states++;
	w->sum += n;
	w->max = n > w->max ? n : w->max;
	for (int p = from_profile; p < g->profile_count; p++)
		for (int i = 0; (w->profiles >> p & 1) && i < g->profiles[p].start_count; i++) {
			int start = g->profiles[p].starts[i];

			if ((p > from_profile || start > from_start) &&
			    st_mig_can_place(g, placed, p, start))
				walk(w, placed | st_mig_bit(g, p, start), p, start);
		}
}

Test(measure_mig, sums_over_all_states)
{
	static const char *const names[] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};
	struct setup s = setup_with(five, 5, FR_FGD);
	struct walk w = {.s = &s};

	for (int i = 0; i < 5; i++)
		w.profiles |= 1U << st_mig_profile_find(a100(), names[i]);
	walk(&w, 0, 0, -1);
	cr_expect_eq(w.states, 298);
	cr_expect_eq(w.sum, 3982, "%lld", (long long)w.sum);
	cr_expect_eq(w.max, 23);
	w.profiles |= 1U << st_mig_profile_find(a100(), "1g.10gb");
	w.states = 0;
	w.sum = w.max = 0;
	walk(&w, 0, 0, -1);
	cr_expect_eq(w.states, 723);
	cr_expect_eq(w.sum, 7668, "%lld", (long long)w.sum);
	cr_expect_eq(w.max, 23);
	teardown(&s);
}

/* ---- the rest ---- */

/* Several instances of a pod may be on one GPU. */
Test(measure_mig, classes_of_several_instances)
{
	static const struct place_class three[] = {
		{1,
		 0,
		 {.kind = ST_KIND_MIG, .mode = ST_MODE_MIG, .count = 3, .profile = "1g.5gb"},
		 NULL}};
	struct setup s = setup_with(three, 1, FR_FGD), ca = setup_with(three, 1, FR_CA);

	cr_expect_eq(stranded(&s, 0), 1);
	cr_expect_eq(stranded(&s, mask_of(a100(), "4g.20gb@0")), 1);          /* just three */
	cr_expect_eq(stranded(&s, mask_of(a100(), "4g.20gb@0 1g.5gb@4")), 3); /* only two */
	/* Three count like three of one: nothing else comes, so no start is better than another, and
	 * what is lost is the unit that none can take. */
	cr_expect_eq(fr_measure_node(ca.m, ca.node), 0);
	teardown(&s);
	teardown(&ca);
}

Test(measure_mig, other_kinds_of_requests_cannot_use_it)
{
	static const struct place_class mix[] = {
		{1, 0, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL},
		{1,
		 0,
		 {.kind = ST_KIND_SHARE,
		  .mode = ST_MODE_TIME_SLICING,
		  .count = 1,
		  .request_mib = 1},
		 NULL}};
	struct setup s = setup_with(mix, 2, FR_FGD);

	cr_expect_eq(stranded(&s, 0), 16);
	cr_expect_eq(stranded(&s, mask_of(a100(), "4g.20gb@0")), 8);
	teardown(&s);
}

/* And a GPU without MIG mode, or one whose geometry has no such profile, is no use for an instance. */
Test(measure_mig, profiles_that_a_gpu_does_not_have)
{
	struct st_cluster *c = st_cluster_new(NULL);
	uint32_t plain = place_node(c, "plain", 64000, 1, ODD_MIB);
	uint32_t a30 = place_node_mig(c, "a30", PLACE_A30, 1, PLACE_A30_MIB, 1);
	struct fr_measure *m = place_measure(c, FR_FGD, five, 1);
	static const struct place_class small[] = {{1, 0, PLACE_MIG("1g.6gb"), NULL}};
	struct fr_measure *m30 = place_measure(c, FR_FGD, small, 1);
	struct st_item it = place_mig("1g.6gb", 1);

	cr_expect_eq(fr_measure_node(m, plain), 1000);
	cr_expect_eq(fr_measure_node(m, a30), 1000);
	cr_expect_eq(fr_measure_node(m30, a30), 0);
	place_hold(c, a30, "a", &it, 0, 2); /* a quarter is a quarter, although 24125 is odd */
	place_sync(m30, c);
	cr_expect_eq(fr_measure_node(m30, a30), 0);
	cr_expect_eq(fr_measure_idle_total(m30), 1000 + 750);
	fr_measure_free(m);
	fr_measure_free(m30);
	st_cluster_free(c);
}

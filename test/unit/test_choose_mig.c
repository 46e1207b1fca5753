/* Where MIG instances go. Numbers of the starts are the worked ones of test_measure_mig.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "binpack/binpack_internal.h"
#include "test/lib/place.h"

static const struct place_class five[] = {{1, 0, PLACE_MIG("1g.5gb"), NULL},
					  {1, 0, PLACE_MIG("2g.10gb"), NULL},
					  {1, 0, PLACE_MIG("3g.20gb"), NULL},
					  {1, 0, PLACE_MIG("4g.20gb"), NULL},
					  {1, 0, PLACE_MIG("7g.40gb"), NULL}};

struct setup {
	struct st_cluster *c;
	struct fr_measure *m;
	uint32_t node;
	struct st_decision d;
};

static struct setup node_of(size_t gpus, uint32_t mig)
{
	struct setup s = {.c = st_cluster_new(NULL)};

	s.node = place_node_mig(s.c, "n", PLACE_A100, gpus, PLACE_A100_MIB, mig);
	return s;
}

static void hold(struct setup *s, const char *uid, const char *profile, unsigned gpu,
		 unsigned start)
{
	struct st_item it = place_mig(profile, 1);

	place_hold(s->c, s->node, uid, &it, gpu, start);
}

static void measure_by(struct setup *s, enum fr_kind kind, const struct place_class *mix,
		       size_t count)
{
	fr_measure_free(s->m);
	s->m = place_measure(s->c, kind, mix, count);
}

static enum bp_verdict choose(struct setup *s, enum bp_pick pick, const char *profile, int count)
{
	struct st_request req = place_request(500, place_mig(profile, count));
	struct bp_chooser how = {.pick = pick, .measure = s->m, .salt = 3};
	enum bp_verdict v = bp_choose(s->c, &how, s->node, &req, &s->d, NULL);

	if (v == BP_OK) {
		struct st_pod_ident id = place_ident("new", 0, req.cpu_milli);
		struct err err = ERR_INIT;

		cr_assert_eq(st_cluster_can_book(s->c, &id, &s->d, true, &err), 0, "%s", err.msg);
		cr_assert_eq(s->d.grants[0].count, count);
	}
	return v;
}

static void expect_start(struct setup *s, enum bp_pick pick, const char *profile, int gpu,
			 int start)
{
	cr_expect_eq(choose(s, pick, profile, 1), BP_OK);
	cr_expect_eq(s->d.grants[0].gpu[0], gpu, "%s: GPU %d", profile, s->d.grants[0].gpu[0]);
	cr_expect_eq(s->d.grants[0].start[0], start, "%s: start %d", profile,
		     s->d.grants[0].start[0]);
}

static void done(struct setup *s)
{
	fr_measure_free(s->m);
	st_cluster_free(s->c);
}

static const struct {
	const char *profile;
	int start; /* least loss on an empty GPU */
} best[] = {{"1g.5gb", 6},  {"1g.10gb", 6}, {"2g.10gb", 4},
	    {"3g.20gb", 4}, {"4g.20gb", 0}, {"7g.40gb", 0}};

Test(choose_mig, least_loss_on_an_empty_gpu)
{
	static const enum fr_kind kinds[] = {FR_FGD, FR_CA, FR_BID};
	struct setup s = node_of(1, 1);

	for (int k = 0; k < 6; k++) {
		/* A workload without MIG does not tell starts apart: all profiles count alike then. */
		measure_by(&s, kinds[k % 3], five, k < 3 ? 5 : 0);
		for (size_t i = 0; i < sizeof(best) / sizeof(best[0]); i++)
			expect_start(&s, BP_PICK_MEASURE, best[i].profile, 0, best[i].start);
	}
	for (size_t i = 0; i < sizeof(best) / sizeof(best[0]); i++) {
		expect_start(&s, BP_PICK_BEST_FIT, best[i].profile, 0, 0);
		expect_start(&s, BP_PICK_FIRST, best[i].profile, 0, 0);
	}
	done(&s);
}

/* With one class only, what keeps room for it: an empty GPU can lose nothing for 7g but itself. */
Test(choose_mig, the_workload_decides)
{
	static const struct place_class only_4g[] = {{1, 0, PLACE_MIG("4g.20gb"), NULL}};
	struct setup s = node_of(2, 3);

	hold(&s, "a", "3g.20gb", 1, 4);
	/* 4g still fits on both as long as starts 0 to 3 of one are left alone. */
	measure_by(&s, FR_FGD, only_4g, 1);
	cr_expect_eq(choose(&s, BP_PICK_MEASURE, "2g.10gb", 1), BP_OK);
	cr_expect_eq(s.d.grants[0].gpu[0], 0);
	cr_expect_eq(s.d.grants[0].start[0], 4);
	done(&s);
}

Test(choose_mig, beside_what_is_there)
{
	static const struct {
		const char *held;
		unsigned start;
		const char *profile;
		int want;
	} rows[] = {
		{"3g.20gb", 4, "3g.20gb", 0}, {"3g.20gb", 4, "4g.20gb", 0},
		{"3g.20gb", 4, "1g.10gb", 2}, {"3g.20gb", 4, "1g.5gb", 3},
		{"1g.5gb", 6, "1g.5gb", 5},   {"1g.5gb", 6, "2g.10gb", 4},
		{"2g.10gb", 4, "1g.5gb", 6},  {"2g.10gb", 4, "1g.10gb", 6},
		{"1g.5gb", 0, "1g.5gb", 1},   {"1g.5gb", 0, "2g.10gb", 2},
		{"1g.5gb", 0, "3g.20gb", 4},  {"4g.20gb", 0, "1g.5gb", 6},
		{"4g.20gb", 0, "2g.10gb", 4},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct setup s = node_of(1, 1);

		hold(&s, "a", rows[i].held, 0, rows[i].start);
		measure_by(&s, FR_FGD, five, 5);
		expect_start(&s, BP_PICK_MEASURE, rows[i].profile, 0, rows[i].want);
		done(&s);
	}
}

/* Of two GPUs the one that loses less; of equal ones the fuller. */
Test(choose_mig, among_gpus)
{
	struct setup s = node_of(2, 3), t = node_of(3, 7);

	hold(&s, "a", "1g.5gb", 1, 6);
	measure_by(&s, FR_FGD, five, 5);
	expect_start(&s, BP_PICK_MEASURE, "1g.5gb", 1, 5);  /* -2 against +8 */
	expect_start(&s, BP_PICK_MEASURE, "3g.20gb", 1, 0); /* -4 against -3 */
	expect_start(&s, BP_PICK_BEST_FIT, "1g.5gb", 1, 0);
	expect_start(&s, BP_PICK_FIRST, "1g.5gb", 0, 0);
	expect_start(&s, BP_PICK_WORST_FIT, "1g.5gb", 0, 0);
	hold(&t, "a", "7g.40gb", 0, 0);
	measure_by(&t, FR_FGD, five, 5);
	expect_start(&t, BP_PICK_MEASURE, "7g.40gb", 1, 0); /* GPUs 1 and 2 are alike */
	done(&s);
	done(&t);
}

Test(choose_mig, several_instances)
{
	struct setup s = node_of(1, 1), t = node_of(3, 7);
	uint32_t seen = 0;

	measure_by(&s, FR_FGD, five, 5);
	measure_by(&t, FR_FGD, five, 5);
	cr_assert_eq(choose(&s, BP_PICK_MEASURE, "1g.5gb", 7), BP_OK);
	for (int i = 0; i < 7; i++)
		seen |= 1U << s.d.grants[0].start[i];
	cr_expect_eq(seen, 0x7f);
	cr_expect_str_eq(s.d.grants[0].profile, "1g.5gb");
	cr_expect_eq(choose(&s, BP_PICK_MEASURE, "1g.5gb", 8), BP_MIG_ROOM);
	cr_expect_eq(choose(&s, BP_PICK_FIRST, "3g.20gb", 2), BP_OK);
	cr_expect_eq(choose(&t, BP_PICK_MEASURE, "1g.5gb", 16), BP_OK);
	/* 21 would fit, but a grant has room for 16. */
	cr_expect_eq(choose(&t, BP_PICK_MEASURE, "1g.5gb", 17), BP_TOO_MANY);
	cr_expect_eq(choose(&t, BP_PICK_MEASURE, "1g.5gb", 200), BP_TOO_MANY);
	cr_expect_eq(choose(&t, BP_PICK_RANDOM, "7g.40gb", 3), BP_OK);
	done(&s);
	done(&t);
}

/* A share and an instance in one pod, on a node that has both kinds of GPU. */
Test(choose_mig, with_other_kinds)
{
	struct st_request req = place_request(0, place_share(1000));
	struct setup s = node_of(3, 2);
	struct bp_chooser how = {.pick = BP_PICK_MEASURE};

	measure_by(&s, FR_CA, five, 5);
	how.measure = s.m;
	place_add(&req, place_mig("2g.10gb", 1));
	place_add(&req, place_whole(1));
	cr_assert_eq(bp_choose(s.c, &how, s.node, &req, &s.d, NULL), BP_OK);
	cr_expect_eq(s.d.grants[1].gpu[0], 1);
	cr_expect_eq(s.d.grants[1].start[0], 4);
	cr_expect_eq(s.d.grants[0].gpu[0] + s.d.grants[2].gpu[0], 2);
	done(&s);
}

/* The resource name a user wrote differs from the table's: "7g.39gb" is this GPU's 7g.40gb. */
Test(choose_mig, labels_vary_by_driver)
{
	struct setup s = node_of(1, 1);

	cr_expect_eq(choose(&s, BP_PICK_FIRST, "7g.39gb", 1), BP_OK);
	cr_expect_str_eq(s.d.grants[0].profile, "7g.40gb");
	cr_expect_gt(s.d.grants[0].request_mib, 0);
	cr_expect_eq(choose(&s, BP_PICK_FIRST, "7g.80gb", 1), BP_NO_MIG);
	done(&s);
}

Test(choose_mig, spread)
{
	const struct st_mig_geometry *g = st_mig_table_find(PLACE_A100, PLACE_A100_MIB);
	uint64_t placed = st_mig_bit(g, st_mig_profile_find(g, "3g.20gb"), 4);

	/* Sums of stranded slices, 1g.10gb included: it strands none on either. */
	cr_expect_eq(bp_mig_spread(g, 0), 7);
	cr_expect_eq(bp_mig_spread(g, placed), 4);
}

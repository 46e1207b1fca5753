/* MIG instances asked for by size, on GPUs cut beforehand, and on GPUs that the node would switch. */
#include <criterion/criterion.h>
#include <string.h>

#include "binpack/binpack_internal.h"
#include "test/lib/place.h"

static const struct place_class mixed[] = {
	{4, 0, PLACE_MIG("1g.5gb"), NULL},
	{4, 0, PLACE_MIG("2g.10gb"), NULL},
	{4, 0, PLACE_MIG("3g.20gb"), NULL},
	{8, 0, {.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = 1}, NULL},
};

struct setup {
	struct st_cluster *c;
	struct fr_measure *m;
	uint32_t node;
	struct st_decision d;
};

static void instance(struct st_gpu_spec *g, const char *profile, uint8_t start)
{
	memcpy(g->instances[g->instance_count].profile, profile, strlen(profile) + 1);
	g->instances[g->instance_count++].start = start;
}

static struct setup setup_of(const struct st_config *cfg, struct st_gpu_spec *gpus, size_t count)
{
	struct setup s = {.c = st_cluster_new(cfg)};
	struct st_node_spec spec = {.name = "n",
				    .product = PLACE_A100,
				    .cpu_milli = 64000,
				    .mem_mib = 65536,
				    .gpu_count = count,
				    .gpus = gpus};
	struct err err = ERR_INIT;

	for (size_t i = 0; i < count; i++)
		gpus[i].mem_mib = PLACE_A100_MIB;
	cr_assert_eq(st_cluster_node_put(s.c, &spec, &s.node, &err), 0, "%s", err.msg);
	s.m = place_measure(s.c, FR_FGD, mixed, 4);
	return s;
}

static void done(struct setup *s)
{
	struct err err = ERR_INIT;

	cr_expect_eq(st_cluster_check(s->c, ST_NONE, &err), 0, "%s", err.msg);
	fr_measure_free(s->m);
	st_cluster_free(s->c);
}

/* Chooses, books, and syncs the measure; the verdict. */
static enum bp_verdict place(struct setup *s, enum bp_pick pick, const char *uid, struct st_item it)
{
	struct st_request req = place_request(100, it);
	struct bp_chooser how = {.pick = pick, .measure = s->m, .salt = 1};
	struct st_pod_ident id = place_ident(uid, 0, req.cpu_milli);
	enum bp_verdict v = bp_choose(s->c, &how, s->node, &req, &s->d, NULL);
	struct err err = ERR_INIT;

	if (v != BP_OK)
		return v;
	cr_assert_eq(st_cluster_reserve(s->c, &id, &s->d, &err), 0, "%s", err.msg);
	cr_assert_eq(fr_measure_sync(s->m, s->node), 0);
	return v;
}

static struct st_item by_size(int32_t mib, int32_t nano, int count)
{
	return (struct st_item){.kind = ST_KIND_MIG,
				.mode = ST_MODE_MIG,
				.count = (uint8_t)count,
				.container = "c0",
				.request_mib = mib,
				.request_nano = nano};
}

Test(choose_mig_kinds, the_smallest_profile_with_so_much_memory)
{
	static const struct {
		int32_t mib, nano;
		const char *profile;
	} rows[] = {
		{1, 0, "1g.5gb"},          {4864, 0, "1g.5gb"},       {4865, 0, "1g.10gb"},
		{9984, 0, "1g.10gb"},      {9985, 0, "3g.20gb"},      {20481, 0, "7g.40gb"},
		{0, 125000000, "1g.5gb"},  {0, 125000001, "1g.10gb"}, {0, 250000000, "1g.10gb"},
		{0, 500000000, "3g.20gb"}, {0, 500000001, "7g.40gb"}, {0, 999999999, "7g.40gb"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int pick = 0; pick < 2; pick++) {
			struct st_gpu_spec gpu = {.mig_enabled = true};
			struct setup s = setup_of(NULL, &gpu, 1);

			cr_expect_eq(place(&s, pick ? BP_PICK_FIRST : BP_PICK_MEASURE, "a",
					   by_size(rows[i].mib, rows[i].nano, 1)),
				     BP_OK);
			cr_expect_str_eq(s.d.grants[0].profile, rows[i].profile, "%d MiB, %d",
					 rows[i].mib, rows[i].nano);
			done(&s);
		}
}

/* Where the smallest has no room the next larger one is taken; larger than all: none has it. */
Test(choose_mig_kinds, larger_ones_where_the_smallest_has_no_room)
{
	struct st_gpu_spec gpu = {.mig_enabled = true};
	struct setup s = setup_of(NULL, &gpu, 1);
	struct st_item it = place_mig("3g.20gb", 1);

	place_hold(s.c, s.node, "held", &it, 0, 0);
	cr_assert_eq(fr_measure_sync(s.m, s.node), 0);
	for (int i = 0; i < 2; i++) /* two at 4 and 6 beside 3g.20gb@0 */
		cr_assert_eq(place(&s, BP_PICK_FIRST, i ? "b" : "a", by_size(9000, 0, 1)), BP_OK);
	cr_expect_eq(place(&s, BP_PICK_FIRST, "c", by_size(9000, 0, 1)), BP_MIG_ROOM);
	cr_expect_eq(place(&s, BP_PICK_FIRST, "d", by_size(50000, 0, 1)), BP_NO_MIG);
	done(&s);
}

Test(choose_mig_kinds, shares_on_several_gpus_get_instances_apart)
{
	struct st_gpu_spec gpus[2] = {{.mig_enabled = true}, {.mig_enabled = true}};
	struct setup s = setup_of(NULL, gpus, 2);
	struct st_item it = by_size(4000, 0, 2);

	it.apart = true;
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "a", it), BP_OK);
	cr_expect_neq(s.d.grants[0].gpu[0], s.d.grants[0].gpu[1]);
	it.count = 3;
	cr_expect_neq(place(&s, BP_PICK_MEASURE, "b", it), BP_OK);
	done(&s);
}

/* ---- cut beforehand ---- */

static struct setup cut_node(void)
{
	struct st_gpu_spec gpu = {.mig_enabled = true, .mig_static = true};

	instance(&gpu, "1g.5gb", 0);
	instance(&gpu, "1g.5gb", 1);
	instance(&gpu, "2g.10gb", 4);
	return setup_of(NULL, &gpu, 1);
}

Test(choose_mig_kinds, what_was_cut_is_all_there_is)
{
	for (int pick = 0; pick < 2; pick++) {
		enum bp_pick how = pick ? BP_PICK_FIRST : BP_PICK_MEASURE;
		struct setup s = cut_node();
		const struct st_gpu *g = &st_cluster_node(s.c, s.node)->gpus[0];

		cr_expect_eq(g->mig_foreign, 0);
		cr_expect_eq(g->free_mib, PLACE_A100_MIB / 2);
		cr_expect_eq(place(&s, how, "a", place_mig("3g.20gb", 1)), BP_MIG_ROOM);
		cr_assert_eq(place(&s, how, "b", place_mig("2g.10gb", 1)), BP_OK);
		cr_expect_eq(s.d.grants[0].start[0], 4);
		cr_expect_eq(place(&s, how, "c", place_mig("2g.10gb", 1)), BP_MIG_ROOM);
		cr_assert_eq(place(&s, how, "d", place_mig("1g.5gb", 2)), BP_OK);
		cr_expect_eq(place(&s, how, "e", place_mig("1g.5gb", 1)), BP_MIG_ROOM);
		cr_expect_eq(g->free_mib, 0);
		cr_expect_eq(g->taken, ST_TAKEN_NO);
		place_gone(s.c, "b");
		cr_expect_eq(g->free_mib, PLACE_A100_MIB / 4);
		cr_assert_eq(fr_measure_sync(s.m, s.node), 0);
		/* By size: nothing smaller is left than 2g.10gb. */
		cr_assert_eq(place(&s, how, "f", by_size(1000, 0, 1)), BP_OK);
		cr_expect_str_eq(s.d.grants[0].profile, "2g.10gb");
		done(&s);
	}
}

/* Instances of a device plugin's pods are not ours to give; a GPU with nothing cut has no room. */
Test(choose_mig_kinds, instances_that_others_hold)
{
	struct st_gpu_spec gpus[2] = {{.mig_enabled = true, .mig_static = true},
				      {.mig_enabled = true, .mig_static = true}};
	struct setup s;

	instance(&gpus[0], "1g.5gb", 0);
	instance(&gpus[0], "1g.5gb", 1);
	gpus[0].instances[0].held = true;
	s = setup_of(NULL, gpus, 2);
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "a", place_mig("1g.5gb", 1)), BP_OK);
	cr_expect_eq(s.d.grants[0].gpu[0], 0);
	cr_expect_eq(s.d.grants[0].start[0], 1);
	cr_expect_eq(place(&s, BP_PICK_MEASURE, "b", place_mig("1g.5gb", 1)), BP_MIG_ROOM);
	done(&s);
}

/* Made by the agent and idle: it removes them when they are in the way. */
Test(choose_mig_kinds, idle_instances_of_the_agent_are_no_obstacle)
{
	struct st_gpu_spec gpu = {.mig_enabled = true};
	struct setup s;

	instance(&gpu, "1g.5gb", 0);
	instance(&gpu, "1g.5gb", 4);
	gpu.instances[0].ours = true;
	s = setup_of(NULL, &gpu, 1);
	cr_expect_eq(__builtin_popcountll(st_cluster_node(s.c, s.node)->gpus[0].mig_foreign), 1);
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "a", place_mig("4g.20gb", 1)), BP_OK);
	cr_expect_eq(s.d.grants[0].start[0], 0);
	done(&s);
	gpu.instances[0].held = true; /* ... unless a device plugin gave them away */
	s = setup_of(NULL, &gpu, 1);
	cr_expect_eq(__builtin_popcountll(st_cluster_node(s.c, s.node)->gpus[0].mig_foreign), 2);
	cr_expect_eq(place(&s, BP_PICK_MEASURE, "a", place_mig("4g.20gb", 1)), BP_MIG_ROOM);
	done(&s);
}

/* ---- to be switched ---- */

static struct setup switchable(bool fixed)
{
	struct st_gpu_spec gpus[3] = {{.mig_enabled = true}, {.mig_switchable = true}, {0}};
	struct st_config cfg = ST_CONFIG_DEFAULT;

	cfg.mig_fixed = fixed;
	return setup_of(&cfg, gpus, 3);
}

/* The GPU in MIG mode is filled first: switching another one takes it from whole requests. */
Test(choose_mig_kinds, an_idle_gpu_is_switched_at_its_price)
{
	struct setup s = switchable(false), t = switchable(true);
	const struct st_gpu *g = &st_cluster_node(s.c, s.node)->gpus[1];

	cr_assert_eq(place(&s, BP_PICK_MEASURE, "a", place_mig("4g.20gb", 1)), BP_OK);
	cr_expect_eq(s.d.grants[0].gpu[0], 0);
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "b", place_mig("4g.20gb", 1)), BP_OK);
	cr_expect_eq(s.d.grants[0].gpu[0], 1);
	cr_expect_eq(g->mode, ST_MODE_MIG);
	cr_expect_eq(g->taken, ST_TAKEN_NO);
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "c", place_mig("1g.5gb", 1)), BP_OK);
	cr_expect_eq(place(&s, BP_PICK_MEASURE, "d", place_mig("4g.20gb", 1)), BP_MIG_ROOM);
	/* Whole GPUs go to what is still free, and back it goes when its instances are gone. */
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "e", place_whole(1)), BP_OK);
	cr_expect_eq(s.d.grants[0].gpu[0], 2);
	place_gone(s.c, "b");
	place_gone(s.c, "c");
	cr_expect_eq(g->mode, ST_MODE_FREE);
	cr_assert_eq(fr_measure_sync(s.m, s.node), 0);
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "f", place_whole(1)), BP_OK);
	cr_expect_eq(s.d.grants[0].gpu[0], 1);
	cr_expect_eq(place(&s, BP_PICK_MEASURE, "g", place_mig("4g.20gb", 1)), BP_MIG_ROOM);
	done(&s);
	cr_assert_eq(place(&t, BP_PICK_MEASURE, "a", place_mig("4g.20gb", 1)), BP_OK);
	cr_expect_eq(place(&t, BP_PICK_MEASURE, "b", place_mig("4g.20gb", 1)), BP_MIG_ROOM);
	done(&t);
}

/* Shares and instances exclude each other on a GPU, whoever comes first. */
Test(choose_mig_kinds, shares_keep_instances_away)
{
	struct st_gpu_spec gpu = {.mig_switchable = true};
	struct setup s = setup_of(NULL, &gpu, 1);

	cr_assert_eq(place(&s, BP_PICK_MEASURE, "a", place_share(100)), BP_OK);
	cr_expect_eq(place(&s, BP_PICK_MEASURE, "b", place_mig("1g.5gb", 1)), BP_MIG_ROOM);
	place_gone(s.c, "a");
	cr_assert_eq(fr_measure_sync(s.m, s.node), 0);
	cr_assert_eq(place(&s, BP_PICK_MEASURE, "b", place_mig("1g.5gb", 1)), BP_OK);
	cr_expect_eq(s.d.grants[0].start[0], 6);
	cr_expect_eq(place(&s, BP_PICK_MEASURE, "c", place_share(100)), BP_ONLY_MIG);
	done(&s);
}

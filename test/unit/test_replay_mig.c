/* MIG workloads: seeds, and the bounds against formulas and exhaustive search. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replay/mig.h"
#include "replay/mig_bound.h"

#define SETS_MAX 64
#define FIVE 5

static const char *const names[FIVE] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};

TestSuite(replay_mig);

static const struct st_mig_geometry *a100(void)
{
	return st_mig_table_find("NVIDIA A100-SXM4-40GB", 40960);
}

static struct rp_mig_mix mix_of(const char *text)
{
	struct rp_mig_mix mix;
	struct err err = ERR_INIT;

	cr_assert_eq(rp_mig_mix_parse(a100(), text, &mix, &err), 0, "%s", err.msg);
	return mix;
}

static struct rp_mig_result run(const struct rp_mig_mix *mix, const char *policy, uint32_t gpus,
				uint32_t length, uint64_t seed)
{
	struct rp_mig_options o = {.geometry = a100(),
				   .product = "NVIDIA A100-SXM4-40GB",
				   .mem_mib = 40960,
				   .mix = mix,
				   .nodes = (gpus + 7) / 8,
				   .gpus_per_node = gpus < 8 ? gpus : 8,
				   .load_permille = 1200,
				   .warm = 5,
				   .length = length,
				   .policy = policy != NULL ? po_policy_find(policy) : NULL,
				   .seed = seed};
	struct rp_mig_result ret;
	struct err err = ERR_INIT;

	cr_assert_eq(rp_mig_run(&o, &ret, &err), 0, "%s", err.msg);
	return ret;
}

/* Traces of neighbouring seeds are others: not the same arrivals, some of them left out. */
Test(replay_mig, every_seed_is_a_trace_of_its_own)
{
	struct rp_mig_mix mix = mix_of("uniform");
	int64_t units[40];
	int alike = 0;

	for (uint64_t s = 0; s < 40; s++)
		units[s] = run(&mix, NULL, 8, 20, s).units_arrived;
	for (int s = 0; s < 37; s++)
		alike += llabs(units[s] - units[s + 3]) <= 16;
	cr_expect_lt(alike, 18, "%d", alike);
	cr_expect_eq(run(&mix, NULL, 8, 20, 7).units_arrived, units[7]);
	cr_expect_eq(run(&mix, "firstfit", 8, 20, 7).units_arrived, units[7], "the same for all");
}

/* ---- packing ---- */

static int sets[SETS_MAX][FIVE];
static int set_count;

static void walk(uint64_t placed, const int *have, int from_bit)
{
	int i = 0;

	while (i < set_count && memcmp(sets[i], have, sizeof(sets[i])) != 0)
		i++;
	if (i == set_count) {
		cr_assert_lt(set_count, SETS_MAX);
		memcpy(sets[set_count++], have, sizeof(sets[i]));
	}
	for (int k = 0; k < FIVE; k++) {
		int p = st_mig_profile_find(a100(), names[k]);
		const struct st_mig_profile *q = &a100()->profiles[p];

		for (int s = 0; s < q->start_count; s++) {
			int more[FIVE];

			if (q->bit + s < from_bit ||
			    !st_mig_can_place(a100(), placed, p, q->starts[s]))
				continue;
			memcpy(more, have, sizeof(more));
			more[k]++;
			walk(placed | UINT64_C(1) << (q->bit + s), more, q->bit + s + 1);
		}
	}
}

static bool packs_by_search(const int *left, int gpus)
{
	int sum = 0;

	for (int k = 0; k < FIVE; k++)
		sum += left[k];
	if (sum == 0 || gpus == 0)
		return sum == 0;
	for (int i = 0; i < set_count; i++) {
		int rest[FIVE];

		for (int k = 0; k < FIVE; k++)
			rest[k] = left[k] > sets[i][k] ? left[k] - sets[i][k] : 0;
		if (memcmp(rest, left, sizeof(rest)) != 0 && packs_by_search(rest, gpus - 1))
			return true;
	}
	return false;
}

Test(replay_mig, packing_agrees_with_exhaustive_search)
{
	const int none[FIVE] = {0};
	int n[FIVE], yes = 0, all = 0;

	walk(0, none, 0);
	cr_assert_eq(set_count, 38);
	for (int code = 0; code < 17 * 8 * 6 * 4 * 4; code++) {
		int64_t count[ST_MIG_PROFILES_MAX] = {0};
		const int size[FIVE] = {17, 8, 6, 4, 4};
		bool want;

		for (int k = 0, c = code; k < FIVE; c /= size[k++]) {
			n[k] = c % size[k];
			count[st_mig_profile_find(a100(), names[k])] = n[k];
		}
		want = packs_by_search(n, 2);
		cr_assert_eq(rp_mig_packs(a100(), count, 2), want, "%d %d %d %d %d", n[0], n[1],
			     n[2], n[3], n[4]);
		yes += want;
		all++;
	}
	cr_expect(yes > 100 && yes < all / 2, "%d of %d", yes, all);
}

Test(replay_mig, packing_is_known_of_plain_profiles)
{
	struct rp_mig_mix plain = mix_of("small"), other = mix_of("1g.5gb=1,1g.10gb=1");

	cr_expect(rp_mig_packs_known(a100(), &plain));
	cr_expect_not(rp_mig_packs_known(a100(), &other));
	cr_expect_not(rp_mig_packs_known(st_mig_table_find("NVIDIA A30", 24576), &plain));
}

/* ---- the best of two GPUs ---- */

/* Erlang's loss formula: percent served of so many offered to so many servers. */
static double erlang(int servers, double offered)
{
	double b = 1;

	for (int i = 1; i <= servers; i++)
		b = offered * b / (i + offered * b);
	return 100 * (1 - b);
}

static struct rp_mig_best best_of(const char *mix_text, int64_t load_permille)
{
	struct rp_mig_mix mix = mix_of(mix_text);
	struct rp_mig_best b;
	struct err err = ERR_INIT;

	cr_assert_eq(rp_mig_best_of_two(a100(), &mix, load_permille, &b, &err), 0, "%s", err.msg);
	return b;
}

/* With one profile there is nothing to choose. */
Test(replay_mig, one_profile_is_erlangs_formula)
{
	struct rp_mig_best b = best_of("7g.40gb=1", 1000);

	cr_expect_float_eq(b.workloads, erlang(2, 2), 0.05);
	cr_expect_float_eq(b.units, erlang(2, 2), 0.05);
	cr_expect_float_eq(b.refusing_workloads, erlang(2, 2), 0.05);
	b = best_of("2g.10gb=1", 900);
	cr_expect_float_eq(b.workloads, erlang(6, 7.2), 0.05);
	cr_expect_lt(b.width, 0.1);
}

/* Per cent more stranded than by first fit on the same arrivals, on 32 GPUs. */
static double stranded_more(const char *name)
{
	struct rp_mig_mix mix = mix_of(name);
	double more = 0;

	for (uint64_t seed = 1; seed <= 4; seed++)
		more += 25 * (run(&mix, "ca-fgd", 32, 40, seed).stranded /
				      run(&mix, "firstfit", 32, 40, seed).stranded -
			      1);
	return more;
}

/* A table for a GPU alone comes to -20 and -23 (MIG.md). */
Test(replay_mig, ours_strands_less)
{
	double uniform = stranded_more("uniform"), small = stranded_more("small");

	cr_expect_lt(uniform, -25.5, "%.2f", uniform);
	cr_expect_lt(small, -25.5, "%.2f", small);
}

/* No policy is better in the long run, and ours is near. */
Test(replay_mig, ours_is_near_the_best)
{
	struct rp_mig_mix mix = mix_of("ends");
	struct rp_mig_best b = best_of("ends", 1200);
	struct rp_mig_result ours = run(&mix, "ca-fgd", 2, 3000, 1),
			     first = run(&mix, "firstfit", 2, 3000, 1);
	double units = 100.0 * (double)ours.units_placed / (double)ours.units_arrived,
	       units_first = 100.0 * (double)first.units_placed / (double)first.units_arrived,
	       placed = 100.0 * (double)ours.placed / (double)ours.arrivals;

	/* The run is the same each time; its mean is some tenths off that of an endless one. */
	cr_expect_lt(units, b.units + 1, "%.2f, best %.2f", units, b.units);
	cr_expect_lt(placed, b.workloads + 1, "%.2f, best %.2f", placed, b.workloads);
	cr_expect_gt(units, b.units - 1.5, "%.2f, best %.2f", units, b.units);
	cr_expect_gt(placed, b.workloads - 1.5, "%.2f, best %.2f", placed, b.workloads);
	cr_expect_lt(units_first, b.units - 5);
	cr_expect_float_eq(first.stranded, b.stranded_first_fit, 0.06, "%.3f, exactly %.3f",
			   first.stranded, b.stranded_first_fit);
	cr_expect_gt(ours.stranded, b.stranded - 0.04, "%.3f, least %.3f", ours.stranded,
		     b.stranded);
	cr_expect_lt(ours.stranded, b.stranded + 0.08, "%.3f, least %.3f", ours.stranded,
		     b.stranded);
	cr_expect_geq(b.refusing_workloads, b.workloads - b.width);
	cr_expect_geq(b.refusing_units, b.units - b.width);
}

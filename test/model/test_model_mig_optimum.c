/* Placement of MIG instances on up to 3 GPUs, up to 12 requests, none leaves, against three references:
 * the optimum of one who knows all requests beforehand and may refuse some that fit (the order does not
 * matter to it: it picks one legal set of instances for each GPU), and the two of small_mig.h, which
 * refuse nothing that fits, as the policies do. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "policy/policy.h"
#include "test/lib/place.h"
#include "test/model/small_mig.h"

#define PROFILES 5
#define REQUESTS 12
#define SETS_MAX 64

static const char *const names[PROFILES] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};

struct set {
	uint8_t n[PROFILES];
};

static struct set sets[SETS_MAX];
static size_t set_count;

static const struct st_mig_geometry *a100;
static int profiles[PROFILES];

static void setup(void)
{
	a100 = st_mig_table_find(PLACE_A100, PLACE_A100_MIB);
	for (int p = 0; p < PROFILES; p++)
		profiles[p] = st_mig_profile_find(a100, names[p]);
}

TestSuite(model_mig_optimum, .init = setup);

/* Every multiset of instances that is legal on one GPU. */
static void walk(uint64_t placed, struct set s)
{
	size_t i = 0;

	while (i < set_count && memcmp(&sets[i], &s, sizeof(s)) != 0)
		i++;
	if (i == set_count) {
		cr_assert_lt(set_count, SETS_MAX);
		sets[set_count++] = s;
	}
	for (int p = 0; p < PROFILES; p++) {
		int q = profiles[p];

		for (int k = 0; k < a100->profiles[q].start_count; k++) {
			int start = a100->profiles[q].starts[k];
			uint64_t bit = st_mig_bit(a100, q, start);
			struct set more = s;

			if (bit < (placed & ~bit) || !st_mig_can_place(a100, placed, q, start))
				continue; /* bits ascend: each set of places once */
			more.n[p]++;
			walk(placed | bit, more);
		}
	}
}

/* What counts: memory units, or workloads. */
static const int by_units[PROFILES] = {1, 2, 4, 4, 8}, by_count[PROFILES] = {1, 1, 1, 1, 1};
static const int *const worths[2] = {by_units, by_count};

/* The most that GPUs can hold of these requests. */
static int optimum(const struct set *left, int gpus, const int *worth)
{
	int best = 0;

	for (size_t i = 0; gpus > 0 && i < set_count; i++) {
		struct set rest = *left;
		int sum = 0;
		bool enough = true;

		for (int p = 0; p < PROFILES; p++) {
			enough = enough && sets[i].n[p] <= left->n[p];
			rest.n[p] = (uint8_t)(rest.n[p] - sets[i].n[p]);
			sum += sets[i].n[p] * worth[p];
		}
		if (!enough)
			continue;
		sum += optimum(&rest, gpus - 1, worth);
		best = sum > best ? sum : best;
	}
	return best;
}

/* ---- placement one by one ---- */

struct site {
	struct st_cluster *c;
	struct po_placer *p;
};

static struct site site_new(const char *policy, const int64_t *weight, int gpus)
{
	struct po_options opt = {.policy = po_policy_find(policy)};
	struct site s = {.c = st_cluster_new(NULL)};

	s.p = po_placer_new(s.c, &opt);
	place_node_mig(s.c, "n", PLACE_A100, (size_t)gpus, PLACE_A100_MIB, (1U << gpus) - 1);
	for (int i = 0; i < PROFILES; i++) {
		struct st_request req = place_request(1, place_mig(names[i], 1));

		for (int64_t k = 0; k < weight[i]; k++)
			cr_assert_eq(po_placer_learn(s.p, &req, NULL), 0);
	}
	cr_assert_eq(po_placer_rebuild(s.p, NULL), 0);
	return s;
}

static void site_free(struct site *s)
{
	po_placer_free(s->p);
	st_cluster_free(s->c);
}

/* What is placed of the requests in this order, by each worth; the GPUs are empty again afterwards. */
static void online(struct site *s, const int *requests, int count, int64_t sum[2])
{
	char uids[REQUESTS][16];
	bool placed[REQUESTS] = {false};

	for (int i = 0; i < count; i++) {
		struct st_request req = place_request(1, place_mig(names[requests[i]], 1));
		struct po_shape *shape = po_placer_ask(s->p, &req, 0);
		uint32_t node = po_shape_best(shape);
		struct st_pod_ident id = place_ident(uids[i], 0, 1);
		struct st_decision d;

		snprintf(uids[i], sizeof(uids[i]), "%d", i);
		if (node == ST_NONE)
			continue;
		cr_assert_eq(po_placer_choose(s->p, &req, node, 0, &d), BP_OK);
		cr_assert_eq(st_cluster_reserve(s->c, &id, &d, NULL), 0);
		placed[i] = true;
		for (int k = 0; k < 2; k++)
			sum[k] += worths[k][requests[i]];
	}
	for (int i = 0; i < count; i++)
		if (placed[i])
			place_gone(s->c, uids[i]);
}

static const int64_t mixes[][PROFILES] = {
	{1, 1, 1, 1, 1}, {10, 5, 3, 1, 1}, {1, 2, 4, 5, 8}, {9, 1, 1, 1, 8}, {2, 7, 7, 3, 1}};

/* Requests of a mix. full: 12 of them; else as many as come before one would not fit the GPUs' units. */
static int draw_requests(struct rng *r, const int64_t *weight, int gpus, bool full,
			 int requests[REQUESTS], struct set *ret_all)
{
	int64_t total = 0;
	int count = 0, units = 0;

	*ret_all = (struct set){{0}};
	for (int p = 0; p < PROFILES; p++)
		total += weight[p];
	while (count < REQUESTS) {
		int64_t at = (int64_t)rng_below(r, (uint64_t)total);
		int p = 0;

		while (at >= weight[p])
			at -= weight[p++];
		if (!full && units + by_units[p] > 8 * gpus)
			break;
		units += by_units[p];
		ret_all->n[p]++;
		requests[count++] = p;
	}
	return count;
}

/* ---- the comparison ---- */

#define MIXES 5
#define ROUNDS 100

static const char *const mix_names[MIXES] = {"uniform", "small", "large", "bimodal", "middle"};

/* Policies; then who may also refuse what fits and knows all, who refuses nothing and knows all, who
 * refuses nothing and knows the mix, and the last one where it aims at the other worth. */
enum { CA_FGD, FGD, BESTFIT, FIRSTFIT, REFUSING, FORESEEN, ONLINE, OTHER_AIM, WHO };
#define POLICIES REFUSING
static const char *const policies[POLICIES] = {"ca-fgd", "fgd", "bestfit", "firstfit"};

struct sums {
	int64_t of[WHO][2]; /* by each worth */
};

static int sum_of(const int placed[PROFILES], const int *worth)
{
	int sum = 0;

	for (int p = 0; p < PROFILES; p++)
		sum += placed[p] * worth[p];
	return sum;
}

static void references(const struct sm_graph *g, struct sm_online *const best[2], int gpus,
		       const int *requests, int count, const struct set *all, struct sums *s)
{
	for (int k = 0; k < 2; k++) {
		int refusing = optimum(all, gpus, worths[k]);
		int foreseen = sm_foreseen(g, requests, count, worths[k]);
		int placed[PROFILES];

		cr_assert_leq(foreseen, refusing);
		sm_online_play(best[k], requests, count, placed);
		cr_assert_leq(sum_of(placed, worths[k]), foreseen);
		s->of[REFUSING][k] += refusing;
		s->of[FORESEEN][k] += foreseen;
		s->of[ONLINE][k] += sum_of(placed, worths[k]);
		s->of[OTHER_AIM][1 - k] += sum_of(placed, worths[1 - k]);
	}
}

/* Of one mix and number of GPUs. */
static struct sums compare(struct rng *r, const int64_t *weight, int gpus, bool full)
{
	struct sm_mix mix = {.most = REQUESTS, .capacity = !full};
	struct sums s = {{{0}}};
	struct sm_graph *g;
	struct sm_online *best[2];
	struct site sites[POLICIES];

	g = sm_graph_new(a100, profiles, gpus);
	memcpy(mix.weight, weight, sizeof(mix.weight));
	for (int k = 0; k < 2; k++)
		best[k] = sm_online_new(g, &mix, worths[k]);
	for (int p = 0; p < POLICIES; p++)
		sites[p] = site_new(policies[p], weight, gpus);
	for (int round = 0; round < ROUNDS; round++) {
		int requests[REQUESTS];
		struct set all;
		int count = draw_requests(r, weight, gpus, full, requests, &all);

		for (int p = 0; p < POLICIES; p++)
			online(&sites[p], requests, count, s.of[p]);
		references(g, best, gpus, requests, count, &all, &s);
	}
	for (int p = 0; p < POLICIES; p++)
		site_free(&sites[p]);
	for (int k = 0; k < 2; k++)
		sm_online_free(best[k]);
	sm_graph_free(g);
	return s;
}

static double percent(const struct sums *s, int who, int of, int worth)
{
	return 100 * (double)s->of[who][worth] / (double)s->of[of][worth];
}

static void print_part(const char *what, const struct sums *s, int who)
{
	printf("  %-8s", what);
	for (int k = 0; k < 2; k++)
		for (int of = REFUSING; of <= ONLINE; of++)
			printf(" %5.1f", percent(s, who, of, k));
	printf("\n");
}

/* All mixes and numbers of GPUs together; prints them one by one. */
static struct sums compare_all(bool full)
{
	struct sums all = {{{0}}}, of_mix[MIXES] = {0}, of_gpus[3] = {0};
	struct rng r;

	rng_init(&r, 11);
	for (int k = 0; k < 3 * MIXES; k++) {
		struct sums s = compare(&r, mixes[k / 3], 1 + k % 3, full);

		for (int i = 0; i < 2 * WHO; i++) {
			of_mix[k / 3].of[i / 2][i % 2] += s.of[i / 2][i % 2];
			of_gpus[k % 3].of[i / 2][i % 2] += s.of[i / 2][i % 2];
			all.of[i / 2][i % 2] += s.of[i / 2][i % 2];
		}
	}
	printf("%s: ca-fgd in %% of who knows all and may refuse, knows all, knows the mix;\n"
	       "  three times units, three times workloads\n",
	       full ? "12 requests" : "requests up to the capacity");
	for (int m = 0; m < MIXES; m++)
		print_part(mix_names[m], &of_mix[m], CA_FGD);
	for (int i = 0; i < 3; i++)
		print_part((const char *const[]){"1 GPU", "2 GPUs", "3 GPUs"}[i], &of_gpus[i],
			   CA_FGD);
	printf("  together:\n");
	for (int p = 0; p < POLICIES; p++)
		print_part(policies[p], &all, p);
	printf("  the third, for most workloads: %.1f %% of ca-fgd's units; for most units: %.1f %% "
	       "of its workloads\n",
	       percent(&all, OTHER_AIM, CA_FGD, 0), percent(&all, OTHER_AIM, CA_FGD, 1));
	return all;
}

/* Requests that would fit the units: within 3 % in each respect. */
Test(model_mig_optimum, near_one_who_knows_all_requests)
{
	struct sums s;

	walk(0, (struct set){{0}});
	cr_assert_eq(set_count, 38);
	s = compare_all(false);
	cr_expect_geq(percent(&s, CA_FGD, FORESEEN, 0), 97);
	cr_expect_geq(percent(&s, CA_FGD, FORESEEN, 1), 98);
	cr_expect_geq(percent(&s, CA_FGD, ONLINE, 0), 99);
	cr_expect_geq(percent(&s, CA_FGD, ONLINE, 1), 99.5);
	cr_expect_lt(percent(&s, FIRSTFIT, FORESEEN, 0), 95);
	cr_expect_geq(percent(&s, CA_FGD, REFUSING, 0), 96);
	cr_expect_geq(percent(&s, CA_FGD, REFUSING, 1), 98);
}

/* More requests than fit: the most units and the most workloads are two aims, for who wants the second
 * puts small instances where they keep large ones out. */
Test(model_mig_optimum, near_it_when_not_all_fit)
{
	struct sums s;

	walk(0, (struct set){{0}});
	s = compare_all(true);
	cr_expect_geq(percent(&s, CA_FGD, FORESEEN, 0), 97.5);
	cr_expect_geq(percent(&s, CA_FGD, ONLINE, 0), 98.5);
	cr_expect_geq(percent(&s, CA_FGD, ONLINE, 1), 92);
	cr_expect_gt(percent(&s, CA_FGD, FORESEEN, 0), percent(&s, FIRSTFIT, FORESEEN, 0));
	cr_expect_gt(percent(&s, CA_FGD, OTHER_AIM, 0), 102);
	cr_expect_geq(percent(&s, CA_FGD, OTHER_AIM, 1), 97);
	cr_expect_geq(percent(&s, CA_FGD, REFUSING, 0), 93);
}

/* ---- the references against plain search: every start of every GPU, nothing taken for alike ---- */

#define GPUS 2
#define FEW 4

static int plain_foreseen(const uint64_t placed[GPUS], const int *requests, int count,
			  const int *worth)
{
	int q, best = -1;

	if (count == 0)
		return 0;
	q = profiles[*requests];
	for (int i = 0; i < GPUS * a100->profiles[q].start_count; i++) {
		uint64_t next[GPUS] = {placed[0], placed[1]};
		int start = a100->profiles[q].starts[i / GPUS], v;

		if (!st_mig_can_place(a100, placed[i % GPUS], q, start))
			continue;
		next[i % GPUS] |= st_mig_bit(a100, q, start);
		v = worth[*requests] + plain_foreseen(next, requests + 1, count - 1, worth);
		best = v > best ? v : best;
	}
	return best >= 0 ? best : plain_foreseen(placed, requests + 1, count - 1, worth);
}

static double plain_mean(const uint64_t placed[GPUS], const struct sm_mix *mix, int left, int room,
			 const int *worth)
{
	double sum = 0, total = 0;

	for (int p = 0; left > 0 && p < PROFILES; p++) {
		int q = profiles[p];
		int rest = room - (mix->capacity ? by_units[p] : 0);
		double best = -1;

		total += (double)mix->weight[p];
		for (int i = 0; rest >= 0 && i < GPUS * a100->profiles[q].start_count; i++) {
			uint64_t next[GPUS] = {placed[0], placed[1]};
			int start = a100->profiles[q].starts[i / GPUS];
			double v;

			if (!st_mig_can_place(a100, placed[i % GPUS], q, start))
				continue;
			next[i % GPUS] |= st_mig_bit(a100, q, start);
			v = worth[p] + plain_mean(next, mix, left - 1, rest, worth);
			best = v > best ? v : best;
		}
		if (rest >= 0 && best < 0)
			best = plain_mean(placed, mix, left - 1, rest, worth);
		sum += rest >= 0 ? (double)mix->weight[p] * best : 0;
	}
	return total > 0 ? sum / total : 0;
}

/* The mean of what is placed of every sequence there is. */
static double played_mean(struct sm_online *o, const struct sm_mix *mix, int room, const int *worth)
{
	double sum = 0, all = 0;
	int sequences = 1;

	for (int i = 0; i < mix->most; i++)
		sequences *= PROFILES;
	for (int code = 0; code < sequences; code++) {
		int requests[FEW], placed[PROFILES], count = 0, units = 0;
		double weight = 1;

		for (int i = 0, c = code; i < mix->most; i++, c /= PROFILES) {
			units += by_units[c % PROFILES];
			if (!mix->capacity || units <= room)
				requests[count++] = c % PROFILES;
			else
				units = room; /* nothing fits any more */
			weight *= (double)mix->weight[c % PROFILES];
		}
		sm_online_play(o, requests, count, placed);
		sum += weight * sum_of(placed, worth);
		all += weight;
	}
	return sum / all;
}

static void check_references(const struct sm_graph *g, struct rng *r, const struct sm_mix *mix,
			     int gpus, const int *worth)
{
	/* The second GPU is full where it is not meant to be there. */
	uint64_t placed[GPUS] = {0, gpus < 2 ? st_mig_bit(a100, profiles[4], 0) : 0};
	struct sm_online *o = sm_online_new(g, mix, worth);
	double want = plain_mean(placed, mix, mix->most, 8 * gpus, worth);

	cr_expect_float_eq(sm_online_expected(o), want, 1e-9);
	cr_expect_float_eq(played_mean(o, mix, 8 * gpus, worth), want, 1e-9);
	sm_online_free(o);
	for (int round = 0; round < 10; round++) {
		int requests[REQUESTS];
		struct set all;

		draw_requests(r, mix->weight, gpus, true, requests, &all);
		cr_expect_eq(sm_foreseen(g, requests, mix->most, worth),
			     plain_foreseen(placed, requests, mix->most, worth));
	}
}

Test(model_mig_optimum, references_equal_plain_search)
{
	struct rng r;

	rng_init(&r, 3);
	for (int gpus = 1; gpus <= GPUS; gpus++) {
		struct sm_graph *g = sm_graph_new(a100, profiles, gpus);

		for (int k = 0; k < 2 * 2 * MIXES; k++) {
			struct sm_mix mix = {.most = gpus < 2 ? FEW : FEW - 1,
					     .capacity = k / 2 % 2};

			memcpy(mix.weight, mixes[k / 4], sizeof(mix.weight));
			check_references(g, &r, &mix, gpus, worths[k % 2]);
		}
		sm_graph_free(g);
	}
}

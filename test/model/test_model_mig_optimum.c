/* Placement of MIG instances against the optimum of one who knows all requests beforehand: up to 3 GPUs
 * and 12 requests, none leaves. Without departures the order does not matter to the optimum: it picks
 * one legal set of instances for each GPU. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "policy/policy.h"
#include "test/lib/place.h"

#define PROFILES 5
#define REQUESTS 12
#define SETS_MAX 64

static const char *const names[PROFILES] = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"};

struct set {
	uint8_t n[PROFILES];
};

static struct set sets[SETS_MAX];
static size_t set_count;

static const struct st_mig_geometry *a100(void)
{
	return st_mig_table_find(PLACE_A100, PLACE_A100_MIB);
}

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
		int q = st_mig_profile_find(a100(), names[p]);

		for (int k = 0; k < a100()->profiles[q].start_count; k++) {
			int start = a100()->profiles[q].starts[k];
			uint64_t bit = st_mig_bit(a100(), q, start);
			struct set more = s;

			if (bit < (placed & ~bit) || !st_mig_can_place(a100(), placed, q, start))
				continue; /* bits ascend: each set of places once */
			more.n[p]++;
			walk(placed | bit, more);
		}
	}
}

/* What counts: memory units, or workloads. */
static const int by_units[PROFILES] = {1, 2, 4, 4, 8}, by_count[PROFILES] = {1, 1, 1, 1, 1};

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

/* What is placed of the requests in this order; the GPUs are empty again afterwards. */
static int online(struct site *s, const int *requests, int count, const int *worth)
{
	char uids[REQUESTS][16];
	bool placed[REQUESTS] = {false};
	int sum = 0;

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
		sum += worth[requests[i]];
	}
	for (int i = 0; i < count; i++)
		if (placed[i])
			place_gone(s->c, uids[i]);
	return sum;
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

/* Permille of the optimum that a policy reaches, over all mixes and numbers of GPUs. */
static int64_t reached(const char *policy, bool full, const int *worth)
{
	int64_t got = 0, want = 0;
	struct rng r;

	rng_init(&r, 11);
	for (int k = 0; k < 15; k++) {
		int gpus = 1 + k % 3;
		struct site s = site_new(policy, mixes[k / 3], gpus);

		for (int round = 0; round < 40; round++) {
			int requests[REQUESTS];
			struct set all;
			int count = draw_requests(&r, mixes[k / 3], gpus, full, requests, &all);

			got += online(&s, requests, count, worth);
			want += optimum(&all, gpus, worth);
		}
		site_free(&s);
	}
	return got * 1000 / want;
}

Test(model_mig_optimum, near_one_who_knows_all_requests)
{
	static const char *const policies[] = {"ca-fgd", "fgd", "bestfit", "firstfit"};
	int64_t v[4][4];

	walk(0, (struct set){{0}});
	cr_assert_eq(set_count, 38);
	for (int p = 0; p < 4; p++) {
		for (int k = 0; k < 4; k++)
			v[p][k] = reached(policies[p], k >= 2, k % 2 ? by_count : by_units);
		printf("%s: permille of the optimum, up to the capacity: units %lld, workloads %lld; "
		       "12 requests: units %lld, workloads %lld\n",
		       policies[p], (long long)v[p][0], (long long)v[p][1], (long long)v[p][2],
		       (long long)v[p][3]);
	}
	cr_expect_geq(v[0][0], 960);
	cr_expect_geq(v[0][1], 970);
	cr_expect_gt(v[0][0], v[3][0]);
	cr_expect_gt(v[0][2], v[3][2]);
}

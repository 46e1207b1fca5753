/* Victims on random nodes against all subsets of the candidates. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy_internal.h"
#include "test/lib/place.h"

static const struct st_config cfg = {
	.reserve_mib = 100, .clients_max = 4, .overcommit_permille = 1500};

#define CANDIDATES_MAX 10

struct problem {
	const struct st_cluster *c;
	uint32_t node;
	const struct st_request *req;
	const struct st_pod *candidates[CANDIDATES_MAX];
	bool keep[CANDIDATES_MAX]; /* must be among the victims */
	unsigned count;
	unsigned gone; /* one bit a candidate: the subset looked at */
};

static bool is_gone(const struct st_pod *pod, void *ctx)
{
	const struct problem *pr = ctx;

	for (unsigned i = 0; i < pr->count; i++)
		if (pr->candidates[i] == pod)
			return (pr->gone >> i & 1) != 0;
	return false;
}

static bool fits_without(struct problem *pr, unsigned gone)
{
	struct bp_chooser how = {.pick = BP_PICK_FIRST};
	struct st_cluster *copy;
	struct st_decision d;
	bool fits;

	pr->gone = gone;
	copy = po_copy_node(pr->c, pr->node, is_gone, pr);
	cr_assert_not_null(copy);
	cr_assert_eq(st_cluster_check(copy, ST_NONE, NULL), 0);
	fits = bp_choose(copy, &how, 0, pr->req, &d, NULL) == BP_OK;
	st_cluster_free(copy);
	return fits;
}

/* False: too many candidates for this test. */
static bool state(struct problem *pr, int32_t priority, const char *const *proposed, size_t n)
{
	for (const struct st_pod *pod = st_cluster_node_pod_next(pr->c, pr->node, NULL); pod;
	     pod = st_cluster_node_pod_next(pr->c, pr->node, pod)) {
		if (pod->priority >= priority || pod->deleting || pod->state == ST_POD_BINDING)
			continue;
		if (pr->count == CANDIDATES_MAX)
			return false;
		for (size_t i = 0; i < n && pod->grant_count == 0; i++)
			pr->keep[pr->count] |= strcmp(proposed[i], pod->uid) == 0;
		pr->candidates[pr->count++] = pod;
	}
	return true;
}

static unsigned kept(const struct problem *pr)
{
	unsigned set = 0;

	for (unsigned i = 0; i < pr->count; i++)
		set |= pr->keep[i] ? 1U << i : 0;
	return set;
}

/* Fewest victims of any way; -1: there is none. */
static int fewest(struct problem *pr)
{
	unsigned must = kept(pr);
	int best = -1;

	for (unsigned set = 0; set < 1U << pr->count; set++) {
		int n = __builtin_popcount(set);

		if ((set & must) == must && (best < 0 || n < best) && fits_without(pr, set))
			best = n;
	}
	return best;
}

struct stats {
	unsigned asked, none, some, more;
};

static void check(struct problem *pr, enum bp_verdict v, const char *const *uids, size_t count,
		  struct stats *st)
{
	unsigned set = 0, must = kept(pr);
	int best = fewest(pr);

	st->asked++;
	if (v != BP_OK) {
		cr_assert_eq(best, -1, "%s, but %d victims are enough", bp_verdict_text(v), best);
		st->none++;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		unsigned k = 0;

		while (k < pr->count && strcmp(pr->candidates[k]->uid, uids[i]) != 0)
			k++;
		cr_assert_lt(k, pr->count, "%s is no candidate", uids[i]);
		cr_assert_eq(set >> k & 1, 0, "%s twice", uids[i]);
		set |= 1U << k;
	}
	cr_assert_eq(set & must, must, "a proposed pod without GPU was let go");
	cr_assert(fits_without(pr, set), "they do not make room");
	for (unsigned i = 0; i < pr->count; i++)
		if ((set & ~must) >> i & 1)
			cr_assert_not(fits_without(pr, set & ~(1U << i)), "%s need not go",
				      pr->candidates[i]->uid);
	if (best <= __builtin_popcount(must) + 1)
		cr_assert_eq((int)count, best, "%zu victims where %d are enough", count, best);
	st->some += best > 0;
	st->more += (int)count > best;
}

Test(model_victims, against_all_subsets)
{
	struct stats st = {0};

	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct place_world w;
		struct po_placer *p;

		place_world_init(&w, &cfg, seed, PLACE_SMALL);
		for (int i = 0; i < 3; i++)
			place_random_node(&w);
		p = po_placer_new(w.c, NULL);
		for (unsigned step = 0; step < 250; step++) {
			struct st_request req = place_random_request(&w, 2);
			uint32_t node = place_draw(&w, 3);
			struct problem pr = {.c = w.c, .node = node, .req = &req};
			int32_t priority = (int32_t)place_draw(&w, 5);
			const char *proposed[4], **uids = NULL;
			uint64_t log;
			size_t n = 0, count = 0;
			enum bp_verdict v;
			int rc;

			place_random_pod(&w, place_draw(&w, 3));
			if (place_chance(&w, 3))
				place_random_step(&w);
			log = st_cluster_log_end(w.c);
			for (const struct st_pod *pod = st_cluster_node_pod_next(w.c, node, NULL);
			     pod && n < 4; pod = st_cluster_node_pod_next(w.c, node, pod))
				if (place_chance(&w, 3))
					proposed[n++] = pod->uid;
			if (!state(&pr, priority, proposed, n))
				continue;
			v = po_placer_victims(p, &req, node, priority, proposed, n, &uids, &count,
					      &rc);
			cr_assert_eq(rc, 0);
			cr_assert_eq(st_cluster_log_end(w.c), log);
			check(&pr, v, uids, count, &st);
			free(uids);
		}
		cr_assert_eq(st_cluster_check(w.c, ST_NONE, NULL), 0);
		po_placer_free(p);
		place_world_fini(&w);
	}
	fprintf(stderr, "%u asked, %u without a way, %u with victims, %u with more than needed\n",
		st.asked, st.none, st.some, st.more);
	cr_assert_gt(st.some, 150);
	cr_assert_gt(st.none, 150);
	cr_assert_lt(st.more * 50, st.some);
}

/* Every allocation of asking, choosing, learning and reporting fails once: each failure is told, and
 * what is asked afterwards is answered as if nothing had happened. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fragmentation/measure_internal.h"
#include "policy/policy_internal.h"
#include "test/lib/oom.h"
#include "test/lib/place.h"

#define NODES 70 /* more than a tree starts with */

static const char *const names[] = {"ca-fgd", "fgd", "bid-price", "bestfit", "random"};
#define POLICIES (sizeof(names) / sizeof(names[0]))

static struct st_cluster *c;
static struct st_request req, other;
static struct po_answer right[NODES];

static void make_cluster(void)
{
	c = st_cluster_new(NULL);
	for (int i = 0; i < NODES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		if (i % 10 == 7)
			place_node_mig(c, name, PLACE_A100, 2, PLACE_A100_MIB, 1);
		else
			place_node(c, name, 64000, 1 + (size_t)i % 4, i % 3 ? 16384 : 24576);
	}
	for (int i = 0; i < 40; i++) {
		struct st_item it = place_share(1000 + 100 * i);
		char uid[16];

		snprintf(uid, sizeof(uid), "p%d", i);
		if (i % 10 != 7)
			place_hold(c, (uint32_t)i, uid, &it, 0, 0);
	}
	req = place_request(1000, place_share(4000));
	other = place_request(4000, place_fraction(500000000));
}

static void drop_cluster(void)
{
	st_cluster_free(c);
}

TestSuite(placer_oom, .init = make_cluster, .fini = drop_cluster);

static struct po_placer *placer(const char *policy)
{
	struct po_options opt = {.policy = po_policy_find(policy), .popularity_percent = 100};

	return po_placer_new(c, &opt);
}

/* What a placer that was never short of memory says. */
static void note_right(const char *policy)
{
	struct po_placer *p = placer(policy);
	struct po_shape *s;

	cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
	s = po_placer_ask(p, &req, 5);
	for (uint32_t id = 0; id < NODES; id++)
		right[id] = po_shape_node(s, id);
	po_placer_free(p);
}

static void check_right(struct po_placer *p, const char *policy, unsigned n)
{
	struct po_shape *s = po_placer_ask(p, &req, 5);

	cr_assert_not_null(s);
	for (uint32_t id = 0; id < NODES; id++) {
		struct po_answer a = po_shape_node(s, id);

		cr_assert_eq(a.verdict, right[id].verdict, "%s, allocation %u, node %u", policy, n,
			     id);
		cr_assert_eq(a.key, right[id].key, "%s, allocation %u, node %u: %d, not %d", policy,
			     n, id, a.score, right[id].score);
	}
}

/* From nothing: a placer, one request learned, the first question. */
Test(placer_oom, first_question)
{
	for (size_t i = 0; i < POLICIES; i++) {
		unsigned tried = 0;

		if (strcmp(names[i], "bid-price") == 0)
			continue; /* its first question searches for prices; see rebuilding */
		note_right(names[i]);
		OOM_SWEEP(n) {
			struct po_shape *s = NULL;
			struct po_placer *p;
			int rc = 0;
			bool hit;

			oom_fail_at(n);
			p = placer(names[i]);
			if (p)
				rc = po_placer_learn(p, &other, NULL);
			if (p && rc == 0)
				s = po_placer_ask(p, &req, 5);
			hit = oom_disarm();
			cr_assert_eq(hit, s == NULL, "%s, allocation %u", names[i], n);
			if (p && rc < 0)
				cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
			if (p)
				check_right(p, names[i], n);
			po_placer_free(p);
			tried = n;
			if (!hit)
				break;
		}
		cr_assert_gt(tried, 8);
	}
}

/* All allocations from the n-th on fail. */
Test(placer_oom, nothing_left)
{
	note_right("ca-fgd");
	OOM_SWEEP(n) {
		struct po_placer *p = placer("ca-fgd");
		struct po_shape *s;
		bool hit;

		cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
		oom_fail_from(n);
		s = po_placer_ask(p, &req, 5);
		hit = oom_disarm();
		cr_assert_eq(hit, s == NULL);
		check_right(p, "ca-fgd", n);
		po_placer_free(p);
		if (!hit)
			break;
	}
}

/* A placer that knows the cluster; then nodes come and change, and it is asked again. */
Test(placer_oom, after_changes)
{
	struct po_placer *p[POLICIES];
	struct st_item it = place_share(2500);

	for (size_t i = 0; i < POLICIES; i++) {
		p[i] = placer(names[i]);
		cr_assert_eq(po_placer_learn(p[i], &other, NULL), 0);
		cr_assert_not_null(po_placer_ask(p[i], &req, 5));
	}
	for (unsigned n = 1; n < 60; n++) {
		/* GPUs in states that were never seen, of a size that was never seen. */
		struct st_gpu_spec gpus[2] = {{.mem_mib = 20000 + (int32_t)n}, {.mem_mib = 9000}};
		struct st_node_spec spec = {.name = "n3",
					    .product = "L4",
					    .cpu_milli = 64000,
					    .gpu_count = 2,
					    .gpus = gpus};
		char uid[16];

		snprintf(uid, sizeof(uid), "x%u", n);
		it.request_mib = 100 + (int32_t)n;
		place_hold(c, 5, uid, &it, 0, 0);
		cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
		for (size_t i = 0; i < POLICIES; i++) {
			struct po_shape *s;
			struct po_answer a;
			bool hit;

			if (strcmp(names[i], "bid-price") != 0)
				note_right(names[i]);
			oom_fail_at(1 + n % 7);
			s = po_placer_ask(p[i], &req, 5);
			hit = oom_disarm();
			cr_assert_eq(hit, s == NULL, "%s, round %u", names[i], n);
			s = po_placer_ask(p[i], &req, 5);
			a = po_shape_node(s, 3);
			if (strcmp(names[i], "bid-price") != 0)
				check_right(p[i], names[i], n);
			else /* at the prices it has, by another question on the same state */
				cr_assert_eq(a.verdict, BP_OK);
		}
	}
	for (size_t i = 0; i < POLICIES; i++)
		po_placer_free(p[i]);
}

/* Rows of GPU states run out while a known node is rated for a new request. */
Test(placer_oom, new_requests)
{
	for (size_t i = 0; i < 3; i++) {
		struct po_placer *p = placer(names[i]), *twin = placer(names[i]);

		cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
		cr_assert_eq(po_placer_learn(twin, &other, NULL), 0);
		for (int32_t k = 0; k < 120; k++) {
			struct st_request odd = place_request(1000, place_share(1 + 7 * k));
			struct po_shape *s, *t;
			bool hit;

			oom_fail_at(1 + (unsigned)k % 5);
			s = po_placer_ask(p, &odd, 0);
			hit = oom_disarm();
			cr_assert_eq(hit, s == NULL);
			s = po_placer_ask(p, &odd, 0);
			t = po_placer_ask(twin, &odd, 0);
			for (uint32_t id = 0; id < NODES; id++)
				cr_assert_eq(po_shape_node(s, id).key, po_shape_node(t, id).key,
					     "%s, request %d, node %u", names[i], k, id);
		}
		po_placer_free(p);
		po_placer_free(twin);
	}
}

/* Rows of GPU states are made while a node is taken in, and while it is rated. When they cannot be, it
 * is told, and told again, and then right. */
Test(placer_oom, rows_run_out)
{
	unsigned failed[2] = {0};

	for (size_t i = 0; i < 2; i++) {
		struct po_placer *p = placer(names[i]);

		cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
		cr_assert_not_null(po_placer_ask(p, &req, 5));
		for (int32_t k = 0; k < 900; k++) {
			struct st_item it = place_share(1 + k);
			struct po_shape *s, *again;

			place_hold(c, 1, "x", &it, 1, 0);
			if (k % 3 == 0)
				place_hold(c, 2, "y", &it, 1, 0);
			oom_fail_from(1);
			s = po_placer_ask(p, &req, 5);
			again = po_placer_ask(p, &req, 5);
			cr_assert_eq(oom_disarm(), s == NULL);
			cr_assert_eq(s == NULL, again == NULL);
			if (!s) {
				failed[p->measure_pos == 0]++;
				note_right(names[i]);
				check_right(p, names[i], (unsigned)k);
			}
			place_gone(c, "x");
			if (k % 3 == 0)
				place_gone(c, "y");
		}
		po_placer_free(p);
	}
	cr_assert(failed[0] > 0, "never while rated");
	cr_assert(failed[1] > 0, "never while taken in");
}

/* Rows are forgotten, and a GPU of a kind that is not known yet stands in the way of the rest. */
Test(placer_oom, rows_are_renewed)
{
	struct st_gpu_spec gpus[2] = {{.mem_mib = 30000}, {.mem_mib = 9000}};
	struct st_node_spec spec = {
		.name = "n3", .product = "L4", .cpu_milli = 64000, .gpu_count = 2, .gpus = gpus};
	struct po_placer *p = placer("ca-fgd");

	cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
	cr_assert_not_null(po_placer_ask(p, &req, 5));
	for (int32_t k = 0; k < 40; k++) {
		p->measure->row_limit = 4;
		gpus[0].mem_mib++;
		cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
		oom_fail_from(1);
		cr_assert_null(po_placer_ask(p, &req, 5));
		cr_assert(oom_disarm());
		note_right("ca-fgd");
		check_right(p, "ca-fgd", (unsigned)k);
	}
	po_placer_free(p);
}

Test(placer_oom, repricing)
{
	struct po_placer *p = placer("bid-price");
	struct st_gpu_spec gpu = {.mem_mib = 30000};
	struct st_node_spec spec = {
		.name = "n3", .product = "L4", .cpu_milli = 64000, .gpu_count = 1, .gpus = &gpu};
	struct err err = ERR_INIT;

	cr_assert_not_null(po_placer_ask(p, &req, 5));
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	oom_fail_from(1);
	cr_expect_eq(po_placer_reprice(p, &err), ERR_NOMEM);
	cr_expect(oom_disarm());
	cr_expect_gt(strlen(err.msg), 0);
	cr_expect_eq(po_placer_reprice(p, &err), 0);
	po_placer_free(p);
}

/* Choosing works without memory for the measure, if not as well. */
Test(placer_oom, choosing)
{
	for (size_t i = 0; i < POLICIES; i++) {
		struct po_placer *p = placer(names[i]);
		struct st_pod_ident id = place_ident("new", 0, 1000);
		struct st_decision d, e;

		oom_fail_from(1);
		cr_expect_eq(po_placer_choose(p, &req, 4, 5, &d), BP_OK);
		oom_disarm();
		cr_expect_eq(st_cluster_can_book(c, &id, &d, true, NULL), 0);
		cr_expect_eq(po_placer_choose(p, &req, 4, 5, &d), BP_OK);
		cr_expect_eq(po_placer_choose(p, &req, 4, 5, &e), BP_OK);
		cr_expect_eq(d.grants[0].gpu[0], e.grants[0].gpu[0]);
		po_placer_free(p);
	}
}

Test(placer_oom, learning)
{
	struct po_options opt = {.policy = po_policy_find("ca-fgd"), .learn = true};
	struct po_placer *p = po_placer_new(c, &opt);
	unsigned failed = 0;

	for (int32_t k = 0; k < 400; k++) {
		struct st_request odd = place_request(1000, place_share(1 + k));
		const struct fr_workload *before = po_placer_workload(p);
		struct err err = ERR_INIT;
		int rc;
		bool hit;

		oom_fail_at(1 + (unsigned)k % 4);
		rc = po_placer_learn(p, &odd, &err);
		hit = oom_disarm();
		cr_assert_eq(hit, rc < 0);
		if (rc < 0) {
			cr_assert_eq(rc, ERR_NOMEM);
			cr_assert_eq(po_placer_workload(p), before);
			cr_assert_gt(strlen(err.msg), 0);
			failed++;
		}
	}
	cr_assert_gt(failed, 50);
	cr_assert_eq(po_placer_rebuild(p, NULL), 0);
	cr_assert_not_null(po_placer_ask(p, &req, 0));
	po_placer_free(p);
}

Test(placer_oom, rebuilding)
{
	for (size_t i = 0; i < POLICIES; i++) {
		struct po_placer *p = placer(names[i]);
		uint64_t key;

		cr_assert_eq(po_placer_learn(p, &other, NULL), 0);
		key = po_shape_node(po_placer_ask(p, &req, 5), 4).key;
		OOM_SWEEP(n) {
			struct err err = ERR_INIT;
			int rc;
			bool hit;

			oom_fail_at(n);
			rc = po_placer_rebuild(p, &err);
			hit = oom_disarm();
			cr_assert_eq(rc, hit ? ERR_NOMEM : 0, "%s, allocation %u", names[i], n);
			if (!hit)
				break;
			cr_assert_eq(po_shape_node(po_placer_ask(p, &req, 5), 4).key, key);
		}
		cr_assert_eq(po_shape_node(po_placer_ask(p, &req, 5), 4).key, key);
		po_placer_free(p);
	}
}

Test(placer_oom, reports)
{
	for (size_t i = 0; i < POLICIES; i++) {
		struct po_placer *p = placer(names[i]);
		struct po_fragmentation f = {0}, g = {0};

		if (strcmp(names[i], "bid-price") == 0)
			cr_assert_not_null(po_placer_ask(p, &req, 0));
		OOM_SWEEP(n) {
			int rc, rc2 = 0;
			bool hit;

			oom_fail_at(n);
			rc = po_placer_fragmentation(p, &f, NULL);
			if (rc == 0)
				rc2 = po_placer_measure(p, &g, NULL);
			hit = oom_disarm();
			cr_assert_eq(hit, rc < 0 || rc2 < 0);
			if (!hit)
				break;
		}
		cr_assert_gt(f.idle_milli, 0);
		cr_assert_eq(f.idle_milli, g.idle_milli);
		po_placer_free(p);
	}
}

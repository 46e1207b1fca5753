/* The model when memory is short: it fails, and is as it was before. */
#include <criterion/criterion.h>
#include <string.h>

#include "test/lib/oom.h"
#include "test/unit/state_fixture.h"

static struct st_cluster *c;
static struct fx_node node;

static void setup(void)
{
	c = st_cluster_new(NULL);
	cr_assert_not_null(c);
	fx_node_init(&node, "n1", 4, 40960);
}

static void teardown(void)
{
	fx_check(c);
	st_cluster_free(c);
}

TestSuite(state_oom, .init = setup, .fini = teardown);

/* ---- out of memory ---- */

static void same_after_failure(uint64_t end, size_t pods)
{
	fx_check(c);
	cr_assert_eq(st_cluster_log_end(c), end);
	cr_assert_eq(st_cluster_pod_count(c), pods);
}

Test(state_oom, oom_in_new)
{
	OOM_SWEEP(n) {
		struct st_cluster *other;
		bool hit;

		oom_fail_at(n);
		other = st_cluster_new(NULL);
		hit = oom_disarm();
		cr_assert_eq(other == NULL, hit);
		st_cluster_free(other);
		if (!hit)
			break;
	}
}

/* Puts once for each failing allocation, then once with success; names differ so that tables and
 * log grow in the middle of it. */
Test(state_oom, oom_in_node_put)
{
	char name[16];

	node.spec.why_unready = "x";
	node.gpus[0].foreign = "pid 1";
	for (uint32_t i = 0; i < 300; i++) {
		struct st_mig_geometry g = *st_mig_table_at(1);

		snprintf(name, sizeof(name), "n%u", i);
		node.spec.name = name;
		node.spec.product = i % 2 ? name : "NVIDIA A100-SXM4-40GB";
		g.profiles[0].mem_mib = (int32_t)i;
		fx_node_mig(&node, 1, i % 3 ? &g : NULL);
		OOM_SWEEP(n) {
			struct err e = ERR_INIT;
			uint64_t end = st_cluster_log_end(c);
			uint32_t id = ST_NONE;
			bool hit;
			int r;

			oom_fail_at(n);
			r = st_cluster_node_put(c, &node.spec, &id, &e);
			hit = oom_disarm();
			cr_assert_eq(r, hit ? ERR_NOMEM : 0, "%s", e.msg);
			if (!hit)
				break;
			cr_assert_neq(e.msg[0], '\0');
			same_after_failure(end, 0);
			cr_assert_eq(st_cluster_node_count(c), i);
		}
	}
}

Test(state_oom, oom_in_node_put_of_a_known_node)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 3, 10);

	fx_reserve(c, "a", &d);
	fx_observe(c, "plugin", id, NULL, 2);
	node.spec.why_unready = "x";
	node.gpus[0].uuid = "new";
	node.gpus[1].foreign = "pid 1";
	node.spec.gpu_count = 3;
	OOM_SWEEP(n) {
		uint64_t end = st_cluster_log_end(c);
		bool hit;
		int r;

		oom_fail_at(n);
		r = st_cluster_node_put(c, &node.spec, NULL, NULL);
		hit = oom_disarm();
		cr_assert_eq(r, hit ? ERR_NOMEM : 0);
		if (!hit)
			break;
		same_after_failure(end, 2);
		cr_assert_str_eq(fx_gpu(c, id, 0)->uuid, "n1-0");
	}
	cr_expect_eq(fx_gpu(c, id, 3)->taken, ST_TAKEN_GONE);
}

/* step: 0 reserve, 1 observe a new pod, 2 observe another allocation of a known one, 3 fence */
static void sweep_pod(int step, const char *uid, const struct st_decision *d)
{
	struct st_pod_ident pod = fx_pod(uid);
	bool fenced = false;

	OOM_SWEEP(n) {
		uint64_t end = st_cluster_log_end(c);
		size_t pods = st_cluster_pod_count(c);
		struct err e = ERR_INIT;
		bool hit;
		int r;

		oom_fail_at(n);
		if (step == 0)
			r = st_cluster_reserve(c, &pod, d, &e);
		else if (step == 3)
			r = st_cluster_fence(c, &pod, d->node, &e);
		else
			r = st_cluster_observe(c, &pod, d->node, d, 0, &fenced, &e);
		hit = oom_disarm();
		cr_assert_eq(r, hit ? ERR_NOMEM : 0, "step %d: %s", step, e.msg);
		if (!hit)
			break;
		cr_assert_not(fenced);
		same_after_failure(end, pods);
	}
}

Test(state_oom, oom_in_reserve_observe_and_fence)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision one = fx_one_share(id, 0, 10), three = fx_one_share(id, 0, 10);
	char uid[16];

	fx_share(&three, ST_MODE_TIME_SLICING, 1, 10);
	fx_share(&three, ST_MODE_TIME_SLICING, 2, 10);
	/* Enough pods for the table of pods to grow several times. */
	for (int i = 0; i < 400; i++) {
		snprintf(uid, sizeof(uid), "%d", i);
		if (i % 7 == 0) {
			sweep_pod(3, uid, &one);
			sweep_pod(1, uid, &three);
		} else if (i % 2 == 0) {
			sweep_pod(0, uid, &one);
			sweep_pod(2, uid, &three);
			sweep_pod(2, uid, &one);
		} else {
			sweep_pod(1, uid, &one);
		}
		if (st_cluster_pod_count(c) == 50)
			for (int k = i - 49; k < i - 10; k++) {
				snprintf(uid, sizeof(uid), "%d", k);
				cr_assert_eq(st_cluster_pod_move(c, uid, ST_EVENT_GONE, NULL), 0);
			}
	}
	fx_check(c);
}

Test(state_oom, can_book_and_moves_allocate_nothing)
{
	uint32_t id = fx_put(c, &node);
	struct st_decision d = fx_one_share(id, 0, 10);
	struct st_pod_ident pod = fx_pod("b");
	int r, m;

	fx_reserve(c, "a", &d);
	oom_fail_from(1);
	r = st_cluster_can_book(c, &pod, &d, true, NULL);
	m = st_cluster_pod_move(c, "a", ST_EVENT_GONE, NULL);
	cr_expect_not(oom_disarm());
	cr_expect(r == 0 && m == 0);
}

/* Preemption: which pods must go. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy_internal.h"
#include "test/lib/oom.h"
#include "test/lib/place.h"

static struct st_cluster *c;
static struct po_placer *p;
static uint32_t node;

static void start(size_t gpus)
{
	c = st_cluster_new(NULL);
	p = po_placer_new(c, NULL);
	node = place_node(c, "n", 16000, gpus, 1000);
}

static void done(void)
{
	po_placer_free(p);
	st_cluster_free(c);
}

TestSuite(victims, .fini = done);

static void hold(const char *uid, int32_t priority, struct st_item it, unsigned gpu)
{
	struct st_pod_ident id = place_ident(uid, priority, 500);

	place_hold_as(c, node, &id, &it, gpu, 0);
}

static void hold_cpu(const char *uid, int32_t priority, int64_t cpu_milli)
{
	struct st_pod_ident id = place_ident(uid, priority, cpu_milli);
	bool fenced;

	cr_assert_eq(st_cluster_observe(c, &id, node, NULL, 0, &fenced, NULL), 0);
}

/* All that a score or a person could see of the cluster. */
struct seen {
	uint64_t log;
	size_t pods;
	uint32_t version;
};

static struct seen look(void)
{
	const struct st_node *n = st_cluster_node(c, node);
	struct err err = ERR_INIT;

	cr_assert_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
	return (struct seen){st_cluster_log_end(c), st_cluster_pod_count(c), n ? n->version : 0};
}

static bool same(struct seen a, struct seen b)
{
	return a.log == b.log && a.pods == b.pods && a.version == b.version;
}

/* The victims joined by blanks, or "!" and the verdict. proposed likewise. */
static const char *victims(const struct st_request *req, int32_t priority, const char *proposed)
{
	static char text[256];
	char list[128];
	const char *names[8], **uids = NULL;
	size_t n = 0, count = 99;
	struct seen before = look(), after;
	enum bp_verdict v;
	int rc = 99;

	snprintf(list, sizeof(list), "%s", proposed);
	for (char *s = list, *one; (one = strsep(&s, " ")) != NULL;)
		if (*one)
			names[n++] = one;
	v = po_placer_victims(p, req, node, priority, names, n, &uids, &count, &rc);
	cr_assert_eq(rc, 0);
	after = look();
	cr_assert(same(before, after), "the cluster changed");
	if (v != BP_OK) {
		snprintf(text, sizeof(text), "!%s", bp_verdict_text(v));
		return text;
	}
	text[0] = '\0';
	cr_assert_not_null(uids);
	for (size_t i = 0; i < count; i++) {
		cr_assert_eq(uids[i], st_cluster_pod_find(c, uids[i])->uid, "not from the cluster");
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
			 uids[i]);
	}
	free(uids);
	return text;
}

static struct st_request share(int32_t mib)
{
	return place_request(500, place_share(mib));
}

/* ---- who goes ---- */

Test(victims, nobody_where_it_fits)
{
	struct st_request req = share(400);

	start(1);
	hold("a", 0, place_share(600), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "");
	cr_expect_str_eq(victims(&req, 10, "a"), "");
	cr_expect_str_eq(victims(&req, 10, "stranger"), "");
}

Test(victims, the_one_that_is_enough)
{
	struct st_request req = share(700);

	start(2);
	hold("small", 0, place_share(200), 0);
	hold("large", 1, place_share(500), 0);
	hold("other", 2, place_share(800), 1);
	cr_expect_str_eq(victims(&req, 10, ""), "large");
	cr_expect_str_eq(victims(&req, 10, "other"), "other"); /* proposed goes first */
	cr_expect_str_eq(victims(&req, 10, "small"), "large"); /* a proposal that makes no room */
	cr_expect_str_eq(victims(&req, 10, "small other"), "other"); /* and one that is needless */
}

Test(victims, the_least_important_ones)
{
	struct st_request req = share(900);

	start(3);
	hold("p3", 3, place_share(500), 0);
	hold("p1", 1, place_share(500), 1);
	hold("p2", 2, place_share(500), 2);
	cr_expect_str_eq(victims(&req, 4, ""), "p1");
	cr_expect_str_eq(victims(&req, 2, ""), "p1");
	cr_expect_str_eq(victims(&req, 1, ""), "!no GPU has enough memory free");
	cr_expect_str_eq(victims(&req, 0, "p1 p2 p3"), "!no GPU has enough memory free");
	cr_expect_str_eq(victims(&req, INT32_MAX, "p3"), "p3");
}

Test(victims, negative_priorities)
{
	struct st_request req = share(900);

	start(1);
	hold("a", -5, place_share(500), 0);
	cr_expect_str_eq(victims(&req, -4, ""), "a");
	cr_expect_str_eq(victims(&req, -5, ""), "!no GPU has enough memory free");
}

/* As many as needed, as few as possible, from the lower end. */
Test(victims, several_of_one_gpu)
{
	struct st_request req = share(700);

	start(1);
	hold("a", 3, place_share(250), 0);
	hold("b", 1, place_share(250), 0);
	hold("c", 2, place_share(250), 0);
	hold("d", 3, place_share(250), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "b c d");
	cr_expect_str_eq(victims(&req, 10, "d"), "d b c");
	cr_expect_str_eq(victims(&req, 3, ""), "!no GPU has enough memory free");
}

Test(victims, the_gpu_with_the_fewest_pods)
{
	struct st_request one = place_request(500, place_whole(1)),
			  two = place_request(500, place_whole(2));

	start(3);
	hold("a1", 0, place_share(100), 0);
	hold("a2", 0, place_share(100), 0);
	hold("b1", 0, place_share(500), 1);
	hold("b2", 0, place_share(100), 1);
	hold("b3", 0, place_share(100), 1);
	hold("c1", 0, place_share(10), 2);
	hold("c2", 0, place_share(10), 2);
	hold("c3", 0, place_share(10), 2);
	hold("c4", 0, place_share(10), 2);
	cr_expect_str_eq(victims(&one, 10, ""), "a2 a1");
	cr_expect_str_eq(victims(&two, 10, ""), "a2 a1 b1 b3 b2");
	cr_expect_str_eq(victims(&one, 10, "c1 c2 c3 c4"), "c4 c3 c2 c1");
}

/* A pod that holds several GPUs. */
Test(victims, pods_of_several_gpus)
{
	struct st_item wide = place_share(600);
	struct st_request req = share(900);

	wide.count = 2;
	start(3);
	hold("wide", 1, wide, 0);
	hold("first", 0, place_share(400), 0);
	hold("third", 2, place_share(900), 2);
	/* GPU 1 is free once "wide" is gone; GPU 0 is not. */
	cr_expect_str_eq(victims(&req, 10, ""), "wide");
	cr_expect_str_eq(victims(&req, 2, ""), "wide");
	req.items[0].count = 2;
	cr_expect_str_eq(victims(&req, 10, ""), "first wide"); /* "third" is more important */
	cr_expect_str_eq(victims(&req, 2, ""), "first wide");
}

Test(victims, modes)
{
	struct st_request ts = share(300), sm = place_request(500, place_sm(300, 0));

	start(2);
	hold("a", 0, place_sm(100, 0), 0);
	hold("b", 0, place_sm(100, 0), 0);
	hold("whole", 1, place_whole(1), 1);
	cr_expect_str_eq(victims(&sm, 10, ""), "");
	cr_expect_str_eq(victims(&ts, 10, ""), "whole"); /* one pod against two */
	cr_expect_str_eq(victims(&ts, 1, ""), "b a");
	cr_expect_str_eq(victims(&ts, 0, ""), "!GPUs with room are in another compute mode");
}

Test(victims, clients_and_compute)
{
	struct st_request req = place_request(500, place_sm(10, 500000000));

	start(1);
	hold("a", 0, place_sm(10, 300000000), 0);
	hold("b", 1, place_sm(10, 300000000), 0);
	hold("c", 0, place_sm(10, 0), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "a");
	cr_expect_str_eq(victims(&req, 10, "c"), "a");
}

Test(victims, mig_instances)
{
	struct st_request req = place_request(500, place_mig("3g.20gb", 1));
	struct st_item one = place_mig("1g.5gb", 1), three = place_mig("3g.20gb", 1);
	struct st_pod_ident id;

	start(0);
	node = place_node_mig(c, "m", PLACE_A100, 2, PLACE_A100_MIB, 3);
	for (unsigned i = 0; i < 4; i++) {
		static const char *const uids[] = {"i0", "i2", "j1", "j5"};

		id = place_ident(uids[i], 0, 0);
		place_hold_as(c, node, &id, &one, i / 2, i == 0 ? 0 : i == 1 ? 2 : i == 2 ? 1 : 5);
	}
	/* GPU 0 has room at 4. */
	cr_expect_str_eq(victims(&req, 10, "i0"), "");
	id = place_ident("big", 1, 0);
	place_hold_as(c, node, &id, &three, 0, 4);
	cr_expect_str_eq(victims(&req, 10, ""), "j5"); /* or j1: one is enough */
	cr_expect_str_eq(victims(&req, 10, "big"), "big");
	req = place_request(500, place_mig("7g.40gb", 1));
	cr_expect_str_eq(victims(&req, 10, ""), "j5 j1");
	req = place_request(500, place_mig("1g.6gb", 1));
	cr_expect_str_eq(victims(&req, 10, ""), "!no GPU offers this MIG profile");
}

/* Instances that nobody booked stay where they are. */
Test(victims, foreign_mig_instances)
{
	struct st_gpu_spec gpu = {.mem_mib = PLACE_A100_MIB,
				  .mig_enabled = true,
				  .instance_count = 1,
				  .instances = {{.profile = "3g.20gb", .start = 4}}};
	struct st_node_spec spec = {.name = "m",
				    .product = PLACE_A100,
				    .cpu_milli = 16000,
				    .gpu_count = 1,
				    .gpus = &gpu};
	struct st_request three = place_request(0, place_mig("3g.20gb", 1));
	struct st_request seven = place_request(0, place_mig("7g.40gb", 1));
	struct st_item one = place_mig("1g.5gb", 1);
	struct st_pod_ident id = place_ident("a", 0, 0);

	start(0);
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	place_hold_as(c, node, &id, &one, 0, 2);
	cr_expect_str_eq(victims(&three, 10, ""), "a");
	cr_expect_str_eq(victims(&seven, 10, ""), "!no free placement for this MIG profile");
}

/* ---- CPU ---- */

/* What holds no GPU and was proposed may be in the way of something we do not see: it stays. */
Test(victims, proposed_pods_without_gpu_stay)
{
	struct st_request req = share(700);

	start(1);
	hold_cpu("cpu", 0, 1000);
	hold_cpu("more", 0, 1000);
	hold_cpu("vip", 50, 1000);
	hold("gpu", 0, place_share(500), 0);
	cr_expect_str_eq(victims(&req, 10, "cpu"), "cpu gpu");
	cr_expect_str_eq(victims(&req, 10, "cpu more gpu"), "more cpu gpu");
	cr_expect_str_eq(victims(&req, 10, "vip"), "gpu"); /* not of a lower priority */
	req = share(100);
	cr_expect_str_eq(victims(&req, 10, "cpu"), "cpu");
}

Test(victims, cpu_is_made_room_for)
{
	struct st_request req = place_request(14500, place_share(700));

	start(1);
	hold_cpu("cpu1", 1, 4000);
	hold_cpu("cpu2", 2, 600);
	hold("gpu", 0, place_share(200), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "cpu1");
	cr_expect_str_eq(victims(&req, 1, ""), "!not enough CPU free");
	req.cpu_milli = 15200;
	cr_expect_str_eq(victims(&req, 10, ""), "gpu cpu1");
	req.cpu_milli = 16001;
	cr_expect_str_eq(victims(&req, 10, ""), "!node has too little CPU or memory in all");
	req = place_cpu(14500); /* a pod without GPU */
	cr_expect_str_eq(victims(&req, 10, "gpu"), "cpu1");
}

/* ---- who never goes ---- */

Test(victims, terminating_and_binding_pods)
{
	struct st_pod_ident leaving = place_ident("leaving", 0, 0),
			    fresh = place_ident("fresh", 0, 0);
	struct st_item it = place_share(500);
	struct st_decision d = {.node = 0, .grant_count = 1};
	struct st_request req = share(700);

	start(2);
	leaving.deleting = true;
	place_hold_as(c, node, &leaving, &it, 0, 0);
	d.grants[0] = place_grant(c, node, &it, it.mode, (const uint8_t[]){1}, NULL);
	cr_assert_eq(st_cluster_reserve(c, &fresh, &d, NULL), 0);
	cr_expect_str_eq(victims(&req, 10, "leaving fresh"), "!no GPU has enough memory free");
	cr_assert_eq(st_cluster_pod_move(c, "fresh", ST_EVENT_ACCEPTED, NULL), 0);
	cr_expect_str_eq(victims(&req, 10, "leaving"), "fresh");
	cr_assert_eq(st_cluster_pod_move(c, "fresh", ST_EVENT_OBSERVED, NULL), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "fresh");
}

Test(victims, unknown_and_removed_nodes)
{
	struct st_request req = share(700);

	start(1);
	hold("a", 0, place_share(500), 0);
	cr_assert_eq(st_cluster_node_remove(c, "n", NULL), 0);
	cr_expect_str_eq(victims(&req, 10, "a"), "!node is not known to tessera");
	node = 7;
	cr_expect_str_eq(victims(&req, 10, "a"), "!node is not known to tessera");
	node = 1; /* just past the last one */
	cr_expect_str_eq(victims(&req, 10, "a"), "!node is not known to tessera");
	cr_expect_null(po_copy_node(c, 7, NULL, NULL));
}

/* ---- pods that are not ours ---- */

/* An unreadable pod keeps everybody out; with it gone there is room. */
Test(victims, fenced_pods)
{
	struct st_pod_ident odd = place_ident("odd", 1, 0);
	struct st_request req = share(700);

	start(1);
	cr_assert_eq(st_cluster_fence(c, &odd, node, NULL), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "odd");
	cr_expect_str_eq(victims(&req, 1, ""),
			 "!node is fenced: a pod there has an unreadable allocation");
	hold("a", 0, place_share(500), 0);
	cr_expect_str_eq(victims(&req, 10, ""), "a odd");
}

/* A device plugin's pod is known to hold GPU 1, not any GPU: the larger one is not free without it. */
Test(victims, foreign_pods_hold_what_they_hold)
{
	struct st_gpu_spec gpus[2] = {{.mem_mib = 1000}, {.mem_mib = 5000}};
	struct st_node_spec spec = {
		.name = "mixed", .cpu_milli = 16000, .gpu_count = 2, .gpus = gpus};
	struct st_pod_ident plugin = place_ident("plugin", 1, 0);
	struct st_request req = share(3000);
	bool fenced;

	start(0);
	cr_assert_eq(st_cluster_node_put(c, &spec, &node, NULL), 0);
	hold("a", 0, place_share(500), 0);
	cr_assert_eq(st_cluster_observe(c, &plugin, node, NULL, 1, &fenced, NULL), 0);
	cr_assert_eq(st_cluster_node(c, node)->gpus[1].mode, ST_MODE_EXCLUSIVE);
	cr_expect_str_eq(victims(&req, 10, "a"), "plugin");
	cr_expect_str_eq(victims(&req, 1, "a"), "!no GPU has enough memory free");
}

/* A GPU that shrank below what was booked on it. */
Test(victims, shrunk_gpus)
{
	struct st_gpu_spec gpus[2] = {{.mem_mib = 800}, {.mem_mib = 1000}};
	struct st_node_spec spec = {.name = "n",
				    .product = "T4",
				    .cpu_milli = 16000,
				    .mem_mib = 65536,
				    .from_inventory = true,
				    .gpu_count = 2,
				    .gpus = gpus};
	struct st_request req = share(500);

	start(2);
	hold("a", 0, place_share(400), 0);
	hold("b", 0, place_share(600), 0);
	hold("c", 1, place_share(800), 1);
	cr_assert_eq(st_cluster_node_put(c, &spec, NULL, NULL), 0);
	cr_assert_eq(st_cluster_node(c, node)->gpus[0].free_mib, -200);
	cr_expect_str_eq(victims(&req, 10, ""), "c");
	cr_expect_str_eq(victims(&req, 1, ""), "b a");
	req = share(400);
	cr_expect_str_eq(victims(&req, 1, ""), "b");
	cr_expect_str_eq(victims(&req, 1, "a"), "b"); /* a going is not enough */
}

/* ---- the copy ---- */

static bool skip_b(const struct st_pod *pod, void *ctx)
{
	++*(int *)ctx;
	return strcmp(pod->uid, "b") == 0;
}

Test(victims, copies_of_nodes)
{
	struct st_cluster *copy, *less;
	const struct st_node *a, *b;
	struct err err = ERR_INIT;
	int asked = 0;

	start(3);
	hold("a", 0, place_share(500), 0);
	hold("b", 0, place_sm(300, 100000000), 1);
	hold("d", 0, place_whole(1), 2);
	hold_cpu("cpu", 0, 1000);
	copy = po_copy_node(c, node, NULL, NULL);
	less = po_copy_node(c, node, skip_b, &asked);
	cr_assert(copy && less);
	cr_expect_eq(asked, 4);
	cr_assert_eq(st_cluster_check(copy, ST_NONE, &err), 0, "%s", err.msg);
	a = st_cluster_node(c, node);
	b = st_cluster_node(copy, 0);
	cr_expect_eq(b->rank, a->rank);
	cr_expect_eq(b->cpu_left_milli, a->cpu_left_milli);
	cr_expect_eq(b->mem_left_mib, a->mem_left_mib);
	cr_expect_eq(b->pods, a->pods);
	for (int i = 0; i < 3; i++) {
		cr_expect_eq(b->gpus[i].free_mib, a->gpus[i].free_mib);
		cr_expect_eq(b->gpus[i].mode, a->gpus[i].mode);
		cr_expect_eq(b->gpus[i].clients, a->gpus[i].clients);
		cr_expect_eq(b->gpus[i].compute_left_nano, a->gpus[i].compute_left_nano);
		cr_expect_str_eq(b->gpus[i].uuid, a->gpus[i].uuid);
	}
	cr_expect_eq(st_cluster_pod_count(less), 3);
	cr_expect_eq(st_cluster_node(less, 0)->gpus[1].mode, ST_MODE_FREE);
	st_cluster_free(copy);
	st_cluster_free(less);
}

/* ---- short of memory ---- */

Test(victims, oom)
{
	struct st_request req = share(700);
	const char *const proposed[] = {"cpu", "d"};

	start(2);
	hold("a", 3, place_share(250), 0);
	hold("b", 1, place_share(250), 0);
	hold("c", 2, place_share(250), 0);
	hold("d", 3, place_share(250), 0);
	hold("e", 20, place_whole(1), 1);
	hold_cpu("cpu", 0, 1000);
	OOM_SWEEP(n) {
		const char **uids = NULL;
		struct seen before = look(), after;
		enum bp_verdict v;
		size_t count = 0;
		int rc = 0;
		bool hit;

		oom_fail_at(n);
		v = po_placer_victims(p, &req, node, 10, proposed, 2, &uids, &count, &rc);
		hit = oom_disarm();
		after = look();
		cr_assert(same(before, after));
		if (!hit) {
			cr_assert_eq(rc, 0);
			cr_assert_eq(v, BP_OK);
			cr_assert_eq(count, 4);
			free(uids);
			break;
		}
		cr_assert_eq(rc, ERR_NOMEM, "allocation %u", n);
		cr_assert_neq(v, BP_OK);
		cr_assert_null(uids);
	}
}

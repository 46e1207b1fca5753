/* Plans of moves on random clusters: the model is left alone, the moves can be made one after the
 * other, and where one move is enough it is one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "replay/defrag.h"
#include "test/lib/place.h"

static uint64_t digest(const struct st_cluster *c)
{
	uint64_t sum = 0;

	for (const struct st_pod *p = st_cluster_pod_next(c, NULL); p != NULL;
	     p = st_cluster_pod_next(c, p)) {
		uint64_t h = hash_str(p->uid, 1) ^ p->node ^ ((uint64_t)p->state << 32);

		if (p->grant_count > 0)
			h ^= hash_bytes(p->grants, p->grant_count * sizeof(*p->grants), 2);
		sum += h;
	}
	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);

		for (unsigned g = 0; g < n->gpu_count; g++)
			sum += hash_bytes(&n->gpus[g].free_mib, sizeof(int32_t), id + g);
	}
	return sum;
}

static struct po_placer *placer(struct st_cluster *c)
{
	struct po_options opt = {.policy = po_policy_find("bestfit")};

	return po_placer_new(c, &opt);
}

/* Makes the moves on the cluster, one by one; false where one cannot be made. */
static bool carry_out(struct st_cluster *c, const struct rp_moves *m, struct err *err)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct rp_move *v = &m->list[i];
		const struct st_pod *p = st_cluster_pod_find(c, v->uid);
		struct st_pod_ident id = {.ns = v->ns, .name = v->name, .uid = v->uid};

		if (p == NULL || p->node != v->from || v->to == v->from || v->d.node != v->to)
			return false;
		id.cpu_milli = p->cpu_milli;
		id.mem_mib = p->mem_mib;
		id.memory_bound = p->memory_bound;
		if (st_cluster_pod_move(c, v->uid, ST_EVENT_GONE, err) < 0 ||
		    st_cluster_can_book(c, &id, &v->d, true, err) < 0 ||
		    st_cluster_reserve(c, &id, &v->d, err) < 0 ||
		    st_cluster_pod_move(c, v->uid, ST_EVENT_ACCEPTED, err) < 0)
			return false;
	}
	return true;
}

static struct st_cluster *world(uint64_t seed, struct place_world *w)
{
	place_world_init(w, NULL, seed, PLACE_SMALL | PLACE_NO_MIG);
	for (int i = 0; i < 5; i++) {
		uint32_t node = place_random_node(w);

		for (int k = 0; k < 8; k++)
			place_random_pod(w, node);
	}
	return w->c;
}

Test(replay_defrag, room_is_made_with_moves_that_can_be_made)
{
	size_t with_moves = 0, none = 0;

	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct place_world w;
		struct st_cluster *c = world(seed, &w);
		struct st_request req = place_request(
			100, seed % 2 == 0 ? place_whole(1 + (int)(seed % 3)) : place_share(6000));
		struct po_placer *p = placer(c);
		uint64_t before = digest(c);
		struct rp_moves m = {0};
		struct err err = ERR_INIT;
		struct st_decision d;
		int rc = rp_defrag_room(c, p, &req, &m, &err);

		cr_assert_eq(digest(c), before, "seed %lu", (unsigned long)seed);
		cr_assert_eq(st_cluster_check(c, ST_NONE, &err), 0, "%s", err.msg);
		if (rc == 0) {
			cr_expect_eq(m.node_count, 1);
			cr_expect(carry_out(c, &m, &err), "seed %lu: %s", (unsigned long)seed,
				  err.msg);
			cr_expect_eq(po_placer_choose(p, &req, m.nodes[0], 0, &d), BP_OK,
				     "seed %lu", (unsigned long)seed);
			with_moves += m.count > 0;
		} else {
			cr_expect_eq(rc, ERR_NO_ROOM, "%s", err.msg);
			none++;
		}
		rp_moves_fini(&m);
		po_placer_free(p);
		place_world_fini(&w);
	}
	cr_expect_gt(with_moves, 5);
	cr_expect_gt(none, 5);
}

/* Three nodes of two GPUs, 8,000 MiB each. */
static struct st_cluster *small(void)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_item big = place_share(6000), half = place_share(3000), whole = place_whole(1);

	place_node(c, "a", 10000, 2, 8000);
	place_node(c, "b", 10000, 2, 8000);
	place_node(c, "c", 10000, 2, 8000);
	place_hold(c, 0, "a-big", &big, 0, 0);
	place_hold(c, 0, "a-half", &half, 1, 0);
	place_hold(c, 1, "b-whole", &whole, 0, 0);
	place_hold(c, 1, "b-half", &half, 1, 0);
	place_hold(c, 2, "c-half1", &half, 0, 0);
	place_hold(c, 2, "c-half2", &half, 1, 0);
	return c;
}

Test(replay_defrag, by_hand)
{
	struct st_cluster *c = small();
	struct po_placer *p = placer(c);
	struct st_request one = place_request(1, place_whole(1)), two, six;
	struct rp_moves m = {0};
	struct err err = ERR_INIT;

	/* A GPU alone: one half goes. Two on one node: c's halves go, to a and b. */
	cr_assert_eq(rp_defrag_room(c, p, &one, &m, &err), 0, "%s", err.msg);
	cr_expect_eq(m.count, 1);
	rp_moves_fini(&m);
	two = place_request(1, place_whole(2));
	cr_assert_eq(rp_defrag_room(c, p, &two, &m, &err), 0, "%s", err.msg);
	cr_expect_eq(m.count, 2);
	cr_expect_eq(m.nodes[0], 2);
	rp_moves_fini(&m);
	/* A share that fits as it is. */
	six = place_request(1, place_share(5000));
	cr_assert_eq(rp_defrag_room(c, p, &six, &m, &err), 0, "%s", err.msg);
	cr_expect_eq(m.count, 0);
	rp_moves_fini(&m);
	/* Four GPUs are on no node. */
	two = place_request(1, place_whole(4));
	cr_expect_eq(rp_defrag_room(c, p, &two, &m, &err), ERR_NO_ROOM);
	po_placer_free(p);
	st_cluster_free(c);
}

Test(replay_defrag, nodes_are_emptied)
{
	struct st_cluster *c = small();
	struct po_placer *p = placer(c);
	uint64_t before = digest(c);
	struct rp_moves m = {0};
	struct err err = ERR_INIT;

	cr_assert_eq(rp_defrag_nodes(c, p, 1, &m, &err), 0, "%s", err.msg);
	cr_expect_eq(digest(c), before);
	cr_assert_eq(m.node_count, 1);
	cr_expect(carry_out(c, &m, &err), "%s", err.msg);
	for (const struct st_pod *x = st_cluster_pod_next(c, NULL); x != NULL;
	     x = st_cluster_pod_next(c, x))
		cr_expect_neq(x->node, m.nodes[0]);
	rp_moves_fini(&m);
	cr_expect_eq(rp_defrag_nodes(c, p, 3, &m, &err), ERR_NO_ROOM);
	cr_expect_not_null(strstr(err.msg, "of 3 more nodes can be emptied"));
	rp_moves_fini(&m);
	po_placer_free(p);
	st_cluster_free(c);
}

/* Is there a pod whose move alone makes room for it? */
static bool one_move_does(struct st_cluster *c, struct po_placer *p, const struct st_request *req)
{
	const char *uids[64];
	size_t n = 0;

	for (const struct st_pod *x = st_cluster_pod_next(c, NULL); x != NULL && n < 64;
	     x = st_cluster_pod_next(c, x))
		uids[n++] = strdup(x->uid);
	for (size_t i = 0; i < n; i++) {
		const struct st_pod *x = st_cluster_pod_find(c, uids[i]);
		struct st_cluster *copy;
		struct po_placer *on_copy;
		struct po_options opt = {.policy = po_policy_find("bestfit")};
		struct st_decision d;
		struct st_request again = {.cpu_milli = x->cpu_milli, .mem_mib = x->mem_mib};
		uint32_t node = x->node, id = 0;
		struct st_grant g = {0};

		if (x->grant_count != 1 || x->foreign || x->fenced || x->deleting ||
		    x->state == ST_POD_BINDING)
			continue;
		g = x->grants[0];
		again.item_count = 1;
		again.items[0] =
			(struct st_item){.kind = g.kind,
					 .mode = g.mode,
					 .count = g.count,
					 .request_mib = g.kind == ST_KIND_SHARE ? g.request_mib : 0,
					 .limit_mib = g.kind == ST_KIND_SHARE ? g.limit_mib : 0,
					 .compute_nano = g.compute_nano};
		memcpy(again.items[0].container, g.container, sizeof(g.container));
		if (st_cluster_node(c, node)->product != STRPOOL_NONE)
			snprintf(again.product, sizeof(again.product), "%s",
				 strpool_str(st_cluster_products(c),
					     st_cluster_node(c, node)->product));
		for (; id < st_cluster_node_count(c); id++)
			if (id != node && po_placer_choose(p, &again, id, 0, &d) == BP_OK)
				break;
		if (id == st_cluster_node_count(c))
			continue;
		copy = po_copy_node(c, node, NULL, NULL);
		cr_assert_eq(st_cluster_pod_move(copy, uids[i], ST_EVENT_GONE, NULL), 0);
		on_copy = po_placer_new(copy, &opt);
		bool fits = po_placer_choose(on_copy, req, 0, 0, &d) == BP_OK;

		po_placer_free(on_copy);
		st_cluster_free(copy);
		if (fits) {
			for (size_t k = 0; k < n; k++)
				free((void *)(uintptr_t)uids[k]);
			return true;
		}
	}
	for (size_t k = 0; k < n; k++)
		free((void *)(uintptr_t)uids[k]);
	return false;
}

Test(replay_defrag, where_one_move_is_enough_it_is_one)
{
	size_t ones = 0;

	for (uint64_t seed = 1; seed <= 120; seed++) {
		struct place_world w;
		struct st_cluster *c = world(seed, &w);
		struct st_request req = place_request(100, place_whole(1 + (int)(seed % 3)));
		struct po_placer *p = placer(c);
		struct rp_moves m = {0};
		struct err err = ERR_INIT;
		bool one = one_move_does(c, p, &req);
		int rc = rp_defrag_room(c, p, &req, &m, &err);

		if (one)
			cr_expect(rc == 0 && m.count <= 1, "seed %lu: %d, %zu moves",
				  (unsigned long)seed, rc, m.count);
		if (rc == 0 && m.count == 1) {
			cr_expect(one, "seed %lu", (unsigned long)seed);
			ones++;
		}
		rp_moves_fini(&m);
		po_placer_free(p);
		place_world_fini(&w);
	}
	cr_expect_gt(ones, 3);
}

Test(replay_defrag, names_cannot_leave_their_quotes)
{
	struct st_cluster *c = small();
	struct rp_move move = {.uid = (char[]){"u"},
			       .ns = (char[]){"x'; rm -rf /; '"},
			       .name = (char[]){"$(reboot)\n"},
			       .from = 0,
			       .to = 1};
	struct rp_moves m = {.list = &move, .count = 1};
	struct rp_defrag_notes notes = {0};
	struct buf b = BUF_INIT;
	const char *text;

	notes.fixed = 1;
	rp_moves_kubectl(&b, c, &m, &notes);
	text = buf_str(&b);
	cr_assert_not_null(text);
	cr_expect_not_null(strstr(text, "\n# 1 pod without a tessera allocation is taken as fixed\n"
					"kubectl cordon 'a'\n"));
	cr_expect_not_null(strstr(text, "kubectl delete pod --wait -n 'x'\\''; rm -rf /; '\\''' "
					"'$(reboot)' # room on 'b'\n"));
	cr_expect_not_null(strstr(text, "kubectl uncordon 'a'\n"));
	buf_fini(&b);
	st_cluster_free(c);
}

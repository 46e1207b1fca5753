/* Random operations on a cluster, against a naive one and against the library's own recount after
 * each. Seed from TESSERA_SEED, else fixed; TESSERA_STEPS for longer runs. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "test/model/naive_cluster.h"

static struct rng rng;
static struct st_cluster *c;
static struct nv_cluster m;
static uint64_t log_read;
static uint32_t log_versions[NV_NODES];
static uint64_t digests[NV_NODES];
static uint32_t versions[NV_NODES];
static int step;

#define CHECK(cond, fmt, ...) cr_assert(cond, "step %d: " fmt, step, ##__VA_ARGS__)

static int pick(int n)
{
	return (int)rng_below(&rng, (uint64_t)n);
}

static bool chance(int percent)
{
	return pick(100) < percent;
}

static uint64_t env_u64(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s != NULL && s[0] != '\0' ? strtoull(s, NULL, 0) : otherwise;
}

static const char *uid_of(int p)
{
	static char uid[16];

	snprintf(uid, sizeof(uid), "pod-%d", p);
	return uid;
}

static const char *name_of(int node)
{
	static char name[16];

	snprintf(name, sizeof(name), "node-%d", node);
	return name;
}

static uint32_t id_of(int node)
{
	const char *name = name_of(node);

	return st_cluster_node_find(c, name, strlen(name));
}

/* The naive number of the GPU in that slot. */
static int gpu_of(const struct st_node *n, uint8_t slot)
{
	return (int)strtol(strchr(n->gpus[slot].uuid, '/') + 1, NULL, 10);
}

/* The slot of the naive GPU; one that does not exist where it has none. */
static uint8_t slot_of(const struct st_node *n, int gpu)
{
	for (uint8_t i = 0; i < n->gpu_count; i++)
		if (gpu_of(n, i) == gpu)
			return i;
	return 200;
}

/* ---- comparing ---- */

static void sync_foreign(struct nv_pod *q, const struct st_pod *p)
{
	const struct st_node *n = st_cluster_node(c, p->node);

	q->fenced = p->fenced;
	q->grant_count = p->grant_count;
	if (p->grant_count == 0)
		return;
	CHECK(p->grant_count == 1 && p->grants[0].count == q->whole_gpus, "%s holds %u", p->uid,
	      p->grants[0].count);
	q->grants[0] = (struct nv_grant){
		.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = p->grants[0].count};
	for (int i = 0; i < p->grants[0].count; i++)
		q->grants[0].gpu[i] = gpu_of(n, p->grants[0].gpu[i]);
}

static void compare_pods(void)
{
	size_t live = 0;

	for (int i = 0; i < NV_PODS; i++) {
		struct nv_pod *q = &m.pods[i];
		const struct st_pod *p = st_cluster_pod_find(c, uid_of(i));

		CHECK((p != NULL) == q->live, "%s", uid_of(i));
		if (p == NULL)
			continue;
		live++;
		CHECK(p->node == id_of(q->node) && p->state == q->state && p->foreign == q->foreign,
		      "%s on %u in state %u", p->uid, p->node, p->state);
		if (q->foreign) {
			sync_foreign(q, p);
			continue;
		}
		/* Room may have appeared for what it wants; a pod that holds never loses it. */
		if (q->fenced && !p->fenced) {
			CHECK(q->kept && nv_can_exist(&m, q), "%s was let in", p->uid);
			q->fenced = false;
		}
		CHECK(p->fenced == q->fenced, "%s: fenced %d", p->uid, p->fenced);
		CHECK(p->grant_count == (q->fenced ? 0 : q->grant_count), "%s", p->uid);
	}
	CHECK(live == st_cluster_pod_count(c), "%zu pods", st_cluster_pod_count(c));
}

static void compare_gpu(int node, const struct st_node *n, uint8_t slot)
{
	const struct st_gpu *g = &n->gpus[slot];
	int gpu = gpu_of(n, slot);
	struct nv_sum s = nv_count(&m, node, gpu, NULL, true);

	CHECK(!s.mixed && !s.mig_overlap && s.compute_nano <= ST_NANO, "%s given twice", g->uuid);
	CHECK(g->taken == s.taken, "%s taken %u, not %u", g->uuid, g->taken, s.taken);
	if (s.holders == 0 && s.taken == ST_TAKEN_GONE)
		return;
	CHECK(g->mode == s.mode, "%s in mode %u, not %d", g->uuid, g->mode, (int)s.mode);
	CHECK(g->clients == s.clients && g->memory_bound == s.memory_bound, "%s", g->uuid);
	CHECK(g->limit_mib == s.limit_mib, "%s", g->uuid);
	CHECK(g->compute_left_nano == ST_NANO - s.compute_nano, "%s", g->uuid);
	CHECK(g->mem_mib == m.nodes[node].gpus[gpu].mem_mib, "%s", g->uuid);
	if (!s.mig_conflict)
		CHECK(g->free_mib == s.free_mib, "%s: %d free, not %" PRId64, g->uuid, g->free_mib,
		      s.free_mib);
}

static bool slot_idle(int node, const struct st_node *n, uint8_t slot)
{
	struct nv_sum s = nv_count(&m, node, gpu_of(n, slot), NULL, true);

	return s.taken == ST_TAKEN_NO && s.mode == ST_MODE_FREE;
}

/* Nobody who could be booked stays fenced. */
static void fixpoint(int node, const struct st_node *n)
{
	uint32_t idle = 0;

	for (uint8_t i = 0; i < n->gpu_count; i++)
		idle += slot_idle(node, n, i);
	for (int i = 0; i < NV_PODS; i++) {
		const struct nv_pod *q = &m.pods[i];

		if (!q->live || !q->fenced || q->node != node)
			continue;
		if (q->foreign)
			CHECK(idle < q->whole_gpus, "pod-%d wants %u of %u", i, q->whole_gpus,
			      idle);
		else
			CHECK(!q->kept || !nv_can_exist(&m, q), "pod-%d need not be fenced", i);
	}
}

/* A node that looks different has a new version, and the log told of each of them. */
static void compare_versions(void)
{
	CHECK(log_read >= st_cluster_log_begin(c), "the log ran away");
	for (; log_read < st_cluster_log_end(c); log_read++)
		log_versions[st_cluster_log_at(c, log_read)]++;
	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);
		uint64_t digest = nv_digest(n);

		CHECK(n->version == log_versions[id], "%s", n->name);
		CHECK(n->version != versions[id] || digest == digests[id], "%s changed silently",
		      n->name);
		versions[id] = n->version;
		digests[id] = digest;
	}
}

static void compare(void)
{
	struct err e = ERR_INIT;

	CHECK(st_cluster_check(c, ST_NONE, &e) == 0, "%s", e.msg);
	compare_pods();
	for (int node = 0; node < NV_NODES; node++) {
		const struct st_node *n = st_cluster_node(c, id_of(node));
		int64_t cpu = m.nodes[node].cpu_milli;
		int pods = 0;

		CHECK((n != NULL) == m.nodes[node].known, "node-%d", node);
		if (n == NULL)
			continue;
		for (int i = 0; i < NV_PODS; i++)
			if (m.pods[i].live && m.pods[i].node == node) {
				cpu -= m.pods[i].cpu_milli;
				pods++;
			}
		CHECK(n->pods == pods && n->cpu_left_milli == cpu, "%s", n->name);
		CHECK((int)n->fences == nv_fences(&m, node), "%s", n->name);
		CHECK(n->present == m.nodes[node].present, "%s", n->name);
		for (uint8_t i = 0; i < n->gpu_count; i++)
			compare_gpu(node, n, i);
		for (int gpu = 0; n->present && gpu < NV_GPUS; gpu++)
			CHECK(!m.nodes[node].gpus[gpu].reported || slot_of(n, gpu) < n->gpu_count,
			      "%s lost GPU %d", n->name, gpu);
		fixpoint(node, n);
	}
	compare_versions();
}

/* ---- nodes ---- */

static void change_gpu(struct nv_gpu *g)
{
	const int32_t sizes[] = {40960, 40960, 40960, 40448, 37000};

	/* Of one that is not reported the last report counts. */
	g->reported = chance(85);
	if (!g->reported)
		return;
	if (g->mem_mib == 0 || chance(20))
		g->mem_mib = sizes[pick(5)];
	g->unhealthy = chance(8);
	g->foreign = chance(8);
	if (chance(30))
		g->mig = !g->mig;
	if (!g->mig || chance(50))
		g->instances = 0;
	while (g->mig && chance(30) && g->instances < 7) {
		g->instance[g->instances].profile = pick(7);
		g->instance[g->instances].start = pick(8);
		g->instances++;
		if (!nv_instances_legal(g))
			g->instances--;
	}
}

static void describe(int node, struct st_node_spec *spec, struct st_gpu_spec *gpus,
		     char uuids[NV_GPUS][16])
{
	const struct nv_node *n = &m.nodes[node];
	int from = pick(NV_GPUS);

	memset(spec, 0, sizeof(*spec));
	memset(gpus, 0, NV_GPUS * sizeof(*gpus));
	spec->name = name_of(node);
	spec->product = "NVIDIA A100-SXM4-40GB";
	spec->cpu_milli = n->cpu_milli;
	spec->mem_mib = 1000000;
	spec->unready = n->unready;
	spec->gpus = gpus;
	/* The order in which GPUs are reported says nothing. */
	for (int k = 0; k < NV_GPUS; k++) {
		int gpu = (from + k) % NV_GPUS;
		const struct nv_gpu *g = &n->gpus[gpu];
		struct st_gpu_spec *to = &gpus[spec->gpu_count];

		if (!g->reported)
			continue;
		snprintf(uuids[gpu], sizeof(uuids[gpu]), "%d/%d", node, gpu);
		to->uuid = uuids[gpu];
		to->mem_mib = g->mem_mib;
		to->unhealthy = g->unhealthy;
		to->foreign = g->foreign ? "pid 1" : NULL;
		to->mig_enabled = g->mig;
		to->has_geometry = gpu % 2 == 0;
		to->geometry = *st_mig_table_at(1);
		for (int i = 0; i < g->instances; i++) {
			snprintf(to->instances[i].profile, ST_MIG_NAME_CAP, "%s",
				 nv_profiles[g->instance[i].profile]);
			to->instances[i].start = (uint8_t)g->instance[i].start;
		}
		to->instance_count = (size_t)g->instances;
		spec->gpu_count++;
	}
}

static void op_put(bool change)
{
	static struct st_gpu_spec gpus[NV_GPUS];
	static char uuids[NV_GPUS][16];
	struct st_node_spec spec;
	struct err e = ERR_INIT;
	int node = pick(NV_NODES);
	struct nv_node *n = &m.nodes[node];
	bool same = n->present && !change;
	uint32_t id = id_of(node), before = 0;

	if (!n->known || change) {
		n->cpu_milli = 64000 + pick(3);
		n->unready = chance(10);
		for (int gpu = 0; gpu < NV_GPUS; gpu++)
			if (!n->known || chance(20))
				change_gpu(&n->gpus[gpu]);
	}
	n->known = n->present = true;
	describe(node, &spec, gpus, uuids);
	if (id != ST_NONE)
		before = st_cluster_node(c, id)->version;
	CHECK(st_cluster_node_put(c, &spec, &id, &e) == 0, "%s", e.msg);
	CHECK(!same || st_cluster_node(c, id)->version == before, "%s moved", spec.name);
}

static void op_remove(void)
{
	int node = pick(NV_NODES);
	int r = st_cluster_node_remove(c, name_of(node), NULL);

	CHECK(r == (m.nodes[node].present ? 0 : ERR_NOT_FOUND), "%d", r);
	m.nodes[node].present = false;
}

/* ---- pods ---- */

static void random_grant(const struct st_node *n, struct nv_grant *g)
{
	const int32_t sizes[] = {1, 5000, 10000, 20000, 20480, 37001};
	const struct st_gpu *first;
	int at, many;

	memset(g, 0, sizeof(*g));
	at = n->gpu_count > 0 ? pick(n->gpu_count) : 0;
	many = chance(70) ? 1 : 1 + pick(3);
	g->count = many;
	for (int i = 0; i < many; i++)
		g->gpu[i] = at + i < n->gpu_count && !chance(1) ? gpu_of(n, (uint8_t)(at + i)) : -1;
	first = at < n->gpu_count ? &n->gpus[at] : NULL;
	g->kind = first != NULL && first->mode == ST_MODE_MIG && chance(90) ? ST_KIND_MIG
		  : chance(15)                                              ? ST_KIND_WHOLE
									    : ST_KIND_SHARE;
	if (chance(3))
		g->kind = (enum st_kind)pick(3);
	g->mode = g->kind == ST_KIND_MIG     ? ST_MODE_MIG
		  : g->kind == ST_KIND_WHOLE ? ST_MODE_EXCLUSIVE
		  : chance(70)               ? ST_MODE_TIME_SLICING
					     : ST_MODE_SM_SHARING;
	if (first != NULL && g->kind == ST_KIND_SHARE && chance(80) &&
	    (first->mode == ST_MODE_TIME_SLICING || first->mode == ST_MODE_SM_SHARING))
		g->mode = (enum st_mode)first->mode;
	g->request_mib = sizes[pick(6)] + pick(100);
	g->limit_mib = g->request_mib + (chance(50) ? 0 : pick(5000));
	g->compute_nano = chance(50) ? 0 : 1 + pick(600000000);
	g->profile = pick(7);
	for (int i = 0; i < many; i++) {
		g->start[i] = pick(8);
		/* Several instances are rather wanted on one GPU. */
		if (g->kind == ST_KIND_MIG && chance(70))
			g->gpu[i] = g->gpu[0];
	}
}

static struct nv_pod random_pod(int node)
{
	const struct st_node *n = st_cluster_node(c, id_of(node));
	struct nv_pod p = {.live = true, .kept = true, .node = node};

	p.cpu_milli = pick(2000);
	p.memory_bound = chance(30);
	p.grant_count = chance(10) ? 0 : 1 + (chance(30) ? pick(4) : 0);
	for (int k = 0; k < p.grant_count; k++) {
		random_grant(n, &p.grants[k]);
		for (int i = 0; i < p.grants[k].count; i++)
			p.kept &= p.grants[k].gpu[i] >= 0;
	}
	return p;
}

static struct st_pod_ident ident_of(int i, const struct nv_pod *p)
{
	return (struct st_pod_ident){.uid = uid_of(i),
				     .ns = "ns",
				     .name = "n",
				     .cpu_milli = p->cpu_milli,
				     .mem_mib = 1,
				     .memory_bound = p->memory_bound};
}

static struct st_decision decision_of(const struct nv_pod *p)
{
	const struct st_node *n = st_cluster_node(c, id_of(p->node));
	struct st_decision d = {.node = n->id, .grant_count = (uint8_t)p->grant_count};

	for (int k = 0; k < p->grant_count; k++) {
		const struct nv_grant *from = &p->grants[k];
		struct st_grant *to = &d.grants[k];

		snprintf(to->container, sizeof(to->container), "c%d", k);
		to->kind = from->kind;
		to->mode = from->mode;
		to->count = (uint8_t)from->count;
		to->request_mib = from->request_mib;
		to->limit_mib = from->limit_mib;
		to->compute_nano = from->compute_nano;
		snprintf(to->profile, sizeof(to->profile), "%s", nv_profiles[from->profile]);
		for (int i = 0; i < from->count; i++) {
			to->gpu[i] = slot_of(n, from->gpu[i]);
			to->start[i] = (uint8_t)from->start[i];
		}
	}
	return d;
}

static int known_node(void)
{
	int node = pick(NV_NODES);

	for (int i = 0; i < NV_NODES && !m.nodes[node].known; i++)
		node = (node + 1) % NV_NODES;
	return m.nodes[node].known ? node : -1;
}

static void op_reserve(void)
{
	int i = pick(NV_PODS), node = known_node(), r, can;
	struct nv_pod p;
	struct st_pod_ident id;
	struct st_decision d;
	struct err e = ERR_INIT;

	if (node < 0)
		return;
	p = random_pod(node);
	p.state = ST_POD_BINDING;
	id = ident_of(i, &p);
	d = decision_of(&p);
	can = st_cluster_can_book(c, &id, &d, false, &e);
	r = st_cluster_reserve(c, &id, &d, &e);
	if (m.pods[i].live) {
		CHECK(r == ERR_EXISTS, "%d: %s", r, e.msg);
		return;
	}
	CHECK(r == can, "%d and %d", r, can);
	CHECK((r == 0) == nv_fits_new(&m, &p), "%d: %s", r, e.msg);
	CHECK(r == 0 || r == ERR_CONFLICT || r == ERR_NO_ROOM, "%d: %s", r, e.msg);
	if (r == 0)
		m.pods[i] = p;
}

static void op_move(void)
{
	static const int to[ST_POD_STATE_COUNT][4] = {
		{ST_POD_BOUND, ST_POD_OBSERVED, -1, -1},
		{ST_POD_BOUND, ST_POD_OBSERVED, -2, -1},
		{ST_POD_OBSERVED, ST_POD_OBSERVED, -2, -1},
	};
	int i = pick(NV_PODS), ev = pick(4), next, r;

	r = st_cluster_pod_move(c, uid_of(i), (enum st_pod_event)ev, NULL);
	if (!m.pods[i].live) {
		CHECK(r == ERR_NOT_FOUND, "%d", r);
		return;
	}
	next = to[m.pods[i].state][ev];
	CHECK(r == (next == -2 ? ERR_CONFLICT : 0), "%d", r);
	if (next == -1)
		m.pods[i].live = false;
	else if (next >= 0)
		m.pods[i].state = (enum st_pod_state)next;
}

static void see(int i, struct nv_pod p, bool same)
{
	struct st_pod_ident id = ident_of(i, &p);
	struct st_decision d = decision_of(&p);
	struct err e = ERR_INIT;
	bool fenced = false;
	int r = st_cluster_observe(c, &id, id_of(p.node), p.foreign ? NULL : &d, p.whole_gpus,
				   &fenced, &e);

	CHECK(r == 0, "%s", e.msg);
	CHECK(fenced == st_cluster_pod_find(c, uid_of(i))->fenced, "pod-%d", i);
	CHECK(!fenced || e.msg[0] != '\0', "pod-%d fenced without a word", i);
	p.state = ST_POD_OBSERVED;
	m.pods[i].live = false;
	if (!p.foreign && !same) {
		p.fenced = !nv_can_exist(&m, &p);
		CHECK(p.fenced == fenced, "pod-%d: fenced %d: %s", i, fenced, e.msg);
	}
	m.pods[i] = p;
}

static void op_observe(void)
{
	int i = pick(NV_PODS), node = known_node();
	struct nv_pod p;

	if (node < 0)
		return;
	p = random_pod(node);
	if (chance(12)) {
		p.foreign = true;
		p.whole_gpus = (uint32_t)(1 + pick(chance(10) ? 20 : 3));
		p.grant_count = 0;
	}
	see(i, p, false);
}

/* The watch tells once more of a pod that is known. */
static void op_repeat(void)
{
	int i = pick(NV_PODS);
	struct nv_pod p = m.pods[i];
	uint32_t before;

	if (!p.live || (p.fenced && !p.kept))
		return;
	before = st_cluster_node(c, id_of(p.node))->version;
	if (p.foreign)
		p.grant_count = 0;
	see(i, p, true);
	CHECK(st_cluster_node(c, id_of(p.node))->version == before, "pod-%d moved its node", i);
}

static void op_fence(void)
{
	int i = pick(NV_PODS), node = known_node();
	struct nv_pod p;
	struct st_pod_ident id;

	if (node < 0)
		return;
	p = random_pod(node);
	p.grant_count = 0;
	p.kept = false;
	p.fenced = true;
	p.state = ST_POD_OBSERVED;
	id = ident_of(i, &p);
	CHECK(st_cluster_fence(c, &id, id_of(node), NULL) == 0, "pod-%d", i);
	m.pods[i] = p;
}

static void run(uint64_t seed, int steps)
{
	const struct st_config cfg = {.reserve_mib = (int32_t)(seed % 3) * 512,
				      .clients_max = 4,
				      .overcommit_permille = 1000 + (int32_t)(seed % 2) * 500};

	rng_init(&rng, seed);
	memset(&m, 0, sizeof(m));
	memset(log_versions, 0, sizeof(log_versions));
	memset(versions, 0, sizeof(versions));
	log_read = 0;
	m.cfg = cfg;
	c = st_cluster_new(&cfg);
	cr_assert_not_null(c);
	for (step = 0; step < steps; step++) {
		int what = pick(100);

		if (what < 12)
			op_put(true);
		else if (what < 15)
			op_put(false);
		else if (what < 16)
			op_remove();
		else if (what < 45)
			op_reserve();
		else if (what < 72)
			op_move();
		else if (what < 86)
			op_observe();
		else if (what < 98)
			op_repeat();
		else
			op_fence();
		compare();
	}
	st_cluster_free(c);
}

Test(model_cluster, random_operations)
{
	uint64_t seed = env_u64("TESSERA_SEED", 20240607);
	int steps = (int)env_u64("TESSERA_STEPS", 4000);

	printf("model_cluster: TESSERA_SEED=%" PRIu64 ", 6 runs of %d steps\n", seed, steps);
	fflush(stdout);
	for (uint64_t i = 0; i < 6; i++)
		run(seed + i, steps);
}

#include "test/lib/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "test/lib/place: %s\n", what);
	abort();
}

/* ---- requests ---- */

struct st_item place_share(int32_t mib)
{
	return (struct st_item){.kind = ST_KIND_SHARE,
				.mode = ST_MODE_TIME_SLICING,
				.count = 1,
				.request_mib = mib};
}

struct st_item place_sm(int32_t mib, int32_t compute_nano)
{
	struct st_item it = place_share(mib);

	it.mode = ST_MODE_SM_SHARING;
	it.compute_nano = compute_nano;
	return it;
}

struct st_item place_fraction(int32_t nano)
{
	struct st_item it = place_share(0);

	it.request_nano = nano;
	return it;
}

struct st_item place_whole(int count)
{
	return (struct st_item){
		.kind = ST_KIND_WHOLE, .mode = ST_MODE_EXCLUSIVE, .count = (uint8_t)count};
}

struct st_item place_mig(const char *profile, int count)
{
	struct st_item it = {.kind = ST_KIND_MIG, .mode = ST_MODE_MIG, .count = (uint8_t)count};

	require(strlen(profile) < sizeof(it.profile), "long profile");
	memcpy(it.profile, profile, strlen(profile) + 1);
	return it;
}

struct st_request place_cpu(int64_t cpu_milli)
{
	return (struct st_request){.cpu_milli = cpu_milli};
}

void place_add(struct st_request *req, struct st_item it)
{
	require(req->item_count < ST_ITEMS_MAX, "many items");
	snprintf(it.container, sizeof(it.container), "c%u", req->item_count);
	req->items[req->item_count++] = it;
}

struct st_request place_request(int64_t cpu_milli, struct st_item it)
{
	struct st_request req = place_cpu(cpu_milli);

	place_add(&req, it);
	return req;
}

/* ---- nodes and pods ---- */

static uint32_t put(struct st_cluster *c, const char *name, const char *product, int64_t cpu_milli,
		    struct st_gpu_spec *gpus, size_t gpu_count)
{
	struct st_node_spec spec = {
		.name = name,
		.product = product,
		.cpu_milli = cpu_milli,
		.mem_mib = 65536 * ((int64_t)gpu_count + 1),
		.from_inventory = true,
		.gpu_count = gpu_count,
		.gpus = gpus,
	};
	struct err err = ERR_INIT;
	uint32_t id = ST_NONE;
	int rc = st_cluster_node_put(c, &spec, &id, &err);

	require(rc == 0, err.msg);
	return id;
}

uint32_t place_node_mig(struct st_cluster *c, const char *name, const char *product,
			size_t gpu_count, int32_t mem_mib, uint32_t mig)
{
	struct st_gpu_spec gpus[ST_GPUS_MAX] = {0};

	for (size_t i = 0; i < gpu_count; i++) {
		gpus[i].mem_mib = mem_mib;
		gpus[i].mig_enabled = (mig >> i & 1) != 0;
	}
	return put(c, name, product, 128000, gpus, gpu_count);
}

uint32_t place_node(struct st_cluster *c, const char *name, int64_t cpu_milli, size_t gpu_count,
		    int32_t mem_mib)
{
	struct st_gpu_spec gpus[ST_GPUS_MAX] = {0};

	for (size_t i = 0; i < gpu_count; i++)
		gpus[i].mem_mib = mem_mib;
	return put(c, name, "T4", cpu_milli, gpus, gpu_count);
}

struct st_grant place_grant(const struct st_cluster *c, uint32_t node, const struct st_item *it,
			    enum st_mode mode, const uint8_t *gpus, const uint8_t *starts)
{
	const struct st_gpu *first = &st_cluster_node(c, node)->gpus[gpus[0]];
	struct st_grant g = {.kind = it->kind, .mode = mode, .count = it->count};

	memcpy(g.container, it->container, sizeof(g.container));
	memcpy(g.profile, it->profile, sizeof(g.profile));
	memcpy(g.gpu, gpus, it->count);
	if (it->kind == ST_KIND_MIG)
		memcpy(g.start, starts, it->count);
	if (it->kind == ST_KIND_SHARE) {
		g.request_mib = st_item_request_mib(it, first->alloc_mib);
		g.limit_mib = st_item_limit_mib(it, first->alloc_mib);
		g.compute_nano = it->compute_nano;
	}
	return g;
}

struct st_pod_ident place_ident(const char *uid, int32_t priority, int64_t cpu_milli)
{
	return (struct st_pod_ident){.uid = uid,
				     .ns = "default",
				     .name = uid,
				     .priority = priority,
				     .cpu_milli = cpu_milli};
}

void place_hold_as(struct st_cluster *c, uint32_t node, const struct st_pod_ident *id,
		   const struct st_item *it, unsigned gpu, unsigned start)
{
	struct st_decision d = {.node = node, .grant_count = 1};
	uint8_t gpus[ST_GPUS_MAX], starts[ST_GPUS_MAX];
	struct err err = ERR_INIT;
	bool fenced = false;
	int rc;

	for (unsigned i = 0; i < ST_GPUS_MAX; i++) {
		gpus[i] = (uint8_t)(it->kind == ST_KIND_MIG ? gpu : gpu + i);
		starts[i] = (uint8_t)start;
	}
	d.grants[0] = place_grant(c, node, it, it->mode, gpus, starts);
	rc = st_cluster_observe(c, id, node, &d, 0, &fenced, &err);
	require(rc == 0 && !fenced, err.msg);
}

void place_hold(struct st_cluster *c, uint32_t node, const char *uid, const struct st_item *it,
		unsigned gpu, unsigned start)
{
	struct st_pod_ident id = place_ident(uid, 0, 0);

	place_hold_as(c, node, &id, it, gpu, start);
}

void place_gone(struct st_cluster *c, const char *uid)
{
	require(st_cluster_pod_move(c, uid, ST_EVENT_GONE, NULL) == 0, uid);
}

/* ---- measures ---- */

void place_sync(struct fr_measure *m, const struct st_cluster *c)
{
	for (uint32_t id = 0; id < st_cluster_node_count(c); id++)
		require(fr_measure_sync(m, id) == 0, "sync");
}

struct fr_measure *place_measure(const struct st_cluster *c, enum fr_kind kind,
				 const struct place_class *classes, size_t count)
{
	struct fr_counts *counts = fr_counts_new();
	struct fr_workload *w;
	struct fr_measure *m;

	require(counts != NULL, "counts");
	for (size_t i = 0; i < count; i++) {
		struct st_request req = place_cpu(classes[i].cpu_milli);
		struct fr_class cls;

		if (classes[i].item.count > 0)
			place_add(&req, classes[i].item);
		if (classes[i].product != NULL)
			snprintf(req.product, sizeof(req.product), "%s", classes[i].product);
		fr_class_of(&req, &cls);
		require(fr_counts_add(counts, &cls, classes[i].weight, NULL) == 0, "count");
	}
	w = fr_workload_build(counts, 100, kind == FR_CA);
	fr_counts_free(counts);
	require(w != NULL, "workload");
	m = fr_measure_new(c, kind, w);
	require(m != NULL, "measure");
	place_sync(m, c);
	return m;
}

/* ---- at random ---- */

/* One draw a statement: the order of evaluation differs between compilers. */

void place_world_init(struct place_world *w, const struct st_config *cfg, uint64_t seed,
		      unsigned flavour)
{
	memset(w, 0, sizeof(*w));
	rng_init(&w->rng, seed);
	w->flavour = flavour;
	w->c = st_cluster_new(cfg);
	require(w->c != NULL, "cluster");
	fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
}

void place_world_fini(struct place_world *w)
{
	st_cluster_free(w->c);
}

unsigned place_draw(struct place_world *w, unsigned n)
{
	return (unsigned)rng_below(&w->rng, n);
}

bool place_chance(struct place_world *w, unsigned n)
{
	return place_draw(w, n) == 0;
}

static void random_gpus(struct place_world *w, struct st_gpu_spec *gpus, size_t count,
			const char **ret_product)
{
	static const int32_t sizes[] = {1000, 8192, 15360, 24576, 81559};
	unsigned kind = place_draw(w, w->flavour & PLACE_NO_MIG ? 3 : 6);
	int32_t mib = kind == 3  ? PLACE_A30_MIB
		      : kind > 3 ? PLACE_A100_MIB
				 : sizes[place_draw(w, 5)];

	*ret_product = kind == 3 ? PLACE_A30 : kind > 3 ? PLACE_A100 : kind == 2 ? "P100" : "T4";
	for (size_t i = 0; i < count; i++) {
		gpus[i].mem_mib = mib;
		if (kind == 0 && !(w->flavour & PLACE_ONE_SIZE))
			gpus[i].mem_mib = sizes[place_draw(w, 5)];
		gpus[i].mig_enabled = kind >= 3 && place_chance(w, 2);
		gpus[i].unhealthy = place_chance(w, 12);
		gpus[i].foreign = place_chance(w, 12) ? "pid 4711" : NULL;
	}
}

static uint32_t random_node(struct place_world *w, unsigned number)
{
	size_t count = 1 + place_draw(w, w->flavour & PLACE_SMALL ? 4 : 8);
	struct st_gpu_spec gpus[ST_GPUS_MAX] = {0};
	int64_t cpu_milli = 8000 * (1 + (int64_t)place_draw(w, 12));
	const char *product;
	char name[16];

	snprintf(name, sizeof(name), "n%u", number);
	random_gpus(w, gpus, count, &product);
	return put(w->c, name, place_chance(w, 10) ? NULL : product, cpu_milli, gpus, count);
}

uint32_t place_random_node(struct place_world *w)
{
	return random_node(w, w->node_next++);
}

static struct st_item random_mig(struct place_world *w)
{
	static const char *const names[] = {"1g.5gb",  "1g.6gb",   "1g.10gb", "2g.10gb",
					    "2g.12gb", "3g.20gb",  "4g.20gb", "4g.24gb",
					    "7g.40gb", "1g.5gb+me"};
	int count = place_chance(w, 3) ? 1 + (int)place_draw(w, 3) : 1;

	return place_mig(names[place_draw(w, 10)], count);
}

static struct st_item random_item(struct place_world *w)
{
	static const int32_t nanos[] = {125000000, 250000000, 300000000,
					500000000, 700000000, 1000};
	static const int32_t mibs[] = {300, 500, 1000, 4000, 8192, 12000, 20000, 60000};
	unsigned kind = place_draw(w, w->flavour & PLACE_NO_MIG ? 5 : 7);
	struct st_item it;

	if (kind == 0)
		return place_whole(1 + (int)place_draw(w, 3));
	if (kind >= 5)
		return random_mig(w);
	it = place_chance(w, 2) ? place_fraction(nanos[place_draw(w, 6)])
				: place_share(mibs[place_draw(w, 8)]);
	if (place_chance(w, 2)) {
		it.mode = ST_MODE_SM_SHARING;
		it.compute_nano = place_chance(w, 2) ? (int32_t)place_draw(w, 7) * 100000000 : 0;
	}
	it.mode_preferred = place_chance(w, 3);
	it.count = (uint8_t)(place_chance(w, 4) ? 2 + place_draw(w, 2) : 1);
	if (place_chance(w, 3)) {
		it.limit_mib = it.request_mib + it.request_mib / 2;
		it.limit_nano = it.request_nano > 0 ? it.request_nano + 200000000 : 0;
	}
	return it;
}

struct st_request place_random_request(struct place_world *w, unsigned items_max)
{
	static const char *const products[] = {"", "", "", "", "T4", "P100|T4", "A10", PLACE_A100};
	struct st_request req = place_cpu(500 * (int64_t)place_draw(w, 16));
	unsigned items = place_draw(w, items_max + 1);

	req.mem_mib = place_chance(w, 4) ? 16384 : 0;
	snprintf(req.product, sizeof(req.product), "%s", products[place_draw(w, 8)]);
	req.workload = (enum st_workload_profile)(place_chance(w, 3) ? place_draw(w, 3) : 0);
	for (unsigned i = 0; i < items; i++)
		place_add(&req, random_item(w));
	return req;
}

bool place_random_pod(struct place_world *w, uint32_t node)
{
	const struct st_node *n = st_cluster_node(w->c, node);
	struct st_request req = place_random_request(w, 2);
	struct st_decision d = {.node = node, .grant_count = req.item_count};
	struct st_pod_ident id;
	char uid[16];

	if (n->gpu_count == 0)
		return false;
	for (unsigned i = 0; i < req.item_count; i++) {
		const struct st_item *it = &req.items[i];
		uint8_t gpus[ST_GPUS_MAX] = {0}, starts[ST_GPUS_MAX] = {0};
		unsigned first = place_draw(w, n->gpu_count);

		for (unsigned k = 0; k < it->count; k++) {
			gpus[k] = (uint8_t)((first + k) % n->gpu_count);
			starts[k] = (uint8_t)place_draw(w, 8);
		}
		d.grants[i] = place_grant(w->c, node, it, it->mode, gpus, starts);
	}
	snprintf(uid, sizeof(uid), "p%u", w->uid_next++);
	id = place_ident(uid, (int32_t)place_draw(w, 4), req.cpu_milli);
	id.memory_bound = req.workload == ST_WORKLOAD_MEMORY_BOUND;
	return st_cluster_can_book(w->c, &id, &d, true, NULL) == 0 &&
	       st_cluster_reserve(w->c, &id, &d, NULL) == 0 &&
	       (place_chance(w, 4) || st_cluster_pod_move(w->c, uid, ST_EVENT_OBSERVED, NULL) == 0);
}

static void random_gone(struct place_world *w)
{
	size_t count = st_cluster_pod_count(w->c);
	const struct st_pod *p = st_cluster_pod_next(w->c, NULL);

	if (count == 0)
		return;
	for (unsigned i = place_draw(w, (unsigned)count); i > 0; i--)
		p = st_cluster_pod_next(w->c, p);
	place_gone(w->c, p->uid);
}

void place_random_step(struct place_world *w)
{
	uint32_t count = st_cluster_node_count(w->c);
	unsigned what = place_draw(w, 20);
	struct st_pod_ident id;
	char name[16];
	bool fenced;

	if (count == 0 || (what == 0 && count < 40)) {
		place_random_node(w);
	} else if (what == 1) { /* a node changes, or comes back */
		random_node(w, place_draw(w, count));
	} else if (what == 2) {
		snprintf(name, sizeof(name), "n%u", place_draw(w, count));
		st_cluster_node_remove(w->c, name, NULL); /* it may be removed already */
	} else if (what == 3) {
		uint32_t node = place_draw(w, count);

		snprintf(name, sizeof(name), "p%u", w->uid_next++);
		id = place_ident(name, 0, 1000);
		if (place_chance(w, 4))
			st_cluster_fence(w->c, &id, node, NULL);
		else
			st_cluster_observe(w->c, &id, node, NULL, place_draw(w, 2), &fenced, NULL);
	} else if (what < 9) {
		random_gone(w);
	} else {
		place_random_pod(w, place_draw(w, count));
	}
}

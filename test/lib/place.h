/* Clusters, pods and requests for tests of placement: in a line each, or drawn from a seeded
 * generator. What cannot be made aborts. */
#ifndef TESSERA_TEST_PLACE_H
#define TESSERA_TEST_PLACE_H

#include "base/rng.h"
#include "fragmentation/measure.h"
#include "state/cluster.h"

#define PLACE_A100 "NVIDIA A100-SXM4-40GB" /* 8 memory units, profiles 1g.5gb .. 7g.40gb */
#define PLACE_A100_MIB 40536
#define PLACE_A30 "NVIDIA A30" /* 4 memory units, profiles 1g.6gb .. 4g.24gb */
#define PLACE_A30_MIB 24125

/* ---- requests ---- */

/* One instance, as the item of a place_class. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a string that fills an array */
#define PLACE_MIG(p)                                                                               \
	{                                                                                          \
		.kind = ST_KIND_MIG, .mode = ST_MODE_MIG, .count = 1, .profile = p                 \
	}
/* NOLINTEND(bugprone-macro-parentheses) */

struct st_item place_share(int32_t mib); /* time-slicing, one GPU */
struct st_item place_sm(int32_t mib, int32_t compute_nano);
struct st_item place_fraction(int32_t nano);
struct st_item place_whole(int count);
struct st_item place_mig(const char *profile, int count);
/* One container "c0" with that item; place_add() gives it "c1", "c2", ... */
struct st_request place_request(int64_t cpu_milli, struct st_item it);
struct st_request place_cpu(int64_t cpu_milli); /* without GPU */
void place_add(struct st_request *req, struct st_item it);

/* ---- nodes and pods ---- */

/* GPUs without MIG mode, product "T4"; 64 GiB of host memory for each GPU and for the node. */
uint32_t place_node(struct st_cluster *c, const char *name, int64_t cpu_milli, size_t gpu_count,
		    int32_t mem_mib);
/* One bit of mig a GPU that is in MIG mode. */
uint32_t place_node_mig(struct st_cluster *c, const char *name, const char *product,
			size_t gpu_count, int32_t mem_mib, uint32_t mig);

/* A running pod that holds the item on GPUs gpu, gpu + 1, ... of the node; count instances of MIG
 * are one at that start. Takes no CPU. */
void place_hold(struct st_cluster *c, uint32_t node, const char *uid, const struct st_item *it,
		unsigned gpu, unsigned start);
/* The same with a priority, CPU and so on of its own. */
void place_hold_as(struct st_cluster *c, uint32_t node, const struct st_pod_ident *id,
		   const struct st_item *it, unsigned gpu, unsigned start);
struct st_pod_ident place_ident(const char *uid, int32_t priority, int64_t cpu_milli);
void place_gone(struct st_cluster *c, const char *uid);

/* The grant for an item on count GPUs listed in gpus (and starts, for MIG). */
struct st_grant place_grant(const struct st_cluster *c, uint32_t node, const struct st_item *it,
			    enum st_mode mode, const uint8_t *gpus, const uint8_t *starts);

/* ---- measures ---- */

struct place_class {
	int64_t weight;
	int64_t cpu_milli;
	struct st_item item; /* count 0: a pod without GPU */
	const char *product; /* NULL = any */
};

/* All classes are kept, and all nodes are synced. */
struct fr_measure *place_measure(const struct st_cluster *c, enum fr_kind kind,
				 const struct place_class *classes, size_t count);
void place_sync(struct fr_measure *m, const struct st_cluster *c);

/* ---- at random ---- */

enum place_flavour {
	PLACE_NO_MIG = 1,   /* no MIG GPUs and no requests for MIG */
	PLACE_SMALL = 2,    /* few GPUs and small counts, for exhaustive search */
	PLACE_ONE_SIZE = 4, /* the GPUs of a node are of one size */
};

struct place_world {
	struct st_cluster *c;
	struct rng rng;
	unsigned flavour;
	unsigned uid_next, node_next;
};

/* Prints the seed, so that a failure can be repeated. */
void place_world_init(struct place_world *w, const struct st_config *cfg, uint64_t seed,
		      unsigned flavour);
void place_world_fini(struct place_world *w);
/* n draws in [0, n); chance: 1 of n. */
unsigned place_draw(struct place_world *w, unsigned n);
bool place_chance(struct place_world *w, unsigned n);
uint32_t place_random_node(struct place_world *w);
struct st_request place_random_request(struct place_world *w, unsigned items_max);
/* Books a random request at a random place of the node, where the place happens to be legal. */
bool place_random_pod(struct place_world *w, uint32_t node);
/* Any change of the cluster: a pod comes or goes, a node comes, changes, goes. */
void place_random_step(struct place_world *w);

#endif

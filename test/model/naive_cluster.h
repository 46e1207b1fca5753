/* A cluster the slow way: lists of what was told, everything else recounted on demand. Written
 * without the library's books; knows one MIG geometry (A100 40 GB) by heart. */
#ifndef TESSERA_TEST_NAIVE_CLUSTER_H
#define TESSERA_TEST_NAIVE_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "state/cluster.h"

#define NV_NODES 5
#define NV_GPUS 10 /* that a node may ever have; more than it has at once */
#define NV_PODS 40

struct nv_gpu {
	bool reported;
	int32_t mem_mib; /* as last reported */
	bool unhealthy, foreign, mig;
	int instances; /* reported */
	struct {
		int profile, start;
	} instance[7];
};

struct nv_node {
	bool known, present, unready;
	int64_t cpu_milli;
	struct nv_gpu gpus[NV_GPUS];
};

struct nv_grant {
	enum st_kind kind;
	enum st_mode mode;
	int count;
	int gpu[ST_GPUS_MAX]; /* of the node, as in nv_node; -1 = none */
	int profile, start[ST_GPUS_MAX];
	int32_t request_mib, limit_mib, compute_nano;
};

struct nv_pod {
	bool live, fenced, foreign, kept; /* kept: the wanted grants can still be booked later */
	bool memory_bound;
	enum st_pod_state state;
	int node;
	int64_t cpu_milli;
	uint32_t whole_gpus;
	int grant_count;
	struct nv_grant grants[ST_ITEMS_MAX];
};

struct nv_cluster {
	struct st_config cfg;
	struct nv_node nodes[NV_NODES];
	struct nv_pod pods[NV_PODS];
};

/* What one GPU comes to. */
struct nv_sum {
	int holders, clients, memory_bound;
	int64_t request_mib, limit_mib, compute_nano;
	enum st_mode mode;
	bool mixed;        /* two modes, or whole and anything */
	bool mig_overlap;  /* booked instances that cannot exist together */
	bool mig_conflict; /* the same with those reported */
	int units_free;
	enum st_taken taken;
	int64_t alloc_mib, free_mib;
};

extern const char *const nv_profiles[7];

/* Counts the GPU with extra[] (extra_count grants of a pod, may be NULL) on top; assumed GPUs of
 * foreign pods count where count_foreign. */
struct nv_sum nv_count(const struct nv_cluster *m, int node, int gpu, const struct nv_pod *extra,
		       bool count_foreign);
/* May the pod's grants be booked on its node as something new? */
bool nv_fits_new(const struct nv_cluster *m, const struct nv_pod *p);
/* Could they be there, as something that exists? Assumed GPUs make way. */
bool nv_can_exist(const struct nv_cluster *m, const struct nv_pod *p);
/* Can the reported instances of the GPU be there together? */
bool nv_instances_legal(const struct nv_gpu *g);
int nv_fences(const struct nv_cluster *m, int node);
/* Of all that can be seen of a node. */
uint64_t nv_digest(const struct st_node *n);

#endif

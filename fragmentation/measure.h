/* Expected fragmentation of each node for a workload, kept up to date node by node.
 *
 * Three measures, all exact integers (N = K * F, see README.md):
 *   FGD  N = sum w_m F_m                                        (the paper's)
 *   CA   N = sum w_m (R - fill_m) + 3 sum w_m F_m + K max(0, 8R - floor(12 G c / C))
 *   BID  N = -V, V = the most that the node's remainder could be sold for (BID-PRICE.md)
 * where fill_m of a class of MIG instances is R less what fr_mig_value says that the layouts lose, and
 * F_m is 0 as long as there is CPU; in milli of a device. A GPU whose mode, clients, compute shares or MIG layout a class cannot use
 * counts for that class as if it were too small. GPUs taken by others do not count at all. */
#ifndef TESSERA_FRAGMENTATION_MEASURE_H
#define TESSERA_FRAGMENTATION_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "fragmentation/workload.h"
#include "state/cluster.h"

enum fr_kind { FR_FGD, FR_CA, FR_BID };

struct fr_measure;

/* Borrows the cluster, takes the workload over (freed with the measure, or at the next set). */
struct fr_measure *fr_measure_new(const struct st_cluster *c, enum fr_kind kind,
				  struct fr_workload *take_w); /* NULL: no memory, take_w freed */
/* A measure for an equal workload, with no node yet; its price search is where that of m is, and counts
 * amounts in the same unit. NULL: no memory. */
struct fr_measure *fr_measure_twin(const struct fr_measure *m);
void fr_measure_free(struct fr_measure *m);
const struct fr_workload *fr_measure_workload(const struct fr_measure *m);

/* Brings the node's numbers up to date with the cluster. ERR_NOMEM (the node then scores as 0).
 * To be called before the functions below when the node's version moved. */
int fr_measure_sync(struct fr_measure *m, uint32_t node);
/* Forgets GPU states that no node is in, where too many are remembered: to be called now and then
 * where many different requests are rated and nothing is synced. ERR_NOMEM: sync all nodes again. */
int fr_measure_tidy(struct fr_measure *m);
/* Was memory short since the last call? Then scores made in between are not to be kept. */
bool fr_measure_failed(struct fr_measure *m);
/* N of the node as last synced; the sum over all nodes synced so far. */
int64_t fr_measure_node(const struct fr_measure *m, uint32_t node);
int64_t fr_measure_total(const struct fr_measure *m);
/* What N is divided by to give milli of a device: K, or 4 K for CA. */
int64_t fr_measure_scale(const struct fr_measure *m);
/* Idle GPU milli of the nodes synced so far, as the measure counts them. */
int64_t fr_measure_idle_total(const struct fr_measure *m);

/* A GPU as a class sees it: what of st_gpu the measure depends on, a value to change freely. */
struct fr_gpu {
	int32_t free_mib;
	int32_t compute_left_nano;
	int32_t clients_left;
	uint16_t type; /* (product, allocatable, geometry), known to the measure */
	uint8_t mode;
	bool usable; /* not taken by others */
	uint64_t mig_placed;
	uint64_t row; /* set by fr_gpu_*(): stands for this state, and for what it is worth to each
			      * class; 0 where memory was short, or the GPU is taken */
};

/* GPU gpu_idx of the node, which is synced. */
struct fr_gpu fr_gpu_load(const struct fr_measure *m, uint32_t node, unsigned gpu_idx);
/* The GPU after one more share / after being given whole / after one more MIG instance. */
struct fr_gpu fr_gpu_after_share(struct fr_measure *m, const struct fr_gpu *g, enum st_mode mode,
				 int32_t request_mib, int32_t compute_nano);
struct fr_gpu fr_gpu_after_whole(struct fr_measure *m, const struct fr_gpu *g);
struct fr_gpu fr_gpu_after_mig(struct fr_measure *m, const struct fr_gpu *g, int profile,
			       int start);
/* The row of GPU g once it is as `after` says, with that many more clients. */
uint64_t fr_gpu_row(struct fr_measure *m, const struct fr_gpu *g, const struct st_gpu *after,
		    int32_t more_clients);
/* A change of `times` GPUs that were alike and become alike. */
struct fr_change {
	uint64_t before, after; /* rows */
	int32_t times;
};
/* N of the node as synced, with the CPU left replaced and some GPUs changed. */
int64_t fr_measure_after(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			 const struct fr_change *changes, unsigned change_count);

/* What N grows by with such a change; BID: with its consolidation terms. */
int64_t fr_measure_loss(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			const struct fr_change *changes, unsigned change_count);

/* Score of such a change; higher is better.
 * FGD: 0..99, trunc(100 / (1 + exp(dF / 1000))) by integer thresholds, 50 = no change.
 * CA: floor((before - after) / (480 K)).
 * BID: floor(-loss / 6 milli); the loss counts consolidation terms beside the value lost. */
int32_t fr_measure_score(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			 const struct fr_change *changes, unsigned change_count);

/* That of one more share on GPU gpu_idx of the node, which is synced. */
int32_t fr_measure_score_share(struct fr_measure *m, uint32_t node, unsigned gpu_idx,
			       enum st_mode mode, int32_t request_mib, int32_t compute_nano,
			       int64_t cpu_left_milli);

/* Score of a change by floor((before - after) / K), not rounded to what tells fractions apart: MIG layouts
 * differ by less. BID: floor(-loss / 1 milli). */
int32_t fr_measure_score_exact(const struct fr_measure *m, uint32_t node, int64_t cpu_left_milli,
			       const struct fr_change *changes, unsigned change_count);

/* BID only, no-ops for the others. Steps of the price search on the state of the nodes as last synced;
 * scores stay as they are until the prices found are published. They look at nothing but the measure:
 * one that nobody else uses is stepped and published without the cluster's lock. */
void fr_measure_price_steps(struct fr_measure *m, unsigned steps);
void fr_measure_price_publish(struct fr_measure *m);
/* The search goes on in `to` where it is in `from`, a measure for an equal workload. */
void fr_measure_price_copy(struct fr_measure *to, const struct fr_measure *from);
/* The same where the workloads differ and `to` has no node yet. False: the search in `from` has not got
 * anywhere. */
bool fr_measure_price_carry(struct fr_measure *to, const struct fr_measure *from);

/* floor(K * T_k), T_k = 1000 ln((100-k)/k), for k in 1..99: the FGD thresholds. */
int64_t fr_threshold(int64_t total, int k);

#endif

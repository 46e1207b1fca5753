/* Made-up node and pod tables in the openb CSV format. The same seed gives the same table.
 *
 * Nodes: the node types of openb with their published counts. Pods: the published shares of
 * CPU-only, shared, 1-, 2-, 4- and 8-GPU pods and the published counts of the popular shared sizes;
 * all else (other sizes, CPU, memory) is made up so that the sums are near the published ones.
 * Source of the figures: Weng et al., USENIX ATC 2023, and the trace's description. */
#ifndef TESSERA_REPLAY_GENERATE_H
#define TESSERA_REPLAY_GENERATE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct rp_generate_options {
	int64_t count;      /* rows; 0 = until gpus_total is reached */
	int64_t gpus_total; /* nodes: GPUs in all; pods: GPUs asked for in all; 0 = by count */
	uint64_t seed;
	const char *mix;      /* NULL: as published; see the two functions */
	int64_t spec_percent; /* pods: of those with GPU, how many name a product */
};

/* mix: MODEL:GPUSxCORES:WEIGHT,... for example "A100:8x96:3,T4:1x16:1"; MODEL may be empty. Counts
 * follow the weights exactly, by the largest remainder; the order is random. */
int rp_generate_nodes(FILE *out, const struct rp_generate_options *opt, struct err *err);
/* mix: KIND=WEIGHT,... with the kinds cpu, shared, 1, 2, 4, 8. */
int rp_generate_pods(FILE *out, const struct rp_generate_options *opt, struct err *err);

#endif

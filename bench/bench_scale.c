/* Cost per pod as the cluster grows: 1,000 to 100,000 nodes of 8 GPUs, ten pods a node.
 * usage: bench_scale [policy [nodes...]] */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/quantity.h"
#include "bench/bench.h"

#define GPUS 8
#define PODS_PER_NODE 10

static int run(const char *policy, uint32_t nodes)
{
	struct po_options opt = {.policy = po_policy_find(policy)};
	double start = bench_cpu_s(), built;
	struct st_cluster *c = bench_cluster(nodes, GPUS, 1000);
	struct po_placer *p = c ? po_placer_new(c, &opt) : NULL;
	uint64_t pods = (uint64_t)nodes * PODS_PER_NODE, placed = 0;
	struct st_request req;
	struct rng r;

	if (!p)
		return 1;
	rng_init(&r, 7);
	for (int i = 0; i < 20000; i++) {
		bench_mix_next(&r, 1000, &req);
		po_placer_learn(p, &req, NULL);
	}
	built = bench_cpu_s();
	for (uint64_t i = 0; i < pods; i++) {
		bench_mix_next(&r, 1000, &req);
		placed += bench_place(c, p, &req, i) != ST_NONE;
	}
	printf("%-8s %7u nodes %9llu pods  %9llu placed  %7.2f s (%5.2f s to build)  %6.2f us a pod"
	       "  %5ld MiB\n",
	       policy, nodes, (unsigned long long)pods, (unsigned long long)placed,
	       bench_cpu_s() - start, built - start, (bench_cpu_s() - built) * 1e6 / (double)pods,
	       bench_peak_kib() / 1024);
	fflush(stdout);
	po_placer_free(p);
	st_cluster_free(c);
	return 0;
}

int main(int argc, char **argv)
{
	const char *policy = argc > 1 ? argv[1] : "ca-fgd";
	static const int64_t sizes[] = {1000, 10000, 100000};

	if (!po_policy_find(policy)) {
		fprintf(stderr, "no such policy: %s\n", policy);
		return 2;
	}
	if (argc <= 2)
		for (int i = 0; i < 3; i++)
			if (run(policy, (uint32_t)sizes[i]))
				return 1;
	for (int i = 2; i < argc; i++) {
		struct err err = ERR_INIT;
		int64_t n;

		if (integer_parse(argv[i], 1, 1000000, &n, &err) < 0) {
			fprintf(stderr, "nodes: %s\n", err.msg);
			return 2;
		}
		if (run(policy, (uint32_t)n))
			return 1;
	}
	return 0;
}

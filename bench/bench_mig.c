/* What one look at a GPU in MIG mode costs: its layout in the table of values, the score of one start,
 * and making the table. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "fragmentation/measure.h"
#include "fragmentation/mig_value.h"

#define LOOKS 2000000
#define TABLES 5
#define TABLE_MS 25
#define PRODUCT "NVIDIA A100-SXM4-40GB"

static volatile int64_t sink;

static int verdict(const char *what, double ns, double target)
{
	printf("  %-44s %8.1f ns   target %.0f ns%s\n", what, ns, target,
	       ns <= target ? "" : "  MISSED");
	return ns <= target ? 0 : 1;
}

/* The table for six profiles, made some times: the last one. */
static struct fr_mig_value *table(const struct st_mig_geometry *g, int *missed)
{
	int64_t weight[ST_MIG_PROFILES_MAX] = {1, 0, 1, 1, 1, 1, 1};
	struct fr_mig_value *v = NULL;
	double best = 1e9;

	for (int i = 0; i < TABLES; i++) {
		int64_t start = bench_now_ns();
		double ms;

		fr_mig_value_free(v);
		v = fr_mig_value_new(g, ST_MIG_ANYWHERE, weight);
		ms = (double)(bench_now_ns() - start) / 1e6;
		best = ms < best ? ms : best;
	}
	*missed |= best > TABLE_MS;
	printf("MIG, %s\n  table of %u layouts made, best of %d %20.1f ms   target %d ms%s\n",
	       g->model, fr_mig_value_states(v), TABLES, best, TABLE_MS,
	       best <= TABLE_MS ? "" : "  MISSED");
	return v;
}

/* Layouts as they come about: instances at random starts until nothing more is drawn that fits. */
static void layouts(const struct st_mig_geometry *g, uint64_t *out, size_t n)
{
	struct rng r;

	rng_init(&r, 5);
	for (size_t i = 0; i < n; i++) {
		uint64_t placed = 0;

		for (unsigned k = 0; k < 1 + i % 6; k++) {
			int p = (int)rng_below(&r, g->profile_count);
			int s = g->profiles[p].starts[rng_below(&r, g->profiles[p].start_count)];

			if (st_mig_can_place(g, placed, p, s))
				placed |= st_mig_bit(g, p, s);
		}
		out[i] = placed;
	}
}

static struct fr_measure *measure(struct st_cluster *c, const struct st_mig_geometry *g)
{
	struct fr_counts *counts = fr_counts_new();
	struct fr_measure *m;

	for (int p = 0; p < g->profile_count; p++) {
		struct fr_class cls = {.cpu_milli = 1, .kind = ST_KIND_MIG, .count = 1};

		snprintf(cls.profile, sizeof(cls.profile), "%s", g->profiles[p].name);
		fr_counts_add(counts, &cls, 1, NULL);
	}
	m = fr_measure_new(c, FR_CA, fr_workload_build(counts, 100, true));
	fr_counts_free(counts);
	return m;
}

int main(void)
{
	const struct st_mig_geometry *g = st_mig_table_find(PRODUCT, 0);
	struct st_gpu_spec gpu = {.mem_mib = 40960, .mig_enabled = true};
	struct st_node_spec node = {
		.name = "n", .product = PRODUCT, .cpu_milli = 64000, .gpu_count = 1, .gpus = &gpu};
	struct st_cluster *c = st_cluster_new(NULL);
	int64_t start, best = 0;
	uint64_t placed[1024];
	struct fr_mig_value *v;
	struct fr_measure *m;
	struct fr_gpu at;
	uint32_t id;
	int missed = 0;

	v = table(g, &missed);
	layouts(g, placed, 1024);
	start = bench_now_ns();
	for (int i = 0; i < LOOKS; i++)
		sink += fr_mig_value_at(v, placed[i & 1023]);
	missed |= verdict("value of a layout", (double)(bench_now_ns() - start) / LOOKS, 100);
	st_cluster_node_put(c, &node, &id, NULL);
	m = measure(c, g);
	fr_measure_sync(m, id);
	at = fr_gpu_load(m, id, 0);
	for (int warm = 0; warm < 2; warm++) {
		start = bench_now_ns();
		for (int i = 0; i < LOOKS; i++) {
			struct st_gpu as = st_cluster_node(c, id)->gpus[0];

			as.mig_placed = placed[i & 1023];
			sink += (int64_t)fr_gpu_row(m, &at, &as, 0);
		}
	}
	missed |= verdict("a layout's row: its worth to each class",
			  (double)(bench_now_ns() - start) / LOOKS, 100);
	for (int run = 0; run < 5; run++) {
		start = bench_now_ns();
		for (int i = 0; i < LOOKS; i++) {
			struct fr_change ch = {at.row, 1 + (uint32_t)i % 8, 1};

			sink += fr_measure_score_exact(m, id, 64000, &ch, 1);
		}
		start = bench_now_ns() - start;
		best = run == 0 || start < best ? start : best;
	}
	missed |= verdict("score of one change of the GPU, best of 5", (double)best / LOOKS, 100);
	fr_measure_free(m);
	fr_mig_value_free(v);
	st_cluster_free(c);
	return missed;
}

/* Bid prices: what each request class is worth at the margin, and so what a node's remainder could
 * be sold for. The method is written up in BID-PRICE.md. Inside of fragmentation/ only.
 *
 * Values are milli of a device with FR_PRICE_BITS fraction bits; CPU prices are values per CPU milli
 * with 14 bits more; dual variables have 40 fraction bits. */
#ifndef TESSERA_FRAGMENTATION_BID_H
#define TESSERA_FRAGMENTATION_BID_H

#include <stdbool.h>
#include <stdint.h>

#include "fragmentation/fixed.h"
#include "fragmentation/workload.h"
#include "state/mig.h"

#define FR_BID_J 10      /* CPU prices on the grid */
#define FR_BID_STRIDE 16 /* of vectors over the grid */
#define FR_BID_R 100     /* remainders of a device are counted in 1/100 */
#define FR_BID_F ST_GPUS_MAX
#define FR_BID_MODES 2 /* time-slicing, sm-sharing; as a mode: MIG */
/* Bounds far beyond what there is, so that no product leaves its type. */
#define FR_BID_CPU_MAX (INT64_C(1) << 27)       /* CPU milli of a node */
#define FR_BID_CLASS_CPU_MAX (INT64_C(1) << 20) /* of a task */
#define FR_BID_MU_MAX (INT64_C(1) << 35)        /* a CPU price */
#define FR_BID_VALUE_MAX (1 << 26)              /* a task, or what one device is sold for */

enum fr_bid_gpu { FR_BID_NONE, FR_BID_IDLE, FR_BID_PART, FR_BID_MIG };

/* An instance that can be made: the run of classes that it serves, and the layout that it leads to. */
struct fr_bid_edge {
	uint16_t run, to;
};

/* The states of a GPU in MIG mode, by what can still be made in them: those that are alike in this are
 * one layout (an A100 has 2,319 states and, where five profiles are asked for, 21 layouts). Layout i can
 * become edges[begin[i]] .. edges[begin[i + 1] - 1], by run; each leads to a layout below i. */
struct fr_bid_layouts {
	uint32_t states, count;
	uint64_t *placed; /* of each state, ascending */
	uint16_t *layout; /* of each state */
	uint32_t *begin;
	struct fr_bid_edge *edges;
};

/* How the classes meet one kind of node: for each class the size of a task on a device (1..100; of a
 * MIG class the profile + 1), or 0 where it is not accepted. */
struct fr_bid_group {
	uint8_t *size;
	const struct st_mig_geometry *mig; /* NULL where no class asks for its instances */
	uint64_t mig_open;
	struct fr_bid_layouts layouts;
	/* Accepted classes of one device (or a share on each of several), by (mode, size), as runs in
	 * order[]: run i is order[begin[i]] .. order[begin[i + 1] - 1]. */
	uint32_t *order, *begin;
	uint32_t run_count, device_runs; /* the last runs are those of k >= 2 whole devices */
	uint32_t mig_runs, mig_runs_end; /* those of MIG instances; run_size is the profile + 1 */
	uint8_t *run_mode, *run_size;    /* run_size is k for the runs of whole devices */
	int64_t *run_weight;             /* sum of counts */
	int64_t *run_demand;             /* GPU milli of them */
	int64_t demand_share[FR_BID_MODES], demand_one, demand_mig, demand_devices[FR_BID_F + 1];
};

/* The tables of one group at one set of prices. */
struct fr_bid_tables {
	int32_t k[FR_BID_MODES][FR_BID_R + 1][FR_BID_STRIDE]; /* value of a remainder */
	int32_t m[FR_BID_F + 1][FR_BID_STRIDE];               /* value of f idle devices */
	/* For price steps only: what was chosen, and the CPU that goes with it. */
	int32_t pick[FR_BID_MODES][FR_BID_R + 1][FR_BID_STRIDE]; /* run + 1; 0 = leave one unit */
	int32_t k_cpu[FR_BID_MODES][FR_BID_R + 1][FR_BID_STRIDE];
	int32_t m_cpu[FR_BID_F + 1][FR_BID_STRIDE];
	uint32_t one[4][FR_BID_STRIDE]; /* share of an idle device: whole, by mode, MIG; 16 bits */
	uint32_t split[FR_BID_F + 1][FR_BID_F + 1][FR_BID_STRIDE]; /* f, q: 16 bits */
	int32_t *bid;                  /* [run][FR_BID_STRIDE]: value of one task of the run */
	int32_t *bid_cpu;              /* CPU milli of it */
	uint32_t *weight;              /* [class][FR_BID_STRIDE]: share of its run, 30 bits */
	int32_t (*mig)[FR_BID_STRIDE]; /* [layout]: value */
	int32_t (*mig_cpu)[FR_BID_STRIDE];
	uint32_t (*mig_share)[FR_BID_STRIDE]; /* [edge]: 16 bits */
	int64_t (*mig_wanted)[FR_BID_STRIDE]; /* [layout]: as fr_bid_demand, 16 bits */
};

struct fr_bid_prices {
	int64_t mu[FR_BID_STRIDE]; /* per CPU milli */
	int32_t *net;              /* [class][FR_BID_STRIDE]: what a task brings beside its CPU */
};

/* Counts of the patterns that the nodes choose, for one group. */
struct fr_bid_demand {
	int64_t part[FR_BID_MODES][FR_BID_R + 1][FR_BID_STRIDE]; /* 16 bits */
	int64_t idle[FR_BID_F + 1][FR_BID_STRIDE];
};

struct fr_bid {
	const struct fr_workload *w;
	int64_t unit_mib; /* of a typical device: what amounts are a part of */
	struct fr_fixed fixed;
	struct fr_soft soft, soft_idle; /* temperatures be and be2 */
	int64_t arrivals;               /* sum of all counts */
	int64_t cpu_only_sum;           /* CPU milli of classes without GPU, by count */
	int64_t rho;         /* GPU milli / CPU milli of the GPU classes, as a CPU price */
	int64_t gpu_mean;    /* gbar, 40 bits */
	int64_t *y, *y_mean; /* per class */
	int64_t *y_start;    /* at the start, a GPU milli as much as another: what bounds y */
	int64_t y_cpu, y_cpu_mean;
	int64_t *coverage; /* per class, 16 bits: scratch of a step */
	int64_t cpu_spare; /* likewise, CPU milli */
	uint32_t steps;

	uint32_t group_count, group_cap;
	struct fr_bid_group *groups;
	struct fr_bid_tables *score, *step; /* per group */
	struct fr_bid_demand *demand;       /* per group */
	struct fr_bid_prices score_prices, step_prices;
};

#define FR_BID_NOT_FOR_SALE UINT32_MAX /* as a group: a node that takes nothing, or has no GPU */

/* What the step needs of a node. */
struct fr_bid_node {
	uint32_t group; /* of its first GPU that is not in MIG mode */
	uint32_t idle, part_count;
	int64_t cpu_left;
	struct {
		uint16_t group, r; /* MIG: the layout */
		uint8_t mode;
	} part[ST_GPUS_MAX];
};

/* Borrows the workload (the full key list, classes without GPU included). unit_mib: of a typical
 * device. NULL: no memory. */
struct fr_bid *fr_bid_new(const struct fr_workload *w, int64_t unit_mib);
void fr_bid_free(struct fr_bid *b);
/* Milli of a typical device that a task of the class takes, over all its devices; >= 1 with GPU. */
int64_t fr_bid_class_gpu(const struct fr_bid *b, const struct fr_class *c);
/* The group of GPUs on which a task of class i takes size[i] (see fr_bid_group), with the instances of
 * `mig` (borrowed) where classes ask for them, else NULL; made on first sight. < 0: no memory. */
int fr_bid_group_find(struct fr_bid *b, const uint8_t *size, const struct st_mig_geometry *mig,
		      uint64_t mig_open);

/* bid_tables.c */
void fr_bid_prices_set(const struct fr_bid *b, const int64_t *y, int64_t y_cpu,
		       struct fr_bid_prices *ret);
void fr_bid_tables_fill(const struct fr_bid *b, const struct fr_bid_group *g,
			const struct fr_bid_prices *p, struct fr_bid_tables *ret, bool for_step);

struct fr_bid_option {
	int64_t weight; /* GPU demand behind it */
	int32_t value, cpu;
	uint32_t *ret_share; /* NULL: not asked for; 16 bits */
};

#define FR_BID_OPTIONS_MAX ST_MIG_PROFILES_MAX
_Static_assert(FR_BID_OPTIONS_MAX > FR_BID_F, "one for each number of devices");

/* Soft maximum of some options weighted by demand; sets shares and *ret_cpu. 0 without options. */
int32_t fr_bid_soft_options(const struct fr_bid *b, const struct fr_soft *s,
			    const struct fr_bid_option *o, unsigned n, int32_t *ret_cpu);

/* bid_mig.c. Of a group whose runs are known. ERR_NOMEM. A geometry with too many states has no layout. */
int fr_bid_layouts_init(struct fr_bid_group *g);
void fr_bid_layouts_fini(struct fr_bid_layouts *l);
/* The layout of a mask of placed instances; -1 where it has none. */
int fr_bid_layout(const struct fr_bid_group *g, uint64_t placed);
int fr_bid_layout_tables_init(const struct fr_bid_layouts *l, struct fr_bid_tables *t);
void fr_bid_layouts_fill(const struct fr_bid *b, const struct fr_bid_group *g,
			 struct fr_bid_tables *t);

/* bid_step.c: begin, all nodes, end. */
void fr_bid_step_begin(struct fr_bid *b);
void fr_bid_step_nodes(struct fr_bid *b, const struct fr_bid_node *nodes, size_t count);
void fr_bid_step_end(struct fr_bid *b);
/* Makes the averaged prices those that scores use. */
void fr_bid_publish(struct fr_bid *b);
/* Where the search is; of equal workloads. */
void fr_bid_copy(struct fr_bid *to, const struct fr_bid *from);
/* The same for another workload, before any group is made: each class keeps its price, new ones have the
 * one they start with. False: the search at the start is not over in `from`; `to` is as it was. */
bool fr_bid_carry(struct fr_bid *to, const struct fr_bid *from);

/* The value of a device in use: r hundredths, or in MIG mode the layout r. */
static inline const int32_t *fr_bid_part_value(const struct fr_bid_tables *t, int mode, int r)
{
	return mode == FR_BID_MODES ? t->mig[r] : t->k[mode][r];
}

/* The layout of the empty GPU, which is the first of the states; -1 where there is none. */
static inline int fr_bid_layout_empty(const struct fr_bid_group *g)
{
	return g->layouts.count > 0 ? g->layouts.layout[0] : -1;
}

/* The value of CPU at one price of the grid. */
static inline int64_t fr_bid_cpu_value(const struct fr_bid_prices *p, int j, int64_t cpu_milli)
{
	return (p->mu[j] * (cpu_milli < FR_BID_CPU_MAX ? cpu_milli : FR_BID_CPU_MAX)) >> 14;
}

/* CPU milli of a task of the class. */
static inline int64_t fr_bid_class_cpu(const struct fr_class *c)
{
	return c->cpu_milli < FR_BID_CLASS_CPU_MAX ? c->cpu_milli : FR_BID_CLASS_CPU_MAX;
}

#endif

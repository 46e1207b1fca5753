/* Inside of the measure; for fragmentation/ and its tests only. */
#ifndef TESSERA_FRAGMENTATION_MEASURE_INTERNAL_H
#define TESSERA_FRAGMENTATION_MEASURE_INTERNAL_H

#include "base/arith.h"
#include "fragmentation/bid.h"
#include "fragmentation/measure.h"
#include "fragmentation/mig_value.h"

#define FR_ROWS_LIMIT (1u << 16) /* distinct GPU states remembered before starting over ... */
#define FR_ROWS_BYTES (1u << 25) /* ... fewer where their rows would take more than this */
#define FR_CPU_EXACT (1 << 23)   /* CPU milli below which the reciprocal division is exact */
#define FR_UNCAPPED INT32_MAX

/* What one GPU state is worth to each class; three arrays of `stride` int32. Not for BID, where a row is the state
 * itself, a struct fr_bid_state. */
struct fr_row {
	const int32_t *fill;  /* milli that tasks of the class alone could fill */
	const int32_t *unfit; /* free milli that no task of the class can take */
	const int32_t *fit;   /* 1 when at least one task fits; MIG: how many instances */
};

/* A class against one type of GPU. */
struct fr_type_class {
	int32_t d_mib;    /* SHARE: MiB a task takes */
	int32_t d_milli;  /* the same in milli of the device; WHOLE 1000; MIG: of its units */
	int16_t profile;  /* MIG: index in the geometry, -1 = not there */
	bool accepted;    /* product, and the kind of GPU */
	uint64_t cpu_inv; /* ceil(2^46 * d_milli * count / cpu_milli); 0 = divide */
};

/* How many milli CPU allows a class to fill, as (cpu * inv) >> 46 in arrays; of the classes of one device. */
struct fr_caps {
	bool plain;           /* all of them can be had so */
	uint32_t *low, *high; /* the halves of fr_type_class.cpu_inv */
	int32_t *floor;       /* 0, or FR_UNCAPPED where CPU is no limit */
	int32_t *valued;      /* -1 where the class is rated by fr_type.value, else 0 */
};

struct fr_type {
	uint32_t product;
	int32_t alloc_mib;
	const struct st_mig_geometry *mig; /* in MIG mode, or to be switched into it */
	uint64_t mig_open;                 /* as st_gpu.mig_open */
	bool switchable;     /* usable without MIG too, as long as it is not in MIG mode */
	int32_t clients_cap; /* more clients left than this makes no difference to any class */
	int64_t gpu_sum;     /* the workload's G, with amounts taken as parts of this device */
	int32_t bid_group;
	/* BID only, set with the prices: milli of all usable GPUs of the type, and what taking one costs. */
	int64_t all_milli, used_milli;
	int32_t scarcity;
	struct fr_mig_value *value; /* not FGD, and the workload has MIG classes; else NULL */
	struct fr_type_class *classes;
	struct fr_caps caps; /* CA only */
};

/* The state of a GPU, as a hash key: no padding. */
struct fr_row_key {
	uint64_t mig_placed;
	int32_t free_mib;
	int32_t compute_left_nano;
	int32_t clients_left;
	uint16_t type;
	uint8_t mode;
	uint8_t usable;
};

struct fr_node {
	uint32_t epoch;   /* of the rows below; 0 = never synced */
	uint32_t version; /* of st_node when synced */
	int32_t idle_milli;
	uint32_t idle_gpus; /* BID only */
	uint32_t bid_group; /* BID only: of the first GPU that is not in MIG mode */
	uint8_t gpu_count;
	bool closed;      /* BID only: gets nothing new, so that nothing of it is for sale */
	int64_t cpu_left; /* BID only: as synced */
	int64_t n;
	int32_t *sums; /* fill, unfit, fit: 3 * stride; BID: values over the price grid */
	uint64_t rows[ST_GPUS_MAX];
	uint16_t types[ST_GPUS_MAX];
};

struct fr_measure {
	const struct st_cluster *cluster;
	enum fr_kind kind;
	struct fr_workload *w;
	int64_t scale; /* what N is divided by to give milli: K or 4 K */
	int64_t thresholds[100];
	struct fr_bid *bid; /* BID only */
	bool uses_compute;  /* some class asks for a compute share */
	bool has_mig;       /* some class asks for MIG instances */
	int64_t cpu_only;   /* weight of the classes without GPU: they always count all of R */

	/* GPU classes, those of one device first. index[i] is the class in the workload. */
	uint32_t class_count, single_count;
	size_t stride; /* of the arrays of a row: class_count, rounded up */
	uint32_t *index;
	bool *valued; /* not FGD: a MIG class, rated by fr_type.value */
	int32_t *weight;
	int32_t *count;
	int64_t *cpu;
	uint32_t *cpu_bound; /* the same, at most FR_CPU_EXACT */

	uint32_t type_count, type_cap;
	struct fr_type *types;

	/* Rows: row i at rows + i * 3 * stride; row 0 is all zero. */
	uint32_t row_count, row_cap, row_limit, row_epoch;
	bool short_of_memory; /* a row could not be made since it was last asked */
	int32_t *rows;
	struct fr_row_key *row_keys;
	uint32_t *row_slots; /* open addressing; 0 = empty */
	uint32_t slot_mask;

	uint32_t node_cap;
	struct fr_node *nodes;
	struct fr_bid_node
		*sales; /* BID only: of each node, what a price step reads, in one piece */
	int64_t total, idle_total;
};

/* rows.c */
/* Milli of a device of that type that are free. MIG: of its memory units, so that instances take
 * the same milli wherever they are; not counted in MiB, which do not divide evenly. */
int32_t fr_milli(const struct fr_type *t, enum st_mode mode, int32_t free_mib, uint64_t mig_placed);
int fr_types_find(struct fr_measure *m, uint32_t product, const struct st_gpu *g);
uint64_t fr_row_find(struct fr_measure *m, const struct fr_gpu *g); /* 0 where memory is short */
struct fr_row fr_row_at(const struct fr_measure *m, uint64_t row);
void fr_rows_clear(struct fr_measure *m);
int fr_rows_init(struct fr_measure *m);
void fr_type_fini(struct fr_type *t);

/* measure_bid.c */
int fr_bid_type_init(struct fr_measure *m, struct fr_type *t);
uint64_t fr_bid_row(const struct fr_measure *m, const struct fr_gpu *g);
void fr_bid_node_value(const struct fr_measure *m, struct fr_node *nd);
void fr_bid_sale_set(struct fr_measure *m, uint32_t node); /* after its value */
int64_t fr_bid_after(const struct fr_measure *m, const struct fr_node *nd, int64_t cpu,
		     const struct fr_change *ch, unsigned n, int64_t *ret_extras);

/* In steps of 6 milli. */
static inline int32_t fr_bid_score(int64_t loss)
{
	int64_t s = arith_floor_div(-loss, 6 << FR_PRICE_BITS);

	return (int32_t)arith_min(arith_max(s, -(1 << 28)), 1 << 28);
}

/* threshold.c */
void fr_thresholds_fill(int64_t total, int64_t j[100]);
int32_t fr_score_fgd(const int64_t j[100], int64_t delta);

#endif

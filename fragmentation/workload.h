/* The workload: weighted request classes that say what the cluster will be asked for next.
 *
 * Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3 (target workload);
 * exact integer weights instead of popularity in doubles. */
#ifndef TESSERA_FRAGMENTATION_WORKLOAD_H
#define TESSERA_FRAGMENTATION_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "state/request.h"

#define FR_CLASSES_MAX 512            /* kept classes of one workload, those with GPU first */
#define FR_WEIGHT_TOTAL_MAX (1 << 20) /* K: weights are scaled down to stay below */

/* The key of a class. Host memory is not part of it. Fields that do not apply are 0; there is no
 * padding, so that two keys are equal exactly when their bytes are. */
struct fr_class {
	int64_t cpu_milli;
	int32_t size_mib;     /* SHARE by amount; 0 = by fraction. MIG without a profile likewise */
	int32_t size_nano;    /* SHARE by fraction of allocatable */
	int32_t compute_nano; /* SHARE: compute share; 0 = none */
	uint8_t kind;         /* enum st_kind */
	uint8_t mode;         /* SHARE: wanted mode, enum st_mode */
	uint8_t mode_preferred; /* SHARE: either mode will do */
	uint8_t count;          /* devices or instances; 0 = a pod without GPU */
	char profile[ST_MIG_NAME_CAP];
	char product[ST_PRODUCT_CAP]; /* compared verbatim */
};
_Static_assert(sizeof(struct fr_class) == 24 + ST_MIG_NAME_CAP + ST_PRODUCT_CAP,
	       "a class has no padding");

/* The class a request counts as: its GPU item, or the largest one where it has several. CPU is cut
 * off far above what any node has, so that sums over all classes are exact. */
void fr_class_of(const struct st_request *req, struct fr_class *ret);

/* Milli of one device that a task of the class takes: a fraction, or MiB of a device that stands for
 * 1000, or the slices of a MIG profile by sevenths (without a profile: the size asked for). 0 for a class without GPU. */
int64_t fr_class_milli(const struct fr_class *c);

/* Counts of classes seen. */
struct fr_counts;
struct fr_counts *fr_counts_new(void); /* NULL: no memory */
void fr_counts_free(struct fr_counts *c);
/* Adds n sightings; ERR_NOMEM. */
int fr_counts_add(struct fr_counts *c, const struct fr_class *cls, int64_t n, struct err *err);
/* Halves all counts, dropping those that reach 0: decay for online estimates. */
void fr_counts_halve(struct fr_counts *c);
int64_t fr_counts_total(const struct fr_counts *c);
size_t fr_counts_classes(const struct fr_counts *c);

/* An immutable workload. Classes are sorted by count descending; ties by cpu, size, count, product,
 * all descending. */
struct fr_workload {
	size_t count;
	int64_t total;   /* K: sum of the kept weights */
	int64_t gpu_sum; /* G: GPU milli of all classes with GPU, by count (for rho = G / C) ... */
	int64_t gpu_mib_sum; /* ... without those sized in MiB: their MiB, for each type of GPU to
			      * convert */
	int64_t cpu_sum;     /* C: CPU milli of the same; >= 1 */
	bool mixed;          /* more than one of {time-slicing, sm-sharing, MIG} occurs */
	struct fr_class *classes;
	int64_t *weights;
};

/* The shortest prefix of the sorted classes whose count reaches popularity_percent of all;
 * at least one class; classes of MIG instances are all kept, since what is rare among them is what
 * is hard to make room for. gpu_only leaves out the classes without GPU. An empty count gives a small
 * built-in mix. NULL: no memory. */
struct fr_workload *fr_workload_build(const struct fr_counts *c, int popularity_percent,
				      bool gpu_only);
struct fr_workload *fr_workload_copy(const struct fr_workload *w); /* NULL: no memory */
void fr_workload_free(struct fr_workload *w);

#endif

/* What a pod asks for, after validation; and what was chosen for it. Plain values, no pointers into
 * anything: copied freely. */
#ifndef TESSERA_STATE_REQUEST_H
#define TESSERA_STATE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "state/mig.h"

#define ST_GPUS_MAX 16      /* GPUs of one node */
#define ST_ITEMS_MAX 8      /* containers of one pod that ask for GPU */
#define ST_CONTAINER_CAP 64 /* a container name is a DNS label: 63 characters */
#define ST_PRODUCT_CAP 256  /* "A|B|C" */
#define ST_NANO 1000000000  /* a whole, where shares are counted in 10^-9 */

/* Compute mode of a GPU; the first allocation sets it, the last one leaving frees it. */
enum st_mode {
	ST_MODE_FREE,
	ST_MODE_TIME_SLICING,
	ST_MODE_SM_SHARING,
	ST_MODE_EXCLUSIVE,
	ST_MODE_MIG, /* the hardware is partitioned: stays with or without instances */
	ST_MODE_COUNT,
};

enum st_kind {
	ST_KIND_SHARE, /* part of a GPU's memory under MPS */
	ST_KIND_WHOLE,
	ST_KIND_MIG,
};

enum st_workload_profile { ST_WORKLOAD_NONE, ST_WORKLOAD_MEMORY_BOUND, ST_WORKLOAD_COMPUTE_BOUND };

/* The request of one container. */
struct st_item {
	char container[ST_CONTAINER_CAP];
	enum st_kind kind;
	enum st_mode mode;    /* SHARE: time-slicing or sm-sharing */
	bool mode_preferred;  /* SHARE: the other mode is taken where the wanted one has no room */
	uint8_t count;        /* different GPUs (SHARE, WHOLE) or instances (MIG), >= 1 */
	bool apart;           /* MIG: each instance on a GPU of its own */
	int32_t request_mib;  /* SHARE by amount, on each GPU; 0 = by fraction. MIG without a
			       * profile: memory of the instance, at least */
	int32_t request_nano; /* SHARE by fraction of allocatable, on each GPU; 0 = by amount. MIG
			       * without a profile: part of the GPU's memory units, at least */
	int32_t limit_mib;    /* same unit as the request; both 0 = the request */
	int32_t limit_nano;
	int32_t compute_nano;          /* SHARE: compute share on each GPU; 0 = none asked for */
	char profile[ST_MIG_NAME_CAP]; /* MIG; "" = the smallest that is large enough */
};

struct st_request {
	int64_t cpu_milli;            /* of the whole pod, as Kubernetes counts */
	int64_t mem_mib;              /* host memory, likewise */
	char product[ST_PRODUCT_CAP]; /* accepted products joined by '|'; "" = any */
	enum st_workload_profile workload;
	uint8_t item_count; /* 0 = a pod without GPU */
	struct st_item items[ST_ITEMS_MAX];
};

/* What one container was given. count entries of gpu (and start, for MIG) are in use. */
struct st_grant {
	char container[ST_CONTAINER_CAP];
	enum st_kind kind;
	enum st_mode mode;
	uint8_t count;
	uint8_t gpu[ST_GPUS_MAX];   /* index on the node */
	uint8_t start[ST_GPUS_MAX]; /* MIG: first memory unit; gpu may repeat */
	int32_t request_mib; /* booked on each GPU (WHOLE: its allocatable memory on the first) */
	int32_t limit_mib;
	int32_t compute_nano;
	char profile[ST_MIG_NAME_CAP];
};

struct st_decision {
	uint32_t node; /* id in the cluster */
	uint8_t grant_count;
	struct st_grant grants[ST_ITEMS_MAX];
};

/* MiB that an item books on a GPU with alloc_mib allocatable: floor(alloc * fraction), at least 1,
 * or the amount. limit likewise (the request where no limit was given). Not for MIG. */
int32_t st_item_request_mib(const struct st_item *it, int32_t alloc_mib);
int32_t st_item_limit_mib(const struct st_item *it, int32_t alloc_mib);

/* MIG: may an instance of that profile serve the item on a GPU of that geometry? */
bool st_item_mig_takes(const struct st_item *it, const struct st_mig_geometry *g, int profile);
/* The profile named, or the smallest that serves the item; -1 = none does. */
int st_item_mig_profile(const struct st_item *it, const struct st_mig_geometry *g);

/* Names as annotations write them: "time-slicing", "sm-sharing", "exclusive", "mig", "free". */
const char *st_mode_name(enum st_mode m);
int st_mode_parse(const char *s); /* -1 for others */

#endif

/* The most that each workload was seen to use: for asking for the right size next time. A workload is
 * what made the pod (a Deployment, a Job, or the pod itself), and each of its containers counts alone;
 * several pods of it share a row, which keeps the highest of them. Kept in a file across restarts. */
#ifndef TESSERA_ENFORCER_USAGE_H
#define TESSERA_ENFORCER_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EN_USAGE_ROWS_MAX 2048 /* beyond, the one that was seen longest ago makes room */

struct en_usage_sample {
	const char *ns, *kind, *owner, *container; /* copied */
	int64_t used_mib;                          /* on the GPU where it is most; -1: not known */
	int sm_percent;                            /* likewise */
	int32_t request_mib, limit_mib;
	int64_t wall_s; /* seconds since the epoch */
};

struct en_usage;

struct en_usage *en_usage_new(void); /* NULL: no memory */
void en_usage_free(struct en_usage *u);

/* Thread-safe, as all below. ERR_NOMEM: as before. */
int en_usage_put(struct en_usage *u, const struct en_usage_sample *s, struct err *err);

/* {"version":1,"workloads":[{"namespace","kind","workload","container","peak_memory_mib",
 * "peak_memory_time","peak_sm_percent","request_mib","limit_mib","samples","first","last"}]}, sorted by
 * name; what was never measured is null. Times are seconds since the epoch. ERR_NOMEM. */
int en_usage_json(struct en_usage *u, struct buf *out, struct err *err);

/* Rows of a text as above are added, the higher peak of each stays. ERR_INVALID names the row and
 * changes nothing; ERR_NOMEM. */
int en_usage_take(struct en_usage *u, const char *text, size_t len, struct err *err);

/* From and to a file; a file that is not there is an empty one. Saving writes only what changed since.
 * ERR_IO, ERR_TOO_LARGE, and those above. */
int en_usage_load(struct en_usage *u, const char *path, struct err *err);
int en_usage_save(struct en_usage *u, const char *path, struct err *err);

size_t en_usage_count(struct en_usage *u);

#endif

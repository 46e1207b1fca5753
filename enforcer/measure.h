/* What containers with a grant use of their GPUs, as the driver tells: sampled, one row for each
 * container and GPU. Everything is seen from outside, at the moments of the samples; what happens between
 * two of them and leaves no trace is not seen. */
#ifndef TESSERA_ENFORCER_MEASURE_H
#define TESSERA_ENFORCER_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "enforcer/apply_ledger.h"
#include "enforcer/hook.h"
#include "enforcer/nvml.h"
#include "enforcer/probe.h"

#define EN_MEASURE_PIDS_MAX 32

struct en_measured {
	char id[129]; /* of the container */
	char ns[64], pod[254], pod_uid[64], container[64];
	char gpu[EN_UUID_CAP];
	uint32_t gpu_idx; /* as the driver counts */
	int32_t gpu_mib;  /* memory of the GPU */
	enum st_kind kind;
	enum st_mode mode;
	int32_t request_mib, limit_mib, compute_nano;
	int64_t used_mib;  /* -1: not known */
	int sm_percent;    /* of the whole GPU; -1: not known */
	int sm_normal;     /* of the share, at most 100; -1: not known */
	int64_t started_s; /* seconds since the epoch; 0: not started, or not known */
	uint64_t
		limit_hits; /* samples in which memory reached the limit, after one where it had not */
	uint64_t evictions; /* processes that lost their context over the request, and lived on */

	/* between samples: */
	uint32_t pids[EN_MEASURE_PIDS_MAX]; /* with memory on the GPU at the last sample */
	size_t pid_count;
	unsigned process_count; /* all of them, beyond the array too */
	bool at_limit, seen;
};

struct en_measurer;

struct en_measure_options {
	const char *proc;                /* NULL: "/proc"; outlives the measurer */
	const char *cgroup_mount;        /* NULL: memory is counted by process alone; outlives it */
	const struct en_limits_ops *ops; /* likewise */
};

struct en_measurer *en_measurer_new(const struct en_measure_options *o); /* NULL: no memory */
void en_measurer_free(struct en_measurer *m);

/* Samples: rows are those of the containers given that were started and not stopped; rows of others go.
 * nvml NULL: the driver is not there, nothing is known. by_cgroup: the limits' own figure of memory in use
 * is asked for (a call for each row; not where that starts a program). One thread. ERR_NOMEM: as before. */
int en_measurer_run(struct en_measurer *m, struct en_nvml *nvml, const struct en_probe *probe,
		    const struct en_holding *const *holdings, size_t count, bool by_cgroup,
		    int64_t wall_s, struct err *err);

/* Copies all rows to *ret (malloc'ed, the caller's; NULL where there are none). Any thread. */
int en_measurer_rows(struct en_measurer *m, struct en_measured **ret, size_t *ret_count,
		     struct err *err);

/* The use of the GPU in terms of the share: of the compute share where there is one, else of the share of
 * memory. 0 to 100; sm -1: -1. */
int en_measure_normal(int sm_percent, int32_t compute_nano, int32_t request_mib, int32_t gpu_mib);

#endif

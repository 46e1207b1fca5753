/* Memory limits: the implementations of struct en_limits_ops (hook.h), over NVML's memory-limit calls or
 * `nvidia-smi memory-limits`, and the form in which legacy MPS takes a limit for each process.
 *
 * Nothing is believed: what was set is read back by value. Where NVML's answer does not match what was
 * set, its structs are of a kind we do not know, and the command line is used from then on. */
#ifndef TESSERA_ENFORCER_LIMITS_H
#define TESSERA_ENFORCER_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "enforcer/hook.h"

enum en_limits_way {
	EN_LIMITS_AUTO, /* NVML where it has the calls, else nvidia-smi */
	EN_LIMITS_NVML,
	EN_LIMITS_SMI,
};

struct en_limits_options {
	enum en_limits_way way;
	const char *library;  /* NULL: libnvidia-ml.so.1; copied */
	const char *smi;      /* NULL: "nvidia-smi", looked up in PATH; copied */
	int64_t smi_limit_ms; /* for one call of it; 0: 10,000 */
};

struct en_limits;

/* ERR_NOMEM. Opens nothing: the library is loaded by the first call. */
int en_limits_new(const struct en_limits_options *o, struct en_limits **ret, struct err *err);
void en_limits_free(struct en_limits *l);

/* The operations; valid as long as l. Called from several threads. */
const struct en_limits_ops *en_limits_ops(struct en_limits *l);

/* Lets go of the driver, so that it can be unloaded; the next call opens it again. */
void en_limits_close(struct en_limits *l);

/* "nvml" or "nvidia-smi": what the next call will use. */
const char *en_limits_way_name(struct en_limits *l);

/* Takes the limits away before a cgroup goes: soft 0, hard none. A cgroup that is gone already is fine. */
int en_limits_clear(const struct en_limits_ops *ops, const char *cgroup, const char *gpu_uuid,
		    struct err *err);

/* Are what is set and what should be the same? 0; ERR_CONFLICT names both. Errors of ops->get. */
int en_limits_check(const struct en_limits_ops *ops, const char *cgroup, const char *gpu_uuid,
		    int64_t soft_mib, int64_t hard_mib, struct err *err);

/* The value of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: "0=1024M,1=2048M". Ordinals are those that the container
 * sees, 0 to count - 1, never the host's: an entry for a GPU that the process cannot see makes MPS drop
 * all of them. malloc'ed and the caller's; NULL: no memory. */
char *en_limits_pinned(const int64_t *mib, size_t count);

#endif

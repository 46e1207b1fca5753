/* The NVIDIA driver as this node has it, through libnvidia-ml.so.1 loaded at run time: what GPUs are
 * there, how they are, what MIG allows, what runs on them, and memory limits of cgroups.
 *
 * Queries return 0 and write *ret, or EN_NVML_UNSUPPORTED (this driver or GPU does not offer it: a
 * result, *ret and *err untouched), or a negative code with a message that names the call. All functions
 * may be called from any thread, as NVML allows; open and close may not overlap with others. */
#ifndef TESSERA_ENFORCER_NVML_H
#define TESSERA_ENFORCER_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct en_nvml;        /* the library, loaded and initialised */
struct en_nvml_device; /* a GPU's handle; valid until en_nvml_close() */

#define EN_NVML_UNSUPPORTED 1
#define EN_NVML_TEXT_CAP 97 /* UUIDs, product names, profile names */

/* path NULL: "libnvidia-ml.so.1" as the loader finds it. ERR_NOT_FOUND: no such library, or one that
 * lacks what every driver since 450 has; ERR_CONFLICT: the kernel driver is not loaded or of another
 * version; ERR_IO: the driver refused; ERR_NOMEM. */
int en_nvml_open(const char *path, struct en_nvml **ret, struct err *err);
void en_nvml_close(struct en_nvml *n); /* NULL is fine */

/* True once a call found the driver gone or exchanged: all further calls fail, open it anew. */
bool en_nvml_lost(const struct en_nvml *n);

int en_nvml_driver_version(struct en_nvml *n, char ret[EN_NVML_TEXT_CAP], struct err *err);
int en_nvml_count(struct en_nvml *n, unsigned *ret, struct err *err);
int en_nvml_device(struct en_nvml *n, unsigned index, struct en_nvml_device **ret, struct err *err);
int en_nvml_device_by_uuid(struct en_nvml *n, const char *uuid, struct en_nvml_device **ret,
			   struct err *err); /* ERR_NOT_FOUND */

struct en_nvml_identity {
	char uuid[EN_NVML_TEXT_CAP];    /* "GPU-..." or "MIG-..." */
	char product[EN_NVML_TEXT_CAP]; /* "NVIDIA A100-SXM4-80GB" */
	uint64_t mem_bytes;             /* total */
	int minor;                      /* of /dev/nvidia<minor>; -1 = not told */
	char bus[32];                   /* "00000000:02:00.0"; "" = not told */
};
int en_nvml_identity(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_identity *ret,
		     struct err *err);
int en_nvml_uuid(struct en_nvml *n, struct en_nvml_device *d, char ret[EN_NVML_TEXT_CAP],
		 struct err *err);

/* ---- state ---- */

enum en_throttle { /* the driver's bits that tell of trouble */
		   EN_THROTTLE_HW_SLOWDOWN = 0x8,
		   EN_THROTTLE_SW_THERMAL = 0x20,
		   EN_THROTTLE_HW_THERMAL = 0x40,
		   EN_THROTTLE_HW_POWER_BRAKE = 0x80,
};

#define EN_NVML_UNKNOWN (-1) /* of the fields below: the driver does not tell */

struct en_nvml_state {
	bool lost; /* has fallen off the bus or needs a reset; the rest is unknown then */
	int64_t ecc_uncorrected; /* since the driver was loaded */
	int64_t throttle;        /* enum en_throttle and other bits */
	int temperature_c, slowdown_c, shutdown_c;
	int remap_failed;  /* 1: a row could not be remapped */
	int remap_pending; /* 1: rows or pages are exchanged at the next reset */
	int persistence;   /* 1: the driver stays loaded without clients */
	int compute_mode;  /* 0 default, 2 prohibited, 3 exclusive process */
};
/* Never EN_NVML_UNSUPPORTED. A negative code only when the driver as a whole fails. */
int en_nvml_state(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_state *ret,
		  struct err *err);

/* ---- processes ---- */

enum en_nvml_process_kind { EN_NVML_COMPUTE, EN_NVML_GRAPHICS, EN_NVML_MPS_CLIENT };

struct en_nvml_process {
	uint32_t pid;       /* as the host counts; 0 without the host's PID namespace */
	uint64_t mem_bytes; /* 0 where not told */
	enum en_nvml_process_kind kind;
};
/* All processes with a context on the GPU, at most cap; *ret_count may be more than cap: then the rest
 * was left out. Kinds the driver does not list are missing. */
int en_nvml_processes(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_process *ret,
		      size_t cap, size_t *ret_count, struct err *err);

struct en_nvml_use {
	uint32_t pid;
	uint64_t time_us; /* of the sample; the caller hands the largest in again as since_us */
	unsigned sm_percent;
};
/* Utilisation samples since since_us (0: all the driver keeps), at most cap, as they come. */
int en_nvml_use(struct en_nvml *n, struct en_nvml_device *d, uint64_t since_us,
		struct en_nvml_use *ret, size_t cap, size_t *ret_count, struct err *err);

/* ---- XID errors ---- */

/* Registers all GPUs that can report them. EN_NVML_UNSUPPORTED: none can. */
int en_nvml_watch(struct en_nvml *n, struct err *err);
/* One error that was reported since the watch began. *ret_uuid "" where the driver cannot tell the GPU.
 * 0; EN_NVML_UNSUPPORTED: none within timeout_ms (0: does not wait). */
int en_nvml_next_xid(struct en_nvml *n, unsigned timeout_ms, char ret_uuid[EN_NVML_TEXT_CAP],
		     uint64_t *ret_xid, struct err *err);

/* ---- MIG ---- */

int en_nvml_mig_mode(struct en_nvml *n, struct en_nvml_device *d, bool *ret_current,
		     bool *ret_pending, struct err *err); /* UNSUPPORTED: not capable of MIG */

#define EN_NVML_PROFILE_ENUMS 32 /* valid arguments are below; most do not exist */

struct en_nvml_profile {
	unsigned id;        /* nvidia-smi's, and that of the calls below */
	unsigned slices;    /* compute slices */
	unsigned instances; /* at most, on an empty GPU */
	uint64_t mem_mib;
	char name[EN_NVML_TEXT_CAP]; /* "3g.40gb"; "" where this driver does not name them */
};
/* which counts from 0 to EN_NVML_PROFILE_ENUMS - 1. UNSUPPORTED: MIG is off, or no such profile. */
int en_nvml_profile(struct en_nvml *n, struct en_nvml_device *d, unsigned which,
		    struct en_nvml_profile *ret, struct err *err);

struct en_nvml_placement {
	unsigned start, size; /* in memory units */
};
/* All starts of a profile id, free or not; works with MIG on and off. At most cap. */
int en_nvml_placements(struct en_nvml *n, struct en_nvml_device *d, unsigned profile_id,
		       struct en_nvml_placement *ret, size_t cap, size_t *ret_count,
		       struct err *err);

struct en_nvml_instance {
	unsigned id, profile_id;
	struct en_nvml_placement at;
	char uuid
		[EN_NVML_TEXT_CAP]; /* "MIG-..." of its only compute instance; "" = none or several */
};
/* GPU instances of that profile that exist. At most cap. */
int en_nvml_instances(struct en_nvml *n, struct en_nvml_device *d, unsigned profile_id,
		      struct en_nvml_instance *ret, size_t cap, size_t *ret_count, struct err *err);

/* Makes a GPU instance at that place and a compute instance over the whole of it; neither is left behind
 * after an error. ERR_NO_ROOM: the driver says that resources are short, for whatever reason;
 * ERR_CONFLICT: in use. UNSUPPORTED: MIG is off, or this driver has no such call. Takes seconds. */
int en_nvml_instance_make(struct en_nvml *n, struct en_nvml_device *d, unsigned profile_id,
			  struct en_nvml_placement at, struct en_nvml_instance *ret,
			  struct err *err);
/* Removes the instance, if it still is the one given: ids are given again. ERR_NOT_FOUND: it is not (any
 * more), ERR_CONFLICT: a process is on it; its compute instance may be gone then. */
int en_nvml_instance_remove(struct en_nvml *n, struct en_nvml_device *d,
			    const struct en_nvml_instance *which, struct err *err);
/* Puts the GPU into MIG mode, or out of it. ERR_CONFLICT: it is not idle, or wants a reset first. */
int en_nvml_mig_set(struct en_nvml *n, struct en_nvml_device *d, bool on, struct err *err);

/* ---- memory limits of a cgroup (driver 615) ---- */

#define EN_NVML_LIMIT_MAX UINT64_MAX

bool en_nvml_has_limits(const struct en_nvml *n);

struct en_nvml_limits {
	uint64_t soft_bytes;
	uint64_t hard_bytes; /* EN_NVML_LIMIT_MAX = none */
	uint64_t used_bytes;
};
/* cgroup: absolute path of its directory. Needs root. Soft 0 with EN_NVML_LIMIT_MAX clears.
 * UNSUPPORTED: no such call here, no backend in this kernel, or MIG. ERR_NOT_FOUND: no such cgroup. */
int en_nvml_limits_set(struct en_nvml *n, struct en_nvml_device *d, const char *cgroup,
		       uint64_t soft_bytes, uint64_t hard_bytes, struct err *err);
/* Where nothing was ever set, drivers answer ERR_NOT_FOUND or UNSUPPORTED, depending on the backend. */
int en_nvml_limits_get(struct en_nvml *n, struct en_nvml_device *d, const char *cgroup,
		       struct en_nvml_limits *ret, struct err *err);

#endif

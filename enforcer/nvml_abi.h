/* NVML's binary interface, as far as this folder calls it: types and prototypes of our own, so that
 * nothing of the driver is needed to build. Source: nvml.h of CUDA 11.8 and 13.3; the memory-limit
 * calls (driver 615, CUDA 13.4): NVML API reference v615, pages nvmlSetMemoryLimits_v1_t and
 * nvmlGetMemoryLimits_v1_t. Only nvml*.c and the fake library of the tests include this. */
#ifndef TESSERA_ENFORCER_NVML_ABI_H
#define TESSERA_ENFORCER_NVML_ABI_H

#include <stddef.h>

struct en_nvml_device; /* nvmlDevice_t */
struct nv_gi;          /* nvmlGpuInstance_t */
struct nv_ci;          /* nvmlComputeInstance_t */
struct nv_event_set;   /* nvmlEventSet_t */

/* nvmlReturn_t */
enum {
	NV_OK = 0,
	NV_UNINITIALIZED = 1,
	NV_INVALID_ARGUMENT = 2,
	NV_NOT_SUPPORTED = 3,
	NV_NO_PERMISSION = 4,
	NV_NOT_FOUND = 6,
	NV_INSUFFICIENT_SIZE = 7,
	NV_DRIVER_NOT_LOADED = 9,
	NV_TIMEOUT = 10,
	NV_FUNCTION_NOT_FOUND = 13,
	NV_GPU_IS_LOST = 15,
	NV_RESET_REQUIRED = 16,
	NV_LIB_RM_VERSION_MISMATCH = 18,
	NV_IN_USE = 19,
	NV_INSUFFICIENT_RESOURCES = 23,
	NV_VERSION_MISMATCH = 25,
	NV_UNKNOWN = 999,
};

#define NV_UUID_CAP 96
#define NV_NAME_CAP 96
#define NV_VERSION_CAP 80
#define NV_VALUE_NOT_AVAILABLE (~0ULL)
#define NV_PROFILE_ENUM_MAX 32 /* profile enums are tried up to here; 18 are known */
#define NV_STRUCT_VERSION(type, n) ((unsigned)(sizeof(struct type) | ((unsigned)(n) << 24)))

enum { NV_ECC_UNCORRECTED = 1, NV_ECC_VOLATILE = 0 };
enum { NV_TEMPERATURE_GPU = 0 };
enum { NV_THRESHOLD_SHUTDOWN = 0, NV_THRESHOLD_SLOWDOWN = 1 };
#define NV_EVENT_XID 0x8ULL

struct nv_memory {
	unsigned long long total, free, used; /* bytes */
};

struct nv_pci {
	char bus_id_legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32]; /* "00000000:02:00.0" */
};

struct nv_process { /* of the _v3 calls */
	unsigned pid;
	unsigned long long used_memory; /* bytes; NV_VALUE_NOT_AVAILABLE */
	unsigned gi_id, ci_id;          /* 0xFFFFFFFF outside of MIG */
};

struct nv_process_sample {
	unsigned pid;
	unsigned long long time_us;
	unsigned sm, mem, enc, dec; /* percent */
};

struct nv_event {
	struct en_nvml_device *device;
	unsigned long long type, data;
	unsigned gi_id, ci_id;
};

struct nv_gi_profile { /* v1 */
	unsigned id, p2p, slices, instances, sms, copy, dec, enc, jpeg, ofa;
	unsigned long long mem_mib;
};

struct nv_gi_profile_v2 {
	unsigned version;
	unsigned id, p2p, slices, instances, sms, copy, dec, enc, jpeg, ofa;
	unsigned long long mem_mib;
	char name[NV_NAME_CAP];
};

struct nv_gi_placement {
	unsigned start, size;
};

struct nv_gi_info {
	struct en_nvml_device *device;
	unsigned id, profile_id;
	struct nv_gi_placement placement;
};

struct nv_ci_profile {
	unsigned id, slices, instances, sms, copy, dec, enc, jpeg, ofa;
};

struct nv_ci_info { /* of nvmlComputeInstanceGetInfo_v2 */
	struct en_nvml_device *device;
	struct nv_gi *gi;
	unsigned id, profile_id;
	struct nv_gi_placement placement;
};

struct nv_set_limits_v1 {
	const char *cgroup;
	unsigned long long soft, hard; /* bytes */
};

struct nv_get_limits_v1 {
	const char *cgroup;
	unsigned long long soft, hard, used; /* bytes */
};

_Static_assert(sizeof(struct nv_pci) == 68, "layout of nvmlPciInfo_t");
_Static_assert(sizeof(struct nv_process) == 24, "layout of nvmlProcessInfo_t");
_Static_assert(sizeof(struct nv_process_sample) == 32, "layout of nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(struct nv_event) == 32, "layout of nvmlEventData_t");
_Static_assert(sizeof(struct nv_gi_profile) == 48, "layout of nvmlGpuInstanceProfileInfo_t");
_Static_assert(sizeof(struct nv_gi_profile_v2) == 152, "layout of nvmlGpuInstanceProfileInfo_v2_t");
_Static_assert(sizeof(struct nv_gi_info) == 24, "layout of nvmlGpuInstanceInfo_t");
_Static_assert(sizeof(struct nv_ci_profile) == 36, "layout of nvmlComputeInstanceProfileInfo_t");
_Static_assert(sizeof(struct nv_ci_info) == 32, "layout of nvmlComputeInstanceInfo_t");
_Static_assert(sizeof(struct nv_set_limits_v1) == 24, "layout of nvmlSetMemoryLimits_v1_t");
_Static_assert(sizeof(struct nv_get_limits_v1) == 32, "layout of nvmlGetMemoryLimits_v1_t");

/* X(needed, member, symbol, arguments): members of struct nv_calls. Without a needed symbol the
 * library is not used; one that is not needed may be NULL. */
#define NV_CALLS(X)                                                                                \
	X(1, init, nvmlInit_v2, (void))                                                            \
	X(1, shutdown, nvmlShutdown, (void))                                                       \
	X(1, driver_version, nvmlSystemGetDriverVersion, (char *, unsigned))                       \
	X(1, count, nvmlDeviceGetCount_v2, (unsigned *))                                           \
	X(1, by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned, struct en_nvml_device **))        \
	X(1, by_uuid, nvmlDeviceGetHandleByUUID, (const char *, struct en_nvml_device **))         \
	X(1, uuid, nvmlDeviceGetUUID, (struct en_nvml_device *, char *, unsigned))                 \
	X(1, name, nvmlDeviceGetName, (struct en_nvml_device *, char *, unsigned))                 \
	X(1, memory, nvmlDeviceGetMemoryInfo, (struct en_nvml_device *, struct nv_memory *))       \
	X(0, minor, nvmlDeviceGetMinorNumber, (struct en_nvml_device *, unsigned *))               \
	X(0, pci, nvmlDeviceGetPciInfo_v3, (struct en_nvml_device *, struct nv_pci *))             \
	X(0, persistence, nvmlDeviceGetPersistenceMode, (struct en_nvml_device *, int *))          \
	X(0, compute_mode, nvmlDeviceGetComputeMode, (struct en_nvml_device *, int *))             \
	X(0, temperature, nvmlDeviceGetTemperature, (struct en_nvml_device *, int, unsigned *))    \
	X(0, threshold, nvmlDeviceGetTemperatureThreshold,                                         \
	  (struct en_nvml_device *, int, unsigned *))                                              \
	X(0, ecc_total, nvmlDeviceGetTotalEccErrors,                                               \
	  (struct en_nvml_device *, int, int, unsigned long long *))                               \
	X(0, remapped, nvmlDeviceGetRemappedRows,                                                  \
	  (struct en_nvml_device *, unsigned *, unsigned *, unsigned *, unsigned *))               \
	X(0, retired_pending, nvmlDeviceGetRetiredPagesPendingStatus,                              \
	  (struct en_nvml_device *, int *))                                                        \
	X(0, throttle, nvmlDeviceGetCurrentClocksThrottleReasons,                                  \
	  (struct en_nvml_device *, unsigned long long *))                                         \
	X(0, clock_events, nvmlDeviceGetCurrentClocksEventReasons,                                 \
	  (struct en_nvml_device *, unsigned long long *))                                         \
	X(0, compute_processes, nvmlDeviceGetComputeRunningProcesses_v3,                           \
	  (struct en_nvml_device *, unsigned *, struct nv_process *))                              \
	X(0, graphics_processes, nvmlDeviceGetGraphicsRunningProcesses_v3,                         \
	  (struct en_nvml_device *, unsigned *, struct nv_process *))                              \
	X(0, mps_processes, nvmlDeviceGetMPSComputeRunningProcesses_v3,                            \
	  (struct en_nvml_device *, unsigned *, struct nv_process *))                              \
	X(0, process_samples, nvmlDeviceGetProcessUtilization,                                     \
	  (struct en_nvml_device *, struct nv_process_sample *, unsigned *, unsigned long long))   \
	X(0, event_set, nvmlEventSetCreate, (struct nv_event_set **))                              \
	X(0, event_register, nvmlDeviceRegisterEvents,                                             \
	  (struct en_nvml_device *, unsigned long long, struct nv_event_set *))                    \
	X(0, event_wait, nvmlEventSetWait_v2,                                                      \
	  (struct nv_event_set *, struct nv_event *, unsigned))                                    \
	X(0, event_free, nvmlEventSetFree, (struct nv_event_set *))                                \
	X(0, mig_mode, nvmlDeviceGetMigMode, (struct en_nvml_device *, unsigned *, unsigned *))    \
	X(0, gi_profile, nvmlDeviceGetGpuInstanceProfileInfo,                                      \
	  (struct en_nvml_device *, unsigned, struct nv_gi_profile *))                             \
	X(0, gi_profile_v, nvmlDeviceGetGpuInstanceProfileInfoV,                                   \
	  (struct en_nvml_device *, unsigned, struct nv_gi_profile_v2 *))                          \
	X(0, gi_placements, nvmlDeviceGetGpuInstancePossiblePlacements_v2,                         \
	  (struct en_nvml_device *, unsigned, struct nv_gi_placement *, unsigned *))               \
	X(0, gi_list, nvmlDeviceGetGpuInstances,                                                   \
	  (struct en_nvml_device *, unsigned, struct nv_gi **, unsigned *))                        \
	X(0, gi_info, nvmlGpuInstanceGetInfo, (struct nv_gi *, struct nv_gi_info *))               \
	X(0, gi_by_id, nvmlDeviceGetGpuInstanceById,                                               \
	  (struct en_nvml_device *, unsigned, struct nv_gi **))                                    \
	X(0, gi_create, nvmlDeviceCreateGpuInstanceWithPlacement,                                  \
	  (struct en_nvml_device *, unsigned, const struct nv_gi_placement *, struct nv_gi **))    \
	X(0, gi_destroy, nvmlGpuInstanceDestroy, (struct nv_gi *))                                 \
	X(0, ci_create, nvmlGpuInstanceCreateComputeInstance,                                      \
	  (struct nv_gi *, unsigned, struct nv_ci **))                                             \
	X(0, ci_destroy, nvmlComputeInstanceDestroy, (struct nv_ci *))                             \
	X(0, mig_set, nvmlDeviceSetMigMode, (struct en_nvml_device *, unsigned, int *))            \
	X(0, ci_profile, nvmlGpuInstanceGetComputeInstanceProfileInfo,                             \
	  (struct nv_gi *, unsigned, unsigned, struct nv_ci_profile *))                            \
	X(0, ci_list, nvmlGpuInstanceGetComputeInstances,                                          \
	  (struct nv_gi *, unsigned, struct nv_ci **, unsigned *))                                 \
	X(0, ci_info, nvmlComputeInstanceGetInfo_v2, (struct nv_ci *, struct nv_ci_info *))        \
	X(0, limits_set, nvmlDeviceSetMemoryLimits_v1,                                             \
	  (struct en_nvml_device *, struct nv_set_limits_v1 *))                                    \
	X(0, limits_get, nvmlDeviceGetMemoryLimits_v1,                                             \
	  (struct en_nvml_device *, struct nv_get_limits_v1 *))

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list of arguments are declared here */
#define NV_MEMBER(needed, member, symbol, args) int(*member) args;
struct nv_calls {
	NV_CALLS(NV_MEMBER)
};
#undef NV_MEMBER

#endif

/* The memory-limit calls, behind one version of their structs (nvml_abi.h says where it is from). What
 * was set is read back by limits.c: a driver with another layout is found out there, and the command
 * line takes over. */
#include "enforcer/nvml_internal.h"

bool en_nvml_has_limits(const struct en_nvml *n)
{
	return n->call.limits_set != NULL && n->call.limits_get != NULL;
}

int en_nvml_limits_set(struct en_nvml *n, struct en_nvml_device *d, const char *cgroup,
		       uint64_t soft_bytes, uint64_t hard_bytes, struct err *err)
{
	struct nv_set_limits_v1 limits = {.cgroup = cgroup, .soft = soft_bytes, .hard = hard_bytes};

	return nvml_answer(n, NVML_CALL(n, limits_set, d, &limits), "nvmlDeviceSetMemoryLimits_v1",
			   err);
}

int en_nvml_limits_get(struct en_nvml *n, struct en_nvml_device *d, const char *cgroup,
		       struct en_nvml_limits *ret, struct err *err)
{
	struct nv_get_limits_v1 limits = {.cgroup = cgroup};
	int r = nvml_answer(n, NVML_CALL(n, limits_get, d, &limits), "nvmlDeviceGetMemoryLimits_v1",
			    err);

	if (r == 0)
		*ret = (struct en_nvml_limits){.soft_bytes = limits.soft,
					       .hard_bytes = limits.hard,
					       .used_bytes = limits.used};
	return r;
}

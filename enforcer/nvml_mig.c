/* MIG: mode, profiles, placements, instances. */
#include <stdlib.h>
#include <string.h>

#include "enforcer/nvml_internal.h"

#define LIST_MAX 64      /* instances or placements of one profile */
#define CI_PROFILE_MAX 9 /* NVML_COMPUTE_INSTANCE_PROFILE_COUNT of nvml.h 13.3 */

int en_nvml_mig_mode(struct en_nvml *n, struct en_nvml_device *d, bool *ret_current,
		     bool *ret_pending, struct err *err)
{
	unsigned current = 0, pending = 0;
	int r = nvml_answer(n, NVML_CALL(n, mig_mode, d, &current, &pending),
			    "nvmlDeviceGetMigMode", err);

	if (r != 0)
		return r;
	*ret_current = current == 1;
	*ret_pending = pending == 1;
	return 0;
}

/* "MIG 3g.40gb" and "3g.40gb" are both seen. */
static void copy_name(const char *name, char ret[EN_NVML_TEXT_CAP])
{
	size_t len;

	if (strncmp(name, "MIG ", 4) == 0)
		name += 4;
	len = strnlen(name, EN_NVML_TEXT_CAP - 1);
	memcpy(ret, name, len);
	ret[len] = '\0';
}

int en_nvml_profile(struct en_nvml *n, struct en_nvml_device *d, unsigned which,
		    struct en_nvml_profile *ret, struct err *err)
{
	struct nv_gi_profile_v2 v2 = {.version = NV_STRUCT_VERSION(nv_gi_profile_v2, 2)};
	struct nv_gi_profile v1 = {0};
	int code = NVML_CALL(n, gi_profile_v, d, which, &v2), r;

	if (code == NV_INVALID_ARGUMENT) /* a number that this driver does not know */
		return EN_NVML_UNSUPPORTED;
	if (code == NV_OK) {
		v2.name[NV_NAME_CAP - 1] = '\0';
		*ret = (struct en_nvml_profile){.id = v2.id,
						.slices = v2.slices,
						.instances = v2.instances,
						.mem_mib = v2.mem_mib};
		copy_name(v2.name, ret->name);
		return 0;
	}
	if (code != NV_FUNCTION_NOT_FOUND && code != NV_VERSION_MISMATCH)
		return nvml_answer(n, code, "nvmlDeviceGetGpuInstanceProfileInfoV", err);
	code = NVML_CALL(n, gi_profile, d, which, &v1);
	if (code == NV_INVALID_ARGUMENT)
		return EN_NVML_UNSUPPORTED;
	r = nvml_answer(n, code, "nvmlDeviceGetGpuInstanceProfileInfo", err);
	if (r == 0)
		*ret = (struct en_nvml_profile){.id = v1.id,
						.slices = v1.slices,
						.instances = v1.instances,
						.mem_mib = v1.mem_mib};
	return r;
}

int en_nvml_placements(struct en_nvml *n, struct en_nvml_device *d, unsigned profile_id,
		       struct en_nvml_placement *ret, size_t cap, size_t *ret_count,
		       struct err *err)
{
	struct nv_gi_placement list[LIST_MAX] = {0};
	unsigned count = 0;
	size_t used;
	int code = NVML_CALL(n, gi_placements, d, profile_id, NULL, &count), r;

	/* An id that this GPU does not have. */
	if (code == NV_INVALID_ARGUMENT || code == NV_NOT_FOUND)
		return EN_NVML_UNSUPPORTED;
	if (code == NV_OK && count > LIST_MAX)
		return err_set(err, ERR_TOO_LARGE, "MIG profile %u has %u placements", profile_id,
			       count);
	if (code == NV_OK && count > 0)
		code = NVML_CALL(n, gi_placements, d, profile_id, list, &count);
	r = nvml_answer(n, code, "nvmlDeviceGetGpuInstancePossiblePlacements_v2", err);
	if (r != 0)
		return r;
	used = count < cap ? count : cap;
	for (size_t i = 0; i < used; i++) {
		ret[i].start = list[i].start;
		ret[i].size = list[i].size;
	}
	*ret_count = used;
	return 0;
}

/* The UUID by which a container gets the instance: that of its compute instance's device. nvml.h calls
 * the field the parent device, so the UUID's form decides. */
static void instance_uuid(struct en_nvml *n, struct nv_gi *gi, char ret[EN_NVML_TEXT_CAP])
{
	char found[EN_NVML_TEXT_CAP];
	unsigned compute_instances = 0;

	ret[0] = '\0';
	for (unsigned which = 0; which < CI_PROFILE_MAX; which++) {
		struct nv_ci *list[LIST_MAX] = {NULL};
		struct nv_ci_profile profile = {0};
		unsigned count = LIST_MAX;

		if (NVML_CALL(n, ci_profile, gi, which, 0, &profile) != NV_OK ||
		    NVML_CALL(n, ci_list, gi, profile.id, list, &count) != NV_OK)
			continue;
		for (unsigned i = 0; i < count && i < LIST_MAX; i++) {
			struct nv_ci_info info = {0};

			compute_instances++;
			if (NVML_CALL(n, ci_info, list[i], &info) == NV_OK && info.device != NULL &&
			    en_nvml_uuid(n, info.device, found, NULL) == 0 &&
			    strncmp(found, "MIG-", 4) == 0)
				memcpy(ret, found, sizeof(found));
		}
	}
	if (compute_instances != 1)
		ret[0] = '\0';
}

int en_nvml_instances(struct en_nvml *n, struct en_nvml_device *d, unsigned profile_id,
		      struct en_nvml_instance *ret, size_t cap, size_t *ret_count, struct err *err)
{
	struct nv_gi *list[LIST_MAX] = {NULL};
	unsigned count = LIST_MAX;
	size_t used = 0;
	int code = NVML_CALL(n, gi_list, d, profile_id, list, &count);
	int r = nvml_answer(n, code, "nvmlDeviceGetGpuInstances", err);

	if (r != 0)
		return r;
	for (unsigned i = 0; i < count && i < LIST_MAX && used < cap; i++) {
		struct nv_gi_info info = {0};

		code = NVML_CALL(n, gi_info, list[i], &info);
		if (code == NV_NOT_FOUND) /* destroyed in between */
			continue;
		r = nvml_answer(n, code, "nvmlGpuInstanceGetInfo", err);
		if (r != 0)
			return r;
		ret[used].id = info.id;
		ret[used].profile_id = info.profile_id;
		ret[used].at.start = info.placement.start;
		ret[used].at.size = info.placement.size;
		instance_uuid(n, list[i], ret[used].uuid);
		used++;
	}
	*ret_count = used;
	return 0;
}

/* MIG: making and removing instances, and the mode. */
#include <string.h>

#include "enforcer/nvml_internal.h"

#define LIST_MAX 64
#define CI_PROFILE_MAX 9 /* NVML_COMPUTE_INSTANCE_PROFILE_COUNT of nvml.h 13.3 */

/* The compute instance profile that spans the whole GPU instance: the most slices, the first of those. */
static bool whole_profile(struct en_nvml *n, struct nv_gi *gi, unsigned *ret_id)
{
	unsigned most = 0;

	for (unsigned which = 0; which < CI_PROFILE_MAX; which++) {
		struct nv_ci_profile p = {0};

		if (NVML_CALL(n, ci_profile, gi, which, 0, &p) != NV_OK || p.slices <= most)
			continue;
		most = p.slices;
		*ret_id = p.id;
	}
	return most > 0;
}

static int make_compute(struct en_nvml *n, struct nv_gi *gi, struct err *err)
{
	struct nv_ci *ci = NULL;
	unsigned profile = 0;
	int r;

	if (!whole_profile(n, gi, &profile))
		return err_set(err, ERR_IO, "the GPU instance offers no compute instance");
	r = nvml_answer(n, NVML_CALL(n, ci_create, gi, profile, &ci),
			"nvmlGpuInstanceCreateComputeInstance", err);
	return r == EN_NVML_UNSUPPORTED
		       ? err_set(err, ERR_IO, "nvmlGpuInstanceCreateComputeInstance: not supported")
		       : r;
}

static int destroy_compute(struct en_nvml *n, struct nv_gi *gi, struct err *err)
{
	for (unsigned which = 0; which < CI_PROFILE_MAX; which++) {
		struct nv_ci *list[LIST_MAX] = {NULL};
		struct nv_ci_profile p = {0};
		unsigned count = LIST_MAX;

		if (NVML_CALL(n, ci_profile, gi, which, 0, &p) != NV_OK ||
		    NVML_CALL(n, ci_list, gi, p.id, list, &count) != NV_OK)
			continue;
		for (unsigned i = 0; i < count && i < LIST_MAX; i++) {
			int r = nvml_answer(n, NVML_CALL(n, ci_destroy, list[i]),
					    "nvmlComputeInstanceDestroy", err);

			if (r != 0)
				return r;
		}
	}
	return 0;
}

int en_nvml_instance_make(struct en_nvml *n, struct en_nvml_device *d, unsigned profile_id,
			  struct en_nvml_placement at, struct en_nvml_instance *ret,
			  struct err *err)
{
	const struct nv_gi_placement place = {at.start, at.size};
	struct en_nvml_instance list[LIST_MAX];
	struct nv_gi *gi = NULL;
	struct nv_gi_info info = {0};
	size_t count = 0;
	int r;

	r = nvml_answer(n, NVML_CALL(n, gi_create, d, profile_id, &place, &gi),
			"nvmlDeviceCreateGpuInstanceWithPlacement", err);
	if (r != 0)
		return r;
	r = make_compute(n, gi, err);
	if (r == 0)
		r = nvml_answer(n, NVML_CALL(n, gi_info, gi, &info), "nvmlGpuInstanceGetInfo", err);
	if (r == 0)
		r = en_nvml_instances(n, d, profile_id, list, LIST_MAX, &count, err);
	for (size_t i = 0; r == 0 && i < count; i++)
		if (list[i].id == info.id && list[i].uuid[0] != '\0') {
			*ret = list[i];
			return 0;
		}
	if (r >= 0)
		r = err_set(err, ERR_IO, "the new MIG instance has no UUID");
	(void)destroy_compute(n, gi, NULL);
	(void)NVML_CALL(n, gi_destroy, gi);
	return r;
}

int en_nvml_instance_remove(struct en_nvml *n, struct en_nvml_device *d,
			    const struct en_nvml_instance *which, struct err *err)
{
	struct nv_gi_info info = {0};
	struct nv_gi *gi = NULL;
	int code = NVML_CALL(n, gi_by_id, d, which->id, &gi), r;

	if (code == NV_OK)
		code = NVML_CALL(n, gi_info, gi, &info);
	if (code == NV_NOT_FOUND || code == NV_INVALID_ARGUMENT ||
	    (code == NV_OK &&
	     (info.profile_id != which->profile_id || info.placement.start != which->at.start)))
		return err_set(err, ERR_NOT_FOUND, "MIG instance %u at %u is not there", which->id,
			       which->at.start);
	r = nvml_answer(n, code, "nvmlDeviceGetGpuInstanceById", err);
	if (r == 0)
		r = destroy_compute(n, gi, err);
	return r == 0 ? nvml_answer(n, NVML_CALL(n, gi_destroy, gi), "nvmlGpuInstanceDestroy", err)
		      : r;
}

int en_nvml_mig_set(struct en_nvml *n, struct en_nvml_device *d, bool on, struct err *err)
{
	bool current = false, pending = false;
	int activation = NV_OK, r;

	r = nvml_answer(n, NVML_CALL(n, mig_set, d, on, &activation), "nvmlDeviceSetMigMode", err);
	if (r != 0)
		return r;
	if (activation != NV_OK)
		return err_set(err, ERR_CONFLICT, "MIG mode: the GPU %s",
			       activation == NV_IN_USE           ? "is in use"
			       : activation == NV_RESET_REQUIRED ? "needs a reset"
								 : "did not take the new mode");
	r = en_nvml_mig_mode(n, d, &current, &pending, err);
	if (r == 0 && current != on)
		return err_set(err, ERR_CONFLICT, "MIG mode: the GPU needs a reset");
	return r;
}

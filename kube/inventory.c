/* The node's GPUs as its enforcer wrote them: annotation tessera.dev/inventory, version 1.
 * The format is in README.md of this folder. */
#include <stdio.h>
#include <string.h>

#include "kube/object_internal.h"

#define INVENTORY_MAX 262144 /* no annotation can be larger */
#define PRODUCT_MIXED ((const char *)1)

static int decode_profile(const cJSON *obj, struct st_mig_profile *ret, struct err *err)
{
	const cJSON *starts = NULL, *v;
	const char *name = "";
	int64_t id = -1, mem = 0, compute = 0, units = 0, max = 0;
	int r;

	if (!cJSON_IsObject(obj))
		return ku_wrong_type(obj, "profile", "an object", err);
	r = ku_get_string(obj, "name", "name", &name, err);
	if (r == 0)
		r = ku_get_int(obj, "id", "id", -1, INT32_MAX, -1, &id, err);
	if (r == 0)
		r = ku_get_int(obj, "mem_mib", "mem_mib", 0, INT32_MAX, 0, &mem, err);
	if (r == 0)
		r = ku_get_int(obj, "compute", "compute", 1, UINT8_MAX, 0, &compute, err);
	if (r == 0)
		r = ku_get_int(obj, "units", "units", 1, ST_MIG_UNITS_MAX, 0, &units, err);
	if (r == 0)
		r = ku_get_int(obj, "max", "max", 1, UINT8_MAX, 0, &max, err);
	if (r == 0)
		r = ku_get_array(obj, "starts", "starts", &starts, err);
	if (r != 0)
		return r;
	if (name[0] == '\0' || strlen(name) >= sizeof(ret->name))
		return err_set(err, ERR_INVALID, "name: \"%.40s\" is not a profile", name);
	if (compute == 0 || units == 0 || max == 0)
		return err_set(err, ERR_INVALID, "compute, units or max: is missing");
	if (cJSON_GetArraySize(starts) > ST_MIG_STARTS_MAX)
		return err_set(err, ERR_RANGE, "starts: more than %d", ST_MIG_STARTS_MAX);
	*ret = (struct st_mig_profile){
		.id = (int32_t)id,
		.mem_mib = (int32_t)mem,
		.compute_slices = (uint8_t)compute,
		.units = (uint8_t)units,
		.max_instances = (uint8_t)max,
		.attrs = attributes(name),
	};
	memcpy(ret->name, name, strlen(name) + 1);
	return 0;
}

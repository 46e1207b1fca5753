/* The node's GPUs as its enforcer wrote them: annotation tessera.dev/inventory, version 1.
 * The format is in README.md of this folder. */
#include <string.h>

#include "kube/object_internal.h"
#include "state/request.h"

#define UUID_MAX 96

static const char uuid_chars[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";

/* ---- MIG ---- */

static uint8_t attributes(const char *profile)
{
	unsigned attrs = 0;

	if (strstr(profile, "+me.all") != NULL)
		attrs |= ST_MIG_ME_ALL;
	else if (strstr(profile, "+me") != NULL)
		attrs |= ST_MIG_ME;
	if (strstr(profile, "-me") != NULL)
		attrs |= ST_MIG_NO_ME;
	if (strstr(profile, "+gfx") != NULL)
		attrs |= ST_MIG_GFX;
	return (uint8_t)attrs;
}

static int copy_name(const cJSON *obj, const char *name, char ret[ST_MIG_NAME_CAP], struct err *err)
{
	const char *s;
	int r = ku_get_string(obj, name, name, &s, err);

	if (r != 0)
		return r;
	if (s[0] == '\0' || strlen(s) >= ST_MIG_NAME_CAP)
		return err_set(err, ERR_INVALID, "%s: \"%.40s\" is not a MIG profile", name, s);
	memcpy(ret, s, strlen(s) + 1);
	return 0;
}

/* A required member in [min, max]. */
static int get_small(const cJSON *obj, const char *name, int64_t min, int64_t max, uint8_t *ret,
		     struct err *err)
{
	int64_t v;
	int r = ku_get_int(obj, name, name, min, max, -1, &v, err);

	if (r != 0)
		return r;
	if (v < 0)
		return err_set(err, ERR_INVALID, "%s: is missing", name);
	*ret = (uint8_t)v;
	return 0;
}

static int decode_starts(const cJSON *obj, struct st_mig_profile *ret, struct err *err)
{
	const cJSON *starts, *v;
	int r = ku_get_array(obj, "starts", "starts", &starts, err);

	if (r != 0)
		return r;
	cJSON_ArrayForEach(v, starts)
	{
		if (ret->start_count == ST_MIG_STARTS_MAX)
			return err_set(err, ERR_RANGE, "starts: more than %d", ST_MIG_STARTS_MAX);
		if (!cJSON_IsNumber(v))
			return ku_wrong_type(v, "starts", "a number", err);
		if (!(v->valuedouble >= 0 && v->valuedouble < ST_MIG_UNITS_MAX))
			return err_set(err, ERR_RANGE, "starts: %.17g is not between 0 and %d",
				       v->valuedouble, ST_MIG_UNITS_MAX - 1);
		ret->starts[ret->start_count] = (uint8_t)v->valuedouble;
		if (ret->starts[ret->start_count++] != v->valuedouble)
			return err_set(err, ERR_INVALID, "starts: %.17g is not an integer",
				       v->valuedouble);
	}
	return 0;
}

static int decode_profile(const cJSON *obj, struct st_mig_profile *ret, struct err *err)
{
	int64_t id = -1, mem = 0;
	int r;

	if (!cJSON_IsObject(obj))
		return ku_wrong_type(obj, "profile", "an object", err);
	r = copy_name(obj, "name", ret->name, err);
	if (r == 0)
		r = ku_get_int(obj, "id", "id", -1, INT32_MAX, -1, &id, err);
	if (r == 0)
		r = ku_get_int(obj, "mem_mib", "mem_mib", 0, INT32_MAX, 0, &mem, err);
	if (r == 0)
		r = get_small(obj, "compute", 1, UINT8_MAX, &ret->compute_slices, err);
	if (r == 0)
		r = get_small(obj, "units", 1, ST_MIG_UNITS_MAX, &ret->units, err);
	if (r == 0)
		r = get_small(obj, "max", 1, UINT8_MAX, &ret->max_instances, err);
	if (r == 0)
		r = decode_starts(obj, ret, err);
	if (r != 0)
		return r;
	ret->id = (int32_t)id;
	ret->mem_mib = (int32_t)mem;
	ret->attrs = attributes(ret->name);
	return 0;
}

static int decode_geometry(const cJSON *obj, struct st_mig_geometry *ret, struct err *err)
{
	const cJSON *profiles = NULL, *v;
	int r = get_small(obj, "compute", 1, UINT8_MAX, &ret->compute_total, err);

	if (r == 0)
		r = get_small(obj, "units", 1, ST_MIG_UNITS_MAX, &ret->units_total, err);
	if (r == 0)
		r = ku_get_array(obj, "profiles", "profiles", &profiles, err);
	if (r != 0)
		return r;
	cJSON_ArrayForEach(v, profiles)
	{
		if (ret->profile_count == ST_MIG_PROFILES_MAX)
			return err_set(err, ERR_RANGE, "profiles: more than %d",
				       ST_MIG_PROFILES_MAX);
		r = decode_profile(v, &ret->profiles[ret->profile_count], err);
		if (r != 0)
			return ku_err_path(err, r, "profiles[%d].", ret->profile_count);
		ret->profile_count++;
	}
	return st_mig_geometry_finish(ret, err);
}

static int decode_instances(const cJSON *mig, struct st_gpu_spec *ret, struct err *err)
{
	const size_t max = sizeof(ret->instances) / sizeof(ret->instances[0]);
	const cJSON *instances, *v;
	int r = ku_get_array(mig, "instances", "instances", &instances, err);

	if (r != 0)
		return r;
	cJSON_ArrayForEach(v, instances)
	{
		size_t i = ret->instance_count;

		if (i == max)
			return err_set(err, ERR_RANGE, "instances: more than %zu", max);
		if (!cJSON_IsObject(v))
			r = ku_wrong_type(v, "instance", "an object", err);
		else
			r = copy_name(v, "profile", ret->instances[i].profile, err);
		if (r == 0)
			r = get_small(v, "start", 0, ST_MIG_UNITS_MAX - 1, &ret->instances[i].start,
				      err);
		if (r == 0)
			r = ku_get_bool(v, "ours", "ours", false, &ret->instances[i].ours, err);
		if (r == 0)
			r = ku_get_bool(v, "held", "held", false, &ret->instances[i].held, err);
		if (r != 0)
			return ku_err_path(err, r, "instances[%zu].", i);
		ret->instance_count++;
	}
	return 0;
}

static int decode_mig(const cJSON *gpu, struct st_gpu_spec *ret, struct err *err)
{
	const cJSON *mig, *geometry = NULL;
	bool capable = false, enabled = false;
	int r = ku_get_object(gpu, "mig", "mig", &mig, err);

	if (r != 0 || mig == NULL)
		return r;
	r = ku_get_bool(mig, "capable", "capable", false, &capable, err);
	if (r == 0)
		r = ku_get_bool(mig, "enabled", "enabled", false, &enabled, err);
	if (r == 0)
		r = ku_get_bool(mig, "static", "static", false, &ret->mig_static, err);
	if (r == 0)
		r = ku_get_bool(mig, "switchable", "switchable", false, &ret->mig_switchable, err);
	if (r == 0 && ret->mig_switchable && !capable)
		r = err_set(err, ERR_INVALID, "switchable: true on a GPU that is not capable");
	if (r == 0 && enabled && !capable)
		r = err_set(err, ERR_INVALID, "enabled: true on a GPU that is not capable");
	if (r == 0)
		r = ku_get_object(mig, "geometry", "geometry", &geometry, err);
	if (r == 0 && geometry != NULL) {
		r = decode_geometry(geometry, &ret->geometry, err);
		if (r != 0)
			return ku_err_path(err, r, "mig.geometry.");
		ret->has_geometry = true;
	}
	if (r == 0)
		r = decode_instances(mig, ret, err);
	if (r == 0 && ret->instance_count > 0 && !enabled)
		r = err_set(err, ERR_INVALID, "instances: on a GPU where MIG is not enabled");
	ret->mig_enabled = enabled;
	return r != 0 ? ku_err_path(err, r, "mig.") : 0;
}

/* ---- GPUs ---- */

static int decode_gpu(const cJSON *obj, struct ku_arena *a, struct st_gpu_spec *ret,
		      uint8_t *ret_index, const char **ret_product, struct err *err)
{
	int64_t mem = 0;
	bool healthy = true;
	int r;

	if (!cJSON_IsObject(obj))
		return ku_wrong_type(obj, "gpu", "an object", err);
	r = ku_copy_string(obj, "uuid", "uuid", a, &ret->uuid, err);
	if (r == 0)
		r = get_small(obj, "index", 0, UINT8_MAX, ret_index, err);
	if (r == 0)
		r = ku_copy_string(obj, "product", "product", a, ret_product, err);
	if (r == 0)
		r = ku_get_int(obj, "mem_mib", "mem_mib", 1, INT32_MAX, 0, &mem, err);
	if (r == 0)
		r = ku_get_bool(obj, "healthy", "healthy", true, &healthy, err);
	if (r == 0)
		r = ku_copy_string(obj, "foreign", "foreign", a, &ret->foreign, err);
	if (r == 0)
		r = decode_mig(obj, ret, err);
	if (r != 0)
		return r;
	if (ret->uuid[0] == '\0' || strlen(ret->uuid) > UUID_MAX ||
	    ret->uuid[strspn(ret->uuid, uuid_chars)] != '\0')
		return err_set(err, ERR_INVALID, "uuid: \"%.40s\" is not a GPU UUID", ret->uuid);
	if (mem == 0)
		return err_set(err, ERR_INVALID, "mem_mib: is missing");
	if (ret->foreign[0] == '\0')
		ret->foreign = NULL;
	ret->mem_mib = (int32_t)mem;
	ret->unhealthy = !healthy;
	return 0;
}

/* GPUs stand in the order of their index, whatever the order of the list. */
static int decode_gpus(const cJSON *list, struct ku_arena *a, struct st_node_spec *ret,
		       struct err *err)
{
	size_t count = (size_t)cJSON_GetArraySize(list), n = 0;
	const char *product = NULL;
	uint8_t index[ST_GPUS_MAX];
	bool mixed = false;
	const cJSON *v;

	if (count > ST_GPUS_MAX)
		return err_set(err, ERR_RANGE, "gpus: %zu, at most %d are supported", count,
			       ST_GPUS_MAX);
	ret->gpus = ku_arena_alloc(a, count * sizeof(ret->gpus[0]));
	if (ret->gpus == NULL)
		return ku_nomem(err);
	cJSON_ArrayForEach(v, list)
	{
		struct st_gpu_spec *gpu = ku_arena_alloc(a, sizeof(*gpu));
		const char *name = "";
		uint8_t i = 0;
		size_t at = n;
		int r;

		if (gpu == NULL)
			return ku_nomem(err);
		r = decode_gpu(v, a, gpu, &i, &name, err);
		for (size_t k = 0; k < n && r == 0; k++) {
			if (index[k] == i)
				r = err_set(err, ERR_INVALID, "index: %d is there twice", i);
			else if (strcmp(ret->gpus[k].uuid, gpu->uuid) == 0)
				r = err_set(err, ERR_INVALID, "uuid: \"%s\" is there twice",
					    gpu->uuid);
		}
		if (r != 0)
			return ku_err_path(err, r, "gpus[%zu].", n);
		for (; at > 0 && index[at - 1] > i; at--) {
			index[at] = index[at - 1];
			ret->gpus[at] = ret->gpus[at - 1];
		}
		index[at] = i;
		ret->gpus[at] = *gpu;
		mixed = mixed || (product != NULL && strcmp(product, name) != 0);
		product = name;
		n++;
	}
	ret->gpu_count = n;
	/* A node has one product; with several, a pod that asks for one of them would be led astray. */
	if (mixed)
		ret->product = NULL;
	else if (product != NULL && product[0] != '\0')
		ret->product = product;
	return 0;
}

int ku_inventory_decode(const char *text, struct ku_arena *a, struct st_node_spec *ret,
			struct err *err)
{
	struct st_node_spec node = *ret;
	const cJSON *gpus = NULL;
	const char *ignored;
	int64_t version = 0;
	cJSON *root;
	int r = ku_json_parse(text, strlen(text), &root, err);

	if (r != 0)
		return r;
	if (!cJSON_IsObject(root))
		r = ku_wrong_type(root, "inventory", "an object", err);
	else
		r = ku_get_int(root, "version", "version", INT32_MIN, INT32_MAX, 0, &version, err);
	if (r == 0 && version != 1)
		r = err_set(err, ERR_INVALID, "version: %lld is not 1", (long long)version);
	if (r == 0)
		r = ku_get_string(root, "driver", "driver", &ignored, err);
	if (r == 0)
		r = ku_get_array(root, "features", "features", &gpus, err);
	if (r == 0)
		r = ku_get_array(root, "gpus", "gpus", &gpus, err);
	if (r == 0 && gpus == NULL)
		r = err_set(err, ERR_INVALID, "gpus: is missing");
	if (r == 0)
		r = decode_gpus(gpus, a, &node, err);
	cJSON_Delete(root);
	if (r != 0)
		return r;
	node.from_inventory = true;
	*ret = node;
	return 0;
}

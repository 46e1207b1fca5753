#include "enforcer/inventory.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#define VERSION 1

/* ---- JSON; a failed allocation makes *ok false, the tree is deleted as a whole ---- */

static void put(cJSON *obj, const char *name, cJSON *take_item, bool *ok)
{
	if (take_item == NULL || !cJSON_AddItemToObject(obj, name, take_item)) {
		cJSON_Delete(take_item);
		*ok = false;
	}
}

static void append(cJSON *array, cJSON *take_item, bool *ok)
{
	if (take_item == NULL || !cJSON_AddItemToArray(array, take_item)) {
		cJSON_Delete(take_item);
		*ok = false;
	}
}

static void put_int(cJSON *obj, const char *name, int64_t v, bool *ok)
{
	put(obj, name, cJSON_CreateNumber((double)v), ok); /* all are below 2^31 */
}

static void put_bool(cJSON *obj, const char *name, bool v, bool *ok)
{
	put(obj, name, cJSON_CreateBool(v), ok);
}

static void put_text(cJSON *obj, const char *name, const char *v, bool *ok)
{
	put(obj, name, cJSON_CreateString(v), ok);
}

static cJSON *put_new(cJSON *obj, const char *name, cJSON *take_item, bool *ok)
{
	put(obj, name, take_item, ok);
	return *ok ? take_item : NULL;
}

static cJSON *append_object(cJSON *array, bool *ok)
{
	cJSON *o = cJSON_CreateObject();

	append(array, o, ok);
	return *ok ? o : NULL;
}

/* ---- the parts ---- */

static void put_profile(cJSON *list, const struct st_mig_profile *p, bool *ok)
{
	cJSON *o = append_object(list, ok), *starts;

	if (o == NULL)
		return;
	put_text(o, "name", p->name, ok);
	put_int(o, "id", p->id, ok);
	put_int(o, "mem_mib", p->mem_mib, ok);
	put_int(o, "compute", p->compute_slices, ok);
	put_int(o, "units", p->units, ok);
	put_int(o, "max", p->max_instances, ok);
	starts = put_new(o, "starts", cJSON_CreateArray(), ok);
	for (int i = 0; starts != NULL && i < p->start_count; i++)
		append(starts, cJSON_CreateNumber(p->starts[i]), ok);
}

static void put_geometry(cJSON *mig, const struct st_mig_geometry *g, bool *ok)
{
	cJSON *o = put_new(mig, "geometry", cJSON_CreateObject(), ok), *list;

	if (o == NULL)
		return;
	put_int(o, "compute", g->compute_total, ok);
	put_int(o, "units", g->units_total, ok);
	list = put_new(o, "profiles", cJSON_CreateArray(), ok);
	for (int i = 0; list != NULL && i < g->profile_count; i++)
		put_profile(list, &g->profiles[i], ok);
}

static void put_mig(cJSON *gpu, const struct en_probe_gpu *g, bool *ok)
{
	cJSON *o = put_new(gpu, "mig", cJSON_CreateObject(), ok), *list;

	if (o == NULL)
		return;
	put_bool(o, "capable", true, ok);
	put_bool(o, "enabled", g->mig_enabled, ok);
	if (g->mig_static)
		put_bool(o, "static", true, ok);
	if (g->mig_switchable)
		put_bool(o, "switchable", true, ok);
	if (g->has_geometry)
		put_geometry(o, &g->geometry, ok);
	if (!g->mig_enabled)
		return;
	list = put_new(o, "instances", cJSON_CreateArray(), ok);
	for (size_t i = 0; list != NULL && i < g->instance_count; i++) {
		cJSON *instance = append_object(list, ok);

		if (instance == NULL)
			return;
		put_text(instance, "profile", g->instances[i].profile, ok);
		put_int(instance, "start", g->instances[i].start, ok);
		if (g->instances[i].ours)
			put_bool(instance, "ours", true, ok);
		if (g->instances[i].held)
			put_bool(instance, "held", true, ok);
	}
}

static void put_gpu(cJSON *list, const struct en_probe_gpu *g, bool *ok)
{
	cJSON *o = append_object(list, ok);

	if (o == NULL)
		return;
	put_text(o, "uuid", g->uuid, ok);
	put_int(o, "index", g->index, ok);
	put_text(o, "product", g->product, ok);
	put_int(o, "mem_mib", g->mem_mib, ok);
	put_bool(o, "healthy", g->healthy, ok);
	put(o, "foreign",
	    g->foreign[0] != '\0' ? cJSON_CreateString(g->foreign) : cJSON_CreateNull(), ok);
	if (g->mig_capable)
		put_mig(o, g, ok);
}

static void put_features(cJSON *root, unsigned features, bool *ok)
{
	static const struct {
		unsigned bit;
		const char *name;
	} names[] = {
		{EN_FEATURE_MPS_V3, "mps-v3"},
		{EN_FEATURE_MEMORY_LIMITS, "memory-limits"},
		{EN_FEATURE_MIG, "mig"},
	};
	cJSON *list = put_new(root, "features", cJSON_CreateArray(), ok);

	for (size_t i = 0; list != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
		if ((features & names[i].bit) != 0)
			append(list, cJSON_CreateString(names[i].name), ok);
	}
}

int en_inventory_encode(const struct en_probe *p, char **ret, struct err *err)
{
	cJSON *root, *gpus;
	bool ok = true;
	char *text = NULL;

	if (!p->driver_ok)
		return err_set(err, ERR_CONFLICT, "there is no driver to ask: %s", p->why.msg);
	root = cJSON_CreateObject();
	if (root == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	put_int(root, "version", VERSION, &ok);
	put_text(root, "driver", p->driver, &ok);
	put_features(root, p->features, &ok);
	gpus = put_new(root, "gpus", cJSON_CreateArray(), &ok);
	for (size_t i = 0; gpus != NULL && i < p->gpu_count; i++)
		put_gpu(gpus, &p->gpus[i], &ok);
	if (ok)
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	if (text == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	*ret = text;
	return 0;
}

bool en_inventory_changed(const char *present, const char *wanted)
{
	cJSON *a, *b;
	bool equal;

	if (present == NULL)
		return true;
	if (strcmp(present, wanted) == 0)
		return false;
	a = cJSON_Parse(present);
	b = cJSON_Parse(wanted);
	equal = a != NULL && b != NULL && cJSON_Compare(a, b, true);
	cJSON_Delete(a);
	cJSON_Delete(b);
	return !equal;
}

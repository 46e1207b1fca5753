/* MIG as the driver reports it: what may be made where, and what is there.
 *
 * The driver tells profiles and starts, with MIG off too where it can (H200, driver 580: all of it). Where it
 * then tells starts only, for profile ids that one knows, names and sizes come from the built-in table. What
 * cannot be read is left to the table on the reading side, except instances: a GPU whose instances are not
 * known gets nothing. */
#include <limits.h>
#include <string.h>

#include "enforcer/probe_internal.h"

/* Adds the starts of a profile id; false where there are none or they fit no geometry. */
static int read_starts(struct en_nvml *n, struct en_nvml_device *d, unsigned id,
		       struct st_mig_profile *ret, bool *ret_known, struct err *err)
{
	struct en_nvml_placement at[EN_INSTANCES_MAX];
	size_t count = 0;
	int r = en_nvml_placements(n, d, id, at, EN_INSTANCES_MAX, &count, err);

	*ret_known = false;
	if (r < 0)
		return r;
	if (r == EN_NVML_UNSUPPORTED || count == 0 || count > ST_MIG_STARTS_MAX)
		return 0;
	for (size_t i = 0; i < count; i++) {
		size_t k = i;

		if (at[i].size != at[0].size || at[i].size == 0 ||
		    at[i].start + at[i].size > ST_MIG_UNITS_MAX)
			return 0;
		for (; k > 0 && ret->starts[k - 1] > at[i].start; k--)
			ret->starts[k] = ret->starts[k - 1];
		ret->starts[k] = (uint8_t)at[i].start;
	}
	ret->units = (uint8_t)at[0].size;
	ret->start_count = (uint8_t)count;
	*ret_known = true;
	return 0;
}

static uint8_t attributes(const char *name)
{
	unsigned attrs = 0;

	if (strstr(name, "+me.all") != NULL)
		attrs |= ST_MIG_ME_ALL;
	else if (strstr(name, "+me") != NULL)
		attrs |= ST_MIG_ME;
	if (strstr(name, "-me") != NULL)
		attrs |= ST_MIG_NO_ME;
	if (strstr(name, "+gfx") != NULL)
		attrs |= ST_MIG_GFX;
	return (uint8_t)attrs;
}

static const struct st_mig_profile *table_profile(const struct st_mig_geometry *table, unsigned id)
{
	for (int i = 0; table != NULL && i < table->profile_count; i++) {
		if (table->profiles[i].id == (int32_t)id)
			return &table->profiles[i];
	}
	return NULL;
}

static uint8_t small(uint64_t v)
{
	return v > UINT8_MAX ? UINT8_MAX : (uint8_t)v;
}

/* Grid and compute slices follow from the profiles: the largest one spans them. */
static void span(struct st_mig_geometry *g)
{
	g->units_total = 0;
	g->compute_total = 0;
	for (int i = 0; i < g->profile_count; i++) {
		const struct st_mig_profile *p = &g->profiles[i];

		if (p->compute_slices > g->compute_total)
			g->compute_total = p->compute_slices;
		for (int k = 0; k < p->start_count; k++) {
			if (p->starts[k] + p->units > g->units_total)
				g->units_total = (uint8_t)(p->starts[k] + p->units);
		}
	}
}

/* The driver knows it all; names are newer than the rest. No profiles: it does not tell. */
static int read_told(struct en_nvml *n, struct en_nvml_device *d,
		     const struct st_mig_geometry *table, struct st_mig_geometry *ret,
		     struct err *err)
{
	for (unsigned which = 0; which < EN_NVML_PROFILE_ENUMS; which++) {
		const struct st_mig_profile *known;
		struct st_mig_profile *p = &ret->profiles[ret->profile_count];
		struct en_nvml_profile seen;
		const char *name;
		bool ok;
		int r = en_nvml_profile(n, d, which, &seen, err);

		if (r < 0)
			return r;
		if (r == EN_NVML_UNSUPPORTED || ret->profile_count == ST_MIG_PROFILES_MAX)
			continue;
		known = table_profile(table, seen.id);
		name = seen.name[0] != '\0' || known == NULL ? seen.name : known->name;
		if (name[0] == '\0' || strlen(name) >= sizeof(p->name) || seen.slices == 0 ||
		    seen.id > INT_MAX)
			continue;
		memset(p, 0, sizeof(*p));
		r = read_starts(n, d, seen.id, p, &ok, err);
		if (r < 0)
			return r;
		if (!ok)
			continue;
		memcpy(p->name, name, strlen(name) + 1);
		p->id = (int32_t)seen.id;
		p->mem_mib = seen.mem_mib > INT32_MAX ? INT32_MAX : (int32_t)seen.mem_mib;
		p->compute_slices = small(seen.slices);
		p->max_instances = small(seen.instances > 0 ? seen.instances : p->start_count);
		p->attrs = attributes(p->name);
		ret->profile_count++;
	}
	return 0;
}

/* The starts of the profiles that the table knows for this product. */
static int read_starts_only(struct en_nvml *n, struct en_nvml_device *d,
			    const struct st_mig_geometry *table, struct st_mig_geometry *ret,
			    struct err *err)
{
	for (int i = 0; table != NULL && i < table->profile_count; i++) {
		struct st_mig_profile p = table->profiles[i];
		bool ok;
		int r;

		if (p.id < 0)
			continue;
		r = read_starts(n, d, (unsigned)p.id, &p, &ok, err);
		if (r < 0)
			return r;
		if (ok)
			ret->profiles[ret->profile_count++] = p;
	}
	return 0;
}

static int read_geometry(struct en_nvml *n, struct en_nvml_device *d, struct en_probe *p,
			 struct en_probe_gpu *gpu, struct err *err)
{
	const struct st_mig_geometry *table = st_mig_table_find(gpu->product, gpu->mem_mib);
	struct st_mig_geometry *g = &gpu->geometry;
	struct err why = ERR_INIT;
	int r;

	r = read_told(n, d, table, g, err);
	if (r == 0 && g->profile_count == 0 && !gpu->mig_enabled)
		r = read_starts_only(n, d, table, g, err);
	if (r < 0)
		return r;
	span(g);
	if (g->profile_count == 0) {
		probe_note(p, "GPU %u: the driver tells no MIG profiles", gpu->index);
		return 0;
	}
	if (st_mig_geometry_finish(g, &why) != 0) {
		probe_note(p, "GPU %u: MIG geometry: %s", gpu->index, why.msg);
		return 0;
	}
	gpu->has_geometry = true;
	return 0;
}

static int add_instances(struct en_nvml *n, struct en_nvml_device *d,
			 const struct st_mig_profile *profile, struct en_probe_gpu *gpu,
			 struct err *err)
{
	struct en_nvml_instance list[EN_INSTANCES_MAX];
	size_t count = 0;
	int r = en_nvml_instances(n, d, (unsigned)profile->id, list,
				  EN_INSTANCES_MAX - gpu->instance_count, &count, err);

	for (size_t i = 0; r == 0 && i < count; i++) {
		struct en_mig_instance *to = &gpu->instances[gpu->instance_count++];
		size_t k = gpu->instance_count - 1;

		memcpy(to->profile, profile->name, sizeof(to->profile));
		memcpy(to->uuid, list[i].uuid, sizeof(to->uuid));
		to->start = small(list[i].at.start);
		/* By start: the list is the same whatever the driver's order. */
		for (; k > 0 && gpu->instances[k - 1].start > gpu->instances[k].start; k--) {
			struct en_mig_instance t = gpu->instances[k];

			gpu->instances[k] = gpu->instances[k - 1];
			gpu->instances[k - 1] = t;
		}
	}
	return r;
}

static int read_instances(struct en_nvml *n, struct en_nvml_device *d, struct en_probe_gpu *gpu,
			  struct err *err)
{
	const struct st_mig_geometry *g =
		gpu->has_geometry ? &gpu->geometry : st_mig_table_find(gpu->product, gpu->mem_mib);
	struct err why = ERR_INIT;

	if (g == NULL) {
		probe_unhealthy(gpu, "MIG is on and its profiles are not known");
		return 0;
	}
	for (int i = 0; i < g->profile_count; i++) {
		int r = g->profiles[i].id < 0 ? 0 : add_instances(n, d, &g->profiles[i], gpu, &why);

		if (r < 0 && en_nvml_lost(n))
			return err_set(err, r, "%s", why.msg);
		if (r < 0) {
			probe_unhealthy(gpu, "MIG instances cannot be read: %.100s", why.msg);
			break;
		}
	}
	return 0;
}

int probe_mig(struct en_nvml *n, struct en_nvml_device *d, struct en_probe *p,
	      struct en_probe_gpu *gpu, struct err *err)
{
	int r = en_nvml_mig_mode(n, d, &gpu->mig_enabled, &gpu->mig_pending, err);

	if (r != 0)
		return r < 0 ? r : 0;
	gpu->mig_capable = true;
	r = read_geometry(n, d, p, gpu, err);
	if (r == 0 && gpu->mig_enabled)
		r = read_instances(n, d, gpu, err);
	return r;
}

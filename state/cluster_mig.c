/* What a node reports about MIG on one GPU: its geometry and its instances. */
#include <stdlib.h>
#include <string.h>

#include "state/cluster_internal.h"
#include "state/mig_internal.h"

/* The cluster's own copy of a geometry that a node reports. */
static int geometry_intern(struct st_cluster *c, const struct st_mig_geometry *from,
			   const struct st_mig_geometry **ret, struct err *err)
{
	struct geometry_slot *s = calloc(1, sizeof(*s)), *known;
	struct st_mig_geometry *g;

	if (s == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a MIG geometry");
	g = &s->geometry;
	/* Field by field up to the ends of names, so that padding does not count. */
	memcpy(g->model, from->model, strlen(from->model));
	g->compute_total = from->compute_total;
	g->units_total = from->units_total;
	g->profile_count = from->profile_count;
	for (int i = 0; i < from->profile_count; i++) {
		const struct st_mig_profile *a = &from->profiles[i];
		struct st_mig_profile *b = &g->profiles[i];

		memcpy(b->name, a->name, strlen(a->name));
		b->id = a->id;
		b->mem_mib = a->mem_mib;
		b->compute_slices = a->compute_slices;
		b->units = a->units;
		b->max_instances = a->max_instances;
		b->attrs = a->attrs;
		b->start_count = a->start_count;
		memcpy(b->starts, a->starts, a->start_count);
		b->bit = a->bit;
	}
	HASH_FIND(hh, c->geometries, g, sizeof(*g), known);
	if (known == NULL) {
		HASH_ADD_KEYPTR(hh, c->geometries, g, sizeof(*g), s);
		if (!HASH_ADDED(s, hh)) {
			free(s);
			return err_set(err, ERR_NOMEM, "no memory for a MIG geometry");
		}
		known = s;
	} else {
		free(s);
	}
	*ret = &known->geometry;
	return 0;
}

/* The built-in geometry of the product, looked up once for each memory size. */
static int geometry_builtin(struct st_cluster *c, uint32_t product, int32_t mem_mib,
			    const struct st_mig_geometry **ret, struct err *err)
{
	const uint64_t key = (uint64_t)product << 32 | (uint32_t)mem_mib;
	struct product_slot *s;

	*ret = NULL;
	if (product == STRPOOL_NONE)
		return 0;
	HASH_FIND(hh, c->product_geometries, &key, sizeof(key), s);
	if (s != NULL) {
		*ret = s->geometry;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (s == NULL ||
	    st_mig_table_lookup(strpool_str(c->products, product), mem_mib, &s->geometry) < 0)
		goto nomem;
	s->key = key;
	HASH_ADD_KEYPTR(hh, c->product_geometries, &s->key, sizeof(s->key), s);
	if (!HASH_ADDED(s, hh))
		goto nomem;
	*ret = s->geometry;
	return 0;
nomem:
	free(s);
	return err_set(err, ERR_NOMEM, "no memory for the MIG geometry of a product");
}

static int report_geometry(struct st_cluster *c, const struct st_gpu_spec *g, uint32_t product,
			   const struct st_mig_geometry *present,
			   const struct st_mig_geometry **ret, struct err *err)
{
	struct st_mig_geometry copy;
	int r;

	if (!g->has_geometry)
		return geometry_builtin(c, product, g->mem_mib, ret, err);
	copy = g->geometry;
	r = st_mig_geometry_finish(&copy, err);
	if (r < 0)
		return r;
	if (present != NULL && st_mig_geometry_equal(present, &copy)) {
		*ret = present;
		return 0;
	}
	return geometry_intern(c, &copy, ret, err);
}

/* The instances that are present, as a mask. A place that only the built-in table does not know is
 * the table's fault; the GPU is then left alone. */
static int report_instances(const struct st_gpu_spec *g, struct gpu_report *r, struct err *err)
{
	if (g->instance_count > 0 && !g->mig_enabled)
		return err_set(err, ERR_INVALID, "%zu MIG instances with MIG mode off",
			       g->instance_count);
	if (g->instance_count > sizeof(g->instances) / sizeof(g->instances[0]))
		return err_set(err, ERR_INVALID, "%zu MIG instances", g->instance_count);
	if (r->geometry == NULL)
		return 0;
	for (size_t i = 0; i < g->instance_count; i++) {
		const char *name = g->instances[i].profile;
		uint8_t start = g->instances[i].start;
		int p = memchr(name, '\0', ST_MIG_NAME_CAP) != NULL
				? st_mig_profile_find(r->geometry, name)
				: -1;
		uint64_t bit = st_mig_bit(r->geometry, p, start);

		if (bit == 0) {
			if (g->has_geometry && (p < 0 || r->geometry->profiles[p].start_count > 0))
				return err_set(err, ERR_INVALID,
					       "MIG instance %.*s at %u is not in the geometry",
					       ST_MIG_NAME_CAP, name, start);
			r->mig_unknown = true;
			continue;
		}
		if ((r->instances & bit) != 0 || !st_mig_legal(r->geometry, r->instances | bit))
			return err_set(err, ERR_INVALID,
				       "MIG instance %s at %u cannot exist beside the others", name,
				       start);
		r->instances |= bit;
	}
	return 0;
}

/* What may be placed; others' instances stay. */
static void report_open(const struct st_gpu_spec *g, struct gpu_report *r)
{
	uint64_t present = r->instances;

	r->open =
		g->mig_static && g->mig_enabled && r->geometry != NULL ? present : ST_MIG_ANYWHERE;
	for (size_t i = 0; r->geometry != NULL && i < g->instance_count; i++) {
		int p = st_mig_profile_find(r->geometry, g->instances[i].profile);

		if ((g->mig_static || g->instances[i].ours) && !g->instances[i].held)
			r->instances &= ~st_mig_bit(r->geometry, p, g->instances[i].start);
	}
}

int st_report_mig(struct st_cluster *c, const struct st_gpu_spec *g, uint32_t product,
		  const struct st_mig_geometry *present, struct gpu_report *r, struct err *err)
{
	int rc = report_geometry(c, g, product, present, &r->geometry, err);

	if (rc == 0)
		rc = report_instances(g, r, err);
	if (rc == 0)
		report_open(g, r);
	return rc;
}

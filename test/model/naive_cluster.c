#include "test/model/naive_cluster.h"

#include <string.h>

#include "base/hash.h"

const char *const nv_profiles[7] = {"1g.5gb",  "1g.5gb+me", "1g.10gb", "2g.10gb",
				    "3g.20gb", "4g.20gb",   "7g.40gb"};
static const int profile_units[7] = {1, 1, 2, 2, 4, 4, 8};
static const int profile_compute[7] = {1, 1, 1, 2, 3, 4, 7};
static const int profile_max[7] = {7, 1, 4, 3, 2, 1, 1};
static const char *const profile_starts[7] = {"0123456", "0123456", "0246", "024", "04", "0", "0"};

struct layout {
	int unit[8], compute, count[7];
	bool bad;
};

static void lay(struct layout *l, int profile, int start)
{
	if (profile < 0 || start > 7 || strchr(profile_starts[profile], '0' + start) == NULL) {
		l->bad = true;
		return;
	}
	l->compute += profile_compute[profile];
	l->bad |= l->compute > 7 || ++l->count[profile] > profile_max[profile];
	for (int u = start; u < start + profile_units[profile]; u++)
		l->bad |= l->unit[u]++ > 0;
}

static enum st_mode mode_of(const struct nv_grant *g)
{
	if (g->kind == ST_KIND_SHARE)
		return g->mode;
	return g->kind == ST_KIND_WHOLE ? ST_MODE_EXCLUSIVE : ST_MODE_MIG;
}

static void add(struct nv_sum *s, struct layout *l, const struct nv_pod *p, int gpu)
{
	for (int k = 0; k < p->grant_count; k++)
		for (int i = 0; i < p->grants[k].count; i++) {
			const struct nv_grant *g = &p->grants[k];

			if (g->gpu[i] != gpu)
				continue;
			s->mixed |= s->holders > 0 &&
				    (s->mode != mode_of(g) || g->kind == ST_KIND_WHOLE);
			s->mode = mode_of(g);
			s->holders++;
			if (g->kind == ST_KIND_MIG)
				lay(l, g->profile, g->start[i]);
			if (g->kind != ST_KIND_SHARE)
				continue;
			s->clients++;
			s->memory_bound += p->memory_bound;
			s->request_mib += g->request_mib;
			s->limit_mib += g->limit_mib;
			s->compute_nano += s->mode == ST_MODE_SM_SHARING ? g->compute_nano : 0;
		}
}

static bool booked(const struct nv_cluster *m, int node, int gpu, int profile, int start,
		   const struct nv_pod *extra)
{
	for (int p = -1; p < NV_PODS; p++) {
		const struct nv_pod *q = p < 0 ? extra : &m->pods[p];

		if (q == NULL || q->node != node || (p >= 0 && (!q->live || q->fenced)))
			continue;
		for (int k = 0; k < q->grant_count; k++)
			for (int i = 0; i < q->grants[k].count; i++)
				if (q->grants[k].kind == ST_KIND_MIG &&
				    q->grants[k].gpu[i] == gpu && q->grants[k].profile == profile &&
				    q->grants[k].start[i] == start)
					return true;
	}
	return false;
}

struct nv_sum nv_count(const struct nv_cluster *m, int node, int gpu, const struct nv_pod *extra,
		       bool count_foreign)
{
	const struct nv_gpu *g = &m->nodes[node].gpus[gpu];
	struct nv_sum s = {.mode = ST_MODE_FREE};
	struct layout l = {.bad = false};
	bool trouble;

	for (int p = 0; p < NV_PODS; p++)
		if (m->pods[p].live && !m->pods[p].fenced && m->pods[p].node == node &&
		    (count_foreign || !m->pods[p].foreign))
			add(&s, &l, &m->pods[p], gpu);
	if (extra != NULL)
		add(&s, &l, extra, gpu);
	s.mig_overlap = l.bad;
	if (s.holders == 0)
		s.mode = g->reported && g->mig ? ST_MODE_MIG : ST_MODE_FREE;
	for (int i = 0; s.mode == ST_MODE_MIG && i < g->instances; i++)
		if (!booked(m, node, gpu, g->instance[i].profile, g->instance[i].start, extra))
			lay(&l, g->instance[i].profile, g->instance[i].start);
	s.mig_conflict = s.mode == ST_MODE_MIG && l.bad;
	for (int u = 0; u < 8; u++)
		s.units_free += l.unit[u] == 0;
	trouble = g->foreign || s.mig_conflict || (s.mode == ST_MODE_MIG) != g->mig;
	s.taken = !g->reported   ? ST_TAKEN_GONE
		  : g->unhealthy ? ST_TAKEN_UNHEALTHY
		  : trouble      ? ST_TAKEN_FOREIGN
				 : ST_TAKEN_NO;
	s.alloc_mib = g->mem_mib > m->cfg.reserve_mib ? g->mem_mib - m->cfg.reserve_mib : 0;
	if (s.mode == ST_MODE_EXCLUSIVE)
		s.free_mib = 0;
	else if (s.mode == ST_MODE_MIG)
		s.free_mib = s.alloc_mib * s.units_free / 8;
	else
		s.free_mib = s.alloc_mib - s.request_mib;
	return s;
}

static bool uses(const struct nv_pod *p, int gpu)
{
	for (int k = 0; k < p->grant_count; k++)
		for (int i = 0; i < p->grants[k].count; i++)
			if (p->grants[k].gpu[i] == gpu)
				return true;
	return false;
}

static bool shape_ok(const struct nv_pod *p)
{
	for (int k = 0; k < p->grant_count; k++)
		for (int i = 0; i < p->grants[k].count; i++) {
			if (p->grants[k].gpu[i] < 0)
				return false;
			for (int j = 0; j < i; j++)
				if (p->grants[k].kind != ST_KIND_MIG &&
				    p->grants[k].gpu[i] == p->grants[k].gpu[j])
					return false;
		}
	return true;
}

/* A share that adds nothing to a GPU in trouble is no excuse: only GPUs the pod uses are judged. */
bool nv_can_exist(const struct nv_cluster *m, const struct nv_pod *p)
{
	if (!shape_ok(p))
		return false;
	for (int gpu = 0; gpu < NV_GPUS; gpu++) {
		struct nv_sum s = nv_count(m, p->node, gpu, p, false);

		if (uses(p, gpu) && (s.mixed || s.mig_overlap || s.compute_nano > ST_NANO ||
				     s.request_mib > s.alloc_mib))
			return false;
	}
	return true;
}

bool nv_fits_new(const struct nv_cluster *m, const struct nv_pod *p)
{
	const struct nv_node *n = &m->nodes[p->node];

	if (!n->present || n->unready || nv_fences(m, p->node) > 0 || !shape_ok(p))
		return false;
	for (int gpu = 0; gpu < NV_GPUS; gpu++) {
		struct nv_sum s = nv_count(m, p->node, gpu, p, true);
		struct nv_sum before = nv_count(m, p->node, gpu, NULL, true);

		if (!uses(p, gpu))
			continue;
		if (before.taken != ST_TAKEN_NO || s.mixed || s.mig_conflict || s.mig_overlap ||
		    s.compute_nano > ST_NANO ||
		    (before.mode == ST_MODE_MIG) != (s.mode == ST_MODE_MIG))
			return false;
		if (s.clients > 0 &&
		    (s.request_mib > s.alloc_mib || s.clients > m->cfg.clients_max ||
		     s.limit_mib > s.alloc_mib * m->cfg.overcommit_permille / 1000))
			return false;
	}
	for (int k = 0; k < p->grant_count; k++)
		for (int i = 0; i < p->grants[k].count; i++) {
			const struct nv_gpu *g = &n->gpus[p->grants[k].gpu[i]];

			/* An instance that is there already belongs to somebody else. */
			for (int j = 0; p->grants[k].kind == ST_KIND_MIG && j < g->instances; j++)
				if (g->instance[j].profile == p->grants[k].profile &&
				    g->instance[j].start == p->grants[k].start[i])
					return false;
			if (p->grants[k].kind == ST_KIND_SHARE &&
			    p->grants[k].limit_mib < p->grants[k].request_mib)
				return false;
		}
	return true;
}

bool nv_instances_legal(const struct nv_gpu *g)
{
	struct layout l = {.bad = false};
	int media = 0;

	for (int i = 0; i < g->instances; i++) {
		lay(&l, g->instance[i].profile, g->instance[i].start);
		media += g->instance[i].profile == 1;
	}
	return !l.bad && media <= 1;
}

int nv_fences(const struct nv_cluster *m, int node)
{
	int n = 0;

	for (int p = 0; p < NV_PODS; p++)
		n += m->pods[p].live && m->pods[p].fenced && m->pods[p].node == node;
	return n;
}

static uint64_t mix(uint64_t h, int64_t v)
{
	return hash_bytes(&v, sizeof(v), h);
}

uint64_t nv_digest(const struct st_node *n)
{
	uint64_t h = mix(n->gpu_count, n->product);

	h = mix(mix(h, n->present), n->unready);
	h = mix(mix(h, n->fences), n->pods);
	h = mix(mix(h, n->cpu_left_milli), n->mem_left_mib);
	for (uint8_t i = 0; i < n->gpu_count; i++) {
		const struct st_gpu *g = &n->gpus[i];

		h = mix(mix(h, g->alloc_mib), g->free_mib);
		h = mix(mix(h, g->compute_left_nano), g->limit_mib);
		h = mix(mix(h, g->clients), g->memory_bound);
		h = mix(mix(h, g->mode), g->taken);
		h = mix(mix(h, (int64_t)g->mig_placed), (int64_t)g->mig_foreign);
		h = hash_str(g->uuid, h);
	}
	return h;
}

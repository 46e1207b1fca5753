#include "enforcer/mig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mig_internal.h"

int en_mig_way_parse(const char *s)
{
	static const char *const names[] = {"static", "dynamic", "switch"};

	for (int i = 0; i < 3; i++)
		if (strcmp(s, names[i]) == 0)
			return i;
	return -1;
}

/* ---- figures ---- */

/* Under the lock. */
static void show(struct en_mig *m)
{
	struct en_mig_stats s = m->stats;

	s.ours = m->own_count;
	for (size_t i = 0; i < m->own_count; i++)
		s.lingering += m->own[i].lingers;
	pthread_mutex_lock(&m->shown_lock);
	m->shown = s;
	pthread_mutex_unlock(&m->shown_lock);
}

static void unlock(struct en_mig *m)
{
	show(m);
	pthread_mutex_unlock(&m->lock);
}

/* ---- life ---- */

int en_mig_new(const struct en_mig_options *o, struct en_mig **ret, struct err *err)
{
	struct en_mig *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return err_set(err, ERR_NOMEM, "MIG: no memory");
	m->o = *o;
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->shown_lock, NULL);
	m->library = o->library != NULL ? strdup(o->library) : NULL;
	m->path = o->path != NULL ? strdup(o->path) : NULL;
	if ((o->library != NULL && m->library == NULL) || (o->path != NULL && m->path == NULL)) {
		en_mig_free(m);
		return err_set(err, ERR_NOMEM, "MIG: no memory");
	}
	mig_load(m);
	show(m);
	*ret = m;
	return 0;
}

void en_mig_free(struct en_mig *m)
{
	if (m == NULL)
		return;
	en_nvml_close(m->nvml);
	free(m->library);
	free(m->path);
	pthread_mutex_destroy(&m->lock);
	pthread_mutex_destroy(&m->shown_lock);
	free(m);
}

/* ---- the driver ---- */

int mig_device(struct en_mig *m, const char *uuid, struct en_nvml_device **ret, struct err *err)
{
	int r = 0;

	if (m->nvml != NULL && en_nvml_lost(m->nvml)) {
		en_nvml_close(m->nvml);
		m->nvml = NULL;
	}
	if (m->nvml == NULL)
		r = en_nvml_open(m->library, &m->nvml, err);
	return r == 0 ? en_nvml_device_by_uuid(m->nvml, uuid, ret, err) : r;
}

/* ---- what is ours ---- */

struct mig_own *mig_find(struct en_mig *m, const char *gpu, unsigned profile_id, unsigned start)
{
	for (size_t i = 0; i < m->own_count; i++) {
		struct mig_own *o = &m->own[i];

		if (strcmp(o->gpu, gpu) == 0 && o->at.profile_id == profile_id &&
		    o->at.at.start == start)
			return o;
	}
	return NULL;
}

static void forget(struct en_mig *m, struct mig_own *o)
{
	*o = m->own[--m->own_count];
}

/* It is not there any more, and we did not remove it. */
static void vanished(struct en_mig *m, struct mig_own *o)
{
	if (o->at.uuid[0] != '\0') { /* else it came to nothing */
		log_event(m->o.log, LOG_LEVEL_WARN, "mig-vanished",
			  "gpu=%s profile=%u start=%u uuid=%s", o->gpu, o->at.profile_id,
			  o->at.at.start, o->at.uuid);
		m->stats.vanished++;
	}
	forget(m, o);
	mig_save(m);
}

static const struct en_probe_gpu *gpu_find(const struct en_probe *p, const char *uuid)
{
	for (size_t i = 0; i < p->gpu_count; i++)
		if (strcmp(p->gpus[i].uuid, uuid) == 0)
			return &p->gpus[i];
	return NULL;
}

/* A device plugin that offers our instances gave it to a pod of others. */
static bool given_away(const struct en_probe_gpu *g, const struct mig_own *o)
{
	for (size_t i = 0; g != NULL && i < g->instance_count; i++)
		if (g->instances[i].held && strcmp(g->instances[i].uuid, o->at.uuid) == 0)
			return true;
	return false;
}

/* g: the GPU as it was last seen; NULL: it was not. */
static bool idle(const struct en_mig *m, const struct en_probe_gpu *g, const struct mig_own *o,
		 int64_t now_ms)
{
	if ((o->pending && now_ms - o->since_ms < EN_MIG_PENDING_MS) || given_away(g, o))
		return false;
	return m->o.held == NULL || !m->o.held(m->o.ctx, o->gpu, (int)o->at.at.start);
}

enum there {
	GONE, /* or another one is in its place: ids are given again */
	WHOLE,
	HALF, /* without its compute instance, or with others: it was not made, or not removed, to the end */
};

/* What the driver has of it. One that was known by its place only is known from then on. */
static int look_at(struct en_mig *m, struct en_nvml_device *d, struct mig_own *o, enum there *ret,
		   struct err *err)
{
	struct en_nvml_instance list[EN_INSTANCES_MAX];
	size_t count = 0;
	int r = en_nvml_instances(m->nvml, d, o->at.profile_id, list, EN_INSTANCES_MAX, &count,
				  err);

	*ret = GONE;
	if (r != 0)
		return r < 0 ? r : err_set(err, ERR_IO, "the driver lists no MIG instances");
	for (size_t i = 0; i < count; i++) {
		const struct en_nvml_instance *at = &list[i];

		if (at->at.start != o->at.at.start)
			continue;
		if (o->at.uuid[0] == '\0')
			o->at = *at;
		else if (at->id != o->at.id ||
			 (at->uuid[0] != '\0' && strcmp(at->uuid, o->at.uuid) != 0))
			continue;
		*ret = at->uuid[0] != '\0' ? WHOLE : HALF;
	}
	return 0;
}

/* 0, or why it is still there. It is forgotten where it was not there any more. */
static int remove_one(struct en_mig *m, struct mig_own *o, struct err *err)
{
	struct en_nvml_device *d;
	enum there there;
	int r = mig_device(m, o->gpu, &d, err);

	if (r == 0)
		r = look_at(m, d, o, &there, err);
	if (r == 0 && there == GONE)
		r = ERR_NOT_FOUND;
	else if (r == 0)
		r = en_nvml_instance_remove(m->nvml, d, &o->at, err);
	if (r != 0 && r != ERR_NOT_FOUND) {
		m->stats.failed[EN_MIG_REMOVE]++;
		return r < 0 ? r : err_set(err, ERR_IO, "the driver removes no MIG instances");
	}
	log_event(m->o.log, LOG_LEVEL_INFO, "mig-removed", "gpu=%s profile=%u start=%u", o->gpu,
		  o->at.profile_id, o->at.at.start);
	m->stats.removed += r == 0;
	m->stats.vanished += r != 0;
	forget(m, o);
	mig_save(m);
	return 0;
}

/* ---- making ---- */

/* One instance that a container is to have. */
struct want {
	const struct en_probe_gpu *gpu;
	const struct st_mig_profile *profile;
	unsigned start;
};

static int want_of(const struct en_probe *probe, const struct en_holding *h, int i,
		   struct want *ret, struct err *err)
{
	const struct st_mig_geometry *g;
	int p = -1;

	ret->gpu = gpu_find(probe, h->gpus[i]);
	if (ret->gpu == NULL) {
		(void)err_set(err, ERR_NOT_FOUND, "%s is not there", h->gpus[i]);
		return ERR_NOT_FOUND;
	}
	g = ret->gpu->has_geometry ? &ret->gpu->geometry
				   : st_mig_table_find(ret->gpu->product, ret->gpu->mem_mib);
	p = g != NULL ? st_mig_profile_find(g, h->grant.profile) : -1;
	if (p < 0 || g->profiles[p].id < 0) {
		(void)err_set(err, ERR_NOT_FOUND, "%s has no MIG profile %s", h->gpus[i],
			      h->grant.profile);
		return ERR_NOT_FOUND;
	}
	ret->profile = &g->profiles[p];
	ret->start = h->grant.start[i];
	return 0;
}

static bool overlap(unsigned a, unsigned a_size, unsigned b, unsigned b_size)
{
	return a < b + b_size && b < a + a_size;
}

/* Idle ones of ours that are in the way go; what stays is said. */
static int clear_way(struct en_mig *m, const struct want *w, int64_t now_ms, struct err *err)
{
	for (size_t i = 0; i < m->own_count;) {
		struct mig_own *o = &m->own[i];
		size_t before = m->own_count;
		int r;

		if (strcmp(o->gpu, w->gpu->uuid) != 0 ||
		    !overlap(o->at.at.start, o->at.at.size, w->start, w->profile->units)) {
			i++;
			continue;
		}
		if (!idle(m, w->gpu, o, now_ms))
			return err_set(err, ERR_CONFLICT,
				       "%s: a MIG instance in use at %u is in the way of %s at %u",
				       o->gpu, o->at.at.start, w->profile->name, w->start);
		r = remove_one(m, o, err);
		if (r != 0)
			return err_prefix(err, r, "%s: the idle MIG instance at %u is in the way",
					  w->gpu->uuid, o->at.at.start);
		i = m->own_count < before ? i : i + 1;
	}
	return 0;
}

/* An instance as wanted that others made. */
static bool foreign_there(struct en_mig *m, struct en_nvml_device *d, const struct want *w)
{
	struct en_nvml_instance list[EN_INSTANCES_MAX];
	size_t count = 0;

	if (en_nvml_instances(m->nvml, d, (unsigned)w->profile->id, list, EN_INSTANCES_MAX, &count,
			      NULL) != 0)
		return false;
	for (size_t i = 0; i < count; i++)
		if (list[i].at.start == w->start)
			return true;
	return false;
}

/* Before it is made: an agent that ends in the middle of it leaves none behind that nobody knows. It is the last one
 * then. */
static int remember(struct en_mig *m, const struct want *w, int64_t now_ms, struct err *err)
{
	struct mig_own *o = &m->own[m->own_count];

	memset(o, 0, sizeof(*o));
	snprintf(o->gpu, sizeof(o->gpu), "%s", w->gpu->uuid);
	o->at.profile_id = (unsigned)w->profile->id;
	o->at.at = (struct en_nvml_placement){w->start, w->profile->units};
	o->since_ms = now_ms;
	m->own_count++;
	if (mig_save(m))
		return 0;
	m->own_count--;
	return err_set(err, ERR_IO,
		       "%s cannot be written, so that it would be nobody's after a "
		       "restart",
		       m->path);
}

static int make_new(struct en_mig *m, struct en_nvml_device *d, const struct want *w,
		    int64_t now_ms, enum en_mig_failure *ret_why, struct err *err)
{
	const struct en_nvml_placement at = {w->start, w->profile->units};
	struct mig_own *o = &m->own[m->own_count];
	struct en_nvml_instance made = {0};
	enum there there;
	int r;

	if (m->own_count == MIG_OWN_MAX)
		return err_set(err, ERR_TOO_LARGE, "more than %d MIG instances", MIG_OWN_MAX);
	*ret_why = EN_MIG_DRIVER;
	r = remember(m, w, now_ms, err);
	if (r != 0)
		return r;
	r = en_nvml_instance_make(m->nvml, d, (unsigned)w->profile->id, at, &made, err);
	o->number = ++m->made;
	if (r != 0) {
		*ret_why = r == ERR_NO_ROOM ? EN_MIG_NO_ROOM : EN_MIG_DRIVER;
		if (look_at(m, d, o, &there, NULL) == 0 && there == GONE)
			forget(m, o);
		(void)mig_save(m);
		return r < 0 ? r
			     : err_set(err, ERR_CONFLICT, "the driver makes no MIG instances here");
	}
	o->at = made;
	o->pending = true;
	m->stats.made++;
	(void)mig_save(m); /* where that fails, its place is in the file */
	log_event(m->o.log, LOG_LEVEL_INFO, "mig-made", "gpu=%s profile=%s start=%u uuid=%s",
		  o->gpu, w->profile->name, w->start, made.uuid);
	return 0;
}

/* *ret: WHOLE, it is the container's now; GONE, the place is free. */
static int reuse(struct en_mig *m, struct en_nvml_device *d, struct mig_own *o, int64_t now_ms,
		 enum there *ret, struct err *err)
{
	int r = look_at(m, d, o, ret, err);

	if (r != 0)
		return r;
	switch (*ret) {
	case WHOLE:
		o->pending = true;
		o->lingers = false;
		o->since_ms = now_ms;
		m->stats.reused++;
		break;
	case HALF:
		*ret = GONE;
		r = remove_one(m, o, err);
		break;
	default:
		vanished(m, o);
		break;
	}
	return r;
}

/* *ret_why: why not, where it fails. */
static int make_one(struct en_mig *m, const struct want *w, int64_t now_ms, bool *ret_new,
		    enum en_mig_failure *ret_why, struct err *err)
{
	struct en_nvml_device *d;
	enum there there;
	struct mig_own *o;
	int r = mig_device(m, w->gpu->uuid, &d, err);

	*ret_new = false;
	*ret_why = EN_MIG_DRIVER;
	if (r != 0)
		return r;
	*ret_why = EN_MIG_MODE;
	r = mig_switch_on(m, w->gpu, d, err);
	if (r != 0)
		return r;
	*ret_why = EN_MIG_OCCUPIED;
	o = mig_find(m, w->gpu->uuid, (unsigned)w->profile->id, w->start);
	if (o != NULL && given_away(w->gpu, o))
		return err_set(err, ERR_CONFLICT,
			       "%s: %s at %u was given to a pod by a device plugin", w->gpu->uuid,
			       w->profile->name, w->start);
	if (o != NULL) {
		*ret_why = EN_MIG_DRIVER;
		r = reuse(m, d, o, now_ms, &there, err);
		if (r != 0 || there == WHOLE)
			return r;
		*ret_why = EN_MIG_OCCUPIED;
	}
	if (foreign_there(m, d, w))
		return err_set(err, ERR_CONFLICT,
			       "%s: %s at %u is there, and Tessera did not make it", w->gpu->uuid,
			       w->profile->name, w->start);
	r = clear_way(m, w, now_ms, err);
	if (r == 0)
		r = make_new(m, d, w, now_ms, ret_why, err);
	*ret_new = r == 0;
	return r < 0 ? err_prefix(err, r, "MIG instance %s at %u of %s", w->profile->name, w->start,
				  w->gpu->uuid)
		     : r;
}

int en_mig_make(struct en_mig *m, const struct en_probe *probe, const struct en_holding *h,
		int64_t now_ms, struct err *err)
{
	struct want wants[ST_GPUS_MAX];
	bool made[ST_GPUS_MAX] = {false};
	enum en_mig_failure why = EN_MIG_DRIVER;
	int r = 0;

	if (m->o.way == EN_MIG_STATIC)
		return 0;
	pthread_mutex_lock(&m->lock);
	for (int i = 0; r == 0 && i < h->grant.count; i++)
		r = want_of(probe, h, i, &wants[i], err);
	for (int i = 0; r == 0 && i < h->grant.count; i++)
		r = make_one(m, &wants[i], now_ms, &made[i], &why, err);
	m->stats.failed[why] += r != 0;
	for (int i = 0; r != 0 && i < h->grant.count; i++) {
		struct mig_own *o =
			made[i] ? mig_find(m, wants[i].gpu->uuid, (unsigned)wants[i].profile->id,
					   wants[i].start)
				: NULL;

		if (o != NULL)
			(void)remove_one(m, o, NULL); /* else the sweep does it */
	}
	unlock(m);
	return r;
}

void en_mig_drop(struct en_mig *m, const struct en_holding *h, int64_t now_ms)
{
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < h->grant.count; i++)
		for (size_t k = 0; k < m->own_count; k++) {
			struct mig_own *o = &m->own[k];

			if (strcmp(o->gpu, h->gpus[i]) != 0 || o->at.at.start != h->grant.start[i])
				continue;
			o->pending = false;
			o->since_ms = now_ms;
		}
	unlock(m);
}

/* ---- looking after ---- */

unsigned en_mig_sweep(struct en_mig *m, const struct en_probe *probe, int64_t now_ms)
{
	unsigned changed = 0;

	if (m->o.way == EN_MIG_STATIC || !probe->driver_ok)
		return 0;
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < m->own_count;) {
		struct mig_own *o = &m->own[i];
		size_t before = m->own_count;

		if (o->since_ms == 0)
			o->since_ms = now_ms; /* of an earlier agent: lingers from now on */
		o->lingers = false;
		if (!idle(m, gpu_find(probe, o->gpu), o, now_ms))
			o->since_ms = o->pending ? o->since_ms : now_ms;
		else if (now_ms - o->since_ms >= m->o.linger_ms)
			(void)remove_one(m, o, NULL);
		else
			o->lingers = true;
		changed += m->own_count < before;
		i = m->own_count < before ? i : i + 1;
	}
	changed += mig_switch_back(m, probe, now_ms);
	unlock(m);
	return changed;
}

static const struct st_mig_geometry *geometry_of(const struct en_probe_gpu *g)
{
	return g->has_geometry ? &g->geometry : st_mig_table_find(g->product, g->mem_mib);
}

/* The instance as the look saw it; NULL: it did not. Where one of them has no UUID, by its place. */
static struct en_mig_instance *seen(const struct mig_own *o, struct en_probe_gpu *g)
{
	const struct st_mig_geometry *geometry = geometry_of(g);

	for (size_t i = 0; i < g->instance_count; i++) {
		struct en_mig_instance *at = &g->instances[i];
		int p;

		if (at->uuid[0] != '\0' && o->at.uuid[0] != '\0') {
			if (strcmp(at->uuid, o->at.uuid) == 0)
				return at;
			continue;
		}
		p = geometry != NULL ? st_mig_profile_find(geometry, at->profile) : -1;
		if (p >= 0 && at->start == o->at.at.start &&
		    geometry->profiles[p].id == (int32_t)o->at.profile_id)
			return at;
	}
	return NULL;
}

/* Made before the driver was looked at, and it does not have it. Where it did not answer that is not
 * known. */
static bool is_gone(const struct mig_own *o, const struct en_probe *p, struct en_probe_gpu *g)
{
	return !p->stale && g->healthy && o->number <= p->mig_made && seen(o, g) == NULL;
}

static void mark_own(const struct mig_own *o, struct en_probe_gpu *g)
{
	const struct st_mig_geometry *geometry = geometry_of(g);
	struct en_mig_instance *at = seen(o, g);

	if (at != NULL)
		at->ours = true;
	if (at != NULL || o->at.uuid[0] == '\0')
		return;
	/* Made after the driver was looked at. */
	for (int p = 0; geometry != NULL && p < geometry->profile_count; p++) {
		struct en_mig_instance *to = &g->instances[g->instance_count];

		if (geometry->profiles[p].id != (int32_t)o->at.profile_id ||
		    g->instance_count == EN_INSTANCES_MAX)
			continue;
		*to = (struct en_mig_instance){.start = (uint8_t)o->at.at.start, .ours = true};
		memcpy(to->profile, geometry->profiles[p].name, sizeof(to->profile));
		memcpy(to->uuid, o->at.uuid, sizeof(to->uuid));
		g->instance_count++;
		g->mig_enabled = true;
		return;
	}
}

uint64_t en_mig_made(const struct en_mig *m)
{
	return m->made;
}

const char *en_mig_failure_name(enum en_mig_failure f)
{
	static const char *const names[EN_MIG_FAILURES] = {"no-room", "occupied", "mode", "driver",
							   "remove"};

	return names[f];
}

void en_mig_mark(struct en_mig *m, struct en_probe *probe)
{
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < probe->gpu_count; i++) {
		struct en_probe_gpu *g = &probe->gpus[i];

		g->mig_static = m->o.way == EN_MIG_STATIC && g->mig_enabled;
		g->mig_switchable = mig_may_switch(m, g);
		for (size_t k = 0; k < m->own_count;) {
			struct mig_own *o = &m->own[k];

			if (strcmp(o->gpu, g->uuid) == 0 && is_gone(o, probe, g)) {
				vanished(m, o); /* the last one is in its place */
				continue;
			}
			if (strcmp(o->gpu, g->uuid) == 0)
				mark_own(o, g);
			k++;
		}
		/* Held by a container that an earlier agent made it for. */
		for (size_t k = 0; k < g->instance_count; k++)
			g->instances[k].ours |= m->o.held != NULL &&
						m->o.held(m->o.ctx, g->uuid, g->instances[k].start);
	}
	unlock(m);
}

void en_mig_get_stats(struct en_mig *m, struct en_mig_stats *ret)
{
	pthread_mutex_lock(&m->shown_lock);
	*ret = m->shown;
	pthread_mutex_unlock(&m->shown_lock);
}

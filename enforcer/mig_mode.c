/* MIG mode of idle GPUs. */
#include <stdio.h>
#include <string.h>

#include "enforcer/mig_internal.h"

/* A100 and A30 change their mode by a reset only (MIG user guide); Hopper and later at once. */
static bool wants_reset(const char *product)
{
	return strstr(product, "A100") != NULL || strstr(product, "A30") != NULL ||
	       strstr(product, "A800") != NULL;
}

static bool held(const struct en_mig *m, const char *gpu)
{
	return m->o.held != NULL && m->o.held(m->o.ctx, gpu, -1);
}

bool mig_may_switch(const struct en_mig *m, const struct en_probe_gpu *g)
{
	return m->o.way == EN_MIG_SWITCH && g->mig_capable && g->healthy && g->foreign[0] == '\0' &&
	       !wants_reset(g->product);
}

static struct mig_mode *mode_find(struct en_mig *m, const char *gpu)
{
	for (size_t i = 0; i < m->mode_count; i++)
		if (strcmp(m->modes[i].gpu, gpu) == 0)
			return &m->modes[i];
	return NULL;
}

int mig_switch_on(struct en_mig *m, const struct en_probe_gpu *g, struct en_nvml_device *d,
		  struct err *err)
{
	bool current = false, pending = false;
	size_t before = m->mode_count;
	int r = en_nvml_mig_mode(m->nvml, d, &current, &pending, err);

	if (r != 0)
		return r < 0 ? r : err_set(err, ERR_CONFLICT, "%s is not capable of MIG", g->uuid);
	if (current)
		return 0;
	if (!mig_may_switch(m, g))
		return err_set(err, ERR_CONFLICT, "%s is not in MIG mode, and is not switched here",
			       g->uuid);
	if (g->processes > 0)
		return err_set(err, ERR_CONFLICT,
			       "%s is not in MIG mode, and %u processes are on it", g->uuid,
			       g->processes);
	/* Written down first, as with instances; where it comes to nothing, the GPU is put out of a mode that it is
	 * not in, which is nothing. */
	if (mode_find(m, g->uuid) == NULL && m->mode_count < ST_GPUS_MAX) {
		m->modes[m->mode_count] = (struct mig_mode){.empty_since_ms = 0};
		snprintf(m->modes[m->mode_count++].gpu, EN_UUID_CAP, "%s", g->uuid);
	}
	if (!mig_save(m)) {
		m->mode_count = before;
		return err_set(err, ERR_IO, "%s is not switched: %s cannot be written", g->uuid,
			       m->path);
	}
	r = en_nvml_mig_set(m->nvml, d, true, err);
	if (r != 0 && m->mode_count > before) {
		m->mode_count = before;
		(void)mig_save(m);
	}
	if (r != 0)
		return r < 0 ? err_prefix(err, r, "%s", g->uuid)
			     : err_set(err, ERR_CONFLICT, "%s: the driver changes no MIG mode",
				       g->uuid);
	m->stats.switched_on++;
	log_event(m->o.log, LOG_LEVEL_INFO, "mig-mode", "gpu=%s on=yes", g->uuid);
	return 0;
}

static bool has_own(const struct en_mig *m, const char *gpu)
{
	for (size_t i = 0; i < m->own_count; i++)
		if (strcmp(m->own[i].gpu, gpu) == 0)
			return true;
	return false;
}

/* The GPU as it was last seen has nothing, and so have we. */
static bool empty(const struct en_mig *m, const struct en_probe *probe, const char *gpu)
{
	for (size_t i = 0; i < probe->gpu_count; i++)
		if (strcmp(probe->gpus[i].uuid, gpu) == 0)
			return !has_own(m, gpu) && !held(m, gpu) && probe->gpus[i].processes == 0;
	return false;
}

unsigned mig_switch_back(struct en_mig *m, const struct en_probe *probe, int64_t now_ms)
{
	unsigned changed = 0;

	for (size_t i = 0; i < m->mode_count;) {
		struct mig_mode *mode = &m->modes[i];
		struct en_nvml_device *d;
		struct err err = ERR_INIT;

		if (!empty(m, probe, mode->gpu)) {
			mode->empty_since_ms = 0;
			i++;
			continue;
		}
		if (mode->empty_since_ms == 0)
			mode->empty_since_ms = now_ms;
		if (now_ms - mode->empty_since_ms < m->o.linger_ms ||
		    mig_device(m, mode->gpu, &d, &err) != 0 ||
		    en_nvml_mig_set(m->nvml, d, false, &err) != 0) {
			i++; /* instances of others, or a process: later */
			continue;
		}
		log_event(m->o.log, LOG_LEVEL_INFO, "mig-mode", "gpu=%s on=no", mode->gpu);
		m->stats.switched_off++;
		*mode = m->modes[--m->mode_count];
		mig_save(m);
		changed++;
	}
	return changed;
}

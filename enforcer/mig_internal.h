/* Shared by mig*.c; not for others. */
#ifndef TESSERA_ENFORCER_MIG_INTERNAL_H
#define TESSERA_ENFORCER_MIG_INTERNAL_H

#include <pthread.h>

#include "enforcer/mig.h"

#define MIG_OWN_MAX 128

struct mig_own {
	char gpu[EN_UUID_CAP];
	/* uuid "": it was about to be made when that was written down, so whatever is there with that profile at
	 * that start is ours; its id is not known. */
	struct en_nvml_instance at;
	uint64_t number;  /* in the order of making, from 1; 0 = known from the file */
	bool pending;     /* its container comes to be */
	bool lingers;     /* nobody held it at the last sweep */
	int64_t since_ms; /* when it was made, or idle; 0 = known from the file */
};

/* A GPU that this put into MIG mode. */
struct mig_mode {
	char gpu[EN_UUID_CAP];
	int64_t empty_since_ms; /* 0 = has instances */
};

struct en_mig {
	struct en_mig_options o;
	char *library, *path;
	pthread_mutex_t lock;  /* of all below */
	struct en_nvml *nvml;  /* NULL: not open */
	_Atomic uint64_t made; /* read without the lock, too */
	size_t own_count, mode_count;
	struct mig_own own[MIG_OWN_MAX];
	struct mig_mode modes[ST_GPUS_MAX];
	struct en_mig_stats stats;

	pthread_mutex_t shown_lock; /* of the next; never held while the driver works */
	struct en_mig_stats shown;  /* as of the last unlock */
};

/* The GPU in the driver, which is opened where it is not. */
int mig_device(struct en_mig *m, const char *uuid, struct en_nvml_device **ret, struct err *err);

/* mig_file.c: writes the file that remembers; false: could not, and the log says why. Reads it. */
bool mig_save(struct en_mig *m);
void mig_load(struct en_mig *m);

struct mig_own *mig_find(struct en_mig *m, const char *gpu, unsigned profile_id, unsigned start);

/* mig_mode.c */
bool mig_may_switch(const struct en_mig *m, const struct en_probe_gpu *g);
/* Puts the GPU into MIG mode where it is not. */
int mig_switch_on(struct en_mig *m, const struct en_probe_gpu *g, struct en_nvml_device *d,
		  struct err *err);
/* Modes of GPUs that have been empty for long enough; how many were changed. */
unsigned mig_switch_back(struct en_mig *m, const struct en_probe *probe, int64_t now_ms);

#endif

/* Between fake_cluster.c (what tests do and see) and fake_cluster_serve.c (what clients get). */
#ifndef TESSERA_TEST_FAKE_CLUSTER_INTERNAL_H
#define TESSERA_TEST_FAKE_CLUSTER_INTERNAL_H

#include <pthread.h>

#include "base/rng.h"
#include "test/lib/fake_cluster.h"

#define FAULTS_MAX 32

/* A thing that happened, for watches. */
struct change {
	struct change *next;
	uint64_t rv;
	bool pod;
	char text[]; /* the line of a watch */
};

struct fault {
	struct fake_fault f;
	unsigned hits;
};

struct fake_cluster {
	struct fake_api *api;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool closing, held;
	uint64_t rv, oldest; /* versions up to oldest are forgotten */
	unsigned cuts;       /* watches of an older number end */
	cJSON *nodes, *pods, *leases, *events;
	struct change *first, **last;
	struct fault faults[FAULTS_MAX];
	size_t fault_count;
	unsigned hits;
	struct rng rng;
	pthread_key_t text; /* of a thread's last answer */
};

/* All under the lock. */
cJSON *fc_meta_of(const cJSON *obj);
const char *fc_text_of(const cJSON *obj, const char *name);
void fc_set_text(cJSON *obj, const char *name, const char *value);
cJSON *fc_child(cJSON *obj, const char *name);
cJSON *fc_find(const cJSON *list, const char *name);
bool fc_ended(const cJSON *obj);
void fc_record(struct fake_cluster *c, cJSON *obj, bool pod, const char *type);

/* For fake_api_handle(). */
void fc_handle(void *ctx, const struct fake_request *rq, struct fake_reply *ret);

#endif

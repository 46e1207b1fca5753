/* A small API server with a memory, for tests of extender/: nodes, pods, bindings, leases, events, lists
 * and watches by version, on top of fake_api.h. What goes wrong is said by faults. */
#ifndef TESSERA_TEST_FAKE_CLUSTER_H
#define TESSERA_TEST_FAKE_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "test/lib/fake_api.h"

struct fake_cluster;

/* What happens to a request that matches. After times hits it ends; times < 0: never. */
struct fake_fault {
	const char *method; /* NULL: any */
	const char *part;   /* of the path; NULL: any */
	bool watches;       /* watches only, else no watch */
	int times;
	unsigned percent; /* 0: each */
	int status;       /* the answer; 0: none */
	const char *body; /* with status; NULL: a Status object */
	const char *headers;
	bool reset;   /* the connection breaks */
	bool silent;  /* no answer at all */
	bool after;   /* the server did it before all that */
	int delay_ms; /* before all that */
};

struct fake_cluster *fake_cluster_start(uint64_t seed);
void fake_cluster_stop(struct fake_cluster *c);
struct fake_api *fake_cluster_api(struct fake_cluster *c);

/* Faults are looked at in their order; copied, strings are the caller's. */
void fake_cluster_fault(struct fake_cluster *c, struct fake_fault f);
/* How often they hit, all together. */
unsigned fake_cluster_calm(struct fake_cluster *c);
unsigned fake_cluster_hits(struct fake_cluster *c);
/* Ends all watches; gone: and the versions before now are forgotten (410 for who wants them). */
void fake_cluster_cut(struct fake_cluster *c, bool gone);
/* Watches tell nothing while they are held. */
void fake_cluster_hold(struct fake_cluster *c, bool hold);

/* A node with an inventory of so many GPUs "GPU-<name>-<i>" of mem_mib. again: the same uid. */
void fake_cluster_node(struct fake_cluster *c, const char *name, unsigned gpus, int mem_mib);
/* An object as it is to be, from JSON: made or changed. kind "nodes" or "pods". */
void fake_cluster_put(struct fake_cluster *c, const char *kind, const char *json);
void fake_cluster_delete(struct fake_cluster *c, const char *kind, const char *name);
/* A pending pod of namespace "ns" with uid and annotations (members of a JSON object). */
void fake_cluster_pod(struct fake_cluster *c, const char *name, const char *uid,
		      const char *annotations);
/* Sets metadata.annotations[key] (NULL value: removes it), status.phase, deletionTimestamp. */
void fake_cluster_annotate(struct fake_cluster *c, const char *pod, const char *key,
			   const char *value);
void fake_cluster_phase(struct fake_cluster *c, const char *pod, const char *phase);
void fake_cluster_terminate(struct fake_cluster *c, const char *pod);
/* What another scheduler does. */
void fake_cluster_bind(struct fake_cluster *c, const char *pod, const char *node);

/* "" = not bound or not there; valid until the next call of the thread. */
const char *fake_cluster_node_of(struct fake_cluster *c, const char *pod);
/* A copy of all objects of a kind, as an array, to be deleted. */
cJSON *fake_cluster_objects(struct fake_cluster *c, const char *kind);
/* Has some event with that reason on that pod been posted? Waits 30 s at most. */
bool fake_cluster_event(struct fake_cluster *c, const char *pod, const char *reason);
/* And its message has the text. */
bool fake_cluster_event_says(struct fake_cluster *c, const char *pod, const char *reason,
			     const char *text);

#endif

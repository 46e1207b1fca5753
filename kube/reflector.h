/* A collection of the API kept in sight: list, watch, and again list when the watch lost its place.
 * Source: client-go's reflector; what servers answer is in the tests by name.
 *
 * All callbacks run on the client's thread. A reflector reports:
 *
 *	on_sync_begin                   a list starts (again, where the last one failed half-way)
 *	on_object ADDED or MODIFIED ... one for each item, while they arrive
 *	on_gone ...                     uid of each object that was known and is in the list no more
 *	on_synced                       the list is complete; from here on the watch speaks
 *	on_object ADDED, MODIFIED, DELETED ...
 *
 * ADDED means that the uid was not known; the same name under a new uid is another object. With a
 * field selector DELETED also says that an object merely left the selection. Memory: one object, and
 * the uids. */
#ifndef TESSERA_KUBE_REFLECTOR_H
#define TESSERA_KUBE_REFLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/err.h"
#include "kube/client.h"

enum ku_change { KU_ADDED, KU_MODIFIED, KU_DELETED };

struct ku_reflector_handler {
	void (*on_sync_begin)(void *ctx);
	/* obj is valid during the call; items of a list have neither kind nor apiVersion. A negative
	 * return says that the object could not be taken in (out of memory): the list is made again
	 * after a while. An object that cannot be understood is the handler's to note: 0. */
	int (*on_object)(void *ctx, enum ku_change change, const cJSON *obj, struct err *err);
	void (*on_gone)(void *ctx, const char *uid);
	void (*on_synced)(void *ctx, const char *rv);
	/* Something went wrong and is tried again; for log and metric. */
	void (*on_problem)(void *ctx, const struct err *what);
	void *ctx;
}; /* each may be NULL */

struct ku_reflector_options {
	const char *path;           /* "/api/v1/pods", escaped, without query; copied */
	const char *field_selector; /* NULL: none; copied */
	const char *label_selector; /* likewise */
	const char *const *prune;   /* paths to leave out (reflector_split.h); NULL: none; they and
				      * the array outlive the reflector */
	bool consistent;            /* the first list is a quorum read, not from a server's cache */
	unsigned page;              /* items a page; 0: 500 */
	size_t object_max;          /* bytes of one object; 0: 16 MiB */
	int64_t list_ms;            /* for one page; 0: 120,000 */
	int64_t watch_min_s, watch_max_s; /* length of a watch; 0: 300 and 600 */
	int64_t slack_ms;                 /* over its length a watch is dead; 0: 30,000 */
	int64_t silence_ms; /* without a byte (bookmarks come each minute) it is dead too;
				      * 0: 150,000 */
	struct ku_reflector_handler handler;
};

/* What the decoders of kube/object.h never read, of pods and of nodes: most of the bytes. */
extern const char *const ku_prune_pods[];
extern const char *const ku_prune_nodes[];

struct ku_reflector;

/* Starts listing. ERR_NOMEM, ERR_INVALID. Not from a callback of this or another reflector. */
int ku_reflector_new(struct ku_client *c, const struct ku_reflector_options *o,
		     struct ku_reflector **ret, struct err *err);
/* Stops; no callback runs after it returned. Not from a callback of its own. */
void ku_reflector_free(struct ku_reflector *r);

/* Drops the watch and lists anew, as a quorum read: for a new leader, whose view must not be older
 * than its term. ku_reflector_synced() is false from now until that list is complete. From any
 * thread, callbacks included. */
void ku_reflector_relist(struct ku_reflector *r);

/* Any thread: */
bool ku_reflector_synced(struct ku_reflector *r);
/* Synced, and everything up to rv was reported. */
bool ku_reflector_reached(struct ku_reflector *r, const char *rv);

struct ku_reflector_stats {
	uint64_t lists;   /* complete ones */
	uint64_t watches; /* begun */
	uint64_t events;  /* ADDED, MODIFIED, DELETED */
	uint64_t bookmarks;
	uint64_t expired;      /* 410, either way */
	uint64_t problems;     /* lists and watches that failed */
	uint64_t dead_watches; /* of those, silent ones */
	uint64_t gone;         /* found missing by a list */
	uint64_t objects;      /* known now */
	int64_t heard_us;      /* monotonic: when data last came */
	int64_t busy_us;       /* how long the chunk at work has been waiting; 0: none is */
};
void ku_reflector_get_stats(struct ku_reflector *r, struct ku_reflector_stats *ret);

/* Compares two resourceVersions of one resource: *ret < 0, 0, > 0. False where one of them is none
 * that may be compared: a positive decimal without leading zero.
 * Source: apimachinery util/resourceversion. */
bool ku_rv_compare(const char *a, const char *b, int *ret);

#endif

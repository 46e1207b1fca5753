/* The requests of pods seen lately, by UID: a bind call names its pod but does not carry it. The
 * least recently used entry makes way for a new one. The caller holds a lock. */
#ifndef TESSERA_EXTENDER_RECENT_H
#define TESSERA_EXTENDER_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "state/cluster.h"
#include "state/request.h"

struct ex_recent;

struct ex_recent_pod {
	struct st_request req;
	struct st_pod_ident ident; /* strings of the entry */
	bool learned;              /* counted into the workload */
	bool arrived;              /* counted as an arrival */
	bool asked;                /* filter was asked about it */
	size_t annotation_bytes;   /* keys and values of all its annotations */
};

struct ex_recent *ex_recent_new(size_t max); /* NULL: no memory */
void ex_recent_free(struct ex_recent *r);
/* Room for more entries. */
void ex_recent_extend(struct ex_recent *r, size_t more);
size_t ex_recent_count(const struct ex_recent *r);
bool ex_recent_full(const struct ex_recent *r);
bool ex_recent_has(const struct ex_recent *r, const char *uid);

/* Keeps a copy under ident->uid and makes it the newest; an entry with that UID is replaced, but
 * stays learned, arrived and asked. ERR_NOMEM: as before. */
int ex_recent_put(struct ex_recent *r, const struct st_request *req,
		  const struct st_pod_ident *ident, struct err *err);
/* Valid until the next put or drop; NULL: not known. Makes it the newest. */
struct ex_recent_pod *ex_recent_get(struct ex_recent *r, const char *uid);
/* False: was not known. */
bool ex_recent_drop(struct ex_recent *r, const char *uid);

#endif

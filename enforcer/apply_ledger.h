/* Who holds what on this node now: one row for each container with a grant. Filled from what the runtime
 * tells (it lists everything again after each reconnection), so nothing of it is stored. Sums are counted
 * when asked for; there are no totals that could drift. Not thread-safe. */
#ifndef TESSERA_ENFORCER_APPLY_LEDGER_H
#define TESSERA_ENFORCER_APPLY_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "enforcer/apply.h"

#define EN_HOLDING_CGROUP_CAP 1024

struct en_holding {
	const char *id, *pod_id; /* of container and sandbox, the runtime's */
	const char *pod_uid, *ns, *pod, *container;
	struct st_grant grant; /* its gpu[] count in gpus below */
	char gpus[ST_GPUS_MAX][EN_UUID_CAP];
	bool by_cgroup;                     /* limits belong on its cgroup */
	bool own_namespace;                 /* has an MPS namespace under its id */
	int percent;                        /* its share of compute; 0 = none */
	char pipe_source[EN_PATH_CAP];      /* what was mounted as pipe directory; "" = nothing */
	uint32_t pid;                       /* 0 = not started yet */
	char cgroup[EN_HOLDING_CGROUP_CAP]; /* its own, below the mount; "" = not known */
	bool stopped;                       /* counts no more; waits for its removal */
};

struct en_ledger;

struct en_ledger *en_ledger_new(void); /* NULL: no memory */
void en_ledger_free(struct en_ledger *l);

/* Adds a row, or puts it in the place of one with the same id, and of any other row for the same container
 * of the same pod: a container made again has a new id. Strings are copied. ERR_NOMEM: as before. */
int en_ledger_put(struct en_ledger *l, const struct en_holding *h, struct err *err);
void en_ledger_drop(struct en_ledger *l, const char *id); /* unknown ids are fine */
/* The row of a container, NULL: none. It may be changed, but for its strings; valid until the next put or
 * drop. */
struct en_holding *en_ledger_find(struct en_ledger *l, const char *id);
/* Walks all rows: NULL first, NULL at the end. */
struct en_holding *en_ledger_next(struct en_ledger *l, const struct en_holding *prev);
/* A row of its own, for use without the ledger. NULL: no memory. */
struct en_holding *en_holding_dup(const struct en_holding *h);
void en_holding_free(struct en_holding *h);
size_t en_ledger_count(const struct en_ledger *l);

/* Writes into node->gpus[] what others than this pod hold (NULL: what anybody holds). */
void en_ledger_use(struct en_ledger *l, const char *except_pod_uid, struct en_node *node);

#endif

/* Keeps the node's annotation and condition on the API server as they should be, with as few requests as
 * that takes: a patch only where what is there differs, by value, from what is wanted. What is there is
 * read at first, from every answer, and again every five minutes; a failed request is repeated with
 * back-off. */
#ifndef TESSERA_ENFORCER_INVENTORY_PUBLISH_H
#define TESSERA_ENFORCER_INVENTORY_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "enforcer/inventory.h"
#include "kube/client.h"

struct en_publisher;

/* node is copied; client and log (may be NULL) outlive the publisher. ERR_NOMEM, ERR_INVALID (a name that
 * cannot stand in a path). */
int en_publisher_new(struct ku_client *client, const char *node, struct log *log,
		     struct en_publisher **ret, struct err *err);
/* Waits for the request in flight, if any. Not from a callback of the client. */
void en_publisher_free(struct en_publisher *p);

/* What shall be on the node from now on. inventory NULL: the annotation is not touched; it is copied.
 * Sends at once where something differs. Any thread. ERR_NOMEM: as before. */
int en_publisher_put(struct en_publisher *p, const char *inventory,
		     const struct en_condition *condition, struct err *err);

/* The node shall carry no inventory any more (uninstall); the condition becomes Unknown. */
void en_publisher_withdraw(struct en_publisher *p);

/* Does what is due; returns the milliseconds until it is to be called again (at most a second or two late
 * does no harm). Any thread. */
int64_t en_publisher_tick(struct en_publisher *p);

/* Waits until the node is as wanted, or the time is up: true for the first. */
bool en_publisher_flush(struct en_publisher *p, int64_t limit_ms);

struct en_publisher_stats {
	uint64_t reads, writes, failures;
	bool in_sync; /* the node is as wanted, as far as is known */
};
void en_publisher_get_stats(struct en_publisher *p, struct en_publisher_stats *ret);

#endif

/* Pods that are bound to nodes which the cluster file does not have: left out of the books, and told of in one
 * line a node. Not for many threads. */
#ifndef TESSERA_EXTENDER_ABSENT_H
#define TESSERA_EXTENDER_ABSENT_H

#include <stddef.h>

#include "base/err.h"
#include "base/log.h"

struct ex_absent;

/* Notes the pod, and on which node it is now; *a NULL: none yet. Copies the texts. ERR_NOMEM. */
int ex_absent_put(struct ex_absent **a, const char *uid, const char *node, struct err *err);
/* It is gone, or on a node that is there. */
void ex_absent_drop(struct ex_absent **a, const char *uid);
/* Logs `event=node-missing node= pods= source= action=` once for each node, by name, and empties *a. log may be
 * NULL. Returns how many nodes. */
size_t ex_absent_tell(struct ex_absent **a, struct log *log, const char *source);

#endif

/* A request as a kube-scheduler would send it: a Pod object with annotations and resources. */
#ifndef TESSERA_REPLAY_POD_JSON_H
#define TESSERA_REPLAY_POD_JSON_H

#include "state/request.h"

/* The Pod object as malloc'ed JSON text; NULL: no memory. Parsing it by the annotation contract
 * gives the request back. */
char *rp_pod_json(const struct st_request *req, const char *ns, const char *name, const char *uid);

#endif

/* Paths of the API, with every part escaped. */
#ifndef TESSERA_KUBE_CLIENT_PATH_H
#define TESSERA_KUBE_CLIENT_PATH_H

#include <stdbool.h>

#include "base/buf.h"

/* May s stand as one part of a path: not empty, neither "." nor ".."? */
bool ku_path_legal(const char *s);

/* "/<part>"; everything but letters, digits and -._~ as %XX. */
void ku_path_put(struct buf *b, const char *part);
/* "?name=value", or "&name=value" where the path has a '?' already; value escaped. */
void ku_path_query(struct buf *b, const char *name, const char *value);

/* "/api/v1/namespaces/<ns>/pods/<name>[/<sub>]"; sub may be NULL. */
void ku_path_pod(struct buf *b, const char *ns, const char *name, const char *sub);
/* "/api/v1/nodes/<name>[/<sub>]" */
void ku_path_node(struct buf *b, const char *name, const char *sub);

#endif

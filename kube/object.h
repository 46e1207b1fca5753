/* Kubernetes objects from JSON (cJSON) to state/'s specs, taking only the fields that are used.
 * All input is hostile: wrong types are errors that name the path ("items[3].spec.nodeName"),
 * unknown fields are ignored. */
#ifndef TESSERA_KUBE_OBJECT_H
#define TESSERA_KUBE_OBJECT_H

#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/err.h"
#include "state/spec.h"

/* A bump allocator: everything decoded from one object lives and dies together. */
struct ku_arena;
struct ku_arena *ku_arena_new(void); /* NULL: no memory */
void ku_arena_free(struct ku_arena *a);
void ku_arena_reset(struct ku_arena *a);               /* forget all, keep the memory */
void *ku_arena_alloc(struct ku_arena *a, size_t size); /* zeroed, aligned; NULL: no memory */
char *ku_arena_str(struct ku_arena *a, const char *s); /* NULL: no memory */

/* Parses exactly one JSON value of len bytes: no trailing text but white space, no NUL, at most 256
 * levels, valid UTF-8, each number finite. ERR_INVALID names byte offset and cause. The caller
 * frees the tree with cJSON_Delete. */
int ku_json_parse(const char *text, size_t len, cJSON **ret, struct err *err);
/* The same for what the API server keeps: in an annotation it takes a NUL from anybody, and an object is not to
 * be missed for that. Each NUL in a string becomes U+FFFD, which no value that is understood has. */
int ku_json_parse_stored(const char *text, size_t len, cJSON **ret, struct err *err);

/* The member with exactly that name, of several the last one (Go reads the last, cJSON's own look-up
 * the first); NULL where there is none or obj is not an object. */
const cJSON *ku_json_get(const cJSON *obj, const char *name);

/* *ret points into the arena. Numbers that are quantities are kept as text. */
int ku_pod_decode(const cJSON *obj, struct ku_arena *a, struct st_pod_spec *ret, struct err *err);

/* GPUs come from the annotation tessera.dev/inventory (version 1), else from the labels
 * nvidia.com/gpu.count, gpu.memory, gpu.product; a node with neither has none. An unreadable
 * inventory makes the node unready with the reason; a wrong label is an error. */
int ku_node_decode(const cJSON *obj, struct ku_arena *a, struct st_node_spec *ret, struct err *err);

/* A file or answer holding a v1 List, NodeList, PodList, or a single Node or Pod (what
 * `kubectl get nodes,pods -A -o json` prints): calls back for each, in order. A callback's
 * negative return ends the walk and is returned with the path prefixed. NULL callback: skipped.
 * Items of other kinds are skipped. */
struct ku_list_visitor {
	int (*node)(void *ctx, const struct st_node_spec *n, struct err *err);
	int (*pod)(void *ctx, const struct st_pod_spec *p, struct err *err);
	void *ctx;
};
int ku_list_decode(const cJSON *root, const struct ku_list_visitor *v, struct err *err);

#endif

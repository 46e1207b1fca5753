/* A service or a live server on a small cluster written in a few words, for tests of extender/. */
#ifndef TESSERA_TEST_EXTENDER_FIXTURE_H
#define TESSERA_TEST_EXTENDER_FIXTURE_H

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "extender/extender.h"

/* ---- texts ---- */

/* Begins and ends a List; between them nodes and pods. */
void xf_list_begin(struct buf *b);
void xf_list_end(struct buf *b);
/* A node with an inventory: GPUs "GPU-<name>-<index>" of mem_mib, 64 cores, 512 GiB. mig: the profile
 * geometry is the built-in one of product, all GPUs in MIG mode. */
void xf_node(struct buf *b, const char *name, unsigned gpus, int mem_mib, const char *product,
	     bool mig);
/* A pod object. annotations: members of a JSON object ("\"gpu-fraction\":\"0.5\""); node "" = not
 * bound. Its name is "p-<uid>", its namespace "ns", its container "main". */
struct xf_pod {
	const char *uid, *annotations, *node, *nominated;
	int priority;
	const char *limits; /* members of resources.limits; NULL: none */
	bool no_comma;      /* stands alone, not in a list */
};
void xf_pod(struct buf *b, struct xf_pod p);

/* ExtenderArgs in cache mode; names separated by blanks. */
char *xf_args(struct xf_pod p, const char *names);
/* ExtenderBindingArgs of that pod. */
char *xf_bind_args(const char *uid, const char *node);

/* ---- a service ---- */

struct xf {
	struct ex_service *s;
	struct ex_scratch scratch;
	int64_t now_ms;  /* its clock */
	struct log *log; /* of cfg; the server's, too */
};
/* Aborts the test on failure. cfg may be NULL; journal may be NULL. */
void xf_open(struct xf *f, const char *cluster, const struct ex_service_config *cfg,
	     const char *journal);
/* What is in f->s is checked against a recount. */
void xf_close(struct xf *f);
void xf_check(struct xf *f);

/* Replies as text; the caller frees. */
char *xf_filter(struct xf *f, const char *body);
char *xf_prioritize(struct xf *f, const char *body);
char *xf_preempt(struct xf *f, const char *body);
char *xf_bind(struct xf *f, const char *uid, const char *node); /* the Error, "" = bound */
/* Filters and binds to the node prioritize likes best; its name (of the cluster) or NULL. */
const char *xf_schedule(struct xf *f, struct xf_pod p, const char *names);
/* The names that pass, joined by blanks. */
char *xf_passing(struct xf *f, struct xf_pod p, const char *names);
/* The reason given for a node; "" where there is none. *ret_resolvable tells which map. */
char *xf_reason(struct xf *f, struct xf_pod p, const char *names, const char *node,
		bool *ret_resolvable);
/* All that can be seen of the books, for comparing before and after. */
char *xf_books(struct xf *f);
char *xf_cluster_json(struct xf *f);

/* ---- a live server ---- */

struct xf_http {
	struct ex_server *server;
	struct ex_metrics metrics;
	void *curl;
	char url[300];
};
void xf_http_open(struct xf_http *h, struct xf *f, size_t max_body);
void xf_http_close(struct xf_http *h);
/* body NULL: GET. headers: "A: b" or NULL. Returns the reply's body; *ret_status. */
char *xf_http(struct xf_http *h, const char *path, const char *body, size_t len, const char *header,
	      long *ret_status);

/* The text of a file in the source tree. */
char *xf_file(const char *path, size_t *ret_len);

#endif

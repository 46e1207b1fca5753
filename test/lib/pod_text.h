/* Pods written as text, and requests and decisions printed as text, for tables of tests. */
#ifndef TESSERA_TEST_POD_TEXT_H
#define TESSERA_TEST_POD_TEXT_H

#include "state/contract.h"

#define POD_TEXT_MAX 32

struct pod_text {
	struct st_pod_spec spec;
	char text[8192];
	struct st_kv annotations[POD_TEXT_MAX];
	struct st_container_spec containers[POD_TEXT_MAX];
	struct st_kv resources[POD_TEXT_MAX];
};

/* annotations: lines "key=value". containers: names separated by blanks, "i:" before an init
 * container and "s:" before a sidecar, resources in brackets: "main[nvidia.com/gpu=1,a/b=2]".
 * The pod is p->spec, with uid "u", name "p", namespace "ns", not bound. Aborts on overflow. */
void pod_text_init(struct pod_text *p, const char *annotations, const char *containers);
/* Adds the annotations behind those that are there; they must outlive p. */
void pod_text_annotate(struct pod_text *p, const struct st_annotations *a);

/* One item a word: "main=share:time-slicing:1x4096/8192Mi", "main=share:sm-sharing?:2x0.5/0.75:c0.25",
 * "main=whole:2", "main=mig:1x1g.10gb"; then " product=.." " workload=..". '?' = the mode is only
 * preferred. Returns buf. */
const char *request_text(const struct st_request *r, char *buf, size_t cap);
/* "main=share:time-slicing:0,1:4096/8192Mi", "main=mig:0@4,1@0:1g.10gb". */
const char *decision_text(const struct st_decision *d, char *buf, size_t cap);

#endif

/* Elastic memory: a limit that a user wishes for a container that runs (tessera.dev/container.<c>.
 * memory-limit) becomes that of its allocation. Here: what is to be written, and what the books say
 * meanwhile. No I/O. Any thread; api_elastic.c asks and writes. */
#ifndef TESSERA_EXTENDER_ELASTIC_H
#define TESSERA_EXTENDER_ELASTIC_H

#include "extender/service.h"

enum ex_elastic {
	EX_ELASTIC_NONE, /* the allocation is as it is wished */
	EX_ELASTIC_LATER, /* it is none that can be used, now: the pod is fenced, or its node is away */
	EX_ELASTIC_WRITE,   /* plan->annotations are to be written */
	EX_ELASTIC_REFUSED, /* why says it, with key and value */
};

struct ex_elastic_plan {
	struct st_decision was, booked; /* books until it is written: the higher limit of each */
	struct st_annotations annotations;
	struct err why;
	bool no_room;   /* REFUSED: for want of room, which may appear */
	char text[200]; /* "main: 8192 to 24576 MiB", of those that change */
};
void ex_elastic_plan_fini(struct ex_elastic_plan *p);

/* Looks at a bound pod as the API server has it. WRITE: higher limits are in the books from here on, so
 * that nobody else is given that room; lower ones not before the watch tells of them. *ret: to be ended by
 * ex_elastic_plan_fini() in each case. ERR_NOMEM: nothing changed. */
int ex_elastic_plan(struct ex_service *s, const struct st_pod_spec *pod,
		    struct ex_elastic_plan *ret_plan, enum ex_elastic *ret, struct err *err);
/* It was not written, and will not be: the books are as before. Only while nothing newer has been told of the
 * pod: what that put into the books may look the same. */
void ex_elastic_undo(struct ex_service *s, const struct st_pod_spec *pod,
		     const struct ex_elastic_plan *p);

#endif

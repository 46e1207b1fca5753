/* The scheduler's verbs from body to reply. A reply is always written; the return value says whether
 * it is an error (for metrics and the log). */
#ifndef TESSERA_EXTENDER_VERBS_H
#define TESSERA_EXTENDER_VERBS_H

#include "extender/service.h"

/* Memory of one request, used again by the next. */
struct ex_scratch {
	struct ex_names names;
	struct ex_items items;
	struct ex_verdicts verdicts;
	struct ku_arena *arena;
	uint32_t tally[EX_CODE_COUNT]; /* verdicts of the last filter */
	struct st_pod_ident pod;       /* which it was about; strings in the arena */
};
int ex_scratch_init(struct ex_scratch *x, struct err *err); /* ERR_NOMEM */
void ex_scratch_fini(struct ex_scratch *x);
/* Forgets a request; gives memory back that only a huge one needs. */
void ex_scratch_trim(struct ex_scratch *x);

int ex_verb_filter(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		   struct buf *out, struct err *err);
/* Says in the log, at debug, that no node passed the last filter, and how many for which cause. */
void ex_verb_filter_tell(const struct ex_scratch *x, struct log *log);
/* The reply has no place for an error: it is an empty list then. */
int ex_verb_prioritize(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		       unsigned rest, struct buf *out, struct err *err);
int ex_verb_preempt(struct ex_service *s, struct ex_scratch *x, const char *body, size_t len,
		    struct buf *out, struct err *err);
/* Binds and waits for the journal. The server does the same in two steps. */
int ex_verb_bind(struct ex_service *s, const char *body, size_t len, struct buf *out,
		 struct err *err);

/* {"uid": "..."} of a release; *ret is malloc'ed. ERR_INVALID, ERR_NOMEM. */
int ex_release_parse(const char *body, size_t len, char **ret, struct err *err);

#endif

/* The model behind one lock: cluster, placer, the requests of pods seen lately, the room kept for
 * nominated pods. No I/O, logging or JSON under the lock. All functions may be called from any
 * thread; what they are handed (questions, verdicts, operations) belongs to one thread at a time. */
#ifndef TESSERA_EXTENDER_SERVICE_H
#define TESSERA_EXTENDER_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "extender/journal.h"
#include "extender/survey.h"
#include "extender/wire.h"
#include "kube/object.h"
#include "policy/policy.h"
#include "state/cluster.h"
#include "state/contract.h"

struct ex_service;

struct ex_service_config {
	struct st_config state;
	struct st_contract_options contract; /* its strings outlive the service */
	struct po_options placer;
	bool mirrors;          /* an API server's objects are the truth (mirror.h) */
	size_t pods_cache;     /* 0: 16,384 */
	int64_t nomination_ms; /* 0: 600,000 */
	clock_ms_fn now;       /* NULL: the monotonic clock */
	void *now_ctx;
	struct log *log; /* may be NULL */
};

/* ERR_NOMEM in *err and NULL. */
struct ex_service *ex_service_new(const struct ex_service_config *cfg, struct err *err);
/* After the journal (below) was closed. */
void ex_service_free(struct ex_service *s);

/* ---- start: load, then journal, then serve ---- */

/* Takes in a cluster file or its text (kube/load.h); its unbound pods become known, all its pods
 * count into the workload. Errors of ku_load_file(). */
int ex_service_load_file(struct ex_service *s, const char *path, struct err *err);
int ex_service_load_text(struct ex_service *s, const char *text, size_t len, struct err *err);
/* Opens the journal over what was loaded and replays it. A record that speaks of a
 * node which is not there is noted and stays. Errors of ex_journal_open(). */
int ex_service_open_journal(struct ex_service *s, const char *path, bool sync, struct err *err);
/* Would ex_service_open_journal() go well? Replays it; the file is only read, and may be in use. */
int ex_service_check_journal(struct ex_service *s, const char *path, struct err *err);
/* Writes what is pending; operations that wait are settled before it returns. */
void ex_service_close_journal(struct ex_service *s);
/* Makes the workload from the pods loaded. ERR_NOMEM. */
int ex_service_start(struct ex_service *s, struct err *err);
/* False with the reason when binds cannot succeed. */
bool ex_service_ready(const struct ex_service *s, const char **ret_why);

/* ---- questions ---- */

/* A pod as the scheduler sent it, understood. */
struct ex_question {
	struct st_request req;
	struct st_pod_ident ident; /* strings in the arena */
	const char *nominated;     /* node; "" = none */
	size_t annotation_bytes;   /* keys and values of all its annotations */
	bool refused;              /* the request is wrong; why says it */
	struct err why;
};

/* Reads the Pod object of a body. ERR_INVALID: it is no pod; a wrong GPU request is no error but
 * refused. ERR_NOMEM. Takes no lock. */
int ex_question_read(const struct ex_service *s, struct ex_slice pod, struct ku_arena *a,
		     struct ex_question *ret, struct err *err);

/* Judges the named nodes for the pod: code, key, node and texts in *ret. items (may be NULL) are node
 * objects, from which nodes that are not known are judged as if they existed. Changes nothing but
 * what is remembered of the pod: its request for a later bind, and its nomination. ERR_NOMEM. */
#define EX_EXPLAIN_MAX 64 /* up to so many names, refusals carry the node's numbers */
int ex_service_judge(struct ex_service *s, const struct ex_question *q,
		     const struct ex_names *names, const struct ex_items *items, struct ku_arena *a,
		     struct ex_verdicts *ret, struct err *err);

/* Chooses the victims for each proposed node; nodes that would not help keep none. ERR_NOMEM. */
int ex_service_preempt(struct ex_service *s, const struct ex_question *q, struct ex_preemption *p,
		       struct err *err);

/* ---- changes ---- */

/* A bind or release under way. Zeroed by the caller before its first use, ended by ex_op_fini(); may
 * be used again. */
struct ex_op {
	struct ex_journal_entry entry; /* line and len are set; done is the caller's */
	struct buf line;
	bool release;
	char *uid;
	struct ex_op *next; /* in the service's list of operations under way */
	bool learn;         /* the request counts into the workload */
	struct st_request req;
	struct st_decision decision;
	struct st_annotations annotations; /* what was decided, as the node will read it */
};
void ex_op_fini(struct ex_op *op);

/* Begins a bind: reserves GPUs on the node and prepares the record. Returns 1 when op->entry must be
 * submitted with ex_service_submit() and settled, 0 when the pod is bound (also: was bound there
 * already), or an error with the sentence for the scheduler. Waits while another operation for the
 * same UID is under way. */
int ex_service_bind(struct ex_service *s, const struct ex_bind_args *a, struct ex_op *op,
		    struct err *err);
/* Begins a release: forgets the pod. 1, or 0 when there was nothing to record; ERR_NOT_FOUND. */
int ex_service_release(struct ex_service *s, const char *uid, struct ex_op *op, struct err *err);
/* Hands op->entry to the journal; its done calls ex_service_settle() once. */
void ex_service_submit(struct ex_service *s, struct ex_op *op);
/* The record is written (rc 0), or not (rc < 0, *err says why): commits or rolls back. Returns rc,
 * or an error of its own. */
int ex_service_settle(struct ex_service *s, struct ex_op *op, int rc, struct err *err);
/* All of it in one call, waiting for the disk: 0 or an error. */
int ex_service_bind_now(struct ex_service *s, const struct ex_bind_args *a, struct err *err);
int ex_service_release_now(struct ex_service *s, const char *uid, struct err *err);

/* ---- looking in ---- */

/* Calls fn with the lock held; it must neither block nor do I/O. */
void ex_service_with(struct ex_service *s,
		     void (*fn)(void *ctx, const struct st_cluster *c, struct po_placer *p),
		     void *ctx);

struct ex_service_counts {
	uint64_t nodes_invalid, pods_invalid, pods_fenced; /* of mirror.h */
	uint64_t binds, binds_repeated, binds_refused, binds_unknown, binds_failed;
	uint64_t releases, learned;
	uint64_t prices_published; /* 0 where the policy has none */
	size_t pods_cached, nominations;
};
void ex_service_survey(struct ex_service *s, struct ex_survey *ret);
void ex_service_counts(struct ex_service *s, struct ex_service_counts *ret);
const struct st_contract_options *ex_service_contract(const struct ex_service *s);

#endif

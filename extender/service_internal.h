/* Shared by the service's files only. */
#ifndef TESSERA_EXTENDER_SERVICE_INTERNAL_H
#define TESSERA_EXTENDER_SERVICE_INTERNAL_H

#include <pthread.h>

#include "extender/absent.h"
#include "extender/lookup.h"
#include "extender/recent.h"
#include "extender/service.h"

#define EX_NOMINATIONS_MAX 1024

/* Room that is being made, or was made, on a node for one pod; or that a pod is expected to take there in
 * a moment, because filter liked that node best. */
struct ex_nomination {
	struct ex_nomination *next;
	char *uid;
	uint32_t node;
	int32_t priority;
	bool expected;
	int64_t seen_ms;
	struct st_request req;
};

struct ex_service {
	struct ex_service_config cfg;
	struct ex_journal *journal; /* NULL: none. Set before serving */
	struct ex_absent *absent;   /* while loading: bound pods whose node is not there */
	pthread_mutex_t lock;
	pthread_cond_t settled; /* an operation ended */
	/* under the lock: */
	struct st_cluster *c;
	struct po_placer *placer;
	struct ex_recent *recent;
	struct ex_lookup lookup;
	struct ex_nomination *nominations;       /* newest first */
	size_t nomination_count, expected_count; /* of all; and of those only expected */
	struct ex_op *ops;
	bool arrival_due;         /* of the last new pod: counts once the next one comes */
	struct po_pricer *pricer; /* its search is the price thread's alone, without the lock */
	pthread_t price_thread;
	pthread_cond_t prices_due;
	bool price_thread_runs, price_thread_ends;
	struct ex_service_counts counts;
};

size_t ex_annotation_bytes(const struct st_pod_spec *pod);

/* What random policies draw by: the same for all calls about one pod. */
uint64_t ex_decision_number(const char *uid);

/* Empties the operation for a new use; before the lock is taken. ERR_NOMEM. */
int ex_op_prepare(struct ex_op *op, const char *uid, bool release, struct err *err);
/* Chooses GPUs for the pod on a->node and books them; op gets decision, annotations and request. */
int ex_reserve(struct ex_service *s, const struct ex_bind_args *a, const struct ex_recent_pod *pod,
	       struct ex_op *op, struct err *err);

/* Chooses on the node as if the nominated pods of the same or higher priority were there already, and
 * where the question is what others leave (ret NULL) those that are expected.
 * EX_NOMINATED when only they stand in the way, or their own room is not there yet. ret may be NULL.
 * The model is as before. */
enum ex_code ex_choose(struct ex_service *s, const struct st_request *req, const char *uid,
		       int32_t priority, uint32_t node, struct st_decision *ret);
/* Does a nomination on this node concern such a pod? expected: or an expectation. */
bool ex_nominated(const struct ex_service *s, const char *uid, int32_t priority, uint32_t node,
		  bool expected);
/* Remembers or renews; ends the pod's other nominations. Failure is silent: it is a courtesy. */
void ex_nominate(struct ex_service *s, const char *uid, int32_t priority, uint32_t node,
		 const struct st_request *req);
/* A bind of the pod to that node is what comes next, most likely: the scheduler asks about other pods
 * before it. Ends with the bind, with the next question about the pod, or soon. */
void ex_expect(struct ex_service *s, const char *uid, uint32_t node, const struct st_request *req);
/* The bind has come. */
void ex_expected_drop(struct ex_service *s, const char *uid);
/* Returns whether there was one. */
bool ex_nomination_drop(struct ex_service *s, const char *uid);
/* Drops those not heard of for too long. */
void ex_nominations_expire(struct ex_service *s);

/* prices.c: the thread that searches for prices beside the requests, for policies that have them.
 * Starts it, or tells it of another workload; under the lock. False: there is no memory or no thread for
 * it, and the prices stay as they are. */
bool ex_prices_start(struct ex_service *s);
/* Under the lock: an arrival made steps due. */
void ex_prices_wake(struct ex_service *s);
/* Ends the thread; not under the lock. */
void ex_prices_stop(struct ex_service *s);

/* Judges node objects that are not in the model, without touching it: those whose code is EX_NO_NODE
 * and that have an item. Needs no lock. */
int ex_judge_objects(const struct ex_service *s, const struct ex_question *q,
		     const struct ex_names *names, const struct ex_items *items, struct ku_arena *a,
		     struct ex_verdicts *v, struct err *err);

#endif

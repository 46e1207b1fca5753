/* Binding a pod: one POST that sets node and annotations together, and the reading of its outcome.
 * Source: facts on bind; pkg/registry/core/pod/storage of Kubernetes 1.30 to 1.37. */
#ifndef TESSERA_KUBE_BIND_H
#define TESSERA_KUBE_BIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/client.h"
#include "state/spec.h"

/* All annotations of a pod together, keys and values. */
#define KU_ANNOTATIONS_MAX 262144

struct ku_bind {
	const char *ns, *name, *uid,
		*node; /* uid is a precondition: a pod made anew is not bound */
	const struct st_kv *annotations;
	size_t annotation_count;
	size_t present_bytes; /* of the annotations that the pod has and keeps; counted to the limit */
	int64_t deadline_ms; /* 0: 4,000 */
};

enum ku_bind_outcome {
	KU_BIND_OK,      /* 201: bound, with these annotations */
	KU_BIND_REFUSED, /* 409, 404, another 4xx, or it never left: not bound by this POST. It may be
			  * bound by an earlier one: read the pod */
	KU_BIND_UNKNOWN, /* 429, 5xx, timeout, broken connection: read the pod, keep the GPUs */
};

struct ku_bind_result {
	enum ku_bind_outcome outcome;
	int status;             /* 0: none came */
	const char *text;       /* for people, valid during the call; "" for OK */
	int64_t retry_after_ms; /* -1: none */
	int64_t queued_us;      /* from ku_bind_send() until the POST went out; -1: it did not */
	int64_t final_us; /* of an UNKNOWN: monotonic time from which the server carries the POST
				 * out no more. A pod that is read as unbound before may yet be bound */
};
typedef void (*ku_bind_fn)(void *ctx, const struct ku_bind_result *result);

/* Queues the POST; fn is called exactly once, on the client's thread. Everything in *b is copied.
 * Nothing is sent and fn is not called after ERR_INVALID (a name or annotation key that the API does
 * not check and the pod would suffer from), ERR_TOO_LARGE, ERR_NOMEM, ERR_CONFLICT (client ends). */
int ku_bind_send(struct ku_client *c, const struct ku_bind *b, ku_bind_fn fn, void *ctx,
		 struct err *err);

enum ku_bind_outcome ku_bind_classify(const struct ku_reply *reply);
/* The Binding object as text; errors of ku_bind_send(). */
int ku_bind_body(const struct ku_bind *b, struct buf *ret, struct err *err);

enum ku_pod_seen {
	KU_POD_FOUND,   /* pod is it, as the API server has it now */
	KU_POD_GONE,    /* there is none of that name, or it has another uid */
	KU_POD_UNKNOWN, /* no answer until the deadline, or none that says it */
};
/* pod is NULL unless FOUND, and valid during the call; text for people otherwise. */
typedef void (*ku_pod_fn)(void *ctx, enum ku_pod_seen seen, const cJSON *pod, const char *text);

/* Reads a pod (a quorum read), again and again until there is an answer or the deadline passed (0:
 * 4,000 ms). uid NULL: any. fn as above. ERR_INVALID, ERR_NOMEM, ERR_CONFLICT: no call of fn. */
int ku_pod_get(struct ku_client *c, const char *ns, const char *name, const char *uid,
	       int64_t deadline_ms, ku_pod_fn fn, void *ctx, struct err *err);

#endif

/* Counters and what /metrics prints. One table of families serves the output and METRICS.md. */
#ifndef TESSERA_EXTENDER_METRICS_H
#define TESSERA_EXTENDER_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "extender/api.h"
#include "extender/service.h"
#include "extender/verbs.h"
#include "extender/view.h"

enum ex_verb {
	EX_VERB_FILTER,
	EX_VERB_PRIORITIZE,
	EX_VERB_BIND,
	EX_VERB_PREEMPT,
	EX_VERB_RELEASE,
	EX_VERB_VALIDATE,
	EX_VERB_MUTATE,
	EX_VERB_CLUSTER,
	EX_VERB_METRICS,
	EX_VERB_OTHER,
	EX_VERB_COUNT,
};
const char *ex_verb_name(enum ex_verb v);

/* HTTP codes that are sent; others count under the last one. */
#define EX_CODES                                                                                   \
	{                                                                                          \
		200, 400, 403, 404, 405, 413, 415, 500, 503                                        \
	}
#define EX_CODES_COUNT 9
/* Index of the bucket of a histogram of times; EX_LATENCY_BUCKETS: above all bounds. */
unsigned ex_latency_bucket(int64_t ns);

enum ex_admit_verdict {
	EX_ADMIT_ALLOWED,
	EX_ADMIT_CHANGED,
	EX_ADMIT_REFUSED,
	EX_ADMIT_FAILED,
	EX_ADMIT_COUNT,
};

/* Any thread may count. Zeroed by its owner. */
struct ex_metrics {
	_Atomic uint64_t requests[EX_VERB_COUNT][EX_CODES_COUNT];
	_Atomic uint64_t errors[EX_VERB_COUNT];
	_Atomic uint64_t latency[EX_VERB_COUNT][EX_LATENCY_BUCKETS + 1];
	_Atomic uint64_t latency_sum_ns[EX_VERB_COUNT];
	_Atomic uint64_t verdicts[EX_CODE_COUNT];
	_Atomic uint64_t journal_errors;
	_Atomic uint64_t admissions[EX_ADMIT_COUNT];
	_Atomic int64_t connections;
};

/* A request has been answered: HTTP code, whether its body says it failed, and how long that took. */
void ex_metrics_request(struct ex_metrics *m, enum ex_verb verb, unsigned code, bool error,
			int64_t ns);
void ex_metrics_verdicts(struct ex_metrics *m, const uint32_t tally[EX_CODE_COUNT]);

/* All of it in Prometheus' text format; api NULL: without an API server. */
void ex_metrics_text(const struct ex_metrics *m, const struct ex_service_counts *counts,
		     const struct ex_api_stats *api, const struct ex_view *view, bool ready,
		     struct buf *out);
/* The table that METRICS.md holds. */
void ex_metrics_markdown(struct buf *b);

#endif

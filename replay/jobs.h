/* Many independent pieces of work over several threads, with the results of one thread.
 *
 * Tasks are handed out in order and share nothing but what is read-only; each writes its own slot.
 * So the outcome depends on the number of threads in nothing but time: also the error reported is
 * that of the first task, by number, that fails. */
#ifndef TESSERA_REPLAY_JOBS_H
#define TESSERA_REPLAY_JOBS_H

#include <stddef.h>

#include "base/err.h"
#include "replay/progress.h"

#define RP_JOBS_MAX 256

struct rp_job; /* the running task, for its progress */

/* Task i of the list. 0 or a negative code with the message set. */
typedef int (*rp_job_fn)(void *ctx, size_t i, struct rp_job *job, struct err *err);

/* Runs tasks 0..count-1 on that many threads (1: on the caller's). progress may be NULL; its label is
 * the caller's. The first failure by task number, after which no further task is started. */
int rp_jobs_run(size_t count, size_t threads, rp_job_fn fn, void *ctx, struct rp_progress *progress,
		struct err *err);
/* A progress callback for what the task calls; ctx is its struct rp_job. */
void rp_job_progress(void *ctx, size_t done, size_t total);
/* CPUs this process may use, at most RP_JOBS_MAX. */
size_t rp_jobs_default(void);

#endif

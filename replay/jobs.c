#include "replay/jobs.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#define PER_TASK 1000 /* parts of a task that progress is counted in */

struct pool {
	size_t count, next;
	rp_job_fn fn;
	void *ctx;
	struct rp_progress *progress;
	size_t done_parts;
	size_t failed; /* the first task that failed, count = none */
	int rc;
	struct err err;
	pthread_mutex_t lock;
};

struct rp_job {
	struct pool *pool;
	size_t parts; /* of PER_TASK, counted into the pool's so far */
};

void rp_job_progress(void *ctx, size_t done, size_t total)
{
	struct rp_job *job = ctx;
	struct pool *p = job->pool;
	size_t parts = total > 0 ? (size_t)((double)done / (double)total * PER_TASK) : 0;

	if (p->progress == NULL || parts <= job->parts || parts > PER_TASK)
		return;
	pthread_mutex_lock(&p->lock);
	p->done_parts += parts - job->parts;
	job->parts = parts;
	rp_progress_show(p->progress, p->done_parts, p->count * PER_TASK);
	pthread_mutex_unlock(&p->lock);
}

/* The next task, count = none. The lock is held. */
static size_t take(struct pool *p)
{
	return p->failed < p->count || p->next >= p->count ? p->count : p->next++;
}

static void *worker(void *ctx)
{
	struct pool *p = ctx;

	pthread_mutex_lock(&p->lock);
	for (size_t i; (i = take(p)) < p->count;) {
		struct rp_job job = {.pool = p};
		struct err err = ERR_INIT;
		int rc;

		pthread_mutex_unlock(&p->lock);
		rc = p->fn(p->ctx, i, &job, &err);
		pthread_mutex_lock(&p->lock);
		p->done_parts += PER_TASK - job.parts;
		if (p->progress != NULL)
			rp_progress_show(p->progress, p->done_parts, p->count * PER_TASK);
		if (rc < 0 && i < p->failed) {
			p->failed = i;
			p->rc = rc;
			p->err = err;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int rp_jobs_run(size_t count, size_t threads, rp_job_fn fn, void *ctx, struct rp_progress *progress,
		struct err *err)
{
	struct pool p = {
		.count = count,
		.failed = count,
		.fn = fn,
		.ctx = ctx,
		.progress = progress,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_t ids[RP_JOBS_MAX];
	size_t started = 0;

	if (threads > count)
		threads = count;
	if (threads > RP_JOBS_MAX)
		threads = RP_JOBS_MAX;
	/* Fewer threads than wanted do the same work. */
	while (started + 1 < threads && pthread_create(&ids[started], NULL, worker, &p) == 0)
		started++;
	worker(&p);
	for (size_t i = 0; i < started; i++)
		pthread_join(ids[i], NULL);
	pthread_mutex_destroy(&p.lock);
	if (p.rc < 0 && err != NULL)
		*err = p.err;
	return p.rc;
}

size_t rp_jobs_default(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > RP_JOBS_MAX ? RP_JOBS_MAX : (size_t)n;
}

#include "replay/batch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "replay/jobs.h"
#include "replay/progress.h"

static const char *measure_column(const struct po_policy *p)
{
	if (!p->uses_measure || p->measure == FR_FGD)
		return "frag_num";
	return p->measure == FR_CA ? "phi_num" : "measure_num";
}

/* What runs of one seed have in common. */
struct arrivals {
	bool ready;
	struct rp_order order;
	struct rp_timeline timeline;
	size_t runs_left; /* the last one frees it */
};

/* Task i is seed i / groups with policy and tie-break i % groups. */
struct work {
	const struct rp_batch *b;
	struct rp_result *results;
	struct rp_sim_result *sims;
	size_t groups;
	pthread_mutex_t lock;      /* of the arrivals */
	struct arrivals *arrivals; /* by seed, made by the first run that needs them */
};

static int make_arrivals(const struct rp_batch *b, uint64_t seed, struct arrivals *a,
			 struct err *err)
{
	struct rp_inputs in = *b->in;
	int rc;

	if (b->time == NULL)
		return rp_inputs_order(b->in, b->t, seed, &a->order, err);
	/* Of the order only the ranks are used. */
	in.inflate_nano = RP_NO_INFLATION;
	rc = rp_inputs_order(&in, b->t, seed, &a->order, err);
	if (rc < 0)
		return rc;
	return rp_time_arrivals(b->time, b->t, seed, &a->timeline, err);
}

static int arrivals_take(struct work *w, size_t seed, struct err *err)
{
	struct arrivals *a = &w->arrivals[seed];
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (!a->ready)
		rc = make_arrivals(w->b, w->b->seeds[seed], a, err);
	a->ready = rc == 0;
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static void arrivals_give(struct work *w, size_t seed)
{
	struct arrivals *a = &w->arrivals[seed];

	pthread_mutex_lock(&w->lock);
	if (--a->runs_left == 0) {
		rp_order_fini(&a->order);
		rp_timeline_fini(&a->timeline);
	}
	pthread_mutex_unlock(&w->lock);
}

static int run_one(void *ctx, size_t i, struct rp_job *job, struct err *err)
{
	struct work *w = ctx;
	const struct rp_batch *b = w->b;
	size_t seed = i / w->groups, group = i % w->groups, slot = group * b->seed_count + seed;
	struct rp_sim_options opt = {.run = {
					     .policy = b->policies[group / b->ties_count],
					     .ties = b->ties[group % b->ties_count],
					     .seed = b->seeds[seed],
					     .decisions = b->decisions,
					     .progress = rp_job_progress,
					     .progress_ctx = job,
					     .online = b->online,
					     .check = b->check,
					     .why = b->why,
				     }};
	const struct arrivals *a = &w->arrivals[seed];
	int rc = arrivals_take(w, seed, err);

	if (rc == 0 && b->time != NULL) {
		if (b->decisions != NULL)
			buf_puts(b->decisions, "ms,pod,node,gpus\n");
		opt.queue = b->time->queue;
		opt.max_wait_ms = b->time->max_wait_ms;
		rc = rp_sim(b->t, a->order.ranks, &a->timeline, &opt, &w->sims[slot], err);
	} else if (rc == 0) {
		if (b->decisions != NULL)
			buf_printf(b->decisions, "step,pod,node,gpus,%s\n",
				   measure_column(opt.run.policy));
		rc = rp_run(b->t, &a->order, &opt.run, &w->results[slot], err);
	}
	arrivals_give(w, seed);
	return rc;
}

int rp_batch_run(const struct rp_batch *b, struct rp_result *results, struct rp_sim_result *sims,
		 struct err *err)
{
	struct work w = {
		.b = b,
		.results = results,
		.sims = sims,
		.groups = b->policy_count * b->ties_count,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.arrivals = calloc(b->seed_count, sizeof(*w.arrivals)),
	};
	struct rp_progress progress;
	int rc;

	if (w.arrivals == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (size_t s = 0; s < b->seed_count; s++)
		w.arrivals[s].runs_left = w.groups;
	rp_progress_init(&progress, b->in->quiet);
	snprintf(progress.label, sizeof(progress.label), "%zu runs", rp_batch_count(b));
	rc = rp_jobs_run(rp_batch_count(b), b->jobs > 0 ? (size_t)b->jobs : rp_jobs_default(),
			 run_one, &w, &progress, err);
	rp_progress_clear(&progress);
	for (size_t s = 0; s < b->seed_count; s++) {
		rp_order_fini(&w.arrivals[s].order);
		rp_timeline_fini(&w.arrivals[s].timeline);
	}
	free(w.arrivals);
	pthread_mutex_destroy(&w.lock);
	return rc;
}

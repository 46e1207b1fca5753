#include "replay/sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zlib.h>

#include "replay/sim_internal.h"

#define PROGRESS_STEPS 1024
#define NOBODY UINT32_MAX

struct running {
	int64_t end_ms;
	uint32_t visit, node;
};

/* Pods of one shape that wait, in order of arrival. */
struct waiting {
	uint32_t first, last; /* visits; NOBODY = none */
};

struct sim {
	const struct rp_trace *t;
	const struct rp_timeline *l;
	const struct rp_sim_options *opt;
	struct rp_stage stage;
	struct rp_sim_books books;
	struct running *heap; /* the smallest (end, visit) on top */
	size_t running;
	struct waiting *queues; /* by shape */
	uint32_t *next;         /* by visit: the one behind it in its queue */
	uint32_t *active;       /* shapes with a queue, by their first visit */
	size_t active_count;
	bool *possible; /* by shape: it fits on the cluster as it is before the first arrival */
	struct buf line;
	struct rp_sim_result r;
};

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

static uint32_t shape_of(const struct sim *s, uint32_t visit)
{
	return s->t->pods[s->l->visits[visit].pod];
}

/* ---- the pods that run ---- */

static bool sooner(const struct running *a, const struct running *b)
{
	return a->end_ms != b->end_ms ? a->end_ms < b->end_ms : a->visit < b->visit;
}

static void heap_push(struct sim *s, struct running x)
{
	size_t i = s->running++;

	for (size_t up; i > 0 && sooner(&x, &s->heap[up = (i - 1) / 2]); i = up)
		s->heap[i] = s->heap[up];
	s->heap[i] = x;
}

static struct running heap_pop(struct sim *s)
{
	struct running top = s->heap[0], x = s->heap[--s->running];
	size_t i = 0;

	for (size_t down; (down = 2 * i + 1) < s->running; i = down) {
		if (down + 1 < s->running && sooner(&s->heap[down + 1], &s->heap[down]))
			down++;
		if (!sooner(&s->heap[down], &x))
			break;
		s->heap[i] = s->heap[down];
	}
	s->heap[i] = x;
	return top;
}

/* ---- the pods that wait ---- */

static void queue_push(struct sim *s, uint32_t visit)
{
	uint32_t shape = shape_of(s, visit);
	struct waiting *q = &s->queues[shape];

	s->next[visit] = NOBODY;
	if (q->first == NOBODY) {
		q->first = visit;
		s->active[s->active_count++] = shape; /* the latest of all */
	} else {
		s->next[q->last] = visit;
	}
	q->last = visit;
	s->books.waiting_milli += s->t->shapes[shape].milli;
	s->books.waiting_pods++;
}

/* Takes the first of active shape i out and puts the shape where its next one belongs. */
static uint32_t queue_pop(struct sim *s, size_t i)
{
	uint32_t shape = s->active[i];
	struct waiting *q = &s->queues[shape];
	uint32_t visit = q->first;

	q->first = s->next[visit];
	s->books.waiting_milli -= s->t->shapes[shape].milli;
	s->books.waiting_pods--;
	if (q->first == NOBODY) {
		s->active_count--;
		memmove(&s->active[i], &s->active[i + 1],
			(s->active_count - i) * sizeof(*s->active));
		return visit;
	}
	for (; i + 1 < s->active_count && s->queues[s->active[i + 1]].first < q->first; i++)
		s->active[i] = s->active[i + 1];
	s->active[i] = shape;
	return visit;
}

/* ---- one pod ---- */

/* The line `ms,pod,node,gpus`. d NULL: refused. */
static int record(struct sim *s, uint32_t visit, int64_t now, const struct st_decision *d,
		  struct err *err)
{
	struct buf *line = &s->line;
	const char *sep = "";

	buf_reset(line);
	buf_put_i64(line, now);
	buf_putc(line, ',');
	buf_puts(line, strpool_str(s->t->pod_names, s->l->visits[visit].pod));
	buf_putc(line, ',');
	if (d != NULL)
		buf_puts(line, st_cluster_node(s->stage.cluster, d->node)->name);
	buf_putc(line, ',');
	for (unsigned i = 0; d != NULL && i < d->grant_count; i++)
		for (unsigned g = 0; g < d->grants[i].count; g++, sep = "-") {
			buf_puts(line, sep);
			buf_put_i64(line, d->grants[i].gpu[g]);
		}
	buf_putc(line, '\n');
	if (!buf_ok(line))
		return out_of_memory(err);
	s->r.placements_crc32 = (uint32_t)crc32(
		s->r.placements_crc32, (const unsigned char *)line->data, (unsigned)line->len);
	if (s->opt->run.decisions == NULL)
		return 0;
	buf_put(s->opt->run.decisions, line->data, line->len);
	return buf_ok(s->opt->run.decisions) ? 0 : out_of_memory(err);
}

static void count_wait(struct sim *s, uint32_t visit, int64_t now)
{
	const struct rp_visit *v = &s->l->visits[visit];

	s->r.waited_gpu_s += s->t->shapes[shape_of(s, visit)].milli * (now - v->at_ms) / 1000;
}

/* Starts the pod on the node, where it fits. */
static int start(struct sim *s, uint32_t visit, uint32_t node, const struct st_decision *d,
		 int64_t now, struct err *err)
{
	const struct rp_visit *v = &s->l->visits[visit];
	const struct st_request *req = &s->t->shapes[shape_of(s, visit)].req;
	int rc = rp_stage_book(&s->stage, visit, strpool_str(s->t->pod_names, v->pod), req, d, err);

	if (rc == 0 && s->opt->run.online)
		rc = po_placer_learn(s->stage.placer, req, err);
	if (rc < 0)
		return rc;
	heap_push(s, (struct running){now + v->stay_ms, visit, node});
	if (rp_sim_books_counts(&s->books, v->at_ms)) {
		s->books.waits[s->books.wait_count++] = now - v->at_ms;
		s->r.at_once += now == v->at_ms;
		s->r.waited += now != v->at_ms;
		count_wait(s, visit, now);
	}
	return record(s, visit, now, d, err);
}

static int refuse(struct sim *s, uint32_t visit, int64_t now, struct err *err)
{
	const struct rp_visit *v = &s->l->visits[visit];
	const struct rp_shape *shape = &s->t->shapes[shape_of(s, visit)];

	if (rp_sim_books_counts(&s->books, v->at_ms)) {
		s->r.refused++;
		s->r.impossible += !s->possible[shape_of(s, visit)];
		s->r.refused_by_kind[shape->kind]++;
		s->r.refused_gpu_s += shape->milli * v->stay_ms / 1000;
		count_wait(s, visit, now);
	}
	return record(s, visit, now, NULL, err);
}

/* Places the pod anywhere. 1: it started; 0: no room; or an error. */
static int place(struct sim *s, uint32_t visit, int64_t now, struct err *err)
{
	const struct st_request *req = &s->t->shapes[shape_of(s, visit)].req;
	struct po_shape *shape = po_placer_ask(s->stage.placer, req, visit);
	struct st_decision d;
	enum bp_verdict verdict;
	uint32_t node;
	int rc;

	if (shape == NULL)
		return out_of_memory(err);
	node = po_shape_best(shape);
	if (node == ST_NONE)
		return 0;
	verdict = po_placer_choose(s->stage.placer, req, node, visit, &d);
	if (verdict != BP_OK)
		return err_set(err, ERR_INTERNAL, "visit %u: the best node refuses: %s", visit,
			       bp_verdict_text(verdict));
	rc = start(s, visit, node, &d, now, err);
	return rc < 0 ? rc : 1;
}

/* ---- events ---- */

static int arrive(struct sim *s, uint32_t visit, struct err *err)
{
	const struct rp_visit *v = &s->l->visits[visit];
	uint32_t shape = shape_of(s, visit);
	int rc;

	if (rp_sim_books_counts(&s->books, v->at_ms)) {
		s->r.arrivals++;
		s->r.asked_gpu_s += s->t->shapes[shape].milli * v->stay_ms / 1000;
	}
	if (!s->possible[shape])
		return refuse(s, visit, v->at_ms, err);
	/* Of a shape that waits nothing fits, and in a strict queue nobody passes. */
	if (s->queues[shape].first != NOBODY ||
	    (s->opt->queue == RP_QUEUE_FIFO && s->active_count > 0))
		rc = 0;
	else
		rc = place(s, visit, v->at_ms, err);
	if (rc == 0 && s->opt->queue == RP_QUEUE_NONE)
		rc = refuse(s, visit, v->at_ms, err);
	else if (rc == 0)
		queue_push(s, visit);
	return rc < 0 ? rc : rp_stage_arrived(&s->stage, err);
}

/* After pods left: no waiting pod fits on other nodes than theirs. node ST_NONE: several. */
static int backfill(struct sim *s, uint32_t node, int64_t now, struct err *err)
{
	for (size_t i = 0; i < s->active_count;) {
		uint32_t shape = s->active[i], visit = s->queues[shape].first;
		const struct st_request *req = &s->t->shapes[shape].req;
		struct st_decision d;
		bool started;
		int rc = 0;

		if (node == ST_NONE) {
			rc = place(s, visit, now, err);
			started = rc == 1;
		} else {
			started = po_placer_choose(s->stage.placer, req, node, visit, &d) == BP_OK;
			if (started)
				rc = start(s, visit, node, &d, now, err);
		}
		if (rc < 0)
			return rc;
		/* What stands at i after a pop is the next in order. */
		if (started)
			queue_pop(s, i);
		else
			i++;
	}
	return 0;
}

static int first_in_line(struct sim *s, int64_t now, struct err *err)
{
	while (s->active_count > 0) {
		uint32_t visit = s->queues[s->active[0]].first;
		int rc = place(s, visit, now, err);

		if (rc <= 0)
			return rc;
		queue_pop(s, 0);
	}
	return 0;
}

/* All pods that end at that moment leave before one that waits is looked at. */
static int leave(struct sim *s, int64_t now, struct err *err)
{
	uint32_t node = s->heap[0].node;

	while (s->running > 0 && s->heap[0].end_ms == now) {
		struct running x = heap_pop(s);
		int rc = rp_stage_leave(&s->stage, x.visit, x.node, err);

		if (rc < 0)
			return rc;
		if (x.node != node)
			node = ST_NONE;
	}
	return s->opt->queue == RP_QUEUE_FIFO ? first_in_line(s, now, err)
					      : backfill(s, node, now, err);
}

static int give_up(struct sim *s, int64_t now, struct err *err)
{
	int rc = refuse(s, queue_pop(s, 0), now, err);

	return rc == 0 && s->opt->queue == RP_QUEUE_FIFO ? first_in_line(s, now, err) : rc;
}

static int64_t next_patience(const struct sim *s)
{
	if (s->active_count == 0 || s->opt->max_wait_ms == 0)
		return INT64_MAX;
	return s->l->visits[s->queues[s->active[0]].first].at_ms + s->opt->max_wait_ms;
}

static int play(struct sim *s, struct err *err)
{
	const struct rp_run_options *opt = &s->opt->run;
	size_t total = s->l->count;
	int rc = 0;

	for (uint32_t i = 0; rc == 0;) {
		int64_t arrival = i < total ? s->l->visits[i].at_ms : INT64_MAX;
		int64_t departure = s->running > 0 ? s->heap[0].end_ms : INT64_MAX;
		int64_t patience = next_patience(s);
		int64_t now = arrival < departure ? arrival : departure;

		if (patience < now)
			now = patience;
		if (i == total && now > s->r.end_ms)
			break;
		rc = rp_sim_books_advance(&s->books, &s->stage, now, err);
		if (rc < 0)
			return rc;
		if (departure == now) {
			rc = leave(s, now, err);
		} else if (patience == now) {
			rc = give_up(s, now, err);
		} else {
			if (opt->progress != NULL && i % PROGRESS_STEPS == 0)
				opt->progress(opt->progress_ctx, i, total);
			rc = arrive(s, i++, err);
		}
	}
	return rc == 0 ? rp_sim_books_advance(&s->books, &s->stage, s->r.end_ms, err) : rc;
}

/* What waits at the end has waited until then. */
static void count_unfinished(struct sim *s)
{
	for (size_t i = 0; i < s->active_count; i++)
		for (uint32_t v = s->queues[s->active[i]].first; v != NOBODY; v = s->next[v])
			if (rp_sim_books_counts(&s->books, s->l->visits[v].at_ms)) {
				s->r.unfinished++;
				count_wait(s, v, s->r.end_ms);
			}
}

/* ---- before and after ---- */

static int allocate(struct sim *s, struct err *err)
{
	size_t visits = s->l->count, shapes = s->t->shape_count;

	s->heap = malloc((visits + 1) * sizeof(*s->heap));
	s->next = malloc((visits + 1) * sizeof(*s->next));
	s->queues = malloc((shapes + 1) * sizeof(*s->queues));
	s->active = malloc((shapes + 1) * sizeof(*s->active));
	s->possible = calloc(shapes + 1, sizeof(*s->possible));
	if (s->heap == NULL || s->next == NULL || s->queues == NULL || s->active == NULL ||
	    s->possible == NULL)
		return out_of_memory(err);
	for (size_t i = 0; i < shapes; i++)
		s->queues[i] = (struct waiting){NOBODY, NOBODY};
	return 0;
}

static int find_possible(struct sim *s, struct err *err)
{
	for (size_t i = 0; i < s->t->shape_count; i++) {
		struct po_shape *shape = po_placer_ask(s->stage.placer, &s->t->shapes[i].req, 0);

		if (shape == NULL)
			return out_of_memory(err);
		s->possible[i] = po_shape_best(shape) != ST_NONE;
	}
	return 0;
}

static void sim_free(struct sim *s)
{
	rp_sim_books_close(&s->books);
	rp_stage_close(&s->stage);
	buf_fini(&s->line);
	free(s->heap);
	free(s->next);
	free(s->queues);
	free(s->active);
	free(s->possible);
	free(s);
}

static double seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int rp_sim(const struct rp_trace *t, const uint32_t *ranks, const struct rp_timeline *l,
	   const struct rp_sim_options *opt, struct rp_sim_result *ret, struct err *err)
{
	double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
	struct sim *s = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return out_of_memory(err);
	s->t = t;
	s->l = l;
	s->opt = opt;
	rc = l->count > 0 ? allocate(s, err) : err_set(err, ERR_INVALID, "no arrivals");
	if (rc == 0)
		rc = rp_stage_open(&s->stage, t, ranks, &opt->run, err);
	s->r.total_milli = s->stage.total_milli;
	if (rc == 0)
		rc = rp_sim_books_open(&s->books, l, l->count, &s->r, err);
	if (rc == 0)
		rc = find_possible(s, err);
	if (rc == 0)
		rc = play(s, err);
	if (rc == 0 && opt->run.why)
		rc = rp_stranded_find(t, s->stage.cluster, s->stage.placer, &s->r.end, err);
	if (rc == 0 && opt->run.check)
		rc = st_cluster_check(s->stage.cluster, ST_NONE, err);
	if (rc == 0) {
		count_unfinished(s);
		rp_sim_books_finish(&s->books);
		s->r.policy = opt->run.policy->name;
		s->r.ties = opt->run.ties;
		s->r.seed = opt->run.seed;
		s->r.wall_s = seconds(CLOCK_MONOTONIC) - wall;
		s->r.cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
		*ret = s->r;
	}
	sim_free(s);
	return rc;
}

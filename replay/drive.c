#include "replay/drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "replay/drive_internal.h"

/* A bind under way. */
struct slot {
	struct rp_call *call; /* NULL: free */
	size_t step;
};

/* Arrivals still to be tried, first in, first out. */
struct loop {
	struct drive *d;
	struct slot *slots;
	size_t in_flight;
	size_t next;   /* arrival that comes next */
	size_t *again; /* ring of arrivals whose bind was refused */
	size_t again_first, again_count;
	double start_s;
	struct drive_reply reply;
};

static const char *const paths[RP_VERBS] = {"/filter", "/prioritize", "/bind"};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int out_of_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "out of memory");
}

const char *rp_drive_uid(uint64_t run, size_t step, char buf[RP_UID_CAP])
{
	struct rng rng;
	uint64_t a, b;

	rng_init(&rng, run);
	rng_init(&rng, rng_next(&rng) + step);
	a = rng_next(&rng);
	b = rng_next(&rng);

	snprintf(buf, RP_UID_CAP, "%08x-%04x-4%03x-%04x-%08x%04x", (unsigned)(a >> 32),
		 (unsigned)(a >> 16 & 0xFFFF), (unsigned)(a & 0xFFF),
		 (unsigned)(0x8000 | (b >> 48 & 0x3FFF)), (unsigned)(b >> 16 & 0xFFFFFFFF),
		 (unsigned)(b & 0xFFFF));
	return buf;
}

/* ---- binds in the background ---- */

static int bind_done(struct loop *l, struct slot *s, struct err *err)
{
	struct drive *d = l->d;
	struct rp_call *call = s->call;
	bool bound = false;
	int rc;

	if (call->status == 0)
		rc = err_set(err, ERR_IO, "%s%s: %s", d->opt->url, paths[RP_BIND], call->error);
	else
		rc = rp_times_add(&d->result.times[RP_BIND], call->time_us, err);
	if (rc == 0)
		rc = drive_bind_reply(d, s->step, call, &bound, err);
	rp_http_give_back(d->http, call);
	s->call = NULL;
	l->in_flight--;
	if (rc < 0)
		return rc;
	if (bound) {
		d->result.placed++;
		return 0;
	}
	d->nodes[s->step] = ST_NONE;
	if (d->tries[s->step] >= d->opt->retries) {
		d->result.given_up++;
		return 0;
	}
	d->tries[s->step]++;
	d->result.retried++;
	l->again[(l->again_first + l->again_count++) % d->steps] = s->step;
	return 0;
}

static int reap_binds(struct loop *l, struct err *err)
{
	for (size_t i = 0; i < l->d->opt->concurrency; i++)
		if (l->slots[i].call != NULL && l->slots[i].call->done) {
			int rc = bind_done(l, &l->slots[i], err);

			if (rc < 0)
				return rc;
		}
	return 0;
}

/* Until fewer than `below` binds are under way. */
static int wait_binds(struct loop *l, size_t below, struct err *err)
{
	int rc = reap_binds(l, err);

	while (rc == 0 && l->in_flight >= below) {
		rc = rp_http_step(l->d->http, 1000, err);
		if (rc == 0)
			rc = reap_binds(l, err);
	}
	return rc;
}

static int start_bind(struct loop *l, size_t step, struct err *err)
{
	struct drive *d = l->d;
	struct slot *s = l->slots;
	int rc = wait_binds(l, d->opt->concurrency, err);

	if (rc < 0)
		return rc;
	while (s->call != NULL)
		s++;
	s->call = rp_http_call(d->http);
	if (s->call == NULL)
		return out_of_memory(err);
	s->step = step;
	l->in_flight++;
	rc = drive_bind_args(d, step, &s->call->body, err);
	if (rc == 0)
		rc = rp_http_start(d->http, s->call, paths[RP_BIND], err);
	if (rc == 0 && d->opt->concurrency == 1)
		rc = wait_binds(l, 1, err);
	return rc;
}

/* ---- one pod's cycle ---- */

/* One call, waited for; binds go on meanwhile. */
static int ask(struct drive *d, enum rp_verb verb, struct rp_call *call, struct err *err)
{
	int rc = rp_http_start(d->http, call, paths[verb], err);

	if (rc == 0)
		rc = rp_http_wait(d->http, call, err);
	return rc == 0 ? rp_times_add(&d->result.times[verb], call->time_us, err) : rc;
}

static uint32_t winner(struct drive *d, const struct drive_reply *r)
{
	uint32_t best = r->nodes[0];
	int64_t top = r->scores[0];
	uint64_t equal = 1;

	for (size_t i = 1; i < r->count; i++) {
		if (r->scores[i] > top) {
			top = r->scores[i];
			best = r->nodes[i];
			equal = 1;
		} else if (r->scores[i] == top && !d->opt->first &&
			   rng_below(&d->rng, ++equal) == 0) {
			best = r->nodes[i];
		}
	}
	return best;
}

static int choose(struct loop *l, size_t step, struct rp_call *call, struct err *err)
{
	struct drive *d = l->d;
	int rc = drive_args(d, step, NULL, 0, &call->body, err);

	if (rc == 0)
		rc = ask(d, RP_FILTER, call, err);
	if (rc == 0)
		rc = drive_filter_reply(d, step, call, &l->reply, err);
	if (rc < 0 || l->reply.count == 0)
		return rc;
	if (l->reply.count > 1) {
		buf_reset(&call->body);
		rc = drive_args(d, step, l->reply.nodes, l->reply.count, &call->body, err);
		if (rc == 0)
			rc = ask(d, RP_PRIORITIZE, call, err);
		if (rc == 0)
			rc = drive_prioritize_reply(d, call, &l->reply, err);
		if (rc < 0)
			return rc;
	}
	d->nodes[step] = winner(d, &l->reply);
	return 0;
}

static int cycle(struct loop *l, size_t step, struct err *err)
{
	struct drive *d = l->d;
	struct rp_call *call = rp_http_call(d->http);
	int rc;

	if (call == NULL)
		return out_of_memory(err);
	d->nodes[step] = ST_NONE;
	rc = choose(l, step, call, err);
	rp_http_give_back(d->http, call);
	if (rc < 0)
		return rc;
	if (d->nodes[step] != ST_NONE)
		return start_bind(l, step, err);
	d->result.unschedulable++;
	return 0;
}

/* ---- the loop ---- */

static int keep_pace(struct loop *l, size_t started, struct err *err)
{
	double due = l->start_s + (double)started / (double)l->d->opt->rate;
	double left = due - now_s();
	int rc = 0;

	while (rc == 0 && left > 0) {
		rc = rp_http_step(l->d->http, left < 1 ? (int)(left * 1000) + 1 : 1000, err);
		if (rc == 0)
			rc = reap_binds(l, err);
		left = due - now_s();
	}
	return rc;
}

static int drive_all(struct loop *l, struct err *err)
{
	struct drive *d = l->d;
	size_t started = 0;

	for (;; started++) {
		int rc = reap_binds(l, err);
		size_t step;

		if (rc == 0 && l->next >= d->steps && l->again_count == 0)
			rc = wait_binds(l, 1, err);
		if (rc == 0 && d->opt->rate > 0)
			rc = keep_pace(l, started, err);
		if (rc < 0)
			return rc;
		if (l->next < d->steps) {
			step = l->next++;
		} else if (l->again_count > 0) {
			step = l->again[l->again_first];
			l->again_first = (l->again_first + 1) % d->steps;
			l->again_count--;
		} else {
			return 0;
		}
		rc = cycle(l, step, err);
		if (rc < 0)
			return rc;
		if (d->opt->progress != NULL)
			d->opt->progress(d->opt->progress_ctx, l->next, d->steps);
	}
}

static int loop_run(struct drive *d, struct err *err)
{
	struct loop l = {.d = d};
	int rc = 0;

	l.slots = calloc(d->opt->concurrency, sizeof(*l.slots));
	l.again = calloc(d->steps + 1, sizeof(*l.again));
	l.reply.nodes = calloc(d->t->node_count, sizeof(*l.reply.nodes));
	l.reply.scores = calloc(d->t->node_count, sizeof(*l.reply.scores));
	if (l.slots == NULL || l.again == NULL || l.reply.nodes == NULL || l.reply.scores == NULL)
		rc = out_of_memory(err);
	l.start_s = now_s();
	if (rc == 0)
		rc = drive_all(&l, err);
	d->result.wall_s = now_s() - l.start_s;
	for (size_t i = 0; l.slots != NULL && i < d->opt->concurrency; i++)
		rp_http_give_back(d->http, l.slots[i].call);
	free(l.slots);
	free(l.again);
	free(l.reply.nodes);
	free(l.reply.scores);
	return rc;
}

static int mark_clones(struct drive *d, struct err *err)
{
	bool *seen = calloc(d->t->pod_count + 1, sizeof(*seen));

	d->clone = calloc(d->steps + 1, sizeof(*d->clone));
	if (seen == NULL || d->clone == NULL) {
		free(seen);
		return out_of_memory(err);
	}
	for (size_t i = 0; i < d->steps; i++) {
		d->clone[i] = seen[d->o->pods[i]];
		seen[d->o->pods[i]] = true;
	}
	free(seen);
	return 0;
}

static int prepare(struct drive *d, struct err *err)
{
	int rc;

	d->steps = d->o->pod_count;
	if (d->opt->limit > 0 && d->opt->limit < d->steps)
		d->steps = d->opt->limit;
	d->result.pods = d->steps;
	rng_init(&d->rng, d->opt->seed);
	d->http = rp_http_new(d->opt->url, (long)d->opt->concurrency + 4);
	d->nodes = calloc(d->steps + 1, sizeof(*d->nodes));
	d->tries = calloc(d->steps + 1, sizeof(*d->tries));
	for (size_t i = 0; i < RP_VERBS; i++) {
		d->result.refusals[i] = rp_tally_new();
		if (d->result.refusals[i] == NULL)
			return out_of_memory(err);
	}
	if (d->http == NULL || d->nodes == NULL || d->tries == NULL)
		return out_of_memory(err);
	rc = mark_clones(d, err);
	return rc == 0 ? drive_names_init(d, err) : rc;
}

int rp_drive(const struct rp_trace *t, const struct rp_order *o, const struct rp_drive_options *opt,
	     struct rp_drive_result *ret, struct err *err)
{
	struct drive d = {.t = t, .o = o, .opt = opt};
	int rc = prepare(&d, err);

	if (rc == 0)
		rc = loop_run(&d, err);
	if (rc == 0 && opt->decisions)
		rc = drive_decisions(&d, err);
	rp_http_free(d.http);
	for (size_t i = 0; d.quoted != NULL && i < t->node_count; i++)
		free(d.quoted[i]);
	free(d.quoted);
	buf_fini(&d.all_names);
	free(d.nodes);
	free(d.tries);
	free(d.clone);
	if (rc < 0)
		rp_drive_result_fini(&d.result);
	else
		*ret = d.result;
	return rc;
}

void rp_drive_result_fini(struct rp_drive_result *r)
{
	for (size_t i = 0; i < RP_VERBS; i++) {
		rp_times_fini(&r->times[i]);
		rp_tally_free(r->refusals[i]);
		r->refusals[i] = NULL;
	}
	buf_fini(&r->decisions);
}

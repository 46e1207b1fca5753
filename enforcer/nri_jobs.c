/* Calls of the runtime on their way through the second thread, and their answers in time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri_internal.h"

#define BUDGET_MAX_MS 1500
#define JOBS_MAX 256

/* Could it keep a container from starting? */
static bool blocks(enum en_nri_method m)
{
	return m == EN_NRI_CREATE || m == EN_NRI_START || m == EN_NRI_VALIDATE;
}

/* ---- the second thread ---- */

/* Under the lock: the first job that nobody has begun. */
static struct job *job_next(struct en_nri *n)
{
	for (struct job *j = n->jobs; j != NULL; j = j->next) {
		if (j->request != NULL)
			return j;
	}
	return NULL;
}

static void job_run(struct en_nri *n, struct job *j, struct en_nri_request *take_r, bool first)
{
	struct en_nri_reply reply;
	int64_t took;
	bool undo;

	if (first && n->h.connected != NULL)
		n->h.connected(n->h.ctx);
	n->h.handle(n->h.ctx, take_r, &reply);
	pthread_mutex_lock(&n->lock);
	took = nri_now_us() - j->start_us;
	if (took > n->figures.worst_us)
		n->figures.worst_us = took;
	undo = j->method == EN_NRI_CREATE && reply.code == 0 &&
	       (j->answered || j->connection != n->connection);
	j->reply = reply;
	j->done = !undo; /* from then on the first thread frees it */
	pthread_mutex_unlock(&n->lock);
	if (!undo)
		return;
	n->h.undo(n->h.ctx, j->id);
	pthread_mutex_lock(&n->lock);
	j->done = true;
	pthread_mutex_unlock(&n->lock);
}

void *nri_work_loop(void *ctx)
{
	struct en_nri *n = ctx;
	uint64_t seen = 0;

	for (;;) {
		struct en_nri_request *r = NULL;
		bool first, stale = false;
		struct job *j;

		pthread_mutex_lock(&n->lock);
		while ((j = job_next(n)) == NULL && !n->stopping)
			pthread_cond_wait(&n->work, &n->lock);
		if (j != NULL) {
			r = j->request;
			j->request = NULL;
			/* Not START: there are runtimes that start it all the same. */
			stale = j->answered &&
				(j->method == EN_NRI_CREATE || j->method == EN_NRI_VALIDATE);
			j->done = stale;
		}
		pthread_mutex_unlock(&n->lock);
		if (j == NULL)
			return NULL;
		if (stale) { /* its container is not to be: the next one may be in time */
			en_nri_request_free(r);
			nri_wake(n);
			continue;
		}
		first = j->connection != seen;
		seen = j->connection;
		en_pulse_begin(n->pulse, en_nri_method_name(r->method));
		job_run(n, j, r, first);
		en_pulse_end(n->pulse);
		nri_wake(n);
	}
}

/* ---- jobs, on the first thread ---- */

static int64_t budget_us(const struct en_nri *n, const struct en_nri_request *r)
{
	int64_t ms = en_nri_session_status(n->session)->request_timeout_ms, asked;

	asked = r->timeout_ns / 1000000;
	if (asked > 0 && asked < ms)
		ms = asked;
	ms = ms * 3 / 4;
	if (ms > BUDGET_MAX_MS)
		ms = BUDGET_MAX_MS;
	if (n->o.budget_ms > 0)
		ms = n->o.budget_ms;
	return ms * 1000;
}

int nri_on_request(void *ctx, struct en_nri_request *take_r, struct err *err)
{
	struct en_nri *n = ctx;
	struct job *j = calloc(1, sizeof(*j)), **at;
	unsigned waiting = 0;

	if (j == NULL) {
		en_nri_request_free(take_r);
		return err_set(err, ERR_NOMEM, "NRI: no memory");
	}
	j->request = take_r;
	j->method = take_r->method;
	j->stream = take_r->stream;
	j->more = take_r->more;
	j->start_us = nri_now_us();
	j->deadline_us = j->start_us + budget_us(n, take_r);
	j->leaves = blocks(j->method) && n->h.leaves != NULL && n->h.leaves(n->h.ctx, take_r);
	if (take_r->method == EN_NRI_CREATE)
		snprintf(j->id, sizeof(j->id), "%s", take_r->containers[0].id);
	pthread_mutex_lock(&n->lock);
	j->connection = n->connection;
	for (at = &n->jobs; *at != NULL; at = &(*at)->next)
		waiting++;
	*at = j;
	n->figures.calls++;
	pthread_cond_signal(&n->work);
	pthread_mutex_unlock(&n->lock);
	if (waiting >= JOBS_MAX) /* a runtime has one call open, or few */
		return err_set(err, ERR_TOO_LARGE, "NRI: more than %d calls at once", JOBS_MAX);
	return 0;
}

static void job_free(struct job *j)
{
	en_nri_request_free(j->request);
	en_adjust_fini(&j->reply.adjust);
	free(j);
}

static int reply_payload(const struct job *j, struct buf *b, struct err *err)
{
	switch (j->method) {
	case EN_NRI_SYNCHRONIZE:
		return en_nri_put_synchronize(b, j->more, err);
	case EN_NRI_CREATE:
		return en_nri_put_create(b, &j->reply.adjust, err);
	case EN_NRI_VALIDATE:
		return en_nri_put_validate(b, j->reply.reject, j->reply.text, err);
	default:
		return 0;
	}
}

static int answer(struct en_nri *n, const struct job *j, struct err *err)
{
	struct buf b = BUF_INIT;
	int rc;

	if (j->reply.code != EN_TTRPC_OK)
		return en_nri_session_fail(n->session, j->stream, j->reply.code, j->reply.text,
					   err);
	rc = reply_payload(j, &b, err);
	if (rc == 0)
		rc = en_nri_session_reply(n->session, j->stream, &b, err);
	buf_fini(&b);
	return rc;
}

/* Stopping and removing are never held up, and neither are containers of others; the rest is refused, unless
 * fail_open. */
static int answer_late(struct en_nri *n, const struct job *j, struct err *err)
{
	struct job late = {.method = j->method, .stream = j->stream, .more = j->more};

	log_event(n->o.log, LOG_LEVEL_WARN, "nri-late", "method=%s budget_ms=%lld container=%s",
		  en_nri_method_name(j->method), (long long)(j->deadline_us - j->start_us) / 1000,
		  j->id[0] != '\0' ? j->id : "-");
	if (blocks(j->method) && !j->leaves && !n->o.fail_open) {
		late.reply.code = EN_TTRPC_DEADLINE_EXCEEDED;
		snprintf(late.reply.text, sizeof(late.reply.text),
			 "tessera: %s took longer than %lld ms", en_nri_method_name(j->method),
			 (long long)(j->deadline_us - j->start_us) / 1000);
	}
	return answer(n, &late, err);
}

/* Takes the next job that is done out of the list, or marks one whose time is over. */
static struct job *job_collect(struct en_nri *n, int64_t now, bool *ret_late)
{
	struct job *ret = NULL;

	pthread_mutex_lock(&n->lock);
	for (struct job **at = &n->jobs; *at != NULL && ret == NULL; at = &(*at)->next) {
		struct job *j = *at;

		if (j->done) {
			*ret_late = false;
			*at = j->next;
			ret = j;
			break;
		}
		if (!j->answered && j->connection == n->connection && now >= j->deadline_us) {
			j->answered = true;
			n->figures.late++;
			*ret_late = true;
			ret = j;
		}
	}
	pthread_mutex_unlock(&n->lock);
	return ret;
}

/* A late job stays in the list until it is done; only this thread frees. */
int nri_jobs_collect(struct en_nri *n, struct err *err)
{
	struct job *j;
	bool late;
	int rc = 0;

	while (rc == 0 && (j = job_collect(n, nri_now_us(), &late)) != NULL) {
		if (late) {
			rc = answer_late(n, j, err);
			continue;
		}
		if (j->connection == n->connection && n->session != NULL) {
			rc = j->answered ? 0 : answer(n, j, err);
			if (j->method == EN_NRI_SYNCHRONIZE && !j->more && j->reply.code == 0)
				nri_note_synchronized(n);
		}
		job_free(j);
	}
	return rc;
}

int nri_jobs_wait_ms(struct en_nri *n)
{
	int64_t first = INT64_MAX, left;

	pthread_mutex_lock(&n->lock);
	for (const struct job *j = n->jobs; j != NULL; j = j->next) {
		if (!j->answered && !j->done && j->connection == n->connection &&
		    j->deadline_us < first)
			first = j->deadline_us;
	}
	pthread_mutex_unlock(&n->lock);
	if (first == INT64_MAX)
		return -1;
	left = (first - nri_now_us() + 999) / 1000;
	return left > 0 ? (int)left : 0;
}

void nri_jobs_drop(struct en_nri *n)
{
	pthread_mutex_lock(&n->lock);
	for (struct job **at = &n->jobs; *at != NULL;) {
		struct job *j = *at;

		if (j->request != NULL || j->done) {
			*at = j->next;
			job_free(j);
		} else {
			at = &j->next;
		}
	}
	pthread_mutex_unlock(&n->lock);
}

void nri_jobs_free(struct en_nri *n)
{
	while (n->jobs != NULL) {
		struct job *next = n->jobs->next;

		job_free(n->jobs);
		n->jobs = next;
	}
}

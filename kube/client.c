/* The client's thread, and what other threads may call. */
#include "kube/client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kube/client_internal.h"

#define CONNECTIONS_DEFAULT 128U
#define TOKEN_MS_DEFAULT INT64_C(60000)
#define WAIT_MAX_MS 60000
#define JOBS_AT_ONCE 64 /* then the network has its turn */

static int64_t read_clock_us(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t real_mono_us(void *ctx)
{
	(void)ctx;
	return read_clock_us(CLOCK_MONOTONIC);
}

static int64_t real_wall_us(void *ctx)
{
	(void)ctx;
	return read_clock_us(CLOCK_REALTIME);
}

const struct ku_clock ku_clock_real = {.mono_us = real_mono_us, .wall_us = real_wall_us};

static _Thread_local const struct ku_client *current; /* whose thread this is */

/* ---- timers: a plain list, a look at all of them is cheaper than a system call ---- */

void ku_timer_clear(struct ku_client *c, struct ku_timer *t)
{
	if (!t->armed)
		return;
	if (t->prev != NULL)
		t->prev->next = t->next;
	else
		c->timers = t->next;
	if (t->next != NULL)
		t->next->prev = t->prev;
	t->armed = false;
}

void ku_timer_set(struct ku_client *c, struct ku_timer *t, int64_t at_us, void (*fn)(void *ctx),
		  void *ctx)
{
	ku_timer_clear(c, t);
	*t = (struct ku_timer){
		.next = c->timers, .armed = true, .at_us = at_us, .fn = fn, .ctx = ctx};
	if (c->timers != NULL)
		c->timers->prev = t;
	c->timers = t;
}

static struct ku_timer *earliest(const struct ku_client *c)
{
	struct ku_timer *first = c->timers;

	for (struct ku_timer *t = first; t != NULL; t = t->next) {
		if (t->at_us < first->at_us)
			first = t;
	}
	return first;
}

/* Those due at one moment; one that a callback sets anew waits for the next round. */
static void run_timers(struct ku_client *c)
{
	int64_t now = ku_now_us(c);
	struct ku_timer *t;

	while ((t = earliest(c)) != NULL && t->at_us <= now) {
		ku_timer_clear(c, t);
		t->fn(t->ctx);
	}
}

/* ---- the thread ---- */

static void take_incoming(struct ku_client *c)
{
	struct ku_call *call, *next;

	pthread_mutex_lock(&c->lock);
	call = c->incoming;
	c->incoming = NULL;
	c->incoming_end = &c->incoming;
	pthread_mutex_unlock(&c->lock);
	for (; call != NULL; call = next) {
		next = call->next;
		ku_call_link(c, call);
		ku_call_start(call);
	}
}

static void run_jobs(struct ku_client *c)
{
	struct ku_job job, *j;
	unsigned done = 0;

	do {
		pthread_mutex_lock(&c->lock);
		j = c->jobs;
		if (j != NULL) {
			c->jobs = j->next;
			if (c->jobs == NULL)
				c->jobs_end = &c->jobs;
			j->queued = false;
			job = *j; /* it may be posted again from now on */
		}
		pthread_mutex_unlock(&c->lock);
		if (j != NULL)
			job.fn(job.ctx);
	} while (j != NULL && ++done < JOBS_AT_ONCE);
}

static void reap(struct ku_client *c)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
		char *call = NULL;

		if (m->msg == CURLMSG_DONE &&
		    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &call) == CURLE_OK)
			ku_call_finished((void *)call, m->data.result);
	}
}

/* Milliseconds until there is something to do without anything happening. */
static int wait_ms(struct ku_client *c)
{
	struct ku_timer *t = earliest(c);
	long curl_ms = -1;
	int64_t ms = WAIT_MAX_MS;
	bool work;

	pthread_mutex_lock(&c->lock);
	work = c->incoming != NULL || c->jobs != NULL || c->stopping;
	pthread_mutex_unlock(&c->lock);
	if (work)
		return 0;
	if (t != NULL) {
		int64_t us = t->at_us - ku_now_us(c);

		ms = us <= 0 ? 0 : (us + 999) / 1000;
	}
	curl_multi_timeout(c->multi, &curl_ms);
	if (curl_ms >= 0 && curl_ms < ms)
		ms = curl_ms;
	return ms < WAIT_MAX_MS ? (int)ms : WAIT_MAX_MS;
}

static bool stopping(struct ku_client *c)
{
	bool s;

	pthread_mutex_lock(&c->lock);
	s = c->stopping;
	pthread_mutex_unlock(&c->lock);
	return s;
}

static void *run(void *ctx)
{
	struct ku_client *c = ctx;
	int running;

	current = c;
	while (!stopping(c)) {
		run_jobs(c);
		run_timers(c);
		take_incoming(c);
		curl_multi_perform(c->multi, &running);
		reap(c);
		curl_multi_poll(c->multi, NULL, 0, wait_ms(c), NULL);
	}
	take_incoming(c);
	run_jobs(c);
	while (c->calls != NULL)
		ku_call_end(c->calls, KU_REPLY_CANCELLED);
	return NULL;
}

static int start_thread(struct ku_client *c, struct err *err)
{
	sigset_t all, old;
	int e;

	/* Signals are for the program's own threads; SIGPIPE of a TLS write is not wanted at all. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(&c->thread, NULL, run, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e != 0)
		return err_set(err, ERR_IO, "API client: no thread: %s", strerror(e));
	pthread_setname_np(c->thread, "api-client");
	return 0;
}

static void fini(struct ku_client *c)
{
	for (unsigned i = 0; i < c->idle_count; i++)
		curl_easy_cleanup(c->idle[i]);
	if (c->multi != NULL)
		curl_multi_cleanup(c->multi);
	ku_token_fini(&c->token);
	ku_transport_fini(&c->transport);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static int init(struct ku_client *c, const struct ku_client_options *o, struct err *err)
{
	unsigned connections = o->connections != 0 ? o->connections : CONNECTIONS_DEFAULT;
	int64_t token_ms = o->token_ms != 0 ? o->token_ms : TOKEN_MS_DEFAULT;
	int r = ku_transport_init(&c->transport, o->config, o->user_agent, o->http1,
				  connections < 4 ? 4 : connections, err);

	if (r < 0)
		return r;
	c->widened = c->transport.http1;
	c->clock = o->clock != NULL ? *o->clock : ku_clock_real;
	c->log = o->log;
	c->token_us = token_ms * 1000;
	rng_init(&c->rng, o->seed);
	c->incoming_end = &c->incoming;
	c->jobs_end = &c->jobs;
	c->token.file = c->transport.config.token_file;
	c->files_read_us = ku_now_us(c);
	if (c->transport.config.token != NULL) {
		c->token.text = strdup(c->transport.config.token);
		if (c->token.text == NULL)
			return err_set(err, ERR_NOMEM, "no memory for the API client");
	}
	c->multi = ku_transport_multi(&c->transport);
	c->idle[0] = ku_transport_easy(&c->transport); /* shows that the options are good */
	c->idle_count = c->idle[0] != NULL;
	if (c->multi == NULL || c->idle_count == 0)
		return err_set(err, ERR_IO, "libcurl refuses the settings of the API client");
	return 0;
}

int ku_client_new(const struct ku_client_options *o, struct ku_client **ret, struct err *err)
{
	struct ku_client *c = calloc(1, sizeof(*c));
	int r;

	if (c == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the API client");
	pthread_mutex_init(&c->lock, NULL);
	r = init(c, o, err);
	if (r == 0)
		r = start_thread(c, err);
	if (r < 0) {
		fini(c);
		return r;
	}
	*ret = c;
	return 0;
}

void ku_client_free(struct ku_client *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	pthread_mutex_unlock(&c->lock);
	curl_multi_wakeup(c->multi);
	pthread_join(c->thread, NULL);
	fini(c);
}

/* ---- for all threads ---- */

static bool on_thread(const struct ku_client *c)
{
	return current == c;
}

void ku_client_wake(struct ku_client *c)
{
	curl_multi_wakeup(c->multi);
}

int ku_client_send(struct ku_client *c, const struct ku_request *r, struct err *err)
{
	struct ku_call *call;
	bool ended;
	int res = ku_call_make(c, r, &call, err);

	if (res < 0)
		return res;
	pthread_mutex_lock(&c->lock);
	ended = c->stopping;
	if (!ended) {
		*c->incoming_end = call;
		c->incoming_end = &call->next;
		c->stats.requests++;
		c->stats.in_flight++;
	}
	pthread_mutex_unlock(&c->lock);
	if (ended) {
		free(call);
		return err_set(err, ERR_CONFLICT, "the API client ends");
	}
	ku_client_wake(c);
	return 0;
}

void ku_client_post(struct ku_client *c, struct ku_job *j, void (*fn)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&c->lock);
	if (!j->queued) {
		*j = (struct ku_job){.queued = true, .fn = fn, .ctx = ctx};
		*c->jobs_end = j;
		c->jobs_end = &j->next;
	}
	pthread_mutex_unlock(&c->lock);
	ku_client_wake(c);
}

void ku_client_unpost(struct ku_client *c, struct ku_job *j)
{
	pthread_mutex_lock(&c->lock);
	if (j->queued) {
		struct ku_job **link = &c->jobs;

		while (*link != j)
			link = &(*link)->next;
		*link = j->next;
		if (c->jobs_end == &j->next)
			c->jobs_end = link;
		j->queued = false;
	}
	pthread_mutex_unlock(&c->lock);
}

/* Something that one thread waits for. */
struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	bool done;
};

#define WAITER_INIT                                                                                \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER, .done_cond = PTHREAD_COND_INITIALIZER           \
	}

static void waiter_tell(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->done_cond);
	pthread_mutex_unlock(&w->lock);
}

static void waiter_wait(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->done_cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	pthread_cond_destroy(&w->done_cond);
	pthread_mutex_destroy(&w->lock);
}

struct errand {
	struct waiter w;
	void (*fn)(void *ctx);
	void *ctx;
};

static void do_errand(void *ctx)
{
	struct errand *e = ctx;

	e->fn(e->ctx);
	waiter_tell(&e->w);
}

void ku_client_run(struct ku_client *c, void (*fn)(void *ctx), void *ctx)
{
	struct errand e = {.w = WAITER_INIT, .fn = fn, .ctx = ctx};
	struct ku_job job = {0};

	if (on_thread(c)) {
		fn(ctx);
		return;
	}
	ku_client_post(c, &job, do_errand, &e);
	waiter_wait(&e.w);
}

struct blocking {
	struct waiter w;
	struct ku_answer *answer;
	bool no_memory;
};

static void keep_answer(void *ctx, const struct ku_reply *reply)
{
	struct blocking *b = ctx;
	struct ku_answer *a = b->answer;

	*a = (struct ku_answer){.reply = *reply};
	a->body = malloc(reply->len + 1);
	a->text = strdup(reply->text);
	b->no_memory = a->body == NULL || a->text == NULL;
	if (a->body != NULL) {
		memcpy(a->body, reply->body, reply->len);
		a->body[reply->len] = '\0';
	}
	a->reply.body = a->body;
	a->reply.text = a->text;
	waiter_tell(&b->w);
}

int ku_client_call(struct ku_client *c, const struct ku_request *r, struct ku_answer *ret,
		   struct err *err)
{
	struct blocking b = {.w = WAITER_INIT, .answer = ret};
	struct ku_request copy = *r;
	int res;

	copy.on_data = NULL;
	copy.on_done = keep_answer;
	copy.ctx = &b;
	if (on_thread(c))
		return err_set(err, ERR_CONFLICT, "a callback waits for its own thread");
	res = ku_client_send(c, &copy, err);
	if (res < 0)
		return res;
	waiter_wait(&b.w);
	if (b.no_memory) {
		ku_answer_fini(ret);
		return err_set(err, ERR_NOMEM, "no memory for the answer");
	}
	return 0;
}

void ku_answer_fini(struct ku_answer *a)
{
	free(a->body);
	free(a->text);
	*a = (struct ku_answer){0};
}

void ku_client_get_stats(struct ku_client *c, struct ku_client_stats *ret)
{
	pthread_mutex_lock(&c->lock);
	*ret = c->stats;
	pthread_mutex_unlock(&c->lock);
}

const char *ku_client_namespace(const struct ku_client *c)
{
	return c->transport.config.ns;
}

const struct ku_clock *ku_client_clock(const struct ku_client *c)
{
	return &c->clock;
}

int ku_client_patch(struct ku_client *c, const char *path, const char *patch, int64_t deadline_ms,
		    ku_done_fn on_done, void *ctx, struct err *err)
{
	struct ku_request r = {
		.method = "PATCH",
		.path = path,
		.content_type = "application/merge-patch+json",
		.body = patch,
		.body_len = strlen(patch),
		.deadline_ms = deadline_ms,
		.on_done = on_done,
		.ctx = ctx,
	};

	return ku_client_send(c, &r, err);
}

/* What tests tell the fake API server, and what they ask it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/fake_api_internal.h"

#define WAIT_MS 30000

void *fake_must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

char *fake_dup(const char *s)
{
	return s != NULL ? fake_must(strdup(s)) : NULL;
}

void fake_deadline(struct timespec *t, int64_t ms)
{
	clock_gettime(CLOCK_REALTIME, t);
	t->tv_sec += ms / 1000;
	t->tv_nsec += ms % 1000 * 1000000;
	if (t->tv_nsec >= 1000000000) {
		t->tv_sec++;
		t->tv_nsec -= 1000000000;
	}
}

void fake_api_on(struct fake_api *f, const char *method, const char *path, const char *query,
		 int times, const struct fake_reply *r)
{
	struct rule *u = fake_must(calloc(1, sizeof(*u))), **end;

	u->method = fake_must(strdup(method));
	u->path = fake_must(strdup(path));
	u->query = fake_dup(query);
	u->times = times;
	u->r = *r;
	u->body = fake_dup(r->body);
	u->headers = fake_dup(r->headers);
	u->r.body = u->body;
	u->r.headers = u->headers;
	pthread_mutex_lock(&f->lock);
	for (end = &f->rules; *end != NULL; end = &(*end)->next)
		;
	*end = u;
	pthread_mutex_unlock(&f->lock);
}

void fake_api_answer(struct fake_api *f, const char *method, const char *path, int status,
		     const char *body)
{
	struct fake_reply r = {.status = status, .body = body};

	fake_api_on(f, method, path, NULL, 1, &r);
}

struct fake_stream *fake_api_watch(struct fake_api *f, const char *path)
{
	struct fake_stream *s = fake_must(calloc(1, sizeof(*s)));
	struct fake_reply r = {.status = 200, .stream = s};

	s->api = f;
	s->last = &s->first;
	pthread_mutex_lock(&f->lock);
	s->next = f->streams;
	f->streams = s;
	pthread_mutex_unlock(&f->lock);
	fake_api_on(f, "GET", path, "watch=1", 1, &r);
	return s;
}

void fake_api_handle(struct fake_api *f, fake_handler_fn fn, void *ctx)
{
	pthread_mutex_lock(&f->lock);
	f->handler = fn;
	f->handler_ctx = ctx;
	pthread_mutex_unlock(&f->lock);
}

void fake_stream_put(struct fake_stream *s, const char *text, size_t chunk)
{
	size_t len = strlen(text);

	pthread_mutex_lock(&s->api->lock);
	for (size_t at = 0; at < len;) {
		size_t n = chunk > 0 && chunk < len - at ? chunk : len - at;
		struct part *p = fake_must(calloc(1, sizeof(*p) + n));

		memcpy(p->data, text + at, n);
		p->len = n;
		*s->last = p;
		s->last = &p->next;
		at += n;
	}
	pthread_cond_broadcast(&s->api->changed);
	pthread_mutex_unlock(&s->api->lock);
}

void fake_stream_end(struct fake_stream *s, enum fake_end how)
{
	pthread_mutex_lock(&s->api->lock);
	s->ended = true;
	s->how = how;
	pthread_cond_broadcast(&s->api->changed);
	pthread_mutex_unlock(&s->api->lock);
}

static bool wanted(const struct fake_request *rq, const char *method, const char *path)
{
	return (method == NULL || strcmp(method, rq->method) == 0) &&
	       (path == NULL || strcmp(path, rq->path) == 0);
}

const struct fake_request *fake_api_wait(struct fake_api *f, const char *method, const char *path,
					 unsigned n)
{
	const struct fake_request *found = NULL;
	struct timespec until;
	int r = 0;

	fake_deadline(&until, WAIT_MS);
	pthread_mutex_lock(&f->lock);
	while (r != ETIMEDOUT) {
		unsigned count = 0;

		for (struct seen *s = f->seen; s != NULL && found == NULL; s = s->next) {
			if (wanted(&s->rq, method, path) && ++count == n)
				found = &s->rq;
		}
		if (found != NULL)
			break;
		r = pthread_cond_timedwait(&f->changed, &f->lock, &until);
	}
	pthread_mutex_unlock(&f->lock);
	return found;
}

unsigned fake_api_count(struct fake_api *f, const char *method, const char *path)
{
	unsigned count = 0;

	pthread_mutex_lock(&f->lock);
	for (struct seen *s = f->seen; s != NULL; s = s->next)
		count += wanted(&s->rq, method, path);
	pthread_mutex_unlock(&f->lock);
	return count;
}

unsigned fake_api_connections(struct fake_api *f)
{
	unsigned n;

	pthread_mutex_lock(&f->lock);
	n = f->connections;
	pthread_mutex_unlock(&f->lock);
	return n;
}

bool fake_query_has(const struct fake_request *rq, const char *member)
{
	size_t len = strlen(member);

	for (const char *p = rq->query; (p = strstr(p, member)) != NULL; p++) {
		if ((p == rq->query || p[-1] == '&') && (p[len] == '&' || p[len] == '\0'))
			return true;
	}
	return false;
}

#include "test/lib/kube_fixture.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kube/object.h"

#define WAIT_S 30

void kube_fixture_init(struct kube_fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->api = fake_api_start(NULL);
	f->config.server = strdup(fake_api_url(f->api));
	f->config.ns = strdup("tessera-system");
	f->options.config = &f->config;
	f->options.seed = 1;
}

void kube_fixture_start(struct kube_fixture *f)
{
	struct ku_clock clock = fake_clock_init(&f->clock);
	struct err err = ERR_INIT;

	if (f->virtual_time)
		f->options.clock = &clock;
	if (ku_client_new(&f->options, &f->client, &err) < 0) {
		fprintf(stderr, "no client: %s\n", err.msg);
		abort();
	}
}

void kube_fixture_fini(struct kube_fixture *f)
{
	ku_client_free(f->client);
	fake_api_stop(f->api);
	ku_config_fini(&f->config);
}

static bool idle(const struct kube_fixture *f)
{
	struct ku_client_stats s;

	ku_client_get_stats(f->client, &s);
	return s.in_flight == 0;
}

bool kube_fixture_run(struct kube_fixture *f, int64_t step_ms, bool (*done)(void *ctx), void *ctx)
{
	/* A step each millisecond: the pause lets what is due happen, it proves nothing by itself. */
	for (int i = 0; i < WAIT_S * 1000; i++) {
		struct timespec pause = {.tv_nsec = 1000000};

		if (done(ctx))
			return true;
		if (!f->patient || idle(f))
			fake_clock_add(&f->clock, step_ms, f->client);
		nanosleep(&pause, NULL);
	}
	return done(ctx);
}

void journal_init(struct journal *j)
{
	memset(j, 0, sizeof(*j));
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->changed, NULL);
}

void journal_fini(struct journal *j)
{
	buf_fini(&j->text);
	pthread_cond_destroy(&j->changed);
	pthread_mutex_destroy(&j->lock);
}

void journal_add(struct journal *j, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&j->lock);
	buf_puts(&j->text, line);
	buf_putc(&j->text, '\n');
	pthread_cond_broadcast(&j->changed);
	pthread_mutex_unlock(&j->lock);
}

static bool holds(struct journal *j, const char *text)
{
	const char *all = buf_str(&j->text);

	return all != NULL && strstr(all, text) != NULL;
}

bool journal_wait(struct journal *j, const char *text)
{
	struct timespec until;
	bool found;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&j->lock);
	while (!(found = holds(j, text)) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&j->changed, &j->lock, &until);
	if (!found)
		fprintf(stderr, "journal without \"%s\":\n%s\n", text, buf_str(&j->text));
	pthread_mutex_unlock(&j->lock);
	return found;
}

bool journal_has(struct journal *j, const char *text)
{
	bool found;

	pthread_mutex_lock(&j->lock);
	found = holds(j, text);
	pthread_mutex_unlock(&j->lock);
	return found;
}

unsigned journal_count(struct journal *j, const char *text)
{
	unsigned n = 0;

	pthread_mutex_lock(&j->lock);
	for (const char *p = buf_str(&j->text); p != NULL && (p = strstr(p, text)) != NULL;
	     p += strlen(text))
		n++;
	pthread_mutex_unlock(&j->lock);
	return n;
}

char *journal_text(struct journal *j)
{
	const char *all;
	char *copy;

	pthread_mutex_lock(&j->lock);
	all = buf_str(&j->text);
	copy = strdup(all != NULL ? all : "");
	pthread_mutex_unlock(&j->lock);
	return copy;
}

/* ---- reflectors ---- */

const char *kube_meta(const cJSON *obj, const char *name)
{
	const cJSON *v = ku_json_get(ku_json_get(obj, "metadata"), name);

	return cJSON_IsString(v) ? v->valuestring : "-";
}

static void on_begin(void *ctx)
{
	journal_add(ctx, "begin");
}

static int on_object(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	static const char *const names[] = {"ADDED", "MODIFIED", "DELETED"};
	struct journal *j = ctx;

	if (atomic_load(&j->refuse) > 0) {
		atomic_fetch_sub(&j->refuse, 1);
		return err_set(err, ERR_NOMEM, "refused");
	}
	journal_add(j, "%s %s %s", names[change], kube_meta(obj, "uid"),
		    kube_meta(obj, "resourceVersion"));
	return 0;
}

static void on_gone(void *ctx, const char *uid)
{
	journal_add(ctx, "gone %s", uid);
}

static void on_synced(void *ctx, const char *rv)
{
	journal_add(ctx, "synced %s", rv);
}

static void on_problem(void *ctx, const struct err *what)
{
	journal_add(ctx, "problem %s", what->msg);
}

/* A watch without a rule of its own: open, and nothing happens. */
void kube_quiet_watch(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)ctx;
	if (fake_query_has(rq, "watch=1"))
		*ret = (struct fake_reply){
			.status = 200, .body = "", .chunk = 1, .end = FAKE_END_SILENT};
}

struct ku_reflector_handler kube_journal_handler(struct journal *j)
{
	return (struct ku_reflector_handler){.on_sync_begin = on_begin,
					     .on_object = on_object,
					     .on_gone = on_gone,
					     .on_synced = on_synced,
					     .on_problem = on_problem,
					     .ctx = j};
}

/* A list of the uids in words ("a b c"), each at the list's version. */
const char *kube_list_text(const char *rv, const char *more, const char *uids)
{
	static char text[4096];
	char copy[1024], *rest = copy, *uid;
	int n = snprintf(
		text, sizeof(text),
		"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"%s\"%s%s%s},\"items\":[",
		rv, more != NULL ? ",\"continue\":\"" : "", more != NULL ? more : "",
		more != NULL ? "\"" : "");
	const char *comma = "";

	snprintf(copy, sizeof(copy), "%s", uids);
	while ((uid = strsep(&rest, " ")) != NULL) {
		if (*uid == '\0')
			continue;
		n += snprintf(
			text + n, sizeof(text) - (size_t)n,
			"%s{\"metadata\":{\"uid\":\"%s\",\"name\":\"p\",\"resourceVersion\":\"%s\"}}",
			comma, uid, rv);
		comma = ",";
	}
	snprintf(text + n, sizeof(text) - (size_t)n, "]}");
	return text;
}

const char *kube_event_text(const char *type, const char *uid, const char *rv)
{
	static char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"%s\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"uid\":\"%s\","
		 "\"resourceVersion\":\"%s\"}}}\n",
		 type, uid, rv);
	return text;
}

/* Carries out what lease_core.c asks for. */
#include "kube/lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "kube/client_internal.h"
#include "kube/client_path.h"
#include "kube/lease_core.h"
#include "kube/object.h"

struct ku_lease {
	struct ku_client *client;
	struct ku_lease_options o;
	char *ns, *name;

	/* of the client's thread */
	struct ku_lease_core core;
	struct ku_timer timer;
	struct ku_call *call;
	cJSON *obj;      /* as the server had it last; NULL: none */
	int64_t sent_us; /* of the request in flight */
	bool updates;    /* it is no GET */
	bool stopped;
	uint64_t terms;
	bool told; /* on_started without its on_stopped */

	pthread_mutex_t lock; /* of the rest */
	int64_t until_us;     /* 0: not leading */
	uint64_t term;
	char holder[KU_LEASE_NAME_CAP];
};

static void act(struct ku_lease *l);

/* ---- the object ---- */

static void copy_text(const cJSON *spec, const char *name, char *ret, size_t cap)
{
	const cJSON *v = ku_json_get(spec, name);

	snprintf(ret, cap, "%s", cJSON_IsString(v) ? v->valuestring : "");
}

static int64_t whole(const cJSON *spec, const char *name)
{
	const cJSON *v = ku_json_get(spec, name);

	return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 1e9
		       ? (int64_t)v->valuedouble
		       : 0;
}

/* Takes the object of an answer over. False: it is no Lease. */
static bool take_object(struct ku_lease *l, const struct ku_reply *reply,
			struct ku_lease_record *ret)
{
	const cJSON *spec;
	cJSON *obj;

	if (ku_json_parse_stored(reply->body, reply->len, &obj, NULL) < 0)
		return false;
	if (!cJSON_IsString(ku_json_get(ku_json_get(obj, "metadata"), "resourceVersion"))) {
		cJSON_Delete(obj);
		return false;
	}
	spec = ku_json_get(obj, "spec");
	*ret = (struct ku_lease_record){0};
	copy_text(spec, "holderIdentity", ret->holder, sizeof(ret->holder));
	copy_text(spec, "acquireTime", ret->acquired, sizeof(ret->acquired));
	copy_text(spec, "renewTime", ret->renewed, sizeof(ret->renewed));
	ret->duration_us = whole(spec, "leaseDurationSeconds") * 1000000;
	ret->transitions = whole(spec, "leaseTransitions");
	cJSON_Delete(l->obj);
	l->obj = obj;
	return true;
}

static void format_time(int64_t wall_us, char buf[40])
{
	time_t s = (time_t)(wall_us / 1000000);
	struct tm tm;
	size_t len;

	gmtime_r(&s, &tm);
	len = strftime(buf, 40, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + len, 40 - len, ".%06dZ", (int)(wall_us % 1000000));
}

/* Puts a member in the place of the old one. Takes value, which may be NULL: no memory. */
static bool set(cJSON *obj, const char *name, cJSON *take_value)
{
	if (take_value == NULL)
		return false;
	cJSON_DeleteItemFromObjectCaseSensitive(obj, name);
	if (cJSON_AddItemToObject(obj, name, take_value))
		return true;
	cJSON_Delete(take_value);
	return false;
}

static bool set_spec(struct ku_lease *l, cJSON *obj, const struct ku_lease_record *rec,
		     bool acquire)
{
	int64_t wall = l->client->clock.wall_us(l->client->clock.ctx);
	int64_t duration_s = (rec->duration_us + 999999) / 1000000;
	cJSON *spec = cJSON_GetObjectItemCaseSensitive(obj, "spec");
	char now[40];

	if (!cJSON_IsObject(spec)) {
		spec = cJSON_CreateObject();
		if (!set(obj, "spec", spec))
			return false;
	}
	format_time(wall, now);
	return set(spec, "holderIdentity", cJSON_CreateString(rec->holder)) &&
	       set(spec, "leaseDurationSeconds", cJSON_CreateNumber((double)duration_s)) &&
	       set(spec, "leaseTransitions", cJSON_CreateNumber((double)rec->transitions)) &&
	       set(spec, "renewTime", cJSON_CreateString(now)) &&
	       (!acquire || set(spec, "acquireTime", cJSON_CreateString(now)));
}

/* A new Lease, for CREATE. */
static cJSON *new_object(const struct ku_lease *l)
{
	cJSON *obj = cJSON_CreateObject(), *meta;

	if (obj != NULL && cJSON_AddStringToObject(obj, "apiVersion", "coordination.k8s.io/v1") &&
	    cJSON_AddStringToObject(obj, "kind", "Lease") &&
	    (meta = cJSON_AddObjectToObject(obj, "metadata")) != NULL &&
	    cJSON_AddStringToObject(meta, "name", l->name) &&
	    cJSON_AddStringToObject(meta, "namespace", l->ns))
		return obj;
	cJSON_Delete(obj);
	return NULL;
}

/* What is written now: everything the server has, with our spec. NULL: no memory. */
static char *make_body(struct ku_lease *l, bool create, const struct ku_lease_record *rec,
		       bool acquire)
{
	cJSON *obj = create ? new_object(l) : cJSON_Duplicate(l->obj, true);
	char *text = NULL;

	if (obj != NULL && set_spec(l, obj, rec, acquire))
		text = cJSON_PrintUnformatted(obj);
	cJSON_Delete(obj);
	return text;
}

/* ---- what others see ---- */

static void publish(struct ku_lease *l)
{
	bool lead = l->core.leading && !l->stopped;
	bool start = lead && !l->told, stop = !lead && l->told;
	uint64_t term;

	l->terms += start;
	term = l->terms;
	pthread_mutex_lock(&l->lock);
	l->until_us = lead ? l->core.until_us : 0;
	l->term = lead ? term : 0;
	memcpy(l->holder, l->core.seen && !l->core.absent ? l->core.record.holder : "",
	       l->core.seen && !l->core.absent ? sizeof(l->holder) : 1);
	pthread_mutex_unlock(&l->lock);
	l->told = lead;
	if (start || stop)
		log_event(l->o.log, LOG_LEVEL_INFO, start ? "lease_started" : "lease_stopped",
			  "lease=%s/%s identity=%s term=%llu", l->ns, l->name, l->core.identity,
			  (unsigned long long)term);
	if (start && l->o.on_started != NULL)
		l->o.on_started(l->o.ctx, term);
	if (stop && l->o.on_stopped != NULL)
		l->o.on_stopped(l->o.ctx, term);
}

int64_t ku_lease_left_ms(struct ku_lease *l)
{
	int64_t until;

	pthread_mutex_lock(&l->lock);
	until = l->until_us;
	pthread_mutex_unlock(&l->lock);
	if (until == 0)
		return 0;
	until -= ku_now_us(l->client);
	return until > 0 ? until / 1000 : 0;
}

uint64_t ku_lease_term(struct ku_lease *l)
{
	uint64_t term;

	pthread_mutex_lock(&l->lock);
	term = l->term;
	pthread_mutex_unlock(&l->lock);
	return ku_lease_left_ms(l) > 0 ? term : 0;
}

void ku_lease_holder(struct ku_lease *l, char *buf, size_t cap)
{
	pthread_mutex_lock(&l->lock);
	snprintf(buf, cap, "%s", l->holder);
	pthread_mutex_unlock(&l->lock);
}

/* ---- requests ---- */

static enum ku_lease_came came(const struct ku_reply *reply)
{
	if (reply->kind != KU_REPLY_HTTP)
		return KU_LEASE_FAILED;
	if (reply->status == 200 || reply->status == 201)
		return KU_LEASE_DONE;
	return reply->status == 404   ? KU_LEASE_ABSENT
	       : reply->status == 409 ? KU_LEASE_CONFLICT
				      : KU_LEASE_FAILED;
}

static void note_failure(struct ku_lease *l, const struct ku_reply *reply)
{
	char quoted[1300];

	log_event(l->o.log, LOG_LEVEL_WARN, "lease_failed", "lease=%s/%s error=%s", l->ns, l->name,
		  log_quote(reply->text, quoted, sizeof(quoted)));
}

static void answered(struct ku_lease *l, enum ku_lease_came how, const struct ku_lease_record *rec)
{
	int64_t now = ku_now_us(l->client);

	if (l->updates)
		ku_lease_core_put(&l->core, l->sent_us, now, how, rec);
	else
		ku_lease_core_got(&l->core, now, how, rec);
}

static void on_done(void *ctx, const struct ku_reply *reply)
{
	struct ku_lease *l = ctx;
	enum ku_lease_came how = came(reply);
	struct ku_lease_record rec;

	l->call = NULL;
	if (reply->kind == KU_REPLY_CANCELLED)
		return;
	if (how == KU_LEASE_DONE && !take_object(l, reply, &rec))
		how = KU_LEASE_FAILED;
	if (how == KU_LEASE_FAILED)
		note_failure(l, reply);
	answered(l, how, &rec);
	act(l);
}

static bool put_path(const struct ku_lease *l, bool collection, struct buf *path)
{
	buf_puts(path, "/apis/coordination.k8s.io/v1/namespaces");
	ku_path_put(path, l->ns);
	buf_puts(path, "/leases");
	if (!collection)
		ku_path_put(path, l->name);
	return buf_str(path) != NULL;
}

static int start_call(struct ku_lease *l, enum ku_lease_ask ask, struct err *err)
{
	struct ku_request rq = {
		.deadline_ms = l->core.renew_us / 2000,
		.on_done = on_done,
		.ctx = l,
	};
	struct ku_lease_record rec;
	struct buf path = BUF_INIT;
	bool acquire;
	char *body = NULL;
	int r = ERR_NOMEM;

	l->updates = ask != KU_LEASE_GET;
	if (l->updates) {
		ku_lease_core_fill(&l->core, &rec, &acquire);
		body = make_body(l, ask == KU_LEASE_CREATE, &rec, acquire);
		rq.method = ask == KU_LEASE_CREATE ? "POST" : "PUT";
		rq.body = body;
		rq.body_len = body != NULL ? strlen(body) : 0;
	}
	l->sent_us = ku_now_us(l->client);
	if (put_path(l, ask == KU_LEASE_CREATE, &path) && (body != NULL || !l->updates)) {
		rq.path = buf_str(&path);
		r = ku_call_new(l->client, &rq, &l->call, err);
	}
	buf_fini(&path);
	cJSON_free(body);
	return r;
}

static void on_timer(void *ctx)
{
	act(ctx);
}

/* Does what is due, tells what changed, and sets the timer for what is next. */
static void act(struct ku_lease *l)
{
	struct ku_client *c = l->client;
	enum ku_lease_ask ask = KU_LEASE_WAIT;
	struct err err = ERR_INIT;

	if (!l->stopped)
		ask = ku_lease_core_step(&l->core, ku_now_us(c), &c->rng);
	publish(l);
	if (l->stopped)
		return;
	if (ask != KU_LEASE_WAIT && start_call(l, ask, &err) < 0)
		answered(l, KU_LEASE_FAILED, NULL);
	ku_timer_set(c, &l->timer, ku_lease_core_wake_us(&l->core), on_timer, l);
}

/* ---- life ---- */

static int check(const struct ku_lease *l, struct err *err)
{
	const struct ku_lease_options *o = &l->o;

	if (!ku_path_legal(l->ns) || !ku_path_legal(l->name))
		return err_set(err, ERR_INVALID, "lease: \"%.200s/%.200s\" is no legal name", l->ns,
			       l->name);
	if (o->identity == NULL || *o->identity == '\0' || strlen(o->identity) >= KU_LEASE_NAME_CAP)
		return err_set(err, ERR_INVALID, "lease: identity has 1 to %d bytes",
			       KU_LEASE_NAME_CAP - 1);
	if (o->retry_ms <= 0 || o->retry_ms + o->retry_ms / 5 >= o->renew_ms ||
	    o->renew_ms >= o->duration_ms)
		return err_set(
			err, ERR_INVALID,
			"lease: retry %lld ms, renew %lld ms, duration %lld ms: each must be "
			"less than the next, retry by a fifth",
			(long long)o->retry_ms, (long long)o->renew_ms, (long long)o->duration_ms);
	return 0;
}

static int init(struct ku_lease *l, const struct ku_lease_options *o, struct err *err)
{
	int r;

	l->o = *o;
	l->o.duration_ms = o->duration_ms != 0 ? o->duration_ms : 15000;
	l->o.renew_ms = o->renew_ms != 0 ? o->renew_ms : 10000;
	l->o.retry_ms = o->retry_ms != 0 ? o->retry_ms : 2000;
	l->ns = strdup(o->ns != NULL ? o->ns : ku_client_namespace(l->client));
	l->name = strdup(o->name);
	if (l->ns == NULL || l->name == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a lease");
	r = check(l, err);
	if (r < 0)
		return r;
	snprintf(l->core.identity, sizeof(l->core.identity), "%s", o->identity);
	l->core.duration_us = l->o.duration_ms * 1000;
	l->core.renew_us = l->o.renew_ms * 1000;
	l->core.retry_us = l->o.retry_ms * 1000;
	return 0;
}

static void fini(struct ku_lease *l)
{
	cJSON_Delete(l->obj);
	free(l->ns);
	free(l->name);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void begin(void *ctx)
{
	struct ku_lease *l = ctx;

	l->core.next_us = ku_now_us(l->client);
	act(l);
}

int ku_lease_new(struct ku_client *c, const struct ku_lease_options *o, struct ku_lease **ret,
		 struct err *err)
{
	struct ku_lease *l = calloc(1, sizeof(*l));
	int r;

	if (l == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a lease");
	l->client = c;
	pthread_mutex_init(&l->lock, NULL);
	r = init(l, o, err);
	if (r < 0) {
		fini(l);
		return r;
	}
	*ret = l;
	ku_client_run(c, begin, l);
	return 0;
}

static void end(void *ctx)
{
	struct ku_lease *l = ctx;

	l->stopped = true;
	ku_timer_clear(l->client, &l->timer);
	if (l->call != NULL) {
		ku_call_drop(l->call, false);
		l->core.fresh = false; /* an update may still arrive */
	}
	l->call = NULL;
	publish(l);
}

void ku_lease_stop(struct ku_lease *l)
{
	ku_client_run(l->client, end, l);
}

void ku_lease_free(struct ku_lease *l)
{
	if (l == NULL)
		return;
	ku_lease_stop(l);
	fini(l);
}

/* One GET or PUT of the release; the answer's object is taken over. */
static int release_call(struct ku_lease *l, const char *body, int64_t deadline_ms,
			struct ku_lease_record *ret, struct err *err)
{
	struct ku_request rq = {.method = body != NULL ? "PUT" : "GET",
				.body = body,
				.body_len = body != NULL ? strlen(body) : 0,
				.deadline_ms = deadline_ms};
	struct ku_answer a = {0};
	struct buf path = BUF_INIT;
	int r = ERR_NOMEM;

	if (put_path(l, false, &path)) {
		rq.path = buf_str(&path);
		r = ku_client_call(l->client, &rq, &a, err);
	}
	buf_fini(&path);
	if (r < 0)
		return r;
	*ret = (struct ku_lease_record){0};
	if (came(&a.reply) == KU_LEASE_ABSENT)
		r = 0;
	else if (came(&a.reply) != KU_LEASE_DONE || !take_object(l, &a.reply, ret))
		r = err_set(err, ERR_IO, "lease %s/%s: %s", l->ns, l->name, a.reply.text);
	ku_answer_fini(&a);
	return r;
}

int ku_lease_release(struct ku_lease *l, int64_t deadline_ms, struct err *err)
{
	struct ku_lease_record rec;
	char *body;
	int r;

	if (l->terms == 0)
		return 0;
	r = release_call(l, NULL, deadline_ms, &rec, err);
	if (r < 0 || strcmp(rec.holder, l->core.identity) != 0)
		return r;
	rec.holder[0] = '\0';
	rec.duration_us = 1000000;
	body = make_body(l, false, &rec, false);
	if (body == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a lease");
	r = release_call(l, body, deadline_ms, &rec, err);
	cJSON_free(body);
	return r;
}

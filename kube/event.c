#include "kube/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/hash.h"
#include "kube/client_internal.h"
#include "kube/client_path.h"

#define WINDOW_US INT64_C(600000000)
#define MESSAGE_CAP 1025
#define DEADLINE_MS 10000

/* What waits to be sent, of one reason. */
struct lane {
	UT_hash_handle hh;
	struct lane *next; /* of those in which something waits */
	char *reason;
	struct entry *first, **end;
	unsigned waiting;
};

/* One Event object, and what is known of it. */
struct entry {
	UT_hash_handle hh;
	struct entry *next; /* in its lane */
	struct lane *lane;
	struct ku_events *events;
	struct ku_call *call; /* in flight; of the client's thread */
	char *key;            /* type, kind, uid, reason, ns, name: parts of one block, see parts */
	const char *kind, *uid, *reason, *ns, *name;
	enum ku_event_type type;
	char event_name[272];
	char message[MESSAGE_CAP];
	uint64_t count, sent_count;
	int64_t first_wall_us, last_wall_us;
	int64_t last_us; /* monotonic */
	bool created, queued;
};

struct ku_events {
	struct ku_client *client;
	char *component, *instance;
	unsigned per_second, objects_max;
	struct ku_job job;
	struct ku_timer timer; /* client's thread */

	pthread_mutex_t lock; /* of the rest */
	struct entry *entries;
	struct lane *lanes;
	struct lane *turn, **turn_end; /* in which something waits: one of each, in turn */
	int64_t tokens_us, filled_us;  /* bucket: time that is paid for */
	uint64_t serial;
	struct ku_events_stats stats;
};

static void pump(void *ctx);

/* ---- entries; under the lock ---- */

static char *join_key(const struct ku_event *ev)
{
	char *key;

	if (asprintf(&key, "%d\n%s\n%s\n%s\n%s\n%s", (int)ev->type, ev->kind, ev->uid, ev->reason,
		     ev->ns != NULL ? ev->ns : "", ev->name) < 0)
		return NULL;
	return key;
}

static void drop_entry(struct ku_events *e, struct entry *n)
{
	HASH_DEL(e->entries, n); /* NOLINT(clang-analyzer-unix.Malloc): uthash's links are right */
	free(n->key);
	free(n);
}

static struct lane *get_lane(struct ku_events *e, const char *reason)
{
	struct lane *l;

	HASH_FIND_STR(e->lanes, reason, l);
	if (l != NULL)
		return l;
	l = calloc(1, sizeof(*l));
	if (l == NULL || (l->reason = strdup(reason)) == NULL) {
		free(l);
		return NULL;
	}
	l->end = &l->first;
	HASH_ADD_KEYPTR(hh, e->lanes, l->reason, strlen(l->reason), l);
	if (HASH_ADDED(l, hh))
		return l;
	free(l->reason);
	free(l);
	return NULL;
}

static struct entry *lane_pop(struct lane *l)
{
	struct entry *n = l->first;

	l->first = n->next;
	if (l->first == NULL)
		l->end = &l->first;
	l->waiting--;
	n->queued = false;
	return n;
}

/* Room for one more of that lane: of what is sent already the oldest is forgotten, or one goes that waits in
 * the longest lane. false: that would be this one. */
static bool make_room(struct ku_events *e, const struct lane *mine)
{
	struct lane *longest = NULL;
	struct entry *n;

	for (n = e->entries; n != NULL; n = n->hh.next) {
		if (!n->queued && n->call == NULL) {
			drop_entry(e, n);
			return true;
		}
	}
	for (struct lane *l = e->lanes; l != NULL; l = l->hh.next) {
		if (longest == NULL || l->waiting > longest->waiting)
			longest = l;
	}
	if (longest == NULL || longest->waiting <= mine->waiting + 1)
		return false;
	n = lane_pop(longest);
	e->stats.dropped += n->count - n->sent_count;
	drop_entry(e, n);
	return true;
}

/* The key is kept whole for look-ups; a copy behind it is cut into its parts. */
static struct entry *new_entry(struct ku_events *e, const struct ku_event *ev, const char *key,
			       struct lane *lane)
{
	struct entry *n = calloc(1, sizeof(*n));
	size_t len = strlen(key);
	const char **part[] = {NULL, &n->kind, &n->uid, &n->reason, &n->ns, &n->name};
	char *rest;

	if (n == NULL)
		return NULL;
	n->key = malloc(2 * (len + 1));
	if (n->key == NULL) {
		free(n);
		return NULL;
	}
	memcpy(n->key, key, len + 1);
	rest = memcpy(n->key + len + 1, key, len + 1);
	for (size_t i = 0; i < 6; i++) {
		const char *one = strsep(&rest, "\n");

		if (part[i] != NULL)
			*part[i] = one != NULL ? one : "";
	}
	n->events = e;
	n->lane = lane;
	n->type = ev->type;
	HASH_ADD_KEYPTR(hh, e->entries, n->key, len, n);
	if (!HASH_ADDED(n, hh)) {
		free(n->key);
		free(n);
		return NULL;
	}
	return n;
}

static struct entry *find_entry(struct ku_events *e, const struct ku_event *ev)
{
	char *key = join_key(ev);
	struct entry *n = NULL;
	struct lane *lane;

	if (key == NULL)
		return NULL;
	HASH_FIND_STR(e->entries, key, n);
	if (n == NULL && (lane = get_lane(e, ev->reason)) != NULL &&
	    (HASH_COUNT(e->entries) < e->objects_max || make_room(e, lane)))
		n = new_entry(e, ev, key, lane);
	free(key);
	return n;
}

/* A lane gets its turn behind the others. */
static void line_up(struct ku_events *e, struct lane *l)
{
	l->next = NULL;
	*e->turn_end = l;
	e->turn_end = &l->next;
}

static void enqueue(struct ku_events *e, struct entry *n)
{
	struct lane *l = n->lane;

	if (n->queued || n->call != NULL)
		return;
	n->queued = true;
	n->next = NULL;
	*l->end = n;
	l->end = &n->next;
	if (l->waiting++ == 0)
		line_up(e, l);
}

/* The next one to be sent, of the lane whose turn it is. */
static struct entry *dequeue(struct ku_events *e)
{
	struct lane *l = e->turn;
	struct entry *n = lane_pop(l);

	e->turn = l->next;
	if (e->turn == NULL)
		e->turn_end = &e->turn;
	if (l->waiting > 0)
		line_up(e, l);
	return n;
}

static void add_one(struct ku_events *e, struct entry *n, const char *message, int64_t now_us)
{
	int64_t wall = e->client->clock.wall_us(e->client->clock.ctx);

	if (n->count == 0 || (now_us - n->last_us > WINDOW_US && n->call == NULL)) {
		n->created = false; /* the next one is a new Event */
		n->count = n->sent_count = 0;
		n->first_wall_us = wall;
		snprintf(n->event_name, sizeof(n->event_name), "%.220s.%llx%llx", n->name,
			 (unsigned long long)wall, (unsigned long long)++e->serial);
	}
	n->count++;
	n->last_us = now_us;
	n->last_wall_us = wall;
	snprintf(n->message, sizeof(n->message), "%s", message);
}

void ku_event_post(struct ku_events *e, const struct ku_event *ev)
{
	int64_t now = ku_now_us(e->client);
	struct entry *n;

	pthread_mutex_lock(&e->lock);
	e->stats.posted++;
	n = find_entry(e, ev);
	if (n != NULL) {
		add_one(e, n, ev->message, now);
		enqueue(e, n);
	} else {
		e->stats.dropped++;
	}
	pthread_mutex_unlock(&e->lock);
	if (n != NULL)
		ku_client_post(e->client, &e->job, pump, e);
}

/* ---- objects ---- */

static bool add_time(cJSON *obj, const char *name, int64_t wall_us)
{
	time_t s = (time_t)(wall_us / 1000000);
	struct tm tm;
	char text[40];

	gmtime_r(&s, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return cJSON_AddStringToObject(obj, name, text) != NULL;
}

/* What a repetition changes. */
static bool add_changing(cJSON *root, const struct entry *n)
{
	return add_time(root, "lastTimestamp", n->last_wall_us) &&
	       cJSON_AddNumberToObject(root, "count", (double)n->count) != NULL &&
	       cJSON_AddStringToObject(root, "message", n->message) != NULL;
}

static const char *namespace_of(const struct entry *n)
{
	return n->ns[0] != '\0' ? n->ns : "default";
}

static bool add_str(cJSON *obj, const char *name, const char *value)
{
	return cJSON_AddStringToObject(obj, name, value) != NULL;
}

static bool add_fixed(cJSON *root, const struct entry *n)
{
	const struct ku_events *e = n->events;
	cJSON *meta = cJSON_AddObjectToObject(root, "metadata");
	cJSON *about = cJSON_AddObjectToObject(root, "involvedObject");
	cJSON *source = cJSON_AddObjectToObject(root, "source");

	return meta != NULL && about != NULL && source != NULL &&
	       add_str(root, "apiVersion", "v1") && add_str(root, "kind", "Event") &&
	       add_str(meta, "name", n->event_name) &&
	       add_str(meta, "namespace", namespace_of(n)) && add_str(about, "apiVersion", "v1") &&
	       add_str(about, "kind", n->kind) && add_str(about, "name", n->name) &&
	       add_str(about, "uid", n->uid) &&
	       (n->ns[0] == '\0' || add_str(about, "namespace", n->ns)) &&
	       add_str(root, "reason", n->reason) &&
	       add_str(root, "type", n->type == KU_EVENT_WARNING ? "Warning" : "Normal") &&
	       add_time(root, "firstTimestamp", n->first_wall_us) &&
	       add_str(source, "component", e->component) &&
	       add_str(root, "reportingComponent", e->component) &&
	       add_str(root, "reportingInstance", e->instance);
}

/* The Event, or its patch; NULL: no memory. */
static char *make_body(const struct entry *n)
{
	cJSON *root = cJSON_CreateObject();
	char *text = NULL;

	if (root != NULL && (n->created || add_fixed(root, n)) && add_changing(root, n))
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	return text;
}

/* ---- sending; client's thread ---- */

static void on_done(void *ctx, const struct ku_reply *reply)
{
	struct entry *n = ctx;
	struct ku_events *e = n->events;
	bool http = reply->kind == KU_REPLY_HTTP;
	bool more;

	pthread_mutex_lock(&e->lock);
	n->call = NULL;
	/* 409: it exists, from a POST whose answer was lost. */
	if (http && (reply->status == 200 || reply->status == 201 ||
		     (reply->status == 409 && !n->created))) {
		n->created = true;
		e->stats.sent++;
	} else {
		/* 404: it was deleted meanwhile (events live an hour); the next one makes it anew. */
		n->created = n->created && !(http && reply->status == 404);
		e->stats.failed++;
	}
	more = reply->kind != KU_REPLY_CANCELLED && n->count > n->sent_count;
	if (more)
		enqueue(e, n);
	pthread_mutex_unlock(&e->lock);
	if (more)
		pump(e);
}

static int start_call(struct ku_events *e, struct entry *n, struct err *err)
{
	struct ku_request rq = {
		.method = n->created ? "PATCH" : "POST",
		.content_type = n->created ? "application/merge-patch+json" : NULL,
		.deadline_ms = DEADLINE_MS,
		.on_done = on_done,
		.ctx = n,
	};
	struct buf path = BUF_INIT;
	char *body = make_body(n);
	int r = ERR_NOMEM;

	buf_puts(&path, "/api/v1/namespaces");
	ku_path_put(&path, namespace_of(n));
	buf_puts(&path, "/events");
	if (n->created)
		ku_path_put(&path, n->event_name);
	rq.path = buf_str(&path);
	rq.body = body;
	rq.body_len = body != NULL ? strlen(body) : 0;
	n->sent_count = n->count;
	if (rq.path != NULL && body != NULL)
		r = ku_call_new(e->client, &rq, &n->call, err);
	buf_fini(&path);
	cJSON_free(body);
	return r;
}

/* The bucket holds time: each request costs 1/per_second, at most five seconds are saved up. */
static bool take_token(struct ku_events *e, int64_t now_us, int64_t *ret_wait_us)
{
	int64_t cost = 1000000 / e->per_second, cap = 5000000;

	e->tokens_us += now_us - e->filled_us;
	e->filled_us = now_us;
	if (e->tokens_us > cap)
		e->tokens_us = cap;
	*ret_wait_us = cost - e->tokens_us;
	if (e->tokens_us < cost)
		return false;
	e->tokens_us -= cost;
	return true;
}

static void pump(void *ctx)
{
	struct ku_events *e = ctx;
	int64_t now = ku_now_us(e->client), wait_us = 0;
	struct err err = ERR_INIT;

	pthread_mutex_lock(&e->lock);
	while (e->turn != NULL && take_token(e, now, &wait_us)) {
		if (start_call(e, dequeue(e), &err) < 0)
			e->stats.dropped++;
	}
	if (e->turn != NULL)
		ku_timer_set(e->client, &e->timer, now + wait_us, pump, e);
	pthread_mutex_unlock(&e->lock);
}

/* ---- life ---- */

static void fini(struct ku_events *e)
{
	struct entry *n, *next;
	struct lane *l, *other;

	HASH_ITER(hh, e->entries, n, next)
		drop_entry(e, n);
	HASH_ITER(hh, e->lanes, l, other) {
		HASH_DEL(e->lanes, l); /* NOLINT(clang-analyzer-unix.Malloc): as above */
		free(l->reason);
		free(l);
	}
	free(e->component);
	free(e->instance);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

int ku_events_new(struct ku_client *c, const struct ku_events_options *o, struct ku_events **ret,
		  struct err *err)
{
	struct ku_events *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return err_set(err, ERR_NOMEM, "no memory for events");
	e->client = c;
	e->per_second = o->per_second != 0 ? o->per_second : 10;
	e->objects_max = o->objects_max != 0 ? o->objects_max : 1024;
	e->turn_end = &e->turn;
	e->tokens_us = 5000000;
	e->filled_us = ku_now_us(c);
	pthread_mutex_init(&e->lock, NULL);
	e->component = strdup(o->component);
	e->instance = strdup(o->instance != NULL ? o->instance : "");
	if (e->component == NULL || e->instance == NULL) {
		fini(e);
		return err_set(err, ERR_NOMEM, "no memory for events");
	}
	*ret = e;
	return 0;
}

static void end(void *ctx)
{
	struct ku_events *e = ctx;
	struct entry *n, *next;

	ku_client_unpost(e->client, &e->job);
	ku_timer_clear(e->client, &e->timer);
	HASH_ITER(hh, e->entries, n, next) {
		if (n->call != NULL)
			ku_call_drop(n->call, false);
		n->call = NULL;
	}
}

void ku_events_free(struct ku_events *e)
{
	if (e == NULL)
		return;
	ku_client_run(e->client, end, e);
	fini(e);
}

void ku_events_get_stats(struct ku_events *e, struct ku_events_stats *ret)
{
	pthread_mutex_lock(&e->lock);
	*ret = e->stats;
	for (const struct lane *l = e->lanes; l != NULL; l = l->hh.next)
		ret->waiting += l->waiting;
	pthread_mutex_unlock(&e->lock);
}

#include "enforcer/inventory_publish.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "kube/client_path.h"
#include "kube/object.h"

#define DEADLINE_MS 10000
#define RESYNC_US INT64_C(300000000)
#define DELAY_MIN_US INT64_C(1000000)
#define DELAY_MAX_US INT64_C(60000000)
#define TIME_CAP 32

/* A condition as the node carries it. */
struct seen_condition {
	bool present;
	char status[16];
	char reason[64];
	char message[ERR_MSG_CAP];
};

struct en_publisher {
	struct ku_client *client;
	struct log *log;
	char *node;
	const struct ku_clock *clock;

	pthread_mutex_t lock; /* of the rest */
	pthread_cond_t changed;
	char *wanted_inventory; /* NULL: none, or see below */
	bool touch_inventory;   /* false: the annotation is left as it is */
	bool has_condition;
	struct en_condition wanted;

	bool known;           /* the following is what the node carries */
	char *seen_inventory; /* NULL: none */
	struct seen_condition seen;
	int64_t read_us;

	bool busy;                                                   /* a request is in flight */
	enum sent { SENT_GET, SENT_INVENTORY, SENT_CONDITION } sent; /* that one */
	uint64_t version, sent_version; /* of what is wanted: grows; and as it was sent */
	int64_t retry_us, delay_us;     /* after a failure; 0: none */
	struct en_publisher_stats stats;
};

static const char *const status_names[] = {"False", "True", "Unknown"};

static void pump(struct en_publisher *p);

/* ---- comparing ---- */

static bool inventory_differs(const struct en_publisher *p)
{
	if (!p->touch_inventory)
		return false;
	if (p->wanted_inventory == NULL)
		return p->seen_inventory != NULL;
	return en_inventory_changed(p->seen_inventory, p->wanted_inventory);
}

static bool condition_differs(const struct en_publisher *p)
{
	return p->has_condition &&
	       (!p->seen.present || strcmp(p->seen.status, status_names[p->wanted.status]) != 0 ||
		strcmp(p->seen.reason, p->wanted.reason) != 0 ||
		strcmp(p->seen.message, p->wanted.message) != 0);
}

static bool in_sync(const struct en_publisher *p)
{
	return p->known && !inventory_differs(p) && !condition_differs(p);
}

/* ---- what an answer tells ---- */

static void copy_member(const cJSON *obj, const char *name, char *ret, size_t cap)
{
	const cJSON *v = ku_json_get(obj, name);
	const char *s = cJSON_IsString(v) ? v->valuestring : "";
	size_t len = strlen(s);

	if (len >= cap)
		len = cap - 1;
	memcpy(ret, s, len);
	ret[len] = '\0';
}

static bool learn(struct en_publisher *p, const cJSON *node)
{
	const cJSON *annotations = ku_json_get(ku_json_get(node, "metadata"), "annotations");
	const cJSON *v = ku_json_get(annotations, EN_INVENTORY_KEY), *condition;
	char *inventory = NULL;

	if (cJSON_IsString(v)) {
		inventory = strdup(v->valuestring);
		if (inventory == NULL)
			return false;
	}
	free(p->seen_inventory);
	p->seen_inventory = inventory;
	p->seen.present = false;
	cJSON_ArrayForEach(condition, ku_json_get(ku_json_get(node, "status"), "conditions"))
	{
		const cJSON *type = ku_json_get(condition, "type");

		if (!cJSON_IsString(type) || strcmp(type->valuestring, EN_CONDITION_TYPE) != 0)
			continue;
		p->seen.present = true;
		copy_member(condition, "status", p->seen.status, sizeof(p->seen.status));
		copy_member(condition, "reason", p->seen.reason, sizeof(p->seen.reason));
		copy_member(condition, "message", p->seen.message, sizeof(p->seen.message));
	}
	p->known = true;
	return true;
}

static void fail(struct en_publisher *p, const char *why)
{
	char quoted[256];

	p->known = false;
	p->stats.failures++;
	p->delay_us = p->delay_us == 0 ? DELAY_MIN_US : p->delay_us * 2;
	if (p->delay_us > DELAY_MAX_US)
		p->delay_us = DELAY_MAX_US;
	p->retry_us = p->clock->mono_us(p->clock->ctx) + p->delay_us;
	log_event(p->log, LOG_LEVEL_WARN, "node_update_failed", "retry_ms=%lld why=%s",
		  (long long)(p->delay_us / 1000), log_quote(why, quoted, sizeof(quoted)));
}

/* Does the answer to a patch show what was in it? */
static bool is_kept(const struct en_publisher *p)
{
	return p->version != p->sent_version ||
	       !(p->sent == SENT_INVENTORY ? inventory_differs(p)
					   : p->sent == SENT_CONDITION && condition_differs(p));
}

static void on_done(void *ctx, const struct ku_reply *reply)
{
	struct en_publisher *p = ctx;
	struct err err = ERR_INIT;
	cJSON *node = NULL;

	pthread_mutex_lock(&p->lock);
	p->busy = false;
	if (reply->kind != KU_REPLY_HTTP || reply->status < 200 || reply->status >= 300) {
		fail(p, reply->text);
	} else if (ku_json_parse_stored(reply->body, reply->len, &node, &err) != 0) {
		fail(p, err.msg);
	} else if (!learn(p, node)) {
		fail(p, "out of memory");
	} else if (!is_kept(p)) {
		fail(p, p->sent == SENT_INVENTORY
				? "the API server took the inventory and shows another one"
				: "the API server took the condition and shows another one");
	} else {
		p->read_us = p->clock->mono_us(p->clock->ctx);
		p->retry_us = 0;
		if (p->sent != SENT_GET || in_sync(p))
			p->delay_us = 0;
	}
	cJSON_Delete(node);
	if (reply->kind != KU_REPLY_CANCELLED)
		pump(p);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

/* ---- requests ---- */

static void now_text(const struct en_publisher *p, char ret[TIME_CAP])
{
	time_t t = (time_t)(p->clock->wall_us(p->clock->ctx) / 1000000);
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(ret, TIME_CAP, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* {"metadata":{"annotations":{...}}}, or NULL without memory. */
static char *inventory_patch(const struct en_publisher *p)
{
	cJSON *root = cJSON_CreateObject();
	cJSON *annotations =
		cJSON_AddObjectToObject(cJSON_AddObjectToObject(root, "metadata"), "annotations");
	char now[TIME_CAP], *text = NULL;
	const cJSON *a, *b;

	now_text(p, now);
	if (p->wanted_inventory != NULL) {
		a = cJSON_AddStringToObject(annotations, EN_INVENTORY_KEY, p->wanted_inventory);
		b = cJSON_AddStringToObject(annotations, EN_INVENTORY_TIME_KEY, now);
	} else {
		a = cJSON_AddNullToObject(annotations, EN_INVENTORY_KEY);
		b = cJSON_AddNullToObject(annotations, EN_INVENTORY_TIME_KEY);
	}
	if (a != NULL && b != NULL)
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	return text;
}

/* A strategic merge patch: the list of conditions is merged by type, others' stay. */
static char *condition_patch(const struct en_publisher *p)
{
	const char *status = status_names[p->wanted.status];
	cJSON *root = cJSON_CreateObject(), *o = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(cJSON_AddObjectToObject(root, "status"), "conditions");
	char now[TIME_CAP], *text = NULL;
	bool ok;

	now_text(p, now);
	ok = list != NULL && o != NULL && cJSON_AddItemToArray(list, o);
	if (!ok)
		cJSON_Delete(o);
	ok = ok && cJSON_AddStringToObject(o, "type", EN_CONDITION_TYPE) != NULL &&
	     cJSON_AddStringToObject(o, "status", status) != NULL &&
	     cJSON_AddStringToObject(o, "reason", p->wanted.reason) != NULL &&
	     cJSON_AddStringToObject(o, "message", p->wanted.message) != NULL &&
	     cJSON_AddStringToObject(o, "lastHeartbeatTime", now) != NULL;
	if (ok && (!p->seen.present || strcmp(p->seen.status, status) != 0))
		ok = cJSON_AddStringToObject(o, "lastTransitionTime", now) != NULL;
	if (ok)
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	return text;
}

/* body NULL: reads the node. */
static void send_request(struct en_publisher *p, enum sent what, const char *sub, const char *type,
			 const char *body)
{
	struct buf path = BUF_INIT;
	struct err err = ERR_INIT;
	struct ku_request rq = {
		.method = body != NULL ? "PATCH" : "GET",
		.content_type = type,
		.body = body,
		.body_len = body != NULL ? strlen(body) : 0,
		.deadline_ms = DEADLINE_MS,
		.on_done = on_done,
		.ctx = p,
	};
	int r = ERR_NOMEM;

	ku_path_node(&path, p->node, sub);
	rq.path = buf_str(&path);
	if (rq.path != NULL)
		r = ku_client_send(p->client, &rq, &err);
	buf_fini(&path);
	if (r != 0) {
		fail(p, err.msg);
		return;
	}
	p->busy = true;
	p->sent = what;
	p->sent_version = p->version;
	if (body != NULL)
		p->stats.writes++;
	else
		p->stats.reads++;
}

/* Under the lock: sends the next request where one is due. A node that is not ready says so first; one
 * that is ready shows its GPUs first. */
static void pump(struct en_publisher *p)
{
	int64_t now = p->clock->mono_us(p->clock->ctx);
	bool inventory, condition;
	char *body;

	if (p->busy || (!p->has_condition && !p->touch_inventory) ||
	    (p->retry_us != 0 && now < p->retry_us))
		return;
	if (!p->known || now - p->read_us >= RESYNC_US) {
		send_request(p, SENT_GET, NULL, NULL, NULL);
		return;
	}
	inventory = inventory_differs(p);
	condition = condition_differs(p);
	if (!inventory && !condition)
		return;
	if (inventory && (!condition || p->wanted.status == EN_STATUS_TRUE)) {
		body = inventory_patch(p);
		if (body != NULL)
			send_request(p, SENT_INVENTORY, NULL, "application/merge-patch+json", body);
	} else {
		body = condition_patch(p);
		if (body != NULL)
			send_request(p, SENT_CONDITION, "status",
				     "application/strategic-merge-patch+json", body);
	}
	if (body == NULL)
		fail(p, "out of memory");
	free(body);
}

/* ---- outside ---- */

int en_publisher_new(struct ku_client *client, const char *node, struct log *log,
		     struct en_publisher **ret, struct err *err)
{
	struct en_publisher *p;

	if (!ku_path_legal(node))
		return err_set(err, ERR_INVALID, "node name \"%.100s\" is not a name", node);
	p = calloc(1, sizeof(*p));
	if (p == NULL || (p->node = strdup(node)) == NULL) {
		free(p);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	p->client = client;
	p->log = log;
	p->clock = ku_client_clock(client);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	*ret = p;
	return 0;
}

void en_publisher_free(struct en_publisher *p)
{
	if (p == NULL)
		return;
	pthread_mutex_lock(&p->lock);
	p->has_condition = false; /* nothing more is sent */
	p->touch_inventory = false;
	while (p->busy)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p->wanted_inventory);
	free(p->seen_inventory);
	free(p->node);
	free(p);
}

int en_publisher_put(struct en_publisher *p, const char *inventory,
		     const struct en_condition *condition, struct err *err)
{
	char *copy = inventory != NULL ? strdup(inventory) : NULL;

	if (inventory != NULL && copy == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	pthread_mutex_lock(&p->lock);
	if ((copy != NULL &&
	     (p->wanted_inventory == NULL || strcmp(p->wanted_inventory, copy) != 0)) ||
	    !p->has_condition || !en_condition_equal(&p->wanted, condition))
		p->version++;
	if (copy != NULL) {
		free(p->wanted_inventory);
		p->wanted_inventory = copy;
		p->touch_inventory = true;
	}
	p->wanted = *condition;
	p->has_condition = true;
	pump(p);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void en_publisher_withdraw(struct en_publisher *p)
{
	static const struct en_condition gone = {
		.status = EN_STATUS_UNKNOWN,
		.reason = "EnforcerRemoved",
		.message = "Tessera was removed from this node",
	};

	pthread_mutex_lock(&p->lock);
	free(p->wanted_inventory);
	p->wanted_inventory = NULL;
	p->touch_inventory = true;
	p->version++;
	p->wanted = gone;
	p->has_condition = true;
	pump(p);
	pthread_mutex_unlock(&p->lock);
}

int64_t en_publisher_tick(struct en_publisher *p)
{
	int64_t now, due;

	pthread_mutex_lock(&p->lock);
	pump(p);
	now = p->clock->mono_us(p->clock->ctx);
	due = p->retry_us != 0 && p->retry_us > now ? p->retry_us : p->read_us + RESYNC_US;
	if (p->busy || due <= now)
		due = now + DELAY_MIN_US;
	pthread_mutex_unlock(&p->lock);
	return (due - now) / 1000;
}

bool en_publisher_flush(struct en_publisher *p, int64_t limit_ms)
{
	struct timespec until;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(limit_ms / 1000);
	until.tv_nsec += (long)(limit_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&p->lock);
	pump(p);
	while (!(done = in_sync(p) && !p->busy)) {
		if (pthread_cond_clockwait(&p->changed, &p->lock, CLOCK_MONOTONIC, &until) ==
		    ETIMEDOUT)
			break;
	}
	pthread_mutex_unlock(&p->lock);
	return done;
}

void en_publisher_get_stats(struct en_publisher *p, struct en_publisher_stats *ret)
{
	pthread_mutex_lock(&p->lock);
	*ret = p->stats;
	ret->in_sync = in_sync(p);
	pthread_mutex_unlock(&p->lock);
}

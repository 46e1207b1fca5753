#include "kube/reflector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/client_path.h"
#include "kube/object.h"
#include "kube/reflector_internal.h"

#define OBJECT_MAX_DEFAULT ((size_t)16 << 20)

const char *const ku_prune_pods[] = {
	"metadata.managedFields",
	"spec.volumes",
	"spec.affinity",
	"spec.tolerations",
	"spec.topologySpreadConstraints",
	"spec.securityContext",
	"spec.containers.env",
	"spec.containers.envFrom",
	"spec.containers.command",
	"spec.containers.args",
	"spec.containers.ports",
	"spec.containers.volumeMounts",
	"spec.containers.livenessProbe",
	"spec.containers.readinessProbe",
	"spec.containers.startupProbe",
	"spec.containers.lifecycle",
	"spec.containers.securityContext",
	"spec.initContainers.env",
	"spec.initContainers.envFrom",
	"spec.initContainers.command",
	"spec.initContainers.args",
	"spec.initContainers.volumeMounts",
	"spec.initContainers.securityContext",
	"status.conditions",
	"status.containerStatuses",
	"status.initContainerStatuses",
	"status.podIPs",
	NULL,
};

const char *const ku_prune_nodes[] = {
	"metadata.managedFields", "status.images",   "status.volumesInUse",
	"status.volumesAttached", "status.nodeInfo", NULL,
};

const char *ku_metadata(const cJSON *obj, const char *name)
{
	const cJSON *v = ku_json_get(ku_json_get(obj, "metadata"), name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- resourceVersion ---- */

static bool comparable(const char *rv)
{
	return *rv >= '1' && *rv <= '9' && strspn(rv, "0123456789") == strlen(rv);
}

bool ku_rv_compare(const char *a, const char *b, int *ret)
{
	size_t la = strlen(a), lb = strlen(b);

	if (!comparable(a) || !comparable(b))
		return false;
	*ret = la != lb ? (la < lb ? -1 : 1) : strcmp(a, b);
	return true;
}

void ku_reflector_set_rv(struct ku_reflector *r, const char *rv)
{
	pthread_mutex_lock(&r->lock);
	snprintf(r->rv, sizeof(r->rv), "%s", rv);
	pthread_mutex_unlock(&r->lock);
}

bool ku_reflector_synced(struct ku_reflector *r)
{
	bool synced;

	pthread_mutex_lock(&r->lock);
	synced = r->synced;
	pthread_mutex_unlock(&r->lock);
	return synced;
}

bool ku_reflector_reached(struct ku_reflector *r, const char *rv)
{
	bool reached;
	int cmp;

	pthread_mutex_lock(&r->lock);
	reached = r->synced && ku_rv_compare(r->rv, rv, &cmp) && cmp >= 0;
	pthread_mutex_unlock(&r->lock);
	return reached;
}

/* ---- statistics ---- */

void ku_reflector_count(struct ku_reflector *r, uint64_t *what)
{
	pthread_mutex_lock(&r->lock);
	++*what;
	pthread_mutex_unlock(&r->lock);
}

void ku_reflector_busy(struct ku_reflector *r, bool busy)
{
	int64_t now = ku_now_us(r->client);

	pthread_mutex_lock(&r->lock);
	r->stats.heard_us = now;
	r->busy_since_us = busy ? now : 0;
	pthread_mutex_unlock(&r->lock);
}

void ku_reflector_get_stats(struct ku_reflector *r, struct ku_reflector_stats *ret)
{
	int64_t now = ku_now_us(r->client);

	pthread_mutex_lock(&r->lock);
	*ret = r->stats;
	ret->busy_us = r->busy_since_us != 0 ? now - r->busy_since_us : 0;
	pthread_mutex_unlock(&r->lock);
}

/* ---- objects ---- */

static void forget(struct ku_reflector *r, struct ku_known *k)
{
	HASH_DEL(r->known, k); /* NOLINT(clang-analyzer-unix.Malloc): uthash's links are right */
	free(k);
}

/* uids that differ in a counter only are spread well too, which uthash's own functions do not do. */
static unsigned uid_hash(const char *uid)
{
	return (unsigned)hash_str(uid, 0);
}

static struct ku_known *find(struct ku_reflector *r, const char *uid)
{
	struct ku_known *k;

	HASH_FIND_BYHASHVALUE(hh, r->known, uid, strlen(uid), uid_hash(uid), k);
	return k;
}

/* The entry of a uid, made where it was not known (*ret_new). NULL: no memory. */
static struct ku_known *know(struct ku_reflector *r, const char *uid, bool *ret_new)
{
	size_t len = strlen(uid);
	struct ku_known *k = find(r, uid);

	*ret_new = k == NULL;
	if (k != NULL)
		return k;
	k = calloc(1, sizeof(*k) + len + 1);
	if (k == NULL)
		return NULL;
	memcpy(k->uid, uid, len + 1);
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, r->known, k->uid, len, uid_hash(uid), k);
	if (!HASH_ADDED(k, hh)) {
		free(k);
		return NULL;
	}
	return k;
}

static void count_objects(struct ku_reflector *r)
{
	pthread_mutex_lock(&r->lock);
	r->stats.objects = HASH_COUNT(r->known);
	pthread_mutex_unlock(&r->lock);
}

int ku_reflector_take(struct ku_reflector *r, enum ku_change change, const cJSON *obj,
		      struct err *err)
{
	const struct ku_reflector_handler *h = &r->o.handler;
	const char *uid = ku_metadata(obj, "uid");
	bool new = false;
	struct ku_known *k;
	int res = 0;

	if (*uid == '\0')
		return err_set(err, ERR_INVALID, "an object without metadata.uid");
	if (change != KU_DELETED) {
		k = know(r, uid, &new);
		if (k == NULL)
			return err_set(err, ERR_NOMEM, "no memory for an object");
		k->round = r->round;
		change = new ? KU_ADDED : KU_MODIFIED;
	} else {
		k = find(r, uid);
	}
	if (h->on_object != NULL)
		res = h->on_object(h->ctx, change, obj, err);
	if (k != NULL && (change == KU_DELETED ? res >= 0 : res < 0 && new))
		forget(r, k);
	count_objects(r);
	return res < 0 ? res : 0;
}

/* ---- what comes next ---- */

void ku_reflector_path(const struct ku_reflector *r, struct buf *ret)
{
	buf_puts(ret, r->o.path);
	if (r->o.field_selector != NULL)
		ku_path_query(ret, "fieldSelector", r->o.field_selector);
	if (r->o.label_selector != NULL)
		ku_path_query(ret, "labelSelector", r->o.label_selector);
}

void ku_reflector_next(struct ku_reflector *r)
{
	if (r->have_list && !r->listing)
		ku_reflector_watch(r);
	else
		ku_reflector_list(r);
}

static void on_delay(void *ctx)
{
	ku_reflector_next(ctx);
}

void ku_reflector_later(struct ku_reflector *r, int64_t wait_us)
{
	ku_timer_set(r->client, &r->delay, ku_now_us(r->client) + wait_us, on_delay, r);
}

void ku_reflector_expire(struct ku_reflector *r)
{
	ku_reflector_count(r, &r->stats.expired);
	r->have_list = r->listing = false;
	r->quorum = true;
}

void ku_reflector_failed(struct ku_reflector *r, const struct err *what, int64_t after_ms)
{
	struct ku_client *c = r->client;
	int64_t wait = ku_backoff_next_us(&r->backoff, &c->rng, ku_now_us(c));

	ku_reflector_count(r, &r->stats.problems);
	if (r->o.handler.on_problem != NULL)
		r->o.handler.on_problem(r->o.handler.ctx, what);
	ku_reflector_later(r, after_ms * 1000 > wait ? after_ms * 1000 : wait);
}

static void stop(struct ku_reflector *r)
{
	struct ku_client *c = r->client;

	ku_timer_clear(c, &r->delay);
	ku_timer_clear(c, &r->silence);
	ku_timer_clear(c, &r->end);
	if (r->call != NULL)
		ku_call_drop(r->call, false);
	r->call = NULL;
}

static void do_relist(void *ctx)
{
	struct ku_reflector *r = ctx;

	pthread_mutex_lock(&r->lock);
	r->relist_wanted = false;
	pthread_mutex_unlock(&r->lock);
	stop(r);
	r->have_list = r->listing = false;
	r->quorum = true;
	ku_reflector_next(r);
}

void ku_reflector_relist(struct ku_reflector *r)
{
	pthread_mutex_lock(&r->lock);
	r->relist_wanted = true;
	r->synced = false;
	pthread_mutex_unlock(&r->lock);
	ku_client_post(r->client, &r->relist_job, do_relist, r);
}

/* ---- life ---- */

static void fill_defaults(struct ku_reflector_options *o)
{
	o->page = o->page != 0 ? o->page : 500;
	o->object_max = o->object_max != 0 ? o->object_max : OBJECT_MAX_DEFAULT;
	o->list_ms = o->list_ms != 0 ? o->list_ms : 120000;
	o->watch_min_s = o->watch_min_s != 0 ? o->watch_min_s : 300;
	o->watch_max_s = o->watch_max_s != 0 ? o->watch_max_s : 600;
	o->slack_ms = o->slack_ms != 0 ? o->slack_ms : 30000;
	o->silence_ms = o->silence_ms != 0 ? o->silence_ms : 150000;
	if (o->watch_max_s < o->watch_min_s)
		o->watch_max_s = o->watch_min_s;
}

/* Puts a copy in the place of *s; NULL stays NULL. */
static bool own(const char **s, char **ret)
{
	if (*s == NULL)
		return true;
	*ret = strdup(*s);
	*s = *ret;
	return *s != NULL;
}

static void fini(struct ku_reflector *r)
{
	struct ku_known *k, *next;

	HASH_ITER(hh, r->known, k, next)
		forget(r, k);
	ku_split_fini(&r->list_split);
	ku_split_fini(&r->watch_split);
	buf_fini(&r->token);
	buf_fini(&r->next_token);
	pthread_mutex_destroy(&r->lock);
	free(r->path);
	free(r->field_selector);
	free(r->label_selector);
	free(r);
}

static int init(struct ku_reflector *r, struct err *err)
{
	struct ku_reflector_options *o = &r->o;
	int res;

	if (!own(&o->path, &r->path) || !own(&o->field_selector, &r->field_selector) ||
	    !own(&o->label_selector, &r->label_selector))
		return err_set(err, ERR_NOMEM, "no memory for a reflector");
	fill_defaults(o);
	r->quorum = o->consistent;
	res = ku_split_init(&r->list_split, KU_SPLIT_LIST, o->prune, o->object_max,
			    ku_reflector_on_item, r, err);
	if (res == 0)
		res = ku_split_init(&r->watch_split, KU_SPLIT_EVENTS, o->prune, o->object_max,
				    ku_reflector_on_event, r, err);
	return res;
}

static void begin(void *ctx)
{
	ku_reflector_next(ctx);
}

int ku_reflector_new(struct ku_client *c, const struct ku_reflector_options *o,
		     struct ku_reflector **ret, struct err *err)
{
	struct ku_reflector *r = calloc(1, sizeof(*r));
	int res;

	if (r == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a reflector");
	r->client = c;
	r->o = *o;
	pthread_mutex_init(&r->lock, NULL);
	res = init(r, err);
	if (res < 0) {
		fini(r);
		return res;
	}
	*ret = r;
	ku_client_run(c, begin, r);
	return 0;
}

static void end(void *ctx)
{
	struct ku_reflector *r = ctx;

	ku_client_unpost(r->client, &r->relist_job);
	stop(r);
}

void ku_reflector_free(struct ku_reflector *r)
{
	if (r == NULL)
		return;
	ku_client_run(r->client, end, r);
	fini(r);
}

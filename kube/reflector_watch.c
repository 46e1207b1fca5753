/* A watch: its events, its end, and the ways in which it dies. */
#include <stdio.h>
#include <string.h>

#include "kube/client_path.h"
#include "kube/client_status.h"
#include "kube/object.h"
#include "kube/reflector_internal.h"

#define SHORT_US 1000000 /* a watch that ends sooner, with nothing, counts as an error */
#define LONG_US 5000000  /* one that broke after this is begun again at once */
#define FAILURES_MAX 5   /* in a row: the place is lost in a way that we do not understand */

/* ERROR: a Status in the stream. */
static int take_error(struct ku_reflector *r, const cJSON *obj, struct err *err)
{
	struct ku_status s;

	if (!ku_status_read(obj, &s))
		return err_set(err, ERR_INVALID, "an ERROR event without a Status");
	if (s.code == 410 || strcmp(s.reason, "Expired") == 0 || strcmp(s.reason, "Gone") == 0)
		r->expired = true;
	return err_set(err, ERR_CONFLICT, "%d %s: %s", s.code, s.reason, s.message);
}

static int take_event(struct ku_reflector *r, const cJSON *event, struct err *err)
{
	static const struct {
		const char *type;
		enum ku_change change;
	} types[] = {{"ADDED", KU_ADDED}, {"MODIFIED", KU_MODIFIED}, {"DELETED", KU_DELETED}};
	const cJSON *type = ku_json_get(event, "type"), *obj = ku_json_get(event, "object");
	const char *rv = ku_metadata(obj, "resourceVersion");
	int res = ERR_INVALID;

	if (!cJSON_IsString(type) || !cJSON_IsObject(obj))
		return err_set(err, ERR_INVALID, "an event without type or object");
	if (strcmp(type->valuestring, "ERROR") == 0)
		return take_error(r, obj, err);
	if (*rv == '\0' || strlen(rv) >= KU_RV_CAP)
		return err_set(err, ERR_INVALID, "an event without metadata.resourceVersion");
	if (strcmp(type->valuestring, "BOOKMARK") == 0) {
		ku_reflector_count(r, &r->stats.bookmarks);
		ku_reflector_set_rv(r, rv);
		return 0;
	}
	for (size_t i = 0; i < 3; i++) {
		if (strcmp(type->valuestring, types[i].type) == 0)
			res = ku_reflector_take(r, types[i].change, obj, err);
	}
	if (res < 0)
		return err->msg[0] != '\0' ? res
					   : err_set(err, ERR_INVALID, "an event of type \"%.40s\"",
						     type->valuestring);
	ku_reflector_count(r, &r->stats.events);
	ku_reflector_set_rv(r, rv);
	return 0;
}

int ku_reflector_on_event(void *ctx, enum ku_piece what, const char *text, size_t len,
			  struct err *err)
{
	struct ku_reflector *r = ctx;
	cJSON *event;
	int res = ku_json_parse_stored(text, len, &event, err);

	(void)what;
	if (res < 0)
		return res;
	res = take_event(r, event, err);
	cJSON_Delete(event);
	if (res >= 0)
		r->frames++;
	return res;
}

static void on_dead(void *ctx);

static int on_data(void *ctx, const char *data, size_t len)
{
	struct ku_reflector *r = ctx;

	ku_reflector_busy(r, true);
	r->fault_code = ku_split_feed(&r->watch_split, data, len, &r->fault);
	ku_reflector_busy(r, false);
	ku_timer_set(r->client, &r->silence, ku_now_us(r->client) + r->o.silence_ms * 1000, on_dead,
		     r);
	return r->fault_code;
}

static void clear(struct ku_reflector *r)
{
	r->call = NULL;
	ku_timer_clear(r->client, &r->silence);
	ku_timer_clear(r->client, &r->end);
}

/* The watch failed; from the same place, unless the server answers and that keeps bringing nothing. One
 * that is away says nothing about our place. */
static void watch_failed(struct ku_reflector *r, struct err *why, bool answered, int64_t after_ms)
{
	r->failures = r->frames > 0 ? 0 : r->failures + answered;
	if (r->failures >= FAILURES_MAX) {
		r->failures = 0;
		r->have_list = false;
	}
	err_prefix(why, ERR_IO, "watch %s", r->o.path);
	ku_reflector_failed(r, why, after_ms);
}

static void on_dead(void *ctx)
{
	struct ku_reflector *r = ctx;
	struct err why = ERR_INIT;

	ku_call_drop(r->call, true);
	clear(r);
	ku_reflector_count(r, &r->stats.dead_watches);
	err_set(&why, ERR_IO, "nothing was heard for too long");
	watch_failed(r, &why, true, -1);
}

/* What the handler or the parser refused, or the server said by an ERROR event. */
static void stream_refused(struct ku_reflector *r, struct err *why)
{
	if (r->expired)
		ku_reflector_expire(r);
	else if (r->fault_code != ERR_CONFLICT)
		r->have_list = false; /* something was missed: only a list brings it back */
	watch_failed(r, why, true, -1);
}

static void status_refused(struct ku_reflector *r, const struct ku_reply *reply, struct err *why)
{
	struct ku_status s;

	ku_status_parse(reply->body, reply->len, &s);
	if (reply->status == 410) {
		ku_reflector_expire(r);
	} else if (reply->status == 504 || reply->status == 400 ||
		   ku_status_version_too_large(&s)) {
		r->have_list = false;
		r->quorum = true;
	}
	watch_failed(r, why, true, reply->retry_after_ms);
}

static void on_done(void *ctx, const struct ku_reply *reply)
{
	struct ku_reflector *r = ctx;
	int64_t lasted = ku_now_us(r->client) - r->watch_us;
	struct err why = ERR_INIT;

	clear(r);
	if (reply->kind == KU_REPLY_CANCELLED)
		return;
	if (reply->kind == KU_REPLY_STOPPED) {
		why = r->fault;
		stream_refused(r, &why);
	} else if (reply->kind == KU_REPLY_HTTP && reply->status != 200) {
		err_set(&why, ERR_IO, "%s", reply->text);
		status_refused(r, reply, &why);
	} else if (reply->kind == KU_REPLY_HTTP && (r->frames > 0 || lasted >= SHORT_US)) {
		r->failures = 0; /* the normal end; not more than once a second */
		ku_reflector_later(r, lasted < SHORT_US ? SHORT_US - lasted : 0);
	} else if (r->frames > 0 && lasted >= LONG_US) {
		r->failures = 0; /* cut after a good time */
		ku_reflector_later(r, 0);
	} else {
		err_set(&why, ERR_IO, "%s",
			reply->kind == KU_REPLY_HTTP ? "it ended at once" : reply->text);
		watch_failed(r, &why, reply->status != 0, reply->retry_after_ms);
	}
}

static void put_query(const struct ku_reflector *r, struct buf *path, int64_t length_s)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)length_s);
	ku_path_query(path, "watch", "1");
	ku_path_query(path, "allowWatchBookmarks", "true");
	ku_path_query(path, "timeoutSeconds", text);
	ku_path_query(path, "resourceVersion", r->rv);
}

void ku_reflector_watch(struct ku_reflector *r)
{
	struct ku_client *c = r->client;
	struct ku_request rq = {
		.deadline_ms = KU_NO_DEADLINE,
		.on_data = on_data,
		.on_done = on_done,
		.ctx = r,
	};
	int64_t span = r->o.watch_max_s - r->o.watch_min_s;
	int64_t length_s = r->o.watch_min_s + (int64_t)rng_below(&c->rng, (uint64_t)span + 1);
	int64_t now = ku_now_us(c);
	struct buf path = BUF_INIT;
	struct err why = ERR_INIT;

	ku_reflector_path(r, &path);
	put_query(r, &path, length_s);
	rq.path = buf_str(&path);
	r->fault = (struct err)ERR_INIT;
	r->fault_code = 0;
	r->expired = false;
	r->frames = 0;
	r->watch_us = now;
	ku_split_reset(&r->watch_split);
	if (rq.path == NULL)
		err_set(&why, ERR_NOMEM, "no memory for a request");
	else
		ku_call_new(c, &rq, &r->call, &why);
	buf_fini(&path);
	if (why.msg[0] != '\0') {
		ku_reflector_failed(r, &why, -1);
		return;
	}
	ku_reflector_count(r, &r->stats.watches);
	ku_timer_set(c, &r->silence, now + r->o.silence_ms * 1000, on_dead, r);
	ku_timer_set(c, &r->end, now + length_s * 1000000 + r->o.slack_ms * 1000, on_dead, r);
}

/* A list, page by page; items go to the handler while they arrive. */
#include <stdio.h>
#include <string.h>

#include "kube/client_path.h"
#include "kube/client_status.h"
#include "kube/object.h"
#include "kube/reflector_internal.h"

#define PAGE_TRIES 5

static int take_metadata(struct ku_reflector *r, const cJSON *meta, struct err *err)
{
	const cJSON *rv = ku_json_get(meta, "resourceVersion"),
		    *more = ku_json_get(meta, "continue");

	/* All pages show one state; of servers that do not keep to it the first page is the safe one. */
	if (cJSON_IsString(rv) && r->list_rv[0] == '\0') {
		if (strlen(rv->valuestring) >= sizeof(r->list_rv))
			return err_set(err, ERR_INVALID, "metadata.resourceVersion: is too long");
		memcpy(r->list_rv, rv->valuestring, strlen(rv->valuestring) + 1);
	}
	buf_reset(&r->next_token);
	if (cJSON_IsString(more))
		buf_puts(&r->next_token, more->valuestring);
	return buf_str(&r->next_token) != NULL ? 0
					       : err_set(err, ERR_NOMEM, "no memory for a page");
}

int ku_reflector_on_item(void *ctx, enum ku_piece what, const char *text, size_t len,
			 struct err *err)
{
	struct ku_reflector *r = ctx;
	cJSON *obj;
	int res = ku_json_parse_stored(text, len, &obj, err);

	if (res < 0)
		return res;
	res = what == KU_PIECE_LIST_METADATA ? take_metadata(r, obj, err)
					     : ku_reflector_take(r, KU_ADDED, obj, err);
	cJSON_Delete(obj);
	return res;
}

static int on_data(void *ctx, const char *data, size_t len)
{
	struct ku_reflector *r = ctx;

	ku_reflector_busy(r, true);
	r->fault_code = ku_split_feed(&r->list_split, data, len, &r->fault);
	ku_reflector_busy(r, false);
	return r->fault_code;
}

/* The list is complete: what it did not show is gone. */
static void finish(struct ku_reflector *r)
{
	const struct ku_reflector_handler *h = &r->o.handler;
	struct ku_known *k, *next;

	HASH_ITER(hh, r->known, k, next) {
		if (k->round == r->round)
			continue;
		HASH_DEL(r->known, k);
		ku_reflector_count(r, &r->stats.gone);
		if (h->on_gone != NULL)
			h->on_gone(h->ctx, k->uid);
		free(k);
	}
	r->listing = r->quorum = r->whole = false;
	r->have_list = true;
	r->failures = 0;
	ku_backoff_reset(&r->backoff);
	pthread_mutex_lock(&r->lock);
	memcpy(r->rv, r->list_rv, sizeof(r->rv));
	r->stats.lists++;
	r->stats.objects = HASH_COUNT(r->known);
	r->synced = !r->relist_wanted;
	pthread_mutex_unlock(&r->lock);
	if (h->on_synced != NULL)
		h->on_synced(h->ctx, r->list_rv);
	ku_reflector_next(r);
}

/* A page that is no good: what kind of list is tried next, and when. */
static void page_failed(struct ku_reflector *r, const struct ku_reply *reply, struct err *why)
{
	struct ku_status s = {0};
	bool http = reply->kind == KU_REPLY_HTTP;
	bool later_page = r->token.len > 0;
	bool again; /* this page, not the whole list */

	if (http)
		ku_status_parse(reply->body, reply->len, &s);
	again = later_page && ++r->page_failures < PAGE_TRIES &&
		(!http || reply->status == 429 || reply->status >= 500);
	r->listing = again;
	if (http && reply->status == 410) {
		ku_reflector_expire(r);
		r->whole =
			later_page; /* longer than the server keeps a state: in one piece, then */
		err_prefix(why, ERR_CONFLICT, "list %s", r->o.path);
		ku_reflector_failed(r, why, reply->retry_after_ms);
		return;
	}
	if (http &&
	    (reply->status == 504 || reply->status == 400 || ku_status_version_too_large(&s)))
		r->quorum = true; /* that server knows our version not yet, or not at all */
	err_prefix(why, ERR_IO, "list %s", r->o.path);
	ku_reflector_failed(r, why, reply->retry_after_ms);
}

static void next_page(struct ku_reflector *r)
{
	struct buf done = r->token;

	r->token = r->next_token;
	r->next_token = done;
	r->page_failures = 0;
	ku_reflector_list(r);
}

static void on_done(void *ctx, const struct ku_reply *reply)
{
	struct ku_reflector *r = ctx;
	struct err why = ERR_INIT;

	r->call = NULL;
	if (reply->kind == KU_REPLY_CANCELLED)
		return;
	if (reply->kind == KU_REPLY_STOPPED)
		why = r->fault;
	else if (reply->kind != KU_REPLY_HTTP || reply->status != 200)
		err_set(&why, ERR_IO, "%s", reply->text);
	else if (!ku_split_complete(&r->list_split))
		err_set(&why, ERR_INVALID, "the answer is no complete list");
	else if (r->list_rv[0] == '\0')
		err_set(&why, ERR_INVALID, "the list has no metadata.resourceVersion");
	if (why.msg[0] != '\0')
		page_failed(r, reply, &why);
	else if (r->next_token.len > 0)
		next_page(r);
	else
		finish(r);
}

static void put_query(struct ku_reflector *r, struct buf *path)
{
	if (!r->whole) {
		char limit[16];

		snprintf(limit, sizeof(limit), "%u", r->o.page);
		ku_path_query(path, "limit", limit);
	}
	if (r->token.len > 0) {
		ku_path_query(path, "continue", buf_str(&r->token));
		return; /* the token says which state */
	}
	if (r->quorum)
		return; /* no version: the newest */
	ku_path_query(path, "resourceVersion", r->rv[0] != '\0' ? r->rv : "0");
	if (r->rv[0] != '\0')
		ku_path_query(path, "resourceVersionMatch", "NotOlderThan");
}

static void begin_list(struct ku_reflector *r)
{
	r->listing = true;
	r->round++;
	r->list_rv[0] = '\0';
	r->page_failures = 0;
	buf_reset(&r->token);
	if (r->o.handler.on_sync_begin != NULL)
		r->o.handler.on_sync_begin(r->o.handler.ctx);
}

void ku_reflector_list(struct ku_reflector *r)
{
	struct ku_request rq = {
		.deadline_ms = r->o.list_ms,
		.on_data = on_data,
		.on_done = on_done,
		.ctx = r,
	};
	struct buf path = BUF_INIT;
	struct err why = ERR_INIT;

	if (!r->listing)
		begin_list(r);
	ku_reflector_path(r, &path);
	put_query(r, &path);
	rq.path = buf_str(&path);
	r->fault = (struct err)ERR_INIT;
	buf_reset(&r->next_token);
	ku_split_reset(&r->list_split);
	if (rq.path == NULL)
		err_set(&why, ERR_NOMEM, "no memory for a request");
	else
		ku_call_new(r->client, &rq, &r->call, &why);
	buf_fini(&path);
	if (why.msg[0] != '\0') {
		r->listing = false;
		ku_reflector_failed(r, &why, -1);
	}
}

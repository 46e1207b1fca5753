/* Node totals: the memory of a node's GPUs as an extended resource in its status, so that the scheduler
 * itself counts it. Written only where it differs: each write wakes the scheduler's waiting pods. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extender/api_internal.h"
#include "kube/client_path.h"

#define DEADLINE_MS 10000
#define RETRY_US 30000000

struct ex_total {
	UT_hash_handle hh; /* by node */
	struct ex_api *api;
	char *node;
	int64_t has_mib, want_mib; /* has -1: something that is no number */
	int64_t due_us;
	bool busy, gone;
};

static void total_free(struct ex_total *t)
{
	free(t->node);
	free(t);
}

void ex_api_total_note(struct ex_api *a, const char *node, int64_t has_mib, int64_t want_mib)
{
	struct ex_total *t;

	if (!a->cfg.totals)
		return;
	pthread_mutex_lock(&a->lock);
	HASH_FIND_STR(a->totals, node, t);
	if (t == NULL && has_mib != want_mib) {
		t = calloc(1, sizeof(*t));
		if (t != NULL)
			t->node = strdup(node);
		if (t != NULL && t->node != NULL) {
			t->api = a;
			HASH_ADD_KEYPTR(hh, a->totals, t->node, strlen(t->node), t);
		}
		/* Without memory it is written when the node changes next. */
		if (t != NULL && (t->node == NULL || !HASH_ADDED(t, hh))) {
			total_free(t);
			t = NULL;
		}
	}
	if (t != NULL) {
		if (t->want_mib != want_mib)
			t->due_us = 0;
		t->has_mib = has_mib;
		t->want_mib = want_mib;
		t->gone = false;
		pthread_cond_broadcast(&a->work);
	}
	pthread_mutex_unlock(&a->lock);
}

void ex_api_total_gone(struct ex_api *a, const char *node)
{
	struct ex_total *t;

	pthread_mutex_lock(&a->lock);
	HASH_FIND_STR(a->totals, node, t);
	if (t != NULL)
		t->gone = true;
	pthread_mutex_unlock(&a->lock);
}

static void on_written(void *ctx, const struct ku_reply *reply)
{
	struct ex_total *t = ctx;
	struct ex_api *a = t->api;
	bool ok = reply->kind == KU_REPLY_HTTP && reply->status == 200;
	char quoted[600];

	if (!ok && reply->kind != KU_REPLY_CANCELLED)
		log_event(a->cfg.log, LOG_LEVEL_WARN, "node-total-failed",
			  "node=%s status=%d reason=%s", t->node, reply->status,
			  log_quote(reply->text, quoted, sizeof(quoted)));
	pthread_mutex_lock(&a->lock);
	a->stats.totals_written += ok;
	a->stats.totals_failed += !ok;
	t->busy = false;
	/* What the node has is the watch's to tell; until it does, it is left alone. */
	t->due_us = ex_api_now_us(a) + RETRY_US;
	pthread_mutex_unlock(&a->lock);
}

static int write_total(struct ex_api *a, struct ex_total *t, int64_t mib, struct err *err)
{
	struct buf path = BUF_INIT;
	char patch[256];
	int rc = ERR_NOMEM;

	snprintf(patch, sizeof(patch),
		 "{\"status\":{\"capacity\":{\"%s\":\"%lld\"},\"allocatable\":{\"%s\":\"%lld\"}}}",
		 EX_MEMORY_RESOURCE, (long long)mib, EX_MEMORY_RESOURCE, (long long)mib);
	ku_path_node(&path, t->node, "status");
	if (buf_str(&path) != NULL)
		rc = ku_client_patch(a->client, buf_str(&path), patch, DEADLINE_MS, on_written, t,
				     err);
	buf_fini(&path);
	return rc;
}

/* The next one that differs; those that do not are forgotten. Under the lock. */
static struct ex_total *next_total(struct ex_api *a, int64_t now)
{
	struct ex_total *t, *next;

	HASH_ITER(hh, a->totals, t, next) {
		if (!t->busy && (t->gone || t->has_mib == t->want_mib)) {
			/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
			HASH_DEL(a->totals, t);
			total_free(t);
		} else if (!t->busy && t->due_us <= now) {
			t->busy = true;
			return t;
		}
	}
	return NULL;
}

void ex_api_totals_run(struct ex_api *a)
{
	struct ex_total *t;
	struct err err = ERR_INIT;
	char why[64];
	int64_t mib = 0;

	if (!a->cfg.totals || !ex_api_ready(a, why, sizeof(why)))
		return;
	do {
		pthread_mutex_lock(&a->lock);
		t = next_total(a, ex_api_now_us(a));
		if (t != NULL)
			mib = t->want_mib;
		pthread_mutex_unlock(&a->lock);
		if (t != NULL && write_total(a, t, mib, &err) < 0) {
			pthread_mutex_lock(&a->lock);
			t->busy = false;
			t->due_us = ex_api_now_us(a) + RETRY_US;
			pthread_mutex_unlock(&a->lock);
		}
	} while (t != NULL);
}

void ex_api_totals_fini(struct ex_api *a)
{
	struct ex_total *t, *next;

	HASH_ITER(hh, a->totals, t, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(a->totals, t);
		total_free(t);
	}
}

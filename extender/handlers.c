#include <stdlib.h>
#include <string.h>

#include "extender/admit.h"
#include "extender/json.h"
#include "extender/page.h"
#include "extender/server_internal.h"
#include "extender/view.h"

/* ---- the scheduler's verbs ---- */

/* With an API server: false, and the answer says why, where nothing may be decided now. */
static bool may_answer(struct ex_exchange *x)
{
	struct ex_api *api = ex_exchange_config(x)->api;
	char why[300];

	if (api == NULL || ex_api_ready(api, why, sizeof(why)))
		return true;
	x->route->refuse(x, why);
	ex_exchange_failed(x, why);
	return false;
}

static struct ex_exchange *of_hold(struct ex_api_hold *h)
{
	return (struct ex_exchange *)((char *)h - offsetof(struct ex_exchange, hold));
}

static void park_hold(struct ex_api_hold *h)
{
	ex_exchange_park(of_hold(h));
}

static void wake_hold(struct ex_api_hold *h)
{
	ex_exchange_again(of_hold(h));
}

/* No node passes, and not because of what the pod asks for. */
static bool nothing_passes(const struct ex_exchange *x)
{
	return x->scratch.tally[EX_OK] == 0 && x->scratch.tally[EX_REQUEST] == 0 &&
	       x->scratch.verdicts.count > 0;
}

static void run_filter(struct ex_exchange *x)
{
	const struct ex_server_config *cfg = ex_exchange_config(x);
	struct err err = ERR_INIT;
	enum ex_api_held held;
	uint64_t seen;

	x->hold.park = park_hold;
	x->hold.wake = wake_hold;
	do {
		held = EX_API_ANSWER;
		buf_reset(&x->out);
		if (!may_answer(x))
			return;
		seen = cfg->api != NULL ? ex_api_room(cfg->api) : 0;
		if (ex_verb_filter(cfg->service, &x->scratch, x->in.data, x->in.len, &x->out,
				   &err) < 0)
			ex_exchange_failed(x, err.msg);
		else if (cfg->api != NULL && nothing_passes(x))
			held = ex_api_hold(cfg->api, &x->hold, seen);
	} while (held == EX_API_AGAIN);
	if (held == EX_API_HELD)
		return; /* x may be another thread's by now */
	ex_metrics_verdicts(cfg->metrics, x->scratch.tally);
	ex_verb_filter_tell(&x->scratch, cfg->log);
}

static void run_prioritize(struct ex_exchange *x)
{
	const struct ex_server_config *cfg = ex_exchange_config(x);
	struct err err = ERR_INIT;

	if (!may_answer(x))
		return;
	if (ex_verb_prioritize(cfg->service, &x->scratch, x->in.data, x->in.len, cfg->score_rest,
			       &x->out, &err) < 0)
		ex_exchange_failed(x, err.msg);
}

static void run_preempt(struct ex_exchange *x)
{
	struct err err = ERR_INIT;

	if (!may_answer(x))
		return;
	if (ex_verb_preempt(ex_exchange_config(x)->service, &x->scratch, x->in.data, x->in.len,
			    &x->out, &err) < 0)
		ex_exchange_failed(x, err.msg);
}

static void refuse_filter(struct ex_exchange *x, const char *text)
{
	ex_wire_filter_error(&x->out, text);
}

static void refuse_prioritize(struct ex_exchange *x, const char *text)
{
	(void)text; /* the reply has no place for it */
	buf_puts(&x->out, "[]");
}

static void refuse_bind(struct ex_exchange *x, const char *text)
{
	ex_wire_bind(&x->out, text);
}

static void refuse_preempt(struct ex_exchange *x, const char *text)
{
	const struct ex_preemption none = {0};

	ex_wire_preempt(&x->out, &none, text);
}

/* ---- bind and release: the reply may have to wait for the journal ---- */

static void answer_op(struct ex_exchange *x, int rc, const struct err *err)
{
	struct ex_json j = {.b = &x->out};

	if (!x->op.release) {
		ex_wire_bind(&x->out, rc < 0 ? err->msg : "");
		if (rc < 0)
			ex_exchange_failed(x, err->msg);
		return;
	}
	if (rc < 0) {
		ex_exchange_error(x,
				  rc == ERR_NOT_FOUND ? MHD_HTTP_NOT_FOUND
				  : rc == ERR_INVALID ? MHD_HTTP_BAD_REQUEST
						      : MHD_HTTP_INTERNAL_SERVER_ERROR,
				  err->msg);
		return;
	}
	ex_json_begin(&j, '{');
	ex_json_key_bool(&j, "released", true);
	ex_json_end(&j, '}');
}

/* In the journal's thread. */
static void op_done(struct ex_journal_entry *e, int rc, const struct err *err)
{
	struct ex_op *op = (struct ex_op *)e; /* entry is its first member */
	struct ex_exchange *x =
		(struct ex_exchange *)((char *)op - offsetof(struct ex_exchange, op));
	struct err own = *err;

	if (rc < 0)
		atomic_fetch_add(&ex_exchange_config(x)->metrics->journal_errors, 1);
	rc = ex_service_settle(ex_exchange_config(x)->service, op, rc, &own);
	answer_op(x, rc, &own);
	ex_exchange_resume(x);
}

/* rc as ex_service_bind() and ex_service_release() return it. */
static void run_op(struct ex_exchange *x, int rc, const struct err *err)
{
	if (rc != 1) {
		answer_op(x, rc, err);
		return;
	}
	x->op.entry.done = op_done;
	ex_exchange_park(x);
	ex_service_submit(ex_exchange_config(x)->service, &x->op);
}

/* In any thread. */
static void api_done(struct ex_api_waiter *w, int rc, const struct err *err)
{
	struct ex_exchange *x =
		(struct ex_exchange *)((char *)w - offsetof(struct ex_exchange, waiter));

	answer_op(x, rc, err);
	ex_exchange_resume(x);
}

static void run_bind(struct ex_exchange *x)
{
	struct ex_api *api = ex_exchange_config(x)->api;
	struct ex_bind_args args = {0};
	struct err err = ERR_INIT;
	int rc;

	if (!may_answer(x))
		return;
	x->op.release = false;
	rc = ex_wire_bind_parse(x->in.data, x->in.len, &args, &err);
	if (rc == 0 && api != NULL) {
		x->waiter.done = api_done;
		ex_exchange_park(x);
		ex_api_bind(api, &args, &x->waiter);
		ex_bind_args_fini(&args);
		return;
	}
	if (rc == 0)
		rc = ex_service_bind(ex_exchange_config(x)->service, &args, &x->op, &err);
	ex_bind_args_fini(&args);
	run_op(x, rc, &err);
}

static void run_release(struct ex_exchange *x)
{
	struct err err = ERR_INIT;
	char *uid = NULL;
	int rc;

	if (ex_exchange_config(x)->api != NULL) {
		ex_exchange_error(x, MHD_HTTP_NOT_FOUND,
				  "the API server tells which pods are gone; delete the pod there");
		return;
	}
	x->op.release = true;
	rc = ex_release_parse(x->in.data, x->in.len, &uid, &err);
	if (rc == 0)
		rc = ex_service_release(ex_exchange_config(x)->service, uid, &x->op, &err);
	free(uid);
	run_op(x, rc, &err);
}

/* ---- admission ---- */

static void run_review(struct ex_exchange *x, bool mutate, bool namespace_labelled)
{
	const struct ex_server_config *cfg = ex_exchange_config(x);
	const struct ex_admit how = {
		.service = cfg->service,
		.mutate = mutate,
		.scheduler = cfg->set_scheduler != EX_SET_NONE ? cfg->scheduler : "",
		.unlabelled = namespace_labelled || cfg->set_scheduler == EX_SET_ALL,
		.refuse_privileged = cfg->refuse_privileged,
	};
	enum ex_admit_verdict verdict;
	struct err err = ERR_INIT;

	if (ex_admit_review(&how, x->in.data, x->in.len, &x->out, &verdict, &err) < 0) {
		ex_exchange_error(x, MHD_HTTP_BAD_REQUEST, err.msg);
		ex_exchange_failed(x, err.msg);
	}
	atomic_fetch_add(&cfg->metrics->admissions[verdict], 1);
}

static void run_validate(struct ex_exchange *x)
{
	run_review(x, false, false);
}

static void run_mutate(struct ex_exchange *x)
{
	run_review(x, true, false);
}

/* The API server asks here about the pods of a namespace with EX_SCHEDULER_LABEL: it knows the labels. */
static void run_mutate_labelled(struct ex_exchange *x)
{
	run_review(x, true, true);
}

/* ---- looking in ---- */

static void run_health(struct ex_exchange *x)
{
	buf_puts(&x->out, "ok\n");
}

static void run_ready(struct ex_exchange *x)
{
	const struct ex_server_config *cfg = ex_exchange_config(x);
	char text[300] = "";
	const char *why = text;

	if (cfg->api != NULL ? ex_api_ready(cfg->api, text, sizeof(text))
			     : ex_service_ready(cfg->service, &why)) {
		buf_puts(&x->out, "ok\n");
		return;
	}
	x->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	buf_printf(&x->out, "%s\n", why);
}

static void run_cluster(struct ex_exchange *x)
{
	struct err err = ERR_INIT;
	struct ex_view view;

	if (ex_view_capture(ex_exchange_config(x)->service, x->scratch.arena, &view, &err) < 0)
		ex_exchange_error(x, MHD_HTTP_INTERNAL_SERVER_ERROR, err.msg);
	else
		ex_view_json(&view, &x->out);
}

static void run_metrics(struct ex_exchange *x)
{
	const struct ex_server_config *cfg = ex_exchange_config(x);
	struct ex_service_counts counts;
	struct err err = ERR_INIT;
	struct ex_view view;
	struct ex_api_stats api;
	char text[300];
	const char *why;

	if (cfg->api != NULL)
		ex_api_get_stats(cfg->api, &api);
	if (ex_view_capture(cfg->service, x->scratch.arena, &view, &err) < 0) {
		ex_exchange_error(x, MHD_HTTP_INTERNAL_SERVER_ERROR, err.msg);
		return;
	}
	ex_service_counts(cfg->service, &counts);
	ex_metrics_text(cfg->metrics, &counts, cfg->api != NULL ? &api : NULL, &view,
			cfg->api != NULL ? ex_api_ready(cfg->api, text, sizeof(text))
					 : ex_service_ready(cfg->service, &why),
			&x->out);
}

static void run_page(struct ex_exchange *x)
{
	buf_puts(&x->out, ex_page_html);
}

#define PLAIN "text/plain; charset=utf-8"

#define PROM "text/plain; version=0.0.4; charset=utf-8"
#define HTML "text/html; charset=utf-8"

#define SMALL ((size_t)1 << 20)
#define REVIEW ((size_t)4 << 20) /* an API server takes objects of 3 MiB at most */

const struct ex_route ex_routes[] = {
	{"filter", true, "POST", EX_VERB_FILTER, run_filter, refuse_filter, NULL, true, 0},
	{"prioritize", true, "POST", EX_VERB_PRIORITIZE, run_prioritize, refuse_prioritize, NULL,
	 true, 0},
	{"bind", true, "POST", EX_VERB_BIND, run_bind, refuse_bind, NULL, true, SMALL},
	{"preempt", true, "POST", EX_VERB_PREEMPT, run_preempt, refuse_preempt, NULL, true, 0},
	{"/api/v1/pods/release", false, "POST", EX_VERB_RELEASE, run_release, NULL, NULL, true,
	 SMALL},
	{"/validate", false, "POST", EX_VERB_VALIDATE, run_validate, NULL, NULL, false, REVIEW},
	{"/mutate", false, "POST", EX_VERB_MUTATE, run_mutate, NULL, NULL, false, REVIEW},
	{"/mutate/scheduler", false, "POST", EX_VERB_MUTATE, run_mutate_labelled, NULL, NULL, false,
	 REVIEW},
	{"/api/v1/cluster", false, "GET", EX_VERB_CLUSTER, run_cluster, NULL, NULL, false, 0},
	{"/metrics", false, "GET", EX_VERB_METRICS, run_metrics, NULL, PROM, false, 0},
	{"/healthz", false, "GET", EX_VERB_OTHER, run_health, NULL, PLAIN, false, 0},
	{"/readyz", false, "GET", EX_VERB_OTHER, run_ready, NULL, PLAIN, false, 0},
	{"/", false, "GET", EX_VERB_OTHER, run_page, NULL, HTML, false, 0},
	{NULL, false, NULL, EX_VERB_OTHER, NULL, NULL, NULL, false, 0},
};

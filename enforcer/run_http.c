/* What the agent shows over HTTP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/probe_exec.h"
#include "enforcer/run_internal.h"

/* Ready: what the condition says. Without anything published it is asked for all the same. */
static bool is_ready(struct agent *a, char why[ERR_MSG_CAP])
{
	bool ready;

	pthread_mutex_lock(&a->lock);
	ready = a->condition.reason != NULL && a->condition.status == EN_STATUS_TRUE;
	snprintf(why, ERR_MSG_CAP, "%s",
		 a->condition.reason != NULL ? a->condition.message : "the agent starts");
	pthread_mutex_unlock(&a->lock);
	return ready;
}

/* Takes no lock: whoever hangs may hold one. */
static unsigned healthz(void *ctx, struct buf *out)
{
	struct agent *a = ctx;
	char why[EN_PULSE_TEXT_CAP], quoted[2 * EN_PULSE_TEXT_CAP];
	bool hung = en_pulses_hung(&a->pulses, a->o.hang_s * 1000, why);

	if (hung && !atomic_exchange(&a->hang_said, true))
		log_event(a->log, LOG_LEVEL_ERROR, "thread-hangs", "reason=%s",
			  log_quote(why, quoted, sizeof(quoted)));
	if (!hung)
		atomic_store(&a->hang_said, false);
	buf_printf(out, "%s\n", hung ? why : "ok");
	return hung ? 503 : 200;
}

static unsigned readyz(void *ctx, struct buf *out)
{
	char why[ERR_MSG_CAP];
	bool ready = is_ready(ctx, why);

	buf_printf(out, "%s\n", ready ? "ok" : why);
	return ready ? 200 : 503;
}

static unsigned usage(void *ctx, struct buf *out)
{
	struct agent *a = ctx;
	struct err err = ERR_INIT;

	if (en_usage_json(a->usage, out, &err) == 0)
		return 200;
	buf_reset(out);
	buf_printf(out, "{\"error\":\"%s\"}\n", err.msg);
	return 500;
}

static unsigned metrics(void *ctx, struct buf *out)
{
	struct agent *a = ctx;
	struct en_metrics_view v = {.node = a->o.node,
				    .wall_s = run_wall_s(),
				    .uptime_s = (run_now_ms() - a->started_ms) / 1000,
				    .pulses = &a->pulses,
				    .changes_refused = atomic_load(&a->changes_refused),
				    .stopped = atomic_load(&a->stopped),
				    .has_statics = a->o.static_file[0] != '\0',
				    .static_containers = atomic_load(&a->static_containers),
				    .static_refused = atomic_load(&a->static_refused),
				    .workloads = en_usage_count(a->usage)};
	struct en_measured *rows = NULL;
	struct en_publisher_stats publisher;
	struct en_plugin_stats plugin;
	struct en_nri_figures nri;
	struct en_mps_status mps;
	struct en_mig_stats mig;
	struct en_pods_stats pods;
	uint64_t reports[EN_REPORT_COUNT];
	char why[ERR_MSG_CAP];
	struct en_exec_left left;

	en_exec_look(&left);
	v.tools_left = left.count;
	v.tools_left_ever = left.total;
	if (a->hooks != NULL) {
		v.has_hooks = true;
		v.hook_accept_failures = en_hook_server_failures(a->hooks);
	}
	for (int k = 0; k < EN_REPORT_COUNT; k++)
		reports[k] = atomic_load(&a->reports[k]);
	v.reports = reports;
	v.ready = is_ready(a, why);
	en_plugin_get_stats(a->plugin, &plugin);
	v.plugin = &plugin;
	if (a->nri != NULL) {
		en_nri_get_figures(a->nri, &nri);
		v.nri = &nri;
	}
	if (a->mps != NULL) {
		en_mps_get_status(a->mps, &mps);
		v.mps = &mps;
	}
	if (a->mig != NULL) {
		en_mig_get_stats(a->mig, &mig);
		v.mig = &mig;
	}
	if (a->publisher != NULL) {
		en_publisher_get_stats(a->publisher, &publisher);
		v.publisher = &publisher;
	}
	if (a->pods != NULL) {
		en_pods_get_stats(a->pods, &pods);
		v.pods = &pods;
	}
	(void)en_measurer_rows(a->measurer, &rows, &v.measured_count, NULL);
	v.measured = rows;
	pthread_mutex_lock(
		&a->lock); /* the probe, the report and the condition are replaced under it */
	v.probe = a->probe;
	v.condition = &a->condition;
	v.report = a->report->count > 0 ? a->report : NULL;
	en_metrics_text(&v, out);
	pthread_mutex_unlock(&a->lock);
	free(rows);
	return 200;
}

static unsigned doctor(void *ctx, struct buf *out)
{
	struct agent *a = ctx;
	struct err err = ERR_INIT;
	int r;

	pthread_mutex_lock(&a->lock);
	r = en_doctor_json(a->report, out, &err);
	pthread_mutex_unlock(&a->lock);
	if (r == 0)
		return 200;
	buf_reset(out);
	buf_printf(out, "{\"error\":\"%s\"}\n", err.msg);
	return 500;
}

int run_http_start(struct agent *a, struct err *err)
{
	static const struct en_http_page pages[] = {
		{"/metrics", "text/plain; version=0.0.4", metrics},
		{"/healthz", "text/plain", healthz},
		{"/readyz", "text/plain", readyz},
		{"/api/v1/usage", "application/json", usage},
		{"/api/v1/doctor", "application/json", doctor},
		{0},
	};

	int r = a->o.listen[0] != '\0' ? en_http_start(a->o.listen, pages, a, a->log, &a->http, err)
				       : 0;

	return r < 0 ? err_prefix(err, r, "--listen") : r;
}

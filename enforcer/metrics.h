/* What /metrics prints: one table of families serves the output and METRICS.md. Plain values in, text
 * out. */
#ifndef TESSERA_ENFORCER_METRICS_H
#define TESSERA_ENFORCER_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "enforcer/doctor.h"
#include "enforcer/inventory.h"
#include "enforcer/inventory_publish.h"
#include "enforcer/measure.h"
#include "enforcer/mig.h"
#include "enforcer/mps.h"
#include "enforcer/nri.h"
#include "enforcer/nri_plugin.h"
#include "enforcer/pods.h"
#include "enforcer/probe.h"
#include "enforcer/pulse.h"

/* Everything that is shown. Pointers may be NULL where the part is not there. */
struct en_metrics_view {
	const char *node;
	bool ready;
	const struct en_condition *condition;
	const struct en_probe *probe;
	const struct en_doctor_report *report;
	const struct en_nri_figures *nri;
	const struct en_plugin_stats *plugin;
	const uint64_t *reports; /* EN_REPORT_COUNT of them */
	uint64_t changes_refused, stopped;
	bool has_statics;
	size_t static_containers, static_refused; /* of --static */
	const struct en_mps_status *mps;          /* NULL: not run by us */
	const struct en_mig_stats *mig;
	const struct en_publisher_stats *publisher;
	const struct en_pods_stats *pods;
	size_t measured_count;
	const struct en_measured *measured;
	size_t workloads;
	int64_t wall_s, uptime_s;
	struct en_pulses *pulses;
	size_t tools_left; /* processes of the driver's tools that do not end */
	uint64_t tools_left_ever;
	bool has_hooks;
	uint64_t hook_accept_failures;
};

void en_metrics_text(const struct en_metrics_view *v, struct buf *out);
/* The table that METRICS.md holds. */
void en_metrics_markdown(struct buf *b);

#endif

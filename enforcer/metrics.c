#include "enforcer/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/prom.h"
#include "base/version.h"

enum family {
	BUILD_INFO,
	READY,
	CONDITION,
	UPTIME,
	TOOLS_LEFT,
	TOOLS_LEFT_EVER,
	BUSY,
	HOOK_ACCEPTS,
	CHECK,
	DRIVER,
	GPU_INFO,
	GPU_MEMORY,
	GPU_HEALTHY,
	GPU_FOREIGN,
	GPU_MODE,
	GPU_CLIENTS,
	GPU_REQUEST,
	GPU_LIMIT,
	GPU_PROCESSES,
	GPU_TEMPERATURE,
	GPU_ECC,
	GPU_XID,
	GPU_MIG,
	GPU_INSTANCES,
	MIG_LINGERING,
	MIG_INSTANCES,
	MIG_FAILURES,
	MIG_SWITCHES,
	MPS_STATE,
	MPS_USABLE,
	MPS_CLIENTS,
	MPS_GHOSTS,
	MPS_STARTS,
	MPS_NAMESPACES,
	MPS_DRAINS,
	NRI_SYNCED,
	NRI_CONNECTIONS,
	NRI_CALLS,
	NRI_CALL_MAX,
	CONTAINERS,
	REPORTS,
	STOPPED,
	CHANGES_REFUSED,
	HOLDINGS,
	STATIC,
	NODE_WRITES,
	NODE_IN_SYNC,
	PODS,
	PODS_SYNCED,
	WATCH_PROBLEMS,
	WORKLOADS,
	USED,
	REQUEST,
	LIMIT,
	SM,
	SM_NORMAL,
	LIMIT_HITS,
	EVICTIONS,
	PROCESSES,
	START_TIME,
	RUNNING,
	FAMILY_COUNT,
};

static const char container_labels[] = "namespace, pod, pod_uuid, container, gpu_uuid, gpu";

static const struct prom_family families[FAMILY_COUNT] = {
	[BUILD_INFO] = {"tessera_enforcer_build_info", "gauge", "version", "Always 1."},
	[READY] = {"tessera_enforcer_ready", "gauge", "", "1 when /readyz says so."},
	[CONDITION] = {"tessera_enforcer_condition", "gauge", "status, reason",
		       "1 for the node condition TesseraReady as it is now."},
	[UPTIME] = {"tessera_enforcer_uptime_seconds", "gauge", "", "Since the agent started."},
	[TOOLS_LEFT] = {"tessera_enforcer_tools_left", "gauge", "",
			"Processes of nvidia-smi and of MPS's tool that were killed and do not "
			"end: they hang in the driver."},
	[TOOLS_LEFT_EVER] = {"tessera_enforcer_tools_left_total", "counter", "",
			     "The same, since the agent started."},
	[BUSY] = {"tessera_enforcer_thread_busy_seconds", "gauge", "thread",
		  "Since the thread began what it does; 0: it waits. Beyond --hang-seconds "
		  "/healthz fails."},
	[HOOK_ACCEPTS] = {"tessera_hook_accept_failures_total", "counter", "",
			  "Connections of hooks that could not be taken (no file descriptor, no "
			  "memory), each try."},
	[CHECK] = {"tessera_node_check", "gauge", "check, result",
		   "1 for what a check of the doctor found at last: ok, skip, warn, fail."},
	[DRIVER] = {"tessera_node_driver_info", "gauge", "version",
		    "1 while the driver answers, 0 while it does not."},
	[GPU_INFO] = {"tessera_node_gpu_info", "gauge", "gpu_uuid, gpu, product", "Always 1."},
	[GPU_MEMORY] = {"tessera_node_gpu_memory_bytes", "gauge", "gpu_uuid, gpu",
			"Memory of the GPU."},
	[GPU_HEALTHY] = {"tessera_node_gpu_healthy", "gauge", "gpu_uuid, gpu",
			 "1 when the GPU may be used."},
	[GPU_FOREIGN] = {"tessera_node_gpu_foreign", "gauge", "gpu_uuid, gpu",
			 "1 while somebody holds the GPU whom Tessera did not place there."},
	[GPU_MODE] = {"tessera_node_gpu_mode", "gauge", "gpu_uuid, gpu, mode",
		      "1 for the compute mode that containers run in on the GPU; free: none do."},
	[GPU_CLIENTS] = {"tessera_node_gpu_clients", "gauge", "gpu_uuid, gpu",
			 "Started containers that share the GPU."},
	[GPU_REQUEST] = {"tessera_node_gpu_memory_request_bytes", "gauge", "gpu_uuid, gpu",
			 "Sum of the memory that they are guaranteed."},
	[GPU_LIMIT] = {"tessera_node_gpu_memory_limit_bytes", "gauge", "gpu_uuid, gpu",
		       "Sum of their memory limits."},
	[GPU_PROCESSES] = {"tessera_node_gpu_processes", "gauge", "gpu_uuid, gpu",
			   "Processes with a context on the GPU."},
	[GPU_TEMPERATURE] = {"tessera_node_gpu_temperature_celsius", "gauge", "gpu_uuid, gpu",
			     "Where the driver tells it."},
	[GPU_ECC] = {"tessera_node_gpu_ecc_uncorrected_total", "counter", "gpu_uuid, gpu",
		     "Uncorrected memory errors since the driver was loaded, where it tells them."},
	[GPU_XID] = {"tessera_node_gpu_last_xid", "gauge", "gpu_uuid, gpu",
		     "Number of the last XID error; 0: none."},
	[GPU_MIG] = {"tessera_node_gpu_mig_enabled", "gauge", "gpu_uuid, gpu",
		     "1 while MIG is on."},
	[GPU_INSTANCES] = {"tessera_node_gpu_mig_instances", "gauge", "gpu_uuid, gpu, whose",
			   "MIG instances present: own; held, given to a pod by a device plugin; "
			   "cut, beforehand and free (--mig=static); foreign."},
	[MIG_LINGERING] = {"tessera_mig_lingering", "gauge", "",
			   "Own instances that no container holds, kept for equal requests."},
	[MIG_INSTANCES] = {"tessera_mig_instances_total", "counter", "what",
			   "made; reused, lingering ones; removed; vanished, removed by others."},
	[MIG_FAILURES] =
		{"tessera_mig_failures_total", "counter", "reason",
		 "Requests refused: no-room, by the driver; occupied, an instance in use or "
		 "of others is there; mode, not in MIG mode; driver, else. And remove: an "
		 "idle instance that could not be removed, each try."},
	[MIG_SWITCHES] = {"tessera_mig_mode_switches_total", "counter", "to",
			  "MIG modes switched by this agent: on, off."},
	[MPS_STATE] = {"tessera_mps_state", "gauge", "state",
		       "1 for the state of the MPS control daemon; absent where it is not ours."},
	[MPS_USABLE] = {"tessera_mps_usable", "gauge", "", "1 when containers may start on MPS."},
	[MPS_CLIENTS] = {"tessera_mps_clients", "gauge", "", "Clients of MPS at the last look."},
	[MPS_GHOSTS] = {"tessera_mps_ghosts", "gauge", "", "Of them, those whose process is gone."},
	[MPS_STARTS] = {"tessera_mps_starts_total", "counter", "",
			"Control daemons started by this agent."},
	[MPS_NAMESPACES] = {"tessera_mps_namespaces", "gauge", "state",
			    "Namespaces of containers: wanted; bad, those without their share."},
	[MPS_DRAINS] = {"tessera_mps_drains_total", "counter", "result",
			"Containers whose clients were ended before the kill: all, failed."},
	[NRI_SYNCED] = {"tessera_nri_synchronized", "gauge", "",
			"1 while the container runtime tells us of its containers."},
	[NRI_CONNECTIONS] = {"tessera_nri_connections_total", "counter", "result",
			     "Connections to the runtime: synchronized; lost or not made."},
	[NRI_CALLS] = {"tessera_nri_calls_total", "counter", "result",
		       "Calls of the runtime: all; late, answered with an error."},
	[NRI_CALL_MAX] = {"tessera_nri_call_max_seconds", "gauge", "",
			  "The longest call since the agent started."},
	[CONTAINERS] = {"tessera_containers_total", "counter", "verdict",
			"Containers made: given a share; hidden, no GPU; left alone."},
	[REPORTS] = {"tessera_container_reports_total", "counter", "kind",
		     "refused; let-go (fail-open); slipped, found without what it should have; "
		     "limits-repaired; limits-failed; limits-changed."},
	[STOPPED] = {"tessera_containers_stopped_total", "counter", "",
		     "Containers stopped because they had slipped (--stop-slipped)."},
	[CHANGES_REFUSED] = {"tessera_limit_changes_refused_total", "counter", "",
			     "Changed allocations of running pods that cannot be applied."},
	[HOLDINGS] = {"tessera_containers_holding", "gauge", "",
		      "Containers that hold a part of a GPU now."},
	[STATIC] =
		{"tessera_static_containers", "gauge", "state",
		 "Containers of the file of --static: all; and refused, those whose allocation this "
		 "node cannot keep (in the log)."},
	[NODE_WRITES] = {"tessera_node_writes_total", "counter", "result",
			 "Patches of the Node: sent; and requests about it that failed."},
	[NODE_IN_SYNC] = {"tessera_node_in_sync", "gauge", "",
			  "1 when the Node carries what it should."},
	[PODS] = {"tessera_node_pods", "gauge", "", "Pods of this node in the API server."},
	[PODS_SYNCED] = {"tessera_node_pods_synced", "gauge", "",
			 "1 when all of them are known and the watch goes on."},
	[WATCH_PROBLEMS] = {"tessera_node_watch_problems_total", "counter", "",
			    "Lists and watches of pods that failed."},
	[WORKLOADS] = {"tessera_usage_workloads", "gauge", "",
		       "Workloads that /api/v1/usage tells the peaks of."},
	[USED] = {"tessera_container_memory_used_bytes", "gauge", container_labels,
		  "Memory in use; absent where it is not known."},
	[REQUEST] = {"tessera_container_memory_request_bytes", "gauge", container_labels,
		     "Memory that is guaranteed."},
	[LIMIT] = {"tessera_container_memory_limit_bytes", "gauge", container_labels,
		   "Memory limit."},
	[SM] = {"tessera_container_sm_utilization_percent", "gauge", container_labels,
		"SM utilisation, of the whole GPU; absent where it is not known."},
	[SM_NORMAL] = {"tessera_container_sm_utilization_percent_normalized", "gauge",
		       container_labels,
		       "The same of its compute share, or else of its share of memory; at most "
		       "100."},
	[LIMIT_HITS] = {"tessera_container_memory_limit_hits_total", "counter", container_labels,
			"Times that memory in use was seen to come within 1 % of the limit."},
	[EVICTIONS] = {"tessera_container_evictions_total", "counter", container_labels,
		       "Processes that lost their context while memory was over the request and "
		       "that lived on, as MPS evicts; one that closed it by itself counts too."},
	[PROCESSES] = {"tessera_container_processes", "gauge", container_labels,
		       "Its processes with a context on the GPU."},
	[START_TIME] = {"tessera_container_start_time_seconds", "gauge", container_labels,
			"When it was started, since the epoch."},
	[RUNNING] = {"tessera_container_running_seconds", "gauge", container_labels,
		     "Since it was started."},
};

/* ---- GPUs ---- */

struct gpu_sums {
	int64_t request_mib, limit_mib;
	unsigned clients;
	enum st_mode mode;
};

static void sums_of(const struct en_metrics_view *v, const char *uuid, struct gpu_sums *ret)
{
	*ret = (struct gpu_sums){.mode = ST_MODE_FREE};
	for (size_t i = 0; i < v->measured_count; i++) {
		const struct en_measured *m = &v->measured[i];

		if (strcmp(m->gpu, uuid) != 0)
			continue;
		ret->mode = m->mode;
		ret->clients++;
		ret->request_mib += m->request_mib;
		ret->limit_mib += m->limit_mib;
	}
}

/* false: the driver does not tell. */
static bool gpu_value(const struct en_metrics_view *v, const struct en_probe_gpu *g, enum family f,
		      int64_t *ret)
{
	struct gpu_sums sums;

	sums_of(v, g->uuid, &sums);
	switch (f) {
	case GPU_MEMORY:
		*ret = (int64_t)g->mem_mib << 20;
		return true;
	case GPU_HEALTHY:
		*ret = g->healthy;
		return true;
	case GPU_FOREIGN:
		*ret = g->foreign[0] != '\0';
		return true;
	case GPU_CLIENTS:
		*ret = sums.clients;
		return true;
	case GPU_REQUEST:
		*ret = sums.request_mib << 20;
		return true;
	case GPU_LIMIT:
		*ret = sums.limit_mib << 20;
		return true;
	case GPU_PROCESSES:
		*ret = g->processes;
		return true;
	case GPU_TEMPERATURE:
		*ret = g->state.temperature_c;
		return *ret > 0;
	case GPU_ECC:
		*ret = g->state.ecc_uncorrected;
		return *ret >= 0;
	case GPU_XID:
		*ret = (int64_t)g->xid;
		return true;
	case GPU_MIG:
		*ret = g->mig_enabled;
		return true;
	default:
		*ret = 1;
		return true;
	}
}

static void put_gpus(const struct en_metrics_view *v, enum family f, struct buf *b)
{
	prom_begin(b, &families[f]);
	for (size_t i = 0; i < v->probe->gpu_count; i++) {
		const struct en_probe_gpu *g = &v->probe->gpus[i];
		struct prom_label labels[3];
		struct gpu_sums sums;
		size_t count = 0;
		char idx[24];
		int64_t n;

		if (!gpu_value(v, g, f, &n))
			continue;
		snprintf(idx, sizeof(idx), "%u", g->index);
		labels[count++] = (struct prom_label){"gpu_uuid", g->uuid};
		labels[count++] = (struct prom_label){"gpu", idx};
		if (f == GPU_INFO)
			labels[count++] = (struct prom_label){"product", g->product};
		if (f == GPU_MODE) {
			sums_of(v, g->uuid, &sums);
			labels[count++] = (struct prom_label){"mode", st_mode_name(sums.mode)};
		}
		prom_labelled(b, &families[f], labels, count, n);
	}
}

/* Whose an instance is. */
enum whose { OWN, HELD, CUT, FOREIGN, WHOSE_COUNT };

static enum whose whose_is(const struct en_probe_gpu *g, const struct en_mig_instance *at)
{
	if (at->ours)
		return OWN;
	if (at->held)
		return HELD;
	return g->mig_static ? CUT : FOREIGN;
}

static void put_instances(const struct en_probe *p, struct buf *b)
{
	static const char *const names[WHOSE_COUNT] = {"own", "held", "cut", "foreign"};

	prom_begin(b, &families[GPU_INSTANCES]);
	for (size_t i = 0; i < p->gpu_count; i++) {
		const struct en_probe_gpu *g = &p->gpus[i];
		int64_t count[WHOSE_COUNT] = {0};
		char idx[24];

		for (size_t k = 0; k < g->instance_count; k++)
			count[whose_is(g, &g->instances[k])]++;
		snprintf(idx, sizeof(idx), "%u", g->index);
		for (int w = 0; w < WHOSE_COUNT && g->mig_enabled; w++) {
			const struct prom_label labels[] = {
				{"gpu_uuid", g->uuid}, {"gpu", idx}, {"whose", names[w]}};

			prom_labelled(b, &families[GPU_INSTANCES], labels, 3, count[w]);
		}
	}
}

/* ---- containers ---- */

static bool container_value(const struct en_metrics_view *v, const struct en_measured *m,
			    enum family f, int64_t *ret)
{
	switch (f) {
	case USED:
		*ret = m->used_mib < 0 ? -1 : m->used_mib << 20;
		return *ret >= 0;
	case REQUEST:
		*ret = (int64_t)m->request_mib << 20;
		return m->request_mib > 0;
	case LIMIT:
		*ret = (int64_t)m->limit_mib << 20;
		return m->limit_mib > 0;
	case SM:
		*ret = m->sm_percent;
		return *ret >= 0;
	case SM_NORMAL:
		*ret = m->sm_normal;
		return *ret >= 0;
	case LIMIT_HITS:
		*ret = (int64_t)m->limit_hits;
		return true;
	case EVICTIONS:
		*ret = (int64_t)m->evictions;
		return true;
	case PROCESSES:
		*ret = m->process_count;
		return true;
	case START_TIME:
		*ret = m->started_s;
		return *ret > 0;
	default:
		*ret = v->wall_s > m->started_s ? v->wall_s - m->started_s : 0;
		return m->started_s > 0;
	}
}

static void put_containers(const struct en_metrics_view *v, enum family f, struct buf *b)
{
	prom_begin(b, &families[f]);
	for (size_t i = 0; i < v->measured_count; i++) {
		const struct en_measured *m = &v->measured[i];
		char idx[24];
		const struct prom_label labels[] = {
			{"namespace", m->ns},        {"pod", m->pod},      {"pod_uuid", m->pod_uid},
			{"container", m->container}, {"gpu_uuid", m->gpu}, {"gpu", idx},
		};
		int64_t n;

		if (!container_value(v, m, f, &n))
			continue;
		snprintf(idx, sizeof(idx), "%u", m->gpu_idx);
		prom_labelled(b, &families[f], labels, sizeof(labels) / sizeof(labels[0]), n);
	}
}

/* ---- the parts ---- */

/* Of several threads of one name the longest. */
static void put_pulses(struct en_pulses *ps, struct buf *b)
{
	size_t count = atomic_load(&ps->count);

	prom_begin(b, &families[BUSY]);
	for (size_t i = 0; i < count; i++) {
		const char *name = ps->at[i].thread;
		int64_t ms = 0;
		bool seen = false;

		for (size_t k = 0; k < count; k++) {
			int64_t one = strcmp(ps->at[k].thread, name) == 0
					      ? en_pulse_busy_ms(&ps->at[k], NULL)
					      : 0;

			ms = one > ms ? one : ms;
			seen = seen || (k < i && strcmp(ps->at[k].thread, name) == 0);
		}
		if (!seen)
			prom_sample(b, &families[BUSY], "thread", name, ms / 1000);
	}
}

static void put_agent(const struct en_metrics_view *v, struct buf *b)
{
	static const char *const status[] = {"False", "True", "Unknown"};

	prom_begin(b, &families[BUILD_INFO]);
	prom_sample(b, &families[BUILD_INFO], "version", TESSERA_VERSION, 1);
	prom_single(b, &families[READY], v->ready);
	if (v->condition != NULL && v->condition->reason != NULL) {
		prom_begin(b, &families[CONDITION]);
		prom_labelled(b, &families[CONDITION],
			      (struct prom_label[]){{"status", status[v->condition->status]},
						    {"reason", v->condition->reason}},
			      2, 1);
	}
	prom_single(b, &families[UPTIME], v->uptime_s);
	prom_single(b, &families[TOOLS_LEFT], (int64_t)v->tools_left);
	prom_single(b, &families[TOOLS_LEFT_EVER], (int64_t)v->tools_left_ever);
	if (v->pulses != NULL)
		put_pulses(v->pulses, b);
	if (v->has_hooks)
		prom_single(b, &families[HOOK_ACCEPTS], (int64_t)v->hook_accept_failures);
	if (v->report == NULL)
		return;
	prom_begin(b, &families[CHECK]);
	for (size_t i = 0; i < v->report->count; i++) {
		const struct en_finding *found = &v->report->findings[i];
		const struct prom_label labels[] = {
			{"check", found->name}, {"result", en_check_result_name(found->result)}};

		prom_labelled(b, &families[CHECK], labels, 2, 1);
	}
}

static void put_mig(const struct en_mig_stats *m, struct buf *b)
{
	const struct prom_family *what = &families[MIG_INSTANCES], *to = &families[MIG_SWITCHES];

	prom_single(b, &families[MIG_LINGERING], (int64_t)m->lingering);
	prom_begin(b, what);
	prom_sample(b, what, "what", "made", (int64_t)m->made);
	prom_sample(b, what, "what", "reused", (int64_t)m->reused);
	prom_sample(b, what, "what", "removed", (int64_t)m->removed);
	prom_sample(b, what, "what", "vanished", (int64_t)m->vanished);
	prom_begin(b, &families[MIG_FAILURES]);
	for (int f = 0; f < EN_MIG_FAILURES; f++)
		prom_sample(b, &families[MIG_FAILURES], "reason",
			    en_mig_failure_name((enum en_mig_failure)f), (int64_t)m->failed[f]);
	prom_begin(b, to);
	prom_sample(b, to, "to", "on", (int64_t)m->switched_on);
	prom_sample(b, to, "to", "off", (int64_t)m->switched_off);
}

static void put_mps(const struct en_mps_status *m, struct buf *b)
{
	prom_begin(b, &families[MPS_STATE]);
	prom_sample(b, &families[MPS_STATE], "state", en_mps_state_name(m->state), 1);
	prom_single(b, &families[MPS_USABLE], m->usable);
	prom_single(b, &families[MPS_CLIENTS], (int64_t)m->clients);
	prom_single(b, &families[MPS_GHOSTS], (int64_t)m->ghosts);
	prom_single(b, &families[MPS_STARTS], (int64_t)m->starts);
	prom_begin(b, &families[MPS_NAMESPACES]);
	prom_sample(b, &families[MPS_NAMESPACES], "state", "wanted", (int64_t)m->namespaces);
	prom_sample(b, &families[MPS_NAMESPACES], "state", "bad", (int64_t)m->namespaces_bad);
	prom_begin(b, &families[MPS_DRAINS]);
	prom_sample(b, &families[MPS_DRAINS], "result", "all", (int64_t)m->drains);
	prom_sample(b, &families[MPS_DRAINS], "result", "failed", (int64_t)m->drain_failures);
}

static void put_nri(const struct en_nri_figures *n, struct buf *b)
{
	prom_single(b, &families[NRI_SYNCED], n->synchronized);
	prom_begin(b, &families[NRI_CONNECTIONS]);
	prom_sample(b, &families[NRI_CONNECTIONS], "result", "synchronized",
		    (int64_t)n->connections);
	prom_sample(b, &families[NRI_CONNECTIONS], "result", "lost", (int64_t)n->failures);
	prom_begin(b, &families[NRI_CALLS]);
	prom_sample(b, &families[NRI_CALLS], "result", "all", (int64_t)n->calls);
	prom_sample(b, &families[NRI_CALLS], "result", "late", (int64_t)n->late);
	prom_begin(b, &families[NRI_CALL_MAX]);
	prom_name(b, &families[NRI_CALL_MAX], "", NULL, 0);
	prom_decimal(b, n->worst_us, 6);
}

static void put_plugin(const struct en_metrics_view *v, struct buf *b)
{
	const struct en_plugin_stats *s = v->plugin;

	prom_begin(b, &families[CONTAINERS]);
	prom_sample(b, &families[CONTAINERS], "verdict", "given", (int64_t)s->given);
	prom_sample(b, &families[CONTAINERS], "verdict", "hidden", (int64_t)s->hidden);
	prom_sample(b, &families[CONTAINERS], "verdict", "left", (int64_t)s->left);
	prom_begin(b, &families[REPORTS]);
	for (int k = 0; v->reports != NULL && k < EN_REPORT_COUNT; k++)
		prom_sample(b, &families[REPORTS], "kind", en_report_name((enum en_report_kind)k),
			    (int64_t)v->reports[k]);
	prom_single(b, &families[STOPPED], (int64_t)v->stopped);
	prom_single(b, &families[CHANGES_REFUSED], (int64_t)v->changes_refused);
	prom_single(b, &families[HOLDINGS], (int64_t)s->holdings);
}

static void put_api(const struct en_metrics_view *v, struct buf *b)
{
	if (v->publisher != NULL) {
		prom_begin(b, &families[NODE_WRITES]);
		prom_sample(b, &families[NODE_WRITES], "result", "sent",
			    (int64_t)v->publisher->writes);
		prom_sample(b, &families[NODE_WRITES], "result", "failed",
			    (int64_t)v->publisher->failures);
		prom_single(b, &families[NODE_IN_SYNC], v->publisher->in_sync);
	}
	if (v->pods != NULL) {
		prom_single(b, &families[PODS], (int64_t)v->pods->pods);
		prom_single(b, &families[PODS_SYNCED], v->pods->synced);
		prom_single(b, &families[WATCH_PROBLEMS], (int64_t)v->pods->problems);
	}
}

void en_metrics_text(const struct en_metrics_view *v, struct buf *out)
{
	put_agent(v, out);
	if (v->probe != NULL) {
		prom_begin(out, &families[DRIVER]);
		prom_sample(out, &families[DRIVER], "version", v->probe->driver,
			    v->probe->driver_ok);
		for (int f = GPU_INFO; f <= GPU_MIG; f++)
			put_gpus(v, (enum family)f, out);
		put_instances(v->probe, out);
	}
	if (v->mig != NULL)
		put_mig(v->mig, out);
	if (v->mps != NULL)
		put_mps(v->mps, out);
	if (v->nri != NULL)
		put_nri(v->nri, out);
	if (v->plugin != NULL)
		put_plugin(v, out);
	if (v->has_statics) {
		prom_begin(out, &families[STATIC]);
		prom_sample(out, &families[STATIC], "state", "all", (int64_t)v->static_containers);
		prom_sample(out, &families[STATIC], "state", "refused", (int64_t)v->static_refused);
	}
	put_api(v, out);
	prom_single(out, &families[WORKLOADS], (int64_t)v->workloads);
	for (int f = USED; f <= RUNNING; f++)
		put_containers(v, (enum family)f, out);
}

void en_metrics_markdown(struct buf *b)
{
	prom_markdown(b, families, FAMILY_COUNT);
}

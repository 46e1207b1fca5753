#include "extender/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/prom.h"
#include "extender/options.h"

/* ---- families ---- */

enum family {
	BUILD_INFO,
	READY,
	REQUESTS,
	REQUEST_ERRORS,
	REQUEST_SECONDS,
	CONNECTIONS,
	NODE_VERDICTS,
	BINDS,
	RELEASES,
	JOURNAL_ERRORS,
	PODS_LEARNED,
	PRICES_PUBLISHED,
	PODS_CACHED,
	NOMINATIONS,
	NODES,
	PODS,
	GPUS,
	GPUS_TAKEN,
	GPUS_TWIN,
	FRAGMENTED_GPUS,
	IDLE_GPUS,
	GPU_ALLOCATABLE,
	GPU_BOOKED,
	GPU_LIMIT,
	GPU_CLIENTS,
	GPU_MODE,
	ADMISSIONS,
	/* with an API server only, from LEADER on */
	LEADER,
	AUTH_FAILED,
	BIND_POSTS,
	BINDS_SETTLED,
	BINDS_WAITING,
	BINDS_UNSETTLED,
	BIND_POST_DELAY,
	BIND_POST_DELAY_MAX,
	REFUSALS_HELD,
	API_REQUESTS,
	WATCH_EVENTS,
	WATCH_LISTS,
	WATCH_PROBLEMS,
	WATCHES_DEAD,
	WATCH_OBJECTS,
	WATCH_SYNCED,
	WATCH_LAG,
	OBJECTS_INVALID,
	UNREADABLE,
	PODS_HELD,
	NODE_TOTALS,
	LIMIT_CHANGES,
	EVENTS,
	FAMILY_COUNT,
};

static const struct prom_family families[FAMILY_COUNT] = {
	[BUILD_INFO] = {"tessera_build_info", "gauge", "version, policy", "Always 1."},
	[READY] = {"tessera_ready", "gauge", "", "1 when binds can succeed, as /readyz says."},
	[REQUESTS] = {"tessera_requests_total", "counter", "verb, code", "HTTP requests answered."},
	[REQUEST_ERRORS] = {"tessera_request_errors_total", "counter", "verb",
			    "Answers that say the request failed, those with code 200 included."},
	[REQUEST_SECONDS] = {"tessera_request_seconds", "histogram", "verb",
			     "From the request's head to its answer, the body's arrival included."},
	[CONNECTIONS] = {"tessera_connections", "gauge", "", "Open HTTP connections."},
	[NODE_VERDICTS] = {"tessera_node_verdicts_total", "counter", "verdict",
			   "Nodes judged by filter, by what was found."},
	[BINDS] = {"tessera_binds_total", "counter", "outcome",
		   "Binds: bound; repeated (was bound there already); refused (no room any more); "
		   "unknown_pod (not seen by filter lately); failed (the journal)."},
	[RELEASES] = {"tessera_releases_total", "counter", "", "Pods released."},
	[JOURNAL_ERRORS] = {"tessera_journal_errors_total", "counter", "",
			    "Records that could not be written."},
	[PODS_LEARNED] = {"tessera_pods_learned_total", "counter", "",
			  "Pods counted into the workload that fragmentation is measured for."},
	[PRICES_PUBLISHED] =
		{"tessera_prices_published_total", "counter", "",
		 "Times that bid-price put new prices in use (about every 20 pods); 0 with other "
		 "policies. Where it stands still while pods come, the old prices are used on."},
	[PODS_CACHED] = {"tessera_pods_cached", "gauge", "",
			 "Pods whose request is kept for their bind."},
	[NOMINATIONS] = {"tessera_nominations", "gauge", "",
			 "Preempting pods that room is kept for."},
	[NODES] = {"tessera_nodes", "gauge", "state", "Nodes: ready, unready, fenced."},
	[PODS] = {"tessera_pods", "gauge", "state", "Pods that hold something, by state."},
	[GPUS] = {"tessera_gpus", "gauge", "mode", "GPUs by compute mode."},
	[GPUS_TAKEN] = {"tessera_gpus_taken", "gauge", "",
			"GPUs that are unhealthy, gone or held by others."},
	[GPUS_TWIN] =
		{"tessera_gpus_on_two_nodes", "gauge", "",
		 "GPUs that another node has under the same UUID, too: given away by neither."},
	[FRAGMENTED_GPUS] = {"tessera_fragmented_gpus", "gauge", "",
			     "GPUs' worth of idle room that the expected workload cannot use."},
	[IDLE_GPUS] = {"tessera_idle_gpus", "gauge", "", "GPUs' worth of idle room."},
	[GPU_ALLOCATABLE] = {"tessera_gpu_memory_allocatable_bytes", "gauge", "node, gpu",
			     "Memory of the GPU that can be given away."},
	[GPU_BOOKED] = {"tessera_gpu_memory_booked_bytes", "gauge", "node, gpu",
			"Memory of the GPU that is given away."},
	[GPU_LIMIT] = {"tessera_gpu_memory_limit_bytes", "gauge", "node, gpu",
		       "Sum of the memory limits of shares on the GPU; 0 where it is in exclusive "
		       "use or has MIG."},
	[GPU_CLIENTS] = {"tessera_gpu_clients", "gauge", "node, gpu",
			 "Containers that share the GPU."},
	[GPU_MODE] = {"tessera_gpu_mode", "gauge", "node, gpu, mode",
		      "1 for the compute mode that the GPU is in."},
	[ADMISSIONS] = {"tessera_admissions_total", "counter", "verdict",
			"Admission reviews: allowed, changed, refused, failed."},
	[LEADER] = {"tessera_leader", "gauge", "", "1 while this replica leads."},
	[AUTH_FAILED] = {"tessera_api_auth_failed", "gauge", "",
			 "1 while the API server answers 401 to us."},
	[BIND_POSTS] =
		{"tessera_bind_posts_total", "counter", "outcome",
		 "Bindings sent to the API server: ok, refused, unknown (no answer, 429, 5xx)."},
	[BINDS_SETTLED] = {"tessera_binds_settled_total", "counter", "outcome",
			   "Binds whose outcome only reading the pod told: bound; gone."},
	[BINDS_WAITING] = {"tessera_binds_waiting", "gauge", "",
			   "Binds that a scheduler waits for."},
	[BINDS_UNSETTLED] =
		{"tessera_binds_unsettled", "gauge", "",
		 "Binds answered with an error whose outcome is still open: their GPUs stay "
		 "reserved."},
	[BIND_POST_DELAY] = {"tessera_bind_post_delay_seconds", "histogram", "",
			     "From the arrival of a bind to its first POST."},
	[BIND_POST_DELAY_MAX] = {"tessera_bind_post_delay_max_seconds", "gauge", "",
				 "The longest of these."},
	[REFUSALS_HELD] = {"tessera_refusals_held_total", "counter", "",
			   "Refusals of filter that waited a moment for room to appear."},
	[API_REQUESTS] =
		{"tessera_api_requests_total", "counter", "result",
		 "Requests to the API server: all; and of them retried, failed (no answer), "
		 "throttled (429), unauthorized (401)."},
	[WATCH_EVENTS] = {"tessera_watch_events_total", "counter", "kind",
			  "Objects told by watches: nodes, pods."},
	[WATCH_LISTS] = {"tessera_watch_lists_total", "counter", "kind", "Complete lists."},
	[WATCH_PROBLEMS] = {"tessera_watch_problems_total", "counter", "kind",
			    "Lists and watches that failed."},
	[WATCHES_DEAD] =
		{"tessera_watches_dead_total", "counter", "kind",
		 "Watches that were open and brought nothing (--watch-silence): begun again."},
	[WATCH_OBJECTS] = {"tessera_watch_objects", "gauge", "kind", "Objects in sight."},
	[WATCH_SYNCED] = {"tessera_watch_synced", "gauge", "kind",
			  "1 when the list is complete and the watch goes on from there."},
	[WATCH_LAG] = {"tessera_watch_lag_seconds", "gauge", "kind",
		       "For how long the part of a watch that is being worked on has waited."},
	[OBJECTS_INVALID] = {"tessera_objects_invalid_total", "counter", "kind",
			     "Node objects, and requests of pods, that could not be used."},
	[UNREADABLE] =
		{"tessera_allocations_unreadable_total", "counter", "",
		 "Bound pods whose allocation could not be read or booked: their nodes are fenced."},
	[PODS_HELD] = {"tessera_pods_held", "gauge", "",
		       "Bound pods that cannot be booked at present."},
	[NODE_TOTALS] = {"tessera_node_totals_total", "counter", "result",
			 "Node totals written to node status: ok, failed."},
	[LIMIT_CHANGES] =
		{"tessera_memory_limit_changes_total", "counter", "result",
		 "Wishes for another memory limit of a container that runs: written, refused "
		 "(with an event), failed (the API server), stale (the pod had changed)."},
	[EVENTS] = {"tessera_events_total", "counter", "result", "Events: sent, dropped."},
};

static const unsigned codes[EX_CODES_COUNT] = EX_CODES;

/* Upper bounds in microseconds. */
static const int64_t bounds_us[EX_LATENCY_BUCKETS] = {
	50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000};

const char *ex_verb_name(enum ex_verb v)
{
	static const char *const names[EX_VERB_COUNT] = {
		[EX_VERB_FILTER] = "filter",   [EX_VERB_PRIORITIZE] = "prioritize",
		[EX_VERB_BIND] = "bind",       [EX_VERB_PREEMPT] = "preempt",
		[EX_VERB_RELEASE] = "release", [EX_VERB_VALIDATE] = "validate",
		[EX_VERB_MUTATE] = "mutate",   [EX_VERB_CLUSTER] = "cluster",
		[EX_VERB_METRICS] = "metrics", [EX_VERB_OTHER] = "other",
	};

	return names[v];
}

/* ---- counting ---- */

static void add(_Atomic uint64_t *at, uint64_t n)
{
	atomic_fetch_add_explicit(at, n, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

unsigned ex_latency_bucket(int64_t ns)
{
	unsigned b = 0;

	while (b < EX_LATENCY_BUCKETS && ns > bounds_us[b] * 1000)
		b++;
	return b;
}

void ex_metrics_request(struct ex_metrics *m, enum ex_verb verb, unsigned code, bool error,
			int64_t ns)
{
	unsigned i = 0;

	while (i + 1 < EX_CODES_COUNT && codes[i] != code)
		i++;
	add(&m->requests[verb][i], 1);
	add(&m->latency[verb][ex_latency_bucket(ns)], 1);
	add(&m->latency_sum_ns[verb], ns > 0 ? (uint64_t)ns : 0);
	if (error)
		add(&m->errors[verb], 1);
}

void ex_metrics_verdicts(struct ex_metrics *m, const uint32_t tally[EX_CODE_COUNT])
{
	for (int i = 0; i < EX_CODE_COUNT; i++) {
		if (tally[i] > 0)
			add(&m->verdicts[i], tally[i]);
	}
}

/* ---- text ---- */

/* A family of one sample in units of 10^-digits. */
static void single_decimal(struct buf *b, enum family f, int64_t v, unsigned digits)
{
	prom_begin(b, &families[f]);
	prom_name(b, &families[f], "", NULL, 0);
	prom_decimal(b, v, digits);
}

static void put_requests(const struct ex_metrics *m, struct buf *b)
{
	prom_begin(b, &families[REQUESTS]);
	for (int v = 0; v < EX_VERB_COUNT; v++) {
		for (int i = 0; i < EX_CODES_COUNT; i++) {
			uint64_t n = get(&m->requests[v][i]);
			char code[12];

			snprintf(code, sizeof(code), "%u", codes[i]);
			if (n > 0)
				prom_labelled(b, &families[REQUESTS],
					      (struct prom_label[]){{"verb",
								     ex_verb_name((enum ex_verb)v)},
								    {"code", code}},
					      2, (int64_t)n);
		}
	}
	prom_begin(b, &families[REQUEST_ERRORS]);
	for (int v = 0; v < EX_VERB_COUNT; v++)
		prom_sample(b, &families[REQUEST_ERRORS], "verb", ex_verb_name((enum ex_verb)v),
			    (int64_t)get(&m->errors[v]));
}

/* verb NULL: a histogram without that label. */
static void put_buckets(const uint64_t counts[EX_LATENCY_BUCKETS + 1], uint64_t ns, enum family f,
			const char *verb, struct buf *b)
{
	char bound[24] = "";
	const struct prom_label labels[] = {{"verb", verb}, {"le", bound}};
	size_t skip = verb == NULL, with_verb = verb != NULL;
	uint64_t sum = 0;

	for (int i = 0; i <= EX_LATENCY_BUCKETS; i++) {
		sum += counts[i];
		if (i < EX_LATENCY_BUCKETS)
			snprintf(bound, sizeof(bound), "%lld.%06d",
				 (long long)(bounds_us[i] / 1000000),
				 (int)(bounds_us[i] % 1000000));
		else
			snprintf(bound, sizeof(bound), "+Inf");
		prom_name(b, &families[f], "_bucket", labels + skip, 2 - skip);
		prom_value(b, (int64_t)sum);
	}
	prom_name(b, &families[f], "_sum", labels, with_verb);
	prom_decimal(b, (int64_t)ns, 9);
	prom_name(b, &families[f], "_count", labels, with_verb);
	prom_value(b, (int64_t)sum);
}

static void put_histogram(const struct ex_metrics *m, enum ex_verb v, struct buf *b)
{
	uint64_t counts[EX_LATENCY_BUCKETS + 1];

	for (int i = 0; i <= EX_LATENCY_BUCKETS; i++)
		counts[i] = get(&m->latency[v][i]);
	put_buckets(counts, get(&m->latency_sum_ns[v]), REQUEST_SECONDS, ex_verb_name(v), b);
}

static void put_counts(const struct ex_metrics *m, const struct ex_service_counts *n, struct buf *b)
{
	prom_begin(b, &families[NODE_VERDICTS]);
	for (int i = 0; i < EX_CODE_COUNT; i++)
		prom_sample(b, &families[NODE_VERDICTS], "verdict", ex_code_name((enum ex_code)i),
			    (int64_t)get(&m->verdicts[i]));
	prom_begin(b, &families[BINDS]);
	prom_sample(b, &families[BINDS], "outcome", "bound", (int64_t)n->binds);
	prom_sample(b, &families[BINDS], "outcome", "repeated", (int64_t)n->binds_repeated);
	prom_sample(b, &families[BINDS], "outcome", "refused", (int64_t)n->binds_refused);
	prom_sample(b, &families[BINDS], "outcome", "unknown_pod", (int64_t)n->binds_unknown);
	prom_sample(b, &families[BINDS], "outcome", "failed", (int64_t)n->binds_failed);
	prom_single(b, &families[RELEASES], (int64_t)n->releases);
	prom_single(b, &families[JOURNAL_ERRORS], (int64_t)get(&m->journal_errors));
	prom_single(b, &families[PODS_LEARNED], (int64_t)n->learned);
	prom_single(b, &families[PRICES_PUBLISHED], (int64_t)n->prices_published);
	prom_single(b, &families[PODS_CACHED], (int64_t)n->pods_cached);
	prom_single(b, &families[NOMINATIONS], (int64_t)n->nominations);
}

static void put_totals(const struct ex_view *v, struct buf *b)
{
	const struct po_fragmentation *f = &v->fragmentation;

	prom_begin(b, &families[NODES]);
	prom_sample(b, &families[NODES], "state", "ready", v->node_count - v->nodes_unready);
	prom_sample(b, &families[NODES], "state", "unready", v->nodes_unready);
	prom_sample(b, &families[NODES], "state", "fenced", v->nodes_fenced);
	prom_begin(b, &families[PODS]);
	for (int i = 0; i < ST_POD_STATE_COUNT; i++)
		prom_sample(b, &families[PODS], "state", ex_view_pod_state_name((uint8_t)i),
			    v->pods_by_state[i]);
	prom_begin(b, &families[GPUS]);
	for (int i = 0; i < ST_MODE_COUNT; i++)
		prom_sample(b, &families[GPUS], "mode", st_mode_name((enum st_mode)i),
			    v->gpus_by_mode[i]);
	prom_single(b, &families[GPUS_TAKEN], v->gpus_taken);
	prom_single(b, &families[GPUS_TWIN], v->gpus_twin);
	single_decimal(b, FRAGMENTED_GPUS, f->divisor > 0 ? f->n / f->divisor : 0, 3);
	single_decimal(b, IDLE_GPUS, f->idle_milli, 3);
}

static int64_t gpu_value(const struct st_gpu *g, enum family f)
{
	switch (f) {
	case GPU_ALLOCATABLE:
		return (int64_t)g->alloc_mib << 20;
	case GPU_BOOKED:
		return (int64_t)ex_view_booked_mib(g) << 20;
	case GPU_LIMIT:
		return g->limit_mib << 20;
	case GPU_CLIENTS:
		return g->clients;
	default:
		return 1;
	}
}

static void put_gpus(const struct ex_view *v, enum family f, struct buf *b)
{
	prom_begin(b, &families[f]);
	for (uint32_t i = 0; i < v->node_count; i++) {
		const struct st_node *n = &v->nodes[i].n;

		for (unsigned k = 0; k < n->gpu_count; k++) {
			const struct prom_label labels[] = {
				{"node", n->name},
				{"gpu", n->gpus[k].uuid},
				{"mode", st_mode_name((enum st_mode)n->gpus[k].mode)},
			};

			prom_labelled(b, &families[f], labels, f == GPU_MODE ? 3 : 2,
				      gpu_value(&n->gpus[k], f));
		}
	}
}

/* ---- with an API server ---- */

static void put_watch(const struct ex_api_stats *s, enum family f, struct buf *b)
{
	static const char *const kinds[EX_API_KINDS] = {"nodes", "pods"};

	prom_begin(b, &families[f]);
	for (int i = 0; i < EX_API_KINDS; i++) {
		uint64_t v = f == WATCH_EVENTS     ? s->watch[i].events
			     : f == WATCH_LISTS    ? s->watch[i].lists
			     : f == WATCH_PROBLEMS ? s->watch[i].problems
			     : f == WATCHES_DEAD   ? s->watch[i].dead
			     : f == WATCH_OBJECTS  ? s->watch[i].objects
						   : s->watch[i].synced;

		if (f != WATCH_LAG) {
			prom_sample(b, &families[f], "kind", kinds[i], (int64_t)v);
			continue;
		}
		prom_name(b, &families[f], "", &(struct prom_label){"kind", kinds[i]}, 1);
		prom_decimal(b, s->watch[i].busy_us, 6);
	}
}

static void put_api_requests(const struct ex_api_stats *s, struct buf *b)
{
	prom_begin(b, &families[API_REQUESTS]);
	prom_sample(b, &families[API_REQUESTS], "result", "all", (int64_t)s->requests);
	prom_sample(b, &families[API_REQUESTS], "result", "retried", (int64_t)s->retries);
	prom_sample(b, &families[API_REQUESTS], "result", "failed", (int64_t)s->failures);
	prom_sample(b, &families[API_REQUESTS], "result", "throttled", (int64_t)s->throttled);
	prom_sample(b, &families[API_REQUESTS], "result", "unauthorized", (int64_t)s->unauthorized);
	prom_begin(b, &families[NODE_TOTALS]);
	prom_sample(b, &families[NODE_TOTALS], "result", "ok", (int64_t)s->totals_written);
	prom_sample(b, &families[NODE_TOTALS], "result", "failed", (int64_t)s->totals_failed);
	prom_begin(b, &families[LIMIT_CHANGES]);
	prom_sample(b, &families[LIMIT_CHANGES], "result", "written", (int64_t)s->limits_written);
	prom_sample(b, &families[LIMIT_CHANGES], "result", "refused", (int64_t)s->limits_refused);
	prom_sample(b, &families[LIMIT_CHANGES], "result", "failed", (int64_t)s->limits_failed);
	prom_sample(b, &families[LIMIT_CHANGES], "result", "stale", (int64_t)s->limits_stale);
	prom_begin(b, &families[EVENTS]);
	prom_sample(b, &families[EVENTS], "result", "sent", (int64_t)s->events_sent);
	prom_sample(b, &families[EVENTS], "result", "dropped", (int64_t)s->events_dropped);
}

static void put_api(const struct ex_api_stats *s, const struct ex_service_counts *n, struct buf *b)
{
	prom_single(b, &families[LEADER], s->leader);
	prom_single(b, &families[AUTH_FAILED], s->auth_failed);
	prom_begin(b, &families[BIND_POSTS]);
	prom_sample(b, &families[BIND_POSTS], "outcome", "ok", (int64_t)s->posts_ok);
	prom_sample(b, &families[BIND_POSTS], "outcome", "refused", (int64_t)s->posts_refused);
	prom_sample(b, &families[BIND_POSTS], "outcome", "unknown", (int64_t)s->posts_unknown);
	prom_begin(b, &families[BINDS_SETTLED]);
	prom_sample(b, &families[BINDS_SETTLED], "outcome", "bound", (int64_t)s->settled_bound);
	prom_sample(b, &families[BINDS_SETTLED], "outcome", "gone", (int64_t)s->settled_free);
	prom_single(b, &families[BINDS_WAITING], (int64_t)s->binds_waiting);
	prom_single(b, &families[BINDS_UNSETTLED], (int64_t)s->binds_unsettled);
	prom_begin(b, &families[BIND_POST_DELAY]);
	put_buckets(s->post_wait, s->post_wait_us_sum * 1000, BIND_POST_DELAY, NULL, b);
	single_decimal(b, BIND_POST_DELAY_MAX, s->post_wait_us_max, 6);
	prom_single(b, &families[REFUSALS_HELD], (int64_t)s->refusals_held);
	put_api_requests(s, b);
	for (int f = WATCH_EVENTS; f <= WATCH_LAG; f++)
		put_watch(s, (enum family)f, b);
	prom_begin(b, &families[OBJECTS_INVALID]);
	prom_sample(b, &families[OBJECTS_INVALID], "kind", "nodes", (int64_t)n->nodes_invalid);
	prom_sample(b, &families[OBJECTS_INVALID], "kind", "pods", (int64_t)n->pods_invalid);
	prom_single(b, &families[UNREADABLE], (int64_t)n->pods_fenced);
	prom_single(b, &families[PODS_HELD], (int64_t)s->pods_held);
}

static void put_admissions(const struct ex_metrics *m, struct buf *b)
{
	static const char *const verdicts[EX_ADMIT_COUNT] = {"allowed", "changed", "refused",
							     "failed"};

	prom_begin(b, &families[ADMISSIONS]);
	for (int i = 0; i < EX_ADMIT_COUNT; i++)
		prom_sample(b, &families[ADMISSIONS], "verdict", verdicts[i],
			    (int64_t)get(&m->admissions[i]));
}

void ex_metrics_text(const struct ex_metrics *m, const struct ex_service_counts *counts,
		     const struct ex_api_stats *api, const struct ex_view *view, bool ready,
		     struct buf *out)
{
	prom_begin(out, &families[BUILD_INFO]);
	prom_labelled(out, &families[BUILD_INFO],
		      (struct prom_label[]){{"version", EX_VERSION}, {"policy", view->policy}}, 2,
		      1);
	prom_single(out, &families[READY], ready);
	put_requests(m, out);
	prom_begin(out, &families[REQUEST_SECONDS]);
	for (int v = 0; v < EX_VERB_COUNT; v++)
		put_histogram(m, (enum ex_verb)v, out);
	prom_single(out, &families[CONNECTIONS], atomic_load(&m->connections));
	put_counts(m, counts, out);
	put_totals(view, out);
	if (api != NULL)
		put_api(api, counts, out);
	put_admissions(m, out);
	for (int f = GPU_ALLOCATABLE; f <= GPU_MODE; f++)
		put_gpus(view, (enum family)f, out);
}

void ex_metrics_markdown(struct buf *b)
{
	prom_markdown(b, families, LEADER);
	buf_puts(b, "\nWith an API server only (`--kubeconfig`, `--in-cluster`):\n\n");
	prom_markdown(b, &families[LEADER], FAMILY_COUNT - LEADER);
}

/* The agent's parts, shared by run*.c; not for others.
 *
 * One thread of its own (the loop) looks at the hardware, gives the plugin its picture of the node, looks
 * after limits, measures and publishes. NRI, hooks, MPS, the API client and HTTP have theirs. */
#ifndef TESSERA_ENFORCER_RUN_INTERNAL_H
#define TESSERA_ENFORCER_RUN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "enforcer/doctor.h"
#include "enforcer/exits.h"
#include "enforcer/hook_server.h"
#include "enforcer/http.h"
#include "enforcer/inventory.h"
#include "enforcer/inventory_publish.h"
#include "enforcer/limits.h"
#include "enforcer/measure.h"
#include "enforcer/metrics.h"
#include "enforcer/mig.h"
#include "enforcer/mps.h"
#include "enforcer/nri.h"
#include "enforcer/pods.h"
#include "enforcer/probe.h"
#include "enforcer/pulse.h"
#include "enforcer/run_options.h"
#include "enforcer/static.h"
#include "enforcer/usage.h"
#include "kube/client.h"
#include "kube/event.h"

#define RUN_SUSPECTS_MAX 64
#define RUN_SAID_MAX 64
#define RUN_DRAINED_MAX 128
#define RUN_DRAIN_AHEAD_MS 2000 /* before a pod's grace ends */

/* A container that is to be stopped. */
struct run_stop {
	struct run_stop *next;
	char id[129], name[400];
	uint32_t pid;
};

struct agent {
	struct en_run_options o;
	struct log *log;
	int lock_fd, signal_fd, wake_fd;
	struct en_prober *prober;
	struct en_limits *limits;
	struct en_mps *mps; /* NULL: not ours */
	struct en_mig *mig;
	struct en_plugin *plugin;
	struct en_nri *nri;
	struct en_hook_server *hooks;
	struct en_exits *exits;
	struct ku_client *client;       /* NULL: without an API server */
	struct ku_events *events;       /* likewise */
	struct en_pods *pods;           /* likewise */
	struct en_publisher *publisher; /* NULL: nothing is published */
	struct en_measurer *measurer;
	struct en_usage *usage;
	struct en_http *http;
	const char *proc; /* "/proc" */
	char mps_run_dir[EN_PATH_CAP], usage_path[EN_PATH_CAP], cgroup_mount[EN_CGROUP_CAP];
	int64_t started_ms;
	struct en_pulses pulses;
	struct en_pulse *pulse; /* the loop's */
	_Atomic bool hang_said; /* by /healthz, of a thread that hangs */

	_Atomic bool synchronized; /* limits are to be looked after now */
	_Atomic bool pods_changed;
	_Atomic bool look_again; /* instances changed: probe at once */
	_Atomic uint64_t reports[EN_REPORT_COUNT], changes_refused, stopped;
	_Atomic size_t static_containers,
		static_refused; /* of the file: all, and impossible ones */

	/* Of the loop's thread: */
	bool ever_synchronized; /* since then it is known which processes are ours */
	bool upgrading, let_go; /* the driver is to be exchanged; it is not touched */
	char driver_seen[EN_NVML_TEXT_CAP];
	bool driver_was_ok;
	uint64_t given_seen; /* containers started when pods were applied last */
	uint64_t mps_generation;
	bool mps_was_usable, mps_told;
	bool limits_lost;  /* the driver was loaded anew and knows none: they are set again */
	bool unclaimed;    /* MPS namespaces may be there that are not known to mps */
	bool check_again;  /* what the doctor found is out of date */
	size_t tools_left; /* processes of the driver's tools that do not end, at the last turn */
	size_t suspect_count; /* pods that the API server did not know a round ago */
	char suspects[RUN_SUSPECTS_MAX][64];
	char drained[RUN_DRAINED_MAX]
		    [129]; /* containers that were, before their pod's grace ended */
	size_t drained_next;
	uint64_t static_said;        /* hash of what was said of the file last */
	uint64_t said[RUN_SAID_MAX]; /* hashes of refusals that were reported */
	size_t said_next;
	struct en_probe *spare; /* the next probe is written there */

	pthread_mutex_t lock; /* of the rest: what HTTP shows, and the file's allocations */
	struct en_probe *probe;
	struct en_condition condition;
	struct en_doctor_report *report; /* count 0: has not run yet */
	struct en_static *statics;       /* NULL: allocations come from annotations */
	struct run_stop *stops;
};

int64_t run_now_ms(void);             /* monotonic */
int64_t run_wall_s(void);             /* since the epoch */
void run_wake(const struct agent *a); /* the loop looks around at once */
/* "" becomes NULL. */
const char *run_given(const char *option);

/* run_start.c */
int run_start(struct agent *a, struct err *err);
int run_static_load(struct agent *a,
		    struct err *err); /* again, too: the old one stays after an error */

/* run_look.c: what is done every second, every probe and every minute */
void run_look(struct agent *a, bool probe);
void run_measure(struct agent *a);
void run_doctor(struct agent *a);
void run_publish(struct agent *a, bool ending);
bool run_wants_mps(const struct en_probe *p);
/* The node as that probe has it, to the plugin; from any thread. */
int run_tell_plugin(struct agent *a, const struct en_probe *p, struct err *err);

/* run_mig.c */
int run_mig_start(struct agent *a, struct err *err);
void run_mig_ops(struct en_agent_ops *ops);
void run_mig_mark(struct agent *a, struct en_probe *p);
bool run_mig_sweep(struct agent *a); /* true: something changed */

/* run_ops.c: what the plugin tells and wants; events; containers that are stopped */
struct en_agent_ops run_agent_ops(struct agent *a);
void run_on_exit(void *ctx, const char *id);
bool run_is_ours(void *ctx, uint32_t pid);
bool run_is_our_pod(void *ctx, const char *ns, const char *pod);
void run_node_event(struct agent *a, enum ku_event_type type, const char *reason, const char *text);
void run_stop_due(struct agent *a);
void run_stops_free(struct agent *a);
/* Ends the container's MPS clients, where it has any; waits a little. */
void run_drain(struct agent *a, const struct en_holding *h);

/* run_pods.c: allocations as they are now, to the plugin; rows of pods that are gone */
void run_pods_apply(struct agent *a);
void run_pods_sweep(struct agent *a);
/* What of the file of allocations is impossible on this node: told when it changes. */
void run_static_check(struct agent *a);
void run_drain_due(struct agent *a);
void run_upgrade_look(struct agent *a);

/* run_http.c: pages from the agent's state. */
int run_http_start(struct agent *a, struct err *err);

#endif

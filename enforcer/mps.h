/* Supervisor of the MPS control daemon (nvidia-cuda-mps-control) of this node: starts it, holds it, asks
 * it whether it is well, ends it, starts it again; and the namespaces of containers that were promised a
 * share of compute. What is to be done when is in mps_core.h.
 *
 * Protocol 3 (driver 615 and newer): one server for all shares, namespaces below it. Legacy protocol on
 * older drivers: sm-sharing only, no namespaces.
 *
 * The daemon's standard input is a FIFO that it holds open itself, so it outlives the enforcer: the next
 * one finds it by its pid file and goes on with it, and running containers keep their server.
 *
 * en_mps_step() is called by one thread (en_mps_thread_start() makes one); everything else by any. The
 * daemon's tool is run without the lock held. */
#ifndef TESSERA_ENFORCER_MPS_H
#define TESSERA_ENFORCER_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "enforcer/apply.h"
#include "enforcer/mps_core.h"
#include "enforcer/mps_parse.h"

struct en_mps_options {       /* strings are copied; NULL: the value in brackets */
	const char *control;  /* the tool ["nvidia-cuda-mps-control", looked up in PATH] */
	const char *pipe_dir; /* ["/run/nvidia-mps"], short: see EN_MPS_PIPE_MAX */
	const char *log_dir;  /* ["/var/log/nvidia-mps"] */
	const char *run_dir;  /* our files: configuration, FIFO, pid, output ["/run/tessera/mps"] */
	const char *proc;     /* ["/proc"] */
	const char
		*devices; /* GPUs the server may use, joined by ','; NULL: all. Needed where a GPU
			       * of the node has MIG on */
	const char *accepted_status; /* server statuses that count as ready besides those known,
				      * joined by ','; NULL: none */
	bool legacy;                 /* the driver has no protocol 3 */
	bool legacy_multiuser;       /* add -multiuser-server; older tools do not know it */
	bool audit_log;              /* memory accounting's own log */
	struct en_mps_times times;
	int64_t ask_limit_ms;     /* for one question; 0: 3,000 */
	int64_t command_limit_ms; /* for other commands; 0: 10,000 */
	int64_t orphan_ms;        /* namespaces of ours that nobody claims are removed so long after
				  * the first container was named, or the daemon became ready again;
				  * 0: 300,000 */
	clock_ms_fn now;          /* monotonic milliseconds; NULL: the real clock */
	void *now_ctx;
	/* The state changed: en_mps_get_status() says otherwise now. On the thread that steps, without a
	 * lock. May be NULL. */
	void (*changed)(void *ctx);
	void *changed_ctx;
	struct log *log; /* may be NULL */
};

#define EN_MPS_SERVER "shared"
#define EN_MPS_PIPE_MAX                                                                            \
	83 /* bytes of a client's pipe directory, so that the socket's name still fits */

struct en_mps;

/* ERR_INVALID: directories too long or not absolute; ERR_NOMEM. Starts nothing. */
int en_mps_new(const struct en_mps_options *o, struct en_mps **ret, struct err *err);
/* The daemon goes on running. The thread is ended first. */
void en_mps_free(struct en_mps *m);

/* Shall the daemon run? False for a driver upgrade, or where no GPU is shared. */
void en_mps_want(struct en_mps *m, bool wanted);
/* The driver has protocol 3, or not; GPUs the server may use (NULL: all). A change restarts the daemon
 * when no client is left. ERR_NOMEM. */
int en_mps_configure(struct en_mps *m, bool legacy, const char *devices, struct err *err);
/* Start it anew: when no client is left, or by force at once. why is for log and status. */
void en_mps_recycle(struct en_mps *m, const char *why);
void en_mps_wedged(struct en_mps *m, const char *why);

/* Does what is due. Returns the milliseconds until it is to be called again at the latest. */
int64_t en_mps_step(struct en_mps *m);
/* Becomes readable when the daemon ended, then step is due; -1: no daemon, or the kernel cannot. For the
 * thread that steps. */
int en_mps_fd(struct en_mps *m);

/* A thread that calls step when it is due. ERR_IO. Stopping it does not stop the daemon. */
int en_mps_thread_start(struct en_mps *m, struct err *err);
void en_mps_thread_stop(struct en_mps *m);
/* Asks the daemon to end and waits for it (with the thread running); false when limit_ms passed. */
bool en_mps_shutdown(struct en_mps *m, int64_t limit_ms);

struct en_mps_status {
	enum en_mps_state state;
	bool usable; /* containers may be started on it */
	bool legacy;
	const char *reason;    /* "MpsNotReady", "MpsFault", "MpsBlocked"; NULL where usable */
	char why[ERR_MSG_CAP]; /* one sentence, "" where usable */
	int64_t pid;           /* 0 = none */
	int64_t state_ms;      /* for so long in this state */
	uint64_t starts;       /* processes started by this enforcer */
	uint64_t generation;   /* grows each time the daemon becomes ready */
	size_t clients;        /* at the last look */
	size_t ghosts;         /* of them, whose process is gone */
	bool recycle_when_idle;
	size_t namespaces,
		namespaces_bad; /* wanted; of them, without their share at the last look */
	uint64_t drains, drain_failures;
};
void en_mps_get_status(struct en_mps *m, struct en_mps_status *ret);

/* Is it the process of our control daemon or of its servers? */
bool en_mps_owns(struct en_mps *m, uint32_t pid);

/* ---- namespaces, protocol 3 ---- */

/* The container's namespace with a ceiling of percent (1 to 100) on each GPU: made, or found. The host's
 * pipe directory goes to ret_dir. The ceiling is read back. After a restart of the daemon all are made
 * again at the same place. ERR_CONFLICT: MPS is not usable, is legacy, or the container has another
 * ceiling (that takes a restart of the container); ERR_IO: the daemon refused; ERR_NOMEM. */
int en_mps_namespace_make(struct en_mps *m, const char *container_id, int percent,
			  char ret_dir[EN_PATH_CAP], struct err *err);
/* The same for a container that runs: where it fails, what is there is left, and looked after until it is right. */
int en_mps_namespace_keep(struct en_mps *m, const char *container_id, int percent,
			  char ret_dir[EN_PATH_CAP], struct err *err);
/* It is removed when it has no clients any more. Unknown ids are fine. Waits for nothing. */
void en_mps_namespace_drop(struct en_mps *m, const char *container_id);
/* Every container of the node that has one was named by en_mps_namespace_make(), in this life of ours: others
 * with our prefix need not be waited for. */
void en_mps_namespaces_claimed(struct en_mps *m);
/* The name for a container: "ts_", 16 characters of its id, 20 hex digits. */
void en_mps_namespace_name(const char *container_id, char ret[EN_MPS_NAME_CAP]);

/* ---- clients ---- */

/* All clients. ERR_CONFLICT: MPS does not run; ERR_IO. */
int en_mps_clients(struct en_mps *m, struct en_mps_client *ret, size_t cap, size_t *ret_count,
		   struct err *err);

/* Before a container is killed: ends its clients one by one, so that none dies in the middle of a kernel,
 * which would take its neighbours along. Processes that are no clients are fine. Waits, at most limit_ms.
 * 0 when none of them is a client any more (legacy protocol: each one's end was confirmed; it stays listed
 * until its process ends); ERR_IO otherwise: the daemon is suspect then, and recycled when it is idle. */
int en_mps_drain(struct en_mps *m, const uint32_t *pids, size_t count, int64_t limit_ms,
		 struct err *err);

#endif

/* Shared by mps*.c, and by the doctor for its questions; not for others. */
#ifndef TESSERA_ENFORCER_MPS_INTERNAL_H
#define TESSERA_ENFORCER_MPS_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/hash.h"
#include "enforcer/mps.h"
#include "enforcer/probe_exec.h"

#define MPS_ROWS_MAX 1024 /* clients, namespaces */
#define MPS_ENDED_MAX 64  /* of the legacy protocol; older ones are forgotten */
#define MPS_SERVERS_MAX 32
#define MPS_NS_PREFIX "ts_"
#define MPS_ARGS_MAX 12

struct mps_ns {
	UT_hash_handle hh; /* by id */
	char *id;
	char name[EN_MPS_NAME_CAP];
	int percent;
	char dir[EN_MPS_DIR_CAP]; /* "" = not made yet */
	uint64_t generation;      /* of the daemon that it was made in */
	bool making;              /* a thread is at it */
	bool dropping;            /* to be removed */
	bool bad;                 /* has not its share, as of the last look */
};

struct en_mps {
	struct en_mps_options o; /* strings are ours; devices and legacy: see below */
	char env_pipe[160], env_log[320];
	const char *env[6];

	/* Of the stepping thread alone. */
	pid_t pid;     /* 0 = none */
	int pidfd;     /* -1 = none */
	bool is_child; /* else found, not started, by us */
	int64_t next_sweep_ms;
	int64_t orphans_from_ms; /* from then on namespaces without an owner are removed; under the lock */
	bool claimed; /* whoever has one was named since we live: none is an orphan by mistake */
	uint64_t running_digest; /* of the configuration it was started with */
	int ghost_looks;         /* looks in a row that found ghosts */

	pthread_mutex_t lock; /* of the rest */
	pthread_cond_t changed;
	struct en_mps_core core;
	bool running_legacy; /* the protocol of the daemon that runs; written by the stepping thread */
	bool legacy;
	char *devices; /* NULL: all */
	bool pending_want, want_value, pending_wedge;
	bool sweep_now; /* a namespace was dropped */
	bool recycle_when_idle;
	/* Legacy clients that were terminated and whose process still lives: they stay listed, and asking
	 * for the same a second time never returns (driver 580). Overwritten in a circle. */
	struct {
		int64_t pid, server; /* pid 0 = unused */
	} ended[MPS_ENDED_MAX];
	size_t ended_next;
	char why[ERR_MSG_CAP];
	pid_t status_pid;
	int64_t servers[MPS_SERVERS_MAX]; /* their processes */
	size_t server_count;
	size_t clients, ghosts, ns_bad;
	uint64_t drains, drain_failures;
	struct mps_ns *ns;
	bool named; /* somebody spoke for a container, in this life of ours: the runtime tells */
	char removing[EN_MPS_NAME_CAP]; /* a namespace that is being removed right now; "" = none */

	pthread_t thread;
	bool has_thread, thread_stop;
	int wake; /* eventfd; -1 = none */
};

int64_t mps_now(const struct en_mps *m);
/* Keeps the sentence for the status; logs it. */
void mps_say(struct en_mps *m, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void mps_wake(struct en_mps *m);

/* ---- mps_conf.c ---- */

/* The configuration file of protocol 3. */
void mps_conf_put(struct buf *b, const char *devices, bool audit_log);
/* Of everything that takes a restart to change. */
uint64_t mps_conf_digest(const char *conf, bool legacy, bool legacy_multiuser);

/* ---- mps_process.c: of the stepping thread ---- */

/* Is a daemon there? Returns the event; takes ours over. */
enum en_mps_event mps_look(struct en_mps *m);
/* Starts it; false: could not, m->why says. */
bool mps_spawn(struct en_mps *m);
void mps_quit(struct en_mps *m);
void mps_kill(struct en_mps *m);
void mps_clean(struct en_mps *m);
/* True when it ended; the status is kept in m->why. */
bool mps_exited(struct en_mps *m);
/* Is the pid alive (and no zombie)? */
bool mps_alive(const struct en_mps *m, int64_t pid);

/* ---- mps_ask.c ---- */

/* Runs the tool with protocol 3 arguments (NULL ends them). 0: it ended by itself with status 0 and did not
 * complain; *ret is to be given to en_exec_fini(). ERR_IO says what it printed. */
int mps_command(struct en_mps *m, const char *const *args, int64_t limit_ms,
		struct en_exec_result *ret, struct err *err);
/* Protocol 2: commands on standard input. */
int mps_command_v2(struct en_mps *m, const char *commands, int64_t limit_ms,
		   struct en_exec_result *ret, struct err *err);
/* One question about its health, as an event. */
enum en_mps_event mps_ask(struct en_mps *m);
/* As en_mps_clients(), whether the daemon is known or not. */
int mps_list_clients(struct en_mps *m, bool legacy, int64_t limit_ms, struct en_mps_client *ret,
		     size_t cap, size_t *ret_count, struct err *err);
/* Clients and ghosts; may set recycle_when_idle. Returns true when it is set and nobody is there. */
bool mps_look_at_clients(struct en_mps *m);

/* ---- mps_ns.c ---- */

/* After a restart: makes all of them again, removes others' of our prefix. */
void mps_ns_reconcile(struct en_mps *m);
/* Checks shares, removes what was dropped. */
void mps_ns_sweep(struct en_mps *m);
void mps_ns_free_all(struct en_mps *m);

#endif

/* Checks of the sharing layer and the hardware on this node: `tessera-enforcer doctor`, and the same
 * checks inside the agent for its condition and metrics. Each check says what it found, what causes it and
 * what to do. Nothing is changed by any of them. */
#ifndef TESSERA_ENFORCER_DOCTOR_H
#define TESSERA_ENFORCER_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "enforcer/hook.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/mps.h"
#include "enforcer/probe.h"

enum en_check_result {
	EN_CHECK_OK,
	EN_CHECK_SKIP, /* does not apply here; the text says why */
	EN_CHECK_WARN, /* works, but not as well as it could, or not for long */
	EN_CHECK_FAIL, /* what was promised is not kept */
};
const char *en_check_result_name(enum en_check_result r); /* "ok", "skip", "warn", "fail" */

/* A container with a share, and what it was promised. Found in /proc (its environment and cgroup), or
 * given by the agent. */
struct en_doctor_container {
	char name[128];   /* "namespace/pod/container", or "pid 4711" */
	char cgroup[512]; /* absolute, below the root */
	uint32_t pid;     /* 0 = none any more */
	size_t gpu_count;
	char gpus[ST_GPUS_MAX][EN_UUID_CAP];
	int64_t soft_mib, hard_mib; /* on each of them */
	bool by_cgroup;             /* limited on the cgroup; else for each process (legacy MPS) */
	bool has_pipe;              /* its environment names an MPS directory */
};

struct en_doctor_env {
	const char *root; /* put before every path that is looked at; "" for the real node */
	const struct en_probe *probe;
	struct en_mps *mps; /* the agent's, or one made for the doctor (starts nothing) */
	bool in_agent;      /* mps runs: its status is used, and it is not asked again */
	const struct en_limits_ops *limits; /* NULL: limits are not looked at */
	const char *control;                /* MPS tool; a path, or a name looked up in PATH */
	const char *smi;                    /* nvidia-smi, likewise */
	const char *pipe_dir, *log_dir, *run_dir; /* of MPS, without the root */
	const char *nri_socket;                   /* "/var/run/nri/nri.sock" */
	const char
		*kubelet_socket;  /* "/var/lib/kubelet/pod-resources/kubelet.sock"; "": not asked */
	const char *cgroup_mount; /* of cgroup v2, without the root; NULL or "": "/sys/fs/cgroup" */
	size_t container_count;
	const struct en_doctor_container *containers;
};

struct en_check; /* name, cause, remedy: doctor.c */

#define EN_CHECKS_MAX 64
#define EN_FINDING_CAP 320

struct en_finding {
	const char *name;   /* "cgroup-v2" */
	const char *title;  /* "cgroup version" */
	const char *cause;  /* what usually causes it */
	const char *remedy; /* what to do */
	bool gates;         /* a failure makes the node not ready */
	enum en_check_result result;
	char text[EN_FINDING_CAP]; /* what was found, one sentence */
};

struct en_doctor_report {
	size_t count;
	struct en_finding findings[EN_CHECKS_MAX];
	size_t ok, skipped, warnings, failures;
	const struct en_finding *gate; /* the first failure that gates; NULL: none */
};

/* Runs all checks, in the order of the table. */
void en_doctor_run(const struct en_doctor_env *env, struct en_doctor_report *ret);
/* Name of the i-th check, NULL past the end. */
const char *en_doctor_check_name(size_t i);

/* Containers with a share, from the processes that are there: one for each cgroup. Returns how many there
 * are; at most cap are stored. */
size_t en_doctor_scan(const char *root, const char *mount, struct en_doctor_container *ret,
		      size_t cap);
/* Where cgroup v2 is mounted there, not always at /sys/fs/cgroup; returns buf. */
const char *en_doctor_cgroup_mount(const char *root, char buf[EN_CGROUP_CAP]);

/* A line for each finding, with cause and remedy for what is not well; verbose: the others too. */
void en_doctor_print(const struct en_doctor_report *r, bool verbose, struct buf *out);
/* {"ok":..,"warnings":..,"failures":..,"skipped":..,"checks":[{"name","title","result","found","cause",
 * "remedy"}]}. ERR_NOMEM. */
int en_doctor_json(const struct en_doctor_report *r, struct buf *out, struct err *err);

/* `tessera-enforcer doctor [option...]`, see its --help; argv[0] is the word doctor. Findings go to out_fd, what is
 * wrong with the call to standard error. Exit status: 0 no failure, 1 failures, 2 wrong options. */
int en_doctor_main(int argc, char *const *argv, int out_fd);

#endif

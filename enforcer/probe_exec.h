/* Runs a program of the driver (nvidia-smi, nvidia-cuda-mps-control) and keeps what it prints.
 *
 * A process that hangs in the driver does not die of SIGKILL, and cannot be waited for: it is left, and reaped
 * when it has ended after all. */
#ifndef TESSERA_ENFORCER_PROBE_EXEC_H
#define TESSERA_ENFORCER_PROBE_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define EN_EXEC_OUT_MAX 65536
#define EN_EXEC_GRACE_MS 1000 /* a killed program has so long to end */
#define EN_EXEC_LEFT_MAX 32   /* left ones; with so many nothing more is started */

struct en_exec {
	const char *const *argv; /* argv[0]: a path, or a name that is looked up in PATH */
	const char *const
		*env;      /* "KEY=VALUE" put over our own environment, "KEY" removes; NULL: none */
	const char *input; /* on its standard input, at most 4,096 bytes; NULL: nothing */
	int64_t limit_ms;  /* then it and what it started is killed; 0: 10,000 */
};

struct en_exec_result {
	int status;     /* exit status, 128 + n for signal n */
	bool timed_out; /* it was killed for it */
	pid_t left;     /* and did not end within EN_EXEC_GRACE_MS: its number; else 0 */
	char *out;      /* standard output, then standard error, each with a NUL; both owned */
	char *err;
};

/* Starts it and waits for its end, at most limit_ms and EN_EXEC_GRACE_MS. 0 whatever its status; ERR_NOT_FOUND
 * (no such program), ERR_IO, ERR_NOMEM, ERR_TOO_LARGE (input): then *ret is untouched. Output beyond
 * EN_EXEC_OUT_MAX is read and dropped. */
int en_exec_run(const struct en_exec *x, struct en_exec_result *ret, struct err *err);
void en_exec_fini(struct en_exec_result *r); /* a zeroed one is fine */

/* Reaps what was left and has ended since; what still hangs. From any thread. */
struct en_exec_left {
	size_t count;   /* of processes */
	uint64_t total; /* left since the start of this program */
	pid_t pid;      /* one of them; 0: none */
	char name[64];  /* its program */
};
void en_exec_look(struct en_exec_left *ret);

/* Starts a daemon that outlives us: standard input from in_path (opened for reading and writing,
 * so that a FIFO never ends), output appended to out_path. ERR_NOT_FOUND, ERR_IO, ERR_NOMEM. */
int en_exec_spawn(const struct en_exec *x, const char *in_path, const char *out_path, pid_t *ret,
		  struct err *err);

#endif

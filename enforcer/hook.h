/* Memory limits on a container's own cgroup, before its process starts: the OCI createRuntime hook.
 *
 * The runtime runs the hook when the container's cgroup is made and its first process waits in it. The
 * hook finds that cgroup and has the agent set the limits, or sets them itself. Whatever goes wrong, it
 * fails with a sentence, and the container does not start. */
#ifndef TESSERA_ENFORCER_HOOK_H
#define TESSERA_ENFORCER_HOOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define EN_LIMIT_NONE INT64_MAX /* of a hard limit: not limited */

/* How limits are set. Implemented over NVML or nvidia-smi; cgroup is the absolute path of the leaf's
 * directory. Errors: ERR_NOT_FOUND (no such GPU or cgroup), ERR_IO (driver or tool failed), ERR_CONFLICT
 * (MIG, or limits are not supported); one sentence each. Called from several threads. */
struct en_limits_ops {
	/* Sets both; soft 0 with hard EN_LIMIT_NONE takes the limits away. Setting what is set is fine. */
	int (*set)(void *ctx, const char *cgroup, const char *gpu_uuid, int64_t soft_mib,
		   int64_t hard_mib, struct err *err);
	/* What is set and used. Where nothing was ever set: soft 0, hard EN_LIMIT_NONE. Each pointer
	 * may be NULL. */
	int (*get)(void *ctx, const char *cgroup, const char *gpu_uuid, int64_t *ret_soft_mib,
		   int64_t *ret_hard_mib, int64_t *ret_used_mib, struct err *err);
	void *ctx;
};

/* `tessera-enforcer hook [--socket=PATH] [--gpu=UUID:SOFT:HARD]...` with the OCI state on in_fd. MiB.
 * limits is used where no socket is given; it may be NULL then only to fail. Returns the exit status:
 * 0; 2 (wrong options) or 1 with one line on err_fd. proc: "/proc". --help alone, with no pipe on in_fd, writes
 * the usage there and is 0; a runtime never hears 0 for it. */
int en_hook_main(int argc, char *const *argv, int in_fd, int err_fd, const char *proc,
		 const struct en_limits_ops *limits);

#endif

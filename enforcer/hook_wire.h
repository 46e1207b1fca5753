/* What the hook asks of the agent, as text over a unix socket: one request and one answer a connection.
 *
 *	tessera-hook 1
 *	container <id>
 *	process <pid>
 *	cgroup <path below the mount>
 *	gpu <uuid> <soft MiB> <hard MiB>        (one a GPU)
 *
 * The answer is "ok", or "error <sentence>". Both end with the line and the end of the stream. */
#ifndef TESSERA_ENFORCER_HOOK_WIRE_H
#define TESSERA_ENFORCER_HOOK_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "enforcer/apply.h"
#include "enforcer/hook.h"
#include "enforcer/hook_cgroup.h"

#define EN_HOOK_REQUEST_MAX 8192
#define EN_HOOK_ANSWER_MAX 1024

struct en_gpu_limit {
	char uuid[EN_UUID_CAP];
	int64_t soft_mib, hard_mib; /* 1 <= soft <= hard */
};

struct en_limit_request {
	char id[EN_CONTAINER_ID_CAP];
	uint32_t pid;
	char cgroup[EN_CGROUP_CAP]; /* as en_cgroup_of() gives it */
	size_t gpu_count;           /* 1 to ST_GPUS_MAX, all different */
	struct en_gpu_limit gpus[ST_GPUS_MAX];
};

/* "GPU-...:4096:8192". ERR_INVALID; ERR_TOO_LARGE beyond ST_GPUS_MAX; then *r is as it was. */
int en_limit_request_add(struct en_limit_request *r, const char *text, struct err *err);

void en_limit_request_write(const struct en_limit_request *r, struct buf *b);
/* ERR_INVALID: not exactly of that form, or a value that cannot be. *ret is written only on success. */
int en_limit_request_read(const char *text, size_t len, struct en_limit_request *ret,
			  struct err *err);

/* Sets all limits on that cgroup (an absolute path). On failure the ones that were set are taken away again
 * where undo is given: only for a container that will not start then. */
int en_limits_set_all(const struct en_limits_ops *ops, const char *cgroup,
		      const struct en_limit_request *r, bool undo, struct err *err);

#endif

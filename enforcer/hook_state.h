/* The state of a container as an OCI runtime gives it to a hook: a JSON object on standard input.
 * Source: OCI runtime specification, config.md "POSIX-platform Hooks", runtime.md "State". */
#ifndef TESSERA_ENFORCER_HOOK_STATE_H
#define TESSERA_ENFORCER_HOOK_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "enforcer/hook_cgroup.h"

#define EN_STATE_MAX ((size_t)4 << 20)

struct en_oci_state {
	char id[EN_CONTAINER_ID_CAP];
	uint32_t pid; /* on the host; >= 1 */
};

/* Takes "id" and "pid" and checks the rest for being JSON only. A small reader of its own: the hook is
 * started for every container and stands without libraries. ERR_INVALID names what is wrong. */
int en_oci_state_read(const char *text, size_t len, struct en_oci_state *ret, struct err *err);

#endif

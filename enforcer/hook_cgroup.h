/* A container's own cgroup, from the process that the runtime has put into it. Its path is never built
 * from names: drivers and runtimes nest differently, and crun adds a level. cgroup v2 only. */
#ifndef TESSERA_ENFORCER_HOOK_CGROUP_H
#define TESSERA_ENFORCER_HOOK_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define EN_CGROUP_CAP 1024
#define EN_CONTAINER_ID_CAP 129

/* Letters, digits, _ . - and at most EN_CONTAINER_ID_CAP - 1 of them. */
int en_container_id_check(const char *id, struct err *err);

/* Below the mount, with a leading '/'; it has the container's id in it. proc: "/proc". ERR_NOT_FOUND: no
 * such process (any more). ERR_CONFLICT: cgroup v1, another container's process, a cgroup namespace in
 * between, or a cgroup that is being removed. ERR_IO, ERR_NOMEM, ERR_TOO_LARGE, ERR_INVALID (the id). */
int en_cgroup_of(const char *proc, uint32_t pid, const char *container_id, char ret[EN_CGROUP_CAP],
		 struct err *err);

/* Is it a path as en_cgroup_of() returns it for that container? ERR_INVALID. */
int en_cgroup_check(const char *cgroup, const char *container_id, struct err *err);

/* Where cgroup v2 is mounted: "/sys/fs/cgroup", or its "unified" folder. ERR_NOT_FOUND. */
int en_cgroup_mount(const char *proc, char ret[EN_CGROUP_CAP], struct err *err);

/* mount and path in one. ERR_TOO_LARGE. */
int en_cgroup_join(const char *mount, const char *cgroup, char ret[EN_CGROUP_CAP], struct err *err);

#endif

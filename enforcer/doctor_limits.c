/* Checks of what containers were promised against what is in force, and the search for such containers. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/quantity.h"
#include "enforcer/doctor_internal.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/limits.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define ENVIRON_MAX 262144
#define MIB_MAX (INT64_MAX >> 20)

/* ---- the search ---- */

static char *read_proc(const char *root, int64_t pid, const char *name, size_t *ret_len)
{
	char path[DOCTOR_PATH_CAP], *text = NULL;

	snprintf(path, sizeof(path), "%s/proc/%lld/%s", root, (long long)pid, name);
	return file_read(path, ENVIRON_MAX, &text, ret_len, NULL) == 0 ? text : NULL;
}

/* The value of a variable in an environment block; NULL: not set. */
static const char *env_value(const char *block, size_t len, const char *key)
{
	size_t n = strlen(key);

	for (size_t at = 0; at < len; at += strlen(block + at) + 1) {
		if (strncmp(block + at, key, n) == 0 && block[at + n] == '=')
			return block + at + n + 1;
	}
	return NULL;
}

/* "GPU-a,GPU-b", or CDI names that end in such. */
static void take_gpus(const char *list, struct en_doctor_container *c)
{
	while (list != NULL && *list != '\0' && c->gpu_count < ST_GPUS_MAX) {
		size_t len = strcspn(list, ",");
		const char *uuid = memmem(list, len, "GPU-", 4);

		if (uuid != NULL && (size_t)(list + len - uuid) < EN_UUID_CAP) {
			size_t n = (size_t)(list + len - uuid);

			memcpy(c->gpus[c->gpu_count], uuid, n);
			c->gpus[c->gpu_count++][n] = '\0';
		}
		list += len + (list[len] == ',');
	}
}

/* Does the process belong to a container with a share? */
static bool read_container(const char *root, const char *mount, int64_t pid,
			   struct en_doctor_container *ret)
{
	size_t len = 0, cgroup_len = 0;
	char *env = read_proc(root, pid, "environ", &len);
	char *cgroup = read_proc(root, pid, "cgroup", &cgroup_len);
	const char *limit = env != NULL ? env_value(env, len, "NVIDIA_GPU_MEMORY_LIMIT") : NULL;
	const char *request = env != NULL ? env_value(env, len, "NVIDIA_GPU_MEMORY_REQUEST") : NULL;
	const char *line = cgroup != NULL ? strstr(cgroup, "0::/") : NULL;
	bool ok = limit != NULL && line != NULL;

	memset(ret, 0, sizeof(*ret));
	ok = ok && integer_parse(limit, 1, MIB_MAX, &ret->hard_mib, NULL) == 0 &&
	     integer_parse(request != NULL ? request : limit, 0, MIB_MAX, &ret->soft_mib, NULL) ==
		     0;
	if (ok) {
		snprintf(ret->name, sizeof(ret->name), "pid %lld", (long long)pid);
		snprintf(ret->cgroup, sizeof(ret->cgroup), "%s%s%.*s", root, mount,
			 (int)strcspn(line + 3, "\n"), line + 3);
		ret->pid = (uint32_t)pid;
		ret->has_pipe = env_value(env, len, "CUDA_MPS_PIPE_DIRECTORY") != NULL;
		ret->by_cgroup = env_value(env, len, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") == NULL;
		take_gpus(env_value(env, len, "NVIDIA_VISIBLE_DEVICES"), ret);
	}
	free(env);
	free(cgroup);
	return ok;
}

const char *en_doctor_cgroup_mount(const char *root, char buf[EN_CGROUP_CAP])
{
	/* What is mounted below another root is told by its processes alone. */
	if (root[0] != '\0' || en_cgroup_mount("/proc", buf, NULL) != 0)
		snprintf(buf, EN_CGROUP_CAP, "%s", CGROUP_ROOT);
	return buf;
}

size_t en_doctor_scan(const char *root, const char *mount, struct en_doctor_container *ret,
		      size_t cap)
{
	char path[DOCTOR_PATH_CAP];
	const struct dirent *e;
	size_t count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/proc", root);
	dir = opendir(path);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		struct en_doctor_container c;
		int64_t pid;
		bool known = false;

		if (integer_parse(e->d_name, 1, INT32_MAX, &pid, NULL) != 0 ||
		    !read_container(root, mount, pid, &c))
			continue;
		for (size_t i = 0; i < count && i < cap; i++)
			known = known || strcmp(ret[i].cgroup, c.cgroup) == 0;
		if (known)
			continue;
		if (count < cap)
			ret[count] = c;
		count++;
	}
	if (dir != NULL)
		closedir(dir);
	return count;
}

/* ---- checks ---- */

static bool none(const struct en_doctor_env *env, char text[EN_FINDING_CAP],
		 enum en_check_result *ret)
{
	if (env->container_count > 0)
		return false;
	*ret = doctor_say(text, EN_CHECK_SKIP, "no container has a share");
	return true;
}

static const struct en_probe_gpu *find_gpu(const struct en_doctor_env *env, const char *uuid)
{
	for (size_t i = 0; i < env->probe->gpu_count; i++) {
		if (strcmp(env->probe->gpus[i].uuid, uuid) == 0)
			return &env->probe->gpus[i];
	}
	return NULL;
}

/* Has it ended since it was found? Then there is nothing to keep any more. */
static bool gone(const struct en_doctor_env *env, const struct en_doctor_container *c)
{
	char path[64], buf[DOCTOR_PATH_CAP];

	snprintf(path, sizeof(path), "/proc/%u", c->pid);
	return c->pid != 0 && access(doctor_path(env, path, buf), F_OK) != 0;
}

/* Can limits be asked for at all? */
static enum en_check_result way(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	const struct en_probe_gpu *gpu = NULL;
	char path[DOCTOR_PATH_CAP], mount[DOCTOR_PATH_CAP];
	struct err err = ERR_INIT;

	for (size_t i = 0; i < env->probe->gpu_count && gpu == NULL; i++) {
		if (!env->probe->gpus[i].mig_enabled)
			gpu = &env->probe->gpus[i];
	}
	if (gpu == NULL || env->limits == NULL ||
	    (env->probe->features & EN_FEATURE_MEMORY_LIMITS) == 0)
		return doctor_say(text, EN_CHECK_SKIP, "no GPU whose memory could be limited");
	if (env->limits->get(env->limits->ctx,
			     doctor_path(env, doctor_cgroup(env, "", mount), path), gpu->uuid, NULL,
			     NULL, NULL, &err) != 0)
		return doctor_say(text, EN_CHECK_FAIL, "%.250s", err.msg);
	return doctor_say(text, EN_CHECK_OK, "limits can be read");
}

/* What is in force, by value, for every container. */
static enum en_check_result in_force(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	enum en_check_result r;
	size_t bad = 0, checked = 0;
	struct err first = ERR_INIT;

	if (none(env, text, &r))
		return r;
	if (env->limits == NULL)
		return doctor_say(text, EN_CHECK_SKIP, "limits are not looked at");
	for (size_t i = 0; i < env->container_count; i++) {
		const struct en_doctor_container *c = &env->containers[i];

		for (size_t k = 0; c->by_cgroup && k < c->gpu_count; k++) {
			struct err err = ERR_INIT;

			bool wrong = en_limits_check(env->limits, c->cgroup, c->gpus[k],
						     c->soft_mib, c->hard_mib, &err) != 0;

			if (wrong && gone(env, c))
				continue;
			checked++;
			if (wrong && bad++ == 0)
				err_set(&first, ERR_CONFLICT, "%s: %.300s", c->name, err.msg);
		}
	}
	if (bad > 0)
		return doctor_say(text, EN_CHECK_FAIL, "%zu of %zu limits are not in force; %.220s",
				  bad, checked, first.msg);
	if (checked == 0)
		return doctor_say(text, EN_CHECK_SKIP, "no container is limited by its cgroup");
	return doctor_say(text, EN_CHECK_OK, "%zu limits are in force", checked);
}

/* The limit is on the cgroup that the container's process is in, not on one above. */
static enum en_check_result leaf(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	enum en_check_result r;

	if (none(env, text, &r))
		return r;
	for (size_t i = 0; i < env->container_count; i++) {
		const struct en_doctor_container *c = &env->containers[i];
		char path[600], *procs = NULL, pid[24];
		size_t len = 0;
		bool there;

		if (c->pid == 0 || !c->by_cgroup)
			continue;
		snprintf(path, sizeof(path), "%s/cgroup.procs", c->cgroup);
		snprintf(pid, sizeof(pid), "%u", c->pid);
		if (file_read(path, ENVIRON_MAX, &procs, &len, NULL) != 0) {
			if (gone(env, c))
				continue;
			return doctor_say(text, EN_CHECK_FAIL, "%s: %.200s cannot be read", c->name,
					  path);
		}
		there = doctor_has_word(procs, pid);
		free(procs);
		if (!there && !gone(env, c))
			return doctor_say(text, EN_CHECK_FAIL,
					  "%s: process %u is not in %.200s, but below or elsewhere",
					  c->name, c->pid, c->cgroup);
	}
	return doctor_say(text, EN_CHECK_OK, "processes are in the cgroups that are limited");
}

/* dmem must be handed down from the root to the container's parent. */
static enum en_check_result chain(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char mount[DOCTOR_PATH_CAP];
	char *controllers = doctor_read(env, doctor_cgroup(env, "/cgroup.controllers", mount));
	bool dmem = controllers != NULL && doctor_has_word(controllers, "dmem");
	enum en_check_result r;

	free(controllers);
	if (!dmem)
		return doctor_say(text, EN_CHECK_SKIP, "no dmem controller");
	if (none(env, text, &r))
		return r;
	for (size_t i = 0; i < env->container_count; i++) {
		const struct en_doctor_container *c = &env->containers[i];
		size_t start = strlen(env->root) + strlen(doctor_cgroup(env, "", mount));

		for (size_t at = start; at < strlen(c->cgroup); at++) {
			char path[700], *control = NULL;
			size_t len = 0;
			bool on;

			if (c->cgroup[at] != '/' || !c->by_cgroup)
				continue;
			snprintf(path, sizeof(path), "%.*s/cgroup.subtree_control", (int)at,
				 c->cgroup);
			if (file_read(path, 4096, &control, &len, NULL) != 0)
				continue;
			on = doctor_has_word(control, "dmem");
			free(control);
			if (!on)
				return doctor_say(text, EN_CHECK_WARN, "dmem is not in %.250s",
						  path);
		}
	}
	return doctor_say(text, EN_CHECK_OK, "dmem is handed down to all containers");
}

/* Every GPU that a container has is here, and has no MIG. */
static enum en_check_result placed(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	enum en_check_result r;

	if (none(env, text, &r))
		return r;
	for (size_t i = 0; i < env->container_count; i++) {
		const struct en_doctor_container *c = &env->containers[i];

		for (size_t k = 0; k < c->gpu_count; k++) {
			const struct en_probe_gpu *gpu = find_gpu(env, c->gpus[k]);

			if (gpu == NULL)
				return doctor_say(text, EN_CHECK_FAIL,
						  "%s has %s, which is not here", c->name,
						  c->gpus[k]);
			if (gpu->mig_enabled)
				return doctor_say(text, EN_CHECK_FAIL,
						  "%s has a share of %s, which has MIG on", c->name,
						  c->gpus[k]);
		}
	}
	return doctor_say(text, EN_CHECK_OK, "all GPUs of containers are here");
}

/* Guarantees together must fit; limits may be more, where that was configured. */
static enum en_check_result sums(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	enum en_check_result r = EN_CHECK_OK;

	if (none(env, text, &r))
		return r;
	doctor_say(text, EN_CHECK_OK, "guarantees and limits fit");
	for (size_t g = 0; g < env->probe->gpu_count; g++) {
		const struct en_probe_gpu *gpu = &env->probe->gpus[g];
		int64_t soft = 0, hard = 0;

		for (size_t i = 0; i < env->container_count; i++) {
			for (size_t k = 0; k < env->containers[i].gpu_count; k++) {
				if (strcmp(env->containers[i].gpus[k], gpu->uuid) != 0)
					continue;
				soft += env->containers[i].soft_mib;
				hard += env->containers[i].hard_mib;
			}
		}
		if (soft > gpu->mem_mib)
			return doctor_say(text, EN_CHECK_FAIL,
					  "%s: %lld MiB are guaranteed, it has %d", gpu->uuid,
					  (long long)soft, gpu->mem_mib);
		if (hard > gpu->mem_mib && r == EN_CHECK_OK)
			r = doctor_say(text, EN_CHECK_WARN,
				       "%s: limits add up to %lld MiB, it has %d", gpu->uuid,
				       (long long)hard, gpu->mem_mib);
	}
	return r;
}

/* Limited for each process only, although this driver can do better: started before an upgrade. */
static enum en_check_result kind(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	enum en_check_result r;

	if (none(env, text, &r))
		return r;
	for (size_t i = 0; i < env->container_count; i++) {
		if (env->containers[i].by_cgroup)
			continue;
		return doctor_say(text, EN_CHECK_WARN,
				  "%s: its limit holds for each of its processes, not for all "
				  "together",
				  env->containers[i].name);
	}
	return doctor_say(text, EN_CHECK_OK, "limits hold for whole containers");
}

const struct en_check doctor_limit_checks[] = {
	{"limits", "memory limits", "the driver or kernel offers none, or we may not ask",
	 "see the message, cgroup-v2 and privileges", true, way},
	{"limits-in-force", "limits in force",
	 "started while the agent was away, or changed by somebody else",
	 "the agent sets them again within a minute; where it cannot, delete the pod", false,
	 in_force},
	{"limits-leaf", "limited cgroups", "the container moved its processes",
	 "delete the pod; forbid writable cgroups", false, leaf},
	{"limits-chain", "dmem in the cgroup tree",
	 "a manager between root and container does not hand dmem down",
	 "write +dmem to cgroup.subtree_control of that folder and those above", false, chain},
	{"limits-gpus", "GPUs of containers", "a GPU is gone, or MIG was switched on under it",
	 "delete the pod", false, placed},
	{"limits-sum", "sums", "limits are overcommitted, or pods were placed by somebody else",
	 "see the overcommit option; delete pods that nobody placed", false, sums},
	{"limits-kind", "kind of limit", "legacy MPS",
	 "driver 615 or newer; restart containers that were started before the upgrade", false,
	 kind},
	{0},
};

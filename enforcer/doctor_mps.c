/* Checks of MPS. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/quantity.h"
#include "enforcer/doctor_internal.h"
#include "enforcer/mps_internal.h"

#define CONTROL_EXE "nvidia-cuda-mps-control"
#define ENVIRON_MAX 65536

/* MPS has nothing to do where every GPU has MIG on, or none is there. */
static bool not_wanted(const struct en_doctor_env *env, char text[EN_FINDING_CAP],
		       enum en_check_result *ret)
{
	for (size_t i = 0; i < env->probe->gpu_count; i++) {
		if (!env->probe->gpus[i].mig_enabled)
			return false;
	}
	*ret = doctor_say(text, EN_CHECK_SKIP, "no GPU that could be shared");
	return true;
}

static enum en_check_result tool(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	enum en_check_result r;

	if (not_wanted(env, text, &r))
		return r;
	if (doctor_has_program(env->control))
		return doctor_say(text, EN_CHECK_OK, "%s is there", env->control);
	return doctor_say(text, EN_CHECK_FAIL, "%s is not there", env->control);
}

static enum en_check_result directories(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	const char *const dirs[] = {env->pipe_dir, env->log_dir};
	enum en_check_result r;

	if (not_wanted(env, text, &r))
		return r;
	for (size_t i = 0; i < 2; i++) {
		char buf[DOCTOR_PATH_CAP];
		struct stat st;

		if (stat(doctor_path(env, dirs[i], buf), &st) != 0 || !S_ISDIR(st.st_mode))
			return doctor_say(text, EN_CHECK_FAIL, "%s is not there", dirs[i]);
		if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
			return doctor_say(text, EN_CHECK_FAIL, "%s can be written by others (%o)",
					  dirs[i], (unsigned)(st.st_mode & 07777));
		if ((st.st_mode & S_IXOTH) == 0)
			return doctor_say(text, EN_CHECK_FAIL,
					  "%s cannot be entered by others (%o)", dirs[i],
					  (unsigned)(st.st_mode & 07777));
	}
	return doctor_say(text, EN_CHECK_OK, "as they should be");
}

static enum en_check_result path_length(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	size_t len = strlen(env->pipe_dir) + sizeof("/" EN_MPS_SERVER "/") - 1 + 40;

	if (len > EN_MPS_PIPE_MAX)
		return doctor_say(text, EN_CHECK_FAIL,
				  "below %s a container's directory has %zu bytes, at most %d work",
				  env->pipe_dir, len, EN_MPS_PIPE_MAX);
	return doctor_say(text, EN_CHECK_OK, "directories of containers have %zu bytes", len);
}

/* Does the daemon answer, and is its server ready? */
static enum en_check_result answers(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	struct en_mps_status st;
	enum en_check_result r;
	enum en_mps_event ev;

	if (not_wanted(env, text, &r))
		return r;
	if (env->mps == NULL)
		return doctor_say(text, EN_CHECK_SKIP, "not asked");
	if (env->in_agent) {
		en_mps_get_status(env->mps, &st);
		if (st.usable)
			return doctor_say(text, EN_CHECK_OK, "the daemon answers");
		return doctor_say(text, EN_CHECK_FAIL, "%.250s", st.why);
	}
	ev = mps_ask(env->mps);
	if (ev == EN_MPS_EV_GOOD)
		return doctor_say(text, EN_CHECK_OK, "the daemon answers, and its server is ready");
	return doctor_say(text, EN_CHECK_FAIL, "%.250s", env->mps->why);
}

/* Clients; false: the check ends with *ret. */
static bool get_clients(const struct en_doctor_env *env, struct en_mps_client *rows, size_t cap,
			size_t *ret_count, char text[EN_FINDING_CAP], enum en_check_result *ret)
{
	struct err err = ERR_INIT;

	if (not_wanted(env, text, ret))
		return false;
	if (env->mps == NULL ||
	    mps_list_clients(env->mps, env->mps->running_legacy, env->mps->o.ask_limit_ms, rows,
			     cap, ret_count, &err) != 0) {
		*ret = doctor_say(text, EN_CHECK_SKIP, "clients cannot be listed%s%.200s",
				  err.msg[0] != '\0' ? ": " : "", err.msg);
		return false;
	}
	if (*ret_count > cap)
		*ret_count = cap;
	return true;
}

static enum en_check_result ghosts(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	struct en_mps_client *rows = calloc(MPS_ROWS_MAX, sizeof(*rows));
	enum en_check_result r = EN_CHECK_SKIP;
	size_t count = 0;

	if (rows == NULL)
		return doctor_say(text, EN_CHECK_SKIP, "out of memory");
	if (get_clients(env, rows, MPS_ROWS_MAX, &count, text, &r)) {
		r = doctor_say(text, EN_CHECK_OK, "%zu clients, all alive", count);
		for (size_t i = 0; i < count && r == EN_CHECK_OK; i++) {
			if (!mps_alive(env->mps, rows[i].pid))
				r = doctor_say(text, EN_CHECK_FAIL,
					       "MPS lists client %lld, whose process is gone",
					       (long long)rows[i].pid);
		}
	}
	free(rows);
	return r;
}

/* Containers that were promised MPS must be among its clients' namespaces; that their environment names a
 * directory is what can be seen of it. */
static enum en_check_result joined(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	if (env->container_count == 0)
		return doctor_say(text, EN_CHECK_SKIP, "no container has a share");
	for (size_t i = 0; i < env->container_count; i++) {
		if (!env->containers[i].has_pipe)
			return doctor_say(text, EN_CHECK_FAIL,
					  "%s has a share and no MPS directory: it runs outside of "
					  "MPS",
					  env->containers[i].name);
	}
	return doctor_say(text, EN_CHECK_OK, "%zu containers have their MPS directory",
			  env->container_count);
}

/* Another control daemon on this node, with another directory. */
static enum en_check_result others(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char buf[DOCTOR_PATH_CAP], path[EN_PATH_CAP], link[512], want[EN_PATH_CAP];
	DIR *dir = opendir(doctor_path(env, "/proc", buf));
	const struct dirent *e;
	enum en_check_result r = doctor_say(text, EN_CHECK_OK, "no other MPS control daemon");

	snprintf(want, sizeof(want), "CUDA_MPS_PIPE_DIRECTORY=%s", env->pipe_dir);
	while (dir != NULL && (e = readdir(dir)) != NULL && r == EN_CHECK_OK) {
		const char *name;
		int64_t pid;
		char *environment;
		size_t at = 0;
		bool ours = false;
		ssize_t len;

		if (integer_parse(e->d_name, 1, INT32_MAX, &pid, NULL) != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%lld/exe", (long long)pid);
		len = readlink(doctor_path(env, path, buf), link, sizeof(link) - 1);
		if (len < 0)
			continue;
		link[len] = '\0';
		name = strrchr(link, '/');
		name = name != NULL ? name + 1 : link;
		/* After an upgrade of the driver the old one runs on. */
		if (strcmp(name, CONTROL_EXE) != 0 && strcmp(name, CONTROL_EXE " (deleted)") != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%lld/environ", (long long)pid);
		environment = doctor_read(env, path); /* NULs between entries read as line ends */
		if (environment == NULL)              /* it has ended */
			continue;
		while (environment[at] != '\0' && !ours) {
			size_t n = strcspn(environment + at, "\n");

			ours = n == strlen(want) && memcmp(environment + at, want, n) == 0;
			at += n + (environment[at + n] != '\0');
		}
		free(environment);
		if (!ours)
			r = doctor_say(text, EN_CHECK_WARN,
				       "process %lld is another MPS control daemon",
				       (long long)pid);
	}
	if (dir != NULL)
		closedir(dir);
	return r;
}

static enum en_check_result namespaces(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	struct en_mps_status st;

	if (env->mps == NULL || !env->in_agent)
		return doctor_say(text, EN_CHECK_SKIP, "known to the running agent only");
	en_mps_get_status(env->mps, &st);
	if (st.legacy)
		return doctor_say(text, EN_CHECK_SKIP, "legacy MPS has no namespaces");
	if (st.namespaces_bad > 0)
		return doctor_say(text, EN_CHECK_FAIL,
				  "%zu of %zu containers have not their compute share",
				  st.namespaces_bad, st.namespaces);
	return doctor_say(text, EN_CHECK_OK, "%zu containers have their compute share",
			  st.namespaces);
}

static enum en_check_result stale(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	struct en_mps_status st;

	if (env->mps == NULL || !env->in_agent)
		return doctor_say(text, EN_CHECK_SKIP, "known to the running agent only");
	en_mps_get_status(env->mps, &st);
	if (st.recycle_when_idle)
		return doctor_say(text, EN_CHECK_WARN,
				  "MPS is suspect or has an old configuration; it is started anew "
				  "when no client is left");
	return doctor_say(text, EN_CHECK_OK, "not waiting for a restart");
}

const struct en_check doctor_mps_checks[] = {
	{"mps-tool", "MPS tool", "the driver's tools are not visible here",
	 "NVIDIA_DRIVER_CAPABILITIES=compute,utility, or install nvidia-cuda-mps", false, tool},
	{"mps-directories", "MPS directories", "made by hand, or the agent did not start yet",
	 "let the agent make them; 0755, root", false, directories},
	{"mps-path", "MPS path length", "a long --mps-pipe-dir",
	 "choose a short one: a longer socket makes the daemon fail without a word", false,
	 path_length},
	{"mps-answers", "MPS", "the daemon is missing, hangs, or is in FAULT",
	 "see the message; the agent restarts it by itself", true, answers},
	{"mps-clients", "MPS clients",
	 "a client was killed in the middle of a kernel and MPS is wedged",
	 "let the agent restart MPS: clients on the node lose their work", false, ghosts},
	{"mps-joined", "containers in MPS", "the container was started while the agent was away",
	 "delete the pod; the agent's retroactive check finds such containers", false, joined},
	{"mps-others", "other MPS daemons", "a device plugin or an operator with MPS of its own",
	 "switch it off: two daemons do not know of each other's shares", false, others},
	{"mps-shares", "compute shares", "a namespace was changed or deleted by somebody else",
	 "run containers as non-root: root in a container may change MPS", false, namespaces},
	{"mps-restart", "MPS restart", "a failed drain, ghost clients, or a changed configuration",
	 "drain the node where it does not become idle by itself", false, stale},
	{0},
};

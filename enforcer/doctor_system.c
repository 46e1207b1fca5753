/* Checks of kernel, cgroups, container runtime and of our own place on the node. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/quantity.h"
#include "enforcer/doctor_internal.h"

#define CAP_SYS_ADMIN_BIT 21
#define HOST_PID_NS "pid:[4026531836]" /* the kernel's own, on every machine */
#define MIB ((int64_t)1 << 20)
#define OWN_MIB 128         /* for the agent and the daemon */
#define OWN_MIB_EACH_GPU 50 /* of host memory, for MPS */

static bool is_v2(const struct en_doctor_env *env)
{
	char path[DOCTOR_PATH_CAP];
	char *controllers = doctor_read(env, doctor_cgroup(env, "/cgroup.controllers", path));
	bool v2 = controllers != NULL;

	free(controllers);
	return v2;
}

static enum en_check_result cgroup_v2(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char mount[DOCTOR_PATH_CAP];

	if (is_v2(env))
		return doctor_say(text, EN_CHECK_OK, "cgroup v2");
	if ((env->probe->features & EN_FEATURE_MEMORY_LIMITS) == 0)
		return doctor_say(text, EN_CHECK_SKIP, "not needed by this driver");
	return doctor_say(text, EN_CHECK_FAIL,
			  "%.200s has no cgroup.controllers: this is not cgroup v2",
			  doctor_cgroup(env, "", mount));
}

static enum en_check_result cgroup_dmem(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char path[DOCTOR_PATH_CAP];
	char *controllers = doctor_read(env, doctor_cgroup(env, "/cgroup.controllers", path));
	enum en_check_result r;

	if (controllers == NULL)
		return doctor_say(text, EN_CHECK_SKIP, "no cgroup v2");
	if (doctor_has_word(controllers, "dmem"))
		r = doctor_say(text, EN_CHECK_OK, "the kernel has the dmem controller");
	else
		r = doctor_say(text, EN_CHECK_WARN,
			       "no dmem controller: the driver accounts memory by itself");
	free(controllers);
	return r;
}

/* Each GPU without MIG has its line in dmem.capacity. */
static enum en_check_result dmem_gpus(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char path[DOCTOR_PATH_CAP];
	char *capacity = doctor_read(env, doctor_cgroup(env, "/dmem.capacity", path));
	enum en_check_result r = EN_CHECK_OK;

	if (capacity == NULL)
		return doctor_say(text, EN_CHECK_SKIP, "no dmem.capacity");
	doctor_say(text, EN_CHECK_OK, "dmem.capacity lists every GPU");
	for (size_t i = 0; i < env->probe->gpu_count && r == EN_CHECK_OK; i++) {
		const struct en_probe_gpu *g = &env->probe->gpus[i];

		/* Case differs between sources. */
		if (g->bus[0] != '\0' && !g->mig_enabled && strcasestr(capacity, g->bus) == NULL)
			r = doctor_say(text, EN_CHECK_WARN, "dmem.capacity has no line for %s (%s)",
				       g->uuid, g->bus);
	}
	free(capacity);
	return r;
}

/* Does a cgroup_disable=a,b of the kernel's command line, which may hold several, name it? */
static bool cgroup_disabled(const char *cmdline, const char *name)
{
	static const char option[] = "cgroup_disable=";
	size_t n = strlen(name);

	for (const char *p = cmdline; (p = strstr(p, option)) != NULL;) {
		bool starts = p == cmdline || p[-1] == ' ';

		p += strlen(option);
		while (starts && *p != '\0' && *p != ' ' && *p != '\n') {
			size_t len = strcspn(p, ", \n");

			if (len == n && memcmp(p, name, n) == 0)
				return true;
			p += len + (p[len] == ',');
		}
	}
	return false;
}

/* Is the driver's accounting of memory off? Its registry words are "Name=number;...", decimal or 0x. */
static bool accounting_off(const char *params)
{
	static const char word[] = "RmMemacctMode=";
	const char *at = strstr(params, word);
	char *end;

	return at != NULL && strtoull(at + strlen(word), &end, 0) == 0 && end != at + strlen(word);
}

static enum en_check_result kernel_options(const struct en_doctor_env *env,
					   char text[EN_FINDING_CAP])
{
	char *cmdline = doctor_read(env, "/proc/cmdline");
	char *params = doctor_read(env, "/proc/driver/nvidia/params");
	enum en_check_result r = doctor_say(text, EN_CHECK_OK, "nothing is switched off");

	if (cmdline != NULL && cgroup_disabled(cmdline, "dmem"))
		r = doctor_say(text, EN_CHECK_WARN,
			       "the kernel was booted with cgroup_disable=dmem");
	if (params != NULL && accounting_off(params))
		r = doctor_say(
			text, EN_CHECK_FAIL,
			"the driver was loaded with RmMemacctMode=0: memory is not accounted");
	free(cmdline);
	free(params);
	return r;
}

static enum en_check_result host_pid(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char buf[DOCTOR_PATH_CAP], target[64];
	ssize_t len =
		readlink(doctor_path(env, "/proc/self/ns/pid", buf), target, sizeof(target) - 1);

	if (len < 0)
		return doctor_say(text, EN_CHECK_WARN, "/proc/self/ns/pid cannot be read");
	target[len] = '\0';
	if (strcmp(target, HOST_PID_NS) == 0)
		return doctor_say(text, EN_CHECK_OK, "we see the host's processes");
	return doctor_say(text, EN_CHECK_FAIL, "we are in PID namespace %s, not the host's",
			  target);
}

static enum en_check_result privileges(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char *status = doctor_read(env, "/proc/self/status");
	const char *line = status != NULL ? strstr(status, "CapEff:") : NULL;
	unsigned long long caps = line != NULL ? strtoull(line + 7, NULL, 16) : 0;

	free(status);
	if (line == NULL)
		return doctor_say(text, EN_CHECK_WARN, "/proc/self/status cannot be read");
	if ((caps >> CAP_SYS_ADMIN_BIT & 1) == 0)
		return doctor_say(text, EN_CHECK_FAIL,
				  "CAP_SYS_ADMIN is missing: limits and MIG cannot be set");
	return doctor_say(text, EN_CHECK_OK, "CAP_SYS_ADMIN is there");
}

/* The least memory.max from the cgroup up to the root; -1: none is set or known. path is cut. */
static int64_t least_limit(const struct en_doctor_env *env, char *path)
{
	int64_t least = -1, max;

	for (;;) {
		char below[DOCTOR_PATH_CAP], file[DOCTOR_PATH_CAP], *limit, *slash;

		snprintf(below, sizeof(below), "%.900s/memory.max", path);
		limit = doctor_read(env, doctor_cgroup(env, below, file));
		if (limit != NULL)
			limit[strcspn(limit, "\n")] = '\0';
		if (limit != NULL && integer_parse(limit, 0, INT64_MAX, &max, NULL) == 0 &&
		    (least < 0 || max < least))
			least = max;
		free(limit);
		slash = strrchr(path, '/');
		if (slash == NULL)
			return least;
		*slash = '\0';
	}
}

/* The host memory that we may use: MPS takes about 50 MiB for each GPU, and too little shows up as CUDA
 * errors in clients. */
static enum en_check_result own_memory(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	int64_t need = (int64_t)(OWN_MIB + OWN_MIB_EACH_GPU * env->probe->gpu_count) * MIB, max;
	char *self = doctor_read(env, "/proc/self/cgroup");
	char *line = self != NULL ? strstr(self, "0::/") : NULL;

	if (line == NULL) {
		free(self);
		return doctor_say(text, EN_CHECK_SKIP, "no cgroup v2");
	}
	line += 3;
	line[strcspn(line, "\n")] = '\0';
	max = least_limit(env, line);
	free(self);
	if (max >= 0 && max < need)
		return doctor_say(text, EN_CHECK_WARN,
				  "our memory limit is %lld MiB, %lld are wanted for %zu GPUs",
				  (long long)(max / MIB), (long long)(need / MIB),
				  env->probe->gpu_count);
	return doctor_say(text, EN_CHECK_OK, "enough host memory");
}

static bool is_socket(const struct en_doctor_env *env, const char *path)
{
	char buf[DOCTOR_PATH_CAP];
	struct stat st;

	return stat(doctor_path(env, path, buf), &st) == 0 && S_ISSOCK(st.st_mode);
}

static enum en_check_result nri_socket(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	if (is_socket(env, env->nri_socket))
		return doctor_say(text, EN_CHECK_OK, "%s is there", env->nri_socket);
	return doctor_say(text, EN_CHECK_FAIL, "%s is not there, or no socket", env->nri_socket);
}

static enum en_check_result kubelet_socket(const struct en_doctor_env *env,
					   char text[EN_FINDING_CAP])
{
	if (env->kubelet_socket[0] == '\0')
		return doctor_say(text, EN_CHECK_SKIP, "not asked");
	if (is_socket(env, env->kubelet_socket))
		return doctor_say(text, EN_CHECK_OK, "%s is there", env->kubelet_socket);
	return doctor_say(text, EN_CHECK_WARN,
			  "%s is not there: GPUs that a device plugin gave away are not seen",
			  env->kubelet_socket);
}

/* A CDI specification or the NVIDIA runtime: something must put the driver's files into containers. */
static enum en_check_result toolkit(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	static const char *const folders[] = {"/etc/cdi", "/var/run/cdi", "/run/cdi"};
	static const char *const programs[] = {
		"/usr/bin/nvidia-container-runtime",
		"/usr/local/nvidia/toolkit/nvidia-container-runtime"};
	char buf[DOCTOR_PATH_CAP];

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		DIR *dir = opendir(doctor_path(env, folders[i], buf));
		const struct dirent *e;
		bool found = false;

		while (dir != NULL && (e = readdir(dir)) != NULL)
			found = found || strstr(e->d_name, "nvidia") != NULL;
		if (dir != NULL)
			closedir(dir);
		if (found)
			return doctor_say(text, EN_CHECK_OK, "a CDI specification is in %s",
					  folders[i]);
	}
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (access(doctor_path(env, programs[i], buf), X_OK) == 0)
			return doctor_say(text, EN_CHECK_OK, "%s is there", programs[i]);
	}
	return doctor_say(text, EN_CHECK_FAIL,
			  "neither a CDI specification for NVIDIA nor nvidia-container-runtime");
}

const struct en_check doctor_system_checks[] = {
	{"cgroup-v2", "cgroup version", "the node was booted with cgroup v1 or the hybrid form",
	 "boot with systemd.unified_cgroup_hierarchy=1", true, cgroup_v2},
	{"cgroup-dmem", "dmem controller", "the kernel is older than 6.14 or built without it",
	 "a newer kernel gives limits that the kernel enforces", false, cgroup_dmem},
	{"dmem-gpus", "dmem and GPUs", "the driver did not register the GPU with the controller",
	 "reload the driver; see the kernel log", false, dmem_gpus},
	{"kernel-options", "kernel and driver options", "options set by an administrator",
	 "remove cgroup_disable=dmem and NVreg_RegistryDwords RmMemacctMode=0", false,
	 kernel_options},
	{"host-pid", "PID namespace", "the pod has no hostPID: true",
	 "set hostPID: true; MPS sees clients as pid 0 otherwise and enforces nothing", true,
	 host_pid},
	{"privileges", "privileges", "the container is not privileged enough",
	 "run with CAP_SYS_ADMIN", true, privileges},
	{"own-memory", "our memory limit", "a small memory limit on the pod",
	 "raise it: clients see too little as CUDA_ERROR_OUT_OF_MEMORY", false, own_memory},
	{"nri-socket", "NRI", "NRI is off in the container runtime, or its folder is not mounted",
	 "enable NRI in containerd or CRI-O; mount the folder of the socket", true, nri_socket},
	{"kubelet-socket", "kubelet", "the folder of pod-resources is not mounted",
	 "mount /var/lib/kubelet/pod-resources", false, kubelet_socket},
	{"toolkit", "container toolkit", "the NVIDIA container toolkit is not installed",
	 "install it, and make a CDI specification with nvidia-ctk cdi generate", false, toolkit},
	{0},
};

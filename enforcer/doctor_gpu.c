/* Checks of driver, GPUs and MIG: all from the probe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "enforcer/doctor_internal.h"

#define HOT_C 5 /* so near to where the GPU slows down */

static bool no_driver(const struct en_doctor_env *env, char text[EN_FINDING_CAP],
		      enum en_check_result *ret)
{
	if (env->probe->driver_ok && env->probe->gpu_count > 0)
		return false;
	*ret = doctor_say(text, EN_CHECK_SKIP, "no GPU to look at");
	return true;
}

/* Runs over the GPUs; what is wrong with the first bad one becomes the text. */
typedef bool (*gpu_fn)(const struct en_probe_gpu *g, char text[EN_FINDING_CAP]);

static enum en_check_result each(const struct en_doctor_env *env, char text[EN_FINDING_CAP],
				 enum en_check_result bad, gpu_fn is_bad, const char *well)
{
	enum en_check_result r;
	char first[EN_FINDING_CAP] = "";
	size_t n = 0;

	if (no_driver(env, text, &r))
		return r;
	for (size_t i = 0; i < env->probe->gpu_count; i++) {
		char one[EN_FINDING_CAP] = "";

		if (is_bad(&env->probe->gpus[i], one) && n++ == 0)
			memcpy(first, one, sizeof(first));
	}
	if (n == 0)
		return doctor_say(text, EN_CHECK_OK, "%s", well);
	if (n == 1)
		return doctor_say(text, bad, "%s", first);
	return doctor_say(text, bad, "%zu GPUs; %.200s", n, first);
}

static enum en_check_result driver(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	if (!env->probe->driver_ok)
		return doctor_say(text, EN_CHECK_FAIL, "%.250s", env->probe->why.msg);
	return doctor_say(text, EN_CHECK_OK, "driver %s answers", env->probe->driver);
}

/* The kernel module and the library are of one version. */
static enum en_check_result driver_match(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char *version = doctor_read(env, "/proc/driver/nvidia/version");
	enum en_check_result r;

	if (version == NULL && !env->probe->driver_ok)
		return doctor_say(text, EN_CHECK_SKIP, "no driver");
	if (version == NULL)
		return doctor_say(text, EN_CHECK_WARN,
				  "/proc/driver/nvidia/version cannot be read");
	if (!env->probe->driver_ok)
		r = doctor_say(text, EN_CHECK_SKIP, "the library does not answer");
	else if (doctor_has_word(version, env->probe->driver))
		r = doctor_say(text, EN_CHECK_OK, "kernel module and library are %s",
			       env->probe->driver);
	else
		r = doctor_say(text, EN_CHECK_FAIL,
			       "the library is %s, the kernel module is: %.150s",
			       env->probe->driver, version);
	free(version);
	return r;
}

static enum en_check_result driver_version(const struct en_doctor_env *env,
					   char text[EN_FINDING_CAP])
{
	if (!env->probe->driver_ok)
		return doctor_say(text, EN_CHECK_SKIP, "no driver");
	if ((env->probe->features & EN_FEATURE_MEMORY_LIMITS) == 0)
		return doctor_say(text, EN_CHECK_WARN,
				  "driver %s limits memory for each process only and shares by "
				  "legacy MPS; %d and newer limit a container as a whole",
				  env->probe->driver, EN_DRIVER_V3_MAJOR);
	return doctor_say(text, EN_CHECK_OK, "driver %s has MPS v3 and memory limits",
			  env->probe->driver);
}

static enum en_check_result gpus(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	const struct en_probe *p = env->probe;

	if (!p->driver_ok)
		return doctor_say(text, EN_CHECK_SKIP, "no driver");
	if (p->gpu_count == 0)
		return doctor_say(text, EN_CHECK_FAIL, "the driver lists no GPU");
	if (p->note_count > 0)
		return doctor_say(text, EN_CHECK_WARN, "%zu GPUs; %.200s", p->gpu_count,
				  p->notes[0].msg);
	return doctor_say(text, EN_CHECK_OK, "%zu GPUs", p->gpu_count);
}

static bool unhealthy(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_FAIL, "%s: %s", g->uuid, g->why);
	return !g->healthy;
}

static enum en_check_result gpu_health(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_FAIL, unhealthy, "all GPUs are healthy");
}

static bool has_xid(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_WARN, "%s: XID error %llu%s", g->uuid, (unsigned long long)g->xid,
		   en_xid_is_application(g->xid) ? ", of an application" : "");
	return g->xid != 0;
}

static enum en_check_result gpu_xid(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, has_xid, "no XID error since the start");
}

static bool has_ecc(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_FAIL, "%s: %lld uncorrectable memory errors since its reset",
		   g->uuid, (long long)g->state.ecc_uncorrected);
	return g->state.ecc_uncorrected > 0;
}

static enum en_check_result gpu_ecc(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_FAIL, has_ecc, "no uncorrectable memory error");
}

static bool has_remap(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_WARN, "%s: %s", g->uuid,
		   g->state.remap_failed == 1 ? "a memory row could not be remapped"
					      : "memory rows are exchanged at the next reset");
	return g->state.remap_failed == 1 || g->state.remap_pending == 1;
}

static enum en_check_result gpu_remap(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, has_remap, "no memory row waits to be exchanged");
}

static bool is_hot(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	const struct en_nvml_state *s = &g->state;

	doctor_say(text, EN_CHECK_WARN, "%s: %d C, it slows down at %d C", g->uuid,
		   s->temperature_c, s->slowdown_c);
	return s->temperature_c != EN_NVML_UNKNOWN && s->slowdown_c > 0 &&
	       s->temperature_c + HOT_C >= s->slowdown_c;
}

static enum en_check_result gpu_temperature(const struct en_doctor_env *env,
					    char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, is_hot, "no GPU is near to where it slows down");
}

static bool is_throttled(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	const int64_t bad = EN_THROTTLE_HW_SLOWDOWN | EN_THROTTLE_SW_THERMAL |
			    EN_THROTTLE_HW_THERMAL | EN_THROTTLE_HW_POWER_BRAKE;
	int64_t bits = g->state.throttle;

	if (bits == EN_NVML_UNKNOWN)
		return false;
	doctor_say(text, EN_CHECK_WARN, "%s: slowed down (%s)", g->uuid,
		   (bits & EN_THROTTLE_HW_POWER_BRAKE) != 0                          ? "power brake"
		   : (bits & (EN_THROTTLE_HW_THERMAL | EN_THROTTLE_SW_THERMAL)) != 0 ? "heat"
										     : "hardware");
	return (bits & bad) != 0;
}

static enum en_check_result gpu_throttle(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, is_throttled, "no GPU is slowed down");
}

static bool no_persistence(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_WARN, "%s: persistence mode is off", g->uuid);
	return g->state.persistence == 0;
}

static enum en_check_result gpu_persistence(const struct en_doctor_env *env,
					    char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, no_persistence, "the driver stays loaded");
}

static bool prohibited(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_FAIL, "%s: compute mode is PROHIBITED", g->uuid);
	return g->state.compute_mode == 2;
}

static bool not_shared(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	if (prohibited(g, text))
		return true;
	doctor_say(text, EN_CHECK_FAIL, "%s: compute mode is EXCLUSIVE_PROCESS", g->uuid);
	return g->state.compute_mode == 3;
}

/* In exclusive mode, clients with contexts of their own (time-slicing) cannot start; legacy MPS likes it. */
static enum en_check_result gpu_compute_mode(const struct en_doctor_env *env,
					     char text[EN_FINDING_CAP])
{
	bool legacy = (env->probe->features & EN_FEATURE_MPS_V3) == 0;

	return each(env, text, EN_CHECK_FAIL, legacy ? prohibited : not_shared,
		    legacy ? "no GPU is closed to programs" : "compute mode is the default one");
}

static bool is_foreign(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_WARN, "%s is held by %s", g->uuid, g->foreign);
	return g->foreign[0] != '\0';
}

static enum en_check_result gpu_foreign(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, is_foreign, "no process outside of Tessera");
}

static bool mig_pending(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	doctor_say(text, EN_CHECK_WARN, "%s: MIG mode is %s, %s after the next reset", g->uuid,
		   g->mig_enabled ? "on" : "off", g->mig_pending ? "on" : "off");
	return g->mig_capable && g->mig_enabled != g->mig_pending;
}

static enum en_check_result mig_mode(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, mig_pending, "MIG mode is as it shall be");
}

static bool no_geometry(const struct en_probe_gpu *g, char text[EN_FINDING_CAP])
{
	const struct st_mig_geometry *table = st_mig_table_find(g->product, g->mem_mib);
	bool starts = false;

	for (int i = 0; table != NULL && i < table->profile_count; i++)
		starts = starts || table->profiles[i].start_count > 0;
	doctor_say(text, EN_CHECK_WARN,
		   "%s: MIG is on, and the starts of its profiles are not known", g->uuid);
	return g->mig_enabled && !g->has_geometry && !starts;
}

static enum en_check_result mig_geometry(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	return each(env, text, EN_CHECK_WARN, no_geometry, "known where MIG is on");
}

/* /dev/nvidiactl, /dev/nvidia-uvm and one for each GPU. */
static enum en_check_result device_nodes(const struct en_doctor_env *env, char text[EN_FINDING_CAP])
{
	char path[64], buf[DOCTOR_PATH_CAP];
	enum en_check_result r;
	struct stat st;

	if (no_driver(env, text, &r))
		return r;
	for (size_t i = 0; i < env->probe->gpu_count + 2; i++) {
		if (i == 0)
			snprintf(path, sizeof(path), "/dev/nvidiactl");
		else if (i == 1)
			snprintf(path, sizeof(path), "/dev/nvidia-uvm");
		else if (env->probe->gpus[i - 2].minor < 0)
			continue;
		else
			snprintf(path, sizeof(path), "/dev/nvidia%d",
				 env->probe->gpus[i - 2].minor);
		if (stat(doctor_path(env, path, buf), &st) != 0)
			return doctor_say(text, EN_CHECK_FAIL, "%s is missing", path);
	}
	return doctor_say(text, EN_CHECK_OK, "all there");
}

const struct en_check doctor_gpu_checks[] = {
	{"driver", "driver", "no driver is loaded, or the library is not visible here",
	 "install the driver, or give the agent the driver's files", true, driver},
	{"driver-match", "driver and library",
	 "the driver was upgraded without unloading the old module",
	 "drain the node and reload the module, or reboot", false, driver_match},
	{"driver-version", "driver version", "an older driver branch is installed",
	 "install driver 615 or newer for limits on whole containers", false, driver_version},
	{"gpus", "GPUs", "a GPU does not answer or is more than a node may have",
	 "see `nvidia-smi -L` and the kernel log", false, gpus},
	{"gpu-health", "GPU health", "hardware errors, see the other checks",
	 "drain the node, reset the GPU; replace it where it comes back", false, gpu_health},
	{"gpu-xid", "XID errors", "an application or the hardware",
	 "look the number up in NVIDIA's list of XID errors", false, gpu_xid},
	{"gpu-ecc", "memory errors", "memory of the GPU fails",
	 "drain the node and reset the GPU; replace it where it comes back", false, gpu_ecc},
	{"gpu-remap", "row remapping", "bad memory rows were found",
	 "reset the GPU at the next chance; replace it where remapping failed", false, gpu_remap},
	{"gpu-temperature", "temperature", "cooling is not enough for the load",
	 "check fans, airflow and the room", false, gpu_temperature},
	{"gpu-throttle", "clocks", "heat, or not enough power", "check cooling and power supplies",
	 false, gpu_throttle},
	{"gpu-persistence", "persistence", "nvidia-persistenced does not run",
	 "run nvidia-persistenced, so that limits and modes outlive the last client", false,
	 gpu_persistence},
	{"gpu-compute-mode", "compute mode",
	 "somebody set it with nvidia-smi -c, or a device plugin did", "nvidia-smi -c DEFAULT",
	 false, gpu_compute_mode},
	{"gpu-foreign", "foreign processes", "a process was started outside of Kubernetes",
	 "end it, or leave the GPU to it: nothing is placed there", false, gpu_foreign},
	{"mig-mode", "MIG mode", "it was changed and needs a reset",
	 "drain the node and reset the GPU", false, mig_mode},
	{"mig-geometry", "MIG geometry", "a product or driver that is not known",
	 "run the agent with the privilege to read MIG profiles, or upgrade the driver", false,
	 mig_geometry},
	{"device-nodes", "device nodes", "nvidia-modprobe was not run, or /dev is not the host's",
	 "run nvidia-modprobe -u -c 0, mount the host's /dev", false, device_nodes},
	{0},
};

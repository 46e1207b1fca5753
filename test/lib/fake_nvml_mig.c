/* MIG and memory limits of the library in fake_nvml.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/lib/fake_nvml.h"
#include "test/lib/fake_nvml_internal.h"

/* ---- MIG ---- */

static bool mig_on(int gpu)
{
	const struct line *l = gpu_line(gpu);
	const char *mig = l != NULL ? value(l, "mig") : NULL;

	return mig != NULL && strcmp(mig, "on") == 0;
}

int nvmlDeviceGetMigMode(struct en_nvml_device *d, unsigned *current, unsigned *pending)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const struct line *l = gpu_line(gpu_of(d));
		const char *mig = value(l, "mig"), *next = value(l, "pending");

		if (mig == NULL || strcmp(mig, "none") == 0) {
			code = NV_NOT_SUPPORTED;
		} else {
			*current = mig_on(gpu_of(d));
			*pending = next != NULL ? strcmp(next, "on") == 0 : *current;
		}
	}
	return leave(code);
}

static const struct line *profile_line(int gpu, const char *key, unsigned v)
{
	const struct line *l;

	for (size_t i = 0; (l = find("profile", gpu, i)) != NULL; i++) {
		if (number(l, key, -1) == (long long)v)
			return l;
	}
	return NULL;
}

static int give_profile(int gpu, unsigned which, const struct line **ret)
{
	if (!mig_on(gpu) && find("profiles_need_mig", -2, 0) != NULL)
		return NV_NOT_SUPPORTED;
	if (which > 17)
		return NV_INVALID_ARGUMENT;
	*ret = profile_line(gpu, "which", which);
	return *ret != NULL ? NV_OK : NV_NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceProfileInfo(struct en_nvml_device *d, unsigned which,
					struct nv_gi_profile *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const struct line *l;

		code = give_profile(gpu_of(d), which, &l);
		if (code == NV_OK) {
			memset(ret, 0, sizeof(*ret));
			ret->id = (unsigned)number(l, "id", 0);
			ret->slices = (unsigned)number(l, "slices", 1);
			ret->instances = (unsigned)number(l, "max", 1);
			ret->mem_mib = (unsigned long long)number(l, "mem", 0);
		}
	}
	return leave(code);
}

int nvmlDeviceGetGpuInstanceProfileInfoV(struct en_nvml_device *d, unsigned which,
					 struct nv_gi_profile_v2 *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const struct line *l;

		code = give_profile(gpu_of(d), which, &l);
		if (code == NV_OK && ret->version != NV_STRUCT_VERSION(nv_gi_profile_v2, 2))
			code = NV_VERSION_MISMATCH;
		if (code == NV_OK) {
			memset(ret, 0, sizeof(*ret));
			ret->id = (unsigned)number(l, "id", 0);
			ret->slices = (unsigned)number(l, "slices", 1);
			ret->instances = (unsigned)number(l, "max", 1);
			ret->mem_mib = (unsigned long long)number(l, "mem", 0);
			code = copy_text(value(l, "name") != NULL ? value(l, "name") : "",
					 ret->name, NV_NAME_CAP);
		}
	}
	return leave(code);
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct en_nvml_device *d, unsigned profile_id,
						  struct nv_gi_placement *ret, unsigned *count)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const struct line *l = profile_line(gpu_of(d), "id", profile_id);
		const char *s = l != NULL ? value(l, "starts") : NULL;
		unsigned n = 0;

		if (l == NULL)
			code = NV_INVALID_ARGUMENT;
		while (s != NULL && *s != '\0') {
			char *end;
			unsigned start = (unsigned)strtoul(s, &end, 10);

			if (ret != NULL && n < *count) {
				ret[n].start = start;
				ret[n].size = (unsigned)number(l, "size", 1);
			}
			n++;
			s = *end == ',' ? end + 1 : end;
		}
		*count = n;
	}
	return leave(code);
}

int nvmlDeviceGetGpuInstances(struct en_nvml_device *d, unsigned profile_id, struct nv_gi **ret,
			      unsigned *count)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const struct line *l;
		unsigned n = 0;

		if (!mig_on(gpu_of(d)))
			code = NV_NOT_SUPPORTED;
		for (size_t i = 0; code == NV_OK && (l = find("instance", gpu_of(d), i)) != NULL;
		     i++) {
			if (number(l, "profile", -1) == (long long)profile_id)
				ret[n++] = (struct nv_gi *)&gi_handles[l - lines];
		}
		*count = n;
	}
	return leave(code);
}

int nvmlGpuInstanceGetInfo(struct nv_gi *gi, struct nv_gi_info *ret)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		const struct line *l = &lines[(char *)gi - gi_handles];

		memset(ret, 0, sizeof(*ret));
		ret->device = (struct en_nvml_device *)&device_handles[number(l, "gpu", 0)];
		ret->id = (unsigned)number(l, "id", 0);
		ret->profile_id = (unsigned)number(l, "profile", 0);
		ret->placement.start = (unsigned)number(l, "start", 0);
		ret->placement.size = (unsigned)number(l, "size", 1);
	}
	return leave(code);
}

/* Each instance has one compute instance over the whole of it, unless it has no uuid. */
int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct nv_gi *gi, unsigned which, unsigned engine,
						 struct nv_ci_profile *ret)
{
	(void)gi;
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		memset(ret, 0, sizeof(*ret));
		ret->id = which + 100;
		ret->slices = which + 1;
		code = which < 4 && engine == 0 ? NV_OK : NV_NOT_SUPPORTED;
	}
	return leave(code);
}

int nvmlGpuInstanceGetComputeInstances(struct nv_gi *gi, unsigned profile_id, struct nv_ci **ret,
				       unsigned *count)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		size_t at = (size_t)((char *)gi - gi_handles);

		*count = 0;
		if (profile_id == 101 && value(&lines[at], "uuid") != NULL)
			ret[(*count)++] = (struct nv_ci *)&ci_handles[at];
	}
	return leave(code);
}

int nvmlComputeInstanceGetInfo_v2(struct nv_ci *ci, struct nv_ci_info *ret)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		size_t at = (size_t)((char *)ci - ci_handles);

		memset(ret, 0, sizeof(*ret));
		ret->device = (struct en_nvml_device *)&mig_handles[at];
		ret->gi = (struct nv_gi *)&gi_handles[at];
	}
	return leave(code);
}

/* ---- memory limits ---- */

static FILE *open_log(const char *mode)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s.log", getenv(FAKE_NVML_ENV));
	return fopen(path, mode);
}

static const char *backend(void)
{
	const struct line *l = find("backend", -2, 0);

	return l != NULL && l->count > 1 ? l->words[1] : "dmem";
}

static int may_limit(const struct en_nvml_device *d, const char *cgroup)
{
	if (gpu_of(d) < 0 || mig_on(gpu_of(d)) || strcmp(backend(), "none") == 0)
		return NV_NOT_SUPPORTED;
	return cgroup != NULL && access(cgroup, F_OK) == 0 ? NV_OK : NV_NOT_FOUND;
}

int nvmlDeviceSetMemoryLimits_v1(struct en_nvml_device *d, struct nv_set_limits_v1 *limits)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		FILE *f = NULL;

		code = may_limit(d, limits->cgroup);
		if (code == NV_OK && limits->soft > limits->hard)
			code = NV_INVALID_ARGUMENT;
		if (code == NV_OK && find("forgets", -2, 0) == NULL)
			f = open_log("a");
		if (f != NULL) {
			fprintf(f, "set %s %s %llu ", value(gpu_line(gpu_of(d)), "uuid"),
				limits->cgroup, limits->soft);
			if (limits->hard == ~0ULL)
				fprintf(f, "-\n");
			else
				fprintf(f, "%llu\n", limits->hard);
			fclose(f);
		}
	}
	return leave(code);
}

int nvmlDeviceGetMemoryLimits_v1(struct en_nvml_device *d, struct nv_get_limits_v1 *limits)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const char *mine = NULL;
		char text[4096];
		bool set = false;
		FILE *f = NULL;

		code = may_limit(d, limits->cgroup);
		if (code == NV_OK) {
			mine = value(gpu_line(gpu_of(d)), "uuid");
			f = open_log("r");
		}
		while (f != NULL && fgets(text, sizeof(text), f) != NULL) {
			char *words[5], *rest = text;
			size_t n = 0;

			while (n < 5 && (words[n] = strsep(&rest, " \n")) != NULL)
				n++;
			if (n < 5 || strcmp(words[1], mine) != 0 ||
			    strcmp(words[2], limits->cgroup) != 0)
				continue;
			limits->soft = strtoull(words[3], NULL, 10);
			limits->hard = words[4][0] == '-' ? ~0ULL : strtoull(words[4], NULL, 10);
			limits->used = 0;
			set = true;
		}
		if (f != NULL)
			fclose(f);
		if (code == NV_OK && !set)
			code = strcmp(backend(), "misc") == 0 ? NV_NOT_SUPPORTED : NV_NOT_FOUND;
	}
	return leave(code);
}

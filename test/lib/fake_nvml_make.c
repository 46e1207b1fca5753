/* MIG instances and modes that change, of the library in fake_nvml.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/lib/fake_nvml_internal.h"

static const char *mode_of(int gpu)
{
	const struct line *l = gpu_line(gpu);

	return l != NULL && value(l, "mig") != NULL ? value(l, "mig") : "none";
}

static const struct line *profile_of(int gpu, long long id)
{
	const struct line *l;

	for (size_t i = 0; (l = find("profile", gpu, i)) != NULL; i++)
		if (number(l, "id", -1) == id)
			return l;
	return NULL;
}

static bool starts_at(const struct line *profile, unsigned start)
{
	const char *s = value(profile, "starts");

	while (s != NULL && *s != '\0') {
		char *end;

		if (strtoul(s, &end, 10) == start)
			return true;
		s = *end == ',' ? end + 1 : end;
	}
	return false;
}

/* Do slices and places allow it beside what is there? */
static bool has_room(int gpu, const struct line *profile, const struct nv_gi_placement *at)
{
	long long slices = number(profile, "slices", 1), same = 0, all = 7;
	const struct line *l;

	if (profile_of(gpu, 0) != NULL)
		all = number(profile_of(gpu, 0), "slices", 7);
	for (size_t i = 0; (l = find("instance", gpu, i)) != NULL; i++) {
		const struct line *p = profile_of(gpu, number(l, "profile", -1));

		slices += p != NULL ? number(p, "slices", 1) : 0;
		same += p == profile;
		if (number(l, "start", 0) < at->start + at->size &&
		    at->start < number(l, "start", 0) + number(l, "size", 1))
			return false;
	}
	return slices <= all && same < number(profile, "max", 1);
}

static unsigned free_id(int gpu)
{
	for (unsigned id = 1;; id++) {
		const struct line *l;
		bool used = false;

		for (size_t i = 0; (l = find("instance", gpu, i)) != NULL; i++)
			used |= number(l, "id", 0) == id;
		if (!used)
			return id;
	}
}

int nvmlDeviceCreateGpuInstanceWithPlacement(struct en_nvml_device *d, unsigned profile_id,
					     const struct nv_gi_placement *at, struct nv_gi **ret)
{
	int gpu = gpu_of(d), code = enter(__func__, gpu);

	if (code == NV_OK) {
		const struct line *p = profile_of(gpu, profile_id);
		char text[160];

		if (strcmp(mode_of(gpu), "on") != 0)
			code = NV_NOT_SUPPORTED;
		else if (p == NULL || !starts_at(p, at->start) || at->size != number(p, "size", 1))
			code = NV_INVALID_ARGUMENT;
		else if (!has_room(gpu, p, at))
			code = NV_INSUFFICIENT_RESOURCES;
		if (code == NV_OK) {
			snprintf(text, sizeof(text),
				 "instance gpu=%d profile=%u id=%u start=%u size=%u", gpu,
				 profile_id, free_id(gpu), at->start, at->size);
			*ret = (struct nv_gi *)&gi_handles[add_line(text)];
			write_script();
		}
	}
	return leave(code);
}

int nvmlDeviceGetGpuInstanceById(struct en_nvml_device *d, unsigned id, struct nv_gi **ret)
{
	int gpu = gpu_of(d), code = enter(__func__, gpu);

	if (code == NV_OK) {
		const struct line *l;

		code = NV_NOT_FOUND;
		for (size_t i = 0; (l = find("instance", gpu, i)) != NULL; i++)
			if (number(l, "id", 0) == id) {
				*ret = (struct nv_gi *)&gi_handles[l - lines];
				code = NV_OK;
			}
	}
	return leave(code);
}

int nvmlGpuInstanceCreateComputeInstance(struct nv_gi *gi, unsigned profile_id, struct nv_ci **ret)
{
	size_t at = (size_t)((char *)gi - gi_handles);
	int code = enter(__func__, -1);

	(void)profile_id;
	if (code == NV_OK) {
		char uuid[64];

		/* The number of the line is not given again, so the UUID is not either. */
		snprintf(uuid, sizeof(uuid), "MIG-%lld-%lld-%zu", number(&lines[at], "gpu", 0),
			 number(&lines[at], "start", 0), at);
		set_word(at, "uuid", uuid);
		write_script();
		*ret = (struct nv_ci *)&ci_handles[at];
	}
	return leave(code);
}

static bool busy(const struct line *instance)
{
	const struct line *l;

	for (size_t i = 0; (l = find("busy", (int)number(instance, "gpu", 0), i)) != NULL; i++)
		if (number(l, "start", -1) == number(instance, "start", 0))
			return true;
	return false;
}

int nvmlComputeInstanceDestroy(struct nv_ci *ci)
{
	size_t at = (size_t)((char *)ci - ci_handles);
	int code = enter(__func__, -1);

	if (code == NV_OK && busy(&lines[at]))
		code = NV_IN_USE;
	if (code == NV_OK) {
		set_word(at, "uuid", NULL);
		write_script();
	}
	return leave(code);
}

int nvmlGpuInstanceDestroy(struct nv_gi *gi)
{
	static char gone[] = "gone";
	size_t at = (size_t)((char *)gi - gi_handles);
	int code = enter(__func__, -1);

	if (code == NV_OK && strcmp(lines[at].words[0], "instance") != 0)
		code = NV_NOT_FOUND;
	if (code == NV_OK && (value(&lines[at], "uuid") != NULL || busy(&lines[at])))
		code = NV_IN_USE;
	if (code == NV_OK) {
		lines[at].words[0] = gone;
		write_script();
	}
	return leave(code);
}

int nvmlDeviceSetMigMode(struct en_nvml_device *d, unsigned mode, int *activation)
{
	int gpu = gpu_of(d), code = enter(__func__, gpu);

	if (code == NV_OK) {
		const struct line *l = gpu_line(gpu);

		if (strcmp(mode_of(gpu), "none") == 0)
			code = NV_NOT_SUPPORTED;
		*activation = NV_OK;
		if (find("process", gpu, 0) != NULL || find("instance", gpu, 0) != NULL)
			*activation = NV_IN_USE;
		else if (value(l, "reset") != NULL)
			*activation = NV_RESET_REQUIRED;
		if (code == NV_OK && *activation == NV_OK) {
			set_word((size_t)(l - lines), "mig", mode != 0 ? "on" : "off");
			write_script();
		}
	}
	return leave(code);
}

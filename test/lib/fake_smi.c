/* nvidia-smi for tests: its command memory-limits as it is documented, over the library of the same folder
 * (fake_nvml.c). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nvml_abi.h"

#define PROTOTYPE(needed, member, symbol, args) int symbol args;
NV_CALLS(PROTOTYPE)
#undef PROTOTYPE

struct options {
	bool get;
	const char *cgroup, *gpu, *soft, *hard;
};

static int fail(const char *text)
{
	printf("%s\n", text);
	return 1;
}

static bool parse(int argc, char **argv, struct options *o)
{
	for (int i = 2; i < argc; i++) {
		const char *next = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(argv[i], "--get") == 0) {
			o->get = true;
			continue;
		}
		if (strcmp(argv[i], "--set") == 0)
			continue;
		if (next == NULL)
			return false;
		i++;
		if (strcmp(argv[i - 1], "--namespace") == 0 || strcmp(argv[i - 1], "-n") == 0)
			o->cgroup = next;
		else if (strcmp(argv[i - 1], "-i") == 0)
			o->gpu = next;
		else if (strcmp(argv[i - 1], "--soft-limit") == 0)
			o->soft = next;
		else if (strcmp(argv[i - 1], "--hard-limit") == 0)
			o->hard = next;
		else
			return false;
	}
	return o->cgroup != NULL && o->gpu != NULL;
}

static bool parse_mib(const char *text, unsigned long long *ret)
{
	char *end;

	if (strcmp(text, "max") == 0) {
		*ret = ~0ULL;
		return true;
	}
	*ret = strtoull(text, &end, 10) << 20;
	return *end == '\0' && end != text && text[0] != '-';
}

static int show(struct en_nvml_device *d, const struct options *o)
{
	struct nv_get_limits_v1 l = {.cgroup = o->cgroup};

	switch (nvmlDeviceGetMemoryLimits_v1(d, &l)) {
	case NV_OK:
		break;
	case NV_NOT_SUPPORTED:
		return fail("Unable to get memory limit: Not Supported");
	default:
		return fail("Unable to get memory limit: Not Found");
	}
	printf("namespace: %s\nsoft limit: %llu MiB\n", o->cgroup, l.soft >> 20);
	if (l.hard == ~0ULL)
		printf("hard limit: max\n");
	else
		printf("hard limit: %llu MiB\n", l.hard >> 20);
	printf("current used: %llu MiB\n", l.used >> 20);
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = {0};
	struct nv_set_limits_v1 l = {0};
	struct en_nvml_device *d;
	int code;

	if (argc < 2 || strcmp(argv[1], "memory-limits") != 0)
		return fail("Option is not recognized");
	if (!parse(argc, argv, &o))
		return fail("Invalid combination of input arguments");
	if (nvmlInit_v2() != NV_OK)
		return fail("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
			    "driver.");
	if (nvmlDeviceGetHandleByUUID(o.gpu, &d) != NV_OK)
		return fail("No devices were found");
	if (o.get)
		return show(d, &o);
	l.cgroup = o.cgroup;
	if (o.soft == NULL || !parse_mib(o.soft, &l.soft) || l.soft == ~0ULL)
		return fail("--soft-limit must be a non-negative MebiByte value");
	if (o.hard == NULL || !parse_mib(o.hard, &l.hard))
		return fail("--hard-limit must be a non-negative MebiByte value");
	code = nvmlDeviceSetMemoryLimits_v1(d, &l);
	if (code != NV_OK) /* says so, and exits as if all were well: as the control daemon does */
		printf("Unable to set memory limit: %s\n",
		       code == NV_NO_PERMISSION ? "Insufficient Permissions" : "Not Supported");
	return 0;
}

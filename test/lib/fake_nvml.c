/* See fake_nvml.h. */
#include "test/lib/fake_nvml.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/lib/fake_nvml_internal.h"

struct line lines[LINES_MAX];
static size_t line_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static unsigned xids_told;

/* Handles are addresses in these. */
char device_handles[GPUS_MAX];
char mig_handles[LINES_MAX], gi_handles[LINES_MAX], ci_handles[LINES_MAX];

static void read_script(void)
{
	const char *path = getenv(FAKE_NVML_ENV);
	FILE *f = path != NULL ? fopen(path, "r") : NULL;

	line_count = 0;
	while (f != NULL && line_count < LINES_MAX &&
	       fgets(lines[line_count].text, sizeof(lines[0].text), f) != NULL) {
		struct line *l = &lines[line_count];
		char *rest = l->text, *word;

		l->count = 0;
		while ((word = strsep(&rest, " \n")) != NULL && l->count < WORDS_MAX) {
			if (word[0] != '\0')
				l->words[l->count++] = word;
		}
		if (l->count > 0 && l->words[0][0] != '#')
			line_count++;
	}
	if (f != NULL)
		fclose(f);
}

/* A word at the end of a line, or none with that key any more. */
void set_word(size_t at, const char *key, const char *text)
{
	struct line *l = &lines[at];
	static char words[LINES_MAX][160];
	size_t len = strlen(key), n = 1;

	for (size_t i = 1; i < l->count; i++)
		if (strncmp(l->words[i], key, len) != 0 || l->words[i][len] != '=')
			l->words[n++] = l->words[i];
	l->count = n;
	if (text == NULL || n == WORDS_MAX)
		return;
	snprintf(words[at], sizeof(words[0]), "%s=%s", key, text);
	l->words[l->count++] = words[at];
}

/* The line's number; lines keep theirs for as long as the script is not written anew. */
size_t add_line(const char *text)
{
	struct line *l = &lines[line_count];
	char *rest = l->text, *word;

	snprintf(l->text, sizeof(l->text), "%s", text);
	l->count = 0;
	while ((word = strsep(&rest, " ")) != NULL && l->count < WORDS_MAX)
		l->words[l->count++] = word;
	return line_count++;
}

void write_script(void)
{
	FILE *f = fopen(getenv(FAKE_NVML_ENV), "w");

	for (size_t i = 0; f != NULL && i < line_count; i++)
		for (size_t k = 0; k < lines[i].count; k++)
			fprintf(f, "%s%c", lines[i].words[k], k + 1 < lines[i].count ? ' ' : '\n');
	if (f != NULL)
		fclose(f);
}

const char *value(const struct line *l, const char *key)
{
	size_t len = strlen(key);

	for (size_t i = 1; i < l->count; i++) {
		if (strncmp(l->words[i], key, len) == 0 && l->words[i][len] == '=')
			return l->words[i] + len + 1;
	}
	return NULL;
}

long long number(const struct line *l, const char *key, long long dflt)
{
	const char *v = value(l, key);

	return v != NULL ? strtoll(v, NULL, 0) : dflt;
}

const struct line *find(const char *kind, int gpu, size_t nth)
{
	for (size_t i = 0; i < line_count; i++) {
		if (strcmp(lines[i].words[0], kind) == 0 &&
		    (gpu == -2 || number(&lines[i], "gpu", 0) == gpu) && nth-- == 0)
			return &lines[i];
	}
	return NULL;
}

const struct line *gpu_line(int gpu)
{
	size_t nth = 0;

	for (size_t i = 0; i < line_count; i++) {
		if (strcmp(lines[i].words[0], "gpu") == 0 && nth++ == (size_t)gpu)
			return &lines[i];
	}
	return NULL;
}

int copy_text(const char *from, char *to, unsigned cap)
{
	size_t len = strlen(from);

	if (len >= cap)
		return NV_INSUFFICIENT_SIZE;
	for (size_t i = 0; i <= len; i++)
		to[i] = from[i] == '_' ? ' ' : from[i];
	return NV_OK;
}

/* ---- the entry of every call ---- */

int gpu_of(const struct en_nvml_device *d)
{
	const char *p = (const char *)d;

	if (p >= device_handles && p < device_handles + GPUS_MAX)
		return (int)(p - device_handles);
	return -1;
}

int enter(const char *call, int gpu)
{
	const struct line *l;

	pthread_mutex_lock(&lock);
	read_script();
	for (size_t i = 0; (l = find("slow", -2, i)) != NULL; i++) {
		struct timespec t = {0};
		long long ms = number(l, "ms", 0);

		t.tv_sec = (time_t)(ms / 1000);
		t.tv_nsec = (long)(ms % 1000) * 1000000;
		if (value(l, "call") != NULL && strcmp(value(l, "call"), call) == 0)
			nanosleep(&t, NULL);
	}
	for (size_t i = 0; (l = find("fail", -2, i)) != NULL; i++) {
		if (value(l, "call") != NULL && strcmp(value(l, "call"), call) == 0 &&
		    (value(l, "gpu") == NULL || number(l, "gpu", -1) == gpu))
			return (int)number(l, "code", NV_UNKNOWN);
	}
	if (line_count == 0)
		return NV_DRIVER_NOT_LOADED;
	if (!initialised && strcmp(call, "nvmlInit_v2") != 0)
		return NV_UNINITIALIZED;
	return NV_OK;
}

int leave(int code)
{
	pthread_mutex_unlock(&lock);
	return code;
}

/* ---- library, devices ---- */

int nvmlInit_v2(void)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		initialised = true;
		xids_told = 0;
	}
	return leave(code);
}

int nvmlShutdown(void)
{
	int code = enter(__func__, -1);

	if (code == NV_OK)
		initialised = false;
	return leave(code);
}

int nvmlSystemGetDriverVersion(char *ret, unsigned cap)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		const struct line *l = find("driver", -2, 0);

		code = copy_text(l != NULL && l->count > 1 ? l->words[1] : "0", ret, cap);
	}
	return leave(code);
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		unsigned n = 0;

		while (gpu_line((int)n) != NULL)
			n++;
		*ret = n;
	}
	return leave(code);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct en_nvml_device **ret)
{
	int code = enter(__func__, (int)index);

	if (code == NV_OK) {
		if (index >= GPUS_MAX || gpu_line((int)index) == NULL)
			code = NV_INVALID_ARGUMENT;
		else
			*ret = (struct en_nvml_device *)&device_handles[index];
	}
	return leave(code);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct en_nvml_device **ret)
{
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		const struct line *l;

		code = NV_NOT_FOUND;
		for (int i = 0; i < GPUS_MAX && (l = gpu_line(i)) != NULL; i++) {
			if (value(l, "uuid") != NULL && strcmp(value(l, "uuid"), uuid) == 0) {
				*ret = (struct en_nvml_device *)&device_handles[i];
				code = NV_OK;
			}
		}
	}
	return leave(code);
}

int nvmlDeviceGetUUID(struct en_nvml_device *d, char *ret, unsigned cap)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const char *p = (const char *)d;
		const struct line *l = gpu_line(gpu_of(d));

		if (p >= mig_handles && p < mig_handles + LINES_MAX)
			l = &lines[p - mig_handles];
		code = l != NULL && value(l, "uuid") != NULL ? copy_text(value(l, "uuid"), ret, cap)
							     : NV_INVALID_ARGUMENT;
	}
	return leave(code);
}

int nvmlDeviceGetName(struct en_nvml_device *d, char *ret, unsigned cap)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const char *name = value(gpu_line(gpu_of(d)), "name");

		code = copy_text(name != NULL ? name : "NVIDIA", ret, cap);
	}
	return leave(code);
}

int nvmlDeviceGetMemoryInfo(struct en_nvml_device *d, struct nv_memory *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		ret->total = (unsigned long long)number(gpu_line(gpu_of(d)), "mem", 0) << 20;
		ret->used = 0;
		ret->free = ret->total;
	}
	return leave(code);
}

int nvmlDeviceGetPciInfo_v3(struct en_nvml_device *d, struct nv_pci *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const char *bus = value(gpu_line(gpu_of(d)), "bus");

		memset(ret, 0, sizeof(*ret));
		if (bus == NULL)
			code = NV_NOT_SUPPORTED;
		else
			code = copy_text(bus, ret->bus_id, sizeof(ret->bus_id));
	}
	return leave(code);
}

/* Calls that give one number of the GPU's line; NOT_SUPPORTED where it says "no". */
static int give(struct en_nvml_device *d, const char *key, long long dflt, long long *ret)
{
	const struct line *l = gpu_line(gpu_of(d));

	if (l == NULL)
		return NV_INVALID_ARGUMENT;
	if (value(l, key) != NULL && strcmp(value(l, key), "no") == 0)
		return NV_NOT_SUPPORTED;
	*ret = number(l, key, dflt);
	return NV_OK;
}

static int give_number(struct en_nvml_device *d, const char *call, const char *key, long long dflt,
		       long long *ret)
{
	int code = enter(call, gpu_of(d));

	*ret = 0;
	if (code == NV_OK)
		code = give(d, key, dflt, ret);
	return leave(code);
}

/* NOLINTBEGIN(bugprone-macro-parentheses): names and types are declared here */
#define NUMBER_CALL(call, type, key, dflt)                                                         \
	int call(struct en_nvml_device *d, type *ret)                                              \
	{                                                                                          \
		long long v;                                                                       \
		int code = give_number(d, #call, key, dflt, &v);                                   \
                                                                                                   \
		*ret = (type)v;                                                                    \
		return code;                                                                       \
	}

/* NOLINTEND(bugprone-macro-parentheses) */

NUMBER_CALL(nvmlDeviceGetMinorNumber, unsigned, "minor", 0)
NUMBER_CALL(nvmlDeviceGetPersistenceMode, int, "persistence", 1)
NUMBER_CALL(nvmlDeviceGetComputeMode, int, "mode", 0)
NUMBER_CALL(nvmlDeviceGetRetiredPagesPendingStatus, int, "remap_pending", 0)
NUMBER_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "throttle", 0)
NUMBER_CALL(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "throttle", 0)

int nvmlDeviceGetTemperature(struct en_nvml_device *d, int sensor, unsigned *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		long long v = 0;

		code = sensor == NV_TEMPERATURE_GPU ? give(d, "temp", 40, &v) : NV_INVALID_ARGUMENT;
		*ret = (unsigned)v;
	}
	return leave(code);
}

int nvmlDeviceGetTemperatureThreshold(struct en_nvml_device *d, int which, unsigned *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		long long v = 0;

		code = which == NV_THRESHOLD_SLOWDOWN ? give(d, "slowdown", 90, &v)
						      : give(d, "shutdown", 95, &v);
		*ret = (unsigned)v;
	}
	return leave(code);
}

int nvmlDeviceGetTotalEccErrors(struct en_nvml_device *d, int type, int counter,
				unsigned long long *ret)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		long long v = 0;

		code = give(d, "ecc", 0, &v);
		*ret = type == NV_ECC_UNCORRECTED && counter == NV_ECC_VOLATILE
			       ? (unsigned long long)v
			       : 0;
	}
	return leave(code);
}

int nvmlDeviceGetRemappedRows(struct en_nvml_device *d, unsigned *corrected, unsigned *uncorrected,
			      unsigned *pending, unsigned *failed)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		long long p = 0, f = 0;

		code = give(d, "remap_failed", 0, &f);
		if (code == NV_OK)
			code = give(d, "remap_pending", 0, &p);
		*corrected = *uncorrected = 0;
		*pending = (unsigned)p;
		*failed = (unsigned)f;
	}
	return leave(code);
}

/* ---- processes, events ---- */

static int list_processes(int gpu, const char *kind, unsigned *count, struct nv_process *ret)
{
	const struct line *l;
	unsigned n = 0;

	for (size_t i = 0; (l = find("process", gpu, i)) != NULL; i++) {
		const char *k = value(l, "kind");

		if (strcmp(k != NULL ? k : "compute", kind) != 0)
			continue;
		if (n < *count && ret != NULL) {
			memset(&ret[n], 0, sizeof(ret[n]));
			ret[n].pid = (unsigned)number(l, "pid", 0);
			ret[n].used_memory = (unsigned long long)number(l, "mem", 0) << 20;
			ret[n].gi_id = ret[n].ci_id = 0xFFFFFFFF;
		}
		n++;
	}
	if (n > *count) {
		*count = n;
		return NV_INSUFFICIENT_SIZE;
	}
	*count = n;
	return NV_OK;
}

#define PROCESS_CALL(call, kind)                                                                   \
	int call(struct en_nvml_device *d, unsigned *count, struct nv_process *ret)                \
	{                                                                                          \
		int code = enter(#call, gpu_of(d));                                                \
                                                                                                   \
		if (code == NV_OK)                                                                 \
			code = list_processes(gpu_of(d), kind, count, ret);                        \
		return leave(code);                                                                \
	}

PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")

int nvmlDeviceGetProcessUtilization(struct en_nvml_device *d, struct nv_process_sample *ret,
				    unsigned *count, unsigned long long since)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		const struct line *l;
		unsigned n = 0;

		for (size_t i = 0; (l = find("sample", gpu_of(d), i)) != NULL; i++) {
			if ((unsigned long long)number(l, "time", 0) <= since)
				continue;
			if (ret != NULL && n < *count) {
				memset(&ret[n], 0, sizeof(ret[n]));
				ret[n].pid = (unsigned)number(l, "pid", 0);
				ret[n].time_us = (unsigned long long)number(l, "time", 0);
				ret[n].sm = (unsigned)number(l, "sm", 0);
			}
			n++;
		}
		if (n == 0)
			code = NV_NOT_FOUND;
		else if (ret == NULL || n > *count)
			code = NV_INSUFFICIENT_SIZE;
		*count = n;
	}
	return leave(code);
}

static char event_sets[1];

int nvmlEventSetCreate(struct nv_event_set **ret)
{
	int code = enter(__func__, -1);

	if (code == NV_OK)
		*ret = (struct nv_event_set *)event_sets;
	return leave(code);
}

int nvmlEventSetFree(struct nv_event_set *set)
{
	int code = enter(__func__, -1);

	if (code == NV_OK)
		code = (char *)set == event_sets ? NV_OK : NV_INVALID_ARGUMENT;
	return leave(code);
}

int nvmlDeviceRegisterEvents(struct en_nvml_device *d, unsigned long long types,
			     struct nv_event_set *set)
{
	int code = enter(__func__, gpu_of(d));

	if (code == NV_OK) {
		code = types == NV_EVENT_XID && (char *)set == event_sets ? NV_OK
									  : NV_INVALID_ARGUMENT;
	}
	return leave(code);
}

int nvmlEventSetWait_v2(struct nv_event_set *set, struct nv_event *ret, unsigned timeout_ms)
{
	(void)timeout_ms;
	int code = enter(__func__, -1);

	if (code == NV_OK) {
		const struct line *l = find("xid", -2, xids_told);

		if ((char *)set != event_sets) {
			code = NV_INVALID_ARGUMENT;
		} else if (l == NULL) {
			code = NV_TIMEOUT;
		} else {
			long long gpu = number(l, "gpu", 0);

			xids_told++;
			memset(ret, 0, sizeof(*ret));
			ret->device =
				gpu >= 0 ? (struct en_nvml_device *)&device_handles[gpu] : NULL;
			ret->type = NV_EVENT_XID;
			ret->data = (unsigned long long)number(l, "code", 0);
			ret->gi_id = ret->ci_id = 0xFFFFFFFF;
		}
	}
	return leave(code);
}

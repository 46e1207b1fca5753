/* How a GPU is, and what runs on it. */
#include <stdlib.h>
#include <string.h>

#include "enforcer/nvml_internal.h"

/* ---- state ---- */

static int gone(int code)
{
	return code == NV_GPU_IS_LOST || code == NV_RESET_REQUIRED;
}

static int read_memory_health(struct en_nvml *n, struct en_nvml_device *d,
			      struct en_nvml_state *ret)
{
	unsigned corrected, uncorrected, pending, failed;
	unsigned long long count;
	int code, is_pending;

	code = NVML_CALL(n, ecc_total, d, NV_ECC_UNCORRECTED, NV_ECC_VOLATILE, &count);
	if (code == NV_OK)
		ret->ecc_uncorrected = count > INT64_MAX ? INT64_MAX : (int64_t)count;
	else if (gone(code))
		return code;
	code = NVML_CALL(n, remapped, d, &corrected, &uncorrected, &pending, &failed);
	if (code == NV_OK) {
		ret->remap_failed = failed != 0;
		ret->remap_pending = pending != 0;
		return NV_OK;
	}
	if (gone(code))
		return code;
	/* GPUs before Ampere retire pages instead. */
	if (NVML_CALL(n, retired_pending, d, &is_pending) == NV_OK)
		ret->remap_pending = is_pending != 0;
	return NV_OK;
}

static void read_heat(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_state *ret)
{
	unsigned long long bits;
	unsigned c;

	if (NVML_CALL(n, clock_events, d, &bits) == NV_OK ||
	    NVML_CALL(n, throttle, d, &bits) == NV_OK)
		ret->throttle = (int64_t)(bits & INT64_MAX);
	if (NVML_CALL(n, temperature, d, NV_TEMPERATURE_GPU, &c) == NV_OK)
		ret->temperature_c = (int)c;
	if (NVML_CALL(n, threshold, d, NV_THRESHOLD_SLOWDOWN, &c) == NV_OK)
		ret->slowdown_c = (int)c;
	if (NVML_CALL(n, threshold, d, NV_THRESHOLD_SHUTDOWN, &c) == NV_OK)
		ret->shutdown_c = (int)c;
}

int en_nvml_state(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_state *ret,
		  struct err *err)
{
	struct en_nvml_state s = {
		.ecc_uncorrected = EN_NVML_UNKNOWN,
		.throttle = EN_NVML_UNKNOWN,
		.temperature_c = EN_NVML_UNKNOWN,
		.slowdown_c = EN_NVML_UNKNOWN,
		.shutdown_c = EN_NVML_UNKNOWN,
		.remap_failed = EN_NVML_UNKNOWN,
		.remap_pending = EN_NVML_UNKNOWN,
		.persistence = EN_NVML_UNKNOWN,
		.compute_mode = EN_NVML_UNKNOWN,
	};
	struct nv_memory memory;
	int code = n->call.memory(d, &memory), mode, r;

	/* The one call that every GPU answers tells whether it is there at all. */
	if (code == NV_OK)
		code = read_memory_health(n, d, &s);
	if (gone(code)) {
		s.lost = true;
		*ret = s;
		return 0;
	}
	r = nvml_answer(n, code, "nvmlDeviceGetMemoryInfo", err);
	if (r < 0)
		return r;
	read_heat(n, d, &s);
	if (NVML_CALL(n, persistence, d, &mode) == NV_OK)
		s.persistence = mode != 0;
	if (NVML_CALL(n, compute_mode, d, &mode) == NV_OK)
		s.compute_mode = mode;
	*ret = s;
	return 0;
}

/* ---- processes ---- */

#define PROCESSES_MAX 4096

typedef int (*list_fn)(struct en_nvml_device *d, unsigned *count, struct nv_process *ret);

/* The list may grow between the question for its length and its reading: some room is added, and it
 * is asked for again. The caller frees *ret. */
static int read_list(list_fn list, struct en_nvml_device *d, struct nv_process **ret,
		     unsigned *ret_count)
{
	struct nv_process *p = NULL;
	unsigned count = 0;
	int code = NV_INSUFFICIENT_SIZE;

	for (int tries = 0; tries < 4 && code == NV_INSUFFICIENT_SIZE; tries++) {
		free(p);
		if (count > PROCESSES_MAX)
			count = PROCESSES_MAX;
		count += 8;
		p = calloc(count, sizeof(*p));
		if (p == NULL)
			return ERR_NOMEM;
		code = list(d, &count, p);
	}
	if (code != NV_OK) {
		free(p);
		return code;
	}
	*ret = p;
	*ret_count = count;
	return NV_OK;
}

int en_nvml_processes(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_process *ret,
		      size_t cap, size_t *ret_count, struct err *err)
{
	const struct {
		list_fn list;
		const char *name;
		enum en_nvml_process_kind kind;
	} lists[] = {
		{n->call.compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3",
		 EN_NVML_COMPUTE},
		{n->call.graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3",
		 EN_NVML_GRAPHICS},
		{n->call.mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v3",
		 EN_NVML_MPS_CLIENT},
	};
	size_t total = 0, answered = 0;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		struct nv_process *p = NULL;
		unsigned count = 0;
		int code, r;

		if (lists[i].list == NULL)
			continue;
		code = read_list(lists[i].list, d, &p, &count);
		if (code == ERR_NOMEM)
			return err_set(err, ERR_NOMEM, "out of memory");
		r = nvml_answer(n, code, lists[i].name, err);
		if (r < 0)
			return r;
		if (r == EN_NVML_UNSUPPORTED)
			continue;
		answered++;
		for (unsigned k = 0; k < count; k++, total++) {
			if (total >= cap)
				continue;
			ret[total].pid = p[k].pid;
			ret[total].mem_bytes =
				p[k].used_memory == NV_VALUE_NOT_AVAILABLE ? 0 : p[k].used_memory;
			ret[total].kind = lists[i].kind;
		}
		free(p);
	}
	if (answered == 0)
		return EN_NVML_UNSUPPORTED;
	*ret_count = total;
	return 0;
}

int en_nvml_use(struct en_nvml *n, struct en_nvml_device *d, uint64_t since_us,
		struct en_nvml_use *ret, size_t cap, size_t *ret_count, struct err *err)
{
	struct nv_process_sample *samples;
	unsigned count = 0;
	size_t used = 0;
	int code = NVML_CALL(n, process_samples, d, NULL, &count, since_us), r;

	if (code == NV_NOT_FOUND || (code == NV_OK && count == 0)) { /* no samples */
		*ret_count = 0;
		return 0;
	}
	if (code != NV_OK && code != NV_INSUFFICIENT_SIZE)
		return nvml_answer(n, code, "nvmlDeviceGetProcessUtilization", err);
	if (count > PROCESSES_MAX)
		count = PROCESSES_MAX;
	samples = calloc(count, sizeof(*samples));
	if (samples == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	code = NVML_CALL(n, process_samples, d, samples, &count, since_us);
	if (code == NV_NOT_FOUND) {
		count = 0;
		code = NV_OK;
	}
	r = nvml_answer(n, code, "nvmlDeviceGetProcessUtilization", err);
	for (unsigned i = 0; r == 0 && i < count && used < cap; i++) {
		if (samples[i].pid == 0 && samples[i].time_us == 0)
			continue; /* a slot that was not filled */
		ret[used].pid = samples[i].pid;
		ret[used].time_us = samples[i].time_us;
		ret[used++].sm_percent = samples[i].sm;
	}
	free(samples);
	if (r == 0)
		*ret_count = used;
	return r;
}

/* ---- XID errors ---- */

int en_nvml_watch(struct en_nvml *n, struct err *err)
{
	struct nv_event_set *set = NULL;
	unsigned count = 0, registered = 0;
	int r;

	if (n->events != NULL)
		return 0;
	if (n->call.event_register == NULL || n->call.event_wait == NULL)
		return EN_NVML_UNSUPPORTED;
	r = en_nvml_count(n, &count, err);
	if (r == 0)
		r = nvml_answer(n, NVML_CALL(n, event_set, &set), "nvmlEventSetCreate", err);
	if (r != 0)
		return r;
	for (unsigned i = 0; i < count; i++) {
		struct en_nvml_device *d;

		/* A GPU that is lost already cannot be watched; its state says so. */
		if (n->call.by_index(i, &d) == NV_OK &&
		    n->call.event_register(d, NV_EVENT_XID, set) == NV_OK)
			registered++;
	}
	if (registered == 0) {
		NVML_CALL(n, event_free, set);
		return EN_NVML_UNSUPPORTED;
	}
	n->events = set;
	return 0;
}

int en_nvml_next_xid(struct en_nvml *n, unsigned timeout_ms, char ret_uuid[EN_NVML_TEXT_CAP],
		     uint64_t *ret_xid, struct err *err)
{
	struct nv_event event = {0};
	int code, r;

	if (n->events == NULL || n->call.event_wait == NULL)
		return EN_NVML_UNSUPPORTED;
	do {
		code = n->call.event_wait(n->events, &event, timeout_ms);
	} while (code == NV_OK && event.type != NV_EVENT_XID && timeout_ms == 0);
	if (code == NV_TIMEOUT || (code == NV_OK && event.type != NV_EVENT_XID))
		return EN_NVML_UNSUPPORTED;
	if (code == NV_GPU_IS_LOST) { /* which one, the states tell */
		ret_uuid[0] = '\0';
		*ret_xid = 79;
		return 0;
	}
	r = nvml_answer(n, code, "nvmlEventSetWait_v2", err);
	if (r != 0)
		return r;
	if (event.device == NULL || en_nvml_uuid(n, event.device, ret_uuid, NULL) != 0)
		ret_uuid[0] = '\0';
	*ret_xid = event.data;
	return 0;
}

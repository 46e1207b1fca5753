/* Healthy or not, and who is on a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "enforcer/probe_internal.h"

#define PROCESSES_MAX 256
#define COMM_MAX 64
#define KUBELET_MS 2000

/* ---- health ---- */

/* Slowed down by the hardware itself, for heat or power: over several probes, so that it does not
 * flap. */
static bool judge_throttle(const struct en_probe_options *o, struct probe_memory *m,
			   const struct en_nvml_state *s)
{
	const int64_t bad = EN_THROTTLE_HW_THERMAL | EN_THROTTLE_HW_POWER_BRAKE;

	if (s->throttle != EN_NVML_UNKNOWN && (s->throttle & bad) != 0) {
		m->throttled++;
		m->clean = 0;
	} else {
		m->clean++;
		m->throttled = 0;
	}
	if (m->throttled >= o->throttled_after)
		m->is_throttled = true;
	else if (m->clean >= o->throttled_after)
		m->is_throttled = false;
	return m->is_throttled;
}

void probe_judge(const struct en_probe_options *o, struct probe_memory *m, struct en_probe_gpu *gpu)
{
	const struct en_nvml_state *s = &gpu->state;
	bool throttled = judge_throttle(o, m, s);

	if (s->lost)
		probe_unhealthy(gpu, "the GPU is lost or needs a reset");
	if (m->xid_fatal != 0)
		probe_unhealthy(gpu, "XID error %llu", (unsigned long long)m->xid_fatal);
	if (s->remap_failed == 1)
		probe_unhealthy(gpu, "a memory row could not be remapped");
	/* The volatile counter starts again at a reset, so this ends by itself. */
	if (s->ecc_uncorrected > 0)
		probe_unhealthy(gpu, "uncorrectable memory errors since the last reset");
	if (throttled)
		probe_unhealthy(gpu, "slowed down by the hardware (heat or power)");
}

/* ---- processes ---- */

/* The name of a process as /proc has it, printable; "" where it cannot be read. */
static void process_name(const char *root, uint32_t pid, char ret[COMM_MAX])
{
	char path[EN_PATH_CAP], *text = NULL;
	size_t len = 0;

	ret[0] = '\0';
	snprintf(path, sizeof(path), "%s/proc/%u/comm", root, pid);
	if (file_read(path, 4096, &text, &len, NULL) != 0)
		return;
	len = strcspn(text, "\n");
	if (len >= COMM_MAX)
		len = COMM_MAX - 1;
	for (size_t i = 0; i < len; i++)
		ret[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
	ret[len] = '\0';
	free(text);
}

static void name_foreign(const struct en_probe_options *o, uint32_t pid, struct en_probe_gpu *gpu)
{
	char comm[COMM_MAX];

	process_name(o->root, pid, comm);
	if (comm[0] != '\0')
		snprintf(gpu->foreign, sizeof(gpu->foreign), "pid %u (%s)", pid, comm);
	else
		snprintf(gpu->foreign, sizeof(gpu->foreign), "pid %u", pid);
}

int probe_processes(struct en_nvml *n, struct en_nvml_device *d, const struct en_probe_options *o,
		    struct probe_memory *m, struct en_probe *p, struct en_probe_gpu *gpu,
		    struct err *err)
{
	struct en_nvml_process list[PROCESSES_MAX];
	size_t count = 0, hidden = 0;
	uint32_t lowest = 0;
	bool still_there = false;
	int r = en_nvml_processes(n, d, list, PROCESSES_MAX, &count, err);

	if (r == EN_NVML_UNSUPPORTED) {
		probe_note(p, "GPU %u: the driver does not list processes", gpu->index);
		return 0;
	}
	if (r != 0)
		return r;
	gpu->processes = (uint32_t)count;
	for (size_t i = 0; i < count && i < PROCESSES_MAX; i++) {
		uint32_t pid = list[i].pid;

		if (pid == 0) {
			hidden++;
			continue;
		}
		if ((o->ignore_graphics && list[i].kind == EN_NVML_GRAPHICS) ||
		    (o->is_ours != NULL && o->is_ours(o->ctx, pid)))
			continue;
		still_there = still_there || pid == m->foreign_pid;
		if (lowest == 0 || pid < lowest)
			lowest = pid;
	}
	if (hidden > 0)
		probe_note(p, "GPU %u: %zu processes are outside of our PID namespace", gpu->index,
			   hidden);
	/* The same one is named as long as it lives, so that the inventory does not change. */
	if (!still_there)
		m->foreign_pid = lowest;
	if (m->foreign_pid != 0)
		name_foreign(o, m->foreign_pid, gpu);
	return 0;
}

/* ---- device plugins ---- */

/* "GPU-x" is the id of GPU-x, and so is a replica of it, "GPU-x::3". */
static bool is_device(const char *id, const char *uuid)
{
	size_t len = strlen(uuid);

	return strncmp(id, uuid, len) == 0 && (id[len] == '\0' || strncmp(id + len, "::", 2) == 0);
}

/* A pod is a better name than one of its processes; of several the first by name, so that it stays. */
static void take_device(const struct en_plugin_device *d, struct en_probe_gpu *gpu)
{
	char name[EN_WHY_CAP];

	snprintf(name, sizeof(name), "pod %.60s/%.90s", d->ns, d->pod);
	if (strncmp(gpu->foreign, "pod ", 4) != 0 || strcmp(name, gpu->foreign) < 0)
		memcpy(gpu->foreign, name, sizeof(name));
}

/* With MIG a plugin gives instances away ("MIG-x"): as nvidia.com/mig-<profile>, or as nvidia.com/gpu
 * with the strategy single. */
static void take_instance(const struct en_plugin_device *d, struct en_probe_gpu *gpu)
{
	for (size_t i = 0; i < gpu->instance_count; i++)
		if (is_device(d->id, gpu->instances[i].uuid))
			gpu->instances[i].held = true;
}

struct given {
	const struct en_probe_options *o;
	struct en_probe *p;
};

static void take(void *ctx, const struct en_plugin_device *d)
{
	const struct given *g = ctx;

	if (g->o->is_our_pod != NULL && g->o->is_our_pod(g->o->ctx, d->ns, d->pod))
		return;
	for (size_t k = 0; k < g->p->gpu_count; k++) {
		if (is_device(d->id, g->p->gpus[k].uuid))
			take_device(d, &g->p->gpus[k]);
		take_instance(d, &g->p->gpus[k]);
	}
}

void probe_plugins(const struct en_probe_options *o, struct buf *told, struct en_probe *p)
{
	struct given g = {o, p};
	struct err err = ERR_INIT;
	int r;

	if (o->kubelet_socket == NULL)
		return;
	r = en_kubelet_ask(o->kubelet_socket, KUBELET_MS, told, &err);
	if (r == ERR_NOT_FOUND)
		buf_reset(told);
	else if (r != 0) /* what was given stays given while the kubelet is away */
		probe_note(p, "device plugins: %s", err.msg);
	(void)en_kubelet_each(told->data, told->len, "nvidia.com/", take, &g, NULL);
}

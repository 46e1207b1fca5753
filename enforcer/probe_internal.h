/* Shared by probe*.c; not for others. */
#ifndef TESSERA_ENFORCER_PROBE_INTERNAL_H
#define TESSERA_ENFORCER_PROBE_INTERNAL_H

#include "enforcer/probe.h"
#include "enforcer/probe_kubelet.h"

/* What is remembered of one GPU. */
struct probe_memory {
	struct en_probe_gpu last; /* as last seen answering; uuid "" = slot not used */
	bool seen;                /* in the present run */
	bool answers;             /* and it answered */
	uint64_t xid_fatal;       /* 0 = none */
	uint64_t xid_last;
	unsigned throttled, clean; /* probes in a row */
	bool is_throttled;
	uint32_t foreign_pid; /* named last time: named again while it lives */
};

/* Adds a note, the first EN_NOTES_MAX of them. */
void probe_note(struct en_probe *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* MIG mode, geometry and instances into *gpu (identity filled). Marks it unhealthy where instances that
 * exist cannot be read. A negative code only where the driver as a whole fails. */
int probe_mig(struct en_nvml *n, struct en_nvml_device *d, struct en_probe *p,
	      struct en_probe_gpu *gpu, struct err *err);

/* Healthy or not, from state and memory; in this order: lost, XID, row remapping, ECC, slowed down. */
void probe_judge(const struct en_probe_options *o, struct probe_memory *m,
		 struct en_probe_gpu *gpu);

/* Processes on the GPU, and who of them is foreign. */
int probe_processes(struct en_nvml *n, struct en_nvml_device *d, const struct en_probe_options *o,
		    struct probe_memory *m, struct en_probe *p, struct en_probe_gpu *gpu,
		    struct err *err);

/* Marks GPUs that a device plugin gave away. *told is the kubelet's last answer: it holds on where there is none
 * now. */
void probe_plugins(const struct en_probe_options *o, struct buf *told, struct en_probe *p);

/* Not healthy because; the first reason stays. */
void probe_unhealthy(struct en_probe_gpu *gpu, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif

/* Readers of the openb CSV format (Alibaba cluster-trace-gpu-v2023).
 *
 * Nodes: sn,cpu_milli,memory_mib,gpu,model. Pods: name,cpu_milli,memory_mib,num_gpu,gpu_milli and,
 * where present, gpu_spec, creation_time, deletion_time and scheduled_time (seconds); all other columns are ignored. Columns are found by name. */
#ifndef TESSERA_REPLAY_OPENB_H
#define TESSERA_REPLAY_OPENB_H

#include <stddef.h>

#include "base/err.h"
#include "replay/trace.h"

/* Both add to the trace. path is for messages only. ERR_INVALID, ERR_RANGE, ERR_EXISTS (a name that
 * occurs twice), ERR_NOMEM; the messages start with file:line:column. */
int rp_openb_nodes(struct rp_trace *t, const char *path, const char *text, size_t len,
		   struct err *err);
int rp_openb_pods(struct rp_trace *t, const char *path, const char *text, size_t len,
		  struct err *err);

#endif

/* Shared by nvml*.c; not for others. */
#ifndef TESSERA_ENFORCER_NVML_INTERNAL_H
#define TESSERA_ENFORCER_NVML_INTERNAL_H

#include <stdatomic.h>

#include "enforcer/nvml.h"
#include "enforcer/nvml_abi.h"

struct en_nvml {
	void *library;
	struct nv_calls call;
	struct nv_event_set *events; /* NULL: not watched */
	atomic_bool lost;
};

/* Turns an answer into what the queries of nvml.h return; call is the name for the message. */
int nvml_answer(struct en_nvml *n, int code, const char *call, struct err *err);
/* The name of an NVML return code, "code 42" for others; the buffer is used for those. */
const char *nvml_code_name(int code, char buf[24]);

/* Calls a member that may be missing: NV_FUNCTION_NOT_FOUND then. */
#define NVML_CALL(n, member, ...)                                                                  \
	((n)->call.member != NULL ? (n)->call.member(__VA_ARGS__) : NV_FUNCTION_NOT_FOUND)

/* Makes a symbol as if the library lacked it: for tests. */
void nvml_hide(struct en_nvml *n, const char *symbol);

#endif

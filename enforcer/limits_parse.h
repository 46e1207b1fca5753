/* Reads what `nvidia-smi memory-limits --get` prints. */
#ifndef TESSERA_ENFORCER_LIMITS_PARSE_H
#define TESSERA_ENFORCER_LIMITS_PARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct limits_seen {
	int64_t soft_mib; /* 0 = none */
	int64_t hard_mib; /* EN_LIMIT_NONE = none */
	int64_t used_mib;
};

/* Lines "soft limit: 4096 MiB", "hard limit: max", "current used: 0 MiB", in any order, others are
 * skipped. Each of the three is needed once. ERR_INVALID names what is missing or the first line of what
 * was printed instead; *ret is untouched then. text needs no NUL. */
int limits_parse(const char *text, size_t len, struct limits_seen *ret, struct err *err);

#endif

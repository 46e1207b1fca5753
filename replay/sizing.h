/* Requests of GPU memory against what was measured. Input: USAGE.md. */
#ifndef TESSERA_REPLAY_SIZING_H
#define TESSERA_REPLAY_SIZING_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define RP_USAGE_UNKNOWN (-1)

/* One container of one workload; of several sightings the highest peak counts. */
struct rp_usage {
	char *ns, *kind, *workload, *container; /* owned */
	int64_t peak_mib, sm_percent;           /* or RP_USAGE_UNKNOWN */
	int64_t request_mib, limit_mib; /* the largest seen; 0 = none, or RP_USAGE_UNKNOWN */
	int64_t samples;
};

enum rp_advice {
	RP_KEEP,
	RP_LESS,         /* it asks for more than its peak and the margin */
	RP_MORE,         /* it was seen to use more than it asks for */
	RP_TOO_FEW,      /* not enough samples to say */
	RP_NOT_MEASURED, /* no peak, or no request */
	RP_ADVICES,
};

struct rp_size {
	const struct rp_usage *u;
	enum rp_advice advice;
	int64_t advised_mib; /* never below the peak; the request where there is no advice */
	int64_t freed_mib;   /* for each of its pods; negative where it should ask for more */
};

struct rp_sizing {
	struct rp_usage *rows;
	size_t count, cap;
};

void rp_sizing_fini(struct rp_sizing *s);
/* Adds one export. ERR_INVALID names the row and the field; what was added before stays. ERR_NOMEM. */
int rp_sizing_read(struct rp_sizing *s, const char *text, size_t len, struct err *err);
/* Advice for a row: peak * (1 + margin), rounded up to a whole MiB. */
struct rp_size rp_sizing_of(const struct rp_usage *u, int64_t margin_nano, int64_t min_samples);
/* "less", "keep", ... */
const char *rp_advice_name(enum rp_advice a);

#endif

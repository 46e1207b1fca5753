/* NRI's messages as plain structs: requests of the runtime read, answers of the plugin written. Both
 * shapes of the API are read alike: an event that is a call of its own (from NRI 0.12) and the same event
 * in StateChange (before). No I/O. Source: github.com/containerd/nri pkg/api, v0.3 to v0.12. */
#ifndef TESSERA_ENFORCER_NRI_MSG_H
#define TESSERA_ENFORCER_NRI_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "enforcer/apply.h"
#include "enforcer/ttrpc.h"

#define EN_NRI_PLUGIN_SERVICE "nri.pkg.api.v1alpha1.Plugin"
#define EN_NRI_RUNTIME_SERVICE "nri.pkg.api.v1alpha1.Runtime"

/* Its bit in the mask is 1 << (event - 1). */
enum en_nri_event {
	EN_NRI_EVENT_CREATE = 4,
	EN_NRI_EVENT_START = 6,
	EN_NRI_EVENT_STOP = 10,
	EN_NRI_EVENT_REMOVE = 11,
	EN_NRI_EVENT_VALIDATE = 14, /* from NRI 0.10 */
};
#define EN_NRI_BIT(event) ((int32_t)1 << ((event)-1))

enum en_nri_method {
	EN_NRI_CONFIGURE,
	EN_NRI_SYNCHRONIZE,
	EN_NRI_CREATE,
	EN_NRI_START, /* the process is not running yet */
	EN_NRI_STOP,
	EN_NRI_REMOVE,
	EN_NRI_VALIDATE,
	EN_NRI_SHUTDOWN,
	EN_NRI_OTHER, /* an event that means nothing here; success is the answer */
};
const char *en_nri_method_name(enum en_nri_method m);

struct en_nri_pod {
	const char *id;          /* of the sandbox */
	struct st_pod_spec spec; /* uid (where there is none, the id), ns, name, annotations */
};

enum en_nri_state { EN_NRI_CREATED = 1, EN_NRI_PAUSED = 2, EN_NRI_RUNNING = 3, EN_NRI_STOPPED = 4 };

struct en_nri_container {
	const char *id, *pod_id;
	int state;                /* enum en_nri_state; 0 = unknown */
	uint32_t pid;             /* in the runtime's pid namespace; 0 = none */
	const char *cgroups_path; /* as the runtime was told; "" = not said */
	struct en_container_seen seen;
};

/* A call of the runtime; owns all it points to. */
struct en_nri_request {
	enum en_nri_method method;
	uint32_t stream;
	int64_t timeout_ns; /* 0 = not said */

	/* CONFIGURE */
	const char *runtime, *runtime_version, *nri_version; /* "" = not said */
	int64_t request_timeout_ms;                          /* 0 = not said */

	/* SYNCHRONIZE: all; CREATE, START, STOP, REMOVE, VALIDATE: one of each */
	size_t pod_count;
	struct en_nri_pod *pods;
	size_t container_count;
	struct en_nri_container *containers;
	bool more; /* SYNCHRONIZE: another part follows */

	struct en_merged merged; /* VALIDATE */
	struct en_mem *mem;      /* all of this lies in it */
};

/* ERR_NOT_FOUND: no such service or method (UNIMPLEMENTED is the answer). ERR_INVALID: cannot be read, or
 * has no pod or container. ERR_NOMEM, also for a message that unfolds to more than is sane. *ret is the
 * caller's. An annotation with a NUL in its value has the value "(contains a NUL)". */
int en_nri_request_read(const struct en_ttrpc_call *call, struct en_nri_request **ret,
			struct err *err);
void en_nri_request_free(struct en_nri_request *r);

/* The payloads of answers and of the one call we make, appended to b. ERR_NOMEM. */
int en_nri_put_register(struct buf *b, const char *name, const char *idx, struct err *err);
int en_nri_put_configure(struct buf *b, int32_t events, struct err *err);
int en_nri_put_synchronize(struct buf *b, bool more, struct err *err);
/* A variable with a value is removed, then set: that takes it over from other plugins, too. */
int en_nri_put_create(struct buf *b, const struct en_adjust *a, struct err *err);
int en_nri_put_validate(struct buf *b, bool reject, const char *reason, struct err *err);

#endif

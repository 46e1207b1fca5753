/* What the enforcer tells the cluster about its node: the inventory annotation (version 1, the format is
 * in kube/README.md) and the condition TesseraReady. Plain functions; writing them to the API server is
 * inventory_publish.h. */
#ifndef TESSERA_ENFORCER_INVENTORY_H
#define TESSERA_ENFORCER_INVENTORY_H

#include <stdbool.h>

#include "base/err.h"
#include "enforcer/probe.h"

#define EN_INVENTORY_KEY "tessera.dev/inventory"
#define EN_INVENTORY_TIME_KEY "tessera.dev/inventory-time"
#define EN_CONDITION_TYPE "TesseraReady"

/* The annotation's text, malloc'ed and the caller's. Equal probes give equal text; what changes by itself
 * (temperature, memory in use) is not in it. ERR_CONFLICT: there is no driver, nothing can be said.
 * ERR_NOMEM. */
int en_inventory_encode(const struct en_probe *p, char **ret, struct err *err);

/* Does it differ from what the node carries (NULL: nothing)? Equal JSON in another form is no change. */
bool en_inventory_changed(const char *present, const char *wanted);

/* ---- the condition ---- */

enum en_status { EN_STATUS_FALSE, EN_STATUS_TRUE, EN_STATUS_UNKNOWN };

struct en_condition {
	enum en_status status;
	const char *reason;        /* of a fixed set; a constant */
	char message[ERR_MSG_CAP]; /* one sentence; no number in it that changes by itself */
};

/* The state of the rest of the enforcer. Texts may be NULL where all is well. */
struct en_readiness {
	bool stopping;       /* the enforcer ends */
	bool driver_upgrade; /* the driver is about to be exchanged */
	bool nri_ready;      /* containers are seen before they start */
	const char *nri_why;
	bool mps_wanted; /* there is a GPU that may be shared */
	bool mps_ready;
	bool mps_v3;
	const char *mps_reason; /* of the set below: "MpsNotReady", "MpsFault", "MpsBlocked" */
	const char *mps_why;
	bool limits_ready; /* memory limits of cgroups can be set and read back */
	const char *limits_why;
	bool doctor_failed; /* a check that gates placement failed */
	const char *doctor_why;
};

/* True only where what is placed here would be kept. In this order: EnforcerStopped (Unknown),
 * DriverUpgrade, DriverNotReady, NoGpus, GpusUnhealthy (all of them), NriNotReady, Mps..., LimitsNotReady,
 * CheckFailed; True with LegacyMps where limits hold for each process only, else Ready. */
void en_condition_make(const struct en_probe *p, const struct en_readiness *r,
		       struct en_condition *ret);

bool en_condition_equal(const struct en_condition *a, const struct en_condition *b);

#endif

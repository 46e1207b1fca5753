/* The condition TesseraReady: rules in order, the first that holds decides. */
#include <stdio.h>
#include <string.h>

#include "enforcer/inventory.h"

static const char *text(const char *s)
{
	return s != NULL && s[0] != '\0' ? s : "no reason is known";
}

static size_t unhealthy(const struct en_probe *p, const struct en_probe_gpu **ret_first)
{
	size_t n = 0;

	*ret_first = NULL;
	for (size_t i = 0; i < p->gpu_count; i++) {
		if (p->gpus[i].healthy)
			continue;
		if (n++ == 0)
			*ret_first = &p->gpus[i];
	}
	return n;
}

static const char *plural(size_t n)
{
	return n == 1 ? "" : "s";
}

/* The hardware: false where nothing is wrong with it. */
static bool hardware(const struct en_probe *p, struct en_condition *ret)
{
	const struct en_probe_gpu *first;
	size_t bad = unhealthy(p, &first);

	if (!p->driver_ok) {
		ret->reason = "DriverNotReady";
		snprintf(ret->message, sizeof(ret->message), "%s", text(p->why.msg));
	} else if (p->gpu_count == 0) {
		ret->reason = "NoGpus";
		snprintf(ret->message, sizeof(ret->message), "driver %s lists no GPU", p->driver);
	} else if (bad == p->gpu_count) {
		ret->reason = "GpusUnhealthy";
		snprintf(ret->message, sizeof(ret->message), "no GPU is healthy; %s: %s",
			 first->uuid, first->why);
	} else {
		return false;
	}
	return true;
}

/* The parts of the enforcer: false where all work. */
static bool parts(const struct en_readiness *r, const struct en_probe *p, struct en_condition *ret)
{
	const char *why;

	if (!r->nri_ready) {
		ret->reason = "NriNotReady";
		why = r->nri_why;
	} else if (r->mps_wanted && !r->mps_ready) {
		ret->reason = r->mps_reason != NULL ? r->mps_reason : "MpsNotReady";
		why = r->mps_why;
	} else if (r->mps_wanted && (p->features & EN_FEATURE_MEMORY_LIMITS) != 0 &&
		   !r->limits_ready) {
		ret->reason = "LimitsNotReady";
		why = r->limits_why;
	} else if (r->doctor_failed) {
		ret->reason = "CheckFailed";
		why = r->doctor_why;
	} else {
		return false;
	}
	snprintf(ret->message, sizeof(ret->message), "%s", text(why));
	return true;
}

static void ready(const struct en_probe *p, const struct en_readiness *r, struct en_condition *ret)
{
	const struct en_probe_gpu *first;
	size_t bad = unhealthy(p, &first);
	int len;

	ret->status = EN_STATUS_TRUE;
	if (r->mps_wanted && !r->mps_v3) {
		ret->reason = "LegacyMps";
		len = snprintf(ret->message, sizeof(ret->message),
			       "%zu GPU%s, driver %s: memory limits hold for each process, not for "
			       "a container, and shares are sm-sharing only",
			       p->gpu_count, plural(p->gpu_count), p->driver);
	} else {
		ret->reason = "Ready";
		len = snprintf(ret->message, sizeof(ret->message), "%zu GPU%s, driver %s",
			       p->gpu_count, plural(p->gpu_count), p->driver);
	}
	if (bad > 0 && len > 0 && (size_t)len < sizeof(ret->message))
		snprintf(ret->message + len, sizeof(ret->message) - (size_t)len,
			 "; %zu not healthy, %s: %s", bad, first->uuid, first->why);
}

void en_condition_make(const struct en_probe *p, const struct en_readiness *r,
		       struct en_condition *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->status = EN_STATUS_FALSE;
	if (r->stopping) {
		ret->status = EN_STATUS_UNKNOWN;
		ret->reason = "EnforcerStopped";
		snprintf(ret->message, sizeof(ret->message), "the enforcer of this node ended");
	} else if (r->driver_upgrade) {
		ret->reason = "DriverUpgrade";
		snprintf(ret->message, sizeof(ret->message), "the driver is being exchanged");
	} else if (!hardware(p, ret) && !parts(r, p, ret)) {
		ready(p, r, ret);
	}
	/* Words of a tool may be in it, and not be UTF-8. */
	for (char *c = ret->message; *c != '\0'; c++)
		*c = *c >= ' ' && *c <= '~' ? *c : '?';
}

bool en_condition_equal(const struct en_condition *a, const struct en_condition *b)
{
	return a->status == b->status && strcmp(a->reason, b->reason) == 0 &&
	       strcmp(a->message, b->message) == 0;
}

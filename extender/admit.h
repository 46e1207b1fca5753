/* Admission reviews (admission.k8s.io/v1) of pods: what bind would refuse is refused when the pod is
 * made; forged allocation keys go; the resource requests are added that make a scheduler call us. */
#ifndef TESSERA_EXTENDER_ADMIT_H
#define TESSERA_EXTENDER_ADMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "extender/metrics.h"
#include "extender/service.h"

/* Whose schedulerName mutate sets, of the GPU pods that name the default scheduler. */
enum ex_set_scheduler { EX_SET_NONE, EX_SET_LABELLED, EX_SET_ALL };

struct ex_admit {
	struct ex_service *service;
	bool mutate; /* else validate */
	/* The schedulerName that mutate gives to GPU pods of the default scheduler; "" = to none. */
	const char *scheduler;
	bool unlabelled;        /* also to those that do not say so in EX_SCHEDULER_LABEL */
	bool refuse_privileged; /* by validate; else they are warned of */
};

/* Of a pod: "enabled" asks for the schedulerName, "disabled" keeps it away. A namespace's "enabled" is read by
 * the API server, which asks /mutate/scheduler about its pods. */
#define EX_SCHEDULER_LABEL "tessera.dev/scheduler"

/* Reads an AdmissionReview and writes the one that answers it. ERR_INVALID: it is none, nothing was
 * written; ERR_NOMEM.
 *
 * validate refuses a pod whose GPU request is wrong, one that is made with allocation keys, and a
 * change of allocation keys; where it is configured, also one with a privileged container. It warns of a
 * label EX_SCHEDULER_LABEL that says nothing, and of a MIG profile that no GPU known has.
 *
 * mutate removes allocation keys from a pod that is being made, with what that bind wrote beside them,
 * sets the schedulerName where it should, and gives each container that asks for GPUs a request of
 * EX_MEMORY_RESOURCE where it has none: the MiB of an amount; of a fraction and of whole GPUs what they are at
 * least, that is on the smallest GPU that is known; 1 for each MIG instance and where no GPU is known; times
 * the number of GPUs. So that a node never looks too small to the scheduler. A pod that validate would refuse
 * is left to it. */
int ex_admit_review(const struct ex_admit *how, const char *body, size_t len, struct buf *out,
		    enum ex_admit_verdict *ret, struct err *err);

/* Containers of a GPU pod that can have more than they are given: privileged ones (refuse: ERR_INVALID
 * names the first), and such as may be root in sm-sharing; ephemeral: of those of `kubectl debug` alone.
 * Warnings are added to *w. */
int ex_admit_privileged(const cJSON *pod, const struct st_request *req, bool ephemeral, bool refuse,
			struct st_warnings *w, struct err *err);

/* JSON patch that does what mutate says; empty where there is nothing to do. For tests too. */
int ex_admit_patch(const struct ex_admit *how, const cJSON *pod, const struct st_pod_spec *spec,
		   const struct st_request *req, struct buf *out, struct err *err);

#endif

/* Changes to a trace that was read: other nodes, other models, other kinds of requests. */
#ifndef TESSERA_REPLAY_CHANGE_H
#define TESSERA_REPLAY_CHANGE_H

#include <stdint.h>

#include "base/err.h"
#include "replay/options.h"
#include "replay/trace.h"

struct rp_changes {
	struct rp_option_list remove; /* "5" or "5:T4": the last so many nodes, of that model */
	struct rp_option_list model;  /* "T4=A10": the GPUs of all nodes of a model */
	struct rp_option_list
		add; /* "12:name=new,cpu=96,memory=768Gi,gpus=8"; not changed by the above */
	/* "whole:fraction:0.3": a share of the pods with one GPU item of that kind gets another;
	 * kinds are whole, fraction, sm-sharing, mig. */
	struct rp_option_list switches;
	int64_t fraction_nano; /* what "fraction" and "sm-sharing" mean for pods that had none */
	const char *profile;   /* of pods switched to mig */
	uint64_t seed;         /* which pods */
};

/* Applies all of them, in the order of the struct. pods_switched counts. ERR_INVALID, ERR_RANGE,
 * ERR_EXISTS: the message names option and value; the trace is not to be used then. ERR_NOMEM. */
int rp_changes_apply(const struct rp_changes *c, struct rp_trace *t, size_t *ret_switched,
		     struct err *err);

#endif

/* Leadership by one coordination.k8s.io/v1 Lease, with client-go's fields and rules, so that other
 * tools understand it.
 *
 * Times of other machines are never compared with ours: a lease is taken over when it was not seen to
 * change for its own duration, by the local monotonic clock. A holder counts from the moment at which
 * it sent its last successful renewal, and stops renew_ms after it, while others wait duration_ms at
 * least: with clocks that run equally fast (to about renew_ms / duration_ms) there are never two. What
 * is under way when leadership stops must be over within duration_ms - renew_ms: that is the longest
 * deadline for a bind. */
#ifndef TESSERA_KUBE_LEASE_H
#define TESSERA_KUBE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kube/client.h"

struct ku_lease_options {
	const char *ns, *name; /* of the Lease; copied. ns NULL: the client's */
	const char *identity;  /* of this process and no other, now or later; copied */
	int64_t duration_ms;   /* 0: 15,000; written rounded up to seconds */
	int64_t renew_ms;      /* 0: 10,000 */
	int64_t retry_ms;      /* 0: 2,000 */
	struct log *log;       /* may be NULL */
	/* On the client's thread. Terms count the starts of this process from 1. */
	void (*on_started)(void *ctx, uint64_t term);
	void (*on_stopped)(void *ctx, uint64_t term);
	void *ctx;
};

struct ku_lease;

/* Starts competing. ERR_INVALID unless 1.2 * retry < renew < duration and the names are legal;
 * ERR_NOMEM. */
int ku_lease_new(struct ku_client *c, const struct ku_lease_options *o, struct ku_lease **ret,
		 struct err *err);

/* Milliseconds of leadership that are left for certain; 0: not the leader. Any thread; right even
 * when the client's thread is held up. To be asked at the entry of every bind. */
int64_t ku_lease_left_ms(struct ku_lease *l);
/* The term that runs; 0: not the leader. */
uint64_t ku_lease_term(struct ku_lease *l);
/* Who holds it as far as is known, into buf; "" = nobody. */
void ku_lease_holder(struct ku_lease *l, char *buf, size_t cap);

/* Ends leadership and competition; on_stopped was called when it returns. Any thread. */
void ku_lease_stop(struct ku_lease *l);
/* After _stop() and after the last bind is settled: gives the lease back, so that the next holder need
 * not wait. 0 also when it was not ours; ERR_IO within deadline_ms; ERR_NOMEM. Not from a callback. */
int ku_lease_release(struct ku_lease *l, int64_t deadline_ms, struct err *err);
void ku_lease_free(struct ku_lease *l); /* stops first; does not release */

#endif

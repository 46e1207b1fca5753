/* The rules of leadership without any I/O: the caller does what is asked and says what came of it. */
#ifndef TESSERA_KUBE_LEASE_CORE_H
#define TESSERA_KUBE_LEASE_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

#define KU_LEASE_NAME_CAP 256

/* What is compared to see that a lease changed. */
struct ku_lease_record {
	char holder[KU_LEASE_NAME_CAP]; /* "" = nobody */
	char acquired[40], renewed[40]; /* as written; never read as times */
	int64_t duration_us;
	int64_t transitions;
};

enum ku_lease_ask { KU_LEASE_WAIT, KU_LEASE_GET, KU_LEASE_CREATE, KU_LEASE_UPDATE };
enum ku_lease_came {
	KU_LEASE_DONE,     /* record is what the server has now */
	KU_LEASE_ABSENT,   /* 404 */
	KU_LEASE_CONFLICT, /* 409 */
	KU_LEASE_FAILED,   /* anything else; an update may have been carried out */
};

struct ku_lease_core {
	char identity[KU_LEASE_NAME_CAP];
	int64_t duration_us, renew_us, retry_us;

	bool leading;
	int64_t until_us; /* leading ends then */
	bool busy;        /* asked, not yet answered */
	int64_t next_us;  /* nothing to ask before */
	bool fresh;       /* record (or absent) was read just now */
	bool absent;
	bool seen; /* record holds something */
	struct ku_lease_record record;
	int64_t changed_us; /* when record was last seen to change */
	unsigned conflicts; /* in a row */
};

/* What to do now. WAIT: nothing until ku_lease_core_wake_us(). An ask must be answered. Ends leading
 * when its time is over. */
enum ku_lease_ask ku_lease_core_step(struct ku_lease_core *l, int64_t now_us, struct rng *rng);
int64_t ku_lease_core_wake_us(const struct ku_lease_core *l);

/* The answer to GET; record only for DONE. */
void ku_lease_core_got(struct ku_lease_core *l, int64_t now_us, enum ku_lease_came came,
		       const struct ku_lease_record *record);
/* The answer to CREATE or UPDATE that was asked at sent_us. */
void ku_lease_core_put(struct ku_lease_core *l, int64_t sent_us, int64_t now_us,
		       enum ku_lease_came came, const struct ku_lease_record *record);
/* The record to write at CREATE or UPDATE: holder, transitions and duration; times are the caller's,
 * acquired only where *ret_acquire. */
void ku_lease_core_fill(const struct ku_lease_core *l, struct ku_lease_record *ret,
			bool *ret_acquire);

#endif

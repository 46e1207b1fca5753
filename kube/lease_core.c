#include "kube/lease_core.h"

#include <string.h>

#define CONFLICTS_MAX 3 /* in a row before we wait */

static bool is_ours(const struct ku_lease_core *l)
{
	return l->seen && strcmp(l->record.holder, l->identity) == 0;
}

/* Somebody else has it, and may still believe so. */
static bool held_by_other(const struct ku_lease_core *l, int64_t now_us)
{
	return l->seen && l->record.holder[0] != '\0' && !is_ours(l) &&
	       now_us < l->changed_us + l->record.duration_us;
}

/* Looks again after retry, spread out a little; sooner where the lease runs out sooner. */
static void wait_for_other(struct ku_lease_core *l, int64_t now_us, struct rng *rng)
{
	int64_t out = l->changed_us + l->record.duration_us;

	l->next_us = now_us + l->retry_us + (int64_t)rng_below(rng, (uint64_t)l->retry_us / 5 + 1);
	if (out < l->next_us)
		l->next_us = out;
	l->fresh = false;
}

enum ku_lease_ask ku_lease_core_step(struct ku_lease_core *l, int64_t now_us, struct rng *rng)
{
	if (l->leading && now_us >= l->until_us)
		l->leading = false;
	if (l->busy || now_us < l->next_us)
		return KU_LEASE_WAIT;
	if (l->fresh && held_by_other(l, now_us)) {
		wait_for_other(l, now_us, rng);
		return KU_LEASE_WAIT;
	}
	l->busy = true;
	if (!l->fresh)
		return KU_LEASE_GET;
	return l->absent ? KU_LEASE_CREATE : KU_LEASE_UPDATE;
}

int64_t ku_lease_core_wake_us(const struct ku_lease_core *l)
{
	int64_t at = l->busy ? INT64_MAX : l->next_us;

	return l->leading && l->until_us < at ? l->until_us : at;
}

static bool same(const struct ku_lease_record *a, const struct ku_lease_record *b)
{
	return strcmp(a->holder, b->holder) == 0 && strcmp(a->renewed, b->renewed) == 0 &&
	       strcmp(a->acquired, b->acquired) == 0 && a->duration_us == b->duration_us &&
	       a->transitions == b->transitions;
}

static void observe(struct ku_lease_core *l, int64_t now_us, const struct ku_lease_record *record)
{
	struct ku_lease_record r = *record;

	if (r.duration_us <= 0) /* does not say: as long as ours */
		r.duration_us = l->duration_us;
	if (!l->seen || l->absent || !same(&l->record, &r))
		l->changed_us = now_us;
	l->record = r;
	l->seen = true;
	l->absent = false;
	l->fresh = true;
}

void ku_lease_core_got(struct ku_lease_core *l, int64_t now_us, enum ku_lease_came came,
		       const struct ku_lease_record *record)
{
	l->busy = false;
	l->next_us = now_us;
	if (came == KU_LEASE_DONE) {
		observe(l, now_us, record);
		if (!is_ours(l))
			l->leading = false;
	} else if (came == KU_LEASE_ABSENT) {
		/* Deleted under its holder: who knew that holder waits for it to stop by itself. */
		l->absent = l->fresh = true;
		l->leading = false;
	} else {
		l->fresh = false;
		l->next_us = now_us + l->retry_us;
	}
}

void ku_lease_core_put(struct ku_lease_core *l, int64_t sent_us, int64_t now_us,
		       enum ku_lease_came came, const struct ku_lease_record *record)
{
	l->busy = false;
	l->conflicts = came == KU_LEASE_CONFLICT ? l->conflicts + 1 : 0;
	switch (came) {
	case KU_LEASE_DONE:
		observe(l, now_us, record);
		l->until_us = sent_us + l->renew_us;
		l->leading = is_ours(l) && now_us < l->until_us;
		l->next_us = l->leading ? now_us + l->retry_us : now_us;
		break;
	case KU_LEASE_ABSENT:
		l->absent = l->fresh = true;
		l->leading = false;
		l->next_us = now_us;
		break;
	case KU_LEASE_CONFLICT:
		l->fresh = false;
		l->next_us = now_us + (l->conflicts > CONFLICTS_MAX ? l->retry_us : 0);
		break;
	case KU_LEASE_FAILED:
		l->fresh = false;
		l->next_us = now_us + l->retry_us;
		break;
	}
}

void ku_lease_core_fill(const struct ku_lease_core *l, struct ku_lease_record *ret,
			bool *ret_acquire)
{
	bool keep = !l->absent && is_ours(l);

	*ret = (struct ku_lease_record){0};
	if (l->seen && !l->absent)
		*ret = l->record;
	*ret_acquire = !keep;
	if (!keep && l->seen && !l->absent)
		ret->transitions++;
	memcpy(ret->holder, l->identity, sizeof(ret->holder));
	ret->duration_us = l->duration_us;
}

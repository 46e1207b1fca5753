/* Refusals that wait a moment for room. */
#include "extender/api_internal.h"

#define HOLD_US INT64_C(60000)
/* The scheduler asks about one pod at a time: at most a quarter of its time may be spent in vain, and so
 * many holds at once. */
#define SHARE 4
#define SAVED_MAX_US (8 * HOLD_US)

uint64_t ex_api_room(struct ex_api *a)
{
	uint64_t room;

	pthread_mutex_lock(&a->lock);
	room = a->room;
	pthread_mutex_unlock(&a->lock);
	return room;
}

/* Under the lock: time that may be spent in vain yet. */
static int64_t saved_us(struct ex_api *a, int64_t now)
{
	a->hold_saved_us += (now - a->hold_counted_us) / SHARE;
	a->hold_counted_us = now;
	if (a->hold_saved_us > SAVED_MAX_US)
		a->hold_saved_us = SAVED_MAX_US;
	return a->hold_saved_us;
}

enum ex_api_held ex_api_hold(struct ex_api *a, struct ex_api_hold *h, uint64_t seen)
{
	enum ex_api_held ret = EX_API_ANSWER;
	int64_t now = ex_api_now_us(a);
	bool first = h->until_us == 0;

	pthread_mutex_lock(&a->lock);
	if (a->room != seen) {
		ret = EX_API_AGAIN;
	} else if (!atomic_load(&a->stopping) &&
		   (first ? saved_us(a, now) >= HOLD_US : now < h->until_us)) {
		if (first) {
			h->until_us = now + HOLD_US;
			a->stats.refusals_held++;
		}
		h->next = a->holds;
		a->holds = h;
		h->park(h);
		pthread_cond_broadcast(&a->work);
		ret = EX_API_HELD;
	} else if (!first) {
		a->hold_saved_us = saved_us(a, now) - HOLD_US;
	}
	pthread_mutex_unlock(&a->lock);
	return ret;
}

static void wake(struct ex_api_hold *list)
{
	while (list != NULL) {
		struct ex_api_hold *next = list->next;

		list->wake(list);
		list = next;
	}
}

void ex_api_room_grew(struct ex_api *a)
{
	struct ex_api_hold *list;

	pthread_mutex_lock(&a->lock);
	a->room++;
	list = a->holds;
	a->holds = NULL;
	pthread_mutex_unlock(&a->lock);
	wake(list);
}

int64_t ex_api_holds_run(struct ex_api *a)
{
	struct ex_api_hold **at = &a->holds, *list = NULL, *h;
	int64_t now = ex_api_now_us(a), next_us = INT64_MAX;

	pthread_mutex_lock(&a->lock);
	while ((h = *at) != NULL) {
		if (h->until_us > now) {
			next_us = h->until_us < next_us ? h->until_us : next_us;
			at = &h->next;
			continue;
		}
		*at = h->next;
		h->next = list;
		list = h;
	}
	pthread_mutex_unlock(&a->lock);
	wake(list);
	return next_us;
}

void ex_api_holds_end(struct ex_api *a)
{
	ex_api_room_grew(a);
}

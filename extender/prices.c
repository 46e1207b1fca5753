/* The price thread: one that searches for prices while others answer. It holds the lock for slices of
 * the cluster, and to put prices in use; never for a step. */
#include <sys/resource.h>
#include <time.h>

#include "extender/service_internal.h"

#define PAUSE_NS 50000 /* between slices: whoever waits gets the lock */
#define NICE 10        /* a question that comes during a search gets the CPU at once */

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static void *run(void *arg)
{
	struct ex_service *s = arg;
	enum po_pricer_todo todo;

	(void)setpriority(PRIO_PROCESS, 0, NICE); /* this thread; where it fails, no matter */
	pthread_mutex_lock(&s->lock);
	while (!s->price_thread_ends) {
		todo = po_pricer_look(s->pricer);
		if (todo == PO_PRICER_IDLE) {
			pthread_cond_wait(&s->prices_due, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		if (todo == PO_PRICER_SEARCH)
			po_pricer_search(s->pricer);
		else
			pause_shortly();
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

bool ex_prices_start(struct ex_service *s)
{
	const struct po_policy *policy = po_placer_policy(s->placer);

	if (!policy->uses_measure || policy->measure != FR_BID)
		return true;
	if (s->pricer == NULL)
		s->pricer = po_pricer_new(s->placer);
	if (s->pricer != NULL && !s->price_thread_runs)
		s->price_thread_runs = pthread_create(&s->price_thread, NULL, run, s) == 0;
	ex_prices_wake(s);
	return s->price_thread_runs;
}

void ex_prices_wake(struct ex_service *s)
{
	pthread_cond_signal(&s->prices_due);
}

void ex_prices_stop(struct ex_service *s)
{
	pthread_mutex_lock(&s->lock);
	s->price_thread_ends = true;
	ex_prices_wake(s);
	pthread_mutex_unlock(&s->lock);
	if (s->price_thread_runs)
		pthread_join(s->price_thread, NULL);
	po_pricer_free(s->pricer);
}

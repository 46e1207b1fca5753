#include "enforcer/pulse.h"

#include <stdio.h>
#include <time.h>

static int64_t mono_ms(void *ctx)
{
	struct timespec t;

	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static _Thread_local struct en_pulse *mine; /* NULL: waits, or has none */

struct en_pulse *en_pulse_add(struct en_pulses *ps, const char *thread)
{
	size_t n = ps != NULL ? atomic_load(&ps->count) : EN_PULSES_MAX;
	struct en_pulse *p;

	if (n == EN_PULSES_MAX)
		return NULL;
	p = &ps->at[n];
	p->thread = thread;
	p->now_ms = ps->now_ms != NULL ? ps->now_ms : mono_ms;
	p->ctx = ps->ctx;
	atomic_store(&ps->count, n + 1);
	return p;
}

/* The time first: whoever reads the new word must not take it with the old time. */
void en_pulse_begin(struct en_pulse *p, const char *doing)
{
	if (p == NULL)
		return;
	mine = p;
	atomic_store(&p->since_ms, p->now_ms(p->ctx));
	atomic_store(&p->doing, doing);
}

void en_pulse_end(struct en_pulse *p)
{
	mine = NULL;
	if (p != NULL)
		atomic_store(&p->doing, NULL);
}

void en_pulse_beat(void)
{
	if (mine != NULL)
		atomic_store(&mine->since_ms, mine->now_ms(mine->ctx));
}

int64_t en_pulse_busy_ms(struct en_pulse *p, const char **ret_doing)
{
	const char *doing = atomic_load(&p->doing);
	int64_t since = atomic_load(&p->since_ms);

	if (ret_doing != NULL)
		*ret_doing = doing;
	return doing != NULL ? p->now_ms(p->ctx) - since : 0;
}

bool en_pulses_hung(struct en_pulses *ps, int64_t limit_ms, char ret[EN_PULSE_TEXT_CAP])
{
	size_t count = atomic_load(&ps->count);
	int64_t longest = limit_ms;

	for (size_t i = 0; i < count; i++) {
		const char *doing;
		int64_t ms = en_pulse_busy_ms(&ps->at[i], &doing);

		if (ms <= longest)
			continue;
		longest = ms;
		snprintf(ret, EN_PULSE_TEXT_CAP, "thread %s has been at %s for %lld s",
			 ps->at[i].thread, doing, (long long)ms / 1000);
	}
	return longest > limit_ms;
}

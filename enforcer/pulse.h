/* What each thread does, and since when: one that hangs in the driver or in the kernel is found, and named. */
#ifndef TESSERA_ENFORCER_PULSE_H
#define TESSERA_ENFORCER_PULSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EN_PULSES_MAX 16
#define EN_PULSE_TEXT_CAP 128

struct en_pulse {
	const char *thread;           /* its name */
	_Atomic(const char *) doing;  /* NULL: it waits for work */
	_Atomic int64_t since_ms;     /* it does that */
	int64_t (*now_ms)(void *ctx); /* as of the set */
	void *ctx;
};

/* Of one program. Zeroed, it is empty and goes by the monotonic clock; now_ms is set before the first add. */
struct en_pulses {
	int64_t (*now_ms)(void *ctx);
	void *ctx;
	_Atomic size_t count;
	struct en_pulse at[EN_PULSES_MAX];
};

/* A thread's own, called before it is made; threads are added by one thread. thread outlives the set. NULL:
 * ps is NULL, or is full. */
struct en_pulse *en_pulse_add(struct en_pulses *ps, const char *thread);

/* By that thread: it begins something (text of static life), it waits again. NULL is fine. */
void en_pulse_begin(struct en_pulse *p, const char *doing);
void en_pulse_end(struct en_pulse *p);
/* By any thread: one part of what it does was done (as one of many programs that it runs), so its time begins
 * anew. Without a pulse, or where it waits, nothing. */
void en_pulse_beat(void);

/* Milliseconds since the thread began what it does; 0: it waits. *ret_doing (may be NULL): what. Any thread. */
int64_t en_pulse_busy_ms(struct en_pulse *p, const char **ret_doing);
/* Has one been at the same for longer than that? ret then names the longest: "thread loop has been at the probe
 * for 130 s". Takes no lock and never waits. Any thread. */
bool en_pulses_hung(struct en_pulses *ps, int64_t limit_ms, char ret[EN_PULSE_TEXT_CAP]);

#endif

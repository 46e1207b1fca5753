/* Threads that write to one log: lines are whole, none is lost, and no data race. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { THREADS = 4, EVENTS = 20000 };

struct sink {
	unsigned lines;
	unsigned suppressed;
	unsigned broken;
};

/* Called under the log's lock: plain counters are enough. */
static void count_line(void *ctx, enum log_level level, const char *line)
{
	struct sink *s = ctx;
	const char *p = strstr(line, " suppressed=");

	if (p != NULL)
		s->suppressed += (unsigned)strtoul(p + strlen(" suppressed="), NULL, 10);
	else
		s->lines++;
	if (level != LOG_LEVEL_WARN || strstr(line, " level=warn event=") == NULL ||
	    (p == NULL && strstr(line, " end=1") == NULL))
		s->broken++;
}

static int64_t ticking_clock(void *ctx)
{
	return (*(int64_t *)ctx)++; /* under the log's lock */
}

static void *write_events(void *arg)
{
	for (int i = 0; i < EVENTS; i++)
		log_event(arg, LOG_LEVEL_WARN, i % 3 == 0 ? "a" : "b", "n=%d end=1", i);
	return NULL;
}

int main(void)
{
	struct sink sink = {0};
	int64_t now_ms = 0;
	struct log *l = log_new(LOG_LEVEL_INFO, count_line, &sink, ticking_clock, &now_ms);
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, write_events, l) != 0)
			return 1;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	log_free(l);
	printf("%u lines, %u suppressed, %u broken\n", sink.lines, sink.suppressed, sink.broken);
	return sink.broken == 0 && sink.suppressed > 0 &&
			       sink.lines + sink.suppressed == THREADS * EVENTS
		       ? 0
		       : 1;
}

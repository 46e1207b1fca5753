/* One line an event, key=value. Only the shells log; the core returns errors instead. */
#ifndef TESSERA_BASE_LOG_H
#define TESSERA_BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log;

/* Receives a finished line without its newline; called under the log's own lock. */
typedef void (*log_sink_fn)(void *ctx, enum log_level level, const char *line);
/* Milliseconds since the epoch; a handle so that tests have their own time. */
typedef int64_t (*clock_ms_fn)(void *ctx);

/* sink NULL: standard error. now NULL: the real clock. NULL returned: no memory. */
struct log *log_new(enum log_level max_level, log_sink_fn sink, void *sink_ctx, clock_ms_fn now,
		    void *now_ctx);
void log_free(struct log *l);
/* From now on; any thread. log may be NULL. */
void log_set_level(struct log *l, enum log_level max_level);

/* Writes `time=... level=... event=<event> <formatted>`, where fmt gives the `key=value ...` tail
 * (values with blanks or control characters through log_quote()). log may be NULL: nothing.
 * Equal events beyond 20 within 10 s are counted and reported in one line when the window ends.
 * Thread-safe. */
void log_event(struct log *l, enum log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Quotes s for a value: returns s itself where it is plain, else a "..." form with \-escapes in buf
 * (cut to cap). */
const char *log_quote(const char *s, char *buf, unsigned cap);

/* "error", "warn", "info", "debug" to a level; -1 for others. */
int log_level_parse(const char *s);

#endif

/* Shell code: not part of the core, it does I/O and reads the clock. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE_CAP 4096 /* a longer line is cut and ends in "..." */
#define WINDOW_MS 10000
#define WINDOW_BURST 20

/* Lines of one event since start_ms. Event names are constants of the program, so few. */
struct window {
	struct window *next;
	int64_t start_ms;
	unsigned count;
	enum log_level level;
	char event[];
};

struct log {
	pthread_mutex_t lock;
	_Atomic int max_level; /* enum log_level */
	log_sink_fn sink;
	void *sink_ctx;
	clock_ms_fn now;
	void *now_ctx;
	struct window *windows;
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static void stderr_sink(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	fprintf(stderr, "%s\n", line);
}

static int64_t real_clock(void *ctx)
{
	struct timespec ts;

	(void)ctx;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void log_set_level(struct log *l, enum log_level max_level)
{
	if (l != NULL)
		l->max_level = (int)max_level;
}

struct log *log_new(enum log_level max_level, log_sink_fn sink, void *sink_ctx, clock_ms_fn now,
		    void *now_ctx)
{
	struct log *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	if (pthread_mutex_init(&l->lock, NULL) != 0) {
		free(l);
		return NULL;
	}
	l->max_level = (int)max_level;
	l->sink = sink != NULL ? sink : stderr_sink;
	l->sink_ctx = sink_ctx;
	l->now = now != NULL ? now : real_clock;
	l->now_ctx = now_ctx;
	return l;
}

/* `time=... level=... event=...`; returns its length. */
static size_t line_start(char *line, int64_t now_ms, enum log_level level, const char *event)
{
	time_t sec = (time_t)(now_ms / 1000);
	char stamp[32];
	struct tm tm;
	int n;

	if (gmtime_r(&sec, &tm) == NULL || strftime(stamp, sizeof(stamp), "%FT%T", &tm) == 0)
		memcpy(stamp, "-", 2);
	n = snprintf(line, LINE_CAP, "time=%s.%03dZ level=%s event=%s", stamp, (int)(now_ms % 1000),
		     level_names[level], event);
	return n < LINE_CAP ? (size_t)n : LINE_CAP - 1;
}

/* The sink gets one line, whatever the arguments held. */
static void line_emit(struct log *l, enum log_level level, char *line)
{
	for (char *p = line; *p != '\0'; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = ' ';
	}
	l->sink(l->sink_ctx, level, line);
}

static void window_report(struct log *l, const struct window *w, int64_t now_ms)
{
	char line[LINE_CAP];
	size_t len;

	if (w->count <= WINDOW_BURST)
		return;
	len = line_start(line, now_ms, w->level, w->event);
	snprintf(line + len, sizeof(line) - len, " suppressed=%u", w->count - WINDOW_BURST);
	line_emit(l, w->level, line);
}

/* Ends the windows whose time is over; a clock that was set back ends them too. */
static void windows_expire(struct log *l, int64_t now_ms)
{
	struct window **at = &l->windows, *w;

	while ((w = *at) != NULL) {
		if (now_ms >= w->start_ms && now_ms - w->start_ms < WINDOW_MS) {
			at = &w->next;
			continue;
		}
		window_report(l, w, now_ms);
		*at = w->next;
		free(w);
	}
}

/* Counts the event; true when its line may be written. Without memory nothing is limited. */
static bool window_admit(struct log *l, const char *event, enum log_level level, int64_t now_ms)
{
	size_t size = strlen(event) + 1;
	struct window *w;

	for (w = l->windows; w != NULL; w = w->next) {
		if (w->level == level && strcmp(w->event, event) == 0)
			return ++w->count <= WINDOW_BURST;
	}
	w = malloc(sizeof(*w) + size);
	if (w == NULL)
		return true;
	w->start_ms = now_ms;
	w->count = 1;
	w->level = level;
	memcpy(w->event, event, size);
	w->next = l->windows;
	l->windows = w;
	return true;
}

void log_free(struct log *l)
{
	struct window *w, *next;
	int64_t now_ms;

	if (l == NULL)
		return;
	now_ms = l->now(l->now_ctx);
	for (w = l->windows; w != NULL; w = next) {
		next = w->next;
		window_report(l, w, now_ms);
		free(w);
	}
	pthread_mutex_destroy(&l->lock);
	free(l);
}

void log_event(struct log *l, enum log_level level, const char *event, const char *fmt, ...)
{
	char line[LINE_CAP], tail[LINE_CAP];
	size_t len, room;
	int64_t now_ms;
	va_list ap;
	int n;

	if (l == NULL || (int)level > l->max_level)
		return;
	va_start(ap, fmt);
	n = vsnprintf(tail, sizeof(tail), fmt, ap);
	va_end(ap);
	if (n < 0)
		memcpy(tail, "?", 2);

	pthread_mutex_lock(&l->lock);
	now_ms = l->now(l->now_ctx);
	windows_expire(l, now_ms);
	if (window_admit(l, event, level, now_ms)) {
		len = line_start(line, now_ms, level, event);
		room = sizeof(line) - len;
		n = snprintf(line + len, room, "%s%s", tail[0] != '\0' ? " " : "", tail);
		if ((size_t)n >= room)
			memcpy(line + sizeof(line) - 4, "...", 4);
		line_emit(l, level, line);
	}
	pthread_mutex_unlock(&l->lock);
}

/* Bytes of the valid UTF-8 sequence at s; 0 where there is none (s is NUL-terminated). */
static unsigned utf8_len(const unsigned char *s)
{
	unsigned len = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;

	if (s[0] > 0xF4)
		return 0;
	for (unsigned i = 1; i < len; i++) {
		if ((s[i] & 0xC0) != 0x80)
			return 0;
	}
	return len;
}

static bool is_plain(unsigned char c)
{
	return c > ' ' && c != '"' && c != '\\' && c != '=' && c != 0x7f;
}

/* Writes the escaped form of what is at s (at most 4 bytes) to out; returns the bytes consumed. */
static unsigned escape(const unsigned char *s, char out[5])
{
	static const char hex[] = "0123456789abcdef";
	static const char from[] = "\n\r\t\"\\", to[] = "nrt\"\\";
	unsigned len = utf8_len(s);
	const char *p = strchr(from, s[0]);

	if (p != NULL) {
		memcpy(out, (char[]){'\\', to[p - from], '\0'}, 3);
		return 1;
	}
	if (len == 0 || s[0] < ' ' || s[0] == 0x7f) {
		memcpy(out, (char[]){'\\', 'x', hex[s[0] >> 4], hex[s[0] & 15], '\0'}, 5);
		return 1;
	}
	memcpy(out, s, len);
	out[len] = '\0';
	return len;
}

const char *log_quote(const char *s, char *buf, unsigned cap)
{
	const unsigned char *p = (const unsigned char *)s;
	unsigned len = 0, used;
	char piece[5];

	while (is_plain(*p) && (used = utf8_len(p)) > 0)
		p += used;
	if (*p == '\0' && s[0] != '\0')
		return s;
	if (cap < 3)
		return "";
	buf[len++] = '"';
	for (p = (const unsigned char *)s; *p != '\0'; p += used) {
		used = escape(p, piece);
		if (len + strlen(piece) + 2 > cap)
			break;
		memcpy(buf + len, piece, strlen(piece));
		len += (unsigned)strlen(piece);
	}
	buf[len++] = '"';
	buf[len] = '\0';
	return buf;
}

int log_level_parse(const char *s)
{
	for (int i = 0; i < (int)(sizeof(level_names) / sizeof(level_names[0])); i++) {
		if (strcmp(s, level_names[i]) == 0)
			return i;
	}
	return -1;
}

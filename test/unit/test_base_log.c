#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "test/lib/oom.h"

/* A sink that keeps all lines, and a clock that the test moves. */
struct fixture {
	struct buf lines;
	unsigned count;
	enum log_level last_level;
	int64_t now_ms;
};

static void keep_line(void *ctx, enum log_level level, const char *line)
{
	struct fixture *f = ctx;

	buf_puts(&f->lines, line);
	buf_putc(&f->lines, '\n');
	f->count++;
	f->last_level = level;
}

static int64_t fixture_now(void *ctx)
{
	return ((struct fixture *)ctx)->now_ms;
}

static struct log *fixture_log(struct fixture *f, enum log_level max_level)
{
	*f = (struct fixture){.now_ms = INT64_C(1709210096007)};
	return log_new(max_level, keep_line, f, fixture_now, f);
}

Test(base_log, one_line_an_event)
{
	struct fixture f;
	struct log *l = fixture_log(&f, LOG_LEVEL_INFO);

	log_event(l, LOG_LEVEL_INFO, "bind", "pod=%s gpu=%d", "a/b", 3);
	log_event(l, LOG_LEVEL_DEBUG, "detail", "x=1");
	log_event(l, LOG_LEVEL_ERROR, "lost", "%s", "");
	log_event(l, LOG_LEVEL_WARN, "odd", "text=a\nb\tc\x7f");
	log_event(NULL, LOG_LEVEL_ERROR, "nothing", "x=1");
	cr_assert_str_eq(buf_str(&f.lines),
			 "time=2024-02-29T12:34:56.007Z level=info event=bind pod=a/b gpu=3\n"
			 "time=2024-02-29T12:34:56.007Z level=error event=lost\n"
			 "time=2024-02-29T12:34:56.007Z level=warn event=odd text=a b c \n");
	cr_assert_eq(f.last_level, LOG_LEVEL_WARN);
	log_free(l);
	log_free(NULL);
	buf_fini(&f.lines);
}

Test(base_log, default_sink_and_clock, .init = cr_redirect_stderr)
{
	struct log *l = log_new(LOG_LEVEL_INFO, NULL, NULL, NULL, NULL);
	char line[256] = "";
	FILE *f;

	log_event(l, LOG_LEVEL_INFO, "start", "port=%d", 8888);
	log_free(l);
	f = cr_get_redirected_stderr();
	cr_assert_not_null(fgets(line, sizeof(line), f));
	cr_assert_eq(strncmp(line, "time=20", 7), 0, "%s", line);
	cr_assert_not_null(strstr(line, "Z level=info event=start port=8888\n"), "%s", line);
}

Test(base_log, long_lines_are_cut)
{
	struct fixture f;
	struct log *l = fixture_log(&f, LOG_LEVEL_INFO);

	log_event(l, LOG_LEVEL_INFO, "long", "x=%08000d", 1);
	cr_assert_eq(f.count, 1);
	cr_assert_eq(f.lines.len, 4096); /* 4095 and the newline */
	cr_assert_eq(memcmp(f.lines.data + f.lines.len - 4, "...\n", 4), 0);
	log_free(l);
	buf_fini(&f.lines);
}

Test(base_log, equal_events_are_limited)
{
	struct fixture f;
	struct log *l = fixture_log(&f, LOG_LEVEL_INFO);

	for (int i = 0; i < 50; i++) {
		log_event(l, LOG_LEVEL_WARN, "retry", "n=%d", i);
		f.now_ms += 10;
	}
	cr_assert_eq(f.count, 20);
	log_event(l, LOG_LEVEL_WARN, "other", "n=1");
	log_event(l, LOG_LEVEL_ERROR, "retry", "level=differs");
	cr_assert_eq(f.count, 22, "only equal events are held back");

	f.now_ms += 9000;
	log_event(l, LOG_LEVEL_WARN, "retry", "n=50");
	cr_assert_eq(f.count, 22, "the window is not over");

	/* The first event after the end brings the report, whatever it is; then all is new. */
	f.now_ms += 500;
	buf_reset(&f.lines);
	log_event(l, LOG_LEVEL_WARN, "other", "n=2");
	cr_assert_str_eq(buf_str(&f.lines),
			 "time=2024-02-29T12:35:06.007Z level=warn event=retry suppressed=31\n"
			 "time=2024-02-29T12:35:06.007Z level=warn event=other n=2\n");
	log_event(l, LOG_LEVEL_WARN, "retry", "n=51");
	cr_assert_eq(f.count, 25);
	log_free(l);
	cr_assert_eq(f.count, 25);
	buf_fini(&f.lines);
}

Test(base_log, what_was_held_back_is_reported_at_the_end)
{
	struct fixture f;
	struct log *l = fixture_log(&f, LOG_LEVEL_INFO);

	for (int i = 0; i < 21; i++)
		log_event(l, LOG_LEVEL_INFO, "x", "n=%d", i);
	cr_assert_eq(f.count, 20);
	log_free(l);
	cr_assert_eq(f.count, 21);
	cr_assert_not_null(strstr(buf_str(&f.lines), "event=x suppressed=1\n"));
	buf_fini(&f.lines);
}

Test(base_log, a_clock_set_back_does_not_silence)
{
	struct fixture f;
	struct log *l = fixture_log(&f, LOG_LEVEL_INFO);

	for (int i = 0; i < 25; i++)
		log_event(l, LOG_LEVEL_INFO, "x", "n=%d", i);
	f.now_ms -= 3600000;
	log_event(l, LOG_LEVEL_INFO, "x", "n=25");
	cr_assert_eq(f.count, 22); /* 20, the report, the new one */
	log_free(l);
	buf_fini(&f.lines);
}

enum { THREADS = 4, EVENTS = 5 };

static void *write_events(void *arg)
{
	for (int i = 0; i < EVENTS; i++)
		log_event(arg, LOG_LEVEL_INFO, "thread", "n=%d", i);
	return NULL;
}

Test(base_log, threads)
{
	struct fixture f;
	struct log *l = fixture_log(&f, LOG_LEVEL_INFO);
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, write_events, l), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(f.count, THREADS * EVENTS);
	log_free(l);
	buf_fini(&f.lines);
}

Test(base_log, oom_sweep)
{
	OOM_SWEEP(n) {
		struct fixture f;
		struct log *l;
		bool hit;

		oom_fail_at(n);
		l = fixture_log(&f, LOG_LEVEL_INFO);
		for (int i = 0; i < 30; i++)
			log_event(l, LOG_LEVEL_INFO, "x", "n=%d", i);
		hit = oom_disarm();
		if (l != NULL)
			cr_assert_geq(f.count, 20);
		else
			cr_assert(hit);
		log_free(l);
		buf_fini(&f.lines);
		if (!hit)
			break;
	}
}

Test(base_log, quote)
{
	static const struct {
		const char *s, *want;
		unsigned cap;
	} t[] = {
		{"plain", "plain", 0},
		{"default/pod-1:x,y", "default/pod-1:x,y", 8},
		{"h\xC3\xA9", "h\xC3\xA9", 8},
		{"", "\"\"", 3},
		{"a b", "\"a b\"", 64},
		{"a=b", "\"a=b\"", 64},
		{"say \"hi\"", "\"say \\\"hi\\\"\"", 64},
		{"back\\slash", "\"back\\\\slash\"", 64},
		{"\n\r\t", "\"\\n\\r\\t\"", 64},
		{"\x01\x7f", "\"\\x01\\x7f\"", 64},
		{"bad\xFFutf", "\"bad\\xffutf\"", 64},
		{"cut\xE2\x82", "\"cut\\xe2\\x82\"", 64},
		{"\xC0\x80", "\"\\xc0\\x80\"", 64},
		{"\xE2\x82\xAC 5", "\"\xE2\x82\xAC 5\"", 64},
		{"one two", "\"one t\"", 8},
		{"a b\n", "\"a b\"", 7}, /* \n would need 8 */
		{"a b\n", "\"a b\\n\"", 8},
		{"a \xE2\x82\xAC", "\"a \"", 7},
		{"a \xE2\x82\xAC", "\"a \xE2\x82\xAC\"", 8},
		{"a b", "\"\"", 3},
		{"a b", "", 2},
		{"a b", "", 0},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		char buf[64];
		const char *got;

		memset(buf, '#', sizeof(buf));
		got = log_quote(t[i].s, buf, t[i].cap);
		cr_expect_str_eq(got, t[i].want, "row %zu: %s", i, got);
		if (t[i].cap < sizeof(buf))
			cr_expect_eq(buf[t[i].cap], '#', "row %zu writes past its end", i);
	}
}

Test(base_log, level_names)
{
	cr_assert_eq(log_level_parse("error"), LOG_LEVEL_ERROR);
	cr_assert_eq(log_level_parse("warn"), LOG_LEVEL_WARN);
	cr_assert_eq(log_level_parse("info"), LOG_LEVEL_INFO);
	cr_assert_eq(log_level_parse("debug"), LOG_LEVEL_DEBUG);
	cr_assert_eq(log_level_parse("warning"), -1);
	cr_assert_eq(log_level_parse(""), -1);
}

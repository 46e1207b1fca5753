#include "replay/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_CELLS 30
#define REDRAW_MS 100

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void rp_progress_init(struct rp_progress *p, bool quiet)
{
	*p = (struct rp_progress){.on = !quiet && isatty(STDERR_FILENO) == 1, .begun_ms = now_ms()};
}

const char *rp_progress_left(int64_t spent_ms, size_t done, size_t total, char buf[RP_LEFT_CAP])
{
	double left;

	buf[0] = '\0';
	/* The first moments say little. */
	if (spent_ms < 500 || done == 0 || done > total)
		return buf;
	left = (double)spent_ms / 1000 * (double)(total - done) / (double)done;
	if (left < 100)
		snprintf(buf, RP_LEFT_CAP, "%d s left", (int)left + 1);
	else if (left < 6000)
		snprintf(buf, RP_LEFT_CAP, "%d min left", (int)(left / 60) + 1);
	else
		snprintf(buf, RP_LEFT_CAP, "%.0f h left", left / 3600);
	return buf;
}

void rp_progress_show(void *ctx, size_t done, size_t total)
{
	struct rp_progress *p = ctx;
	char bar[BAR_CELLS + 1], left[RP_LEFT_CAP];
	size_t full;

	if (!p->on || total == 0 || now_ms() - p->shown_ms < REDRAW_MS)
		return;
	p->shown_ms = now_ms();
	full = done * BAR_CELLS / total;
	memset(bar, '.', BAR_CELLS);
	memset(bar, '#', full < BAR_CELLS ? full : BAR_CELLS);
	bar[BAR_CELLS] = '\0';
	fprintf(stderr, "\r[%s] %3zu %%  %s  %s\033[K", bar, done * 100 / total, p->label,
		rp_progress_left(p->shown_ms - p->begun_ms, done, total, left));
	fflush(stderr);
}

void rp_progress_clear(struct rp_progress *p)
{
	if (p->on && p->shown_ms != 0) {
		fprintf(stderr, "\r\033[K");
		fflush(stderr);
	}
	p->shown_ms = 0;
}

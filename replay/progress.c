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
	*p = (struct rp_progress){.on = !quiet && isatty(STDERR_FILENO) == 1};
}

void rp_progress_show(void *ctx, size_t done, size_t total)
{
	struct rp_progress *p = ctx;
	char bar[BAR_CELLS + 1];
	size_t full;

	if (!p->on || total == 0 || now_ms() - p->shown_ms < REDRAW_MS)
		return;
	p->shown_ms = now_ms();
	full = done * BAR_CELLS / total;
	memset(bar, '.', BAR_CELLS);
	memset(bar, '#', full < BAR_CELLS ? full : BAR_CELLS);
	bar[BAR_CELLS] = '\0';
	fprintf(stderr, "\r[%s] %3zu %%  %s ", bar, done * 100 / total, p->label);
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

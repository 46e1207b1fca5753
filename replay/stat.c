#include "replay/stat.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void rp_stat_add(struct rp_stat *s, int64_t v)
{
	if (v == RP_NO_VALUE)
		return;
	s->sum += v;
	s->squares += (__int128)v * v;
	s->count++;
}

int64_t rp_stat_mean(const struct rp_stat *s)
{
	return s->count > 0 ? rp_round_div(s->sum, s->count) : RP_NO_VALUE;
}

int64_t rp_stat_spread(const struct rp_stat *s)
{
	double num;

	if (s->count < 2)
		return RP_NO_VALUE;
	num = (double)(s->squares * s->count - (__int128)s->sum * s->sum);
	return (int64_t)(sqrt(num / ((double)s->count * (double)(s->count - 1))) + 0.5);
}

const char *rp_text_centi(int64_t v, char buf[RP_TEXT_CAP])
{
	if (v == RP_NO_VALUE)
		return "-";
	snprintf(buf, RP_TEXT_CAP, "%s%" PRId64 ".%02d", v < 0 ? "-" : "", (v < 0 ? -v : v) / 100,
		 (int)((v < 0 ? -v : v) % 100));
	return buf;
}

const char *rp_text_count(int64_t v, char buf[RP_TEXT_CAP])
{
	if (v == RP_NO_VALUE)
		return "-";
	snprintf(buf, RP_TEXT_CAP, "%" PRId64, v);
	return buf;
}

const char *rp_text_many(int64_t n, const char *what, char buf[RP_TEXT_CAP])
{
	snprintf(buf, RP_TEXT_CAP, "%" PRId64 " %s%s", n, what, n == 1 ? "" : "s");
	return buf;
}

const char *rp_text_time(int64_t ms, char buf[RP_TEXT_CAP])
{
	int64_t s = ms / 1000;

	if (ms == RP_NO_VALUE)
		return "-";
	if (s < 1000)
		snprintf(buf, RP_TEXT_CAP, "%" PRId64 " s", s);
	else if (s < 60000)
		snprintf(buf, RP_TEXT_CAP, "%" PRId64 " min", s / 60);
	else
		snprintf(buf, RP_TEXT_CAP, "%" PRId64 ".%d h", s / 3600, (int)(s % 3600 / 360));
	return buf;
}

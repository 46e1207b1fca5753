/* Mean and spread of integers over runs, and how they are written. */
#ifndef TESSERA_REPLAY_STAT_H
#define TESSERA_REPLAY_STAT_H

#include <stdint.h>

#include "replay/curve.h"

struct rp_stat {
	int64_t sum, count;
	__int128 squares;
};

/* RP_NO_VALUE is not counted. */
void rp_stat_add(struct rp_stat *s, int64_t v);
/* Rounded half to even; RP_NO_VALUE without values. */
int64_t rp_stat_mean(const struct rp_stat *s);
/* The standard deviation of the sample; RP_NO_VALUE below two values. */
int64_t rp_stat_spread(const struct rp_stat *s);

#define RP_TEXT_CAP 32
/* "95.23" from hundredths, "17" from an integer; "-" where there is no value. Return buf or a literal. */
const char *rp_text_centi(int64_t v, char buf[RP_TEXT_CAP]);
const char *rp_text_count(int64_t v, char buf[RP_TEXT_CAP]);
/* "1 seed", "2 seeds". */
const char *rp_text_many(int64_t n, const char *what, char buf[RP_TEXT_CAP]);
/* "850 s", "12 min", "3.2 h" from milliseconds. */
const char *rp_text_time(int64_t ms, char buf[RP_TEXT_CAP]);

#endif

/* Threads that hang are found and named. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "enforcer/pulse.h"

static int64_t clock_ms(void *ctx)
{
	return *(const int64_t *)ctx;
}

Test(enforcer_pulse, the_longest_is_named)
{
	int64_t now = 1000;
	struct en_pulses ps = {.now_ms = clock_ms, .ctx = &now};
	struct en_pulse *loop = en_pulse_add(&ps, "loop"), *nri = en_pulse_add(&ps, "nri");
	char why[EN_PULSE_TEXT_CAP] = "as before";
	const char *doing = "";

	now = 1000000;
	cr_expect_not(en_pulses_hung(&ps, 0, why), "both wait");
	cr_expect_eq(en_pulse_busy_ms(loop, &doing), 0);
	cr_expect_null(doing);
	en_pulse_begin(loop, "a look");
	now += 5000;
	en_pulse_begin(nri, "CreateContainer");
	now += 5000;
	cr_expect_eq(en_pulse_busy_ms(loop, &doing), 10000);
	cr_expect_str_eq(doing, "a look");
	cr_expect_not(en_pulses_hung(&ps, 10000, why));
	cr_expect_str_eq(why, "as before");
	now += 999;
	cr_expect(en_pulses_hung(&ps, 10000, why));
	cr_expect_str_eq(why, "thread loop has been at a look for 10 s");
	cr_expect(en_pulses_hung(&ps, 3000, why));
	cr_expect_str_eq(why, "thread loop has been at a look for 10 s");
	/* It goes on to something else, which takes its time anew. */
	en_pulse_begin(loop, "measuring");
	cr_expect(en_pulses_hung(&ps, 3000, why));
	cr_expect_str_eq(why, "thread nri has been at CreateContainer for 5 s");
	en_pulse_end(nri);
	now += 2000;
	cr_expect_not(en_pulses_hung(&ps, 3000, why));
}

/* Without a set, and where it is full, threads go unwatched. */
Test(enforcer_pulse, more_than_there_is_room_for)
{
	struct en_pulses ps = {.now_ms = NULL};

	cr_expect_null(en_pulse_add(NULL, "loop"));
	for (int i = 0; i < EN_PULSES_MAX; i++)
		cr_expect_not_null(en_pulse_add(&ps, "hooks"));
	cr_expect_null(en_pulse_add(&ps, "one more"));
	en_pulse_begin(NULL, "nothing");
	en_pulse_end(NULL);
	en_pulse_begin(&ps.at[0], "something");
	cr_expect_geq(en_pulse_busy_ms(&ps.at[0], NULL), 0, "by the real clock");
}

/* An MPS supervisor over the fake daemon: real processes, and a clock that only the test moves. Included
 * by the test files, each of which has its own. */
#ifndef TESSERA_TEST_ENFORCER_MPS_FIXTURE_H
#define TESSERA_TEST_ENFORCER_MPS_FIXTURE_H

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enforcer/mps.h"
#include "enforcer/mps_internal.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

/* A container. */
static const char id_a[] = "3f4a0b7c9d5e6f7081a2b3c4d5e6f708";

static struct hardware hw;
static struct en_mps *mps;
static int64_t clock_ms;
static char pipe_dir[128], log_dir[128], run_dir[128];

static int64_t now(void *ctx)
{
	(void)ctx;
	return clock_ms;
}

static struct en_mps_options options(void)
{
	return (struct en_mps_options){.control = hw.control,
				       .pipe_dir = pipe_dir,
				       .log_dir = log_dir,
				       .run_dir = run_dir,
				       .ask_limit_ms = 5000,
				       .now = now};
}

static void make(const struct en_mps_options *o)
{
	struct err err = ERR_INIT;

	cr_assert_eq(en_mps_new(o, &mps, &err), 0, "%s", err.msg);
}

static void start(void)
{
	hardware_init(&hw);
	clock_ms = 1000000;
	snprintf(pipe_dir, sizeof(pipe_dir), "%.60s/p", hw.dir);
	snprintf(log_dir, sizeof(log_dir), "%.60s/l", hw.dir);
	snprintf(run_dir, sizeof(run_dir), "%.60s/r/mps", hw.dir);
}

static struct en_mps_status status(void)
{
	struct en_mps_status st;

	en_mps_get_status(mps, &st);
	return st;
}

/* After a step that has so long to the next one: the time is moved on. Where the end of a process is waited
 * for, only when that does not come. */
static void let_pass(int64_t wait)
{
	struct pollfd p = {.fd = en_mps_fd(mps), .events = POLLIN};
	struct en_mps_status st = status();

	if ((st.state != EN_MPS_KILLING && st.state != EN_MPS_QUITTING) || poll(&p, 1, 200) != 1)
		clock_ms += wait;
}

/* Steps, with the time moved to what is due, until the state is reached; nothing sleeps. */
static void run_to(enum en_mps_state want)
{
	for (int i = 0; i < 2000; i++) {
		int64_t wait = en_mps_step(mps);

		if (status().state == want)
			return;
		let_pass(wait);
	}
	cr_assert(false, "state %s, wanted %s: %s", en_mps_state_name(status().state),
		  en_mps_state_name(want), status().why);
}

static void ready(void)
{
	en_mps_want(mps, true);
	run_to(EN_MPS_READY);
}

static void stop(void)
{
	if (mps != NULL && status().pid != 0) {
		hardware_mps(&hw, "%s", "");
		en_mps_want(mps, false);
		run_to(EN_MPS_OFF);
	}
	en_mps_free(mps);
	hardware_fini(&hw);
}

static inline void kill_and_wait(int64_t pid)
{
	struct pollfd p = {.fd = en_mps_fd(mps), .events = POLLIN};

	kill((pid_t)pid, SIGKILL);
	cr_assert_eq(poll(&p, 1, 10000), 1);
}

/* Moves the time on by ms, a step at each moment that something is due. */
static inline void pass(int64_t ms)
{
	int64_t end = clock_ms + ms;

	for (;;) {
		int64_t wait = en_mps_step(mps);

		if (clock_ms + wait > end)
			break;
		clock_ms += wait > 0 ? wait : 1;
	}
	clock_ms = end;
	(void)en_mps_step(mps);
}

#endif

/* Programs that are run to their end, and those that have none. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enforcer/probe_exec.h"
#include "enforcer/pulse.h"
#include "test/lib/hardware.h"

static struct hardware hw;

static void start(void)
{
	hardware_init(&hw);
}

static void stop(void)
{
	hardware_fini(&hw);
}

TestSuite(enforcer_exec, .init = start, .fini = stop, .timeout = 120);

static int sh(const char *command, const char *input, const char *const *env, int64_t ms,
	      struct en_exec_result *ret)
{
	const char *const argv[] = {"sh", "-c", command, NULL};
	struct en_exec x = {.argv = argv, .env = env, .input = input, .limit_ms = ms};
	struct err err = ERR_INIT;

	return en_exec_run(&x, ret, &err);
}

Test(enforcer_exec, to_the_end)
{
	const char *const env[] = {"TESSERA_X=a b", "HOME", NULL};
	struct en_exec_result r = {0};

	cr_assert_eq(sh("cat; echo oops >&2; exit 7", "in\n", NULL, 0, &r), 0);
	cr_assert_eq(r.status, 7);
	cr_assert_str_eq(r.out, "in\n");
	cr_assert_str_eq(r.err, "oops\n");
	cr_assert_not(r.timed_out);
	en_exec_fini(&r);
	cr_assert_eq(sh("printf '%s %s' \"$TESSERA_X\" \"${HOME-none}\"", NULL, env, 0, &r), 0);
	cr_assert_str_eq(r.out, "a b none");
	en_exec_fini(&r);
	cr_assert_eq(sh("kill -9 $$", NULL, NULL, 0, &r), 0);
	cr_assert_eq(r.status, 128 + 9);
	en_exec_fini(&r);
	/* More than is kept, and nobody blocks. */
	cr_assert_eq(sh("head -c 300000 /dev/zero | tr '\\0' x", NULL, NULL, 0, &r), 0);
	cr_assert_eq(strlen(r.out), EN_EXEC_OUT_MAX);
	en_exec_fini(&r);
	/* What it started is ended with it. */
	cr_assert_eq(sh("sleep 100 & sleep 100", NULL, NULL, 50, &r), 0);
	cr_assert(r.timed_out);
	en_exec_fini(&r);
	/* Closed its output, and hangs. */
	cr_assert_eq(sh("exec >&- 2>&-; sleep 100", NULL, NULL, 50, &r), 0);
	cr_assert(r.timed_out);
	en_exec_fini(&r);
}

Test(enforcer_exec, that_cannot)
{
	const char *const argv[] = {"/nowhere/nvidia-smi", NULL};
	struct en_exec x = {.argv = argv};
	struct en_exec_result r = {0};
	struct err err = ERR_INIT;
	char big[5000];

	cr_assert_eq(en_exec_run(&x, &r, &err), ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.msg, "/nowhere/nvidia-smi"));
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	x.input = big;
	cr_assert_eq(en_exec_run(&x, &r, &err), ERR_TOO_LARGE);
	cr_assert_null(r.out);
}

static int64_t clock_ms(void *ctx)
{
	return *(const int64_t *)ctx;
}

/* A thread that runs program after program goes on, however long all of them take; one whose programs do not end
 * does not. */
Test(enforcer_exec, each_that_ends_is_a_beat)
{
	int64_t now = 1000;
	struct en_pulses ps = {.now_ms = clock_ms, .ctx = &now};
	struct en_pulse *p = en_pulse_add(&ps, "loop");
	struct en_exec_result r = {0};

	en_pulse_begin(p, "limits");
	now += 5000;
	cr_assert_eq(sh("exit 1", NULL, NULL, 0, &r), 0);
	en_exec_fini(&r);
	cr_expect_eq(en_pulse_busy_ms(p, NULL), 0);
	now += 5000;
	cr_assert_eq(sh("sleep 100", NULL, NULL, 20, &r), 0);
	en_exec_fini(&r);
	cr_expect_eq(en_pulse_busy_ms(p, NULL), 5000);
	en_pulse_end(p);
	cr_assert_eq(sh("exit 0", NULL, NULL, 0, &r), 0);
	en_exec_fini(&r);
	cr_expect_eq(en_pulse_busy_ms(p, NULL), 0);
}

/* ---- that do not end ---- */

/* A process that SIGKILL does not end for us: as one in the driver's uninterruptible sleep, one that is traced
 * cannot be waited for until its tracer has done so, or ends. */
struct tracer {
	pid_t pid;
	int told; /* "y": it traces; "n": it may not, or the process was gone */
};

static const char *fifo(void)
{
	return hardware_path(&hw, "pid");
}

static void tracer_start(struct tracer *t)
{
	int fds[2];

	(void)unlink(fifo());
	cr_assert_eq(mkfifo(fifo(), 0600), 0);
	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	t->pid = fork();
	cr_assert_geq(t->pid, 0);
	if (t->pid == 0) {
		char text[32] = "";
		int fd = open(fifo(), O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
		if (read(fd, text, sizeof(text) - 1) <= 0 ||
		    ptrace(PTRACE_SEIZE, (pid_t)strtol(text, NULL, 10), NULL, NULL) != 0)
			(void)!write(fds[1], "n", 1);
		else
			(void)!write(fds[1], "y", 1);
		for (;;)
			pause();
	}
	close(fds[1]);
	t->told = fds[0];
}

/* What was traced can be waited for now. */
static void tracer_end(struct tracer *t)
{
	close(t->told);
	kill(t->pid, SIGKILL);
	cr_assert_eq(waitpid(t->pid, NULL, 0), t->pid);
}

/* True when it runs traced: *ret is what became of it, and *t goes on. Tries with more and more time, for the
 * tracer must be there before the limit is over. false: nobody may trace here. */
static bool run_traced(struct tracer *t, struct en_exec_result *ret)
{
	const char *const argv[] = {"sh", "-c", "echo $$ >\"$TESSERA_FIFO\"; exec sleep 100", NULL};
	char variable[600], c = 'n';

	snprintf(variable, sizeof(variable), "TESSERA_FIFO=%s", fifo());
	for (int64_t ms = 200; ms <= 12800; ms *= 8) {
		const char *const env[] = {variable, NULL};
		struct en_exec x = {.argv = argv, .env = env, .limit_ms = ms};
		struct err err = ERR_INIT;

		tracer_start(t);
		cr_assert_eq(en_exec_run(&x, ret, &err), 0, "%s", err.msg);
		cr_assert(ret->timed_out);
		(void)fcntl(t->told, F_SETFL, O_NONBLOCK);
		if (ret->left != 0 || (read(t->told, &c, 1) == 1 && c == 'y'))
			return true;
		en_exec_fini(ret);
		tracer_end(t);
	}
	return false;
}

Test(enforcer_exec, one_that_cannot_be_killed_is_left)
{
	struct en_exec_result r = {0}, other = {0};
	struct en_exec_left left;
	struct tracer t;

	if (!run_traced(&t, &r))
		cr_skip_test("no process may be traced here");
	cr_assert_neq(r.left, 0, "it traced it, and its end was waited for all the same");
	cr_expect_eq(r.status, 128 + SIGKILL);
	en_exec_fini(&r);
	en_exec_look(&left);
	cr_expect_eq(left.count, 1);
	cr_expect_eq(left.total, 1);
	cr_expect_eq(left.pid, r.left);
	cr_expect_str_eq(left.name, "sh");
	/* Others run as ever. */
	cr_assert_eq(sh("exit 7", NULL, NULL, 0, &other), 0);
	cr_expect_eq(other.status, 7);
	cr_expect_eq(other.left, 0);
	en_exec_fini(&other);
	/* It has ended after all: it is reaped at the next look. */
	tracer_end(&t);
	en_exec_look(&left);
	cr_expect_eq(left.count, 0);
	cr_expect_eq(left.pid, 0);
	cr_expect_eq(left.total, 1);
	cr_expect_eq(waitpid(r.left, NULL, WNOHANG), -1, "it is no child any more");
}

/* Says that it runs, and waits for a byte. */
static void *run_waiting(void *ctx)
{
	const char *const argv[] = {
		"sh", "-c", "echo >\"$0/started\"; dd bs=1 count=1 <\"$0/gate\" 2>/dev/null",
		hw.dir, NULL};
	struct en_exec x = {.argv = argv, .limit_ms = 100000};
	struct en_exec_result *r = ctx;

	(void)en_exec_run(&x, r, NULL);
	return NULL;
}

static int make_fifo(const char *name)
{
	const char *path = hardware_path(&hw, name);
	int fd;

	cr_assert_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	return fd;
}

/* Each may have to be left: with as many as can be, nothing more is started. */
Test(enforcer_exec, not_more_than_can_be_left)
{
	static struct en_exec_result results[EN_EXEC_LEFT_MAX];
	int started = make_fifo("started"), gate = make_fifo("gate");
	pthread_t threads[EN_EXEC_LEFT_MAX];
	struct en_exec_result r = {0};
	const char *const argv[] = {"true", NULL};
	struct en_exec x = {.argv = argv};
	struct err err = ERR_INIT;
	char byte;

	for (int i = 0; i < EN_EXEC_LEFT_MAX; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, run_waiting, &results[i]), 0);
	for (int i = 0; i < EN_EXEC_LEFT_MAX; i++)
		cr_assert_eq(read(started, &byte, 1), 1);
	cr_expect_eq(en_exec_run(&x, &r, &err), ERR_IO);
	cr_expect_not_null(strstr(err.msg, "true: not started, for 32 programs"), "%s", err.msg);
	cr_expect_null(r.out);
	for (int i = 0; i < EN_EXEC_LEFT_MAX; i++)
		cr_assert_eq(write(gate, "\n", 1), 1);
	for (int i = 0; i < EN_EXEC_LEFT_MAX; i++) {
		pthread_join(threads[i], NULL);
		cr_expect_eq(results[i].status, 0);
		cr_expect_not(results[i].timed_out);
		en_exec_fini(&results[i]);
	}
	cr_expect_eq(en_exec_run(&x, &r, &err), 0);
	en_exec_fini(&r);
	close(started);
	close(gate);
}

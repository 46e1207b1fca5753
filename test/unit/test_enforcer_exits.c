/* Ends of processes. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enforcer/exits.h"

static int told[2]; /* names, each with its NUL */

static void tell(void *ctx, const char *id)
{
	(void)ctx;
	cr_assert_eq(write(told[1], id, strlen(id) + 1), (ssize_t)strlen(id) + 1);
}

/* The next name that was told of; "" where there is none within that time. */
static const char *next_told(int limit_ms)
{
	static char name[32];
	struct pollfd p = {.fd = told[0], .events = POLLIN};
	size_t n = 0;

	name[0] = '\0';
	if (poll(&p, 1, limit_ms) != 1)
		return name;
	while (n < sizeof(name) && read(told[0], name + n, 1) == 1 && name[n] != '\0')
		n++;
	return name;
}

static pid_t child(void)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	return pid;
}

static void reap(pid_t pid)
{
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static void start(void)
{
	cr_assert_eq(pipe(told), 0);
}

TestSuite(enforcer_exits, .init = start);

Test(enforcer_exits, told_once_and_before_it_is_reaped)
{
	struct en_exits *x;
	pid_t a = child(), b = child();

	cr_assert_eq(en_exits_new(tell, NULL, NULL, &x, NULL), 0);
	cr_assert_eq(en_exits_watch(x, "a", (uint32_t)a, NULL), 0);
	cr_assert_eq(en_exits_watch(x, "b", (uint32_t)b, NULL), 0);
	cr_assert_eq(en_exits_watch(x, "b", (uint32_t)a, NULL), 0, "it is watched already");
	kill(b, SIGKILL);
	cr_expect_str_eq(next_told(10000), "b");
	reap(b);
	kill(a, SIGKILL);
	cr_expect_str_eq(next_told(10000), "a");
	reap(a);
	cr_expect_str_eq(next_told(0), "");
	en_exits_free(x);
	close(told[0]);
	close(told[1]);
}

/* The same name again, as a container that is looked at when its end was told. */
Test(enforcer_exits, gone)
{
	struct en_exits *x;
	struct err err = ERR_INIT;
	pid_t a = child();

	cr_assert_eq(en_exits_new(tell, NULL, NULL, &x, NULL), 0);
	kill(a, SIGKILL);
	reap(a);
	cr_expect_eq(en_exits_watch(x, "a", (uint32_t)a, &err), ERR_NOT_FOUND);
	cr_expect_not_null(strstr(err.msg, "watch of a: process"), "%s", err.msg);
	cr_expect_eq(en_exits_watch(x, "a", 0, NULL), ERR_NOT_FOUND);
	a = child();
	cr_expect_eq(en_exits_watch(x, "a", (uint32_t)a, NULL), 0);
	kill(a, SIGKILL);
	cr_expect_str_eq(next_told(10000), "a");
	reap(a);
	en_exits_free(x);
	en_exits_free(NULL);
	close(told[0]);
	close(told[1]);
}

Test(enforcer_exits, ended_while_processes_run)
{
	struct en_exits *x;
	pid_t a = child();

	cr_assert_eq(en_exits_new(tell, NULL, NULL, &x, NULL), 0);
	cr_assert_eq(en_exits_watch(x, "a", (uint32_t)a, NULL), 0);
	en_exits_free(x);
	kill(a, SIGKILL);
	reap(a);
	cr_expect_str_eq(next_told(0), "");
	close(told[0]);
	close(told[1]);
}

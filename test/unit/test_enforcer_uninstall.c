/* `tessera-enforcer uninstall` and `run` as they are called, on a node without driver, runtime or cluster. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "test/lib/hardware.h"

static struct hardware h;

static void init(void)
{
	hardware_init(&h);
	unsetenv("NODE_NAME");
	unsetenv("KUBERNETES_SERVICE_HOST");
}

static void fini(void)
{
	hardware_fini(&h);
}

TestSuite(enforcer_uninstall, .init = init, .fini = fini);

/* Starts it with all its places in our folder; its words come from the stream, first its process id. */
static FILE *start(const char *what, const char *args)
{
	char command[2000];
	FILE *f;

	snprintf(
		command, sizeof(command),
		"cd '%s' && echo $$ && exec '%s/tessera-enforcer' %s --node=n --run-dir='%s/run' "
		"--pipe-dir='%s/p' --mps-log-dir='%s/l' --state-dir='%s/s' --hook-path='%s/bin/hook' "
		"--hook-socket='%s/run/h.sock' --nri-socket='%s/nri.sock' --kubelet-socket= "
		"--listen=127.0.0.1:0 --mps=no --nvml=/nowhere.so %s </dev/null 2>&1",
		h.dir, h.build, what, h.dir, h.dir, h.dir, h.dir, h.dir, h.dir, h.dir, args);
	/* NOLINTNEXTLINE(cert-env33-c): our own program */
	f = popen(command, "r");
	cr_assert_not_null(f);
	return f;
}

/* Reads up to a line with that part, or to the end. */
static pid_t words(FILE *f, const char *last, struct buf *out)
{
	char line[1000];
	pid_t pid;

	cr_assert_not_null(fgets(line, sizeof(line), f));
	pid = (pid_t)strtol(line, NULL, 10);
	cr_assert_gt(pid, 1);
	while (fgets(line, sizeof(line), f) != NULL) {
		buf_puts(out, line);
		if (last != NULL && strstr(line, last) != NULL)
			break;
	}
	return pid;
}

static void uninstall(struct buf *out)
{
	FILE *f = start("uninstall", "");
	int status;

	words(f, NULL, out);
	status = pclose(f);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", buf_str(out));
}

static void expect_gone(struct buf *out, const char *what, const char *name)
{
	char want[300];

	snprintf(want, sizeof(want), "removed: %s %s\n", what, hardware_path(&h, name));
	cr_expect(strstr(buf_str(out), want) != NULL, "%s is not in %s", want, buf_str(out));
}

Test(enforcer_uninstall, it_says_what_is_gone)
{
	struct buf out = BUF_INIT;

	hardware_file(&h, "bin/hook", "x");
	hardware_file(&h, "run/enforcer.lock", "x");
	hardware_file(&h, "s/peaks.json", "{}");
	uninstall(&out);
	expect_gone(&out, "hook", "bin/hook");
	expect_gone(&out, "folder", "run");
	expect_gone(&out, "folder", "s");
	cr_expect_null(strstr(buf_str(&out), "/l\n"), "that was not there: %s", buf_str(&out));
	cr_expect_neq(access(hardware_path(&h, "run"), F_OK), 0);
	buf_reset(&out);
	uninstall(&out);
	cr_expect_str_eq(buf_str(&out), "nothing of the agent was there\n");
	buf_fini(&out);
}

/* Without a cluster nothing can be published: a warning, but not for who asked for that. */
Test(enforcer_uninstall, no_warning_of_what_was_asked_for)
{
	static const struct {
		const char *args;
		bool warned;
	} rows[] = {{"", true}, {"--publish=no", false}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf out = BUF_INIT;
		FILE *f = start("run", rows[i].args);
		pid_t pid = words(f, "event=started ", &out);

		kill(pid, SIGTERM);
		pclose(f);
		cr_expect(strstr(buf_str(&out), "event=started ") != NULL, "%s", buf_str(&out));
		cr_expect_eq(strstr(buf_str(&out), "event=nothing-published") != NULL,
			     rows[i].warned, "%s", buf_str(&out));
		buf_fini(&out);
	}
}

/* The programs as they are called: 0, 2 for what is wrong with the call, 1 for all that fails otherwise. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "test/lib/hardware.h"

static struct hardware h;

static void init(void)
{
	hardware_init(&h);
	unsetenv("NODE_NAME");
}

static void fini(void)
{
	hardware_fini(&h);
}

TestSuite(exit_status, .init = init, .fini = fini);

/* Its status; what it printed goes to *out. */
static int call(const char *line, struct buf *out)
{
	char command[1024], part[4096];
	size_t n;
	FILE *f;
	int status;

	snprintf(command, sizeof(command), "%s/%s </dev/null 2>&1", h.build, line);
	/* NOLINTNEXTLINE(cert-env33-c): our own programs */
	f = popen(command, "r");
	cr_assert_not_null(f);
	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		buf_put(out, part, n);
	status = pclose(f);
	cr_assert(WIFEXITED(status), "%s", line);
	return WEXITSTATUS(status);
}

/* The text with our folder in the place of each %s. */
static void fill(const char *text, char *ret, size_t cap)
{
	const char *at;
	size_t len = 0;

	for (; (at = strstr(text, "%s")) != NULL; text = at + 2)
		len += (size_t)snprintf(ret + len, cap - len, "%.*s%s", (int)(at - text), text,
					h.dir);
	snprintf(ret + len, cap - len, "%s", text);
}

Test(exit_status, what_is_wrong_with_the_call_is_2)
{
	static const struct {
		const char *line, *words; /* what names the field and the value */
	} calls[] = {
		{"tessera-extender", "--cluster FILE is required"},
		{"tessera-extender --nope", "--nope: no such option"},
		{"tessera-extender --cluster=/nowhere.json", "--cluster: /nowhere.json: No such"},
		{"tessera-extender --config=/nowhere.yaml", "--config: /nowhere.yaml: No such"},
		{"tessera-extender --cluster=deploy/demo/cluster.json --privileged=perhaps",
		 "--privileged: \"perhaps\""},
		{"tessera-enforcer", "usage: "},
		{"tessera-enforcer nope", "\"nope\" is no command"},
		{"tessera-enforcer run", "--node NAME"},
		{"tessera-enforcer run --node=n --nope", "--nope: no such option"},
		{"tessera-enforcer doctor --nope", "doctor: --nope: no such option"},
		{"tessera-enforcer doctor word", "doctor: word: no such option"},
		{"tessera-enforcer doctor --json=perhaps", "doctor: --json: \"perhaps\""},
		{"tessera-enforcer doctor --nvml", "doctor: --nvml needs PATH"},
		{"tessera-enforcer doctor --mps-pipe-dir=p",
		 "doctor: --mps-pipe-dir: \"p\" is no absolute path"},
		{"tessera-enforcer doctor --root=/nowhere", "doctor: --root: \"/nowhere\" is no"},
		{"tessera-enforcer uninstall --node=n --nope", "--nope: no such option"},
		{"tessera-enforcer hook --nope", "--nope"},
		{"tessera-hook --gpu=nonsense", "nonsense"},
		{"tessera-replay", "usage: "},
		{"tessera-replay nope", "nope"},
		{"tessera-replay run --nope", "--nope"},
		{"tessera-replay run --nodes /nowhere.csv --pods /nowhere.csv", "/nowhere.csv"},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct buf out = BUF_INIT;

		cr_expect_eq(call(calls[i].line, &out), 2, "%s: %s", calls[i].line, buf_str(&out));
		cr_expect(strstr(buf_str(&out), calls[i].words) != NULL, "%s: %s", calls[i].line,
			  buf_str(&out));
		buf_fini(&out);
	}
}

/* What was asked for and could not be written is no success. */
Test(exit_status, a_full_disk_is_1)
{
	static const char *const lines[] = {
		"tessera-extender --version >/dev/full",
		"tessera-extender --help >/dev/full",
		"tessera-enforcer --version >/dev/full",
		"tessera-enforcer --help >/dev/full",
		"tessera-enforcer doctor --help >/dev/full",
		"tessera-enforcer run --help >/dev/full",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct buf out = BUF_INIT;

		cr_expect_eq(call(lines[i], &out), 1, "%s", lines[i]);
		buf_fini(&out);
	}
}

/* A file of the agent that is wrong is input, too; the message names option and file. */
Test(exit_status, files_of_the_agent)
{
	static const struct {
		const char *option, *words;
	} calls[] = {
		{"--static=%s/static.json", "--static: %s/static.json: allocations: missing, or"},
		{"--static=%s/none.json", "--static: %s/none.json: No such file"},
		{"--static=%s", "--static: %s: Is a directory"},
		{"--kubeconfig=%s/none", "--kubeconfig: %s/none: No such file"},
		{"--kubeconfig=%s", "--kubeconfig: %s: Is a directory"},
		{"--kubeconfig=%s/static.json", "--kubeconfig: %s/static.json: current-context"},
		{"--hook-path=%s/hook --hook-source=%s/none", "--hook-source: %s/none: No such"},
		{"--nri-index=x", "--nri-name, --nri-index: "},
		{"--nri-name=a/b", "--nri-name, --nri-index: "},
		{"--listen=nonsense", "--listen: \"nonsense\" is not ADDR:PORT"},
	};

	hardware_file(&h, "static.json", "{\"allocations\": 1}");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct buf out = BUF_INIT;
		char option[300], words[300], line[900];

		fill(calls[i].option, option, sizeof(option));
		fill(calls[i].words, words, sizeof(words));
		snprintf(line, sizeof(line),
			 "tessera-enforcer run --node=n --mps=no --hook-path= --run-dir=%s/run "
			 "--nri-socket=%s/nri.sock --nvml=%s --state-dir= --kubelet-socket= "
			 "--listen= %s",
			 h.dir, h.dir, h.library, option);
		cr_expect_eq(call(line, &out), 2, "%s: %s", option, buf_str(&out));
		cr_expect(strstr(buf_str(&out), words) != NULL, "%s: %s", option, buf_str(&out));
		buf_fini(&out);
	}
}

Test(exit_status, what_fails_otherwise_is_1)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct buf out = BUF_INIT;
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char line[300];

	/* A port that is taken. */
	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		  listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0);
	snprintf(line, sizeof(line),
		 "tessera-extender --cluster=deploy/demo/cluster.json --listen=127.0.0.1:%u",
		 ntohs(a.sin_port));
	cr_expect_eq(call(line, &out), 1, "%s", buf_str(&out));
	close(fd);
	buf_reset(&out);
	/* A hook that cannot do its work. */
	cr_expect_eq(call("tessera-hook --gpu=GPU-1:1:1", &out), 1, "%s", buf_str(&out));
	buf_fini(&out);
}

/* Whoever types the name of a pipe, or forgets one, must be able to end it. */
Test(exit_status, a_program_that_still_reads_can_be_ended)
{
	char program[600], part[4096];
	int ends[2], status = 0;
	pid_t pid;

	cr_assert_eq(pipe(ends), 0);
	snprintf(program, sizeof(program), "%s/tessera-extender", h.build);
	pid = fork();
	if (pid == 0) {
		dup2(ends[0], STDIN_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(program, program, "--cluster", "-", (char *)NULL);
		_exit(127);
	}
	cr_assert_gt(pid, 0);
	close(ends[0]);
	/* More than a pipe holds: the last write returns when it reads. */
	memset(part, ' ', sizeof(part));
	for (int i = 0; i < 64; i++)
		cr_assert_eq(write(ends[1], part, sizeof(part)), sizeof(part));
	cr_assert_eq(kill(pid, SIGTERM), 0);
	close(ends[1]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %x", status);
}

/* Who holds the journal is no mistake in the call. */
Test(exit_status, a_journal_in_use_is_1)
{
	struct buf out = BUF_INIT;
	char line[700];
	int fd;

	hardware_file(&h, "j.log", "%s", "");
	fd = open(hardware_path(&h, "j.log"), O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	snprintf(line, sizeof(line),
		 "tessera-extender --cluster=deploy/demo/cluster.json --listen=127.0.0.1:0 "
		 "--journal=%s",
		 hardware_path(&h, "j.log"));
	cr_expect_eq(call(line, &out), 1, "%s", buf_str(&out));
	cr_expect(strstr(buf_str(&out), "--journal: ") != NULL, "%s", buf_str(&out));
	cr_expect(strstr(buf_str(&out), "in use by another process") != NULL, "%s", buf_str(&out));
	close(fd);
	buf_fini(&out);
}

/* What could not be taken away is told again by the next attempt, as where a pod's container starts anew: the
 * file that names it stays. */
Test(exit_status, an_uninstall_that_failed_is_no_success_the_second_time)
{
	char line[1000];
	struct buf out = BUF_INIT;

	snprintf(
		line, sizeof(line),
		"tessera-enforcer uninstall --force --node=n --mps=no --hook-path= --run-dir=%s/run "
		"--pipe-dir=%s/pipe --mps-log-dir=%s/log --state-dir=%s/state --nvml=%s "
		"--kubelet-socket= --cgroup-mount=%s/cgroup",
		h.dir, h.dir, h.dir, h.dir, h.library, h.dir);
	hardware_mkdir(&h, "cgroup");
	hardware_file(&h, "run/mig", "instance GPU-0 1 19 0 1 MIG-a\n");
	for (int i = 0; i < 2; i++) {
		buf_reset(&out);
		cr_expect_eq(call(line, &out), 1, "%d: %s", i, buf_str(&out));
		cr_expect(strstr(buf_str(&out), "MIG: ") != NULL, "%d: %s", i, buf_str(&out));
		cr_expect(hardware_exists(&h, "run/mig"));
	}
	hardware_nvml(&h, "driver 615.71.09\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0));
	buf_reset(&out);
	cr_expect_eq(call(line, &out), 0, "%s", buf_str(&out));
	cr_expect_not(hardware_exists(&h, "run"));
	/* What cannot be looked at may be held. */
	hardware_mkdir(&h, "run/enforcer.lock");
	buf_reset(&out);
	cr_expect_eq(call(line, &out), 1, "%s", buf_str(&out));
	cr_expect(strstr(buf_str(&out), "enforcer.lock: ") != NULL, "%s", buf_str(&out));
	buf_fini(&out);
}

Test(exit_status, help_says_so)
{
	static const char *const lines[] = {
		"tessera-extender --help",
		"tessera-enforcer --help",
		"tessera-enforcer run --help",
		"tessera-enforcer uninstall --node=n --help",
		"tessera-enforcer doctor --help",
		"tessera-enforcer hook --help",
		"tessera-hook --help",
		"tessera-replay --help",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct buf out = BUF_INIT;

		cr_expect_eq(call(lines[i], &out), 0, "%s: %s", lines[i], buf_str(&out));
		cr_expect(strcasestr(buf_str(&out), "exit status") != NULL, "%s: %s", lines[i],
			  buf_str(&out));
		buf_fini(&out);
	}
}

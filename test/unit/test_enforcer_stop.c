/* --stop-slipped: what becomes of containers that run without what they should have. Real processes and a
 * fake MPS daemon; cgroups and their /proc files are plain ones, so nothing dies by them. */
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "enforcer/run_internal.h"
#include "test/unit/enforcer_mps_fixture.h"

#define MANY 100

static struct agent a;
static struct buf said;
static char proc[128];

static void keep(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	buf_printf(&said, "%s\n", line);
}

static void init(void)
{
	start();
	memset(&a, 0, sizeof(a));
	said = (struct buf)BUF_INIT;
	pthread_mutex_init(&a.lock, NULL);
	a.log = log_new(LOG_LEVEL_WARN, keep, NULL, NULL, NULL);
	a.wake_fd = eventfd(0, EFD_NONBLOCK);
	a.o.static_file = "";
	a.o.stop_slipped = true;
	snprintf(proc, sizeof(proc), "%s/proc", hw.dir);
	snprintf(a.cgroup_mount, sizeof(a.cgroup_mount), "%s/cg", hw.dir);
	a.proc = proc;
}

static void fini(void)
{
	run_stops_free(&a);
	log_free(a.log);
	close(a.wake_fd);
	buf_fini(&said);
	stop();
}

TestSuite(enforcer_stop, .init = init, .fini = fini);

/* A container of one process. kills: its kernel has cgroup.kill. */
static pid_t container(const char *id, bool kills)
{
	char path[128];
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
		for (;;)
			pause();
	}
	cr_assert_gt(pid, 0);
	snprintf(path, sizeof(path), "proc/%d/cgroup", (int)pid);
	hardware_file(&hw, path, "0::/kubepods/%s\n", id);
	snprintf(path, sizeof(path), "cg/kubepods/%s/cgroup.procs", id);
	hardware_file(&hw, path, "%d\n", (int)pid);
	snprintf(path, sizeof(path), "cg/kubepods/%s/cgroup.kill", id);
	if (kills)
		hardware_file(&hw, path, "%s", "");
	else
		hardware_mkdir(&hw, path); /* which cannot be written */
	return pid;
}

static bool runs(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) == 0;
}

/* It has been killed already, or the wait would not end. */
static void expect_killed(pid_t pid)
{
	int status = 0;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void end(pid_t pid)
{
	cr_expect(runs(pid));
	kill(pid, SIGKILL);
	expect_killed(pid);
}

static void tell(enum en_report_kind kind, const char *id, pid_t pid)
{
	struct en_agent_ops ops = run_agent_ops(&a);

	ops.report(ops.ctx, &(struct en_report){.kind = kind,
						.id = id,
						.pod_uid = "u",
						.ns = "ns",
						.pod = "pod",
						.container = "main",
						.text = "it has no limit",
						.pid = (uint32_t)pid});
}

static bool woken(void)
{
	uint64_t n = 0;

	return read(a.wake_fd, &n, sizeof(n)) == sizeof(n);
}

static void expect_said(const char *text)
{
	cr_expect(said.len > 0 && strstr(buf_str(&said), text) != NULL, "no %s in %s", text,
		  said.len > 0 ? buf_str(&said) : "");
}

Test(enforcer_stop, it_is_told_of_and_stopped_in_the_next_turn)
{
	pid_t slipped = container("c-slipped", false), other = container("c-other", false);

	tell(EN_REPORT_SLIPPED, "c-slipped", slipped);
	cr_expect(woken());
	cr_expect(runs(slipped), "not while the runtime waits for an answer");
	run_stop_due(&a);
	expect_killed(slipped);
	expect_said("event=stopped container=ns/pod/main id=c-slipped");
	cr_expect_eq(atomic_load(&a.stopped), 1);
	cr_expect_eq(atomic_load(&a.reports[EN_REPORT_SLIPPED]), 1);
	run_stop_due(&a);
	cr_expect_eq(atomic_load(&a.stopped), 1, "once");
	end(other);
}

/* The kernel does it where it can: so nothing that is forked meanwhile escapes. */
Test(enforcer_stop, by_the_kernel_where_it_can)
{
	pid_t slipped = container("c-slipped", true);
	char *text;

	tell(EN_REPORT_SLIPPED, "c-slipped", slipped);
	run_stop_due(&a);
	text = hardware_read(&hw, "cg/kubepods/c-slipped/cgroup.kill");
	cr_expect_str_eq(text, "1");
	free(text);
	cr_expect_eq(atomic_load(&a.stopped), 1);
	end(slipped);
}

/* Without the option it is told of, no more; nor is anything stopped that does not run, or did not slip. */
Test(enforcer_stop, what_is_left_alone)
{
	pid_t pid = container("c-1", false);

	tell(EN_REPORT_SLIPPED, "c-1", 0);
	for (int kind = 0; kind < EN_REPORT_COUNT; kind++) {
		if (kind != EN_REPORT_SLIPPED)
			tell((enum en_report_kind)kind, "c-1", pid);
	}
	a.o.stop_slipped = false;
	tell(EN_REPORT_SLIPPED, "c-1", pid);
	cr_expect_not(woken());
	run_stop_due(&a);
	cr_expect_eq(atomic_load(&a.stopped), 0);
	cr_expect_eq(atomic_load(&a.reports[EN_REPORT_SLIPPED]), 2);
	end(pid);
}

/* Numbers of processes are given again: to another container's, and to none. */
Test(enforcer_stop, another_process_of_that_number_is_not_killed)
{
	pid_t pid = container("c-new", false), gone = container("c-gone", false);

	end(gone);
	tell(EN_REPORT_SLIPPED, "c-old", pid);
	tell(EN_REPORT_SLIPPED, "c-gone", gone);
	run_stop_due(&a);
	cr_expect_eq(atomic_load(&a.stopped), 0);
	expect_said("event=stop-failed container=ns/pod/main");
	expect_said("not in one of container c-old");
	cr_expect_null(strstr(buf_str(&said), "c-gone"), "that it ended by itself is no failure");
	end(pid);
}

/* More than come at once from anywhere but a node on which the agent was missing for long. */
Test(enforcer_stop, however_many_there_are)
{
	pid_t pids[MANY];
	char id[16];

	for (int i = 0; i < MANY; i++) {
		snprintf(id, sizeof(id), "c-%d-", i);
		pids[i] = container(id, false);
		tell(EN_REPORT_SLIPPED, id, pids[i]);
	}
	run_stop_due(&a);
	for (int i = 0; i < MANY; i++)
		expect_killed(pids[i]);
	cr_expect_eq(atomic_load(&a.stopped), MANY);
}

/* ---- what was not stopped is not said to be ---- */

static void procs(const char *id, const char *text, pid_t last)
{
	char path[128];

	snprintf(path, sizeof(path), "cg/kubepods/%s/cgroup.procs", id);
	hardware_file(&hw, path, "%s%d\n", text, (int)last);
}

#define NO_PID 2000000001 /* beyond what a kernel gives */

/* All that it had ended before they could be killed. */
Test(enforcer_stop, what_ended_by_itself_was_not_stopped)
{
	pid_t pid = container("c-1", false);

	procs("c-1", "", NO_PID);
	tell(EN_REPORT_SLIPPED, "c-1", pid);
	run_stop_due(&a);
	cr_expect_eq(atomic_load(&a.stopped), 0);
	cr_expect_eq(said.len, 0, "%s", said.len > 0 ? buf_str(&said) : "");
	end(pid);
}

/* The kernel does not let us. */
Test(enforcer_stop, what_may_not_be_killed_was_not_stopped)
{
	pid_t pid = container("c-1", false), other = container("c-2", false);
	const uid_t nobody = 65534;

	if (geteuid() != 0) {
		end(pid);
		end(other);
		cr_skip_test("needs root, to be somebody else");
	}
	cr_assert_eq(chmod(hw.dir, 0755), 0);
	procs("c-1", "2000000001\n", pid);
	hardware_remove(&hw,
			"cg/kubepods/c-2/cgroup.procs"); /* and who is in this one is not told */
	tell(EN_REPORT_SLIPPED, "c-1", pid);
	tell(EN_REPORT_SLIPPED, "c-2", other);
	cr_assert_eq(setresuid(nobody, nobody, 0), 0);
	run_stop_due(&a);
	cr_assert_eq(setresuid(0, 0, 0), 0);
	cr_expect_eq(atomic_load(&a.stopped), 0);
	expect_said("event=stop-failed container=ns/pod/main reason=\"1 of 2 processes cannot be "
		    "killed: Operation not permitted\"");
	expect_said("c-2/cgroup.procs: No such file or directory");
	end(pid);
	end(other);
}

/* However many processes it has: the last one in the list, too. */
Test(enforcer_stop, all_of_very_many_processes)
{
	pid_t pid = container("c-1", false);
	struct buf b = BUF_INIT;

	for (int i = 0; i < 20000; i++)
		buf_printf(&b, "%d\n", NO_PID);
	procs("c-1", buf_str(&b), pid);
	buf_fini(&b);
	tell(EN_REPORT_SLIPPED, "c-1", pid);
	run_stop_due(&a);
	expect_killed(pid);
	cr_expect_eq(atomic_load(&a.stopped), 1);
}

/* ---- with MPS ---- */

static size_t clients(void)
{
	struct en_mps_client rows[8];
	struct err err = ERR_INIT;
	size_t count = 0;

	cr_assert_eq(en_mps_clients(mps, rows, 8, &count, &err), 0, "%s", err.msg);
	return count;
}

static void with_mps(pid_t slipped, pid_t other, const char *more)
{
	struct en_mps_options o = options();

	hardware_mps(&hw,
		     "client pid=%d server=shared ns=default device=0 cmd=a\n"
		     "client pid=%d server=shared ns=default device=0 cmd=b\n%s",
		     (int)slipped, (int)other, more);
	make(&o);
	ready();
	a.mps = mps;
}

/* One that is killed in the middle of a kernel takes its neighbours along: its clients are ended before it. */
Test(enforcer_stop, its_mps_clients_are_ended_first)
{
	pid_t slipped = container("c-slipped", false), other = container("c-other", false);

	with_mps(slipped, other, "");
	cr_expect_eq(clients(), 2);
	tell(EN_REPORT_SLIPPED, "c-slipped", slipped);
	run_stop_due(&a);
	cr_expect_eq(clients(), 1);
	cr_expect_eq(status().drains, 1);
	cr_expect_eq(status().drain_failures, 0);
	expect_killed(slipped);
	end(other);
}

/* It must not run on because MPS does not do as it is told: that is said, and the daemon is suspect. */
Test(enforcer_stop, where_mps_keeps_its_clients_it_is_stopped_all_the_same)
{
	pid_t slipped = container("c-slipped", false), other = container("c-other", false);
	const char *drain;

	with_mps(slipped, other, "refuse terminate\n");
	tell(EN_REPORT_SLIPPED, "c-slipped", slipped);
	run_stop_due(&a);
	expect_killed(slipped);
	cr_expect_eq(status().drain_failures, 1);
	cr_expect(status().recycle_when_idle);
	expect_said("event=mps-drain id=c-slipped");
	drain = strstr(buf_str(&said), "event=mps-drain");
	cr_expect(drain != NULL && strstr(drain, "event=stopped") != NULL, "in this order");
	end(other);
}

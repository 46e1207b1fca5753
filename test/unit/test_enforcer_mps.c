/* The supervisor with a daemon: real processes, and a clock that only the test moves. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/mps.h"
#include "enforcer/mps_internal.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

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

/* Steps, with the time moved to what is due, until the state is reached. Each step that waits for a process
 * waits for its end; nothing sleeps. */
static void run_to(enum en_mps_state want)
{
	for (int i = 0; i < 2000; i++) {
		struct pollfd p = {.events = POLLIN};
		int64_t wait = en_mps_step(mps);
		struct en_mps_status st = status();

		if (st.state == want)
			return;
		p.fd = en_mps_fd(mps);
		if (st.state == EN_MPS_KILLING || st.state == EN_MPS_QUITTING) {
			/* Its end is waited for; where it does not come, time passes. */
			if (poll(&p, 1, 200) != 1)
				clock_ms += wait;
			continue;
		}
		clock_ms += wait;
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

TestSuite(enforcer_mps, .init = start, .fini = stop, .timeout = 120);

static void kill_and_wait(int64_t pid)
{
	struct pollfd p = {.fd = en_mps_fd(mps), .events = POLLIN};

	kill((pid_t)pid, SIGKILL);
	cr_assert_eq(poll(&p, 1, 10000), 1);
}

/* Moves the time on by ms, a step at each moment that something is due. */
static void pass(int64_t ms)
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

/* ---- start and end ---- */

Test(enforcer_mps, start_and_stop)
{
	struct en_mps_options o = options();
	struct en_mps_status st;
	char *conf;
	struct stat sb;

	make(&o);
	st = status();
	cr_assert_eq(st.state, EN_MPS_OFF);
	cr_assert_not(st.usable);
	cr_assert_str_eq(st.reason, "MpsNotReady");
	ready();
	st = status();
	cr_assert(st.usable);
	cr_assert_null(st.reason);
	cr_assert_str_eq(st.why, "");
	cr_assert_eq(st.starts, 1);
	cr_assert_eq(st.generation, 1);
	cr_assert_gt(st.pid, 0);
	cr_assert(en_mps_owns(mps, (uint32_t)st.pid));
	cr_assert_gt(mps->server_count, 0);
	cr_assert(en_mps_owns(mps, (uint32_t)mps->servers[0]));
	cr_assert_not(en_mps_owns(mps, 1));
	conf = hardware_read(&hw, "r/mps/mps.toml");
	cr_assert_str_eq(conf, "schema_version = \"1.0\"\n\n[features.memacct]\nenabled = true\n"
			       "audit_log = false\n\n[features.context-share]\nenabled = true\n"
			       "default_socket = \"off\"\n\n[servers.shared]\n");
	free(conf);
	cr_assert_eq(stat(pipe_dir, &sb), 0);
	cr_assert_eq(sb.st_mode & 0777, 0755);
	cr_assert_eq(stat(run_dir, &sb), 0);
	cr_assert_eq(sb.st_mode & 0777, 0700);
	en_mps_want(mps, false);
	run_to(EN_MPS_OFF);
	cr_assert_eq(status().pid, 0);
	cr_assert_not(hardware_exists(&hw, "p/control"), "the daemon left it, we did not");
	cr_assert_not(hardware_exists(&hw, "r/mps/daemon.pid"));
}

/* It takes its configuration, also with GPUs named; those that are not there make the server vanish. */
Test(enforcer_mps, devices)
{
	struct en_mps_options o = options();

	hardware_mps(&hw, "gpus GPU-a,GPU-b\n");
	o.devices = "GPU-a,GPU-c";
	o.audit_log = true;
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_KILLING);
	cr_assert_not_null(strstr(status().why, "not listed"), "%s", status().why);
	cr_assert_eq(en_mps_configure(mps, false, "GPU-a,GPU-b", NULL), 0);
	run_to(EN_MPS_READY);
	cr_assert_eq(status().starts, 2);
}

Test(enforcer_mps, no_program)
{
	struct en_mps_options o = options();

	o.control = "/nowhere/nvidia-cuda-mps-control";
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_BACKOFF);
	cr_assert_not_null(strstr(status().why, "/nowhere"), "%s", status().why);
	cr_assert_str_eq(status().reason, "MpsNotReady");
}

Test(enforcer_mps, start_fails)
{
	struct en_mps_options o = options();

	hardware_mps(&hw, "start_fails\n");
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_BACKOFF);
	cr_assert_not_null(strstr(status().why, "no CUDA-capable device"), "%s", status().why);
	hardware_mps(&hw, "%s", "");
	run_to(EN_MPS_READY);
	cr_assert_str_eq(status().why, "");
}

Test(enforcer_mps, directories_are_checked)
{
	static const char *const bad[] = {"relative", "/", "/a/../b",
					  "/a123456789012345678901234567890123456789"};
	struct err err = ERR_INIT;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct en_mps_options o = options();

		o.pipe_dir = bad[i];
		cr_assert_eq(en_mps_new(&o, &mps, &err), ERR_INVALID, "%s", bad[i]);
		cr_assert_not_null(strstr(err.msg, "pipe_dir"), "%s", err.msg);
	}
	mps = NULL;
}

/* What a daemon left behind does not stand in the way; a file of somebody else's stays. */
Test(enforcer_mps, stale_sockets)
{
	struct en_mps_options o = options();

	make(&o);
	ready();
	kill_and_wait(status().pid);
	cr_assert(hardware_exists(&hw, "p/control"), "as a killed daemon leaves it");
	hardware_file(&hw, "p/other", "x");
	run_to(EN_MPS_READY);
	cr_assert_eq(status().starts, 2);
	cr_assert(hardware_exists(&hw, "p/other"));
}

/* ---- case 43: a daemon that is missing, killed, hanging, or in FAULT ---- */

Test(enforcer_mps, case_43_killed)
{
	struct en_mps_options o = options();
	int64_t first;

	make(&o);
	ready();
	first = status().pid;
	kill_and_wait(first);
	(void)en_mps_step(mps);
	cr_assert_eq(status().state, EN_MPS_BACKOFF, "noticed at once");
	cr_assert_not(status().usable);
	cr_assert_str_eq(status().reason, "MpsNotReady");
	cr_assert_not_null(strstr(status().why, "signal 9"), "%s", status().why);
	run_to(EN_MPS_READY);
	cr_assert_neq(status().pid, first);
	cr_assert_eq(status().generation, 2);
}

Test(enforcer_mps, case_43_fault)
{
	struct en_mps_options o = options();
	int64_t first;

	make(&o);
	ready();
	first = status().pid;
	hardware_mps(&hw, "status FAULT\n");
	pass(11000);
	cr_assert_eq(status().state, EN_MPS_SICK);
	cr_assert_not(status().usable);
	cr_assert_str_eq(status().reason, "MpsFault");
	cr_assert_not_null(strstr(status().why, "FAULT"));
	run_to(EN_MPS_KILLING);
	hardware_mps(&hw, "%s", "");
	run_to(EN_MPS_READY);
	cr_assert_neq(status().pid, first);
}

Test(enforcer_mps, case_43_fault_that_passes)
{
	struct en_mps_options o = options();
	int64_t first;

	make(&o);
	ready();
	first = status().pid;
	hardware_mps(&hw, "status INITIALIZING\n");
	pass(11000);
	cr_assert_eq(status().state, EN_MPS_SICK);
	hardware_mps(&hw, "%s", "");
	run_to(EN_MPS_READY);
	cr_assert_eq(status().pid, first, "it got well by itself");
	cr_assert_eq(status().generation, 1);
}

Test(enforcer_mps, case_43_hangs)
{
	struct en_mps_options o = options();
	int64_t first;

	o.ask_limit_ms = 60;
	hardware_mps(&hw, "hang server\n");
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_KILLING); /* never became ready */
	hardware_mps(&hw, "%s", "");
	mps->o.ask_limit_ms = 5000;
	run_to(EN_MPS_READY);
	first = status().pid;
	hardware_mps(&hw, "hang list\n");
	mps->o.ask_limit_ms = 60;
	run_to(EN_MPS_KILLING);
	cr_assert_not_null(strstr(status().why, "no answer within 60 ms"), "%s", status().why);
	hardware_mps(&hw, "%s", "");
	mps->o.ask_limit_ms = 5000;
	run_to(EN_MPS_READY);
	cr_assert_neq(status().pid, first);
}

/* The server is not there although the daemon answers and all exit statuses are 0. */
Test(enforcer_mps, case_43_server_missing)
{
	struct en_mps_options o = options();

	hardware_mps(&hw, "no_server\n");
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_KILLING);
	cr_assert_not_null(strstr(status().why, "not listed"));
	hardware_mps(&hw, "%s", "");
	run_to(EN_MPS_READY);
}

/* A word that nobody documented is not taken for ready, and the operator can say what it means. */
Test(enforcer_mps, unknown_status)
{
	struct en_mps_options o = options();

	hardware_mps(&hw, "status Sleeping\n");
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_KILLING);
	cr_assert_not_null(strstr(status().why, "\"Sleeping\""), "%s", status().why);
	en_mps_want(mps, false);
	run_to(EN_MPS_OFF);
	en_mps_free(mps);
	o.accepted_status = "sleeping";
	make(&o);
	ready();
}

/* Servers whose daemon was killed go with it; they would hold the GPU. */
Test(enforcer_mps, servers_go_with_their_daemon)
{
	struct en_mps_options o = options();
	int64_t server;

	make(&o);
	ready();
	server = mps->servers[0];
	cr_assert(mps_alive(mps, server));
	kill_and_wait(status().pid);
	(void)en_mps_step(mps);
	for (int i = 0; i < 200 && mps_alive(mps, server); i++)
		poll(NULL, 0, 10);
	cr_assert_not(mps_alive(mps, server));
}

Test(enforcer_mps, quit_is_ignored)
{
	struct en_mps_options o = options();

	make(&o);
	ready();
	hardware_mps(&hw, "ignore_quit\n");
	en_mps_want(mps, false);
	run_to(EN_MPS_KILLING);
	run_to(EN_MPS_OFF);
	cr_assert_eq(status().pid, 0);
}

/* ---- another enforcer before us, and another daemon ---- */

Test(enforcer_mps, adopted)
{
	struct en_mps_options o = options();
	int64_t pid;

	make(&o);
	ready();
	pid = status().pid;
	en_mps_free(mps); /* the enforcer ends, the daemon does not */
	make(&o);
	ready();
	cr_assert_eq(status().pid, pid);
	cr_assert_eq(status().starts, 0);
	cr_assert_not(status().recycle_when_idle);
	/* It ends although it is not ours by birth. */
	kill((pid_t)pid, SIGKILL);
	waitpid((pid_t)pid, NULL, 0); /* it is this process's child after all */
	run_to(EN_MPS_READY);
	cr_assert_eq(status().starts, 1);
	cr_assert_neq(status().pid, pid);
}

Test(enforcer_mps, adopted_with_another_configuration)
{
	struct en_mps_options o = options();
	int64_t pid;

	make(&o);
	ready();
	pid = status().pid;
	en_mps_free(mps);
	o.audit_log = true;
	make(&o);
	en_mps_want(mps, true);
	/* Nobody uses it: it is started anew at once. */
	for (int i = 0; i < 200 && !(status().state == EN_MPS_READY && status().pid != pid); i++) {
		clock_ms += en_mps_step(mps);
		while (waitpid((pid_t)pid, NULL, WNOHANG) > 0)
			;
	}
	cr_assert_eq(status().state, EN_MPS_READY);
	cr_assert_neq(status().pid, pid);
}

/* The pid in our file may be somebody else's by now. */
Test(enforcer_mps, pid_file_is_not_believed)
{
	struct en_mps_options o = options();

	hardware_file(&hw, "r/mps/daemon.pid", "%d 1 0 3\n", (int)getpid());
	make(&o);
	ready();
	cr_assert_eq(status().starts, 1);
}

Test(enforcer_mps, blocked)
{
	struct en_mps_options o = options();
	char other_run[160];
	struct en_mps *other;
	int64_t pid;

	snprintf(other_run, sizeof(other_run), "%.60s/other", hw.dir);
	o.run_dir = other_run;
	make(&o);
	ready();
	other = mps;
	pid = status().pid;
	o.run_dir = run_dir;
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_BLOCKED);
	cr_assert_str_eq(status().reason, "MpsBlocked");
	cr_assert_not_null(strstr(status().why, pipe_dir), "%s", status().why);
	cr_assert(mps_alive(mps, pid), "it is left alone");
	kill((pid_t)pid, SIGKILL);
	waitpid((pid_t)pid, NULL, 0);
	run_to(EN_MPS_READY);
	/* Ours is shut down at the end of the test; the other one's is gone. */
	other->pid = 0;
	en_mps_free(other);
}

/* ---- legacy ---- */

Test(enforcer_mps, legacy)
{
	struct en_mps_options o = options();
	struct en_mps_status st;
	struct err err = ERR_INIT;
	char dir[EN_PATH_CAP];

	hardware_mps(&hw, "protocol 2\nlegacy_server 4711\n");
	o.legacy = true;
	make(&o);
	ready();
	st = status();
	cr_assert(st.legacy);
	cr_assert(en_mps_owns(mps, 4711));
	cr_assert_eq(en_mps_namespace_make(mps, "abc", 50, dir, &err), ERR_CONFLICT);
	cr_assert_not_null(strstr(err.msg, "legacy"));
	en_mps_want(mps, false);
	run_to(EN_MPS_OFF); /* it does not hear its standard input */
}

Test(enforcer_mps, legacy_fault)
{
	struct en_mps_options o = options();

	hardware_mps(&hw, "legacy_server 4711\n");
	o.legacy = true;
	make(&o);
	ready();
	hardware_mps(&hw, "legacy_server 4711\nstatus FAULT\n");
	pass(11000);
	cr_assert_str_eq(status().reason, "MpsFault");
}

/* The protocol is asked of an old tool: it does not start, and says why. */
Test(enforcer_mps, old_tool)
{
	struct en_mps_options o = options();

	hardware_mps(&hw, "protocol 2\n");
	make(&o);
	en_mps_want(mps, true);
	run_to(EN_MPS_BACKOFF);
	cr_assert_not_null(strstr(status().why, "Cannot find MPS control daemon"), "%s",
			   status().why);
	/* The driver's version is known better now. */
	cr_assert_eq(en_mps_configure(mps, true, NULL, NULL), 0);
	run_to(EN_MPS_READY);
	cr_assert(status().legacy);
}

/* ---- namespaces ---- */

static const char id_a[] = "3f4a0b7c9d5e6f7081a2b3c4d5e6f708";

Test(enforcer_mps, namespace_names)
{
	char a[EN_MPS_NAME_CAP], b[EN_MPS_NAME_CAP];

	en_mps_namespace_name(id_a, a);
	cr_assert_eq(strlen(a), 3 + 16 + 1 + 20);
	cr_assert_eq(strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(a));
	cr_assert_eq(strncmp(a, "ts_3f4a0b7c9d5e6f70_", 20), 0);
	en_mps_namespace_name("3f4a0b7c9d5e6f7081a2b3c4d5e6f709", b);
	cr_assert_str_neq(a, b);
	en_mps_namespace_name("A.b/c", a);
	cr_assert_eq(strncmp(a, "ts_a_b_c_", 9), 0, "%s", a);
}

Test(enforcer_mps, namespace_made)
{
	struct en_mps_options o = options();
	char dir[EN_PATH_CAP] = "", again[EN_PATH_CAP] = "";
	struct err err = ERR_INIT;
	struct stat sb;

	make(&o);
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, &err), ERR_CONFLICT);
	cr_assert_not_null(strstr(err.msg, "not ready"), "%s", err.msg);
	ready();
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, &err), 0, "%s", err.msg);
	cr_assert_eq(strncmp(dir, pipe_dir, strlen(pipe_dir)), 0);
	cr_assert_leq(strlen(dir), EN_MPS_PIPE_MAX);
	cr_assert_eq(stat(dir, &sb), 0);
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, again, &err), 0);
	cr_assert_str_eq(dir, again);
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 60, again, &err), ERR_CONFLICT);
	cr_assert_not_null(strstr(err.msg, "restart of the container"), "%s", err.msg);
	cr_assert_eq(en_mps_namespace_make(mps, "x", 0, again, &err), ERR_RANGE);
	cr_assert_eq(en_mps_namespace_make(mps, "x", 101, again, &err), ERR_RANGE);
	cr_assert_eq(status().namespaces, 1);
	en_mps_namespace_drop(mps, "unknown");
	en_mps_namespace_drop(mps, id_a);
	(void)en_mps_step(mps);
	cr_assert_eq(status().namespaces, 0);
	cr_assert_neq(stat(dir, &sb), 0, "it is gone");
}

/* Whatever the daemon's statuses, only what is read back counts. */
Test(enforcer_mps, namespace_is_read_back)
{
	struct en_mps_options o = options();
	char dir[EN_PATH_CAP] = "";
	struct err err = ERR_INIT;

	make(&o);
	ready();
	hardware_mps(&hw, "wrong_cap\n");
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, &err), ERR_CONFLICT);
	cr_assert_str_eq(dir, "");
	(void)en_mps_step(mps);
	cr_assert_eq(status().namespaces, 0, "nothing is left of it");
	/* Rows without a directory: it is asked for, in both spellings. */
	hardware_mps(&hw, "short_rows\n");
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, &err), 0, "%s", err.msg);
	hardware_mps(&hw, "short_rows\nunderscore\n");
	cr_assert_eq(en_mps_namespace_make(mps, "b", 50, dir, &err), 0, "%s", err.msg);
	/* Complaints with status 1, too. */
	hardware_mps(&hw, "no_server\nerror_status 1\n");
	cr_assert_eq(en_mps_namespace_make(mps, "c", 50, dir, &err), ERR_IO);
	hardware_mps(&hw, "no_server\n");
	cr_assert_eq(en_mps_namespace_make(mps, "d", 50, dir, &err), ERR_IO);
}

/* After a restart of the daemon all are there again, at the same place. */
Test(enforcer_mps, namespaces_after_restart)
{
	struct en_mps_options o = options();
	char a[EN_PATH_CAP], b[EN_PATH_CAP], again[EN_PATH_CAP];
	struct en_mps_namespace rows[8];
	struct en_exec_result out = {0};
	const char *const args[] = {"namespace", "list", "--format=csv,noheader", NULL};
	size_t count = 0;

	make(&o);
	ready();
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, a, NULL), 0);
	cr_assert_eq(en_mps_namespace_make(mps, "b", 25, b, NULL), 0);
	kill_and_wait(status().pid);
	run_to(EN_MPS_READY);
	cr_assert_eq(status().generation, 2);
	cr_assert_eq(status().namespaces_bad, 0);
	cr_assert_eq(mps_command(mps, args, 5000, &out, NULL), 0);
	cr_assert_eq(mps_parse_namespaces(out.out, strlen(out.out), rows, 8, &count, NULL), 0);
	en_exec_fini(&out);
	cr_assert_eq(count, 3, "default and two");
	cr_assert_eq(en_mps_namespace_make(mps, "b", 25, again, NULL), 0);
	cr_assert_str_eq(again, b);
}

/* A share that somebody else took away is seen and put back. */
Test(enforcer_mps, namespace_drift)
{
	struct en_mps_options o = options();
	char name[EN_MPS_NAME_CAP], dir[EN_PATH_CAP];
	const char *const args[] = {"namespace", "delete", name, "--server=shared", NULL};
	struct en_exec_result out = {0};

	make(&o);
	ready();
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, NULL), 0);
	en_mps_namespace_name(id_a, name);
	cr_assert_eq(mps_command(mps, args, 5000, &out, NULL), 0);
	en_exec_fini(&out);
	pass(31000);
	cr_assert_eq(status().namespaces_bad, 1);
	pass(31000);
	cr_assert_eq(status().namespaces_bad, 0);
	cr_assert_eq(access(dir, F_OK), 0);
}

/* One with clients stays until they are gone; those of nobody go after a while; others' are left alone. */
Test(enforcer_mps, namespaces_left_over)
{
	struct en_mps_options o = options();
	const char *const mine[] = {"namespace", "create", "ts_left_over", "--server=shared", NULL};
	const char *const other[] = {"namespace", "create", "kai_x", "--server=shared", NULL};
	char name[EN_MPS_NAME_CAP], dir[EN_PATH_CAP], path[EN_PATH_CAP];
	struct en_exec_result out = {0};

	make(&o);
	ready();
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, NULL), 0);
	en_mps_namespace_name(id_a, name);
	hardware_mps(&hw, "client pid=%d server=shared ns=shared/%s~(0) device=0 cmd=x\n",
		     (int)getpid(), name);
	en_mps_namespace_drop(mps, id_a);
	(void)en_mps_step(mps);
	cr_assert_eq(status().namespaces, 1, "it has a client");
	cr_assert_eq(access(dir, F_OK), 0);
	hardware_mps(&hw, "%s", "");
	pass(31000);
	cr_assert_eq(status().namespaces, 0);
	cr_assert_eq(mps_command(mps, mine, 5000, &out, NULL), 0);
	en_exec_fini(&out);
	cr_assert_eq(mps_command(mps, other, 5000, &out, NULL), 0);
	en_exec_fini(&out);
	snprintf(path, sizeof(path), "%s/shared/ts_left_over", pipe_dir);
	pass(60000);
	cr_assert_eq(access(path, F_OK), 0, "its owner may still come");
	pass(300000);
	cr_assert_neq(access(path, F_OK), 0);
	snprintf(path, sizeof(path), "%s/shared/kai_x", pipe_dir);
	cr_assert_eq(access(path, F_OK), 0);
}

/* ---- clients ---- */

Test(enforcer_mps, drain)
{
	struct en_mps_options o = options();
	const uint32_t pids[] = {101, 102, 500};
	struct en_mps_client rows[8];
	struct err err = ERR_INIT;
	size_t count = 0;

	make(&o);
	cr_assert_eq(en_mps_drain(mps, pids, 3, 5000, &err), 0, "no daemon, no clients");
	cr_assert_eq(en_mps_clients(mps, rows, 8, &count, &err), ERR_CONFLICT);
	hardware_mps(&hw, "client pid=101 server=shared ns=default device=0 cmd=a,b\n"
			  "client pid=102 server=shared ns=shared/default~(0) device=GPU-x cmd=c\n"
			  "client pid=103 server=shared ns=default device=0 cmd=it~failed~to\n");
	ready();
	cr_assert_eq(en_mps_clients(mps, rows, 8, &count, &err), 0, "%s", err.msg);
	cr_assert_eq(count, 3);
	cr_assert_eq(en_mps_drain(mps, pids, 3, 5000, &err), 0, "%s", err.msg);
	cr_assert_eq(en_mps_clients(mps, rows, 8, &count, &err), 0);
	cr_assert_eq(count, 1);
	cr_assert_eq(rows[0].pid, 103, "the neighbour is left alone");
	cr_assert_eq(en_mps_drain(mps, pids, 3, 5000, &err), 0);
	cr_assert_eq(en_mps_drain(mps, NULL, 0, 5000, &err), 0);
	cr_assert_eq(status().drain_failures, 0);
}

/* The tool says that all is well, and the client is still there: the daemon is suspect. */
Test(enforcer_mps, drain_fails)
{
	struct en_mps_options o = options();
	const uint32_t pids[] = {101};
	struct err err = ERR_INIT;
	int64_t pid;

	hardware_mps(&hw, "client pid=101 server=shared ns=default device=0 cmd=a\n"
			  "refuse terminate\n");
	make(&o);
	ready();
	pid = status().pid;
	cr_assert_eq(en_mps_drain(mps, pids, 1, 5000, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "still lists 1"), "%s", err.msg);
	cr_assert_eq(status().drain_failures, 1);
	cr_assert(status().recycle_when_idle);
	/* It is started anew when nobody is there any more, not before. */
	hardware_mps(&hw, "client pid=%d server=shared ns=default device=0 cmd=a\n", (int)getpid());
	pass(60000);
	cr_assert_eq(status().pid, pid);
	hardware_mps(&hw, "%s", "");
	for (int i = 0; i < 500 && (status().pid == pid || status().state != EN_MPS_READY); i++)
		clock_ms += en_mps_step(mps);
	cr_assert_neq(status().pid, pid);
	cr_assert_not(status().recycle_when_idle);
}

Test(enforcer_mps, drain_in_time)
{
	struct en_mps_options o = options();
	const uint32_t pids[] = {101};
	struct err err = ERR_INIT;

	hardware_mps(&hw, "client pid=101 server=shared ns=default device=0 cmd=a\n"
			  "hang terminate\n");
	make(&o);
	ready();
	cr_assert_eq(en_mps_drain(mps, pids, 1, 80, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "no answer"), "%s", err.msg);
}

Test(enforcer_mps, legacy_drain)
{
	struct en_mps_options o = options();
	const uint32_t pids[] = {101};
	struct en_mps_client rows[4];
	struct err err = ERR_INIT;
	size_t count = 0;

	hardware_mps(&hw, "protocol 2\nlegacy_server 4711\nclient pid=101 server=4711\n"
			  "client pid=102 server=4711\n");
	o.legacy = true;
	make(&o);
	ready();
	cr_assert_eq(en_mps_drain(mps, pids, 1, 5000, &err), 0, "%s", err.msg);
	cr_assert_eq(en_mps_clients(mps, rows, 4, &count, &err), 0, "%s", err.msg);
	cr_assert_eq(count, 1);
	cr_assert_eq(rows[0].pid, 102);
}

/* A client whose process is gone and that is still listed: the mark of a wedge while all reports health. */
Test(enforcer_mps, ghosts)
{
	struct en_mps_options o = options();
	int64_t pid;

	make(&o);
	ready();
	pid = status().pid;
	hardware_mps(&hw,
		     "client pid=999999999 server=shared ns=default device=0 cmd=a\n"
		     "client pid=%d server=shared ns=default device=0 cmd=b\n",
		     (int)getpid());
	pass(31000);
	cr_assert_eq(status().clients, 2);
	cr_assert_eq(status().ghosts, 1);
	cr_assert_not(status().recycle_when_idle, "once may be chance");
	pass(31000);
	cr_assert(status().recycle_when_idle);
	cr_assert_eq(status().pid, pid, "somebody lives in it");
	hardware_mps(&hw, "client pid=999999999 server=shared ns=default device=0 cmd=a\n");
	pass(11000);
	hardware_mps(&hw, "%s", "");
	run_to(EN_MPS_READY);
	cr_assert_neq(status().pid, pid);
}

/* ---- wishes and the thread ---- */

Test(enforcer_mps, wedged_by_force)
{
	struct en_mps_options o = options();
	int64_t pid;

	make(&o);
	ready();
	pid = status().pid;
	en_mps_wedged(mps, "clients hang");
	(void)en_mps_step(mps);
	cr_assert_neq(status().state, EN_MPS_READY);
	run_to(EN_MPS_READY);
	cr_assert_neq(status().pid, pid);
}

Test(enforcer_mps, driver_upgrade)
{
	struct en_mps_options o = options();
	char a[EN_PATH_CAP], b[EN_PATH_CAP];

	make(&o);
	ready();
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, a, NULL), 0);
	en_mps_want(mps, false); /* the module is to be unloaded */
	run_to(EN_MPS_OFF);
	cr_assert_str_eq(status().why, "MPS is switched off");
	ready();
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, b, NULL), 0);
	cr_assert_str_eq(a, b);
	cr_assert_eq(status().namespaces_bad, 0);
}

Test(enforcer_mps, thread)
{
	struct en_mps_options o = options();
	char dir[EN_PATH_CAP];
	bool usable = false;

	o.now = NULL; /* the real clock: 200 ms until the first question */
	make(&o);
	cr_assert_eq(en_mps_thread_start(mps, NULL), 0);
	en_mps_want(mps, true);
	for (int i = 0; i < 1000 && !usable; i++) {
		poll(NULL, 0, 10);
		usable = status().usable;
	}
	cr_assert(usable, "%s", status().why);
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, NULL), 0);
	cr_assert(en_mps_shutdown(mps, 20000));
	cr_assert_eq(status().pid, 0);
	en_mps_thread_stop(mps);
	en_mps_thread_stop(mps);
}

Test(enforcer_mps, output_is_cut)
{
	struct en_mps_options o = options();
	struct stat sb;

	make(&o);
	ready();
	cr_assert_eq(truncate(hardware_path(&hw, "r/mps/output"), 2 << 20), 0);
	pass(11000);
	cr_assert_eq(stat(hardware_path(&hw, "r/mps/output"), &sb), 0);
	cr_assert_lt(sb.st_size, 1 << 20);
}

Test(enforcer_mps, out_of_memory)
{
	struct en_mps_options o = options();

	OOM_SWEEP(n) {
		int r;

		mps = NULL;
		oom_fail_at(n);
		r = en_mps_new(&o, &mps, NULL);
		if (!oom_disarm()) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM);
	}
	ready();
	OOM_SWEEP(n) {
		char dir[EN_PATH_CAP];
		int r;

		oom_fail_at(n);
		r = en_mps_namespace_make(mps, id_a, 50, dir, NULL);
		if (!oom_disarm()) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert_neq(r, 0);
	}
}

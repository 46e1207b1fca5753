/* The daemon as a process: started, asked, killed, hanging, found, ended. */
#include <sys/prctl.h>

#include "test/unit/enforcer_mps_fixture.h"

TestSuite(enforcer_mps, .init = start, .fini = stop);

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

static void count_change(void *ctx)
{
	struct en_mps_status st;

	en_mps_get_status(mps, &st); /* no lock is held */
	(*(int *)ctx)++;
}

/* off, looking, starting, ready: who was refused because MPS was starting hears of it at once. */
Test(enforcer_mps, changes_are_told)
{
	struct en_mps_options o = options();
	static int changes; /* the fixture stops the daemon after the test */

	o.changed = count_change;
	o.changed_ctx = &changes;
	make(&o);
	ready();
	cr_assert_eq(changes, 3);
	(void)en_mps_step(mps);
	cr_assert_eq(changes, 3, "nothing changed");
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
		let_pass(en_mps_step(mps));
		while (waitpid((pid_t)pid, NULL, WNOHANG) > 0)
			;
	}
	cr_assert_eq(status().state, EN_MPS_READY);
	cr_assert_neq(status().pid, pid);
}

/* The enforcer before us ended between starting it and writing down that it did. It is known by its standard input;
 * what it was started with is not, so it is started anew, when nobody uses it. */
Test(enforcer_mps, adopted_without_a_pid_file)
{
	struct en_mps_options o = options();

	for (int legacy = 0; legacy < 2; legacy++) {
		int64_t pid;

		o.legacy = legacy;
		hardware_mps(&hw,
			     legacy ? "protocol 2\nlegacy_server 4711\nclient pid=%d server=4711\n"
				    : "client pid=%d server=shared ns=default device=0 cmd=a\n",
			     (int)getpid());
		make(&o);
		ready();
		pid = status().pid;
		en_mps_free(mps);
		hardware_remove(&hw, "r/mps/daemon.pid");
		make(&o);
		ready();
		cr_assert_eq(status().pid, pid);
		cr_expect_eq(status().starts, 0);
		cr_expect_eq(status().legacy, legacy);
		cr_expect(hardware_exists(&hw, "r/mps/daemon.pid"));
		pass(60000);
		cr_expect_eq(status().pid, pid, "somebody uses it");
		cr_expect_eq(status().state, EN_MPS_READY);
		kill((pid_t)pid, SIGKILL);
		waitpid((pid_t)pid, NULL, 0); /* it is this process's child after all */
		hardware_mps(&hw, "%s", "");
		run_to(EN_MPS_READY);
		cr_expect_neq(status().pid, pid);
		en_mps_want(mps, false);
		run_to(EN_MPS_OFF);
		en_mps_free(mps);
		mps = NULL;
	}
}

/* Its number was given to another process: the daemon is meant all the same. */
Test(enforcer_mps, nobody_else_of_that_number_is_killed)
{
	struct en_mps_options o = options();
	struct pollfd p = {.events = POLLIN};
	pid_t daemon, other;

	make(&o);
	ready();
	daemon = mps->pid;
	other = fork();
	cr_assert_geq(other, 0);
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
		for (;;)
			pause();
	}
	mps->pid = other;
	mps_kill(mps);
	mps->pid = daemon;
	p.fd = en_mps_fd(mps);
	cr_expect_eq(poll(&p, 1, 10000), 1, "the daemon was not killed");
	cr_expect_eq(waitpid(other, NULL, WNOHANG), 0, "the other process was");
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
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

/* Namespaces of containers, and clients. */
#include "test/unit/enforcer_mps_fixture.h"

TestSuite(enforcer_mps_clients, .init = start, .fini = stop);

/* ---- namespaces ---- */

Test(enforcer_mps_clients, namespace_names)
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

Test(enforcer_mps_clients, namespace_made)
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
Test(enforcer_mps_clients, namespace_is_read_back)
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
Test(enforcer_mps_clients, namespaces_after_restart)
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
Test(enforcer_mps_clients, namespace_drift)
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

/* A namespace by that name, of an earlier life; path: its folder. */
static void leave_behind(const char *name, char path[EN_PATH_CAP])
{
	const char *const left[] = {"namespace", "create", name, "--server=shared", NULL};
	struct en_exec_result out = {0};

	cr_assert_eq(mps_command(mps, left, 5000, &out, NULL), 0);
	en_exec_fini(&out);
	snprintf(path, EN_PATH_CAP, "%s/shared/%s", pipe_dir, name);
}

/* One with clients stays until they are gone; those of nobody go after a while; others' are left alone. */
Test(enforcer_mps_clients, namespaces_left_over)
{
	struct en_mps_options o = options();
	char name[EN_MPS_NAME_CAP], dir[EN_PATH_CAP], path[EN_PATH_CAP], other[EN_PATH_CAP];

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
	leave_behind("ts_left_over", path);
	leave_behind("kai_x", other);
	pass(60000);
	cr_assert_eq(access(path, F_OK), 0, "its owner may still come");
	pass(300000);
	cr_assert_neq(access(path, F_OK), 0);
	cr_assert_eq(access(other, F_OK), 0);
}

/* Those of a creation that an earlier agent did not finish need no waiting once all others were named. */
Test(enforcer_mps_clients, namespaces_claimed)
{
	struct en_mps_options o = options();
	char dir[EN_PATH_CAP], path[EN_PATH_CAP];

	make(&o);
	ready();
	leave_behind("ts_left_over", path);
	cr_assert_eq(en_mps_namespace_make(mps, id_a, 50, dir, NULL), 0);
	(void)en_mps_step(mps);
	cr_assert_eq(access(path, F_OK), 0);
	en_mps_namespaces_claimed(mps);
	(void)en_mps_step(mps);
	cr_assert_neq(access(path, F_OK), 0);
	cr_assert_eq(access(dir, F_OK), 0, "this one is somebody's");
}

/* Of a container that runs: it is not taken away because the daemon did not answer for once. */
Test(enforcer_mps_clients, namespaces_of_containers_that_run)
{
	struct en_mps_options o = options();
	char name[EN_MPS_NAME_CAP], dir[EN_PATH_CAP] = "", path[EN_PATH_CAP];
	const char *const before[] = {"namespace", "create", name, "--server=shared", NULL};
	struct en_exec_result out = {0};
	struct err err = ERR_INIT;

	o.command_limit_ms = 300;
	make(&o);
	ready();
	en_mps_namespace_name(id_a, name);
	cr_assert_eq(mps_command(mps, before, 5000, &out, NULL), 0);
	en_exec_fini(&out);
	snprintf(path, sizeof(path), "%s/shared/%s", pipe_dir, name);
	hardware_mps(&hw, "hang list\n");
	cr_assert_eq(en_mps_namespace_keep(mps, id_a, 50, dir, &err), ERR_IO, "%s", err.msg);
	hardware_mps(&hw, "%s", "");
	(void)en_mps_step(mps);
	cr_assert_eq(access(path, F_OK), 0);
	pass(31000);
	cr_assert_eq(access(path, F_OK), 0);
	cr_assert_eq(status().namespaces, 1);
	cr_assert_eq(en_mps_namespace_keep(mps, id_a, 50, dir, &err), 0, "%s", err.msg);
	cr_assert_str_eq(dir, path);
	pass(31000);
	cr_assert_eq(status().namespaces_bad, 0);
	/* One that was to be made for a new container goes. */
	hardware_mps(&hw, "hang list\n");
	cr_assert_eq(en_mps_namespace_make(mps, "new", 50, dir, &err), ERR_IO);
	hardware_mps(&hw, "%s", "");
	pass(31000);
	cr_assert_eq(status().namespaces, 1);
}

/* The runtime has not told what runs, however long that takes: nobody's are all, and none. */
Test(enforcer_mps_clients, namespaces_while_nobody_was_named)
{
	struct en_mps_options o = options();
	char dir[EN_PATH_CAP], path[EN_PATH_CAP];

	make(&o);
	ready();
	leave_behind("ts_left_over", path);
	pass(1000000);
	cr_assert_eq(access(path, F_OK), 0);
	cr_assert_eq(en_mps_namespace_keep(mps, id_a, 50, dir, NULL), 0);
	pass(200000);
	cr_assert_eq(access(path, F_OK), 0, "others may be named yet");
	pass(200000);
	cr_assert_neq(access(path, F_OK), 0);
	cr_assert_eq(access(dir, F_OK), 0);
}

/* ---- clients ---- */

Test(enforcer_mps_clients, drain)
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
Test(enforcer_mps_clients, drain_fails)
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
		let_pass(en_mps_step(mps));
	cr_assert_neq(status().pid, pid);
	cr_assert_not(status().recycle_when_idle);
}

Test(enforcer_mps_clients, drain_in_time)
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

/* As measured on driver 580: the client stays listed until its process ends, and to ask a second time would
 * wait for ever. */
Test(enforcer_mps_clients, legacy_drain)
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
	cr_assert_eq(count, 2);
	cr_assert_eq(en_mps_drain(mps, pids, 1, 5000, &err), 0, "%s", err.msg);
	cr_assert_eq(status().drain_failures, 0);
	/* Gone; then another process has its number. */
	hardware_mps(&hw, "protocol 2\nlegacy_server 4711\n");
	cr_assert_eq(en_mps_drain(mps, pids, 1, 5000, &err), 0, "%s", err.msg);
	hardware_mps(&hw, "protocol 2\nlegacy_server 4711\nrefuse terminate\n"
			  "client pid=101 server=4711\n");
	cr_assert_eq(en_mps_drain(mps, pids, 1, 300, &err), ERR_IO, "it is asked for again");
}

Test(enforcer_mps_clients, legacy_drain_fails)
{
	struct en_mps_options o = options();
	const uint32_t pids[] = {101};
	struct err err = ERR_INIT;

	hardware_mps(&hw, "protocol 2\nlegacy_server 4711\nrefuse terminate\n"
			  "client pid=101 server=4711\n");
	o.legacy = true;
	make(&o);
	ready();
	cr_assert_eq(en_mps_drain(mps, pids, 1, 5000, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "Invalid process 101!"), "%s", err.msg);
	cr_assert(status().recycle_when_idle);
}

/* A client whose process is gone and that is still listed: the mark of a wedge while all reports health. */
Test(enforcer_mps_clients, ghosts)
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

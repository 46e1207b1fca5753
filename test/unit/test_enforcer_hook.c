/* What the hook reads: the runtime's state, cgroups, mounts, requests. */
#include "test/unit/hook_fixture.h"

/* ---- the OCI state ---- */

static int state_read(const char *text, struct en_oci_state *ret, struct err *err)
{
	size_t len = strlen(text);
	char *exact = malloc(len > 0 ? len : 1); /* ASan sees a read past the end */
	int rc;

	cr_assert_not_null(exact);
	memcpy(exact, text, len);
	rc = en_oci_state_read(exact, len, ret, err);
	free(exact);
	return rc;
}

Test(enforcer_hook, states_of_runtimes)
{
	static const char *const good[] = {
		/* runc, crun */
		"{\"ociVersion\":\"1.0.2-dev\",\"id\":\"" ID
		"\",\"status\":\"creating\",\"pid\":4711,"
		"\"bundle\":\"/run/x\",\"annotations\":{\"a\":\"b\\\"}\",\"id\":\"no\",\"pid\":\"1\"}}",
		"{\"ociVersion\":\"1.0.0\",\"id\":\"" ID "\",\"pid\":4711,\"root\":\"/r\","
		"\"bundle\":\"/b\",\"status\":\"created\"}\n",
		" \t\r\n{ \"x\" : [ 1 , [ ] , { } , { \"y\" : null } , true , -1.5e3 , \"\" ] ,"
		"\"pid\" : 4711 , \"id\" : \"" ID "\" } ",
	};
	struct err err = ERR_INIT;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct en_oci_state s = {.pid = 0};

		cr_assert_eq(state_read(good[i], &s, &err), 0, "%s", err.msg);
		cr_expect_str_eq(s.id, ID);
		cr_expect_eq(s.pid, 4711);
		/* Every beginning of it is an error, and changes nothing. */
		for (size_t len = 0; len + 3 < strlen(good[i]); len++) {
			struct en_oci_state part = {.pid = 5};
			char *cut = strndup(good[i], len);

			cr_assert_not_null(cut);
			cr_expect_eq(state_read(cut, &part, NULL), ERR_INVALID, "%s", cut);
			cr_expect_eq(part.pid, 5);
			free(cut);
		}
	}
}

Test(enforcer_hook, states_that_are_wrong)
{
	static const char long_id[] = "{\"id\":\"" ID ID "0\",\"pid\":1}";
	static const char *const bad[] = {
		"",
		"null",
		"[]",
		"{}",
		"{\"id\":\"a\"}",
		"{\"pid\":1}",
		"{\"id\":\"a\",\"pid\":0}",
		"{\"id\":\"a\",\"pid\":-1}",
		"{\"id\":\"a\",\"pid\":1.5}",
		"{\"id\":\"a\",\"pid\":\"1\"}",
		"{\"id\":\"a\",\"pid\":4294967296}",
		"{\"id\":\"a\",\"pid\":99999999999999999999}",
		"{\"id\":\"a\",\"pid\":1}x",
		"{\"id\":\"a\",\"pid\":1},",
		"{\"id\":\"\",\"pid\":1}",
		"{\"id\":\"../x\",\"pid\":1}",
		"{\"id\":\"..\",\"pid\":1}",
		"{\"id\":\"a\\u0062\",\"pid\":1}",
		"{\"id\":\"a b\",\"pid\":1}",
		"{\"id\":5,\"pid\":1}",
		"{\"id\":\"a\",\"pid\":1,}",
		"{,\"id\":\"a\",\"pid\":1}",
		"{\"id\" \"a\",\"pid\":1}",
		"{\"id\":\"a\",\"pid\":1,\"x\":}",
		"{\"id\":\"a\",\"pid\":1,\"x\":[1 2]}",
		"{\"id\":\"a\",\"pid\":1,\"x\":{1:2}}",
		"{\"id\":\"a\",\"pid\":1,\"x\":\"\n\"}",
		long_id,
	};
	char deep[400];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct en_oci_state s = {.pid = 5};
		struct err err = ERR_INIT;

		cr_expect_eq(state_read(bad[i], &s, &err), ERR_INVALID, "%s", bad[i]);
		cr_expect(strncmp(err.msg, "OCI state: ", 11) == 0, "%s: %s", bad[i], err.msg);
		cr_expect_eq(s.pid, 5);
	}
	memset(deep, '[', sizeof(deep) - 1);
	memcpy(deep, "{\"x\":", 5);
	deep[sizeof(deep) - 1] = '\0';
	cr_expect_eq(state_read(deep, &(struct en_oci_state){.pid = 0}, NULL), ERR_INVALID);
}

/* ---- cgroups ---- */

Test(enforcer_hook, cgroups_of_containers)
{
	static const struct {
		const char *text, *want;
	} good[] = {
		{"0::/kubepods.slice/kubepods-podu.slice/cri-containerd-" ID ".scope\n",
		 "/kubepods.slice/kubepods-podu.slice/cri-containerd-" ID ".scope"},
		/* hybrid: the other hierarchies are not looked at */
		{"12:memory:/x\n1:name=systemd:/y\n0::/kubepods/besteffort/podu/" ID "\n",
		 "/kubepods/besteffort/podu/" ID},
		/* crun's level below the scope */
		{"0::/a/crio-" ID ".scope/container\n", "/a/crio-" ID ".scope/container"},
		{"0::/a/crio-" ID ".scope", "/a/crio-" ID ".scope"},
	};
	static const struct {
		const char *text;
		int code;
		const char *why;
	} bad[] = {
		{"12:memory:/x/" ID "\n", ERR_CONFLICT, "no cgroup of version 2"},
		{"", ERR_CONFLICT, "no cgroup of version 2"},
		{"0::/\n", ERR_CONFLICT, "not in one of container"},
		{"0::/a/other\n", ERR_CONFLICT, "not in one of container"},
		{"0::/a/" ID " (deleted)\n", ERR_CONFLICT, "is being removed"},
		{"0::/../../" ID "\n", ERR_CONFLICT, "outside of our cgroup namespace"},
		{"0::/a/../" ID "\n", ERR_CONFLICT, "not in one of container"},
		{"0::a/" ID "\n", ERR_CONFLICT, "not in one of container"},
	};
	struct proc p;

	proc_init(&p);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char cgroup[EN_CGROUP_CAP] = "";
		struct err err = ERR_INIT;

		put_cgroup(&p, good[i].text);
		cr_expect_eq(en_cgroup_of(p.root, (uint32_t)getpid(), ID, cgroup, &err), 0, "%s",
			     err.msg);
		cr_expect_str_eq(cgroup, good[i].want);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char cgroup[EN_CGROUP_CAP] = "as before";
		struct err err = ERR_INIT;

		put_cgroup(&p, bad[i].text);
		cr_expect_eq(en_cgroup_of(p.root, (uint32_t)getpid(), ID, cgroup, &err),
			     bad[i].code, "%s", bad[i].text);
		cr_expect(strstr(err.msg, bad[i].why) != NULL, "%s: %s", bad[i].text, err.msg);
		cr_expect_str_eq(cgroup, "as before");
	}
	proc_fini(&p);
}

Test(enforcer_hook, processes_that_are_gone)
{
	char cgroup[EN_CGROUP_CAP];
	struct err err = ERR_INIT;
	struct proc p;
	pid_t pid;

	proc_init(&p);
	pid = fork();
	if (pid == 0)
		_exit(0);
	cr_assert_gt(pid, 0);
	waitpid(pid, NULL, 0);
	cr_expect_eq(en_cgroup_of(p.root, (uint32_t)pid, ID, cgroup, &err), ERR_NOT_FOUND);
	cr_expect_eq(en_cgroup_of(p.root, 0, ID, cgroup, &err), ERR_NOT_FOUND);
	cr_expect_eq(en_cgroup_of(p.root, UINT32_MAX, ID, cgroup, &err), ERR_NOT_FOUND);
	cr_expect_eq(en_cgroup_of(p.root, (uint32_t)getpid(), ID, cgroup, &err), ERR_IO);
	cr_expect_eq(en_cgroup_of(p.root, (uint32_t)getpid(), "a/b", cgroup, &err), ERR_INVALID);
	proc_fini(&p);
}

/* The real /proc: this process is in some cgroup, and it is not a container's. */
Test(enforcer_hook, the_real_proc)
{
	char cgroup[EN_CGROUP_CAP];
	struct err err = ERR_INIT;
	int rc = en_cgroup_of("/proc", (uint32_t)getpid(), ID, cgroup, &err);

	cr_expect_eq(rc, ERR_CONFLICT, "%s", err.msg);
}

Test(enforcer_hook, mounts)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n"
		 "31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n",
		 "/sys/fs/cgroup/unified"},
		{"31 30 0:27 /sub /somewhere rw - cgroup2 cgroup2 rw\n"
		 "32 30 0:27 / /with\\040blank rw - cgroup2 none rw\n",
		 "/with blank"},
		{"31 30 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw\n", NULL},
		{"broken line - cgroup2 x\n- cgroup2 \n", NULL},
		{"", NULL},
	};
	struct proc p;

	proc_init(&p);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char mount[EN_CGROUP_CAP] = "";
		struct err err = ERR_INIT;
		int rc;

		put_file(&p, "self/mountinfo", rows[i].text);
		rc = en_cgroup_mount(p.root, mount, &err);
		cr_expect_eq(rc, rows[i].want != NULL ? 0 : ERR_NOT_FOUND);
		cr_expect_str_eq(mount, rows[i].want != NULL ? rows[i].want : "");
	}
	proc_fini(&p);
}

/* ---- the wire ---- */

static struct en_limit_request request_make(void)
{
	struct en_limit_request r = {.id = ID, .pid = 4711, .cgroup = "/a/" ID};
	struct err err = ERR_INIT;

	cr_assert_eq(en_limit_request_add(&r, "GPU-1:1024:2048", &err), 0, "%s", err.msg);
	cr_assert_eq(en_limit_request_add(&r, "GPU-2:5:5", &err), 0, "%s", err.msg);
	return r;
}

Test(enforcer_hook, requests_are_read_as_written)
{
	struct en_limit_request r = request_make(), again;
	struct err err = ERR_INIT;
	struct buf b = BUF_INIT;

	en_limit_request_write(&r, &b);
	cr_expect_str_eq(buf_str(&b),
			 "tessera-hook 1\ncontainer " ID "\nprocess 4711\ncgroup /a/" ID
			 "\ngpu GPU-1 1024 2048\ngpu GPU-2 5 5\n");
	cr_assert_eq(en_limit_request_read(b.data, b.len, &again, &err), 0, "%s", err.msg);
	cr_expect_str_eq(again.id, ID);
	cr_expect_str_eq(again.cgroup, "/a/" ID);
	cr_expect_eq(again.pid, 4711);
	cr_assert_eq(again.gpu_count, 2);
	cr_expect_str_eq(again.gpus[1].uuid, "GPU-2");
	cr_expect_eq(again.gpus[0].hard_mib, 2048);
	/* Every beginning but those that end with a GPU's line is an error. */
	for (size_t len = 0; len < b.len; len++) {
		bool whole = b.data[len - (len > 0)] == '\n' && strstr(b.data, "gpu ") != NULL &&
			     len > (size_t)(strstr(b.data, "gpu ") - b.data);

		cr_expect_eq(en_limit_request_read(b.data, len, &again, NULL),
			     whole ? 0 : ERR_INVALID, "%zu", len);
	}
	buf_fini(&b);
}

Test(enforcer_hook, requests_that_are_wrong)
{
	static const char *const bad[] = {
		HEAD,
		"tessera-hook 2\ncontainer " ID "\nprocess 1\ncgroup /" ID "\ngpu G 1 1\n",
		"tessera-hook 1\ncontainer a/b\nprocess 1\ncgroup /a/b\ngpu G 1 1\n",
		"tessera-hook 1\ncontainer " ID "\nprocess 0\ncgroup /" ID "\ngpu G 1 1\n",
		"tessera-hook 1\ncontainer " ID "\nprocess +1\ncgroup /" ID "\ngpu G 1 1\n",
		"tessera-hook 1\ncontainer " ID "\nprocess 1\ncgroup /other\ngpu G 1 1\n",
		"tessera-hook 1\ncontainer " ID "\nprocess 1\ncgroup /../" ID "\ngpu G 1 1\n",
		"tessera-hook 1\ncontainer " ID "\nprocess 1\ncgroup " ID "\ngpu G 1 1\n",
		"tessera-hook 1\nprocess 1\ncontainer " ID "\ncgroup /" ID "\ngpu G 1 1\n",
		HEAD "gpu G 0 1\n",
		HEAD "gpu G 2 1\n",
		HEAD "gpu G 1\n",
		HEAD "gpu  1 1\n",
		HEAD "gpu G/x 1 1\n",
		HEAD "gpu G 1 1 1\n",
		HEAD "gpu G 1 99999999999\n",
		HEAD "gpu G 1 -1\n",
		HEAD "gpu G 1 1\ngpu G 1 1\n",
		HEAD "gpu G 1 1\nx\n",
		HEAD "gpu G 1 1\n\n"};
	struct en_limit_request r = {.pid = 5};
	struct buf b = BUF_INIT;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_expect_eq(en_limit_request_read(bad[i], strlen(bad[i]), &r, NULL), ERR_INVALID,
			     "%s", bad[i]);
		cr_expect_eq(r.pid, 5);
	}
	buf_puts(&b, HEAD);
	for (int i = 0; i < ST_GPUS_MAX + 1; i++)
		buf_printf(&b, "gpu G%d 1 1\n", i);
	cr_expect_lt(en_limit_request_read(b.data, b.len, &r, NULL), 0);
	buf_reset(&b);
	for (int i = 0; i <= EN_HOOK_REQUEST_MAX; i++)
		buf_putc(&b, 'x');
	cr_expect_eq(en_limit_request_read(b.data, b.len, &r, NULL), ERR_INVALID);
	cr_expect_eq(en_limit_request_read("a\0b", 3, &r, NULL), ERR_INVALID);
	buf_fini(&b);
}

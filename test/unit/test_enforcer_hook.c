/* The hook from the runtime's state to limits on the container's own cgroup, and every way to fail. The
 * driver is a recorder; /proc is made up around our own process number. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/hook.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/hook_server.h"
#include "enforcer/hook_state.h"
#include "enforcer/hook_wire.h"
#include "test/lib/oom.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

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

/* ---- a made-up /proc ---- */

struct proc {
	char root[64];
};

static void put_file(const struct proc *p, const char *name, const char *text)
{
	char path[256];
	struct err err = ERR_INIT;

	snprintf(path, sizeof(path), "%s/%s", p->root, name);
	*strrchr(path, '/') = '\0';
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%s", p->root, name);
	cr_assert_eq(file_replace(path, text, strlen(text), &err), 0, "%s", err.msg);
}

static void put_cgroup(const struct proc *p, const char *text)
{
	char name[64];

	snprintf(name, sizeof(name), "%d/cgroup", (int)getpid());
	put_file(p, name, text);
}

static void proc_init(struct proc *p)
{
	snprintf(p->root, sizeof(p->root), "/tmp/tessera-proc-XXXXXX");
	cr_assert_not_null(mkdtemp(p->root));
	put_file(
		p, "self/mountinfo",
		"22 1 0:5 / /proc rw - proc proc rw\n"
		"28 20 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
}

static void proc_fini(struct proc *p)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", p->root);
	/* NOLINTNEXTLINE(cert-env33-c): a fixed command on a folder of ours */
	cr_assert_eq(system(command), 0);
}

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
#define HEAD "tessera-hook 1\ncontainer " ID "\nprocess 1\ncgroup /" ID "\n"
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

/* ---- the hook as a program ---- */

struct recorder {
	struct en_limits_ops ops;
	pthread_mutex_t lock;
	struct buf text;
	const char *fail; /* a GPU */
};

static int record_set(void *ctx, const char *cgroup, const char *gpu, int64_t soft, int64_t hard,
		      struct err *err)
{
	struct recorder *r = ctx;

	pthread_mutex_lock(&r->lock);
	buf_printf(&r->text, "%s %s %lld %lld;", cgroup, gpu, (long long)soft,
		   hard == EN_LIMIT_NONE ? -1LL : (long long)hard);
	pthread_mutex_unlock(&r->lock);
	return r->fail != NULL && strcmp(r->fail, gpu) == 0
		       ? err_set(err, ERR_IO, "Insufficient\nPermissions")
		       : 0;
}

static void recorder_init(struct recorder *r)
{
	*r = (struct recorder){.ops = {.set = record_set, .ctx = r}};
	pthread_mutex_init(&r->lock, NULL);
}

static void recorder_fini(struct recorder *r)
{
	pthread_mutex_destroy(&r->lock);
	buf_fini(&r->text);
}

static void expect_record(struct recorder *r, const char *want)
{
	cr_expect_str_eq(buf_str(&r->text), want);
	buf_reset(&r->text);
}

#define ARGS_MAX 6

/* Runs it with that state on its input; its message goes to text. */
static int hook_run(const struct proc *p, const char *const *args, const char *state,
		    const struct en_limits_ops *ops, char text[600])
{
	char *argv[ARGS_MAX + 1];
	int in[2], out[2], argc = 0, status;
	ssize_t n;

	while (args[argc] != NULL) {
		argv[argc] = strdup(args[argc]);
		argc++;
	}
	cr_assert(pipe(in) == 0 && pipe(out) == 0);
	cr_assert_eq(write(in[1], state, strlen(state)), (ssize_t)strlen(state));
	close(in[1]);
	status = en_hook_main(argc, argv, in[0], out[1], p->root, ops);
	close(out[1]);
	n = read(out[0], text, 599);
	text[n > 0 ? n : 0] = '\0';
	close(in[0]);
	close(out[0]);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return status;
}

static void state_text(char *text, size_t cap)
{
	snprintf(text, cap,
		 "{\"ociVersion\":\"1.0.2\",\"id\":\"" ID "\",\"pid\":%d,\"bundle\":\"/b\"}",
		 (int)getpid());
}

Test(enforcer_hook, sets_limits_itself)
{
	static const char *const args[] = {"tessera-enforcer", "hook", "--gpu=GPU-1:1024:2048",
					   "--gpu=GPU-2:5:5", NULL};
	char state[256], text[600];
	struct recorder r;
	struct proc p;

	proc_init(&p);
	recorder_init(&r);
	put_cgroup(&p, "0::/k/cri-" ID ".scope\n");
	state_text(state, sizeof(state));
	cr_expect_eq(hook_run(&p, args, state, &r.ops, text), 0, "%s", text);
	cr_expect_str_empty(text);
	expect_record(&r, "/sys/fs/cgroup/k/cri-" ID ".scope GPU-1 1024 2048;"
			  "/sys/fs/cgroup/k/cri-" ID ".scope GPU-2 5 5;");
	/* All, or none. */
	r.fail = "GPU-2";
	cr_expect_eq(hook_run(&p, args, state, &r.ops, text), 1);
	cr_expect_str_eq(text, "tessera-hook: memory limits of container " ID
			       " on GPU-2: Insufficient\nPermissions\n");
	expect_record(&r, "/sys/fs/cgroup/k/cri-" ID ".scope GPU-1 1024 2048;"
			  "/sys/fs/cgroup/k/cri-" ID ".scope GPU-2 5 5;"
			  "/sys/fs/cgroup/k/cri-" ID ".scope GPU-1 0 -1;");
	recorder_fini(&r);
	proc_fini(&p);
}

Test(enforcer_hook, fails_closed)
{
	static const struct {
		const char *args[ARGS_MAX], *cgroup, *state, *why;
	} rows[] = {
		{{"hook", "--gpu=G:1:1"}, "0::/" ID, "", "OCI state: no JSON object (byte 0)"},
		{{"hook", "--gpu=G:1:1"}, "0::/" ID, "{\"id\":\"x\",\"pid\":0}", "OCI state: pid"},
		{{"hook", "--gpu=G:1:1"}, "0::/other", NULL, "not in one of container"},
		{{"hook", "--gpu=G:1:1"}, "1:cpu:/" ID, NULL, "no cgroup of version 2"},
		{{"hook"}, "0::/" ID, NULL, "no --gpu=UUID:SOFT:HARD"},
		{{"hook", "hook"}, "0::/" ID, NULL, "no --gpu=UUID:SOFT:HARD"},
		{{"hook", "--gpu=G:1"}, "0::/" ID, NULL, "is not UUID:SOFT:HARD"},
		{{"hook", "--gpu=G:2:1"}, "0::/" ID, NULL, "\"1\""},
		{{"hook", "--gpu=:2:1"}, "0::/" ID, NULL, "is no GPU"},
		{{"hook", "--gpus=G:1:1"}, "0::/" ID, NULL, "no such option"},
		{{"hook", "--gpu=G:1:1", "--socket=/nowhere/s"},
		 "0::/" ID,
		 NULL,
		 "the agent does not answer at /nowhere/s: No such file or directory"},
		{{"hook", "--gpu=G:1:1",
		  "--socket=/a-name-that-is-longer-than-a-socket-may-have/"
		  "a-name-that-is-longer-than-a-socket-may-have/x/y/z/x/y/z/x/y/z"},
		 "0::/" ID,
		 NULL,
		 "the name is too long"},
	};
	char state[256], text[600];
	struct recorder r;
	struct proc p;

	proc_init(&p);
	recorder_init(&r);
	state_text(state, sizeof(state));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		put_cgroup(&p, rows[i].cgroup);
		cr_expect_eq(hook_run(&p, rows[i].args,
				      rows[i].state != NULL ? rows[i].state : state, &r.ops, text),
			     1);
		cr_expect(strstr(text, rows[i].why) != NULL, "row %zu: %s", i, text);
		cr_expect_eq(text[strlen(text) - 1], '\n');
	}
	put_cgroup(&p, "0::/" ID);
	cr_expect_eq(hook_run(&p, rows[0].args, state, NULL, text), 1,
		     "nothing to set limits with");
	expect_record(&r, "");
	recorder_fini(&r);
	proc_fini(&p);
}

/* ---- hook and agent ---- */

static int agent_limit(void *ctx, const struct en_limit_request *r, struct err *err)
{
	struct recorder *rec = ctx;

	return en_limits_set_all(&rec->ops, r->cgroup, r, true, err);
}

struct agent {
	struct proc proc;
	struct recorder recorder;
	struct en_hook_server *server;
	char socket[128], option[160], state[256];
	const char *args[ARGS_MAX];
};

static void agent_init(struct agent *a)
{
	struct err err = ERR_INIT;

	memset(a, 0, sizeof(*a));
	proc_init(&a->proc);
	recorder_init(&a->recorder);
	put_cgroup(&a->proc, "0::/k/" ID "\n");
	state_text(a->state, sizeof(a->state));
	snprintf(a->socket, sizeof(a->socket), "%s/run/hook.sock", a->proc.root);
	snprintf(a->option, sizeof(a->option), "--socket=%s", a->socket);
	a->args[0] = "tessera-hook";
	a->args[1] = "hook";
	a->args[2] = a->option;
	a->args[3] = "--gpu=GPU-1:1024:2048";
	cr_assert_eq(en_hook_server_start(a->socket, agent_limit, &a->recorder, NULL, &a->server,
					  &err),
		     0, "%s", err.msg);
}

static void agent_fini(struct agent *a)
{
	en_hook_server_stop(a->server);
	cr_expect_neq(access(a->socket, F_OK), 0, "the socket is removed");
	recorder_fini(&a->recorder);
	proc_fini(&a->proc);
}

Test(enforcer_hook, asks_the_agent)
{
	struct agent a;
	char text[600];
	struct stat st;

	agent_init(&a);
	cr_assert_eq(stat(a.socket, &st), 0);
	cr_expect_eq(st.st_mode & 0777, 0600);
	cr_expect_eq(hook_run(&a.proc, a.args, a.state, NULL, text), 0, "%s", text);
	expect_record(&a.recorder, "/k/" ID " GPU-1 1024 2048;");
	a.recorder.fail = "GPU-1";
	cr_expect_eq(hook_run(&a.proc, a.args, a.state, NULL, text), 1);
	cr_expect_str_eq(text, "tessera-hook: memory limits of container " ID
			       " on GPU-1: Insufficient Permissions\n");
	agent_fini(&a);
}

static void raw_exchange(const struct agent *a, const char *sent, char *text, size_t cap)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ssize_t n;

	memcpy(address.sun_path, a->socket, strlen(a->socket) + 1);
	cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_geq(send(fd, sent, strlen(sent), MSG_NOSIGNAL), 0);
	shutdown(fd, SHUT_WR);
	n = read(fd, text, cap - 1);
	text[n > 0 ? n : 0] = '\0';
	close(fd);
}

Test(enforcer_hook, the_agent_answers_nonsense_with_a_sentence)
{
	struct agent a;
	char text[600], *large = malloc(20000);

	cr_assert_not_null(large);
	memset(large, 'x', 19999);
	large[19999] = '\0';
	agent_init(&a);
	raw_exchange(&a, "", text, sizeof(text));
	cr_expect_str_eq(text, "error hook request: its first line is not tessera-hook 1\n");
	raw_exchange(&a, large, text, sizeof(text));
	cr_expect(text[0] == '\0' || strstr(text, "more than 8192 bytes") != NULL, "%s", text);
	raw_exchange(&a, HEAD "gpu G 5 4\n", text, sizeof(text));
	cr_expect(strncmp(text, "error ", 6) == 0, "%s", text);
	expect_record(&a.recorder, "");
	free(large);
	agent_fini(&a);
}

/* The socket file is there, the agent is not. */
Test(enforcer_hook, an_agent_that_died)
{
	struct agent a;
	char text[600];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	agent_init(&a);
	en_hook_server_stop(a.server);
	a.server = NULL;
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	memcpy(address.sun_path, a.socket, strlen(a.socket) + 1);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	cr_expect_eq(hook_run(&a.proc, a.args, a.state, NULL, text), 1);
	cr_expect(strstr(text, "Connection refused") != NULL, "%s", text);
	/* A new agent takes the place of the stale socket. */
	cr_assert_eq(
		en_hook_server_start(a.socket, agent_limit, &a.recorder, NULL, &a.server, NULL), 0);
	cr_expect_eq(hook_run(&a.proc, a.args, a.state, NULL, text), 0, "%s", text);
	agent_fini(&a);
}

/* It accepts and hangs up without an answer. */
static void *hang_up(void *ctx)
{
	int fd = accept(*(int *)ctx, NULL, NULL);

	close(fd);
	return NULL;
}

Test(enforcer_hook, an_agent_without_an_answer)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct agent a;
	char text[600];
	pthread_t thread;
	int fd;

	agent_init(&a);
	en_hook_server_stop(a.server);
	a.server = NULL;
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	memcpy(address.sun_path, a.socket, strlen(a.socket) + 1);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(fd, 1), 0);
	cr_assert_eq(pthread_create(&thread, NULL, hang_up, &fd), 0);
	cr_expect_eq(hook_run(&a.proc, a.args, a.state, NULL, text), 1);
	cr_expect(strstr(text, "tessera-hook: ") == text, "%s", text);
	pthread_join(thread, NULL);
	close(fd);
	unlink(a.socket);
	agent_fini(&a);
}

static void *many_hooks(void *ctx)
{
	struct agent *a = ctx;
	size_t failed = 0;
	char text[600];

	for (int i = 0; i < 50; i++)
		failed += hook_run(&a->proc, a->args, a->state, NULL, text) != 0;
	return failed > 0 ? a : NULL;
}

Test(enforcer_hook, many_at_once)
{
	enum { THREADS = 8 };
	pthread_t threads[THREADS];
	struct agent a;

	agent_init(&a);
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, many_hooks, &a), 0);
	for (int i = 0; i < THREADS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		cr_expect_null(failed);
	}
	agent_fini(&a);
}

Test(enforcer_hook, server_that_cannot_listen)
{
	struct en_hook_server *s = NULL;
	struct err err = ERR_INIT;
	char long_name[200];

	cr_expect_eq(en_hook_server_start("/proc/no/hook.sock", agent_limit, NULL, NULL, &s, &err),
		     ERR_IO);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	cr_expect_eq(en_hook_server_start(long_name, agent_limit, NULL, NULL, &s, &err),
		     ERR_INVALID);
	cr_expect_null(s);
	en_hook_server_stop(NULL);
}

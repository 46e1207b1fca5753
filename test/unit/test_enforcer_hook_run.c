/* The hook as a program, alone and with the agent: limits are set, or the container does not start. */
#include <sys/resource.h>
#include <time.h>

#include "test/unit/hook_fixture.h"

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
		int status;
	} rows[] = {
		{{"hook", "--gpu=G:1:1"}, "0::/" ID, "", "OCI state: no JSON object (byte 0)", 1},
		{{"hook", "--gpu=G:1:1"},
		 "0::/" ID,
		 "{\"id\":\"x\",\"pid\":0}",
		 "OCI state: pid",
		 1},
		{{"hook", "--gpu=G:1:1"}, "0::/other", NULL, "not in one of container", 1},
		{{"hook", "--gpu=G:1:1"}, "1:cpu:/" ID, NULL, "no cgroup of version 2", 1},
		{{"hook"}, "0::/" ID, NULL, "no --gpu=UUID:SOFT:HARD", 2},
		{{"hook", "hook"}, "0::/" ID, NULL, "no --gpu=UUID:SOFT:HARD", 2},
		{{"hook", "--gpu=G:1"}, "0::/" ID, NULL, "is not UUID:SOFT:HARD", 2},
		{{"hook", "--gpu=G:2:1"}, "0::/" ID, NULL, "\"1\"", 2},
		{{"hook", "--gpu=:2:1"}, "0::/" ID, NULL, "is no GPU", 2},
		{{"hook", "--gpus=G:1:1"}, "0::/" ID, NULL, "no such option", 2},
		{{"hook", "--help"}, "0::/" ID, NULL, "\"--help\": no such option; see --help", 2},
		{{"hook", "--gpu=G:1:1", "--socket=/nowhere/s"},
		 "0::/" ID,
		 NULL,
		 "the agent does not answer at /nowhere/s: No such file or directory",
		 1},
		{{"hook", "--gpu=G:1:1",
		  "--socket=/a-name-that-is-longer-than-a-socket-may-have/"
		  "a-name-that-is-longer-than-a-socket-may-have/x/y/z/x/y/z/x/y/z"},
		 "0::/" ID,
		 NULL,
		 "the name is too long",
		 1},
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
			     rows[i].status, "row %zu", i);
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

/* Who asks by hand is told what it is for. */
Test(enforcer_hook, help_for_people)
{
	char *args[] = {strdup("tessera-hook"), strdup("--help"), NULL};
	char text[2048] = "";
	int in = open("/dev/null", O_RDONLY), out[2];

	cr_assert_geq(in, 0);
	cr_assert_eq(pipe(out), 0);
	cr_expect_eq(en_hook_main(2, args, in, out[1], "/proc", NULL), 0);
	close(out[1]);
	cr_assert_gt(read(out[0], text, sizeof(text) - 1), 0);
	cr_expect(strstr(text, "usage: tessera-hook [--socket=PATH] --gpu=UUID:SOFT:HARD") != NULL);
	cr_expect(strstr(text, "exit status: ") != NULL);
	close(out[0]);
	close(in);
	free(args[0]);
	free(args[1]);
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
	cr_assert_eq(en_hook_server_start(a->socket, agent_limit, &a->recorder, NULL, NULL,
					  &a->server, &err),
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
	cr_assert_eq(en_hook_server_start(a.socket, agent_limit, &a.recorder, NULL, NULL, &a.server,
					  NULL),
		     0);
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

/* ---- without file descriptors ---- */

static struct {
	pthread_mutex_t lock;
	unsigned lines;
	char last[300];
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void tell(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	pthread_mutex_lock(&told.lock);
	told.lines++;
	snprintf(told.last, sizeof(told.last), "%s", line);
	pthread_mutex_unlock(&told.lock);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* As many as this process may have are open. Returns the limit as it was. */
static struct rlimit no_more_files(void)
{
	struct rlimit was, now;
	int next = dup(0);

	cr_assert_geq(next, 0);
	close(next);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = was;
	now.rlim_cur = (rlim_t)next;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
	return was;
}

/* A hook that cannot be answered for want of a file descriptor waits, and the agent does not spin. */
Test(enforcer_hook, without_file_descriptors_it_tries_seldom)
{
	enum { THREADS = 4, PAUSE_MS = 100, LOOK_MS = 400 };
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct log *log = log_new(LOG_LEVEL_WARN, tell, NULL, NULL, NULL);
	struct rlimit was;
	struct agent a;
	int64_t begin;
	uint64_t failures;
	char text[600];
	ssize_t n;
	int fd;

	agent_init(&a);
	en_hook_server_stop(a.server);
	cr_assert_eq(en_hook_server_start(a.socket, agent_limit, &a.recorder, log, NULL, &a.server,
					  NULL),
		     0);
	memcpy(address.sun_path, a.socket, strlen(a.socket) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	cr_assert_geq(fd, 0);
	was = no_more_files();
	begin = now_ms();
	cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	while (en_hook_server_failures(a.server) == 0 || now_ms() - begin < LOOK_MS)
		usleep(1000);
	failures = en_hook_server_failures(a.server);
	cr_expect_leq(failures, THREADS * (uint64_t)((now_ms() - begin) / PAUSE_MS + 1));
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	/* It is answered as soon as there are some again. */
	cr_assert_geq(send(fd, HEAD "gpu G 5 6\n", strlen(HEAD "gpu G 5 6\n"), MSG_NOSIGNAL), 0);
	shutdown(fd, SHUT_WR);
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	cr_expect_str_eq(text, "ok\n");
	close(fd);
	agent_fini(&a);
	cr_expect_eq(told.lines, 1, "once, not %u times", told.lines);
	cr_expect_not_null(strstr(told.last,
				  "event=hook-not-accepted reason=\"Too many open files\""),
			   "%s", told.last);
	log_free(log);
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

	cr_expect_eq(en_hook_server_start("/proc/no/hook.sock", agent_limit, NULL, NULL, NULL, &s,
					  &err),
		     ERR_IO);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	cr_expect_eq(en_hook_server_start(long_name, agent_limit, NULL, NULL, NULL, &s, &err),
		     ERR_INVALID);
	cr_expect_null(s);
	en_hook_server_stop(NULL);
}

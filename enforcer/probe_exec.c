#include "enforcer/probe_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "enforcer/pulse.h"

#define LIMIT_DEFAULT_MS 10000
#define INPUT_MAX 4096
#define ENV_MAX 512
#define POLL_MS 5 /* between looks where the kernel has no pidfd */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- environment ---- */

static size_t key_len(const char *entry)
{
	return strcspn(entry, "=");
}

static bool same_key(const char *a, const char *b)
{
	size_t len = key_len(a);

	return key_len(b) == len && memcmp(a, b, len) == 0;
}

/* Our environment with extra put over it; pointers into both. */
static void merge_env(const char *const *extra, char *ret[ENV_MAX])
{
	size_t count = 0;

	for (char **e = environ; e != NULL && *e != NULL && count < ENV_MAX - 1; e++) {
		bool replaced = false;

		for (const char *const *x = extra; x != NULL && *x != NULL; x++)
			replaced = replaced || same_key(*e, *x);
		if (!replaced)
			ret[count++] = *e;
	}
	for (const char *const *x = extra; x != NULL && *x != NULL && count < ENV_MAX - 1; x++) {
		if ((*x)[key_len(*x)] == '=')
			memcpy(&ret[count++], x, sizeof(char *)); /* posix_spawn() wants char * */
	}
	ret[count] = NULL;
}

/* ---- starting ---- */

static int attributes(posix_spawnattr_t *a, short flags)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawnattr_init(a) != 0)
		return -1;
	posix_spawnattr_setsigmask(a, &none);
	posix_spawnattr_setsigdefault(a, &all);
	posix_spawnattr_setpgroup(a, 0);
	posix_spawnattr_setflags(a,
				 (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | flags));
	return 0;
}

static int spawn(const struct en_exec *x, const posix_spawn_file_actions_t *files, short flags,
		 pid_t *ret, struct err *err)
{
	char *env[ENV_MAX], *const *argv;
	posix_spawnattr_t attr;
	int e;

	merge_env(x->env, env);
	memcpy(&argv, &x->argv, sizeof(argv)); /* posix_spawn() changes none of the strings */
	if (attributes(&attr, flags) != 0)
		return err_set(err, ERR_NOMEM, "out of memory");
	e = posix_spawnp(ret, x->argv[0], files, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	if (e == 0)
		return 0;
	return err_set(err, e == ENOENT ? ERR_NOT_FOUND : (e == ENOMEM ? ERR_NOMEM : ERR_IO),
		       "%s: %s", x->argv[0], strerror(e));
}

int en_exec_spawn(const struct en_exec *x, const char *in_path, const char *out_path, pid_t *ret,
		  struct err *err)
{
	posix_spawn_file_actions_t files;
	int r;

	if (posix_spawn_file_actions_init(&files) != 0)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (posix_spawn_file_actions_addopen(&files, 0, in_path, O_RDWR, 0) != 0 ||
	    posix_spawn_file_actions_addopen(&files, 1, out_path, O_WRONLY | O_CREAT | O_APPEND,
					     0644) != 0 ||
	    posix_spawn_file_actions_adddup2(&files, 1, 2) != 0 ||
	    posix_spawn_file_actions_addclosefrom_np(&files, 3) != 0)
		r = err_set(err, ERR_NOMEM, "out of memory");
	else
		r = spawn(x, &files, POSIX_SPAWN_SETSID, ret, err);
	posix_spawn_file_actions_destroy(&files);
	return r;
}

/* ---- processes that were left ---- */

static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER; /* of the next three */
static struct left {
	pid_t pid; /* 0: unused, -1: a program runs that may need the place */
	char name[64];
} places[EN_EXEC_LEFT_MAX];
static uint64_t left_total;

/* Under the lock. */
static void left_reap(void)
{
	for (size_t i = 0; i < EN_EXEC_LEFT_MAX; i++) {
		if (places[i].pid > 0 && waitpid(places[i].pid, NULL, WNOHANG) != 0)
			places[i].pid = 0;
	}
}

void en_exec_look(struct en_exec_left *ret)
{
	*ret = (struct en_exec_left){0};
	pthread_mutex_lock(&left_lock);
	left_reap();
	for (size_t i = 0; i < EN_EXEC_LEFT_MAX; i++) {
		if (places[i].pid <= 0)
			continue;
		ret->count++;
		ret->pid = places[i].pid;
		memcpy(ret->name, places[i].name, sizeof(ret->name));
	}
	ret->total = left_total;
	pthread_mutex_unlock(&left_lock);
}

/* A place for a program that is to be started, so that there is one if it must be left. NULL: all are taken. */
static struct left *left_place(void)
{
	struct left *ret = NULL;

	pthread_mutex_lock(&left_lock);
	left_reap();
	for (size_t i = 0; i < EN_EXEC_LEFT_MAX && ret == NULL; i++) {
		if (places[i].pid == 0)
			ret = &places[i];
	}
	if (ret != NULL)
		ret->pid = -1;
	pthread_mutex_unlock(&left_lock);
	return ret;
}

/* pid 0: it was reaped, or not started. */
static void left_settle(struct left *l, pid_t pid, const char *name)
{
	pthread_mutex_lock(&left_lock);
	snprintf(l->name, sizeof(l->name), "%s", name);
	l->pid = pid;
	left_total += pid > 0;
	pthread_mutex_unlock(&left_lock);
}

/* ---- running to the end ---- */

struct run {
	pid_t pid;
	int out, err; /* our ends; -1 = closed */
	int64_t deadline_ms;
	struct buf text[2];
	pid_t left; /* 0: it was reaped */
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Reads what is there. */
static void take(int *fd, struct buf *b)
{
	char chunk[4096];
	ssize_t got = read(*fd, chunk, sizeof(chunk));

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		close_fd(fd);
		return;
	}
	if (b->len < EN_EXEC_OUT_MAX)
		buf_put(b, chunk,
			(size_t)got < EN_EXEC_OUT_MAX - b->len ? (size_t)got
							       : EN_EXEC_OUT_MAX - b->len);
}

/* True when both pipes are closed before the deadline. */
static bool read_all(struct run *r)
{
	while (r->out >= 0 || r->err >= 0) {
		struct pollfd p[2] = {{.fd = r->out, .events = POLLIN},
				      {.fd = r->err, .events = POLLIN}};
		int64_t left = r->deadline_ms - now_ms();

		if (left <= 0)
			return false;
		if (poll(p, 2, (int)left) < 0 && errno != EINTR)
			return false;
		if (p[0].revents != 0)
			take(&r->out, &r->text[0]);
		if (p[1].revents != 0)
			take(&r->err, &r->text[1]);
	}
	return true;
}

/* True when the process ended before the deadline; it is not reaped yet. */
static bool wait_end(const struct run *r, int64_t deadline_ms)
{
	int fd = (int)syscall(SYS_pidfd_open, r->pid, 0);
	siginfo_t info = {0};

	for (;;) {
		int64_t ms = deadline_ms - now_ms();
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
		    info.si_pid != 0 || ms <= 0)
			break;
		/* Under a debugger it has ended for the pidfd, and not for us. */
		if (poll(&p, 1, fd >= 0 ? (int)ms : POLL_MS) > 0)
			(void)poll(NULL, 0, POLL_MS);
	}
	if (fd >= 0)
		close(fd);
	return info.si_pid != 0;
}

static int finish(struct run *r, bool ended, struct en_exec_result *ret, struct err *err)
{
	struct en_exec_result result = {.timed_out = !ended};
	int status = SIGKILL; /* as of one that SIGKILL ended */

	if (!ended) {
		kill(-r->pid, SIGKILL);
		if (!wait_end(r, now_ms() + EN_EXEC_GRACE_MS))
			result.left = r->pid;
	}
	if (result.left == 0)
		(void)waitpid(r->pid, &status, 0); /* it has ended */
	r->left = result.left;
	result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	result.out = buf_take(&r->text[0]);
	result.err = buf_take(&r->text[1]);
	if (result.out == NULL || result.err == NULL) {
		en_exec_fini(&result);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	*ret = result;
	return 0;
}

/* Standard input is filled before the start, so that nobody has to feed it. */
static int make_pipes(const char *input, int in[2], int out[2], int error[2], struct err *err)
{
	size_t len = input != NULL ? strlen(input) : 0;

	if (len > INPUT_MAX)
		return err_set(err, ERR_TOO_LARGE, "input of %zu bytes, at most %d", len,
			       INPUT_MAX);
	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 ||
	    pipe2(error, O_CLOEXEC) != 0 || file_write_all(in[1], input, len) != 0)
		return err_set(err, ERR_IO, "pipe: %s", strerror(errno));
	return 0;
}

static int run_to_end(const struct en_exec *x, pid_t *ret_left, struct en_exec_result *ret,
		      struct err *err)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, error[2] = {-1, -1};
	struct run run = {.out = -1, .err = -1, .text = {BUF_INIT, BUF_INIT}};
	posix_spawn_file_actions_t files;
	int r = make_pipes(x->input, in, out, error, err);

	run.deadline_ms = now_ms() + (x->limit_ms > 0 ? x->limit_ms : LIMIT_DEFAULT_MS);
	if (r == 0 && posix_spawn_file_actions_init(&files) != 0)
		r = err_set(err, ERR_NOMEM, "out of memory");
	if (r == 0) {
		if (posix_spawn_file_actions_adddup2(&files, in[0], 0) != 0 ||
		    posix_spawn_file_actions_adddup2(&files, out[1], 1) != 0 ||
		    posix_spawn_file_actions_adddup2(&files, error[1], 2) != 0 ||
		    posix_spawn_file_actions_addclosefrom_np(&files, 3) != 0)
			r = err_set(err, ERR_NOMEM, "out of memory");
		else
			r = spawn(x, &files, POSIX_SPAWN_SETPGROUP, &run.pid, err);
		posix_spawn_file_actions_destroy(&files);
	}
	close_fd(&in[0]);
	close_fd(&in[1]);
	close_fd(&out[1]);
	close_fd(&error[1]);
	if (r == 0) {
		bool ended;

		run.out = out[0];
		run.err = error[0];
		ended = read_all(&run) && wait_end(&run, run.deadline_ms);
		r = finish(&run, ended, ret, err);
		*ret_left = run.left;
		out[0] = run.out;
		error[0] = run.err;
	}
	close_fd(&out[0]);
	close_fd(&error[0]);
	buf_fini(&run.text[0]);
	buf_fini(&run.text[1]);
	return r;
}

int en_exec_run(const struct en_exec *x, struct en_exec_result *ret, struct err *err)
{
	struct left *place = left_place();
	pid_t pid = 0;
	int r;

	if (place == NULL)
		return err_set(err, ERR_IO,
			       "%s: not started, for %d programs run or hang in the driver",
			       x->argv[0], EN_EXEC_LEFT_MAX);
	r = run_to_end(x, &pid, ret, err);
	left_settle(place, pid, x->argv[0]);
	if (r == 0 && !ret->timed_out)
		en_pulse_beat();
	return r;
}

void en_exec_fini(struct en_exec_result *r)
{
	free(r->out);
	free(r->err);
	r->out = NULL;
	r->err = NULL;
}

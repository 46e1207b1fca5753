/* The daemon as a process: found, started, ended. Of the stepping thread alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/quantity.h"
#include "enforcer/mps_internal.h"

#define OUTPUT_MAX ((size_t)1 << 20) /* the daemon's output is cut beyond */
#define SERVER_EXE "nvidia-cuda-mps-server"
#define CONTROL_EXE "nvidia-cuda-mps-control"

/* The one place that joins paths; false: too long. */
static bool join(char ret[EN_PATH_CAP], const char *dir, const char *name)
{
	return snprintf(ret, EN_PATH_CAP, "%s/%s", dir, name) < EN_PATH_CAP;
}

/* ---- processes as /proc has them ---- */

/* Start time in ticks since boot, which together with the pid names a process; 0: no such process, or it
 * is a zombie. */
static uint64_t start_time(const struct en_mps *m, int64_t pid)
{
	char path[EN_PATH_CAP], *text = NULL, *rest, *word = NULL;
	uint64_t ticks = 0;
	size_t len = 0;

	snprintf(path, sizeof(path), "%s/%" PRId64 "/stat", m->o.proc, pid);
	if (file_read(path, 8192, &text, &len, NULL) != 0)
		return 0;
	rest = strrchr(text, ')'); /* the name before it may hold anything */
	if (rest != NULL && rest[1] == ' ') {
		rest += 2;
		if (rest[0] != 'Z' && rest[0] != 'X') {
			for (int field = 3; field <= 22 && rest != NULL; field++)
				word = strsep(&rest, " ");
			ticks = word != NULL ? strtoull(word, NULL, 10) : 0;
		}
	}
	free(text);
	return ticks;
}

bool mps_alive(const struct en_mps *m, int64_t pid)
{
	return start_time(m, pid) != 0;
}

static bool exe_is(const struct en_mps *m, int64_t pid, const char *want)
{
	char path[EN_PATH_CAP], target[512];
	const char *name;
	ssize_t len;

	snprintf(path, sizeof(path), "%s/%" PRId64 "/exe", m->o.proc, pid);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return false;
	target[len] = '\0';
	name = strrchr(target, '/');
	name = name != NULL ? name + 1 : target;
	/* " (deleted)" follows after an upgrade of the driver's files. */
	return strncmp(name, want, strlen(want)) == 0 &&
	       (name[strlen(want)] == '\0' || name[strlen(want)] == ' ');
}

/* Does its environment name our pipe directory? */
static bool has_our_pipe(const struct en_mps *m, int64_t pid)
{
	char path[EN_PATH_CAP], *text = NULL;
	bool found = false;
	size_t len = 0;

	snprintf(path, sizeof(path), "%s/%" PRId64 "/environ", m->o.proc, pid);
	if (file_read(path, 1 << 20, &text, &len, NULL) != 0)
		return false;
	for (size_t at = 0; at < len && !found; at += strlen(text + at) + 1)
		found = strcmp(text + at, m->env_pipe) == 0;
	free(text);
	return found;
}

static void kill_servers(const struct en_mps *m)
{
	DIR *dir = opendir(m->o.proc);
	const struct dirent *e;

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		int64_t pid;

		if (integer_parse(e->d_name, 2, INT32_MAX, &pid, NULL) == 0 &&
		    exe_is(m, pid, SERVER_EXE) && has_our_pipe(m, pid))
			kill((pid_t)pid, SIGKILL);
	}
	if (dir != NULL)
		closedir(dir);
}

/* ---- the pid file: "<pid> <start time> <digest> <protocol>" ---- */

static void write_pid_file(struct en_mps *m)
{
	char path[EN_PATH_CAP], text[96];
	int len = snprintf(text, sizeof(text), "%d %" PRIu64 " %" PRIx64 " %d\n", (int)m->pid,
			   start_time(m, m->pid), m->running_digest, m->running_legacy ? 2 : 3);
	struct err err = ERR_INIT;

	if (join(path, m->o.run_dir, "daemon.pid") &&
	    file_replace(path, text, (size_t)len, &err) != 0)
		mps_say(m, "mps_pid_file", "%s", err.msg);
}

/* Is its standard input the FIFO that we give a daemon? Compared by what it is: paths differ between mounts. */
static bool has_our_stdin(const struct en_mps *m, int64_t pid)
{
	char path[EN_PATH_CAP], fifo[EN_PATH_CAP];
	struct stat theirs, ours;

	snprintf(path, sizeof(path), "%s/%" PRId64 "/fd/0", m->o.proc, pid);
	return join(fifo, m->o.run_dir, "stdin") && stat(fifo, &ours) == 0 &&
	       S_ISFIFO(ours.st_mode) && stat(path, &theirs) == 0 && theirs.st_dev == ours.st_dev &&
	       theirs.st_ino == ours.st_ino;
}

/* Was it started with protocol 3, and so with a configuration file? */
static bool speaks_v3(const struct en_mps *m, int64_t pid)
{
	char path[EN_PATH_CAP], *text = NULL;
	bool found = false;
	size_t len = 0;

	snprintf(path, sizeof(path), "%s/%" PRId64 "/cmdline", m->o.proc, pid);
	if (file_read(path, 65536, &text, &len, NULL) != 0)
		return false;
	for (size_t at = 0; at < len && !found; at += strlen(text + at) + 1)
		found = strcmp(text + at, "-a") == 0;
	free(text);
	return found;
}

static void take_over(struct en_mps *m, int64_t pid, uint64_t digest, bool legacy)
{
	m->pid = (pid_t)pid;
	m->is_child = false;
	m->running_digest = digest;
	pthread_mutex_lock(&m->lock);
	m->running_legacy = legacy;
	pthread_mutex_unlock(&m->lock);
	m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
}

/* One of ours that the pid file does not name: an enforcer before us ended, or had no space, before it was written.
 * It would be somebody else's daemon in our way, for ever. What it was started with is not known, so it is started
 * anew when nobody uses it. */
static bool adopt_unnamed(struct en_mps *m)
{
	DIR *dir = opendir(m->o.proc);
	const struct dirent *e;

	while (dir != NULL && m->pid == 0 && (e = readdir(dir)) != NULL) {
		int64_t pid;

		if (integer_parse(e->d_name, 2, INT32_MAX, &pid, NULL) != 0 ||
		    !exe_is(m, pid, CONTROL_EXE) || !has_our_stdin(m, pid) || !mps_alive(m, pid))
			continue;
		take_over(m, pid, 0, !speaks_v3(m, pid));
		write_pid_file(m);
	}
	if (dir != NULL)
		closedir(dir);
	return m->pid != 0;
}

/* Takes over what the pid file names, where that process is still the one. */
static bool adopt(struct en_mps *m)
{
	char path[EN_PATH_CAP], *text = NULL, *rest, *word[4] = {0};
	uint64_t started = 0;
	int64_t pid = 0;
	size_t len = 0;

	if (!join(path, m->o.run_dir, "daemon.pid") || file_read(path, 256, &text, &len, NULL) != 0)
		return false;
	rest = text;
	for (int i = 0; i < 4 && rest != NULL; i++)
		word[i] = strsep(&rest, " \n");
	if (word[3] != NULL && integer_parse(word[0], 2, INT32_MAX, &pid, NULL) == 0)
		started = strtoull(word[1], NULL, 10);
	if (started != 0 && start_time(m, pid) == started && exe_is(m, pid, CONTROL_EXE))
		take_over(m, pid, strtoull(word[2], NULL, 16), word[3][0] == '2');
	free(text);
	return m->pid != 0;
}

/* ---- looking ---- */

/* Does somebody listen on the socket? A connection is all it takes, whatever the protocol. */
static bool somebody_listens(const struct en_mps *m)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd, r, e;

	if (snprintf(a.sun_path, sizeof(a.sun_path), "%s/control", m->o.pipe_dir) >=
	    (int)sizeof(a.sun_path))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	r = connect(fd, (const struct sockaddr *)&a, sizeof(a));
	e = errno;
	close(fd);
	return r == 0 || e == EPROTOTYPE || e == EAGAIN || e == EINPROGRESS;
}

/* The daemon leaves them behind, and a socket without a listener stands in the way. */
static void remove_stale(const struct en_mps *m)
{
	static const char *const names[] = {"control", "control_lock", "control_privileged", "log"};
	char path[EN_PATH_CAP];
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (join(path, m->o.pipe_dir, names[i]) && lstat(path, &st) == 0 &&
		    (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode)))
			unlink(path);
	}
}

enum en_mps_event mps_look(struct en_mps *m)
{
	if (adopt(m) || adopt_unnamed(m)) {
		mps_say(m, "mps_found", "the control daemon of an earlier enforcer runs, pid %d",
			(int)m->pid);
		return EN_MPS_EV_OURS_FOUND;
	}
	if (somebody_listens(m)) {
		mps_say(m, "mps_blocked", "another MPS control daemon holds %s", m->o.pipe_dir);
		return EN_MPS_EV_OTHER_FOUND;
	}
	remove_stale(m);
	return EN_MPS_EV_NONE_FOUND;
}

/* ---- starting ---- */

/* The folder with its parents. */
static int make_dir(const char *path, mode_t mode, struct err *err)
{
	char part[EN_PATH_CAP];
	size_t len = strlen(path);

	if (len >= sizeof(part))
		return err_set(err, ERR_TOO_LARGE, "%.100s: the path is too long", path);
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, path[i] == '\0' ? mode : 0755) != 0 && errno != EEXIST)
			return err_set(err, ERR_IO, "%s: %s", part, strerror(errno));
	}
	return 0;
}

static int make_fifo(const char *path, struct err *err)
{
	struct stat st;

	if (lstat(path, &st) == 0 && !S_ISFIFO(st.st_mode) && unlink(path) != 0)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	if (mkfifo(path, 0600) != 0 && errno != EEXIST)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	return 0;
}

/* Folders and files. conf: where the configuration is. */
static int prepare(struct en_mps *m, char conf[EN_PATH_CAP], char fifo[EN_PATH_CAP],
		   char output[EN_PATH_CAP], struct err *err)
{
	struct buf b = BUF_INIT;
	const char *text;
	int r;

	if (!join(conf, m->o.run_dir, "mps.toml") || !join(fifo, m->o.run_dir, "stdin") ||
	    !join(output, m->o.run_dir, "output"))
		return err_set(err, ERR_TOO_LARGE, "%.100s: the path is too long", m->o.run_dir);
	r = make_dir(m->o.run_dir, 0700, err);
	if (r == 0)
		r = make_dir(m->o.pipe_dir, 0755, err);
	if (r == 0)
		r = make_dir(m->o.log_dir, 0755, err);
	if (r == 0)
		r = make_fifo(fifo, err);
	if (r != 0)
		return r;
	pthread_mutex_lock(&m->lock);
	mps_conf_put(&b, m->devices, m->o.audit_log);
	m->running_legacy = m->legacy;
	pthread_mutex_unlock(&m->lock);
	text = buf_str(&b);
	if (text == NULL) {
		r = err_set(err, ERR_NOMEM, "out of memory");
	} else {
		m->running_digest = mps_conf_digest(text, m->running_legacy, m->o.legacy_multiuser);
		if (!m->running_legacy)
			r = file_replace(conf, text, b.len, err);
	}
	buf_fini(&b);
	unlink(output);
	return r;
}

bool mps_spawn(struct en_mps *m)
{
	char conf[EN_PATH_CAP], fifo[EN_PATH_CAP], output[EN_PATH_CAP];
	const char *v3[] = {m->o.control, "-p", "3", "-m", "-f", "-a", conf, NULL};
	const char *v2[] = {m->o.control, "-f", m->o.legacy_multiuser ? "-multiuser-server" : NULL,
			    NULL};
	struct en_exec x = {.env = m->env};
	struct err err = ERR_INIT;
	int r = prepare(m, conf, fifo, output, &err);

	x.argv = m->running_legacy ? v2 : v3;
	if (r == 0)
		r = en_exec_spawn(&x, fifo, output, &m->pid, &err);
	if (r != 0) {
		m->pid = 0;
		mps_say(m, "mps_not_started", "the MPS control daemon cannot be started: %s",
			err.msg);
		return false;
	}
	m->is_child = true;
	m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	write_pid_file(m);
	return true;
}

/* ---- ending ---- */

void mps_quit(struct en_mps *m)
{
	const char *const quit_v3[] = {"-q", NULL};
	struct en_exec_result out = {0};
	char fifo[EN_PATH_CAP];
	int fd = -1, r;

	/* Protocol 3 takes it on standard input; the legacy daemon does not read that. */
	if (!m->running_legacy && join(fifo, m->o.run_dir, "stdin"))
		fd = open(fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0) {
		(void)file_write_all(fd, "quit\n", 5);
		close(fd);
	}
	r = m->running_legacy ? mps_command_v2(m, "quit\n", m->o.ask_limit_ms, &out, NULL)
			      : mps_command(m, quit_v3, m->o.ask_limit_ms, &out, NULL);
	if (r == 0)
		en_exec_fini(&out);
}

void mps_kill(struct en_mps *m)
{
	/* One that we did not start may have ended, and its number may be another's. */
	if (m->pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, m->pidfd, SIGKILL, NULL, 0);
	else if (m->pid > 0)
		kill(m->pid, SIGKILL);
	kill_servers(m);
}

/* The last line of what the daemon printed. */
static void last_words(const struct en_mps *m, char ret[160])
{
	char path[EN_PATH_CAP], *text = NULL, *line;
	size_t len = 0;

	ret[0] = '\0';
	if (!join(path, m->o.run_dir, "output") ||
	    file_read(path, OUTPUT_MAX * 2, &text, &len, NULL) != 0)
		return;
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
		text[--len] = '\0';
	line = strrchr(text, '\n');
	line = line != NULL ? line + 1 : text;
	snprintf(ret, 160, "%s", line);
	for (char *c = ret; *c != '\0'; c++) {
		if (*c < ' ' || *c > 126)
			*c = '?';
	}
	free(text);
}

bool mps_exited(struct en_mps *m)
{
	struct pollfd p = {.fd = m->pidfd, .events = POLLIN};
	char words[160];
	int status = 0;

	if (m->pid == 0)
		return false;
	if (m->is_child) {
		if (waitpid(m->pid, &status, WNOHANG) != m->pid)
			return false;
		last_words(m, words);
		mps_say(m, "mps_ended", "the MPS control daemon ended (%s %d)%s%s",
			WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
			words[0] != '\0' ? ": " : "", words);
		return true;
	}
	if (m->pidfd >= 0 ? poll(&p, 1, 0) == 1 : !mps_alive(m, m->pid)) {
		mps_say(m, "mps_ended", "the MPS control daemon ended");
		return true;
	}
	return false;
}

void mps_clean(struct en_mps *m)
{
	char path[EN_PATH_CAP];

	if (m->pidfd >= 0)
		close(m->pidfd);
	m->pidfd = -1;
	m->pid = 0;
	if (join(path, m->o.run_dir, "daemon.pid"))
		unlink(path);
	kill_servers(m); /* without their daemon they are of no use, and hold the GPU */
	if (!somebody_listens(m))
		remove_stale(m);
}

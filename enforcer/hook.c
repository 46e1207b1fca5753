#include "enforcer/hook.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/hook_state.h"
#include "enforcer/hook_wire.h"

/* The runtime kills a hook after hook_timeout_s (apply.h); a sentence is better than that. */
#define AGENT_PATIENCE_S 8

struct arguments {
	const char *socket; /* NULL: none */
	struct en_limit_request request;
};

/* argv[0] is the program; a word "hook" may follow. */
static int read_arguments(int argc, char *const *argv, struct arguments *ret, struct err *err)
{
	static const char socket_option[] = "--socket=", gpu_option[] = "--gpu=";

	for (int i = 1; i < argc; i++) {
		int rc = 0;

		if (i == 1 && strcmp(argv[i], "hook") == 0)
			continue;
		if (strncmp(argv[i], socket_option, sizeof(socket_option) - 1) == 0)
			ret->socket = argv[i] + sizeof(socket_option) - 1;
		else if (strncmp(argv[i], gpu_option, sizeof(gpu_option) - 1) == 0)
			rc = en_limit_request_add(&ret->request, argv[i] + sizeof(gpu_option) - 1,
						  err);
		else
			return err_set(err, ERR_INVALID, "\"%.100s\": no such option; see --help",
				       argv[i]);
		if (rc != 0)
			return rc;
	}
	if (ret->request.gpu_count == 0)
		return err_set(err, ERR_INVALID, "no --gpu=UUID:SOFT:HARD; see --help");
	return 0;
}

/* All of fd, up to max bytes; *ret has a NUL behind its *ret_len bytes. */
static int read_all(int fd, const char *what, size_t max, char *ret, size_t *ret_len,
		    struct err *err)
{
	size_t len = 0;

	while (len <= max) {
		ssize_t n = read(fd, ret + len, max + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, ERR_IO, "%s: %s", what,
				       errno == EAGAIN ? "no answer in time" : strerror(errno));
		if (n == 0) {
			ret[len] = '\0';
			*ret_len = len;
			return 0;
		}
		len += (size_t)n;
	}
	return err_set(err, ERR_TOO_LARGE, "%s: more than %zu bytes", what, max);
}

static int read_state(int fd, struct en_oci_state *ret, struct err *err)
{
	char *text = malloc(EN_STATE_MAX + 1);
	size_t len = 0;
	int rc;

	if (text == NULL)
		return err_set(err, ERR_NOMEM, "OCI state: no memory");
	rc = read_all(fd, "OCI state", EN_STATE_MAX, text, &len, err);
	if (rc == 0)
		rc = en_oci_state_read(text, len, ret, err);
	free(text);
	return rc;
}

/* ---- the agent ---- */

static int connect_agent(const char *path, int *ret_fd, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = AGENT_PATIENCE_S};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return err_set(err, ERR_INVALID, "socket %.120s: the name is too long", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(err, ERR_IO, "socket: %s", strerror(errno));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0 ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		err_set(err, ERR_IO, "the agent does not answer at %s: %s", path, strerror(errno));
		close(fd);
		return ERR_IO;
	}
	*ret_fd = fd;
	return 0;
}

static int send_request(int fd, const struct en_limit_request *r, struct err *err)
{
	struct buf b = BUF_INIT;
	size_t sent = 0;
	int rc = 0;

	en_limit_request_write(r, &b);
	if (!buf_ok(&b))
		rc = err_set(err, ERR_NOMEM, "hook: no memory");
	while (rc == 0 && sent < b.len) {
		ssize_t n = send(fd, b.data + sent, b.len - sent, MSG_NOSIGNAL);

		if (n > 0)
			sent += (size_t)n;
		else if (errno != EINTR)
			rc = err_set(err, ERR_IO, "agent: %s", strerror(errno));
	}
	buf_fini(&b);
	if (rc == 0 && shutdown(fd, SHUT_WR) != 0)
		rc = err_set(err, ERR_IO, "agent: %s", strerror(errno));
	return rc;
}

static int ask_agent(const char *path, const struct en_limit_request *r, struct err *err)
{
	char answer[EN_HOOK_ANSWER_MAX + 2];
	size_t len;
	int fd = -1, rc;

	rc = connect_agent(path, &fd, err);
	if (rc != 0)
		return rc;
	rc = send_request(fd, r, err);
	if (rc == 0)
		rc = read_all(fd, "agent", EN_HOOK_ANSWER_MAX, answer, &len, err);
	close(fd);
	if (rc != 0 || strcmp(answer, "ok\n") == 0)
		return rc;
	answer[strcspn(answer, "\n")] = '\0';
	if (strncmp(answer, "error ", 6) == 0)
		return err_set(err, ERR_CONFLICT, "%.500s", answer + 6);
	return err_set(err, ERR_IO, "the agent at %s ended without an answer", path);
}

/* ---- the hook ---- */

static int set_here(const struct en_limits_ops *ops, const char *proc,
		    const struct en_limit_request *r, struct err *err)
{
	char mount[EN_CGROUP_CAP], cgroup[EN_CGROUP_CAP];
	int rc;

	if (ops == NULL)
		return err_set(err, ERR_INVALID,
			       "no --socket, and no driver at hand to set limits "
			       "with");
	rc = en_cgroup_mount(proc, mount, err);
	if (rc == 0)
		rc = en_cgroup_join(mount, r->cgroup, cgroup, err);
	return rc == 0 ? en_limits_set_all(ops, cgroup, r, true, err) : rc;
}

static int run(struct arguments *a, int in_fd, const char *proc, const struct en_limits_ops *limits,
	       struct err *err)
{
	struct en_oci_state state = {.pid = 0};
	int rc;

	rc = read_state(in_fd, &state, err);
	if (rc != 0)
		return rc;
	memcpy(a->request.id, state.id, sizeof(a->request.id));
	a->request.pid = state.pid;
	rc = en_cgroup_of(proc, state.pid, state.id, a->request.cgroup, err);
	if (rc != 0)
		return rc;
	return a->socket != NULL ? ask_agent(a->socket, &a->request, err)
				 : set_here(limits, proc, &a->request, err);
}

static const char usage[] =
	"usage: tessera-hook [--socket=PATH] --gpu=UUID:SOFT:HARD...\n\n"
	"OCI createRuntime hook: sets a container's GPU memory limits on its own cgroup before its\n"
	"process starts. A container runtime calls it, with the container's state on standard input;\n"
	"whatever goes wrong, the container does not start.\n\n"
	"  --socket=PATH          the node agent, which sets the limits\n"
	"  --gpu=UUID:SOFT:HARD   a GPU, and MiB that are guaranteed and at most had there\n\n"
	"exit status: 0; 2 wrong options; 1 all that fails otherwise\n";

/* A person asks, at a terminal or with nothing to read: a runtime writes the state into a pipe. To that a
 * hook may never say that all is well. */
static bool asked_for_help(int argc, char *const *argv, int in_fd)
{
	bool named = argc > 1 && strcmp(argv[1], "hook") == 0;
	struct stat st;

	return argc == 2 + named && strcmp(argv[1 + named], "--help") == 0 &&
	       fstat(in_fd, &st) == 0 && S_ISCHR(st.st_mode);
}

int en_hook_main(int argc, char *const *argv, int in_fd, int err_fd, const char *proc,
		 const struct en_limits_ops *limits)
{
	char line[ERR_MSG_CAP + 32];
	struct arguments a = {.socket = NULL};
	struct err err = ERR_INIT;
	int n, status = 2;

	if (asked_for_help(argc, argv, in_fd))
		return file_write_all(err_fd, usage, sizeof(usage) - 1) != 0;
	if (read_arguments(argc, argv, &a, &err) == 0)
		status = run(&a, in_fd, proc, limits, &err) == 0 ? 0 : 1;
	if (status == 0)
		return 0;
	n = snprintf(line, sizeof(line), "tessera-hook: %s\n", err.msg);
	if (n > 0)
		(void)file_write_all(err_fd, line, (size_t)n);
	return status;
}

#include "enforcer/hook_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define THREADS 4 /* a driver call may take its time */
#define BACKLOG 128
#define READ_TIMEOUT_S 2
#define PAUSE_MS 100 /* of a thread that could not take a connection */

struct en_hook_server {
	int fd, stop_fd;
	en_limit_fn fn;
	void *ctx;
	struct log *log;
	_Atomic uint64_t failures; /* of accept() */
	_Atomic bool failing;      /* told of; until a connection is taken */
	unsigned thread_count;
	struct server_thread {
		struct en_hook_server *server;
		struct en_pulse *pulse;
		pthread_t id;
	} threads[THREADS];
	struct sockaddr_un address;
};

/* Root, or whoever we run as (tests). */
static bool peer_allowed(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       (peer.uid == 0 || peer.uid == geteuid());
}

static int read_request(int fd, struct en_limit_request *ret, struct err *err)
{
	char text[EN_HOOK_REQUEST_MAX + 1];
	size_t len = 0;

	while (len < sizeof(text)) {
		ssize_t n = read(fd, text + len, sizeof(text) - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, ERR_IO, "hook request: %s", strerror(errno));
		if (n == 0)
			return en_limit_request_read(text, len, ret, err);
		len += (size_t)n;
	}
	return err_set(err, ERR_INVALID, "hook request: more than %d bytes", EN_HOOK_REQUEST_MAX);
}

/* One line, whatever the sentence holds. */
static void send_answer(int fd, int code, const struct err *why)
{
	char text[EN_HOOK_ANSWER_MAX];
	int n;

	if (code == 0)
		n = snprintf(text, sizeof(text), "ok\n");
	else
		n = snprintf(text, sizeof(text), "error %s\n", why->msg);
	for (int i = 0; i < n - 1; i++)
		text[i] = text[i] == '\n' ? ' ' : text[i];
	if (n > 0)
		(void)send(fd, text, (size_t)n, MSG_NOSIGNAL); /* a hook that is gone has failed */
}

static void serve(const struct en_hook_server *s, int fd)
{
	const struct timeval patience = {.tv_sec = READ_TIMEOUT_S};
	struct en_limit_request r = {.gpu_count = 0};
	struct err why = ERR_INIT;
	char quoted[ERR_MSG_CAP];
	int rc;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	rc = peer_allowed(fd) ? read_request(fd, &r, &why)
			      : err_set(&why, ERR_INVALID, "only root may set limits");
	if (rc == 0)
		rc = s->fn(s->ctx, &r, &why);
	if (rc != 0)
		log_event(s->log, LOG_LEVEL_ERROR, "hook-refused", "container=%s reason=%s",
			  r.id[0] != '\0' ? r.id : "-", log_quote(why.msg, quoted, sizeof(quoted)));
	send_answer(fd, rc, &why);
}

/* None was there (another thread took it, or the hook is gone), which is no failure. */
static bool nobody(int e)
{
	return e == EAGAIN || e == EINTR || e == ECONNABORTED;
}

/* The connection stays in the queue, and so the socket is readable all the time: without a pause the threads
 * would do nothing but try. */
static void accept_failed(struct en_hook_server *s, int e)
{
	struct pollfd stop = {.fd = s->stop_fd, .events = POLLIN};
	char quoted[ERR_MSG_CAP];

	atomic_fetch_add(&s->failures, 1);
	if (!atomic_exchange(&s->failing, true))
		log_event(s->log, LOG_LEVEL_ERROR, "hook-not-accepted", "reason=%s",
			  log_quote(strerror(e), quoted, sizeof(quoted)));
	(void)poll(&stop, 1, PAUSE_MS);
}

static void *accept_loop(void *ctx)
{
	const struct server_thread *t = ctx;
	struct en_hook_server *s = t->server;

	for (;;) {
		struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN},
				      {.fd = s->stop_fd, .events = POLLIN}};
		int fd;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents != 0)
			break;
		if (p[0].revents == 0)
			continue;
		fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0) {
			if (!nobody(errno))
				accept_failed(s, errno);
			continue;
		}
		atomic_store(&s->failing, false);
		en_pulse_begin(t->pulse, "a hook's limits");
		serve(s, fd);
		en_pulse_end(t->pulse);
		close(fd);
	}
	return NULL;
}

static int make_folder(const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];

	if (slash == NULL || slash == path)
		return 0;
	memcpy(folder, path, (size_t)(slash - path));
	folder[slash - path] = '\0';
	if (mkdir(folder, 0700) != 0 && errno != EEXIST)
		return err_set(err, ERR_IO, "%s: %s", folder, strerror(errno));
	return 0;
}

static int listen_at(struct en_hook_server *s, const char *path, struct err *err)
{
	int r = make_folder(path, err);

	if (r != 0)
		return r;
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (s->fd < 0 || s->stop_fd < 0)
		return err_set(err, ERR_IO, "hook socket: %s", strerror(errno));
	if (unlink(path) != 0 && errno != ENOENT)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	/* The mode is set before anybody can connect: nothing listens yet. */
	if (bind(s->fd, (const struct sockaddr *)&s->address, sizeof(s->address)) != 0 ||
	    chmod(path, 0600) != 0 || listen(s->fd, BACKLOG) != 0)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	return 0;
}

int en_hook_server_start(const char *path, en_limit_fn fn, void *ctx, struct log *log,
			 struct en_pulses *pulses, struct en_hook_server **ret, struct err *err)
{
	struct en_hook_server *s;
	int r;

	if (strlen(path) >= sizeof(s->address.sun_path))
		return err_set(err, ERR_INVALID, "hook socket %.120s: the name is too long", path);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return err_set(err, ERR_NOMEM, "hook socket: no memory");
	*s = (struct en_hook_server){.fd = -1, .stop_fd = -1, .fn = fn, .ctx = ctx, .log = log};
	s->address.sun_family = AF_UNIX;
	memcpy(s->address.sun_path, path, strlen(path) + 1);
	r = listen_at(s, path, err);
	while (r == 0 && s->thread_count < THREADS) {
		struct server_thread *t = &s->threads[s->thread_count];

		t->server = s;
		t->pulse = en_pulse_add(pulses, "hooks");
		if (pthread_create(&t->id, NULL, accept_loop, t) != 0)
			r = err_set(err, ERR_IO, "hook socket: no thread");
		else
			s->thread_count++;
	}
	if (r == 0)
		*ret = s;
	else
		en_hook_server_stop(s);
	return r;
}

uint64_t en_hook_server_failures(const struct en_hook_server *s)
{
	return atomic_load(&s->failures);
}

void en_hook_server_stop(struct en_hook_server *s)
{
	const uint64_t one = 1;

	if (s == NULL)
		return;
	if (s->stop_fd >= 0)
		(void)!write(s->stop_fd, &one, sizeof(one));
	for (unsigned i = 0; i < s->thread_count; i++)
		pthread_join(s->threads[i].id, NULL);
	if (s->thread_count > 0)
		unlink(s->address.sun_path);
	if (s->fd >= 0)
		close(s->fd);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	free(s);
}

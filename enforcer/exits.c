#include "enforcer/exits.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"

#define EVENTS_MAX 16

struct watched {
	char *id;
	int fd;
	UT_hash_handle hh;
};

struct en_exits {
	void (*fn)(void *ctx, const char *id);
	void *ctx;
	struct en_pulse *pulse;
	int epoll_fd, stop_fd;
	pthread_mutex_t lock; /* of the table */
	struct watched *table;
	pthread_t thread;
	bool started;
};

static void watched_free(struct watched *w)
{
	if (w->fd >= 0)
		close(w->fd);
	free(w->id);
	free(w);
}

/* ---- the thread ---- */

static void ended(struct en_exits *x, struct watched *w)
{
	(void)epoll_ctl(x->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	pthread_mutex_lock(&x->lock);
	HASH_DEL(x->table, w); /* NOLINT(clang-analyzer-unix.Malloc): uthash is right */
	pthread_mutex_unlock(&x->lock);
	en_pulse_begin(x->pulse, "the end of a container");
	x->fn(x->ctx, w->id);
	en_pulse_end(x->pulse);
	watched_free(w);
}

static void *watch_loop(void *ctx)
{
	struct en_exits *x = ctx;
	struct epoll_event events[EVENTS_MAX];

	for (;;) {
		int n = epoll_wait(x->epoll_fd, events, EVENTS_MAX, -1);

		if (n < 0 && errno != EINTR)
			return NULL;
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == NULL) /* to stop */
				return NULL;
			ended(x, events[i].data.ptr);
		}
	}
}

static int start(struct en_exits *x, struct err *err)
{
	struct epoll_event stop = {.events = EPOLLIN};

	x->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	x->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (x->epoll_fd < 0 || x->stop_fd < 0 ||
	    epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->stop_fd, &stop) != 0)
		return err_set(err, ERR_IO, "watch of processes: %s", strerror(errno));
	if (pthread_create(&x->thread, NULL, watch_loop, x) != 0)
		return err_set(err, ERR_IO, "watch of processes: no thread");
	x->started = true;
	return 0;
}

int en_exits_new(void (*fn)(void *ctx, const char *id), void *ctx, struct en_pulses *pulses,
		 struct en_exits **ret, struct err *err)
{
	struct en_exits *x = calloc(1, sizeof(*x));
	int r;

	if (x == NULL)
		return err_set(err, ERR_NOMEM, "watch of processes: no memory");
	*x = (struct en_exits){.fn = fn, .ctx = ctx, .epoll_fd = -1, .stop_fd = -1};
	x->pulse = en_pulse_add(pulses, "exits");
	pthread_mutex_init(&x->lock, NULL);
	r = start(x, err);
	if (r == 0)
		*ret = x;
	else
		en_exits_free(x);
	return r;
}

void en_exits_free(struct en_exits *x)
{
	const uint64_t one = 1;
	struct watched *w, *next;

	if (x == NULL)
		return;
	if (x->started) {
		(void)!write(x->stop_fd, &one, sizeof(one));
		pthread_join(x->thread, NULL);
	}
	HASH_ITER(hh, x->table, w, next) {
		HASH_DEL(x->table, w); /* NOLINT(clang-analyzer-unix.Malloc): uthash is right */
		watched_free(w);
	}
	if (x->epoll_fd >= 0)
		close(x->epoll_fd);
	if (x->stop_fd >= 0)
		close(x->stop_fd);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

/* ---- watching ---- */

/* Under the lock: into the table first, so that the thread finds it there. */
static int add(struct en_exits *x, struct watched *w, struct err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = w};

	HASH_ADD_KEYPTR(hh, x->table, w->id, strlen(w->id), w);
	if (!HASH_ADDED(w, hh))
		return err_set(err, ERR_NOMEM, "watch of processes: no memory");
	if (epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, w->fd, &event) == 0)
		return 0;
	HASH_DEL(x->table, w);
	return err_set(err, ERR_IO, "watch of %.130s: %s", w->id, strerror(errno));
}

static struct watched *watched_new(const char *id, uint32_t pid, int *ret_errno)
{
	struct watched *w = calloc(1, sizeof(*w));

	*ret_errno = ENOMEM;
	if (w == NULL)
		return NULL;
	w->fd = -1;
	w->id = strdup(id);
	if (w->id != NULL) {
		w->fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0U);
		*ret_errno = errno;
	}
	if (w->fd >= 0)
		return w;
	watched_free(w);
	return NULL;
}

int en_exits_watch(struct en_exits *x, const char *id, uint32_t pid, struct err *err)
{
	struct watched *w = NULL;
	int r = 0, e = 0;

	if (pid == 0 || pid > INT32_MAX)
		return err_set(err, ERR_NOT_FOUND, "watch of %.130s: process %u", id, pid);
	pthread_mutex_lock(&x->lock);
	HASH_FIND_STR(x->table, id, w);
	if (w == NULL) {
		w = watched_new(id, pid, &e);
		if (w == NULL)
			r = err_set(err,
				    e == ESRCH    ? ERR_NOT_FOUND
				    : e == ENOMEM ? ERR_NOMEM
						  : ERR_IO,
				    "watch of %.130s: process %u: %s", id, pid, strerror(e));
		else
			r = add(x, w, err);
		if (r != 0 && w != NULL)
			watched_free(w);
	}
	pthread_mutex_unlock(&x->lock);
	return r;
}

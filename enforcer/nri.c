#include "enforcer/nri.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "enforcer/nri_internal.h"

#define PATIENCE_MS 30000
#define WAIT_MIN_MS 100
#define WAIT_MAX_MS 1000
#define QUIET_MS 60000 /* a connection that held so long starts the back-off anew */
#define READ_SIZE 65536

int64_t nri_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void nri_wake(struct en_nri *n)
{
	const uint64_t one = 1;

	(void)!write(n->wake_fd, &one, sizeof(one));
}

static void drain(int fd)
{
	uint64_t count;

	(void)!read(fd, &count, sizeof(count));
}

static bool stopping(struct en_nri *n)
{
	bool ret;

	pthread_mutex_lock(&n->lock);
	ret = n->stopping;
	pthread_mutex_unlock(&n->lock);
	return ret;
}

/* ---- one connection, on the first thread ---- */

static int connect_to(const char *path, int *ret_fd, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return err_set(err, ERR_INVALID, "%.120s: the name is too long for a socket", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return ERR_IO;
	}
	*ret_fd = fd;
	return 0;
}

static int write_some(struct en_nri *n, int fd, struct err *err)
{
	const struct buf *b = en_nri_session_output(n->session);
	ssize_t sent;

	if (b->len == 0)
		return 0;
	sent = send(fd, b->data, b->len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent >= 0)
		en_nri_session_sent(n->session, (size_t)sent);
	else if (errno != EAGAIN && errno != EINTR)
		return err_set(err, ERR_IO, "NRI: %s", strerror(errno));
	return 0;
}

static int read_some(struct en_nri *n, int fd, char *data, struct err *err)
{
	ssize_t got = recv(fd, data, READ_SIZE, MSG_DONTWAIT);

	if (got > 0)
		return en_nri_session_feed(n->session, data, (size_t)got, err);
	if (got == 0)
		return err_set(err, ERR_IO, "the runtime closed the connection");
	if (errno != EAGAIN && errno != EINTR)
		return err_set(err, ERR_IO, "NRI: %s", strerror(errno));
	return 0;
}

void nri_note_synchronized(struct en_nri *n)
{
	const struct en_nri_status *s = en_nri_session_status(n->session);
	char runtime[80], version[80];

	pthread_mutex_lock(&n->lock);
	n->figures.synchronized = true;
	n->figures.validates = s->validates;
	n->figures.connections++;
	memcpy(n->figures.runtime, s->runtime, sizeof(s->runtime));
	memcpy(n->figures.runtime_version, s->runtime_version, sizeof(s->runtime_version));
	pthread_mutex_unlock(&n->lock);
	log_event(n->o.log, LOG_LEVEL_INFO, "nri-connected", "runtime=%s version=%s validate=%d",
		  log_quote(s->runtime, runtime, sizeof(runtime)),
		  log_quote(s->runtime_version, version, sizeof(version)), s->validates);
	if (n->h.synchronized != NULL)
		n->h.synchronized(n->h.synchronized_ctx);
}

static int wait_ms(struct en_nri *n, int64_t begin_us)
{
	const struct en_nri_status *s = en_nri_session_status(n->session);
	int ms = nri_jobs_wait_ms(n);
	int64_t left;

	if (s->registered && s->configured)
		return ms;
	left = n->o.patience_ms - (nri_now_us() - begin_us) / 1000;
	left = left < 0 ? 0 : left;
	return ms < 0 || left < ms ? (int)left : ms;
}

static int serve_step(struct en_nri *n, int fd, int64_t begin_us, char *data, struct err *err)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = n->wake_fd, .events = POLLIN}};
	const struct en_nri_status *s = en_nri_session_status(n->session);
	int rc = 0;

	if (en_nri_session_output(n->session)->len > 0)
		p[0].events = POLLIN | POLLOUT;
	if (poll(p, 2, wait_ms(n, begin_us)) < 0 && errno != EINTR)
		return err_set(err, ERR_IO, "NRI: %s", strerror(errno));
	if (p[1].revents != 0)
		drain(n->wake_fd);
	if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
		rc = read_some(n, fd, data, err);
	if (rc == 0)
		rc = nri_jobs_collect(n, err);
	if (rc == 0)
		rc = write_some(n, fd, err);
	if (rc == 0 && !(s->registered && s->configured) &&
	    nri_now_us() - begin_us >= n->o.patience_ms * 1000)
		rc = err_set(err, ERR_IO, "the runtime did not %s within %lld ms",
			     s->registered ? "configure us" : "answer the registration",
			     (long long)n->o.patience_ms);
	return rc;
}

/* Until the connection ends, whose reason is in err, or the end of all. */
static int serve(struct en_nri *n, int fd, struct err *err)
{
	struct en_nri_session_options o = {
		.name = n->o.name,
		.idx = n->o.idx,
		.no_validate = n->no_validate,
		.on_request = nri_on_request,
		.ctx = n,
	};
	char *data = malloc(READ_SIZE);
	const struct en_nri_status *s;
	int64_t begin = nri_now_us();
	int rc;

	rc = data != NULL ? en_nri_session_new(&o, &n->session, err)
			  : err_set(err, ERR_NOMEM, "NRI: no memory");
	if (rc != 0) {
		free(data);
		return rc;
	}
	pthread_mutex_lock(&n->lock);
	n->connection = ++n->last_connection;
	n->figures.connected = true;
	pthread_mutex_unlock(&n->lock);
	while (rc == 0 && !stopping(n))
		rc = serve_step(n, fd, begin, data, err);
	s = en_nri_session_status(n->session);
	/* A runtime that does not know an event hangs up without a word. One that tells its NRI version, or has
	 * gone on, knows it. */
	n->no_validate = rc != 0 && s->configured && !s->begun && s->validates &&
			 !en_nri_knows_validate("", "", s->nri_version);
	pthread_mutex_lock(&n->lock);
	n->connection = 0;
	n->figures.connected = n->figures.synchronized = false;
	pthread_mutex_unlock(&n->lock);
	en_nri_session_free(n->session);
	n->session = NULL;
	nri_jobs_drop(n);
	free(data);
	return rc;
}

/* ---- for ever, on the first thread ---- */

/* Waits, with up to half more at random; jobs of the lost connection are collected meanwhile. */
static void pause_for(struct en_nri *n, int64_t ms)
{
	int64_t until =
		nri_now_us() + (ms + (int64_t)rng_below(&n->rng, (uint64_t)ms / 2 + 1)) * 1000;
	int64_t left;

	while (!stopping(n) && (left = (until - nri_now_us() + 999) / 1000) > 0) {
		struct pollfd p = {.fd = n->wake_fd, .events = POLLIN};

		if (poll(&p, 1, (int)left) > 0)
			drain(n->wake_fd);
		(void)nri_jobs_collect(n, NULL);
	}
}

static void note_failure(struct en_nri *n, const struct err *err)
{
	char quoted[ERR_MSG_CAP];
	bool first;

	pthread_mutex_lock(&n->lock);
	first = strcmp(n->figures.why, err->msg) != 0;
	n->figures.failures++;
	memcpy(n->figures.why, err->msg, sizeof(n->figures.why));
	pthread_mutex_unlock(&n->lock);
	log_event(n->o.log, first ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "nri-lost", "reason=%s",
		  log_quote(err->msg, quoted, sizeof(quoted)));
}

static void *io_loop(void *ctx)
{
	struct en_nri *n = ctx;
	int64_t wait = n->o.wait_min_ms;

	while (!stopping(n)) {
		struct err err = ERR_INIT;
		int64_t begin = nri_now_us();
		bool given = n->o.fd >= 0;
		int fd = n->o.fd;
		int rc = given ? 0 : connect_to(n->o.socket, &fd, &err);

		if (rc == 0) {
			rc = serve(n, fd, &err);
			close(fd);
		}
		if (rc != 0)
			note_failure(n, &err);
		if (given)
			break;
		if (nri_now_us() - begin > (int64_t)QUIET_MS * 1000)
			wait = n->o.wait_min_ms;
		pause_for(n, wait);
		wait = wait * 2 < n->o.wait_max_ms ? wait * 2 : n->o.wait_max_ms;
	}
	pthread_mutex_lock(&n->lock);
	n->figures.ended = true;
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

/* ---- life ---- */

static struct en_nri_options with_defaults(const struct en_nri_options *o)
{
	struct en_nri_options r = *o;

	r.socket = o->socket != NULL ? o->socket : EN_NRI_SOCKET;
	r.name = o->name != NULL ? o->name : "tessera";
	r.idx = o->idx != NULL ? o->idx : "10";
	r.patience_ms = o->patience_ms > 0 ? o->patience_ms : PATIENCE_MS;
	r.wait_min_ms = o->wait_min_ms > 0 ? o->wait_min_ms : WAIT_MIN_MS;
	r.wait_max_ms = o->wait_max_ms > 0 ? o->wait_max_ms : WAIT_MAX_MS;
	return r;
}

/* Name and index are checked before anything is tried. */
static int check_names(const struct en_nri_options *o, struct err *err)
{
	struct en_nri_session_options so = {.name = o->name, .idx = o->idx};
	struct en_nri_session *s = NULL;
	int rc = en_nri_session_new(&so, &s, err);

	if (rc == 0)
		en_nri_session_free(s);
	return rc;
}

int en_nri_start(const struct en_nri_options *o, const struct en_nri_handler *h,
		 struct en_nri **ret, struct err *err)
{
	struct en_nri_options full = with_defaults(o);
	struct en_nri *n;
	int rc = check_names(&full, err);

	if (rc != 0)
		return rc;
	n = calloc(1, sizeof(*n));
	if (n == NULL)
		return err_set(err, ERR_NOMEM, "NRI: no memory");
	n->o = full;
	n->h = *h;
	n->pulse = en_pulse_add(o->pulses, "nri");
	rng_init(&n->rng, o->seed);
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->work, NULL);
	n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->wake_fd < 0)
		rc = err_set(err, ERR_IO, "NRI: %s", strerror(errno));
	if (rc == 0 && pthread_create(&n->work_thread, NULL, nri_work_loop, n) == 0)
		n->threads++;
	if (n->threads == 1 && pthread_create(&n->io_thread, NULL, io_loop, n) == 0)
		n->threads++;
	if (rc == 0 && n->threads < 2)
		rc = err_set(err, ERR_IO, "NRI: no thread");
	if (rc == 0)
		*ret = n;
	else
		en_nri_stop(n);
	return rc;
}

void en_nri_stop(struct en_nri *n)
{
	if (n == NULL)
		return;
	pthread_mutex_lock(&n->lock);
	n->stopping = true;
	pthread_cond_broadcast(&n->work);
	pthread_mutex_unlock(&n->lock);
	if (n->wake_fd >= 0)
		nri_wake(n);
	if (n->threads > 1)
		pthread_join(n->io_thread, NULL);
	if (n->threads > 0)
		pthread_join(n->work_thread, NULL);
	nri_jobs_free(n);
	if (n->wake_fd >= 0)
		close(n->wake_fd);
	pthread_cond_destroy(&n->work);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

void en_nri_get_figures(struct en_nri *n, struct en_nri_figures *ret)
{
	pthread_mutex_lock(&n->lock);
	*ret = n->figures;
	pthread_mutex_unlock(&n->lock);
}

/* ---- the plugin as handler ---- */

static void plugin_connected(void *ctx)
{
	en_plugin_connected(ctx);
}

static void plugin_handle(void *ctx, struct en_nri_request *take_r, struct en_nri_reply *ret)
{
	en_plugin_handle(ctx, take_r, ret);
}

static void plugin_undo(void *ctx, const char *container_id)
{
	en_plugin_undo(ctx, container_id);
}

static bool plugin_leaves(void *ctx, const struct en_nri_request *r)
{
	return en_plugin_leaves(ctx, r);
}

struct en_nri_handler en_nri_plugin_handler(struct en_plugin *p)
{
	return (struct en_nri_handler){
		.connected = plugin_connected,
		.handle = plugin_handle,
		.undo = plugin_undo,
		.leaves = plugin_leaves,
		.ctx = p,
	};
}

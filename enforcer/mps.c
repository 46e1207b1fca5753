#include "enforcer/mps.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "enforcer/mps_internal.h"

#define SWEEP_MS 30000
#define STEP_MAX_MS 60000
#define FEEDS_MAX 16 /* events that follow from one another in a step */

int64_t mps_now(const struct en_mps *m)
{
	struct timespec t;

	if (m->o.now != NULL)
		return m->o.now(m->o.now_ctx);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void mps_say(struct en_mps *m, const char *event, const char *fmt, ...)
{
	char text[ERR_MSG_CAP], quoted[ERR_MSG_CAP];
	bool news;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&m->lock);
	news = strcmp(m->why, text) != 0;
	memcpy(m->why, text, sizeof(m->why));
	pthread_mutex_unlock(&m->lock);
	if (news)
		log_event(m->o.log, LOG_LEVEL_WARN, event, "why=%s",
			  log_quote(text, quoted, sizeof(quoted)));
}

void mps_wake(struct en_mps *m)
{
	const uint64_t one = 1;

	if (m->wake >= 0 && write(m->wake, &one, sizeof(one)) < 0)
		return; /* full: it is awake */
}

/* ---- life ---- */

static char *copy(const char *s, const char *dflt, bool *ok)
{
	char *c = strdup(s != NULL ? s : dflt);

	if (c == NULL)
		*ok = false;
	return c;
}

static int check_dirs(const struct en_mps_options *o, struct err *err)
{
	const struct {
		const char *name, *path;
		size_t max;
	} dirs[] = {
		{"pipe_dir", o->pipe_dir, EN_MPS_PIPE_MAX - sizeof(EN_MPS_SERVER "/ts_") - 37},
		{"log_dir", o->log_dir, 240},
		{"run_dir", o->run_dir, 200},
	};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		const char *p = dirs[i].path;

		if (p == NULL)
			continue;
		if (p[0] != '/' || p[1] == '\0' || strstr(p, "/../") != NULL)
			return err_set(err, ERR_INVALID, "%s: \"%.100s\" is not an absolute path",
				       dirs[i].name, p);
		if (strlen(p) > dirs[i].max)
			return err_set(err, ERR_INVALID,
				       "%s: \"%.100s\" has %zu bytes, at most %zu fit",
				       dirs[i].name, p, strlen(p), dirs[i].max);
	}
	return 0;
}

int en_mps_new(const struct en_mps_options *o, struct en_mps **ret, struct err *err)
{
	struct en_mps *m;
	bool ok = true;
	int r = check_dirs(o, err);

	if (r != 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	m->o = *o;
	m->o.control = copy(o->control, "nvidia-cuda-mps-control", &ok);
	m->o.pipe_dir = copy(o->pipe_dir, "/run/nvidia-mps", &ok);
	m->o.log_dir = copy(o->log_dir, "/var/log/nvidia-mps", &ok);
	m->o.run_dir = copy(o->run_dir, "/run/tessera/mps", &ok);
	m->o.proc = copy(o->proc, "/proc", &ok);
	m->o.accepted_status = copy(o->accepted_status, "", &ok);
	if (o->devices != NULL)
		m->devices = copy(o->devices, "", &ok);
	m->o.devices = NULL;
	m->legacy = o->legacy;
	m->running_legacy = o->legacy;
	m->o.ask_limit_ms = o->ask_limit_ms > 0 ? o->ask_limit_ms : 3000;
	m->o.command_limit_ms = o->command_limit_ms > 0 ? o->command_limit_ms : 10000;
	m->o.orphan_ms = o->orphan_ms > 0 ? o->orphan_ms : 300000;
	m->pidfd = -1;
	m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
	if (!ok || m->wake < 0) {
		en_mps_free(m);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	snprintf(m->env_pipe, sizeof(m->env_pipe), "CUDA_MPS_PIPE_DIRECTORY=%s", m->o.pipe_dir);
	snprintf(m->env_log, sizeof(m->env_log), "CUDA_MPS_LOG_DIRECTORY=%s", m->o.log_dir);
	m->env[0] = m->env_pipe;
	m->env[1] = m->env_log;
	/* The first would renumber the GPUs, the second wins over our -p. */
	m->env[2] = "CUDA_VISIBLE_DEVICES";
	m->env[3] = "CUDA_MPS_PROTOCOL_VERSION";
	en_mps_core_init(&m->core, &o->times, mps_now(m));
	*ret = m;
	return 0;
}

static void free_const(const char *p)
{
	void *q;

	memcpy(&q, &p, sizeof(q));
	free(q);
}

void en_mps_free(struct en_mps *m)
{
	if (m == NULL)
		return;
	en_mps_thread_stop(m);
	mps_ns_free_all(m);
	if (m->pidfd >= 0)
		close(m->pidfd);
	if (m->wake >= 0)
		close(m->wake);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free_const(m->o.control);
	free_const(m->o.pipe_dir);
	free_const(m->o.log_dir);
	free_const(m->o.run_dir);
	free_const(m->o.proc);
	free_const(m->o.accepted_status);
	free(m->devices);
	free(m);
}

/* ---- wishes ---- */

void en_mps_want(struct en_mps *m, bool wanted)
{
	pthread_mutex_lock(&m->lock);
	m->pending_want = true;
	m->want_value = wanted;
	pthread_mutex_unlock(&m->lock);
	mps_wake(m);
}

void en_mps_recycle(struct en_mps *m, const char *why)
{
	mps_say(m, "mps_recycle", "%s; it will be started anew when no client is left", why);
	pthread_mutex_lock(&m->lock);
	m->recycle_when_idle = true;
	pthread_mutex_unlock(&m->lock);
	mps_wake(m);
}

void en_mps_wedged(struct en_mps *m, const char *why)
{
	mps_say(m, "mps_wedged", "%s", why);
	pthread_mutex_lock(&m->lock);
	m->pending_wedge = true;
	pthread_mutex_unlock(&m->lock);
	mps_wake(m);
}

static bool equal(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

int en_mps_configure(struct en_mps *m, bool legacy, const char *devices, struct err *err)
{
	char *list = devices != NULL ? strdup(devices) : NULL, *old = NULL;

	if (devices != NULL && list == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	pthread_mutex_lock(&m->lock);
	if (m->legacy != legacy || !equal(m->devices, list)) {
		m->legacy = legacy;
		old = m->devices;
		m->devices = list;
		list = NULL;
		if (m->status_pid != 0)
			m->recycle_when_idle = true;
	}
	pthread_mutex_unlock(&m->lock);
	free(list);
	free(old);
	return 0;
}

/* ---- steps ---- */

/* A daemon found may have been started with another configuration. */
static void check_adopted(struct en_mps *m)
{
	struct buf b = BUF_INIT;
	const char *conf;

	pthread_mutex_lock(&m->lock);
	mps_conf_put(&b, m->devices, m->o.audit_log);
	conf = buf_str(&b);
	if (conf == NULL || m->running_legacy != m->legacy ||
	    m->running_digest != mps_conf_digest(conf, m->legacy, m->o.legacy_multiuser))
		m->recycle_when_idle = true;
	pthread_mutex_unlock(&m->lock);
	buf_fini(&b);
}

/* Does what the core asked for; *ret_next is the event that follows from it, false: none. */
static bool perform(struct en_mps *m, enum en_mps_action action, enum en_mps_event *ret_next)
{
	switch (action) {
	case EN_MPS_DO_LOOK:
		*ret_next = mps_look(m);
		if (*ret_next == EN_MPS_EV_OURS_FOUND)
			check_adopted(m);
		return true;
	case EN_MPS_DO_SPAWN:
		*ret_next = EN_MPS_EV_NO_START;
		return !mps_spawn(m);
	case EN_MPS_DO_ASK:
		*ret_next = mps_ask(m);
		return true;
	case EN_MPS_DO_QUIT:
		mps_quit(m);
		return false;
	case EN_MPS_DO_KILL:
		mps_kill(m);
		return false;
	case EN_MPS_DO_CLEAN:
		mps_clean(m);
		return false;
	case EN_MPS_DO_READY:
		m->next_sweep_ms = mps_now(m) + SWEEP_MS;
		m->ghost_looks = 0;
		pthread_mutex_lock(&m->lock);
		m->orphans_from_ms = mps_now(m) + (m->claimed ? 0 : m->o.orphan_ms);
		pthread_mutex_unlock(&m->lock);
		if (!m->running_legacy)
			mps_ns_reconcile(m);
		return false;
	default:
		return false;
	}
}

/* An event and all that follow from it. */
static void feed(struct en_mps *m, enum en_mps_event ev)
{
	for (int i = 0; i < FEEDS_MAX; i++) {
		enum en_mps_state before, after;
		enum en_mps_action action;
		bool more;

		pthread_mutex_lock(&m->lock);
		before = m->core.state;
		action = en_mps_core_event(&m->core, ev, mps_now(m));
		after = m->core.state;
		if (after == EN_MPS_READY || after == EN_MPS_OFF)
			m->why[0] = '\0';
		if (action == EN_MPS_DO_SPAWN)
			m->recycle_when_idle = false;
		pthread_mutex_unlock(&m->lock);
		if (before != after)
			log_event(m->o.log, LOG_LEVEL_INFO, "mps_state", "from=%s to=%s event=%s",
				  en_mps_state_name(before), en_mps_state_name(after),
				  en_mps_event_name(ev));
		more = perform(m, action, &ev);
		pthread_mutex_lock(&m->lock);
		m->status_pid = m->pid;
		pthread_cond_broadcast(&m->changed);
		pthread_mutex_unlock(&m->lock);
		if (before != after && m->o.changed != NULL)
			m->o.changed(m->o.changed_ctx);
		if (!more)
			return;
	}
}

/* What others asked for since the last step. */
static void take_wishes(struct en_mps *m)
{
	bool want, value, wedge;

	pthread_mutex_lock(&m->lock);
	want = m->pending_want;
	value = m->want_value;
	wedge = m->pending_wedge;
	m->pending_want = false;
	m->pending_wedge = false;
	pthread_mutex_unlock(&m->lock);
	if (want)
		feed(m, value ? EN_MPS_EV_WANT : EN_MPS_EV_UNWANT);
	if (wedge)
		feed(m, EN_MPS_EV_WEDGED);
}

/* True where namespaces were dropped, or are to be made again. */
static bool ns_work(struct en_mps *m)
{
	struct mps_ns *e, *next;
	bool work = false;

	pthread_mutex_lock(&m->lock);
	HASH_ITER(hh, m->ns, e, next)
		work = work || (!e->making && (e->dropping || e->generation == 0));
	pthread_mutex_unlock(&m->lock);
	return work;
}

static void look_after(struct en_mps *m)
{
	int64_t now = mps_now(m);
	bool idle, hurry;

	pthread_mutex_lock(&m->lock);
	hurry = m->recycle_when_idle || m->sweep_now;
	m->sweep_now = false;
	pthread_mutex_unlock(&m->lock);
	if (now < m->next_sweep_ms && !hurry)
		return;
	m->next_sweep_ms = now + SWEEP_MS;
	idle = mps_look_at_clients(m);
	if (idle) {
		feed(m, EN_MPS_EV_RECYCLE);
		return;
	}
	if (!m->running_legacy && ns_work(m))
		mps_ns_reconcile(m);
	else if (!m->running_legacy)
		mps_ns_sweep(m);
}

int64_t en_mps_step(struct en_mps *m)
{
	uint64_t drained;
	int64_t due, now;

	while (read(m->wake, &drained, sizeof(drained)) > 0)
		;
	take_wishes(m);
	if (mps_exited(m))
		feed(m, EN_MPS_EV_EXITED);
	feed(m, EN_MPS_EV_TIME);
	if (m->core.state == EN_MPS_READY)
		look_after(m);
	now = mps_now(m);
	pthread_mutex_lock(&m->lock);
	due = en_mps_core_due(&m->core);
	if (m->core.state == EN_MPS_READY && m->next_sweep_ms < due)
		due = m->next_sweep_ms;
	pthread_mutex_unlock(&m->lock);
	due = due > now ? due - now : 0;
	return due < STEP_MAX_MS ? due : STEP_MAX_MS;
}

int en_mps_fd(struct en_mps *m)
{
	return m->pidfd;
}

/* ---- what it looks like from outside ---- */

void en_mps_get_status(struct en_mps *m, struct en_mps_status *ret)
{
	memset(ret, 0, sizeof(*ret));
	pthread_mutex_lock(&m->lock);
	ret->state = m->core.state;
	ret->usable = en_mps_core_usable(&m->core);
	ret->legacy = m->status_pid != 0 ? m->running_legacy : m->legacy;
	if (!ret->usable) {
		ret->reason = m->core.state == EN_MPS_BLOCKED ? "MpsBlocked"
			      : m->core.bad_is_fault          ? "MpsFault"
							      : "MpsNotReady";
		snprintf(ret->why, sizeof(ret->why), "%s",
			 m->why[0] != '\0'             ? m->why
			 : m->core.state == EN_MPS_OFF ? "MPS is switched off"
						       : "MPS is starting");
	}
	ret->pid = m->status_pid;
	ret->state_ms = mps_now(m) - m->core.since_ms;
	ret->starts = m->core.starts;
	ret->generation = m->core.readies;
	ret->clients = m->clients;
	ret->ghosts = m->ghosts;
	ret->recycle_when_idle = m->recycle_when_idle;
	ret->namespaces = HASH_COUNT(m->ns);
	ret->namespaces_bad = m->ns_bad;
	ret->drains = m->drains;
	ret->drain_failures = m->drain_failures;
	pthread_mutex_unlock(&m->lock);
}

bool en_mps_owns(struct en_mps *m, uint32_t pid)
{
	bool ours;

	pthread_mutex_lock(&m->lock);
	ours = m->status_pid > 0 && (uint32_t)m->status_pid == pid;
	for (size_t i = 0; i < m->server_count && !ours; i++)
		ours = m->servers[i] == pid;
	pthread_mutex_unlock(&m->lock);
	return ours;
}

/* ---- the thread ---- */

static void *thread_main(void *ctx)
{
	struct en_mps *m = ctx;

	for (;;) {
		int64_t wait = en_mps_step(m);
		struct pollfd p[2] = {{.fd = m->wake, .events = POLLIN},
				      {.fd = m->pidfd, .events = POLLIN}};
		bool stop;

		pthread_mutex_lock(&m->lock);
		stop = m->thread_stop;
		pthread_mutex_unlock(&m->lock);
		if (stop)
			return NULL;
		(void)poll(p, 2, (int)wait);
	}
}

int en_mps_thread_start(struct en_mps *m, struct err *err)
{
	int e;

	m->thread_stop = false;
	e = pthread_create(&m->thread, NULL, thread_main, m);
	if (e != 0)
		return err_set(err, ERR_IO, "pthread_create: %s", strerror(e));
	m->has_thread = true;
	return 0;
}

void en_mps_thread_stop(struct en_mps *m)
{
	if (!m->has_thread)
		return;
	pthread_mutex_lock(&m->lock);
	m->thread_stop = true;
	pthread_mutex_unlock(&m->lock);
	mps_wake(m);
	pthread_join(m->thread, NULL);
	m->has_thread = false;
}

bool en_mps_shutdown(struct en_mps *m, int64_t limit_ms)
{
	struct timespec until;
	bool off;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(limit_ms / 1000);
	until.tv_nsec += (long)(limit_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	en_mps_want(m, false);
	pthread_mutex_lock(&m->lock);
	while (!(off = m->core.state == EN_MPS_OFF && !m->pending_want && m->status_pid == 0)) {
		if (pthread_cond_clockwait(&m->changed, &m->lock, CLOCK_MONOTONIC, &until) != 0)
			break;
	}
	pthread_mutex_unlock(&m->lock);
	return off;
}

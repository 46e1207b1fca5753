/* One thread of its own: it looks at the hardware, gives the plugin its picture of the node, looks after
 * limits and publishes. Everything else has its threads: NRI, hooks, MPS. */
#include "enforcer/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/exits.h"
#include "enforcer/hook_server.h"
#include "enforcer/inventory.h"
#include "enforcer/inventory_publish.h"
#include "enforcer/limits.h"
#include "enforcer/mps.h"
#include "enforcer/nri.h"
#include "enforcer/probe.h"
#include "enforcer/run_options.h"
#include "kube/client.h"

#define DRAIN_MS 1000 /* StopContainer is waited for that long */
#define FLUSH_MS 3000 /* of the last condition, at the end */
#define TICK_MS 1000
#define PIDS_MAX 1024
#define PROCS_MAX ((size_t)64 << 10)

struct agent {
	struct en_run_options o;
	struct log *log;
	int lock_fd, signal_fd, wake_fd;
	struct en_prober *prober;
	struct en_probe probe;
	struct en_limits *limits;
	struct en_mps *mps; /* NULL: not ours */
	struct en_plugin *plugin;
	struct en_nri *nri;
	struct en_hook_server *hooks;
	struct en_exits *exits;
	struct ku_client *client;
	struct en_publisher *publisher; /* NULL: nothing is published */
	char mps_run_dir[EN_PATH_CAP], cgroup_mount[EN_CGROUP_CAP];
	_Atomic bool synchronized; /* limits are to be looked after now */
	bool unclaimed;            /* MPS namespaces may be there that are not known to a->mps */
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static const char *given(const char *option)
{
	return option[0] != '\0' ? option : NULL;
}

/* ---- what the plugin wants from the rest ---- */

static int namespace_make(void *ctx, const char *id, int percent, size_t gpu_count,
			  const char *const *gpus, char ret_dir[EN_PATH_CAP], struct err *err)
{
	struct agent *a = ctx;

	(void)gpu_count;
	(void)gpus;
	if (a->mps == NULL)
		return err_set(err, ERR_CONFLICT, "MPS is not run by Tessera on this node");
	return en_mps_namespace_make(a->mps, id, percent, ret_dir, err);
}

static void namespace_drop(void *ctx, const char *id)
{
	struct agent *a = ctx;

	if (a->mps != NULL)
		en_mps_namespace_drop(a->mps, id);
}

/* The processes in a cgroup. */
static size_t pids_of(const char *cgroup, uint32_t pids[PIDS_MAX])
{
	char path[EN_CGROUP_CAP + 16], *text, *at, *line;
	size_t len, count = 0;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	if (file_read(path, PROCS_MAX, &text, &len, NULL) != 0)
		return 0;
	at = text;
	while (count < PIDS_MAX && (line = strsep(&at, "\n")) != NULL) {
		unsigned long pid = strtoul(line, NULL, 10);

		if (pid > 0 && pid <= INT32_MAX)
			pids[count++] = (uint32_t)pid;
	}
	free(text);
	return count;
}

/* A client that is killed in the middle of a kernel takes its neighbours along. */
static void stopping(void *ctx, const struct en_holding *h)
{
	struct agent *a = ctx;
	char cgroup[EN_CGROUP_CAP], quoted[ERR_MSG_CAP];
	uint32_t pids[PIDS_MAX];
	struct err err = ERR_INIT;
	size_t count;

	if (a->mps == NULL || h->grant.kind != ST_KIND_SHARE || h->cgroup[0] == '\0' ||
	    en_cgroup_join(a->cgroup_mount, h->cgroup, cgroup, NULL) != 0)
		return;
	count = pids_of(cgroup, pids);
	if (count > 0 && en_mps_drain(a->mps, pids, count, DRAIN_MS, &err) != 0)
		log_event(a->log, LOG_LEVEL_WARN, "mps-drain", "id=%s reason=%s", h->id,
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

/* Told by the runtime, too, but maybe when the cgroup is gone. */
static void on_exit_of(void *ctx, const char *id)
{
	en_plugin_exited(((struct agent *)ctx)->plugin, id);
}

static void running(void *ctx, const struct en_holding *h)
{
	const struct agent *a = ctx;
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;
	int rc = en_exits_watch(a->exits, h->id, h->pid, &err);

	if (rc == ERR_NOT_FOUND)
		en_plugin_exited(a->plugin, h->id);
	else if (rc != 0)
		log_event(a->log, LOG_LEVEL_WARN, "exit-watch", "id=%s reason=%s", h->id,
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

static void wake(const struct agent *a)
{
	const uint64_t one = 1;

	(void)!write(a->wake_fd, &one, sizeof(one));
}

/* Containers are not refused for longer than MPS takes to start. */
static void on_mps_changed(void *ctx)
{
	wake(ctx);
}

static void on_synchronized(void *ctx)
{
	struct agent *a = ctx;

	atomic_store(&a->synchronized, true);
	wake(a);
}

static int on_hook(void *ctx, const struct en_limit_request *r, struct err *err)
{
	return en_plugin_limit(((struct agent *)ctx)->plugin, r, err);
}

static bool is_ours(void *ctx, uint32_t pid)
{
	const struct agent *a = ctx;

	return (a->mps != NULL && en_mps_owns(a->mps, pid)) ||
	       (a->plugin != NULL && en_plugin_owns(a->plugin, pid));
}

/* ---- the node ---- */

/* Whole GPUs that MPS may use, joined by ','; NULL: all, or no memory (as before then). */
static char *mps_devices(const struct en_probe *p)
{
	struct buf b = BUF_INIT;
	bool mig = false;

	for (size_t i = 0; i < p->gpu_count; i++) {
		mig |= p->gpus[i].mig_enabled;
		if (!p->gpus[i].mig_enabled)
			buf_printf(&b, "%s%s", b.len > 0 ? "," : "", p->gpus[i].uuid);
	}
	if (mig && b.len > 0)
		return buf_take(&b);
	buf_fini(&b);
	return NULL;
}

static bool wants_mps(const struct en_probe *p)
{
	for (size_t i = 0; i < p->gpu_count; i++) {
		if (!p->gpus[i].mig_enabled)
			return true;
	}
	return false;
}

static void tell_mps(struct agent *a)
{
	const struct en_probe *p = &a->probe;
	char *devices;

	if (a->mps == NULL)
		return;
	if (p->driver_ok && wants_mps(p)) {
		devices = mps_devices(p);
		(void)en_mps_configure(a->mps, (p->features & EN_FEATURE_MPS_V3) == 0, devices,
				       NULL); /* without memory: next time */
		free(devices);
	}
	en_mps_want(a->mps, p->driver_ok && wants_mps(p));
}

static void tell_plugin(struct agent *a, const struct en_mps_status *mps)
{
	struct en_node_gpu gpus[ST_GPUS_MAX];
	struct en_node node = {
		.name = a->o.node,
		.gpus = gpus,
		.mps_ready = mps->usable,
		.mps_why = mps->why,
		.mps_v3 = !mps->legacy,
		.memory_limits = (a->probe.features & EN_FEATURE_MEMORY_LIMITS) != 0 &&
				 a->cgroup_mount[0] != '\0',
	};
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;

	en_probe_to_node(&a->probe, gpus, &node.gpu_count);
	if (en_plugin_set_node(a->plugin, &node, &err) != 0)
		log_event(a->log, LOG_LEVEL_ERROR, "node", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
}

static void publish(struct agent *a, const struct en_mps_status *mps, bool ending)
{
	struct en_readiness r = {
		.stopping = ending,
		.mps_wanted = wants_mps(&a->probe),
		.mps_ready = mps->usable,
		.mps_v3 = !mps->legacy,
		.mps_reason = mps->reason,
		.mps_why = mps->why,
		.limits_ready = a->cgroup_mount[0] != '\0',
		.limits_why = "cgroup v2 is not mounted",
	};
	struct en_nri_figures nri = {.why = "the agent starts"};
	struct en_condition condition;
	char *inventory = NULL;

	if (a->publisher == NULL)
		return;
	if (a->nri != NULL)
		en_nri_get_figures(a->nri, &nri);
	r.nri_ready = nri.synchronized;
	r.nri_why = nri.why;
	en_condition_make(&a->probe, &r, &condition);
	(void)en_inventory_encode(&a->probe, &inventory, NULL); /* without a driver: as it was */
	(void)en_publisher_put(a->publisher, inventory, &condition, NULL);
	free(inventory);
	(void)en_publisher_tick(a->publisher);
}

static void mps_status(struct agent *a, struct en_mps_status *ret)
{
	if (a->mps != NULL)
		en_mps_get_status(a->mps, ret);
	else
		*ret = (struct en_mps_status){
			.usable = true, .legacy = (a->probe.features & EN_FEATURE_MPS_V3) == 0};
}

static void look(struct agent *a, bool probe)
{
	struct en_mps_status mps;
	char quoted[ERR_MSG_CAP];
	struct err err = ERR_INIT;

	if (probe && en_prober_run(a->prober, &a->probe, &err) != 0)
		log_event(a->log, LOG_LEVEL_ERROR, "probe", "reason=%s",
			  log_quote(err.msg, quoted, sizeof(quoted)));
	if (probe)
		tell_mps(a);
	mps_status(a, &mps);
	tell_plugin(a, &mps);
	publish(a, &mps, false);
}

/* Which containers there are is known now: namespaces that are none of theirs may go. */
static void claim(struct agent *a)
{
	if (a->mps == NULL || !a->unclaimed || !en_plugin_claim(a->plugin))
		return;
	a->unclaimed = false;
	en_mps_namespaces_claimed(a->mps);
}

/* ---- start ---- */

/* Two agents would both be called by the runtime. */
static int take_lock(struct agent *a, struct err *err)
{
	char path[EN_PATH_CAP];

	if (mkdir(a->o.run_dir, 0700) != 0 && errno != EEXIST)
		return err_set(err, ERR_IO, "%s: %s", a->o.run_dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/enforcer.lock", a->o.run_dir);
	a->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (a->lock_fd < 0)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	if (flock(a->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return err_set(err, ERR_CONFLICT, "%s is held: an agent runs on this node already",
			       path);
	return 0;
}

static int start_limits(struct agent *a, struct err *err)
{
	const struct en_limits_options lo = {.library = given(a->o.nvml), .smi = a->o.smi};
	struct err why = ERR_INIT;
	char quoted[ERR_MSG_CAP];
	int r = 0;

	if (a->o.cgroup_mount[0] != '\0')
		r = en_cgroup_join(a->o.cgroup_mount, "", a->cgroup_mount, err);
	else if (en_cgroup_mount("/proc", a->cgroup_mount, &why) != 0)
		log_event(a->log, LOG_LEVEL_WARN, "no-memory-limits", "reason=%s",
			  log_quote(why.msg, quoted, sizeof(quoted)));
	return r == 0 ? en_limits_new(&lo, &a->limits, err) : r;
}

static int start_mps(struct agent *a, struct err *err)
{
	const struct en_mps_options mo = {
		.control = a->o.mps_control,
		.pipe_dir = a->o.pipe_dir,
		.log_dir = a->o.mps_log_dir,
		.run_dir = a->mps_run_dir,
		.audit_log = true,
		.changed = on_mps_changed,
		.changed_ctx = a,
		.log = a->log,
	};
	int r;

	if (!a->o.mps)
		return 0;
	snprintf(a->mps_run_dir, sizeof(a->mps_run_dir), "%s/mps", a->o.run_dir);
	r = en_mps_new(&mo, &a->mps, err);
	return r == 0 ? en_mps_thread_start(a->mps, err) : r;
}

static int start_plugin(struct agent *a, struct err *err)
{
	const struct en_agent_ops ops = {
		.namespace_make = namespace_make,
		.namespace_drop = namespace_drop,
		.stopping = stopping,
		.running = running,
		.ctx = a,
	};
	const struct en_plugin_options po = {
		.apply =
			{
				.contract = {.prefix = a->o.prefix, .cdi = a->o.cdi},
				.cdi_devices = a->o.cdi_devices,
				.fail_open = a->o.fail_open,
				.ignore_unplaced = a->o.ignore_unplaced,
				.reserve_mib = (int32_t)a->o.reserve_mib,
				.clients_max = (int32_t)a->o.clients_max,
				.overcommit_permille = (int32_t)a->o.overcommit_permille,
				.pipe_root = a->o.pipe_dir,
				.shm_dir = given(a->o.shm_dir),
				.hook_path = given(a->o.hook_path),
				.hook_socket = a->o.hook_socket,
			},
		.limits = a->cgroup_mount[0] != '\0' ? en_limits_ops(a->limits) : NULL,
		.agent = &ops,
		.cgroup_mount = given(a->cgroup_mount),
		.log = a->log,
	};

	return en_plugin_new(&po, &a->plugin, err);
}

static int start_publisher(struct agent *a, struct err *err)
{
	struct ku_client_options co = {.user_agent = "tessera-enforcer", .log = a->log};
	struct ku_config config;
	char quoted[ERR_MSG_CAP];
	struct err why = ERR_INIT;
	int r;

	if (!a->o.publish)
		return 0;
	r = a->o.kubeconfig[0] != '\0' ? ku_config_load(a->o.kubeconfig, NULL, &config, &why)
				       : ku_config_in_cluster(NULL, &config, &why);
	if (r == ERR_NOT_FOUND && a->o.kubeconfig[0] == '\0') {
		log_event(a->log, LOG_LEVEL_WARN, "nothing-published", "reason=%s",
			  log_quote(why.msg, quoted, sizeof(quoted)));
		return 0;
	}
	if (r != 0)
		return err_set(err, r, "%s", why.msg);
	co.config = &config;
	co.seed = (uint64_t)now_ms() ^ ((uint64_t)getpid() << 32);
	r = ku_client_new(&co, &a->client, err);
	ku_config_fini(&config);
	return r == 0 ? en_publisher_new(a->client, a->o.node, a->log, &a->publisher, err) : r;
}

static int start_nri(struct agent *a, struct err *err)
{
	const char *given_fd = getenv("NRI_PLUGIN_SOCKET");
	struct en_nri_options no = {
		.socket = a->o.nri_socket,
		.name = a->o.nri_name,
		.idx = a->o.nri_index,
		.fd = -1,
		.fail_open = a->o.fail_open,
		.seed = (uint64_t)getpid(),
		.log = a->log,
	};
	struct en_nri_handler h = en_nri_plugin_handler(a->plugin);

	h.synchronized = on_synchronized;
	h.synchronized_ctx = a;
	/* Started by the runtime itself: it says so with these, and with nothing else. */
	if (given_fd != NULL && strcmp(given_fd, "3") == 0) {
		no.fd = 3;
		(void)fcntl(3, F_SETFD, FD_CLOEXEC);
		no.name = getenv("NRI_PLUGIN_NAME") != NULL ? getenv("NRI_PLUGIN_NAME") : no.name;
		no.idx = getenv("NRI_PLUGIN_IDX") != NULL ? getenv("NRI_PLUGIN_IDX") : no.idx;
	}
	return en_nri_start(&no, &h, &a->nri, err);
}

/* The hardware is known before the first container is asked about. */
static int start(struct agent *a, struct err *err)
{
	const struct en_probe_options po = {
		.library = given(a->o.nvml), .is_ours = is_ours, .ctx = a};
	int r = take_lock(a, err);

	if (r == 0)
		r = start_limits(a, err);
	if (r == 0)
		r = start_mps(a, err);
	if (r == 0)
		r = start_plugin(a, err);
	if (r == 0)
		r = en_exits_new(on_exit_of, a, &a->exits, err);
	if (r == 0)
		r = en_prober_new(&po, &a->prober, err);
	if (r == 0)
		r = start_publisher(a, err);
	if (r != 0)
		return r;
	look(a, true);
	if (a->o.hook_path[0] != '\0')
		r = en_hook_server_start(a->o.hook_socket, on_hook, a, a->log, &a->hooks, err);
	return r == 0 ? start_nri(a, err) : r;
}

/* ---- the loop, and the end ---- */

static void drain_fd(int fd)
{
	uint64_t count;

	(void)!read(fd, &count, sizeof(count));
}

/* Until a signal, or until the runtime that started us is gone. */
static void loop(struct agent *a)
{
	int64_t probe_at = now_ms() + a->o.probe_s * 1000, reconcile_at = 0;

	for (;;) {
		struct pollfd p[2] = {{.fd = a->signal_fd, .events = POLLIN},
				      {.fd = a->wake_fd, .events = POLLIN}};
		struct en_nri_figures nri;
		bool synchronized;
		int64_t now;

		if (poll(p, 2, TICK_MS) > 0 && p[0].revents != 0)
			return;
		if (p[1].revents != 0)
			drain_fd(a->wake_fd);
		en_nri_get_figures(a->nri, &nri);
		if (nri.ended)
			return;
		now = now_ms();
		look(a, now >= probe_at);
		if (now >= probe_at)
			probe_at = now + a->o.probe_s * 1000;
		synchronized = atomic_exchange(&a->synchronized, false);
		a->unclaimed |= synchronized;
		claim(a);
		if (synchronized || now >= reconcile_at) {
			en_plugin_reconcile(a->plugin);
			reconcile_at = now_ms() + a->o.reconcile_s * 1000;
		}
	}
}

/* Containers go on running, and so does MPS: the next agent takes both over. */
static void end(struct agent *a)
{
	struct en_mps_status mps;

	if (a->publisher != NULL) {
		mps_status(a, &mps);
		publish(a, &mps, true);
		(void)en_publisher_flush(a->publisher, FLUSH_MS);
	}
	en_nri_stop(a->nri);
	en_hook_server_stop(a->hooks);
	en_exits_free(a->exits);
	en_publisher_free(a->publisher);
	ku_client_free(a->client);
	en_prober_free(a->prober);
	en_plugin_free(a->plugin);
	if (a->mps != NULL) {
		en_mps_thread_stop(a->mps);
		en_mps_free(a->mps);
	}
	en_limits_free(a->limits);
	if (a->lock_fd >= 0)
		close(a->lock_fd);
}

static int signals_take(struct agent *a, struct err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread is made */
	(void)signal(SIGPIPE, SIG_IGN);
	a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return a->signal_fd < 0 || a->wake_fd < 0
		       ? err_set(err, ERR_IO, "signals: %s", strerror(errno))
		       : 0;
}

static int print_help(void)
{
	struct buf b = BUF_INIT;
	bool ok;

	en_run_options_help(&b);
	ok = buf_ok(&b) && file_write_all(STDOUT_FILENO, b.data, b.len) == 0;
	buf_fini(&b);
	return ok ? 0 : 1;
}

int en_run_main(int argc, char *const *argv)
{
	static struct agent a;
	struct err err = ERR_INIT;
	int rc;

	a.lock_fd = -1;
	if (en_run_options_parse(argc, argv, NULL, &a.o, &err) != 0) {
		fprintf(stderr, "tessera-enforcer run: %s\n", err.msg);
		return 2;
	}
	if (a.o.help)
		return print_help();
	a.log = log_new((enum log_level)log_level_parse(a.o.log_level), NULL, NULL, NULL, NULL);
	rc = signals_take(&a, &err);
	if (rc == 0)
		rc = start(&a, &err);
	if (rc == 0) {
		log_event(a.log, LOG_LEVEL_INFO, "started", "node=%s gpus=%zu", a.o.node,
			  a.probe.gpu_count);
		loop(&a);
	} else {
		fprintf(stderr, "tessera-enforcer run: %s\n", err.msg);
	}
	end(&a);
	log_free(a.log);
	return rc == 0 ? 0 : 1;
}

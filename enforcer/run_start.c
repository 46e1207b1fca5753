/* The agent's parts, brought up in the order in which they need each other. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/run_internal.h"

#define HOOK_MAX ((size_t)32 << 20)
#define LOCK_WAIT_MS 2000

/* Two agents would both be called by the runtime. The lock of one that was killed may be held for a moment by
 * a child of its that has not become another program yet. */
static int take_lock(struct agent *a, struct err *err)
{
	char path[EN_PATH_CAP];

	if (mkdir(a->o.run_dir, 0700) != 0 && errno != EEXIST)
		return err_set(err, ERR_IO, "%s: %s", a->o.run_dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/enforcer.lock", a->o.run_dir);
	a->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (a->lock_fd < 0)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	for (int64_t end = run_now_ms() + LOCK_WAIT_MS; run_now_ms() < end; poll(NULL, 0, 10)) {
		if (flock(a->lock_fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
	}
	return err_set(err, ERR_CONFLICT, "%s is held: an agent runs on this node already", path);
}

static int start_limits(struct agent *a, struct err *err)
{
	const struct en_limits_options lo = {.library = run_given(a->o.nvml), .smi = a->o.smi};
	struct err why = ERR_INIT;
	char quoted[ERR_MSG_CAP];
	int r = 0;

	if (a->o.cgroup_mount[0] != '\0')
		r = en_cgroup_join(a->o.cgroup_mount, "", a->cgroup_mount, err);
	else if (en_cgroup_mount(a->proc, a->cgroup_mount, &why) != 0)
		log_event(a->log, LOG_LEVEL_WARN, "no-memory-limits", "reason=%s",
			  log_quote(why.msg, quoted, sizeof(quoted)));
	return r == 0 ? en_limits_new(&lo, &a->limits, err) : r;
}

/* Containers are not refused for longer than MPS takes to start. */
static void on_mps_changed(void *ctx)
{
	run_wake(ctx);
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
	const struct en_agent_ops ops = run_agent_ops(a);
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
				.shm_dir = run_given(a->o.shm_dir),
				.hook_path = run_given(a->o.hook_path),
				.hook_socket = a->o.hook_socket,
			},
		.limits = a->cgroup_mount[0] != '\0' ? en_limits_ops(a->limits) : NULL,
		.agent = &ops,
		.cgroup_mount = run_given(a->cgroup_mount),
		.log = a->log,
	};

	return en_plugin_new(&po, &a->plugin, err);
}

static int start_exits(struct agent *a, struct err *err)
{
	return en_exits_new(run_on_exit, a, &a->pulses, &a->exits, err);
}

static int start_measuring(struct agent *a, struct err *err)
{
	const struct en_measure_options mo = {
		.cgroup_mount = run_given(a->cgroup_mount),
		.ops = en_limits_ops(a->limits),
	};
	struct err why = ERR_INIT;
	char quoted[ERR_MSG_CAP];

	a->measurer = en_measurer_new(&mo);
	a->usage = en_usage_new();
	if (a->measurer == NULL || a->usage == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (a->o.state_dir[0] == '\0')
		return 0;
	if (strlen(a->o.state_dir) + sizeof("/usage.json") > sizeof(a->usage_path))
		return err_set(err, ERR_INVALID, "--state-dir: the path is too long");
	snprintf(a->usage_path, sizeof(a->usage_path), "%s/usage.json", a->o.state_dir);
	if (mkdir(a->o.state_dir, 0700) != 0 && errno != EEXIST)
		err_set(&why, ERR_IO, "%s: %s", a->o.state_dir, strerror(errno));
	else
		(void)en_usage_load(a->usage, a->usage_path, &why);
	if (why.msg[0] != '\0') /* peaks are advice: the agent does without */
		log_event(a->log, LOG_LEVEL_WARN, "usage-not-loaded", "reason=%s",
			  log_quote(why.msg, quoted, sizeof(quoted)));
	return 0;
}

/* A file that was named and cannot be used is wrong input, whatever is wrong with it. */
static int wrong_input(int r, const char *option, struct err *err)
{
	return err_prefix(err, r == ERR_NOMEM ? r : ERR_INVALID, "%s", option);
}

int run_static_load(struct agent *a, struct err *err)
{
	const struct st_contract_options opt = {.prefix = a->o.prefix, .cdi = a->o.cdi};
	struct en_static *fresh = NULL;
	int r;

	if (a->o.static_file[0] == '\0')
		return 0;
	r = en_static_load(a->o.static_file, a->o.node, &opt, &fresh, err);
	if (r != 0)
		return wrong_input(r, "--static", err);
	pthread_mutex_lock(&a->lock);
	{
		struct en_static *old = a->statics;

		a->statics = fresh;
		fresh = old;
	}
	pthread_mutex_unlock(&a->lock);
	en_static_free(fresh);
	return 0;
}

/* ---- the API server ---- */

static void on_pods_changed(void *ctx)
{
	struct agent *a = ctx;

	atomic_store(&a->pods_changed, true);
	run_wake(a);
}

static int start_client(struct agent *a, struct err *err)
{
	struct ku_client_options co = {
		.user_agent = "tessera-enforcer", .log = a->log, .connections = 8};
	struct ku_config config;
	char quoted[ERR_MSG_CAP];
	struct err why = ERR_INIT;
	int r;

	if (a->o.static_file[0] != '\0')
		return 0;
	r = a->o.kubeconfig[0] != '\0' ? ku_config_load(a->o.kubeconfig, NULL, &config, &why)
				       : ku_config_in_cluster(NULL, &config, &why);
	if (r == ERR_NOT_FOUND && a->o.kubeconfig[0] == '\0') {
		if (a->o.publish)
			log_event(a->log, LOG_LEVEL_WARN, "nothing-published", "reason=%s",
				  log_quote(why.msg, quoted, sizeof(quoted)));
		return 0;
	}
	if (r != 0) {
		err_set(err, r, "%s", why.msg);
		return a->o.kubeconfig[0] != '\0' ? wrong_input(r, "--kubeconfig", err) : r;
	}
	co.config = &config;
	co.seed = (uint64_t)run_now_ms() ^ ((uint64_t)getpid() << 32);
	r = ku_client_new(&co, &a->client, err);
	ku_config_fini(&config);
	return r;
}

static int start_api(struct agent *a, struct err *err)
{
	const struct ku_events_options eo = {
		.component = "tessera-enforcer", .instance = a->o.node, .objects_max = 256};
	const struct en_pods_options po = {.node = a->o.node,
					   .prefix = a->o.prefix,
					   .log = a->log,
					   .changed = on_pods_changed,
					   .ctx = a};
	struct en_pods_options with_client = po;
	int r = start_client(a, err);

	if (r != 0 || a->client == NULL)
		return r;
	with_client.client = a->client;
	r = ku_events_new(a->client, &eo, &a->events, err);
	if (r == 0)
		r = en_pods_start(&with_client, &a->pods, err);
	if (r == 0 && a->o.publish)
		r = en_publisher_new(a->client, a->o.node, a->log, &a->publisher, err);
	return r;
}

/* ---- the runtime ---- */

static void on_synchronized(void *ctx)
{
	struct agent *a = ctx;

	atomic_store(&a->synchronized, true);
	run_wake(a);
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
		.pulses = &a->pulses,
	};
	struct en_nri_handler h = en_nri_plugin_handler(a->plugin);

	int r;

	h.synchronized = on_synchronized;
	h.synchronized_ctx = a;
	/* Started by the runtime itself: it says so with these, and with nothing else. */
	if (given_fd != NULL && strcmp(given_fd, "3") == 0) {
		no.fd = 3;
		(void)fcntl(3, F_SETFD, FD_CLOEXEC);
		no.name = getenv("NRI_PLUGIN_NAME") != NULL ? getenv("NRI_PLUGIN_NAME") : no.name;
		no.idx = getenv("NRI_PLUGIN_IDX") != NULL ? getenv("NRI_PLUGIN_IDX") : no.idx;
	}
	r = en_nri_start(&no, &h, &a->nri, err);
	return r == ERR_INVALID ? err_prefix(err, r, "--nri-name, --nri-index") : r;
}

static int on_hook(void *ctx, const struct en_limit_request *r, struct err *err)
{
	return en_plugin_limit(((struct agent *)ctx)->plugin, r, err);
}

/* ---- the hook on the host ---- */

static bool same_file(const char *path, const char *data, size_t len)
{
	char *text = NULL;
	size_t have = 0;
	bool same = access(path, X_OK) == 0 && file_read(path, HOOK_MAX, &text, &have, NULL) == 0 &&
		    have == len && memcmp(text, data, len) == 0;

	free(text);
	return same;
}

/* A container may be starting: the file is there as a whole at every moment. */
static int write_hook(const char *path, const char *data, size_t len, struct err *err)
{
	char tmp[EN_PATH_CAP + 8];
	int fd;
	bool ok;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	(void)unlink(tmp);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	ok = fd >= 0 && file_write_all(fd, data, len) == 0 && fchmod(fd, 0755) == 0 &&
	     fsync(fd) == 0;
	if (fd >= 0)
		ok = close(fd) == 0 && ok;
	if (ok && rename(tmp, path) == 0)
		return 0;
	err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	(void)unlink(tmp);
	return ERR_IO;
}

static int install_hook(struct agent *a, struct err *err)
{
	char *data = NULL;
	size_t len = 0;
	int r = 0;

	if (a->o.hook_source[0] == '\0' || a->o.hook_path[0] == '\0')
		return 0;
	if (strlen(a->o.hook_path) >= EN_PATH_CAP)
		return err_set(err, ERR_INVALID, "--hook-path: the path is too long");
	r = file_read(a->o.hook_source, HOOK_MAX, &data, &len, err);
	if (r != 0)
		return wrong_input(r, "--hook-source", err);
	if (!same_file(a->o.hook_path, data, len))
		r = write_hook(a->o.hook_path, data, len, err);
	free(data);
	return r;
}

/* ---- all of it ---- */

static int start_memory(struct agent *a, struct err *err)
{
	a->probe = calloc(1, sizeof(*a->probe));
	a->spare = calloc(1, sizeof(*a->spare));
	a->report = calloc(1, sizeof(*a->report));
	return a->probe != NULL && a->spare != NULL && a->report != NULL
		       ? 0
		       : err_set(err, ERR_NOMEM, "out of memory");
}

/* The hardware is known before the first container is asked about, and containers are asked about before
 * anything else may tell of the agent that it runs. */
int run_start(struct agent *a, struct err *err)
{
	const struct en_probe_options po = {.library = run_given(a->o.nvml),
					    .is_ours = run_is_ours,
					    .ctx = a,
					    .kubelet_socket = run_given(a->o.kubelet_socket),
					    .is_our_pod = run_is_our_pod};
	int (*const steps[])(struct agent * a, struct err * err) = {
		start_memory,  take_lock,    install_hook, run_static_load, start_limits, start_mps,
		run_mig_start, start_plugin, start_exits,  start_measuring, start_api,
	};
	int r = 0;

	a->pulse = en_pulse_add(&a->pulses, "loop");
	for (size_t i = 0; r == 0 && i < sizeof(steps) / sizeof(steps[0]); i++)
		r = steps[i](a, err);
	if (r == 0)
		r = en_prober_new(&po, &a->prober, err);
	if (r != 0)
		return r;
	run_look(a, true);
	if (a->o.hook_path[0] != '\0')
		r = en_hook_server_start(a->o.hook_socket, on_hook, a, a->log, &a->pulses,
					 &a->hooks, err);
	if (r == 0)
		r = start_nri(a, err);
	return r == 0 ? run_http_start(a, err) : r;
}

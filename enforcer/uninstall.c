#include "enforcer/uninstall.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "enforcer/doctor.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/inventory.h"
#include "enforcer/limits.h"
#include "enforcer/mig.h"
#include "enforcer/mps.h"
#include "kube/client.h"
#include "kube/client_path.h"

#define CONTAINERS_MAX 256
#define MPS_MS 70000 /* the daemon takes its time to end, at most 60 s, and is killed then */
#define CALL_MS 10000
#define FDS_MAX 16

/* ---- folders ---- */

static __thread char
	kept[ERR_MSG_CAP]; /* the first that could not be removed; nftw() has no argument */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	if (remove(path) == 0 || errno == ENOENT)
		return 0;
	/* The mount point itself, of a folder that was mounted for us. */
	if (at->level == 0 && errno == EBUSY)
		return 0;
	if (kept[0] == '\0')
		snprintf(kept, sizeof(kept), "%.400s: %s", path, strerror(errno));
	return 0;
}

int en_remove_tree(const char *path, struct err *err)
{
	const char *second = path[0] == '/' ? strchr(path + 1, '/') : NULL;

	if (second == NULL || second[1] == '\0' || strstr(path, "..") != NULL)
		return err_set(err, ERR_INVALID, "%.300s: not removed, for it is not deep enough",
			       path);
	if (access(path, F_OK) != 0 && errno == ENOENT)
		return 0;
	kept[0] = '\0';
	if (nftw(path, remove_one, FDS_MAX, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
		return err_set(err, ERR_IO, "%.300s: %s", path, strerror(errno));
	return kept[0] != '\0' ? err_set(err, ERR_IO, "%s", kept) : 0;
}

/* ---- the parts; each says itself what went wrong, and the others go on ---- */

struct work {
	struct en_run_options o;
	bool force, failed;
	size_t *taken; /* things that were there and are gone */
	bool keep_mps,
		keep_run; /* folders that tell the next attempt what is still to be taken away */
};

/* Says what is gone; "what" is one thing, of "name". */
static void tell(const struct work *w, const char *what, const char *name)
{
	printf("removed: %s%s%s\n", what, name[0] != '\0' ? " " : "", name);
	++*w->taken;
}

static void say(struct work *w, const char *what, const struct err *err)
{
	fprintf(stderr, "tessera-enforcer uninstall: %s: %s\n", what, err->msg);
	w->failed = true;
}

/* An agent that runs would bring everything back. *ret_fd is kept until the end. */
static int check_agent(const struct work *w, int *ret_fd, struct err *err)
{
	char path[EN_PATH_CAP];

	snprintf(path, sizeof(path), "%s/enforcer.lock", w->o.run_dir);
	*ret_fd = open(path, O_RDWR | O_CLOEXEC);
	if (*ret_fd < 0 && errno != ENOENT)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	if (*ret_fd >= 0 && flock(*ret_fd, LOCK_EX | LOCK_NB) != 0)
		return err_set(err, ERR_CONFLICT, "%s is held: end the agent first", path);
	return 0;
}

/* Containers lose their limits; without --force none may be there. */
static int release_containers(struct work *w, struct err *err)
{
	const struct en_limits_options lo = {
		.library = w->o.nvml != NULL && w->o.nvml[0] != '\0' ? w->o.nvml : NULL,
		.smi = w->o.smi};
	struct en_doctor_container *list = calloc(CONTAINERS_MAX, sizeof(*list));
	struct en_limits *limits = NULL;
	char mount[EN_CGROUP_CAP];
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): options without a value are "" */
	const char *given = w->o.cgroup_mount[0] != '\0' ? w->o.cgroup_mount
							 : en_doctor_cgroup_mount("", mount);
	size_t count = list != NULL ? en_doctor_scan("", given, list, CONTAINERS_MAX) : 0;
	int r = list != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");

	if (r == 0 && count > 0 && !w->force)
		r = err_set(err, ERR_CONFLICT,
			    "%zu containers have a share (first: %s in %.200s): delete their pods, "
			    "or use --force",
			    count, list[0].name, list[0].cgroup);
	count = count < CONTAINERS_MAX ? count : CONTAINERS_MAX;
	if (r == 0 && count > 0)
		r = en_limits_new(&lo, &limits, err);
	for (size_t i = 0; r == 0 && i < count; i++) {
		for (size_t k = 0; list[i].by_cgroup && k < list[i].gpu_count; k++) {
			struct err why = ERR_INIT;

			if (en_limits_clear(en_limits_ops(limits), list[i].cgroup, list[i].gpus[k],
					    &why) != 0)
				say(w, list[i].name, &why);
		}
		if (list[i].by_cgroup)
			tell(w, "memory limits of container", list[i].name);
	}
	en_limits_free(limits);
	free(list);
	return r;
}

/* The daemon that an agent left running. */
static int end_mps(const struct work *w, struct err *err)
{
	char run_dir[EN_PATH_CAP], pid[EN_PATH_CAP + 16];
	const struct en_mps_options mo = {.control = w->o.mps_control,
					  .pipe_dir = w->o.pipe_dir,
					  .log_dir = w->o.mps_log_dir,
					  .run_dir = run_dir};
	struct en_mps *m = NULL;
	struct en_mps_status s = {0};
	int r;

	snprintf(run_dir, sizeof(run_dir), "%s/mps", w->o.run_dir);
	snprintf(pid, sizeof(pid), "%s/daemon.pid", run_dir);
	if (!w->o.mps || access(pid, F_OK) != 0)
		return 0;
	r = en_mps_new(&mo, &m, err);
	if (r == 0)
		r = en_mps_thread_start(m, err);
	if (r == 0) {
		/* It is ended by whom it belongs to: taken over first. */
		en_mps_want(m, true);
		for (int i = 0; i < 100 && s.pid == 0; i++) {
			nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
			en_mps_get_status(m, &s);
		}
		if (!en_mps_shutdown(m, MPS_MS))
			r = err_set(err, ERR_IO, "process %lld does not end", (long long)s.pid);
		en_mps_thread_stop(m);
	}
	if (r == 0)
		tell(w, "the MPS daemon", "");
	en_mps_free(m);
	return r;
}

/* ---- MIG ---- */

static int sweep_mig(const struct en_probe_options *o, struct en_mig *m, struct err *err)
{
	struct en_probe *probe = calloc(1, sizeof(*probe));
	struct en_prober *prober = NULL;
	struct en_mig_stats s;
	int r;

	if (probe == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	r = en_prober_new(o, &prober, err);
	if (r == 0)
		r = en_prober_run(prober, probe, err);
	if (r == 0 && !probe->driver_ok)
		r = err_set(err, ERR_IO, "the driver does not answer: %.300s", probe->why.msg);
	if (r == 0) {
		en_mig_mark(m, probe);
		(void)en_mig_sweep(m, probe, 1);
		en_mig_get_stats(m, &s);
		if (s.ours > 0)
			r = err_set(err, ERR_CONFLICT,
				    "%zu instances that the agent made are there still, in use or "
				    "kept by the driver: see nvidia-smi mig -lgi",
				    s.ours);
	}
	en_prober_free(prober);
	free(probe);
	return r;
}

int en_remove_mig(const struct en_run_options *o, struct err *err)
{
	char path[EN_PATH_CAP + 8];
	const char *library = o->nvml[0] != '\0' ? o->nvml : NULL;
	const struct en_probe_options po = {
		.library = library,
		.kubelet_socket = o->kubelet_socket[0] != '\0' ? o->kubelet_socket : NULL};
	/* Nothing lingers, and nobody is asked who holds what: the driver keeps what is in use. */
	const struct en_mig_options mo = {
		.way = EN_MIG_SWITCH, .library = library, .path = path, .linger_ms = 0};
	struct en_mig *m = NULL;
	int r;

	snprintf(path, sizeof(path), "%s/mig", o->run_dir);
	if (access(path, F_OK) != 0 && errno == ENOENT)
		return 0;
	r = en_mig_new(&mo, &m, err);
	if (r == 0)
		r = sweep_mig(&po, m, err);
	en_mig_free(m);
	return r;
}

static int remove_mig(const struct work *w, struct err *err)
{
	char path[EN_PATH_CAP + 8];
	bool was;
	int r;

	snprintf(path, sizeof(path), "%s/mig", w->o.run_dir);
	was = access(path, F_OK) == 0;
	r = en_remove_mig(&w->o, err);
	if (r == 0 && was)
		tell(w, "all MIG instances that the agent had made", "");
	return r;
}

/* ---- the Node ---- */

static int call(struct ku_client *c, const char *path, const char *type, const char *body,
		struct err *err)
{
	const struct ku_request rq = {.method = "PATCH",
				      .path = path,
				      .content_type = type,
				      .body = body,
				      .body_len = strlen(body),
				      .deadline_ms = CALL_MS,
				      .retry = true};
	struct ku_answer a;
	int r = ku_client_call(c, &rq, &a, err);

	if (r != 0)
		return r;
	if (a.reply.kind != KU_REPLY_HTTP || (a.reply.status >= 300 && a.reply.status != 404))
		r = err_set(err, ERR_IO, "%.300s", a.reply.text);
	ku_answer_fini(&a);
	return r;
}

static int clean_node(const struct work *w, struct err *err)
{
	static const char annotations[] = "{\"metadata\":{\"annotations\":{\"" EN_INVENTORY_KEY
					  "\":null,\"" EN_INVENTORY_TIME_KEY "\":null}}}";
	static const char condition[] = "{\"status\":{\"conditions\":[{\"$patch\":\"delete\","
					"\"type\":\"" EN_CONDITION_TYPE "\"}]}}";
	struct ku_client_options co = {.user_agent = "tessera-enforcer", .connections = 4};
	struct buf node = BUF_INIT, status = BUF_INIT;
	struct ku_client *c = NULL;
	struct ku_config config;
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): options without a value are "" */
	int r = w->o.kubeconfig[0] != '\0' ? ku_config_load(w->o.kubeconfig, NULL, &config, err)
					   : ku_config_in_cluster(NULL, &config, err);

	if (r == ERR_NOT_FOUND && w->o.kubeconfig[0] == '\0')
		return 0; /* not in a cluster: nothing was published */
	if (r != 0)
		return r;
	co.config = &config;
	r = ku_client_new(&co, &c, err);
	ku_config_fini(&config);
	if (r != 0)
		return r;
	ku_path_node(&node, w->o.node, NULL);
	ku_path_node(&status, w->o.node, "status");
	if (buf_str(&node) == NULL || buf_str(&status) == NULL)
		r = err_set(err, ERR_NOMEM, "out of memory");
	if (r == 0)
		r = call(c, buf_str(&node), "application/merge-patch+json", annotations, err);
	if (r == 0)
		r = call(c, buf_str(&status), "application/strategic-merge-patch+json", condition,
			 err);
	if (r == 0)
		tell(w, "inventory and condition of node", w->o.node);
	buf_fini(&node);
	buf_fini(&status);
	ku_client_free(c);
	return r;
}

/* The hook on the host, and its folders where they are empty then. */
static int remove_hook(const struct work *w, struct err *err)
{
	char path[EN_PATH_CAP];
	char *slash;

	if (w->o.hook_path[0] == '\0')
		return 0;
	if (strlen(w->o.hook_path) >= sizeof(path))
		return err_set(err, ERR_INVALID, "--hook-path is too long");
	memcpy(path, w->o.hook_path, strlen(w->o.hook_path) + 1);
	if (unlink(path) == 0)
		tell(w, "hook", path);
	else if (errno != ENOENT)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	for (int i = 0; i < 2 && (slash = strrchr(path, '/')) != NULL && slash != path; i++) {
		*slash = '\0';
		if (rmdir(path) != 0)
			break;
	}
	(void)unlink(w->o.hook_socket);
	return 0;
}

/* False: it failed. */
static bool step(struct work *w, const char *what, int (*fn)(const struct work *, struct err *))
{
	struct err err = ERR_INIT;
	int r = fn(w, &err);

	if (r != 0)
		say(w, what, &err);
	return r == 0;
}

static void remove_folders(struct work *w)
{
	const struct {
		const char *path;
		bool keep;
	} folders[] = {{w->o.run_dir, w->keep_run || w->keep_mps},
		       {w->o.pipe_dir, w->keep_mps},
		       {w->o.mps_log_dir, w->keep_mps},
		       {w->o.state_dir, false}};

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		struct err err = ERR_INIT;

		if (folders[i].path[0] == '\0' || folders[i].keep ||
		    (access(folders[i].path, F_OK) != 0 && errno == ENOENT))
			continue;
		if (en_remove_tree(folders[i].path, &err) != 0)
			say(w, "folder", &err);
		else
			tell(w, "folder", folders[i].path);
	}
}

/* --force is ours, the rest is the agent's. */
static int parse(int argc, char *const *argv, struct work *w, struct err *err)
{
	char **rest = calloc((size_t)argc + 1, sizeof(char *));
	int n = 0, r;

	if (rest == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--force") == 0)
			w->force = true;
		else
			rest[n++] = argv[i];
	}
	r = en_run_options_parse(n, rest, NULL, &w->o, err);
	free(rest);
	return r;
}

int en_uninstall_main(int argc, char *const *argv)
{
	static const char usage[] =
		"usage: tessera-enforcer uninstall [--force] [option of run...]\n"
		"Takes from the node what the agent brought: memory limits, the MPS daemon, MIG\n"
		"instances that it made, the inventory and condition of the Node, the hook, and all\n"
		"folders. Refuses while an agent runs, and, without --force, while containers have a\n"
		"share.\n\n" EN_EXIT_STATUS_TEXT;
	size_t taken = 0;
	struct work w = {.taken = &taken};
	struct err err = ERR_INIT;
	int fd = -1, r;

	if (parse(argc, argv, &w, &err) != 0) {
		fprintf(stderr, "tessera-enforcer uninstall: %s\n", err.msg);
		return 2;
	}
	if (w.o.help)
		return fputs(usage, stdout) < 0;
	r = check_agent(&w, &fd, &err);
	if (r == 0)
		r = release_containers(&w, &err);
	if (r != 0) {
		fprintf(stderr, "tessera-enforcer uninstall: %s\n", err.msg);
	} else {
		w.keep_mps = !step(&w, "MPS", end_mps);
		w.keep_run = !step(&w, "MIG", remove_mig);
		(void)step(&w, "node", clean_node);
		(void)step(&w, "hook", remove_hook);
		remove_folders(&w);
		if (taken == 0 && !w.failed)
			puts("nothing of the agent was there");
	}
	if (fd >= 0)
		close(fd);
	return r != 0 || w.failed;
}

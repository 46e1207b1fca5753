/* From a plan to the changes of a container, and whether a container has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "enforcer/apply_internal.h"
#include "state/contract_internal.h"

#define VISIBLE "NVIDIA_VISIBLE_DEVICES"
#define MEMORY_REQUEST "NVIDIA_GPU_MEMORY_REQUEST"
#define MEMORY_LIMIT "NVIDIA_GPU_MEMORY_LIMIT"
#define PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define PERCENTAGE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define PINNED "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

#define HOOK_TIMEOUT_S 10

struct maker {
	const struct en_node *node;
	const struct en_plan *plan;
	const struct en_container_seen *seen;
	const struct en_apply_options *opt;
	struct en_adjust *a;
	struct err *err;
};

void en_adjust_fini(struct en_adjust *a)
{
	for (size_t i = 0; i < a->env_count; i++)
		free(a->env[i].value);
	for (size_t i = 0; i < a->mount_count; i++)
		free(a->mounts[i].source);
	for (size_t i = 0; i < a->cdi_count; i++)
		free(a->cdi[i]);
	for (size_t i = 0; i < a->hook_arg_count; i++)
		free(a->hook_args[i]);
	free(a->hook_path);
	*a = (struct en_adjust){0};
}

static int no_memory(const struct maker *x)
{
	return err_set(x->err, ERR_NOMEM, "adjustment: no memory");
}

/* ---- environment ---- */

/* The container's own value of a variable; of several the last one, as a process reads it. */
static const char *env_find(const struct en_text_list *env, const char *key)
{
	size_t len = strlen(key);

	for (size_t i = env->count; i > 0; i--) {
		if (strncmp(env->text[i - 1], key, len) == 0 && env->text[i - 1][len] == '=')
			return env->text[i - 1] + len + 1;
	}
	return NULL;
}

static int put_env(const struct maker *x, const char *key, const char *value)
{
	char *copy = strdup(value);

	if (copy == NULL)
		return no_memory(x);
	x->a->env[x->a->env_count++] = (struct en_env){key, copy};
	return 0;
}

/* Takes the content of b. */
static int put_env_buf(const struct maker *x, const char *key, struct buf *b)
{
	char *value = buf_take(b);

	buf_fini(b);
	if (value == NULL)
		return no_memory(x);
	x->a->env[x->a->env_count++] = (struct en_env){key, value};
	return 0;
}

static int put_env_int(const struct maker *x, const char *key, int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	return put_env(x, key, text);
}

/* A variable that we have no value for, but the user has. */
static void take_away(const struct maker *x, const char *key)
{
	if (env_find(&x->seen->env, key) != NULL)
		x->a->env[x->a->env_count++] = (struct en_env){key, NULL};
}

static void take_away_limits(const struct maker *x)
{
	static const char *const keys[] = {MEMORY_REQUEST, MEMORY_LIMIT, PIPE, PERCENTAGE, PINNED};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		take_away(x, keys[i]);
}

/* ---- devices ---- */

static const struct en_mig_instance *instance_find(const struct en_node_gpu *g, const char *profile,
						   unsigned start)
{
	const struct st_mig_geometry *geometry = apply_geometry(g);
	int want = geometry != NULL ? st_mig_profile_find(geometry, profile) : -1;

	for (size_t i = 0; want >= 0 && i < g->instance_count; i++) {
		if (g->instances[i].start == start &&
		    st_mig_profile_find(geometry, g->instances[i].profile) == want)
			return &g->instances[i];
	}
	return NULL;
}

/* CDI names are known for whole GPUs only; a MIG instance is always named by its UUID. */
static int put_devices(const struct maker *x)
{
	const struct st_grant *g = &x->plan->grant;
	bool mig = g->kind == ST_KIND_MIG;
	struct buf b = BUF_INIT;

	for (int i = 0; i < g->count; i++) {
		const struct en_node_gpu *gpu = &x->node->gpus[g->gpu[i]];
		const struct en_mig_instance *at =
			mig ? instance_find(gpu, g->profile, g->start[i]) : NULL;
		const char *uuid = at != NULL ? at->uuid : gpu->uuid;

		if (mig && (at == NULL || at->held)) {
			buf_fini(&b);
			return err_set(x->err, ERR_CONFLICT,
				       "container \"%.63s\": MIG instance %s at %d of %s %s",
				       g->container, g->profile, g->start[i], gpu->uuid,
				       at == NULL ? "is not there"
						  : "was given to another pod by a device plugin");
		}
		if (!mig && x->opt->cdi_devices) {
			buf_printf(&b, "%s%s", CONTRACT_CDI, uuid);
			x->a->cdi[x->a->cdi_count] = buf_take(&b);
			buf_fini(&b);
			if (x->a->cdi[x->a->cdi_count] == NULL)
				return no_memory(x);
			x->a->cdi_count++;
			continue;
		}
		buf_printf(&b, "%s%s%s", i > 0 ? "," : "",
			   !mig && x->opt->contract.cdi ? CONTRACT_CDI : "", uuid);
	}
	if (x->a->cdi_count > 0)
		buf_puts(&b, "void");
	return put_env_buf(x, VISIBLE, &b);
}

/* ---- shares ---- */

static int put_mount(const struct maker *x, const char *source, const char *target)
{
	char *copy = strdup(source);

	if (copy == NULL)
		return no_memory(x);
	x->a->mounts[x->a->mount_count++] = (struct en_mount){
		.source = copy,
		.target = target,
		.type = "bind",
		.options = {"rbind", "rw", "nosuid", "nodev"},
	};
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): copy is in x->a now */
	return 0;
}

/* "0=1024M,1=1024M": the GPUs as the container counts them. No other unit word than M. */
static int put_pinned(const struct maker *x)
{
	struct buf b = BUF_INIT;

	for (int i = 0; i < x->plan->grant.count; i++)
		buf_printf(&b, "%s%d=%dM", i > 0 ? "," : "", i, x->plan->grant.limit_mib);
	return put_env_buf(x, PINNED, &b);
}

/* A wrong entry in the user's own list would switch off every pinned limit, so it is replaced too. */
static int put_share_env(const struct maker *x)
{
	const struct en_plan *p = x->plan;
	int r = put_env_int(x, MEMORY_REQUEST, p->grant.request_mib);

	if (r == 0)
		r = put_env_int(x, MEMORY_LIMIT, p->grant.limit_mib);
	if (r == 0)
		r = put_env(x, PIPE, p->pipe_target);
	if (r == 0 && p->percent > 0)
		r = put_env_int(x, PERCENTAGE, p->percent);
	else if (r == 0 && env_find(&x->seen->env, PERCENTAGE) != NULL)
		r = put_env(x, PERCENTAGE, "100");
	if (r == 0 && (p->by_client || env_find(&x->seen->env, PINNED) != NULL))
		r = put_pinned(x);
	return r;
}

static int put_hook_arg(const struct maker *x, struct buf *b)
{
	char *arg = buf_take(b);

	buf_fini(b);
	if (arg == NULL)
		return no_memory(x);
	x->a->hook_args[x->a->hook_arg_count++] = arg;
	return 0;
}

/* <program> hook [--socket=PATH] --gpu=UUID:SOFT:HARD... */
static int put_hook(const struct maker *x)
{
	const struct st_grant *g = &x->plan->grant;
	const char *path = x->opt->hook_path, *slash = strrchr(path, '/');
	struct buf b = BUF_INIT;
	int r;

	x->a->hook_path = strdup(path);
	if (x->a->hook_path == NULL)
		return no_memory(x);
	x->a->hook_timeout_s = x->opt->hook_timeout_s > 0 ? x->opt->hook_timeout_s : HOOK_TIMEOUT_S;
	buf_puts(&b, slash != NULL ? slash + 1 : path);
	r = put_hook_arg(x, &b);
	if (r == 0) {
		buf_puts(&b, "hook");
		r = put_hook_arg(x, &b);
	}
	if (r == 0 && x->opt->hook_socket != NULL) {
		buf_printf(&b, "--socket=%s", x->opt->hook_socket);
		r = put_hook_arg(x, &b);
	}
	for (int i = 0; r == 0 && i < g->count; i++) {
		buf_printf(&b, "--gpu=%s:%d:%d", x->node->gpus[g->gpu[i]].uuid, g->request_mib,
			   g->limit_mib);
		r = put_hook_arg(x, &b);
	}
	return r;
}

static int put_share(const struct maker *x)
{
	const struct en_plan *p = x->plan;
	int r = put_share_env(x);

	if (r == 0)
		r = put_mount(x, p->pipe_source, p->pipe_target);
	if (r == 0 && !x->node->mps_v3 && x->opt->shm_dir != NULL)
		r = put_mount(x, x->opt->shm_dir, "/dev/shm");
	if (r == 0 && p->by_cgroup && x->opt->hook_path != NULL)
		r = put_hook(x);
	return r;
}

/* ---- ways around it ---- */

/* NVIDIA's container toolkit can be set up to read wishes for GPUs from mounts with these targets. */
#define WISHES "/var/run/nvidia-container-devices"

static bool is_in(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* The shortest form of an absolute path, by its words alone: no empty, "." or ".." parts. Neither the kubelet nor a
 * runtime straightens what a pod says, and NVIDIA's toolkit does before it looks. ret: room for the path. */
static void straighten(const char *path, char *ret)
{
	size_t len = 0;

	while (*path != '\0') {
		size_t n;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (len > 0 && ret[--len] != '/')
				;
		} else if (n > 0 && !(n == 1 && path[0] == '.')) {
			ret[len++] = '/';
			memcpy(ret + len, path, n);
			len += n;
		}
		path += n;
	}
	if (len == 0)
		ret[len++] = '/';
	ret[len] = '\0';
}

/* Is it that place, in it, or above it? /var/run is /run. Both straight. */
static bool shows(const char *source, const char *place)
{
	static const char var[] = "/var";

	if (is_in(source, "/var/run"))
		source += sizeof(var) - 1;
	return strcmp(source, "/") == 0 || is_in(source, place) || is_in(place, source);
}

/* Why the mount gives more than it may; NULL: it does not. text: room for three paths. */
static const char *mount_fault(const struct maker *x, const struct en_mount_seen *m, bool ours,
			       char *text)
{
	char *source = text, *target = source + strlen(m->source) + 2;
	char *root = target + strlen(m->target) + 2;

	straighten(m->source, source);
	straighten(m->target, target);
	straighten(apply_pipe_root(x->opt), root);
	if (is_in(target, WISHES))
		return "which asks for GPUs past the allocation";
	if (m->source[0] != '/') /* no file: "proc", "tmpfs", "" */
		return NULL;
	/* By the very same name ours takes its place. */
	if (shows(source, root) && !(ours && strcmp(m->target, x->plan->pipe_target) == 0))
		return "which holds the sockets of MPS";
	return NULL;
}

/* Mounts of the user's that would give more than the allocation: other GPUs, or the sockets of another
 * container's MPS namespace; whatever fail_open says. One in the place of ours gives way to it. */
static int check_mounts(const struct maker *x)
{
	const struct en_plan *p = x->plan;
	bool ours = p->verdict == EN_GIVE && p->grant.kind == ST_KIND_SHARE;

	for (size_t i = 0; i < x->seen->mount_count; i++) {
		const struct en_mount_seen *m = &x->seen->mounts[i];
		char *text = malloc(strlen(m->source) + strlen(m->target) +
				    strlen(apply_pipe_root(x->opt)) + 6);
		const char *why = text != NULL ? mount_fault(x, m, ours, text) : NULL;

		if (text == NULL)
			return no_memory(x);
		free(text);
		if (why != NULL)
			return err_set(x->err, ERR_CONFLICT, "a volume mounts %.100s at %.100s, %s",
				       m->source, m->target, why);
	}
	return 0;
}

int en_adjust_make(const struct en_node *node, const struct en_plan *plan,
		   const struct en_container_seen *seen, const struct en_apply_options *opt,
		   struct en_adjust *ret, struct err *err)
{
	struct en_adjust a = {0};
	struct maker x = {node, plan, seen, opt, &a, err};
	int r = 0;

	*ret = a;
	if (plan->verdict != EN_HIDE && plan->verdict != EN_GIVE)
		return 0;
	r = check_mounts(&x);
	if (r == 0 && plan->verdict == EN_HIDE)
		r = put_env(&x, VISIBLE, "void");
	else if (r == 0)
		r = put_devices(&x);
	if (r == 0 && plan->verdict == EN_GIVE && plan->grant.kind == ST_KIND_SHARE)
		r = put_share(&x);
	else if (r == 0)
		take_away_limits(&x);
	if (r == 0)
		*ret = a;
	else
		en_adjust_fini(&a);
	return r;
}

/* ---- checks ---- */

int en_adjust_check_container(const struct en_adjust *a, const struct en_container_seen *seen,
			      struct err *err)
{
	for (size_t i = 0; i < a->env_count; i++) {
		const struct en_env *e = &a->env[i];
		const char *have = env_find(&seen->env, e->key);
		struct contract_shown shown;

		if (e->value == NULL || (have != NULL && strcmp(have, e->value) == 0))
			continue;
		if (have == NULL)
			return err_set(err, ERR_CONFLICT, "%s is not set to %.200s", e->key,
				       e->value);
		return err_set(err, ERR_CONFLICT, "%s is \"%s\", not %.200s", e->key,
			       contract_show(have, strlen(have), &shown), e->value);
	}
	for (size_t i = 0; i < a->mount_count; i++) {
		size_t k = seen->mount_count;

		while (k > 0 && strcmp(seen->mounts[k - 1].target, a->mounts[i].target) != 0)
			k--;
		if (k == 0 || strcmp(seen->mounts[k - 1].source, a->mounts[i].source) != 0)
			return err_set(err, ERR_CONFLICT, "%s is not mounted from %.200s",
				       a->mounts[i].target, a->mounts[i].source);
	}
	return 0;
}

/* Does a key of the merged adjustment, or its removal, speak of name? */
static bool speaks_of(const char *key, const char *name)
{
	return strcmp(key[0] == '-' ? key + 1 : key, name) == 0;
}

static bool list_has(const struct en_text_list *l, const char *s)
{
	for (size_t i = 0; i < l->count; i++) {
		if (strcmp(l->text[i], s) == 0)
			return true;
	}
	return false;
}

static bool merged_env_right(const struct en_merged *m, const struct en_env *e)
{
	size_t k = m->env_count;

	while (k > 0 && !speaks_of(m->env[k - 1].key, e->key))
		k--;
	return k > 0 && m->env[k - 1].key[0] != '-' && strcmp(m->env[k - 1].value, e->value) == 0;
}

static bool merged_mount_right(const struct en_merged *m, const struct en_mount *want)
{
	size_t k = m->mount_count;

	while (k > 0 && !speaks_of(m->mounts[k - 1].target, want->target))
		k--;
	return k > 0 && m->mounts[k - 1].target[0] != '-' &&
	       strcmp(m->mounts[k - 1].source, want->source) == 0;
}

int en_adjust_check_merged(const struct en_adjust *a, const struct en_merged *m, struct err *err)
{
	const char *lost = NULL;

	for (size_t i = 0; i < a->env_count; i++) {
		if (a->env[i].value != NULL && !merged_env_right(m, &a->env[i]))
			lost = a->env[i].key;
	}
	for (size_t i = 0; i < a->mount_count; i++) {
		if (!merged_mount_right(m, &a->mounts[i]))
			lost = a->mounts[i].target;
	}
	for (size_t i = 0; i < a->cdi_count; i++) {
		if (!list_has(&m->cdi, a->cdi[i]))
			lost = a->cdi[i];
	}
	if (a->hook_path != NULL && !list_has(&m->hook_paths, a->hook_path))
		lost = a->hook_path;
	if (lost != NULL)
		return err_set(err, ERR_CONFLICT,
			       "%.200s is not as it was set for this container: the plugin did not "
			       "answer, or another one changed it",
			       lost);
	return 0;
}

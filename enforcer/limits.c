#include "enforcer/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "enforcer/limits_parse.h"
#include "enforcer/nvml.h"
#include "enforcer/probe_exec.h"

#define MIB_SHIFT 20
#define PAIRS 32
#define MIB_MAX (INT64_MAX >> MIB_SHIFT)

struct en_limits {
	struct en_limits_options options; /* strings are ours */
	struct en_limits_ops ops;
	pthread_rwlock_t lock; /* of what follows: read while the library is used */
	struct en_nvml *nvml;
	bool use_smi; /* NVML lacks the calls, or answered what was not set */
	/* Setting and reading back are one for a cgroup and GPU: what another thread sets in between would be
	 * taken for a driver that does not do as it is told. By hash: others need not wait, or seldom. */
	pthread_mutex_t pair[PAIRS];
};

/* ---- NVML ---- */

static int no_limits(const char *gpu_uuid, struct err *err)
{
	return err_set(err, ERR_CONFLICT,
		       "%s: the driver does not limit memory here (MIG, or no backend in this "
		       "kernel)",
		       gpu_uuid);
}

static int nvml_set(struct en_nvml *n, const char *cgroup, const char *gpu_uuid, int64_t soft_mib,
		    int64_t hard_mib, struct err *err)
{
	struct en_nvml_device *d;
	uint64_t hard =
		hard_mib == EN_LIMIT_NONE ? EN_NVML_LIMIT_MAX : (uint64_t)hard_mib << MIB_SHIFT;
	int r = en_nvml_device_by_uuid(n, gpu_uuid, &d, err);

	if (r == 0)
		r = en_nvml_limits_set(n, d, cgroup, (uint64_t)soft_mib << MIB_SHIFT, hard, err);
	return r == EN_NVML_UNSUPPORTED ? no_limits(gpu_uuid, err) : r;
}

static int nvml_get(struct en_nvml *n, const char *cgroup, const char *gpu_uuid,
		    struct limits_seen *ret, struct err *err)
{
	struct limits_seen seen = {.hard_mib = EN_LIMIT_NONE};
	struct en_nvml_limits l = {.hard_bytes = EN_NVML_LIMIT_MAX};
	struct en_nvml_device *d;
	int r = en_nvml_device_by_uuid(n, gpu_uuid, &d, err);

	if (r != 0)
		return r == EN_NVML_UNSUPPORTED ? no_limits(gpu_uuid, err) : r;
	r = en_nvml_limits_get(n, d, cgroup, &l, err);
	/* Either, depending on the backend, where nothing was ever set. */
	if (r < 0 && r != ERR_NOT_FOUND)
		return r;
	if (r == 0) {
		seen.soft_mib = (int64_t)(l.soft_bytes >> MIB_SHIFT);
		seen.used_mib = (int64_t)(l.used_bytes >> MIB_SHIFT);
		if (l.hard_bytes != EN_NVML_LIMIT_MAX)
			seen.hard_mib = (int64_t)(l.hard_bytes >> MIB_SHIFT);
	} else if (err != NULL) {
		err->msg[0] = '\0';
	}
	*ret = seen;
	return 0;
}

/* Takes the read lock with the library open: *ret NULL means that nvidia-smi is to be used. The lock is
 * held only on success. */
static int enter(struct en_limits *l, struct en_nvml **ret, struct err *err)
{
	int r = 0;

	if (l->options.way == EN_LIMITS_SMI) {
		pthread_rwlock_rdlock(&l->lock);
		*ret = NULL;
		return 0;
	}
	pthread_rwlock_rdlock(&l->lock);
	if (l->use_smi || (l->nvml != NULL && !en_nvml_lost(l->nvml))) {
		*ret = l->use_smi ? NULL : l->nvml;
		return 0;
	}
	pthread_rwlock_unlock(&l->lock);
	pthread_rwlock_wrlock(&l->lock);
	if (l->nvml != NULL && en_nvml_lost(l->nvml)) {
		en_nvml_close(l->nvml);
		l->nvml = NULL;
	}
	if (l->nvml == NULL && !l->use_smi)
		r = en_nvml_open(l->options.library, &l->nvml, err);
	if (r == 0 && l->nvml != NULL && !en_nvml_has_limits(l->nvml)) {
		if (l->options.way == EN_LIMITS_NVML)
			r = err_set(err, ERR_CONFLICT, "the driver has no memory-limit calls");
		l->use_smi = r == 0;
	}
	pthread_rwlock_unlock(&l->lock);
	if (r != 0)
		return r == ERR_NOT_FOUND ? ERR_IO : r; /* the library, not the GPU */
	pthread_rwlock_rdlock(&l->lock);
	*ret = l->use_smi ? NULL : l->nvml;
	if (*ret == NULL && !l->use_smi) { /* closed in between */
		pthread_rwlock_unlock(&l->lock);
		return err_set(err, ERR_CONFLICT, "the driver is being exchanged");
	}
	return 0;
}

/* What was read back is not what was set. Another program may have set the same in between, so it is done once
 * more with nobody else of ours in the library: *ret_right. Where it is not right then, NVML is used no more. */
static int nvml_alone(struct en_limits *l, const char *cgroup, const char *gpu_uuid,
		      int64_t soft_mib, int64_t hard_mib, bool *ret_right, struct err *err)
{
	struct limits_seen seen = {.hard_mib = EN_LIMIT_NONE};
	int r = 0;

	*ret_right = false;
	pthread_rwlock_wrlock(&l->lock);
	if (l->nvml != NULL)
		r = nvml_set(l->nvml, cgroup, gpu_uuid, soft_mib, hard_mib, err);
	if (r == 0 && l->nvml != NULL)
		r = nvml_get(l->nvml, cgroup, gpu_uuid, &seen, err);
	if (r == 0 && l->nvml != NULL) {
		*ret_right = seen.soft_mib == soft_mib && seen.hard_mib == hard_mib;
		l->use_smi |= !*ret_right && l->options.way != EN_LIMITS_NVML;
	}
	if (l->use_smi) {
		en_nvml_close(l->nvml);
		l->nvml = NULL;
	}
	pthread_rwlock_unlock(&l->lock);
	return r;
}

/* ---- nvidia-smi ---- */

static int smi(const struct en_limits *l, const char *const *argv, struct en_exec_result *ret,
	       struct err *err)
{
	struct en_exec x = {.argv = argv, .limit_ms = l->options.smi_limit_ms};
	int r = en_exec_run(&x, ret, err);

	if (r != 0)
		return r == ERR_NOT_FOUND ? err_prefix(err, ERR_IO, "nvidia-smi") : r;
	if (ret->timed_out) {
		en_exec_fini(ret);
		if (ret->left != 0)
			return err_set(err, ERR_IO,
				       "nvidia-smi memory-limits hangs in the driver: process %d "
				       "cannot be killed",
				       (int)ret->left);
		return err_set(err, ERR_IO, "nvidia-smi memory-limits did not end in time");
	}
	return 0;
}

static int smi_set(const struct en_limits *l, const char *cgroup, const char *gpu_uuid,
		   int64_t soft_mib, int64_t hard_mib, struct err *err)
{
	char soft[24], hard[24];
	const char *argv[] = {l->options.smi, "memory-limits", "--set",
			      "--namespace",  cgroup,          "--soft-limit",
			      soft,           "--hard-limit",  hard,
			      "-i",           gpu_uuid,        NULL};
	struct en_exec_result out = {0};
	size_t len;
	int r;

	snprintf(soft, sizeof(soft), "%lld", (long long)soft_mib);
	if (hard_mib == EN_LIMIT_NONE)
		snprintf(hard, sizeof(hard), "max");
	else
		snprintf(hard, sizeof(hard), "%lld", (long long)hard_mib);
	r = smi(l, argv, &out, err);
	if (r != 0)
		return r;
	len = strcspn(out.out, "\n");
	if (strstr(out.out, "Not Supported") != NULL)
		r = no_limits(gpu_uuid, err);
	else if (out.status != 0 || strncmp(out.out, "Unable", 6) == 0)
		r = err_set(err, ERR_IO, "nvidia-smi memory-limits (status %d): %.*s", out.status,
			    len < 200 ? (int)len : 200, out.out);
	en_exec_fini(&out);
	return r;
}

static int smi_get(const struct en_limits *l, const char *cgroup, const char *gpu_uuid,
		   struct limits_seen *ret, struct err *err)
{
	const char *argv[] = {l->options.smi, "memory-limits", "--get", "--namespace", cgroup,
			      "-i",           gpu_uuid,        NULL};
	struct en_exec_result out = {0};
	int r = smi(l, argv, &out, err);

	if (r != 0)
		return r;
	if (strstr(out.out, "Not Supported") != NULL || strstr(out.out, "Not Found") != NULL)
		*ret = (struct limits_seen){.hard_mib = EN_LIMIT_NONE};
	else
		r = limits_parse(out.out, strlen(out.out), ret, err);
	en_exec_fini(&out);
	return r == ERR_INVALID ? ERR_IO : r;
}

/* ---- both ---- */

static int check_arguments(const char *cgroup, int64_t soft_mib, int64_t hard_mib, struct err *err)
{
	size_t len = strlen(cgroup);

	if (cgroup[0] != '/' || strstr(cgroup, "/../") != NULL ||
	    (len >= 3 && strcmp(cgroup + len - 3, "/..") == 0))
		return err_set(err, ERR_INVALID, "cgroup \"%.200s\" is not an absolute path",
			       cgroup);
	if (soft_mib < 0 || soft_mib > MIB_MAX || hard_mib < soft_mib ||
	    (hard_mib > MIB_MAX && hard_mib != EN_LIMIT_NONE))
		return err_set(err, ERR_INVALID, "limits of %lld and %lld MiB are not possible",
			       (long long)soft_mib, (long long)hard_mib);
	if (access(cgroup, F_OK) != 0)
		return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cgroup %.200s: %s",
			       cgroup, strerror(errno));
	return 0;
}

static int read_once(struct en_limits *l, const char *cgroup, const char *gpu_uuid,
		     struct limits_seen *ret, bool *ret_nvml, struct err *err)
{
	struct en_nvml *n;
	int r = enter(l, &n, err);

	if (r != 0)
		return r;
	r = n != NULL ? nvml_get(n, cgroup, gpu_uuid, ret, err)
		      : smi_get(l, cgroup, gpu_uuid, ret, err);
	pthread_rwlock_unlock(&l->lock);
	*ret_nvml = n != NULL;
	return r;
}

static int set_once(struct en_limits *l, const char *cgroup, const char *gpu_uuid, int64_t soft_mib,
		    int64_t hard_mib, struct err *err)
{
	struct en_nvml *n;
	int r = enter(l, &n, err);

	if (r != 0)
		return r;
	r = n != NULL ? nvml_set(n, cgroup, gpu_uuid, soft_mib, hard_mib, err)
		      : smi_set(l, cgroup, gpu_uuid, soft_mib, hard_mib, err);
	pthread_rwlock_unlock(&l->lock);
	return r;
}

static int set_and_read(struct en_limits *l, const char *cgroup, const char *gpu_uuid,
			int64_t soft_mib, int64_t hard_mib, struct err *err)
{
	struct limits_seen seen = {0};
	bool by_nvml = false;
	int r = 0;

	for (int tries = 0; tries < 2 && r == 0; tries++) {
		bool right = false;

		r = set_once(l, cgroup, gpu_uuid, soft_mib, hard_mib, err);
		if (r == 0)
			r = read_once(l, cgroup, gpu_uuid, &seen, &by_nvml, err);
		if (r != 0 || (seen.soft_mib == soft_mib && seen.hard_mib == hard_mib))
			return r;
		if (by_nvml)
			r = nvml_alone(l, cgroup, gpu_uuid, soft_mib, hard_mib, &right, err);
		if (right)
			return 0;
		if (!by_nvml || l->options.way == EN_LIMITS_NVML)
			break;
	}
	if (r != 0)
		return r;
	return err_set(err, ERR_IO,
		       "%s: limits of %lld and %lld MiB were set on %.200s, read back are %lld and "
		       "%lld",
		       gpu_uuid, (long long)soft_mib, (long long)hard_mib, cgroup,
		       (long long)seen.soft_mib, (long long)seen.hard_mib);
}

static int op_set(void *ctx, const char *cgroup, const char *gpu_uuid, int64_t soft_mib,
		  int64_t hard_mib, struct err *err)
{
	struct en_limits *l = ctx;
	pthread_mutex_t *pair = &l->pair[hash_str(cgroup, hash_str(gpu_uuid, 0)) % PAIRS];
	int r = check_arguments(cgroup, soft_mib, hard_mib, err);

	if (r != 0)
		return r;
	pthread_mutex_lock(pair);
	r = set_and_read(l, cgroup, gpu_uuid, soft_mib, hard_mib, err);
	pthread_mutex_unlock(pair);
	return r;
}

static int op_get(void *ctx, const char *cgroup, const char *gpu_uuid, int64_t *ret_soft_mib,
		  int64_t *ret_hard_mib, int64_t *ret_used_mib, struct err *err)
{
	struct limits_seen seen = {0};
	bool by_nvml;
	int r = check_arguments(cgroup, 0, EN_LIMIT_NONE, err);

	if (r == 0)
		r = read_once(ctx, cgroup, gpu_uuid, &seen, &by_nvml, err);
	if (r != 0)
		return r;
	if (ret_soft_mib != NULL)
		*ret_soft_mib = seen.soft_mib;
	if (ret_hard_mib != NULL)
		*ret_hard_mib = seen.hard_mib;
	if (ret_used_mib != NULL)
		*ret_used_mib = seen.used_mib;
	return 0;
}

/* ---- outside ---- */

int en_limits_new(const struct en_limits_options *o, struct en_limits **ret, struct err *err)
{
	struct en_limits *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	pthread_rwlock_init(&l->lock, NULL);
	for (size_t i = 0; i < PAIRS; i++)
		pthread_mutex_init(&l->pair[i], NULL);
	l->options = *o;
	l->options.library = o->library != NULL ? strdup(o->library) : NULL;
	l->options.smi = strdup(o->smi != NULL ? o->smi : "nvidia-smi");
	l->ops = (struct en_limits_ops){.set = op_set, .get = op_get, .ctx = l};
	if (l->options.smi == NULL || (o->library != NULL && l->options.library == NULL)) {
		en_limits_free(l);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	*ret = l;
	return 0;
}

static void free_const(const void *p)
{
	void *q;

	memcpy(&q, &p, sizeof(q));
	free(q);
}

void en_limits_free(struct en_limits *l)
{
	if (l == NULL)
		return;
	en_nvml_close(l->nvml);
	pthread_rwlock_destroy(&l->lock);
	for (size_t i = 0; i < PAIRS; i++)
		pthread_mutex_destroy(&l->pair[i]);
	free_const(l->options.library);
	free_const(l->options.smi);
	free(l);
}

const struct en_limits_ops *en_limits_ops(struct en_limits *l)
{
	return &l->ops;
}

void en_limits_close(struct en_limits *l)
{
	pthread_rwlock_wrlock(&l->lock);
	en_nvml_close(l->nvml);
	l->nvml = NULL;
	pthread_rwlock_unlock(&l->lock);
}

const char *en_limits_way_name(struct en_limits *l)
{
	bool by_smi;

	pthread_rwlock_rdlock(&l->lock);
	by_smi = l->use_smi || l->options.way == EN_LIMITS_SMI;
	pthread_rwlock_unlock(&l->lock);
	return by_smi ? "nvidia-smi" : "nvml";
}

int en_limits_clear(const struct en_limits_ops *ops, const char *cgroup, const char *gpu_uuid,
		    struct err *err)
{
	int r = ops->set(ops->ctx, cgroup, gpu_uuid, 0, EN_LIMIT_NONE, err);

	if (r < 0 && access(cgroup, F_OK) != 0) {
		if (err != NULL)
			err->msg[0] = '\0';
		return 0;
	}
	return r;
}

static void format_limit(int64_t mib, char ret[32])
{
	if (mib == EN_LIMIT_NONE)
		snprintf(ret, 32, "none");
	else
		snprintf(ret, 32, "%lld MiB", (long long)mib);
}

int en_limits_check(const struct en_limits_ops *ops, const char *cgroup, const char *gpu_uuid,
		    int64_t soft_mib, int64_t hard_mib, struct err *err)
{
	int64_t soft = 0, hard = 0;
	char want[32], found[32];
	int r = ops->get(ops->ctx, cgroup, gpu_uuid, &soft, &hard, NULL, err);

	if (r != 0 || (soft == soft_mib && hard == hard_mib))
		return r;
	format_limit(hard_mib, want);
	format_limit(hard, found);
	if (hard != hard_mib)
		return err_set(err, ERR_CONFLICT, "%s: the limit on %.200s is %s, not %s", gpu_uuid,
			       cgroup, found, want);
	return err_set(err, ERR_CONFLICT, "%s: the guarantee on %.200s is %lld MiB, not %lld MiB",
		       gpu_uuid, cgroup, (long long)soft, (long long)soft_mib);
}

char *en_limits_pinned(const int64_t *mib, size_t count)
{
	struct buf b = BUF_INIT;

	for (size_t i = 0; i < count; i++)
		buf_printf(&b, "%s%zu=%lldM", i > 0 ? "," : "", i, (long long)mib[i]);
	return buf_take(&b);
}

#include "enforcer/measure.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/hook_cgroup.h"

#define PROCESSES_MAX 256
#define SAMPLES_MAX 512
#define CGROUP_FILE_MAX ((size_t)64 << 10)
#define MIB_SHIFT 20

/* A GPU's clock of samples: where the next question begins. */
struct since {
	char gpu[EN_UUID_CAP];
	uint64_t us;
};

/* Which container a process belongs to, for the length of one run. */
struct known_pid {
	uint32_t pid;
	const struct en_holding *of; /* NULL: of none */
};

struct en_measurer {
	struct en_measure_options o;
	struct since since[ST_GPUS_MAX];
	struct known_pid *pids; /* of this run */
	size_t pid_count, pid_cap;

	pthread_mutex_t lock; /* of the rows, for readers */
	struct en_measured *rows;
	size_t count, cap;
};

struct en_measurer *en_measurer_new(const struct en_measure_options *o)
{
	struct en_measurer *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->o = *o;
	if (m->o.proc == NULL)
		m->o.proc = "/proc";
	pthread_mutex_init(&m->lock, NULL);
	return m;
}

void en_measurer_free(struct en_measurer *m)
{
	if (m == NULL)
		return;
	free(m->pids);
	free(m->rows);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

int en_measure_normal(int sm_percent, int32_t compute_nano, int32_t request_mib, int32_t gpu_mib)
{
	int64_t v;

	if (sm_percent < 0)
		return -1;
	if (compute_nano > 0)
		v = (int64_t)sm_percent * 1000000000 / compute_nano;
	else if (request_mib > 0 && gpu_mib > 0)
		v = (int64_t)sm_percent * gpu_mib / request_mib;
	else
		v = sm_percent;
	return v > 100 ? 100 : (int)v;
}

/* ---- processes ---- */

static const struct en_holding *look_up(const struct en_measurer *m, uint32_t pid,
					const struct en_holding *const *holdings, size_t count)
{
	const struct en_holding *ret = NULL;
	char path[EN_PATH_CAP], *text;
	size_t len;

	snprintf(path, sizeof(path), "%s/%u/cgroup", m->o.proc, pid);
	if (file_read(path, CGROUP_FILE_MAX, &text, &len, NULL) != 0)
		return NULL;
	for (size_t i = 0; ret == NULL && i < count; i++) {
		if (holdings[i]->id[0] != '\0' && strstr(text, holdings[i]->id) != NULL)
			ret = holdings[i];
	}
	free(text);
	return ret;
}

/* The container of a process; looked up once a run. */
static const struct en_holding *owner_of(struct en_measurer *m, uint32_t pid,
					 const struct en_holding *const *holdings, size_t count)
{
	const struct en_holding *of;

	for (size_t i = 0; i < m->pid_count; i++) {
		if (m->pids[i].pid == pid)
			return m->pids[i].of;
	}
	of = look_up(m, pid, holdings, count);
	if (m->pid_count == m->pid_cap) {
		size_t cap = m->pid_cap == 0 ? 64 : m->pid_cap * 2;
		struct known_pid *grown = reallocarray(m->pids, cap, sizeof(*grown));

		if (grown == NULL)
			return of;
		m->pids = grown;
		m->pid_cap = cap;
	}
	m->pids[m->pid_count++] = (struct known_pid){pid, of};
	return of;
}

/* Seconds since the epoch at which a process began; 0: not known. */
static int64_t started_at(const struct en_measurer *m, uint32_t pid, int64_t wall_s)
{
	char path[EN_PATH_CAP], *text, *at;
	unsigned long long ticks = 0;
	double up = 0;
	long hz = sysconf(_SC_CLK_TCK);
	size_t len;

	snprintf(path, sizeof(path), "%s/%u/stat", m->o.proc, pid);
	if (hz <= 0 || file_read(path, CGROUP_FILE_MAX, &text, &len, NULL) != 0)
		return 0;
	at = strrchr(text, ')'); /* the name before it may hold anything */
	for (int field = 2; at != NULL && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (at != NULL)
		ticks = strtoull(at, NULL, 10);
	free(text);
	snprintf(path, sizeof(path), "%s/uptime", m->o.proc);
	if (ticks == 0 || file_read(path, CGROUP_FILE_MAX, &text, &len, NULL) != 0)
		return 0;
	up = strtod(text, NULL);
	free(text);
	return wall_s - ((int64_t)up - (int64_t)(ticks / (unsigned long long)hz));
}

/* ---- rows; only this thread changes them ---- */

static struct en_measured *row_find(const struct en_measurer *m, const char *id, const char *gpu)
{
	for (size_t i = 0; i < m->count; i++) {
		if (strcmp(m->rows[i].gpu, gpu) == 0 && strcmp(m->rows[i].id, id) == 0)
			return &m->rows[i];
	}
	return NULL;
}

static const struct en_probe_gpu *gpu_find(const struct en_probe *p, const char *uuid)
{
	for (size_t i = 0; i < p->gpu_count; i++) {
		if (strcmp(p->gpus[i].uuid, uuid) == 0)
			return &p->gpus[i];
	}
	return NULL;
}

static void row_fill(struct en_measured *r, const struct en_holding *h, int i)
{
	snprintf(r->id, sizeof(r->id), "%s", h->id);
	snprintf(r->ns, sizeof(r->ns), "%s", h->ns);
	snprintf(r->pod, sizeof(r->pod), "%s", h->pod);
	snprintf(r->pod_uid, sizeof(r->pod_uid), "%s", h->pod_uid);
	snprintf(r->container, sizeof(r->container), "%s", h->container);
	memcpy(r->gpu, h->gpus[i], sizeof(r->gpu));
	r->kind = h->grant.kind;
	r->mode = h->grant.mode;
	r->request_mib = h->grant.request_mib;
	r->limit_mib = h->grant.limit_mib;
	r->compute_nano = h->grant.compute_nano;
}

/* Room for so many more, so that nothing fails half-way. */
static int reserve(struct en_measurer *m, size_t more, struct err *err)
{
	struct en_measured *grown;
	size_t cap = m->count + more;

	if (cap <= m->cap)
		return 0;
	grown = calloc(cap, sizeof(*grown));
	if (grown == NULL)
		return err_set(err, ERR_NOMEM, "measuring: no memory");
	if (m->count > 0)
		memcpy(grown, m->rows, m->count * sizeof(*grown));
	free(m->rows);
	m->rows = grown;
	m->cap = cap;
	return 0;
}

static void match_rows(struct en_measurer *m, const struct en_probe *probe,
		       const struct en_holding *const *holdings, size_t count, int64_t wall_s)
{
	size_t to = 0;

	for (size_t i = 0; i < m->count; i++)
		m->rows[i].seen = false;
	for (size_t i = 0; i < count; i++) {
		const struct en_holding *h = holdings[i];

		for (int k = 0; k < h->grant.count && !h->stopped && h->pid != 0; k++) {
			struct en_measured *r = row_find(m, h->id, h->gpus[k]);
			const struct en_probe_gpu *g = gpu_find(probe, h->gpus[k]);

			if (r == NULL) {
				r = &m->rows[m->count++];
				memset(r, 0, sizeof(*r));
			}
			row_fill(r, h, k);
			r->seen = true;
			if (r->started_s == 0)
				r->started_s = started_at(m, h->pid, wall_s);
			if (g != NULL) {
				r->gpu_idx = g->index;
				r->gpu_mib = g->mem_mib;
			}
		}
	}
	for (size_t i = 0; i < m->count; i++) {
		if (m->rows[i].seen && to++ != i)
			m->rows[to - 1] = m->rows[i];
	}
	m->count = to;
}

/* ---- one GPU ---- */

struct found { /* of one row, in this run */
	int64_t bytes;
	int64_t by_limits; /* MiB, as the limits count; -1: not asked, or not known */
	int sm;
	bool listed;
	uint32_t pids[EN_MEASURE_PIDS_MAX];
	size_t pid_count;
	unsigned processes;
};

static bool has_pid(const uint32_t *pids, size_t count, uint32_t pid)
{
	for (size_t i = 0; i < count; i++) {
		if (pids[i] == pid)
			return true;
	}
	return false;
}

/* Contexts that went away while the container was over what it is guaranteed and its process lived on. */
static unsigned lost_contexts(const struct en_measurer *m, const struct en_measured *r,
			      const struct found *f)
{
	unsigned n = 0;

	if (r->used_mib <= r->request_mib || r->limit_mib <= r->request_mib)
		return 0;
	for (size_t i = 0; i < r->pid_count; i++) {
		char path[EN_PATH_CAP];

		snprintf(path, sizeof(path), "%s/%u", m->o.proc, r->pids[i]);
		n += !has_pid(f->pids, f->pid_count, r->pids[i]) && access(path, F_OK) == 0;
	}
	return n;
}

static void row_finish(const struct en_measurer *m, struct en_measured *r, const struct found *f)
{
	int64_t used = f->listed ? f->bytes >> MIB_SHIFT : -1;
	bool at_limit;

	used = f->by_limits > used ? f->by_limits : used;
	if (f->listed)
		r->evictions += lost_contexts(m, r, f);
	at_limit = r->kind == ST_KIND_SHARE && r->limit_mib > 0 && used >= 0 &&
		   used >= (int64_t)r->limit_mib - r->limit_mib / 100;
	r->limit_hits += at_limit && !r->at_limit;
	r->at_limit = at_limit;
	r->used_mib = used;
	r->sm_percent = f->sm > 100 ? 100 : f->sm;
	r->sm_normal = en_measure_normal(r->sm_percent, r->compute_nano,
					 r->kind == ST_KIND_SHARE ? r->request_mib : 0, r->gpu_mib);
	memcpy(r->pids, f->pids, sizeof(r->pids));
	r->pid_count = f->pid_count;
	r->process_count = f->processes;
}

static uint64_t *since_of(struct en_measurer *m, const char *gpu)
{
	size_t i = 0;

	while (i + 1 < ST_GPUS_MAX && m->since[i].gpu[0] != '\0' &&
	       strcmp(m->since[i].gpu, gpu) != 0)
		i++;
	if (strcmp(m->since[i].gpu, gpu) != 0) {
		snprintf(m->since[i].gpu, sizeof(m->since[i].gpu), "%s", gpu);
		m->since[i].us = 0;
	}
	return &m->since[i].us;
}

struct gpu_run {
	struct en_measurer *m;
	const struct en_holding *const *holdings;
	size_t count;
	const char *gpu;
	struct found *found; /* one a row of m */
};

static struct found *found_of(const struct gpu_run *g, uint32_t pid)
{
	const struct en_holding *h = owner_of(g->m, pid, g->holdings, g->count);
	const struct en_measured *r = h != NULL ? row_find(g->m, h->id, g->gpu) : NULL;

	return r != NULL ? &g->found[r - g->m->rows] : NULL;
}

static void read_processes(const struct gpu_run *g, struct en_nvml *n, struct en_nvml_device *d)
{
	struct en_nvml_process list[PROCESSES_MAX];
	size_t count = 0;

	if (en_nvml_processes(n, d, list, PROCESSES_MAX, &count, NULL) != 0)
		return;
	for (size_t i = 0; i < g->m->count; i++) {
		if (strcmp(g->m->rows[i].gpu, g->gpu) == 0)
			g->found[i].listed = true;
	}
	for (size_t i = 0; i < count && i < PROCESSES_MAX; i++) {
		struct found *f = list[i].pid != 0 ? found_of(g, list[i].pid) : NULL;

		if (f == NULL || has_pid(f->pids, f->pid_count, list[i].pid))
			continue;
		f->bytes += (int64_t)list[i].mem_bytes;
		f->processes++;
		if (f->pid_count < EN_MEASURE_PIDS_MAX)
			f->pids[f->pid_count++] = list[i].pid;
	}
}

/* The mean of each process' samples, added up. */
static void read_use(const struct gpu_run *g, struct en_nvml *n, struct en_nvml_device *d)
{
	struct en_nvml_use list[SAMPLES_MAX];
	uint64_t *since = since_of(g->m, g->gpu), newest = *since;
	size_t count = 0;

	if (en_nvml_use(n, d, *since, list, SAMPLES_MAX, &count, NULL) != 0)
		return;
	count = count < SAMPLES_MAX ? count : SAMPLES_MAX;
	for (size_t i = 0; i < g->m->count; i++) {
		if (strcmp(g->m->rows[i].gpu, g->gpu) == 0)
			g->found[i].sm = 0;
	}
	for (size_t i = 0; i < count; i++) {
		unsigned sum = 0, samples = 0;
		bool done = false;
		struct found *f;

		newest = list[i].time_us > newest ? list[i].time_us : newest;
		for (size_t k = 0; k < i && !done; k++)
			done = list[k].pid == list[i].pid;
		f = done || list[i].pid == 0 ? NULL : found_of(g, list[i].pid);
		for (size_t k = i; f != NULL && k < count; k++) {
			if (list[k].pid == list[i].pid && list[k].time_us > *since) {
				sum += list[k].sm_percent;
				samples++;
			}
		}
		if (f != NULL && samples > 0)
			f->sm += (int)((sum + samples / 2) / samples);
	}
	*since = newest;
}

static const struct en_holding *holding_of(const struct gpu_run *g, const char *id)
{
	for (size_t i = 0; i < g->count; i++) {
		if (strcmp(g->holdings[i]->id, id) == 0)
			return g->holdings[i];
	}
	return NULL;
}

static int64_t ask_limits(const struct en_measurer *m, const struct en_holding *h, const char *gpu)
{
	const struct en_limits_ops *ops = m->o.ops;
	char cgroup[EN_CGROUP_CAP];
	int64_t used = -1;

	if (h == NULL || !h->by_cgroup || h->cgroup[0] == '\0' || ops == NULL || ops->get == NULL ||
	    m->o.cgroup_mount == NULL ||
	    en_cgroup_join(m->o.cgroup_mount, h->cgroup, cgroup, NULL) != 0 ||
	    ops->get(ops->ctx, cgroup, gpu, NULL, NULL, &used, NULL) != 0)
		return -1;
	return used;
}

/* The driver is asked without the lock. */
static void finish(const struct gpu_run *g, bool by_cgroup)
{
	struct en_measurer *m = g->m;

	for (size_t i = 0; by_cgroup && i < m->count; i++)
		g->found[i].by_limits = ask_limits(m, holding_of(g, m->rows[i].id), m->rows[i].gpu);
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < m->count; i++)
		row_finish(m, &m->rows[i], &g->found[i]);
	pthread_mutex_unlock(&m->lock);
}

int en_measurer_run(struct en_measurer *m, struct en_nvml *nvml, const struct en_probe *probe,
		    const struct en_holding *const *holdings, size_t count, bool by_cgroup,
		    int64_t wall_s, struct err *err)
{
	struct gpu_run g = {.m = m, .holdings = holdings, .count = count};
	size_t more = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		more += holdings[i]->grant.count;
	m->pid_count = 0;
	pthread_mutex_lock(&m->lock);
	rc = reserve(m, more, err);
	if (rc == 0)
		match_rows(m, probe, holdings, count, wall_s);
	pthread_mutex_unlock(&m->lock);
	if (rc != 0 || m->count == 0)
		return rc;
	g.found = calloc(m->count, sizeof(*g.found));
	if (g.found == NULL)
		return err_set(err, ERR_NOMEM, "measuring: no memory");
	for (size_t i = 0; i < m->count; i++)
		g.found[i].sm = -1, g.found[i].by_limits = -1;
	for (size_t i = 0; nvml != NULL && i < probe->gpu_count; i++) {
		struct en_nvml_device *d;

		g.gpu = probe->gpus[i].uuid;
		if (!probe->gpus[i].healthy || en_nvml_device_by_uuid(nvml, g.gpu, &d, NULL) != 0)
			continue;
		read_processes(&g, nvml, d);
		read_use(&g, nvml, d);
	}
	finish(&g, by_cgroup && nvml != NULL);
	free(g.found);
	return 0;
}

int en_measurer_rows(struct en_measurer *m, struct en_measured **ret, size_t *ret_count,
		     struct err *err)
{
	struct en_measured *rows = NULL;
	size_t count;

	pthread_mutex_lock(&m->lock);
	count = m->count;
	if (count > 0)
		rows = calloc(count, sizeof(*rows));
	if (rows != NULL)
		memcpy(rows, m->rows, count * sizeof(*rows));
	pthread_mutex_unlock(&m->lock);
	if (count > 0 && rows == NULL)
		return err_set(err, ERR_NOMEM, "measuring: no memory");
	*ret = rows;
	*ret_count = count;
	return 0;
}

#include "enforcer/probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "enforcer/probe_internal.h"

#define MIB ((uint64_t)1 << 20)
#define MEMORY_MAX ((size_t)ST_GPUS_MAX * 2) /* GPUs remembered */
#define XIDS_A_RUN 256
#define XID_LOST 79 /* fallen off the bus */

static const char uuid_chars[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";

struct en_prober {
	struct en_probe_options options; /* strings and list are ours */
	struct en_nvml *nvml;            /* NULL: closed */
	bool watching;
	struct probe_memory memory[MEMORY_MAX];
	struct buf told;       /* by the kubelet, last: who has which device */
	struct en_probe *good; /* the last run with a driver; driver_ok false: none yet */
	unsigned failures;     /* runs without, in a row, since then */
};

/* ---- features ---- */

int en_driver_major(const char *version, int *ret, struct err *err)
{
	size_t len = strcspn(version, ".");
	char digits[8];
	int64_t v;

	if (len == 0 || len >= sizeof(digits) || version[strspn(version, "0123456789.")] != '\0')
		return err_set(err, ERR_INVALID, "driver version \"%.40s\" is not understood",
			       version);
	memcpy(digits, version, len);
	digits[len] = '\0';
	if (integer_parse(digits, 1, 99999, &v, NULL) != 0)
		return err_set(err, ERR_INVALID, "driver version \"%.40s\" is not understood",
			       version);
	*ret = (int)v;
	return 0;
}

unsigned en_driver_features(int major)
{
	return major >= EN_DRIVER_V3_MAJOR ? EN_FEATURE_MPS_V3 | EN_FEATURE_MEMORY_LIMITS : 0;
}

bool en_xid_is_application(uint64_t xid)
{
	static const uint64_t application[] = {13, 31, 43, 45, 68, 109};

	for (size_t i = 0; i < sizeof(application) / sizeof(application[0]); i++) {
		if (application[i] == xid)
			return true;
	}
	return false;
}

/* ---- small things ---- */

void probe_note(struct en_probe *p, const char *fmt, ...)
{
	va_list ap;

	if (p->note_count == EN_NOTES_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(p->notes[p->note_count].msg, ERR_MSG_CAP, fmt, ap);
	va_end(ap);
	p->note_count++;
}

void probe_unhealthy(struct en_probe_gpu *gpu, const char *fmt, ...)
{
	va_list ap;

	if (!gpu->healthy)
		return;
	gpu->healthy = false;
	va_start(ap, fmt);
	vsnprintf(gpu->why, sizeof(gpu->why), fmt, ap);
	va_end(ap);
}

static struct probe_memory *memory_find(struct en_prober *p, const char *uuid)
{
	for (size_t i = 0; i < MEMORY_MAX; i++) {
		if (p->memory[i].last.uuid[0] != '\0' && strcmp(p->memory[i].last.uuid, uuid) == 0)
			return &p->memory[i];
	}
	return NULL;
}

/* The memory of a GPU, made on first sight; NULL: too many. */
static struct probe_memory *memory_get(struct en_prober *p, const char *uuid)
{
	struct probe_memory *m = memory_find(p, uuid);

	for (size_t i = 0; i < MEMORY_MAX && m == NULL; i++) {
		if (p->memory[i].last.uuid[0] == '\0') {
			m = &p->memory[i];
			memset(m, 0, sizeof(*m));
			snprintf(m->last.uuid, sizeof(m->last.uuid), "%s", uuid);
		}
	}
	return m;
}

/* ---- life ---- */

int en_prober_new(const struct en_probe_options *o, struct en_prober **ret, struct err *err)
{
	struct en_prober *p = calloc(1, sizeof(*p));
	uint64_t *xids;

	if (p == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	p->options = *o;
	p->options.library = o->library != NULL ? strdup(o->library) : NULL;
	p->options.root = strdup(o->root != NULL ? o->root : "");
	p->good = calloc(1, sizeof(*p->good));
	p->options.kubelet_socket = o->kubelet_socket != NULL ? strdup(o->kubelet_socket) : NULL;
	xids = calloc(o->xids_ignored_count + 1, sizeof(*xids));
	p->options.xids_ignored = xids;
	if (p->options.throttled_after == 0)
		p->options.throttled_after = 5;
	if ((o->library != NULL && p->options.library == NULL) || p->options.root == NULL ||
	    p->good == NULL || (o->kubelet_socket != NULL && p->options.kubelet_socket == NULL) ||
	    xids == NULL) {
		en_prober_free(p);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	if (o->xids_ignored_count > 0)
		memcpy(xids, o->xids_ignored, o->xids_ignored_count * sizeof(*xids));
	*ret = p;
	return 0;
}

static void free_const(const void *p)
{
	void *q;

	memcpy(&q, &p, sizeof(q));
	free(q);
}

void en_prober_free(struct en_prober *p)
{
	if (p == NULL)
		return;
	en_nvml_close(p->nvml);
	buf_fini(&p->told);
	free(p->good);
	free_const(p->options.library);
	free_const(p->options.root);
	free_const(p->options.kubelet_socket);
	free_const(p->options.xids_ignored);
	free(p);
}

static void close_library(struct en_prober *p)
{
	en_nvml_close(p->nvml);
	p->nvml = NULL;
	p->watching = false;
}

static void forget_errors(struct en_prober *p)
{
	for (size_t i = 0; i < MEMORY_MAX; i++) {
		p->memory[i].xid_fatal = 0;
		p->memory[i].xid_last = 0;
		p->memory[i].throttled = 0;
		p->memory[i].is_throttled = false;
	}
}

void en_prober_close(struct en_prober *p)
{
	close_library(p);
	forget_errors(p);
}

struct en_nvml *en_prober_nvml(struct en_prober *p)
{
	return p->nvml;
}

void en_prober_mend(struct en_prober *p, const char *uuid)
{
	struct probe_memory *m = memory_find(p, uuid);

	if (m != NULL) {
		m->xid_fatal = 0;
		m->xid_last = 0;
	}
}

/* ---- XID errors ---- */

static bool xid_ignored(const struct en_prober *p, uint64_t xid)
{
	for (size_t i = 0; i < p->options.xids_ignored_count; i++) {
		if (p->options.xids_ignored[i] == xid)
			return true;
	}
	return en_xid_is_application(xid);
}

/* An error that the driver cannot attribute stands against every GPU, as one of them has it. */
static void take_xid(struct en_prober *p, const char *uuid, uint64_t xid)
{
	for (size_t i = 0; i < MEMORY_MAX; i++) {
		struct probe_memory *m = &p->memory[i];

		if (m->last.uuid[0] == '\0' || (uuid[0] != '\0' && strcmp(m->last.uuid, uuid) != 0))
			continue;
		/* "Lost" without a name: each GPU's own state tells whether it is the one. */
		if (uuid[0] == '\0' && xid == XID_LOST)
			continue;
		m->xid_last = xid;
		if (!xid_ignored(p, xid))
			m->xid_fatal = xid;
	}
}

static int read_xids(struct en_prober *p, struct en_probe *ret, struct err *err)
{
	char uuid[EN_NVML_TEXT_CAP];
	uint64_t xid;
	int r = 0;

	for (int i = 0; i < XIDS_A_RUN; i++) {
		r = en_nvml_next_xid(p->nvml, 0, uuid, &xid, err);
		if (r != 0)
			break;
		take_xid(p, uuid, xid);
	}
	if (r < 0 && !en_nvml_lost(p->nvml)) {
		probe_note(ret, "XID errors cannot be read: %s", err != NULL ? err->msg : "");
		r = 0;
	}
	return r < 0 ? r : 0;
}

/* ---- one run ---- */

/* The GPU of an index that does not answer, if it was known: unchanged, not healthy. */
static void keep_lost(struct en_prober *p, struct en_probe *ret, unsigned index, const char *why)
{
	for (size_t i = 0; i < MEMORY_MAX; i++) {
		struct probe_memory *m = &p->memory[i];
		struct en_probe_gpu *gpu = &ret->gpus[ret->gpu_count];

		if (m->last.uuid[0] == '\0' || m->last.mem_mib == 0 || m->seen ||
		    m->last.index != index || ret->gpu_count == ST_GPUS_MAX)
			continue;
		m->seen = true;
		*gpu = m->last;
		gpu->healthy = true;
		probe_unhealthy(gpu, "%s", why);
		ret->gpu_count++;
		return;
	}
	probe_note(ret, "GPU %u is left out: %s", index, why);
}

static int read_gpu(struct en_prober *p, struct en_nvml_device *d, struct en_probe *ret,
		    unsigned index, struct err *err)
{
	struct en_probe_gpu *gpu = &ret->gpus[ret->gpu_count];
	struct en_nvml_identity id;
	struct probe_memory *m;
	int r = en_nvml_identity(p->nvml, d, &id, err);

	if (r != 0)
		return r;
	/* The inventory as a whole would be refused for one such name. */
	if (id.uuid[0] == '\0' || id.uuid[strspn(id.uuid, uuid_chars)] != '\0')
		return err_set(err, ERR_IO, "its UUID is not understood");
	m = memory_get(p, id.uuid);
	if (m == NULL || m->seen)
		return err_set(err, ERR_CONFLICT,
			       m == NULL ? "more GPUs than can be remembered"
					 : "its UUID is there twice");
	memset(gpu, 0, sizeof(*gpu));
	memcpy(gpu->uuid, id.uuid, sizeof(gpu->uuid));
	memcpy(gpu->product, id.product, sizeof(gpu->product));
	memcpy(gpu->bus, id.bus, sizeof(gpu->bus));
	gpu->index = index;
	gpu->minor = id.minor;
	gpu->mem_mib = id.mem_bytes / MIB > INT32_MAX ? INT32_MAX : (int32_t)(id.mem_bytes / MIB);
	gpu->healthy = true;
	if (gpu->mem_mib == 0)
		return err_set(err, ERR_IO, "it reports no memory");
	r = en_nvml_state(p->nvml, d, &gpu->state, err);
	if (r == 0 && !gpu->state.lost)
		r = probe_mig(p->nvml, d, ret, gpu, err);
	if (r == 0 && !gpu->state.lost)
		r = probe_processes(p->nvml, d, &p->options, m, ret, gpu, err);
	if (r < 0)
		return r;
	m->last = *gpu;
	m->seen = true;
	m->answers = true;
	ret->gpu_count++;
	return 0;
}

/* After the XID errors were read, which may be about GPUs first seen in this run. */
static void judge_gpus(struct en_prober *p, struct en_probe *ret)
{
	for (size_t i = 0; i < ret->gpu_count; i++) {
		struct probe_memory *m = memory_find(p, ret->gpus[i].uuid);

		if (m == NULL || !m->answers)
			continue;
		ret->gpus[i].xid = m->xid_last;
		probe_judge(&p->options, m, &ret->gpus[i]);
		m->last = ret->gpus[i];
	}
}

static int read_gpus(struct en_prober *p, struct en_probe *ret, struct err *err)
{
	unsigned count = 0;
	int r = en_nvml_count(p->nvml, &count, err);

	if (r != 0)
		return r == EN_NVML_UNSUPPORTED ? err_set(err, ERR_IO, "GPUs are not counted") : r;
	if (count > ST_GPUS_MAX) {
		probe_note(ret, "%u GPUs, only the first %d are used", count, ST_GPUS_MAX);
		count = ST_GPUS_MAX;
	}
	for (unsigned i = 0; i < count; i++) {
		struct en_nvml_device *d;

		r = en_nvml_device(p->nvml, i, &d, err);
		if (r == 0)
			r = read_gpu(p, d, ret, i, err);
		if (r < 0 && (en_nvml_lost(p->nvml) || r == ERR_NOMEM))
			return r;
		if (r != 0) {
			keep_lost(p, ret, i, err != NULL ? err->msg : "it does not answer");
			if (err != NULL)
				err->msg[0] = '\0';
		}
	}
	return 0;
}

/* GPUs that were here and are not counted any more. Their index may be another's now. */
static void keep_missing(struct en_prober *p, struct en_probe *ret)
{
	uint32_t free_index = 0;

	for (size_t i = 0; i < ret->gpu_count; i++) {
		if (ret->gpus[i].index >= free_index)
			free_index = ret->gpus[i].index + 1;
	}
	for (size_t i = 0; i < MEMORY_MAX; i++) {
		struct probe_memory *m = &p->memory[i];
		struct en_probe_gpu *gpu = &ret->gpus[ret->gpu_count];

		if (m->last.uuid[0] == '\0' || m->last.mem_mib == 0 || m->seen)
			continue;
		if (ret->gpu_count == ST_GPUS_MAX) {
			probe_note(ret, "%s is missing and left out", m->last.uuid);
			continue;
		}
		*gpu = m->last;
		gpu->healthy = true;
		probe_unhealthy(gpu, "the driver does not list it any more");
		gpu->index = free_index++;
		ret->gpu_count++;
	}
}

static int open_driver(struct en_prober *p, struct en_probe *ret, struct err *err)
{
	int r = 0;

	if (p->nvml != NULL && en_nvml_lost(p->nvml))
		en_prober_close(p);
	if (p->nvml == NULL)
		r = en_nvml_open(p->options.library, &p->nvml, err);
	if (r == 0) {
		r = en_nvml_driver_version(p->nvml, ret->driver, err);
		if (r == EN_NVML_UNSUPPORTED)
			r = err_set(err, ERR_IO, "the driver tells no version");
	}
	if (r == 0)
		r = en_driver_major(ret->driver, &ret->driver_major, err);
	/* Another driver has reset its GPUs. */
	if (r == 0 && p->good->driver_ok && strcmp(p->good->driver, ret->driver) != 0)
		forget_errors(p);
	return r;
}

static int run(struct en_prober *p, struct en_probe *ret, struct err *err)
{
	int r = open_driver(p, ret, err);

	if (r == 0 && !p->watching) {
		r = en_nvml_watch(p->nvml, err);
		if (r < 0 && !en_nvml_lost(p->nvml)) {
			probe_note(ret, "XID errors cannot be watched: %s", err->msg);
			r = 0;
		}
		p->watching = r >= 0;
	}
	if (r >= 0)
		r = read_gpus(p, ret, err);
	if (r == 0)
		r = read_xids(p, ret, err);
	if (r == 0)
		judge_gpus(p, ret);
	return r;
}

/* The driver does not answer. Once may be chance, and much hangs on it (MPS is ended, the node is not
 * ready): the last run is shown again, with a note. */
static int no_driver(struct en_prober *p, const struct err *why, struct en_probe *ret)
{
	close_library(p);
	if (p->good->driver_ok && p->failures++ == 0) {
		*ret = *p->good;
		ret->stale = true;
		probe_note(ret, "the driver did not answer: %s", why->msg);
		return 0;
	}
	memset(ret, 0, sizeof(*ret));
	ret->why = *why;
	return 0;
}

int en_prober_run(struct en_prober *p, struct en_probe *ret, struct err *err)
{
	struct err why = ERR_INIT;
	int r = 0;

	/* Twice: a driver that was exchanged is found out by the first call that fails. */
	for (int tries = 0; tries < 2; tries++) {
		memset(ret, 0, sizeof(*ret));
		for (size_t i = 0; i < MEMORY_MAX; i++)
			p->memory[i].seen = p->memory[i].answers = false;
		why.msg[0] = '\0';
		r = run(p, ret, &why);
		if (r == 0 || p->nvml == NULL || !en_nvml_lost(p->nvml))
			break;
		en_prober_close(p);
	}
	if (r == ERR_NOMEM)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (r != 0)
		return no_driver(p, &why, ret);
	keep_missing(p, ret);
	probe_plugins(&p->options, &p->told, ret);
	ret->driver_ok = true;
	ret->features = en_driver_features(ret->driver_major);
	for (size_t i = 0; i < ret->gpu_count; i++) {
		if (ret->gpus[i].mig_capable)
			ret->features |= EN_FEATURE_MIG;
	}
	*p->good = *ret;
	p->failures = 0;
	return 0;
}

void en_probe_to_node(const struct en_probe *p, struct en_node_gpu *gpus, size_t *ret_count)
{
	for (size_t i = 0; i < p->gpu_count; i++) {
		const struct en_probe_gpu *g = &p->gpus[i];

		memset(&gpus[i], 0, sizeof(gpus[i]));
		memcpy(gpus[i].uuid, g->uuid, sizeof(gpus[i].uuid));
		gpus[i].index = g->index;
		gpus[i].product = g->product[0] != '\0' ? g->product : NULL;
		gpus[i].mem_mib = g->mem_mib;
		gpus[i].mig_enabled = g->mig_enabled;
		gpus[i].mig_switchable = g->mig_switchable;
		gpus[i].has_geometry = g->has_geometry;
		gpus[i].geometry = g->geometry;
		gpus[i].instance_count = g->instance_count;
		gpus[i].instances = g->instances;
	}
	*ret_count = p->gpu_count;
}

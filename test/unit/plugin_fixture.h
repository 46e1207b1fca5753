/* The plugin with a made-up world around it: the driver is a recorder, cgroups are those of a made-up /proc. */
#ifndef TESSERA_TEST_PLUGIN_FIXTURE_H
#define TESSERA_TEST_PLUGIN_FIXTURE_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "enforcer/nri.pb-c.h"
#include "enforcer/nri_plugin.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/nri_text.h"
#include "test/lib/oom.h"

#define GPU(i) "GPU-0000000" #i "-0000-4000-8000-000000000000"
#define TIME ST_MODE_TIME_SLICING
#define SHARING ST_MODE_SM_SHARING

/* ---- the world around the plugin ---- */

struct limit {
	char cgroup[256], gpu[EN_UUID_CAP];
	int64_t soft, hard;
};

struct world {
	struct ef_node node;
	struct en_plugin_options options;
	struct en_limits_ops limits;
	struct en_agent_ops agent;
	struct en_plugin *plugin;
	char proc[64];
	struct limit set[64];
	size_t set_count;
	unsigned set_calls;
	const char *fail_gpu; /* setting limits on it fails */
	bool fail_namespace;
	bool ends_at_set;     /* the process is gone when its limits are set */
	uint32_t running_pid; /* of the last container that was told to run */
	struct buf log;       /* reports and agent calls: "refused c1 main: ...;" */
};

static inline int limits_set(void *ctx, const char *cgroup, const char *gpu, int64_t soft,
			     int64_t hard, struct err *err)
{
	struct world *w = ctx;
	size_t i = 0;

	w->set_calls++;
	if (w->ends_at_set) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%d/cgroup", w->proc, (int)getpid());
		(void)unlink(path);
	}
	if (w->fail_gpu != NULL && strcmp(gpu, w->fail_gpu) == 0)
		return err_set(err, ERR_IO, "the driver says no");
	while (i < w->set_count &&
	       (strcmp(w->set[i].cgroup, cgroup) != 0 || strcmp(w->set[i].gpu, gpu) != 0))
		i++;
	if (i == w->set_count)
		w->set_count++;
	snprintf(w->set[i].cgroup, sizeof(w->set[i].cgroup), "%s", cgroup);
	snprintf(w->set[i].gpu, sizeof(w->set[i].gpu), "%s", gpu);
	w->set[i].soft = soft;
	w->set[i].hard = hard;
	return 0;
}

static inline int limits_get(void *ctx, const char *cgroup, const char *gpu, int64_t *soft,
			     int64_t *hard, int64_t *used, struct err *err)
{
	const struct world *w = ctx;
	struct limit found = {.hard = EN_LIMIT_NONE};

	(void)err;
	for (size_t i = 0; i < w->set_count; i++) {
		if (strcmp(w->set[i].cgroup, cgroup) == 0 && strcmp(w->set[i].gpu, gpu) == 0)
			found = w->set[i];
	}
	if (soft != NULL)
		*soft = found.soft;
	if (hard != NULL)
		*hard = found.hard;
	if (used != NULL)
		*used = 0;
	return 0;
}

static inline int namespace_make(void *ctx, const char *id, int percent, size_t gpu_count,
				 const char *const *gpus, char ret_dir[EN_PATH_CAP],
				 struct err *err)
{
	struct world *w = ctx;

	if (w->fail_namespace)
		return err_set(err, ERR_IO, "MPS has no room");
	buf_printf(&w->log, "make %s %d%% of %zu from %.5s;", id, percent, gpu_count, gpus[0]);
	snprintf(ret_dir, EN_PATH_CAP, "/run/nvidia-mps/shared/t_%s", id);
	return 0;
}

static inline int namespace_keep(void *ctx, const char *id, int percent, size_t gpu_count,
				 const char *const *gpus, char ret_dir[EN_PATH_CAP],
				 struct err *err)
{
	int r = namespace_make(ctx, id, percent, gpu_count, gpus, ret_dir, err);

	if (r == 0)
		buf_puts(&((struct world *)ctx)->log, "kept;");
	return r;
}

static inline void namespace_drop(void *ctx, const char *id)
{
	buf_printf(&((struct world *)ctx)->log, "drop %s;", id);
}

static inline void stopping(void *ctx, const struct en_holding *h)
{
	buf_printf(&((struct world *)ctx)->log, "stopping %s;", h->id);
}

static inline void is_running(void *ctx, const struct en_holding *h)
{
	((struct world *)ctx)->running_pid = h->pid;
}

static inline void report(void *ctx, const struct en_report *r)
{
	buf_printf(&((struct world *)ctx)->log, "%s %s %s/%s/%s: %s;", en_report_name(r->kind),
		   r->id, r->ns, r->pod, r->container, r->text);
}

static inline void expect_log(struct world *w, const char *want)
{
	cr_expect_str_eq(buf_str(&w->log), want);
	buf_reset(&w->log);
}

static inline void world_init(struct world *w, size_t gpus, int32_t mem_mib)
{
	struct err err = ERR_INIT;

	memset(w, 0, sizeof(*w));
	snprintf(w->proc, sizeof(w->proc), "/tmp/tessera-proc-XXXXXX");
	cr_assert_not_null(mkdtemp(w->proc));
	ef_node_init(&w->node, "n", gpus, mem_mib);
	w->limits = (struct en_limits_ops){limits_set, limits_get, w};
	w->agent = (struct en_agent_ops){.namespace_make = namespace_make,
					 .namespace_keep = namespace_keep,
					 .namespace_drop = namespace_drop,
					 .stopping = stopping,
					 .report = report,
					 .running = is_running,
					 .ctx = w};
	w->options = (struct en_plugin_options){
		.apply = {.hook_path = "/opt/hook", .hook_socket = "/run/hook.sock"},
		.limits = &w->limits,
		.agent = &w->agent,
		.proc = w->proc,
		.cgroup_mount = "/cg",
	};
	cr_assert_eq(en_plugin_new(&w->options, &w->plugin, &err), 0, "%s", err.msg);
	cr_assert_eq(en_plugin_set_node(w->plugin, &w->node.node, &err), 0, "%s", err.msg);
}

static inline void world_fini(struct world *w)
{
	char command[128];

	en_plugin_free(w->plugin);
	buf_fini(&w->log);
	snprintf(command, sizeof(command), "rm -r %s", w->proc);
	/* NOLINTNEXTLINE(cert-env33-c): a fixed command on a folder of ours */
	cr_assert_eq(system(command), 0);
}

/* A node of one GPU with 10,000 MiB, and the pod "u", whose container "main" has 1,000 of it. */
static inline void world_with_pod(struct world *w, struct ef_pod *p)
{
	world_init(w, 1, 10000);
	ef_pod_shared(p, "u", &w->node, TIME, 0, 1000);
}

/* The same; it has a quarter of the SMs, for which MPS makes a namespace. */
static inline void world_with_quarter(struct world *w, struct ef_pod *p)
{
	struct st_decision d = {.grant_count = 0};

	world_init(w, 1, 10000);
	ef_pod_init(p, "u");
	ef_share(&d, "main", SHARING, 0, 1000, 1000)->compute_nano = 250000000;
	ef_pod_allocate(p, &w->node, &d, NULL);
}

static inline void world_end(struct world *w, struct ef_pod *p)
{
	ef_pod_fini(p);
	world_fini(w);
}

/* Our own process as the container's: its number is alive. The cgroup is what the file says. */
static inline uint32_t process_put(const struct world *w, const char *cgroup)
{
	char path[128], text[256];
	struct err err = ERR_INIT;
	int n;

	snprintf(path, sizeof(path), "%s/%d", w->proc, (int)getpid());
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/cgroup", w->proc, (int)getpid());
	n = snprintf(text, sizeof(text), "1:cpu:/x\n0::%s\n", cgroup);
	cr_assert_eq(file_replace(path, text, (size_t)n, &err), 0, "%s", err.msg);
	return (uint32_t)getpid();
}

/* ---- calls ---- */

static inline struct nt_pod pod_of(const struct ef_pod *p)
{
	return (struct nt_pod){.id = p->spec.uid,
			       .name = p->spec.name,
			       .uid = p->spec.uid,
			       .ns = p->spec.ns,
			       .annotation_count = p->spec.annotation_count,
			       .annotations = p->spec.annotations};
}

static inline struct en_nri_request *request_of(const char *method, struct buf *take_payload)
{
	struct en_nri_request *r = NULL;
	struct err err = ERR_INIT;
	const struct en_ttrpc_call call = {.stream = 1,
					   .service = EN_NRI_PLUGIN_SERVICE,
					   .method = method,
					   .payload = (const unsigned char *)take_payload->data,
					   .len = take_payload->len};

	cr_assert_eq(en_nri_request_read(&call, &r, &err), 0, "%s", err.msg);
	buf_fini(take_payload);
	return r;
}

static inline struct en_nri_reply call(struct world *w, const char *method, const struct ef_pod *p,
				       const struct nt_container *c)
{
	const struct nt_pod pod = pod_of(p);
	struct en_nri_reply reply;
	struct buf b = BUF_INIT;

	nt_container(&b, &pod, c);
	en_plugin_handle(w->plugin, request_of(method, &b), &reply);
	return reply;
}

static inline void expect_created(struct world *w, const struct ef_pod *p,
				  const struct nt_container *c, const char *gpus, const char *limit)
{
	struct en_nri_reply r = call(w, "CreateContainer", p, c);
	const char *have_gpus, *have_limit;

	cr_assert_eq(r.code, 0, "%s", r.text);
	have_gpus = ef_env(&r.adjust, "NVIDIA_VISIBLE_DEVICES");
	have_limit = ef_env(&r.adjust, "NVIDIA_GPU_MEMORY_LIMIT");
	cr_expect_str_eq(have_gpus != NULL ? have_gpus : "", gpus, "%s", c->id);
	cr_expect_str_eq(have_limit != NULL ? have_limit : "", limit, "%s", c->id);
	en_adjust_fini(&r.adjust);
}

static inline void expect_refused(struct world *w, const char *method, const struct ef_pod *p,
				  const struct nt_container *c, const char *part)
{
	struct en_nri_reply r = call(w, method, p, c);

	cr_expect_eq(r.code, EN_TTRPC_FAILED_PRECONDITION);
	cr_expect(strstr(r.text, part) != NULL, "%s", r.text);
	cr_expect(w->log.len > 0);
	buf_reset(&w->log);
	en_adjust_fini(&r.adjust);
}

static inline void expect_ok(struct world *w, const char *method, const struct ef_pod *p,
			     const struct nt_container *c)
{
	struct en_nri_reply r = call(w, method, p, c);

	cr_expect_eq(r.code, 0, "%s %s: %s", method, c->id, r.text);
	en_adjust_fini(&r.adjust);
}

static inline size_t holdings(struct world *w)
{
	struct en_plugin_stats s;

	en_plugin_get_stats(w->plugin, &s);
	return s.holdings;
}

#endif

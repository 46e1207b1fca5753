/* What the plugin does with the runtime's calls; case 26 (two pods swap their shares), 43. The driver is a
 * recorder; cgroups are those of a made-up /proc. */
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
	struct buf log; /* reports and agent calls: "refused c1 main: ...;" */
};

static int limits_set(void *ctx, const char *cgroup, const char *gpu, int64_t soft, int64_t hard,
		      struct err *err)
{
	struct world *w = ctx;
	size_t i = 0;

	w->set_calls++;
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

static int limits_get(void *ctx, const char *cgroup, const char *gpu, int64_t *soft, int64_t *hard,
		      int64_t *used, struct err *err)
{
	struct world *w = ctx;

	(void)err;
	if (used != NULL)
		*used = 0;
	*soft = 0;
	*hard = EN_LIMIT_NONE;
	for (size_t i = 0; i < w->set_count; i++) {
		if (strcmp(w->set[i].cgroup, cgroup) == 0 && strcmp(w->set[i].gpu, gpu) == 0) {
			*soft = w->set[i].soft;
			*hard = w->set[i].hard;
		}
	}
	return 0;
}

static int namespace_make(void *ctx, const char *id, int percent, size_t gpu_count,
			  const char *const *gpus, char ret_dir[EN_PATH_CAP], struct err *err)
{
	struct world *w = ctx;

	if (w->fail_namespace)
		return err_set(err, ERR_IO, "MPS has no room");
	buf_printf(&w->log, "make %s %d%% of %zu from %.5s;", id, percent, gpu_count, gpus[0]);
	snprintf(ret_dir, EN_PATH_CAP, "/run/nvidia-mps/shared/t_%s", id);
	return 0;
}

static void namespace_drop(void *ctx, const char *id)
{
	buf_printf(&((struct world *)ctx)->log, "drop %s;", id);
}

static void stopping(void *ctx, const struct en_holding *h)
{
	buf_printf(&((struct world *)ctx)->log, "stopping %s;", h->id);
}

static void report(void *ctx, const struct en_report *r)
{
	buf_printf(&((struct world *)ctx)->log, "%s %s %s/%s/%s: %s;", en_report_name(r->kind),
		   r->id, r->ns, r->pod, r->container, r->text);
}

static void expect_log(struct world *w, const char *want)
{
	cr_expect_str_eq(buf_str(&w->log), want);
	buf_reset(&w->log);
}

static void world_init(struct world *w, size_t gpus, int32_t mem_mib)
{
	struct err err = ERR_INIT;

	memset(w, 0, sizeof(*w));
	snprintf(w->proc, sizeof(w->proc), "/tmp/tessera-proc-XXXXXX");
	cr_assert_not_null(mkdtemp(w->proc));
	ef_node_init(&w->node, "n", gpus, mem_mib);
	w->limits = (struct en_limits_ops){limits_set, limits_get, w};
	w->agent = (struct en_agent_ops){namespace_make, namespace_drop, stopping, report, w};
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

static void world_fini(struct world *w)
{
	char command[128];

	en_plugin_free(w->plugin);
	buf_fini(&w->log);
	snprintf(command, sizeof(command), "rm -r %s", w->proc);
	/* NOLINTNEXTLINE(cert-env33-c): a fixed command on a folder of ours */
	cr_assert_eq(system(command), 0);
}

/* Our own process as the container's: its number is alive. The cgroup is what the file says. */
static uint32_t process_put(const struct world *w, const char *cgroup)
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

static struct nt_pod pod_of(const struct ef_pod *p)
{
	return (struct nt_pod){.id = p->spec.uid,
			       .name = p->spec.name,
			       .uid = p->spec.uid,
			       .ns = p->spec.ns,
			       .annotation_count = p->spec.annotation_count,
			       .annotations = p->spec.annotations};
}

static struct en_nri_request *request_of(const char *method, struct buf *take_payload)
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

static struct en_nri_reply call(struct world *w, const char *method, const struct ef_pod *p,
				const struct nt_container *c)
{
	const struct nt_pod pod = pod_of(p);
	struct en_nri_reply reply;
	struct buf b = BUF_INIT;

	nt_container(&b, &pod, c);
	en_plugin_handle(w->plugin, request_of(method, &b), &reply);
	return reply;
}

static void expect_created(struct world *w, const struct ef_pod *p, const struct nt_container *c,
			   const char *gpus, const char *limit)
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

static void expect_refused(struct world *w, const char *method, const struct ef_pod *p,
			   const struct nt_container *c, const char *part)
{
	struct en_nri_reply r = call(w, method, p, c);

	cr_expect_eq(r.code, EN_TTRPC_FAILED_PRECONDITION);
	cr_expect(strstr(r.text, part) != NULL, "%s", r.text);
	cr_expect(w->log.len > 0);
	buf_reset(&w->log);
	en_adjust_fini(&r.adjust);
}

static void expect_ok(struct world *w, const char *method, const struct ef_pod *p,
		      const struct nt_container *c)
{
	struct en_nri_reply r = call(w, method, p, c);

	cr_expect_eq(r.code, 0, "%s %s: %s", method, c->id, r.text);
	en_adjust_fini(&r.adjust);
}

static size_t holdings(struct world *w)
{
	struct en_plugin_stats s;

	en_plugin_get_stats(w->plugin, &s);
	return s.holdings;
}

/* ---- case 26 ---- */

/* Two pods at once on one node; whatever order their calls have, each gets its own share. */
Test(nri_plugin, case_26_two_pods_do_not_swap_their_shares)
{
	static const int32_t sizes[][2] = {{24576, 600}, {4096, 4096}};

	for (int s = 0; s < 4; s++) {
		const struct nt_container a = {.id = "a1", .pod_id = "pod-a", .name = "main"};
		const struct nt_container b = {.id = "b1", .pod_id = "pod-b", .name = "main"};
		char want_a[16], want_b[16];
		struct ef_pod pa, pb;
		struct world w;

		world_init(&w, 2, 40960);
		ef_pod_shared(&pa, "pod-a", &w.node, TIME, 0, sizes[s / 2][0]);
		ef_pod_shared(&pb, "pod-b", &w.node, TIME, s / 2 == 0 ? 0 : 1, sizes[s / 2][1]);
		snprintf(want_a, sizeof(want_a), "%d", sizes[s / 2][0]);
		snprintf(want_b, sizeof(want_b), "%d", sizes[s / 2][1]);
		if (s % 2 == 0)
			expect_created(&w, &pa, &a, GPU(0), want_a);
		expect_created(&w, &pb, &b, s / 2 == 0 ? GPU(0) : GPU(1), want_b);
		if (s % 2 == 1)
			expect_created(&w, &pa, &a, GPU(0), want_a);
		cr_expect_eq(holdings(&w), 2);
		/* A container of that name in another pod is another container. */
		expect_ok(&w, "RemoveContainer", &pa, &a);
		cr_expect_eq(holdings(&w), 1);
		ef_pod_fini(&pa);
		ef_pod_fini(&pb);
		world_fini(&w);
	}
}

/* The hook's limits go to the container that asks, by its id, in whatever order the two start. */
Test(nri_plugin, case_26_limits_follow_the_container)
{
	const struct nt_container a = {.id = "aaaa", .pod_id = "pod-a", .name = "main"};
	const struct nt_container b = {.id = "bbbb", .pod_id = "pod-b", .name = "main"};
	struct en_limit_request r = {.pid = 1, .gpu_count = 1};
	struct ef_pod pa, pb;
	struct err err = ERR_INIT;
	struct world w;

	world_init(&w, 1, 40960);
	ef_pod_shared(&pa, "pod-a", &w.node, TIME, 0, 24576);
	ef_pod_shared(&pb, "pod-b", &w.node, TIME, 0, 600);
	expect_created(&w, &pa, &a, GPU(0), "24576");
	expect_created(&w, &pb, &b, GPU(0), "600");
	snprintf(r.id, sizeof(r.id), "bbbb");
	snprintf(r.cgroup, sizeof(r.cgroup), "/k/bbbb");
	/* The other's figures, as after a mix-up: what the plugin knows of the container counts. */
	r.gpus[0] = (struct en_gpu_limit){GPU(0), 24576, 24576};
	cr_assert_eq(en_plugin_limit(w.plugin, &r, &err), 0, "%s", err.msg);
	cr_assert_eq(w.set_count, 1);
	cr_expect_str_eq(w.set[0].cgroup, "/cg/k/bbbb");
	cr_expect_eq(w.set[0].hard, 600);
	ef_pod_fini(&pa);
	ef_pod_fini(&pb);
	world_fini(&w);
}

/* ---- create ---- */

Test(nri_plugin, sums_count_what_runs)
{
	const struct nt_container a = {.id = "a1", .pod_id = "a", .name = "main"};
	const struct nt_container b = {.id = "b1", .pod_id = "b", .name = "main"};
	const struct nt_container again = {.id = "a2", .pod_id = "a", .name = "main"};
	struct ef_pod pa, pb, pc;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&pa, "a", &w.node, TIME, 0, 6000);
	ef_pod_shared(&pb, "b", &w.node, TIME, 0, 6000);
	ef_pod_shared(&pc, "b", &w.node, SHARING, 0, 1000);
	expect_created(&w, &pa, &a, GPU(0), "6000");
	expect_refused(&w, "CreateContainer", &pb, &b, "where other pods hold 6000 of 10000 MiB");
	expect_refused(&w, "CreateContainer", &pc, &b, "other pods use the GPU in time-slicing");
	/* The same container made again is not counted twice. */
	expect_created(&w, &pa, &again, GPU(0), "6000");
	cr_expect_eq(holdings(&w), 1);
	/* One that has stopped counts no more. */
	expect_ok(&w, "StopContainer", &pa, &again);
	expect_created(&w, &pb, &b, GPU(0), "6000");
	expect_log(&w, "stopping a2;");
	ef_pod_fini(&pa);
	ef_pod_fini(&pb);
	ef_pod_fini(&pc);
	world_fini(&w);
}

Test(nri_plugin, refusals_are_reported_and_fail_open_lets_go)
{
	const struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	struct en_nri_reply r;
	struct ef_pod p;
	struct world w;

	world_init(&w, 1, 10000);
	w.node.node.mps_ready = false;
	cr_assert_eq(en_plugin_set_node(w.plugin, &w.node.node, NULL), 0);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	r = call(&w, "CreateContainer", &p, &c);
	cr_expect_eq(r.code, EN_TTRPC_FAILED_PRECONDITION);
	expect_log(&w, "refused c1 ns/u/main: container \"main\" of pod ns/u: MPS does not run on "
		       "this node: the control daemon does not answer;");
	cr_expect_eq(holdings(&w), 0);
	en_plugin_free(w.plugin);
	w.options.apply.fail_open = true;
	cr_assert_eq(en_plugin_new(&w.options, &w.plugin, NULL), 0);
	cr_assert_eq(en_plugin_set_node(w.plugin, &w.node.node, NULL), 0);
	r = call(&w, "CreateContainer", &p, &c);
	cr_expect_eq(r.code, 0);
	cr_expect_eq(r.adjust.env_count, 0);
	expect_log(&w, "let-go c1 ns/u/main: container \"main\" of pod ns/u: MPS does not run on "
		       "this node: the control daemon does not answer;");
	ef_pod_fini(&p);
	world_fini(&w);
}

Test(nri_plugin, before_the_node_is_known)
{
	const struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	struct ef_pod p, other;
	struct world w;

	world_init(&w, 1, 10000);
	en_plugin_free(w.plugin);
	cr_assert_eq(en_plugin_new(&w.options, &w.plugin, NULL), 0);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	ef_pod_init(&other, "o");
	expect_refused(&w, "CreateContainer", &p, &c, "the GPUs of this node are not known yet");
	expect_refused(&w, "StartContainer", &p, &c, "the GPUs of this node are not known yet");
	expect_ok(&w, "CreateContainer", &other, &c);
	expect_ok(&w, "StartContainer", &other, &c);
	ef_pod_fini(&p);
	ef_pod_fini(&other);
	world_fini(&w);
}

Test(nri_plugin, namespaces_of_mps)
{
	const struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	struct st_decision d = {.grant_count = 0};
	struct en_nri_reply r;
	struct ef_pod p;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", SHARING, 0, 1000, 1000)->compute_nano = 250000000;
	ef_pod_allocate(&p, &w.node, &d, NULL);
	r = call(&w, "CreateContainer", &p, &c);
	cr_assert_eq(r.code, 0, "%s", r.text);
	cr_expect_str_eq(r.adjust.mounts[0].source, "/run/nvidia-mps/shared/t_c1");
	cr_expect_str_eq(ef_env(&r.adjust, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "25");
	en_adjust_fini(&r.adjust);
	expect_log(&w, "make c1 25% of 1 from GPU-0;");
	expect_ok(&w, "RemoveContainer", &p, &c);
	expect_log(&w, "drop c1;");
	/* One that cannot be made refuses the container, fail_open or not. */
	w.fail_namespace = true;
	expect_refused(&w, "CreateContainer", &p, &c,
		       "container \"main\" of pod ns/u: MPS has no room");
	cr_expect_eq(holdings(&w), 0);
	/* Undone where the answer was too late. */
	w.fail_namespace = false;
	r = call(&w, "CreateContainer", &p, &c);
	en_adjust_fini(&r.adjust);
	buf_reset(&w.log);
	en_plugin_undo(w.plugin, "c1");
	expect_log(&w, "drop c1;");
	cr_expect_eq(holdings(&w), 0);
	en_plugin_undo(w.plugin, "c1");
	expect_log(&w, "");
	ef_pod_fini(&p);
	world_fini(&w);
}

/* ---- start, stop ---- */

Test(nri_plugin, start_checks_the_limits_that_the_hook_set)
{
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct en_limit_request r = {.id = "c0ffee",
				     .cgroup = "/k/cri-c0ffee.scope",
				     .gpu_count = 2,
				     .gpus = {{GPU(0), 1000, 2000}, {GPU(1), 1000, 2000}}};
	struct st_decision d = {.grant_count = 0};
	struct err err = ERR_INIT;
	struct ef_pod p;
	struct world w;

	world_init(&w, 2, 10000);
	ef_pod_init(&p, "u");
	ef_also(ef_share(&d, "main", TIME, 0, 1000, 2000), 1);
	ef_pod_allocate(&p, &w.node, &d, NULL);
	expect_created(&w, &p, &c, GPU(0) "," GPU(1), "2000");
	r.pid = c.pid = process_put(&w, "/k/cri-c0ffee.scope");
	cr_assert_eq(en_plugin_limit(w.plugin, &r, &err), 0, "%s", err.msg);
	cr_expect_eq(w.set_calls, 2);
	expect_ok(&w, "StartContainer", &p, &c);
	cr_expect_eq(w.set_calls, 2, "limits in force are left alone");
	expect_log(&w, "");
	/* Stopping takes the guarantee back and keeps the ceiling. */
	expect_ok(&w, "StopContainer", &p, &c);
	cr_expect_eq(w.set[0].soft, 0);
	cr_expect_eq(w.set[0].hard, 2000);
	cr_expect_eq(w.set[1].soft, 0);
	expect_log(&w, "stopping c0ffee;");
	expect_ok(&w, "StopContainer", &p, &c); /* called on stop and on exit */
	expect_log(&w, "");
	ef_pod_fini(&p);
	world_fini(&w);
}

Test(nri_plugin, start_mends_what_the_hook_missed_or_refuses)
{
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct ef_pod p;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	expect_created(&w, &p, &c, GPU(0), "1000");
	expect_refused(&w, "StartContainer", &p, &c, "the runtime gives no process");
	c.pid = process_put(&w, "/k/another");
	expect_refused(&w, "StartContainer", &p, &c, "not in one of container c0ffee");
	c.pid = process_put(&w, "/k/crio-c0ffee.scope/container"); /* crun's extra level */
	w.fail_gpu = GPU(0);
	expect_refused(&w, "StartContainer", &p, &c, "the driver says no");
	w.fail_gpu = NULL;
	expect_ok(&w, "StartContainer", &p, &c);
	expect_log(&w, "limits-repaired c0ffee ns/u/main: the hook had not set the memory limits;");
	cr_assert_eq(w.set_count, 1);
	cr_expect_str_eq(w.set[0].cgroup, "/cg/k/crio-c0ffee.scope/container");
	cr_expect_eq(w.set[0].hard, 1000);
	ef_pod_fini(&p);
	world_fini(&w);
}

Test(nri_plugin, start_of_a_container_made_while_we_were_away)
{
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct ef_pod p;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	c.pid = process_put(&w, "/k/c0ffee");
	expect_refused(&w, "StartContainer", &p, &c,
		       "container \"main\" of pod ns/u was made while the agent was away: "
		       "NVIDIA_VISIBLE_DEVICES is not set to " GPU(0));
	cr_expect_eq(holdings(&w), 0);
	/* One that has all it needs starts, with its limits. */
	c.env[0] = "NVIDIA_VISIBLE_DEVICES=" GPU(0);
	c.env[1] = "NVIDIA_GPU_MEMORY_REQUEST=1000";
	c.env[2] = "NVIDIA_GPU_MEMORY_LIMIT=1000";
	c.env[3] = "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps";
	c.mounts[0] = (struct nt_mount){"/run/nvidia-mps", "/run/nvidia-mps"};
	expect_ok(&w, "StartContainer", &p, &c);
	cr_expect_eq(holdings(&w), 1);
	cr_expect_eq(w.set_count, 1);
	/* Another container of the pod must see no GPU. */
	c.id = "decaf";
	c.name = "other";
	expect_refused(&w, "StartContainer", &p, &c, "NVIDIA_VISIBLE_DEVICES is \"" GPU(0));
	c.env[0] = "NVIDIA_VISIBLE_DEVICES=void";
	expect_ok(&w, "StartContainer", &p, &c);
	ef_pod_fini(&p);
	world_fini(&w);
}

/* ---- the hook ---- */

Test(nri_plugin, hooks_of_unknown_containers)
{
	struct en_limit_request r = {.id = "c0ffee",
				     .pid = 1,
				     .cgroup = "/k/c0ffee",
				     .gpu_count = 2,
				     .gpus = {{GPU(0), 1, 2}, {GPU(1), 1, 2}}};
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct err err = ERR_INIT;
	struct ef_pod p;
	struct world w;

	world_init(&w, 2, 10000);
	/* The agent was started anew since the container was made: the hook's word counts. */
	cr_expect_eq(en_plugin_limit(w.plugin, &r, &err), 0, "%s", err.msg);
	cr_expect_eq(w.set_count, 2);
	snprintf(r.gpus[1].uuid, sizeof(r.gpus[1].uuid), "GPU-x");
	cr_expect_eq(en_plugin_limit(w.plugin, &r, &err), ERR_INVALID);
	cr_expect_str_eq(err.msg, "GPU-x is not a GPU of this node");
	/* A known container has the GPUs it has. */
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	expect_created(&w, &p, &c, GPU(0), "1000");
	cr_expect_eq(en_plugin_limit(w.plugin, &r, &err), ERR_INVALID);
	cr_expect_str_eq(err.msg, "container c0ffee has 1 GPUs, not 2");
	r.gpu_count = 1;
	snprintf(r.gpus[0].uuid, sizeof(r.gpus[0].uuid), GPU(1));
	cr_expect_eq(en_plugin_limit(w.plugin, &r, &err), ERR_INVALID);
	/* All or nothing: the container will not start. */
	w.set_count = 0;
	snprintf(r.id, sizeof(r.id), "decaf");
	snprintf(r.cgroup, sizeof(r.cgroup), "/k/decaf");
	r.gpu_count = 2;
	snprintf(r.gpus[0].uuid, sizeof(r.gpus[0].uuid), GPU(0));
	snprintf(r.gpus[1].uuid, sizeof(r.gpus[1].uuid), GPU(1));
	w.fail_gpu = GPU(1);
	cr_expect_eq(en_plugin_limit(w.plugin, &r, &err), ERR_IO);
	cr_expect_str_eq(err.msg,
			 "memory limits of container decaf on " GPU(1) ": the driver says no");
	cr_assert_eq(w.set_count, 1);
	cr_expect_eq(w.set[0].soft, 0);
	cr_expect_eq(w.set[0].hard, EN_LIMIT_NONE);
	ef_pod_fini(&p);
	world_fini(&w);
}

/* ---- synchronize, reconcile ---- */

static struct en_nri_reply synchronize(struct world *w, size_t pod_count, const struct nt_pod *pods,
				       size_t count, const struct nt_container *containers,
				       bool more)
{
	struct en_nri_reply reply;
	struct buf b = BUF_INIT;

	nt_synchronize(&b, pod_count, pods, count, containers, more);
	en_plugin_handle(w->plugin, request_of("Synchronize", &b), &reply);
	return reply;
}

static struct nt_container running(const char *id, const char *pod, const char *name,
				   const char *gpu_env, uint32_t pid)
{
	return (struct nt_container){
		.id = id,
		.pod_id = pod,
		.name = name,
		.state = EN_NRI_RUNNING,
		.pid = pid,
		.env = {gpu_env, "NVIDIA_GPU_MEMORY_REQUEST=1000", "NVIDIA_GPU_MEMORY_LIMIT=1000",
			"CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps"},
		.mounts = {{"/run/nvidia-mps", "/run/nvidia-mps"}},
	};
}

Test(nri_plugin, synchronize_rebuilds_what_is_known)
{
	const char *good_env = "NVIDIA_VISIBLE_DEVICES=" GPU(0);
	struct nt_container list[5], late;
	struct nt_pod pods[3];
	struct ef_pod pa, pb, none;
	struct world w;

	world_init(&w, 2, 10000);
	ef_pod_shared(&pa, "a", &w.node, TIME, 0, 1000);
	ef_pod_shared(&pb, "b", &w.node, TIME, 1, 9500);
	ef_pod_init(&none, "c");
	pods[0] = pod_of(&pa);
	pods[1] = pod_of(&pb);
	pods[2] = pod_of(&none);
	list[0] = running("a1", "a", "main", good_env, process_put(&w, "/k/a1"));
	list[1] = running("a2", "a", "proxy", "NVIDIA_VISIBLE_DEVICES=all", 0);
	list[2] = running("c1", "c", "main", "NVIDIA_VISIBLE_DEVICES=all", 0);
	list[3] = running("b0", "b", "main", "x=y", 0);
	list[3].state = EN_NRI_STOPPED;
	list[4] = running("x1", "gone", "main", good_env, 0); /* of no pod that is listed */
	late = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(1), 0);
	/* In parts, a container before and one after its pod. */
	cr_expect_eq(synchronize(&w, 1, &pods[2], 1, &late, true).code, 0);
	expect_log(&w, "");
	cr_expect_eq(holdings(&w), 0);
	cr_expect_eq(synchronize(&w, 2, pods, 5, list, false).code, 0);
	cr_expect_eq(holdings(&w), 2);
	expect_log(&w, "slipped b1 ns/b/main: NVIDIA_GPU_MEMORY_REQUEST is \"1000\", not 9500;"
		       "slipped a2 ns/a/proxy: NVIDIA_VISIBLE_DEVICES is \"all\", not void;");
	/* Its limits are not in force: the container was made while nobody looked. */
	en_plugin_reconcile(w.plugin);
	expect_log(&w, "limits-repaired a1 ns/a/main: its memory limits were not in force;");
	cr_assert_eq(w.set_count, 1);
	cr_expect_str_eq(w.set[0].cgroup, "/cg/k/a1");
	cr_expect_eq(w.set[0].hard, 1000);
	en_plugin_reconcile(w.plugin);
	expect_log(&w, "");
	/* Somebody changes a limit: found by value, and mended. */
	w.set[0].hard = 9999;
	en_plugin_reconcile(w.plugin);
	cr_expect_eq(w.set[0].hard, 1000);
	buf_reset(&w.log);
	/* The next list replaces all of it. */
	cr_expect_eq(synchronize(&w, 3, pods, 0, NULL, false).code, 0);
	cr_expect_eq(holdings(&w), 0);
	ef_pod_fini(&pa);
	ef_pod_fini(&pb);
	ef_pod_fini(&none);
	world_fini(&w);
}

Test(nri_plugin, synchronize_that_breaks_off)
{
	struct nt_container c;
	struct nt_pod pod;
	struct ef_pod p;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	pod = pod_of(&p);
	c = running("u1", "u", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, true).code, 0);
	en_plugin_connected(w.plugin); /* a new connection */
	cr_expect_eq(synchronize(&w, 0, NULL, 0, NULL, false).code, 0);
	cr_expect_eq(holdings(&w), 0);
	/* Parts without end are not collected for ever. */
	for (int i = 0; i < 64; i++)
		cr_assert_eq(synchronize(&w, 0, NULL, 0, NULL, true).code, 0);
	cr_expect_eq(synchronize(&w, 0, NULL, 0, NULL, true).code, EN_TTRPC_RESOURCE_EXHAUSTED);
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	cr_expect_eq(holdings(&w), 1);
	ef_pod_fini(&p);
	world_fini(&w);
}

Test(nri_plugin, synchronize_finds_what_must_not_run)
{
	struct nt_container list[2];
	struct nt_pod pods[2];
	struct ef_pod pa, pb;
	struct world w;

	world_init(&w, 1, 1500);
	ef_pod_shared(&pa, "a", &w.node, TIME, 0, 1000);
	ef_pod_shared(&pb, "b", &w.node, TIME, 0, 1000);
	pods[0] = pod_of(&pa);
	pods[1] = pod_of(&pb);
	list[0] = running("a1", "a", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	list[1] = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	cr_expect_eq(synchronize(&w, 2, pods, 2, list, false).code, 0);
	expect_log(&w,
		   "slipped b1 ns/b/main: container \"main\" of pod ns/b: the pod asks for 1000 "
		   "MiB of " GPU(0) ", where other pods hold 1000 of 1500 MiB;");
	cr_expect_eq(holdings(&w), 2, "it runs, so it holds");
	ef_pod_fini(&pa);
	ef_pod_fini(&pb);
	world_fini(&w);
}

Test(nri_plugin, pods_that_are_gone)
{
	const char *const there[] = {"a"};
	struct nt_container c[2];
	struct nt_pod pods[2];
	struct ef_pod pa, pb;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&pa, "a", &w.node, TIME, 0, 1000);
	ef_pod_shared(&pb, "b", &w.node, TIME, 0, 1000);
	pods[0] = pod_of(&pa);
	pods[1] = pod_of(&pb);
	c[0] = running("a1", "a", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	c[1] = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	cr_expect_eq(synchronize(&w, 2, pods, 2, c, false).code, 0);
	en_plugin_keep_pods(w.plugin, 1, there);
	cr_expect_eq(holdings(&w), 1);
	en_plugin_keep_pods(w.plugin, 0, NULL);
	cr_expect_eq(holdings(&w), 0);
	ef_pod_fini(&pa);
	ef_pod_fini(&pb);
	world_fini(&w);
}

/* ---- limits that change ---- */

Test(nri_plugin, changed_allocations)
{
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct err err = ERR_INIT;
	struct ef_pod p, more, much, other;
	struct world w;

	world_init(&w, 2, 10000);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	ef_pod_shared(&more, "u", &w.node, TIME, 0, 3000);
	ef_pod_shared(&much, "u", &w.node, TIME, 0, 10001);
	ef_pod_shared(&other, "u", &w.node, TIME, 1, 4000);
	expect_created(&w, &p, &c, GPU(0), "1000");
	c.pid = process_put(&w, "/k/c0ffee");
	expect_ok(&w, "StartContainer", &p, &c);
	buf_reset(&w.log);
	cr_expect_eq(en_plugin_pod_changed(w.plugin, &p.spec, &err), 0, "%s", err.msg);
	expect_log(&w, "");
	cr_expect_eq(en_plugin_pod_changed(w.plugin, &more.spec, &err), 0, "%s", err.msg);
	expect_log(&w, "limits-changed c0ffee ns/u/main: from 1000/1000 to 3000/3000 MiB;");
	cr_expect_eq(w.set[0].hard, 3000);
	cr_expect_eq(en_plugin_pod_changed(w.plugin, &much.spec, &err), ERR_CONFLICT);
	cr_expect_eq(en_plugin_pod_changed(w.plugin, &other.spec, &err), ERR_CONFLICT);
	cr_expect(strstr(err.msg, "more than its memory changed") != NULL, "%s", err.msg);
	ef_pod_annotate(&more, "nvidia.com/container.main.gpu-memory.limit", "9000Mi");
	cr_expect_eq(en_plugin_pod_changed(w.plugin, &more.spec, &err), ERR_CONFLICT,
		     "a changed value without its digest");
	cr_expect_eq(w.set[0].hard, 3000);
	/* What a hook was told before gives way to what holds now. */
	expect_log(&w, "");
	ef_pod_fini(&p);
	ef_pod_fini(&more);
	ef_pod_fini(&much);
	ef_pod_fini(&other);
	world_fini(&w);
}

/* ---- validation ---- */

static struct en_nri_reply validate(struct world *w, const struct ef_pod *p,
				    const struct nt_container *c, const struct buf *adjust)
{
	const struct nt_pod pod = pod_of(p);
	struct en_nri_reply reply;
	struct buf b = BUF_INIT;

	nt_validate(&b, &pod, c, adjust);
	en_plugin_handle(w->plugin, request_of("ValidateContainerAdjustment", &b), &reply);
	return reply;
}

Test(nri_plugin, validation)
{
	const struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	const struct nt_container other = {.id = "c2", .pod_id = "u", .name = "other"};
	struct buf adjust = BUF_INIT, nothing = BUF_INIT;
	struct en_nri_reply created, r;
	struct ef_pod p, none;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	ef_pod_init(&none, "x");
	created = call(&w, "CreateContainer", &p, &c);
	cr_assert_eq(en_nri_put_create(&adjust, &created.adjust, NULL), 0);
	r = validate(&w, &p, &c, &adjust);
	cr_expect_not(r.reject, "%s", r.text);
	r = validate(&w, &none, &other, &nothing);
	cr_expect_not(r.reject, "a pod without an allocation: %s", r.text);
	expect_log(&w, "");
	r = validate(&w, &p, &c, &nothing);
	cr_expect(r.reject);
	cr_expect(strstr(r.text, "is not as it was set") != NULL, "%s", r.text);
	r = validate(&w, &p, &other, &nothing);
	cr_expect(r.reject, "the other container of the pod would see GPUs");
	/* The plugin had not answered, so nothing is prepared. */
	en_plugin_undo(w.plugin, "c1");
	r = validate(&w, &p, &c, &adjust);
	cr_expect(r.reject);
	cr_expect(strstr(r.text, "was not prepared") != NULL, "%s", r.text);
	en_adjust_fini(&created.adjust);
	buf_fini(&adjust);
	ef_pod_fini(&p);
	ef_pod_fini(&none);
	world_fini(&w);
}

/* ---- memory ---- */

Test(nri_plugin, out_of_memory)
{
	const struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	struct ef_pod p;
	struct world w;

	world_init(&w, 1, 10000);
	ef_pod_shared(&p, "u", &w.node, TIME, 0, 1000);
	OOM_SWEEP(n) {
		const struct nt_pod pod = pod_of(&p);
		struct en_nri_request *r;
		struct en_nri_reply reply;
		struct buf b = BUF_INIT;
		bool hit;

		nt_container(&b, &pod, &c);
		r = request_of("CreateContainer", &b);
		oom_fail_at(n);
		en_plugin_handle(w.plugin, r, &reply);
		hit = oom_disarm();
		buf_reset(&w.log);
		cr_expect(hit || reply.code == 0);
		cr_expect(reply.code != 0 || reply.adjust.env_count > 0);
		en_adjust_fini(&reply.adjust);
		if (!hit)
			break;
	}
	world_fini(&w);
	ef_pod_fini(&p);
}

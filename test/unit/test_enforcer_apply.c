/* Every rule by which a container gets GPUs, none, or no start; case 8 (forged keys), 20 (another node),
 * 41 (host indexes), 42 (form of pinned limits), 43 (no MPS). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/apply.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/oom.h"

#define GPU(i) "GPU-0000000" #i "-0000-4000-8000-000000000000"
#define CDI "k8s.device-plugin.nvidia.com/gpu="
#define DEVICES(c) "nvidia.com/container." c ".gpus.devices"
#define REQUEST(c) "nvidia.com/container." c ".gpu-memory.request"
#define LIMIT(c) "nvidia.com/container." c ".gpu-memory.limit"
#define MODE(c) "nvidia.com/container." c ".gpu-compute.mode"
#define ALLOCATION "tessera.dev/allocation"
#define TIME ST_MODE_TIME_SLICING
#define SHARING ST_MODE_SM_SHARING

static const char gpu_0[] = GPU(0), gpu_1[] = GPU(1);
static const char sees_gpu_0[] = "NVIDIA_VISIBLE_DEVICES=" GPU(0);

static const struct en_apply_options plain = {
	.hook_path = "/opt/tessera/bin/tessera-hook",
	.hook_socket = "/run/tessera/hook.sock",
	.clients_max = 48,
};

static struct en_plan plan_with(const struct ef_node *n, const struct ef_pod *p,
				const char *container, const struct en_apply_options *opt)
{
	struct err err = ERR_INIT;
	struct en_plan plan;

	cr_assert_eq(en_plan_make(&n->node, &p->spec, container, opt, &plan, &err), 0, "%s",
		     err.msg);
	cr_expect((plan.verdict == EN_REFUSE) <= (plan.why[0] != '\0'));
	return plan;
}

static struct en_plan plan_of(const struct ef_node *n, const struct ef_pod *p,
			      const char *container)
{
	return plan_with(n, p, container, &plain);
}

static void expect_refused(const struct ef_node *n, const struct ef_pod *p, const char *container,
			   const char *why)
{
	struct en_apply_options open = plain;
	struct en_plan plan = plan_of(n, p, container);
	char all[ERR_MSG_CAP];

	snprintf(all, sizeof(all), "container \"%s\" of pod ns/%s: %s", container, p->spec.name,
		 why);
	cr_expect_eq(plan.verdict, EN_REFUSE, "%s", why);
	cr_expect_str_eq(plan.why, all);
	open.fail_open = true;
	plan = plan_with(n, p, container, &open);
	cr_expect_eq(plan.verdict, EN_LEAVE);
	cr_expect_str_eq(plan.why, all);
}

/* The adjustment of a plan for a container with that environment ("K=V", NULL ends). */
static struct en_adjust adjust_with(const struct ef_node *n, const struct en_plan *plan,
				    const struct en_apply_options *opt, const char *const *env)
{
	struct en_container_seen seen = {.name = "main", .env = {0, env}};
	struct err err = ERR_INIT;
	struct en_adjust a;

	while (env != NULL && env[seen.env.count] != NULL)
		seen.env.count++;
	cr_assert_eq(en_adjust_make(&n->node, plan, &seen, opt, &a, &err), 0, "%s", err.msg);
	return a;
}

static void expect_env(const struct en_adjust *a, const char *const *want)
{
	size_t count = 0;

	for (; want[2 * count] != NULL; count++) {
		const char *have = ef_env(a, want[2 * count]);

		cr_expect(have != NULL && strcmp(have, want[2 * count + 1]) == 0, "%s=%s, not %s",
			  want[2 * count], have != NULL ? have : "(unset)", want[2 * count + 1]);
	}
	cr_expect_eq(a->env_count, count);
}

/* ---- what is given ---- */

Test(enforcer_apply, time_slicing)
{
	static const char *const want[] = {"NVIDIA_VISIBLE_DEVICES",
					   gpu_1,
					   "NVIDIA_GPU_MEMORY_REQUEST",
					   "4096",
					   "NVIDIA_GPU_MEMORY_LIMIT",
					   "8192",
					   "CUDA_MPS_PIPE_DIRECTORY",
					   "/run/nvidia-mps",
					   NULL};
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 4, 81920);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", TIME, 1, 4096, 8192)->compute_nano = 250000000;
	ef_pod_allocate(&p, &n, &d, NULL);
	plan = plan_of(&n, &p, "main");
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	cr_expect_eq(plan.percent, 0, "time-slicing has no share of SMs");
	cr_expect(plan.uses_mps && plan.by_cgroup && !plan.by_client && !plan.own_namespace);
	a = adjust_with(&n, &plan, &plain, NULL);
	expect_env(&a, want);
	cr_assert_eq(a.mount_count, 1);
	cr_expect_str_eq(a.mounts[0].source, "/run/nvidia-mps");
	cr_expect_str_eq(a.mounts[0].target, "/run/nvidia-mps");
	cr_expect_str_eq(a.mounts[0].type, "bind");
	cr_expect_str_eq(a.hook_path, "/opt/tessera/bin/tessera-hook");
	cr_assert_eq(a.hook_arg_count, 4);
	cr_expect_str_eq(a.hook_args[0], "tessera-hook");
	cr_expect_str_eq(a.hook_args[1], "hook");
	cr_expect_str_eq(a.hook_args[2], "--socket=/run/tessera/hook.sock");
	cr_expect_str_eq(a.hook_args[3], "--gpu=" GPU(1) ":4096:8192");
	cr_expect_eq(a.hook_timeout_s, 10);
	cr_expect_eq(a.cdi_count, 0);
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, sm_sharing)
{
	static const struct {
		int32_t nano;
		int percent;
	} shares[] = {{0, 0},          {1, 1},          {9999999, 1},    {10000000, 1},
		      {255000000, 25}, {500000000, 50}, {999999999, 99}, {1000000000, 100}};
	struct ef_node n;

	ef_node_init(&n, "n", 1, 81920);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		struct st_decision d = {.grant_count = 0};
		struct en_plan plan;
		struct en_adjust a;
		struct ef_pod p;
		char percent[8];

		ef_pod_init(&p, "u");
		ef_share(&d, "main", SHARING, 0, 4096, 4096)->compute_nano = shares[i].nano;
		ef_pod_allocate(&p, &n, &d, NULL);
		plan = plan_of(&n, &p, "main");
		cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
		cr_expect_eq(plan.percent, shares[i].percent);
		cr_expect_eq(plan.own_namespace, shares[i].nano > 0);
		a = adjust_with(&n, &plan, &plain, NULL);
		snprintf(percent, sizeof(percent), "%d", shares[i].percent);
		if (shares[i].nano > 0)
			cr_expect_str_eq(ef_env(&a, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), percent);
		else
			cr_expect_null(ef_env(&a, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
		cr_expect_str_eq(ef_env(&a, "CUDA_MPS_PIPE_DIRECTORY"), "/tmp/nvidia-mps");
		cr_expect_str_eq(a.mounts[0].source, "/run/nvidia-mps/shared/default");
		cr_expect_str_eq(a.mounts[0].target, "/tmp/nvidia-mps");
		en_adjust_fini(&a);
		ef_pod_fini(&p);
	}
}

/* Case 41: whatever the GPU's number on the host, keys are UUIDs, and pinned limits count as the container
 * does. */
Test(enforcer_apply, case_41_several_gpus_by_uuid)
{
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 4, 81920);
	n.node.mps_v3 = n.node.memory_limits = false;
	ef_pod_init(&p, "u");
	ef_also(ef_share(&d, "main", SHARING, 1, 1024, 1024), 3);
	ef_pod_allocate(&p, &n, &d, NULL);
	plan = plan_of(&n, &p, "main");
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_str_eq(ef_env(&a, "NVIDIA_VISIBLE_DEVICES"), GPU(1) "," GPU(3));
	cr_expect_str_eq(ef_env(&a, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=1024M,1=1024M");
	en_adjust_fini(&a);
	n.node.mps_v3 = n.node.memory_limits = true;
	plan = plan_of(&n, &p, "main");
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_assert_eq(a.hook_arg_count, 5);
	cr_expect_str_eq(a.hook_args[3], "--gpu=" GPU(1) ":1024:1024");
	cr_expect_str_eq(a.hook_args[4], "--gpu=" GPU(3) ":1024:1024");
	cr_expect_null(ef_env(&a, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"));
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, case_42_legacy_mps)
{
	struct en_apply_options opt = plain;
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	opt.pipe_root = "/run/tessera/mps";
	opt.shm_dir = "/run/tessera/shm";
	ef_node_init(&n, "n", 1, 81920);
	n.node.mps_v3 = n.node.memory_limits = false;
	ef_pod_shared(&p, "u", &n, SHARING, 0, 1024);
	plan = plan_with(&n, &p, "main", &opt);
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	cr_expect(plan.by_client && !plan.by_cgroup && !plan.own_namespace);
	a = adjust_with(&n, &plan, &opt, NULL);
	cr_expect_str_eq(ef_env(&a, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=1024M");
	cr_expect_null(a.hook_path);
	cr_assert_eq(a.mount_count, 2);
	cr_expect_str_eq(a.mounts[0].source, "/run/tessera/mps");
	cr_expect_str_eq(a.mounts[0].target, "/tmp/nvidia-mps");
	cr_expect_str_eq(a.mounts[1].source, "/run/tessera/shm");
	cr_expect_str_eq(a.mounts[1].target, "/dev/shm");
	en_adjust_fini(&a);
	ef_pod_fini(&p);

	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	expect_refused(
		&n, &p, "main",
		"time-slicing needs MPS protocol 3 and memory limits by cgroup, which driver "
		"and kernel of this node do not have");
	ef_pod_fini(&p);
}

Test(enforcer_apply, case_43_no_mps)
{
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	n.node.mps_ready = false;
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	expect_refused(&n, &p, "main",
		       "MPS does not run on this node: the control daemon does not answer");
	n.node.mps_why = "server of uid 0 is in FAULT";
	expect_refused(&n, &p, "main",
		       "MPS does not run on this node: server of uid 0 is in FAULT");
	ef_pod_fini(&p);
	/* What needs no MPS starts. */
	ef_pod_init(&p, "w");
	ef_whole(&d, "main", 0, 1);
	ef_pod_allocate(&p, &n, &d, NULL);
	cr_expect_eq(plan_of(&n, &p, "main").verdict, EN_GIVE);
	cr_expect_eq(plan_of(&n, &p, "other").verdict, EN_HIDE);
	ef_pod_fini(&p);
}

Test(enforcer_apply, whole_gpus)
{
	static const char *const want[] = {"NVIDIA_VISIBLE_DEVICES", GPU(2) "," GPU(3), NULL};
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 4, 81920);
	ef_pod_init(&p, "u");
	ef_whole(&d, "main", 2, 2);
	ef_pod_allocate(&p, &n, &d, NULL);
	plan = plan_of(&n, &p, "main");
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	a = adjust_with(&n, &plan, &plain, NULL);
	expect_env(&a, want);
	cr_expect_eq(a.mount_count, 0);
	cr_expect_null(a.hook_path);
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, mig_instances)
{
	static const char *const want[] = {"NVIDIA_VISIBLE_DEVICES", "MIG-1-4", NULL};
	struct en_container_seen seen = {.name = "main"};
	struct en_apply_options cdi = plain;
	struct st_decision d = {.grant_count = 0};
	struct err err = ERR_INIT;
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	cdi.cdi_devices = cdi.contract.cdi = true;
	ef_node_init(&n, "n", 2, 81920);
	ef_node_instance(&n, 1, "3g.40gb", 0);
	ef_node_instance(&n, 1, "3g.40gb", 4);
	ef_pod_init(&p, "u");
	ef_mig(&d, "main", 1, "3g.40gb", 4);
	ef_pod_allocate(&p, &n, &d, NULL);
	plan = plan_of(&n, &p, "main");
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	a = adjust_with(&n, &plan, &plain, NULL);
	expect_env(&a, want);
	cr_expect_null(a.hook_path);
	en_adjust_fini(&a);
	a = adjust_with(&n, &plan, &cdi, NULL);
	expect_env(&a, want);
	cr_expect_eq(a.cdi_count, 0, "no CDI name of an instance is known");
	en_adjust_fini(&a);
	/* An instance that is not made yet. */
	n.gpus[1].instance_count = 1;
	cr_expect_eq(en_adjust_make(&n.node, &plan, &seen, &plain, &a, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "container \"main\": MIG instance 3g.40gb at 4 of " GPU(
					  1) " is not there");
	cr_expect_eq(a.env_count, 0);
	ef_pod_fini(&p);
}

Test(enforcer_apply, cdi)
{
	struct en_apply_options names = plain, devices = plain;
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	names.contract.cdi = true;
	devices.cdi_devices = true;
	ef_node_init(&n, "n", 2, 81920);
	ef_pod_init(&p, "u");
	ef_also(ef_share(&d, "main", TIME, 0, 1024, 1024), 1);
	ef_pod_allocate(&p, &n, &d, &names.contract);
	plan = plan_with(&n, &p, "main", &names);
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	a = adjust_with(&n, &plan, &names, NULL);
	cr_expect_str_eq(ef_env(&a, "NVIDIA_VISIBLE_DEVICES"), CDI GPU(0) "," CDI GPU(1));
	cr_expect_eq(a.cdi_count, 0);
	en_adjust_fini(&a);
	a = adjust_with(&n, &plan, &devices, NULL);
	cr_expect_str_eq(ef_env(&a, "NVIDIA_VISIBLE_DEVICES"), "void");
	cr_assert_eq(a.cdi_count, 2);
	cr_expect_str_eq(a.cdi[0], CDI GPU(0));
	cr_expect_str_eq(a.cdi[1], CDI GPU(1));
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

/* ---- what others see, and what users wrote themselves ---- */

Test(enforcer_apply, other_containers_see_no_gpu)
{
	static const char *const env[] = {"NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin", NULL};
	static const char *const want[] = {"NVIDIA_VISIBLE_DEVICES", "void", NULL};
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", TIME, 0, 1024, 1024);
	ef_share(&d, "side", TIME, 1, 2048, 2048);
	ef_pod_allocate(&p, &n, &d, NULL);
	plan = plan_of(&n, &p, "proxy");
	cr_expect_eq(plan.verdict, EN_HIDE);
	a = adjust_with(&n, &plan, &plain, env);
	expect_env(&a, want);
	cr_expect_eq(a.mount_count, 0);
	en_adjust_fini(&a);
	/* Each with a share has its own. */
	plan = plan_of(&n, &p, "side");
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_str_eq(ef_env(&a, "NVIDIA_VISIBLE_DEVICES"), GPU(1));
	cr_expect_str_eq(ef_env(&a, "NVIDIA_GPU_MEMORY_LIMIT"), "2048");
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, values_of_users_are_replaced)
{
	static const char *const env[] = {"NVIDIA_VISIBLE_DEVICES=all",
					  "NVIDIA_GPU_MEMORY_REQUEST=1",
					  "NVIDIA_GPU_MEMORY_LIMIT=999999",
					  "CUDA_MPS_PIPE_DIRECTORY=/nowhere",
					  "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=7=1G",
					  "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100",
					  "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE_X=1",
					  NULL};
	static const char *const share[] = {"NVIDIA_VISIBLE_DEVICES",
					    gpu_0,
					    "NVIDIA_GPU_MEMORY_REQUEST",
					    "1024",
					    "NVIDIA_GPU_MEMORY_LIMIT",
					    "1024",
					    "CUDA_MPS_PIPE_DIRECTORY",
					    "/run/nvidia-mps",
					    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
					    "100",
					    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
					    "0=1024M",
					    NULL};
	static const char *const hidden[] = {"NVIDIA_VISIBLE_DEVICES",
					     "void",
					     "NVIDIA_GPU_MEMORY_REQUEST",
					     "-",
					     "NVIDIA_GPU_MEMORY_LIMIT",
					     "-",
					     "CUDA_MPS_PIPE_DIRECTORY",
					     "-",
					     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
					     "-",
					     "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
					     "-",
					     NULL};
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 81920);
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	plan = plan_of(&n, &p, "main");
	a = adjust_with(&n, &plan, &plain, env);
	expect_env(&a, share);
	en_adjust_fini(&a);
	plan = plan_of(&n, &p, "other");
	a = adjust_with(&n, &plan, &plain, env);
	expect_env(&a, hidden);
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, pods_without_business_here)
{
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 81920);
	ef_pod_init(&p, "u");
	ef_pod_annotate(&p, "kubernetes.io/x", "y");
	ef_pod_annotate(&p, MODE("main"), "sm-sharing"); /* a mode alone asks for nothing */
	plan = plan_of(&n, &p, "main");
	cr_expect_eq(plan.verdict, EN_LEAVE);
	cr_expect_str_empty(plan.why);
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_eq(a.env_count, 0);
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, asking_without_an_allocation)
{
	static const char *const keys[] = {"gpu-fraction",
					   "gpu-memory",
					   REQUEST("main"),
					   LIMIT("main"),
					   DEVICES("main"),
					   "nvidia.com/container.main.gpu-compute.portion",
					   "tessera.dev/container.main.mig-profile",
					   "tessera.dev/container.main.mig-placement"};
	struct en_apply_options ignore = plain;
	struct ef_node n;

	ignore.ignore_unplaced = true;
	ef_node_init(&n, "n", 1, 81920);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct ef_pod p;
		char why[200];

		ef_pod_init(&p, "u");
		ef_pod_annotate(&p, keys[i], "0.5");
		snprintf(why, sizeof(why),
			 "has %s but no tessera.dev/allocation: it was not placed by Tessera",
			 keys[i]);
		expect_refused(&n, &p, "main", why);
		cr_expect_eq(plan_with(&n, &p, "main", &ignore).verdict, EN_LEAVE);
		ef_pod_fini(&p);
	}
}

/* ---- case 8: forged keys ---- */

Test(enforcer_apply, case_08_nothing_outside_the_digest_counts)
{
	struct ef_node n;
	struct en_plan plan;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	/* Keys for a container that the allocation does not list. */
	ef_pod_annotate(&p, DEVICES("other"), GPU(1));
	ef_pod_annotate(&p, REQUEST("other"), "1024Mi");
	ef_pod_annotate(&p, LIMIT("other"), "1024Mi");
	ef_pod_annotate(&p, MODE("other"), "time-slicing");
	cr_expect_eq(plan_of(&n, &p, "other").verdict, EN_HIDE);
	plan = plan_of(&n, &p, "main");
	cr_expect_eq(plan.verdict, EN_GIVE);
	cr_expect_eq(plan.grant.request_mib, 1024);
	ef_pod_fini(&p);
}

#define TAMPERED "is not the digest of the allocation: it was changed or is a leftover"

Test(enforcer_apply, case_08_changed_values)
{
	static const struct {
		const char *key, *value;
	} changes[] = {{DEVICES("main"), GPU(1)},
		       {REQUEST("main"), "512Mi"},
		       {LIMIT("main"), "80000Mi"},
		       {MODE("main"), "sm-sharing"}};
	struct ef_node n;

	ef_node_init(&n, "n", 2, 81920);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct en_plan plan;
		struct ef_pod p;

		ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
		ef_pod_annotate(&p, changes[i].key, changes[i].value);
		for (int other = 0; other < 2; other++) {
			plan = plan_of(&n, &p, other ? "other" : "main");
			cr_expect_eq(plan.verdict, EN_REFUSE);
			cr_expect(strstr(plan.why, TAMPERED) != NULL, "%s", plan.why);
		}
		ef_pod_fini(&p);
	}
}

Test(enforcer_apply, case_08_cut_and_foreign_allocations)
{
	static const struct {
		const char *value, *why;
	} rows[] = {
		{"", "has a version that is not v1"},
		{"v2;n;0123456789abcdef;main=drlm", "has a version that is not v1"},
		{"v1;n", "is cut"},
		{"v1;n;0123456789abcdef", "is cut"},
		{"v1;other;0123456789abcdef;main=drlm", "is not the node the pod is on"},
		{"v1;n;0123456789abcdef;main=drlm", TAMPERED},
		{"v1;n;0123456789abcdef;main=xyz", "does not say which keys belong to it"},
		{"v1;n;0123456789abcdef;gone=drlm",
		 "nvidia.com/container.gone.gpus.devices is missing"},
		{"v1;n;0123456789abcdef;the-name-of-this_0123456789ab=drlm", "is not a container"},
		{"(contains a NUL)", "has a version that is not v1"},
	};
	struct ef_node n;

	ef_node_init(&n, "n", 2, 81920);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct en_plan plan;
		struct ef_pod p;

		ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
		ef_pod_annotate(&p, ALLOCATION, rows[i].value);
		plan = plan_of(&n, &p, "main");
		cr_expect_eq(plan.verdict, EN_REFUSE, "%s", rows[i].value);
		cr_expect(strstr(plan.why, rows[i].why) != NULL, "%s: %s", rows[i].value, plan.why);
		ef_pod_fini(&p);
	}
}

/* Case 20, on the node: an allocation of another node, and one whose GPUs went. */
Test(enforcer_apply, case_20_another_node)
{
	struct ef_node n, other;
	struct en_plan plan;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	ef_node_init(&other, "m", 2, 81920);
	ef_pod_shared(&p, "u", &other, TIME, 0, 1024);
	plan = plan_of(&n, &p, "main");
	cr_expect_eq(plan.verdict, EN_REFUSE);
	cr_expect(strstr(plan.why, "\"m\" is not the node the pod is on") != NULL, "%s", plan.why);
	ef_pod_fini(&p);
	ef_pod_shared(&p, "u", &n, TIME, 1, 1024);
	n.node.gpu_count = 1;
	plan = plan_of(&n, &p, "main");
	cr_expect_eq(plan.verdict, EN_REFUSE);
	cr_expect(strstr(plan.why, "is not a GPU of this node") != NULL, "%s", plan.why);
	ef_pod_fini(&p);
}

/* ---- long names ---- */

#define LONG_NAME "the-name-of-this-container-is-longer-than-its-keys-allow"
#define LONG_TWIN "the-name-of-this-container-is-longer-than-its-keys-alloy"

Test(enforcer_apply, long_container_names)
{
	struct st_decision d = {.grant_count = 0};
	struct en_plan plan;
	struct ef_node n;
	struct ef_pod p;
	char *value;

	ef_node_init(&n, "n", 4, 81920);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", TIME, 0, 1024, 1024);
	ef_share(&d, LONG_NAME, TIME, 1, 2048, 2048);
	ef_share(&d, LONG_TWIN, TIME, 2, 3072, 4096);
	ef_whole(&d, "x", 3, 1);
	ef_pod_allocate(&p, &n, &d, NULL);
	for (int i = 0; i < 4; i++) {
		plan = plan_of(&n, &p, d.grants[i].container);
		cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
		cr_expect_eq(plan.grant.gpu[0], i);
		cr_expect_eq(plan.grant.limit_mib, d.grants[i].limit_mib);
	}
	cr_expect_eq(plan_of(&n, &p, "the-name-of-this").verdict, EN_HIDE);
	cr_expect_eq(plan_of(&n, &p, "long-name-1").verdict, EN_HIDE, "our own alias is no name");
	/* Still under the digest. */
	value = strdup(st_pod_annotation(&p.spec, ALLOCATION));
	cr_assert_not_null(value);
	value[5] = value[5] == '0' ? '1' : '0';
	ef_pod_annotate(&p, ALLOCATION, value);
	plan = plan_of(&n, &p, LONG_NAME);
	cr_expect_eq(plan.verdict, EN_REFUSE);
	free(value);
	ef_pod_fini(&p);
}

/* ---- against the node ---- */

Test(enforcer_apply, modes_agree)
{
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	n.gpus[0].mode = TIME;
	n.gpus[0].clients = 1;
	cr_expect_eq(plan_of(&n, &p, "main").verdict, EN_GIVE);
	n.gpus[0].mode = SHARING;
	expect_refused(&n, &p, "main",
		       GPU(0) " is for time-slicing, but other pods use the GPU in sm-sharing");
	n.gpus[0].mode = ST_MODE_EXCLUSIVE;
	expect_refused(&n, &p, "main",
		       GPU(0) " is for time-slicing, but other pods use the GPU in exclusive");
	n.gpus[0].mode = ST_MODE_FREE;
	n.gpus[0].mig_enabled = true;
	expect_refused(&n, &p, "main", GPU(0) " is for time-slicing, but the GPU is in MIG mode");
	ef_pod_fini(&p);

	ef_node_init(&n, "n", 2, 81920);
	ef_pod_init(&p, "u");
	ef_whole(&d, "main", 0, 1);
	ef_pod_allocate(&p, &n, &d, NULL);
	n.gpus[0].mode = ST_MODE_EXCLUSIVE;
	expect_refused(&n, &p, "main", GPU(0) " is given as a whole, but another container has it");
	n.gpus[0].mode = TIME;
	expect_refused(&n, &p, "main",
		       GPU(0) " is for exclusive, but other pods use the GPU in time-slicing");
	ef_pod_fini(&p);
}

Test(enforcer_apply, modes_agree_within_a_pod)
{
	struct st_decision d = {.grant_count = 0}, e = {.grant_count = 0};
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", TIME, 0, 1024, 1024);
	ef_share(&d, "side", SHARING, 0, 1024, 1024);
	ef_pod_allocate(&p, &n, &d, NULL);
	expect_refused(&n, &p, "main", "the allocation puts " GPU(0) " into two modes");
	ef_pod_fini(&p);
	ef_pod_init(&p, "u");
	ef_whole(&e, "main", 0, 1);
	ef_whole(&e, "side", 0, 1);
	ef_pod_allocate(&p, &n, &e, NULL);
	expect_refused(&n, &p, "side", GPU(0) " is given as a whole, but another container has it");
	ef_pod_fini(&p);
}

Test(enforcer_apply, sums_fit)
{
	struct en_apply_options opt = plain;
	struct st_decision d = {.grant_count = 0};
	struct en_plan plan;
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 10000);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", TIME, 0, 3000, 4000);
	ef_share(&d, "side", TIME, 0, 1000, 1000);
	ef_pod_allocate(&p, &n, &d, NULL);
	n.gpus[0].mode = TIME;
	n.gpus[0].request_mib = 6000;
	n.gpus[0].limit_mib = 9000;
	n.gpus[0].clients = 3;
	cr_expect_eq(plan_of(&n, &p, "main").verdict, EN_GIVE);
	n.gpus[0].request_mib = 6001;
	expect_refused(
		&n, &p, "main",
		"the pod asks for 4000 MiB of " GPU(0) ", where other pods hold 6001 of 10000 MiB");
	n.gpus[0].request_mib = 6000;
	opt.reserve_mib = 1;
	plan = plan_with(&n, &p, "main", &opt);
	cr_expect_eq(plan.verdict, EN_REFUSE);
	opt.reserve_mib = 0;
	opt.overcommit_permille = 1400;
	cr_expect_eq(plan_with(&n, &p, "main", &opt).verdict, EN_GIVE);
	opt.overcommit_permille = 1399;
	plan = plan_with(&n, &p, "main", &opt);
	cr_expect_eq(plan.verdict, EN_REFUSE);
	cr_expect(strstr(plan.why, "the limits on " GPU(0) " would be 14000 MiB together, at most "
							   "13990 MiB are allowed") != NULL,
		  "%s", plan.why);
	/* Clients: two of this pod. */
	opt = plain;
	opt.clients_max = 5;
	cr_expect_eq(plan_with(&n, &p, "main", &opt).verdict, EN_GIVE);
	opt.clients_max = 4;
	plan = plan_with(&n, &p, "main", &opt);
	cr_expect(strstr(plan.why, GPU(0) " would have 5 containers, at most 4 are possible") !=
			  NULL,
		  "%s", plan.why);
	opt.clients_max = 0;
	n.gpus[0].clients = 1000;
	cr_expect_eq(plan_with(&n, &p, "main", &opt).verdict, EN_GIVE);
	/* A limit that no GPU has. */
	n.gpus[0].mem_mib = 3999;
	n.gpus[0].request_mib = 0;
	expect_refused(&n, &p, "main", "the limit of 4000 MiB is above the 3999 MiB of " GPU(0));
	ef_pod_fini(&p);
}

Test(enforcer_apply, compute_shares_fit)
{
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 10000);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", SHARING, 0, 100, 100)->compute_nano = 400000000;
	ef_share(&d, "side", SHARING, 0, 100, 100)->compute_nano = 100000000;
	ef_pod_allocate(&p, &n, &d, NULL);
	n.gpus[0].mode = SHARING;
	n.gpus[0].compute_nano = 500000000;
	cr_expect_eq(plan_of(&n, &p, "main").verdict, EN_GIVE);
	n.gpus[0].compute_nano = 501000000;
	expect_refused(&n, &p, "main",
		       "the compute shares on " GPU(0) " would be 1001 of 1,000 together");
	ef_pod_fini(&p);
}

Test(enforcer_apply, mig_instances_do_not_overlap)
{
	struct st_decision d = {.grant_count = 0}, e = {.grant_count = 0};
	struct en_plan plan;
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 81920);
	ef_node_instance(&n, 0, "3g.40gb", 0);
	ef_pod_init(&p, "u");
	ef_mig(&d, "main", 0, "3g.40gb", 0);
	ef_pod_allocate(&p, &n, &d, NULL);
	n.gpus[0].mode = ST_MODE_MIG;
	n.gpus[0].mig_units = 0xf0;
	cr_expect_eq(plan_of(&n, &p, "main").verdict, EN_GIVE);
	n.gpus[0].mig_units = 0xf8;
	expect_refused(&n, &p, "main", "the MIG instances on " GPU(0) " overlap");
	n.gpus[0].mig_units = 0;
	n.gpus[0].mig_enabled = false; /* MIG was switched off since */
	plan = plan_of(&n, &p, "main");
	cr_expect_eq(plan.verdict, EN_REFUSE);
	cr_expect(strstr(plan.why, "is not a placement that the GPU has") != NULL, "%s", plan.why);
	ef_pod_fini(&p);
	n.gpus[0].mig_enabled = true;
	ef_pod_init(&p, "u");
	ef_mig(&e, "main", 0, "3g.40gb", 0);
	ef_mig(&e, "side", 0, "1g.10gb", 3);
	ef_pod_allocate(&p, &n, &e, NULL);
	expect_refused(&n, &p, "side", "the MIG instances on " GPU(0) " overlap");
	ef_pod_fini(&p);
}

Test(enforcer_apply, a_node_that_cannot_be)
{
	struct err err = ERR_INIT;
	struct en_plan plan;
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 2, 81920);
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	memcpy(n.gpus[1].uuid, n.gpus[0].uuid, EN_UUID_CAP);
	cr_expect_lt(en_plan_make(&n.node, &p.spec, "main", &plain, &plan, &err), 0);
	cr_expect(err.msg[0] != '\0');
	n.node.gpu_count = ST_GPUS_MAX + 1;
	cr_expect_eq(en_plan_make(&n.node, &p.spec, "main", &plain, &plan, &err), ERR_INVALID);
	ef_pod_fini(&p);
}

/* ---- is it as it should be? ---- */

Test(enforcer_apply, containers_are_compared_by_value)
{
	static const char *env[] = {sees_gpu_0, "NVIDIA_GPU_MEMORY_REQUEST=1024",
				    "NVIDIA_GPU_MEMORY_LIMIT=1024",
				    "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps", "X=y"};
	struct en_mount_seen mounts[] = {{"/a", "/b"}, {"/run/nvidia-mps", "/run/nvidia-mps"}};
	struct en_container_seen seen = {
		.name = "main", .env = {5, env}, .mount_count = 2, .mounts = mounts};
	struct err err = ERR_INIT;
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 81920);
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	plan = plan_of(&n, &p, "main");
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_eq(en_adjust_check_container(&a, &seen, &err), 0, "%s", err.msg);
	env[2] = "NVIDIA_GPU_MEMORY_LIMIT=2048";
	cr_expect_eq(en_adjust_check_container(&a, &seen, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "NVIDIA_GPU_MEMORY_LIMIT is \"2048\", not 1024");
	env[2] = "X=z";
	cr_expect_eq(en_adjust_check_container(&a, &seen, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "NVIDIA_GPU_MEMORY_LIMIT is not set to 1024");
	env[2] = "NVIDIA_GPU_MEMORY_LIMIT=1024";
	mounts[1].source = "/tmp";
	cr_expect_eq(en_adjust_check_container(&a, &seen, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "/run/nvidia-mps is not mounted from /run/nvidia-mps");
	seen.mount_count = 1;
	cr_expect_eq(en_adjust_check_container(&a, &seen, &err), ERR_CONFLICT);
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

Test(enforcer_apply, merged_adjustments)
{
	struct st_kv env[] = {{"-NVIDIA_VISIBLE_DEVICES", ""},
			      {"NVIDIA_VISIBLE_DEVICES", "void"},
			      {"OTHER", "x"},
			      {"-OTHER2", ""}};
	static const char *paths[] = {"/other/hook"};
	struct en_merged m = {.env_count = 4, .env = env, .hook_paths = {1, paths}};
	struct en_mount_seen mounts[] = {{"/run/nvidia-mps", "/run/nvidia-mps"}};
	struct err err = ERR_INIT;
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 81920);
	ef_pod_shared(&p, "u", &n, TIME, 0, 1024);
	plan = plan_of(&n, &p, "other");
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), 0, "%s", err.msg);
	env[2] = (struct st_kv){"-NVIDIA_VISIBLE_DEVICES", ""}; /* a later plugin takes it away */
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), ERR_CONFLICT);
	cr_expect(strstr(err.msg, "NVIDIA_VISIBLE_DEVICES is not as it was set") != NULL, "%s",
		  err.msg);
	env[2] = (struct st_kv){"NVIDIA_VISIBLE_DEVICES", "all"};
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), ERR_CONFLICT);
	m.env_count = 0;
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), ERR_CONFLICT);
	en_adjust_fini(&a);
	/* Mounts and hooks. */
	plan = plan_of(&n, &p, "main");
	a = adjust_with(&n, &plan, &plain, NULL);
	a.env_count = 0;
	m.mounts = mounts;
	m.mount_count = 1;
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), ERR_CONFLICT);
	cr_expect(strstr(err.msg, "tessera-hook is not") != NULL, "%s", err.msg);
	paths[0] = plain.hook_path;
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), 0, "%s", err.msg);
	mounts[0].target = "-/run/nvidia-mps";
	cr_expect_eq(en_adjust_check_merged(&a, &m, &err), ERR_CONFLICT);
	a.env_count = 4;
	en_adjust_fini(&a);
	ef_pod_fini(&p);
}

/* ---- memory ---- */

Test(enforcer_apply, out_of_memory)
{
	struct en_container_seen seen = {.name = LONG_NAME};
	struct en_apply_options opt = plain;
	struct st_decision d = {.grant_count = 0};
	struct ef_node n;
	struct ef_pod p;

	opt.cdi_devices = true;
	ef_node_init(&n, "n", 2, 81920);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", TIME, 0, 1024, 1024);
	ef_also(ef_share(&d, LONG_NAME, TIME, 1, 1024, 1024), 0);
	ef_pod_allocate(&p, &n, &d, NULL);
	OOM_SWEEP(i) {
		struct err err = ERR_INIT;
		struct en_adjust a = {0};
		struct en_plan plan;
		bool hit;
		int r;

		oom_fail_at(i);
		r = en_plan_make(&n.node, &p.spec, LONG_NAME, &opt, &plan, &err);
		if (r == 0)
			r = en_adjust_make(&n.node, &plan, &seen, &opt, &a, &err);
		hit = oom_disarm();
		cr_expect(hit ? r == ERR_NOMEM : r == 0, "%u: %d %s", i, r, err.msg);
		cr_expect(r == 0 || a.env_count == 0);
		en_adjust_fini(&a);
		if (!hit)
			break;
	}
	ef_pod_fini(&p);
}

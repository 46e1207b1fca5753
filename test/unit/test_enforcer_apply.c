/* What a container is given: GPUs in every form, none, or what its user may not set; case 40 (limit of the
 * container), 41 (host indexes), 42 (form of pinned limits), 43 (no MPS). Case 26 is in test_nri_plugin.c. */
#include "test/unit/apply_fixture.h"

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

/* Case 40: the limit is the container's, whatever number of processes it starts; where the driver can only
 * limit each process, the plan says so. */
Test(enforcer_apply, case_40_limit_of_the_container)
{
	struct ef_node n;
	struct en_plan plan;
	struct en_adjust a;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 81920);
	ef_pod_shared(&p, "u", &n, SHARING, 0, 8192);
	plan = plan_of(&n, &p, "main");
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	cr_expect(plan.by_cgroup && !plan.by_client);
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_not_null(a.hook_path);
	cr_expect_null(ef_env(&a, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"));
	en_adjust_fini(&a);
	n.node.memory_limits = false;
	plan = plan_of(&n, &p, "main");
	cr_assert_eq(plan.verdict, EN_GIVE, "%s", plan.why);
	cr_expect(!plan.by_cgroup && plan.by_client);
	a = adjust_with(&n, &plan, &plain, NULL);
	cr_expect_null(a.hook_path);
	cr_expect_str_eq(ef_env(&a, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=8192M");
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
	n.instances[1][1].held = true;
	cr_expect_eq(en_adjust_make(&n.node, &plan, &seen, &plain, &a, &err), ERR_CONFLICT);
	cr_expect_not_null(strstr(err.msg, "given to another pod by a device plugin"), "%s",
			   err.msg);
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

/* What is not believed: forged and foreign allocations (cases 8, 20), sums and modes that do not fit, and
 * containers that are not as they were made. */
#include "test/unit/apply_fixture.h"

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

/* A volume must not bring what the allocation does not. */
Test(enforcer_apply, volumes_are_no_way_around)
{
	static const struct {
		struct en_mount_seen mount;
		const char *why; /* NULL: fine */
	} rows[] = {
		{{"/dev/null", "/var/run/nvidia-container-devices/GPU-1"}, "asks for GPUs"},
		{{"/run/nvidia-mps", "/mnt"}, "sockets of MPS"},
		{{"/run/nvidia-mps/shared/ts_other", "/tmp/mps"}, "sockets of MPS"},
		{{"/var/run/nvidia-mps/shared", "/tmp/mps"}, "sockets of MPS"},
		{{"/run", "/host/run"}, "sockets of MPS"},
		{{"/var/run", "/host/run"}, "sockets of MPS"},
		{{"/", "/host"}, "sockets of MPS"},
		/* The same places by other words: nobody on the way straightens them. */
		{{"/dev/null", "/var//run/./nvidia-container-devices/all"}, "asks for GPUs"},
		{{"/dev/null", "/x/../var/run/nvidia-container-devices/"}, "asks for GPUs"},
		{{"/dev/null", "//var/run/x/..//nvidia-container-devices"}, "asks for GPUs"},
		{{"/run//nvidia-mps", "/mnt"}, "sockets of MPS"},
		{{"//run/./nvidia-mps/", "/mnt"}, "sockets of MPS"},
		{{"/var//run/nvidia-mps", "/mnt"}, "sockets of MPS"},
		{{"/run/", "/mnt"}, "sockets of MPS"},
		{{"//", "/host"}, "sockets of MPS"},
		{{"/..", "/host"}, "sockets of MPS"},
		{{"/run/nvidia-mps", "/run//nvidia-mps"},
		 "sockets of MPS"}, /* ours does not replace it */
		{{"/run/nvidia-mps/../x", "/mnt"}, NULL},
		{{"/run/nvidia-mps..", "/mnt"}, NULL},
		{{"", ""}, NULL},
		{{"run", "/mnt"}, NULL}, /* no file */
		{{"/run/nvidia-mps-other", "/mnt"}, NULL},
		{{"/var/run/secrets", "/var/run/secrets"}, NULL},
		{{"/data", "/run/nvidia-mps/x"}, NULL},
		{{"/elsewhere", "/run/nvidia-mps"}, NULL}, /* replaced by ours */
		{{"/run/nvidia-mps", "/run/nvidia-mps"}, NULL},
	};
	struct st_decision d = {.grant_count = 0};
	struct en_apply_options opt = {.hook_path = NULL};
	struct en_plan give, hide;
	struct ef_node n;
	struct ef_pod p;

	ef_node_init(&n, "n", 1, 10000);
	ef_pod_init(&p, "u");
	ef_share(&d, "main", ST_MODE_TIME_SLICING, 0, 1000, 2000);
	ef_pod_allocate(&p, &n, &d, NULL);
	cr_assert_eq(en_plan_make(&n.node, &p.spec, "main", &opt, &give, NULL), 0);
	cr_assert_eq(give.verdict, EN_GIVE, "%s", give.why);
	cr_assert_eq(en_plan_make(&n.node, &p.spec, "proxy", &opt, &hide, NULL), 0);
	cr_assert_eq(hide.verdict, EN_HIDE, "%s", hide.why);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct en_container_seen seen = {
			.name = "main", .mount_count = 1, .mounts = &rows[i].mount};
		struct err err = ERR_INIT;
		struct en_adjust a;
		int r = en_adjust_make(&n.node, &give, &seen, &opt, &a, &err);

		en_adjust_fini(&a);
		cr_expect_eq(r, rows[i].why != NULL ? ERR_CONFLICT : 0, "%zu: %s", i, err.msg);
		cr_expect(rows[i].why == NULL || strstr(err.msg, rows[i].why) != NULL, "%zu: %s", i,
			  err.msg);
		r = en_adjust_make(&n.node, &hide, &seen, &opt, &a, &err);
		en_adjust_fini(&a);
		cr_expect(rows[i].why == NULL || r == ERR_CONFLICT, "%zu: hidden", i);
	}
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

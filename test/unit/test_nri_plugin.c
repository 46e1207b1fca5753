/* What the plugin does when containers are made, validated, started and stopped; case 26 (two pods swap
 * their shares). */
#include "test/unit/plugin_fixture.h"

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

	world_with_pod(&w, &p);
	w.node.node.mps_ready = false;
	cr_assert_eq(en_plugin_set_node(w.plugin, &w.node.node, NULL), 0);
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
	world_end(&w, &p);
}

Test(nri_plugin, before_the_node_is_known)
{
	const struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	struct ef_pod p, other;
	struct world w;

	world_with_pod(&w, &p);
	en_plugin_free(w.plugin);
	cr_assert_eq(en_plugin_new(&w.options, &w.plugin, NULL), 0);
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
	struct en_nri_reply r;
	struct ef_pod p;
	struct world w;

	world_with_quarter(&w, &p);
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
	world_end(&w, &p);
}

/* A container that is made again has a new id; the runtime removes the old one later, or before the agent hears of
 * anything again. Its namespace goes with its row, else each restart leaves one behind. */
Test(nri_plugin, namespaces_of_containers_that_are_made_again)
{
	struct nt_container c = {.id = "c1", .pod_id = "u", .name = "main"};
	struct nt_container c2 = {.id = "c2", .pod_id = "u", .name = "main"};
	struct en_nri_reply r;
	struct buf b = BUF_INIT;
	struct ef_pod p;
	struct world w;

	world_with_quarter(&w, &p);
	r = call(&w, "CreateContainer", &p, &c);
	en_adjust_fini(&r.adjust);
	expect_ok(&w, "StopContainer", &p, &c);
	expect_log(&w, "make c1 25% of 1 from GPU-0;stopping c1;");
	r = call(&w, "CreateContainer", &p, &c2);
	en_adjust_fini(&r.adjust);
	expect_log(&w, "make c2 25% of 1 from GPU-0;drop c1;");
	r = call(&w, "CreateContainer", &p, &c2); /* the same event twice */
	en_adjust_fini(&r.adjust);
	expect_ok(&w, "RemoveContainer", &p, &c);
	expect_log(&w, "make c2 25% of 1 from GPU-0;");
	cr_expect_eq(holdings(&w), 1);
	c2.pid = process_put(&w, "/k/c2");
	expect_ok(&w, "StartContainer", &p, &c2);
	buf_reset(&w.log);
	/* Gone while the runtime was not connected. */
	nt_synchronize(&b, 0, NULL, 0, NULL, false);
	en_plugin_handle(w.plugin, request_of("Synchronize", &b), &r);
	cr_expect_eq(holdings(&w), 0);
	expect_log(&w, "drop c2;");
	/* In the making at that moment, it may not be listed, and come to be all the same. */
	r = call(&w, "CreateContainer", &p, &c);
	en_adjust_fini(&r.adjust);
	nt_synchronize(&b, 0, NULL, 0, NULL, false);
	en_plugin_handle(w.plugin, request_of("Synchronize", &b), &r);
	expect_log(&w, "make c1 25% of 1 from GPU-0;");
	world_end(&w, &p);
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
	cr_expect_eq(w.running_pid, r.pid, "its end is watched from now on");
	w.running_pid = 0;
	expect_ok(&w, "StartContainer", &p, &c);
	cr_expect_eq(w.running_pid, r.pid);
	cr_expect_eq(w.set_calls, 2, "limits in force are left alone");
	expect_log(&w, "");
	/* Its end takes the guarantee back and keeps the ceiling, whoever tells of it first. */
	en_plugin_exited(w.plugin, "c0ffee");
	en_plugin_exited(w.plugin, "other");
	cr_expect_eq(w.set_calls, 4);
	cr_expect_eq(w.set[0].soft, 0);
	cr_expect_eq(w.set[0].hard, 2000);
	cr_expect_eq(w.set[1].soft, 0);
	expect_ok(&w, "StopContainer", &p, &c);
	cr_expect_eq(w.set[0].soft, 0);
	cr_expect_eq(w.set[0].hard, 2000);
	cr_expect_eq(w.set[1].soft, 0);
	expect_log(&w, "stopping c0ffee;");
	expect_ok(&w, "StopContainer", &p, &c); /* called on stop and on exit */
	expect_log(&w, "");
	world_end(&w, &p);
}

Test(nri_plugin, start_mends_what_the_hook_missed_or_refuses)
{
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct ef_pod p;
	struct world w;

	world_with_pod(&w, &p);
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
	world_end(&w, &p);
}

Test(nri_plugin, start_of_a_container_made_while_we_were_away)
{
	struct nt_container c = {.id = "c0ffee", .pod_id = "u", .name = "main"};
	struct ef_pod p;
	struct world w;

	world_with_pod(&w, &p);
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
	c.mounts[0].target = NULL;
	expect_refused(&w, "StartContainer", &p, &c, "NVIDIA_VISIBLE_DEVICES is \"" GPU(0));
	c.env[0] = "NVIDIA_VISIBLE_DEVICES=void";
	expect_ok(&w, "StartContainer", &p, &c);
	world_end(&w, &p);
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
	world_end(&w, &p);
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

	world_with_pod(&w, &p);
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

	world_with_pod(&w, &p);
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
	world_end(&w, &p);
}

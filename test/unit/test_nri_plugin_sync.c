/* What is there when the plugin connects, looking after it, and allocations that change. */
#include "test/unit/plugin_fixture.h"

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

/* Pods "a", with 1,000 MiB of the first GPU, and "b", with mib of another one or the same. */
struct two {
	struct world w;
	struct ef_pod a, b;
	struct nt_pod pods[2];
};

static void two_init(struct two *t, size_t gpus, int32_t mem_mib, uint8_t gpu, int32_t mib)
{
	world_init(&t->w, gpus, mem_mib);
	ef_pod_shared(&t->a, "a", &t->w.node, TIME, 0, 1000);
	ef_pod_shared(&t->b, "b", &t->w.node, TIME, gpu, mib);
	t->pods[0] = pod_of(&t->a);
	t->pods[1] = pod_of(&t->b);
}

static void two_fini(struct two *t)
{
	ef_pod_fini(&t->b);
	world_end(&t->w, &t->a);
}

Test(nri_plugin, synchronize_rebuilds_what_is_known)
{
	const char *good_env = "NVIDIA_VISIBLE_DEVICES=" GPU(0);
	struct nt_container list[5], late;
	struct nt_pod pods[3];
	struct ef_pod none;
	struct two t;

	two_init(&t, 2, 10000, 1, 9500);
	ef_pod_init(&none, "c");
	memcpy(pods, t.pods, sizeof(t.pods));
	pods[2] = pod_of(&none);
	list[0] = running("a1", "a", "main", good_env, process_put(&t.w, "/k/a1"));
	list[1] = running("a2", "a", "proxy", "NVIDIA_VISIBLE_DEVICES=all", 0);
	list[1].mounts[0].target = NULL;
	list[2] = running("c1", "c", "main", "NVIDIA_VISIBLE_DEVICES=all", 0);
	list[3] = running("b0", "b", "main", "x=y", 0);
	list[3].state = EN_NRI_STOPPED;
	list[4] = running("x1", "gone", "main", good_env, 0); /* of no pod that is listed */
	late = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(1), 0);
	/* In parts, a container before and one after its pod. */
	cr_expect_eq(synchronize(&t.w, 1, &pods[2], 1, &late, true).code, 0);
	expect_log(&t.w, "");
	cr_expect_eq(holdings(&t.w), 0);
	cr_expect_eq(synchronize(&t.w, 2, pods, 5, list, false).code, 0);
	cr_expect_eq(holdings(&t.w), 2);
	expect_log(&t.w, "slipped b1 ns/b/main: NVIDIA_GPU_MEMORY_REQUEST is \"1000\", not 9500;"
			 "slipped a2 ns/a/proxy: NVIDIA_VISIBLE_DEVICES is \"all\", not void;");
	/* Its limits are not in force: the container was made while nobody looked. */
	en_plugin_reconcile(t.w.plugin);
	expect_log(&t.w, "limits-repaired a1 ns/a/main: its memory limits were not in force;");
	cr_assert_eq(t.w.set_count, 1);
	cr_expect_str_eq(t.w.set[0].cgroup, "/cg/k/a1");
	cr_expect_eq(t.w.set[0].hard, 1000);
	en_plugin_reconcile(t.w.plugin);
	expect_log(&t.w, "");
	/* Somebody changes a limit: found by value, and mended. */
	t.w.set[0].hard = 9999;
	en_plugin_reconcile(t.w.plugin);
	cr_expect_eq(t.w.set[0].hard, 1000);
	buf_reset(&t.w.log);
	/* The next list replaces all of it. */
	cr_expect_eq(synchronize(&t.w, 3, pods, 0, NULL, false).code, 0);
	cr_expect_eq(holdings(&t.w), 0);
	ef_pod_fini(&none);
	two_fini(&t);
}

/* Namespaces of containers that an earlier agent made are taken over, until that works. */
Test(nri_plugin, synchronize_claims_namespaces)
{
	struct nt_container c;
	struct nt_pod pod;
	struct ef_pod p;
	struct world w;

	world_with_quarter(&w, &p);
	pod = pod_of(&p);
	c = running("u1", "u", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	c.env[3] = "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps";
	c.env[4] = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25";
	c.mounts[0].source = "/run/nvidia-mps/shared/t_u1";
	c.mounts[0].target = "/tmp/nvidia-mps";
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	expect_log(&w, "");
	w.fail_namespace = true;
	cr_expect_not(en_plugin_claim(w.plugin));
	w.fail_namespace = false;
	cr_expect(en_plugin_claim(w.plugin));
	expect_log(&w, "make u1 25% of 1 from GPU-0;kept;");
	c.mounts[0].source = "/run/nvidia-mps/shared/t_other";
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	cr_expect(en_plugin_claim(w.plugin));
	expect_log(&w, "make u1 25% of 1 from GPU-0;kept;"
		       "slipped u1 ns/u/main: the directory of its MPS namespace is not the one "
		       "that it has;");
	world_end(&w, &p);
}

/* It ends while it is looked after: its guarantee was taken back already, or will be by nobody. */
Test(nri_plugin, no_guarantee_is_left_on_what_has_ended)
{
	struct nt_container c;
	struct nt_pod pod;
	struct ef_pod p;
	struct world w;

	world_with_pod(&w, &p);
	pod = pod_of(&p);
	c = running("u1", "u", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), process_put(&w, "/k/u1"));
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	w.ends_at_set = true;
	en_plugin_reconcile(w.plugin);
	cr_assert_eq(w.set_count, 1);
	cr_expect_eq(w.set[0].soft, 0);
	cr_expect_eq(w.set[0].hard, 1000);
	expect_log(&w, "");
	world_end(&w, &p);
}

/* The agent starts before MPS answers: containers that run are as they should be, and looked after. */
Test(nri_plugin, synchronize_before_mps_is_ready)
{
	struct nt_container c;
	struct nt_pod pod;
	struct ef_pod p;
	struct world w;

	world_with_pod(&w, &p);
	w.node.node.mps_ready = false;
	cr_assert_eq(en_plugin_set_node(w.plugin, &w.node.node, NULL), 0);
	pod = pod_of(&p);
	c = running("u1", "u", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), process_put(&w, "/k/u1"));
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	expect_log(&w, "");
	en_plugin_reconcile(w.plugin);
	cr_assert_eq(w.set_count, 1);
	cr_expect_eq(w.set[0].hard, 1000);
	buf_reset(&w.log);
	c.id = "u2"; /* a new one must wait */
	expect_refused(&w, "CreateContainer", &p, &c, "MPS does not run on this node");
	world_end(&w, &p);
}

Test(nri_plugin, synchronize_that_breaks_off)
{
	struct nt_container c;
	struct nt_pod pod;
	struct ef_pod p;
	struct world w;

	world_with_pod(&w, &p);
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
	world_end(&w, &p);
}

Test(nri_plugin, synchronize_finds_what_must_not_run)
{
	struct nt_container list[2];
	struct two t;

	two_init(&t, 1, 1500, 0, 1000);
	list[0] = running("a1", "a", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	list[1] = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0),
			  process_put(&t.w, "/k/b1"));
	cr_expect_eq(synchronize(&t.w, 2, t.pods, 2, list, false).code, 0);
	expect_log(&t.w,
		   "slipped b1 ns/b/main: container \"main\" of pod ns/b: the pod asks for 1000 "
		   "MiB of " GPU(0) ", where other pods hold 1000 of 1500 MiB;");
	cr_expect_eq(holdings(&t.w), 2, "it runs, so it holds");
	en_plugin_reconcile(t.w.plugin);
	cr_expect_eq(t.w.set_count, 1, "and is limited: %s", buf_str(&t.w.log));
	two_fini(&t);
}

/* It was made while the agent was away, and has not begun: there it can still be held back. */
Test(nri_plugin, synchronize_does_not_let_the_unguarded_start)
{
	struct nt_container c;
	struct nt_pod pod;
	struct ef_pod p;
	struct world w;

	world_with_pod(&w, &p);
	pod = pod_of(&p);
	c = running("u1", "u", "main", "NVIDIA_VISIBLE_DEVICES=all", 0);
	c.state = EN_NRI_CREATED;
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	expect_log(&w, "slipped u1 ns/u/main: NVIDIA_VISIBLE_DEVICES is \"all\", not " GPU(0) ";");
	c.pid = process_put(&w, "/k/u1");
	expect_refused(&w, "StartContainer", &p, &c, "was made while the agent was away");
	cr_expect_eq(holdings(&w), 0);
	/* One that is as it should be goes on. */
	c = running("u2", "u", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	c.state = EN_NRI_CREATED;
	cr_expect_eq(synchronize(&w, 1, &pod, 1, &c, false).code, 0);
	expect_log(&w, "");
	c.pid = process_put(&w, "/k/u2");
	expect_ok(&w, "StartContainer", &p, &c);
	cr_expect_eq(holdings(&w), 1);
	world_end(&w, &p);
}

static void know_gpus(struct world *w, size_t count)
{
	struct en_node node = w->node.node;

	node.gpu_count = count;
	cr_assert_eq(en_plugin_set_node(w->plugin, &node, NULL), 0);
}

/* The driver does not answer while the runtime tells what runs: nothing can be said of it before it does, and
 * nothing is lost of it. */
Test(nri_plugin, synchronize_while_no_gpu_is_known)
{
	struct nt_container list[4];
	struct two t;

	two_init(&t, 2, 10000, 1, 1000);
	list[0] = running("a1", "a", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0),
			  process_put(&t.w, "/k/a1"));
	list[1] = running("a2", "a", "proxy", "NVIDIA_VISIBLE_DEVICES=all", 0);
	list[1].mounts[0].target = NULL;
	list[2] = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(1), 0);
	list[3] = running("b2", "b", "other", "NVIDIA_VISIBLE_DEVICES=all", 0);
	list[3].mounts[0].target = NULL;
	know_gpus(&t.w, 0);
	cr_expect_eq(synchronize(&t.w, 2, t.pods, 4, list, false).code, 0);
	expect_log(&t.w, "");
	cr_expect(en_plugin_waits(t.w.plugin));
	expect_ok(&t.w, "StopContainer", &t.b, &list[2]);
	expect_ok(&t.w, "RemoveContainer", &t.b, &list[3]);
	know_gpus(&t.w, 2);
	cr_expect_not(en_plugin_waits(t.w.plugin));
	expect_log(&t.w, "slipped a2 ns/a/proxy: NVIDIA_VISIBLE_DEVICES is \"all\", not void;");
	cr_expect_eq(holdings(&t.w), 1);
	know_gpus(&t.w, 2);
	expect_log(&t.w, "");
	/* What was known stays known. */
	know_gpus(&t.w, 0);
	cr_expect_eq(synchronize(&t.w, 1, t.pods, 1, list, false).code, 0);
	cr_expect_not(en_plugin_waits(t.w.plugin));
	cr_expect_eq(holdings(&t.w), 1);
	/* A new connection tells all of it again. */
	list[2].id = "b3";
	cr_expect_eq(synchronize(&t.w, 2, t.pods, 3, list, false).code, 0);
	cr_expect(en_plugin_waits(t.w.plugin));
	cr_expect_eq(synchronize(&t.w, 0, NULL, 0, NULL, false).code, 0);
	cr_expect_not(en_plugin_waits(t.w.plugin));
	know_gpus(&t.w, 2);
	cr_expect_eq(holdings(&t.w), 0);
	expect_log(&t.w, "");
	two_fini(&t);
}

Test(nri_plugin, pods_that_are_gone)
{
	const char *const there[] = {"a"};
	struct nt_container c[2];
	struct two t;

	two_init(&t, 1, 10000, 0, 1000);
	c[0] = running("a1", "a", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	c[1] = running("b1", "b", "main", "NVIDIA_VISIBLE_DEVICES=" GPU(0), 0);
	cr_expect_eq(synchronize(&t.w, 2, t.pods, 2, c, false).code, 0);
	en_plugin_keep_pods(t.w.plugin, 1, there);
	cr_expect_eq(holdings(&t.w), 1);
	en_plugin_keep_pods(t.w.plugin, 0, NULL);
	cr_expect_eq(holdings(&t.w), 0);
	two_fini(&t);
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

/* The whole agent as a process, from start to end, and when things around it come and go. What needs real cgroups
 * is in test/e2e. */
#include "test/unit/agent_fixture.h"

Test(enforcer_agent, a_node_from_start_to_end)
{
	struct st_decision more = {.grant_count = 0};
	struct ef_pod good, bad, raised;
	static struct stage s;
	char text[512], *body;

	stage_init(&s, true);
	stage_start(&s);
	expect_page(&s, "/healthz", 200, "ok");
	expect_page(&s, "/readyz", 503, "the container runtime has not told yet");
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	expect_page(&s, "/metrics", 200, "tessera_enforcer_ready 1\n");
	expect_page(&s, "/metrics", 200, "tessera_mps_state{state=\"ready\"} 1\n");
	expect_page(&s, "/metrics", 200,
		    "tessera_node_check{check=\"mps-answers\",result=\"ok\"} 1\n");
	expect_page(&s, "/api/v1/usage", 200, "{\"version\":1,\"workloads\":[]}");
	expect_page(&s, "/api/v1/doctor", 200, "\"name\":\"driver\"");
	cr_expect_eq(get(&s, "GET", "/nothing", &body), 404);
	free(body);
	cr_expect_eq(get(&s, "POST", "/metrics", &body), 405);
	free(body);
	cr_expect_eq(get(&s, "HEAD", "/metrics", &body), 200);
	cr_expect_str_eq(body, "");
	free(body);

	/* One pod is given its share, one is refused with an event. */
	ef_pod_shared(&good, "good", &s.node, ST_MODE_TIME_SLICING, 0, 20000);
	ef_pod_shared(&bad, "bad", &s.node, ST_MODE_TIME_SLICING, 1, 90000);
	put_pod(&s, &good);
	put_pod(&s, &bad);
	cr_expect_eq(create(&s, &good, "c1", text), 0, "%s", text);
	cr_expect_eq(create(&s, &bad, "c2", text), EN_TTRPC_FAILED_PRECONDITION);
	cr_expect(fake_cluster_event(s.cluster, "bad", "GpuRefused"));
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	expect_page(&s, "/metrics", 200, "tessera_container_reports_total{kind=\"refused\"} 1\n");

	/* More memory while it runs: one event; more than the GPU has: another. */
	ef_pod_init(&raised, "good");
	ef_share(&more, "main", ST_MODE_TIME_SLICING, 0, 20000, 40000);
	ef_pod_allocate(&raised, &s.node, &more, NULL);
	for (size_t i = 0; i < raised.spec.annotation_count; i++)
		fake_cluster_annotate(s.cluster, "good", raised.spec.annotations[i].key,
				      raised.spec.annotations[i].value);
	cr_expect(fake_cluster_event(s.cluster, "good", "GpuLimitsChanged"));
	expect_log(&s, "from 20000/20000 to 20000/40000 MiB");
	fake_cluster_annotate(s.cluster, "good", "nvidia.com/container.main.gpu-memory.limit",
			      "1Mi");
	cr_expect(fake_cluster_event(s.cluster, "good", "GpuLimitChangeRefused"));

	/* The driver is to be exchanged: nothing new is placed here until it was. */
	fake_cluster_put(s.cluster, "nodes",
			 "{\"metadata\":{\"name\":\"n\",\"uid\":\"un\",\"labels\":{"
			 "\"nvidia.com/gpu-driver-upgrade-state\":\"upgrade-required\"}}}");
	expect_page(&s, "/metrics", 200,
		    "tessera_enforcer_condition{status=\"False\",reason=\"DriverUpgrade\"} 1\n");
	expect_page(&s, "/readyz", 503, "driver");
	fake_cluster_put(s.cluster, "nodes",
			 "{\"metadata\":{\"name\":\"n\",\"uid\":\"un\",\"labels\":{"
			 "\"nvidia.com/gpu-driver-upgrade-state\":\"upgrade-done\"}}}");
	expect_page(&s, "/readyz", 200, "ok");

	stage_end(&s);
	cr_expect_not(hardware_exists(&s.h, "hook.sock"));
	ef_pod_fini(&good);
	ef_pod_fini(&bad);
	ef_pod_fini(&raised);
	stage_fini(&s);
}

/* A second agent does not start beside the first, and the MPS daemon is taken over by the next. */
Test(enforcer_agent, one_at_a_time_and_the_next_takes_over)
{
	static struct stage s;
	char *first, *second, command[1024];

	stage_init(&s, false);
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	first = hardware_read(&s.h, "run/mps/daemon.pid");
	snprintf(command, sizeof(command), "%s run --node=n %s 2>&1 | grep -q 'an agent runs'",
		 s.program, s.args[5]);
	/* NOLINTNEXTLINE(cert-env33-c): our own program */
	cr_expect_eq(system(command), 0, "%s", command);
	stage_end(&s);
	fake_runtime_hang_up(&s.runtime);

	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	second = hardware_read(&s.h, "run/mps/daemon.pid");
	cr_expect_str_eq(first, second);
	stage_end(&s);
	free(first);
	free(second);
	stage_fini(&s);
}

/* ---- nothing is forgotten while something is away ---- */

static void driver(const struct stage *s, const char *version)
{
	hardware_nvml(&s->h,
		      "driver %s\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=0 bus=0\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=1 bus=1\n",
		      version, s->node.gpus[0].uuid, s->node.gpus[1].uuid);
}

/* The driver does not answer when the agent starts and the runtime tells what runs. */
Test(enforcer_agent, containers_are_known_when_the_driver_comes)
{
	static struct stage s;
	struct nt_container c = {.id = "c1",
				 .pod_id = "p",
				 .name = "main",
				 .state = 3,
				 .env = {NULL, "NVIDIA_GPU_MEMORY_REQUEST=1000",
					 "NVIDIA_GPU_MEMORY_LIMIT=1000"}};
	struct fake_handshake h = {.pod_count = 1, .container_count = 1, .containers = &c};
	char visible[128], pipe[128], pipe_env[160];
	struct ef_pod p;
	struct nt_pod pod;

	stage_init(&s, false);
	arg(&s, "probe-seconds", "1");
	ef_pod_shared(&p, "p", &s.node, ST_MODE_TIME_SLICING, 0, 1000);
	pod = (struct nt_pod){.id = "p",
			      .name = "p",
			      .uid = "p",
			      .ns = p.spec.ns,
			      .annotation_count = p.spec.annotation_count,
			      .annotations = p.spec.annotations};
	snprintf(visible, sizeof(visible), "NVIDIA_VISIBLE_DEVICES=%s", s.node.gpus[0].uuid);
	snprintf(pipe, sizeof(pipe), "%s", hardware_path(&s.h, "pipe"));
	snprintf(pipe_env, sizeof(pipe_env), "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps");
	c.env[0] = visible;
	c.env[3] = pipe_env;
	c.mounts[0].source = pipe;
	c.mounts[0].target = "/run/nvidia-mps";
	h.pods = &pod;
	hardware_nvml(&s.h, "%s", "");
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, &h), 0x2628);
	expect_log(&s, "event=nri-connected");
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 0\n");
	driver(&s, "615.71.09");
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	expect_page(&s, "/metrics", 200, "tessera_container_reports_total{kind=\"slipped\"} 0\n");
	stage_end(&s);
	ef_pod_fini(&p);
	stage_fini(&s);
}

/* Another driver is loaded before the runtime has told anything: the namespaces of an agent before this one may
 * all be in use. */
Test(enforcer_agent, namespaces_stay_while_nobody_tells_whose_they_are)
{
	static struct stage s;
	char command[1024];

	stage_init(&s, false);
	arg(&s, "probe-seconds", "1");
	driver(&s, "615.1");
	stage_start(&s);
	expect_page(&s, "/metrics", 200, "tessera_mps_state{state=\"ready\"} 1\n");
	snprintf(command, sizeof(command),
		 "CUDA_MPS_PIPE_DIRECTORY=%s %s -p 3 namespace create ts_before --server=shared",
		 hardware_path(&s.h, "pipe"), s.h.control);
	/* NOLINTNEXTLINE(cert-env33-c): the fake tool */
	cr_assert_eq(system(command), 0);
	cr_assert(hardware_exists(&s.h, "pipe/shared/ts_before"));
	for (int i = 2; i < 5; i++) {
		char version[16], want[64];

		snprintf(version, sizeof(version), "615.%d", i);
		snprintf(want, sizeof(want), "event=driver-loaded version=%s", version);
		driver(&s, version);
		expect_log(&s, want);
	}
	cr_expect(hardware_exists(&s.h, "pipe/shared/ts_before"));
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	while (hardware_exists(&s.h, "pipe/shared/ts_before"))
		usleep(1000); /* nobody has it: it goes */
	stage_end(&s);
	stage_fini(&s);
}

static void write_static(const struct stage *s, const char *memory)
{
	hardware_file(
		&s->h, "static.json",
		"{\"allocations\":[{\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"main\","
		"\"gpus\":[\"%s\"],\"memory\":\"%s\"}]}",
		s->node.gpus[0].uuid, memory);
}

/* Without Kubernetes: allocations come from the file, also those that change. */
Test(enforcer_agent, allocations_from_a_file)
{
	static struct stage s;
	struct ef_pod named, other;
	char text[512];

	stage_init(&s, false);
	write_static(&s, "1000Mi");
	arg_path(&s, "static", "static.json");
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	ef_pod_init(&named, "p");
	ef_pod_init(&other, "q");
	cr_expect_eq(create(&s, &named, "c1", text), 0, "%s", text);
	cr_expect_eq(create(&s, &other, "c2", text), 0, "%s", text);
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	expect_page(&s, "/metrics", 200, "tessera_containers_total{verdict=\"left\"} 1\n");
	write_static(&s, "2000Mi");
	kill(s.pid, SIGHUP);
	expect_log(&s, "from 1000/1000 to 2000/2000 MiB");
	expect_page(&s, "/metrics", 200, "tessera_static_containers{state=\"refused\"} 0\n");
	/* What this node cannot keep is said when the file is read, not when a pod comes. */
	write_static(&s, "900Gi");
	kill(s.pid, SIGHUP);
	expect_log(&s, "event=static-refused");
	expect_log(&s, "the limit of 921600 MiB is above the 81920 MiB");
	hardware_file(
		&s.h, "static.json",
		"{\"allocations\":[{\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"main\","
		"\"gpus\":[\"%s\"],\"memory\":\"2000Mi\"},{\"pod\":\"q\",\"container\":\"main\","
		"\"gpus\":[\"GPU-of-another-node\"],\"whole\":true}]}",
		s.node.gpus[0].uuid);
	kill(s.pid, SIGHUP);
	expect_log(&s, "GPU-of-another-node");
	expect_page(&s, "/metrics", 200, "tessera_static_containers{state=\"refused\"} 1\n");
	expect_page(&s, "/metrics", 200, "tessera_static_containers{state=\"all\"} 2\n");
	hardware_file(&s.h, "static.json", "{");
	kill(s.pid, SIGHUP);
	expect_log(&s, "event=static-not-loaded");
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	stage_end(&s);
	ef_pod_fini(&named);
	ef_pod_fini(&other);
	stage_fini(&s);
}

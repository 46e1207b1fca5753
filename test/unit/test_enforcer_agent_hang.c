/* The whole agent as a process, when the driver hangs; and what it takes from its surroundings at start. */
#include <sys/resource.h>

#include "test/unit/agent_fixture.h"

/* The driver hangs: who asks whether the agent lives is told that it does not, and which thread does not go on.
 * All the other pages answer, too. */
Test(enforcer_agent, a_thread_that_hangs_in_the_driver_is_named)
{
	static struct stage s;

	stage_init(&s, false);
	arg(&s, "probe-seconds", "1");
	arg(&s, "hang-seconds", "1");
	stage_start(&s);
	expect_page(&s, "/healthz", 200, "ok");
	hardware_nvml_hang(&s.h);
	expect_page(&s, "/healthz", 503, "thread loop has been at ");
	expect_log(&s, "event=thread-hangs reason=\"thread loop has been at ");
	expect_page(&s, "/readyz", 503, "the container runtime has not told yet");
	expect_page(&s, "/metrics", 200,
		    "tessera_enforcer_thread_busy_seconds{thread=\"nri\"} 0\n");
	expect_page(&s, "/api/v1/usage", 200, "{");
	hardware_nvml_go_on(&s.h);
	expect_page(&s, "/healthz", 200, "ok");
	stage_end(&s);
	stage_fini(&s);
}

/* The same where it hangs in a call of the runtime: the loop waits for that one. */
Test(enforcer_agent, a_call_that_hangs_in_the_driver_is_named)
{
	struct st_decision d = {.grant_count = 0};
	static struct stage s;
	struct ef_pod p;
	char text[512];

	stage_init(&s, false);
	arg(&s, "probe-seconds", "3600");
	arg(&s, "hang-seconds", "1");
	hardware_nvml(&s.h,
		      "driver 615.71.09\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=0 "
		      "bus=00000000:00:00.0 mig=on\n" HARDWARE_A100_MIG(0),
		      s.node.gpus[0].uuid);
	s.node.gpus[0].mig_enabled = true;
	ef_pod_init(&p, "p");
	ef_mig(&d, "main", 0, "1g.10gb", 0);
	ef_pod_allocate(&p, &s.node, &d, NULL);
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	hardware_nvml_hang(&s.h);
	cr_expect_eq(create(&s, &p, "c1", text), EN_TTRPC_DEADLINE_EXCEEDED, "%s", text);
	expect_page(&s, "/healthz", 503, "thread nri has been at CreateContainer for ");
	expect_page(&s, "/readyz", 200, "ok");
	expect_page(&s, "/metrics", 200, "tessera_mig_instances_total{what=\"made\"} 0\n");
	hardware_nvml_go_on(&s.h);
	expect_page(&s, "/healthz", 200, "ok");
	expect_page(&s, "/metrics", 200, "tessera_mig_instances_total{what=\"made\"} 1\n");
	stage_end(&s);
	ef_pod_fini(&p);
	stage_fini(&s);
}

/* A runtime's usual limit is few for a node full of containers. */
Test(enforcer_agent, it_takes_the_open_files_that_it_may_have)
{
	static struct stage s;
	struct rlimit r, have = {0};

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &r), 0);
	if (r.rlim_max <= 512)
		cr_skip_test("there are no more than that");
	r.rlim_cur = 512;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
	stage_init(&s, false);
	stage_start(&s);
	cr_assert_eq(prlimit(s.pid, RLIMIT_NOFILE, NULL, &have), 0);
	cr_expect_eq(have.rlim_cur, r.rlim_max < 65536 ? r.rlim_max : 65536);
	stage_end(&s);
	stage_fini(&s);
}

/* OPTIONS.md and METRICS.md hold what the tables say, and what is printed is in the tables.
 * `TESSERA_WRITE_DOCS=1` with this suite writes them anew. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "enforcer/metrics.h"
#include "enforcer/run_options.h"
#include "test/lib/docs.h"

Test(enforcer_docs, options)
{
	docs_expect("enforcer/OPTIONS.md", en_run_options_markdown);
}

Test(enforcer_docs, metrics)
{
	docs_expect("enforcer/METRICS.md", en_metrics_markdown);
}

/* Every option of the table is in --help, by the same name. */
Test(enforcer_docs, help_has_every_option)
{
	struct buf help = BUF_INIT, table = BUF_INIT;
	const char *at;
	size_t count = 0;

	en_run_options_help(&help);
	en_run_options_markdown(&table);
	for (at = buf_str(&table); (at = strstr(at, "| `--")) != NULL; at += 3) {
		char want[64];

		snprintf(want, sizeof(want), "\n  %.*s", (int)strcspn(at + 3, " `"), at + 3);
		cr_expect(strstr(buf_str(&help), want) != NULL, "%s", want);
		count++;
	}
	cr_expect_gt(count, 30);
	buf_fini(&help);
	buf_fini(&table);
}

/* A view of everything: each family of the table is printed, with the labels it is said to have. */
static void fill(struct en_metrics_view *v)
{
	static struct en_probe probe;
	static struct en_doctor_report report = {
		.count = 1, .findings = {{.name = "driver", .result = EN_CHECK_WARN}}};
	static const struct en_condition condition = {.status = EN_STATUS_TRUE, .reason = "Ready"};
	static const struct en_nri_figures nri = {.synchronized = true, .worst_us = 1500001};
	static const struct en_plugin_stats plugin = {.given = 3, .holdings = 2};
	static const uint64_t reports[EN_REPORT_COUNT] = {1, 2, 3, 4, 5, 6};
	static const struct en_mps_status mps = {.state = EN_MPS_READY, .usable = true};
	static const struct en_publisher_stats publisher = {.writes = 7};
	static const struct en_mig_stats mig = {.made = 9, .lingering = 2};
	static const struct en_pods_stats pods = {.pods = 8};
	static struct en_pulses pulses;
	static const struct en_measured measured = {
		.id = "c1",
		.ns = "ns",
		.pod = "web \"1\"\\",
		.pod_uid = "u1",
		.container = "main",
		.gpu = "GPU-0",
		.gpu_idx = 3,
		.gpu_mib = 81920,
		.mode = ST_MODE_SM_SHARING,
		.request_mib = 1024,
		.limit_mib = 2048,
		.used_mib = 512,
		.sm_percent = 20,
		.sm_normal = 80,
		.started_s = 1000,
		.limit_hits = 4,
		.evictions = 5,
		.process_count = 2,
	};

	if (pulses.count == 0)
		(void)en_pulse_add(&pulses, "loop");
	probe.driver_ok = true;
	snprintf(probe.driver, sizeof(probe.driver), "615.71.09");
	probe.gpu_count = 1;
	probe.gpus[0] = (struct en_probe_gpu){
		.uuid = "GPU-0", .index = 3, .mem_mib = 81920, .healthy = true, .processes = 6};
	probe.gpus[0].state.temperature_c = 41;
	probe.gpus[0].mig_enabled = true;
	probe.gpus[0].instance_count = 1;
	*v = (struct en_metrics_view){.node = "n",
				      .ready = true,
				      .condition = &condition,
				      .probe = &probe,
				      .report = &report,
				      .nri = &nri,
				      .plugin = &plugin,
				      .reports = reports,
				      .mps = &mps,
				      .mig = &mig,
				      .publisher = &publisher,
				      .pods = &pods,
				      .measured_count = 1,
				      .measured = &measured,
				      .has_statics = true,
				      .static_containers = 2,
				      .static_refused = 1,
				      .wall_s = 1060,
				      .uptime_s = 60,
				      .pulses = &pulses,
				      .tools_left = 1,
				      .tools_left_ever = 2,
				      .has_hooks = true,
				      .hook_accept_failures = 3};
}

/* "a, b" of the table against {a="..",b=".."} of the sample. */
static void expect_labels(const char *sample, const char *labels, const char *name)
{
	const char *at = sample;

	while (*labels != '\0' && strncmp(labels, "–", 3) != 0) {
		size_t n = strcspn(labels, ", |");
		char want[64];

		snprintf(want, sizeof(want), "%c%.*s=\"", at == sample ? '{' : ',', (int)n, labels);
		at = strstr(at, want);
		cr_assert_not_null(at, "%s: no label %s", name, want);
		labels += n;
		labels += strspn(labels, ", ");
		if (*labels == '|')
			break;
	}
}

Test(enforcer_docs, every_family_is_printed_with_its_labels)
{
	struct buf text = BUF_INIT, table = BUF_INIT;
	struct en_metrics_view v;
	size_t count = 0;

	fill(&v);
	en_metrics_text(&v, &text);
	en_metrics_markdown(&table);
	for (const char *at = buf_str(&table); (at = strstr(at, "\n| `tessera_")) != NULL;
	     at += 4) {
		const char *name = at + 4, *labels, *sample;
		size_t len = strcspn(name, "`");
		char want[128], line[512];

		snprintf(want, sizeof(want), "\n%.*s", (int)len, name);
		sample = strstr(buf_str(&text), want);
		cr_assert_not_null(sample, "%s is not printed", want + 1);
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(sample + 1, "\n"), sample + 1);
		labels = strstr(name, " | ") + 3;
		labels = strstr(labels, " | ") + 3;
		expect_labels(line, labels, want + 1);
		count++;
	}
	cr_expect_gt(count, 45);
	cr_expect(strstr(buf_str(&text),
			 "tessera_container_memory_used_bytes{namespace=\"ns\","
			 "pod=\"web \\\"1\\\"\\\\\",pod_uuid=\"u1\",container=\"main\","
			 "gpu_uuid=\"GPU-0\",gpu=\"3\"} 536870912\n") != NULL);
	cr_expect(strstr(buf_str(&text), "\ntessera_nri_call_max_seconds 1.500001\n") != NULL);
	cr_expect(strstr(buf_str(&text), "tessera_container_running_seconds{namespace=\"ns\"") !=
		  NULL);
	cr_expect(strstr(buf_str(&text), "gpu=\"3\"} 60\n") != NULL);
	cr_expect(strstr(buf_str(&text), "mode=\"sm-sharing\"} 1\n") != NULL);
	buf_fini(&text);
	buf_fini(&table);
}

/* What is not known is absent, not 0. */
Test(enforcer_docs, unknown_figures_are_absent)
{
	static const struct en_measured measured = {
		.id = "c1", .gpu = "GPU-0", .used_mib = -1, .sm_percent = -1, .sm_normal = -1};
	struct buf text = BUF_INIT;
	const struct en_metrics_view v = {.measured_count = 1, .measured = &measured};

	en_metrics_text(&v, &text);
	cr_expect(strstr(buf_str(&text), "\ntessera_container_memory_used_bytes{") == NULL);
	cr_expect(strstr(buf_str(&text), "\ntessera_container_sm_utilization_percent{") == NULL);
	cr_expect(strstr(buf_str(&text), "\ntessera_container_start_time_seconds{") == NULL);
	cr_expect(strstr(buf_str(&text), "\ntessera_container_evictions_total{") != NULL);
	cr_expect(strstr(buf_str(&text), "\ntessera_mps_state{") == NULL);
	buf_fini(&text);
}

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "enforcer/inventory.h"
#include "kube/object_internal.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

static struct hardware hw;
static struct en_prober *prober;
static struct en_probe *probe;

static void start(void)
{
	struct en_probe_options o = {.library = hw.library, .root = hw.dir};

	hardware_init(&hw);
	probe = calloc(1, sizeof(*probe));
	cr_assert_eq(en_prober_new(&o, &prober, NULL), 0);
}

static void stop(void)
{
	en_prober_free(prober);
	free(probe);
	hardware_fini(&hw);
}

TestSuite(enforcer_inventory, .init = start, .fini = stop);

static char *inventory(void)
{
	struct err err = ERR_INIT;
	char *text = NULL;

	cr_assert_eq(en_prober_run(prober, probe, &err), 0, "%s", err.msg);
	cr_assert_eq(en_inventory_encode(probe, &text, &err), 0, "%s", err.msg);
	return text;
}

/* A Node with that inventory and condition, as the extender reads it. */
static void read_node(struct ku_arena *a, const char *text, const struct en_condition *c,
		      struct st_node_spec *ret)
{
	static const char *const status[] = {"False", "True", "Unknown"};
	cJSON *node =
		cJSON_Parse("{\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\",\"annotations\":"
			    "{}},\"status\":{\"allocatable\":{\"cpu\":\"64\",\"memory\":"
			    "\"512Gi\"},\"conditions\":[{\"type\":\"Ready\",\"status\":"
			    "\"True\"}]}}");
	cJSON *o = cJSON_CreateObject();
	struct err err = ERR_INIT;

	cJSON_AddStringToObject(cJSON_GetObjectItem(cJSON_GetObjectItem(node, "metadata"),
						    "annotations"),
				EN_INVENTORY_KEY, text);
	cJSON_AddStringToObject(o, "type", EN_CONDITION_TYPE);
	cJSON_AddStringToObject(o, "status", status[c->status]);
	cJSON_AddStringToObject(o, "reason", c->reason);
	cJSON_AddStringToObject(o, "message", c->message);
	cJSON_AddItemToArray(cJSON_GetObjectItem(cJSON_GetObjectItem(node, "status"), "conditions"),
			     o);
	cr_assert_eq(ku_node_decode(node, a, ret, &err), 0, "%s", err.msg);
	cJSON_Delete(node);
}

static const struct en_readiness all_well = {.nri_ready = true,
					     .mps_wanted = true,
					     .mps_ready = true,
					     .mps_v3 = true,
					     .limits_ready = true};

/* What is written is what the extender reads, field by field. */
Test(enforcer_inventory, round_trip)
{
	struct ku_arena *a = ku_arena_new();
	struct st_node_spec node = {0};
	struct en_condition c;
	char *text;

	hardware_nvml(&hw,
		      "driver 615.71.09\n" HARDWARE_GPU(0, "mig=on") HARDWARE_GPU(1, "ecc=1")
			      HARDWARE_GPU(2, "mig=off") HARDWARE_A100_MIG(0) HARDWARE_A100_MIG(
				      2) "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n"
					 "instance profile=20 id=2 start=0 size=1 uuid=MIG-c\n"
					 "process gpu=2 pid=4711\n");
	hardware_file(&hw, "proc/4711/comm", "a\"b\\c\n");
	text = inventory();
	en_condition_make(probe, &all_well, &c);
	read_node(a, text, &c, &node);
	cr_assert_not(node.unready, "%s", node.why_unready);
	cr_assert(node.from_inventory);
	cr_assert_str_eq(node.product, "NVIDIA A100-SXM4-80GB");
	cr_assert_eq(node.gpu_count, probe->gpu_count);
	for (size_t i = 0; i < node.gpu_count; i++) {
		const struct st_gpu_spec *seen = &node.gpus[i];
		const struct en_probe_gpu *g = &probe->gpus[i];

		cr_assert_str_eq(seen->uuid, g->uuid);
		cr_assert_eq(seen->mem_mib, g->mem_mib);
		cr_assert_eq(seen->unhealthy, !g->healthy);
		cr_assert_eq(seen->mig_enabled, g->mig_enabled);
		cr_assert_eq(seen->has_geometry, g->has_geometry);
		if (g->has_geometry)
			cr_assert(st_mig_geometry_equal(&seen->geometry, &g->geometry));
		cr_assert_eq(seen->instance_count, g->instance_count);
		for (size_t k = 0; k < g->instance_count; k++) {
			cr_assert_str_eq(seen->instances[k].profile, g->instances[k].profile);
			cr_assert_eq(seen->instances[k].start, g->instances[k].start);
		}
	}
	cr_assert_str_eq(node.gpus[2].foreign, "pid 4711 (a\"b\\c)");
	cr_assert_null(node.gpus[0].foreign);
	cr_assert(node.gpus[1].unhealthy);
	free(text);
	ku_arena_free(a);
}

Test(enforcer_inventory, text)
{
	char *text;

	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, ""));
	text = inventory();
	cr_assert_str_eq(text, "{\"version\":1,\"driver\":\"615.71.09\",\"features\":[\"mps-v3\","
			       "\"memory-limits\"],\"gpus\":[{\"uuid\":\"GPU-0\",\"index\":0,"
			       "\"product\":\"NVIDIA A100-SXM4-80GB\",\"mem_mib\":81920,"
			       "\"healthy\":true,\"foreign\":null}]}");
	free(text);
}

Test(enforcer_inventory, no_driver)
{
	struct err err = ERR_INIT;
	char *text = NULL;

	cr_assert_eq(en_prober_run(prober, probe, &err), 0);
	cr_assert_eq(en_inventory_encode(probe, &text, &err), ERR_CONFLICT);
	cr_assert_null(text);
}

/* Case 48: nothing is written where nothing changed; what places a pod is a change. */
Test(enforcer_inventory, case_48_changes)
{
	static const char base[] = "driver 615.1\n" HARDWARE_GPU(0, "mig=on temp=40")
		HARDWARE_A100_MIG(0) "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n";
	static const char *const same[] = {
		base,
		/* heat, the driver's own ids and order are no change */
		"driver 615.1\n" HARDWARE_GPU(0, "mig=on temp=80 persistence=0")
			HARDWARE_A100_MIG(0) "instance profile=9 id=3 start=4 size=4 uuid=MIG-x\n",
	};
	static const char *const other[] = {
		"driver 615.2\n" HARDWARE_GPU(0, "mig=on")
			HARDWARE_A100_MIG(0) "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n",
		"driver 615.1\n" HARDWARE_GPU(0, "mig=on ecc=1")
			HARDWARE_A100_MIG(0) "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n",
		"driver 615.1\n" HARDWARE_GPU(0, "mig=on")
			HARDWARE_A100_MIG(0) "instance profile=9 id=1 start=0 size=4 uuid=MIG-b\n",
		"driver 615.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0),
		"driver 615.1\n" HARDWARE_GPU(0, "mig=off") HARDWARE_A100_MIG(0),
		"driver 615.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(
			0) "process pid=5\ninstance profile=9 id=1 start=4 size=4 uuid=MIG-b\n",
		"driver 615.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0)
			HARDWARE_GPU(1, "") "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n",
	};
	char *first, *next;

	hardware_nvml(&hw, "%s", base);
	first = inventory();
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		hardware_nvml(&hw, "%s", same[i]);
		next = inventory();
		cr_assert_not(en_inventory_changed(first, next), "%zu: %s", i, next);
		free(next);
	}
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		hardware_nvml(&hw, "%s", other[i]);
		next = inventory();
		cr_assert(en_inventory_changed(first, next), "%zu: %s", i, next);
		free(next);
	}
	free(first);
}

Test(enforcer_inventory, changed)
{
	cr_assert(en_inventory_changed(NULL, "{\"a\":1}"));
	cr_assert_not(en_inventory_changed("{\"a\":1}", "{\"a\":1}"));
	cr_assert_not(en_inventory_changed("{ \"b\":[1], \"a\":1 }", "{\"a\":1,\"b\":[1]}"));
	cr_assert(en_inventory_changed("{\"a\":1", "{\"a\":1}"));
	cr_assert(en_inventory_changed("{\"a\":2}", "{\"a\":1}"));
	cr_assert(en_inventory_changed("", "{\"a\":1}"));
}

/* Case 44: what the node says after a MIG change is all there is, and no GPU is whole and sliced. */
Test(enforcer_inventory, case_44_mig_changes)
{
	struct ku_arena *a = ku_arena_new();
	struct st_node_spec node = {0};
	struct en_condition c;
	char *text;

	hardware_nvml(&hw,
		      "driver 615.1\n" HARDWARE_GPU(0, "mig=on")
			      HARDWARE_A100_MIG(0) "instance profile=19 id=1 start=0 size=1\n"
						   "instance profile=19 id=2 start=1 size=1\n");
	free(inventory());
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "mig=on")
				   HARDWARE_A100_MIG(0) "instance profile=0 id=1 start=0 size=8\n");
	text = inventory();
	en_condition_make(probe, &all_well, &c);
	read_node(a, text, &c, &node);
	cr_assert(node.gpus[0].mig_enabled);
	cr_assert_eq(node.gpus[0].instance_count, 1);
	cr_assert_str_eq(node.gpus[0].instances[0].profile, "7g.80gb");
	free(text);
	ku_arena_reset(a);
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "mig=off") HARDWARE_A100_MIG(0));
	text = inventory();
	read_node(a, text, &c, &node);
	cr_assert_not(node.gpus[0].mig_enabled);
	cr_assert_eq(node.gpus[0].instance_count, 0);
	free(text);
	ku_arena_free(a);
}

Test(enforcer_inventory, out_of_memory)
{
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(
				   0) "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n");
	free(inventory());
	cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = malloc, .free_fn = free});
	OOM_SWEEP(n) {
		char *text = NULL;
		int r;

		oom_fail_at(n);
		r = en_inventory_encode(probe, &text, NULL);
		if (!oom_disarm()) {
			cr_assert_eq(r, 0);
			free(text);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM);
		cr_assert_null(text);
	}
	cJSON_InitHooks(NULL);
}

/* ---- the condition ---- */

struct condition_case {
	struct en_readiness r;
	enum en_status status;
	const char *reason, *part;
};

Test(enforcer_inventory, conditions)
{
	static const struct condition_case cases[] = {
		{{.nri_ready = true,
		  .mps_wanted = true,
		  .mps_ready = true,
		  .mps_v3 = true,
		  .limits_ready = true},
		 EN_STATUS_TRUE,
		 "Ready",
		 "2 GPUs, driver 615.1"},
		{{.nri_ready = true,
		  .mps_wanted = true,
		  .mps_ready = true,
		  .mps_v3 = false,
		  .limits_ready = true},
		 EN_STATUS_TRUE,
		 "LegacyMps",
		 "for each process"},
		{{.stopping = true}, EN_STATUS_UNKNOWN, "EnforcerStopped", "ended"},
		{{.driver_upgrade = true}, EN_STATUS_FALSE, "DriverUpgrade", "exchanged"},
		{{.nri_why = "no socket"}, EN_STATUS_FALSE, "NriNotReady", "no socket"},
		{{.nri_ready = true, .mps_wanted = true, .mps_why = "it ended"},
		 EN_STATUS_FALSE,
		 "MpsNotReady",
		 "it ended"},
		{{.nri_ready = true,
		  .mps_wanted = true,
		  .mps_reason = "MpsFault",
		  .mps_why = "status FAULT"},
		 EN_STATUS_FALSE,
		 "MpsFault",
		 "FAULT"},
		{{.nri_ready = true,
		  .mps_wanted = true,
		  .mps_ready = true,
		  .mps_v3 = true,
		  .limits_why = "Not Supported"},
		 EN_STATUS_FALSE,
		 "LimitsNotReady",
		 "Not Supported"},
		{{.nri_ready = true, .doctor_failed = true, .doctor_why = "cgroup v1"},
		 EN_STATUS_FALSE,
		 "CheckFailed",
		 "cgroup v1"},
		/* MIG only: MPS is nobody's business */
		{{.nri_ready = true}, EN_STATUS_TRUE, "Ready", "2 GPUs"},
	};

	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, ""));
	free(inventory());
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct en_condition c;

		en_condition_make(probe, &cases[i].r, &c);
		cr_assert_eq(c.status, cases[i].status, "case %zu", i);
		cr_assert_str_eq(c.reason, cases[i].reason, "case %zu", i);
		cr_assert_not_null(strstr(c.message, cases[i].part), "case %zu: %s", i, c.message);
		cr_assert(en_condition_equal(&c, &c));
	}
}

Test(enforcer_inventory, conditions_of_the_hardware)
{
	struct en_condition c, d;

	cr_assert_eq(en_prober_run(prober, probe, NULL), 0);
	en_condition_make(probe, &all_well, &c);
	cr_assert_str_eq(c.reason, "DriverNotReady");
	cr_assert_eq(c.status, EN_STATUS_FALSE);
	hardware_nvml(&hw, "driver 615.1\n");
	free(inventory());
	en_condition_make(probe, &all_well, &c);
	cr_assert_str_eq(c.reason, "NoGpus");
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "ecc=4"));
	free(inventory());
	en_condition_make(probe, &all_well, &c);
	cr_assert_str_eq(c.reason, "GpusUnhealthy");
	cr_assert_not_null(strstr(c.message, "GPU-0"));
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "ecc=7") HARDWARE_GPU(1, ""));
	free(inventory());
	en_condition_make(probe, &all_well, &d);
	cr_assert_str_eq(d.reason, "Ready", "the other one is well");
	cr_assert_not_null(strstr(d.message, "1 not healthy, GPU-0"), "%s", d.message);
	cr_assert_not(en_condition_equal(&c, &d));
	/* One more error is no news. */
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "ecc=8") HARDWARE_GPU(1, ""));
	free(inventory());
	en_condition_make(probe, &all_well, &c);
	cr_assert(en_condition_equal(&c, &d));
}

/* Case 43: MPS missing, killed or in FAULT is said on the node, and keeps pods away until it is back. */
Test(enforcer_inventory, case_43_condition_gates)
{
	struct ku_arena *a = ku_arena_new();
	struct st_node_spec node = {0};
	struct en_readiness r = all_well;
	struct en_condition c;
	char *text;

	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, ""));
	text = inventory();
	r.mps_ready = false;
	r.mps_reason = "MpsFault";
	r.mps_why = "the MPS server is in status FAULT";
	en_condition_make(probe, &r, &c);
	read_node(a, text, &c, &node);
	cr_assert(node.unready);
	cr_assert_not_null(strstr(node.why_unready, "MpsFault"), "%s", node.why_unready);
	/* A tool may print anything; the API server would change it, and it would never be as it was written. */
	r.mps_why = "it says \xff\x01\n";
	en_condition_make(probe, &r, &c);
	cr_assert_str_eq(c.message, "it says ???");
	r.mps_ready = true;
	en_condition_make(probe, &r, &c);
	memset(&node, 0, sizeof(node));
	read_node(a, text, &c, &node);
	cr_assert_not(node.unready);
	free(text);
	ku_arena_free(a);
}

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/probe.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

static struct hardware hw;
static struct en_prober *prober;
static struct en_probe *probe;

static bool is_ours(void *ctx, uint32_t pid)
{
	(void)ctx;
	return pid >= 9000;
}

static void start(void)
{
	struct en_probe_options o = {
		.library = hw.library, .root = hw.dir, .is_ours = is_ours, .throttled_after = 3};

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

TestSuite(enforcer_probe, .init = start, .fini = stop);

static void run(void)
{
	struct err err = ERR_INIT;

	cr_assert_eq(en_prober_run(prober, probe, &err), 0, "%s", err.msg);
}

Test(enforcer_probe, driver_major)
{
	int major = 7;

	cr_assert_eq(en_driver_major("580.95.05", &major, NULL), 0);
	cr_assert_eq(major, 580);
	cr_assert_eq(en_driver_major("615", &major, NULL), 0);
	cr_assert_eq(major, 615);
	for (size_t i = 0; i < 6; i++) {
		static const char *const bad[] = {"", ".1", "x.1", "580.95-05", "0.1", "123456.1"};

		cr_assert_eq(en_driver_major(bad[i], &major, NULL), ERR_INVALID, "%s", bad[i]);
	}
	cr_assert_eq(major, 615);
	cr_assert_eq(en_driver_features(614), 0);
	cr_assert_eq(en_driver_features(615), EN_FEATURE_MPS_V3 | EN_FEATURE_MEMORY_LIMITS);
}

Test(enforcer_probe, two_gpus)
{
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, ""));
	run();
	cr_assert(probe->driver_ok);
	cr_assert_str_eq(probe->driver, "615.71.09");
	cr_assert_eq(probe->features, EN_FEATURE_MPS_V3 | EN_FEATURE_MEMORY_LIMITS);
	cr_assert_eq(probe->gpu_count, 2);
	cr_assert_str_eq(probe->gpus[1].uuid, "GPU-1");
	cr_assert_eq(probe->gpus[1].index, 1);
	cr_assert_eq(probe->gpus[1].mem_mib, 81920);
	cr_assert(probe->gpus[1].healthy);
	cr_assert_not(probe->gpus[1].mig_capable);
	cr_assert_str_eq(probe->gpus[1].foreign, "");
	cr_assert_eq(probe->note_count, 0, "%s", probe->notes[0].msg);
}

Test(enforcer_probe, no_driver)
{
	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=9\n");
	run();
	cr_assert_not(probe->driver_ok);
	cr_assert_eq(probe->gpu_count, 0);
	cr_assert_not_null(strstr(probe->why.msg, "not loaded"), "%s", probe->why.msg);
	/* It comes. */
	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, ""));
	run();
	cr_assert(probe->driver_ok);
	cr_assert_eq(probe->features, 0);
	cr_assert_eq(probe->driver_major, 580);
}

/* One look that fails is chance; a second one is not. */
Test(enforcer_probe, driver_away)
{
	static const char well[] = "driver 615.1\n" HARDWARE_GPU(0, "");

	hardware_nvml(&hw, "%sxid code=48\n", well);
	run();
	for (int i = 0; i < 2; i++) {
		hardware_nvml(&hw,
			      "fail call=nvmlInit_v2 code=999\nfail call=nvmlDeviceGetCount_v2 "
			      "code=999\n");
		run();
		cr_assert(probe->driver_ok);
		cr_assert_eq(probe->gpu_count, 1);
		cr_assert_not_null(strstr(probe->notes[0].msg, "did not answer"), "%s",
				   probe->notes[0].msg);
		if (i == 0) { /* it was chance */
			hardware_nvml(&hw, "%s", well);
			run();
			cr_assert_eq(probe->note_count, 0);
		}
	}
	run();
	cr_assert_not(probe->driver_ok);
	cr_assert_eq(probe->gpu_count, 0);
	hardware_nvml(&hw, "%s", well);
	run();
	cr_assert(probe->driver_ok);
	cr_assert_str_eq(probe->gpus[0].why, "XID error 48", "it is the same driver");
	hardware_nvml(&hw, "driver 615.2\n" HARDWARE_GPU(0, ""));
	run();
	cr_assert(probe->gpus[0].healthy, "another driver has reset it");
}

Test(enforcer_probe, not_understood)
{
	hardware_nvml(&hw, "driver abc\n" HARDWARE_GPU(0, ""));
	run();
	cr_assert_not(probe->driver_ok);
	cr_assert_not_null(strstr(probe->why.msg, "abc"));
	hardware_nvml(&hw, "driver 615.1\ngpu uuid=GPU/x name=a mem=1\n" HARDWARE_GPU(1, ""));
	run();
	cr_assert(probe->driver_ok);
	cr_assert_eq(probe->gpu_count, 1);
	cr_assert_eq(probe->note_count, 1);
	cr_assert_not_null(strstr(probe->notes[0].msg, "UUID"), "%s", probe->notes[0].msg);
}

/* The driver is exchanged under us: found out and opened again within the same run. */
Test(enforcer_probe, driver_upgrade)
{
	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, "") "xid code=79\n");
	run();
	cr_assert_not(probe->gpus[0].healthy, "it has an XID error");
	en_prober_close(prober);
	cr_assert_null(en_prober_nvml(prober));
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, ""));
	run();
	cr_assert_eq(probe->driver_major, 615);
	cr_assert(probe->gpus[0].healthy, "the new driver has reset it");
}

Test(enforcer_probe, health)
{
	static const struct {
		const char *words, *why;
	} cases[] = {
		{"ecc=1", "uncorrectable memory errors"},
		{"remap_failed=1", "row could not be remapped"},
		{"remap_pending=1", NULL},
		{"temp=99", NULL},
		{"throttle=0x4", NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		hardware_nvml(&hw, "driver 615.1\ngpu uuid=GPU-0 name=a mem=100 %s\n",
			      cases[i].words);
		run();
		cr_assert_eq(probe->gpus[0].healthy, cases[i].why == NULL, "%s", cases[i].words);
		if (cases[i].why != NULL)
			cr_assert_not_null(strstr(probe->gpus[0].why, cases[i].why), "%s",
					   probe->gpus[0].why);
	}
}

Test(enforcer_probe, xid_errors)
{
	static const uint64_t application[] = {13, 31, 43, 45, 68, 109};

	for (size_t i = 0; i < 6; i++)
		cr_assert(en_xid_is_application(application[i]));
	cr_assert_not(en_xid_is_application(79));
	cr_assert_not(en_xid_is_application(48));
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "")
				   HARDWARE_GPU(1, "") "xid gpu=0 code=31\nxid gpu=1 code=48\n");
	run(); /* GPUs are known from here on */
	run();
	cr_assert(probe->gpus[0].healthy);
	cr_assert_not(probe->gpus[1].healthy);
	cr_assert_str_eq(probe->gpus[1].why, "XID error 48");
	run();
	cr_assert_not(probe->gpus[1].healthy, "it is told once and stays");
	en_prober_mend(prober, "GPU-1");
	run();
	cr_assert(probe->gpus[1].healthy);
}

/* Case 43 of the node side, for GPUs: heat must not make a GPU come and go. */
Test(enforcer_probe, throttle_does_not_flap)
{
	static const struct {
		const char *bits;
		bool healthy;
	} steps[] = {
		{"0x40", true}, {"0x40", true},  {"0", true},  {"0x40", true},
		{"0x80", true}, {"0x40", false}, {"0", false}, {"0x40", false},
		{"0", false},   {"0", false},    {"0", true},
	};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		hardware_nvml(&hw, "driver 615.1\ngpu uuid=GPU-0 name=a mem=100 throttle=%s\n",
			      steps[i].bits);
		run();
		cr_assert_eq(probe->gpus[0].healthy, steps[i].healthy, "step %zu", i);
	}
}

/* Case 48: a foreign process makes a GPU taken, and its end frees it; its name does not change while it
 * lives, so that nothing is written for it. */
Test(enforcer_probe, case_48_foreign_processes)
{
	hardware_nvml(
		&hw,
		"driver 615.1\n" HARDWARE_GPU(
			0, "") "process pid=4711\nprocess pid=9001\nprocess pid=9002 kind=mps\n");
	hardware_file(&hw, "proc/4711/comm", "train.py\n");
	run();
	cr_assert_str_eq(probe->gpus[0].foreign, "pid 4711 (train.py)");
	cr_assert_eq(probe->gpus[0].processes, 3);
	cr_assert(probe->gpus[0].healthy);
	/* Another one with a lower number comes: the same is named. */
	hardware_nvml(&hw,
		      "driver 615.1\n" HARDWARE_GPU(0, "") "process pid=4711\nprocess pid=100\n");
	run();
	cr_assert_str_eq(probe->gpus[0].foreign, "pid 4711 (train.py)");
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") "process pid=100\n");
	run();
	cr_assert_str_eq(probe->gpus[0].foreign, "pid 100");
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") "process pid=9001\n");
	run();
	cr_assert_str_eq(probe->gpus[0].foreign, "");
}

Test(enforcer_probe, process_names_are_text)
{
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(
				   0, "") "process pid=7 kind=graphics\nprocess pid=0\n");
	hardware_file(&hw, "proc/7/comm", "a\x01\xff\"b\n");
	run();
	cr_assert_str_eq(probe->gpus[0].foreign, "pid 7 (a??\"b)");
	cr_assert_eq(probe->note_count, 1);
	cr_assert_not_null(strstr(probe->notes[0].msg, "PID namespace"));
}

/* Case 19, this side of it: a GPU that stops answering, or is not listed any more, stays in the list and
 * is not healthy; it comes back by itself. */
Test(enforcer_probe, case_19_gpu_comes_and_goes)
{
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, ""));
	run();
	hardware_nvml(&hw,
		      "driver 615.1\n" HARDWARE_GPU(0, "") HARDWARE_GPU(
			      1, "") "fail call=nvmlDeviceGetHandleByIndex_v2 code=15 gpu=0\n");
	run();
	cr_assert_eq(probe->gpu_count, 2);
	cr_assert_str_eq(probe->gpus[0].uuid, "GPU-0");
	cr_assert_not(probe->gpus[0].healthy);
	cr_assert_not_null(strstr(probe->gpus[0].why, "lost"), "%s", probe->gpus[0].why);
	cr_assert(probe->gpus[1].healthy);
	/* Now it is gone, and the other one has its index. */
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(1, ""));
	run();
	cr_assert_eq(probe->gpu_count, 2);
	cr_assert_str_eq(probe->gpus[0].uuid, "GPU-1");
	cr_assert_eq(probe->gpus[0].index, 0);
	cr_assert_str_eq(probe->gpus[1].uuid, "GPU-0");
	cr_assert_eq(probe->gpus[1].index, 1);
	cr_assert_not(probe->gpus[1].healthy);
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, ""));
	run();
	cr_assert_eq(probe->gpu_count, 2);
	cr_assert(probe->gpus[0].healthy && probe->gpus[1].healthy);
	cr_assert_str_eq(probe->gpus[0].uuid, "GPU-0");
}

Test(enforcer_probe, a_gpu_never_seen_is_left_out)
{
	hardware_nvml(&hw,
		      "driver 615.1\n" HARDWARE_GPU(0, "")
			      HARDWARE_GPU(1, "") "fail call=nvmlDeviceGetUUID code=999 gpu=0\n");
	run();
	cr_assert_eq(probe->gpu_count, 1);
	cr_assert_eq(probe->gpus[0].index, 1);
	cr_assert_eq(probe->note_count, 1);
	cr_assert_not_null(strstr(probe->notes[0].msg, "GPU 0"));
}

Test(enforcer_probe, more_gpus_than_a_node_may_have)
{
	char script[8192] = "driver 615.1\n";
	size_t len = strlen(script);

	for (int i = 0; i < 20; i++)
		len += (size_t)snprintf(script + len, sizeof(script) - len,
					"gpu uuid=GPU-%d name=a mem=100\n", i);
	hardware_nvml(&hw, "%s", script);
	run();
	cr_assert_eq(probe->gpu_count, ST_GPUS_MAX);
	cr_assert_eq(probe->note_count, 1);
}

Test(enforcer_probe, mig_on)
{
	const struct en_probe_gpu *g = &probe->gpus[0];
	const struct st_mig_geometry *table;
	int p;

	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(
				   0) "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n"
				      "instance profile=19 id=9 start=1 size=1 uuid=MIG-a\n"
				      "instance profile=19 id=7 start=0 size=1 uuid=MIG-c\n");
	run();
	cr_assert_eq(probe->features, EN_FEATURE_MIG);
	cr_assert(g->healthy && g->mig_capable && g->mig_enabled && g->has_geometry);
	cr_assert_eq(g->geometry.compute_total, 7);
	cr_assert_eq(g->geometry.units_total, 8);
	cr_assert_eq(g->geometry.profile_count, 7);
	p = st_mig_profile_find(&g->geometry, "1g.20gb");
	cr_assert_eq(g->geometry.profiles[p].id, 15);
	cr_assert_eq(g->geometry.profiles[p].starts[0], 0, "starts are sorted");
	cr_assert_eq(g->geometry.profiles[p].starts[3], 6);
	p = st_mig_profile_find(&g->geometry, "1g.10gb+me");
	cr_assert_eq(g->geometry.profiles[p].attrs, ST_MIG_ME);
	cr_assert_eq(g->geometry.profiles[p].mem_mib, 9856);
	/* What the driver reports agrees with what is known of the product. */
	table = st_mig_table_find(g->product, g->mem_mib);
	for (int i = 0; i < table->profile_count; i++) {
		p = st_mig_profile_find(&g->geometry, table->profiles[i].name);
		cr_assert_geq(p, 0, "%s", table->profiles[i].name);
		cr_assert_eq(g->geometry.profiles[p].units, table->profiles[i].units);
		cr_assert_eq(g->geometry.profiles[p].start_count, table->profiles[i].start_count);
	}
	cr_assert_eq(g->instance_count, 3);
	cr_assert_str_eq(g->instances[0].uuid, "MIG-c", "by start");
	cr_assert_eq(g->instances[2].start, 4);
	cr_assert_str_eq(g->instances[2].profile, "3g.40gb");
}

/* Case 44: with MIG off there are no instances, whatever was there before; with a profile gone from the
 * driver, it is not offered. */
Test(enforcer_probe, case_44_mig_changes)
{
	const struct en_probe_gpu *g = &probe->gpus[0];

	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(
				   0) "instance profile=19 id=7 start=0 size=1 uuid=MIG-c\n");
	run();
	cr_assert_eq(g->instance_count, 1);
	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, "mig=off") HARDWARE_A100_MIG(
				   0) "instance profile=19 id=7 start=0 size=1 uuid=MIG-c\n");
	run();
	cr_assert_not(g->mig_enabled);
	cr_assert(g->mig_capable);
	cr_assert_eq(g->instance_count, 0);
	hardware_nvml(
		&hw,
		"driver 580.1\n" HARDWARE_GPU(
			0,
			"mig=on") "profile which=4 id=0 name=7g.80gb slices=7 max=1 mem=81008 size=8 starts=0\n");
	run();
	cr_assert_eq(g->geometry.profile_count, 1);
	cr_assert_eq(st_mig_profile_find(&g->geometry, "1g.10gb"), -1);
}

/* A driver that tells only the starts with MIG off: names and sizes come from the table. */
Test(enforcer_probe, mig_off_starts_only)
{
	const struct en_probe_gpu *g = &probe->gpus[0];
	int p;

	hardware_nvml(&hw, "driver 580.1\nprofiles_need_mig\n" HARDWARE_GPU(0, "mig=off")
				   HARDWARE_A100_MIG(0));
	run();
	cr_assert(g->has_geometry);
	p = st_mig_profile_find(&g->geometry, "2g.20gb");
	cr_assert_eq(g->geometry.profiles[p].start_count, 3);
	cr_assert_gt(g->geometry.profiles[p].mem_mib, 0);
	/* A product nobody knows: nothing is made up. */
	hardware_nvml(&hw,
		      "driver 580.1\nprofiles_need_mig\n"
		      "gpu uuid=GPU-5 name=NVIDIA_X900 mem=81920 mig=off\n" HARDWARE_A100_MIG(0));
	run();
	cr_assert_not(g->has_geometry);
	cr_assert_eq(probe->gpu_count, 2, "the one before is missing");
	cr_assert(g->healthy);
}

/* Measured on an H200 with driver 580.159.04: with MIG off it tells all of it, and its sizes are not those
 * that instances had elsewhere. The node's own report wins. */
Test(enforcer_probe, mig_off_h200)
{
	const struct en_probe_gpu *g = &probe->gpus[0];
	int p;

	hardware_nvml(&hw,
		      "driver 580.159.04\n"
		      "gpu uuid=GPU-0 name=NVIDIA_H200 mem=143771 mig=off\n"
		      "profile which=0 id=19 name=MIG_1g.18gb slices=1 max=7 mem=16384 size=1 "
		      "starts=0,1,2,3,4,5,6\n"
		      "profile which=9 id=15 name=MIG_1g.35gb slices=1 max=4 mem=33280 size=2 "
		      "starts=0,2,4,6\n"
		      "profile which=1 id=14 name=MIG_2g.35gb slices=2 max=3 mem=33280 size=2 "
		      "starts=0,2,4\n"
		      "profile which=2 id=9 name=MIG_3g.71gb slices=3 max=2 mem=71424 size=4 "
		      "starts=0,4\n"
		      "profile which=4 id=0 name=MIG_7g.141gb slices=7 max=1 mem=143360 size=8 "
		      "starts=0\n");
	run();
	cr_assert(g->mig_capable && !g->mig_enabled && g->has_geometry);
	cr_assert_eq(g->geometry.profile_count, 5);
	cr_assert_eq(g->geometry.units_total, 8);
	cr_assert_eq(g->geometry.compute_total, 7);
	p = st_mig_profile_find(&g->geometry, "3g.71gb");
	cr_assert_eq(g->geometry.profiles[p].mem_mib, 71424);
	cr_assert_eq(g->geometry.profiles[p].starts[1], 4);
	p = st_mig_profile_find(&g->geometry, "1g.35gb");
	cr_assert_eq(g->geometry.profiles[p].units, 2);
}

Test(enforcer_probe, mig_instances_cannot_be_read)
{
	const struct en_probe_gpu *g = &probe->gpus[0];

	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(
				   0) "fail call=nvmlDeviceGetGpuInstances code=4\n");
	run();
	cr_assert_not(g->healthy, "it would look empty");
	cr_assert_not_null(strstr(g->why, "no permission"), "%s", g->why);
	hardware_nvml(&hw, "driver 580.1\ngpu uuid=GPU-0 name=NVIDIA_X900 mem=81920 mig=on\n");
	run();
	cr_assert_not(g->healthy);
}

Test(enforcer_probe, node)
{
	struct en_node_gpu gpus[ST_GPUS_MAX];
	size_t count = 0;

	hardware_nvml(&hw,
		      "driver 580.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0) HARDWARE_GPU(
			      1, "") "instance profile=9 id=1 start=4 size=4 uuid=MIG-b\n");
	run();
	en_probe_to_node(probe, gpus, &count);
	cr_assert_eq(count, 2);
	cr_assert(gpus[0].mig_enabled && gpus[0].has_geometry);
	cr_assert_str_eq(gpus[0].instances[0].uuid, "MIG-b");
	cr_assert_str_eq(gpus[1].uuid, "GPU-1");
	cr_assert_str_eq(gpus[1].product, "NVIDIA A100-SXM4-80GB");
	cr_assert_eq(gpus[1].mem_mib, 81920);
	cr_assert_eq(gpus[1].mode, ST_MODE_FREE);
}

Test(enforcer_probe, out_of_memory)
{
	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(0, "mig=on")
				   HARDWARE_A100_MIG(0) "process pid=5\n");
	hardware_file(&hw, "proc/5/comm", "x\n");
	OOM_SWEEP(n) {
		struct en_probe_options o = {.library = hw.library, .root = hw.dir};
		struct en_prober *p = NULL;
		bool hit;
		int r;

		oom_fail_at(n);
		r = en_prober_new(&o, &p, NULL);
		if (r == 0)
			r = en_prober_run(p, probe, NULL);
		hit = oom_disarm();
		en_prober_free(p);
		if (!hit) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert(r == ERR_NOMEM || r == 0);
	}
	cr_assert(probe->driver_ok);
}

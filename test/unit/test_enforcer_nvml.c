#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nvml.h"
#include "enforcer/nvml_internal.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

#define MIB ((uint64_t)1 << 20)

static struct hardware hw;
static struct en_nvml *nvml;

static void start(void)
{
	hardware_init(&hw);
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, "mig=on") HARDWARE_GPU(1, ""));
}

static void stop(void)
{
	en_nvml_close(nvml);
	hardware_fini(&hw);
}

TestSuite(enforcer_nvml, .init = start, .fini = stop);

static void open_it(void)
{
	struct err err = ERR_INIT;

	cr_assert_eq(en_nvml_open(hw.library, &nvml, &err), 0, "%s", err.msg);
}

static struct en_nvml_device *device(unsigned i)
{
	struct en_nvml_device *d = NULL;
	struct err err = ERR_INIT;

	cr_assert_eq(en_nvml_device(nvml, i, &d, &err), 0, "%s", err.msg);
	return d;
}

Test(enforcer_nvml, identity)
{
	struct en_nvml_identity id;
	char version[EN_NVML_TEXT_CAP];
	unsigned count = 0;

	open_it();
	cr_assert_eq(en_nvml_driver_version(nvml, version, NULL), 0);
	cr_assert_str_eq(version, "615.71.09");
	cr_assert_eq(en_nvml_count(nvml, &count, NULL), 0);
	cr_assert_eq(count, 2);
	cr_assert_eq(en_nvml_identity(nvml, device(1), &id, NULL), 0);
	cr_assert_str_eq(id.uuid, "GPU-1");
	cr_assert_str_eq(id.product, "NVIDIA A100-SXM4-80GB");
	cr_assert_eq(id.mem_bytes, 81920 * MIB);
	cr_assert_eq(id.minor, 1);
	cr_assert_str_eq(id.bus, "00000000:01:00.0");
}

Test(enforcer_nvml, device_by_uuid)
{
	struct en_nvml_device *d = NULL;
	struct err err = ERR_INIT;

	open_it();
	cr_assert_eq(en_nvml_device_by_uuid(nvml, "GPU-1", &d, &err), 0);
	cr_assert_eq(d, device(1));
	cr_assert_eq(en_nvml_device_by_uuid(nvml, "GPU-9", &d, &err), ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.msg, "GPU-9"));
}

Test(enforcer_nvml, no_library)
{
	struct err err = ERR_INIT;

	cr_assert_eq(en_nvml_open("/nowhere/libnvidia-ml.so.1", &nvml, &err), ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.msg, "/nowhere/libnvidia-ml.so.1"));
	/* A library of another kind. */
	cr_assert_eq(en_nvml_open("libm.so.6", &nvml, &err), ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.msg, "nvmlInit_v2"));
	cr_assert_null(nvml);
}

Test(enforcer_nvml, driver_not_there)
{
	struct err err = ERR_INIT;

	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=9\n");
	cr_assert_eq(en_nvml_open(hw.library, &nvml, &err), ERR_CONFLICT);
	cr_assert_str_eq(err.msg, "nvmlInit_v2: the driver is not loaded");
	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=18\n");
	cr_assert_eq(en_nvml_open(hw.library, &nvml, &err), ERR_CONFLICT);
	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=999\n");
	cr_assert_eq(en_nvml_open(hw.library, &nvml, &err), ERR_IO);
}

Test(enforcer_nvml, out_of_memory)
{
	OOM_SWEEP(n) {
		int r;

		oom_fail_at(n);
		r = en_nvml_open(hw.library, &nvml, NULL);
		if (!oom_disarm()) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM);
		cr_assert_null(nvml);
	}
}

/* The driver goes away or is exchanged while we hold the library. */
Test(enforcer_nvml, driver_lost)
{
	struct err err = ERR_INIT;
	unsigned count;

	open_it();
	cr_assert_not(en_nvml_lost(nvml));
	hardware_nvml(&hw, "driver 1\nfail call=nvmlDeviceGetCount_v2 code=18\n");
	cr_assert_eq(en_nvml_count(nvml, &count, &err), ERR_CONFLICT);
	cr_assert(en_nvml_lost(nvml));
}

Test(enforcer_nvml, state)
{
	struct en_nvml_state s;

	hardware_nvml(&hw,
		      "driver 615.71.09\n" HARDWARE_GPU(
			      0, "temp=83 slowdown=92 shutdown=95 ecc=2 remap_failed=1 "
				 "remap_pending=1 throttle=0x48 mode=3 persistence=0")
			      HARDWARE_GPU(1,
					   "ecc=no remap_failed=no temp=no slowdown=no shutdown=no "
					   "throttle=no mode=no persistence=no remap_pending=no"));
	open_it();
	cr_assert_eq(en_nvml_state(nvml, device(0), &s, NULL), 0);
	cr_assert_not(s.lost);
	cr_assert_eq(s.temperature_c, 83);
	cr_assert_eq(s.slowdown_c, 92);
	cr_assert_eq(s.shutdown_c, 95);
	cr_assert_eq(s.ecc_uncorrected, 2);
	cr_assert_eq(s.remap_failed, 1);
	cr_assert_eq(s.remap_pending, 1);
	cr_assert_eq(s.throttle, EN_THROTTLE_HW_THERMAL | EN_THROTTLE_HW_SLOWDOWN);
	cr_assert_eq(s.compute_mode, 3);
	cr_assert_eq(s.persistence, 0);
	/* What a GPU does not tell is unknown, not zero. */
	cr_assert_eq(en_nvml_state(nvml, device(1), &s, NULL), 0);
	cr_assert_eq(s.temperature_c, EN_NVML_UNKNOWN);
	cr_assert_eq(s.slowdown_c, EN_NVML_UNKNOWN);
	cr_assert_eq(s.shutdown_c, EN_NVML_UNKNOWN);
	cr_assert_eq(s.ecc_uncorrected, EN_NVML_UNKNOWN);
	cr_assert_eq(s.remap_failed, EN_NVML_UNKNOWN);
	cr_assert_eq(s.remap_pending, EN_NVML_UNKNOWN);
	cr_assert_eq(s.throttle, EN_NVML_UNKNOWN);
	cr_assert_eq(s.compute_mode, EN_NVML_UNKNOWN);
	cr_assert_eq(s.persistence, EN_NVML_UNKNOWN);
}

Test(enforcer_nvml, lost_gpu)
{
	struct en_nvml_state s;

	open_it();
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(
				   0, "") "fail call=nvmlDeviceGetMemoryInfo code=15 gpu=0\n");
	cr_assert_eq(en_nvml_state(nvml, device(0), &s, NULL), 0);
	cr_assert(s.lost);
	cr_assert_not(en_nvml_lost(nvml), "one GPU is not the driver");
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(
				   0, "") "fail call=nvmlDeviceGetTotalEccErrors code=16 gpu=0\n");
	cr_assert_eq(en_nvml_state(nvml, device(0), &s, NULL), 0);
	cr_assert(s.lost);
}

Test(enforcer_nvml, processes)
{
	struct en_nvml_process p[2];
	size_t count = 0;

	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(
				   0, "") "process pid=10 mem=5\nprocess pid=11 kind=graphics\n"
					  "process pid=12 kind=mps mem=7\nprocess gpu=1 pid=13\n");
	open_it();
	cr_assert_eq(en_nvml_processes(nvml, device(0), p, 2, &count, NULL), 0);
	cr_assert_eq(count, 3, "more than there is room for");
	cr_assert_eq(p[0].pid, 10);
	cr_assert_eq(p[0].mem_bytes, 5 * MIB);
	cr_assert_eq(p[1].kind, EN_NVML_GRAPHICS);
}

/* More processes than the first question made room for. */
Test(enforcer_nvml, many_processes)
{
	struct en_nvml_process p[64];
	size_t count = 0;
	char script[4096] = "driver 615.71.09\n" HARDWARE_GPU(0, "");
	size_t len = strlen(script);

	for (int i = 1; i <= 40; i++)
		len += (size_t)snprintf(script + len, sizeof(script) - len, "process pid=%d\n", i);
	hardware_nvml(&hw, "%s", script);
	open_it();
	cr_assert_eq(en_nvml_processes(nvml, device(0), p, 64, &count, NULL), 0);
	cr_assert_eq(count, 40);
	cr_assert_eq(p[39].pid, 40);
}

Test(enforcer_nvml, use)
{
	struct en_nvml_use u[4];
	size_t count = 9;

	open_it();
	cr_assert_eq(en_nvml_use(nvml, device(0), 0, u, 4, &count, NULL), 0);
	cr_assert_eq(count, 0);
	hardware_nvml(&hw,
		      "driver 615.71.09\n" HARDWARE_GPU(
			      0,
			      "") "sample pid=10 sm=50 time=1000\nsample pid=11 sm=20 time=2000\n");
	cr_assert_eq(en_nvml_use(nvml, device(0), 1000, u, 4, &count, NULL), 0);
	cr_assert_eq(count, 1);
	cr_assert_eq(u[0].pid, 11);
	cr_assert_eq(u[0].sm_percent, 20);
	cr_assert_eq(u[0].time_us, 2000);
}

Test(enforcer_nvml, xid)
{
	char uuid[EN_NVML_TEXT_CAP];
	uint64_t xid = 0;

	open_it();
	cr_assert_eq(en_nvml_next_xid(nvml, 0, uuid, &xid, NULL), EN_NVML_UNSUPPORTED,
		     "not watched yet");
	cr_assert_eq(en_nvml_watch(nvml, NULL), 0);
	cr_assert_eq(en_nvml_watch(nvml, NULL), 0);
	cr_assert_eq(en_nvml_next_xid(nvml, 0, uuid, &xid, NULL), EN_NVML_UNSUPPORTED);
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, "")
				   HARDWARE_GPU(1, "") "xid gpu=1 code=79\nxid gpu=-1 code=48\n");
	cr_assert_eq(en_nvml_next_xid(nvml, 0, uuid, &xid, NULL), 0);
	cr_assert_eq(xid, 79);
	cr_assert_str_eq(uuid, "GPU-1");
	cr_assert_eq(en_nvml_next_xid(nvml, 0, uuid, &xid, NULL), 0);
	cr_assert_eq(xid, 48);
	cr_assert_str_eq(uuid, "");
	cr_assert_eq(en_nvml_next_xid(nvml, 0, uuid, &xid, NULL), EN_NVML_UNSUPPORTED);
}

Test(enforcer_nvml, mig)
{
	struct en_nvml_profile p;
	struct en_nvml_placement at[8];
	struct en_nvml_instance in[8];
	bool current, pending;
	size_t count = 0;

	hardware_nvml(&hw,
		      "driver 615.71.09\n" HARDWARE_GPU(0, "mig=on pending=off") HARDWARE_GPU(
			      1, "mig=off") HARDWARE_GPU(2, "") HARDWARE_A100_MIG(0)
			      HARDWARE_A100_MIG(
				      1) "instance gpu=0 profile=9 id=2 start=4 size=4 uuid=MIG-a\n"
					 "instance gpu=0 profile=9 id=1 start=0 size=4\n");
	open_it();
	cr_assert_eq(en_nvml_mig_mode(nvml, device(0), &current, &pending, NULL), 0);
	cr_assert(current && !pending);
	cr_assert_eq(en_nvml_mig_mode(nvml, device(2), &current, &pending, NULL),
		     EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_profile(nvml, device(0), 2, &p, NULL), 0);
	cr_assert_eq(p.id, 9);
	cr_assert_eq(p.slices, 3);
	cr_assert_eq(p.instances, 2);
	cr_assert_eq(p.mem_mib, 40320);
	cr_assert_str_eq(p.name, "3g.40gb", "without the word MIG");
	cr_assert_eq(en_nvml_profile(nvml, device(0), 5, &p, NULL), EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_profile(nvml, device(0), 31, &p, NULL), EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_profile(nvml, device(1), 2, &p, NULL), 0, "also with MIG off");
	cr_assert_eq(en_nvml_profile(nvml, device(2), 2, &p, NULL), EN_NVML_UNSUPPORTED);
	/* Starts are told with MIG on and off. */
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(en_nvml_placements(nvml, device(i), 14, at, 8, &count, NULL), 0);
		cr_assert_eq(count, 3);
		cr_assert_eq(at[2].start, 4);
		cr_assert_eq(at[2].size, 2);
	}
	cr_assert_eq(en_nvml_placements(nvml, device(0), 77, at, 8, &count, NULL),
		     EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_instances(nvml, device(0), 9, in, 8, &count, NULL), 0);
	cr_assert_eq(count, 2);
	cr_assert_eq(in[0].at.start, 4);
	cr_assert_str_eq(in[0].uuid, "MIG-a");
	cr_assert_str_eq(in[1].uuid, "", "it has no compute instance");
	cr_assert_eq(en_nvml_instances(nvml, device(1), 9, in, 8, &count, NULL),
		     EN_NVML_UNSUPPORTED);
}

/* A driver that has only the older form of the profile call: no names. */
Test(enforcer_nvml, mig_of_older_drivers)
{
	struct en_nvml_profile p;

	hardware_nvml(&hw, "driver 470.1.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0));
	open_it();
	nvml_hide(nvml, "nvmlDeviceGetGpuInstanceProfileInfoV");
	cr_assert_eq(en_nvml_profile(nvml, device(0), 2, &p, NULL), 0);
	cr_assert_eq(p.id, 9);
	cr_assert_eq(p.mem_mib, 40320);
	cr_assert_str_eq(p.name, "");
}

/* Everything that is not needed may be missing, one after the other and all together. */
Test(enforcer_nvml, missing_symbols)
{
	static const char *const optional[] = {
#define NAME(needed, member, symbol, args) (needed) ? NULL : #symbol,
		NV_CALLS(NAME)
#undef NAME
	};
	struct en_nvml_identity id;
	struct en_nvml_state s;
	struct en_nvml_process p[2];
	struct en_nvml_limits l;
	struct en_nvml_use u[1];
	struct en_nvml_instance in[1];
	char uuid[EN_NVML_TEXT_CAP];
	uint64_t xid;
	size_t count;
	bool a, b;

	open_it();
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
		if (optional[i] != NULL)
			nvml_hide(nvml, optional[i]);
		cr_assert_eq(en_nvml_identity(nvml, device(0), &id, NULL), 0);
		cr_assert_eq(en_nvml_state(nvml, device(0), &s, NULL), 0);
		cr_assert_geq(en_nvml_watch(nvml, NULL), 0);
		cr_assert_geq(en_nvml_next_xid(nvml, 0, uuid, &xid, NULL), 0);
	}
	cr_assert_eq(id.minor, -1);
	cr_assert_str_eq(id.bus, "");
	cr_assert_eq(s.temperature_c, EN_NVML_UNKNOWN);
	cr_assert_eq(en_nvml_mig_mode(nvml, device(0), &a, &b, NULL), EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_processes(nvml, device(0), p, 2, &count, NULL), EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_use(nvml, device(0), 0, u, 1, &count, NULL), EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_instances(nvml, device(0), 9, in, 1, &count, NULL),
		     EN_NVML_UNSUPPORTED);
	cr_assert_not(en_nvml_has_limits(nvml));
	cr_assert_eq(en_nvml_limits_set(nvml, device(0), "/tmp", 0, 1, NULL), EN_NVML_UNSUPPORTED);
	cr_assert_eq(en_nvml_limits_get(nvml, device(0), "/tmp", &l, NULL), EN_NVML_UNSUPPORTED);
}

Test(enforcer_nvml, limits)
{
	struct en_nvml_limits l;
	struct err err = ERR_INIT;
	char *log;

	hardware_mkdir(&hw, "cg");
	open_it();
	cr_assert(en_nvml_has_limits(nvml));
	cr_assert_eq(en_nvml_limits_get(nvml, device(1), hardware_path(&hw, "cg"), &l, &err),
		     ERR_NOT_FOUND, "nothing was set");
	cr_assert_eq(en_nvml_limits_set(nvml, device(1), hardware_path(&hw, "cg"), 4 * MIB, 8 * MIB,
					&err),
		     0, "%s", err.msg);
	cr_assert_eq(en_nvml_limits_get(nvml, device(1), hardware_path(&hw, "cg"), &l, &err), 0);
	cr_assert_eq(l.soft_bytes, 4 * MIB);
	cr_assert_eq(l.hard_bytes, 8 * MIB);
	cr_assert_eq(en_nvml_limits_set(nvml, device(1), hardware_path(&hw, "cg"), 0,
					EN_NVML_LIMIT_MAX, &err),
		     0);
	cr_assert_eq(en_nvml_limits_get(nvml, device(1), hardware_path(&hw, "cg"), &l, &err), 0);
	cr_assert_eq(l.hard_bytes, EN_NVML_LIMIT_MAX);
	cr_assert_eq(en_nvml_limits_set(nvml, device(0), hardware_path(&hw, "cg"), 0, 1, &err),
		     EN_NVML_UNSUPPORTED, "MIG is on");
	cr_assert_eq(en_nvml_limits_set(nvml, device(1), hardware_path(&hw, "no"), 0, 1, &err),
		     ERR_NOT_FOUND);
	log = hardware_read(&hw, "nvml.log");
	cr_assert_not_null(strstr(log, "cg 4194304 8388608\n"), "%s", log);
	free(log);
}

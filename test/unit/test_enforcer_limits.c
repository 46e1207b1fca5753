#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "enforcer/limits.h"
#include "enforcer/limits_parse.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

static struct hardware hw;
static struct en_limits *limits;
static const struct en_limits_ops *ops;
static char cg[512];

static void start(void)
{
	hardware_init(&hw);
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, "")
				   HARDWARE_GPU(2, "") HARDWARE_GPU(3, "mig=on"));
	hardware_mkdir(&hw, "cg/pod/container");
	snprintf(cg, sizeof(cg), "%s", hardware_path(&hw, "cg/pod/container"));
}

static void stop(void)
{
	en_limits_free(limits);
	hardware_fini(&hw);
}

TestSuite(enforcer_limits, .init = start, .fini = stop);

static void make(enum en_limits_way way)
{
	struct en_limits_options o = {.way = way, .library = hw.library, .smi = hw.smi};

	en_limits_free(limits);
	cr_assert_eq(en_limits_new(&o, &limits, NULL), 0);
	ops = en_limits_ops(limits);
}

static void expect(const char *gpu, int64_t soft, int64_t hard)
{
	int64_t s = -1, h = -1, used = -1;
	struct err err = ERR_INIT;

	cr_assert_eq(ops->get(ops->ctx, cg, gpu, &s, &h, &used, &err), 0, "%s", err.msg);
	cr_assert_eq(s, soft);
	cr_assert_eq(h, hard);
	cr_assert_eq(used, 0);
}

/* Both ways do the same, and see what the other one did. */
Test(enforcer_limits, set_get_clear)
{
	static const enum en_limits_way ways[] = {EN_LIMITS_AUTO, EN_LIMITS_NVML, EN_LIMITS_SMI};
	static const char *const names[] = {"nvml", "nvml", "nvidia-smi"};
	struct err err = ERR_INIT;

	for (size_t i = 0; i < 3; i++) {
		char *log;

		hardware_remove(&hw, "nvml.log");
		make(ways[i]);
		expect("GPU-0", 0, EN_LIMIT_NONE);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 4096, 8192, &err), 0, "%s", err.msg);
		expect("GPU-0", 4096, 8192);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 4096, 8192, &err), 0, "again");
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 0, 143771, &err), 0);
		expect("GPU-0", 0, 143771);
		make(EN_LIMITS_NVML);
		expect("GPU-0", 0, 143771);
		make(ways[i]);
		cr_assert_eq(en_limits_check(ops, cg, "GPU-0", 0, 143771, &err), 0);
		cr_assert_eq(en_limits_check(ops, cg, "GPU-0", 0, 8, &err), ERR_CONFLICT);
		cr_assert_not_null(strstr(err.msg, "143771 MiB, not 8 MiB"), "%s", err.msg);
		cr_assert_eq(en_limits_check(ops, cg, "GPU-0", 7, 143771, &err), ERR_CONFLICT);
		cr_assert_eq(en_limits_clear(ops, cg, "GPU-0", &err), 0, "%s", err.msg);
		expect("GPU-0", 0, EN_LIMIT_NONE);
		cr_assert_str_eq(en_limits_way_name(limits), names[i]);
		log = hardware_read(&hw, "nvml.log");
		cr_assert_not_null(strstr(log, "pod/container 0 -\n"), "%s", log);
		free(log);
	}
}

/* Case 40: one limit on the container's own cgroup, whatever processes it starts: what is recorded is that
 * path, once for each GPU. */
Test(enforcer_limits, case_40_on_the_cgroup)
{
	char want[700], *log;

	make(EN_LIMITS_AUTO);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 8192, 8192, NULL), 0);
	log = hardware_read(&hw, "nvml.log");
	snprintf(want, sizeof(want), "set GPU-0 %s 8589934592 8589934592\n", cg);
	cr_assert_str_eq(log, want);
	free(log);
}

/* Case 41: the limit holds on the GPU that was given, and on each of several. */
Test(enforcer_limits, case_41_any_gpu)
{
	make(EN_LIMITS_AUTO);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-1", 100, 200, NULL), 0);
	expect("GPU-0", 0, EN_LIMIT_NONE);
	expect("GPU-1", 100, 200);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-2", 300, 400, NULL), 0);
	expect("GPU-1", 100, 200);
	expect("GPU-2", 300, 400);
}

/* Case 42: the form of the limit for legacy MPS. */
Test(enforcer_limits, case_42_pinned)
{
	static const int64_t one[] = {1024}, two[] = {1024, 20480}, zero[] = {1};
	char *s = en_limits_pinned(one, 1);

	cr_assert_str_eq(s, "0=1024M");
	free(s);
	s = en_limits_pinned(two, 2);
	cr_assert_str_eq(s, "0=1024M,1=20480M");
	free(s);
	s = en_limits_pinned(zero, 1);
	cr_assert_str_eq(s, "0=1M");
	free(s);
	s = en_limits_pinned(NULL, 0);
	cr_assert_str_eq(s, "");
	free(s);
	oom_fail_from(1);
	s = en_limits_pinned(two, 2);
	cr_assert(oom_disarm());
	cr_assert_null(s);
}

Test(enforcer_limits, refusals)
{
	struct err err = ERR_INIT;

	for (int way = EN_LIMITS_NVML; way <= EN_LIMITS_SMI; way++) {
		make((enum en_limits_way)way);
		cr_assert_eq(ops->set(ops->ctx, "cg", "GPU-0", 1, 2, &err), ERR_INVALID);
		cr_assert_eq(ops->set(ops->ctx, "/sys/../etc", "GPU-0", 1, 2, &err), ERR_INVALID);
		cr_assert_eq(ops->set(ops->ctx, "/sys/..", "GPU-0", 1, 2, &err), ERR_INVALID);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 3, 2, &err), ERR_INVALID);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", -1, 2, &err), ERR_INVALID);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 0, INT64_MAX / 2, &err), ERR_INVALID);
		cr_assert_eq(ops->set(ops->ctx, hardware_path(&hw, "cg/no"), "GPU-0", 1, 2, &err),
			     ERR_NOT_FOUND);
		cr_assert_eq(ops->get(ops->ctx, hardware_path(&hw, "cg/no"), "GPU-0", NULL, NULL,
				      NULL, &err),
			     ERR_NOT_FOUND);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-3", 1, 2, &err), ERR_CONFLICT, "MIG");
		cr_assert_not_null(strstr(err.msg, "GPU-3"), "%s", err.msg);
		cr_assert_neq(ops->set(ops->ctx, cg, "GPU-9", 1, 2, &err), 0);
	}
	cr_assert_not(hardware_exists(&hw, "nvml.log"), "nothing was set");
}

/* Neither a cgroup that is gone nor one without limits is a failure to clear. */
Test(enforcer_limits, clear)
{
	struct err err = ERR_INIT;

	make(EN_LIMITS_AUTO);
	cr_assert_eq(en_limits_clear(ops, hardware_path(&hw, "cg/no"), "GPU-0", &err), 0);
	cr_assert_str_eq(err.msg, "");
	cr_assert_eq(en_limits_clear(ops, cg, "GPU-0", &err), 0, "%s", err.msg);
}

/* The backends differ in how they say that nothing is set. */
Test(enforcer_limits, misc_backend)
{
	for (int way = EN_LIMITS_NVML; way <= EN_LIMITS_SMI; way++) {
		hardware_nvml(&hw, "driver 615.71.09\nbackend misc\n" HARDWARE_GPU(0, ""));
		make((enum en_limits_way)way);
		hardware_remove(&hw, "nvml.log");
		expect("GPU-0", 0, EN_LIMIT_NONE);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, NULL), 0);
		expect("GPU-0", 1, 2);
	}
}

Test(enforcer_limits, no_backend)
{
	struct err err = ERR_INIT;

	hardware_nvml(&hw, "driver 615.71.09\nbackend none\n" HARDWARE_GPU(0, ""));
	for (int way = EN_LIMITS_NVML; way <= EN_LIMITS_SMI; way++) {
		make((enum en_limits_way)way);
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_CONFLICT);
	}
}

Test(enforcer_limits, no_permission)
{
	struct err err = ERR_INIT;

	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(
				   0, "") "fail call=nvmlDeviceSetMemoryLimits_v1 code=4\n");
	for (int way = EN_LIMITS_NVML; way <= EN_LIMITS_SMI; way++) {
		make((enum en_limits_way)way);
		err.msg[0] = '\0';
		cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
		cr_assert_neq(err.msg[0], '\0');
	}
}

/* An old driver: the calls are not there; the tool is asked, and has no such option either. */
Test(enforcer_limits, calls_missing)
{
	struct err err = ERR_INIT;

	hardware_nvml(&hw, "driver 580.1\n" HARDWARE_GPU(
				   0, "") "fail call=nvmlDeviceSetMemoryLimits_v1 code=13\n");
	make(EN_LIMITS_AUTO);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_CONFLICT);
}

static void write_script(const char *name, const char *text)
{
	hardware_file(&hw, name, "%s", text);
	chmod(hardware_path(&hw, name), 0755);
}

/* NVML takes a limit and tells another: its structs are not those that we know. The tool takes over. */
Test(enforcer_limits, distrust)
{
	struct en_limits_options o = {.way = EN_LIMITS_AUTO, .library = hw.library};
	struct err err = ERR_INIT;

	hardware_nvml(&hw, "driver 615.1\nforgets\n" HARDWARE_GPU(0, ""));
	write_script("smi",
		     "#!/bin/sh\n[ \"$2\" = --set ] || "
		     "printf 'soft limit: 1 MiB\\nhard limit: 2 MiB\\ncurrent used: 0 MiB\\n'\n");
	o.smi = hardware_path(&hw, "smi");
	cr_assert_eq(en_limits_new(&o, &limits, NULL), 0);
	ops = en_limits_ops(limits);
	cr_assert_str_eq(en_limits_way_name(limits), "nvml");
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), 0, "%s", err.msg);
	cr_assert_str_eq(en_limits_way_name(limits), "nvidia-smi");
	/* Told to use NVML and nothing else, it fails. */
	o.way = EN_LIMITS_NVML;
	en_limits_free(limits);
	cr_assert_eq(en_limits_new(&o, &limits, NULL), 0);
	ops = en_limits_ops(limits);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
}

static void *set_often(void *ctx)
{
	const int64_t *mib = ctx;

	for (int i = 0; i < 300; i++)
		(void)ops->set(ops->ctx, cg, "GPU-0", *mib, *mib * 2, NULL);
	return NULL;
}

/* What another thread set in between is no lie of the driver's. */
Test(enforcer_limits, two_set_at_once)
{
	static int64_t mib[] = {100, 300};
	pthread_t thread;

	make(EN_LIMITS_AUTO);
	cr_assert_eq(pthread_create(&thread, NULL, set_often, &mib[0]), 0);
	set_often(&mib[1]);
	pthread_join(thread, NULL);
	cr_expect_str_eq(en_limits_way_name(limits), "nvml");
	cr_expect_eq(ops->set(ops->ctx, cg, "GPU-0", 5, 6, NULL), 0);
	expect("GPU-0", 5, 6);
}

struct few {
	int64_t mib;
	int failed;
};

static void *set_a_few(void *ctx)
{
	struct few *f = ctx;

	for (int i = 0; i < 20; i++)
		f->failed += ops->set(ops->ctx, cg, "GPU-0", f->mib, f->mib * 2, NULL) != 0;
	return NULL;
}

/* The tool knows one value of one thread: who sets while the other has not read back yet would be told that the
 * tool lies. It tells when it was called in between. */
Test(enforcer_limits, two_set_at_once_with_the_tool)
{
	struct en_limits_options o = {.way = EN_LIMITS_SMI};
	struct few few[] = {{100, 0}, {300, 0}};
	pthread_t thread;

	write_script("smi",
		     "#!/bin/sh\n"
		     "dir=${0%/*}\n"
		     "if [ \"$2\" = --set ]; then\n"
		     "	mkdir \"$dir/busy\" || echo >\"$dir/between\"\n"
		     "	echo \"$6 $8\" >\"$dir/value\"\n"
		     "else\n"
		     "	read -r soft hard <\"$dir/value\"\n"
		     "	printf 'soft limit: %s MiB\\nhard limit: %s MiB\\n' \"$soft\" \"$hard\"\n"
		     "	echo 'current used: 0 MiB'\n"
		     "	rmdir \"$dir/busy\"\n"
		     "fi\n");
	o.smi = hardware_path(&hw, "smi");
	cr_assert_eq(en_limits_new(&o, &limits, NULL), 0);
	ops = en_limits_ops(limits);
	cr_assert_eq(pthread_create(&thread, NULL, set_a_few, &few[0]), 0);
	set_a_few(&few[1]);
	pthread_join(thread, NULL);
	cr_expect_eq(few[0].failed, 0);
	cr_expect_eq(few[1].failed, 0);
	cr_expect_not(hardware_exists(&hw, "between"));
}

/* A tool whose word is not enough: status 0, and something else is in force. */
Test(enforcer_limits, tool_that_lies)
{
	struct en_limits_options o = {.way = EN_LIMITS_SMI};
	struct err err = ERR_INIT;

	write_script("smi",
		     "#!/bin/sh\n[ \"$2\" = --set ] || "
		     "printf 'soft limit: 1 MiB\\nhard limit: 9 MiB\\ncurrent used: 0 MiB\\n'\n");
	o.smi = hardware_path(&hw, "smi");
	cr_assert_eq(en_limits_new(&o, &limits, NULL), 0);
	ops = en_limits_ops(limits);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "read back are 1 and 9"), "%s", err.msg);
	write_script("smi", "#!/bin/sh\necho Unable to set: Insufficient Permissions\n");
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "Insufficient Permissions"), "%s", err.msg);
	write_script("smi", "#!/bin/sh\nexit 3\n");
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "status 3"), "%s", err.msg);
	hardware_remove(&hw, "smi");
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
}

Test(enforcer_limits, tool_that_hangs)
{
	struct en_limits_options o = {.way = EN_LIMITS_SMI, .smi_limit_ms = 50};
	struct err err = ERR_INIT;

	write_script("smi", "#!/bin/sh\nexec sleep 100\n");
	o.smi = hardware_path(&hw, "smi");
	cr_assert_eq(en_limits_new(&o, &limits, NULL), 0);
	ops = en_limits_ops(limits);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "in time"), "%s", err.msg);
}

/* The driver is unloaded and comes back; limits go on. */
Test(enforcer_limits, driver_upgrade)
{
	struct err err = ERR_INIT;

	make(EN_LIMITS_AUTO);
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), 0);
	en_limits_close(limits);
	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=9\n");
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 1, 2, &err), ERR_CONFLICT);
	hardware_nvml(&hw, "driver 615.2\n" HARDWARE_GPU(0, ""));
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 3, 4, &err), 0, "%s", err.msg);
	expect("GPU-0", 3, 4);
	/* Without being told first. */
	hardware_nvml(&hw, "fail call=nvmlDeviceGetHandleByUUID code=1\ndriver 615.2\n");
	cr_assert_neq(ops->set(ops->ctx, cg, "GPU-0", 5, 6, &err), 0);
	hardware_nvml(&hw, "driver 615.3\n" HARDWARE_GPU(0, ""));
	cr_assert_eq(ops->set(ops->ctx, cg, "GPU-0", 5, 6, &err), 0, "%s", err.msg);
}

Test(enforcer_limits, out_of_memory)
{
	OOM_SWEEP(n) {
		int r;

		make(EN_LIMITS_AUTO);
		oom_fail_at(n);
		r = ops->set(ops->ctx, cg, "GPU-0", 1, 2, NULL);
		if (!oom_disarm()) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert_neq(r, 0);
	}
}

/* ---- what the tool prints ---- */

Test(enforcer_limits, parse)
{
	static const struct {
		const char *text;
		int64_t soft, hard, used; /* soft -1: refused */
	} cases[] = {
		{"namespace: /sys/fs/cgroup/mygroup\nsoft limit: 4096 MiB\nhard limit: 8192 MiB\n"
		 "current used: 512 MiB\n",
		 4096, 8192, 512},
		{"hard limit: max\ncurrent used: 0 MiB\nsoft limit: 0 MiB", 0, EN_LIMIT_NONE, 0},
		{"soft limit: 0 MiB\r\nhard limit: max MiB\r\ncurrent used: 1 MiB\r\n", 0,
		 EN_LIMIT_NONE, 1},
		{"", -1, 0, 0},
		{"soft limit: 1 MiB\nhard limit: 2 MiB\n", -1, 0, 0},
		{"soft limit: max\nhard limit: 2 MiB\ncurrent used: 0 MiB\n", -1, 0, 0},
		{"soft limit: 1 GiB\nhard limit: 2 MiB\ncurrent used: 0 MiB\n", -1, 0, 0},
		{"soft limit: -1 MiB\nhard limit: 2 MiB\ncurrent used: 0 MiB\n", -1, 0, 0},
		{"soft limit: 1 MiB\nsoft limit: 1 MiB\nhard limit: 2 MiB\ncurrent used: 0 MiB\n",
		 -1, 0, 0},
		{"soft limit: 99999999999999999999 MiB\nhard limit: 2 MiB\ncurrent used: 0 MiB\n",
		 -1, 0, 0},
		{"Unable to get memory limit: Not Supported\n", -1, 0, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct limits_seen seen = {.soft_mib = 77};
		struct err err = ERR_INIT;
		int r = limits_parse(cases[i].text, strlen(cases[i].text), &seen, &err);

		if (cases[i].soft < 0) {
			cr_assert_eq(r, ERR_INVALID, "case %zu", i);
			cr_assert_eq(seen.soft_mib, 77);
			cr_assert_neq(err.msg[0], '\0');
			continue;
		}
		cr_assert_eq(r, 0, "case %zu: %s", i, err.msg);
		cr_assert_eq(seen.soft_mib, cases[i].soft);
		cr_assert_eq(seen.hard_mib, cases[i].hard);
		cr_assert_eq(seen.used_mib, cases[i].used);
	}
}

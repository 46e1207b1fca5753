/* A node where all is well, for the doctor. Included by the test files, each of which has its own. */
#ifndef TESSERA_TEST_ENFORCER_DOCTOR_FIXTURE_H
#define TESSERA_TEST_ENFORCER_DOCTOR_FIXTURE_H

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "enforcer/doctor.h"
#include "enforcer/limits.h"
#include "enforcer/mps_internal.h"
#include "test/lib/hardware.h"

#define CG "sys/fs/cgroup/"
#define BOX CG "kubepods/pod1/c1/"
#define WELL_GPUS HARDWARE_GPU(0, "temp=50") HARDWARE_GPU(1, "mig=on") HARDWARE_A100_MIG(1)
#define BOX_ENV                                                                                    \
	"PATH=/bin\nNVIDIA_VISIBLE_DEVICES=GPU-0\nNVIDIA_GPU_MEMORY_REQUEST=4096\n"                \
	"NVIDIA_GPU_MEMORY_LIMIT=8192\nCUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\n"

static struct hardware hw;
static struct en_prober *prober;
static struct en_limits *limits;
static struct en_mps *mps;
static struct en_doctor_env env;
static struct en_probe *probe;
static struct en_doctor_report *report;
static struct en_doctor_container boxes[8];
static int64_t clock_ms;
static char pipe_dir[128], log_dir[128], run_dir[128], box_cgroup[512];

static int64_t now(void *ctx)
{
	(void)ctx;
	return clock_ms;
}

static void make_socket(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	hardware_file(&hw, path, "x"); /* for its folders */
	hardware_remove(&hw, path);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", hardware_path(&hw, path));
	cr_assert_eq(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
}

/* ---- a node where all is well ---- */

static void well_system(void)
{
	hardware_file(&hw, "proc/driver/nvidia/version",
		      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  615.71.09  Wed\nGCC\n");
	hardware_file(&hw, "proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n");
	hardware_file(&hw, "proc/cmdline", "root=/dev/sda1 quiet\n");
	hardware_file(&hw, "proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
	hardware_file(&hw, "proc/self/cgroup", "0::/agent\n");
	hardware_link(&hw, "proc/self/ns/pid", "pid:[4026531836]");
	hardware_file(&hw, CG "cgroup.controllers", "cpuset cpu io memory dmem pids\n");
	hardware_file(&hw, CG "dmem.capacity", "nvidia/00000000:00:00.0/vidmem 85899345920\n");
	hardware_file(&hw, CG "cgroup.subtree_control", "memory dmem\n");
	hardware_file(&hw, CG "kubepods/cgroup.subtree_control", "memory dmem\n");
	hardware_file(&hw, CG "kubepods/pod1/cgroup.subtree_control", "memory dmem\n");
	hardware_file(&hw, CG "agent/memory.max", "max\n");
	hardware_file(&hw, BOX "cgroup.procs", "17\n4711\n");
	for (int i = 0; i < 4; i++) {
		static const char *const nodes[] = {"dev/nvidiactl", "dev/nvidia-uvm",
						    "dev/nvidia0", "dev/nvidia1"};

		hardware_file(&hw, nodes[i], "x");
	}
	make_socket("var/run/nri/nri.sock");
	make_socket("var/lib/kubelet/pod-resources/kubelet.sock");
	hardware_file(&hw, "etc/cdi/nvidia.yaml", "x");
	hardware_file(&hw, "proc/4711/cgroup", "0::/kubepods/pod1/c1\n");
	hardware_environ(&hw, "proc/4711/environ", BOX_ENV);
}

static void run_mps(enum en_mps_state want)
{
	struct en_mps_status st;

	for (int i = 0; i < 500; i++) {
		struct pollfd p = {.events = POLLIN};

		clock_ms += en_mps_step(mps);
		en_mps_get_status(mps, &st);
		if (st.state == want)
			return;
		p.fd = en_mps_fd(mps);
		if (st.state == EN_MPS_QUITTING || st.state == EN_MPS_KILLING)
			(void)poll(&p, 1, 1000);
	}
	cr_assert(false, "%s: %s", en_mps_state_name(st.state), st.why);
}

static void start(void)
{
	struct en_mps_options mo = {.control = hw.control, .now = now, .ask_limit_ms = 5000};
	struct en_probe_options po = {.library = hw.library, .root = hw.dir};
	struct en_limits_options lo = {.library = hw.library, .smi = hw.smi};

	hardware_init(&hw);
	snprintf(pipe_dir, sizeof(pipe_dir), "%.60s/p", hw.dir);
	snprintf(log_dir, sizeof(log_dir), "%.60s/l", hw.dir);
	snprintf(run_dir, sizeof(run_dir), "%.60s/r", hw.dir);
	snprintf(box_cgroup, sizeof(box_cgroup), "%.60s/" CG "kubepods/pod1/c1", hw.dir);
	hardware_nvml(&hw, "driver 615.71.09\n" WELL_GPUS);
	well_system();
	mo.pipe_dir = pipe_dir;
	mo.log_dir = log_dir;
	mo.run_dir = run_dir;
	cr_assert_eq(en_mps_new(&mo, &mps, NULL), 0);
	cr_assert_eq(en_prober_new(&po, &prober, NULL), 0);
	cr_assert_eq(en_limits_new(&lo, &limits, NULL), 0);
	en_mps_want(mps, true);
	run_mps(EN_MPS_READY);
	probe = calloc(1, sizeof(*probe));
	report = calloc(1, sizeof(*report));
	env = (struct en_doctor_env){.root = hw.dir,
				     .probe = probe,
				     .mps = mps,
				     .in_agent = true,
				     .limits = en_limits_ops(limits),
				     .control = hw.control,
				     .smi = hw.smi,
				     .pipe_dir = "/p",
				     .log_dir = "/l",
				     .run_dir = "/r",
				     .nri_socket = "/var/run/nri/nri.sock",
				     .kubelet_socket =
					     "/var/lib/kubelet/pod-resources/kubelet.sock",
				     .containers = boxes};
	cr_assert_eq(env.limits->set(env.limits->ctx, box_cgroup, "GPU-0", 4096, 8192, NULL), 0);
}

static void stop(void)
{
	hardware_mps(&hw, "%s", "");
	en_mps_want(mps, false);
	run_mps(EN_MPS_OFF);
	en_mps_free(mps);
	en_prober_free(prober);
	en_limits_free(limits);
	free(probe);
	free(report);
	hardware_fini(&hw);
}

static void examine(void)
{
	cr_assert_eq(en_prober_run(prober, probe, NULL), 0);
	env.container_count = en_doctor_scan(hw.dir, "/sys/fs/cgroup", boxes, 8);
	en_doctor_run(&env, report);
}

static const struct en_finding *finding(const char *name)
{
	for (size_t i = 0; i < report->count; i++) {
		if (strcmp(report->findings[i].name, name) == 0)
			return &report->findings[i];
	}
	cr_assert(false, "no check %s", name);
	return NULL;
}

#endif

/* Every check both ways: a node where all is well, and one thing after the other that is not. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "enforcer/doctor.h"
#include "enforcer/limits.h"
#include "enforcer/mps_internal.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

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

TestSuite(enforcer_doctor, .init = start, .fini = stop, .timeout = 60);

static void examine(void)
{
	cr_assert_eq(en_prober_run(prober, probe, NULL), 0);
	env.container_count = en_doctor_scan(hw.dir, boxes, 8);
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

Test(enforcer_doctor, all_well)
{
	examine();
	cr_assert_geq(report->count, 25);
	for (size_t i = 0; i < report->count; i++)
		cr_assert_eq(report->findings[i].result, EN_CHECK_OK, "%s: %s",
			     report->findings[i].name, report->findings[i].text);
	cr_assert_null(report->gate);
	cr_assert_eq(report->ok, report->count);
	cr_assert_null(en_doctor_check_name(report->count));
	for (size_t i = 0; i < report->count; i++) {
		cr_assert_str_eq(en_doctor_check_name(i), report->findings[i].name);
		for (size_t k = 0; k < i; k++)
			cr_assert_str_neq(report->findings[i].name, report->findings[k].name);
		cr_assert_gt(strlen(report->findings[i].cause), 0);
		cr_assert_gt(strlen(report->findings[i].remedy), 0);
	}
}

/* ---- one thing that is not well ---- */

struct ill {
	const char *check;
	enum en_check_result result;
	const char *part; /* of the text */
	/* What is changed: the driver's script; a file and its text (NULL: removed); or a function. */
	const char *nvml;
	const char *path, *text;
	void (*change)(void);
};

static void box_without_pipe(void)
{
	hardware_environ(&hw, "proc/4711/environ",
			 "NVIDIA_GPU_MEMORY_LIMIT=8192\nNVIDIA_VISIBLE_DEVICES=GPU-0\n");
}

static void box_by_process(void)
{
	hardware_environ(&hw, "proc/4711/environ",
			 BOX_ENV "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M\n");
}

static void box_on_mig(void)
{
	hardware_environ(&hw, "proc/4711/environ", BOX_ENV "NVIDIA_VISIBLE_DEVICES=x\n");
	hardware_environ(&hw, "proc/4711/environ",
			 "NVIDIA_GPU_MEMORY_LIMIT=8192\nCUDA_MPS_PIPE_DIRECTORY=/x\n"
			 "NVIDIA_VISIBLE_DEVICES=k8s.device-plugin.nvidia.com/gpu=GPU-1\n");
}

static void box_elsewhere(void)
{
	hardware_environ(&hw, "proc/4711/environ",
			 "NVIDIA_GPU_MEMORY_LIMIT=8192\nCUDA_MPS_PIPE_DIRECTORY=/x\n"
			 "NVIDIA_VISIBLE_DEVICES=GPU-9\n");
}

static void too_much_guaranteed(void)
{
	hardware_file(&hw, "proc/5000/cgroup", "0::/kubepods/pod2/c2\n");
	hardware_environ(&hw, "proc/5000/environ",
			 "NVIDIA_GPU_MEMORY_LIMIT=80000\nCUDA_MPS_PIPE_DIRECTORY=/x\n"
			 "NVIDIA_VISIBLE_DEVICES=GPU-0\n");
}

static void limits_too_much(void)
{
	hardware_file(&hw, "proc/5000/cgroup", "0::/kubepods/pod2/c2\n");
	hardware_environ(&hw, "proc/5000/environ",
			 "NVIDIA_GPU_MEMORY_LIMIT=80000\nNVIDIA_GPU_MEMORY_REQUEST=10\n"
			 "CUDA_MPS_PIPE_DIRECTORY=/x\nNVIDIA_VISIBLE_DEVICES=GPU-0\n");
}

static void limit_raised(void)
{
	cr_assert_eq(env.limits->set(env.limits->ctx, box_cgroup, "GPU-0", 4096, 80000, NULL), 0);
}

static void limit_gone(void)
{
	cr_assert_eq(en_limits_clear(env.limits, box_cgroup, "GPU-0", NULL), 0);
}

static void no_tool(void)
{
	env.control = "/nowhere/nvidia-cuda-mps-control";
}

static void pipe_dir_open(void)
{
	chmod(pipe_dir, 0777);
}

static void log_dir_closed(void)
{
	chmod(log_dir, 0700);
}

static void long_pipe_dir(void)
{
	env.pipe_dir = "/var/lib/tessera/somewhere/else/nvidia-mps";
}

static void mps_fault(void)
{
	hardware_mps(&hw, "status FAULT\n");
	run_mps(EN_MPS_SICK);
}

static void mps_ghost(void)
{
	hardware_mps(&hw, "client pid=999999999 server=shared ns=default device=0 cmd=a\n");
}

static void other_daemon(void)
{
	hardware_link(&hw, "proc/77/exe", "/usr/bin/nvidia-cuda-mps-control");
	hardware_environ(&hw, "proc/77/environ",
			 "CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe\n");
	hardware_link(&hw, "proc/78/exe", "/usr/bin/nvidia-cuda-mps-control");
	hardware_environ(&hw, "proc/78/environ", "A=b\nCUDA_MPS_PIPE_DIRECTORY=/p\n");
}

static void share_lost(void)
{
	char dir[EN_PATH_CAP];
	const char *args[] = {"namespace", "delete", NULL, "--server=shared", NULL};
	char name[EN_MPS_NAME_CAP];
	struct en_exec_result out = {0};

	cr_assert_eq(en_mps_namespace_make(mps, "abc", 50, dir, NULL), 0);
	en_mps_namespace_name("abc", name);
	args[2] = name;
	cr_assert_eq(mps_command(mps, args, 5000, &out, NULL), 0);
	en_exec_fini(&out);
	mps_ns_sweep(mps);
}

static void restart_waits(void)
{
	en_mps_recycle(mps, "a test");
}

static void pid_namespace(void)
{
	hardware_link(&hw, "proc/self/ns/pid", "pid:[4026532001]");
}

static void no_dmem_line(void)
{
	hardware_file(&hw, CG "dmem.capacity", "nvidia/00000000:99:00.0/vidmem 1\n");
}

static void memory_limit(void)
{
	hardware_file(&hw, CG "agent/memory.max", "%d\n", 200 << 20);
}

static const struct ill ills[] = {
	{"driver", EN_CHECK_FAIL, "not loaded", "fail call=nvmlInit_v2 code=9\n", NULL, NULL, NULL},
	{"driver-match", EN_CHECK_FAIL, "kernel module is", NULL, "proc/driver/nvidia/version",
	 "NVRM version: 580.1\n", NULL},
	{"driver-match", EN_CHECK_WARN, "cannot be read", NULL, "proc/driver/nvidia/version", NULL,
	 NULL},
	{"driver-version", EN_CHECK_WARN, "for each process only", "driver 580.1\n" WELL_GPUS, NULL,
	 NULL, NULL},
	{"gpus", EN_CHECK_FAIL, "no GPU", "driver 615.71.09\n", NULL, NULL, NULL},
	{"gpus", EN_CHECK_WARN, "GPU 0 is left out",
	 "driver 615.71.09\n" WELL_GPUS "fail call=nvmlDeviceGetUUID code=999 gpu=0\n", NULL, NULL,
	 NULL},
	{"gpu-health", EN_CHECK_FAIL, "GPU-0: uncorrectable",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "ecc=3"), NULL, NULL, NULL},
	{"gpu-health", EN_CHECK_FAIL, "2 GPUs; GPU-0",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "ecc=3") HARDWARE_GPU(1, "ecc=1"), NULL, NULL, NULL},
	{"gpu-xid", EN_CHECK_WARN, "XID error 31, of an application",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "") "xid gpu=0 code=31\n", NULL, NULL, NULL},
	{"gpu-ecc", EN_CHECK_FAIL, "3 uncorrectable", "driver 615.71.09\n" HARDWARE_GPU(0, "ecc=3"),
	 NULL, NULL, NULL},
	{"gpu-remap", EN_CHECK_WARN, "at the next reset",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "remap_pending=1"), NULL, NULL, NULL},
	{"gpu-temperature", EN_CHECK_WARN, "86 C, it slows down at 90 C",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "temp=86"), NULL, NULL, NULL},
	{"gpu-throttle", EN_CHECK_WARN, "heat",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "throttle=0x40"), NULL, NULL, NULL},
	{"gpu-throttle", EN_CHECK_WARN, "power brake",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "throttle=0x80"), NULL, NULL, NULL},
	{"gpu-persistence", EN_CHECK_WARN, "persistence mode is off",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "persistence=0"), NULL, NULL, NULL},
	{"gpu-compute-mode", EN_CHECK_FAIL, "EXCLUSIVE_PROCESS",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "mode=3"), NULL, NULL, NULL},
	{"gpu-compute-mode", EN_CHECK_FAIL, "PROHIBITED",
	 "driver 580.1\n" HARDWARE_GPU(0, "mode=2"), NULL, NULL, NULL},
	{"gpu-compute-mode", EN_CHECK_OK, "EXCLUSIVE", "driver 580.1\n" HARDWARE_GPU(0, "mode=3"),
	 NULL, NULL, NULL},
	{"gpu-foreign", EN_CHECK_WARN, "held by pid 99",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "") "process pid=99\n", NULL, NULL, NULL},
	{"mig-mode", EN_CHECK_WARN, "MIG mode is off, on after",
	 "driver 615.71.09\n" HARDWARE_GPU(0, "mig=off pending=on"), NULL, NULL, NULL},
	{"mig-geometry", EN_CHECK_WARN, "not known",
	 "driver 615.71.09\ngpu uuid=GPU-0 name=NVIDIA_X mem=100 mig=on\n", NULL, NULL, NULL},
	{"device-nodes", EN_CHECK_FAIL, "/dev/nvidia-uvm is missing", NULL, "dev/nvidia-uvm", NULL,
	 NULL},
	{"device-nodes", EN_CHECK_FAIL, "/dev/nvidia1 is missing", NULL, "dev/nvidia1", NULL, NULL},
	{"cgroup-v2", EN_CHECK_FAIL, "not cgroup v2", NULL, CG "cgroup.controllers", NULL, NULL},
	{"cgroup-dmem", EN_CHECK_WARN, "by itself", NULL, CG "cgroup.controllers",
	 "cpu memory dmemx\n", NULL},
	{"dmem-gpus", EN_CHECK_WARN, "no line for GPU-0", NULL, NULL, NULL, no_dmem_line},
	{"kernel-options", EN_CHECK_WARN, "cgroup_disable=dmem", NULL, "proc/cmdline",
	 "quiet cgroup_disable=memory,dmem ro\n", NULL},
	{"kernel-options", EN_CHECK_FAIL, "RmMemacctMode=0", NULL, "proc/driver/nvidia/params",
	 "RegistryDwords: \"RmMemacctMode=0\"\n", NULL},
	{"host-pid", EN_CHECK_FAIL, "not the host's", NULL, NULL, NULL, pid_namespace},
	{"host-pid", EN_CHECK_WARN, "cannot be read", NULL, "proc/self/ns/pid", NULL, NULL},
	{"privileges", EN_CHECK_FAIL, "CAP_SYS_ADMIN is missing", NULL, "proc/self/status",
	 "CapEff:\t00000000a80425fb\n", NULL},
	{"own-memory", EN_CHECK_WARN, "200 MiB, 228 are wanted", NULL, NULL, NULL, memory_limit},
	{"nri-socket", EN_CHECK_FAIL, "is not there", NULL, "var/run/nri/nri.sock", NULL, NULL},
	{"nri-socket", EN_CHECK_FAIL, "no socket", NULL, "var/run/nri/nri.sock", "x", NULL},
	{"kubelet-socket", EN_CHECK_WARN, "is not there", NULL,
	 "var/lib/kubelet/pod-resources/kubelet.sock", NULL, NULL},
	{"toolkit", EN_CHECK_FAIL, "neither", NULL, "etc/cdi/nvidia.yaml", NULL, NULL},
	{"mps-tool", EN_CHECK_FAIL, "/nowhere", NULL, NULL, NULL, no_tool},
	{"mps-directories", EN_CHECK_FAIL, "by others (777)", NULL, NULL, NULL, pipe_dir_open},
	{"mps-directories", EN_CHECK_FAIL, "cannot be entered", NULL, NULL, NULL, log_dir_closed},
	{"mps-directories", EN_CHECK_FAIL, "/l is not there", NULL, "l", NULL, NULL},
	{"mps-path", EN_CHECK_FAIL, "at most 83", NULL, NULL, NULL, long_pipe_dir},
	{"mps-answers", EN_CHECK_FAIL, "FAULT", NULL, NULL, NULL, mps_fault},
	{"mps-clients", EN_CHECK_FAIL, "999999999", NULL, NULL, NULL, mps_ghost},
	{"mps-joined", EN_CHECK_FAIL, "outside of MPS", NULL, NULL, NULL, box_without_pipe},
	{"mps-others", EN_CHECK_WARN, "process 77 is another", NULL, NULL, NULL, other_daemon},
	{"mps-shares", EN_CHECK_FAIL, "1 of 1 containers", NULL, NULL, NULL, share_lost},
	{"mps-restart", EN_CHECK_WARN, "started anew", NULL, NULL, NULL, restart_waits},
	{"limits", EN_CHECK_FAIL, "no permission",
	 "driver 615.71.09\n" WELL_GPUS "fail call=nvmlDeviceGetMemoryLimits_v1 code=4\n", NULL,
	 NULL, NULL},
	{"limits-in-force", EN_CHECK_FAIL, "is 80000 MiB, not 8192 MiB", NULL, NULL, NULL,
	 limit_raised},
	{"limits-in-force", EN_CHECK_FAIL, "1 of 1 limits", NULL, NULL, NULL, limit_gone},
	{"limits-leaf", EN_CHECK_FAIL, "process 4711 is not in", NULL, BOX "cgroup.procs", "17\n",
	 NULL},
	{"limits-leaf", EN_CHECK_FAIL, "cannot be read", NULL, BOX "cgroup.procs", NULL, NULL},
	{"limits-chain", EN_CHECK_WARN, "kubepods/cgroup.subtree_control", NULL,
	 CG "kubepods/cgroup.subtree_control", "memory\n", NULL},
	{"limits-gpus", EN_CHECK_FAIL, "GPU-1, which has MIG on", NULL, NULL, NULL, box_on_mig},
	{"limits-gpus", EN_CHECK_FAIL, "GPU-9, which is not here", NULL, NULL, NULL, box_elsewhere},
	{"limits-sum", EN_CHECK_FAIL, "84096 MiB are guaranteed", NULL, NULL, NULL,
	 too_much_guaranteed},
	{"limits-sum", EN_CHECK_WARN, "add up to 88192", NULL, NULL, NULL, limits_too_much},
	{"limits-kind", EN_CHECK_WARN, "for each of its processes", NULL, NULL, NULL,
	 box_by_process},
};
#define ILLS (sizeof(ills) / sizeof(ills[0]))

static void check_ill(const struct ill *ill)
{
	const struct en_finding *f;

	if (ill->nvml != NULL)
		hardware_nvml(&hw, "%s", ill->nvml);
	if (ill->path != NULL)
		hardware_remove(&hw, ill->path);
	if (ill->text != NULL)
		hardware_file(&hw, ill->path, "%s", ill->text);
	if (ill->change != NULL)
		ill->change();
	examine();
	f = finding(ill->check);
	cr_assert_eq(f->result, ill->result, "%s: %s (%s)", ill->check,
		     en_check_result_name(f->result), f->text);
	cr_assert_not_null(strstr(f->text, ill->part), "%s: %s", ill->check, f->text);
	if (f->result == EN_CHECK_FAIL && f->gates)
		cr_assert_not_null(report->gate);
}

/* One test for each, so that they start from a node that is well. */
#define ILL(from, to)                                                                              \
	Test(enforcer_doctor, ill_##from)                                                          \
	{                                                                                          \
		for (size_t i = (from); i < (to) && i < ILLS; i++) {                               \
			if (i > (from)) {                                                          \
				stop();                                                            \
				start();                                                           \
			}                                                                          \
			check_ill(&ills[i]);                                                       \
		}                                                                                  \
	}
ILL(0, 10)
ILL(10, 20)
ILL(20, 30)
ILL(30, 40)
ILL(40, 50)
ILL(50, 60)
ILL(60, 70)

/* Each check of the table has a case above in which it is not well. */
Test(enforcer_doctor, every_check_has_both_ways)
{
	const char *name;
	size_t count = 0;

	cr_assert_leq(ILLS, 70);
	for (; (name = en_doctor_check_name(count)) != NULL; count++) {
		bool ill = false;

		for (size_t i = 0; i < ILLS; i++)
			ill = ill ||
			      (strcmp(ills[i].check, name) == 0 && ills[i].result != EN_CHECK_OK);
		cr_assert(ill, "%s has no case", name);
	}
	cr_assert_geq(count, 25);
}

/* What does not apply is said to be skipped, not well. */
Test(enforcer_doctor, skipped)
{
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0));
	hardware_remove(&hw, "proc/4711");
	hardware_remove(&hw, CG "cgroup.controllers");
	hardware_remove(&hw, CG "dmem.capacity");
	examine();
	cr_assert_eq(finding("mps-answers")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("mps-tool")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("limits")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("limits-in-force")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("cgroup-dmem")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("dmem-gpus")->result, EN_CHECK_SKIP);
	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=9\n");
	examine();
	cr_assert_eq(finding("gpu-health")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("driver-version")->result, EN_CHECK_SKIP);
}

/* As the command runs it: MPS is asked, not the agent's supervisor. */
Test(enforcer_doctor, asked_from_outside)
{
	env.in_agent = false;
	examine();
	cr_assert_eq(finding("mps-answers")->result, EN_CHECK_OK);
	cr_assert_eq(finding("mps-shares")->result, EN_CHECK_SKIP);
	hardware_mps(&hw, "status FAULT\n");
	examine();
	cr_assert_eq(finding("mps-answers")->result, EN_CHECK_FAIL);
	cr_assert_not_null(strstr(finding("mps-answers")->text, "FAULT"));
	cr_assert_not_null(report->gate);
	cr_assert_str_eq(report->gate->name, "mps-answers");
}

Test(enforcer_doctor, scan)
{
	size_t n;

	/* A second process of the same container, one without a share, one with nonsense. */
	hardware_file(&hw, "proc/4712/cgroup", "0::/kubepods/pod1/c1\n");
	hardware_environ(&hw, "proc/4712/environ", BOX_ENV);
	hardware_file(&hw, "proc/1/cgroup", "0::/init.scope\n");
	hardware_environ(&hw, "proc/1/environ", "PATH=/bin\n");
	hardware_file(&hw, "proc/2/cgroup", "0::/a\n");
	hardware_environ(&hw, "proc/2/environ", "NVIDIA_GPU_MEMORY_LIMIT=-5\n");
	hardware_file(&hw, "proc/3/cgroup", "7:memory:/v1\n");
	hardware_environ(&hw, "proc/3/environ", "NVIDIA_GPU_MEMORY_LIMIT=5\n");
	n = en_doctor_scan(hw.dir, boxes, 8);
	cr_assert_eq(n, 1);
	cr_assert_str_eq(boxes[0].cgroup, box_cgroup);
	cr_assert_eq(boxes[0].soft_mib, 4096);
	cr_assert_eq(boxes[0].hard_mib, 8192);
	cr_assert_eq(boxes[0].gpu_count, 1);
	cr_assert_str_eq(boxes[0].gpus[0], "GPU-0");
	cr_assert(boxes[0].by_cgroup && boxes[0].has_pipe);
	cr_assert_eq(en_doctor_scan("/nowhere", boxes, 8), 0);
}

/* ---- output ---- */

Test(enforcer_doctor, print)
{
	struct buf out = BUF_INIT;

	hardware_nvml(&hw, "driver 615.71.09\n" WELL_GPUS "process gpu=0 pid=99\n");
	examine();
	en_doctor_print(report, false, &out);
	cr_assert_eq(strncmp(buf_str(&out), "warn  gpu-foreign       GPU-0 is held by pid 99\n",
			     48),
		     0, "%s", buf_str(&out));
	cr_assert_not_null(strstr(buf_str(&out), "      remedy: end it"));
	cr_assert_not_null(strstr(buf_str(&out), " ok, 1 warnings, 0 failures, 0 skipped\n"));
	buf_reset(&out);
	en_doctor_print(report, true, &out);
	cr_assert_not_null(strstr(buf_str(&out), "ok    cgroup-v2         cgroup v2\n"));
	buf_fini(&out);
}

Test(enforcer_doctor, json)
{
	struct buf out = BUF_INIT;
	cJSON *root;
	const cJSON *one;

	hardware_nvml(&hw, "driver 615.71.09\n" WELL_GPUS "process gpu=0 pid=99\n");
	hardware_file(&hw, "proc/99/comm", "a\"\\b\n");
	examine();
	cr_assert_eq(en_doctor_json(report, &out, NULL), 0);
	root = cJSON_ParseWithLength(out.data, out.len);
	cr_assert_not_null(root);
	cr_assert_eq((size_t)cJSON_GetObjectItem(root, "ok")->valuedouble, report->ok);
	cr_assert_eq((size_t)cJSON_GetObjectItem(root, "warnings")->valuedouble, 1);
	cr_assert_eq((size_t)cJSON_GetArraySize(cJSON_GetObjectItem(root, "checks")),
		     report->count);
	cJSON_ArrayForEach(one, cJSON_GetObjectItem(root, "checks"))
	{
		if (strcmp(cJSON_GetObjectItem(one, "name")->valuestring, "gpu-foreign") != 0)
			continue;
		cr_assert_str_eq(cJSON_GetObjectItem(one, "result")->valuestring, "warn");
		cr_assert_str_eq(cJSON_GetObjectItem(one, "found")->valuestring,
				 "GPU-0 is held by pid 99 (a\"\\b)");
	}
	cJSON_Delete(root);
	buf_fini(&out);
}

static char *command(int want, int argc, char *const *argv)
{
	int fd = open(hardware_path(&hw, "out"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert_eq(en_doctor_main(argc, argv, fd), want);
	close(fd);
	return hardware_read(&hw, "out");
}

Test(enforcer_doctor, command)
{
	char root[128], nvml[400], control[400], smi[400], json[] = "--json", bad[] = "--bogus",
							   name[] = "doctor", word[] = "x";
	char *const good[] = {name, root, nvml, control, smi, json, NULL};
	char *const wrong[] = {name, bad, NULL}, *const extra[] = {name, word, NULL};
	char *text;
	cJSON *parsed;

	snprintf(root, sizeof(root), "--root=%s", hw.dir);
	snprintf(nvml, sizeof(nvml), "--nvml=%s", hw.library);
	snprintf(control, sizeof(control), "--mps-control=%s", hw.control);
	snprintf(smi, sizeof(smi), "--nvidia-smi=%s", hw.smi);
	text = command(1, 6, good); /* MPS of the default folder does not answer */
	parsed = cJSON_Parse(text);
	cr_assert_not_null(parsed, "%s", text);
	cr_assert_gt(cJSON_GetObjectItem(parsed, "failures")->valuedouble, 0);
	cJSON_Delete(parsed);
	free(text);
	text = command(1, 5, good);
	cr_assert_not_null(strstr(text, "fail  mps-answers"), "%s", text);
	cr_assert_not_null(strstr(text, " failures, "));
	free(text);
	text = command(2, 2, wrong);
	cr_assert_eq(strncmp(text, "usage: ", 7), 0);
	free(text);
	free(command(2, 2, extra));
}

/* Every check both ways: a node where all is well, and one thing after the other that is not. */
#include "test/unit/enforcer_doctor_fixture.h"

TestSuite(enforcer_doctor, .init = start, .fini = stop);

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

/* Limits of a pod are those of its containers, too. */
static void memory_limit_above(void)
{
	hardware_file(&hw, CG "agent/memory.max", "%d\n", 300 << 20);
	hardware_file(&hw, CG "memory.max", "%d\n", 100 << 20);
}

static void mounted_elsewhere(void)
{
	env.cgroup_mount = "/elsewhere";
}

static void memory_limit_elsewhere(void)
{
	mounted_elsewhere();
	hardware_file(&hw, "elsewhere/agent/memory.max", "%d\n", 50 << 20);
}

static void tool_is_a_folder(void)
{
	env.control = "/tmp";
}

/* What an upgrade of the driver leaves running. */
static void deleted_daemon(void)
{
	hardware_link(&hw, "proc/79/exe", "/usr/bin/nvidia-cuda-mps-control (deleted)");
	hardware_environ(&hw, "proc/79/environ", "A=b\n");
}

static void daemon_that_ends(void)
{
	hardware_link(&hw, "proc/80/exe", "/usr/bin/nvidia-cuda-mps-control");
}

static const struct ill ills[] = {
	{"driver", EN_CHECK_FAIL, "not loaded", "fail call=nvmlInit_v2 code=9\n", NULL, NULL, NULL},
	{"driver-match", EN_CHECK_FAIL, "kernel module is", NULL, "proc/driver/nvidia/version",
	 "NVRM version: 580.1\n", NULL},
	{"driver-match", EN_CHECK_FAIL, "kernel module is", NULL, "proc/driver/nvidia/version",
	 "NVRM version: NVIDIA UNIX x86_64 Kernel Module  615.71.09.01  Wed\n", NULL},
	{"driver-match", EN_CHECK_WARN, "cannot be read", NULL, "proc/driver/nvidia/version", NULL,
	 NULL},
	{"driver-match", EN_CHECK_SKIP, "no driver", "fail call=nvmlInit_v2 code=9\n",
	 "proc/driver/nvidia/version", NULL, NULL},
	{"driver-match", EN_CHECK_SKIP, "the library does not answer",
	 "fail call=nvmlInit_v2 code=9\n", NULL, NULL, NULL},
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
	{"gpu-compute-mode", EN_CHECK_OK, "no GPU is closed",
	 "driver 580.1\n" HARDWARE_GPU(0, "mode=3"), NULL, NULL, NULL},
	{"gpu-compute-mode", EN_CHECK_FAIL, "GPU-1: compute mode is PROHIBITED",
	 "driver 580.1\n" HARDWARE_GPU(0, "mode=3") HARDWARE_GPU(1, "mode=2"), NULL, NULL, NULL},
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
	{"kernel-options", EN_CHECK_WARN, "cgroup_disable=dmem", NULL, "proc/cmdline",
	 "cgroup_disable=memory quiet cgroup_disable=dmem\n", NULL},
	{"kernel-options", EN_CHECK_OK, "nothing", NULL, "proc/cmdline",
	 "x.cgroup_disable=dmem cgroup_disable=dmemx,\n", NULL},
	{"kernel-options", EN_CHECK_OK, "nothing", NULL, "proc/driver/nvidia/params",
	 "RegistryDwords: \"RmMemacctMode=0x1;Other=0\"\n", NULL},
	{"kernel-options", EN_CHECK_FAIL, "RmMemacctMode=0", NULL, "proc/driver/nvidia/params",
	 "RegistryDwords: \"Other=1;RmMemacctMode=0x0\"\n", NULL},
	{"host-pid", EN_CHECK_FAIL, "not the host's", NULL, NULL, NULL, pid_namespace},
	{"host-pid", EN_CHECK_WARN, "cannot be read", NULL, "proc/self/ns/pid", NULL, NULL},
	{"privileges", EN_CHECK_FAIL, "CAP_SYS_ADMIN is missing", NULL, "proc/self/status",
	 "CapEff:\t00000000a80425fb\n", NULL},
	{"own-memory", EN_CHECK_WARN, "200 MiB, 228 are wanted", NULL, NULL, NULL, memory_limit},
	{"own-memory", EN_CHECK_WARN, "100 MiB, 228 are wanted", NULL, NULL, NULL,
	 memory_limit_above},
	{"own-memory", EN_CHECK_WARN, "50 MiB, 228 are wanted", NULL, NULL, NULL,
	 memory_limit_elsewhere},
	{"cgroup-v2", EN_CHECK_FAIL, "/elsewhere has no cgroup.controllers", NULL, NULL, NULL,
	 mounted_elsewhere},
	{"nri-socket", EN_CHECK_FAIL, "is not there", NULL, "var/run/nri/nri.sock", NULL, NULL},
	{"nri-socket", EN_CHECK_FAIL, "no socket", NULL, "var/run/nri/nri.sock", "x", NULL},
	{"kubelet-socket", EN_CHECK_WARN, "is not there", NULL,
	 "var/lib/kubelet/pod-resources/kubelet.sock", NULL, NULL},
	{"toolkit", EN_CHECK_FAIL, "neither", NULL, "etc/cdi/nvidia.yaml", NULL, NULL},
	{"mps-tool", EN_CHECK_FAIL, "/nowhere", NULL, NULL, NULL, no_tool},
	{"mps-tool", EN_CHECK_FAIL, "/tmp is not there", NULL, NULL, NULL, tool_is_a_folder},
	{"mps-directories", EN_CHECK_FAIL, "by others (777)", NULL, NULL, NULL, pipe_dir_open},
	{"mps-directories", EN_CHECK_FAIL, "cannot be entered", NULL, NULL, NULL, log_dir_closed},
	{"mps-directories", EN_CHECK_FAIL, "/l is not there", NULL, "l", NULL, NULL},
	{"mps-path", EN_CHECK_FAIL, "at most 83", NULL, NULL, NULL, long_pipe_dir},
	{"mps-answers", EN_CHECK_FAIL, "FAULT", NULL, NULL, NULL, mps_fault},
	{"mps-clients", EN_CHECK_FAIL, "999999999", NULL, NULL, NULL, mps_ghost},
	{"mps-joined", EN_CHECK_FAIL, "outside of MPS", NULL, NULL, NULL, box_without_pipe},
	{"mps-others", EN_CHECK_WARN, "process 77 is another", NULL, NULL, NULL, other_daemon},
	{"mps-others", EN_CHECK_WARN, "process 79 is another", NULL, NULL, NULL, deleted_daemon},
	{"mps-others", EN_CHECK_OK, "no other", NULL, NULL, NULL, daemon_that_ends},
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
		for (size_t i = (from); i < (to); i++) {                                           \
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
ILL(60, ILLS)

/* Each check of the table has a case above in which it is not well. */
Test(enforcer_doctor, every_check_has_both_ways)
{
	const char *name;
	size_t count = 0;

	for (; (name = en_doctor_check_name(count)) != NULL; count++) {
		bool ill = false;

		for (size_t i = 0; i < ILLS; i++)
			ill = ill ||
			      (strcmp(ills[i].check, name) == 0 && ills[i].result != EN_CHECK_OK);
		cr_assert(ill, "%s has no case", name);
	}
	cr_assert_geq(count, 25);
}

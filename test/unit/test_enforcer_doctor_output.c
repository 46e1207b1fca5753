/* The doctor as a whole: what is skipped, the search for containers, output, and the command. */
#include <fcntl.h>

#include <cjson/cJSON.h>

#include "test/unit/enforcer_doctor_fixture.h"

TestSuite(enforcer_doctor_output, .init = start, .fini = stop);

/* What does not apply is said to be skipped, not well. */
Test(enforcer_doctor_output, skipped)
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
	examine();
	cr_assert_eq(finding("gpu-health")->result, EN_CHECK_SKIP);
	cr_assert_eq(finding("driver-version")->result, EN_CHECK_SKIP);
}

/* As the command runs it: MPS is asked, not the agent's supervisor. */
Test(enforcer_doctor_output, asked_from_outside)
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

Test(enforcer_doctor_output, scan)
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
	n = en_doctor_scan(hw.dir, "/sys/fs/cgroup", boxes, 8);
	cr_assert_eq(n, 1);
	cr_assert_str_eq(boxes[0].cgroup, box_cgroup);
	cr_assert_eq(boxes[0].soft_mib, 4096);
	cr_assert_eq(boxes[0].hard_mib, 8192);
	cr_assert_eq(boxes[0].gpu_count, 1);
	cr_assert_str_eq(boxes[0].gpus[0], "GPU-0");
	cr_assert(boxes[0].by_cgroup && boxes[0].has_pipe);
	/* Not everywhere is version 2 mounted at the usual place. */
	cr_assert_eq(en_doctor_scan(hw.dir, "/elsewhere", boxes, 8), 1);
	cr_assert_str_eq(boxes[0].cgroup + strlen(hw.dir), "/elsewhere/kubepods/pod1/c1");
	cr_assert_eq(en_doctor_scan("/nowhere", "/sys/fs/cgroup", boxes, 8), 0);
}

/* Between the search and the checks a container may end: nothing is kept for it any more. */
Test(enforcer_doctor_output, a_container_that_ends_meanwhile_is_no_failure)
{
	examine();
	cr_assert_eq(env.container_count, 1);
	cr_assert_eq(en_limits_clear(env.limits, box_cgroup, "GPU-0", NULL), 0);
	hardware_remove(&hw, BOX "cgroup.procs");
	en_doctor_run(&env, report);
	cr_expect_eq(finding("limits-leaf")->result, EN_CHECK_FAIL, "it is there still");
	cr_expect_eq(finding("limits-in-force")->result, EN_CHECK_FAIL);
	hardware_remove(&hw, "proc/4711");
	en_doctor_run(&env, report);
	cr_expect_eq(finding("limits-leaf")->result, EN_CHECK_OK, "%s",
		     finding("limits-leaf")->text);
	cr_expect_eq(finding("limits-in-force")->result, EN_CHECK_SKIP, "%s",
		     finding("limits-in-force")->text);
}

/* ---- output ---- */

/* A process calls itself what it likes; a terminal obeys some of it, and JSON is UTF-8. */
Test(enforcer_doctor_output, names_of_processes_are_made_harmless)
{
	hardware_nvml(&hw, "driver 615.71.09\n" WELL_GPUS "process gpu=0 pid=99\n");
	hardware_file(&hw, "proc/99/comm", "%s", "a\033[2J\177\303\n");
	examine();
	cr_expect_str_eq(finding("gpu-foreign")->text, "GPU-0 is held by pid 99 (a?[2J?\?)");
}

Test(enforcer_doctor_output, print)
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

Test(enforcer_doctor_output, json)
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

Test(enforcer_doctor_output, command)
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
	/* What is wrong with the call is no finding. */
	text = command(2, 2, wrong);
	cr_assert_str_eq(text, "");
	free(text);
	free(command(2, 2, extra));
	setenv("TESSERA_NRI_SOCKET", "/from/the/agent.sock", 1);
	text = command(1, 5, good);
	cr_assert_not_null(strstr(text, "/from/the/agent.sock is not there"), "%s", text);
	free(text);
}

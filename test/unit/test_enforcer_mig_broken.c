/* MIG instances when something breaks off: the agent at each step, the driver, the disk. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enforcer/mig_internal.h"
#include "enforcer/uninstall.h"
#include "test/unit/mig_fixture.h"

TestSuite(enforcer_mig_broken, .init = start, .fini = stop);

/* The driver has a line more in its script. */
static void add(const char *line)
{
	char *script = hardware_read(&hw, "nvml");

	hardware_nvml(&hw, "%s%s\n", script, line);
	free(script);
}

/* Without the lines that begin with that. */
static void take_out(const char *what)
{
	char *script = hardware_read(&hw, "nvml"), *rest = script, *line;
	struct buf b = BUF_INIT;

	while ((line = strsep(&rest, "\n")) != NULL) {
		if (line[0] != '\0' && strncmp(line, what, strlen(what)) != 0)
			buf_printf(&b, "%s\n", line);
	}
	hardware_nvml(&hw, "%s", buf_str(&b));
	buf_fini(&b);
	free(script);
}

static bool driver_has(const char *text)
{
	char *script = hardware_read(&hw, "nvml");
	bool ret = strstr(script, text) != NULL;

	free(script);
	return ret;
}

/* ---- the agent ends in the middle ---- */

/* Killed by the time that the driver has made the GPU instance, and not its compute instance. */
static void killed_while_making(void)
{
	pid_t pid;

	add("slow call=nvmlGpuInstanceCreateComputeInstance ms=600000");
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
		begin(EN_MIG_DYNAMIC);
		(void)make("GPU-0", "1g.10gb", 5, SECOND, NULL);
		_exit(0);
	}
	while (!driver_has("\ninstance gpu=0 profile=19 id=1 start=5"))
		usleep(1000);
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	take_out("slow");
}

Test(enforcer_mig_broken, one_that_was_being_made_is_ours_after_a_restart)
{
	killed_while_making();
	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(probe->gpus[0].instance_count, 1);
	cr_expect(probe->gpus[0].instances[0].ours);
	/* Nobody has it: it goes. */
	cr_expect_eq(en_mig_sweep(mig, probe, 10 * SECOND), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 70 * SECOND), 1);
	expect_instances(0, "");
}

Test(enforcer_mig_broken, one_that_was_being_made_is_made_to_the_end_when_it_is_wanted)
{
	struct err err = ERR_INIT;

	killed_while_making();
	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 5, SECOND, &err), 0, "%s", err.msg);
	expect_instances(0, "1g.10gb@5");
}

/* Killed before the driver did anything, or when it had done all. */
Test(enforcer_mig_broken, what_the_file_says_is_made_may_be_so_or_not)
{
	struct en_mig_stats stats;

	hardware_file(&hw, "mig", "making GPU-0 19 5 1\nmaking GPU-0 19 6 1\n");
	add("instance gpu=0 profile=19 id=4 start=6 size=1 uuid=MIG-a");
	add("instance gpu=0 profile=14 id=5 start=4 size=2 uuid=MIG-b");
	begin(EN_MIG_DYNAMIC);
	expect_instances(0, "2g.20gb@4* 1g.10gb@6");
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.ours, 1);
	cr_expect_eq(stats.vanished, 0, "it came to nothing");
	/* The next agent knows it as well. */
	begin(EN_MIG_DYNAMIC);
	cr_expect_eq(en_mig_sweep(mig, probe, 10 * SECOND), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 70 * SECOND), 1);
	expect_instances(0, "2g.20gb@4*");
}

/* Killed, or refused by the driver, when the compute instance was gone and the GPU instance was not. */
Test(enforcer_mig_broken, one_that_was_half_removed_stays_ours)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "2g.20gb", 4, SECOND, &err), 0, "%s", err.msg);
	drop("GPU-0", 4, 2 * SECOND);
	add("fail call=nvmlGpuInstanceDestroy code=19");
	cr_expect_eq(en_mig_sweep(mig, probe, 100 * SECOND), 0);
	for (int round = 0; round < 2; round++) {
		look();
		cr_assert_eq(probe->gpus[0].instance_count, 1);
		cr_expect_str_eq(probe->gpus[0].instances[0].uuid, "");
		cr_expect(probe->gpus[0].instances[0].ours, "round %d", round);
		begin(EN_MIG_DYNAMIC);
	}
	take_out("fail");
	/* Wanted again, it is made anew; else it goes. */
	cr_assert_eq(make("GPU-0", "2g.20gb", 4, 200 * SECOND, &err), 0, "%s", err.msg);
	expect_instances(0, "2g.20gb@4");
	add("fail call=nvmlGpuInstanceDestroy code=19");
	drop("GPU-0", 4, 300 * SECOND);
	cr_expect_eq(en_mig_sweep(mig, probe, 400 * SECOND), 0);
	look();
	take_out("fail");
	cr_expect_eq(en_mig_sweep(mig, probe, 401 * SECOND), 1);
	expect_instances(0, "");
}

/* The driver makes a half, and does not take it back. */
Test(enforcer_mig_broken, one_that_was_half_made_goes_later)
{
	begin(EN_MIG_DYNAMIC);
	add("fail call=nvmlGpuInstanceCreateComputeInstance code=23");
	add("fail call=nvmlGpuInstanceDestroy code=19");
	cr_expect_neq(make("GPU-0", "1g.10gb", 0, SECOND, NULL), 0);
	cr_assert(driver_has("\ninstance"));
	take_out("fail");
	look();
	cr_expect(probe->gpus[0].instances[0].ours);
	cr_expect_eq(en_mig_sweep(mig, probe, 2 * SECOND), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 62 * SECOND), 1);
	expect_instances(0, "");
}

/* ---- others at the same place ---- */

/* Somebody took ours away and made the same anew, with the same id, since the last look. */
Test(enforcer_mig_broken, another_one_with_the_same_id_is_not_removed)
{
	struct en_mig_stats stats;
	char *script, *uuid;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 0, SECOND, NULL), 0);
	drop("GPU-0", 0, SECOND);
	look();
	script = hardware_read(&hw, "nvml");
	uuid = strstr(script, "uuid=MIG-");
	cr_assert_not_null(uuid);
	uuid[strlen("uuid=MIG-")] = 'x';
	hardware_nvml(&hw, "%s", script);
	free(script);
	(void)en_mig_sweep(mig, probe, 100 * SECOND);
	expect_instances(0, "1g.10gb@0*");
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.removed, 0);
	cr_expect_eq(stats.vanished, 1);
}

/* ---- the driver and the disk ---- */

/* That the driver does not list them for once is no reason to forget them. */
Test(enforcer_mig_broken, a_list_that_fails_makes_nobody_forget)
{
	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 0, SECOND, NULL), 0);
	drop("GPU-0", 0, SECOND);
	look();
	add("fail call=nvmlDeviceGetGpuInstances code=999");
	cr_expect_neq(make("GPU-0", "1g.10gb", 0, 2 * SECOND, NULL), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 100 * SECOND), 0);
	take_out("fail");
	expect_instances(0, "1g.10gb@0");
	cr_expect_eq(en_mig_sweep(mig, probe, 101 * SECOND), 1);
	expect_instances(0, "");
}

/* What could not be remembered is not made, nor is a mode switched. */
Test(enforcer_mig_broken, nothing_is_made_that_cannot_be_remembered)
{
	struct en_mig_options o = {.way = EN_MIG_SWITCH,
				   .library = hw.library,
				   .path = hardware_path(&hw, "no-folder/mig"),
				   .linger_ms = 60 * SECOND,
				   .held = is_held};
	struct en_mig_stats stats;
	struct err err = ERR_INIT;

	cr_assert_eq(en_mig_new(&o, &mig, &err), 0, "%s", err.msg);
	look();
	cr_expect_eq(make("GPU-0", "1g.10gb", 0, SECOND, &err), ERR_IO);
	cr_expect_not_null(strstr(err.msg, "no-folder/mig cannot be written"), "%s", err.msg);
	cr_expect_eq(make("GPU-1", "1g.10gb", 0, SECOND, &err), ERR_IO);
	cr_expect_not(driver_has("\ninstance"));
	cr_expect(driver_has("mig=off"));
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.ours, 0);
	cr_expect_eq(stats.switched_on, 0);
	/* When there is room again, it goes on. */
	hardware_mkdir(&hw, "no-folder");
	err = (struct err)ERR_INIT;
	cr_expect_eq(make("GPU-0", "1g.10gb", 0, SECOND, &err), 0, "%s", err.msg);
	expect_instances(0, "1g.10gb@0");
}

/* ---- the agent is taken away ---- */

/* Nothing that it made stays behind, in whatever state; what is in use does, and is said. */
Test(enforcer_mig_broken, uninstall_takes_what_was_made)
{
	struct en_run_options o = {.run_dir = hw.dir, .nvml = hw.library, .kubelet_socket = ""};
	struct err err = ERR_INIT;

	cr_assert_eq(en_remove_mig(&o, &err), 0, "there is nothing: %s", err.msg);
	begin(EN_MIG_SWITCH);
	add("instance gpu=0 profile=19 id=9 start=6 size=1 uuid=MIG-x");
	cr_assert_eq(make("GPU-0", "1g.10gb", 0, SECOND, &err), 0, "%s", err.msg);
	cr_assert_eq(make("GPU-0", "2g.20gb", 2, SECOND, &err), 0, "%s", err.msg);
	cr_assert_eq(make("GPU-1", "1g.10gb", 3, SECOND, &err), 0, "%s", err.msg);
	cr_assert_not(driver_has("mig=off"));
	en_mig_free(mig);
	mig = NULL;
	add("busy gpu=0 start=2");
	cr_expect_eq(en_remove_mig(&o, &err), ERR_CONFLICT);
	cr_expect_not_null(strstr(err.msg, "1 instances that the agent made"), "%s", err.msg);
	expect_instances(0, "2g.20gb@2* 1g.10gb@6*");
	expect_instances(1, "");
	cr_expect(driver_has("mig=off"));
	take_out("busy");
	err = (struct err)ERR_INIT;
	cr_expect_eq(en_remove_mig(&o, &err), 0, "%s", err.msg);
	expect_instances(0, "1g.10gb@6*");
	hardware_nvml(&hw, "%s", "");
	hardware_file(&hw, "mig", "instance GPU-0 1 19 0 1 MIG-a\n");
	cr_expect_eq(en_remove_mig(&o, &err), ERR_IO);
}

/* ---- a driver that hangs ---- */

static _Atomic bool made;

static void *make_in_thread(void *ctx)
{
	(void)ctx;
	cr_expect_eq(make("GPU-0", "1g.10gb", 0, SECOND, NULL), 0);
	atomic_store(&made, true);
	return NULL;
}

/* A driver that hangs while it makes one does not hang who only asks for figures: /metrics and /healthz have one
 * thread. */
Test(enforcer_mig_broken, figures_while_the_driver_hangs)
{
	struct en_mig_stats stats;
	pthread_t thread;

	begin(EN_MIG_DYNAMIC);
	hardware_nvml_hang(&hw);
	cr_assert_eq(pthread_create(&thread, NULL, make_in_thread, NULL), 0);
	while (pthread_mutex_trylock(&mig->lock) == 0) { /* until the other one has it */
		pthread_mutex_unlock(&mig->lock);
		sched_yield();
	}
	en_mig_get_stats(mig, &stats);
	cr_expect_not(atomic_load(&made));
	cr_expect_eq(stats.made, 0);
	hardware_nvml_go_on(&hw);
	pthread_join(thread, NULL);
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.made, 1);
	cr_expect_eq(stats.ours, 1);
}

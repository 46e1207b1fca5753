/* Instances made, reused and removed, on the fake driver. */
#include "test/unit/mig_fixture.h"

TestSuite(enforcer_mig, .init = start, .fini = stop);

Test(enforcer_mig, made_at_the_start_that_was_chosen)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "3g.40gb", 4, 1000, &err), 0, "%s", err.msg);
	cr_assert_eq(make("GPU-0", "1g.10gb", 3, 1000, &err), 0, "%s", err.msg);
	/* Known before the next look, too. */
	en_mig_mark(mig, probe);
	cr_expect_eq(probe->gpus[0].instance_count, 2);
	expect_instances(0, "1g.10gb@3 3g.40gb@4");
}

Test(enforcer_mig, idle_ones_linger_for_equal_requests_and_then_go)
{
	struct en_mig_stats stats;
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 6, 1 * SECOND, &err), 0, "%s", err.msg);
	snprintf(held[0], sizeof(held[0]), "GPU-0/6");
	cr_expect_eq(en_mig_sweep(mig, probe, 500 * SECOND), 0, "a container holds it");
	held[0][0] = '\0';
	drop("GPU-0", 6, 501 * SECOND);
	cr_expect_eq(en_mig_sweep(mig, probe, 510 * SECOND), 0);
	cr_assert_eq(make("GPU-0", "1g.10gb", 6, 511 * SECOND, &err), 0, "%s", err.msg);
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.made, 1);
	cr_expect_eq(stats.reused, 1);
	drop("GPU-0", 6, 512 * SECOND);
	cr_expect_eq(en_mig_sweep(mig, probe, 571 * SECOND), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 572 * SECOND), 1);
	expect_instances(0, "");
	cr_expect_eq(en_mig_sweep(mig, probe, 999 * SECOND), 0, "nothing is freed twice");
}

Test(enforcer_mig, an_idle_one_makes_way_and_a_used_one_does_not)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 0, 1000, &err), 0);
	cr_assert_eq(make("GPU-0", "1g.10gb", 1, 1000, &err), 0);
	cr_expect_eq(make("GPU-0", "4g.40gb", 0, 2000, &err), ERR_CONFLICT, "they come to be");
	drop("GPU-0", 0, 3000);
	drop("GPU-0", 1, 3000);
	snprintf(held[0], sizeof(held[0]), "GPU-0/1");
	err = (struct err)ERR_INIT;
	cr_expect_eq(make("GPU-0", "4g.40gb", 0, 4000, &err), ERR_CONFLICT);
	cr_expect_not_null(strstr(err.msg, "in use at 1"), "%s", err.msg);
	held[0][0] = '\0';
	cr_assert_eq(make("GPU-0", "4g.40gb", 0, 5000, &err), 0, "%s", err.msg);
	expect_instances(0, "4g.40gb@0");
}

Test(enforcer_mig, others_are_never_touched)
{
	struct err err = ERR_INIT;
	char *script = hardware_read(&hw, "nvml");

	hardware_nvml(&hw, "%sinstance gpu=0 profile=19 id=1 start=2 size=1 uuid=MIG-x\n", script);
	free(script);
	begin(EN_MIG_DYNAMIC);
	cr_expect_eq(make("GPU-0", "2g.20gb", 2, 1000, &err), ERR_NO_ROOM);
	cr_expect_not_null(strstr(err.msg, "insufficient resources"), "%s", err.msg);
	err = (struct err)ERR_INIT;
	cr_expect_eq(make("GPU-0", "1g.10gb", 2, 1000, &err), ERR_CONFLICT);
	cr_expect_not_null(strstr(err.msg, "Tessera did not make it"), "%s", err.msg);
	cr_expect_eq(en_mig_sweep(mig, probe, 1000000 * SECOND), 0);
	expect_instances(0, "1g.10gb@2*");
}

Test(enforcer_mig, all_of_a_grant_or_none)
{
	struct en_holding h = holding("GPU-0", "1g.10gb", 0);
	struct err err = ERR_INIT;
	char *script = hardware_read(&hw, "nvml");

	hardware_nvml(&hw, "%sinstance gpu=0 profile=19 id=1 start=5 size=1 uuid=MIG-x\n", script);
	free(script);
	begin(EN_MIG_DYNAMIC);
	h.grant.count = 2;
	h.grant.start[1] = 5;
	snprintf(h.gpus[1], sizeof(h.gpus[1]), "GPU-0");
	cr_expect_eq(en_mig_make(mig, probe, &h, 1000, &err), ERR_CONFLICT);
	expect_instances(0, "1g.10gb@5*");
}

/* No compute instance can be made: the GPU instance goes again. */
Test(enforcer_mig, half_of_an_instance_is_not_left_behind)
{
	struct err err = ERR_INIT;
	char *script = hardware_read(&hw, "nvml"), *after;

	hardware_nvml(&hw, "%sfail call=nvmlGpuInstanceCreateComputeInstance code=23\n", script);
	free(script);
	begin(EN_MIG_DYNAMIC);
	cr_expect_eq(make("GPU-0", "1g.10gb", 0, 1000, &err), ERR_NO_ROOM);
	after = hardware_read(&hw, "nvml");
	cr_expect_null(strstr(after, "\ninstance"), "%s", after);
	cr_expect_not_null(strstr(after, "\ngone"));
	free(after);
}

Test(enforcer_mig, in_use_by_a_process_stays_and_is_tried_again)
{
	struct err err = ERR_INIT;
	char *script;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "2g.20gb", 4, 1 * SECOND, &err), 0);
	drop("GPU-0", 4, 2 * SECOND);
	script = hardware_read(&hw, "nvml");
	hardware_nvml(&hw, "%sbusy gpu=0 start=4\n", script);
	cr_expect_eq(en_mig_sweep(mig, probe, 100 * SECOND), 0);
	expect_instances(0, "2g.20gb@4");
	hardware_nvml(&hw, "%s", script);
	free(script);
	cr_expect_eq(en_mig_sweep(mig, probe, 101 * SECOND), 1);
	expect_instances(0, "");
}

/* The next agent knows from the file; an id that was given again is another instance. */
Test(enforcer_mig, a_new_agent_knows_what_is_ours)
{
	struct en_mig_stats stats;
	struct err err = ERR_INIT;
	char *script, *at;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 6, 1000, &err), 0);
	begin(EN_MIG_DYNAMIC);
	expect_instances(0, "1g.10gb@6");
	/* Somebody removed it and made another one, with the same id, elsewhere. */
	script = hardware_read(&hw, "nvml");
	at = strstr(script, "instance gpu=0");
	cr_assert_not_null(at);
	*at = '\0';
	hardware_nvml(&hw, "%sinstance gpu=0 profile=19 id=1 start=3 size=1 uuid=MIG-y\n", script);
	free(script);
	begin(EN_MIG_DYNAMIC);
	expect_instances(0, "1g.10gb@3*");
	(void)en_mig_sweep(mig, probe, 1 * SECOND);
	cr_expect_eq(en_mig_sweep(mig, probe, 1000 * SECOND), 0);
	expect_instances(0, "1g.10gb@3*");
	begin(EN_MIG_DYNAMIC);
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.ours, 0, "the file has forgotten it, too");
}

/* Instance gone and mode off, between two agents or under one: the GPU is free for shares at once. */
Test(enforcer_mig, a_gpu_that_others_took_out_of_mig_is_so_at_once)
{
	static const char off[] =
		"driver 615.71.09\n" HARDWARE_GPU(0, "mig=off") HARDWARE_A100_MIG(0);
	struct en_mig_stats stats;
	struct err err = ERR_INIT;
	char *on = hardware_read(&hw, "nvml");

	for (int restart = 0; restart < 2; restart++) {
		hardware_nvml(&hw, "%s", on);
		begin(EN_MIG_DYNAMIC);
		cr_assert_eq(make("GPU-0", "1g.10gb", 6, 1000, &err), 0, "%s", err.msg);
		expect_instances(0, "1g.10gb@6");
		hardware_nvml(&hw, "%s", off);
		if (restart)
			begin(EN_MIG_DYNAMIC);
		expect_instances(0, "");
		cr_expect_not(probe->gpus[0].mig_enabled);
		en_mig_get_stats(mig, &stats);
		cr_expect_eq(stats.ours, 0);
		cr_expect_eq(stats.vanished, 1);
	}
	free(on);
}

/* Not there in a look that began before it was made, or that the driver did not answer: still ours. */
Test(enforcer_mig, an_instance_is_missed_only_by_a_look_that_could_see_it)
{
	struct en_probe *old = malloc(sizeof(*old));
	struct en_mig_stats stats;
	struct err err = ERR_INIT;

	cr_assert_not_null(old);
	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 6, 1000, &err), 0);
	look();
	*old = *probe;
	cr_assert_eq(make("GPU-0", "1g.10gb", 5, 1000, &err), 0);
	en_mig_mark(mig, old);
	cr_expect_eq(old->gpus[0].instance_count, 2);
	free(old);
	hardware_nvml(&hw, "fail call=nvmlInit_v2 code=999\nfail call=nvmlDeviceGetCount_v2 "
			   "code=999\n");
	look();
	cr_expect(probe->stale);
	cr_expect_eq(probe->gpus[0].instance_count, 2);
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.ours, 2);
	cr_expect_eq(stats.vanished, 0);
}

/* Offered by a device plugin, too, which gave it to somebody's pod: it stays, and is not given again. */
Test(enforcer_mig, one_that_a_device_plugin_gave_away_is_not_idle)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "1g.10gb", 6, 1 * SECOND, &err), 0);
	drop("GPU-0", 6, 2 * SECOND);
	look();
	probe->gpus[0].instances[0].held = true;
	cr_expect_eq(make("GPU-0", "1g.10gb", 6, 3 * SECOND, &err), ERR_CONFLICT);
	cr_expect_not_null(strstr(err.msg, "given to a pod"), "%s", err.msg);
	err = (struct err)ERR_INIT;
	cr_expect_eq(make("GPU-0", "7g.80gb", 0, 3 * SECOND, &err), ERR_CONFLICT);
	cr_expect_not_null(strstr(err.msg, "in use at 6"), "%s", err.msg);
	cr_expect_eq(en_mig_sweep(mig, probe, 1000 * SECOND), 0);
	look(); /* given back */
	cr_expect_eq(en_mig_sweep(mig, probe, 1059 * SECOND), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 1060 * SECOND), 1);
}

/* Every failure is counted once, under its reason. */
Test(enforcer_mig, what_came_of_it_is_counted)
{
	struct en_mig_stats stats;
	struct err err = ERR_INIT;
	char *script;

	begin(EN_MIG_SWITCH);
	cr_assert_eq(make("GPU-0", "1g.10gb", 0, 1 * SECOND, &err), 0);
	cr_expect_eq(make("GPU-0", "4g.40gb", 0, 1 * SECOND, &err), ERR_CONFLICT);
	cr_expect_eq(make("GPU-9", "1g.10gb", 0, 1 * SECOND, &err), ERR_NOT_FOUND);
	drop("GPU-0", 0, 2 * SECOND);
	script = hardware_read(&hw, "nvml");
	hardware_nvml(&hw,
		      "%sbusy gpu=0 start=0\nprocess gpu=1 pid=4711 kind=compute mem=512\n"
		      "fail call=nvmlDeviceCreateGpuInstanceWithPlacement code=23\n",
		      script);
	look();
	cr_expect_eq(make("GPU-1", "1g.10gb", 0, 2 * SECOND, &err), ERR_CONFLICT);
	cr_expect_eq(make("GPU-0", "2g.20gb", 4, 2 * SECOND, &err), ERR_NO_ROOM);
	cr_expect_eq(en_mig_sweep(mig, probe, 10 * SECOND), 0);
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.lingering, 1);
	cr_expect_eq(en_mig_sweep(mig, probe, 100 * SECOND), 0, "in use, says the driver");
	hardware_nvml(&hw, "%s", script);
	free(script);
	cr_expect_eq(en_mig_sweep(mig, probe, 101 * SECOND), 1);
	look();
	cr_assert_eq(make("GPU-1", "1g.10gb", 0, 101 * SECOND, &err), 0);
	en_mig_get_stats(mig, &stats);
	cr_expect_eq(stats.made, 2);
	cr_expect_eq(stats.removed, 1);
	cr_expect_eq(stats.ours, 1);
	cr_expect_eq(stats.lingering, 0);
	cr_expect_eq(stats.switched_on, 1);
	cr_expect_eq(stats.switched_off, 0);
	for (int f = 0; f < EN_MIG_FAILURES; f++)
		cr_expect_eq(stats.failed[f], 1, "%s", en_mig_failure_name((enum en_mig_failure)f));
}

/* After a reboot nothing is there, and the file is not either. */
Test(enforcer_mig, a_reboot_heals)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_assert_eq(make("GPU-0", "3g.40gb", 4, 1000, &err), 0);
	hardware_remove(&hw, "mig");
	hardware_nvml(&hw, "driver 615.71.09\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(0));
	begin(EN_MIG_DYNAMIC);
	expect_instances(0, "");
	cr_assert_eq(make("GPU-0", "3g.40gb", 4, 2000, &err), 0, "%s", err.msg);
	expect_instances(0, "3g.40gb@4");
}

Test(enforcer_mig, modes_are_switched_where_no_reset_is_needed)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_DYNAMIC);
	cr_expect_eq(make("GPU-1", "1g.10gb", 6, 1 * SECOND, &err), ERR_CONFLICT);
	cr_expect_not(probe->gpus[1].mig_switchable);
	begin(EN_MIG_SWITCH);
	cr_expect_not(probe->gpus[0].mig_switchable, "an A100 wants a reset");
	cr_expect(probe->gpus[1].mig_switchable);
	err = (struct err)ERR_INIT;
	cr_assert_eq(make("GPU-1", "1g.10gb", 6, 1 * SECOND, &err), 0, "%s", err.msg);
	expect_instances(1, "1g.10gb@6");
	cr_expect(probe->gpus[1].mig_enabled);
	drop("GPU-1", 6, 2 * SECOND);
	cr_expect_eq(en_mig_sweep(mig, probe, 62 * SECOND), 1, "the instance");
	look();
	cr_expect_eq(en_mig_sweep(mig, probe, 63 * SECOND), 0);
	cr_expect_eq(en_mig_sweep(mig, probe, 130 * SECOND), 1, "the mode");
	look();
	cr_expect_not(probe->gpus[1].mig_enabled);
}

Test(enforcer_mig, a_gpu_with_processes_is_not_switched)
{
	struct err err = ERR_INIT;
	char *script = hardware_read(&hw, "nvml");

	hardware_nvml(&hw, "%sprocess gpu=1 pid=4711 kind=compute mem=512\n", script);
	free(script);
	begin(EN_MIG_SWITCH);
	cr_expect_eq(make("GPU-1", "1g.10gb", 6, 1000, &err), ERR_CONFLICT);
	look();
	cr_expect_not(probe->gpus[1].mig_enabled);
}

Test(enforcer_mig, nothing_is_made_where_instances_are_cut_beforehand)
{
	struct err err = ERR_INIT;

	begin(EN_MIG_STATIC);
	cr_expect(probe->gpus[0].mig_static);
	cr_expect_eq(make("GPU-0", "1g.10gb", 0, 1000, &err), 0);
	expect_instances(0, "");
}

Test(enforcer_mig, the_inventory_says_whose_they_are)
{
	struct err err = ERR_INIT;
	char *text;

	begin(EN_MIG_SWITCH);
	cr_assert_eq(make("GPU-0", "1g.10gb", 6, 1000, &err), 0);
	look();
	cr_assert_eq(en_inventory_encode(probe, &text, &err), 0);
	cr_expect_not_null(strstr(text, "{\"profile\":\"1g.10gb\",\"start\":6,\"ours\":true}"),
			   "%s", text);
	cr_expect_not_null(strstr(text, "\"switchable\":true"));
	free(text);
}

/* Work over several threads has the outcome of one thread. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "replay/command.h"
#include "replay/jobs.h"

struct tasks {
	int seen[200];
	size_t fail_from;
};

static int square(void *ctx, size_t i, struct rp_job *job, struct err *err)
{
	struct tasks *t = ctx;

	rp_job_progress(job, 1, 2);
	t->seen[i] = (int)(i * i);
	if (i >= t->fail_from)
		return err_set(err, ERR_INVALID, "task %zu", i);
	return 0;
}

Test(replay_jobs, every_task_runs_once_whatever_the_number_of_threads)
{
	static const size_t threads[] = {1, 2, 7, 500};

	for (size_t k = 0; k < sizeof(threads) / sizeof(threads[0]); k++) {
		struct tasks t = {.fail_from = 200};
		struct err err = ERR_INIT;

		cr_assert_eq(rp_jobs_run(200, threads[k], square, &t, NULL, &err), 0);
		for (int i = 0; i < 200; i++)
			cr_expect_eq(t.seen[i], i * i, "%zu threads, task %d", threads[k], i);
	}
	cr_expect_eq(rp_jobs_run(0, 3, square, NULL, NULL, NULL), 0);
	cr_expect_geq(rp_jobs_default(), 1);
}

Test(replay_jobs, the_first_failure_by_number_is_reported)
{
	for (int round = 0; round < 50; round++) {
		struct tasks t = {.fail_from = 17};
		struct err err = ERR_INIT;

		cr_assert_eq(rp_jobs_run(200, 8, square, &t, NULL, &err), ERR_INVALID);
		cr_expect_str_eq(err.msg, "task 17");
		cr_expect_eq(t.seen[199], 0);
	}
}

static char *csv_of(char *jobs)
{
	const struct rp_command self = {"run", "", "", rp_cmd_run};
	char path[] = "/tmp/tessera-XXXXXX";
	char *argv[] = {(char[]){"--nodes"},
			(char[]){"test/golden/small/nodes.csv"},
			(char[]){"--pods"},
			(char[]){"test/golden/small/pods.csv"},
			(char[]){"--seed"},
			(char[]){"1-3,9"},
			(char[]){"--policy"},
			(char[]){"all"},
			(char[]){"--ties"},
			(char[]){"rank,random"},
			(char[]){"--csv"},
			path,
			(char[]){"--quiet"},
			(char[]){"--jobs"},
			jobs};
	struct err err = ERR_INIT;
	char *text = NULL;
	size_t len;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_not_null(freopen("/dev/null", "w", stdout));
	cr_assert_eq(rp_cmd_run(&self, (int)(sizeof(argv) / sizeof(argv[0])), argv), 0);
	cr_assert_eq(file_read(path, 1 << 24, &text, &len, &err), 0, "%s", err.msg);
	unlink(path);
	return text;
}

Test(replay_jobs, the_curves_of_a_run_do_not_depend_on_the_jobs)
{
	char *one = csv_of((char[]){"1"}), *five = csv_of((char[]){"5"});

	cr_assert_gt(strlen(one), 1000);
	cr_expect_str_eq(one, five);
	free(one);
	free(five);
}

Test(replay_jobs, time_left_is_told_once_there_is_something_to_go_by)
{
	char buf[RP_LEFT_CAP];

	cr_expect_str_eq(rp_progress_left(100, 1, 10, buf), "");
	cr_expect_str_eq(rp_progress_left(9000, 0, 10, buf), "");
	cr_expect_str_eq(rp_progress_left(2000, 1, 5, buf), "9 s left");
	cr_expect_str_eq(rp_progress_left(60000, 1, 6, buf), "6 min left");
	cr_expect_str_eq(rp_progress_left(3600000, 1, 6, buf), "5 h left");
}

/* The commands as they are called: exit status, and the files they write. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "kube/object.h"
#include "replay/command.h"
#include "test/lib/temp_file.h"

#define NODES "test/golden/small/nodes.csv"
#define PODS "test/golden/small/pods.csv"
#define ORDER "test/golden/small/order.txt"
#define ARGS_MAX 16

typedef int (*command_fn)(const struct rp_command *, int, char **);

/* Runs the command on words split at blanks; its output goes to the file where one is named. */
static int call(command_fn fn, const char *words, const char *out)
{
	const struct rp_command self = {"cmd", "", "", fn};
	char text[1024], *argv[ARGS_MAX], *rest = text;
	int argc = 0, status;

	snprintf(text, sizeof(text), "%s", words);
	while (rest != NULL && argc < ARGS_MAX) {
		argv[argc] = strsep(&rest, " ");
		if (argv[argc][0] != '\0')
			argc++;
	}
	cr_assert_not_null(freopen(out != NULL ? out : "/dev/null", "w", stdout));
	status = fn(&self, argc, argv);
	fflush(stdout);
	return status;
}

static char *slurp(const char *path)
{
	struct err err = ERR_INIT;
	char *text = NULL;
	size_t len;

	cr_assert_eq(file_read(path, 1 << 24, &text, &len, &err), 0, "%s", err.msg);
	return text;
}

Test(replay_commands, exit_status_of_run)
{
	static const struct {
		const char *words;
		int status;
	} rows[] = {
		{"--help", 0},
		{"--nodes " NODES " --pods " PODS, 0},
		{"--nodes " NODES " --pods " PODS " --order " ORDER " --policy all --quiet", 0},
		{"--nodes=" NODES " --pods=" PODS " --seed=1,2 --ties rank,random --check", 0},
		{"--nodes " NODES " --pods " PODS " --inflate 0.5 --workload online --json", 0},
		{"--nodes " NODES " --pods " PODS " --time made --queue none --json --check", 0},
		{"--nodes " NODES " --pods " PODS " --time stays --max-wait 9 --seed 1-3", 0},
		{"--nodes " NODES " --pods " PODS " --time trace", 2},
		{"--nodes " NODES " --pods " PODS " --time never", 2},
		{"--nodes " NODES " --pods " PODS " --queue fifo", 2},
		{"--nodes " NODES " --pods " PODS " --time made --queue lifo", 2},
		{"--nodes " NODES " --pods " PODS " --time made --inflate 2", 2},
		{"--nodes " NODES " --pods " PODS " --jobs 0", 2},
		{"--mig-workload thirds --mig-gpus 4 --mig-gpus-per-node 2 --seed 1-3", 0},
		{"--mig-workload ends --mig-gpus 2 --mig-gpus-per-node 2 --mig-bounds --seed 1-2",
		 0},
		{"--mig-workload 1g.6gb=2,4g.24gb=1 --mig-product NVIDIA-A30 --mig-gpus 2 "
		 "--mig-gpus-per-node 1 --mig-length 3 --workload online --policy ca-fgd --json",
		 0},
		{"--mig-workload most", 2},
		{"--mig-workload 1g.5gb=0", 2},
		{"--mig-workload uniform --mig-product T4", 2},
		{"--mig-workload uniform --mig-gpus 9", 2},
		{"--mig-workload uniform --nodes " NODES, 2},
		{"--mig-workload uniform --seed 3-1", 2},
		{"", 2},
		{"--nodes " NODES, 2},
		{"--nope", 2},
		{"--nodes " PODS " --pods " NODES, 2},
		{"--nodes /nonexistent --pods " PODS, 2},
		{"--nodes " NODES " --pods " PODS " --policy best", 2},
		{"--nodes " NODES " --pods " PODS " --policy fgd,fgd", 2},
		{"--nodes " NODES " --pods " PODS " --policy fgd,", 2},
		{"--nodes " NODES " --pods " PODS " --ties coin", 2},
		{"--nodes " NODES " --pods " PODS " --workload guess", 2},
		{"--nodes " NODES " --pods " PODS " --seed 1,x", 2},
		{"--nodes " NODES " --pods " PODS " --inflate -1", 2},
		{"--nodes " NODES " --pods " PODS " --order " PODS, 2},
		{"--nodes " NODES " --pods " PODS " --order " ORDER " --inflate 2", 2},
		{"--nodes " NODES " --pods " PODS " --decisions x --seed 1,2", 2},
		{"--nodes " NODES " --pods " PODS " --csv /nonexistent/x", 2},
		{"--nodes " NODES " --pods " PODS " --csv " NODES, 2},
		{"--nodes " NODES " --pods " PODS " --csv /tmp/tessera-t --html /tmp/tessera-t", 2},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(call(rp_cmd_run, rows[i].words, NULL), rows[i].status, "%s",
			     rows[i].words);
}

Test(replay_commands, run_writes_json_curves_and_decisions)
{
	char json_path[32], csv_path[32], rows_path[32], words[512], *text;
	const cJSON *alloc;
	struct err err = ERR_INIT;
	cJSON *root;

	snprintf(words, sizeof(words),
		 "--nodes " NODES " --pods " PODS " --order " ORDER
		 " --policy fgd --json --csv %s --decisions %s",
		 temp_file(csv_path), temp_file(rows_path));
	cr_assert_eq(call(rp_cmd_run, words, temp_file(json_path)), 0);
	text = slurp(json_path);
	cr_assert_eq(ku_json_parse(text, strlen(text), &root, &err), 0, "%s", err.msg);
	free(text);
	cr_assert_eq(cJSON_GetArraySize(root), 1);
	cr_assert_str_eq(cJSON_GetObjectItem(root->child, "policy")->valuestring, "fgd");
	cr_assert_str_eq(cJSON_GetObjectItem(root->child, "ties")->valuestring, "rank");
	cr_assert_eq(cJSON_GetObjectItem(root->child, "pods")->valuedouble, 165);
	cr_assert_eq(cJSON_GetObjectItem(root->child, "placed")->valuedouble, 133);
	cr_assert_eq(cJSON_GetObjectItem(root->child, "failed")->valuedouble, 32);
	cr_assert_eq(cJSON_GetObjectItem(root->child, "used_gpu_milli")->valuedouble, 117850);
	cr_assert_str_eq(cJSON_GetObjectItem(root->child, "placements_crc32")->valuestring,
			 "645f6ebe");
	alloc = cJSON_GetObjectItem(root->child, "alloc_pct");
	cr_assert(cJSON_IsNumber(cJSON_GetObjectItem(alloc, "100")));
	cr_assert(cJSON_IsObject(cJSON_GetObjectItem(root->child, "frag_pct")));
	cr_assert(cJSON_IsNumber(cJSON_GetObjectItem(root->child, "wall_s")));
	cJSON_Delete(root);

	text = slurp(rows_path);
	cr_assert_eq(strncmp(text, "step,pod,node,gpus,frag_num\n0,", 30), 0);
	free(text);
	text = slurp(csv_path);
	cr_assert_not_null(strstr(text, "\nfgd,rank,42,100,"));
	free(text);
	unlink(json_path);
	unlink(csv_path);
	unlink(rows_path);
}

/* One side of what whatif prints, a number of it. */
static double side_value(const cJSON *root, const char *side, const char *key)
{
	const cJSON *v = cJSON_GetObjectItem(cJSON_GetObjectItem(root, side), key);

	cr_assert(cJSON_IsNumber(v), "%s.%s", side, key);
	return v->valuedouble;
}

/* Filling up, and with pods that leave again: the same arrivals meet the cluster before and after. */
Test(replay_commands, whatif_with_and_without_time)
{
	static const struct {
		const char *words, *lost; /* what must be more with fewer nodes */
	} rows[] = {
		{"", "failed"},
		{" --time made --queue none --load 0.9 --arrivals 400", "refused_gpu_pct"},
		{" --time made --load 0.9 --arrivals 400", "wait_mean_s"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char path[32], words[512], *text;
		struct err err = ERR_INIT;
		cJSON *root;

		snprintf(words, sizeof(words),
			 "--nodes " NODES " --pods " PODS
			 " --remove-nodes 3 --seed 1,2 --json --quiet%s",
			 rows[i].words);
		cr_assert_eq(call(rp_cmd_whatif, words, temp_file(path)), 0, "%s", words);
		text = slurp(path);
		cr_assert_eq(ku_json_parse(text, strlen(text), &root, &err), 0, "%s", err.msg);
		free(text);
		cr_expect_lt(side_value(root, "after", "gpus"), side_value(root, "before", "gpus"));
		cr_expect_eq(side_value(root, "after", "pods"), side_value(root, "before", "pods"));
		cr_expect_gt(side_value(root, "after", rows[i].lost),
			     side_value(root, "before", rows[i].lost), "%s", rows[i].lost);
		cJSON_Delete(root);
		unlink(path);
	}
	cr_expect_eq(call(rp_cmd_whatif,
			  "--nodes " NODES " --pods " PODS " --remove-nodes 1 --load 0.5", NULL),
		     2);
	cr_expect_eq(call(rp_cmd_whatif,
			  "--nodes " NODES " --pods " PODS
			  " --remove-nodes 1 --time made --inflate 2",
			  NULL),
		     2);
}

/* What the command prints, to be freed. */
static char *printed(command_fn fn, const char *words)
{
	char path[32], *text;

	cr_assert_eq(call(fn, words, temp_file(path)), 0, "%s", words);
	text = slurp(path);
	unlink(path);
	return text;
}

/* One seed has no deviation, and is not "1 seeds". */
Test(replay_commands, one_seed_has_no_deviation)
{
	static const struct {
		command_fn fn;
		const char *words, *one, *two; /* what is printed for one seed, and for two */
	} rows[] = {
		{rp_cmd_run,
		 "--mig-workload thirds --mig-gpus 4 --mig-gpus-per-node 4 --mig-length 2",
		 "1 node with 4 GPUs each (A100-40GB), thirds, load 1.200, 1 seed\n",
		 ", 2 seeds\n"},
		{rp_cmd_run, "--nodes " NODES " --pods " PODS, "% of the cluster.\n",
		 "\nthe seeds."},
		{rp_cmd_whatif, "--nodes " NODES " --pods " PODS " --remove-nodes 1",
		 "Mean of 1 seed;", "Mean of 2 seeds;"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int seeds = 1; seeds <= 2; seeds++) {
			char words[512], *text;

			snprintf(words, sizeof(words), "%s --seed 1-%d", rows[i].words, seeds);
			text = printed(rows[i].fn, words);
			cr_expect_eq(strstr(text, rows[i].one) != NULL, seeds == 1, "%s", text);
			cr_expect_eq(strstr(text, rows[i].two) != NULL, seeds == 2, "%s", text);
			free(text);
		}
}

Test(replay_commands, mig_bounds_as_json)
{
	for (int seeds = 1; seeds <= 2; seeds++) {
		char words[256], *text;
		const cJSON *ours, *bound, *best;
		struct err err = ERR_INIT;
		cJSON *root;

		snprintf(words, sizeof(words),
			 "--mig-workload 3g.20gb=4,4g.20gb=1 --policy firstfit,ca-fgd --mig-gpus 2 "
			 "--mig-gpus-per-node 1 --mig-bounds --json --seed 1-%d",
			 seeds);
		text = printed(rp_cmd_run, words);
		cr_assert_eq(ku_json_parse(text, strlen(text), &root, &err), 0, "%s", err.msg);
		free(text);
		cr_assert_eq(cJSON_GetArraySize(root), 5);
		ours = cJSON_GetArrayItem(root, 1);
		bound = cJSON_GetArrayItem(root, 2);
		best = cJSON_GetArrayItem(root, 3);
		cr_expect_str_eq(cJSON_GetObjectItem(ours, "policy")->valuestring, "ca-fgd");
		for (size_t i = 0; i < 3; i++) {
			static const char *const keys[] = {"placed_more_percent",
							   "units_more_percent",
							   "stranded_more_percent"};
			const cJSON *pair = cJSON_GetObjectItem(ours, keys[i]);

			cr_expect(cJSON_IsNumber(cJSON_GetArrayItem(pair, 0)));
			cr_expect_eq(cJSON_IsNull(cJSON_GetArrayItem(pair, 1)), seeds == 1);
			cr_expect_eq(cJSON_IsNumber(cJSON_GetArrayItem(pair, 1)), seeds == 2);
		}
		cr_expect_str_eq(cJSON_GetObjectItem(bound, "policy")->valuestring, "(movable)");
		cr_expect_null(cJSON_GetObjectItem(bound, "stranded_units"));
		cr_expect_str_eq(cJSON_GetObjectItem(best, "policy")->valuestring, "(best)");
		cr_expect_gt(cJSON_GetObjectItem(best, "stranded_units")->valuedouble, 0.05);
		cr_expect_lt(cJSON_GetObjectItem(best, "stranded_units")->valuedouble,
			     cJSON_GetObjectItem(best, "stranded_units_firstfit")->valuedouble);
		cJSON_Delete(root);
	}
}

Test(replay_commands, cluster_and_generate_print_what_run_reads)
{
	char nodes[32], pods[32], json[32], words[512];

	cr_assert_eq(call(rp_cmd_generate, "--kind nodes --count 20 --seed 3", temp_file(nodes)),
		     0);
	cr_assert_eq(
		call(rp_cmd_generate, "--kind pods --gpus-total 60 --spec 10", temp_file(pods)), 0);
	snprintf(words, sizeof(words), "--nodes %s --gpu-mib 40000", nodes);
	cr_assert_eq(call(rp_cmd_cluster, words, temp_file(json)), 0);
	snprintf(words, sizeof(words), "--nodes %s --pods %s --check", json, pods);
	cr_assert_eq(call(rp_cmd_run, words, NULL), 0);
	cr_assert_eq(call(rp_cmd_cluster, "", NULL), 2);
	cr_assert_eq(call(rp_cmd_cluster, "--nodes " PODS, NULL), 2);
	cr_assert_eq(call(rp_cmd_generate, "--kind trees", NULL), 2);
	cr_assert_eq(call(rp_cmd_generate, "", NULL), 2);
	cr_assert_eq(call(rp_cmd_generate, "--kind pods --mix x=1", NULL), 2);
	unlink(nodes);
	unlink(pods);
	unlink(json);
}

Test(replay_commands, exit_status_of_drive)
{
	static const struct {
		const char *words;
		int status;
	} rows[] = {
		{"--help", 0},
		{"--nodes " NODES " --pods " PODS, 2},
		{"--extender ftp://x --nodes " NODES " --pods " PODS, 2},
		{"--extender http://127.0.0.1:1 --pods " PODS, 2},
		{"--extender http://127.0.0.1:1 --nodes " NODES " --pods " PODS " --seed 1,2", 2},
		{"--extender http://127.0.0.1:1 --nodes " NODES " --pods " PODS
		 " --scheduler-ties last",
		 2},
		{"--extender http://127.0.0.1:1 --nodes " NODES " --pods " PODS " --concurrency 0",
		 2},
		{"--extender http://127.0.0.1:1 --nodes " NODES " --pods " PODS, 1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(call(rp_cmd_drive, rows[i].words, NULL), rows[i].status, "%s",
			     rows[i].words);
}

/* What the commands say to somebody who calls them for the first time. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "replay/command.h"
#include "test/lib/temp_file.h"

#define ARGS_MAX 16

#define NODE(name, gpus, labels)                                                                   \
	"{\"kind\":\"Node\",\"metadata\":{\"name\":\"" name "\",\"labels\":{" labels               \
	"}},\"status\":{\"allocatable\":{\"cpu\":\"8\",\"memory\":\"32Gi\",\"pods\":\"110\","      \
	"\"nvidia.com/gpu\":\"" gpus "\"},\"conditions\":[{\"type\":\"Ready\",\"status\":"         \
	"\"True\"}]}}"
#define A100                                                                                       \
	"\"nvidia.com/gpu.product\":\"A100\",\"nvidia.com/gpu.memory\":\"40000\","                 \
	"\"nvidia.com/gpu.count\":\"2\""
#define POD(name, node, annotations, gpus)                                                         \
	"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"" name                                         \
	"\",\"namespace\":\"d\",\"annotations\":{" annotations "}},\"spec\":{" node                \
	"\"containers\":[{\"name\":\"m\",\"resources\":{\"limits\":{" gpus                         \
	"},\"requests\":{\"cpu\":\"1\",\"memory\":\"1Gi\"}}}]},\"status\":{\"phase\":"             \
	"\"Pending\"}}"
#define ON(node) "\"nodeName\":\"" node "\","
#define WHOLE(n) "\"nvidia.com/gpu\":\"" n "\""
#define LIST(items) "{\"kind\":\"List\",\"items\":[" items "]}"

struct said {
	int status;
	char *text; /* standard output and standard error together */
};

/* Runs the command on words split at blanks, of which "FILE" is a file with that text. */
static struct said say(int (*fn)(const struct rp_command *, int, char **), const char *words,
		       const char *file)
{
	const struct rp_command self = {"cmd", "", "", fn};
	char text[1024], in[32], out[32], *argv[ARGS_MAX], *rest = text;
	struct said said = {0};
	struct err err = ERR_INIT;
	size_t len;
	int argc = 0;

	temp_file(in);
	temp_file(out);
	if (file != NULL)
		cr_assert_eq(file_replace(in, file, strlen(file), &err), 0, "%s", err.msg);
	snprintf(text, sizeof(text), "%s", words);
	while (rest != NULL && argc < ARGS_MAX) {
		argv[argc] = strsep(&rest, " ");
		if (strcmp(argv[argc], "FILE") == 0)
			argv[argc] = in;
		argc++;
	}
	cr_assert_not_null(freopen(out, "w", stdout));
	cr_assert_not_null(freopen(out, "a", stderr));
	said.status = fn(&self, argc, argv);
	fflush(stdout);
	fflush(stderr);
	cr_assert_eq(file_read(out, 1 << 20, &said.text, &len, &err), 0, "%s", err.msg);
	unlink(in);
	unlink(out);
	return said;
}

#define EXPECT_SAID(fn, words, file, want_status, part)                                            \
	do {                                                                                       \
		struct said s = say(fn, words, file);                                              \
                                                                                                   \
		cr_expect_eq(s.status, want_status, "%s: %d: %s", words, s.status, s.text);        \
		cr_expect_not_null(strstr(s.text, part), "%s: no \"%s\" in: %s", words, part,      \
				   s.text);                                                        \
		free(s.text);                                                                      \
	} while (0)

#define TYPE "name=A,cpu=8,memory=32Gi,gpus=2"

Test(replay_messages, plan_takes_pods_without_nodes)
{
	const char *memory = LIST(POD("a", "", "\"gpu-memory\":\"20Gi\"", "") "," POD(
		"b", "", "\"gpu-memory\":\"20Gi\"", "") "," POD("c", "", "\"gpu-memory\":\"20Gi\"",
								""));
	const char *whole = LIST(POD("a", "", "", WHOLE("1")) "," POD("b", "", "", WHOLE("2")));

	/* Two of 20 GiB share a GPU of 40 GiB, so one node does; GPUs of 39 GiB take one each. */
	EXPECT_SAID(rp_cmd_plan, "--pods FILE --quiet --node-type " TYPE ",gpu-memory=40Gi", memory,
		    0, "A                           1        2");
	EXPECT_SAID(rp_cmd_plan, "--pods FILE --quiet --node-type " TYPE ",gpu-memory=39Gi", memory,
		    0, "A                           2        4");
	EXPECT_SAID(rp_cmd_plan, "--pods FILE --quiet --node-type " TYPE, memory, 2,
		    "gpu-memory) is missing");
	EXPECT_SAID(rp_cmd_plan, "--pods FILE --quiet --node-type " TYPE, whole, 0,
		    "A                           2        4");
	EXPECT_SAID(rp_cmd_plan, "--pods FILE --quiet --node-type " TYPE,
		    LIST(NODE("n", "2", A100)), 2, "no pending pods");
}

Test(replay_messages, defrag_names_pods_that_stay_and_nodes_that_are_empty)
{
	const char *held = LIST(NODE("a", "2", A100) "," NODE("b", "2", A100) "," POD(
		"p", ON("a"), "", WHOLE("1")) "," POD("q", ON("a"), "", WHOLE("1")));
	const char *full = LIST(NODE("a", "2", A100) "," POD("p", ON("a"), "", WHOLE("2")));
	const char *bare = LIST(NODE("a", "2", A100) "," NODE("b", "2", A100));

	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --for gpus=2", held, 0,
		    "It fits on b as it is.\n  2 pods without a tessera allocation are taken as "
		    "fixed\n");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --for gpus=2 --json", held, 0,
		    "\"fixed_pods\":\t2");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --for gpus=2 --kubectl", held, 0,
		    "# It fits on b as it is.\n# 2 pods without");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --for gpus=2", full, 1,
		    "(pods without a tessera allocation are taken as fixed: 1)");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --free-nodes 1", held, 1,
		    "already empty, beside these: b\n");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --free-nodes 1 --json", bare, 1,
		    "\"already_empty\":\t[\"a\", \"b\"]");
	EXPECT_SAID(
		rp_cmd_defrag, "--cluster FILE --free-nodes 2 --kubectl", bare, 1,
		"# No node can be emptied by moving its pods.\n# already empty, beside these: a, "
		"b\n");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --for gpus=1,product=H100|T4", bare, 2,
		    "no node has product \"H100|T4\" (there are: A100)");
	EXPECT_SAID(rp_cmd_defrag, "--cluster FILE --for gpus=1,product=H100|A100", bare, 0,
		    " as it is.\n");
}

#define SMALL "--nodes test/golden/small/nodes.csv --pods test/golden/small/pods.csv"

Test(replay_messages, a_file_without_a_place_is_told_before_the_run)
{
	static const char *const options[] = {"csv", "html", "svg", "decisions"};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		char words[256], part[128];

		snprintf(words, sizeof(words), SMALL " --%s /nonexistent/x", options[i]);
		snprintf(
			part, sizeof(part),
			"cmd: --%s: /nonexistent/x cannot be written: folder /nonexistent: No such",
			options[i]);
		EXPECT_SAID(rp_cmd_run, words, NULL, 2, part);
	}
	EXPECT_SAID(rp_cmd_run, SMALL " --csv /tmp", NULL, 2, "--csv: /tmp is a folder");
	EXPECT_SAID(rp_cmd_run, SMALL " --csv FILE/x", NULL, 2, "/x cannot be written");
	EXPECT_SAID(rp_cmd_run, SMALL " --csv /dev/null", NULL, 0, "placed");
}

Test(replay_messages, the_policies_named_are_those_there_are)
{
	char names[512] = "";

	for (size_t i = 0; po_policy_at(i) != NULL; i++) {
		size_t used = strlen(names);

		snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
			 po_policy_at(i)->name);
	}
	cr_expect_str_eq(RP_POLICY_NAMES, names);
	EXPECT_SAID(rp_cmd_run, "--help", NULL, 0, names);
}

#define USED(workload)                                                                             \
	"{\"namespace\":\"ns\",\"kind\":\"Deployment\",\"workload\":\"" workload                   \
	"\",\"container\":\"a-container-of-a-long-name\",\"samples\":1}"

Test(replay_messages, columns_are_as_wide_as_names)
{
	EXPECT_SAID(rp_cmd_sizing, "--usage FILE",
		    "{\"version\":1,\"workloads\":[" USED("w") "," USED(
			    "a-workload-whose-name-is-longer-than-most") "]}",
		    0,
		    "ns/Deployment/a-workload-whose-name-is-longer-than-most "
		    "a-container-of-a-long-name         -         -         0         0     -      "
		    "   1  not measured\n"
		    "ns/Deployment/w                                         "
		    "a-container-of-a-long-name         -         -         0");
}

Test(replay_messages, a_mix_says_what_is_missing)
{
	EXPECT_SAID(rp_cmd_generate, "--kind nodes --mix A100:8x96", NULL, 2,
		    "--mix: \"A100:8x96\": the weight is missing (MODEL:GPUSxCORES:WEIGHT)");
	EXPECT_SAID(rp_cmd_generate, "--kind nodes --mix A100:8", NULL, 2, "the cores are missing");
	EXPECT_SAID(rp_cmd_generate, "--kind nodes --mix A100", NULL, 2, "the GPUs are missing");
}

Test(replay_messages, a_plan_that_fails_names_the_pods_that_fit_nowhere)
{
	const char *pods =
		LIST(POD("one", "", "", WHOLE("1")) "," POD("big", "", "", WHOLE("4")) "," POD(
			"picky", "", "\"tessera.dev/gpu-product\":\"H100\"",
			WHOLE("1")) "," POD("big2", "", "", WHOLE("4")));

	EXPECT_SAID(rp_cmd_plan, "--pods FILE --quiet --node-type " TYPE, pods, 1,
		    "25.00 % of 4 pods; on no type fit: 2 like d/big (node has fewer GPUs than "
		    "asked for), 1 like d/picky (no GPU of an accepted product)\n");
}

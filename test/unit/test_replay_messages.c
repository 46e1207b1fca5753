/* What the commands say to somebody who calls them for the first time. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "replay/command.h"

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

static const char *temp(char path[32])
{
	int fd;

	snprintf(path, 32, "/tmp/tessera-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	close(fd);
	return path;
}

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

	temp(in);
	temp(out);
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

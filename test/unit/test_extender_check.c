/* --check-config says what a start would fail on, in the same words, and touches nothing. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

static char dir[] = "/tmp/tessera-check-XXXXXX";

static void put_file(const char *name, const char *text)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	cr_assert_not_null(f);
	fputs(text, f);
	cr_assert_eq(fclose(f), 0);
}

static void copy_file(const char *name)
{
	char from[100], *text = NULL;
	size_t len;

	snprintf(from, sizeof(from), "test/lib/tls/%s", name);
	cr_assert_eq(file_read(from, 65536, &text, &len, NULL), 0);
	put_file(name, text);
	free(text);
}

static void init(void)
{
	char path[200];

	cr_assert_not_null(mkdtemp(dir));
	put_file("none.json", "{\"kind\":\"List\",\"items\":[]}");
	put_file("cluster.json",
		 "{\"kind\":\"List\",\"items\":[{\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\","
		 "\"labels\":{\"nvidia.com/gpu.memory\":\"40960\",\"nvidia.com/gpu.count\":\"4\","
		 "\"nvidia.com/gpu.product\":\"NVIDIA-L40\"}},\"status\":{\"conditions\":[{"
		 "\"type\":\"Ready\",\"status\":\"True\"}],\"allocatable\":{\"cpu\":\"8\","
		 "\"memory\":\"32Gi\",\"pods\":\"110\"}}}]}");
	put_file("half.json", "{\"kind\":");
	put_file("notes.txt", "not a journal\n");
	put_file("tail.log", "a line that has no end");
	put_file("bad.pem", "-----BEGIN nothing\n");
	put_file("empty.log", "");
	copy_file("server.crt");
	copy_file("server.key");
	put_file("bad.yaml", "threads: many\n");
	put_file("kubeconfig", "apiVersion: v1\nkind: Config\nclusters: []\n");
	snprintf(path, sizeof(path), "%s/folder", dir);
	cr_assert_eq(mkdir(path, 0755), 0);
}

static void fini(void)
{
	char command[200];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	cr_expect_eq(system(command), 0);
}

TestSuite(extender_check, .init = init, .fini = fini);

/* Runs the extender with these arguments in our folder; its exit status, and what it wrote. */
static int run(const char *line, bool check, struct buf *ret)
{
	char command[1500], program[300], part[256];
	ssize_t n;
	FILE *p;

	n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	cr_assert_gt(n, 0);
	program[n] = '\0';
	strrchr(program, '/')[1] = '\0';
	snprintf(command, sizeof(command), "cd '%s' && '%stessera-extender' %s%s 2>&1", dir,
		 program, line, check ? " --check-config" : "");
	p = popen(command, "r");
	cr_assert_not_null(p);
	while (fgets(part, sizeof(part), p) != NULL)
		buf_puts(ret, part);
	return WEXITSTATUS(pclose(p));
}

#define CLUSTER "--cluster cluster.json "
#define TLS "--tls-cert server.crt --tls-key server.key "

/* Each fails a start, so it ends by itself. */
static const struct {
	const char *args, *words;
	int status;
} wrong[] = {
	{"--cluster no.json", "--cluster: no.json: No such file", 2},
	{"--cluster folder", "--cluster: folder: Is a directory", 2},
	{"--cluster half.json", "--cluster: half.json: JSON", 2},
	{CLUSTER "--journal notes.txt",
	 "--journal: notes.txt: not a journal of tessera-extender: ", 2},
	{CLUSTER "--journal tail.log", "tail.log: not a journal of tessera-extender", 2},
	{CLUSTER "--journal folder", "folder", 2},
	{CLUSTER "--journal nowhere/j.log", "nowhere/j.log: No such file or directory", 2},
	{CLUSTER "--tls-cert bad.pem --tls-key bad.pem", "--tls-cert, --tls-key: bad.pem", 2},
	{CLUSTER "--tls-cert no.pem --tls-key no.pem", "--tls-cert, --tls-key: no.pem", 2},
	{CLUSTER TLS "--tls-client-ca notes.txt", "--tls-client-ca: notes.txt: no certificate", 2},
	{CLUSTER TLS "--tls-client-ca folder", "--tls-client-ca: folder: Is a directory", 2},
	{CLUSTER "--tls-cert bad.pem", "--tls-cert and --tls-key go together", 2},
	{CLUSTER "--listen nonsense", "--listen: \"nonsense\" is not ADDR:PORT", 2},
	{CLUSTER "--listen 192.0.2.1:0", "--listen: cannot listen on 192.0.2.1:0", 1},
	{CLUSTER "--config bad.yaml", "threads", 2},
	{CLUSTER "--config no.yaml", "tessera-extender: --config: no.yaml: No such file", 2},
	{"--kubeconfig no-such", "--kubeconfig: no-such: No such file", 2},
	{"--kubeconfig folder", "--kubeconfig: folder: Is a directory", 2},
	{"--kubeconfig kubeconfig", "--kubeconfig: kubeconfig: current-context: is missing", 2},
	{"--in-cluster", "--in-cluster: KUBERNETES_SERVICE_HOST", 2},
};

Test(extender_check, says_what_a_start_would_say)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct buf start = BUF_INIT, check = BUF_INIT;
		int status = wrong[i].status;

		cr_expect_eq(run(wrong[i].args, false, &start), status, "%s", wrong[i].args);
		cr_expect_eq(run(wrong[i].args, true, &check), status, "%s", wrong[i].args);
		cr_expect(strstr(buf_str(&check), wrong[i].words) != NULL, "%s: %s", wrong[i].args,
			  buf_str(&check));
		cr_expect_str_eq(buf_str(&check), buf_str(&start));
		buf_fini(&start);
		buf_fini(&check);
	}
}

/* Starts it for real and reads its words until it serves; it is ended then. */
Test(extender_check, a_start_says_what_was_loaded)
{
	char command[1200], program[300], part[512];
	struct buf out = BUF_INIT;
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	pid_t pid = 0;
	int status;
	FILE *p;

	cr_assert_gt(n, 0);
	program[n] = '\0';
	strrchr(program, '/')[1] = '\0';
	snprintf(command, sizeof(command),
		 "cd '%s' && echo $$ && exec '%stessera-extender' --cluster cluster.json "
		 "--listen 127.0.0.1:0 2>&1",
		 dir, program);
	p = popen(command, "r");
	cr_assert_not_null(p);
	cr_assert_not_null(fgets(part, sizeof(part), p));
	pid = (pid_t)strtol(part, NULL, 10);
	while (fgets(part, sizeof(part), p) != NULL) {
		buf_puts(&out, part);
		if (strncmp(part, "listening on ", 13) == 0)
			break;
	}
	cr_assert_gt(pid, 1);
	kill(pid, SIGTERM);
	status = pclose(p);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", buf_str(&out));
	cr_expect(strstr(buf_str(&out), "level=info event=started nodes=1 gpus=4 pods=0 pending=0 "
					"policy=bid-price url=http://127.0.0.1:") != NULL,
		  "%s", buf_str(&out));
	buf_fini(&out);
}

Test(extender_check, a_good_configuration_touches_nothing)
{
	static const char *const good[] = {
		CLUSTER,
		CLUSTER "--journal new.log --prefix example.com/c.",
		CLUSTER "--journal empty.log --listen 127.0.0.1:1",
	};
	char path[200];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct buf out = BUF_INIT;

		cr_expect_eq(run(good[i], true, &out), 0, "%s: %s", good[i], buf_str(&out));
		cr_expect(strstr(buf_str(&out), "the configuration is good") != NULL);
		buf_fini(&out);
	}
	snprintf(path, sizeof(path), "%s/new.log", dir);
	cr_expect_neq(access(path, F_OK), 0, "nothing was made");
}

/* That is no mistake that a start fails on, but hardly what was meant. */
Test(extender_check, a_cluster_without_nodes_is_warned_of)
{
	struct buf out = BUF_INIT;

	cr_expect_eq(run("--cluster none.json", true, &out), 0);
	cr_expect(strstr(buf_str(&out), "level=warn event=no-nodes file=none.json ") != NULL, "%s",
		  buf_str(&out));
	buf_reset(&out);
	cr_expect_eq(run("--cluster cluster.json", true, &out), 0);
	cr_expect_str_eq(buf_str(&out), "the configuration is good\n");
	buf_fini(&out);
}

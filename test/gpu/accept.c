/* The acceptance test on a real GPU: our own probe, supervisor, namespaces and limits against the real
 * driver and the real MPS daemon, with two CUDA clients (client.c). Run by accept.sh, which looks after
 * what must be there and that no setting of the GPU is touched.
 *
 * Usage: accept CLIENT WORKDIR. Prints "ok|FAIL|skip <what>" lines; exit status 0, 1 (failures) or 77. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enforcer/inventory.h"
#include "enforcer/limits.h"
#include "enforcer/mps.h"
#include "enforcer/probe.h"

#define LIMIT_A 4096
#define LIMIT_B 8192
#define RAISED_B 12288
#define SLACK_MIB 1024 /* a context takes memory, too */
#define SKIP 77

static int passed, failed, skipped;

__attribute__((format(printf, 2, 0))) static void say(const char *word, const char *fmt, va_list ap)
{
	printf("%-5s ", word);
	vprintf(fmt, ap);
	printf("\n");
	fflush(stdout);
}

__attribute__((format(printf, 2, 3))) static bool check(bool ok, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(ok ? "ok" : "FAIL", fmt, ap);
	va_end(ap);
	passed += ok;
	failed += !ok;
	return ok;
}

__attribute__((format(printf, 1, 2))) static void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("skip", fmt, ap);
	va_end(ap);
	skipped++;
}

/* ---- clients ---- */

struct client {
	pid_t pid;
	FILE *in, *out;
	char answer[256];
};

/* In its cgroup before it is another program. env: "KEY=VALUE", NULL ends. */
static bool start_client(struct client *c, const char *program, const char *cgroup,
			 const char *const *env)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		return false;
	fflush(stdout);
	c->pid = fork();
	if (c->pid == 0) {
		char procs[512];
		int fd;

		if (cgroup != NULL) {
			snprintf(procs, sizeof(procs), "%s/cgroup.procs", cgroup);
			fd = open(procs, O_WRONLY | O_CLOEXEC);
			if (fd < 0 || write(fd, "0", 1) != 1)
				_exit(3);
		}
		for (; *env != NULL; env++) {
			char *copy = strdup(*env);

			if (copy == NULL || putenv(copy) != 0)
				_exit(3);
		}
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(program, program, (char *)NULL);
		_exit(3);
	}
	close(in[0]);
	close(out[1]);
	c->in = fdopen(in[1], "w");
	c->out = fdopen(out[0], "r");
	return c->pid > 0 && c->in != NULL && c->out != NULL;
}

/* Reads one answer, 60 s at most. */
static const char *hear(struct client *c)
{
	struct pollfd p = {.fd = fileno(c->out), .events = POLLIN};

	snprintf(c->answer, sizeof(c->answer), "no answer");
	if (poll(&p, 1, 60000) == 1 && fgets(c->answer, sizeof(c->answer), c->out) == NULL)
		snprintf(c->answer, sizeof(c->answer), "ended");
	c->answer[strcspn(c->answer, "\n")] = '\0';
	return c->answer;
}

static const char *tell(struct client *c, const char *command)
{
	fprintf(c->in, "%s\n", command);
	fflush(c->in);
	return hear(c);
}

static int number(const char *answer, const char *key)
{
	const char *p = strstr(answer, key);

	return p != NULL ? (int)strtol(p + strlen(key), NULL, 10) : -1;
}

static void end_client(struct client *c)
{
	if (c->pid <= 0)
		return;
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	fclose(c->in);
	fclose(c->out);
	c->pid = 0;
}

/* ---- the node ---- */

struct node {
	struct en_prober *prober;
	struct en_probe *probe;
	const struct en_probe_gpu *gpu; /* the one that is used */
	struct en_limits *limits;
	struct en_mps *mps;
	const char *work, *client;
	char cgroups[2][512]; /* "" = none */
	char parent[400];
	bool v3;
};

static bool wait_state(struct node *n, bool usable, int seconds)
{
	struct en_mps_status st;

	for (int i = 0; i < seconds * 20; i++) {
		en_mps_get_status(n->mps, &st);
		if (st.usable == usable)
			return true;
		poll(NULL, 0, 50);
	}
	printf("      state %s: %s\n", en_mps_state_name(st.state), st.why);
	return false;
}

static int look(struct node *n)
{
	struct en_probe_options o = {0};
	struct err err = ERR_INIT;
	char *text = NULL;

	n->probe = calloc(1, sizeof(*n->probe));
	if (n->probe == NULL || en_prober_new(&o, &n->prober, &err) != 0 ||
	    en_prober_run(n->prober, n->probe, &err) != 0)
		return check(false, "probe: %s", err.msg), 1;
	if (!n->probe->driver_ok) {
		skip("no driver: %s", n->probe->why.msg);
		return SKIP;
	}
	for (size_t i = 0; i < n->probe->gpu_count && n->gpu == NULL; i++) {
		const struct en_probe_gpu *g = &n->probe->gpus[i];

		if (g->healthy && !g->mig_enabled && g->foreign[0] == '\0')
			n->gpu = g;
	}
	for (size_t i = 0; i < n->probe->note_count; i++)
		printf("      note: %s\n", n->probe->notes[i].msg);
	(void)en_inventory_encode(n->probe, &text, &err);
	check(text != NULL, "inventory: %s", text != NULL ? text : err.msg);
	free(text);
	if (n->gpu == NULL) {
		skip("no GPU that is healthy, without MIG, and that nobody else uses");
		return SKIP;
	}
	n->v3 = (n->probe->features & EN_FEATURE_MPS_V3) != 0;
	check(true, "driver %s (%s), %s %s, %d MiB, %d C", n->probe->driver,
	      n->v3 ? "MPS v3" : "legacy MPS", n->gpu->uuid, n->gpu->product, n->gpu->mem_mib,
	      n->gpu->state.temperature_c);
	return 0;
}

static int start_mps(struct node *n)
{
	static char dirs[3][200];
	struct en_mps_options o = {.legacy = !n->v3};
	struct err err = ERR_INIT;

	snprintf(dirs[0], sizeof(dirs[0]), "%.60s/p", n->work);
	snprintf(dirs[1], sizeof(dirs[1]), "%.60s/l", n->work);
	snprintf(dirs[2], sizeof(dirs[2]), "%.60s/r", n->work);
	o.pipe_dir = dirs[0];
	o.log_dir = dirs[1];
	o.run_dir = dirs[2];
	if (en_mps_new(&o, &n->mps, &err) != 0 || en_mps_thread_start(n->mps, &err) != 0)
		return check(false, "MPS: %s", err.msg), 1;
	en_mps_want(n->mps, true);
	return check(wait_state(n, true, 60), "the MPS daemon is ready") ? 0 : 1;
}

/* Two leaf cgroups with limits, where the driver has them. */
static void make_limits(struct node *n)
{
	static const int mib[] = {LIMIT_A, LIMIT_B};
	struct en_limits_options o = {0};
	struct err err = ERR_INIT;

	if (!n->v3) {
		skip("memory limits of cgroups: driver %s has none", n->probe->driver);
		return;
	}
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) != 0) {
		skip("memory limits of cgroups: no cgroup v2");
		return;
	}
	if (en_limits_new(&o, &n->limits, &err) != 0) {
		check(false, "limits: %s", err.msg);
		return;
	}
	snprintf(n->parent, sizeof(n->parent), "/sys/fs/cgroup/tessera-accept-%d", (int)getpid());
	check(mkdir(n->parent, 0755) == 0, "%s", n->parent);
	for (int i = 0; i < 2; i++) {
		const struct en_limits_ops *ops = en_limits_ops(n->limits);
		char path[512];
		int r;

		snprintf(path, sizeof(path), "%s/%c", n->parent, 'a' + i);
		check(mkdir(path, 0755) == 0, "%s", path);
		r = ops->set(ops->ctx, path, n->gpu->uuid, mib[i], mib[i], &err);
		if (check(r == 0, "limit of %d MiB by %s: %s", mib[i],
			  en_limits_way_name(n->limits), r == 0 ? "read back" : err.msg))
			memcpy(n->cgroups[i], path, sizeof(path));
	}
}

/* Each client: its environment, what it sees, and where its memory ends. */
static void run_client(struct node *n, int which, struct client *c, const char *pipe_dir)
{
	static const int mib[] = {LIMIT_A, LIMIT_B}, percent[] = {50, 25};
	char pipe[300], visible[160], pinned[96], threads[64];
	const char *env[] = {pipe, visible, n->v3 ? NULL : pinned, threads, NULL};
	int64_t limit = mib[which];
	char *list = en_limits_pinned(&limit, 1);
	const char *a;
	int got;

	snprintf(pipe, sizeof(pipe), "CUDA_MPS_PIPE_DIRECTORY=%s", pipe_dir);
	snprintf(visible, sizeof(visible), "CUDA_VISIBLE_DEVICES=%s", n->gpu->uuid);
	snprintf(pinned, sizeof(pinned), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s", list);
	snprintf(threads, sizeof(threads), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", percent[which]);
	free(list);
	if (n->v3)
		env[2] = threads;
	if (n->v3)
		env[3] = NULL;
	if (!check(start_client(c, n->client,
				n->cgroups[which][0] != '\0' ? n->cgroups[which] : NULL, env) &&
			   strcmp(hear(c), "ready") == 0,
		   "client %c starts: %s", 'A' + which, c->answer))
		return;
	a = tell(c, "info");
	check(number(a, "sms=") > 0, "client %c sees: %s", 'A' + which, a);
	if (n->cgroups[which][0] != '\0')
		check(abs(number(a, "total_mib=") - mib[which]) <= 64,
		      "client %c sees its limit of %d MiB as total", 'A' + which, mib[which]);
	if (n->v3 && n->cgroups[which][0] == '\0') {
		skip("client %c has no limit that could be tried", 'A' + which);
		check(strcmp(tell(c, "alloc 1024"), "ok") == 0, "client %c gets memory: %s",
		      'A' + which, c->answer);
	} else {
		a = tell(c, "fill");
		got = number(a, "got_mib=");
		check(got > mib[which] - SLACK_MIB && got <= mib[which] && number(a, "error=") == 2,
		      "client %c gets up to %d MiB: %s", 'A' + which, mib[which], a);
	}
	check(strcmp(tell(c, "touch"), "ok") == 0, "client %c writes its memory: %s", 'A' + which,
	      c->answer);
}

static bool is_listed(struct node *n, pid_t pid, struct en_mps_client *ret)
{
	struct en_mps_client rows[64];
	struct err err = ERR_INIT;
	size_t count = 0;

	if (en_mps_clients(n->mps, rows, 64, &count, &err) != 0) {
		printf("      clients: %s\n", err.msg);
		return false;
	}
	for (size_t i = 0; i < count && i < 64; i++) {
		if (rows[i].pid == pid) {
			*ret = rows[i];
			return true;
		}
	}
	return false;
}

/* Both at once, one drained, the other one goes on; its limit raised while it runs. */
static void share(struct node *n, struct client *a, struct client *b)
{
	int sms_a = number(tell(a, "info"), "sms="), sms_b = number(tell(b, "info"), "sms=");
	struct en_mps_client row = {0};
	uint32_t pid = (uint32_t)a->pid;
	struct err err = ERR_INIT;
	int r;

	/* Half and a quarter, each rounded down to what the GPU can divide. */
	check(sms_b > 0 && sms_a > sms_b && sms_a <= 2 * sms_b + 8,
	      "half of the GPU is %d SMs, a quarter %d", sms_a, sms_b);
	check(is_listed(n, a->pid, &row), "client A is a client of MPS (%s)", row.ns);
	check(is_listed(n, b->pid, &row), "client B is a client of MPS (%s)", row.ns);
	if (n->cgroups[1][0] != '\0') {
		const struct en_limits_ops *ops = en_limits_ops(n->limits);

		r = ops->set(ops->ctx, n->cgroups[1], n->gpu->uuid, RAISED_B, RAISED_B, &err);
		check(r == 0, "limit of B raised to %d MiB: %s", RAISED_B, err.msg);
		check(strcmp(tell(b, "alloc 2048"), "ok") == 0, "B gets more at once: %s",
		      b->answer);
	}
	r = en_mps_drain(n->mps, &pid, 1, 30000, &err);
	check(r == 0, "client A is drained%s%s", r != 0 ? ": " : "", err.msg);
	check(strcmp(tell(a, "touch"), "ok") != 0, "A does not go on: %s", a->answer);
	check(strcmp(tell(b, "touch"), "ok") == 0, "B does: %s", b->answer);
	r = en_mps_drain(n->mps, &pid, 1, 5000, &err);
	check(r == 0, "to drain it again changes nothing%s%s", r != 0 ? ": " : "", err.msg);
	end_client(a);
	check(!is_listed(n, (pid_t)pid, &row), "A is listed no more");
	check(strcmp(tell(b, "touch"), "ok") == 0, "B still does: %s", b->answer);
}

/* The daemon is killed: noticed, said, and started anew. */
static void crash(struct node *n)
{
	struct en_mps_status st;
	uint64_t generation;

	en_mps_get_status(n->mps, &st);
	generation = st.generation;
	kill((pid_t)st.pid, SIGKILL);
	check(wait_state(n, false, 10), "the daemon was killed, and that is noticed");
	check(wait_state(n, true, 60), "it is started anew");
	en_mps_get_status(n->mps, &st);
	check(st.generation > generation, "generation %" PRIu64, st.generation);
}

static void clean(struct node *n, struct client *a, struct client *b)
{
	struct en_mps_status st;
	struct err err = ERR_INIT;

	end_client(a);
	end_client(b);
	for (int i = 0; i < 2; i++) {
		if (n->cgroups[i][0] == '\0')
			continue;
		check(en_limits_clear(en_limits_ops(n->limits), n->cgroups[i], n->gpu->uuid,
				      &err) == 0,
		      "limit cleared%s%s", err.msg[0] != '\0' ? ": " : "", err.msg);
		check(rmdir(n->cgroups[i]) == 0, "cgroup removed");
	}
	if (n->parent[0] != '\0')
		check(rmdir(n->parent) == 0, "%s removed", n->parent);
	if (n->mps != NULL) {
		check(en_mps_shutdown(n->mps, 90000), "the daemon ends when asked");
		en_mps_get_status(n->mps, &st);
		check(st.pid == 0, "no daemon is left");
	}
	en_mps_free(n->mps);
	en_limits_free(n->limits);
	en_prober_free(n->prober);
	free(n->probe);
}

int main(int argc, char **argv)
{
	struct node n = {.work = argc > 2 ? argv[2] : ".", .client = argc > 1 ? argv[1] : ""};
	struct client a = {0}, b = {0};
	char dirs[2][EN_PATH_CAP];
	struct err err = ERR_INIT;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: accept CLIENT WORKDIR\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	r = look(&n);
	if (r == 0 && start_mps(&n) == 0) {
		make_limits(&n);
		for (int i = 0; i < 2; i++) {
			snprintf(dirs[i], sizeof(dirs[i]), "%s/p", n.work);
			if (n.v3)
				check(en_mps_namespace_make(n.mps, i == 0 ? "accept-a" : "accept-b",
							    i == 0 ? 50 : 25, dirs[i], &err) == 0,
				      "namespace %d: %s%s", i, dirs[i], err.msg);
		}
		run_client(&n, 0, &a, dirs[0]);
		run_client(&n, 1, &b, dirs[1]);
		if (a.pid > 0 && b.pid > 0)
			share(&n, &a, &b);
		end_client(&b);
		crash(&n);
	}
	clean(&n, &a, &b);
	printf("accept: %d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return r == SKIP ? SKIP : failed > 0;
}

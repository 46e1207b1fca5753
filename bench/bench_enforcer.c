/* The node agent as a process, on the fakes of test/lib: start to ready, memory with 64 allocations, CPU when
 * idle, CreateContainer, the hook.
 *
 *	bench_enforcer AGENT HOOK FAKES        FAKES: folder with the fake driver and tools */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "bench/bench.h"
#include "enforcer/hook_cgroup.h"
#include "enforcer/ttrpc.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/fake_runtime.h"

#define ALLOCATIONS 64
#define GPUS 8
#define CALLS 2000
#define HOOKS 200
#define IDLE_S 20
#define ANSWER_MS 5000

struct bench {
	const char *agent, *hook, *fakes;
	char dir[64];
	struct fake_runtime runtime;
	struct ef_node node;
	struct ef_pod pods[ALLOCATIONS];
	pid_t pid;
	bool missed;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_enforcer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Milliseconds, beside the target. */
static void tell_ms(struct bench *b, const char *what, int64_t *ns, size_t count, double target)
{
	double p50, p99;

	qsort(ns, count, sizeof(*ns), by_value);
	p50 = (double)ns[(size_t)(count / 2)] / 1e6;
	p99 = (double)ns[(size_t)(count * 99 / 100)] / 1e6;
	printf("%-34s p50 %7.3f ms   p99 %7.3f ms   target %g ms%s\n", what, p50, p99, target,
	       p99 > target ? "   MISSED" : "");
	b->missed |= p99 > target;
}

static void tell(struct bench *b, const char *what, double value, const char *unit, double target)
{
	printf("%-34s %11.3f %-3s                target %g %s%s\n", what, value, unit, target, unit,
	       value > target ? "   MISSED" : "");
	b->missed |= value > target;
}

/* ---- the agent ---- */

static void write_text(const struct bench *b, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	if (file_replace(path, text, strlen(text), NULL) != 0)
		die(path);
}

static void prepare(struct bench *b)
{
	struct buf nvml = BUF_INIT;
	char path[128];

	snprintf(b->dir, sizeof(b->dir), "/tmp/tessera-bench-XXXXXX");
	if (mkdtemp(b->dir) == NULL)
		die(b->dir);
	ef_node_init(&b->node, "n", GPUS, 81920);
	buf_puts(&nvml, "driver 615.71.09\n");
	for (int i = 0; i < GPUS; i++)
		buf_printf(&nvml,
			   "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=%d "
			   "bus=00000000:%02x:00.0\n",
			   b->node.gpus[i].uuid, i, i + 1);
	write_text(b, "nvml", buf_str(&nvml));
	write_text(b, "mps", "");
	buf_fini(&nvml);
	snprintf(path, sizeof(path), "%s/nvml", b->dir);
	setenv("TESSERA_FAKE_NVML", path, 1);
	snprintf(path, sizeof(path), "%s/mps", b->dir);
	setenv("TESSERA_FAKE_MPS", path, 1);
	fake_runtime_init(&b->runtime);
	for (int i = 0; i < ALLOCATIONS; i++) {
		char *uid = NULL;

		if (asprintf(&uid, "pod-%d", i) < 0)
			die("memory");
		ef_pod_shared(&b->pods[i], uid, &b->node, ST_MODE_TIME_SLICING, (uint8_t)(i % GPUS),
			      8000);
	}
}

static void run_agent(const struct bench *b)
{
	static const char *const paths[] = {"hook-socket", "pipe-dir", "mps-log-dir", "run-dir",
					    "state-dir"};
	char text[16][256], *argv[20] = {NULL};
	size_t n = 0;
	int log = open("/dev/null", O_WRONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	snprintf(text[n++], sizeof(text[0]), "%s", b->agent);
	snprintf(text[n++], sizeof(text[0]), "run");
	snprintf(text[n++], sizeof(text[0]), "--node=n");
	snprintf(text[n++], sizeof(text[0]), "--nri-socket=%s", b->runtime.path);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		snprintf(text[n++], sizeof(text[0]), "--%s=%s/%s", paths[i], b->dir, paths[i]);
	snprintf(text[n++], sizeof(text[0]), "--mps-control=%s/nvidia-cuda-mps-control", b->fakes);
	snprintf(text[n++], sizeof(text[0]), "--nvml=%s/libnvidia-ml.so.1", b->fakes);
	snprintf(text[n++], sizeof(text[0]), "--nvidia-smi=%s/nvidia-smi", b->fakes);
	snprintf(text[n++], sizeof(text[0]), "--listen=127.0.0.1:0");
	snprintf(text[n++], sizeof(text[0]), "--publish=no");
	for (size_t i = 0; i < n; i++)
		argv[i] = text[i];
	execv(argv[0], argv);
	_exit(127);
}

static struct nt_pod text_of(const struct ef_pod *p)
{
	return (struct nt_pod){.id = p->spec.uid,
			       .name = p->spec.name,
			       .uid = p->spec.uid,
			       .ns = p->spec.ns,
			       .annotation_count = p->spec.annotation_count,
			       .annotations = p->spec.annotations};
}

/* 0, or what was answered. */
static int call(struct bench *b, const char *method, const struct ef_pod *p, const char *id)
{
	const struct nt_pod pod = text_of(p);
	const struct nt_container c = {.id = id, .pod_id = p->spec.uid, .name = "main"};
	struct buf in = BUF_INIT, out = BUF_INIT;
	char why[512] = "";
	int code;

	nt_container(&in, &pod, &c);
	code = fake_runtime_call(&b->runtime, method, &in, ANSWER_MS, &out, why, sizeof(why));
	if (code != 0 && strstr(why, "MPS") == NULL)
		fprintf(stderr, "%s %s: %d %s\n", method, id, code, why);
	buf_fini(&in);
	buf_fini(&out);
	return code;
}

/* Ready: a container with a share may start. */
static void start(struct bench *b)
{
	int64_t begun = now_ns();

	b->pid = fork();
	if (b->pid == 0)
		run_agent(b);
	if (b->pid < 0 || fake_runtime_handshake(&b->runtime, NULL) < 0)
		die("handshake");
	while (call(b, "CreateContainer", &b->pods[0], "first") != 0)
		pause_ms(2);
	tell(b, "start to the first container given", (double)(now_ns() - begun) / 1e9, "s", 1);
}

/* ---- figures ---- */

static void memory(struct bench *b)
{
	char path[64], *text = NULL;
	const char *at;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)b->pid);
	if (file_read(path, 65536, &text, &len, NULL) != 0)
		die(path);
	at = strstr(text, "VmRSS:");
	if (at == NULL)
		die(path);
	tell(b, "resident memory, 64 allocations", (double)strtol(at + 6, NULL, 10) / 1024, "MiB",
	     20);
	free(text);
}

static void idle(struct bench *b)
{
	double before = bench_process_cpu_s(b->pid);

	pause_ms(IDLE_S * 1000L);
	tell(b, "CPU when idle, of a core", (bench_process_cpu_s(b->pid) - before) * 100 / IDLE_S,
	     "%", 0.5);
}

static void create(struct bench *b)
{
	static int64_t ns[CALLS];
	char id[32];

	for (int i = 0; i < ALLOCATIONS; i++) {
		snprintf(id, sizeof(id), "c%d", i);
		(void)call(b, "CreateContainer", &b->pods[i], id);
	}
	for (int i = 0; i < CALLS; i++) {
		int64_t begun = now_ns();

		snprintf(id, sizeof(id), "c%d-%d", i % ALLOCATIONS, i);
		if (call(b, "CreateContainer", &b->pods[i % ALLOCATIONS], id) != 0)
			b->missed = true;
		ns[i] = now_ns() - begun;
	}
	tell_ms(b, "CreateContainer, 64 held", ns, CALLS, 5);
}

/* ---- the hook, in a cgroup of its own ---- */

static pid_t sleeper(const char *cgroup)
{
	char procs[EN_CGROUP_CAP + 80];
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(procs, sizeof(procs), "%s/cgroup.procs", cgroup);
		fd = open(procs, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	return pid;
}

static int64_t run_hook(const struct bench *b, const char *state, const char *socket,
			const char *gpu)
{
	int64_t begun = now_ns();
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		die("pipe");
	pid = fork();
	if (pid == 0) {
		dup2(fds[0], STDIN_FILENO);
		execl(b->hook, b->hook, socket, gpu, (char *)NULL);
		_exit(127);
	}
	close(fds[0]);
	(void)file_write_all(fds[1], state, strlen(state));
	close(fds[1]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? now_ns() - begun : -1;
}

static void hook(struct bench *b)
{
	static int64_t ns[HOOKS];
	char mount[EN_CGROUP_CAP], cgroup[EN_CGROUP_CAP + 64], state[256], socket[128], gpu[128];
	struct err err = ERR_INIT;
	pid_t pid;

	if (en_cgroup_mount("/proc", mount, &err) != 0) {
		printf("%-34s skipped: %s\n", "hook", err.msg);
		return;
	}
	snprintf(cgroup, sizeof(cgroup), "%s/tessera-bench-%d-c1", mount, (int)getpid());
	if (mkdir(cgroup, 0755) != 0) {
		printf("%-34s skipped: %s: %s\n", "hook", cgroup, strerror(errno));
		return;
	}
	pid = sleeper(cgroup);
	pause_ms(100);
	snprintf(state, sizeof(state),
		 "{\"ociVersion\":\"1.0.2\",\"id\":\"tessera-bench-%d-c1\",\"status\":\"creating\","
		 "\"pid\":%d,\"bundle\":\"/\"}",
		 (int)getpid(), (int)pid);
	snprintf(socket, sizeof(socket), "--socket=%s/hook-socket", b->dir);
	snprintf(gpu, sizeof(gpu), "--gpu=%s:8000:8000", b->node.gpus[0].uuid);
	for (int i = 0; i < HOOKS; i++) {
		ns[i] = run_hook(b, state, socket, gpu);
		if (ns[i] < 0) {
			printf("%-34s skipped: it failed, see above\n", "hook");
			break;
		}
	}
	if (ns[HOOKS - 1] > 0)
		tell_ms(b, "hook, program start included", ns, HOOKS, 10);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	pause_ms(50);
	rmdir(cgroup);
}

static void clean(struct bench *b)
{
	char command[160], path[96], *text = NULL;
	size_t len;
	long pid;

	kill(b->pid, SIGTERM);
	waitpid(b->pid, NULL, 0);
	snprintf(path, sizeof(path), "%s/run-dir/mps/daemon.pid", b->dir);
	if (file_read(path, 64, &text, &len, NULL) == 0) {
		pid = strtol(text, NULL, 10);
		snprintf(command, sizeof(command), "kill -9 $(cat /proc/%ld/task/%ld/children) %ld",
			 pid, pid, pid);
		/* NOLINTNEXTLINE(cert-env33-c): numbers and a folder of our own making */
		if (pid > 1 && system(command) != 0)
			fprintf(stderr, "the fake MPS daemon %ld does not end\n", pid);
		free(text);
	}
	snprintf(command, sizeof(command), "rm -r %s", b->dir);
	/* NOLINTNEXTLINE(cert-env33-c): as above */
	if (system(command) != 0)
		fprintf(stderr, "%s stays\n", b->dir);
	fake_runtime_fini(&b->runtime);
}

int main(int argc, char **argv)
{
	static struct bench b;

	if (argc != 4) {
		fprintf(stderr, "usage: bench_enforcer AGENT HOOK FAKES\n");
		return 2;
	}
	b.agent = argv[1];
	b.hook = argv[2];
	b.fakes = argv[3];
	prepare(&b);
	start(&b);
	create(&b);
	memory(&b);
	hook(&b);
	idle(&b);
	clean(&b);
	return b.missed;
}

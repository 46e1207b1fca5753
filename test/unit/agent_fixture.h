/* The whole agent as a process: fake driver, MPS daemon, container runtime and API server around it. */
#ifndef TESSERA_TEST_AGENT_FIXTURE_H
#define TESSERA_TEST_AGENT_FIXTURE_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "enforcer/ttrpc.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/fake_cluster.h"
#include "test/lib/fake_runtime.h"
#include "test/lib/hardware.h"

#define WAIT_MS 20000
#define ARGS_MAX 40
#define PAGE_MAX (256 << 10)

struct stage {
	struct hardware h;
	struct fake_runtime runtime;
	struct fake_cluster *cluster; /* NULL: without */
	struct ef_node node;
	char program[300];
	char args[ARGS_MAX][400];
	size_t arg_count;
	pid_t pid;
	int log_fd;
	struct buf log;
	unsigned port;
};

static inline void arg(struct stage *s, const char *name, const char *value)
{
	cr_assert_lt(s->arg_count, ARGS_MAX - 1);
	snprintf(s->args[s->arg_count++], sizeof(s->args[0]), "--%s=%s", name, value);
}

static inline void arg_path(struct stage *s, const char *name, const char *path)
{
	arg(s, name, hardware_path(&s->h, path));
}

static inline void stage_init(struct stage *s, bool cluster)
{
	memset(s, 0, sizeof(*s));
	hardware_init(&s->h);
	fake_runtime_init(&s->runtime);
	ef_node_init(&s->node, "n", 2, 81920);
	hardware_nvml(&s->h,
		      "driver 615.71.09\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=0 "
		      "bus=00000000:00:00.0\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=1 "
		      "bus=00000000:01:00.0\n",
		      s->node.gpus[0].uuid, s->node.gpus[1].uuid);
	hardware_mps(&s->h, "%s", "");
	hardware_file(&s->h, "cg/cgroup.controllers", "cpu memory\n");
	snprintf(s->program, sizeof(s->program), "%s/tessera-enforcer", s->h.build);
	arg(s, "node", "n");
	arg(s, "nri-socket", s->runtime.path);
	arg_path(s, "hook-socket", "hook.sock");
	arg_path(s, "pipe-dir", "pipe");
	arg_path(s, "mps-log-dir", "mps-log");
	arg_path(s, "run-dir", "run");
	arg_path(s, "state-dir", "state");
	arg_path(s, "cgroup-mount", "cg");
	arg_path(s, "kubelet-socket", "no-kubelet.sock");
	arg(s, "mps-control", s->h.control);
	arg(s, "nvml", s->h.library);
	arg(s, "nvidia-smi", s->h.smi);
	arg(s, "listen", "127.0.0.1:0");
	arg(s, "no-gate", "host-pid,privileges"); /* where tests run is not the agent's business */
	if (!cluster)
		return;
	s->cluster = fake_cluster_start(1);
	fake_cluster_put(s->cluster, "nodes",
			 "{\"metadata\":{\"name\":\"n\",\"uid\":\"un\",\"labels\":{}}}");
	hardware_file(&s->h, "kubeconfig",
		      "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
		      "clusters: [{name: c, cluster: {server: \"%s\"}}]\n"
		      "users: [{name: u, user: {}}]\n"
		      "contexts: [{name: c, context: {cluster: c, user: u}}]\n",
		      fake_api_url(fake_cluster_api(s->cluster)));
	arg_path(s, "kubeconfig", "kubeconfig");
}

/* ---- the process ---- */

static inline int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Reads the log until it has that text. */
static inline const char *expect_log(struct stage *s, const char *text)
{
	int64_t until = now_ms() + WAIT_MS;
	const char *at;

	while ((at = s->log.len > 0 ? strstr(buf_str(&s->log), text) : NULL) == NULL) {
		struct pollfd p = {.fd = s->log_fd, .events = POLLIN};
		char part[4096];
		ssize_t n = 0;

		if (poll(&p, 1, 100) > 0)
			n = read(s->log_fd, part, sizeof(part));
		if (n > 0)
			buf_put(&s->log, part, (size_t)n);
		cr_assert(now_ms() < until && (n > 0 || p.revents == 0 || p.revents == POLLIN),
			  "no %s in %s", text, s->log.len > 0 ? buf_str(&s->log) : "");
	}
	return at + strlen(text);
}

static inline void stage_start(struct stage *s)
{
	char *argv[ARGS_MAX + 3] = {s->program, strdup("run")};
	int fds[2];

	for (size_t i = 0; i < s->arg_count; i++)
		argv[2 + i] = s->args[i];
	cr_assert_eq(pipe(fds), 0);
	s->pid = fork();
	cr_assert_geq(s->pid, 0);
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		execv(argv[0], argv);
		_exit(127);
	}
	free(argv[1]);
	close(fds[1]);
	s->log_fd = fds[0];
	s->port =
		(unsigned)strtoul(expect_log(s, "event=listening url=http://127.0.0.1:"), NULL, 10);
	cr_assert_gt(s->port, 0);
}

static inline void stage_end(struct stage *s)
{
	int status = -1;

	kill(s->pid, SIGTERM);
	while (poll(&(struct pollfd){.fd = s->log_fd, .events = POLLIN}, 1, WAIT_MS) > 0) {
		char part[4096];
		ssize_t n = read(s->log_fd, part, sizeof(part));

		if (n <= 0)
			break;
		buf_put(&s->log, part, (size_t)n);
	}
	cr_assert_eq(waitpid(s->pid, &status, 0), s->pid);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status,
		  buf_str(&s->log));
	close(s->log_fd);
	buf_fini(&s->log);
}

/* The MPS daemon outlives the agent; here nobody takes it over. */
static inline void stage_fini(struct stage *s)
{
	char *text = hardware_read(&s->h, "run/mps/daemon.pid"), *servers = NULL;
	long pid = strtol(text, NULL, 10), server;
	char path[64];
	size_t len;

	free(text);
	if (pid > 1) {
		snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", pid, pid);
		if (file_read(path, 4096, &servers, &len, NULL) == 0) {
			for (char *at = servers; (server = strtol(at, &at, 10)) > 1;)
				kill((pid_t)server, SIGKILL);
		}
		free(servers);
		kill((pid_t)pid, SIGKILL);
	}
	fake_runtime_fini(&s->runtime);
	if (s->cluster != NULL)
		fake_cluster_stop(s->cluster);
	hardware_fini(&s->h);
}

/* ---- HTTP ---- */

/* The status; *ret_body is the caller's. */
static inline int get(const struct stage *s, const char *method, const char *path, char **ret_body)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)s->port),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
	char *page = calloc(1, PAGE_MAX), *body, request[256];
	size_t len = 0;
	ssize_t n;

	cr_assert(fd >= 0 && page != NULL);
	cr_assert_eq(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n",
		 method, path);
	cr_assert_eq(file_write_all(fd, request, strlen(request)), 0);
	while (len < PAGE_MAX - 1 && (n = read(fd, page + len, PAGE_MAX - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	cr_assert_eq(strncmp(page, "HTTP/1.1 ", 9), 0);
	status = (int)strtol(page + 9, NULL, 10);
	body = strstr(page, "\r\n\r\n");
	cr_assert_not_null(body);
	*ret_body = strdup(body + 4);
	free(page);
	return status;
}

/* Asks until the answer is that. */
static inline void expect_page(const struct stage *s, const char *path, int status,
			       const char *part)
{
	int64_t until = now_ms() + WAIT_MS;

	for (;;) {
		char *body;
		int have = get(s, "GET", path, &body);
		bool good = have == status && strstr(body, part) != NULL;

		cr_assert(good || now_ms() < until, "%s: %d %s; not %d %s", path, have, body,
			  status, part);
		free(body);
		if (good)
			return;
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
}

/* ---- pods ---- */

static inline void put_pod(struct stage *s, const struct ef_pod *p)
{
	struct buf b = BUF_INIT;

	for (size_t i = 0; i < p->spec.annotation_count; i++)
		buf_printf(&b, "%s\"%s\":\"%s\"", i > 0 ? "," : "", p->spec.annotations[i].key,
			   p->spec.annotations[i].value);
	fake_cluster_pod(s->cluster, p->spec.name, p->spec.uid, buf_str(&b));
	fake_cluster_bind(s->cluster, p->spec.name, "n");
	buf_fini(&b);
}

static inline int create(struct stage *s, const struct ef_pod *p, const char *id, char text[512])
{
	const struct nt_pod pod = {.id = p->spec.uid,
				   .name = p->spec.name,
				   .uid = p->spec.uid,
				   .ns = p->spec.ns,
				   .annotation_count = p->spec.annotation_count,
				   .annotations = p->spec.annotations};
	const struct nt_container c = {.id = id, .pod_id = p->spec.uid, .name = "main"};
	struct buf b = BUF_INIT, answer = BUF_INIT;
	int code;

	nt_container(&b, &pod, &c);
	code = fake_runtime_call(&s->runtime, "CreateContainer", &b, WAIT_MS, &answer, text, 512);
	buf_fini(&b);
	buf_fini(&answer);
	return code;
}

#endif

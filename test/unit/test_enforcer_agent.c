/* The whole agent as a process: fake driver, MPS daemon, container runtime and API server around it. What
 * needs real cgroups is in test/e2e. */
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

static void arg(struct stage *s, const char *name, const char *value)
{
	cr_assert_lt(s->arg_count, ARGS_MAX - 1);
	snprintf(s->args[s->arg_count++], sizeof(s->args[0]), "--%s=%s", name, value);
}

static void arg_path(struct stage *s, const char *name, const char *path)
{
	arg(s, name, hardware_path(&s->h, path));
}

static void stage_init(struct stage *s, bool cluster)
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

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Reads the log until it has that text. */
static const char *expect_log(struct stage *s, const char *text)
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

static void stage_start(struct stage *s)
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

static void stage_end(struct stage *s)
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
static void stage_fini(struct stage *s)
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
static int get(const struct stage *s, const char *method, const char *path, char **ret_body)
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
static void expect_page(const struct stage *s, const char *path, int status, const char *part)
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

static void put_pod(struct stage *s, const struct ef_pod *p)
{
	struct buf b = BUF_INIT;

	for (size_t i = 0; i < p->spec.annotation_count; i++)
		buf_printf(&b, "%s\"%s\":\"%s\"", i > 0 ? "," : "", p->spec.annotations[i].key,
			   p->spec.annotations[i].value);
	fake_cluster_pod(s->cluster, p->spec.name, p->spec.uid, buf_str(&b));
	fake_cluster_bind(s->cluster, p->spec.name, "n");
	buf_fini(&b);
}

static int create(struct stage *s, const struct ef_pod *p, const char *id, char text[512])
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

/* ---- tests ---- */

Test(enforcer_agent, a_node_from_start_to_end)
{
	struct st_decision more = {.grant_count = 0};
	struct ef_pod good, bad, raised;
	static struct stage s;
	char text[512], *body;

	stage_init(&s, true);
	stage_start(&s);
	expect_page(&s, "/healthz", 200, "ok");
	expect_page(&s, "/readyz", 503, "the container runtime has not told yet");
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	expect_page(&s, "/metrics", 200, "tessera_enforcer_ready 1\n");
	expect_page(&s, "/metrics", 200, "tessera_mps_state{state=\"ready\"} 1\n");
	expect_page(&s, "/metrics", 200,
		    "tessera_node_check{check=\"mps-answers\",result=\"ok\"} 1\n");
	expect_page(&s, "/api/v1/usage", 200, "{\"version\":1,\"workloads\":[]}");
	expect_page(&s, "/api/v1/doctor", 200, "\"name\":\"driver\"");
	cr_expect_eq(get(&s, "GET", "/nothing", &body), 404);
	free(body);
	cr_expect_eq(get(&s, "POST", "/metrics", &body), 405);
	free(body);
	cr_expect_eq(get(&s, "HEAD", "/metrics", &body), 200);
	cr_expect_str_eq(body, "");
	free(body);

	/* One pod is given its share, one is refused with an event. */
	ef_pod_shared(&good, "good", &s.node, ST_MODE_TIME_SLICING, 0, 20000);
	ef_pod_shared(&bad, "bad", &s.node, ST_MODE_TIME_SLICING, 1, 90000);
	put_pod(&s, &good);
	put_pod(&s, &bad);
	cr_expect_eq(create(&s, &good, "c1", text), 0, "%s", text);
	cr_expect_eq(create(&s, &bad, "c2", text), EN_TTRPC_FAILED_PRECONDITION);
	cr_expect(fake_cluster_event(s.cluster, "bad", "GpuRefused"));
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	expect_page(&s, "/metrics", 200, "tessera_container_reports_total{kind=\"refused\"} 1\n");

	/* More memory while it runs: one event; more than the GPU has: another. */
	ef_pod_init(&raised, "good");
	ef_share(&more, "main", ST_MODE_TIME_SLICING, 0, 20000, 40000);
	ef_pod_allocate(&raised, &s.node, &more, NULL);
	for (size_t i = 0; i < raised.spec.annotation_count; i++)
		fake_cluster_annotate(s.cluster, "good", raised.spec.annotations[i].key,
				      raised.spec.annotations[i].value);
	cr_expect(fake_cluster_event(s.cluster, "good", "GpuLimitsChanged"));
	expect_log(&s, "from 20000/20000 to 20000/40000 MiB");
	fake_cluster_annotate(s.cluster, "good", "nvidia.com/container.main.gpu-memory.limit",
			      "1Mi");
	cr_expect(fake_cluster_event(s.cluster, "good", "GpuLimitChangeRefused"));

	/* The driver is to be exchanged: nothing new is placed here until it was. */
	fake_cluster_put(s.cluster, "nodes",
			 "{\"metadata\":{\"name\":\"n\",\"uid\":\"un\",\"labels\":{"
			 "\"nvidia.com/gpu-driver-upgrade-state\":\"upgrade-required\"}}}");
	expect_page(&s, "/metrics", 200,
		    "tessera_enforcer_condition{status=\"False\",reason=\"DriverUpgrade\"} 1\n");
	expect_page(&s, "/readyz", 503, "driver");
	fake_cluster_put(s.cluster, "nodes",
			 "{\"metadata\":{\"name\":\"n\",\"uid\":\"un\",\"labels\":{"
			 "\"nvidia.com/gpu-driver-upgrade-state\":\"upgrade-done\"}}}");
	expect_page(&s, "/readyz", 200, "ok");

	stage_end(&s);
	cr_expect_not(hardware_exists(&s.h, "hook.sock"));
	ef_pod_fini(&good);
	ef_pod_fini(&bad);
	ef_pod_fini(&raised);
	stage_fini(&s);
}

/* A second agent does not start beside the first, and the MPS daemon is taken over by the next. */
Test(enforcer_agent, one_at_a_time_and_the_next_takes_over)
{
	static struct stage s;
	char *first, *second, command[1024];

	stage_init(&s, false);
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	first = hardware_read(&s.h, "run/mps/daemon.pid");
	snprintf(command, sizeof(command), "%s run --node=n %s 2>&1 | grep -q 'an agent runs'",
		 s.program, s.args[5]);
	/* NOLINTNEXTLINE(cert-env33-c): our own program */
	cr_expect_eq(system(command), 0, "%s", command);
	stage_end(&s);
	fake_runtime_hang_up(&s.runtime);

	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	second = hardware_read(&s.h, "run/mps/daemon.pid");
	cr_expect_str_eq(first, second);
	stage_end(&s);
	free(first);
	free(second);
	stage_fini(&s);
}

/* ---- nothing is forgotten while something is away ---- */

static void driver(const struct stage *s, const char *version)
{
	hardware_nvml(&s->h,
		      "driver %s\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=0 bus=0\n"
		      "gpu uuid=%s name=NVIDIA_A100-SXM4-80GB mem=81920 minor=1 bus=1\n",
		      version, s->node.gpus[0].uuid, s->node.gpus[1].uuid);
}

/* The driver does not answer when the agent starts and the runtime tells what runs. */
Test(enforcer_agent, containers_are_known_when_the_driver_comes)
{
	static struct stage s;
	struct nt_container c = {.id = "c1",
				 .pod_id = "p",
				 .name = "main",
				 .state = 3,
				 .env = {NULL, "NVIDIA_GPU_MEMORY_REQUEST=1000",
					 "NVIDIA_GPU_MEMORY_LIMIT=1000"}};
	struct fake_handshake h = {.pod_count = 1, .container_count = 1, .containers = &c};
	char visible[128], pipe[128], pipe_env[160];
	struct ef_pod p;
	struct nt_pod pod;

	stage_init(&s, false);
	arg(&s, "probe-seconds", "1");
	ef_pod_shared(&p, "p", &s.node, ST_MODE_TIME_SLICING, 0, 1000);
	pod = (struct nt_pod){.id = "p",
			      .name = "p",
			      .uid = "p",
			      .ns = p.spec.ns,
			      .annotation_count = p.spec.annotation_count,
			      .annotations = p.spec.annotations};
	snprintf(visible, sizeof(visible), "NVIDIA_VISIBLE_DEVICES=%s", s.node.gpus[0].uuid);
	snprintf(pipe, sizeof(pipe), "%s", hardware_path(&s.h, "pipe"));
	snprintf(pipe_env, sizeof(pipe_env), "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps");
	c.env[0] = visible;
	c.env[3] = pipe_env;
	c.mounts[0].source = pipe;
	c.mounts[0].target = "/run/nvidia-mps";
	h.pods = &pod;
	hardware_nvml(&s.h, "%s", "");
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, &h), 0x2628);
	expect_log(&s, "event=nri-connected");
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 0\n");
	driver(&s, "615.71.09");
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	expect_page(&s, "/metrics", 200, "tessera_container_reports_total{kind=\"slipped\"} 0\n");
	stage_end(&s);
	ef_pod_fini(&p);
	stage_fini(&s);
}

/* Another driver is loaded before the runtime has told anything: the namespaces of an agent before this one may
 * all be in use. */
Test(enforcer_agent, namespaces_stay_while_nobody_tells_whose_they_are)
{
	static struct stage s;
	char command[1024];

	stage_init(&s, false);
	arg(&s, "probe-seconds", "1");
	driver(&s, "615.1");
	stage_start(&s);
	expect_page(&s, "/metrics", 200, "tessera_mps_state{state=\"ready\"} 1\n");
	snprintf(command, sizeof(command),
		 "CUDA_MPS_PIPE_DIRECTORY=%s %s -p 3 namespace create ts_before --server=shared",
		 hardware_path(&s.h, "pipe"), s.h.control);
	/* NOLINTNEXTLINE(cert-env33-c): the fake tool */
	cr_assert_eq(system(command), 0);
	cr_assert(hardware_exists(&s.h, "pipe/shared/ts_before"));
	for (int i = 2; i < 5; i++) {
		char version[16], want[64];

		snprintf(version, sizeof(version), "615.%d", i);
		snprintf(want, sizeof(want), "event=driver-loaded version=%s", version);
		driver(&s, version);
		expect_log(&s, want);
	}
	cr_expect(hardware_exists(&s.h, "pipe/shared/ts_before"));
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	while (hardware_exists(&s.h, "pipe/shared/ts_before"))
		usleep(1000); /* nobody has it: it goes */
	stage_end(&s);
	stage_fini(&s);
}

static void write_static(const struct stage *s, const char *memory)
{
	hardware_file(
		&s->h, "static.json",
		"{\"allocations\":[{\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"main\","
		"\"gpus\":[\"%s\"],\"memory\":\"%s\"}]}",
		s->node.gpus[0].uuid, memory);
}

/* Without Kubernetes: allocations come from the file, also those that change. */
Test(enforcer_agent, allocations_from_a_file)
{
	static struct stage s;
	struct ef_pod named, other;
	char text[512];

	stage_init(&s, false);
	write_static(&s, "1000Mi");
	arg_path(&s, "static", "static.json");
	stage_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	expect_page(&s, "/readyz", 200, "ok");
	ef_pod_init(&named, "p");
	ef_pod_init(&other, "q");
	cr_expect_eq(create(&s, &named, "c1", text), 0, "%s", text);
	cr_expect_eq(create(&s, &other, "c2", text), 0, "%s", text);
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	expect_page(&s, "/metrics", 200, "tessera_containers_total{verdict=\"left\"} 1\n");
	write_static(&s, "2000Mi");
	kill(s.pid, SIGHUP);
	expect_log(&s, "from 1000/1000 to 2000/2000 MiB");
	expect_page(&s, "/metrics", 200, "tessera_static_containers{state=\"refused\"} 0\n");
	/* What this node cannot keep is said when the file is read, not when a pod comes. */
	write_static(&s, "900Gi");
	kill(s.pid, SIGHUP);
	expect_log(&s, "event=static-refused");
	expect_log(&s, "the limit of 921600 MiB is above the 81920 MiB");
	hardware_file(
		&s.h, "static.json",
		"{\"allocations\":[{\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"main\","
		"\"gpus\":[\"%s\"],\"memory\":\"2000Mi\"},{\"pod\":\"q\",\"container\":\"main\","
		"\"gpus\":[\"GPU-of-another-node\"],\"whole\":true}]}",
		s.node.gpus[0].uuid);
	kill(s.pid, SIGHUP);
	expect_log(&s, "GPU-of-another-node");
	expect_page(&s, "/metrics", 200, "tessera_static_containers{state=\"refused\"} 1\n");
	expect_page(&s, "/metrics", 200, "tessera_static_containers{state=\"all\"} 2\n");
	hardware_file(&s.h, "static.json", "{");
	kill(s.pid, SIGHUP);
	expect_log(&s, "event=static-not-loaded");
	expect_page(&s, "/metrics", 200, "tessera_containers_holding 1\n");
	stage_end(&s);
	ef_pod_fini(&named);
	ef_pod_fini(&other);
	stage_fini(&s);
}

/* HTTP filter with thousands of names on one keep-alive connection: latency, and CPU a request
 * beside a floor measured in the same run (bare libmicrohttpd and one pass over the same body). Then the
 * same with a new pod each time, for ca-fgd and for bid-price, whose prices follow the pods that come.
 * usage: bench_http EXTENDER CLUSTER.json NODES.csv [requests] */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/quantity.h"
#include "bench/bench.h"

#define HOST "127.0.0.1"
#define UID_TAIL "3c5b7a0e9d42"

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* ---- the floor: receives the body, passes over it once, answers with its names ---- */

struct floor_body {
	struct buf in, out;
};

/* One pass over the text, string by string, as any scanner must: what stands in the last array is
 * echoed. */
static void floor_scan(struct floor_body *b)
{
	const char *p = b->in.data, *end = p + b->in.len, *first = NULL;
	size_t names = 0;

	while (p < end) {
		char c = *p++;

		if (c == '[') {
			names = 0;
			first = p;
		}
		if (c != '"')
			continue;
		while (p < end && *p != '"')
			p += 1 + (*p == '\\');
		p++;
		names++;
	}
	buf_puts(&b->out, "{\"NodeNames\":[");
	if (first && names > 0)
		buf_put(&b->out, first, (size_t)(end - first - 2));
	buf_puts(&b->out, "],\"FailedNodes\":{},\"Error\":\"\"}");
}

static enum MHD_Result floor_answer(void *ctx, struct MHD_Connection *con, const char *url,
				    const char *method, const char *version, const char *upload,
				    size_t *upload_size, void **state)
{
	struct floor_body *b = *state;
	struct MHD_Response *r;
	enum MHD_Result rc;

	(void)ctx, (void)url, (void)method, (void)version;
	if (!b) {
		*state = calloc(1, sizeof(*b));
		return MHD_YES;
	}
	if (*upload_size > 0) {
		buf_put(&b->in, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	floor_scan(b);
	r = MHD_create_response_from_buffer(b->out.len, b->out.data, MHD_RESPMEM_MUST_COPY);
	MHD_add_response_header(r, "Content-Type", "application/json");
	rc = MHD_queue_response(con, 200, r);
	MHD_destroy_response(r);
	return rc;
}

static void floor_done(void *ctx, struct MHD_Connection *con, void **state,
		       enum MHD_RequestTerminationCode why)
{
	struct floor_body *b = *state;

	(void)ctx, (void)con, (void)why;
	if (!b)
		return;
	buf_fini(&b->in);
	buf_fini(&b->out);
	free(b);
}

static pid_t floor_start(uint16_t *ret_port)
{
	int fd[2];
	pid_t pid;

	if (pipe(fd) < 0)
		die("pipe");
	pid = fork();
	if (pid == 0) {
		struct MHD_Daemon *d =
			MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, floor_answer,
					 NULL, MHD_OPTION_NOTIFY_COMPLETED, floor_done, NULL,
					 MHD_OPTION_END);
		uint16_t port = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port : 0;

		if (write(fd[1], &port, sizeof(port)) != sizeof(port))
			_exit(2);
		pause();
		_exit(0);
	}
	if (pid < 0 || read(fd[0], ret_port, sizeof(*ret_port)) != sizeof(*ret_port) || !*ret_port)
		die("floor server");
	close(fd[0]);
	close(fd[1]);
	return pid;
}

/* ---- the extender ---- */

static pid_t extender_start(const char *program, const char *cluster, const char *policy,
			    uint16_t *ret_port)
{
	char line[512] = "";
	int fd[2];
	pid_t pid;
	FILE *f;

	if (pipe(fd) < 0)
		die("pipe");
	pid = fork();
	if (pid == 0) {
		dup2(fd[1], 2);
		close(fd[0]);
		execl(program, program, "--cluster", cluster, "--listen", HOST ":0", "--policy",
		      policy, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	f = fdopen(fd[0], "r");
	while (f && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "http://");
		const char *colon = at ? strchr(at + 7, ':') : NULL;

		if (!colon)
			continue;
		*ret_port = (uint16_t)strtoul(colon + 1, NULL, 10);
		return pid;
	}
	fprintf(stderr, "extender did not start\n");
	exit(2);
}

/* ---- client ---- */

static int dial(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, HOST, &sa.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Sends the request and reads the whole reply; returns its body's length. */
static size_t exchange(int fd, const struct buf *req, char *reply, size_t cap)
{
	size_t have = 0, want = 0, sent = 0;

	while (sent < req->len) {
		ssize_t n = write(fd, req->data + sent, req->len - sent);

		if (n <= 0)
			die("write");
		sent += (size_t)n;
	}
	for (;;) {
		ssize_t n = read(fd, reply + have, cap - 1 - have);
		const char *end, *len;

		if (n <= 0)
			die("read");
		have += (size_t)n;
		reply[have] = 0;
		end = want ? NULL : strstr(reply, "\r\n\r\n");
		if (end) {
			len = strcasestr(reply, "content-length:");
			if (!len)
				die("no Content-Length");
			want = (size_t)(end - reply) + 4 + strtoul(len + 15, NULL, 10);
		}
		if (want && have >= want)
			return have;
	}
}

static void body_make(const char *nodes_csv, unsigned want, struct buf *ret, unsigned *ret_names)
{
	char *text, *line, *save = NULL;
	struct buf body = BUF_INIT;
	struct err err = ERR_INIT;
	size_t len;
	unsigned n = 0;

	if (file_read(nodes_csv, 1 << 28, &text, &len, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		exit(2);
	}
	buf_puts(&body,
		 "{\"Pod\":{\"metadata\":{\"name\":\"bench\",\"namespace\":\"default\",\"uid\":"
		 "\"6f1c0d1e-2b7a-4a55-9f21-" UID_TAIL
		 "\",\"annotations\":{\"gpu-memory\":\"470\"}},"
		 "\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"x\",\"resources\":{"
		 "\"limits\":{\"cpu\":\"4\",\"memory\":\"8Gi\"},\"requests\":{\"cpu\":\"4\","
		 "\"memory\":\"8Gi\"}}}],\"schedulerName\":\"tessera\",\"priority\":0},"
		 "\"status\":{\"phase\":\"Pending\"}},\"Nodes\":null,\"NodeNames\":[");
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *comma = strchr(line, ',');

		if (!comma || n == want || strncmp(line, "sn,", 3) == 0)
			continue;
		*comma = 0;
		buf_printf(&body, "%s\"%s\"", n++ ? "," : "", line);
	}
	buf_puts(&body, "]}");
	buf_printf(ret,
		   "POST /v1/filter HTTP/1.1\r\nHost: " HOST
		   "\r\nUser-Agent: Go-http-client/1.1\r\n"
		   "Content-Length: %zu\r\nContent-Type: application/json\r\n"
		   "Accept-Encoding: gzip\r\n\r\n",
		   body.len);
	buf_put(ret, body.data, body.len);
	buf_fini(&body);
	free(text);
	*ret_names = n;
}

/* Another UID in its place: a new pod. */
static void renew(struct buf *req, size_t n)
{
	static char *at;
	char digits[sizeof(UID_TAIL)];

	if (!at)
		at = strstr(req->data, UID_TAIL);
	if (!at)
		die("no UID in the body");
	snprintf(digits, sizeof(digits), "%012u", (unsigned)n);
	memcpy(at, digits, sizeof(digits) - 1);
}

static double measure(const char *label, pid_t pid, uint16_t port, struct buf *req, size_t n,
		      bool fresh, int64_t *ret_p50, int64_t *ret_p99)
{
	static char reply[1 << 22];
	int64_t *t = calloc(n, sizeof(*t));
	int fd = dial(port);
	double cpu;

	for (int i = 0; i < 50; i++)
		exchange(fd, req, reply, sizeof(reply));
	cpu = bench_process_cpu_s(pid);
	for (size_t i = 0; i < n; i++) {
		int64_t start;

		if (fresh)
			renew(req, i);
		start = bench_now_ns();
		exchange(fd, req, reply, sizeof(reply));
		t[i] = bench_now_ns() - start;
	}
	cpu = bench_process_cpu_s(pid) - cpu;
	bench_print_ns(label, t, n);
	*ret_p50 = bench_percentile(t, n, 500);
	*ret_p99 = bench_percentile(t, n, 990);
	free(t);
	close(fd);
	return cpu / (double)n;
}

/* With a new pod each time. */
static bool policy_run(char **argv, const char *policy, struct buf *req, size_t n)
{
	char label[64];
	int64_t p50, p99;
	uint16_t port;
	pid_t pid = extender_start(argv[1], argv[2], policy, &port);

	snprintf(label, sizeof(label), "a new pod each time, %s", policy);
	measure(label, pid, port, req, n, true, &p50, &p99);
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
	return p99 <= 3000000;
}

int main(int argc, char **argv)
{
	struct buf req = BUF_INIT;
	uint16_t floor_port, port;
	pid_t floor_pid, pid;
	int64_t requests = 2000, p50, p99, floor50, floor99;
	unsigned names;
	double floor_cpu, cpu;
	bool ok;

	if (argc < 4 || (argc > 4 && integer_parse(argv[4], 100, 1000000, &requests, NULL) < 0)) {
		fprintf(stderr, "usage: bench_http EXTENDER CLUSTER.json NODES.csv [requests]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	body_make(argv[3], 5000, &req, &names);
	printf("HTTP filter, %u names, %zu bytes, one keep-alive connection (targets: p50 600 us, p99 "
	       "3000 us, CPU 2 x floor)\n",
	       names, req.len);
	floor_pid = floor_start(&floor_port);
	pid = extender_start(argv[1], argv[2], "ca-fgd", &port);
	floor_cpu = measure("floor: libmicrohttpd and one pass", floor_pid, floor_port, &req,
			    (size_t)requests, false, &floor50, &floor99);
	cpu = measure("tessera-extender filter", pid, port, &req, (size_t)requests, false, &p50,
		      &p99);
	printf("CPU a request: floor %.1f us, extender %.1f us, ratio %.2f\n", floor_cpu * 1e6,
	       cpu * 1e6, cpu / floor_cpu);
	kill(pid, SIGTERM);
	kill(floor_pid, SIGKILL);
	waitpid(pid, NULL, 0);
	waitpid(floor_pid, NULL, 0);
	ok = policy_run(argv, "ca-fgd", &req, (size_t)requests);
	ok &= policy_run(argv, "bid-price", &req, (size_t)requests);
	buf_fini(&req);
	ok &= p50 <= 600000 && p99 <= 3000000 && cpu <= 2 * floor_cpu;
	printf("%s\n", ok ? "all targets met" : "MISSED");
	return ok ? 0 : 1;
}

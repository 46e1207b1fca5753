/* Requests that arrive in the same moment on many connections, while the only thread is busy: each number
 * of them is answered, also the one that fills the event list of the HTTP library to the brim. */
#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/quantity.h"
#include "test/lib/extender_fixture.h"

#define MANY 256

static struct xf f;
static struct ex_metrics metrics;
static struct ex_server *server;
static int sockets[MANY + 1];
static char request[4096];

static void send_request(int fd)
{
	cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
}

/* True when a whole reply came within 20 s. */
static bool answered(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[16384];
	size_t len = 0;

	while (len < sizeof(text) - 1 && poll(&p, 1, 20000) == 1) {
		ssize_t got = read(fd, text + len, sizeof(text) - 1 - len);
		const char *body;

		if (got <= 0)
			return false;
		len += (size_t)got;
		text[len] = '\0';
		body = strstr(text, "\r\n\r\n");
		if (body != NULL && body[strlen(body) - 1] == '}')
			return strncmp(text, "HTTP/1.1 200 ", 13) == 0;
	}
	return false;
}

static int connect_to(const char *url)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int64_t port = 0;

	cr_assert_eq(integer_parse(strrchr(url, ':') + 1, 1, UINT16_MAX, &port, NULL), 0);
	a.sin_port = htons((uint16_t)port);
	cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void open_all(void)
{
	struct ex_server_config cfg = {
		.listen = "127.0.0.1:0", .threads = 1, .max_body = 65536, .metrics = &metrics};
	struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	char *body;

	xf_list_begin(&b);
	xf_node(&b, "n1", 8, 40960, "NVIDIA A100-SXM4-40GB", false);
	xf_list_end(&b);
	xf_open(&f, buf_str(&b), NULL, NULL);
	buf_fini(&b);
	cfg.service = f.s;
	cr_assert_eq(ex_server_start(&cfg, &server, &err), 0, "%s", err.msg);
	body = xf_args((struct xf_pod){.uid = "a", .annotations = "\"gpu-fraction\":\"0.1\""},
		       "n1");
	snprintf(request, sizeof(request),
		 "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n%s",
		 strlen(body), body);
	free(body);
	for (int i = 0; i <= MANY; i++) {
		sockets[i] = connect_to(ex_server_url(server));
		send_request(sockets[i]);
		cr_assert(answered(sockets[i]), "connection %d", i);
	}
}

static void close_all(void)
{
	for (int i = 0; i <= MANY; i++)
		close(sockets[i]);
	ex_server_stop(server);
	xf_close(&f);
}

TestSuite(extender_burst, .init = open_all, .fini = close_all);

/* The model is locked here: the server's thread waits with the first request. */
static void all_at_once(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	const int *count = ctx;

	(void)c;
	(void)p;
	send_request(sockets[MANY]);
	usleep(50000);
	for (int i = 0; i < *count; i++)
		send_request(sockets[i]);
}

Test(extender_burst, every_request_of_a_burst_is_answered)
{
	static int counts[] = {1, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256};

	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		int late = 0;

		ex_service_with(f.s, all_at_once, &counts[k]);
		for (int i = 0; i < counts[k] && late == 0; i++)
			late += !answered(sockets[i]);
		late += !answered(sockets[MANY]);
		cr_assert_eq(late, 0, "%d at once: not all were answered", counts[k]);
	}
}

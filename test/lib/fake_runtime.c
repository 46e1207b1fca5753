#include "test/lib/fake_runtime.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "enforcer/nri.pb-c.h"
#include "enforcer/ttrpc.pb-c.h"

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void die(const char *what)
{
	perror(what);
	abort();
}

void fake_runtime_listen(struct fake_runtime *r)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, r->path, strlen(r->path) + 1);
	r->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->listen_fd < 0 ||
	    bind(r->listen_fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(r->listen_fd, 8) != 0)
		die("listen");
}

void fake_runtime_init(struct fake_runtime *r)
{
	*r = (struct fake_runtime){.listen_fd = -1, .fd = -1};
	memcpy(r->folder, "/tmp/tessera-nri-XXXXXX", sizeof("/tmp/tessera-nri-XXXXXX"));
	if (mkdtemp(r->folder) == NULL)
		die("mkdtemp");
	snprintf(r->path, sizeof(r->path), "%s/nri.sock", r->folder);
	fake_runtime_listen(r);
}

int fake_runtime_pair(struct fake_runtime *r)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		die("socketpair");
	r->fd = ends[0];
	return ends[1];
}

void fake_runtime_hang_up(struct fake_runtime *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->stream = 0;
	go_peer_fini(&r->peer);
}

void fake_runtime_stop(struct fake_runtime *r)
{
	fake_runtime_hang_up(r);
	if (r->listen_fd >= 0)
		close(r->listen_fd);
	r->listen_fd = -1;
	unlink(r->path);
}

void fake_runtime_fini(struct fake_runtime *r)
{
	fake_runtime_stop(r);
	rmdir(r->folder);
}

static bool readable(int fd, int64_t until_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t left = until_ms - now_ms();

	return poll(&p, 1, left > 0 ? (int)left : 0) > 0;
}

bool fake_runtime_accept(struct fake_runtime *r, int ms)
{
	fake_runtime_hang_up(r);
	if (!readable(r->listen_fd, now_ms() + ms))
		return false;
	r->fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	return r->fd >= 0;
}

bool fake_runtime_write(struct fake_runtime *r, const struct buf *bytes)
{
	size_t step = r->piece > 0 ? r->piece : bytes->len;

	for (size_t at = 0; at < bytes->len;) {
		size_t n = bytes->len - at < step ? bytes->len - at : step;
		ssize_t sent = send(r->fd, bytes->data + at, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		at += (size_t)sent;
		if (r->pause_us > 0)
			usleep((useconds_t)r->pause_us);
	}
	return true;
}

/* false: hung up. */
static bool take_in(struct fake_runtime *r)
{
	char data[16384];
	ssize_t n = recv(r->fd, data, sizeof(data), 0);

	if (n <= 0)
		return n < 0 && errno == EINTR;
	go_peer_feed(&r->peer, data, (size_t)n);
	return true;
}

bool fake_runtime_read(struct fake_runtime *r, uint32_t mux_id, int ms, struct go_message *ret)
{
	int64_t until = now_ms() + ms;

	while (!go_peer_next(&r->peer, mux_id, ret)) {
		if (r->peer.fault != NULL || r->fd < 0 || !readable(r->fd, until) || !take_in(r))
			return false;
	}
	return true;
}

bool fake_runtime_gone(struct fake_runtime *r, int ms)
{
	int64_t until = now_ms() + ms;

	while (readable(r->fd, until)) {
		if (!take_in(r))
			return true;
	}
	return false;
}

uint32_t fake_runtime_send(struct fake_runtime *r, const char *method, const struct buf *payload)
{
	struct buf b = BUF_INIT;

	r->stream += r->stream == 0 ? 1 : 2;
	nt_call(&b, r->stream, method, payload, INT64_C(2000000000));
	fake_runtime_write(r, &b);
	buf_fini(&b);
	return r->stream;
}

int fake_runtime_answer(struct fake_runtime *r, uint32_t stream, int ms, struct buf *ret,
			char *text, size_t text_cap)
{
	struct buf payload = BUF_INIT;
	struct go_message m = {.stream = 0};
	int64_t until = now_ms() + ms;
	int code = -1;

	while (code < 0) {
		int64_t left = until - now_ms();

		if (!fake_runtime_read(r, 1, left > 0 ? (int)left : 0, &m))
			break;
		buf_reset(&payload);
		if (m.stream == stream)
			code = nt_answer(m.data, m.len, &payload, text, text_cap);
		free(m.data);
	}
	if (code >= 0 && ret != NULL)
		buf_put(ret, payload.data, payload.len);
	buf_fini(&payload);
	return code;
}

int fake_runtime_call(struct fake_runtime *r, const char *method, const struct buf *payload, int ms,
		      struct buf *ret, char *text, size_t text_cap)
{
	return fake_runtime_answer(r, fake_runtime_send(r, method, payload), ms, ret, text,
				   text_cap);
}

/* ---- the handshake ---- */

/* The registration, as it must be. */
static bool read_register(struct fake_runtime *r)
{
	En__Nri__RegisterPluginRequest *body = NULL;
	En__Ttrpc__Request *request;
	struct go_message m;
	bool ok;

	if (!fake_runtime_read(r, 2, FAKE_RUNTIME_PATIENCE_MS, &m))
		return false;
	request = en__ttrpc__request__unpack(NULL, m.len, m.data);
	ok = request != NULL && m.stream == 1 && m.type == 1 && m.flags == 0 &&
	     strcmp(request->service, "nri.pkg.api.v1alpha1.Runtime") == 0 &&
	     strcmp(request->method, "RegisterPlugin") == 0;
	if (ok)
		body = en__nri__register_plugin_request__unpack(NULL, request->payload.len,
								request->payload.data);
	ok = ok && body != NULL && body->plugin_name[0] != '\0' && strlen(body->plugin_idx) == 2;
	if (body != NULL)
		en__nri__register_plugin_request__free_unpacked(body, NULL);
	if (request != NULL)
		en__ttrpc__request__free_unpacked(request, NULL);
	free(m.data);
	return ok;
}

static void answer_register(struct fake_runtime *r)
{
	struct buf b = BUF_INIT;

	go_put_message(&b, 2, 1, 2, "", 0);
	fake_runtime_write(r, &b);
	buf_fini(&b);
}

static int32_t read_events(const struct buf *payload)
{
	En__Nri__ConfigureResponse *m = en__nri__configure_response__unpack(
		NULL, payload->len, (const uint8_t *)payload->data);
	int32_t events = m != NULL ? m->events : -1;

	if (m != NULL)
		en__nri__configure_response__free_unpacked(m, NULL);
	return events;
}

static bool synchronize_part(struct fake_runtime *r, size_t pods, const struct nt_pod *pod,
			     size_t containers, const struct nt_container *container, bool more)
{
	struct buf b = BUF_INIT, answer = BUF_INIT;
	bool ok;

	nt_synchronize(&b, pods, pod, containers, container, more);
	ok = fake_runtime_call(r, "Synchronize", &b, FAKE_RUNTIME_PATIENCE_MS, &answer, NULL, 0) ==
	     0;
	/* more is given back: field 2, true. */
	ok = ok &&
	     (more ? answer.len == 2 && memcmp(answer.data, "\x10\x01", 2) == 0 : answer.len == 0);
	buf_fini(&b);
	buf_fini(&answer);
	return ok;
}

static bool synchronize(struct fake_runtime *r, const struct fake_handshake *h)
{
	size_t most = h->pod_count > h->container_count ? h->pod_count : h->container_count;
	bool ok = true;

	if (!h->in_parts || most == 0)
		return synchronize_part(r, h->pod_count, h->pods, h->container_count, h->containers,
					false);
	/* Containers first, the last pod last: nothing may depend on the order. */
	for (size_t i = 0; ok && i < h->container_count; i++)
		ok = synchronize_part(r, 0, NULL, 1, &h->containers[i], true);
	for (size_t i = 0; ok && i < h->pod_count; i++)
		ok = synchronize_part(r, 1, &h->pods[i], 0, NULL, i + 1 < h->pod_count);
	return ok;
}

int32_t fake_runtime_handshake(struct fake_runtime *r, const struct fake_handshake *h)
{
	static const struct fake_handshake nothing;
	struct buf b = BUF_INIT, answer = BUF_INIT;
	int32_t events = -1;
	uint32_t stream;

	if (h == NULL)
		h = &nothing;
	if (r->fd < 0 && !fake_runtime_accept(r, FAKE_RUNTIME_PATIENCE_MS))
		return -1;
	if (!read_register(r))
		return -1;
	if (!h->configure_first)
		answer_register(r);
	nt_configure(&b, "containerd", h->version != NULL ? h->version : "v2.3.4", "");
	stream = fake_runtime_send(r, "Configure", &b);
	if (fake_runtime_answer(r, stream, FAKE_RUNTIME_PATIENCE_MS, &answer, NULL, 0) == 0)
		events = read_events(&answer);
	if (h->configure_first)
		answer_register(r);
	if (events >= 0 && !synchronize(r, h))
		events = -1;
	buf_fini(&b);
	buf_fini(&answer);
	return events;
}

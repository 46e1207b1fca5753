/* The kubelet's list of devices: the message, and the call over a socket that speaks just enough HTTP/2. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "enforcer/inventory.h"
#include "enforcer/probe.h"
#include "enforcer/probe_kubelet.h"
#include "test/lib/hardware.h"
#include "test/lib/oom.h"

/* ---- messages ---- */

static void put_bytes(struct buf *b, unsigned field, const void *data, size_t len)
{
	buf_putc(b, (char)(field << 3 | 2));
	if (len >= 128)
		buf_putc(b, (char)((len & 0x7f) | 0x80));
	buf_putc(b, (char)(len >= 128 ? len >> 7 : len));
	buf_put(b, data, len);
}

static void put_text(struct buf *b, unsigned field, const char *s)
{
	put_bytes(b, field, s, strlen(s));
}

static void put_message(struct buf *b, unsigned field, struct buf *part)
{
	put_bytes(b, field, part->data, part->len);
	buf_reset(part);
}

/* A pod with one container that has these devices (a list that ends with NULL). */
static void put_pod(struct buf *b, const char *ns, const char *name, const char *resource,
		    const char *const *ids)
{
	struct buf devices = BUF_INIT, container = BUF_INIT, pod = BUF_INIT;

	put_text(&devices, 1, resource);
	for (; *ids != NULL; ids++)
		put_text(&devices, 2, *ids);
	put_text(&container, 1, "main");
	put_message(&container, 2, &devices);
	buf_put(&container, "\x1a\x02\x08\x01", 4); /* fields that we do not know */
	buf_put(&container, "\x20\x05", 2);
	put_message(&pod, 3, &container); /* before the names: order is free */
	put_text(&pod, 1, name);
	put_text(&pod, 2, ns);
	put_message(b, 1, &pod);
	buf_fini(&devices);
	buf_fini(&container);
	buf_fini(&pod);
}

static void put_world(struct buf *b)
{
	static const char *const one[] = {"GPU-0", NULL},
				 *const two[] = {"GPU-1::0", "GPU-1::7", NULL},
				 *const nic[] = {"eth1", NULL};

	put_pod(b, "team", "train", "nvidia.com/gpu", one);
	put_pod(b, "net", "fast", "intel.com/sriov", nic);
	put_pod(b, "team", "infer", "nvidia.com/gpu.shared", two);
}

#define LIST_MAX 3

/* What is told, in order; the first LIST_MAX of it. */
struct list {
	size_t count;
	struct en_plugin_device at[LIST_MAX];
};

static void keep(void *ctx, const struct en_plugin_device *d)
{
	struct list *l = ctx;

	if (l->count < LIST_MAX)
		l->at[l->count] = *d;
	l->count++;
}

static int parse(const void *msg, size_t len, struct list *ret)
{
	ret->count = 0;
	return en_kubelet_each(msg, len, "nvidia.com/", keep, ret, NULL);
}

TestSuite(enforcer_probe_kubelet);

Test(enforcer_probe_kubelet, parse)
{
	struct buf b = BUF_INIT;
	struct list l;

	put_world(&b);
	cr_assert_eq(parse(b.data, b.len, &l), 0);
	cr_assert_eq(l.count, 3);
	cr_assert_str_eq(l.at[0].ns, "team");
	cr_assert_str_eq(l.at[0].pod, "train");
	cr_assert_str_eq(l.at[0].resource, "nvidia.com/gpu");
	cr_assert_str_eq(l.at[0].id, "GPU-0");
	cr_assert_str_eq(l.at[2].pod, "infer");
	cr_assert_str_eq(l.at[2].id, "GPU-1::7");
	cr_assert_eq(en_kubelet_each(b.data, b.len, "", NULL, NULL, NULL), 0);
	cr_assert_eq(parse(NULL, 0, &l), 0);
	cr_assert_eq(l.count, 0);
	buf_fini(&b);
}

/* Cut anywhere, or with any byte changed: an error or an answer, never a read outside. */
Test(enforcer_probe_kubelet, broken_messages)
{
	struct buf b = BUF_INIT;
	struct list l;
	size_t refused = 0;

	put_world(&b);
	for (size_t len = 0; len < b.len; len++) {
		uint8_t *copy = malloc(len + 1);

		cr_assert_not_null(copy);
		memcpy(copy, b.data, len);
		refused += parse(copy, len, &l) != 0;
		free(copy);
	}
	cr_assert_gt(refused, b.len / 2);
	for (size_t at = 0; at < b.len; at++) {
		for (int v = 1; v < 256; v += 13) {
			uint8_t *copy = malloc(b.len);

			cr_assert_not_null(copy);
			memcpy(copy, b.data, b.len);
			copy[at] = (uint8_t)(copy[at] ^ v);
			(void)parse(copy, b.len, &l);
			free(copy);
		}
	}
	buf_fini(&b);
}

/* ---- a kubelet ---- */

struct kubelet {
	int fd;
	pthread_t thread;
	struct buf message;
	const char *status; /* gRPC's */
	bool cut;           /* the frame says more than there is */
};

static void frame(int fd, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
		  size_t len)
{
	uint8_t head[9] = {
		(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags, 0, 0, 0,
		(uint8_t)stream};

	if (write(fd, head, sizeof(head)) != (ssize_t)sizeof(head) ||
	    write(fd, data, len) != (ssize_t)len)
		return;
}

static bool take(int fd, void *to, size_t len)
{
	for (size_t have = 0; have < len;) {
		ssize_t got = read(fd, (char *)to + have, len - have);

		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	return true;
}

/* A header that is not in any table. */
static void put_header(struct buf *b, const char *name, const char *value)
{
	buf_putc(b, 0);
	buf_putc(b, (char)strlen(name));
	buf_puts(b, name);
	buf_putc(b, (char)strlen(value));
	buf_puts(b, value);
}

static void reply(const struct kubelet *k, int fd, uint32_t stream)
{
	struct buf headers = BUF_INIT, body = BUF_INIT;
	size_t len = k->message.len + k->cut;

	buf_putc(&headers, (char)0x88); /* :status 200 */
	put_header(&headers, "content-type", "application/grpc");
	frame(fd, 1, 4, stream, headers.data, headers.len);
	buf_putc(&body, 0);
	for (int shift = 24; shift >= 0; shift -= 8)
		buf_putc(&body, (char)(len >> shift));
	buf_put(&body, k->message.data, k->message.len);
	frame(fd, 0, 0, stream, body.data, body.len);
	buf_reset(&headers);
	put_header(&headers, "grpc-status", k->status);
	frame(fd, 1, 5, stream, headers.data, headers.len);
	buf_fini(&headers);
	buf_fini(&body);
}

static void serve(const struct kubelet *k, int fd)
{
	char preface[24], payload[65536];
	uint8_t head[9];

	if (!take(fd, preface, sizeof(preface)))
		return;
	frame(fd, 4, 0, 0, "", 0); /* SETTINGS */
	while (take(fd, head, sizeof(head))) {
		size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];

		if (len > sizeof(payload) || !take(fd, payload, len))
			return;
		if (head[3] == 4 && (head[4] & 1) == 0)
			frame(fd, 4, 1, 0, "", 0); /* its settings are fine */
		else if (head[3] == 0 && (head[4] & 1) != 0)
			reply(k, fd, head[8]); /* the end of the request */
	}
}

static void *kubelet_main(void *ctx)
{
	struct kubelet *k = ctx;
	int fd;

	while ((fd = accept4(k->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		serve(k, fd);
		close(fd);
	}
	return NULL;
}

static struct hardware hw;
static struct kubelet kubelet;

static void start(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	hardware_init(&hw);
	kubelet.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	kubelet.status = "0";
	put_world(&kubelet.message);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", hardware_path(&hw, "kubelet.sock"));
	cr_assert_eq(bind(kubelet.fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	cr_assert_eq(listen(kubelet.fd, 4), 0);
	cr_assert_eq(pthread_create(&kubelet.thread, NULL, kubelet_main, &kubelet), 0);
}

static void stop(void)
{
	shutdown(kubelet.fd, SHUT_RDWR);
	pthread_join(kubelet.thread, NULL);
	close(kubelet.fd);
	buf_fini(&kubelet.message);
	hardware_fini(&hw);
}

TestSuite(enforcer_probe_kubelet_call, .init = start, .fini = stop);

/* *l is as it was after an error. */
static int call(struct list *l, struct err *err)
{
	struct buf answer = BUF_INIT;
	int r;

	err->msg[0] = '\0';
	r = en_kubelet_ask(hardware_path(&hw, "kubelet.sock"), 10000, &answer, err);
	if (r == 0)
		cr_assert_eq(parse(answer.data, answer.len, l), 0);
	else
		cr_assert_eq(answer.len, 0);
	buf_fini(&answer);
	return r;
}

Test(enforcer_probe_kubelet_call, devices)
{
	struct err err = ERR_INIT;
	struct list l;

	cr_assert_eq(call(&l, &err), 0, "%s", err.msg);
	cr_assert_eq(l.count, 3);
	cr_assert_str_eq(l.at[1].id, "GPU-1::0");
	buf_reset(&kubelet.message);
	cr_assert_eq(call(&l, &err), 0, "%s", err.msg);
	cr_assert_eq(l.count, 0);
}

Test(enforcer_probe_kubelet_call, errors)
{
	struct buf before = BUF_INIT;
	struct err err = ERR_INIT;
	struct list l;

	kubelet.status = "13";
	cr_assert_eq(call(&l, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "status 13"), "%s", err.msg);
	kubelet.status = "0";
	kubelet.cut = true;
	cr_assert_eq(call(&l, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "cut"), "%s", err.msg);
	kubelet.cut = false;
	buf_reset(&kubelet.message);
	buf_puts(&kubelet.message, "\x0a\x7f");
	cr_assert_eq(call(&l, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "not understood"), "%s", err.msg);
	buf_puts(&before, "as before");
	cr_assert_eq(en_kubelet_ask("/nowhere/kubelet.sock", 100, &before, &err), ERR_NOT_FOUND);
	/* Nobody behind the socket. */
	hardware_file(&hw, "plain", "x");
	cr_assert_eq(en_kubelet_ask(hardware_path(&hw, "plain"), 1000, &before, &err), ERR_IO);
	cr_assert_str_eq(buf_str(&before), "as before");
	buf_fini(&before);
}

static bool is_our_pod(void *ctx, const char *ns, const char *pod)
{
	return strcmp(ns, "team") == 0 && strcmp(pod, ctx) == 0;
}

/* What a device plugin gave away is taken, unless it is one of our own pods that has it. */
Test(enforcer_probe_kubelet_call, probe)
{
	char ours[] = "train";
	struct en_probe_options o = {.library = hw.library,
				     .root = hw.dir,
				     .kubelet_socket = hardware_path(&hw, "kubelet.sock"),
				     .is_our_pod = is_our_pod,
				     .ctx = ours};
	struct en_probe *p = calloc(1, sizeof(*p));
	struct en_prober *prober = NULL;

	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, "")
				   HARDWARE_GPU(10, "") "process gpu=1 pid=5\n");
	cr_assert_eq(en_prober_new(&o, &prober, NULL), 0);
	cr_assert_eq(en_prober_run(prober, p, NULL), 0);
	cr_assert_str_eq(p->gpus[0].foreign, "", "it is ours");
	cr_assert_str_eq(p->gpus[1].foreign, "pod team/infer");
	cr_assert_str_eq(p->gpus[2].foreign, "", "GPU-10 is not GPU-1");
	cr_assert_eq(p->note_count, 0);
	kubelet.status = "14";
	cr_assert_eq(en_prober_run(prober, p, NULL), 0);
	cr_assert_eq(p->note_count, 1);
	cr_assert_str_eq(p->gpus[1].foreign, "pod team/infer", "it holds on");
	kubelet.status = "0";
	buf_reset(&kubelet.message);
	cr_assert_eq(en_prober_run(prober, p, NULL), 0);
	cr_assert_str_eq(p->gpus[1].foreign, "pid 5");
	en_prober_free(prober);
	free(p);
}

/* A plugin that shares GPUs in time gives many replicas of each: none of them is left out. */
Test(enforcer_probe_kubelet_call, very_many_devices)
{
	enum { PODS = 60, REPLICAS = 10 };
	static const char *const last[] = {"GPU-1", NULL};
	struct en_probe_options o = {.library = hw.library,
				     .root = hw.dir,
				     .kubelet_socket = hardware_path(&hw, "kubelet.sock")};
	struct en_probe *p = calloc(1, sizeof(*p));
	struct en_prober *prober = NULL;

	buf_reset(&kubelet.message);
	for (int i = 0; i < PODS; i++) {
		char texts[REPLICAS][16], name[16];
		const char *ids[REPLICAS + 1] = {NULL};

		for (int k = 0; k < REPLICAS; k++) {
			snprintf(texts[k], sizeof(texts[k]), "GPU-0::%d", i * REPLICAS + k);
			ids[k] = texts[k];
		}
		snprintf(name, sizeof(name), "pod-%d", 100 + i);
		put_pod(&kubelet.message, "team", name, "nvidia.com/gpu.shared", ids);
	}
	put_pod(&kubelet.message, "team", "last", "nvidia.com/gpu", last);
	hardware_nvml(&hw, "driver 615.1\n" HARDWARE_GPU(0, "") HARDWARE_GPU(1, ""));
	cr_assert_eq(en_prober_new(&o, &prober, NULL), 0);
	cr_assert_eq(en_prober_run(prober, p, NULL), 0);
	cr_expect_eq(p->note_count, 0, "%s", p->notes[0].msg);
	cr_expect_str_eq(p->gpus[0].foreign, "pod team/pod-100");
	cr_expect_str_eq(p->gpus[1].foreign, "pod team/last");
	en_prober_free(prober);
	free(p);
}

/* Instances that were given away, by either strategy of the plugin, are held; the GPU is not foreign. The
 * inventory says so. */
Test(enforcer_probe_kubelet_call, instances)
{
	static const char *const mixed[] = {"MIG-a", NULL}, *const single[] = {"MIG-c::1", NULL},
				 *const own[] = {"MIG-b", NULL};
	char ours[] = "train", *text = NULL;
	struct en_probe_options o = {.library = hw.library,
				     .root = hw.dir,
				     .kubelet_socket = hardware_path(&hw, "kubelet.sock"),
				     .is_our_pod = is_our_pod,
				     .ctx = ours};
	struct en_probe *p = calloc(1, sizeof(*p));
	struct en_prober *prober = NULL;

	buf_reset(&kubelet.message);
	put_pod(&kubelet.message, "team", "infer", "nvidia.com/mig-1g.10gb", mixed);
	put_pod(&kubelet.message, "team", "other", "nvidia.com/gpu", single);
	put_pod(&kubelet.message, "team", "train", "nvidia.com/mig-1g.10gb", own);
	hardware_nvml(&hw,
		      "driver 615.1\n" HARDWARE_GPU(0, "mig=on") HARDWARE_A100_MIG(
			      0) "instance gpu=0 profile=19 id=1 start=0 size=1 uuid=MIG-a\n"
				 "instance gpu=0 profile=19 id=2 start=1 size=1 uuid=MIG-b\n"
				 "instance gpu=0 profile=14 id=3 start=2 size=2 uuid=MIG-c\n"
				 "instance gpu=0 profile=14 id=4 start=4 size=2 uuid=MIG-ab\n");
	cr_assert_eq(en_prober_new(&o, &prober, NULL), 0);
	cr_assert_eq(en_prober_run(prober, p, NULL), 0);
	cr_assert_eq(p->note_count, 0, "%s", p->notes[0].msg);
	cr_assert_eq(p->gpus[0].instance_count, 4);
	for (size_t i = 0; i < 4; i++)
		cr_expect_eq(p->gpus[0].instances[i].held, i == 0 || i == 2, "%s",
			     p->gpus[0].instances[i].uuid);
	cr_expect_str_eq(p->gpus[0].foreign, "");
	cr_assert_eq(en_inventory_encode(p, &text, NULL), 0);
	cr_expect_not_null(strstr(text, "{\"profile\":\"1g.10gb\",\"start\":0,\"held\":true}"),
			   "%s", text);
	cr_expect_not_null(strstr(text, "{\"profile\":\"1g.10gb\",\"start\":1}"), "%s", text);
	free(text);
	buf_reset(&kubelet.message); /* given back */
	cr_assert_eq(en_prober_run(prober, p, NULL), 0);
	for (size_t i = 0; i < 4; i++)
		cr_expect_not(p->gpus[0].instances[i].held);
	en_prober_free(prober);
	free(p);
}

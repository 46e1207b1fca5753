/* A full resync: the list of 5,000 nodes and 150,000 pods, page by page over TLS, decoded as the extender
 * does. The server is a process of its own, so CPU and memory are the client's alone.
 * Usage: bench_resync [NODES PODS]. Targets: 10 s of CPU, 300 MB. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "kube/kube.h"
#include "test/lib/fake_api.h"

#define TLS_DIR "test/lib/tls"
#define TARGET_CPU_S 10.0
#define TARGET_KIB (300L * 1000 * 1000 / 1024)

/* ---- the server ---- */

static unsigned node_count = 5000, pod_count = 150000;
static struct buf node_tail, pod_tail; /* what is the same in all */

static void put_managed_fields(struct buf *b, int managers, int fields)
{
	buf_puts(b, "\"managedFields\":[");
	for (int i = 0; i < managers; i++) {
		buf_printf(
			b,
			"%s{\"manager\":\"manager-%d\",\"operation\":\"Update\",\"apiVersion\":\"v1\","
			"\"time\":\"2026-01-02T03:04:05Z\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{",
			i > 0 ? "," : "", i);
		for (int k = 0; k < fields; k++)
			buf_printf(b,
				   "%s\"f:field-%d\":{\"k:{\\\"name\\\":\\\"c-%d\\\"}\":{\".\":{},"
				   "\"f:value\":{}}}",
				   k > 0 ? "," : "", k, k);
		buf_puts(b, "}}");
	}
	buf_puts(b, "]");
}

/* Some 15.5 KB, as nodes of real clusters were measured: mostly images and managedFields. */
static void make_node_tail(struct buf *b)
{
	buf_puts(b,
		 ",\"labels\":{\"kubernetes.io/arch\":\"amd64\",\"kubernetes.io/os\":\"linux\","
		 "\"topology.kubernetes.io/zone\":\"zone-a\",\"nvidia.com/gpu.count\":\"8\","
		 "\"nvidia.com/gpu.memory\":\"81920\",\"nvidia.com/gpu.product\":\"NVIDIA-A100\"},"
		 "\"annotations\":{\"node.alpha.kubernetes.io/ttl\":\"0\"},");
	put_managed_fields(b, 4, 22);
	buf_puts(
		b,
		"},\"spec\":{\"podCIDR\":\"10.0.0.0/24\"},\"status\":{\"capacity\":{\"cpu\":\"128\","
		"\"memory\":\"1056289536Ki\",\"pods\":\"250\"},\"allocatable\":{\"cpu\":\"127\","
		"\"memory\":\"1040Gi\",\"pods\":\"250\"},\"conditions\":[");
	for (int i = 0; i < 5; i++)
		buf_printf(
			b,
			"%s{\"type\":\"%s\",\"status\":\"%s\",\"lastHeartbeatTime\":"
			"\"2026-01-02T03:04:05Z\",\"lastTransitionTime\":\"2026-01-02T03:04:05Z\","
			"\"reason\":\"KubeletReady\",\"message\":\"kubelet is posting ready status\"}",
			i > 0 ? "," : "", i == 0 ? "Ready" : "MemoryPressure",
			i == 0 ? "True" : "False");
	buf_puts(
		b,
		"],\"addresses\":[{\"type\":\"InternalIP\",\"address\":\"10.0.0.1\"}],\"images\":[");
	for (int i = 0; i < 50; i++)
		buf_printf(b,
			   "%s{\"names\":[\"registry.example.com/team/some-image-%d@sha256:"
			   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"],"
			   "\"sizeBytes\":%d}",
			   i > 0 ? "," : "", i, 100000000 + i);
	buf_puts(b, "]}}");
}

static void put_env(struct buf *b, int n)
{
	buf_puts(b, "\"env\":[");
	for (int i = 0; i < n; i++)
		buf_printf(b,
			   "%s{\"name\":\"SETTING_%d\",\"value\":\"a value of usual length %d\"}",
			   i > 0 ? "," : "", i, i);
	buf_puts(b, "]");
}

/* Some 6.5 KB: two containers, managedFields, status; a GPU share as Tessera writes it. */
static void make_pod_tail(struct buf *b)
{
	buf_puts(
		b,
		",\"labels\":{\"app\":\"train\",\"pod-template-hash\":\"7d4b9c6f5\"},\"annotations\":{"
		"\"tessera.dev/allocation\":\"v1;digest=0123456789abcdef;node=n\","
		"\"nvidia.com/container.main.gpus.devices\":\"GPU-5b1d3c5e-0000-4000-8000-"
		"000000000001\",\"nvidia.com/container.main.gpu-memory.request\":\"20480\","
		"\"kubectl.kubernetes.io/restartedAt\":\"2026-01-02T03:04:05Z\"},"
		"\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":"
		"\"train-7d4b9c6f5\",\"uid\":\"5b1d3c5e-0000-4000-8000-000000000001\"}],");
	put_managed_fields(b, 3, 16);
	buf_puts(
		b,
		"},\"spec\":{\"nodeName\":\"node-00001.cluster.example.internal\",\"schedulerName\":"
		"\"tessera\",\"priority\":0,\"tolerations\":[{\"key\":\"node.kubernetes.io/not-ready\","
		"\"operator\":\"Exists\",\"effect\":\"NoExecute\",\"tolerationSeconds\":300}],"
		"\"volumes\":[{\"name\":\"kube-api-access-abcde\",\"projected\":{\"sources\":[{"
		"\"serviceAccountToken\":{\"expirationSeconds\":3607,\"path\":\"token\"}}]}}],"
		"\"containers\":[");
	for (int i = 0; i < 2; i++) {
		buf_printf(
			b,
			"%s{\"name\":\"%s\",\"image\":\"registry.example.com/team/image:1.2.3\",",
			i > 0 ? "," : "", i == 0 ? "main" : "logger");
		put_env(b, 12);
		buf_puts(
			b,
			",\"resources\":{\"requests\":{\"cpu\":\"500m\",\"memory\":\"2Gi\"},\"limits\":{"
			"\"memory\":\"2Gi\",\"tessera.dev/gpu-memory\":\"20480\"}},\"volumeMounts\":[{"
			"\"name\":\"kube-api-access-abcde\",\"mountPath\":\"/var/run/secrets\"}]}");
	}
	buf_puts(b, "]},\"status\":{\"phase\":\"Running\",\"podIP\":\"10.0.0.7\",\"conditions\":[");
	for (int i = 0; i < 5; i++)
		buf_printf(b,
			   "%s{\"type\":\"Ready\",\"status\":\"True\",\"lastTransitionTime\":"
			   "\"2026-01-02T03:04:05Z\"}",
			   i > 0 ? "," : "");
	buf_puts(
		b,
		"],\"containerStatuses\":[{\"name\":\"main\",\"ready\":true,\"state\":{\"running\":{"
		"\"startedAt\":\"2026-01-02T03:04:05Z\"}},\"imageID\":\"sha256:0123456789abcdef\"}]}}");
}

struct page {
	bool pods;
	unsigned at, end, count;
	bool closed;
	struct buf out; /* what was made and not yet sent */
	size_t sent;
};

static void make_more(struct page *p)
{
	const struct buf *tail = p->pods ? &pod_tail : &node_tail;

	buf_reset(&p->out);
	p->sent = 0;
	while (p->at < p->end && p->out.len < 256 << 10) {
		struct rng rng = {.state = p->at};
		uint64_t a = rng_next(&rng), b = rng_next(&rng);

		buf_printf(
			&p->out,
			"%s{\"metadata\":{\"name\":\"%s-%05u\",%s\"uid\":\"%08x-%04x-4%03x-8%03x-%012llx\","
			"\"resourceVersion\":\"%u\"",
			p->at % 500 == 0 ? "" : ",", p->pods ? "pod" : "node", p->at,
			p->pods ? "\"namespace\":\"team\"," : "", (unsigned)a,
			(unsigned)(a >> 32) & 0xffff, (unsigned)(a >> 48) & 0xfff,
			(unsigned)b & 0xfff, (unsigned long long)(b >> 16), 1000 + p->at);
		buf_put(&p->out, tail->data, tail->len);
		p->at++;
	}
	if (p->at == p->end && !p->closed) {
		p->closed = true;
		buf_puts(&p->out, "]}\n");
	}
}

static ssize_t send_page(void *ctx, char *buf, size_t max)
{
	struct page *p = ctx;
	size_t n;

	if (p->sent == p->out.len)
		make_more(p);
	n = p->out.len - p->sent < max ? p->out.len - p->sent : max;
	memcpy(buf, p->out.data + p->sent, n);
	p->sent += n;
	return (ssize_t)n;
}

static void free_page(void *ctx)
{
	struct page *p = ctx;

	buf_fini(&p->out);
	free(p);
}

static void serve(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	const char *more = strstr(rq->query, "continue=");
	struct page *p = calloc(1, sizeof(*p));

	(void)ctx;
	if (p == NULL)
		abort();
	if (fake_query_has(rq, "watch=1")) {
		free(p);
		*ret = (struct fake_reply){
			.status = 200, .body = "", .chunk = 1, .end = FAKE_END_SILENT};
		return;
	}
	p->pods = strstr(rq->path, "pods") != NULL;
	p->count = p->pods ? pod_count : node_count;
	p->at = more != NULL ? (unsigned)strtoul(more + strlen("continue="), NULL, 10) : 0;
	p->end = p->at + 500 < p->count ? p->at + 500 : p->count;
	buf_printf(&p->out,
		   "{\"kind\":\"%s\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":"
		   "\"777777\"",
		   p->pods ? "PodList" : "NodeList");
	if (p->end < p->count)
		buf_printf(&p->out, ",\"continue\":\"%u\",\"remainingItemCount\":%u", p->end,
			   p->count - p->end);
	buf_puts(&p->out, "},\"items\":[");
	*ret = (struct fake_reply){
		.status = 200, .next = send_page, .next_free = free_page, .next_ctx = p};
}

/* In the child: serves until its input ends. */
static void run_server(int in, int out)
{
	struct fake_api *api;
	char byte;

	make_node_tail(&node_tail);
	make_pod_tail(&pod_tail);
	api = fake_api_start(TLS_DIR);
	fake_api_handle(api, serve, NULL);
	dprintf(out, "%s %zu %zu\n", fake_api_url(api), node_tail.len, pod_tail.len);
	close(out);
	while (read(in, &byte, 1) > 0)
		;
	_exit(0);
}

/* ---- the client ---- */

struct kind {
	bool pods;
	struct ku_arena *arena;
	atomic_uint objects, bad;
	atomic_bool synced;
};

static int on_object(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	struct kind *k = ctx;
	struct st_pod_spec pod;
	struct st_node_spec node;
	int r;

	(void)change;
	ku_arena_reset(k->arena);
	r = k->pods ? ku_pod_decode(obj, k->arena, &pod, err)
		    : ku_node_decode(obj, k->arena, &node, err);
	atomic_fetch_add(&k->objects, 1);
	if (r < 0 && atomic_fetch_add(&k->bad, 1) == 0)
		fprintf(stderr, "%s\n", err->msg);
	return 0;
}

static void on_synced(void *ctx, const char *rv)
{
	struct kind *k = ctx;

	(void)rv;
	atomic_store(&k->synced, true);
}

static void on_problem(void *ctx, const struct err *what)
{
	(void)ctx;
	fprintf(stderr, "%s\n", what->msg);
}

static struct ku_reflector *follow(struct ku_client *c, struct kind *k)
{
	struct ku_reflector_options o = {
		.path = k->pods ? "/api/v1/pods" : "/api/v1/nodes",
		.prune = k->pods ? ku_prune_pods : ku_prune_nodes,
		.consistent = true,
		.handler = {.on_object = on_object,
			    .on_synced = on_synced,
			    .on_problem = on_problem,
			    .ctx = k},
	};
	struct ku_reflector *r;
	struct err err = ERR_INIT;

	k->arena = ku_arena_new();
	if (k->arena == NULL || ku_reflector_new(c, &o, &r, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		exit(2);
	}
	return r;
}

static void wait_synced(struct kind *k)
{
	while (!atomic_load(&k->synced)) {
		struct timespec pause = {.tv_nsec = 5000000};

		nanosleep(&pause, NULL);
	}
	atomic_store(&k->synced, false);
}

static bool measure(const char *url, size_t node_bytes, size_t pod_bytes)
{
	struct ku_config config = {.server = strdup(url),
				   .ns = strdup("default"),
				   .ca = {.path = strdup(TLS_DIR "/ca.crt")}};
	struct ku_client_options co = {.config = &config};
	struct kind nodes = {.pods = false}, pods = {.pods = true};
	struct ku_reflector *rn, *rp;
	struct ku_client *c;
	struct err err = ERR_INIT;
	bool good = true;

	if (ku_client_new(&co, &c, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		exit(2);
	}
	printf("%u nodes of %zu bytes, %u pods of %zu bytes, pages of 500, TLS\n", node_count,
	       node_bytes, pod_count, pod_bytes);
	rn = rp = NULL;
	for (int round = 0; round < 2; round++) {
		double cpu = bench_cpu_s();
		int64_t began = bench_now_ns();

		if (round == 0) {
			rn = follow(c, &nodes);
			rp = follow(c, &pods);
		} else {
			ku_reflector_relist(rn);
			ku_reflector_relist(rp);
		}
		wait_synced(&nodes);
		wait_synced(&pods);
		cpu = bench_cpu_s() - cpu;
		printf("%s: %.2f s of CPU, %.2f s by the clock, peak %ld MB\n",
		       round == 0 ? "first list" : "relist and diff", cpu,
		       (double)(bench_now_ns() - began) * 1e-9, bench_peak_kib() * 1024 / 1000000);
		good = good && cpu < TARGET_CPU_S;
	}
	good = good && bench_peak_kib() < TARGET_KIB && atomic_load(&nodes.bad) == 0 &&
	       atomic_load(&pods.bad) == 0 && atomic_load(&nodes.objects) == 2 * node_count &&
	       atomic_load(&pods.objects) == 2 * pod_count;
	ku_reflector_free(rn);
	ku_reflector_free(rp);
	ku_client_free(c);
	ku_arena_free(nodes.arena);
	ku_arena_free(pods.arena);
	ku_config_fini(&config);
	return good;
}

int main(int argc, char **argv)
{
	int to[2], from[2];
	size_t node_bytes, pod_bytes;
	char line[128], url[64];
	ssize_t n;
	pid_t child;
	bool good;

	if (argc == 3) {
		node_count = (unsigned)strtoul(argv[1], NULL, 10);
		pod_count = (unsigned)strtoul(argv[2], NULL, 10);
	}
	if (pipe(to) != 0 || pipe(from) != 0 || (child = fork()) < 0)
		return 2;
	if (child == 0) {
		close(to[1]);
		run_server(to[0], from[1]);
	}
	close(from[1]);
	n = read(from[0], line, sizeof(line) - 1);
	line[n > 0 ? n : 0] = '\0';
	/* NOLINTNEXTLINE(cert-err34-c): our own child wrote it */
	if (sscanf(line, "%63s %zu %zu", url, &node_bytes, &pod_bytes) != 3)
		return 2;
	good = measure(url, node_bytes, pod_bytes);
	close(to[1]);
	waitpid(child, NULL, 0);
	if (!good)
		puts("MISSED");
	return good ? 0 : 1;
}

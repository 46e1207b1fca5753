#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "bench/bench.h"

/* ---- allocations are counted by standing in front of the C library's ---- */

/* The C library's own names, and those that its header gives the arguments.
 * NOLINTBEGIN(bugprone-reserved-identifier,readability-inconsistent-declaration-parameter-name) */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

static uint64_t allocs;

void *malloc(size_t size)
{
	allocs++;
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	allocs++;
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	allocs++;
	return __libc_realloc(p, size);
}
/* NOLINTEND(bugprone-reserved-identifier,readability-inconsistent-declaration-parameter-name) */

uint64_t bench_allocs(void)
{
	return allocs;
}

/* ---- clocks and numbers ---- */

double bench_cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_process_cpu_s(int pid)
{
	char path[64], *text = NULL, *p;
	unsigned long ticks = 0;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (file_read(path, 1 << 16, &text, &len, NULL) < 0)
		return -1;
	p = strrchr(text, ')');
	/* Behind the name come the state and ten numbers, then the times in user and system mode. */
	for (int i = 0; p != NULL && i < 12; i++)
		p = strchr(p + 1, ' ');
	if (p != NULL) {
		ticks = strtoul(p, &p, 10);
		ticks += strtoul(p, NULL, 10);
	}
	free(text);
	return p != NULL ? (double)ticks / (double)sysconf(_SC_CLK_TCK) : -1;
}

int64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

long bench_peak_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static int cmp_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int64_t bench_percentile(const int64_t *v, size_t n, int permille)
{
	size_t i = n * (size_t)permille / 1000;

	return n == 0 ? 0 : v[i < n ? i : n - 1];
}

void bench_print_ns(const char *label, int64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), cmp_i64);
	printf("%-44s p50 %8.2f  p99 %8.2f  max %8.2f us  (n=%zu)\n", label,
	       (double)bench_percentile(v, n, 500) / 1e3, (double)bench_percentile(v, n, 990) / 1e3,
	       (double)bench_percentile(v, n, 1000) / 1e3, n);
}

/* ---- the pod mix ---- */

static const struct {
	uint16_t weight; /* of 1000 */
	uint16_t milli;  /* of each device */
	uint8_t count;
} shapes[] = {
	{133, 0, 0},  {130, 810, 1},  {92, 470, 1}, {40, 320, 1}, {31, 650, 1},
	{22, 250, 1}, {18, 100, 1},   {16, 550, 1}, {12, 750, 1}, {10, 200, 1},
	{6, 900, 1},  {481, 1000, 1}, {2, 1000, 2}, {2, 1000, 4}, {5, 1000, 8},
};

void bench_mix_next(struct rng *r, int32_t device_mib, struct st_request *ret)
{
	static const int64_t cpus[] = {3152,  4000,  6000,  8000,  11300,
				       11400, 12000, 16000, 32000, 64000};
	uint64_t pick = rng_below(r, 1000);
	size_t i = 0;
	struct st_item *it = &ret->items[0];

	while (pick >= shapes[i].weight)
		pick -= shapes[i++].weight;
	memset(ret, 0, sizeof(*ret));
	ret->cpu_milli = cpus[rng_below(r, 10)];
	if (shapes[i].count == 1 && ret->cpu_milli > 16000)
		ret->cpu_milli = 8000;
	if (shapes[i].count > 1)
		ret->cpu_milli = (int64_t)8000 * shapes[i].count;
	ret->mem_mib = ret->cpu_milli * 2;
	if (shapes[i].count == 0)
		return;
	ret->item_count = 1;
	memcpy(it->container, "main", 5);
	it->count = shapes[i].count;
	it->kind = shapes[i].milli == 1000 ? ST_KIND_WHOLE : ST_KIND_SHARE;
	if (it->kind == ST_KIND_SHARE) {
		it->mode = ST_MODE_TIME_SLICING;
		it->request_mib = device_mib * shapes[i].milli / 1000;
	}
}

/* ---- cluster and pods ---- */

struct st_cluster *bench_cluster(uint32_t node_count, unsigned gpu_count, int32_t device_mib)
{
	struct st_cluster *c = st_cluster_new(NULL);
	struct st_gpu_spec gpus[ST_GPUS_MAX];
	struct err err = ERR_INIT;

	memset(gpus, 0, sizeof(gpus));
	for (unsigned i = 0; i < gpu_count; i++)
		gpus[i].mem_mib = device_mib;
	for (uint32_t i = 0; c && i < node_count; i++) {
		char name[64];
		struct st_node_spec spec = {
			.name = name,
			.product = "NVIDIA-A100-SXM4-80GB",
			.cpu_milli = 128000,
			.mem_mib = 1 << 20,
			.gpu_count = gpu_count,
			.gpus = gpus,
		};

		snprintf(name, sizeof(name), "gpu-node-%06u.cluster.example.internal", i);
		if (st_cluster_node_put(c, &spec, NULL, &err) < 0) {
			fprintf(stderr, "%s\n", err.msg);
			st_cluster_free(c);
			return NULL;
		}
	}
	return c;
}

static void uid_of(uint64_t number, char uid[40])
{
	snprintf(uid, 40, "00000000-0000-4000-8000-%012llx", (unsigned long long)number);
}

uint32_t bench_place(struct st_cluster *c, struct po_placer *p, const struct st_request *req,
		     uint64_t number)
{
	char uid[40];
	struct st_pod_ident ident = {.uid = uid,
				     .ns = "default",
				     .name = "pod",
				     .cpu_milli = req->cpu_milli,
				     .mem_mib = req->mem_mib};
	struct po_shape *s = po_placer_ask(p, req, number);
	uint32_t node = s ? po_shape_best(s) : ST_NONE;
	struct st_decision d;
	struct err err = ERR_INIT;

	if (node == ST_NONE)
		return ST_NONE;
	uid_of(number, uid);
	if (po_placer_choose(p, req, node, number, &d) != BP_OK ||
	    st_cluster_reserve(c, &ident, &d, &err) < 0 ||
	    st_cluster_pod_move(c, uid, ST_EVENT_ACCEPTED, &err) < 0) {
		fprintf(stderr, "a placement was refused: %s\n", err.msg);
		exit(1);
	}
	return node;
}

void bench_release(struct st_cluster *c, uint64_t number)
{
	char uid[40];

	uid_of(number, uid);
	st_cluster_pod_move(c, uid, ST_EVENT_GONE, NULL);
}

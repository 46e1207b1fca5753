/* Three hundred binds in flight on an API server that fails in every way it can, while pods go, nodes
 * change and watches break; afterwards the books are recounted and compared with the server's objects.
 * For ThreadSanitizer. */
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "test/lib/api_fixture.h"

#define PODS 300
#define NODES 6
#define GPUS 8
#define MEM_MIB 81920
#define SEED 11

static struct xa x;
static struct xa_bind binds[PODS];
static bool bound[PODS];
static atomic_bool over;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static int mib_of(int i)
{
	return 1024 * (1 + i % 9);
}

static void names(int i, char *pod, char *uid)
{
	snprintf(pod, 16, "p%d", i);
	snprintf(uid, 16, "u%d", i);
}

/* ---- what goes on beside the binds ---- */

static void *churn(void *arg)
{
	const struct timespec pause = {.tv_nsec = 3000000};
	struct rng rng;

	(void)arg;
	rng_init(&rng, SEED + 1);
	while (!atomic_load(&over)) {
		char node[16], text[64];
		uint64_t r = rng_next(&rng);

		snprintf(node, sizeof(node), "n%d", (int)(r % NODES));
		if (r % 5 == 0)
			fake_cluster_cut(x.c, r % 3 == 0);
		else
			fake_cluster_node(x.c, node, GPUS, MEM_MIB);
		snprintf(text, sizeof(text), "\"gpu-memory\":\"%d\"", 1024);
		fake_cluster_pod(x.c, "noise", "u-noise", text);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void faults(void)
{
	static const struct fake_fault list[] = {
		{.method = "POST", .part = "/binding", .times = -1, .percent = 13, .status = 500},
		{.method = "POST",
		 .part = "/binding",
		 .times = -1,
		 .percent = 10,
		 .status = 500,
		 .after = true},
		{.method = "POST", .part = "/binding", .times = -1, .percent = 10, .reset = true},
		{.method = "POST",
		 .part = "/binding",
		 .times = -1,
		 .percent = 10,
		 .reset = true,
		 .after = true},
		{.method = "POST", .part = "/binding", .times = -1, .percent = 5, .status = 409},
		{.method = "POST",
		 .part = "/binding",
		 .times = -1,
		 .percent = 5,
		 .status = 409,
		 .after = true},
		{.method = "POST", .part = "/binding", .times = -1, .percent = 10, .delay_ms = 30},
		{.method = "GET", .part = "/pods/", .times = -1, .percent = 25, .status = 500},
		{.watches = true, .times = -1, .percent = 20, .status = 500},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		fake_cluster_fault(x.c, list[i]);
}

/* ---- one round: all binds that are not through yet, at once ---- */

static int round_of_binds(struct rng *rng)
{
	char pod[16], uid[16], node[16], text[64];
	int open = 0;

	for (int i = 0; i < PODS; i++) {
		if (bound[i])
			continue;
		names(i, pod, uid);
		snprintf(node, sizeof(node), "n%d", (int)(rng_next(rng) % NODES));
		snprintf(text, sizeof(text), "\"gpu-memory\":\"%d\"", mib_of(i));
		xa_filter(&x, pod, uid, text, node);
		xa_bind_begin(&x, &binds[i], pod, uid, node);
	}
	for (int i = 0; i < PODS; i++) {
		if (bound[i])
			continue;
		names(i, pod, uid);
		bound[i] = xa_bind_end(&binds[i])[0] == '\0';
		open += !bound[i];
		if (bound[i] && fake_cluster_node_of(x.c, pod)[0] == '\0')
			die(pod, "was said to be bound, and is not");
	}
	return open;
}

/* ---- the comparison ---- */

static const char *note_of(const cJSON *pod, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(pod, "metadata"),
						 "annotations"),
		key);

	return cJSON_IsString(v) ? v->valuestring : "";
}

/* MiB that the pods' annotations give away of a GPU. */
static int given(const cJSON *pods, const char *gpu)
{
	const cJSON *pod;
	int sum = 0;

	cJSON_ArrayForEach(pod, pods)
	{
		if (strcmp(note_of(pod, "nvidia.com/container.main.gpus.devices"), gpu) == 0)
			sum += (int)strtol(note_of(pod, "nvidia.com/container.main.gpu-memory."
							"request"),
					   NULL, 10);
	}
	return sum;
}

static void compare(void)
{
	cJSON *pods = fake_cluster_objects(x.c, "pods");
	char gpu[32];
	int all = 0;

	for (int n = 0; n < NODES; n++) {
		for (int g = 0; g < GPUS; g++) {
			int want;

			snprintf(gpu, sizeof(gpu), "GPU-n%d-%d", n, g);
			want = given(pods, gpu);
			all += want;
			if (want > MEM_MIB)
				die(gpu, "is given away twice");
			if (!xa_wait_booked(&x, gpu, want))
				die(gpu, "the books differ from the objects");
		}
	}
	cJSON_Delete(pods);
	xa_check(&x);
	printf("%d MiB on %d GPUs, as the objects say\n", all, NODES * GPUS);
}

int main(void)
{
	pthread_t thread;
	struct rng rng;
	char node[16], pod[16], uid[16], text[64];
	int open = PODS, rounds = 0;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	printf("seed %d\n", SEED);
	rng_init(&rng, SEED);
	xa_init(&x);
	for (int i = 0; i < NODES; i++) {
		snprintf(node, sizeof(node), "n%d", i);
		fake_cluster_node(x.c, node, GPUS, MEM_MIB);
	}
	for (int i = 0; i < PODS; i++) {
		names(i, pod, uid);
		snprintf(text, sizeof(text), "\"gpu-memory\":\"%d\"", mib_of(i));
		fake_cluster_pod(x.c, pod, uid, text);
	}
	xa_open(&x, true);
	faults();
	if (pthread_create(&thread, NULL, churn, NULL) != 0)
		die("churn", "no thread");
	while (rounds < 4 && open > 0) {
		open = round_of_binds(&rng);
		printf("round %d: %d open\n", ++rounds, open);
		for (int i = rounds; i < PODS; i += 7) { /* some go, bound or not */
			names(i, pod, uid);
			if (bound[i])
				fake_cluster_delete(x.c, "pods", pod);
		}
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	printf("%u faults\n", fake_cluster_calm(x.c));
	if (!xa_wait_unsettled(&x, 0))
		die("binds", "are not settled");
	compare();
	xa_shut(&x);
	xa_open(&x, true);
	compare();
	xa_fini(&x);
	curl_global_cleanup();
	return 0;
}

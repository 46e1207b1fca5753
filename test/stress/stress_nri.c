/* A runtime makes, starts, stops and removes containers and hangs up now and then, while hooks ask for
 * limits, the node changes and the agent looks after all of it. Each container gets its own GPU and limit,
 * and what is left in the end is what runs. For ThreadSanitizer. Usage: stress_nri [seed] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "enforcer/hook_server.h"
#include "enforcer/nri.h"
#include "enforcer/nri.pb-c.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/fake_runtime.h"

enum { GPUS = 4, PODS = 24, ROUNDS = 600, MIB = 100 };

#define PATIENCE FAKE_RUNTIME_PATIENCE_MS

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* ---- the driver ---- */

struct driver {
	pthread_mutex_t lock;
	unsigned sets, bad;
};

/* The cgroup's name says what its limit must be: "/cg/k/<id>-<mib>". */
static int driver_set(void *ctx, const char *cgroup, const char *gpu, int64_t soft, int64_t hard,
		      struct err *err)
{
	struct driver *d = ctx;
	const char *dash = strrchr(cgroup, '-');

	(void)gpu;
	(void)err;
	pthread_mutex_lock(&d->lock);
	d->sets++;
	if (dash == NULL || (hard != EN_LIMIT_NONE && hard != strtol(dash + 1, NULL, 10)) ||
	    (soft != 0 && soft != hard))
		d->bad++;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int driver_get(void *ctx, const char *cgroup, const char *gpu, int64_t *soft, int64_t *hard,
		      int64_t *used, struct err *err)
{
	(void)ctx;
	(void)cgroup;
	(void)gpu;
	(void)err;
	if (used != NULL)
		*used = 0;
	*soft = 0;
	*hard = EN_LIMIT_NONE;
	return 0;
}

/* ---- the world ---- */

struct pod {
	struct ef_pod ef;
	char uid[16], id[16];
	/* Environment and mounts as they were given: the runtime shows them in its list. */
	char env[NT_LIST_MAX - 1][160], mounts[NT_LIST_MAX - 1][2][160];
	size_t env_count, mount_count;
	unsigned made; /* containers so far */
	bool there, started;
};

struct world {
	struct ef_node node;
	struct driver driver;
	struct en_limits_ops limits;
	struct en_plugin *plugin;
	struct en_nri *nri;
	struct en_hook_server *hooks;
	struct fake_runtime runtime;
	struct pod pods[PODS];
	char socket[64];
	_Atomic bool over;
};

static int32_t mib_of(int pod)
{
	return MIB + pod;
}

static struct nt_pod pod_text(const struct pod *p)
{
	return (struct nt_pod){.id = p->uid,
			       .name = p->uid,
			       .uid = p->uid,
			       .ns = "ns",
			       .annotation_count = p->ef.spec.annotation_count,
			       .annotations = p->ef.spec.annotations};
}

/* Answers are lost with their connection: -1. */
static int call(struct world *w, int i, const char *method, struct buf *answer)
{
	const struct nt_pod pod = pod_text(&w->pods[i]);
	const struct nt_container c = {
		.id = w->pods[i].id, .pod_id = w->pods[i].uid, .name = "main"};
	struct buf b = BUF_INIT;
	int code;

	nt_container(&b, &pod, &c);
	code = fake_runtime_call(&w->runtime, method, &b, PATIENCE, answer, NULL, 0);
	buf_fini(&b);
	return code;
}

/* What a runtime makes of it. */
static void adjust(struct pod *p, const En__Nri__ContainerAdjustment *a)
{
	if (a->n_env >= NT_LIST_MAX || a->n_mounts >= NT_LIST_MAX)
		die("create", "more than there is room for");
	p->env_count = a->n_env;
	for (size_t k = 0; k < a->n_env; k++)
		snprintf(p->env[k], sizeof(p->env[k]), "%s=%s", a->env[k]->key, a->env[k]->value);
	p->mount_count = a->n_mounts;
	for (size_t k = 0; k < a->n_mounts; k++) {
		snprintf(p->mounts[k][0], sizeof(p->mounts[k][0]), "%s", a->mounts[k]->source);
		snprintf(p->mounts[k][1], sizeof(p->mounts[k][1]), "%s", a->mounts[k]->destination);
	}
}

static struct nt_container as_listed(const struct pod *p)
{
	struct nt_container c = {
		.id = p->id, .pod_id = p->uid, .name = "main", .state = EN_NRI_CREATED};

	for (size_t k = 0; k < p->env_count; k++)
		c.env[k] = p->env[k];
	for (size_t k = 0; k < p->mount_count; k++) {
		c.mounts[k].source = p->mounts[k][0];
		c.mounts[k].target = p->mounts[k][1];
	}
	return c;
}

static void check_answer(struct world *w, int i, const struct buf *answer)
{
	En__Nri__CreateContainerResponse *m = en__nri__create_container_response__unpack(
		NULL, answer->len, (const uint8_t *)answer->data);
	char want[16];
	int right = 0;

	snprintf(want, sizeof(want), "%d", mib_of(i));
	if (m == NULL || m->adjust == NULL)
		die("create", "no adjustment");
	for (size_t k = 0; k < m->adjust->n_env; k++) {
		const En__Nri__KeyValue *e = m->adjust->env[k];

		right += strcmp(e->key, "NVIDIA_VISIBLE_DEVICES") == 0 &&
			 strcmp(e->value, w->node.gpus[i % GPUS].uuid) == 0;
		right += strcmp(e->key, "NVIDIA_GPU_MEMORY_LIMIT") == 0 &&
			 strcmp(e->value, want) == 0;
	}
	if (right != 2)
		die("create", "somebody else's share");
	adjust(&w->pods[i], m->adjust);
	en__nri__create_container_response__free_unpacked(m, NULL);
}

static void create(struct world *w, int i)
{
	struct pod *p = &w->pods[i];
	struct buf answer = BUF_INIT;
	int code;

	snprintf(p->id, sizeof(p->id), "c%dx%u", i, p->made++);
	code = call(w, i, "CreateContainer", &answer);
	if (code > 0)
		die("create", "refused");
	if (code == 0)
		check_answer(w, i, &answer);
	p->there = code == 0;
	p->started = false;
	buf_fini(&answer);
}

static void forget(struct world *w, int i)
{
	w->pods[i].there = w->pods[i].started = false;
}

/* A new connection, with the list of what is there. */
static void connect_again(struct world *w)
{
	struct nt_container containers[PODS];
	struct nt_pod pods[PODS];
	struct fake_handshake h = {.pods = pods, .containers = containers};

	fake_runtime_hang_up(&w->runtime);
	for (int i = 0; i < PODS; i++) {
		pods[h.pod_count++] = pod_text(&w->pods[i]);
		if (w->pods[i].there)
			containers[h.container_count++] = as_listed(&w->pods[i]);
	}
	if (fake_runtime_handshake(&w->runtime, &h) != 0x2628)
		die("handshake", "went wrong");
}

static void play(struct world *w, struct rng *rng)
{
	for (int n = 0; n < ROUNDS; n++) {
		int i = (int)rng_below(rng, PODS);

		if (rng_below(rng, 100) < 3) {
			connect_again(w);
		} else if (!w->pods[i].there) {
			create(w, i);
		} else if (!w->pods[i].started) {
			/* The process is no container's: the start is refused, which is fine here. */
			(void)call(w, i, "StartContainer", NULL);
			w->pods[i].started = true;
		} else {
			if (rng_below(rng, 2) == 0 && call(w, i, "StopContainer", NULL) != 0)
				die("stop", "was held up");
			if (call(w, i, "RemoveContainer", NULL) != 0)
				die("remove", "was held up");
			forget(w, i);
		}
	}
}

/* ---- beside it ---- */

static int limit(void *ctx, const struct en_limit_request *r, struct err *err)
{
	return en_plugin_limit(ctx, r, err);
}

/* Hooks of containers that the plugin does not know: their own figures count. */
static void *ask_for_limits(void *ctx)
{
	struct world *w = ctx;
	struct rng rng;

	rng_init(&rng, 7);
	while (!atomic_load(&w->over)) {
		struct en_limit_request r = {.pid = 1, .gpu_count = 1};
		int mib = (int)rng_below(&rng, 1000) + 1;

		snprintf(r.id, sizeof(r.id), "h%d", mib);
		snprintf(r.cgroup, sizeof(r.cgroup), "/k/h%d-%d", mib, mib);
		memcpy(r.gpus[0].uuid, w->node.gpus[mib % GPUS].uuid, EN_UUID_CAP);
		r.gpus[0].soft_mib = r.gpus[0].hard_mib = mib;
		if (en_plugin_limit(w->plugin, &r, NULL) != 0)
			die("limit", "refused");
	}
	return NULL;
}

static void *change_the_node(void *ctx)
{
	struct world *w = ctx;
	static const char *const why[] = {"a", "b"};
	struct en_node node = w->node.node;

	for (unsigned n = 0; !atomic_load(&w->over); n++) {
		node.mps_why = why[n % 2];
		if (en_plugin_set_node(w->plugin, &node, NULL) != 0)
			die("node", "refused");
	}
	return NULL;
}

static void count_row(void *ctx, const struct en_holding *h)
{
	*(size_t *)ctx += h->grant.count;
}

static void *look_after(void *ctx)
{
	struct world *w = ctx;
	struct en_plugin_stats stats;
	struct en_nri_figures figures;

	while (!atomic_load(&w->over)) {
		size_t rows = 0;

		en_plugin_reconcile(w->plugin);
		en_plugin_get_stats(w->plugin, &stats);
		en_plugin_each(w->plugin, count_row, &rows);
		en_nri_get_figures(w->nri, &figures);
		if (rows > (size_t)2 * PODS)
			die("rows", "too many");
		usleep(500);
	}
	return NULL;
}

/* ---- all together ---- */

static void world_init(struct world *w)
{
	struct en_plugin_options po = {
		.apply = {.hook_path = "/opt/hook"}, .limits = &w->limits, .cgroup_mount = "/cg"};
	struct en_nri_options no = {
		.fd = -1, .wait_min_ms = 1, .wait_max_ms = 2, .budget_ms = PATIENCE};
	struct en_nri_handler h;
	struct err err = ERR_INIT;

	fake_runtime_init(&w->runtime);
	snprintf(w->socket, sizeof(w->socket), "%s/hook.sock", w->runtime.folder);
	ef_node_init(&w->node, "n", GPUS, PODS * (MIB + PODS));
	for (int i = 0; i < PODS; i++) {
		snprintf(w->pods[i].uid, sizeof(w->pods[i].uid), "u%d", i);
		ef_pod_shared(&w->pods[i].ef, w->pods[i].uid, &w->node, ST_MODE_TIME_SLICING,
			      (uint8_t)(i % GPUS), mib_of(i));
	}
	pthread_mutex_init(&w->driver.lock, NULL);
	w->limits = (struct en_limits_ops){driver_set, driver_get, &w->driver};
	if (en_plugin_new(&po, &w->plugin, &err) != 0 ||
	    en_plugin_set_node(w->plugin, &w->node.node, &err) != 0)
		die("plugin", err.msg);
	h = en_nri_plugin_handler(w->plugin);
	no.socket = w->runtime.path;
	if (en_nri_start(&no, &h, &w->nri, &err) != 0 ||
	    en_hook_server_start(w->socket, limit, w->plugin, NULL, NULL, &w->hooks, &err) != 0)
		die("threads", err.msg);
}

static void world_fini(struct world *w)
{
	en_hook_server_stop(w->hooks);
	en_nri_stop(w->nri);
	en_plugin_free(w->plugin);
	fake_runtime_fini(&w->runtime);
	for (int i = 0; i < PODS; i++)
		ef_pod_fini(&w->pods[i].ef);
	pthread_mutex_destroy(&w->driver.lock);
}

int main(int argc, char **argv)
{
	static void *(*const beside[])(void *) = {ask_for_limits, change_the_node, look_after};
	enum { BESIDE = sizeof(beside) / sizeof(beside[0]) };
	static struct world w;
	pthread_t threads[BESIDE];
	struct en_plugin_stats stats;
	struct rng rng;
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	size_t there = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	rng_init(&rng, seed);
	world_init(&w);
	for (int i = 0; i < BESIDE; i++) {
		if (pthread_create(&threads[i], NULL, beside[i], &w) != 0)
			die("thread", "cannot start");
	}
	connect_again(&w);
	play(&w, &rng);
	connect_again(&w);
	atomic_store(&w.over, true);
	for (int i = 0; i < BESIDE; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < PODS; i++)
		there += w.pods[i].there;
	en_plugin_get_stats(w.plugin, &stats);
	printf("%zu rows, %llu given, %u limits set\n", stats.holdings,
	       (unsigned long long)stats.given, w.driver.sets);
	if (stats.holdings != there)
		die("rows", "not what is there");
	if (w.driver.bad > 0)
		die("limits", "of another container");
	world_fini(&w);
	return 0;
}

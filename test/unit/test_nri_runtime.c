/* The plugin's threads against a scripted runtime over a real socket: pieces, delays, repetitions, late
 * answers, lost connections, and coming back. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "enforcer/nri.h"
#include "enforcer/nri.pb-c.h"
#include "test/lib/enforcer_fixture.h"
#include "test/lib/fake_runtime.h"

#define GPU(i) "GPU-0000000" #i "-0000-4000-8000-000000000000"
#define TIME ST_MODE_TIME_SLICING
#define PATIENCE FAKE_RUNTIME_PATIENCE_MS

/* ---- plugin, threads and runtime together ---- */

struct scene {
	struct fake_runtime runtime;
	struct ef_node node;
	struct en_plugin_options plugin_options;
	struct en_plugin *plugin;
	struct en_nri_options options;
	struct en_nri_handler inner; /* the plugin's */
	struct en_nri *nri;

	/* A call to hold up, and where it waits. */
	_Atomic int hold; /* enum en_nri_method + 1; 0 = none */
	sem_t held, go_on;
	_Atomic unsigned undone, synchronized;
};

static void scene_handle(void *ctx, struct en_nri_request *take_r, struct en_nri_reply *ret)
{
	struct scene *s = ctx;

	if (atomic_load(&s->hold) == (int)take_r->method + 1) {
		sem_post(&s->held);
		sem_wait(&s->go_on);
	}
	s->inner.handle(s->inner.ctx, take_r, ret);
}

static void scene_connected(void *ctx)
{
	struct scene *s = ctx;

	s->inner.connected(s->inner.ctx);
}

static void scene_undo(void *ctx, const char *id)
{
	struct scene *s = ctx;

	s->inner.undo(s->inner.ctx, id);
	atomic_fetch_add(&s->undone, 1);
}

static void scene_synchronized(void *ctx)
{
	atomic_fetch_add(&((struct scene *)ctx)->synchronized, 1);
}

static void scene_init(struct scene *s)
{
	memset(s, 0, sizeof(*s));
	fake_runtime_init(&s->runtime);
	sem_init(&s->held, 0, 0);
	sem_init(&s->go_on, 0, 0);
	ef_node_init(&s->node, "n", 2, 10000);
	s->plugin_options.apply.hook_path = "/opt/hook";
	s->plugin_options.cgroup_mount = "/cg";
	cr_assert_eq(en_plugin_new(&s->plugin_options, &s->plugin, NULL), 0);
	cr_assert_eq(en_plugin_set_node(s->plugin, &s->node.node, NULL), 0);
	s->options = (struct en_nri_options){
		.socket = s->runtime.path, .fd = -1, .wait_min_ms = 1, .wait_max_ms = 8, .seed = 1};
}

static void scene_start(struct scene *s)
{
	struct en_nri_handler h = {
		scene_connected, scene_handle, scene_undo, scene_synchronized, s, s};
	struct err err = ERR_INIT;

	s->inner = en_nri_plugin_handler(s->plugin);
	cr_assert_eq(en_nri_start(&s->options, &h, &s->nri, &err), 0, "%s", err.msg);
}

static void scene_fini(struct scene *s)
{
	en_nri_stop(s->nri);
	en_plugin_free(s->plugin);
	fake_runtime_fini(&s->runtime);
	sem_destroy(&s->held);
	sem_destroy(&s->go_on);
}

static struct nt_pod pod_of(const struct ef_pod *p)
{
	return (struct nt_pod){.id = p->spec.uid,
			       .name = p->spec.name,
			       .uid = p->spec.uid,
			       .ns = p->spec.ns,
			       .annotation_count = p->spec.annotation_count,
			       .annotations = p->spec.annotations};
}

static void put_container(struct buf *b, const struct ef_pod *p, const char *id, const char *name)
{
	const struct nt_container c = {.id = id, .pod_id = p->spec.uid, .name = name};
	const struct nt_pod pod = pod_of(p);

	nt_container(b, &pod, &c);
}

/* Sends a call of that pod's container; its answer's code. */
static int call(struct scene *s, const char *method, const struct ef_pod *p, const char *id,
		const char *name, struct buf *ret)
{
	struct buf b = BUF_INIT;
	int code;

	put_container(&b, p, id, name);
	code = fake_runtime_call(&s->runtime, method, &b, PATIENCE, ret, NULL, 0);
	buf_fini(&b);
	return code;
}

/* The last value that a CreateContainerResponse sets; "" = none. */
static void env_of(const struct buf *answer, const char *key, char *value, size_t cap)
{
	En__Nri__CreateContainerResponse *m = en__nri__create_container_response__unpack(
		NULL, answer->len, (const uint8_t *)answer->data);

	value[0] = '\0';
	cr_assert_not_null(m);
	for (size_t i = 0; m->adjust != NULL && i < m->adjust->n_env; i++) {
		if (strcmp(m->adjust->env[i]->key, key) == 0)
			snprintf(value, cap, "%s", m->adjust->env[i]->value);
	}
	en__nri__create_container_response__free_unpacked(m, NULL);
}

static void expect_created(struct scene *s, const struct ef_pod *p, const char *id,
			   const char *name, const char *gpus)
{
	struct buf answer = BUF_INIT;
	char value[256];

	cr_assert_eq(call(s, "CreateContainer", p, id, name, &answer), 0);
	env_of(&answer, "NVIDIA_VISIBLE_DEVICES", value, sizeof(value));
	cr_expect_str_eq(value, gpus);
	buf_fini(&answer);
}

static struct en_nri_figures figures(struct scene *s)
{
	struct en_nri_figures f;

	en_nri_get_figures(s->nri, &f);
	return f;
}

/* Until a figure that another thread writes is there; what is waited for must come. */
static void wait_for(bool (*true_now)(struct scene *s), struct scene *s)
{
	for (int i = 0; i < PATIENCE; i++) {
		if (true_now(s))
			return;
		usleep(1000);
	}
	cr_assert_fail("what was waited for did not come");
}

static bool is_undone(struct scene *s)
{
	return atomic_load(&s->undone) > 0;
}

static bool is_synchronized(struct scene *s)
{
	return figures(s).synchronized;
}

static bool is_unconnected(struct scene *s)
{
	return !figures(s).connected;
}

static bool has_failed(struct scene *s)
{
	return figures(s).failures >= 1;
}

static bool has_failed_twice(struct scene *s)
{
	return figures(s).failures >= 2;
}

static size_t holdings(struct scene *s)
{
	struct en_plugin_stats st;

	en_plugin_get_stats(s->plugin, &st);
	return st.holdings;
}

/* ---- the life of a container ---- */

static void life_of_a_container(struct scene *s, const struct ef_pod *p)
{
	struct buf b = BUF_INIT;
	const struct nt_pod pod = pod_of(p);
	const struct nt_container c = {.id = "c1", .pod_id = p->spec.uid, .name = "main"};

	expect_created(s, p, "c1", "main", GPU(0));
	expect_created(s, p, "c2", "other", "void");
	cr_expect_eq(holdings(s), 1);
	cr_expect_eq(call(s, "StartContainer", p, "c1", "main", NULL), 0);
	/* The older runtimes' way to say the same. */
	nt_state_change(&b, 6, &pod, &c);
	cr_expect_eq(fake_runtime_call(&s->runtime, "StateChange", &b, PATIENCE, NULL, NULL, 0), 0);
	buf_reset(&b);
	cr_expect_eq(call(s, "StopContainer", p, "c1", "main", NULL), 0);
	nt_state_change(&b, 11, &pod, &c);
	cr_expect_eq(fake_runtime_call(&s->runtime, "StateChange", &b, PATIENCE, NULL, NULL, 0), 0);
	buf_fini(&b);
	cr_expect_eq(holdings(s), 0);
}

/* Frames cut anywhere, with and without pauses between the pieces. */
Test(nri_runtime, pieces_of_every_size)
{
	static const size_t pieces[] = {0, 1, 2, 3, 7, 8, 9, 17, 18, 19, 64, 1000, 4095, 4104};
	struct ef_pod p;

	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct scene s;

		scene_init(&s);
		s.runtime.piece = pieces[i];
		s.runtime.pause_us = pieces[i] > 1000 ? 100 : 0;
		ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
		scene_start(&s);
		cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
		life_of_a_container(&s, &p);
		cr_expect_null(s.runtime.peer.fault, "%s", s.runtime.peer.fault);
		scene_fini(&s);
		ef_pod_fini(&p);
	}
}

Test(nri_runtime, orders_of_the_handshake)
{
	struct fake_handshake h = {.version = "1.7.24", .configure_first = true};
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, &h), 0x628);
	wait_for(is_synchronized, &s);
	cr_expect_eq(atomic_load(&s.synchronized), 1);
	cr_expect_str_eq(figures(&s).runtime_version, "1.7.24");
	cr_expect_not(figures(&s).validates);
	life_of_a_container(&s, &p);
	scene_fini(&s);
	ef_pod_fini(&p);
}

Test(nri_runtime, a_long_list_in_parts)
{
	enum { COUNT = 40 };
	struct nt_container containers[COUNT];
	struct nt_pod pods[COUNT];
	struct fake_handshake h = {.pod_count = COUNT,
				   .container_count = COUNT,
				   .pods = pods,
				   .containers = containers};
	static char ids[COUNT][16], uids[COUNT][16];
	struct ef_pod p[COUNT];
	struct scene s;

	scene_init(&s);
	for (int i = 0; i < COUNT; i++) {
		snprintf(ids[i], sizeof(ids[i]), "c%d", i);
		snprintf(uids[i], sizeof(uids[i]), "u%d", i);
		ef_pod_shared(&p[i], uids[i], &s.node, TIME, (uint8_t)(i % 2), 100);
		pods[i] = pod_of(&p[i]);
		containers[i] = (struct nt_container){
			.id = ids[i], .pod_id = uids[i], .name = "main", .state = EN_NRI_RUNNING};
	}
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, &h), 0x2628);
	cr_expect_eq(holdings(&s), COUNT);
	/* Again, in 56 parts: as many as are taken. */
	h.in_parts = true;
	h.pod_count = h.container_count = 28;
	fake_runtime_hang_up(&s.runtime);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, &h), 0x2628);
	cr_expect_eq(holdings(&s), 28);
	scene_fini(&s);
	for (int i = 0; i < COUNT; i++)
		ef_pod_fini(&p[i]);
}

/* ---- odd runtimes ---- */

Test(nri_runtime, repeated_calls)
{
	struct buf b = BUF_INIT, payload = BUF_INIT, answer = BUF_INIT;
	struct go_message m;
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	/* The same event twice: the same answer. */
	expect_created(&s, &p, "c1", "main", GPU(0));
	expect_created(&s, &p, "c1", "main", GPU(0));
	cr_expect_eq(holdings(&s), 1);
	cr_expect_eq(call(&s, "RemoveContainer", &p, "c1", "main", NULL), 0);
	cr_expect_eq(call(&s, "RemoveContainer", &p, "c1", "main", NULL), 0);
	cr_expect_eq(call(&s, "StopContainer", &p, "never-seen", "main", NULL), 0);
	/* The same bytes twice: the second has a used id. */
	put_container(&payload, &p, "c1", "main");
	nt_call(&b, 101, "CreateContainer", &payload, 0);
	nt_call(&b, 101, "CreateContainer", &payload, 0);
	cr_expect(fake_runtime_write(&s.runtime, &b));
	for (int i = 0, good = 0, bad = 0; i < 2; i++) {
		int code;

		cr_assert(fake_runtime_read(&s.runtime, 1, PATIENCE, &m));
		code = nt_answer(m.data, m.len, &answer, NULL, 0);
		good += code == 0;
		bad += code == 3;
		free(m.data);
		cr_expect(i == 0 || (good == 1 && bad == 1));
	}
	buf_fini(&b);
	buf_fini(&payload);
	buf_fini(&answer);
	scene_fini(&s);
	ef_pod_fini(&p);
}

/* Many calls at once: answered in order, each under its id. */
Test(nri_runtime, calls_without_waiting)
{
	enum { COUNT = 50 };
	uint32_t streams[COUNT];
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	for (int i = 0; i < COUNT; i++) {
		struct buf b = BUF_INIT;

		put_container(&b, &p, "c1", i % 2 == 0 ? "main" : "other");
		streams[i] = fake_runtime_send(&s.runtime, "CreateContainer", &b);
		buf_fini(&b);
	}
	for (int i = 0; i < COUNT; i++) {
		struct buf answer = BUF_INIT;
		char value[256];

		cr_assert_eq(
			fake_runtime_answer(&s.runtime, streams[i], PATIENCE, &answer, NULL, 0), 0);
		env_of(&answer, "NVIDIA_VISIBLE_DEVICES", value, sizeof(value));
		cr_expect_str_eq(value, i % 2 == 0 ? GPU(0) : "void");
		buf_fini(&answer);
	}
	scene_fini(&s);
	ef_pod_fini(&p);
}

Test(nri_runtime, unknown_frames_and_messages_do_no_harm)
{
	struct buf b = BUF_INIT;
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	go_put_message(&b, 7, 1, 1, "nobody", 6);    /* a connection that is not used */
	go_put_message(&b, 1, 1, 9, "type", 4);      /* a type that does not exist */
	go_put_message(&b, 2, 99, 2, "", 0);         /* an answer to nothing */
	go_put_message(&b, 2, 1, 2, "", 0);          /* to the registration, a second time */
	go_put_message(&b, 1, 55, 1, "\xff\xff", 2); /* not a request */
	cr_expect(fake_runtime_write(&s.runtime, &b));
	cr_expect_eq(fake_runtime_answer(&s.runtime, 55, PATIENCE, NULL, NULL, 0), 3);
	s.runtime.stream = 55;
	life_of_a_container(&s, &p);
	buf_fini(&b);
	scene_fini(&s);
	ef_pod_fini(&p);
}

/* Lengths that lie: the connection is given up, and made again. */
Test(nri_runtime, hostile_lengths)
{
	static const unsigned char frames[][8] = {{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
						  {0, 0, 0, 2, 0x01, 0, 0, 1}};
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		struct buf b = BUF_INIT;

		cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
		buf_put(&b, frames[i], sizeof(frames[i]));
		cr_expect(fake_runtime_write(&s.runtime, &b));
		cr_expect(fake_runtime_gone(&s.runtime, PATIENCE));
		fake_runtime_hang_up(&s.runtime);
		buf_fini(&b);
	}
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	life_of_a_container(&s, &p);
	cr_expect_geq(figures(&s).failures, 2);
	scene_fini(&s);
	ef_pod_fini(&p);
}

/* ---- late answers ---- */

Test(nri_runtime, a_late_create_is_refused_in_time_and_undone)
{
	struct buf b = BUF_INIT;
	char text[256] = "";
	struct ef_pod p;
	struct scene s;
	int64_t begin;
	struct timespec ts;

	scene_init(&s);
	s.options.budget_ms = 50;
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	atomic_store(&s.hold, EN_NRI_CREATE + 1);
	put_container(&b, &p, "c1", "main");
	clock_gettime(CLOCK_MONOTONIC, &ts);
	begin = ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
	cr_expect_eq(fake_runtime_call(&s.runtime, "CreateContainer", &b, PATIENCE, NULL, text,
				       sizeof(text)),
		     4);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	cr_expect_geq(ts.tv_sec * 1000 + ts.tv_nsec / 1000000 - begin, 49);
	cr_expect_str_eq(text, "tessera: CreateContainer took longer than 50 ms");
	/* Others wait behind it, and are answered in time as well. */
	cr_expect_eq(call(&s, "CreateContainer", &p, "c2", "main", NULL), 4);
	cr_expect_eq(call(&s, "StopContainer", &p, "c2", "main", NULL), 0,
		     "stopping is not held up");
	atomic_store(&s.hold, 0);
	sem_post(&s.go_on);
	wait_for(is_undone, &s);
	/* The connection has held, and no row is left of what was refused. */
	expect_created(&s, &p, "c3", "main", GPU(0));
	cr_expect_eq(holdings(&s), 1);
	cr_expect_eq(figures(&s).late, 3);
	cr_expect(figures(&s).connected);
	buf_fini(&b);
	scene_fini(&s);
	ef_pod_fini(&p);
}

Test(nri_runtime, fail_open_lets_late_calls_pass)
{
	struct buf answer = BUF_INIT;
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	s.options.budget_ms = 30;
	s.options.fail_open = true;
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	atomic_store(&s.hold, EN_NRI_CREATE + 1);
	cr_expect_eq(call(&s, "CreateContainer", &p, "c1", "main", &answer), 0);
	cr_expect_eq(answer.len, 0);
	sem_post(&s.go_on);
	buf_fini(&answer);
	scene_fini(&s);
	ef_pod_fini(&p);
}

/* A call is at work when the connection goes: its answer must not reach the next one. */
Test(nri_runtime, a_connection_lost_in_the_middle_of_a_call)
{
	struct buf b = BUF_INIT;
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	atomic_store(&s.hold, EN_NRI_CREATE + 1);
	put_container(&b, &p, "c1", "main");
	fake_runtime_send(&s.runtime, "CreateContainer", &b);
	sem_wait(&s.held);
	fake_runtime_hang_up(&s.runtime);
	wait_for(has_failed, &s);
	atomic_store(&s.hold, 0);
	sem_post(&s.go_on);
	wait_for(is_undone, &s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	cr_expect_eq(holdings(&s), 0);
	life_of_a_container(&s, &p);
	buf_fini(&b);
	scene_fini(&s);
	ef_pod_fini(&p);
}

/* ---- coming back ---- */

Test(nri_runtime, restarts_of_the_runtime)
{
	struct ef_pod p;
	struct scene s;

	scene_init(&s);
	fake_runtime_stop(&s.runtime); /* not there yet when the agent starts */
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	scene_start(&s);
	for (int i = 0; i < 5; i++) {
		fake_runtime_listen(&s.runtime);
		cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628, "round %d", i);
		wait_for(is_synchronized, &s);
		expect_created(&s, &p, "c1", "main", GPU(0));
		fake_runtime_stop(&s.runtime);
		wait_for(is_unconnected, &s);
	}
	cr_expect_eq(figures(&s).connections, 5);
	cr_expect(figures(&s).why[0] != '\0');
	scene_fini(&s);
	ef_pod_fini(&p);
}

/* The runtime does not know VALIDATE although its version says so: it hangs up after Configure. */
Test(nri_runtime, the_smaller_mask_is_tried_next)
{
	struct buf b = BUF_INIT;
	struct scene s;

	scene_init(&s);
	scene_start(&s);
	for (int round = 0; round < 2; round++) {
		cr_assert(fake_runtime_accept(&s.runtime, PATIENCE));
		nt_configure(&b, "containerd", "v2.3.4", "");
		cr_expect_eq(
			fake_runtime_call(&s.runtime, "Configure", &b, PATIENCE, NULL, NULL, 0), 0);
		buf_reset(&b);
		fake_runtime_hang_up(&s.runtime);
		cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x628);
		/* Next time the larger one is tried again: the runtime may be a newer one. */
		wait_for(is_synchronized, &s);
		fake_runtime_hang_up(&s.runtime);
	}
	buf_fini(&b);
	scene_fini(&s);
}

Test(nri_runtime, a_refused_or_unanswered_registration)
{
	struct buf b = BUF_INIT;
	struct scene s;

	scene_init(&s);
	s.options.patience_ms = 30;
	scene_start(&s);
	cr_assert(fake_runtime_accept(&s.runtime, PATIENCE));
	nt_vector("register_rsp_bad_index", &b);
	cr_expect(fake_runtime_write(&s.runtime, &b));
	cr_expect(fake_runtime_gone(&s.runtime, PATIENCE), "the socket stays open and dead");
	cr_assert(fake_runtime_accept(&s.runtime, PATIENCE));
	cr_expect(fake_runtime_gone(&s.runtime, PATIENCE), "nobody answers");
	wait_for(has_failed_twice, &s);
	cr_expect(strstr(figures(&s).why, "did not answer the registration within 30 ms") != NULL,
		  "%s", figures(&s).why);
	buf_fini(&b);
	scene_fini(&s);
}

/* Started by the runtime itself, with a connection at birth. */
Test(nri_runtime, a_given_connection)
{
	struct ef_pod p;
	struct scene s;
	int fd;

	scene_init(&s);
	ef_pod_shared(&p, "u", &s.node, TIME, 0, 1000);
	fd = fake_runtime_pair(&s.runtime);
	s.options.fd = fd;
	scene_start(&s);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	life_of_a_container(&s, &p);
	cr_expect_not(figures(&s).ended);
	fake_runtime_hang_up(&s.runtime);
	wait_for(is_unconnected, &s);
	for (int i = 0; i < PATIENCE && !figures(&s).ended; i++)
		usleep(1000);
	cr_expect(figures(&s).ended);
	scene_fini(&s);
	ef_pod_fini(&p);
}

Test(nri_runtime, stop_at_any_time)
{
	struct scene s;

	scene_init(&s);
	scene_start(&s); /* nobody accepts */
	scene_fini(&s);
	scene_init(&s);
	scene_start(&s);
	cr_assert(fake_runtime_accept(&s.runtime, PATIENCE)); /* accepted, no word */
	scene_fini(&s);
	scene_init(&s);
	fake_runtime_stop(&s.runtime);
	scene_start(&s); /* no socket */
	scene_fini(&s);
	en_nri_stop(NULL);
}

Test(nri_runtime, names_are_checked_at_once)
{
	struct en_nri_handler h = {.handle = scene_handle};
	struct en_nri_options o = {.fd = -1, .idx = "1"};
	struct en_nri *n = NULL;
	struct err err = ERR_INIT;

	cr_expect_eq(en_nri_start(&o, &h, &n, &err), ERR_INVALID);
	cr_expect_null(n);
}

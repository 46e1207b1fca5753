/* The plugin's threads and a scripted runtime on a real socket, with a way to hold up a call. */
#ifndef TESSERA_TEST_NRI_SCENE_H
#define TESSERA_TEST_NRI_SCENE_H

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
	_Atomic bool hold_undo; /* the same for taking back what came too late */
	char undone_id[130];    /* of the last one, read behind the hold */
};

static inline void scene_handle(void *ctx, struct en_nri_request *take_r, struct en_nri_reply *ret)
{
	struct scene *s = ctx;

	if (atomic_load(&s->hold) == (int)take_r->method + 1) {
		sem_post(&s->held);
		sem_wait(&s->go_on);
	}
	s->inner.handle(s->inner.ctx, take_r, ret);
}

static inline void scene_connected(void *ctx)
{
	struct scene *s = ctx;

	s->inner.connected(s->inner.ctx);
}

static inline void scene_undo(void *ctx, const char *id)
{
	struct scene *s = ctx;

	if (atomic_load(&s->hold_undo)) {
		sem_post(&s->held);
		sem_wait(&s->go_on);
	}
	snprintf(s->undone_id, sizeof(s->undone_id), "%s", id);
	s->inner.undo(s->inner.ctx, id);
	atomic_fetch_add(&s->undone, 1);
}

static inline void scene_synchronized(void *ctx)
{
	atomic_fetch_add(&((struct scene *)ctx)->synchronized, 1);
}

static inline void scene_init(struct scene *s)
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

static inline void scene_start(struct scene *s)
{
	struct en_nri_handler h = {
		scene_connected, scene_handle, scene_undo, scene_synchronized, s, s};
	struct err err = ERR_INIT;

	s->inner = en_nri_plugin_handler(s->plugin);
	cr_assert_eq(en_nri_start(&s->options, &h, &s->nri, &err), 0, "%s", err.msg);
}

static inline void scene_fini(struct scene *s)
{
	en_nri_stop(s->nri);
	en_plugin_free(s->plugin);
	fake_runtime_fini(&s->runtime);
	sem_destroy(&s->held);
	sem_destroy(&s->go_on);
}

static inline struct nt_pod pod_of(const struct ef_pod *p)
{
	return (struct nt_pod){.id = p->spec.uid,
			       .name = p->spec.name,
			       .uid = p->spec.uid,
			       .ns = p->spec.ns,
			       .annotation_count = p->spec.annotation_count,
			       .annotations = p->spec.annotations};
}

static inline void put_container(struct buf *b, const struct ef_pod *p, const char *id,
				 const char *name)
{
	const struct nt_container c = {.id = id, .pod_id = p->spec.uid, .name = name};
	const struct nt_pod pod = pod_of(p);

	nt_container(b, &pod, &c);
}

/* Sends a call of that pod's container; its answer's code. */
static inline int call(struct scene *s, const char *method, const struct ef_pod *p, const char *id,
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
static inline void env_of(const struct buf *answer, const char *key, char *value, size_t cap)
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

static inline void expect_created(struct scene *s, const struct ef_pod *p, const char *id,
				  const char *name, const char *gpus)
{
	struct buf answer = BUF_INIT;
	char value[256];

	cr_assert_eq(call(s, "CreateContainer", p, id, name, &answer), 0);
	env_of(&answer, "NVIDIA_VISIBLE_DEVICES", value, sizeof(value));
	cr_expect_str_eq(value, gpus);
	buf_fini(&answer);
}

static inline struct en_nri_figures figures(struct scene *s)
{
	struct en_nri_figures f;

	en_nri_get_figures(s->nri, &f);
	return f;
}

/* Until a figure that another thread writes is there; what is waited for must come. */
static inline void wait_for(bool (*true_now)(struct scene *s), struct scene *s)
{
	for (int i = 0; i < PATIENCE; i++) {
		if (true_now(s))
			return;
		usleep(1000);
	}
	cr_assert_fail("what was waited for did not come");
}

static inline bool is_undone(struct scene *s)
{
	return atomic_load(&s->undone) > 0;
}

static inline bool is_synchronized(struct scene *s)
{
	return figures(s).synchronized;
}

static inline bool is_unconnected(struct scene *s)
{
	return !figures(s).connected;
}

static inline bool has_failed(struct scene *s)
{
	return figures(s).failures >= 1;
}

static inline bool has_failed_twice(struct scene *s)
{
	return figures(s).failures >= 2;
}

static inline size_t holdings(struct scene *s)
{
	struct en_plugin_stats st;

	en_plugin_get_stats(s->plugin, &st);
	return st.holdings;
}

/* ---- the life of a container ---- */

static inline void life_of_a_container(struct scene *s, const struct ef_pod *p)
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

#endif

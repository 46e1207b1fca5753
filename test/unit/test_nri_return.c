/* The plugin's threads when things go wrong: late answers, lost connections, and coming back. */
#include <malloc.h>

#include "test/unit/nri_scene.h"

/* A pod "u" with a share, and a runtime that is connected; the next CreateContainer is held up, and late after
 * budget_ms (0: as ever). */
static void scene_with_hold(struct scene *s, struct ef_pod *p, int64_t budget_ms, bool fail_open)
{
	scene_init(s);
	s->options.budget_ms = budget_ms;
	s->options.fail_open = fail_open;
	ef_pod_shared(p, "u", &s->node, TIME, 0, 1000);
	scene_start(s);
	cr_assert_eq(fake_runtime_handshake(&s->runtime, NULL), 0x2628);
	atomic_store(&s->hold, EN_NRI_CREATE + 1);
}

static void scene_end(struct scene *s, struct ef_pod *p)
{
	scene_fini(s);
	ef_pod_fini(p);
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

	scene_with_hold(&s, &p, 50, false);
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
	cr_expect_eq(atomic_load(&s.undone), 1,
		     "what was refused before it was begun is not begun");
	cr_expect_eq(figures(&s).late, 3);
	cr_expect(figures(&s).connected);
	buf_fini(&b);
	scene_end(&s, &p);
}

/* While the second thread takes it back, the first one has done with the call, and reads on. */
Test(nri_runtime, a_late_create_is_undone_by_its_own_name)
{
	struct buf b = BUF_INIT, nothing = BUF_INIT;
	struct ef_pod p;
	struct scene s;

	mallopt(M_PERTURB, 0xa5); /* what was freed is not what it was */
	scene_with_hold(&s, &p, 30, false);
	atomic_store(&s.hold_undo, true);
	put_container(&b, &p, "c1", "main");
	cr_expect_eq(fake_runtime_call(&s.runtime, "CreateContainer", &b, PATIENCE, NULL, NULL, 0),
		     4);
	sem_wait(&s.held);
	sem_post(&s.go_on);
	sem_wait(&s.held); /* it is to be undone */
	/* The second answer comes after a whole round of the first thread. */
	for (int i = 0; i < 2; i++)
		cr_expect_eq(fake_runtime_call(&s.runtime, "RunPodSandbox", &nothing, PATIENCE,
					       NULL, NULL, 0),
			     0);
	sem_post(&s.go_on);
	wait_for(is_undone, &s);
	cr_expect_str_eq(s.undone_id, "c1");
	cr_expect_eq(holdings(&s), 0);
	buf_fini(&b);
	scene_end(&s, &p);
}

/* A driver that hangs in one call must not keep the pods of the node from starting that want no GPU. */
Test(nri_runtime, late_calls_for_others_pass)
{
	static const char *const methods[] = {"CreateContainer", "StartContainer",
					      "ValidateContainerAdjustment"};
	struct buf b = BUF_INIT;
	struct ef_pod p, other, unplaced;
	struct scene s;

	ef_pod_init(&other, "o");
	ef_pod_annotate(&other, "tessera.dev/whatever", "x");
	ef_pod_init(&unplaced, "v");
	ef_pod_annotate(&unplaced, "gpu-memory", "1000");
	scene_with_hold(&s, &p, 30, false);
	put_container(&b, &p, "c1", "main");
	(void)fake_runtime_send(&s.runtime, "CreateContainer", &b);
	sem_wait(&s.held);
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(call(&s, methods[i], &other, "o1", "main", NULL), 0, "%s", methods[i]);
		cr_expect_eq(call(&s, methods[i], &p, "c2", "main", NULL), 4, "%s", methods[i]);
		cr_expect_eq(call(&s, methods[i], &unplaced, "v1", "main", NULL), 4, "%s",
			     methods[i]);
	}
	atomic_store(&s.hold, 0);
	sem_post(&s.go_on);
	buf_fini(&b);
	scene_end(&s, &p);
	ef_pod_fini(&other);
	ef_pod_fini(&unplaced);
}

Test(nri_runtime, fail_open_lets_late_calls_pass)
{
	struct buf answer = BUF_INIT;
	struct ef_pod p;
	struct scene s;

	scene_with_hold(&s, &p, 30, true);
	cr_expect_eq(call(&s, "CreateContainer", &p, "c1", "main", &answer), 0);
	cr_expect_eq(answer.len, 0);
	sem_post(&s.go_on);
	buf_fini(&answer);
	scene_end(&s, &p);
}

/* A call is at work when the connection goes: its answer must not reach the next one. */
Test(nri_runtime, a_connection_lost_in_the_middle_of_a_call)
{
	struct buf b = BUF_INIT;
	struct ef_pod p;
	struct scene s;

	scene_with_hold(&s, &p, 0, false);
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
	scene_end(&s, &p);
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
	scene_end(&s, &p);
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

/* Connections that end for other reasons take nothing away: a runtime that goes on to Synchronize, or that told its
 * NRI version, knows VALIDATE. */
Test(nri_runtime, the_larger_mask_is_not_given_up_for_nothing)
{
	struct buf b = BUF_INIT, part = BUF_INIT;
	struct scene s;

	scene_init(&s);
	scene_start(&s);
	cr_assert(fake_runtime_accept(&s.runtime, PATIENCE));
	nt_configure(&b, "containerd", "v2.3.4", "");
	cr_expect_eq(fake_runtime_call(&s.runtime, "Configure", &b, PATIENCE, NULL, NULL, 0), 0);
	nt_synchronize(&part, 0, NULL, 0, NULL, true); /* there is more to come */
	cr_expect_eq(fake_runtime_call(&s.runtime, "Synchronize", &part, PATIENCE, NULL, NULL, 0),
		     0);
	fake_runtime_hang_up(&s.runtime);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	wait_for(is_synchronized, &s);
	fake_runtime_hang_up(&s.runtime);
	cr_assert(fake_runtime_accept(&s.runtime, PATIENCE));
	buf_reset(&b);
	nt_configure(&b, "containerd", "v2.3.4", "v0.12.0");
	cr_expect_eq(fake_runtime_call(&s.runtime, "Configure", &b, PATIENCE, NULL, NULL, 0), 0);
	fake_runtime_hang_up(&s.runtime);
	cr_assert_eq(fake_runtime_handshake(&s.runtime, NULL), 0x2628);
	buf_fini(&b);
	buf_fini(&part);
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
	scene_end(&s, &p);
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

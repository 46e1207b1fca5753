/* The plugin's threads against a scripted runtime: pieces of every size, orders, repetitions, odd frames. */
#include "test/unit/nri_scene.h"

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

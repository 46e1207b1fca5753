/* One connection without a socket: both shapes of the API, all methods, order of the handshake. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mux.h"
#include "enforcer/nri_session.h"
#include "test/lib/go_peer.h"
#include "test/lib/nri_text.h"
#include "test/lib/oom.h"

static const struct nt_pod pod = {.id = "sandbox", .name = "p", .uid = "u", .ns = "ns"};
static const struct nt_container container = {
	.id = "c0ffee", .pod_id = "sandbox", .name = "main", .state = 3, .pid = 4711};

struct talk {
	struct en_nri_session *session;
	struct go_peer peer; /* the runtime's ears */
	struct buf in, text;
	uint32_t stream;
};

/* What the session hands on, as text. */
static int on_request(void *ctx, struct en_nri_request *r, struct err *err)
{
	struct talk *t = ctx;

	(void)err;
	buf_printf(&t->text, "%s", en_nri_method_name(r->method));
	for (size_t i = 0; i < r->pod_count; i++)
		buf_printf(&t->text, " pod=%s/%s", r->pods[i].spec.ns, r->pods[i].spec.name);
	for (size_t i = 0; i < r->container_count; i++)
		buf_printf(&t->text, " c=%s,%s,%d,%u", r->containers[i].id,
			   r->containers[i].seen.name, r->containers[i].state,
			   r->containers[i].pid);
	buf_printf(&t->text, "%s;", r->more ? " more" : "");
	en_nri_request_free(r);
	return 0;
}

static void talk_init(struct talk *t, bool no_validate)
{
	const struct en_nri_session_options o = {.name = "tessera",
						 .idx = "10",
						 .no_validate = no_validate,
						 .on_request = on_request,
						 .ctx = t};
	struct err err = ERR_INIT;

	*t = (struct talk){.stream = 0};
	cr_assert_eq(en_nri_session_new(&o, &t->session, &err), 0, "%s", err.msg);
}

static void talk_fini(struct talk *t)
{
	en_nri_session_free(t->session);
	go_peer_fini(&t->peer);
	buf_fini(&t->in);
	buf_fini(&t->text);
}

/* The runtime says what is in t->in. */
static int say(struct talk *t)
{
	struct err err = ERR_INIT;
	int rc = en_nri_session_feed(t->session, t->in.data, t->in.len, &err);

	buf_reset(&t->in);
	return rc;
}

static void hear(struct talk *t)
{
	const struct buf *out = en_nri_session_output(t->session);

	go_peer_feed(&t->peer, out->data, out->len);
	en_nri_session_sent(t->session, out->len);
	cr_assert_null(t->peer.fault, "%s", t->peer.fault);
}

/* Calls a method; the answer's code, -1 where none came. Its payload's length goes to *ret_len. */
static int call(struct talk *t, const char *method, struct buf *take_payload, size_t *ret_len)
{
	struct buf payload = BUF_INIT;
	struct go_message m;
	int code = -1;

	t->stream += t->stream == 0 ? 1 : 2;
	nt_call(&t->in, t->stream, method, take_payload, INT64_C(2000000000));
	buf_fini(take_payload);
	cr_assert_eq(say(t), 0);
	hear(t);
	if (go_peer_next(&t->peer, 1, &m)) {
		cr_expect_eq(m.stream, t->stream);
		code = nt_answer(m.data, m.len, &payload, NULL, 0);
		free(m.data);
	}
	*ret_len = payload.len;
	buf_fini(&payload);
	return code;
}

static void expect_text(struct talk *t, const char *want)
{
	cr_expect_str_eq(buf_str(&t->text), want);
	buf_reset(&t->text);
}

Test(nri_session, both_shapes_mean_the_same)
{
	static const struct {
		const char *method;
		int event; /* of StateChange */
		const char *text;
	} rows[] = {
		{"CreateContainer", 0, "CreateContainer pod=ns/p c=c0ffee,main,3,4711;"},
		{"StartContainer", 6, "StartContainer pod=ns/p c=c0ffee,main,3,4711;"},
		{"StopContainer", 10, "StopContainer pod=ns/p c=c0ffee,main,3,4711;"},
		{"RemoveContainer", 11, "RemoveContainer pod=ns/p c=c0ffee,main,3,4711;"},
	};
	struct talk t;
	size_t len;

	talk_init(&t, false);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf b = BUF_INIT;

		nt_container(&b, &pod, &container);
		cr_expect_eq(call(&t, rows[i].method, &b, &len), -1, "answered too early");
		expect_text(&t, rows[i].text);
		if (rows[i].event == 0)
			continue;
		nt_state_change(&b, rows[i].event, &pod, &container);
		cr_expect_eq(call(&t, "StateChange", &b, &len), -1);
		expect_text(&t, rows[i].text);
	}
	talk_fini(&t);
}

Test(nri_session, events_of_no_interest_are_answered)
{
	static const char *const methods[] = {"RunPodSandbox",        "UpdatePodSandbox",
					      "PostUpdatePodSandbox", "StopPodSandbox",
					      "RemovePodSandbox",     "PostCreateContainer",
					      "PostStartContainer",   "UpdateContainer",
					      "PostUpdateContainer",  "Shutdown"};
	static const int events[] = {0, 1, 2, 3, 5, 7, 9, 12, 13, 99, -1};
	struct talk t;
	size_t len;

	talk_init(&t, false);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		struct buf b = BUF_INIT;

		nt_container(&b, &pod, &container);
		cr_expect_eq(call(&t, methods[i], &b, &len), 0, "%s", methods[i]);
		cr_expect_eq(len, 0);
	}
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		struct buf b = BUF_INIT;

		nt_state_change(&b, events[i], &pod, NULL); /* pod events have no container */
		cr_expect_eq(call(&t, "StateChange", &b, &len), 0, "event %d", events[i]);
	}
	expect_text(&t, "");
	talk_fini(&t);
}

Test(nri_session, unknown_methods_and_services)
{
	struct buf b = BUF_INIT;
	struct go_message m;
	struct talk t;
	size_t len;

	talk_init(&t, false);
	cr_expect_eq(call(&t, "createContainer", &b, &len), 12);
	cr_expect_eq(call(&t, "", &b, &len), 12);
	cr_expect_eq(call(&t, "/nri.pkg.api.v1alpha1.Plugin/CreateContainer", &b, &len), 12);
	/* service "x", method "CreateContainer" */
	go_put_message(&t.in, 1, t.stream + 2, 1,
		       "\x0a\x01x\x12\x0f"
		       "CreateContainer",
		       20);
	cr_assert_eq(say(&t), 0);
	hear(&t);
	cr_assert(go_peer_next(&t.peer, 1, &m));
	cr_expect_eq(nt_answer(m.data, m.len, &b, NULL, 0), 12);
	free(m.data);
	buf_fini(&b);
	expect_text(&t, "");
	talk_fini(&t);
}

Test(nri_session, incomplete_calls_are_refused)
{
	static const char *const methods[] = {"CreateContainer", "StartContainer", "StopContainer",
					      "RemoveContainer", "ValidateContainerAdjustment"};
	struct talk t;
	size_t len;

	talk_init(&t, false);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		struct buf b = BUF_INIT;

		cr_expect_eq(call(&t, methods[i], &b, &len), 3);
		nt_container(&b, &pod, NULL);
		cr_expect_eq(call(&t, methods[i], &b, &len), 3);
		nt_container(&b, NULL, &container);
		cr_expect_eq(call(&t, methods[i], &b, &len), 3);
		buf_puts(&b, "\xff\xff");
		cr_expect_eq(call(&t, methods[i], &b, &len), 3);
	}
	expect_text(&t, "");
	talk_fini(&t);
}

Test(nri_session, synchronize_in_parts)
{
	const struct nt_pod pods[] = {{.id = "s1", .name = "a", .uid = "1", .ns = "n"},
				      {.id = "s2", .name = "b", .uid = "2", .ns = "n"}};
	struct buf b = BUF_INIT;
	struct talk t;
	size_t len;

	talk_init(&t, false);
	nt_synchronize(&b, 2, pods, 0, NULL, true);
	cr_expect_eq(call(&t, "Synchronize", &b, &len), -1);
	cr_expect_not(en_nri_session_status(t.session)->synchronized);
	expect_text(&t, "Synchronize pod=n/a pod=n/b more;");
	nt_synchronize(&b, 0, NULL, 1, &container, false);
	cr_expect_eq(call(&t, "Synchronize", &b, &len), -1);
	cr_expect(en_nri_session_status(t.session)->synchronized);
	expect_text(&t, "Synchronize c=c0ffee,main,3,4711;");
	nt_synchronize(&b, 0, NULL, 0, NULL, false);
	cr_expect_eq(call(&t, "Synchronize", &b, &len), -1);
	expect_text(&t, "Synchronize;");
	talk_fini(&t);
}

Test(nri_session, who_knows_validate)
{
	static const struct {
		const char *runtime, *version, *nri;
		bool knows;
	} rows[] = {
		{"containerd", "v2.3.4", "v0.12.0", true},
		{"containerd", "v2.2.0", "", true},
		{"containerd", "v2.1.9", "", false},
		{"containerd", "2.1.9+unknown", "", false},
		{"containerd", "1.7.24~ds1", "", false},
		{"containerd", "v10.0", "", true},
		{"containerd", "v3.0.0-beta.1", "", true},
		{"containerd", "", "", false},
		{"containerd", "v2", "", false},
		{"containerd", "(devel)", "", false},
		{"containerd", "2.2", "", true},
		{"v2", "v2.0.2", "", false},
		{"cri-o", "1.34.0", "", true},
		{"cri-o", "1.33.5", "", false},
		{"cri-o", "v1.36.3", "", true},
		{"other", "9.9.9", "", false},
		{"other", "", "0.10.0", true},
		{"other", "", "v0.9.3", false},
		{"other", "", "unknown", false},
		{"containerd", "99999999.1", "", false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(en_nri_knows_validate(rows[i].runtime, rows[i].version, rows[i].nri),
			     rows[i].knows, "%s %s %s", rows[i].runtime, rows[i].version,
			     rows[i].nri);
}

Test(nri_session, the_mask_follows_the_runtime)
{
	static const struct {
		const char *version;
		bool no_validate;
		int32_t mask;
	} rows[] = {{"v2.3.4", false, 0x2628}, {"v2.3.4", true, 0x628}, {"1.7.24", false, 0x628}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf b = BUF_INIT, want = BUF_INIT;
		struct go_message m;
		struct talk t;

		talk_init(&t, rows[i].no_validate);
		nt_configure(&b, "containerd", rows[i].version, "");
		nt_call(&t.in, 1, "Configure", &b, 0);
		buf_reset(&b);
		cr_assert_eq(say(&t), 0);
		hear(&t);
		cr_assert(go_peer_next(&t.peer, 1, &m));
		cr_expect_eq(nt_answer(m.data, m.len, &b, NULL, 0), 0);
		cr_assert_eq(en_nri_put_configure(&want, rows[i].mask, NULL), 0);
		cr_expect(b.len == want.len && memcmp(b.data, want.data, b.len) == 0);
		free(m.data);
		buf_fini(&b);
		buf_fini(&want);
		talk_fini(&t);
	}
}

Test(nri_session, names)
{
	static const struct {
		const char *name, *idx;
	} bad[] = {{"", "10"},      {"a/b", "10"},      {"a b", "10"},    {"tessera", "1"},
		   {"tessera", ""}, {"tessera", "100"}, {"tessera", "1x"}};
	struct en_nri_session *s = NULL;
	struct err err = ERR_INIT;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct en_nri_session_options o = {.name = bad[i].name, .idx = bad[i].idx};

		cr_expect_eq(en_nri_session_new(&o, &s, &err), ERR_INVALID, "%s %s", bad[i].name,
			     bad[i].idx);
		cr_expect_null(s);
	}
}

/* An annotation that is cut by a NUL in the reading of C strings must not be taken for its beginning. */
Test(nri_session, annotations_with_a_nul)
{
	/* pod: {annotations: {key "k", value "v\0w"}, {key "m", value ""}}; container {} */
	static const char message[] = "\x0a\x11"
				      "\x32\x08\x0a\x01k\x12\x03v\0w"
				      "\x32\x05\x0a\x01m\x12\0"
				      "\x12\0";
	struct en_ttrpc_call c = {.stream = 1,
				  .service = EN_NRI_PLUGIN_SERVICE,
				  .method = "CreateContainer",
				  .payload = (const unsigned char *)message,
				  .len = sizeof(message) - 1};
	struct en_nri_request *r = NULL;
	struct err err = ERR_INIT;

	cr_assert_eq(en_nri_request_read(&c, &r, &err), 0, "%s", err.msg);
	cr_assert_eq(r->pods[0].spec.annotation_count, 2);
	cr_expect_str_eq(r->pods[0].spec.annotations[0].key, "k");
	cr_expect_str_eq(r->pods[0].spec.annotations[0].value, "(contains a NUL)");
	cr_expect_str_eq(r->pods[0].spec.annotations[1].value, "");
	cr_expect_str_eq(r->containers[0].id, "");
	en_nri_request_free(r);
}

/* 2 million empty containers in 4 MB: refused, not unfolded. */
Test(nri_session, a_small_message_does_not_take_all_memory)
{
	struct buf b = BUF_INIT;
	struct talk t;
	size_t len;

	talk_init(&t, false);
	for (int i = 0; i < 2000000; i++)
		buf_put(&b, "\x12\0", 2);
	cr_expect_eq(call(&t, "Synchronize", &b, &len), 8);
	expect_text(&t, "");
	talk_fini(&t);
}

Test(nri_session, out_of_memory)
{
	struct buf in = BUF_INIT, b = BUF_INIT;
	struct st_kv kv[] = {{"a", "b"}};
	struct nt_pod with = pod;

	with.annotation_count = 1;
	with.annotations = kv;
	nt_vector("configure_req", &in);
	nt_container(&b, &with, &container);
	nt_call(&in, 3, "CreateContainer", &b, 0);
	OOM_SWEEP(n) {
		struct talk t = {.stream = 0};
		const struct en_nri_session_options o = {
			.name = "tessera", .idx = "10", .on_request = on_request, .ctx = &t};
		struct err err = ERR_INIT;
		int r;
		bool hit;

		oom_fail_at(n);
		r = en_nri_session_new(&o, &t.session, &err);
		if (r == 0)
			r = en_nri_session_feed(t.session, in.data, in.len, &err);
		hit = oom_disarm();
		cr_expect(hit ? r == 0 || r == ERR_NOMEM : r == 0, "%u: %d", n, r);
		talk_fini(&t);
		if (!hit)
			break;
	}
	buf_fini(&in);
	buf_fini(&b);
}

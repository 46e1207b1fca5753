/* Every byte vector of nri-vectors.txt: read, and written where we are the writer; whole, and cut at every
 * place. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/mux.h"
#include "enforcer/nri.pb-c.h"
#include "enforcer/nri_msg.h"
#include "enforcer/nri_session.h"
#include "enforcer/ttrpc.h"
#include "test/lib/nri_text.h"

/* ---- reading: what came out of a stream, as text ---- */

struct heard {
	struct en_ttrpc_server server;
	struct en_ttrpc_client client;
	struct buf text, out;
};

static int hear_call(void *ctx, const struct en_ttrpc_call *call, struct err *err)
{
	struct heard *h = ctx;

	(void)err;
	buf_printf(&h->text, "call %u %s/%s %zu %lld;", call->stream, call->service, call->method,
		   call->len, (long long)call->timeout_ns);
	return 0;
}

static int hear_answer(void *ctx, const struct en_ttrpc_answer *a, struct err *err)
{
	struct heard *h = ctx;

	(void)err;
	buf_printf(&h->text, "answer %u %d %s %zu;", a->stream, (int)a->code, a->text, a->len);
	return 0;
}

/* Vectors of both directions are read: calls by a server, answers by a client that waits for them. */
static int hear(void *ctx, uint32_t id, const unsigned char *data, size_t len, struct err *err)
{
	struct heard *h = ctx;
	int rc;

	buf_printf(&h->out, "%u", id);
	rc = en_ttrpc_server_feed(&h->server, data, len, &h->out, hear_call, h, err);
	return rc != 0 ? rc : en_ttrpc_client_feed(&h->client, data, len, hear_answer, h, err);
}

static void heard_init(struct heard *h)
{
	*h = (struct heard){.server = {.mux_id = 1},
			    .client = {.mux_id = 1, .pending = {1, 3, 5, 7}}};
}

static void heard_fini(struct heard *h)
{
	en_ttrpc_server_fini(&h->server);
	en_ttrpc_client_fini(&h->client);
	buf_fini(&h->text);
	buf_fini(&h->out);
}

struct expected {
	const char *label, *text;
};

#define PLUGIN "nri.pkg.api.v1alpha1.Plugin"
#define RUNTIME "nri.pkg.api.v1alpha1.Runtime"

static const struct expected expected[] = {
	{"register_req", "call 1 " RUNTIME "/RegisterPlugin 13 0;"},
	{"register_req_timeout_5s", "call 1 " RUNTIME "/RegisterPlugin 13 5000000000;"},
	{"register_rsp_ok", "answer 1 0  0;"},
	{"register_rsp_bad_index",
	 "answer 1 2 invalid plugin index: invalid plugin index \"1\", must "
	 "be 2 digits 0;"},
	{"configure_req", "call 1 " PLUGIN "/Configure 35 0;"},
	{"configure_req_timeout_2s", "call 1 " PLUGIN "/Configure 35 2000000000;"},
	{"configure_rsp_0x28", "answer 1 0  2;"},
	{"configure_rsp_0x628", "answer 1 0  3;"},
	{"configure_rsp_0x7ff", "answer 1 0  3;"},
	{"configure_rsp_0x2628", "answer 1 0  3;"},
	{"synchronize_rsp_empty", "answer 3 0  0;"},
	{"synchronize_rsp_more", "answer 3 0  2;"},
	{"statechange_rsp_ok", "answer 5 0  0;"},
	{"rsp_unimplemented", "answer 5 12 method StartContainer 0;"},
	{"create_rsp_env", "answer 7 0  23;"},
	{"create_rsp_full", "answer 7 0  187;"},
	{"create_rsp_full_canonical", "answer 7 0  185;"},
	{"create_rsp_no_change", "answer 7 0  0;"},
	{"rsp_error_9", "answer 7 9 tessera: no share left 0;"},
};
#define EXPECTED_COUNT (sizeof(expected) / sizeof(expected[0]))

static const char *expected_text(const char *label)
{
	for (size_t i = 0; i < EXPECTED_COUNT; i++) {
		if (strcmp(expected[i].label, label) == 0)
			return expected[i].text;
	}
	cr_assert_fail("no expectation for vector %s", label);
	return NULL;
}

static void expect_heard(const char *label, const struct buf *b, size_t first, size_t second)
{
	struct en_mux mux = {.have = 0};
	struct err err = ERR_INIT;
	struct heard h;
	size_t cut[4] = {0, first, second, b->len};

	heard_init(&h);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(en_mux_feed(&mux, b->data + cut[i], cut[i + 1] - cut[i], hear, &h,
					 &err),
			     0, "%s: %s", label, err.msg);
	cr_expect_str_eq(buf_str(&h.text), expected_text(label), "%s cut at %zu, %zu", label, first,
			 second);
	heard_fini(&h);
}

static void read_cut(void *ctx, const char *label, bool to_plugin, const struct buf *b)
{
	(void)ctx;
	(void)to_plugin;
	for (size_t i = 0; i <= b->len; i++)
		expect_heard(label, b, i, b->len);
	for (size_t i = 0; i + 1 < b->len; i++)
		expect_heard(label, b, i, i + 1);
}

Test(nri_vectors, all_are_read_wherever_they_are_cut)
{
	cr_expect_eq(nt_vectors(read_cut, NULL), EXPECTED_COUNT);
}

/* ---- writing ---- */

static void expect_bytes(const char *label, const struct buf *have)
{
	struct buf want = BUF_INIT;

	nt_vector(label, &want);
	cr_expect(have->len == want.len && memcmp(have->data, want.data, want.len) == 0,
		  "%s is written otherwise (%zu bytes, not %zu)", label, have->len, want.len);
	buf_fini(&want);
}

static int no_request(void *ctx, struct en_nri_request *r, struct err *err)
{
	(void)ctx;
	en_nri_request_free(r);
	return err_set(err, ERR_INTERNAL, "no call was due");
}

static struct en_nri_session *session_new(bool no_validate)
{
	const struct en_nri_session_options o = {.name = "tessera",
						 .idx = "10",
						 .no_validate = no_validate,
						 .on_request = no_request};
	struct en_nri_session *s;
	struct err err = ERR_INIT;

	cr_assert_eq(en_nri_session_new(&o, &s, &err), 0, "%s", err.msg);
	return s;
}

static void forget_output(struct en_nri_session *s)
{
	en_nri_session_sent(s, en_nri_session_output(s)->len);
}

Test(nri_vectors, registration)
{
	struct en_nri_session *s = session_new(false);
	struct buf in = BUF_INIT;
	struct err err = ERR_INIT;

	expect_bytes("register_req", en_nri_session_output(s));
	cr_expect_not(en_nri_session_status(s)->registered);
	nt_vector("register_rsp_ok", &in);
	cr_expect_eq(en_nri_session_feed(s, in.data, in.len, &err), 0);
	cr_expect(en_nri_session_status(s)->registered);
	en_nri_session_free(s);

	s = session_new(false);
	nt_vector("register_rsp_bad_index", &in);
	cr_expect_eq(en_nri_session_feed(s, in.data, in.len, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "the runtime refused the plugin: invalid plugin index: invalid "
				  "plugin index \"1\", must be 2 digits (2)");
	en_nri_session_free(s);
	buf_fini(&in);
}

Test(nri_vectors, registration_with_timeout)
{
	struct en_ttrpc_client c = {.mux_id = EN_MUX_RUNTIME};
	struct buf payload = BUF_INIT, out = BUF_INIT;
	struct en_ttrpc_call call = {.service = EN_NRI_RUNTIME_SERVICE,
				     .method = "RegisterPlugin",
				     .timeout_ns = INT64_C(5000000000)};
	uint32_t stream;

	cr_assert_eq(en_nri_put_register(&payload, "tessera", "10", NULL), 0);
	call.payload = (const unsigned char *)payload.data;
	call.len = payload.len;
	cr_assert_eq(en_ttrpc_client_call(&c, &out, &call, &stream, NULL), 0);
	cr_expect_eq(stream, 1);
	expect_bytes("register_req_timeout_5s", &out);
	buf_fini(&payload);
	buf_fini(&out);
}

/* The runtime's own bytes in, ours out: before the registration is answered, which is legal. */
Test(nri_vectors, configure)
{
	static const char *const requests[] = {"configure_req", "configure_req_timeout_2s"};
	struct buf in = BUF_INIT;
	struct err err = ERR_INIT;

	for (int i = 0; i < 4; i++) {
		struct en_nri_session *s = session_new(i % 2 == 1);
		const struct en_nri_status *st = en_nri_session_status(s);

		forget_output(s);
		nt_vector(requests[i / 2], &in);
		cr_assert_eq(en_nri_session_feed(s, in.data, in.len, &err), 0, "%s", err.msg);
		expect_bytes(i % 2 == 1 ? "configure_rsp_0x628" : "configure_rsp_0x2628",
			     en_nri_session_output(s));
		cr_expect(st->configured && !st->registered);
		cr_expect_eq(st->validates, i % 2 == 0);
		cr_expect_str_eq(st->runtime, "containerd");
		cr_expect_str_eq(st->runtime_version, "v2.3.4");
		cr_expect_str_eq(st->nri_version, "v0.12.0");
		cr_expect_eq(st->request_timeout_ms, 2000);
		en_nri_session_free(s);
	}
	buf_fini(&in);
}

static void expect_reply(const char *label, uint32_t stream, struct buf *take_payload)
{
	struct buf out = BUF_INIT;

	cr_assert_eq(en_ttrpc_reply(&out, EN_MUX_PLUGIN, stream, take_payload->data,
				    take_payload->len, NULL),
		     0);
	expect_bytes(label, &out);
	buf_fini(&out);
	buf_fini(take_payload);
}

Test(nri_vectors, answers)
{
	struct buf b = BUF_INIT, out = BUF_INIT;
	const struct en_adjust nothing = {0};

	cr_assert_eq(en_nri_put_configure(&b, 0x28, NULL), 0);
	expect_reply("configure_rsp_0x28", 1, &b);
	cr_assert_eq(en_nri_put_configure(&b, 0x7ff, NULL), 0);
	expect_reply("configure_rsp_0x7ff", 1, &b);
	cr_assert_eq(en_nri_put_synchronize(&b, false, NULL), 0);
	expect_reply("synchronize_rsp_empty", 3, &b);
	cr_assert_eq(en_nri_put_synchronize(&b, true, NULL), 0);
	expect_reply("synchronize_rsp_more", 3, &b);
	expect_reply("statechange_rsp_ok", 5, &b);
	cr_assert_eq(en_nri_put_create(&b, &nothing, NULL), 0);
	expect_reply("create_rsp_no_change", 7, &b);

	cr_assert_eq(en_ttrpc_reply_error(&out, EN_MUX_PLUGIN, 5, EN_TTRPC_UNIMPLEMENTED,
					  "method StartContainer", NULL),
		     0);
	expect_bytes("rsp_unimplemented", &out);
	buf_reset(&out);
	cr_assert_eq(en_ttrpc_reply_error(&out, EN_MUX_PLUGIN, 7, EN_TTRPC_FAILED_PRECONDITION,
					  "tessera: no share left", NULL),
		     0);
	expect_bytes("rsp_error_9", &out);
	buf_fini(&out);
}

/* ---- the adjustment, field by field ---- */

static const size_t frame_head = EN_MUX_HEADER + EN_TTRPC_HEADER;

/* The CreateContainerResponse in a vector. */
static En__Nri__CreateContainerResponse *create_of(const char *label)
{
	En__Nri__CreateContainerResponse *r;
	struct buf b = BUF_INIT, payload = BUF_INIT;

	nt_vector(label, &b);
	cr_assert_eq(nt_answer(b.data + frame_head, b.len - frame_head, &payload, NULL, 0), 0);
	r = en__nri__create_container_response__unpack(NULL, payload.len, (uint8_t *)payload.data);
	cr_assert_not_null(r, "%s", label);
	buf_fini(&b);
	buf_fini(&payload);
	return r;
}

static void expect_packed(const char *label, const En__Nri__CreateContainerResponse *r)
{
	struct buf b = BUF_INIT;

	cr_assert(buf_reserve(&b, 4096));
	b.len = en__nri__create_container_response__pack(r, (uint8_t *)b.data);
	expect_reply(label, 7, &b);
}

Test(nri_vectors, adjustment)
{
	En__Nri__CreateContainerResponse *r = create_of("create_rsp_env");

	cr_assert_eq(r->adjust->n_env, 1);
	cr_expect_str_eq(r->adjust->env[0]->key, "TESSERA_SHARE");
	cr_expect_str_eq(r->adjust->env[0]->value, "25");
	expect_packed("create_rsp_env", r);
	en__nri__create_container_response__free_unpacked(r, NULL);

	r = create_of("create_rsp_full");
	cr_assert_eq(r->adjust->n_mounts, 1);
	cr_expect_str_eq(r->adjust->mounts[0]->destination, "/run/tessera");
	cr_expect_str_eq(r->adjust->mounts[0]->source, "/run/tessera");
	cr_expect_str_eq(r->adjust->mounts[0]->type, "bind");
	cr_assert_eq(r->adjust->mounts[0]->n_options, 2);
	cr_expect_str_eq(r->adjust->mounts[0]->options[1], "ro");
	cr_assert_eq(r->adjust->hooks->n_create_runtime, 1);
	cr_expect_str_eq(r->adjust->hooks->create_runtime[0]->path, "/opt/tessera/hook");
	cr_expect_str_eq(r->adjust->hooks->create_runtime[0]->args[0], "hook");
	cr_expect_eq(r->adjust->hooks->create_runtime[0]->timeout->value, 2);
	cr_assert_eq(r->adjust->lnx->n_devices, 1);
	cr_expect_str_eq(r->adjust->lnx->devices[0]->path, "/dev/tessera0");
	cr_expect_eq(r->adjust->lnx->devices[0]->major, 195);
	cr_expect_eq(r->adjust->lnx->devices[0]->minor, 0);
	cr_expect_eq(r->adjust->lnx->devices[0]->file_mode->value, 0660);
	cr_assert_eq(r->adjust->lnx->resources->n_unified, 1);
	cr_expect_str_eq(r->adjust->lnx->resources->unified[0]->key, "memory.high");
	cr_expect_str_eq(r->adjust->lnx->resources->unified[0]->value, "1073741824");
	cr_assert_eq(r->adjust->n_cdi_devices, 1);
	cr_expect_str_eq(r->adjust->cdi_devices[0]->name, "tessera.dev/gpu=g0");
	expect_packed("create_rsp_full_canonical", r);
	en__nri__create_container_response__free_unpacked(r, NULL);
}

/* The same through the structs of the product: what create_rsp_full has and we use, in its order. */
Test(nri_vectors, our_adjustment)
{
	static char source[] = "/run/tessera", path[] = "/opt/tessera/hook", arg[] = "hook",
		    cdi[] = "tessera.dev/gpu=g0", value[] = "25";
	const struct en_adjust a = {
		.env_count = 1,
		.env = {{"TESSERA_SHARE", value}},
		.mount_count = 1,
		.mounts = {{source, "/run/tessera", "bind", {"rbind", "ro"}}},
		.cdi_count = 1,
		.cdi = {cdi},
		.hook_path = path,
		.hook_arg_count = 1,
		.hook_args = {arg},
		.hook_timeout_s = 2,
	};
	En__Nri__CreateContainerResponse *want = create_of("create_rsp_full"), *have;
	struct buf b = BUF_INIT, full = BUF_INIT, ours = BUF_INIT;

	cr_assert_eq(en_nri_put_create(&b, &a, NULL), 0);
	have = en__nri__create_container_response__unpack(NULL, b.len, (uint8_t *)b.data);
	cr_assert_not_null(have);
	cr_assert_eq(have->adjust->n_env, 2);
	cr_expect_str_eq(have->adjust->env[0]->key, "-TESSERA_SHARE");
	cr_expect_str_eq(have->adjust->env[0]->value, "");
	/* Without the removal, and without what we never set, the bytes are the same. */
	en__nri__key_value__free_unpacked(have->adjust->env[0], NULL);
	have->adjust->env[0] = have->adjust->env[1];
	have->adjust->n_env = 1;
	en__nri__linux_adjustment__free_unpacked(want->adjust->lnx, NULL);
	want->adjust->lnx = NULL;
	cr_assert(buf_reserve(&full, 4096) && buf_reserve(&ours, 4096));
	full.len = en__nri__create_container_response__pack(want, (uint8_t *)full.data);
	ours.len = en__nri__create_container_response__pack(have, (uint8_t *)ours.data);
	cr_expect(full.len == ours.len && memcmp(full.data, ours.data, full.len) == 0);
	en__nri__create_container_response__free_unpacked(want, NULL);
	buf_fini(&b);
	buf_fini(&full);
	buf_fini(&ours);
	en__nri__create_container_response__free_unpacked(have, NULL);
}

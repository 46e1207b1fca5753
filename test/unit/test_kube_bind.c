/* The Binding: what is sent, and what each answer means. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kube/bind.h"
#include "kube/object.h"
#include "test/lib/kube_fixture.h"
#include "test/lib/oom.h"

#define BINDING "/api/v1/namespaces/team/pods/b1/binding"
#define POD "/api/v1/namespaces/team/pods/b1"

static struct kube_fixture f;
static struct journal j;

static void init(void)
{
	kube_fixture_init(&f);
	journal_init(&j);
}

static void fini(void)
{
	kube_fixture_fini(&f);
	journal_fini(&j);
}

TestSuite(kube_bind, .init = init, .fini = fini);

static const struct st_kv notes[] = {{"tessera.dev/allocation", "v1 \"x\""},
				     {"nvidia.com/container.c.gpus.devices", "GPU-1"}};
static const struct ku_bind plain = {.ns = "team",
				     .name = "b1",
				     .uid = "u-1",
				     .node = "n1",
				     .annotations = notes,
				     .annotation_count = 2};

static void note(void *ctx, const struct ku_bind_result *res)
{
	static const char *const names[] = {"ok", "refused", "unknown"};

	(void)ctx;
	journal_add(&j, "%s %d after=%lld text=%s", names[res->outcome], res->status,
		    (long long)res->retry_after_ms, res->text);
}

static void bind_it(const struct ku_bind *b)
{
	struct err err = ERR_INIT;

	cr_assert_eq(ku_bind_send(f.client, b, note, NULL, &err), 0, "%s", err.msg);
}

Test(kube_bind, what_is_sent)
{
	const struct fake_request *rq;

	kube_fixture_start(&f);
	fake_api_answer(f.api, "POST", BINDING, 201,
			"{\"kind\":\"Status\",\"status\":\"Success\"}");
	bind_it(&plain);
	cr_assert(journal_wait(&j, "ok 201 after=-1 text=\n"));
	rq = fake_api_wait(f.api, "POST", BINDING, 1);
	cr_expect_str_eq(
		rq->body,
		"{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":\"b1\","
		"\"namespace\":\"team\",\"uid\":\"u-1\",\"annotations\":{"
		"\"tessera.dev/allocation\":\"v1 \\\"x\\\"\","
		"\"nvidia.com/container.c.gpus.devices\":\"GPU-1\"}},"
		"\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"n1\"}}");
	cr_expect(fake_query_has(rq, "timeout=4s"));
	cr_expect_eq(fake_api_count(f.api, "POST", BINDING), 1);
}

#define STATUS(code, reason, message)                                                              \
	"{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":" #code ",\"reason\":\"" reason      \
	"\",\"message\":\"" message "\"}"

static const struct {
	struct fake_reply reply;
	const char *want;
} answers[] = {
	{{.status = 201, .body = "{}"}, "ok 201"},
	{{.status = 201, .body = "not json"}, "ok 201"},
	{{.status = 409,
	  .body = STATUS(409, "Conflict", "pod b1 is already assigned to node \\\"n1\\\"")},
	 "refused 409 after=-1 text=409 Conflict: pod b1 is already assigned to node \"n1\""},
	{{.status = 409,
	  .body = STATUS(409, "Conflict", "Precondition failed: UID in precondition")},
	 "refused 409 after=-1 text=409 Conflict: Precondition failed"},
	{{.status = 409, .body = STATUS(409, "Conflict", "is being deleted")}, "refused 409"},
	{{.status = 409, .body = STATUS(409, "Conflict", "has non-empty .spec.schedulingGates")},
	 "refused 409"},
	{{.status = 404, .body = STATUS(404, "NotFound", "pods b1 not found")}, "refused 404"},
	{{.status = 400, .body = STATUS(400, "BadRequest", "decode")}, "refused 400"},
	{{.status = 401, .body = "{}"}, "refused 401"},
	{{.status = 403, .body = STATUS(403, "Forbidden", "webhook says no")},
	 "refused 403 after=-1 text=403 Forbidden: webhook says no"},
	{{.status = 422, .body = STATUS(422, "Invalid", "x")}, "refused 422"},
	{{.status = 429, .body = "{}", .headers = "Retry-After: 3"}, "unknown 429 after=3000"},
	{{.status = 500, .body = STATUS(500, "InternalError", "x")}, "unknown 500"},
	{{.status = 503, .body = ""}, "unknown 503"},
	{{.status = 504, .body = STATUS(504, "Timeout", "x")}, "unknown 504"},
	{{.status = 200, .body = "<html>hello</html>"}, "unknown 200"},
	{{.status = 302, .body = "", .headers = "Location: /elsewhere"}, "unknown 302"},
	{{.status = 0, .end = FAKE_END_RESET}, "unknown 0"},
};

/* Every line of the facts' table of answers, and what proxies answer. */
Test(kube_bind, outcomes)
{
	kube_fixture_start(&f);
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		/* libcurl repeats a POST on a kept connection that turns out dead: two resets. */
		int times = answers[i].reply.status == 0 ? 2 : 1;

		fake_api_on(f.api, "POST", BINDING, NULL, times, &answers[i].reply);
		bind_it(&plain);
		cr_expect(journal_wait(&j, answers[i].want), "answer %zu", i);
		for (int k = 0; k < 5000 && journal_count(&j, "after=") <= i; k++) {
			struct timespec pause = {.tv_nsec = 1000000};

			nanosleep(&pause, NULL);
		}
		cr_expect_eq(journal_count(&j, "after="), i + 1);
	}
}

Test(kube_bind, timeout_is_unknown)
{
	struct fake_reply late = {.status = 201, .body = "{}", .delay_ms = 60000};
	struct ku_bind b = plain;

	b.deadline_ms = 2500;
	f.virtual_time = true;
	kube_fixture_start(&f);
	fake_api_on(f.api, "POST", BINDING, NULL, -1, &late);
	bind_it(&b);
	cr_expect(fake_query_has(fake_api_wait(f.api, "POST", BINDING, 1), "timeout=3s"));
	fake_clock_add(&f.clock, 2500, f.client);
	cr_assert(journal_wait(&j, "unknown 0 after=-1 text=no answer within 2500 ms"));
}

/* Nothing left the machine: refused, so that the reservation need not be kept. */
Test(kube_bind, never_sent_is_refused)
{
	kube_fixture_start(&f);
	fake_api_stop(f.api);
	f.api = NULL;
	bind_it(&plain);
	cr_assert(journal_wait(&j, "refused 0"));
}

/* ... but a POST that was sent, and whose repetition finds nobody, is unknown. */
Test(kube_bind, sent_then_unreachable_is_unknown)
{
	struct ku_reply r = {.kind = KU_REPLY_FAILED, .sent = true};

	cr_expect_eq(ku_bind_classify(&r), KU_BIND_UNKNOWN);
	r.kind = KU_REPLY_CANCELLED;
	cr_expect_eq(ku_bind_classify(&r), KU_BIND_UNKNOWN);
	r.sent = false;
	cr_expect_eq(ku_bind_classify(&r), KU_BIND_REFUSED);
	r = (struct ku_reply){.kind = KU_REPLY_TIMEOUT, .sent = true, .status = 201};
	cr_expect_eq(ku_bind_classify(&r), KU_BIND_OK);
}

Test(kube_bind, checked_before_it_is_sent)
{
	static const char *const bad_keys[] = {
		"",
		"a b",
		"/x",
		"x/",
		"a/b/c",
		"-a",
		"UPPER.com/a",
		".com/a",
		"a../b",
		"a/\xc3\xa9",
		"exa mple.com/a",
		"a1234567890123456789012345678901234567890123456789012345678901234",
	};
	static const char *const good_keys[] = {"a", "A.b-c_9", "tessera.dev/x", "a.b/C"};
	char *big = calloc(1, KU_ANNOTATIONS_MAX + 1);
	struct st_kv kv = {.value = "v"};
	struct ku_bind b = plain;
	struct buf out = BUF_INIT;
	struct err err = ERR_INIT;

	b.annotations = &kv;
	b.annotation_count = 1;
	for (size_t i = 0; i < sizeof(bad_keys) / sizeof(bad_keys[0]); i++) {
		kv.key = bad_keys[i];
		cr_expect_eq(ku_bind_body(&b, &out, &err), ERR_INVALID, "%s", kv.key);
	}
	for (size_t i = 0; i < sizeof(good_keys) / sizeof(good_keys[0]); i++) {
		kv.key = good_keys[i];
		cr_expect_eq(ku_bind_body(&b, &out, &err), 0, "%s", kv.key);
	}
	memset(big, 'x', KU_ANNOTATIONS_MAX);
	kv = (struct st_kv){.key = "k", .value = big};
	cr_expect_eq(ku_bind_body(&b, &out, &err), ERR_TOO_LARGE);
	big[KU_ANNOTATIONS_MAX - 1] = '\0';
	cr_expect_eq(ku_bind_body(&b, &out, &err), 0);
	b.present_bytes = 1;
	cr_expect_eq(ku_bind_body(&b, &out, &err), ERR_TOO_LARGE);
	b = plain;
	b.uid = "";
	cr_expect_eq(ku_bind_body(&b, &out, &err), ERR_INVALID);
	b.uid = "u";
	b.name = "..";
	cr_expect_eq(ku_bind_body(&b, &out, &err), ERR_INVALID);
	buf_fini(&out);
	free(big);
}

Test(kube_bind, oom_sweep)
{
	kube_fixture_start(&f);
	fake_api_answer(f.api, "POST", BINDING, 201, "{}");
	OOM_SWEEP(n) {
		struct err err = ERR_INIT;
		bool hit;
		int r;

		oom_fail_at(n);
		r = ku_bind_send(f.client, &plain, note, NULL, &err);
		hit = oom_disarm();
		if (!hit) {
			cr_assert_eq(r, 0);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM, "%u: %d", n, r);
	}
	cr_assert(journal_wait(&j, "ok 201"));
	cr_expect_eq(fake_api_count(f.api, NULL, NULL), 1);
}

/* ---- reading the pod ---- */

static void seen(void *ctx, enum ku_pod_seen how, const cJSON *pod, const char *text)
{
	static const char *const names[] = {"found", "gone", "unknown"};
	const cJSON *node = ku_json_get(ku_json_get(pod, "spec"), "nodeName");

	(void)ctx;
	journal_add(&j, "%s node=%s text=%s", names[how],
		    cJSON_IsString(node) ? node->valuestring : "-", text);
}

static void read_it(void)
{
	struct err err = ERR_INIT;

	cr_assert_eq(ku_pod_get(f.client, "team", "b1", "u-1", 4000, seen, NULL, &err), 0);
}

Test(kube_bind, pod_is_read)
{
	struct fake_reply broken = {.status = 500};

	f.virtual_time = true;
	kube_fixture_start(&f);
	fake_api_on(f.api, "GET", POD, NULL, 1, &broken);
	fake_api_answer(f.api, "GET", POD, 200,
			"{\"metadata\":{\"uid\":\"u-1\"},\"spec\":{\"nodeName\":\"n7\"}}");
	read_it();
	cr_assert_not_null(fake_api_wait(f.api, "GET", POD, 1));
	for (int i = 0; i < 1000 && !journal_has(&j, "node="); i++) {
		struct timespec pause = {.tv_nsec = 1000000};

		fake_clock_add(&f.clock, 2, f.client);
		nanosleep(&pause, NULL);
	}
	cr_assert(journal_wait(&j, "found node=n7"));
	cr_expect_str_eq(fake_api_wait(f.api, "GET", POD, 2)->query, "");
	fake_api_answer(f.api, "GET", POD, 200, "{\"metadata\":{\"uid\":\"u-2\"}}");
	read_it();
	cr_assert(journal_wait(&j, "gone node=- text=another pod has the name now"));
	fake_api_answer(f.api, "GET", POD, 404, STATUS(404, "NotFound", "no"));
	read_it();
	cr_assert(journal_wait(&j, "gone node=- text=404 NotFound: no"));
	fake_api_answer(f.api, "GET", POD, 403, STATUS(403, "Forbidden", "no"));
	read_it();
	cr_assert(journal_wait(&j, "unknown node=- text=403 Forbidden: no"));
	fake_api_answer(f.api, "GET", POD, 200, "[]");
	read_it();
	cr_assert(journal_wait(&j, "unknown node=- text=the answer is no pod"));
	/* Its owner cannot hide it: the outcome of a bind is read from it. */
	fake_api_answer(f.api, "GET", POD, 200,
			"{\"metadata\":{\"uid\":\"u-1\",\"annotations\":{\"k\":\"\\u0000\"}},"
			"\"spec\":{\"nodeName\":\"n8\"}}");
	read_it();
	cr_assert(journal_wait(&j, "found node=n8"));
}

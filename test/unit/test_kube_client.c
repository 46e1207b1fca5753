/* The client against a server that answers well, badly, late, or not at all. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "kube/client_backoff.h"
#include "kube/client_path.h"
#include "kube/client_status.h"
#include "test/lib/kube_fixture.h"

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

TestSuite(kube_client, .init = init, .fini = fini);

static void note(void *ctx, const struct ku_reply *r)
{
	journal_add(&j, "%s kind=%d status=%d sent=%d after=%lld body=%s text=%s",
		    ctx != NULL ? (const char *)ctx : "reply", r->kind, r->status, r->sent,
		    (long long)r->retry_after_ms, r->body, r->text);
}

static void send_it(struct ku_request r)
{
	struct err err = ERR_INIT;

	r.on_done = r.on_done != NULL ? r.on_done : note;
	cr_assert_eq(ku_client_send(f.client, &r, &err), 0, "%s", err.msg);
}

Test(kube_client, get_and_post)
{
	struct ku_request post = {
		.method = "POST", .path = "/api/v1/x?a=b%20c", .body = "{\"k\":1}", .body_len = 7};
	const struct fake_request *rq;
	struct ku_answer a;
	struct err err = ERR_INIT;

	kube_fixture_start(&f);
	fake_api_answer(f.api, "POST", "/api/v1/x", 201, "{\"made\":true}");
	cr_assert_eq(ku_client_call(f.client, &post, &a, &err), 0, "%s", err.msg);
	cr_expect_eq(a.reply.kind, KU_REPLY_HTTP);
	cr_expect_eq(a.reply.status, 201);
	cr_expect(a.reply.sent);
	cr_expect_str_eq(a.reply.body, "{\"made\":true}");
	cr_expect_str_eq(a.reply.text, "");
	cr_expect_geq(a.reply.queued_us, 0);
	ku_answer_fini(&a);
	rq = fake_api_wait(f.api, "POST", "/api/v1/x", 1);
	cr_expect_str_eq(rq->body, "{\"k\":1}");
	cr_expect_str_eq(rq->query, "a=b c");
	cr_expect_str_eq(rq->type, "application/json");
	cr_expect_str_eq(rq->token, "");
	cr_assert_eq(ku_client_call(f.client, &(struct ku_request){.path = "/nope"}, &a, &err), 0);
	cr_expect_eq(a.reply.status, 404);
	ku_answer_fini(&a);
}

Test(kube_client, paths_are_checked)
{
	struct ku_request r = {.path = "api"};
	struct err err = ERR_INIT;

	kube_fixture_start(&f);
	cr_expect_eq(ku_client_send(f.client, &r, &err), ERR_INVALID);
	r.path = "/a b";
	cr_expect_eq(ku_client_send(f.client, &r, &err), ERR_INVALID);
	r.path = "/a\r\nX: y";
	cr_expect_eq(ku_client_send(f.client, &r, &err), ERR_INVALID);
}

Test(kube_client, patch)
{
	const struct fake_request *rq;
	struct err err = ERR_INIT;

	kube_fixture_start(&f);
	fake_api_answer(f.api, "PATCH", "/api/v1/nodes/n1/status", 200, "{}");
	cr_assert_eq(ku_client_patch(f.client, "/api/v1/nodes/n1/status", "{\"status\":{}}", 0,
				     note, NULL, &err),
		     0);
	cr_assert(journal_wait(&j, "status=200"));
	rq = fake_api_wait(f.api, "PATCH", NULL, 1);
	cr_expect_str_eq(rq->type, "application/merge-patch+json");
	cr_expect_str_eq(rq->body, "{\"status\":{}}");
}

Test(kube_client, status_text)
{
	kube_fixture_start(&f);
	fake_api_answer(f.api, "GET", "/x", 409,
			"{\"kind\":\"Status\",\"code\":409,\"reason\":\"Conflict\",\"message\":"
			"\"pod b1 is already assigned\"}");
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "text=409 Conflict: pod b1 is already assigned"));
}

Test(kube_client, body_limit)
{
	kube_fixture_start(&f);
	fake_api_answer(f.api, "GET", "/x", 200, "0123456789");
	fake_api_answer(f.api, "GET", "/x", 200, "0123456789");
	send_it((struct ku_request){.path = "/x", .body_max = 10});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
	send_it((struct ku_request){.path = "/x", .body_max = 9, .retry = true});
	cr_assert(journal_wait(&j, "kind=3 status=200"));
	cr_expect(journal_has(&j, "text=the answer is over 9 bytes"));
}

Test(kube_client, deadline)
{
	struct fake_reply late = {.status = 200, .delay_ms = 60000};

	f.virtual_time = true;
	kube_fixture_start(&f);
	fake_api_on(f.api, "GET", "/x", NULL, -1, &late);
	send_it((struct ku_request){.path = "/x", .deadline_ms = 5000});
	cr_assert_not_null(fake_api_wait(f.api, "GET", "/x", 1));
	fake_clock_add(&f.clock, 4999, f.client);
	cr_expect_not(journal_has(&j, "reply"));
	fake_clock_add(&f.clock, 1, f.client);
	cr_assert(journal_wait(&j, "kind=2 status=0 sent=1"));
	cr_expect(journal_has(&j, "no answer within 5000 ms"));
}

Test(kube_client, nobody_there)
{
	kube_fixture_start(&f);
	fake_api_stop(f.api);
	f.api = NULL;
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=1 status=0 sent=0"));
}

Test(kube_client, reset)
{
	struct fake_reply nothing = {.status = 0, .end = FAKE_END_RESET};
	struct fake_reply half = {
		.status = 200, .body = "{\"a\":", .chunk = 3, .end = FAKE_END_RESET};

	kube_fixture_start(&f);
	fake_api_on(f.api, "POST", "/a", NULL, -1, &nothing);
	fake_api_on(f.api, "GET", "/b", NULL, -1, &half);
	send_it((struct ku_request){.method = "POST", .path = "/a", .body = "{}", .body_len = 2});
	cr_assert(journal_wait(&j, "kind=1 status=0 sent=1"));
	send_it((struct ku_request){.path = "/b"});
	cr_assert(journal_wait(&j, "kind=1 status=200 sent=1"));
}

static bool answered(void *ctx)
{
	(void)ctx;
	return journal_has(&j, "reply");
}

/* 429 with Retry-After, 500, a reset, then the answer; the waits are those asked for. */
Test(kube_client, retries)
{
	struct fake_reply busy = {.status = 429, .headers = "Retry-After: 7"};
	struct fake_reply broken = {.status = 0, .end = FAKE_END_RESET};
	struct ku_client_stats s;
	int64_t start;

	f.virtual_time = true;
	kube_fixture_start(&f);
	start = atomic_load(&f.clock.mono_us);
	fake_api_on(f.api, "GET", "/x", NULL, 1, &busy);
	fake_api_answer(f.api, "GET", "/x", 500, "oops");
	fake_api_on(f.api, "GET", "/x", NULL, 1, &broken);
	fake_api_answer(f.api, "GET", "/x", 200, "{}");
	send_it((struct ku_request){.path = "/x", .retry = true, .deadline_ms = 60000});
	cr_assert(kube_fixture_run(&f, 20, answered, NULL));
	cr_expect(journal_has(&j, "kind=0 status=200"));
	cr_expect_geq(atomic_load(&f.clock.mono_us) - start, 8600000);
	ku_client_get_stats(f.client, &s);
	cr_expect_eq(s.throttled, 1);
	cr_expect_geq(s.retries, 2); /* libcurl itself repeats on a kept connection that was dead */
	cr_expect_eq(s.in_flight, 0);
}

Test(kube_client, retry_ends_at_the_deadline)
{
	struct fake_reply busy = {.status = 429, .headers = "Retry-After: 3"};

	f.virtual_time = true;
	kube_fixture_start(&f);
	fake_api_on(f.api, "GET", "/x", NULL, -1, &busy);
	send_it((struct ku_request){.path = "/x", .retry = true, .deadline_ms = 10000});
	cr_assert(kube_fixture_run(&f, 20, answered, NULL));
	cr_expect(journal_has(&j, "kind=0 status=429 sent=1 after=3000"));
	cr_expect_leq(fake_api_count(f.api, "GET", "/x"), 4);
	cr_expect_geq(fake_api_count(f.api, "GET", "/x"), 2);
}

Test(kube_client, no_retry_unless_asked)
{
	kube_fixture_start(&f);
	fake_api_answer(f.api, "POST", "/x", 503, "");
	send_it((struct ku_request){.method = "POST", .path = "/x", .body = "", .body_len = 0});
	cr_assert(journal_wait(&j, "kind=0 status=503"));
	cr_expect_eq(fake_api_count(f.api, "POST", "/x"), 1);
}

Test(kube_client, stream_parts)
{
	struct fake_reply parts = {.status = 200, .body = "abcdefghij", .chunk = 1};

	kube_fixture_start(&f);
	fake_api_on(f.api, "GET", "/x", NULL, 1, &parts);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "body=abcdefghij"));
}

Test(kube_client, cancelled_at_the_end)
{
	struct fake_reply silent = {.status = 0, .end = FAKE_END_SILENT};

	kube_fixture_start(&f);
	fake_api_on(f.api, "GET", "/x", NULL, -1, &silent);
	for (int i = 0; i < 20; i++)
		send_it((struct ku_request){.path = "/x"});
	ku_client_free(f.client);
	f.client = NULL;
	cr_expect_eq(journal_count(&j, "kind=5"), 20);
}

Test(kube_client, keeps_connections)
{
	struct ku_answer a;
	struct err err = ERR_INIT;

	kube_fixture_start(&f);
	for (int i = 0; i < 50; i++) {
		cr_assert_eq(ku_client_call(f.client, &(struct ku_request){.path = "/x"}, &a, &err),
			     0);
		ku_answer_fini(&a);
	}
	cr_expect_eq(fake_api_connections(f.api), 1);
}

Test(kube_client, bounded_connections_and_many_requests)
{
	struct fake_reply slow = {.status = 201, .body = "{}", .delay_ms = 20};

	f.options.connections = 40;
	kube_fixture_start(&f);
	fake_api_on(f.api, "POST", "/x", NULL, -1, &slow);
	for (int i = 0; i < 300; i++)
		send_it((struct ku_request){
			.method = "POST", .path = "/x", .body = "{}", .body_len = 2});
	cr_assert_not_null(fake_api_wait(f.api, "POST", "/x", 300));
	for (int i = 0; i < 10000 && journal_count(&j, "status=201") < 300; i++)
		usleep(1000);
	cr_expect_eq(journal_count(&j, "status=201"), 300);
	cr_expect_geq(fake_api_connections(f.api), 32);
	cr_expect_leq(fake_api_connections(f.api), 40);
}

/* ---- tokens ---- */

static char token_path[64];

static void write_token(const char *text)
{
	cr_assert_eq(file_replace(token_path, text, strlen(text), NULL), 0);
}

static void check_token(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)ctx;
	*ret = strcmp(rq->token, "new") == 0 ? (struct fake_reply){.status = 200, .body = "{}"}
					     : (struct fake_reply){.status = 401, .body = "{}"};
}

static void use_token_file(void)
{
	snprintf(token_path, sizeof(token_path), "/tmp/tessera-token-%d", (int)getpid());
	write_token("old\n");
	f.config.token_file = strdup(token_path);
	f.config.token = strdup("old");
}

/* Case 38: the token file is replaced and the old token revoked: one repeated call, no failure. */
Test(kube_client, case_38_token_replaced)
{
	struct ku_client_stats s;

	use_token_file();
	kube_fixture_start(&f);
	fake_api_handle(f.api, check_token, NULL);
	write_token("new\n");
	send_it((struct ku_request){.method = "POST", .path = "/x", .body = "{}", .body_len = 2});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
	cr_expect_eq(fake_api_count(f.api, NULL, "/x"), 2);
	send_it((struct ku_request){.path = "/y"});
	cr_assert_not_null(fake_api_wait(f.api, NULL, "/y", 1));
	cr_expect_str_eq(fake_api_wait(f.api, NULL, "/y", 1)->token, "new");
	ku_client_get_stats(f.client, &s);
	cr_expect_not(s.auth_failed);
	cr_expect_eq(s.unauthorized, 1);
	unlink(token_path);
}

/* Case 38: a 401 that stays is told, and ends by itself. */
Test(kube_client, case_38_token_stays_bad)
{
	struct ku_client_stats s;

	use_token_file();
	kube_fixture_start(&f);
	fake_api_handle(f.api, check_token, NULL);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=0 status=401"));
	cr_expect_eq(fake_api_count(f.api, NULL, "/x"), 2);
	ku_client_get_stats(f.client, &s);
	cr_expect(s.auth_failed);
	write_token("new");
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
	ku_client_get_stats(f.client, &s);
	cr_expect_not(s.auth_failed);
	unlink(token_path);
}

/* Case 38: the file is read again after a minute without any 401; a file that is gone changes
 * nothing. */
Test(kube_client, case_38_token_read_each_minute)
{
	use_token_file();
	f.virtual_time = true;
	kube_fixture_start(&f);
	write_token("new");
	send_it((struct ku_request){.path = "/x"});
	cr_expect_str_eq(fake_api_wait(f.api, NULL, "/x", 1)->token, "old");
	fake_clock_add(&f.clock, 60000, f.client);
	send_it((struct ku_request){.path = "/x"});
	cr_expect_str_eq(fake_api_wait(f.api, NULL, "/x", 2)->token, "new");
	unlink(token_path);
	fake_clock_add(&f.clock, 60000, f.client);
	send_it((struct ku_request){.path = "/x"});
	cr_expect_str_eq(fake_api_wait(f.api, NULL, "/x", 3)->token, "new");
}

/* ---- TLS ---- */

#define TLS "test/lib/tls"

static struct ku_pem pem_file(const char *name)
{
	struct ku_pem p = {0};
	char path[64];

	snprintf(path, sizeof(path), TLS "/%s", name);
	p.path = strdup(path);
	return p;
}

static struct ku_pem pem_data(const char *name)
{
	struct ku_pem p = {0};
	char path[64];

	snprintf(path, sizeof(path), TLS "/%s", name);
	cr_assert_eq(file_read(path, 65536, &p.data, &p.len, NULL), 0);
	return p;
}

static void start_tls(const char *host)
{
	fake_api_stop(f.api);
	f.api = fake_api_start(TLS);
	free(f.config.server);
	f.config.server = strdup(fake_api_url(f.api));
	if (host != NULL) {
		const char *port = strrchr(f.config.server, ':');
		char url[64];

		snprintf(url, sizeof(url), "https://%s%s", host, port);
		free(f.config.server);
		f.config.server = strdup(url);
	}
	fake_api_answer(f.api, "GET", "/x", 200, "{}");
}

Test(kube_client, tls_verified)
{
	start_tls(NULL);
	f.config.ca = pem_file("ca.crt");
	f.config.cert = pem_data("client.crt");
	f.config.key = pem_data("client.key");
	kube_fixture_start(&f);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
}

Test(kube_client, tls_inline_ca)
{
	start_tls(NULL);
	f.config.ca = pem_data("ca.crt");
	kube_fixture_start(&f);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
}

Test(kube_client, tls_unknown_ca)
{
	start_tls(NULL);
	f.config.ca = pem_file("other.crt");
	kube_fixture_start(&f);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=1 status=0 sent=0"));
	cr_expect(journal_has(&j, "certificate"));
}

Test(kube_client, tls_wrong_host)
{
	start_tls("localhost");
	f.config.ca = pem_file("ca.crt");
	kube_fixture_start(&f);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=1 status=0 sent=0"));
}

Test(kube_client, tls_server_name)
{
	start_tls("localhost");
	f.config.ca = pem_file("ca.crt");
	f.config.tls_server_name = strdup("api.test.internal");
	kube_fixture_start(&f);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
}

Test(kube_client, tls_insecure_only_where_asked)
{
	start_tls("localhost");
	f.config.insecure = true;
	kube_fixture_start(&f);
	send_it((struct ku_request){.path = "/x"});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
}

/* Puts a certificate or key into a file of our own, a comment in front. */
static struct ku_pem pem_copy(const char *name, const char *comment)
{
	struct ku_pem from = pem_data(name), p = {0};
	char text[8192];

	cr_assert_geq(asprintf(&p.path, "/tmp/tessera-%d-%s", (int)getpid(), name), 0);
	snprintf(text, sizeof(text), "%s%.*s", comment, (int)from.len, from.data);
	cr_assert_eq(file_replace(p.path, text, strlen(text), NULL), 0);
	ku_pem_fini(&from);
	return p;
}

/* An API server refuses an expired certificate on a connection that is open, too. */
static void refuse_first_connection(void *ctx, const struct fake_request *rq,
				    struct fake_reply *ret)
{
	(void)ctx;
	*ret = (struct fake_reply){
		.status = rq->conn == 1 && strcmp(rq->path, "/y") == 0 ? 401 : 200, .body = "{}"};
}

Test(kube_client, a_certificate_that_was_replaced_gets_a_new_connection)
{
	struct ku_pem again[2];
	struct ku_client_stats s;

	start_tls(NULL);
	f.config.ca = pem_file("ca.crt");
	f.config.cert = pem_copy("client.crt", "first\n");
	f.config.key = pem_copy("client.key", "first\n");
	kube_fixture_start(&f);
	fake_api_handle(f.api, refuse_first_connection, NULL);
	send_it((struct ku_request){.path = "/before"});
	cr_assert(journal_wait(&j, "kind=0 status=200"));
	again[0] = pem_copy("client.crt", "second\n");
	again[1] = pem_copy("client.key", "second\n");
	send_it((struct ku_request){.path = "/y"});
	cr_assert_not_null(fake_api_wait(f.api, NULL, "/y", 2), "not asked again");
	cr_expect_eq(fake_api_wait(f.api, NULL, "/y", 2)->conn, 2);
	send_it((struct ku_request){.path = "/y"});
	cr_assert_not_null(fake_api_wait(f.api, NULL, "/y", 3));
	cr_expect_neq(fake_api_wait(f.api, NULL, "/y", 3)->conn, 1, "the old connection is back");
	ku_client_get_stats(f.client, &s);
	cr_expect_not(s.auth_failed);
	for (int i = 0; i < 2; i++) {
		unlink(again[i].path);
		ku_pem_fini(&again[i]);
	}
}

/* ---- parts ---- */

Test(kube_client_parts, backoff)
{
	struct ku_backoff b = {0};
	struct rng rng;
	int64_t now = 5, base = 800000;

	rng_init(&rng, 3);
	for (int i = 0; i < 12; i++) {
		int64_t wait = ku_backoff_next_us(&b, &rng, now);

		cr_expect_geq(wait, base);
		cr_expect_leq(wait, KU_BACKOFF_MAX_US);
		cr_expect_leq(wait, 2 * base);
		base = base * 2 < KU_BACKOFF_MAX_US ? base * 2 : KU_BACKOFF_MAX_US;
		now += wait;
	}
	cr_expect_lt(ku_backoff_next_us(&b, &rng, now + KU_BACKOFF_RESET_US + 1), 1600000);
}

Test(kube_client_parts, paths)
{
	struct buf b = BUF_INIT;

	ku_path_pod(&b, "n s", "p/../q?", "binding");
	ku_path_query(&b, "fieldSelector", "status.phase!=Failed,x=\xc3\xa9");
	ku_path_query(&b, "limit", "5");
	cr_expect_str_eq(buf_str(&b),
			 "/api/v1/namespaces/n%20s/pods/p%2F..%2Fq%3F/binding"
			 "?fieldSelector=status.phase%21%3DFailed%2Cx%3D%C3%A9&limit=5");
	cr_expect_not(ku_path_legal(""));
	cr_expect_not(ku_path_legal(".."));
	cr_expect(ku_path_legal("..."));
	buf_fini(&b);
}

Test(kube_client_parts, status)
{
	static const char text[] =
		"{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":504,\"reason\":\"Timeout\","
		"\"message\":\"m\",\"details\":{\"causes\":[{\"reason\":\"ResourceVersionTooLarge\"}]}}";
	struct ku_status s;

	cr_assert(ku_status_parse(text, strlen(text), &s));
	cr_expect_eq(s.code, 504);
	cr_expect_str_eq(s.status, "Failure");
	cr_expect_str_eq(s.message, "m");
	cr_expect(ku_status_version_too_large(&s));
	cr_expect_not(ku_status_parse("{\"kind\":\"Pod\"}", 14, &s));
	cr_expect_not(ku_status_parse("<html>", 6, &s));
	cr_expect_eq(s.code, 0);
}

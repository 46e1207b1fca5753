/* HTTPS: certificates, their reload while serving, client certificates for the scheduler's verbs. */
#include <criterion/criterion.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "test/lib/extender_fixture.h"

#define TLS "test/lib/tls/"

static struct xf f;
static struct ex_tls *tls;
static struct ex_server *server;
static struct ex_metrics metrics;
static char cert[] = "/tmp/tessera-cert-XXXXXX", key[] = "/tmp/tessera-key-XXXXXX";

static void copy(const char *from, const char *to)
{
	size_t len;
	char *text = xf_file(from, &len);

	cr_assert_eq(file_replace(to, text, len, NULL), 0);
	free(text);
}

static void init(void)
{
	struct buf b = BUF_INIT;
	int fd;

	xf_list_begin(&b);
	xf_node(&b, "n1", 1, 40960, "A", false);
	xf_list_end(&b);
	xf_open(&f, buf_str(&b), NULL, NULL);
	buf_fini(&b);
	fd = mkstemp(cert);
	cr_assert_geq(fd, 0);
	close(fd);
	fd = mkstemp(key);
	cr_assert_geq(fd, 0);
	close(fd);
	copy(TLS "server.crt", cert);
	copy(TLS "server.key", key);
}

static void serve(const char *client_ca)
{
	struct ex_server_config cfg = {.listen = "127.0.0.1:0",
				       .threads = 2,
				       .max_body = 65536,
				       .service = f.s,
				       .metrics = &metrics};
	struct err err = ERR_INIT;

	tls = ex_tls_new(cert, key, client_ca, &err);
	cr_assert_not_null(tls, "%s", err.msg);
	cfg.tls = tls;
	cr_assert_eq(ex_server_start(&cfg, &server, &err), 0, "%s", err.msg);
	cr_expect_eq(strncmp(ex_server_url(server), "https://127.0.0.1:", 18), 0);
}

static void fini(void)
{
	ex_server_stop(server);
	ex_tls_free(tls);
	unlink(cert);
	unlink(key);
	xf_close(&f);
}

TestSuite(extender_tls, .init = init, .fini = fini);

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	buf_put(ctx, data, size * count);
	return size * count;
}

/* The status, 0: no TLS connection came about. body NULL: GET. The reply must hold text. */
static long ask(CURL *h, const char *path, const char *body, const char *client, const char *text)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	struct buf out = BUF_INIT;
	char url[400];
	long status = 0;
	CURLcode rc;

	snprintf(url, sizeof(url), "%s%s", ex_server_url(server), path);
	curl_easy_reset(h);
	curl_easy_setopt(h, CURLOPT_URL, url);
	curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(h, CURLOPT_CAINFO, TLS "ca.crt");
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, &out);
	if (client != NULL) {
		char file[100];

		snprintf(file, sizeof(file), TLS "%s.crt", client);
		curl_easy_setopt(h, CURLOPT_SSLCERT, file);
		snprintf(file, sizeof(file), TLS "%s.key", client);
		curl_easy_setopt(h, CURLOPT_SSLKEY, file);
	}
	if (body != NULL)
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
	rc = curl_easy_perform(h);
	if (rc == CURLE_OK)
		curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
	if (text != NULL)
		cr_expect(strstr(buf_str(&out), text) != NULL, "%s: %s %s", path,
			  curl_easy_strerror(rc), buf_str(&out));
	buf_fini(&out);
	curl_slist_free_all(headers);
	return status;
}

#define REVIEW                                                                                     \
	"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{"       \
	"\"uid\":\"r\",\"kind\":{\"group\":\"\",\"kind\":\"Pod\"},\"operation\":\"CREATE\","       \
	"\"object\":{\"metadata\":{\"name\":\"p\",\"annotations\":{\"gpu-memory\":\"0\"}},"        \
	"\"spec\":{\"containers\":[{\"name\":\"c\"}]}}}}"

Test(extender_tls, every_path_over_https)
{
	char *args =
		xf_args((struct xf_pod){.uid = "a", .annotations = "\"gpu-memory\":\"1\""}, "n1");
	CURL *h = curl_easy_init();

	serve(NULL);
	cr_expect_eq(ask(h, "/healthz", NULL, NULL, "ok"), 200);
	cr_expect_eq(ask(h, "/v1/filter", args, NULL, "[\"n1\"]"), 200);
	cr_expect_eq(ask(h, "/validate?timeout=10s", REVIEW, NULL, "\"allowed\":false"), 200);
	cr_expect_eq(ask(h, "/mutate?timeout=10s", REVIEW, NULL, "\"allowed\":true"), 200);
	cr_expect_eq(ask(h, "/validate", "{}", NULL, "no AdmissionReview"), 400);
	cr_expect_eq(ask(h, "/metrics", NULL, NULL,
			 "tessera_admissions_total{verdict=\"refused\"} 1"),
		     200);
	curl_easy_cleanup(h);
	free(args);
}

Test(extender_tls, the_scheduler_shows_a_certificate)
{
	char *args =
		xf_args((struct xf_pod){.uid = "a", .annotations = "\"gpu-memory\":\"1\""}, "n1");
	CURL *h = curl_easy_init();

	serve(TLS "ca.crt");
	cr_expect_eq(ask(h, "/healthz", NULL, NULL, "ok"), 200);
	cr_expect_eq(ask(h, "/validate", REVIEW, NULL, "\"allowed\":false"), 200);
	cr_expect_eq(ask(h, "/v1/filter", args, NULL, "needs a client certificate"), 403);
	cr_expect_eq(ask(h, "/v1/bind", "{}", NULL, "needs a client certificate"), 403);
	cr_expect_eq(ask(h, "/api/v1/pods/release", "{}", NULL, "needs"), 403);
	curl_easy_cleanup(h);
	h = curl_easy_init();
	cr_expect_eq(ask(h, "/v1/filter", args, "client", "[\"n1\"]"), 200);
	curl_easy_cleanup(h);
	free(args);
}

Test(extender_tls, another_authority_is_not_believed)
{
	CURL *h = curl_easy_init();

	serve(TLS "other.crt");
	cr_expect_neq(ask(h, "/v1/bind", "{}", "client", NULL), 200);
	curl_easy_cleanup(h);
}

Test(extender_tls, a_reload_drops_nothing)
{
	CURL *old = curl_easy_init(), *new;
	struct err err = ERR_INIT;

	serve(NULL);
	cr_expect_eq(ask(old, "/healthz", NULL, NULL, "ok"), 200);
	/* A key that does not belong to it, and a file that is none, change nothing. */
	copy(TLS "client.key", key);
	cr_expect_eq(ex_tls_reload(tls, &err), ERR_INVALID);
	cr_expect(strstr(err.msg, "is not the key of") != NULL, "%s", err.msg);
	copy("README.md", cert);
	cr_expect_eq(ex_tls_reload(tls, &err), ERR_INVALID);
	new = curl_easy_init();
	cr_expect_eq(ask(new, "/healthz", NULL, NULL, "ok"), 200);
	curl_easy_cleanup(new);
	/* This one is no server's: new connections see it, the old one goes on. */
	copy(TLS "client.crt", cert);
	cr_expect_eq(ex_tls_reload(tls, &err), 0, "%s", err.msg);
	cr_expect_eq(ask(old, "/healthz", NULL, NULL, "ok"), 200);
	new = curl_easy_init();
	cr_expect_eq(ask(new, "/healthz", NULL, NULL, NULL), 0);
	curl_easy_cleanup(new);
	copy(TLS "server.crt", cert);
	copy(TLS "server.key", key);
	cr_expect_eq(ex_tls_reload(tls, &err), 0, "%s", err.msg);
	new = curl_easy_init();
	cr_expect_eq(ask(new, "/healthz", NULL, NULL, "ok"), 200);
	curl_easy_cleanup(new);
	curl_easy_cleanup(old);
}

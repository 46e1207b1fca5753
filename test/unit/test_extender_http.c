#include <criterion/criterion.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/listen.h"
#include "test/lib/extender_fixture.h"

#define A100 "NVIDIA A100-SXM4-40GB"
#define TENTH "\"gpu-fraction\":\"0.1\""

static struct xf f;
static struct xf_http h;
static char journal[] = "/tmp/tessera-http-XXXXXX";

static void open_all(void)
{
	struct buf b = BUF_INIT;
	int fd = mkstemp(journal);

	cr_assert_geq(fd, 0);
	close(fd);
	xf_list_begin(&b);
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		xf_node(&b, name, 8, 40960, A100, false);
	}
	xf_list_end(&b);
	xf_open(&f, buf_str(&b), NULL, journal);
	buf_fini(&b);
	xf_http_open(&h, &f, 8192);
}

static void close_all(void)
{
	xf_http_close(&h);
	xf_close(&f);
	unlink(journal);
}

TestSuite(extender_http, .init = open_all, .fini = close_all);

static void expect(const char *path, const char *body, const char *header, long status,
		   const char *want)
{
	long got = 0;
	char *reply = xf_http(&h, path, body, body != NULL ? strlen(body) : 0, header, &got);

	cr_expect_eq(got, status, "%s: %ld %s", path, got, reply);
	cr_expect(strstr(reply, want) != NULL, "%s: %s", path, reply);
	free(reply);
}

Test(extender_http, paths_and_methods)
{
	char *args = xf_args((struct xf_pod){.uid = "a", .annotations = TENTH}, "n1");

	expect("/filter", args, NULL, 200, "\"NodeNames\":[\"n1\"]");
	expect("/v1/filter", args, NULL, 200, "\"NodeNames\":[\"n1\"]");
	expect("/any/prefix/filter", args, NULL, 200, "\"NodeNames\":[\"n1\"]");
	expect("/v1/prioritize", args, NULL, 200, "[{\"Host\":\"n1\",\"Score\":10}]");
	expect("/filter", NULL, NULL, 405, "{\"error\":\"filter takes POST, not GET\"}");
	expect("/metrics", "{}", NULL, 405, "/metrics takes GET, not POST");
	expect("/nofilter", args, NULL, 404, "no such path");
	expect("/v1/healthz", NULL, NULL, 404, "no such path");
	expect("/healthz", NULL, NULL, 200, "ok\n");
	expect("/readyz", NULL, NULL, 200, "ok\n");
	expect("/", NULL, NULL, 200, "<title>Tessera");
	free(args);
}

/* Each path of admission gives what its side of ex_admit_review() does. */
Test(extender_http, admission_paths)
{
	static const char body[] =
		"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{"
		"\"uid\":\"r\",\"kind\":{\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"},"
		"\"operation\":\"CREATE\",\"object\":{\"metadata\":{\"name\":\"p\",\"annotations\":{"
		"\"gpu-memory\":\"1000\"}},\"spec\":{\"containers\":[{\"name\":\"main\"}]}}}}";
	static const struct {
		const char *path;
		struct ex_admit how;
	} rows[] = {
		{"/validate", {.scheduler = "tessera"}},
		{"/mutate", {.mutate = true, .scheduler = "tessera"}},
		{"/mutate/scheduler", {.mutate = true, .scheduler = "tessera", .unlabelled = true}},
	};
	char *replies[3];

	for (size_t i = 0; i < 3; i++) {
		struct ex_admit how = rows[i].how;
		enum ex_admit_verdict v;
		struct buf want = BUF_INIT;
		struct err err = ERR_INIT;
		long status = 0;

		how.service = f.s;
		cr_assert_eq(ex_admit_review(&how, body, strlen(body), &want, &v, &err), 0);
		replies[i] = xf_http(&h, rows[i].path, body, strlen(body), NULL, &status);
		cr_expect_eq(status, 200);
		cr_expect_str_eq(replies[i], buf_str(&want), "%s", rows[i].path);
		buf_fini(&want);
	}
	cr_expect_str_neq(replies[0], replies[1]);
	cr_expect_str_neq(replies[1], replies[2]);
	for (size_t i = 0; i < 3; i++)
		free(replies[i]);
}

Test(extender_http, bodies_that_are_not_taken)
{
	char *args = xf_args((struct xf_pod){.uid = "a", .annotations = TENTH}, "n1");

	expect("/filter", args, "Content-Encoding: gzip", 415, "Content-Encoding \\\"gzip\\\"");
	expect("/filter", args, "Content-Type: text/plain", 415,
	       "Content-Type is \\\"text/plain\\\"");
	expect("/filter", args, "Content-Type: application/JSON; charset=utf-8", 200, "\"n1\"");
	expect("/filter", args, "Content-Type:", 200, "\"n1\"");
	free(args);
}

Test(extender_http, too_large_is_said_where_the_scheduler_reads_it)
{
	char body[10000];

	memset(body, ' ', sizeof(body) - 1);
	body[sizeof(body) - 1] = '\0';
	for (int chunked = 0; chunked < 2; chunked++) {
		const char *header = chunked ? "Transfer-Encoding: chunked" : NULL;

		expect("/filter", body, header, 200, "\"Error\":\"the request has ");
		expect("/filter", body, header, 200, "--max-body allows 8192\"");
		expect("/bind", body, header, 200, "{\"Error\":\"the request has ");
		expect("/prioritize", body, header, 200, "[]");
		expect("/preempt", body, header, 200,
		       "{\"NodeNameToMetaVictims\":{},\"Error\":\"the");
		expect("/api/v1/pods/release", body, header, 413, "--max-body");
	}
	/* The connection lives on. */
	expect("/healthz", NULL, NULL, 200, "ok");
}

Test(extender_http, one_byte_less_is_taken)
{
	char *args = xf_args((struct xf_pod){.uid = "a", .annotations = TENTH}, "n1"), body[8193];

	memset(body, ' ', 8192);
	memcpy(body, args, strlen(args));
	body[8192] = '\0';
	expect("/filter", body, NULL, 200, "\"NodeNames\":[\"n1\"]");
	free(args);
}

Test(extender_http, bind_release_and_what_can_be_seen)
{
	char *args = xf_args((struct xf_pod){.uid = "a", .annotations = TENTH}, "n1");
	char *bind = xf_bind_args("a", "n1");

	expect("/filter", args, NULL, 200, "\"NodeNames\":[\"n1\"]");
	expect("/bind", bind, NULL, 200, "{\"Error\":\"\"}");
	expect("/bind", bind, NULL, 200, "{\"Error\":\"\"}");
	expect("/api/v1/cluster", NULL, NULL, 200, "\"uuid\":\"GPU-n1-0\"");
	expect("/api/v1/cluster", NULL, NULL, 200, "\"booked_mib\":4096");
	expect("/metrics", NULL, NULL, 200, "tessera_binds_total{outcome=\"repeated\"} 1\n");
	expect("/metrics", NULL, NULL, 200,
	       "tessera_gpu_memory_booked_bytes{node=\"n1\",gpu=\"GPU-n1-0\"} 4294967296\n");
	expect("/metrics", NULL, NULL, 200,
	       "tessera_requests_total{verb=\"bind\",code=\"200\"} 2\n");
	expect("/api/v1/pods/release", "{\"uid\":\"a\"}", NULL, 200, "{\"released\":true}");
	expect("/api/v1/pods/release", "{\"uid\":\"b\"}", NULL, 404, "no pod with uid");
	expect("/api/v1/pods/release", "{\"uid\":7}", NULL, 400, "uid: a string is needed");
	expect("/api/v1/pods/release", "{", NULL, 400, "JSON");
	expect("/metrics", NULL, NULL, 200,
	       "tessera_gpu_memory_booked_bytes{node=\"n1\",gpu=\"GPU-n1-0\"} 0\n");
	free(bind);
	free(args);
}

/* METRICS.md says which there are without an API server: those of its first table, all of them. */
Test(extender_http, metrics_are_those_that_the_document_promises)
{
	size_t len;
	long status = 0;
	char *doc = xf_file("extender/METRICS.md", &len), *name, *end, want[200];
	char *text = xf_http(&h, "/metrics", NULL, 0, NULL, &status);
	const char *apart = strstr(doc, "With an API server only");
	unsigned here = 0, away = 0;

	cr_assert_not_null(apart);
	for (name = doc; (name = strstr(name, "\n| `tessera_")) != NULL; name = end) {
		bool without = name < apart;

		name += strlen("\n| `");
		end = strchr(name, '`');
		snprintf(want, sizeof(want), "# TYPE %.*s ", (int)(end - name), name);
		cr_expect_eq(strstr(text, want) != NULL, without, "%s", want);
		*(without ? &here : &away) += 1;
	}
	cr_expect_gt(here, 20);
	cr_expect_gt(away, 20);
	free(text);
	free(doc);
}

Test(extender_http, the_cluster_is_valid_json)
{
	long status = 0;
	char *reply = xf_http(&h, "/api/v1/cluster", NULL, 0, NULL, &status);
	cJSON *tree = NULL;
	struct err err = ERR_INIT;

	cr_assert_eq(ku_json_parse(reply, strlen(reply), &tree, &err), 0, "%s", err.msg);
	cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(tree, "nodes")), 4);
	cJSON_Delete(tree);
	free(reply);
}

/* ---- many at once ---- */

/* NOLINTNEXTLINE(readability-non-const-parameter): curl gives the type */
static size_t discard(char *data, size_t size, size_t count, void *ctx)
{
	(void)data;
	(void)ctx;
	return size * count;
}

#define AT_ONCE 300

/* All transfers run at the same time, each on a connection of its own. */
static void post_all(const char *path, char *const *bodies)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	CURLM *multi = curl_multi_init();
	CURL *easy[AT_ONCE];
	int running = 1, left = 0, done = 0;
	struct CURLMsg *msg;
	char url[400];

	snprintf(url, sizeof(url), "%s%s", ex_server_url(h.server), path);
	for (int i = 0; i < AT_ONCE; i++) {
		easy[i] = curl_easy_init();
		curl_easy_setopt(easy[i], CURLOPT_URL, url);
		curl_easy_setopt(easy[i], CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(easy[i], CURLOPT_NOPROXY, "*");
		curl_easy_setopt(easy[i], CURLOPT_FRESH_CONNECT, 1L);
		curl_easy_setopt(easy[i], CURLOPT_POSTFIELDS, bodies[i]);
		curl_easy_setopt(easy[i], CURLOPT_WRITEFUNCTION, discard);
		curl_multi_add_handle(multi, easy[i]);
	}
	while (running > 0) {
		curl_multi_perform(multi, &running);
		curl_multi_poll(multi, NULL, 0, 1000, NULL);
	}
	while ((msg = curl_multi_info_read(multi, &left)) != NULL) {
		cr_expect_eq(msg->data.result, CURLE_OK, "%s",
			     curl_easy_strerror(msg->data.result));
		done++;
	}
	cr_expect_eq(done, AT_ONCE);
	for (int i = 0; i < AT_ONCE; i++) {
		curl_multi_remove_handle(multi, easy[i]);
		curl_easy_cleanup(easy[i]);
	}
	curl_multi_cleanup(multi);
	curl_slist_free_all(headers);
}

Test(extender_http, three_hundred_binds_at_once)
{
	char *filters[AT_ONCE], *binds[AT_ONCE], uid[16], node[16];
	struct ex_service_counts counts;

	for (int i = 0; i < AT_ONCE; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		snprintf(node, sizeof(node), "n%d", i % 4);
		filters[i] =
			xf_args((struct xf_pod){.uid = uid, .annotations = TENTH}, "n0 n1 n2 n3");
		binds[i] = xf_bind_args(uid, node);
	}
	post_all("/filter", filters);
	post_all("/bind", binds);
	ex_service_counts(f.s, &counts);
	cr_expect_eq(counts.binds, AT_ONCE);
	cr_expect_eq(counts.binds_refused, 0);
	xf_check(&f);
	for (int i = 0; i < AT_ONCE; i++) {
		free(filters[i]);
		free(binds[i]);
	}
}

/* ---- raw ---- */

/* Sends the bytes and reads until the server closes. */
static char *raw(const char *text)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval patience = {.tv_sec = 30};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct buf b = BUF_INIT;
	char part[512];
	ssize_t n;

	to.sin_port = htons((uint16_t)strtoul(strrchr(ex_server_url(h.server), ':') + 1, NULL, 10));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	while ((n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_put(&b, part, (size_t)n);
	cr_expect(n == 0 || errno == ECONNRESET, "the connection stays open");
	close(fd);
	return buf_take(&b);
}

/* Two ends of one body are a second request to whoever reads the other end. */
Test(extender_http, a_body_with_two_ends_is_refused)
{
	static const char *const heads[] = {
		"Content-Length: 2\r\nContent-Length: 40",
		"Content-Length: 2\r\ncontent-length: 2",
		"Content-Length: 2\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nContent-Length: 7",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
	};
	static const char *const paths[] = {"/filter", "/bind", "/validate", "/none"};
	char text[600], *plain;

	for (size_t i = 0; i < 5 * 4; i++) {
		char *reply;

		snprintf(
			text, sizeof(text),
			"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n"
			"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
			paths[i % 4], heads[i / 4]);
		reply = raw(text);
		cr_expect_eq(strncmp(reply, "HTTP/1.1 400 ", 13), 0, "%s: %s", text, reply);
		cr_expect_null(strstr(reply + 1, "HTTP/1.1"), "a second answer: %s", reply);
		free(reply);
	}
	snprintf(
		text, sizeof(text),
		"POST /filter HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
	plain = raw(text);
	cr_expect_eq(strncmp(plain, "HTTP/1.1 200 ", 13), 0, "%s", plain);
	free(plain);
}

/* ---- listening ---- */

Test(extender_listen, addresses)
{
	static const struct {
		const char *text, *want;
	} wrong[] = {
		{"8080", "not ADDR:PORT"},
		{"host:", "not ADDR:PORT"},
		{"127.0.0.1:http", "not ADDR:PORT"},
		{"::1:80", "write IPv6 as [ADDR]:PORT"},
		{"no.such.host.invalid:80", "no.such.host.invalid"},
		{"192.0.2.1:0", "cannot listen on 192.0.2.1:0"},
	};
	struct err err = ERR_INIT;
	char url[300];
	int fd = -1, other = -1;

	cr_assert_eq(listen_open("127.0.0.1:0", false, &fd, url, sizeof(url), &err), 0, "%s",
		     err.msg);
	cr_expect_eq(strncmp(url, "http://127.0.0.1:", 17), 0);
	cr_expect_neq(strcmp(url + 17, "0"), 0);
	cr_expect_eq(listen_open(url + 7, false, &other, url, sizeof(url), &err), ERR_IO);
	cr_expect(strstr(err.msg, "Address already in use") != NULL, "%s", err.msg);
	close(fd);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_expect_lt(listen_open(wrong[i].text, false, &fd, url, sizeof(url), &err), 0,
			     "%s", wrong[i].text);
		cr_expect(strstr(err.msg, wrong[i].want) != NULL, "%s", err.msg);
	}
}

Test(extender_listen, ports_out_of_range_are_refused)
{
	static const char *const wrong[] = {
		"127.0.0.1:65536", "127.0.0.1:70000", "127.0.0.1:99999999999999999999",
		"127.0.0.1:-1",    "127.0.0.1:",      "127.0.0.1"};
	struct err err;
	char url[256];
	int fd;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err = (struct err)ERR_INIT;
		cr_expect_eq(listen_open(wrong[i], false, &fd, url, sizeof(url), &err), ERR_INVALID,
			     "%s", wrong[i]);
		cr_expect(strstr(err.msg, wrong[i]) != NULL, "%s", err.msg);
	}
}

/* What becomes a tree of JSON takes some forty times its text: such bodies are small. */
Test(extender_http, bodies_that_become_trees_are_small)
{
	size_t len = 5 << 20;
	char *body = malloc(len + 1), *reply;
	struct xf_http large;
	long status = 0;

	memset(body, ' ', len);
	body[len] = '\0';
	xf_http_open(&large, &f, (size_t)64 << 20);
	reply = xf_http(&large, "/bind", body, len, NULL, &status);
	cr_expect_not_null(strstr(reply, "bind takes 1048576"), "%s", reply);
	free(reply);
	reply = xf_http(&large, "/validate", body, len, NULL, &status);
	cr_expect_eq(status, 413);
	cr_expect_not_null(strstr(reply, "/validate takes 4194304"), "%s", reply);
	free(reply);
	reply = xf_http(&large, "/filter", body, len, NULL, &status);
	cr_expect_null(strstr(reply, " takes "), "the scheduler's may be large: %s", reply);
	free(reply);
	xf_http_close(&large);
	free(body);
}

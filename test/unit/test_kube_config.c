/* Kubeconfig files, good and bad, and the service account of a pod. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "kube/config.h"
#include "test/lib/oom.h"

static char dir[64];

static void make_dir(void)
{
	snprintf(dir, sizeof(dir), "/tmp/tessera-config-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
}

static void remove_dir(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a fixed command in a test */
}

static const char *write_file(const char *name, const char *text)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	cr_assert_eq(file_replace(path, text, strlen(text), NULL), 0);
	return path;
}

TestSuite(kube_config, .init = make_dir, .fini = remove_dir);

#define CONTEXT(more)                                                                              \
	"current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u" more "}}]\n"
#define CLUSTER "clusters: [{name: k, cluster: {server: \"https://h:6443/\"}}]\n"
#define USER(fields) "users: [{name: u, user: {" fields "}}]\n"
#define PEM64 "LS0tLS1CRUdJTiBYLS0tLS0K" /* "-----BEGIN X-----\n" */

Test(kube_config, everything)
{
	const char *path = write_file(
		"config",
		"apiVersion: v1\nkind: Config\npreferences: {}\ncurrent-context: b\n"
		"contexts:\n- name: a\n  context: {cluster: missing}\n"
		"- context:\n    cluster: two\n    namespace: gpu-team\n    user: me\n  name: b\n"
		"clusters:\n- {name: one, cluster: {server: 'http://x'}}\n"
		"- name: two\n  cluster:\n    server: https://10.0.0.1:6443/prefix//\n"
		"    certificate-authority-data: " PEM64 "\n    tls-server-name: kubernetes\n"
		"    proxy-url: http://proxy:3128\n"
		"users:\n- name: me\n  user:\n    token: abc.DEF-123\n"
		"    client-certificate: sub/c.pem\n    client-key-data: " PEM64 "\n");
	struct ku_config c;
	struct err err = ERR_INIT;
	char sub[128], pem[160];

	snprintf(sub, sizeof(sub), "%s/sub", dir);
	mkdir(sub, 0700);
	snprintf(pem, sizeof(pem), "%s/c.pem", sub);
	cr_assert_eq(file_replace(pem, "-----BEGIN Y-----\n", 18, NULL), 0);
	cr_assert_eq(ku_config_load(path, NULL, &c, &err), 0, "%s", err.msg);
	cr_assert_str_eq(c.server, "https://10.0.0.1:6443/prefix");
	cr_assert_str_eq(c.ns, "gpu-team");
	cr_assert_str_eq(c.tls_server_name, "kubernetes");
	cr_assert_str_eq(c.proxy_url, "http://proxy:3128");
	cr_assert_str_eq(c.token, "abc.DEF-123");
	cr_assert_null(c.token_file);
	cr_assert_not(c.insecure);
	cr_assert_eq(c.ca.len, 18);
	cr_assert_eq(memcmp(c.ca.data, "-----BEGIN X-----\n", 18), 0);
	cr_assert_str_eq(c.cert.path, pem);
	cr_assert_null(c.cert.data);
	cr_assert_eq(c.key.len, 18);
	ku_config_fini(&c);
	cr_assert_null(c.token);
}

Test(kube_config, json_is_yaml)
{
	const char *path = write_file(
		"config",
		"{\"kind\":\"Config\",\"current-context\":\"c\",\n\t\"contexts\":[{\"name\":\"c\","
		"\"context\":{\"cluster\":\"k\",\"user\":\"u\",\"namespace\":null}}],"
		"\"clusters\":[{\"name\":\"k\",\"cluster\":{\"server\":\"https://h\"}}],"
		"\"users\":[{\"name\":\"u\",\"user\":{\"token\":\"t\",\"exec\":null}}]}");
	struct ku_config c;
	struct err err = ERR_INIT;

	cr_assert_eq(ku_config_load(path, NULL, &c, &err), 0, "%s", err.msg);
	cr_assert_str_eq(c.server, "https://h");
	cr_assert_str_eq(c.ns, "default");
	cr_assert_str_eq(c.token, "t");
	ku_config_fini(&c);
}

Test(kube_config, named_context_and_no_user)
{
	const char *path =
		write_file("config", "contexts: [{name: d, context: {cluster: k}}]\n" CLUSTER);
	struct ku_config c;
	struct err err = ERR_INIT;

	cr_assert_eq(ku_config_load(path, "d", &c, &err), 0, "%s", err.msg);
	cr_assert_str_eq(c.server, "https://h:6443");
	cr_assert_null(c.token);
	ku_config_fini(&c);
	cr_assert_eq(ku_config_load(path, "e", &c, &err), ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.msg, "contexts: none is named \"e\""));
}

Test(kube_config, token_file_before_token)
{
	struct ku_config c;
	struct err err = ERR_INIT;
	const char *path;

	write_file("tok", "  from-file\n\n");
	path = write_file("config", CONTEXT("") CLUSTER USER("token: fixed, tokenFile: tok"));
	cr_assert_eq(ku_config_load(path, NULL, &c, &err), 0, "%s", err.msg);
	cr_assert_str_eq(c.token, "from-file");
	cr_assert_not_null(strstr(c.token_file, "/tok"));
	ku_config_fini(&c);
}

static const struct bad {
	const char *text, *message;
	int code;
} bads[] = {
	{"", "the file is empty", ERR_INVALID},
	{"[]", "the file is no mapping", ERR_INVALID},
	{"a: [", "line 2, column 1: ", ERR_INVALID},
	{"kind: Pod", "kind: is \"Pod\", not Config", ERR_INVALID},
	{"kind: Config", "current-context: is missing", ERR_INVALID},
	{"current-context: {}", "current-context: is no string", ERR_INVALID},
	{"current-context: c", "contexts: none is named \"c\"", ERR_NOT_FOUND},
	{"current-context: c\ncontexts: {}", "contexts: is no list", ERR_INVALID},
	{"current-context: c\ncontexts: [7]", "contexts[0]: is no mapping", ERR_INVALID},
	{"current-context: c\ncontexts: [{name: c}]", "contexts[0].context: is missing",
	 ERR_INVALID},
	{"current-context: c\ncontexts: [{name: c, context: {user: u}}]",
	 "contexts[0].context.cluster: is missing", ERR_INVALID},
	{"current-context: c\ncurrent-context: d\n" CLUSTER, "current-context: is given twice",
	 ERR_INVALID},
	{"current-context: c\ncontexts: [{name: c, context: {cluster: k}}, "
	 "{name: c, context: {cluster: k}}]",
	 "contexts[1]: a second entry \"c\"", ERR_INVALID},
	{CONTEXT(""), "contexts[0].context.cluster: clusters: none is named \"k\"", ERR_NOT_FOUND},
	{CONTEXT("") CLUSTER, "contexts[0].context.user: users: none is named \"u\"",
	 ERR_NOT_FOUND},
	{CONTEXT("") "clusters: [{name: k, cluster: {}}]\n" USER("token: t"),
	 "clusters[0].cluster.server: is missing", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'ftp://h'}}]\n" USER("token: t"),
	 "clusters[0].cluster.server: \"ftp://h\" starts with neither", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://a:b@h'}}]\n" USER("token: t"),
	 "clusters[0].cluster.server: the URL has a user name", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h/?q=1'}}]\n" USER(
		 "token: t"),
	 "clusters[0].cluster.server: the URL has a query", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h:port'}}]\n" USER(
		 "token: t"),
	 "clusters[0].cluster.server: \"https://h:port\" is no URL", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', "
		     "certificate-authority: gone.pem}}]\n" USER("token: t"),
	 "clusters[0].cluster.certificate-authority: ", ERR_IO},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', "
		     "certificate-authority-data: '!!'}}]\n" USER("token: t"),
	 "clusters[0].cluster.certificate-authority-data: is not base64", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', "
		     "certificate-authority-data: aGVsbG8=}}]\n" USER("token: t"),
	 "clusters[0].cluster.certificate-authority-data: holds no PEM text", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', "
		     "insecure-skip-tls-verify: maybe}}]\n" USER("token: t"),
	 "clusters[0].cluster.insecure-skip-tls-verify: is \"maybe\", neither true nor false",
	 ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', insecure-skip-tls-verify: "
		     "true, certificate-authority-data: " PEM64 "}}]\n" USER("token: t"),
	 "clusters[0].cluster: insecure-skip-tls-verify together with", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("exec: {command: aws}"),
	 "users[0].user.exec: credential plugins are not run; use a token", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("auth-provider: {name: gcp}"),
	 "users[0].user.auth-provider: credential plugins are not run", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("username: me, password: secret"),
	 "users[0].user.username: passwords are not supported", ERR_INVALID},
	{CONTEXT("") CLUSTER "users: [{name: u, user: {<<: {token: t}}}]",
	 "users[0].user.<<: merge keys are not supported", ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', proxy-url: "
		     "'ftp://me:secret@p'}}]\n" USER("token: t"),
	 "clusters[0].cluster.proxy-url: the scheme is \"ftp\", not http, https or socks5",
	 ERR_INVALID},
	{CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', proxy-url: "
		     "'me:secret@p:1'}}]\n" USER("token: t"),
	 "clusters[0].cluster.proxy-url: is no URL", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("token: t, as: root"),
	 "users[0].user.as: impersonation is not supported", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("token: \"a b\""),
	 "users[0].user.token: the token holds a character", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("token: [x]"), "users[0].user.token: is no string", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("tokenFile: nowhere"), "users[0].user.tokenFile: ", ERR_IO},
	{CONTEXT("") CLUSTER USER("client-certificate-data: " PEM64),
	 "users[0].user: client-certificate without client-key", ERR_INVALID},
	{CONTEXT("") CLUSTER USER("client-key-data: " PEM64),
	 "users[0].user: client-key without client-certificate", ERR_INVALID},
};

Test(kube_config, refused)
{
	static char untouched[] = "untouched";

	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
		const char *path = write_file("config", bads[i].text);
		struct ku_config c = {.server = untouched};
		struct err err = ERR_INIT;
		int r = ku_config_load(path, NULL, &c, &err);

		cr_expect_eq(r, bads[i].code, "%s: %d, %s", bads[i].text, r, err.msg);
		cr_expect_eq(strncmp(err.msg, path, strlen(path)), 0, "no file name: %s", err.msg);
		cr_expect_not_null(strstr(err.msg, bads[i].message), "%s\nhas: %s\nnot: %s",
				   bads[i].text, err.msg, bads[i].message);
		cr_expect_null(strstr(err.msg, "secret"));
		cr_expect_eq(c.server, untouched);
	}
}

Test(kube_config, no_file)
{
	struct ku_config c;
	struct err err = ERR_INIT;

	cr_assert_eq(ku_config_load("/nowhere/config", NULL, &c, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "/nowhere/config"));
}

static struct ku_in_cluster account(void)
{
	write_file("ca.crt", "-----BEGIN CERTIFICATE-----\n");
	write_file("namespace", "gpu\n");
	write_file("token", "first\n");
	return (struct ku_in_cluster){.host = "10.0.0.1", .port = "443", .dir = dir};
}

Test(kube_config, in_cluster)
{
	struct ku_in_cluster w = account();
	struct ku_config c;
	struct err err = ERR_INIT;

	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), 0, "%s", err.msg);
	cr_assert_str_eq(c.server, "https://10.0.0.1:443");
	cr_assert_str_eq(c.ns, "gpu");
	cr_assert_str_eq(c.token, "first");
	cr_assert_not_null(strstr(c.token_file, "/token"));
	cr_assert_not_null(strstr(c.ca.path, "/ca.crt"));
	ku_config_fini(&c);
	w.host = "fd00::1";
	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), 0, "%s", err.msg);
	cr_assert_str_eq(c.server, "https://[fd00::1]:443");
	ku_config_fini(&c);
}

/* client-go asks for no namespace either. */
Test(kube_config, in_cluster_without_a_namespace)
{
	struct ku_in_cluster w = account();
	struct ku_config c;
	struct err err = ERR_INIT;

	write_file("namespace", "");
	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), 0, "%s", err.msg);
	cr_expect_str_eq(c.ns, "default");
	ku_config_fini(&c);
	unlink(write_file("namespace", ""));
	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), 0, "%s", err.msg);
	cr_expect_str_eq(c.ns, "default");
	ku_config_fini(&c);
}

Test(kube_config, proxies)
{
	static const char *const good[] = {"http://p", "https://me:word@p:3128",
					   "socks5://[::1]:9"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ku_config c;
		struct err err = ERR_INIT;
		char text[512];

		snprintf(text, sizeof(text),
			 CONTEXT("") "clusters: [{name: k, cluster: {server: 'https://h', "
				     "proxy-url: '%s'}}]\n" USER("token: t"),
			 good[i]);
		cr_assert_eq(ku_config_load(write_file("config", text), NULL, &c, &err), 0, "%s",
			     err.msg);
		cr_expect_str_eq(c.proxy_url, good[i]);
		ku_config_fini(&c);
	}
}

Test(kube_config, in_cluster_refused)
{
	struct ku_in_cluster w = account();
	struct ku_config c;
	struct err err = ERR_INIT;

	write_file("token", "\n");
	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), ERR_INVALID);
	cr_assert_not_null(strstr(err.msg, "/token: the token is empty"), "%s", err.msg);
	unlink(write_file("ca.crt", ""));
	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), ERR_IO);
	cr_assert_not_null(strstr(err.msg, "/ca.crt"));
	w.host = "";
	cr_assert_eq(ku_config_in_cluster(&w, &c, &err), ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.msg, "KUBERNETES_SERVICE_HOST"));
}

Test(kube_config, oom_sweep)
{
	const char *path = write_file("config", CONTEXT(", namespace: n") CLUSTER USER(
							"token: t, client-certificate-data: " PEM64
							", client-key-data: " PEM64));

	OOM_SWEEP(n) {
		struct ku_config c = {0}, copy = {0};
		struct err err = ERR_INIT;
		bool hit;
		int r;

		oom_fail_at(n);
		r = ku_config_load(path, NULL, &c, &err);
		if (r == 0)
			r = ku_config_copy(&c, &copy, &err);
		hit = oom_disarm();
		ku_config_fini(&c);
		ku_config_fini(&copy);
		if (!hit) {
			cr_assert_eq(r, 0, "%s", err.msg);
			break;
		}
		cr_assert_eq(r, ERR_NOMEM, "%u: %d %s", n, r, err.msg);
	}
}

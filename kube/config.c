#include "kube/config.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/file.h"
#include "kube/config_internal.h"

#define ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"
#define TOKEN_MAX ((size_t)64 << 10)
#define PEM_MAX ((size_t)4 << 20)
#define PEM_MARK "-----BEGIN "

static int nomem(struct err *err)
{
	return err_set(err, ERR_NOMEM, "no memory for the configuration");
}

int ku_config_check_token(const char *s, const char *field, struct err *err)
{
	if (*s == '\0')
		return err_set(err, ERR_INVALID, "%s: the token is empty", field);
	for (; *s != '\0'; s++) {
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
			return err_set(err, ERR_INVALID,
				       "%s: the token holds a character that is not plain ASCII",
				       field);
	}
	return 0;
}

int ku_config_read_token(const char *path, char **ret, struct err *err)
{
	char *text;
	size_t len, lead;
	int r = file_read(path, TOKEN_MAX, &text, &len, err);

	if (r < 0)
		return r;
	while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
		len--;
	text[len] = '\0';
	lead = strspn(text, " \t\r\n");
	memmove(text, text + lead, len - lead + 1);
	r = ku_config_check_token(text, path, err);
	if (r == 0 && strlen(text) != len - lead)
		r = err_set(err, ERR_INVALID, "%s: the token holds a NUL character", path);
	if (r < 0) {
		free(text);
		return r;
	}
	*ret = text;
	return 0;
}

char *ku_config_join(const char *dir, const char *path)
{
	char *full;

	if (path[0] == '/' || dir[0] == '\0')
		return strdup(path);
	return asprintf(&full, "%s/%s", dir, path) < 0 ? NULL : full;
}

/* The parts of a URL that must not be there. */
static int check_url_parts(CURLU *u, const char *field, struct err *err)
{
	static const struct {
		CURLUPart part;
		const char *what;
	} unwanted[] = {
		{CURLUPART_USER, "a user name"},
		{CURLUPART_PASSWORD, "a password"},
		{CURLUPART_QUERY, "a query"},
		{CURLUPART_FRAGMENT, "a fragment"},
	};
	char *part;

	for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++) {
		if (curl_url_get(u, unwanted[i].part, &part, 0) == CURLUE_OK) {
			curl_free(part);
			return err_set(err, ERR_INVALID, "%s: the URL has %s", field,
				       unwanted[i].what);
		}
	}
	return 0;
}

int ku_config_check_server(const char *url, const char *field, char **ret, struct err *err)
{
	CURLU *u = curl_url();
	size_t len = strlen(url);
	int r = 0;

	if (u == NULL)
		return nomem(err);
	if (strncasecmp(url, "https://", 8) != 0 && strncasecmp(url, "http://", 7) != 0)
		r = err_set(err, ERR_INVALID,
			    "%s: \"%.200s\" starts with neither https:// nor http://", field, url);
	else if (curl_url_set(u, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK)
		r = err_set(err, ERR_INVALID, "%s: \"%.200s\" is no URL", field, url);
	else
		r = check_url_parts(u, field, err);
	curl_url_cleanup(u);
	if (r < 0)
		return r;
	while (len > 0 && url[len - 1] == '/')
		len--;
	*ret = strndup(url, len);
	return *ret == NULL ? nomem(err) : 0;
}

int ku_config_check_proxy(const char *url, const char *field, struct err *err)
{
	CURLU *u = curl_url();
	char *scheme = NULL;
	int r = 0;

	if (u == NULL)
		return nomem(err);
	/* It may hold a password: the message does not repeat it. */
	if (curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
	    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK)
		r = err_set(err, ERR_INVALID, "%s: is no URL with a scheme and a host", field);
	else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0 &&
		 strcmp(scheme, "socks5") != 0)
		r = err_set(err, ERR_INVALID,
			    "%s: the scheme is \"%.40s\", not http, https or socks5", field,
			    scheme);
	curl_free(scheme);
	curl_url_cleanup(u);
	return r;
}

static int base64_value(int c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Standard base64 with padding; line breaks are skipped. -1: it is none. */
static int base64_decode(const char *s, char *out, size_t *ret_len)
{
	uint32_t bits = 0;
	unsigned count = 0, pad = 0;
	size_t len = 0;

	for (; *s != '\0'; s++) {
		int v = base64_value(*s);

		if (*s == '\r' || *s == '\n')
			continue;
		if (*s == '=') {
			pad++;
			continue;
		}
		if (v < 0 || pad > 0)
			return -1;
		bits = bits << 6 | (uint32_t)v;
		if (++count % 4 != 1)
			out[len++] = (char)(bits >> (6 - 2 * ((count - 1) % 4)));
	}
	if ((count + pad) % 4 != 0 || pad > 2 || count % 4 == 1)
		return -1;
	*ret_len = len;
	return 0;
}

int ku_config_pem_data(const char *base64, const char *field, struct ku_pem *ret, struct err *err)
{
	size_t cap = strlen(base64) / 4 * 3 + 4, len = 0;
	char *data = malloc(cap);
	int r = 0;

	if (data == NULL)
		return nomem(err);
	if (base64_decode(base64, data, &len) < 0)
		r = err_set(err, ERR_INVALID, "%s: is not base64", field);
	else if (memmem(data, len, PEM_MARK, strlen(PEM_MARK)) == NULL)
		r = err_set(err, ERR_INVALID, "%s: holds no PEM text", field);
	if (r < 0) {
		explicit_bzero(data, cap);
		free(data);
		return r;
	}
	ret->data = data;
	ret->len = len;
	return 0;
}

int ku_config_read_pem(const char *path, struct ku_pem *ret, struct err *err)
{
	struct ku_pem p = {0};
	int r = file_read(path, PEM_MAX, &p.data, &p.len, err);

	if (r == 0 && memmem(p.data, p.len, PEM_MARK, strlen(PEM_MARK)) == NULL)
		r = err_set(err, ERR_INVALID, "%s holds no PEM text", path);
	if (r < 0)
		ku_pem_fini(&p);
	else
		*ret = p;
	return r;
}

int ku_config_pem_file(const char *path, const char *dir, const char *field, struct ku_pem *ret,
		       struct err *err)
{
	char *full = ku_config_join(dir, path);
	struct ku_pem p;
	int r;

	if (full == NULL)
		return nomem(err);
	r = ku_config_read_pem(full, &p, err);
	if (r == 0)
		ku_pem_fini(&p);
	if (r < 0) {
		free(full);
		return err_prefix(err, r, "%s", field);
	}
	ret->path = full;
	return 0;
}

static bool given(const struct ku_pem *p)
{
	return p->path != NULL || p->data != NULL;
}

int ku_config_check(const struct ku_config *c, const char *cluster, const char *user,
		    struct err *err)
{
	if (c->insecure && given(&c->ca))
		return err_set(err, ERR_INVALID,
			       "%s: insecure-skip-tls-verify together with a certificate-authority",
			       cluster);
	if (given(&c->cert) && !given(&c->key))
		return err_set(err, ERR_INVALID, "%s: client-certificate without client-key", user);
	if (given(&c->key) && !given(&c->cert))
		return err_set(err, ERR_INVALID, "%s: client-key without client-certificate", user);
	return 0;
}

static int in_cluster_server(const struct ku_in_cluster *w, char **ret, struct err *err)
{
	const char *host = w->host != NULL ? w->host : getenv("KUBERNETES_SERVICE_HOST");
	const char *port = w->port != NULL ? w->port : getenv("KUBERNETES_SERVICE_PORT");
	bool v6 = host != NULL && strchr(host, ':') != NULL;
	char *url;
	int r;

	if (host == NULL || *host == '\0')
		return err_set(err, ERR_NOT_FOUND,
			       "KUBERNETES_SERVICE_HOST is not set: not in a pod");
	if (port == NULL || *port == '\0')
		return err_set(err, ERR_NOT_FOUND,
			       "KUBERNETES_SERVICE_PORT is not set: not in a pod");
	if (asprintf(&url, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port) < 0)
		return nomem(err);
	r = ku_config_check_server(url, "KUBERNETES_SERVICE_HOST, _PORT", ret, err);
	free(url);
	return r;
}

/* The namespace file; a missing or empty one means "default". */
static int in_cluster_namespace(const char *dir, char **ret, struct err *err)
{
	char *path = ku_config_join(dir, "namespace"), *text = NULL;
	size_t len = 0;
	int r;

	if (path == NULL)
		return nomem(err);
	r = access(path, F_OK) < 0 && errno == ENOENT ? 0 : file_read(path, 4096, &text, &len, err);
	free(path);
	if (r < 0)
		return r;
	if (text != NULL)
		text[strcspn(text, " \t\r\n")] = '\0';
	if (text == NULL || *text == '\0') {
		free(text);
		text = strdup("default");
	}
	*ret = text;
	return text == NULL ? nomem(err) : 0;
}

static int in_cluster_token(const char *dir, struct ku_config *c, struct err *err)
{
	char *path = ku_config_join(dir, "token");
	int r;

	if (path == NULL)
		return nomem(err);
	r = ku_config_read_token(path, &c->token, err);
	if (r < 0)
		free(path);
	else
		c->token_file = path;
	return r;
}

int ku_config_in_cluster(const struct ku_in_cluster *where, struct ku_config *ret, struct err *err)
{
	struct ku_in_cluster w = where != NULL ? *where : (struct ku_in_cluster){0};
	const char *dir = w.dir != NULL ? w.dir : ACCOUNT_DIR;
	struct ku_config c = {0};
	int r = in_cluster_server(&w, &c.server, err);

	if (r == 0)
		r = in_cluster_namespace(dir, &c.ns, err);
	if (r == 0)
		r = ku_config_pem_file("ca.crt", dir, "service account", &c.ca, err);
	if (r == 0)
		r = in_cluster_token(dir, &c, err);
	if (r < 0) {
		ku_config_fini(&c);
		return r;
	}
	*ret = c;
	return 0;
}

static void wipe(char **s, size_t len)
{
	if (*s != NULL)
		explicit_bzero(*s, len);
	free(*s);
	*s = NULL;
}

void ku_pem_fini(struct ku_pem *p)
{
	wipe(&p->data, p->len);
	free(p->path);
	*p = (struct ku_pem){0};
}

void ku_config_fini(struct ku_config *c)
{
	if (c == NULL)
		return;
	free(c->server);
	free(c->ns);
	free(c->tls_server_name);
	free(c->proxy_url);
	free(c->token_file);
	wipe(&c->token, c->token != NULL ? strlen(c->token) : 0);
	ku_pem_fini(&c->ca);
	ku_pem_fini(&c->cert);
	ku_pem_fini(&c->key);
	*c = (struct ku_config){0};
}

static bool copy_str(const char *s, char **ret)
{
	*ret = s != NULL ? strdup(s) : NULL;
	return s == NULL || *ret != NULL;
}

static bool copy_pem(const struct ku_pem *p, struct ku_pem *ret)
{
	if (p->data != NULL) {
		ret->data = malloc(p->len + 1);
		if (ret->data == NULL)
			return false;
		memcpy(ret->data, p->data, p->len);
		ret->len = p->len;
	}
	return copy_str(p->path, &ret->path);
}

int ku_config_copy(const struct ku_config *c, struct ku_config *ret, struct err *err)
{
	struct ku_config n = {.insecure = c->insecure};

	if (!copy_str(c->server, &n.server) || !copy_str(c->ns, &n.ns) ||
	    !copy_str(c->tls_server_name, &n.tls_server_name) ||
	    !copy_str(c->proxy_url, &n.proxy_url) || !copy_str(c->token, &n.token) ||
	    !copy_str(c->token_file, &n.token_file) || !copy_pem(&c->ca, &n.ca) ||
	    !copy_pem(&c->cert, &n.cert) || !copy_pem(&c->key, &n.key)) {
		ku_config_fini(&n);
		return nomem(err);
	}
	*ret = n;
	return 0;
}

#include "kube/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CONNECT_MS 10000L
#define STREAMS_MAX 250L /* of a connection; the server's own limit counts too */
#define KEEPALIVE_IDLE_S 15L
#define KEEPALIVE_STEP_S 5L
/* Data that the peer does not acknowledge for so long breaks the connection: what a half-open one
 * would otherwise carry is noticed here, for all streams on it. */
#define UNACKED_MS 20000U

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode global_result;

static void init_global(void)
{
	global_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* "https://host:port/prefix" with the host replaced by the name on the certificate, and the rules that
 * lead libcurl to the real host all the same. */
static int use_server_name(struct ku_transport *t, struct err *err)
{
	char *host = NULL, *port = NULL, *url = NULL, *rule = NULL;
	CURLU *u = curl_url();
	bool ok = u != NULL &&
		  curl_url_set(u, CURLUPART_URL, t->config.server, CURLU_PATH_AS_IS) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		  curl_url_set(u, CURLUPART_HOST, t->config.tls_server_name, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_URL, &url, CURLU_PATH_AS_IS) == CURLUE_OK;

	if (ok && asprintf(&rule, "%s:%s:%s:%s", t->config.tls_server_name, port, host, port) < 0)
		rule = NULL;
	if (ok && asprintf(&t->host_header, "Host: %s:%s", host, port) < 0)
		t->host_header = NULL;
	if (rule != NULL)
		t->connect_to = curl_slist_append(NULL, rule);
	if (ok) {
		size_t len = strlen(url);

		while (len > 0 && url[len - 1] == '/')
			len--;
		t->base = strndup(url, len);
	}
	free(rule);
	curl_free(host);
	curl_free(port);
	curl_free(url);
	curl_url_cleanup(u);
	if (!ok)
		return err_set(err, ERR_INVALID, "tls-server-name: \"%.200s\" is no host name",
			       t->config.tls_server_name);
	if (t->base == NULL || t->host_header == NULL || t->connect_to == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the transport");
	return 0;
}

static int init(struct ku_transport *t, const struct ku_config *config, const char *user_agent,
		struct err *err)
{
	const curl_version_info_data *v;
	bool changed;
	int r;

	pthread_once(&once, init_global);
	if (global_result != CURLE_OK)
		return err_set(err, ERR_IO, "libcurl: %s", curl_easy_strerror(global_result));
	v = curl_version_info(CURLVERSION_NOW);
	if ((v->features & CURL_VERSION_SSL) == 0)
		return err_set(err, ERR_IO, "libcurl has no TLS");
	r = ku_config_copy(config, &t->config, err);
	if (r == 0)
		r = ku_transport_reread(t, &changed, err);
	if (r < 0)
		return r;
	t->user_agent = strdup(user_agent != NULL ? user_agent : "tessera");
	if (t->user_agent == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the transport");
	if (t->config.tls_server_name != NULL)
		return use_server_name(t, err);
	t->base = strdup(t->config.server);
	return t->base == NULL ? err_set(err, ERR_NOMEM, "no memory for the transport") : 0;
}

int ku_transport_init(struct ku_transport *t, const struct ku_config *config,
		      const char *user_agent, bool http1, unsigned connections, struct err *err)
{
	int r;

	/* Without TLS nothing announces HTTP/2, and requests would wait for each other to find out. */
	*t = (struct ku_transport){
		.http1 = http1 || strncasecmp(config->server, "http://", 7) == 0,
		.connections = connections,
	};
	r = init(t, config, user_agent, err);
	if (r < 0)
		ku_transport_fini(t);
	return r;
}

void ku_transport_fini(struct ku_transport *t)
{
	ku_config_fini(&t->config);
	free(t->base);
	free(t->host_header);
	free(t->user_agent);
	curl_slist_free_all(t->connect_to);
	*t = (struct ku_transport){0};
}

CURLM *ku_transport_multi(const struct ku_transport *t)
{
	unsigned most = !t->http1 && t->connections > KU_HTTP2_CONNECTIONS ? KU_HTTP2_CONNECTIONS
									   : t->connections;
	CURLM *m = curl_multi_init();

	if (m == NULL)
		return NULL;
	if (curl_multi_setopt(m, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)most) != CURLM_OK ||
	    curl_multi_setopt(m, CURLMOPT_MAXCONNECTS, (long)t->connections) != CURLM_OK ||
	    curl_multi_setopt(m, CURLMOPT_MAX_CONCURRENT_STREAMS, STREAMS_MAX) != CURLM_OK ||
	    curl_multi_setopt(m, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX) != CURLM_OK) {
		curl_multi_cleanup(m);
		return NULL;
	}
	return m;
}

void ku_transport_widen(const struct ku_transport *t, CURLM *m)
{
	curl_multi_setopt(m, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)t->connections);
}

static int tune_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
	unsigned unacked = UNACKED_MS;
	int count = 3;

	(void)ctx;
	(void)purpose;
	/* Without these the connection works all the same. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked, sizeof(unacked));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	return CURL_SOCKOPT_OK;
}

static CURLcode set_pem(CURL *h, const struct ku_pem *p, CURLoption path, CURLoption blob)
{
	struct curl_blob b = {.data = p->data, .len = p->len, .flags = CURL_BLOB_NOCOPY};

	if (p->path != NULL)
		return curl_easy_setopt(h, path, p->path);
	return p->data != NULL ? curl_easy_setopt(h, blob, &b) : CURLE_OK;
}

/* Reads the file of p, where it has one, into data; *changed becomes true when it held something else. */
static int reread(struct ku_pem *p, bool *changed, struct err *err)
{
	struct ku_pem now;
	int r;

	if (p->path == NULL)
		return 0;
	r = ku_config_read_pem(p->path, &now, err);
	if (r < 0)
		return r;
	if (p->data != NULL && p->len == now.len && memcmp(p->data, now.data, now.len) == 0) {
		ku_pem_fini(&now);
		return 0;
	}
	*changed = true;
	now.path = p->path;
	p->path = NULL;
	ku_pem_fini(p);
	*p = now;
	return 0;
}

int ku_transport_reread(struct ku_transport *t, bool *ret_changed, struct err *err)
{
	int r;

	*ret_changed = false;
	r = reread(&t->config.cert, ret_changed, err);
	return r < 0 ? r : reread(&t->config.key, ret_changed, err);
}

static CURLcode set_blob(CURL *h, const struct ku_pem *p, CURLoption blob)
{
	struct curl_blob b = {.data = p->data, .len = p->len, .flags = CURL_BLOB_COPY};

	return p->data != NULL ? curl_easy_setopt(h, blob, &b) : CURLE_OK;
}

bool ku_transport_identify(const struct ku_transport *t, CURL *h)
{
	return set_blob(h, &t->config.cert, CURLOPT_SSLCERT_BLOB) == CURLE_OK &&
	       set_blob(h, &t->config.key, CURLOPT_SSLKEY_BLOB) == CURLE_OK;
}

static bool set_tls(CURL *h, const struct ku_transport *t)
{
	const struct ku_config *c = &t->config;

	return curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, c->insecure ? 0L : 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, c->insecure ? 0L : 2L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_CA_CACHE_TIMEOUT, 60L) == CURLE_OK &&
	       set_pem(h, &c->ca, CURLOPT_CAINFO, CURLOPT_CAINFO_BLOB) == CURLE_OK &&
	       ku_transport_identify(t, h);
}

static bool set_connection(CURL *h, const struct ku_transport *t)
{
	long version = t->http1 ? CURL_HTTP_VERSION_1_1 : CURL_HTTP_VERSION_2TLS;

	return curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_HTTP_VERSION, version) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_PIPEWAIT, t->http1 ? 0L : 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_TCP_NODELAY, 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_STEP_S) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, tune_socket) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_USERAGENT, t->user_agent) == CURLE_OK &&
	       curl_easy_setopt(h, CURLOPT_CONNECT_TO, t->connect_to) == CURLE_OK &&
	       (t->config.proxy_url == NULL ||
		curl_easy_setopt(h, CURLOPT_PROXY, t->config.proxy_url) == CURLE_OK);
}

CURL *ku_transport_easy(const struct ku_transport *t)
{
	CURL *h = curl_easy_init();

	if (h != NULL && (!set_tls(h, t) || !set_connection(h, t))) {
		curl_easy_cleanup(h);
		return NULL;
	}
	return h;
}

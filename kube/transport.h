/* What is set on libcurl's handles: addresses, TLS, time-outs of connections. Not thread-safe. */
#ifndef TESSERA_KUBE_TRANSPORT_H
#define TESSERA_KUBE_TRANSPORT_H

#include <stdbool.h>

#include <curl/curl.h>

#include "base/err.h"
#include "kube/config.h"

struct ku_transport {
	struct ku_config
		config; /* owned; data of cert and key is what their files held at the last look */
	char *base;     /* what paths are put behind */
	struct curl_slist *connect_to; /* with a TLS server name: where that host really is */
	char *host_header;             /* likewise: "Host: ..." */
	char *user_agent;
	bool http1;
	unsigned connections; /* at most */
};

/* Over HTTP/2 so many connections carry hundreds of requests; libcurl would open one for each request
 * that finds all streams taken. */
#define KU_HTTP2_CONNECTIONS 8U

/* Copies config and reads certificate and key. ERR_NOMEM, ERR_INVALID, ERR_IO (libcurl does not start or has no TLS). */
int ku_transport_init(struct ku_transport *t, const struct ku_config *config,
		      const char *user_agent, bool http1, unsigned connections, struct err *err);
void ku_transport_fini(struct ku_transport *t);

/* A multi handle with the connections that HTTP/2 needs, or all where there is only HTTP/1.1. NULL: no
 * memory. */
CURLM *ku_transport_multi(const struct ku_transport *t);
/* The server answered by HTTP/1.1: all connections may be opened from now on. */
void ku_transport_widen(const struct ku_transport *t, CURLM *m);
/* An easy handle with everything set that is the same for all requests: verification, connection
 * time-outs, keepalive, no redirects. NULL: no memory, or an option that libcurl refuses. */
CURL *ku_transport_easy(const struct ku_transport *t);

/* Reads the files of client certificate and key again. An API server looks at the certificate of a
 * connection with each request, so that one which has expired is refused on connections that are open,
 * whatever the file holds by then: after a change, handles that were identified anew share no connection
 * with the old ones. After an error both stay as they were or are half new. ku_config_read_pem(). */
int ku_transport_reread(struct ku_transport *t, bool *ret_changed, struct err *err);
/* Sets certificate and key on a handle. False: no memory. */
bool ku_transport_identify(const struct ku_transport *t, CURL *h);

#endif

/* What is set on libcurl's handles: addresses, TLS, time-outs of connections. Not thread-safe. */
#ifndef TESSERA_KUBE_TRANSPORT_H
#define TESSERA_KUBE_TRANSPORT_H

#include <stdbool.h>

#include <curl/curl.h>

#include "base/err.h"
#include "kube/config.h"

struct ku_transport {
	struct ku_config config;       /* owned */
	char *base;                    /* what paths are put behind */
	struct curl_slist *connect_to; /* with a TLS server name: where that host really is */
	char *host_header;             /* likewise: "Host: ..." */
	char *user_agent;
	bool http1;
	unsigned connections; /* at most */
};

/* Over HTTP/2 so many connections carry hundreds of requests; libcurl would open one for each request
 * that finds all streams taken. */
#define KU_HTTP2_CONNECTIONS 8U

/* Copies config. ERR_NOMEM, ERR_INVALID, ERR_IO (libcurl does not start or has no TLS). */
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

#endif

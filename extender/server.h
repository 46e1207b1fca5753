/* The HTTP server: libmicrohttpd with epoll and a pool of threads. Method, path, type and size are
 * checked before a body is read; what a kube-scheduler must see is always HTTP 200. */
#ifndef TESSERA_EXTENDER_SERVER_H
#define TESSERA_EXTENDER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/log.h"
#include "extender/admit.h"
#include "extender/api.h"
#include "extender/metrics.h"
#include "extender/service.h"
#include "extender/tls.h"

struct ex_server;

struct ex_server_config {
	const char *listen; /* "ADDR:PORT"; port 0: any */
	unsigned threads;
	size_t max_body;
	unsigned score_rest;        /* ex_wire_prioritize() */
	struct ex_service *service; /* borrowed, as the others */
	struct ex_api *api;         /* NULL: no API server, binds go to the journal */
	struct ex_tls *tls;         /* NULL: plain HTTP */
	const char *scheduler;      /* that /mutate sets where set_scheduler says so */
	enum ex_set_scheduler set_scheduler;
	bool refuse_privileged; /* by /validate */
	struct ex_metrics *metrics;
	struct log *log; /* may be NULL */
};

/* Serves until ex_server_stop(). ERR_INVALID: an address that cannot be; ERR_IO, ERR_NOMEM. */
int ex_server_start(const struct ex_server_config *cfg, struct ex_server **ret, struct err *err);
/* "http://127.0.0.1:8080", with the port that was taken. */
const char *ex_server_url(const struct ex_server *s);
/* Accepts nothing more, lets the requests under way finish (10 s at most), frees. NULL is allowed. */
void ex_server_stop(struct ex_server *s);

#endif

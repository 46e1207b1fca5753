/* The extender's model on a fake API server with a memory (fake_cluster.h), for tests of
 * extender/api*.c. */
#ifndef TESSERA_TEST_API_FIXTURE_H
#define TESSERA_TEST_API_FIXTURE_H

#include <pthread.h>

#include "extender/extender.h"
#include "test/lib/fake_cluster.h"

struct xa {
	struct fake_cluster *c;
	struct ku_config kube;
	struct ex_api_config cfg; /* may be changed before xa_open() */
	struct ex_service *s;
	struct ex_api *api;
	struct ex_scratch scratch;
};

/* The server, empty; without leader election. */
void xa_init(struct xa *x);
/* Service and api; waits until it is ready, where wait. */
void xa_open(struct xa *x, bool wait);
/* Only service and api, to be opened anew: a restart. What is booked is recounted. */
void xa_shut(struct xa *x);
void xa_fini(struct xa *x);
void xa_check(struct xa *x);

/* A bind that is waited for. */
struct xa_bind {
	struct ex_api_waiter w;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
	int rc;
	struct err err;
};
void xa_bind_begin(struct xa *x, struct xa_bind *b, const char *pod, const char *uid,
		   const char *node);
/* The error, "" = bound; valid as long as *b. */
const char *xa_bind_end(struct xa_bind *b);
bool xa_bind_is_done(struct xa_bind *b);
/* Both; in a buffer of the thread. */
const char *xa_bind(struct xa *x, const char *pod, const char *uid, const char *node);

/* Asks filter about the pod (of namespace ns); the reply, valid until the next call. */
const char *xa_filter(struct xa *x, const char *pod, const char *uid, const char *annotations,
		      const char *names);

/* MiB that are given away of a GPU, -1: it is not known. */
int xa_booked(struct xa *x, const char *gpu);
bool xa_fenced(struct xa *x, const char *node);
bool xa_pod_known(struct xa *x, const char *uid);
/* Wait for it, 30 s at most: what comes by a watch comes when it comes. */
bool xa_wait_booked(struct xa *x, const char *gpu, int mib);
/* The watch has told of the pod as it was bound. */
bool xa_wait_observed(struct xa *x, const char *uid);
bool xa_wait_fenced(struct xa *x, const char *node, bool fenced);
bool xa_wait_ready(struct xa *x, bool ready);
/* Until filter's reply has the text, or the reason of not being ready has. */
bool xa_wait_filter(struct xa *x, const char *pod, const char *uid, const char *annotations,
		    const char *names, const char *text);
bool xa_wait_why(struct xa *x, const char *text);
void xa_breathe(void); /* one step of waiting */
bool xa_wait_unsettled(struct xa *x, size_t count);
/* The reason of not being ready, "" = is; valid until the next call. */
const char *xa_why(struct xa *x);

#endif

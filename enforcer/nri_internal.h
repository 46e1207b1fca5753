/* Shared by the two files of the connection; not for others. */
#ifndef TESSERA_ENFORCER_NRI_INTERNAL_H
#define TESSERA_ENFORCER_NRI_INTERNAL_H

#include <pthread.h>

#include "base/rng.h"
#include "enforcer/nri.h"

/* A call on its way through the second thread. */
struct job {
	struct job *next;
	struct en_nri_request *request; /* NULL once it is handed to the handler */
	enum en_nri_method method;
	uint32_t stream;
	uint64_t connection; /* of which it came */
	bool more;           /* of a Synchronize */
	bool leaves;         /* nothing is done for its container anyway */
	int64_t start_us, deadline_us;
	bool answered; /* late, by the first thread; under the lock */
	bool done;     /* by the second thread; under the lock */
	struct en_nri_reply reply;
	char id[129]; /* of the container, for CREATE */
};

struct en_nri {
	struct en_nri_options o;
	struct en_nri_handler h;
	pthread_t io_thread, work_thread;
	struct en_pulse *pulse; /* of the second thread; NULL: none */
	int wake_fd;            /* of the first thread */
	unsigned threads;

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t work;  /* something to do for the second thread */
	struct job *jobs;     /* not done, or done and not collected; in order */
	bool stopping;
	uint64_t connection; /* the one in use; 0 = none */
	struct en_nri_figures figures;

	/* of the first thread */
	struct rng rng;
	struct en_nri_session *session;
	uint64_t last_connection;
	bool no_validate; /* the runtime hung up at Configure */
};

int64_t nri_now_us(void);
void nri_wake(struct en_nri *n); /* the first thread, from its poll */

/* nri_jobs.c. The second thread: */
void *nri_work_loop(void *ctx);

/* The first thread. A call of the session becomes a job. */
int nri_on_request(void *ctx, struct en_nri_request *take_r, struct err *err);
/* Answers what is done or late. */
int nri_jobs_collect(struct en_nri *n, struct err *err);
/* Milliseconds until the next deadline; -1: none. */
int nri_jobs_wait_ms(struct en_nri *n);
/* The connection is gone: drops what nobody has begun, and what is done. */
void nri_jobs_drop(struct en_nri *n);
void nri_jobs_free(struct en_nri *n); /* all; when no thread is left */
/* The last part of Synchronize was carried out. */
void nri_note_synchronized(struct en_nri *n);

#endif

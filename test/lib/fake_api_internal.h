/* Shared by fake_api.c (the server) and fake_api_script.c (what tests tell and ask it). */
#ifndef TESSERA_TEST_FAKE_API_INTERNAL_H
#define TESSERA_TEST_FAKE_API_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include <microhttpd.h>

#include "test/lib/fake_api.h"

struct rule {
	struct rule *next;
	char *method, *path, *query, *body, *headers;
	int times;
	struct fake_reply r;
};

struct seen {
	struct seen *next;
	struct fake_request rq; /* its strings are these: */
	char *method, *path, *query, *token, *type, *body;
};

struct fake_stream {
	struct fake_stream *next;
	struct fake_api *api;
	struct part {
		struct part *next;
		size_t len, at;
		char data[];
	} * first, **last;
	bool ended;
	enum fake_end how;
};

struct fake_api {
	struct MHD_Daemon *daemon;
	char url[64];
	char *cert, *key;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stopping;
	struct rule *rules;
	struct seen *seen, **seen_last;
	struct fake_stream *streams;
	unsigned connections;
	fake_handler_fn handler;
	void *handler_ctx;
};

void *fake_must(void *p);      /* p, or the end */
char *fake_dup(const char *s); /* NULL stays NULL */
void fake_deadline(struct timespec *t, int64_t ms);

#endif

/* A fake API server with a client on it, for tests of kube/. */
#ifndef TESSERA_TEST_KUBE_FIXTURE_H
#define TESSERA_TEST_KUBE_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/buf.h"
#include "kube/client.h"
#include "kube/reflector.h"
#include "test/lib/fake_api.h"
#include "test/lib/fake_clock.h"

struct kube_fixture {
	struct fake_api *api;
	struct ku_client *client;
	struct fake_clock clock; /* in use with virtual_time */
	struct ku_config config;
	struct ku_client_options options; /* may be changed before kube_fixture_start() */
	bool virtual_time;
	bool patient; /* kube_fixture_run() stands still while a request is in flight: where it
		       * matters how long an answer took */
};

/* Server and configuration (plain HTTP, no token); the client comes with _start(). */
void kube_fixture_init(struct kube_fixture *f);
void kube_fixture_start(struct kube_fixture *f);
void kube_fixture_fini(struct kube_fixture *f);
/* Moves the virtual time step by step until done() holds; 30 s of real time at most, then false. */
bool kube_fixture_run(struct kube_fixture *f, int64_t step_ms, bool (*done)(void *ctx), void *ctx);

/* What callbacks tell, one line each, in order; read by the test's thread. */
struct journal {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct buf text;
	atomic_int refuse; /* the reflector's on_object fails so often */
};
void journal_init(struct journal *j);
void journal_fini(struct journal *j);
void journal_add(struct journal *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Waits until the journal holds the text; 30 s at most, then false. */
bool journal_wait(struct journal *j, const char *text);
bool journal_has(struct journal *j, const char *text);
/* How often it holds the text. */
unsigned journal_count(struct journal *j, const char *text);
/* A copy, to be freed. */
char *journal_text(struct journal *j);

/* A reflector's callbacks as lines: "begin", "ADDED <uid> <rv>", "gone <uid>", "synced <rv>",
 * "problem <text>". */
struct ku_reflector_handler kube_journal_handler(struct journal *j);
/* Handler of a server (fake_api_handle): watches without a rule are open and quiet. */
void kube_quiet_watch(void *ctx, const struct fake_request *rq, struct fake_reply *ret);
/* A list of the uids in words ("a b c"), each at the list's version; more: its continue token or
 * NULL. An event. Both valid until the next call. */
const char *kube_list_text(const char *rv, const char *more, const char *uids);
const char *kube_event_text(const char *type, const char *uid, const char *rv);
/* A string of metadata; "-" where there is none. */
const char *kube_meta(const cJSON *obj, const char *name);

#endif

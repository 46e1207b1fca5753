/* One reflector of pods on a fake API server, its callbacks in a journal, time as the test says. */
#ifndef TESSERA_TEST_REFLECTOR_FIXTURE_H
#define TESSERA_TEST_REFLECTOR_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kube/reflector.h"
#include "test/lib/kube_fixture.h"

#define PODS "/api/v1/pods"
#define GONE_STATUS                                                                                \
	"{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old resource " \
	"version: 1 (44930)\"}"

static struct kube_fixture f;
static struct journal j;
static struct ku_reflector *r;
static struct ku_reflector_options o;

static inline void init(void)
{
	kube_fixture_init(&f);
	fake_api_handle(f.api, kube_quiet_watch, NULL);
	journal_init(&j);
	o = (struct ku_reflector_options){.path = PODS, .handler = kube_journal_handler(&j)};
}

static inline void fini(void)
{
	ku_reflector_free(r);
	kube_fixture_fini(&f);
	journal_fini(&j);
}

static inline void start(void)
{
	struct err err = ERR_INIT;

	f.virtual_time = true;
	kube_fixture_start(&f);
	cr_assert_eq(ku_reflector_new(f.client, &o, &r, &err), 0, "%s", err.msg);
}

static inline void answer_list(const char *rv, const char *more, const char *uids)
{
	fake_api_answer(f.api, "GET", PODS, 200, kube_list_text(rv, more, uids));
}

static const char *awaited;

static inline bool has_awaited(void *ctx)
{
	(void)ctx;
	return journal_has(&j, awaited);
}

/* Time passes until the journal holds it. */
static inline bool pass_until(const char *text)
{
	awaited = text;
	return kube_fixture_run(&f, 20, has_awaited, NULL);
}

static inline void expect_journal(const char *want)
{
	char *text = journal_text(&j);

	cr_expect_str_eq(text, want);
	free(text);
}

static inline const struct fake_request *request(unsigned n)
{
	const struct fake_request *rq = fake_api_wait(f.api, "GET", PODS, n);

	cr_assert_not_null(rq, "request %u did not come", n);
	return rq;
}

#endif

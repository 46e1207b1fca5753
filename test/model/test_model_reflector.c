/* A reflector against a server with real state, random changes and random faults: whatever is cut, lost,
 * repeated or compacted away, in the end the copy equals the original. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/quantity.h"
#include "base/rng.h"
#include "kube/object.h"
#include "kube/reflector.h"
#include "test/lib/kube_fixture.h"

enum { OBJECTS = 40, EVENTS = 20000, KEEP = 60, STEPS = 3000 };

struct change {
	char type; /* A, M, D */
	unsigned object, serial;
};

/* Object i lives as serial[i] (its uid is "i-serial"), 0 = not there; versions[i] is its version. */
static struct store {
	pthread_mutex_t lock;
	struct rng rng;
	bool calm; /* no more faults */
	unsigned rv, compacted;
	unsigned serial[OBJECTS], version[OBJECTS];
	unsigned snap_rv, snap_serial[OBJECTS], snap_version[OBJECTS]; /* what pages show */
	struct change history[EVENTS];                                 /* [rv] */
	unsigned lists, watches, faults;
} st;

static struct kube_fixture f;

static bool fault(unsigned one_in)
{
	bool hit = !st.calm && rng_below(&st.rng, one_in) == 0;

	st.faults += hit;
	return hit;
}

static void change_something(void)
{
	unsigned i = (unsigned)rng_below(&st.rng, OBJECTS);
	char type = 'A';

	pthread_mutex_lock(&st.lock);
	if (st.serial[i] != 0)
		type = rng_below(&st.rng, 3) == 0 ? 'D' : 'M';
	st.rv++;
	if (type == 'A')
		st.serial[i] = st.rv; /* the same name, another uid */
	st.history[st.rv] = (struct change){.type = type, .object = i, .serial = st.serial[i]};
	st.version[i] = st.rv;
	if (type == 'D')
		st.serial[i] = 0;
	pthread_mutex_unlock(&st.lock);
}

static void put_object(struct buf *b, unsigned i, unsigned serial, unsigned rv)
{
	buf_printf(b,
		   "{\"metadata\":{\"name\":\"o%u\",\"uid\":\"%u-%u\",\"resourceVersion\":\"%u\","
		   "\"managedFields\":[{\"x\":\"}]\"}]},\"spec\":{\"v\":%u}}",
		   i, i, serial, rv, rv);
}

/* Pages of the state at the first page; of an older state than the last list's they have expired. */
static void serve_list(const struct fake_request *rq, struct fake_reply *ret)
{
	const char *token = strstr(rq->query, "continue=");
	unsigned i = 0, n = 0, rv = st.rv;
	struct buf b = BUF_INIT;

	if (token != NULL &&
	    sscanf(token, "continue=%u-%u", &rv, &i) != 2) /* NOLINT(cert-err34-c) */
		abort();
	st.lists++;
	if (token == NULL) {
		st.snap_rv = st.rv;
		memcpy(st.snap_serial, st.serial, sizeof(st.serial));
		memcpy(st.snap_version, st.version, sizeof(st.version));
	} else if (rv != st.snap_rv) {
		*ret = (struct fake_reply){.status = 410};
		return;
	}
	if ((token != NULL && fault(8)) || fault(15)) {
		static const int codes[] = {410, 429, 500, 504};

		*ret = (struct fake_reply){.status = codes[rng_below(&st.rng, 4)]};
		return;
	}
	buf_puts(&b, "{\"items\":[");
	for (; i < OBJECTS && n < 7; i++) {
		if (st.snap_serial[i] == 0)
			continue;
		buf_puts(&b, n++ > 0 ? "," : "");
		put_object(&b, i, st.snap_serial[i], st.snap_version[i]);
	}
	buf_printf(&b, "],\"metadata\":{\"resourceVersion\":\"%u\"", rv);
	if (i < OBJECTS)
		buf_printf(&b, ",\"continue\":\"%u-%u\"", rv, i);
	buf_puts(&b, "}}");
	*ret = (struct fake_reply){.status = 200, .take_body = buf_take(&b), .chunk = 100};
	if (fault(10)) {
		ret->take_body[strlen(ret->take_body) / 2] = '\0';
		ret->end = FAKE_END_RESET;
	}
}

/* The stream from a version: what is there, then the end, early or by a fault. */
static void serve_watch(const struct fake_request *rq, struct fake_reply *ret)
{
	const char *from = strstr(rq->query, "resourceVersion=");
	struct buf b = BUF_INIT;
	unsigned rv;

	if (from == NULL || sscanf(from, "resourceVersion=%u", &rv) != 1) /* NOLINT(cert-err34-c) */
		abort();
	st.watches++;
	*ret = (struct fake_reply){.status = 200, .chunk = 1 + (size_t)rng_below(&st.rng, 300)};
	if (rv < st.compacted && rng_below(&st.rng, 2) == 0) {
		ret->status = 410;
		return;
	}
	if (fault(12)) {
		ret->status = rng_below(&st.rng, 2) == 0 ? 429 : 0;
		ret->end = FAKE_END_RESET;
		return;
	}
	if (rv < st.compacted)
		buf_puts(&b,
			 "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n");
	while (rv >= st.compacted && rv < st.rv) {
		const struct change *c = &st.history[++rv];
		const char *type = c->type == 'A'   ? "ADDED"
				   : c->type == 'M' ? "MODIFIED"
						    : "DELETED";

		buf_printf(&b, "{\"type\":\"%s\",\"object\":", type);
		put_object(&b, c->object, c->serial, rv);
		buf_puts(&b, "}\n");
		if (fault(30))
			break;
	}
	if (fault(3))
		buf_printf(
			&b,
			"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"%u\"}}}\n",
			rv);
	if (fault(6)) { /* cut anywhere */
		size_t len = b.len;

		ret->take_body = buf_take(&b);
		if (ret->take_body != NULL && len > 0)
			ret->take_body[rng_below(&st.rng, len)] = '\0';
		ret->end = FAKE_END_RESET;
		return;
	}
	if (fault(25))
		ret->end = FAKE_END_SILENT;
	ret->take_body = buf_take(&b);
}

static void serve(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)ctx;
	pthread_mutex_lock(&st.lock);
	if (fake_query_has(rq, "watch=1"))
		serve_watch(rq, ret);
	else
		serve_list(rq, ret);
	pthread_mutex_unlock(&st.lock);
}

/* ---- the copy ---- */

static struct copy {
	pthread_mutex_t lock;
	unsigned serial[OBJECTS], version[OBJECTS];
	unsigned wrong; /* callbacks that contradict what was said before */
	char what[200];
} copy;

static void wrong(const char *what, unsigned i)
{
	if (copy.wrong++ == 0)
		snprintf(copy.what, sizeof(copy.what), "%s, object %u", what, i);
}

static int on_object(void *ctx, enum ku_change change, const cJSON *obj, struct err *err)
{
	unsigned i, serial;
	int64_t rv;

	(void)ctx;
	if (sscanf(kube_meta(obj, "uid"), "%u-%u", &i, &serial) != 2 || i >= OBJECTS || /* NOLINT */
	    integer_parse(kube_meta(obj, "resourceVersion"), 1, EVENTS, &rv, err) < 0)
		abort();
	if (ku_json_get(ku_json_get(obj, "metadata"), "managedFields") != NULL)
		abort();
	pthread_mutex_lock(&copy.lock);
	if (change == KU_ADDED && copy.serial[i] == serial)
		wrong("added twice", i);
	if (change == KU_MODIFIED && copy.serial[i] != serial)
		wrong("modified but not added", i);
	if (change != KU_DELETED) {
		copy.serial[i] = serial;
		copy.version[i] = (unsigned)rv;
	} else if (copy.serial[i] == serial) {
		copy.serial[i] = 0;
	}
	pthread_mutex_unlock(&copy.lock);
	return 0;
}

static void on_gone(void *ctx, const char *uid)
{
	unsigned i, serial;

	(void)ctx;
	if (sscanf(uid, "%u-%u", &i, &serial) != 2 || i >= OBJECTS) /* NOLINT(cert-err34-c) */
		abort();
	pthread_mutex_lock(&copy.lock);
	if (copy.serial[i] == serial)
		copy.serial[i] = 0;
	pthread_mutex_unlock(&copy.lock);
}

static bool equal(void *ctx)
{
	bool same = true;

	(void)ctx;
	pthread_mutex_lock(&st.lock);
	pthread_mutex_lock(&copy.lock);
	for (unsigned i = 0; i < OBJECTS; i++)
		same &= st.serial[i] == copy.serial[i] &&
			(st.serial[i] == 0 || st.version[i] == copy.version[i]);
	pthread_mutex_unlock(&copy.lock);
	pthread_mutex_unlock(&st.lock);
	return same;
}

static void run_seed(uint64_t seed)
{
	static const char *const prune[] = {"metadata.managedFields", NULL};
	struct ku_reflector_options o = {
		.path = "/api/v1/pods",
		.prune = prune,
		.handler = {.on_object = on_object, .on_gone = on_gone},
	};
	struct ku_reflector_stats stats;
	struct ku_reflector *r;
	struct err err = ERR_INIT;

	memset(&st, 0, sizeof(st));
	memset(&copy, 0, sizeof(copy));
	pthread_mutex_init(&st.lock, NULL);
	pthread_mutex_init(&copy.lock, NULL);
	rng_init(&st.rng, seed);
	kube_fixture_init(&f);
	fake_api_handle(f.api, serve, NULL);
	f.virtual_time = true;
	kube_fixture_start(&f);
	cr_assert_eq(ku_reflector_new(f.client, &o, &r, &err), 0, "%s", err.msg);
	for (int step = 0; step < STEPS; step++) {
		struct timespec pause = {.tv_nsec = 200000};

		change_something();
		if (step % 37 == 0) {
			pthread_mutex_lock(&st.lock);
			st.compacted = st.rv > KEEP ? st.rv - KEEP : 0;
			pthread_mutex_unlock(&st.lock);
		}
		if (step % 500 == 0)
			ku_reflector_relist(r);
		fake_clock_add(&f.clock, 500, f.client);
		nanosleep(&pause, NULL);
	}
	pthread_mutex_lock(&st.lock);
	st.calm = true;
	pthread_mutex_unlock(&st.lock);
	cr_expect(kube_fixture_run(&f, 500, equal, NULL), "seed %llu: the copy differs",
		  (unsigned long long)seed);
	cr_expect_eq(copy.wrong, 0, "seed %llu: %s", (unsigned long long)seed, copy.what);
	ku_reflector_get_stats(r, &stats);
	ku_reflector_free(r);
	kube_fixture_fini(&f);
	fprintf(stderr,
		"seed %llu: %u lists, %u watches, %u faults; %llu events, %llu gone, %llu expired, "
		"%llu dead\n",
		(unsigned long long)seed, st.lists, st.watches, st.faults,
		(unsigned long long)stats.events, (unsigned long long)stats.gone,
		(unsigned long long)stats.expired, (unsigned long long)stats.dead_watches);
	cr_expect_gt(st.faults, 50);
	cr_expect_gt(stats.events, 100);
	cr_expect_gt(stats.gone, 0);
}

Test(model_reflector, copy_equals_original)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run_seed(seed);
}

/* Leadership: the rules alone in a simulated cluster, and the whole against a fake server, both under a
 * virtual clock. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/lease.h"
#include "kube/lease_core.h"
#include "kube/object.h"
#include "test/lib/kube_fixture.h"

/* ---- the rules, simulated: replicas with clocks of their own, a server that is slow, loses answers
 * and is away, replicas that stand still; true time in microseconds ---- */

enum { REPLICAS = 3 };

struct op { /* a request on its way */
	bool on, done;
	enum ku_lease_ask ask;
	int64_t apply_at, answer_at; /* answer_at -1: it is lost */
	int64_t sent_local;
	uint64_t version; /* precondition of an update */
	struct ku_lease_record write, read;
	enum ku_lease_came came;
	uint64_t read_version;
};

struct replica {
	struct ku_lease_core core;
	struct rng rng;
	struct op op;
	int64_t offset, rate_ppm; /* of its clock */
	int64_t asleep_until;
	uint64_t version; /* of the object as it knows it */
	bool was_leading;
	unsigned starts;
};

struct sim {
	struct rng rng;
	int64_t now;
	bool exists;
	uint64_t version;
	struct ku_lease_record record;
	bool down, calm; /* calm: no answer is lost or late */
	int64_t down_until;
	struct replica r[REPLICAS];
	unsigned starts, takeovers, writes;
	char last_leader[KU_LEASE_NAME_CAP];
};

static int64_t local(const struct replica *r, int64_t now)
{
	return r->offset + now + now / 1000000 * r->rate_ppm;
}

static void sim_init(struct sim *s, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	rng_init(&s->rng, seed);
	for (int i = 0; i < REPLICAS; i++) {
		struct replica *r = &s->r[i];

		rng_init(&r->rng, seed * 31 + (uint64_t)i);
		snprintf(r->core.identity, sizeof(r->core.identity), "replica-%d", i);
		r->core.duration_us = 15000000;
		r->core.renew_us = 10000000;
		r->core.retry_us = 2000000;
		r->offset = (int64_t)rng_below(&s->rng, 1000000000000);
		r->rate_ppm = (int64_t)rng_below(&s->rng, 20001) - 10000; /* 1 % fast or slow */
	}
}

static void send_op(struct sim *s, struct replica *r, enum ku_lease_ask ask)
{
	struct op *op = &r->op;
	uint64_t fate = s->calm ? 0 : rng_below(&s->rng, 100);
	bool acquire;

	*op = (struct op){
		.on = true, .ask = ask, .sent_local = local(r, s->now), .version = r->version};
	if (ask != KU_LEASE_GET) {
		ku_lease_core_fill(&r->core, &op->write, &acquire);
		snprintf(op->write.renewed, sizeof(op->write.renewed), "w%u", ++s->writes);
	}
	op->came = KU_LEASE_FAILED;
	op->apply_at = s->now + (int64_t)rng_below(&s->rng, fate < 90 ? 50000 : 6000000);
	op->answer_at = fate % 10 == 3 ? -1 : op->apply_at + (int64_t)rng_below(&s->rng, 50000);
}

static void apply_op(struct sim *s, struct op *op)
{
	op->done = true;
	if (s->down)
		return;
	if (op->ask == KU_LEASE_GET) {
		op->came = s->exists ? KU_LEASE_DONE : KU_LEASE_ABSENT;
	} else if (op->ask == KU_LEASE_CREATE && s->exists) {
		op->came = KU_LEASE_CONFLICT;
	} else if (op->ask == KU_LEASE_UPDATE && !s->exists) {
		op->came = KU_LEASE_ABSENT;
	} else if (op->ask == KU_LEASE_UPDATE && op->version != s->version) {
		op->came = KU_LEASE_CONFLICT;
	} else {
		s->exists = true;
		s->record = op->write;
		s->version++;
		op->came = KU_LEASE_DONE;
	}
	op->read = s->record;
	op->read_version = s->version;
}

static void answer_op(struct sim *s, struct replica *r)
{
	struct op *op = &r->op;
	int64_t now = local(r, s->now);

	op->on = false;
	if (op->answer_at < 0)
		op->came = KU_LEASE_FAILED;
	if (op->came == KU_LEASE_DONE)
		r->version = op->read_version;
	if (op->ask == KU_LEASE_GET)
		ku_lease_core_got(&r->core, now, op->came, &op->read);
	else
		ku_lease_core_put(&r->core, op->sent_local, now, op->came, &op->read);
}

static bool leads(const struct sim *s, const struct replica *r)
{
	return r->core.leading && local(r, s->now) < r->core.until_us;
}

static void step_replica(struct sim *s, struct replica *r)
{
	struct op *op = &r->op;
	enum ku_lease_ask ask;
	bool lead;

	/* The server does not know that a replica sleeps. */
	if (op->on && !op->done && s->now >= op->apply_at)
		apply_op(s, op);
	if (s->now < r->asleep_until)
		return;
	/* A lost answer ends by its deadline: half of renew. */
	if (op->on && op->done &&
	    s->now >= (op->answer_at < 0 ? op->apply_at + 5000000 : op->answer_at))
		answer_op(s, r);
	ask = ku_lease_core_step(&r->core, local(r, s->now), &r->rng);
	if (ask != KU_LEASE_WAIT)
		send_op(s, r, ask);
	lead = r->core.leading;
	if (lead && !r->was_leading) {
		s->starts++;
		s->takeovers += strcmp(s->last_leader, r->core.identity) != 0;
		snprintf(s->last_leader, sizeof(s->last_leader), "%s", r->core.identity);
	}
	r->was_leading = lead;
}

static void disturb(struct sim *s)
{
	if (s->down && s->now >= s->down_until)
		s->down = false;
	if (rng_below(&s->rng, 4000) == 0) {
		s->down = true;
		s->down_until = s->now + (int64_t)rng_below(&s->rng, 40000000);
	}
	for (int i = 0; i < REPLICAS; i++) {
		if (rng_below(&s->rng, 6000) == 0)
			s->r[i].asleep_until = s->now + (int64_t)rng_below(&s->rng, 60000000);
	}
}

Test(kube_lease_core, never_two_leaders)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct sim s;
		unsigned led = 0;

		sim_init(&s, seed);
		for (int step = 0; step < 100000; step++) {
			int leaders = 0;

			s.now += 10000;
			disturb(&s);
			for (int i = 0; i < REPLICAS; i++)
				step_replica(&s, &s.r[i]);
			for (int i = 0; i < REPLICAS; i++)
				leaders += leads(&s, &s.r[i]);
			cr_assert_leq(leaders, 1, "seed %llu, step %d: %d leaders",
				      (unsigned long long)seed, step, leaders);
			led += leaders == 1;
		}
		cr_expect_gt(s.takeovers, 2, "seed %llu", (unsigned long long)seed);
		cr_expect_gt(led, 30000, "seed %llu: led %u of 100000 steps",
			     (unsigned long long)seed, led);
	}
}

/* Without faults: one leader, for ever, and the next one at most duration + 1.2 retry after its death. */
Test(kube_lease_core, takes_over_in_time)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sim s;
		int64_t died, next = 0;
		int leader = -1;

		sim_init(&s, seed);
		s.calm = true;
		for (int i = 0; i < REPLICAS; i++)
			s.r[i].rate_ppm = 0;
		for (int step = 0; step < 20000; step++) {
			s.now += 10000;
			for (int i = 0; i < REPLICAS; i++) {
				step_replica(&s, &s.r[i]);
				if (leader < 0 && leads(&s, &s.r[i]))
					leader = i;
			}
			cr_assert(leader < 0 || leads(&s, &s.r[leader]) || s.starts <= 1);
		}
		cr_assert_geq(leader, 0);
		died = s.now;
		s.r[leader].asleep_until = INT64_MAX;
		while (next == 0 && s.now < died + 60000000) {
			s.now += 10000;
			for (int i = 0; i < REPLICAS; i++) {
				step_replica(&s, &s.r[i]);
				if (i != leader && leads(&s, &s.r[i]))
					next = s.now;
			}
		}
		cr_expect_neq(next, 0);
		cr_expect_leq(next - died, 17600000, "seed %llu: %lld us", (unsigned long long)seed,
			      (long long)(next - died));
	}
}

/* ---- the whole ---- */

#define LEASES "/apis/coordination.k8s.io/v1/namespaces/tessera-system/leases"
#define LEASE LEASES "/tessera"

static struct kube_fixture f;
static struct journal j;
static struct ku_lease *l;

/* A server with one Lease; under its own lock. */
static struct {
	pthread_mutex_t lock;
	char *object; /* NULL: none */
	unsigned version;
	bool down;
	unsigned writes;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void store_put(const char *text)
{
	cJSON *obj = cJSON_Parse(text), *meta;
	char rv[16];

	cr_assert_not_null(obj);
	meta = cJSON_GetObjectItemCaseSensitive(obj, "metadata");
	snprintf(rv, sizeof(rv), "%u", ++store.version);
	cJSON_DeleteItemFromObjectCaseSensitive(meta, "resourceVersion");
	cJSON_AddStringToObject(meta, "resourceVersion", rv);
	free(store.object);
	store.object = cJSON_PrintUnformatted(obj);
	cJSON_Delete(obj);
}

static bool version_matches(const char *text)
{
	char want[48];

	snprintf(want, sizeof(want), "\"resourceVersion\":\"%u\"", store.version);
	return strstr(text, want) != NULL;
}

static void serve(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)ctx;
	pthread_mutex_lock(&store.lock);
	ret->body = NULL;
	if (store.down) {
		ret->status = 503;
	} else if (strcmp(rq->method, "GET") == 0) {
		ret->status = store.object != NULL ? 200 : 404;
	} else if (strcmp(rq->method, "POST") == 0) {
		ret->status = store.object != NULL ? 409 : 201;
	} else {
		ret->status = store.object == NULL ? 404 : version_matches(rq->body) ? 200 : 409;
	}
	if (strcmp(rq->method, "GET") != 0 && ret->status < 300) {
		store_put(rq->body);
		store.writes++;
	}
	ret->take_body = ret->status < 300 && store.object != NULL ? strdup(store.object) : NULL;
	pthread_mutex_unlock(&store.lock);
}

static void set_down(bool down)
{
	pthread_mutex_lock(&store.lock);
	store.down = down;
	pthread_mutex_unlock(&store.lock);
}

static void set_object(const char *text)
{
	pthread_mutex_lock(&store.lock);
	store_put(text);
	pthread_mutex_unlock(&store.lock);
}

static char *get_object(void)
{
	char *copy;

	pthread_mutex_lock(&store.lock);
	copy = strdup(store.object != NULL ? store.object : "");
	pthread_mutex_unlock(&store.lock);
	return copy;
}

static void started(void *ctx, uint64_t term)
{
	(void)ctx;
	journal_add(&j, "started %llu", (unsigned long long)term);
}

static void stopped(void *ctx, uint64_t term)
{
	(void)ctx;
	journal_add(&j, "stopped %llu", (unsigned long long)term);
}

static void init(void)
{
	kube_fixture_init(&f);
	fake_api_handle(f.api, serve, NULL);
	journal_init(&j);
	f.virtual_time = true;
	kube_fixture_start(&f);
}

static void fini(void)
{
	ku_lease_free(l);
	kube_fixture_fini(&f);
	journal_fini(&j);
	free(store.object);
}

TestSuite(kube_lease, .init = init, .fini = fini);

static void compete(void)
{
	struct ku_lease_options o = {
		.name = "tessera", .identity = "me", .on_started = started, .on_stopped = stopped};
	struct err err = ERR_INIT;

	cr_assert_eq(ku_lease_new(f.client, &o, &l, &err), 0, "%s", err.msg);
}

static const char *awaited;

static bool has_awaited(void *ctx)
{
	(void)ctx;
	return journal_has(&j, awaited);
}

static bool pass_until(const char *text)
{
	awaited = text;
	return kube_fixture_run(&f, 5, has_awaited, NULL);
}

static void expect_object(const char *part)
{
	char *text = get_object();

	cr_expect_not_null(strstr(text, part), "%s\nnot in %s", part, text);
	free(text);
}

static bool five_writes(void *ctx)
{
	bool done;

	(void)ctx;
	pthread_mutex_lock(&store.lock);
	done = store.writes >= 5;
	pthread_mutex_unlock(&store.lock);
	return done;
}

#define OTHERS(renew)                                                                              \
	"{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":"    \
	"\"tessera\",\"labels\":{\"keep\":\"me\"}},\"spec\":{\"holderIdentity\":\"other\","        \
	"\"leaseDurationSeconds\":15,\"leaseTransitions\":4,\"acquireTime\":\"x\",\"renewTime\":"  \
	"\"" renew "\",\"strategy\":\"kept\"}}"

Test(kube_lease, made_and_renewed)
{
	compete();
	cr_assert(journal_wait(&j, "started 1"));
	cr_expect_eq(ku_lease_term(l), 1);
	cr_expect_leq(ku_lease_left_ms(l), 10000);
	cr_expect_gt(ku_lease_left_ms(l), 0);
	expect_object(
		"\"holderIdentity\":\"me\",\"leaseDurationSeconds\":15,\"leaseTransitions\":0");
	expect_object("\"acquireTime\":\"2026-01-02T03:04:05.000000Z\"");
	expect_object("\"namespace\":\"tessera-system\"");
	cr_assert(kube_fixture_run(&f, 5, five_writes, NULL));
	expect_object("\"acquireTime\":\"2026-01-02T03:04:05.000000Z\"");
	cr_expect_eq(journal_count(&j, "stopped"), 0);
	cr_expect_eq(fake_api_count(f.api, "GET", LEASE), 1);
}

static unsigned gets_wanted;

static bool enough_gets(void *ctx)
{
	(void)ctx;
	return fake_api_count(f.api, "GET", LEASE) >= gets_wanted;
}

/* Another holds it and renews: we wait however long; it stops: we take over after its duration by our
 * clock, whatever its times say, and keep what we do not know. */
Test(kube_lease, taken_over_only_when_silent)
{
	char name[16];
	int64_t silent_since;

	set_object(OTHERS("1999-01-01T00:00:00.000000Z"));
	compete();
	for (unsigned i = 1; i <= 8; i++) {
		char text[512];

		snprintf(text, sizeof(text), OTHERS("%u"), i);
		set_object(text);
		gets_wanted = i * 2;
		cr_assert(kube_fixture_run(&f, 50, enough_gets, NULL));
	}
	cr_expect_eq(journal_count(&j, "started"), 0);
	ku_lease_holder(l, name, sizeof(name));
	cr_expect_str_eq(name, "other");
	silent_since = atomic_load(&f.clock.mono_us);
	cr_assert(pass_until("started 1"));
	cr_expect_geq(atomic_load(&f.clock.mono_us) - silent_since, 11000000);
	expect_object("\"holderIdentity\":\"me\"");
	expect_object("\"leaseTransitions\":5");
	expect_object("\"strategy\":\"kept\"");
	expect_object("\"labels\":{\"keep\":\"me\"}");
}

/* The API is away: stopped before anybody else could take over; it comes back: a new term. */
Test(kube_lease, stops_when_the_api_is_away)
{
	int64_t away;

	compete();
	cr_assert(journal_wait(&j, "started 1"));
	away = atomic_load(&f.clock.mono_us);
	set_down(true);
	cr_assert(pass_until("stopped 1"));
	cr_expect_leq(atomic_load(&f.clock.mono_us) - away, 14000000);
	cr_expect_eq(ku_lease_left_ms(l), 0);
	cr_expect_eq(ku_lease_term(l), 0);
	set_down(false);
	cr_assert(pass_until("started 2"));
}

/* The thread of the client stands still: whoever asks sees in time that the lease is over. */
Test(kube_lease, left_ms_needs_no_thread)
{
	compete();
	cr_assert(journal_wait(&j, "started 1"));
	fake_clock_add(&f.clock, 9000, NULL);
	cr_expect_gt(ku_lease_left_ms(l), 0);
	cr_expect_leq(ku_lease_left_ms(l), 1000);
	fake_clock_add(&f.clock, 1000, NULL);
	cr_expect_eq(ku_lease_left_ms(l), 0);
	cr_expect_eq(ku_lease_term(l), 0);
}

Test(kube_lease, stops_when_somebody_took_it)
{
	compete();
	cr_assert(journal_wait(&j, "started 1"));
	set_object(OTHERS("now"));
	cr_assert(pass_until("stopped 1"));
	expect_object("\"holderIdentity\":\"other\"");
}

Test(kube_lease, stops_when_it_was_deleted)
{
	compete();
	cr_assert(journal_wait(&j, "started 1"));
	pthread_mutex_lock(&store.lock);
	free(store.object);
	store.object = NULL;
	pthread_mutex_unlock(&store.lock);
	cr_assert(pass_until("stopped 1\nstarted 2"));
}

Test(kube_lease, released)
{
	struct err err = ERR_INIT;

	compete();
	cr_assert(journal_wait(&j, "started 1"));
	ku_lease_stop(l);
	cr_expect(journal_has(&j, "stopped 1"));
	cr_expect_eq(ku_lease_left_ms(l), 0);
	cr_expect_eq(ku_lease_release(l, 5000, &err), 0, "%s", err.msg);
	expect_object("\"holderIdentity\":\"\"");
	expect_object("\"leaseDurationSeconds\":1");
}

Test(kube_lease, not_released_when_it_is_not_ours)
{
	struct err err = ERR_INIT;

	compete();
	cr_assert(journal_wait(&j, "started 1"));
	ku_lease_stop(l);
	set_object(OTHERS("now"));
	cr_expect_eq(ku_lease_release(l, 5000, &err), 0, "%s", err.msg);
	expect_object("\"holderIdentity\":\"other\"");
}

/* A released lease is taken at once. */
Test(kube_lease, free_lease_is_taken_at_once)
{
	int64_t began = atomic_load(&f.clock.mono_us);

	set_object("{\"metadata\":{\"name\":\"tessera\"},\"spec\":{\"holderIdentity\":\"\","
		   "\"leaseDurationSeconds\":1,\"leaseTransitions\":7}}");
	compete();
	cr_assert(journal_wait(&j, "started 1"));
	cr_expect_eq(atomic_load(&f.clock.mono_us), began);
	expect_object("\"leaseTransitions\":8");
}

Test(kube_lease, options_are_checked)
{
	struct ku_lease_options o = {.name = "x", .identity = "me", .renew_ms = 15000};
	struct err err = ERR_INIT;

	cr_expect_eq(ku_lease_new(f.client, &o, &l, &err), ERR_INVALID);
	cr_expect_not_null(strstr(err.msg, "renew 15000 ms, duration 15000 ms"));
	o.renew_ms = 2400;
	cr_expect_eq(ku_lease_new(f.client, &o, &l, &err), ERR_INVALID);
	o.renew_ms = 0;
	o.identity = "";
	cr_expect_eq(ku_lease_new(f.client, &o, &l, &err), ERR_INVALID);
	o.identity = "me";
	o.name = "..";
	cr_expect_eq(ku_lease_new(f.client, &o, &l, &err), ERR_INVALID);
	cr_expect_null(l);
}

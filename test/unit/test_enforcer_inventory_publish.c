/* The publisher against an API server: what it asks, what it writes, and above all what it does not. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/inventory_publish.h"
#include "kube/object.h"
#include "test/lib/kube_fixture.h"

#define NODE "/api/v1/nodes/n1"

static struct kube_fixture f;
static struct en_publisher *publisher;

/* The node as the server has it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cJSON *node;
static int failures; /* the next so many requests get 503 */
static bool deaf;    /* what is written is taken, and not kept */

/* What the two kinds of patch do, as far as they are used. */
static void merge(cJSON *to, const cJSON *patch, bool strategic)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, patch)
	{
		cJSON *have = cJSON_GetObjectItemCaseSensitive(to, v->string);

		if (cJSON_IsObject(v) && cJSON_IsObject(have)) {
			merge(have, v, strategic);
		} else if (strategic && cJSON_IsArray(v) && cJSON_IsArray(have)) {
			const cJSON *type = cJSON_GetObjectItemCaseSensitive(v->child, "type");
			cJSON *old;

			cJSON_ArrayForEach(old, have)
			{
				const cJSON *t = cJSON_GetObjectItemCaseSensitive(old, "type");

				if (strcmp(t->valuestring, type->valuestring) == 0)
					break;
			}
			if (old != NULL)
				merge(old, v->child, false);
			else
				cJSON_AddItemToArray(have, cJSON_Duplicate(v->child, true));
		} else {
			cJSON_DeleteItemFromObjectCaseSensitive(to, v->string);
			if (!cJSON_IsNull(v))
				cJSON_AddItemToObject(to, v->string, cJSON_Duplicate(v, true));
		}
	}
}

static void handle(void *ctx, const struct fake_request *rq, struct fake_reply *ret)
{
	(void)ctx;
	pthread_mutex_lock(&lock);
	if (failures > 0) {
		failures--;
		ret->status = 503;
		ret->body = "{\"kind\":\"Status\"}";
	} else {
		cJSON *patch = strcmp(rq->method, "PATCH") == 0 ? cJSON_Parse(rq->body) : NULL;

		if (!deaf)
			merge(node, patch, strstr(rq->type, "strategic") != NULL);
		cJSON_Delete(patch);
		ret->status = 200;
		ret->take_body = cJSON_PrintUnformatted(node);
	}
	pthread_mutex_unlock(&lock);
}

static void start(void)
{
	struct err err = ERR_INIT;

	node = cJSON_Parse(
		"{\"metadata\":{\"name\":\"n1\",\"annotations\":{\"other\":\"x\"}},"
		"\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}");
	kube_fixture_init(&f);
	f.virtual_time = true;
	fake_api_handle(f.api, handle, NULL);
	kube_fixture_start(&f);
	cr_assert_eq(en_publisher_new(f.client, "n1", NULL, &publisher, &err), 0, "%s", err.msg);
}

static void stop(void)
{
	en_publisher_free(publisher);
	kube_fixture_fini(&f);
	cJSON_Delete(node);
}

TestSuite(enforcer_inventory_publish, .init = start, .fini = stop);

static struct en_condition condition(enum en_status status, const char *message)
{
	struct en_condition c = {.status = status, .reason = status ? "Ready" : "MpsNotReady"};

	snprintf(c.message, sizeof(c.message), "%s", message);
	return c;
}

static void put(const char *inventory, enum en_status status, const char *message)
{
	struct en_condition c = condition(status, message);

	cr_assert_eq(en_publisher_put(publisher, inventory, &c, NULL), 0);
	cr_assert(en_publisher_flush(publisher, 10000));
}

static const char *text_at(const char *a, const char *b, const char *c)
{
	const cJSON *v = cJSON_GetObjectItem(cJSON_GetObjectItem(node, a), b);

	if (c != NULL)
		v = cJSON_GetObjectItem(v, c);
	return cJSON_IsString(v) ? v->valuestring : NULL;
}

static const cJSON *our_condition(void)
{
	const cJSON *c;

	cJSON_ArrayForEach(c,
			   cJSON_GetObjectItem(cJSON_GetObjectItem(node, "status"), "conditions"))
	{
		if (strcmp(cJSON_GetObjectItem(c, "type")->valuestring, EN_CONDITION_TYPE) == 0)
			return c;
	}
	return NULL;
}

static const char *member(const char *name)
{
	return cJSON_GetObjectItem(our_condition(), name)->valuestring;
}

/* Case 48: two writes for all that is new, none for what is not. */
Test(enforcer_inventory_publish, case_48_only_changes)
{
	put("{\"a\":1}", EN_STATUS_TRUE, "well");
	cr_assert_eq(fake_api_count(f.api, "GET", NODE), 1);
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE), 1);
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE "/status"), 1);
	cr_assert_str_eq(text_at("metadata", "annotations", EN_INVENTORY_KEY), "{\"a\":1}");
	cr_assert_str_eq(text_at("metadata", "annotations", EN_INVENTORY_TIME_KEY),
			 "2026-01-02T03:04:05Z");
	cr_assert_str_eq(text_at("metadata", "annotations", "other"), "x");
	cr_assert_str_eq(member("status"), "True");
	cr_assert_str_eq(member("lastTransitionTime"), "2026-01-02T03:04:05Z");
	cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(cJSON_GetObjectItem(node, "status"),
							    "conditions")),
		     2);
	for (int i = 0; i < 5; i++) {
		put("{ \"a\": 1 }", EN_STATUS_TRUE, "well");
		(void)en_publisher_tick(publisher);
	}
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE), 1);
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE "/status"), 1);
	cr_assert_eq(fake_api_count(f.api, "GET", NODE), 1);
	put("{\"a\":2}", EN_STATUS_TRUE, "well");
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE), 2);
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE "/status"), 1);
}

/* The time of the transition is that of the status, not of its message. */
Test(enforcer_inventory_publish, transition)
{
	put(NULL, EN_STATUS_TRUE, "well");
	fake_clock_add(&f.clock, 60000, f.client);
	put(NULL, EN_STATUS_TRUE, "very well");
	cr_assert_str_eq(member("message"), "very well");
	cr_assert_str_eq(member("lastTransitionTime"), "2026-01-02T03:04:05Z");
	put(NULL, EN_STATUS_FALSE, "MPS ended");
	cr_assert_str_eq(member("status"), "False");
	cr_assert_str_eq(member("reason"), "MpsNotReady");
	cr_assert_str_eq(member("lastTransitionTime"), "2026-01-02T03:05:05Z");
	cr_assert_eq(fake_api_count(f.api, "PATCH", NODE), 0, "the annotation is left alone");
}

/* A node that gets worse says so before its GPUs change; one that gets better, after. */
Test(enforcer_inventory_publish, order)
{
	const struct fake_request *rq;

	put("{\"a\":1}", EN_STATUS_FALSE, "not yet");
	rq = fake_api_wait(f.api, "PATCH", NULL, 1);
	cr_assert_str_eq(rq->path, NODE "/status");
	rq = fake_api_wait(f.api, "PATCH", NULL, 2);
	cr_assert_str_eq(rq->path, NODE);
	put("{\"a\":2}", EN_STATUS_TRUE, "now");
	rq = fake_api_wait(f.api, "PATCH", NULL, 3);
	cr_assert_str_eq(rq->path, NODE);
}

static bool synced(void *ctx)
{
	struct en_publisher_stats st;

	(void)ctx;
	(void)en_publisher_tick(publisher);
	en_publisher_get_stats(publisher, &st);
	return st.in_sync;
}

Test(enforcer_inventory_publish, failures_are_repeated)
{
	struct en_condition c = condition(EN_STATUS_TRUE, "well");
	struct en_publisher_stats st;

	f.patient = true;
	failures = 3;
	cr_assert_eq(en_publisher_put(publisher, "{\"a\":1}", &c, NULL), 0);
	cr_assert(kube_fixture_run(&f, 1000, synced, NULL));
	en_publisher_get_stats(publisher, &st);
	cr_assert_eq(st.failures, 3);
	cr_assert_eq(st.writes, 2);
	cr_assert_str_eq(text_at("metadata", "annotations", EN_INVENTORY_KEY), "{\"a\":1}");
}

static bool failed_four_times(void *ctx)
{
	struct en_publisher_stats st;

	(void)ctx;
	(void)en_publisher_tick(publisher);
	en_publisher_get_stats(publisher, &st);
	return st.failures >= 4;
}

/* A webhook, or a server that changes what it is given: it is not asked for the same without a pause. */
Test(enforcer_inventory_publish, what_is_not_kept_is_written_ever_more_seldom)
{
	struct en_condition c = condition(EN_STATUS_TRUE, "well");
	struct en_publisher_stats st;

	deaf = true;
	cr_assert_eq(en_publisher_put(publisher, "{\"a\":1}", &c, NULL), 0);
	cr_assert_not_null(fake_api_wait(f.api, "PATCH", NODE, 1));
	do /* no time passes */
		en_publisher_get_stats(publisher, &st);
	while (st.failures == 0 && st.writes < 50);
	cr_assert_eq(st.writes, 1);
	f.patient = true;
	cr_assert(kube_fixture_run(&f, 500, failed_four_times, NULL));
	en_publisher_get_stats(publisher, &st);
	cr_expect_eq(st.writes, 4);
	cr_expect_geq(atomic_load(&f.clock.mono_us), INT64_C(1007000000), "1, 2 and 4 s");
	pthread_mutex_lock(&lock);
	deaf = false;
	pthread_mutex_unlock(&lock);
	cr_assert(kube_fixture_run(&f, 1000, synced, NULL));
	cr_assert_str_eq(text_at("metadata", "annotations", EN_INVENTORY_KEY), "{\"a\":1}");
}

/* Case 19: somebody takes the annotation away; it is put back without being asked. */
Test(enforcer_inventory_publish, case_19_annotation_removed)
{
	put("{\"a\":1}", EN_STATUS_TRUE, "well");
	pthread_mutex_lock(&lock);
	cJSON_DeleteItemFromObject(cJSON_GetObjectItem(cJSON_GetObjectItem(node, "metadata"),
						       "annotations"),
				   EN_INVENTORY_KEY);
	pthread_mutex_unlock(&lock);
	fake_clock_add(&f.clock, 299000, f.client);
	(void)en_publisher_tick(publisher);
	cr_assert_eq(fake_api_count(f.api, "GET", NODE), 1);
	fake_clock_add(&f.clock, 2000, f.client);
	(void)en_publisher_tick(publisher);
	cr_assert_not_null(fake_api_wait(f.api, "PATCH", NODE, 2));
	cr_assert(en_publisher_flush(publisher, 10000));
	cr_assert_str_eq(text_at("metadata", "annotations", EN_INVENTORY_KEY), "{\"a\":1}");
}

Test(enforcer_inventory_publish, withdraw)
{
	put("{\"a\":1}", EN_STATUS_TRUE, "well");
	en_publisher_withdraw(publisher);
	cr_assert(en_publisher_flush(publisher, 10000));
	cr_assert_null(text_at("metadata", "annotations", EN_INVENTORY_KEY));
	cr_assert_null(text_at("metadata", "annotations", EN_INVENTORY_TIME_KEY));
	cr_assert_str_eq(text_at("metadata", "annotations", "other"), "x");
	cr_assert_str_eq(member("status"), "Unknown");
	cr_assert_str_eq(member("reason"), "EnforcerRemoved");
}

Test(enforcer_inventory_publish, names)
{
	struct en_publisher *p = NULL;
	struct err err = ERR_INIT;

	cr_assert_eq(en_publisher_new(f.client, "..", NULL, &p, &err), ERR_INVALID);
	cr_assert_null(p);
}

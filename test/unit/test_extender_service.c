#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fragmentation/measure_internal.h"
#include "policy/policy_internal.h"
#include "test/lib/extender_fixture.h"

#define A100 "NVIDIA A100-SXM4-40GB"
#define HALF "\"gpu-fraction\":\"0.5\""
#define WHOLE .limits = "\"nvidia.com/gpu\":\"1\""

static struct xf f;
static char *cluster;

/* n1 and n2 with two GPUs of 40,960 MiB, n3 with none. */
static void open_all(void)
{
	struct buf b = BUF_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n1", 2, 40960, A100, false);
	xf_node(&b, "n2", 2, 40960, A100, false);
	xf_node(&b, "n3", 0, 0, "", false);
	xf_list_end(&b);
	cluster = buf_take(&b);
	xf_open(&f, cluster, NULL, NULL);
}

static void close_all(void)
{
	xf_close(&f);
	free(cluster);
}

TestSuite(extender_service, .init = open_all, .fini = close_all);

static void expect_bind(const char *uid, const char *node, const char *want)
{
	char *error = xf_bind(&f, uid, node);

	if (want[0] == '\0')
		cr_expect_str_eq(error, "");
	else
		cr_expect(strstr(error, want) != NULL, "%s", error);
	free(error);
}

static void expect_passing(struct xf_pod p, const char *names, const char *want)
{
	char *passing = xf_passing(&f, p, names);

	cr_expect_str_eq(passing, want);
	free(passing);
}

static void expect_reason(struct xf_pod p, const char *names, const char *node, bool resolvable,
			  const char *want)
{
	bool is;
	char *reason = xf_reason(&f, p, names, node, &is);

	cr_expect(strstr(reason, want) != NULL, "%s", reason);
	cr_expect_eq(is, resolvable, "%s", reason);
	free(reason);
}

/* ---- filter and prioritize ---- */

Test(extender_service, filter_says_why)
{
	struct xf_pod big = {.uid = "a", .annotations = "\"gpu-memory\":\"50000\""};
	struct xf_pod other = {.uid = "b",
			       .annotations = HALF ",\"tessera.dev/gpu-product\":\"NVIDIA H200\""};

	expect_passing((struct xf_pod){.uid = "x", .annotations = HALF}, "n1 n2 n3 n4", "n1 n2");
	expect_reason((struct xf_pod){.uid = "x", .annotations = HALF}, "n3 n1", "n3", false,
		      "GPU");
	expect_reason((struct xf_pod){.uid = "x", .annotations = HALF}, "n4", "n4", false,
		      "not known to tessera");
	expect_reason(big, "n1", "n1", false, "");
	expect_reason(other, "n1", "n1", false, "product");
	cr_assert_not_null(xf_schedule(&f, (struct xf_pod){.uid = "w1", WHOLE}, "n1"));
	cr_assert_not_null(xf_schedule(&f, (struct xf_pod){.uid = "w2", WHOLE}, "n1"));
	expect_reason((struct xf_pod){.uid = "x", .annotations = HALF}, "n1 n2", "n1", true, "");
}

Test(extender_service, pods_without_gpu_are_placed_too)
{
	expect_passing((struct xf_pod){.uid = "a"}, "n1 n3", "n1 n3");
	expect_passing((struct xf_pod){.uid = "b", .limits = "\"cpu\":\"65\""}, "n1 n3", "");
	expect_reason((struct xf_pod){.uid = "b", .limits = "\"cpu\":\"65\""}, "n3", "n3", false,
		      "CPU");
	cr_assert_str_eq(xf_schedule(&f, (struct xf_pod){.uid = "a", .limits = "\"cpu\":\"60\""},
				     "n3"),
			 "n3");
	expect_reason((struct xf_pod){.uid = "b", .limits = "\"cpu\":\"5\""}, "n3", "n3", true,
		      "CPU");
}

Test(extender_service, a_wrong_request_is_said_on_every_node)
{
	struct xf_pod p = {.uid = "a", .annotations = "\"gpu-fraction\":\"1.5\""};

	expect_passing(p, "n1 n2 n3 n4", "");
	expect_reason(p, "n1 n2 n3 n4", "n1", false, "gpu-fraction");
	expect_reason(p, "n1 n2 n3 n4", "n4", false, "1.5");
	expect_bind("a", "n1", "was not seen by filter");
}

Test(extender_service, asking_leaves_nothing_behind)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF, .priority = 5};
	char *before = xf_books(&f), *after, *first, *again, *body = xf_args(p, "n1 n2 n3");

	first = xf_prioritize(&f, body);
	for (int i = 0; i < 20; i++) {
		free(xf_filter(&f, body));
		again = xf_prioritize(&f, body);
		cr_expect_str_eq(again, first);
		free(again);
	}
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	free(before);
	free(after);
	free(first);
	free(body);
}

Test(extender_service, a_name_listed_twice_is_answered_once)
{
	expect_passing((struct xf_pod){.uid = "a", .annotations = HALF}, "n1 n2 n1 n1", "n1 n2");
}

Test(extender_service, reasons_are_short_for_many_nodes)
{
	struct xf_pod p = {.uid = "a", .annotations = "\"gpu-memory\":\"30000\""};
	struct buf names = BUF_INIT;

	cr_assert_not_null(xf_schedule(&f, (struct xf_pod){.uid = "b", .annotations = HALF}, "n1"));
	cr_assert_not_null(xf_schedule(
		&f, (struct xf_pod){.uid = "c", .annotations = "\"gpu-fraction\":\"0.6\""}, "n1"));
	expect_reason(p, "n1", "n1", true, "30000");
	buf_puts(&names, "n1");
	for (int i = 0; i < EX_EXPLAIN_MAX; i++)
		buf_printf(&names, " x%d", i);
	expect_reason(p, buf_str(&names), "n1", true, "no GPU has enough memory free");
	buf_fini(&names);
}

Test(extender_service, one_node_gets_all_points)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	char *body = xf_args(p, "n2"), *list = xf_prioritize(&f, body);

	cr_expect_str_eq(list, "[{\"Host\":\"n2\",\"Score\":10}]");
	free(list);
	free(body);
}

/* ---- node objects ---- */

static char *nodes_body(struct xf_pod p, const char *nodes)
{
	struct buf b = BUF_INIT;

	p.no_comma = true;
	buf_puts(&b, "{\"Pod\":");
	xf_pod(&b, p);
	buf_printf(&b, ",\"Nodes\":{\"metadata\":{},\"items\":[%s]},\"NodeNames\":null}", nodes);
	return buf_take(&b);
}

Test(extender_service, nodes_that_do_not_exist_are_imagined_and_forgotten)
{
	struct xf_pod p = {.uid = "a", .annotations = "\"gpu-memory\":\"60Gi\""};
	struct buf nodes = BUF_INIT;
	char *body, *reply, *before = xf_books(&f), *after, *template;

	xf_node(&nodes, "template-1", 1, 81920, "NVIDIA A100-SXM4-80GB", false);
	template = strdup(buf_str(&nodes) + 1);
	buf_puts(&nodes, ",{\"metadata\":{\"name\":\"n1\"}},{\"metadata\":{\"name\":\"empty\"}},"
			 "{\"metadata\":{\"name\":\"odd\"},\"status\":7}");
	body = nodes_body(p, buf_str(&nodes) + 1);
	reply = xf_filter(&f, body);
	cr_expect(strstr(reply, template) != NULL, "the object comes back byte for byte");
	cr_expect(strstr(reply, "\"NodeNames\":null") != NULL);
	cr_expect(strstr(reply, "\"odd\":\"status: is a number") != NULL, "%s", reply);
	cr_expect(strstr(reply, "\"empty\":\"") != NULL && strstr(reply, "\"n1\":\"") != NULL);
	free(reply);
	reply = xf_prioritize(&f, body);
	cr_expect_str_eq(reply, "[{\"Host\":\"template-1\",\"Score\":10}]");
	free(reply);
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	free(body);
	body = xf_args(p, "template-1");
	reply = xf_filter(&f, body);
	cr_expect(strstr(reply, "not known to tessera") != NULL, "%s", reply);
	free(reply);
	free(body);
	free(before);
	free(after);
	free(template);
	buf_fini(&nodes);
}

/* ---- bind and release ---- */

Test(extender_service, bind_is_idempotent_by_uid)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	char *once, *twice;

	free(xf_passing(&f, p, "n1 n2"));
	expect_bind("a", "n1", "");
	once = xf_books(&f);
	expect_bind("a", "n1", "");
	expect_bind("a", "n2", "already bound to node \"n1\"");
	twice = xf_books(&f);
	cr_expect_str_eq(twice, once);
	/* A filter for it answers with its node alone. */
	expect_passing(p, "n1 n2", "n1");
	expect_reason(p, "n1 n2", "n2", false, "bound to another node");
	free(once);
	free(twice);
}

Test(extender_service, binds_that_cannot_be)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	struct ex_bind_args wrong = {.uid = strdup("a"),
				     .ns = strdup("ns"),
				     .name = strdup("other"),
				     .node = strdup("n1")};
	char *before = xf_books(&f), *after;
	struct ex_service_counts counts;
	struct err err = ERR_INIT;

	expect_bind("a", "n1", "was not seen by filter");
	free(xf_passing(&f, p, "n1"));
	expect_bind("a", "nope", "node \"nope\" is not known");
	expect_bind("a", "n3", "has no room for pod ns/p-a any more: ");
	cr_expect_eq(ex_service_bind_now(f.s, &wrong, &err), ERR_CONFLICT);
	cr_expect_str_eq(err.msg, "uid a is pod ns/p-a, not ns/other");
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	ex_service_counts(f.s, &counts);
	cr_expect_eq(counts.binds_unknown, 1);
	cr_expect_eq(counts.binds_refused, 1);
	cr_expect_eq(counts.binds, 0);
	ex_bind_args_fini(&wrong);
	free(before);
	free(after);
}

Test(extender_service, release_gives_everything_back)
{
	char *before = xf_books(&f), *after;
	struct err err = ERR_INIT;

	cr_assert_not_null(
		xf_schedule(&f, (struct xf_pod){.uid = "a", .annotations = HALF}, "n1 n2"));
	cr_expect_eq(ex_service_release_now(f.s, "a", &err), 0, "%s", err.msg);
	after = xf_books(&f);
	cr_expect_str_eq(after, before);
	/* Nothing of it is known any more, its request neither. */
	cr_expect_eq(ex_service_release_now(f.s, "a", &err), ERR_NOT_FOUND);
	free(before);
	free(after);
}

Test(extender_service, pending_pods_of_the_file_can_be_bound_at_once)
{
	struct buf b = BUF_INIT;

	close_all();
	xf_list_begin(&b);
	xf_node(&b, "n1", 1, 40960, A100, false);
	xf_pod(&b, (struct xf_pod){.uid = "a", .annotations = HALF});
	xf_list_end(&b);
	cluster = buf_take(&b);
	xf_open(&f, cluster, NULL, NULL);
	expect_bind("a", "n1", "");
}

Test(extender_service, only_so_many_pods_are_remembered)
{
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT, .pods_cache = 16};
	char uid[16];

	xf_close(&f);
	xf_open(&f, cluster, &cfg, NULL);
	for (int i = 0; i < 17; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		free(xf_passing(&f, (struct xf_pod){.uid = uid, .annotations = HALF}, "n1"));
	}
	expect_bind("u0", "n1", "was not seen by filter");
	expect_bind("u1", "n1", "");
}

/* ---- nominated pods and preemption ---- */

Test(extender_service, room_made_for_a_nominated_pod_is_kept)
{
	struct xf_pod high = {.uid = "h", WHOLE, .priority = 100, .nominated = "n1"};
	struct xf_pod low = {.uid = "l", WHOLE, .priority = 10};
	struct xf_pod low2 = {.uid = "l2", .annotations = HALF, .priority = 10};
	struct xf_pod higher = {.uid = "hh", WHOLE, .priority = 1000};

	/* One GPU of n1 is held: the other is the room that was made. */
	cr_assert_not_null(
		xf_schedule(&f, (struct xf_pod){.uid = "x", WHOLE, .priority = 500}, "n1"));
	expect_passing(high, "n1", "n1");
	expect_passing(low, "n1 n2", "n2");
	expect_reason(low2, "n1", "n1", true, "room is kept for a preempting pod");
	expect_bind("l", "n1", "room is kept");
	expect_passing(higher, "n1", "n1");
	/* Bound elsewhere, its room is free again. */
	high.nominated = "";
	cr_assert_str_eq(xf_schedule(&f, high, "n2"), "n2");
	expect_passing(low, "n1", "n1");
	expect_bind("l", "n1", "");
}

Test(extender_service, both_may_come_where_both_fit)
{
	struct xf_pod high = {.uid = "h", .annotations = HALF, .priority = 100, .nominated = "n1"};
	struct xf_pod low = {.uid = "l", .annotations = HALF, .priority = 10};

	expect_passing(high, "n1", "n1");
	cr_assert_not_null(xf_schedule(&f, low, "n1"));
	expect_passing(high, "n1", "n1");
	expect_bind("h", "n1", "");
}

Test(extender_service, a_nomination_ends)
{
	struct xf_pod high = {.uid = "h",
			      .limits = "\"nvidia.com/gpu\":\"2\"",
			      .priority = 100,
			      .nominated = "n1"};
	struct xf_pod low = {.uid = "l", .annotations = HALF};
	struct err err = ERR_INIT;

	expect_passing(high, "n1", "n1");
	expect_passing(low, "n1", "");
	f.now_ms += 600000;
	expect_passing(low, "n1", "");
	f.now_ms += 1;
	expect_passing(low, "n1", "n1");
	expect_passing(high, "n1", "n1");
	expect_passing(low, "n1", "");
	cr_expect_eq(ex_service_release_now(f.s, "h", &err), 0);
	expect_passing(low, "n1", "n1");
	expect_passing(high, "n1", "n1");
	high.nominated = "";
	expect_passing(high, "n1", "n1");
	expect_passing(low, "n1", "n1");
}

static char *preempt(struct xf_pod p, const char *map)
{
	struct buf b = BUF_INIT;
	char *reply;

	p.no_comma = true;
	buf_puts(&b, "{\"Pod\":");
	xf_pod(&b, p);
	buf_printf(&b, ",\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":{%s}}", map);
	reply = xf_preempt(&f, buf_str(&b));
	buf_fini(&b);
	return reply;
}

static void expect_preempt(struct xf_pod p, const char *map, const char *want)
{
	char *reply = preempt(p, map);

	cr_expect_str_eq(reply, want);
	free(reply);
}

/* n1 full with halves a, b of one GPU and c, d of the other, n2 full with pods of high priority. */
static void fill(void)
{
	static const char *const uids[] = {"a", "b", "c", "d"};

	for (int i = 0; i < 4; i++)
		cr_assert_not_null(xf_schedule(
			&f, (struct xf_pod){.uid = uids[i], .annotations = HALF, .priority = 10},
			"n1"));
	for (int i = 0; i < 2; i++)
		cr_assert_not_null(xf_schedule(
			&f, (struct xf_pod){.uid = i == 0 ? "y" : "z", WHOLE, .priority = 100},
			"n2"));
}

Test(extender_service, victims_are_those_whose_gpu_makes_room)
{
	struct xf_pod half = {.uid = "h", .annotations = HALF, .priority = 50};
	struct xf_pod whole = {.uid = "w", WHOLE, .priority = 50};
	char *reply;

	fill();
	/* One of the two proposed is enough. */
	reply = preempt(
		half, "\"n1\":{\"Pods\":[{\"UID\":\"a\"},{\"UID\":\"c\"}],\"NumPDBViolations\":2}");
	cr_expect(strstr(reply, "\"NumPDBViolations\":2") != NULL, "%s", reply);
	cr_expect((strstr(reply, "\"a\"") != NULL) != (strstr(reply, "\"c\"") != NULL), "%s",
		  reply);
	free(reply);
	/* One half of each GPU makes no whole one: both halves of one are named. */
	reply = preempt(
		whole,
		"\"n1\":{\"Pods\":[{\"UID\":\"a\"},{\"UID\":\"c\"}],\"NumPDBViolations\":0}");
	cr_expect((strstr(reply, "\"a\"") && strstr(reply, "\"b\"") && !strstr(reply, "\"c\"")) ||
			  (strstr(reply, "\"c\"") && strstr(reply, "\"d\"") &&
			   !strstr(reply, "\"a\"")),
		  "%s", reply);
	free(reply);
}

Test(extender_service, preemption_that_would_not_help_is_dropped)
{
	struct xf_pod whole = {.uid = "w", WHOLE, .priority = 50};
	struct xf_pod low = {.uid = "v", WHOLE, .priority = 5};
	struct xf_pod wrong = {.uid = "q", .annotations = "\"gpu-fraction\":\"7\"", .priority = 50};

	fill();
	expect_preempt(whole,
		       "\"n2\":{\"Pods\":[{\"UID\":\"y\"}]},\"n3\":{\"Pods\":[{\"UID\":\"?\"}]},"
		       "\"nope\":{\"Pods\":[{\"UID\":\"?\"}]}",
		       "{\"NodeNameToMetaVictims\":{}}");
	expect_preempt(low, "\"n1\":{\"Pods\":[{\"UID\":\"a\"},{\"UID\":\"b\"}]}",
		       "{\"NodeNameToMetaVictims\":{}}");
	expect_preempt(wrong, "\"n1\":{\"Pods\":[{\"UID\":\"a\"},{\"UID\":\"b\"}]}",
		       "{\"NodeNameToMetaVictims\":{}}");
}

Test(extender_service, an_empty_list_of_victims_is_never_sent)
{
	struct xf_pod half = {.uid = "h", .annotations = HALF, .priority = 50};

	fill();
	cr_expect_eq(ex_service_release_now(f.s, "a", NULL), 0);
	/* There is room already: nobody has to go. */
	expect_preempt(half, "\"n1\":{\"Pods\":[{\"UID\":\"b\"}]}",
		       "{\"NodeNameToMetaVictims\":{}}");
	/* A victim that holds nothing here is in the way of something else: the scheduler knows. */
	expect_preempt(half, "\"n1\":{\"Pods\":[{\"UID\":\"stranger\"}],\"NumPDBViolations\":1}",
		       "{\"NodeNameToMetaVictims\":{\"n1\":{\"Pods\":[{\"UID\":\"stranger\"}],"
		       "\"NumPDBViolations\":1}}}");
	expect_preempt(half, "\"n1\":{\"Pods\":[]}", "{\"NodeNameToMetaVictims\":{}}");
}

Test(extender_service, a_single_answer_to_preempt_is_a_nomination)
{
	struct xf_pod half = {.uid = "h", .annotations = HALF, .priority = 50};
	struct xf_pod low = {.uid = "l", .annotations = HALF, .priority = 5};
	const char *victim;
	char *reply;

	fill();
	reply = preempt(half, "\"n1\":{\"Pods\":[{\"UID\":\"a\"}]}");
	victim = strstr(reply, "\"UID\":\"a\"") ? "a" : "c";
	free(reply);
	cr_expect_eq(ex_service_release_now(f.s, victim, NULL), 0);
	expect_passing(low, "n1", "");
	half.nominated = "n1";
	expect_passing(half, "n1", "n1");
	expect_bind("h", "n1", "");
}

/* ---- policies that watch ---- */

static void search_is_done(void *ctx, const struct st_cluster *cl, struct po_placer *p)
{
	(void)cl;
	*(bool *)ctx = p->measure->bid->steps >= PO_PRICE_STEPS_START;
}

/* Waits for the price thread; gives up after a minute. */
static bool prices_were_found(void)
{
	bool done = false;

	for (int i = 0; i < 60000 && !done; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		ex_service_with(f.s, search_is_done, &done);
	}
	return done;
}

Test(extender_service, prices_follow_the_pods_seen)
{
	struct ex_service_config cfg = {.state = ST_CONFIG_DEFAULT,
					.placer = {.policy = po_policy_find("bid-price"),
						   .learn = true}};
	struct ex_service_counts counts;
	char uid[16];

	cr_assert_not_null(cfg.placer.policy);
	ex_service_counts(f.s, &counts);
	cr_expect_eq(counts.prices_published, 0, "another policy has none");
	xf_close(&f);
	xf_open(&f, cluster, &cfg, NULL);
	for (int i = 0; i < 30; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		cr_expect_not_null(xf_schedule(
			&f, (struct xf_pod){.uid = uid, .annotations = "\"gpu-memory\":\"2048\""},
			"n1 n2 n3"));
	}
	cr_expect(prices_were_found());
	ex_service_counts(f.s, &counts);
	cr_expect_geq(counts.prices_published, 1);
}

/* Reports about other schedulers, as an embedded cluster can show them. Memory is in MiB. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test/lib/extender_fixture.h"

#define A100 "NVIDIA A100-SXM4-40GB"
#define HALF "\"gpu-fraction\":\"0.5\""

static struct xf f;
static char *cluster;
static char journal[] = "/tmp/tessera-cases-XXXXXX";

static void open_with(const struct ex_service_config *cfg, bool with_journal)
{
	if (with_journal) {
		int fd = mkstemp(journal);

		cr_assert_geq(fd, 0);
		close(fd);
	}
	xf_open(&f, cluster, cfg, with_journal ? journal : NULL);
}

static void one_node(const char *name, unsigned gpus, int mem_mib)
{
	struct buf b = BUF_INIT;

	xf_list_begin(&b);
	xf_node(&b, name, gpus, mem_mib, A100, false);
	xf_list_end(&b);
	cluster = buf_take(&b);
}

static void done(void)
{
	xf_close(&f);
	free(cluster);
	unlink(journal);
}

/* Clients of each GPU of the node, as "2 2 0". */
struct clients_query {
	const char *node;
	char text[64];
};

static void read_clients(void *ctx, const struct st_cluster *c, struct po_placer *p)
{
	struct clients_query *q = ctx;
	const struct st_node *n =
		st_cluster_node(c, st_cluster_node_find(c, q->node, strlen(q->node)));
	size_t len = 0;

	(void)p;
	for (unsigned i = 0; i < n->gpu_count; i++)
		len += (size_t)snprintf(q->text + len, sizeof(q->text) - len, "%s%u",
					i > 0 ? " " : "", n->gpus[i].clients);
}

static void expect_clients(const char *node, const char *want)
{
	struct clients_query q = {.node = node};

	ex_service_with(f.s, read_clients, &q);
	cr_expect_str_eq(q.text, want);
}

static void expect_refused(struct xf_pod p, const char *names, const char *node, bool resolvable,
			   const char *want)
{
	bool is;
	char *reason = xf_reason(&f, p, names, node, &is);

	cr_expect(strstr(reason, want) != NULL, "%s", reason);
	cr_expect_eq(is, resolvable, "%s", reason);
	free(reason);
}

/* ---- binds from many threads ---- */

struct burst {
	const char *node;
	int first, count, refused;
};

static void *burst_run(void *arg)
{
	struct burst *b = arg;
	char uid[16];

	for (int i = b->first; i < b->first + b->count; i++) {
		char *error;

		snprintf(uid, sizeof(uid), "u%d", i);
		error = xf_bind(&f, uid, b->node);
		b->refused += error[0] != '\0';
		free(error);
	}
	return NULL;
}

/* All pods pass filter first; then all are bound at once. Returns the number refused. */
static int burst(const char *node, const char *annotations, int count)
{
	struct burst parts[10];
	pthread_t threads[10];
	int refused = 0;
	char uid[16];

	for (int i = 0; i < count; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		free(xf_passing(&f, (struct xf_pod){.uid = uid, .annotations = annotations}, node));
	}
	for (int i = 0; i < 10; i++) {
		parts[i] = (struct burst){node, i * count / 10,
					  (i + 1) * count / 10 - i * count / 10, 0};
		cr_assert_eq(pthread_create(&threads[i], NULL, burst_run, &parts[i]), 0);
	}
	for (int i = 0; i < 10; i++) {
		pthread_join(threads[i], NULL);
		refused += parts[i].refused;
	}
	return refused;
}

Test(cases_wire, case_1_burst_of_halves)
{
	one_node("n", 8, 40960);
	open_with(NULL, true);
	cr_expect_eq(burst("n", HALF, 16), 0);
	expect_clients("n", "2 2 2 2 2 2 2 2");
	expect_refused((struct xf_pod){.uid = "x", .annotations = HALF}, "n", "n", true, "GPU");
	done();
}

Test(cases_wire, case_2_units_are_not_inflated)
{
	bool resolvable;
	char uid[16], *reason;

	cluster = strdup(
		"{\"kind\":\"List\",\"items\":[{\"kind\":\"Node\",\"metadata\":{\"name\":\"n\","
		"\"labels\":{\"nvidia.com/gpu.count\":\"1\",\"nvidia.com/gpu.memory\":\"46068\","
		"\"nvidia.com/gpu.product\":\"NVIDIA-L40S\"}},\"status\":{\"allocatable\":{\"cpu\":"
		"\"64\",\"memory\":\"1Ti\",\"pods\":\"110\"},\"conditions\":[{\"type\":\"Ready\","
		"\"status\":\"True\"}]}}]}");
	open_with(NULL, false);
	for (int i = 0; i < 23; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		cr_assert_not_null(xf_schedule(
			&f, (struct xf_pod){.uid = uid, .annotations = "\"gpu-memory\":\"2000\""},
			"n"));
	}
	expect_clients("n", "23");
	reason =
		xf_reason(&f, (struct xf_pod){.uid = "x", .annotations = "\"gpu-memory\":\"2000\""},
			  "n", "n", &resolvable);
	cr_expect(strstr(reason, "68") != NULL && strstr(reason, "2000") != NULL, "%s", reason);
	cr_expect(resolvable);
	free(reason);
	done();
}

/* Three sharing containers. */
static char *three_containers(const char *uid)
{
	struct buf b = BUF_INIT;

	buf_printf(&b,
		   "{\"Pod\":{\"metadata\":{\"name\":\"p-%s\",\"namespace\":\"ns\",\"uid\":\"%s\","
		   "\"annotations\":{",
		   uid, uid);
	for (int c = 'a'; c < 'd'; c++)
		buf_printf(&b, "%s\"nvidia.com/container.%c.gpu-memory.request\":\"1Gi\"",
			   c > 'a' ? "," : "", c);
	buf_puts(
		&b,
		"}},\"spec\":{\"containers\":[{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"c\"}]}},"
		"\"NodeNames\":[\"n\"]}");
	return buf_take(&b);
}

Test(cases_wire, case_3_containers_count_not_pods)
{
	struct ex_service_config cfg = {.state = {.clients_max = 10, .overcommit_permille = 1000}};
	char uid[16], *body, *reply, *error;

	one_node("n", 1, 40960);
	open_with(&cfg, true);
	for (int i = 0; i < 3; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		body = three_containers(uid);
		free(xf_filter(&f, body));
		free(body);
		error = xf_bind(&f, uid, "n");
		cr_expect_str_eq(error, "");
		free(error);
	}
	expect_clients("n", "9");
	for (int restart = 0; restart < 2; restart++) {
		body = three_containers("x");
		reply = xf_filter(&f, body);
		cr_expect(strstr(reply, "\"NodeNames\":[]") != NULL, "%s", reply);
		free(reply);
		free(body);
		xf_close(&f);
		xf_open(&f, cluster, &cfg, journal);
		expect_clients("n", "9");
	}
	done();
}

Test(cases_wire, case_4_an_exclusive_gpu_stays_exclusive)
{
	struct buf b = BUF_INIT;
	struct xf_pod other = {
		.uid = "b",
		.annotations = "\"nvidia.com/container.main.gpu-memory.request\":\"20Gi\","
			       "\"nvidia.com/container.main.gpu-compute.mode\":\"sm-sharing\","
			       "\"nvidia.com/container.main.gpu-compute.request\":\"0.22\""};

	xf_list_begin(&b);
	xf_node(&b, "n", 1, 40960, A100, false);
	xf_node(&b, "m", 1, 40960, A100, false);
	buf_puts(
		&b,
		",{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"a\"},"
		"\"spec\":{\"nodeName\":\"n\",\"initContainers\":[{\"name\":\"i\"}],\"containers\":[{"
		"\"name\":\"main\",\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"1\"}}}]},\"status\":"
		"{\"phase\":\"Running\",\"initContainerStatuses\":[{\"name\":\"i\",\"state\":{"
		"\"terminated\":{\"exitCode\":0}}}]}}");
	xf_list_end(&b);
	cluster = buf_take(&b);
	open_with(NULL, false);
	cr_expect_str_eq(xf_schedule(&f, other, "n m"), "m");
	other.uid = "c";
	expect_refused(other, "n", "n", true, "");
	done();
}

Test(cases_wire, case_8_a_forged_allocation_is_overwritten)
{
	struct xf_pod p = {.uid = "a",
			   .annotations = HALF
			   ",\"nvidia.com/container.main.gpus.devices\":\"GPU-n-7\","
			   "\"nvidia.com/container.main.gpu-memory.request\":\"1Mi\","
			   "\"tessera.dev/allocation\":\"v1;n;0000000000000000;main=dr\""};
	size_t len;
	char *text;

	one_node("n", 1, 40960);
	open_with(NULL, true);
	p.annotations = HALF ",\"nvidia.com/container.main.gpus.devices\":\"GPU-n-7\","
			     "\"tessera.dev/allocation\":\"v1;n;0000000000000000;main=dr\"";
	cr_expect_str_eq(xf_schedule(&f, p, "n"), "n");
	text = xf_file(journal, &len);
	cr_expect(strstr(text, "\"nvidia.com/container.main.gpus.devices\":\"GPU-n-0\"") != NULL,
		  "%s", text);
	cr_expect(strstr(text, "GPU-n-7") == NULL && strstr(text, "0000000000000000") == NULL, "%s",
		  text);
	cr_expect(strstr(text, "\"20480Mi\"") != NULL, "%s", text);
	free(text);
	done();
}

Test(cases_wire, case_10_clients_are_refused_in_filter)
{
	struct ex_service_config cfg = {.state = {.clients_max = 3, .overcommit_permille = 1000}};
	struct xf_pod p = {.uid = "x", .annotations = "\"gpu-memory\":\"100\""};
	char uid[16];

	one_node("n", 1, 40960);
	open_with(&cfg, false);
	for (int i = 0; i < 3; i++) {
		snprintf(uid, sizeof(uid), "u%d", i);
		p.uid = uid;
		cr_assert_not_null(xf_schedule(&f, p, "n"));
	}
	p.uid = "x";
	expect_refused(p, "n", "n", true, "client");
	done();
}

Test(cases_wire, case_11_12_33_amounts_are_for_each_gpu)
{
	struct xf_pod p = {.uid = "a",
			   .annotations =
				   "\"gpu-memory\":\"2048\",\"gpu-fraction-num-devices\":\"2\""};
	char *json;

	one_node("n", 2, 4096);
	open_with(NULL, false);
	cr_assert_not_null(xf_schedule(&f, p, "n"));
	expect_clients("n", "1 1");
	json = xf_cluster_json(&f);
	cr_expect(strstr(json, "\"allocatable_mib\":8192,\"booked_mib\":4096,") != NULL, "%s",
		  json);
	free(json);
	p = (struct xf_pod){.uid = "b", .annotations = "\"gpu-memory\":\"2049\""};
	expect_refused(p, "n", "n", true, "2049");
	done();
}

/* Files may not grow: records cannot be written. */
static void disk(bool full)
{
	static struct rlimit old;
	struct rlimit low;

	signal(SIGXFSZ, SIG_IGN);
	if (full)
		cr_assert_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	if (full)
		low.rlim_cur = 1;
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
}

Test(cases_wire, case_15_16_failed_rounds_leave_nothing)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	char *before, *after, *error;

	one_node("n", 1, 40960);
	open_with(NULL, true);
	before = xf_books(&f);
	for (int round = 0; round < 10; round++) {
		free(xf_passing(&f, p, "n"));
		free(xf_passing(&f, p, "n"));
		disk(true);
		error = xf_bind(&f, "a", "n");
		disk(false);
		cr_expect_neq(error[0], '\0');
		free(error);
		after = xf_books(&f);
		cr_expect_str_eq(after, before);
		free(after);
	}
	error = xf_bind(&f, "a", "n");
	cr_expect_str_eq(error, "");
	free(error);
	free(before);
	done();
}

Test(cases_wire, case_20_21_no_mark_before_the_bind_and_one_node_after)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF};
	struct buf b = BUF_INIT;
	char *error, *text;
	size_t len;

	xf_list_begin(&b);
	xf_node(&b, "node-a", 1, 40960, A100, false);
	xf_node(&b, "node-b", 1, 40960, A100, false);
	xf_list_end(&b);
	cluster = buf_take(&b);
	open_with(NULL, true);
	free(xf_passing(&f, p, "node-a node-b"));
	disk(true);
	error = xf_bind(&f, "a", "node-a");
	disk(false);
	cr_expect_neq(error[0], '\0');
	free(error);
	text = xf_file(journal, &len);
	cr_expect_str_eq(text, "");
	free(text);
	expect_clients("node-a", "0");
	error = xf_bind(&f, "a", "node-b");
	cr_expect_str_eq(error, "");
	free(error);
	expect_clients("node-a", "0");
	expect_clients("node-b", "1");
	text = xf_file(journal, &len);
	cr_expect(strstr(text, "\"GPU-node-b-0\"") != NULL && strstr(text, ";node-b;") != NULL,
		  "%s", text);
	cr_expect_null(strstr(text, "node-a"), "%s", text);
	cr_expect_eq(strchr(text, '\n'), text + len - 1);
	free(text);
	done();
}

Test(cases_wire, case_24_burst_on_one_node)
{
	one_node("n", 8, 40960);
	open_with(NULL, true);
	cr_expect_eq(burst("n", "\"gpu-memory\":\"3000\"", 100), 0);
	cr_expect_null(xf_schedule(
		&f, (struct xf_pod){.uid = "x", .annotations = "\"gpu-memory\":\"40960\""}, "n"));
	done();
}

Test(cases_wire, case_29c_a_node_without_gpus_among_others)
{
	struct buf b = BUF_INIT;

	xf_list_begin(&b);
	xf_node(&b, "n", 1, 40960, A100, false);
	xf_node(&b, "cpu", 0, 0, "", false);
	xf_list_end(&b);
	cluster = buf_take(&b);
	open_with(NULL, false);
	expect_refused((struct xf_pod){.uid = "a", .annotations = HALF}, "cpu n", "cpu", false,
		       "no GPU");
	done();
}

Test(cases_wire, case_39_fields_that_are_not_known)
{
	static const char body[] =
		"{\"Pod\":{\"apiVersion\":\"v9\",\"invented\":{\"deep\":[1,{\"x\":null}]},\"metadata\":{\"name\":"
		"\"p-a\",\"namespace\":\"ns\",\"uid\":\"a\",\"annotations\":{" HALF
		"},\"managedFields\":[{"
		"\"manager\":\"m\",\"fieldsV1\":{\"f:metadata\":{}}}],\"more\":7},\"spec\":{"
		"\"enableServiceLinks\":false,\"neverSeen\":[[]],\"containers\":[{\"name\":\"main\",\"odd\":true}]},"
		"\"status\":{\"conditions\":[{}]}},\"Nodes\":null,\"NodeNames\":[\"n\"],\"Extra\":{\"NodeNames\":1}}";
	char *reply, *error, *text;
	size_t len;

	one_node("n", 1, 40960);
	open_with(NULL, true);
	reply = xf_filter(&f, body);
	cr_expect(strstr(reply, "\"NodeNames\":[\"n\"]") != NULL, "%s", reply);
	free(reply);
	error = xf_bind(&f, "a", "n");
	cr_expect_str_eq(error, "");
	free(error);
	/* Nothing of the pod but its names is written anywhere. */
	text = xf_file(journal, &len);
	cr_expect_null(strstr(text, "enableServiceLinks"));
	free(text);
	done();
}

Test(cases_wire, case_47d_both_body_forms)
{
	struct xf_pod p = {.uid = "a", .annotations = HALF, .no_comma = true};
	struct buf b = BUF_INIT;
	char *reply;

	one_node("n", 1, 40960);
	open_with(NULL, false);
	buf_puts(&b, "{\"Pod\":");
	xf_pod(&b, p);
	buf_puts(&b,
		 ",\"Nodes\":{\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"n\",\"x\":1}},"
		 "{\"metadata\":{\"name\":\"gone\"}}]},\"NodeNames\":null}");
	reply = xf_filter(&f, buf_str(&b));
	cr_expect(
		strstr(reply,
		       "{\"Nodes\":{\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"n\",\"x\":1}}]},"
		       "\"NodeNames\":null,") == reply,
		"%s", reply);
	cr_expect(strstr(reply, "\"gone\":") != NULL, "%s", reply);
	free(reply);
	reply = xf_prioritize(&f, buf_str(&b));
	cr_expect_str_eq(reply, "[{\"Host\":\"n\",\"Score\":10}]");
	free(reply);
	reply = xf_passing(&f, p, "n");
	cr_expect_str_eq(reply, "n");
	free(reply);
	buf_fini(&b);
	done();
}

Test(cases_wire, case_47g_room_that_appears_is_found)
{
	struct xf_pod whole = {.uid = "w", .limits = "\"nvidia.com/gpu\":\"1\""};
	struct xf_pod half = {.uid = "h", .annotations = HALF};

	one_node("n", 1, 40960);
	open_with(NULL, true);
	cr_assert_not_null(xf_schedule(&f, whole, "n"));
	expect_refused(half, "n other", "n", true, "");
	cr_expect_eq(ex_service_release_now(f.s, "w", NULL), 0);
	cr_expect_str_eq(xf_schedule(&f, half, "n"), "n");
	done();
}

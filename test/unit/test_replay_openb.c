/* Node and pod tables: what is read, and that each malformed file is refused with its place. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/lib/oom.h"
#include "test/unit/replay_fixture.h"

Test(replay_openb, reads_nodes_and_pods)
{
	struct rp_trace t;
	const struct rp_shape *s;

	trace_of(&t, small_nodes, small_pods);
	cr_assert_eq(t.node_count, 5);
	cr_assert_eq(t.gpu_milli, 20000);
	cr_assert_str_eq(strpool_str(t.node_names, 3), "d");
	cr_assert_eq(t.nodes[3].cpu_milli, 16000);
	cr_assert_eq(t.nodes[3].mem_mib, 60000);
	cr_assert_eq(t.nodes[3].gpu_count, 2);
	cr_assert_str_eq(strpool_str(t.models, t.nodes[3].model), "P100");
	cr_assert_eq(t.nodes[4].model, STRPOOL_NONE);

	cr_assert_eq(t.pod_count, 6);
	s = &t.shapes[t.pods[0]];
	cr_assert_eq(s->kind, RP_SHARED);
	cr_assert_eq(s->milli, 500);
	cr_assert_eq(s->req.cpu_milli, 4000);
	cr_assert_eq(s->req.mem_mib, 8000);
	cr_assert_eq(s->req.item_count, 1);
	cr_assert_eq(s->req.items[0].kind, ST_KIND_SHARE);
	cr_assert_eq(s->req.items[0].request_mib, 500);
	cr_assert_eq(t.shapes[t.pods[1]].kind, RP_ONE_GPU);
	cr_assert_eq(t.shapes[t.pods[2]].kind, RP_CPU_ONLY);
	cr_assert_eq(t.shapes[t.pods[2]].req.item_count, 0);
	s = &t.shapes[t.pods[3]];
	cr_assert_eq(s->kind, RP_MULTI_GPU);
	cr_assert_eq(s->milli, 4000);
	cr_assert_eq(s->device_milli, 1000);
	cr_assert_eq(s->req.items[0].kind, ST_KIND_WHOLE);
	cr_assert_eq(s->req.items[0].count, 4);
	cr_assert_str_eq(s->req.product, "G2|A10");
	rp_trace_fini(&t);
}

Test(replay_openb, finds_columns_by_name_and_takes_crlf)
{
	struct rp_trace t;

	trace_of(&t,
		 "\xEF\xBB\xBFmodel,gpu,zone,sn,memory_mib,cpu_milli\r\n"
		 "T4,2,z,n0,1000,4000\r\n\r\n\r\n",
		 "gpu_milli,num_gpu,memory_mib,cpu_milli,name\r\n300,1,20,10,p");
	cr_assert_eq(t.node_count, 1);
	cr_assert_eq(t.nodes[0].cpu_milli, 4000);
	cr_assert_eq(t.nodes[0].gpu_count, 2);
	cr_assert_eq(t.shapes[t.pods[0]].req.cpu_milli, 10);
	cr_assert_eq(t.shapes[t.pods[0]].milli, 300);
	cr_assert_str_eq(t.shapes[t.pods[0]].req.product, "");
	rp_trace_fini(&t);
}

Test(replay_openb, pods_that_ask_for_the_same_share_a_shape)
{
	struct rp_trace t;

	trace_of(&t, small_nodes,
		 PODS_HEAD "a,1,2,1,500,\nb,1,2,1,500,\nc,1,3,1,500,\nd,1,2,1,500,T4\n");
	cr_assert_eq(t.shape_count, 3);
	cr_assert_eq(t.pods[0], t.pods[1]);
	cr_assert_eq(t.shapes[t.pods[0]].count, 2);
	rp_trace_fini(&t);
}

struct bad {
	const char *text, *message;
};

static const struct bad bad_nodes[] = {
	{"", "f.csv:1:1: no header line"},
	{"\n\n", "f.csv:1:1: no header line"},
	{NODES_HEAD, "f.csv: no nodes"},
	{"sn,cpu_milli,memory_mib,gpu\nn,1,1,1\n", "f.csv:1:1: the header has no column model"},
	{"sn,cpu_milli,memory_mib,gpu,model,gpu\n", "f.csv:1:35: column gpu occurs twice"},
	{NODES_HEAD "n,abc,1,1,T4\n", "f.csv:2:3: field cpu_milli: \"abc\" is not an integer"},
	{NODES_HEAD "n,1,1,1,T4\nm,12,,1,T4\n",
	 "f.csv:3:6: field memory_mib: \"\" is not an integer"},
	{NODES_HEAD "n,1.5,1,1,T4\n", "f.csv:2:3: field cpu_milli: \"1.5\" is not an integer"},
	{NODES_HEAD "n, 1,1,1,T4\n", "f.csv:2:3: field cpu_milli: \" 1\" is not an integer"},
	{NODES_HEAD "n,+1,1,1,T4\n", "f.csv:2:3: field cpu_milli: \"+1\" is not an integer"},
	{NODES_HEAD "n,0x1,1,1,T4\n", "f.csv:2:3: field cpu_milli: \"0x1\" is not an integer"},
	{NODES_HEAD "n,-5,1,1,T4\n", "f.csv:2:3: field cpu_milli: \"-5\" is negative"},
	{NODES_HEAD "n,99999999999999999999999,1,1,T4\n",
	 "f.csv:2:3: field cpu_milli: \"99999999999999999999999\" is not within 0..1000000000"},
	{NODES_HEAD "n,1,1,17,T4\n", "f.csv:2:7: field gpu: \"17\" is not within 0..16"},
	{NODES_HEAD "n,1,1,1,T4|A10\n",
	 "f.csv:2:9: field model: \"T4|A10\" is not one model: it has a '|'"},
	{NODES_HEAD "n,1,1,1\n", "f.csv:2:1: 4 fields, the header has 5"},
	{NODES_HEAD "n,1,1,1,T4,\n", "f.csv:2:1: 6 fields, the header has 5"},
	{NODES_HEAD ",1,1,1,T4\n", "f.csv:2:1: field sn: \"\" is no name"},
	{NODES_HEAD "a b,1,1,1,T4\n",
	 "f.csv:2:1: field sn: \"a b\" has a blank or an unprintable character"},
	{NODES_HEAD "n,1,1,1,T4\nn,1,1,1,T4\n", "f.csv:3:1: field sn: \"n\" occurs twice"},
	{NODES_HEAD "n,1,1,1,T4\n\nm,1,1,1,T4\n", "f.csv:3:1: an empty line"},
	{NODES_HEAD "\"n\",1,1,1,T4\n", "f.csv:2:1: a quote: quoted fields are not understood"},
	{NODES_HEAD "n,1,\xC3\xBC\x01,1,T4\n",
	 "f.csv:2:5: field memory_mib: \"\\xc3\\xbc\\x01\" is not an integer"},
	{NODES_HEAD "n,1,xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx,1,T4\n",
	 "f.csv:2:5: field memory_mib: "
	 "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\" is not an integer"},
};

static const struct bad bad_pods[] = {
	{PODS_HEAD, "f.csv: no pods"},
	{"name,cpu_milli,memory_mib,num_gpu\np,1,1,1\n",
	 "f.csv:1:1: the header has no column gpu_milli"},
	{PODS_HEAD "p,1,1,1,abc,\n", "f.csv:2:9: field gpu_milli: \"abc\" is not an integer"},
	{PODS_HEAD "p,1,1,1,1001,\n", "f.csv:2:9: field gpu_milli: \"1001\" is not within 1..1000"},
	{PODS_HEAD "p,1,1,1,0,\n", "f.csv:2:9: field gpu_milli: \"0\" is not within 1..1000"},
	{PODS_HEAD "p,1,1,0,500,\n", "f.csv:2:9: field gpu_milli: \"500\" is not within 0..0"},
	{PODS_HEAD "p,1,1,17,1000,\n", "f.csv:2:7: field num_gpu: \"17\" is not within 0..16"},
	{PODS_HEAD "p,1,1,1,5,\np,1,1,1,5,\n", "f.csv:3:1: field name: \"p\" occurs twice"},
	{PODS_HEAD "p,1,1,1,5,T\x01\n",
	 "f.csv:2:11: field gpu_spec: \"T\\x01\" has an unprintable character"},
};

typedef int (*reader_fn)(struct rp_trace *, const char *, const char *, size_t, struct err *);

static void refuse_all(reader_fn read, const struct bad *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct err err = ERR_INIT;
		struct rp_trace t;

		rp_trace_init(&t);
		cr_assert_eq(rp_trace_open(&t, &err), 0);
		cr_expect_lt(read(&t, "f.csv", rows[i].text, strlen(rows[i].text), &err), 0,
			     "row %zu was accepted", i);
		cr_expect_str_eq(err.msg, rows[i].message, "row %zu: %s", i, err.msg);
		rp_trace_fini(&t);
	}
}

Test(replay_openb, refuses_malformed_nodes)
{
	refuse_all(rp_openb_nodes, bad_nodes, sizeof(bad_nodes) / sizeof(bad_nodes[0]));
}

Test(replay_openb, refuses_malformed_pods)
{
	refuse_all(rp_openb_pods, bad_pods, sizeof(bad_pods) / sizeof(bad_pods[0]));
}

Test(replay_openb, refuses_a_nul_and_long_names)
{
	static const char nul[] = NODES_HEAD "n\0m,1,1,1,T4\n";
	char text[512] = NODES_HEAD;
	struct err err = ERR_INIT;
	struct rp_trace t;

	rp_trace_init(&t);
	cr_assert_eq(rp_trace_open(&t, &err), 0);
	cr_assert_lt(rp_openb_nodes(&t, "f", nul, sizeof(nul) - 1, &err), 0);
	cr_assert_str_eq(err.msg, "f:2:2: a NUL byte");
	memset(text + strlen(NODES_HEAD), 'x', 254);
	memcpy(text + strlen(NODES_HEAD) + 254, ",1,1,1,T4\n", 11);
	cr_assert_lt(rp_openb_nodes(&t, "f", text, strlen(text), &err), 0);
	cr_assert_not_null(strstr(err.msg, "is longer than 253 characters"));
	rp_trace_fini(&t);
}

Test(replay_openb, takes_names_of_253_characters_and_many_columns)
{
	char text[1024] = "sn,cpu_milli,memory_mib,gpu,model", row[512];
	struct err err = ERR_INIT;
	struct rp_trace t;

	for (int i = 5; i < 64; i++)
		strncat(text, ",x", sizeof(text) - strlen(text) - 1);
	rp_trace_init(&t);
	cr_assert_eq(rp_trace_open(&t, &err), 0);
	memset(row, 'x', 253);
	snprintf(row + 253, sizeof(row) - 253, ",1,1,1,T4");
	for (int i = 5; i < 64; i++)
		strncat(row, ",", sizeof(row) - strlen(row) - 1);
	strncat(text, "\n", sizeof(text) - strlen(text) - 1);
	strncat(text, row, sizeof(text) - strlen(text) - 1);
	cr_assert_eq(rp_openb_nodes(&t, "f", text, strlen(text), &err), 0, "%s", err.msg);
	text[strcspn(text, "\n")] = ',';
	cr_assert_lt(rp_openb_nodes(&t, "f", text, strlen(text), &err), 0);
	cr_assert_not_null(strstr(err.msg, "more than 64 fields"), "%s", err.msg);
	rp_trace_fini(&t);
}

Test(replay_openb, out_of_memory_is_an_error_everywhere)
{
	int rc = 0;

	OOM_SWEEP(n) {
		struct err err = ERR_INIT;
		struct rp_trace t;
		bool hit;

		rp_trace_init(&t);
		oom_fail_at(n);
		rc = rp_trace_open(&t, &err);
		if (rc == 0)
			rc = rp_openb_nodes(&t, "n", small_nodes, strlen(small_nodes), &err);
		if (rc == 0)
			rc = rp_openb_pods(&t, "p", small_pods, strlen(small_pods), &err);
		hit = oom_disarm();
		rp_trace_fini(&t);
		if (!hit)
			break;
		cr_assert_eq(rc, ERR_NOMEM, "allocation %u: %d", n, rc);
	}
	cr_assert_eq(rc, 0);
}

/* ---- whole files: which form they have ---- */

static const char *temp_file(const char *text, char path[32])
{
	int fd;

	snprintf(path, 32, "/tmp/tessera-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	return path;
}

static int load(struct rp_trace *t, const char *nodes, const char *pods, struct err *err)
{
	char node_path[32], pod_path[32] = "";
	int rc;

	rp_trace_init(t);
	temp_file(nodes, node_path);
	if (pods != NULL)
		temp_file(pods, pod_path);
	rc = rp_trace_load(t, node_path, pods != NULL ? pod_path : node_path, NULL, NULL, err);
	unlink(node_path);
	if (pods != NULL)
		unlink(pod_path);
	return rc;
}

#define JSON_NODE                                                                                     \
	"{\"kind\":\"Node\",\"metadata\":{\"name\":\"j\",\"labels\":{\"nvidia.com/gpu.count\":\"2\"," \
	"\"nvidia.com/gpu.memory\":\"40000\",\"nvidia.com/gpu.product\":\"A100\"}},\"status\":{"      \
	"\"allocatable\":{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":\"110\"}}}"
#define JSON_POD(name, annotations)                                                                \
	"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"" name                                         \
	"\",\"namespace\":\"x\",\"uid\":\"" name "\",\"annotations\":{" annotations                \
	"}},\"spec\":{\"containers\":[{\"name\":\"main\"}]},"                                      \
	"\"status\":{\"phase\":\"Pending\"}}"
#define JSON_LIST(items) "{\"kind\":\"List\",\"items\":[" items "]}"

Test(replay_trace, one_file_in_json_gives_nodes_and_pending_pods)
{
	struct err err = ERR_INIT;
	struct rp_trace t;

	cr_assert_eq(
		load(&t,
		     JSON_LIST(JSON_NODE "," JSON_POD("p", "\"gpu-fraction\":\"0.5\"") "," JSON_POD(
			     "q", "\"gpu-memory\":\"10000\"")),
		     NULL, &err),
		0, "%s", err.msg);
	cr_assert(rp_trace_pods_are_json(&t));
	cr_assert_eq(t.pod_count, 2);
	cr_assert_str_eq(strpool_str(t.pod_names, 0), "x/p");
	cr_assert_eq(t.shapes[t.pods[0]].milli, 500);
	cr_assert_eq(t.shapes[t.pods[1]].milli, 250);
	cr_assert_eq(t.gpu_milli, 2000);
	rp_trace_fini(&t);
}

Test(replay_trace, pods_with_wrong_requests_are_left_out_and_counted)
{
	struct err err = ERR_INIT;
	struct rp_trace t;

	cr_assert_eq(
		load(&t,
		     JSON_LIST(JSON_NODE "," JSON_POD("p", "\"gpu-fraction\":\"1.5\"") "," JSON_POD(
			     "q", "\"gpu-memory\":\"10000\"")),
		     NULL, &err),
		0, "%s", err.msg);
	cr_assert_eq(t.pod_count, 1);
	cr_assert_eq(t.refused, 1);
	rp_trace_fini(&t);
}

Test(replay_trace, a_pod_table_on_nodes_in_json_asks_for_fractions)
{
	struct err err = ERR_INIT;
	struct rp_trace t;

	cr_assert_eq(load(&t, JSON_LIST(JSON_NODE), PODS_HEAD "p,1000,10,1,810,\n", &err), 0, "%s",
		     err.msg);
	cr_assert(!rp_trace_pods_are_json(&t));
	cr_assert_eq(t.shapes[t.pods[0]].req.items[0].request_nano, 810000000);
	cr_assert_eq(t.shapes[t.pods[0]].milli, 810);
	rp_trace_fini(&t);
}

Test(replay_trace, says_what_is_wrong_with_whole_files)
{
	static const struct {
		const char *nodes, *pods, *message;
	} rows[] = {
		{small_nodes, NULL, "one file for nodes and pods must be a cluster in JSON"},
		{small_nodes, JSON_LIST(JSON_NODE), "pods in JSON need the nodes in JSON too"},
		{JSON_LIST(JSON_NODE), NULL, "no pending pods"},
		{JSON_LIST(), NULL, "no nodes"},
		{"{\"kind\":\"List\",\"items\":[", NULL, "/tmp/tessera-"},
		{"", small_pods, ":1:1: no header line"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;
		struct rp_trace t;

		cr_expect_lt(load(&t, rows[i].nodes, rows[i].pods, &err), 0, "row %zu", i);
		cr_expect_not_null(strstr(err.msg, rows[i].message), "row %zu: %s", i, err.msg);
		rp_trace_fini(&t);
	}
}

Test(replay_trace, a_missing_file_is_named)
{
	struct err err = ERR_INIT;
	struct rp_trace t;

	rp_trace_init(&t);
	cr_assert_eq(rp_trace_load(&t, "/nonexistent/n.csv", "/nonexistent/p.csv", NULL, NULL,
				   &err),
		     ERR_IO);
	cr_assert_not_null(strstr(err.msg, "/nonexistent/n.csv"));
	rp_trace_fini(&t);
}

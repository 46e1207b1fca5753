#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "kube/object.h"
#include "state/contract.h"
#include "test/lib/oom.h"

static cJSON *json(const char *text)
{
	struct err err = ERR_INIT;
	cJSON *tree = NULL;

	cr_assert_eq(ku_json_parse(text, strlen(text), &tree, &err), 0, "%s: %s", text, err.msg);
	return tree;
}

/* ---- pods ---- */

static void put_pod(struct buf *b, const struct st_pod_spec *p)
{
	buf_printf(b,
		   "%s/%s uid=%s node=%s nominated=%s sched=%s prio=%d phase=%d%s%s over=%lld/%lld",
		   p->ns, p->name, p->uid, p->node, p->nominated_node, p->scheduler, p->priority,
		   p->phase, p->deleting ? " deleting" : "", p->gated ? " gated" : "",
		   (long long)p->overhead_cpu_milli, (long long)p->overhead_mem_bytes);
	if (p->pod_cpu_given)
		buf_printf(b, " cpu=%lld", (long long)p->pod_cpu_milli);
	if (p->pod_mem_given)
		buf_printf(b, " mem=%lld", (long long)p->pod_mem_bytes);
	for (size_t i = 0; i < p->annotation_count; i++)
		buf_printf(b, " @%s=%s", p->annotations[i].key, p->annotations[i].value);
	for (size_t i = 0; i < p->container_count; i++) {
		const struct st_container_spec *c = &p->containers[i];

		buf_printf(b, " %s%s[%lld,%lld",
			   c->sidecar ? "s:"
			   : c->init  ? "i:"
				      : "",
			   c->name, (long long)c->cpu_milli, (long long)c->mem_bytes);
		for (size_t k = 0; k < c->resource_count; k++)
			buf_printf(b, ",%s=%s", c->resources[k].key, c->resources[k].value);
		buf_putc(b, ']');
	}
}

struct row {
	const char *text, *want; /* want: as put_pod() prints, or "!" and the message */
};

Test(kube_object, pods)
{
#define POD(rest) "{\"metadata\":{\"name\":\"p\"}," rest "}"
#define PLAIN "default/p uid= node= nominated= sched= prio=0 phase=0 over=0/0"
#define CONTAINER(rest) POD("\"spec\":{\"containers\":[{\"name\":\"c\"," rest "}]}")
#define RES(rest) CONTAINER("\"resources\":{" rest "}")
	static const struct row rows[] = {
		{"{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"u\","
		 "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",\"annotations\":{\"b\":\"2\",\"a\":\"1\","
		 "\"b\":\"3\",\"c\":null}},\"spec\":{\"nodeName\":\"x\",\"schedulerName\":\"t\","
		 "\"priority\":-5,\"schedulingGates\":[{\"name\":\"g\"}],\"overhead\":{\"cpu\":\"0.1\","
		 "\"memory\":\"1Ki\"},\"initContainers\":[{\"name\":\"i\"},{\"name\":\"s\","
		 "\"restartPolicy\":\"Always\"}],\"containers\":[{\"name\":\"m\",\"restartPolicy\":"
		 "\"Always\"}]},\"status\":{\"phase\":\"Running\",\"nominatedNodeName\":\"y\"}}",
		 "n/p uid=u node=x nominated=y sched=t prio=-5 phase=1 deleting gated over=100/1024 "
		 "@a=1 @b=3 @c= i:i[0,0] s:s[0,0] m[0,0]"},
		{"{\"metadata\":{\"name\":\"p\"}}", PLAIN},
		{POD("\"spec\":null,\"status\":null,\"extra\":[{}]"), PLAIN},
		{POD("\"spec\":{\"containers\":null,\"nodeName\":null,\"priority\":null}"), PLAIN},
		{POD("\"spec\":{\"resources\":{\"requests\":{\"cpu\":\"1500m\",\"memory\":\"1Ki\"}}}"),
		 PLAIN " cpu=1500 mem=1024"},
		{POD("\"spec\":{\"resources\":{\"limits\":{\"cpu\":\"2\"}}}"), PLAIN},
		{POD("\"spec\":{\"resources\":{\"requests\":{\"cpu\":\"0\"}}}"), PLAIN " cpu=0"},
		{POD("\"spec\":{\"resources\":{\"requests\":{\"cpu\":\"many\"}}}"),
		 "!spec.resources.requests.cpu: quantity \"many\" does not start with a number"},
		{POD("\"status\":{\"phase\":\"Succeeded\"}"),
		 "default/p uid= node= nominated= sched= prio=0 phase=2 over=0/0"},
		{POD("\"status\":{\"phase\":\"Failed\"}"),
		 "default/p uid= node= nominated= sched= prio=0 phase=3 over=0/0"},
		{POD("\"status\":{\"phase\":\"Unknown\"}"),
		 "default/p uid= node= nominated= sched= prio=0 phase=1 over=0/0"},
		{RES("\"requests\":{\"cpu\":\"100m\",\"memory\":\"1Gi\"}"),
		 PLAIN " c[100,1073741824]"},
		{RES("\"limits\":{\"cpu\":\"0.0001\",\"memory\":\"1e3\"}"), PLAIN " c[1,1000]"},
		{RES("\"requests\":{\"cpu\":\"250m\"},\"limits\":{\"cpu\":\"2\",\"memory\":\"64M\"}"),
		 PLAIN " c[250,64000000]"},
		{RES("\"requests\":{\"cpu\":0.1,\"memory\":1048576}"), PLAIN " c[100,1048576]"},
		{RES("\"limits\":{\"x/b\":\"4k\",\"x/a\":2,\"cpu\":\"1\",\"hugepages-2Mi\":\"1Gi\"},"
		     "\"requests\":{\"x/c\":\"1\",\"x/b\":\"9\"}"),
		 PLAIN " c[1000,0,x/a=2,x/b=4k,x/c=1]"},
		{RES("\"limits\":{\"x/a\":\"1\",\"x/a\":\"2\"}"), PLAIN " c[0,0,x/a=2]"},
		{"[]", "!pod: is an array, not an object"},
		{"{}", "!metadata.name: is missing"},
		{"{\"metadata\":{\"name\":5}}", "!metadata.name: is a number, not a string"},
		{"{\"metadata\":[]}", "!metadata: is an array, not an object"},
		{"{\"metadata\":{\"name\":\"p\",\"annotations\":{\"k\":true}}}",
		 "!metadata.annotations.k: is true or false, not a string"},
		{"{\"metadata\":{\"name\":\"p\",\"annotations\":\"k\"}}",
		 "!metadata.annotations: is a string, not an object"},
		{POD("\"spec\":7"), "!spec: is a number, not an object"},
		{POD("\"spec\":{\"nodeName\":{}}"), "!spec.nodeName: is an object, not a string"},
		{POD("\"spec\":{\"priority\":\"1\"}"), "!spec.priority: is a string, not a number"},
		{POD("\"spec\":{\"priority\":1.5}"), "!spec.priority: 1.5 is not an integer"},
		{POD("\"spec\":{\"priority\":3000000000}"),
		 "!spec.priority: 3000000000 is not between -2147483648 and 2147483647"},
		{POD("\"spec\":{\"containers\":{}}"),
		 "!spec.containers: is an object, not an array"},
		{POD("\"spec\":{\"containers\":[{\"name\":\"a\"},7]}"),
		 "!spec.containers[1].container: is a number, not an object"},
		{POD("\"spec\":{\"initContainers\":[{}]}"),
		 "!spec.initContainers[0].name: is missing"},
		{POD("\"status\":{\"phase\":1}"), "!status.phase: is a number, not a string"},
		{RES("\"requests\":{\"cpu\":\"fast\"}"),
		 "!spec.containers[0].resources.requests.cpu: quantity \"fast\" does not start with a "
		 "number"},
		{RES("\"requests\":{\"memory\":\"-1Gi\"}"),
		 "!spec.containers[0].resources.requests.memory: quantity \"-1Gi\" is negative"},
		{RES("\"limits\":{\"memory\":\"9Ei\"}"),
		 "!spec.containers[0].resources.limits.memory: quantity \"9Ei\" is too large"},
		{RES("\"limits\":{\"x/a\":[]}"),
		 "!spec.containers[0].resources.limits.x/a: is an array, not a quantity"},
		{RES("\"limits\":{\"x/a\":1e300}"),
		 "!spec.containers[0].resources.limits.x/a: 1.0000000000000001e+300 must be written as a "
		 "string"},
		{RES("\"requests\":[]"),
		 "!spec.containers[0].resources.requests: is an array, not an object"},
	};
	struct ku_arena *a = ku_arena_new();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cJSON *tree = json(rows[i].text);
		struct st_pod_spec pod;
		struct err err = ERR_INIT;
		struct buf b = BUF_INIT;
		int r = ku_pod_decode(tree, a, &pod, &err);

		cJSON_Delete(tree); /* nothing may point into it */
		if (r == 0)
			put_pod(&b, &pod);
		else
			buf_printf(&b, "!%s", err.msg);
		cr_expect_str_eq(buf_str(&b), rows[i].want, "row %zu\n got %s\nwant %s", i,
				 buf_str(&b), rows[i].want);
		buf_fini(&b);
		ku_arena_reset(a);
	}
	ku_arena_free(a);
}

/* ---- lists ---- */

struct seen {
	struct buf b;
	int fail_at;
};

static int see_node(void *ctx, const struct st_node_spec *n, struct err *err)
{
	struct seen *s = ctx;

	buf_printf(&s->b, " N:%s", n->name);
	return --s->fail_at == 0 ? err_set(err, ERR_CONFLICT, "metadata.name: stop") : 0;
}

static int see_pod(void *ctx, const struct st_pod_spec *p, struct err *err)
{
	struct seen *s = ctx;

	buf_printf(&s->b, " P:%s", p->name);
	return --s->fail_at == 0 ? err_set(err, ERR_CONFLICT, "metadata.name: stop") : 0;
}

Test(kube_object, lists)
{
#define ITEM(kind, name) "{\"kind\":\"" kind "\",\"metadata\":{\"name\":\"" name "\"}}"
	static const struct row rows[] = {
		{"{\"kind\":\"List\",\"items\":[" ITEM("Pod", "a") "," ITEM("Node", "b") "," ITEM(
			 "Secret", "c") "," ITEM("Pod", "d") "]}",
		 " P:a N:b P:d"},
		{"{\"kind\":\"NodeList\",\"items\":[{\"metadata\":{\"name\":\"b\"}}]}", " N:b"},
		{"{\"kind\":\"PodList\",\"items\":[{\"metadata\":{\"name\":\"b\"}}]}", " P:b"},
		{ITEM("Pod", "a"), " P:a"},
		{ITEM("Node", "a"), " N:a"},
		{"{\"kind\":\"List\"}", ""},
		{"{\"kind\":\"List\",\"items\":null}", ""},
		{"[]", "!list: is an array, not an object"},
		{"{\"items\":[]}", "!kind: \"\" is not List, NodeList, PodList, Node or Pod"},
		{"{\"kind\":\"Secret\"}",
		 "!kind: \"Secret\" is not List, NodeList, PodList, Node or "
		 "Pod"},
		{"{\"kind\":7}", "!kind: is a number, not a string"},
		{"{\"kind\":\"List\",\"items\":{}}", "!items: is an object, not an array"},
		{"{\"kind\":\"List\",\"items\":[null]}", "!items[0].item: is null, not an object"},
		{"{\"kind\":\"List\",\"items\":[" ITEM("Pod", "a") ",{\"kind\":\"Pod\"}]}",
		 "!items[1].metadata.name: is missing"},
		{"{\"kind\":\"List\",\"items\":[{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"},"
		 "\"spec\":{\"nodeName\":1}}]}",
		 "!items[0].spec.nodeName: is a number, not a string"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct seen s = {BUF_INIT, 0};
		const struct ku_list_visitor v = {see_node, see_pod, &s}, none = {NULL, NULL, NULL};
		cJSON *tree = json(rows[i].text);
		struct err err = ERR_INIT;

		if (ku_list_decode(tree, &v, &err) != 0) {
			buf_reset(&s.b);
			buf_printf(&s.b, "!%s", err.msg);
		} else {
			cr_expect_eq(ku_list_decode(tree, &none, &err), 0);
		}
		cr_expect_str_eq(buf_str(&s.b), rows[i].want);
		buf_fini(&s.b);
		cJSON_Delete(tree);
	}
}

Test(kube_object, callback_stops)
{
	struct seen s = {BUF_INIT, 2};
	const struct ku_list_visitor v = {see_node, see_pod, &s};
	cJSON *tree = json("{\"kind\":\"List\",\"items\":[" ITEM("Pod", "a") "," ITEM(
		"Node", "b") "," ITEM("Pod", "c") "]}");
	struct err err = ERR_INIT;

	cr_assert_eq(ku_list_decode(tree, &v, &err), ERR_CONFLICT);
	cr_assert_str_eq(err.msg, "items[1].metadata.name: stop");
	cr_assert_str_eq(buf_str(&s.b), " P:a N:b");
	buf_fini(&s.b);
	cJSON_Delete(tree);
}

/* ---- real bodies ---- */

static void decode_capture(const char *path, int *pods, int *nodes, int *bad_nodes)
{
	struct ku_arena *a = ku_arena_new();
	const cJSON *pod, *items, *item;
	struct err err = ERR_INIT;
	struct st_request req;
	struct st_pod_spec p;
	struct st_node_spec n;
	size_t len = 0;
	char *text = NULL;
	cJSON *tree;

	cr_assert_eq(file_read(path, 1 << 20, &text, &len, &err), 0, "%s", err.msg);
	cr_assert_eq(ku_json_parse(text, len, &tree, &err), 0, "%s: %s", path, err.msg);
	pod = ku_json_get(tree, "Pod");
	if (pod != NULL) {
		cr_assert_eq(ku_pod_decode(pod, a, &p, &err), 0, "%s: %s", path, err.msg);
		cr_assert_eq(strlen(p.uid), 36, "%s", path);
		cr_assert_str_eq(p.node, "");
		cr_assert_gt(p.container_count, 0);
		cr_assert_eq(st_contract_parse(&p, NULL, &req, NULL, &err), 0, "%s", err.msg);
		++*pods;
	}
	items = ku_json_get(ku_json_get(tree, "Nodes"), "items");
	cJSON_ArrayForEach(item, items)
	{
		int r = ku_node_decode(item, a, &n, &err);

		*nodes += r == 0;
		*bad_nodes += r != 0;
		if (r == 0)
			cr_assert(n.cpu_milli > 0 && n.mem_mib > 0 && n.pods > 0, "%s", path);
		else
			cr_assert_str_eq(err.msg, "metadata.labels.nvidia.com/gpu.count: "
						  "\"value-of-count\" is not an integer");
	}
	cJSON_Delete(tree);
	free(text);
	ku_arena_free(a);
}

Test(kube_object, captures)
{
	static const char *const folders[] = {"test/golden/captures/k8s-1.32",
					      "test/golden/captures/k8s-1.36"};
	int files = 0, pods = 0, nodes = 0, bad_nodes = 0;

	for (int i = 0; i < 2; i++) {
		DIR *d = opendir(folders[i]);
		struct dirent *e;

		cr_assert_not_null(d, "%s", folders[i]);
		while ((e = readdir(d)) != NULL) {
			char path[512];

			if (e->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "%s/%s", folders[i], e->d_name);
			decode_capture(path, &pods, &nodes, &bad_nodes);
			files++;
		}
		closedir(d);
	}
	cr_assert_eq(files, 24);
	cr_assert_eq(pods, 18);
	cr_assert_eq(nodes, 5);
	cr_assert_eq(bad_nodes, 6);
}

/* The pod with everything in it, as one line. */
Test(kube_object, capture_of_the_rich_pod)
{
	static const char want[] =
		"default/rich uid=2bdf380c-5b80-4a6a-96f4-b11792e81287 node= nominated= "
		"sched=default-scheduler prio=0 phase=0 over=0/0 i:init1[0,0] "
		"s:side[0,0,example.com/gpu-mem=512] i:warm[2000,0,example.com/gpu-mem=8192] "
		"main[500,1073741824,example.com/gpu-mem=4k] aux[250,0,example.com/gpu-mem=1Ki] "
		"nogpu[0,0]";
	struct ku_arena *a = ku_arena_new();
	struct buf b = BUF_INIT;
	struct st_pod_spec p;
	size_t len = 0;
	char *text = NULL;
	cJSON *tree;

	cr_assert_eq(file_read("test/golden/captures/k8s-1.36/001-filter.request.json", 1 << 20,
			       &text, &len, NULL),
		     0);
	cr_assert_eq(ku_json_parse(text, len, &tree, NULL), 0);
	cr_assert_eq(ku_pod_decode(ku_json_get(tree, "Pod"), a, &p, NULL), 0);
	cr_assert_eq(p.annotation_count, 4);
	cr_assert_str_eq(st_pod_annotation(&p, "json"), "{\"NodeNames\":[\"decoy\"]}");
	cr_assert_str_eq(st_pod_annotation(&p, "note"),
			 "quotes \" and \\ and unicode ü 漢字 and \a ctl");
	p.annotation_count = 0;
	put_pod(&b, &p);
	cr_assert_str_eq(buf_str(&b), want);
	buf_fini(&b);
	cJSON_Delete(tree);
	free(text);
	ku_arena_free(a);
}

/* Fields of other versions and invented ones, also where they look like ours. */
Test(cases_kube, case_39_fields_we_do_not_know)
{
	static const char text[] =
		"{\"kind\":\"List\",\"items\":[{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
		"\"managedFields\":[{\"fieldsV1\":{\"f:spec\":{\"f:nodeName\":7}}}],\"Name\":\"q\"},"
		"\"spec\":{\"enableServiceLinks\":true,\"NodeName\":[],\"future\":{\"nodeName\":1},"
		"\"containers\":[{\"name\":\"c\",\"resources\":{\"claims\":[{\"name\":\"x\"}]}}]},"
		"\"status\":{\"resize\":null}}]}";
	struct seen s = {BUF_INIT, 0};
	const struct ku_list_visitor v = {see_node, see_pod, &s};
	cJSON *tree = json(text);

	cr_assert_eq(ku_list_decode(tree, &v, NULL), 0);
	cr_assert_str_eq(buf_str(&s.b), " P:p");
	buf_fini(&s.b);
	cJSON_Delete(tree);
}

Test(kube_object, oom_sweep)
{
	const struct ku_list_visitor v = {NULL, NULL, NULL};
	cJSON *pod = json(CONTAINER("\"resources\":{\"limits\":{\"x/a\":\"1\"}}"));
	cJSON *node = json(
		"{\"metadata\":{\"name\":\"n\",\"labels\":{\"nvidia.com/gpu.count\":\"2\","
		"\"nvidia.com/gpu.memory\":\"46068\",\"nvidia.com/gpu.product\":\"NVIDIA-L40S\"}}}");
	cJSON *list = json("{\"kind\":\"List\",\"items\":[]}");

	for (int what = 0; what < 3; what++) {
		unsigned failed = 0;

		OOM_SWEEP(n) {
			struct ku_arena *a;
			struct st_pod_spec p;
			struct st_node_spec s;
			int r = ERR_NOMEM;
			bool hit;

			oom_fail_at(n);
			a = ku_arena_new();
			if (a != NULL)
				r = what == 0   ? ku_pod_decode(pod, a, &p, NULL)
				    : what == 1 ? ku_node_decode(node, a, &s, NULL)
						: ku_list_decode(list, &v, NULL);
			hit = oom_disarm();
			ku_arena_free(a);
			if (!hit) {
				cr_assert_eq(r, 0);
				break;
			}
			cr_assert_eq(r, ERR_NOMEM);
			failed++;
		}
		cr_assert_geq(failed, 2);
	}
	cJSON_Delete(pod);
	cJSON_Delete(node);
	cJSON_Delete(list);
}

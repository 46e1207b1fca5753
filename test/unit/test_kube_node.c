#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kube/object.h"

static cJSON *json(const char *text)
{
	struct err err = ERR_INIT;
	cJSON *tree = NULL;

	cr_assert_eq(ku_json_parse(text, strlen(text), &tree, &err), 0, "%s: %s", text, err.msg);
	return tree;
}

struct row {
	const char *text, *want; /* want: as put_node() prints, or "!" and the message */
};

static void put_gpu(struct buf *b, const struct st_gpu_spec *g)
{
	buf_printf(b, " %s:%d%s%s%s%s", g->uuid != NULL ? g->uuid : "-", g->mem_mib,
		   g->unhealthy ? ":sick" : "", g->foreign != NULL ? ":" : "",
		   g->foreign != NULL ? g->foreign : "", g->mig_enabled ? ":mig" : "");
	if (g->has_geometry)
		buf_printf(b, ":%d/%d", g->geometry.compute_total, g->geometry.units_total);
	for (int i = 0; g->has_geometry && i < g->geometry.profile_count; i++) {
		const struct st_mig_profile *p = &g->geometry.profiles[i];

		buf_printf(b, ":%s=%d,%d,%d,%d,%d,%d", p->name, p->id, p->mem_mib,
			   p->compute_slices, p->units, p->max_instances, p->attrs);
		for (int k = 0; k < p->start_count; k++)
			buf_printf(b, "@%d", p->starts[k]);
	}
	for (size_t i = 0; i < g->instance_count; i++)
		buf_printf(b, ":%s@%d", g->instances[i].profile, g->instances[i].start);
}

static void put_node(struct buf *b, const struct st_node_spec *n)
{
	buf_printf(b, "%s %s cpu=%lld mem=%lld pods=%d", n->name,
		   n->product != NULL ? n->product : "-", (long long)n->cpu_milli,
		   (long long)n->mem_mib, n->pods);
	if (n->unready)
		buf_printf(b, " unready(%s)", n->why_unready);
	if (n->from_inventory)
		buf_puts(b, " inventory");
	for (size_t i = 0; i < n->gpu_count; i++)
		put_gpu(b, &n->gpus[i]);
}

static void check_nodes(const struct row *rows, size_t count)
{
	struct ku_arena *a = ku_arena_new();

	for (size_t i = 0; i < count; i++) {
		cJSON *tree = json(rows[i].text);
		struct st_node_spec node;
		struct err err = ERR_INIT;
		struct buf b = BUF_INIT;
		int r = ku_node_decode(tree, a, &node, &err);

		cJSON_Delete(tree);
		if (r == 0)
			put_node(&b, &node);
		else
			buf_printf(&b, "!%s", err.msg);
		cr_expect_str_eq(buf_str(&b), rows[i].want, "row %zu\n got %s\nwant %s", i,
				 buf_str(&b), rows[i].want);
		buf_fini(&b);
		ku_arena_reset(a);
	}
	ku_arena_free(a);
}

#define CHECK_NODES(rows) check_nodes(rows, sizeof(rows) / sizeof((rows)[0]))
#define NODE(rest) "{\"metadata\":{\"name\":\"n\"}," rest "}"
#define LABELS(labels) "{\"metadata\":{\"name\":\"n\",\"labels\":{" labels "}}}"
#define COUNT(n) "\"nvidia.com/gpu.count\":\"" n "\""
#define MEMORY(n) "\"nvidia.com/gpu.memory\":\"" n "\""
#define PRODUCT(n) "\"nvidia.com/gpu.product\":\"" n "\""
#define NONE "n - cpu=0 mem=0 pods=0"

Test(kube_node, host)
{
	static const struct row rows[] = {
		{NODE("\"status\":{\"allocatable\":{\"cpu\":\"127500m\",\"memory\":\"1048577Ki\","
		      "\"pods\":\"110\"},\"capacity\":{\"cpu\":\"128\",\"memory\":\"2Ti\"}}"),
		 "n - cpu=127500 mem=1024 pods=110"},
		{NODE("\"status\":{\"capacity\":{\"cpu\":8,\"memory\":\"1Gi\",\"pods\":\"5\"}}"),
		 "n - cpu=8000 mem=1024 pods=5"},
		{NODE("\"spec\":{\"unschedulable\":true}"), NONE " unready(is cordoned)"},
		{NODE("\"spec\":{\"unschedulable\":false}"), NONE},
		{"{\"metadata\":{\"name\":\"n\",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"}}",
		 NONE " unready(is being deleted)"},
		{NODE("\"status\":{\"conditions\":[{\"type\":\"DiskPressure\",\"status\":\"False\"},"
		      "{\"type\":\"Ready\",\"status\":\"True\"}]}"),
		 NONE},
		{NODE("\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\","
		      "\"reason\":\"KubeletNotReady\"}]}"),
		 NONE " unready(Ready is False: KubeletNotReady)"},
		{NODE("\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"Unknown\"}]}"),
		 NONE " unready(Ready is Unknown)"},
		{NODE("\"status\":{\"conditions\":[{\"type\":\"TesseraReady\",\"status\":\"False\","
		      "\"reason\":\"MpsFault\"},{\"type\":\"Ready\",\"status\":\"False\"}]}"),
		 NONE " unready(TesseraReady is False: MpsFault)"},
		{"7", "!node: is a number, not an object"},
		{"{\"metadata\":{}}", "!metadata.name: is missing"},
		{NODE("\"spec\":{\"unschedulable\":\"yes\"}"),
		 "!spec.unschedulable: is a string, not true or false"},
		{NODE("\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":true}]}"),
		 "!status.conditions[0].status: is true or false, not a string"},
		{NODE("\"status\":{\"conditions\":[null]}"),
		 "!status.conditions[0].condition: is null, not an object"},
		{NODE("\"status\":{\"allocatable\":{\"cpu\":\"many\"}}"),
		 "!status.allocatable.cpu: quantity \"many\" does not start with a number"},
		{NODE("\"status\":{\"capacity\":{\"memory\":{}}}"),
		 "!status.capacity.memory: is an object, not a quantity"},
	};

	CHECK_NODES(rows);
}

Test(kube_node, labels)
{
#define PARTITIONED                                                                                \
	" unready(GPUs are partitioned by MIG and the node has no tessera.dev/inventory)"
	static const struct row rows[] = {
		{LABELS(COUNT("2") "," MEMORY("46068") "," PRODUCT("NVIDIA-L40S")),
		 "n NVIDIA-L40S cpu=0 mem=0 pods=0 -:46068 -:46068"},
		{LABELS(COUNT("1") "," MEMORY("15360") "," PRODUCT("Tesla-T4-SHARED")),
		 "n Tesla-T4 cpu=0 mem=0 pods=0 -:15360"},
		{LABELS(COUNT("1") "," MEMORY("15360")), "n - cpu=0 mem=0 pods=0 -:15360"},
		{LABELS(COUNT("0")), NONE},
		{LABELS(PRODUCT("X")), "n X cpu=0 mem=0 pods=0"},
		{LABELS(COUNT("16") "," MEMORY("1")),
		 NONE " -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1 -:1"},
		/* Strategy "single": count and memory are those of the instances. */
		{LABELS(COUNT("7") "," MEMORY("4864") "," PRODUCT(
			 "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")),
		 "n NVIDIA-A100-SXM4-40GB-MIG-1g.5gb cpu=0 mem=0 pods=0" PARTITIONED},
		{LABELS(COUNT("8") "," MEMORY("40960") ",\"nvidia.com/mig-1g.5gb.count\":\"7\""),
		 NONE PARTITIONED},
		{LABELS(COUNT("1") "," MEMORY(
			 "40960") ",\"nvidia.com/mig-1g.5gb.count\":\"0\","
				  "\"nvidia.com/mig.strategy\":\"mixed\",\"nvidia.com/mig.capable\":\"true\""),
		 NONE " -:40960"},
		{"{\"metadata\":{\"name\":\"n\",\"labels\":{" COUNT("1") "," MEMORY(
			 "40960") "}},"
				  "\"status\":{\"allocatable\":{\"nvidia.com/mig-1g.5gb\":\"7\"}}}",
		 NONE PARTITIONED},
		{"{\"metadata\":{\"name\":\"n\",\"labels\":{" COUNT("1") "," MEMORY(
			 "40960") "}},"
				  "\"status\":{\"allocatable\":{\"nvidia.com/mig-1g.5gb\":\"0\"}}}",
		 NONE " -:40960"},
		{LABELS(COUNT("two")),
		 "!metadata.labels.nvidia.com/gpu.count: \"two\" is not an integer"},
		{LABELS(COUNT("-1")),
		 "!metadata.labels.nvidia.com/gpu.count: \"-1\" is not between 0 "
		 "and 16"},
		{LABELS(COUNT("17")),
		 "!metadata.labels.nvidia.com/gpu.count: \"17\" is not between 0 "
		 "and 16"},
		{LABELS(COUNT("1")),
		 "!metadata.labels.nvidia.com/gpu.memory: is missing or 0 beside "
		 "nvidia.com/gpu.count: \"1\""},
		{LABELS(COUNT("1") "," MEMORY("0")),
		 "!metadata.labels.nvidia.com/gpu.memory: is missing or 0 beside nvidia.com/gpu.count: "
		 "\"1\""},
		{LABELS(COUNT("1") "," MEMORY("40Gi")),
		 "!metadata.labels.nvidia.com/gpu.memory: \"40Gi\" is not an integer"},
		{LABELS("\"nvidia.com/gpu.count\":8"),
		 "!metadata.labels.nvidia.com/gpu.count: is a number, not a string"},
	};

	CHECK_NODES(rows);
}

/* ---- inventories ---- */

#define GPU(more) "{\"uuid\":\"GPU-1\",\"index\":0,\"mem_mib\":81920" more "}"
#define INVENTORY(gpus) "{\"version\":1,\"gpus\":[" gpus "]}"
#define MIG(more) ",\"mig\":{\"capable\":true,\"enabled\":true" more "}"
#define PROFILE(name, more) "{\"name\":\"" name "\",\"compute\":3,\"units\":4,\"max\":2" more "}"
#define GEOMETRY(profiles) ",\"geometry\":{\"compute\":7,\"units\":8,\"profiles\":[" profiles "]}"

/* The node's name, then what the inventory makes of it. */
Test(kube_node, inventories)
{
#define BAD " unready(tessera.dev/inventory cannot be read: "
	static const struct row rows[] = {
		{"{\"version\":1,\"driver\":\"580.95.05\",\"features\":[\"mps-v3\"],\"gpus\":["
		 "{\"uuid\":\"GPU-b\",\"index\":1,\"product\":\"NVIDIA A100\",\"mem_mib\":40960,"
		 "\"healthy\":false,\"foreign\":\"pid 4711\"},"
		 "{\"uuid\":\"GPU-a\",\"index\":0,\"product\":\"NVIDIA A100\",\"mem_mib\":40960,"
		 "\"healthy\":true,\"foreign\":null,\"mig\":{\"capable\":true,\"enabled\":false,"
		 "\"geometry\":null,\"instances\":[]}}],\"later\":{}}",
		 "n NVIDIA A100 cpu=0 mem=0 pods=0 inventory GPU-a:40960 GPU-b:40960:sick:pid 4711"},
		{INVENTORY(""), NONE " inventory"},
		{INVENTORY(GPU("")), NONE " inventory GPU-1:81920"},
		{INVENTORY(GPU(MIG(GEOMETRY(PROFILE(
			 "3g.40gb",
			 ",\"id\":9,\"mem_mib\":40320,\"starts\":"
			 "[0,4]") "," PROFILE("1g.10gb+me",
					      "")) ",\"instances\":[{\"profile\":\"3g.40gb\","
						   "\"start\":4}]"))),
		 NONE " inventory GPU-1:81920:mig:7/8:3g.40gb=9,40320,3,4,2,0@0@4:1g.10gb+me="
		      "-1,0,3,4,2,1:3g.40gb@4"},
		{INVENTORY(
			 GPU(",\"product\":\"A\"") ",{\"uuid\":\"GPU-2\",\"index\":5,\"mem_mib\":1,"
						   "\"product\":\"B\"}"),
		 NONE " inventory GPU-1:81920 GPU-2:1"},
		{"", NONE BAD "JSON, byte 0: the text ends too early)"},
		{"{\"version\":1", NONE BAD "JSON, byte 12: the text ends too early)"},
		{"[]", NONE BAD "inventory: is an array, not an object)"},
		{"{\"gpus\":[]}", NONE BAD "version: 0 is not 1)"},
		{"{\"version\":2,\"gpus\":[]}", NONE BAD "version: 2 is not 1)"},
		{"{\"version\":1}", NONE BAD "gpus: is missing)"},
		{"{\"version\":1,\"gpus\":{}}", NONE BAD "gpus: is an object, not an array)"},
		{"{\"version\":1,\"features\":\"mig\",\"gpus\":[]}",
		 NONE BAD "features: is a string, not an array)"},
		{INVENTORY("7"), NONE BAD "gpus[0].gpu: is a number, not an object)"},
		{INVENTORY("{\"index\":0,\"mem_mib\":1}"),
		 NONE BAD "gpus[0].uuid: \"\" is not a GPU UUID)"},
		{INVENTORY("{\"uuid\":\"GPU 1\",\"index\":0,\"mem_mib\":1}"),
		 NONE BAD "gpus[0].uuid: \"GPU 1\" is not a GPU UUID)"},
		{INVENTORY("{\"uuid\":\"a\",\"mem_mib\":1}"),
		 NONE BAD "gpus[0].index: is missing)"},
		{INVENTORY("{\"uuid\":\"a\",\"index\":0}"),
		 NONE BAD "gpus[0].mem_mib: is missing)"},
		{INVENTORY("{\"uuid\":\"a\",\"index\":0,\"mem_mib\":0}"),
		 NONE BAD "gpus[0].mem_mib: 0 is not between 1 and 2147483647)"},
		{INVENTORY("{\"uuid\":\"a\",\"index\":0,\"mem_mib\":1e300}"), NONE BAD
		 "gpus[0].mem_mib: 1.0000000000000001e+300 is not between 1 and 2147483647)"},
		{INVENTORY(GPU(",\"healthy\":\"no\"")),
		 NONE BAD "gpus[0].healthy: is a string, not true or false)"},
		{INVENTORY(GPU("") "," GPU("")), NONE BAD "gpus[1].index: 0 is there twice)"},
		{INVENTORY(GPU("") ",{\"uuid\":\"GPU-1\",\"index\":1,\"mem_mib\":1}"),
		 NONE BAD "gpus[1].uuid: \"GPU-1\" is there twice)"},
		{INVENTORY(GPU(",\"mig\":{\"enabled\":true}")),
		 NONE BAD "gpus[0].mig.enabled: true on a GPU that is not capable)"},
		{INVENTORY(GPU(",\"mig\":{\"capable\":true,\"instances\":[{\"profile\":\"1g.10gb\","
			       "\"start\":0}]}")),
		 NONE BAD "gpus[0].mig.instances: on a GPU where MIG is not enabled)"},
		{INVENTORY(GPU(MIG(",\"instances\":[{\"profile\":\"1g.10gb\"}]"))),
		 NONE BAD "gpus[0].mig.instances[0].start: is missing)"},
		{INVENTORY(
			 GPU(MIG(",\"instances\":[{\"profile\":\"a-name-that-is-too-long-for-it\","
				 "\"start\":0}]"))),
		 NONE BAD
		 "gpus[0].mig.instances[0].profile: \"a-name-that-is-too-long-for-it\" is not "
		 "a MIG profile)"},
		{INVENTORY(GPU(MIG(GEOMETRY(PROFILE("3g.40gb", ",\"starts\":[0,32]"))))),
		 NONE BAD "gpus[0].mig.geometry.profiles[0].starts: 32 is not between 0 and 31)"},
		{INVENTORY(GPU(MIG(GEOMETRY(PROFILE("3g.40gb", ",\"starts\":[0.5]"))))),
		 NONE BAD "gpus[0].mig.geometry.profiles[0].starts: 0.5 is not an integer)"},
		{INVENTORY(GPU(MIG(GEOMETRY(PROFILE("3g.40gb", ",\"starts\":[\"0\"]"))))),
		 NONE BAD "gpus[0].mig.geometry.profiles[0].starts: is a string, not a number)"},
		{INVENTORY(GPU(MIG(GEOMETRY("{\"name\":\"1g.10gb\"}")))),
		 NONE BAD "gpus[0].mig.geometry.profiles[0].compute: is missing)"},
		{INVENTORY(GPU(MIG(",\"geometry\":{}"))),
		 NONE BAD "gpus[0].mig.geometry.compute: is missing)"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cJSON *node = cJSON_CreateObject(),
		      *meta = cJSON_AddObjectToObject(node, "metadata");
		cJSON *annotations = cJSON_AddObjectToObject(meta, "annotations");
		struct row row;
		char *text;

		cJSON_AddStringToObject(meta, "name", "n");
		cJSON_AddStringToObject(annotations, "tessera.dev/inventory", rows[i].text);
		text = cJSON_PrintUnformatted(node);
		row = (struct row){text, rows[i].want};
		check_nodes(&row, 1);
		free(text);
		cJSON_Delete(node);
	}
}

/* What the geometry itself gets wrong is found by state/, and the inventory is not believed; nor
 * are the labels beside it. */
Test(kube_node, inventory_over_labels)
{
	static const char *const inventory =
		INVENTORY(GPU(MIG(GEOMETRY(PROFILE("3g.40gb", ",\"starts\":[0,5]")))));
	struct ku_arena *a = ku_arena_new();
	cJSON *node =
		json(LABELS(COUNT("8") "," MEMORY("4864") "," PRODUCT("NVIDIA-A100-MIG-1g.5gb")));
	cJSON *annotations =
		cJSON_AddObjectToObject(cJSON_GetObjectItem(node, "metadata"), "annotations");
	struct st_node_spec n;

	cJSON_AddStringToObject(annotations, "tessera.dev/inventory", inventory);
	cr_assert_eq(ku_node_decode(node, a, &n, NULL), 0);
	cr_assert(n.unready);
	cr_assert_not_null(strstr(n.why_unready, "3g.40gb"), "%s", n.why_unready);
	cr_assert_eq(n.gpu_count, 0);
	cJSON_ReplaceItemInObjectCaseSensitive(
		annotations, "tessera.dev/inventory",
		cJSON_CreateString(INVENTORY(GPU(",\"product\":\"NVIDIA A100\""))));
	cr_assert_eq(ku_node_decode(node, a, &n, NULL), 0);
	cr_assert_not(n.unready);
	cr_assert_eq(n.gpu_count, 1);
	cr_assert_str_eq(n.product, "NVIDIA A100");
	cJSON_Delete(node);
	ku_arena_free(a);
}

/* Whole GPUs and slices in the node's status at once, left over from before a MIG change: what the
 * inventory says is there, and nothing else. */
Test(cases_kube, case_44_old_resources_after_a_mig_change)
{
	static const char before[] = "{\"metadata\":{\"name\":\"n\",\"labels\":{" COUNT("8") "," MEMORY(
		"40960") "}},"
			 "\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"8\",\"nvidia.com/mig-1g.5gb\":\"56\","
			 "\"nvidia.com/mig-7g.40gb\":\"8\"}}}";
	static const char inventory[] =
		INVENTORY(GPU(MIG(",\"instances\":[{\"profile\":\"1g.5gb\",\"start\":6}]")));
	const struct row without = {before, NONE PARTITIONED};
	cJSON *node = json(before);
	cJSON *annotations =
		cJSON_AddObjectToObject(cJSON_GetObjectItem(node, "metadata"), "annotations");
	struct row with = {NULL, NONE " inventory GPU-1:81920:mig:1g.5gb@6"};
	char *text;

	cJSON_AddStringToObject(annotations, "tessera.dev/inventory", inventory);
	text = cJSON_PrintUnformatted(node);
	with.text = text;
	check_nodes(&without, 1);
	check_nodes(&with, 1);
	free(text);
	cJSON_Delete(node);
}

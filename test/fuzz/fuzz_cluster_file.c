/* Bytes to JSON, to a list of nodes and pods, to a cluster: the file that the extender and the
 * replay are given, and what an API server answers. Nothing may crash or leak; what is taken can be
 * printed and taken again; the cluster's books stay right. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kube/object.h"
#include "state/cluster.h"
#include "state/contract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

static int on_node(void *ctx, const struct st_node_spec *n, struct err *err)
{
	struct err refused = ERR_INIT;
	struct st_cluster *c = ctx;

	require(n->name != NULL && n->name[0] != '\0', "a node's name");
	require(n->gpu_count <= ST_GPUS_MAX, "number of GPUs");
	require(!n->unready || n->why_unready != NULL, "a reason");
	require(n->cpu_milli >= 0 && n->mem_mib >= 0 && n->pods >= 0, "host resources");
	for (size_t i = 0; i < n->gpu_count; i++)
		require(n->gpus[i].mem_mib >= 1, "a GPU's memory");
	if (st_cluster_node_put(c, n, NULL, &refused) != 0)
		require(refused.msg[0] != '\0', "a message");
	(void)err;
	return 0;
}

static int on_pod(void *ctx, const struct st_pod_spec *p, struct err *err)
{
	static const struct st_contract_options opt = {.hami = true};
	struct st_cluster *c = ctx;
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	struct st_request req;
	struct st_decision d;
	uint32_t node;

	require(p->uid != NULL && p->ns[0] != '\0' && p->name[0] != '\0', "who the pod is");
	for (size_t i = 0; i < p->container_count; i++) {
		require(p->containers[i].name[0] != '\0', "a container's name");
		require(p->containers[i].cpu_milli >= 0 && p->containers[i].mem_bytes >= 0,
			"a container's resources");
	}
	if (st_contract_parse(p, &opt, &req, NULL, NULL) == 0)
		require(req.cpu_milli >= 0 && req.mem_mib >= 0, "the pod's resources");
	node = st_cluster_node_find(c, p->node, strlen(p->node));
	if (node != ST_NONE)
		st_contract_decode(c, p, node, &opt, &kind, &d, NULL);
	(void)err;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct st_cluster *c;
	cJSON *tree, *again = NULL;
	char *text;
	int r = ku_json_parse((const char *)data, size, &tree, &err);

	require((r == 0) == (err.msg[0] == '\0'), "message of JSON");
	if (r != 0)
		return 0;
	text = cJSON_PrintUnformatted(tree);
	require(text != NULL && ku_json_parse(text, strlen(text), &again, &err) == 0, "printed");
	cJSON_Delete(again);
	free(text);
	c = st_cluster_new(NULL);
	if (c != NULL) {
		const struct ku_list_visitor v = {on_node, on_pod, c};

		r = ku_list_decode(tree, &v, &err);
		require(r == 0 || err.msg[0] != '\0', "message of the list");
		require(st_cluster_check(c, ST_NONE, &err) == 0, "the books");
	}
	st_cluster_free(c);
	cJSON_Delete(tree);
	return 0;
}

#include "kube/load.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "kube/object.h"

#define WORKLOAD_KEY "tessera.dev/workload-profile"

struct load {
	struct st_cluster *c;
	const struct ku_loader *how;
};

void ku_pod_ident(const struct st_pod_spec *pod, struct st_pod_ident *ret)
{
	const char *workload = st_pod_annotation(pod, WORKLOAD_KEY);

	*ret = (struct st_pod_ident){
		.uid = pod->uid,
		.ns = pod->ns,
		.name = pod->name,
		.priority = pod->priority,
		.deleting = pod->deleting,
		.memory_bound = workload != NULL && strcmp(workload, "memory-bound") == 0,
	};
	st_pod_spec_totals(pod, &ret->cpu_milli, &ret->mem_mib);
}

int ku_pod_observe(struct st_cluster *c, const struct st_pod_spec *pod, uint32_t node,
		   const struct st_contract_options *opt, struct err *why, struct err *err)
{
	struct st_pod_ident ident;

	ku_pod_ident(pod, &ident);
	return ku_pod_observe_as(c, pod, &ident, node, opt, why, err);
}

int ku_pod_observe_as(struct st_cluster *c, const struct st_pod_spec *pod,
		      const struct st_pod_ident *ident, uint32_t node,
		      const struct st_contract_options *opt, struct err *why, struct err *err)
{
	enum st_allocation_kind kind = ST_ALLOCATION_NONE;
	struct st_decision d;
	bool fenced = false;
	uint32_t whole;
	int rc;

	why->msg[0] = '\0';
	rc = st_contract_decode(c, pod, node, opt, &kind, &d, why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "out of memory");
	if (rc < 0)
		return st_cluster_fence(c, ident, node, err);
	whole = kind == ST_ALLOCATION_NONE ? st_contract_plugin_gpus(pod) : 0;
	rc = st_cluster_observe(c, ident, node, kind == ST_ALLOCATION_COMPLETE ? &d : NULL, whole,
				&fenced, why);
	if (rc < 0)
		return err_set(err, rc, "%s", why->msg);
	if (!fenced)
		why->msg[0] = '\0';
	return 0;
}

static int load_node(void *ctx, const struct st_node_spec *n, struct err *err)
{
	struct load *l = ctx;

	if (n->name != NULL && st_cluster_node_find(l->c, n->name, strlen(n->name)) != ST_NONE)
		return err_set(err, ERR_INVALID, "node \"%s\" occurs twice", n->name);
	return st_cluster_node_put(l->c, n, NULL, err);
}

static int load_bound(struct load *l, const struct st_pod_spec *pod, struct err *err)
{
	uint32_t node = st_cluster_node_find(l->c, pod->node, strlen(pod->node));
	struct err why = ERR_INIT;
	int rc = 0;

	if (st_cluster_pod_find(l->c, pod->uid) != NULL)
		return err_set(err, ERR_INVALID, "pod uid \"%s\" occurs twice", pod->uid);
	if (node == ST_NONE)
		err_set(&why, 0, "its node \"%s\" is not in the list; left out", pod->node);
	else if (l->how->on_bound != NULL)
		rc = l->how->on_bound(l->how->ctx, pod, err);
	if (rc == 0 && node != ST_NONE)
		rc = ku_pod_observe(l->c, pod, node, l->how->opt, &why, err);
	if (rc == 0 && why.msg[0] != '\0' && l->how->on_note != NULL)
		l->how->on_note(l->how->ctx, pod, why.msg);
	return rc;
}

static int load_pod(void *ctx, const struct st_pod_spec *p, struct err *err)
{
	struct load *l = ctx;
	struct st_pod_spec pod = *p;
	char uid[1024];

	if (pod.phase == ST_PHASE_SUCCEEDED || pod.phase == ST_PHASE_FAILED)
		return 0;
	if (pod.uid == NULL || pod.uid[0] == '\0') {
		snprintf(uid, sizeof(uid), "%s/%s", pod.ns, pod.name);
		pod.uid = uid;
	}
	if (pod.node[0] != '\0')
		return load_bound(l, &pod, err);
	return l->how->on_pending != NULL ? l->how->on_pending(l->how->ctx, &pod, err) : 0;
}

int ku_load_text(struct st_cluster *c, const char *text, size_t len, const struct ku_loader *how,
		 struct err *err)
{
	struct load l = {.c = c, .how = how};
	struct ku_list_visitor nodes = {.node = load_node, .ctx = &l};
	struct ku_list_visitor pods = {.pod = load_pod, .ctx = &l};
	cJSON *root = NULL;
	int rc;

	rc = ku_json_parse(text, len, &root, err);
	if (rc < 0)
		return rc;
	rc = ku_list_decode(root, &nodes, err);
	if (rc == 0)
		rc = ku_list_decode(root, &pods, err);
	cJSON_Delete(root);
	return rc;
}

int ku_load_file(struct st_cluster *c, const char *path, const struct ku_loader *how,
		 struct err *err)
{
	bool is_stdin = strcmp(path, "-") == 0;
	char *text = NULL;
	size_t len = 0;
	int rc;

	rc = file_read(path, KU_LOAD_MAX_BYTES, &text, &len, err);
	if (rc < 0)
		return rc;
	rc = ku_load_text(c, text, len, how, err);
	free(text);
	return rc < 0 ? err_prefix(err, rc, "%s", is_stdin ? "standard input" : path) : 0;
}

int ku_load_cluster(struct st_cluster *c, const char *path, const struct st_contract_options *opt,
		    ku_pending_fn on_pending, void *ctx, struct err *err)
{
	struct ku_loader how = {.opt = opt, .on_pending = on_pending, .ctx = ctx};

	return ku_load_file(c, path, &how, err);
}

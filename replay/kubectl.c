#include "replay/kubectl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kube/load.h"
#include "state/contract.h"

struct reader {
	struct rp_trace *t;
	rp_note_fn note;
	void *ctx;
};

static void say(const struct reader *r, const struct st_pod_spec *pod, const char *what,
		const char *why)
{
	char line[ERR_MSG_CAP + 600];

	if (r->note == NULL)
		return;
	snprintf(line, sizeof(line), "pod %s/%s %s: %s", pod->ns, pod->name, what, why);
	r->note(r->ctx, line);
}

static int on_pending(void *ctx, const struct st_pod_spec *pod, struct err *err)
{
	struct reader *r = ctx;
	struct st_contract_options opt = {0};
	struct st_request req;
	struct err why = ERR_INIT;
	char name[600];
	uint32_t shape;
	int rc, len;

	memset(&req, 0, sizeof(req));
	rc = st_contract_parse(pod, &opt, &req, NULL, &why);
	if (rc == ERR_NOMEM)
		return err_set(err, rc, "out of memory");
	if (rc < 0) {
		r->t->refused++;
		say(r, pod, "is left out", why.msg);
		return 0;
	}
	shape = rp_trace_shape(r->t, &req);
	if (shape == UINT32_MAX)
		return err_set(err, ERR_NOMEM, "out of memory");
	len = snprintf(name, sizeof(name), "%s/%s", pod->ns, pod->name);
	if (len < 0 || (size_t)len >= sizeof(name))
		return err_set(err, ERR_INVALID, "a pod name of %d characters", len);
	return rp_trace_add_pod(r->t, name, (size_t)len, shape, err);
}

static void on_note(void *ctx, const struct st_pod_spec *pod, const char *text)
{
	say(ctx, pod, "is bound", text);
}

/* cJSON notes where a text went wrong in a variable of its own. */
static pthread_mutex_t json_lock = PTHREAD_MUTEX_INITIALIZER;

static int load(const struct rp_trace *t, struct st_cluster *c, ku_pending_fn pending,
		struct reader *r, struct err *err)
{
	struct st_contract_options opt = {0};
	struct ku_loader how = {.opt = &opt, .on_pending = pending, .ctx = r};

	if (r != NULL)
		how.on_note = on_note;
	for (size_t i = 0; i < 2 && t->json[i].data != NULL; i++) {
		int rc;

		pthread_mutex_lock(&json_lock);
		rc = ku_load_text(c, t->json[i].data, t->json[i].len, &how, err);
		pthread_mutex_unlock(&json_lock);
		if (rc < 0)
			return err_prefix(err, rc, "%s", t->json[i].path);
	}
	return 0;
}

/* Nodes of the trace = nodes of the cluster, by id. */
static int take_nodes(struct rp_trace *t, const struct st_cluster *c, struct err *err)
{
	int64_t mib = 0, gpus = 0;
	int rc = 0;

	for (uint32_t id = 0; rc == 0 && id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);
		struct rp_node node = {.cpu_milli = n->cpu_milli,
				       .mem_mib = n->mem_mib,
				       .model = STRPOOL_NONE,
				       .gpu_count = n->gpu_count};

		for (unsigned g = 0; g < n->gpu_count; g++)
			mib += n->gpus[g].alloc_mib;
		gpus += n->gpu_count;
		rc = rp_trace_add_node(t, n->name, strlen(n->name), &node, err);
	}
	if (gpus > 0 && mib > gpus)
		t->unit_mib = mib / gpus;
	return rc;
}

static int load_nodes(struct rp_trace *t, struct err *err)
{
	struct st_cluster *c = NULL;
	int rc = rp_kubectl_cluster(t, &c, err);

	if (rc == 0)
		rc = take_nodes(t, c, err);
	st_cluster_free(c);
	return rc;
}

static int load_pods(struct rp_trace *t, bool with_pods, rp_note_fn note, void *ctx,
		     struct err *err)
{
	struct reader r = {.t = t, .note = note, .ctx = ctx};
	struct st_cluster *c = st_cluster_new(NULL);
	int rc;

	if (c == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = load(t, c, with_pods ? on_pending : NULL, &r, err);
	st_cluster_free(c);
	return rc;
}

int rp_kubectl_load(struct rp_trace *t, bool with_pods, rp_note_fn note, void *ctx, struct err *err)
{
	/* Sizes of pods are measured by the mean GPU, so the nodes come first. */
	int rc = load_nodes(t, err);

	if (rc == 0 && t->node_count == 0)
		rc = err_set(err, ERR_INVALID, "%s: no nodes", t->json[0].path);
	return rc < 0 ? rc : load_pods(t, with_pods, note, ctx, err);
}

static bool asks_for_memory(const struct rp_trace *t)
{
	for (size_t i = 0; i < t->shape_count; i++)
		for (unsigned k = 0; k < t->shapes[i].req.item_count; k++)
			if (t->shapes[i].req.items[k].request_mib > 0)
				return true;
	return false;
}

int rp_kubectl_pods(struct rp_trace *t, int64_t unit_mib, rp_note_fn note, void *ctx,
		    struct err *err)
{
	int rc = load_nodes(t, err);

	if (rc == 0 && unit_mib > 0)
		t->unit_mib = unit_mib;
	if (rc == 0)
		rc = load_pods(t, true, note, ctx, err);
	if (rc == 0 && t->node_count == 0 && unit_mib == 0 && asks_for_memory(t))
		rc = err_set(
			err, ERR_INVALID,
			"%s: pods ask for GPU memory; how much a GPU has (gpu-memory) is missing",
			t->json[0].path);
	return rc;
}

int rp_kubectl_cluster(const struct rp_trace *t, struct st_cluster **ret, struct err *err)
{
	struct st_cluster *c = st_cluster_new(NULL);
	int rc;

	if (c == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = load(t, c, NULL, NULL, err);
	if (rc < 0) {
		st_cluster_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

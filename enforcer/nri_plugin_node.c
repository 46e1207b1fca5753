/* The node as the plugin has it: copies that live as long as somebody uses them. */
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri_plugin_internal.h"

static void node_free(struct plugin_node *n)
{
	if (n == NULL)
		return;
	for (size_t i = 0; n->node.gpus != NULL && i < n->node.gpu_count; i++) {
		free(n->gpus[i].product);
		free(n->gpus[i].instances);
	}
	free(n->node.gpus);
	free(n->gpus);
	free(n->name);
	free(n->mps_why);
	free(n);
}

static bool gpu_copy(struct plugin_node *n, size_t i, const struct en_node_gpu *g)
{
	struct en_node_gpu *to = &n->node.gpus[i];

	*to = *g;
	to->product = NULL;
	to->instances = NULL;
	to->instance_count = 0;
	if (g->product != NULL) {
		n->gpus[i].product = strdup(g->product);
		to->product = n->gpus[i].product;
		if (to->product == NULL)
			return false;
	}
	if (g->instance_count > 0) {
		n->gpus[i].instances = calloc(g->instance_count, sizeof(*n->gpus[i].instances));
		if (n->gpus[i].instances == NULL)
			return false;
		memcpy(n->gpus[i].instances, g->instances,
		       g->instance_count * sizeof(*g->instances));
		to->instances = n->gpus[i].instances;
		to->instance_count = g->instance_count;
	}
	return true;
}

static struct plugin_node *node_copy(const struct en_node *node)
{
	struct plugin_node *n = calloc(1, sizeof(*n));
	bool ok = n != NULL;

	if (!ok)
		return NULL;
	n->refs = 1;
	n->node = *node;
	n->node.gpus = calloc(node->gpu_count + 1, sizeof(*n->node.gpus));
	n->gpus = calloc(node->gpu_count + 1, sizeof(*n->gpus));
	n->name = strdup(node->name);
	n->mps_why = node->mps_why != NULL ? strdup(node->mps_why) : NULL;
	ok = n->node.gpus != NULL && n->gpus != NULL && n->name != NULL &&
	     (node->mps_why == NULL || n->mps_why != NULL);
	if (n->gpus == NULL)
		n->node.gpu_count = 0;
	for (size_t i = 0; ok && i < node->gpu_count; i++)
		ok = gpu_copy(n, i, &node->gpus[i]);
	n->node.name = n->name;
	n->node.mps_why = n->mps_why;
	if (!ok) {
		node_free(n);
		return NULL;
	}
	return n;
}

void plugin_node_release(struct plugin_node *n)
{
	if (n != NULL && --n->refs == 0)
		node_free(n);
}

bool plugin_node_known(const struct plugin_node *n)
{
	return n != NULL && n->node.gpu_count > 0;
}

struct plugin_node *plugin_node_get(struct en_plugin *p)
{
	struct plugin_node *n;

	pthread_mutex_lock(&p->lock);
	n = p->node;
	if (n != NULL)
		n->refs++;
	pthread_mutex_unlock(&p->lock);
	return n;
}

void plugin_node_put(struct en_plugin *p, struct plugin_node *n)
{
	pthread_mutex_lock(&p->lock);
	plugin_node_release(n);
	pthread_mutex_unlock(&p->lock);
}

int en_plugin_set_node(struct en_plugin *p, const struct en_node *node, struct err *err)
{
	struct plugin_node *n;

	if (node->gpu_count > ST_GPUS_MAX)
		return err_set(err, ERR_INVALID, "node %s: %zu GPUs, at most %d", node->name,
			       node->gpu_count, ST_GPUS_MAX);
	n = node_copy(node);
	if (n == NULL)
		return err_set(err, ERR_NOMEM, "node %s: no memory", node->name);
	pthread_mutex_lock(&p->lock);
	plugin_node_release(p->node);
	p->node = n;
	pthread_mutex_unlock(&p->lock);
	return plugin_waiting_take(p, err);
}

#include "extender/survey.h"

#include <stdlib.h>
#include <string.h>

#define SAID_MAX 19 /* a line each; the rest is a number, in the last line the log lets pass */

struct seen {
	const char *uuid, *node;
};

static void say_more(struct log *log, const char *what, size_t count)
{
	if (count > SAID_MAX)
		log_event(log, LOG_LEVEL_WARN, what, "more=%zu", count - SAID_MAX);
}

size_t ex_survey_unready(const struct st_cluster *c, struct log *log)
{
	char quoted[512];
	size_t count = 0;

	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);

		if (!n->present || !n->unready || n->why_unready == NULL || ++count > SAID_MAX)
			continue;
		log_event(log, LOG_LEVEL_WARN, "node-unready", "node=%s reason=%s", n->name,
			  log_quote(n->why_unready, quoted, sizeof(quoted)));
	}
	say_more(log, "node-unready", count);
	return count;
}

static int by_uuid(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	int d = strcmp(x->uuid, y->uuid);

	return d != 0 ? d : strcmp(x->node, y->node);
}

/* UUIDs of the driver only: GPUs known from labels are called by their index on each node. */
static size_t collect(const struct st_cluster *c, struct seen *list)
{
	size_t count = 0;

	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);

		for (uint8_t g = 0; n->present && g < n->gpu_count; g++) {
			if (strncmp(n->gpus[g].uuid, "GPU-", 4) != 0)
				continue;
			if (list != NULL)
				list[count] = (struct seen){n->gpus[g].uuid, n->name};
			count++;
		}
	}
	return count;
}

size_t ex_survey_duplicates(const struct st_cluster *c, struct log *log)
{
	size_t all = collect(c, NULL), count = 0;
	struct seen *list = calloc(all > 0 ? all : 1, sizeof(*list));

	if (list == NULL)
		return 0;
	collect(c, list);
	qsort(list, all, sizeof(*list), by_uuid);
	for (size_t i = 1; i < all; i++) {
		if (strcmp(list[i - 1].uuid, list[i].uuid) != 0 || ++count > SAID_MAX)
			continue;
		log_event(log, LOG_LEVEL_WARN, "gpu-on-two-nodes",
			  "gpu=%s node=%s other=%s remedy=\"the inventory of one of them was "
			  "copied, or its Node object is of a machine that was renamed\"",
			  list[i].uuid, list[i].node, list[i - 1].node);
	}
	say_more(log, "gpu-on-two-nodes", count);
	free(list);
	return count;
}

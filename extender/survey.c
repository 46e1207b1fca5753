#include "extender/survey.h"

#define SAID_MAX 19 /* a line each; the rest is a number, in the last line the log lets pass */

static void say_more(struct log *log, const char *what, size_t count)
{
	if (count > SAID_MAX)
		log_event(log, LOG_LEVEL_WARN, what, "more=%zu", count - SAID_MAX);
}

void ex_survey_count(const struct st_cluster *c, struct ex_survey *ret)
{
	*ret = (struct ex_survey){.pods = st_cluster_pod_count(c)};
	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);

		ret->nodes += n->present;
		ret->gpus += n->present ? n->gpu_count : 0;
	}
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

size_t ex_survey_duplicates(const struct st_cluster *c, struct log *log)
{
	size_t count = 0;

	for (uint32_t id = 0; id < st_cluster_node_count(c); id++) {
		const struct st_node *n = st_cluster_node(c, id);

		for (uint8_t g = 0; g < n->gpu_count; g++) {
			uint32_t other = st_cluster_gpu_twin(c, id, g);

			/* said of each pair once */
			if (other == ST_NONE || other > id || ++count > SAID_MAX)
				continue;
			log_event(
				log, LOG_LEVEL_WARN, "gpu-on-two-nodes",
				"gpu=%s node=%s other=%s remedy=\"the inventory of one of them was "
				"copied, or its Node object is of a machine that was renamed; "
				"neither gives it away\"",
				n->gpus[g].uuid, n->name, st_cluster_node(c, other)->name);
		}
	}
	say_more(log, "gpu-on-two-nodes", count);
	return count;
}

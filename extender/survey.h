/* What somebody should hear of a cluster that was just loaded: warnings in the log, the first few of each
 * kind and how many more there are. log may be NULL. */
#ifndef TESSERA_EXTENDER_SURVEY_H
#define TESSERA_EXTENDER_SURVEY_H

#include <stddef.h>

#include "base/log.h"
#include "state/cluster.h"

/* What is there: nodes, their GPUs, and pods that hold something. */
struct ex_survey {
	size_t nodes, gpus, pods;
};
void ex_survey_count(const struct st_cluster *c, struct ex_survey *ret);

/* Nodes that get nothing for a reason of their own: not ready, an inventory that cannot be used. Returns
 * how many. */
size_t ex_survey_unready(const struct st_cluster *c, struct log *log);

/* GPUs whose UUID a second node reports, too: the annotation was copied, or the object of a machine that was
 * renamed still stands. Neither gives such a GPU away (state/cluster_twin.c). Returns how many. */
size_t ex_survey_duplicates(const struct st_cluster *c, struct log *log);

#endif

/* MPS namespaces of containers that were made before this agent was: nobody knows them but the ledger. */
#include <stdlib.h>
#include <string.h>

#include "enforcer/nri_plugin_internal.h"

static bool claim_one(struct en_plugin *p, struct en_holding *h)
{
	const char *gpus[ST_GPUS_MAX];
	char dir[EN_PATH_CAP];
	struct err err = ERR_INIT;

	for (int i = 0; i < h->grant.count; i++)
		gpus[i] = h->gpus[i];
	if (p->agent.namespace_keep(p->agent.ctx, h->id, h->percent, h->grant.count, gpus, dir,
				    &err) != 0)
		return false;
	if (h->pipe_source[0] != '\0' && strcmp(dir, h->pipe_source) != 0)
		plugin_report_holding(
			p, EN_REPORT_SLIPPED, h,
			"the directory of its MPS namespace is not the one that it has");
	return true;
}

bool en_plugin_claim(struct en_plugin *p)
{
	struct en_holding **rows;
	size_t count, claimed = 0;

	if (p->agent.namespace_keep == NULL)
		return true;
	rows = plugin_rows(p, &count);
	if (rows == NULL)
		return false;
	for (size_t i = 0; i < count; i++) {
		claimed += !rows[i]->own_namespace || rows[i]->stopped || claim_one(p, rows[i]);
		en_holding_free(rows[i]);
	}
	free(rows);
	return claimed == count;
}

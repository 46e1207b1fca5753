/* Guarantees of containers that ended while no agent was told of it. As long as such a cgroup is there its
 * guarantee can be taken away; when it has gone with it, the cgroups above keep it counted. */
#include <ctype.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "enforcer/limits.h"
#include "enforcer/nri_plugin_internal.h"

#define ID_LEN 64 /* of a container, in hexadecimal digits, as CRI runtimes give them */
#define EVENTS_MAX 4096

/* "<id>", "cri-containerd-<id>.scope": a container's cgroup has its id in the name, a pod's has none. */
static bool names_container(const char *name)
{
	size_t run = 0;

	for (; *name != '\0' && run < ID_LEN; name++)
		run = isxdigit((unsigned char)*name) ? run + 1 : 0;
	return run == ID_LEN;
}

/* No process in it or below. */
static bool is_empty(const char *cgroup)
{
	char path[EN_CGROUP_CAP + 16], *text;
	size_t len;
	bool ret;

	snprintf(path, sizeof(path), "%s/cgroup.events", cgroup);
	if (file_read(path, EVENTS_MAX, &text, &len, NULL) != 0)
		return false;
	ret = strstr(text, "populated 0") != NULL;
	free(text);
	return ret;
}

static size_t clear(struct en_plugin *p, const struct plugin_node *n, const char *cgroup)
{
	const struct en_limits_ops *ops = p->o.limits;
	size_t count = 0;

	for (size_t i = 0; i < n->node.gpu_count; i++) {
		const struct en_node_gpu *g = &n->node.gpus[i];
		char quoted[ERR_MSG_CAP];
		int64_t soft = 0;

		if (g->mig_enabled ||
		    ops->get(ops->ctx, cgroup, g->uuid, &soft, NULL, NULL, NULL) != 0 ||
		    soft <= 0 || en_limits_clear(ops, cgroup, g->uuid, NULL) != 0)
			continue;
		count++;
		log_event(p->o.log, LOG_LEVEL_INFO, "guarantee-cleared",
			  "gpu=%s mib=%lld cgroup=%s", g->uuid, (long long)soft,
			  log_quote(cgroup, quoted, sizeof(quoted)));
	}
	return count;
}

size_t en_plugin_sweep(struct en_plugin *p)
{
	struct plugin_node *n = p->o.limits != NULL ? plugin_node_get(p) : NULL;
	char *roots[] = {p->mount, NULL};
	FTS *tree = n != NULL ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL) : NULL;
	size_t count = 0;
	FTSENT *e;

	while (tree != NULL && (e = fts_read(tree)) != NULL) {
		/* Some runtimes put the process a level below. */
		if (e->fts_info == FTS_D && e->fts_pathlen < EN_CGROUP_CAP &&
		    (names_container(e->fts_name) || names_container(e->fts_parent->fts_name)) &&
		    is_empty(e->fts_path))
			count += clear(p, n, e->fts_path);
	}
	if (tree != NULL)
		(void)fts_close(tree);
	if (n != NULL)
		plugin_node_put(p, n);
	return count;
}

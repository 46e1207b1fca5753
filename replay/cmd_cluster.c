#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "replay/cluster_json.h"
#include "replay/command.h"
#include "replay/openb.h"

#define NODES_FILE_MAX ((size_t)4 << 30)

int rp_cmd_cluster(const struct rp_command *self, int argc, char **argv)
{
	const char *path = NULL;
	int64_t gpu_mib = RP_GPU_UNITS;
	const struct rp_option options[] = {
		{"nodes", "FILE", RP_OPT_TEXT, &path, 0, 0, "nodes: openb CSV"},
		{"gpu-mib", "N", RP_OPT_INTEGER, &gpu_mib, 1, INT32_MAX,
		 "memory of each GPU; 1000, so that a MiB is a thousandth of a GPU"},
	};
	struct err err = ERR_INIT;
	struct rp_trace t;
	char *text = NULL;
	size_t len = 0;
	int status, rc;

	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	if (path == NULL) {
		err_set(&err, 0, "--nodes is missing");
		return rp_command_failed(ERR_INVALID, &err);
	}
	rp_trace_init(&t);
	rc = rp_trace_open(&t, &err);
	if (rc == 0)
		rc = file_read(path, NODES_FILE_MAX, &text, &len, &err);
	if (rc == 0)
		rc = rp_openb_nodes(&t, path, text, len, &err);
	if (rc == 0)
		rc = rp_cluster_json(stdout, &t, gpu_mib, &err);
	free(text);
	rp_trace_fini(&t);
	return rc == 0 ? RP_EXIT_OK : rp_command_failed(rc, &err);
}

#include <stdio.h>
#include <string.h>

#include "replay/command.h"
#include "replay/generate.h"

int rp_cmd_generate(const struct rp_command *self, int argc, char **argv)
{
	const char *kind = NULL, *mix = NULL;
	int64_t count = 0, gpus = 0, seed = 42, spec = 0;
	const struct rp_option options[] = {
		{"kind", "nodes|pods", RP_OPT_TEXT, &kind, 0, 0, "which table to print"},
		{"count", "N", RP_OPT_INTEGER, &count, 1, 100000000,
		 "rows; as published where neither this nor --gpus-total is given"},
		{"gpus-total", "N", RP_OPT_INTEGER, &gpus, 1, 1000000000,
		 "as many rows as have (nodes) or ask for (pods) so many GPUs"},
		{"seed", "N", RP_OPT_INTEGER, &seed, 0, INT64_MAX, "42"},
		{"mix", "LIST", RP_OPT_TEXT, &mix, 0, 0,
		 "nodes: MODEL:GPUSxCORES:WEIGHT,...; pods: KIND=WEIGHT,... of the kinds\n"
		 "cpu, shared, 1, 2, 4, 8; as published"},
		{"spec", "PERCENT", RP_OPT_INTEGER, &spec, 0, 100,
		 "pods with GPU that name the products they accept; 0"},
	};
	struct rp_generate_options opt;
	struct err err = ERR_INIT;
	int status, rc;

	if (!rp_command_options(self, options, sizeof(options) / sizeof(options[0]), argc, argv,
				&status))
		return status;
	if (count == 0 && gpus == 0)
		count = kind != NULL && strcmp(kind, "pods") == 0 ? 8152 : 1213;
	opt = (struct rp_generate_options){.count = count,
					   .gpus_total = gpus,
					   .seed = (uint64_t)seed,
					   .mix = mix,
					   .spec_percent = spec};
	if (kind != NULL && strcmp(kind, "nodes") == 0)
		rc = rp_generate_nodes(stdout, &opt, &err);
	else if (kind != NULL && strcmp(kind, "pods") == 0)
		rc = rp_generate_pods(stdout, &opt, &err);
	else
		rc = err_set(&err, ERR_INVALID, "--kind: nodes or pods is wanted%s%s",
			     kind != NULL ? ", not " : "", kind != NULL ? kind : "");
	return rc == 0 ? RP_EXIT_OK : rp_command_failed(rc, &err);
}

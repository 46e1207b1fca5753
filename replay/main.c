/* tessera-replay: replays a workload against a cluster, offline or through a running extender. */
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "replay/command.h"

static void help(FILE *out)
{
	size_t i = 0;

	fprintf(out, "usage: tessera-replay COMMAND [options]\n\n");
	for (const struct rp_command *c; (c = rp_command_at(i)) != NULL; i++)
		fprintf(out, "  %-10s%s\n", c->name, c->summary);
	fprintf(out,
		"\ntessera-replay COMMAND --help lists the options of a command; --version prints the version.\n"
		"\nexit status: 0; 2 wrong options or files; 1 all that fails otherwise\n");
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		help(stderr);
		return RP_EXIT_INPUT;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		help(stdout);
		return RP_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("tessera-replay %s\n", TESSERA_VERSION);
		return RP_EXIT_OK;
	}
	for (size_t i = 0; rp_command_at(i) != NULL; i++) {
		const struct rp_command *c = rp_command_at(i);

		if (strcmp(argv[1], c->name) == 0)
			return c->run(c, argc - 2, argv + 2);
	}
	fprintf(stderr, "tessera-replay: no such command: %s\n", argv[1]);
	help(stderr);
	return RP_EXIT_INPUT;
}

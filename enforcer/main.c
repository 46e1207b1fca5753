/* tessera-enforcer: the node's agent, its hook, and its checks. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/version.h"
#include "enforcer/doctor.h"
#include "enforcer/hook.h"
#include "enforcer/limits.h"
#include "enforcer/run.h"
#include "enforcer/run_options.h"
#include "enforcer/uninstall.h"

struct command {
	const char *name, *summary;
	int (*run)(int argc, char *const *argv); /* argv begins behind the name */
};

/* The hook sets limits itself where it is told no socket. */
static int cmd_hook(int argc, char *const *argv)
{
	const struct en_limits_options o = {.way = EN_LIMITS_AUTO};
	struct en_limits *limits = NULL;
	int status;

	(void)en_limits_new(&o, &limits, NULL); /* without: the hook fails in words */
	status = en_hook_main(argc + 1, argv - 1, STDIN_FILENO, STDERR_FILENO, "/proc",
			      limits != NULL ? en_limits_ops(limits) : NULL);
	en_limits_free(limits);
	return status;
}

static int cmd_doctor(int argc, char *const *argv)
{
	return en_doctor_main(argc + 1, argv - 1, STDOUT_FILENO);
}

static const struct command commands[] = {
	{"run", "the agent: publishes GPUs, runs MPS, gives containers their share", en_run_main},
	{"hook", "OCI createRuntime hook: sets a container's memory limits before it starts",
	 cmd_hook},
	{"doctor", "checks the sharing layer and the hardware of this node", cmd_doctor},
	{"uninstall", "takes from the node what the agent brought", en_uninstall_main},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int usage(FILE *to, int status)
{
	fprintf(to, "usage: tessera-enforcer COMMAND [option...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fprintf(to,
		"\n  --help, --version; `tessera-enforcer run --help` lists the agent's options\n\n" EN_EXIT_STATUS_TEXT);
	return fflush(to) == 0 ? status : 1;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr, 2);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return usage(stdout, 0);
	if (strcmp(argv[1], "--version") == 0) {
		printf("tessera-enforcer %s\n", TESSERA_VERSION);
		return fflush(stdout) == 0 ? 0 : 1;
	}
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(commands[i].name, argv[1]) == 0)
			return commands[i].run(argc - 2, argv + 2);
	}
	fprintf(stderr, "tessera-enforcer: \"%.60s\" is no command\n", argv[1]);
	return usage(stderr, 2);
}

/* Options of `tessera-enforcer run`. */
#include <criterion/criterion.h>
#include <string.h>

#include "enforcer/run_options.h"

static const char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static const char *some_env(const char *name)
{
	if (strcmp(name, "NODE_NAME") == 0)
		return "from-env";
	if (strcmp(name, "TESSERA_FAIL_OPEN") == 0)
		return "yes";
	return strcmp(name, "TESSERA_PROBE_SECONDS") == 0 ? "30" : "";
}

#define ARGS_MAX 4

static int parse(const char *const *args, const char *(*env)(const char *),
		 struct en_run_options *ret, struct err *err)
{
	char *argv[ARGS_MAX] = {NULL};
	int argc = 0;

	for (; args[argc] != NULL; argc++)
		memcpy(&argv[argc], &args[argc], sizeof(argv[0]));
	return en_run_options_parse(argc, argv, env, ret, err);
}

Test(enforcer_run, defaults)
{
	static const char *const args[] = {"--node", "n1", NULL};
	struct en_run_options o;
	struct err err = ERR_INIT;

	cr_assert_eq(parse(args, no_env, &o, &err), 0, "%s", err.msg);
	cr_expect_str_eq(o.node, "n1");
	cr_expect_str_eq(o.nri_socket, "/var/run/nri/nri.sock");
	cr_expect_str_eq(o.prefix, "nvidia.com/container.");
	cr_expect_eq(o.clients_max, 60);
	cr_expect_eq(o.probe_s, 10);
	cr_expect(o.mps && o.publish && !o.fail_open && !o.ignore_unplaced && !o.help);
}

Test(enforcer_run, the_command_line_wins_over_the_environment)
{
	static const char *const none[] = {NULL};
	static const char *const args[] = {"--node=n1", "--fail-open=no", "--probe-seconds=5",
					   NULL};
	struct en_run_options o;
	struct err err = ERR_INIT;

	cr_assert_eq(parse(none, some_env, &o, &err), 0, "%s", err.msg);
	cr_expect_str_eq(o.node, "from-env");
	cr_expect(o.fail_open && o.probe_s == 30);
	cr_assert_eq(parse(args, some_env, &o, &err), 0, "%s", err.msg);
	cr_expect_str_eq(o.node, "n1");
	cr_expect(!o.fail_open && o.probe_s == 5);
}

Test(enforcer_run, wrong_options)
{
	static const struct {
		const char *args[ARGS_MAX], *why;
	} rows[] = {
		{{NULL}, "--node NAME (or NODE_NAME) is required"},
		{{"--node=bad value", NULL}, "--node: \"bad value\" is no name of a node"},
		{{"--node=n", "--no-such", NULL}, "--no-such: no such option; see --help"},
		{{"--node=n", "run", NULL}, "run: no such option; see --help"},
		{{"--node", NULL}, "--node needs NAME"},
		{{"--node=n", "--fail-open=maybe", NULL},
		 "--fail-open: \"maybe\" is neither yes nor no"},
		{{"--node=n", "--log-level=loud", NULL},
		 "--log-level: \"loud\" is none of error, warn, info, debug"},
		{{"--node=n", "--mig=on", NULL},
		 "--mig: \"on\" is none of static, dynamic, switch"},
		{{"--node=n", "--prefix=x", NULL},
		 "--prefix: \"x\" is no start of an annotation key, as example.com/container."},
		{{"--node=n", "--prefix=example.com/a/b", NULL},
		 "--prefix: \"example.com/a/b\": '/' cannot be there in an annotation key"},
		{{"--node=n", "--prefix=tessera.dev/container.", NULL},
		 "--prefix: \"tessera.dev/container.\": that domain has keys of its own"},
		{{"--node=n", "--hook-path=hook", NULL},
		 "--hook-path: not an absolute path: \"hook\""},
		{{"--node=n", "--hook-socket=", NULL}, "--hook-socket: not an absolute path: \"\""},
		{{"--node=n", "--nri-socket=", NULL}, "--nri-socket: not an absolute path: \"\""},
		{{"--node=n", "--pipe-dir=p", NULL}, "--pipe-dir: not an absolute path: \"p\""},
		{{"--node=n", "--mps-log-dir=", NULL}, "--mps-log-dir: not an absolute path: \"\""},
		{{"--node=n", "--run-dir=r", NULL}, "--run-dir: not an absolute path: \"r\""},
		{{"--node=n", "--shm-dir=s", NULL}, "--shm-dir: not an absolute path: \"s\""},
		{{"--node=n", "--cgroup-mount=c", NULL},
		 "--cgroup-mount: not an absolute path: \"c\""},
		{{"--node=n", "--kubelet-socket=k", NULL},
		 "--kubelet-socket: not an absolute path: \"k\""},
		{{"--node=n", "--state-dir=s", NULL}, "--state-dir: not an absolute path: \"s\""},
		{{"--node=n", "--mps-control=", NULL}, "--mps-control: \"\" is no program"},
		{{"--node=n", "--nvidia-smi=", NULL}, "--nvidia-smi: \"\" is no program"},
	};
	struct en_run_options o = {.node = "as before"};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;

		cr_expect_lt(parse(rows[i].args, no_env, &o, &err), 0);
		cr_expect_str_eq(err.msg, rows[i].why);
		cr_expect_str_eq(o.node, "as before");
	}
}

Test(enforcer_run, numbers_have_bounds)
{
	static const char *const args[] = {"--node=n", "--clients-max=1001", NULL};
	struct en_run_options o;
	struct err err = ERR_INIT;

	cr_expect_eq(parse(args, no_env, &o, &err), ERR_RANGE);
	cr_expect(strstr(err.msg, "--clients-max: ") == err.msg, "%s", err.msg);
}

Test(enforcer_run, help_names_every_option)
{
	static const char *const args[] = {"--help", NULL};
	static const char *const names[] = {"--node NAME",
					    "--nri-socket PATH",
					    "--hook-path PATH",
					    "--fail-open yes|no",
					    "--ignore-unplaced yes|no",
					    "--publish yes|no",
					    "--help"};
	struct en_run_options o;
	struct err err = ERR_INIT;
	struct buf b = BUF_INIT;

	cr_assert_eq(parse(args, no_env, &o, &err), 0, "%s", err.msg);
	cr_expect(o.help);
	en_run_options_help(&b);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_expect(strstr(buf_str(&b), names[i]) != NULL, "%s", names[i]);
	for (const char *line = buf_str(&b); *line != '\0'; line += strcspn(line, "\n") + 1)
		cr_expect_leq(strcspn(line, "\n"), 80, "%.100s", line);
	buf_fini(&b);
}

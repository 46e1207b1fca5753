#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "extender/options.h"

static const char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static const char *some_env(const char *name)
{
	if (strcmp(name, "TESSERA_THREADS") == 0)
		return "7";
	if (strcmp(name, "TESSERA_CLUSTER") == 0)
		return "env.json";
	return strcmp(name, "TESSERA_HAMI") == 0 ? "yes" : "";
}

/* Words separated by blanks. */
static int parse(const char *line, const char *(*env)(const char *name), struct ex_options *o,
		 struct err *err)
{
	static char words[512]; /* the options keep pointers into it */
	char *argv[32] = {words};
	char *p = words;
	int argc = 1;

	cr_assert_lt(snprintf(words, sizeof(words), "tessera-extender %s", line), 512);
	while ((p = strchr(p, ' ')) != NULL) {
		*p++ = '\0';
		argv[argc++] = p;
	}
	return ex_options_parse(argc, argv, env, o, err);
}

Test(extender_options, defaults)
{
	struct ex_options o;
	struct err err = ERR_INIT;

	cr_assert_eq(parse("--cluster c.json", no_env, &o, &err), 0, "%s", err.msg);
	cr_expect_str_eq(o.cluster, "c.json");
	cr_expect_str_eq(o.listen, "127.0.0.1:8080");
	cr_expect_str_eq(o.policy, "bid-price");
	cr_expect_str_eq(o.journal, "");
	cr_expect_eq(o.threads, 4);
	cr_expect_eq(o.max_body, 64 << 20);
	cr_expect_eq(o.clients_max, 60);
	cr_expect_eq(o.overcommit_permille, 1000);
	cr_expect_eq(o.score_rest, 0);
	cr_expect_eq(ex_options_set_scheduler(&o), EX_SET_LABELLED);
	cr_expect_str_eq(o.scheduler_name, "tessera");
	cr_expect(o.journal_sync);
	cr_expect_not(o.hami || o.cdi || o.help || o.version);
}

Test(extender_options, the_command_line_wins_over_the_environment)
{
	struct ex_options o;
	struct err err = ERR_INIT;

	cr_assert_eq(
		parse("--threads=2 --cdi --max-body 1Mi --limit-overcommit 1.5 --journal-sync=no --listen [::1]:0",
		      some_env, &o, &err),
		0, "%s", err.msg);
	cr_expect_str_eq(o.cluster, "env.json");
	cr_expect_eq(o.threads, 2);
	cr_expect(o.hami && o.cdi);
	cr_expect_not(o.journal_sync);
	cr_expect_eq(o.max_body, 1 << 20);
	cr_expect_eq(o.overcommit_permille, 1500);
	cr_assert_eq(parse("--hami=no --limit-overcommit 20", some_env, &o, &err), 0);
	cr_expect_eq(o.threads, 7);
	cr_expect_eq(o.overcommit_permille, 20000);
	cr_expect_not(o.hami);
}

Test(extender_options, mistakes_name_option_and_value)
{
	static const struct {
		const char *args, *want;
	} rows[] = {
		{"--threads 0", "--threads"},
		{"--threads x1", "x1"},
		{"--threads 257", "257"},
		{"--max-body 10", "not between 1024 and"},
		{"--max-body -5", "-5"},
		{"--limit-overcommit 0.5", "not between 1 and 100"},
		{"--limit-overcommit 101", "101"},
		{"--policy magic", "--policy: \"magic\" is none of ca-fgd, "},
		{"--ties maybe", "--ties: \"maybe\" is none of rank, random"},
		{"--privileged yes", "--privileged: \"yes\" is none of warn, refuse"},
		{"--log-level loud", "--log-level: \"loud\" is none of error, warn, info, debug"},
		{"--set-scheduler some",
		 "--set-scheduler: \"some\" is none of labelled, all, none"},
		{"--set-scheduler labelled|all", "\"labelled|all\" is none of"},
		{"--ties ran", "\"ran\" is none of"},
		{"--ties=", "\"\" is none of"},
		{"--set-scheduler-name=", "--set-scheduler=none"},
		{"--score-rest 10", "10"},
		{"--prefix plain", "--prefix: \"plain\" is no start"},
		{"--prefix Example.com/c.", "no start"},
		{"--prefix example.com./c.", "no start"},
		{"--prefix -example.com/c.", "no start"},
		{"--prefix /c.", "no start"},
		{"--prefix example.com/a/b", "'/' cannot be there"},
		{"--prefix example.com/.c", "'.' cannot be there"},
		{"--prefix example.com/a-prefix-too-long.", "is too long: 18 characters"},
		{"--lease-name=", "--lease-name: \"\" is no name of"},
		{"--lease-name a_b", "--lease-name: \"a_b\" is no name of"},
		{"--lease-name -a", "--lease-name: \"-a\" is no name of"},
		{"--lease-namespace a.b", "--lease-namespace: \"a.b\" is no name of"},
		{"--prefix tessera.dev/container.", "keys of its own"},
		{"--hami=perhaps --cdi", "--hami: \"perhaps\""},
		{"--nonsense 1", "--nonsense: no such option"},
		{"nonsense 1", "\"nonsense\" is no option"},
		{"--hami yes", "switches are --NAME or --NAME=no"},
		{"--cdi --listen", "--listen needs ADDR:PORT"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ex_options o = {.threads = 99};
		struct err err = ERR_INIT;

		char line[128];

		snprintf(line, sizeof(line), "--cluster c %s", rows[i].args);
		cr_expect_lt(parse(line, no_env, &o, &err), 0, "%s", line);
		cr_expect(strstr(err.msg, rows[i].want) != NULL, "%s: %s", line, err.msg);
		cr_expect_eq(o.threads, 99);
	}
}

static const char *bad_policy(const char *name)
{
	return strcmp(name, "TESSERA_POLICY") == 0 ? "foo" : "";
}

static const char *bad_level(const char *name)
{
	return strcmp(name, "TESSERA_LOG_LEVEL") == 0 ? "loud" : "";
}

/* Of a word as of a number: the place where it is wrong, not the option that was never given. */
Test(extender_options, a_wrong_word_names_its_variable)
{
	struct err err = ERR_INIT;
	struct ex_options o;

	cr_expect_eq(parse("--cluster c", bad_policy, &o, &err), ERR_INVALID);
	cr_expect(strstr(err.msg, "TESSERA_POLICY: \"foo\" is none of ca-fgd, ") == err.msg, "%s",
		  err.msg);
	cr_expect(strstr(err.msg, "bid-price") != NULL, "%s", err.msg);
	err = (struct err)ERR_INIT;
	cr_expect_eq(parse("--cluster c", bad_level, &o, &err), ERR_INVALID);
	cr_expect_str_eq(err.msg,
			 "TESSERA_LOG_LEVEL: \"loud\" is none of error, warn, info, debug");
}

/* Two that were cut to the same would both lead. */
Test(extender_options, an_identity_is_whole_or_refused)
{
	char line[400];
	struct ex_options o;
	struct err err = ERR_INIT;

	snprintf(line, sizeof(line), "--cluster c --identity %0*d", EX_IDENTITY_MAX, 1);
	cr_expect_eq(parse(line, no_env, &o, &err), 0, "%s", err.msg);
	snprintf(line, sizeof(line), "--cluster c --identity %0*d", EX_IDENTITY_MAX + 1, 1);
	cr_expect_eq(parse(line, no_env, &o, &err), ERR_INVALID);
	cr_expect(strstr(err.msg, "--identity: \"0000") != NULL, "%s", err.msg);
	cr_expect_eq(parse("--cluster c --identity h\303\244", no_env, &o, &err), ERR_INVALID);
}

Test(extender_options, a_cluster_is_needed_but_not_for_help)
{
	struct ex_options o;
	struct err err = ERR_INIT;

	cr_expect_eq(parse("--cdi", no_env, &o, &err), ERR_INVALID);
	cr_expect(strstr(err.msg, "--cluster FILE is required") != NULL);
	cr_expect_eq(parse("--help", no_env, &o, &err), 0);
	cr_expect(o.help);
	cr_expect_eq(parse("-h", no_env, &o, &err), 0);
	cr_expect_eq(parse("--version", no_env, &o, &err), 0);
	cr_expect(o.version);
}

Test(extender_options, an_api_server_instead_of_a_file)
{
	static const struct {
		const char *args, *want; /* NULL: good */
	} rows[] = {
		{"--kubeconfig k", NULL},
		{"--in-cluster", NULL},
		{"--kubeconfig k --context c --leader-elect no", NULL},
		{"--kubeconfig k --in-cluster", "only one of"},
		{"--kubeconfig k --cluster c", "only one of"},
		{"--in-cluster --journal j", "--journal goes with --cluster only"},
		{"--in-cluster --context c", "--context goes with --kubeconfig only"},
		{"--in-cluster --lease-seconds 10", "each must be less than the next"},
		{"--in-cluster --lease-seconds 10 --renew-seconds 6 --retry-seconds 2", NULL},
		{"--in-cluster --bind-timeout 50", "--bind-timeout"},
		{"--in-cluster --tls-cert c", "--tls-cert and --tls-key go together"},
		{"--in-cluster --tls-client-ca c", "--tls-client-ca needs"},
		{"--in-cluster --tls-cert c --tls-key k --tls-client-ca a", NULL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ex_options o;
		struct err err = ERR_INIT;
		int rc = parse(rows[i].args, no_env, &o, &err);

		cr_expect_eq(rc < 0, rows[i].want != NULL, "%s: %s", rows[i].args, err.msg);
		if (rows[i].want != NULL)
			cr_expect(strstr(err.msg, rows[i].want) != NULL, "%s: %s", rows[i].args,
				  err.msg);
	}
}

static void write_file(const char *path, const char *text)
{
	cr_assert_eq(file_replace(path, text, strlen(text), NULL), 0);
}

static void note(void *ctx, const char *name, bool live)
{
	buf_printf(ctx, "%s%s ", name, live ? "" : "!");
}

Test(extender_options, a_file_comes_before_the_environment)
{
	struct ex_options o, later;
	struct err err = ERR_INIT;
	struct buf b = BUF_INIT;
	char path[] = "/tmp/tessera-options-XXXXXX", line[100];
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	write_file(path, "# of the site\ncluster: file.json\nthreads: 3\nclients-max: 48\n"
			 "hami: no\nlog-level: warn\n");
	snprintf(line, sizeof(line), "--clients-max 50 --config %s", path);
	cr_assert_eq(parse(line, some_env, &o, &err), 0, "%s", err.msg);
	cr_expect_str_eq(o.cluster, "env.json");
	cr_expect_eq(o.threads, 7);
	cr_expect_eq(o.clients_max, 50);
	cr_expect_str_eq(o.log_level, "warn");
	cr_expect(o.hami);
	write_file(path, "log-level: debug\nmax-body: 1Mi\n");
	cr_assert_eq(parse(line, some_env, &later, &err), 0, "%s", err.msg);
	ex_options_compare(&o, &later, note, &b);
	cr_expect_str_eq(buf_str(&b), "max-body! log-level ");
	ex_options_fini(&later);
	ex_options_fini(&o);
	buf_fini(&b);
	unlink(path);
}

Test(extender_options, mistakes_in_a_file_name_it)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"threads: 0\n", "threads"},
		{"nonsense: 1\n", "nonsense: no such option"},
		{"help: yes\n", "help: no such"},
		{"config: x\n", "config: no such"},
		{"- a\n", "not a mapping"},
		{"threads: [1]\n", "line 1: not of the form"},
		{"a: 1\n  b: : :\n", "line "},
		{"policy: foo\n", ": policy: \"foo\" is none of"},
		{"ties: foo\n", ": ties: \"foo\" is none of rank, random"},
	};
	char path[] = "/tmp/tessera-options-XXXXXX", line[100];
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	snprintf(line, sizeof(line), "--cluster c --config %s", path);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ex_options o;
		struct err err = ERR_INIT;

		write_file(path, rows[i].text);
		cr_expect_lt(parse(line, no_env, &o, &err), 0, "%s", rows[i].text);
		cr_expect(strstr(err.msg, path) != NULL && strstr(err.msg, rows[i].want) != NULL,
			  "%s", err.msg);
	}
	unlink(path);
}

Test(extender_options, help_fits_a_terminal_and_names_every_policy)
{
	struct buf b = BUF_INIT;
	const char *text, *line;

	ex_options_help(&b);
	text = buf_str(&b);
	for (line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
		cr_expect_leq(strcspn(line, "\n"), 80, "%.100s", line);
	cr_expect(strstr(text, "--nomination-seconds N") != NULL);
	cr_expect(strstr(text, "bestfit") != NULL);
	buf_fini(&b);
}

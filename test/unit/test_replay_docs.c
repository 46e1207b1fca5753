/* OPTIONS.md holds what --help prints, and the README names every command. `TESSERA_WRITE_DOCS=1` with
 * this suite writes OPTIONS.md anew. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "replay/command.h"
#include "test/lib/docs.h"

static char *slurp(const char *path)
{
	struct err err = ERR_INIT;
	char *text = NULL;
	size_t len;

	cr_assert_eq(file_read(path, 1 << 24, &text, &len, &err), 0, "%s", err.msg);
	return text;
}

/* Everything after the mark, as it should be. */
static void all_help(struct buf *b)
{
	char path[] = "/tmp/tessera-XXXXXX", *argv[] = {(char[]){"--help"}, NULL};
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	for (size_t i = 0; rp_command_at(i) != NULL; i++) {
		const struct rp_command *c = rp_command_at(i);
		char *text;

		cr_assert_not_null(freopen(path, "w", stdout));
		cr_assert_eq(c->run(c, 1, argv), 0);
		fflush(stdout);
		text = slurp(path);
		buf_printf(b, "\n## %s\n\n```\n%s```\n", c->name, text);
		free(text);
	}
	unlink(path);
}

Test(replay_docs, options_are_those_of_help)
{
	docs_expect("replay/OPTIONS.md", all_help);
}

Test(replay_docs, the_readme_names_every_command)
{
	char *text = slurp("replay/README.md");

	for (size_t i = 0; rp_command_at(i) != NULL; i++) {
		char name[64];

		snprintf(name, sizeof(name), "`%s`", rp_command_at(i)->name);
		cr_expect_not_null(strstr(text, name), "%s", name);
	}
	free(text);
}

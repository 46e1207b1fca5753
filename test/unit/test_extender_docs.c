/* OPTIONS.md and METRICS.md hold what the tables say. `TESSERA_WRITE_DOCS=1` with this suite writes
 * them anew. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "extender/metrics.h"
#include "extender/options.h"
#include "test/lib/extender_fixture.h"

#define MARK "<!-- table -->\n"

static void expect_table(const char *path, void (*table)(struct buf *b))
{
	struct buf want = BUF_INIT, b = BUF_INIT;
	char *text, *at;
	size_t len;

	table(&want);
	text = xf_file(path, &len);
	at = strstr(text, MARK);
	cr_assert_not_null(at, "%s has no %s", path, MARK);
	at += strlen(MARK);
	if (getenv("TESSERA_WRITE_DOCS") != NULL) {
		buf_put(&b, text, (size_t)(at - text));
		buf_put(&b, want.data, want.len);
		cr_assert_eq(file_replace(path, b.data, b.len, NULL), 0);
		buf_fini(&b);
	} else {
		cr_expect_str_eq(at, buf_str(&want));
	}
	free(text);
	buf_fini(&want);
}

Test(extender_docs, options)
{
	expect_table("extender/OPTIONS.md", ex_options_markdown);
}

Test(extender_docs, metrics)
{
	expect_table("extender/METRICS.md", ex_metrics_markdown);
}

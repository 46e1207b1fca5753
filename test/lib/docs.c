#include "test/lib/docs.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MARK "<!-- table -->\n"
#define DOC_MAX ((size_t)1 << 20)

void docs_expect(const char *path, void (*table)(struct buf *b))
{
	struct buf want = BUF_INIT, b = BUF_INIT;
	struct err err = ERR_INIT;
	const char *mark;
	char *text = NULL;
	size_t len, head;

	cr_assert_eq(file_read(path, DOC_MAX, &text, &len, &err), 0, "%s", err.msg);
	mark = strstr(text, MARK);
	cr_assert_not_null(mark, "%s has no %s", path, MARK);
	head = (size_t)(mark - text) + strlen(MARK);
	table(&want);
	if (getenv("TESSERA_WRITE_DOCS") != NULL) {
		buf_put(&b, text, head);
		buf_put(&b, want.data, want.len);
		cr_assert_eq(file_replace(path, b.data, b.len, NULL), 0);
		buf_fini(&b);
	} else {
		cr_expect_str_eq(text + head, buf_str(&want));
	}
	free(text);
	buf_fini(&want);
}

#include <criterion/criterion.h>
#include <string.h>

#include "base/err.h"

Test(base_err, set_formats_and_returns_the_code)
{
	struct err err = ERR_INIT;

	cr_assert_str_empty(err.msg);
	cr_assert_eq(err_set(&err, ERR_RANGE, "%s is %d", "memory", 7), ERR_RANGE);
	cr_assert_str_eq(err.msg, "memory is 7");
	cr_assert_eq(err_set(&err, ERR_IO, "other"), ERR_IO);
	cr_assert_str_eq(err.msg, "other");
}

Test(base_err, null_err_gives_the_code_only)
{
	cr_assert_eq(err_set(NULL, ERR_NOMEM, "x"), ERR_NOMEM);
	cr_assert_eq(err_prefix(NULL, ERR_NOMEM, "x"), ERR_NOMEM);
}

Test(base_err, set_may_use_the_old_message)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_IO, "inner");
	err_set(&err, ERR_IO, "outer (%s)", err.msg);
	cr_assert_str_eq(err.msg, "outer (inner)");
}

Test(base_err, prefix_stacks)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_INVALID, "not a number");
	cr_assert_eq(err_prefix(&err, ERR_INVALID, "line %d", 3), ERR_INVALID);
	cr_assert_eq(err_prefix(&err, ERR_INVALID, "trace.csv"), ERR_INVALID);
	cr_assert_str_eq(err.msg, "trace.csv: line 3: not a number");
}

Test(base_err, prefix_of_an_empty_message_has_no_colon)
{
	struct err err = ERR_INIT;

	err_prefix(&err, ERR_NOMEM, "reading %s", "nodes");
	cr_assert_str_eq(err.msg, "reading nodes");
}

Test(base_err, long_messages_are_cut)
{
	struct err err = ERR_INIT;
	char text[ERR_MSG_CAP + 100];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	err_set(&err, ERR_IO, "%s", text);
	cr_assert_eq(strlen(err.msg), ERR_MSG_CAP - 1);
	err_prefix(&err, ERR_IO, "head");
	cr_assert_eq(strlen(err.msg), ERR_MSG_CAP - 1);
	cr_assert_eq(strncmp(err.msg, "head: aaaa", 10), 0);
	err_prefix(&err, ERR_IO, "%s", text);
	cr_assert_eq(strlen(err.msg), ERR_MSG_CAP - 1);
	/* Exactly full is not cut. */
	text[ERR_MSG_CAP - 1] = '\0';
	err_set(&err, ERR_IO, "%s", text);
	cr_assert_str_eq(err.msg, text);
}

/* Sequences of 2, 3 and 4 bytes at every offset to the end. */
Test(base_err, never_cut_inside_a_utf8_sequence)
{
	static const char *const seq[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};

	for (size_t s = 0; s < 3; s++) {
		size_t width = strlen(seq[s]);

		for (size_t ascii = ERR_MSG_CAP - 6; ascii < ERR_MSG_CAP + 2; ascii++) {
			char text[2 * ERR_MSG_CAP];
			struct err err = ERR_INIT;
			size_t room, want;

			memset(text, 'x', ascii);
			text[ascii] = '\0';
			for (int i = 0; i < 3; i++)
				strncat(text, seq[s], 4);
			room = ascii < ERR_MSG_CAP ? ERR_MSG_CAP - 1 - ascii : 0;
			want = ascii < ERR_MSG_CAP ? ascii + room / width * width : ERR_MSG_CAP - 1;
			err_set(&err, ERR_IO, "%s", text);
			cr_assert_eq(strlen(err.msg), want, "%zu bytes after %zu", width, ascii);
			err_set(&err, ERR_IO, "%s", text + 2);
			err_prefix(&err, ERR_IO, "%s", ""); /* ": " makes up for the 2 bytes */
			cr_assert_eq(strlen(err.msg), want, "%zu bytes after %zu", width, ascii);
		}
	}
}

Test(base_err, names)
{
	cr_assert_str_eq(err_name(ERR_OK), "ok");
	cr_assert_str_eq(err_name(ERR_NOMEM), "out of memory");
	cr_assert_str_eq(err_name(ERR_INVALID), "invalid");
	cr_assert_str_eq(err_name(ERR_NOT_FOUND), "not found");
	cr_assert_str_eq(err_name(ERR_EXISTS), "exists");
	cr_assert_str_eq(err_name(ERR_CONFLICT), "conflict");
	cr_assert_str_eq(err_name(ERR_NO_ROOM), "no room");
	cr_assert_str_eq(err_name(ERR_RANGE), "out of range");
	cr_assert_str_eq(err_name(ERR_IO), "input/output");
	cr_assert_str_eq(err_name(ERR_TOO_LARGE), "too large");
	cr_assert_str_eq(err_name(ERR_INTERNAL), "internal");
	cr_assert_str_eq(err_name(ERR_INTERNAL - 1), "unknown");
	cr_assert_str_eq(err_name(1), "unknown");
}

/* The scanner's pieces: one value, one string, one member at a time. For scan*.c only. */
#ifndef TESSERA_EXTENDER_SCAN_INTERNAL_H
#define TESSERA_EXTENDER_SCAN_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "extender/scan.h"

/* Where the scanner is. Functions return 0 (or as said) or the code they set. */
struct ex_cursor {
	const char *p, *end, *start;
	struct err *err;
};

/* Sets "byte N: what"; returns ERR_INVALID. */
int ex_cursor_bad(const struct ex_cursor *c, const char *what);
void ex_cursor_space(struct ex_cursor *c);
/* A string, at its opening quote. *ret_escaped: it holds escapes. out (may be NULL) gets the decoded
 * bytes. */
int ex_cursor_string(struct ex_cursor *c, bool *ret_escaped, struct buf *out);
int ex_cursor_literal(struct ex_cursor *c, const char *word);
/* Skips one value of any kind that lies depth levels deep, and checks all of it. */
int ex_cursor_skip(struct ex_cursor *c, unsigned depth);
/* Walks a list or object: *first is true and the cursor at its opening bracket before the first call.
 * 1 with the cursor at the next element, 0 after the end, or an error. */
int ex_cursor_next(struct ex_cursor *c, bool *first, char close);
/* The same for an object: 1 with the decoded key in *key and the cursor at the value. */
int ex_cursor_member(struct ex_cursor *c, bool *first, struct buf *key);
bool ex_key_is(const struct buf *key, const char *name, bool any_case);
/* Nothing but white space may follow. */
int ex_cursor_end(struct ex_cursor *c);

#endif

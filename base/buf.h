/* A growable byte buffer. Failure is sticky: after one failed growth every put is a no-op and
 * buf_ok() is false, so a writer checks once at its end. */
#ifndef TESSERA_BASE_BUF_H
#define TESSERA_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;  /* owned; not NUL-terminated, see buf_str() */
	size_t len;  /* bytes written */
	size_t cap;  /* bytes allocated */
	bool failed; /* an allocation failed */
};

/* clang-format off */
#define BUF_INIT {0}
/* clang-format on */

void buf_fini(struct buf *b);                  /* frees; the buffer is empty and usable again */
void buf_reset(struct buf *b);                 /* length 0, keeps the memory, clears failed */
bool buf_reserve(struct buf *b, size_t extra); /* room for extra more bytes; false: no memory */
void buf_put(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_put_i64(struct buf *b, int64_t v); /* decimal */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline bool buf_ok(const struct buf *b)
{
	return !b->failed;
}

/* The content as a C string (a NUL is kept behind the content, not counted in len);
 * NULL when an allocation failed. Valid until the next put. */
const char *buf_str(struct buf *b);

/* Gives the content away as a malloc'ed C string; the buffer is empty afterwards. NULL: no memory. */
char *buf_take(struct buf *b);

#endif

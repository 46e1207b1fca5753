#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_CAP 64

void buf_fini(struct buf *b)
{
	free(b->data);
	*b = (struct buf)BUF_INIT;
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

bool buf_reserve(struct buf *b, size_t extra)
{
	size_t need, cap;
	char *data;

	if (b->failed)
		return false;
	if (__builtin_add_overflow(b->len, extra, &need)) {
		b->failed = true;
		return false;
	}
	if (need <= b->cap)
		return true;
	cap = b->cap > 0 ? b->cap : BUF_FIRST_CAP;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	data = realloc(b->data, cap);
	if (data == NULL) {
		b->failed = true;
		return false;
	}
	b->data = data;
	b->cap = cap;
	return true;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
	if (len == 0 || !buf_reserve(b, len))
		return;
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	buf_put(b, &c, 1);
}

void buf_put_i64(struct buf *b, int64_t v)
{
	char digits[20]; /* "-9223372036854775808" */
	char *p = digits + sizeof(digits);
	uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;

	do
		*--p = (char)('0' + u % 10);
	while ((u /= 10) > 0);
	if (v < 0)
		*--p = '-';
	buf_put(b, p, (size_t)(digits + sizeof(digits) - p));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	int wanted;

	if (!buf_reserve(b, BUF_FIRST_CAP))
		return;
	va_start(ap, fmt);
	va_copy(again, ap);
	wanted = vsnprintf(b->data + b->len, b->cap - b->len, fmt, ap);
	if (wanted < 0) {
		b->failed = true;
	} else if ((size_t)wanted < b->cap - b->len) {
		b->len += (size_t)wanted;
	} else if (buf_reserve(b, (size_t)wanted + 1)) {
		vsnprintf(b->data + b->len, b->cap - b->len, fmt, again);
		b->len += (size_t)wanted;
	}
	va_end(again);
	va_end(ap);
}

const char *buf_str(struct buf *b)
{
	if (!buf_reserve(b, 1))
		return NULL;
	b->data[b->len] = '\0';
	return b->data;
}

char *buf_take(struct buf *b)
{
	char *s = buf_str(b) != NULL ? b->data : NULL;

	if (s == NULL)
		free(b->data);
	*b = (struct buf)BUF_INIT;
	return s;
}

#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of msg[0..len) without a UTF-8 sequence that was cut off at its end. */
static size_t utf8_whole(const char *msg, size_t len)
{
	size_t start = len, want;
	unsigned char lead;

	while (start > 0 && len - start < 3 && ((unsigned char)msg[start - 1] & 0xC0) == 0x80)
		start--;
	if (start == 0)
		return len;
	lead = (unsigned char)msg[start - 1];
	want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
	return len - start + 1 < want ? start - 1 : len;
}

/* Ends msg after a vsnprintf that wanted `wanted` bytes into cap; returns the length kept. */
static size_t cut(char *msg, size_t cap, int wanted)
{
	size_t len;

	if (wanted < 0) {
		msg[0] = '\0';
		return 0;
	}
	if ((size_t)wanted < cap)
		return (size_t)wanted;
	len = utf8_whole(msg, cap - 1);
	msg[len] = '\0';
	return len;
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	/* By way of a copy: the arguments may point into the old message. */
	char msg[ERR_MSG_CAP];
	size_t len;
	va_list ap;

	if (err == NULL)
		return code;
	va_start(ap, fmt);
	len = cut(msg, sizeof(msg), vsnprintf(msg, sizeof(msg), fmt, ap));
	va_end(ap);
	memcpy(err->msg, msg, len + 1);
	return code;
}

int err_prefix(struct err *err, int code, const char *fmt, ...)
{
	char msg[ERR_MSG_CAP];
	size_t len;
	va_list ap;

	if (err == NULL)
		return code;
	va_start(ap, fmt);
	len = cut(msg, sizeof(msg), vsnprintf(msg, sizeof(msg), fmt, ap));
	va_end(ap);
	/* With an empty message there is nothing to put a colon before. */
	cut(msg + len, sizeof(msg) - len,
	    snprintf(msg + len, sizeof(msg) - len, "%s%s", err->msg[0] != '\0' ? ": " : "",
		     err->msg));
	memcpy(err->msg, msg, sizeof(msg));
	return code;
}

int err_exit_status(int code)
{
	switch (code) {
	case ERR_OK:
		return 0;
	case ERR_INVALID:
	case ERR_NOT_FOUND:
	case ERR_EXISTS:
	case ERR_RANGE:
	case ERR_TOO_LARGE:
		return 2;
	default:
		return 1;
	}
}

const char *err_name(int code)
{
	static const char *const names[] = {
		"ok",      "out of memory", "invalid",      "not found", "exists",   "conflict",
		"no room", "out of range",  "input/output", "too large", "internal",
	};

	if (code > 0 || code <= -(int)(sizeof(names) / sizeof(names[0])))
		return "unknown";
	return names[-code];
}

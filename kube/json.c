/* Strict JSON in front of cJSON. cJSON takes leading zeros, control characters, any byte <= 32 as
 * white space, text behind the value, \u0000 (which cuts the string short) and 1e400; of these the API
 * server takes \u0000 alone. So the text is checked first, in one pass without recursion, by the grammar
 * of RFC 8259, and cJSON only sees what both read alike. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kube/object.h"

#define DEPTH_MAX 256
#define NUMBER_MAX 63 /* characters that cJSON looks at */

struct scan {
	const unsigned char *s;
	size_t len, pos;
	const char *fault; /* NULL while all is well */
	unsigned depth;
	bool in_object[DEPTH_MAX];
};

static int peek(const struct scan *x)
{
	return x->pos < x->len ? x->s[x->pos] : -1;
}

static bool fail(struct scan *x, const char *fault)
{
	if (x->fault == NULL)
		x->fault = fault;
	return false;
}

static void skip_space(struct scan *x)
{
	while (x->pos < x->len && memchr(" \t\r\n", x->s[x->pos], 4) != NULL)
		x->pos++;
}

/* One code point in UTF-8: no overlong form, no surrogate, nothing above U+10FFFF. */
static bool scan_utf8(struct scan *x)
{
	const unsigned char *p = x->s + x->pos;
	size_t left = x->len - x->pos, n;
	uint32_t cp;

	n = p[0] < 0x80   ? 1
	    : p[0] < 0xc2 ? 0
	    : p[0] < 0xe0 ? 2
	    : p[0] < 0xf0 ? 3
	    : p[0] < 0xf5 ? 4
			  : 0;
	if (n == 0 || n > left)
		return fail(x, "invalid UTF-8");
	cp = n == 1 ? p[0] : p[0] & (0xffU >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return fail(x, "invalid UTF-8");
		cp = cp << 6 | (p[i] & 0x3fU);
	}
	if ((n == 3 && (cp < 0x800 || (cp >= 0xd800 && cp <= 0xdfff))) ||
	    (n == 4 && (cp < 0x10000 || cp > 0x10ffff)))
		return fail(x, "invalid UTF-8");
	x->pos += n;
	return true;
}

/* The four digits of \uXXXX, or -1. */
static int scan_hex4(struct scan *x)
{
	int v = 0;

	for (int i = 0; i < 4; i++, x->pos++) {
		int c = peek(x);

		if (c >= '0' && c <= '9')
			v = v * 16 + c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			v = v * 16 + (c | 0x20) - 'a' + 10;
		else
			return -1;
	}
	return v;
}

/* Behind a backslash. */
static bool scan_escape(struct scan *x)
{
	int c = peek(x), unit;

	if (c < 0 || memchr("\"\\/bfnrtu", c, 9) == NULL)
		return fail(x, "unknown escape");
	x->pos++;
	if (c != 'u')
		return true;
	unit = scan_hex4(x);
	if (unit < 0)
		return fail(x, "\\u without four hex digits");
	if (unit == 0)
		return fail(x, "a NUL character");
	if (unit < 0xd800 || unit > 0xdfff)
		return true;
	if (unit > 0xdbff || peek(x) != '\\')
		return fail(x, "half of a surrogate pair");
	x->pos++;
	if (peek(x) != 'u')
		return fail(x, "half of a surrogate pair");
	x->pos++;
	unit = scan_hex4(x);
	return unit >= 0xdc00 && unit <= 0xdfff ? true : fail(x, "half of a surrogate pair");
}

static bool scan_string(struct scan *x)
{
	for (x->pos++;;) {
		int c = peek(x);

		if (c < 0)
			return fail(x, "a string without end");
		if (c < 0x20)
			return fail(x,
				    c == 0 ? "a NUL character" : "a control character in a string");
		if (c == '"') {
			x->pos++;
			return true;
		}
		if (c == '\\') {
			x->pos++;
			if (!scan_escape(x))
				return false;
		} else if (!scan_utf8(x)) {
			return false;
		}
	}
}

static bool scan_digits(struct scan *x)
{
	size_t from = x->pos;

	while (peek(x) >= '0' && peek(x) <= '9')
		x->pos++;
	return x->pos > from ? true : fail(x, "not a number");
}

static bool scan_number(struct scan *x)
{
	size_t from = x->pos;
	char copy[NUMBER_MAX + 1];

	if (peek(x) == '-')
		x->pos++;
	if (peek(x) == '0')
		x->pos++;
	else if (!scan_digits(x))
		return false;
	if (peek(x) == '.') {
		x->pos++;
		if (!scan_digits(x))
			return false;
	}
	if ((peek(x) | 0x20) == 'e') {
		x->pos++;
		if (peek(x) == '+' || peek(x) == '-')
			x->pos++;
		if (!scan_digits(x))
			return false;
	}
	if (x->pos - from > NUMBER_MAX)
		return fail(x, "a number of more than 63 characters");
	memcpy(copy, x->s + from, x->pos - from);
	copy[x->pos - from] = '\0';
	return isfinite(strtod(copy, NULL)) ? true : fail(x, "a number out of range");
}

static bool scan_word(struct scan *x)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < 3; i++) {
		size_t n = strlen(words[i]);

		if (x->len - x->pos >= n && memcmp(x->s + x->pos, words[i], n) == 0) {
			x->pos += n;
			return true;
		}
	}
	return fail(x, peek(x) == 0 ? "a NUL character" : "not a JSON value");
}

/* A key and its colon. */
static bool scan_key(struct scan *x)
{
	skip_space(x);
	if (peek(x) != '"')
		return fail(x, "not a key");
	if (!scan_string(x))
		return false;
	skip_space(x);
	if (peek(x) != ':')
		return fail(x, "no ':' behind a key");
	x->pos++;
	return true;
}

/* A value that starts here; *ret_open when it is an array or object whose first value comes next. */
static bool scan_value(struct scan *x, bool *ret_open)
{
	int c;

	*ret_open = false;
	skip_space(x);
	c = peek(x);
	if (c < 0)
		return fail(x, "the text ends too early");
	if (c == '"')
		return scan_string(x);
	if (c == '-' || (c >= '0' && c <= '9'))
		return scan_number(x);
	if (c != '{' && c != '[')
		return scan_word(x);
	if (x->depth == DEPTH_MAX)
		return fail(x, "more than 256 levels");
	x->pos++;
	skip_space(x);
	if (peek(x) == (c == '{' ? '}' : ']')) {
		x->pos++;
		return true;
	}
	x->in_object[x->depth++] = c == '{';
	*ret_open = true;
	return c == '[' || scan_key(x);
}

/* After a value: closes what ends here, or steps to the next value of the innermost container. */
static bool scan_next(struct scan *x)
{
	while (x->depth > 0) {
		bool object = x->in_object[x->depth - 1];
		int c;

		skip_space(x);
		c = peek(x);
		if (c == ',') {
			x->pos++;
			return !object || scan_key(x);
		}
		if (c < 0)
			return fail(x, "the text ends too early");
		if (c != (object ? '}' : ']'))
			return fail(x, object ? "neither ',' nor '}'" : "neither ',' nor ']'");
		x->pos++;
		x->depth--;
	}
	return true;
}

static bool scan_text(struct scan *x)
{
	bool open;

	do {
		if (!scan_value(x, &open) || (!open && !scan_next(x)))
			return false;
	} while (open || x->depth > 0);
	skip_space(x);
	return x->pos == x->len ? true : fail(x, "text behind the value");
}

int ku_json_parse(const char *text, size_t len, cJSON **ret, struct err *err)
{
	struct scan x = {.s = (const unsigned char *)text, .len = len};
	cJSON *tree;

	if (!scan_text(&x))
		return err_set(err, ERR_INVALID, "JSON, byte %zu: %s", x.pos, x.fault);
	tree = cJSON_ParseWithLength(text, len);
	if (tree == NULL)
		return err_set(err, ERR_NOMEM, "JSON: no memory");
	*ret = tree;
	return 0;
}

/* A copy in which each escape of a NUL is one of U+FFFD, which is as long. NULL: no memory. */
static char *without_nul(const char *text, size_t len)
{
	static const char nul[] = "u0000", marked[] = "ufffd";
	const size_t n = sizeof(nul) - 1;
	char *copy = malloc(len + 1);

	if (copy == NULL)
		return NULL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	for (size_t i = 0; i < len; i++) {
		if (copy[i] != '\\')
			continue;
		i++; /* what is escaped begins nothing new */
		if (len - i >= n && memcmp(copy + i, nul, n) == 0)
			memcpy(copy + i, marked, n);
	}
	return copy;
}

int ku_json_parse_stored(const char *text, size_t len, cJSON **ret, struct err *err)
{
	char *copy;
	int r;

	if (len == 0 || memmem(text, len, "\\u0000", 6) == NULL)
		return ku_json_parse(text, len, ret, err);
	copy = without_nul(text, len);
	if (copy == NULL)
		return err_set(err, ERR_NOMEM, "JSON: no memory");
	r = ku_json_parse(copy, len, ret, err);
	free(copy);
	return r;
}

const cJSON *ku_json_get(const cJSON *obj, const char *name)
{
	const cJSON *found = NULL, *child;

	if (!cJSON_IsObject(obj))
		return NULL;
	cJSON_ArrayForEach(child, obj)
	{
		if (child->string != NULL && strcmp(child->string, name) == 0)
			found = child;
	}
	return found;
}

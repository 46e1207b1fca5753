#include "extender/scan_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "extender/json.h"

#define NUMBER_MAX 63 /* as ku_json_parse() */

int ex_cursor_bad(const struct ex_cursor *c, const char *what)
{
	return err_set(c->err, ERR_INVALID, "byte %zu: %s", (size_t)(c->p - c->start), what);
}

void ex_cursor_space(struct ex_cursor *c)
{
	while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
		c->p++;
}

/* ---- strings ---- */

#if defined(__SSE2__)

/* Sixteen bytes at a time. */
static inline void skip_blocks(struct ex_cursor *c)
{
	const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
	const __m128i space = _mm_set1_epi8(' ');
	int stop;

	while (c->end - c->p >= 16) {
		__m128i w = _mm_loadu_si128((const __m128i *)(const void *)c->p);
		__m128i hit = _mm_or_si128(_mm_cmpeq_epi8(w, quote), _mm_cmpeq_epi8(w, backslash));

		/* As signed numbers, bytes of 0x80 and above are below the blank too. */
		hit = _mm_or_si128(hit, _mm_cmplt_epi8(w, space));
		stop = _mm_movemask_epi8(hit);
		if (stop != 0) {
			c->p += __builtin_ctz((unsigned)stop);
			return;
		}
		c->p += 16;
	}
}

#else

#define ONES UINT64_C(0x0101010101010101)
#define HIGHS UINT64_C(0x8080808080808080)

/* The high bit of each byte of w that is zero; false ones only above a true one. */
static inline uint64_t zero_bytes(uint64_t w)
{
	return (w - ONES) & ~w & HIGHS;
}

/* Eight bytes at a time. */
static inline void skip_blocks(struct ex_cursor *c)
{
	uint64_t w;

	while (c->end - c->p >= 8) {
		memcpy(&w, c->p, 8);
		if ((zero_bytes(w ^ (ONES * '"')) | zero_bytes(w ^ (ONES * '\\')) |
		     ((w - ONES * ' ') & ~w & HIGHS) | (w & HIGHS)) != 0)
			return;
		c->p += 8;
	}
}

#endif

/* Skips bytes that stand for themselves: printable ASCII but quote and backslash. */
static inline void skip_plain(struct ex_cursor *c)
{
	skip_blocks(c);
	while (c->p < c->end && (unsigned char)*c->p >= ' ' && (unsigned char)*c->p < 0x80 &&
	       *c->p != '"' && *c->p != '\\')
		c->p++;
}

static int hex4(struct ex_cursor *c, unsigned *ret)
{
	unsigned v = 0;
	char ch;

	if (c->end - c->p < 4)
		return ex_cursor_bad(c, "\\u needs four hexadecimal digits");
	for (int i = 0; i < 4; i++) {
		ch = c->p[i];
		if (ch >= '0' && ch <= '9')
			v = v * 16 + (unsigned)(ch - '0');
		else if ((ch | 32) >= 'a' && (ch | 32) <= 'f')
			v = v * 16 + (unsigned)((ch | 32) - 'a') + 10;
		else
			return ex_cursor_bad(c, "\\u needs four hexadecimal digits");
	}
	c->p += 4;
	*ret = v;
	return 0;
}

static void put_utf8(struct buf *b, unsigned cp)
{
	char out[4];
	size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};

	for (size_t i = n; i-- > 1; cp >>= 6)
		out[i] = (char)(0x80 | (cp & 0x3F));
	out[0] = (char)(lead[n] | cp);
	buf_put(b, out, n);
}

/* At the character after "\u". */
static int unicode_escape(struct ex_cursor *c, struct buf *out)
{
	unsigned cp = 0, low = 0;
	int rc;

	rc = hex4(c, &cp);
	if (rc < 0)
		return rc;
	if (cp == 0)
		return ex_cursor_bad(c, "\\u0000 in a string");
	if (cp >= 0xDC00 && cp <= 0xDFFF)
		return ex_cursor_bad(c, "a low surrogate without a high one");
	if (cp >= 0xD800 && cp <= 0xDBFF) {
		if (c->end - c->p < 2 || c->p[0] != '\\' || c->p[1] != 'u')
			return ex_cursor_bad(c, "a high surrogate without a low one");
		c->p += 2;
		rc = hex4(c, &low);
		if (rc < 0)
			return rc;
		if (low < 0xDC00 || low > 0xDFFF)
			return ex_cursor_bad(c, "a high surrogate without a low one");
		cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
	}
	if (out != NULL)
		put_utf8(out, cp);
	return 0;
}

/* At a backslash. */
static int escape(struct ex_cursor *c, struct buf *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;

	if (c->end - c->p < 2)
		return ex_cursor_bad(c, "the text ends inside an escape");
	c->p++;
	if (*c->p == 'u') {
		c->p++;
		return unicode_escape(c, out);
	}
	at = *c->p != '\0' ? strchr(from, *c->p) : NULL;
	if (at == NULL)
		return ex_cursor_bad(c, "unknown escape");
	if (out != NULL)
		buf_putc(out, to[at - from]);
	c->p++;
	return 0;
}

/* A string, at its opening quote. *ret_escaped: it holds escapes. out (may be NULL) gets the decoded
 * bytes. */
int ex_cursor_string(struct ex_cursor *c, bool *ret_escaped, struct buf *out)
{
	const char *run;
	unsigned n;
	int rc;

	*ret_escaped = false;
	c->p++;
	for (;;) {
		run = c->p;
		skip_plain(c);
		if (out != NULL)
			buf_put(out, run, (size_t)(c->p - run));
		if (c->p >= c->end)
			return ex_cursor_bad(c, "the text ends inside a string");
		if (*c->p == '"')
			break;
		if (*c->p == '\\') {
			*ret_escaped = true;
			rc = escape(c, out);
			if (rc < 0)
				return rc;
			continue;
		}
		if ((unsigned char)*c->p < ' ')
			return ex_cursor_bad(c, "control character in a string");
		n = ex_utf8_len((const unsigned char *)c->p, (const unsigned char *)c->end);
		if (n == 0)
			return ex_cursor_bad(c, "invalid UTF-8");
		if (out != NULL)
			buf_put(out, c->p, n);
		c->p += n;
	}
	c->p++;
	return 0;
}

/* ---- other scalars ---- */

static size_t digits(struct ex_cursor *c)
{
	const char *from = c->p;

	while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
		c->p++;
	return (size_t)(c->p - from);
}

static int number(struct ex_cursor *c)
{
	const char *from = c->p;
	char copy[NUMBER_MAX + 1];
	size_t len;

	if (*c->p == '-')
		c->p++;
	if (c->p < c->end && *c->p == '0')
		c->p++;
	else if (digits(c) == 0)
		return ex_cursor_bad(c, "no JSON value");
	if (c->p < c->end && *c->p == '.') {
		c->p++;
		if (digits(c) == 0)
			return ex_cursor_bad(c, "no digit after the decimal point");
	}
	if (c->p < c->end && (*c->p | 32) == 'e') {
		c->p++;
		if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
			c->p++;
		if (digits(c) == 0)
			return ex_cursor_bad(c, "no digit in the exponent");
	}
	len = (size_t)(c->p - from);
	if (len > NUMBER_MAX)
		return ex_cursor_bad(c, "a number of more than 63 characters");
	memcpy(copy, from, len);
	copy[len] = '\0';
	return isfinite(strtod(copy, NULL)) ? 0 : ex_cursor_bad(c, "a number out of range");
}

int ex_cursor_literal(struct ex_cursor *c, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(c->end - c->p) < len || memcmp(c->p, word, len) != 0)
		return ex_cursor_bad(c, "no JSON value");
	c->p += len;
	return 0;
}

static int scalar(struct ex_cursor *c)
{
	bool escaped;

	if (c->p >= c->end)
		return ex_cursor_bad(c, "the text ends where a value should be");
	switch (*c->p) {
	case '"':
		return ex_cursor_string(c, &escaped, NULL);
	case 't':
		return ex_cursor_literal(c, "true");
	case 'f':
		return ex_cursor_literal(c, "false");
	case 'n':
		return ex_cursor_literal(c, "null");
	default:
		return number(c);
	}
}

/* ---- containers ---- */

/* After '{' or a comma: a key and its colon. */
static int skip_key(struct ex_cursor *c)
{
	bool escaped;
	int rc;

	ex_cursor_space(c);
	if (c->p >= c->end || *c->p != '"')
		return ex_cursor_bad(c, "no key where one should be");
	rc = ex_cursor_string(c, &escaped, NULL);
	if (rc < 0)
		return rc;
	ex_cursor_space(c);
	if (c->p >= c->end || *c->p != ':')
		return ex_cursor_bad(c, "no colon after a key");
	c->p++;
	return 0;
}

/* Skips one value of any kind that lies depth levels deep; checks all of it. No recursion: the kinds
 * of the open containers are bits. */
int ex_cursor_skip(struct ex_cursor *c, unsigned depth)
{
	uint64_t is_object[(EX_SCAN_DEPTH_MAX + 63) / 64] = {0};
	unsigned top = depth;
	bool object;
	int rc;

	for (;;) {
		ex_cursor_space(c);
		if (c->p < c->end && (*c->p == '{' || *c->p == '[')) {
			object = *c->p == '{';
			if (depth >= EX_SCAN_DEPTH_MAX)
				return ex_cursor_bad(c, "nested too deeply");
			is_object[depth / 64] &= ~(UINT64_C(1) << depth % 64);
			is_object[depth / 64] |= (uint64_t)object << depth % 64;
			depth++;
			c->p++;
			ex_cursor_space(c);
			if (c->p >= c->end || *c->p != (object ? '}' : ']')) {
				rc = object ? skip_key(c) : 0;
				if (rc < 0)
					return rc;
				continue;
			}
			c->p++;
			depth--;
		} else {
			rc = scalar(c);
			if (rc < 0)
				return rc;
		}
		/* A value has ended: close what closes, or go on to the next member. */
		for (;;) {
			if (depth == top)
				return 0;
			ex_cursor_space(c);
			object = is_object[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
			if (c->p < c->end && *c->p == ',') {
				c->p++;
				rc = object ? skip_key(c) : 0;
				if (rc < 0)
					return rc;
				break;
			}
			if (c->p >= c->end || *c->p != (object ? '}' : ']'))
				return ex_cursor_bad(c, "no comma or end of the list");
			c->p++;
			depth--;
		}
	}
}

int ex_cursor_next(struct ex_cursor *c, bool *first, char close)
{
	bool begin = *first;

	*first = false;
	if (begin)
		c->p++;
	ex_cursor_space(c);
	if (c->p < c->end && *c->p == close) {
		c->p++;
		return 0;
	}
	if (!begin) {
		if (c->p >= c->end || *c->p != ',')
			return ex_cursor_bad(c, "no comma or end of the list");
		c->p++;
		ex_cursor_space(c);
	}
	return 1;
}

int ex_cursor_member(struct ex_cursor *c, bool *first, struct buf *key)
{
	bool escaped;
	int rc;

	rc = ex_cursor_next(c, first, '}');
	if (rc != 1)
		return rc;
	if (c->p >= c->end || *c->p != '"')
		return ex_cursor_bad(c, "no key where one should be");
	buf_reset(key);
	rc = ex_cursor_string(c, &escaped, key);
	if (rc < 0)
		return rc;
	if (!buf_ok(key))
		return err_set(c->err, ERR_NOMEM, "out of memory");
	ex_cursor_space(c);
	if (c->p >= c->end || *c->p != ':')
		return ex_cursor_bad(c, "no colon after a key");
	c->p++;
	ex_cursor_space(c);
	return 1;
}

bool ex_key_is(const struct buf *key, const char *name, bool any_case)
{
	size_t len = strlen(name);

	return key->len == len && (any_case ? strncasecmp(key->data, name, len) == 0
					    : memcmp(key->data, name, len) == 0);
}

int ex_cursor_end(struct ex_cursor *c)
{
	ex_cursor_space(c);
	return c->p == c->end ? 0 : ex_cursor_bad(c, "text after the end of the value");
}

int ex_scan_check(const char *text, size_t len, struct err *err)
{
	struct ex_cursor c = {.p = text, .end = text + len, .start = text, .err = err};
	int rc = ex_cursor_skip(&c, 0);

	return rc < 0 ? rc : ex_cursor_end(&c);
}

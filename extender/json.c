#include "extender/json.h"

#include <string.h>

#include "base/quantity.h"

unsigned ex_utf8_len(const unsigned char *p, const unsigned char *end)
{
	unsigned len = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;

	if (p[0] > 0xF4 || (size_t)(end - p) < len)
		return 0;
	for (unsigned i = 1; i < len; i++) {
		if ((p[i] & 0xC0) != 0x80)
			return 0;
	}
	/* Overlong forms, surrogates, beyond U+10FFFF. */
	if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
	    (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
		return 0;
	return len;
}

static bool plain(unsigned char c)
{
	return c >= ' ' && c < 0x7f && c != '"' && c != '\\';
}

static void put_escape(struct buf *b, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	const char *at = memchr(from, c, sizeof(from) - 1);

	if (at != NULL)
		buf_put(b, (const char[]){'\\', to[at - from]}, 2);
	else
		buf_put(b, (const char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
}

void ex_json_put_string(struct buf *b, const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s, *end = p + len, *run;
	unsigned n;

	buf_reserve(b, len + 2);
	buf_putc(b, '"');
	while (p < end) {
		for (run = p; p < end && plain(*p); p++)
			;
		buf_put(b, run, (size_t)(p - run));
		if (p == end)
			break;
		n = ex_utf8_len(p, end);
		if (*p < ' ' || *p == '"' || *p == '\\' || *p == 0x7f)
			put_escape(b, *p);
		else if (n > 0)
			buf_put(b, p, n);
		else
			buf_put(b, "\xEF\xBF\xBD", 3);
		p += n > 0 ? n : 1;
	}
	buf_putc(b, '"');
}

static void before(struct ex_json *j)
{
	if (j->comma)
		buf_putc(j->b, ',');
	j->comma = true;
}

void ex_json_begin(struct ex_json *j, char open)
{
	before(j);
	buf_putc(j->b, open);
	j->comma = false;
}

void ex_json_end(struct ex_json *j, char close)
{
	buf_putc(j->b, close);
	j->comma = true;
}

void ex_json_key(struct ex_json *j, const char *key)
{
	before(j);
	ex_json_put_string(j->b, key, strlen(key));
	buf_putc(j->b, ':');
	j->comma = false;
}

void ex_json_string(struct ex_json *j, const char *s)
{
	before(j);
	if (s == NULL)
		buf_puts(j->b, "null");
	else
		ex_json_put_string(j->b, s, strlen(s));
}

void ex_json_i64(struct ex_json *j, int64_t v)
{
	before(j);
	buf_put_i64(j->b, v);
}

void ex_json_bool(struct ex_json *j, bool v)
{
	before(j);
	buf_puts(j->b, v ? "true" : "false");
}

void ex_json_nano(struct ex_json *j, int64_t nano)
{
	char text[24];

	before(j);
	buf_puts(j->b, decimal_format_nano(nano, text));
}

void ex_json_key_string(struct ex_json *j, const char *key, const char *s)
{
	ex_json_key(j, key);
	ex_json_string(j, s);
}

void ex_json_key_i64(struct ex_json *j, const char *key, int64_t v)
{
	ex_json_key(j, key);
	ex_json_i64(j, v);
}

void ex_json_key_bool(struct ex_json *j, const char *key, bool v)
{
	ex_json_key(j, key);
	ex_json_bool(j, v);
}

#include "replay/csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_LEN 253

void rp_csv_init(struct rp_csv *c, const char *path, const char *text, size_t len)
{
	*c = (struct rp_csv){.path = path, .text = text, .end = text + len, .next = text};
	if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
		c->next += 3;
	c->row = c->next;
}

const char *rp_csv_show(struct rp_field f, char buf[RP_SHOWN_CAP])
{
	size_t out = 0;

	for (size_t i = 0; i < f.len; i++) {
		unsigned char ch = (unsigned char)f.s[i];

		if (out + 8 > RP_SHOWN_CAP) {
			memcpy(buf + out, "...", 3);
			out += 3;
			break;
		}
		if (ch < 0x20 || ch >= 0x7F)
			out += (size_t)snprintf(buf + out, RP_SHOWN_CAP - out, "\\x%02x", ch);
		else
			buf[out++] = (char)ch;
	}
	buf[out] = '\0';
	return buf;
}

static int refuse_at(const struct rp_csv *c, const char *at, struct err *err, const char *what)
{
	return err_set(err, ERR_INVALID, "%s:%u:%zu: %s", c->path, c->line,
		       (size_t)(at - c->row) + 1, what);
}

int rp_csv_refuse(const struct rp_csv *c, const struct rp_column *column, int code, const char *why,
		  struct err *err)
{
	struct rp_field f = rp_csv_field(c, column);
	char shown[RP_SHOWN_CAP];

	return err_set(err, code, "%s:%u:%zu: field %s: \"%s\" %s", c->path, c->line,
		       (size_t)(f.s - c->row) + 1, column->name, rp_csv_show(f, shown), why);
}

/* Cuts [row, stop) at its commas. */
static int split(struct rp_csv *c, const char *stop, struct err *err)
{
	const char *s = c->row, *bad;

	c->field_count = 0;
	bad = memchr(c->row, '\0', (size_t)(stop - c->row));
	if (bad != NULL)
		return refuse_at(c, bad, err, "a NUL byte");
	bad = memchr(c->row, '"', (size_t)(stop - c->row));
	if (bad != NULL)
		return refuse_at(c, bad, err, "a quote: quoted fields are not understood");
	for (;;) {
		const char *comma = memchr(s, ',', (size_t)(stop - s));
		const char *e = comma != NULL ? comma : stop;

		if (c->field_count == RP_CSV_FIELDS_MAX)
			return refuse_at(c, s, err, "more than 64 fields");
		c->fields[c->field_count++] = (struct rp_field){.s = s, .len = (size_t)(e - s)};
		if (comma == NULL)
			return 1;
		s = comma + 1;
	}
}

int rp_csv_next(struct rp_csv *c, struct err *err)
{
	const char *lf, *stop;

	if (c->next >= c->end)
		return 0;
	lf = memchr(c->next, '\n', (size_t)(c->end - c->next));
	stop = lf != NULL ? lf : c->end;
	c->row = c->next;
	c->next = lf != NULL ? lf + 1 : c->end;
	c->line++;
	if (stop > c->row && stop[-1] == '\r')
		stop--;
	if (stop == c->row) {
		const char *s = c->next;

		while (s < c->end && (*s == '\n' || *s == '\r'))
			s++;
		if (s == c->end) {
			c->next = c->end;
			return 0;
		}
		return refuse_at(c, c->row, err, "an empty line");
	}
	return split(c, stop, err);
}

int rp_csv_header(struct rp_csv *c, struct rp_column *columns, size_t count, struct err *err)
{
	int rc = rp_csv_next(c, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(err, ERR_INVALID, "%s:1:1: no header line", c->path);
	for (size_t i = 0; i < count; i++) {
		size_t len = strlen(columns[i].name);

		columns[i].index = -1;
		for (size_t k = 0; k < c->field_count; k++) {
			if (c->fields[k].len != len ||
			    memcmp(c->fields[k].s, columns[i].name, len) != 0)
				continue;
			if (columns[i].index >= 0)
				return err_set(err, ERR_INVALID,
					       "%s:%u:%zu: column %s occurs twice", c->path,
					       c->line, (size_t)(c->fields[k].s - c->row) + 1,
					       columns[i].name);
			columns[i].index = (int)k;
		}
		if (columns[i].index < 0 && columns[i].required)
			return err_set(err, ERR_INVALID, "%s:%u:1: the header has no column %s",
				       c->path, c->line, columns[i].name);
	}
	return 0;
}

int rp_csv_row(struct rp_csv *c, size_t header_fields, struct err *err)
{
	int rc = rp_csv_next(c, err);

	if (rc == 1 && c->field_count != header_fields)
		return err_set(err, ERR_INVALID, "%s:%u:1: %zu fields, the header has %zu", c->path,
			       c->line, c->field_count, header_fields);
	return rc;
}

struct rp_field rp_csv_field(const struct rp_csv *c, const struct rp_column *column)
{
	if (column->index < 0 || (size_t)column->index >= c->field_count)
		return (struct rp_field){.s = c->row, .len = 0};
	return c->fields[column->index];
}

bool rp_digits(struct rp_field f, int64_t *ret)
{
	int64_t v = 0;

	if (f.len == 0)
		return false;
	for (size_t i = 0; i < f.len; i++) {
		int64_t digit = f.s[i] - '0';

		if (digit < 0 || digit > 9 || v > (INT64_MAX - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	*ret = v;
	return true;
}

static bool all_digits(struct rp_field f)
{
	for (size_t i = 0; i < f.len; i++)
		if (f.s[i] < '0' || f.s[i] > '9')
			return false;
	return f.len > 0;
}

int rp_csv_integer(const struct rp_csv *c, const struct rp_column *column, int64_t min, int64_t max,
		   int64_t *ret, struct err *err)
{
	struct rp_field f = rp_csv_field(c, column);
	char why[96];
	int64_t v;

	if (rp_digits(f, &v) && v >= min && v <= max) {
		*ret = v;
		return 0;
	}
	if (f.len > 1 && f.s[0] == '-' && all_digits((struct rp_field){f.s + 1, f.len - 1}))
		return rp_csv_refuse(c, column, ERR_RANGE, "is negative", err);
	if (!all_digits(f))
		return rp_csv_refuse(c, column, ERR_INVALID, "is not an integer", err);
	snprintf(why, sizeof(why), "is not within %" PRId64 "..%" PRId64, min, max);
	return rp_csv_refuse(c, column, ERR_RANGE, why, err);
}

int rp_csv_name(const struct rp_csv *c, const struct rp_column *column, struct rp_field *ret,
		struct err *err)
{
	struct rp_field f = rp_csv_field(c, column);

	if (f.len == 0)
		return rp_csv_refuse(c, column, ERR_INVALID, "is no name", err);
	if (f.len > NAME_MAX_LEN)
		return rp_csv_refuse(c, column, ERR_INVALID, "is longer than 253 characters", err);
	for (size_t i = 0; i < f.len; i++)
		if (f.s[i] <= ' ' || f.s[i] == 0x7F)
			return rp_csv_refuse(c, column, ERR_INVALID,
					     "has a blank or an unprintable character", err);
	*ret = f;
	return 0;
}

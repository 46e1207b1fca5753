/* Comma-separated text without quoting, read in place; errors say file, line and column. */
#ifndef TESSERA_REPLAY_CSV_H
#define TESSERA_REPLAY_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define RP_CSV_FIELDS_MAX 64

struct rp_field {
	const char *s; /* into the text, not NUL-terminated */
	size_t len;
};

struct rp_csv {
	const char *path; /* for messages */
	const char *text, *end;
	const char *next; /* start of the line to be read */
	const char *row;  /* start of the line that was read last */
	unsigned line;    /* its number, from 1 */
	size_t field_count;
	struct rp_field fields[RP_CSV_FIELDS_MAX];
};

/* A column the reader wants. index is set by rp_csv_header(): -1 where an optional one is absent. */
struct rp_column {
	const char *name;
	bool required;
	int index;
};

/* Borrows path and text for as long as the reader is used. Skips a byte order mark. */
void rp_csv_init(struct rp_csv *c, const char *path, const char *text, size_t len);

/* Reads the next line (ends LF, CRLF or end of text) into fields. 1: read; 0: the end (empty lines
 * that only follow at the end do not count); ERR_INVALID: an empty line in between, a quote, a NUL,
 * too many fields. */
int rp_csv_next(struct rp_csv *c, struct err *err);

/* Reads the header line and finds the columns by name; other columns are ignored. ERR_INVALID: no
 * header, a name twice, a required column missing. */
int rp_csv_header(struct rp_csv *c, struct rp_column *columns, size_t count, struct err *err);

/* The same as rp_csv_next(), and the row has as many fields as the header line had. */
int rp_csv_row(struct rp_csv *c, size_t header_fields, struct err *err);

/* The field of a column; an empty one at the row's start where the column is absent. */
struct rp_field rp_csv_field(const struct rp_csv *c, const struct rp_column *column);

/* Digits only, within [min, max]. ERR_INVALID, ERR_RANGE, worded
 * `file:line:column: field cpu_milli: "abc" is not an integer`. */
int rp_csv_integer(const struct rp_csv *c, const struct rp_column *column, int64_t min, int64_t max,
		   int64_t *ret, struct err *err);

/* A name of 1 to 253 printable characters without blanks, else ERR_INVALID. */
int rp_csv_name(const struct rp_csv *c, const struct rp_column *column, struct rp_field *ret,
		struct err *err);

/* Sets `file:line:column: field NAME: "value" <why>` and returns code. */
int rp_csv_refuse(const struct rp_csv *c, const struct rp_column *column, int code, const char *why,
		  struct err *err);

/* The field as it may be shown in a message: cut, unprintable bytes as \xNN. Returns buf. */
#define RP_SHOWN_CAP 64
const char *rp_csv_show(struct rp_field f, char buf[RP_SHOWN_CAP]);

/* A decimal without sign; false when it is none or does not fit. *ret is written on success. */
bool rp_digits(struct rp_field f, int64_t *ret);

#endif

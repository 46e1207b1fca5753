/* The one place that writes JSON text: strings with their escapes, and a small streaming writer that
 * sets the commas. Output is always valid UTF-8 JSON, whatever bytes go in. */
#ifndef TESSERA_EXTENDER_JSON_H
#define TESSERA_EXTENDER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The string with its quotes. Control characters, quote and backslash are escaped; bytes that are not
 * valid UTF-8 become U+FFFD, each. */
void ex_json_put_string(struct buf *b, const char *s, size_t len);

/* A writer over b. Every function writes one token and the comma before it where one is due. */
struct ex_json {
	struct buf *b;
	bool comma; /* a value stands before: the next one needs a comma */
};

void ex_json_begin(struct ex_json *j, char open); /* '{' or '[' */
void ex_json_end(struct ex_json *j, char close);  /* '}' or ']' */
void ex_json_key(struct ex_json *j, const char *key);
void ex_json_string(struct ex_json *j, const char *s); /* NULL: null */
void ex_json_i64(struct ex_json *j, int64_t v);
void ex_json_bool(struct ex_json *j, bool v);
/* nano / 10^9 as an exact decimal number. */
void ex_json_nano(struct ex_json *j, int64_t nano);

/* key and value in one. */
void ex_json_key_string(struct ex_json *j, const char *key, const char *s);
void ex_json_key_i64(struct ex_json *j, const char *key, int64_t v);
void ex_json_key_bool(struct ex_json *j, const char *key, bool v);

/* Bytes of the valid UTF-8 sequence at p (end exclusive); 0 where there is none. */
unsigned ex_utf8_len(const unsigned char *p, const unsigned char *end);

#endif

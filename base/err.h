/* Errors: a negative code plus one sentence in a buffer that the caller owns. */
#ifndef TESSERA_BASE_ERR_H
#define TESSERA_BASE_ERR_H

#include <stddef.h>

enum err_code {
	ERR_OK = 0,
	ERR_NOMEM = -1,     /* allocation failed; state as before the call */
	ERR_INVALID = -2,   /* bad input; the message names field and value */
	ERR_NOT_FOUND = -3, /* the named thing does not exist */
	ERR_EXISTS = -4,    /* the named thing exists already */
	ERR_CONFLICT = -5,  /* legal input, but not in the present state */
	ERR_NO_ROOM = -6,   /* a capacity bound would be broken */
	ERR_RANGE = -7,     /* a number outside its range */
	ERR_IO = -8,        /* file, socket or library failed */
	ERR_TOO_LARGE = -9, /* input over a configured size limit */
	ERR_INTERNAL = -10, /* an invariant does not hold: a bug of ours */
};

#define ERR_MSG_CAP 512

struct err {
	char msg[ERR_MSG_CAP]; /* always NUL-terminated; "" = no error yet */
};

/* clang-format off */
#define ERR_INIT {{0}}
/* clang-format on */

/* Writes the formatted message (cut at ERR_MSG_CAP - 1, never inside a UTF-8 sequence) and returns
 * code, so that a failing function ends with `return err_set(err, ERR_INVALID, "...")`.
 * err may be NULL: only the code is returned. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<formatted>: " before the message on the way up; returns code. err may be NULL. */
int err_prefix(struct err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What a program ends with: 0; 2 where what it was given is wrong (options, configuration, input), 1 for all
 * else. */
int err_exit_status(int code);

/* The code's name as a person reads it ("invalid", "no room", ...); "unknown" for others. */
const char *err_name(int code);

#endif

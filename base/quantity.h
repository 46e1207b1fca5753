/* Kubernetes quantities and plain decimals, exactly.
 * Source: k8s.io/apimachinery/pkg/api/resource (serialisation of Quantity). */
#ifndef TESSERA_BASE_QUANTITY_H
#define TESSERA_BASE_QUANTITY_H

#include <stdint.h>

#include "base/err.h"

/* Scales that quantity_parse() can return the value in, always rounded up (away from losing a part
 * of what was asked for). */
enum quantity_unit {
	QUANTITY_ONE,   /* 1 */
	QUANTITY_MILLI, /* 1/1000: CPU milli-cores */
	QUANTITY_KI,    /* 1024 */
	QUANTITY_MI,    /* 1024^2: MiB */
};

/* Parses a whole string as a quantity: [+-]digits[.digits] with a suffix of
 * n u m (none) k M G T P E, Ki Mi Gi Ti Pi Ei, or e/E and a signed exponent.
 * *ret = ceil(value / unit), >= 0. Errors (*ret untouched): ERR_INVALID for blank, sign of a
 * negative value, unknown suffix, trailing text; ERR_RANGE when it does not fit in int64.
 * The message names the value; the caller adds the field with err_prefix(). */
int quantity_parse(const char *s, enum quantity_unit unit, int64_t *ret, struct err *err);

/* Parses a plain non-negative decimal ("0.125", "1", "1.0", ".5") into units of 10^-9, exactly.
 * ERR_INVALID: blank, sign, exponent, NaN, inf, other text, more than 9 decimals that are not 0;
 * ERR_RANGE: over 9,000,000,000. */
int decimal_parse_nano(const char *s, int64_t *ret_nano, struct err *err);

/* The shortest decimal form of nano units ("0.125", "1"); returns buf. buf holds >= 24 bytes. */
char *decimal_format_nano(int64_t nano, char buf[24]);

/* Parses an optional sign and digits, nothing else, within [min, max]. ERR_INVALID, ERR_RANGE. */
int integer_parse(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *err);

#endif

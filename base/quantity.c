#include "base/quantity.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define NANO INT64_C(1000000000)

/* A value in an error message: cut, and only printable ASCII. */
struct shown {
	char text[64];
};

static const char *show(const char *s, struct shown *ret)
{
	size_t i, max = sizeof(ret->text) - 4;

	for (i = 0; i < max && s[i] != '\0'; i++)
		ret->text[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
	memcpy(ret->text + i, s[i] != '\0' ? "..." : "", s[i] != '\0' ? 4 : 1);
	return ret->text;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits with at most one point among them, as they stand in the caller's string. */
struct digits {
	const char *s;
	size_t int_count; /* before the point */
	size_t count;     /* all; the point itself not counted */
};

static unsigned digit_at(const struct digits *d, size_t i)
{
	return (unsigned)(d->s[i < d->int_count ? i : i + 1] - '0');
}

/* Reads `digits[.digits]`, `digits.` or `.digits`; returns what follows, NULL without a digit. */
static const char *digits_scan(const char *s, struct digits *ret)
{
	const char *p = s;

	while (is_digit(*p))
		p++;
	ret->s = s;
	ret->int_count = ret->count = (size_t)(p - s);
	if (*p == '.') {
		const char *frac = ++p;

		while (is_digit(*p))
			p++;
		ret->count += (size_t)(p - frac);
	}
	return ret->count > 0 ? p : NULL;
}

/* What stands behind the digits: value = digits * 2^bin * 10^dec. */
struct scale {
	int bin;
	int64_t dec;
};

/* The exponent saturates: together with any string that fits in memory, the sign of
 * `digit count + exponent` and so the outcome stay right. */
#define EXPONENT_MAX (INT64_C(1) << 60)

static bool exponent_parse(const char *s, int64_t *ret)
{
	bool negative = *s == '-';
	int64_t e = 0;

	if (*s == '+' || *s == '-')
		s++;
	if (*s == '\0')
		return false;
	for (; is_digit(*s); s++)
		e = e > EXPONENT_MAX / 10 - 1 ? EXPONENT_MAX : e * 10 + (*s - '0');
	*ret = negative ? -e : e;
	return *s == '\0';
}

static bool suffix_parse(const char *s, struct scale *ret)
{
	static const struct {
		char name[3];
		struct scale scale;
	} table[] = {
		{"", {0, 0}},    {"n", {0, -9}},  {"u", {0, -6}},  {"m", {0, -3}},
		{"k", {0, 3}},   {"M", {0, 6}},   {"G", {0, 9}},   {"T", {0, 12}},
		{"P", {0, 15}},  {"E", {0, 18}},  {"Ki", {10, 0}}, {"Mi", {20, 0}},
		{"Gi", {30, 0}}, {"Ti", {40, 0}}, {"Pi", {50, 0}}, {"Ei", {60, 0}},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (strcmp(s, table[i].name) == 0) {
			*ret = table[i].scale;
			return true;
		}
	}
	if (*s != 'e' && *s != 'E')
		return false;
	ret->bin = 0;
	return exponent_parse(s + 1, &ret->dec);
}

/* floor(0.d[from]d[from+1]... * 2^bin), where `zeros` zeros stand before d[from]; bin in 0..60.
 * *exact is cleared when something was cut off.
 * From the last digit to the first, c = floor((d * 2^bin + c) / 10): a floor inside does not change
 * the floor outside, and a remainder anywhere means a remainder of the whole. */
static uint64_t fraction_scale(const struct digits *d, size_t from, size_t zeros, int bin,
			       bool *exact)
{
	uint64_t c = 0;

	for (size_t i = d->count; i > from; i--) {
		c += (uint64_t)digit_at(d, i - 1) << bin; /* < 10 * 2^60 */
		*exact = *exact && c % 10 == 0;
		c /= 10;
	}
	for (; zeros > 0; zeros--) {
		*exact = *exact && c % 10 == 0;
		c /= 10;
	}
	return c;
}

/* ceil(digits * 2^bin * 10^dec), bin in -20..60; false when it is over INT64_MAX. */
static bool scale_ceil(const struct digits *d, struct scale scale, int64_t *ret)
{
	unsigned __int128 whole = 0;
	size_t first = 0, next;
	int64_t point, int_digits;
	bool exact = true;

	while (first < d->count && digit_at(d, first) == 0)
		first++;
	if (first == d->count) {
		*ret = 0;
		return true;
	}
	/* The value lies in [10^(int_digits - 1), 10^int_digits) * 2^bin. */
	point = (int64_t)d->int_count + scale.dec;
	int_digits = point - (int64_t)first;
	if (int_digits > 26) /* 10^26 / 2^20 > 2^63 */
		return false;
	if (int_digits < -18) { /* 10^-19 * 2^60 < 1 */
		*ret = 1;
		return true;
	}
	next = first;
	for (int64_t i = 0; i < int_digits; i++)
		whole = whole * 10 + (next < d->count ? digit_at(d, next++) : 0);

	if (scale.bin >= 0) {
		if (whole > (uint64_t)INT64_MAX >> scale.bin)
			return false;
		whole <<= scale.bin;
		whole += fraction_scale(d, next, int_digits < 0 ? (size_t)-int_digits : 0,
					scale.bin, &exact);
	} else {
		fraction_scale(d, next, 0, 0, &exact);
		exact = exact && (whole & ((1U << -scale.bin) - 1)) == 0;
		whole >>= -scale.bin;
	}
	whole += exact ? 0 : 1;
	if (whole > INT64_MAX)
		return false;
	*ret = (int64_t)whole;
	return true;
}

int quantity_parse(const char *s, enum quantity_unit unit, int64_t *ret, struct err *err)
{
	static const struct scale units[] = {
		[QUANTITY_ONE] = {0, 0},
		[QUANTITY_MILLI] = {0, 3},
		[QUANTITY_KI] = {-10, 0},
		[QUANTITY_MI] = {-20, 0},
	};
	bool negative = *s == '-';
	struct digits digits;
	struct scale scale;
	struct shown shown;
	const char *suffix;
	int64_t value;

	if (*s == '\0')
		return err_set(err, ERR_INVALID, "quantity is empty");
	suffix = digits_scan(*s == '+' || *s == '-' ? s + 1 : s, &digits);
	if (suffix == NULL)
		return err_set(err, ERR_INVALID, "quantity \"%s\" does not start with a number",
			       show(s, &shown));
	if (!suffix_parse(suffix, &scale))
		return err_set(err, ERR_INVALID, "quantity \"%s\" has an unknown suffix",
			       show(s, &shown));
	scale.bin += units[unit].bin;
	scale.dec += units[unit].dec;
	if (!scale_ceil(&digits, scale, &value))
		return err_set(err, negative ? ERR_INVALID : ERR_RANGE,
			       negative ? "quantity \"%s\" is negative"
					: "quantity \"%s\" is too large",
			       show(s, &shown));
	if (negative && value != 0)
		return err_set(err, ERR_INVALID, "quantity \"%s\" is negative", show(s, &shown));
	*ret = value;
	return 0;
}

int decimal_parse_nano(const char *s, int64_t *ret_nano, struct err *err)
{
	const int64_t max = 9 * NANO * NANO;
	struct digits digits;
	struct shown shown;
	const char *end;
	int64_t value = 0;
	bool fits = true;

	end = digits_scan(s, &digits);
	if (end == NULL || *end != '\0')
		return err_set(err, ERR_INVALID, "\"%s\" is not a plain decimal number",
			       show(s, &shown));
	for (size_t i = digits.int_count + 9; i < digits.count; i++) {
		if (digit_at(&digits, i) != 0)
			return err_set(err, ERR_INVALID, "\"%s\" has more than 9 decimals",
				       show(s, &shown));
	}
	for (size_t i = 0; i < digits.int_count + 9; i++) {
		if (value <= max / 10)
			value = value * 10 + (i < digits.count ? digit_at(&digits, i) : 0);
		else
			fits = false;
	}
	if (!fits || value > max)
		return err_set(err, ERR_RANGE, "\"%s\" is over 9000000000", show(s, &shown));
	*ret_nano = value;
	return 0;
}

char *decimal_format_nano(int64_t nano, char buf[24])
{
	uint64_t u = nano < 0 ? -(uint64_t)nano : (uint64_t)nano;
	uint64_t whole = u / (uint64_t)NANO, frac = u % (uint64_t)NANO;
	char digits[24], *p = digits + sizeof(digits);

	*--p = '\0';
	if (frac != 0) {
		int count = 9;

		for (; frac % 10 == 0; frac /= 10)
			count--;
		for (; count > 0; count--, frac /= 10)
			*--p = (char)('0' + frac % 10);
		*--p = '.';
	}
	do
		*--p = (char)('0' + whole % 10);
	while ((whole /= 10) > 0);
	if (nano < 0)
		*--p = '-';
	memcpy(buf, p, (size_t)(digits + sizeof(digits) - p));
	return buf;
}

int integer_parse(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
	bool negative = *s == '-', fits = true;
	const char *p = *s == '+' || *s == '-' ? s + 1 : s;
	struct shown shown;
	int64_t value = 0;

	if (!is_digit(*p))
		return err_set(err, ERR_INVALID, "\"%s\" is not an integer", show(s, &shown));
	for (; is_digit(*p); p++) {
		int64_t digit = negative ? '0' - *p : *p - '0';

		fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
		       !__builtin_add_overflow(value, digit, &value);
	}
	if (*p != '\0')
		return err_set(err, ERR_INVALID, "\"%s\" is not an integer", show(s, &shown));
	if (!fits || value < min || value > max)
		return err_set(err, ERR_RANGE, "\"%s\" is not between %lld and %lld",
			       show(s, &shown), (long long)min, (long long)max);
	*ret = value;
	return 0;
}

/* Quantities: any input, against a second exact method for short ones and against identities that
 * hold for all. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: \"%s\": %s\n", __FILE__, __LINE__, text, #cond);   \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

typedef unsigned __int128 u128;

enum { UNITS = 4 };

static u128 power(unsigned base, int64_t exponent)
{
	u128 r = 1;

	while (exponent-- > 0)
		r *= base;
	return r;
}

/* The value as a fraction num / den by a parser of another make: only short, plain inputs.
 * Returns 1 parsed, 0 not a quantity, -1 not for this method. */
static int reference(const char *s, bool *negative, u128 *num, u128 *den)
{
	static const char decimal[] = "num kMGTPE", binary[] = "KMGTPE"; /* place gives the power */
	size_t n = strspn(s + strspn(s, "+-"), "0123456789"), f = 0;
	const char *p = s, *place;
	int64_t exponent = 0;
	u128 digits = 0;
	char tail;
	int end = 0;

	*negative = *p == '-';
	if (*p == '+' || *p == '-')
		p++;
	if (*p == '+' || *p == '-')
		return 0;
	if (p[n] == '.')
		f = strspn(p + n + 1, "0123456789");
	if (n + f > 12)
		return -1;
	if (n + f == 0)
		return 0;
	for (; (*p >= '0' && *p <= '9') || (*p == '.' && end == 0); p++) {
		if (*p == '.')
			end = 1;
		else
			digits = digits * 10 + (unsigned)(*p - '0');
	}
	*num = digits;
	*den = power(10, (int64_t)f);
	if (*p == '\0')
		return 1;
	if (p[1] == 'i' && p[2] == '\0') {
		place = strchr(binary, p[0]);
		if (place == NULL)
			return 0;
		*num *= power(1024, place - binary + 1);
		return 1;
	}
	if (p[1] == '\0') {
		place = *p != ' ' ? strchr(decimal, p[0]) : NULL;
		if (place == NULL)
			return 0;
		exponent = 3 * (place - decimal) - 9;
	} else if (p[0] == 'e' || p[0] == 'E') {
		long long e;

		if (strspn(p + 1, "+-0123456789") != strlen(p + 1))
			return 0;
		if (strlen(p + 1) > 4)
			return -1;
		/* NOLINTNEXTLINE(cert-err34-c): at most four characters, seen to be digits or signs */
		if (sscanf(p + 1, "%lld%c", &e, &tail) != 1)
			return 0;
		exponent = e;
		if (exponent < -18 || exponent > 18)
			return -1;
	} else {
		return 0;
	}
	*num *= power(10, exponent);
	*den *= power(10, -exponent);
	return 1;
}

static void compare(const char *text, const int code[UNITS], const int64_t value[UNITS])
{
	static const unsigned multiply[UNITS] = {1, 1000, 1, 1};
	static const unsigned divide[UNITS] = {1, 1, 1U << 10, 1U << 20};
	bool negative;
	u128 num, den;
	int r = reference(text, &negative, &num, &den);

	if (r < 0)
		return;
	for (int u = 0; u < UNITS; u++) {
		u128 n, d, want;

		if (r == 0) {
			REQUIRE(code[u] == ERR_INVALID);
			continue;
		}
		n = num * multiply[u];
		d = den * divide[u];
		want = n / d + (n % d != 0);
		if (negative && want > 0)
			REQUIRE(code[u] == ERR_INVALID);
		else if (want > INT64_MAX)
			REQUIRE(code[u] == ERR_RANGE);
		else
			REQUIRE(code[u] == 0 && (u128)value[u] == want);
	}
}

static int64_t ceil_div(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

/* Rounding up twice is rounding up once, so each unit follows from the finer one. */
static void check_units(const char *text, const int code[UNITS], const int64_t value[UNITS])
{
	for (int u = 0; u < UNITS; u++) {
		REQUIRE(code[u] == 0 || code[u] == ERR_INVALID || code[u] == ERR_RANGE);
		REQUIRE((code[u] == ERR_INVALID) == (code[0] == ERR_INVALID));
		REQUIRE(code[u] != 0 || value[u] >= 0);
	}
	if (code[QUANTITY_MILLI] == 0)
		REQUIRE(code[QUANTITY_ONE] == 0 &&
			value[QUANTITY_ONE] == ceil_div(value[QUANTITY_MILLI], 1000));
	if (code[QUANTITY_ONE] == 0)
		REQUIRE(code[QUANTITY_KI] == 0 &&
			value[QUANTITY_KI] == ceil_div(value[QUANTITY_ONE], 1024));
	if (code[QUANTITY_KI] == 0)
		REQUIRE(code[QUANTITY_MI] == 0 &&
			value[QUANTITY_MI] == ceil_div(value[QUANTITY_KI], 1024));
}

static void check_decimal(const char *text, const int code[UNITS], const int64_t value[UNITS])
{
	struct err err = ERR_INIT;
	int64_t nano = -1, again = -1;
	char shortest[24];
	int r = decimal_parse_nano(text, &nano, &err);

	REQUIRE((r == 0) == (err.msg[0] == '\0'));
	REQUIRE(r == 0 || nano == -1);
	if (r != 0)
		return;
	REQUIRE(nano >= 0 && nano <= INT64_C(9000000000000000000));
	REQUIRE(code[QUANTITY_MILLI] == 0);
	REQUIRE(value[QUANTITY_MILLI] == ceil_div(nano, 1000000));
	REQUIRE(decimal_parse_nano(decimal_format_nano(nano, shortest), &again, NULL) == 0);
	REQUIRE(again == nano && strlen(shortest) <= strlen(text) + 1);
}

static void check_integer(const char *text, const int code[UNITS], const int64_t value[UNITS])
{
	struct err err = ERR_INIT;
	int64_t v = -1;
	int r = integer_parse(text, INT64_MIN, INT64_MAX, &v, &err);

	REQUIRE((r == 0) == (err.msg[0] == '\0'));
	if (r == 0 && v >= 0)
		REQUIRE(code[QUANTITY_ONE] == 0 && value[QUANTITY_ONE] == v);
	if (r == ERR_RANGE && text[0] != '-')
		REQUIRE(code[QUANTITY_ONE] == ERR_RANGE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	int code[UNITS];
	int64_t value[UNITS];

	if (text == NULL)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	for (int u = 0; u < UNITS; u++) {
		struct err err = ERR_INIT;

		value[u] = -1;
		code[u] = quantity_parse(text, (enum quantity_unit)u, &value[u], &err);
		REQUIRE((code[u] == 0) == (err.msg[0] == '\0'));
		REQUIRE(code[u] == 0 || value[u] == -1);
	}
	check_units(text, code, value);
	compare(text, code, value);
	check_decimal(text, code, value);
	check_integer(text, code, value);
	free(text);
	return 0;
}

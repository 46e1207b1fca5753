#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/rng.h"

#define UNTOUCHED INT64_C(-77)
#define COUNT(t) (sizeof(t) / sizeof((t)[0]))

static const char *const unit_names[] = {"one", "milli", "ki", "mi"};

static const struct {
	const char *s;
	enum quantity_unit unit;
	int64_t want;
} value_rows[] = {
	{"0", QUANTITY_ONE, 0},
	{"-0", QUANTITY_ONE, 0},
	{"-0.000Gi", QUANTITY_ONE, 0},
	{"+5", QUANTITY_ONE, 5},
	{"007", QUANTITY_ONE, 7},
	{"1.", QUANTITY_ONE, 1},
	{".5", QUANTITY_ONE, 1},
	{".5", QUANTITY_MILLI, 500},
	{"0.0", QUANTITY_MI, 0},
	/* CPU */
	{"1", QUANTITY_MILLI, 1000},
	{"100m", QUANTITY_MILLI, 100},
	{"0.1", QUANTITY_MILLI, 100},
	{"1500m", QUANTITY_MILLI, 1500},
	{"1.5", QUANTITY_MILLI, 1500},
	{"1500000u", QUANTITY_MILLI, 1500},
	{"1n", QUANTITY_MILLI, 1},
	{"1000001n", QUANTITY_MILLI, 2},
	{"1000000n", QUANTITY_MILLI, 1},
	{"0.0001", QUANTITY_MILLI, 1},
	{"100m", QUANTITY_ONE, 1},
	{"1001m", QUANTITY_ONE, 2},
	/* decimal suffixes */
	{"1k", QUANTITY_ONE, 1000},
	{"1M", QUANTITY_ONE, INT64_C(1000000)},
	{"1G", QUANTITY_ONE, INT64_C(1000000000)},
	{"1T", QUANTITY_ONE, INT64_C(1000000000000)},
	{"1P", QUANTITY_ONE, INT64_C(1000000000000000)},
	{"1E", QUANTITY_ONE, INT64_C(1000000000000000000)},
	{"9E", QUANTITY_ONE, INT64_C(9000000000000000000)},
	{"12E", QUANTITY_KI, INT64_C(11718750000000000)},
	{"12E", QUANTITY_MI, INT64_C(11444091796875)},
	/* exponents */
	{"1e3", QUANTITY_ONE, 1000},
	{"1E3", QUANTITY_ONE, 1000},
	{"1e+3", QUANTITY_ONE, 1000},
	{"1E-3", QUANTITY_MILLI, 1},
	{"1e-3", QUANTITY_ONE, 1},
	{"12345e-2", QUANTITY_ONE, 124},
	{"12300e-2", QUANTITY_ONE, 123},
	{"0.001e3", QUANTITY_ONE, 1},
	{"1e0", QUANTITY_ONE, 1},
	{"1e-0", QUANTITY_ONE, 1},
	{"1e-100", QUANTITY_ONE, 1},
	{"0e999999999999999999999999", QUANTITY_ONE, 0},
	{"1e-999999999999999999999999", QUANTITY_MI, 1},
	/* binary suffixes */
	{"1Ki", QUANTITY_ONE, 1024},
	{"1Mi", QUANTITY_ONE, INT64_C(1) << 20},
	{"1Gi", QUANTITY_ONE, INT64_C(1) << 30},
	{"1Ti", QUANTITY_ONE, INT64_C(1) << 40},
	{"1Pi", QUANTITY_ONE, INT64_C(1) << 50},
	{"1Ei", QUANTITY_ONE, INT64_C(1) << 60},
	{"1.5Gi", QUANTITY_MI, 1536},
	{"1.5Gi", QUANTITY_ONE, INT64_C(1610612736)},
	{"80Gi", QUANTITY_MI, 81920},
	{"80G", QUANTITY_MI, 76294},
	{"0.1Ki", QUANTITY_ONE, 103},
	{"0.125Ki", QUANTITY_ONE, 128},
	{"0.0000000001Gi", QUANTITY_ONE, 1},
	{"0.0000000001Gi", QUANTITY_MI, 1},
	{"1Ki", QUANTITY_MILLI, 1024000},
	{"1048576", QUANTITY_MI, 1},
	{"1048577", QUANTITY_MI, 2},
	{"1048576.0000000000000000001", QUANTITY_MI, 2},
	{"1023", QUANTITY_KI, 1},
	{"1024", QUANTITY_KI, 1},
	{"1025", QUANTITY_KI, 2},
	/* what a double would get wrong */
	{"2147483647", QUANTITY_ONE, INT64_C(2147483647)},
	{"2147483648", QUANTITY_ONE, INT64_C(2147483648)},
	{"9007199254740993", QUANTITY_ONE, INT64_C(9007199254740993)},
	{"9007199254740992.1", QUANTITY_ONE, INT64_C(9007199254740993)},
	{"85899345920", QUANTITY_MI, 81920},
	/* the end of int64 */
	{"9223372036854775807", QUANTITY_ONE, INT64_MAX},
	{"9223372036854775806.1", QUANTITY_ONE, INT64_MAX},
	{"9223372036854775.807", QUANTITY_MILLI, INT64_MAX},
	{"9223372036854775807Ki", QUANTITY_KI, INT64_MAX},
	{"9223372036854775807Mi", QUANTITY_MI, INT64_MAX},
	{"8796093022207.99999904632568359375Mi", QUANTITY_ONE, INT64_MAX},
	{"7.99Ei", QUANTITY_ONE, INT64_C(9211842821808707339)},
	{"9671406556917033396600832", QUANTITY_MI, INT64_MAX},
};

Test(base_quantity, values)
{
	for (size_t i = 0; i < COUNT(value_rows); i++) {
		struct err err = ERR_INIT;
		int64_t got = UNTOUCHED;
		int r = quantity_parse(value_rows[i].s, value_rows[i].unit, &got, &err);

		cr_expect_eq(r, 0, "%s: %s", value_rows[i].s, err.msg);
		cr_expect_eq(got, value_rows[i].want, "%s in %s: %lld", value_rows[i].s,
			     unit_names[value_rows[i].unit], (long long)got);
		cr_expect_str_empty(err.msg);
	}
}

Test(base_quantity, errors)
{
	static const struct {
		const char *s;
		enum quantity_unit unit;
		int code;
		const char *msg;
	} t[] = {
		{"", QUANTITY_ONE, ERR_INVALID, "quantity is empty"},
		{" ", QUANTITY_ONE, ERR_INVALID, "quantity \" \" does not start with a number"},
		{" 1", QUANTITY_ONE, ERR_INVALID, "quantity \" 1\" does not start with a number"},
		{"1 ", QUANTITY_ONE, ERR_INVALID, "quantity \"1 \" has an unknown suffix"},
		{"-1", QUANTITY_ONE, ERR_INVALID, "quantity \"-1\" is negative"},
		{"-1n", QUANTITY_MI, ERR_INVALID, "quantity \"-1n\" is negative"},
		{"-99E", QUANTITY_ONE, ERR_INVALID, "quantity \"-99E\" is negative"},
		{"--1", QUANTITY_ONE, ERR_INVALID, NULL},
		{"+-1", QUANTITY_ONE, ERR_INVALID, NULL},
		{"+", QUANTITY_ONE, ERR_INVALID, NULL},
		{"-", QUANTITY_ONE, ERR_INVALID, NULL},
		{".", QUANTITY_ONE, ERR_INVALID, NULL},
		{"+.", QUANTITY_ONE, ERR_INVALID, NULL},
		{"Gi", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1.2.3", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1,5", QUANTITY_ONE, ERR_INVALID, NULL},
		{"0x10", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1K", QUANTITY_ONE, ERR_INVALID, "quantity \"1K\" has an unknown suffix"},
		{"1ki", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1g", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1GB", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1GiB", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1i", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1mi", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1e", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1e+", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1E-", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1e3k", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1e1.5", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1Ei3", QUANTITY_ONE, ERR_INVALID, NULL},
		{"nan", QUANTITY_ONE, ERR_INVALID, NULL},
		{"inf", QUANTITY_ONE, ERR_INVALID, NULL},
		{"1\n", QUANTITY_ONE, ERR_INVALID, "quantity \"1?\" has an unknown suffix"},
		{"1\xC3\xA9", QUANTITY_ONE, ERR_INVALID, "quantity \"1??\" has an unknown suffix"},
		{"9223372036854775808", QUANTITY_ONE, ERR_RANGE,
		 "quantity \"9223372036854775808\" is too large"},
		{"9223372036854775807.1", QUANTITY_ONE, ERR_RANGE, NULL},
		{"9223372036854775.8071", QUANTITY_MILLI, ERR_RANGE, NULL},
		{"9223372036854775808Mi", QUANTITY_MI, ERR_RANGE, NULL},
		{"9223372036854775807.0001Mi", QUANTITY_MI, ERR_RANGE, NULL},
		{"8796093022207.99999904632568359376Mi", QUANTITY_ONE, ERR_RANGE, NULL},
		{"10E", QUANTITY_ONE, ERR_RANGE, NULL},
		{"8Ei", QUANTITY_ONE, ERR_RANGE, NULL},
		{"8Ei", QUANTITY_MILLI, ERR_RANGE, NULL},
		{"9671406556917033396600833", QUANTITY_MI, ERR_RANGE, NULL},
		{"1e19", QUANTITY_ONE, ERR_RANGE, NULL},
		{"1e400", QUANTITY_ONE, ERR_RANGE, NULL},
		{"1e99999999999999999999999", QUANTITY_MI, ERR_RANGE, NULL},
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct err err = ERR_INIT;
		int64_t got = UNTOUCHED;
		int r = quantity_parse(t[i].s, t[i].unit, &got, &err);

		cr_expect_eq(r, t[i].code, "%s: %d", t[i].s, r);
		cr_expect_eq(got, UNTOUCHED, "%s", t[i].s);
		cr_expect_str_not_empty(err.msg);
		if (t[i].msg != NULL)
			cr_expect_str_eq(err.msg, t[i].msg, "%s", err.msg);
		cr_expect_eq(quantity_parse(t[i].s, t[i].unit, &got, NULL), r);
	}
}

/* A string of `count` times c between head and tail; the caller frees it. */
static char *long_text(const char *head, char c, size_t count, const char *tail)
{
	size_t h = strlen(head), n = strlen(tail);
	char *s = malloc(h + count + n + 1);

	memcpy(s, head, h);
	memset(s + h, c, count);
	memcpy(s + h + count, tail, n + 1);
	return s;
}

Test(base_quantity, huge_strings)
{
	static const struct {
		const char *head, *tail;
		char fill;
		enum quantity_unit unit;
		int code;
		int64_t want;
	} t[] = {
		{"", "", '9', QUANTITY_ONE, ERR_RANGE, 0},
		{"", "e-99999999999", '9', QUANTITY_ONE, 0, 1},
		{"", "7", '0', QUANTITY_ONE, 0, 7},
		{"1", "e-65536", '0', QUANTITY_ONE, 0, 1},
		{"1", "e-65535", '0', QUANTITY_ONE, 0, 10},
		{"1", "1e-65536", '0', QUANTITY_ONE, 0, 11}, /* 10.00...01 */
		{"1.", "", '0', QUANTITY_MI, 0, 1},
		{"1024.", "Ki", '0', QUANTITY_MI, 0, 1},
		{"1024.", "1Ki", '0', QUANTITY_MI, 0, 2},
		{"0.", "1Ei", '0', QUANTITY_ONE, 0, 1},
		{"0.", "1e65537", '0', QUANTITY_ONE, 0, 1},
		{"0.", "1e65540", '0', QUANTITY_ONE, 0, 1000},
		{"0.", "Ei", '9', QUANTITY_ONE, 0, INT64_C(1) << 60},
		{"7.", "Ei", '9', QUANTITY_ONE, ERR_RANGE, 0},
		{"1e", "", '9', QUANTITY_ONE, ERR_RANGE, 0},
		{"1e-", "", '9', QUANTITY_ONE, 0, 1},
		{"1e", "2", '0', QUANTITY_ONE, 0, 100},
		{"1", "", 'x', QUANTITY_ONE, ERR_INVALID, 0},
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		char *s = long_text(t[i].head, t[i].fill, 65536, t[i].tail);
		struct err err = ERR_INIT;
		int64_t got = 0;

		cr_expect_eq(quantity_parse(s, t[i].unit, &got, &err), t[i].code, "row %zu", i);
		cr_expect_eq(got, t[i].want, "row %zu: %lld", i, (long long)got);
		free(s);
	}
}

Test(base_quantity, long_values_are_cut_in_messages)
{
	char *s = long_text("1", 'x', 1000, "");
	struct err err = ERR_INIT;
	int64_t v;

	quantity_parse(s, QUANTITY_ONE, &v, &err);
	cr_assert_lt(strlen(err.msg), 120);
	cr_assert(strstr(err.msg, "xxx...\"") != NULL, "%s", err.msg);
	free(s);
}

Test(base_quantity, decimal_values)
{
	static const struct {
		const char *s;
		int64_t nano;
		const char *shortest;
	} t[] = {
		{"0", 0, "0"},
		{"1", INT64_C(1000000000), "1"},
		{"1.0", INT64_C(1000000000), "1"},
		{"1.", INT64_C(1000000000), "1"},
		{".5", INT64_C(500000000), "0.5"},
		{"0.125", INT64_C(125000000), "0.125"},
		{"0.1", INT64_C(100000000), "0.1"},
		{"0.000000001", 1, "0.000000001"},
		{"0.10000000000000000", INT64_C(100000000), "0.1"},
		{"00012.50", INT64_C(12500000000), "12.5"},
		{"2.147483648", INT64_C(2147483648), "2.147483648"},
		{"9007199.254740993", INT64_C(9007199254740993), "9007199.254740993"},
		{"8999999999.999999999", INT64_C(8999999999999999999), "8999999999.999999999"},
		{"9000000000", INT64_C(9000000000000000000), "9000000000"},
		{"9000000000.000", INT64_C(9000000000000000000), "9000000000"},
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct err err = ERR_INIT;
		int64_t got = UNTOUCHED;
		char text[24];

		cr_expect_eq(decimal_parse_nano(t[i].s, &got, &err), 0, "%s", err.msg);
		cr_expect_eq(got, t[i].nano, "%s: %lld", t[i].s, (long long)got);
		cr_expect_str_eq(decimal_format_nano(got, text), t[i].shortest);
	}
}

Test(base_quantity, decimal_errors)
{
	static const struct {
		const char *s;
		int code;
	} t[] = {
		{"", ERR_INVALID},
		{" ", ERR_INVALID},
		{".", ERR_INVALID},
		{"-1", ERR_INVALID},
		{"-0", ERR_INVALID},
		{"+1", ERR_INVALID},
		{"1e3", ERR_INVALID},
		{"NaN", ERR_INVALID},
		{"inf", ERR_INVALID},
		{"1 ", ERR_INVALID},
		{" 1", ERR_INVALID},
		{"1.2.3", ERR_INVALID},
		{"0,5", ERR_INVALID},
		{"50%", ERR_INVALID},
		{"0x1", ERR_INVALID},
		{"0.0000000001", ERR_INVALID},
		{"9000000000.000000001", ERR_RANGE},
		{"9000000001", ERR_RANGE},
		{"9223372037", ERR_RANGE},
		{"90000000000", ERR_RANGE},
		{"9999999999999999999999999999", ERR_RANGE},
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct err err = ERR_INIT;
		int64_t got = UNTOUCHED;

		cr_expect_eq(decimal_parse_nano(t[i].s, &got, &err), t[i].code, "%s", t[i].s);
		cr_expect_eq(got, UNTOUCHED, "%s", t[i].s);
		cr_expect(strstr(err.msg, t[i].s) != NULL, "%s", err.msg);
	}
}

Test(base_quantity, decimal_format_of_the_ends)
{
	char text[24];

	cr_assert_str_eq(decimal_format_nano(INT64_MAX, text), "9223372036.854775807");
	cr_assert_str_eq(decimal_format_nano(INT64_MIN, text), "-9223372036.854775808");
	cr_assert_str_eq(decimal_format_nano(-1, text), "-0.000000001");
	cr_assert_str_eq(decimal_format_nano(INT64_C(-2000000000), text), "-2");
}

Test(base_quantity, decimal_round_trip)
{
	struct rng r;

	rng_init(&r, 20240229);
	for (int i = 0; i < 20000; i++) {
		int64_t v = (int64_t)(rng_next(&r) >> rng_below(&r, 64)) & INT64_MAX, got = -1;
		char text[24];

		v %= INT64_C(9000000000000000001);
		cr_assert_eq(decimal_parse_nano(decimal_format_nano(v, text), &got, NULL), 0);
		cr_assert_eq(got, v, "%s", text);
	}
}

Test(base_quantity, integers)
{
	static const struct {
		const char *s;
		int64_t min, max;
		int code;
		int64_t want;
	} t[] = {
		{"0", 0, 0, 0, 0},
		{"-0", 0, 0, 0, 0},
		{"+7", 0, 10, 0, 7},
		{"0000000000000000000000000000007", 0, 10, 0, 7},
		{"2147483648", 0, INT64_MAX, 0, INT64_C(2147483648)},
		{"9007199254740993", 0, INT64_MAX, 0, INT64_C(9007199254740993)},
		{"9223372036854775807", INT64_MIN, INT64_MAX, 0, INT64_MAX},
		{"-9223372036854775808", INT64_MIN, INT64_MAX, 0, INT64_MIN},
		{"9223372036854775808", INT64_MIN, INT64_MAX, ERR_RANGE, 0},
		{"-9223372036854775809", INT64_MIN, INT64_MAX, ERR_RANGE, 0},
		{"99999999999999999999999999", INT64_MIN, INT64_MAX, ERR_RANGE, 0},
		{"11", 0, 10, ERR_RANGE, 0},
		{"-1", 0, 10, ERR_RANGE, 0},
		{"10", 0, 10, 0, 10},
		{"", 0, 10, ERR_INVALID, 0},
		{"-", 0, 10, ERR_INVALID, 0},
		{"+-1", 0, 10, ERR_INVALID, 0},
		{" 1", 0, 10, ERR_INVALID, 0},
		{"1 ", 0, 10, ERR_INVALID, 0},
		{"1.0", 0, 10, ERR_INVALID, 0},
		{"1e1", 0, 10, ERR_INVALID, 0},
		{"0x1", 0, 10, ERR_INVALID, 0},
		{"99999999999999999999999999x", 0, 10, ERR_INVALID, 0},
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct err err = ERR_INIT;
		int64_t got = UNTOUCHED;

		cr_expect_eq(integer_parse(t[i].s, t[i].min, t[i].max, &got, &err), t[i].code,
			     "\"%s\": %s", t[i].s, err.msg);
		cr_expect_eq(got, t[i].code == 0 ? t[i].want : UNTOUCHED, "\"%s\"", t[i].s);
		cr_expect_eq(err.msg[0] == '\0', t[i].code == 0);
	}
}

Test(base_quantity, integer_range_message)
{
	struct err err = ERR_INIT;
	int64_t v;

	cr_assert_eq(integer_parse("70000", 1, 65535, &v, &err), ERR_RANGE);
	cr_assert_str_eq(err.msg, "\"70000\" is not between 1 and 65535");
}

#include <criterion/criterion.h>

#include "base/prom.h"

static const struct prom_family f = {"x_seconds", "gauge", "a, b, c", "Help."};

Test(base_prom, samples_with_any_number_of_labels)
{
	const struct prom_label labels[] = {{"a", "1"}, {"b", "q\"b\\n\nl"}, {"c", ""}};
	struct buf b = BUF_INIT;

	prom_labelled(&b, &f, NULL, 0, -7);
	prom_labelled(&b, &f, labels, 1, INT64_MAX);
	prom_labelled(&b, &f, labels, 3, 0);
	prom_sample(&b, &f, NULL, "ignored", 1);
	prom_sample(&b, &f, "a", "z", 2);
	cr_assert(buf_ok(&b));
	cr_expect_str_eq(buf_str(&b), "x_seconds -7\n"
				      "x_seconds{a=\"1\"} 9223372036854775807\n"
				      "x_seconds{a=\"1\",b=\"q\\\"b\\\\n\\nl\",c=\"\"} 0\n"
				      "x_seconds 1\n"
				      "x_seconds{a=\"z\"} 2\n");
	buf_fini(&b);
}

Test(base_prom, decimals_and_suffixes)
{
	static const struct {
		int64_t v;
		unsigned digits;
		const char *text;
	} rows[] = {
		{0, 3, "0.000"},
		{-1, 3, "-0.001"},
		{-12345, 3, "-12.345"},
		{1000000001, 9, "1.000000001"},
		{INT64_MIN, 6, "-9223372036854.775808"},
		{INT64_MAX, 18, "9.223372036854775807"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf b = BUF_INIT, want = BUF_INIT;

		prom_name(&b, &f, "_sum", &(struct prom_label){"a", "1"}, i % 2);
		prom_decimal(&b, rows[i].v, rows[i].digits);
		buf_printf(&want, "x_seconds_sum%s %s\n", i % 2 != 0 ? "{a=\"1\"}" : "",
			   rows[i].text);
		cr_expect_str_eq(buf_str(&b), buf_str(&want));
		buf_fini(&b);
		buf_fini(&want);
	}
}

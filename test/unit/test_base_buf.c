#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "test/lib/oom.h"

Test(base_buf, puts_and_formats)
{
	struct buf b = BUF_INIT;

	buf_puts(&b, "abc");
	buf_putc(&b, '-');
	buf_put(&b, "x\0y", 3);
	buf_put(&b, NULL, 0);
	buf_printf(&b, "[%d %s]", 42, "z");
	cr_assert(buf_ok(&b));
	cr_assert_eq(b.len, 13);
	cr_assert_eq(memcmp(b.data, "abc-x\0y[42 z]", 13), 0);
	cr_assert_eq(buf_str(&b)[13], '\0');
	cr_assert_eq(b.len, 13);
	buf_fini(&b);
	cr_assert(b.data == NULL && b.len == 0 && b.cap == 0);
}

Test(base_buf, decimal_numbers)
{
	static const struct {
		int64_t v;
		const char *want;
	} t[] = {
		{0, "0"},
		{7, "7"},
		{-1, "-1"},
		{10, "10"},
		{INT64_C(2147483648), "2147483648"},
		{INT64_C(9007199254740993), "9007199254740993"},
		{INT64_MAX, "9223372036854775807"},
		{INT64_MIN, "-9223372036854775808"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct buf b = BUF_INIT;

		buf_put_i64(&b, t[i].v);
		cr_assert_str_eq(buf_str(&b), t[i].want);
		buf_fini(&b);
	}
}

/* The formatted text meets every amount of free room. */
Test(base_buf, printf_grows_at_any_fill)
{
	char big[301];

	memset(big, 'q', 300);
	big[300] = '\0';
	for (size_t fill = 0; fill < 300; fill++) {
		struct buf b = BUF_INIT;

		buf_put(&b, big, fill);
		buf_printf(&b, "%s|", big);
		cr_assert_eq(b.len, fill + 301);
		cr_assert_eq(b.data[b.len - 1], '|');
		buf_printf(&b, "%s", "");
		cr_assert_eq(b.len, fill + 301);
		buf_fini(&b);
	}
}

Test(base_buf, empty_is_an_empty_string)
{
	struct buf b = BUF_INIT;
	char *s;

	cr_assert_str_empty(buf_str(&b));
	s = buf_take(&b);
	cr_assert_str_empty(s);
	free(s);
	s = buf_take(&b);
	cr_assert_str_empty(s);
	free(s);
}

Test(base_buf, take_leaves_it_empty_and_usable)
{
	struct buf b = BUF_INIT;
	char *s;

	buf_puts(&b, "first");
	s = buf_take(&b);
	cr_assert_str_eq(s, "first");
	cr_assert(b.data == NULL && b.len == 0);
	buf_puts(&b, "second");
	cr_assert_str_eq(buf_str(&b), "second");
	cr_assert_str_eq(s, "first");
	free(s);
	buf_fini(&b);
}

Test(base_buf, reset_keeps_the_memory)
{
	struct buf b = BUF_INIT;
	size_t cap;

	cr_assert(buf_reserve(&b, 1000));
	cap = b.cap;
	buf_puts(&b, "abc");
	buf_reset(&b);
	cr_assert(b.len == 0 && b.cap == cap && buf_ok(&b));
	cr_assert_str_empty(buf_str(&b));
	buf_fini(&b);
}

Test(base_buf, a_size_that_overflows_fails)
{
	struct buf b = BUF_INIT;

	buf_puts(&b, "abc");
	cr_assert(!buf_reserve(&b, SIZE_MAX));
	cr_assert(!buf_ok(&b));
	cr_assert_null(buf_str(&b));
	buf_fini(&b);
	cr_assert(buf_ok(&b));
}

Test(base_buf, failure_is_sticky_until_reset)
{
	struct buf b = BUF_INIT;

	buf_puts(&b, "kept");
	oom_fail_at(1);
	buf_printf(&b, "%200s", "lost");
	buf_puts(&b, "x");
	buf_putc(&b, 'x');
	buf_put_i64(&b, 1);
	cr_assert(oom_disarm());
	cr_assert_eq(oom_count(), 1, "no-ops after the first failure");
	cr_assert(!buf_ok(&b));
	cr_assert_null(buf_str(&b));
	buf_reset(&b);
	buf_puts(&b, "again");
	cr_assert_str_eq(buf_str(&b), "again");
	buf_fini(&b);
}

Test(base_buf, oom_sweep)
{
	OOM_SWEEP(n) {
		struct buf b = BUF_INIT;
		char *s;
		bool hit;

		oom_fail_at(n);
		for (int i = 0; i < 100; i++)
			buf_printf(&b, "%d,", i);
		buf_puts(&b, "0123456789");
		s = buf_take(&b);
		hit = oom_disarm();
		cr_assert_eq(s == NULL, hit, "allocation %u", n);
		cr_assert(b.data == NULL && buf_ok(&b));
		if (!hit) {
			cr_assert_eq(strlen(s), 300);
			free(s);
			break;
		}
	}
}

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/strpool.h"
#include "test/lib/oom.h"

static uint32_t intern(struct strpool *p, const char *s)
{
	return strpool_intern(p, s, strlen(s));
}

Test(base_strpool, equal_strings_share_an_id)
{
	struct strpool *p = strpool_new();

	cr_assert_eq(intern(p, "a100"), 0);
	cr_assert_eq(intern(p, "h200"), 1);
	cr_assert_eq(intern(p, "a100"), 0);
	cr_assert_eq(strpool_intern(p, "a100-mig", 4), 0, "the length counts, not the NUL");
	cr_assert_eq(strpool_count(p), 2);
	cr_assert_str_eq(strpool_str(p, 1), "h200");
	cr_assert_null(strpool_str(p, 2));
	cr_assert_null(strpool_str(p, STRPOOL_NONE));
	cr_assert_eq(strpool_find(p, "h200", 4), 1);
	cr_assert_eq(strpool_find(p, "h20", 3), STRPOOL_NONE);
	cr_assert_eq(strpool_count(p), 2, "find adds nothing");
	strpool_free(p);
	strpool_free(NULL);
}

Test(base_strpool, empty_and_binary_strings)
{
	struct strpool *p = strpool_new();

	cr_assert_eq(strpool_find(p, "", 0), STRPOOL_NONE);
	cr_assert_eq(strpool_intern(p, "", 0), 0);
	cr_assert_eq(strpool_intern(p, "\0", 1), 1);
	cr_assert_eq(strpool_intern(p, "\0a", 2), 2);
	cr_assert_eq(strpool_intern(p, "", 0), 0);
	cr_assert_str_empty(strpool_str(p, 0));
	cr_assert_eq(memcmp(strpool_str(p, 2), "\0a\0", 3), 0);
	strpool_free(p);
}

/* Through several growths of every table; addresses given out stay valid. */
Test(base_strpool, many_strings)
{
	enum { N = 20000 };
	static const char *where[N];
	struct strpool *p = strpool_new();
	char name[64];

	for (uint32_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "node-%u.pool-%u", i, i % 7);
		cr_assert_eq(intern(p, name), i);
		where[i] = strpool_str(p, i);
	}
	cr_assert_eq(strpool_count(p), N);
	for (uint32_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "node-%u.pool-%u", i, i % 7);
		cr_assert_eq(strpool_find(p, name, strlen(name)), i);
		cr_assert_eq(intern(p, name), i);
		cr_assert_eq(strpool_str(p, i), where[i]);
		cr_assert_str_eq(where[i], name);
	}
	strpool_free(p);
}

Test(base_strpool, strings_around_the_block_size)
{
	struct strpool *p = strpool_new();
	static char text[10001];

	memset(text, 'n', sizeof(text) - 1);
	for (uint32_t len = 4090; len < 4102; len++)
		cr_assert_eq(strpool_intern(p, text, len), len - 4090);
	cr_assert_eq(strpool_intern(p, text, 10000), 12);
	for (uint32_t len = 4090; len < 4102; len++)
		cr_assert_eq(strlen(strpool_str(p, len - 4090)), len);
	cr_assert_eq(strlen(strpool_str(p, 12)), 10000);
	strpool_free(p);
}

Test(base_strpool, oom_sweep_of_new)
{
	OOM_SWEEP(n) {
		struct strpool *p;
		bool hit;

		oom_fail_at(n);
		p = strpool_new();
		hit = oom_disarm();
		cr_assert_eq(p == NULL, hit, "allocation %u", n);
		strpool_free(p);
		if (!hit)
			break;
	}
}

/* Each failed intern leaves the pool as it was; the same call then succeeds. */
Test(base_strpool, oom_sweep_of_intern)
{
	struct strpool *p = strpool_new();
	unsigned failures = 0;
	char name[128];

	for (uint32_t i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "%0100u", i);
		OOM_SWEEP(n) {
			uint32_t id;
			bool hit;

			oom_fail_at(n);
			id = intern(p, name);
			hit = oom_disarm();
			cr_assert_eq(id, hit ? STRPOOL_NONE : i);
			cr_assert_eq(strpool_count(p), hit ? i : i + 1);
			cr_assert_eq(strpool_find(p, name, 100), hit ? STRPOOL_NONE : i);
			failures += hit;
			if (!hit)
				break;
		}
	}
	cr_assert_geq(failures, 10);
	strpool_free(p);
}

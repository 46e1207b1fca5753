#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/rng.h"
#include "test/lib/oom.h"

struct item {
	int key;
	UT_hash_handle hh;
};

/* Fixed values: ranks and digests must not change between machines or releases. */
Test(base_hash, fixed_values)
{
	cr_assert_eq(hash_bytes("", 0, 0), hash_str("", 0));
	cr_assert_eq(hash_bytes("abc", 3, 7), hash_str("abc", 7));
	cr_assert_eq(hash_str("", 0), UINT64_C(0xefd01f60ba992926));
	cr_assert_eq(hash_str("node-1", 0), UINT64_C(0x91dd3f4c04e1eb05));
	cr_assert_eq(hash_str("node-1", 1), UINT64_C(0xc4c90ed5c1ccd86b));
	cr_assert_neq(hash_str("node-1", 0), hash_str("node-2", 0));
	cr_assert_neq(hash_bytes("\0", 1, 0), hash_bytes("\0\0", 2, 0));
}

/* uthash in the wrapper's configuration survives a failed allocation. */
Test(base_hash, failed_add_is_seen)
{
	struct item items[2] = {{.key = 1}, {.key = 2}}, *table = NULL, *found;
	int key = 1;

	oom_fail_from(1);
	HASH_ADD_INT(table, key, &items[0]);
	cr_assert(oom_disarm());
	cr_assert(!HASH_ADDED(&items[0], hh));
	cr_assert_null(table);

	HASH_ADD_INT(table, key, &items[0]);
	cr_assert(HASH_ADDED(&items[0], hh));
	HASH_ADD_INT(table, key, &items[1]);
	HASH_FIND_INT(table, &key, found);
	cr_assert_eq(found, &items[0]);
	cr_assert_eq(HASH_COUNT(table), 2);
	HASH_CLEAR(hh, table);
}

/* The table's growth fails: what is in it stays findable, the element is in or marked out. */
Test(base_hash, failed_growth_keeps_the_table)
{
	enum { N = 2000 };
	struct item *items = calloc(N, sizeof(*items)), *table = NULL;
	unsigned in = 0, failures = 0;

	for (int i = 0; i < N; i++) {
		items[i].key = i;
		oom_fail_from(1);
		HASH_ADD_INT(table, key, &items[i]);
		if (oom_disarm())
			failures++;
		if (!HASH_ADDED(&items[i], hh))
			HASH_ADD_INT(table, key, &items[i]);
		cr_assert(HASH_ADDED(&items[i], hh));
		in++;
		cr_assert_eq(HASH_COUNT(table), in);
	}
	cr_assert_gt(failures, 1);
	for (int i = 0; i < N; i++) {
		struct item *found;

		HASH_FIND_INT(table, &i, found);
		cr_assert_eq(found, &items[i]);
	}
	HASH_CLEAR(hh, table);
	free(items);
}

/* Reference values of splitmix64 (Vigna): seed 1234567. */
Test(base_rng, reference_sequence)
{
	static const uint64_t want[] = {
		UINT64_C(6457827717110365317),  UINT64_C(3203168211198807973),
		UINT64_C(9817491932198370423),  UINT64_C(4593380528125082431),
		UINT64_C(16408922859458223821),
	};
	struct rng r;

	rng_init(&r, 1234567);
	for (size_t i = 0; i < 5; i++)
		cr_assert_eq(rng_next(&r), want[i]);
}

Test(base_rng, below_stays_below_and_is_even)
{
	unsigned seen[7] = {0};
	struct rng r;

	rng_init(&r, 1);
	for (int i = 0; i < 70000; i++)
		seen[rng_below(&r, 7)]++;
	for (size_t i = 0; i < 7; i++)
		cr_assert(seen[i] > 9500 && seen[i] < 10500, "%zu: %u", i, seen[i]);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(rng_below(&r, 1), 0);
		cr_assert_lt(rng_below(&r, UINT64_MAX), UINT64_MAX);
		cr_assert_lt(rng_below(&r, (UINT64_C(1) << 63) + 1), (UINT64_C(1) << 63) + 1);
	}
}

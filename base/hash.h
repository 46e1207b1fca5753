/* The one place that includes uthash: failed allocations do not end the process here.
 *
 * A HASH_ADD_* that runs out of memory leaves the element outside of the table and its hash handle
 * with tbl == NULL; check with HASH_ADDED(). */
#ifndef TESSERA_BASE_HASH_H
#define TESSERA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#define HASH_ADDED(elem, hh) ((elem)->hh.tbl != NULL)

/* FNV-1a with a final avalanche; the same on every machine. Used for ranks and digests of small
 * keys; not for defence against chosen keys. */
static inline uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
	const unsigned char *p = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;

	for (size_t i = 0; i < len; i++)
		/* It loses track of arrays of integers that are read as bytes. */
		/* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ (h >> 33);
}

static inline uint64_t hash_str(const char *s, uint64_t seed)
{
	return hash_bytes(s, strlen(s), seed);
}

#endif

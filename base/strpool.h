/* Interned strings: equal strings share one copy and one small id, so that the hot path compares
 * integers. Strings are never removed; a pool lives as long as the cluster that owns it. */
#ifndef TESSERA_BASE_STRPOOL_H
#define TESSERA_BASE_STRPOOL_H

#include <stddef.h>
#include <stdint.h>

struct strpool;

#define STRPOOL_NONE UINT32_MAX

struct strpool *strpool_new(void); /* NULL: no memory */
void strpool_free(struct strpool *p);

/* Id of the string, made on first sight; ids count from 0. STRPOOL_NONE: no memory. */
uint32_t strpool_intern(struct strpool *p, const char *s, size_t len);
/* Id, or STRPOOL_NONE where the string was never interned. */
uint32_t strpool_find(const struct strpool *p, const char *s, size_t len);
/* The string of an id from this pool (valid as long as the pool); NULL for an unknown id. */
const char *strpool_str(const struct strpool *p, uint32_t id);
uint32_t strpool_count(const struct strpool *p);

#endif

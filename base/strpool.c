#include "base/strpool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define BLOCK_BYTES 4096
#define FIRST_ENTRIES 64
#define FIRST_SLOTS 128

/* Strings lie in blocks that never move, so that a string's address lasts as long as the pool. */
struct block {
	struct block *next;
	size_t used;
	size_t cap;
	char bytes[];
};

struct entry {
	const char *str;
	uint32_t len;
	uint32_t hash;
};

struct strpool {
	struct block *blocks;  /* the first one has the free room */
	struct entry *entries; /* by id */
	uint32_t count;
	uint32_t entry_cap;
	uint32_t *slots;     /* open addressing, linear probing: id + 1, or 0 where empty */
	uint32_t slot_count; /* a power of two, more than count * 4/3 */
};

struct strpool *strpool_new(void)
{
	struct strpool *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->entries = calloc(FIRST_ENTRIES, sizeof(*p->entries));
	p->slots = calloc(FIRST_SLOTS, sizeof(*p->slots));
	if (p->entries == NULL || p->slots == NULL) {
		strpool_free(p);
		return NULL;
	}
	p->entry_cap = FIRST_ENTRIES;
	p->slot_count = FIRST_SLOTS;
	return p;
}

void strpool_free(struct strpool *p)
{
	struct block *b, *next;

	if (p == NULL)
		return;
	for (b = p->blocks; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	free(p->entries);
	free(p->slots);
	free(p);
}

/* The slot that holds the string, or the empty one where it belongs. */
static uint32_t slot_of(const struct strpool *p, const char *s, size_t len, uint32_t hash)
{
	uint32_t mask = p->slot_count - 1, i = hash & mask;

	for (; p->slots[i] != 0; i = (i + 1) & mask) {
		const struct entry *e = &p->entries[p->slots[i] - 1];

		if (e->hash == hash && e->len == len && memcmp(e->str, s, len) == 0)
			break;
	}
	return i;
}

static bool grow_entries(struct strpool *p)
{
	struct entry *entries;

	if (p->count < p->entry_cap)
		return true;
	if (p->entry_cap > UINT32_MAX / 4)
		return false;
	entries = realloc(p->entries, 2 * (size_t)p->entry_cap * sizeof(*entries));
	if (entries == NULL)
		return false;
	p->entries = entries;
	p->entry_cap *= 2;
	return true;
}

static bool grow_slots(struct strpool *p)
{
	uint32_t *slots, mask;

	if (p->count < p->slot_count - p->slot_count / 4)
		return true;
	if (p->slot_count > UINT32_MAX / 4)
		return false;
	slots = calloc(2 * (size_t)p->slot_count, sizeof(*slots));
	if (slots == NULL)
		return false;
	mask = 2 * p->slot_count - 1;
	for (uint32_t id = 0; id < p->count; id++) {
		uint32_t i = p->entries[id].hash & mask;

		while (slots[i] != 0)
			i = (i + 1) & mask;
		slots[i] = id + 1;
	}
	free(p->slots);
	p->slots = slots;
	p->slot_count *= 2;
	return true;
}

/* A lasting copy of s with a NUL behind it; NULL: no memory. */
static const char *keep(struct strpool *p, const char *s, size_t len)
{
	struct block *b = p->blocks;
	char *copy;

	if (b == NULL || b->cap - b->used <= len) {
		size_t cap = len < BLOCK_BYTES ? BLOCK_BYTES : len + 1;

		b = malloc(sizeof(*b) + cap);
		if (b == NULL)
			return NULL;
		b->used = 0;
		b->cap = cap;
		b->next = p->blocks;
		p->blocks = b;
	}
	copy = b->bytes + b->used;
	if (len > 0)
		memcpy(copy, s, len);
	copy[len] = '\0';
	b->used += len + 1;
	return copy;
}

uint32_t strpool_intern(struct strpool *p, const char *s, size_t len)
{
	uint32_t hash = (uint32_t)hash_bytes(s, len, 0), slot;
	const char *copy;

	if (len >= UINT32_MAX)
		return STRPOOL_NONE;
	slot = slot_of(p, s, len, hash);
	if (p->slots[slot] != 0)
		return p->slots[slot] - 1;
	if (!grow_entries(p) || !grow_slots(p))
		return STRPOOL_NONE;
	copy = keep(p, s, len);
	if (copy == NULL)
		return STRPOOL_NONE;
	p->entries[p->count] = (struct entry){.str = copy, .len = (uint32_t)len, .hash = hash};
	p->slots[slot_of(p, s, len, hash)] = p->count + 1;
	return p->count++;
}

uint32_t strpool_find(const struct strpool *p, const char *s, size_t len)
{
	uint32_t slot = slot_of(p, s, len, (uint32_t)hash_bytes(s, len, 0));

	return p->slots[slot] != 0 ? p->slots[slot] - 1 : STRPOOL_NONE;
}

const char *strpool_str(const struct strpool *p, uint32_t id)
{
	return id < p->count ? p->entries[id].str : NULL;
}

uint32_t strpool_count(const struct strpool *p)
{
	return p->count;
}

/* A bump allocator over a list of chunks that are kept when it is reset. */
#include <stdlib.h>
#include <string.h>

#include "kube/object.h"

#define CHUNK_MIN 16384
#define ALIGN 16

struct chunk {
	struct chunk *next;
	size_t cap, used;
	_Alignas(ALIGN) char data[];
};

struct ku_arena {
	struct chunk *first, *current; /* chunks behind current are unused */
};

struct ku_arena *ku_arena_new(void)
{
	return calloc(1, sizeof(struct ku_arena));
}

void ku_arena_free(struct ku_arena *a)
{
	struct chunk *next;

	if (a == NULL)
		return;
	for (struct chunk *c = a->first; c != NULL; c = next) {
		next = c->next;
		free(c);
	}
	free(a);
}

void ku_arena_reset(struct ku_arena *a)
{
	for (struct chunk *c = a->first; c != NULL; c = c->next)
		c->used = 0;
	a->current = a->first;
}

/* A chunk with room for size bytes: one that is there already, or a new one behind current. */
static struct chunk *chunk_with_room(struct ku_arena *a, size_t size)
{
	struct chunk *c, **link = a->current != NULL ? &a->current->next : &a->first;
	size_t cap = size > CHUNK_MIN ? size : CHUNK_MIN;

	for (c = a->current; c != NULL; c = c->next) {
		if (size <= c->cap - c->used)
			return c;
	}
	c = malloc(sizeof(*c) + cap);
	if (c == NULL)
		return NULL;
	c->next = *link;
	c->cap = cap;
	c->used = 0;
	*link = c;
	return c;
}

void *ku_arena_alloc(struct ku_arena *a, size_t size)
{
	struct chunk *c;
	void *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + ALIGN - 1) / ALIGN * ALIGN;
	c = chunk_with_room(a, size);
	if (c == NULL)
		return NULL;
	a->current = c;
	p = c->data + c->used;
	c->used += size;
	return memset(p, 0, size);
}

char *ku_arena_str(struct ku_arena *a, const char *s)
{
	size_t len = strlen(s) + 1;
	char *copy = ku_arena_alloc(a, len);

	return copy != NULL ? memcpy(copy, s, len) : NULL;
}

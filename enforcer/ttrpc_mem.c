#include "enforcer/ttrpc_mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_FIRST 4096
#define CHUNK_MAX 262144
#define ALIGN 16

struct chunk {
	struct chunk *next;
	size_t cap, used;
	_Alignas(ALIGN) unsigned char data[];
};

struct en_mem {
	struct chunk *chunks; /* the one in use first */
	size_t left, next_cap;
	bool failed;
};

struct en_mem *en_mem_new(size_t budget)
{
	struct en_mem *m = calloc(1, sizeof(*m));

	if (m != NULL) {
		m->left = budget;
		m->next_cap = CHUNK_FIRST;
	}
	return m;
}

void en_mem_free(struct en_mem *m)
{
	struct chunk *next;

	if (m == NULL)
		return;
	for (struct chunk *c = m->chunks; c != NULL; c = next) {
		next = c->next;
		free(c);
	}
	free(m);
}

static struct chunk *chunk_new(struct en_mem *m, size_t size)
{
	size_t cap = size > m->next_cap ? size : m->next_cap;
	struct chunk *c = malloc(sizeof(*c) + cap);

	if (c == NULL)
		return NULL;
	if (m->next_cap < CHUNK_MAX)
		m->next_cap *= 2;
	*c = (struct chunk){.next = m->chunks, .cap = cap};
	m->chunks = c;
	return c;
}

static void *fail(struct en_mem *m)
{
	m->failed = true;
	return NULL;
}

void *en_mem_alloc(struct en_mem *m, size_t size)
{
	struct chunk *c = m->chunks;
	void *p;

	if (size > SIZE_MAX / 2)
		return fail(m);
	size = (size + ALIGN - 1) / ALIGN * ALIGN;
	if (size > m->left)
		return fail(m);
	if (c == NULL || size > c->cap - c->used)
		c = chunk_new(m, size);
	if (c == NULL)
		return fail(m);
	p = c->data + c->used;
	c->used += size;
	m->left -= size;
	return memset(p, 0, size);
}

bool en_mem_failed(const struct en_mem *m)
{
	return m->failed;
}

char *en_mem_text(struct en_mem *m, const void *data, size_t len)
{
	char *copy = en_mem_alloc(m, len + 1);

	if (copy != NULL && len > 0)
		memcpy(copy, data, len);
	return copy;
}

static void *pb_alloc(void *m, size_t size)
{
	return en_mem_alloc(m, size);
}

static void pb_free(void *m, void *data)
{
	(void)m;
	(void)data;
}

ProtobufCAllocator en_mem_allocator(struct en_mem *m)
{
	return (ProtobufCAllocator){.alloc = pb_alloc, .free = pb_free, .allocator_data = m};
}

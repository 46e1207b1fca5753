/* Memory of one decoded message: allocated bit by bit, freed at once, bounded. A message of 4 MiB can
 * name millions of empty fields; the bound ends that before memory does. */
#ifndef TESSERA_ENFORCER_TTRPC_MEM_H
#define TESSERA_ENFORCER_TTRPC_MEM_H

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

struct en_mem;

/* budget: bytes that may be given out in all. NULL: no memory. */
struct en_mem *en_mem_new(size_t budget);
void en_mem_free(struct en_mem *m);

/* Zeroed, aligned for anything; NULL: over the budget, or no memory. Lives as long as m. */
void *en_mem_alloc(struct en_mem *m, size_t size);
/* Has an allocation failed, for whatever reason? */
bool en_mem_failed(const struct en_mem *m);
/* A copy with a NUL behind it. */
char *en_mem_text(struct en_mem *m, const void *data, size_t len);

/* For protobuf-c, which returns NULL from unpacking when an allocation fails. Frees nothing before
 * en_mem_free(), so that nothing needs to be freed message by message. */
ProtobufCAllocator en_mem_allocator(struct en_mem *m);

#endif

/* Of state/ only: the built-in geometries as mig_table.c lists them. */
#ifndef TESSERA_STATE_MIG_INTERNAL_H
#define TESSERA_STATE_MIG_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "state/mig.h"

struct st_mig_entry {
	const char *product_regex;       /* POSIX extended; matches both forms of a product name */
	int32_t mem_mib;                 /* of the largest profile, or its gb label as MiB */
	struct st_mig_geometry geometry; /* bits set */
};

extern const struct st_mig_entry st_mig_entries[];
extern const size_t st_mig_entry_count;

/* As st_mig_table_find(), telling "unknown" (0, *ret NULL) from ERR_NOMEM. */
int st_mig_table_lookup(const char *product, int32_t mem_mib, const struct st_mig_geometry **ret);

#endif

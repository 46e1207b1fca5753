/* MIG geometry as data, and the rules by which GPU instances fit on one GPU.
 *
 * A geometry is a grid of memory units (8 on A100/H100, 4 on A30, 12 on RTX PRO 6000), a number of
 * compute slices, and profiles with the starts they may take. What is placed on a GPU is one
 * 64-bit mask with a bit for each (profile, start): states are plain values.
 * Source: NVIDIA MIG user guide; starts as printed by the driver. */
#ifndef TESSERA_STATE_MIG_H
#define TESSERA_STATE_MIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ST_MIG_PROFILES_MAX 20
#define ST_MIG_STARTS_MAX 12
#define ST_MIG_UNITS_MAX 32
#define ST_MIG_NAME_CAP 24

enum st_mig_attr {
	ST_MIG_ME = 1,     /* +me: the media engine; one instance a GPU */
	ST_MIG_ME_ALL = 2, /* +me.all: all media engines */
	ST_MIG_NO_ME = 4,  /* -me */
	ST_MIG_GFX = 8,    /* +gfx */
};

struct st_mig_profile {
	char name[ST_MIG_NAME_CAP]; /* "1g.10gb+me" */
	int32_t id;                 /* nvidia-smi's profile id; -1 where unknown */
	int32_t mem_mib;            /* 0 where unknown */
	uint8_t compute_slices;
	uint8_t units;         /* size in memory units of the geometry's grid */
	uint8_t max_instances; /* on one GPU */
	uint8_t attrs;         /* enum st_mig_attr, or-ed */
	uint8_t start_count;   /* 0 = starts unknown: nothing is placed until a node reports them */
	uint8_t starts[ST_MIG_STARTS_MAX]; /* ascending */
	uint8_t bit; /* bit of starts[0] in a placed mask; set by st_mig_geometry_finish() */
};

struct st_mig_geometry {
	char model[32]; /* "A100-40GB" */
	uint8_t compute_total;
	uint8_t units_total;
	uint8_t profile_count;
	struct st_mig_profile profiles[ST_MIG_PROFILES_MAX];
};

/* The built-in geometry for a product name as NVML or a GFD label gives it ("NVIDIA
 * A100-SXM4-40GB", dashes or spaces) and its memory (0 = any); NULL where none is known. */
const struct st_mig_geometry *st_mig_table_find(const char *product, int32_t mem_mib);
/* The i-th built-in geometry, NULL past the end: for tests and listings. */
const struct st_mig_geometry *st_mig_table_at(size_t i);

/* Checks a geometry (from a node's report, too) and sets each profile's bit. ERR_INVALID when a
 * start leaves the grid, names repeat, or more than 64 (profile, start) pairs exist. */
int st_mig_geometry_finish(struct st_mig_geometry *g, struct err *err);
bool st_mig_geometry_equal(const struct st_mig_geometry *a, const struct st_mig_geometry *b);

/* Index of the profile with that name, or -1. A name whose gb label differs from the table's but
 * whose compute slices and attributes match a single profile of nearly that size (labels vary by
 * driver: "7g.79gb") is found too. */
int st_mig_profile_find(const struct st_mig_geometry *g, const char *name);

/* Is an instance of the profile enough for so much memory in MiB, or for that part of the GPU's
 * memory units in 10^-9 (0 = not asked for)? Plain profiles only: what has engines or graphics of
 * its own is given to those who ask for it by name. */
bool st_mig_serves(const struct st_mig_geometry *g, int profile, int32_t mem_mib, int32_t nano);
/* Of two profiles the one that takes less of the GPU: memory units, then compute slices. */
bool st_mig_smaller(const struct st_mig_geometry *g, int a, int b);
/* The smallest profile that serves; -1 = none. */
int st_mig_smallest(const struct st_mig_geometry *g, int32_t mem_mib, int32_t nano);

/* Legality: units free, compute slices left, instances of the profile below its maximum, at most
 * one +me / +me.all instance. */
bool st_mig_can_place(const struct st_mig_geometry *g, uint64_t placed, int profile, int start);
/* The bit for (profile, start), or 0 when the profile does not have that start. */
uint64_t st_mig_bit(const struct st_mig_geometry *g, int profile, int start);
/* Memory units not covered by an instance. */
int st_mig_units_free(const struct st_mig_geometry *g, uint64_t placed);
/* Most further instances of this profile alone that fit beside what is placed. */
int st_mig_max_more(const struct st_mig_geometry *g, uint64_t placed, int profile);
/* The same where instances were cut beforehand: `open` has the bits of those that exist, and a new
 * one is one of them that is not placed yet; ST_MIG_ANYWHERE where they are made when asked for.
 * Units count as free where something can still be placed on them. */
#define ST_MIG_ANYWHERE UINT64_MAX
bool st_mig_can_place_in(const struct st_mig_geometry *g, uint64_t open, uint64_t placed,
			 int profile, int start);
int st_mig_units_free_in(const struct st_mig_geometry *g, uint64_t open, uint64_t placed);
int st_mig_max_more_in(const struct st_mig_geometry *g, uint64_t open, uint64_t placed,
		       int profile);
/* Walks the placed instances: i from 0; false past the end. */
bool st_mig_at(const struct st_mig_geometry *g, uint64_t placed, int i, int *ret_profile,
	       int *ret_start);
/* True when all that is placed is legal together (for reports from outside). */
bool st_mig_legal(const struct st_mig_geometry *g, uint64_t placed);

#endif

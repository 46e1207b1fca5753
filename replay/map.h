/* Tables of other traces: which column is what, in which unit. FORMATS.md has the language and the maps
 * that are built in. */
#ifndef TESSERA_REPLAY_MAP_H
#define TESSERA_REPLAY_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "replay/trace.h"

enum rp_map_field {
	RP_MAP_NAME,
	RP_MAP_COPIES, /* pods that the row stands for; 1 */
	RP_MAP_NODES,  /* the same, and GPUs, CPU and memory are those of all of them together */
	RP_MAP_CPU,
	RP_MAP_MEMORY,
	RP_MAP_GPUS, /* of a pod; below 1 = a share of one */
	RP_MAP_MODEL,
	RP_MAP_ARRIVAL,
	RP_MAP_START, /* with END: how long it stays */
	RP_MAP_END,
	RP_MAP_DURATION,
	RP_MAP_FIELDS,
};

#define RP_MAP_COLUMN_CAP 64
struct rp_map {
	char columns[RP_MAP_FIELDS][RP_MAP_COLUMN_CAP]; /* "" = none */
	int64_t units_nano
		[RP_MAP_FIELDS];  /* what 1 of the column is, in milli, MiB, GPUs, ms; 10^-9 */
	bool date[RP_MAP_FIELDS]; /* "2017-10-03 12:00:01", not a number */
};

/* Reads a map: a line `field = column [unit]` each, # begins a comment. ERR_INVALID: the message says
 * path and line. *ret is written only on success. */
int rp_map_parse(const char *path, const char *text, size_t len, struct rp_map *ret,
		 struct err *err);
/* A built-in map by its name, or a file. ERR_NOT_FOUND, ERR_IO, errors of parsing. */
int rp_map_find(const char *name, struct rp_map *ret, struct err *err);
/* The i-th built-in map: name and text; NULL past the end. */
const char *rp_map_builtin(size_t i, const char **ret_text);

/* Pods or nodes of a table, added to the trace. Empty fields are 0, times then unknown; the first
 * arrival becomes time 0. A pod of more than RP_MAP_POD_GPUS GPUs becomes several of that many (the
 * rest in the last); a part of a GPU above 1 is rounded up to whole ones. Errors as in openb.h. */
#define RP_MAP_POD_GPUS 8
#define RP_MAP_COPIES_MAX 100000
int rp_map_pods(const struct rp_map *m, struct rp_trace *t, const char *path, const char *text,
		size_t len, struct err *err);
int rp_map_nodes(const struct rp_map *m, struct rp_trace *t, const char *path, const char *text,
		 size_t len, struct err *err);

#endif

/* A strict scanner for the bodies a kube-scheduler sends. It checks all of the body as JSON, finds
 * the top-level values without building a tree, and reads the long list of node names as slices of
 * the body. It accepts exactly what ku_json_parse() accepts (fuzz target: body). */
#ifndef TESSERA_EXTENDER_SCAN_H
#define TESSERA_EXTENDER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EX_SCAN_DEPTH_MAX 256 /* as ku_json_parse() */

struct ex_slice {
	const char *at; /* NULL = absent or null */
	size_t len;
};

struct ex_name {
	const char *
		at; /* the decoded name: in the body, or in ex_names.decoded where it had escapes */
	const char *raw; /* as in the body, with its quotes: valid JSON */
	uint32_t len, raw_len;
};

/* A list of names that is used again for request after request. */
struct ex_names {
	struct ex_name *v;
	size_t count, cap;
	struct buf decoded;
};
void ex_names_fini(struct ex_names *n);

/* The parts of an ExtenderArgs or ExtenderPreemptionArgs; slices of the body. */
struct ex_body {
	struct ex_slice pod;          /* an object */
	struct ex_slice nodes;        /* an object: a NodeList */
	struct ex_slice node_names;   /* an array; its names are in ex_names */
	struct ex_slice victims;      /* NodeNameToVictims, an object */
	struct ex_slice meta_victims; /* NodeNameToMetaVictims, an object */
};

/* Scans a whole body. Keys are matched without regard to case; of equal keys the last counts, as in
 * Go. Names are put into *names, which holds slices of text. ERR_INVALID names the byte offset and
 * the cause (also for values of a wrong type); ERR_NOMEM. */
int ex_scan_body(const char *text, size_t len, struct ex_body *ret, struct ex_names *names,
		 struct err *err);

/* The items of a NodeList that ex_scan_body() accepted: their names (metadata.name) into *names, and
 * the whole objects into (*items)[0..names->count), an array that is grown as needed.
 * ERR_INVALID: an item that is no object or has no name; ERR_NOMEM. */
struct ex_items {
	struct ex_slice *v;
	size_t cap;
};
void ex_items_fini(struct ex_items *i);
int ex_scan_nodes(struct ex_slice nodes, struct ex_names *names, struct ex_items *items,
		  struct err *err);

/* Checks that text is one JSON value and nothing else. ERR_INVALID. */
int ex_scan_check(const char *text, size_t len, struct err *err);

#endif

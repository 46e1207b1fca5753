/* Takes JSON apart while it arrives, in bounded memory: a watch into its events, a list into its items
 * however long it is. What nobody reads (managedFields, ...) is left out on the way, so that it is
 * neither kept nor parsed. Only the outline is checked here; what comes out goes to ku_json_parse(). */
#ifndef TESSERA_KUBE_REFLECTOR_SPLIT_H
#define TESSERA_KUBE_REFLECTOR_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum ku_split_mode {
	KU_SPLIT_EVENTS, /* objects one after another; pruned below "object" */
	KU_SPLIT_LIST,   /* one object: each element of its "items", and its "metadata" */
};

enum ku_piece { KU_PIECE_OBJECT /* event or item */, KU_PIECE_LIST_METADATA };

/* text is len bytes of one JSON object, valid during the call. A negative return ends the feeding. */
typedef int (*ku_piece_fn)(void *ctx, enum ku_piece what, const char *text, size_t len,
			   struct err *err);

#define KU_SPLIT_DEPTH 256
#define KU_SPLIT_NAMES 64 /* parts of all paths that are left out together */

struct ku_split {
	enum ku_split_mode mode;
	size_t object_max;
	ku_piece_fn fn;
	void *ctx;

	/* names to leave out, as a tree: child and sibling are indices, 0 = none */
	struct {
		const char *name;
		size_t len;
		uint8_t child, sibling;
		bool leaf;
	} names[KU_SPLIT_NAMES];
	unsigned name_count;

	/* where we are */
	uint8_t state;
	bool escaped;     /* behind a backslash */
	bool key_string;  /* the string is a key */
	bool skip_string; /* inside a string of what is left out */
	unsigned skip_depth;
	unsigned depth;
	struct {
		bool object;
		bool some;    /* has an element already */
		uint8_t name; /* node in names that its members are looked up under; 0 = none */
	} level[KU_SPLIT_DEPTH];
	uint8_t next_name; /* for the value that comes */
	enum ku_piece piece;
	unsigned piece_depth;     /* level that the piece's object is; 0 = none open */
	size_t key_at, member_at; /* offsets in out */
	struct buf out;           /* the open piece; outside of one, the key that is read */
	bool ended;               /* LIST: the whole object was seen */
	bool items_seen;
};

/* prune: dotted paths ("spec.containers.env"; lists in between do not count), ended by NULL; may be
 * NULL. Its strings outlive the splitter. ERR_INVALID: too many or too long. */
int ku_split_init(struct ku_split *s, enum ku_split_mode mode, const char *const *prune,
		  size_t object_max, ku_piece_fn fn, void *ctx, struct err *err);
void ku_split_fini(struct ku_split *s);
/* For the next stream: as after ku_split_init(). */
void ku_split_reset(struct ku_split *s);

/* ERR_INVALID: the outline is wrong; ERR_TOO_LARGE: an object over object_max; ERR_NOMEM; or what fn
 * returned. After an error only _reset() and _fini() are allowed. */
int ku_split_feed(struct ku_split *s, const char *data, size_t len, struct err *err);
/* At the end of the stream: is it complete? LIST: the whole object with items was seen. EVENTS: it
 * does not end inside an object. */
bool ku_split_complete(const struct ku_split *s);

#endif

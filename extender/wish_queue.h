/* Wishes for memory limits (elastic.h) that wait to be looked at. What is to be looked at next is found in the
 * same number of steps however many wait: each of the lists is in the order in which its wishes come due.
 * Without a lock: the owner has one. Times are of one clock, in microseconds. */
#ifndef TESSERA_EXTENDER_WISH_QUEUE_H
#define TESSERA_EXTENDER_WISH_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

#define EX_WISH_SOON_US 2000000
#define EX_WISH_LATER_US 30000000

/* Where a wish waits; those with a list come first. */
enum ex_wish_at {
	EX_WISH_TOLD,  /* due */
	EX_WISH_SOON,  /* due after EX_WISH_SOON_US */
	EX_WISH_LATER, /* due after EX_WISH_LATER_US */
	EX_WISH_ROOM,  /* due once room has changed */
	EX_WISH_LISTS,
	EX_WISH_IDLE = EX_WISH_LISTS, /* not due before it is told anew */
	EX_WISH_BUSY,                 /* it is being looked at */
};

struct ex_wish {
	UT_hash_handle hh; /* by uid */
	struct ex_wish *prev, *next;
	enum ex_wish_at at;
	char *uid, *text; /* the pod, as it was told last */
	uint64_t seen,
		looked; /* numbers of the last telling, and of the last look (or the first telling) */
	int64_t due_us;         /* SOON, LATER */
	uint64_t room;          /* ROOM: as it was at its last look */
	bool again;             /* BUSY: for new room, and nothing else */
	char said[ERR_MSG_CAP]; /* the owner's: the refusal that was told last */
};

/* All zero: empty. */
struct ex_wishes {
	struct ex_wish *all, *lists[EX_WISH_LISTS];
	uint64_t count; /* of tellings and looks: their numbers */
	uint64_t steps; /* wishes that were considered, by all calls of next: for tests */
};

void ex_wishes_fini(struct ex_wishes *q);

/* Told, for the first time or anew: due, once the look that is under way is over. *text is taken, and
 * becomes the text before or NULL, which is the caller's. ERR_NOMEM: nothing has changed. */
int ex_wishes_tell(struct ex_wishes *q, const char *uid, char **text);
/* No more, also where it is being looked at. The caller frees it; NULL: there was none. */
struct ex_wish *ex_wishes_drop(struct ex_wishes *q, const char *uid);
void ex_wish_free(struct ex_wish *w); /* NULL is allowed */

/* Of those that are due and at the head of a list the one whose last look is longest ago; it is BUSY from
 * here on, and its `looked` is the number of this look. So each that is due has its turn, however often others
 * are told or made. NULL: none is due. */
struct ex_wish *ex_wishes_next(struct ex_wishes *q, int64_t now_us, uint64_t room);
/* The wish that this look is at. NULL: it is no more, though there may be another of that uid. */
struct ex_wish *ex_wishes_find(const struct ex_wishes *q, const char *uid, uint64_t look);
/* Of one that is BUSY: was it told anew since the look began? */
bool ex_wish_told_since(const struct ex_wish *w);
/* The look at it is over: it waits there, or is due where it was told anew since. */
void ex_wishes_rest(struct ex_wishes *q, struct ex_wish *w, enum ex_wish_at at, int64_t now_us,
		    uint64_t room);

#endif

#include "extender/wish_queue.h"

#include <stdlib.h>
#include <utlist.h>

void ex_wish_free(struct ex_wish *w)
{
	if (w == NULL)
		return;
	free(w->uid);
	free(w->text);
	free(w);
}

void ex_wishes_fini(struct ex_wishes *q)
{
	struct ex_wish *w, *next;

	HASH_ITER(hh, q->all, w, next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): uthash is right */
		HASH_DEL(q->all, w);
		ex_wish_free(w);
	}
	*q = (struct ex_wishes){.all = NULL};
}

/* The only way from one place to another. */
static void move(struct ex_wishes *q, struct ex_wish *w, enum ex_wish_at at)
{
	if (w->at < EX_WISH_LISTS)
		DL_DELETE(q->lists[w->at], w);
	w->at = at;
	if (at < EX_WISH_LISTS)
		DL_APPEND(q->lists[at], w);
}

static struct ex_wish *find(const struct ex_wishes *q, const char *uid)
{
	struct ex_wish *w;

	HASH_FIND_STR(q->all, uid, w);
	return w;
}

static struct ex_wish *add(struct ex_wishes *q, const char *uid)
{
	struct ex_wish *w = calloc(1, sizeof(*w));

	if (w != NULL && (w->uid = strdup(uid)) != NULL) {
		w->at = EX_WISH_IDLE;
		HASH_ADD_KEYPTR(hh, q->all, w->uid, strlen(w->uid), w);
		if (HASH_ADDED(w, hh)) {
			w->looked = ++q->count;
			return w;
		}
	}
	ex_wish_free(w);
	return NULL;
}

int ex_wishes_tell(struct ex_wishes *q, const char *uid, char **text)
{
	struct ex_wish *w = find(q, uid);
	char *old;

	if (w == NULL)
		w = add(q, uid);
	if (w == NULL)
		return ERR_NOMEM;
	old = w->text;
	w->text = *text;
	*text = old;
	w->seen = ++q->count;
	if (w->at != EX_WISH_BUSY && w->at != EX_WISH_TOLD)
		move(q, w, EX_WISH_TOLD);
	return 0;
}

struct ex_wish *ex_wishes_drop(struct ex_wishes *q, const char *uid)
{
	struct ex_wish *w = find(q, uid);

	if (w != NULL) {
		move(q, w, EX_WISH_IDLE);
		HASH_DEL(q->all, w);
	}
	return w;
}

static bool due(const struct ex_wish *w, int64_t now_us, uint64_t room)
{
	if (w->at == EX_WISH_ROOM)
		return w->room != room;
	return w->at == EX_WISH_TOLD || w->due_us <= now_us;
}

struct ex_wish *ex_wishes_next(struct ex_wishes *q, int64_t now_us, uint64_t room)
{
	struct ex_wish *next = NULL;

	for (int i = 0; i < EX_WISH_LISTS; i++) {
		struct ex_wish *w = q->lists[i];

		q->steps += w != NULL;
		if (w != NULL && due(w, now_us, room) && (next == NULL || w->looked < next->looked))
			next = w;
	}
	if (next == NULL)
		return NULL;
	next->again = next->at == EX_WISH_ROOM;
	next->looked = ++q->count;
	move(q, next, EX_WISH_BUSY);
	return next;
}

struct ex_wish *ex_wishes_find(const struct ex_wishes *q, const char *uid, uint64_t look)
{
	struct ex_wish *w = find(q, uid);

	return w != NULL && w->at == EX_WISH_BUSY && w->looked == look ? w : NULL;
}

bool ex_wish_told_since(const struct ex_wish *w)
{
	return w->seen > w->looked;
}

void ex_wishes_rest(struct ex_wishes *q, struct ex_wish *w, enum ex_wish_at at, int64_t now_us,
		    uint64_t room)
{
	w->due_us = now_us + (at == EX_WISH_SOON ? EX_WISH_SOON_US : EX_WISH_LATER_US);
	w->room = room;
	move(q, w, ex_wish_told_since(w) ? EX_WISH_TOLD : at);
}

/* A journal's text without what is over: binds whose pods were released. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "extender/journal.h"

struct line {
	const char *at;
	size_t len; /* with check sum, without newline */
	bool dropped;
};

/* The bind of a pod that was not released yet. The key is the UID as it is written. */
struct held {
	const char *uid;
	size_t line;
	const struct held
		*before; /* an earlier one of the same pod, as where its node was away at a start */
	UT_hash_handle hh;
};

struct work {
	struct line *lines;
	size_t count;
	struct held *pool, *held; /* an entry a line at most; those that are in use */
};

/* The UID of a line that tells of that event; NULL: it tells of another. All lines are written by
 * ex_journal_put_bind() and _release(): their members are in one order. */
static const char *uid_of(const struct line *l, const char *event, size_t *ret_len)
{
	const char *p = l->at + EX_JOURNAL_START_LEN, *start;
	size_t n = strlen(event);

	if (l->len < EX_JOURNAL_START_LEN + n || memcmp(p, event, n) != 0)
		return NULL;
	start = p += n;
	while (p < l->at + l->len && *p != '"')
		p += *p == '\\' ? 2 : 1;
	if (p >= l->at + l->len)
		return NULL;
	*ret_len = (size_t)(p - start);
	return start;
}

static int take_line(struct work *w, size_t i, struct err *err)
{
	struct line *l = &w->lines[i];
	struct held *h = NULL, *before = NULL;
	const char *uid;
	size_t len;

	uid = uid_of(l, "release\",\"uid\":\"", &len);
	if (uid != NULL) {
		HASH_FIND(hh, w->held, uid, len, h);
		/* One without a bind before it speaks of a pod of the cluster file. */
		if (h != NULL)
			HASH_DEL(w->held, h);
		for (const struct held *b = h; b != NULL; b = b->before)
			l->dropped = w->lines[b->line].dropped = true;
		return 0;
	}
	uid = uid_of(l, "bind\",\"uid\":\"", &len);
	if (uid == NULL)
		return 0;
	HASH_FIND(hh, w->held, uid, len, before);
	if (before != NULL)
		HASH_DEL(w->held, before);
	h = &w->pool[i];
	*h = (struct held){.uid = uid, .line = i, .before = before};
	HASH_ADD_KEYPTR(hh, w->held, h->uid, len, h);
	return HASH_ADDED(h, hh) ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* Cuts the text into lines, each of which must be right. */
static int split(const char *text, size_t len, struct work *w, struct err *err)
{
	const char *p = text, *end = text + len, *newline;
	uint32_t chain = 0;

	for (size_t i = 0; i < w->count; i++) {
		int rc;

		newline = memchr(p, '\n', (size_t)(end - p));
		w->lines[i] = (struct line){.at = p, .len = (size_t)(newline - p)};
		rc = ex_journal_line_check(p, w->lines[i].len, &chain, err);
		if (rc < 0)
			return err_prefix(err, rc, "line %zu", i + 1);
		p = newline + 1;
	}
	return 0;
}

static int compact(struct work *w, const char *text, size_t len, size_t keep, struct buf *out,
		   uint32_t *ret_chain, struct err *err)
{
	int rc = split(text, len, w, err);

	for (size_t i = 0; rc == 0 && i < w->count; i++) {
		if ((size_t)(text + len - w->lines[i].at) <= keep)
			break;
		rc = take_line(w, i, err);
	}
	*ret_chain = 0;
	for (size_t i = 0; rc == 0 && i < w->count; i++) {
		if (!w->lines[i].dropped)
			ex_journal_seal(out, w->lines[i].at, w->lines[i].len - EX_JOURNAL_TAIL_LEN,
					ret_chain);
	}
	return rc < 0 || buf_ok(out) ? rc : err_set(err, ERR_NOMEM, "out of memory");
}

int ex_journal_compact(const char *text, size_t len, size_t keep, struct buf *out,
		       uint32_t *ret_chain, struct err *err)
{
	struct work w = {0};
	int rc;

	if (len > 0 && text[len - 1] != '\n')
		return err_set(err, ERR_INVALID, "the last line has no end");
	for (size_t i = 0; i < len; i++)
		w.count += text[i] == '\n';
	w.lines = calloc(w.count + 1, sizeof(*w.lines));
	w.pool = calloc(w.count + 1, sizeof(*w.pool));
	rc = w.lines != NULL && w.pool != NULL ? compact(&w, text, len, keep, out, ret_chain, err)
					       : err_set(err, ERR_NOMEM, "out of memory");
	HASH_CLEAR(hh, w.held);
	free(w.lines);
	free(w.pool);
	return rc;
}

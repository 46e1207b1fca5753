/* A state machine over bytes: it can be interrupted between any two of them. */
#include "kube/reflector_split.h"

#include <string.h>

enum state {
	S_TOP,        /* before an object of the stream */
	S_DONE,       /* behind the list */
	S_KEY_OR_END, /* behind { */
	S_KEY,        /* behind , in an object */
	S_COLON,
	S_COLON_SKIP, /* the member is left out */
	S_VALUE,
	S_VALUE_OR_END, /* behind [ */
	S_STRING,
	S_SCALAR,
	S_NEXT, /* behind a value */
	S_SKIP, /* inside a value that is left out */
};

#define ROOT 1 /* of names; 0 = none */
#define KEY_MAX 1024

/* ---- the names to leave out ---- */

static uint8_t find_name(const struct ku_split *s, uint8_t parent, const char *name, size_t len)
{
	uint8_t n = parent == 0 ? 0 : s->names[parent].child;

	while (n != 0 && (s->names[n].len != len || memcmp(s->names[n].name, name, len) != 0))
		n = s->names[n].sibling;
	return n;
}

static int add_path(struct ku_split *s, uint8_t parent, const char *path, struct err *err)
{
	for (const char *p = path;;) {
		size_t len = strcspn(p, ".");
		uint8_t n = find_name(s, parent, p, len);

		if (len == 0)
			return err_set(err, ERR_INVALID, "prune: \"%.100s\" is no path", path);
		if (n == 0) {
			if (s->name_count == KU_SPLIT_NAMES)
				return err_set(err, ERR_INVALID, "prune: more than %d names",
					       KU_SPLIT_NAMES);
			n = (uint8_t)s->name_count++;
			s->names[n].name = p;
			s->names[n].len = len;
			s->names[n].sibling = s->names[parent].child;
			s->names[parent].child = n;
		}
		parent = n;
		if (p[len] == '\0')
			break;
		p += len + 1;
	}
	s->names[parent].leaf = true;
	return 0;
}

int ku_split_init(struct ku_split *s, enum ku_split_mode mode, const char *const *prune,
		  size_t object_max, ku_piece_fn fn, void *ctx, struct err *err)
{
	uint8_t base = ROOT;

	*s = (struct ku_split){.mode = mode, .object_max = object_max, .fn = fn, .ctx = ctx};
	s->name_count = ROOT + 1;
	if (mode == KU_SPLIT_EVENTS) {
		base = (uint8_t)s->name_count++;
		s->names[base].name = "object";
		s->names[base].len = strlen("object");
		s->names[ROOT].child = base;
	}
	for (; prune != NULL && *prune != NULL; prune++) {
		int r = add_path(s, base, *prune, err);

		if (r < 0)
			return r;
	}
	ku_split_reset(s);
	return 0;
}

void ku_split_fini(struct ku_split *s)
{
	buf_fini(&s->out);
}

void ku_split_reset(struct ku_split *s)
{
	buf_reset(&s->out);
	s->state = S_TOP;
	s->escaped = s->key_string = s->skip_string = false;
	s->skip_depth = s->depth = s->piece_depth = 0;
	s->ended = s->items_seen = false;
	s->next_name = 0;
}

bool ku_split_complete(const struct ku_split *s)
{
	return s->mode == KU_SPLIT_LIST ? s->ended && s->items_seen : s->state == S_TOP;
}

/* ---- output ---- */

static int emit(struct ku_split *s, const char *data, size_t len, struct err *err)
{
	size_t max = s->piece_depth > 0 ? s->object_max : KEY_MAX;

	if (len > max - s->out.len)
		return err_set(err, ERR_TOO_LARGE, "an object of more than %zu bytes", max);
	buf_put(&s->out, data, len);
	return buf_ok(&s->out) ? 0 : err_set(err, ERR_NOMEM, "no memory for an object");
}

static int deliver(struct ku_split *s, struct err *err)
{
	int r = s->fn(s->ctx, s->piece, s->out.data, s->out.len, err);

	buf_reset(&s->out);
	s->piece_depth = 0;
	return r < 0 ? r : 0;
}

static int bad(const char *what, struct err *err)
{
	return err_set(err, ERR_INVALID, "the stream is no JSON as expected: %s", what);
}

/* ---- structure ---- */

static int open_level(struct ku_split *s, bool object, struct err *err)
{
	if (s->depth == KU_SPLIT_DEPTH - 1)
		return bad("more than 255 levels", err);
	s->depth++;
	s->level[s->depth].object = object;
	s->level[s->depth].some = false;
	s->level[s->depth].name = s->next_name;
	s->state = object ? S_KEY_OR_END : S_VALUE_OR_END;
	return s->piece_depth > 0 ? emit(s, object ? "{" : "[", 1, err) : 0;
}

static int open_piece(struct ku_split *s, enum ku_piece piece, uint8_t name, struct err *err)
{
	buf_reset(&s->out);
	s->piece = piece;
	s->next_name = name;
	s->piece_depth = s->depth + 1;
	return open_level(s, true, err);
}

static int close_level(struct ku_split *s, char c, struct err *err)
{
	bool object = c == '}';
	int r = 0;

	if (s->depth == 0 || s->level[s->depth].object != object)
		return bad("a bracket that closes nothing", err);
	if (s->piece_depth > 0)
		r = emit(s, &c, 1, err);
	if (r == 0 && s->piece_depth == s->depth)
		r = deliver(s, err);
	if (r < 0)
		return r;
	s->depth--;
	s->state = S_NEXT;
	if (s->depth == 0) {
		s->ended = s->mode == KU_SPLIT_LIST;
		s->state = s->ended ? S_DONE : S_TOP;
	}
	return 0;
}

static void start_skip(struct ku_split *s)
{
	s->state = S_SKIP;
	s->skip_depth = 0;
	s->skip_string = s->escaped = false;
}

/* The first byte of a value, outside of any piece: the outline of a list. *ret_used false: the byte is
 * to be looked at again. */
static int start_outline_value(struct ku_split *s, char c, bool *ret_used, struct err *err)
{
	if (s->depth == 2) /* in items */
		return c == '{' ? open_piece(s, KU_PIECE_OBJECT, ROOT, err)
				: bad("an item that is no object", err);
	if (s->next_name == KU_PIECE_LIST_METADATA + 1 && c == '{')
		return open_piece(s, KU_PIECE_LIST_METADATA, 0, err);
	if (s->next_name == KU_PIECE_OBJECT + 1) {
		s->items_seen = true;
		if (c == '[')
			return open_level(s, false, err);
		if (c != 'n')
			return bad("items that are no list", err);
	}
	*ret_used = false;
	start_skip(s);
	return 0;
}

static int start_value(struct ku_split *s, char c, bool *ret_used, struct err *err)
{
	if (s->piece_depth == 0)
		return start_outline_value(s, c, ret_used, err);
	if (!s->level[s->depth].object)
		s->next_name = s->level[s->depth].name;
	if (c == '{' || c == '[')
		return open_level(s, c == '{', err);
	if (c == '"') {
		s->state = S_STRING;
		s->key_string = s->escaped = false;
		return emit(s, &c, 1, err);
	}
	if (c == '\0' || strchr("-0123456789tfn", c) == NULL)
		return bad("not a value", err);
	s->state = S_SCALAR;
	*ret_used = false;
	return 0;
}

static int start_key(struct ku_split *s, struct err *err)
{
	int r = 0;

	s->member_at = s->out.len;
	if (s->piece_depth > 0 && s->level[s->depth].some)
		r = emit(s, ",", 1, err);
	s->key_at = s->out.len;
	s->state = S_STRING;
	s->key_string = true;
	s->escaped = false;
	return r < 0 ? r : emit(s, "\"", 1, err);
}

/* A whole key was read: what becomes of its member? */
static void end_key(struct ku_split *s)
{
	const char *key = s->out.data + s->key_at + 1;
	size_t len = s->out.len - s->key_at - 2;

	s->state = S_COLON;
	if (s->piece_depth == 0) { /* the list's own members */
		s->next_name = len == 5 && memcmp(key, "items", 5) == 0 ? KU_PIECE_OBJECT + 1
			       : len == 8 && memcmp(key, "metadata", 8) == 0
				       ? KU_PIECE_LIST_METADATA + 1
				       : 0;
		buf_reset(&s->out);
		return;
	}
	s->next_name = find_name(s, s->level[s->depth].name, key, len);
	if (s->next_name != 0 && s->names[s->next_name].leaf) {
		s->out.len = s->member_at;
		s->state = S_COLON_SKIP;
	} else {
		s->level[s->depth].some = true;
	}
}

/* ---- runs of bytes; each moves *p ---- */

/* The first quote or backslash from q on, or end; eight bytes at a time, for this is where the time
 * goes. A byte of x is 0 where the word has the quote: the subtraction sets its highest bit, and a
 * borrow can only reach bytes behind it. */
static const char *find_special(const char *q, const char *end)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;

	for (; end - q >= 8; q += 8) {
		uint64_t w, x, y, hit;

		memcpy(&w, q, 8);
		x = w ^ (ones * '"');
		y = w ^ (ones * '\\');
		hit = (((x - ones) & ~x) | ((y - ones) & ~y)) & highs;
		if (hit != 0)
			return q + __builtin_ctzll(hit) / 8;
	}
#endif
	while (q < end && *q != '"' && *q != '\\')
		q++;
	return q;
}

static int feed_string(struct ku_split *s, const char **p, const char *end, struct err *err)
{
	const char *from = *p, *q = from;
	bool closed = false;
	int r;

	while (q < end && !closed) {
		if (s->escaped) {
			s->escaped = false;
			q++;
			continue;
		}
		q = find_special(q, end);
		if (q == end)
			break;
		closed = *q == '"';
		s->escaped = *q == '\\';
		q++;
	}
	*p = q;
	r = emit(s, from, (size_t)(q - from), err);
	if (r < 0 || !closed)
		return r;
	if (s->key_string)
		end_key(s);
	else
		s->state = S_NEXT;
	return 0;
}

static int feed_scalar(struct ku_split *s, const char **p, const char *end, struct err *err)
{
	const char *q = *p;
	int r;

	while (q < end && *q != ',' && *q != '}' && *q != ']' && (unsigned char)*q > ' ')
		q++;
	r = emit(s, *p, (size_t)(q - *p), err);
	*p = q;
	if (r == 0 && q < end)
		s->state = S_NEXT;
	return r;
}

/* The rest of a string; false: it goes on in the next chunk. */
static bool skip_string(struct ku_split *s, const char **p, const char *end)
{
	const char *q = *p;

	while (q < end) {
		if (s->escaped) {
			s->escaped = false;
			q++;
			continue;
		}
		q = find_special(q, end);
		if (q == end)
			break;
		if (*q++ == '"') {
			*p = q;
			return true;
		}
		s->escaped = true;
	}
	*p = q;
	return false;
}

/* A value that is left out; its brackets are only counted. */
static void feed_skip(struct ku_split *s, const char **p, const char *end)
{
	const char *q = *p;

	while (q < end && s->state == S_SKIP) {
		char c = *q;

		if (s->skip_string || c == '"') {
			q += !s->skip_string;
			s->skip_string = !skip_string(s, &q, end);
			if (!s->skip_string && s->skip_depth == 0)
				s->state = S_NEXT;
		} else if (c == '{' || c == '[') {
			s->skip_depth++;
			q++;
		} else if (c == '}' || c == ']') {
			if (s->skip_depth <= 1)
				s->state = S_NEXT;
			q += s->skip_depth > 0; /* else it closes what is around us */
			s->skip_depth -= s->skip_depth > 0;
		} else if (c == ',' && s->skip_depth == 0) {
			s->state = S_NEXT;
		} else {
			q++;
		}
	}
	*p = q;
}

static int next_member(struct ku_split *s, char c, struct err *err)
{
	if (c != ',')
		return close_level(s, c, err);
	if (s->level[s->depth].object) {
		s->state = S_KEY;
		return 0;
	}
	s->state = S_VALUE;
	return s->piece_depth > 0 ? emit(s, ",", 1, err) : 0;
}

/* One byte that is neither white space nor inside a string, scalar or skipped value. *ret_used false:
 * it is to be looked at again in the new state. */
static int step(struct ku_split *s, char c, bool *ret_used, struct err *err)
{
	switch ((enum state)s->state) {
	case S_TOP:
		if (c != '{')
			return bad("not an object", err);
		s->next_name = ROOT;
		return s->mode == KU_SPLIT_EVENTS ? open_piece(s, KU_PIECE_OBJECT, ROOT, err)
						  : open_level(s, true, err);
	case S_KEY_OR_END:
	case S_KEY:
		if (c == '}' && s->state == S_KEY_OR_END)
			return close_level(s, c, err);
		return c == '"' ? start_key(s, err) : bad("not a key", err);
	case S_COLON:
	case S_COLON_SKIP:
		if (c != ':')
			return bad("no ':' behind a key", err);
		if (s->state == S_COLON_SKIP)
			start_skip(s);
		else
			s->state = S_VALUE;
		return s->state == S_VALUE && s->piece_depth > 0 ? emit(s, ":", 1, err) : 0;
	case S_VALUE_OR_END:
	case S_VALUE:
		if (c == ']' && s->state == S_VALUE_OR_END)
			return close_level(s, c, err);
		return start_value(s, c, ret_used, err);
	case S_NEXT:
		return next_member(s, c, err);
	case S_DONE:
		return bad("text behind the list", err);
	case S_STRING:
	case S_SCALAR:
	case S_SKIP:
		break;
	}
	return err_set(err, ERR_INTERNAL, "splitter: state %d", s->state);
}

int ku_split_feed(struct ku_split *s, const char *data, size_t len, struct err *err)
{
	const char *p = data, *end = data + len;
	int r = 0;

	while (p < end && r == 0) {
		bool used = true;

		if (s->state == S_STRING) {
			r = feed_string(s, &p, end, err);
		} else if (s->state == S_SCALAR) {
			r = feed_scalar(s, &p, end, err);
		} else if (s->state == S_SKIP) {
			feed_skip(s, &p, end);
		} else if (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r') {
			p++;
		} else {
			r = step(s, *p, &used, err);
			p += used;
		}
	}
	return r;
}

#include "extender/scan.h"

#include <stdlib.h>
#include <string.h>

#include "extender/scan_internal.h"

/* ---- names ---- */

void ex_names_fini(struct ex_names *n)
{
	free(n->v);
	buf_fini(&n->decoded);
	*n = (struct ex_names){0};
}

void ex_items_fini(struct ex_items *i)
{
	free(i->v);
	*i = (struct ex_items){0};
}

static int names_grow(struct ex_names *n, struct err *err)
{
	size_t cap = n->cap > 0 ? n->cap * 2 : 256;
	struct ex_name *v = reallocarray(n->v, cap, sizeof(*v));

	if (v == NULL)
		return err_set(err, ERR_NOMEM, "out of memory for node names");
	n->v = v;
	n->cap = cap;
	return 0;
}

/* Reads the string at the cursor as the next name. */
static int read_name(struct ex_cursor *c, struct ex_names *names)
{
	const char *from = c->p;
	struct ex_cursor again = *c;
	struct ex_name *n;
	bool escaped;
	size_t at;
	int rc;

	if (names->count == names->cap) {
		rc = names_grow(names, c->err);
		if (rc < 0)
			return rc;
	}
	rc = ex_cursor_string(c, &escaped, NULL);
	if (rc < 0)
		return rc;
	if (c->p - from > INT32_MAX)
		return ex_cursor_bad(c, "a name of more than 2 GiB");
	n = &names->v[names->count];
	*n = (struct ex_name){.at = from + 1, .raw = from};
	n->raw_len = (uint32_t)(c->p - from);
	n->len = n->raw_len - 2;
	if (escaped) {
		/* Decoded text is never longer than the raw one: one reservation for the rest of
		 * the body, so that the buffer does not move under the names before. */
		at = names->decoded.len;
		if (at == 0)
			buf_reserve(&names->decoded, (size_t)(c->end - from));
		rc = ex_cursor_string(&again, &escaped, &names->decoded);
		if (rc < 0 || !buf_ok(&names->decoded))
			return err_set(c->err, ERR_NOMEM, "out of memory for node names");
		n->at = names->decoded.data + at;
		n->len = (uint32_t)(names->decoded.len - at);
	}
	names->count++;
	return 0;
}

static void names_reset(struct ex_names *names)
{
	names->count = 0;
	buf_reset(&names->decoded);
}

static int read_names(struct ex_cursor *c, struct ex_names *names)
{
	bool first = true;
	int rc;

	names_reset(names);
	while ((rc = ex_cursor_next(c, &first, ']')) == 1) {
		if (c->p >= c->end || *c->p != '"')
			return err_set(c->err, ERR_INVALID,
				       "byte %zu: NodeNames[%zu] is not a string",
				       (size_t)(c->p - c->start), names->count);
		rc = read_name(c, names);
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* ---- the body ---- */

struct member {
	const char *name;
	char open;     /* the value begins with this, or is null */
	size_t offset; /* of its slice in struct ex_body */
};

static const struct member members[] = {
	{"Pod", '{', offsetof(struct ex_body, pod)},
	{"Nodes", '{', offsetof(struct ex_body, nodes)},
	{"NodeNames", '[', offsetof(struct ex_body, node_names)},
	{"NodeNameToVictims", '{', offsetof(struct ex_body, victims)},
	{"NodeNameToMetaVictims", '{', offsetof(struct ex_body, meta_victims)},
};

static int read_member(struct ex_cursor *c, const struct buf *key, struct ex_body *ret,
		       struct ex_names *names)
{
	const struct member *m = NULL;
	struct ex_slice *slice;
	const char *from = c->p;
	int rc;

	for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		if (ex_key_is(key, members[i].name, true))
			m = &members[i];
	}
	if (m == NULL)
		return ex_cursor_skip(c, 1);
	slice = (struct ex_slice *)((char *)ret + m->offset);
	*slice = (struct ex_slice){0};
	if (m->open == '[')
		names_reset(names);
	if (c->p < c->end && *c->p == 'n')
		return ex_cursor_literal(c, "null");
	if (c->p >= c->end || *c->p != m->open)
		return err_set(c->err, ERR_INVALID, "byte %zu: %s is not %s",
			       (size_t)(c->p - c->start), m->name,
			       m->open == '{' ? "an object" : "a list");
	rc = m->open == '[' ? read_names(c, names) : ex_cursor_skip(c, 1);
	if (rc == 0)
		*slice = (struct ex_slice){.at = from, .len = (size_t)(c->p - from)};
	return rc;
}

int ex_scan_body(const char *text, size_t len, struct ex_body *ret, struct ex_names *names,
		 struct err *err)
{
	struct ex_cursor c = {.p = text, .end = text + len, .start = text, .err = err};
	struct buf key = BUF_INIT;
	struct ex_body body = {0};
	bool first = true;
	int rc;

	names_reset(names);
	ex_cursor_space(&c);
	if (c.p >= c.end || *c.p != '{')
		return ex_cursor_bad(&c, "the body is not a JSON object");
	while ((rc = ex_cursor_member(&c, &first, &key)) == 1) {
		rc = read_member(&c, &key, &body, names);
		if (rc < 0)
			break;
	}
	buf_fini(&key);
	if (rc == 0)
		rc = ex_cursor_end(&c);
	if (rc == 0)
		*ret = body;
	return rc;
}

/* ---- items of a NodeList ---- */

/* At the value of "metadata": its "name" becomes the name number `at`. */
static int read_metadata(struct ex_cursor *c, struct buf *key, struct ex_names *names, size_t at)
{
	bool first = true;
	int rc;

	names->count = at;
	if (c->p < c->end && *c->p == 'n')
		return ex_cursor_literal(c, "null");
	if (c->p >= c->end || *c->p != '{')
		return ex_cursor_bad(c, "metadata is not an object");
	while ((rc = ex_cursor_member(c, &first, key)) == 1) {
		if (!ex_key_is(key, "name", false)) {
			rc = ex_cursor_skip(c, 4);
		} else {
			names->count = at;
			if (c->p < c->end && *c->p == 'n')
				rc = ex_cursor_literal(c, "null");
			else if (c->p < c->end && *c->p == '"')
				rc = read_name(c, names);
			else
				rc = ex_cursor_bad(c, "metadata.name is not a string");
		}
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* Of equal keys the last counts, here as everywhere. */
static int read_item(struct ex_cursor *c, struct buf *key, struct ex_names *names)
{
	size_t at = names->count;
	bool first = true;
	int rc;

	if (c->p >= c->end || *c->p != '{')
		return ex_cursor_bad(c, "an item is not an object");
	while ((rc = ex_cursor_member(c, &first, key)) == 1) {
		rc = ex_key_is(key, "metadata", false) ? read_metadata(c, key, names, at)
						       : ex_cursor_skip(c, 3);
		if (rc < 0)
			return rc;
	}
	if (rc == 0 && names->count == at)
		return ex_cursor_bad(c, "an item without metadata.name");
	return rc;
}

static int items_room(struct ex_items *items, size_t count, struct err *err)
{
	size_t cap = items->cap > 0 ? items->cap * 2 : 64;
	struct ex_slice *v;

	if (count < items->cap)
		return 0;
	v = reallocarray(items->v, cap, sizeof(*v));
	if (v == NULL)
		return err_set(err, ERR_NOMEM, "out of memory for nodes");
	items->v = v;
	items->cap = cap;
	return 0;
}

static int read_items(struct ex_cursor *c, struct buf *key, struct ex_names *names,
		      struct ex_items *items)
{
	size_t before = names->count;
	const char *from;
	bool first = true;
	int rc;

	if (c->p < c->end && *c->p == 'n')
		return ex_cursor_literal(c, "null");
	if (c->p >= c->end || *c->p != '[')
		return ex_cursor_bad(c, "items is not a list");
	while ((rc = ex_cursor_next(c, &first, ']')) == 1) {
		from = c->p;
		rc = items_room(items, names->count, c->err);
		if (rc == 0)
			rc = read_item(c, key, names);
		if (rc < 0)
			return err_prefix(c->err, rc, "Nodes.items[%zu]", names->count - before);
		items->v[names->count - 1] =
			(struct ex_slice){.at = from, .len = (size_t)(c->p - from)};
	}
	return rc;
}

int ex_scan_nodes(struct ex_slice nodes, struct ex_names *names, struct ex_items *items,
		  struct err *err)
{
	struct ex_cursor c = {
		.p = nodes.at, .end = nodes.at + nodes.len, .start = nodes.at, .err = err};
	struct buf key = BUF_INIT;
	bool first = true;
	int rc;

	names_reset(names);
	while ((rc = ex_cursor_member(&c, &first, &key)) == 1) {
		if (ex_key_is(&key, "items", true)) {
			names_reset(names);
			rc = read_items(&c, &key, names, items);
		} else {
			rc = ex_cursor_skip(&c, 1);
		}
		if (rc < 0)
			break;
	}
	buf_fini(&key);
	return rc;
}

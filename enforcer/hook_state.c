#include "enforcer/hook_state.h"

#include <stdbool.h>
#include <string.h>

#include "base/quantity.h"

#define DEPTH_MAX 64

struct scan {
	const char *at, *end;
};

static void skip_space(struct scan *x)
{
	while (x->at < x->end && memchr(" \t\r\n", *x->at, 4) != NULL)
		x->at++;
}

static bool take(struct scan *x, char c)
{
	if (x->at == x->end || *x->at != c)
		return false;
	x->at++;
	return true;
}

/* A string; *ret is what is between the quotes, escapes and all. */
static bool take_string(struct scan *x, const char **ret, size_t *ret_len)
{
	if (!take(x, '"'))
		return false;
	*ret = x->at;
	while (x->at < x->end && *x->at != '"') {
		if ((unsigned char)*x->at < ' ')
			return false;
		if (*x->at == '\\')
			x->at++;
		if (x->at < x->end)
			x->at++;
	}
	*ret_len = (size_t)(x->at - *ret);
	return take(x, '"');
}

/* A number, true, false or null: not looked into. */
static bool take_word(struct scan *x)
{
	static const char allowed[] = "+-.0123456789abcdefghijklmnopqrstuvwxyzE";
	const char *start = x->at;

	while (x->at < x->end && strchr(allowed, *x->at) != NULL && *x->at != '\0')
		x->at++;
	return x->at > start;
}

/* Recursive, at most DEPTH_MAX deep. */
static bool skip_value(struct scan *x, unsigned depth)
{
	const char *s;
	char close;
	size_t len;

	skip_space(x);
	if (x->at == x->end)
		return false;
	if (*x->at == '"')
		return take_string(x, &s, &len);
	if (*x->at != '{' && *x->at != '[')
		return take_word(x);
	if (depth == DEPTH_MAX)
		return false;
	close = *x->at++ == '{' ? '}' : ']';
	skip_space(x);
	if (take(x, close))
		return true;
	do {
		skip_space(x);
		if (close == '}') {
			if (!take_string(x, &s, &len))
				return false;
			skip_space(x);
			if (!take(x, ':'))
				return false;
		}
		if (!skip_value(x, depth + 1))
			return false;
		skip_space(x);
	} while (take(x, ','));
	return take(x, close);
}

static int take_id(struct scan *x, struct en_oci_state *ret, struct err *err)
{
	const char *s;
	size_t len;

	if (!take_string(x, &s, &len) || len >= sizeof(ret->id) || memchr(s, '\0', len) != NULL)
		return err_set(err, ERR_INVALID, "OCI state: id is not a container's");
	memcpy(ret->id, s, len);
	ret->id[len] = '\0';
	return en_container_id_check(ret->id, err) == 0
		       ? 0
		       : err_prefix(err, ERR_INVALID, "OCI state: id");
}

static int take_pid(struct scan *x, struct en_oci_state *ret, struct err *err)
{
	const char *start = x->at;
	char text[16] = "";
	size_t len;
	int64_t pid;

	len = take_word(x) ? (size_t)(x->at - start) : 0;
	if (len >= sizeof(text) || len == 0)
		return err_set(err, ERR_INVALID, "OCI state: pid is no number");
	memcpy(text, start, len);
	if (integer_parse(text, 1, INT32_MAX, &pid, err) != 0)
		return err_prefix(err, ERR_INVALID, "OCI state: pid");
	ret->pid = (uint32_t)pid;
	return 0;
}

static bool name_is(const char *s, size_t len, const char *name)
{
	return strlen(name) == len && memcmp(s, name, len) == 0;
}

static int not_json(const struct scan *x, const char *text, struct err *err)
{
	return err_set(err, ERR_INVALID, "OCI state: no JSON object (byte %zu)",
		       (size_t)(x->at - text));
}

int en_oci_state_read(const char *text, size_t len, struct en_oci_state *ret, struct err *err)
{
	struct scan x = {text, text + len};
	struct en_oci_state state = {.pid = 0};
	int rc = 0;

	skip_space(&x);
	if (!take(&x, '{'))
		return not_json(&x, text, err);
	do {
		const char *name;
		size_t name_len;
		bool ok = true;

		skip_space(&x);
		if (!take_string(&x, &name, &name_len))
			return not_json(&x, text, err);
		skip_space(&x);
		if (!take(&x, ':'))
			return not_json(&x, text, err);
		skip_space(&x);
		if (name_is(name, name_len, "id"))
			rc = take_id(&x, &state, err);
		else if (name_is(name, name_len, "pid"))
			rc = take_pid(&x, &state, err);
		else
			ok = skip_value(&x, 1);
		if (rc != 0)
			return rc;
		if (!ok)
			return not_json(&x, text, err);
		skip_space(&x);
	} while (take(&x, ','));
	if (!take(&x, '}'))
		return not_json(&x, text, err);
	skip_space(&x);
	if (x.at != x.end)
		return not_json(&x, text, err);
	if (state.id[0] == '\0' || state.pid == 0)
		return err_set(err, ERR_INVALID, "OCI state: no %s",
			       state.id[0] == '\0' ? "id" : "pid");
	*ret = state;
	return 0;
}

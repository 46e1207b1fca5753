#include "enforcer/mps_parse.h"

#include <string.h>
#include <strings.h>

#include "base/quantity.h"

/* A part of the text; not terminated. */
struct span {
	const char *s;
	size_t len;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct span trim(struct span t)
{
	while (t.len > 0 && is_blank(t.s[0])) {
		t.s++;
		t.len--;
	}
	while (t.len > 0 && is_blank(t.s[t.len - 1]))
		t.len--;
	return t;
}

/* The next line that is not blank; false at the end. */
static bool next_line(struct span *rest, struct span *ret)
{
	while (rest->len > 0) {
		const char *end = memchr(rest->s, '\n', rest->len);
		struct span line = {rest->s, end != NULL ? (size_t)(end - rest->s) : rest->len};
		size_t used = line.len + (end != NULL);

		rest->s += used;
		rest->len -= used;
		*ret = trim(line);
		if (ret->len > 0)
			return true;
	}
	return false;
}

/* The next field of a line; the last one (of max) takes the rest. False when there is none left. */
static bool next_field(struct span *rest, bool last, struct span *ret)
{
	const char *end;
	struct span f = *rest;

	if (rest->s == NULL)
		return false;
	end = last ? NULL : memchr(rest->s, ',', rest->len);
	if (end != NULL) {
		f.len = (size_t)(end - rest->s);
		rest->s = end + 1;
		rest->len -= f.len + 1;
	} else {
		rest->s = NULL;
		rest->len = 0;
	}
	*ret = trim(f);
	return true;
}

/* Splits at the first max - 1 commas; returns the number of fields, missing ones are empty. */
static size_t split(struct span line, struct span *ret, size_t max)
{
	size_t n = 0;

	while (n < max && next_field(&line, n == max - 1, &ret[n]))
		n++;
	for (size_t i = n; i < max; i++)
		ret[i] = (struct span){"", 0};
	return n;
}

static int bad_line(struct span line, const char *what, struct err *err)
{
	char shown[80];
	size_t n = line.len < sizeof(shown) - 1 ? line.len : sizeof(shown) - 1;

	for (size_t i = 0; i < n; i++)
		shown[i] = line.s[i] >= ' ' && line.s[i] < 127 ? line.s[i] : '?';
	shown[n] = '\0';
	return err_set(err, ERR_INVALID, "MPS %s: \"%s\" is not understood", what, shown);
}

static void copy_cut(struct span f, char *ret, size_t cap)
{
	size_t n = f.len < cap - 1 ? f.len : cap - 1;

	memcpy(ret, f.s, n);
	ret[n] = '\0';
}

/* False where it does not fit. */
static bool copy_whole(struct span f, char *ret, size_t cap)
{
	if (f.len >= cap || memchr(f.s, '\0', f.len) != NULL)
		return false;
	copy_cut(f, ret, cap);
	return true;
}

static bool copy_name(struct span f, char ret[EN_MPS_NAME_CAP])
{
	for (size_t i = 0; i < f.len; i++) {
		if (!((f.s[i] >= 'a' && f.s[i] <= 'z') || (f.s[i] >= '0' && f.s[i] <= '9') ||
		      f.s[i] == '_'))
			return false;
	}
	return f.len > 0 && copy_whole(f, ret, EN_MPS_NAME_CAP);
}

/* A directory, or nothing where the tool shows none. */
static bool copy_dir(struct span f, char ret[EN_MPS_DIR_CAP])
{
	if (f.len == 0 || f.s[0] != '/') {
		ret[0] = '\0';
		return true;
	}
	return copy_whole(f, ret, EN_MPS_DIR_CAP);
}

static bool to_number(struct span f, int64_t *ret)
{
	char digits[24];

	if (f.len == 0 || f.len >= sizeof(digits) || f.s[0] < '0' || f.s[0] > '9')
		return false;
	memcpy(digits, f.s, f.len);
	digits[f.len] = '\0';
	return integer_parse(digits, 0, INT64_MAX, ret, NULL) == 0;
}

int mps_parse_servers(const char *text, size_t len, struct en_mps_server *ret, size_t cap,
		      size_t *ret_count, struct err *err)
{
	struct span rest = {text, len}, line, f[6];
	size_t count = 0;

	while (next_line(&rest, &line)) {
		struct en_mps_server row = {0};

		if (split(line, f, 6) < 4 || !copy_name(f[0], row.name) || f[3].len == 0 ||
		    !copy_whole(f[3], row.status, sizeof(row.status)) || !copy_dir(f[4], row.dir))
			return bad_line(line, "server list", err);
		if (!to_number(f[2], &row.pid))
			row.pid = 0;
		if (count < cap)
			ret[count] = row;
		count++;
	}
	*ret_count = count;
	return 0;
}

int mps_parse_percent(const char *text, size_t len, int32_t *ret_centipercent, struct err *err)
{
	struct span t = trim((struct span){text, len});
	char number[24];
	int64_t nano;

	if (!copy_whole(t, number, sizeof(number)) || decimal_parse_nano(number, &nano, NULL) != 0)
		return bad_line(t, "percentage", err);
	if (nano > INT64_C(100000000000))
		return err_set(err, ERR_RANGE, "MPS percentage %s is over 100", number);
	*ret_centipercent = (int32_t)(nano / 10000000);
	return 0;
}

int mps_parse_namespaces(const char *text, size_t len, struct en_mps_namespace *ret, size_t cap,
			 size_t *ret_count, struct err *err)
{
	struct span rest = {text, len}, line, f[8];
	size_t count = 0;

	while (next_line(&rest, &line)) {
		struct en_mps_namespace row = {.centipercent = -1};

		if (split(line, f, 8) < 5 || !copy_name(f[0], row.name) ||
		    !copy_name(f[1], row.server) || !copy_dir(f[6], row.dir))
			return bad_line(line, "namespace list", err);
		if (f[4].len > 0 && !(f[4].len == 1 && f[4].s[0] == '-') &&
		    mps_parse_percent(f[4].s, f[4].len, &row.centipercent, NULL) != 0)
			return bad_line(line, "namespace list", err);
		if (count < cap)
			ret[count] = row;
		count++;
	}
	*ret_count = count;
	return 0;
}

/* "default" of "default", "srv/default" and "srv/default (0)". */
static struct span namespace_of(struct span f)
{
	const char *slash = memchr(f.s, '/', f.len), *open;

	if (slash != NULL) {
		f.len -= (size_t)(slash + 1 - f.s);
		f.s = slash + 1;
	}
	open = memchr(f.s, '(', f.len);
	if (open != NULL)
		f.len = (size_t)(open - f.s);
	return trim(f);
}

int mps_parse_clients(const char *text, size_t len, struct en_mps_client *ret, size_t cap,
		      size_t *ret_count, struct err *err)
{
	struct span rest = {text, len}, line, f[5];
	size_t count = 0;

	while (next_line(&rest, &line)) {
		struct en_mps_client row = {0};

		if (split(line, f, 5) < 4 || !to_number(f[0], &row.pid) ||
		    !copy_name(f[1], row.server) ||
		    !copy_whole(f[2], row.device, sizeof(row.device)) ||
		    !copy_name(namespace_of(f[3]), row.ns)) {
			/* What follows a row may be the rest of its command, which is a tenant's text. */
			if (count > 0)
				continue;
			return bad_line(line, "client list", err);
		}
		copy_cut(f[4], row.command, sizeof(row.command));
		if (count < cap)
			ret[count] = row;
		count++;
	}
	*ret_count = count;
	return 0;
}

int mps_parse_pids(const char *text, size_t len, int64_t *ret, size_t cap, size_t *ret_count,
		   struct err *err)
{
	struct span rest = {text, len}, line;
	size_t count = 0;

	while (next_line(&rest, &line)) {
		int64_t pid;

		if (!to_number(line, &pid))
			return bad_line(line, "list of processes", err);
		if (count < cap)
			ret[count] = pid;
		count++;
	}
	*ret_count = count;
	return 0;
}

int mps_parse_value(const char *text, size_t len, char *ret, size_t cap, struct err *err)
{
	struct span t = trim((struct span){text, len});

	if (t.len == 0 || memchr(t.s, '\n', t.len) != NULL || memchr(t.s, '\0', t.len) != NULL)
		return bad_line(t, "value", err);
	if (!copy_whole(t, ret, cap))
		return err_set(err, ERR_TOO_LARGE, "MPS: a value of %zu bytes", t.len);
	return 0;
}

static bool starts_with(struct span t, const char *prefix)
{
	size_t n = strlen(prefix);

	return t.len >= n && strncasecmp(t.s, prefix, n) == 0;
}

bool mps_is_complaint(const char *text, size_t len)
{
	static const char *const starts[] = {
		"unknown", "error",       "invalid",       "insufficient", "failed",     "cannot",
		"can't",   "unable",      "not ",          "no such",      "server not", "a user ",
		"usage",   "an instance", "namespace not", "client not",
	};
	static const char *const inside[] = {" not found", " does not exist", " is not ",
					     " failed"};
	struct span rest = {text, len}, line;

	while (next_line(&rest, &line)) {
		for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
			if (starts_with(line, starts[i]))
				return true;
		}
		for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
			if (memmem(line.s, line.len, inside[i], strlen(inside[i])) != NULL)
				return true;
		}
	}
	return false;
}

enum en_mps_status_kind mps_status_kind(const char *status, const char *accepted)
{
	size_t len = strlen(status);

	if (strcasecmp(status, "ready") == 0 || strcasecmp(status, "active") == 0)
		return EN_MPS_STATUS_READY;
	if (strcasecmp(status, "initializing") == 0)
		return EN_MPS_STATUS_WAIT;
	if (strcasecmp(status, "fault") == 0)
		return EN_MPS_STATUS_FAULT;
	for (const char *a = accepted; a != NULL && *a != '\0';) {
		size_t n = strcspn(a, ",");

		if (n == len && len > 0 && strncasecmp(a, status, n) == 0)
			return EN_MPS_STATUS_READY;
		a += n + (a[n] == ',');
	}
	return EN_MPS_STATUS_UNKNOWN;
}

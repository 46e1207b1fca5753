#include "base/option_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"

#define HELP_WIDTH 80
#define HELP_INDENT 6

static int set_bool(bool *at, const char *value, struct err *err)
{
	static const char *const yes[] = {"yes", "true", "on", "1"};
	static const char *const no[] = {"no", "false", "off", "0"};

	for (size_t i = 0; i < 4; i++) {
		if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
			*at = strcmp(value, yes[i]) == 0;
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "\"%.100s\" is neither yes nor no", value);
}

static int parse_ratio(const struct option_row *r, int64_t *ret, const char *value, struct err *err)
{
	int64_t nano, permille;
	int rc;

	rc = decimal_parse_nano(value, &nano, err);
	/* The parser ends at 9: larger ratios are whole numbers. */
	if (rc == ERR_RANGE) {
		rc = integer_parse(value, 0, r->max / 1000, &permille, err);
		permille = rc == 0 ? permille * 1000 : 0;
	} else {
		permille = rc == 0 ? nano / 1000000 : 0;
	}
	if (rc < 0)
		return rc;
	if (permille < r->min || permille > r->max)
		return err_set(err, ERR_RANGE, "\"%s\" is not between %lld and %lld", value,
			       (long long)(r->min / 1000), (long long)(r->max / 1000));
	*ret = permille;
	return 0;
}

static int parse_size(const struct option_row *r, int64_t *ret, const char *value, struct err *err)
{
	int rc = quantity_parse(value, QUANTITY_ONE, ret, err);

	if (rc == 0 && (*ret < r->min || *ret > r->max))
		rc = err_set(err, ERR_RANGE, "\"%s\" is not between %lld and %lld bytes", value,
			     (long long)r->min, (long long)r->max);
	return rc;
}

/* "a|b|c": the value is one of these. */
static int check_word(const char *words, const char *value, struct err *err)
{
	size_t len = strlen(value), said = 0, n;
	char list[200] = "";

	for (const char *p = words; *p != '\0'; p += n + (p[n] == '|')) {
		n = strcspn(p, "|");
		if (n == len && memcmp(p, value, len) == 0)
			return 0;
		if (said < sizeof(list))
			said += (size_t)snprintf(list + said, sizeof(list) - said, "%s%.*s",
						 said > 0 ? ", " : "", (int)n, p);
	}
	return err_set(err, ERR_INVALID, "\"%.100s\" is none of %s", value, list);
}

int option_set(const struct option_row *r, void *dst, const char *value, struct err *err)
{
	char *at = (char *)dst + r->offset;
	int64_t v = 0;
	int rc = ERR_INTERNAL;

	switch (r->kind) {
	case OPTION_TEXT:
		if (r->arg != NULL && strchr(r->arg, '|') != NULL &&
		    check_word(r->arg, value, err) < 0)
			return ERR_INVALID;
		memcpy(at, &value, sizeof(value));
		return 0;
	case OPTION_FLAG:
	case OPTION_YES_NO:
		return set_bool((bool *)at, value, err);
	case OPTION_INTEGER:
		rc = integer_parse(value, r->min, r->max, &v, err);
		break;
	case OPTION_BYTES:
		rc = parse_size(r, &v, value, err);
		break;
	case OPTION_RATIO:
		rc = parse_ratio(r, &v, value, err);
		break;
	}
	if (rc == 0)
		memcpy(at, &v, sizeof(v));
	return rc;
}

const struct option_row *option_find(const struct option_table *t, const char *name, size_t len)
{
	for (size_t i = 0; i < t->count; i++) {
		if (strlen(t->rows[i].name) == len && memcmp(t->rows[i].name, name, len) == 0)
			return &t->rows[i];
	}
	return NULL;
}

int option_defaults(const struct option_table *t, void *dst, struct err *err)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct option_row *r = &t->rows[i];

		if (r->fallback != NULL && option_set(r, dst, r->fallback, err) < 0)
			return err_prefix(err, ERR_INTERNAL, "--%s", r->name);
	}
	return 0;
}

int option_environment(const struct option_table *t, void *dst,
		       const char *(*getenv_fn)(const char *name), struct err *err)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct option_row *r = &t->rows[i];
		const char *value = NULL;
		int rc;

		if (r->env != NULL)
			value = getenv_fn != NULL ? getenv_fn(r->env) : getenv(r->env);
		rc = value != NULL && value[0] != '\0' ? option_set(r, dst, value, err) : 0;
		if (rc < 0)
			return err_prefix(err, rc, "%s", r->env);
	}
	return 0;
}

/* One argument, at argv[*i]; *i moves to the last one used. */
static int set_argument(const struct option_table *t, void *dst, int argc, char *const *argv,
			int *i, struct err *err)
{
	const char *arg = argv[*i], *value;
	const struct option_row *r = NULL;
	size_t len = 0;
	int rc;

	if (strcmp(arg, "-h") == 0)
		arg = "--help";
	if (strncmp(arg, "--", 2) == 0) {
		len = strcspn(arg + 2, "=");
		r = option_find(t, arg + 2, len);
	}
	if (r == NULL && arg[0] != '-' && t->stray != NULL)
		return err_set(err, ERR_INVALID, "\"%.100s\" %s", arg, t->stray);
	if (r == NULL)
		return err_set(err, ERR_INVALID, "%.100s: no such option; see --help", arg);
	value = arg[2 + len] == '=' ? arg + 3 + len : NULL;
	if (r->arg == NULL && value == NULL)
		value = "yes";
	if (value == NULL) {
		if (*i + 1 >= argc)
			return err_set(err, ERR_INVALID, "--%s needs %s", r->name, r->arg);
		value = argv[++*i];
	}
	rc = option_set(r, dst, value, err);
	return rc < 0 ? err_prefix(err, rc, "--%s", r->name) : 0;
}

int option_arguments(const struct option_table *t, void *dst, int first, int argc,
		     char *const *argv, struct err *err)
{
	int rc = 0;

	for (int i = first; i < argc && rc == 0; i++)
		rc = set_argument(t, dst, argc, argv, &i, err);
	return rc;
}

void option_wrapped(struct buf *b, const char *text, int column, int indent)
{
	bool first = true;
	size_t len;

	for (; *text != '\0'; text += len + (text[len] == ' ')) {
		len = strcspn(text, " ");
		if (!first && column + 1 + (int)len > HELP_WIDTH) {
			buf_printf(b, "\n%*s", indent, "");
			column = indent;
			first = true;
		}
		if (!first)
			buf_putc(b, ' ');
		buf_put(b, text, len);
		column += (int)len + !first;
		first = false;
	}
	buf_putc(b, '\n');
}

void option_help(const struct option_table *t, struct buf *b)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct option_row *r = &t->rows[i];
		struct buf text = BUF_INIT;

		buf_printf(b, "  --%s%s%s\n%*s", r->name, r->arg != NULL ? " " : "",
			   r->arg != NULL ? r->arg : "", HELP_INDENT, "");
		buf_puts(&text, r->help);
		if (r->fallback != NULL && r->fallback[0] != '\0' && r->arg != NULL)
			buf_printf(&text, " [%s]", r->fallback);
		if (r->env != NULL)
			buf_printf(&text, " (%s)", r->env);
		if (buf_ok(&text))
			option_wrapped(b, buf_str(&text), HELP_INDENT, HELP_INDENT);
		else
			b->failed = true;
		buf_fini(&text);
	}
}

void option_markdown(const struct option_table *t, struct buf *b)
{
	buf_puts(b, "| option | default | environment | meaning |\n|---|---|---|---|\n");
	for (size_t i = 0; i < t->count; i++) {
		const struct option_row *r = &t->rows[i];
		bool given = r->fallback != NULL && r->fallback[0] != '\0';

		buf_printf(b, "| `--%s%s", r->name, r->arg != NULL ? " " : "");
		for (const char *p = r->arg != NULL ? r->arg : ""; *p != '\0'; p++) {
			if (*p == '|')
				buf_putc(b, '\\');
			buf_putc(b, *p);
		}
		buf_printf(b, "` | %s%s%s | %s%s%s | %s |\n", given ? "`" : "",
			   given ? r->fallback : "–", given ? "`" : "", r->env != NULL ? "`" : "",
			   r->env != NULL ? r->env : "–", r->env != NULL ? "`" : "", r->help);
	}
}

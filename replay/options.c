#include "replay/options.h"

#include <stdbool.h>
#include <string.h>

#include "base/quantity.h"

static const struct rp_option *find(const struct rp_option *options, size_t count, const char *name,
				    size_t len)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(options[i].name) == len && memcmp(options[i].name, name, len) == 0)
			return &options[i];
	return NULL;
}

static int add(const struct rp_option *o, const char *value, struct err *err)
{
	struct rp_option_list *list = o->dst;

	if (list->count == RP_OPTION_LIST_MAX)
		return err_set(err, ERR_RANGE, "--%s: more than %d times", o->name,
			       RP_OPTION_LIST_MAX);
	list->v[list->count++] = value;
	return 0;
}

static int set(const struct rp_option *o, const char *value, struct err *err)
{
	char min[24], max[24];
	int64_t v;
	int rc;

	switch (o->type) {
	case RP_OPT_FLAG:
		*(bool *)o->dst = true;
		return 0;
	case RP_OPT_TEXT:
		*(const char **)o->dst = value;
		return 0;
	case RP_OPT_LIST:
		return add(o, value, err);
	case RP_OPT_INTEGER:
		rc = integer_parse(value, o->min, o->max, &v, err);
		break;
	case RP_OPT_DECIMAL:
	default:
		rc = decimal_parse_nano(value, &v, err);
		if (rc == 0 && (v < o->min || v > o->max))
			rc = err_set(err, ERR_RANGE, "\"%s\" is not between %s and %s", value,
				     decimal_format_nano(o->min, min),
				     decimal_format_nano(o->max, max));
		break;
	}
	if (rc < 0)
		return err_prefix(err, rc, "--%s", o->name);
	*(int64_t *)o->dst = v;
	return 0;
}

int rp_options_parse(const struct rp_option *options, size_t count, int argc, char **argv,
		     struct err *err)
{
	for (int i = 0; i < argc; i++) {
		const char *name = argv[i], *eq;
		const struct rp_option *o;
		const char *value = NULL;
		int rc;

		if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
			return RP_HELP_WANTED;
		if (strncmp(name, "--", 2) != 0)
			return err_set(err, ERR_INVALID, "\"%s\" is not an option", argv[i]);
		name += 2;
		eq = strchr(name, '=');
		o = find(options, count, name, eq != NULL ? (size_t)(eq - name) : strlen(name));
		if (o == NULL)
			return err_set(err, ERR_INVALID, "no such option: %s", argv[i]);
		if (o->arg == NULL && eq != NULL)
			return err_set(err, ERR_INVALID, "--%s takes no value", o->name);
		if (o->arg != NULL) {
			value = eq != NULL ? eq + 1 : i + 1 < argc ? argv[++i] : NULL;
			if (value == NULL || value[0] == '\0')
				return err_set(err, ERR_INVALID, "--%s wants %s", o->name, o->arg);
		}
		rc = set(o, value, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void rp_options_help(FILE *out, const struct rp_option *options, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *line = options[i].help, *end;
		int width = fprintf(out, "  --%s%s%s", options[i].name,
				    options[i].arg != NULL ? " " : "",
				    options[i].arg != NULL ? options[i].arg : "");

		for (; line != NULL; line = end != NULL ? end + 1 : NULL, width = 0) {
			end = strchr(line, '\n');
			fprintf(out, "%*s%.*s\n", width < 28 ? 28 - width : 2, "",
				end != NULL ? (int)(end - line) : (int)strlen(line), line);
		}
	}
}

#include "replay/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/quantity.h"

#define DEFAULT_SEED 42
#define DEFAULT_INFLATE_NANO 1300000000
#define ORDER_FILE_MAX ((size_t)1 << 30)

static const char *file_of(const struct rp_option *o)
{
	const char *path = o->arg != NULL && strcmp(o->arg, "FILE") == 0 && o->type == RP_OPT_TEXT
				   ? *(const char *const *)o->dst
				   : NULL;

	return path != NULL && strcmp(path, "-") != 0 ? path : NULL;
}

static bool is_written(const struct rp_option *o)
{
	static const char *const names[] = {"csv", "html", "svg", "decisions"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(o->name, names[i]) == 0)
			return true;
	return false;
}

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	if (strcmp(a, b) == 0)
		return stat(a, &x) != 0 || S_ISREG(x.st_mode);
	return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

/* Can a file of that name be made? Asked before the work that it is for. */
static int check_place(const char *option, const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash == NULL   ? strdup(".")
		       : slash == path ? strdup("/")
				       : strndup(path, (size_t)(slash - path));
	struct stat st;
	int rc = 0;

	if (folder == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		rc = err_set(err, ERR_INVALID, "--%s: %s is a folder", option, path);
	else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		rc = 0; /* a device or pipe, which nothing is made for */
	else if (access(folder, W_OK | X_OK) != 0)
		rc = err_set(err, ERR_INVALID, "--%s: %s cannot be written: folder %s: %s", option,
			     path, folder, strerror(errno));
	else if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
		rc = err_set(err, ERR_INVALID, "--%s: %s cannot be written: %s is no folder",
			     option, path, folder);
	free(folder);
	return rc;
}

/* What is written must have a place, and must not be what is read, nor be written twice. */
static int check_files(const struct rp_option *options, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		const char *out = is_written(&options[i]) ? file_of(&options[i]) : NULL;
		int rc = out != NULL ? check_place(options[i].name, out, err) : 0;

		if (rc < 0)
			return rc;
		for (size_t k = 0; out != NULL && k < count; k++) {
			const char *other = k != i ? file_of(&options[k]) : NULL;

			if (other != NULL && same_file(out, other))
				return err_set(err, ERR_INVALID,
					       "--%s: %s is the file of --%s, too", options[i].name,
					       out, options[k].name);
		}
	}
	return 0;
}

bool rp_command_options(const struct rp_command *self, const struct rp_option *options,
			size_t count, int argc, char **argv, int *ret_status)
{
	struct err err = ERR_INIT;
	int rc = rp_options_parse(options, count, argc, argv, &err);

	if (rc == 0)
		rc = check_files(options, count, &err);

	if (rc == 0)
		return true;
	if (rc == RP_HELP_WANTED) {
		printf("usage: tessera-replay %s %s\n\n%s\n\n", self->name, self->usage,
		       self->summary);
		rp_options_help(stdout, options, count);
		*ret_status = RP_EXIT_OK;
		return false;
	}
	fprintf(stderr, "tessera-replay %s: %s\n(tessera-replay %s --help lists the options)\n",
		self->name, err.msg, self->name);
	*ret_status = RP_EXIT_INPUT;
	return false;
}

int rp_command_failed(int code, const struct err *err)
{
	fprintf(stderr, "tessera-replay: %s\n", err->msg[0] != '\0' ? err->msg : err_name(code));
	switch (code) {
	case ERR_NOMEM:
	case ERR_INTERNAL:
	case ERR_CONFLICT:
	case ERR_NO_ROOM:
		return RP_EXIT_FAILED;
	default:
		return RP_EXIT_INPUT;
	}
}

void rp_command_note(void *quiet, const char *text)
{
	if (!*(const bool *)quiet)
		fprintf(stderr, "tessera-replay: warning: %s\n", text);
}

/* "7" or "42-51". */
static int seed_range(const char *text, const char *s, size_t len, int64_t *first, int64_t *last,
		      struct err *err)
{
	char one[64], *dash;
	int rc;

	if (len >= sizeof(one))
		return err_set(err, ERR_INVALID, "--seed: \"%s\" is not an integer", text);
	memcpy(one, s, len);
	one[len] = '\0';
	dash = len > 1 ? strchr(one + 1, '-') : NULL;
	if (dash != NULL)
		*dash = '\0';
	rc = integer_parse(one, 0, INT64_MAX - 1, first, err);
	if (rc == 0)
		rc = integer_parse(dash != NULL ? dash + 1 : one, 0, INT64_MAX - 1, last, err);
	if (rc < 0)
		return err_prefix(err, rc, "--seed");
	if (*last < *first)
		return err_set(err, ERR_INVALID, "--seed: \"%s\" is a range that runs backwards",
			       text);
	return 0;
}

int rp_seeds_parse(const char *text, uint64_t seeds[RP_SEEDS_MAX], size_t *ret_count,
		   struct err *err)
{
	size_t count = 0;

	if (text == NULL) {
		seeds[0] = DEFAULT_SEED;
		*ret_count = 1;
		return 0;
	}
	for (const char *s = text;;) {
		const char *comma = strchr(s, ',');
		size_t len = comma != NULL ? (size_t)(comma - s) : strlen(s);
		int64_t first = 0, last = 0;
		int rc = seed_range(text, s, len, &first, &last, err);

		if (rc < 0)
			return rc;
		if (last - first >= RP_SEEDS_MAX - (int64_t)count)
			return err_set(err, ERR_RANGE, "--seed: more than %d seeds", RP_SEEDS_MAX);
		while (first <= last)
			seeds[count++] = (uint64_t)first++;
		if (comma == NULL)
			break;
		s = comma + 1;
	}
	*ret_count = count;
	return 0;
}

static int no_such_policy(const char *name, size_t len, struct err *err)
{
	char names[256] = "";

	for (size_t i = 0; po_policy_at(i) != NULL; i++) {
		size_t used = strlen(names);

		snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
			 po_policy_at(i)->name);
	}
	return err_set(err, ERR_INVALID, "--policy: no policy \"%.*s\" (there are: %s)",
		       len < 64 ? (int)len : 64, name, names);
}

static int add_policy(const struct po_policy *list[RP_POLICIES_MAX], size_t *count, const char *s,
		      size_t len, struct err *err)
{
	char name[64] = "";
	const struct po_policy *p;

	if (len < sizeof(name))
		memcpy(name, s, len);
	p = po_policy_find(name);
	if (p == NULL)
		return no_such_policy(s, len, err);
	for (size_t i = 0; i < *count; i++)
		if (list[i] == p)
			return err_set(err, ERR_INVALID, "--policy: \"%s\" twice", name);
	if (*count == RP_POLICIES_MAX)
		return err_set(err, ERR_RANGE, "--policy: too many policies");
	list[(*count)++] = p;
	return 0;
}

int rp_policies_parse(const char *text, const struct po_policy *list[RP_POLICIES_MAX],
		      size_t *count, struct err *err)
{
	*count = 0;
	if (text == NULL) {
		list[(*count)++] = po_policy_at(0);
		return 0;
	}
	if (strcmp(text, "all") == 0) {
		for (size_t i = 0; po_policy_at(i) != NULL && i < RP_POLICIES_MAX; i++)
			list[(*count)++] = po_policy_at(i);
		return 0;
	}
	for (const char *s = text;;) {
		const char *comma = strchr(s, ',');
		int rc = add_policy(list, count, s, comma != NULL ? (size_t)(comma - s) : strlen(s),
				    err);

		if (rc < 0 || comma == NULL)
			return rc;
		s = comma + 1;
	}
}

bool rp_inputs_load(struct rp_inputs *in, struct rp_trace *t, int *ret_status)
{
	struct err err = ERR_INIT;
	bool quiet = in->quiet;
	int rc;

	if (in->nodes_path == NULL || in->pods_path == NULL) {
		err_set(&err, 0, "%s is missing", in->nodes_path == NULL ? "--nodes" : "--pods");
		*ret_status = rp_command_failed(ERR_INVALID, &err);
		return false;
	}
	rc = in->pods_format != NULL ? rp_map_find(in->pods_format, &in->pod_map, &err) : 0;
	if (rc == 0 && in->nodes_format != NULL)
		rc = rp_map_find(in->nodes_format, &in->node_map, &err);
	if (rc < 0) {
		*ret_status = rp_command_failed(rc, &err);
		return false;
	}
	t->pod_map = in->pods_format != NULL ? &in->pod_map : NULL;
	t->node_map = in->nodes_format != NULL ? &in->node_map : NULL;
	rc = rp_trace_load(t, in->nodes_path, in->pods_path, rp_command_note, &quiet, &err);
	if (rc == 0 && in->order_path != NULL && rp_trace_is_json(t))
		rc = err_set(&err, ERR_INVALID,
			     "--order: order files belong to node tables, %s is a cluster in JSON",
			     in->nodes_path);
	if (rc == 0)
		return true;
	*ret_status = rp_command_failed(rc, &err);
	return false;
}

static int read_order(const struct rp_inputs *in, const struct rp_trace *t, struct rp_order *ret,
		      struct err *err)
{
	char *text = NULL;
	size_t len;
	int rc = file_read(in->order_path, ORDER_FILE_MAX, &text, &len, err);

	if (rc == 0)
		rc = rp_order_read(t, in->order_path, text, len, ret, err);
	free(text);
	return rc;
}

int rp_inputs_order(const struct rp_inputs *in, const struct rp_trace *t, uint64_t seed,
		    struct rp_order *ret, struct err *err)
{
	bool live = rp_trace_pods_are_json(t);
	struct rp_order_options opt = {
		.seed = seed,
		.inflate_nano = in->inflate_nano,
		.keep_file_order = live && in->seeds_text == NULL,
	};

	if (in->order_path != NULL)
		return read_order(in, t, ret, err);
	if (opt.inflate_nano == RP_INFLATE_DEFAULT)
		opt.inflate_nano = live ? RP_NO_INFLATION : DEFAULT_INFLATE_NANO;
	return rp_order_make(t, &opt, ret, err);
}

unsigned rp_terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;
	int64_t width;

	if (columns != NULL && integer_parse(columns, 1, 10000, &width, NULL) == 0)
		return (unsigned)width;
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int rp_write_file(const char *path, struct buf *b, struct err *err)
{
	if (!buf_ok(b))
		return err_set(err, ERR_NOMEM, "out of memory");
	if (strcmp(path, "-") != 0)
		return file_replace(path, b->data, b->len, err);
	if (fwrite(b->data, 1, b->len, stdout) != b->len)
		return err_set(err, ERR_IO, "cannot write to standard output");
	return 0;
}

int rp_command_end(int rc, struct err *err)
{
	if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		rc = err_set(err, ERR_IO, "cannot write to standard output");
	if (rc == 0)
		return RP_EXIT_OK;
	rp_command_failed(rc, err);
	return RP_EXIT_FAILED;
}

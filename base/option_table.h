/* Options of a program as one table: arguments, environment, fallbacks and the documentation come from it.
 * Values go into a struct of the program's own, at the row's offset. */
#ifndef TESSERA_BASE_OPTION_TABLE_H
#define TESSERA_BASE_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum option_kind {
	OPTION_TEXT, /* const char *, the value itself; with words joined by '|' in arg one of them */
	OPTION_FLAG,    /* bool; as an argument it needs no value */
	OPTION_YES_NO,  /* bool */
	OPTION_INTEGER, /* int64_t from min to max */
	OPTION_BYTES,   /* int64_t, a Kubernetes quantity from min to max */
	OPTION_RATIO,   /* int64_t, permille of a decimal; min to max are permille */
};

struct option_row {
	const char *name;     /* without "--" */
	const char *arg;      /* NULL: a flag */
	const char *env;      /* NULL: none */
	const char *fallback; /* as text; NULL: none */
	const char *help;
	enum option_kind kind;
	size_t offset;
	int64_t min, max;
	bool live; /* can change while the program runs */
};

struct option_table {
	const struct option_row *rows;
	size_t count;
	const char *
		stray; /* said of a word that is no option and no value; NULL: as of an unknown option */
};

/* The row of that name (len bytes), or NULL. */
const struct option_row *option_find(const struct option_table *t, const char *name, size_t len);
/* Puts a value, which must outlive dst where it is text. ERR_INVALID, ERR_RANGE; the message names the value. */
int option_set(const struct option_row *r, void *dst, const char *value, struct err *err);
/* All fallbacks. A wrong one is ERR_INTERNAL. */
int option_defaults(const struct option_table *t, void *dst, struct err *err);
/* Variables that are set and not empty; getenv_fn NULL: the process's. The message names the variable. */
int option_environment(const struct option_table *t, void *dst,
		       const char *(*getenv_fn)(const char *name), struct err *err);
/* argv[first] to the end: --name value, --name=value, --flag, -h. The message names the option. */
int option_arguments(const struct option_table *t, void *dst, int first, int argc,
		     char *const *argv, struct err *err);
/* Text broken into lines of at most 80 columns, each but the first after indent blanks; column: where the first
 * begins. Ends the line. */
void option_wrapped(struct buf *b, const char *text, int column, int indent);
/* The table for --help: what each option means, its fallback and variable. */
void option_help(const struct option_table *t, struct buf *b);
/* The table in Markdown: option, default, environment, meaning. */
void option_markdown(const struct option_table *t, struct buf *b);

#endif

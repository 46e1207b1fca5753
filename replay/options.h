/* Command lines from one table: parsing, checks and --help. */
#ifndef TESSERA_REPLAY_OPTIONS_H
#define TESSERA_REPLAY_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum rp_option_type {
	RP_OPT_FLAG,    /* bool */
	RP_OPT_TEXT,    /* const char *, into argv */
	RP_OPT_INTEGER, /* int64_t within [min, max] */
	RP_OPT_DECIMAL, /* int64_t in 10^-9, within [min, max] */
	RP_OPT_LIST,    /* struct rp_option_list, given several times */
};

#define RP_OPTION_LIST_MAX 64
struct rp_option_list {
	const char *v[RP_OPTION_LIST_MAX]; /* into argv */
	size_t count;
};

struct rp_option {
	const char *name; /* without "--" */
	const char *arg;  /* the value's name in the help; NULL for a flag */
	enum rp_option_type type;
	void *dst;
	int64_t min, max;
	const char *help; /* "\n" starts a further line */
};

#define RP_HELP_WANTED 1

/* Reads `--name value`, `--name=value` and flags into the destinations. 0; RP_HELP_WANTED for --help
 * or -h; ERR_INVALID, ERR_RANGE: the message names option and value. */
int rp_options_parse(const struct rp_option *options, size_t count, int argc, char **argv,
		     struct err *err);
/* One line an option. */
void rp_options_help(FILE *out, const struct rp_option *options, size_t count);

#endif

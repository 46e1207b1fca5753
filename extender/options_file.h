/* The file of --config: a YAML mapping of option names to values. */
#ifndef TESSERA_EXTENDER_OPTIONS_FILE_H
#define TESSERA_EXTENDER_OPTIONS_FILE_H

#include <stddef.h>

#include "base/err.h"

struct ex_options_file {
	size_t count;
	char **names, **values; /* owned */
};

/* ERR_INVALID names the file and the line: no YAML, no flat mapping of names to values. ERR_IO,
 * ERR_TOO_LARGE, ERR_NOMEM. */
int ex_options_file_read(const char *path, struct ex_options_file **ret, struct err *err);
void ex_options_file_free(struct ex_options_file *f);

#endif

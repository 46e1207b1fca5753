/* Prometheus' text format, version 0.0.4, and the table of a program's metrics for its documentation. */
#ifndef TESSERA_BASE_PROM_H
#define TESSERA_BASE_PROM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct prom_family {
	const char *name, *type;
	const char *labels; /* "a, b" for the documentation; "" = none */
	const char *help;
};

/* The lines HELP and TYPE. */
void prom_begin(struct buf *b, const struct prom_family *f);
/* A label with its value escaped; first: opens the brace. The caller closes it. */
void prom_label(struct buf *b, const char *name, const char *value, bool first);
/* The end of a sample's line. */
void prom_value(struct buf *b, int64_t v);
/* A sample with at most one label (NULL: none). */
void prom_sample(struct buf *b, const struct prom_family *f, const char *label, const char *value,
		 int64_t v);
/* A family of one sample without labels. */
void prom_single(struct buf *b, const struct prom_family *f, int64_t v);
/* The families as a table in Markdown. */
void prom_markdown(struct buf *b, const struct prom_family *families, size_t count);

#endif

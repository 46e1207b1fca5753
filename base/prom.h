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

struct prom_label {
	const char *name, *value;
};

/* The lines HELP and TYPE. */
void prom_begin(struct buf *b, const struct prom_family *f);
/* The start of a sample's line: the family's name, suffix ("_bucket"; "": none) and count labels with
 * their values escaped. One of the values ends it. */
void prom_name(struct buf *b, const struct prom_family *f, const char *suffix,
	       const struct prom_label *labels, size_t count);
void prom_value(struct buf *b, int64_t v);
/* v in units of 10^-digits (1 to 18), as a decimal number with so many digits. */
void prom_decimal(struct buf *b, int64_t v, unsigned digits);
/* A sample with count labels. */
void prom_labelled(struct buf *b, const struct prom_family *f, const struct prom_label *labels,
		   size_t count, int64_t v);
/* A sample with at most one label (NULL: none). */
void prom_sample(struct buf *b, const struct prom_family *f, const char *label, const char *value,
		 int64_t v);
/* A family of one sample without labels. */
void prom_single(struct buf *b, const struct prom_family *f, int64_t v);
/* The families as a table in Markdown. */
void prom_markdown(struct buf *b, const struct prom_family *families, size_t count);

#endif

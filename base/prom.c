#include "base/prom.h"

void prom_begin(struct buf *b, const struct prom_family *f)
{
	buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type);
}

static void put_label(struct buf *b, const struct prom_label *l)
{
	buf_puts(b, l->name);
	buf_puts(b, "=\"");
	for (const char *p = l->value; *p != '\0'; p++) {
		if (*p == '\\' || *p == '"')
			buf_putc(b, '\\');
		if (*p == '\n')
			buf_puts(b, "\\n");
		else
			buf_putc(b, *p);
	}
	buf_putc(b, '"');
}

void prom_name(struct buf *b, const struct prom_family *f, const char *suffix,
	       const struct prom_label *labels, size_t count)
{
	buf_puts(b, f->name);
	buf_puts(b, suffix);
	for (size_t i = 0; i < count; i++) {
		buf_putc(b, i == 0 ? '{' : ',');
		put_label(b, &labels[i]);
	}
	if (count > 0)
		buf_putc(b, '}');
}

void prom_value(struct buf *b, int64_t v)
{
	buf_putc(b, ' ');
	buf_put_i64(b, v);
	buf_putc(b, '\n');
}

void prom_decimal(struct buf *b, int64_t v, unsigned digits)
{
	uint64_t size = v < 0 ? -(uint64_t)v : (uint64_t)v, unit = 1;

	for (unsigned i = 0; i < digits; i++)
		unit *= 10;
	buf_printf(b, " %s%llu.%0*llu\n", v < 0 ? "-" : "", (unsigned long long)(size / unit),
		   (int)digits, (unsigned long long)(size % unit));
}

void prom_labelled(struct buf *b, const struct prom_family *f, const struct prom_label *labels,
		   size_t count, int64_t v)
{
	prom_name(b, f, "", labels, count);
	prom_value(b, v);
}

void prom_sample(struct buf *b, const struct prom_family *f, const char *label, const char *value,
		 int64_t v)
{
	prom_labelled(b, f, &(struct prom_label){label, value}, label != NULL, v);
}

void prom_single(struct buf *b, const struct prom_family *f, int64_t v)
{
	prom_begin(b, f);
	prom_sample(b, f, NULL, NULL, v);
}

void prom_markdown(struct buf *b, const struct prom_family *families, size_t count)
{
	buf_puts(b, "| metric | type | labels | meaning |\n|---|---|---|---|\n");
	for (size_t i = 0; i < count; i++)
		buf_printf(b, "| `%s` | %s | %s | %s |\n", families[i].name, families[i].type,
			   families[i].labels[0] != '\0' ? families[i].labels : "–",
			   families[i].help);
}

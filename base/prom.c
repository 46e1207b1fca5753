#include "base/prom.h"

void prom_begin(struct buf *b, const struct prom_family *f)
{
	buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type);
}

void prom_label(struct buf *b, const char *name, const char *value, bool first)
{
	buf_puts(b, first ? "{" : ",");
	buf_puts(b, name);
	buf_puts(b, "=\"");
	for (const char *p = value; *p != '\0'; p++) {
		if (*p == '\\' || *p == '"')
			buf_putc(b, '\\');
		if (*p == '\n')
			buf_puts(b, "\\n");
		else
			buf_putc(b, *p);
	}
	buf_putc(b, '"');
}

void prom_value(struct buf *b, int64_t v)
{
	buf_putc(b, ' ');
	buf_put_i64(b, v);
	buf_putc(b, '\n');
}

void prom_sample(struct buf *b, const struct prom_family *f, const char *label, const char *value,
		 int64_t v)
{
	buf_puts(b, f->name);
	if (label != NULL) {
		prom_label(b, label, value, true);
		buf_putc(b, '}');
	}
	prom_value(b, v);
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
